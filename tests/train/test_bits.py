"""What a prepared module computes is what the golden model computes, and what the RTL computes."""

import numpy as np
import pytest
from hypothesis import given, reject, settings
from support.drawn_networks import DrawnBuild, drawn_builds

import rtlstm
from rtlstm.sim.golden import Golden
from rtlstm.spec.errors import ConfigurationError

torch = pytest.importorskip("torch")
train = pytest.importorskip("rtlstm.train")

STEPS, BATCH = 6, 3


def prepared(build: DrawnBuild, calibration=None):
    """A drawn network in its drawn formats."""
    given = build.settings
    names = ("data_bits", "gate_bits", "cell_bits", "input_range", "cell_range", "tables")
    options = {name: getattr(given, name) for name in names}
    return train.prepare(build.network, calibration=calibration, weight_bits=given.weight_bits, **options)


def check(q, x, lengths=None):
    """Compare outputs and final states, code by code; return the network."""
    network = q.quantised()
    codes = network.numerics.quantise_input(x)
    wanted = Golden(network).run(codes, None, lengths)
    y, _ = q(torch.from_numpy(x), lengths=None if lengths is None else torch.from_numpy(lengths))
    form = network.shapes[-1].output
    np.testing.assert_array_equal(np.ldexp(y.detach().double().numpy(), form.fraction), wanted.y)
    return network, wanted


@settings(max_examples=40, deadline=None)
@given(drawn_builds(whole=None))
def test_outputs_are_the_golden_models_for_any_network(build):
    rng = np.random.default_rng(build.seed)
    # Far beyond most of the drawn input ranges, so that inputs, sums and states saturate, too.
    x = rng.normal(size=(STEPS, BATCH, build.network.inputs)) * 3.0
    try:
        q = prepared(build, x[:, :1] if build.calibrated else None)
    except ConfigurationError:  # A drawn recurrence without bounds may diverge.
        reject()
    check(q, x, rng.integers(1, STEPS, BATCH, endpoint=True))
    y, _ = q(torch.from_numpy(x))
    y.square().sum().backward()
    gradients = [parameter.grad for parameter in q.parameters() if parameter.grad is not None]
    assert gradients
    assert all(bool(torch.isfinite(gradient).all()) for gradient in gradients)
    with torch.no_grad():
        for parameter in q.parameters():
            if parameter.requires_grad:
                parameter += torch.from_numpy(rng.normal(size=parameter.shape) * 0.3).to(parameter)
    check(q, x)


MODULES = {
    "lstm": lambda: torch.nn.LSTM(5, 6),
    "two layers": lambda: torch.nn.LSTM(5, 6, num_layers=2),
    "both directions": lambda: torch.nn.LSTM(5, 6, bidirectional=True),
    "projection": lambda: torch.nn.LSTM(5, 6, proj_size=3),
    "gru": lambda: torch.nn.GRU(5, 6),
    "rnn": lambda: torch.nn.RNN(5, 6),
}


@pytest.mark.parametrize("name", MODULES)
@pytest.mark.parametrize("weight_bits", [2, 4, 8])
def test_a_state_goes_from_run_to_run(name, weight_bits):
    torch.manual_seed(1)
    q = train.prepare(MODULES[name](), weight_bits=weight_bits, data_bits=8)
    x = torch.randn(8, 3, 5)
    whole, last = q(x)
    if name == "both directions":
        zeros = tuple(torch.zeros_like(part) for part in last)
        again, state = q(x, zeros)
        torch.testing.assert_close(again, whole, rtol=0, atol=0)
    else:
        first, state = q(x[:5])
        second, state = q(x[5:], state)
        torch.testing.assert_close(torch.cat([first, second]), whole, rtol=0, atol=0)
    mine, wanted = (part if isinstance(part, tuple) else (part,) for part in (state, last))
    assert all(torch.equal(a, b) for a, b in zip(mine, wanted, strict=True))


