"""The magnitudes that a network's formats are to hold: bounded by its weights, or met in float runs."""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from rtlstm.gen.quantise.calibration import Calibration, run_reference
from rtlstm.gen.quantise.cell_range import MARGIN
from rtlstm.gen.quantise.directions import unfold
from rtlstm.gen.quantise.lowering import lower
from rtlstm.sim.reference import FloatResult
from rtlstm.spec.network import Network
from rtlstm.spec.program.passes import feeds
from rtlstm.spec.record import Record

__all__ = ["Calibrated", "Ranges", "bound_ranges", "guess_ranges", "measure_ranges"]


@dataclass(frozen=True)
class Ranges:
    """Magnitudes that formats are to hold."""

    preactivation: float
    layers: tuple[float, ...]
    """Largest magnitude of each array layer's results."""


class Calibrated(Record):
    """What calibration data say of a network, but for the range of c: it is the same for any formats."""

    feature_peaks: tuple[float, ...]
    preactivation: float
    results: tuple[float, ...]
    """As in :class:`Ranges`."""

    @classmethod
    def of(cls, data: Calibration, ranges: Ranges) -> Self:
        """Take what :func:`measure_ranges` found for the data."""
        # Float sums differ in their last digits from machine to machine; reports must be equal.
        preactivation, *results = (float(f"{each:.9g}") for each in (ranges.preactivation, *ranges.layers))
        return cls(
            feature_peaks=tuple(data.peaks.tolist()), preactivation=preactivation, results=tuple(results)
        )

    @property
    def peaks(self) -> NDArray[np.float64]:
        """Largest magnitude of each feature, ``(inputs,)``."""
        return np.array(self.feature_peaks)

    @property
    def ranges(self) -> Ranges:
        """The magnitudes that formats are to hold."""
        return Ranges(self.preactivation, self.results)


def bound_ranges(network: Network, input_range: float) -> Ranges:
    """Return bounds of the pre-activations and of each layer's output, from the weights alone."""
    preactivation = 0.0
    results: list[float] = []
    layers, passes = lower(unfold(network))
    for index, layer in enumerate(layers):
        max_abs = max((results[before] for before in feeds(passes, index, layer.before)), default=input_range)
        total = np.abs(layer.w_in).sum(axis=1) * max_abs + np.abs(layer.bias)
        if layer.w_rec is not None:
            total = total + np.abs(layer.w_rec).sum(axis=1)
        if not layer.linear:
            preactivation = max(preactivation, float(total.max()))
        results.append(1.0 if layer.within_one else float(total.max()))
    return Ranges(preactivation, tuple(results))


def measure_ranges(network: Network, reference: FloatResult) -> Ranges:
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
    return Ranges(preactivation, tuple(results))


def guess_ranges(network: Network, input_range: float) -> Ranges:
    """Return the ranges of a run on random inputs, twice, where weights alone give no bound."""
    x = np.random.default_rng(0).uniform(-input_range, input_range, (64, 16, network.inputs))
    found = measure_ranges(network, run_reference(network, Calibration.of(network, x)))
    return Ranges(2 * found.preactivation, tuple(2 * max_abs for max_abs in found.layers))
