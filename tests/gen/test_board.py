"""``rtlstm board``: the README's three commands, and a simulated board's line, LEDs and faults."""

import json
import re
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
from c_client import compile_client, read_outputs, run_client
from small_builds import tensors

from rtlstm.gen.on_board import OnBoard
from rtlstm.host import Accelerator
from rtlstm.host.link.lines import Line
from rtlstm.host.link.timing import Patience
from rtlstm.host.link.transport import LinkTransport
from rtlstm.host.transport import open_transport
from rtlstm.sim.board import NativeBoard
from rtlstm.sim.board_line import BoardLine
from rtlstm.sim.faults import FaultyLine
from rtlstm.sim.line_server import LineServer
from rtlstm.spec.errors import ConfigurationError, DeviceError
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.registers import IDENTITY, Register

README = Path(__file__).parents[2] / "README.md"
PORT = "5000"
QUICK = Patience(retry=0.003, least_retry=0.001, most_retry=0.01)
"""In the board's own seconds, of which each costs a simulator half a minute."""


def commands() -> list[str]:
    """The README's three, in its section on boards."""
    section = README.read_text().partition("\n## On a board\n")[2].partition("\n## ")[0]
    block = re.search(r"^```sh\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
    assert block is not None
    return block[1].splitlines()


def start(command: str, folder: Path, **options: object) -> subprocess.Popen[str]:
    program = [sys.executable, "-c", "from rtlstm.gen.cli import main; main()", *shlex.split(command)[1:]]
    return subprocess.Popen(
        program, cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options
    )


def finish(process: subprocess.Popen[str]) -> None:
    printed, _ = process.communicate(timeout=300)
    assert process.returncode == 0, printed


def end(process: subprocess.Popen[str], number: signal.Signals) -> None:
    process.send_signal(number)
    finish(process)


def said(process: subprocess.Popen[str], pattern: str) -> str:
    """Read what a process prints up to a line with this pattern."""
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if found := re.search(pattern, line):
            return found[1]
    raise AssertionError(f"{pattern} was not printed, but {''.join(lines)}")


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """What a new user has: a model and some inputs; then the README's first command."""
    folder = tmp_path_factory.mktemp("user")
    state = {name: value for name, value in tensors().items() if name.startswith("lstm.")}
    safetensors.numpy.save_file(state, folder / "model.safetensors")
    np.save(folder / "x.npy", np.random.default_rng(0).uniform(-1, 1, (20, 3)).astype(np.float32))
    finish(start(commands()[0], folder))
    return folder


@pytest.fixture(scope="module")
def build(folder: Path) -> Path:
    return folder / shlex.split(commands()[0])[4]


def test_three_commands(folder: Path, build: Path):
    """From a model file to answers, as the README has it; only the TCP port is one that is free."""
    generate, board, run = commands()
    assert generate.startswith("rtlstm generate model.safetensors ")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    with start(board.replace(PORT, port), folder) as server:
        try:
            assert said(server, r"tcp:localhost:(\d+)") == port
            finish(start(run.replace(PORT, port), folder))
        finally:
            end(server, signal.SIGINT)
    with Accelerator.open(build, "golden") as golden:
        expected, _ = golden.run(np.load(folder / "x.npy"))
    assert np.array_equal(np.load(folder / "y.npy"), expected)


@pytest.fixture(scope="module")
def on_board(build: Path) -> OnBoard:
    # As the README's: the library is compiled once.
    options = shlex.split(commands()[1])
    clock = float(options[options.index("--clock") + 1]) if "--clock" in options else None
    return OnBoard.create(build, options[options.index("--board") + 1], clock)


@pytest.fixture
def line(on_board: OnBoard) -> Iterator[BoardLine]:
    line = BoardLine(on_board.simulate())
    yield line
    line.close()


def steps(manifest: Manifest, count: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(5)
    top = 1 << manifest.numerics.data_bits - 1
    x = rng.integers(-top, top, (count, manifest.program.inputs))
    return np.zeros(count, dtype=np.int32), x.astype(np.int32)


def test_clock_reset_and_leds(on_board: OnBoard, line: BoardLine):
    native = line._board
    assert native.clock_hz == pytest.approx(float(on_board.line.clock_hz))
    # Out of reset it waits, dark but for the blinking light, until a host comes.
    assert native.leds & 6 == 0
    with LinkTransport(line, on_board.manifest, seed=1) as transport:
        assert transport.read(Register.ID).tolist() == [IDENTITY]
        assert transport.read(Register.BUILD).tolist() == [on_board.manifest.build_number]
        assert native.leds & 3 == 3
        assert native.bad_stops == 0


def test_waiting_for_less_than_a_cycle_takes_time(line: BoardLine):
    """A host that waits for what is left of its time must come to its end."""
    begun = line.now()
    line.read(0.1 / 24e6)
    assert begun < line.now() < begun + 1e-6


def test_faults_lose_nothing(on_board: OnBoard, build: Path, line: BoardLine):
    """The same words as on a line of its own, with a fault in every twentieth frame."""
    bad: Line = FaultyLine(line, 0.05, seed=3, longest=0.002)
    with Accelerator(LinkTransport(bad, on_board.manifest, QUICK, seed=1), on_board.manifest) as board:
        board.load_weights(build / "weights.bin")
        x = np.load(build.parents[1] / "x.npy")
        y, _ = board.run(x)
    with Accelerator.open(build, "golden") as golden:
        assert np.array_equal(y, golden.run(x)[0])
    assert sum(bad.counts.values()) > 3


def test_wrong_rate_is_no_device(on_board: OnBoard):
    library, shape = on_board.compile()
    line = BoardLine(NativeBoard(library, replace(shape, baud=shape.baud // 2)))
    with pytest.raises(DeviceError, match="check cable, power and bitstream"):
        LinkTransport(line, on_board.manifest, Patience(opening=0.01, retry=0.002), seed=1)


@pytest.mark.slow
def test_serial_port(on_board: OnBoard, build: Path, cli, tmp_path: Path):
    """The pseudo-terminal, through the driver's own serial line, then by the C client of the examples."""
    codes = steps(on_board.manifest, 5)[1]
    x = build.parents[1] / "x.npy"
    command = f"rtlstm board {build} --board {on_board.board.name} --clock {on_board.requested_mhz}"
    with start(command, tmp_path) as process:
        try:
            port = said(process, r"(serial:\S+)")
            done = cli(
                "run", build, "--backend", port, "--input", x, "--output", tmp_path / "y.npy", "--json"
            )
            assert done.code == 0, done.err
            path, weights = port.removeprefix("serial:"), build / "weights.bin"
            client = run_client(compile_client(tmp_path), path, weights, on_board.manifest, codes)
            found = read_outputs(client)
        finally:
            end(process, signal.SIGTERM)
    with Accelerator.open(build, "golden") as golden:
        assert np.array_equal(np.load(tmp_path / "y.npy"), golden.run(np.load(x))[0])
    transport = open_transport("golden", build, on_board.manifest)
    with Accelerator(transport, on_board.manifest) as golden:
        golden.load_weights(weights)
        assert np.array_equal(found, transport.exchange(np.zeros(5, dtype=np.int32), codes))


@pytest.mark.slow
def test_faults_on_the_served_line(on_board: OnBoard, build: Path, cli, tmp_path: Path):
    """A cable that is bad, and pulled now and then: a driver of its own process loses nothing."""
    x = tmp_path / "x.npy"
    np.save(x, np.random.default_rng(2).uniform(-1, 1, (200, 3)).astype(np.float32))
    command = f"rtlstm board {build} --board {on_board.board.name} --clock {on_board.requested_mhz} --tcp 0"
    with start(f"{command} --faults 0.05 --seed 2", tmp_path) as process:
        try:
            port = said(process, r"(tcp:\S+)")
            done = cli("run", build, "--backend", port, "--input", x, "--output", tmp_path / "y.npy")
            assert done.code == 0, done.err
        finally:
            end(process, signal.SIGTERM)
    with Accelerator.open(build, "golden") as golden:
        assert np.array_equal(np.load(tmp_path / "y.npy"), golden.run(np.load(x))[0])


def test_one_program_at_a_time(line: BoardLine):
    with LineServer(line, terminal=False, tcp=0) as server:
        assert server.port is not None and server.path is None
        with pytest.raises(ConfigurationError, match=f"TCP port {server.port} must be free"):
            LineServer(line, tcp=server.port)
        first = socket.create_connection(("127.0.0.1", server.port))
        second = socket.create_connection(("127.0.0.1", server.port))
        second.settimeout(5)
        assert second.recv(1) == b""
        first.close()
        second.close()


def test_refused(cli, build: Path):
    cli("board", build, "--board", "ulx3s").refused("there is no board 'ulx3s'; near names: ulx3s-")
    cli("board", build, "--board", "icebreaker").refused("generate it with --family ice40")
    cli("board", build, "--board", "ulx3s-85f", "--no-pty").refused("give --tcp PORT")
    done = cli("board", build, "--board", "ulx3s-85f", "--clock", "900", "--json")
    done.refused("must be 3.125 to 400 MHz")
    assert "400 MHz" in json.loads(done.out)["error"]
