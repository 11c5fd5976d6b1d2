"""``rtlstm run``: sequences through a device or a simulator of one."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

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
    DebugOption,
    JsonOption,
    LengthsOption,
    PadOption,
)
from rtlstm.cli.results import Field, Found, Text, Values, named_parts, part_ends
from rtlstm.spec.layout import sequences_first

if TYPE_CHECKING:
    from rtlstm.spec.manifest import Manifest


def run(
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
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Run sequences on a device, or on a simulated one."""
    with Console(as_json, debug) as console:
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
                **_figures(x, valid, y, first, seconds, frames),
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


def _longest(x: Any, batch_first: bool) -> int:
    return int(x.shape[1 if batch_first and x.ndim == 3 else 0])


def _note_waiting(console: Console, core: int | None, measured: int) -> None:
    """Say why the last step took longer on the device than its core takes."""
    if core is not None and measured != core:
        console.note(
            f"the last step took {measured} cycles on the device, from its last input word to its last "
            f"output word: {core} in the core, and the rest in the input buffer, while it waited for earlier "
            "steps"
        )


def _figures(x: Any, lengths: Any, y: Any, batch_first: bool, seconds: float, frames: int) -> dict[str, Any]:
    """The JSON object of how much was computed, what the outputs are, and how long it took."""
    sequences = 1 if x.ndim == 2 else x.shape[0 if batch_first else 1]
    given = int(lengths.sum()) if lengths is not None else sequences * _longest(x, batch_first)
    steps = given // frames
    return {
        "sequences": sequences,
        "steps": steps,
        "output_shape": list(y.shape),
        "output_minimum": y.min().item() if y.size else None,
        "output_maximum": y.max().item() if y.size else None,
        "seconds": round(seconds, 6),
        "steps_per_second": round(steps / max(seconds, 1e-9), 1),
    }


def _range(found: Found) -> str:
    """Shape of the outputs, their smallest and their largest."""
    ends = (found["output_minimum"], found["output_maximum"])
    least, most = ("none" if end is None else f"{end:.6g}" for end in ends)
    return f"{tuple(found['output_shape'])}, {least} to {most}"


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
        (
            Field("sequences, steps in all", "{sequences}, {steps}"),
            Field("outputs", _range),
            Field("outputs by name", named_parts),
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
        ),
        right=True,
    ),
    Text(_files),
)
