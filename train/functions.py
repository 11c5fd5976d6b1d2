"""Activation functions in PyTorch, with their derivatives."""

from typing import Any

import numpy as np
import torch

from rtlstm.spec.activations.functions import ActivationFunction, Lines

__all__ = ["activate"]

_STEP = 1e-6
"""Distance of the two points that give a derivative."""


def activate(function: ActivationFunction, x: Any) -> Any:
    """Return a function's values, whose gradients are its derivative's."""
    match function.name:
        case "identity":
            return x
        case "relu":
            return torch.relu(x)
        case "sigmoid":
            return torch.sigmoid(x)
        case "tanh":
            return torch.tanh(x)
    lines = function.lines
    return _Formula.apply(x, function) if lines is None else _piecewise(lines, x)


def _piecewise(lines: Lines, x: Any) -> Any:
    starts = torch.tensor(lines.starts, dtype=x.dtype, device=x.device)
    piece = torch.bucketize(x.detach().contiguous(), starts, right=not lines.exclusive)
    slopes, offsets = (x.new_tensor(values)[piece] for values in zip(*lines.lines, strict=True))
    return (slopes * x + offsets).clamp(lines.low, lines.high)


class _Formula(torch.autograd.Function):
    """A function that is known by its formula in NumPy: any that has a table, also a plug-in's."""

    @staticmethod
    def forward(ctx: Any, x: Any, function: ActivationFunction) -> Any:
        points = x.detach().cpu().double().numpy()
        rise = function(points + _STEP) - function(points - _STEP)
        ctx.save_for_backward(_like(rise / (2.0 * _STEP), x))
        return _like(function(points), x)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> tuple[Any, ...]:
        (slope,) = ctx.saved_tensors
        return gradient * slope, None


def _like(values: np.ndarray[Any, Any], x: Any) -> Any:
    return torch.from_numpy(np.ascontiguousarray(values)).to(x)
