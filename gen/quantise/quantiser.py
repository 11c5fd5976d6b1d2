"""Quantisation: from a float network to integers with power-of-two scales.

Every row (one gate of one unit, or one dense output) has the finest accumulator scale at which
its own weights fit. Ranges of input, pre-activation and cell state come from calibration data
when there are any, and from bounds or stated assumptions otherwise.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import Field, model_validator

from rtlstm.gen.quantise.calibration import Calibration, repeat_state, run_reference
from rtlstm.gen.quantise.cell_range import MARGIN, power_of_two, search_cell_range, states_leave
from rtlstm.gen.quantise.directions import unfold
from rtlstm.gen.quantise.input_shifts import choose_shifts, fold_shifts
from rtlstm.gen.quantise.lowering import ArrayLayer, is_fused, lower
from rtlstm.gen.quantise.ranges import (
    Calibrated,
    Ranges,
    begin_ranges,
    bound_ranges,
    guess_ranges,
    largest_begins,
    measure_ranges,
)
from rtlstm.gen.quantise.target import TargetHardware
from rtlstm.sim.reference import FloatResult, FloatState
from rtlstm.spec.activations.functions import SIGMOID, TANH
from rtlstm.spec.activations.interpolated import DIRECT_BITS
from rtlstm.spec.cells.formats import CellFormats, Functions, resolve
from rtlstm.spec.cells.graph import CellGraph
from rtlstm.spec.errors import ConfigurationError
from rtlstm.spec.fixed import Format, HiddenRounding, IntArray, round_half_up
from rtlstm.spec.network import Dense, Network
from rtlstm.spec.numerics import (
    GUARD_BITS,
    FusedTables,
    LayerShape,
    Numerics,
    QuantizedDense,
    QuantizedLayer,
    QuantizedNetwork,
    QuantizedRecurrent,
    continues_sums,
    rounding_offsets,
)
from rtlstm.spec.options import Option
from rtlstm.spec.parameters import Tables
from rtlstm.spec.program.passes import feeds, part_layers
from rtlstm.spec.record import Record
from rtlstm.spec.sum_bounds import bound_sums, row_parts
from rtlstm.spec.weights import WeightFormat

Floats = NDArray[np.float64]

_SUM_BITS, _WEIGHT_RANGE = 46, 20
"""Largest width of sums, and largest exponent of two of a weight, that the hardware may have."""
_SEARCH_BITS = 16
"""Least widths in the search of the range of c, so that it sees the cell's rounding and not the weights'."""


_NUMBERS = "Numbers"
_Bits = Annotated[int, Field(ge=4, le=18)]
_WeightBits = Annotated[int, Field(ge=2, le=18)]
_Range = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class QuantizationSettings(Record):
    """Widths of formats, and ranges to use instead of those from calibration data."""

    weight_bits: Annotated[_WeightBits, Option("Bits per weight, 2 to 18.", group=_NUMBERS)] = 16
    dense_weight_bits: Annotated[
        _WeightBits | None,
        Option(
            "Bits per weight in dense layers, 2 to 18. The weight memory is as wide as the "
            "larger of the two. Default: the bits of the other weights.",
            group=_NUMBERS,
        ),
    ] = None
    data_bits: Annotated[
        _Bits, Option("Bits of inputs, hidden states and dense results, 4 to 18.", group=_NUMBERS)
    ] = 16
    output_bits: Annotated[
        _Bits | None,
        Option(
            "Bits of the outputs, if a dense layer gives them, 4 to 18. Default: the data's bits.",
            group=_NUMBERS,
        ),
    ] = None
    gate_bits: Annotated[
        Annotated[int, Field(ge=6, le=18)] | None,
        Option(
            "Bits of the results of sigmoid and tanh, 6 to 18. Default: the data's or "
            "outputs' bits, at least 12.",
            group=_NUMBERS,
        ),
    ] = None
    cell_bits: Annotated[
        int, Field(ge=8, le=32), Option("Bits of the cell state, 8 to 32.", group=_NUMBERS)
    ] = 16
    input_range: Annotated[
        _Range | None,
        Option(
            "Largest input of any feature. Default: from the calibration data, feature by feature, or 8.",
            group=_NUMBERS,
        ),
    ] = None
    cell_range: Annotated[
        _Range | None,
        Option(
            "Largest cell state; larger ones saturate. Default: from the calibration data, or 16.",
            group=_NUMBERS,
        ),
    ] = None
    final_states: Annotated[
        bool | None,
        Option(
            "Keep the final cell states in range, e.g. if they start a decoder. Default: on "
            "unless the network ends in a dense layer.",
            group=_NUMBERS,
            flag="--final-states/--no-final-states",
        ),
    ] = None
    headroom_bits: Annotated[
        int,
        Field(ge=0, le=16),
        Option(
            "Bits by which weights and sums of a retrained model may grow, 0 to 16.",
            group=_NUMBERS,
        ),
    ] = 0
    hidden_rounding: Annotated[
        HiddenRounding,
        Option(
            "Rounding of h. odd saves one cycle per LSTM layer and costs one bit of precision.",
            group=_NUMBERS,
        ),
    ] = "half_up"
    tables: Tables = "interpolated"

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.final_states is not None and self.cell_range is not None:
            raise ValueError(
                "the cell state's range must be stated (`cell_range`), or found with or without "
                "regard to final states (`final_states=True`, `final_states=False`), "
                "not both; leave one out"
            )
        for name in ("data_bits", "output_bits"):
            bits = getattr(self, name)
            if self.tables == "direct" and bits is not None and bits > DIRECT_BITS:
                raise ValueError(
                    f"`{name}` must be at most {DIRECT_BITS} with direct tables, not {bits}; "
                    "choose fewer, or interpolated tables"
                )
        return self

    def bits_of(self, dense: bool) -> int:
        """Return the bits of weights, of a dense layer or of another one."""
        return self.dense_weight_bits if dense and self.dense_weight_bits else self.weight_bits

    @property
    def most_weight_bits(self) -> int:
        """Width of the weight memory: the larger of the two."""
        return max(self.weight_bits, self.dense_weight_bits or 0)


DEFAULT_INPUT_RANGE = 8.0
DEFAULT_CELL_RANGE = 16.0


def _saturation_range(gate: Format) -> float:
    """Return where sigmoid comes within half a unit in the last place of 1, rounded up to a power of two."""
    return power_of_two(math.log(2.0) * (gate.fraction + 1))


@dataclass(frozen=True)
class FormatChoices:
    """What calibration data, settings or bounds say about a network: its formats follow from these."""

    input_range: float
    input_shifts: tuple[int, ...]
    ranges: Ranges
    cell_range: float


@dataclass(frozen=True)
class RangeFormats:
    """The formats whose ranges are chosen."""

    input: Format
    preactivation: Format | None
    """None if no layer has an activation function."""
    cell: Format | None
    """None if no layer keeps c."""
    outputs: tuple[Format, ...]
    """Each array layer's results have one."""
    together: tuple[tuple[int, ...], ...]
    """The array layers whose results are read as one vector, in one format; each layer once."""


