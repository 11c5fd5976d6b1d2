"""The drop-in for torch.nn's recurrent modules: PyTorch's calls, PyTorch's results within quantisation."""

import numpy as np
import pytest
from support.lazy import Lazy, torch
from support.no_logic import no_logic

from rtlstm import Accelerator, ConfigurationError, InputError, Network, QuantizationSettings, read_model
from rtlstm.gen.builds.generate import generate_build
from rtlstm.spec.parameters import Parameters

rnn = Lazy("torch.nn.utils.rnn")

I, H, T, N = 3, 7, 5, 4  # noqa: E741
LENGTHS = (2, 5, 1, 3)
CLOSE = {"atol": 2e-3, "rtol": 0}


KINDS = [
    pytest.param(("LSTM", {}), id="LSTM"),
    pytest.param(("LSTM", {"proj_size": 4}), id="projection"),
    pytest.param(("GRU", {}), id="GRU"),
    pytest.param(("RNN", {"nonlinearity": "relu"}), id="RNN"),
    pytest.param(("LSTM", {"bidirectional": True}), id="bidirectional"),
]
every_kind = pytest.mark.parametrize("reference", KINDS, indirect=True, scope="module")
lstm_alone = pytest.mark.parametrize("reference", KINDS[:1], indirect=True, scope="module")
pytestmark = pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")


@pytest.fixture(scope="module")
def reference(request):
    torch.manual_seed(0)
    kind, options = request.param
    return getattr(torch.nn, kind)(I, H, num_layers=2, **options).eval()


def make_build(reference, folder):
    generate_build(
        read_model(reference).network,
        folder,
        settings=QuantizationSettings(weight_bits=16, data_bits=16),
        parameters=Parameters(lanes=4, macs=4, streams=3, max_steps=8),
        calibration=np.random.default_rng(1).uniform(-1, 1, (50, I)),
    )
    return folder


@pytest.fixture(scope="module")
def accelerator(reference, tmp_path_factory):
    with no_logic():
        build = make_build(reference, tmp_path_factory.mktemp("builds") / "lstm")
    with Accelerator.open(build) as accelerator:
        yield accelerator


def same(actual, expected):
    """Compare two results of a recurrent module, tensors or packed sequences."""
    if isinstance(expected, rnn.PackedSequence):
        assert isinstance(actual, rnn.PackedSequence)
        for mine, theirs in zip(actual[1:], expected[1:], strict=True):
            assert (mine is None) == (theirs is None)
            assert mine is None or torch.equal(mine, theirs)
        actual, expected = actual.data, expected.data
    if isinstance(expected, tuple):
        for mine, theirs in zip(actual, expected, strict=True):
            same(mine, theirs)
        return
    assert actual.shape == expected.shape and actual.dtype == expected.dtype
    torch.testing.assert_close(actual, expected, **CLOSE)


def drop_in(reference):
    from rtlstm.host import torch as host

    return getattr(host, type(reference).__name__)


def both(accelerator, reference, *args):
    with torch.no_grad():
        same(drop_in(reference)(accelerator)(*args), reference(*args))


def state(reference, *lead):
    outputs = getattr(reference, "proj_size", 0) or H
    count = 4 if reference.bidirectional else 2
    h, c = (torch.rand(count, *lead, size) * 0.4 - 0.2 for size in (outputs, H))
    return (h, c) if isinstance(reference, torch.nn.LSTM) else h


@every_kind
def test_padded_tensors(accelerator, reference):
    x = torch.rand(T, N, I) * 2 - 1
    both(accelerator, reference, x)
    both(accelerator, reference, x, state(reference, N))


@every_kind
def test_one_sequence(accelerator, reference):
    both(accelerator, reference, torch.rand(T, I), state(reference))


@every_kind
@pytest.mark.parametrize("given", [False, True])
def test_packed_sequences_in_any_order(accelerator, reference, given):
    x, hx = torch.rand(T, N, I) * 2 - 1, (state(reference, N),) if given else ()
    both(accelerator, reference, rnn.pack_padded_sequence(x, LENGTHS, enforce_sorted=False), *hx)
    both(accelerator, reference, rnn.pack_padded_sequence(x, sorted(LENGTHS, reverse=True)), *hx)


