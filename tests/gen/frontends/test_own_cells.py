"""Cells that a user wrote in PyTorch, as a step or in a loop: float network, golden model and RTL."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.lazy import Lazy, nets, nn, torch
from support.quick import quick
from support.random_builds import make_case
from support.refusals import refused
from support.step_checks import check_device
from support.torch_forms import in_form

from rtlstm.gen.accuracy.mixed import float_layers, run_mixed
from rtlstm.gen.accuracy.records import PARTS
from rtlstm.gen.accuracy.samples import Samples
from rtlstm.gen.frontends import read_model
from rtlstm.gen.quantise.quantiser import QuantizationSettings, quantise
from rtlstm.gen.quantise.target import TargetHardware
from rtlstm.sim.golden import Golden
from rtlstm.sim.reference import run_float
from rtlstm.spec.parameters import Parameters

cells = Lazy("support.cell_modules")
KINDS = {
    "MinGru": ["custom", "dense"],
    "MinLstm": ["custom"],
    "StateSpace": ["custom", "dense"],
    "Complex": ["custom", "dense"],
    "IndRnn": ["custom"],
    "Sru": ["custom"],
    "Coupled": ["custom", "dense"],
    "Spiking": ["custom"],
    "Averaged": ["custom", "lstm", "dense"],
    "ResetBefore": ["gru"],
    "MinimalGated": ["gru"],
    "LayerNormLstm": ["lstm", "dense"],
    "NormOfSums": ["lstm"],
    "KeptBehind": ["lstm", "dense"],
    "PeakAndMean": ["custom", "dense"],
    "Integrating": ["custom", "dense"],
    "SLstm": ["custom", "dense"],
    "TimeMix": ["custom", "custom", "custom", "dense"],
    "Selective": ["dense", "dense", "custom", "dense"],
    "Einsum": ["dense", "dense", "custom", "dense"],
    "MatrixMemory": ["dense", "custom", "dense", "norm", "custom"],
    "LogMinGru": ["custom", "dense"],
    "LogMinLstm": ["custom"],
}
MIXED = ("PeakAndMean", "Integrating", "SLstm", "TimeMix")
"""Several formulas in one layer, whose values are rounded once more."""
LOOPS = [name for name in KINDS if name not in ("SLstm", "TimeMix")]
FORMS = ("exported", "trace", "onnx", "dynamo")
STEPS, SEQUENCES = 12, 2


def cell(name: str) -> Any:
    torch.manual_seed(3)
    return cells.CELLS[name]().eval()


def data(module: Any, steps: int = STEPS) -> Any:
    shape = (steps, SEQUENCES, module.inputs)
    return np.random.default_rng(1).uniform(-2, 2, shape).astype(np.float32)


def equals(network: Any, x: Any, wanted: Any) -> None:
    np.testing.assert_allclose(run_float(network, x).y, wanted, atol=2e-6)


@pytest.mark.parametrize("name", KINDS)
def test_a_step_equals_pytorch_also_in_16_bits(name: str) -> None:
    module = cell(name)
    x = data(module, 40)
    result = read_model(module)
    wanted = cells.play(module, x)
    assert [layer.kind for layer in result.network.layers] == KINDS[name]
    equals(result.network, x, wanted)
    quantised = quantise(result.network, QuantizationSettings(), x)
    y = Golden(quantised).run(quantised.numerics.quantise_input(x)).y
    largest = max(1.0, float(np.abs(wanted).max()))
    most = {"MatrixMemory": 2e-3}.get(name, 1e-3 if name in MIXED else 5e-4)  # its norm divides small values
    assert np.abs(quantised.shapes[-1].output.to_floats(y) - wanted).max() <= most * largest
    assert any("a cell: it reads" in note for note in result.report.notes)


def limits(network: Any) -> set[float]:
    """What the units of a network's cells clamp to."""
    nodes = [node for graph in network.numerics.cells for node in graph.nodes if node.kind == "clamp"]
    return {node.value * node.format.step for node in nodes}


