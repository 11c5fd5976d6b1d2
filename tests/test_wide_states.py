"""States beyond +-1 in which sequences begin: h holds them, in golden models, RTL, training and accuracy."""

import json
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.cell_networks import CELL_NETWORKS
from support.golden_runs import check_trained, equals_second, golden_outputs, rms_error
from support.lazy import torch, train
from support.loadable_builds import stacked
from support.quick import quick
from support.random_builds import make_case
from support.random_sequences import make_sequence_case
from support.sequence_checks import check_device as check_sequences
from support.step_checks import check_device

from rtlstm import ConfigurationError, InputError, Manifest, SaturationWarning, WeightImage, compile
from rtlstm.gen.accuracy.measure import measure_errors
from rtlstm.gen.accuracy.samples import Samples
from rtlstm.gen.builds.accuracy import measure_build
from rtlstm.gen.builds.compare import compare
from rtlstm.gen.builds.generate import generate_build
from rtlstm.gen.frontends import read_if_needed
from rtlstm.gen.frontends.reading import InitialState
from rtlstm.gen.quantise.calibration import Calibration
from rtlstm.gen.quantise.quantiser import QuantizationSettings, quantise
from rtlstm.gen.quantise.target import TargetHardware
from rtlstm.sim.reference import run_float
from rtlstm.spec.network import Bidirectional, Gru, Lstm, Network, Rnn
from rtlstm.spec.numerics import Numerics, QuantizedNetwork
from rtlstm.spec.packing import unpack
from rtlstm.spec.parameters import Parameters

NARROW = QuantizationSettings(weight_bits=8, data_bits=8, gate_bits=9, cell_bits=12)
FINE = QuantizationSettings()
SEQUENCES = 3


def layer(kind: str, inputs: int, units: int, seed: int = 0, **more: Any) -> Any:
    rng = np.random.default_rng(seed)
    rows = {"lstm": 4, "gru": 3, "rnn": 1}[kind] * units
    biases = ("bias_ih", "bias_hh") if kind == "gru" else ("bias",)
    arrays = {"w_ih": 0.5 * rng.normal(size=(rows, inputs)), "w_hh": 0.5 * rng.normal(size=(rows, units))}
    arrays |= {name: 0.3 * rng.normal(size=rows) for name in biases}
    return {"lstm": Lstm, "gru": Gru, "rnn": Rnn}[kind](name=f"{kind}{seed}", **arrays, **more)


def both(kind: str, merge: str = "concat", **more: Any) -> Network:
    directions = layer(kind, 3, 5, **more), layer(kind, 3, 5, seed=1, reverse=True, **more)
    return Network(layers=(Bidirectional(forward=directions[0], backward=directions[1], merge=merge),))


NETWORKS = {
    "lstm": Network(layers=(layer("lstm", 3, 6),)),
    "lstms": Network(layers=(layer("lstm", 3, 6), layer("lstm", 6, 4, seed=1))),
    "lstm_dense": stacked(3, 6, dense=((2, "sigmoid"), (3, "identity"))),
    "gru": Network(layers=(layer("gru", 3, 6),)),
    "gru_reset_before": Network(layers=(layer("gru", 3, 6, reset_after=False),)),
    "rnn": Network(layers=(layer("rnn", 3, 6),)),
    "mixed": Network(layers=(layer("gru", 3, 6), layer("rnn", 6, 4, seed=1), layer("lstm", 4, 5, seed=2))),
    "projection": CELL_NETWORKS["projection_last"],
    "custom_h": CELL_NETWORKS["custom_h"],
    "both_lstms": both("lstm"),
    "both_grus": both("gru"),
    "product": both("gru", "product"),
    "sum_of_rnns": both("rnn", "sum"),
}


def inputs(network: Network, steps: int = 8) -> np.ndarray:
    return np.random.default_rng(7).uniform(-1, 1, (steps, SEQUENCES, network.inputs))


def begin(network: Network, reach: float, *others: float) -> InitialState:
    """A state of each layer, ``(units,)``, whose h reaches so far; the last number is that of all others."""
    rng, reaches = np.random.default_rng(3), (reach, *others)
    h = []
    for index, one in enumerate(network.pseudo_layers):
        values = rng.uniform(-1, 1, one.outputs)
        h.append(values / np.abs(values).max() * reaches[min(index, len(others))])
    lstms = [one for one in network.pseudo_layers if isinstance(one, Lstm)]
    return tuple(h), tuple(rng.uniform(-0.5, 0.5, one.units) for one in lstms)


