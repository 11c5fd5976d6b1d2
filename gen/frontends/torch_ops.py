"""The PyTorch modules, functions and methods that may follow an LSTM in a traced module."""

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rtlstm.gen.frontends.arrays import FLOAT_TYPES, to_float64
from rtlstm.gen.frontends.axes import Axes
from rtlstm.gen.frontends.chain import Chain
from rtlstm.spec.errors import ModelError
from rtlstm.spec.network import Activation

__all__ = ["SUPPORTED", "TorchStep", "apply_node", "operation", "parameter"]

_ACTIVATIONS: dict[str, Activation] = {
    "relu": "relu",
    "relu_": "relu",
    "sigmoid": "sigmoid",
    "sigmoid_": "sigmoid",
    "tanh": "tanh",
    "tanh_": "tanh",
}
_PASS = ("clone", "contiguous", "detach", "double", "float", "half", "dropout")
_MODULES = {
    "ReLU": "relu",
    "Sigmoid": "sigmoid",
    "Tanh": "tanh",
    "Identity": "contiguous",
    "Dropout": "dropout",
    "Dropout1d": "dropout",
    "AlphaDropout": "dropout",
    "Flatten": "Flatten",
    "Linear": "Linear",
    "Conv1d": "Conv1d",
    "LSTM": "LSTM",
    "LSTMCell": "LSTMCell",
}
_FUNCTIONS = (
    "dropout", "flatten", "permute", "relu", "relu_", "reshape", "select", "sigmoid", "sigmoid_", "squeeze",
    "tanh", "tanh_", "transpose", "unsqueeze",
)  # fmt: skip
_METHODS = (
    "clone", "contiguous", "detach", "double", "flatten", "float", "half", "permute", "relu", "relu_",
    "reshape", "select", "sigmoid", "sigmoid_", "squeeze", "tanh", "tanh_", "transpose", "unsqueeze", "view",
)  # fmt: skip

SUPPORTED = (
    "LSTM, LSTMCell, Linear, Conv1d of kernel size 1, ReLU, Sigmoid, Tanh, Dropout, Identity, Flatten, the "
    "last step [-1], and moving of axes"
)


@dataclass
class TorchStep:
    """One traced node to apply to the value that the chain has reached."""

    node: Any
    name: str
    where: str
    module: Any | None
    axes: Axes
    chain: Chain

    def argument(self, index: int, name: str, default: Any) -> Any:
        """An argument of the call, the first being the tensor itself."""
        if len(self.node.args) > index:
            return self.node.args[index]
        return self.node.kwargs.get(name, default)

    def rest(self, index: int, name: str) -> list[Any]:
        """Arguments given one by one or as one list."""
        values = self.node.args[index:]
        if not values:
            values = (self.node.kwargs.get(name),)
        if len(values) == 1 and isinstance(values[0], list | tuple):
            values = values[0]
        return list(values)

    def number(self, value: Any) -> int:
        """A whole number known before the run."""
        if not isinstance(value, int):
            raise ModelError(f"{self.where} must have constant axes, not {value!r}")
        return int(value)


def operation(node: Any, modules: dict[str, Any]) -> str | None:
    """Name the supported operation of a node, or None."""
    import torch
    from torch.nn import functional

    if node.op == "call_module":
        kind = type(modules[node.target])
        known = _MODULES.get(kind.__name__)
        return known if known and getattr(torch.nn, kind.__name__, None) is kind else None
    if node.op == "call_method":
        return node.target if node.target in _METHODS else None
    if node.op == "call_function":
        if node.target is operator.getitem:
            return "getitem"
        for name in _FUNCTIONS:
            if node.target in (getattr(torch, name, None), getattr(functional, name, None)):
                return name
    return None


def parameter(tensor: Any, what: str) -> NDArray[np.float64]:
    """A module's parameter as float64."""
    name = str(tensor.dtype).removeprefix("torch.")
    if name not in FLOAT_TYPES:
        raise ModelError(f"{what} must be one of {', '.join(FLOAT_TYPES)}, not {name}")
    return to_float64(tensor.detach().cpu().double().numpy(), what)


def apply_node(step: TorchStep, name: str) -> Axes:
    """Apply one supported operation other than an LSTM."""
    if name in _ACTIVATIONS:
        step.chain.add_activation(_ACTIVATIONS[name], step.where)
        return step.axes
    if name in _PASS:
        return step.axes
    return _OPERATIONS[name](step)


