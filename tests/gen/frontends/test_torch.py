"""PyTorch modules against PyTorch's own outputs; refusals by name."""

import numpy as np
import pytest
from support.closeness import close
from support.lazy import F, nets, nn, torch
from support.quick import quick
from support.refusals import refused

from rtlstm.gen.frontends import ReadOptions, inspect_model, read_model
from rtlstm.host import softmax
from rtlstm.sim.reference import run_float

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


def outputs(module, x):
    with torch.no_grad():
        return module.eval()(x)


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
    x = torch.randn(4, 2, I)
    network = read_model(module).network
    close(run_float(network, x.numpy()).y, outputs(module, x))
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
def test_classes_stay_with_the_host(end, host):
    module, x = net(lambda m, r: end(m.linear(r[0]))), torch.randn(4, 2, I)
    for source in (module, torch.jit.trace(module, x), torch.export.export(module, (x,))):
        result = read_model(source)
        assert result.network.outputs == O
        assert any(note.endswith(f"stays on the host: {host}") for note in result.report.notes)
    scores = run_float(read_model(module).network, x.numpy()).y
    if host == "rtlstm.host.softmax(y)":
        close(softmax(scores), outputs(module, x))


def test_output_cuts():
    module = net(lambda m, r: F.softmax(m.linear(r[0]), -1))
    result = read_model(module, ReadOptions(output="linear"))
    assert result.network.outputs == O and result.report.output == "linear"
    refused(module, "there is none of the name 'nothing'", ReadOptions(output="nothing"))


def test_forward_of_its_own_is_refused():
    class Odd(nn.LSTM):
        def forward(self, x):
            return super().forward(x * 2)

    refused(nn.Sequential(Odd(I, H)), "it has a forward of its own")


def test_hooks_are_refused():
    module = nn.LSTM(I, H)
    module.register_forward_hook(lambda *_: None)
    refused(module, "has forward hooks")


def test_nan_weights_name_the_tensor():
    module = nn.LSTM(I, H)
    with torch.no_grad():
        module.bias_hh_l0[2] = float("nan")
    refused(module, "'lstm': tensor 'bias_hh_l0' must hold finite numbers, but 1 of 24")


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
    module, x = reshaped(SHAPES[shape]), torch.randn(7, 2, I)
    program = torch.export.export(module.eval(), (x,), dynamic_shapes=({1: torch.export.Dim.DYNAMIC},))
    scripted = torch.jit.trace(module, x)
    for source in (module, scripted, program):
        close(run_float(read_model(source).network, x.numpy()).y, outputs(module, x))


def test_reshape_that_takes_steps_for_sequences_is_refused():
    refused(reshaped(lambda x: (x.size(1), x.size(0), O)), r"LSTM 'two' must read axes \(T, N, F\)")


def test_what_is_no_model():
    refused(3, r"a path, a torch.nn.Module or .*, not int")


# State dicts


@pytest.mark.usefixtures("read_here")
def test_state_dict_file(tmp_path):
    module, x = nn.LSTM(I, H, num_layers=2), torch.randn(4, 1, I)
    torch.save({"epoch": 3, "state_dict": module.state_dict()}, tmp_path / "net.pt")
    result = read_model(tmp_path / "net.pt")
    close(run_float(result.network, x.numpy()).y, outputs(module, x)[0])
    assert result.report.format == "torch state dict"
    assert np.all([layer.kind == "lstm" for layer in result.network.layers])


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.usefixtures("read_here")
def test_pickled_module_is_refused(tmp_path, zipped):
    torch.save(nn.LSTM(I, H), tmp_path / "net.pt", _use_new_zipfile_serialization=zipped)
    refused(tmp_path / "net.pt", r"net.pt: must be a state dict.*pickled modules are not loaded")


@pytest.mark.parametrize(
    ("drop", "message"),
    [
        (lambda y: F.dropout(y, 0.5), "must be False, not True"),
        (lambda y: F.dropout(y, 0.5, True), "must be False, not True"),
        (lambda y: F.dropout(y, p=0.5, training=False), None),
    ],
)
def test_functional_dropout_must_be_off(drop, message):
    module = net(lambda m, r: m.linear(drop(r[0]))).eval()
    if message is None:
        assert len(read_model(module).network.layers) == 2
    else:
        refused(module, message)
