"""Trained ranges: their gradients, formats that follow them, and builds with what was trained."""

import math

import numpy as np
import pytest
from support.golden_runs import golden_outputs
from support.lazy import nets, nn, torch, train

import rtlstm
from rtlstm.spec.errors import ConfigurationError
from rtlstm.spec.fixed import Format


def make_net():
    return nets.headed(nn.LSTM(3, 5), 2)


X = np.random.default_rng(0).uniform(-1.0, 1.0, size=(12, 4, 3)).astype(np.float32)


def on_x(q):
    """What a prepared module makes of X."""
    return q(torch.from_numpy(X))


@pytest.fixture
def q():
    """The head's results are calibrated in a range that is far too narrow for what is trained."""
    torch.manual_seed(0)
    return train.prepare(
        make_net(), calibration=X, weight_bits=4, data_bits=6, hidden_range=1, train_ranges=True
    )


def test_gradients_are_those_of_trained_thresholds():
    from rtlstm.train.cells import floor_to, round_to

    form = Format(bits=4, fraction=2)  # Saturates at 1.75, or down at -2.
    x = torch.tensor([0.3, 0.4, -1.1, 3.0, -3.0], dtype=torch.float64)
    upstream = torch.tensor([1.0, 10.0, 100.0, 1e3, 1e4], dtype=torch.float64)
    for rounds, change in (
        (round_to, [-0.05, 0.1, 0.1, 1.75, -1.75]),
        # What is rounded down stands for half a step more.
        (floor_to, [0.075, -0.025, -0.025, 1.75, -2.0]),
    ):
        log_range = torch.tensor(1.0, requires_grad=True)
        values = rounds(x, form, log_range)
        assert torch.equal(values, rounds(x, form))
        (values * upstream).sum().backward()
        wanted = math.log(2.0) * float((upstream * torch.tensor(change, dtype=torch.float64)).sum())
        assert float(log_range.grad) == pytest.approx(wanted, rel=1e-6)


@pytest.mark.slow
def test_ranges_follow_the_loss_and_the_build_has_them(q, tmp_path):
    first, plain = q.quantised().numerics, q.rounded_only().numerics
    assert q.ranges.names == ("input", "preactivation", 0, (1,))
    head = q.quantised().shapes[-1].output
    wanted = torch.tensor([1.5, -1.5]) * torch.from_numpy(X[:, :, :1])
    others = [each for name, each in q.named_parameters() if not name.startswith("ranges.")]
    ranges = {"params": [*q.ranges.parameters()], "lr": 0.1}
    optimizer = torch.optim.Adam([{"params": others}, ranges], 0.02)
    for _ in range(60):
        optimizer.zero_grad()
        (on_x(q) - wanted).square().mean().backward()
        optimizer.step()
    network = q.quantised()
    assert network.shapes[-1].output.limit > head.limit and network.numerics != first
    assert q.rounded_only().numerics == plain
    build = rtlstm.compile(q, folder=tmp_path / "build", lanes=8, macs=2)
    assert build.manifest.numerics == network.numerics
    y, _ = build.run(network.numerics.quantise_input(X.astype(np.float64)))
    np.testing.assert_array_equal(network.shapes[-1].output.to_floats(y), on_x(q).detach().numpy())


def test_a_checkpoint_keeps_the_ranges(q):
    with torch.no_grad():
        q.ranges.log_ranges += torch.tensor([1.0, -1.0, 2.0, 1.0])
    torch.manual_seed(0)
    options = {"calibration": X, "weight_bits": 4, "data_bits": 6, "hidden_range": 1}
    again = train.prepare(make_net(), train_ranges=True, **options)
    assert again.choices != q.choices
    with torch.no_grad():
        again.ranges.log_ranges.fill_(math.nan)  # What has diverged is replaced.
    again.load_state_dict(q.state_dict())
    assert again.choices == q.choices
    assert torch.equal(on_x(again), on_x(q))
    with pytest.raises(ConfigurationError, match="train_ranges are True and here False"):
        train.prepare(make_net(), **options).load_state_dict(q.state_dict())


@pytest.mark.parametrize("power", [-100.0, 100.0, math.nan])
def test_ranges_stay_where_the_hardware_is(q, power):
    with torch.no_grad():
        q.ranges.log_ranges.fill_(power)
    if math.isnan(power):
        with pytest.raises(ConfigurationError, match="ranges.log_ranges has NaN"):
            on_x(q)
        return
    on_x(q)
    with torch.no_grad():
        expected = on_x(q)
    np.testing.assert_array_equal(expected.numpy(), golden_outputs(q.quantised(), X.astype(np.float64)))
    low, high = q.ranges.bounds.T.tolist()
    assert q.ranges.of(q.choices) == (low if power < 0 else high)


def test_a_range_that_cannot_be_built_stays():
    """Here the sums would need too many bits, with a head whose weights are large. Others move."""
    torch.manual_seed(0)
    q = train.prepare(make_net(), calibration=X, weight_bits=4, data_bits=18, train_ranges=True)
    number, others = q.ranges.names.index((1,)), [q.ranges.names.index(name) for name in ("input", 0)]
    before = q.ranges.of(q.choices)
    with torch.no_grad():
        q.weights.layers[1]["weight"][0] *= 2.0**19 / q.weights.layers[1]["weight"][0].abs().max()
        q.rows[1].log_limits[0][0] = 19.0
        on_x(q)
        q.ranges.log_ranges[number] -= 6.0
        q.ranges.log_ranges[others] += 1.0
        bounds = q.ranges.bounds.clone()
        on_x(q)
    bounds[number, 0] = before[number]
    assert torch.equal(q.ranges.bounds, bounds)
    assert q.ranges.of(q.choices) == [power + (at in others) for at, power in enumerate(before)]
    q.quantised()


@pytest.mark.usefixtures("without_verilog")
def test_ranges_of_an_existing_device_are_fixed(q, tmp_path):
    device = rtlstm.compile(q, folder=tmp_path / "device", lanes=8, macs=2)
    with pytest.raises(ConfigurationError, match="are fixed; leave out train_ranges, or device"):
        train.prepare(make_net(), device=device, train_ranges=True)
