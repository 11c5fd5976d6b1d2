"""``rtlstm run``: sequences through a device; ``rtlstm simulate``: the RTL against the golden model."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rtlstm.cli.commands import next_command
from rtlstm.cli.console import Console
from rtlstm.cli.data import (
    check_results,
    load_inputs,
    load_lengths,
    load_state,
    save_array,
    save_state,
)
from rtlstm.cli.options import (
    BatchFirstOption,
    BuildArgument,
    LengthsOption,
    PadOption,
    command,
)
from rtlstm.cli.results import Field, Found, Text, Values, named_parts, part_ends
from rtlstm.gen.builds.command_options import SimulateOptions
from rtlstm.gen.ip import IpPaths
from rtlstm.spec.errors import BuildError, ConfigurationError
from rtlstm.spec.layout import Pad, sequences_first, valid_steps

if TYPE_CHECKING:
    from rtlstm.spec.manifest import Manifest


@command()
def run(
    console: Console,
    folder: BuildArgument,
    input_file: Annotated[
        Path,
        typer.Option(
            "--input",
            help="Inputs, (T, I), (T, N, I) or (N, T, I): .npy, or .npz with an array x.",
        ),
    ],
    backend: Annotated[
        str,
        typer.Option(
            help="What computes: golden, verilator, icarus, serial:PORT, tcp:HOST:PORT,"
            " udp:HOST[:PORT], spi:DEVICE[@MHZ], mmio:PATH, pynq, or one of an installed package."
        ),
    ] = "golden",
    lengths: LengthsOption = None,
    state: Annotated[
        Path | None, typer.Option(help="State to begin with: an .npz file with h and c.")
    ] = None,
    batch_first: BatchFirstOption = None,
    pad: PadOption = "back",
    output: Annotated[Path | None, typer.Option(help="Write the outputs to this .npy file.")] = None,
    state_output: Annotated[
        Path | None, typer.Option(help="Write the final state to this .npz file, with h and c.")
    ] = None,
) -> None:
    """Run sequences on a device, or on a simulated one."""
    from rtlstm.host import Accelerator

    check_results(output, state_output)
    x, valid = load_inputs(input_file, "the input"), load_lengths(lengths)
    begin = None if state is None else load_state(state)
    with (
        console.progress() as progress,
        Accelerator.open(folder, backend, progress=progress) as accelerator,
    ):
        manifest, counts = accelerator.manifest, begin if valid is None else valid
        x = accelerator.tables.look_up(x, valid, batch_first, pad)
        first = sequences_first("the input", x, batch_first, manifest.batch_first, counts)
        before = accelerator.cell_saturations
        started = time.perf_counter()
        y, final = accelerator.run(x, valid, begin, first, pad=pad)
        seconds = time.perf_counter() - started
        frames = manifest.frames if x.shape[-1] * manifest.frames == accelerator.inputs else 1
        core = _core_latency(manifest, x, valid, first, frames)
        measured = accelerator.measured_latency_cycles
        console.show(
            name=accelerator.manifest.name,
            output_parts=part_ends(manifest),
            backend=backend,
            simulated=accelerator.device.transport.simulated,
            core_latency_cycles=core,
            measured_latency_cycles=measured,
            input_saturations=accelerator.saturated_inputs,
            output_saturations=accelerator.saturated_outputs,
            # The device counts from its reset on, and this may not be its first run.
            cell_saturations=(accelerator.cell_saturations - before) % (1 << 32),
            numbers=_last_numbers(manifest, x, valid, y, first, pad, frames),
            scored=manifest.parameters.best > 0,
            **_figures(x, valid, y, first, seconds, frames, pad),
        )
    if output is not None:
        save_array(output, y)
    if state_output is not None:
        save_state(state_output, final)
    console.show(
        _RUN,
        output=output and str(output),
        state_output=state_output and str(state_output),
    )
    _note_waiting(console, core, measured)


def _core_latency(manifest: "Manifest", x: Any, lengths: Any, batch_first: bool, frames: int) -> int | None:
    """Cycles of the last step if it need not wait for others; None where whole sequences are timed."""
    if manifest.sequence is not None:
        return None
    longest = _longest(x, batch_first) if lengths is None else int(lengths.max())
    cycles = manifest.cycles
    return cycles.first_step_latency_cycles if longest == frames else cycles.step_latency_cycles


def _last_numbers(
    manifest: "Manifest", x: Any, lengths: Any, y: Any, batch_first: bool, pad: Pad, frames: int
) -> list[int] | None:
    """Numbers of the largest outputs in the first sequence's last step, if the device gives them."""
    if not (manifest.gives_number or manifest.parameters.best):
        return None
    y = y if y.dtype.names is None else y["number"]
    one = y if x.ndim == 2 else y[0] if batch_first else y[:, 0]
    at = -1 if lengths is None or pad == "front" else int(lengths[0]) // frames - 1
    return [int(each) for each in one[at].ravel()] if len(one) else []


