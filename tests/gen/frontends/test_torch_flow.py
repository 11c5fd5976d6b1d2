"""Residuals, final states, batch norm, embeddings and packed sequences in PyTorch modules."""

import warnings
from operator import attrgetter

import numpy as np
import pytest
from support.lazy import F, Lazy, nets, nn, torch
from support.refusals import named_begins, refused
from support.torch_forms import equals, in_form

from rtlstm.gen.frontends import ReadOptions, inspect_model, read_model
from rtlstm.sim.reference import run_float
from rtlstm.spec.errors import InputError
from rtlstm.spec.network import Bidirectional

rnn, splits = Lazy("torch.nn.utils.rnn"), Lazy("rtlstm.gen.frontends.torch.split")
scripted = Lazy("support.scripted_nets")
pytestmark = pytest.mark.usefixtures("read_here")
I, H = 3, 4  # noqa: E741


def net(forward, kind="Net", **modules):
    """Modules by name, and a forward given from outside."""
    torch.manual_seed(3)
    found = getattr(nets, kind)(forward, **modules)
    found.register_buffer("mean", torch.linspace(-1, 1, I))
    return found.double().eval()


def equal(module, *inputs):
    """Read the module and compare what it gives; return what was read."""
    return equals(module, module, *inputs, atol=1e-9)


def steps(*shape):
    return torch.rand(*(shape or (5, 2, I)), dtype=torch.float64) * 2 - 1


def stack(m, x):
    """Residuals around all layers but the first."""
    y = m.lstm(x)[0]
    for layer in (m.second, m.third):
        y = layer(y)[0] + y
    return m.pair(y)


SKIPS = {
    "around an LSTM": (lambda m, x: (lambda y: m.second(y)[0] + y)(m.lstm(x)[0]), [2]),
    "around two": (lambda m, x: (lambda y: m.third(m.second(y)[0])[0] - y)(m.lstm(x)[0]), [3]),
    "stacked": (stack, [2, 2]),
    "of the input": (lambda m, x: x + m.narrow(x)[0], [2]),
    "of a dense layer": (lambda m, x: (lambda u: m.second(u)[0] + u)(m.up(x)), [2]),
    "of an activation": (lambda m, x: (lambda u: m.second(u)[0] + 2 * u + 1)(m.up(x).tanh()), [2]),
    "side by side": (lambda m, x: (lambda y: m.wide(torch.cat([m.second(y)[0], y], -1)))(m.lstm(x)[0]), [2]),
    "around a dense layer": (lambda m, x: (lambda u: m.same(u) + u)(m.up(m.lstm(x)[0][..., :I])), []),
    "of a negated dense layer": (lambda m, x: (lambda u: m.second(u)[0] - u)(m.up(x)), [2]),
    "of a ReLU": (
        lambda m, x: (lambda y: torch.tanh(m.pair(m.second(y)[0] + y)))(torch.relu(m.lstm(x)[0])),
        [2],
    ),
    "of three layers": (
        lambda m, x: (lambda y: (lambda z: m.third(z)[0] + z + y)(m.second(y)[0]))(m.lstm(x)[0]),
        [2, 3],
    ),
    "into a GRU": (lambda m, x: (lambda y: m.gru(m.second(y)[0] + y)[0])(m.lstm(x)[0]), [2]),
}


@pytest.mark.parametrize("name", SKIPS)
def test_residuals(name):
    forward, skips = SKIPS[name]
    module = net(
        forward,
        lstm=nn.LSTM(I, H),
        second=nn.LSTM(H, H),
        third=nn.LSTM(H, H),
        narrow=nn.LSTM(I, I),
        gru=nn.GRU(H, 2),
        up=nn.Linear(I, H),
        same=nn.Linear(H, H),
        pair=nn.Linear(H, 2),
        wide=nn.Linear(2 * H, 3),
    )
    network = equal(module, steps()).network
    assert [read.back for layer in network.layers for read in layer.sources[1:]] == skips


def padded(m, x, lengths):
    z = m.lstm(x)[0]
    packed = rnn.pack_padded_sequence(z, lengths, enforce_sorted=False)
    return z, rnn.pad_packed_sequence(m.second(packed)[0])[0]


