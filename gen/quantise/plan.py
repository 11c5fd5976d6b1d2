"""Plans the formats of a network's quantities, from settings, ranges and hardware.

All input features share one format, set by the largest. A much smaller feature would use few of its codes,
or only 0. A factor multiplies it and divides its weights, which then have fewer codes.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field, model_validator

from rtlstm.gen.quantise.directions import unfold
from rtlstm.gen.quantise.lowering import ArrayLayer, fold_zeros, is_fused, lower, reads_input
from rtlstm.gen.quantise.ranges import (
    FORMULAS,
    MARGIN,
    Candidate,
    InputFit,
    Ranges,
    choosing_within,
    power_of_two,
)
from rtlstm.gen.quantise.rounding import (
    Moments,
    RoundedRows,
    ScaledRows,
    find_steps,
    limit_digits,
    round_cancelling,
    round_nearest,
    scale_rows,
)
from rtlstm.gen.quantise.target import TargetHardware
from rtlstm.spec.activations.interpolated import DIRECT_BITS
from rtlstm.spec.cells.formats import CellFormats, Functions, KnownFunctions, resolve
from rtlstm.spec.cells.unit import WIDEST_FACTOR
from rtlstm.spec.errors import ConfigurationError
from rtlstm.spec.fixed import LEAST_FRACTION, Format, HiddenRounding, IntArray, WeightFormat
from rtlstm.spec.network import Bidirectional, Dense, Network, Norm
from rtlstm.spec.numerics import (
    CELL_SUM_BITS,
    GUARD_BITS,
    LEAST_SCALE_BITS,
    MOST_HIDDEN_SHIFT,
    MOST_INPUT_FACTOR,
    SCALE_UNIT,
    SCALED_FRACTION,
    SKIPS,
    Numerics,
    continues_sums,
    leads_to,
    rounding_offsets,
    sum_readers,
)
from rtlstm.spec.parameters import Tables
from rtlstm.spec.program.passes import feeds, part_layers
from rtlstm.spec.record import Option, Record

Floats = NDArray[np.float64]

_MARGIN = 2.0
"""A feature with a factor must fit at this multiple of its peak: other data may be larger, and saturation
costs more than a bit."""
_FACTOR_BITS = 8
"""Significant bits of factors: few, so that they have short decimals and are exact in any float."""
_MOST_GATE_BITS = 16
"""Bits of gates that are chosen here, unless the data have more."""
_CELL_BITS, _CELL_POWER, MOST_CELL_BITS = 16, 4, 24
"""Bits of c up to a range of 2 to this power; one more for each doubling, up to the most, and what is tried
beyond."""
_CELL_FORMATS = 4
"""Most formats of c of one network: so few a LUT of four inputs, or two, chooses between."""
_HIDDEN_SHIFTS = 3
"""Most fraction bits that one layer's h has beyond another's: a LUT of four inputs, or two, chooses."""
MOST_FITTED_BITS = 10
"""Most bits of data whose factors may be no powers of two, and of which h may saturate within its range."""
_BYTE = 8
"""Bits of data beside which h may have more, as :class:`TargetHardware` says."""
_OUTPUT_BITS = 16
"""Bits of outputs of a dense layer, unless they are stated."""


def choose_factors(
    network: Network, peaks: Floats, input: Format, weight_bits: int, fit: InputFit, share: float = 1.0
) -> Floats:
    """Choose the factor of each feature, ``(inputs,)``, so that the noise of its rounding is least.

    ``peaks`` are the features' largest magnitudes, ``share`` is that of the factors' exponents.

    A factor 2**s divides the noise of a feature's rounding by ``2**s``, and multiplies that of its weights'
    rounding, whose steps are set by the largest weight of a row. With p the peak, P the largest that the
    format holds, m the root mean square of the weights and M the largest m that no factor can divide further,
    both are equal where ``4**s = (m / M) * (P / p) * 2**(weight_bits - input.bits)``. No factor is so large
    that the feature would saturate at twice its peak, or at a quarter more than its peak if factors are not
    powers of two, nor so small that its weights would make the rows' scales coarser.
    """
    matrices, form = _matrices(network), WeightFormat(weight_bits)
    # Weights that are integers stay so.
    whole = fit == "powers of two" or all(np.array_equal(form.rounded(each), each) for each in matrices)
    weights = np.sqrt(np.mean(np.concatenate(matrices) ** 2, axis=0))
    used = (peaks > 0) & (weights > 0)
    factors = np.ones(len(peaks))
    if not used.any():
        return factors
    margin = _MARGIN if whole else MARGIN
    most = (input.maximum + 0.5) * input.step
    room = np.clip(np.log2(most) - math.log2(margin) - np.log2(peaks[used]), 0, math.log2(MOST_INPUT_FACTOR))
    if whole:
        room = np.floor(room)
    exponents = room
    if whole or fit == "balanced":
        heights = np.log2(weights[used])
        heights -= (heights - room).max()
        balanced = (heights + math.log2(input.limit) - np.log2(peaks[used]) + weight_bits - input.bits) / 2
        if whole:
            balanced, heights = np.rint(balanced), np.ceil(heights)
        exponents = share * np.clip(np.maximum(balanced, heights), 0, room)
    if whole:
        exponents = np.rint(exponents)
    mantissas, powers = np.frexp(np.exp2(exponents))
    factors[used] = np.ldexp(np.floor(np.ldexp(mantissas, _FACTOR_BITS)), powers - _FACTOR_BITS)
    return factors


def fold_factors(network: Network, factors: Sequence[float]) -> Network:
    """Return the network whose outputs for ``x * factors`` are those of ``network`` for x; itself without."""
    if not factors:
        return network
    divisors = np.array(factors)
    return _with_input_weights(network, lambda weights: weights / divisors)


def _matrices(network: Network) -> list[Floats]:
    """Return all matrices that the network's input is multiplied by, ``(rows, inputs)`` each."""
    found: list[Floats] = []

    def keep(weights: Floats) -> Floats:
        found.append(weights)
        return weights

    _with_input_weights(network, keep)
    return found