def _longest(x: Any, batch_first: bool) -> int:
    return int(x.shape[1 if batch_first and x.ndim == 3 else 0])


def _note_waiting(console: Console, core: int | None, measured: int) -> None:
    """Say why the last step took longer on the device than its core takes."""
    # Without a step there was none to wait for.
    if core is not None and measured not in (0, core):
        console.note(
            f"the last step took {measured} cycles on the device, from its last input word to its last "
            f"output word: {core} in the core, and the rest in the input buffer, while it waited for earlier "
            "steps"
        )


def _figures(
    x: Any, lengths: Any, y: Any, batch_first: bool, seconds: float, frames: int, pad: Pad
) -> dict[str, Any]:
    """The JSON object of how much was computed, what the outputs are, and how long it took."""
    sequences = 1 if x.ndim == 2 else x.shape[0 if batch_first else 1]
    given = int(lengths.sum()) if lengths is not None else sequences * _longest(x, batch_first)
    steps = given // frames
    some = y = y if y.dtype.names is None else y["score"]
    if lengths is not None:
        # Padding is no output: its zeros are not the least one.
        whole = y[:, None] if x.ndim == 2 else y.swapaxes(0, 1) if batch_first else y
        some = whole[valid_steps(len(whole), lengths // frames, pad == "front")]
    return {
        "sequences": sequences,
        "steps": steps,
        "output_shape": list(y.shape),
        "output_minimum": some.min().item() if some.size else None,
        "output_maximum": some.max().item() if some.size else None,
        "seconds": round(seconds, 6),
        "steps_per_second": round(steps / max(seconds, 1e-9), 1),
    }


def _range(found: Found) -> str:
    """Shape of the outputs, their smallest and their largest."""
    ends = (found["output_minimum"], found["output_maximum"])
    least, most = ("none" if end is None else f"{end:.6g}" for end in ends)
    return f"{tuple(found['output_shape'])}, {'scores ' * found['scored']}{least} to {most}"


def _numbers(found: Found) -> str | None:
    """None where the device gives outputs."""
    return ", ".join(map(str, found["numbers"])) if found["numbers"] else None


def _core_cycles(found: Found) -> str | None:
    cycles = found["core_latency_cycles"]
    return None if cycles is None else f"{cycles:,} cycles"


def _speed(found: Found, simulated: bool) -> str | None:
    """Steps per second, of a simulated device alone or of any other alone."""
    return f"{found['steps_per_second']:,}" if found["simulated"] == simulated else None


def _files(found: Found) -> str:
    written = [found[name] for name in ("output", "state_output") if found[name] is not None]
    return f"written: {', '.join(written)}" if written else "nothing written: no --output given"


_RUN = (
    Values(
        "{name} on {backend}",
        Field("sequences, steps in all", "{sequences}, {steps}"),
        Field("outputs", _range),
        Field("outputs by name", named_parts),
        Field("largest in the first sequence's last step", _numbers),
        Field("latency of a step in the core", _core_cycles),
        Field("latency of the last step, input buffer included", "{measured_latency_cycles:,} cycles"),
        Field("inputs saturated", "{input_saturations:,}"),
        Field("cell states saturated", "{cell_saturations:,}"),
        Field("outputs at their limit", "{output_saturations:,}"),
        Field("steps per second on this computer", lambda found: _speed(found, simulated=True)),
        Field(
            "steps per second of the device with its connection",
            lambda found: _speed(found, simulated=False),
        ),
        right=True,
    ),
    Text(_files),
)


@command(SimulateOptions)
def simulate(
    console: Console,
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
) -> None:
    """Simulate a build's Verilog and compare every word and cycle with the golden model and the schedule."""
    from rtlstm.gen.builds.compare import compare_build
    from rtlstm.spec.manifest import Manifest

    check_results(output)
    manifest = Manifest.load(folder)
    asked = SimulateOptions(**options)
    if cocotb:
        chosen = {"input": input_file, "lengths": lengths, "output": output, "batch_first": batch_first}
        chosen["pad"] = pad if pad != "back" else None
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
        right=True,
    ),
    Text(lambda found: found["first_difference"] or None),
    Text(lambda found: "passed" if found["passed"] else "FAILED"),
)

_COCOTB = (
    Values(
        "{name} under {simulator}: cocotb tests",
        Field("tests", lambda found: len(found["tests"])),
        Field("failed", lambda found: sum(bool(each["failure"]) for each in found["tests"])),
        Field("seconds", "{seconds}"),
        right=True,
    ),
    Text(
        lambda found: "\n".join(f"{each['name']}: {each['failure'] or 'passed'}" for each in found["tests"])
    ),
    Text(lambda found: "passed" if found["passed"] else "FAILED"),
)
