"""How a model becomes a module for training, how that is called, and what is refused."""

import numpy as np
import pytest
from support.lazy import Lazy, nets, nn, torch, train

import rtlstm
from rtlstm.spec.errors import ConfigurationError, InputError, ModelError

cells = Lazy("support.cell_modules")
I, H, O = 4, 6, 2  # noqa: E741


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def make_net(end, batch_first=False):
    """An LSTM and a head; ``end`` makes the result of the outputs and the final state."""

    def call(net, x):
        y, state = net.lstm(x)
        return end(net.head, y, state)

    return nets.Net(call, lstm=nn.LSTM(I, H, batch_first=batch_first), head=nn.Linear(H, O))


@pytest.mark.parametrize(
    "batch_first, end, shape",
    [
        (False, lambda head, y, state: head(y), (7, 3, O)),
        (True, lambda head, y, state: head(y), (3, 7, O)),
        (True, lambda head, y, state: head(y[:, -1]), (3, O)),
        (False, lambda head, y, state: head(y)[-1], (3, O)),
        (False, lambda head, y, state: (head(y), state), (7, 3, O)),
    ],
)
def test_it_is_called_like_the_model(batch_first, end, shape):
    model = make_net(end, batch_first)
    q = train.prepare(model, weight_bits=12, data_bits=12)
    x = torch.rand((3, 7, I) if batch_first else (7, 3, I)) - 0.5
    found, wanted = q(x), model(x)
    if isinstance(wanted, tuple):
        torch.testing.assert_close(found[1], wanted[1], rtol=0, atol=0.02)
        found, wanted = found[0], wanted[0]
    assert found.shape == shape
    torch.testing.assert_close(found, wanted, rtol=0, atol=0.02)


def test_one_sequence_and_packed_sequences():
    q = train.prepare(nn.LSTM(I, H), weight_bits=8, data_bits=8)
    x = torch.randn(7, 3, I)
    whole, _ = q(x)
    single, (h, c) = q(x[:, 1])
    assert torch.equal(single, whole[:, 1])
    assert h.shape == c.shape == (1, H)
    lengths = torch.tensor([4, 7, 2])
    y, state = q(nn.utils.rnn.pack_padded_sequence(x, lengths, enforce_sorted=False))
    padded, found = nn.utils.rnn.pad_packed_sequence(y)
    assert torch.equal(found, lengths)
    expected, wanted = q(x, lengths=lengths)
    assert torch.equal(padded, expected)
    assert all(torch.equal(a, b) for a, b in zip(state, wanted, strict=True))


def test_padding_in_front():
    q = train.prepare(nn.LSTM(I, H), weight_bits=8, data_bits=8)
    x, lengths = torch.randn(7, 3, I), [4, 7, 2]
    front = torch.stack([x[:, n].roll(7 - length, dims=0) for n, length in enumerate(lengths)], dim=1)
    expected, states = q(x, lengths=lengths)
    y, found = q(front, lengths=lengths, pad="front")
    for n, length in enumerate(lengths):
        assert torch.equal(y[7 - length :, n], expected[:length, n])
    assert all(torch.equal(a, b) for a, b in zip(found, states, strict=True))
    y.sum().backward()
    assert any(torch.any(part.grad != 0) for part in q.parameters() if part.grad is not None)


def test_a_network_is_called_as_a_build_is():
    q = train.prepare(rtlstm.read_model(nn.GRU(I, H)).network, weight_bits=8, data_bits=8)
    y, h = q(torch.randn(5, 2, I))
    assert y.shape == (5, 2, H)
    assert h.shape == (1, 2, H)


def test_data_that_all_saturate_are_refused():
    """Nothing would be left of them, and no gradient."""
    data = 40.0 + np.random.default_rng(1).normal(size=(6, 2, I))
    with pytest.raises(InputError, match=r"within the input's range, .*, but all .* beyond it"):
        train.prepare(nn.LSTM(I, H), calibration=data, calibration_lengths=[6, 3], input_range=1.0)
    data[0, 0, 0] = 0.5
    train.prepare(nn.LSTM(I, H), calibration=data, calibration_lengths=[6, 3], input_range=1.0)
    # A range of 3 needs a format that reaches to 4.
    within = train.prepare(nn.LSTM(I, H), calibration=np.full((6, 2, I), 3.5), input_range=3.0)
    assert within.layers.read(torch.tensor([3.5])).item() == 3.5


