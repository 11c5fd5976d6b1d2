"""The same networks in others' 8 bits: onnxruntime's dynamic int8, its arithmetic with sums that hold every
product, and plain rounding of weights."""

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rtlstm.bench.peers import OnnxCell, both_biases, onnx_gates, onnx_model, onnx_session
from rtlstm.gen.frontends.arrays import import_extra
from rtlstm.gen.quantise.calibration import Calibration
from rtlstm.sim.reference import FloatState, run_float
from rtlstm.spec.errors import ConfigurationError
from rtlstm.spec.network import Bidirectional, Dense, Gru, Layer, Lstm, Network, Norm, PseudoLayer, Rnn

Floats = NDArray[np.float64]

_ACTIVATIONS = {"relu": "Relu", "sigmoid": "Sigmoid", "tanh": "Tanh"}


# onnxruntime


@dataclass(frozen=True)
class Peer:
    """What onnxruntime gives with weights of 8 bits."""

    y: Floats
    weights: str
    """The type of the weights."""
    operators: tuple[str, ...]
    """Those of the quantised file that multiply matrices: LSTM, GRU and RNN are in float."""


def run_onnxruntime(network: Network, data: Calibration, per_channel: bool) -> Iterator[Peer]:
    """Yield what dynamic int8 gives for data, with signed weights and with unsigned ones.

    Raises ToolError if onnxruntime or onnx is not installed. Raises ConfigurationError if ONNX's operators do
    not compute a layer.
    """
    onnx = import_extra("onnx", "zoo", "a comparison with onnxruntime")
    quantization = import_extra("onnxruntime.quantization", "zoo", "a comparison with onnxruntime")
    feed = {"x": data.x.astype(np.float32), "lengths": data.lengths.astype(np.int32)}
    if data.state is not None:
        for name, part in zip("hc", data.state, strict=True):
            feed |= {f"{name}{number}": each[None].astype(np.float32) for number, each in enumerate(part)}
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "float.onnx", Path(folder) / "int8.onnx"
        model = to_onnx(network, data.state is not None)
        # Else it logs the advice to prepare the file, which has no effect on these operators.
        onnx.helper.set_model_props(model, {"onnx.quant.pre_process": "onnxruntime.quant"})
        onnx.save(model, source)
        for kind in ("QInt8", "QUInt8"):
            weights = getattr(quantization.QuantType, kind)
            quantization.quantize_dynamic(source, target, weight_type=weights, per_channel=per_channel)
            model = onnx.load(target)
            operators = {node.op_type for node in model.graph.node} & _MULTIPLIES
            y = onnx_session(model).run(None, feed)[0].astype(np.float64)
            yield Peer(y, kind, tuple(sorted(operators)))


_MULTIPLIES = {"DynamicQuantizeLSTM", "GRU", "LSTM", "MatMul", "MatMulInteger", "RNN"}


def to_onnx(network: Network, states: bool = False) -> Any:
    """Return an ONNX model with the input ``x``, ``(T, N, inputs)``, ``lengths``, and initial ``states`` as
    ``h0``, ``c0``, ``h1``, ...; its output is ``(T, N, outputs)``.

    Raises ConfigurationError if ONNX's operators do not compute a layer.
    """
    return _Writer(states).model(network)


