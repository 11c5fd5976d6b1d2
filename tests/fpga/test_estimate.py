"""Estimates against counts by hand, against synthesis of one small build, and what they refuse."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from amaranth.back.rtlil import convert
from amaranth.hdl import Module, Value
from support.estimate_checks import check_synthesis
from support.quick import quick

from rtlstm import ConfigurationError, Dense, Lstm, Manifest, Network, Parameters
from rtlstm.bench.estimates import CASES, measure_case
from rtlstm.fpga.core_parts import (
    ff_parts,
    lut_parts,
    multiplier_luts,
    multiplier_registers,
    multiplier_tiles,
)
from rtlstm.fpga.devices import devices, find_device
from rtlstm.fpga.estimate import check_estimate, count_blocks, demands, estimate, estimate_devices
from rtlstm.fpga.families.base import estimated_families, fpga_family
from rtlstm.fpga.families.estimates import RoutedDesign
from rtlstm.fpga.netlist.ecp5 import count_chains
from rtlstm.fpga.resources import count_cells
from rtlstm.fpga.synthesis import NETLIST
from rtlstm.fpga.tools import find_yosys, run_logged
from rtlstm.gen.quantise.quantiser import QuantizationSettings, quantise
from rtlstm.hdl.buses.wrappers import InputFifo, OutputFifo
from rtlstm.hdl.emit.verilog import primitives
from rtlstm.spec.inventory import MemorySpec, memories

ECP5, GOWIN, ICE40, NEXUS = (
    fpga_family(name).need_estimates() for name in ("ecp5", "gowin", "ice40", "nexus")
)
SMALL = QuantizationSettings(weight_bits=4, data_bits=4, gate_bits=6, cell_bits=8)


def manifest(
    family: str, settings: QuantizationSettings | None = None, inputs=3, units=4, **sizes
) -> Manifest:
    rng = np.random.default_rng(0)
    weights = [rng.normal(size=(4 * units, width), scale=0.3) for width in (inputs, units)]
    lstm = Lstm(name="lstm", w_ih=weights[0], w_hh=weights[1], bias=np.zeros(4 * units))
    dense = Dense(name="fc", weight=rng.normal(size=(2, units)), bias=np.zeros(2))
    quantised = quantise(
        Network(name="tiny", layers=(lstm, dense)),
        settings or QuantizationSettings(weight_bits=8, data_bits=8),
    )
    return Manifest.of("tiny", quantised, Parameters.for_family(family, **sizes))


@pytest.mark.parametrize(
    ("family", "part", "blocks", "tables", "bits"),
    [
        # Beyond 64 words on ECP5: the aspect with the fewest blocks.
        ("ecp5", MemorySpec("m", 1, 36, 512), 1, 0, 0),
        ("ecp5", MemorySpec("m", 1, 37, 512), 2, 0, 0),
        ("ecp5", MemorySpec("m", 1, 32, 1113), 3, 0, 0),
        ("ecp5", MemorySpec("m", 1, 32, 65, granules=4), 1, 0, 0),
        ("ecp5", MemorySpec("m", 1, 48, 65, granules=4), 2, 0, 0),
        # Up to 64 Yosys chooses: 3 x 18 tables and their multiplexers cost more than two blocks.
        ("ecp5", MemorySpec("m", 1, 72, 41), 2, 0, 0),
        ("ecp5", MemorySpec("m", 1, 16, 41), 0, 12, 0),
        ("ecp5", MemorySpec("m", 1, 2, 2), 0, 0, 4),
        ("ecp5", MemorySpec("m", 1, 16, 128, style="distributed"), 0, 32, 0),
        ("ecp5", MemorySpec("m", 1, 10, 200, asynchronous=True, inferred=True), 0, 39, 0),
        ("ice40", MemorySpec("m", 1, 16, 256), 1, 0, 0),
        ("ice40", MemorySpec("m", 1, 16, 257), 2, 0, 0),
        ("ice40", MemorySpec("m", 1, 8, 230), 1, 0, 0),
        ("ice40", MemorySpec("m", 1, 8, 2), 0, 0, 16),
        ("ice40", MemorySpec("m", 1, 8, 200, asynchronous=True), 0, 0, 1600),
        ("gowin", MemorySpec("m", 1, 8, 20, style="block"), 1, 0, 0),
        # A cell of LUTRAM whose bits are not all used costs Yosys less on Gowin alone.
        ("gowin", MemorySpec("m", 1, 9, 130), 0, 27, 0),
        ("gowin", MemorySpec("m", 1, 5, 192), 0, 24, 0),
        ("nexus", MemorySpec("m", 1, 9, 130), 1, 0, 0),
        ("nexus", MemorySpec("m", 1, 36, 513), 2, 0, 0),
    ],
)
def test_memories(family: str, part: MemorySpec, blocks: int, tables: int, bits: int):
    found = fpga_family(family).need_estimates().map_memory(part)
    assert (found.block_rams, found.lutrams, found.flip_flop_bits) == (blocks, tables, bits)


@pytest.mark.tools
def test_fifos_of_a_wrapper(tmp_path: Path):
    """Their block RAMs, against synthesis; they take part in whether a build fits."""
    wide = manifest("ice40", inputs=40, bus="wishbone", lanes=4, macs=4)
    script = ["read_rtlil fifos.il", "synth_ice40 -top top", "tee -q -o stat.json stat -json"]
    top = Module()
    top.submodules.source, top.submodules.sink = source, sink = InputFifo(wide), OutputFifo(wide)
    ports = [Value.cast(value) for part in (source, sink) for *_, value in part.signature.flatten(part)]
    (tmp_path / "fifos.il").write_text(convert(top, name="top", ports=ports))
    (tmp_path / "fifos.ys").write_text("\n".join([*script[:1], "flatten", *script[1:]]))
    run_logged(find_yosys(), ["fifos.ys"], folder=tmp_path, log=tmp_path / "log", what="synthesis")
    stat = json.loads((tmp_path / "stat.json").read_text())["design"]["num_cells_by_type"]
    counted = count_cells(stat, fpga_family("ice40").cells)
    found = estimate(wide, find_device("up5k"))
    assert found is not None and found.wrapper_block_rams == counted.block_rams > 0
    used = {each.resource: each.used for each in demands(found, find_device("up5k").device)}
    assert used["block RAMs"] == found.block_rams + counted.block_rams


def test_multipliers():
    assert [ECP5.hard_blocks(18, bits) for bits in (4, 18, 19, 35, 36)] == [1, 1, 2, 2, 3]
    assert [ICE40.hard_blocks(16, bits) for bits in (16, 20, 21)] == [1, 1, 0]
    # Against the table in docs/primitives.md.
    sizes = ((4, 4), (4, 8), (6, 8), (4, 12), (8, 8), (8, 12), (8, 16), (12, 12), (16, 16), (18, 18))
    one = [multiplier_luts(*size, 1, ECP5) for size in sizes]
    two = [multiplier_luts(*size, 2, ECP5) for size in sizes]
    three = [multiplier_luts(*size, 3, ECP5) for size in sizes]
    assert one == two == [21, 33, 55, 45, 79, 107, 135, 169, 295, 369]
    assert three == [19, 31, 54, 43, 79, 107, 135, 169, 295, 369]
    assert multiplier_luts(4, 8, 3, ICE40) == 59
    # 8 x 2 in the lanes, 5 slopes, f c, i g and o tanh(c); the tables' own are no blocks.
    assert count_blocks(manifest("ecp5", lanes=8, macs=2), ECP5).multipliers == 24
    assert count_blocks(manifest("ecp5", lanes=8, macs=2, lut_macs=1), ECP5).multipliers == 16
    assert count_blocks(manifest("ice40", lanes=8, macs=2, slope_multipliers="lut"), ICE40).multipliers == 11
    assert count_blocks(manifest("ecp5", lanes=8, macs=2), ECP5, multipliers=False).multipliers == 0
    # Two lanes share a block where weights are narrow; on iCE40 the two multipliers of a lane do.
    assert count_blocks(manifest("ecp5", SMALL, lanes=8, macs=2), ECP5).multipliers == 8 + 8
    assert count_blocks(manifest("ecp5", SMALL, lanes=8, macs=2, lut_macs=1), ECP5).multipliers == 4 + 8
    # Lanes of two kinds.
    assert count_blocks(manifest("ecp5", lanes=8, macs=2, lut_lanes=3), ECP5).multipliers == 13 + 8
    assert count_blocks(manifest("ecp5", SMALL, lanes=8, macs=2, lut_lanes=2), ECP5).multipliers == 7 + 8
    assert count_blocks(manifest("ice40", SMALL, lanes=8, macs=3, lut_lanes=3), ICE40).multipliers == (
        5 * 2 + 3 * 1 + 8
    )
    assert [ICE40.hard_blocks(8, 8, count) for count in (1, 2, 3)] == [1, 1, 2]
    assert ICE40.hard_blocks(8, 9, 3) == 3
    # Banks lie side by side.
    assert NEXUS.map_memory(MemorySpec("m", 1, 72, 20000, style="huge")).large_rams == 5
    # Two halves are one block, whoever has them.
    assert [GOWIN.hard_blocks(8, bits) for bits in (3, 9, 10)] == [0, 0.5, 1]
    assert count_blocks(manifest("gowin", lanes=8, macs=2), GOWIN).multipliers == 13.5
    assert count_blocks(manifest("nexus", lanes=8, macs=2), NEXUS).multipliers == 24
    wide = QuantizationSettings(cell_bits=32, weight_bits=8, data_bits=8)
    assert count_blocks(manifest("ecp5", wide, lanes=4, macs=2), ECP5).multipliers == 17


def multiplier_cells(
    family: str, synthesis: str, a: int, b: int, stages: int, folder: Path
) -> dict[str, int]:
    """The cells of one multiplier that is to be made of LUTs, by name."""
    ports = f"input clk, input [{a - 1}:0] a, input [{b - 1}:0] b, output [{a + b - 1}:0] product"
    sizes = f'.A_BITS({a}), .B_BITS({b}), .STAGES({stages}), .KIND("lut")'
    top = f"module top({ports});\n  rtlstm_multiplier #({sizes}) dut (clk, a, b, product);\nendmodule\n"
    (folder / "top.v").write_text(primitives(family) + top)
    script = ["read_verilog top.v", f"{synthesis} -top top -json top.json", "tee -q -o stat.json stat -json"]
    (folder / "top.ys").write_text("\n".join(script))
    run_logged(find_yosys(), ["top.ys"], folder=folder, log=folder / "log", what="synthesis")
    counts: dict[str, int] = json.loads((folder / "stat.json").read_text())["design"]["num_cells_by_type"]
    return counts


FACTORS = [(4, 8), (5, 8), (8, 6), (8, 8), (12, 9), (16, 16)]


@pytest.mark.tools
@pytest.mark.parametrize(
    ("a", "b", "stages"),
    quick([(*factors, stages) for factors in FACTORS for stages in (1, 2, 3)], (5, 8, 3)),
)
def test_multipliers_against_synthesis(a: int, b: int, stages: int, tmp_path: Path):
    """LUTs and flip-flops of a multiplier made of LUTs are known to the cell."""
    stat = multiplier_cells("ecp5", "synth_ecp5", a, b, stages, tmp_path)
    assert stat.get("LUT4", 0) + 2 * stat["CCU2C"] == multiplier_luts(a, b, stages, ECP5)
    assert stat["TRELLIS_FF"] == sum(multiplier_registers(a, b, stages))
    chains = count_chains(json.loads((tmp_path / "top.json").read_text()))
    # One chain of wide factors ends in a cell more.
    assert chains.tiles == pytest.approx(multiplier_tiles(a, b, stages), abs=1)


# A narrow and a wide factor, alone and beyond 18 bits.
INFERRED = [
    (2, 8),
    (3, 12),
    (4, 4),
    (9, 9),
    (9, 10),
    (18, 18),
    (12, 20),
    (12, 22),
    (16, 24),
    (12, 28),
    (20, 32),
    (22, 24),
]


@pytest.mark.tools
@pytest.mark.slow
@pytest.mark.parametrize("family", ["gowin", "nexus"])
def test_inferred_multipliers_against_synthesis(family: str, tmp_path: Path):
    found, counted = fpga_family(family), {}
    yosys = found.yosys(found.devices[0])
    for a, b in INFERRED:
        stat = multiplier_cells(family, f"{yosys.command} {yosys.no_pads}", a, b, 2, tmp_path)
        counted[a, b] = count_cells(stat, found.cells)
    estimates = found.need_estimates()
    assert {size: each.multipliers for size, each in counted.items()} == {
        size: estimates.hard_blocks(*size) for size in counted
    }
    for size, each in counted.items():
        # Of factors of three bits, fewer in a core than alone.
        assert estimates.hard_luts(*size) == pytest.approx(each.luts, rel=0.3, abs=30), size


def test_large_memories():
    found = [
        count_blocks(manifest("ice40", lanes=4, macs=macs, weight_memory="large"), ICE40)
        for macs in (1, 2, 3)
    ]
    assert [blocks.large_rams for blocks in found] == [4, 4, 8]
    deep = ICE40.map_memory(MemorySpec("weights", 1, 16, 16385, style="huge"))
    assert (deep.large_rams, deep.banks, deep.block_rams) == (2, 2, 0)
    large = manifest("ice40", lanes=4, macs=2, weight_memory="large")
    assert (
        count_blocks(large, ICE40).block_rams
        < count_blocks(manifest("ice40", lanes=4, macs=2), ICE40).block_rams
    )
    up5k, hx8k = find_device("up5k"), find_device("hx8k")
    assert estimate(large, up5k).large_rams == 4 and not estimate(large, hx8k).fits
    with pytest.raises(ConfigurationError, match=r"4 large memory blocks \(it has 0\)"):
        check_estimate("tiny", estimate(large, hx8k), hx8k.device)
    with pytest.raises(ConfigurationError, match="`weight_memory` must be block on ecp5"):
        manifest("ecp5", weight_memory="large")


@pytest.mark.parametrize(
    "sizes", [{}, {"gate_units": 2, "beat_out": 2}, {"tables": "direct"}, {"streams": 3}]
)
@pytest.mark.parametrize("family", estimated_families())
def test_parts_are_all_of_the_core(family: str, sizes: dict[str, object]):
    """Memories have the sizes of the regions, and every part of the model is a factor or counts as it is."""
    settings = QuantizationSettings(weight_bits=8, data_bits=8, tables=sizes.get("tables", "interpolated"))
    made = manifest(family, settings, lanes=8, macs=4, **sizes)
    others = ("output queue", "input times")
    bits = sum(memory.bits for name, memory in memories(made).items() if name not in others)
    units = made.parameters.gate_units
    tables = [table for _, table, _ in made.numerics.unit.table_uses]
    held = sum(layout.banks * max(2, layout.rows) * layout.width for layout in made.regions.values())
    words = [table.rows * (table.base_bits + table.slope_bits) for table in tables]
    copies = (3 * units - 1) * words[0] + (units - 1) * (words[1] + words[2])
    assert bits == held + copies + 2 * made.program.input_words * 4 * 8
    estimates = fpga_family(family).need_estimates()
    parts = lut_parts(made, estimates)
    assert estimates.luts.keys() == parts.keys() - {"lanes", "multipliers"}
    assert min(parts.values()) >= 0
    assert lut_parts(made, estimates, multipliers=False)["multipliers"] > parts["multipliers"]
    registers = ff_parts(made, estimates)
    assert estimates.ffs.keys() == registers.keys()
    assert min(registers.values()) >= 0


AMD = ("xc7_small", "xc7_units", "xc7_lanes")
AMD += ("us_16_bits", "us_units", "us_tables", "us_large", "us_wide_array")


@pytest.mark.tools
@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        case.name
        for case in CASES
        if case.cell == "gru" or case.name.startswith(("gw2a", "lifcl")) or case.name in AMD
    ],
)
def test_cases_against_synthesis(name: str, tmp_path):
    """GRUs, whose gate units have factors of their own, devices whose hard blocks are inferred, and AMD's."""
    found = measure_case(next(case for case in CASES if case.name == name), tmp_path)
    assert found.exact
    # Yosys makes LUTs of rows of registers on AMD.
    most = 6 if name.startswith(("xc7", "us")) else 2.5
    assert abs(found.lut_error) < 6.5 and abs(found.ff_error) < most


