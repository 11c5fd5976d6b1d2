"""The magnitudes that a network's formats are to hold: bounded by its weights, or met in float runs."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from rtlstm.gen.quantise.calibration import Calibration, repeat_state, run_reference
from rtlstm.gen.quantise.cell_range import MARGIN
from rtlstm.gen.quantise.directions import Product, unfold
from rtlstm.gen.quantise.lowering import lower
from rtlstm.sim.reference import FloatResult, FloatState
from rtlstm.spec.network import Dense, Network
from rtlstm.spec.program.passes import feeds
from rtlstm.spec.record import Record


@dataclass(frozen=True)
class Ranges:
    """Magnitudes that formats are to hold."""

    preactivation: float
    layers: tuple[float, ...]
    """Largest magnitude of each array layer's results."""
    begins: tuple[float, ...] = ()
    """Largest magnitude of the h in which sequences begin, of each array layer whose results are h or a share
    of it, 0 of others; empty if all begin with zeros."""

    def begin(self, index: int) -> float:
        """Return an array layer's of ``begins``."""
        return self.begins[index] if self.begins else 0.0

    def joined(self, other: "Ranges") -> "Ranges":
        """Return ranges that hold those of both, which begin in the same states."""
        layers = tuple(map(max, self.layers, other.layers))
        return replace(self, preactivation=max(self.preactivation, other.preactivation), layers=layers)


class Calibrated(Record):
    """What calibration data say of a network, but for the range of c: it is the same for any formats."""

    feature_peaks: tuple[float, ...]
    preactivation: float
    results: tuple[float, ...]
    begins: tuple[float, ...] = ()
    """As in :class:`Ranges`."""

    @classmethod
    def of(cls, data: Calibration, ranges: Ranges) -> Self:
        """Take what :func:`measure_ranges` found for the data."""
        # Float sums differ in their last digits from machine to machine; reports must be equal.
        preactivation, *results = (float(f"{each:.9g}") for each in (ranges.preactivation, *ranges.layers))
        return cls(
            feature_peaks=tuple(data.peaks.tolist()),
            preactivation=preactivation,
            results=tuple(results),
            begins=ranges.begins,
        )

    @property
    def peaks(self) -> NDArray[np.float64]:
        """Largest magnitude of each feature, ``(inputs,)``."""
        return np.array(self.feature_peaks)

    @property
    def ranges(self) -> Ranges:
        """The magnitudes that formats are to hold."""
        return Ranges(self.preactivation, self.results, self.begins)


def largest_begins(states: Sequence[FloatState]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the largest magnitude of each layer's h, and of each c, in which sequences begin."""
    h, c = (
        np.max([[np.abs(layer).max(initial=0.0) for layer in state[part]] for state in states], axis=0)
        for part in range(2)
    )
    return h, c


def begin_ranges(network: Network, states: Sequence[FloatState]) -> tuple[float, ...]:
    """Return ``begins`` of a network's :class:`Ranges`."""
    if not states:
        return ()
    unfolded = unfold(network)
    given = iter(largest_begins(states)[0].tolist())
    h = [0.0 if isinstance(layer, Dense | Product) else next(given) for layer in unfolded.layers]
    found: list[float] = []
    ends: dict[int, float] = {}
    for layer in lower(unfolded)[0]:
        if layer.kind == "product":
            mine = max(1.0, ends[layer.origin - 2]) * max(1.0, ends[layer.origin - 1])
        else:
            mine = 0.0 if layer.origin < 0 or layer.projected else h[layer.origin]
        ends[layer.origin] = mine
        found.append(mine)
    return tuple(found)


def bound_ranges(network: Network, input_range: float, begins: tuple[float, ...] = ()) -> Ranges:
    """Return bounds of the pre-activations and of each layer's output, from the weights alone."""
    preactivation = 0.0
    results: list[float] = []
    layers, passes = lower(unfold(network))
    for index, layer in enumerate(layers):
        max_abs = max((results[before] for before in feeds(passes, index, layer.before)), default=input_range)
        total = np.abs(layer.w_in).sum(axis=1) * max_abs + np.abs(layer.bias)
        if layer.w_rec is not None:
            total = total + np.abs(layer.w_rec).sum(axis=1) * max(1.0, begins[index] if begins else 0.0)
        if not layer.linear:
            preactivation = max(preactivation, float(total.max()))
        results.append(1.0 if layer.within_one else float(total.max()))
    return Ranges(preactivation, tuple(results), begins)


def measure_ranges(network: Network, reference: FloatResult, begins: tuple[float, ...] = ()) -> Ranges:
    """Return the ranges of a float run, and a quarter more."""
    results, preactivation = [], 0.0
    unfolded = unfold(network)
    for layer in lower(unfolded)[0]:
        if layer.origin < 0:
            results.append(0.0)
            continue
        found = unfolded.measured_range(reference, layer.origin)
        results.append(MARGIN * getattr(found, layer.range_of))
        if not layer.linear:
            preactivation = max(preactivation, MARGIN * found.preactivation)
    return Ranges(preactivation, tuple(results), begins)


def guess_ranges(network: Network, input_range: float, begin: FloatState | None = None) -> Ranges:
    """Return the ranges of a run on random inputs, twice, where weights alone give no bound.

    ``begin`` is the state in which the sequences begin, ``(units,)`` per layer; zeros if None.
    """
    x = np.random.default_rng(0).uniform(-input_range, input_range, (64, 16, network.inputs))
    data = Calibration.of(network, x, state=repeat_state(begin, x.shape[1]))
    found = measure_ranges(network, run_reference(network, data))
    begins = begin_ranges(network, () if begin is None else (begin,))
    return Ranges(2 * found.preactivation, tuple(2 * max_abs for max_abs in found.layers), begins)
