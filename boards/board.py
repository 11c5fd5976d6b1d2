"""A board: its device, its clock, and the pins of its serial port and LEDs."""

from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import cache
from typing import Annotated, Final, Literal, Self

from pydantic import Field, model_validator

from rtlstm.boards.ethernet import LINK_HZ, PHY_HZ, Ethernet, Phy, network_pll
from rtlstm.fpga.devices import find_device
from rtlstm.fpga.families.base import FpgaFamily, Pin, fpga_family
from rtlstm.fpga.families.device import Chosen, Pll, PllSearch
from rtlstm.hdl.link.uart import SMALLEST_DIVISOR, bit_cycles
from rtlstm.spec.errors import ConfigurationError
from rtlstm.spec.link import BAUD_RATES
from rtlstm.spec.record import Record

_LEAST_BAUD = 300


SPI_WIRES: Final = {"sck": "i", "cs_n": "i", "mosi": "i", "miso": "o", "waiting": "o", "raw_cs_n": "i"}
"""Wires of SPI with their directions, as the parts of a resource ``spi_link`` and behind ``spi_`` as ports of
the top. The last one selects the raw mode."""
Link = Literal["serial", "ethernet", "spi", "raw_spi", "logic"]
"""What a board's link is on; ``logic`` if there is none, but a user's own logic."""


class Board(Record):
    """A board with one FPGA on it."""

    name: str
    title: str
    device: str
    """Name with package and speed grade, as :func:`rtlstm.fpga.devices.find_device` takes it."""
    package: str
    grade: str
    clock: Pin
    clock_hz: Annotated[int, Field(ge=1_000_000)]
    rx: Pin
    """The pin at which the board receives what the host sends."""
    tx: Pin
    leds: Annotated[tuple[Pin, ...], Field(max_length=3)]
    """At most three, in this order: alive, traffic, error."""
    button: Pin | None = None
    """Resets the design."""
    phy: Phy | None = None
    """For Ethernet."""
    spi: tuple[Pin, ...] = ()
    """For SPI, at a header: those of :data:`SPI_WIRES`, in this order."""
    most_baud: int = BAUD_RATES[0]
    """Highest baud rate of the chip between USB and the serial port."""
    loader: tuple[str, ...]
    """openFPGALoader's options that select it."""
    note: str = ""
    """What the user must know to connect the board."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        _check_pins(self.name, [*self.pins(), *(self.phy.pins if self.phy else ()), *self.spi])
        return self

    @property
    def chosen(self) -> Chosen:
        """Its device."""
        return find_device(self.device, self.package, self.grade or None)

    @property
    def family(self) -> FpgaFamily:
        """Its device's family."""
        return fpga_family(self.chosen.device.family)

    def find_pll(self, wanted_hz: Fraction, *, alike: bool = False) -> Pll:
        """Return the PLL whose clock is nearest to the wanted one and not above it.

        ``alike`` is that of :meth:`~rtlstm.fpga.families.device.PllSearch.find`. Raises ConfigurationError if
        the wanted clock is outside the PLL's range.
        """
        return _find_pll(self.family.need_bitstream().pll, self.clock_hz, wanted_hz, alike)

    @property
    def links(self) -> tuple[Link, ...]:
        """What its link may be on."""
        return ("serial", *(("ethernet",) if self.phy else ()), *(("spi",) if self.spi else ()))

    @property
    def clock_range(self) -> tuple[Fraction, Fraction]:
        """The lowest and the highest clock in Hz that the search of the fastest can take."""
        return _clock_range(self.family.need_bitstream().pll, self.clock_hz)

    def find_phy(self) -> Phy:
        """Return its PHY. Raises ConfigurationError if it has none."""
        if self.phy is None:
            raise ConfigurationError(
                f"{self.name} has no Ethernet that rtlstm knows; leave out its addresses, or choose a board "
                "that has it (docs/boards.md)"
            )
        return self.phy

    def find_network_pll(self) -> Pll:
        """Return the PLL of LiteEth and of the link on Ethernet; errors as :meth:`find_pll`."""
        return network_pll(self.find_pll(Fraction(PHY_HZ)))

    def find_spi(self, raw: bool = True) -> tuple[Pin, ...]:
        """Return its pins for SPI, with or without that of the raw mode.

        Raises ConfigurationError if it has none.
        """
        if not self.spi:
            raise ConfigurationError(
                f"{self.name} has no pins for SPI that rtlstm knows; leave `spi` out, choose a board that "
                "has them (docs/boards.md), or describe this one with such pins"
            )
        return self.spi if raw else self.spi[:-1]

    def pins(self, link: Link = "serial") -> Iterator[Pin]:
        """Yield all pins that the top uses with a link."""
        yield self.clock
        match link:
            case "ethernet":
                yield from self.find_phy().pins
            case "spi" | "raw_spi":
                yield from self.find_spi(link == "raw_spi")
            case "serial":
                yield from (self.rx, self.tx)
        yield from self.leds
        if self.button is not None:
            yield self.button


def _check_pins(board: str, pins: Sequence[Pin]) -> None:
    for what, used in (("port", [pin.port for pin in pins]), ("site", [pin.site for pin in pins])):
        twice = sorted({each for each in used if used.count(each) > 1})
        if twice:
            raise ValueError(f"pins of board {board!r} must have a {what} each, but {twice[0]} is used twice")


