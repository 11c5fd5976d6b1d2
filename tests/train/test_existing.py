"""Trained weights for hardware that exists: its formats stay, and it gives what was trained, on every bit."""

import json
import shutil

import numpy as np
import pytest
import safetensors.numpy
from support.lazy import nets, nn, torch, train
from typer.testing import CliRunner

import rtlstm
from rtlstm.cli.main import app
from rtlstm.spec.errors import BuildError, ConfigurationError, InputError

ARRAY = {"lanes": 16, "macs": 2}
FORMATS = {"weight_bits": 4, "dense_weight_bits": 6, "data_bits": 8, **ARRAY}


def make_net(seed, inputs=3, units=6, large=1.0):
    """An LSTM and a head; ``large`` is a factor of all weights."""
    torch.manual_seed(seed)
    net = nets.headed(nn.LSTM(inputs, units), 2)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter *= large
    return net


X = np.random.default_rng(0).uniform(-1.9, 1.9, size=(9, 4, 3))


@pytest.fixture(scope="module")
def device(tmp_path_factory):
    folder = tmp_path_factory.mktemp("device")
    return rtlstm.compile(make_net(0), folder=folder / "first", calibration=X, headroom_bits=1, **FORMATS)


def trained(q, updates=5):
    optimizer = torch.optim.Adam(q.parameters(), 0.02)
    for _ in range(updates):
        optimizer.zero_grad()
        (q(torch.from_numpy(X)[..., : q.network.inputs]) - 0.3).square().mean().backward()
        optimizer.step()
    return q


def check(q, device, folder):
    """What was trained runs on the device as it is."""
    build = rtlstm.compile(q, folder=folder)
    assert build.manifest.device_hash == device.manifest.device_hash
    assert build.verilog.read_bytes() == device.verilog.read_bytes()
    assert "trained" in build.report().notes[0]
    x = torch.from_numpy(X)[..., : build.inputs]
    with device.open() as accelerator:
        accelerator.load(folder)
        y, _ = accelerator.run(x.numpy())
    np.testing.assert_array_equal(y, q(x).detach().numpy())
    return build


@pytest.mark.slow
def test_a_fixed_device_takes_what_was_trained_for_it(device, tmp_path):
    q = trained(train.prepare(make_net(1), device=device))
    build = check(q, device, tmp_path / "build")
    assert build.manifest.build_hash == device.manifest.build_hash
    assert build.manifest.numerics == q.quantised().numerics == device.manifest.numerics
    assert [rows.plan.form.bits for rows in q.rows] == [4, 6]


@pytest.mark.slow
def test_rows_whose_sums_are_too_wide_lose_fraction_bits(device, tmp_path):
    tight = rtlstm.compile(make_net(0), folder=tmp_path / "tight", calibration=X, **FORMATS)
    q = train.prepare(make_net(0), device=tight.folder)
    head = q.rows[-1]
    with torch.no_grad():
        q.weights.layers[1]["weight"][1] = 0.225  # 29 with 7 fraction bits
        head.log_limits[0][1] = -2.0
    assert head.plan.form.bits == 6 and 6 * 29 >= head.plan.most_sum > 6 * 15
    assert head.fractions(q.weights()[-1])[0][1] == 6
    check(q, tight, tmp_path / "build")
    with pytest.raises(ConfigurationError, match="its device are"):
        train.prepare(make_net(0), device=device).load_state_dict(q.state_dict())


def test_a_loadable_device_takes_another_network(tmp_path):
    options = {"weight_bits": 5, "data_bits": 8, "capacities": {}, **ARRAY}
    device = rtlstm.compile(make_net(0), folder=tmp_path / "device", **options)
    q = trained(train.prepare(make_net(3, inputs=2, units=4), device=device, input_range=2.0))
    assert q.quantised().numerics.input.limit < 2.0
    check(q, device, tmp_path / "build")


@pytest.mark.slow
def test_words_that_the_device_skips_stay_zero(tmp_path):
    array = {"lanes": 4, "macs": 2}
    first = train.prepare(make_net(0), weight_bits=4, data_bits=8)
    first.prune(0.5, **array)
    device = rtlstm.compile(first, folder=tmp_path / "device", skip_zeros=True, **array)
    assert device.manifest.program.kept
    q = train.prepare(make_net(4), device=device)
    assert q.pruned
    check(trained(q), device, tmp_path / "build")


def test_what_does_not_fit_is_said(device, tmp_path):
    with pytest.raises(ConfigurationError, match="leave out `weight_bits`, or `device`"):
        train.prepare(make_net(1), device=device, weight_bits=3)
    with pytest.raises(ConfigurationError, match="leave out `cell_bits`, or `device`"):
        train.prepare(make_net(1), device=device, cell_bits=12)
    with pytest.raises(ConfigurationError, match="leave it out, or generate"):
        train.prepare(make_net(1), device=device, input_range=2.0)
    with pytest.raises(ConfigurationError, match=r"layer 1 is lstm 3 -> 7 and there lstm 3 -> 6"):
        train.prepare(make_net(1, units=7), device=device)
    with pytest.raises(ConfigurationError, match="headroom than the device has: sums of .* of layer 'head'"):
        train.prepare(make_net(1, large=1000.0), device=device)
    with pytest.raises(BuildError):
        train.prepare(make_net(1), device=tmp_path)
    with pytest.raises(InputError, match="the device's folder must be a path"):
        train.prepare(make_net(1), device=3)
    q = train.prepare(make_net(1), device=device)
    with pytest.raises(ConfigurationError, match="leave out `lanes`"):
        rtlstm.compile(q, folder=tmp_path / "build", lanes=8)
    with pytest.raises(ConfigurationError, match="leave out device, or give them to prepare"):
        rtlstm.compile(q, folder=tmp_path / "build", device=device)
    assert not (tmp_path / "build").exists()


@pytest.mark.usefixtures("without_verilog")
def test_a_device_that_has_changed_is_refused(device, tmp_path):
    shutil.copytree(device.folder, tmp_path / "device")
    q = train.prepare(make_net(1), device=tmp_path / "device")
    rtlstm.compile(make_net(0), folder=tmp_path / "device", weight_bits=4, data_bits=9, **ARRAY)
    with pytest.raises(ConfigurationError, match="the device must be the one .* prepare the network for it"):
        rtlstm.compile(q, folder=tmp_path / "build")


def test_the_command_trains_for_a_device(device, tmp_path):
    state = {name: value.numpy() for name, value in make_net(1).state_dict().items()}
    safetensors.numpy.save_file(state, tmp_path / "model.safetensors")
    rng = np.random.default_rng(0)
    np.save(tmp_path / "x.npy", np.cumsum(rng.normal(size=(30, 20, 3)), axis=0) * 0.2)

    def run(*more):
        given = ["generate", tmp_path / "model.safetensors", "-o", tmp_path / "build", "--dense", "head"]
        given += ["--for", device.folder, "--finetune", tmp_path / "x.npy", "--finetune-updates", 40, *more]
        return CliRunner().invoke(app, [str(argument) for argument in given])

    done = run("--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["finetuned"]["helped"]
    build = rtlstm.Build(tmp_path / "build")
    assert build.manifest.build_hash == device.manifest.build_hash
    assert "trained" in build.report().notes[0]
    for more, message in (
        (("--weight-bits", 3), "leave out --weight-bits, or --for"),
        (("--lanes", 8), "leave out --lanes, or --for"),
        (("--finetune-prune", 0.5), "leave it out, or --for"),
    ):
        done = run(*more)
        assert done.exit_code == 2
        assert message in " ".join(done.output.split())
