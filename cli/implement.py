"""``rtlstm implement``: what a build takes of a device, and how fast it runs there."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rtlstm.cli.console import CommandSession
from rtlstm.cli.declared import takes_options
from rtlstm.cli.options import BuildArgument, DebugOption, JsonOption
from rtlstm.cli.wording import next_command
from rtlstm.gen.builds.command_options import ImplementOptions

if TYPE_CHECKING:
    from rtlstm.fpga.implementation import Implementation

__all__ = ["implement"]


@takes_options(ImplementOptions)
def implement(
    folder: BuildArgument,
    options: Mapping[str, Any],
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Synthesise a build for a device, place and route it, and report size and clock."""
    with CommandSession(as_json, debug) as session:
        from rtlstm.fpga.families.device import device_label
        from rtlstm.gen.builds.implement import implement as run

        asked = ImplementOptions(**options)
        with session.progress() as progress:
            found = run(folder, asked, progress)
        logs = folder / "impl" / device_label(found.device, found.speed_grade)
        session.fields = {
            "folder": str(folder),
            "logs": str(logs),
            "implementation": found.model_dump(mode="json"),
        }
        session.passed = found.met is not False
        _show(session, found)
        board = _board(found.device)
        session.next = board and next_command("bitstream", folder, board=board)
        session.say(f"report: {folder / 'report.html'}; logs: {logs}")


def _board(device: str) -> str | None:
    """A board with this device, if a bitstream can be made for one."""
    from rtlstm.boards.catalogue import BOARDS, find_board

    return next((name for name in BOARDS if find_board(name).chosen.device.name == device), None)


def _count(value: float | None) -> str:
    return "" if value is None else f"{value:,.6g}"


def _error(percent: float | None) -> str:
    return "" if percent is None else f"{percent:+g} %" if percent else "0 %"


def _show(session: CommandSession, found: "Implementation") -> None:
    stored = all(seed.stored for seed in found.seeds) and bool(found.seeds)
    session.table(
        f"On {found.label}: the core alone",
        ("resource", "taken", "there", "share", *(("estimated", "error") if found.estimate else ())),
        [
            (
                use.name,
                f"{use.used:,.6g}",
                use.available,
                f"{use.share:g} %",
                *((_count(use.estimated), _error(use.error)) if found.estimate else ()),
            )
            for use in found.resources
        ],
        right=" rrrrr",
    )
    if found.note:
        session.note(found.note)
    if not found.seeds:
        session.note(f"{found.device} is synthesised only: there is no place and route for it here")
        return
    session.table(
        f"Place and route, aiming at {found.target_mhz:g} MHz",
        ("seed", "clock", "seconds"),
        [
            (seed.seed, f"{seed.fmax_mhz:.1f} MHz", "stored" if seed.stored else f"{seed.seconds:.0f}")
            for seed in found.seeds
        ],
        right="rrr",
    )
    ram_limits = found.block_ram_mhz is not None and found.core.block_rams > 0
    rows = [
        ("clock", f"{found.fmax_median_mhz:.1f} MHz", f"{found.fmax_best_mhz:.1f} MHz"),
        ("step latency", f"{found.step_latency_us:.4g} us", f"{found.best_step_latency_us:.4g} us"),
    ]
    session.table("Seeds", ("", "median", "best"), rows, right=" rr")
    if found.estimate is not None:
        session.say(f"Estimated clock: {found.estimate.fmax_mhz:g} MHz ({_error(found.clock_error)}).")
    if ram_limits:
        session.say(f"The block RAM allows {found.block_ram_mhz:g} MHz at most; clocks above are cut to it.")
    if found.worst_path is not None:
        session.say(f"Slowest path (median seed): {found.worst_path.text}.")
        if found.worst_path.through:
            session.say(f"It passes {', '.join(found.worst_path.through)}.")
    if found.met is not None:
        session.say(f"{found.requested_mhz:g} MHz: {'reached' if found.met else 'MISSED'}")
    if stored:
        session.say("All of it was stored from an earlier run with the same inputs.")
