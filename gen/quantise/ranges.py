"""The magnitudes that a network's formats are to hold: bounded by its weights, or met in float runs."""

from dataclasses import dataclass

import numpy as np

from rtlstm.gen.quantise.calibration import Calibration, run_reference
from rtlstm.gen.quantise.cell_range import MARGIN
from rtlstm.gen.quantise.directions import unfold
from rtlstm.gen.quantise.lowering import lower
from rtlstm.sim.reference import FloatResult
from rtlstm.spec.network import Network
from rtlstm.spec.program.passes import feeds

__all__ = ["Ranges", "bound_ranges", "guess_ranges", "measure_ranges"]


@dataclass(frozen=True)
class Ranges:
    """Magnitudes that formats are to hold."""

    preactivation: float
    layers: tuple[float, ...]
    """Largest magnitude of each array layer's results."""


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
