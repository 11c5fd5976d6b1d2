"""Models with several inputs: one input of the network, with the model's side by side, by their names."""

import numpy as np
import pytest
from support.lazy import F, nets, nn, torch
from support.refusals import refused
from support.torch_forms import equals, in_form

import rtlstm
from rtlstm.gen.frontends import ReadOptions, read_model
from rtlstm.sim.reference import run_float
from rtlstm.spec.errors import InputError, ModelError

pytestmark = pytest.mark.usefixtures("read_here")
N, T, I, S, H = 3, 6, 4, 2, 5  # noqa: E741
FIRST = {"batch_first": True}


def two(call, **modules):
    """A module of two inputs."""
    torch.manual_seed(4)
    return nets.PairNet(call, **modules).eval()


def data(kind):
    torch.manual_seed(5)
    shapes = {"sequence": (N, T, S), "still": (N, S)}
    other = torch.randint(0, 9, (N, T)) if kind == "numbers" else torch.randn(shapes[kind])
    return torch.randn(N, T, I), other


MODELS = {
    "two sequences": (lambda m, x, s: m.fc(torch.cat([m.lstm(x)[0], m.other(s)[0]], -1)), "sequence"),
    "a sequence behind": (lambda m, x, s: m.fc(torch.cat([m.lstm(x)[0], m.up(s)], -1)), "sequence"),
    "beside the last step": (lambda m, x, s: m.some(torch.cat([m.lstm(x)[0][:, -1], s], 1)), "still"),
    "beside the final state": (lambda m, x, s: m.fc(torch.cat([m.lstm(x)[1][0][-1], m.up(s)], 1)), "still"),
    "a gate for all steps": (lambda m, x, s: m.lstm(x)[0] * m.up(s).sigmoid().unsqueeze(1), "still"),
    "an embedding beside features": (lambda m, x, s: m.joined(torch.cat([m.table(s), x], -1))[0], "numbers"),
    "features beside an embedding": (lambda m, x, s: m.joined(torch.cat([x, m.table(s)], -1))[0], "numbers"),
}


def model(name):
    parts = {"lstm": nn.LSTM(I, H, **FIRST), "other": nn.GRU(S, H, **FIRST), "up": nn.Linear(S, H)}
    parts |= {"fc": nn.Linear(2 * H, 3), "some": nn.Linear(H + S, 3)}
    return two(MODELS[name][0], **parts, table=nn.Embedding(9, 3), joined=nn.GRU(I + 3, H, **FIRST))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", MODELS)
def test_two_inputs_in_every_form(name, tmp_path):
    module, given = model(name), data(MODELS[name][1])
    forms = ["module", "exported", "trace"]
    if given[1].is_floating_point():  # ONNX has no operator for look-ups alone
        forms.append("onnx")
    for form in forms:
        read = equals(in_form(form, module, given, tmp_path), module, *given)
        assert [part.width for part in read.network.input_parts] == [I, 3 if read.embeddings else S]


@pytest.mark.filterwarnings("ignore")
def test_widths_that_a_module_does_not_tell(tmp_path):
    """A file tells them; of a module, calibration data by name do, or an option."""
    module = two(lambda m, x, s: m.lstm(torch.cat([x, s], -1))[0], lstm=nn.LSTM(I + S, H, **FIRST))
    given = data("sequence")
    path = in_form("exported", module, given, tmp_path)
    whole = read_model(path).network
    for widths in (("x:4",), ("x:4", "other:2")):
        found = read_model(module, ReadOptions(input_widths=widths)).network
        assert found.input_parts == whole.input_parts
        assert np.array_equal(found.layers[0].w_ih, whole.layers[0].w_ih)
    x, other = (each.numpy() for each in given)
    build = rtlstm.compile(module, calibration={"x": x, "other": other}, folder=tmp_path / "b")
    assert build.manifest.input_parts == whole.input_parts
    refused(module, "must be NAME:WIDTH, not 'x4'", ReadOptions(input_widths=("x4",)))
    refused(module, "must be of the inputs x, other, not 'y'", ReadOptions(input_widths=("y:4",)))
    wrong = "input 'x' has 4 features in the model, but 2 are given"
    refused(path, wrong, ReadOptions(input_widths=("x:2", "other:4")))
    alone = nn.Linear(I, S)
    refused(
        alone,
        "input 'input_1' has 4 features in the model, but 2 are",
        ReadOptions(input_widths=("input_1:2",)),
    )
    assert read_model(alone, ReadOptions(input_widths=("input_1:4",))).network.inputs == I
    with pytest.raises(ModelError, match=wrong):
        rtlstm.compile(path, calibration={"x": other, "other": x}, folder=tmp_path / "b")


@pytest.fixture(scope="module")
def build(tmp_path_factory):
    module, given = model("beside the final state"), data("still")
    named = {name: each.numpy() for name, each in zip(("x", "other"), given, strict=True)}
    return (
        rtlstm.compile(module, calibration=named, folder=tmp_path_factory.mktemp("two") / "build"),
        module,
        named,
    )


