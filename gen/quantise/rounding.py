"""Rounds the weights of rows to integers: each to the nearest, or so that errors of a row cancel.

Typical inputs of a row are correlated. What rounding one weight adds to the row's sum can then be taken back
by the weights that are rounded after it, and by the bias.

Steps of rows are powers of two, or have scales: those of a model's integers, or such that a row uses all
codes. A scale is a whole number of ``SCALE_UNIT`` bits, of which hardware has the upper ones, in units of
``2**-SCALE_UNIT``. A row's step, what 1 is worth of its weights, is
``scale * 2**-SCALE_UNIT * 2**-fraction``.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rtlstm.spec.adders import count_digits
from rtlstm.spec.fixed import IntArray, WeightFormat, round_half_up
from rtlstm.spec.numerics import SCALE_UNIT

Floats = NDArray[np.float64]

_DAMPING = 0.01
"""Share of the mean variance that is added to each variance, so that rare inputs keep their weights."""
_CHANCE = 0.3
"""How many samples for each column make half of a correlation."""
_BLOCK = 64
"""Columns whose changes are spread over the later ones at once: products of matrices are fast."""
_FINER = (0, 1, 2)
"""Bits by which a row's scale may be finer than its largest weight allows: that weight then saturates."""
_FLOAT32 = 2.0**-21
"""Largest difference of a weight from a multiple of its row's step, relative to the row's largest weight: a
model multiplies its integers in float32."""
_FEW, _ROWS = 8, 256
"""Columns of a row that are looked at first, and rows that are looked at together."""
_DISTANCES = np.array((0, -1, 1, -2, 2))[:, None]
"""How far from the nearest integer one of fewer digits may be; the first of equal ones is taken."""
_MOST = 1023
"""Largest integer of a model whose step is looked for."""


@dataclass(frozen=True)
class Moments:
    """Means and covariances of the values that a layer's rows multiply: vector by vector, side by side."""

    mean: Floats
    """``(columns,)``."""
    covariance: Floats
    """``(columns, columns)``."""

    @classmethod
    def of(cls, values: Floats) -> "Moments":
        """Take those of ``(samples, columns)``."""
        mean, (count, columns) = values.mean(axis=0), values.shape
        centred = values - mean
        covariance = centred.T @ centred / count
        # Columns of few samples are correlated by chance.
        share = count / (count + _CHANCE * columns)
        return cls(mean, share * covariance + (1.0 - share) * np.diag(np.diag(covariance)))


@dataclass(frozen=True)
class RoundedRows:
    """Integers of a layer's rows."""

    matrices: tuple[IntArray, ...]
    """Weights for each vector that the layer reads, ``(rows, columns)``."""
    fractions: tuple[IntArray, ...]
    """Their fraction bits, ``(rows,)`` for each vector."""
    bias_change: Floats
    """What the biases make up for, ``(rows,)``, in real units: the mean of what rounding changes."""
    scales: tuple[IntArray, ...] = ()
    """Scales of rows for each vector, if the hardware has them."""

    def where(self, rows: NDArray[np.bool_], others: "RoundedRows") -> "RoundedRows":
        """Return these integers in some ``rows``, and those of ``others`` elsewhere."""
        pairs = zip(self.matrices, others.matrices, strict=True)
        scales = zip(self.fractions, others.fractions, strict=True)
        return RoundedRows(
            tuple(np.where(rows[:, None], *pair) for pair in pairs),
            tuple(np.where(rows, *pair) for pair in scales),
            np.where(rows, self.bias_change, others.bias_change),
            self.scales,
        )


def round_nearest(
    form: WeightFormat, matrices: tuple[Floats, ...], fractions: tuple[IntArray, ...]
) -> RoundedRows:
    """Round each weight to the nearest."""
    integers = tuple(
        form.to_integers(weights, each[:, None]) for weights, each in zip(matrices, fractions, strict=True)
    )
    return RoundedRows(integers, fractions, np.zeros(len(matrices[0])))


