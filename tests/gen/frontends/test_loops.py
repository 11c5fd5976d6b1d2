"""Loops over the steps of a module of PyTorch that stand among other layers."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.lazy import nets, nn, torch
from support.quick import quick
from support.random_builds import make_case
from support.refusals import refused
from support.step_checks import check_device
from support.torch_forms import equals, in_form

from rtlstm.gen.frontends import read_model
from rtlstm.gen.quantise.quantiser import QuantizationSettings, quantise
from rtlstm.sim.golden import Golden
from rtlstm.spec.parameters import Parameters

pytestmark = pytest.mark.usefixtures("read_here")
INPUTS, UNITS = 3, 5


def loop(net: Any, steps: Any, new: Callable[[Any, Any], Any], units: int = UNITS) -> Any:
    h, results = steps.new_zeros(steps.shape[0], units), []
    for t in range(steps.shape[1]):
        h = new(steps[:, t], h)
        results.append(h)
    return torch.stack(results, 1)


def plain(net: Any, x: Any, h: Any) -> Any:
    return torch.tanh(net.w(x) + net.u * h)


def behind_lstm(net: Any, x: Any) -> Any:
    return loop(net, net.lstm(x)[0], lambda step, h: plain(net, step, h))


def behind_dense(net: Any, x: Any) -> Any:
    return loop(net, torch.relu(net.dense(x)), lambda step, h: plain(net, step, h))


def two_in_a_row(net: Any, x: Any) -> Any:
    y = loop(net, net.dense(x), lambda step, h: plain(net, step, h))
    return loop(net, y, lambda step, h: torch.relu(net.v(step) + 0.5 * h))


def one_and_its_input(net: Any, x: Any) -> Any:
    """The second loop reads what the first one does, too."""
    y, h, results = (
        loop(net, x, lambda step, h: torch.tanh(net.z(step) + net.u * h)),
        x.new_zeros(x.shape[0], UNITS),
        [],
    )
    for t in range(x.shape[1]):
        h = torch.tanh(y[:, t] + net.z(x[:, t]) + 0.5 * h)
        results.append(h)
    return torch.stack(results, 1)


def gates_before(net: Any, x: Any) -> Any:
    """All products with x at once, and the elements in a loop."""
    (new, keep, out), h, results = net.gates(x).chunk(3, -1), x.new_zeros(x.shape[0], UNITS), []
    for t in range(x.shape[1]):
        share = torch.sigmoid(keep[:, t])
        h = share * h + (1 - share) * torch.tanh(new[:, t] + net.r(h))
        results.append(torch.sigmoid(out[:, t]) * h)
    return torch.stack(results, 1)


def shares_before(net: Any, x: Any) -> Any:
    share, new, h, results = torch.sigmoid(net.z(x)), net.n(x), x.new_zeros(x.shape[0], UNITS), []
    for t in range(x.shape[1]):
        h = (1 - share[:, t]) * h + share[:, t] * new[:, t]
        results.append(h)
    return torch.stack(results, 1)


def chunked(net: Any, x: Any) -> Any:
    def new(step: Any, h: Any) -> Any:
        z, n, _ = step.chunk(3, -1)
        return torch.lerp(h, torch.tanh(n), torch.sigmoid(z))

    return loop(net, net.gates(x), new)


KINDS = {
    behind_lstm: ["lstm", "custom"],
    behind_dense: ["dense", "custom"],
    two_in_a_row: ["dense", "custom", "custom"],
    one_and_its_input: ["custom", "custom"],
    gates_before: ["custom", "custom"],
    shares_before: ["dense", "custom"],
    chunked: ["custom"],
}


def made(call: Any) -> Any:
    torch.manual_seed(1)
    parts = {"z": nn.Linear(INPUTS, UNITS), "n": nn.Linear(INPUTS, UNITS), "dense": nn.Linear(INPUTS, 4)}
    parts |= {"lstm": nn.LSTM(INPUTS, 4, batch_first=True), "w": nn.Linear(4, UNITS)}
    parts |= {
        "v": nn.Linear(UNITS, UNITS),
        "r": nn.Linear(UNITS, UNITS),
        "gates": nn.Linear(INPUTS, 3 * UNITS),
    }
    return nets.Net(call, u=nn.Parameter(torch.rand(UNITS)), **parts).eval()


def data(steps: int) -> Any:
    return np.random.default_rng(2).normal(size=(2, steps, INPUTS)).astype(np.float32)


@pytest.mark.parametrize(("call", "form"), quick(
    [(call, form) for call in KINDS for form in ("live", "exported", "trace", "onnx", "dynamo")],
    *((call, "live") for call in KINDS), (gates_before, "exported"), (two_in_a_row, "exported"),
))  # fmt: skip
def test_a_loop_among_other_layers_equals_pytorch(call: Any, form: str, tmp_path: Path) -> None:
    module, x = made(call), torch.as_tensor(data(6))
    network = equals(in_form(form, module, (x,), tmp_path), module, x, atol=2e-6).network
    assert [layer.kind for layer in network.layers] == KINDS[call]


@pytest.mark.parametrize("call", [gates_before, two_in_a_row])
def test_it_equals_pytorch_in_16_bits(call: Any) -> None:
    module, x = made(call), data(40)
    quantised = quantise(read_model(module).network, QuantizationSettings(), x.swapaxes(0, 1))
    y = Golden(quantised).run(quantised.numerics.quantise_input(x.swapaxes(0, 1))).y
    wanted = module(torch.as_tensor(x)).detach().numpy().swapaxes(0, 1)
    assert np.abs(quantised.shapes[-1].output.to_floats(y) - wanted).max() <= 1e-3


@pytest.mark.rtl
def test_rtl_equals_the_golden_model(tmp_path: Path) -> None:
    settings = QuantizationSettings(weight_bits=6, data_bits=6, gate_bits=6, cell_bits=10)
    network = quantise(read_model(made(two_in_a_row)).network, settings, data(30).swapaxes(0, 1))
    check_device(make_case(0, network, Parameters(lanes=8, macs=2, streams=2), steps=6), tmp_path, "icarus")


def test_a_loop_is_not_sent_to_split() -> None:
    """It would leave nothing to the core."""
    text = refused(
        made(lambda net, x: loop(net, x, lambda step, h: torch.softmax(net.z(step) + h, -1))), "is no cell"
    )
    assert "split" not in text


def causal(net: Any, x: Any) -> Any:
    return net.conv(nn.functional.pad(x.transpose(1, 2), (1, 0)))


def unpacked(parts: Any) -> Any:
    one, two, three = parts
    return one, two, three


CONVOLVED = {
    "features last": lambda net, x: causal(net, x).transpose(1, 2).chunk(3, -1),
    "cut off": lambda net, x: net.late(x.mT)[:, :, :-1].permute(0, 2, 1).chunk(3, -1),
    "channels divided": lambda net, x: [part.mT for part in unpacked(torch.chunk(causal(net, x), 3, 1))],
}


@pytest.mark.parametrize("which", CONVOLVED)
def test_a_convolution_tells_how_many_values_a_state_has(which: str) -> None:
    """QRNN: all gates are made by a convolution in front of the loop."""

    def call(net: Any, x: Any) -> Any:
        parts = CONVOLVED[which](net, x)
        new, keep, c, results = torch.tanh(parts[0]), torch.sigmoid(parts[1]), x.new_zeros(2, UNITS), []
        for t in range(x.shape[1]):
            c = keep[:, t] * c + (1 - keep[:, t]) * new[:, t]
            results.append(torch.sigmoid(parts[2][:, t]) * c)
        return torch.stack(results, 1)

    torch.manual_seed(1)
    convs = {key: nn.Conv1d(INPUTS, 3 * UNITS, 2, padding=wide) for key, wide in (("conv", 0), ("late", 1))}
    module = nets.Net(call, **convs).eval()
    equals(module, module, torch.as_tensor(data(6)), atol=2e-6)


def test_a_loop_over_the_parts_of_a_tuple_is_refused_until_they_have_names() -> None:
    def call(net: Any, x: Any) -> Any:
        return torch.cat([torch.tanh(part) for part in net.lstm(x)[0].chunk(2, -1)], -1)

    def named(net: Any, x: Any) -> Any:
        one, two = net.lstm(x)[0].chunk(2, -1)
        return torch.cat([torch.tanh(part) for part in (one, two)], -1)

    refused(made(call), "takes element 2 of a tuple of 2; .* unpack it into names first")
    assert read_model(made(named)).network.outputs == 4