def not_statistics(m, x):
    """RevIN: statistics of the whole sequence are outside, and so is all that is computed of them."""
    up = m.up((x - x.mean(0, keepdim=True)) / torch.sqrt(x.var(0, keepdim=True) + 1e-5))
    return m.second(torch.tanh(up))[0] + up


MERGED = "Linear 'head' must read whole feature vectors, but view"
CELL = "GRUCell 'cell' must read every step of a sequence"  # It begins in the state of the step before.
MISTAKEN = [
    (lambda m, x: m.narrow(x.transpose(0, 1))[0] + x, "axes"),
    (lambda m, x: m.narrow(x)[0] + x.transpose(1, 2), "axes"),
    (lambda m, x: torch.cat([x.transpose(0, 1), m.narrow(x)[0]], 2), "joins tensors of different axes"),
    (
        lambda m, x: m.both((lambda y: m.second(y)[0] + y)(m.lstm(x)[0]))[0],
        "LSTM 'both' goes through sequences from their end, behind",
    ),
    (lambda m, x: m.second(m.one(x))[0] + m.two(x), "Embedding 'two' computes it of the input"),
    (lambda m, x: m.head(m.gru(x)[1].view(-1, H)), MERGED),
    (lambda m, x: m.head(m.gru(x)[1].view(2, 2, H)), MERGED),
    (lambda m, x: m.head(m.gru(x)[1].view(4, H)), MERGED),
    (lambda m, x: m.cell(m.gru(x)[1][-1]), CELL),
    (lambda m, x: m.cell(m.gru(x)[0][-1]), CELL),
    (lambda m, x: m.cell(m.gru(x)[0][0]), CELL),
    (
        lambda m, x: (lambda y: m.head(torch.cat([y[-1, :, 2:], y[0, :, :2]], 1)))(m.both(m.lstm(x)[0])[0]),
        "joins tensors of different axes",
    ),
    (lambda m, x: m.second(m.lstm(x)[0][0])[0], "LSTM 'second' must read axes \\(T, N, F\\)"),
    (
        not_statistics,
        "'up' stays outside of the core .mean 'mean' reduces axis 0 of the model's input.; to end",
    ),
    # An argument that is not read.
    (lambda m, x: m.lstm(x)[1][0].sum(0, dtype=torch.int32), "sum 'sum_1': dtype=.* is not supported"),
    (lambda m, x: m.lstm(x)[1][0].sum(0, weights=2.0), "sum 'sum_1': weights=.* is not supported"),
]


@pytest.mark.parametrize(("forward", "words"), MISTAKEN)
def test_flows_that_are_refused(forward, words):
    parts = {"lstm": nn.LSTM(I, H), "second": nn.LSTM(H, H), "narrow": nn.LSTM(I, I), "gru": nn.GRU(I, H, 2)}
    parts |= {"both": nn.LSTM(H, 2, bidirectional=True), "head": nn.Linear(H, 2), "cell": nn.GRUCell(H, 2)}
    parts |= {"one": nn.Embedding(5, H), "two": nn.Embedding(5, H), "up": nn.Linear(I, H)}
    refused(net(forward, **parts), words)


@pytest.mark.parametrize("order", [1, -1])
def test_sums_with_padded_sequences_stay_padded(order):
    module = net(lambda m, x, lengths: m.third(torch.add(*padded(m, x, lengths)[::order]))[0], "LengthsNet",
                 lstm=nn.LSTM(I, H), second=nn.LSTM(H, H), third=nn.LSTM(H, H))  # fmt: skip
    refused(module, "padded")


def _joined_states(h, layers):
    return {
        "from the end": lambda: torch.cat([h[-2], h[-1]], dim=1),
        "by slices": lambda: torch.cat([h[-2:][0], h[-2:][1]], dim=-1),
        "backward first": lambda: torch.cat((h[-1, :, :], h[-2, :, :]), 1),
        "viewed": lambda: h.view(layers, 2, h.size(1), H)[-1].transpose(0, 1).flatten(1),
        "added": lambda: torch.cat([h[-2] + h[-1], h[-1]], 1),
    }


