"""Gradients: PyTorch's own without rounding; straight through what is rounded, 0 where it saturates."""

import pytest
from support.lazy import nets, nn, torch, train

STEPS, BATCH, I, H = 6, 3, 5, 7  # noqa: E741


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


@pytest.fixture
def doubles():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def head(function=torch.tanh):
    return nets.Net(
        lambda net, x: torch.sigmoid(net.second(function(net.first(net.lstm(x)[0])))),
        lstm=nn.LSTM(I, H),
        first=nn.Linear(H, 4),
        second=nn.Linear(4, 2),
    )


MODULES = {
    "lstm": lambda: nn.LSTM(I, H),
    "two layers, batch first": lambda: nn.LSTM(I, H, 2, batch_first=True),
    "both directions": lambda: nn.LSTM(I, H, 2, bidirectional=True),
    "projection": lambda: nn.LSTM(I, H, 2, proj_size=3),
    "gru": lambda: nn.GRU(I, H, 2),
    "gru, both directions": lambda: nn.GRU(I, H, bidirectional=True),
    "rnn": lambda: nn.RNN(I, H, 2),
    "rnn with relu": lambda: nn.RNN(I, H, nonlinearity="relu"),
}
FIELDS = {
    "w_ih": "weight_ih",
    "w_hh": "weight_hh",
    "bias": "bias_ih",
    "bias_ih": "bias_ih",
    "bias_hh": "bias_hh",
    "projection": "weight_hr",
}


def theirs(name):
    """PyTorch's name of a parameter."""
    _, _, layer, field = name.split(".")
    direction, _, rest = field.partition("_")
    if direction in ("forward", "backward"):
        field = rest
    return f"{FIELDS[field]}_l{layer}{'_reverse' if direction == 'backward' else ''}"


def weighted(values):
    """A number that depends on every value differently."""
    return sum(
        (part * torch.arange(1.0, part.numel() + 1).to(part).cos().reshape(part.shape)).sum()
        for part in values
    )


def gradients(module, x, state):
    y, last = module(x, state)
    parts = last if isinstance(last, tuple) else (last,)
    leaves = [x, *(state if isinstance(state, tuple) else (state,))]
    named = dict(module.named_parameters())
    found = torch.autograd.grad(weighted([y, *parts]), [*leaves, *named.values()], allow_unused=True)
    return found[: len(leaves)], dict(zip(named, found[len(leaves) :], strict=True))


@pytest.mark.usefixtures("doubles")
@pytest.mark.parametrize("name", MODULES)
def test_without_rounding_they_are_pytorchs(name):
    module = MODULES[name]()
    q = train.prepare(module)
    q.rounding = False
    lead = (BATCH, STEPS) if module.batch_first else (STEPS, BATCH)
    x = torch.randn(*lead, I, requires_grad=True)
    layers = module.num_layers * (2 if module.bidirectional else 1)
    h = torch.randn(layers, BATCH, module.proj_size or H, requires_grad=True)
    c = torch.randn(layers, BATCH, H, requires_grad=True)
    state = (h, c) if isinstance(module, nn.LSTM) else h
    leaves, expected = gradients(module, x, state)
    mine, found = gradients(q, x, state)
    for a, b in zip(mine, leaves, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-8)
    compared = [name for name in found if name.startswith("weights.")]
    assert len(compared) >= 3 * layers
    for each in compared:
        torch.testing.assert_close(found[each], expected[theirs(each)], rtol=1e-5, atol=1e-8)


@pytest.mark.usefixtures("doubles")
@pytest.mark.parametrize("name", ["tanh", "gelu", "hardswish", "mish", "selu", "silu"])
def test_without_rounding_dense_layers_have_pytorchs_gradients(name):
    module = head(getattr(nn.functional, name))
    q = train.prepare(module)
    q.rounding = False
    x = torch.randn(STEPS, BATCH, I)
    for each in (module, q):
        weighted([each(x)]).backward()
    for layer, mine in enumerate((module.first, module.second), start=1):
        torch.testing.assert_close(q.weights.layers[layer]["weight"].grad, mine.weight.grad)
        torch.testing.assert_close(q.weights.layers[layer]["bias"].grad, mine.bias.grad)


