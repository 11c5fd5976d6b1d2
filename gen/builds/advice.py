"""Advice: what a build assumes, how far its weights are from a model's integers, what would fit a device."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, NoReturn

import numpy as np
from pydantic import Field

from rtlstm.fpga.fit import Fit, FitRequest, fit_device
from rtlstm.gen.builds.hardware import Design, formats_note, quantised_for
from rtlstm.gen.frontends.reading import (
    MATRICES,
    InitialState,
    IntegerWeights,
    ModelReport,
    ReadResult,
    change_text,
    read_parts,
)
from rtlstm.gen.quantise.accuracy import Accuracy
from rtlstm.gen.quantise.calibration import Calibration
from rtlstm.gen.quantise.directions import unfold
from rtlstm.gen.quantise.lowering import ArrayLayer, lower
from rtlstm.gen.quantise.plan import FormatChoices, Trial, fold_factors
from rtlstm.gen.quantise.quantiser import (
    DEFAULT_INPUT_RANGE,
    QuantizationSettings,
    choose_formats,
    quantise_with,
)
from rtlstm.gen.quantise.ranges import search_sample, states_leave
from rtlstm.spec.cells.description import DEFAULT_CELL_RANGE
from rtlstm.spec.errors import ConfigurationError
from rtlstm.spec.fixed import Format
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.network import (
    LINEAR,
    Bidirectional,
    Dense,
    Network,
    PseudoLayer,
    StatelessLayer,
    keeps_cell_state,
)
from rtlstm.spec.numerics import (
    GUARD_BITS,
    SCALE_UNIT,
    Numerics,
    QuantizedNetwork,
    bound_sums,
    narrows_hidden,
    row_parts,
)
from rtlstm.spec.parameters import Parameters
from rtlstm.spec.progress import Progress, tell
from rtlstm.spec.record import Record, few_digits, option_text


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
    there = network.numerics.accumulator
    needed = bound_sums(network.layers, network.numerics.vector, there.align)
    shifts = (part.shift for layer in network.layers for part in row_parts(layer))

    def ratio(bits: int, magnitude: int) -> float:
        return ((1 << (bits - 1)) - 1) * 1000 // max(1, magnitude) / 1000  # Rounded down.

    return Headroom(
        weights=2.0 ** min(int(shift.min()) for shift in shifts),
        products=ratio(there.bits, needed.lane.magnitude),
        sums=ratio(there.partial_bits, needed.partial.magnitude),
    )


def list_assumptions(
    read: ReadResult, design: Design, calibration: Calibration | None, accuracy: Accuracy, loaded: bool
) -> tuple[str, ...]:
    """Return what was assumed, and what to do where that does not hold: a sentence each."""
    found = tuple(_assumptions(read.network, design, calibration, accuracy, loaded))
    state_inputs = read.report.state_inputs
    if not state_inputs or loaded or (calibration is not None and calibration.state is not None):
        return found
    names = " and ".join(map(repr, state_inputs))
    missing, first = "the calibration data begin with zeros", ""
    if calibration is None:
        missing = "there are no calibration data"
        first = "calibrate with typical inputs (`calibration`), and "
    return (
        *found,
        f"the model has the states in which sequences begin as inputs, {names}, but {missing}: if sequences "
        f"begin in other states, as a decoder's, {first}give the states (`calibration_state`), or the build "
        "whose final ones they are (`calibration_from`)",
    )


def _assumptions(
    network: Network, design: Design, calibration: Calibration | None, accuracy: Accuracy, loaded: bool
) -> Iterator[str]:
    settings, manifest = design.settings, design.manifest
    if manifest.sequence is not None:
        yield (
            "the core takes whole sequences: its step latency is that of the longest one, of "
            f"{manifest.sequence.steps} steps, from its last input to its last output; the step interval is "
            "what a step more takes where sequences follow one another, its input included"
        )
    if loaded:
        numerics = manifest.numerics
        exception = formats_note(manifest)
        yield (
            f"formats are those of the hardware it is loaded into{exception}: cell states saturate at "
            f"{_cell_limits(manifest)}, pre-activations at {_limit(numerics.preactivation)}, outputs at "
            f"{_limit(manifest.layers[-1].output)}"
        )
        yield from _cut_states(manifest, accuracy, "generate that hardware with a larger cell range")
        yield from _cut_hidden(manifest, accuracy, "generate that hardware with `hidden_range=1`")
        return
    yield from _cut_hidden(manifest, accuracy, "leave `hidden_range` out, or state a wider one")
    pairs = zip(lower(unfold(network))[0], manifest.layers, strict=True)
    wide = [shape for layer, shape in pairs if layer.in_format_of_h and shape.output.limit > 1.0]
    if wide:
        yield (
            f"h of {', '.join(dict.fromkeys(shape.name for shape in wide))} reaches "
            f"{_limit(min((shape.output for shape in wide), key=lambda form: form.fraction))}, to hold the "
            "states in which sequences begin: beyond +-1, each doubling takes a bit of its fraction"
        )
    if calibration is None:
        yield from _uncalibrated(network, settings, manifest)
        return
    yield (
        "rtlstm takes the calibration data as typical: the ranges of pre-activations and linear outputs are "
        "their largest values there plus a quarter"
    )
    searched = settings.cell_range is None
    if searched and any(map(keeps_cell_state, network.pseudo_layers)):
        share = search_sample(network, calibration).share_of(calibration)
        finals = "; it also holds final states" if states_leave(network, settings.final_states) else ""
        few = len(_cells(manifest)) == 1
        best = "this is the widest that costs outputs little" if few else "these cost outputs least"
        if accuracy.max_abs_cell > _widest_cell(manifest).limit:
            best += ", although some cell states saturate"
        else:
            best += ", and cell states may grow by half"
        yield (
            f"cell states reach {accuracy.max_abs_cell:.4g} and saturate at "
            f"{_cell_limits(manifest)}: of the ranges tried on {share}, {best}{finals}"
        )
    if settings.hidden_range is None and narrows_hidden(manifest.numerics):
        for layer in manifest.layers:
            if layer.kind == "lstm" and layer.output.limit < 0.75:
                yield (
                    f"h of {layer.name} saturates at {_limit(layer.output)}, at least a quarter above its "
                    "largest value on the calibration data: if it may be larger, state its range "
                    "(`hidden_range=1`)"
                )
    if not calibration.x.any():
        yield (
            "all calibration data are 0, so ranges follow from initial states and biases alone: give typical "
            "inputs"
        )
    if network.pseudo_layers and calibration.lengths.max() == 1 and calibration.state is None:
        yield (
            "no sequence of the calibration data has more than one step, so ranges hold no state that builds "
            "up: give sequences as long as those in use"
        )
    yield from _offset_inputs(settings, manifest.numerics, calibration)
    wider = "generate with `final_states=True`" if searched else "choose a larger cell range"
    yield from _cut_states(manifest, accuracy, wider)


_LEAST_CHANGE = 0.005
"""The least share of an error that is said to have changed."""


def explain_trials(trials: Sequence[Trial]) -> Iterator[str]:
    """Say what was tried on calibration data and taken, and what was gained: nothing if none was taken.

    The errors themselves are those of a part of the data, not the accuracy that a report shows.
    """
    taken = [trial for trial in trials[1:] if trial.taken]
    if not taken:
        return
    chosen, first = ", ".join(f"{trial.choice} {trial.value}" for trial in taken), trials[0].error
    ratio = taken[-1].error / first if first else 1.0
    percent = abs(100 * (1 - ratio))
    # With two digits, 99.7 would be 1e+02.
    change = f"{percent:.{2 if percent < 99 else 4}g} % {'less' if ratio < 1 else 'more'}"
    gained = f"with {change} error" if abs(1 - ratio) >= _LEAST_CHANGE else "with about the same error"
    wide = "; wide ranges that cost little are taken, since other data may have larger values"
    wide *= any(trial.value == "double" for trial in taken)
    if ratio > 1 and any(trial.value == "cancelling" for trial in taken):
        wide += "; rounding that cancels is preferred, since it keeps rare large errors down"
    yield (
        f"{len(trials) - 1} choices were tried on calibration data beside the formulas' formats, and these "
        f"were taken, {gained} there: {chosen}{wide}"
    )


def _uncalibrated(network: Network, settings: QuantizationSettings, manifest: Manifest) -> Iterator[str]:
    """Say which ranges stand for what calibration data would tell."""
    if settings.input_range is None:
        yield f"input range +-{DEFAULT_INPUT_RANGE:g} assumed: no calibration data"
    if settings.cell_range is None and any(map(keeps_cell_state, network.pseudo_layers)):
        yield f"cell states saturate at +-{DEFAULT_CELL_RANGE:g}, assumed to suffice: no calibration data"
    yield (
        f"pre-activations saturate at {_limit(manifest.numerics.preactivation)}, from the weights' bounds or "
        "where sigmoid is flat: no calibration data"
    )
    if any(isinstance(layer, Dense) and layer.activation in LINEAR for layer in network.layers):
        yield (
            "linear outputs have the range that the weights bound, or twice that of random inputs: no "
            "calibration data"
        )


def _offset_inputs(
    settings: QuantizationSettings, numerics: Numerics, calibration: Calibration
) -> Iterator[str]:
    """Say which inputs are so far from 0 that rounding them and their weights costs what they tell.

    Rounding to b bits is off by up to 2**-b of the mean: too much above an eighth of the standard deviation.
    """
    values = calibration.x[calibration.alive]
    codes = numerics.scale_input(values)
    mean, spread = codes.mean(axis=0), codes.std(axis=0)
    bits = min(settings.weight_bits, settings.data_bits)
    offset = np.flatnonzero((spread > 0) & (np.abs(mean) * 2.0**-bits > spread / 8))
    if not len(offset):
        return
    worst = offset[np.argmax(np.abs(mean[offset]) / spread[offset])]
    more = f" and {len(offset) - 8} more" if len(offset) > 8 else ""
    named = f"inputs {', '.join(map(str, offset[:8]))}{more} are far from 0 for how much they change"
    if len(offset) == 1:
        named = f"input {worst} is far from 0 for how much it changes"
    yield (
        f"{named} (input {worst}: {values[:, worst].mean():.3g} +- "
        f"{values[:, worst].std():.2g}), which rounding to {bits} bits blurs: subtract the mean before "
        "the core; of a model that does so itself, begin behind that, with `lstm`"
    )


def _cut_states(manifest: Manifest, accuracy: Accuracy, wider: str) -> Iterator[str]:
    """Say what to do if final states that are needed elsewhere saturate."""
    cell = _widest_cell(manifest)
    if accuracy.data != "random" and accuracy.max_abs_final_cell > cell.limit:
        yield (
            f"c reaches {accuracy.max_abs_final_cell:.4g} after a sequence's last step and saturates at "
            f"{_limit(cell)}: if final states go on elsewhere, for example to a decoder, {wider}"
        )


def _cut_hidden(manifest: Manifest, accuracy: Accuracy, wider: str) -> Iterator[str]:
    """Say which h saturate."""
    for layer in manifest.layers:
        if layer.name in accuracy.hidden_beyond:
            yield (
                f"h of {layer.name} reaches {accuracy.hidden_beyond[layer.name]:.4g} and saturates at "
                f"{_limit(layer.output)}: {wider}"
            )


def _cells(manifest: Manifest) -> list[Format]:
    """Return the formats of c, in the order of the layers; each once."""
    kept = (layer.state for layer in manifest.layers if layer.kind == "lstm")
    return [*dict.fromkeys(form for form in kept if form is not None)] or [manifest.numerics.cell]


def _widest_cell(manifest: Manifest) -> Format:
    return min(_cells(manifest), key=lambda form: form.fraction)


def _cell_limits(manifest: Manifest) -> str:
    return ", ".join(map(_limit, _cells(manifest)))


def _limit(form: Format) -> str:
    return f"+-{form.limit:.4g}"


class WeightChange(Record):
    """How far the weights of one product of a layer are from the integers that the model holds."""

    layer: str
    product: str
    """``input products``, ``products with h`` or ``products``."""
    largest: float
    """The largest change; 0 if the build holds the model's integers, times a power of two for each row.

    It is that of the build's weights, which the factor of an input, or the mean of two directions, divides.
    """
    largest_steps: float
    """The largest change in the model's own steps."""
    text: str
    """Both for a message."""
    scale_bits: int = 0
    """If not 0, the integers are the model's, and the steps of their rows are rounded to so many bits."""