def _with_input_weights(network: Network, change: Callable[[Floats], Floats]) -> Network:
    """Change the matrices that the network's input is multiplied by, of all layers that read it."""
    layers = list(network.layers)
    for index, layer in enumerate(layers):
        if isinstance(layer, Norm):
            continue  # It reads a copy, and all features in one unit.
        if isinstance(layer, Bidirectional):
            if index == 0:
                both = {"forward": layer.forward, "backward": layer.backward}
                layers[0] = layer.replace(
                    **{name: one.replace(w_ih=change(one.w_ih)) for name, one in both.items()}
                )
            continue
        if all(read.back != index + 1 for read in layer.sources):
            continue
        parts = [change(matrix) if read.back == index + 1 else matrix for read, matrix in layer.products]
        name = "weight" if isinstance(layer, Dense) else "w_ih"
        layers[index] = layer.replace(**{name: np.concatenate(parts, axis=1)})
    return network.replace(layers=tuple(layers))


def keeps_integers(network: Network, weight_bits: int) -> bool:
    """Whether weights of the network's input are multiples of their rows' steps, with so many bits: factors
    of features would change them."""
    maximum = WeightFormat(weight_bits).maximum
    return any(find_steps(weights, maximum).any() for weights in _matrices(network))


_NumberOption = partial(Option, group="Numbers")
_MOST_TRIES = 300
"""Formats of results that are tried in turn to find those of an existing device."""
_Bits = Annotated[int, Field(ge=4, le=18)]
_WeightBits = Annotated[int, Field(ge=2, le=18)]
_ScaleBits = Annotated[int, Field(ge=0, le=SCALE_UNIT)]
_Range = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_CellRange = Annotated[float, Field(ge=1e-9, le=1e9)]
_HiddenRange = Annotated[float, Field(gt=0, le=1)]


def _as_ranges(value: object) -> object:
    """Read numbers with commas, as the command line gives them; one is a number alone."""
    value = value.tolist() if isinstance(value, np.ndarray) else value
    numbers = value.split(",") if isinstance(value, str) else value
    return numbers[0] if isinstance(numbers, list | tuple) and len(numbers) == 1 else numbers


