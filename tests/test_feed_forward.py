"""Networks without a recurrent layer: every bit is golden's, every cycle is predicted."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from support.commands import Outcome
from support.loadable_builds import build_for, make_device, stacked
from support.quick import quick
from support.random_builds import make_case
from support.small_builds import NARROW
from support.step_checks import check_device
from test_loadable import SMALL, switch

from rtlstm import Dense, InputError, Lstm, Network, Parameters, compile
from rtlstm.gen.frontends.arithmetic import join_outputs
from rtlstm.gen.frontends.flow import Flow
from rtlstm.gen.frontends.reading import ReportBuilder
from rtlstm.gen.quantise.quantiser import quantise
from rtlstm.sim.reference import run_float
from rtlstm.spec.activations.functions import RELU, SIGMOID, TANH
from rtlstm.spec.family import Pipeline
from rtlstm.spec.layout import join_frames

pytestmark = pytest.mark.rtl


def with_residual(width: int = 5) -> Network:
    """A dense layer, and one that adds the input to what it makes of its results."""
    rng = np.random.default_rng(3)
    first = Dense(weight=rng.normal(size=(7, width)), bias=rng.normal(size=7), activation="relu")
    second = Dense(
        weight=rng.normal(size=(width, 7)), bias=rng.normal(size=width), skip=np.eye(width), skips=2
    )
    return Network(layers=(Dense(weight=np.eye(width), bias=np.zeros(width)), first, second))


def with_heads() -> Network:
    """An LSTM with two heads side by side, of which one has two layers."""
    normal = np.random.default_rng(7).normal
    body = Lstm(w_ih=normal(size=(20, 3)), w_hh=normal(size=(20, 5)), bias=normal(size=20))
    flow = Flow.begin(3).recurrent(body, "body")
    dense = [(normal(size=shape), normal(size=shape[0])) for shape in ((2, 5), (4, 5), (3, 4))]
    turn = flow.linear("turn", "turn", *dense[0]).activate(TANH, "turn", "turn")
    push = flow.linear("inner", "inner", *dense[1]).activate(RELU, "inner", "inner")
    push = push.linear("push", "push", *dense[2]).activate(SIGMOID, "push", "push")
    joined, parts = join_outputs([("turn", turn), ("the push", push)], ReportBuilder("heads"))
    return joined.network("heads", parts)


def with_strides() -> Network:
    """Three frames a step: a convolution of stride 3, and one whose delays are two steps long."""
    rng = np.random.default_rng(5)
    flow = Flow.begin(3).convolve("slow", "slow", rng.normal(size=(5, 3, 4)), rng.normal(size=5), 1, 3, 1)
    flow = flow.activate(RELU, "relu", "relu")
    flow = flow.convolve("back", "back", rng.normal(size=(4, 5, 2)), rng.normal(size=4), 2, 1, 0)
    return flow.network("strides")


NETWORKS = {
    "one layer": (stacked(5, dense=((3, "identity"),)), Parameters(lanes=4, macs=2, streams=2)),
    "three layers": (
        stacked(6, dense=((11, "relu"), (9, "tanh"), (3, "sigmoid"))),
        Parameters(lanes=8, macs=4, gate_units=2, beat_in=2, beat_out=2),
    ),
    "registered": (
        stacked(3, dense=((9, "leaky_relu"), (4, "tanh"))),
        Parameters(lanes=4, macs=3, streams=3, beat_in=3, pipeline=Pipeline(accept=1, operand=4)),
    ),
    "a word in a beat": (stacked(2, dense=((3, "relu"),)), Parameters(lanes=4, macs=1)),
    "a vector in a beat": (stacked(4, dense=((3, "tanh"),)), Parameters(lanes=4, macs=4, beat_in=4)),
    "the drain is the limit": (
        stacked(8, dense=((48, "identity"),)),
        Parameters(lanes=16, macs=8, beat_in=8),
    ),
    "a longest sequence": (
        stacked(3, dense=((2, "identity"),)),
        Parameters(lanes=4, macs=3, beat_in=3, max_steps=40),
    ),
    "a residual": (with_residual(), Parameters(lanes=8, macs=2, streams=2)),
}


@pytest.mark.parametrize("name", quick(NETWORKS, "a residual"))
def test_network(name: str, tmp_path: Path) -> None:
    """With stalls, streams in any order and outputs that are not wanted."""
    network, parameters = NETWORKS[name]
    case = make_case(1, quantise(network, NARROW), parameters, 8)
    assert case.manifest.program.body == 0 and case.manifest.cycles.recurrent_cycles == 0
    check_device(case, tmp_path, "icarus")


@pytest.mark.slow
def test_a_loadable_core_takes_both_kinds(tmp_path: Path) -> None:
    """From a network with states to one without, and back."""
    device = make_device(stacked(3, 5, dense=((2, "sigmoid"),)), SMALL)
    switch(device, [build_for(stacked(6, dense=((9, "relu"), (4, "tanh"))), device)], "icarus", tmp_path)


@pytest.mark.slow
def test_a_loadable_core_takes_one_layer(tmp_path: Path) -> None:
    """Its step is shorter than its outputs take to leave: the program has many idle cycles."""
    device = make_device(stacked(3, 5, dense=((2, "sigmoid"),)), SMALL)
    wide = build_for(stacked(6, dense=((8, "identity"),)), device)
    assert wide.manifest.program.ops[0].idle_cycles > device.manifest.parameters.partial_to_add
    switch(device, [wide], "icarus", tmp_path)


@pytest.mark.slow
def test_a_loadable_core_made_from_one(tmp_path: Path) -> None:
    device = make_device(stacked(6, dense=((9, "relu"), (4, "tanh"))), SMALL)
    switch(device, [build_for(stacked(3, 5, dense=((2, "sigmoid"),)), device)], "icarus", tmp_path)


def test_frames_of_strides(tmp_path: Path) -> None:
    """Bits and cycles of a core whose step takes three frames."""
    case = make_case(2, quantise(with_strides(), NARROW), Parameters(lanes=8, macs=2, streams=2), 8)
    assert case.manifest.program.inputs == 9
    check_device(case, tmp_path, "icarus")


@pytest.mark.slow
def test_heads(tmp_path: Path) -> None:
    """Bits and cycles of heads that are computed one after the other."""
    case = make_case(3, quantise(with_heads(), NARROW), Parameters(lanes=8, macs=2, streams=2), 8)
    check_device(case, tmp_path, "icarus")


@pytest.mark.usefixtures("without_verilog")
def test_parts_in_the_driver(cli: Callable[..., Outcome], tmp_path: Path) -> None:
    """Outputs by name, in the driver, the C header and the commands."""
    network, x = with_heads(), np.random.default_rng(0).uniform(-1, 1, (6, 2, 3))
    build = compile(network, folder=tmp_path / "build", calibration=x)
    header = (build.folder / "rtlstm_registers.h").read_text()
    assert "#define RTLSTM_OUTPUT_THE_PUSH_FIRST 2 /* the model's output the push */" in header
    assert "#define RTLSTM_OUTPUT_THE_PUSH_COUNT 3" in header
    with build.open("golden") as accelerator:
        y, _ = accelerator.run(x)
        parts = accelerator.parts(y)
        assert list(parts) == ["turn", "the push"]
        np.testing.assert_array_equal(parts["the push"], y[..., 2:])
        np.testing.assert_allclose(y, run_float(network, x).y, atol=2e-3)
        with pytest.raises(InputError, match=r"y must be \(..., 5\), the build's outputs, not \(4,\)"):
            accelerator.parts(np.zeros(4))
    np.save(tmp_path / "x.npy", x)
    ran = cli("run", build.folder, "--backend", "golden", "--input", tmp_path / "x.npy", "--json")
    assert ran.json["output_parts"] == {"turn": [0, 2], "the push": [2, 5]}
    shown = cli("run", build.folder, "--backend", "golden", "--input", tmp_path / "x.npy")
    assert "turn: 0 to 1, the push: 2 to 4" in shown.out


@pytest.mark.usefixtures("without_verilog")
def test_frames_in_the_driver(tmp_path: Path) -> None:
    """It takes the model's frames, or whole steps, and refuses what is no whole number of steps."""
    network = with_strides()
    frames = np.random.default_rng(0).uniform(-1, 1, (12, 2, 3))
    steps = join_frames("x", frames, 0, 3)
    np.testing.assert_array_equal(steps[1, 0], frames[3:6, 0].reshape(-1))
    given = {"calibration": frames.swapaxes(0, 1), "batch_first": True}
    build = compile(network, folder=tmp_path / "build", **given, max_steps=4)
    assert "#define RTLSTM_FRAMES 3 " in (build.folder / "rtlstm_registers.h").read_text()
    with build.open("golden") as accelerator:
        y, state = accelerator.run(frames)
        np.testing.assert_allclose(y, run_float(network, steps).y, atol=1e-3)
        for given, options in ((steps, {}), (frames.swapaxes(0, 1), {"batch_first": True})):
            found = accelerator.run(given, **options)[0]
            np.testing.assert_array_equal(found.swapaxes(0, 1) if options else found, y)
        np.testing.assert_array_equal(accelerator.run(frames[:, 0])[0], y[:, 0])
        short, _ = accelerator.run(frames, lengths=[12, 6])
        np.testing.assert_array_equal(short[:2, 1], y[:2, 1])
        assert not short[2:, 1].any()
        with accelerator.stream() as stream:
            np.testing.assert_array_equal(stream.step(frames[:3, 0]), y[0, 0])
            np.testing.assert_array_equal(stream.steps(frames[3:, 0]), y[1:, 0])
            np.testing.assert_array_equal(stream.state[0][1], state[0][1][0])
        with pytest.raises(InputError, match="steps of 3 frames each, .* but has 11 frames; leave out 2, or"):
            accelerator.run(frames[:11])
        with pytest.raises(InputError, match="at most 4 steps, of 3 frames each, not 5; split them and"):
            accelerator.run(np.concatenate([frames, frames[:3]]))
        for lengths in ([12, 7], [12, 15], [0, 12], [12], [12.0, 6.0]):
            fit = r"2 integers, .*, multiples of the 3 frames of a step from 3 to 12, the frames of x, not \["
            with pytest.raises(InputError, match=fit):
                accelerator.run(frames, lengths=lengths)
        with pytest.raises(InputError, match=r"not \(4,\); this build reads 9 values .* 3 frames of 3"):
            accelerator.stream().step(np.zeros(4))