def measure_changes(
    network: Network, quantised: QuantizedNetwork, given: Sequence[IntegerWeights]
) -> tuple[WeightChange, ...]:
    """Compare a build's weights with those that are integers in the model, ``given``."""
    if not given:
        return ()
    steps = _with_steps(network, given)
    factors = quantised.numerics.input_factors
    network, steps = fold_factors(network, factors), fold_factors(steps, factors)
    # The steps go through the same changes of order and shape as the weights.
    return tuple(_changes(quantised, lower(unfold(network))[0], lower(unfold(steps))[0]))


def change_notes(changes: Iterable[WeightChange]) -> tuple[str, ...]:
    """Return what a user should know about the changes."""
    same, other = [], []
    scaled: dict[int, list[str]] = {}
    for change in changes:
        what = f"the {change.product} of {change.layer!r}"
        if change.scale_bits:
            scaled.setdefault(change.scale_bits, []).append(what)
        elif change.largest > 0:
            other.append(f"{what} by {change.text}")
        else:
            same.append(what)
    return (
        *((f"weights are the model's integers, exactly: those of {', '.join(same)}",) if same else ()),
        *(
            f"weights are the model's integers, in steps that are rounded to {bits} bits: those of "
            f"{', '.join(some)}"
            for bits, some in scaled.items()
        ),
        *((f"weights differ from the model's integers: those of {', '.join(other)}",) if other else ()),
    )


