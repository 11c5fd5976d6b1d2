"""rtlstm.cocotb as a user has it: both simulators, every bus, a core inside a design, and what goes wrong."""

import ast
import re
from pathlib import Path

import pytest
from support.bus_builds import write_build
from support.paths import TESTS

from rtlstm.sim.cocotb_run import TestRun, build_design, run_tests
from rtlstm.spec.buses import BusName

pytestmark = pytest.mark.rtl

MODULES = TESTS / "support" / "testbenches"
CORE = MODULES / "core_testbench.py"


def failures(run: TestRun) -> list[str]:
    return [f"{each.name}: {each.failure}" for each in run.outcomes if each.failure]


@pytest.mark.parametrize("simulator", ["icarus", "verilator"])
def test_core_without_a_bus(simulator: str, pristine: Path, tmp_path: Path) -> None:
    run = run_tests(CORE, pristine, build_design(pristine), simulator, tmp_path)
    assert failures(run) == []
    assert len(run.outcomes) == 2


@pytest.mark.parametrize(
    "bus", ["axi", *(pytest.param(bus, marks=pytest.mark.slow) for bus in ("axilite", "wishbone"))]
)
def test_core_on_a_bus(bus: BusName, tmp_path: Path) -> None:
    folder = tmp_path / "build"
    write_build(folder, bus)
    run = run_tests(CORE, folder, build_design(folder), "icarus", tmp_path / "run")
    assert failures(run) == []


def test_what_goes_wrong_is_one_sentence(pristine: Path, tmp_path: Path) -> None:
    module = MODULES / "wrong_core_testbench.py"
    run = run_tests(module, pristine, build_design(pristine), "icarus", tmp_path)
    tests = [node for node in ast.parse(module.read_text()).body if isinstance(node, ast.AsyncFunctionDef)]
    wanted = {test.name: str(ast.get_docstring(test)) for test in tests}
    assert {each.name for each in run.outcomes} == wanted.keys()
    for each in run.outcomes:
        assert each.failure and "\n" not in each.failure, each
        assert re.search(wanted[each.name], each.failure), each
