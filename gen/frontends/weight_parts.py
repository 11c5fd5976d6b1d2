"""Weights of which PyTorch keeps parts: pruned ones are read, those of norms are refused with a remedy."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

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
