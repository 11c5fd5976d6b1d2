"""What each operation of PyTorch becomes in the graph: one table, by the operation's name.

A function, a method, an operator of ATen and TorchScript, and a module with its options as arguments have one
name and one entry. Arguments are taken by position or by name; those of operators of ATen all have names.
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from rtlstm.gen.frontends.formulas import ALONE
from rtlstm.gen.frontends.graph import BY_INDEX, Recurrent, Words
from rtlstm.gen.frontends.tensors import PARAMETERS, PLAIN, bidirectional_layer, recurrent_layer
from rtlstm.gen.frontends.torch.translate import (
    Call,
    Constant,
    Number,
    Operation,
    Packed,
    Parts,
    Shape,
    Tensor,
    flat,
    whole,
)
from rtlstm.spec.activations.functions import ACTIVATIONS, TANH, ActivationFunction, function, functions
from rtlstm.spec.errors import ModelError
from rtlstm.spec.network import Gru, Lstm, Rnn

_END = 2**63 - 1
Translation = Callable[[Call], Any]
Step = tuple[str, tuple[Any, ...], dict[str, Any]]
"""A node: its operator, what it reads in addition, and its attributes."""


# Names


def find(operation: str) -> Operation | None:
    """What translates an operation; None for one that is not known."""
    if operation in OPERATIONS or (name := functions("torch").get(operation)) is None:
        return OPERATIONS.get(operation)
    definition = ACTIVATIONS[name]
    names = definition.torch.parameters if definition.torch else ()
    return Operation(_activation, " ".join(["x", *names, *definition.fixed, "inplace"]))


def supported() -> str:
    """What may follow a recurrent layer, for a message; activations of installed packages included."""
    activations = {"Hardsigmoid", "PReLU", "ReLU6", "Softplus", "Threshold", *_activation_modules()}
    return (
        "LSTM, GRU, RNN and their cells, Linear, Embedding, BatchNorm1d, LayerNorm, RMSNorm, causal Conv1d, "
        f"{', '.join(sorted(activations))}, Dropout, Identity, Flatten, packing and padding of sequences, "
        "sums, products, the larger or smaller of two, einsum with constants, concatenation and slices of "
        "features, sums, means and maxima over steps, the last step [-1], and moving of axes"
    )


ATTACH = "rtlstm.host.torch.attach(model, {part!r}, x) takes every call to the core"
SPLIT = "rtlstm.split(model, x) leaves in PyTorch what the core cannot compute"


def words() -> Words:
    """How messages name the parts of a model of PyTorch."""
    needed = "an nn.LSTM, nn.GRU, nn.RNN or a cell, or an nn.Linear or nn.Conv1d, on the way to its output"
    return Words("a recurrent module", "a node or module", supported(), needed)


def modules() -> Mapping[str, tuple[str, tuple[str, ...]]]:
    """Classes of torch.nn that are supported: the operation, and the attributes that are its arguments.

    An activation without attributes here has those that its class names as constants.
    """
    return _MODULES | {module: (operation, ()) for module, operation in _activation_modules().items()}


def _activation_modules() -> dict[str, str]:
    """The functions of ``torch.nn.functional`` by their modules."""
    named = (each.torch for each in ACTIVATIONS.values() if each.torch is not None)
    return {names.module: names.function.split()[0] for names in named}


_CONVOLUTION = "conv weight bias stride padding dilation groups padding_mode"
_MODULES: dict[str, tuple[str, tuple[str, ...]]] = {
    name: (operation, tuple(attributes))
    for names, (operation, *attributes) in {
        "AlphaDropout Dropout Dropout1d FeatureAlphaDropout Identity": ["identity"],
        "BatchNorm1d": ["batch_norm", "running_mean", "running_var", "weight", "bias", "eps"],
        "ConstantPad1d": ["pad", "padding", "value"],
        "Conv1d Conv2d": _CONVOLUTION.split(),
        "Embedding": ["embedding", "weight", "max_norm"],
        "GLU": ["glu", "dim"],
        "Flatten": ["flatten", "start_dim", "end_dim"],
        "GRU GRUCell LSTM LSTMCell RNN RNNCell": ["recurrent"],
        "Hardsigmoid": ["hardsigmoid"],
        "LayerNorm": ["layer_norm", "normalized_shape", "weight", "bias", "eps"],
        "Linear": ["linear", "weight", "bias"],
        "RMSNorm": ["rms_norm", "normalized_shape", "weight", "eps"],
        "LogSoftmax": ["log_softmax", "dim"],
        "ReLU6": ["relu6", "inplace"],
        "Softmax": ["softmax", "dim"],
        "Hardshrink": ["hardshrink", "lambd"],
        "Softshrink": ["softshrink", "lambd"],
        "Tanhshrink": ["tanhshrink"],
        "PReLU": ["prelu", "weight"],
        "Softplus": ["softplus", "beta", "threshold"],
        "Threshold": ["threshold", "threshold", "value"],
        "Unflatten": ["unflatten", "dim", "unflattened_size"],
        "ZeroPad1d": ["pad", "padding"],
    }.items()
    for name in names.split()
}


# Layers

_COMPUTED = f"must read its weights from the model's parameters, not compute them; {PLAIN}"


def _weight(call: Call, name: str) -> Any:
    """A weight: a parameter, or what constants make of parameters."""
    value = call.get(name)
    if not isinstance(value, Constant):
        raise ModelError(f"{call.where} {_COMPUTED}")
    return value


def _addmm(call: Call) -> Any:
    factors: dict[str, Any] = {name: call.number(name, 1.0) for name in ("alpha", "beta")}
    return call.emit("gemm", call.get("mat1"), call.get("mat2"), call.x, **factors)


def _conv(call: Call) -> Any:
    weight, mode = _weight(call, "weight"), call.get("padding_mode", default="zeros")
    if call.get("transposed") is True:
        return call.unknown()
    kernel = weight.value.shape[2:]

    def each(name: str, default: int) -> list[int]:
        values = call.wholes(call.get(name, default=default), name)
        return values * len(kernel) if len(values) == 1 else values

    strides, dilations = each("stride", 1), each("dilation", 1)
    padding = call.get("padding", default=0)
    if isinstance(padding, str):
        total = [d * (k - 1) * (padding == "same") for d, k in zip(dilations, kernel, strict=True)]
        pads = [size // 2 for size in total] + [size - size // 2 for size in total]
    else:
        pads = each("padding", 0) * 2
    group = call.whole(call.get("groups", default=1), "groups")
    options = {"strides": strides, "dilations": dilations, "pads": pads, "group": group, "padding_mode": mode}
    return call.emit("conv", call.x, weight, call.get("bias"), **options)


def _pad(call: Call) -> Any:
    amounts = call.wholes(call.get("pad"), "padding")
    mode, value = call.get("mode", default="constant"), call.get("value")
    axes, pads = [-1 - at for at in range(len(amounts) // 2)], [*amounts[0::2], *amounts[1::2]]
    return call.emit("pad", call.x, pads=pads, axes=axes, mode=mode, value=float(value or 0.0))


def _batch_norm(call: Call) -> Any:
    if call.get("training") is True:
        raise ModelError(f"{call.where} is in training mode; call eval() on the model, export again")
    if call.get("running_mean") is None:
        raise ModelError(f"{call.where} must be nn.BatchNorm1d with running statistics")
    mean, variance = _weight(call, "running_mean"), _weight(call, "running_var")
    size = mean.value.shape
    scale = Constant.of(np.ones(size)) if call.get("weight") is None else _weight(call, "weight")
    shift = Constant.of(np.zeros(size)) if call.get("bias") is None else _weight(call, "bias")
    return call.emit("batch_norm", call.x, scale, shift, mean, variance, epsilon=call.number("eps", 1e-5))


def _layer_norm(call: Call) -> Any:
    size = call.wholes(call.get("normalized_shape"), "normalized_shape")
    centre = "layer" in call.operation
    names = ("weight", "bias")[: 1 + centre]
    given = [None if call.get(name) is None else _weight(call, name) for name in names]
    # PyTorch's epsilon of an RMS norm is that of its numbers, if it has none.
    epsilon = call.number("eps", 1e-5 if centre else float(np.finfo(np.float32).eps))
    how: dict[str, Any] = {"axes": [-1 - at for at in range(len(size))], "size": math.prod(size)}
    return call.emit("layer_norm", call.x, *given, epsilon=epsilon, centre=centre, **how)


def _embedding(call: Call) -> Any:
    limit = call.get("max_norm")
    if limit is not None:
        raise ModelError(f"{call.where}: max_norm={limit} is not supported, only None")
    return call.emit("embedding", call.x, _weight(call, "weight"))


# Recurrent layers


@dataclass(frozen=True)
class _Layers:
    """The layers of a module or an operator, which are made when they are asked for."""

    call: Call
    kind: str
    weights: Mapping[str, Any]
    """Parameters by PyTorch's names."""
    count: int = 1
    both: bool = False
    relu: bool = False
    batch_first: bool = False
    dropout: float = 0.0

    @property
    def cell(self) -> bool:
        return self.kind.endswith("Cell")

    def __call__(self) -> Recurrent:
        if self.call.why:
            raise ModelError(self.call.why)
        made: list[Any] = []
        for number in range(self.count):
            name = self.call.label if self.count == 1 else f"{self.call.label}_l{number}"
            if self.both:
                forward = self._direction(number, f"{name}_forward", "")
                backward = self._direction(number, f"{name}_backward", "_reverse")
                made.append(bidirectional_layer(name, forward, backward, self.call.where))
            else:
                made.append(self._direction(number, name, ""))
        note = f"dropout={self.dropout} is ignored, for it has no effect in inference"
        return Recurrent(tuple(made), (note,) if self.dropout else ())

    def _direction(self, number: int, name: str, suffix: str) -> Lstm | Gru | Rnn:
        end = "" if self.cell else f"_l{number}{suffix}"
        names = {part: part + end for part in PARAMETERS if part + end in self.weights}
        title = f"{self.call.where} layer {number}" if self.count > 1 else self.call.where

        def get(key: str) -> Any:
            value = self.weights[key]
            if not isinstance(value, Constant):
                raise ModelError(f"{self.call.where} {_COMPUTED}")
            return value.value

        return recurrent_layer(get, names, name, title, reverse=bool(suffix), relu=self.relu)

    def added(self, states: Iterable[Any]) -> Any:
        """Add a node for them; give what the module gives, with tuples for its tuples."""
        call, long, x = self.call, self.kind.startswith("LSTM") or bool(self.call.why), self.call.x
        first = self.batch_first and not isinstance(x, Packed)
        axes = ("N", "F") if self.cell else ("N", "T", "F") if first else ("T", "N", "F")
        h, c = (*states, None, None)[:2]
        why = "has batch_first in PyTorch" if self.batch_first else ""
        given: dict[str, Any] = {"axes": axes, "why_sequences_first": why}
        given |= {} if self.cell else {"h_axes": ("D", "N", "F")}
        read, ends = (x, h, c if long else None), "hc"[: 1 + long]
        found = call.emit("recurrent", *read, outputs=ends, layers=self, **given)
        y = Packed(found[0]) if isinstance(x, Packed) else found[0]
        if self.cell and not call.why:
            return (y, found[2]) if long else y
        return (y, found[1:]) if long else (y, found[1])