def tiled(state: InitialState, sequences: int = SEQUENCES) -> Any:
    return tuple(tuple(np.tile(part, (sequences, 1)) for part in parts) for parts in state)


def calibrated(
    network: Network, state: InitialState, settings: QuantizationSettings = FINE, **more: Any
) -> QuantizedNetwork:
    return quantise(network, settings, inputs(network), state=tiled(state), **more)


def fractions(quantised: QuantizedNetwork) -> list[int]:
    shapes = quantised.shapes
    return [shapes[at + shape.feedback].output.fraction for at, shape in enumerate(shapes) if shape.recurrent]


def error(network: Network, quantised: QuantizedNetwork, state: InitialState) -> float:
    """The largest error from a state, with the driver's rounding of it, silent about saturation."""
    data = Calibration.of(network, inputs(network), state=tiled(state))
    y = golden_outputs(quantised, data.x, data.integer_state(quantised))
    return float(np.abs(y - run_float(network, data.x, data.state).y).max())


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("reach", [1.6, 5.0])
def test_formats_hold_the_states_of_calibration_data_and_of_models(name: str, reach: float) -> None:
    network = NETWORKS[name]
    state = begin(network, reach)
    for quantised in (
        calibrated(network, state),
        quantise(network, FINE, inputs(network), initial_state=state, state=tiled(begin(network, 0.5))),
        quantise(network, FINE, initial_state=state),
    ):
        formats = [shape.output for shape in quantised.shapes]
        assert all(formats[at + shape.feedback].limit >= reach - 1e-3 for at, shape in recurrent(quantised))
        assert error(network, quantised, state) < 2e-3 * reach


def recurrent(quantised: QuantizedNetwork) -> list[tuple[int, Any]]:
    return [(at, shape) for at, shape in enumerate(quantised.shapes) if shape.recurrent]


@pytest.mark.parametrize("name", ["lstm", "gru", "gru_reset_before", "rnn"])
def test_each_doubling_takes_a_bit_of_the_fraction(name: str) -> None:
    network, found = NETWORKS[name], []
    for reach in (0.0, 0.9, 1.0, 1.001, 1.6, 1.99, 2.0, 2.1, 100.0):
        (fraction,) = fractions(calibrated(network, begin(network, reach)))
        found.append(fraction)
    # 2 itself is beyond the last code of s16.14.
    assert found == [15, 15, 15, 14, 14, 14, 13, 13, 8]


@pytest.mark.parametrize("name", NETWORKS)
def test_states_within_one_change_nothing(name: str) -> None:
    network = NETWORKS[name]
    plain = quantise(network, FINE, initial_state=begin(network, 0.0))
    held = quantise(network, FINE, initial_state=begin(network, 0.01))
    assert held.numerics == plain.numerics and held.shapes == plain.shapes
    assert held.numerics.hidden_whole_bits == 0


def test_a_layer_at_a_time_where_each_has_a_format() -> None:
    """The fused unit rounds the h of all LSTM layers alike; cells have formats of their own."""
    assert fractions(calibrated(NETWORKS["mixed"], begin(NETWORKS["mixed"], 0.9, 3.0, 0.5))) == [15, 13, 15]
    assert fractions(calibrated(NETWORKS["lstms"], begin(NETWORKS["lstms"], 0.9, 3.0))) == [13, 13]
    network = NETWORKS["mixed"]
    shared = calibrated(network, begin(network, 0.9, 3.0, 0.5), hardware=TargetHardware(headroom=2))
    assert fractions(shared) == [13, 13, 13]


def test_numerics_say_what_their_graphs_do() -> None:
    numerics = calibrated(NETWORKS["lstm"], begin(NETWORKS["lstm"], 1.6)).numerics
    assert numerics.hidden_whole_bits == 1 and str(numerics.hidden) == "s16.14"
    assert Numerics(**json.loads(numerics.model_dump_json())) == numerics
    with pytest.raises(ConfigurationError, match="must be s16.15, as hidden_whole_bits says"):
        numerics.replace(hidden_whole_bits=0)


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("rounding", ["half_up", "odd"])
def test_the_second_model_agrees(name: str, rounding: Any) -> None:
    network = NETWORKS[name]
    if rounding == "odd" and not all(isinstance(one, Lstm) for one in network.pseudo_layers):
        return
    if rounding == "odd" and name == "projection":
        return
    settings = NARROW.replace(hidden_rounding=rounding)
    state = begin(network, 3.0)
    quantised = calibrated(network, state, settings)
    data = Calibration.of(network, inputs(network), state=tiled(state))
    x, begun = quantised.numerics.quantise_input(data.x), data.integer_state(quantised)
    assert begun is not None
    equals_second(quantised, x, begun)


