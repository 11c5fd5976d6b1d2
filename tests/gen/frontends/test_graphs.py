"""Modules with branches, products and reductions over the steps, as hardware: values and equal bits."""

import numpy as np
import pytest
from support.lazy import F, nets, nn, torch
from support.quick import quick
from support.refusals import refused
from support.torch_forms import equals, in_form

import rtlstm
from rtlstm.gen.frontends import ReadOptions, read_model
from rtlstm.spec.activations.functions import ACTIVATIONS, ActivationFunction

pytestmark = pytest.mark.usefixtures("read_here")
N, T, I, H = 8, 7, 4, 6  # noqa: E741
FIRST = {"batch_first": True}


def denoiser(m, x):
    """Three GRUs that each read earlier ones and the input, as RNNoise has them; gains on a projection."""
    dense = torch.tanh(m.inner(x))
    speech = m.speech(dense)[0]
    noise = m.noise(torch.cat([dense, speech, x], -1))[0]
    return torch.sigmoid(m.gains(m.denoise(torch.cat([speech, noise, x], -1))[0])) * x


def squeezed(m, x):
    y = m.lstm(x)[0]
    return m.head(y * torch.sigmoid(m.back(torch.relu(m.inside(y)))))


def mixed(m, x):
    """All of it: branches, a gated linear unit, a product, a mean beside a maximum."""
    y, z = m.lstm(x)[0], m.gru(x)[0]
    gated = F.glu(m.gates(torch.cat([y, z], -1)), -1) * z
    return m.pair(torch.cat([gated.mean(1), torch.maximum(y, z).amax(1)], -1))


def convolved(m, x):
    """Layers before and behind a GRU: a causal convolution, a batch norm and a dense layer."""
    x = m.conv(x.transpose(1, 2))[:, :, :-2].relu().transpose(1, 2)
    return torch.sigmoid(m.inner(F.elu(m.norm(m.speech(x)[0].transpose(1, 2)).transpose(1, 2))))


MODULES = {
    "all of it": mixed,
    "a convolution and a batch norm": convolved,
    "a denoiser": denoiser,
    "a gated linear unit": lambda m, x: m.head(F.glu(m.twice(m.lstm(x)[0]), -1)),
    "a squeezed gate": squeezed,
    "two branches": lambda m, x: m.pair(torch.cat([m.lstm(x)[0], m.gru(x)[0]], -1)),
    "a mean over steps": lambda m, x: m.head(m.lstm(x)[0].mean(1)),
    "a maximum over steps": lambda m, x: m.head(m.lstm(x)[0].amax(1)),
    "a sum over steps": lambda m, x: m.head(torch.tanh(m.gru(x)[0].sum(1))),
    "all steps in a dense layer": lambda m, x: m.all(m.lstm(x)[0].flatten(1)),
    "squares": lambda m, x: m.head(m.lstm(x)[0] ** 2 - m.gru(x)[0].abs()),
}


def made(call):
    torch.manual_seed(6)
    module = nets.Net(
        call, lstm=nn.LSTM(I, H, **FIRST), gru=nn.GRU(I, H, **FIRST), inner=nn.Linear(I, 5),
        speech=nn.GRU(5, 4, **FIRST), noise=nn.GRU(9 + I, 6, **FIRST), denoise=nn.GRU(10 + I, 6, **FIRST),
        gains=nn.Linear(6, I), gates=nn.Linear(2 * H, 2 * H), twice=nn.Linear(H, 2 * H),
        inside=nn.Linear(H, 2), back=nn.Linear(2, H), head=nn.Linear(H, 3), pair=nn.Linear(2 * H, 3),
        all=nn.Linear(T * H, 3), conv=nn.Conv1d(I, 5, 3, padding=2), norm=nn.BatchNorm1d(4),
    )  # fmt: skip
    nn.init.uniform_(module.norm.running_mean, -0.2, 0.2)
    return module.eval()


