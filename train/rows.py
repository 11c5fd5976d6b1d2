"""Rounds the rows of an array layer to the hardware's integers, at scales that are trained, too."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from rtlstm.gen.quantise.plan import RowPlan
from rtlstm.gen.quantise.rounding import Moments, round_columns
from rtlstm.spec.fixed import IntArray
from rtlstm.train.cells import RoundedRows, round_to, row_codes, straight_through
from rtlstm.train.parameters import LayerArrays

Floats = NDArray[np.float64]
_COARSER = 3
"""Powers of two above the finest that a row's first scale is chosen from."""
_NAMES = ("w_in", "w_rec")
_NEWEST = 0.01
"""Least weight of the newest gradients in the running means of their squares."""


class LayerRows(torch.nn.Module):
    """The limits of an array layer's rows, whose next power of two is where a row's weights saturate.

    ``plan`` has the formats around the rows. ``trained`` says whether the rows come from the network's
    parameters, so that their limits are trained.
    """

    def __init__(self, plan: RowPlan, trained: bool) -> None:
        super().__init__()
        self.plan, self.trained = plan, trained
        self.log_limits = torch.nn.ParameterList()
        """Logarithms to the base 2 of the rows' limits, ``(rows,)`` for each vector that is read."""
        for weights, source in zip(plan.layer.matrices, plan.sources, strict=True):
            first = torch.tensor(self._limits(weights, source), dtype=torch.get_default_dtype())
            self.log_limits.append(torch.nn.Parameter(first, trained))
        for name, weights in zip(_NAMES, plan.layer.matrices, strict=False):
            self.register_buffer(f"kept_{name}", torch.ones(weights.shape, dtype=torch.bool))
        self.fixed: dict[str, tuple[Any, Any]] | None = None
        """By the arrays' names which weights are fixed, and to what; others are not rounded then. None: all
        are rounded."""
        self.slopes: dict[bool, tuple[Any, int]] = {}
        """Running means of the squares of the weights' gradients, and of how many, by whether the weights
        multiply h; empty before the first."""

    def _limits(self, weights: Floats, source: int) -> Floats:
        """Return the logarithms of the limits with the smallest square error of these weights."""
        plan = self.plan
        fitting = plan.form.finest_of_rows(weights, plan.target - source)
        chosen = _least_error(weights, fitting, plan.form.maximum)
        # In the middle of a power of two, a limit is as far from the next one as from the one before.
        return np.asarray(plan.form.bits - 1 - np.minimum(chosen, plan.finest - source) - 0.5)

    def fit_limits(self, arrays: LayerArrays) -> None:
        """Choose all limits anew, for the weights as they are now."""
        with torch.no_grad():
            kept = self.prune(arrays)
            for name, limits, source in zip(_NAMES, self.log_limits, self.plan.sources, strict=False):
                found = self._limits(kept[name].cpu().double().numpy(), source)
                limits.copy_(torch.from_numpy(found))

    def take_scales(self, moments: Moments) -> None:
        """Take the scales of rounding with moments."""
        for fractions, limits in zip(self.plan.round(moments).fractions, self.log_limits, strict=True):
            with torch.no_grad():
                limits.copy_(torch.from_numpy(self.plan.form.bits - 1 - fractions - 0.5))

    def fractions(self, arrays: LayerArrays) -> list[Any]:
        """Return the fraction bits of each row's weights, ``(rows,)`` integers for each vector.

        Limits beyond what the hardware's shifts reach count as the last ones that they reach. On an existing
        device, rows whose sums its accumulators do not hold lose fraction bits. NaN counts as 0, so that
        a checkpoint can be loaded over what diverged.
        """
        plan, kept = self.plan, self.prune(arrays)
        found = []
        for name, limits, source in zip(_NAMES, self.log_limits, plan.sources, strict=False):
            coarsest, finest = plan.coarsest - source, plan.finest - source
            wanted = plan.form.bits - 1 - torch.ceil(limits.detach().double().nan_to_num())
            fractions = wanted.clamp(coarsest, finest).long()
            while plan.most_sum is not None:
                _, codes, _ = row_codes(kept[name].detach(), fractions, plan.form.maximum)
                wide = (codes.abs().sum(dim=1) >= plan.most_sum) & (fractions > coarsest)
                if not wide.any():
                    break
                fractions = fractions - wide.long()
            found.append(fractions)
        return found

    def matrices(self, arrays: LayerArrays) -> dict[bool, Any]:
        """Return the matrices, by whether they multiply h, without the weights that are not kept."""
        found = self.prune(arrays)
        return {name == "w_rec": found[name] for name in _NAMES if name in found}

    def keep(self, kept: Mapping[bool, Any]) -> None:
        """Keep these weights of those that are still kept, by whether they multiply h."""
        for recurrent, mask in kept.items():
            buffer = getattr(self, f"kept_{_NAMES[recurrent]}")
            buffer &= torch.from_numpy(mask).to(buffer.device)

    def prune(self, arrays: LayerArrays) -> LayerArrays:
        """Return the arrays without the weights that are not kept."""
        masks = {name: getattr(self, f"kept_{name}") for name in _NAMES if name in arrays}
        return arrays | {name: arrays[name] * mask for name, mask in masks.items()}

    def _note_slopes(self, recurrent: bool, gradient: Any) -> None:
        """Take the squares of a backward pass into their running means."""
        squares = gradient.detach().square()
        if recurrent not in self.slopes:
            self.slopes[recurrent] = (squares, 1)
            return
        before, count = self.slopes[recurrent]
        share = max(_NEWEST, 1.0 / (count + 1))
        self.slopes[recurrent] = before.to(squares).lerp(squares, share), count + 1

    def fold_zeros(self, arrays: LayerArrays) -> LayerArrays:
        """Return the arrays for inputs whose zeros have codes of their own: the bias makes up for these."""
        if self.plan.zeros is None:
            return arrays
        bias = arrays["bias"]
        return arrays | {"bias": (bias.double() - self._read_for_zeros(arrays)).to(bias.dtype)}

    def _read_for_zeros(self, arrays: LayerArrays) -> Any:
        assert self.plan.zeros is not None
        weights = arrays["w_in"].double()
        return weights @ torch.from_numpy(self.plan.zeros).to(weights)

    def floats(self, arrays: LayerArrays) -> LayerArrays:
        """Return what :meth:`prune` gives, and note the gradients of its weights when they come."""
        found = self.prune(arrays)
        for name in _NAMES:
            if name in found and found[name].requires_grad:
                found[name].register_hook(partial(self._note_slopes, name == "w_rec"))
        return found

    def fix(
        self, arrays: LayerArrays, share: float, moments: Moments | None, digit_price: float = 0.0
    ) -> LayerArrays:
        """Fix columns of weights to their integers, so that this ``share`` is fixed; return the arrays.

        With moments, the columns that are left and the bias take over what rounding changes, as in
        :func:`rtlstm.gen.quantise.rounding.round_columns`, which says what the ``digit_price`` is, too.
        """
        names, kept = [name for name in _NAMES if name in arrays], self.prune(arrays)
        before = self.fixed or {name: (torch.zeros_like(kept[name], dtype=torch.bool), 0) for name in names}
        parts = [torch.where(*before[name], kept[name].detach()).cpu().double().numpy() for name in names]
        fixed = np.concatenate([before[name][0].cpu().numpy()[0] for name in names])
        weights, ends = np.concatenate(parts, axis=1), np.cumsum([part.shape[1] for part in parts])[:-1]
        spread = np.eye(len(fixed)) if moments is None else moments.covariance
        order = np.argsort(-np.diag(spread), kind="stable")
        now = order[: round(share * len(order))]
        fractions = tuple(each.cpu().numpy() for each in self.fractions(arrays))
        most = self.plan.form.maximum
        left = round_columns(tuple(parts), fractions, most, spread, order, now[~fixed[now]], digit_price)
        fixed[now] = True
        self.fixed, found = {}, dict(arrays)
        masks = np.broadcast_to(fixed, left.shape)
        pairs = zip(names, np.split(left, ends, axis=1), np.split(masks, ends, axis=1), strict=True)
        for name, part, mask in pairs:
            found[name] = torch.from_numpy(part)
            self.fixed[name] = torch.from_numpy(mask.copy()), torch.from_numpy(part).to(arrays[name].dtype)
        if moments is not None and not self.plan.continues:
            mean = moments.mean.copy()
            if self.plan.zeros is not None:
                mean[: len(self.plan.zeros)] -= self.plan.zeros
            change = torch.from_numpy((weights - left) @ mean)
            found["bias"] = arrays["bias"].detach().double() + change
        return found

    def settled(self, arrays: LayerArrays) -> LayerArrays:
        """Return the arrays with what is fixed, and fix nothing any more."""
        fixed, self.fixed = self.fixed or {}, None
        return arrays | {name: torch.where(*pair, arrays[name]) for name, pair in fixed.items()}

    def forward(self, arrays: LayerArrays, whole: bool = False) -> LayerArrays:
        """Return the real numbers that the hardware's integers stand for, and their ``fractions``.

        ``whole`` rounds the weights, too, that others of which are :attr:`fixed` leave unrounded.
        """
        found = self.floats(arrays)
        # Weights as they are before rounding: sums are exact in the middle of the inputs, where codes are 0.
        bias = self.fold_zeros(found | {"bias": found["bias"].double()})["bias"]
        maximum, chosen = self.plan.form.maximum, self.fractions(arrays)
        for name, limits, fractions in zip(_NAMES, self.log_limits, chosen, strict=False):
            if self.fixed is None or whole:
                found[name] = RoundedRows.apply(found[name], limits, fractions, maximum)
            else:
                end = (maximum + 0.5) * torch.exp2(-fractions.double())[:, None].to(found[name])
                found[name] = torch.minimum(torch.maximum(found[name], -end), end)
            if self.fixed is not None:
                found[name] = torch.where(*self.fixed[name], found[name])
        found["fractions"] = chosen
        scaled = bias.detach() * 2.0**self.plan.target
        found["bias"] = straight_through(torch.floor(scaled + 0.5) * 2.0**-self.plan.target, bias)
        if self.plan.constants is not None:
            found["unit_constants"] = round_to(arrays["unit_constants"].double(), self.plan.constants)
        return found

    def exported(self, arrays: LayerArrays) -> Mapping[str, Floats]:
        """Return what :meth:`forward` gives, as NumPy arrays, with the network's bias."""
        with torch.no_grad():
            found = self(arrays, whole=True)
            if self.plan.zeros is not None:
                found["bias"] = found["bias"] + self._read_for_zeros(found)
            return {name: found[name].cpu().double().numpy() for name in arrays}


@dataclass(frozen=True)
class _Trial:
    fractions: IntArray
    error: Floats


def _least_error(weights: Floats, first: IntArray, maximum: int) -> IntArray:
    """Return each row's fraction bits with the smallest square error: a few weights may saturate."""
    best: _Trial | None = None
    for more in range(_COARSER + 1):
        fractions = first + more
        scaled = np.ldexp(weights, fractions[:, None])
        codes = np.clip(np.floor(scaled + 0.5), -maximum, maximum)
        error = np.square(np.ldexp(codes - scaled, -fractions[:, None])).sum(axis=1)
        if best is None:
            best = _Trial(fractions, error)
            continue
        better = error < best.error
        best = _Trial(np.where(better, fractions, best.fractions), np.minimum(error, best.error))
    assert best is not None
    return best.fractions
