"""Opening a build, loading weights, and the registers."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from rtlstm.host import Accelerator, Transport, pack
from rtlstm.sim.golden_device import GoldenDevice
from rtlstm.spec.errors import BuildError, ConfigurationError, DeviceError, ImageError
from rtlstm.spec.registers import Command, Region, Register


@pytest.fixture
def golden_backend(monkeypatch):
    """Make every backend the golden device, and keep the last one opened."""
    opened = []

    def open_transport(backend, folder, manifest, progress=None):
        opened.append(GoldenDevice(folder, manifest, "", progress))
        return opened[-1]

    monkeypatch.setattr("rtlstm.host.accelerator.open_transport", open_transport)
    return opened


def test_open_and_run(small, tmp_path, golden_backend):
    folder, seen = small.save(tmp_path / "build"), []
    with Accelerator.open(folder, progress=lambda *news: seen.append(news)) as accelerator:
        x = small.inputs(5, 2)
        np.testing.assert_array_equal(accelerator.run(x)[0], small.golden.run(x).y)
    assert seen[0][0] == "load weights" and ("check weights", 18, 18) in seen
    with pytest.raises(DeviceError, match="closed"):
        golden_backend[0].read(Register.ID)


def test_golden_device_is_a_transport(small):
    assert isinstance(GoldenDevice(Path(), small.manifest), Transport)
    with pytest.raises(ConfigurationError, match="takes no argument"):
        GoldenDevice(Path(), small.manifest, "fast")


def test_folder_without_manifest(tmp_path):
    with pytest.raises(BuildError, match="not a build folder"):
        Accelerator.open(tmp_path)


def test_damaged_weights_are_not_loaded(small, tmp_path, golden_backend):
    folder = small.save(tmp_path)
    data = bytearray((folder / "weights.bin").read_bytes())
    data[-20] ^= 4
    (folder / "weights.bin").write_bytes(data)
    with pytest.raises(ImageError, match="damaged"):
        Accelerator.open(folder)
    assert not golden_backend


def test_unknown_backend(small, tmp_path):
    with pytest.raises(ConfigurationError, match="backend must be one of"):
        Accelerator.open(small.save(tmp_path), backend="abacus")


class Wrong(GoldenDevice):
    """Reads one register wrong."""

    def __init__(self, manifest, register):
        super().__init__(Path(), manifest)
        self.register = register

    def read(self, register, count=1):
        words = super().read(register, count)
        return words ^ 1 if register == self.register else words


def test_other_device(small):
    with pytest.raises(DeviceError, match="ID register must read 0x4c53544d, but it reads 0x4c53544c"):
        Accelerator(Wrong(small.manifest, Register.ID), small.manifest)
    with pytest.raises(DeviceError, match=f"must hold build {small.manifest.build_number:08x}"):
        Accelerator(Wrong(small.manifest, Register.BUILD), small.manifest)


def test_device_is_closed_if_opening_fails(small, make_build, tmp_path, monkeypatch):
    device = GoldenDevice(Path(), make_build(macs=5).manifest)
    monkeypatch.setattr("rtlstm.host.accelerator.open_transport", lambda *_: device)
    with pytest.raises(DeviceError, match="but it holds build"):
        Accelerator.open(small.save(tmp_path))
    with pytest.raises(DeviceError, match="closed"):
        device.read(Register.ID)


@pytest.mark.parametrize(("region", "bank"), [(Region.WEIGHTS, 3), (Region.PARTIALS, 0), (Region.SHIFTS, 0)])
def test_memory_that_does_not_keep_its_bits(small, region, bank):
    class Stuck(GoldenDevice):
        def read(self, register, count=1):
            words = super().read(register, count)
            if register == Register.DATA and self._window.select == region << 28 | bank:
                words[self.manifest.regions[region].words * 5] ^= 1
            return words

    accelerator = Accelerator(Stuck(Path(), small.manifest), small.manifest)
    image = pack(small.network, small.manifest)
    accelerator.load_weights(image, verify=False)
    with pytest.raises(DeviceError, match=f"{region.name} bank {bank} row 5 word 0 reads"):
        accelerator.load_weights(image)


def test_loading_weights_replaces_them_and_resets(small, make_build, tmp_path):
    other = make_build(seed=0)
    lstm = other.network.layers[0]
    lstm.w_ih[:] = lstm.w_ih[::-1].copy() // 2
    lstm.w_hh[:] = lstm.w_hh // 2
    accelerator, x = small.open(), small.inputs(5)
    stream = accelerator.stream()
    stream.steps(x)
    path = tmp_path / "other.bin"
    path.write_bytes(pack(other.network, small.manifest).to_bytes())
    accelerator.load_weights(path)
    assert not np.any(stream.state)
    expected = other.golden.run(x[:, None]).y[:, 0]
    assert not np.array_equal(expected, small.golden.run(x[:, None]).y[:, 0])
    np.testing.assert_array_equal(stream.steps(x), expected)


def test_answer_of_the_wrong_shape(small):
    accelerator = small.open()
    accelerator.device.transport.run_steps = lambda steps: np.zeros((1, 1))
    with pytest.raises(DeviceError, match=r"must answer an array of integers \(4, 3\), not \(1, 1\)"):
        accelerator.run(small.inputs(4))


def test_counters(small):
    accelerator, cycles = small.open(), small.manifest.cycles
    with accelerator.stream() as stream:
        assert accelerator.measured_latency_cycles == 0
        stream.step(small.inputs())
        assert accelerator.measured_latency_cycles == cycles.first_step_latency_cycles
        stream.step(small.inputs())
        assert accelerator.measured_latency_cycles == cycles.step_latency_cycles
        assert accelerator.device.register(Register.STEPS) == 2
    x = small.inputs(20, 3)
    before = accelerator.cell_saturations
    accelerator.run(x)
    assert accelerator.cell_saturations - before == small.golden.run(x).cell_saturations


def test_window_moves_on_row_by_row(make_build):
    """Words may come in any portions; a row is written with its last word."""
    build = make_build(macs=9)
    device = GoldenDevice(Path(), build.manifest)
    device.write(Register.SELECT, [Region.WEIGHTS << 28 | 2])
    assert build.manifest.regions[Region.WEIGHTS].words == 3
    words = np.random.default_rng(0).integers(0, 1 << 32, (4, 3))
    words[:, 2] &= 0xFF
    device.write(Register.ROW, [1])
    for begin, end in [(0, 1), (1, 5), (5, 11), (11, 12)]:
        device.write(Register.DATA, words.reshape(-1)[begin:end])
    device.write(Register.ROW, [1])
    found = np.concatenate([device.read(Register.DATA, count) for count in (2, 3, 1, 6)])
    np.testing.assert_array_equal(found, words.reshape(-1))
    assert device.read(Register.ROW)[0] == 5
    device.write(Register.ROW, [1])
    device.write(Register.DATA, [0, 0])
    device.write(Register.ROW, [1])
    np.testing.assert_array_equal(device.read(Register.DATA, 3), words[0])


def test_surplus_bits_get_lost(small):
    device = GoldenDevice(Path(), small.manifest)
    device.write(Register.SELECT, [Region.CELLS << 28])
    device.write(Register.DATA, [0xFFFFFFFF])
    device.write(Register.ROW, [0])
    assert device.read(Register.DATA)[0] == 0xFFFF


def test_golden_device_refuses_what_does_not_exist(small):
    device = GoldenDevice(Path(), small.manifest)
    for register, value, words in [
        (Register.SELECT, 9 << 28, "SELECT must name a region of 0, 1, 2, 3, 4, 5, 6, 7, not 9"),
        (Register.SELECT, 7, "WEIGHTS has banks 0 to 3, but SELECT names bank 7"),
        (Register.SELECT, 0, None),
        (Register.ROW, 100000, "but row 100000 was asked for"),
    ]:
        device.write(register, [value])
        if words:
            with pytest.raises(DeviceError, match=words):
                device.read(Register.DATA)
            with pytest.raises(DeviceError, match=words):
                device.write(Register.DATA, [1])
    device.write(Register.STREAM, [3])
    with pytest.raises(DeviceError, match="streams 0 to 2, but stream 3"):
        device.write(Register.COMMAND, [Command.RESET])


def test_nothing_loaded(small):
    with pytest.raises(ImageError, match="SIGMOID table must be the one of build"):
        GoldenDevice(Path(), small.manifest).exchange(np.array([0]), small.inputs(1))


def test_flags(small):
    device = small.open().device.transport

    def flags():
        return int(device.read(Register.FLAGS)[0])

    device.write(Register.STREAM, [1])
    assert flags() == 3
    device.exchange(np.array([1]), small.inputs(1))
    assert flags() == 0
    device.write(Register.COMMAND, [Command.STATE_WRITTEN])
    assert flags() == 2
    device.exchange(np.array([1]), small.inputs(1))
    for region, expected in ((Region.CELLS, 0), (Region.SHIFTS, 2)):
        device.write(Register.SELECT, [region << 28])
        device.write(Register.ROW, [0])
        word = device.read(Register.DATA)
        device.write(Register.ROW, [0])
        device.write(Register.DATA, word)
        assert flags() == expected
    device.write(Register.COMMAND, [Command.RESET])
    assert flags() == 3


def test_host_needs_numpy_and_pydantic_alone():
    program = """
import sys
blocked = {"amaranth", "typer", "rich", "jinja2", "onnx", "torch", "cocotb", "safetensors",
           "matplotlib", "onnxruntime", "serial", "scipy"}
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in blocked:
            raise ImportError(f"{name} must not be imported")
sys.meta_path.insert(0, Block())
import rtlstm.host
loaded = {name for name in sys.modules if name.startswith("rtlstm.")}
other = {name for name in loaded if name.split(".")[1] not in ("host", "spec")}
assert not other, other
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
