"""Accuracy of a quantised network: the golden model against the float reference."""

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from rtlstm.sim.golden import Golden
from rtlstm.sim.reference import run_float
from rtlstm.spec.network import Network
from rtlstm.spec.numerics import QuantizedNetwork
from rtlstm.spec.record import Record

__all__ = ["Accuracy", "measure_accuracy"]

_WORK = 400_000_000
"""Multiplications that a comparison may cost, about."""
_RANDOM_STEPS, _RANDOM_SEQUENCES, _SEED = 64, 4, 0


class Accuracy(Record):
    """Errors of the outputs, in their own unit, and values that were limited."""

    data: Literal["calibration", "random"]
    description: str
    steps: int
    sequences: int
    max_abs_error: float
    rms_error: float
    max_abs_output: float
    """Largest magnitude of the float outputs."""
    input_saturations: int
    input_values: int
    cell_saturations: int
    cell_values: int


def _data(
    network: Network, quantised: QuantizedNetwork, calibration: NDArray[np.float64] | None
) -> tuple[NDArray[np.float64], str]:
    if calibration is None:
        form = quantised.numerics.input
        reach = form.maximum * form.step
        shape = (_RANDOM_STEPS, _RANDOM_SEQUENCES, network.inputs)
        x = np.random.default_rng(_SEED).uniform(-reach, reach, shape)
        return x, f"random, uniform within the input range +-{reach:.4g}, seed {_SEED}"
    per_step = network.weight_count * calibration.shape[1]
    steps = min(len(calibration), max(_RANDOM_STEPS, _WORK // per_step))
    if steps < len(calibration):
        return calibration[:steps], f"the first {steps} of {len(calibration)} steps of the calibration data"
    return calibration, "the calibration data"


def measure_accuracy(
    network: Network, quantised: QuantizedNetwork, calibration: NDArray[np.float64] | None = None
) -> Accuracy:
    """Compare on calibration data ``(T, N, inputs)``, or on random input without them."""
    x, description = _data(network, quantised, calibration)
    form = quantised.numerics.input
    reference = run_float(network, x).y
    golden = Golden(quantised).run(form.to_integers(x))
    error = quantised.shapes[-1].output.to_floats(golden.y) - reference
    units = sum(layer.outputs for layer in network.pseudo_layers)
    return Accuracy(
        data="random" if calibration is None else "calibration",
        description=description,
        steps=x.shape[0],
        sequences=x.shape[1],
        max_abs_error=_rounded(float(np.abs(error).max())),
        rms_error=_rounded(float(np.sqrt(np.mean(error**2)))),
        max_abs_output=_rounded(float(np.abs(reference).max())),
        input_saturations=form.saturated(x),
        input_values=x.size,
        cell_saturations=golden.cell_saturations,
        cell_values=x.shape[0] * x.shape[1] * units,
    )


def _rounded(value: float) -> float:
    # Float sums differ in their last digits from machine to machine; a report must not.
    return float(f"{value:.5g}")
