"""PyTorch's operations that compute features from features of the same step."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rtlstm.gen.frontends.arrays import FLOAT_TYPES, to_float64
from rtlstm.gen.frontends.bidirectional import at_last_step
from rtlstm.gen.frontends.describe import one_input
from rtlstm.gen.frontends.pace import CausalTaps
from rtlstm.gen.frontends.torch.module_names import activation_calls
from rtlstm.gen.frontends.torch.moves import MOVES, get_item
from rtlstm.gen.frontends.torch.values import Constant, Data, Outside, TorchNode, outside_refusal
from rtlstm.spec.activations.functions import ACTIVATIONS, ActivationFunction
from rtlstm.spec.errors import ModelError

__all__ = ["apply", "parameter"]

_PASS = ("clone", "contiguous", "detach", "double", "dropout", "float", "half")
_FIXED = {
    "hardsigmoid": ActivationFunction.of("hard_sigmoid", 1 / 6, 0.5),
    "relu6": ActivationFunction.of("hard_tanh", 0.0, 6.0),
}


def parameter(tensor: Any, what: str) -> NDArray[np.float64]:
    """A module's parameter as float64."""
    name = str(tensor.dtype).removeprefix("torch.")
    if tensor.is_meta:
        raise ModelError(f"{what} must have values, but is on PyTorch's meta device; load the weights first")
    if name not in FLOAT_TYPES:
        raise ModelError(f"{what} must be one of {', '.join(FLOAT_TYPES)}, not {name}")
    return to_float64(tensor.detach().cpu().double().numpy(), what)


def _number(step: TorchNode, index: int, name: str, default: float | None) -> float:
    value = step.argument(index, name, default)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ModelError(f"{step.where}: {name} must be a constant number, not {value!r}")
    return float(value)


def _activation(step: TorchNode) -> Data:
    if step.name in _FIXED:
        return _apply(step, _FIXED[step.name])
    name, names = activation_calls()[step.name]
    parameters = zip(names.parameters, ACTIVATIONS[name].defaults, strict=True)
    values = [_number(step, 1 + at, key, default) for at, (key, default) in enumerate(parameters)]
    return _apply(step, ActivationFunction.of(name, *values))


def _apply(step: TorchNode, function: ActivationFunction) -> Data:
    data = step.data
    return data.with_flow(data.flow.activate(function, step.label, step.where))


def _clamp(step: TorchNode) -> Data:
    return _apply(
        step,
        ActivationFunction.of("hard_tanh", _number(step, 1, "min", None), _number(step, 2, "max", None)),
    )


def _threshold(step: TorchNode) -> Data:
    if _number(step, 2, "value", None) != 0.0:
        raise ModelError(f"{step.where}: value must be 0, not {step.argument(2, 'value')}")
    return _apply(step, ActivationFunction.of("thresholded_relu", _number(step, 1, "threshold", None)))


def _softplus(step: TorchNode) -> Data:
    """``log(1 + exp(beta x)) / beta``; above PyTorch's threshold, where that is linear, as good as equal."""
    beta = np.array(_number(step, 1, "beta", 1.0))
    data, function = step.data, ActivationFunction.of("softplus")
    flow = data.flow.scale(beta, step.where).activate(function, step.label, step.where)
    return data.with_flow(flow.scale(1.0 / beta, step.where))


def _pass(step: TorchNode) -> Data:
    """Apply an operation without effect in inference; functional dropout is active by default."""
    if step.name == "dropout" and step.module is None:
        given = step.argument(2, "training", step.kwargs.get("train", "left to its default, True"))
        if given is not False:
            raise ModelError(
                f"{step.where}: training must be False, not {given}; write F.dropout(x, p, self.training) "
                "and call eval() on the model, or use nn.Dropout"
            )
    return step.data


def _linear(step: TorchNode) -> Data:
    data, where = step.data, step.where
    if step.module is None:
        raise ModelError(f"{where}: a functional linear layer is not supported; use nn.Linear")
    data = data.with_axes(data.axes.settle_features(-1, where))
    return _dense(step, data, parameter(step.module.weight, f"{where}: weight"))


def _dense(step: TorchNode, data: Data, weight: NDArray[np.float64]) -> Data:
    given: Any = getattr(step.module, "bias", None)
    bias = np.zeros(len(weight)) if given is None else parameter(given, f"{step.where}: bias")
    return data.with_flow(data.flow.linear(step.label, step.where, weight, bias))


