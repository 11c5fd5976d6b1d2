"""The C client against the reference device: steps, and one clear error each for what is wrong."""

import ctypes
import re
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from support.c_client import SOURCES, STRICT, compile_client, load_client, read_outputs, run_client
from support.loadable_builds import Build, build_for, make_device, stacked
from support.no_logic import no_logic
from support.small_builds import network

from rtlstm import Accelerator, Parameters, QuantizationSettings
from rtlstm.gen.builds.generate import generate_build
from rtlstm.gen.ip.files import c_header
from rtlstm.host.transport import open_transport
from rtlstm.sim.golden import Golden
from rtlstm.sim.golden_device import GoldenDevice
from rtlstm.sim.link_device import DeviceEngine
from rtlstm.sim.link_port import SimulatedPort
from rtlstm.sim.port_server import PortServer
from rtlstm.spec.fixed import IntArray
from rtlstm.spec.manifest import C_HEADER, Manifest
from rtlstm.spec.registers import Region, Register

pytestmark = pytest.mark.rtl

SETTINGS = QuantizationSettings(data_bits=12, output_bits=8)
"""Outputs of fewer bytes than inputs."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("client") / "build"
    parameters = Parameters(lanes=4, macs=2, streams=2)
    with no_logic():
        generate_build(network(), folder, parameters=parameters, settings=SETTINGS)
    return folder


@pytest.fixture(scope="module")
def client(tmp_path_factory) -> Path:
    return compile_client(tmp_path_factory.mktemp("client"))


def server(folder: Path) -> PortServer:
    manifest = Manifest.load(folder)
    device = DeviceEngine(open_transport("golden", folder, manifest), manifest)
    return PortServer(SimulatedPort(device), tcp=0)


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


@pytest.mark.usefixtures("without_verilog")
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


BUILD = "BUILD must be a number of 1 to 8 hexadecimal digits and not 0,"
BROKEN = "error: the connection is broken; another program may be using it\n"


def test_line_in_use(folder: Path, client: Path):
    """A board's server hangs up on a second program."""
    manifest = Manifest.load(folder)
    weights = folder / "weights.bin"
    with server(folder) as device, socket.create_connection(("localhost", device.port)):
        done = run_client(client, f"localhost:{device.port}", weights, manifest, "")
    assert (done.returncode, done.stderr) == (1, BROKEN)


@pytest.mark.parametrize(
    "text, words",
    [
        ("1 2 3\n1 2\n4 5 6\n", "line 2 must have as many values as a step has inputs, 3, but has 2"),
        ("1 2 3 4\n", "line 1 must have as many values as a step has inputs, 3, but has 4"),
        ("1 2 3\n\n", "line 2 must have as many values as a step has inputs, 3, but has 0"),
        ("1 2 3\n1 two 3\n", "line 2 must have integers, but has 'two'"),
        ("1 2.5 3", "line 1 must have integers, but has '2.5'"),
        ("1 2 3x", "line 1 must have integers, but has '3x'"),
        ("1 2 3\0 4\n", "line 1 must be text, but has a zero byte"),
        ("1 2 2048", "values of 12 bits must be -2048 to 2047, but line 1 has 2048"),
        ("1 -2049 3", "values of 12 bits must be -2048 to 2047, but line 1 has -2049"),
        ("70000 1 2", "values of 12 bits must be -2048 to 2047, but line 1 has 70000"),
        (
            "1 2 3\n9" + 60 * "0" + " 2 3",
            "values of 12 bits must be -2048 to 2047, but line 2 has 9" + 39 * "0",
        ),
    ],
)
def test_bad_steps(folder: Path, client: Path, text: str, words: str):
    """The steps before are answered, the bad one is not."""
    manifest = Manifest.load(folder)
    with server(folder) as device:
        done = run_client(client, f"localhost:{device.port}", folder / "weights.bin", manifest, text)
    assert (done.returncode, done.stderr.splitlines()[1:]) == (2, [f"error: {words}"])
    bad = re.search(r"line (\d+)", words)
    assert bad is not None and len(done.stdout.splitlines()) == int(bad[1]) - 1


