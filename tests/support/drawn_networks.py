"""What property tests draw: networks over every attribute of every layer, formats, arrays."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from hypothesis import reject
from hypothesis import strategies as st
from numpy.random import Generator

from rtlstm.gen.quantise.directions import unfold
from rtlstm.gen.quantise.lowering import is_fused, lower
from rtlstm.gen.quantise.quantiser import QuantizationSettings, quantise
from rtlstm.spec.activations.functions import ACTIVATIONS, SIGMOID, TANH, ActivationFunction
from rtlstm.spec.cells.description import Cell, CellBuilder
from rtlstm.spec.errors import ConfigurationError
from rtlstm.spec.family import FAMILIES, Pipeline
from rtlstm.spec.network import (
    Bidirectional,
    Custom,
    Dense,
    Gru,
    Layer,
    Lstm,
    LstmNorms,
    Network,
    Norm,
    PseudoLayer,
    Read,
    Rnn,
    read_fields,
)
from rtlstm.spec.numerics import QuantizedNetwork
from rtlstm.spec.parameters import Parameters
from support.random_builds import possible_gate_units

Draw = Any
"""Hypothesis's function that draws from a strategy."""

_CLIPS = (None, None, 0.4, 1.5, 50.0)
_PARAMETERS = {
    "hard_sigmoid": ([0.2, 1 / 6, 0.5], [0.5, 0.25]),
    "hard_tanh": ([-1.0, -0.5, 0.0], [1.0, 0.75, 6.0]),
    "elu": ([1.0, 0.3, -0.6], [None]),
    "leaky_relu": ([0.01, 0.3, -0.5], [None]),
    "thresholded_relu": ([1.0, 0.3, 0.0], [None]),
    "heaviside": ([0.0, 0.3], [None]),
    "silu": ([1.0, 1.7, -0.5], [None]),
    "affine": ([1.0, 0.6, -0.5], [0.0, 0.25]),
    "scaled_tanh": ([1.0, 1.7, -0.5], [1.0, 2 / 3, -1.5]),
}
"""Values of alpha and beta to draw from."""


@dataclass(frozen=True)
class DrawnBuild:
    """A network, how it is quantised, and the hardware that computes it."""

    network: Network
    settings: QuantizationSettings
    calibrated: bool
    parameters: Parameters
    seed: int
    """Of all numbers that are not drawn one by one."""

    def integers(self, x: np.ndarray) -> QuantizedNetwork:
        """Return the network in integers; formats that cannot be built together are drawn again."""
        # The search of formats takes nine tenths of the time: it serves one network of four.
        settings = self.settings.replace(quick=self.seed % 4 > 0)
        try:
            return quantise(self.network, settings, x if self.calibrated else None)
        except ConfigurationError:
            reject()


@st.composite
def functions(draw: Draw, usual: ActivationFunction) -> ActivationFunction:
    """Draw an activation; as often as not the usual one."""
    if draw(st.booleans()):
        return usual
    name = draw(st.sampled_from([*ACTIVATIONS]))
    alphas, betas = _PARAMETERS.get(name, ([None], [None]))
    return ActivationFunction.of(name, draw(st.sampled_from(alphas)), draw(st.sampled_from(betas)))


class _Weights:
    """Arrays of normal numbers, or of zeros, from one generator."""

    def __init__(self, rng: Generator, scale: float) -> None:
        self._rng = rng
        self._scale = scale

    def matrix(self, rows: int, columns: int) -> np.ndarray:
        return self._rng.normal(size=(rows, columns)) * self._scale / np.sqrt(columns)

    def vector(self, size: int, zero: bool = False) -> np.ndarray:
        return np.zeros(size) if zero else self._rng.normal(size=size) * self._scale


