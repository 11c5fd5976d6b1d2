"""What each operation of PyTorch becomes in the graph: one table, by the operation's name.

A function, a method, an operator of ATen and TorchScript, and a module with its options as arguments have one
name and one entry. Arguments are taken by position or by name; those of operators of ATen all have names.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from rtlstm.gen.frontends.graph import Recurrent, Words
from rtlstm.gen.frontends.torch.cells import PARAMETERS, bidirectional_layer, recurrent_layer
from rtlstm.gen.frontends.torch.translate import (
    Call,
    Constant,
    Number,
    Packed,
    Parts,
    Shape,
    Tensor,
    flat,
    whole,
)
from rtlstm.gen.frontends.weight_parts import PLAIN
from rtlstm.spec.activations.functions import ACTIVATIONS, ActivationFunction, FunctionName, TorchNames
from rtlstm.spec.errors import ModelError
from rtlstm.spec.network import Gru, Lstm, Rnn

_END = 2**63 - 1
Translation = Callable[[Call], Any]
Step = tuple[str, tuple[Any, ...], dict[str, Any]]
"""A node: its operator, what it reads in addition, and its attributes."""


# Names


def activation_calls() -> dict[str, tuple[FunctionName, TorchNames]]:
    """The activation functions that PyTorch has, by its functions' names."""
    found = ((name, definition.torch) for name, definition in ACTIVATIONS.items())
    return {names.function: (name, names) for name, names in found if names is not None}


def find(operation: str) -> Translation | None:
    """What translates an operation; None for one that is not known."""
    if operation in _NAMES:
        return _NAMES[operation]
    return _activation if operation in activation_calls() else None


def supported() -> str:
    """What may follow a recurrent layer, for a message; activations of installed packages included."""
    others = {"Hardsigmoid", "ReLU6", "Softplus", "Threshold"}
    activations = others | {names.module for _, names in activation_calls().values()}
    return (
        "LSTM, GRU, RNN and their cells, Linear, Embedding, BatchNorm1d, causal Conv1d, "
        f"{', '.join(sorted(activations))}, Dropout, Identity, Flatten, packing and padding of sequences, "
        "sums, products with constants, concatenation and slices of features, the last step [-1], and moving "
        "of axes"
    )


def words() -> Words:
    """How messages name the parts of a model of PyTorch."""
    needed = "an nn.LSTM, nn.GRU, nn.RNN or a cell, or an nn.Linear or nn.Conv1d, on the way to its output"
    return Words("a recurrent module", "a node or module", supported(), needed)


def modules() -> Mapping[str, tuple[str, tuple[str, ...]]]:
    """Classes of torch.nn that are supported: the operation, and the attributes that are its arguments."""
    calls = activation_calls().items()
    return _MODULES | {names.module: (call, names.parameters) for call, (_, names) in calls}


_CONVOLUTION = ("weight", "bias", "stride", "padding", "dilation", "groups", "padding_mode")
_RECURRENT = ("GRU", "GRUCell", "LSTM", "LSTMCell", "RNN", "RNNCell")
_MODULES: dict[str, tuple[str, tuple[str, ...]]] = {
    "BatchNorm1d": ("batch_norm", ("running_mean", "running_var", "weight", "bias", "eps")),
    "ConstantPad1d": ("pad", ("padding", "value")),
    "Conv1d": ("conv", _CONVOLUTION),
    "Conv2d": ("conv", _CONVOLUTION),
    "Embedding": ("embedding", ("weight", "max_norm")),
    "Flatten": ("flatten", ("start_dim", "end_dim")),
    "Hardsigmoid": ("hardsigmoid", ()),
    "Linear": ("linear", ("weight", "bias")),
    "LogSoftmax": ("log_softmax", ("dim",)),
    "ReLU6": ("relu6", ()),
    "Softmax": ("softmax", ("dim",)),
    "Softplus": ("softplus", ("beta",)),
    "Threshold": ("threshold", ("threshold", "value")),
    "Unflatten": ("unflatten", ("dim", "unflattened_size")),
    "ZeroPad1d": ("pad", ("padding",)),
    **dict.fromkeys(
        ("AlphaDropout", "Dropout", "Dropout1d", "FeatureAlphaDropout", "Identity"), ("identity", ())
    ),
    **dict.fromkeys(_RECURRENT, ("recurrent", ())),
}


# Layers


