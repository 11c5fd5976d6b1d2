"""Boards with a Zynq: the core is in the logic beside the processor that runs the driver.

No open flow makes their bitstreams: here is written what Vivado needs, sources, constraints and a script.
"""

import math
import string
from collections.abc import Mapping
from fractions import Fraction
from importlib.resources import files
from pathlib import Path

from rtlstm.fpga.devices import find_device
from rtlstm.fpga.families.device import FpgaDevice, megahertz
from rtlstm.hdl.buses.wrappers import wrapper_name
from rtlstm.hdl.emit.header import SPDX
from rtlstm.spec.errors import ConfigurationError
from rtlstm.spec.files import write_file
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.record import Record
from rtlstm.spec.registers import CORE_CELL, CORE_MODULE, OVERLAY

_LARGEST_DIVISOR = 63


class Processor(Record):
    """What the processor of a Zynq gives to the logic beside it."""

    title: str
    cell: str
    """Its name in the block design, and in the names of its templates."""
    pll_hz: int
    """Frequency of its IO PLL, as the boards' own presets set it."""
    most_mhz: int
    """Highest frequency of a clock to the logic."""
    base_address: int
    """Address of the registers, in the range that the processor reaches through its first bus master."""
    interrupt: int
    """The first interrupt from the logic, as device trees count shared interrupts."""
    interrupt_pin: str
    vivado: str
    """The oldest release of Vivado that the script is written for."""


ZYNQ_7000 = Processor(
    title="Zynq-7000",
    cell="ps7",
    pll_hz=1_000_000_000,
    most_mhz=250,
    base_address=0x43C0_0000,
    interrupt=29,
    interrupt_pin="IRQ_F2P[0]",
    vivado="2020.1",
)

ZYNQ_ULTRASCALE = Processor(
    title="Zynq UltraScale+",
    cell="ps8",
    # 90 / 2 times the reference of 33.333 MHz.
    pll_hz=1_499_985_000,
    # The fastest clock of AMD's overlay that tests the KV260, kv260-bist: not the limit of a data sheet.
    most_mhz=300,
    base_address=0xA000_0000,
    interrupt=89,
    interrupt_pin="pl_ps_irq0[0]",
    vivado="2021.1",
)


class ZynqBoard(Record):
    """A board with one Zynq on it."""

    name: str
    title: str
    device: str
    processor: Processor = ZYNQ_7000
    part: str
    """Vivado's name of the device, with package and speed grade."""
    board_part: str
    """The board's name in the vendor's board files, without their version."""
    leds: tuple[str, str]
    """Sites of two LEDs: alive, traffic."""
    usual_mhz: float = 50.0
    """Clock of the core if the user asks for none. Not from place and route: Vivado does that."""

    @property
    def logic(self) -> FpgaDevice:
        """The FPGA beside the processor."""
        return find_device(self.device).device


class FabricClock(Record):
    """The clock that the processor gives to the logic: its IO PLL, divided twice."""

    pll_hz: int
    divisors: tuple[int, int]

    @property
    def hz(self) -> Fraction:
        """Frequency in Hz."""
        return Fraction(self.pll_hz, self.divisors[0] * self.divisors[1])

    @property
    def mhz(self) -> float:
        """Frequency in MHz, rounded to one hertz."""
        return round(float(self.hz) / 1e6, 6)