class SerialPort(Record):
    """A board's serial port."""

    baud: int
    """The baud rate to set at the host."""
    baud_error: float
    """How far the UART's baud rate is above the host's, over the bits of a byte, in percent."""

    @property
    def backend(self) -> str:
        """The driver's backend for it."""
        return f"serial:PORT@{self.baud}"


class Spi(Record):
    """A board's SPI."""

    spi_mhz: float
    """The fastest clock at its wires."""
    raw: bool = False
    """Whether there is the raw mode."""

    @property
    def backend(self) -> str:
        """The driver's backend for it."""
        return "spi:/dev/spidevB.C"


class LogicPins(Record):
    """Pins of a user's own logic, which stands where a link would."""

    pins: tuple[Pin, ...]

    @property
    def backend(self) -> str:
        """Empty: no driver reaches the core."""
        return ""


LinkPort = SerialPort | Ethernet | Spi | LogicPins
"""What a board's link is on, with its rate or its addresses."""


class BoardTiming(Record):
    """Clocks and line of a board's top: what was asked for, and what the hardware gives."""

    model_config = Record.model_config | {"arbitrary_types_allowed": True}

    pll: Pll
    link_hz: int
    """The link's clock."""
    port: LinkPort

    @property
    def link(self) -> Link:
        """What the link is on."""
        match self.port:
            case Ethernet():
                return "ethernet"
            case Spi(raw=raw):
                return "raw_spi" if raw else "spi"
            case SerialPort():
                return "serial"
            case LogicPins():
                return "logic"

    @property
    def logic_pins(self) -> tuple[Pin, ...]:
        """Pins of a user's own logic."""
        return self.port.pins if isinstance(self.port, LogicPins) else ()

    @property
    def bit_hz(self) -> int:
        """Bits a second on a serial port; elsewhere the link's clock."""
        return self.port.baud if isinstance(self.port, SerialPort) else self.link_hz

    @property
    def clock_hz(self) -> Fraction:
        """The core's clock."""
        return self.pll.output_hz

    @property
    def clock_mhz(self) -> float:
        """The core's clock, rounded to one hertz."""
        return round(float(self.clock_hz) / 1e6, 6)

    @property
    def divisor(self) -> Fraction:
        """Cycles of the link's clock per bit of a serial port."""
        return Fraction(self.link_hz, self.bit_hz)


@cache
def _find_pll(search: PllSearch, source_hz: int, wanted_hz: Fraction, alike: bool) -> Pll:
    """Search once for each clock: a board's links have the same core."""
    return search.find(source_hz, wanted_hz, alike=alike)


@cache
def _clock_range(search: PllSearch, source_hz: int) -> tuple[Fraction, Fraction]:
    """Search once for each board: explore asks with every choice."""
    return search.range(source_hz)


def find_timing(
    board: Board,
    clock_mhz: float | Fraction,
    baud: int | None = None,
    ethernet: Ethernet | None = None,
    spi: bool = False,
    *,
    raw: bool = False,
    alike: bool = False,
) -> BoardTiming:
    """Choose a board's PLL, which makes the core's clock, and the line of its link.

    The PLL's clock is the nearest that is not above ``clock_mhz``; with ``alike`` it is chosen among settings
    that can replace each other in a placed design. ``baud`` is by default the fastest of :data:`BAUD_RATES`
    that the board can do, or its fastest. ``ethernet`` has the board's addresses, if its link is on Ethernet;
    ``spi`` says whether it is on SPI, and ``raw`` whether it has the raw mode there. Raises
    ConfigurationError if the PLL cannot make the clock, or the UART the baud rate, or the board has no such
    link.
    """
    # What a user types is decimal: 0.1 MHz is meant to be 100 kHz, not the float next to it.
    pll = board.find_pll(Fraction(str(clock_mhz)) * 1_000_000, alike=alike)
    # Half a cycle at a byte's end is always less than the two per cent that a bit of four cycles admits.
    most = min(board.most_baud, board.clock_hz // SMALLEST_DIVISOR)
    if baud is None:
        baud = next((rate for rate in BAUD_RATES if rate <= most), most)
    if not _LEAST_BAUD <= baud <= most:
        raise ConfigurationError(
            f"the serial port of {board.name} must have {_LEAST_BAUD} to {most:,} baud, not {baud:,}"
        )
    if ethernet is not None:
        board.find_phy()
        return BoardTiming(pll=pll, link_hz=LINK_HZ, port=ethernet)
    if spi:
        board.find_spi()
        return BoardTiming(pll=pll, link_hz=board.clock_hz, port=Spi(spi_mhz=board.clock_hz / 1e6, raw=raw))
    divisor = Fraction(board.clock_hz, baud)
    cycles = bit_cycles(divisor)
    error = round(100 * float(len(cycles) * divisor / sum(cycles) - 1), 3)
    return BoardTiming(pll=pll, link_hz=board.clock_hz, port=SerialPort(baud=baud, baud_error=error))


def find_logic_timing(board: Board, clock_mhz: float | Fraction, pins: Sequence[Pin]) -> BoardTiming:
    """Choose a board's PLL as :func:`find_timing` does, for logic with pins of its own and no link.

    Raises ConfigurationError if the PLL cannot make the clock, or two pins have the same port or site.
    """
    try:
        _check_pins(board.name, [*board.pins("logic"), *pins])
    except ValueError as error:
        raise ConfigurationError(f"{error}; give each of your own pins another one") from None
    pll = board.find_pll(Fraction(str(clock_mhz)) * 1_000_000)
    return BoardTiming(pll=pll, link_hz=board.clock_hz, port=LogicPins(pins=tuple(pins)))
