"""The C client against the reference device: steps, and one clear error each for what is wrong."""

from pathlib import Path

import numpy as np
import pytest
from c_client import compile_client, read_outputs, run_client
from small_builds import network

from rtlstm.gen.build import generate_build
from rtlstm.gen.quantise import QuantizationSettings
from rtlstm.host import Accelerator
from rtlstm.host.transport import open_transport
from rtlstm.sim.line_server import LineServer
from rtlstm.sim.link_device import DeviceEngine
from rtlstm.sim.link_line import SimulatedLine
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.parameters import Parameters


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("client") / "build"
    parameters = Parameters(lanes=4, macs=2, streams=2)
    generate_build(network(), folder, parameters=parameters, settings=QuantizationSettings(data_bits=12))
    return folder


@pytest.fixture(scope="module")
def client(tmp_path_factory) -> Path:
    return compile_client(tmp_path_factory.mktemp("client"))


def server(folder: Path) -> LineServer:
    manifest = Manifest.load(folder)
    device = DeviceEngine(open_transport("golden", folder, manifest), manifest)
    return LineServer(SimulatedLine(device), tcp=0)


@pytest.mark.parametrize("serial", [False, True], ids=["tcp", "serial"])
def test_steps(folder: Path, client: Path, serial: bool):
    """The words of the driver itself; a second program takes the device over."""
    manifest = Manifest.load(folder)
    x = np.random.default_rng(1).integers(-2048, 2048, (7, manifest.program.inputs))
    with server(folder) as device:
        line = str(device.path) if serial else f"localhost:{device.port}"
        found = [
            read_outputs(run_client(client, line, folder / "weights.bin", manifest, x)) for _ in range(2)
        ]
    golden = open_transport("golden", folder, manifest)
    with Accelerator(golden, manifest) as accelerator:
        accelerator.load_weights(folder / "weights.bin")
        expected = golden.exchange(np.zeros(7, dtype=np.int32), x.astype(np.int32))
    assert np.array_equal(found[0], expected) and np.array_equal(found[1], expected)


def test_wrong_weights(folder: Path, client: Path, tmp_path: Path):
    manifest = Manifest.load(folder)
    x = np.zeros((1, manifest.program.inputs), dtype=np.int64)
    image = bytearray((folder / "weights.bin").read_bytes())
    image[100] ^= 1
    bad = tmp_path / "bad.bin"
    bad.write_bytes(image)
    other = tmp_path / "other"
    generate_build(network(), other, parameters=Parameters(lanes=8, macs=2))
    with server(folder) as device:
        line = f"localhost:{device.port}"
        for path, words in (
            (bad, "the weight image is damaged"),
            (tmp_path / "none", "the weight image cannot be read"),
            (other / "weights.bin", "the weights are of another build than the device"),
        ):
            done = run_client(client, line, path, manifest, x)
            assert (done.returncode, done.stderr) == (1, f"error: {words}\n")
    done = run_client(client, line, folder / "weights.bin", manifest, x)
    assert (done.returncode, done.stderr) == (1, "error: nothing listens at this port\n")
