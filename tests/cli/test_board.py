"""``rtlstm board``: the README's three commands, and a simulated board's line, LEDs and faults."""

import json
import shlex
import signal
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.c_client import compile_client, read_outputs, run_client
from support.served_board import commands, finish, running, said, served, start
from support.wire_time import check_wire_time

from rtlstm import Accelerator, ConfigurationError, DeviceError, Manifest
from rtlstm.gen.builds.on_board import OnBoard
from rtlstm.host.link.byte_ports import BytePort
from rtlstm.host.link.engine import LinkTimeouts
from rtlstm.host.link.link_transport import LinkTransport
from rtlstm.host.transport import open_transport
from rtlstm.sim.faults import FaultyPort
from rtlstm.sim.port_server import PortServer
from rtlstm.sim.simulated_board import BoardPort, NativeBoard
from rtlstm.spec.registers import IDENTITY, Register

pytestmark = pytest.mark.rtl

PORT = "5000"
QUICK = LinkTimeouts(retry=0.003, least_retry=0.001, most_retry=0.01)
"""In the board's own seconds, of which each costs a simulator half a minute."""


def test_the_readmes_three_commands_fit_together():
    """One build, and one port: what :func:`test_three_commands` runs."""
    generate, board, run = commands()
    assert [command.split()[:2] for command in (generate, board, run)] == [
        ["rtlstm", "generate"], ["rtlstm", "board"], ["rtlstm", "run"]
    ]  # fmt: skip
    assert board.count(PORT) == run.count(PORT) == 1 and PORT not in generate
    build = shlex.split(board)[2]
    assert build in shlex.split(generate) and build in shlex.split(run)


@pytest.mark.slow
def test_three_commands(board_user: Path, board_build: Path):
    """From a model file to answers, as the README has it; only the TCP port is one that is free."""
    generate, board, run = commands()
    assert generate.startswith("rtlstm generate model.safetensors ")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    with running(board.replace(PORT, port), board_user, signal.SIGINT) as server:
        assert said(server, r"tcp:localhost:(\d+)") == port
        finish(start(run.replace(PORT, port), board_user))
    with Accelerator.open(board_build, "golden") as golden:
        expected, _ = golden.run(np.load(board_user / "x.npy"))
    assert np.array_equal(np.load(board_user / "y.npy"), expected)


@pytest.fixture
def line(compiled) -> Iterator[BoardPort]:
    line = BoardPort(NativeBoard(*compiled))
    yield line
    line.close()


