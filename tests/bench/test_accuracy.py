"""What rounding costs: others' arithmetic, one network's figures, and the command."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.lazy import torch
from support.small_builds import INPUTS, network, normal_lstm, rand
from typer.testing import CliRunner

from rtlstm import Bidirectional, ConfigurationError, Dense, Gru, Network, Rnn, ToolError, read_model
from rtlstm.bench import accuracy, cases, int8
from rtlstm.bench.accuracy import (
    EXACT,
    FINETUNED,
    NAIVE,
    PER_CHANNEL,
    PER_TENSOR,
    ROUNDED,
    RUNTIME,
    WIDTHS,
    measure_case,
)
from rtlstm.bench.cases import CASES, Case, find_cases
from rtlstm.bench.int8 import round_weights, run_int8, run_onnxruntime, to_onnx
from rtlstm.bench.peers import onnx_session
from rtlstm.cli.main import app
from rtlstm.gen.quantise.calibration import Calibration
from rtlstm.sim.reference import run_float
from rtlstm.zoo.entry import Metric, Subject

STEPS, LENGTHS = 12, np.array([12, 5, 9, 12, 7, 12])
TYPICAL, UNITS = 2, 4
IDENTITY = {"activation": {"name": "identity"}}


def gru(rng: np.random.Generator, inputs: int, units: int) -> Gru:
    sizes = {"w_ih": (3 * units, inputs), "w_hh": (3 * units, units)}
    biases = {name: rng.normal(size=3 * units) for name in ("bias_ih", "bias_hh")}
    return Gru(**{name: rng.normal(size=size) for name, size in sizes.items()}, **biases)


def networks() -> dict[str, Network]:
    rng = np.random.default_rng(2)

    def dense(inputs: int, **more: object) -> Dense:
        return Dense(weight=rng.normal(size=(3, inputs)), bias=rng.normal(size=3), **more)

    both = Bidirectional(forward=normal_lstm(rng, 4, 5), backward=normal_lstm(rng, 4, 5, reverse=True))
    rows = {
        "w_ih": rng.normal(size=(5, 4)),
        "w_hh": 0.2 * rng.normal(size=(5, 5)),
        "bias": rng.normal(size=5),
    }
    skip = {"skip": rng.normal(size=(3, 4)), "skip_relu": True}
    return {
        "lstm": Network(layers=(normal_lstm(rng, 4, 5), dense(5, activation="sigmoid"))),
        "both directions": Network(layers=(both, dense(10, input_relu=True))),
        "gru": Network(layers=(gru(rng, 4, 5), dense(5, activation="tanh", **skip))),
        "delay line": Network(layers=(Rnn(**rows, **IDENTITY), normal_lstm(rng, 5, 6))),
    }


def data_of(given: Network, state: bool = False) -> Calibration:
    x = np.random.default_rng(3).normal(size=(STEPS, len(LENGTHS), given.inputs))
    begin = None
    if state:
        found = run_float(given, x[:2])
        begin = found.h, found.c
    return Calibration.of(given, x, LENGTHS, begin)


@pytest.mark.parametrize("name", networks())
@pytest.mark.parametrize("state", [False, True])
def test_the_onnx_file_computes_the_network(name: str, state: bool) -> None:
    given = networks()[name]
    if state and given.whole_sequences:
        given = Network(layers=given.layers[1:])  # States of one direction alone are inputs.
        assert isinstance(given.layers[0], Dense)
    data = data_of(given, state and bool(given.pseudo_layers))
    feed = {"x": data.x.astype(np.float32), "lengths": LENGTHS.astype(np.int32)}
    for part, each in zip("hc", data.state or (), strict=False):
        feed |= {f"{part}{number}": values[None].astype(np.float32) for number, values in enumerate(each)}
    session = onnx_session(to_onnx(given, data.state is not None))
    names = {each.name for each in session.get_inputs()}
    y = session.run(None, {key: values for key, values in feed.items() if key in names})[0]
    wanted = run_float(given, data.x, data.state, LENGTHS).y
    np.testing.assert_allclose(y[data.alive], wanted[data.alive], atol=2e-5)


@pytest.mark.parametrize("name", ["lstm", "both directions"])
def test_exact_int8_is_onnxruntimes(name: str) -> None:
    given = networks()[name]
    data = data_of(given)
    wanted = run_float(given, data.x, lengths=LENGTHS).y
    exact = run_int8(given, data, per_channel=False)
    error = np.abs(exact - wanted)[data.alive].mean()
    peers = list(run_onnxruntime(given, data, per_channel=False))
    assert [peer.weights for peer in peers] == ["QInt8", "QUInt8"]
    # Sums of the first kind may saturate, by the processor; zeros of the second kind are elsewhere.
    assert min(np.abs(peer.y - exact)[data.alive].mean() for peer in peers) < error < 0.1
    assert all(peer.operators == ("DynamicQuantizeLSTM", "MatMulInteger") for peer in peers)


@pytest.mark.parametrize("name", networks())
@pytest.mark.parametrize("per_channel", [False, True])
def test_exact_int8_is_near_float(name: str, per_channel: bool) -> None:
    given = networks()[name]
    data = data_of(given, state=not given.whole_sequences)
    wanted = run_float(given, data.x, data.state, LENGTHS).y
    assert 0 < np.abs(run_int8(given, data, per_channel) - wanted)[data.alive].mean() < 0.1


def test_what_onnx_does_not_compute_is_named() -> None:
    given = network()
    strange = given.replace(layers=(given.layers[0].replace(clip=1.0), *given.layers[1:]))
    with pytest.raises(ConfigurationError, match="has no layer like"):
        to_onnx(strange)
    dense = given.layers[-1].replace(activation="softplus")
    with pytest.raises(ConfigurationError, match="has no softplus"):
        to_onnx(given.replace(layers=(*given.layers[:-1], dense)))


def test_plain_rounding_has_one_scale_for_each_matrix() -> None:
    given = networks()["both directions"]
    rounded = round_weights(given, 4)
    for one, other in zip(given.pseudo_layers, rounded.pseudo_layers, strict=True):
        for weights, found in ((one.w_ih, other.w_ih), (one.w_hh, other.w_hh)):
            steps = found / (np.abs(weights).max() / 7)
            np.testing.assert_allclose(steps, np.round(steps), atol=1e-9)
            assert np.abs(found - weights).max() <= np.abs(weights).max() / 14 + 1e-12
        np.testing.assert_array_equal(one.bias, other.bias)


def tiny(lengths: bool = True) -> Case:
    """A network whose sequences after the first two are judged."""

    def load(_: object) -> Subject:
        torch.manual_seed(1)
        model = read_model(torch.nn.LSTM(INPUTS, UNITS))
        count = 6 if lengths else 1
        x = rand(STEPS if lengths else 40, count, INPUTS, seed=4).astype(np.float64).clip(-1, 1)
        valid = LENGTHS if lengths else None
        wanted = run_float(model.network, x, lengths=valid).y

        def judge(y: np.ndarray, begin: int) -> float:
            same = (y > 0) == (wanted > 0)
            return 100.0 * float(np.mean(same[:, begin:] if lengths else same[begin:]))

        return Subject(model, x, TYPICAL if lengths else 20, judge, valid)

    return Case("tiny", "drawn", Metric("signs as in float, %", 0.0), load)


@pytest.mark.parametrize("lengths", [True, False])
def test_figures_of_a_network(lengths: bool) -> None:
    case = tiny(lengths)
    found = measure_case(case, WIDTHS[:3], finetune=False)
    assert not found.missing and found.in_float == 100.0
    names = [
        f"{ROUNDED} 16/16", f"{NAIVE} 16", f"{ROUNDED} 8/16", f"{NAIVE} 8", f"{ROUNDED} 8/8",
        *(f"{who}, {scales} 8/8" for who in (EXACT, RUNTIME) for scales in (PER_TENSOR, PER_CHANNEL)),
    ]  # fmt: skip
    assert [each.name for each in found.figures] == names
    fine, coarse = (found.find(ROUNDED, bits, bits) for bits in (16, 8))
    assert fine is not None and coarse is not None
    assert 0 < fine.relative_rms < 0.05 * coarse.relative_rms and fine.seconds is not None
    int8 = found.int8(PER_TENSOR)
    assert int8 is not None and int8.relative_rms < 0.1
    assert found.is_worse(coarse, fine) and not found.is_worse(fine, coarse)
    steps = LENGTHS[TYPICAL:].sum() if lengths else 20
    assert found.outputs == steps * UNITS
    last = measure_case(replace(case, last=True), [(16, 16)], finetune=False)
    assert last.outputs == (len(LENGTHS) - TYPICAL if lengths else 1) * UNITS


def test_finetuned_networks_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accuracy, "_UPDATES", 2)
    plain, found = (measure_case(tiny(lengths=False), [(8, 8), (4, 8)], each) for each in (False, True))
    names = [f"{ROUNDED} 8/8", f"{NAIVE} 8", f"{ROUNDED} 4/8", f"{FINETUNED} 4/8", f"{NAIVE} 4"]
    assert [each.name for each in found.figures[:5]] == names
    # Training begins with the network that is rounded only.
    one, other = (each.find(ROUNDED, 4, 8) for each in (plain, found))
    assert one is not None and other is not None and one.relative_rms == other.relative_rms


def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str, *_: object) -> None:
        raise ToolError(f"this needs {name}")

    monkeypatch.setattr(int8, "import_extra", missing)
    found = measure_case(tiny(), [(8, 8)], finetune=False)
    assert found.missing == ("this needs onnx",)
    assert found.find(f"{EXACT}, {PER_CHANNEL}", 8, 8) and not found.find(f"{RUNTIME}, {PER_CHANNEL}", 8, 8)
    nothing = measure_case(replace(tiny(), load=lambda _: missing("a registry")), [(8, 8)], finetune=False)
    assert nothing.missing == ("this needs a registry",) and not nothing.figures


def test_onnxruntime_that_leaves_a_gru_in_float_is_no_int8() -> None:
    def load(_: object) -> Subject:
        model = read_model(torch.nn.GRU(INPUTS, UNITS))
        data = data_of(model.network)
        return Subject(model, data.x, TYPICAL, lambda y, begin: 0.0, data.lengths)

    found = measure_case(replace(tiny(), load=load), [(8, 8)], finetune=False)
    runtime = found.find(f"{RUNTIME}, {PER_TENSOR}", 8, 8)
    assert runtime is not None and "GRU" in runtime.detail
    assert found.int8(PER_TENSOR) == found.find(f"{EXACT}, {PER_TENSOR}", 8, 8)


def invoke(*words: object) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, ["bench", *map(str, words)])
    return done.exit_code, done.stdout, " ".join(done.stderr.split())


def test_the_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def nothing(_: object) -> Subject:
        raise ToolError("no network without its package")

    absent = replace(tiny(), name="absent", load=nothing)
    monkeypatch.setattr(cases, "CASES", {"tiny": tiny(), "absent": absent})
    folder, csv = tmp_path / "bench", tmp_path / "a.csv"
    code, out, err = invoke("--accuracy", "--quick", "-o", folder, "--json", "--csv", csv)
    assert code == 0, err
    found = json.loads(out)
    assert found["passed"]
    assert [case["name"] for case in found["cases"]] == ["tiny", "absent"]
    assert found["notes"] == ["absent: no network without its package"]
    assert {(each["data_bits"], each["scales"], each["of"]) for each in found["comparisons"]} == {
        (bits, scales, 1) for bits in (16, 8) for scales in (PER_TENSOR, PER_CHANNEL)
    }
    assert not folder.exists()  # Nothing is left to go on from.
    assert "figures.rounded 8/16.relative_rms" in csv.read_text().splitlines()[0]
    code, out, _ = invoke("--accuracy", "tiny", "-o", folder)
    assert code == 0
    assert "signs as in" in out and "onnxruntime" in out and "worse than int8" in out


def test_names_and_options_that_do_not_fit() -> None:
    code, _, err = invoke("--accuracy", "silero")
    assert code == 2 and "did you mean silero-vad?" in err
    code, _, err = invoke("--finetuned")
    assert code == 2 and "--finetuned needs --accuracy" in err
    code, _, err = invoke("--accuracy", "--finetuned", "--quick")
    assert code == 2 and "leave out one of both" in err
    for option in ("--estimates", "--link", "--no-rtl"):
        code, _, err = invoke("--accuracy", option)
        assert code == 2 and "--accuracy is a measurement of its own" in err


@pytest.mark.parametrize(
    "name", [each if each == "vollo" else pytest.param(each, marks=pytest.mark.slow) for each in CASES]
)
def test_networks_and_data(name: str) -> None:
    """Float outputs on data that calibrate nothing are judged to be float's."""
    (case,) = find_cases([name])
    subject = case.load(None)
    y = run_float(subject.model.network, subject.x, subject.state, subject.lengths).y
    assert subject.held_out.any() and np.isfinite(y).all()
    value = subject.judge(y, subject.typical)
    perfect = 0.0 if case.metric.less_is_better else 1.0 if case.metric.name.startswith("cosine") else 100.0
    # These two are judged by the truth.
    wanted = {"gait-phase": 0.135, "digits": 96.4}.get(name, perfect)
    assert value == pytest.approx(wanted, abs=0.5 if name == "digits" else 1e-2)