def _recurrent_module(call: Call) -> Any:
    """A module of torch.nn, live or of TorchScript, whose parameters and options are its attributes."""
    states = list(flat(call.get("hx")))
    if call.why:
        return _Layers(call, call.kind, {}).added([])
    module, cell = call.module, call.kind.endswith("Cell")
    count, both = (0, False) if cell else (int(module.num_layers), bool(module.bidirectional))
    weights = {
        name: Constant.of(getattr(module, name), f"{call.label}.{name}")
        for name in _parameter_names(count, both)
        if getattr(module, name, None) is not None
    }
    relu, first = (getattr(module, name, None) for name in ("nonlinearity", "batch_first"))
    dropout = getattr(module, "dropout", 0)
    layers = _Layers(call, call.kind, weights, count or 1, both, relu == "relu", bool(first), dropout)
    return layers.added(states)


def _parameter_names(layers: int, both: bool) -> list[str]:
    """Names of a module's parameters in PyTorch's order; 0 layers are a cell."""
    return [
        f"{part}{number}{suffix}"
        for number in ([f"_l{layer}" for layer in range(layers)] or [""])
        for suffix in ("", "_reverse")[: 1 + both]
        for part in PARAMETERS
    ]


SEQUENCES = {"lstm": "LSTM", "gru": "GRU", "rnn_tanh": "RNN", "rnn_relu": "RNN"}


