"""``rtlstm bitstream`` and ``rtlstm program``: a build on a real board."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rtlstm.cli.console import CommandSession
from rtlstm.cli.declared import takes_options
from rtlstm.cli.options import BuildArgument, DebugOption, JsonOption
from rtlstm.cli.wording import next_command
from rtlstm.gen.builds.command_options import BitstreamOptions, BoardOptions

if TYPE_CHECKING:
    from rtlstm.boards.bitstream import Bitstream
    from rtlstm.boards.zynq import ZynqBoard
    from rtlstm.gen.builds.on_board import OnBoard

__all__ = ["bitstream", "note_bus", "program"]

_SHOWN = 8
"""Resources in the table, those most used."""


@takes_options(BoardOptions, BitstreamOptions)
def bitstream(
    folder: BuildArgument,
    options: Mapping[str, Any],
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Make a bitstream for a board: the core behind its serial line, with clock, reset and LEDs.

    For a Zynq board it writes what Vivado makes the bitstream of. Exits with 1 if the clock is not met.
    """
    with CommandSession(as_json, debug) as session:
        from rtlstm.boards.catalogue import find_any_board
        from rtlstm.boards.zynq import ZynqBoard
        from rtlstm.gen.builds.on_board import OnBoard

        asked = BitstreamOptions(**options)
        target = find_any_board(asked.board)
        if isinstance(target, ZynqBoard):
            asked.check_vivado()
            _write_for_vivado(session, folder, target, asked.clock_mhz)
            return
        build = OnBoard.create(folder, asked.board, asked.clock_mhz, asked.baud)
        if not session.as_json:
            _say_uart(session, build)
        note_bus(session, build)
        with session.progress() as progress:
            found = build.make_bitstream(asked.seed, progress, insist=asked.insist)
        session.fields = {
            "folder": str(folder),
            "file": str(build.output_folder / found.file),
            "bitstream": found.model_dump(mode="json"),
        }
        session.passed = found.met
        _show(session, build, found)
        session.next = next_command("program", folder, board=build.board.name)


def _write_for_vivado(session: CommandSession, folder: Path, board: "ZynqBoard", clock: float | None) -> None:
    """Write a Zynq board's folder and say what to do with it."""
    from rtlstm.gen.builds.on_zynq import OnZynq

    build = OnZynq.create(folder, board, clock)
    project = build.write()
    run = f"rtlstm run {folder} --backend mmio:/dev/uio0 --input x.npy --output y.npy"
    session.fields = {
        "folder": str(folder),
        "output_folder": str(build.output_folder),
        "vivado": project.model_dump(mode="json"),
        "make": build.command,
        "run": run,
    }
    asked = "" if project.clock_mhz == project.requested_mhz else f", the nearest below {clock:g}"
    session.say(f"{board.title} ({board.part}): {project.clock_mhz:g} MHz from the processor{asked}")
    session.say(f"registers: 0x{project.base_address:08X}, interrupt IRQ_F2P[0]")
    session.say(f"written: {build.output_folder}/ with {', '.join(project.files)}")
    session.say(f"Vivado makes the bitstream: {build.command}")
    session.next = build.command
    session.say(f"then on the board, with its bitstream and uio.dtsi loaded (docs/boards.md): {run}")
    session.note(f"whether it fits: rtlstm implement {folder} --device {board.device} (synthesis only)")
    session.note("no bitstream yet: no open tool makes one for this device; Vivado does, and checks timing")


def note_bus(session: CommandSession, build: "OnBoard") -> None:
    """Say that a build's wrapper is not on the board."""
    bus = build.manifest.parameters.bus
    if bus != "none":
        session.note(f"the serial line is wired to the core itself: the build's {bus} wrapper is left out")


def _say_uart(session: CommandSession, build: "OnBoard") -> None:
    uart, asked = build.uart, build.requested_mhz
    given = f"{uart.clock_mhz:g} MHz" + (
        f", the PLL's nearest below {asked:g}" if uart.clock_mhz != asked else ""
    )
    off = f" ({uart.baud_error:+g} %)" if uart.baud_error else ""
    session.say(f"{build.board.title}: {given}; {uart.baud:,} baud{off}")


def _show(session: CommandSession, build: "OnBoard", found: "Bitstream") -> None:
    from rtlstm.gen.builds.on_board import slower_clock

    session.table(
        f"The whole design on {build.board.chosen.label}",
        ("resource", "taken", "there", "share"),
        [(use.name, use.used, use.available, f"{use.share:g} %") for use in found.uses[:_SHOWN]],
        right=" rrr",
    )
    session.say(f"clock: {found.clock_mhz:g} MHz; {found.fmax_mhz:g} MHz would be possible")
    session.say(f"slowest path: {found.worst_path}")
    seconds = "stored" if found.stored else f"{found.synthesis_seconds + found.route_seconds:.0f} s"
    session.say(f"bitstream ({seconds}): {build.output_folder / found.file}")
    if build.board.note:
        session.note(build.board.note)
    if not found.met:
        clock = slower_clock(found, build.board)
        advice = (
            "generate the build with fewer --lanes or --macs" if clock is None else f"use --clock {clock}"
        )
        session.note(
            f"timing is not met: {found.clock_mhz:g} MHz was asked for and seed {found.seed} reaches "
            f"{found.fmax_mhz:g} MHz; {advice}, or try another --seed"
        )


def program(
    folder: BuildArgument,
    board: Annotated[
        str | None, typer.Option(metavar="BOARD", help="By default the one that there is a bitstream for.")
    ] = None,
    flash: Annotated[
        bool, typer.Option("--flash", help="Write it to the board's flash memory, so that it stays.")
    ] = False,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Configure a board with its bitstream, with openFPGALoader."""
    with CommandSession(as_json, debug) as session:
        from rtlstm.boards.loader import load_board
        from rtlstm.gen.builds.on_board import load_bitstream
        from rtlstm.spec.errors import BuildError

        found, target, file = load_bitstream(folder, board)
        if not found.met:
            raise BuildError(
                f"the bitstream for {target.name} must meet its clock, but reaches {found.fmax_mhz:g} of "
                f"{found.clock_mhz:g} MHz; make another with a lower --clock"
            )
        session.fields = {"folder": str(folder), "board": target.name, "file": str(file)}
        load_board(target, file, flash)
        session.say(f"{target.title} holds {file}")
        session.next = next_command("run", folder, backend=f"serial:PORT@{found.baud}", input="x.npy")
        if target.note:
            session.note(target.note)
