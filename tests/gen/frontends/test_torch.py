"""PyTorch modules against PyTorch's own outputs; refusals by name."""

import numpy as np
import pytest
from support.float_reference import close, forward

from rtlstm.gen.frontends import ReadOptions, inspect_model, read_model
from rtlstm.host import softmax
from rtlstm.spec.errors import ModelError

torch = pytest.importorskip("torch")
nn, F = torch.nn, torch.nn.functional

I, H, O = 5, 6, 3  # noqa: E741


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


class ByName(nn.Module):
    """An LSTM whose input is given by its name."""

    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(I, H)

    def forward(self, x):
        return self.lstm(input=torch.exp(x))[0]


class Net(nn.Module):
    """An LSTM whose output goes through ``tail(self, y)``; the head is self.linear."""

    def __init__(self, tail, before=None, **kwargs):
        super().__init__()
        self.lstm = nn.LSTM(I, H, **kwargs)
        self.linear = nn.Linear(H, O)
        self.second = nn.Linear(O, 2)
        self.norm = nn.LayerNorm(H)
        self.drop = nn.Dropout(0.5)
        self.conv = nn.Conv1d(H, O, 1)
        self.tail, self.before = tail, before

    def forward(self, x):
        if self.before:
            x = self.before(self, x)
        return self.tail(self, self.lstm(x))


def outputs(module, x):
    with torch.no_grad():
        return module.eval()(x)


@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("batch_first", [False, True])
def test_lstm_alone(layers, bias, batch_first):
    module = nn.LSTM(I, H, num_layers=layers, bias=bias, batch_first=batch_first)
    x = torch.randn(7, 2, I)
    result = read_model(module)
    expected = outputs(module, x.transpose(0, 1) if batch_first else x)[0]
    close(forward(result.network, x.numpy()), expected.transpose(0, 1) if batch_first else expected)
    assert len(result.network.layers) == layers
    assert ("batch_first" in result.report.layout) == result.report.batch_first == batch_first


def test_lstm_cell_alone():
    cell = nn.LSTMCell(I, H)
    x = torch.randn(1, 2, I)
    close(forward(read_model(cell).network, x.numpy())[0], outputs(cell, x[0])[0])


TAILS = [
    (lambda m, r: m.linear(r[0]), False),
    (lambda m, r: torch.sigmoid(m.linear(F.relu(m.drop(r[0])))), False),
    (lambda m, r: m.second(m.linear(r[0]).tanh()).relu(), False),
    (lambda m, r: (m.linear(r[0]), r[1]), False),
    (lambda m, r: m.linear(r[0][-1]), True),
    (lambda m, r: m.linear(r[0][-1, :, :]).squeeze(-1), True),
    (lambda m, r: m.linear(r[1][0][-1]), True),
    (lambda m, r: m.linear(r[0].transpose(0, 1)[:, -1]), True),
    (lambda m, r: m.conv(r[0].permute(1, 2, 0)).permute(2, 0, 1), False),
    (lambda m, r: m.linear(r[0].contiguous().view(-1, H)).view(r[0].size(0), -1, O), False),
]


@pytest.mark.parametrize(("tail", "last"), TAILS)
@pytest.mark.parametrize("layers", [1, 2])
def test_traced_module(tail, last, layers):
    module, x = Net(tail, num_layers=layers), torch.randn(4, 2, I)
    expected = outputs(module, x)
    expected = expected[0] if isinstance(expected, tuple) else expected
    result = read_model(module)
    actual = forward(result.network, x.numpy())
    close(actual[-1] if last else actual, expected)
    assert any("last step" in note for note in result.report.notes) == last


def test_vollo_lstm_net():
    class LstmNet(nn.Module):
        def __init__(self, input_size, hidden_size, num_layers, output_size):
            super().__init__()
            self.lstm = nn.LSTM(input_size, hidden_size, num_layers=num_layers)
            self.linear = nn.Linear(hidden_size, output_size)

        def forward(self, x):
            x, _ = self.lstm(x)
            x = self.linear(x)
            return x

    module, x = LstmNet(8, 16, 2, 4), torch.randn(20, 1, 8)
    result = read_model(module, name="vollo")
    close(forward(result.network, x.numpy()), outputs(module, x))
    assert [layer.name for layer in result.network.layers] == ["lstm_l0", "lstm_l1", "linear"]
    assert result.network.name == "vollo"
    assert result.report.source == "LstmNet"


def test_sequential_with_an_extractor():
    class First(nn.Module):
        def forward(self, result):
            return result[0]

    module = nn.Sequential(
        nn.LSTM(I, H), First(), nn.LSTM(H, H), First(), nn.ReLU(), nn.Dropout(), nn.Linear(H, O), nn.Sigmoid()
    )
    x = torch.randn(4, 2, I)
    network = read_model(module).network
    close(forward(network, x.numpy()), outputs(module, x))
    assert network.layers[2].input_relu and network.layers[2].activation == "sigmoid"


def test_sequential_that_passes_the_tuple_on():
    result = read_model(nn.Sequential(nn.LSTM(I, H), nn.Linear(H, O)))
    assert result.network.outputs == O
    assert any("first item is taken" in note for note in result.report.notes)


