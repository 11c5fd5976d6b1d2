"""The step that the core computes, timed in onnxruntime: what the demo compares itself with."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime

from rtlstm.zoo.silero import Recording, open_session

__all__ = ["PeerTiming", "cut_model", "time_peer"]

_RUNTIME: Any = onnxruntime  # its names are not typed
_STATE = (1, 1, 128)
_PROBABILITY = "speech_probs"


@dataclass(frozen=True)
class PeerTiming:
    """Time of one step (LSTM and head, batch 1, state carried) in onnxruntime, one thread."""

    calls: int
    p50_us: float
    p99_us: float
    largest_difference: float
    """Between its probabilities and the whole float model's: it does the same work."""


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
    session = open_session(cut_model(onnx.load(str(path)), tap, width))

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
