"""``rtlstm bitstream``, ``program`` and ``board``: a build on a real board, or on a simulated one."""

import signal
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rtlstm.cli.commands import next_command
from rtlstm.cli.console import Console
from rtlstm.cli.options import BuildArgument, command
from rtlstm.cli.results import Field, Figure, Found, Table, Text
from rtlstm.gen.builds.command_options import BitstreamOptions, BoardOptions
from rtlstm.spec.errors import BuildError, ConfigurationError

if TYPE_CHECKING:
    from rtlstm.boards.bitstream import Bitstream
    from rtlstm.boards.zynq import ZynqBoard
    from rtlstm.gen.builds.on_board import OnBoard
    from rtlstm.host.link.byte_ports import BytePort

_SHOWN = 8
"""Resources in the table, those most used."""
_LINGER = 0.5
"""Seconds after the last byte in which the board runs as fast as it can."""
_SPAN, _NETWORK_SPAN = 0.001, 20e-6
"""Seconds of the board's time between two looks at who is connected: it has more clocks with Ethernet."""
_PAUSE = 0.002
"""Longest pause with faults on the port, in the board's seconds: a simulator takes half a minute for one."""


@command(BoardOptions, BitstreamOptions)
def bitstream(
    console: Console,
    folder: BuildArgument,
    options: Mapping[str, Any],
) -> None:
    """Make a bitstream for a board: the core behind its link, with clock, reset and LEDs.

    For a Zynq board it writes what Vivado makes the bitstream of. Exits with 1 if the clock is not met.
    """
    from rtlstm.boards.catalogue import find_any_board
    from rtlstm.boards.zynq import ZynqBoard
    from rtlstm.gen.builds.on_board import OnBoard

    asked = BitstreamOptions(**options)
    target = find_any_board(asked.board)
    if isinstance(target, ZynqBoard):
        asked.check_vivado()
        _write_for_vivado(console, folder, target, asked.clock_mhz)
        return
    seeds = asked.all_seeds
    build = OnBoard.asked(folder, asked)
    console.show(_TARGET, target=_target_fields(build, asked.clock_mhz is None))
    _note_bus(console, build)
    if other := build.fitted_to:
        console.note(
            f"sizes were chosen for {other}: 'rtlstm generate' with --fit {build.board.name} chooses "
            "them for this board and its link"
        )
    with console.progress() as progress:
        found = build.make_bitstream(seeds, progress, insist=asked.insist)
    console.passed = found.met
    console.show(
        _BITSTREAM,
        folder=str(folder),
        file=str(build.output_folder / found.file),
        bitstream=found.model_dump(mode="json"),
    )
    _note_board(console, build, found)
    console.next = next_command("program", folder, board=build.board.name)


def _write_for_vivado(console: Console, folder: Path, board: "ZynqBoard", clock: float | None) -> None:
    from rtlstm.gen.builds.on_board import OnZynq

    build = OnZynq.create(folder, board, clock)
    console.show(
        _FOR_VIVADO,
        folder=str(folder),
        title=board.title,
        part=board.part,
        output_folder=str(build.output_folder),
        vivado=build.write().model_dump(mode="json"),
        make=build.command,
        run=next_command("run", folder, backend="mmio:/dev/uio0", input="x.npy", output="y.npy"),
    )
    console.next = build.command
    fits = next_command("implement", folder, device=board.device)
    console.note(f"whether it fits: {fits} (synthesis only)")
    console.note("no bitstream yet: no open tool makes one for this device; Vivado does, and checks timing")


def _note_bus(console: Console, build: "OnBoard") -> None:
    bus = build.manifest.parameters.bus
    if bus != "none":
        line = {"serial": "serial port", "ethernet": "Ethernet"}.get(build.timing.link, "SPI")
        console.note(f"the {line} is wired to the core itself: the build's {bus} wrapper is left out")


def _target_fields(build: "OnBoard", searched: bool = False) -> dict[str, Any]:
    """Return the JSON object of a build on a board: device, clock if known, and serial port or addresses."""
    return {
        "board": build.board.name,
        "title": build.board.title,
        "device": build.board.chosen.label,
        "clock_mhz": None if searched else build.timing.clock_mhz,
        "requested_mhz": build.requested_mhz,
        **build.timing.port.model_dump(mode="json"),
    }


