"""Quantisation: from a float network to integers with power-of-two scales.

Every row (one gate of one unit, or one dense output) has the finest accumulator scale at which
its own weights fit. Ranges of input, pre-activation and cell state come from calibration data
when there are any, and from bounds or stated assumptions otherwise. The integers of a network that was
trained in the hardware's arithmetic are taken as they are.
"""

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rtlstm.gen.frontends.reading import ReadResult
from rtlstm.gen.quantise.calibration import Calibration, repeat_state, run_reference
from rtlstm.gen.quantise.directions import unfold
from rtlstm.gen.quantise.lowering import ArrayLayer, reads_input
from rtlstm.gen.quantise.plan import (
    MOST_CELL_BITS,
    MOST_FITTED_BITS,
    FormatChoices,
    Lowered,
    Plan,
    RowChoices,
    RowPlan,
    choose_factors,
    fold_factors,
    keeps_integers,
)
from rtlstm.gen.quantise.plan import QuantizationSettings as QuantizationSettings
from rtlstm.gen.quantise.ranges import (
    FORMULAS,
    MARGIN,
    Candidate,
    InputFit,
    Ranges,
    begin_ranges,
    bound_ranges,
    choice_limits,
    choosing_within,
    device_limits,
    guess_ranges,
    largest_begins,
    measure_ranges,
    search_cell_range,
    states_leave,
)
from rtlstm.gen.quantise.rounding import RoundedRows, round_nearest
from rtlstm.gen.quantise.search import Search
from rtlstm.gen.quantise.target import TargetHardware
from rtlstm.sim.reference import FloatResult, FloatState
from rtlstm.spec.activations.functions import SIGMOID, TANH
from rtlstm.spec.cells.description import DEFAULT_CELL_RANGE
from rtlstm.spec.cells.formats import CellFormats, Functions, resolve
from rtlstm.spec.cells.graph import CellGraph
from rtlstm.spec.errors import ConfigurationError
from rtlstm.spec.fixed import Format, IntArray, round_half_up
from rtlstm.spec.network import Dense, Network, Norm
from rtlstm.spec.numerics import (
    MOST_INPUT_ZERO,
    SKIPS,
    FusedTables,
    LayerShape,
    Numerics,
    QuantizedDense,
    QuantizedLayer,
    QuantizedNetwork,
    QuantizedRecurrent,
    bound_sums,
    has_h,
    row_parts,
)
from rtlstm.spec.progress import Progress
from rtlstm.spec.record import filled


@dataclass(frozen=True)
class TrainedNetwork:
    """A network whose numbers are multiples of the steps that its formats give them."""

    read: ReadResult
    """The model, with the network as it is now."""
    settings: QuantizationSettings
    choices: FormatChoices
    rows: RowChoices
    calibration: Calibration | None = None
    hardware: TargetHardware | None = None
    """That of an existing device, if the network was trained for one."""
    device: Path | None = None
    """The device's build folder."""

    def quantised(self) -> QuantizedNetwork:
        """Return its integers: nothing is rounded."""
        return quantise_with(self.read.network, self.settings, self.choices, self.hardware, self.rows)


@runtime_checkable
class TrainedModel(Protocol):
    """What was prepared for training, as :func:`rtlstm.compile` takes it."""

    def trained_network(self) -> TrainedNetwork:
        """Return the network as it is now."""


Floats = NDArray[np.float64]

DEFAULT_INPUT_RANGE = 8.0
_SUM_BITS, _WEIGHT_RANGE = 46, 20
"""Largest width of sums, and largest exponent of two of a weight, that the hardware may have."""
_SEARCH_BITS = 16
"""Least widths in the search of the range of c, so that it sees the cell's rounding and not the weights'."""


_UNEVEN = 0.8
"""Share of a feature's largest magnitude that its values reach from their middle, at most, to be moved."""
_APART, _LEAST_CELL_RANGE = 2.0, 0.5
"""What the range of one layer's c is of its largest magnitude, and the least such magnitude."""