def _sequence(call: Call) -> Any:
    """``aten::lstm`` and its like: one tensor after another in place of a module's parameters."""
    kind = SEQUENCES[call.operation]
    if call.get("params") is None or call.get("batch_sizes") is not None:
        raise ModelError(
            f"the operator {call.label!r} reads a PackedSequence, which is not read from files; export "
            "the model without packing and give the lengths to the driver"
        )
    options = call.options()
    given, both = options["params"], bool(options["bidirectional"])
    layers, bias = int(options["num_layers"]), bool(options["has_biases"])
    each, rest = divmod(len(given), max(layers, 1) * (1 + both))
    parts = [part for part in PARAMETERS if bias or not part.startswith("bias")]
    parts = parts[: len(parts) - (each == len(parts) - 1)]
    if layers < 1 or rest or each != len(parts):
        raise ModelError(f"the operator {call.label!r} has {len(given)} weights, which do not fit its layers")
    names = [name for name in _parameter_names(layers, both) if name.rpartition("_l")[0] in parts]
    how = (call.operation == "rnn_relu", bool(options["batch_first"]), options.get("dropout") or 0.0)
    made = _Layers(call, kind, dict(zip(names, given, strict=True)), layers, both, *how)
    result = made.added(flat([options.get("hx")]))
    return (result[0], *result[1]) if kind == "LSTM" else result


def _cell(call: Call) -> Any:
    kind = f"{SEQUENCES[call.operation.removesuffix('_cell')]}Cell"
    given = {"weight_ih": "w_ih", "weight_hh": "w_hh", "bias_ih": "b_ih", "bias_hh": "b_hh"}
    options = call.options()
    weights = {part: options[name] for part, name in given.items() if options.get(name) is not None}
    made = _Layers(call, kind, weights, relu="relu" in call.operation)
    return made.added(flat([options.get("hx")]))


def _pack(call: Call) -> Any:
    return Packed(call.emit("pack", call.x, batch_first=bool(call.get("batch_first"))))


def _pack_in_parts(call: Call) -> Any:
    """What ``pack_padded_sequence`` calls, behind operators that put sequences in order."""
    raise ModelError(
        f"{call.where} is a part of pack_padded_sequence, of which a trace has the parts alone: save the "
        "module with torch.jit.script; lengths are given to the driver, run(x, lengths)"
    )


def _unpack(call: Call) -> Any:
    filling = call.get("padding_value", default=0.0)
    packed = call.x
    if not isinstance(packed, Packed):
        raise ModelError(f"{call.where} must read a PackedSequence")
    if filling != 0.0:
        raise ModelError(f"{call.where}: padding_value must be 0, not {filling}")
    return call.emit("unpack", packed, outputs=["lengths"], batch_first=bool(call.get("batch_first")))


# Arithmetic and activations


def _binary(call: Call, name: str) -> Any:
    first, second = call.x, call.get("other")
    if call.operation == "rsub":
        first, second = second, first
    # Sizes are joined, one list behind another.
    if any(isinstance(each, list | tuple | Shape) for each in (first, second)):
        return _sizes(call, [first, second])
    if name == "div" and call.get("rounding_mode") is not None:
        raise ModelError(f"{call.where}: rounding_mode is not supported")
    alpha = call.get("alpha")
    if alpha is not None and alpha != 1:
        second = call.emit("mul", second, alpha, inner=True)
    return call.emit(name, first, second)


def _lerp(call: Call) -> Any:
    """``x + weight (end - x)``."""
    gap = call.emit("sub", call.get("end"), call.x, inner=True)
    return call.emit("add", call.x, call.emit("mul", call.get("weight"), gap, inner=True))


