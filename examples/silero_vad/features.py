"""The part of silero VAD that stays outside of the core, and the float model to compare with.

The convolutions before the LSTM turn 64 samples of context and 512 new samples (32 ms at 16 kHz)
into 128 features. They are computed by the network's own ONNX file, with the LSTM's input as one
output more, so that nothing is re-implemented here.
"""

import time
import wave
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray

from rtlstm.spec.errors import InputError

__all__ = ["CHUNK", "CONTEXT", "RATE", "STEPS_PER_SECOND", "PeerTiming", "Recording"]
__all__ += ["chunk_audio", "cut_model", "read_speech", "run_float_model", "time_peer"]

Floats = NDArray[np.float32]

RATE = 16000
CHUNK = 512
CONTEXT = 64
STEPS_PER_SECOND = RATE / CHUNK

_RUNTIME: Any = onnxruntime  # its names are not typed
_STATE = (1, 1, 128)
_PROBABILITY = "speech_probs"


@dataclass(frozen=True)
class Recording:
    """Speech, the LSTM's input computed from it, and the float model's answer."""

    audio: Floats
    """Samples within -1 to 1, a whole number of chunks."""
    features: Floats
    """What the LSTM reads, ``(steps, 128)``."""
    probability: Floats
    """The float model's speech probability of each step."""


@dataclass(frozen=True)
class PeerTiming:
    """Time of one step (LSTM and head, batch 1, state carried) in onnxruntime, one thread."""

    calls: int
    p50_us: float
    p99_us: float
    largest_difference: float
    """Between its probabilities and the whole float model's: it does the same work."""


def read_speech(path: Path) -> Floats:
    """Return a 16 kHz mono 16-bit WAV file as floats within -1 to 1.

    Raises
    ------
    InputError
        If the file is of another kind.
    """
    try:
        with wave.open(str(path)) as file:
            kind = (file.getframerate(), file.getnchannels(), file.getsampwidth())
            data = file.readframes(file.getnframes())
    except (wave.Error, EOFError) as error:
        raise InputError(f"{path} must be a WAV file, but: {error}") from None
    if kind != (RATE, 1, 2):
        raise InputError(
            f"{path} must hold {RATE} Hz, 1 channel, 2 bytes a sample, not {kind[0]} Hz, "
            f"{kind[1]} channels, {kind[2]} bytes"
        )
    return np.frombuffer(data, dtype="<i2").astype(np.float32) / np.float32(32768)


def chunk_audio(audio: Floats) -> Floats:
    """Return ``(steps, 64 + 512)``: each whole chunk behind the last samples of the one before.

    Zeros come before the first chunk; samples after the last whole chunk are left out.
    """
    steps = len(audio) // CHUNK
    if not steps:
        raise InputError(f"audio must have at least {CHUNK} samples, not {len(audio)}")
    new = audio[: steps * CHUNK].reshape(steps, CHUNK)
    context = np.zeros((steps, CONTEXT), dtype=np.float32)
    context[1:] = new[:-1, -CONTEXT:]
    return np.concatenate([context, new], axis=1)


def _session(model: Any) -> Any:
    options = _RUNTIME.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    return _RUNTIME.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def run_float_model(path: Path, audio: Floats, tap: str) -> Recording:
    """Run the whole float model over the audio, from zero state on.

    Parameters
    ----------
    tap
        The tensor that the LSTM reads.
    """
    model = onnx.load(str(path))
    model.graph.output.append(onnx.helper.make_tensor_value_info(tap, onnx.TensorProto.FLOAT, None))
    zero = np.zeros(_STATE, dtype=np.float32)
    chunks = chunk_audio(audio)
    probability, features = _session(model).run([_PROBABILITY, tap], {"input": chunks, "h": zero, "c": zero})
    return Recording(
        audio=audio[: len(chunks) * CHUNK],
        features=features.reshape(len(chunks), -1),
        probability=probability.reshape(-1),
    )


def cut_model(model: onnx.ModelProto, tap: str, width: int) -> onnx.ModelProto:
    """Return the part of the model behind tensor ``tap``, which becomes an input ``(T, 1, width)``."""
    needed = {output.name for output in model.graph.output}
    nodes = []
    for node in reversed(model.graph.node):
        if needed.intersection(node.output) and tap not in node.output:
            nodes.append(node)
            needed.update(node.input)
    given = onnx.helper.make_tensor_value_info(tap, onnx.TensorProto.FLOAT, ["T", 1, width])
    graph = onnx.helper.make_graph(
        nodes[::-1],
        "step",
        [given, *(value for value in model.graph.input if value.name in needed)],
        list(model.graph.output),
        [tensor for tensor in model.graph.initializer if tensor.name in needed],
    )
    return onnx.helper.make_model(graph, opset_imports=model.opset_import, ir_version=model.ir_version)


def time_peer(path: Path, recording: Recording, tap: str, warm_up: int = 300) -> PeerTiming:
    """Time the LSTM and its head in onnxruntime, at its best: outputs bound to the next inputs.

    Each recorded step is one call after ``warm_up`` calls more, and 2000 calls at least are timed.
    """
    width = recording.features.shape[1]
    session = _session(cut_model(onnx.load(str(path)), tap, width))

    def value(*shape: int) -> Any:
        return _RUNTIME.OrtValue.ortvalue_from_numpy(np.zeros(shape, dtype=np.float32))

    x, y = value(1, 1, width), value(1)
    states = [(value(*_STATE), value(*_STATE)) for _ in range(2)]
    bindings = []
    for old, new in (states, states[::-1]):
        binding = session.io_binding()
        for name, bound in zip((tap, "h", "c"), (x, *old), strict=True):
            binding.bind_ortvalue_input(name, bound)
        for name, bound in zip((_PROBABILITY, "hn", "cn"), (y, *new), strict=True):
            binding.bind_ortvalue_output(name, bound)
        bindings.append(binding)
    steps = len(recording.features)
    calls = max(2000, steps)
    times = np.empty(warm_up + calls)
    difference = 0.0
    for call in range(warm_up + calls):
        x.update_inplace(recording.features[call % steps].reshape(1, 1, width))
        begin = time.perf_counter_ns()
        session.run_with_iobinding(bindings[call % 2])
        times[call] = time.perf_counter_ns() - begin
        if call < steps:
            difference = max(difference, abs(float(y.numpy()[0]) - float(recording.probability[call])))
    p50, p99 = np.percentile(times[warm_up:] / 1000, [50, 99])
    return PeerTiming(calls, float(p50), float(p99), difference)
