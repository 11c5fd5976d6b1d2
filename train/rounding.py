"""Rounding that lets gradients through, on real numbers that are multiples of powers of two.

A value ``n * 2**-f`` is a float as long as ``n`` has few enough bits, so that real numbers hold the
hardware's integers exactly. Gradients are straight-through: that of a rounded value is that of the value
before, and that of a saturated one is 0.
"""

import math
from typing import Any

import torch

from rtlstm.spec.fixed import Format

FLOAT32_BITS = 24
"""Bits of integers that float32 holds exactly."""


def straight_through(value: Any, differentiable: Any) -> Any:
    """Return ``value``, exactly, with the gradient of ``differentiable``."""
    return value.detach() + (differentiable - differentiable.detach())


def rounded(values: Any, x: Any, low: float, high: float, log_range: Any = None, middle: float = 0.0) -> Any:
    """Return rounded values, saturated, with the gradients of rounding.

    Parameters
    ----------
    values
        ``x`` rounded, not yet saturated at ``low`` and ``high``.
    log_range
        The logarithm of the format's range, if that is trained. Its gradient is that of Jain et al., "Trained
        quantization thresholds", arXiv 1903.08066, equations 5 to 8.
    middle
        How much more than ``values`` the rounded ones stand for: half a step if they were rounded down.
    """
    saturated = values.clamp(low, high)
    through = x.clamp(low, high)
    if log_range is not None:
        change = torch.where(values == saturated, values + (middle - x.detach()), saturated)
        through = through + change * (math.log(2.0) * log_range.to(x.dtype))
    return straight_through(saturated, through)


def round_to(x: Any, form: Format, log_range: Any = None) -> Any:
    """Round half up to a format, and saturate symmetrically; ``log_range`` as in :func:`rounded`."""
    limit = math.ldexp(form.maximum, -form.fraction)
    values = torch.floor(x.detach() * 2.0**form.fraction + 0.5) * 2.0**-form.fraction
    return rounded(values, x, -limit, limit, log_range)


def odd_codes(values: Any) -> Any:
    """Return odd integers: the middles of the two steps that values lie in; 0 counts as positive."""
    return 2.0 * torch.trunc(0.5 * values) + torch.where(values < 0.0, -1.0, 1.0).to(values.dtype)


def odd_to(x: Any, form: Format) -> Any:
    """Round what is within a format's range to its odd codes."""
    return straight_through(odd_codes(x.detach() * 2.0**form.fraction) * 2.0**-form.fraction, x)


def floor_to(x: Any, form: Format, log_range: Any = None) -> Any:
    """Round down to a format, and saturate at its lowest and its highest code."""
    low, high = (math.ldexp(code, -form.fraction) for code in (~form.maximum, form.maximum))
    values = torch.floor(x.detach() * 2.0**form.fraction) * 2.0**-form.fraction
    return rounded(values, x, low, high, log_range, 0.5 * 2.0**-form.fraction)


def row_codes(weights: Any, fractions: Any, maximum: int) -> tuple[Any, Any, Any]:
    """Return weights ``(rows, columns)`` in units of their rows' steps, these rounded half up and saturated,
    and the units in a weight of 1, ``(rows, 1)``; all in float64."""
    scale = torch.exp2(fractions.double())[:, None]
    scaled = weights.double() * scale
    return scaled, torch.floor(scaled + 0.5).clamp(-maximum, maximum), scale


class RoundedRows(torch.autograd.Function):
    """Rounds weights half up to each row's power of two, and saturates them.

    Gradients of the rows' limits are those of Jain et al., "Trained quantization thresholds",
    arXiv 1903.08066, equations 5 to 8.
    """

    @staticmethod
    def forward(ctx: Any, weights: Any, log_limits: Any, fractions: Any, maximum: int) -> Any:
        """Round ``(rows, columns)``; ``fractions`` ``(rows,)`` follow from ``log_limits``."""
        scaled, codes, scale = row_codes(weights, fractions, maximum)
        ctx.save_for_backward(scaled, codes, scale)
        return (codes / scale).to(weights.dtype)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> tuple[Any, ...]:
        """Return the gradients of weights and limits."""
        scaled, codes, scale = ctx.saved_tensors
        inside = torch.floor(scaled + 0.5) == codes
        of_limit = torch.where(inside, codes - scaled, codes) / scale * math.log(2.0)
        of_limits = (gradient * of_limit).sum(dim=1).to(gradient.dtype)
        return gradient * inside, of_limits, None, None