@pytest.mark.slow
@pytest.mark.rtl
@lstm_alone
@pytest.mark.parametrize("backend", ["icarus", "verilator"])
def test_hardware_gives_the_same_bits(reference, accelerator, backend, tmp_path):
    from rtlstm.host.torch import LSTM

    packed = rnn.pack_padded_sequence(torch.rand(2, 3, I), [1, 2, 2], enforce_sorted=False)
    expected, (h, c) = LSTM(accelerator)(packed, state := (torch.rand(2, 3, H) / 2.1, torch.rand(2, 3, H)))
    build = make_build(reference, tmp_path / "lstm")
    with Accelerator.open(build, backend=backend) as hardware:
        y, final = LSTM(hardware)(packed, state)
    assert torch.equal(y.data, expected.data)
    assert torch.equal(final[0], h) and torch.equal(final[1], c)


@lstm_alone
def test_batch_first_inside_a_model(accelerator, reference):
    from rtlstm.host.torch import LSTM

    class Model(torch.nn.Module):
        def __init__(self, lstm):
            super().__init__()
            self.lstm, self.head = lstm, torch.nn.Linear(H, 2)

        def forward(self, x):
            y, (h, _) = self.lstm(x)
            return self.head(y), h

    torch.manual_seed(4)
    first = torch.nn.LSTM(I, H, num_layers=2, batch_first=True).eval()
    first.load_state_dict(reference.state_dict())
    model, x = Model(first), torch.rand(N, T, I)
    with torch.no_grad():
        expected = model(x)
        model.lstm = LSTM(accelerator, batch_first=first.batch_first)
        model.lstm.flatten_parameters()
        same(model(x), expected)


@lstm_alone
def test_other_floats_keep_their_type(accelerator):
    from rtlstm.host.torch import LSTM

    y, (h, c) = LSTM(accelerator)(torch.rand(T, N, I, dtype=torch.bfloat16, requires_grad=True))
    assert y.dtype == h.dtype == c.dtype == torch.bfloat16 and not y.requires_grad


@lstm_alone
@pytest.mark.parametrize(
    ("args", "words"),
    [
        (lambda x, h: (x.long(),), "input must be a tensor of floats.*int64"),
        (lambda x, h: (x.numpy(),), "input must be a tensor of floats.*ndarray"),
        (lambda x, h: (torch.zeros(T, N, I + 1),), "x must be"),
        (lambda x, h: (x, h), "hx must be a pair"),
        (lambda x, h: (x, (h, torch.zeros(2, N, H + 1))), "c_0 must be an array"),
        (lambda x, h: (x, (None, h)), "h_0 must be a tensor of floats.*NoneType"),
    ],
)
def test_wrong_arguments(accelerator, args, words):
    from rtlstm.host.torch import LSTM

    with pytest.raises(InputError, match=words):
        LSTM(accelerator)(*args(torch.zeros(T, N, I), torch.zeros(2, N, H)))


@every_kind
def test_another_kind_of_build_is_refused(accelerator, reference):
    from rtlstm.host import torch as host

    for kind in {host.LSTM, host.GRU, host.RNN} - {drop_in(reference)}:
        with pytest.raises(ConfigurationError, match=f"{kind.__name__} needs a build whose recurrent layers"):
            kind(accelerator)


@pytest.mark.parametrize("reference", KINDS[2:3], indirect=True, scope="module")
def test_state_of_a_gru_is_one_tensor(accelerator, reference):
    with pytest.raises(InputError, match="hx must be a tensor of floats.*tuple"):
        drop_in(reference)(accelerator)(torch.zeros(T, N, I), (torch.zeros(2, N, H),) * 2)


@pytest.mark.slow
def test_builds_that_give_final_states_are_refused(tmp_path):
    from rtlstm.host.torch import GRU

    (layer,) = read_model(torch.nn.GRU(I, 2, bidirectional=True)).network.layers
    reversed_output = layer.replace(backward=layer.backward.replace(reversed_output=True))
    generate_build(Network(layers=(reversed_output,)), tmp_path / "b", parameters=Parameters(max_steps=4))
    with (
        Accelerator.open(tmp_path / "b") as accelerator,
        pytest.raises(ConfigurationError, match="GRU needs a build that gives outputs where their inputs"),
    ):
        GRU(accelerator)
