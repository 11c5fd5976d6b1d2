"""The top level of a board: its pins, clocks and resets, the serial link and the core.

The core has a clock of its own, from the PLL. The link has that of the board.
"""

from collections.abc import Mapping

from amaranth.hdl import (
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

from rtlstm.boards.board import Board, UartTiming
from rtlstm.fpga.families.base import Pin
from rtlstm.fpga.families.device import Pll, megahertz
from rtlstm.fpga.netlist.harness import CORE, Port, read_ports
from rtlstm.hdl.component import Domain, flat_ports
from rtlstm.hdl.emit.header import SPDX
from rtlstm.hdl.emit.verilog import convert, primitives
from rtlstm.hdl.link.crossing import LINK, CrossingLink
from rtlstm.spec.manifest import Manifest

TOP = "rtlstm_board"
"""The top's module; no build may have this name."""

PLL = "pll"
"""Name of the PLL's instance in the top."""

_RESET_BITS = 10
"""The reset lasts 2**this cycles after the PLL has locked: an iCE40's block RAM is not ready for 3 us."""


class BoardTop(Elaboratable):
    """A core behind a board's serial port.

    The core is an instance of the build's own Verilog, so it is the one that was verified.

    LEDs, as far as the board has them: the first blinks while no host is connected and is lit when one is;
    the second flickers with what the host sends; the third is lit since a frame was dropped.
    """

    def __init__(self, board: Board, manifest: Manifest, uart: UartTiming, core: tuple[Port, ...]) -> None:
        self._board, self._manifest, self._uart, self._core = board, manifest, uart, core
        self.ports = {pin.port: Signal(name=pin.port) for pin in board.pins()}

    def elaborate(self, platform: object) -> Module:
        """Connect PLL, reset, link, core, LEDs and pins."""
        m = Module()
        board, ports = self._board, self.ports
        m.domains += [ClockDomain("sync"), ClockDomain(LINK)]
        locked = _add_pll(m, self._uart.pll, ports[board.clock.port])
        _add_reset(m, locked, None if board.button is None else _level(ports, board.button))
        m.submodules.link = link = CrossingLink(self._manifest, self._uart.divisor)
        m.submodules[CORE] = _core(self._manifest.name, self._core, link)
        m.d.comb += [link.rx.eq(_level(ports, board.rx)), _level(ports, board.tx).eq(link.tx)]
        self._add_leds(m, link)
        return m

    def _add_leds(self, m: Module, link: CrossingLink) -> None:
        ports = self.ports
        # A sixteenth of a second: the unit of blinking, and how long the LED of traffic stays lit.
        period = self._board.clock_hz // 16
        ticks, tick, blink, seen, erred = Signal(range(period)), Signal(), Signal(4), Signal(2), Signal()
        rx = Signal()
        m.submodules.rx_led = FFSynchronizer(link.rx, rx, init=1, o_domain=LINK)
        m.d.comb += tick.eq(ticks == period - 1)
        m.d[LINK] += [ticks.eq(Mux(tick, 0, ticks + 1)), blink.eq(blink + tick)]
        with m.If(tick):
            m.d[LINK] += seen.eq(seen >> 1)
        with m.If(~rx):
            m.d[LINK] += seen.eq(-1)
        m.d[LINK] += erred.eq(erred | (link.errors != 0))
        lights = (link.active | blink[-1], seen != 0, erred)
        for pin, light in zip(self._board.leds, lights, strict=False):
            m.d.comb += ports[pin.port].eq(~light if pin.inverted else light)


def _level(ports: Mapping[str, Signal], pin: Pin) -> Value:
    """Return the logic value of a pin: its port, or the inverse of it."""
    return ~ports[pin.port] if pin.inverted else ports[pin.port]


def _add_pll(m: Module, pll: Pll, source: Signal) -> Signal:
    """Make the core's clock and the link's, and return the PLL's lock."""
    locked, passed = Signal(), source
    wires = {f"o_{pll.output_port}": ClockSignal(), f"o_{pll.lock_port}": locked}
    if pll.pass_port is not None:
        passed = wires[f"o_{pll.pass_port}"] = Signal(name="passed_clock")
    m.d.comb += ClockSignal(LINK).eq(passed)
    if pll.feedback is not None:
        source_port, sink_port = pll.feedback
        loop = wires.setdefault(f"o_{source_port}", Signal(name="pll_feedback"))
        wires[f"i_{sink_port}"] = loop
    m.submodules[PLL] = Instance(
        pll.cell,
        **{f"p_{name}": value for name, value in pll.parameters.items()},
        **{f"a_{name}": value for name, value in pll.attributes.items()},
        **{f"i_{name}": Const(int(bits, 2), len(bits)) for name, bits in pll.constants.items()},
        **{f"i_{pll.input_port}": source},
        **wires,
    )
    return locked


def _add_reset(m: Module, locked: Signal, button: Value | None) -> None:
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


def _core(name: str, ports: tuple[Port, ...], link: CrossingLink) -> Instance:
    """Connect the build's core, port by port of the same name, to the link."""
    ours = {port.name: port.value for port in flat_ports(link)}
    wires = {f"{port.direction[0]}_{port.name}": ours[port.name] for port in ports if port.name in ours}
    return Instance(name, i_clk=ClockSignal(), i_rst=ResetSignal(), **wires)


def board_verilog(board: Board, manifest: Manifest, uart: UartTiming, core: str) -> str:
    """Generate the Verilog of a board's top, with its own primitives, without the core.

    ``core`` is the core's Verilog.

    Raises
    ------
    BuildError
        If the core's ports cannot be read.
    ToolError
        If Yosys is missing.
    """
    top = BoardTop(board, manifest, uart, read_ports(core, manifest.name))
    head = (
        f"// {SPDX}\n"
        f"// {manifest.name} on {board.title}: {megahertz(uart.clock_hz)} MHz, {uart.baud} baud.\n"
        f"// Generated by rtlstm {manifest.rtlstm_version}, build {manifest.build_hash[:8]}. Do not edit.\n"
    )
    text = convert({TOP: (top, list(top.ports.values()))}, TOP, attributes=True)
    return head + text + primitives(manifest.parameters.family, TOP)