@pytest.mark.parametrize("precision", ["high", "medium"])
def test_products_that_torch_may_round_are_refused(precision):
    """TF32 on a GPU, bfloat16 on some processors: the integers would not be the hardware's."""
    q = train.prepare(nn.LSTM(I, H))
    torch.set_float32_matmul_precision(precision)
    try:
        with pytest.raises(ConfigurationError, match=f"{precision}.*set_float32_matmul_precision.'highest'"):
            q(torch.zeros(3, 1, I))
        # Without rounding nothing is promised of bits.
        q.rounding = False
        q(torch.zeros(3, 1, I))
        q.rounding = True
        with pytest.raises(ConfigurationError, match="set_float32_matmul_precision"):
            q.run(torch.zeros(3, 1, I), q.first_state(None, 1))
    finally:
        torch.set_float32_matmul_precision("highest")
    q(torch.zeros(3, 1, I))


def test_products_that_a_backend_may_round_are_refused():
    """Torch 2.9 and later have a setting for each backend, of which the older one may know nothing."""
    matmul = torch.backends.cuda.matmul
    if not hasattr(matmul, "fp32_precision"):
        assert torch.get_float32_matmul_precision() == "highest"
        return
    q, before = train.prepare(nn.LSTM(I, H)), matmul.fp32_precision
    matmul.fp32_precision = "tf32"
    try:
        with pytest.raises(ConfigurationError, match="set_float32_matmul_precision.'highest'"):
            q(torch.zeros(3, 1, I))
    finally:
        matmul.fp32_precision = before
        torch.set_float32_matmul_precision("highest")
    q(torch.zeros(3, 1, I))


def test_calibration_data_set_the_formats():
    data = np.random.default_rng(0).normal(size=(20, 3, I)) * [1.0, 1.0, 1.0, 0.001]
    q = train.prepare(nn.LSTM(I, H), calibration=data, weight_bits=8, data_bits=8, quick=True)
    assert q.choices.input_factors[3] > q.choices.input_factors[0] == 1
    assert max(q.choices.cell_ranges) <= 2.0


def test_training_is_the_same_from_the_same_seed():
    def run():
        torch.manual_seed(3)
        q = train.prepare(nn.LSTM(I, H), weight_bits=4, data_bits=8)
        optimizer = torch.optim.Adam(q.parameters(), 0.01)
        x = torch.randn(9, 4, I)
        for _ in range(4):
            optimizer.zero_grad()
            q(x)[0].square().mean().backward()
            optimizer.step()
        return q.state_dict()

    first, second = run(), run()
    assert first.keys() == second.keys()
    for name, value in first.items():
        assert torch.equal(value, second[name]) if isinstance(value, torch.Tensor) else value == second[name]


def test_a_checkpoint_resumes(tmp_path):
    data = np.random.default_rng(0).normal(size=(20, 3, I))
    module = nn.LSTM(I, H)
    q = train.prepare(module, calibration=data, weight_bits=4, data_bits=8, quick=True)
    with torch.no_grad():
        q.weights.layers[0]["w_hh"] += 0.1
    x = torch.randn(6, 2, I)
    expected = q(x)[0]
    torch.save(q.state_dict(), tmp_path / "checkpoint.pt")
    again = train.prepare(module, calibration=data * 0.5, weight_bits=4, data_bits=8, quick=True)
    assert again.choices != q.choices
    again.load_state_dict(torch.load(tmp_path / "checkpoint.pt"))
    assert again.choices == q.choices
    assert torch.equal(again(x)[0], expected)
    assert rtlstm.spec.numerics is not None
    assert again.quantised().numerics == q.quantised().numerics