@pytest.mark.parametrize("name", ["lstms", "mixed", "gru_reset_before", "projection"])
def test_measured_by_parts(name: str) -> None:
    """With all parts rounded the codes are the same."""
    network = NETWORKS[name]
    state, fine = begin(network, 3.0), FINE.replace(quick=True)
    quantised = calibrated(network, state, fine)
    x = inputs(network)
    narrow = calibrated(network, state, NARROW.replace(quick=True))
    plain = [at for at, shape in recurrent(narrow) if not shape.feedback]
    assert all(narrow.shapes[at].output.fraction == 5 for at in plain)
    found = measure_errors(quantised, Samples.of(x, network.inputs), network)
    assert found.output.rms_error == pytest.approx(rms_error(network, quantised, x), rel=1e-3)


@pytest.mark.usefixtures("without_verilog")
@pytest.mark.parametrize("name", ["lstm", "gru", "mixed"])
def test_accuracy_begins_in_the_state_of_the_model_or_in_given_ones(name: str, tmp_path: Path) -> None:
    network, folder = NETWORKS[name], tmp_path / "build"
    x, model, other = inputs(network), begin(network, 0.8), tiled(begin(network, 0.3))
    sizes = {"settings": NARROW, "parameters": Parameters(lanes=8, macs=2)}
    generate_build(read_if_needed(network).replace(initial_state=model), folder, calibration=x, **sizes)
    manifest = Manifest.load(folder)
    quantised = unpack(WeightImage.load(folder / "weights.bin", manifest), manifest)
    for given, state in ((None, tiled(model)), (other, other)):
        data = Calibration.of(network, x, state=state)
        y = golden_outputs(quantised, x, data.integer_state(quantised))
        error = y - run_float(network, x, data.state).y
        found = measure_build(folder, x, model=network, state=given)
        assert found.output.rms_error == pytest.approx(np.sqrt(np.mean(error**2)), rel=1e-3)
    with pytest.raises(InputError, match="the initial states of x must be a pair"):
        measure_build(folder, x, state=other[0])


CASES = {
    "lstm": ("lstm", {}),
    "odd": ("lstms", {"hidden_rounding": "odd"}),
    "direct": ("lstm_dense", {"tables": "direct"}),
    "odd_direct": ("lstm", {"tables": "direct", "hidden_rounding": "odd"}),
    "gru": ("gru", {}),
    "gru_reset_before": ("gru_reset_before", {"tables": "direct"}),
    "mixed": ("mixed", {}),
    "rnn": ("rnn", {}),
}
BOTH = {"both_lstms": {"hidden_rounding": "odd"}, "both_grus": {}, "product": {}}


@pytest.mark.rtl
@pytest.mark.parametrize(
    ("name", "backend", "reach"),
    quick(
        [(name, *run) for name in CASES for run in (("icarus", 3.0), ("verilator", 1.6), ("icarus", 300.0))],
        ("lstm", "icarus", 3.0),
    ),
)
def test_rtl_equals_golden(name: str, backend: str, reach: float, tmp_path: Path) -> None:
    """Every bit from states anywhere in h's range, and every cycle."""
    of, more = CASES[name]
    network, settings = NETWORKS[of], NARROW.replace(**more)
    quantised = calibrated(network, begin(network, reach), settings)
    assert max(fractions(quantised)) < 7
    result = 1 if name in ("lstm", "direct", "gru") else 0
    parameters = Parameters(lanes=8, macs=2, tables=settings.tables)
    parameters = parameters.replace(pipeline=parameters.pipeline.model_copy(update={"result": result}))
    check_device(make_case(1, quantised, parameters, steps=4), tmp_path, backend)


@pytest.mark.slow
@pytest.mark.rtl
@pytest.mark.parametrize(("name", "backend"), list(product(BOTH, ("icarus", "verilator"))))
def test_rtl_of_both_directions_equals_golden(name: str, backend: str, tmp_path: Path) -> None:
    network = NETWORKS[name]
    quantised = calibrated(network, begin(network, 1.6), NARROW.replace(**BOTH[name]))
    assert {fractions(quantised)[0]} == {*fractions(quantised)} == {6}
    case = make_sequence_case(2, quantised, Parameters(lanes=8, macs=2, max_steps=5), steps=4)
    check_sequences(case, tmp_path, backend)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["lstm", "gru"])
