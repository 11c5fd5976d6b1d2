"""A device family for the FPGA tools: devices, synthesis, place and route, bitstreams, estimates.

Every program that loads a manifest imports the modules of families, on small boards, too. So they import
other packages than NumPy and pydantic only where they use them.
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from rtlstm.fpga.families.device import Chosen, FpgaDevice, PllSearch
from rtlstm.fpga.families.estimates import Estimates
from rtlstm.fpga.tools import Tool, find_tool
from rtlstm.spec.errors import ConfigurationError
from rtlstm.spec.family import FAMILIES, Family
from rtlstm.spec.record import Record

_COMMON = Path(str(files("rtlstm.hdl").joinpath("primitives"))).absolute()
LOGIC_MULTIPLIERS = _COMMON / "rows.v"
"""Verilog of multipliers made of LUTs, for primitives with an ``rtlstm_sum`` of their own."""
INFERRED_MEMORY = _COMMON / "memory.v"
"""Verilog of memories that synthesis makes of block RAM, for primitives without memories of their own."""


class Pin(Record):
    """A port of a top, its site on the package, and the settings of its buffer."""

    port: str
    site: str
    inverted: bool = False
    attributes: Mapping[str, str] = {}
    """Settings of the buffer, as the family's constraint file has them."""


class Cells(Record):
    """The resources of a netlist's cells, by the cells' names: LUTs, DSP blocks and so on."""

    luts: Mapping[str, float]
    flip_flops: tuple[str, ...]
    """Prefixes of the names of flip-flops."""
    multipliers: Mapping[str, float] = {}
    block_rams: Mapping[str, float] = {}
    large_rams: Mapping[str, float] = {}
    lutrams: tuple[str, ...] = ()
    """The cells of ``luts`` that are LUTRAM."""
    others: tuple[str, ...] = ()
    """Prefixes of the names of other cells, such as multiplexers and constants."""
    memory_outputs: tuple[str, ...] = ()
    """Output ports of block RAM whose bits are separate ports, without the bit's number."""
    packed: tuple[str, ...] = ()
    """Endings that packing adds to a cell's name; after a ``$`` more may follow."""
    logic: str = "LUTs"
    """What is counted as ``luts``, as text."""


class Yosys(Record):
    """How Yosys synthesises for a device."""

    command: str
    first: tuple[str, ...] = ()
    """Commands that run on the core as it was read, before the command."""
    no_pads: str = ""
    """Option that leaves out the buffers of pins."""
    no_multipliers: str = ""
    """Option that disables DSP blocks, if Yosys infers them by default."""
    infer_multipliers: str = ""
    """Option that enables DSP blocks, if Yosys does not infer them by default. It is not given for a
    core whose primitives are instances of DSP blocks."""
    files: Mapping[str, str] = {}
    """Files that ``passes`` read, by name."""
    passes: tuple[str, ...] = ()
    """Commands that run on the finished netlist."""


def _no_lines(port: str, hertz: int) -> list[str]:
    return []


class LargeSpatial(NamedTuple):
    """What routes spatial builds that are large."""

    luts: int
    """Those with more LUTs than these are."""
    router: str
    placer: str


