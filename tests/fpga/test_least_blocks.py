"""Hard blocks of portable Verilog, counted before synthesis: against Yosys, and what is refused."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from rtlstm import ConfigurationError, Lstm, Manifest, Network, Parameters
from rtlstm.fpga.devices import devices, find_device
from rtlstm.fpga.estimate import check_inventory, least_blocks, unpacked_registers
from rtlstm.fpga.families.base import fpga_family
from rtlstm.fpga.families.device import FpgaDevice
from rtlstm.fpga.resources import count_cells
from rtlstm.fpga.synthesis import synthesise
from rtlstm.fpga.tools import find_yosys, run_logged
from rtlstm.gen.quantise.quantiser import QuantizationSettings, quantise
from rtlstm.hdl.emit.verilog import core_to_verilog, primitives
from rtlstm.spec.inventory import gate_multipliers

SIZES = ((4, 4), (4, 8), (8, 8), (8, 10), (12, 16), (18, 18), (16, 19), (18, 25), (18, 27), (24, 24))


def multiplier(a: int, b: int, kind: str) -> str:
    return (
        f"(* keep_hierarchy *) module m_{a}_{b}_{kind}(input clk, input [{a - 1}:0] a, input [{b - 1}:0] b, "
        f"output [{a + b - 1}:0] p); rtlstm_multiplier #(.A_BITS({a}), .B_BITS({b}), .STAGES(2), "
        f'.KIND("{kind}")) it(.clk(clk), .a(a), .b(b), .product(p)); endmodule\n'
    )


def counted(device: FpgaDevice, folder: Path) -> dict[tuple[int, int, str], float]:
    """What Yosys takes for each multiplier."""
    cases = [(a, b, kind) for a, b in SIZES for kind in ("dsp", "lut")]
    outputs = ", ".join(f"output [{a + b - 1}:0] p_{a}_{b}_{kind}" for a, b, kind in cases)
    instances = "\n".join(
        f"m_{a}_{b}_{kind} i_{a}_{b}_{kind}(.clk(clk), .a(a[{a - 1}:0]), .b(b[{b - 1}:0]), "
        f".p(p_{a}_{b}_{kind}));"
        for a, b, kind in cases
    )
    top = f"module top(input clk, input [29:0] a, input [29:0] b, {outputs});\n{instances}\nendmodule\n"
    (folder / "top.v").write_text(primitives("generic") + "".join(multiplier(*case) for case in cases) + top)
    family = fpga_family(device.family)
    yosys = family.yosys(device)
    command = f"{yosys.command} {yosys.infer_multipliers} {yosys.no_pads}"
    script = f"read_verilog top.v\n{command} -top top\ntee -q -o stat.json stat -json\n"
    (folder / "top.ys").write_text(script)
    run_logged(find_yosys(), ["top.ys"], folder=folder, log=folder / "log", what="synthesis")
    found = {}
    for name, module in json.loads((folder / "stat.json").read_text())["modules"].items():
        if match := re.fullmatch(r"\\?m_(\d+)_(\d+)_(\w+)", name):
            sizes = int(match[1]), int(match[2]), match[3]
            found[sizes] = count_cells(module["num_cells_by_type"], family.cells).multipliers
    return found


@pytest.mark.slow
@pytest.mark.tools
@pytest.mark.parametrize("architecture", sorted({device.architecture for device in devices().values()}))
def test_least_multipliers(architecture: str, tmp_path: Path) -> None:
    """Exact for what fits into one block, else no more than Yosys takes; those of "lut" are blocks, too."""
    device = next(each for each in devices().values() if each.architecture == architecture)
    family = fpga_family(device.family)
    found = counted(device, tmp_path)
    assert len(found) == 2 * len(SIZES)
    for (a, b, kind), taken in found.items():
        least = family.least_multiplier(a, b, device)
        assert least <= taken, (a, b, kind)
        assert least == taken or taken > 1 or max(a, b) > 16 or a + b < 12, (a, b, kind)


def manifest(units: int = 8, lanes: int = 8, macs: int = 4, **changes: object) -> Manifest:
    lstm = Lstm(w_ih=np.ones((4 * units, 6)), w_hh=np.ones((4 * units, units)), bias=np.zeros(4 * units))
    quantised = quantise(Network(layers=(lstm,)), QuantizationSettings(weight_bits=8, data_bits=8))
    parameters = Parameters.for_family(
        str(changes.pop("family", "generic")), lanes=lanes, macs=macs, **changes
    )
    return Manifest.of("dut", quantised, parameters)


@pytest.mark.parametrize("name", devices())
def test_all_devices_are_counted(name: str) -> None:
    device = devices()[name]
    assert least_blocks(manifest(lanes=4, macs=1), device).multipliers <= 12
    check_inventory(manifest(lanes=4, macs=1, slope_multipliers="dsp"), device, multipliers=False)
    large = manifest(lanes=1024, macs=16)
    if device.multipliers:
        with pytest.raises(ConfigurationError, match=rf"multipliers \(it has {device.multipliers:,}\)"):
            check_inventory(large, device)
    assert least_blocks(large, device, multipliers=False).multipliers == 0


def test_memories_that_fill_a_block_are_counted() -> None:
    deep = manifest(units=1000, lanes=4, macs=8)
    found = least_blocks(deep, devices()["xc7a35t"])
    bits = deep.regions[next(iter(deep.regions))].width * deep.program.weight_rows
    assert found.block_rams >= 4 * bits // (36 * 1024) > devices()["xc7a35t"].block_rams
    with pytest.raises(ConfigurationError, match=r"50\); generate it with `fit='xc7a35t'` and `clock_mhz`"):
        check_inventory(deep, devices()["xc7a35t"])
    large = manifest(units=1000, lanes=4, macs=8, weight_memory="large", family="xilinx")
    assert least_blocks(large, devices()["xcvu9p"]).block_rams < found.block_rams


def test_registers_that_vivado_packs() -> None:
    made = manifest()
    chosen = find_device("xczu3eg").device
    # 32 of 8 x 8 with two registers, f c, i g and o tanh(c), and slopes with one each.
    unit = made.numerics.unit
    gates = [some.a_bits + some.b_bits for some in gate_multipliers(unit)]
    slopes = [count * (table.slope_bits + table.low_bits + 1) for _, table, count in unit.table_uses]
    assert unpacked_registers(made, chosen) == 32 * 2 * 16 + sum(gates) + sum(slopes)
    assert unpacked_registers(made, chosen, multipliers=False) == 0
    assert unpacked_registers(made, devices()["xc7a35t"]) == 0
    assert unpacked_registers(manifest(family="ultrascale"), chosen) == 0


@pytest.mark.slow
@pytest.mark.tools
def test_registers_against_a_family_that_packs_them(tmp_path: Path) -> None:
    """Yosys packs registers into the blocks of 7-series devices: UltraScale+ has few more but the unpacked.

    It packs registers before the operands, too, which are not counted.
    """
    made = manifest(lanes=4, macs=1)
    counts = []
    for name in ("xczu3eg", "xc7a35t"):
        device = devices()[name]
        counts.append(
            synthesise(core_to_verilog(made), "dut", device, find_yosys(), tmp_path / name).core.ffs
        )
    unpacked = unpacked_registers(made, devices()["xczu3eg"])
    assert counts[1] < counts[0] - unpacked < 1.15 * counts[1]


@pytest.mark.slow
@pytest.mark.tools
def test_instances_are_counted_exactly(tmp_path: Path) -> None:
    """Two products of lanes share a block; those of gates and slopes have one each, with their registers.

    Blocks of UltraScale+ add the products of a lane; 7-series devices have registers for these sums.
    """
    ffs = []
    for family, name in (("xilinx", "xc7a35t"), ("ultrascale", "xczu3eg")):
        made, device = manifest(lanes=4, macs=2, family=family), devices()[name]
        alike = made.parameters.replace(pipeline=fpga_family("xilinx").pipeline)
        made = Manifest.create("dut", made.layers, alike, made.numerics)
        found = least_blocks(made, device)
        assert found.multipliers == 4 * 2 // 2 + 8
        core = synthesise(core_to_verilog(made), "dut", device, find_yosys(), tmp_path / name).core
        assert core.multipliers == found.multipliers
        ffs.append(core.ffs)
    assert 0.95 * ffs[0] < ffs[1] <= ffs[0]


def test_large_memory_that_is_an_instance_is_counted() -> None:
    made = manifest(units=1000, lanes=4, macs=8, weight_memory="large", family="ultrascale")
    rows = made.program.weight_rows
    assert rows > 4096
    assert least_blocks(made, devices()["xcvu9p"]).large_rams == 4 * -(-rows // 4096)
    with pytest.raises(ConfigurationError, match=r"at least \d+ large memory blocks \(it has 0\); "):
        check_inventory(made, devices()["xczu3eg"])
    inferred = manifest(units=1000, lanes=4, macs=8, weight_memory="large", family="xilinx")
    assert least_blocks(inferred, devices()["xcvu9p"]).large_rams == 0


def test_multipliers_in_logic_take_no_block() -> None:
    device = devices()["xczu3eg"]
    some, none = (least_blocks(manifest(family="ultrascale", lut_macs=count), device) for count in (1, 4))
    assert (some.multipliers, none.multipliers) == (8 * 3 // 2 + 8, 8)