def _addcmul(call: Call) -> Any:
    """``x + value * tensor1 * tensor2``."""
    product = call.emit("mul", call.get("tensor1"), call.get("tensor2"), inner=True)
    scaled = call.emit("mul", product, call.number("value", 1.0), inner=True)
    return call.emit("add", call.x, scaled)


def _var(call: Call) -> Any:
    """The mean square of what a tensor is less its mean."""
    if call.get("unbiased", default=call.get("correction", default=1)):
        raise ModelError(f"{call.where} must have unbiased=False, or correction=0: the mean of the squares")
    given: dict[str, Any] = {"axes": call.wholes(call.get("dim")), "keepdims": 1}
    mean = call.emit("reduce_mean", call.x, inner=True, **given)
    gap = call.emit("sub", call.x, mean, inner=True)
    square = call.emit("mul", gap, gap, inner=True)
    return call.emit("reduce_mean", square, **given | {"keepdims": int(bool(call.get("keepdim")))})


def _flip(call: Call) -> Any:
    axes = call.wholes(call.get("dims"))
    given: dict[str, Any] = {
        "starts": [-1] * len(axes),
        "ends": [-(2**63)] * len(axes),
        "steps": [-1] * len(axes),
    }
    return call.emit("slice", call.x, axes=axes, **given)


def _floordiv(call: Call) -> Any:
    one, other = call.x, call.get("other")
    if not isinstance(one, Number | int) or not isinstance(other, Number | int):
        raise ModelError(f"{call.where}: rounding_mode is not supported")
    return one // other if isinstance(one, int) and isinstance(other, int) else call.emit("div", one, other)


def _clamp(call: Call) -> Any:
    """Limits that are no single numbers are those of a maximum and a minimum, as in ONNX."""
    low, high = call.get("min"), call.get("max")
    values = (each.value if isinstance(each, Constant) else each for each in (low, high))
    if not any(isinstance(each, Tensor) or np.size(each) > 1 for each in values):
        return call.emit("clip", call.x, low, high)
    larger = call.x if low is None else call.emit("max", call.x, low, inner=high is not None)
    return larger if high is None else call.emit("min", larger, high)


def _shrink(call: Call) -> Any:
    """``x`` less what is near 0, or ``x`` where it is not near 0."""
    limit = call.number("lambd", 0.5)
    if call.operation == "hardshrink":
        size = call.emit("abs", call.x, inner=True)
        return call.emit("where", call.emit("greater", size, limit, inner=True), call.x, 0.0)
    return call.emit("sub", call.x, call.emit("clip", call.x, -limit, limit, inner=True))


def _activate(call: Call, function: ActivationFunction) -> Any:
    return call.emit("activation", call.x, function=function)


def _activation(call: Call) -> Any:
    name = functions("torch")[call.operation]
    known = {key: call.known(value, key) for key, value in call.options().items()}
    return _activate(call, function(name, known, call.where))


def _threshold(call: Call) -> Any:
    value = call.number("value")
    if value != 0.0:
        raise ModelError(f"{call.where}: value must be 0, not {value:g}")
    return _activate(call, ActivationFunction.of("thresholded_relu", call.number("threshold")))


def _softplus(call: Call) -> Any:
    """``log(1 + exp(beta x)) / beta``; above PyTorch's threshold, where that is linear, as good as equal."""
    beta, threshold = call.number("beta", 1.0), call.number("threshold", 20.0)
    softplus = ActivationFunction.of("softplus")
    if threshold < _STRAIGHT:
        raise ModelError(f"{call.where}: threshold must be {_STRAIGHT} or more, not {threshold:g}")
    if beta == 1.0:
        return _activate(call, softplus)
    scaled = call.emit("mul", call.x, beta, inner=True)
    return call.emit("mul", call.emit("activation", scaled, inner=True, function=softplus), 1.0 / beta)


_STRAIGHT = 16
"""From here on, softplus is its argument in 16 bits and more: PyTorch's threshold does not change it."""


def _heaviside(call: Call) -> Any:
    """1 above 0, and at 0 the given value, 0 or 1."""
    at_zero = call.number("values")
    if at_zero not in (0.0, 1.0):
        raise ModelError(f"{call.where}: values must be 0 or 1, what it gives at 0, not {at_zero:g}")
    return call.emit("greaterorequal" if at_zero else "greater", call.x, 0.0)


def _pair(operator: str, call: Call) -> Any:
    return call.emit(operator, call.x, call.get("other"))


def _reduce(call: Call) -> Any:
    axes, keep = call.get("dim"), int(bool(call.get("keepdim")))
    given: dict[str, Any] = {} if axes is None else {"axes": call.wholes(axes)}
    # max and min along an axis give positions, too
    outputs = ["indices"] if call.operation in ("max", "min") and axes is not None else []
    operator = f"reduce_{call.operation.removeprefix('a')}"
    return call.emit(operator, call.x, outputs=outputs, keepdims=keep, **given)


def _extreme(call: Call) -> Any:
    """The larger or smaller one of two tensors, or of one along an axis."""
    other = call.get("dim")
    return call.emit(call.operation, call.x, other) if isinstance(other, Tensor | Constant) else _reduce(call)


# What changes nothing


def _identity(call: Call) -> Any:
    x = call.x
    if isinstance(x, Constant) and call.kind == "clone":  # What is written over it leaves the first one.
        return Constant(lambda: x.value, x.name)
    return call.emit("identity", x) if isinstance(x, Tensor) else x