def round_cancelling(
    form: WeightFormat,
    matrices: tuple[Floats, ...],
    fractions: tuple[IntArray, ...],
    finest: tuple[int, ...],
    moments: Moments,
    scales: tuple[IntArray, ...] = (),
) -> RoundedRows:
    """Round so that the mean square change of each row's sum is small.

    Column by column, the change that rounding makes is spread over the columns that are not rounded yet, by
    the inverse of their covariance: Hassibi and Stork's "Optimal brain surgeon", 1993, with the order and the
    factorisation of Frantar et al., "GPTQ", 2022. Weights of 0 stay 0. Each row takes the scale, as its
    largest weight allows or finer, up to ``finest`` fraction bits of each vector's weights, that changes its
    sum least. ``scales`` are those of rows whose steps are no powers of two.
    """
    widths = [part.shape[1] for part in matrices]
    weights = np.concatenate(matrices, axis=1)
    # A vector that a row does not read takes nothing over from the others.
    read = np.stack([part.any(axis=1) for part in matrices], axis=1)
    codes, finer = np.zeros_like(weights), np.zeros(len(weights), dtype=np.int64)
    units = [np.ldexp(scale.astype(np.float64), -SCALE_UNIT) for scale in scales]
    units = units or [np.ones(len(weights))] * len(widths)
    for which in np.unique(read, axis=0):
        rows, columns = (read == which).all(axis=1), np.repeat(which, widths)
        if not columns.any():
            continue
        part = np.ix_(rows, columns)
        steps, most, unit = (
            np.repeat(np.stack([*each], axis=-1)[..., which], np.array(widths)[which], axis=-1)
            for each in ([each[rows] for each in fractions], finest, [each[rows] for each in units])
        )
        covariance = moments.covariance[np.ix_(columns, columns)]
        found, errors = _cancel(
            weights[part],
            np.stack([np.ldexp(unit, -np.minimum(steps + more, most)) for more in _FINER]),
            form.maximum,
            covariance,
        )
        best = np.argmin(errors, axis=0)
        codes[part] = np.choose(best[:, None], found)
        finer[rows] = np.array(_FINER)[best]
    chosen = tuple(np.minimum(each + finer, most) for each, most in zip(fractions, finest, strict=True))
    integers = tuple(part.astype(np.int64) for part in np.split(codes, np.cumsum(widths)[:-1], axis=1))
    values = [
        part * np.ldexp(unit, -each)[:, None]
        for part, each, unit in zip(integers, chosen, units, strict=True)
    ]
    change = (weights - np.concatenate(values, axis=1)) @ moments.mean
    return RoundedRows(integers, chosen, change, scales)


def _cancel(weights: Floats, steps: Floats, most: int, covariance: Floats) -> tuple[Floats, Floats]:
    """Return integers in units of ``steps``, and the variance of each row's change.

    ``steps`` are several of each of the weights, ``(trials, rows, columns)``, and so are the integers.
    """
    spread = covariance + _DAMPING * max(float(np.diag(covariance).mean()), 1e-12) * np.eye(len(covariance))
    order = np.argsort(-np.diag(covariance), kind="stable")
    upper = np.linalg.cholesky(np.linalg.inv(spread[np.ix_(order, order)])).T
    # Columns come first: a column's values follow each other in memory.
    ordered = np.ascontiguousarray(steps[..., order].transpose(2, 0, 1))
    kept = np.ascontiguousarray((weights[:, order] != 0.0).T)
    left = np.repeat(weights[:, order].T[:, None], len(steps), axis=1)
    codes = np.zeros_like(left)
    for first in range(0, len(order), _BLOCK):
        block = slice(first, min(first + _BLOCK, len(order)))
        errors = np.zeros((block.stop - first, *left.shape[1:]))
        for at in range(first, block.stop):
            code = np.clip(round_half_up(left[at] / ordered[at]), -most, most) * kept[at]
            error = (left[at] - code * ordered[at]) / upper[at, at]
            left[at + 1 : block.stop] -= error * upper[at, at + 1 : block.stop, None, None]
            errors[at - first], codes[order[at]] = error, code
        for trial in range(len(steps)):
            change = np.ascontiguousarray(errors[:, trial].T)
            left[block.stop :, trial] -= (change @ upper[block, block.stop :]).T
    found = np.ascontiguousarray(codes.transpose(1, 2, 0))
    change = weights - found * steps
    return found, np.stack([np.einsum("rc,rc->r", each @ spread, each) for each in change])


