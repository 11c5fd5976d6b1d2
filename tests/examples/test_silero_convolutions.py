"""silero's convolutions as layers of the core: what needs no download."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

onnxruntime = pytest.importorskip("onnxruntime")

from convolutions import BINS, FRAMES, MAGNITUDES, read_all  # noqa: E402

from rtlstm.sim.reference import run_float  # noqa: E402


def test_network_equals_the_file(tmp_path: Path) -> None:
    """A file of the same form with two convolutions, the second over the two frames that the first leaves."""
    rng = np.random.default_rng(0)
    nodes, weights, given = [helper.make_node("Sqrt", ["power"], [MAGNITUDES])], [], MAGNITUDES
    sizes = {"W": (1, 16, 5), "R": (1, 16, 4), "B": (1, 32)}
    for number, (inputs, outputs, taps) in enumerate([(BINS, 6, 3), (6, 5, 2)]):
        sizes |= {f"encoder.{number}.weight": (outputs, inputs, taps), f"encoder.{number}.bias": (outputs,)}
        names = [f"encoder.{number}.{name}" for name in ("weight", "bias")]
        pads = [1, 1] if number == 0 else [0, 0]
        nodes.append(helper.make_node("Conv", [given, *names], [f"c{number}"], strides=[2], pads=pads))
        nodes.append(helper.make_node("Relu", [f"c{number}"], [f"r{number}"]))
        given = f"r{number}"
    nodes.append(helper.make_node("Transpose", [given], ["steps"], perm=[0, 2, 1]))
    nodes.append(helper.make_node("LSTM", ["steps", "W", "R", "B"], ["y"], hidden_size=4))
    for name, size in sizes.items():
        array = rng.normal(size=size, scale=0.3).astype(np.float32)
        weights.append(numpy_helper.from_array(array, name))
    real = onnx.TensorProto.FLOAT
    ends = [
        helper.make_tensor_value_info("power", real, ["T", BINS, FRAMES]),
        helper.make_tensor_value_info("y", real, None),
    ]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, tmp_path / "m.onnx")
    x = rng.uniform(0, 1, (3, BINS, FRAMES)).astype(np.float32)
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx", providers=["CPUExecutionProvider"])
    (wanted,) = session.run(None, {"power": x})
    y = run_float(read_all(tmp_path / "m.onnx"), np.sqrt(x).transpose(0, 2, 1).reshape(3, 1, -1)).y
    np.testing.assert_allclose(y, wanted[:, 0], atol=1e-5)