@st.composite
def cells(draw: Draw) -> Cell:
    """Draw a step function: a few operations on gates, own numbers and state; then what is kept and given."""
    cell = CellBuilder()
    terms = [cell.gate(index) for index in range(draw(st.integers(1, 4)))]
    terms += [cell.parameter(index) for index in range(draw(st.integers(0, 2)))]
    keeps = draw(st.sampled_from(["h", "c", "nothing"]))
    if keeps != "nothing":
        terms.append(cell.state())
    for _ in range(draw(st.integers(1, 4))):
        a, b = (draw(st.sampled_from(terms)) for _ in range(2))
        operation = draw(st.sampled_from(["apply", "multiply", "add", "subtract", "clip", "rest"]))
        terms.append(
            {
                "apply": lambda a=a: cell.apply(draw(functions(TANH)), a),
                "multiply": lambda a=a, b=b: a * b,
                "add": lambda a=a, b=b: a + b,
                "subtract": lambda a=a, b=b: a - b,
                "clip": lambda a=a: cell.clip(a, draw(st.sampled_from([0.3, 1.0, 2.5]))),
                "rest": lambda a=a: 1.0 - a,
            }[operation]()
        )
    new = cell.apply(draw(st.sampled_from([SIGMOID, TANH])), terms[-1])
    if keeps == "nothing":
        return cell.build("drawn", new * terms[0])
    kept = cell.keep(new - cell.apply(SIGMOID, terms[0]) * cell.state())
    return cell.build("drawn", kept if keeps == "h" else new * cell.apply(TANH, kept))


def _lstm(draw: Draw, weights: _Weights, inputs: int, outputs: int, common: dict[str, Any]) -> Lstm:
    flag = st.booleans()
    projected, optioned = draw(flag), draw(flag)
    units = draw(st.integers(1, 5)) if projected else outputs
    options: dict[str, Any] = {}
    if optioned:
        options = {
            "peephole": weights.vector(3 * units) if draw(flag) else None,
            "coupled": draw(flag),
            "cell_clip": draw(st.sampled_from(_CLIPS)),
            "clip": draw(st.sampled_from(_CLIPS)),
            "gate": draw(functions(SIGMOID)),
            "candidate": draw(functions(TANH)),
            "output_activation": draw(functions(TANH)),
        }
    return Lstm(
        w_ih=weights.matrix(4 * units, inputs),
        w_hh=weights.matrix(4 * units, outputs),
        bias=weights.vector(4 * units, zero=draw(flag)),
        projection=weights.matrix(outputs, units) if projected else None,
        **options,
        **common,
    )


def _normed_lstm(draw: Draw, weights: _Weights, inputs: int, outputs: int, common: dict[str, Any]) -> Lstm:
    """An LSTM with one norm or more of its gates' products and of c."""
    rows = 4 * outputs
    together, hidden, cell = (draw(st.booleans()) for _ in range(3))
    hidden |= together
    of_input = not together and draw(st.booleans())
    cell |= not (hidden or of_input)
    norms = LstmNorms(
        input=_norm(draw, weights, rows) if of_input else None,
        hidden=_norm(draw, weights, rows) if hidden else None,
        cell=_norm(draw, weights, outputs) if cell else None,
        input_bias=weights.vector(rows) if not together and draw(st.booleans()) else None,
        hidden_bias=weights.vector(rows) if draw(st.booleans()) else None,
        together=together,
        kept=cell and draw(st.booleans()),
    )
    return Lstm(
        w_ih=weights.matrix(rows, inputs),
        w_hh=weights.matrix(rows, outputs),
        bias=weights.vector(rows, zero=draw(st.booleans())),
        clip=draw(st.sampled_from(_CLIPS)),
        candidate=draw(functions(TANH)),
        norms=norms,
        **common,
    )


def _gru(draw: Draw, weights: _Weights, inputs: int, outputs: int, common: dict[str, Any]) -> Gru:
    zero = draw(st.booleans())
    return Gru(
        w_ih=weights.matrix(3 * outputs, inputs),
        w_hh=weights.matrix(3 * outputs, outputs),
        bias_ih=weights.vector(3 * outputs, zero),
        bias_hh=weights.vector(3 * outputs, zero),
        reset_after=draw(st.booleans()),
        clip=draw(st.sampled_from(_CLIPS)),
        gate=draw(functions(SIGMOID)),
        candidate=draw(functions(TANH)),
        **common,
    )


def _rnn(draw: Draw, weights: _Weights, inputs: int, outputs: int, common: dict[str, Any]) -> Rnn:
    return Rnn(
        w_ih=weights.matrix(outputs, inputs),
        w_hh=weights.matrix(outputs, outputs) * 0.5,
        bias=weights.vector(outputs, zero=draw(st.booleans())),
        clip=draw(st.sampled_from(_CLIPS)),
        activation=draw(functions(TANH)),
        **common,
    )


