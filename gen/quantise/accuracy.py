"""Accuracy of a quantised network: the golden model against the float reference."""

from collections.abc import Iterator, Mapping
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from rtlstm.gen.quantise.calibration import Calibration, repeat_state, run_golden
from rtlstm.gen.quantise.directions import unfold
from rtlstm.gen.quantise.lowering import lower
from rtlstm.host.raw_values import softmax
from rtlstm.host.state import StateFormats
from rtlstm.sim.golden import GoldenResult
from rtlstm.sim.reference import FloatResult, FloatState, run_float
from rtlstm.spec.activations.functions import ActivationFunction
from rtlstm.spec.fixed import Format, IntArray
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.network import Network
from rtlstm.spec.numerics import QuantizedNetwork, row_parts
from rtlstm.spec.record import Record, few_digits

_WORK = 400_000_000
"""How many multiplications a comparison may take, roughly."""
_RANDOM_STEPS, _RANDOM_SEQUENCES, _SEED = 64, 4, 0
_MOSTLY = 0.5
"""Share of lost values from which a feature or unit counts as mostly lost."""
_NAMED = 8
"""How many features or units a note names."""
_BINS = 49
"""An odd number: 0 is in the middle of a bin, not at an edge where a last digit decides."""
_MOST_COUNTED = 100_000
"""How many values are counted, roughly."""
_MOST_STEPS = 160
_MOST_OUTPUTS = 3
_FINE = 1024
"""Errors are compared in parts of an output's step: the last digits of float sums differ by machine."""


class Loss(Record):
    """How many values of a quantity become 0 in its format."""

    quantity: str
    values: int
    """Values that are not 0, as floats."""
    lost: int
    """How many of them are below half a step of the format."""
    columns: tuple[int, ...] = ()
    """Indices of the features, or of a layer's units, that lose most of their values."""

    @property
    def percent(self) -> float:
        """Percentage of the values other than 0 that are lost."""
        return round(100 * self.lost / self.values, 1) if self.values else 0.0

    @property
    def note(self) -> str:
        """The note for the user; empty if few values are lost."""
        if self.lost <= _MOSTLY * self.values and not self.columns:
            return ""
        some = ", ".join(map(str, self.columns[:_NAMED])) + (", ..." if len(self.columns) > _NAMED else "")
        where = f", of numbers {some} most" if self.columns else ""
        return (
            f"{self.percent:g} % of the values of {self.quantity} are below half a step of its format and "
            f"become 0{where}; if they matter, choose more bits or a narrower range"
        )


def find_losses(
    network: Network,
    quantised: QuantizedNetwork,
    x: NDArray[np.float64],
    reference: FloatResult,
    golden: GoldenResult,
) -> tuple[Loss, ...]:
    """Count lost values of a run over ``x``, ``(T, N, inputs)``: inputs, final h and c, outputs and weights.

    ``reference`` and ``golden`` are of that run.
    """
    numerics = quantised.numerics
    codes = numerics.quantise_input(x)
    found = [_loss("input x", x, codes - np.array(numerics.input_zeros or 0), columns=True)]
    found += _weight_losses(network, quantised)
    states = [("h", reference.h, golden.h)]
    if len(reference.c) == len(golden.c):  # A GRU's second state is its h again.
        states.append(("c", reference.c, golden.c))
    for name, floats, integers in states:
        for layer, values, codes in zip(network.pseudo_layers, floats, integers, strict=False):
            found.append(
                _loss(f"{name} of {layer.name}, at the end of sequences", values, codes, columns=True)
            )
    output = quantised.shapes[-1].output
    found.append(_loss("output y", reference.y, output.to_integers(reference.y), columns=True))
    return tuple(found)


def _weight_losses(network: Network, quantised: QuantizedNetwork) -> Iterator[Loss]:
    for layer, integers in zip(lower(unfold(network))[0], quantised.layers, strict=True):
        values = np.concatenate([matrix.ravel() for matrix in layer.matrices])
        codes = np.concatenate([part.weights.ravel() for part in row_parts(integers)])
        yield _loss(f"weights of {layer.name}", values, codes)


def _loss(quantity: str, values: NDArray[np.float64], codes: IntArray, columns: bool = False) -> Loss:
    """Compare values with their codes; with ``columns``, name the indices of the last axis that lose most."""
    some, lost = values != 0, (values != 0) & (codes == 0)
    poor: tuple[int, ...] = ()
    if columns:
        lead = tuple(range(values.ndim - 1))
        poor = tuple(np.flatnonzero(lost.sum(axis=lead) > _MOSTLY * some.sum(axis=lead)).tolist())
    return Loss(quantity=quantity, values=int(some.sum()), lost=int(lost.sum()), columns=poor)


