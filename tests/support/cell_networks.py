"""Small networks of every kind of cell, by name."""

from collections.abc import Iterator

import numpy as np

from rtlstm.spec.activations.functions import RELU, SIGMOID, TANH, ActivationFunction
from rtlstm.spec.cells.description import CellBuilder
from rtlstm.spec.network import Custom, Dense, Gru, Lstm, LstmNorms, Network, Norm, Read, Rnn

INPUTS, UNITS = 3, 5
function = ActivationFunction.of


class Drawing:
    """Layers with weights drawn from one generator."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)

    def array(self, *shape: int) -> np.ndarray:
        return self._rng.normal(size=shape) * 0.6

    def lstm(self, inputs: int = INPUTS, projection: int | None = None, **options: object) -> Lstm:
        return Lstm(
            w_ih=self.array(4 * UNITS, inputs),
            w_hh=self.array(4 * UNITS, projection or UNITS),
            bias=self.array(4 * UNITS),
            projection=None if projection is None else self.array(projection, UNITS),
            **options,
        )

    def gru(self, inputs: int = INPUTS, **options: object) -> Gru:
        arrays = {
            "w_ih": self.array(3 * UNITS, inputs),
            "w_hh": self.array(3 * UNITS, UNITS),
            "bias_ih": self.array(3 * UNITS),
            "bias_hh": self.array(3 * UNITS),
        }
        return Gru(**arrays, **options)

    def rnn(self, inputs: int = INPUTS, **options: object) -> Rnn:
        w_ih, w_hh = self.array(UNITS, inputs), self.array(UNITS, UNITS) * 0.5
        return Rnn(w_ih=w_ih, w_hh=w_hh, bias=self.array(UNITS), **options)

    def dense(self, inputs: int, outputs: int, **options: object) -> Dense:
        return Dense(weight=self.array(outputs, inputs), bias=self.array(outputs), **options)

    def norm(self, values: int, gain: bool = True, **options: object) -> Norm:
        more = {"gain": 1.0 + self.array(values), "bias": self.array(values)} if gain else {}
        return Norm(values=values, **more, **options)

    def custom(
        self, cell: CellBuilder, result: object, own: int = 0, inputs: int = INPUTS, **options: object
    ) -> Custom:
        built = cell.build("own", result)
        arrays = {
            "w_ih": self.array(built.gates * UNITS, inputs),
            "w_hh": self.array(built.gates * UNITS, UNITS),
            "bias": self.array(built.gates * UNITS),
            "parameters": self.array(UNITS, own) if own else None,
        }
        return Custom(cell=built, **(arrays | options))


def _lstms(draw: Drawing) -> Iterator[tuple[str, list[object]]]:
    yield "peephole", [draw.lstm(peephole=draw.array(3 * UNITS))]
    yield "projections", [draw.lstm(projection=2), draw.lstm(inputs=2, projection=3), draw.dense(3, 2)]
    yield "projection_last", [draw.lstm(projection=2)]
    yield "coupled_and_clipped", [draw.lstm(coupled=True, clip=1.5, cell_clip=0.8)]
    functions = {
        "gate": function("hard_sigmoid"),
        "candidate": function("softsign"),
        "output_activation": RELU,
    }
    yield "other_functions", [draw.lstm(**functions)]


def _others(draw: Drawing) -> Iterator[tuple[str, list[object]]]:
    yield "gru", [draw.gru()]
    yield "two_grus", [draw.gru(), draw.gru(UNITS), draw.dense(UNITS, 2, activation="sigmoid")]
    yield "gru_reset_before", [draw.gru(reset_after=False)]
    yield "two_reset_before", [draw.gru(reset_after=False), draw.gru(UNITS, reset_after=False, clip=2.0)]
    yield "rnn", [draw.rnn()]
    rnns = [draw.rnn(activation=RELU), draw.rnn(UNITS, activation=function("elu"))]
    yield "rnns_without_bounds", [*rnns, draw.dense(UNITS, 3, activation="leaky_relu")]
    first = [draw.dense(INPUTS, 4, activation="tanh"), draw.lstm(4)]
    yield "dense_first_and_mixed", [*first, draw.gru(UNITS), draw.rnn(UNITS), draw.dense(UNITS, 3)]
    head = [draw.dense(UNITS, 3, activation="softplus"), draw.dense(3, 2, input_relu=True)]
    yield "rnn_then_lstm", [draw.rnn(activation=function("gelu")), draw.lstm(UNITS), *head]


def _customs(draw: Drawing) -> Iterator[tuple[str, list[object]]]:
    cell = CellBuilder()
    share, new = cell.apply(SIGMOID, cell.gate(0)), cell.apply(TANH, cell.gate(1))
    yield "custom_h", [draw.custom(cell, cell.keep(new + share * (cell.state() - new)))]
    cell = CellBuilder()
    forget = cell.apply(SIGMOID, cell.gate(0) + cell.parameter(0) * cell.state())
    kept = cell.keep(forget * cell.state() + (1.0 - forget) * cell.apply(function("softsign"), cell.gate(1)))
    opened = cell.apply(function("hard_sigmoid"), cell.gate(2))
    yield "custom_c", [draw.custom(cell, opened * cell.apply(TANH, kept), own=1), draw.dense(UNITS, 2)]
    cell = CellBuilder()
    yield (
        "custom_stateless",
        [draw.custom(cell, cell.apply(TANH, cell.gate(0)) * cell.apply(SIGMOID, cell.gate(1)))],
    )


def _skips(draw: Drawing) -> Iterator[tuple[str, list[object]]]:
    same, none = np.eye(UNITS), np.zeros(UNITS)
    residual = Dense(weight=same, skip=same, bias=none)
    yield "residuals", [draw.lstm(), draw.lstm(UNITS), residual, draw.lstm(UNITS), residual]
    yield "residual_of_the_input", [draw.lstm(), draw.dense(UNITS, 4, skip=draw.array(4, INPUTS))]
    around = draw.dense(UNITS, 7, activation="tanh", skip=draw.array(7, UNITS), skips=3)
    yield "skip_around_two", [draw.gru(), draw.rnn(UNITS), draw.lstm(UNITS), around, draw.dense(7, 2)]
    relu = draw.dense(2, 3, activation="relu", input_relu=True, skip=draw.array(3, UNITS), skips=2)
    yield "skip_around_a_projection", [draw.lstm(), draw.lstm(UNITS, projection=2), relu]


def reads(*widths: tuple[int, int] | tuple[int, int, bool]) -> dict[str, object]:
    """What a layer reads: of each, how far back it is, its width, and whether a ReLU is in front."""
    return {"reads": tuple(Read(back=back, width=width, relu=bool(relu)) for back, width, *relu in widths)}


def _graphs(draw: Drawing) -> Iterator[tuple[str, list[object]]]:
    front = draw.dense(INPUTS, 4, activation="tanh")
    both = draw.dense(2 * UNITS, 3, **reads((1, UNITS), (2, UNITS)))
    yield "side_by_side", [front, draw.lstm(4), draw.lstm(4, **reads((2, 4))), both]
    four = reads((4, INPUTS), (3, UNITS, True), (1, UNITS), (2, UNITS))
    lstms = [draw.lstm(), draw.gru(UNITS), draw.lstm(INPUTS, **reads((3, INPUTS)))]
    yield "dense_of_four", [*lstms, draw.dense(INPUTS + 3 * UNITS, 3, activation="sigmoid", **four)]
    twice = draw.dense(2 * INPUTS, 4, activation="relu", **reads((1, INPUTS, True), (1, INPUTS)))
    two = draw.lstm(4 + INPUTS, **reads((1, 4), (2, INPUTS)))
    yield "lstm_of_two", [twice, two, draw.lstm(UNITS + 4, projection=2, **reads((1, UNITS), (2, 4)))]
    first, second = draw.gru(), draw.gru(UNITS + INPUTS, reset_after=False, **reads((2, INPUTS), (1, UNITS)))
    three = reads((3, INPUTS), (1, UNITS), (2, UNITS, True))
    yield "grus_of_several", [first, second, draw.gru(INPUTS + 2 * UNITS, **three)]
    rnns = [draw.rnn(), draw.rnn(), draw.rnn(INPUTS, **reads((3, INPUTS)))]
    rnns[1] = draw.rnn(INPUTS, **reads((2, INPUTS)))
    all_of_them = reads((1, UNITS), (2, UNITS), (3, UNITS), (4, INPUTS))
    linear = draw.rnn(3 * UNITS + INPUTS, activation=RELU, **all_of_them)
    yield "rnns_in_parallel", [*rnns, linear, draw.rnn(UNITS, **reads((3, UNITS)))]


def product_graphs() -> list[Network]:
    """Three networks of 3 inputs and 2 outputs, of GRUs side by side and products of two results."""
    rng, product = np.random.default_rng(2), CellBuilder()
    value = product.apply(TANH, product.gate(0)) * product.apply(SIGMOID, product.gate(1))
    cell = product.build("product", value)

    def rows(count: int, inputs: int) -> np.ndarray:
        return rng.normal(size=(count, inputs))

    def gru(inputs: int, **more: object) -> Gru:
        arrays = {"w_ih": rows(12, inputs), "w_hh": rows(12, 4)}
        return Gru(**arrays, bias_ih=np.zeros(12), bias_hh=np.zeros(12), **more)

    def times(inputs: int, **more: object) -> Custom:
        return Custom(cell=cell, w_ih=rows(8, inputs), w_hh=None, bias=np.zeros(8), **more)

    def network(*layers: Gru | Custom, **more: object) -> Network:
        inputs = sum(read.width for read in more["reads"]) if more else layers[-1].outputs
        head = Dense(weight=rows(2, inputs), bias=np.zeros(2), activation="sigmoid", **more)
        return Network(layers=(*layers, head))

    return [
        network(gru(3), gru(3, **reads((2, 3))), times(8, **reads((1, 4), (2, 4)))),
        network(gru(3), times(7, **reads((2, 3), (1, 4))), **reads((1, 4), (2, 4), (3, 3))),
        network(times(3), gru(4), gru(8, **reads((2, 4), (1, 4)))),
    ]


def _without_h(draw: Drawing) -> Iterator[tuple[str, list[object]]]:
    cell = CellBuilder()
    share = cell.apply(SIGMOID, cell.gate(0))
    kept = cell.keep(cell.state() + share * (cell.gate(1) - cell.state()))
    mean = draw.custom(cell, kept, w_hh=None)
    yield "min_gru", [mean]
    product = CellBuilder()
    glu = draw.custom(
        product,
        product.gate(0) * product.gate(1),
        inputs=UNITS + 4,
        w_hh=None,
        name="product",
        **reads((1, UNITS), (2, 4)),
    )
    front = draw.dense(INPUTS, 4, activation="tanh")
    after = mean.replace(w_ih=draw.array(2 * UNITS, 4), name="mean")
    yield "product_of_two", [front, after, glu, draw.dense(UNITS, 2, activation="relu")]
    cell = CellBuilder()
    kept = cell.keep(cell.parameter(0) * cell.state() + cell.apply(TANH, cell.gate(0)))
    leaky = draw.custom(cell, kept * cell.apply(SIGMOID, cell.gate(1)), own=1, w_hh=None)
    rows = {"w_ih": draw.array(2 * UNITS, UNITS + INPUTS), **reads((2, INPUTS), (1, UNITS))}
    yield "states_beside_an_lstm", [leaky.replace(parameters=leaky.parameters * 0.5), leaky.replace(**rows)]
    yield (
        "state_behind_an_lstm",
        [draw.lstm(), after.replace(w_ih=draw.array(2 * UNITS, UNITS)), draw.gru(UNITS)],
    )


def _norms(draw: Drawing) -> Iterator[tuple[str, list[object]]]:
    head = draw.dense(UNITS, 2)
    yield "norm", [draw.lstm(), draw.norm(UNITS, gain=False), head]
    rms = draw.norm(UNITS, centre=False, epsilon=0.0)
    yield "norms_around_an_rnn", [draw.norm(INPUTS), draw.rnn(), rms, draw.dense(UNITS, 2, input_relu=True)]
    small = draw.norm(UNITS, epsilon=1e-9)
    yield "norm_of_a_projection", [draw.lstm(projection=3), draw.norm(3), draw.gru(3), small]
    around = [draw.dense(2 * UNITS, UNITS, **reads((1, UNITS), (3, UNITS))), draw.norm(UNITS, centre=False)]
    last = draw.dense(UNITS + INPUTS, 2, **reads((1, UNITS), (6, INPUTS)))
    yield "norms_in_a_graph", [draw.lstm(), draw.norm(UNITS), draw.gru(UNITS), *around, last]
    yield (
        "norm_of_a_norm",
        [draw.gru(reset_after=False), draw.norm(UNITS, epsilon=0.1), small, draw.lstm(UNITS)],
    )


def _normed_lstms(draw: Drawing) -> Iterator[tuple[str, list[object]]]:
    gates, both = draw.norm(4 * UNITS), draw.norm(4 * UNITS, centre=False, epsilon=0.01)
    head, c = draw.dense(UNITS, 2), draw.norm(UNITS)
    biases = {"input_bias": draw.array(4 * UNITS), "hidden_bias": draw.array(4 * UNITS)}
    each = LstmNorms(input=gates, hidden=draw.norm(4 * UNITS, gain=False), cell=c, **biases)
    yield "layer_norm_lstm", [draw.lstm(norms=each), head]
    together = draw.lstm(norms=LstmNorms(hidden=both, together=True, hidden_bias=draw.array(4 * UNITS)))
    yield (
        "lstms_with_norms_of_sums",
        [together, draw.lstm(UNITS, norms=LstmNorms(hidden=both, cell=c, together=True))],
    )
    alone, two = (
        draw.lstm(norms=LstmNorms(cell=c), coupled=True, cell_clip=1.5),
        reads((1, UNITS, True), (2, INPUTS)),
    )
    several = draw.lstm(UNITS + INPUTS, norms=LstmNorms(input=gates, hidden=gates), **two)
    last = draw.lstm(2 * UNITS, norms=LstmNorms(hidden=both, together=True), **reads((1, UNITS), (2, UNITS)))
    yield "lstms_with_some_norms", [alone, several, last]
    kept = draw.lstm(norms=each.replace(kept=True), cell_clip=1.5)
    alone = draw.lstm(UNITS, norms=LstmNorms(cell=draw.norm(UNITS, epsilon=0.01), kept=True))
    yield "lstms_with_c_behind_its_norm", [kept, alone]


CELL_NETWORKS = {
    name: Network(name=name, layers=tuple(layers))
    for seed, kind in enumerate(
        (_lstms, _others, _customs, _skips, _graphs, _without_h, _norms, _normed_lstms)
    )
    for name, layers in kind(Drawing(seed))
}
"""Networks that the LSTM's own gate unit does not compute."""
