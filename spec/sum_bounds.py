"""Bounds of the sums of quantised weights: no input makes an accumulator of these widths overflow."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from rtlstm.spec.fixed import Format, IntArray
from rtlstm.spec.numerics import (
    Accumulator,
    LayerShape,
    QuantizedDense,
    QuantizedLayer,
    QuantizedRecurrent,
)


@dataclass(frozen=True)
class SumBound:
    """The largest magnitude of the sums of one kind in a layer, for any inputs."""

    layer: int
    """The layer's index."""
    what: str
    """Name of the sums, for messages."""
    magnitude: int

    @property
    def bits(self) -> int:
        """Signed width that holds them."""
        return max(4, self.magnitude.bit_length() + 1)


@dataclass(frozen=True)
class SumBounds:
    """Bounds of all sums of a network's layers."""

    lanes: tuple[SumBound, ...]
    """Bounds of a lane's sums: products with one vector."""
    partials: tuple[SumBound, ...]
    """Bounds of the sums of a row's shifted parts and its bias."""

    @property
    def lane(self) -> SumBound:
        """The largest of the lanes' sums."""
        return max(self.lanes, key=lambda bound: bound.magnitude)

    @property
    def partial(self) -> SumBound:
        """The largest of the partial sums."""
        return max(self.partials, key=lambda bound: bound.magnitude)

    def widths(self, align: int, weight_bits: int) -> Accumulator:
        """Return the least widths that hold them, and in a lane any weight of these bits."""
        return Accumulator(bits=max(self.lane.bits, weight_bits), align=align, partial_bits=self.partial.bits)

    def lacking(self, there: Accumulator, layers: Sequence[LayerShape]) -> str | None:
        """Return a clause that names the first sum that does not fit the widths ``there``, if any."""
        for bound, bits, holder in (
            (self.lane, there.bits, "accumulators"),
            (self.partial, there.partial_bits, "partial sums"),
        ):
            if bound.bits > bits:
                name = layers[bound.layer].name
                return f"{bound.what} of layer {name!r} need {bound.bits} bits and the {holder} have {bits}"
        return None


def row_parts(layer: QuantizedLayer) -> tuple[tuple[str, IntArray, IntArray], ...]:
    """Return name, weights and rows' right shifts for each vector that a layer reads."""
    if isinstance(layer, QuantizedRecurrent):
        return ("input products", layer.w_ih, layer.shift_ih), ("products with h", layer.w_hh, layer.shift_hh)
    return (("products", layer.weight, layer.shift),)


def bound_sums(layers: Iterable[QuantizedLayer], data: Format, align: int) -> SumBounds:
    """Bound every sum of every row over all inputs.

    A lane's sum is at most ``sum(|w|) * 2**(bits-1)``: the L1 bound, with inputs at their most
    negative. Rounding down can add one unit to a shifted part's magnitude.
    """
    lanes: list[SumBound] = []
    partials: list[SumBound] = []
    total: IntArray = np.zeros(0, dtype=np.int64)
    for index, layer in enumerate(layers):
        total = total if isinstance(layer, QuantizedDense) and layer.continues else np.abs(layer.bias)
        for what, weights, shift in row_parts(layer):
            most = np.abs(weights).sum(axis=1) * -data.lowest
            lanes.append(SumBound(index, what, int(most.max())))
            total = total + ((most << align) >> shift) + 1
        partials.append(SumBound(index, "sums of products and biases", int(total.max())))
    return SumBounds(tuple(lanes), tuple(partials))