def test_states_of_several_formulas_have_the_range_that_they_reach() -> None:
    """Without data that is 16, and with a stated range at least that; a device has its own."""
    module = cell("Integrating")
    x = data(module, 60)
    network = read_model(module).network
    settings = QuantizationSettings(quick=True)
    found = quantise(network, settings, x)
    (limit,) = limits(found)
    reached = run_float(network, x).cell
    assert 16 < 1.25 * reached <= limit < 2.5 * reached
    assert found.shapes[0].state.limit >= reached
    assert not Golden(found).run(found.numerics.quantise_input(x)).cell_saturations
    assert limits(quantise(network, settings)) == {16.0}
    assert limits(quantise(network, settings.replace(cell_range=64.0))) == {64.0}
    device = quantise(network, settings, x, hardware=TargetHardware(headroom=4)).numerics
    again = quantise(network, settings, x / 8, hardware=TargetHardware(device=device))
    assert again.numerics.cells == device.cells and limits(again) == {limit}
    other = cell("PeakAndMean")
    assert limits(quantise(read_model(other).network, settings, data(other))) <= {16.0}


def test_errors_of_states_of_several_formulas_are_measured() -> None:
    """Float has no limit, also where states reach beyond what the build's formulas are chosen within."""
    module = cell("Integrating")
    x, network = data(module, 60), read_model(module).network
    found = quantise(network, QuantizationSettings(quick=True), x[:2])
    assert max(limits(found)) < run_float(network, x).cell
    floats, samples = float_layers(network, found), Samples.of(x, network.inputs)
    np.testing.assert_allclose(run_mixed(found, floats, PARTS, samples).y, run_float(network, x).y, atol=1e-8)
    codes = Golden(found).run(found.numerics.quantise_input(x)).y
    fixed = run_mixed(found, floats, (), samples).y
    np.testing.assert_array_equal(fixed, found.shapes[-1].output.to_floats(codes))


def test_layers_of_other_ranges_go_to_their_device() -> None:
    """Each of them finds its range among those of the device's cells."""
    torch.manual_seed(0)
    steps = [cells.InLoop(cells.CELLS[name]()) for name in ("PeakAndMean", "Integrating")]
    network = read_model(
        nn.Sequential(steps[0], nn.Linear(cells.UNITS, cells.INPUTS), steps[1]).eval()
    ).network
    x = np.random.default_rng(0).normal(size=(60, 4, network.inputs)) * 2
    settings = QuantizationSettings(quick=True)
    device = quantise(network, settings, x, hardware=TargetHardware(headroom=4))
    assert limits(device) == {16.0, 64.0}
    for target in (
        TargetHardware(device=device.numerics),
        TargetHardware(device=device.numerics, layers=device.shapes),
    ):
        again = quantise(network, settings, x / 8, hardware=target)
        assert again.numerics.cells == device.numerics.cells
        assert [shape.cell for shape in again.shapes] == [shape.cell for shape in device.shapes]


@pytest.mark.parametrize(("name", "form"), quick(
    [(name, form) for name in KINDS for form in FORMS], ("Averaged", "trace"), ("Complex", "exported"),
))  # fmt: skip
def test_a_step_in_every_form(name: str, form: str, tmp_path: Path) -> None:
    module = cell(name)
    x = data(module)
    inputs = (torch.zeros(SEQUENCES, module.inputs), cells.begin(module, SEQUENCES))
    equals(read_model(in_form(form, module, inputs, tmp_path)).network, x, cells.play(module, x))


@pytest.mark.parametrize(("name", "form"), quick(
    [(name, form) for name in LOOPS for form in ("live", *FORMS)], *((name, "live") for name in LOOPS),
    ("Spiking", "exported"),
))  # fmt: skip
def test_a_loop_over_the_steps(name: str, form: str, tmp_path: Path) -> None:
    module = cell(name)
    x = data(module, 5)
    loop = cells.InLoop(module).eval()
    result = read_model(in_form(form, loop, (torch.as_tensor(x.swapaxes(0, 1).copy()),), tmp_path))
    equals(result.network, x, cells.play(module, x))
    assert result.report.batch_first


