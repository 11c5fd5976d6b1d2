"""Other weights for a core with a fixed program: ``--for``, ``--headroom-bits``, and the driver's reload."""

import dataclasses
import re
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
from support.cell_networks import CELL_NETWORKS
from support.linked_core import LinkedPort, compile_linked
from support.quick import quick
from support.small_builds import NARROW, TINY, network, tensors

from rtlstm import Accelerator, ConfigurationError, ImageError, Manifest, WeightImage
from rtlstm.gen.builds.advice import measure_headroom
from rtlstm.gen.builds.generate import generate_build
from rtlstm.gen.builds.hardware import device_hardware, device_settings
from rtlstm.gen.quantise.quantiser import QuantizationSettings, quantise
from rtlstm.gen.quantise.target import TargetHardware
from rtlstm.hdl.emit.verilog import linked_core_to_verilog
from rtlstm.host.link.engine import LinkTimeouts
from rtlstm.host.link.link_transport import LinkTransport
from rtlstm.sim.golden import Golden
from rtlstm.spec.network import Bidirectional, Dense, Lstm, Network
from rtlstm.spec.numerics import QuantizedNetwork
from rtlstm.spec.packing import pack, unpack
from rtlstm.spec.record import Record
from rtlstm.spec.registers import Register

STEPS = 6