def find_fabric_clock(mhz: float, processor: Processor) -> FabricClock:
    """Choose the divisors of the nearest clock that is not above the one asked for.

    Raises
    ------
    ConfigurationError
        If the logic's clock cannot be so fast or so slow.
    """
    # What a user types is decimal; see :func:`rtlstm.boards.board.find_timing`.
    wanted = Fraction(str(mhz)) * 1_000_000
    slowest = Fraction(processor.pll_hz, _LARGEST_DIVISOR**2)
    if not slowest <= wanted <= processor.most_mhz * 1_000_000:
        raise ConfigurationError(
            f"the clock of a {processor.title}'s logic must be from {megahertz(slowest)} to "
            f"{processor.most_mhz} MHz, not {mhz:g}"
        )
    least = -(-processor.pll_hz // wanted)
    pairs = (
        (first, second)
        for first in range(1, _LARGEST_DIVISOR + 1)
        for second in range(1, first + 1)
        if first * second >= least
    )
    divisors = min(pairs, key=lambda pair: (pair[0] * pair[1], pair[0]))
    return FabricClock(pll_hz=processor.pll_hz, divisors=divisors)


ZYNQ_BOARDS = {
    board.name: board
    for board in (
        ZynqBoard(
            name="zybo-z7-20",
            title="Digilent Zybo Z7-20",
            device="xc7z020",
            part="xc7z020clg400-1",
            board_part="digilentinc.com:zybo-z7-20:part0",
            leds=("M14", "M15"),
        ),
        ZynqBoard(
            name="pynq-z2",
            title="TUL PYNQ-Z2",
            device="xc7z020",
            part="xc7z020clg400-1",
            board_part="tul.com.tw:pynq-z2:part0",
            leds=("R14", "P14"),
        ),
        ZynqBoard(
            name="kv260",
            title="AMD Kria KV260",
            device="xck26",
            processor=ZYNQ_ULTRASCALE,
            part="xck26-sfvc784-2LV-c",
            board_part="xilinx.com:kv260_som:part0",
            leds=("H12", "E10"),
            usual_mhz=100.0,
        ),
    )
}
"""By name. LEDs are LD0 and LD1 of the vendors' constraint files; on the KV260, whose logic has none, pins 1
and 3 of its Pmod connector."""


SCRIPT = "build.tcl"
RECORD = "vivado.json"
RESERVED = (CORE_MODULE, "top", "system", "system_wrapper")
"""Modules and files of the board's own; no build may have these names."""


class VivadoProject(Record):
    """A folder for Vivado, and what it was made from."""

    board: str
    build_hash: str
    part: str
    clock_mhz: float
    requested_mhz: float
    base_address: int
    """Address of the registers in the processor's memory map."""
    interrupt_pin: str
    """The processor's pin that the core's interrupt drives."""
    files: tuple[str, ...]
    """Names of files beside this record; the script is the first."""
    bitstream: str
    """The bitstream that the script makes for JTAG; one for Linux, ``.bin``, is beside it."""
    overlay: str
    """Folder for PYNQ: the build's manifest and weights. The script adds the bitstream and its ``.hwh``."""


class Template(string.Template):
    """A template of this package. Placeholders begin with ``@``: the script's variables begin with ``$``."""

    delimiter = "@"


def write_project(
    board: ZynqBoard,
    manifest: Manifest,
    core: str,
    clock: FabricClock,
    folder: Path,
    *,
    requested_mhz: float,
    driver_files: Mapping[str, bytes],
) -> VivadoProject:
    """Write script, Verilog, constraints, a device tree fragment and PYNQ's folder; ``folder`` may move.

    Parameters
    ----------
    core
        The build's Verilog, with its AXI4-Lite wrapper.
    driver_files
        What the driver needs of the build, by name.
    """
    processor = board.processor
    values = {
        "licence": SPDX,
        "board": board.title,
        "board_part": board.board_part,
        "part": board.part,
        "name": manifest.name,
        "core": wrapper_name(manifest),
        "top": CORE_MODULE,
        "core_cell": CORE_CELL,
        "overlay": OVERLAY,
        "mhz": megahertz(clock.hz),
        # Linux takes the nearest rate that is not above this one.
        "hz": str(math.ceil(clock.hz)),
        "address": f"0x{processor.base_address:08X}",
        "unit": f"{processor.base_address:08x}",
        "interrupt": str(processor.interrupt),
        "cell": processor.cell,
        "vivado": processor.vivado,
        "led0": board.leds[0],
        "led1": board.leds[1],
    }
    texts: dict[str, str | bytes] = {
        SCRIPT: _fill("zynq.tcl", values | {"processor": _read(f"zynq_{processor.cell}.tcl")}),
        "top.v": _fill("zynq_top.v", values),
        f"{manifest.name}.v": core,
        "top.xdc": _fill("zynq.xdc", values),
        "uio.dtsi": _fill(f"zynq_{processor.cell}.dtsi", values),
    }
    contents = texts | {f"{OVERLAY}/{name}": content for name, content in driver_files.items()}
    (folder / OVERLAY).mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        write_file(folder / name, content)
    project = VivadoProject(
        board=board.name,
        build_hash=manifest.build_hash,
        part=board.part,
        clock_mhz=clock.mhz,
        requested_mhz=requested_mhz,
        base_address=processor.base_address,
        interrupt_pin=processor.interrupt_pin,
        files=tuple(contents),
        bitstream=f"{manifest.name}.bit",
        overlay=OVERLAY,
    )
    write_file(folder / RECORD, project.model_dump_json(indent=1) + "\n")
    return project


def _fill(template: str, values: dict[str, str]) -> str:
    return Template(_read(template)).substitute(values)


def _read(template: str) -> str:
    return (files("rtlstm.boards") / "templates" / template).read_text()