@pytest.mark.usefixtures("without_verilog")
def test_driver(tmp_path: Path) -> None:
    """Batches and streams as ever; the state is empty, and another one is refused."""
    network = stacked(6, dense=((9, "relu"), (3, "tanh")))
    x = np.random.default_rng(0).uniform(-1, 1, (7, 3, 6))
    build = compile(network, folder=tmp_path / "build", calibration=x)
    with build.open("golden") as accelerator:
        y, (h, c) = accelerator.run(x)
        assert (h, c) == ((), ())
        np.testing.assert_allclose(y, run_float(network, x).y, atol=1e-3)
        np.testing.assert_array_equal(accelerator.run(x, state=(h, c))[0], y)
        with accelerator.stream() as stream:
            np.testing.assert_array_equal(stream.step(x[0, 0]), y[0, 0])
            assert stream.state == ((), ())
        with pytest.raises(InputError, match="h_0 must be an empty tuple"):
            accelerator.run(x, state=(np.zeros((1, 3, 4)), ()))


def test_a_model_without_states_is_calibrated() -> None:
    """Its file's states are none at all, and not zeros."""
    network, x = with_residual(), np.random.default_rng(9).uniform(-1, 1, (40, 5))
    found = [quantise(network, NARROW, x, initial_state=state) for state in (None, ((), ()))]
    assert found[0].numerics == found[1].numerics
