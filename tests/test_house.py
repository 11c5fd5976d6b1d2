"""The house rules that no linter knows: who may import what."""

import importlib.util
import re
import sys
from importlib.metadata import version
from pathlib import Path

import grimp
import pytest
from support.paths import FOLDERS, ROOT

OUTSIDE = {
    "rtlstm.spec": {"numpy", "pydantic"},
    "rtlstm.host": {"numpy", "pydantic"},
    "rtlstm.host.link": {"numpy", "cobs", "fastcrc", "periphery", "serialx"},
    "rtlstm.host.pynq": {"pynq"},
    "rtlstm.hdl": {"numpy", "amaranth", "wasmtime"},
    "rtlstm.sim": {"numpy", "amaranth", "cocotb", "cocotb_tools", "cocotbext", "vcd"},
    "rtlstm.train": {"numpy", "pydantic", "torch"},
}
"""Packages from outside that each part may import, at the top of a module or later."""
EXTRAS = {"rtlstm.host.torch": {"torch"}, "rtlstm.host.pynq_driver": {"pynq"}}
"""Modules that need an optional package, and that no other module imports, but for :data:`IMPORTERS`."""
IMPORTERS = {"rtlstm.gen.frontends.torch.split"}
"""Modules that are imported only for a module of PyTorch."""


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    return grimp.build_graph("rtlstm", include_external_packages=True, cache_dir=None)


@pytest.mark.parametrize("part", OUTSIDE)
def test_part_imports_only_its_packages(graph: grimp.ImportGraph, part: str):
    modules = ({part} | graph.find_descendants(part)) - EXTRAS.keys()
    for other in OUTSIDE.keys() & modules - {part}:
        modules -= {other} | graph.find_descendants(other)
    found = {name for module in modules for name in graph.find_modules_directly_imported_by(module)}
    outside = {name.partition(".")[0] for name in found} - sys.stdlib_module_names - {"rtlstm"}
    assert outside <= OUTSIDE[part]


@pytest.mark.parametrize("module", EXTRAS)
def test_optional_module_stands_alone(graph: grimp.ImportGraph, module: str):
    found = graph.find_modules_directly_imported_by(module)
    outside = {name.partition(".")[0] for name in found} - sys.stdlib_module_names - {"rtlstm"}
    assert outside <= OUTSIDE["rtlstm.host"] | EXTRAS[module]
    assert not graph.find_modules_that_directly_import(module) - IMPORTERS
    assert not [name for each in IMPORTERS for name in graph.find_modules_that_directly_import(each)]


MODELS = {"rtlstm.sim.golden", "rtlstm.sim.golden_cells", "rtlstm.sim.golden_lstm", "rtlstm.sim.reference"}


@pytest.mark.parametrize("module", sorted(MODELS))
def test_models_stand_on_the_spec_alone(graph: grimp.ImportGraph, module: str):
    found = graph.find_modules_directly_imported_by(module)
    inside = {name for name in found if name.startswith("rtlstm.")} - MODELS
    assert inside
    assert all(name.startswith("rtlstm.spec.") for name in inside)


def test_no_import_goes_round(graph: grimp.ImportGraph):
    # Imports for the type checker alone count, too: a circle of types is one.
    left = {
        module: {
            other for other in graph.find_modules_directly_imported_by(module) if other.startswith("rtlstm.")
        }
        for module in graph.modules
        if module.startswith("rtlstm.")
    }
    # Whatever imports nothing that is left is in no circle.
    while free := {module for module, others in left.items() if not others & left.keys()}:
        for module in free:
            del left[module]
    assert not left


def test_folders_are_no_packages_of_their_own():
    # `import hdl` would make a second copy of rtlstm.hdl, whose classes are not the first's.
    for name in FOLDERS[1:]:
        found = importlib.util.find_spec(name)
        places = [Path(place).resolve() for place in found.submodule_search_locations or []] if found else []
        assert ROOT / name not in places


def test_changelog_begins_with_this_version():
    text = (ROOT / "CHANGELOG.md").read_text()
    assert re.search(r"^## \[(.+?)\]", text, re.MULTILINE)[1] == version("rtlstm")
