"""Names the operation of a traced node, whether it was written as module, function, method or operator."""

import operator
from typing import Any

from rtlstm.spec.activations.functions import ACTIVATIONS, FunctionName, TorchNames

__all__ = ["activation_calls", "module_kind", "operation", "supported"]

_MODULES = {
    "AlphaDropout": "dropout",
    "BatchNorm1d": "batch_norm",
    "ConstantPad1d": "pad",
    "Conv1d": "conv1d",
    "Dropout": "dropout",
    "Dropout1d": "dropout",
    "Embedding": "embedding",
    "Flatten": "flatten_module",
    "Hardsigmoid": "hardsigmoid",
    "Identity": "contiguous",
    "Linear": "linear",
    "ReLU6": "relu6",
    "Softplus": "softplus",
    "Threshold": "threshold",
    "ZeroPad1d": "pad",
    **dict.fromkeys(("GRU", "GRUCell", "LSTM", "LSTMCell", "RNN", "RNNCell"), "recurrent"),
}
_FUNCTIONS = frozenset(
    {
        "add", "cat", "clamp", "clone", "concat", "contiguous", "detach", "div", "double", "dropout",
        "flatten", "float", "half", "hardsigmoid", "mul", "multiply", "neg",
        "pack_padded_sequence", "pad", "pad_packed_sequence", "permute", "relu6", "reshape", "select",
        "slice", "softplus", "squeeze", "sub", "subtract", "swapaxes",
        "threshold", "transpose", "true_divide", "unsqueeze", "view",
    }
)  # fmt: skip
_SAME = {
    "concat": "cat",
    "multiply": "mul",
    "subtract": "sub",
    "swapaxes": "transpose",
    "true_divide": "div",
    "truediv": "div",
    "view": "reshape",
}
_OPERATORS = {
    getattr(operator, name): _SAME.get(name.removeprefix("i"), name.removeprefix("i"))
    for name in ("add", "sub", "mul", "truediv", "neg", "getitem", "iadd", "isub", "imul", "itruediv")
}


def activation_calls() -> dict[str, tuple[FunctionName, TorchNames]]:
    """The activation functions that PyTorch has, by its functions' names."""
    found = ((name, definition.torch) for name, definition in ACTIVATIONS.items())
    return {names.function: (name, names) for name, names in found if names is not None}


def _modules() -> dict[str, str]:
    """The operation of each class of torch.nn that is supported."""
    return _MODULES | {names.module: call for call, (_, names) in activation_calls().items()}


def _is_function(name: str) -> bool:
    return name in _FUNCTIONS or name in activation_calls()


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


def module_kind(module: Any) -> str:
    """The name of torch.nn's class that computes what a module does, else of the module's own class."""
    import torch

    known = _modules()
    for base in type(module).__mro__:
        is_torchs = getattr(torch.nn, base.__name__, None) is base and base.__name__ in known
        if is_torchs and getattr(type(module), "forward", None) is getattr(base, "forward", 0):
            return str(base.__name__)
    return type(module).__name__


def operation(node: Any, modules: dict[str, Any]) -> str | None:
    """Name the supported operation of a node, or None."""
    import torch

    if node.op == "call_module":
        module = modules[node.target]
        kind = module_kind(module)
        return _modules().get(kind) if hasattr(torch.nn, kind) else None
    if node.op == "call_method":
        plain = node.target.rstrip("_")
        return _SAME.get(plain, plain) if _is_function(plain) else None
    if node.op == "call_function":
        return _OPERATORS.get(node.target) or _function(node.target)
    return None


def _function(target: Any) -> str | None:
    import torch
    from torch.nn import functional
    from torch.nn.utils import rnn

    if target is getattr:
        return "getattr"
    name = getattr(target, "__name__", "")
    for home in (torch, functional, rnn):
        if getattr(home, name, None) is target and _is_function(name.rstrip("_")):
            plain = name.rstrip("_")
            return _SAME.get(plain, plain)
    return None