@dataclass(frozen=True)
class RowChoices:
    """Bits and scales of rows that are chosen already, as those of a network that was trained with them."""

    weight_bits: tuple[int, ...]
    """Bits of each array layer's weights."""
    fractions: tuple[tuple[IntArray, ...], ...]
    """Fraction bits of the weights of each row, ``(rows,)``, for each vector that an array layer reads."""
    constants: tuple[Format | None, ...]
    """Format of each array layer's per-unit constants."""


@dataclass(frozen=True)
class RowPlan:
    """The formats around the rows of an array layer."""

    layer: ArrayLayer
    form: WeightFormat
    sources: tuple[int, ...]
    """Fraction bits of each vector that the layer reads."""
    target: int
    """Fraction bits of its sums, guard bits included."""
    finest: int
    """The most fraction bits of an accumulator that change a result."""
    coarsest: int
    """The least fraction bits of an accumulator, which the left shift of sums can make up for."""
    most_sum: int | None
    """What the magnitudes of a row's integers must sum to less than, so that the accumulators of an existing
    device hold its products; None if they are made for the row."""
    constants: Format | None
    """Format of the per-unit constants, if there are some."""
    offsets: IntArray
    """What is added to the bias of each row, so that dropping the guard bits rounds those half up that need
    it."""

    @property
    def matrices(self) -> tuple[Floats, ...]:
        """The weights for each vector that the layer reads."""
        layer = self.layer
        return (layer.w_in,) if layer.w_rec is None else (layer.w_in, layer.w_rec)


