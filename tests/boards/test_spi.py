"""A board's link on SPI: the whole board in simulation, and the host's side."""

import ctypes
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from support.c_client import load_client
from support.served_board import check_golden, running, said
from support.wire_time import check_wire_time

from rtlstm import Accelerator, ConfigurationError, DeviceError, Manifest
from rtlstm.boards.bitstream import constraints
from rtlstm.boards.catalogue import find_board
from rtlstm.gen.builds.on_board import OnBoard
from rtlstm.host.link.engine import LinkTimeouts
from rtlstm.host.link.link_transport import LinkTransport, open_spi
from rtlstm.host.transport import open_transport
from rtlstm.sim.faults import FaultyPort
from rtlstm.sim.simulated_board import BoardPort, NativeBoard
from rtlstm.spec.registers import IDENTITY, Register

QUICK = LinkTimeouts(retry=0.005, least_retry=0.001, most_retry=0.01)


def test_pins_are_at_the_header():
    assert [pin.site for pin in find_board("icebreaker").spi] == ["45", "4", "2", "47", "3", "48"]
    lpf = constraints(find_board("ulx3s-12f"), "spi")
    raw = 'LOCATE COMP "spi_raw_cs_n" SITE "B10";'
    assert raw not in lpf and raw in constraints(find_board("ulx3s-12f"), "raw_spi")
    assert 'LOCATE COMP "spi_sck" SITE "B11";' in lpf and '"spi_sck" 25' in lpf and '"rx"' not in lpf


def test_refused(cli, board_build: Path):
    cli("board", board_build, "--board", "colorlight-i9", "--spi", "--tcp", 0).refused("has no pins for SPI")
    cli("board", board_build, "--board", "ulx3s-12f", "--spi").refused("--tcp PORT")
    done = cli("bitstream", board_build, "--board", "colorlight-i5", "--spi", "--ip", "10.0.0.9")
    done.refused("one link")
    done = cli("bitstream", board_build, "--board", "ulx3s-12f", "--spi", "--baud", 9600)
    done.refused("no serial port")


@pytest.fixture(scope="module")
def on_board(board_build: Path) -> OnBoard:
    return OnBoard.create(board_build, "ulx3s-12f", 100, spi=True, raw=True)


@pytest.mark.rtl
def test_results_are_the_golden_models(on_board: OnBoard, native: NativeBoard):
    manifest, x = on_board.manifest, np.random.default_rng(2).uniform(-1, 1, (20, 3))
    with Accelerator(LinkTransport(BoardPort(native), manifest, QUICK, seed=1), manifest) as board:
        assert board.device.transport.read(Register.ID).tolist() == [IDENTITY]
        board.load_weights(on_board.folder / "weights.bin", verify=True)
        y, _ = board.run(x)
        statistics = board.device.transport.statistics
        assert statistics.repeated == statistics.damaged == 0
    check_golden(on_board.folder, x, y)


@pytest.mark.rtl
def test_a_step_takes_as_long_as_predicted(on_board: OnBoard, native: NativeBoard):
    check_wire_time(on_board, native, BoardPort(native), QUICK)


@pytest.mark.slow
@pytest.mark.rtl
def test_faults_lose_nothing(on_board: OnBoard, native: NativeBoard):
    manifest, x = on_board.manifest, np.random.default_rng(2).uniform(-1, 1, (5000, 3))
    bad = FaultyPort(BoardPort(native), 0.02, seed=3, longest=0.002)
    with Accelerator(LinkTransport(bad, manifest, QUICK, seed=1), manifest) as board:
        board.load_weights(on_board.folder / "weights.bin")
        y, _ = board.run(x)
    check_golden(on_board.folder, x, y)
    assert sum(bad.counts.values()) > 3


class Spidev:
    """Linux' spidev in front of a board: a transfer gives as many bytes as it takes."""

    def __init__(self, path: str, mode: int, hz: float) -> None:
        if path != "/dev/spidev0.0":
            raise OSError(2, "no such file")
        assert (mode, hz) == (0, 12e6)
        self._came, self.transfers = b"", 0
        type(self).opened = self

    def transfer(self, data: bytes) -> bytes:
        board, self.transfers = self.board, self.transfers + 1
        if any(data):
            board.send(data)
        # As long as the wires take for so many bytes.
        self._came += board.run(100 * len(data))
        # A frame, once begun, goes on until its zero.
        whole = self._came[: self._came.rfind(b"\0") + 1]
        found, self._came = whole[: len(data)], self._came[len(whole[: len(data)]) :]
        return found.ljust(len(data), b"\0")

    def close(self) -> None:
        del self._came


