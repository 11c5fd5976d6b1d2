"""Boards with a Zynq: the core is in the logic beside the processor that runs the driver.

No open flow makes their bitstreams: here is written what Vivado needs, sources, constraints and a script.
Without a board, a stand-in for the package ``pynq`` has one board, a simulation. It has as much of PYNQ's
interface as an overlay with a core needs: ``Overlay``, which reads the ``.hwh`` and binds drivers by type,
``DefaultIP`` and ``MMIO``.
"""

import importlib
import math
import string
import sys
from collections.abc import Callable, Mapping
from fractions import Fraction
from importlib.metadata import entry_points
from importlib.resources import files
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar
from xml.etree import ElementTree

from rtlstm.fpga.devices import find_device
from rtlstm.fpga.families.device import FpgaDevice, megahertz
from rtlstm.hdl.buses.wrappers import wrapper_name
from rtlstm.hdl.emit.header import SPDX
from rtlstm.host.mmio import RegisterFile
from rtlstm.host.transport import Closing
from rtlstm.spec.errors import ConfigurationError, ToolError
from rtlstm.spec.files import write_file
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.record import Record
from rtlstm.spec.registers import CORE_CELL, CORE_MODULE, CORE_TYPE, OVERLAY, Register

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

    Raises ConfigurationError if the logic's clock cannot be so fast or so slow.
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

    ``core`` is the build's Verilog, with its AXI4-Lite wrapper. ``driver_files`` is what the driver needs of
    the build, by name.
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


_PACKAGE, _DRIVER = "pynq", "rtlstm.host.pynq_driver"


_HANDOFF = {
    ZYNQ_7000.cell: {
        "processor": "processing_system7",
        "version": "5.5",
        "master": "M_AXI_GP0",
        "enable": "PCW_FPGA_FCLK{}_ENABLE",
        "source": "PCW_FCLK{}_PERIPHERAL_CLKSRC",
        "divisor": "PCW_FCLK{}_PERIPHERAL_DIVISOR{}",
        "mhz": "PCW_ACT_FPGA{}_PERIPHERAL_FREQMHZ",
    },
    ZYNQ_ULTRASCALE.cell: {
        "processor": "zynq_ultra_ps_e",
        "version": "3.3",
        "master": "M_AXI_HPM0_FPD",
        "enable": "PSU__FPGA_PL{}_ENABLE",
        "source": "PSU__CRL_APB__PL{}_REF_CTRL__SRCSEL",
        "divisor": "PSU__CRL_APB__PL{}_REF_CTRL__DIVISOR{}",
        "mhz": "PSU__CRL_APB__PL{}_REF_CTRL__ACT_FREQMHZ",
    },
}
"""Names in the ``.hwh``, by the processor's cell."""


class SimulatedPynq(Closing):
    """While it is open, ``import pynq`` gives the stand-in, and its board runs a simulated core.

    The files that Vivado would make are written: a ``.bit`` that only says what it is, and the ``.hwh``.
    ``bitstream`` is the path of the ``.bit``. ``processor`` and ``clock`` are those of the board and of its
    logic. ``simulate`` begins the simulation of the core and gives its registers, which are closed with this
    object. Raises ToolError if ``pynq`` has been imported already.
    """

    def __init__(
        self, bitstream: Path, processor: Processor, clock: FabricClock, simulate: Callable[[], RegisterFile]
    ) -> None:
        if _PACKAGE in sys.modules:
            raise ToolError(
                "the stand-in for pynq must come before the first import of pynq, and one at a time; close "
                "the former one, or start Python again"
            )
        self.bitstream = bitstream
        """The overlay's bitstream, as ``pynq.Overlay`` takes it."""
        write_file(bitstream, "A stand-in for a bitstream: the core is simulated.\n")
        write_file(bitstream.with_suffix(".hwh"), _handoff(processor, clock))
        self._registers = simulate()
        self._module = sys.modules[_PACKAGE] = _make_pynq(self._registers, processor.base_address)
        sys.modules.pop(_DRIVER, None)

    def close(self) -> None:
        """End the simulation; ``import pynq`` is as before. Further calls do nothing."""
        if sys.modules.get(_PACKAGE) is self._module:
            # The driver was made with the stand-in's classes.
            del sys.modules[_PACKAGE]
            sys.modules.pop(_DRIVER, None)
        self._registers.close()


def _handoff(processor: Processor, clock: FabricClock) -> str:
    """As much of the ``.hwh`` as PYNQ reads: cells with their types, clocks and addresses."""
    names = _HANDOFF[processor.cell]
    parameters = {names["mhz"].format(0): f"{clock.mhz:.6f}"}
    for index in range(4):
        parameters[names["enable"].format(index)] = str(int(index == 0))
        parameters[names["source"].format(index)] = "IOPLL"
        for number, divisor in enumerate(clock.divisors if index == 0 else (1, 1)):
            parameters[names["divisor"].format(index, number)] = str(divisor)
    template = (files("rtlstm.boards") / "templates" / "zynq.hwh").read_text()
    return Template(template).substitute(
        names,
        cell=processor.cell,
        core=CORE_CELL,
        type=CORE_TYPE,
        module=CORE_MODULE,
        low=f"0x{processor.base_address:08X}",
        high=f"0x{processor.base_address + 0xFFF:08X}",
        clocks="\n".join(
            f'        <PARAMETER NAME="{name}" VALUE="{value}"/>' for name, value in parameters.items()
        ),
    )