class _Quantiser:
    """Chooses formats, and quantises the layers with them."""

    def __init__(
        self,
        network: Network,
        settings: QuantizationSettings,
        input_range: float,
        hardware: TargetHardware | None = None,
        input_shifts: tuple[int, ...] = (),
        rows: RowChoices | None = None,
    ) -> None:
        self.hardware = hardware or TargetHardware(headroom=settings.headroom_bits or None)
        unfolded = unfold(network)
        self.layers, self.passes = lower(unfolded)
        self.recognised = is_fused(self.layers, self.passes)
        """Whether the fused LSTM gate unit computes the network."""
        self.weight_bits = [
            settings.bits_of(at >= 0 and isinstance(unfolded.layers[at], Dense))
            for at in (layer.origin for layer in self.layers)
        ]
        self.rows = rows
        if rows is not None:
            self.weight_bits = list(rows.weight_bits)
        self.hardware.check_layers(self.layers)
        plain = self.recognised and any(layer.kind == "lstm" for layer in self.layers)
        self.rounding: HiddenRounding = settings.hidden_rounding if self.recognised else "half_up"
        # What a device takes is compared with all of its formats.
        if settings.hidden_rounding == "odd" and not plain and self.hardware.device is None:
            raise ConfigurationError(
                "`hidden_rounding='odd'` needs LSTM layers without peepholes, projections or "
                "skips, and behind them, if any, dense layers with ReLU, sigmoid, tanh or no function; leave "
                "it out for this network"
            )
        self.settings = settings
        self._check_outputs()
        bits = settings.data_bits
        gate_bits = settings.gate_bits or max(12, bits, settings.output_bits or 0)
        self.gate = Format(bits=gate_bits, fraction=gate_bits - 1)
        fixed = self.hardware.fixed
        self.input = fixed.input if fixed else Format.covering(bits, input_range)
        self.input_shifts = input_shifts
        self.direct = settings.tables == "direct"
        self.argument_bits = min(gate_bits + 2, DIRECT_BITS if self.direct else 20)

    def _check_outputs(self) -> None:
        """Refuse bits of outputs that the network's last layer cannot give."""
        data, bits, last = self.settings.data_bits, self.settings.output_bits, self.layers[-1]
        if bits in (None, data):
            return
        if self.passes:
            raise ConfigurationError(
                f"outputs of a network with a reverse direction have the data's {data} bits, not {bits}: "
                "they are kept with its inputs; leave `output_bits` out"
            )
        # On an existing device, h may be output in wider words.
        wider = self.hardware.device is not None and bits is not None and bits > data
        if not self.gives_outputs(len(self.layers) - 1) and not wider:
            raise ConfigurationError(
                f"outputs of {bits} bits need a dense layer at the network's end, but layer {last.name!r} "
                f"there gives h, which has the data's {data}; leave `output_bits` out, or change "
                "`data_bits`"
            )

    def gives_outputs(self, index: int) -> bool:
        """Whether the results of a layer are the network's outputs and nothing else."""
        last, layers = len(self.layers) - 1, self.layers
        read_back = any(
            at + layer.feedback == last for at, layer in enumerate(layers) if layer.w_rec is not None
        )
        # A layer with a skip has two products, in one format.
        mine = index == last or (index == last - 1 and layers[last].kind == "sum")
        return mine and layers[last].kind in ("dense", "sum") and not read_back and not self.passes

    def preactivation(self, ranges: Ranges) -> Format:
        """Return the format that covers these ranges' sums, or less if all functions are flat beyond it."""
        if self.hardware.device is not None:
            return self.hardware.device.preactivation
        max_abs = power_of_two(ranges.preactivation)
        if self.hardware.shared:
            # For any network: up to where sigmoid is flat.
            max_abs = max(max_abs, _saturation_range(self.gate))
        wide = (
            # A product reads h itself.
            layer.wide or (layer.kind == "product" and ranges.begin(index) > 1.0)
            for index, layer in enumerate(self.layers)
            if not layer.linear
        )
        if not any(wide):
            max_abs = min(max_abs, _saturation_range(self.gate))
        return Format(bits=self.argument_bits, fraction=self.argument_bits - 1 - int(math.log2(max_abs)))

    def cell(self, max_abs: float) -> tuple[Format, Format]:
        """Return the cell state's format for a range, and the format its tanh reads."""
        if self.hardware.device is not None:
            return self.hardware.device.cell, self.hardware.device.cell_argument
        max_abs = power_of_two(max_abs)
        cell = Format(
            bits=self.settings.cell_bits,
            fraction=self.settings.cell_bits - 1 - int(math.log2(max_abs)),
        )
        flat = all(layer.output_saturates for layer in self.layers)
        reads = min(max_abs, _saturation_range(self.gate)) if flat else max_abs
        fraction = min(self.argument_bits - 1 - int(math.log2(reads)), cell.fraction)
        bits = fraction + 1 + int(math.log2(reads))
        return cell, Format(bits=max(bits, 4), fraction=fraction)

    def _whole_bits(self, index: int, ranges: Ranges) -> int:
        """Return the bits before the binary point that the h needs in which a layer's sequences begin."""
        bits, begin = self.settings.data_bits, ranges.begin(index)
        return bits - 1 - Format.covering(bits, begin).fraction if begin > 1.0 else 0

    def hidden_whole_bits(self, ranges: Ranges) -> int | None:
        """Return those of h if all layers have one format of it; None if each has its own."""
        if self.hardware.device is not None:
            return self.hardware.device.hidden_whole_bits
        if not (self.recognised or self.hardware.shared):
            return None
        mine = (index for index, layer in enumerate(self.layers) if layer.in_format_of_h)
        return max((self._whole_bits(index, ranges) for index in mine), default=0)

    def outputs(self, ranges: Ranges) -> list[Format]:
        """Return the formats of the layers' results."""
        found = self._outputs(ranges)
        if self.hardware.device is not None:
            for index, form in enumerate(found):
                self.hardware.check_begin(self.layers[index].name, form, ranges.begin(index))
        return found

    def _outputs(self, ranges: Ranges) -> list[Format]:
        if self.hardware.layers:
            return [layer.output for layer in self.hardware.layers]
        found = []
        common = self.hidden_whole_bits(ranges)
        for index, (layer, max_abs) in enumerate(zip(self.layers, ranges.layers, strict=True)):
            bits = self.settings.data_bits
            if self.gives_outputs(index):
                bits = self.settings.output_bits or bits
            if layer.within_one:
                needed = self._whole_bits(index, ranges) if common is None else common
                whole = needed if layer.in_format_of_h else 0
                found.append(Format(bits=bits, fraction=bits - 1 - whole))
            else:
                found.append(Format.covering(bits, max(max_abs, ranges.begin(index))))
        if self.layers[0].origin < 0:
            found[0] = self.input
        # The parts of a pass are read as one vector, so they have one format.
        for parts in part_layers(self.passes):
            ends = [layers[-1] for layers in parts]
            widest = min((found[end] for end in ends), key=lambda form: form.fraction)
            for end in ends:
                found[end] = widest
        return found

    def _row_scales(self, weights: Floats, fraction: int, plan: RowPlan) -> IntArray:
        """Return each row's accumulator fraction bits: the finest at which its weights fit."""
        form, target = plan.form, plan.target
        scales = np.minimum(form.finest_of_rows(weights, target - fraction) + fraction, plan.finest)
        if plan.most_sum is None:
            return scales
        # If the device's accumulators cannot hold a row's sums, the row's weights lose a fraction bit.
        while True:
            sums = np.abs(form.to_integers(weights, (scales - fraction)[:, None])).sum(axis=1)
            wide = (sums >= plan.most_sum) & (scales > plan.coarsest)
            if not wide.any():
                return scales
            scales = scales - wide

    def _check_range(self, name: str, parts: list[tuple[Floats, int]], bias: Floats, target: int) -> None:
        """Refuse a layer whose sums no accumulator holds."""
        total, most = np.abs(bias), float(np.abs(bias).max())
        for weights, fraction in parts:
            total = total + np.abs(weights).sum(axis=1) * 2.0 ** (self.settings.data_bits - 1 - fraction)
            most = max(most, float(np.abs(weights).max()))
        needed = math.frexp(float(total.max()))[1] + target + 1
        if needed > _SUM_BITS or math.frexp(most)[1] > _WEIGHT_RANGE:
            raise ConfigurationError(
                f"layer {name!r} has weights and biases up to {most:g}, whose sums need {needed} "
                f"bits, but weights may reach 2**{_WEIGHT_RANGE} and sums have at most {_SUM_BITS} "
                "bits; check the model, or rescale its input"
            )

    def plans(self, outputs: list[Format], preactivation: Format) -> list[RowPlan]:
        """Return the formats around the rows of each layer."""
        plans = []
        for index, layer in enumerate(self.layers):
            before = feeds(self.passes, index, layer.before)
            source = outputs[before[0]] if before else self.input
            target = (outputs[index] if layer.linear else preactivation).fraction + GUARD_BITS
            sources = [source.fraction]
            if layer.w_rec is not None:
                sources.append(outputs[index + layer.feedback].fraction)
            form = WeightFormat(self.weight_bits[index])
            # A finer scale would change no result, but take more bits of the shifter.
            finest = self.hardware.finest(target, self.settings.data_bits)
            coarsest = self.hardware.coarsest(target)
            constants = self._constants_format(index)
            offsets = self._offsets(index)
            most_sum = self.hardware.most_sum(self.input)
            plans.append(
                RowPlan(layer, form, tuple(sources), target, finest, coarsest, most_sum, constants, offsets)
            )
        return plans

    def _scales(self, index: int, plan: RowPlan) -> list[IntArray]:
        """Return the accumulator's fraction bits of each row, for each vector that a layer reads."""
        parts = list(zip(plan.matrices, plan.sources, strict=True))
        self._check_range(plan.layer.name, parts, plan.layer.bias, plan.target)
        if self.rows is not None:
            given = zip(plan.sources, self.rows.fractions[index], strict=True)
            return [source + fractions for source, fractions in given]
        return [self._row_scales(weights, fraction, plan) for weights, fraction in parts]

    def integers(self, plans: list[RowPlan]) -> tuple[list[QuantizedLayer], int]:
        """Return the layers in integers and the common left shift before their right shifts."""
        scales_of = [self._scales(index, plan) for index, plan in enumerate(plans)]
        pairs = list(zip(plans, scales_of, strict=True))
        coarsest = (int((plan.target - s).max()) for plan, scales in pairs for s in scales)
        align = self.hardware.align(max(0, *coarsest))
        layers: list[QuantizedLayer] = []
        for index, (plan, scales) in enumerate(pairs):
            layer = plan.layer
            matrices = [
                plan.form.to_integers(weights, (scale - fraction)[:, None])
                for weights, fraction, scale in zip(plan.matrices, plan.sources, scales, strict=True)
            ]
            bias = round_half_up(layer.bias, plan.target).astype(np.int64) + plan.offsets
            shifts = [scale + align - plan.target for scale in scales]
            if layer.w_rec is None:
                layers.append(QuantizedDense(matrices[0], bias, shifts[0], continues_sums(layer.kind)))
            else:
                constants = self._unit_constants(index)
                layers.append(
                    QuantizedRecurrent(matrices[0], matrices[1], bias, shifts[0], shifts[1], constants)
                )
        return layers, align

    def _offsets(self, index: int) -> IntArray:
        """Return what the biases of a layer's rows hold for rounding."""
        layer, *behind = self.layers[index : index + 2]
        continued = [each.cell for each in behind if continues_sums(each.kind)]
        readers = [] if continues_sums(layer.kind) else [layer.cell, *continued]
        return rounding_offsets(readers, len(layer.bias), layer.outputs)

    @property
    def most_weight_bits(self) -> int:
        """Width of the weight memory."""
        if self.hardware.device is not None:
            return self.hardware.device.weight_bits
        return self.settings.most_weight_bits if self.rows is None else max(self.weight_bits)

    @property
    def own_weight_bits(self) -> tuple[int, int] | None:
        """Bits of the weights of recurrent and of dense layers, if they differ."""
        settings = self.settings
        if self.hardware.device is not None:
            return self.hardware.device.own_weight_bits
        if settings.dense_weight_bits is None or self.rows is not None:
            return None
        return settings.weight_bits, settings.dense_weight_bits

    @property
    def unit_parameters(self) -> int:
        """Number of per-unit constants."""
        constants, device = max(layer.cell.parameters for layer in self.layers), self.hardware.device
        return constants if device is None else max(constants, device.unit_parameters)

    def _constants_format(self, index: int) -> Format | None:
        """Format of a layer's per-unit constants."""
        constants = self.layers[index].unit_constants
        if constants is None:
            return None
        if self.rows is not None:
            return self.rows.constants[index]
        if self.hardware.layers:
            return self.hardware.constants_format(index, constants)
        return Format.covering(self.weight_bits[index], float(np.abs(constants).max()))

    def _unit_constants(self, index: int) -> IntArray | None:
        """Return a layer's per-unit constants in integers, padded to the largest number of any layer."""
        count, layer = self.unit_parameters, self.layers[index]
        if not count:
            return None
        values = np.zeros((layer.outputs, count), dtype=np.int64)
        form = self._constants_format(index)
        if layer.unit_constants is not None and form is not None:
            values[:, : layer.unit_constants.shape[1]] = form.to_integers(layer.unit_constants)
        return values

    def _state(self, layer: ArrayLayer, output: Format, cell: Format) -> Format | None:
        """Format of the state that a layer's cell keeps."""
        if layer.state != "hidden":
            return cell if layer.state else None
        # The range is that of h, with more fraction bits.
        bits = self.settings.cell_bits
        return Format(bits=bits, fraction=bits - output.bits + output.fraction)

    def _fused_tables(self, functions: Functions, reads: Format, argument: Format) -> FusedTables:
        """All tables of the fused unit, whether or not the network needs them."""
        return FusedTables(
            sigmoid=functions.table(SIGMOID, reads, self.gate, middle=True),
            tanh=functions.table(TANH, reads, self.gate, middle=True),
            cell_tanh=functions.table(TANH, argument, self.gate, middle=True),
        )

    def _cell_formats(
        self, index: int, outputs: list[Format], reads: Format, stored: Format, argument: Format
    ) -> CellFormats:
        """Formats of what a layer's cell reads, keeps and gives."""
        layer, output = self.layers[index], outputs[index]
        return CellFormats(
            preactivation=Format(bits=reads.bits, fraction=output.fraction) if layer.linear else reads,
            gate=self.gate,
            output=output,
            # A GRU of two layers keeps one state, in the format of the h that it reads back.
            state=self._state(layer, outputs[index + layer.feedback], stored),
            argument=argument if layer.state == "cell" else None,
            parameter=self._constants_format(index),
            rounding=self.rounding if layer.state == "cell" else "half_up",
        )

    def _shape(self, index: int, formats: CellFormats, cell: int) -> LayerShape:
        layer = self.layers[index]
        return LayerShape(
            kind=layer.kind,
            name=self.hardware.layers[index].name if self.hardware.layers else layer.name,
            inputs=layer.w_in.shape[1],
            outputs=layer.outputs,
            activation=layer.activation,
            input_relu=layer.input_relu,
            output=formats.output,
            cell=cell,
            state=formats.state,
            feedback=layer.feedback,
            skips=layer.skips,
        )

    def build(self, layer_ranges: Ranges, cell_range: float) -> QuantizedNetwork:
        """Quantise with these ranges."""
        reads = self.preactivation(layer_ranges)
        outputs = self.outputs(layer_ranges)
        layers, align = self.integers(self.plans(outputs, reads))
        stored, argument = self.cell(cell_range)
        functions, shapes = Functions(self.direct), []
        cells: list[CellGraph] = []
        if device := self.hardware.device:
            functions.tables += device.tables
            functions.pieces += device.pieces
            cells += device.cells
        # An existing device that has cell units computes these cells with them, too.
        fused = self.recognised and (device is None or device.fused_lstm is not None)
        fused_tables = self._fused_tables(functions, reads, argument) if fused else None
        for index, layer in enumerate(self.layers):
            formats = self._cell_formats(index, outputs, reads, stored, argument)
            graph, _ = resolve(layer.cell, formats, functions)
            if graph not in cells:
                cells.append(graph)
            shapes.append(self._shape(index, formats, cells.index(graph)))
        numerics = Numerics(
            weight_bits=self.most_weight_bits,
            own_weight_bits=self.own_weight_bits,
            input=self.input,
            input_shifts=self.input_shifts,
            own_output_bits=self.settings.output_bits,
            gate=self.gate,
            preactivation=reads,
            cell=stored,
            cell_argument=argument,
            accumulator=self.hardware.accumulator(
                bound_sums(layers, self.input, align), align, self.most_weight_bits, shapes
            ),
            shift_bits=self.hardware.shift_bits(_largest_shift(layers), self.settings.data_bits, align),
            cells=tuple(cells),
            tables=tuple(functions.tables),
            pieces=tuple(functions.pieces),
            hidden_rounding=self.rounding,
            hidden_whole_bits=self.hidden_whole_bits(layer_ranges) or 0,
            fused_lstm=fused_tables,
            unit_parameters=self.unit_parameters,
        )
        self.hardware.check(numerics)
        return QuantizedNetwork(tuple(shapes), numerics, tuple(layers), self.passes)