def test_a_checkpoint_has_the_ranges_of_states_of_several_formulas():
    module = cells.InLoop(cells.CELLS["Integrating"]()).eval()
    x = np.random.default_rng(1).uniform(-2, 2, (4, 60, cells.INPUTS)).astype(np.float32)
    q = train.prepare(module, calibration=x, quick=True)
    again = train.prepare(module, calibration=x[:, :3], quick=True)
    assert q.choices.choice_limits > again.choices.choice_limits
    again.load_state_dict(q.state_dict())
    assert again.choices == q.choices
    assert again.quantised().numerics == q.quantised().numerics


@pytest.mark.usefixtures("without_verilog")
def test_weight_normalisation_is_folded_into_what_is_rounded(tmp_path):
    module, x = nn.GRU(I, H), torch.randn(6, 2, I)
    options = {"weight_bits": 2, "data_bits": 8}
    q = train.prepare(module, weight_normalisation=True, **options)
    plain = train.prepare(module, **options)
    assert torch.equal(q(x)[0], plain(x)[0])
    with torch.no_grad():
        q.weights.layers[0]["w_hh"] *= 3.0  # A direction has no length,
        unchanged = q(x)[0]
        q.weights.layers[0]["w_hh_lengths"] *= 3.0  # a row has.
        changed = q(x)[0]
    torch.testing.assert_close(unchanged, plain(x)[0], rtol=0, atol=0)
    assert not torch.equal(changed, unchanged)
    with torch.no_grad():
        q.weights.layers[0]["w_hh"][1] = 0.0
    y, _ = rtlstm.compile(q, folder=tmp_path / "build", lanes=8, macs=2).run(x.numpy())
    np.testing.assert_array_equal(y, q(x)[0].detach().numpy())
    again = train.prepare(module, weight_normalisation=True, **options)
    again.load_state_dict(q.state_dict())
    assert torch.equal(again(x)[0], q(x)[0])
    with pytest.raises(ConfigurationError, match="weight_normalisation are True and here False"):
        plain.load_state_dict(q.state_dict())


def test_a_prepared_model_keeps_its_numbers(tmp_path):
    q = train.prepare(nn.LSTM(I, H))
    with pytest.raises(ConfigurationError, match="leave out weight_bits, or give them to prepare"):
        rtlstm.compile(q, folder=tmp_path / "build", weight_bits=8)
    with pytest.raises(ConfigurationError, match="leave out calibration"):
        rtlstm.compile(q, folder=tmp_path / "build", calibration=np.zeros((3, I)))
    with pytest.raises(ConfigurationError, match="leave out batch_first"):
        rtlstm.compile(q, folder=tmp_path / "build", batch_first=True)
    with pytest.raises(ConfigurationError, match="capacities"):
        rtlstm.compile(q, folder=tmp_path / "build", capacities={})
    assert not (tmp_path / "build").exists()


@pytest.mark.parametrize(
    "call, error, message",
    [
        (lambda q: q(torch.zeros(3, 2, I + 1)), InputError, r"must be \(T, N, 4\).* not \(3, 2, 5\)"),
        (
            lambda q: q(torch.zeros(3, 2, I, dtype=torch.int64)),
            InputError,
            "tensor of floats, not torch.int64",
        ),
        (lambda q: q(torch.full((3, 2, I), torch.nan)), InputError, "finite"),
        (lambda q: q(torch.zeros(3, 2, I), lengths=[4, 1]), InputError, "within 1 to 3"),
        (lambda q: q(torch.zeros(3, 2, I), lengths=["3", "1"]), InputError, "lengths must be 2 integers"),
        (lambda q: q(torch.zeros(3, 2, I), lengths="both"), InputError, "lengths must be 2 integers"),
        (lambda q: q(torch.zeros(3, 2, I), pad="front"), InputError, "there are no lengths"),
        (
            lambda q: q(nn.utils.rnn.pack_sequence([torch.zeros(3, I)]), pad="front"),
            InputError,
            "a PackedSequence has no padding",
        ),
        (
            lambda q: q(torch.zeros(3, 2, I), lengths=torch.tensor([True, True])),
            InputError,
            r"2 integers, one per sequence, within 1 to 3, not \[True, True\]",
        ),
        (lambda q: q(torch.zeros(3, 2, I), torch.zeros(1, 2, H)), InputError, r"hx must be a pair"),
        (
            lambda q: q(torch.zeros(3, 2, I), (torch.zeros(1, 3, H), torch.zeros(1, 2, H))),
            InputError,
            "h_0 must have the shapes",
        ),
        (lambda q: q(torch.zeros(3, 2, I), (torch.zeros(1, 2, H), None)), InputError, "c_0 must be a tensor"),
        (
            lambda q: q(torch.zeros(3, 2, I), (torch.full((1, 2, H), torch.nan), torch.zeros(1, 2, H))),
            InputError,
            "h_0 must be finite",
        ),
    ],
)
def test_bad_inputs_are_said(call, error, message):
    with pytest.raises(error, match=message):
        call(train.prepare(nn.LSTM(I, H)))


