"""PyTorch modules against PyTorch's own outputs; refusals by name."""

from copy import deepcopy

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.closeness import close
from support.lazy import F, Lazy, nets, nn, torch
from support.quick import quick
from support.refusals import refused
from support.torch_forms import equals, in_form

from rtlstm.gen.frontends import ReadOptions, inspect_model, read_model
from rtlstm.host import softmax
from rtlstm.sim.reference import run_float

rnn = Lazy("torch.nn.utils.rnn")
I, H, O = 5, 6, 3  # noqa: E741


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def net(tail, before=None, **options):
    """An LSTM whose output goes through ``tail(net, y)``."""
    return nets.Net(
        lambda m, x: tail(m, m.lstm(before(m, x) if before else x)),
        lstm=nn.LSTM(I, H, **options),
        linear=nn.Linear(H, O),
        second=nn.Linear(O, 2),
        celu=nn.CELU(),
    )


@pytest.mark.parametrize("batch_first", [False, True])
def test_lstm_alone(batch_first):
    result = read_model(nn.LSTM(I, H, num_layers=2, batch_first=batch_first), name="vollo")
    assert [layer.name for layer in result.network.layers] == ["lstm_l0", "lstm_l1"]
    assert (result.network.name, result.report.source) == ("vollo", "LSTM")
    assert ("batch_first" in result.report.layout) == result.report.batch_first == batch_first


def test_sequential_with_an_extractor():
    def first():
        return nets.Net(lambda m, x: x[0])

    module = nn.Sequential(
        nn.LSTM(I, H), first(), nn.LSTM(H, H), first(), nn.ReLU(), nn.Dropout(), nn.Linear(H, O), nn.Sigmoid()
    )
    network = equals(module, deepcopy(module).eval(), torch.randn(4, 2, I)).network
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
    module = nets.LengthsNet(
        lambda m, x, lengths: m.lstm(x, (lengths, torch.zeros(1, x.size(1), H))), lstm=nn.LSTM(I, H)
    )
    result = read_model(module)
    assert any("initial_h is the model's input 'lengths'" in note for note in result.report.notes)
    twice = read_model(nets.LengthsNet(lambda m, x, h: m.lstm(x, (h, h)), lstm=nn.LSTM(I, H))).report
    assert len([note for note in twice.notes if "initial_h and initial_c are the model's" in note]) == 1


def test_dropout_between_layers_is_noted():
    result = read_model(nn.LSTM(I, H, num_layers=2, dropout=0.3))
    assert any("dropout=0.3 is ignored" in note for note in result.report.notes)


# What is refused, by name


def odd():
    class Odd(nn.LSTM):
        def forward(self, x):
            return super().forward(x * 2)

    return Odd(I, H)


def hooked():
    module = nn.LSTM(I, H)
    module.register_forward_hook(lambda *_: None)
    return module


def broken():
    module = nn.LSTM(I, H)
    with torch.no_grad():
        module.bias_hh_l0[2] = float("nan")
    return module


