"""silero's convolutions on the core, too: what that costs in hardware, and what it saves the host.

    python examples/silero_vad/convolutions.py

The demo leaves the four convolutions in front of the LSTM to the host. They work over the 4 frames of a
short Fourier transform inside one step of 32 ms, so they are dense layers with zeros, and ReLU. Told to
begin at the magnitudes, the reader of ONNX files takes them, too. The core then reads 4 x 129 magnitudes.
The script compares the float network and the golden model, with 8-bit weights, with onnxruntime. It prints
weights, exact cycles, and the host's time for the convolutions. It exits with 1 if float probabilities
differ by more than 1e-4, or more than 1 % of the golden model's decisions.
"""

import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from rtlstm.fpga.estimate import estimate_devices
from rtlstm.gen.frontends import ReadOptions, read_model
from rtlstm.gen.quantise.quantiser import QuantizationSettings, quantise
from rtlstm.sim.golden import Golden
from rtlstm.sim.reference import run_float
from rtlstm.spec.frames import join_frames
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.network import Dense, Network
from rtlstm.spec.packing import find_kept
from rtlstm.spec.parameters import Parameters
from rtlstm.zoo.silero import (
    STEPS_PER_SECOND,
    SileroFiles,
    chunk_audio,
    fetch_silero,
    open_session,
    read_speech,
    run_float_model,
)

FRAMES, BINS, CALIBRATION_SECONDS = 4, 129, 20
MAGNITUDES, FEATURES = "/stft/Sqrt_output_0", "/Relu_3_output_0"
"""Tensors of silero's file: what the convolutions read, and what the last of them gives behind its ReLU."""
PARAMETERS = Parameters.for_family("ecp5", lanes=16, macs=9, factor_bits=8)


def memory(manifest: Manifest) -> str:
    """The weights that are stored, 8 bits each."""
    return f"{manifest.program.weight_rows * PARAMETERS.lanes * PARAMETERS.macs / 1024:,.0f} KiB"


def read_all(path: Path) -> Network:
    """The network from the magnitudes on: four convolutions, LSTM and head."""
    return read_model(path, ReadOptions(begin=MAGNITUDES)).network


def magnitudes(model: onnx.ModelProto, chunks: NDArray[np.float32]) -> tuple[Any, Any]:
    """What the convolutions read, ``(steps, 129, 4)``, and a session that computes them as the host does."""
    whole = onnx.ModelProto()
    whole.CopyFrom(model)
    tensor = onnx.helper.make_tensor_value_info(MAGNITUDES, onnx.TensorProto.FLOAT, None)
    whole.graph.output.append(tensor)
    zero = np.zeros((1, 1, 128), dtype=np.float32)
    (found,) = open_session(whole).run([MAGNITUDES], {"input": chunks, "h": zero, "c": zero})
    encoder = [node for node in model.graph.node if any("encoder." in name for name in node.input)]
    ends = {name for node in encoder for name in node.output}
    encoder += [node for node in model.graph.node if node.op_type == "Relu" and node.input[0] in ends]
    ordered = [node for node in model.graph.node if node in encoder]
    real = onnx.TensorProto.FLOAT
    graph = onnx.helper.make_graph(
        ordered,
        "convolutions",
        [onnx.helper.make_tensor_value_info(MAGNITUDES, real, [1, BINS, FRAMES])],
        [onnx.helper.make_tensor_value_info(FEATURES, real, None)],
        [tensor for tensor in model.graph.initializer if tensor.name.startswith("encoder.")],
    )
    part = onnx.helper.make_model(graph, opset_imports=model.opset_import, ir_version=model.ir_version)
    return found, open_session(part)


def time_host(session: Any, given: Any, calls: int = 1000) -> float:
    """Median time of the convolutions of a step in onnxruntime on one thread, in microseconds."""
    times = np.empty(calls)
    for call in range(calls):
        x = given[call % len(given)][None]
        begin = time.perf_counter_ns()
        session.run(None, {MAGNITUDES: x})
        times[call] = time.perf_counter_ns() - begin
    return float(np.median(times[calls // 10 :]) / 1000)


def skipping(network: Network, x: NDArray[np.float64]) -> tuple[Manifest, Manifest, Any]:
    """Manifests with and without the words that are zero, and the integers."""
    integers = quantise(network, QuantizationSettings(weight_bits=8), x)
    whole = Manifest.create("vad", integers.shapes, PARAMETERS, integers.numerics)
    kept = find_kept(integers, whole)
    return Manifest.create("vad", integers.shapes, PARAMETERS, integers.numerics, kept=kept), whole, integers


def measure(files: SileroFiles) -> bool:
    """Print the table; return whether all is well."""
    model = onnx.load(str(files.model))
    read = read_model(files.model)
    network = read_all(files.model)
    recording = run_float_model(files.model, read_speech(files.speech), read.report.input)
    given, session = magnitudes(model, chunk_audio(recording.audio))
    x = join_frames("x", given.transpose(0, 2, 1).reshape(-1, 1, BINS).astype(np.float64), 0, FRAMES)
    y = run_float(network, x).y[:, 0, 0]
    first = round(CALIBRATION_SECONDS * STEPS_PER_SECOND)
    manifest, whole, integers = skipping(network, x[:first])
    alone, _, _ = skipping(read.network, recording.features[:first, None].astype(np.float64))
    golden = integers.shapes[-1].output.to_floats(Golden(integers).run(integers.numerics.quantise_input(x)).y)
    changed = int(np.sum((golden[:, 0, 0] > 0.5) != (recording.probability > 0.5)))
    difference = float(np.abs(y - recording.probability).max())
    weights = sum(layer.weight.size for layer in network.layers if isinstance(layer, Dense))
    rows = [
        ("steps of speech", f"{len(x):,}"),
        ("float network against onnxruntime", f"{difference:.1e}"),
        ("decisions changed by 8-bit weights", f"{changed} of {len(x):,}"),
        ("weights of dense layers, zeros included", f"{weights:,}"),
        (
            "words of weights stored, of all",
            f"{manifest.program.weight_rows:,} of {whole.program.weight_rows:,}",
        ),
        (
            "weight memory",
            memory(manifest),
        ),
        (
            "the same for LSTM and head alone",
            memory(alone),
        ),
        ("cycles of a step, zeros skipped", f"{manifest.cycles.step_latency_cycles:,}"),
        ("cycles with the zeros", f"{whole.cycles.step_latency_cycles:,}"),
        ("cycles of LSTM and head alone", f"{alone.cycles.step_latency_cycles:,}"),
        ("host's time that is saved, onnxruntime", f"{time_host(session, given):.0f} us a step"),
    ]
    for found in estimate_devices(manifest):
        rows.append(
            (
                f"estimate on {found.device}",
                "fits" if found.fits else f"does not fit: {found.block_rams} block RAMs",
            )
        )
    for name, value in rows:
        print(f"{name:42} {value}")
    return difference <= 1e-4 and changed <= 0.01 * len(x)


if __name__ == "__main__":
    sys.exit(0 if measure(fetch_silero()) else 1)