def _make_pynq(registers: RegisterFile, base_address: int) -> ModuleType:
    """Make the stand-in's module; its classes follow ``pynq.overlay`` and ``pynq.mmio`` of PYNQ 3 and 4."""
    drivers: dict[str, type] = {}

    class MMIO:
        """Registers at an address."""

        def __init__(self, base_addr: int, length: int = 4, device: object = None) -> None:
            if base_addr != base_address:
                raise RuntimeError(f"nothing answers at {base_addr:#x}")
            self.base_addr, self.length = base_addr, length

        def read(self, offset: int = 0, length: int = 4, word_order: str = "little") -> int:
            return registers.read(Register(self._index(offset)))

        def write(self, offset: int, data: int) -> None:
            if type(data) is not int:
                raise ValueError("Data type must be int or bytes.")
            registers.write(Register(self._index(offset)), data)

        def _index(self, offset: int) -> int:
            if offset < 0 or offset >= self.length:
                raise IndexError(offset)
            if offset % 4:
                raise MemoryError("Unaligned access: offset must be multiple of 4.")
            return offset // 4

    class RegisterIP(type):
        """Binds its classes to the types in their ``bindto``."""

        def __init__(cls, name: str, bases: tuple[type, ...], attributes: dict[str, Any]) -> None:
            super().__init__(name, bases, attributes)
            drivers.update(dict.fromkeys(attributes.get("bindto", ()), cls))

    class DefaultIP(metaclass=RegisterIP):
        """The driver of a cell without a better one."""

        def __init__(self, description: dict[str, Any]) -> None:
            self.mmio = MMIO(description["phys_addr"], description["addr_range"])

        def read(self, offset: int = 0) -> int:
            return self.mmio.read(offset)

        def write(self, offset: int, value: int) -> None:
            self.mmio.write(offset, value)

    class Clocks:
        """The clocks of the logic; what was set last."""

        divisors: ClassVar[dict[int, tuple[int, int]]] = {}
        mhz: ClassVar[dict[int, float]] = {}

        @classmethod
        def set_pl_clk(
            cls, clk_idx: int, div0: int | None = None, div1: int | None = None, clk_mhz: float | None = 100.0
        ) -> None:
            if div0 is not None and div1 is not None:
                cls.divisors[clk_idx] = (div0, div1)
            elif clk_mhz is None:
                raise TypeError("unsupported operand type(s) for /: 'float' and 'NoneType'")
            else:
                cls.mhz[clk_idx] = clk_mhz

    class Bitstream:
        """What the logic is loaded with."""

        loaded: ClassVar[object] = None

        def download(self, parser: object = None) -> None:
            Bitstream.loaded = self

    class Overlay(Bitstream):
        """A bitstream with the drivers of its cells as attributes."""

        def __init__(self, bitfile_name: str, dtbo: str | None = None, download: bool = True) -> None:
            path = Path(bitfile_name)
            if not path.is_file():
                raise OSError(f"Bitstream file {bitfile_name} does not exist.")
            for plugin in entry_points(group="pynq.lib"):
                importlib.import_module(plugin.module)
            self.bitfile_name = str(path.absolute())
            self.parser = ElementTree.parse(path.with_suffix(".hwh")).getroot()
            self.ip_dict, self.clock_dict = _cells(self.parser), _clocks(self.parser)
            for about in self.ip_dict.values():
                about["driver"] = drivers.get(about["type"], DefaultIP)
            if download:
                self.download()

        def download(self, parser: object = None) -> None:
            """Set the clocks and load it, as pynq 4.0.0 does."""
            for index, about in self.clock_dict.items():
                Clocks.set_pl_clk(index, clk_mhz=about["frequency"])
            super().download(self.parser)

        def is_loaded(self) -> bool:
            return Bitstream.loaded is self

        def __getattr__(self, name: str) -> Any:
            if not self.is_loaded():
                raise RuntimeError("Overlay not currently loaded")
            if name not in self.ip_dict or "phys_addr" not in self.ip_dict[name]:
                raise AttributeError(f"Could not find IP or hierarchy {name} in overlay")
            driver = self.ip_dict[name]["driver"](self.ip_dict[name])
            setattr(self, name, driver)
            return driver

    module = ModuleType(_PACKAGE, __doc__)
    vars(module).update(MMIO=MMIO, DefaultIP=DefaultIP, Clocks=Clocks, Bitstream=Bitstream, Overlay=Overlay)
    return module


def _cells(root: ElementTree.Element) -> dict[str, dict[str, Any]]:
    """Cells of a ``.hwh`` by name, as PYNQ's ``ip_dict`` has them."""
    cells: dict[str, dict[str, Any]] = {
        each.get("INSTANCE", ""): {"type": each.get("VLNV"), "fullpath": each.get("INSTANCE")}
        for each in root.iter("MODULE")
        if each.get("IPTYPE") == "PERIPHERAL"
    }
    for each in root.iter("MEMRANGE"):
        low, high = (int(each.get(f"{end}VALUE", "0"), 16) for end in ("BASE", "HIGH"))
        cells[each.get("INSTANCE", "")] |= {"phys_addr": low, "addr_range": high - low + 1}
    return cells


def _clocks(root: ElementTree.Element) -> dict[int, dict[str, Any]]:
    """The clock of a ``.hwh``, as PYNQ's ``clock_dict`` has it.

    pynq 4.0.0 knows the rate's name on Zynq UltraScale+ alone; on Zynq-7000, ``frequency`` is None.
    """
    found = {each.get("NAME", ""): each.get("VALUE", "") for each in root.iter("PARAMETER")}
    (names,) = (each for each in _HANDOFF.values() if each["enable"].format(0) in found)
    rate = found.get(_HANDOFF[ZYNQ_ULTRASCALE.cell]["mhz"].format(0))
    divisors = {f"divisor{number}": int(found[names["divisor"].format(0, number)]) for number in range(2)}
    return {0: {"enable": 1, "frequency": None if rate is None else float(rate)} | divisors}