REFUSED = [
    (lambda: nn.ReLU(), "must have an nn.LSTM, nn.GRU, nn.RNN or a cell, or an nn.Linear or nn.Conv1d"),
    (
        lambda: net(lambda m, r: m.celu(r[0])),
        "CELU 'celu', which reads 'lstm', is not supported.*output='lstm'",
    ),
    (lambda: net(lambda m, r: m.second(F.softmax(m.linear(r[0]), -1))), "softmax 'softmax'.*not supported"),
    (lambda: net(lambda m, r: F.softmax(m.linear(r[0]), 0)), "softmax 'softmax' works along axis 0"),
    (lambda: net(lambda m, r: m.linear(r[0]).argmax()), "argmax 'argmax': dim must be given"),
    (lambda: net(lambda m, r: torch.exp(m.linear(r[0]))), "output='linear'"),
    (lambda: net(lambda m, r: m.linear(r[0]) * r[0].mean()), "mean 'mean' reduces axis"),
    (
        lambda: net(lambda m, r: m.linear(r[0]) @ m.linear(r[0])),
        "multiplies two tensors that depend on the input",
    ),
    (
        lambda: net(
            lambda m, r: (m.linear(r[1][0].transpose(0, 1).flatten(1)[:, 2:8]), m.linear(r[0][..., 3:9])),
            bidirectional=True,
        ),
        "are two results, but the core computes one chain",
    ),
    (lambda: net(lambda m, r: m.linear(r[0][:, -1])), "element -1 of axis 1, which is the sequences"),
    (lambda: net(lambda m, r: m.linear(r[0][1])), "element 1 of axis 0, which is the steps"),
    (
        lambda: net(lambda m, r: m.linear(r[0].reshape(1, -1))),
        "must read whole feature vectors, but reshape 'reshape'",
    ),
    (lambda: net(lambda m, r: m.linear(r[1][1])), "the final state c .* is read by Linear 'linear'"),
    (lambda: net(lambda m, r: m.linear(r[1][0]), num_layers=2), "reads the final states of all layers"),
    (
        lambda: net(lambda m, r: m.linear(r[1][0]), num_layers=2, bidirectional=True),
        "reads the final states of all layers, .* take element -2, its forward direction, or -1",
    ),
    (
        lambda: net(lambda m, r: m.linear(r[1][0][0]), num_layers=2, bidirectional=True),
        "element 0 of axis 0, which is",
    ),
    (
        lambda: net(lambda m, r: m.linear(torch.cat([r[0][0], r[0][-1]], -1)[:, :H])),
        "joins tensors of different axes",
    ),
    (
        lambda: net(lambda m, r: m.linear(r[0]) + m.linear(r[1][0])),
        "joins tensors of different axes, \\(T, N, F\\) and \\(D, N, F\\)",
    ),
    (lambda: net(lambda m, r: r[0] if r[0].sum() > 0 else r[1]), "cannot be traced"),
    (lambda: net(lambda m, r: m.linear(F.dropout(r[0], 0.5))), "must be False, not True"),
    (lambda: net(lambda m, r: m.linear(F.dropout(r[0], 0.5, True))), "must be False, not True"),
    (lambda: nn.Sequential(odd()), "it has a forward of its own"),
    (hooked, "has forward hooks"),
    (broken, "'lstm': tensor 'bias_hh_l0' must hold finite numbers, but 1 of 24"),
    (lambda: reshaped(lambda x: (x.size(1), x.size(0), O)), r"LSTM 'two' must read axes \(T, N, F\)"),
    (
        lambda: nn.LSTM(I, H, device="meta"),
        "must have values, but is on PyTorch's meta device; load the weights",
    ),
]


@pytest.mark.parametrize(("make", "words"), REFUSED)
def test_refused_by_name(make, words):
    module = make()
    refused(module, words)
    assert inspect_model(module).refusal


def test_what_is_no_model():
    refused(3, r"a path, a torch.nn.Module or .*, not int")


def test_what_is_upstream_can_be_left_outside_on_purpose():
    module = net(lambda m, r: m.linear(r[0]), before=lambda m, x: torch.exp(x))
    result = read_model(module, ReadOptions(lstm="lstm"))
    assert [entry.name for entry in result.report.outside if entry.kind == "exp"] == ["exp"]
    assert result.report.input == "exp"
    module = nets.Net(lambda m, x: m.lstm(input=torch.exp(x))[0], lstm=nn.LSTM(I, H))
    named = read_model(module, ReadOptions(lstm="lstm"))
    for report in (result.report, named.report, read_model(module).report):
        assert any("stay outside of the core: its input is 'exp'" in note for note in report.notes)
    folded = read_model(net(lambda m, r: m.linear(r[0]), before=lambda m, x: x - 2.0)).report
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
def test_classes_stay_with_the_host(end, host, tmp_path):
    module, x = net(lambda m, r: end(m.linear(r[0]))).eval(), torch.randn(4, 2, I)
    for form in ("live", "trace", "exported"):
        source = in_form(form, module, (x,), tmp_path, saved=False)
        result = equals(source, lambda x: module.linear(module.lstm(x)[0]), x)
        assert any(note.endswith(f"stays on the host: {host}") for note in result.report.notes)
    if host == "rtlstm.host.softmax(y)":
        close(softmax(run_float(result.network, x.numpy()).y), module(x).detach().numpy())


