"""Counts values that are too small for their format: values other than 0 that become 0."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from rtlstm.gen.quantise.directions import unfold
from rtlstm.gen.quantise.lowering import lower
from rtlstm.sim.golden import GoldenResult
from rtlstm.sim.reference import FloatResult
from rtlstm.spec.fixed import IntArray
from rtlstm.spec.network import Network
from rtlstm.spec.numerics import QuantizedDense, QuantizedNetwork
from rtlstm.spec.record import Record

_MOST = 0.5
"""Share of lost values from which a feature or unit counts as mostly lost."""
_NAMED = 8
"""How many features or units a note names."""


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
        if self.lost <= _MOST * self.values and not self.columns:
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
    found = [_loss("input x", x, quantised.numerics.quantise_input(x), columns=True)]
    found += _weights(network, quantised)
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


def _weights(network: Network, quantised: QuantizedNetwork) -> Iterator[Loss]:
    for layer, integers in zip(lower(unfold(network))[0], quantised.layers, strict=True):
        if isinstance(integers, QuantizedDense):
            floats, codes = [layer.w_in], [integers.weight]
        else:
            assert layer.w_rec is not None
            floats, codes = [layer.w_in, layer.w_rec], [integers.w_ih, integers.w_hh]
        values = np.concatenate([matrix.ravel() for matrix in floats])
        yield _loss(f"weights of {layer.name}", values, np.concatenate([matrix.ravel() for matrix in codes]))


def _loss(quantity: str, values: NDArray[np.float64], codes: IntArray, columns: bool = False) -> Loss:
    """Compare values with their codes; with ``columns``, name the indices of the last axis that lose most."""
    some, lost = values != 0, (values != 0) & (codes == 0)
    poor: tuple[int, ...] = ()
    if columns:
        lead = tuple(range(values.ndim - 1))
        poor = tuple(np.flatnonzero(lost.sum(axis=lead) > _MOST * some.sum(axis=lead)).tolist())
    return Loss(quantity=quantity, values=int(some.sum()), lost=int(lost.sum()), columns=poor)