class Histogram(Record):
    """How many values lie in each of the equal bins from ``-span`` to ``span``.

    The outer bins have those that lie beyond. Of many values, every n-th is counted.
    """

    quantity: str
    form: str
    limit: float
    """Largest number of the format."""
    span: float
    largest: float
    """Largest magnitude of all values."""
    counts: tuple[int, ...]


def count_histograms(
    quantised: QuantizedNetwork, data: Calibration, reference: FloatResult
) -> tuple[Histogram, ...]:
    """Count inputs, h and cell states at the end of sequences, and outputs of a float run over ``data``.

    h and c of layers with another format are counted apart.
    """
    return tuple(
        _histogram(quantity, form, values)
        for quantity, form, values in _quantities(quantised, data, reference)
        if values.size
    )


def _quantities(
    quantised: QuantizedNetwork, data: Calibration, reference: FloatResult
) -> Iterator[tuple[str, Format, NDArray[np.float64]]]:
    numerics = quantised.numerics
    valid = data.alive
    scaled = ", times factors" if numerics.input_factors else ""
    scaled += ", plus the codes of zero" if numerics.input_zeros else ""
    yield f"input x{scaled}", numerics.input, numerics.scale_input(data.x[valid]).ravel()
    formats = StateFormats(quantised.shapes, numerics).hidden_formats
    for form in dict.fromkeys(formats):
        same = [h.ravel() for h, layer_form in zip(reference.h, formats, strict=True) if layer_form == form]
        yield "final hidden state h", form, np.concatenate(same)
    cells = [shape.state for shape in quantised.shapes if shape.kind == "lstm" and shape.state is not None]
    for form in dict.fromkeys(cells):
        same = [c.ravel() for c, layer_form in zip(reference.c, cells, strict=True) if layer_form == form]
        yield "final cell state c", form, np.concatenate(same)
    yield "output y", quantised.shapes[-1].output, reference.y[valid].ravel()