class _Build:
    """Makes a network's integers in the formats that are planned for it."""

    def __init__(self, plan: Plan) -> None:
        self._plan, self._hardware = plan, plan.hardware

    def network(self) -> QuantizedNetwork:
        plan, hardware, device = self._plan, self._hardware, self._hardware.device
        layers, align = self._integers()
        functions, shapes = plan.functions(), []
        cells: list[CellGraph] = [] if device is None else list(device.cells)
        fused_tables = self._fused_tables(functions) if plan.fused else None
        for index, layer in enumerate(plan.layers):
            formats = plan.cell_formats(index)
            graph, _ = resolve(layer.cell, formats, functions)
            if graph not in cells:
                cells.append(graph)
            shapes.append(self._shape(index, formats, cells.index(graph)))
        numerics = filled(
            Numerics,
            plan,
            weight_bits=plan.most_weight_bits,
            own_hidden_bits=plan.hidden_bits if plan.hidden_bits > plan.input.bits else None,
            own_output_bits=plan.output_bits,
            accumulator=hardware.accumulator(
                bound_sums(layers, plan.vector, align, shapes), align, plan.most_weight_bits, shapes
            ),
            shift_bits=hardware.shift_bits(_largest_shift(layers), plan.hidden_bits, align),
            cells=tuple(cells),
            tables=tuple(functions.tables),
            pieces=tuple(functions.pieces),
            norms=tuple(functions.norms),
            hidden_rounding=plan.rounding,
            fused_lstm=fused_tables,
        )
        hardware.check(numerics)
        return QuantizedNetwork(tuple(shapes), numerics, tuple(layers), plan.passes)

    def _integers(self) -> tuple[list[QuantizedLayer], int]:
        """Return the layers in integers and the common left shift before their right shifts."""
        plans = self._plan.rows()
        rounded = [self._round(index, rows) for index, rows in enumerate(plans)]
        scales = [
            [source + fractions for source, fractions in zip(rows.sources, each.fractions, strict=True)]
            for rows, each in zip(plans, rounded, strict=True)
        ]
        coarsest = (
            int((rows.shifted - s).max()) for rows, each in zip(plans, scales, strict=True) for s in each
        )
        align = self._hardware.align(max(0, *coarsest))
        layers: list[QuantizedLayer] = []
        for index, (rows, each) in enumerate(zip(plans, rounded, strict=True)):
            layer = rows.layer
            # What a layer adds to stored sums has no bias of its own.
            change = 0.0 if rows.continues else each.bias_change
            bias = round_half_up(layer.bias + change, rows.target).astype(np.int64) + rows.offsets
            shifts = [scale + align - rows.shifted for scale in scales[index]]
            its_scales = each.scales or (None,) * len(shifts)
            constants = self._constants(index, layer)
            if layer.w_rec is None:
                layers.append(QuantizedDense(each.matrices[0], bias, shifts[0], its_scales[0], constants))
            else:
                w_ih, w_hh = each.matrices
                given, recurrent = zip(shifts, its_scales, strict=True)
                layers.append(
                    QuantizedRecurrent(
                        w_ih, w_hh, bias, given[0], recurrent[0], constants, given[1], recurrent[1]
                    )
                )
        return layers, align

    def _round(self, index: int, rows: RowPlan) -> RoundedRows:
        self._check_range(rows)
        if self._plan.trained is not None:
            return round_nearest(rows.form, rows.layer.matrices, self._plan.trained.fractions[index])
        return rows.round(self._plan.moments[index] if self._plan.moments else None)

    def _check_range(self, rows: RowPlan) -> None:
        """Refuse a layer whose sums no accumulator holds."""
        layer = rows.layer
        total, most = np.abs(layer.bias), float(np.abs(layer.bias).max())
        for weights, fraction in zip(layer.matrices, rows.sources, strict=True):
            largest = 2.0 ** (self._plan.hidden_bits - 1 - fraction)
            total = total + np.abs(weights).sum(axis=1) * largest
            most = max(most, float(np.abs(weights).max()))
        needed = math.frexp(float(total.max()))[1] + rows.target + 1
        if needed > _SUM_BITS or math.frexp(most)[1] > _WEIGHT_RANGE:
            raise ConfigurationError(
                f"layer {layer.name!r} has weights and biases up to {most:g}, whose sums need {needed} "
                f"bits, but weights may reach 2**{_WEIGHT_RANGE} and sums have at most {_SUM_BITS} "
                "bits; check the model, or rescale its input"
            )

    def _constants(self, index: int, layer: ArrayLayer) -> IntArray | None:
        """Return a layer's per-unit constants in integers, padded to the largest number of any layer."""
        count, form = self._plan.unit_parameters, self._plan.constants(index)
        if not count or not (has_h(layer.kind) or layer.kind == "norm"):
            return None
        values = np.zeros((layer.outputs, count), dtype=np.int64)
        if layer.unit_constants is not None and form is not None:
            values[:, : layer.unit_constants.shape[1]] = form.to_integers(layer.unit_constants)
        return values

    def _fused_tables(self, functions: Functions) -> FusedTables:
        """Return all tables of the fused unit, whether or not the network needs them."""
        gate, reads, argument = self._plan.gate, self._plan.preactivation, self._plan.cell_argument
        return FusedTables(
            sigmoid=functions.table(SIGMOID, reads, gate, middle=True),
            tanh=functions.table(TANH, reads, gate, middle=True),
            cell_tanh=functions.table(TANH, argument, gate, middle=True),
        )

    def _shape(self, index: int, formats: CellFormats, cell: int) -> LayerShape:
        layer, there = self._plan.layers[index], self._hardware.layers
        return filled(
            LayerShape,
            layer,
            name=there[index].name if there else layer.name,
            inputs=layer.w_in.shape[1],
            output=formats.output,
            cell=cell,
            state=None if layer.kind in SKIPS else formats.state,
            feedforward=has_h(layer.kind) and not layer.recurrent,
        )