@pytest.mark.parametrize("name", LOOPS)
def test_a_loop_over_a_tensor_that_gives_the_final_state(name: str) -> None:
    module = cell(name)
    result = read_model(cells.Each(module).eval())
    x = data(module)
    equals(result.network, x, cells.play(module, x))
    assert not result.report.batch_first


@pytest.mark.parametrize("form", ["live", "exported", "trace"])
def test_a_loop_that_fills_a_tensor(form: str, tmp_path: Path) -> None:
    module = cell("MinLstm")
    loop, x = cells.Filled(module).eval(), data(module, 5)
    result = read_model(in_form(form, loop, (torch.as_tensor(x.swapaxes(0, 1).copy()),), tmp_path))
    equals(result.network, x, cells.play(module, x))


@pytest.mark.parametrize("key", [(slice(None), 0), (slice(None), -1), (slice(None), slice(1)), 0])
def test_a_tensor_that_is_filled_in_part_is_refused(key: Any) -> None:
    def call(net: Any, x: Any) -> Any:
        y = torch.zeros(x.shape[0], x.shape[1], 5)
        y[key] = net.lstm(x)[0][:, -1]
        return y

    module = nets.Net(call, lstm=nn.LSTM(3, 5, batch_first=True)).eval()
    refused(
        module, "setitem 'setitem.*',? (writes over a part of|which reads) '.*', (which )?is not supported"
    )


@pytest.mark.parametrize("name", ["MinGru", "Averaged", "Coupled"])
def test_a_loop_whose_last_result_is_read(name: str) -> None:
    module = cell(name)
    loop, x = cells.Last(module).eval(), data(module)
    wanted = loop(torch.as_tensor(x.swapaxes(0, 1).copy())).detach().numpy()
    np.testing.assert_allclose(run_float(read_model(loop).network, x).y[-1], wanted, atol=2e-6)


@pytest.mark.parametrize(("kind", "form"), quick(
    [(kind, form) for kind in ("LSTMCell", "GRUCell", "RNNCell") for form in ("live", *FORMS)],
    *((kind, "live") for kind in ("LSTMCell", "GRUCell", "RNNCell")),
))  # fmt: skip
def test_a_cell_of_pytorch_in_a_loop(kind: str, form: str, tmp_path: Path) -> None:
    loop = cells.Calls(kind).eval()
    x = np.random.default_rng(2).normal(size=(2, 5, 3)).astype(np.float32)
    wanted = loop(torch.as_tensor(x)).detach().numpy()
    network = read_model(in_form(form, loop, (torch.as_tensor(x),), tmp_path)).network
    assert [layer.kind for layer in network.layers] == [kind.removesuffix("Cell").lower(), "dense"]
    equals(network, x.swapaxes(0, 1), wanted.swapaxes(0, 1))


def test_a_loop_from_the_end() -> None:
    def call(net: Any, x: Any) -> Any:
        h, results = x.new_zeros(x.shape[1], 5), []
        for t in reversed(range(x.shape[0])):
            h = torch.tanh(net.w(x[t]) + net.u * h)
            results.insert(0, h)
        return torch.stack(results)

    torch.manual_seed(0)
    net = nets.Net(call, w=nn.Linear(3, 5))
    net.register_parameter("u", nn.Parameter(torch.rand(5)))
    x = np.random.default_rng(2).normal(size=(6, 2, 3)).astype(np.float32)
    wanted = net(torch.as_tensor(x)).detach().numpy()
    network = read_model(net.eval()).network
    assert network.layers[0].reverse
    equals(network, x, wanted)


def test_a_traced_cell_whose_state_is_read_first(tmp_path: Path) -> None:
    """Its inputs and states have one size, so that only the weights tell them apart."""
    net = nets.StateNet(lambda net, x, h, c: net.cell(x, (h, c)), cell=nn.LSTMCell(4, 4)).eval()
    x = np.random.default_rng(2).normal(size=(6, 2, 4)).astype(np.float32)
    h = c = torch.zeros(2, 4)
    wanted = []
    with torch.no_grad():
        for step in x:
            h, c = net(torch.as_tensor(step), h, c)
            wanted.append(h.numpy())
    path = in_form("trace", net, (torch.zeros(2, 4),) * 3, tmp_path)
    equals(read_model(path).network, x, np.stack(wanted))