@pytest.mark.rtl
@pytest.mark.parametrize("name", ["lstm", "projection", "gru"])
def test_the_rtl_computes_what_was_trained(name, tmp_path):
    torch.manual_seed(2)
    q = train.prepare(MODULES[name](), weight_bits=3, data_bits=8)
    x = torch.randn(12, 4, 5)
    optimizer = torch.optim.Adam(q.parameters(), 0.02)
    for _ in range(5):
        optimizer.zero_grad()
        (q(x)[0] - 0.3).square().mean().backward()
        optimizer.step()
    build = rtlstm.compile(q, folder=tmp_path / "build", lanes=8, macs=2)
    expected = q(x)[0].detach().numpy()
    with build.open("verilator") as accelerator:
        y, _ = accelerator.run(x.numpy())
    np.testing.assert_array_equal(y, expected)
    assert build.manifest.numerics == q.quantised().numerics
    assert "trained" in build.report().notes[0]


def test_integers_of_a_build_are_those_that_were_trained(tmp_path):
    torch.manual_seed(3)
    q = train.prepare(torch.nn.LSTM(4, 8), weight_bits=3, data_bits=8)
    # Some rows whose weights are all small: quantised anew, they would get a finer scale.
    with torch.no_grad():
        q.weights.layers[0]["w_ih"][:4] *= 0.1
    build = rtlstm.compile(q, folder=tmp_path / "build", lanes=8, macs=2)
    from rtlstm.spec.image import WeightImage
    from rtlstm.spec.packing import unpack

    image = WeightImage.from_bytes((build.folder / "weights.bin").read_bytes(), build.manifest)
    network, mine = unpack(image, build.manifest), q.quantised()
    for found, wanted in zip(network.layers, mine.layers, strict=True):
        for field in ("w_ih", "w_hh", "bias", "shift_ih", "shift_hh"):
            np.testing.assert_array_equal(getattr(found, field), getattr(wanted, field))
    scale = q.rows[0].fractions()[0].numpy()[:, None]
    rounded = np.floor(np.ldexp(q.weights.layers[0]["w_ih"].detach().double().numpy(), scale) + 0.5)
    np.testing.assert_array_equal(mine.layers[0].w_ih, np.clip(rounded, -3, 3))


def test_layers_may_have_weights_of_different_widths():
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first = torch.nn.LSTM(4, 6)
            self.head = torch.nn.Linear(6, 2)

        def forward(self, x):
            return self.head(self.first(x)[0])

    torch.manual_seed(4)
    q = train.prepare(Net(), weight_bits={"first": 2, "head": 7}, data_bits=8)
    network = q.quantised()
    assert network.numerics.weight_bits == 7
    assert set(np.unique(network.layers[0].w_hh)) <= {-1, 0, 1}
    assert 32 <= np.abs(network.layers[1].weight).max() <= 63
    y = q(torch.randn(5, 2, 4))
    assert y.shape == (5, 2, 2)


def test_mixed_precision_does_not_change_a_bit():
    torch.manual_seed(5)
    q = train.prepare(torch.nn.LSTM(16, 32), weight_bits=8, data_bits=8)
    x = torch.randn(10, 4, 16)
    expected = q(x)[0]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = q(x)[0]
    assert torch.equal(found.float(), expected)


@pytest.mark.parametrize("device", ["cpu", *(["cuda"] if torch.cuda.is_available() else [])])
def test_every_device_of_this_machine_gives_the_same_bits(device, record_property):
    record_property("GPU", str(torch.cuda.is_available()))
    if not torch.cuda.is_available():
        print("no GPU here: only the CPU's bits are compared")
    torch.manual_seed(6)
    q = train.prepare(torch.nn.LSTM(12, 24, num_layers=2), weight_bits=8, data_bits=8)
    x = torch.randn(20, 4, 12)
    network = q.quantised()
    wanted = Golden(network).run(network.numerics.quantise_input(x.double().numpy()))
    y, _ = q.to(device)(x.to(device))
    codes = np.ldexp(y.detach().cpu().double().numpy(), network.shapes[-1].output.fraction)
    np.testing.assert_array_equal(codes, wanted.y)
