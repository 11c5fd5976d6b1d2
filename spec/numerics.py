"""Formats of every quantity in the datapath, the quantised network in those formats, and bounds
of its sums: no input makes an accumulator overflow."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, NamedTuple, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import Field, model_validator

from rtlstm.spec.activations.functions import PiecewiseLinear
from rtlstm.spec.activations.interpolated import ActivationTable
from rtlstm.spec.cells.description import Cell
from rtlstm.spec.cells.evaluate import rounded_gates
from rtlstm.spec.cells.graph import CellGraph, Node
from rtlstm.spec.cells.unit import FusedUnit, GraphUnit, Norms
from rtlstm.spec.fixed import Format, HiddenRounding, IntArray
from rtlstm.spec.network import LINEAR, Activation
from rtlstm.spec.norms import Normalisation, NormForm
from rtlstm.spec.program.passes import Passes, feeds, part_layers
from rtlstm.spec.record import Extended, Record

ShapeKind = Literal[
    "lstm",
    "gru",
    "gru_reset",
    "gru_candidate",
    "unit",
    "product",
    "rnn",
    "dense",
    "skip",
    "unit_skip",
    "sum",
    "norm",
    "recall",
]
"""What the array computes for a layer. ``lstm`` keeps a c, ``gru`` its h, ``unit`` no state.
A GRU that resets before the product becomes two layers: ``gru_reset`` gives ``r h`` to ``gru_candidate``.
A layer that reads several results has a ``skip`` in front of it for each but the last, which stores that
product as partial sums; a ``unit_skip`` has four rows per unit. A dense layer behind skips is a ``sum``.
``product`` gives a result of several rows per unit, such as the product of two directions, which it reads
with one row each.
``recall`` gives its sums, with those of a later layer's h. Its other product has zeros for some first values
of the layer before, if that product is none of the network's.
``norm`` reads the results of the layer before it, whose sums are made as they are stored."""

C = TypeVar("C")

SKIPS: Final = ("skip", "unit_skip")
"""Kinds of layers that store partial sums for the layer that follows, and give no results."""


class OfKind(Protocol):
    """A layer of the array, with or without its weights."""

    @property
    def kind(self) -> ShapeKind:
        """What the array computes."""

    @property
    def recurrent(self) -> bool:
        """Whether it has a recurrent product."""


def has_four_rows(kind: ShapeKind) -> bool:
    """Whether a layer of this kind has four rows per unit, which finish together; else one per output."""
    return kind not in ("rnn", "dense", "skip", "sum", "norm", "recall")


def has_h(kind: ShapeKind) -> bool:
    """Whether a layer of this kind has an h."""
    return kind in ("lstm", "gru", "gru_reset", "unit", "rnn")


def joins_sums(layers: Sequence[OfKind], index: int) -> bool:
    """Whether a layer's products are added to those of the layer before it: both belong together."""
    return layers[index].kind == "gru_candidate" or (index > 0 and layers[index - 1].kind in SKIPS)


def continues_sums(layers: Sequence[OfKind], index: int) -> bool:
    """Whether a layer adds to partial sums that hold its biases.

    The recurrent product of a layer holds them if it has one; else its first product does.
    """
    if layers[index].kind in SKIPS and layers[leads_to(layers, index)].recurrent:
        return True
    return joins_sums(layers, index) and not layers[index].recurrent


def leads_to(layers: Sequence[OfKind], index: int) -> int:
    """Return the index of the layer that a skip is part of; of another layer its index."""
    while layers[index].kind in SKIPS:
        index += 1
    return index


def steps_back(kind: ShapeKind, skips: int) -> int:
    """Return the distance in layers to the layer whose results are read; ``skips`` is what a layer says."""
    return skips or (2 if kind == "sum" else 1)