def _note_board(console: Console, build: "OnBoard", found: "Bitstream") -> None:
    """Say what is to be known about the board, and what to do about a clock that is missed."""
    from rtlstm.fpga.place_route import note_failed
    from rtlstm.fpga.resources import faster
    from rtlstm.gen.builds.on_board import slower_clock

    for note in note_failed(found.failed_seeds):
        console.note(note)
    if note := build.board.chosen.device.note:
        console.note(note)
    if build.board.note:
        console.note(build.board.note)
    if found.link_mhz is not None:
        console.note(
            f"timing is not met: another clock than the core's, with which the link runs, reaches only "
            f"{found.link_mhz:g} MHz with seed {found.seed} (see the log in {build.output_folder}); try more "
            "--seeds"
        )
    elif not found.met and found.requested_mhz is None:
        console.note(
            f"timing is not met: seed {found.seed} reaches {found.fmax_mhz:g} MHz, but the PLL was set to "
            f"{found.clock_mhz:g} MHz; {faster(build.manifest.spatial)}, or try more --seeds"
        )
    elif not found.met:
        clock = slower_clock(found, build.board)
        advice = faster(build.manifest.spatial) if clock is None else f"use --clock {clock}"
        console.note(
            f"timing is not met: {found.clock_mhz:g} MHz was asked for and seed {found.seed} reaches "
            f"{found.fmax_mhz:g} MHz; {advice}, or try more --seeds"
        )


@command()
def program(
    console: Console,
    folder: BuildArgument,
    board: Annotated[
        str | None,
        typer.Option(metavar="BOARD", help="Board to program. Default: the one that has a bitstream."),
    ] = None,
    flash: Annotated[
        bool, typer.Option("--flash", help="Write the bitstream to the board's flash memory, where it stays.")
    ] = False,
) -> None:
    """Configure a board with its bitstream, with openFPGALoader."""
    from rtlstm.boards.bitstream import load_board
    from rtlstm.gen.builds.on_board import load_bitstream

    found, target, file = load_bitstream(folder, board)
    if not found.met:
        raise BuildError(
            f"the bitstream for {target.name} must meet its clock, but reaches {found.fmax_mhz:g} of "
            f"{found.clock_mhz:g} MHz; make another with a lower --clock"
        )
    console.show(folder=str(folder), board=target.name, title=target.title, file=str(file))
    load_board(target, file, flash)
    console.show(_PROGRAMMED)
    console.next = next_command("run", folder, backend=found.port.backend, input="x.npy")
    if target.note:
        console.note(target.note)


def _bitstream(found: Found) -> "Bitstream":
    from rtlstm.boards.bitstream import Bitstream

    return Bitstream.model_validate(found["bitstream"])


def _port(found: Found) -> str:
    target = found["target"]
    clock, asked = target["clock_mhz"], target["requested_mhz"]
    given = "the fastest clock that is reached" if clock is None else f"{clock:g} MHz"
    given += f", the PLL's nearest below {asked:g}" if asked not in (None, clock) else ""
    return f"{target['title']}: {given}; {_line(target)}"


def _line(target: Mapping[str, Any]) -> str:
    """What the board's link is: its serial port's rate, or its addresses."""
    raw = ", raw steps, too" if target.get("raw") else ""
    if "ip" in target:
        peer = {"first": "the first host that asks", "any": "any host"}.get(target["peer"], target["peer"])
        return f"Ethernet at {target['ip']}, {target['mac']}, UDP port {target['port']}, for {peer}{raw}"
    if "spi_mhz" in target:
        return f"SPI, mode 0, up to {target['spi_mhz']:g} MHz{raw}"
    off = f" ({target['baud_error']:+g} %)" if target["baud_error"] else ""
    return f"{target['baud']:,} baud{off}"


def _seeds(found: Found) -> str | None:
    reached = _bitstream(found).seeds_mhz
    several = ", ".join(f"{seed}: {mhz:g} MHz" for seed, mhz in reached.items())
    return f"seeds: {several}" if len(reached) > 1 else None


def _written(found: Found) -> str:
    made = _bitstream(found)
    seconds = "stored" if made.stored else f"{made.synthesis_seconds + made.route_seconds:.0f} s"
    return f"bitstream ({seconds}): {found['file']}"


def _processor_clock(found: Found) -> str:
    clock, asked = found["vivado"]["clock_mhz"], found["vivado"]["requested_mhz"]
    below = "" if clock == asked else f", the nearest below {asked:g}"
    return f"{found['title']} ({found['part']}): {clock:g} MHz from the processor{below}"


_TARGET = (Text(_port),)

_BITSTREAM = (
    Table(
        "The whole design on {target[device]}",
        lambda found: _bitstream(found).uses[:_SHOWN],
        Field("resource", "{name}"),
        Figure("taken", "{used:,}"),
        Figure("there", "{available:,}"),
        Figure("share", "{share:g} %"),
    ),
    Text(_seeds),
    Text(
        "clock: {bitstream[clock_mhz]:g} MHz, a step {bitstream[step_latency_us]:g} us; "
        "{bitstream[fmax_mhz]:g} MHz would be possible"
    ),
    Text("slowest path: {bitstream[worst_path]}"),
    Text(_written),
)