@pytest.mark.slow
@pytest.mark.tools
@pytest.mark.parametrize("device", ["lfe5u-25f", "up5k", "gw2a-18", "lifcl-40", "xc7z010", "xczu3eg"])
def test_against_synthesis(device: str, tmp_path):
    made = manifest(find_device(device).device.family, SMALL, lanes=4, macs=1)
    found, synthesis = check_synthesis(made, device, tmp_path)
    if found.chain_tiles is not None:
        chains = count_chains(json.loads((synthesis.folder / NETLIST).read_text()))
        # Some counters are off: by half a percent of the smallest device.
        assert found.chain_tiles == pytest.approx(chains.tiles, abs=16)


def test_clock_and_latency():
    made = manifest("ecp5", lanes=4, macs=2)
    slow, fast = (estimate(made, find_device(f"lfe5u-85f-{grade}")) for grade in (6, 8))
    assert slow is not None and fast is not None and slow.fmax_mhz < fast.fmax_mhz <= 271
    assert fast.step_latency_us == pytest.approx(made.cycles.step_latency_cycles / fast.fmax_mhz, rel=1e-3)
    small = estimate(made, find_device("lfe5u-12f-8"))
    assert small is not None and small.luts == fast.luts
    for each in (small, fast):
        model = ECP5.clock(find_device(each.device).device.die)
        mhz = model.mhz("8", each.cell_share / 100, made.numerics.accumulator.bits)
        assert each.fmax_mhz == pytest.approx(mhz, abs=0.1)
    assert model.mhz("8", 0.5, 48) < model.mhz("8", 0.5, 20) < model.mhz("8", 0.1, 20)
    assert model.mhz("8", 0.1, 20, logic_slopes=True) < model.mhz("8", 0.1, 20)
    assert model.mhz("8", 0.1, 20, direct_tables=True) < model.mhz("8", 0.1, 20)