class LayerShape(Extended):
    """A layer without its weights, from which the hardware's program is compiled."""

    _later = frozenset({"feedforward"})

    kind: ShapeKind
    name: str
    inputs: Annotated[int, Field(ge=1, le=65536)]
    outputs: Annotated[int, Field(ge=1, le=65536)]
    activation: Activation = "identity"
    """Activation of a dense layer."""
    input_relu: bool = False
    output: Format
    """Format of the layer's outputs (h, for an LSTM layer)."""
    cell: Annotated[int, Field(ge=0)]
    """Index of its cell in the numerics."""
    state: Format | None = None
    """Format of the state that the cell keeps from step to step."""
    feedback: Annotated[int, Field(ge=0, le=16)] = 0
    """Distance to the later layer whose results are its h, which its recurrent part reads (1 with a
    projection, more with norms)."""
    skips: Annotated[int, Field(ge=0)] = 0
    """Distance in layers back to the layer whose results it reads; 0 for the one before, of a ``sum`` for the
    one before its skip."""
    feedforward: bool = False
    """Its rows do not read h: it has no recurrent product."""

    @property
    def four_rows(self) -> bool:
        """Whether it has four rows per unit, which finish together; else one per output."""
        return has_four_rows(self.kind)

    @property
    def dense(self) -> bool:
        """Whether it is a dense layer, one of its products, a norm, or the product of two directions."""
        return self.kind in ("dense", "skip", "sum", "norm", "product")

    @property
    def linear(self) -> bool:
        """Whether its results are its sums, perhaps with ReLU, and need no table."""
        return not self.four_rows and self.activation in LINEAR

    @property
    def rows(self) -> int:
        """Rows of the layer's weight matrix."""
        return self.outputs * (4 if self.four_rows else 1)

    @property
    def recurrent(self) -> bool:
        """Whether it has a recurrent product."""
        return self.kind == "recall" or (self.has_h and not self.feedforward)

    @property
    def has_h(self) -> bool:
        """Whether its results, or what is made of them and fed back, are an h, which is part of the state."""
        return has_h(self.kind)

    @property
    def before(self) -> int:
        """Distance in layers back to the layer whose results it reads."""
        return steps_back(self.kind, self.skips)

    @property
    def has_state(self) -> bool:
        """Whether it has rows of the cell memory. A GRU that became two layers uses the first one's."""
        return self.kind in ("lstm", "gru", "gru_reset")


def vector_lengths(shapes: Sequence[LayerShape]) -> set[int]:
    """Return the lengths of all vectors that the array reads: layers' inputs, and h that is fed back."""
    fed_back = (shapes[index + shape.feedback] for index, shape in enumerate(shapes) if shape.recurrent)
    return {shape.inputs for shape in shapes} | {shape.outputs for shape in fed_back}


