"""``rtlstm generate --loadable``, ``--capacity`` and ``--for``, and what ``inspect`` says of them."""

from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
from support.small_builds import NARROW, TINY, network, rand, tensors

from rtlstm import Accelerator, ConfigurationError, Gru, Lstm, Manifest, Network
from rtlstm.gen.builds.generate import generate_build
from rtlstm.gen.quantise.quantiser import quantise
from rtlstm.gen.quantise.target import TargetHardware
from rtlstm.sim.golden import Golden

CAPACITIES = ("--capacity", "weight_rows=64", "--capacity", "inputs=6")
SIZES = ("--macs", "2", "--streams", "2", "--data-bits", "8", "--gate-bits", "8", "--weight-bits", "8")


def save(path: Path, inputs: int, units: int, outputs: int) -> Path:
    """An LSTM and a dense layer of other sizes."""
    shapes = {
        "lstm.weight_ih_l0": (4 * units, inputs),
        "lstm.weight_hh_l0": (4 * units, units),
        "lstm.bias_ih_l0": (4 * units,),
        "lstm.bias_hh_l0": (4 * units,),
        "fc.weight": (outputs, units),
        "fc.bias": (outputs,),
    }
    names = enumerate(shapes.items())
    safetensors.numpy.save_file({name: rand(*shape, seed=seed) for seed, (name, shape) in names}, path)
    return path


@pytest.fixture(scope="module")
def device(tmp_path_factory) -> Path:
    """A loadable build, whose Verilog nobody reads."""
    folder = tmp_path_factory.mktemp("loadable") / "device"
    generate_build(
        network(), folder, settings=NARROW, parameters=TINY, capacities={"weight_rows": 64, "inputs": 6}
    )
    return folder


def test_generate_for_a_device(cli, model, device, tmp_path):
    other = save(tmp_path / "other.safetensors", 6, 3, 1)
    cli(
        "generate", other, "-o", tmp_path / "other", "--for", device, "--dense", "fc:sigmoid", "--json"
    ).good()
    found = cli("inspect", tmp_path / "other", "--json").json
    theirs = cli("inspect", device, "--json").json
    assert found["device_hash"] == theirs["device_hash"] != found["build_hash"]
    assert found["capacities"]["inputs"] == {"holds": 6, "takes": 6}
    assert found["capacities"]["weight-rows"]["holds"] == 64
    assert "Loadable: what the device" in cli("inspect", device).out
    verilog = [folder / "rtl" / "tiny.v" for folder in (device, tmp_path / "other")]
    assert verilog[0].read_bytes() == verilog[1].read_bytes()
    x = np.random.default_rng(0).uniform(-4, 4, (5, 6))
    with Accelerator.open(device) as accelerator, Accelerator.open(tmp_path / "other") as own:
        accelerator.load(tmp_path / "other")
        np.testing.assert_array_equal(accelerator.run(x)[0], own.run(x)[0])


def test_calibration_of_a_build_for_a_device(cli, device, tmp_path):
    """With --calibrate-lengths, what stands past a sequence's end decides nothing."""
    other = save(tmp_path / "other.safetensors", 6, 3, 1)
    x = np.random.default_rng(0).uniform(-1, 1, (5, 2, 6))
    x[3:, 1] = 100.0
    np.save(tmp_path / "x.npy", x)
    generate = ("generate", other, "--for", device, "--dense", "fc", "--calibrate", tmp_path / "x.npy")
    limits = []
    for folder, lengths in ((tmp_path / "whole", "5,5"), (tmp_path / "short", "5,3")):
        cli(*generate, "-o", folder, "--calibrate-lengths", lengths).good()
        form = Manifest.load(folder).numerics.input
        limits.append(form.maximum / 2**form.fraction)
    assert limits[0] > 40 and limits[1] < 4
    cli(*generate, "-o", tmp_path / "none", "--calibrate-lengths", "5").refused("must be 2 integers")


@pytest.mark.slow
def test_generate_loadable(cli, model, tmp_path):
    cli("generate", model, "-o", tmp_path / "b", *SIZES, "--loadable", *CAPACITIES).good()
    capacity = Manifest.load(tmp_path / "b").parameters.capacity
    assert capacity is not None
    assert (capacity.weight_rows, capacity.inputs, capacity.outputs, capacity.headroom) == (64, 6, 2, 4)


def test_refusals_are_one_sentence(cli, model, device, tmp_path, pristine):
    out = tmp_path / "out"
    large = save(tmp_path / "large.safetensors", 7, 30, 1)
    generate = ("generate", large, "-o", out)
    cli(*generate, "--for", device).refused("it needs 7 inputs and the device holds 6", "--capacity inputs=7")
    cli(*generate, "--for", device).refused("weight-rows and the device holds 64")
    cli(*generate, "--for", device, "--macs", "4", "--name", "x").refused("leave out", "--macs", "--name")
    cli(*generate, "--for", pristine).refused("is fixed", "--loadable")
    cli(*generate, "--for", tmp_path).refused("is not a build folder")
    cli("generate", large, "-o", device, "--for", device).refused("must not replace the device")
    cli(*generate, "--capacity", "inputs=8").refused("give --loadable, too")
    loadable = ("generate", model, "-o", out, "--loadable")
    cli(*loadable, "--capacity", "doors=8").refused("NAME=NUMBER", "weight-rows", "'doors=8'")
    cli(*loadable, "--capacity", "inputs=2").refused("needs 3 inputs", "--capacity inputs=3")
    cli(*loadable, "--capacity", "headroom=99").refused("headroom")
    cli(*loadable, "--fit", "lfe5u-25f").refused("--fit does not choose arrays for loadable cores")
    assert not out.exists()


def test_larger_weights_than_the_headroom(device, tmp_path):
    layers = (network().layers[0].replace(w_hh=np.eye(16, 4) * 4000.0),)
    with pytest.raises(ConfigurationError, match=r"bits? more headroom .* larger headroom"):
        generate_build(Network(layers=layers), tmp_path / "out", device=device)


def test_other_cells_than_the_device_has(device, tmp_path):
    gru = Gru(name="gru", w_ih=rand(9, 3), w_hh=rand(9, 3), bias_ih=rand(9), bias_hh=rand(9))
    with pytest.raises(ConfigurationError, match="kinds of cells"):
        generate_build(Network(layers=(gru,)), tmp_path / "out", device=device)


def test_formats_of_a_device_serve_any_weights(device):
    """Only the input's point and the weights are the network's: all else is the same, and nothing wraps."""
    numerics = Manifest.load(device).numerics
    tables = tensors()
    for scale in (0.01, 1.0, 6.0):
        lstm = Lstm(
            w_ih=tables["lstm.weight_ih_l0"] * scale,
            w_hh=tables["lstm.weight_hh_l0"] * scale,
            bias=tables["lstm.bias_ih_l0"] * scale,
        )
        found = quantise(
            Network(layers=(lstm,)), NARROW.replace(cell_range=16), hardware=TargetHardware(device=numerics)
        )
        assert found.numerics == numerics.replace(input=found.numerics.input)
        exact = quantise(Network(layers=(lstm,)), NARROW.replace(cell_range=16))
        x = np.random.default_rng(0).integers(-127, 127, (30, 1, 3))
        assert np.abs(Golden(found).run(x).y - Golden(exact).run(x).y).max() <= 3
