"""The boards that rtlstm knows.

Pins and the settings of their buffers come from amaranth-boards where it has the board. The other boards are
described here with the same classes.
"""

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from amaranth.build import Attrs, Clock, Pins, PinsN, Resource, Subsignal

from rtlstm.boards.board import SPI_WIRES, Board
from rtlstm.boards.ethernet import SIGNALS, Phy
from rtlstm.boards.zynq import ZYNQ_BOARDS, ZynqBoard
from rtlstm.fpga.devices import UnknownDeviceError, devices, find_device, similar_devices
from rtlstm.fpga.estimate import BoardTop
from rtlstm.fpga.families.base import Pin
from rtlstm.fpga.families.device import Chosen
from rtlstm.spec.errors import ConfigurationError, RtlstmError
from rtlstm.spec.plugins import Registry

_33 = Attrs(IO_TYPE="LVCMOS33")
_COLORLIGHT = (
    # Both modules, in their common extension board, whose debugger has a serial port.
    Resource("clk25", 0, Pins("P3", dir="i"), Clock(25e6), _33),
    Resource("uart", 0, Subsignal("rx", Pins("H18", dir="i")), Subsignal("tx", Pins("J17", dir="o")), _33),
    # Of the two PHYs, both B50612D, that with the address 0. They share their reset.
    Resource(
        "eth_rgmii",
        0,
        Subsignal("rst", PinsN("P4", dir="o")),
        Subsignal("rx_clk", Pins("H2", dir="i")),
        Subsignal("rx_ctl", Pins("P2", dir="i")),
        Subsignal("rx_data", Pins("K2 L1 N1 P1", dir="i")),
        Subsignal("tx_clk", Pins("G1", dir="o")),
        Subsignal("tx_ctl", Pins("K1", dir="o")),
        Subsignal("tx_data", Pins("G2 H1 J1 J3", dir="o")),
        _33,
    ),
)


def _spi(sites: str, attributes: Attrs) -> Resource:
    """Wires of SPI at pins of a header."""
    wires = zip(SPI_WIRES.items(), sites.split(), strict=True)
    parts = [Subsignal(name, Pins(site, dir=direction)) for (name, direction), site in wires]
    return Resource("spi_link", 0, *parts, attributes)


# Of a Pmod of type 2: CS, MOSI, MISO, SCK and INT; and its second selection.
_ICEBREAKER_SPI = _spi("45 4 2 47 3 48", Attrs(IO_STANDARD="SB_LVCMOS"))
# The header's pins GP0, GN0, GP1, GN1, GP2 and GN2.
_ULX3S_SPI = _spi("B11 C11 A10 A11 A9 B10", _33)
_TANG_NANO_20K = (
    # Next to each other at the header.
    _spi("27 28 29 30 31 26", _33),
    Resource("clk27", 0, Pins("4", dir="i"), Clock(27e6), _33),
    Resource("uart", 0, Subsignal("rx", Pins("70", dir="i")), Subsignal("tx", Pins("69", dir="o")), _33),
    *(Resource("led", index, PinsN(str(15 + index), dir="o"), _33) for index in range(3)),
)
_CROSSLINK_NX = (
    # Pins are those of litex-boards, which does not say that LEDs light at 0, as on Lattice's other boards.
    # At PMOD0, a Pmod of type 2.
    _spi("D8 D10 D9 D7 D6 D5", _33),
    Resource("clk12", 0, Pins("L13", dir="i"), Clock(12e6), _33),
    Resource("uart", 0, Subsignal("rx", Pins("F16", dir="i")), Subsignal("tx", Pins("F18", dir="o")), _33),
    *(Resource("led", index, PinsN(site, dir="o"), _33) for index, site in enumerate(("E17", "F13", "G13"))),
    Resource("button", 0, PinsN("G14", dir="i"), _33),
)
# The board has no serial port: an adapter goes to the header's pins marked 0 and 1.
_ORANGECRAB_LINE = (
    Resource("uart", 0, Subsignal("tx", Pins("N17", dir="o")), Subsignal("rx", Pins("M18", dir="i")), _33),
)


def _ulx3s(size: str) -> Board:
    from amaranth_boards import ulx3s

    platform = getattr(ulx3s, f"ULX3S_{size}F_Platform")
    return describe(
        f"ulx3s-{size.lower()}f",
        f"Radiona ULX3S with an LFE5U-{size}F",
        (f"lfe5u-{size.lower()}f", "CABGA381", platform.speed),
        [*platform.resources, _ULX3S_SPI],
        ("--board", "ulx3s"),
        button=("button_pwr", 0),
    )


