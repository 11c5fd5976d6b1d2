"""``rtlstm explore``: the best builds of a model, over bits, devices and arrays."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from rtlstm.cli.console import Console
from rtlstm.cli.declared import takes_options
from rtlstm.cli.explore_input import Given
from rtlstm.cli.explore_views import COMMAND, FRONT, find_build, front_fields
from rtlstm.cli.options import (
    CALIBRATE,
    CalibrationBatchFirstOption,
    CalibrationLengthsOption,
    CalibrationPadOption,
    DebugOption,
    JsonOption,
    SchedulerOption,
    WorkersOption,
)
from rtlstm.explore.request import SearchOptions, SpaceOptions
from rtlstm.gen.frontends.reading import ReadOptions
from rtlstm.spec.options import option_values

__all__ = ["explore"]

_NUMBERS, _WORK = "Numbers", "How it is worked out"


@takes_options(ReadOptions, SpaceOptions, SearchOptions)
def explore(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model file, as for rtlstm generate.")],
    *,
    calibration: Annotated[Path, CALIBRATE],
    options: Mapping[str, Any],
    calibration_lengths: CalibrationLengthsOption = None,
    batch_first: CalibrationBatchFirstOption = None,
    pad: CalibrationPadOption = "back",
    evaluation: Annotated[
        Path | None,
        typer.Option(
            "--evaluate",
            help="What errors are measured on: an .npz file with inputs x and, if the metric needs them, "
            "labels y and lengths; by default the typical inputs.",
            rich_help_panel=_NUMBERS,
        ),
    ] = None,
    metric: Annotated[
        str,
        typer.Option(
            help="error (rms against float), max-error, agreement (decisions as in float), accuracy or "
            "mean-absolute-error (on labels), or your own module:function of outputs and labels, whose "
            "number is better if it is smaller.",
            rich_help_panel=_NUMBERS,
        ),
    ] = "error",
    folder: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            metavar="DIR",
            help="Folder of the study, which goes on if it is there; by default build/explore/NAME.",
            rich_help_panel=_WORK,
        ),
    ] = None,
    workers: WorkersOption = None,
    scheduler: SchedulerOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Search bits, devices and arrays for the best builds of a model: a Pareto front, and a command for each.

    Exits with 1 if no build that was tried meets the limits, or a simulation differs from what was predicted.
    What was found is kept: the same command goes on where an earlier one ended.
    """
    with Console(as_json, debug) as console:
        from rtlstm.explore.metrics import figures, find_metric, parse_limit
        from rtlstm.explore.search import Plan
        from rtlstm.explore.search import explore as search
        from rtlstm.explore.study import import_optuna
        from rtlstm.tools.work import open_workers

        import_optuna()
        asked = SearchOptions(**option_values(SearchOptions, options))
        asked.check()
        measure = find_metric(metric)
        limits = [parse_limit(text, figures(measure)) for text in asked.limit]
        reading = option_values(ReadOptions, options)
        given = Given(model, calibration, calibration_lengths, batch_first, pad, reading)
        searched = SpaceOptions(**option_values(SpaceOptions, options))
        space, context = given.read(measure, evaluation, searched)
        for text in (*given.notes, *space.notes):
            console.note(text)
        study = Path("build", "explore", context.name) if folder is None else folder
        plan = Plan.asked(asked, space, study, limits)
        with open_workers(workers, scheduler) as running, console.progress() as progress:
            try:
                found = search(context, plan, running, progress)
            except KeyboardInterrupt:
                console.note(f"what was tried is kept in {study}: the same command goes on from there")
                raise
        fields = front_fields(found, study, measure, given.command)
        if found.front:
            following = fields["front"][0]["command"]
            # An earlier front with other limits stays.
            _write_files(study, context.name, measure.short_name, fields, console.told(following))
        elif (study / "explore.html").exists():
            console.note(f"{study / 'explore.html'} stays, the page of an earlier search")
        console.passed = not found.ruled_out and all(
            point.proof is None or point.proof.passed for point in found.front
        )
        if found.front and asked.show is not None:
            console.show(COMMAND, **find_build(fields["front"], asked.show))
            return
        console.show(FRONT, **fields)
        if found.front:
            console.next = following
        elif found.tried == found.too_large + found.impossible:
            console.passed = False
            for why, count in found.refusals.items():
                console.note(f"{count:,} choice{'s' * (count != 1)} cannot be built: {why}")


def _write_files(
    folder: Path, name: str, metric: str, fields: Mapping[str, Any], told: Mapping[str, Any]
) -> None:
    from rtlstm.explore.page import render_page
    from rtlstm.spec.files import write_file

    front = fields["front"]
    title = f"{name}: {len(front)} builds that no other on their device beats"
    write_file(folder / "explore.html", render_page(title, front, metric, fields))
    write_file(folder / "explore.json", json.dumps({**fields, **told}, indent=1) + "\n")