class _Writer:
    """Collects the nodes of an ONNX model."""

    def __init__(self, states: bool) -> None:
        self._states = states
        self._nodes: list[Any] = []
        self._constants: dict[str, NDArray[Any]] = {}
        self._begins: dict[str, int] = {}
        """Units of each initial state."""

    def model(self, network: Network) -> Any:
        from onnx import TensorProto, helper

        given = ["x"]
        for layer in network.layers:
            read = [
                self._node("Relu", given[-one.back]) if one.relu else given[-one.back]
                for one in layer.sources
            ]
            if isinstance(layer, Dense):
                given.append(self._dense(layer, read))
            elif isinstance(layer, Norm):
                given.append(self._norm(layer, *read))
            else:
                x = read[0] if len(read) == 1 else self._node("Concat", *read, axis=-1)
                given.append(self._recurrent(layer, x))
        self._nodes.append(helper.make_node("Identity", given[-1:], ["y"]))
        shapes: dict[str, list[str | int]] = {"x": ["T", "N", network.inputs]}
        shapes |= {name: [1, "N", units] for name, units in self._begins.items()}
        ins = [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()
        ]
        ins.append(helper.make_tensor_value_info("lengths", TensorProto.INT32, ["N"]))
        outs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["T", "N", network.outputs])]
        return onnx_model(self._nodes, self._constants, ins, outs)

    def _node(self, operator: str, *inputs: str, **attributes: Any) -> str:
        from onnx import helper

        name = f"n{len(self._nodes)}"
        self._nodes.append(helper.make_node(operator, inputs, [name], name, **attributes))
        return name

    def _constant(self, values: NDArray[Any]) -> str:
        name = f"w{len(self._constants)}"
        self._constants[name] = values
        return name

    def _dense(self, layer: Dense, read: list[str]) -> str:
        y = self._constant(layer.bias)
        for values, (_, weight) in zip(read, layer.products, strict=True):
            y = self._node("Add", self._node("MatMul", values, self._constant(weight.T)), y)
        if layer.activation == "identity":
            return y
        if layer.activation not in _ACTIVATIONS:
            raise ConfigurationError(f"a comparison with onnxruntime has no {layer.activation}")
        return self._node(_ACTIVATIONS[layer.activation], y)

    def _norm(self, layer: Norm, x: str) -> str:
        def mean(name: str) -> str:
            return self._node("ReduceMean", name, axes=[-1])

        x = self._node("Sub", x, mean(x)) if layer.centre else x
        variance = self._node("Add", mean(self._node("Mul", x, x)), self._constant(np.array(layer.epsilon)))
        y = self._node("Div", x, self._node("Sqrt", variance))
        for operator, values in (("Mul", layer.gain), ("Add", layer.bias)):
            y = y if values is None else self._node(operator, y, self._constant(values))
        return y

    def _recurrent(self, layer: PseudoLayer | Bidirectional, x: str) -> str:
        both = _directions(layer)
        first = both[0]
        merged = isinstance(layer, Bidirectional) and layer.merge != "concat"
        linear = isinstance(first, Rnn) and first.activation.name == "identity"
        if merged or not (linear or all(map(_plain, both))):
            raise ConfigurationError(f"a comparison with onnxruntime has no layer like {layer.name!r}")
        cell = OnnxCell.of(first)
        weights = [
            self._constant(np.concatenate([onnx_gates(getattr(each, name), cell.order) for each in both]))
            for name in ("w_ih", "w_hh")
        ]
        pairs = map(both_biases, both)
        rows = [np.concatenate([onnx_gates(bias, cell.order) for bias in pair], axis=1) for pair in pairs]
        begins = []
        if self._states:
            begins = [
                f"{state}{sum(name.startswith(state) for name in self._begins)}" for state in cell.states
            ]
            self._begins |= dict.fromkeys(begins, first.units)
        y = self._node(
            cell.operator,
            *(x, *weights, self._constant(np.concatenate(rows)), "lengths", *begins),
            hidden_size=first.units,
            direction="bidirectional" if len(both) > 1 else "reverse" if first.reverse else "forward",
            **cell.options,
        )
        # Steps, directions, sequences, units.
        y = self._node("Transpose", y, perm=[0, 2, 1, 3])
        return self._node("Reshape", y, self._constant(np.array([0, 0, -1])))


def _directions(layer: PseudoLayer | Bidirectional) -> list[PseudoLayer]:
    return [layer.forward, layer.backward] if isinstance(layer, Bidirectional) else [layer]


def _plain(layer: PseudoLayer) -> bool:
    """Whether a layer is an LSTM or a GRU without anything more."""
    if isinstance(layer, Lstm):
        defaults: dict[str, Any] = {"peephole": None, "projection": None, "coupled": False, "cell_clip": None}
    elif isinstance(layer, Gru):
        defaults = {"reset_after": True}
    else:
        return False
    defaults |= {"clip": None, "reversed_output": False}
    functions = ("gate", "candidate", "output_activation")
    defaults |= {
        name: type(layer).model_fields[name].default for name in functions if name in type(layer).model_fields
    }
    return all(getattr(layer, name) == value for name, value in defaults.items())


# The same arithmetic in numpy