def _orangecrab(size: str) -> Board:
    from amaranth_boards import orangecrab_r0_2

    platform = getattr(orangecrab_r0_2, f"OrangeCrabR0_2_{size}FPlatform")
    return describe(
        f"orangecrab-{size.lower()}f",
        f"OrangeCrab r0.2 with an LFE5U-{size}F",
        (f"lfe5u-{size.lower()}f", "CSFBGA285", platform.speed),
        [*platform.resources, *_ORANGECRAB_LINE],
        ("--board", "orangeCrab"),
        leds=(("rgb_led", 0, "g"), ("rgb_led", 0, "b"), ("rgb_led", 0, "r")),
        button=("button", 0),
        note="connect a 3.3 V serial adapter: its receiving pin to the header's 0, its sending pin to 1",
    )


def _icebreaker() -> Board:
    from amaranth_boards.icebreaker import ICEBreakerPlatform

    return describe(
        "icebreaker",
        "1BitSquared iCEBreaker",
        ("up5k", "sg48", ""),
        [*ICEBreakerPlatform.resources, _ICEBREAKER_SPI],
        ("--board", "ice40_generic"),
        # The green LED is the second.
        leds=(("led", 1, ""), ("led", 0, "")),
        button=("button", 0),
    )


def _colorlight(model: str) -> Board:
    device, led = {"i5": ("lfe5u-25f", "U16"), "i9": ("lfe5u-45f", "L2")}[model]
    return describe(
        f"colorlight-{model}",
        f"Colorlight {model} on its extension board",
        (device, "CABGA381", "6"),
        [*_COLORLIGHT, Resource("led", 0, PinsN(led, dir="o"), _33)],
        ("--board", f"colorlight-{model}"),
        leds=(("led", 0, ""),),
        most_baud=1_000_000,
        # The PHY delays the clock that it receives, not the one that it sends.
        phy_delays=(0, 2000),
    )


def _ecpix5(size: str) -> Board:
    from amaranth_boards import ecpix5

    platform = getattr(ecpix5, f"ECPIX5{size}Platform")
    return describe(
        f"ecpix5-{size}f",
        f"LambdaConcept ECPIX-5 with an LFE5UM5G-{size}F",
        (f"lfe5um5g-{size}f", "CABGA554", platform.speed),
        platform.resources,
        ("--board", "ecpix5"),
        leds=(("rgb_led", 0, "g"), ("rgb_led", 1, "b"), ("rgb_led", 2, "r")),
        button=("rst", 0),
        # The PHY delays the clock that it sends.
        phy_delays=(2000, 0),
    )


def _versa_ecp5() -> Board:
    from amaranth_boards.versa_ecp5 import VersaECP5Platform

    # Place and route knows the pair by its first pin.
    clock = Resource("clk100", 0, Pins("P3", dir="i"), Clock(100e6), Attrs(IO_TYPE="LVDS"))
    return describe(
        "versa-ecp5",
        "Lattice ECP5 Versa with an LFE5UM-45F",
        ("lfe5um-45f", "CABGA381", VersaECP5Platform.speed),
        [clock, *(each for each in VersaECP5Platform.resources if each.name != "clk100")],
        ("--cable", "ft2232"),
        button=("rst", 0),
        note="set the jumpers J50 so that the ECP5 is alone in the JTAG chain, without the ispCLOCK",
        # The PHY delays both clocks.
        phy_delays=(0, 0),
    )


def _tang_nano_20k() -> Board:
    return describe(
        "tang-nano-20k",
        "Sipeed Tang Nano 20K",
        ("gw2ar-18", "QN88", ""),
        _TANG_NANO_20K,
        ("--board", "tangnano20k"),
    )


def _crosslink_nx() -> Board:
    return describe(
        "crosslink-nx",
        "Lattice CrossLink-NX Evaluation Board with an LIFCL-40",
        ("lifcl-40", "BG400", "9"),
        _CROSSLINK_NX,
        ("--board", "crosslinknx_evn"),
        button=("button", 0),
        note="set the jumper JP2 for its clock; for its serial port remove R18 and R19, put 0 ohm at R15 and "
        "R17, and set port B of the FT2232H to UART, or use SPI at PMOD0",
    )


BOARDS: Final = Registry[Callable[[], Board]](
    "board",
    "rtlstm.boards",
    {
        "ulx3s-12f": partial(_ulx3s, "12"),
        "ulx3s-25f": partial(_ulx3s, "25"),
        "ulx3s-45f": partial(_ulx3s, "45"),
        "ulx3s-85f": partial(_ulx3s, "85"),
        "orangecrab-25f": partial(_orangecrab, "25"),
        "orangecrab-85f": partial(_orangecrab, "85"),
        "colorlight-i5": partial(_colorlight, "i5"),
        "colorlight-i9": partial(_colorlight, "i9"),
        "ecpix5-45f": partial(_ecpix5, "45"),
        "ecpix5-85f": partial(_ecpix5, "85"),
        "versa-ecp5": _versa_ecp5,
        "icebreaker": _icebreaker,
        "tang-nano-20k": _tang_nano_20k,
        "crosslink-nx": _crosslink_nx,
    },
    taken=ZYNQ_BOARDS,
)
"""The function that makes each board with a serial port, by the board's name."""