def test_a_device_holds_them_or_refuses_the_network(name: str, tmp_path: Path) -> None:
    """A loadable device has one range of h; one with a fixed program has its layers' ranges."""
    network, other = NETWORKS[name], Network(layers=(layer(name, 2, 4, seed=5),))
    x, far, near = inputs(network), tiled(begin(network, 3.0)), tiled(begin(network, 0.5))
    sizes = {"settings": NARROW, "parameters": Parameters(lanes=8, macs=2), "calibration": x}
    for folder, more in (("narrow", {}), ("wide", {"calibration_state": far})):
        generate_build(network, tmp_path / folder, capacities={"vector_words": 16}, **sizes, **more)
    given: dict[str, Any] = {"calibration": inputs(other)}
    for state in (far, near):
        given["calibration_state"] = tiled(begin(other, 3.0 if state is far else 0.5))
        made = generate_build(other, tmp_path / "on_wide", device=tmp_path / "wide", **given)
        assert made.numerics.hidden_whole_bits == 2 and made.layers[0].output.fraction == 5
        texts = [(tmp_path / folder / made.rtl).read_text() for folder in ("on_wide", "wide")]
        assert texts[0] == texts[1]
    own = begin(other, 3.0)
    model = read_if_needed(other)
    for read, state in ((model, tiled(own)), (model.replace(initial_state=own), None)):
        with pytest.raises(
            ConfigurationError,
            match=rf"h of layer '{name}5' must be within \+-0.992188, the range that the device has for it, "
            "but sequences begin with 3; generate the device with `calibration_state` that reaches as far, "
            "or a build of its own",
        ):
            generate_build(
                read, tmp_path / "no", device=tmp_path / "narrow", **given | {"calibration_state": state}
            )
    generate_build(network, tmp_path / "fixed", **sizes, calibration_state=far)
    assert (
        generate_build(network, tmp_path / "again", device=tmp_path / "fixed").layers[0].output.fraction == 5
    )
    with pytest.raises(ConfigurationError, match=r"must be within \+-3.96875, .* begin with 5;"):
        far_off = read_if_needed(network).replace(initial_state=begin(network, 5.0))
        generate_build(far_off, tmp_path / "no", device=tmp_path / "fixed")


@pytest.mark.slow
@pytest.mark.rtl
@pytest.mark.parametrize("name", ["lstm", "gru"])
def test_another_network_on_a_wide_device(name: str, tmp_path: Path) -> None:
    network, other = NETWORKS[name], Network(layers=(layer(name, 2, 4, seed=5),))
    made = {"settings": NARROW, "parameters": Parameters(lanes=8, macs=2), "calibration": inputs(network)}
    far = {"calibration_state": tiled(begin(network, 3.0))}
    generate_build(network, tmp_path / "device", capacities={"vector_words": 16}, **made, **far)
    model = read_if_needed(other).replace(initial_state=begin(other, 2.5))
    generate_build(model, tmp_path / "other", device=tmp_path / "device")
    found, _ = compare(tmp_path / "other", inputs(other)[:4], simulator="icarus", verify=False)
    assert found.passed, found.first_difference


@pytest.mark.usefixtures("without_verilog")
@pytest.mark.parametrize("name", quick(["lstm", "gru", "rnn", "mixed", "both_grus"], "lstm"))
def test_the_driver_names_the_option_that_helps(name: str, tmp_path: Path) -> None:
    network = NETWORKS[name]
    x, state = inputs(network), tiled(begin(network, 1.6))
    sizes = {"lanes": 8, "macs": 2, **({"max_steps": 8} if network.whole_sequences else {})}
    plain = compile(network, calibration=x, folder=tmp_path / "plain", **sizes)
    with pytest.warns(SaturationWarning) as caught:
        plain.run(x, state=state)
    assert str(caught[0].message).endswith(
        "values of h_0 were outside +-0.999969 and were saturated; generate with calibration data that begin "
        "with such states (`calibration_state`)"
    )
    helped = compile(network, calibration=x, calibration_state=state, folder=tmp_path / "helped", **sizes)
    # Warnings are errors.
    y, _ = helped.run(x, state=state)
    np.testing.assert_allclose(y, run_float(network, x, state).y, atol=2e-3)
    formats = {each.use: (each.fraction, each.limit) for each in helped.report().formats}
    assert 14 in {fraction for use, (fraction, _) in formats.items() if use.startswith("hidden state h")}
    told = [
        text for text in helped.report().assumptions if "to hold the states in which sequences begin" in text
    ]
    assert len(told) == 1 and "reaches +-2" in told[0]
    assert not any("sequences begin: beyond" in text for text in plain.report().assumptions)