def run_int8(network: Network, data: Calibration, per_channel: bool) -> Floats:
    """Return what dynamic int8 gives with sums that hold every product, for GRU layers, too.

    onnxruntime has no int8 GRU, and without VNNI a processor's sums of two products saturate at 16 bits.
    Weights have 8 bits with sign, a scale for each matrix or each row of it. What a matrix is multiplied with
    has 8 bits without sign in a range of the whole tensor: x of all steps, h of all sequences. Recurrent
    layers that are neither LSTM nor GRU are in float.
    """
    x, given, states = data.x, [data.x], iter([]) if data.state is None else _begins(network, data.state)
    for layer in network.layers:
        read = [np.maximum(given[-one.back], 0.0) if one.relu else given[-one.back] for one in layer.sources]
        x = np.concatenate(read, axis=-1)
        if isinstance(layer, Dense):
            y = layer.bias
            for values, (_, weight) in zip(read, layer.products, strict=True):
                y = y + _dynamic(values) @ _symmetric(weight, 8, per_channel).T
            x = np.where(data.alive[..., None], layer.function(y), 0.0)
        elif not isinstance(layer, Norm) and all(map(_plain, _directions(layer))):
            found = [
                _int8_layer(each, x, data.alive, per_channel, next(states, None))
                for each in _directions(layer)
            ]
            x = np.concatenate(found, axis=-1)
        else:
            directions = [] if isinstance(layer, Norm) else _directions(layer)
            some = [next(states) for _ in directions] if data.state is not None else []
            begin = ([h for h, _ in some], [c for _, c in some if c is not None]) if some else None
            alone = layer
            if not isinstance(layer, Bidirectional | Norm):
                alone = layer.replace(reads=(), input_relu=False)
            x = run_float(Network(layers=(alone,)), x, begin, data.lengths).y
        given.append(x)
    return x


def _begins(network: Network, state: FloatState) -> Iterator[tuple[Floats, Floats | None]]:
    """Yield h and c of each direction before the first step."""
    cells = iter(state[1])
    for layer, h in zip(network.pseudo_layers, state[0], strict=True):
        yield h, next(cells) if isinstance(layer, Lstm) else None


def _int8_layer(
    layer: PseudoLayer,
    x: Floats,
    alive: NDArray[np.bool_],
    per_channel: bool,
    begin: tuple[Floats, Any] | None,
) -> Floats:
    assert isinstance(layer, Lstm | Gru)
    h, c = (np.zeros((x.shape[1], layer.units)),) * 2 if begin is None else begin
    w_ih, w_hh = (_symmetric(each, 8, per_channel).T for each in (layer.w_ih, layer.w_hh))
    bias, recurrent_bias = (layer.bias, 0.0) if isinstance(layer, Lstm) else (layer.bias_ih, layer.bias_hh)
    parts, y = _dynamic(x) @ w_ih + bias, np.zeros((*x.shape[:2], layer.units))
    for step in range(len(x))[:: -1 if layer.reverse else 1]:
        part, other, on = parts[step], _dynamic(h) @ w_hh + recurrent_bias, alive[step, :, None]
        if isinstance(layer, Lstm):
            i, f, g, o = np.split(part + other, 4, axis=1)
            now = layer.gate(f) * c + layer.gate(i) * layer.candidate(g)
            c = np.where(on, now, c)
            new = layer.gate(o) * layer.output_activation(now)
        else:
            (r, z, n), (r_h, z_h, n_h) = np.split(part, 3, axis=1), np.split(other, 3, axis=1)
            z = layer.gate(z + z_h)
            new = (1.0 - z) * layer.candidate(n + layer.gate(r + r_h) * n_h) + z * h
        h = np.where(on, new, h)
        y[step] = np.where(on, new, 0.0)
    return y


def _dynamic(values: Floats) -> Floats:
    """Round as DynamicQuantizeLinear does: to 8 bits without sign, in a range of all values that has zero."""
    low, high = min(0.0, float(values.min())), max(0.0, float(values.max()))
    scale = (high - low) / 255.0 or 1.0
    zero = np.round(-low / scale)
    return np.asarray((np.clip(np.round(values / scale) + zero, 0, 255) - zero) * scale)


def _symmetric(weights: Floats, bits: int, per_channel: bool = False) -> Floats:
    """Round weights with one scale, or one for each row."""
    most = 2 ** (bits - 1) - 1
    scale = np.abs(weights).max(axis=1 if per_channel else None, keepdims=True) / most
    scale = np.where(scale > 0, scale, 1.0)
    return np.asarray(np.round(weights / scale) * scale)


# Plain rounding


def round_weights(network: Network, bits: int) -> Network:
    """Return the network with each matrix of weights rounded with one scale; all else stays."""

    def rounded(layer: Layer) -> Layer:
        if isinstance(layer, Bidirectional):
            return layer.replace(forward=rounded(layer.forward), backward=rounded(layer.backward))
        names = ("weight", "w_ih", "w_hh", "projection")
        found = {name: getattr(layer, name, None) for name in names}
        return layer.replace(
            **{name: _symmetric(each, bits) for name, each in found.items() if each is not None}
        )

    return network.replace(layers=tuple(map(rounded, network.layers)))