def steps(manifest: Manifest, count: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(5)
    top = 1 << manifest.numerics.data_bits - 1
    x = rng.integers(-top, top, (count, manifest.program.inputs))
    return np.zeros(count, dtype=np.int32), x.astype(np.int32)


def test_a_step_takes_as_long_as_predicted(on_board: OnBoard, line: BoardPort):
    check_wire_time(on_board, line._board, line, QUICK)


def test_clock_reset_and_leds(on_board: OnBoard, line: BoardPort):
    native = line._board
    assert native.clock_hz == pytest.approx(float(on_board.timing.clock_hz))
    # Out of reset it waits, dark but for the blinking light, until a host comes.
    assert native.leds & 6 == 0
    with LinkTransport(line, on_board.manifest, seed=1) as transport:
        assert transport.read(Register.ID).tolist() == [IDENTITY]
        assert transport.read(Register.BUILD).tolist() == [on_board.manifest.build_number]
        assert native.leds & 3 == 3 and native.bad_stops == 0


def test_waiting_for_less_than_a_cycle_takes_time(line: BoardPort):
    """A host that waits for what is left of its time must come to its end."""
    begun = line.now()
    line.read(0.1 / 24e6)
    assert begun < line.now() < begun + 1e-6


def test_faults_lose_nothing(on_board: OnBoard, board_build: Path, line: BoardPort):
    """The same words as on a serial port of its own, with a fault in every twentieth frame."""
    bad: BytePort = FaultyPort(line, 0.05, seed=3, longest=0.002)
    with Accelerator(LinkTransport(bad, on_board.manifest, QUICK, seed=1), on_board.manifest) as board:
        board.load_weights(board_build / "weights.bin")
        x = np.load(board_build.parents[1] / "x.npy")
        y, _ = board.run(x)
    with Accelerator.open(board_build, "golden") as golden:
        assert np.array_equal(y, golden.run(x)[0])
    assert sum(bad.counts.values()) > 3


def test_wrong_rate_is_no_device(on_board: OnBoard, compiled):
    library, spec = compiled
    line = BoardPort(NativeBoard(library, replace(spec, baud=spec.baud // 2)))
    with pytest.raises(DeviceError, match="check cable, power and bitstream"):
        LinkTransport(line, on_board.manifest, LinkTimeouts(opening=0.01, retry=0.002), seed=1)


@pytest.mark.slow
def test_serial_port(on_board: OnBoard, board_user: Path, cli, tmp_path: Path):
    """The pseudo-terminal, through the driver's own serial port, then by the C client of the examples."""
    codes, x = steps(on_board.manifest, 5)[1], board_user / "x.npy"
    build, weights = on_board.folder, on_board.folder / "weights.bin"
    with served(on_board, tmp_path) as (_, port, _):
        cli("run", build, "--backend", port, "--input", x, "--output", tmp_path / "y.npy", "--json").good()
        path = port.removeprefix("serial:")
        client = run_client(compile_client(tmp_path), path, weights, on_board.manifest, codes)
        found = read_outputs(client)
    with Accelerator.open(build, "golden") as golden:
        assert np.array_equal(np.load(tmp_path / "y.npy"), golden.run(np.load(x))[0])
    transport = open_transport("golden", build, on_board.manifest)
    with Accelerator(transport, on_board.manifest) as golden:
        golden.load_weights(weights)
        assert np.array_equal(found, transport.exchange(np.zeros(5, dtype=np.int32), codes))


@pytest.mark.slow
def test_faults_on_the_served_line(on_board: OnBoard, cli, tmp_path: Path):
    """A cable that is bad, and pulled now and then: a driver of its own process loses nothing."""
    x = tmp_path / "x.npy"
    np.save(x, np.random.default_rng(2).uniform(-1, 1, (200, 3)).astype(np.float32))
    with served(on_board, tmp_path, "--faults 0.05", "--seed 2") as (_, _, port):
        cli("run", on_board.folder, "--backend", port, "--input", x, "--output", tmp_path / "y.npy").good()
    with Accelerator.open(on_board.folder, "golden") as golden:
        assert np.array_equal(np.load(tmp_path / "y.npy"), golden.run(np.load(x))[0])


def test_one_program_at_a_time(line: BoardPort):
    with PortServer(line, terminal=False, tcp=0) as server:
        assert server.port is not None and server.path is None
        with pytest.raises(ConfigurationError, match=f"TCP port {server.port} must be free"):
            PortServer(line, tcp=server.port)
        first = socket.create_connection(("127.0.0.1", server.port))
        second = socket.create_connection(("127.0.0.1", server.port))
        second.settimeout(5)
        assert second.recv(1) == b""
        first.close()
        second.close()


def test_refused(cli, board_build: Path):
    cli("board", board_build, "--board", "ulx3s").refused("there is no board 'ulx3s'; near names: ulx3s-12f")
    cli("board", board_build, "--board", "icebreaker").refused("generate it with --family ice40")
    cli("board", board_build, "--board", "ulx3s-85f", "--no-pty").refused("give --tcp PORT")
    done = cli("board", board_build, "--board", "ulx3s-85f", "--clock", "9000", "--json")
    done.refused("must be 3.125 to 400 MHz")
    assert "400 MHz" in json.loads(done.out)["error"]