@pytest.mark.usefixtures("doubles")
@pytest.mark.parametrize("name", ["two layers, batch first", "projection", "gru, both directions"])
def test_with_weight_normalisation_they_are_those_of_pytorchs_own(name):
    module = MODULES[name]()
    q = train.prepare(module, weight_normalisation=True)
    q.rounding = False
    for each in [key for key, _ in module.named_parameters() if key.startswith("weight")]:
        nn.utils.parametrizations.weight_norm(module, each)
    # Lengths that are not those of the directions, the same for both.
    for key, lengths in q.weights.named_parameters():
        if key.endswith("_lengths"):
            field = f"parametrizations.{theirs('weights.' + key.removesuffix('_lengths'))}.original0"
            with torch.no_grad():
                module.get_parameter(field).copy_(lengths.mul_(torch.rand_like(lengths) + 0.5))
    x = torch.randn(BATCH, STEPS, I)
    y, expected = (weighted([each(x)[0]]) for each in (q, module))
    torch.testing.assert_close(y, expected, rtol=1e-9, atol=0)
    y.backward()
    expected.backward()
    compared = [key for key, _ in q.named_parameters() if key.startswith("weights.")]
    assert sum(key.endswith("_lengths") for key in compared) >= 4
    for key in compared:
        field = theirs(key.removesuffix("_lengths"))
        if field.startswith("weight"):
            field = f"parametrizations.{field}.original{0 if key.endswith('_lengths') else 1}"
        wanted = module.get_parameter(field).grad
        torch.testing.assert_close(q.get_parameter(key).grad, wanted, rtol=1e-5, atol=1e-8)


@pytest.mark.usefixtures("doubles")
@pytest.mark.parametrize("bits", [3, 6, 10])
@pytest.mark.parametrize("lengths", [None, [6, 1, 4]])
@pytest.mark.parametrize("rounding", ["half_up", "odd"])
def test_the_written_gradients_are_those_of_the_cells_graph(bits, lengths, rounding, monkeypatch):
    formats = {"data_bits": max(4, bits), "gate_bits": 18, "cell_range": 1.0, "hidden_rounding": rounding}
    q = train.prepare(nn.LSTM(I, H), weight_bits=bits, **formats)
    x = (2.0 * torch.randn(STEPS, BATCH, I)).requires_grad_()
    h = torch.rand(1, BATCH, H, requires_grad=True)
    c = torch.rand(1, BATCH, H, requires_grad=True)

    def run():
        y, (last_h, last_c) = q(x, (h, c), lengths=lengths)
        named = [parameter for parameter in q.parameters() if parameter.requires_grad]
        return y, torch.autograd.grad(weighted([y, last_h, last_c]), [x, h, c, *named])

    y, written = run()
    monkeypatch.setattr(type(q.layers), "_is_plain", lambda self, index: False)
    again, of_graph = run()
    assert torch.equal(y, again)
    assert any(float(gradient.abs().max()) > 0.1 for gradient in of_graph)
    for mine, wanted in zip(written, of_graph, strict=True):
        torch.testing.assert_close(mine, wanted, rtol=1e-4, atol=1e-4)


def test_nothing_goes_through_what_has_saturated():
    q = train.prepare(nn.LSTM(2, 3), input_range=1.0, data_bits=8)
    x = torch.tensor([[[0.5, 7.0]]], requires_grad=True)
    q(x)[0].sum().backward()
    assert float(x.grad[0, 0, 0]) != 0.0 and float(x.grad[0, 0, 1]) == 0.0


def test_limits_of_rows_follow_the_loss():
    """A row that saturates gets a larger limit, one that is rounded away a smaller one."""
    q = train.prepare(nn.LSTM(2, 4), weight_bits=3, data_bits=8)
    limits = q.rows[0].log_limits[0]
    with torch.no_grad():
        weights = q.weights.layers[0]["w_ih"]
        weights[0] = 3.0 * 2.0 ** float(limits[0])
        weights[1] = 0.1 * 2.0 ** float(limits[1])
    (q.arrays()[0]["w_in"] - weights).square().sum().backward()
    assert float(limits.grad[0]) < 0.0 and float(limits.grad[1]) > 0.0
