"""silero's convolutions as layers of the core: what needs no download."""

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

pytest.importorskip("onnxruntime")

from convolutions import BINS, FEATURES, FRAMES, MAGNITUDES, read_convolutions

from rtlstm.sim.reference import run_float
from rtlstm.spec.network import Network


def test_layers_equal_the_file() -> None:
    """A file of the same form with two convolutions, the second of stride 2."""
    rng = np.random.default_rng(0)
    nodes, weights, given = [], [], MAGNITUDES
    for number, (inputs, outputs, stride) in enumerate([(BINS, 6, 1), (6, 5, 2)]):
        arrays = {"weight": rng.normal(size=(outputs, inputs, 3)), "bias": rng.normal(size=outputs)}
        names = [f"encoder.{number}.{name}" for name in arrays]
        tensors = zip(arrays.values(), names, strict=True)
        weights += [numpy_helper.from_array(array.astype(np.float32), name) for array, name in tensors]
        nodes.append(helper.make_node("Conv", [given, *names], [f"c{number}"], strides=[stride], pads=[1, 1]))
        given = f"r{number}" if number == 0 else FEATURES
        nodes.append(helper.make_node("Relu", [f"c{number}"], [given]))
    real = onnx.TensorProto.FLOAT
    ends = [helper.make_tensor_value_info(name, real, None) for name in (MAGNITUDES, FEATURES)]
    model = helper.make_model(helper.make_graph(nodes, "g", ends[:1], ends[1:], weights))
    x = rng.normal(size=(3, BINS, FRAMES)).astype(np.float32)
    (wanted,) = ReferenceEvaluator(model).run(None, {MAGNITUDES: x})
    layers = read_convolutions(model)
    y = run_float(Network(layers=layers, frames=FRAMES), x.transpose(0, 2, 1).reshape(3, 1, -1)).y
    np.testing.assert_allclose(y[:, 0], wanted.transpose(0, 2, 1).reshape(3, -1), atol=1e-4)
