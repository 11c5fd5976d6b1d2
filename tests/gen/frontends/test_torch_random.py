"""Random recurrent modules and heads: the network equals PyTorch, with lengths and initial states."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.lazy import Lazy, nets, nn, torch

from rtlstm.gen.frontends import read_model
from rtlstm.sim.reference import run_float

rnn = Lazy("torch.nn.utils.rnn")
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
