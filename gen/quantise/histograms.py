"""Counts how the float values of a run lie within the ranges of their formats."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from rtlstm.gen.quantise.calibration import Calibration
from rtlstm.host.state import StateFormats
from rtlstm.sim.reference import FloatResult
from rtlstm.spec.fixed import Format
from rtlstm.spec.numerics import QuantizedNetwork
from rtlstm.spec.record import Record

_BINS = 49
"""An odd number: 0 is in the middle of a bin, not at an edge where a last digit decides."""
_MOST = 100_000
"""How many values are counted, roughly."""


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

    h of layers with another format is counted apart.
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
    shifted = ", shifted" if numerics.input_shifts else ""
    yield f"input x{shifted}", numerics.input, np.ldexp(data.x[valid], numerics.input_shift).ravel()
    formats = StateFormats(quantised.shapes, numerics).hidden_formats
    for form in dict.fromkeys(formats):
        same = [h.ravel() for h, layer_form in zip(reference.h, formats, strict=True) if layer_form == form]
        yield "final hidden state h", form, np.concatenate(same)
    states = np.concatenate([np.zeros(0), *(c.ravel() for c in reference.c)])
    yield "final cell state c", numerics.cell, states
    yield "output y", quantised.shapes[-1].output, reference.y[valid].ravel()


def _histogram(quantity: str, form: Format, values: NDArray[np.float64]) -> Histogram:
    largest = float(np.abs(values).max())
    # The limit is in the picture, and what is far beyond it is not.
    span = float(f"{1.05 * form.limit * min(2.0, max(1.0, largest / form.limit)):.5g}")
    some = np.clip(values[:: max(1, values.size // _MOST)], -span, span)
    counts, _ = np.histogram(some, _BINS, (-span, span))
    return Histogram(
        quantity=quantity,
        form=str(form),
        limit=form.limit,
        span=span,
        largest=float(f"{largest:.5g}"),
        counts=tuple(counts.tolist()),
    )