@pytest.mark.parametrize("how", _joined_states(None, 0))
@pytest.mark.parametrize("layers", [1, 2])
def test_final_states_of_both_directions(how, layers):
    """They are what the last step has, if the backward direction's outputs are reversed."""

    def forward(m, x):
        return m.head(_joined_states(m.lstm(x)[1][0], layers)[how]()).sigmoid()

    module = net(forward, lstm=nn.LSTM(I, H, layers, bidirectional=True), head=nn.Linear(2 * H, 2))
    result = equal(module, steps())
    assert result.network.layers[-2].backward.reversed_output
    assert any("use its last" in note for note in result.report.notes)


ENDS = {
    "first and last step": lambda m, y, h: m.head(torch.cat([y[-1, :, :H], y[0, :, H:]], 1)),
    "last and first step": lambda m, y, h: m.head(torch.cat([y[0, :, H:], y[-1, :, :H]], 1)),
    "added": lambda m, y, h: m.head(torch.cat([y[-1, :, :H] + y[0, :, H:], y[-1, :, :H]], 1)),
    "output and state": lambda m, y, h: m.head(torch.cat([y[-1, :, :H], h[-1]], 1)),
    "scaled state": lambda m, y, h: (h * 2 + 1)[0],
    "relu of a state": lambda m, y, h: torch.relu(h)[1],
    "tanh of both states": lambda m, y, h: torch.tanh(h).transpose(0, 1).flatten(1),
    "backward features": lambda m, y, h: h[..., 1:3][-1],
    "features of both": lambda m, y, h: h[:, :, 1:3].transpose(0, 1).reshape(2, 4),
    "layers taken apart": lambda m, y, h: m.fc(m.two(y)[1].view(2, 1, 2, H)[-1, 0]),
}


@pytest.mark.parametrize("how", ENDS)
def test_ends_of_both_directions(how):
    parts = {"gru": nn.GRU(I, H, bidirectional=True), "head": nn.Linear(2 * H, 2)}
    parts |= {"two": nn.GRU(2 * H, H, 2), "fc": nn.Linear(H, 2)}
    equal(net(lambda m, x: (lambda r: ENDS[how](m, r[0], r[1]))(m.gru(x)), **parts), steps())


def test_final_states_beside_the_output_are_the_drivers():
    module = net(lambda m, x: m.lstm(x), lstm=nn.LSTM(I, H, bidirectional=True))
    assert not read_model(module).network.layers[0].backward.reversed_output


@pytest.mark.parametrize(
    ("forward", "words"),
    [
        (lambda m, x: m.lstm(m.conv(x).permute(2, 0, 1))[0], "must be causal, but with pads="),
        (lambda m, x: m.lstm(m.free(F.pad(x, (2, 0)) + 1).permute(2, 0, 1))[0], "zeros in front"),
        (lambda m, x: m.lstm(F.pad(x, (1, 1)))[0], "must put zeros in front of the steps"),
    ],
)
def test_convolutions_that_are_not_causal_are_refused(forward, words):
    """In front of the recurrent layers they stay outside, and a note says why; alone they are refused."""
    module = net(
        forward,
        lstm=nn.LSTM(I, H),
        conv=nn.Conv1d(I, I, 3, padding=3),
        chomp=nn.Conv1d(I, I, 3, padding=2),
        free=nn.Conv1d(I, I, 3),
    )
    (note,) = (note for note in read_model(module).report.notes if "stay outside of the core" in note)
    assert words in note
    refused(nn.Sequential(module.conv), "it must be causal")
    late = net(lambda m, x: m.lstm(m.chomp(x).permute(2, 0, 1))[0], lstm=module.lstm, chomp=module.chomp)
    refused(late, "drop the last ones first")


