"""The memory-mapped transport: on the RTL of a Wishbone build and of a Zynq board's top, and on files."""

import mmap
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from support.bus_builds import quantised_network, write_build, write_loadable
from support.golden_runs import random_codes
from support.loadable_builds import build_for, make_device, stacked
from support.paths import TESTS
from support.quick import quick

from rtlstm import Accelerator, ConfigurationError, DeviceError, Manifest
from rtlstm.boards.zynq import ZYNQ_BOARDS
from rtlstm.gen.builds.on_board import OnZynq
from rtlstm.hdl.emit.verilog import core_to_verilog
from rtlstm.host.mmio import MappedRegisters, MmioTransport
from rtlstm.sim.golden import Golden
from rtlstm.sim.golden_device import GoldenDevice
from rtlstm.sim.simulated_board import SimulatedRegisters
from rtlstm.spec.buses import BusName
from rtlstm.spec.parameters import NETWORK_BIT, Parameters
from rtlstm.spec.registers import IDENTITY, Register

pytestmark = pytest.mark.rtl


def simulated(folder: Path) -> SimulatedRegisters:
    """A Wishbone build, or the top of a Zynq board with an AXI4-Lite build."""
    if Manifest.load(folder).parameters.bus == "axilite":
        return OnZynq.create(folder, ZYNQ_BOARDS["zybo-z7-20"]).simulate()
    sources = [TESTS / "support" / "wishbone_port.v", folder / "rtl" / "dut.v"]
    return SimulatedRegisters(folder / "port.vvp", "wishbone_port", sources)


@pytest.fixture(scope="module", params=quick(("wishbone", "axilite"), "axilite"))
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp(request.param)
    write_build(folder, request.param)
    return folder


@pytest.fixture
def registers(folder: Path) -> Iterator[SimulatedRegisters]:
    found = simulated(folder)
    yield found
    found.process.kill()
    found.close()


def opened(transport: object, folder: Path) -> Accelerator:
    accelerator = Accelerator(transport, Manifest.load(folder))
    accelerator.load_weights(folder / "weights.bin")
    return accelerator


def test_rtl_equals_golden(folder: Path, registers: SimulatedRegisters) -> None:
    """Batches, streams, states and suppressed outputs: what the golden device says, on every bit."""
    manifest = Manifest.load(folder)
    x = random_codes(quantised_network(), 4, 4, seed=1)
    said = []
    for transport in (MmioTransport(registers, manifest), GoldenDevice(folder, manifest)):
        with opened(transport, folder) as accelerator:
            y, state = accelerator.run(x, lengths=[4, 1, 2, 3])
            last, _ = accelerator.run(x, outputs="last", state=state)
            with accelerator.stream() as one, accelerator.stream() as two:
                steps = [one.step(x[0, 0]), two.step(x[1, 1]), one.step(x[2, 2])]
                saved = one.state_integers
                one.reset()
                again = one.step(x[0, 0])
            said.append([y, *state[0], *state[1], last, *steps, *saved[0], *saved[1], again])
    for found, wanted in zip(*said, strict=True):
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.slow
@pytest.mark.parametrize("bus", ["wishbone", "axilite"])
def test_loadable_device_switches_networks(bus: BusName, tmp_path: Path) -> None:
    """More inputs and outputs, a single one, and back: what each build's golden device says."""
    write_loadable(tmp_path, bus)
    builds = [*sorted(tmp_path.glob("others/*")), tmp_path]
    registers = simulated(tmp_path)
    with opened(MmioTransport(registers, Manifest.load(tmp_path)), tmp_path) as accelerator:
        for build in builds:
            # The last weights are read back below.
            accelerator.load(build, verify=False)
            form = accelerator.manifest.numerics.input
            shape = (3, 4, accelerator.manifest.program.inputs)
            x = np.random.default_rng(2).integers(form.lowest, form.maximum, shape, endpoint=True)
            y, state = accelerator.run(x)
            with Accelerator.open(build) as golden:
                wanted, states = golden.run(x)
            for found, right in zip((y, *state[0], *state[1]), (wanted, *states[0], *states[1]), strict=True):
                np.testing.assert_array_equal(found, right)
        # A reset, as after an error, stops it; weights bring the program along.
        registers.write(Register.CONTROL, 1)
        with pytest.raises(DeviceError, match="must have a program, but a loadable device loses it"):
            accelerator.run(x)
        accelerator.load_weights(tmp_path / "weights.bin")
        np.testing.assert_array_equal(accelerator.run(x)[0], y)


class DeafRegisters:
    """Registers of a device that takes steps and never answers, or answers with another stream."""

    def __init__(self, answers: int = 0) -> None:
        self.words = dict.fromkeys(Register, 0)
        self.words |= {Register.ID: IDENTITY, Register.VERSION: 1 << 16, Register.X_ROOM: 4}
        self.words |= {Register.Y_STEPS: answers, Register.Y_STREAM: 2}
        self.resets = 0

    def read(self, register: Register) -> int:
        return self.words[register]

    def write(self, register: Register, word: int) -> None:
        self.resets += register == Register.CONTROL

    def close(self) -> None:
        pass