_SPARE_BITS = 4
"""With so many bits of weights more than integers have, steps of powers of two hardly change these."""


def keep_integers(settings: QuantizationSettings, source: ModelReport) -> QuantizationSettings | None:
    """Return the settings with scales of rows, if that keeps integers of a model and the settings leave it
    open; else None."""
    if settings.scale_bits is not None:
        return None
    kept = False
    for given in source.integer_weights:
        spare = settings.bits_of(given.weight == "weight") - given.largest.bit_length() - 1
        kept |= given.exact_bits is None and 0 <= spare < _SPARE_BITS
    return settings.replace(scale_bits=SCALE_UNIT) if kept else None


def scales_note(settings: QuantizationSettings) -> str:
    """Say that rows have scales, because of a model's integers."""
    return (
        "steps of the model's integers are no powers of two: each row of weights has a scale of "
        f"{settings.scale_bits} bits (`scale_bits={settings.scale_bits}`), with a multiplier behind its sum; "
        "`scale_bits=0` leaves it out, and rounds the weights again"
    )


def scales_refused_note(settings: QuantizationSettings, refused: ConfigurationError) -> str:
    """Say why the integers of a model are rounded again."""
    return (
        "the model's integers are rounded again, in steps of powers of two, because rows can have no scales "
        f"(`scale_bits={settings.scale_bits}`): {refused}"
    )