def _largest_shift(layers: list[QuantizedLayer]) -> int:
    return max(int(shift.max()) for layer in layers for _, _, shift in row_parts(layer))


def quantise(
    network: Network,
    settings: QuantizationSettings | None = None,
    calibration: NDArray[np.generic] | Calibration | None = None,
    lengths: ArrayLike | None = None,
    hardware: TargetHardware | None = None,
    state: Any = None,
    initial_state: FloatState | None = None,
) -> QuantizedNetwork:
    """Quantise a network.

    Parameters
    ----------
    calibration
        Typical inputs, ``(T, inputs)`` or ``(T, N, inputs)``, or a checked ``Calibration`` with its lengths.
        They set three things: the input range and the shifts of small features
        (:mod:`rtlstm.gen.quantise.input_shifts`; no shifts if the settings state a range), the ranges of
        unbounded results, with a margin of a quarter, and the cell state's range
        (:mod:`rtlstm.gen.quantise.cell_range`). Without calibration data, a run on random inputs sets ranges
        where the weights give no bound.
    lengths
        Valid steps of each sequence of the calibration data, ``(N,)``; all if None.
    hardware
        The hardware, if it is not made for this network alone.
    state
        Initial states of the sequences of the calibration data, ``(h_0, c_0)`` as a build's ``run`` takes
        them; zeros if None.
    initial_state
        The state in which the model begins, h and c of each layer, ``(units,)``; zeros if None. The formats
        hold it and those of the calibration data: beyond +-1, each doubling takes a fraction bit of h.

    Raises
    ------
    InputError
        If the calibration data, their lengths or their states do not fit the network.
    ConfigurationError
        If the formats asked for cannot be built, or the network does not fit the device.
    """
    settings = settings or QuantizationSettings()
    if not isinstance(calibration, Calibration):
        calibration = Calibration.given(network, calibration, lengths, state)
    choices = choose_formats(network, settings, calibration, hardware, initial_state=initial_state)
    return quantise_with(network, settings, choices, hardware)