def _histogram(quantity: str, form: Format, values: NDArray[np.float64]) -> Histogram:
    largest = float(np.abs(values).max())
    # The limit is in the picture, and what is far beyond it is not.
    span = few_digits(1.05 * form.limit * min(2.0, max(1.0, largest / form.limit)))
    some = np.clip(values[:: max(1, values.size // _MOST_COUNTED)], -span, span)
    counts, _ = np.histogram(some, _BINS, (-span, span))
    return Histogram(
        quantity=quantity,
        form=str(form),
        limit=form.limit,
        span=span,
        largest=few_digits(largest),
        counts=tuple(counts.tolist()),
    )


class Trace(Record):
    """Steps of one output of one sequence; ``exact`` is the float reference."""

    output: int
    sequence: int
    first_step: int
    exact: tuple[float, ...]
    fixed: tuple[float, ...]


def find_traces(
    exact: NDArray[np.float64], fixed: NDArray[np.float64], lengths: NDArray[np.int64], step: float
) -> tuple[Trace, ...]:
    """Return the outputs with the largest errors, the worst first, all around the largest error of all.

    ``exact`` and ``fixed`` are outputs, ``(T, N, outputs)``. ``lengths`` are valid steps of each sequence,
    ``(N,)``. ``step`` is that of the outputs' format.
    """
    valid = np.arange(len(exact))[:, None] < lengths
    errors = np.rint(np.abs(fixed - exact) * valid[..., None] * (_FINE / step))
    at, sequence, _ = (int(index) for index in np.unravel_index(np.argmax(errors), errors.shape))
    length = int(lengths[sequence])
    first = max(0, min(at - _MOST_STEPS // 2, length - _MOST_STEPS))
    shown = slice(first, min(length, first + _MOST_STEPS))
    order = np.argsort(-errors[shown, sequence].max(0), kind="stable")[:_MOST_OUTPUTS]
    return tuple(
        Trace(
            output=int(output),
            sequence=sequence,
            first_step=first,
            exact=tuple(map(few_digits, exact[shown, sequence, output])),
            fixed=tuple(map(few_digits, fixed[shown, sequence, output])),
        )
        for output in order
    )


class Accuracy(Record):
    """Errors of the outputs, as real values, and numbers of saturated values."""

    data: Literal["calibration", "random"]
    description: str
    outputs: Literal["outputs", "scores", "probabilities"] = "outputs"
    """What the errors are of: scores, if the device gives which are the largest, or their softmax."""
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
    hidden_beyond: Mapping[str, float] = {}
    """LSTMs whose float h is beyond the range of its format, with its largest magnitude."""
    max_abs_cell: float
    """Largest magnitude of any cell state in float, or of a GRU's h."""
    max_abs_final_cell: float
    """Largest magnitude of an LSTM's c after a sequence's last step; 0 of a network without one."""
    histograms: tuple[Histogram, ...] = ()
    """How the float values lie within their formats."""
    traces: tuple[Trace, ...] = ()
    """Outputs over time, float and fixed, around the largest error."""

    @property
    def text(self) -> str:
        """The errors, and what they are of if not of the network's outputs."""
        of = "" if self.outputs == "outputs" else f", of the {self.outputs}"
        return f"{self.max_abs_error:.3g} at most, {self.rms_error:.3g} rms{of}"


def _data(
    network: Network, quantised: QuantizedNetwork, calibration: Calibration | None, begin: FloatState | None
) -> tuple[Calibration, str]:
    if calibration is None:
        numerics = quantised.numerics
        low, high = numerics.input_limits
        shape = (_RANDOM_STEPS, _RANDOM_SEQUENCES, network.inputs)
        x = np.random.default_rng(_SEED).uniform(low, high, shape)
        span = f"+-{high.max():.4g}" if not numerics.input_zeros else f"{low.min():.4g} to {high.max():.4g}"
        description = f"random, uniform within the input range {span}, seed {_SEED}"
        state = repeat_state(begin, _RANDOM_SEQUENCES)
        return Calibration.of(network, x, state=state), description
    some = calibration.sample(max(_RANDOM_STEPS, _WORK // (network.weight_count or 1)))
    return some, some.share_of(calibration)


def _hidden_beyond(network: Network, quantised: QuantizedNetwork, reference: FloatResult) -> dict[str, float]:
    unfolded, found = unfold(network), dict[str, float]()
    for shape, layer in zip(quantised.shapes, lower(unfolded)[0], strict=True):
        if shape.kind == "lstm" and not layer.projected:
            largest = unfolded.measured_range(reference, layer.origin).output
            if largest > shape.output.limit + shape.output.step:
                found[shape.name] = few_digits(largest)
    return found


def measure_accuracy(
    network: Network,
    quantised: QuantizedNetwork,
    calibration: Calibration | None = None,
    initial_state: FloatState | None = None,
    classes: bool = False,
    given_as: Manifest | None = None,
) -> Accuracy:
    """Compare on calibration data; without them, on random inputs, from the model's ``initial_state``.

    If the outputs are scores of ``classes``, the largest one of a step decides. A single output that is a
    share, such as a sigmoid's, decides by whether it is above one half. ``given_as`` says what a device makes
    of the outputs: where these are probabilities, they are compared.
    """
    data, description = _data(network, quantised, calibration, initial_state)
    x, lengths = data.x, data.lengths
    numerics = quantised.numerics
    reference = run_float(network, x, data.state, lengths)
    golden = run_golden(quantised, data)
    form, codes, exact = quantised.shapes[-1].output, golden.y, reference.y
    outputs: Literal["outputs", "scores", "probabilities"] = "outputs"
    if given_as is not None and given_as.decides:
        outputs = "scores"
        if given_as.parameters.decide == "softmax":
            outputs, form = "probabilities", given_as.output
            codes, exact = given_as.emitted(codes), softmax(exact)
    fixed = form.to_floats(codes)
    units = sum(layer.outputs for layer in network.pseudo_layers)
    given, found = exact[data.alive], fixed[data.alive]
    error = found - given
    share = ActivationFunction.of(quantised.shapes[-1].activation).is_share
    decided = None
    if network.outputs == 1 and share:
        decided = [y[:, 0] > 0.5 for y in (given, found)]
    elif network.outputs > 1 and classes:
        decided = [y.argmax(axis=1) for y in (given, found)]
    return Accuracy(
        data="random" if calibration is None else "calibration",
        description=description,
        outputs=outputs,
        steps=data.steps,
        sequences=data.sequences,
        max_abs_error=few_digits(np.abs(error).max()),
        rms_error=few_digits(np.sqrt(np.mean(error**2))),
        max_abs_output=few_digits(np.abs(given).max()),
        spread=few_digits(np.sqrt(np.mean(given.var(axis=0)))),
        decisions=0 if decided is None else len(given),
        decisions_changed=0 if decided is None else int(np.count_nonzero(decided[0] != decided[1])),
        input_saturations=numerics.input.saturated(numerics.scale_input(x)),
        input_values=int(lengths.sum()) * network.inputs,
        cell_saturations=golden.cell_saturations,
        cell_values=int(lengths.sum()) * units,
        losses=find_losses(network, quantised, x, reference, golden),
        hidden_beyond=_hidden_beyond(network, quantised, reference),
        max_abs_cell=few_digits(reference.cell),
        max_abs_final_cell=few_digits(max((float(np.abs(c).max()) for c in reference.c), default=0.0)),
        histograms=count_histograms(quantised, data, reference),
        traces=find_traces(exact, fixed, lengths, form.step),
    )