def _dropout(call: Call) -> Any:
    """Functional dropout, which is active by default."""
    given = call.get("training", default="left to its default, True")
    if given is not False:
        raise ModelError(
            f"{call.where}: training must be False, not {given}; write F.dropout(x, p, self.training) "
            "and call eval() on the model, or use nn.Dropout"
        )
    return _identity(call)


def _cast(call: Call) -> Any:
    given = (getattr(value, "is_floating_point", True) for value in flat(call.options()))
    return _integer(call) if any(value is False for value in given) else _identity(call)


def _integer(call: Call) -> Any:
    return call.emit("cast", call.x, floating=False) if isinstance(call.x, Tensor) else call.x


# Constants


def _repeated(call: Call, array: Any, shape: Sequence[int]) -> Constant:
    """A constant of this shape, whose size is counted before."""
    call.to.budget.take(shape, "a constant")
    return Constant.of(np.broadcast_to(array, shape))


def _filled(call: Call, sizes: Any) -> Any:
    """Zeros, ones, or a given number. A size that only a run knows is that of sequences: one is as good."""
    if isinstance(sizes, Constant):
        sizes = sizes.value.shape
    found = call.number("fill_value") if call.operation == "full" else float("ones" in call.operation)
    known = [whole(size) for size in (sizes if isinstance(sizes, list | tuple) else [])]
    made = _repeated(call, np.asarray(found), [1 if size is None else size for size in known])
    made.sizes = sizes if isinstance(sizes, list | tuple) else ()
    return made


def _expand(call: Call) -> Any:
    """A constant for every sequence: as the size that only a run knows, 1 will do."""
    if not isinstance(call.x, Constant):
        return call.unknown("expand")
    array, sizes = call.x.value, [whole(size) for size in call.rest("size")]
    try:
        array = array.reshape((1,) * (len(sizes) - array.ndim) + array.shape)
        known = zip(sizes, array.shape, strict=True)
        return _repeated(call, array, [old if size in (None, -1) else size for size, old in known])
    except ValueError:
        return call.unknown()


def _weight_norm(call: Call) -> Any:
    """A weight as its length along all axes but one, and its direction: an exported program computes it.

    An operator of a decomposed program gives the lengths of the direction, too.
    """
    lengths, axis = call.get("g"), call.whole(call.get("dim", default=0))
    if not isinstance(call.x, Constant) or not isinstance(lengths, Constant):
        return call.unknown()
    norms = _length(call.x.value, tuple(each for each in range(call.x.value.ndim) if each != axis))
    # Named as the weight of the module, so that the layer has the module's name.
    name = re.sub(r"\.parametrizations\.(\w+)\.original1$|\.(\w+)_v$", r".\1\2", call.x.name)
    weight = Constant.of(call.x.value * (lengths.value / norms), name)
    return (weight, Constant.of(norms)) if call.operation.endswith("interface") else weight


def _vector_norm(call: Call) -> Any:
    """The length of a constant along axes, which a decomposed program of weight norm computes."""
    axes, keep = call.get("dim"), bool(call.get("keepdim"))
    if not isinstance(call.x, Constant) or call.number("ord", 2.0) != 2.0:
        return call.unknown()
    along = tuple(range(call.x.value.ndim) if axes is None else call.wholes(axes))
    found = _length(call.x.value, along)
    return Constant.of(found if keep else found.squeeze(along))


def _length(array: Any, axes: tuple[int, ...]) -> Any:
    """The length along axes, which stay with size 1."""
    return np.sqrt((array**2).sum(axes, keepdims=True))


def _expand_as(call: Call) -> Any:
    """A constant is as good as it is, for what it is broadcast to."""
    call.read.add("other")
    return call.x if isinstance(call.x, Constant) else call.unknown("expand")


def _repeat(call: Call) -> Any:
    if not isinstance(call.x, Constant):
        return call.unknown("tile")
    array, counts = call.x.value, [whole(size) or 1 for size in call.rest("repeats")]
    call.to.budget.take([array.size, *counts], "a constant")
    return Constant.of(np.tile(array, counts))


def _arange(call: Call) -> Any:
    start, end, step = (call.get(name) for name in ("start", "end", "step"))
    step = 1 if step is None else step
    given = (0, start, step) if end is None else (start or 0, end, step)
    limits = [limit for each in given if (limit := whole(each)) is not None]
    if len(limits) < 3 or limits[2] == 0:
        return call.unknown()
    call.to.budget.take([len(range(*limits))], "a constant")
    return Constant.of(np.arange(*limits))


# Axes and parts


def _flatten(call: Call) -> Any:
    start, end = call.get("start_dim", default=0), call.get("end_dim", default=-1)
    return call.emit("flatten", call.x, start=call.whole(start), end=call.whole(end))


def _sizes(call: Call, values: Sequence[Any]) -> Any:
    """A list of sizes, as whole numbers or as a tensor of them."""
    found: list[Any] = []
    for value in values:
        if isinstance(value, Shape):
            sizes = call.size(value.tensor, 0, None)
            found += sizes if isinstance(sizes, list) else [sizes]
        elif isinstance(value, list | tuple):
            found += value
        else:
            found.append(value)
    known = [whole(value) for value in found]
    if None not in known:
        return known
    parts = [
        value if isinstance(value, Tensor) else Constant.of(np.array([call.whole(value, "sizes")]))
        for value in found
    ]
    return parts[0] if len(parts) == 1 else call.emit("concat", *parts, inner=True, axis=0)