PRICED: Final = "2025"
"""When prices were classed, roughly: shops and years differ."""
PRICES: Final[Mapping[str, tuple[str, ...]]] = {
    "under 50 EUR": ("tang-nano-20k", "colorlight-i5"),
    "50-150 EUR": ("colorlight-i9", "icebreaker", "orangecrab-25f", "ulx3s-12f", "ulx3s-25f"),
    "over 150 EUR": (
        *("ulx3s-45f", "ulx3s-85f", "orangecrab-85f", "ecpix5-45f", "ecpix5-85f", "versa-ecp5"),
        "crosslink-nx",
    ),
}
"""The boards of each class of prices, the cheapest class first."""


def price_class(board: str) -> tuple[int, str]:
    """Return the number of a board's class of prices, and what people call it."""
    found = (each for each in enumerate(PRICES.items()) if board in each[1][1])
    return next(((number, price) for number, (price, _) in found), (len(PRICES), "not known"))


def usable_boards() -> list[Board]:
    """Return the boards with a serial port, without those of other packages that cannot be made."""
    return list(BOARDS.each(find_board).values())


def find_board(name: str) -> Board:
    """Return the board of this name, which must have a serial port.

    Raises ConfigurationError if there is none.
    """
    board = find_any_board(name)
    if isinstance(board, ZynqBoard):
        raise ConfigurationError(
            f"the core on {board.name} has no serial port and is not simulated: its own processor drives it; "
            "'rtlstm bitstream' writes what Vivado makes its bitstream from"
        )
    return board


def find_any_board(name: str) -> Board | ZynqBoard:
    """Return the board of this name, of any kind; the name may be in upper case or lower case.

    Raises ConfigurationError if there is none, or it cannot be made.
    """
    listed = _listed_name(name)
    if listed is None:
        similar = _similar_boards(name)
        offered = f"near names: {', '.join(similar)}" if similar else ""
        offered = offered or f"there are {', '.join((*BOARDS, *ZYNQ_BOARDS))}"
        raise ConfigurationError(f"there is no board {name!r}; {offered}")
    return _made(listed) if listed in BOARDS else ZYNQ_BOARDS[listed]


def _listed_name(name: str) -> str | None:
    """Return the name as it is listed, which need not have the same case; None if there is no such board."""
    listed, given = (*BOARDS, *ZYNQ_BOARDS), name.strip()
    return next((each for fold in (str, str.casefold) for each in listed if fold(each) == fold(given)), None)


def _made(name: str) -> Board:
    make = BOARDS[name]
    try:
        made = make()
    except RtlstmError:
        raise
    except Exception as error:
        raise ConfigurationError(f"board {name!r} cannot be made: {error!r}") from error
    if not isinstance(made, Board) or made.name != name:
        raise ConfigurationError(f"board {name!r} must be a function that returns a Board of this name")
    return made


class Target(NamedTuple):
    """A device, or a board with its device."""

    chosen: Chosen
    board: BoardTop | None = None
    """None for a device. A board without a PLL that rtlstm sets has no highest clock."""


def find_target(name: str) -> Target:
    """Return the device of this name, or the board of this name with its device.

    Raises ConfigurationError if there is neither.
    """
    if _listed_name(name) is not None:
        board = find_any_board(name)
        if isinstance(board, ZynqBoard):
            return Target(find_device(board.device), BoardTop(name=board.name))
        most_mhz = float(board.clock_range[1] / 1_000_000)
        top = BoardTop(name=board.name, most_mhz=most_mhz, ethernet=board.phy is not None)
        return Target(board.chosen, top)
    try:
        return Target(find_device(name))
    except UnknownDeviceError:
        similar = _similar_boards(name)
        if similar_devices(name) and not similar:
            raise
        offered = f"boards of near names: {', '.join(similar)}"
        if not similar:
            offered = f"boards: {', '.join((*BOARDS, *ZYNQ_BOARDS))}; devices: {', '.join(devices())}"
        raise ConfigurationError(f"there is no device or board {name!r}; {offered}") from None


def find_device_alone(name: str, package: str | None = None, grade: str | None = None) -> Chosen:
    """Find a device as :func:`rtlstm.fpga.devices.find_device` does, and refuse a board by name.

    Raises UnknownDeviceError if there is no device of this name. Raises ConfigurationError if it is a
    board's, or the device has no such package or speed grade.
    """
    if _listed_name(name) is None:
        return find_device(name, package, grade)
    target = find_target(name)
    raise ConfigurationError(
        f"{_listed_name(name)} is a board: give its device, {target.chosen.label}; "
        f"'rtlstm bitstream' is for the board with its link"
    )


