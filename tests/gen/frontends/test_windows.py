"""Convolutions that read steps ahead: the driver puts the steps around each beside it."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.lazy import nets, nn, torch
from support.quick import quick
from support.torch_forms import in_form

import rtlstm
from rtlstm.gen.frontends import ReadOptions, read_model
from rtlstm.sim.reference import run_float
from rtlstm.spec.errors import ConfigurationError, InputError, ModelError
from rtlstm.spec.layout import windows
from rtlstm.spec.manifest import Manifest

pytestmark = pytest.mark.usefixtures("read_here")
INPUTS, H, T, N = 3, 5, 12, 4


def convolved(net: Any, x: Any, name: str = "conv") -> Any:
    return getattr(net, name)(x.transpose(1, 2)).transpose(1, 2)


def plain(net: Any, x: Any) -> Any:
    return net.head(net.lstm(convolved(net, x))[0])


def activated(net: Any, x: Any) -> Any:
    return net.head(net.lstm(torch.relu(convolved(net, x)))[0])


def residual(net: Any, x: Any) -> Any:
    return net.head(net.lstm(x + convolved(net, x))[0])


def two_widths(net: Any, x: Any) -> Any:
    return net.head(net.lstm(convolved(net, x) + convolved(net, x, "wide"))[0])


def both_directions(net: Any, x: Any) -> Any:
    return net.two(net.both(convolved(net, x, "five"))[0])


def skipping(net: Any, x: Any) -> Any:
    """The LSTM reads the steps themselves."""
    return net.head(net.lstm(x)[0]) + net.short(convolved(net, x))


KINDS = {
    plain: (1, 1),
    activated: (1, 1),
    residual: (1, 1),
    two_widths: (4, 4),
    both_directions: (2, 2),
    skipping: (1, 1),
}


def made(call: Any) -> Any:
    torch.manual_seed(0)
    wide = nn.Conv1d(INPUTS, INPUTS, 3, padding=4, dilation=4)
    five = nn.Conv1d(INPUTS, INPUTS, 5, padding="same")
    parts = {"both": nn.LSTM(INPUTS, H, batch_first=True, bidirectional=True), "two": nn.Linear(2 * H, 2)}
    parts |= {
        "conv": nn.Conv1d(INPUTS, INPUTS, 3, padding=1),
        "wide": wide,
        "five": five,
        "short": nn.Linear(INPUTS, 2),
    }
    return nets.Net(call, lstm=nn.LSTM(INPUTS, H, batch_first=True), head=nn.Linear(H, 2), **parts).eval()


def data(seed: int = 0) -> Any:
    return np.random.default_rng(seed).normal(size=(N, T, INPUTS)).astype(np.float32)


def wanted(module: Any, x: Any) -> Any:
    return module(torch.as_tensor(x)).detach().numpy()


@pytest.mark.parametrize(("call", "form"), quick(
    [(call, form) for call in KINDS for form in ("live", "exported", "trace", "onnx", "dynamo")],
    *((call, "live") for call in KINDS), (plain, "onnx"),
    *((both_directions, form) for form in ("onnx", "trace")),
))  # fmt: skip
def test_a_same_padded_convolution_equals_pytorch(call: Any, form: str, tmp_path: Path) -> None:
    module, x = made(call), data()
    result = read_model(in_form(form, module, (torch.as_tensor(x),), tmp_path))
    network = result.network
    assert network.window == KINDS[call] and network.inputs == INPUTS * (sum(network.window) + 1)
    y = run_float(network, windows(x, None, 1, network.window).swapaxes(0, 1)).y
    np.testing.assert_allclose(y.swapaxes(0, 1), wanted(module, x), atol=2e-6)
    assert any("in a stream a result comes" in note for note in result.report.notes)


def test_a_build_makes_the_windows(tmp_path: Path) -> None:
    """Of each sequence as long as it is, wherever its padding stands, in floats and in codes."""
    module, x = made(plain), data()
    build = rtlstm.compile(module, calibration=x, quick=True, folder=tmp_path / "build")
    y, _ = build.run(x)
    assert np.abs(y - wanted(module, x)).max() < 1e-3
    lengths = np.array([12, 3, 1, 7])
    padded = np.where((np.arange(T)[:, None] < lengths[:, None, None]), x, np.float32("nan"))
    shorter, _ = build.run(padded, lengths)
    rolled = np.stack([np.roll(row, T - length, 0) for row, length in zip(padded, lengths, strict=True)])
    in_front, _ = build.run(rolled, lengths, pad="front")
    for at, length in enumerate(lengths):
        alone = wanted(module, x[at : at + 1, :length])[0]
        assert np.abs(shorter[at, :length] - alone).max() < 1e-3
        np.testing.assert_array_equal(in_front[at, T - length :], shorter[at, :length])
    assert Manifest.load(build.folder).window == (1, 1)
    assert build.manifest.step_width == INPUTS


def pooled(net: Any, x: Any) -> Any:
    """The core cannot compute strides behind steps ahead: they stand before it."""
    return net.lstm(net.pool(net.conv(x.transpose(1, 2))).transpose(1, 2))[0]


def thinned(net: Any, x: Any) -> Any:
    return net.causal(net.conv(x.transpose(1, 2)))


def test_strides_behind_steps_ahead(tmp_path: Path) -> None:
    """They and the convolution stay outside, and say so where data of the model are given."""
    torch.manual_seed(0)
    parts = {"conv": nn.Conv1d(INPUTS, 4, 3, padding=1), "pool": nn.Conv1d(4, 4, 2, stride=2)}
    module = nets.Net(pooled, **parts, lstm=nn.LSTM(4, H, batch_first=True)).eval()
    read = read_model(module)
    assert read.network.inputs == 4 and "reads steps ahead must be of a model" in read.report.front
    with pytest.raises(
        InputError, match=r"must be \(T, 4\).* where the core begins, because .* stay outside.*rtlstm.split"
    ):
        rtlstm.compile(module, calibration=data(), folder=tmp_path / "build")
    inside = module.pool(module.conv(torch.as_tensor(data()).transpose(1, 2))).transpose(1, 2)
    build = rtlstm.compile(module, calibration=inside.detach().numpy(), quick=True, folder=tmp_path / "build")
    assert np.abs(build.run(inside.detach().numpy())[0] - wanted(module, data())).max() < 1e-3
    # Without a recurrent layer behind it, the way out is to end at the convolution; so it is with one.
    alone = nets.Net(thinned, conv=parts["conv"], causal=nn.Conv1d(4, 2, 1, stride=2)).eval()
    with pytest.raises(ModelError, match="end before the strides, or before the inputs meet, with `output`"):
        read_model(alone)
    for each in (alone, module):
        network = read_model(each, ReadOptions(output="conv")).network
        x = data()
        y = run_float(network, windows(x, None, 1, network.window).swapaxes(0, 1)).y.transpose(1, 2, 0)
        np.testing.assert_allclose(y, wanted(each.conv, x.swapaxes(1, 2)), atol=2e-6)


def test_wrong_lengths_are_refused_with_windows() -> None:
    """As without: sequences of no steps, and lengths that are no array."""
    build = rtlstm.compile(made(plain), calibration=data(), quick=True)
    with pytest.raises(InputError, match="at least one step, but T is 0"):
        build.run(data()[:, :0], [0] * N)
    for wrong in ([[1], [2, 3], [1], [1]], [1.5] * N, [3], "abcd"):
        with pytest.raises(InputError, match="lengths must be"):
            build.run(data(), wrong)
    with pytest.raises(InputError, match="lengths must be within 1 to T"):
        build.run(data(), [0, 3, 3, 3])


def test_a_stream_takes_windows(tmp_path: Path) -> None:
    """A result comes as many steps late as the convolution reads ahead."""
    module, x = made(plain), data()
    build = rtlstm.compile(module, calibration=x, quick=True, folder=tmp_path / "build")
    around = windows(x[0], None, 0, (1, 1))
    whole, _ = build.run(x[0])
    with build.open("golden") as accelerator, accelerator.stream() as stream:
        with pytest.raises(InputError, match="a step of 3 with 1 before it and 1 after it.* 1 steps late"):
            stream.step(x[0, 0])
        given = [stream.step(step.reshape(3, INPUTS)) for step in around[:6]]
        given += list(stream.steps(around[6:].reshape(-1, 3, INPUTS)))
    np.testing.assert_array_equal(np.stack(given), whole)


@pytest.mark.rtl
def test_it_runs_on_icarus(tmp_path: Path) -> None:
    build = rtlstm.compile(made(residual), calibration=data(), quick=True, folder=tmp_path / "build")
    result = build.simulate(data(1), steps=5, simulator="icarus", verify=False)
    assert result.passed and result.cycles_predicted == result.cycles_measured


def test_words_are_looked_up_before() -> None:
    """Beyond a sentence stand zeros, not the row of token 0."""
    torch.manual_seed(0)
    table, module = nn.Embedding(7, INPUTS), made(lambda net, x: plain(net, net.table(x)))
    module.table = table
    tokens = np.random.default_rng(1).integers(0, 7, (N, T))
    y, _ = rtlstm.compile(module, calibration=tokens, quick=True).run(tokens)
    assert np.abs(y - module(torch.as_tensor(tokens)).detach().numpy()).max() < 1e-3


def test_behind_a_layer_it_stays_outside() -> None:
    """There the zeros beyond the end are not those that the layer makes of zeros."""
    module = made(lambda net, x: plain(net, torch.tanh(net.front(x))))
    module.front = nn.Linear(INPUTS, INPUTS)
    result = read_model(module)
    assert result.network.window == (0, 0)
    assert any("it must be causal" in note for note in result.report.notes)


def test_a_window_must_fit_the_inputs() -> None:
    network = read_model(made(plain)).network
    with pytest.raises(ConfigurationError, match="must be a window of 4 steps"):
        network.replace(window=(1, 2))