@dataclass(frozen=True)
class ScaledRows:
    """Integers of the rows for one vector, and their steps."""

    weights: IntArray
    fraction: IntArray
    scale: IntArray
    kept: NDArray[np.bool_]
    """Rows that have the integers that they are made of."""

    def coarser(self, rows: IntArray) -> "ScaledRows":
        """Return the same rows in steps twice as large where ``rows`` is 1."""
        weights = np.where(rows[:, None] > 0, (self.weights + 1) >> 1, self.weights)
        return ScaledRows(weights, self.fraction - rows, self.scale, self.kept & (rows == 0))


def find_steps(weights: Floats, maximum: int) -> Floats:
    """Return the step of which a row's weights are multiples up to ``maximum``, ``(rows,)``; 0 without one.

    The largest such step, or one that other rows have, too. Rows of larger integers than 1023 count as
    without.
    """
    maximum = min(maximum, _MOST)
    largest = np.abs(weights).max(axis=1)
    relative = weights / np.where(largest > 0.0, largest, 1.0)[:, None]
    multiples = np.arange(1, maximum + 1)
    order = np.argsort(-np.abs(relative), axis=1)[:, :_FEW]
    some = np.take_along_axis(relative, order, axis=1)[:, :, None]
    possible = np.empty((len(weights), maximum), dtype=np.bool_)
    for first in range(0, len(weights), _ROWS):
        few = some[first : first + _ROWS] * multiples
        possible[first : first + _ROWS] = (np.abs(few - np.rint(few)) <= _FLOAT32 * multiples).all(axis=1)
    found = np.zeros(len(weights), dtype=np.int64)
    for row in np.flatnonzero(largest):
        for multiple in multiples[possible[row]]:
            codes = relative[row] * multiple
            if (np.abs(codes - np.rint(codes)) <= _FLOAT32 * multiple).all():
                found[row] = multiple
                break
    steps = np.where(found > 0, largest / np.maximum(found, 1), 0.0)
    known = np.unique(steps[found > 0])
    finer = steps.copy()
    for row in np.flatnonzero((found > 0) & (2 * found <= maximum)):
        # Integers that all are even, say, may have the step of the rows beside them, as those of one tensor.
        ratios = steps[row] / known
        whole = (np.abs(ratios - np.rint(ratios)) <= 2 * _FLOAT32 * ratios) & (
            ratios * found[row] <= maximum + 0.5
        )
        if whole.any():
            finer[row] = known[whole].min()
    return finer


def scale_rows(weights: Floats, maximum: int, bits: int, empty: int, finest: int) -> ScaledRows:
    """Return rows in integers up to ``maximum`` with scales of ``bits`` bits.

    Rows that are multiples of a step keep their integers. In others the largest weight is the largest code.
    Rows of zeros have ``empty`` fraction bits, and none has more than ``finest``.
    """
    largest, steps = np.abs(weights).max(axis=1), find_steps(weights, maximum)
    kept = steps > 0.0
    steps = np.where(kept, steps, np.where(largest > 0.0, largest / maximum, 2.0 ** -(empty + 1)))
    fraction, scale = _split(steps, bits, kept)
    # So small a row takes what is left of its codes.
    kept &= fraction <= finest
    scale = np.where(fraction <= finest, scale, 1 << (SCALE_UNIT - 1))
    fraction = np.minimum(fraction, finest)
    used = np.where(kept, steps, np.ldexp(scale.astype(np.float64), -SCALE_UNIT - fraction))
    codes = np.rint(weights / used[:, None])
    return ScaledRows(np.clip(codes, -maximum, maximum).astype(np.int64), fraction, scale, kept)


def _split(steps: Floats, bits: int, nearest: NDArray[np.bool_]) -> tuple[IntArray, IntArray]:
    """Return fraction bits and scales of steps: the nearest, or else not below the step."""
    mantissas, exponents = np.frexp(steps)
    wanted = np.ldexp(mantissas, bits)
    scale = np.where(nearest, np.rint(wanted), np.ceil(wanted)).astype(np.int64)
    beyond = scale >> bits
    fraction = -(exponents.astype(np.int64) + beyond)
    return fraction, (scale >> beyond) << (SCALE_UNIT - bits)