class QuantizationSettings(Record):
    """Widths of formats, and ranges to use instead of those from calibration data."""

    weight_bits: Annotated[_WeightBits, _NumberOption("Bits per weight, 2 to 18.")] = 16
    dense_weight_bits: Annotated[
        _WeightBits | None,
        _NumberOption(
            "Bits per weight in dense layers, 2 to 18. The weight memory is as wide as the "
            "larger of the two. Default: the bits of the other weights."
        ),
    ] = None
    scale_bits: Annotated[
        _ScaleBits | None,
        _NumberOption(
            "Bits of a scale for each row of weights, 8 to 16, which keeps a quantised model's integers; 0: "
            "scales are powers of two. Default: 16 if these would change such integers, else 0."
        ),
    ] = None
    data_bits: Annotated[
        _Bits, _NumberOption("Bits of the inputs, hidden states and dense results, 4 to 18.")
    ] = 16
    hidden_bits: Annotated[
        _Bits | None,
        _NumberOption(
            "Bits of h and of results that layers read. Default: the data's, or 9 beside 8-bit data if that "
            "helps."
        ),
    ] = None
    output_bits: Annotated[
        _Bits | None,
        _NumberOption(
            "Bits of the outputs, if a dense layer gives them, 4 to 18. Default: 16 (12 with direct "
            "tables), or the data's bits if more."
        ),
    ] = None
    gate_bits: Annotated[
        Annotated[int, Field(ge=6, le=18)] | None,
        _NumberOption(
            "Bits of the results of sigmoid and tanh, 6 to 18. Default: the data's bits or those of "
            "`output_bits`, at least 12."
        ),
    ] = None
    cell_bits: Annotated[
        Annotated[int, Field(ge=8, le=32)] | None,
        _NumberOption(
            "Bits of the cell state, 8 to 32. Default: 16, one more for each doubling of its range beyond "
            "16, at most 24, and up to 8 more if that helps on the calibration data."
        ),
    ] = None
    input_range: Annotated[
        _Range | None,
        _NumberOption(
            "Largest input of any feature. Default: from calibration data by feature, tokens' table, or 8."
        ),
    ] = None
    cell_range: Annotated[
        _CellRange | Annotated[tuple[_CellRange, ...], Field(min_length=2)] | None,
        BeforeValidator(_as_ranges),
        _NumberOption(
            "Largest cell state; larger ones saturate. One number, or one for each LSTM with commas, of two "
            "directions the forward one first. Default: from the calibration data, or 16.",
            metavar="NUMBER[,NUMBER...]",
        ),
    ] = None
    hidden_range: Annotated[
        _HiddenRange | Annotated[tuple[_HiddenRange, ...], Field(min_length=2)] | None,
        BeforeValidator(_as_ranges),
        _NumberOption(
            "Largest h of LSTMs; larger ones saturate. One number up to 1, or one for each LSTM with commas. "
            "Default: 1, or less if that helps on the calibration data.",
            metavar="NUMBER[,NUMBER...]",
        ),
    ] = None
    final_states: Annotated[
        bool | None,
        _NumberOption(
            "Keep the final cell states in range, e.g. if they start a decoder. Default: on "
            "unless the network ends in a dense layer.",
            flag="--final-states/--no-final-states",
        ),
    ] = None
    headroom_bits: Annotated[
        int,
        Field(ge=0, le=16),
        _NumberOption("Bits by which weights and sums of a retrained model may grow, 0 to 16."),
    ] = 0
    hidden_rounding: Annotated[
        HiddenRounding,
        _NumberOption("Rounding of h. odd saves one cycle per LSTM layer and costs one bit of precision."),
    ] = "half_up"
    tables: Tables = "interpolated"
    quick: Annotated[
        bool,
        _NumberOption(
            "Choose formats by formulas; on the calibration data, try ranges of cell states alone."
        ),
    ] = False

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.final_states is not None and self.cell_range is not None:
            raise ValueError(
                "the cell state's range must be stated (`cell_range`), or found with or without "
                "regard to final states (`final_states=True`, `final_states=False`), "
                "not both; leave one out"
            )
        if 0 < (self.scale_bits or 0) < LEAST_SCALE_BITS:
            raise ValueError(
                f"`scale_bits` must be 0, or {LEAST_SCALE_BITS} to {SCALE_UNIT}, not {self.scale_bits}"
            )
        if self.hidden_bits is not None and self.hidden_bits < self.data_bits:
            raise ValueError(
                f"`hidden_bits` must be at least the {self.data_bits} bits of the inputs (`data_bits`), not "
                f"{self.hidden_bits}; leave it out"
            )
        for name in ("data_bits", "hidden_bits", "output_bits"):
            bits = getattr(self, name)
            if self.tables == "direct" and bits is not None and bits > DIRECT_BITS:
                raise ValueError(
                    f"`{name}` must be at most {DIRECT_BITS} with direct tables, which spatial builds have, "
                    f"not {bits}; choose fewer, or interpolated tables for an array"
                )
        return self

    def bits_of(self, dense: bool) -> int:
        """Return the bits of weights, of a dense layer or of another one."""
        return self.dense_weight_bits if dense and self.dense_weight_bits else self.weight_bits

    @property
    def most_weight_bits(self) -> int:
        """Width of the weight memory: the larger of the two."""
        return max(self.weight_bits, self.dense_weight_bits or 0)


def _default_cell_bits(power: int, more: int) -> int:
    """Return the bits of c where none are asked for: its widest range is this power of two, with ``more``."""
    return min(MOST_CELL_BITS, _CELL_BITS + max(0, power - _CELL_POWER)) + more


def _saturation_range(gate: Format) -> float:
    """Return where sigmoid comes within half a unit in the last place of 1, rounded up to a power of two."""
    return power_of_two(math.log(2.0) * (gate.fraction + 1))


class Trial(Record):
    """A candidate that was tried, and its error."""

    choice: str
    value: str
    error: float
    """Root mean square of the outputs' errors, and of final states' that are results, each relative to the
    spread of the float values."""
    taken: bool = False