def _weight(call: Call, at: int, name: str) -> Any:
    """A weight: a parameter, or what constants make of parameters."""
    value = call.get(at, name)
    if isinstance(value, Tensor) or value is None:
        raise ModelError(
            f"{call.where} must read its weights from the model's parameters, not compute them; {PLAIN}"
        )
    return value


def _linear(call: Call) -> Any:
    return call.emit("linear", call.x, _weight(call, 1, "weight"), call.get(2, "bias"))


def _addmm(call: Call) -> Any:
    alpha, beta = (call.number(at, name, 1.0) for at, name in ((4, "alpha"), (3, "beta")))
    return call.emit("gemm", call.get(1, "mat1"), call.get(2, "mat2"), call.x, alpha=alpha, beta=beta)


def _matmul(call: Call) -> Any:
    return call.emit("matmul", call.x, call.get(1, "other", "mat2", "vec"))


def _conv(call: Call) -> Any:
    weight, mode = _weight(call, 1, "weight"), call.get(99, "padding_mode", default="zeros")
    if call.get(6, "transposed") is True:
        return call.unknown()
    kernel = weight.value.shape[2:]

    def each(at: int, name: str, default: int) -> list[int]:
        values = call.wholes(call.get(at, name, default=default), name)
        return values * len(kernel) if len(values) == 1 else values

    strides, dilations = each(3, "stride", 1), each(5, "dilation", 1)
    padding = call.get(4, "padding", default=0)
    if isinstance(padding, str):
        total = [d * (k - 1) * (padding == "same") for d, k in zip(dilations, kernel, strict=True)]
        pads = [size // 2 for size in total] + [size - size // 2 for size in total]
    else:
        pads = each(4, "padding", 0) * 2
    group = call.whole(call.get(6, "groups", default=1), "groups")
    options = {"strides": strides, "dilations": dilations, "pads": pads, "group": group, "padding_mode": mode}
    return call.emit("conv", call.x, weight, call.get(2, "bias"), **options)


def _pad(call: Call) -> Any:
    amounts = call.get(1, "pad", "padding")
    mode, value = call.get(2, "mode", default="constant"), call.get(3, "value")
    amounts = call.wholes(amounts, "padding")
    axes = [-1 - at for at in range(len(amounts) // 2)]
    pads = [*amounts[0::2], *amounts[1::2]]
    return call.emit("pad", call.x, pads=pads, axes=axes, mode=mode, value=float(value or 0.0))


def _constant_pad(call: Call) -> Any:
    amounts = call.wholes(call.get(1, "pad"), "padding")
    given = {"pad": amounts, "value": call.get(2, "value", default=0.0)}
    return _pad(Call(call.to, "pad", (call.x,), given, call.label, call.kind, call.output))


def _batch_norm(call: Call) -> Any:
    if call.get(5, "training") is True:
        raise ModelError(f"{call.where} is in training mode; call eval() on the model, export again")
    mean, variance = _optional(call, 1, "running_mean"), _optional(call, 2, "running_var")
    if mean is None or variance is None:
        raise ModelError(f"{call.where} must be nn.BatchNorm1d with running statistics")
    scale, shift = _optional(call, 3, "weight"), _optional(call, 4, "bias")
    scale = Constant.of(np.ones(mean.value.shape)) if scale is None else scale
    shift = Constant.of(np.zeros(mean.value.shape)) if shift is None else shift
    epsilon = call.number(7, "eps", 1e-5)
    return call.emit("batch_norm", call.x, scale, shift, mean, variance, epsilon=epsilon)


def _optional(call: Call, at: int, name: str) -> Any:
    return None if call.get(at, name) is None else _weight(call, at, name)


def _embedding(call: Call) -> Any:
    limit = call.get(3, "max_norm")
    if limit is not None:
        raise ModelError(f"{call.where}: max_norm={limit} is not supported, only None")
    return call.emit("embedding", call.get(0, "input", "indices"), _weight(call, 1, "weight"))


# Recurrent layers


def _recurrent_module(call: Call) -> Any:
    """A module of torch.nn, live or of TorchScript, whose parameters and options are its attributes."""
    module, kind = call.module, call.kind
    if call.why:
        return _refused(call)
    cell = kind.endswith("Cell")
    layers, both = (1, False) if cell else (int(module.num_layers), bool(module.bidirectional))
    weights = {
        name: Constant.of(getattr(module, name), f"{call.label}.{name}")
        for name in parameter_names(0 if cell else layers, both)
        if getattr(module, name, None) is not None
    }
    states = list(flat([*call.args[1:], call.kwargs.get("hx"), call.kwargs.get("cx")]))
    relu = getattr(module, "nonlinearity", "tanh") == "relu"
    return recurrent(
        call, kind, weights, states, layers=layers, both=both, relu=relu,
        batch_first=bool(getattr(module, "batch_first", False)), dropout=getattr(module, "dropout", 0),
    )  # fmt: skip


def _refused(call: Call) -> Any:
    """Layers that are refused when they are asked for: the reader knows where the core would have begun."""

    def layers() -> Recurrent:
        raise ModelError(call.why)

    axes = ("N", "F") if call.kind.endswith("Cell") else ("T", "N", "F")
    given = {"layers": layers, "axes": axes, "y_axes": axes, "h_axes": axes}
    found = call.emit("recurrent", call.x, outputs="hc", **given)
    return found[0], found[1:]


def parameter_names(layers: int, both: bool) -> list[str]:
    """Names of a module's parameters in PyTorch's order; 0 layers are a cell."""
    return [
        f"{part}{number}{suffix}"
        for number in ([f"_l{layer}" for layer in range(layers)] or [""])
        for suffix in ("", "_reverse")[: 1 + both]
        for part in PARAMETERS
    ]


def recurrent(
    call: Call, kind: str, weights: Mapping[str, Any], states: Sequence[Any], *, layers: int = 1,
    both: bool = False, relu: bool = False, batch_first: bool = False, dropout: float = 0.0,
) -> Any:  # fmt: skip
    """Add the layers of a module or operator; give what the module gives, with tuples for its tuples."""
    cell, long, x = kind.endswith("Cell"), kind.startswith("LSTM"), call.x
    axes = (
        ("N", "F")
        if cell
        else ("N", "T", "F")
        if batch_first and not isinstance(x, Packed)
        else ("T", "N", "F")
    )
    made = partial(_layers, kind, call.label, call.where, weights, layers, both, relu, dropout)
    h, c = (*states, None, None)[:2]
    found = call.emit(
        "recurrent", x, h, c if long else None, outputs="hc"[: 1 + long],
        layers=made, axes=axes, y_axes=axes, h_axes=axes if cell else ("D", "N", "F"),
        why_sequences_first="has batch_first in PyTorch" if batch_first else "",
    )  # fmt: skip
    y = type(x)(found[0]) if isinstance(x, Packed) else found[0]
    if cell:
        return (y, found[2]) if long else y
    return (y, found[1:]) if long else (y, found[1])


def _layers(
    kind: str,
    label: str,
    where: str,
    weights: Mapping[str, Any],
    count: int,
    both: bool,
    relu: bool,
    dropout: float,
) -> Recurrent:
    cell = kind.endswith("Cell")

    def direction(number: int, name: str, suffix: str) -> Lstm | Gru | Rnn:
        suffix = "" if cell else f"_l{number}{suffix}"
        names = {part: part + suffix for part in PARAMETERS if part + suffix in weights}
        title = f"{where} layer {number}" if count > 1 else where

        def get(key: str) -> Any:
            value = weights[key]
            if not isinstance(value, Constant):
                raise ModelError(
                    f"{where} must read its weights from the model's parameters, not compute them; {PLAIN}"
                )
            return value.value

        return recurrent_layer(get, names, name, title, reverse=suffix.endswith("_reverse"), relu=relu)

    made: list[Any] = []
    for number in range(count):
        name = label if count == 1 else f"{label}_l{number}"
        if both:
            pair = direction(number, f"{name}_forward", ""), direction(number, f"{name}_backward", "_reverse")
            made.append(bidirectional_layer(name, *pair, where))
        else:
            made.append(direction(number, name, ""))
    note = f"dropout={dropout} is ignored, for it has no effect in inference"
    return Recurrent(tuple(made), (note,) if dropout else ())


_SEQUENCES = {"lstm": "LSTM", "gru": "GRU", "rnn_tanh": "RNN", "rnn_relu": "RNN"}


def _sequence(call: Call) -> Any:
    """``aten::lstm`` and its like: one tensor after another in place of a module's parameters."""
    kind = _SEQUENCES[call.operation]
    if "params" not in call.kwargs or "batch_sizes" in call.kwargs:
        raise ModelError(
            f"the operator {call.label!r} reads a PackedSequence, which is not read from an exported program or "
            "TorchScript; export the model without packing and give the lengths to the driver"
        )
    given, both = call.kwargs["params"], bool(call.kwargs["bidirectional"])
    layers, bias = int(call.kwargs["num_layers"]), bool(call.kwargs["has_biases"])
    each, rest = divmod(len(given), max(layers, 1) * (1 + both))
    parts = [part for part in PARAMETERS if bias or not part.startswith("bias")]
    parts = parts[: len(parts) - (each == len(parts) - 1)]
    if layers < 1 or rest or each != len(parts):
        raise ModelError(f"the operator {call.label!r} has {len(given)} weights, which do not fit its layers")
    names = [name for name in parameter_names(layers, both) if name.rpartition("_l")[0] in parts]
    result = recurrent(
        call, kind, dict(zip(names, given, strict=True)), list(flat([call.kwargs.get("hx")])),
        layers=layers, both=both, relu=call.operation.endswith("relu"),
        batch_first=bool(call.kwargs["batch_first"]), dropout=call.kwargs.get("dropout") or 0.0,
    )  # fmt: skip
    return (result[0], *result[1]) if kind == "LSTM" else result


def _cell(call: Call) -> Any:
    kind = _SEQUENCES[call.operation.removesuffix("_cell")]
    given = {"weight_ih": "w_ih", "weight_hh": "w_hh", "bias_ih": "b_ih", "bias_hh": "b_hh"}
    weights = {part: call.kwargs[name] for part, name in given.items() if call.kwargs.get(name) is not None}
    states = list(flat([call.kwargs.get("hx")]))
    return recurrent(call, f"{kind}Cell", weights, states, relu="relu" in call.operation)


def _pack(call: Call) -> Any:
    return Packed(call.emit("pack", call.x, batch_first=bool(call.get(2, "batch_first"))))


def _unpack(call: Call) -> Any:
    filling = call.get(2, "padding_value", default=0.0)
    packed = call.get(0, "sequence")
    if not isinstance(packed, Packed):
        raise ModelError(f"{call.where} must read a PackedSequence")
    if filling != 0.0:
        raise ModelError(f"{call.where}: padding_value must be 0, not {filling}")
    return call.emit("unpack", packed, outputs=["lengths"], batch_first=bool(call.get(1, "batch_first")))


# Arithmetic and activations


def _binary(name: str) -> Translation:
    def translate(call: Call) -> Any:
        first, second = call.x, call.get(1, "other", "b")
        if (
            name == "add"
            and isinstance(first, list | tuple | Shape | Number)
            and isinstance(second, list | tuple | Shape)
        ):
            return _sizes(call, [first, second])
        if name == "div" and call.get(2, "rounding_mode") is not None:
            raise ModelError(f"{call.where}: rounding_mode is not supported")
        alpha = call.get(2, "alpha")
        if alpha is not None and alpha != 1:
            second = call.emit("mul", second, alpha, inner=True)
        return call.emit(name, first, second)

    return translate


def _rsub(call: Call) -> Any:
    alpha, first = call.get(2, "alpha", default=1), call.x
    first = first if alpha == 1 else call.emit("mul", first, alpha, inner=True)
    return call.emit("sub", call.get(1, "other"), first)


def _floordiv(call: Call) -> Any:
    values = call.x, call.get(1, "other", "b")
    if not all(isinstance(value, Number | int) for value in values):
        raise ModelError(f"{call.where}: rounding_mode is not supported")
    return (
        values[0] // values[1]
        if all(isinstance(value, int) for value in values)
        else call.emit("div", *values)
    )


def _activate(call: Call, function: ActivationFunction) -> Any:
    return call.emit("activation", call.x, function=function)


def _activation(call: Call) -> Any:
    name, names = activation_calls()[call.operation]
    if call.operation == "elu" and any(
        call.get(at, key, default=1) != 1 for at, key in ((2, "scale"), (3, "input_scale"))
    ):
        return call.unknown()
    parameters = zip(names.parameters, ACTIVATIONS[name].defaults, strict=True)
    values = [call.number(1 + at, key, default) for at, (key, default) in enumerate(parameters)]
    return _activate(call, ActivationFunction.of(name, *values))


def _clamp(low: int | None, high: int | None) -> Translation:
    def translate(call: Call) -> Any:
        limits = [None if at is None else call.get(at, key) for at, key in ((low, "min"), (high, "max"))]
        return call.emit("clip", call.x, *limits)

    return translate


def _threshold(call: Call) -> Any:
    value = call.number(2, "value")
    if value != 0.0:
        raise ModelError(f"{call.where}: value must be 0, not {value:g}")
    return _activate(call, ActivationFunction.of("thresholded_relu", call.number(1, "threshold")))


def _softplus(call: Call) -> Any:
    """``log(1 + exp(beta x)) / beta``; above PyTorch's threshold, where that is linear, as good as equal."""
    beta, function = call.number(1, "beta", 1.0), ActivationFunction.of("softplus")
    if beta == 1.0:
        return _activate(call, function)
    scaled = call.emit("mul", call.x, beta, inner=True)
    return call.emit("mul", call.emit("activation", scaled, inner=True, function=function), 1.0 / beta)


def _reduce(name: str) -> Translation:
    def translate(call: Call) -> Any:
        axes, keep = call.get(1, "dim", "axis"), int(bool(call.get(2, "keepdim")))
        return call.emit(name, call.x, keepdims=keep, **({} if axes is None else {"axes": call.wholes(axes)}))

    return translate


def _scores(name: str) -> Translation:
    """Probabilities or classes of scores."""

    def translate(call: Call) -> Any:
        axis = whole(call.get(1, "dim"))
        if axis is None:
            raise ModelError(f"{call.where}: dim must be given, the axis of the features")
        return call.emit(name, call.x, axis=axis)

    return translate


def _host(function: Callable[[Any], Any]) -> Translation:
    """A function that is computed of constants alone."""

    def translate(call: Call) -> Any:
        if isinstance(call.x, Constant):
            with np.errstate(all="ignore"):
                return Constant.of(np.asarray(function(call.x.value.astype(np.float64))))
        return call.unknown()

    return translate


# What changes nothing


def _identity(call: Call) -> Any:
    return call.emit("identity", call.x) if isinstance(call.x, Tensor) else call.x


def _dropout(call: Call) -> Any:
    """Functional dropout, which is active by default."""
    given = call.get(2, "training", "train", default="left to its default, True")
    if given is not False:
        raise ModelError(
            f"{call.where}: training must be False, not {given}; write F.dropout(x, p, self.training) "
            "and call eval() on the model, or use nn.Dropout"
        )
    return _identity(call)


def _cast(call: Call) -> Any:
    types = [
        value for value in flat([call.args[1:], dict(call.kwargs)]) if hasattr(value, "is_floating_point")
    ]
    types = [value for value in types if not callable(value.is_floating_point)]
    if all(value.is_floating_point for value in types):
        return _identity(call)
    return call.emit("cast", call.x, floating=False) if isinstance(call.x, Tensor) else call.x


def _integer(call: Call) -> Any:
    return call.emit("cast", call.x, floating=False) if isinstance(call.x, Tensor) else call.x


# Constants


def _filled(value: float | None, sizes_at: int, like: bool = False) -> Translation:
    """Zeros, ones, or a given number. A size that only a run knows is that of sequences: one is as good."""

    def translate(call: Call) -> Any:
        sizes: Any = call.rest(sizes_at, "size") if not like else (1,)
        if value is None:  # full(size, fill_value)
            sizes = call.get(sizes_at, "size")
        if like and isinstance(call.x, Constant):
            sizes = call.x.value.shape
        if isinstance(sizes, Shape | Number):
            sizes = (1,)
        number = call.number(sizes_at + 1, "fill_value") if value is None else value
        return call.to.constant(
            np.asarray(float(number)), [1 if whole(size) is None else whole(size) for size in sizes]
        )

    return translate


def _expand(call: Call) -> Any:
    """A constant for every sequence: as the size that only a run knows, 1 will do."""
    if not isinstance(call.x, Constant):
        return call.unknown("expand")
    array, sizes = call.x.value, [whole(size) for size in call.rest(1, "size", "sizes")]
    try:
        array = array.reshape((1,) * (len(sizes) - array.ndim) + array.shape)
        shape = [old if size in (None, -1) else size for size, old in zip(sizes, array.shape, strict=True)]
        return call.to.constant(array, shape)
    except ValueError:
        return call.unknown()


def _repeat(call: Call) -> Any:
    if not isinstance(call.x, Constant):
        return call.unknown("tile")
    array, counts = call.x.value, [whole(size) or 1 for size in call.rest(1, "repeats", "dims")]
    shape = (1,) * (len(counts) - array.ndim) + array.shape
    counts = [1] * (len(shape) - len(counts)) + counts
    whole_shape = [size * count for size, count in zip(shape, counts, strict=True)]
    call.to.constant(np.zeros(()), whole_shape)  # counts its size
    return Constant.of(np.tile(array, counts))


def _arange(call: Call) -> Any:
    limits = [whole(value) for value in call.args]
    if None in limits or not limits or call.kwargs.get("start") is not None:
        return call.unknown()
    call.to.constant(np.zeros(()), [len(range(*limits))])  # counts its size
    return Constant.of(np.arange(*limits))


# Axes and parts


def _flatten(call: Call) -> Any:
    start, end = call.get(1, "start_dim", default=0), call.get(2, "end_dim", default=-1)
    return call.emit("flatten", call.x, start=call.whole(start), end=call.whole(end))


def _sizes(call: Call, values: Sequence[Any]) -> Any:
    """A list of sizes, as whole numbers or as a tensor of them."""
    found: list[Any] = []
    for value in values:
        if isinstance(value, Shape):
            found.append(call.size(value.tensor, 0, None))
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
    sizes: Any = call.rest(1, "shape", "size")
    if not all(isinstance(size, Tensor | Shape | Constant | int) for size in sizes):
        return call.unknown()
    if isinstance(call.x, Constant):
        sizes = [-1 if whole(size) is None else whole(size) for size in sizes]
    shape = _sizes(call, sizes)
    if isinstance(shape, list):
        return call.emit("reshape", call.x, shape=shape)
    return call.emit("reshape", call.x, shape)


def _view_as(call: Call) -> Any:
    return call.emit("reshape", call.x, _sizes(call, [Shape(call.get(1, "other"))]))


def _unflatten(call: Call) -> Any:
    axis, sizes = call.whole(call.get(1, "dim")), list(call.get(2, "unflattened_size", "sizes"))
    before = [call.size(call.x, 0, axis)] if axis else []
    after = [call.size(call.x, axis + 1, None)] if axis != -1 else []
    return call.emit("reshape", call.x, _sizes(call, [*before, *sizes, *after]))


def _transpose(call: Call) -> Any:
    swap = [call.get(1, "dim0", "axis0"), call.get(2, "dim1", "axis1")]
    return call.emit("transpose", call.x, swap=call.wholes(swap))


def _swap(first: int, second: int) -> Translation:
    return lambda call: call.emit("transpose", call.x, swap=[first, second])


def _permute(call: Call) -> Any:
    return call.emit("transpose", call.x, perm=call.wholes(call.rest(1, "dims")))


def _movedim(call: Call) -> Any:
    """One axis to another place: it changes places with each axis on the way."""
    source, target = call.whole(call.get(1, "source")), call.whole(call.get(2, "destination"))
    if (source < 0) != (target < 0):
        raise ModelError(f"{call.where} must name both axes from the front, or both from the end")
    way = range(source, target) if source < target else range(source, target, -1)
    step = 1 if source < target else -1
    return call.chain(call.x, [("transpose", (), {"swap": [at, at + step]}) for at in way])


def _squeeze(call: Call) -> Any:
    axes = call.get(1, "dim")
    return call.emit("squeeze", call.x, strict=0, **({} if axes is None else {"axes": call.wholes(axes)}))


def _unsqueeze(call: Call) -> Any:
    return call.emit("unsqueeze", call.x, axes=[call.whole(call.get(1, "dim"))])


def _element(call: Call, axis: int, index: Any) -> Step:
    return "select", (), {"axis": axis, "index": call.whole(index, "indices")}


def _cut(call: Call, axis: int, start: Any, end: Any, step: Any = None) -> Step:
    first, last = 0 if start is None else start, _END if end is None else end
    numbers = {"starts": first, "ends": last, "steps": 1 if step is None else step}
    return (
        "slice",
        (),
        {"axes": [axis], **{key: [call.whole(value, "indices")] for key, value in numbers.items()}},
    )


def _select(call: Call) -> Any:
    return call.chain(call.x, [_element(call, call.whole(call.get(1, "dim")), call.get(2, "index"))])


def _slice(call: Call) -> Any:
    if isinstance(call.x, list | tuple | Shape | Number):  # of sizes, in TorchScript
        return _part(
            call, call.x, slice(*(call.get(at, key) for at, key in ((1, "start"), (2, "end"), (3, "step"))))
        )
    ends = (call.get(at, key) for at, key in ((2, "start"), (3, "end"), (4, "step")))
    return call.chain(call.x, [_cut(call, call.whole(call.get(1, "dim", default=0)), *ends)])


def _narrow(call: Call) -> Any:
    axis, start, length = (
        call.whole(call.get(at, key)) for at, key in ((1, "dim"), (2, "start"), (3, "length"))
    )
    end = start + length
    return call.chain(call.x, [_cut(call, axis, start, None if start < 0 and not end else end)])


def _index_select(call: Call) -> Any:
    return call.emit("gather", call.x, call.get(2, "index"), axis=call.whole(call.get(1, "dim")))


def _by_index(call: Call) -> Any:
    """Elements that a tensor of indices names, one for each sequence."""
    raise ModelError(
        f"{call.where} takes steps by a tensor of indices, which the core does not; for the last valid step of each "
        "sequence give the driver the lengths, run(x, lengths), and let it return the last step, outputs='last'"
    )


def _chunk(call: Call) -> Any:
    count, axis = call.whole(call.get(1, "chunks")), call.whole(call.get(2, "dim", default=0))
    found = call.emit("split", call.x, outputs=range(1, count), axis=axis)
    return found if count > 1 else (found,)


def _split(call: Call) -> Any:
    sizes = call.get(1, "split_size_or_sections", "split_size", "split_sizes")
    axis = call.whole(call.get(2, "dim", default=0))
    if isinstance(sizes, list | tuple):
        found = call.emit(
            "split", call.x, outputs=range(1, len(sizes)), axis=axis, split=call.wholes(sizes, "sizes")
        )
        return found if len(sizes) > 1 else (found,)
    size, x = call.whole(sizes, "sizes"), call.x

    def take(later: Call, at: int) -> Any:
        return later.chain(x, [_cut(later, axis, at * size, (at + 1) * size)])

    return Parts(take)


def _unbind(call: Call) -> Any:
    axis, x = call.whole(call.get(1, "dim", default=0)), call.x
    return Parts(lambda later, at: later.chain(x, [_element(later, axis, at)]))


def _cat(call: Call) -> Any:
    axis = call.whole(call.get(1, "dim", "axis", default=0))
    return call.emit("concat", *call.get(0, "tensors"), axis=axis)


def _stack(call: Call) -> Any:
    return call.emit("stack", *call.get(0, "tensors"), axis=call.whole(call.get(1, "dim", default=0)))


def _size(call: Call) -> Any:
    axis = call.get(1, "dim")
    return Shape(call.x) if axis is None else _part(call, Shape(call.x), call.whole(axis))


def _count(call: Call) -> Any:
    x = call.x
    return x.value.size if isinstance(x, Constant) else call.emit("size", x, hidden=True)


def _attribute(call: Call) -> Any:
    x, name = call.args[:2]
    if name == "shape":
        return Shape(x)
    if name == "data":
        return x
    if name in ("T", "mT", "H", "mH"):
        return call.emit("transpose", x) if name in "TH" else call.emit("transpose", x, swap=[-2, -1])
    if name in ("device", "dtype"):
        return name
    if name in ("batch_sizes", "ndim", "sorted_indices", "unsorted_indices"):
        return call.unknown()
    raise ModelError(f"{call.where}: attribute {name!r} is not supported")


def _item(call: Call) -> Any:
    """An item of a tuple or a list, or a part of a tensor."""
    return _part(call, call.x, call.get(1, "key", "idx"))


def _part(call: Call, value: Any, key: Any) -> Any:
    if isinstance(value, list | tuple):
        if not isinstance(key, int | slice):
            raise ModelError(f"{call.where} must index a tuple with a number, not {key!r}")
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


def _index(call: Call, key: Sequence[Any]) -> list[Step]:
    """The nodes of an index; after an ellipsis, axes are counted from the end."""
    at = next((number for number, item in enumerate(key) if item is Ellipsis), len(key))
    steps: list[Step] = []
    for items, axis, way in ((key[:at], 0, 1), (key[:at:-1], -1, -1)):
        for item in items:
            found = _one_index(call, axis, item)
            steps += found
            axis += way * (not found or found[0][0] != "select")
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


def _index_tensors(call: Call) -> Any:
    """ATen's index by tensors, of which one that is left out stands for a whole axis."""
    indices = [slice(None) if item is None else item for item in call.get(1, "indices")]
    return call.chain(call.x, _index(call, indices))


_NAMES: dict[str, Translation] = {
    # Layers
    "linear": _linear,
    "addmm": _addmm,
    **dict.fromkeys(("bmm", "matmul", "mm"), _matmul),
    **dict.fromkeys(("_convolution", "conv", "conv1d", "conv2d", "convolution"), _conv),
    "batch_norm": _batch_norm,
    "embedding": _embedding,
    "recurrent": _recurrent_module,
    **dict.fromkeys(_SEQUENCES, _sequence),
    **dict.fromkeys((f"{name}_cell" for name in _SEQUENCES), _cell),
    "pack_padded_sequence": _pack,
    "pad_packed_sequence": _unpack,
    "pad": _pad,
    "constant_pad_nd": _constant_pad,
    # Arithmetic and activations
    **dict.fromkeys(("add", "iadd"), _binary("add")),
    **dict.fromkeys(("sub", "isub", "subtract"), _binary("sub")),
    **dict.fromkeys(("imul", "mul", "multiply"), _binary("mul")),
    **dict.fromkeys(("div", "divide", "itruediv", "true_divide", "truediv"), _binary("div")),
    "rsub": _rsub,
    "floordiv": _floordiv,
    **dict.fromkeys(("neg", "negative"), lambda call: call.emit("neg", call.x)),
    **dict.fromkeys(("clamp", "clip"), _clamp(1, 2)),
    "clamp_min": _clamp(1, None),
    "clamp_max": _clamp(None, 1),
    "hardsigmoid": lambda call: _activate(call, ActivationFunction.of("hard_sigmoid", 1 / 6, 0.5)),
    "relu6": lambda call: _activate(call, ActivationFunction.of("hard_tanh", 0.0, 6.0)),
    "softplus": _softplus,
    "threshold": _threshold,
    "sum": _reduce("reduce_sum"),
    "mean": _reduce("reduce_mean"),
    **{name: _scores(name) for name in ("argmax", "log_softmax", "softmax")},
    **{name: _host(getattr(np, name)) for name in ("abs", "exp", "log", "reciprocal", "sqrt", "square")},
    "rsqrt": _host(lambda array: 1 / np.sqrt(array)),
    # What changes nothing
    **dict.fromkeys(
        (
            "alias",
            "clone",
            "contiguous",
            "cpu",
            "cuda",
            "detach",
            "double",
            "float",
            "half",
            "identity",
            "lift_fresh_copy",
            "requires_grad",
        ),
        _identity,
    ),
    **dict.fromkeys(
        ("dropout", "alpha_dropout", "dropout1d", "feature_dropout", "feature_alpha_dropout"), _dropout
    ),
    **dict.fromkeys(("_to_copy", "to", "type", "type_as"), _cast),
    **dict.fromkeys(("bool", "int", "long", "short"), _integer),
    # Constants
    "zeros": _filled(0.0, 0),
    "ones": _filled(1.0, 0),
    "full": _filled(None, 0),
    "new_zeros": _filled(0.0, 1),
    "new_ones": _filled(1.0, 1),
    "zeros_like": _filled(0.0, 0, like=True),
    "ones_like": _filled(1.0, 0, like=True),
    "expand": _expand,
    "broadcast_to": _expand,
    "repeat": _repeat,
    "tile": _repeat,
    "arange": _arange,
    # Axes and parts
    "flatten": _flatten,
    **dict.fromkeys(("_unsafe_view", "reshape", "view"), _reshape),
    **dict.fromkeys(("reshape_as", "view_as"), _view_as),
    "unflatten": _unflatten,
    **dict.fromkeys(("swapaxes", "swapdims", "transpose"), _transpose),
    "t": _swap(0, 1),
    **dict.fromkeys(("adjoint", "mT"), _swap(-2, -1)),
    "numpy_T": lambda call: call.emit("transpose", call.x),
    "permute": _permute,
    **dict.fromkeys(("movedim", "moveaxis"), _movedim),
    "squeeze": _squeeze,
    "unsqueeze": _unsqueeze,
    "select": _select,
    "slice": _slice,
    "narrow": _narrow,
    "index_select": _index_select,
    **dict.fromkeys(("gather", "take_along_dim"), _by_index),
    "index": _index_tensors,
    "chunk": _chunk,
    **dict.fromkeys(("split", "split_with_sizes"), _split),
    "unbind": _unbind,
    **dict.fromkeys(("cat", "concat", "concatenate"), _cat),
    "stack": _stack,
    **dict.fromkeys(("size", "sym_size"), _size),
    "numel": _count,
    "getattr": _attribute,
    "getitem": _item,
}