# On hardware


@pytest.mark.rtl
@pytest.mark.parametrize(("name", "backend"), quick(
    [(name, backend) for name in KINDS for backend in ("icarus", "verilator")], ("Spiking", "icarus"),
    *((name, "icarus") for name in ("Complex", "KeptBehind", "Selective", *MIXED)),
))  # fmt: skip
def test_rtl_equals_the_golden_model(name: str, backend: str, tmp_path: Path) -> None:
    module = cell(name)
    bits = 6 if backend == "icarus" else 10
    settings = QuantizationSettings(weight_bits=bits, data_bits=bits, gate_bits=bits, cell_bits=bits + 4)
    network = quantise(read_model(module).network, settings, data(module, 30))
    check_device(make_case(0, network, Parameters(lanes=8, macs=2, streams=2), steps=6), tmp_path, backend)


# What is no cell, and the ways out


def step(call: Any, **modules: Any) -> Any:
    torch.manual_seed(0)
    kind = nets.Net if call.__code__.co_argcount == 2 else nets.LengthsNet
    return kind(call, w=nn.Linear(3, 5), u=nn.Linear(5, 5), v=nn.Linear(5, 5), **modules).eval()


def reset_inside(net: Any, x: Any, h: Any) -> Any:
    h = torch.tanh(net.w(x) + net.u(torch.sigmoid(net.v(h)) * h))
    return h, h


def clamped(net: Any, x: Any, h: Any) -> Any:
    z = torch.sigmoid(net.w(x))
    h = (z * h + (1 - z) * torch.relu(net.w(2 * x) + net.u(torch.sigmoid(net.v(h)) * h))).clamp(max=9.0)
    return h, h


def five_rows(net: Any, x: Any, h: Any) -> Any:
    h = torch.tanh(sum([net.w(x) * net.w(2 * x), net.w(3 * x) * net.w(4 * x), net.w(5 * x) * h]))
    return h, h


def normed(net: Any, x: Any, h: Any) -> Any:
    h = torch.softmax(net.w(x) + h, -1)
    return h, h


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (reset_inside, "which is computed of the old state in the same step"),
        (clamped, "which is computed of the old state in the same step"),
        (five_rows, "it needs more than 4 rows of a unit"),
        (normed, "has no place in a cell"),
    ],
)
def test_what_is_no_cell_is_refused_by_name(call: Any, words: str) -> None:
    assert words in refused(step(call), "the step that makes the new value of the state")


def test_products_of_the_input_in_front_and_products_for_powers_are_read() -> None:
    """The ways out for five rows, and for a power."""

    def in_front(net: Any, x: Any) -> Any:
        y, h, results = net.w(x) * net.w(2 * x) + net.w(3 * x) * net.w(4 * x), x.new_zeros(x.shape[1], 5), []
        for t in range(x.shape[0]):
            h = torch.tanh(y[t] + net.w(5 * x[t]) * h)
            results.append(h)
        return torch.stack(results)

    def cubed(net: Any, x: Any, h: Any) -> Any:
        h = torch.tanh(net.w(x) + h**3)
        return h, h

    def multiplied(net: Any, x: Any, h: Any) -> Any:
        h = torch.tanh(net.w(x) + h * h * h)
        return h, h

    module, x = step(in_front), np.random.default_rng(1).uniform(-1, 1, (5, 2, 3)).astype(np.float32)
    equals(read_model(module).network, x, module(torch.as_tensor(x)).detach().numpy())
    refused(step(cubed), "must have the power 2, the only one of a cell; multiply for another one")
    assert read_model(step(multiplied)).network.layers[0].units == 5


