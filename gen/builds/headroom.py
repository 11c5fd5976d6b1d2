"""Headroom: how much larger weights may become that are loaded into a build's hardware later."""

from typing import Annotated

from pydantic import Field

from rtlstm.spec.numerics import QuantizedNetwork
from rtlstm.spec.record import Record
from rtlstm.spec.sum_bounds import bound_sums, row_parts

__all__ = ["Headroom", "measure_headroom"]


class Headroom(Record):
    """Ratios of what the hardware holds to what a network's weights need, each 1 or more.

    Weights of a retrained model fit if their rows grow by at most ``weights`` and sums by the other factors.
    """

    weights: Annotated[float, Field(ge=1)]
    """A power of two by which every row's weights may be larger; each row has its own scale."""
    products: Annotated[float, Field(ge=1)]
    """The largest sum of products of codes, in an accumulator."""
    sums: Annotated[float, Field(ge=1)]
    """The largest sum of a row's products and bias."""

    @property
    def text(self) -> str:
        """Return all three as a text for messages."""
        return (
            f"weights x {self.weights:g}, accumulators x {self.products:.4g}, "
            f"sums with bias x {self.sums:.4g}"
        )


def measure_headroom(network: QuantizedNetwork) -> Headroom:
    """Return the headroom that the hardware of ``network``'s formats has beyond its weights."""
    numerics = network.numerics
    there = numerics.accumulator
    needed = bound_sums(network.layers, numerics.input, there.align)
    shifts = (shift for layer in network.layers for _, _, shift in row_parts(layer))
    return Headroom(
        weights=2.0 ** min(int(shift.min()) for shift in shifts),
        products=_factor(there.bits, needed.lane.magnitude),
        sums=_factor(there.partial_bits, needed.partial.magnitude),
    )


def _factor(bits: int, magnitude: int) -> float:
    """Return the ratio, rounded down."""
    return ((1 << (bits - 1)) - 1) * 1000 // max(1, magnitude) / 1000
