"""A made-up device family in one file, beside its Verilog; synthesis is iCE40's, with another multiplier."""

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

from rtlstm.fpga.families.base import BitstreamTools, Cells, FpgaFamily, PlaceRoute, Yosys, largest_blocks
from rtlstm.fpga.families.device import MEGA, Dividers, FpgaDevice, Pll, PllSearch
from rtlstm.fpga.families.estimates import (
    ClockModel,
    Estimates,
    Mapped,
    RamKind,
    RoutedDesign,
    cheapest_memory,
)
from rtlstm.fpga.families.ice40 import ICE40
from rtlstm.fpga.tools import find_tool
from rtlstm.spec.family import NetlistScript, Pipeline
from rtlstm.spec.inventory import MemorySpec

HERE = Path(__file__).absolute()
BLACK_BOX = """read_verilog -lib <<EOT
module TOY_MULT18(input C, input signed [17:0] A, input signed [17:0] B, output signed [35:0] P);
endmodule
EOT
"""


class ToyPll(PllSearch):
    """Multiplies the source by 1 to 8."""

    middle_hz = 100 * MEGA

    def candidates(self, source: int) -> Iterator[tuple[Fraction, Fraction, Dividers]]:
        for times in range(1, 9):
            yield Fraction(source * times), Fraction(source * times), (1, times)

    def cell(self, source: int, clock: Fraction, vco: Fraction, dividers: Dividers) -> Pll:
        return Pll(
            cell="TOY_PLL",
            input_hz=source,
            vco_hz=vco,
            output_hz=clock,
            parameters={"TIMES": dividers[1]},
            attributes={},
            constants={},
            input_port="I",
            output_port="O",
            lock_port="L",
        )


class ToyEstimates(Estimates):
    """Block RAM of 4 Kibit, and a block for each product of up to 18 x 18 bits."""

    luts = {"core": 300}  # noqa: RUF012
    ffs = {"core": 400}  # noqa: RUF012
    top_luts = (1400, 1)
    top_ffs = (760, 1)
    clocks = {  # noqa: RUF012
        "": ClockModel(base_mhz={"1": 60, "2": 90}, filled=0.2, narrow_bits=24, wide_bit=0, logic_slopes=0)
    }
    routed = (RoutedDesign("toy-9", "a small core", 90.0, None, 50.0),)

    def map_memory(self, memory: MemorySpec) -> Mapped:
        return cheapest_memory(memory, (RamKind(11, (2, 4, 8, 16), 1, 64, block=True),))

    def hard_blocks(self, a_bits: int, b_bits: int, count: int = 1) -> int:
        return count if max(a_bits, b_bits) <= 18 else 0


class Toy(FpgaFamily):
    """Toy devices."""

    name = "toy"
    pipeline = Pipeline(operand=3, multiplier=3, tree_levels=1, narrow=4, table=2, result=1)
    primitives = (HERE.with_name("toy.v"),)
    cell_models = (HERE.with_name("toy_cells.v"), *ICE40.cell_models)
    netlist = NetlistScript(
        synthesis=f"{BLACK_BOX}synth_ice40 -top {{top}}",
        cells=f"read_verilog -D EQUIV +/ice40/cells_sim.v\nblackbox SB_RAM40_4K\n{BLACK_BOX}",
    )
    devices = tuple(
        FpgaDevice(
            name=f"toy-{size}",
            family="toy",
            architecture="toy",
            luts=1000 * size,
            ffs=1000 * size,
            multipliers=3 * size,
            block_rams=4 * size,
            block_ram_kibit=4,
            options=("--device", "toy"),
            grades=("1", "2"),
            pins={"box": ()},
            target_mhz={"1": 40, "2": 60},
        )
        for size in (9, 90)
    )
    cells = Cells(
        luts={"SB_LUT4": 1},
        flip_flops=("SB_DFF",),
        multipliers={"TOY_MULT18": 1},
        block_rams=dict.fromkeys(("SB_RAM40_4K", "SB_RAM40_4KNR", "SB_RAM40_4KNW", "SB_RAM40_4KNRNW"), 1),
        others=("SB_CARRY",),
        packed=("_TILE", "$toy"),
    )
    place_route = PlaceRoute(
        program="nextpnr-toy",
        package="yowasp-nextpnr-toy",
        constraint_options=("--toy-pins", "{}"),
        pin_lines=lambda pin: [f"pin {pin.port} at {pin.site}"],
        clock_lines=lambda port, hertz: [f"clock {port} {hertz} Hz"],
        router="router1",
    )
    bitstream = BitstreamTools(
        constraint_file="top.toy",
        result_options=("--toy", "routed.toy"),
        bitstream_file="top.bits",
        find_packer=lambda: find_tool("toypack", "toy-tools", "run_toypack", "a bitstream for toy", None),
        pack_arguments=lambda chosen, routed, target: [chosen.grade, routed, target],
        pll=ToyPll(),
    )
    estimates = ToyEstimates()

    def yosys(self, device: FpgaDevice) -> Yosys:
        return Yosys(command=f"{BLACK_BOX}synth_ice40")

    def least_multiplier(self, a_bits: int, b_bits: int, device: FpgaDevice) -> float:
        return largest_blocks(a_bits, b_bits, ((18, 18, 1),))


TOY = Toy()