def test_embedding_is_the_hosts():
    module = net(
        lambda m, x: m.head(m.gru(m.table(x))[0]),
        table=nn.Embedding(11, I),
        gru=nn.GRU(I, H, batch_first=True),
        head=nn.Linear(H, 2),
    )
    result = equal(module, torch.randint(0, 11, (2, 6)))
    (table,) = result.embeddings
    assert result.report.input == "the output of table"
    assert any("Embedding 'table' is looked up before the network" in note for note in result.report.notes)
    for wrong in ([11], [-1], [0.5]):
        with pytest.raises(InputError, match="must hold tokens"):
            table(wrong)


# Packed sequences


def packed_net(forward):
    return net(forward, "LengthsNet", lstm=nn.LSTM(I, H), head=nn.Linear(H, 2), second=nn.GRU(H, H))


def unsorted(m, x, lengths):
    return m.lstm(rnn.pack_padded_sequence(x, lengths.cpu(), enforce_sorted=False))


REFUSED = [
    (lambda m, x, n: m.lstm(x)[0] + n, "comes before any layer that shows how many features"),
    (
        lambda m, x, n: torch.max(unsorted(m, x, n)[0].data),
        "max 'max_1' reads the PackedSequence of LSTM 'lstm'.*pad it first",
    ),
    (lambda m, x, n: m.head(unsorted(m, x, n)[0].data), "Linear 'head' reads the PackedSequence"),
    (lambda m, x, n: unsorted(m, x, n)[0].data * 2, "mul 'mul' reads the PackedSequence.*pad_packed"),
    (
        lambda m, x, n: m.second(rnn.pad_packed_sequence(unsorted(m, x, n)[0])[0])[0],
        "GRU 'second' reads sequences that pad_packed_sequence .* padded.*pack them again",
    ),
    (
        lambda m, x, n: m.head(rnn.pad_packed_sequence(unsorted(m, x, n)[0])[0][-1]),
        "takes a step of sequences that .* padded.*take the final state",
    ),
    (
        lambda m, x, n: rnn.pad_packed_sequence(unsorted(m, x, n)[0], padding_value=-1.0)[0],
        "padding_value must be 0, not -1",
    ),
]


@pytest.mark.parametrize(("forward", "words"), REFUSED)
def test_packed_sequence_is_refused_by_name(forward, words):
    module = packed_net(forward)
    refused(module, words)
    assert inspect_model(module).refusal


def test_packed_through_two_modules():
    def forward(m, x, lengths):
        packed, _ = m.second(unsorted(m, x, lengths)[0])
        padded, _ = rnn.pad_packed_sequence(packed, batch_first=True)
        return m.head(padded)

    module, x, lengths = packed_net(forward), steps(), torch.tensor([3, 5])
    result = read_model(module)
    y = run_float(result.network, x.numpy(), lengths=lengths).y.swapaxes(0, 1)
    expected = module(x, lengths).detach().numpy()
    valid = np.arange(5) < lengths.numpy()[:, None]
    np.testing.assert_allclose(y[valid], expected[valid], atol=1e-9)
    assert not y[~valid].any()
    assert any("give the lengths to the driver" in note for note in result.report.notes)
    assert any("the core gives zeros, not what its last layers" in note for note in result.report.notes)


def test_final_state_of_packed_sequences_goes_on():
    module = packed_net(lambda m, x, n: m.head(unsorted(m, x, n)[1][0][-1]))
    x, lengths = steps(), torch.tensor([3, 5])
    y = run_float(read_model(module).network, x.numpy(), lengths=lengths).y
    np.testing.assert_allclose(y[lengths.numpy() - 1, [0, 1]], module(x, lengths).detach().numpy(), atol=1e-9)


def test_returned_packed_sequence_is_noted():
    result = read_model(packed_net(lambda m, x, n: unsorted(m, x, n)))
    assert not isinstance(result.network.layers[0], Bidirectional)
    assert any("the output is a PackedSequence" in note for note in result.report.notes)


@pytest.mark.filterwarnings("ignore")
def test_softmax_of_one_of_several_outputs_is_of_its_part(tmp_path):
    heads = nets.Net(
        lambda m, x: (lambda y: (torch.softmax(m.word(y), -1), m.pitch(y)))(m.lstm(x)[0]),
        lstm=nn.LSTM(3, 5),
        word=nn.Linear(5, 4),
        pitch=nn.Linear(5, 2),
    )
    torch.onnx.export(heads, (torch.zeros(4, 1, 3),), tmp_path / "heads.onnx", dynamo=False)
    for source in (heads, tmp_path / "heads.onnx"):
        found = read_model(source)
        assert [part.width for part in found.network.parts] == [4, 2]
        (note,) = [note for note in found.report.notes if "stays on the host" in note]
        assert "rtlstm.host.softmax(parts(y)['" in note