def other_weights(record: Record, scale: float = 1.0, seed: int | None = None) -> Any:
    """The same network with all its weights scaled, or drawn anew as large as they were."""
    rng = np.random.default_rng(seed)

    def change(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(change(part) for part in value)
        if isinstance(value, Record):
            return other_weights(value, scale, seed)
        if not isinstance(value, np.ndarray):
            return value
        drawn = value if seed is None else rng.uniform(-0.99, 0.99, value.shape) * np.abs(value).max()
        return drawn * scale

    return record.replace(**{name: change(getattr(record, name)) for name in type(record).model_fields})


def make(net: Network, folder: Path, **settings: int) -> Path:
    generate_build(net, folder, name="tiny", parameters=TINY, settings=NARROW.replace(**settings))
    return folder


def held(folder: Path) -> QuantizedNetwork:
    manifest = Manifest.load(folder)
    return unpack(WeightImage.load(folder / "weights.bin", manifest), manifest)


@pytest.fixture(scope="module")
def first(tmp_path_factory) -> Path:
    return make(network(), tmp_path_factory.mktemp("first") / "first")


@pytest.fixture(scope="module")
def fresh(first) -> Path:
    """The same network with weights of another draw, for that build's hardware."""
    folder = first.with_name("fresh")
    generate_build(other_weights(network(), seed=7), folder, device=first)
    return folder


def test_the_hash_does_not_depend_on_weights(first, tmp_path):
    """Every weight x 0.999, with the same options: the same hardware, and it takes the image."""
    again = make(other_weights(network(), 0.999), tmp_path / "again")
    assert (again / "manifest.json").read_bytes() == (first / "manifest.json").read_bytes()
    assert (again / "weights.bin").read_bytes() != (first / "weights.bin").read_bytes()
    x = np.random.default_rng(0).uniform(-4, 4, (STEPS, 2, 3))
    with Accelerator.open(first) as accelerator, Accelerator.open(again) as own:
        before, _ = accelerator.run(x)
        accelerator.load_weights(again / "weights.bin")
        after, _ = accelerator.run(x)
        np.testing.assert_array_equal(after, own.run(x)[0])
        assert not np.array_equal(before, after)
        # The whole folder, too, as of a loadable device's networks.
        accelerator.load(first)
        np.testing.assert_array_equal(accelerator.run(x)[0], before)


def test_a_build_for_fixed_hardware(first, fresh):
    ours, theirs = Manifest.load(first), Manifest.load(fresh)
    assert ours == theirs
    verilog = [folder / "rtl" / "tiny.v" for folder in (first, fresh)]
    assert verilog[0].read_bytes() == verilog[1].read_bytes()
    assert not np.array_equal(held(first).layers[0].w_ih, held(fresh).layers[0].w_ih)


def codes(folder: Path) -> np.ndarray:
    form = Manifest.load(folder).numerics.input
    return np.random.default_rng(1).integers(form.lowest, form.maximum, (STEPS, 3), endpoint=True)


def switch(accelerator: Accelerator, first: Path, fresh: Path, keep: bool) -> None:
    """Weights change between two steps of an open stream: golden model's bits and cycles before and after."""
    x = codes(first)
    half, nets = STEPS // 2, (held(first), held(fresh))
    before = Golden(nets[0]).run(x[:half, None])
    state = ([h.copy() for h in before.h], [c.copy() for c in before.c]) if keep else None
    after = Golden(nets[1]).run(x[half:, None], state)
    with accelerator.stream() as stream:
        np.testing.assert_array_equal([stream.step(row) for row in x[:half]], before.y[:, 0])
        accelerator.load_weights(fresh / "weights.bin", keep_states=keep)
        np.testing.assert_array_equal([stream.step(row) for row in x[half:]], after.y[:, 0])
        assert accelerator.device.register(Register.LATENCY) == (
            accelerator.manifest.cycles.step_latency_cycles
        )


@pytest.mark.rtl
@pytest.mark.parametrize(
    ("backend", "keep"),
    quick(product(["golden", "icarus", "verilator"], [False, True]), ("golden", False), ("icarus", True)),
)
def test_reload_between_two_steps(first, fresh, backend, keep):
    with Accelerator.open(first, backend) as accelerator:
        switch(accelerator, first, fresh, keep)


@pytest.mark.slow
@pytest.mark.rtl
def test_reload_over_the_link(first, fresh):
    manifest = Manifest.load(first)
    line = LinkedPort(compile_linked(linked_core_to_verilog(manifest, 4), "tiny_link"), 4)
    timeouts = LinkTimeouts(retry=0.05, least_retry=0.02, most_retry=1.0)
    with Accelerator(LinkTransport(line, manifest, timeouts, seed=1), manifest) as accelerator:
        accelerator.load_weights(first / "weights.bin")
        switch(accelerator, first, fresh, keep=True)


def bidirectional() -> Network:
    ways = [other_weights(network().layers[0], seed=seed) for seed in (1, 2)]
    return Network(layers=(Bidirectional(forward=ways[0], backward=ways[1].replace(reverse=True)),))


@pytest.mark.parametrize("name", CELL_NETWORKS)
def test_every_kind_of_cell(name):
    """Formats of peepholes and of results that no function bounds are the hardware's, too."""
    first = quantise(CELL_NETWORKS[name], NARROW)
    hardware = TargetHardware(device=first.numerics, layers=first.shapes)
    found = quantise(other_weights(CELL_NETWORKS[name], 0.9), NARROW, hardware=hardware)
    assert (found.shapes, found.numerics, found.passes) == (first.shapes, first.numerics, first.passes)
    assert any(not np.array_equal(a.bias, b.bias) for a, b in zip(found.layers, first.layers, strict=True))


@pytest.mark.usefixtures("without_verilog")
@pytest.mark.parametrize(
    "net",
    [
        pytest.param(CELL_NETWORKS["peephole"], id="peephole", marks=pytest.mark.slow),
        pytest.param(bidirectional(), id="both ways"),
    ],
)
def test_reload_of_other_networks(net, tmp_path):
    a, b = tmp_path / "a", tmp_path / "b"
    generate_build(net, a, name="other", parameters=TINY.replace(max_steps=8), settings=NARROW)
    generate_build(other_weights(net, 0.9), b, device=a)
    assert Manifest.load(a) == Manifest.load(b)
    x = np.random.default_rng(2).uniform(-2, 2, (5, 1, net.inputs))
    with Accelerator.open(a) as accelerator, Accelerator.open(b) as own:
        accelerator.load_weights(b / "weights.bin")
        np.testing.assert_array_equal(accelerator.run(x)[0], own.run(x)[0])


@pytest.mark.slow
def test_weights_that_outgrow_the_hardware(first, cli, tmp_path):
    """Refused by name; hardware with headroom takes them, and says how much it has."""
    state = {name: value * 8 for name, value in tensors().items()}
    safetensors.numpy.save_file(state, tmp_path / "large.safetensors")
    large = ("generate", tmp_path / "large.safetensors", "--dense", "fc", "-o", tmp_path / "large")
    cli(*large, "--for", first).refused("bits more headroom than the device has", "--headroom-bits")
    assert not (tmp_path / "large").exists()
    roomy = make(network(), tmp_path / "roomy", headroom_bits=4)
    cli(*large, "--for", roomy).good()
    said = cli("inspect", roomy, "--json").json["headroom"]
    assert said["weights"] >= 16 and said["products"] >= 16 and said["sums"] >= 16
    assert "headroom for a retrained model: weights x 1, " in cli("inspect", first).out
    assert cli("inspect", first, "--json").json["headroom"]["sums"] < 2


@pytest.mark.usefixtures("without_verilog")
@pytest.mark.parametrize(
    ("what", "grown", "message"),
    [
        ("weights", {"w_ih": 0.98, "w_hh": 0.98}, "input products of layer 'lstm' need"),
        ("biases", {"bias": 30.0}, "sums of products and biases of layer 'lstm' need"),
    ],
)
def test_the_sum_that_does_not_fit_is_named(what, grown, message, tmp_path):
    """One large weight in a row of small ones, then all of them large: only the sums grow."""
    sparse = np.zeros((16, 4))
    sparse[:, 0] = 0.98
    lstm = Lstm(name="lstm", w_ih=sparse[:, :3], w_hh=sparse, bias=np.zeros(16))
    net = Network(layers=(lstm, Dense(name="fc", weight=np.eye(2, 4), bias=np.zeros(2))))
    # Wider outputs of the head would leave the sums of the LSTM more room.
    folder = make(net, tmp_path / "sparse", output_bits=8)
    arrays = {name: np.full_like(getattr(lstm, name), value) for name, value in grown.items()}
    with pytest.raises(ConfigurationError, match=message):
        generate_build(
            net.replace(layers=(lstm.replace(**arrays), net.layers[1])), tmp_path / what, device=folder
        )


@pytest.mark.parametrize("factor", [0.97, 0.9])
def test_smaller_weights_fit_although_their_scale_could_be_finer(factor):
    """Rows that fall below a power of two: at twice the scale, the sums of some would not fit."""
    settings, size = QuantizationSettings(), 13**-0.5
    for seed in range(20):
        draw = np.random.default_rng(seed).uniform
        weights = {"w_ih": draw(-size, size, (52, 7)), "w_hh": draw(-size, size, (52, 13))}
        first = Lstm(name="lstm", bias=draw(-size, size, 52), **weights)
        there = quantise(Network(layers=(first,)), settings)
        hardware = TargetHardware(device=there.numerics, layers=there.shapes)
        smaller = first.replace(**{name: value * factor for name, value in weights.items()})
        found = quantise(Network(layers=(smaller,)), settings, hardware=hardware).layers[0]
        # No row has lost more than the one bit that it could have gained.
        assert np.abs(found.w_hh).max(axis=1).min() >= 2**14 * factor


@pytest.mark.usefixtures("without_verilog")
def test_an_image_whose_sums_overflow_is_refused_when_loaded(tmp_path, monkeypatch):
    """A foreign tool's image, with the build's hash: named, and the device goes on as it is."""
    first = make(network(), tmp_path / "first", output_bits=8)
    manifest, good = Manifest.load(first), held(first)
    lstm = good.layers[0]
    with_output = dataclasses.replace(
        lstm, w_hh=np.full_like(lstm.w_hh, 127), w_ih=np.full_like(lstm.w_ih, 127)
    )
    monkeypatch.setattr("rtlstm.spec.packing._check_sums", lambda network: None)
    image = pack(dataclasses.replace(good, layers=(with_output, *good.layers[1:])), manifest)
    monkeypatch.undo()
    x = codes(first)
    with Accelerator.open(first) as accelerator:
        with pytest.raises(ImageError, match=r"of layer 'lstm' need \d+ .* have \d+; .*headroom_bits"):
            accelerator.load_weights(image)
        np.testing.assert_array_equal(accelerator.run(x)[0], Golden(good).run(x[:, None]).y[:, 0])


def test_what_fixed_hardware_refuses(first, cli, model, tmp_path):
    out = ("-o", tmp_path / "out")
    generate = ("generate", model, *out, "--for", first)
    cli(*generate, "--dense", "fc:relu").refused("dense 4 -> 2 relu and there dense 4 -> 2 identity")
    cli(*generate, "--dense", "fc", "--input-range", "2").refused("--input-range", "leave it out")
    short = tmp_path / "short.safetensors"
    safetensors.numpy.save_file({name: v for name, v in tensors().items() if "fc" not in name}, short)
    cli("generate", short, *out, "--for", first).refused("is nothing and there dense 4 -> 2", "--loadable")
    cli("generate", model, *out, "--loadable", "--headroom-bits", "3").refused("--capacity headroom=3")
    cli("generate", model, *out, "--headroom-bits", "17").refused("headroom")


def test_layers_may_have_other_names(first):
    manifest = Manifest.load(first)
    lstm, dense = network().layers
    renamed = Network(layers=(lstm.replace(name="/rnn/LSTM_12"), dense.replace(name="head")))
    found = quantise(renamed, device_settings(manifest, None), hardware=device_hardware(manifest))
    assert found.shapes == manifest.layers and found.numerics == manifest.numerics


def test_peepholes_beyond_their_format():
    net = CELL_NETWORKS["peephole"]
    first = quantise(net, NARROW)
    large = net.layers[0].replace(peephole=net.layers[0].peephole * 4)
    with pytest.raises(ConfigurationError, match="the peepholes of layer .* must be within"):
        quantise(
            net.replace(layers=(large, *net.layers[1:])),
            NARROW,
            hardware=TargetHardware(device=first.numerics, layers=first.shapes),
        )


def test_headroom_is_measured(first):
    """A network's own hardware is too narrow for sums twice as large, and wide enough for what it says."""
    said = measure_headroom(held(first))
    assert 1 <= said.products < 2 and 1 <= said.sums < 2
    roomy = measure_headroom(quantise(network(), NARROW.replace(headroom_bits=3)))
    assert roomy.weights == 8 * said.weights
    assert (roomy.products, roomy.sums) == pytest.approx((8 * said.products, 8 * said.sums), rel=0.01)


def device_of(bits: int) -> Manifest:
    return Manifest.of("tiny", quantise(network(), NARROW.replace(headroom_bits=bits)), TINY)


def taken(weights: Network, device: Manifest) -> QuantizedNetwork:
    return quantise(weights, device_settings(device, None), hardware=device_hardware(device))


@pytest.mark.parametrize("bits", [0, 1, 3])
def test_headroom_that_is_said_is_there(bits: int):
    """Follow what the report says: weights that are larger by its factors fit."""
    device = device_of(bits)
    said = measure_headroom(taken(network(), device))
    larger = other_weights(network(), min(said.weights, said.products, said.sums))
    assert taken(larger, device).numerics == device.numerics


@pytest.mark.parametrize("scale", [3.0, 7.0, 40.0])
def test_headroom_that_is_lacking_is_said(scale: float):
    """Follow what the refusal says: with so many bits more, the weights fit."""
    larger = other_weights(network(), scale)
    with pytest.raises(ConfigurationError, match="larger `headroom_bits`") as refused:
        taken(larger, device_of(0))
    lacking = re.search(r"needs? (\d+) bits? more headroom", str(refused.value))
    assert lacking is not None
    device = device_of(int(lacking[1]))
    assert taken(larger, device).numerics == device.numerics