@dataclass(frozen=True)
class FormatChoices:
    """What calibration data, settings or bounds say about a network: its formats follow from these."""

    input_range: float
    input_factors: tuple[float, ...]
    ranges: Ranges
    cell_ranges: tuple[float, ...]
    """Largest c of each array layer, whose format covers it; larger ones saturate. Those of layers that keep
    no c are not looked at where others keep one."""
    moments: tuple[Moments, ...] = ()
    """Moments of what each array layer reads: weights are rounded so that their changes cancel. Empty to
    round each to the nearest."""
    candidate: Candidate = FORMULAS
    """What the formulas began with; the ranges have its shares already."""
    input_offsets: tuple[float, ...] = ()
    """What is added to each input feature times its factor, in steps of its format; empty for nothing."""
    trials: tuple[Trial, ...] = ()
    """What was tried on the calibration data to find these."""
    choice_limits: tuple[float, ...] = ()
    """Within which magnitude the units of each of the network's layers choose formulas; empty for 16."""


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
    scale_bits: int = 0
    """Bits of the rows' scales; 0 if these are powers of two."""
    continues: bool = False
    """Whether the layer adds to sums that hold its biases."""
    zeros: Floats | None = None
    """What the layer reads for zeros, ``(inputs,)``, if not zeros; its biases make up for it."""
    fewer_terms: bool = False
    """Whether the longest rows of weights for h lose signed digits, the terms of their adders."""

    def finest_scales(self, weights: Floats, source: int) -> IntArray:
        """Return each row's accumulator fraction bits: the finest at which its weights fit.

        ``source`` are the fraction bits of the vector that they multiply.
        """
        scales = np.minimum(self.form.finest_of_rows(weights, self.target - source) + source, self.finest)
        if self.most_sum is None:
            return scales
        # If the device's accumulators cannot hold a row's sums, the row's weights lose a fraction bit.
        while True:
            sums = np.abs(self.form.to_integers(weights, (scales - source)[:, None])).sum(axis=1)
            wide = (sums >= self.most_sum) & (scales > self.coarsest)
            if not wide.any():
                return scales
            scales = scales - wide

    def round(self, moments: Moments | None) -> RoundedRows:
        """Return the integers of the rows' weights; the changes of a row cancel if there are moments, unless
        it keeps integers that it has."""
        found = self._round(moments)
        if self.fewer_terms and self.layer.w_rec is not None:
            return limit_digits(found, np.concatenate(self.layer.matrices, axis=1), moments)
        return found

    def _round(self, moments: Moments | None) -> RoundedRows:
        pairs = list(zip(self.layer.matrices, self.sources, strict=True))
        free = np.ones(len(self.layer.matrices[0]), dtype=np.bool_)
        if self.scale_bits:
            rows = [self._scaled(*pair) for pair in pairs]
            nearest = RoundedRows(
                tuple(each.weights for each in rows),
                tuple(each.fraction for each in rows),
                np.zeros(len(free)),
                tuple(each.scale for each in rows),
            )
            free = ~np.any([each.kept for each in rows], axis=0)
        else:
            fractions = tuple(self.finest_scales(*pair) - pair[1] for pair in pairs)
            nearest = round_nearest(self.form, self.layer.matrices, fractions)
        if moments is None or not free.any():
            return nearest
        finest = tuple(self.finest - source for source in self.sources)
        found = round_cancelling(
            self.form, self.layer.matrices, nearest.fractions, finest, moments, nearest.scales
        )
        if self.most_sum is not None:
            sums = [np.abs(part).sum(axis=1) for part in found.matrices]
            free &= np.max(sums, axis=0) < self.most_sum
        return found.where(free, nearest)

    @property
    def shifted(self) -> int:
        """Fraction bits of what a row's right shift gives."""
        return self.target + (SCALED_FRACTION if self.scale_bits else 0)

    def _scaled(self, weights: Floats, source: int) -> ScaledRows:
        """Return the integers of rows with scales; on an existing device, those whose sums it holds."""
        empty, finest = self.shifted - source, self.finest - source
        rows = scale_rows(weights, self.form.maximum, self.scale_bits, empty, finest)
        while self.most_sum is not None:
            sums = np.abs(rows.weights).sum(axis=1)
            wide = (sums >= self.most_sum) & (rows.fraction + source > self.coarsest)
            if not wide.any():
                break
            rows = rows.coarser(wide.astype(np.int64))
        return rows


def hardware_alone(settings: QuantizationSettings) -> TargetHardware:
    """Return hardware for one network, with the settings' headroom for other weights."""
    return TargetHardware(headroom=settings.headroom_bits or None)


class Lowered:
    """A network's layers on its hardware, before their ranges are known.

    Raises ConfigurationError if hardware or settings do not take these layers.
    """

    def __init__(
        self, network: Network, settings: QuantizationSettings, hardware: TargetHardware | None
    ) -> None:
        self.settings = settings
        self.hardware = hardware or hardware_alone(settings)
        unfolded = unfold(network)
        self.layers, self.passes = lower(unfolded)
        device = self.hardware.device
        there = device is not None and device.fused_lstm is not None
        self.recognised = is_fused(self.layers, self.passes, there)
        """Whether the fused LSTM gate unit computes the network."""
        self.weight_bits = [
            settings.bits_of(at >= 0 and isinstance(unfolded.layers[at], Dense))
            for at in (layer.origin for layer in self.layers)
        ]
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
        narrow = plain and self.rounding == "half_up" and not self.hardware.shared
        least = np.min(settings.hidden_range or 1.0)
        if least < 1.0 and not narrow and self.hardware.device is None:
            raise ConfigurationError(
                "`hidden_range` below 1 needs LSTM layers without peepholes, projections or skips, h that is "
                "rounded half up, and hardware for this network alone; leave it out"
            )
        self._check_outputs()

    def _check_outputs(self) -> None:
        """Refuse bits of outputs that the network's last layer cannot give."""
        bits, last = self.settings.output_bits, self.layers[-1]
        data = self.settings.hidden_bits or self.settings.data_bits
        if bits is None or bits == data:
            return
        # On an existing device, h may be output in wider words.
        wider = self.hardware.device is not None and bits > data
        if not self.gives_outputs(len(self.layers) - 1) and not wider:
            change = "data_bits" if bits < self.settings.data_bits else "hidden_bits"
            raise ConfigurationError(
                f"outputs of {bits} bits need a dense layer at the network's end, but layer {last.name!r} "
                f"there gives h, which has {data}; leave `output_bits` out, or change `{change}`"
            )

    @property
    def output_bits(self) -> int | None:
        """Bits of the network's outputs, if they are stated or differ from those of the data.

        Wider sums cost little, and no cycle: it is the results of other layers that are multiplied.
        """
        settings, device = self.settings, self.hardware.device
        if settings.output_bits is not None:
            return settings.output_bits
        if device is not None:
            return device.own_output_bits
        bits = DIRECT_BITS if settings.tables == "direct" else _OUTPUT_BITS
        wider = bits > settings.data_bits and self.gives_outputs(len(self.layers) - 1)
        return bits if wider else None

    def gives_outputs(self, index: int) -> bool:
        """Whether the results of a layer are the network's outputs and nothing else."""
        last, layers = len(self.layers) - 1, self.layers
        read_back = any(
            at + layer.feedback == last for at, layer in enumerate(layers) if layer.w_rec is not None
        )
        # All products of a layer have one format.
        mine = leads_to(layers, index) == last
        alone = not self.passes or len(self.passes[-1]) == 1
        return mine and layers[last].kind in ("dense", "sum", "norm") and not read_back and alone

    @property
    def linear(self) -> bool:
        """Whether no layer has an activation function."""
        return all(layer.linear for layer in self.layers)

    def keeper(self, index: int) -> int:
        """Return the layer whose c a layer keeps: itself, or an earlier one."""
        while self.layers[index].state != "cell":
            index -= 1
        return index

    def ranges_of(self, option: str, given: float | tuple[float, ...]) -> tuple[float, ...]:
        """Return a range of each layer: of a number for all, or of one for each layer that keeps a c.

        Raises ConfigurationError if there are not as many.
        """
        if not isinstance(given, tuple):
            return (given,) * len(self.layers)
        names = [layer.name for layer in self.layers if layer.state == "cell"]
        if len(given) != len(names):
            raise ConfigurationError(
                f"`{option}` must be one number, or one for each LSTM "
                f"({', '.join(names) or 'there is none'}), not {len(given)} numbers"
            )
        mine = iter(given)
        return tuple(next(mine) if layer.state == "cell" else 1.0 for layer in self.layers)

    @property
    def together(self) -> tuple[tuple[int, ...], ...]:
        """The layers whose results are read as one vector, in one format; each layer with results once."""
        ends = [tuple(part[-1] for part in parts) for parts in part_layers(self.passes)]
        joined = {end for group in ends for end in group}
        joined |= {index for index, layer in enumerate(self.layers) if layer.kind in SKIPS}
        return (*ends, *((index,) for index in range(len(self.layers)) if index not in joined))

    @property
    def unit_parameters(self) -> int:
        """Number of per-unit constants."""
        constants, device = max(layer.cell.parameters for layer in self.layers), self.hardware.device
        return constants if device is None else max(constants, device.unit_parameters)