def choose_formats(
    network: Network,
    settings: QuantizationSettings,
    data: Calibration | Calibrated | None,
    hardware: TargetHardware | None = None,
    searched: dict[object, float] | None = None,
    initial_state: FloatState | None = None,
) -> FormatChoices:
    """Find the ranges of all quantities, as :func:`quantise` says; errors as there.

    ``data`` may be what is known of calibration data: then the settings state the range of c, if any.

    ``searched`` keeps the ranges of c that were found for the same network and data, by what they depend on.
    Most settings share one, so whoever tries many gives the same dict each time.
    """
    # A stated range of 8 reaches to the last code below 8: 8 itself would need one more bit.
    last_code = 1.0 - 2.0 ** (1 - settings.data_bits)
    largest = DEFAULT_INPUT_RANGE * last_code if data is None else float(data.peaks.max()) or 1.0
    input_range = largest if settings.input_range is None else settings.input_range * last_code
    shifts = _input_shifts(network, settings, input_range, data, hardware)
    if shifts:
        # The network and the data with shifted inputs, as on the device.
        network = fold_shifts(network, np.array(shifts))
        data = data.scaled(np.ldexp(1.0, shifts)) if isinstance(data, Calibration) else data
    quantiser = _Quantiser(network, settings, input_range, hardware, shifts)
    if isinstance(data, Calibrated):
        return FormatChoices(input_range, shifts, data.ranges, settings.cell_range or 1.0)
    given = (initial_state, None if data is None else data.state)
    states = [state for state in given if state is not None]
    begins = begin_ranges(network, states)
    begin_c = float(largest_begins(states)[1].max(initial=0.0)) if states else 0.0
    if data is None:
        if settings.final_states is not None:
            raise ConfigurationError(
                "`final_states` says how calibration data set the range of the cell state, but "
                "there are none; give such data (`calibration`), or state the range "
                "(`cell_range`)"
            )
        if quantiser.recognised:
            ranges = bound_ranges(network, input_range, begins)
        else:
            ranges = guess_ranges(network, input_range, initial_state)
        assumed = max(DEFAULT_CELL_RANGE, MARGIN * begin_c)
        return FormatChoices(input_range, shifts, ranges, settings.cell_range or assumed)
    reference = run_reference(network, data)
    ranges = measure_ranges(network, reference, begins)
    if not data.begins_in(initial_state):
        as_model = replace(data, state=repeat_state(initial_state, data.sequences))
        ranges = ranges.joined(measure_ranges(network, run_reference(network, as_model), begins))
    cell_range = settings.cell_range
    if cell_range is None and (hardware is None or hardware.device is None):
        known = {} if searched is None else searched
        cell_range = _search_cell_range(
            network, settings, input_range, shifts, data, reference, ranges, begin_c, known
        )
    return FormatChoices(input_range, shifts, ranges, cell_range or DEFAULT_CELL_RANGE)