def _custom(draw: Draw, weights: _Weights, inputs: int, outputs: int, common: dict[str, Any]) -> Custom:
    cell = draw(cells())
    rows = cell.gates * outputs
    return Custom(
        cell=cell,
        w_ih=weights.matrix(rows, inputs),
        w_hh=weights.matrix(rows, outputs) if draw(st.booleans()) else None,
        bias=weights.vector(rows),
        parameters=weights.matrix(outputs, cell.parameters) if cell.parameters else None,
        **common,
    )


def _product(draw: Draw, weights: _Weights, inputs: int, outputs: int, common: dict[str, Any]) -> Custom:
    """Two rows of each unit, times each other: a gated linear unit, if one of them is a share."""
    cell = CellBuilder()
    gate = draw(st.sampled_from([None, SIGMOID, TANH]))
    value = cell.gate(0) if gate is None else cell.apply(gate, cell.gate(0))
    rows = weights.matrix(2 * outputs, inputs), weights.vector(2 * outputs, zero=draw(st.booleans()))
    return Custom(
        cell=cell.build("times", value * cell.gate(1)), w_ih=rows[0], w_hh=None, bias=rows[1], **common
    )


def _norm(draw: Draw, weights: _Weights, values: int) -> Norm:
    return Norm(
        values=values,
        gain=weights.vector(values) if draw(st.booleans()) else None,
        bias=weights.vector(values) if draw(st.booleans()) else None,
        epsilon=draw(st.sampled_from([1e-5, 0.0, 1e-3, 0.1])),
        centre=draw(st.booleans()),
    )


def _reads(draw: Draw, widths: list[int], any_of: bool, least: int = 1) -> tuple[int, dict[str, Any]]:
    """What a layer behind values of these widths reads: how many values, and its fields.

    Up to three of them and no fewer than ``least``, at any distance, if ``any_of``; else the last ones.
    """
    backs = [1]
    if any_of and (least > 1 or draw(st.integers(0, 2)) == 0):
        backs = draw(st.lists(st.integers(1, len(widths)), min_size=least, max_size=3))
    reads = [Read(back=back, width=widths[-back], relu=draw(st.booleans())) for back in backs]
    return sum(read.width for read in reads), read_fields(reads)


def _recurrent(
    draw: Draw, weights: _Weights, inputs: int, outputs: int, reads: dict[str, Any], reverse: bool
) -> PseudoLayer:
    make = draw(st.sampled_from([_lstm, _lstm, _gru, _rnn, _custom]))
    reversed_output = reverse and draw(st.booleans())
    common = {"reverse": reverse, "reversed_output": reversed_output, **reads}
    layer: PseudoLayer = make(draw, weights, inputs, outputs, common)
    return layer


def _dense(
    draw: Draw, weights: _Weights, widths: list[int], outputs: int, any_of: bool, least: int = 1
) -> Dense:
    """A dense layer behind values of these widths, of which it may read any."""
    usual = ActivationFunction.of(draw(st.sampled_from(["identity", "relu", "sigmoid", "tanh"])))
    function = draw(functions(usual))
    inputs, reads = _reads(draw, widths, any_of, least)
    return Dense(
        weight=weights.matrix(outputs, inputs),
        bias=weights.vector(outputs, zero=draw(st.booleans())),
        activation=function.name,
        alpha=function.alpha,
        beta=function.beta,
        **reads,
    )


