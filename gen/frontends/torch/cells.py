"""One layer of PyTorch's recurrent modules from its named parameters: LSTM, GRU, RNN and their cells."""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import numpy as np

from rtlstm.gen.frontends.arrays import CellKind, Floats, expect_shape, stacked_layer, to_float64
from rtlstm.spec.activations.functions import RELU, SIGMOID, TANH
from rtlstm.spec.errors import ModelError
from rtlstm.spec.network import Bidirectional, Gru, Lstm, Rnn

KINDS: Final[dict[int, CellKind]] = {4: "lstm", 3: "gru", 1: "rnn"}
"""By the number of gates that are stacked in the weights."""
PARAMETERS: Final = ("weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_hr")


def recurrent_layer(
    get: Callable[[str], Any],
    names: Mapping[str, str],
    name: str,
    where: str,
    *,
    reverse: bool = False,
    relu: bool = False,
) -> Lstm | Gru | Rnn:
    """Build one direction of one layer; its kind follows from the shapes.

    Raises ModelError if a parameter is missing or has another shape; the message has ``where`` and its name.

    Parameters
    ----------
    get
        Returns a tensor by its name.
    names
        The name of each of :data:`PARAMETERS` that is present.
    relu
        Whether a plain RNN has ReLU instead of tanh, which its weights do not tell.
    """
    for part in ("weight_ih", "weight_hh"):
        if part not in names:
            raise ModelError(f"{where} must have {part}, but it is missing")

    def load(part: str) -> Floats:
        return to_float64(get(names[part]), _title(where, names[part]))

    w_ih, w_hh = load("weight_ih"), load("weight_hh")
    if w_ih.ndim != 2 or w_hh.ndim != 2 or 0 in (*w_ih.shape, *w_hh.shape):
        raise ModelError(f"{where} must have weights with 2 axes, not shapes {w_ih.shape} and {w_hh.shape}")
    projection = load("weight_hr") if "weight_hr" in names else None
    units = w_hh.shape[1]
    if projection is not None:
        if projection.ndim != 2 or projection.shape[0] != w_hh.shape[1]:
            raise ModelError(
                f"{_title(where, names['weight_hr'])} must have shape ({w_hh.shape[1]}, units), not "
                f"{projection.shape}; the model is damaged"
            )
        units = projection.shape[1]
    gates, rest = divmod(w_ih.shape[0], units)
    if rest or gates not in KINDS:
        raise ModelError(
            f"{_title(where, names['weight_ih'])} must have 4 x {units} rows (an LSTM), 3 x {units} (a GRU) "
            f"or {units} (a plain RNN), not {w_ih.shape[0]}: {names['weight_hh']!r} has shape {w_hh.shape}, "
            f"and {units} units; the model is damaged"
        )
    kind = KINDS[gates]
    expect_shape(w_hh, (w_ih.shape[0], w_hh.shape[1]), _title(where, names["weight_hh"]))
    if projection is not None and kind != "lstm":
        raise ModelError(
            f"{where} is a {kind.upper()} by its shape, but only an LSTM can have weight_hr (proj_size)"
        )
    b_ih, b_hh = _biases(load, names, w_ih.shape[0], where)
    functions = (RELU if relu else TANH,) if kind == "rnn" else (SIGMOID, TANH, TANH)
    given: dict[str, Any] = {"reverse": reverse} | ({"projection": projection} if kind == "lstm" else {})
    return stacked_layer("torch", kind, name, (w_ih, w_hh, b_ih, b_hh), functions, **given)


def bidirectional_layer(
    name: str, forward: Lstm | Gru | Rnn, backward: Lstm | Gru | Rnn, where: str
) -> Bidirectional:
    """Join two directions, as PyTorch does, forward outputs first."""
    if forward.kind != backward.kind or forward.w_ih.shape != backward.w_ih.shape:
        raise ModelError(f"{where} must have two directions of the same kind and size; the model is damaged")
    return Bidirectional(name=name, forward=forward, backward=backward)


def _biases(
    load: Callable[[str], Floats], names: Mapping[str, str], rows: int, where: str
) -> tuple[Floats, Floats]:
    given = [part for part in ("bias_ih", "bias_hh") if part in names]
    if len(given) == 1:
        raise ModelError(f"{where} must have both biases or none, but has only {names[given[0]]!r}")
    if not given:
        return np.zeros(rows), np.zeros(rows)
    b_ih, b_hh = load("bias_ih"), load("bias_hh")
    for part, bias in (("bias_ih", b_ih), ("bias_hh", b_hh)):
        expect_shape(bias, (rows,), _title(where, names[part]))
    return b_ih, b_hh


def _title(where: str, tensor: str) -> str:
    return f"{where}: tensor {tensor!r}"


# Weights of which PyTorch keeps parts: pruned ones are read, those of norms are refused with a remedy


_PART = re.compile(
    r"^(?:(?P<owner>.*\.|)parametrizations\.(?P<new>\w+)\.original\d*|(?P<old>.*(?:weight|bias)\w*?)_(?P<kind>g|v|orig))$"
)
"""Parts of a weight that torch.nn.utils.parametrizations, the older norms, or pruning keep."""
_UTILS = "torch.nn.utils."
_REMOVE = {
    "new": f"{_UTILS}parametrize.remove_parametrizations(module, name)",
    "mask": f"{_UTILS}prune.remove(module, name)",
    "orig": f"{_UTILS}remove_spectral_norm(module, name)",
    "norm": f"{_UTILS}remove_weight_norm(module, name)",
}
_MAKERS = {
    "new": "a parametrization, such as a weight norm,",
    "mask": "pruning",
    "orig": "a spectral norm",
    "norm": "a weight norm",
}
*_OTHERS, _LAST = _REMOVE.values()
PLAIN = f"make them plain before, with {', '.join(_OTHERS)} or {_LAST}"
"""What to do about weights that a model computes."""


def with_pruned(tensors: Mapping[str, Any]) -> dict[str, Any]:
    """Return tensors with each pruned one in place of its two parts: the values times a mask."""
    found = dict(tensors)
    for name in tensors:
        whole = name.removesuffix("_orig")
        values: Any = found.get(name)
        mask: Any = found.get(f"{whole}_mask")
        if whole == name or whole in found or not all(hasattr(part, "__mul__") for part in (values, mask)):
            continue
        if values.shape == mask.shape:
            del found[name], found[f"{whole}_mask"]
            found[whole] = values * mask
    return found


def parts_refusal(name: str, names: Iterable[str]) -> tuple[str, str] | None:
    """Return the weight that a tensor is a part of, and a refusal; None if that is there or it is no part."""
    found = _PART.match(name)
    weight = "" if found is None else found["old"] or f"{found['owner']}{found['new']}"
    if found is None or weight in names:
        return None
    if found["kind"] in ("g", "v") and not {f"{weight}_g", f"{weight}_v"} <= set(names):
        return None  # Another layer's tensor of that name, such as an attention's bias_v.
    kind = "new" if found["new"] else found["kind"] if found["kind"] == "orig" else "norm"
    kind = "mask" if f"{weight}_mask" in names else kind
    return weight, (
        f"must hold the weight {weight!r} itself, but has the parts that {_MAKERS[kind]} makes it of "
        f"({name!r}); make it plain before saving, with {_REMOVE[kind]}"
    )