def test_output_cuts():
    module = net(lambda m, r: F.softmax(m.linear(r[0]), -1))
    result = read_model(module, ReadOptions(output="linear"))
    assert result.network.outputs == O and result.report.output == "linear"
    refused(module, "there is none of the name 'nothing'", ReadOptions(output="nothing"))


SHAPES = {
    "first left open": lambda x: (-1, x.size(1), O),
    "sizes": lambda x: (x.size()[0], x.size(-2), O),
    "second left open": lambda x: (x.shape[0], -1, O),
    "last left open": lambda x: (x.shape[0], x.shape[1], -1),
}


def reshaped(shape):
    """Rows of a tensor through a dense layer, and again as steps and sequences into a second LSTM."""
    return nets.Net(
        lambda m, x: m.two(m.fc(m.one(x)[0].reshape(-1, H)).tanh().view(*shape(x)))[0],
        one=nn.LSTM(I, H),
        fc=nn.Linear(H, O),
        two=nn.LSTM(O, H),
    )


@pytest.mark.filterwarnings(
    "ignore::UserWarning", "ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning"
)
@pytest.mark.parametrize("shape", quick(SHAPES, "first left open"))
def test_reshape_to_sizes_of_tensors(shape):
    module, x = reshaped(SHAPES[shape]).eval(), torch.randn(7, 2, I)
    program = torch.export.export(module, (x,), dynamic_shapes=({1: torch.export.Dim.DYNAMIC},))
    for source in (module, torch.jit.trace(module, x), program):
        equals(source, module, x)


# State dicts


@pytest.mark.usefixtures("read_here")
def test_state_dict_file(tmp_path):
    module, x = nn.LSTM(I, H, num_layers=2), torch.randn(4, 1, I)
    torch.save({"epoch": 3, "state_dict": module.state_dict()}, tmp_path / "net.pt")
    result = equals(tmp_path / "net.pt", module, x)
    assert result.report.format == "torch state dict"
    assert np.all([layer.kind == "lstm" for layer in result.network.layers])


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.usefixtures("read_here")
def test_pickled_module_is_refused(tmp_path, zipped):
    torch.save(nn.LSTM(I, H), tmp_path / "net.pt", _use_new_zipfile_serialization=zipped)
    refused(tmp_path / "net.pt", r"net.pt: must be a state dict.*pickled modules are not loaded")


# Random modules and heads, with lengths and initial states

HEADS = [
    "ReLU", "Sigmoid", "Tanh", "Hardsigmoid", "ReLU6", "Softsign", "Softplus", "ELU", "LeakyReLU", "Dropout",
    "Identity",
    lambda: nn.Hardtanh(-0.5, 0.25), lambda: nn.Threshold(0.1, 0.0), lambda: nn.ELU(0.5),
    lambda: nn.LeakyReLU(0.2), lambda: nn.Softplus(beta=3.0),
]  # fmt: skip


@st.composite
def modules(draw):
    kind = draw(st.sampled_from(["LSTM", "GRU", "RNN"]))
    hidden = draw(st.integers(2, 6))
    options = {
        "num_layers": draw(st.integers(1, 3)),
        "bias": draw(st.booleans()),
        "batch_first": draw(st.booleans()),
        "bidirectional": draw(st.booleans()),
        "dropout": draw(st.sampled_from([0.0, 0.5])),
    }
    if kind == "LSTM":
        options["proj_size"] = draw(st.integers(0, hidden - 1))
    if kind == "RNN":
        options["nonlinearity"] = draw(st.sampled_from(["tanh", "relu"]))
    return kind, (draw(st.integers(1, 5)), hidden), options, draw(st.integers(0, 2**31))