@pytest.mark.parametrize(
    "options, message",
    [
        ({"wight_bits": 3}, "no option 'wight_bits'"),
        ({"weight_bits": {"other": 3}}, "'other' is none"),
        ({"weight_bits": {"lstm": 1}}, "must be 2 to 18, not 1"),
    ],
)
def test_bad_options_are_said(options, message):
    with pytest.raises(ConfigurationError, match=message):
        train.prepare(nn.LSTM(I, H), **options)


def test_options_for_reading_are_for_what_is_not_read_yet():
    network = rtlstm.read_model(nn.LSTM(I, H)).network
    with pytest.raises(ConfigurationError, match="lstm choose what is read .* read already"):
        train.prepare(network, lstm="lstm")


def test_narrow_floats_are_refused():
    q = train.prepare(nn.LSTM(I, H)).bfloat16()
    with pytest.raises(ConfigurationError, match="float32 or float64"):
        q(torch.zeros(3, 2, I))


def test_a_checkpoint_of_other_bits_is_refused():
    q = train.prepare(nn.LSTM(I, H), weight_bits=4)
    with pytest.raises(ConfigurationError, match="same options"):
        train.prepare(nn.LSTM(I, H), weight_bits=3).load_state_dict(q.state_dict())


def test_a_checkpoint_from_before_there_were_devices_resumes():
    q, again = (train.prepare(nn.LSTM(I, H)) for _ in range(2))
    state = q.state_dict()
    for name in ("device", "weight_normalisation"):
        del state["_extra_state"][name]
    again.load_state_dict(state)
    assert torch.equal(again(x := torch.randn(3, 2, I))[0], q(x)[0])


def test_modes_of_the_parts_stay():
    model = make_net(lambda head, y, state: head(y))
    model.head.eval()
    train.prepare(model)
    assert model.training and not model.head.training


def test_inputs_in_float32_round_as_in_float64():
    q = train.prepare(nn.LSTM(I, H), data_bits=8)
    x = torch.full((1, 1, I), 0.49999997 * 2.0 ** -q.quantised().numerics.input.fraction)
    assert not q.layers.read(x).any()


def test_a_prepared_model_is_not_prepared_again():
    with pytest.raises(ConfigurationError, match="prepared already"):
        train.prepare(train.prepare(nn.LSTM(I, H)))


def test_divergence_is_said():
    q = train.prepare(nn.LSTM(I, H))
    with torch.no_grad():
        q.weights.layers[0]["bias"][2] = torch.inf
    with pytest.raises(ConfigurationError, match="weights.layers.0.bias has NaN or infinite"):
        q(torch.zeros(3, 2, I))


def test_weights_beyond_the_hardware_are_said():
    q = train.prepare(nn.LSTM(I, H))
    with torch.no_grad():
        q.rows[0].log_limits[0] += 40
        q.weights.layers[0]["w_ih"] *= 1e9
    with pytest.raises(ConfigurationError, match=r"layer 'lstm' has weights .* may reach 2\*\*20"):
        q.quantised()


def test_a_module_that_returns_something_else_is_refused():
    model = make_net(lambda head, y, state: head(y) * 2.0 + 1.0 if y.requires_grad else head(y).sum())
    with pytest.raises(ModelError):
        train.prepare(model)
