"""Float ONNX models on a grid of powers of two, and what onnxruntime's quantisers make of them."""

import numpy as np
import onnx
from onnx import numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize_dynamic, quantize_static

from support.onnx_files import const, ints, node, save

I, H, M, O = 3, 4, 6, 2  # noqa: E741
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
STEP = 2.0**-7
"""The step that onnxruntime finds for weights of :func:`grid`: their largest is 127 steps."""


def grid(rng, *shape):
    """Integers of 8 bits, whose largest magnitude is 127 in every row."""
    codes = rng.integers(-126, 127, shape)
    codes[..., 0] = np.where(codes[..., 0] < 0, -127, 127)
    return codes


def inputs(rng, steps=12):
    """Inputs ``(T, 1, I)`` on the grid that onnxruntime finds for them, of steps of 2^-6."""
    codes = rng.integers(-127, 128, (steps, 1, I))
    codes[0, 0, 0] = 127
    return (codes * 2.0**-6).astype(np.float32)


def float_model(path, rng, kind="LSTM", head=True, uneven=False):
    """A recurrent node, and two dense layers with Relu and Sigmoid; returns the integers of the weights.

    ``uneven``: each row is multiplied by another factor, so that no step is a power of two.
    """
    gates = GATES[kind]
    codes = {
        "W": grid(rng, 1, gates * H, I),
        "R": grid(rng, 1, gates * H, H),
        "B": grid(rng, 1, 2 * gates * H),
    }
    nodes = [
        node(kind, "x W R B", "y0", "rec", hidden_size=H),
        node("Squeeze", "y0 ax", "y1" if head else "y"),
    ]
    if head:
        codes |= {"G1": grid(rng, M, H).T, "g1": grid(rng, M), "G2": grid(rng, O, M).T, "g2": grid(rng, O)}
        nodes += [
            node("MatMul", "y1 G1", "m0", "fc"),
            node("Add", "m0 g1", "m1", "fc add"),
            node("Relu", "m1", "m2"),
            node("MatMul", "m2 G2", "p0", "fc2"),
            node("Add", "p0 g2", "p1", "fc2 add"),
            node("Sigmoid", "p1", "y"),
        ]
    factors = {name: rng.uniform(0.5, 1.5, array.shape) for name, array in codes.items() if uneven}
    for name, factor in factors.items():
        # Rows of a recurrent node, columns of MatMul.
        factor[...] = factor[..., :1] if name in ("W", "R") else factor[:1]
    weights = [
        const(name, (array * STEP * factors.get(name, 1.0)).astype(np.float32))
        for name, array in codes.items()
    ]
    save(path, nodes, [*weights, ints("ax", 1)], ["y"], shape=("T", 1, I), ir=8)
    return codes


class Data(CalibrationDataReader):
    """One batch of calibration data."""

    def __init__(self, **inputs):
        self.left = iter([inputs])

    def get_next(self):
        return next(self.left, None)


def static(path, x, symmetric, **options):
    """Quantise a file with pairs of QuantizeLinear and DequantizeLinear; return the new one."""
    found = path.with_name("static.onnx")
    extra = {"ActivationSymmetric": symmetric}
    options = {"weight_type": QuantType.QInt8, "activation_type": QuantType.QInt8} | options
    quantize_static(path, found, Data(x=x), extra_options=extra | options.pop("extra", {}), **options)
    return found


def dynamic(path, **options):
    """Quantise a file's weights; return the new one."""
    found = path.with_name("dynamic.onnx")
    quantize_dynamic(path, found, **({"weight_type": QuantType.QInt8} | options))
    return found


def rounding_bound(path, on_grid=("x",)):
    """Bound the difference of a quantised file's output from that of the same weights without rounding.

    Every pair of QuantizeLinear and DequantizeLinear adds half a step (values that leave the range come back
    into it, which is nearer), except for inputs that are whole steps. Ranges are those of the float model,
    whose added constants differ by half a step of theirs. Products multiply by their columns' absolute sums,
    sigmoid by a quarter.
    """
    model = onnx.load(path)
    constants = {item.name: numpy_helper.to_array(item) for item in model.graph.initializer}
    bound = dict.fromkeys([*constants, *(item.name for item in model.graph.input)], 0.0)
    for each in model.graph.node:
        read = [bound[name] for name in each.input if name]
        if each.op_type == "DequantizeLinear" and all(name in constants for name in each.input):
            codes, scale, zero = (constants[name].astype(np.float64) for name in each.input)
            axis = next((one.i for one in each.attribute if one.name == "axis"), 0)
            shape = [-1 if at == axis else 1 for at in range(codes.ndim)]
            constants[each.output[0]] = (codes - zero.reshape(shape)) * scale.reshape(shape)
            found = scale.max() / 2 if codes.ndim == 1 else 0.0
        elif each.op_type == "QuantizeLinear":
            found = read[0] + (0.0 if each.input[0] in on_grid else constants[each.input[1]].item() / 2)
        elif each.op_type == "MatMul":
            found = read[0] * np.abs(constants[each.input[1]]).sum(axis=0).max()
        elif each.op_type == "Gemm":
            weight = constants[each.input[1]]
            found = read[0] * np.abs(weight).sum(axis=1).max() + read[2]
        elif each.op_type in GATES:
            assert read[0] == 0.0, "a recurrent node must read what is exact"
            found = 0.0
        else:
            factors = {
                "Sigmoid": 0.25,
                "Relu": 1,
                "Add": 1,
                "Squeeze": 1,
                "Transpose": 1,
                "DequantizeLinear": 1,
            }
            found = sum(read) * factors[each.op_type]
        bound |= dict.fromkeys(each.output, float(found))
    return bound["y"]


def lstm_weights(rng):
    """W and R of an LSTM whose weights are floats."""
    shapes = {"W": (1, 4 * H, I), "R": (1, 4 * H, H)}
    return [const(name, rng.normal(size=shape).astype(np.float32)) for name, shape in shapes.items()]


def quantised_dense(path, codes, scale, zero, clip=None, **attributes):
    """A model whose dense layer's weights are DequantizeLinear of ``codes``, perhaps behind a Clip."""
    rng = np.random.default_rng(5)
    weights = [*lstm_weights(rng), const("codes", codes), const("scale", scale), const("zero", zero)]
    weights.append(ints("ax", 1))
    nodes = [node("LSTM", "x W R", "y0", "rec", hidden_size=H), node("Squeeze", "y0 ax", "y1")]
    read = "codes"
    if clip is not None:
        weights += [
            const("low", np.array(clip[0], codes.dtype)),
            const("high", np.array(clip[1], codes.dtype)),
        ]
        weights[2] = const("codes", (codes * scale).astype(np.float32))
        nodes += [node("QuantizeLinear", "codes scale zero", "q"), node("Clip", "q low high", "c")]
        read = "c"
    nodes += [
        node("DequantizeLinear", f"{read} scale zero", "G", **attributes),
        node("MatMul", "y1 G", "y", "fc"),
    ]
    return save(path, nodes, weights, ["y"], shape=("T", 1, I), ir=8)