@st.composite
def drawn_networks(draw: Draw, whole: bool | None = None, sizes: int = 5) -> Network:
    """Draw 1 to 3 recurrent layers of any kind, with dense ones in front, between and behind.

    ``whole``: whether one goes backward, so that the network takes whole sequences; either if None.
    """
    size = st.integers(1, sizes)
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    weights = _Weights(rng, draw(st.sampled_from([0.4, 1.0, 2.0])))
    count = draw(st.integers(1, 3))
    backward = draw(st.integers(0, count - 1)) if (draw(st.booleans()) if whole is None else whole) else None
    layers: list[Layer] = []
    widths = [draw(size)]
    for index in range(count):
        if draw(st.integers(0, 3)) == 0:
            layers.append(_dense(draw, weights, widths, draw(size), backward is None))
            widths.append(layers[-1].outputs)
        outputs = draw(size)
        inputs, reads = _reads(draw, widths, backward is None)
        directions = ["forward"] if backward is None else ["forward", "reverse", "both", "both"]
        direction = draw(st.sampled_from(directions[1:] if index == backward else directions))
        if direction == "both":
            merge = draw(st.sampled_from(["concat", "concat", "sum", "average", "product"]))
            other = draw(size) if merge == "concat" else outputs
            forward = _recurrent(draw, weights, inputs, outputs, reads, reverse=False)
            back = _recurrent(draw, weights, inputs, other, reads, reverse=True)
            layers.append(Bidirectional(forward=forward, backward=back, merge=merge))
        else:
            layers.append(_recurrent(draw, weights, inputs, outputs, reads, direction == "reverse"))
        widths.append(layers[-1].outputs)
    for _ in range(draw(st.sampled_from([0, 0, 1, 2]))):
        layers.append(_dense(draw, weights, widths, draw(size), backward is None))
        widths.append(layers[-1].outputs)
    return Network(layers=tuple(layers))


@st.composite
def mixed_networks(draw: Draw, whole: bool, sizes: int = 5, norms: bool = True) -> Network:
    """Draw a norm, an own cell, a recurrent layer and one that reads several results, and up to two layers
    more, in any order.

    ``whole``: a recurrent layer goes backward; then a dense layer stands for the one that reads several.
    Without ``norms``, a loadable device may take it.
    """
    size = st.integers(1, sizes)
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    weights = _Weights(rng, draw(st.sampled_from([0.4, 1.0, 2.0])))
    norm, normed = (["norm"], [] if whole else ["normed"]) if norms else ([], [])
    others = [*norm, "dense", "recurrent", "product", *normed]
    more = draw(st.lists(st.sampled_from(others), max_size=2))
    kinds = draw(st.permutations([*norm, "cell", "recurrent", "dense" if whole else "several", *more]))
    backward = kinds.index("recurrent") if whole else None
    layers: list[Layer] = []
    widths = [draw(size)]
    for index, kind in enumerate(kinds):
        outputs = draw(size)
        if kind == "norm":
            layers.append(_norm(draw, weights, widths[-1]))
        elif kind == "dense" or (kind == "several" and draw(st.booleans())):
            least = 2 if kind == "several" else 1
            layers.append(_dense(draw, weights, widths, outputs, not whole, least))
        else:
            inputs, reads = _reads(draw, widths, not whole, 2 if kind == "several" else 1)
            if kind == "recurrent":
                forward = _recurrent(draw, weights, inputs, outputs, reads, reverse=False)
                layers.append(forward)
                if index == backward:
                    other = _recurrent(draw, weights, inputs, draw(size), reads, reverse=True)
                    layers[-1] = Bidirectional(forward=forward, backward=other)
            else:
                make = {"cell": _custom, "product": _product, "several": _product, "normed": _normed_lstm}
                layers.append(make[kind](draw, weights, inputs, outputs, reads))
        widths.append(layers[-1].outputs)
    return Network(layers=tuple(layers))


@st.composite
def _settings(draw: Draw, bits: int) -> QuantizationSettings:
    data = draw(st.integers(4, bits))
    tables = (
        draw(st.sampled_from(["interpolated", "interpolated", "direct"])) if data <= 12 else "interpolated"
    )
    most = min(bits, 12) if tables == "direct" else bits
    hidden = draw(st.one_of(st.none(), st.integers(data, most)))
    return QuantizationSettings(
        tables=tables,
        weight_bits=draw(st.integers(2, 18)),
        data_bits=data,
        hidden_bits=hidden,
        gate_bits=draw(st.integers(max(6, hidden or data), max(8, bits))),
        cell_bits=draw(st.integers(8, bits + 6)),
        input_range=draw(st.sampled_from([None, 0.5, 1.0, 4.0, 10.0])),
        cell_range=draw(st.sampled_from([None, 1.0, 2.0, 8.0])),
    )


