"""``rtlstm simulate``: the RTL against the golden model."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from rtlstm.cli.console import Console
from rtlstm.cli.declared import takes_options
from rtlstm.cli.options import (
    BatchFirstOption,
    BuildArgument,
    DebugOption,
    JsonOption,
    LengthsOption,
    PadOption,
)
from rtlstm.cli.results import Field, Text, Values, named_parts, part_ends
from rtlstm.cli.wording import next_command
from rtlstm.gen.builds.command_options import SimulateOptions

__all__ = ["simulate"]


@takes_options(SimulateOptions)
def simulate(
    folder: BuildArgument,
    *,
    input_file: Annotated[
        Path | None,
        typer.Option(
            "--input",
            help="Inputs, (T, I), (T, N, I) or (N, T, I), .npy or .npz (array x, or its only one); else "
            "random.",
        ),
    ] = None,
    lengths: LengthsOption = None,
    batch_first: BatchFirstOption = False,
    pad: PadOption = "back",
    options: Mapping[str, Any],
    output: Annotated[Path | None, typer.Option(help="Where to write the RTL's outputs, .npy.")] = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Run a build's RTL in a simulator and compare every word and cycle with what they must be."""
    with Console(as_json, debug) as console:
        from rtlstm.cli.data import build_layout_note, check_results, load_array, load_lengths, save_array
        from rtlstm.gen.builds.compare import compare_build
        from rtlstm.spec.manifest import Manifest

        check_results(output)
        manifest = Manifest.load(folder)
        asked = SimulateOptions(**options)
        x = None if input_file is None else load_array(input_file, "the input")
        if x is not None and (text := build_layout_note(folder, x, batch_first)):
            console.note(text)
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
