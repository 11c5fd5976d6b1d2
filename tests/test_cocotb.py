"""rtlstm.cocotb as a user has it: both simulators, every bus, a core inside a design, and what goes wrong."""

import ast
import json
import os
import re
import shutil
from pathlib import Path

import pytest
from support.bus_builds import write_build
from support.loadable_builds import build_for, make_device, stacked
from support.paths import TESTS
from support.quick import quick

from rtlstm.hdl.emit.verilog import core_to_verilog
from rtlstm.sim.cocotb_core import _active_low
from rtlstm.sim.cocotb_run import Design, TestRun, build_design, run_tests
from rtlstm.sim.simulated_ports import Simulator
from rtlstm.spec.buses import BusName
from rtlstm.spec.parameters import Parameters

pytestmark = pytest.mark.rtl

MODULES = TESTS / "support" / "testbenches"
CORE = MODULES / "core_testbench.py"


def failures(run: TestRun) -> list[str]:
    return [f"{each.name}: {each.failure}" for each in run.outcomes if each.failure]


@pytest.mark.parametrize(
    ("simulator", "batch_first"), quick([("icarus", True), ("verilator", False)], ("icarus", True))
)
def test_core_without_a_bus(simulator: Simulator, batch_first: bool, pristine: Path, tmp_path: Path) -> None:
    """A model of either order; random sequences are of steps first."""
    folder = shutil.copytree(pristine, tmp_path / "build")
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps(manifest | {"batch_first": batch_first}))
    run = run_tests(CORE, folder, build_design(folder), simulator, tmp_path / "run")
    assert failures(run) == [] and len(run.outcomes) == 3


@pytest.mark.slow
@pytest.mark.parametrize("bus", ["axi", "axilite", "wishbone"])
def test_core_on_a_bus(bus: BusName, tmp_path: Path) -> None:
    folder = tmp_path / "build"
    write_build(folder, bus)
    assert failures(run_tests(CORE, folder, build_design(folder), "icarus", tmp_path / "run")) == []


@pytest.mark.parametrize(
    ("simulator", "bus"),
    quick(
        [("icarus", "none"), ("verilator", "none"), ("icarus", "axi"), ("icarus", "wishbone")],
        ("icarus", "none"),
    ),
)
def test_device_of_two_networks(simulator: Simulator, bus: BusName, pristine: Path, tmp_path: Path) -> None:
    """Steps of both, an encoder's stream handed to a decoder, each bit and cycle; resets and new loads."""
    parameters = Parameters(lanes=8, macs=4, streams=2, beat_in=2, bus=bus)
    encoder = make_device(stacked(3, 6), parameters, networks=2, operations=40, weight_rows=100)
    decoder = build_for(stacked(4, 6, dense=((9, "identity"),), seed=2), encoder)
    verilog = core_to_verilog(encoder.manifest)
    folders = [build.save(tmp_path / str(number), verilog) for number, build in enumerate((encoder, decoder))]
    variables = {"NETWORKS": os.pathsep.join(map(str, folders)), "FOREIGN": str(pristine)}
    module, design = MODULES / "residents_testbench.py", build_design(folders[0])
    run = run_tests(module, folders[0], design, simulator, tmp_path / "run", variables=variables)
    assert failures(run) == [] and len(run.outcomes) == 3


@pytest.mark.slow
def test_order_of_writes_and_steps(tmp_path: Path) -> None:
    folder = tmp_path / "build"
    write_build(folder, "axi")
    module = MODULES / "axi_core_testbench.py"
    assert failures(run_tests(module, folder, build_design(folder), "icarus", tmp_path / "run")) == []


@pytest.mark.slow
@pytest.mark.parametrize("simulator", ["icarus", "verilator"])
def test_resets_at_awkward_moments(simulator: Simulator, pristine: Path, tmp_path: Path) -> None:
    module = MODULES / "reset_core_testbench.py"
    run = run_tests(module, pristine, build_design(pristine), simulator, tmp_path)
    assert failures(run) == [] and len(run.outcomes) == 9


@pytest.mark.parametrize(
    ("low", "names"),
    [(True, "aresetn rst_n RST_N rst_ni resetn_i"), (False, "rst reset rst_i reset_in rstin RESET")],
)
def test_the_name_of_a_reset_says_its_level(low: bool, names: str) -> None:
    assert {name: _active_low(name) for name in names.split()} == dict.fromkeys(names.split(), low)


def test_included_files_are_part_of_a_compiled_simulation(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    files = ["header.svh", "sizes.inc", "deep/more.v"]
    (tmp_path / "top.v").write_text('`include "sizes.inc"\nmodule top; endmodule\n')
    (tmp_path / "sizes.inc").write_text('  `include "deep/more.v" // and\n`include "sizes.inc"\n')
    for name in ("header.svh", "deep/more.v"):
        (tmp_path / name).write_text("")
    design = Design("top", (tmp_path / "top.v",))
    before = design.digest_parts()
    assert before == design.digest_parts()
    for name in files:
        with (tmp_path / name).open("a") as file:
            file.write("// changed\n")
        after = design.digest_parts()
        assert after != before, name
        before = after


FEW_MISTAKES = "nobody_wrote|other_weights|no_weights|nowhere|prefix|another_name"
"""Of those that need a loaded core one, since loading takes most of the time."""


@pytest.mark.parametrize("chosen", quick(["", FEW_MISTAKES], FEW_MISTAKES), ids=["all", "few"])
def test_what_goes_wrong_is_one_sentence(chosen: str, pristine: Path, tmp_path: Path) -> None:
    module = MODULES / "wrong_core_testbench.py"
    run = run_tests(module, pristine, build_design(pristine), "icarus", tmp_path, tests=chosen or None)
    nodes = ast.parse(module.read_text()).body
    tests = [node for node in nodes if isinstance(node, ast.AsyncFunctionDef) and node.decorator_list]
    wanted = {test.name: str(ast.get_docstring(test)) for test in tests if re.search(chosen, test.name)}
    assert {each.name.partition("/")[0] for each in run.outcomes} == wanted.keys() and len(wanted) >= 6
    for each in run.outcomes:
        assert each.failure and "\n" not in each.failure, each
        assert re.search(wanted[each.name.partition("/")[0]], each.failure), each
