"""The top level of a board: its pins, clocks and resets, the serial link and the core.

The core has a clock of its own, from the PLL. The link has that of the board, or on Ethernet one of another
PLL.
"""

from collections.abc import Mapping, Sequence

from amaranth.hdl import (
    Cat,
    ClockDomain,
    ClockSignal,
    Const,
    Elaboratable,
    Instance,
    Module,
    Mux,
    ResetSignal,
    Signal,
    Value,
)
from amaranth.lib.cdc import FFSynchronizer, ResetSynchronizer
from amaranth.lib.wiring import Flow

from rtlstm.boards.board import SPI_WIRES, Board, BoardTiming, LogicPins, SerialPort, Spi
from rtlstm.boards.ethernet import SIGNALS, Ethernet, ethernet_verilog
from rtlstm.fpga.families.base import Pin
from rtlstm.fpga.families.device import Pll, megahertz
from rtlstm.fpga.netlist.harness import CORE, Port, read_ports
from rtlstm.hdl.component import Component, Domain, flat_ports
from rtlstm.hdl.emit.header import SPDX
from rtlstm.hdl.emit.verilog import convert, primitives
from rtlstm.hdl.link.crossing import LINK, CrossingDatagrams, CrossingLink, CrossingRawSpi, CrossingSpi
from rtlstm.hdl.link.datagrams import NETWORK
from rtlstm.spec.errors import ConfigurationError
from rtlstm.spec.manifest import Manifest

TOP = "rtlstm_board"
"""The top's module; no build may have this name."""

PLL, NETWORK_PLL = "pll", "network_pll"
"""Names of the PLLs' instances in the top: that of the core, and that of LiteEth and its link."""

_RESET_BITS = 10
"""The reset lasts 2**this cycles after the PLL has locked: an iCE40's block RAM is not ready for 3 us."""


AnyLink = CrossingLink | CrossingDatagrams | CrossingSpi | CrossingRawSpi