def test_dead_device_is_an_error(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rtlstm.host.mmio._TIMEOUT", 0.05)
    manifest = Manifest.load(folder)
    streams, x = np.zeros(2, dtype=np.int64), np.zeros((2, 5), dtype=np.int64)
    for answers, message in ((0, "no step has for 0.05 s"), (1, "gives one of stream 2")):
        registers = DeafRegisters(answers)
        transport = MmioTransport(registers, manifest)
        with pytest.raises(DeviceError, match=message):
            transport.exchange(streams, x)
        assert registers.resets == 2
        transport.close()
        with pytest.raises(DeviceError, match="is closed"):
            transport.read(Register.ID)


def test_refused_access_is_an_error(folder: Path) -> None:
    registers = DeafRegisters()
    transport = MmioTransport(registers, Manifest.load(folder))
    registers.words[Register.LINK_ERRORS] = 3
    with pytest.raises(DeviceError, match="it has refused 3"):
        transport.exchange(np.zeros(0, dtype=np.int64), np.zeros((0, 5), dtype=np.int64))


def test_other_register_map_is_refused(folder: Path) -> None:
    registers = DeafRegisters()
    registers.words[Register.VERSION] = 2 << 16
    with pytest.raises(DeviceError, match="must be of version 1, but it is 2"):
        MmioTransport(registers, Manifest.load(folder))


def test_file_holds_the_registers(tmp_path: Path) -> None:
    path, page = tmp_path / "registers", mmap.ALLOCATIONGRANULARITY
    path.write_bytes(np.arange(page // 2, dtype=np.uint32).tobytes())
    for first in (0, 8, page // 4 + 8):
        registers = MappedRegisters(path, 4 * first)
        assert registers.read(Register.BUILD) == first + 1
        registers.write(Register.Y_STEPS, 0xFFFFFFFF)
        with pytest.raises(DeviceError, match="in use by another program"):
            MappedRegisters(path)
        registers.close()
        registers.close()
        assert np.fromfile(path, dtype=np.uint32)[first + Register.Y_STEPS] == 0xFFFFFFFF


def test_unusable_files_are_refused(tmp_path: Path) -> None:
    short = tmp_path / "short"
    short.write_bytes(bytes(64))
    with pytest.raises(DeviceError, match="must hold 128 bytes of registers at 0x0"):
        MappedRegisters(short)
    with pytest.raises(DeviceError, match="No such file"):
        MappedRegisters(tmp_path / "none")
    with pytest.raises(DeviceError, match="multiple of 4, not 0x2"):
        MappedRegisters(short, 2)


def test_backend_is_opened_by_name(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "registers"
    path.write_bytes(bytes(4096))
    with pytest.raises(DeviceError, match="ID register must read 0x4c53544d, but it reads 0x00000000"):
        Accelerator.open(folder, backend=f"mmio:{path}")
    # It has let go of the file.
    MappedRegisters(path).close()
    for argument in ("", "@4", f"{path}@x"):
        with pytest.raises(ConfigurationError, match="mmio needs a path"):
            Accelerator.open(folder, backend=f"mmio:{argument}")


@pytest.mark.usefixtures("without_verilog")
@pytest.mark.parametrize("bus", ["none", "axi"])
def test_builds_without_fifos_are_refused(bus: str, tmp_path: Path) -> None:
    write_build(tmp_path / "build", bus)
    path = tmp_path / "registers"
    path.write_bytes(bytes(4096))
    with pytest.raises(ConfigurationError, match=f"bus is {bus}; generate it with `bus='axilite'` or"):
        Accelerator.open(tmp_path / "build", backend=f"mmio:{path}")
    assert path.read_bytes() == bytes(4096)


@pytest.mark.parametrize("bus", quick(("wishbone", "axilite"), "wishbone"))
def test_two_networks_behind_one_bus(bus: BusName, tmp_path: Path) -> None:
    """Steps of both in turn; one that is not loaded is refused, and what was there is reset, as ever."""
    parameters = Parameters(lanes=8, macs=4, streams=3, beat_in=2, beat_out=2, bus=bus)
    device = make_device(
        stacked(3, 5, dense=((2, "sigmoid"),)), parameters, name="dut", networks=2, operations=40
    )
    builds = device, build_for(stacked(9, 4, dense=((3, "tanh"),), seed=1), device)
    verilog = core_to_verilog(device.manifest)
    folders = [build.save(tmp_path / str(number), verilog) for number, build in enumerate(builds)]
    found = simulated(folders[0])
    x = [build.inputs(4, 1)[:, 0] for build in builds]
    try:
        with Accelerator(MmioTransport(found, device.manifest), device.manifest) as accelerator:
            accelerator.load(folders[0], verify=False)
            accelerator.load(folders[1], network=1)
            with accelerator.stream() as first, accelerator.stream(network=1) as second:
                said = [
                    [stream.step(inputs[step]) for stream, inputs in zip((first, second), x, strict=True)]
                    for step in range(4)
                ]
            for number, build in enumerate(builds):
                expected = Golden(build.network).run(x[number][:, None]).y[:, 0]
                np.testing.assert_array_equal([each[number] for each in said], expected)
            assert accelerator.device.register(Register.CAPACITY) >> 12 & 15 == 1
            accelerator.device.transport.write(Register.STREAM, [1 << NETWORK_BIT])
            assert accelerator.device.register(Register.SHAPE) == builds[1].manifest.shape
            accelerator.unload(1)
            assert accelerator.device.register(Register.SHAPE) == 0
            with pytest.raises(DeviceError, match="must take every access"):
                accelerator.device.transport.exchange([1 << NETWORK_BIT], x[1][:1])
            with pytest.raises(DeviceError, match="must have a program"):
                accelerator.device.transport.exchange([0], x[1][:1])
            # The way out of the message.
            accelerator.load(folders[0], verify=False)
            with accelerator.stream() as stream:
                np.testing.assert_array_equal(
                    [stream.step(each) for each in x[0]], [each[0] for each in said]
                )
    finally:
        found.process.kill()
        found.close()