def _conv1d(step: TorchNode) -> Data:
    """Apply a convolution: of width 1 it is a dense layer, a wider causal one reads a delay line."""
    module, where, data = step.module, step.where, step.data
    if module is None:
        raise ModelError(f"{where}: a functional convolution is not supported; use nn.Conv1d")
    history, stride = module.dilation[0] * (module.kernel_size[0] - 1), module.stride[0]
    padding = {"valid": 0, "same": -1 if history else 0}.get(module.padding, module.padding)
    padding = padding[0] if isinstance(padding, tuple) else padding
    front = data.margin[0] + padding
    taps = CausalTaps.of(history, stride, front, padding) if padding >= 0 else None
    problems = [] if module.groups == 1 else [f"groups={module.groups} must be 1"]
    if padding and module.padding_mode != "zeros":
        problems.append(f"padding_mode={module.padding_mode!r} must be 'zeros'")
    if not problems and taps is None:
        zeros = CausalTaps.zeros(history, stride)
        advice = f", or use padding={history} and drop the last {history} steps" if stride == 1 else ""
        problems.append(
            f"it must be causal, but with padding={module.padding} and {data.margin[0]} zeros in front "
            f"it looks ahead or drops steps; pad {zeros} zeros in front of the steps{advice}"
        )
    if problems or taps is None:
        raise ModelError(f"{where}: " + "; ".join(problems))
    axes = data.axes.settle_features(-2, where)
    weight = parameter(module.weight, f"{where}: weight")
    if history or stride > 1:
        axes = axes.settle(("N", "F", "T"), axes.features, where)
    given = module.bias
    bias = np.zeros(len(weight)) if given is None else parameter(given, f"{where}: bias")
    flow = data.flow.convolve(step.label, where, weight, bias, module.dilation[0], stride, taps.phase)
    return replace(data, axes=axes, margin=(0, taps.extra)).with_flow(flow)


def _pad(step: TorchNode) -> Data:
    data, module = step.data, step.module
    amounts = module.padding if module is not None else step.argument(1, "pad")
    mode = "constant" if module is not None else step.argument(2, "mode", "constant")
    value = getattr(module, "value", 0.0) if module is not None else step.argument(3, "value", None)
    front = amounts[0] if isinstance(amounts, list | tuple) and len(amounts) == 2 else None
    if not isinstance(front, int) or front < 0 or amounts[1] != 0 or mode != "constant" or value:
        raise ModelError(
            f"{step.where} must pad zeros in front of the steps, as a causal convolution needs them, not "
            f"{amounts!r} of {value or 0:g}"
        )
    axes = data.axes.settle(("N", "F", "T"), data.axes.features, step.where)
    return replace(data, axes=axes, margin=(data.margin[0] + front, data.margin[1]))


def _batch_norm(step: TorchNode) -> Data:
    module, where = step.module, step.where
    if module is None or module.running_mean is None:
        raise ModelError(f"{where} must be nn.BatchNorm1d with running statistics")
    data = step.data.with_axes(step.data.axes.settle_features(1, where))
    mean, variance = (
        parameter(getattr(module, key), f"{where}: {key}") for key in ("running_mean", "running_var")
    )
    scale = 1.0 / np.sqrt(variance + module.eps)
    if module.weight is not None:
        scale = scale * parameter(module.weight, f"{where}: weight")
    offset = -mean * scale
    if module.bias is not None:
        offset = offset + parameter(module.bias, f"{where}: bias")
    return data.with_flow(data.flow.scale(scale, where).shift(offset, where))


def _neg(step: TorchNode) -> Data:
    return step.data.with_flow(step.data.flow.scale(np.array(-1.0), step.where))


def _add(step: TorchNode) -> Data:
    return _sum(step, 1.0)


def _sub(step: TorchNode) -> Data:
    return _sum(step, -1.0)