def array_words(shapes: Sequence[LayerShape], lanes: int, macs: int) -> int:
    """Return the words of weights of an array of this size: a lower bound of a step's cycles.

    Layers that feed back the results of another one have it among the ``shapes``.
    """
    words = 0
    for index, shape in enumerate(shapes):
        columns = -(-shape.inputs // macs)
        if shape.recurrent:
            columns += -(-shapes[index + shape.feedback].outputs // macs)
        words += -(-shape.rows // lanes) * columns
    return words


class Accumulator(Record):
    """Widths of the sums. No sum of a network that is loaded into the hardware may need more.

    The widths that a network's sums need follow from its weights: see :mod:`rtlstm.spec.numerics`. A lane
    sums one part of a row (input, recurrent or dense) in ``bits``. The sum is shifted left by ``align`` and
    right by the row's shift (rounding down). It then has ``GUARD_BITS`` more fraction bits than the format
    read next; the parts and the bias are added in ``partial_bits``. With scales, what is shifted has
    ``SCALED_BITS`` more, and then the scale is multiplied.
    """

    bits: Annotated[int, Field(ge=4, le=48)]
    """Signed width that no lane can overflow, whatever the inputs; a weight fits, too, to be read back."""
    align: Annotated[int, Field(ge=0, le=32)]
    """Left shift before the row's right shift (for rows coarser than the format read next)."""
    partial_bits: Annotated[int, Field(ge=4, le=50)]
    """Signed width that no row's shifted parts and bias can overflow."""


class FusedTables(Record):
    """Indices of the fused LSTM gate unit's tables."""

    sigmoid: Annotated[int, Field(ge=0)]
    tanh: Annotated[int, Field(ge=0)]
    """Table of the candidate g."""
    cell_tanh: Annotated[int, Field(ge=0)]
    """Table that reads the new cell state."""


GUARD_BITS = 4
"""Extra fraction bits of a row's parts until they are added and rounded."""
SCALE_UNIT = 16
"""A row's scale is an integer of so many bits, the highest of them set: in units of ``2**-SCALE_UNIT``, from
1/2 up to 1."""
SCALED_FRACTION = 1
"""Extra fraction bits of what is multiplied by the scale, so that rounding it down costs little."""
LEAST_SCALE_BITS = 8
"""Least bits of a scale, if there is one."""
_SCALED_SUM_BITS = 53 - SCALE_UNIT - SCALED_FRACTION - 2
"""Most bits of partial sums with scales: a float holds the product."""
CELL_SUM_BITS = 52
"""Most bits of ``f * c + i * g``, within the range of c: a float holds them."""
MOST_HIDDEN_SHIFT = 6
"""Most fraction bits that h has beyond those of a format up to 1."""
MOST_INPUT_FACTOR = 2.0**32
"""Largest factor of an input feature."""
MOST_INPUT_ZERO = 2**31 - 1
"""Largest magnitude of a code of zero: a C int holds it."""


def rounding_offsets(readers: Sequence[Cell | CellGraph], rows: int, outputs: int) -> IntArray:
    """Return what the biases of a layer's rows hold beside the network's, in units of the sums, ``(rows,)``.

    It is half a unit of the format read next, so that sums are rounded half up and not just rounded down,
    for the gates that need it (:func:`rounded_gates`). ``readers`` are those of :func:`sum_readers`.
    """
    rounded = sorted(frozenset[int]().union(*map(rounded_gates, readers)))
    gates = np.arange(rows) // outputs
    return np.where(np.isin(gates, rounded), 1 << (GUARD_BITS - 1), 0).astype(np.int64)


def sum_readers(layers: Sequence[OfKind], cells: Sequence[C], index: int) -> list[C]:
    """Return the cells that read a layer's sums: its cell, and that of a layer behind that continues them.

    None reads those of a layer that continues sums, which hold what is added for rounding already.
    """
    if continues_sums(layers, index):
        return []
    joined = index + 1 < len(layers) and joins_sums(layers, index + 1)
    return list(cells[index : index + 1 + joined])


class Numerics(Extended):
    """Formats of the datapath. Formats of layer outputs are in :class:`LayerShape`."""

    _later = frozenset({"norms", "own_hidden_bits"})

    weight_bits: Annotated[int, Field(ge=2, le=18)]
    """Bits of each weight in memory."""
    own_weight_bits: tuple[int, int] | None = None
    """Bits that weights of recurrent and of dense layers use of these, if the numbers differ."""
    input: Format
    """Format of the network's input; its width is that of every vector, but for ``own_hidden_bits``."""
    own_hidden_bits: Annotated[int, Field(ge=4, le=18)] | None = None
    """Width of h, and of other results that layers read, if that is more than the input's; a manifest has the
    field only then."""
    input_factors: tuple[Annotated[float, Field(ge=1, le=MOST_INPUT_FACTOR)], ...] = ()
    """Factor of each input feature: its codes are those of ``x * factor``, and its weights are divided by
    the factor; empty if all are 1."""
    input_zeros: tuple[Annotated[int, Field(ge=-MOST_INPUT_ZERO, le=MOST_INPUT_ZERO)], ...] = ()
    """Code of zero of each input feature, which is added to its codes; empty if all are 0. The biases make up
    for it."""
    own_output_bits: Annotated[int, Field(ge=4, le=18)] | None = None
    """Width of the network's outputs if it differs from that of the other vectors."""
    gate: Format
    """Bits of sigmoid and tanh results, which have one fraction bit less."""
    preactivation: Format
    """Format of the pre-activations that sigmoid and tanh of the gates read."""
    cell: Format
    """Format of the stored cell state: its bits, and the most fraction bits that a layer's has."""
    cell_shifts: Annotated[tuple[Annotated[int, Field(ge=0, le=24)], ...], Field(min_length=1)] = (0,)
    """The numbers of fraction bits that a layer's c may have less, in ascending order from 0 on: between
    them the hardware chooses for each operation. The layer's ``state`` has its format."""
    cell_argument: Format
    """Format in which tanh reads the new cell state."""
    accumulator: Accumulator
    shift_bits: Annotated[int, Field(ge=1, le=6)]
    """Width of a row's right shift."""
    scale_bits: Annotated[int, Field(ge=0, le=SCALE_UNIT)] = 0
    """Upper bits of a row's scale that are used, 8 to 16; 0 if rows have none, so that a shift is all."""
    cells: Annotated[tuple[CellGraph, ...], Field(min_length=1)]
    """The cells that compute the layers' results."""
    tables: tuple[ActivationTable, ...] = ()
    pieces: tuple[PiecewiseLinear, ...] = ()
    """The tables that cells use, by index."""
    norms: tuple[Normalisation, ...] = ()
    """The norms, by index; a manifest has the field only with some."""
    hidden_rounding: HiddenRounding = "half_up"
    """How h of LSTM layers is rounded: half up, or without an adder to an odd code."""
    hidden_whole_bits: Annotated[int, Field(ge=-MOST_HIDDEN_SHIFT, le=32)] = 0
    """Bits before the binary point of the h with the least fraction bits, in the fused LSTM gate unit and in
    hardware that takes other networks. More than 0 for states beyond +-1 in which sequences begin, less where
    every h stays small."""
    hidden_shifts: Annotated[
        tuple[Annotated[int, Field(ge=0, le=MOST_HIDDEN_SHIFT)], ...], Field(min_length=1)
    ] = (0,)
    """The numbers of fraction bits that a layer's h may have more, in ascending order from 0 on: between them
    the fused LSTM gate unit chooses for each operation. The layer's ``output`` has its format."""
    fused_lstm: FusedTables | None = None
    """Tables of the fused LSTM gate unit if it computes all cells; None if each cell has a pipeline."""
    unit_parameters: Annotated[int, Field(ge=0, le=4)] = 0
    """Number of per-unit constants (peepholes), each of ``weight_bits``."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not 4 <= self.data_bits <= 18:
            raise ValueError(f"inputs and h have 4 to 18 bits, not {self.data_bits}")
        if self.data_bits < self.input.bits:
            raise ValueError(f"h has at least the {self.input.bits} bits of the input, not {self.data_bits}")
        least = max(6, self.data_bits)
        if not least <= self.gate.bits <= 18:
            raise ValueError(
                f"gates have {least} to 18 bits (at least 6, and those of inputs and h), not "
                f"{self.gate.bits}; change `gate_bits`"
            )
        if not 8 <= self.cell.bits <= 32:
            raise ValueError(f"the cell state has 8 to 32 bits, not {self.cell.bits}")
        if self.accumulator.bits < self.weight_bits:
            raise ValueError(
                f"accumulators have at least the {self.weight_bits} bits of a weight, "
                f"not {self.accumulator.bits}"
            )
        if 0 < self.scale_bits < LEAST_SCALE_BITS:
            raise ValueError(f"scales have {LEAST_SCALE_BITS} to {SCALE_UNIT} bits, not {self.scale_bits}")
        if self.scale_bits and self.accumulator.partial_bits > _SCALED_SUM_BITS:
            raise ValueError(
                f"rows with scales have sums of at most {_SCALED_SUM_BITS} bits, not "
                f"{self.accumulator.partial_bits}; leave `scale_bits` out, or use fewer bits"
            )
        least = self.cell.fraction - self.cell_shifts[-1]
        if least < 0 or self.cell_argument.fraction > self.cell.fraction:
            raise ValueError(
                "the cell state needs 0 or more fraction bits, and at least as many as its tanh reads"
            )
        for name in ("cell_shifts", "hidden_shifts"):
            shifts = getattr(self, name)
            if shifts != tuple(sorted({0, *shifts})):
                raise ValueError(f"{name} must ascend from 0 on, not be {list(shifts)}")
        if self.cell.bits - least + self.cell_sum_fraction > CELL_SUM_BITS:
            raise ValueError(
                f"cell state {self.cell} with gates {self.gate} needs sums of more than {CELL_SUM_BITS} "
                "bits; choose fewer cell bits or a narrower cell range"
            )
        rounds_odd = self.hidden_rounding == "odd"
        if rounds_odd and self.fused_lstm is None:
            raise ValueError("only the fused LSTM gate unit rounds h to odd codes")
        # Without that unit, a device's cells may be among these; its formats are compared with all others.
        for cell in self.cells if self.fused_lstm is not None else ():
            if any(node.kind == "odd" for node in cell.nodes) != (rounds_odd and cell.reads_state):
                raise ValueError(f"h of cell {cell.name!r} must be rounded as hidden_rounding says")
            if cell.reads_state and cell.output not in self.hidden_formats:
                forms = " or ".join(map(str, self.hidden_formats))
                raise ValueError(f"h of cell {cell.name!r} must be {forms}, as hidden_whole_bits says")
        for name, number in dict(self.fused_lstm or ()).items():
            read = self.cell_argument if name == "cell_tanh" else self.preactivation
            if number >= len(self.tables):
                raise ValueError(f"fused_lstm.{name} must be below {len(self.tables)}, not {number}")
            if (self.tables[number].input, self.tables[number].output) != (read, self.gate):
                raise ValueError(f"table {name} must read {read} and give {self.gate}")
            if not self.tables[number].middle:
                raise ValueError(f"table {name} must be a middle one: it reads values that were rounded down")
        return self

    @property
    def unit(self) -> FusedUnit | GraphUnit:
        """The unit that computes the cells in hardware."""
        fused, tables = self.fused_lstm, self.tables
        if fused is None:
            return GraphUnit(self.cells, tables, self.pieces, self._unit_norms())
        return FusedUnit(
            sigmoid=tables[fused.sigmoid],
            tanh=tables[fused.tanh],
            cell_tanh=tables[fused.cell_tanh],
            gate=self.gate,
            cell=self.cell,
            cell_shifts=self.cell_shifts,
            hidden=self.hidden,
            hidden_shifts=self.hidden_shifts,
            hidden_rounding=self.hidden_rounding,
            norms=self._unit_norms(),
        )

    def _unit_norms(self) -> Norms | None:
        """Return what a core has for norms; the fused unit's only bank of tables is that of the root."""
        of_cell = {at: cell.norm for at, cell in enumerate(self.cells) if cell.norm is not None}
        if not of_cell:
            return None
        forms = [NormForm.of(self.cells[at], self.norms) for at in of_cell]
        root = forms[0].norm.table
        bank = root if self.fused_lstm is None else 0
        return Norms(tuple(forms), self.tables[root], bank, {at: form for form, at in enumerate(of_cell)})

    def function(self, node: Node) -> ActivationTable | PiecewiseLinear:
        """Return the function that a node ``table`` or ``pieces`` applies."""
        return self.tables[node.index] if node.kind == "table" else self.pieces[node.index]

    @property
    def hardware(self) -> dict[str, Any]:
        """The fields that determine the hardware, as in JSON; the input's fraction bits do not, for one."""
        skipped: dict[str, Any] = dict.fromkeys(
            (*self.unit.idle_fields, "input_factors", "input_zeros"), True
        )
        return self.model_dump(mode="json", exclude=skipped | {"input": {"fraction"}})

    @property
    def data_bits(self) -> int:
        """Bits of the values that the array multiplies: h, dense results other than the network's outputs,
        and inputs, which may have fewer at the ports (``input.bits``)."""
        return self.own_hidden_bits or self.input.bits

    @property
    def vector(self) -> Format:
        """Format of these values, which holds the input's."""
        return self.input.replace(bits=self.data_bits)

    @property
    def scaled_bits(self) -> int:
        """Bits of what is multiplied by a row's scale, which is at least a half."""
        return self.accumulator.partial_bits + SCALED_FRACTION + 1

    @property
    def scale_field_bits(self) -> int:
        """Bits of a scale in memory, without the highest one, which is always set."""
        return max(0, self.scale_bits - 1)

    @property
    def factor_bits(self) -> int:
        """Bits of the narrower factor of the array's products."""
        return min(self.weight_bits, self.data_bits)

    @property
    def output_bits(self) -> int:
        """Bits of the network's outputs."""
        return self.own_output_bits or self.data_bits

    @property
    def result_bits(self) -> int:
        """Bits of the widest layer results."""
        return max(self.data_bits, self.output_bits)

    def sum_bits(self, cell: int) -> int:
        """Return the bits of the sums that a cell reads: linear outputs may have more than gates read."""
        return max(self.preactivation.bits, self.cells[cell].sum_bits)

    @property
    def input_factor(self) -> NDArray[np.float64]:
        """Factors of the input features, ``(inputs,)``; a single 1 if none has one."""
        return np.array(self.input_factors or 1.0)

    @property
    def input_offset(self) -> NDArray[np.float64]:
        """Real values of the codes of zero, ``(inputs,)``; a single 0 if all are 0."""
        return self.input.to_floats(self.input_zeros or 0)

    def scale_input(self, x: ArrayLike) -> NDArray[np.float64]:
        """Return the real values of which the codes of inputs ``(..., inputs)`` are made."""
        return np.asarray(x, dtype=np.float64) * self.input_factor + self.input_offset

    @property
    def input_limits(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The least and largest real input that does not saturate, ``(inputs,)`` each, or one for all."""
        return self.read_input(-self.input.maximum), self.read_input(self.input.maximum)

    def read_input(self, codes: ArrayLike) -> NDArray[np.float64]:
        """Return the real inputs that codes ``(..., inputs)`` stand for."""
        return (self.input.to_floats(codes) - self.input_offset) / self.input_factor

    def quantise_input(self, x: ArrayLike) -> IntArray:
        """Return the codes of real inputs ``(..., inputs)``, rounded half up and saturated."""
        return self.input.to_integers(self.scale_input(x))

    @property
    def hidden(self) -> Format:
        """Format of h with the least fraction bits: within (-1, 1), but for ``hidden_whole_bits``."""
        return Format(bits=self.data_bits, fraction=self.data_bits - 1 - self.hidden_whole_bits)

    @property
    def hidden_formats(self) -> tuple[Format, ...]:
        """Formats of h that layers may have."""
        form = self.hidden
        return tuple(form.replace(fraction=form.fraction + shift) for shift in self.hidden_shifts)

    @property
    def cell_sum_fraction(self) -> int:
        """Fraction bits of ``f * c + i * g`` before it is rounded."""
        return self.gate.fraction + max(self.cell.fraction, self.gate.fraction)


def stated_cell_range(layers: Sequence[LayerShape], numerics: Numerics) -> float | str:
    """Return the option ``cell_range`` that gives layers the formats of c that they have."""
    kept = [layer.state for layer in layers if layer.kind == "lstm" and layer.state is not None]
    return _stated(kept or [numerics.cell])


def stated_hidden_range(layers: Sequence[LayerShape], numerics: Numerics) -> float | str | None:
    """Return the option ``hidden_range`` that gives layers the formats of h that they have; None if no h
    saturates below 1."""
    if not narrows_hidden(numerics):
        return None
    return _stated([layer.output for layer in layers if layer.kind == "lstm"])


def narrows_hidden(numerics: Numerics) -> bool:
    """Whether the h of a layer of the fused LSTM gate unit saturates below 1."""
    return numerics.hidden_whole_bits < numerics.hidden_shifts[-1]


def _stated(forms: Sequence[Format]) -> float | str:
    found = [2.0 ** (form.bits - 1 - form.fraction) for form in forms]
    return found[0] if len({*found}) == 1 else ",".join(f"{each:g}" for each in found)


@dataclass(frozen=True)
class QuantizedRecurrent:
    """Integers of a recurrent layer, rows gate by gate (of an LSTM layer: i, f, g, o).

    ``w_ih`` (4H, I) and ``w_hh`` (4H, outputs), or (H, ...) of a plain one, within ``weight_bits``;
    ``shift_ih`` and ``shift_hh`` (4H,), the right shifts that bring each part from the aligned
    accumulator to the pre-activation format with ``GUARD_BITS`` more fraction bits; ``bias`` (4H,) in that
    format, in which rows that are rounded half up (:func:`rounded_gates`) have half a unit of the
    pre-activation format more. ``parameters`` (H, K) are per-unit constants, if the network's cells use any.
    ``scale_ih`` and ``scale_hh`` (4H,) are the scales of the parts, of ``SCALE_UNIT`` bits, if rows have
    some: the shifts then leave ``SCALED_FRACTION`` more fraction bits.
    """

    w_ih: IntArray
    w_hh: IntArray
    bias: IntArray
    shift_ih: IntArray
    shift_hh: IntArray
    parameters: IntArray | None = None
    scale_ih: IntArray | None = None
    scale_hh: IntArray | None = None


@dataclass(frozen=True)
class QuantizedDense:
    """Integers of one product: ``weight`` (O, I), ``bias`` and ``shift`` (O,), perhaps ``scale`` (O,).

    As in :class:`QuantizedRecurrent`; the format read next is the pre-activation format for sigmoid
    and tanh, and the layer's output format for identity and ReLU. A layer that continues sums has no bias.
    """

    weight: IntArray
    bias: IntArray
    shift: IntArray
    scale: IntArray | None = None
    parameters: IntArray | None = None


QuantizedLayer = QuantizedRecurrent | QuantizedDense


@dataclass(frozen=True)
class QuantizedNetwork:
    """A network in integers: the contents of the weight image, with their formats."""

    shapes: tuple[LayerShape, ...]
    numerics: Numerics
    layers: tuple[QuantizedLayer, ...]
    passes: Passes = ()
    """The passes of whole sequences through the layers; none if all layers go forward, step by step."""
    tokens: IntArray | None = None
    """The table in which the core looks up tokens, codes of the input, ``(tokens, inputs)``; None without."""

    def looked_up(self, x: IntArray) -> IntArray:
        """Return the inputs of what the port takes: tokens ``(..., 1)`` to ``(..., inputs)``, or values."""
        return x if self.tokens is None else self.tokens[x[..., 0]]

    def part(self, layers: range) -> "QuantizedNetwork":
        """Return some of the layers, as they go through a sequence forward."""
        some = slice(layers.start, layers.stop)
        return QuantizedNetwork(self.shapes[some], self.numerics, self.layers[some])

    def sources(self, index: int) -> tuple[Format, ...]:
        """Return the formats of what a layer's rows multiply: its input, and the h that it reads back."""
        shape = self.shapes[index]
        before = feeds(self.passes, index, shape.before)
        given = self.shapes[before[0]].output if before else self.numerics.input
        return (given, self.shapes[index + shape.feedback].output) if shape.recurrent else (given,)

    @property
    def inputs(self) -> int:
        """Width of one step's input."""
        return self.shapes[0].inputs

    @property
    def outputs(self) -> int:
        """Width of one step's output."""
        last = part_layers(self.passes)[-1] if self.passes else [range(len(self.shapes))]
        return sum(self.shapes[layers[-1]].outputs for layers in last)


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


class RowPart(NamedTuple):
    """What a layer's rows multiply one vector with."""

    what: str
    """Name of the products, for messages."""
    weights: IntArray
    shift: IntArray
    scale: IntArray | None

    def largest(self, data: Format, align: int) -> IntArray:
        """Return the largest magnitude of each row's part for any inputs, ``(rows,)``.

        Rounding down can add one unit to a magnitude.
        """
        most: IntArray = ((np.abs(self.weights).sum(axis=1) * -data.lowest << align) >> self.shift) + 1
        return most if self.scale is None else scaled(most, self.scale) + 1

    def steps(self, align: int, target: int, source: int) -> NDArray[np.float64]:
        """Return what 1 is worth of each row's weights, ``(rows,)``: the parts have ``target`` fraction bits
        and the values ``source``."""
        factors = scale_factors(self.scale)
        return np.ldexp(1.0 if factors is None else factors, align - self.shift + source - target)


def scaled(sums: IntArray, scale: IntArray) -> IntArray:
    """Return shifted sums times their rows' scales, rounded down."""
    drop = SCALE_UNIT + SCALED_FRACTION
    # The upper bits on their own: the whole product may have more bits than an integer here.
    return (sums >> drop) * scale + ((sums & (1 << drop) - 1) * scale >> drop)


def scale_factors(scale: IntArray | None) -> NDArray[np.float64] | None:
    """Return what shifted sums are multiplied by, with what is dropped behind it; None without scales."""
    return None if scale is None else np.ldexp(scale.astype(np.float64), -SCALE_UNIT - SCALED_FRACTION)


def row_parts(layer: QuantizedLayer) -> tuple[RowPart, ...]:
    """Return the parts of a layer's rows, one for each vector that it reads."""
    if isinstance(layer, QuantizedRecurrent):
        return (
            RowPart("input products", layer.w_ih, layer.shift_ih, layer.scale_ih),
            RowPart("products with h", layer.w_hh, layer.shift_hh, layer.scale_hh),
        )
    return (RowPart("products", layer.weight, layer.shift, layer.scale),)


def bound_sums(
    layers: Iterable[QuantizedLayer], data: Format, align: int, shapes: Sequence[OfKind] = ()
) -> SumBounds:
    """Bound every sum of every row over all inputs; without ``shapes``, as if no layer joined another's sums.

    A lane's sum is at most ``sum(|w|) * 2**(bits-1)``: the L1 bound, with inputs at their most
    negative.
    """
    lanes: list[SumBound] = []
    partials: list[SumBound] = []
    total: IntArray = np.zeros(0, dtype=np.int64)
    for index, layer in enumerate(layers):
        joined = total if shapes and joins_sums(shapes, index) else np.zeros_like(layer.bias)
        total = joined + np.abs(layer.bias)
        for part in row_parts(layer):
            most = np.abs(part.weights).sum(axis=1) * -data.lowest
            lanes.append(SumBound(index, part.what, int(most.max())))
            total = total + part.largest(data, align)
        partials.append(SumBound(index, "sums of products and biases", int(total.max())))
    return SumBounds(tuple(lanes), tuple(partials))