def _with_steps(network: Network, given: Sequence[IntegerWeights]) -> Network:
    """Return the network with the model's steps as its weights; 0 where it has none."""
    known = {(one.layer, one.weight, one.read): np.array(one.steps) for one in given}

    def with_steps(layer: PseudoLayer | StatelessLayer) -> PseudoLayer | StatelessLayer:
        found = {}
        for name in MATRICES:
            parts = [
                np.broadcast_to(known.get((layer.name, name, read), np.zeros(1))[:, None], matrix.shape)
                for read, matrix in enumerate(read_parts(layer, name))
            ]
            if parts:
                found[name] = np.concatenate(parts, axis=1)
        return layer.replace(**found)

    layers = [
        layer.replace(forward=with_steps(layer.forward), backward=with_steps(layer.backward))
        if isinstance(layer, Bidirectional)
        else with_steps(layer)
        for layer in network.layers
    ]
    return network.replace(layers=tuple(layers))


_FLOATS = 1.01
"""What a rounded step may differ more than its bits say, because the model's is a float32."""


def _changes(
    quantised: QuantizedNetwork, layers: Sequence[ArrayLayer], of_steps: Sequence[ArrayLayer]
) -> Iterator[WeightChange]:
    shapes, numerics = quantised.shapes, quantised.numerics
    for index, (layer, its) in enumerate(zip(layers, of_steps, strict=True)):
        if layer.kind in ("product", "norm") or layer.copies:  # They only copy.
            continue
        target = (shapes[index].output if layer.linear else numerics.preactivation).fraction + GUARD_BITS
        matrices = quantised.sources(index), layer.matrices, its.matrices
        parts = zip(row_parts(quantised.layers[index]), *matrices, strict=True)
        for part, source, value, step in parts:
            if not step.any():
                continue
            mine = part.steps(numerics.accumulator.align, target, source.fraction)
            change = np.abs(part.weights * mine[:, None] - value)
            bits = numerics.scale_bits
            # Then rows alone have changed, and no weight more than others.
            only_steps = bits > 0 and bool((change <= np.abs(value) * 2.0**-bits * _FLOATS).all())
            yield WeightChange(
                layer=layer.name,
                product=part.what,
                largest=few_digits(change.max()),
                largest_steps=few_digits((change / np.where(step > 0, step, np.inf)).max()),
                text=change_text(change, step),
                scale_bits=bits if only_steps and change.any() else 0,
            )


_Fields = dict[str, int | str]
_DIRECT: _Fields = {"tables": "direct"}
_EIGHT: _Fields = {"weight_bits": 8, "data_bits": 8}
_NARROW: _Fields = _EIGHT | {"gate_bits": 8, "cell_bits": 12}
_LAST: _Fields = {"weight_bits": 4, "data_bits": 6, "gate_bits": 6, "cell_bits": 10}