def test_arguments_by_numpys_names():
    """PyTorch takes them; none of them may be left out without a word."""
    halves = net(lambda m, x: torch.chunk(m.lstm(x)[0], 2, axis=-1)[1], lstm=nn.LSTM(I, H))
    assert equal(halves, steps()).network.outputs == H // 2
    last = net(lambda m, x: m.pair(m.lstm(x)[1][0].squeeze(axis=0)), lstm=nn.LSTM(I, H), pair=nn.Linear(H, 2))
    equal(last, steps())


def slope(module, x):
    """A PReLU along the second axis, as nn.PReLU has its features."""
    return module.slope(x.transpose(1, 2)).transpose(1, 2)


@pytest.mark.parametrize(
    ("forward", "slopes"),
    [
        (lambda m, x: m.slope(m.lstm(m.slope(m.up(x)))[0]), 1),
        (lambda m, x: m.narrow(slope(m, m.lstm(slope(m, m.up(x)))[0])), H),
    ],
    ids=["one slope", "one for each feature"],
)
def test_prelu(forward, slopes):
    modules = {"up": nn.Linear(I, H), "lstm": nn.LSTM(H, H, batch_first=True), "narrow": nn.Linear(H, 2)}
    module, x = net(forward, **modules, slope=nn.PReLU(slopes)), steps(2, 5, I)
    module.slope.weight.data = torch.linspace(0.3, 1.4, slopes, dtype=torch.float64)
    equal(module, x)


def test_a_mask_on_parts_of_the_input():
    """The first layer shows which axis of the input has the features, and slices of it are then read."""
    module = net(
        lambda m, x: m.wide(m.lstm(x)[0]) * x[..., :2] + x[..., 1:], lstm=nn.LSTM(I, H), wide=nn.Linear(H, 2)
    )
    equal(module, steps())


def test_a_constant_output_is_noted():
    """A policy gives its standard deviation beside the mean of its actions."""

    def forward(m, x):
        mean = m.wide(m.lstm(x)[0])
        return {"mean": mean, "deviation": m.log_deviation.exp().expand_as(mean)}

    module = net(forward, lstm=nn.LSTM(I, H), wide=nn.Linear(H, 2))
    module.register_parameter("log_deviation", nn.Parameter(torch.zeros(2)))
    found = read_model(module)
    assert "the model's output 'deviation' does not depend on its input: the core does not give it" in (
        found.report.notes
    )
    x = steps()
    expected = module(x)["mean"].detach().numpy()
    np.testing.assert_allclose(run_float(found.network, x.numpy()).y, expected, atol=1e-9)


def test_a_state_that_the_start_of_an_episode_clears_is_split_off():
    """A recurrent policy multiplies its state by what says whether an episode goes on."""

    def forward(m, x, h, c):
        keep = 1 - x[:, :1]
        return m.cell(m.up(x), (h * keep, c * keep))

    module = net(forward, "StateNet", up=nn.Linear(I, H), cell=nn.LSTMCell(H, H))
    refused(module, "initial_h is computed by mul 'mul'.*rtlstm.split.model, x. leaves in PyTorch")
    given = steps(2, I), steps(2, H), steps(2, H)
    split = splits.split_module(module, ReadOptions(), None, [(given, {})])
    core, _ = split.front(*given)
    h, c = (np.concatenate([np.ravel(layer) for layer in part]) for part in core["state"])
    keep = 1 - given[0][:, :1]
    np.testing.assert_allclose(h, (given[1] * keep).numpy().ravel())
    np.testing.assert_allclose(c, (given[2] * keep).numpy().ravel())