class BoardTop(Elaboratable):
    """A core behind a board's serial port, or behind its Ethernet.

    The core is an instance of the build's own Verilog, so it is the one that was verified.

    LEDs, as far as the board has them: the first blinks while no host is connected and is lit when one is;
    the second flickers with what the host sends; the third is lit since a frame was dropped.

    In place of the link there may be ``logic``, see :func:`board_verilog`.
    """

    def __init__(
        self,
        board: Board,
        manifest: Manifest,
        timing: BoardTiming,
        core: tuple[Port, ...],
        logic: Component | None = None,
    ) -> None:
        self._board, self._manifest, self._timing, self._core = board, manifest, timing, core
        self._logic = logic
        pins = (*board.pins(timing.link), *timing.logic_pins)
        self.ports = {pin.port: Signal(name=pin.port) for pin in pins}
        self._phy_clock = Signal(name="phy_clk")

    def elaborate(self, platform: object) -> Module:
        """Connect PLL, reset, link, core, LEDs and pins."""
        m = Module()
        board, ports = self._board, self.ports
        m.domains += [ClockDomain("sync"), ClockDomain(LINK)]
        source = ports[board.clock.port]
        locked: Value
        locked, passed = _add_pll(m, PLL, self._timing.pll, source, ClockSignal())
        line = self._timing.port
        if isinstance(line, Ethernet):
            locked = self._add_network_clocks(m, source) & locked
        else:
            m.d.comb += ClockSignal(LINK).eq(passed)
        _add_reset(m, locked, None if board.button is None else _level(ports, board.button))
        match line:
            case Ethernet():
                self._add_ethernet(m, line)
            case Spi():
                self._add_spi(m, line)
            case SerialPort():
                self._add_serial_port(m)
            case LogicPins(pins=pins):
                self._add_logic(m, pins)
        return m

    def _add_logic(self, m: Module, pins: Sequence[Pin]) -> None:
        logic = self._logic
        assert logic is not None
        m.submodules.logic = logic
        self._add_core(m, logic)
        flows = {port.name: port for port in flat_ports(logic)}
        for needed in self._core:
            if needed.direction == "input" and needed.name not in (*flows, "clk", "rst"):
                raise ConfigurationError(
                    f"your own logic must have a port {needed.name}, an input of the core"
                )
        for pin in pins:
            port = flows.get(pin.port)
            if port is None or len(port.value) != 1:
                raise ConfigurationError(f"your own logic must have a port {pin.port} of one bit for its pin")
            if port.flow is Flow.Out:
                _drive(m, self.ports[pin.port], pin, port.value)
            else:
                m.d.comb += port.value.eq(_level(self.ports, pin))
        lights = flows["leds"].value if "leds" in flows else Const(0, len(self._board.leds))
        for pin, light in zip(self._board.leds, lights, strict=False):
            _drive(m, self.ports[pin.port], pin, light)

    def _add_core(self, m: Module, link: Component) -> None:
        """Connect the build's core, port by port of the same name, to the link."""
        ours = {port.name: port.value for port in flat_ports(link)}
        wires = {
            f"{port.direction[0]}_{port.name}": ours[port.name] for port in self._core if port.name in ours
        }
        m.submodules[CORE] = Instance(self._manifest.name, i_clk=ClockSignal(), i_rst=ResetSignal(), **wires)

    def _add_serial_port(self, m: Module) -> None:
        board, ports = self._board, self.ports
        m.submodules.link = link = CrossingLink(self._manifest, self._timing.divisor)
        self._add_core(m, link)
        m.d.comb += link.rx.eq(_level(ports, board.rx))
        _drive(m, ports[board.tx.port], board.tx, link.tx)
        rx = Signal()
        m.submodules.rx_led = FFSynchronizer(link.rx, rx, init=1, o_domain=LINK)
        self._add_leds(m, link, ~rx)

    def _add_spi(self, m: Module, spi: Spi) -> None:
        link: CrossingSpi | CrossingRawSpi
        link = CrossingRawSpi(self._manifest) if spi.raw else CrossingSpi(self._manifest)
        m.submodules.link = link
        self._add_core(m, link)
        for pin, (name, direction) in zip(self._board.find_spi(spi.raw), SPI_WIRES.items(), strict=False):
            if direction == "o":
                _drive(m, self.ports[pin.port], pin, getattr(link, name))
            else:
                m.d.comb += getattr(link, name).eq(_level(self.ports, pin))
        idle = Signal()
        m.submodules.spi_led = FFSynchronizer(link.cs_n, idle, init=1, o_domain=LINK)
        self._add_leds(m, link, ~idle)

    def _add_network_clocks(self, m: Module, source: Signal) -> Signal:
        """Make the clocks of LiteEth, of the PHY and of the link, and return their PLL's lock."""
        m.domains += ClockDomain(NETWORK)
        pll, others = self._board.find_network_pll(), {"o_CLKOS2": ClockSignal(LINK)}
        others["o_CLKOS3"] = ClockSignal(NETWORK)
        locked, _ = _add_pll(m, NETWORK_PLL, pll, source, self._phy_clock, others)
        return locked

    def _add_ethernet(self, m: Module, ethernet: Ethernet) -> None:
        m.submodules.network_reset = ResetSynchronizer(ResetSignal(), domain=NETWORK)
        m.submodules.link = link = CrossingDatagrams(
            self._manifest, ethernet.only_peer, ethernet.peer == "any", ethernet.raw
        )
        self._add_core(m, link)
        phy = self._board.find_phy()
        pads = {each: Cat(self.ports[pin.port] for pin in phy.ports(each)) for each in SIGNALS}
        (reset,), running = phy.ports("rst"), Signal()
        came, goes = link.i.payload, link.o.payload
        m.submodules.ethernet = Instance(
            "rtlstm_ethernet",
            i_network_clk=ClockSignal(NETWORK),
            i_network_rst=ResetSignal(NETWORK),
            i_network_tx_clk=self._phy_clock,
            i_rgmii_clocks_rx=pads["rx_clk"],
            i_rgmii_rx_ctl=pads["rx_ctl"],
            i_rgmii_rx_data=pads["rx_data"],
            o_rgmii_clocks_tx=pads["tx_clk"],
            o_rgmii_tx_ctl=pads["tx_ctl"],
            o_rgmii_tx_data=pads["tx_data"],
            o_rgmii_rst_n=running,
            o_rx_valid=link.i.valid,
            i_rx_ready=link.i.ready,
            o_rx_last=came.last,
            o_rx_data=came.data,
            o_rx_error=came.error,
            o_rx_length=came.length,
            o_rx_ip_address=came.address,
            o_rx_src_port=came.port,
            i_tx_valid=link.o.valid,
            o_tx_ready=link.o.ready,
            i_tx_last=goes.last,
            i_tx_data=goes.data,
            i_tx_error=Const(0),
            i_tx_length=goes.length,
            i_tx_ip_address=goes.address,
            i_tx_src_port=Const(ethernet.port, 16),
            i_tx_dst_port=goes.port,
        )
        _drive(m, self.ports[reset.port], reset, ~running)
        self._add_leds(m, link, link.hears)

    def _add_leds(self, m: Module, link: AnyLink, hears: Value) -> None:
        ports = self.ports
        # A sixteenth of a second: the unit of blinking, and how long the LED of traffic stays lit.
        period = self._timing.link_hz // 16
        ticks, tick, blink, seen, erred = Signal(range(period)), Signal(), Signal(4), Signal(2), Signal()
        m.d.comb += tick.eq(ticks == period - 1)
        m.d[LINK] += [ticks.eq(Mux(tick, 0, ticks + 1)), blink.eq(blink + tick)]
        with m.If(tick):
            m.d[LINK] += seen.eq(seen >> 1)
        with m.If(hears):
            m.d[LINK] += seen.eq(-1)
        m.d[LINK] += erred.eq(erred | (link.errors != 0))
        lights = (link.active | blink[-1], seen != 0, erred)
        for pin, light in zip(self._board.leds, lights, strict=False):
            _drive(m, ports[pin.port], pin, light)


