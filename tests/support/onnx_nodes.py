"""Models of one recurrent ONNX node, and what our network of one gives in ONNX's shapes."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from rtlstm.gen.frontends import read_model
from rtlstm.sim.reference import run_float
from rtlstm.spec.network import Bidirectional

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
WEIGHTS = ("W", "R", "B", "P")
STATES = ("initial_h", "initial_c")
Arrays = dict[str, NDArray[Any]]


def recurrent_model(kind: str, data: Arrays, opset: int = 22, **attributes: Any) -> onnx.ModelProto:
    """A model of one node named ``rec``; weights are initializers, the rest of ``data`` are inputs."""
    names = ["X", "W", "R", "B", "sequence_lens", "initial_h"] + ["initial_c", "P"] * (kind == "LSTM")
    outputs = ["Y", "Y_h"] + ["Y_c"] * (kind == "LSTM")
    node = helper.make_node(
        kind, [name if name in data else "" for name in names], outputs, name="rec", **attributes
    )
    while node.input[-1] == "":
        del node.input[-1]
    types = {name: helper.np_dtype_to_tensor_dtype(array.dtype) for name, array in data.items()}
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info(n, types[n], a.shape) for n, a in data.items() if n not in WEIGHTS],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in data.items() if name in WEIGHTS],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def run_ours(path: Path, data: Arrays, layout: int = 0) -> Arrays:
    """Y, Y_h and, of an LSTM, Y_c in ONNX's shapes, by the network of a saved model and the float model."""
    network = read_model(path).network
    (layer,) = network.layers
    directions = (layer.forward, layer.backward) if isinstance(layer, Bidirectional) else (layer,)
    x = data["X"].swapaxes(0, 1) if layout else data["X"]
    _, batch, _ = x.shape
    state = None
    if "initial_h" in data or "initial_c" in data:
        zeros = np.zeros((len(directions), batch, directions[0].units))
        given = {name: data[name].swapaxes(0, 1) if layout else data[name] for name in data.keys() & STATES}
        state = tuple(tuple(given.get(name, zeros)) for name in STATES)
    result = run_float(network, x, state=state, lengths=data.get("sequence_lens"))
    y = np.stack(np.split(result.y, len(directions), axis=-1), axis=1)
    found = {"Y": y.transpose(2, 0, 1, 3) if layout else y}
    for name, parts in (("Y_h", result.h), ("Y_c", result.c)):
        if parts:
            found[name] = np.stack(parts, axis=1 if layout else 0)
    return found