@pytest.mark.parametrize("dim", [0, 1, None])
@pytest.mark.parametrize("norm", ["weight_norm", "parametrizations.weight_norm"])
def test_weight_norm_of_an_exported_program(norm, dim):
    """The program computes the weight, which is constant; a decomposed one by other operators."""
    with warnings.catch_warnings(action="ignore"):
        up = attrgetter(norm)(nn.utils)(nn.Linear(I, H), dim=dim)
        module, x = net(lambda m, x: m.wide(torch.tanh(m.up(x))), up=up, wide=nn.Linear(H, 2)), steps()
        lengths = [tensor for name, tensor in up.named_parameters() if name.endswith(("_g", "original0"))]
        lengths[0].data *= 1.5
        program = torch.export.export(module, (x,))
        decomposed = program.run_decompositions()
    for each in (program, decomposed):
        assert equals(each, module, x, atol=1e-9).network.inputs == I
    assert read_model(program).network.layers[0].name == "up"


@pytest.mark.parametrize("form", ["live", "exported", "trace", "onnx"])
def test_begin_names_a_module_in_front(form, tmp_path):
    """As output does: a module of several nodes, too. Without it, the core begins where both layers meet."""
    torch.manual_seed(1)
    module, x = nets.Forecaster().eval(), torch.rand(2, 6, 3)
    with warnings.catch_warnings(action="ignore"):
        source = in_form(form, module, (x,), tmp_path)
    output = "/head/head.2/Add" if form == "onnx" else "head"
    with torch.no_grad():
        z = module.revin(x)
        wanted = module.inner(z).transpose(0, 1).numpy()
    begin = read_model(source, ReadOptions(output=output)).report.input if form == "onnx" else "revin"
    for options in (ReadOptions(begin=begin, output=output), ReadOptions(output=output)):
        result = read_model(source, options)
        assert " ".join(layer.kind for layer in result.network.layers) == "dense gru dense gru dense dense"
        np.testing.assert_allclose(run_float(result.network, z.numpy().swapaxes(0, 1)).y, wanted, atol=1e-6)
        assert any("stay outside of the core, for the host" in note for note in result.report.notes)
    assert ("/slow/Add" if form == "onnx" else "slow") in named_begins(source)[:2]


def test_a_split_begins_at_a_module():
    """Both GRUs are the core's; if it begins at one, the other stays in PyTorch."""
    torch.manual_seed(1)
    module, x = nets.Forecaster().eval(), torch.rand(2, 6, 3)
    wanted = module(x)
    for given, count in (({"begin": "revin"}, 2), ({}, 2), ({"lstm": "long"}, 1)):
        split = splits.split_module(module, ReadOptions(**given), None, [((x,), {})])
        assert [layer.kind for layer in split.read.network.layers].count("gru") == count
        core, past = split.front(x)
        y = run_float(split.read.network, core["x"].swapaxes(0, 1)).y.swapaxes(0, 1)
        torch.testing.assert_close(split.back(y, None, past), wanted, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("form", ["module", "exported", "trace", "script"])
def test_what_is_written_into_a_part_of_a_constant_is_not_lost(form, tmp_path):
    module, x = scripted.PartOfZeros().eval(), torch.rand(1, I)
    source = in_form(form, module, (x, torch.rand(1, H)), tmp_path, saved=False)
    refused(source, "(copy|copy_|__setitem__) '.*', which reads '.*', is not supported")


def test_arguments_with_defaults_have_them():
    """Python may branch in numbers and texts, as in PyTorch's example of a forecast."""

    class Chosen(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm = nn.LSTM(I, I)

        def forward(self, x, ahead=0, scale=2.0, how="mean", more=False):
            y, state = self.lstm(x)
            for _ in range(ahead):
                y, state = self.lstm(y, state)
            y = y * scale if how == "mean" else torch.tanh(y)
            return (y, state) if more else y

    torch.manual_seed(1)
    module, x = Chosen().eval(), torch.rand(5, 2, I)
    result = read_model(module)
    assert any("ahead=0, scale=2.0, how='mean', more=False" in note for note in result.report.notes)
    np.testing.assert_allclose(run_float(result.network, x.numpy()).y, module(x).detach(), atol=1e-6)