def _level(ports: Mapping[str, Signal], pin: Pin) -> Value:
    """Return the logic value of a pin: its port, or the inverse of it."""
    return ~ports[pin.port] if pin.inverted else ports[pin.port]


def _drive(m: Module, port: Signal, pin: Pin, value: Value) -> None:
    m.d.comb += port.eq(~value if pin.inverted else value)


def _add_pll(
    m: Module, name: str, pll: Pll, source: Signal, clock: Value, more: Mapping[str, Value] | None = None
) -> tuple[Signal, Signal]:
    """Make a clock, and return the PLL's lock, and the source as the PLL may pass it on.

    ``more`` are the wires at other outputs.
    """
    locked, passed = Signal(name=f"{name}_locked"), source
    wires = {f"o_{pll.output_port}": clock, f"o_{pll.lock_port}": locked, **(more or {})}
    if pll.pass_port is not None:
        passed = wires[f"o_{pll.pass_port}"] = Signal(name="passed_clock")
    if pll.feedback is not None:
        source_port, sink_port = pll.feedback
        loop = wires.setdefault(f"o_{source_port}", Signal(name="pll_feedback"))
        wires[f"i_{sink_port}"] = loop
    m.submodules[name] = Instance(
        pll.cell,
        **{f"p_{name}": value for name, value in pll.parameters.items()},
        **{f"a_{name}": value for name, value in pll.attributes.items()},
        **{f"i_{name}": Const(int(bits, 2), len(bits)) for name, bits in pll.constants.items()},
        **{f"i_{pll.input_port}": source},
        **wires,
    )
    return locked, passed


def _add_reset(m: Module, locked: Value, button: Value | None) -> None:
    """Hold both domains in reset until some time after the PLL has locked."""
    stop = ~locked if button is None else ~locked | button
    m.domains.start = start = Domain(local=True)
    m.d.comb += start.clk.eq(ClockSignal("sync"))
    m.submodules.start = ResetSynchronizer(stop, domain="start")
    count, running = Signal(_RESET_BITS), Signal()
    m.d.start += count.eq(count + ~running)
    with m.If(count.all()):
        m.d.start += running.eq(1)
    m.d.comb += ResetSignal().eq(~running)
    m.submodules.link_reset = ResetSynchronizer(~running, domain=LINK)


def board_verilog(
    board: Board, manifest: Manifest, timing: BoardTiming, core: str, logic: Component | None = None
) -> str:
    """Generate the Verilog of a board's top, with its own primitives, without the core, whose Verilog is
    given.

    ``logic`` is your own in place of the link, for a timing of
    :func:`~rtlstm.boards.board.find_logic_timing`. Its ports are those of
    :class:`~rtlstm.hdl.core.core.CoreSide`, one of the same name for each pin, and perhaps ``leds`` with a
    bit for each. It is in the core's clock domain. Raises ConfigurationError if a pin or an input of the core
    has no port in the logic, or there is a link and logic, or neither. Raises BuildError if the core's ports
    cannot be read. Raises ToolError if Yosys is missing.
    """
    if (logic is None) == (timing.link == "logic"):
        raise ConfigurationError("a board's top must have a link or your own logic, and not both")
    top = BoardTop(board, manifest, timing, read_ports(core, manifest.name), logic)
    network = ""
    match timing.port:
        case Ethernet() as ethernet:
            line = f"Ethernet at {ethernet.ip}"
            # The conversion puts the top's name before the module's, as before that of a primitive.
            network = ethernet_verilog(f"{TOP}_ethernet", ethernet, board.find_phy())
        case Spi():
            line = "SPI"
        case SerialPort(baud=baud):
            line = f"{baud} baud"
        case LogicPins():
            line = "no link"
    head = (
        f"// {SPDX}\n"
        f"// {manifest.name} on {board.title}: {megahertz(timing.clock_hz)} MHz, {line}.\n"
        f"// Generated by rtlstm {manifest.rtlstm_version}, build {manifest.build_hash[:8]}. Do not edit.\n"
    )
    text = convert({TOP: (top, list(top.ports.values()))}, TOP, attributes=True)
    return head + text + primitives(manifest.parameters.family, TOP) + network