def heads(net: Any, x: Any, h: Any) -> Any:
    parts = h.view(h.shape[0], 3, 2)
    first, gate = parts[:, 0], torch.sigmoid(net.gate(x)).unsqueeze(-1)
    h = torch.tanh(net.wide(x) + (gate * parts).view(h.shape[0], 6) + net.back(first))
    return h, h


def divided_heads(net: Any, x: Any, h: Any) -> Any:
    parts = h.view(h.shape[0], 3, 2)
    h = torch.tanh(net.wide(x) + net.back((parts / (1 + parts.abs().sum(-1, keepdim=True)))[:, 0]))
    return h, h


def test_parts_of_a_state_are_read_and_what_divides_them_is_named() -> None:
    parts: dict[str, Any] = {"wide": nn.Linear(3, 6), "back": nn.Linear(2, 6), "gate": nn.Linear(3, 3)}
    module, x = step(heads, **parts), np.random.default_rng(1).uniform(-1, 1, (5, 2, 3)).astype(np.float32)
    h, wanted = torch.zeros(2, 6), list[Any]()
    for each in torch.as_tensor(x):
        h, _ = module(each, h)
        wanted.append(h.detach().numpy())
    equals(read_model(module).network, x, wanted)
    refused(step(divided_heads, **parts), "truediv 'truediv' divides by what is no number")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("NormedTwice", "a step with norms is an LSTM, .*or the norm of that"),
        ("EachGate", "must be of all four gates, each with values of its own; a step with norms is an LSTM"),
    ],
)
def test_norms_that_are_none_of_an_lstm_are_refused_by_name(name: str, words: str) -> None:
    """The ways out, one norm of c and a norm of all gates, are read by the tests above."""
    torch.manual_seed(0)
    module = getattr(cells, name)().eval()
    assert "the loop over the steps" not in refused(module, words)
    refused(cells.InLoop(module).eval(), words)


def test_states_have_the_names_by_which_the_step_takes_them() -> None:
    """Also without another result than the new states."""

    class Step(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.w, self.u = nn.Linear(3, 5), nn.Linear(5, 5)

        def forward(self, x: Any, state: Any) -> Any:
            h, c = state
            c = torch.sigmoid(self.u(h)) * c + self.w(x)
            return torch.tanh(c), c

    result = read_model(Step().eval())
    assert [layer.kind for layer in result.network.layers] == ["custom"]
    assert any("its state is 'state[0]' and 'state[1]'" in note for note in result.report.notes)


def test_norms_in_front_and_behind_are_of_the_layer_beside() -> None:
    """A batch norm in front is part of the input's products, before their norm."""
    module = cell("LayerNormLstm")

    def call(net: Any, x: Any) -> Any:
        h, c, results = x.new_zeros(x.shape[1], 5), x.new_zeros(x.shape[1], 5), []
        x = net.front(x)
        for t in range(x.shape[0]):
            y, (h, c) = net.cell(x[t], (h, c))
            results.append(net.behind(y))
        return torch.stack(results)

    net = nets.Net(call, front=nn.Linear(4, 3), cell=module, behind=nn.LayerNorm(2)).eval()
    x = np.random.default_rng(2).normal(size=(6, 2, 4)).astype(np.float32)
    wanted = net(torch.as_tensor(x)).detach().numpy()
    network = read_model(net).network
    assert "norm" in [layer.kind for layer in network.layers]
    equals(network, x, wanted)


def numbered(net: Any, x: Any) -> Any:
    h, results = x.new_zeros(x.shape[1], 5), []
    for t in range(x.shape[0]):
        h = torch.tanh(net.w(x[t]) + 0.5 * h + 0.1 * t - net.bend.bias * t)
        results.append(h * (0.3 * t))
    return torch.stack(results)


@pytest.mark.parametrize("form", quick(["live", *FORMS], "live"))
def test_what_grows_with_the_number_of_a_step_is_a_state_that_counts(form: str, tmp_path: Path) -> None:
    net = step(numbered, bend=nn.Linear(3, 5))
    x = np.random.default_rng(2).normal(size=(7, 2, 3)).astype(np.float32)
    wanted = net(torch.as_tensor(x)).detach().numpy()
    network = read_model(in_form(form, net, (torch.zeros(6, 2, 3),), tmp_path)).network
    assert [layer.units for layer in network.layers] == [1, 5]
    equals(network, x, wanted)


def test_a_division_by_sums_of_exponentials_is_refused_with_what_may_be_kept_instead() -> None:
    torch.manual_seed(3)
    written, kept = cells.Exponential().eval(), cell("SLstm")
    kept.load_state_dict(written.state_dict())
    refused(
        written, r"keep c / n and l = log\(n\): d = log i - log f - l, r = r \+ sigmoid\(d\) \* \(z - r\)"
    )
    x = data(written)
    np.testing.assert_allclose(cells.play(kept, x), cells.play(written, x), atol=2e-3)  # n begins at exp(-8)
    equals(read_model(kept).network, x, cells.play(kept, x))


LOGARITHM = r"gives a logarithm that is not read by exp; .* `h = exp\(a\) \* h \+ exp\(b\)` in place of"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("LogState", LOGARITHM),
        ("LogSumState", LOGARITHM),
        ("Scan", r"cumsum 'cumsum' goes over all steps at once: give the module whose forward\(x, state\)"),
        ("MLstm", r"divides by .* a matrix C, give LayerNorm\(C @ q\) in place of C @ q / n"),
    ],
)
def test_logarithms_scans_and_divided_memories_are_refused(name: str, words: str) -> None:
    """The ways out are above: LogMinGru, the same with h itself, and MatrixMemory, with a norm behind."""
    torch.manual_seed(0)
    refused(getattr(cells, name)().eval(), words)