_FOR_VIVADO = (
    Text(_processor_clock),
    Text("registers: 0x{vivado[base_address]:08X}, interrupt {vivado[interrupt_pin]}"),
    Text(lambda found: f"written: {found['output_folder']}/ with {', '.join(found['vivado']['files'])}"),
    Text("Vivado makes the bitstream: {make}"),
    Text("then on the board, with its bitstream and uio.dtsi loaded (docs/boards.md): {run}"),
    Text('or with PYNQ, where the folder {vivado[overlay]} is: Accelerator.open("overlay", "pynq")'),
)

_PROGRAMMED = (Text("{title} holds {file}"),)


@command(BoardOptions)
def board(
    console: Console,
    folder: BuildArgument,
    options: Mapping[str, Any],
    tcp: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65535,
            metavar="PORT",
            help="TCP port of this machine to listen at; 0 takes any free one.",
        ),
    ] = None,
    udp: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65535,
            metavar="PORT",
            help="UDP port of this machine for datagrams to a board with --ip, or raw transfers with --spi; "
            "0 takes any free one.",
        ),
    ] = None,
    pty: Annotated[
        bool, typer.Option("--pty/--no-pty", help="Offer a pseudo-terminal as a serial port.")
    ] = True,
    faults: Annotated[
        float, typer.Option(min=0, max=1, help="Share of frames that get a fault, 0 to 1.")
    ] = 0.0,
    seed: Annotated[int, typer.Option(help="Seed of the faults and of the memories' first contents.")] = 1,
) -> None:
    """Run a board's top level in simulation and offer its link, until Ctrl-C.

    The same Verilog as in the bitstream, with its PLL and pins modelled: programs talk to it as to the board.
    """
    from rtlstm.boards.ethernet import Ethernet
    from rtlstm.gen.builds.on_board import OnBoard
    from rtlstm.sim.link_port import EthernetPort
    from rtlstm.sim.port_server import PortServer, check_free
    from rtlstm.sim.simulated_board import BoardPort

    asked = BoardOptions(**options)
    # What the board has no pins for is refused before ports are asked for.
    build = OnBoard.asked(folder, asked)
    if asked.ip is not None and udp is None:
        raise ConfigurationError("a board on Ethernet needs --udp PORT, too; 0 takes any free one")
    raw_spi = asked.spi and asked.raw
    if udp is not None and asked.ip is None and not raw_spi:
        raise ConfigurationError(
            "--udp is for a board on Ethernet, which needs --ip ADDRESS, or for raw transfers with --spi "
            "--raw; leave it out for other links"
        )
    if raw_spi and (udp is None or tcp is None):
        raise ConfigurationError(
            "a board with --spi and --raw needs --tcp PORT for frames, which load the weights, and "
            "--udp PORT for raw transfers, a datagram each; 0 takes any free one"
        )
    terminal = pty and asked.ip is None and not asked.spi
    if udp is None and tcp is None and not terminal:
        advice = "give --tcp PORT" if asked.spi else "leave out --no-pty, or give --tcp PORT"
        raise ConfigurationError(f"a board needs a line to its user: {advice}")
    if asked.raw and faults:
        raise ConfigurationError("raw transfers must be simulated without --faults: leave out one of them")
    check_free(tcp, udp)
    _note_bus(console, build)
    if why := build.find_misfit(insist=True):
        console.note(f"only a simulation: {why}")
    with console.progress() as progress:
        native = build.simulate(seed, progress)
    line = build.timing.port
    port: BytePort = BoardPort(native)
    if isinstance(line, Ethernet):
        port = EthernetPort(native, line.ip, line.port, line.host)
    if faults:
        from rtlstm.sim.faults import FaultyPort

        port = FaultyPort(port, faults, seed, longest=_PAUSE)
    span = _NETWORK_SPAN if isinstance(line, Ethernet) else _SPAN
    transfer = native.transfer if raw_spi else None
    with PortServer(
        port, terminal=terminal, tcp=tcp, udp=udp, linger=_LINGER, span=span, transfer=transfer
    ) as server:

        def stopped(*_: Any) -> None:
            server.stop()

        before = {kind: signal.signal(kind, stopped) for kind in (signal.SIGINT, signal.SIGTERM)}
        console.show(
            _SERVED,
            waiting=True,
            board=build.board.name,
            target=_target_fields(build),
            terminal=server.path and str(server.path),
            tcp=server.port,
            udp=None if raw_spi else server.udp_port,
            raw=server.udp_port if raw_spi else None,
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


def _rate(target: Mapping[str, Any]) -> str:
    return f"{target['clock_mhz']:g} MHz, {_line(target)}"


_SERVED = (
    Text(lambda found: f"{found['target']['title']}, simulated: {_rate(found['target'])}"),
    _if_there("terminal", "serial port: serial:{terminal}"),
    _if_there("tcp", "TCP: tcp:localhost:{tcp}"),
    _if_there("udp", "UDP: udp:localhost:{udp}"),
    _if_there("raw", "raw transfers: UDP port {raw} of localhost, a datagram each"),
    Text("Ctrl-C ends it."),
)