ROUTED = [each for name in estimated_families() for each in fpga_family(name).need_estimates().routed]


@pytest.mark.parametrize(
    "design",
    [design for design in ROUTED if design.sum_bits is not None],
    ids=lambda each: f"{each.device}, {each.cell_share} %",
)
def test_clock_of_a_routed_design_is_estimated(design: RoutedDesign):
    chosen = find_device(design.device)
    model = fpga_family(chosen.device.family).need_estimates().clock(chosen.device.die)
    fill, bits = design.cell_share / 100, design.sum_bits
    mhz = model.mhz(chosen.grade, fill, bits, direct_tables=design.direct)
    assert mhz == pytest.approx(design.mhz, rel=0.10)


def test_a_die_has_a_clock_of_its_own():
    small, large = (ECP5.clock(f"lfe5u-{size}f") for size in (25, 85))
    assert ECP5.clock(find_device("lfe5u-12f").device.die) == small
    for grade in "678":
        assert small.mhz(grade, 0.5, 20) > large.mhz(grade, 0.5, 20)


@pytest.mark.parametrize("name", ["short", "wide_loop"])
def test_a_short_pipeline_has_a_clock_of_its_own(name: str):
    """``--fit`` offers pipelines whose clocks are measured, and no others."""
    sizes = {"lanes": 16, "macs": 4, "gate_units": 4, "beat_out": 4}
    for each in estimated_families():
        family = fpga_family(each)
        assert set(family.need_estimates().pipelines) <= set(family.shorter)
        assert all(0.5 < factor < 1 for factor in family.need_estimates().pipelines.values())
    assert name in ECP5.pipelines
    made = manifest("ecp5", **sizes)
    short = manifest("ecp5", pipeline_name=name, **sizes)
    assert short.cycles.step_latency_cycles < made.cycles.step_latency_cycles
    chosen = find_device("lfe5u-85f-8")
    usual, found = (estimate(each, chosen) for each in (made, short))
    assert usual is not None and found is not None
    assert found.fmax_mhz == pytest.approx(usual.fmax_mhz * ECP5.pipelines[name], rel=0.02)