_TRIED: tuple[_Fields, ...] = (
    {},
    _DIRECT,
    _EIGHT,
    _EIGHT | _DIRECT,
    _NARROW,
    _NARROW | _DIRECT,
    _NARROW | _DIRECT | {"weight_bits": 6},
    _NARROW | _DIRECT | {"weight_bits": 4},
    _NARROW | _DIRECT | {"weight_bits": 6, "data_bits": 6, "gate_bits": 6},
    _LAST | _DIRECT,
)
"""Formats and kinds of tables, roughly in the order of the accuracy that they cost."""


@dataclass(frozen=True)
class FitAdvice:
    """Options with which a network fits a device: fewer bits, direct tables, another array."""

    more: _Fields
    """Options to give or change."""
    less: tuple[str, ...]
    """Options to leave out."""
    settings: QuantizationSettings
    choices: FormatChoices
    quantised: QuantizedNetwork
    parameters: Parameters
    fit: Fit
    """The design chosen with these options."""

    @property
    def text(self) -> str:
        """A clause for messages."""
        return f"{self._changes} it fits: {self._result}; `fit_anyway=True` builds it so"

    @property
    def taken(self) -> str:
        """A clause for messages, if the advice was taken."""
        return f"so it is built {self._changes}: {self._result}"

    @property
    def _changes(self) -> str:
        parts = [f"without {', '.join(f'`{name}`' for name in self.less)}"] if self.less else []
        parts += [f"with {option_text(self.more)}"] if self.more else []
        return " and ".join(parts)

    @property
    def _result(self) -> str:
        found, what = self.fit.estimate, "sequence" if self.quantised.passes else "step"
        time = f"{self.fit.latency_us:.4g} us a {what}"
        assumed = f" at an assumed {self.fit.clock_mhz:g} MHz" if found.clock_assumed else ""
        return f"{found.cell_share:g} % of the logic cells, {time}{assumed}"


def find_fit_advice(
    name: str,
    network: Network,
    settings: QuantizationSettings,
    data: Calibration | None,
    request: FitRequest,
    progress: Progress | None = None,
    initial_state: InitialState | None = None,
) -> FitAdvice | None:
    """Try the usual changes that make a network smaller; return the first with which it fits, or None.

    The array is chosen freely; formats only become narrower than in ``settings``.
    """
    less = request.given_sizes
    free = request.replace(**{name: FitRequest.model_fields[name].default for name in less})
    tried = list(_attempts(settings, bool(less)))
    searched: dict[object, float] = {}
    for number, (narrower, more) in enumerate(tried):
        tell(progress, "look for what fits", number, len(tried))
        try:
            free.check_weights(name, network.weight_count, narrower.most_weight_bits)
            hardware = quantised_for(narrower, request.chosen.device.family)
            choices = choose_formats(
                network, narrower, data, hardware, searched=searched, initial_state=initial_state
            )
            quantised = quantise_with(network, narrower, choices, hardware)
            asked = free.replace(tables=narrower.tables)
            parameters, fit = fit_device(name, quantised.shapes, quantised.numerics, asked, quantised.passes)
        except ConfigurationError:
            # Still nothing fits, or these formats are impossible for this network.
            continue
        return FitAdvice(more, less, narrower, choices, quantised, parameters, fit)
    return None


def least_weight_bits(settings: QuantizationSettings) -> int:
    """Return the fewest bits of weights with which :func:`find_fit_advice` tries a network."""
    return min(each.most_weight_bits for each, _ in _attempts(settings, True))


def _attempts(settings: QuantizationSettings, as_is: bool) -> Iterator[tuple[QuantizationSettings, _Fields]]:
    """Yield different settings to try, and the changes in them.

    ``as_is`` says that the settings themselves are tried, too.
    """
    seen = [] if as_is else [settings]
    for fields in _TRIED:
        if settings.hidden_bits is not None and "data_bits" in fields:
            # Stated bits of h become as few as those of the data, too.
            fields = fields | {"hidden_bits": fields["data_bits"]}
        changes = {name: value for name, value in fields.items() if _is_narrower(settings, name, value)}
        with suppress(ConfigurationError):
            narrower = settings.replace(**changes)
            if narrower not in seen:
                seen.append(narrower)
                yield narrower, changes


def _is_narrower(settings: QuantizationSettings, name: str, value: int | str) -> bool:
    now = getattr(settings, name)
    return bool(now != value) if isinstance(value, str) else now is None or value < now


def refuse_fit_anyway() -> NoReturn:
    """Refuse to change the formats of a network that is trained in them."""
    raise ConfigurationError(
        "`fit_anyway` changes formats, but the network is trained in those that were chosen: "
        "leave it out; where nothing fits, the message says with which formats to train"
    )