def _largest_shift(layers: list[QuantizedLayer]) -> int:
    return max(int(part.shift.max()) for layer in layers for part in row_parts(layer))


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

    ``calibration`` has typical inputs, ``(T, inputs)`` or ``(T, N, inputs)``, or is a checked ``Calibration``
    with its lengths. It sets three things: the input range and the factors of small features
    (:mod:`rtlstm.gen.quantise.plan`; no factors if the settings state a range), the ranges of unbounded
    results, with a margin of a quarter, and the cell state's range (:mod:`rtlstm.gen.quantise.ranges`).
    Without calibration data, a run on random inputs sets ranges where the weights give no bound. ``lengths``
    are the valid steps of each of its sequences, ``(N,)``; all if None. ``state`` has their initial states,
    ``(h_0, c_0)`` as a build's ``run`` takes them; zeros if None.

    ``hardware`` is given if it is not made for this network alone. ``initial_state`` is the state in which
    the model begins, h and c of each layer, ``(units,)``; zeros if None. The formats hold it and those of the
    calibration data: beyond +-1, each doubling takes a fraction bit of h. Raises InputError if the
    calibration data, their lengths or their states do not fit the network. Raises ConfigurationError if the
    formats asked for cannot be built, or the network does not fit the device.
    """
    settings = settings or QuantizationSettings()
    if not isinstance(calibration, Calibration):
        calibration = Calibration.given(network, calibration, lengths, state)
    choices = choose_formats(network, settings, calibration, hardware, initial_state=initial_state)
    return quantise_with(network, settings, choices, hardware)


def choose_formats(
    network: Network,
    settings: QuantizationSettings,
    data: Calibration | None,
    hardware: TargetHardware | None = None,
    searched: dict[object, float] | None = None,
    initial_state: FloatState | None = None,
    progress: Progress | None = None,
) -> FormatChoices:
    """Choose formats and roundings, as :func:`quantise` says; errors as there.

    ``searched`` keeps the ranges of c that were found for the same network and data, by what they depend on.
    Most settings share one, so whoever tries many gives the same dict each time.
    """
    searched = {} if searched is None else searched
    device = None if hardware is None else hardware.device
    if device is None:
        options = [choice_limits(network, data, float(np.max(settings.cell_range or 1.0)))]
    else:
        options = device_limits(network, device.cells)
    for limits in options:
        formulas = _Formulas(network, settings, hardware, searched, initial_state, limits)
        found = formulas.choices(data)
        if limits == options[-1] or _has_cells(network, settings, found, hardware):
            break
    if settings.quick or data is None:
        return found

    def choose(candidate: Candidate, some: Calibration) -> FormatChoices:
        return formulas.choices(some, candidate, formulas.cell_ranges(some, candidate, found.cell_ranges))

    def formats(choices: FormatChoices) -> tuple[object, ...]:
        return Plan(network, settings, choices, hardware).formats

    def build(choices: FormatChoices, fine: bool) -> QuantizedNetwork:
        make = _build_fine if fine else quantise_with
        return make(network, settings, choices, hardware)

    leave = states_leave(network, settings.final_states)
    best, trials = Search(network, data, choose, formats, build, leave, progress).best()
    return replace(best, trials=trials)


def _has_cells(
    network: Network, settings: QuantizationSettings, choices: FormatChoices, hardware: TargetHardware | None
) -> bool:
    """Return whether a device has the cells of a network's layers, with such choices."""
    try:
        return Plan(network, settings, choices, hardware).has_cells
    except ConfigurationError:
        return False