def test_families_without_estimates_have_none():
    assert estimate(manifest("generic"), find_device("lfe5u-85f")) is None
    assert estimate(manifest("ecp5"), find_device("up5k")) is None
    # What Yosys makes of their multipliers without DSP blocks is not known.
    assert estimate(manifest("nexus"), find_device("lifcl-40"), multipliers=False) is None
    assert estimate_devices(manifest("intel")) == ()
    names = {found.device for found in estimate_devices(manifest("ice40"))}
    assert names == {find_device(name).label for name in devices() if devices()[name].family == "ice40"}


def test_several_cores_take_several_times_the_device():
    chosen = find_device("lfe5u-85f")
    one, three = (estimate(manifest("ecp5"), chosen, cores=cores) for cores in (1, 3))
    for name in ("luts", "ffs", "cells", "chain_tiles", "multipliers", "block_rams", "wrapper_block_rams"):
        assert getattr(three, name) == 3 * getattr(one, name), name
    assert (three.cores, three.cell_share) == (3, pytest.approx(3 * one.cell_share, abs=0.2))
    assert 0.5 * one.fmax_mhz < three.fmax_mhz <= one.fmax_mhz
    most = chosen.device.multipliers // one.multipliers
    many = estimate(manifest("ecp5"), chosen, cores=most + 1)
    assert not many.fits
    with pytest.raises(ConfigurationError) as refused:
        check_estimate("tiny", many, chosen.device)
    assert f"tiny with `cores={most + 1}` does not fit lfe5u-85f: by its estimate" in str(refused.value)
    # An array that fills the device is no remedy.
    assert "implement it with fewer `cores`, generate it with fewer `lanes` or `macs`" in str(refused.value)
    assert "fit=" not in str(refused.value)