def build(drawn):
    kind, sizes, options, seed = drawn
    torch.manual_seed(seed)
    return getattr(nn, kind)(*sizes, **options).eval().double()


def random_state(module, batch):
    count = module.num_layers * (1 + module.bidirectional)
    h = torch.rand(count, batch, module.proj_size or module.hidden_size, dtype=torch.float64) - 0.5
    c = torch.rand(count, batch, module.hidden_size, dtype=torch.float64) - 0.5
    return (h, c) if isinstance(module, nn.LSTM) else h


@pytest.mark.filterwarnings("ignore:dropout option adds dropout")
@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(drawn=modules(), steps=st.integers(1, 6), batch=st.integers(1, 3), data=st.data())
def test_random_module_equals_torch(drawn, steps, batch, data):
    module = build(drawn)
    lengths = data.draw(st.lists(st.integers(1, steps), min_size=batch, max_size=batch))
    lengths[0] = steps
    x = torch.rand(steps, batch, module.input_size, dtype=torch.float64) * 2 - 1
    state = random_state(module, batch)
    packed = rnn.pack_padded_sequence(x, torch.tensor(lengths), enforce_sorted=False)
    with torch.no_grad():
        y, final = module(packed, state)
    y, _ = rnn.pad_packed_sequence(y)
    h, c = final if isinstance(final, tuple) else (final, ())
    network = read_model(module).network
    start = tuple(np.asarray(part) for part in (state if isinstance(state, tuple) else (state, ())))
    result = run_float(network, x.numpy(), start, lengths)
    np.testing.assert_allclose(result.y, y.numpy(), atol=1e-9)
    np.testing.assert_allclose(np.stack(result.h), h.numpy(), atol=1e-9)
    if len(c):
        np.testing.assert_allclose(np.stack(result.c), c.numpy(), atol=1e-9)


def made(head):
    return getattr(nn, head)() if isinstance(head, str) else head()


@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(
    first=st.lists(st.sampled_from(HEADS), max_size=2),
    last=st.lists(st.sampled_from(HEADS), max_size=3),
    kinds=st.lists(st.sampled_from(["LSTM", "GRU", "RNN"]), min_size=1, max_size=2),
    both=st.booleans(),
    seed=st.integers(0, 2**31),
)
def test_random_stack_equals_torch(first, last, kinds, both, seed):
    torch.manual_seed(seed)
    before = [part for head in first for part in (nn.Linear(3, 3), made(head))]
    recurrents, width = [], 3
    for kind in kinds:
        recurrents.append(getattr(nn, kind)(width, 4, bidirectional=both))
        width = 8 if both else 4
    after = [part for head in last for part in (made(head), nn.Linear(width, width))]
    module = nets.chain(*before, *recurrents, *after).eval().double()
    x = torch.rand(5, 2, 3, dtype=torch.float64) * 4 - 2
    expected = module(x).detach().numpy()
    np.testing.assert_allclose(run_float(read_model(module).network, x.numpy()).y, expected, atol=1e-8)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("kind", ["LSTMCell", "GRUCell", "RNNCell"])
def test_cell_steps_equal_torch(kind, bias):
    torch.manual_seed(1)
    options = {"nonlinearity": "relu"} if kind == "RNNCell" else {}
    cell = getattr(nn, kind)(3, 5, bias=bias, **options).double()
    x, state, expected = torch.rand(4, 2, 3, dtype=torch.float64) - 0.5, None, []
    with torch.no_grad():
        for step in x:
            state = cell(step, state)
            expected.append((state[0] if isinstance(state, tuple) else state).numpy())
    result = read_model(cell)
    np.testing.assert_allclose(run_float(result.network, x.numpy()).y, expected, atol=1e-9)
    assert any("keeps its state from step to step" in note for note in result.report.notes)