def round_columns(
    parts: tuple[Floats, ...],
    fractions: tuple[IntArray, ...],
    most: int,
    covariance: Floats,
    order: IntArray,
    columns: IntArray,
    digit_price: float = 0.0,
) -> Floats:
    """Round some ``columns`` of matrices side by side; return the weights, those later in ``order`` changed.

    They take over what rounding changes, as in :func:`round_cancelling`. Weights of 0 stay 0. With a
    ``digit_price``, integers are those with the least square of what rounding changes, in steps, plus that
    for each of their signed digits.
    """
    widths = [part.shape[1] for part in parts]
    found = np.concatenate(parts, axis=1)
    kept = found != 0.0
    steps, read = (
        np.repeat(np.stack(each, axis=1), widths, axis=1)
        for each in (fractions, [part.any(axis=1) for part in parts])
    )
    damping = _DAMPING * max(float(np.diag(covariance).mean()), 1e-12)
    spread = covariance + damping * np.eye(len(covariance))
    for which in np.unique(read, axis=0):
        rows, mine = np.flatnonzero((read == which).all(axis=1)), order[which[order]]
        if not len(mine):
            continue
        upper = np.linalg.cholesky(np.linalg.inv(spread[np.ix_(mine, mine)])).T
        left = found[np.ix_(rows, mine)]
        for at in np.flatnonzero(np.isin(mine, columns)):
            step, there = steps[rows, mine[at]], kept[rows, mine[at]]
            codes = np.clip(round_half_up(left[:, at], step), -most, most)
            if digit_price:
                codes = _few_digits(np.ldexp(left[:, at], step), codes, most, digit_price)
            value = np.ldexp(codes * there, -step)
            error = (left[:, at] - value) / upper[at, at]
            left[:, at + 1 :] -= np.outer(error, upper[at, at + 1 :])
            left[:, at] = value
        found[np.ix_(rows, mine)] = left * kept[np.ix_(rows, mine)]
    return found


def limit_digits(rows: RoundedRows, weights: Floats, moments: Moments | None) -> RoundedRows:
    """Return rows whose integers for the last vector have few enough signed digits for one adder less.

    Each adder behind the others doubles the terms that a row may have, which are its digits and an addend. So
    no row keeps more of them than the power of two below those of the longest one. Of a row with more, the
    integers change that add least to the mean square change of its sum, one after the other. ``weights`` are
    those for all vectors, side by side. Rows that cannot have so few stay as they are, all of them.
    """
    *others, codes = rows.matrices
    codes, first = codes.copy(), weights.shape[1] - codes.shape[1]
    steps = [np.ldexp(1.0, -each)[:, None] for each in rows.fractions]
    errors = weights - np.concatenate(
        [part * step for part, step in zip(rows.matrices, steps, strict=True)], 1
    )
    spread = np.eye(weights.shape[1]) if moments is None else moments.covariance
    terms, largest = 1 + count_digits(codes).sum(axis=1), int(np.abs(codes).max())
    most = 1 << (int(terms.max()) - 1).bit_length() - 1 if terms.max() > 1 else 1
    for row in np.flatnonzero(terms > most):
        while terms[row] > most:
            tried, digits = _try_neighbours(codes[row], largest)
            changes, fewer = float(steps[-1][row, 0]) * (tried - codes[row]), digits[0] - digits
            costs = changes**2 * np.diag(spread)[first:] - 2.0 * changes * (spread @ errors[row])[first:]
            costs = np.where(fewer > 0, costs / np.maximum(fewer, 1), np.inf)
            which, column = np.unravel_index(np.argmin(costs), costs.shape)
            if costs[which, column] == np.inf:
                return rows
            terms[row] -= fewer[which, column]
            codes[row, column] = tried[which, column]
            errors[row, first + column] -= changes[which, column]
    bias = rows.bias_change
    if moments is not None:
        bias = bias + (rows.matrices[-1] - codes) * steps[-1] @ moments.mean[first:]
    return RoundedRows((*others, codes), rows.fractions, bias, rows.scales)


def _try_neighbours(codes: IntArray, most: int) -> tuple[IntArray, IntArray]:
    """Return integers near others, up to ``most`` in magnitude, and their signed digits: theirs first."""
    neighbours = np.clip(codes + _DISTANCES, -most, most)
    return neighbours, count_digits(neighbours)


def _few_digits(values: Floats, nearest: Floats, most: int, price: float) -> Floats:
    """Return integers near values at which the square of the difference is cheapest, with their digits."""
    tried, digits = _try_neighbours(nearest.astype(np.int64), most)
    costs = (tried - values) ** 2 + price * digits
    chosen: Floats = np.take_along_axis(tried, np.argmin(costs, axis=0)[None], axis=0)[0].astype(np.float64)
    return chosen