def test_only_what_cannot_fit_is_refused():
    device = find_device("up5k").device
    found = estimate(manifest("ice40", lanes=4, macs=1), find_device("up5k"))
    assert found is not None
    check_estimate("tiny", found.replace(multipliers=8), device)
    check_estimate("tiny", found.replace(multipliers=8, luts=round(device.luts * 1.1)), device)
    for changes, words in (
        ({"multipliers": 9}, "by its estimate it takes 9 multipliers (it has 8)"),
        ({"multipliers": 0, "block_rams": 31}, "31 block RAMs (it has 30)"),
        ({"multipliers": 0, "luts": 9000, "large_rams": 5}, "9,000 LUTs (it has 5,280), 5 SPRAM"),
    ):
        with pytest.raises(ConfigurationError, match=re.escape(words)):
            check_estimate("tiny", found.replace(**changes), device)
    # LUTs are chosen when a build is generated, or where its multipliers are inferred.
    for family, name, remedy in (
        ("ice40", "up5k", "multipliers='lut'"),
        ("gowin", "gw1n-9", "implement it with `multipliers=False`"),
    ):
        device = find_device(name).device
        found = estimate(manifest(family, lanes=4, macs=1), find_device(name))
        assert found is not None
        with pytest.raises(ConfigurationError, match=re.escape(remedy)):
            check_estimate("tiny", found.replace(multipliers=99.5), device)
