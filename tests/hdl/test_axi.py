"""The AXI wrapper under other people's bus models: random sequences, and every kind of mistake."""

import xml.etree.ElementTree as Xml
from pathlib import Path

import pytest
from bus_sequences import write_build

from rtlstm.sim.bench import Simulator, build_bench, simulator_environment

FAST, ALL = "0:6", "0:200"


def play(folder: Path, module: str, top: str, simulator: Simulator, seeds: str) -> dict[str, str]:
    """Run a cocotb module on a build's wrapper; return each of its tests' failures."""
    from cocotb_tools.runner import get_runner

    program = build_bench(folder / "rtl" / "dut.v", top, "generic", simulator)
    results = folder / f"{simulator}.xml"
    variables = {"RTLSTM_BUILD": str(folder), "RTLSTM_SEEDS": seeds, "COCOTB_LOG_LEVEL": "WARNING"}
    with simulator_environment(simulator, variables):
        get_runner(simulator).test(
            test_module=module,
            hdl_toplevel=top,
            hdl_toplevel_lang="verilog",
            build_dir=program,
            test_dir=folder,
            results_xml=str(results),
            seed=1,
            log_file=folder / f"{simulator}.log",
        )
    found = {}
    for case in Xml.parse(results).getroot().iter("testcase"):
        failed = case.find("failure")
        found[case.attrib["name"]] = "" if failed is None else str(failed.attrib)
    return found


@pytest.mark.parametrize("simulator", ["icarus", "verilator"])
def test_axi(simulator: Simulator, tmp_path: Path) -> None:
    write_build(tmp_path, "axi")
    found = play(tmp_path, "axi_bench", "dut_axi", simulator, FAST)
    assert len(found) == 7, found
    assert not any(found.values()), found
