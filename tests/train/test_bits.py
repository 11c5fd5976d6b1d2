"""What a prepared module computes is what the golden model computes, and what the RTL computes."""

from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, reject, settings
from support.cell_networks import CELL_NETWORKS
from support.drawn_networks import DrawnBuild, drawn_builds
from support.lazy import Lazy, nets, torch, train
from support.quick import quick
from support.random_builds import write_build
from support.sequence_checks import check_states

import rtlstm
from rtlstm import Accelerator, ConfigurationError, InputError, Manifest, Parameters
from rtlstm.host.state import StateFormats, StateLayout
from rtlstm.sim.golden import Golden
from rtlstm.sim.reference import run_float

STEPS, BATCH = 6, 3
cells = Lazy("support.cell_modules")


def prepared(build: DrawnBuild, x, weight_bits=None):
    """A drawn network in its drawn formats, calibrated with ``x`` if drawn so."""
    given = build.settings
    names = ("data_bits", "gate_bits", "cell_bits", "input_range", "cell_range", "hidden_rounding", "tables")
    options = {name: getattr(given, name) for name in names}
    bits = given.weight_bits if weight_bits is None else weight_bits
    try:
        calibration = x[:, :1] if build.calibrated else None
        # What is trained is drawn with it: a part of the seed.
        options |= {"weight_normalisation": bool(build.seed % 2), "train_ranges": bool(build.seed // 2 % 2)}
        return train.prepare(build.network, calibration=calibration, weight_bits=bits, **options)
    except ConfigurationError:  # A drawn recurrence without bounds may diverge.
        reject()
    except InputError as error:
        # Few drawn data may all be beyond the drawn range, which is refused: no other refusal is expected.
        if "values are beyond it and would saturate" not in str(error):
            raise
        reject()


def change(q, rng):
    """Change all that is trained at random, so that rows' scales and ranges change, too."""
    with torch.no_grad():
        for name, parameter in q.named_parameters():
            if parameter.requires_grad:
                size = 1.5 if name.startswith("ranges.") else 0.3
                parameter += torch.from_numpy(rng.normal(size=parameter.shape) * size).to(parameter)


def check(q, x, lengths=None):
    """Compare outputs and final states with the golden model's, code by code; return network and codes."""
    network = q.quantised()
    codes = network.numerics.quantise_input(x)
    wanted = Golden(network).run(codes, None, lengths)
    y, state = q(torch.from_numpy(x), lengths=None if lengths is None else torch.from_numpy(lengths))
    form = network.shapes[-1].output
    np.testing.assert_array_equal(np.ldexp(y.detach().double().numpy(), form.fraction), wanted.y)
    seen = StateFormats(network.shapes, network.numerics).present(wanted.h, wanted.c, raw=False, batched=True)
    if not len(seen[1]):  # Without an LSTM the state is h alone.
        state, seen = (state,), seen[:1]
    for mine, theirs in zip(state, seen, strict=True):
        for a, b in zip(mine, theirs, strict=True):
            np.testing.assert_array_equal(a.detach().double().numpy(), b)
    return network, codes, wanted


def check_rtl(q, parameters, x, lengths=None):
    """Compare torch, golden model and RTL: outputs and final states, code by code."""
    network, codes, wanted = check(q, x, lengths)
    if network.passes:
        parameters = parameters.replace(max_steps=len(x))
    manifest = Manifest.of("trained", network, parameters)
    with TemporaryDirectory() as folder:
        write_build(Path(folder), network, manifest)
        with Accelerator.open(folder, "icarus", verify=False) as accelerator:
            y, state = accelerator.run(codes, lengths)
    np.testing.assert_array_equal(y, wanted.y)
    check_states(StateLayout(manifest), state, wanted)


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_inputs_with_codes_of_zero(kind: str):
    """As for the integers of ``generate``, the biases make up for them; also when all has changed."""
    rng = np.random.default_rng(4)
    x = rng.normal((55.0, 0.0, 20.0), (0.4, 1.0, 5.0), (40, 6, 3))
    torch.manual_seed(2)
    model = getattr(torch.nn, kind)(3, 7)
    with torch.no_grad():  # It reads the differences from the means.
        model.bias_ih_l0 -= model.weight_ih_l0 @ torch.tensor([55.0, 0.0, 20.0])
    q = train.prepare(model, calibration=x, weight_bits=8, data_bits=8, train_ranges=True)
    network, codes, _ = check(q, x)
    assert network.numerics.input_zeros and abs(codes).max() < 128
    with torch.no_grad():
        wanted, _ = model(torch.from_numpy(x).float())
        y, _ = q(torch.from_numpy(x))
        q.rounding = False
        exact, _ = q(torch.from_numpy(x))
    q.rounding = True
    assert (exact - wanted).abs().max() < 1e-4 and (y - wanted).square().mean() < wanted.var() / 100
    loaded = train.prepare(model, calibration=x, weight_bits=8, data_bits=8, train_ranges=True)
    change(q, rng)
    check(q, x)
    loaded.load_state_dict(q.state_dict())
    check(loaded, x)


GRAPHS = ("side_by_side", "grus_of_several", "lstm_of_two", "product_of_two", "states_beside_an_lstm")
GRAPHS += (
    "layer_norm_lstm",
    "lstms_with_norms_of_sums",
    "lstms_with_some_norms",
    "lstms_with_c_behind_its_norm",
)


@pytest.mark.parametrize("name", quick(GRAPHS, "grus_of_several", "product_of_two", "layer_norm_lstm"))
def test_graphs_of_layers(name: str) -> None:
    """Layers that read several results, and cells that do not read h, which trains no zeros."""
    rng, network = np.random.default_rng(5), CELL_NETWORKS[name]
    q = train.prepare(network, weight_bits=6, data_bits=8, train_ranges=True)
    x = rng.normal(size=(STEPS, BATCH, network.inputs))
    check(q, x, np.array([STEPS, 2, 4]))
    y = q(torch.from_numpy(x))[0]
    y.square().sum().backward()
    trained = [named for named in q.weights.named_parameters() if named[1].requires_grad]
    assert all(parameter.grad is not None and bool(parameter.grad.any()) for _, parameter in trained)
    q.rounding = False
    y = q(torch.from_numpy(x))[0].detach().numpy()
    np.testing.assert_allclose(y, run_float(network, x).y, rtol=1e-3, atol=1e-4)
    q.rounding = True
    change(q, rng)
    check(q, x)
    shapes = q.quantised().shapes
    for skip, behind in pairwise(shapes):
        assert skip.kind not in ("skip", "unit_skip") or skip.output == behind.output


def test_one_output_of_two_layers() -> None:
    """Its row of weights is split: the first part of it is the row's first values."""

    class Joined(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.other, self.out = torch.nn.LSTM(2, 2), torch.nn.LSTM(2, 3), torch.nn.Linear(5, 1)

        def forward(self, x):
            return self.out(torch.cat([self.one(x)[0], self.other(x)[0]], -1))

    q = train.prepare(rtlstm.read_model(Joined().eval()).network, weight_bits=4)
    x = np.random.default_rng(5).normal(size=(STEPS, BATCH, 2))
    check(q, x)
    q(torch.from_numpy(x))[0].sum().backward()
    assert all(bool(each.grad.any()) for each in q.weights.parameters() if each.requires_grad)


def test_a_spiking_neuron_that_a_user_wrote() -> None:
    """Its step has no derivative, but training gets one."""
    torch.manual_seed(3)
    network = rtlstm.read_model(cells.CELLS["Spiking"]().eval()).network
    q = train.prepare(network, weight_bits=8, data_bits=8)
    x = np.random.default_rng(5).normal(size=(STEPS, BATCH, network.inputs)) * 3.0
    check(q, x)
    y = q(torch.from_numpy(x))[0]
    assert set(np.unique((y.detach().numpy() > 0.5).sum(axis=0))) > {0}
    y.sum().backward()
    assert any(each.grad is not None and bool(each.grad.any()) for each in q.weights.parameters())


@pytest.mark.parametrize("name", quick(["KeptBehind", "LogMinGru", "MatrixMemory", "Selective"], "Selective"))
def test_steps_that_a_user_wrote(name: str) -> None:
    """Also products that are rounded, since they have more than 48 bits."""
    torch.manual_seed(3)
    network = rtlstm.read_model(cells.CELLS[name]().eval()).network
    q = train.prepare(network, weight_bits=8, data_bits=16, train_ranges=True)
    x = np.random.default_rng(5).normal(size=(STEPS, BATCH, network.inputs))
    check(q, x)
    q(torch.from_numpy(x))[0].square().sum().backward()
    assert any(each.grad is not None and bool(each.grad.any()) for each in q.weights.parameters())


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(drawn_builds(whole=None))
def test_outputs_are_the_golden_models_for_any_network(build):
    rng = np.random.default_rng(build.seed)
    # Far beyond most of the drawn input ranges, so that inputs, sums and states saturate, too.
    x = rng.normal(size=(STEPS, BATCH, build.network.inputs)) * 3.0
    q = prepared(build, x)
    check(q, x, rng.integers(1, STEPS, BATCH, endpoint=True))
    y, _ = q(torch.from_numpy(x))
    # A gate without a bound, such as elu, multiplies gradients in each step: float32 must hold them.
    (y.square().sum() * 1e-30).backward()
    gradients = [parameter.grad for parameter in q.parameters() if parameter.grad is not None]
    assert gradients
    assert all(bool(torch.isfinite(gradient).all()) for gradient in gradients)
    change(q, rng)
    check(q, x)


@pytest.mark.slow
@pytest.mark.rtl
@settings(
    derandomize=True,
    database=None,
    deadline=None,
    max_examples=40,
    # None is made smaller, which would take a simulation for each attempt.
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    print_blob=True,
)
@given(drawn_builds(whole=None))
def test_the_rtl_of_any_network_computes_what_was_trained(build):
    rng = np.random.default_rng(build.seed)
    x = rng.normal(size=(STEPS, BATCH, build.network.inputs)) * 3.0
    own = {layer.name: int(rng.integers(2, 19)) for layer in build.network.layers}
    q = prepared(build, x, own if rng.integers(2) else None)
    change(q, rng)
    check_rtl(q, build.parameters, x, rng.integers(1, STEPS, BATCH, endpoint=True))


MODULES = {
    "lstm": lambda: torch.nn.LSTM(5, 6),
    "two layers": lambda: torch.nn.LSTM(5, 6, num_layers=2),
    "both directions": lambda: torch.nn.LSTM(5, 6, bidirectional=True),
    "projection": lambda: torch.nn.LSTM(5, 6, proj_size=3),
    "gru": lambda: torch.nn.GRU(5, 6),
    "rnn": lambda: torch.nn.RNN(5, 6),
}


@pytest.mark.parametrize("name", MODULES)
@pytest.mark.parametrize("weight_bits", quick([2, 4, 8], 4))
def test_a_state_goes_from_run_to_run(name, weight_bits):
    torch.manual_seed(1)
    q = train.prepare(MODULES[name](), weight_bits=weight_bits, data_bits=8)
    x = torch.randn(8, 3, 5)
    whole, last = q(x)
    if name == "both directions":
        again, state = q(x, tuple(torch.zeros_like(part) for part in last))
        torch.testing.assert_close(again, whole, rtol=0, atol=0)
    else:
        first, state = q(x[:5])
        second, state = q(x[5:], state)
        torch.testing.assert_close(torch.cat([first, second]), whole, rtol=0, atol=0)
    mine, wanted = (part if isinstance(part, tuple) else (part,) for part in (state, last))
    assert all(torch.equal(a, b) for a, b in zip(mine, wanted, strict=True))


def train_a_little(q, x):
    optimizer = torch.optim.Adam(q.parameters(), 0.02)
    for _ in range(5):
        optimizer.zero_grad()
        (q(x)[0] - 0.3).square().mean().backward()
        optimizer.step()


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
@pytest.mark.parametrize("bits, dtype", [(16, "float32"), (32, "float64")])
def test_a_state_has_the_type_of_the_module_if_that_holds_it(kind, bits, dtype):
    torch.manual_seed(7)
    q = train.prepare(getattr(torch.nn, kind)(3, 4), data_bits=8, cell_bits=bits)
    x = torch.randn(6, 2, 3)
    whole, end = q(x)
    _, middle = q(x[:3])
    second, again = q(x[3:], middle)
    assert torch.equal(second, whole[3:])
    assert whole.dtype == torch.float32
    # What the cell keeps: c of an LSTM, h of a GRU.
    end, middle, again = (state[1] if isinstance(state, tuple) else state for state in (end, middle, again))
    assert end.dtype == middle.dtype == getattr(torch, dtype)
    assert torch.equal(again, end)
    # These values need the type.
    assert bits == 16 or not torch.equal(end.float().double(), end)


@pytest.mark.parametrize("limit", [2000.0, -2000.0])
def test_limits_go_as_far_as_the_hardware_shifts(limit):
    torch.manual_seed(8)
    q = train.prepare(CELL_NETWORKS["two_grus"], weight_bits=4, data_bits=8)
    with torch.no_grad():
        for rows in q.rows:
            for limits in rows.log_limits:
                limits[::2] = limit
    x = np.random.default_rng(0).normal(size=(STEPS, BATCH, q.network.inputs))
    network, _, _ = check(q, x)
    assert (network.layers[0].w_ih[::2] == 0).all() == (limit > 0)
    q(torch.from_numpy(x))[0].sum().backward()
    assert all(torch.isfinite(limits.grad).all() for rows in q.rows for limits in rows.log_limits)


@pytest.mark.rtl
@pytest.mark.parametrize(
    "name",
    quick(
        ["both directions", "projection", "gru_reset_before", "custom_c", "skip_around_two"],
        "gru_reset_before",
    ),
)
def test_the_rtl_computes_what_was_trained(name):
    torch.manual_seed(2)
    model = MODULES[name]() if name in MODULES else CELL_NETWORKS[name]
    # A cell's own constants have the bits of their layer, in words with those of the widest one.
    bits = {"custom": 3, "dense": 7} if name == "custom_c" else 3
    q = train.prepare(model, weight_bits=bits, data_bits=6, gate_bits=6, cell_bits=10, train_ranges=True)
    x = torch.randn(STEPS, BATCH, q.network.inputs)
    train_a_little(q, x)
    first = q.choices
    with torch.no_grad():  # Ranges one power of two larger and smaller.
        q.ranges.log_ranges += torch.where(torch.arange(len(q.ranges.names)) % 2 == 0, 1.0, -1.0)
    assert q.choices != first
    check_rtl(q, Parameters(lanes=8, macs=2), x.double().numpy(), np.array([STEPS, 2, 4]))


@pytest.mark.slow
@pytest.mark.rtl
def test_a_build_computes_what_was_trained(tmp_path):
    torch.manual_seed(2)
    q = train.prepare(MODULES["lstm"](), weight_bits=3, data_bits=8)
    x = torch.randn(12, 4, 5)
    train_a_little(q, x)
    build = rtlstm.compile(q, folder=tmp_path / "build", lanes=8, macs=2)
    expected = q(x)[0].detach().numpy()
    with build.open("icarus", verify=False) as accelerator:
        y, _ = accelerator.run(x.numpy())
    np.testing.assert_array_equal(y, expected)
    assert build.manifest.numerics == q.quantised().numerics
    assert "trained" in build.report().notes[-1]


@pytest.mark.usefixtures("without_verilog")
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
    scale = q.rows[0].fractions(q.weights()[0])[0].numpy()[:, None]
    rounded = np.floor(np.ldexp(q.weights.layers[0]["w_ih"].detach().double().numpy(), scale) + 0.5)
    np.testing.assert_array_equal(mine.layers[0].w_ih, np.clip(rounded, -3, 3))


def test_layers_may_have_weights_of_different_widths():
    parts = {"first": torch.nn.LSTM(4, 6), "head": torch.nn.Linear(6, 2)}
    net = nets.Net(lambda net, x: net.head(net.first(x)[0]), **parts)
    torch.manual_seed(4)
    q = train.prepare(net, weight_bits={"first": 2, "head": 7}, data_bits=8)
    network = q.quantised()
    assert network.numerics.weight_bits == 7
    assert set(np.unique(network.layers[0].w_hh)) <= {-1, 0, 1}
    assert 32 <= np.abs(network.layers[1].weight).max() <= 63
    assert q(torch.randn(5, 2, 4)).shape == (5, 2, 2)
    assert train.prepare(net, weight_bits={}, data_bits=8).quantised().numerics.weight_bits == 4


def test_mixed_precision_does_not_change_a_bit():
    torch.manual_seed(5)
    q = train.prepare(torch.nn.LSTM(16, 32), weight_bits=8, data_bits=8)
    x = torch.randn(10, 4, 16)
    expected = q(x)[0]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = q(x)[0]
    assert torch.equal(found.float(), expected)


def test_every_device_of_this_machine_gives_the_same_bits(record_property):
    record_property("GPU", str(torch.cuda.is_available()))
    if not torch.cuda.is_available():
        print("no GPU here: only the CPU's bits are compared")
    torch.manual_seed(6)
    q = train.prepare(torch.nn.LSTM(12, 24, num_layers=2), weight_bits=8, data_bits=8)
    x = torch.randn(20, 4, 12)
    network = q.quantised()
    wanted = Golden(network).run(network.numerics.quantise_input(x.double().numpy()))
    for device in ["cpu"] + ["cuda"] * torch.cuda.is_available():
        y, _ = q.to(device)(x.to(device))
        codes = np.ldexp(y.detach().cpu().double().numpy(), network.shapes[-1].output.fraction)
        np.testing.assert_array_equal(codes, wanted.y)