def test_exp_of_what_may_be_positive_is_refused_and_clamped_it_is_read() -> None:
    def grows(net: Any, x: Any, h: Any) -> Any:
        h = torch.exp(net.w(x)) * h + net.w(x)
        return h, h

    def decays(net: Any, x: Any, h: Any) -> Any:
        h = torch.exp(net.w(x).clamp(max=0.0)) * h + net.w(x)
        return h, h

    refused(step(grows), "may give more than 1; a cell computes exp of what is never positive")
    assert read_model(step(decays)).network.layers[0].units == 5


def test_other_numbers_of_a_step_are_refused_and_may_be_a_feature() -> None:
    def numbered(net: Any, x: Any) -> Any:
        h, results = x.new_zeros(x.shape[1], 5), []
        for t in range(x.shape[0]):
            h = torch.tanh(net.w(x[t]) + 0.5 * h + 1 / (t + 1))
            results.append(h)
        return torch.stack(results)

    def given(net: Any, x: Any) -> Any:
        h, results = x.new_zeros(x.shape[1], 5), []
        for t in range(x.shape[0]):
            h = torch.tanh(net.w(x[t, :, :3]) + 0.5 * h + net.number(x[t, :, 3:]))
            results.append(h)
        return torch.stack(results)

    assert "give what differs, such as the number of the step, as a feature of x" in refused(
        step(numbered), "another constant"
    )
    assert read_model(step(given, number=nn.Linear(1, 5))).network.layers[0].inputs == 4


def test_a_loop_over_something_else_is_refused_and_one_over_all_steps_is_read() -> None:
    def loop(net: Any, x: Any, count: Any) -> Any:
        h, results = x.new_zeros(x.shape[1], 5), []
        for t in range(count):
            h = torch.tanh(net.w(x[t]) + 0.5 * h)
            results.append(h)
        return torch.stack(results)

    words = r"a loop must go over the steps of its input, as x.shape\[1\]"
    refused(step(lambda net, x: loop(net, x, x.shape[0] - 1)), words)
    refused(step(lambda net, x: loop(net, x, x.shape[2])), words)
    alone = step(lambda net, x: torch.stack([net.w(x[t]) for t in range(x.shape[0])]))
    refused(alone, "it has a loop whose steps read nothing of each other; give the module whole tensors")
    assert read_model(step(lambda net, x: net.w(x))).network.layers[0].outputs == 5
    assert read_model(step(lambda net, x: loop(net, x, x.shape[0]))).network.layers[0].units == 5
