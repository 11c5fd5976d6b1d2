"""Accuracy of a quantised network: the golden model against the float reference."""

from typing import Literal

import numpy as np

from rtlstm.gen.quantise.calibration import Calibration, repeat_state
from rtlstm.gen.quantise.histograms import Histogram, count_histograms
from rtlstm.gen.quantise.losses import Loss, find_losses
from rtlstm.gen.quantise.traces import Trace, find_traces
from rtlstm.sim.golden import Golden
from rtlstm.sim.reference import FloatState, run_float
from rtlstm.spec.activations.functions import ActivationFunction
from rtlstm.spec.network import Network
from rtlstm.spec.numerics import QuantizedNetwork
from rtlstm.spec.record import Record

_WORK = 400_000_000
"""How many multiplications a comparison may take, roughly."""
_RANDOM_STEPS, _RANDOM_SEQUENCES, _SEED = 64, 4, 0


class Accuracy(Record):
    """Errors of the outputs, as real values, and numbers of saturated values."""

    data: Literal["calibration", "random"]
    description: str
    steps: int
    sequences: int
    max_abs_error: float
    rms_error: float
    max_abs_output: float
    """Largest magnitude of the float outputs."""
    spread: float = 0.0
    """Standard deviation of the float outputs in valid steps, each from its own mean, over all of them; 0 if
    they do not change."""
    decisions: int = 0
    """Steps whose outputs decide for a class; 0 if the model decides nothing."""
    decisions_changed: int = 0
    """Decisions of the fixed outputs that are not those of the float ones."""
    input_saturations: int
    input_values: int
    cell_saturations: int
    cell_values: int
    losses: tuple[Loss, ...]
    """Values that are too small for their format, for each quantity."""
    max_abs_cell: float
    """Largest magnitude of any cell state in float, or of a GRU's h."""
    max_abs_final_cell: float
    """Largest magnitude of an LSTM's c after a sequence's last step; 0 of a network without one."""
    histograms: tuple[Histogram, ...] = ()
    """How the float values lie within their formats."""
    traces: tuple[Trace, ...] = ()
    """Outputs over time, float and fixed, around the largest error."""


def _data(
    network: Network, quantised: QuantizedNetwork, calibration: Calibration | None, begin: FloatState | None
) -> tuple[Calibration, str]:
    if calibration is None:
        numerics = quantised.numerics
        max_abs = numerics.input.to_floats(numerics.input.maximum, numerics.input_shift)
        shape = (_RANDOM_STEPS, _RANDOM_SEQUENCES, network.inputs)
        x = np.random.default_rng(_SEED).uniform(-max_abs, max_abs, shape)
        description = f"random, uniform within the input range +-{max_abs.max():.4g}, seed {_SEED}"
        state = repeat_state(begin, _RANDOM_SEQUENCES)
        return Calibration.of(network, x, state=state), description
    some = calibration.sample(max(_RANDOM_STEPS, _WORK // network.weight_count))
    return some, some.share_of(calibration)


def measure_accuracy(
    network: Network,
    quantised: QuantizedNetwork,
    calibration: Calibration | None = None,
    initial_state: FloatState | None = None,
    classes: bool = False,
) -> Accuracy:
    """Compare on calibration data; without them, on random inputs, from the model's ``initial_state``.

    If the outputs are scores of ``classes``, the largest one of a step decides. A single output that is a
    share, such as a sigmoid's, decides by whether it is above one half.
    """
    data, description = _data(network, quantised, calibration, initial_state)
    x, lengths = data.x, data.lengths
    numerics = quantised.numerics
    reference = run_float(network, x, data.state, lengths)
    state = data.integer_state(quantised)
    golden = Golden(quantised).run(numerics.quantise_input(x), state, lengths)
    form = quantised.shapes[-1].output
    fixed = form.to_floats(golden.y)
    error = fixed - reference.y
    units = sum(layer.outputs for layer in network.pseudo_layers)
    given, found = reference.y[data.alive], fixed[data.alive]
    share = ActivationFunction.of(quantised.shapes[-1].activation).is_share
    decided = None
    if network.outputs == 1 and share:
        decided = [y[:, 0] > 0.5 for y in (given, found)]
    elif network.outputs > 1 and classes:
        decided = [y.argmax(axis=1) for y in (given, found)]
    return Accuracy(
        data="random" if calibration is None else "calibration",
        description=description,
        steps=data.steps,
        sequences=data.sequences,
        max_abs_error=_rounded(float(np.abs(error).max())),
        rms_error=_rounded(float(np.sqrt(np.mean(error**2)))),
        max_abs_output=_rounded(float(np.abs(reference.y).max())),
        spread=_rounded(float(np.sqrt(np.mean(given.var(axis=0))))),
        decisions=0 if decided is None else len(given),
        decisions_changed=0 if decided is None else int(np.count_nonzero(decided[0] != decided[1])),
        input_saturations=numerics.input.saturated(x, numerics.input_shift),
        input_values=int(lengths.sum()) * network.inputs,
        cell_saturations=golden.cell_saturations,
        cell_values=int(lengths.sum()) * units,
        losses=find_losses(network, quantised, x, reference, golden),
        max_abs_cell=_rounded(reference.cell),
        max_abs_final_cell=_rounded(max((float(np.abs(c).max()) for c in reference.c), default=0.0)),
        histograms=count_histograms(quantised, data, reference),
        traces=find_traces(reference.y, fixed, lengths, form.step),
    )


def _rounded(value: float) -> float:
    # Float sums differ in their last digits from machine to machine; reports must be equal.
    return float(f"{value:.5g}")