@dataclass(frozen=True, kw_only=True)
class PlaceRoute:
    """How nextpnr places and routes a family's devices."""

    program: str
    """Name of the command on the path."""
    package: str
    """The Python package that has it if it is not on the path."""
    constraint_options: tuple[str, ...]
    """Options that take a constraint file; ``{}`` is its name."""
    pin_lines: Callable[[Pin], list[str]]
    """Lines of a constraint file that place a pin and set its buffer."""
    clock_lines: Callable[[str, int], list[str]] = _no_lines
    """Lines of a constraint file that state the frequency of the clock at a port, in Hz."""
    net_lines: Callable[[str, int], list[str]] = _no_lines
    """Lines that state the frequency of a clock net, where it else follows from the PLL."""
    pll_lines: Callable[[str, int], list[str]] | None = None
    """Lines that state the frequency at the input of the PLL of this name, if that of the clock's port is not
    that of the net behind its buffer."""
    router: str | None = None
    """The router, if the user does not choose; None for nextpnr's own choice."""
    placer: str | None = None
    """The placer, likewise."""
    for_spatial: LargeSpatial | None = None
    """The same for large spatial builds, where they have others."""
    placer_options: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Options by placer."""
    free_options: tuple[str, ...] = ()
    """Options for a design whose pins nextpnr chooses."""


@dataclass(frozen=True, kw_only=True)
class BitstreamTools:
    """How a placed and routed top becomes a bitstream."""

    constraint_file: str
    """Name of the constraint file, whose ending states its format."""
    result_options: tuple[str, str]
    """nextpnr's option that writes the file that the bitstream is packed from, and that file's name."""
    bitstream_file: str
    find_packer: Callable[[], Tool]
    """Finds the tool that packs a bitstream; ToolError if it is missing."""
    pack_arguments: Callable[[Chosen, str, str], Sequence[str]]
    """Returns that tool's arguments for a device, a file of nextpnr's and a bitstream."""
    pll: PllSearch


class FpgaFamily(Family):
    """A device family with devices and their tools."""

    @property
    @abstractmethod
    def devices(self) -> tuple[FpgaDevice, ...]:
        """The family's devices."""

    @property
    @abstractmethod
    def cells(self) -> Cells:
        """The resources of the family's cells."""

    also_builds_of: tuple[str, ...] = ()
    """Other families of which the devices take builds, although these have primitives of their own."""

    @abstractmethod
    def yosys(self, device: FpgaDevice) -> Yosys:
        """Return how Yosys synthesises for a device."""

    place_route: PlaceRoute | None = None
    """None without open place and route; the family's devices then have no ``options``."""
    bitstream: BitstreamTools | None = None
    """None without open bitstreams."""
    estimates: Estimates | None = None
    """None if builds cannot be estimated before synthesis; there is no ``--fit`` then."""
    refused: Mapping[str, str] = {}
    """Devices that are not supported although users may expect them: a pattern of names, and why not."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if (cls.finish_netlist is FpgaFamily.finish_netlist) != (
            cls.netlist_rules is FpgaFamily.netlist_rules
        ):
            raise TypeError(
                f"{cls.__name__} must define both netlist_rules and finish_netlist, or neither: a netlist is "
                "finished only where there are rules, and stored by them"
            )

    def netlist_rules(self, device: FpgaDevice) -> str:
        """Describe :meth:`finish_netlist` by a text that changes whenever its work does.

        Empty for a device whose netlist stays as it is: ``finish_netlist`` is not called then.
        """
        return ""

    def finish_netlist(self, netlist: dict[str, Any], device: FpgaDevice) -> None:
        """Change a whole design's netlist, in Yosys's JSON, before place and route."""

    def takes_builds_of(self, family: str) -> bool:
        """Whether the devices take builds of this family: their own, one of portable Verilog, or another."""
        return family in (self.name, *self.also_builds_of) or not FAMILIES.named(family).primitives

    def need_place_route(self) -> PlaceRoute:
        """Return ``place_route``; ConfigurationError if there is none."""
        if self.place_route is None:
            raise ConfigurationError(
                f"there is no open place and route for {self.name}; choose another device"
            )
        return self.place_route

    def need_bitstream(self) -> BitstreamTools:
        """Return ``bitstream``; ConfigurationError if there is none."""
        if self.bitstream is None:
            raise ConfigurationError(f"there are no open bitstreams for {self.name}; choose another board")
        return self.bitstream

    @property
    def assumes_clock(self) -> bool:
        """Whether all but the clock of builds is estimated, which the user then assumes."""
        return self.estimates is not None and not self.estimates.knows_clocks

    def need_estimates(self, option: str = "", device: str = "", remedy: str = "") -> Estimates:
        """Return ``estimates``; ConfigurationError if there are none.

        The message names the ``option`` that needs them, the ``device`` or board, and a ``remedy``.
        """
        if self.estimates is None:
            names = ", ".join(estimated_families())
            raise ConfigurationError(
                f"{option or 'this'} needs estimates, which there are for devices of {names}, "
                f"not for {device or self.name}; {remedy or 'choose another device'}"
            )
        return self.estimates

    @abstractmethod
    def least_multiplier(self, a_bits: int, b_bits: int, device: FpgaDevice) -> float:
        """Return the blocks that synthesis takes at least for one signed product of portable Verilog.

        Exact if it fits into one block.
        """

    def large_instances(self, width: int, depth: int) -> int:
        """Return the blocks of a memory of style "huge", if they are instances in the family's primitives."""
        return 0

    def unpacked_bits(self, a_bits: int, b_bits: int, device: FpgaDevice) -> int:
        """Return, for each stage, the flip-flops that Yosys leaves outside a block that could hold them."""
        return 0

    def find_nextpnr(self) -> Tool:
        """Find nextpnr: on the path, else the package.

        Raises ConfigurationError if the family has none. Raises ToolError if it is missing.
        """
        tools = self.need_place_route()
        runner = "run_" + tools.package.removeprefix("yowasp-").replace("-", "_")
        return find_tool(tools.program, tools.package, runner, f"place and route for {self.name}")


def largest_blocks(a_bits: int, b_bits: int, sizes: Sequence[tuple[int, int, float]]) -> float:
    """Return the blocks of the first entry that holds a product; if none does, of the last entry.

    ``sizes`` are the largest factors of a product, and the blocks that synthesis uses for it.
    """
    wide, narrow = max(a_bits, b_bits), min(a_bits, b_bits)
    fitting = (taken for x, y, taken in sizes if wide <= max(x, y) and narrow <= min(x, y))
    return next(fitting, sizes[-1][2])


def fpga_family(name: str) -> FpgaFamily:
    """Return the family of this name, which must have devices.

    Raises ConfigurationError if there is none, or it has no devices.
    """
    family = FAMILIES.named(name)
    if not isinstance(family, FpgaFamily):
        having = ", ".join(each.name for each in fpga_families())
        raise ConfigurationError(f"the family must be one with devices ({having}), not {name!r}")
    return family


def estimated_families() -> list[str]:
    """Return the names of the families whose builds can be estimated."""
    return [family.name for family in fpga_families() if family.estimates is not None]


def fpga_families() -> list[FpgaFamily]:
    """Return the families that have devices."""
    return [family for family in FAMILIES.values() if isinstance(family, FpgaFamily)]
