"""``rtlstm simulate``: the RTL against the golden model."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rtlstm.cli.console import CommandSession
from rtlstm.cli.declared import takes_options
from rtlstm.cli.options import BuildArgument, DebugOption, JsonOption, LengthsOption
from rtlstm.cli.wording import next_command
from rtlstm.gen.builds.command_options import SimulateOptions

if TYPE_CHECKING:
    from rtlstm.gen.builds.compare import Comparison

__all__ = ["simulate"]


@takes_options(SimulateOptions)
def simulate(
    folder: BuildArgument,
    *,
    input_file: Annotated[
        Path | None,
        typer.Option("--input", help="Inputs, (T, I) or (T, N, I), .npy or .npz (array x); else random."),
    ] = None,
    lengths: LengthsOption = None,
    options: Mapping[str, Any],
    output: Annotated[Path | None, typer.Option(help="Where to write the RTL's outputs, .npy.")] = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Run a build's RTL in a simulator and compare every word and cycle with what they must be."""
    with CommandSession(as_json, debug) as session:
        from rtlstm.cli.data import check_results, load_array, load_lengths, save_array
        from rtlstm.gen.builds.compare import compare_build
        from rtlstm.spec.manifest import Manifest

        check_results(output)
        manifest = Manifest.load(folder)
        asked = SimulateOptions(**options)
        x = None if input_file is None else load_array(input_file, "the input")
        what = f"random, seed {asked.seed or 0}" if x is None else str(input_file)
        valid = load_lengths(lengths)
        with session.progress() as progress:
            found, y = compare_build(folder, asked, x, valid, progress)
        if output is not None:
            save_array(output, y)
        session.fields = {"name": manifest.name, "input": what, "output": output and str(output)}
        session.fields["weights_read_back"] = asked.verify
        _show(session, manifest.name, found, what)
        session.next = next_command("implement", folder, device=_device(folder))


def _device(folder: Path) -> str:
    """The device that the build's array was chosen for, or a word for the user's."""
    from rtlstm.gen.builds.report import BuildReport
    from rtlstm.spec.errors import BuildError

    try:
        fit = BuildReport.load(folder).fit
    except BuildError:
        return "DEVICE"
    return "DEVICE" if fit is None else fit.estimate.device


def _show(session: CommandSession, name: str, found: "Comparison", what: str) -> None:
    session.passed = found.passed
    speed = round(found.steps_per_second, 1)
    session.fields |= found.model_dump() | {"steps_per_second": speed, "passed": found.passed}
    session.table(
        f"{name} under {found.simulator} against the golden model",
        ("", ""),
        [
            ("input", what),
            ("sequences, steps in all", f"{found.sequences}, {found.steps}"),
            ("output words compared", found.output_words),
            ("output words different", found.output_different),
            ("final h and c words compared", found.state_words),
            ("final h and c words different", found.state_different),
            ("cycles predicted", found.cycles_predicted),
            ("cycles measured", found.cycles_measured),
            ("steps off their predicted cycle", found.cycles_different),
            ("steps per second", f"{speed:,}"),
        ],
        right=" r",
    )
    if found.first_difference:
        session.say(found.first_difference)
    session.say("passed" if found.passed else "FAILED")