def quantise_with(
    network: Network,
    settings: QuantizationSettings,
    choices: FormatChoices,
    hardware: TargetHardware | None = None,
    rows: RowChoices | None = None,
) -> QuantizedNetwork:
    """Quantise a network with ranges that are known, and with ``rows`` as they were trained, if given."""
    return _quantiser(network, settings, choices, hardware, rows).build(choices.ranges, choices.cell_range)


def plan_rows(
    network: Network,
    settings: QuantizationSettings,
    choices: FormatChoices,
    weight_bits: Callable[[ArrayLayer], int] | None = None,
    hardware: TargetHardware | None = None,
) -> list[RowPlan]:
    """Return the formats around the rows of each array layer, by default for hardware of this network alone.

    ``weight_bits`` returns the bits of a layer's weights; by default they are those of the settings.
    """
    quantiser = _quantiser(network, settings, choices, hardware)
    if weight_bits is not None:
        quantiser.weight_bits = [weight_bits(layer) for layer in quantiser.layers]
    ranges = choices.ranges
    return quantiser.plans(quantiser.outputs(ranges), quantiser.preactivation(ranges))


def range_formats(network: Network, settings: QuantizationSettings, choices: FormatChoices) -> RangeFormats:
    """Return the formats that follow from ranges, on hardware for this network alone.

    Raises
    ------
    ConfigurationError
        If there are no such formats.
    """
    quantiser, ranges = _quantiser(network, settings, choices), choices.ranges
    layers = quantiser.layers
    keeps_c = any(layer.state == "cell" for layer in layers)
    linear = all(layer.linear for layer in layers)
    ends = [tuple(part[-1] for part in parts) for parts in part_layers(quantiser.passes)]
    joined = {end for group in ends for end in group}
    return RangeFormats(
        input=quantiser.input,
        preactivation=None if linear else quantiser.preactivation(ranges),
        cell=quantiser.cell(choices.cell_range)[0] if keeps_c else None,
        outputs=tuple(quantiser.outputs(ranges)),
        together=(*ends, *((index,) for index in range(len(layers)) if index not in joined)),
    )