def _reshape(call: Call) -> Any:
    sizes: Any = call.rest("shape")
    if not all(isinstance(size, Tensor | Shape | Constant | int) for size in sizes):
        return call.unknown()
    if isinstance(call.x, Constant):
        sizes = [-1 if whole(size) is None else whole(size) for size in sizes]
    shape = _sizes(call, sizes)
    if isinstance(shape, list):
        return call.emit("reshape", call.x, shape=shape)
    return call.emit("reshape", call.x, shape)


def _unflatten(call: Call) -> Any:
    axis, sizes = call.whole(call.get("dim")), list(call.get("unflattened_size"))
    before = [call.size(call.x, 0, axis)] if axis else []
    after = [call.size(call.x, axis + 1, None)] if axis != -1 else []
    return call.emit("reshape", call.x, _sizes(call, [*before, *sizes, *after]))


def _movedim(call: Call) -> Any:
    """Move one axis to another position: it is exchanged with each axis between."""
    source, target = call.whole(call.get("source")), call.whole(call.get("destination"))
    if (source < 0) != (target < 0):
        raise ModelError(f"{call.where} must name both axes from the front, or both from the end")
    step = 1 if source < target else -1
    walk = range(source, target, step)
    return call.chain(call.x, [("transpose", (), {"swap": [at, at + step]}) for at in walk])


def _squeeze(call: Call) -> Any:
    axes = call.get("dim")
    given: dict[str, Any] = {} if axes is None else {"axes": call.wholes(axes)}
    return call.emit("squeeze", call.x, strict=0, **given)


def _element(call: Call, axis: int, index: Any) -> Step:
    return "select", (), {"axis": axis, "index": call.whole(index, "indices")}


def _cut(call: Call, axis: int, start: Any, end: Any, step: Any = None) -> Step:
    limits = (0 if start is None else start, _END if end is None else end, 1 if step is None else step)
    starts, ends, steps = ([call.whole(limit, "indices")] for limit in limits)
    return "slice", (), {"axes": [axis], "starts": starts, "ends": ends, "steps": steps}


def _slice(call: Call) -> Any:
    limits = [call.get(key) for key in ("start", "end", "step")]
    if isinstance(call.x, list | tuple | Shape | Number):  # of sizes, in TorchScript
        return _part(call, call.x, slice(*limits))
    return call.chain(call.x, [_cut(call, call.axis(), *limits)])


def _narrow(call: Call) -> Any:
    axis, start, length = (call.whole(call.get(key)) for key in ("dim", "start", "length"))
    end = None if start < 0 and start + length == 0 else start + length
    return call.chain(call.x, [_cut(call, axis, start, end)])


def _by_index(call: Call) -> Any:
    """Elements that a tensor of indices names, one for each sequence."""
    raise ModelError(f"{call.where} {BY_INDEX}")


def _chunk(call: Call) -> Any:
    count, axis = call.whole(call.get("chunks")), call.axis()
    found = call.emit("split", call.x, outputs=range(1, count), axis=axis)
    return found if count > 1 else (found,)


def _split(call: Call) -> Any:
    sizes = call.get("split_size_or_sections")
    x, axis = call.x, call.axis()
    if isinstance(sizes, list | tuple):
        split = call.wholes(sizes, "sizes")
        found = call.emit("split", x, outputs=range(1, len(split)), axis=axis, split=split)
        return found if len(split) > 1 else (found,)
    size = call.whole(sizes, "sizes")
    return Parts(
        lambda later, at: later.chain(x, [_cut(later, axis, at * size, (at + 1) * size)]),
        (lambda later: later.size(x, axis, axis + 1 or None)) if size == 1 else None,
    )


def _unbind(call: Call) -> Any:
    axis, x = call.axis(), call.x
    return Parts(
        lambda later, at: later.chain(x, [_element(later, axis, at)]),
        lambda later: later.size(x, axis, axis + 1 or None),
    )


def _len(call: Call) -> Any:
    x = call.x
    if isinstance(x, Tensor):
        return call.size(x, 0, 1)
    if isinstance(x, Parts):
        return call.unknown() if x.count is None else x.count(call)
    return len(x)


def _size(call: Call) -> Any:
    axis = call.get("dim")
    return Shape(call.x) if axis is None else _part(call, Shape(call.x), call.whole(axis))


def _attribute(call: Call) -> Any:
    x, name = call.x, call.get("name")
    if name == "shape":
        return Shape(x)
    if name == "data":
        return x
    if name in ("T", "mT", "H", "mH"):
        return call.emit("transpose", x) if name in "TH" else call.emit("transpose", x, swap=[-2, -1])
    if name in ("values", "indices") and isinstance(x, tuple):  # of a maximum along an axis
        return x[name == "indices"]
    if name in ("device", "dtype"):
        return name
    if name in ("batch_sizes", "ndim", "sorted_indices", "unsorted_indices"):
        return call.unknown()
    raise ModelError(f"{call.where}: attribute {name!r} is not supported")


def _item(call: Call) -> Any:
    """An item of a tuple or a list, or a part of a tensor."""
    return _part(call, call.x, call.get("key"))