class _Formulas:
    """Computes ranges and shifts, and searches the range of c."""

    def __init__(
        self,
        network: Network,
        settings: QuantizationSettings,
        hardware: TargetHardware | None,
        searched: dict[object, float],
        initial_state: FloatState | None,
        limits: tuple[float, ...],
    ) -> None:
        network, self._limits = choosing_within(network, limits), limits
        self._network, self._settings, self._hardware = network, settings, hardware
        # Factors of inputs change weights alone, so these layers serve all choices.
        self._lowered = Lowered(network, settings, hardware)
        self._searched, self._initial_state = searched, initial_state
        self._measured: dict[int, tuple[FloatResult, Ranges]] = {}

    def choices(
        self,
        data: Calibration | None,
        candidate: Candidate = FORMULAS,
        cell_ranges: tuple[float, ...] | None = None,
    ) -> FormatChoices:
        """Return the choices for data; ``cell_ranges`` are those of c if they are known."""
        settings, hardware = self._settings, self._hardware
        # A stated range of 8 reaches to the last code below 8: 8 itself would need one more bit.
        last_code = 1.0 - 2.0 ** (1 - settings.data_bits)
        middles, peaks = np.zeros(1), np.array([DEFAULT_INPUT_RANGE * last_code])
        if data is not None:
            middles, peaks = self._middles(data) if candidate.zero_points else (middles, data.peaks)
        margin = 1.0 if self._input_fit(candidate) == "powers of two" and not middles.any() else MARGIN
        stated = settings.input_range and settings.input_range * last_code
        input_range = stated or margin * candidate.input_share * (float(peaks.max()) or 1.0)
        factors = self._input_factors(input_range, None if data is None else peaks, candidate)
        offsets = self._input_offsets(middles, factors, input_range)
        # The network whose inputs have factors, as on the device.
        network, lowered = fold_factors(self._network, factors), self._lowered
        if data is None:
            ranges, begin_c = self._assumed(network, input_range)
        else:
            _, ranges, begin_c = self._measure(data)
        found: float | tuple[float, ...]
        if settings.cell_range or cell_ranges:
            found = settings.cell_range or 1.0
        elif data is None or (hardware is not None and hardware.device is not None):
            found = max(DEFAULT_CELL_RANGE, MARGIN * begin_c)
        else:
            found = self._search_cell_range(data, input_range, factors)
        scaled = replace(
            ranges,
            preactivation=candidate.preactivation_share * ranges.preactivation,
            layers=tuple(
                each if layer.within_one else candidate.result_share * each
                for layer, each in zip(lowered.layers, ranges.layers, strict=True)
            ),
        )
        return FormatChoices(
            input_range,
            factors,
            scaled,
            cell_ranges or lowered.ranges_of("cell_range", found),
            candidate=candidate,
            input_offsets=offsets,
            choice_limits=self._limits,
        )

    def cell_ranges(
        self, data: Calibration, candidate: Candidate, known: tuple[float, ...]
    ) -> tuple[float, ...]:
        """Return the ranges of c that a candidate has, where those of all layers together are ``known``."""
        if self._settings.cell_range is not None or (self._hardware is not None and self._hardware.shared):
            return known
        ranges = tuple(candidate.cell_share * each for each in known)
        if not candidate.cells_apart:
            return ranges
        reference, _, begin_c = self._measure(data)
        unfolded = unfold(self._network)
        origins = (layer.origin for layer in self._lowered.layers)
        met = [unfolded.measured_range(reference, at).cell if at >= 0 else 1.0 for at in origins]
        return tuple(
            min(whole, candidate.cell_share * _APART * max(mine, begin_c, _LEAST_CELL_RANGE))
            for whole, mine in zip(ranges, met, strict=True)
        )

    def _search_cell_range(self, data: Calibration, input_range: float, factors: tuple[float, ...]) -> float:
        """Search the range of c, with formats so fine that c is the coarsest, unless it was found before."""
        network, settings, searched = fold_factors(self._network, factors), self._settings, self._searched
        reference, measured, begin = self._measure(data)
        data = data.scaled(np.array(factors)) if factors else data
        leave = states_leave(network, settings.final_states)
        limit = 2.0 ** ((settings.cell_bits or MOST_CELL_BITS) - 1)

        def search(formats: QuantizationSettings) -> float:
            key = formats, input_range, factors
            if key not in searched:

                def build(cell_range: float) -> QuantizedNetwork:
                    ranges = (cell_range,) * len(measured.layers)
                    return quantise_with(network, formats, FormatChoices(input_range, (), measured, ranges))

                searched[key] = search_cell_range(network, data, reference, leave, begin, build, limit)
            return searched[key]

        try:
            return search(_fine(settings))
        except ConfigurationError:  # Cells take no finer formats.
            return search(settings)

    def _assumed(self, network: Network, input_range: float) -> tuple[Ranges, float]:
        """Return ranges without calibration data, and the largest c of the initial state."""
        if self._settings.final_states is not None:
            raise ConfigurationError(
                "`final_states` says how calibration data set the range of the cell state, but "
                "there are none; give such data (`calibration`), or state the range (`cell_range`)"
            )
        begins, begin_c = self._begins(None)
        if self._lowered.recognised:
            return bound_ranges(network, input_range, begins), begin_c
        return guess_ranges(network, input_range, self._initial_state), begin_c

    def _measure(self, data: Calibration) -> tuple[FloatResult, Ranges, float]:
        """Return a float run of the data, its ranges, and the largest c of the initial states."""
        begins, begin_c = self._begins(data)
        # Factors of inputs change no other value, so one run serves all of them.
        if id(data) not in self._measured:
            network = self._network
            reference = run_reference(network, data)
            ranges = measure_ranges(network, reference, begins)
            if not data.begins_in(self._initial_state):
                as_model = replace(data, state=repeat_state(self._initial_state, data.sequences))
                ranges = ranges.joined(measure_ranges(network, run_reference(network, as_model), begins))
            self._measured[id(data)] = reference, ranges
        return *self._measured[id(data)], begin_c

    def _begins(self, data: Calibration | None) -> tuple[tuple[float, ...], float]:
        """Return the largest h of each layer, and the largest c, in which sequences begin."""
        given = (self._initial_state, None if data is None else data.state)
        states = [state for state in given if state is not None]
        begin_c = float(largest_begins(states)[1].max(initial=0.0)) if states else 0.0
        return begin_ranges(self._network, states), begin_c

    def _input_fit(self, candidate: Candidate) -> InputFit:
        """Return how factors equalise the features: with many bits, a finer step is not worth less room."""
        return candidate.input_fit if self._settings.data_bits <= MOST_FITTED_BITS else "powers of two"

    def _input_factors(
        self, input_range: float, peaks: Floats | None, candidate: Candidate
    ) -> tuple[float, ...]:
        """Return the factors of the input's features, or fixed hardware's; none if a range is stated.

        ``peaks`` are the features' largest magnitudes, if there are data.
        """
        network, settings = self._network, self._settings
        if self._hardware is not None and self._hardware.fixed:
            found = self._hardware.fixed.input_factors
            # A network with another number of inputs is refused when its layers are checked.
            return found if len(found) == network.inputs else ()
        if peaks is None or settings.input_range is not None:
            return ()
        form = Format.covering(settings.data_bits, input_range)
        bits = settings.bits_of(isinstance(network.layers[0], Dense))
        kept = settings.scale_bits and keeps_integers(network, bits)
        if kept or isinstance(network.layers[0], Norm):
            return ()
        peaks, fit = candidate.input_share * peaks, self._input_fit(candidate)
        factors = choose_factors(network, peaks, form, bits, fit, candidate.factor_share)
        return tuple(factors.tolist()) if (factors > 1).any() else ()

    def _middles(self, data: Calibration) -> tuple[Floats, Floats]:
        """Return the middle of each feature's values, 0 if it stays, and their largest distance from it.

        On each side there is room for values that are further away by the margin: from 0, or from the values'
        other end if that is nearer. A middle whose code would be too large stays, too.
        """
        # A ReLU and a copy read zeros themselves.
        fixed = any(
            reads_input(self._lowered.passes, index, layer) and (layer.input_relu or layer.copies)
            for index, layer in enumerate(self._lowered.layers)
        )
        if fixed or self._settings.input_range is not None:
            return np.zeros(1), data.peaks
        low, high = data.extent
        low, high = (
            end + side * (MARGIN - 1.0) * np.minimum(np.abs(end), high - low)
            for side, end in ((-1, low), (1, high))
        )
        middles, max_abs = (low + high) / 2, (high - low) / (2 * MARGIN)
        # What never changes has a factor of 1, others at most so large that they fill the format.
        scale = np.where(max_abs > 0, max_abs, max_abs.max())
        too_large = np.abs(middles) * 2.0**self._settings.data_bits > MOST_INPUT_ZERO * scale
        stays = too_large | (max_abs > _UNEVEN * data.peaks)
        return np.where(stays, 0.0, middles), np.where(stays, data.peaks, max_abs)

    def _input_offsets(
        self, middles: Floats, factors: tuple[float, ...], input_range: float
    ) -> tuple[float, ...]:
        """Return what moves the middles to 0, in steps of the input's format, or fixed hardware's offsets."""
        if self._hardware is not None and self._hardware.fixed:
            zeros, form = self._hardware.fixed.input_zeros, self._hardware.fixed.input
            return tuple(form.to_floats(zeros).tolist()) if len(zeros) == self._network.inputs else ()
        form = Format.covering(self._settings.data_bits, input_range)
        codes = -round_half_up(middles * np.array(factors or 1.0), form.fraction)
        return tuple(form.to_floats(codes).tolist()) if codes.any() else ()


