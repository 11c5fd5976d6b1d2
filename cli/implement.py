"""``rtlstm implement``: what a build takes of a device, and how fast it runs there."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rtlstm.cli.commands import next_command
from rtlstm.cli.console import Console
from rtlstm.cli.options import BuildArgument, command
from rtlstm.cli.results import Field, Figure, Found, Table, Text
from rtlstm.gen.builds.command_options import ImplementOptions
from rtlstm.spec.errors import ConfigurationError
from rtlstm.spec.family import GENERIC

if TYPE_CHECKING:
    from rtlstm.fpga.implementation import Implementation, ResourceUse


@command(ImplementOptions)
def implement(
    console: Console,
    folder: BuildArgument,
    options: Mapping[str, Any],
) -> None:
    """Synthesise a build for a device, place and route it, and report size and clock."""
    from rtlstm.fpga.devices import find_device
    from rtlstm.fpga.place_route import note_failed
    from rtlstm.fpga.resources import faster
    from rtlstm.gen.builds.implement import implement as run
    from rtlstm.spec.manifest import Manifest

    asked = ImplementOptions(**options)
    with console.progress() as progress:
        found = run(folder, asked, progress)
    console.passed = found.met is not False
    console.show(
        _IMPLEMENTATION,
        folder=str(folder),
        report=str(folder / "report.html"),
        logs=str(folder / "impl" / found.folder),
        implementation=found.model_dump(mode="json"),
    )
    device, manifest = find_device(found.device).device, Manifest.load(folder)
    family, slow = manifest.parameters.family, ""
    if not console.passed:
        fewer = "fewer `cores`, " * (found.cores > 1)
        slow = "for a faster clock try more `seeds`, a faster `speed_grade`, "
        slow += f"{fewer}or {faster(manifest.spatial)}"
    other = f"the build was generated for {family}: there is no estimate of it on {device.name}"
    if family in (GENERIC, device.family):
        other = ""
    for note in (*note_failed(found.failed_seeds), slow, found.note, device.note, other):
        if note:
            console.note(note)
    if not found.seeds:
        console.note(f"{found.device} is synthesised only: there is no place and route for it here")
    # A board's top holds one core.
    board = _board(folder, found.device) if found.cores == 1 else None
    console.next = board and next_command("bitstream", folder, board=board)


def _board(folder: Path, device: str) -> str | None:
    """A board with this device that the build fits together with its link, if there is one."""
    from rtlstm.boards.catalogue import usable_boards
    from rtlstm.gen.builds.on_board import OnBoard

    for board in usable_boards():
        # Some builds cannot be behind a serial link.
        with suppress(ConfigurationError):
            if board.chosen.device.name == device and not OnBoard.create(folder, board.name).find_misfit():
                return board.name
    return None


def _implementation(found: Found) -> "Implementation":
    from rtlstm.fpga.implementation import Implementation

    return Implementation.model_validate(found["implementation"])


def _routed(found: Found) -> "Implementation | None":
    """The same where it was placed and routed."""
    record = _implementation(found)
    return record if record.seeds else None


def _on_routed(reading: "Callable[[Implementation], str | None]") -> Text:
    """A line about what was placed and routed."""

    def text(found: Found) -> str | None:
        record = _routed(found)
        return None if record is None else reading(record)

    return Text(text)


def _count(value: float | None) -> str | None:
    from rtlstm.fpga.resources import count_text

    return None if value is None else count_text(value)


def _error(percent: float | None) -> str | None:
    return None if percent is None else f"{percent:+g} %" if percent else "0 %"


def _estimated_clock(found: "Implementation") -> str | None:
    if found.estimate is None:
        return None
    return f"Estimated clock: {found.estimate.fmax_mhz:g} MHz ({_error(found.clock_error)})."


def _limit(found: "Implementation") -> str | None:
    if found.block_ram_mhz is None or not found.core.block_rams:
        return None
    return f"The block RAM allows {found.block_ram_mhz:g} MHz at most; clocks above are cut to it."


def _slowest_path(found: "Implementation") -> str | None:
    if found.worst_path is None:
        return None
    text = f"Slowest path (median seed): {found.worst_path.text}."
    through = ", ".join(found.worst_path.through)
    return f"{text}\nIt passes {through}." if through else text


def _verdict(found: "Implementation") -> str | None:
    if found.met is None:
        return None
    if found.met:
        return f"{found.requested_mhz:g} MHz: reached"
    return f"{found.requested_mhz:g} MHz: MISSED, the best seed reaches {found.fmax_best_mhz:g} MHz"


def _stored(found: "Implementation") -> str | None:
    stored = all(seed.stored for seed in found.seeds)
    return "All of it was stored from an earlier run with the same inputs." if stored else None


_SIZES = (
    Field("resource", "{name}"),
    Figure("taken", lambda use: _count(use.used)),
    Figure("there", "{available:,}"),
    Figure("share", "{share:g} %"),
)
_ESTIMATES = (
    Figure("estimated", lambda use: _count(use.estimated)),
    Figure("error", lambda use: _error(use.error)),
)


def _sizes(estimated: bool) -> Table:
    """The table of resources, for implementations with estimates or for those without."""

    def rows(found: Found) -> "Sequence[ResourceUse]":
        record = _implementation(found)
        return record.resources if (record.estimate is not None) == estimated else ()

    columns = (*_SIZES, *_ESTIMATES) if estimated else _SIZES

    def title(found: Found) -> str:
        record = _implementation(found)
        return f"On {record.label}: the core{'s' * (record.cores > 1)} alone"

    return Table(title, rows, *columns)


def _seeds(found: Found) -> list[Found]:
    """What each seed reached, with what people call the seed."""
    names = _implementation(found).seed_names
    seeds = found["implementation"]["seeds"]
    return [seed | {"name": name} for seed, name in zip(seeds, names, strict=True)]


def _medians(found: "Implementation | None") -> list[dict[str, str]]:
    """Clock and latency of the median seed and of the best."""
    if found is None:
        return []
    return [
        {
            "what": "clock",
            "median": f"{found.fmax_median_mhz:.1f} MHz",
            "best": f"{found.fmax_best_mhz:.1f} MHz",
        },
        {
            "what": "step latency",
            "median": f"{found.step_latency_us:.4g} us",
            "best": f"{found.best_step_latency_us:.4g} us",
        },
    ]


_IMPLEMENTATION = (
    _sizes(estimated=True),
    _sizes(estimated=False),
    Table(
        "Place and route, aiming at {implementation[target_mhz]:g} MHz; each seed is another placement",
        _seeds,
        Figure("seed", "{name}"),
        Figure("clock", "{fmax_mhz:.1f} MHz"),
        Figure("seconds", lambda seed: "stored" if seed["stored"] else f"{seed['seconds']:.0f}"),
    ),
    Table(
        "Seeds",
        lambda found: _medians(_routed(found)),
        Field("", "{what}"),
        Figure("median", "{median}"),
        Figure("best", "{best}"),
    ),
    _on_routed(_estimated_clock),
    _on_routed(_limit),
    _on_routed(_slowest_path),
    Table(
        "Slowest paths by family (median seed)",
        lambda found: _implementation(found).path_families,
        Field("from", "{start}"),
        Field("to", "{end}"),
        Figure("slowest", "{delay_ns:.2f} ns"),
        Figure("ends", "{ends:,}"),
    ),
    _on_routed(_verdict),
    _on_routed(_stored),
    Text("report: {report}; logs: {logs}"),
)