def _linear(step: TorchStep) -> Axes:
    module, where = step.module, step.where
    step.axes.expect_features_at(-1, where)
    return _dense(step, parameter(module.weight, f"{where}: weight"), module.bias)  # type: ignore[union-attr]


def _conv1d(step: TorchStep) -> Axes:
    module: Any = step.module
    wanted = {"kernel_size": (1,), "stride": (1,), "groups": 1}
    problems = [
        f"{name}={getattr(module, name)} must be {value}"
        for name, value in wanted.items()
        if getattr(module, name) != value
    ]
    if module.padding not in ((0,), "valid", "same"):
        problems.append(f"padding={module.padding} must be 0")
    if problems:
        raise ModelError(f"{step.where}: " + "; ".join(problems))
    step.axes.expect_features_at(-2, step.where)
    return _dense(step, parameter(module.weight, f"{step.where}: weight")[:, :, 0], module.bias)


def _dense(step: TorchStep, weight: NDArray[np.float64], bias: Any) -> Axes:
    given = np.zeros(weight.shape[0]) if bias is None else parameter(bias, f"{step.where}: bias")
    step.chain.add_dense(step.name, step.where, weight, given)
    return step.axes.with_features(weight.shape[0])


def _flatten_module(step: TorchStep) -> Axes:
    module: Any = step.module
    return step.axes.flatten(module.start_dim, module.end_dim, step.where)


def _flatten(step: TorchStep) -> Axes:
    start = step.number(step.argument(1, "start_dim", 0))
    return step.axes.flatten(start, step.number(step.argument(2, "end_dim", -1)), step.where)


def _transpose(step: TorchStep) -> Axes:
    axes = step.axes
    if axes.lost:
        return axes
    rank = len(axes.tags)
    order = list(range(rank))
    a, b = step.number(step.argument(1, "dim0", None)), step.number(step.argument(2, "dim1", None))
    for axis in (a, b):
        if not -rank <= axis < rank:
            raise ModelError(f"{step.where} names axis {axis} of a tensor with {rank} axes")
    order[a], order[b] = order[b], order[a]
    return axes.transpose(order, step.where)


def _permute(step: TorchStep) -> Axes:
    return step.axes.transpose([step.number(axis) for axis in step.rest(1, "dims")], step.where)


def _squeeze(step: TorchStep) -> Axes:
    axis = step.argument(1, "dim", None)
    if axis is None:
        return step.axes.squeeze(None, step.where)
    axes = list(axis) if isinstance(axis, list | tuple) else [axis]
    return step.axes.squeeze([step.number(item) for item in axes], step.where, strict=False)


def _unsqueeze(step: TorchStep) -> Axes:
    return step.axes.unsqueeze([step.number(step.argument(1, "dim", None))], step.where)


def _reshape(step: TorchStep) -> Axes:
    shape = [item if isinstance(item, int) else None for item in step.rest(1, "shape")]
    return step.axes.reshape(shape, step.where, zero_copies=False)


def _select(step: TorchStep) -> Axes:
    axis, index = step.argument(1, "dim", None), step.argument(2, "index", None)
    return step.axes.select(step.number(axis), step.number(index), step.where)


def _getitem(step: TorchStep) -> Axes:
    axes, where = step.axes, step.where
    key = step.node.args[1]
    key = key if isinstance(key, tuple) else (key,)
    axes.expect(where)
    if Ellipsis in [item for item in key if item is Ellipsis]:
        at = next(place for place, item in enumerate(key) if item is Ellipsis)
        full = (slice(None),) * (len(axes.tags) - len(key) + 1)
        key = (*key[:at], *full, *key[at + 1 :])
    axis = 0
    for item in key:
        if item == slice(None):
            axis += 1
        elif isinstance(item, int):
            axes = axes.select(axis, item, where)
        elif item in (slice(-1, None), slice(-1, None, 1)):
            axes = axes.select(axis, -1, where, keep=True)
            axis += 1
        elif item is None:
            axes = axes.unsqueeze([axis], where)
            axis += 1
        else:
            raise ModelError(f"{where} must index with -1, -1: or :, not {item!r}")
    return axes


_OPERATIONS: dict[str, Callable[[TorchStep], Axes]] = {
    "Conv1d": _conv1d,
    "Flatten": _flatten_module,
    "Linear": _linear,
    "flatten": _flatten,
    "getitem": _getitem,
    "permute": _permute,
    "reshape": _reshape,
    "select": _select,
    "squeeze": _squeeze,
    "transpose": _transpose,
    "unsqueeze": _unsqueeze,
    "view": _reshape,
}