def _part(call: Call, value: Any, key: Any) -> Any:
    if isinstance(value, list | tuple):
        if not isinstance(key, int | slice):
            raise ModelError(f"{call.where} must index a tuple with a number, not {key!r}")
        if isinstance(key, int) and not -len(value) <= key < len(value):
            raise ModelError(
                f"{call.where} takes element {key} of a tuple of {len(value)}; where a loop goes over the "
                "tuple, unpack it into names first"
            )
        return value[key]
    if isinstance(value, Parts):
        return value.take(call, call.whole(key, "indices"))
    if isinstance(value, Packed):
        return value if key == 0 else call.unknown()
    if isinstance(value, Shape):
        start, end = (key.start or 0, key.stop) if isinstance(key, slice) else (key, key + 1 or None)
        found = call.size(value.tensor, call.whole(start), None if end is None else call.whole(end))
        return found[0] if isinstance(found, list) and not isinstance(key, slice) else found
    if isinstance(key, list) and all(isinstance(item, int) for item in key):
        key = (key,)
    return call.chain(value, _index(call, key if isinstance(key, list | tuple) else (key,)))


def _set_item(call: Call) -> Any:
    """An element of one axis, as `y[:, t] = h` writes it; other parts are not read."""
    key = call.get("index")
    match _index(call, key if isinstance(key, tuple) else (key,)):
        case [("select", _, {"axis": axis, "index": index})]:
            return call.to.write(call, call.x, axis, index, call.get("value"))
    return call.unknown()


def _copied(call: Call) -> Any:
    found = call.to.element(call.x) if call.overwrites else None
    if found is None:
        return call.unknown()
    call.to.write(call, *found, call.get("src"))
    return call.get("src")


def _index(call: Call, key: Sequence[Any]) -> list[Step]:
    """The nodes of an index; after an ellipsis, axes are counted from the end."""
    at = next((number for number, item in enumerate(key) if item is Ellipsis), len(key))
    steps: list[Step] = []
    for items, axis, direction in ((key[:at], 0, 1), (key[:at:-1], -1, -1)):
        for item in items:
            found = _one_index(call, axis, item)
            steps += found
            axis += direction * (not found or found[0][0] != "select")
    return steps


def _one_index(call: Call, axis: int, item: Any) -> list[Step]:
    if item is None:
        return [("unsqueeze", (), {"axes": [axis]})]
    if isinstance(item, slice):
        return [] if item == slice(None) else [_cut(call, axis, item.start, item.stop, item.step)]
    if isinstance(item, list | tuple) or (isinstance(item, Constant) and item.value.ndim == 1):
        indices = item if isinstance(item, Constant) else Constant.of(np.array(call.wholes(item, "indices")))
        return [("gather", (indices,), {"axis": axis})]
    if isinstance(item, Tensor) and not isinstance(item, Number):
        _by_index(call)
    return [_element(call, axis, item)]


