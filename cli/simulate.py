"""``rtlstm simulate``: the RTL against the golden model."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rtlstm.cli.commands import next_command
from rtlstm.cli.console import Console
from rtlstm.cli.data import check_results, load_inputs, load_lengths, save_array
from rtlstm.cli.options import (
    BatchFirstOption,
    BuildArgument,
    DebugOption,
    JsonOption,
    LengthsOption,
    PadOption,
    takes_options,
)
from rtlstm.cli.results import Field, Text, Values, named_parts, part_ends
from rtlstm.gen.builds.command_options import SimulateOptions
from rtlstm.gen.ip import IpPaths
from rtlstm.spec.errors import BuildError, ConfigurationError

if TYPE_CHECKING:
    from rtlstm.spec.manifest import Manifest


@takes_options(SimulateOptions)
def simulate(
    folder: BuildArgument,
    *,
    input_file: Annotated[
        Path | None,
        typer.Option(
            "--input",
            help="Inputs, (T, I), (T, N, I) or (N, T, I): .npy, or .npz with an array x. Default: random.",
        ),
    ] = None,
    lengths: LengthsOption = None,
    batch_first: BatchFirstOption = None,
    pad: PadOption = "back",
    options: Mapping[str, Any],
    output: Annotated[Path | None, typer.Option(help="Write the outputs to this .npy file.")] = None,
    cocotb: Annotated[
        bool,
        typer.Option(
            "--cocotb",
            help="Run the build's cocotb test, ip/test_NAME.py, with --simulator and --seed alone.",
        ),
    ] = False,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Simulate a build's Verilog and compare every word and cycle with the golden model and the schedule."""
    with Console(as_json, debug) as console:
        from rtlstm.gen.builds.compare import compare_build
        from rtlstm.spec.manifest import Manifest

        check_results(output)
        manifest = Manifest.load(folder)
        asked = SimulateOptions(**options)
        if cocotb:
            chosen = {"input": input_file, "lengths": lengths, "output": output, "batch_first": batch_first}
            _run_cocotb(console, folder, manifest, asked, chosen)
            return
        x = None if input_file is None else load_inputs(input_file, "the input")
        what = f"random, seed {asked.seed or 0}" if x is None else str(input_file)
        valid = load_lengths(lengths)
        with console.progress() as progress:
            found, y = compare_build(folder, asked, x, valid, batch_first, progress, pad)
        if output is not None:
            save_array(output, y)
        console.passed = found.passed
        console.show(
            _COMPARISON,
            name=manifest.name,
            output_parts=part_ends(manifest),
            input=what,
            output=output and str(output),
            weights_read_back=asked.verify,
            **found.model_dump(),
            steps_per_second=round(found.steps_per_second, 1),
            passed=found.passed,
        )
        console.next = _following(folder)


def _run_cocotb(
    console: Console, folder: Path, manifest: "Manifest", asked: SimulateOptions, others: Mapping[str, object]
) -> None:
    """Run the build's cocotb test and show what became of it."""
    from tempfile import TemporaryDirectory

    from rtlstm.sim.cocotb_run import build_design, run_tests

    plain = SimulateOptions(simulator=asked.simulator, seed=asked.seed)
    given = [name for name, value in others.items() if value not in (None, False)]
    given += [name for name in ("steps", "wave", "verify") if getattr(asked, name) != getattr(plain, name)]
    if given:
        raise ConfigurationError(
            f"`cocotb` runs a test that has its own inputs: leave out `{given[0]}`, or `cocotb`"
        )
    module = folder / IpPaths(manifest.name).cocotb_test
    if not module.is_file():
        raise BuildError(
            f"{module} must be the build's cocotb test, but is missing; generate the build again"
        )
    with console.progress() as progress, TemporaryDirectory(prefix="rtlstm-") as work:
        run = run_tests(
            module,
            folder,
            build_design(folder),
            asked.chosen_simulator,
            Path(work),
            seed=asked.seed or 1,
            progress=progress,
        )
    console.passed = run.passed
    console.show(
        _COCOTB,
        name=manifest.name,
        simulator=run.simulator,
        tests=[{"name": each.name, "failure": each.failure} for each in run.outcomes],
        seconds=round(run.seconds, 3),
        passed=run.passed,
    )
    console.next = _following(folder)


def _following(folder: Path) -> str:
    """A bitstream for the board that the build's array was chosen for, or place and route for its device."""
    from rtlstm.gen.builds.report import find_fit

    fit = find_fit(folder)
    if fit is not None and fit.estimate.board:
        return next_command("bitstream", folder, board=fit.estimate.board)
    return next_command("implement", folder, device="DEVICE" if fit is None else fit.estimate.device)


_COMPARISON = (
    Values(
        "{name} under {simulator} against the golden model",
        (
            Field("input", "{input}"),
            Field("sequences, steps in all", "{sequences}, {steps}"),
            Field("outputs by name", named_parts),
            Field("output words compared", "{output_words:,}"),
            Field("output words different", "{output_different:,}"),
            Field("final h and c words compared", "{state_words:,}"),
            Field("final h and c words different", "{state_different:,}"),
            Field("cycles predicted", "{cycles_predicted:,}"),
            Field("cycles measured", "{cycles_measured:,}"),
            Field("steps off their predicted cycle", "{cycles_different:,}"),
            Field("steps per second on this computer", "{steps_per_second:,}"),
        ),
        right=True,
    ),
    Text(lambda found: found["first_difference"] or None),
    Text(lambda found: "passed" if found["passed"] else "FAILED"),
)

_COCOTB = (
    Values(
        "{name} under {simulator}: cocotb tests",
        (
            Field("tests", lambda found: len(found["tests"])),
            Field("failed", lambda found: sum(bool(each["failure"]) for each in found["tests"])),
            Field("seconds", "{seconds}"),
        ),
        right=True,
    ),
    Text(
        lambda found: "\n".join(f"{each['name']}: {each['failure'] or 'passed'}" for each in found["tests"])
    ),
    Text(lambda found: "passed" if found["passed"] else "FAILED"),
)