@st.composite
def _parameters(draw: Draw, settings: QuantizationSettings, whole: bool) -> Parameters:
    macs = draw(st.integers(1, 6))
    lanes = 4 * draw(st.integers(1, 4))
    # Of whole sequences, no results fill several words in one cycle.
    units = draw(
        st.sampled_from([each for each in possible_gate_units(lanes, macs) if not whole or macs % each == 0])
    )
    family = draw(st.sampled_from(sorted(FAMILIES)))
    lut_macs = draw(st.integers(0, macs))
    # An even number: two lanes may share their multipliers.
    lut_lanes = 2 * draw(st.integers(0, lanes // 2 - 1)) if lut_macs < macs else 0
    lut_bits = draw(st.integers(2, 18)) if lut_macs or lut_lanes else 0
    pipeline = FAMILIES.named(family).pipeline_for(lut_bits, settings.tables == "direct")
    if draw(st.booleans()):
        family = "generic"
        least = {"operand": 2, "multiplier": 1, "tree_levels": 1, "collect": 0, "narrow": 2, "table": 1}
        most = {"operand": 4, "multiplier": 3, "tree_levels": 3, "collect": 2, "narrow": 4, "table": 2}
        least |= {"slope": 1, "product": 1, "window": 0, "cell": 3, "accept": 0, "result": 0}
        most |= {"slope": 2, "product": 2, "window": 2, "cell": 4, "accept": 1, "result": 2}
        least, most = least | {"adder_terms": 2}, most | {"adder_terms": 3}
        registers = {name: draw(st.integers(least[name], most[name])) for name in least}
        early = registers["operand"] + registers["multiplier"] >= 4
        pipeline = Pipeline(**registers, copies=draw(st.sampled_from((0, 1, 2) if early else (0, 2))))
    return Parameters(
        lanes=lanes,
        macs=macs,
        gate_units=units,
        beat_in=draw(st.sampled_from([beat for beat in range(1, macs + 1) if macs % beat == 0])),
        beat_out=units * draw(st.integers(1, 4)),
        streams=draw(st.integers(1, 3)),
        lut_macs=lut_macs,
        lut_lanes=lut_lanes,
        tables=settings.tables,
        lane_sums=None if whole else draw(st.sampled_from([None, None, 5, 16])),
        family=family,
        pipeline=pipeline,
    )


@st.composite
def drawn_builds(draw: Draw, whole: bool | None, bits: int = 8, sizes: int = 5) -> DrawnBuild:
    """Draw a network with all that its hardware depends on; data of at most ``bits`` bits."""
    settings, network = draw(_settings(bits)), draw(drawn_networks(whole, sizes))
    return _build(draw, network, settings, network.whole_sequences if whole is None else whole)


@st.composite
def mixed_builds(draw: Draw, bits: int = 8, sizes: int = 5) -> DrawnBuild:
    """Draw a build of :func:`mixed_networks`, one of four of whole sequences; most decide.

    Most have constant tables, which take no time to load.
    """
    settings, whole = draw(_settings(bits)), draw(st.integers(0, 3)) == 3
    network = draw(mixed_networks(whole, sizes))
    build = _build(draw, network, settings, whole)
    can_decide = network.outputs > 1 and not isinstance(network.layers[-1], Bidirectional)
    parameters = build.parameters.replace(
        table_memory=draw(st.sampled_from(["rom", "rom", "ram"])),
        decide=draw(st.sampled_from([None, "argmax", f"top{network.outputs // 2}", "softmax"]))
        if can_decide
        else None,
    )
    return replace(build, parameters=parameters)


@st.composite
def resident_builds(draw: Draw, bits: int = 8, sizes: int = 5) -> DrawnBuild:
    """Draw a build of :func:`mixed_networks` without norms that decides, for a loadable device."""
    build = _build(draw, draw(mixed_networks(False, sizes, norms=False)), draw(_settings(bits)), whole=False)
    decide = draw(st.sampled_from(["argmax", "top1"]))
    return replace(build, parameters=build.parameters.replace(decide=decide))


def _build(draw: Draw, network: Network, settings: QuantizationSettings, whole: bool) -> DrawnBuild:
    """Draw what else the hardware of a network depends on."""
    if is_fused(*lower(unfold(network))):
        settings = settings.replace(hidden_rounding=draw(st.sampled_from(("half_up", "odd"))))
    return DrawnBuild(
        network=network,
        settings=settings,
        calibrated=draw(st.booleans()),
        parameters=draw(_parameters(settings, whole)),
        seed=draw(st.integers(0, 2**32 - 1)),
    )