def quantise_with(
    network: Network,
    settings: QuantizationSettings,
    choices: FormatChoices,
    hardware: TargetHardware | None = None,
    rows: RowChoices | None = None,
) -> QuantizedNetwork:
    """Quantise a network with ranges that are known, and with ``rows`` as they were trained, if given."""
    return _Build(Plan(network, settings, choices, hardware, rows)).network()


def _fine(settings: QuantizationSettings) -> QuantizationSettings:
    """Return settings whose formats are fine, but for that of c."""
    return settings.replace(
        weight_bits=max(settings.most_weight_bits, _SEARCH_BITS),
        dense_weight_bits=None,
        data_bits=max(settings.data_bits, _SEARCH_BITS),
        hidden_bits=None,
        output_bits=None,
        gate_bits=max(settings.gate_bits or 0, settings.hidden_bits or 0, settings.data_bits, _SEARCH_BITS),
        tables="interpolated",
    )


def _build_fine(
    network: Network,
    settings: QuantizationSettings,
    choices: FormatChoices,
    hardware: TargetHardware | None,
) -> QuantizedNetwork:
    """Quantise in formats so fine that values are like floats, or in the settings' if cells take no finer."""
    try:
        return quantise_with(network, _fine(settings), choices)
    except ConfigurationError:
        return quantise_with(network, settings, choices, hardware)
