"""ONNX files built node by node, and onnxruntime's results of them."""

from contextlib import contextmanager

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from rtlstm.gen.frontends import read_model
from rtlstm.sim.reference import run_float
from support.closeness import close

I, H, O = 5, 6, 3  # noqa: E741
RNG = np.random.default_rng(1)


def rand(*shape):
    return RNG.normal(size=shape, scale=0.5).astype(np.float32)


def const(name, value):
    return numpy_helper.from_array(np.asarray(value), name)


def ints(name, *values):
    return const(name, np.array(values, dtype=np.int64))


def lstm(x="x", y="y", name="rec", y_h="", y_c="", extra=(), inputs=I, **attributes):
    """An LSTM node and its weights."""
    units = attributes.setdefault("hidden_size", H)
    weights = [
        const(f"{name}.W", rand(1, 4 * units, inputs)),
        const(f"{name}.R", rand(1, 4 * units, units)),
        const(f"{name}.B", rand(1, 8 * units)),
    ]
    node = helper.make_node(
        "LSTM", [x, f"{name}.W", f"{name}.R", f"{name}.B", *extra], [y, y_h, y_c], name=name, **attributes
    )
    return [node], weights


def node(kind, inputs, outputs, name=None, **attributes):
    return helper.make_node(kind, inputs.split(), outputs.split(), name=name or kind.lower(), **attributes)


def save(path, nodes, weights, outputs=("out",), inputs=(), opset=17, shape=("T", "N", I), ir=9):
    def info(name):
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, None)

    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    graph = helper.make_graph(nodes, "g", [x, *inputs], [info(name) for name in outputs], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir)
    onnx.save(model, path)
    return path


@contextmanager
def edited(path):
    """The model of a file, which is written again at the end."""
    model = onnx.load(path)
    yield model
    onnx.save(model, path)


def run(path, x, output="out", **feeds):
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return session.run([output], {"x": x, **feeds})[0]


def check(path, output="out", x=None, at=..., transpose=None):
    """Compare the network of a model with onnxruntime, perhaps in one step ``at``; return what was read."""
    result = read_model(path)
    x = rand(5, 2, I) if x is None else x
    y = run_float(result.network, x).y[at]
    close(y if transpose is None else y.transpose(transpose), run(path, x, output))
    return result


def squeezed(**kwargs):
    nodes, weights = lstm(**kwargs)
    return [*nodes, node("Squeeze", "y one", "s")], [*weights, ints("one", 1)]


def after_lstm(path, more, constants=(), outputs=("out",), **options):
    """Save an LSTM and nodes behind it, which read its result ``s``."""
    nodes, weights = squeezed()
    return save(path, [*nodes, *more], [*weights, *constants], outputs, **options)


OPSETS = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]


def function(name, *nodes):
    """A function of one tensor ``a`` that gives ``b``."""
    return helper.make_function("own", name, ["a"], ["b"], nodes, OPSETS)


def call(name, read, give):
    return helper.make_node(name, [read], [give], domain="own")


def twice(name, inner):
    return function(name, call(inner, "a", "m"), call(inner, "m", "b"))


def save_with(path, functions, first):
    """An LSTM, and a function after it."""
    after_lstm(path, [call(first, "s", "out")])
    with edited(path) as model:
        model.functions.extend(functions)
        model.opset_import.append(OPSETS[1])