@pytest.mark.filterwarnings("ignore")
def test_the_driver_takes_them_by_name(build):
    built, module, named = build
    y, _ = built.run(named)
    assert np.array_equal(built.run((named["x"], named["other"]))[0], y)
    assert np.array_equal(built.run([named["x"], named["other"]])[0], y)
    many = {**named, "other": np.repeat(named["other"][:, None], T, axis=1)}
    assert np.array_equal(built.run(many)[0], y)
    assert np.array_equal(built.run(np.concatenate([named["x"], many["other"]], -1))[0], y)
    first = {name: each.swapaxes(0, 1) if each.ndim == 3 else each for name, each in named.items()}
    assert np.array_equal(built.run(first, batch_first=False)[0], y.swapaxes(0, 1))
    wanted = module(*map(torch.from_numpy, named.values())).detach().numpy()
    assert np.abs(y[:, -1] - wanted).max() < 0.01
    with built.open() as accelerator:
        assert np.array_equal(accelerator.run(named)[0], y)
        stream = accelerator.stream()
        steps = [stream.step({name: each[0, at] for name, each in many.items()}) for at in range(T)]
        assert np.array_equal(steps, y[0])


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda x, other: {"x": x}, "must have an array for each input of the model"),
        (lambda x, other: {"x": x, "other": other, "z": x}, "and no others"),
        (lambda x, other: (x,), "must have an array for each input of the model"),
        (lambda x, other: {"x": x, "other": other[:2]}, "'other' of shape"),
        (lambda x, other: {"x": x, "other": other[:, :1]}, "'other' of shape"),
        (lambda x, other: {"x": x, "other": np.ones(other.shape, int)}, "codes in all of them"),
        (lambda x, other: x, r"side by side: give them by name \(x, other\)"),
    ],
)
def test_wrong_inputs_are_refused(build, wrong, words):
    with pytest.raises(InputError, match=words):
        build[0].run(wrong(*build[2].values()))


def test_one_input_by_name(tmp_path):
    """A model with one input takes the array x."""
    read = read_model(two(lambda m, x, s: m.lstm(x)[0], lstm=nn.LSTM(I, H, **FIRST)))
    x = np.zeros((N, T, I))
    assert read.network.input_parts == () and read.looked_up({"x": x, "labels": x}).shape == x.shape
    with pytest.raises(InputError, match="must hold an array 'x' or a single one"):
        read.looked_up({"a": x, "b": x})


def test_what_repeats_a_result_is_refused():
    module = two(lambda m, x, s: m.up(m.other(s)[0][:, -1:].expand(-1, T, -1)) + m.lstm(x)[0],
                 lstm=nn.LSTM(I, H, **FIRST), other=nn.GRU(S, S, **FIRST), up=nn.Linear(S, H))  # fmt: skip
    refused(module, "repeats what the core computes")


def test_an_encoder_and_a_decoder_are_two_builds():
    """Each is read as the message says, and the state goes from one to the other."""
    module = two(lambda m, x, s: m.fc(m.dec(s, m.enc(x)[1])[0]), enc=nn.LSTM(I, H, **FIRST),
                 dec=nn.LSTM(S, H, **FIRST), fc=nn.Linear(H, 2))  # fmt: skip
    refused(module, "begins in the final state of LSTM 'enc'.*output='enc'.*lstm='dec'")
    given = data("sequence")
    first, second = (
        read_model(module, ReadOptions(**how)).network for how in ({"output": "enc"}, {"lstm": "dec"})
    )
    state = run_float(first, given[0].numpy().swapaxes(0, 1))
    found = run_float(second, given[1].numpy().swapaxes(0, 1), (state.h, state.c)).y
    np.testing.assert_allclose(found.swapaxes(0, 1), module(*given).detach().numpy(), atol=1e-5)


def test_activations_of_still_inputs():
    """They are computed once a step, as all layers."""
    module = two(lambda m, x, s: m.lstm(x)[0] + F.relu(m.up(s)).unsqueeze(1), lstm=nn.LSTM(I, H, **FIRST),
                 up=nn.Linear(S, H))  # fmt: skip
    equals(module, module, *data("still"))


@pytest.mark.filterwarnings("ignore")
def test_a_frame_alone_is_refused(tmp_path):
    """Of a model whose steps have several frames."""
    conv = nn.Conv1d(I, 4, 3, stride=2, padding=1)
    module = two(lambda m, x, s: m.lstm(m.conv(x.transpose(1, 2)).transpose(1, 2))[0], conv=conv,
                 lstm=nn.LSTM(4, H, **FIRST))  # fmt: skip
    built = rtlstm.compile(
        module, calibration=np.ones((N, 2 * T, I), "f4"), folder=tmp_path / "build", quick=True
    )
    with pytest.raises(InputError, match=rf"x must be \(N, T, {2 * I}\).*not \({I},\)"):
        built.run(np.zeros(I))
