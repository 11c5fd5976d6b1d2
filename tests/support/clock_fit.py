"""Fits a family's clocks to designs that were placed and routed: those in use must be what fits."""

from collections.abc import Mapping, Sequence

import numpy as np

from rtlstm.fpga.devices import find_device
from rtlstm.fpga.families.estimates import Estimates, RoutedDesign

_HOLD = 0.1
"""Weight of the present loss of a full device: it decides where designs do not."""


def fit_clocks(family: Estimates, routed: Sequence[RoutedDesign]) -> dict[str, float]:
    """Fit a family's clocks to routed designs: a factor for each of their dies, and two losses.

    The fit minimises the squares of the relative errors. The factors multiply those in use, so that 1 means
    that a die's clock is right; designs without ``sum_bits`` and dies with clocks of their own are left out.
    The loss of a full device, ``filled``, stays near the present one as long as few designs tell it. That of
    ``direct_tables`` stays as it is unless there are designs with and without them.
    """
    model = family.clocks.get("")
    rows = [each for each in routed if each.mhz is not None and each.sum_bits is not None]
    rows = [each for each in rows if find_device(each.device).device.name not in family.clocks]
    if model is None or not rows:
        return {}
    told = len({each.direct for each in rows}) > 1
    losses = [loss / 100 for loss in range(31)] if told else [model.direct_tables]

    def error(tried: dict[str, float]) -> float:
        left = _die_factors(family, rows, tried)[1]
        return left + (_HOLD * (tried["filled"] - model.filled)) ** 2

    best = min(
        ({"filled": filled / 100, "direct_tables": loss} for filled in range(51) for loss in losses),
        key=error,
    )
    return _die_factors(family, rows, best)[0] | best


def _die_factors(
    family: Estimates, rows: Sequence[RoutedDesign], losses: Mapping[str, float]
) -> tuple[dict[str, float], float]:
    """Return each die's factor with given losses, and the sum of the squares of the relative errors."""
    shares: dict[str, list[float]] = {}
    for each in rows:
        chosen = find_device(each.device)
        model = family.clock(chosen.device.name).replace(**losses)
        fill, bits = each.cell_share / 100, each.sum_bits or 0
        mhz = model.mhz(chosen.grade, fill, bits, direct_tables=each.direct)
        shares.setdefault(chosen.device.name, []).append(mhz / (each.mhz or mhz))
    factors, left = {}, 0.0
    for name, found in shares.items():
        ratio = np.array(found)
        factor = float(ratio.sum() / (ratio**2).sum())
        factors[name] = round(factor, 3)
        left += float(((factor * ratio - 1) ** 2).sum())
    return factors, left