@pytest.mark.rtl
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", quick(MODULES, "all of it"))
def test_bits_and_accuracy(name, tmp_path):
    module = made(MODULES[name])
    x = torch.randn(3 * N, T, I)
    build = rtlstm.compile(module, calibration=x.numpy(), sequence_length=T, folder=tmp_path / "build")
    found = build.simulate(x[:2].numpy(), simulator="icarus", verify=False)
    assert found.passed and found.cycles_predicted == found.cycles_measured
    y, _ = build.run(x.numpy())
    wanted = module(x).detach().numpy()
    error = (y if wanted.ndim == 3 else y[:, -1]) - wanted
    assert np.sqrt(np.mean(error**2)) < 0.002 * wanted.std()


def test_a_recurrent_layer_absorbs_what_it_joins():
    """Results side by side cost no layer of their own; their sum does where that needs fewer weights."""
    layers = read_model(made(denoiser)).network.layers
    assert [[read.back for read in layer.sources] for layer in layers] == [
        [1],
        [1],
        [1, 2, 3],
        [1, 2, 4],
        [1, 5],
    ]
    wide = nets.Net(lambda m, x: m.b((lambda y: m.a(y)[0] + y)(m.lstm(x)[0]))[0], lstm=nn.LSTM(I, H),
                    a=nn.LSTM(H, H), b=nn.LSTM(H, H)).eval()  # fmt: skip
    assert [layer.kind for layer in read_model(wide).network.layers] == ["lstm", "lstm", "dense", "lstm"]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("form", ["module", "exported", "onnx"])
def test_a_residual_around_layers_behind_what_stays_outside(form, tmp_path):
    """The core begins at the tensor that both read, which an exporter transposes for the layers alone."""
    parts = {"inner": nn.Linear(I, H), "lstm": nn.LSTM(H, H, **FIRST)}
    module = nets.Net(lambda m, x: (lambda e: m.lstm(e)[0] + e)(m.inner(x).exp()), **parts).eval()
    x = torch.randn(N, T, I)
    source = in_form(form, module, (x,), tmp_path)
    result = equals(source, lambda e: module.lstm(e)[0] + e, module.inner(x).exp().detach())
    assert any("stay outside of the core" in note for note in result.report.notes)


def test_a_refusal_names_an_end_that_all_behind_it_can_be_computed_from():
    """Not the scores of attention over steps, whose weighted sum reads the layer's results, too."""
    parts = {"lstm": nn.LSTM(I, H, **FIRST), "score": nn.Linear(H, 1)}
    module = nets.Net(
        lambda m, x: (lambda y: (m.score(y).softmax(1) * y).sum(1))(m.lstm(x)[0]), **parts
    ).eval()
    refused(module, "end at `output='lstm'`")
    assert [layer.kind for layer in read_model(module, ReadOptions(output="lstm")).network.layers] == ["lstm"]


def test_a_mean_needs_the_number_of_steps():
    """Each way out is taken."""
    module, x = made(MODULES["a mean over steps"]), torch.randn(N, T, I)
    refused(module, "give it as `sequence_length`, or let the model take the sum")
    refused(made(MODULES["all steps in a dense layer"]), "mixed the features")
    read = equals(module, module, x, options=ReadOptions(sequence_length=T))
    assert any("the mean is that of 7 steps" in note for note in read.report.notes)
    summed = made(lambda m, x: m.lstm(x)[0].sum(1))
    equals(summed, summed, x)
    torch.testing.assert_close(module.head(summed(x) / T), module(x))


def test_a_maximum_needs_a_lower_limit():
    """With tanh in front it is read."""
    refused(made(lambda m, x: (m.lstm(x)[0][..., :I] * x).amax(1)), "needs values with a lower limit")
    module = made(lambda m, x: (m.lstm(x)[0][..., :I] * x).tanh().amax(1))
    equals(module, module, torch.randn(N, T, I))


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("alpha", [None, 0.25, -0.5])
def test_limits_of_functions(name, alpha):
    function = ActivationFunction.of(name, alpha)
    low, high = function.limits
    values = function(np.linspace(-40.0, 40.0, 8001))
    assert low <= values.min() and values.max() <= high
    if name in ("sigmoid", "tanh", "softplus", "gelu", "mish", "hard_tanh"):
        assert np.isfinite(low)