def test_half_precision_weights():
    module = nn.LSTM(I, H).to(torch.bfloat16)
    expected = module.weight_ih_l0.detach().double().numpy()
    assert (read_model(module).network.layers[0].w_ih == expected).all()


def test_state_as_input_and_zeros():
    class Stateful(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm = nn.LSTM(I, H)

        def forward(self, x, h):
            y, (h, c) = self.lstm(x, (h, torch.zeros(1, x.size(1), H)))
            return y, h, c

    result = read_model(Stateful())
    assert any("initial_h is the model's input 'h'" in note for note in result.report.notes)


def test_dropout_between_layers_is_noted():
    result = read_model(nn.LSTM(I, H, num_layers=2, dropout=0.3))
    assert any("dropout=0.3 is ignored" in note for note in result.report.notes)


# What is refused, by name

REFUSED = [
    (nn.ReLU(), "must have an nn.LSTM, nn.GRU, nn.RNN or a cell, or an nn.Linear or nn.Conv1d"),
    (
        Net(lambda m, r: m.norm(r[0])),
        "LayerNorm 'norm', which reads 'lstm', is not supported.*output='lstm'",
    ),
    (Net(lambda m, r: m.second(F.softmax(m.linear(r[0]), -1))), "softmax 'softmax'.*not supported"),
    (Net(lambda m, r: F.softmax(m.linear(r[0]), 0)), "softmax 'softmax' works along axis 0"),
    (Net(lambda m, r: m.linear(r[0]).argmax()), "argmax 'argmax': dim must be given"),
    (Net(lambda m, r: torch.exp(m.linear(r[0]))), "output='linear'"),
    (Net(lambda m, r: m.linear(r[0]) * r[0].mean()), "mean 'mean' reduces axis"),
    (Net(lambda m, r: m.linear(r[0]) * m.linear(r[0])), "multiplies two tensors that depend on the input"),
    (
        Net(lambda m, r: m.linear(r[0]).sigmoid() + m.linear(r[0]).tanh()),
        "two results of different layers at once",
    ),
    (
        Net(
            lambda m, r: (m.linear(r[1][0].transpose(0, 1).flatten(1)[:, 2:8]), m.linear(r[0][..., 3:9])),
            bidirectional=True,
        ),
        "are two results, but the core computes one chain",
    ),
    (Net(lambda m, r: m.linear(r[0][:, -1])), "element -1 of axis 1, which is the sequences"),
    (Net(lambda m, r: m.linear(r[0][1])), "element 1 of axis 0, which is the steps"),
    (
        Net(lambda m, r: m.linear(r[0].reshape(1, -1))),
        "must read whole feature vectors, but reshape 'reshape'",
    ),
    (Net(lambda m, r: m.linear(r[1][1])), "the final state c .* is read by Linear 'linear'"),
    (Net(lambda m, r: m.linear(r[1][0]), num_layers=2), "reads the final states of all layers"),
    (
        Net(lambda m, r: m.linear(r[1][0]), num_layers=2, bidirectional=True),
        "reads the final states of all layers, .* take element -2, its forward direction, or -1",
    ),
    (
        Net(lambda m, r: m.linear(r[1][0][0]), num_layers=2, bidirectional=True),
        "element 0 of axis 0, which is",
    ),
    (
        Net(lambda m, r: m.linear(torch.cat([r[0][0], r[0][-1]], -1)[:, :H])),
        "joins tensors of different axes",
    ),
    (
        Net(lambda m, r: m.linear(r[0]) + m.linear(r[1][0])),
        "joins tensors of different axes, \\(T, N, F\\) and \\(D, N, F\\)",
    ),
    (Net(lambda m, r: r[0] if r[0].sum() > 0 else r[1]), "cannot be traced"),
    (nn.LSTM(I, H, device="meta"), "must have values, but is on PyTorch's meta device; load the weights"),
]


@pytest.mark.parametrize(("module", "words"), REFUSED)
def test_refused_by_name(module, words):
    with pytest.raises(ModelError, match=words):
        read_model(module)
    assert inspect_model(module).refusal


def test_what_is_upstream_can_be_left_outside_on_purpose():
    module = Net(lambda m, r: m.linear(r[0]), before=lambda m, x: torch.exp(x))
    result = read_model(module, ReadOptions(lstm="lstm"))
    assert [entry.name for entry in result.report.outside if entry.kind == "exp"] == ["exp"]
    assert result.report.input == "exp"
    named = read_model(ByName(), ReadOptions(lstm="lstm"))
    for report in (result.report, named.report, read_model(module).report):
        assert any("stay outside of the core: its input is 'exp'" in note for note in report.notes)
    folded = read_model(Net(lambda m, r: m.linear(r[0]), before=lambda m, x: x - 2.0)).report
    assert folded.input == "x" and not any("stay outside" in note for note in folded.notes)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("end", "host"),
    [
        (lambda y: F.softmax(y, -1), "rtlstm.host.softmax(y)"),
        (lambda y: y.log_softmax(dim=2), "numpy.log(rtlstm.host.softmax(y))"),
        (lambda y: torch.softmax(y, -1).argmax(-1), "rtlstm.host.argmax(y)"),
    ],
)
def test_classes_stay_with_the_host(end, host):
    module, x = Net(lambda m, r: end(m.linear(r[0]))), torch.randn(4, 2, I)
    for source in (module, torch.jit.trace(module, x), torch.export.export(module, (x,))):
        result = read_model(source)
        assert result.network.outputs == O
        assert any(note.endswith(f"stays on the host: {host}") for note in result.report.notes)
    scores = forward(read_model(module).network, x.numpy())
    if host == "rtlstm.host.softmax(y)":
        close(softmax(scores), outputs(module, x))