@pytest.mark.parametrize(
    "arguments, words",
    [
        ("3x 2 12", "INPUTS must be 1 to 500, but is '3x'"),
        ("3 0 12", "OUTPUTS must be 1 to 500, but is '0'"),
        ("3 2 19", "BITS must be 1 to 18, but is '19'"),
        ("3 2 12 one", f"{BUILD} but is 'one'"),
        ("3 2 12 -1", f"{BUILD} but is '-1'"),
        ("3 2 12 123456789", f"{BUILD} but is '123456789'"),
    ],
)
def test_bad_arguments(client: Path, arguments: str, words: str):
    command = [str(client), "localhost:1", "weights.bin", *arguments.split()]
    done = subprocess.run(command, text=True, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (2, f"error: {words}\n")


class Watched(GoldenDevice):
    """A device that remembers where writing into its memories began."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        super().__init__(folder, manifest)
        self.regions: list[int] = []
        self.places: list[tuple[int, int]] = []

    def write(self, register: Register, words: Sequence[int] | IntArray) -> None:
        if register == Register.SELECT:
            self.regions.append(int(words[0]) >> 28)
        if register == Register.ROW:
            self.places.append((self.regions[-1], int(words[0])))
        super().write(register, words)


@pytest.fixture(scope="module")
def loadable() -> list[Build]:
    """A device's own network, and another for it."""
    device = make_device(stacked(3, 5, dense=((2, "sigmoid"),)), Parameters(lanes=4, macs=2, streams=2))
    return [device, build_for(stacked(4, 3, dense=((3, "tanh"),), seed=1), device)]


def test_loadable(loadable: list[Build], client: Path, tmp_path: Path):
    """With the header's number: the device's own network, and another. The program's last row is last."""
    device = loadable[0].manifest
    (number,) = re.findall(r"RTLSTM_BUILD_NUMBER (\w+)", c_header(device))
    for index, build in enumerate(loadable):
        manifest, folder = build.manifest, build.save(tmp_path / str(index))
        core = Watched(folder, manifest)
        x = build.inputs(5)[:, 0]
        with PortServer(SimulatedPort(DeviceEngine(core, manifest)), tcp=0) as board:
            arguments = (client, f"localhost:{board.port}", folder / "weights.bin", manifest, x)
            texts = (number, f"{device.build_number:x}")
            found = [read_outputs(run_client(*arguments, text)) for text in texts]
            written = len(core.places) // 2
            refused = [run_client(*arguments, text) for text in (None, "1")]
            assert len(core.places) == 2 * written
        expected = Golden(build.network).run(x[:, None]).y[:, 0]
        assert np.array_equal(found[0], expected) and np.array_equal(found[1], expected)
        last = manifest.regions[Region.PROGRAM].rows - 1
        ends = [(Region.PROGRAM, 0), (Region.PROGRAM, last)]
        assert [core.places[0], core.places[written - 1]] == ends
        assert Region.PROGRAM not in core.regions[1 : written - 1]
        assert [(done.returncode, done.stderr) for done in refused] == [
            (
                1,
                "error: weights with a program do not say which device they are for: give the build's "
                "number, RTLSTM_BUILD_NUMBER of its rtlstm_registers.h\n",
            ),
            (1, f"error: the device must hold build 00000001, but it holds {device.build_number:08x}\n"),
        ]


def test_several_networks(client: Path, tmp_path: Path):
    """The driver loads them; a stream's number names one, and an encoder's stream is handed over."""
    parameters = Parameters(lanes=4, macs=2, streams=2)
    encoder = make_device(stacked(3, 5), parameters, networks=2, operations=40)
    decoder = build_for(stacked(4, 5, dense=((3, "identity"),), seed=1), encoder)
    builds = encoder, decoder
    folders = [build.save(tmp_path / str(number)) for number, build in enumerate(builds)]
    x = [build.inputs(4, number)[:, 0] for number, build in enumerate(builds)]
    library = load_client(tmp_path)
    core = open_transport("golden", folders[0], encoder.manifest)
    Accelerator(core, encoder.manifest).load(folders[0]).load(folders[1], network=1)
    engine = DeviceEngine(core, encoder.manifest)
    device, error = ctypes.create_string_buffer(1 << 14), []

    def steps(network: int, values: IntArray) -> list[list[int]]:
        manifest = builds[network].manifest
        engine.adopt(manifest, network)
        found, bits = [], (manifest.numerics.input.bits, manifest.numerics.output_bits)
        y = (ctypes.c_int32 * manifest.program.outputs)()
        for step in values.tolist():
            given = (ctypes.c_int32 * len(step))(*step)
            error.append(
                library.rtlstm_step(device, network << 10, given, len(step), bits[0], y, len(y), bits[1])
            )
            found.append(list(y))
        return found

    with PortServer(SimulatedPort(engine), tcp=0) as board:
        assert library.rtlstm_open(device, f"localhost:{board.port}".encode()) == 0
        first = steps(0, x[0])
        assert library.rtlstm_hand_over(device, 1 << 10) == 0
        second = steps(1, x[1])
        assert library.rtlstm_reset(device, 1 << 10) == 0
        again = steps(1, x[1])
        library.rtlstm_close(device)
        number = f"{encoder.manifest.build_number:x}"
        line = f"localhost:{board.port}"
        done = run_client(client, line, folders[0] / "weights.bin", encoder.manifest, "", number)
    words = "the device holds several networks, each in rows of its own: load them with the Python driver"
    assert (done.returncode, done.stderr) == (1, f"error: {words}\n")
    assert not any(error)
    ended = Golden(encoder.network).run(x[0][:, None])
    assert np.array_equal(first, ended.y[:, 0])
    for found, state in ((second, (ended.h, ended.c)), (again, None)):
        assert np.array_equal(found, Golden(decoder.network).run(x[1][:, None], state).y[:, 0])


def test_weights_of_the_other_kind(folder: Path, loadable: list[Build], client: Path, tmp_path: Path):
    """No program for a fixed device, nor fixed weights for a loadable one. A fixed build may be named."""
    manifest, own = Manifest.load(folder), loadable[0].manifest
    other = loadable[0].save(tmp_path / "loadable")
    named, number = f"{manifest.build_number:x}", f"{own.build_number:x}"
    with server(folder) as device:
        line = f"localhost:{device.port}"
        assert run_client(client, line, folder / "weights.bin", manifest, "", named).returncode == 0
        wrong = run_client(client, line, folder / "weights.bin", manifest, "", number)
        programmed = run_client(client, line, other / "weights.bin", own, "", number)
    for done in (wrong, programmed):
        words = f"the device must hold build {own.build_number:08x}, but it holds {manifest.build_number:08x}"
        assert (done.returncode, done.stderr) == (1, f"error: {words}\n")
    with server(other) as device:
        done = run_client(client, f"localhost:{device.port}", folder / "weights.bin", manifest, "", number)
    words = "the weights are of another build than the device"
    assert (done.returncode, done.stderr) == (1, f"error: {words}\n")


@pytest.mark.parametrize(
    "order", [(C_HEADER, "rtlstm.h"), ("rtlstm.h", C_HEADER)], ids=["build first", "client first"]
)
def test_both_headers(folder: Path, tmp_path: Path, order: tuple[str, str]):
    """They go together, and the client's numbers are the build's byte offsets / 4."""
    numbers = re.findall(r"RTLSTM_REG_(\w+) = (\d+)", (SOURCES / "rtlstm.h").read_text())
    assert {name: int(number) for name, number in numbers} == {
        name: Register[name] for name in ("STREAM", "COMMAND", "SELECT", "ROW", "DATA", "CAPACITY")
    }
    tests = " || ".join(f"RTLSTM_{name} != 4 * RTLSTM_REG_{name}" for name, _ in numbers)
    includes = "".join(f'#include "{name}"\n' for name in order)
    factors = "static const double factors[RTLSTM_INPUTS] = RTLSTM_INPUT_FACTORS;\n"
    factors += "static const int zeros[RTLSTM_INPUTS] = RTLSTM_INPUT_ZEROS;\n"
    (tmp_path / "main.c").write_text(
        f"{includes}{factors}int main(void) {{ return {tests} || factors[0] != 1 || zeros[0] != 0; }}\n"
    )
    (tmp_path / C_HEADER).write_text(c_header(Manifest.load(folder)))
    paths = [tmp_path / "main.c", "-I", tmp_path, "-I", SOURCES, "-o", tmp_path / "both"]
    subprocess.run(["gcc", *STRICT, *paths], check=True)
    subprocess.run([tmp_path / "both"], check=True)