def _sum(step: TorchNode, sign: float) -> Data:
    first, second, where = step.args[0], step.argument(1, "other"), step.where
    if step.kwargs.get("alpha", 1) != 1:
        raise ModelError(f"{where}: alpha must be 1, not {step.kwargs['alpha']}")
    factor = np.array(sign)
    if isinstance(first, Data) and isinstance(second, Data):
        data, other = at_last_step([step.as_data(first), step.as_data(second)])
        _check_source(data, other, where)
        axes = data.axes.together(other.axes)
        if axes is None or data.margin != other.margin:
            raise ModelError(
                f"{where} adds tensors of axes {data.axes} and {other.axes}, which must be the same"
            )
        flow = data.flow.plus(other.flow.scale(factor, where), where)
        return replace(data, axes=axes, padded=data.padded or other.padded).with_flow(flow)
    if isinstance(first, Data):
        data, addend = _constant(second, step.as_data(first), where)
        return data.with_flow(data.flow.shift(sign * addend, where))
    data, addend = _constant(first, step.as_data(second), where)
    return data.with_flow(data.flow.scale(factor, where).shift(addend, where))


def _check_source(first: Data, second: Data, where: str) -> None:
    if first.source != second.source:
        raise ModelError(
            one_input(
                f"{where} needs two inputs of the model at once, {first.source!r} and {second.source!r}"
            )
        )


def _mul(step: TorchNode) -> Data:
    first, second, where = step.args[0], step.argument(1, "other"), step.where
    if not isinstance(first, Data):
        first, second = second, first
    data, factor = _constant(second, step.as_data(first), where)
    return data.with_flow(data.flow.scale(factor, where))


def _div(step: TorchNode) -> Data:
    where = step.where
    if step.kwargs.get("rounding_mode") is not None:
        raise ModelError(f"{where}: rounding_mode is not supported")
    data, divisor = _constant(step.argument(1, "other"), step.data, where)
    if not np.all(divisor):
        raise ModelError(f"{where} divides by a constant with a zero in it")
    return data.with_flow(data.flow.scale(1.0 / divisor, where))


def _constant(value: Any, data: Data, where: str) -> tuple[Data, NDArray[np.float64]]:
    """A number, or one number for each feature of ``data``, which are then known to be on that axis."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return data, np.array(float(value))
    if isinstance(value, Outside):
        raise ModelError(outside_refusal(where, value))
    if not isinstance(value, Constant):
        raise ModelError(f"{where} is not supported: its other operand must be a constant")
    axes, array = data.axes, value.array
    axes.expect(where)
    if array.size == 1:
        return data, array.reshape(())
    used_axes = [at - array.ndim for at, size in enumerate(array.shape) if size != 1]
    if len(used_axes) != 1 or len(axes.tags) < -used_axes[0] or axes.tags[used_axes[0]][0] not in "F?":
        raise ModelError(
            f"{where}: a constant of shape {array.shape} must be one number, or one for each feature"
        )
    if axes.tags[used_axes[0]] != "F":
        data = data.with_axes(axes.settle_features(used_axes[0], where))
    return data, array.reshape(-1)


def _cat(step: TorchNode) -> Data:
    parts = step.args[0] if step.args else step.kwargs.get("tensors", ())
    first, *others = at_last_step([step.as_data(part) for part in parts])
    axis = step.whole(step.argument(1, "dim", 0))
    for other in others:
        _check_source(first, other, step.where)
    for other in others:
        axes = first.axes.together(other.axes)
        if axes is None or other.margin != first.margin:
            raise ModelError(f"{step.where} must join tensors whose axes mean the same")
        first = replace(first, axes=axes, padded=first.padded or other.padded)
    first.axes.expect_features_at(axis, step.where)
    return first.with_flow(first.flow.join([other.flow for other in others], step.where))


def apply(step: TorchNode) -> Any:
    """What an operation gives, one that :func:`~rtlstm.gen.frontends.torch.module_names.operation` names."""
    return _OPERATIONS.get(step.name, _activation)(step)


_OPERATIONS: dict[str, Callable[[TorchNode], Any]] = {
    **dict.fromkeys(_PASS, _pass),
    **dict.fromkeys(_FIXED, _activation),
    **MOVES,
    "add": _add,
    "batch_norm": _batch_norm,
    "cat": _cat,
    "clamp": _clamp,
    "conv1d": _conv1d,
    "div": _div,
    "getitem": get_item,
    "linear": _linear,
    "mul": _mul,
    "neg": _neg,
    "pad": _pad,
    "softplus": _softplus,
    "sub": _sub,
    "threshold": _threshold,
}
