"""``rtlstm board``: a simulated board to connect to."""

import signal
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rtlstm.cli.bitstream import note_bus, target_fields
from rtlstm.cli.console import Console
from rtlstm.cli.declared import takes_options
from rtlstm.cli.options import BuildArgument, DebugOption, JsonOption
from rtlstm.cli.results import Found, Text
from rtlstm.gen.builds.command_options import BoardOptions

if TYPE_CHECKING:
    from rtlstm.host.link.byte_ports import BytePort

__all__ = ["board"]

_LINGER = 0.5
"""Seconds after the last byte in which the board runs as fast as it can."""
_PAUSE = 0.002
"""Longest pause with faults on the port, in the board's seconds: a simulator takes half a minute for one."""


@takes_options(BoardOptions)
def board(
    folder: BuildArgument,
    options: Mapping[str, Any],
    tcp: Annotated[
        int | None,
        typer.Option(min=0, max=65535, metavar="PORT", help="TCP port of this machine to listen at; 0, any."),
    ] = None,
    pty: Annotated[
        bool, typer.Option("--pty/--no-pty", help="Offer a pseudo-terminal, as a serial port.")
    ] = True,
    faults: Annotated[
        float, typer.Option(min=0, max=1, help="Share of frames on the line with a fault.")
    ] = 0.0,
    seed: Annotated[int, typer.Option(help="Of the faults, and of what is in memories at first.")] = 1,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Run a board's top level in simulation and offer its serial port, until Ctrl-C.

    The same Verilog as in the bitstream, with its PLL and pins modelled: programs talk to it as to the board.
    """
    with Console(as_json, debug) as console:
        from rtlstm.gen.builds.on_board import OnBoard
        from rtlstm.sim.board_port import BoardPort
        from rtlstm.sim.port_server import PortServer
        from rtlstm.spec.errors import ConfigurationError

        if tcp is None and not pty:
            raise ConfigurationError(
                "a board needs a line to its user: leave out --no-pty, or give --tcp PORT"
            )
        asked = BoardOptions(**options)
        build = OnBoard.create(folder, asked.board, asked.clock_mhz, asked.baud)
        note_bus(console, build)
        if why := build.find_misfit(insist=True):
            console.note(f"only a simulation: {why}")
        with console.progress() as progress:
            native = build.simulate(seed, progress)
        port: BytePort = BoardPort(native)
        if faults:
            from rtlstm.sim.faults import FaultyPort

            port = FaultyPort(port, faults, seed, longest=_PAUSE)
        with PortServer(port, terminal=pty, tcp=tcp, linger=_LINGER) as server:

            def stopped(*_: Any) -> None:
                server.stop()

            before = {kind: signal.signal(kind, stopped) for kind in (signal.SIGINT, signal.SIGTERM)}
            console.show(
                _SERVED,
                board=build.board.name,
                target=target_fields(build),
                terminal=server.path and str(server.path),
                tcp=server.port,
            )
            try:
                server.wait()
            finally:
                for kind, handler in before.items():
                    signal.signal(kind, handler)
            console.show(cycles=native.cycle)


def _if_there(name: str, text: str) -> Text:
    """A line about a field that may be null."""

    def reading(found: Found) -> str | None:
        return None if found[name] is None else text.format_map(found)

    return Text(reading)


_SERVED = (
    Text("{target[title]}, simulated: {target[clock_mhz]:g} MHz, {target[baud]:,} baud"),
    _if_there("terminal", "serial port: serial:{terminal}"),
    _if_there("tcp", "TCP: tcp:localhost:{tcp}"),
    Text("Ctrl-C ends it."),
)
