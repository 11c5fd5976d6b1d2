"""Formats of every quantity in the datapath, and the quantised network in those formats."""

from dataclasses import dataclass
from typing import Annotated, Self

import numpy as np
from pydantic import Field, model_validator

from rtlstm.spec.activation import ActivationTable
from rtlstm.spec.fixed import Format, IntArray
from rtlstm.spec.network import Activation
from rtlstm.spec.record import Record

__all__ = [
    "Accumulator",
    "LayerShape",
    "Numerics",
    "QuantizedDense",
    "QuantizedLayer",
    "QuantizedLstm",
    "QuantizedNetwork",
]


class LayerShape(Record):
    """A layer without its weights: what the hardware's program is made from."""

    kind: Annotated[str, Field(pattern="^(lstm|dense)$")]
    name: str
    inputs: Annotated[int, Field(ge=1, le=65536)]
    outputs: Annotated[int, Field(ge=1, le=65536)]
    activation: Activation = "identity"
    """Of a dense layer."""
    input_relu: bool = False
    output: Format
    """Format of the values the layer gives (h, for an LSTM layer)."""

    @property
    def rows(self) -> int:
        """Rows of the layer's weight matrix: four per LSTM unit."""
        return self.outputs * (4 if self.kind == "lstm" else 1)


class Accumulator(Record):
    """Width of the lanes' accumulators, from the bound of every row of this network."""

    bits: Annotated[int, Field(ge=4, le=62)]
    """Signed width that no row can overflow, whatever its inputs."""
    bound: Annotated[int, Field(ge=0)]
    """Largest magnitude that any partial sum of any row can reach."""
    align: Annotated[int, Field(ge=0, le=32)]
    """Left shift before the row's right shift (for rows coarser than the pre-activation)."""


class Numerics(Record):
    """Formats of the datapath. Layer outputs have formats of their own in :class:`LayerShape`."""

    weight_bits: Annotated[int, Field(ge=2, le=18)]
    input: Format
    """Of the network's input; its width is that of every vector."""
    gate: Format
    """Of sigmoid and tanh results: ``bits - 1`` fraction bits."""
    preactivation: Format
    """What sigmoid and tanh of the gates read."""
    cell: Format
    """Of the stored cell state."""
    cell_argument: Format
    """Of the new cell state where tanh reads it."""
    accumulator: Accumulator
    shift_bits: Annotated[int, Field(ge=1, le=6)]
    """Width of a row's right shift."""
    sigmoid: ActivationTable
    tanh: ActivationTable
    """Of the candidate gate g."""
    cell_tanh: ActivationTable
    """Of the new cell state."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not 4 <= self.data_bits <= 18:
            raise ValueError(f"inputs and h have 4 to 18 bits, not {self.data_bits}")
        if not max(6, self.data_bits) <= self.gate.bits <= 18:
            raise ValueError(
                f"gates have {max(6, self.data_bits)} to 18 bits (at least 6 and the data's), "
                f"not {self.gate.bits}"
            )
        if not 8 <= self.cell.bits <= 32:
            raise ValueError(f"the cell state has 8 to 32 bits, not {self.cell.bits}")
        if self.cell.fraction < 0 or self.cell_argument.fraction > self.cell.fraction:
            raise ValueError(
                "the cell state needs 0 or more fraction bits, and at least as many as its tanh reads"
            )
        for name, table, read in (
            ("sigmoid", self.sigmoid, self.preactivation),
            ("tanh", self.tanh, self.preactivation),
            ("cell_tanh", self.cell_tanh, self.cell_argument),
        ):
            if table.input != read or table.output != self.gate:
                raise ValueError(f"table {name} must read {read} and give {self.gate}")
        return self

    @property
    def data_bits(self) -> int:
        """Bits of inputs, h and dense results."""
        return self.input.bits

    @property
    def hidden(self) -> Format:
        """Format of h, within (-1, 1)."""
        return Format(bits=self.data_bits, fraction=self.data_bits - 1)

    @property
    def cell_sum_fraction(self) -> int:
        """Fraction bits of ``f * c + i * g`` before it is rounded."""
        return self.gate.fraction + max(self.cell.fraction, self.gate.fraction)


@dataclass(frozen=True)
class QuantizedLstm:
    """Integers of an LSTM layer, rows in gate order i, f, g, o.

    ``w_ih`` (4H, I) and ``w_hh`` (4H, H) within ``weight_bits``; ``bias`` (4H,) in units of the
    row's accumulator; ``shift`` (4H,), the right shift from the aligned accumulator to the
    pre-activation format.
    """

    w_ih: IntArray
    w_hh: IntArray
    bias: IntArray
    shift: IntArray


@dataclass(frozen=True)
class QuantizedDense:
    """Integers of a dense layer: ``weight`` (O, I), ``bias`` (O,), ``shift`` (O,).

    The shift leads to the pre-activation format for sigmoid and tanh, and to the layer's output
    format for identity and ReLU.
    """

    weight: IntArray
    bias: IntArray
    shift: IntArray


QuantizedLayer = QuantizedLstm | QuantizedDense


@dataclass(frozen=True)
class QuantizedNetwork:
    """A network in integers: what the weight image holds, with the formats that give it meaning."""

    shapes: tuple[LayerShape, ...]
    numerics: Numerics
    layers: tuple[QuantizedLayer, ...]

    @property
    def inputs(self) -> int:
        """Width of one step's input."""
        return self.shapes[0].inputs

    @property
    def outputs(self) -> int:
        """Width of one step's output."""
        return self.shapes[-1].outputs

    def bound(self) -> int:
        """Largest magnitude that any partial sum of any row reaches, over all inputs.

        ``sum(|w|) * 2**(data_bits-1) + |bias|``, the L1 bound with inputs at their most negative.
        """
        largest = -self.numerics.input.lowest
        bounds = [0]
        for layer in self.layers:
            parts = (
                (layer.w_ih, layer.w_hh) if isinstance(layer, QuantizedLstm) else (layer.weight,)
            )
            total = np.abs(layer.bias)
            for part in parts:
                total = total + np.abs(part).sum(axis=1) * largest
            bounds.append(int(total.max()))
        return max(bounds)