def _quantiser(
    network: Network,
    settings: QuantizationSettings,
    choices: FormatChoices,
    hardware: TargetHardware | None = None,
    rows: RowChoices | None = None,
) -> _Quantiser:
    shifts = choices.input_shifts
    if shifts:
        network = fold_shifts(network, np.array(shifts))
    return _Quantiser(network, settings, choices.input_range, hardware, shifts, rows)


def _input_shifts(
    network: Network,
    settings: QuantizationSettings,
    input_range: float,
    data: Calibration | Calibrated | None,
    hardware: TargetHardware | None,
) -> tuple[int, ...]:
    """Return the input shifts: fixed hardware's, else the data's; none if a range is stated or all are 0."""
    if hardware is not None and hardware.fixed:
        found = hardware.fixed.input_shifts
        # A network with another number of inputs is refused when its layers are checked.
        return found if len(found) == network.inputs else ()
    if data is None or settings.input_range is not None:
        return ()
    form = Format.covering(settings.data_bits, input_range)
    bits = settings.bits_of(isinstance(network.layers[0], Dense))
    shifts = choose_shifts(network, data.peaks, form, bits)
    return tuple(shifts.tolist()) if shifts.any() else ()


def _search_cell_range(
    network: Network,
    settings: QuantizationSettings,
    input_range: float,
    shifts: tuple[int, ...],
    data: Calibration,
    reference: FloatResult,
    layer_ranges: Ranges,
    begin: float,
    searched: dict[object, float],
) -> float:
    """Search the range of c, with formats so fine that c is the coarsest, unless ``searched`` has it.

    Network and data have the input shifts already.
    """
    fine = settings.replace(
        weight_bits=max(settings.most_weight_bits, _SEARCH_BITS),
        dense_weight_bits=None,
        data_bits=max(settings.data_bits, _SEARCH_BITS),
        output_bits=None,
        gate_bits=max(settings.gate_bits or 0, settings.data_bits, _SEARCH_BITS),
        tables="interpolated",
    )
    leave = states_leave(network, settings.final_states)
    limit = 2.0 ** (settings.cell_bits - 1)

    def search(formats: QuantizationSettings) -> float:
        key = formats, input_range, shifts
        if key not in searched:
            quantiser = _Quantiser(network, formats, input_range)
            build = partial(quantiser.build, layer_ranges)
            searched[key] = search_cell_range(network, data, reference, leave, begin, build, limit)
        return searched[key]

    try:
        return search(fine)
    except ConfigurationError:  # Cells take no finer formats.
        return search(settings)