_TABLE: dict[str, Translation] = {
    # Layers
    "linear: x weight bias": lambda call: call.emit(
        "linear", call.x, _weight(call, "weight"), call.get("bias")
    ),
    "addmm: x mat1 mat2 beta alpha": _addmm,
    "bmm matmul mm: x other/mat2": partial(_pair, "matmul"),
    "_convolution _convolution_mode conv conv1d conv2d convolution: "
    "x weight bias stride padding dilation groups transposed": _conv,
    "batch_norm: x running_mean running_var weight bias training momentum eps": _batch_norm,
    "layer_norm: x normalized_shape weight bias eps cudnn_enable": _layer_norm,
    "rms_norm: x normalized_shape weight eps": _layer_norm,
    "embedding: x/indices weight padding_idx max_norm norm_type scale_grad_by_freq sparse": _embedding,
    "recurrent: x *hx": _recurrent_module,
    "lstm gru rnn_tanh rnn_relu: "
    "x hx params has_biases num_layers dropout train bidirectional batch_first": _sequence,
    "lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell: x hx w_ih w_hh b_ih b_hh": _cell,
    "pack_padded_sequence: x lengths batch_first enforce_sorted": _pack,
    "_pack_padded_sequence: x lengths batch_first": _pack_in_parts,
    "pad_packed_sequence: x/sequence batch_first padding_value total_length": _unpack,
    "constant_pad_nd pad: x pad/padding mode value": _pad,
    # Arithmetic and activations
    "add iadd: x other alpha": lambda call: _binary(call, "add"),
    "isub rsub sub subtract: x other alpha": lambda call: _binary(call, "sub"),
    "imul mul multiply: x other": lambda call: _binary(call, "mul"),
    "div divide itruediv true_divide truediv: x other rounding_mode": lambda call: _binary(call, "div"),
    "floordiv: x other": _floordiv,
    "max min: x dim/other keepdim": _extreme,
    "amax amin: x dim keepdim": _reduce,
    "glu: x dim": lambda call: call.emit("glu", call.x, axis=call.whole(call.get("dim", default=-1))),
    "addcmul: x tensor1 tensor2 value": _addcmul,
    "flip: x dims": _flip,
    "lerp: x end weight": _lerp,
    "var: x dim unbiased keepdim correction": _var,
    "neg negative": lambda call: call.emit("neg", call.x),
    "clamp clip: x min max": _clamp,
    "clamp_min: x min": _clamp,
    "clamp_max: x max": _clamp,
    "ge greater_equal: x other": partial(_pair, "greaterorequal"),
    "less lt: x other": partial(_pair, "less"),
    "le less_equal: x other": partial(_pair, "lessorequal"),
    "maximum: x other": partial(_pair, "max"),
    "logaddexp: x other": partial(_pair, "logaddexp"),
    "logsumexp: x dim keepdim": _reduce,
    "einsum: x/equation *operands/tensors": lambda call: call.emit(
        "einsum", *call.rest("operands"), equation=call.known(call.x, "its equation")
    ),
    "minimum: x other": partial(_pair, "min"),
    "greater gt: x other": partial(_pair, "greater"),
    "heaviside: x values": _heaviside,
    "where: condition x other": lambda call: call.emit("where", *map(call.get, ("condition", "x", "other"))),
    "masked_fill: x mask value": lambda call: call.emit("where", *map(call.get, ("mask", "value")), call.x),
    "hardshrink softshrink: x lambd": _shrink,
    "tanhshrink": lambda call: call.emit(
        "sub", call.x, call.emit("activation", call.x, inner=True, function=TANH)
    ),
    "hardsigmoid: x inplace": lambda call: _activate(call, ActivationFunction.of("hard_sigmoid", 1 / 6, 0.5)),
    "relu6: x inplace": lambda call: _activate(call, ActivationFunction.of("hard_tanh", 0.0, 6.0)),
    "softplus: x beta threshold": _softplus,
    "threshold: x threshold value inplace": _threshold,
    "prelu: x weight": lambda call: call.emit("prelu", call.x, _weight(call, "weight"), axis=1),
    "mean sum: x dim keepdim dtype": _reduce,
    "argmax: x dim keepdim": lambda call: call.emit("argmax", call.x, axis=whole(call.get("dim"))),
    "log_softmax softmax: x dim _stacklevel dtype": lambda call: call.emit(
        call.operation, call.x, axis=whole(call.get("dim"))
    ),
    " ".join(ALONE): lambda call: call.emit(call.operation, call.x),
    "ipow pow: x exponent/other": lambda call: call.emit("pow", call.x, call.get("exponent")),
    # What changes nothing
    "alias clone contiguous cpu cuda detach double float half: x device non_blocking": _identity,
    "identity lift_fresh_copy requires_grad: x requires_grad": _identity,
    "alpha_dropout dropout dropout1d feature_alpha_dropout feature_dropout: "
    "x p training/train inplace": _dropout,
    "_to_copy to type type_as: x *kind": _cast,
    "bool int long short: x memory_format": _integer,
    # Constants
    "empty ones zeros: *size": lambda call: _filled(call, call.rest("size")),
    "full: size fill_value": lambda call: _filled(call, call.get("size")),
    "new_empty new_ones new_zeros: x *size": lambda call: _filled(call, call.rest("size")),
    "ones_like zeros_like": lambda call: _filled(call, call.x),
    "broadcast_to expand: x *size/sizes": _expand,
    "expand_as: x other": _expand_as,
    "repeat tile: x *repeats/dims": _repeat,
    "arange: start end step": _arange,
    "_weight_norm _weight_norm_interface: x/v g dim": _weight_norm,
    "linalg_vector_norm: x ord dim keepdim dtype": _vector_norm,
    # Axes and parts
    "flatten: x start_dim end_dim": _flatten,
    "_unsafe_view reshape view: x *shape/size": _reshape,
    "reshape_as view_as: x other": lambda call: call.emit(
        "reshape", call.x, _sizes(call, [Shape(call.get("other"))])
    ),
    "unflatten: x dim unflattened_size/sizes": _unflatten,
    "swapaxes swapdims transpose: x dim0 dim1": lambda call: call.emit(
        "transpose", call.x, swap=call.wholes([call.get("dim0"), call.get("dim1")])
    ),
    "t": lambda call: call.emit("transpose", call.x, swap=[0, 1]),
    "adjoint mT": lambda call: call.emit("transpose", call.x, swap=[-2, -1]),
    "numpy_T": lambda call: call.emit("transpose", call.x),
    "permute: x *dims": lambda call: call.emit("transpose", call.x, perm=call.wholes(call.rest("dims"))),
    "moveaxis movedim: x source destination": _movedim,
    "squeeze: x dim": _squeeze,
    "unsqueeze: x dim": lambda call: call.emit("unsqueeze", call.x, axes=[call.whole(call.get("dim"))]),
    "select: x dim index": lambda call: call.chain(
        call.x, [_element(call, call.whole(call.get("dim")), call.get("index"))]
    ),
    "slice: x dim start end step": _slice,
    "narrow: x dim start length": _narrow,
    "index_select: x dim index": lambda call: call.emit(
        "gather", call.x, call.get("index"), axis=call.whole(call.get("dim"))
    ),
    "setitem: x index value": _set_item,
    "copy: x src non_blocking": _copied,
    "gather: x dim index sparse_grad": _by_index,
    "take_along_dim: x indices dim": _by_index,
    # One that is left out stands for a whole axis.
    "index: x indices": lambda call: call.chain(
        call.x, _index(call, [slice(None) if item is None else item for item in call.get("indices")])
    ),
    "chunk: x chunks dim": _chunk,
    "split split_with_sizes: x split_size_or_sections/split_size/split_sizes dim": _split,
    "unbind: x dim": _unbind,
    "cat concat concatenate: x/tensors dim": lambda call: call.emit("concat", *call.x, axis=call.axis()),
    "stack: x/tensors dim": lambda call: call.emit("stack", *call.x, axis=call.axis()),
    "size sym_size: x dim": _size,
    "len: x/t": _len,
    "numel": lambda call: call.emit("size", call.x, inner=True),
    "getattr: x name": _attribute,
    "getitem: x key/idx": _item,
}
OPERATIONS = {
    name: Operation(translate, parameters or "x")
    for names, _, parameters, translate in ((*key.partition(":"), each) for key, each in _TABLE.items())
    for name in names.split()
}