def _similar_boards(name: str) -> list[str]:
    """Return the boards whose names begin with this one or are like it."""
    given, names = name.strip().lower(), (*BOARDS, *ZYNQ_BOARDS)
    similar = [each for each in names if given and each.startswith(given)]
    return similar or difflib.get_close_matches(given, names, n=3, cutoff=0.7)


_ResourceName = tuple[str, int, str]
_LEDS: tuple[_ResourceName, ...] = (("led", 0, ""), ("led", 1, ""), ("led", 2, ""))


def describe(
    name: str,
    title: str,
    device: tuple[str, str, str],
    resources: Iterable[Any],
    loader: tuple[str, ...],
    *,
    leds: tuple[_ResourceName, ...] = _LEDS,
    button: tuple[str, int] | None = None,
    most_baud: int = 3_000_000,
    note: str = "",
    phy_delays: tuple[int, int] = (2000, 2000),
) -> Board:
    """Make a board from resources of amaranth-boards; the clock is the first resource with a frequency.

    ``device`` is its name, package and speed grade. ``loader`` has openFPGALoader's options that select the
    board. ``leds`` and ``button`` have name and number of their resources; of an LED also the part, if it has
    several. ``phy_delays`` are the picoseconds by which the device delays the clock to a Gigabit PHY and the
    data from it, if the resources have such a PHY, an ``eth_rgmii``. Raises ConfigurationError if a resource
    is missing, or there are more than three LEDs.
    """
    by_name = {(item.name, item.number): item for item in resources}
    clock = next((item for item in by_name.values() if item.clock is not None), None)
    if clock is None:
        raise ConfigurationError(f"board {name!r} needs a resource with a clock's frequency, but has none")

    def pin(port: str, resource: str, number: int, part: str = "") -> Pin:
        if (resource, number) not in by_name:
            raise ConfigurationError(
                f"board {name!r} needs resource {resource!r} {number} for {port}, but has none; add it to "
                "the resources"
            )
        return _pin(port, by_name[resource, number], part)

    return Board(
        name=name,
        title=title,
        device=device[0],
        package=device[1],
        grade=device[2],
        clock=_pin("clk", clock),
        clock_hz=int(clock.clock.frequency),
        rx=pin("rx", "uart", 0, "rx"),
        tx=pin("tx", "uart", 0, "tx"),
        leds=tuple(pin(f"led{index}", *led) for index, led in enumerate(leds)),
        button=None if button is None else pin("button", *button),
        phy=_phy(by_name["eth_rgmii", 0], phy_delays) if ("eth_rgmii", 0) in by_name else None,
        spi=tuple(
            pin(f"spi_{each}", "spi_link", 0, each) for each in SPI_WIRES if ("spi_link", 0) in by_name
        ),
        most_baud=most_baud,
        loader=loader,
        note=note,
    )


def _pin(port: str, resource: Any, part: str = "") -> Pin:
    """Return the one pin of a resource or of its part."""
    pins = _pins(port, resource, part)
    if len(pins) != 1:
        raise ConfigurationError(
            f"resource {resource.name!r} must have one pin for {port}, but has {len(pins)}; describe it so"
        )
    return pins[0]


def _phy(resource: Any, delays: tuple[int, int]) -> Phy:
    pins = [
        pin.replace(port=f"{pin.port}{index}") if signal.endswith("data") else pin
        for signal in SIGNALS
        for index, pin in enumerate(_pins(f"eth_{signal}", resource, signal))
    ]
    return Phy(pins=tuple(pins), tx_delay_ps=delays[0], rx_delay_ps=delays[1])


def _pins(port: str, resource: Any, part: str = "") -> list[Pin]:
    parts: dict[str, Any] = {"": resource}
    if part:
        # The control wires of a PHY have two spellings in amaranth-boards.
        parts = {getattr(item, "name", "").replace("ctrl", "ctl"): item for item in resource.ios}
    ios: Sequence[Any] = parts[part].ios if part in parts else ()
    if len(ios) != 1 or not isinstance(ios[0], Pins):
        raise ConfigurationError(
            f"resource {resource.name!r} must have {f'a part {part!r}' if part else 'one group'} of "
            f"single-ended pins for {port}, but is {resource!r}; describe it so"
        )
    signal, (pins,) = parts[part], ios
    attributes: Mapping[str, Any] = {**resource.attrs, **signal.attrs}
    # GLOBAL asks for a global buffer, which place and route and the PLL choose themselves.
    kept = {key: str(value) for key, value in attributes.items() if key != "GLOBAL" and value is not None}
    return [Pin(port=port, site=site, inverted=pins.invert, attributes=kept) for site in pins.names]
