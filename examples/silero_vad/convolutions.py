"""silero's convolutions on the core, too: what that costs in hardware, and what it saves the host.

    python examples/silero_vad/convolutions.py

The demo's first build leaves the four convolutions in front of the LSTM to the host. They work over the 4
frames of a short Fourier transform inside one step of 32 ms, so they are dense layers with zeros, and ReLU.
Told to begin at the magnitudes, the reader of ONNX files takes them, too. The core then reads 4 x 129
magnitudes. The script generates the build, with 8-bit weights, and simulates its RTL over the first steps of
the speech. It compares every word and the cycle of every step with the golden model and the schedule, and the
float network and the golden model with onnxruntime. It prints weights, cycles, and the host's time for the
convolutions. It exits with 1 if a word or a cycle differs, if float probabilities differ by more than 1e-4,
or more than 1 % of the golden model's decisions.
"""

import argparse
import sys
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from stages import Stages

from rtlstm.fpga.estimate import estimate_devices
from rtlstm.gen.builds.compare import Comparison, compare
from rtlstm.gen.builds.generate import generate_build
from rtlstm.gen.builds.hardware import ArrayRequest
from rtlstm.gen.frontends import ReadOptions, ReadResult, read_model
from rtlstm.gen.quantise.quantiser import QuantizationSettings, quantise
from rtlstm.host import SaturationWarning
from rtlstm.sim.golden import Golden
from rtlstm.sim.reference import run_float
from rtlstm.spec.errors import RtlstmError
from rtlstm.spec.layout import join_frames
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.network import Dense
from rtlstm.spec.numerics import QuantizedNetwork
from rtlstm.spec.packing import find_kept
from rtlstm.spec.progress import Progress
from rtlstm.zoo.silero import (
    STEPS_PER_SECOND,
    Recording,
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
ARRAY = ArrayRequest(family="ecp5", lanes=16, macs=9, skip_zeros=True)
SETTINGS = QuantizationSettings(weight_bits=8)
STEPS = 40
"""Steps of the speech that go through the RTL, unless told otherwise."""
MOST_DIFFERENCE, MOST_CHANGED = 1e-4, 0.01
_RUNTIME: Any = onnxruntime  # its names are not typed

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class ConvolutionResults:
    """What the build with the convolutions does, costs and saves."""

    manifest: Manifest
    whole: Manifest
    """The same build, if words of weights that are zero were stored and computed, too."""
    alone: Manifest
    """LSTM and head without the convolutions, on the same array."""
    weights: int
    """Weights of the dense layers, zeros included."""
    rtl: Comparison
    output_different: int
    """Outputs of the RTL that differ from the golden model of the build, or from that of the network."""
    steps: int
    """Steps of the speech, all of which the float network and the golden model compute."""
    float_difference: float
    """Largest difference between the float network's probabilities and onnxruntime's."""
    changed: int
    """Decisions of the golden model that differ from onnxruntime's."""
    host_us: float
    """Time of a step's convolutions on the host."""

    @property
    def words_compared(self) -> int:
        """Words of the RTL that were compared: every output, h and c after the last step."""
        return self.rtl.output_words + self.rtl.state_words

    @property
    def words_different(self) -> int:
        """How many of them differ."""
        return self.output_different + self.rtl.state_different

    @property
    def exact(self) -> bool:
        """Whether all words and cycles of the RTL are as predicted."""
        return not (self.words_different or self.rtl.cycles_different)

    @property
    def passed(self) -> bool:
        """Whether the RTL is exact, the float network is onnxruntime's, and few decisions change."""
        accurate = self.float_difference <= MOST_DIFFERENCE and self.changed <= MOST_CHANGED * self.steps
        return self.exact and accurate

    def rows(self) -> list[tuple[str, str]]:
        """Return what the script prints: names and values."""
        cycles, alone, rtl = self.manifest.cycles, self.alone.cycles, self.rtl
        words, of_all = self.manifest.program.weight_rows, self.whole.program.weight_rows
        rows = [
            ("steps of speech", f"{self.steps:,}"),
            ("float network against onnxruntime", f"{self.float_difference:.1e}"),
            ("decisions changed by 8-bit weights", f"{self.changed:,} of {self.steps:,}"),
            (f"RTL ({rtl.simulator}), steps", f"{rtl.steps:,}"),
            ("RTL, words compared", f"{self.words_compared:,}, {self.words_different:,} different"),
            ("RTL, cycles", f"{rtl.cycles_predicted:,} predicted, {rtl.cycles_measured:,} measured"),
            ("weights of dense layers, zeros included", f"{self.weights:,}"),
            ("words of weights stored, of all", f"{words:,} of {of_all:,}"),
            ("weight memory", f"{memory(self.manifest):,.0f} KiB"),
            ("the same for LSTM and head alone", f"{memory(self.alone):,.0f} KiB"),
            ("cycles of a step, zeros skipped", f"{cycles.step_latency_cycles:,}"),
            ("cycles with the zeros", f"{self.whole.cycles.step_latency_cycles:,}"),
            ("cycles of LSTM and head alone", f"{alone.step_latency_cycles:,}"),
            ("cycles from step to step", f"{cycles.step_interval_cycles:,}"),
            ("the same for LSTM and head alone", f"{alone.step_interval_cycles:,}"),
            ("host's time that is saved, onnxruntime", f"{self.host_us:.0f} us a step"),
        ]
        for found in estimate_devices(self.manifest):
            fits = "fits" if found.fits else f"does not fit: {found.block_rams} block RAMs"
            rows.append((f"estimate on {found.device}", fits))
        return rows

    def as_json(self) -> dict[str, Any]:
        """Return the figures that the demo shows."""
        rtl = self.rtl
        return {
            "lanes": self.manifest.parameters.lanes,
            "macs": self.manifest.parameters.macs,
            "steps": self.steps,
            "decisions_changed": self.changed,
            "float_difference": self.float_difference,
            "simulator": rtl.simulator,
            "rtl_steps": rtl.steps,
            "words": {"compared": self.words_compared, "different": self.words_different},
            "cycles": {"predicted": rtl.cycles_predicted, "measured": rtl.cycles_measured},
            "steps_with_other_cycles": rtl.cycles_different,
            "host_us": self.host_us,
            "costs": {"with_them": costs(self.manifest), "without_them": costs(self.alone)},
        }


def memory(manifest: Manifest) -> float:
    """The weights that are stored, 8 bits each, in KiB."""
    return manifest.program.weight_rows * manifest.parameters.lanes * manifest.parameters.macs / 1024


def costs(manifest: Manifest) -> dict[str, float]:
    """What a step costs in cycles, memory and words from the host."""
    return {
        "latency_cycles": manifest.cycles.step_latency_cycles,
        "interval_cycles": manifest.cycles.step_interval_cycles,
        "weight_kib": memory(manifest),
        "inputs": manifest.program.inputs,
    }


def read_all(path: Path) -> ReadResult:
    """The network from the magnitudes on: four convolutions, LSTM and head."""
    return read_model(path, ReadOptions(begin=MAGNITUDES), name="vad")


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
    """Median time of a step's convolutions in onnxruntime, in microseconds: one thread, bound buffers."""
    x = _RUNTIME.OrtValue.ortvalue_from_numpy(given[:1])
    binding = session.io_binding()
    binding.bind_ortvalue_input(MAGNITUDES, x)
    binding.bind_output(FEATURES, "cpu")
    times = np.empty(calls)
    for call in range(calls):
        x.update_inplace(given[call % len(given)][None])
        begin = time.perf_counter_ns()
        session.run_with_iobinding(binding)
        times[call] = time.perf_counter_ns() - begin
    return float(np.median(times[calls // 10 :]) / 1000)


def predict(integers: QuantizedNetwork, skip_zeros: bool) -> Manifest:
    """The manifest of a build with this array, which has its cycles and memory."""
    parameters = ARRAY.largest(integers.numerics.factor_bits)
    whole = Manifest.of("vad", integers, parameters)
    if not skip_zeros:
        return whole
    kept = find_kept(integers, whole)
    return Manifest.of("vad", integers, parameters, kept=kept)


def run_golden(integers: QuantizedNetwork, x: Floats) -> Floats:
    """The golden model's outputs of a sequence, ``(T, 1, inputs)``."""
    y = Golden(integers).run(integers.numerics.quantise_input(x)).y
    return integers.shapes[-1].output.to_floats(y)[:, 0]


def run_rtl(
    folder: Path, x: Floats, golden: Floats, progress: Progress | None = None
) -> tuple[Comparison, int]:
    """Run steps ``(T, inputs)`` through a build's RTL; return the comparison and the outputs that differ.

    ``golden`` has the outputs of a golden model with the network's own integers. The comparison's has those
    of the build's weight image, which the RTL loads, too, so that it does not see what is wrong there.
    """
    with warnings.catch_warnings():
        # What calibration has not seen saturates in RTL and golden model alike.
        warnings.simplefilter("ignore", SaturationWarning)
        # Weights that were loaded wrong show in the words; to read them back takes longer than the steps.
        found, y = compare(folder, x, progress=progress, verify=False)
    return found, max(found.output_different, int(np.count_nonzero(y != golden[: len(y)])))


def measure_convolutions(
    files: SileroFiles,
    recording: Recording,
    folder: Path,
    steps: int = STEPS,
    progress: Progress | None = None,
) -> ConvolutionResults:
    """Generate the build into ``folder``, run everything and return what was found."""
    given, session = magnitudes(onnx.load(str(files.model)), chunk_audio(recording.audio))
    model = read_all(files.model)
    frames = given.transpose(0, 2, 1).reshape(-1, 1, BINS).astype(np.float64)
    x = join_frames("x", frames, 0, FRAMES)
    first = round(CALIBRATION_SECONDS * STEPS_PER_SECOND)
    manifest = generate_build(
        model,
        folder,
        name="vad",
        settings=SETTINGS,
        array=ARRAY,
        calibration=x[:first],
        batch_first=False,
        progress=progress,
    )
    integers = quantise(model.network, SETTINGS, x[:first])
    golden = run_golden(integers, x)
    rtl, different = run_rtl(folder, x[:steps, 0], golden, progress)
    alone = quantise(
        read_model(files.model).network, SETTINGS, recording.features[:first, None].astype(np.float64)
    )
    y = run_float(model.network, x).y[:, 0, 0]
    return ConvolutionResults(
        manifest=manifest,
        whole=predict(integers, skip_zeros=False),
        alone=predict(alone, skip_zeros=True),
        weights=sum(layer.weight.size for layer in model.network.layers if isinstance(layer, Dense)),
        rtl=rtl,
        output_different=different,
        steps=len(x),
        float_difference=float(np.abs(y - recording.probability).max()),
        changed=int(np.count_nonzero((golden[:, 0] > 0.5) != (recording.probability > 0.5))),
        host_us=time_host(session, given),
    )


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description="silero's convolutions on the core, too")
    parser.add_argument(
        "-o", "--output", type=Path, default=Path("build/convolutions"), help="folder of the build"
    )
    parser.add_argument(
        "--steps", type=int, default=STEPS, help="steps of the speech to run through the RTL; 40 by default"
    )
    chosen = parser.parse_args(arguments)
    if chosen.steps < 1:
        parser.error(f"--steps must be at least 1, not {chosen.steps}")
    return chosen


def main(arguments: list[str] | None = None) -> int:
    """Run all, print what was found and return the exit code."""
    chosen = parse_arguments(arguments)
    try:
        with Stages() as stages:
            files = fetch_silero(stages)
            tap = read_model(files.model).report.input
            recording = run_float_model(files.model, read_speech(files.speech), tap)
            found = measure_convolutions(files, recording, chosen.output, chosen.steps, stages)
    except (RtlstmError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    for name, value in found.rows():
        print(f"{name:42} {value}")
    return 0 if found.passed else 1


if __name__ == "__main__":
    sys.exit(main())
