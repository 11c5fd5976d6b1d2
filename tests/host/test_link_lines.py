"""Real lines: TCP and pseudo-terminals with the golden model behind them, unplugged and shared."""

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from rtlstm.host import Accelerator, open_transport, pack
from rtlstm.host.link.byte_ports import SerialPort, TcpPort
from rtlstm.host.link.engine import LinkTimeouts
from rtlstm.host.link.link_transport import LinkTransport
from rtlstm.sim.golden_device import GoldenDevice
from rtlstm.sim.link_device import DeviceEngine
from rtlstm.sim.link_port import SimulatedPort
from rtlstm.sim.port_server import PortServer
from rtlstm.spec.errors import ConfigurationError, DeviceError
from rtlstm.spec.registers import Register

HURRY = LinkTimeouts(opening=10.0, silence=1.0)


@pytest.fixture
def device(small) -> DeviceEngine:
    return DeviceEngine(GoldenDevice(Path(), small.manifest), small.manifest)


@pytest.fixture
def server(device) -> Iterator[PortServer]:
    with PortServer(SimulatedPort(device), tcp=0) as server:
        yield server


@pytest.fixture(params=["tcp", "serial"])
def backend(server, request) -> str:
    return f"tcp:127.0.0.1:{server.port}" if request.param == "tcp" else f"serial:{server.path}"


def test_backends(small, backend, tmp_path):
    folder, x = small.save(tmp_path / "build"), small.inputs(60, 3)
    for _ in range(2):
        with Accelerator.open(folder, backend) as accelerator:
            np.testing.assert_array_equal(accelerator.run(x)[0], small.golden.run(x).y)


def test_baud_rate_may_be_named(small, server, tmp_path):
    folder, x = small.save(tmp_path / "build"), small.inputs(3)
    with Accelerator.open(folder, f"serial:{server.path}@115200") as accelerator:
        np.testing.assert_array_equal(accelerator.run(x)[0], small.golden.run(x[:, None]).y[:, 0])


def test_connection_that_breaks_loses_nothing(small, device, server, tmp_path):
    x = small.inputs(2000)
    ended = threading.Event()

    def break_it() -> None:
        while not ended.wait(0.05):
            server.disconnect()

    with Accelerator.open(small.save(tmp_path / "build"), f"tcp:127.0.0.1:{server.port}") as accelerator:
        thread = threading.Thread(target=break_it)
        thread.start()
        try:
            y = [accelerator.device.exchange(np.zeros(100, int), part) for part in x.reshape(20, 100, -1)]
            while not accelerator.device.transport.statistics.reopened:
                accelerator.device.register(Register.ID)
        finally:
            ended.set()
            thread.join()
    np.testing.assert_array_equal(np.concatenate(y), small.golden.run(x[:, None]).y[:, 0])
    assert device.steps == 2000


def test_second_program_is_refused(small, server, backend, tmp_path):
    folder = small.save(tmp_path / "build")
    with Accelerator.open(folder, backend) as first:
        message = "cannot be opened" if "serial" in backend else "another program may be using"
        with pytest.raises(DeviceError, match=message):
            Accelerator.open(folder, backend)
        first.run(small.inputs(3))
    # At once: the line is free as soon as the first has closed it.
    with Accelerator.open(folder, backend) as second:
        second.run(small.inputs(3))


@pytest.mark.parametrize("kind", ["tcp", "serial"])
def test_unplugged_in_mid_load(small, device, kind, tmp_path):
    server = PortServer(SimulatedPort(device), tcp=0)

    def unplug(what: str, done: int, total: int) -> None:
        if done == total // 3:
            server.close()

    with server:
        line = TcpPort("127.0.0.1", server.port) if kind == "tcp" else SerialPort(str(server.path), 115200)
        accelerator = Accelerator(LinkTransport(line, small.manifest, HURRY), small.manifest, unplug)
        with pytest.raises(DeviceError, match=r"nothing was received from it for \d\.\d s .*check cable"):
            accelerator.load_weights(pack(small.network, small.manifest))
        accelerator.close()
    # Plugged in again, and opened again, it works.
    with (
        PortServer(SimulatedPort(device), tcp=0) as server,
        Accelerator.open(small.save(tmp_path / "b"), f"tcp:127.0.0.1:{server.port}") as accelerator,
    ):
        x = small.inputs(20)
        np.testing.assert_array_equal(accelerator.run(x)[0], small.golden.run(x[:, None]).y[:, 0])


def test_nobody_answers(small, tmp_path, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        with pytest.raises(DeviceError, match="nothing was received"):
            LinkTransport(
                TcpPort("127.0.0.1", silent.getsockname()[1]), small.manifest, LinkTimeouts(opening=0.3)
            )
        port = silent.getsockname()[1]
    with pytest.raises(DeviceError, match=f"board server must listen at 127.0.0.1:{port}, but it cannot"):
        TcpPort("127.0.0.1", port)
    with pytest.raises(DeviceError, match="serial port /dev/none must exist and be free"):
        open_transport("serial:/dev/none", tmp_path, small.manifest)


def test_no_device_at_any_rate(small, device, monkeypatch):
    monkeypatch.setattr("rtlstm.host.link.link_transport._SEARCH", LinkTimeouts(retry=0.05, opening=0.1))
    with PortServer(SimulatedPort(device), tcp=0) as server:
        device.receive = lambda data: None
        with pytest.raises(DeviceError, match="none does at 3000000, 2000000, 1000000, 115200 baud"):
            open_transport(f"serial:{server.path}", Path(), small.manifest)


@pytest.mark.parametrize(
    "backend",
    [
        *("serial:", "serial:@9600", "serial:/dev/x@", "serial:/dev/x@fast"),
        *("tcp:", "tcp:host", "tcp:host:port", "tcp::1"),
    ],
)
def test_wrong_serial_port_or_address(small, backend):
    words = "PORT or PORT@BAUD" if backend.startswith("serial") else "HOST:PORT"
    with pytest.raises(ConfigurationError, match=f"must be {words}"):
        open_transport(backend, Path(), small.manifest)