def test_output_cuts():
    module = Net(lambda m, r: F.softmax(m.linear(r[0]), -1))
    result = read_model(module, ReadOptions(output="linear"))
    assert result.network.outputs == O and result.report.output == "linear"
    with pytest.raises(ModelError, match="there is none of the name 'nothing'"):
        read_model(module, ReadOptions(output="nothing"))


def test_forward_of_its_own_is_refused():
    class Odd(nn.LSTM):
        def forward(self, x):
            return super().forward(x * 2)

    with pytest.raises(ModelError, match="it has a forward of its own"):
        read_model(nn.Sequential(Odd(I, H)))


def test_hooks_are_refused():
    module = nn.LSTM(I, H)
    module.register_forward_hook(lambda *_: None)
    with pytest.raises(ModelError, match="has forward hooks"):
        read_model(module)


def test_nan_weights_name_the_tensor():
    module = nn.LSTM(I, H)
    with torch.no_grad():
        module.bias_hh_l0[2] = float("nan")
    with pytest.raises(ModelError, match="'lstm': tensor 'bias_hh_l0' must hold finite numbers, but 1 of 24"):
        read_model(module)


class Reshaped(nn.Module):
    """Rows of a tensor through a dense layer, and again as steps and sequences into a second LSTM."""

    def __init__(self, shape):
        super().__init__()
        self.one, self.fc, self.two = nn.LSTM(I, H), nn.Linear(H, O), nn.LSTM(O, H)
        self.shape = shape

    def forward(self, x):
        rows = self.fc(self.one(x)[0].reshape(-1, H)).tanh()
        return self.two(rows.view(*self.shape(x)))[0]


@pytest.mark.filterwarnings(
    "ignore::UserWarning", "ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning"
)
@pytest.mark.parametrize(
    "shape",
    [
        lambda x: (-1, x.size(1), O),
        lambda x: (x.size()[0], x.size(-2), O),
        lambda x: (x.shape[0], -1, O),
        lambda x: (x.shape[0], x.shape[1], -1),
    ],
)
def test_reshape_to_sizes_of_tensors(shape):
    module, x = Reshaped(shape), torch.randn(7, 2, I)
    program = torch.export.export(module.eval(), (x,), dynamic_shapes=({1: torch.export.Dim.DYNAMIC},))
    scripted = torch.jit.trace(module, x)
    for source in (module, scripted, program):
        close(forward(read_model(source).network, x.numpy()), outputs(module, x))


def test_reshape_that_takes_steps_for_sequences_is_refused():
    module = Reshaped(lambda x: (x.size(1), x.size(0), O))
    with pytest.raises(ModelError, match=r"LSTM 'two' must read axes \(T, N, F\)"):
        read_model(module)


def test_what_is_no_model():
    with pytest.raises(ModelError, match=r"a path, a torch.nn.Module or .*, not int"):
        read_model(3)


# State dicts


@pytest.mark.usefixtures("read_here")
def test_state_dict_file(tmp_path):
    module, x = nn.LSTM(I, H, num_layers=2), torch.randn(4, 1, I)
    torch.save({"epoch": 3, "state_dict": module.state_dict()}, tmp_path / "net.pt")
    result = read_model(tmp_path / "net.pt")
    close(forward(result.network, x.numpy()), outputs(module, x)[0])
    assert result.report.format == "torch state dict"
    assert np.all([layer.kind == "lstm" for layer in result.network.layers])


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.usefixtures("read_here")
def test_pickled_module_is_refused(tmp_path, zipped):
    torch.save(nn.LSTM(I, H), tmp_path / "net.pt", _use_new_zipfile_serialization=zipped)
    with pytest.raises(ModelError, match=r"net.pt: must be a state dict.*pickled modules are not loaded"):
        read_model(tmp_path / "net.pt")


@pytest.mark.parametrize(
    ("drop", "message"),
    [
        (lambda y: F.dropout(y, 0.5), "must be False, not True"),
        (lambda y: F.dropout(y, 0.5, True), "must be False, not True"),
        (lambda y: F.dropout(y, p=0.5, training=False), None),
    ],
)
def test_functional_dropout_must_be_off(drop, message):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm, self.linear = nn.LSTM(I, H), nn.Linear(H, O)

        def forward(self, x):
            return self.linear(drop(self.lstm(x)[0]))

    if message is None:
        assert len(read_model(Net().eval()).network.layers) == 2
    else:
        with pytest.raises(ModelError, match=message):
            read_model(Net().eval())
