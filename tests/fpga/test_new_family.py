"""A device family from outside: one file with its Verilog, an entry point, and nothing else touched."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from support.netlist import netlist_build
from support.new_family.toy import TOY
from support.packages import install
from support.paths import ROOT
from support.random_builds import make_case
from support.small_builds import normal_lstm

import rtlstm
from rtlstm import Accelerator, ConfigurationError, Manifest, Network, Parameters, ToolError
from rtlstm.boards.bitstream import constraints
from rtlstm.boards.board import Board, find_timing
from rtlstm.fpga.devices import devices, find_device
from rtlstm.fpga.estimate import estimate
from rtlstm.fpga.families.base import Pin, fpga_family
from rtlstm.fpga.place_route import nextpnr_options
from rtlstm.fpga.synthesis import synthesise
from rtlstm.fpga.tools import find_yosys
from rtlstm.fpga.worst_path import worst_path
from rtlstm.gen.quantise.quantiser import QuantizationSettings, quantise
from rtlstm.hdl.emit.verilog import core_to_verilog
from rtlstm.spec.family import FAMILIES

SMALL = QuantizationSettings(weight_bits=4, data_bits=6, gate_bits=8, cell_bits=10)


@pytest.fixture(autouse=True)
def toy() -> Iterator[None]:
    FAMILIES.add("toy", TOY)
    yield
    FAMILIES.remove("toy")


def small() -> Network:
    return Network(layers=(normal_lstm(np.random.default_rng(4), 2, 2),))


@pytest.mark.rtl
def test_verilog_and_cycles_equal_golden(tmp_path: Path):
    build = rtlstm.compile(
        small(), folder=tmp_path, family="toy", lanes=4, macs=2, weight_bits=8, data_bits=8
    )
    assert build.manifest.parameters.pipeline == TOY.pipeline
    assert "TOY_MULT18" in build.verilog.read_text()
    assert build.simulate(steps=3, simulator="icarus", verify=False).passed


@pytest.mark.usefixtures("without_verilog")
def test_fit_fills_its_devices(tmp_path: Path):
    assert {"toy-9", "toy-90"} <= devices().keys()
    build = rtlstm.compile(small(), folder=tmp_path, fit="toy-9-2", weight_bits=8, data_bits=8)
    found = estimate(build.manifest, find_device("toy-9-2"))
    assert build.manifest.parameters.family == "toy"
    assert found is not None and found.fits and 0 < found.multipliers <= 27 and found.fmax_mhz <= 90
    assert found.cell_share <= 90 - 3


@pytest.mark.tools
@pytest.mark.slow
def test_synthesis_takes_what_was_estimated(tmp_path: Path):
    chosen = find_device("toy-9")
    quantised = quantise(small(), SMALL)
    made = Manifest.of("tiny", quantised, Parameters.for_family("toy", lanes=4, macs=1))
    found = estimate(made, chosen)
    core = synthesise(core_to_verilog(made), "tiny", chosen.device, find_yosys(), tmp_path).core
    assert found is not None
    assert (found.multipliers, found.block_rams) == (core.multipliers, core.block_rams)
    assert core.luts > 100 and core.ffs > 100


@pytest.mark.slow
@pytest.mark.rtl
@pytest.mark.tools
def test_cells_and_netlist_equal_golden(tmp_path: Path):
    """The hard cells in the bench, and the whole netlist behind the driver."""
    parameters = Parameters.for_family("toy", lanes=4, macs=1)
    case = make_case(7, quantise(small(), SMALL), parameters, steps=4)
    folder = netlist_build(case.write(tmp_path / "rtl"), case.manifest, tmp_path / "netlist")
    text = (folder / case.manifest.rtl).read_text()
    assert "TOY_MULT18" in text and f"{case.manifest.name}_multiplier" not in text
    y, _ = case.golden()
    with Accelerator.open(folder, backend="icarus") as accelerator:
        device = accelerator.device
        h, c = ([part[0] for part in parts] for parts in case.state)
        device.write_state(0, h, c)
        np.testing.assert_array_equal(device.exchange(case.streams, case.x), y)


def test_board_has_constraints_and_a_clock():
    pins = {name: Pin(port=name, site=site) for name, site in (("clk", "A1"), ("rx", "B1"), ("tx", "C1"))}
    board = Board(
        name="toyboard",
        title="A toy board",
        device="toy-90",
        package="box",
        grade="2",
        clock=pins["clk"],
        clock_hz=12_000_000,
        rx=pins["rx"],
        tx=pins["tx"],
        leds=(),
        loader=(),
    )
    assert constraints(board) == "pin clk at A1\npin rx at B1\npin tx at C1\nclock clk 12000000 Hz\n"
    line = find_timing(board, 50)
    assert line.clock_mhz == 48 and line.pll.parameters == {"TIMES": 4}
    options = nextpnr_options(board.chosen, 48, on_board=True)
    assert options[:6] == ["--device", "toy", "--toy-pins", "pins.txt", "--toy", "routed.toy"]
    with pytest.raises(ToolError, match="place and route for toy needs"):
        board.family.find_nextpnr()
    with pytest.raises(ToolError, match="a bitstream for toy needs"):
        board.family.need_bitstream().find_packer()


def test_its_cells_describe_the_worst_path():
    memory, block, end = (
        "core.vectors.cells.0.0",
        "core.lane0.product_TOY_MULT18_P_TILE",
        "core.sum_SB_DFFE_Q_4",
    )
    carry = "core.lane0.total_SB_CARRY_CO_2$toy_io"
    hops = (
        ("clk-to-q", 1.0, memory, ""),
        ("routing", 0.5, memory, "core.vectors.word[3]"),
        ("logic", 2.0, block, ""),
        ("routing", 0.5, block, "core.lane0.total_SB_CARRY_CO_I1"),
        ("logic", 0.25, carry, ""),
        ("routing", 0.5, carry, "core.lane0.next"),
        ("setup", 0.25, end, ""),
    )
    path = [
        {"type": kind, "delay": delay, "from": {"cell": cell}, "to": {"cell": cell}, "net": net}
        for kind, delay, cell, net in hops
    ]
    kinds = {memory: "SB_RAM40_4K", block.removesuffix("_TILE"): "TOY_MULT18", end: "SB_DFFE"}
    found = worst_path(path, kinds, TOY.cells)
    assert (found.start, found.start_kind) == ("vectors.cells", "block RAM")
    assert (found.end, found.end_kind) == ("sum", "register")
    assert (found.cells, found.multipliers, found.delay_ns, found.routing_ns) == (1, 1, 5.0, 1.5)
    assert found.through == ("vectors.word", "lane0.total", "lane0.next")
    # Another family's cells say nothing about this path.
    other = worst_path(path, kinds, fpga_family("ecp5").cells)
    assert (other.start_kind, other.multipliers, other.end) == ("register", 0, "sum_SB_DFFE_Q_4")


def test_netlist_is_finished_by_rules_or_not_at_all():
    def finish_netlist(self, netlist, device):
        netlist.clear()

    for name, method in {"finish_netlist": finish_netlist, "netlist_rules": lambda self, device: "x"}.items():
        with pytest.raises(TypeError, match="Half must define both netlist_rules and finish_netlist, or nei"):
            type("Half", (type(TOY),), {name: method})
    both = {"finish_netlist": finish_netlist, "netlist_rules": lambda self, device: "all cells go"}
    assert type("Whole", (type(TOY),), both)().netlist_rules(TOY.devices[0]) == "all cells go"


def test_harness_has_three_pins_or_none():
    device = TOY.devices[0]
    for pins in ((), ("1", "2", "3")):
        assert device.replace(pins={"only": pins}).pins["only"] == pins
    for pins in (("1",), ("1", "2")):
        with pytest.raises(ConfigurationError, match="pins"):
            device.replace(pins={"only": pins})


def test_installed_package_offers_it(tmp_path: Path):
    """By an entry point alone, in programs of their own."""
    install(tmp_path, "toy", "[rtlstm.families]\ntoy = support.new_family.toy:TOY\n")
    program = (
        f"import sys; sys.path[:0] = [{str(tmp_path)!r}, {str(ROOT / 'tests')!r}]\n"
        "from rtlstm.cli.main import main; sys.exit(main(['devices', '--json']))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = {each["name"]: each for each in json.loads(done.stdout)["devices"]}
    assert found["toy-90"]["family"] == "toy" and found["toy-90"]["fit"]


@pytest.mark.parametrize("name", ["ecp5", "ice40", "nexus", "gowin"])
def test_no_module_decides_by_a_familys_name(name: str):
    """Outside the families, their registry, the boards' catalogue and the benchmarks."""
    folders = ("rtlstm", "spec", "tools", "hdl", "sim", "host", "fpga", "boards", "gen", "cli")
    paths = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    assert len(paths) > 200
    naming = {
        path.relative_to(ROOT).as_posix()
        for path in paths
        if f'"{name}"' in path.read_text() and path.parent.name != "families"
    }
    assert naming <= {"boards/catalogue.py", "spec/family.py"}
