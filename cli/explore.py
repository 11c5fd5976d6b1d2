"""``rtlstm explore``: the best builds of a model, over bits, devices and arrays."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from rtlstm.cli.console import Console
from rtlstm.cli.declared import takes_options
from rtlstm.cli.explore_input import Given
from rtlstm.cli.explore_views import FRONT, front_fields
from rtlstm.cli.options import DebugOption, JsonOption
from rtlstm.gen.frontends.reading import ReadOptions

__all__ = ["explore"]

_SPACE, _RESULT, _WORK = "What is searched", "What is wanted", "How it is worked out"


@takes_options(ReadOptions)
def explore(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model file, as for rtlstm generate.")],
    *,
    calibration: Annotated[
        Path,
        typer.Option(
            "--calibrate",
            help="Typical inputs, (T, I) or (T, N, I): an .npy file, or an .npz file with an array x.",
        ),
    ],
    options: Mapping[str, Any],
    calibration_lengths: Annotated[
        str | None,
        typer.Option(
            "--calibrate-lengths",
            help="Valid steps of each sequence of the typical inputs: numbers with commas between them, or "
            "an .npy file; all by default.",
        ),
    ] = None,
    batch_first: Annotated[
        bool,
        typer.Option(
            "--batch-first", help="Typical inputs and evaluation data have the batch first, (N, T, I)."
        ),
    ] = False,
    evaluation: Annotated[
        Path | None,
        typer.Option(
            "--evaluate",
            help="What errors are measured on: an .npz file with inputs x and, if the metric needs them, "
            "labels y and lengths; by default the typical inputs.",
        ),
    ] = None,
    metric: Annotated[
        str,
        typer.Option(
            help="error (rms against float), max-error, agreement (decisions as in float), accuracy or "
            "mean-absolute-error (on labels), or your own module:function of outputs and labels, whose "
            "number is better if it is smaller."
        ),
    ] = "error",
    folder: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            metavar="DIR",
            help="Folder of the study, which goes on if it is there; by default build/explore/NAME.",
        ),
    ] = None,
    devices: Annotated[
        str,
        typer.Option(
            help="Devices with commas between them, as rtlstm devices lists them.", rich_help_panel=_SPACE
        ),
    ] = "up5k,lfe5u-25f,lfe5u-45f,lfe5u-85f",
    weight_bits: Annotated[
        str,
        typer.Option(
            metavar="BITS", help="Such as 8, 4,8,16 or 4:16, both included.", rich_help_panel=_SPACE
        ),
    ] = "4:16",
    data_bits: Annotated[
        str, typer.Option(metavar="BITS", help="Of inputs, h and dense results.", rich_help_panel=_SPACE)
    ] = "6:16",
    gate_bits: Annotated[
        str, typer.Option(metavar="BITS", help="Of sigmoid and tanh.", rich_help_panel=_SPACE)
    ] = "8,12,16",
    cell_bits: Annotated[
        str, typer.Option(metavar="BITS", help="Of the cell state.", rich_help_panel=_SPACE)
    ] = "12,16",
    tables: Annotated[
        str,
        typer.Option(help="Kinds of tables: interpolated, direct, or both.", rich_help_panel=_SPACE),
    ] = "interpolated,direct",
    lanes: Annotated[
        str | None,
        typer.Option(
            metavar="NUMBERS",
            help="Such as 4,8,16; by default all that differ in cycles, and without --macs what --fit takes.",
            rich_help_panel=_SPACE,
        ),
    ] = None,
    macs: Annotated[
        str | None,
        typer.Option(
            metavar="NUMBERS",
            help="Multipliers per lane; by default all that differ in cycles.",
            rich_help_panel=_SPACE,
        ),
    ] = None,
    goal: Annotated[
        Literal["latency", "area", "accuracy"],
        typer.Option(help="What the front is sorted by, the best first.", rich_help_panel=_RESULT),
    ] = "latency",
    limit: Annotated[
        list[str] | None,
        typer.Option(
            metavar="LIMIT",
            help="Such as latency<=2us, error<=0.01, luts<=5000, share<=80%, clock>=50MHz or accuracy>=0.9. "
            "May be repeated.",
            rich_help_panel=_RESULT,
        ),
    ] = None,
    simulate: Annotated[
        int,
        typer.Option(
            min=0,
            help="How many of the front's points are generated and simulated, the best first.",
            rich_help_panel=_RESULT,
        ),
    ] = 0,
    route: Annotated[
        int,
        typer.Option(
            min=0,
            help="How many of the front's points are also placed and routed, the best first.",
            rich_help_panel=_RESULT,
        ),
    ] = 0,
    simulator: Annotated[
        Literal["verilator", "icarus"] | None,
        typer.Option(
            help="What runs the Verilog of --simulate and --route; verilator by default.",
            rich_help_panel=_RESULT,
        ),
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=99,
            help="Times to place and route each of --route; the median counts. Once by default.",
            rich_help_panel=_RESULT,
        ),
    ] = None,
    choices: Annotated[
        int,
        typer.Option(
            min=1,
            help="How many choices of bits, device and array to try, those of earlier calls included.",
            rich_help_panel=_WORK,
        ),
    ] = 512,
    seed: Annotated[
        int, typer.Option(min=0, help="Of the search: the same one tries the same.", rich_help_panel=_WORK)
    ] = 0,
    workers: Annotated[
        int | None,
        typer.Option(
            min=1, help="Processes of this machine; by default as many as processors.", rich_help_panel=_WORK
        ),
    ] = None,
    scheduler: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="A running Dask scheduler, such as tcp://host:8786, whose workers are used instead.",
            rich_help_panel=_WORK,
        ),
    ] = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Search bits, devices and arrays for the best builds of a model: a Pareto front, and a command for each.

    Exits with 1 if no build that was tried meets the limits, or a simulation differs from what was predicted.
    What was found is kept: the same command goes on where an earlier one ended.
    """
    with Console(as_json, debug) as console:
        from rtlstm.explore.limits import figures, parse_limit
        from rtlstm.explore.metrics import find_metric
        from rtlstm.explore.search import Plan
        from rtlstm.explore.search import explore as search
        from rtlstm.explore.study import import_optuna
        from rtlstm.spec.errors import ConfigurationError
        from rtlstm.tools.work import open_workers

        import_optuna()
        if workers is not None and scheduler is not None:
            raise ConfigurationError(
                "--workers are processes of this machine, and --scheduler has its own; give one of them"
            )
        if seeds is not None and not route:
            raise ConfigurationError("--seeds needs --route: give both, or leave out --seeds")
        if simulator is not None and not (simulate or route):
            raise ConfigurationError(
                "--simulator needs --simulate or --route: give one of them, or leave out --simulator"
            )
        measure = find_metric(metric)
        limits = [parse_limit(text, figures(measure)) for text in limit or []]
        values = _values(
            weight_bits=weight_bits,
            data_bits=data_bits,
            gate_bits=gate_bits,
            cell_bits=cell_bits,
            lanes=lanes,
            macs=macs,
        )
        given = Given(model, calibration, calibration_lengths, batch_first, options)
        space, context = given.read(measure, evaluation, device=devices, tables=tables, **values)
        plan = Plan(
            space=space,
            folder=Path("build", "explore", context.name) if folder is None else folder,
            choices=choices,
            seed=seed,
            goal=goal,
            limits=limits,
            simulate=simulate,
            route=route,
            simulator=simulator or "verilator",
            seeds=seeds or 1,
        )
        with (
            open_workers(workers or _processors(), scheduler) as running,
            console.progress() as progress,
        ):
            try:
                found = search(context, plan, running, progress)
            except KeyboardInterrupt:
                console.note(f"what was tried is kept in {plan.folder}: the same command goes on from there")
                raise
        fields = front_fields(found, plan.folder, measure, given.command)
        _write_files(plan.folder, context.name, measure.short_name, fields)
        console.passed = not found.ruled_out and all(
            point.proof is None or point.proof.passed for point in found.front
        )
        console.show(FRONT, **fields)
        if found.front:
            console.next = fields["front"][0]["command"]
        elif found.tried == found.too_large + found.impossible:
            console.passed = False
            for why, count in found.refusals.items():
                console.note(f"{count:,} choices cannot be built: {why}")


def _values(**texts: str | None) -> dict[str, tuple[int, ...] | None]:
    """Read the numbers that options give; None for those that were not given."""
    from rtlstm.explore.space import parse_numbers

    return {name: None if text is None else parse_numbers(name, text) for name, text in texts.items()}


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _write_files(folder: Path, name: str, metric: str, fields: Mapping[str, Any]) -> None:
    from rtlstm.explore.page import render_page
    from rtlstm.spec.files import write_file

    front = fields["front"]
    title = f"{name}: {len(front)} builds that no other on their device beats"
    write_file(folder / "explore.html", render_page(title, front, metric))
    write_file(folder / "explore.json", json.dumps(fields, indent=1) + "\n")