@pytest.mark.usefixtures("without_verilog")
def test_the_end_of_the_range_is_its_last_code(tmp_path: Path) -> None:
    """States of +-1 are as many as there are: they become the last code, a step less, and nothing is told."""
    network = NETWORKS["lstm"]
    build = compile(network, calibration=inputs(network), folder=tmp_path / "b", lanes=8, macs=2)
    ones = tiled((tuple(np.ones(6) for _ in "h"), tuple(np.zeros(6) for _ in "c")))
    y, _ = build.run(inputs(network), state=ones)
    np.testing.assert_allclose(y, run_float(network, inputs(network), ones).y, atol=1e-3)


@pytest.mark.usefixtures("without_verilog")
@pytest.mark.parametrize(
    ("kind", "calibration"),
    quick(product(["LSTM", "GRU", "RNN"], [None, "data", "another state"]), ("GRU", "data")),
)
def test_learned_states_never_saturate(kind: str, calibration: str | None, tmp_path: Path) -> None:

    class Learned(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn = getattr(torch.nn, kind)(3, 6)
            self.h = torch.nn.Parameter(torch.linspace(-2.7, 1.4, 6).reshape(1, 1, 6))
            self.c = torch.nn.Parameter(torch.linspace(-30.0, 20.0, 6).reshape(1, 1, 6))

        def forward(self, x: Any) -> Any:
            h, c = (part.expand(-1, x.shape[1], -1).contiguous() for part in (self.h, self.c))
            return self.rnn(x, (h, c) if kind == "LSTM" else h)[0]

    torch.manual_seed(1)
    model = Learned().eval()
    x = np.random.default_rng(2).uniform(-1, 1, (9, SEQUENCES, 3)).astype("f")
    given: dict[str, Any] = {} if calibration is None else {"calibration": x}
    if calibration == "another state":
        zero = (np.zeros((1, SEQUENCES, 6)),)
        given["calibration_state"] = zero * 2 if kind == "LSTM" else (zero[0], ())
    build = compile(model, folder=tmp_path / "b", lanes=8, macs=2, **given)
    y, _ = build.run(x)
    np.testing.assert_allclose(y, model(torch.from_numpy(x)).detach().numpy(), atol=4e-3)
    assert build.report().accuracy.max_abs_error < 4e-3


@pytest.mark.parametrize(
    ("kind", "ranges"), quick(product(["LSTM", "GRU"], [False, True]), ("LSTM", True), ("GRU", False))
)
def test_training_gives_the_same_bits(kind: str, ranges: bool) -> None:
    torch.manual_seed(0)
    module = getattr(torch.nn, kind)(3, 6)
    x = np.random.default_rng(7).uniform(-1, 1, (6, 4, 3))
    h, c = np.full((1, 4, 6), 1.6), np.full((1, 4, 6), 0.5)
    state = (h, c) if kind == "LSTM" else (h, ())
    options = {"calibration": x, "data_bits": 8, "train_ranges": ranges}
    q = train.prepare(module, calibration_state=state, **options)
    given = [torch.from_numpy(part) for part in (h, c)]
    begun = Calibration.of(q.network, x, state=state).integer_state(q.quantised())
    assert fractions(check_trained(q, x, tuple(given) if kind == "LSTM" else given[0], begun)) == [6]
    # The range of h follows from states alone: it is none that is trained.
    assert q.ranges is None or all(name in ("input", "preactivation", 0) for name in q.ranges.names)
    kept = q.state_dict()
    plain = train.prepare(module, **options)
    assert fractions(plain.quantised()) == [7]
    plain.load_state_dict(kept)
    assert fractions(plain.quantised()) == [6]
    # A checkpoint from before there were such ranges begins with zeros.
    del kept["_extra_state"]["begins"]
    q.load_state_dict(kept)
    assert fractions(q.quantised()) == [7]