def test_no_such_spi(board_build: Path):
    with pytest.raises(DeviceError, match="SPI must be at /dev/spidev9.9, but it cannot be opened"):
        open_transport("spi:/dev/spidev9.9", board_build, Manifest.load(board_build))


@pytest.mark.rtl
def test_the_drivers_side(on_board: OnBoard, native: NativeBoard, monkeypatch):
    """The backend exchanges bytes by transfers, and finds frames among zeros."""
    monkeypatch.setattr(Spidev, "board", native, raising=False)
    monkeypatch.setitem(sys.modules, "periphery", SimpleNamespace(SPI=Spidev, SPIError=IOError))
    manifest, x = on_board.manifest, np.random.default_rng(4).uniform(-1, 1, (5, 3))
    with Accelerator(open_transport("spi:/dev/spidev0.0@12", on_board.folder, manifest), manifest) as board:
        board.load_weights(on_board.folder / "weights.bin")
        y, _ = board.run(x)
    check_golden(on_board.folder, x, y)
    assert Spidev.opened.transfers > 10
    for argument in (
        "@10",
        "/dev/spidev0.0@",
        "/dev/spidev0.0@0",
        "/dev/spidev0.0@fast",
        "/dev/spidev0.0@nan",
    ):
        with pytest.raises(ConfigurationError, match="DEVICE or DEVICE@MHZ"):
            open_spi(on_board.folder, manifest, argument)
    with pytest.raises(DeviceError, match="SPI must be at /dev/none, but it cannot be opened.*no such file"):
        open_spi(on_board.folder, manifest, "/dev/none")


@pytest.mark.slow
@pytest.mark.rtl
def test_served_over_tcp(on_board: OnBoard, cli, board_user: Path, tmp_path: Path):
    """The simulated board's server stands for the machine that has the SPI."""
    build, x = on_board.folder, board_user / "x.npy"
    command = f"rtlstm board {build} --board ulx3s-12f --clock 100 --spi --tcp 0"
    with running(command, tmp_path) as process:
        port = said(process, r"(tcp:\S+)")
        cli("run", build, "--backend", port, "--input", x, "--output", tmp_path / "y.npy").good()
    check_golden(build, np.load(x), np.load(tmp_path / "y.npy"))


@pytest.mark.slow
@pytest.mark.rtl
def test_the_c_client_with_a_function_of_the_users(
    on_board: OnBoard, native: NativeBoard, tmp_path: Path, monkeypatch
):
    monkeypatch.setattr(Spidev, "board", native, raising=False)
    client, wires = load_client(tmp_path), Spidev("/dev/spidev0.0", 0, 12e6)
    transfer = ctypes.CFUNCTYPE(
        ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.c_uint8), ctypes.c_size_t
    )

    @transfer
    def exchange(_, data, count) -> int:
        ctypes.memmove(data, wires.transfer(ctypes.string_at(data, count)), count)
        return 0

    device = ctypes.create_string_buffer(8192)
    assert client.rtlstm_open_spi(device, exchange, None) == 0, device.raw
    assert client.rtlstm_load(device, str(on_board.folder / "weights.bin").encode(), 0) == 0, device.raw
    manifest, codes = on_board.manifest, np.arange(15, dtype=np.int32).reshape(5, 3) * 50
    outputs = (ctypes.c_int32 * manifest.program.outputs)()
    bits, found = (manifest.numerics.data_bits, manifest.numerics.output_bits), []
    for row in codes:
        x = row.ctypes.data_as(ctypes.c_void_p)
        assert client.rtlstm_step(device, 0, x, 3, bits[0], outputs, len(outputs), bits[1]) == 0, device.raw
        found.append(list(outputs))
    with Accelerator(open_transport("golden", on_board.folder, manifest), manifest) as golden:
        golden.load_weights(on_board.folder / "weights.bin")
        wanted = golden.device.transport.exchange(np.zeros(5, dtype=np.int32), codes)
    assert found == wanted.tolist()