class Plan(Lowered):
    """The formats of a network's quantities on its hardware.

    ``hardware`` is by default that for this network alone. ``trained`` are the bits and scales of the rows of
    a network that was trained with them. ``weight_bits`` returns the bits of a layer's weights; by default
    they are those of the settings. Raises ConfigurationError if there are no such formats.
    """

    def __init__(
        self,
        network: Network,
        settings: QuantizationSettings,
        choices: FormatChoices,
        hardware: TargetHardware | None = None,
        trained: RowChoices | None = None,
        weight_bits: Callable[[ArrayLayer], int] | None = None,
    ) -> None:
        network = choosing_within(network, choices.choice_limits)
        super().__init__(fold_factors(network, choices.input_factors), settings, hardware)
        if weight_bits is not None:
            self.weight_bits = [weight_bits(layer) for layer in self.layers]
        if trained is not None:
            self.weight_bits = list(trained.weight_bits)
        self.trained, self.input_factors = trained, choices.input_factors
        self.moments = choices.moments
        self._ranges = choices.ranges
        self.fewer_terms = choices.candidate.fewer_terms and self.hardware.constant
        bits, self.hidden_bits = settings.data_bits, self._hidden_bits(choices.candidate.more_hidden_bits)
        gate_bits = settings.gate_bits or max(12, self.hidden_bits, settings.output_bits or 0)
        if settings.gate_bits is None and settings.tables == "interpolated":
            gate_bits = max(gate_bits, min(gate_bits + choices.candidate.more_gate_bits, _MOST_GATE_BITS))
        self.gate = Format(bits=gate_bits, fraction=gate_bits - 1)
        self._argument_bits = min(
            gate_bits + self.hardware.finer_arguments, DIRECT_BITS if settings.tables == "direct" else 20
        )
        self.input = self._input(Format.covering(bits, choices.input_range))
        codes = np.ldexp(choices.input_offsets, self.input.fraction)
        self.input_zeros = tuple(int(each) for each in np.rint(codes))
        self._offset = self.input.to_floats(self.input_zeros or (0,))
        self.layers = fold_zeros(self.layers, self.passes, self._offset)
        self.preactivation = self._preactivation()
        self.outputs = self._outputs(self._whole_bits(choices.candidate.hidden_share))
        """The formats of the layers' results."""
        self.hidden_whole_bits, self.hidden_shifts = self._hidden()
        self._more_cell_bits = choices.candidate.more_cell_bits
        self.cells = self._cells(choices.cell_ranges)
        """The formats of the layers' c; those of layers that keep none mean nothing."""
        self.cell, self.cell_shifts, self.cell_argument = self._cell()
        device = self.hardware.device
        if device is not None and not self.hardware.layers:
            self._take_outputs(device)

    @property
    def fused(self) -> bool:
        """Whether the fused unit computes the cells: an existing device may have cell units instead."""
        device = self.hardware.device
        return self.recognised and (device is None or device.fused_lstm is not None)

    @property
    def formats(self) -> tuple[object, ...]:
        """All formats: with the same ones, and the same rounding, a network has the same integers."""
        widths = (self.input, self.hidden_bits, self.gate, self.preactivation, self.cell_argument)
        factors = self.input_factors, self.input_zeros
        return self.fewer_terms, *factors, *widths, *self.outputs, *self.cells

    def _input(self, needed: Format) -> Format:
        """Return the input's format: the device's if it copies its input, else any that holds it."""
        if fixed := self.hardware.fixed:
            return fixed.input
        copied = any(
            layer.copies and reads_input(self.passes, index, layer) for index, layer in enumerate(self.layers)
        )
        device = self.hardware.device
        there = needed if device is None or not copied else device.input
        return there if there.bits == needed.bits and there.fraction < needed.fraction else needed

    def _hidden_bits(self, more: int) -> int:
        """Return the bits of h, with ``more`` if the hardware and the outputs' port take them."""
        data, device = self.settings.data_bits, self.hardware.device
        if device is not None:
            return device.data_bits
        if self.settings.hidden_bits is not None:
            return self.settings.hidden_bits
        wider = (
            data == _BYTE
            and self.settings.tables == "interpolated"
            and self.gives_outputs(len(self.layers) - 1)
        )
        return data + min(more, self.hardware.wider_hidden if wider else 0)

    @property
    def vector(self) -> Format:
        """Format of what the array reads, which holds the input's."""
        return self.input.replace(bits=self.hidden_bits)

    def _preactivation(self) -> Format:
        """Return the format that covers the ranges' sums, or less if all functions are flat beyond it."""
        if self.hardware.device is not None:
            return self.hardware.device.preactivation
        max_abs = power_of_two(self._ranges.preactivation)
        if self.hardware.shared:
            # For any network: up to where sigmoid is flat.
            max_abs = max(max_abs, _saturation_range(self.gate))
        wide = (
            # A product reads h itself.
            layer.wide or (layer.kind == "product" and self._ranges.begin(index) > 1.0)
            for index, layer in enumerate(self.layers)
            if not layer.linear
        )
        if not any(wide):
            max_abs = min(max_abs, _saturation_range(self.gate))
        fraction = self._argument_bits - 1 - int(math.log2(max_abs))
        if fraction < LEAST_FRACTION:
            most = self._argument_bits - 1 - LEAST_FRACTION
            raise ConfigurationError(
                f"values that activation functions read must stay below 2**{most}, but reach "
                f"{self._ranges.preactivation:.3g}; clip them in the cell, or use fewer products of products"
            )
        return Format(bits=self._argument_bits, fraction=fraction)

    def _cells(self, ranges: tuple[float, ...]) -> list[Format]:
        """Return the format of c of each layer: all have as many bits."""
        if self.hardware.device is not None:
            return [self._device_cell(index, found) for index, found in enumerate(ranges)]
        powers = [int(math.log2(power_of_two(found))) for found in ranges]
        pairs = zip(powers, self.layers, strict=True)
        kept = {power for power, layer in pairs if layer.state == "cell"} or {max(powers)}
        bits = self.settings.cell_bits or _default_cell_bits(max(kept), self._more_cell_bits)
        wanted = [bits - 1 - power for power in powers]
        least = bits - 1 - max(kept)
        # All c have one binary point in the exact sum, which has a limited width.
        most = max(least, CELL_SUM_BITS - (bits - least) - self.gate.fraction)
        fractions = sorted({min(bits - 1 - power, most) for power in kept})
        while len(fractions) > _CELL_FORMATS:
            # A layer of a format that is left out takes the next wider one, which is nearest here.
            nearest = min(range(1, len(fractions)), key=lambda at: fractions[at] - fractions[at - 1])
            del fractions[nearest]
        return [
            Format(bits=bits, fraction=max((each for each in fractions if each <= mine), default=least))
            for mine in wanted
        ]

    def _device_cell(self, index: int, largest: float) -> Format:
        """Return the format that the device has for a layer's c: the finest that holds it, or the widest."""
        device, there = self.hardware.device, self.hardware.layers
        assert device is not None
        if there:
            return there[index].state or device.cell
        cell = device.cell
        forms = [Format(bits=cell.bits, fraction=cell.fraction - shift) for shift in device.cell_shifts]
        holding = (form for form in forms if largest <= form.limit + form.step)
        return next(holding, forms[-1])

    def _cell(self) -> tuple[Format, tuple[int, ...], Format]:
        """Return the finest format of c, the shifts of the layers' ones, and the format that tanh reads."""
        if (device := self.hardware.device) is not None:
            return device.cell, device.cell_shifts, device.cell_argument
        pairs = zip(self.cells, self.layers, strict=True)
        kept = [form for form, layer in pairs if layer.state == "cell"] or self.cells
        finest, widest = (choose(kept, key=lambda form: form.fraction) for choose in (max, min))
        shifts = sorted({finest.fraction - form.fraction for form in kept})
        max_abs = 2.0 ** (widest.bits - 1 - widest.fraction)
        flat = all(layer.output_saturates for layer in self.layers)
        reads = min(max_abs, _saturation_range(self.gate)) if flat else max_abs
        fraction = min(self._argument_bits - 1 - int(math.log2(reads)), finest.fraction)
        bits = fraction + 1 + int(math.log2(reads))
        return finest, tuple(shifts), Format(bits=max(bits, 4), fraction=fraction)

    def _whole_bits(self, share: float) -> list[int]:
        """Return the bits before the binary point of each layer's h, which holds a share of its range."""
        if self.hardware.device is not None:
            return [self.hardware.device.hidden_whole_bits] * len(self.layers)
        bits, ranges = self.hidden_bits, self._ranges

        def covers(magnitude: float) -> int:
            return bits - 1 - Format.covering(bits, magnitude).fraction

        # 1 itself becomes the last code.
        found = [ranges.begin(index) for index in range(len(self.layers))]
        begins = [covers(begin) if begin > 1.0 else 0 for begin in found]
        if not (self.recognised or self.hardware.shared):
            # Each layer's cell may have a format of its own.
            return begins
        mine = [index for index, layer in enumerate(self.layers) if layer.in_format_of_h]
        most = max((begins[index] for index in mine), default=0)
        if stated := self.settings.hidden_range:
            held = self.ranges_of("hidden_range", stated)
            for at in mine:
                if found[at] > held[at]:
                    raise ConfigurationError(
                        f"`hidden_range` of layer {self.layers[at].name!r} must hold the states in which "
                        f"sequences begin, up to {found[at]:g}, but it is {held[at]:g}; leave it out"
                    )
        else:
            share = max(share, 1.0) if share and self.settings.data_bits > MOST_FITTED_BITS else share
            held = tuple(share * each for each in ranges.layers)
        if most or not mine or not held[mine[0]] or self.hardware.shared or self.rounding == "odd":
            return [most] * len(self.layers)
        # A stated range of 1/4 reaches to the last code below it, as one of 1 does.
        last = 1.0 - 2.0 ** (1 - bits) if stated else 1.0
        wanted = [min(0, covers(max(last * held[at], ranges.begin(at)))) for at in mine]
        # The output gate is shifted before it is multiplied.
        shifts = max(0, min(_HIDDEN_SHIFTS, WIDEST_FACTOR - self.gate.bits))
        # The product has twice the gates' fraction bits, and h no more.
        finest = bits - 1 - 2 * self.gate.fraction
        least = max(max(wanted) - shifts, -MOST_HIDDEN_SHIFT, finest)
        for index, whole in zip(mine, wanted, strict=True):
            begins[index] = max(whole, least)
        return begins

    def _hidden(self) -> tuple[int, tuple[int, ...]]:
        """Return the bits before the binary point of the h with the least fraction bits, and what more others
        have."""
        if (device := self.hardware.device) is not None:
            return device.hidden_whole_bits, device.hidden_shifts
        if not (self.recognised or self.hardware.shared):
            return 0, (0,)
        pairs = zip(self.outputs, self.layers, strict=True)
        found = sorted({form.fraction for form, layer in pairs if layer.in_format_of_h})
        if not found:
            return 0, (0,)
        return self.hidden_bits - 1 - found[0], tuple(each - found[0] for each in found)

    def _outputs(self, whole_bits: list[int]) -> list[Format]:
        ranges, found = self._ranges, [layer.output for layer in self.hardware.layers]
        if not found:
            found = [self._output(index, layer, whole_bits[index]) for index, layer in enumerate(self.layers)]
            found = self._joined(found)
        if self.hardware.device is not None:
            for index, form in enumerate(found):
                self.hardware.check_begin(self.layers[index].name, form, ranges.begin(index))
        return found

    def _joined(self, found: Sequence[Format]) -> list[Format]:
        """Return the formats of results, where layers whose results are read alike have the same one."""
        found = list(found)
        # The parts of a pass are read as one vector.
        for ends in self.together:
            widest = min((found[end] for end in ends), key=lambda form: form.fraction)
            for end in ends:
                found[end] = widest
        # All products of a layer have the format of its results.
        found = [found[leads_to(self.layers, index)] for index in range(len(found))]
        for index, layer in enumerate(self.layers):
            if layer.copies:
                before = feeds(self.passes, index, layer.before)
                found[index] = found[before[0]] if before else self.vector
        return found

    def _output(self, index: int, layer: ArrayLayer, whole: int) -> Format:
        bits, ranges = self.hidden_bits, self._ranges
        if self.gives_outputs(index):
            bits = self.output_bits or bits
        if not layer.within_one:
            return Format.covering(bits, max(ranges.layers[index], ranges.begin(index)))
        return Format(bits=bits, fraction=bits - 1 - (whole if layer.in_format_of_h else 0))

    def _take_outputs(self, device: Numerics) -> None:
        """Give the layers the formats of results that the cells of a loadable device have: their own or the
        finest that holds them. Raises ConfigurationError if no cell takes a layer."""
        finest_first = sorted({cell.output for cell in device.cells}, key=lambda form: -form.fraction)
        furthest, tries = 0, iter(range(_MOST_TRIES))

        def take(number: int) -> bool:
            """Whether the layers of this group and of all behind it find formats; a norm may need other
            formats in front of it."""
            nonlocal furthest
            if number == len(self.together):
                return True
            furthest = max(furthest, number)
            group, planned = self.together[number], self.outputs
            needed = planned[group[0]]
            mine = [at for at in range(len(planned)) if leads_to(self.layers, at) in group]
            for form in (needed, *finest_first):
                if (
                    form.bits == needed.bits
                    and form.fraction <= needed.fraction
                    and next(tries, None) is not None
                ):
                    self.outputs = self._joined([form if at in group else f for at, f in enumerate(planned)])
                    if all(self._takes(device, index) for index in mine) and take(number + 1):
                        return True
            self.outputs = planned
            return False

        if not take(0):
            what = f"cell and results of layer {self.layers[self.together[furthest][0]].name!r}"
            raise self.hardware.other_cells(what, is_fused(self.layers, self.passes, there=True))

    def _takes(self, device: Numerics, index: int) -> bool:
        """Whether a device has the cell of a layer, in these formats."""
        known = KnownFunctions(**vars(self.functions()))
        try:
            graph, _ = resolve(self.layers[index].cell, self.cell_formats(index), known)
        except ConfigurationError:
            # This format would make a sum or product too wide.
            return False
        if self.fused:  # The fused unit computes all but norms, in any format.
            return tuple(known.norms) == device.norms
        return graph in device.cells

    @property
    def has_cells(self) -> bool:
        """Whether the device has the cells of all layers."""
        device = self.hardware.device
        return device is not None and all(self._takes(device, index) for index in range(len(self.layers)))

    def functions(self) -> Functions:
        """Return the functions of cells that an existing device has; none without one."""
        functions = Functions(self.settings.tables == "direct")
        if (device := self.hardware.device) is not None:
            functions.tables += device.tables
            functions.pieces += device.pieces
            functions.norms += device.norms
        return functions

    def rows(self) -> list[RowPlan]:
        """Return the formats around the rows of each layer."""
        plans = []
        for index, layer in enumerate(self.layers):
            reads, source = reads_input(self.passes, index, layer), self._source(index)
            target = self._sums(index).fraction + GUARD_BITS
            sources = [source.fraction]
            if layer.w_rec is not None:
                sources.append(self.outputs[index + layer.feedback].fraction)
            plans.append(
                RowPlan(
                    layer=layer,
                    form=WeightFormat(self.weight_bits[index]),
                    sources=tuple(sources),
                    target=target,
                    # A finer scale would change no result, but take more bits of the shifter.
                    finest=self.hardware.finest(target, self.hidden_bits),
                    coarsest=self.hardware.coarsest(target) + (SCALED_FRACTION if self.scale_bits else 0),
                    most_sum=self.hardware.most_sum(self.vector),
                    constants=self.constants(index),
                    offsets=self._offsets(index),
                    scale_bits=self.scale_bits,
                    continues=continues_sums(self.layers, index),
                    zeros=self._offset if reads and self._offset.any() else None,
                    fewer_terms=self.fewer_terms,
                )
            )
        return plans

    def _source(self, index: int) -> Format:
        before = feeds(self.passes, index, self.layers[index].before)
        return self.outputs[before[0]] if before else self.input

    def _sums(self, index: int) -> Format:
        """Return a format with the fraction bits, and at least the bits, of a layer's sums."""
        layer = self.layers[index]
        if not layer.linear:
            return self.preactivation
        form = self._source(index) if layer.kind == "norm" else self.outputs[index]
        return Format(bits=max(self.preactivation.bits, form.bits), fraction=form.fraction)

    def _offsets(self, index: int) -> IntArray:
        """Return what the biases of a layer's rows hold for rounding."""
        readers = sum_readers(self.layers, [layer.cell for layer in self.layers], index)
        return rounding_offsets(readers, len(self.layers[index].bias), self.layers[index].outputs)

    @property
    def most_weight_bits(self) -> int:
        """Width of the weight memory."""
        if self.hardware.device is not None:
            return self.hardware.device.weight_bits
        return self.settings.most_weight_bits if self.trained is None else max(self.weight_bits)

    @property
    def scale_bits(self) -> int:
        """Bits of the rows' scales; 0 if these are powers of two, as those of trained rows are."""
        if self.hardware.device is not None:
            return self.hardware.device.scale_bits
        return 0 if self.trained is not None else self.settings.scale_bits or 0

    @property
    def own_weight_bits(self) -> tuple[int, int] | None:
        """Bits of the weights of recurrent and of dense layers, if they differ."""
        settings = self.settings
        if self.hardware.device is not None:
            return self.hardware.device.own_weight_bits
        if settings.dense_weight_bits is None or self.trained is not None:
            return None
        return settings.weight_bits, settings.dense_weight_bits

    def constants(self, index: int) -> Format | None:
        """Return the format of a layer's per-unit constants; None without any."""
        constants = self.layers[index].unit_constants
        if constants is None:
            return None
        if self.trained is not None:
            return self.trained.constants[index]
        if self.hardware.layers:
            return self.hardware.constants_format(index, constants)
        needed = Format.covering(self.weight_bits[index], float(np.abs(constants).max()))
        if self.layers[index].kind == "norm" and self.hardware.device is not None:
            # A norm of the device's hardware, if its gains can be as large.
            known = [
                norm.gain for norm in self.hardware.device.norms if norm.values == self.layers[index].outputs
            ]
            fits = [
                form
                for form in known
                if form and form.bits == needed.bits and form.fraction <= needed.fraction
            ]
            return max(fits, key=lambda form: form.fraction, default=needed)
        return needed

    def cell_formats(self, index: int) -> CellFormats:
        """Return the formats of what a layer's cell reads, keeps and gives; of a product, its layer's."""
        index = leads_to(self.layers, index)
        layer = self.layers[index]
        keeps_c = layer.state == "cell"
        return CellFormats(
            preactivation=self._sums(index),
            gate=self.gate,
            output=self.outputs[index],
            state=self._state(index, self.outputs[index + layer.feedback]),
            argument=self.cell_argument if keeps_c else None,
            parameter=self.constants(index),
            rounding=self.rounding if keeps_c else "half_up",
            normalised=(layer.outputs, self._source(index)) if layer.kind == "norm" else None,
        )

    def _state(self, index: int, h: Format) -> Format | None:
        """Return the format of the state that a layer's cell keeps."""
        layer = self.layers[index]
        if layer.state != "hidden":
            return self.cells[self.keeper(index)] if layer.state else None
        # The range is that of h, with more fraction bits. A GRU of two layers keeps one state, in the format
        # of the h that it reads back.
        bits = self.cell.bits
        return Format(bits=bits, fraction=bits - h.bits + h.fraction)
