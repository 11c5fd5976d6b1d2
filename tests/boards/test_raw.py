"""The raw mode over SPI: a board in simulation, right and broken transfers, and the time of a step."""

import ctypes
import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from support.c_client import load_client
from support.loadable_builds import NARROW, ROOMY, stacked
from support.paths import ROOT
from support.raw_transfers import input_bytes, raw_step, result_bytes, result_in, sealed
from support.served_board import running, said

from rtlstm import Accelerator, DeviceError, Manifest, Parameters, QuantizationSettings
from rtlstm.bench.shapes import SHAPES
from rtlstm.boards.top import TOP
from rtlstm.gen.builds.generate import generate_build
from rtlstm.gen.builds.on_board import OnBoard
from rtlstm.host.link.engine import LinkTimeouts
from rtlstm.host.link.framing import Deframer, Frame, encode_values
from rtlstm.host.link.link_transport import LinkTransport
from rtlstm.host.link.raw import RawLink, UdpExchange
from rtlstm.host.transport import Transport, open_transport
from rtlstm.sim.cocotb_run import Design, run_tests
from rtlstm.sim.simulated_board import BoardPort, NativeBoard
from rtlstm.sim.simulated_ports import SIMULATION, board_models, simulation_sources
from rtlstm.spec.fixed import IntArray
from rtlstm.spec.link import RESET_STATE, SUPPRESS, ErrorCode, FrameType, LinkReport, value_bytes
from rtlstm.spec.registers import Command, Region, Register

pytestmark = pytest.mark.rtl

QUICK = LinkTimeouts(retry=0.005, least_retry=0.001, most_retry=0.01)
SPARE = 30
"""Bytes behind a step in which a small core runs it."""


@pytest.fixture(scope="module")
def on_board(board_build: Path) -> OnBoard:
    return OnBoard.create(board_build, "ulx3s-12f", 100, spi=True, raw=True)


@pytest.fixture
def framed(on_board: OnBoard, native: NativeBoard) -> Iterator[LinkTransport]:
    """The session that has loaded the weights."""
    with LinkTransport(BoardPort(native), on_board.manifest, QUICK, seed=1) as transport:
        Accelerator(transport, on_board.manifest).load_weights(on_board.folder / "weights.bin")
        transport.flush()
        yield transport


@pytest.fixture
def golden(on_board: OnBoard) -> Transport:
    transport = open_transport("golden", on_board.folder, on_board.manifest)
    Accelerator(transport, on_board.manifest).load_weights(on_board.folder / "weights.bin")
    return transport


def drawn(manifest: Manifest, steps: int, seed: int) -> IntArray:
    most = 1 << (manifest.numerics.data_bits - 1)
    return np.random.default_rng(seed).integers(-most, most, (steps, manifest.program.inputs))


def run(transport: Transport, x: IntArray) -> list[list[int]]:
    return transport.exchange(np.zeros(len(x), dtype=np.int32), x).tolist()


def dropped(native: NativeBoard) -> int:
    """How many frames and transfers the board has dropped: it says so to any host."""
    native.send(b"\0" + Frame(FrameType.RESUME, 0, 7, 0).to_wire())
    deframer = Deframer()
    for _ in range(100):
        for frame in deframer.feed(native.run(2000)):
            return LinkReport.from_bytes(frame.payload).dropped
    raise AssertionError("the board does not answer")


@pytest.mark.parametrize("spare", [0, SPARE])
def test_steps_are_the_golden_models(
    on_board: OnBoard, native: NativeBoard, framed: LinkTransport, golden: Transport, spare: int
):
    """With the result in the step's transfer or in another; the state is one with that of frames."""
    x, link = drawn(on_board.manifest, 60, spare), RawLink(on_board.manifest, native.transfer, spare)
    assert [link.step(row).tolist() for row in x[:20]] == run(golden, x[:20])
    assert run(framed, x[20:40]) == run(golden, x[20:40])
    assert [link.step(row).tolist() for row in x[40:]] == run(golden, x[40:])
    found = link.step(x[0], reset=True)
    golden.write(Register.STREAM, [0])
    golden.write(Register.COMMAND, [Command.RESET])
    assert found.tolist() == run(golden, x[:1])[0]
    assert dropped(native) == 0


def test_suppressed_steps_and_unknown_streams(
    on_board: OnBoard, native: NativeBoard, framed: LinkTransport, golden: Transport
):
    x = drawn(on_board.manifest, 3, 5)
    first = encode_values(x[:1], value_bytes(on_board.manifest.numerics.data_bits)).tobytes()
    sent = raw_step(first, SUPPRESS)
    assert result_in(native.transfer(sent + bytes(SPARE))[len(sent) :]) == sealed(bytes([FrameType.DONE]))
    # As long as a step, of a stream that is not there: its state is not reset, nor is that of stream 0.
    sent = raw_step(first, on_board.manifest.parameters.streams | RESET_STATE)
    refused = sealed(bytes([FrameType.ERROR, ErrorCode.STREAM]))
    assert result_in(native.transfer(sent + bytes(SPARE))[len(sent) :]) == refused
    link = RawLink(on_board.manifest, native.transfer, SPARE)
    assert [link.step(row).tolist() for row in x[1:]] == run(golden, x)[1:]
    assert dropped(native) == 0


def test_broken_transfers_leave_both_modes_working(
    on_board: OnBoard, native: NativeBoard, framed: LinkTransport, golden: Transport
):
    """Whatever breaks is dropped and counted, and does not touch the state."""
    rng, manifest = random.Random(3), on_board.manifest
    x, link = drawn(manifest, 80, 1), RawLink(manifest, native.transfer, SPARE)
    step, lost = raw_step(bytes(input_bytes(manifest))), 0
    for number, row in enumerate(x):
        wrong = bytearray(step)
        match number % 4:
            case 0:
                native.transfer(step, rng.randrange(8, 8 * len(step)))
            case 1:
                wrong[rng.randrange(len(step))] ^= 1 << rng.randrange(8)
                native.transfer(bytes(wrong) if wrong[0] else bytes([7, *wrong]))
            case 2:
                native.transfer(bytes([rng.randrange(2, 256)]) + rng.randbytes(rng.randrange(40)))
            case 3:
                # While a step is in work: the first one counts.
                native.transfer(raw_step(bytes(input_bytes(manifest)), RESET_STATE))
                native.transfer(raw_step(b"\1" * input_bytes(manifest)))
                golden.write(Register.STREAM, [0])
                golden.write(Register.COMMAND, [Command.RESET])
                run(golden, np.zeros((1, manifest.program.inputs), dtype=np.int64))
        lost += 1
        found = link.step(row) if number % 3 else framed.exchange([0], row[None])[0]
        assert found.tolist() == run(golden, row[None])[0], number
    # One that is broken off counts when the next one begins.
    native.transfer(bytes(1))
    assert dropped(native) == lost


def test_a_result_is_offered_until_the_next_step(
    on_board: OnBoard, native: NativeBoard, framed: LinkTransport
):
    """From its begin in each transfer, whatever the host has read in the one before."""
    size = result_bytes(on_board.manifest)
    sent = raw_step(bytes(input_bytes(on_board.manifest)), RESET_STATE)
    result = result_in(native.transfer(sent + bytes(SPARE + size))[len(sent) :])
    assert len(result) == size and result[0] == FrameType.DONE
    for bits in range(1, 8 * (size + 2)):
        native.transfer(bytes(size + 2), bits)
        assert result_in(native.transfer(bytes(size + 2))[1:]) == result
    assert dropped(native) == 0


@pytest.mark.slow
def test_a_step_of_12_bytes_takes_less_than_12_us(tmp_path: Path):
    """From the selection to the result's last bit, with 25 MHz, for toptag with 16 bits."""
    settings, parameters = QuantizationSettings(), Parameters(family="ecp5", lanes=16, macs=4)
    generate_build(SHAPES["toptag"].network(), tmp_path, settings=settings, parameters=parameters)
    on_board = OnBoard.create(tmp_path, "ulx3s-85f", 100, spi=True, raw=True)
    assert input_bytes(on_board.manifest) == 12
    size, sent = result_bytes(on_board.manifest), raw_step(bytes(range(12)))
    board = on_board.simulate()
    with LinkTransport(BoardPort(board), on_board.manifest, QUICK, seed=1) as transport:
        Accelerator(transport, on_board.manifest).load_weights(tmp_path / "weights.bin")
        transport.flush()
        found = (
            board.transfer_seconds
            for spare in range(200)
            if result_in(board.transfer(sent + bytes(spare + size))[len(sent) :])
        )
        seconds = next(found)
        print(f"{1e6 * seconds:.2f} us, {on_board.manifest.cycles.step_latency_cycles} cycles of the core")
        assert seconds < 12e-6


@pytest.mark.slow
def test_a_device_without_a_program_drops_steps(tmp_path: Path):
    """A loadable one counts them, is loaded as if there had been none, and runs the next ones."""
    network, parameters = stacked(3, 4), Parameters(family="ecp5")
    generate_build(network, tmp_path, settings=NARROW, parameters=parameters, capacities=ROOMY)
    on_board = OnBoard.create(tmp_path, "ulx3s-12f", 100, spi=True, raw=True)
    manifest, x = on_board.manifest, drawn(on_board.manifest, 5, 7)
    board = on_board.simulate()
    link = RawLink(manifest, board.transfer, SPARE, seconds=0.1)
    # The board comes out of its reset.
    board.run(10_000)
    assert dropped(board) == 0
    with pytest.raises(DeviceError, match="no whole result came"):
        link.step(x[0])
    board.transfer(raw_step(b"", RESET_STATE))
    assert dropped(board) == 2
    golden = open_transport("golden", tmp_path, manifest)
    Accelerator(golden, manifest).load_weights(tmp_path / "weights.bin")
    with LinkTransport(BoardPort(board), manifest, QUICK, seed=1) as transport:
        Accelerator(transport, manifest).load_weights(tmp_path / "weights.bin")
        transport.flush()
        assert [link.step(row).tolist() for row in x] == run(golden, x)


class Meddler(BoardPort):
    """Frames for a board; while they go and come, there are raw steps, too."""

    def __init__(self, board: NativeBoard, step: bytes, spare: int) -> None:
        super().__init__(board)
        self._step, self._spare, self._rng = step, spare, random.Random(spare)
        self.meddles, self.answered = True, 0

    def read(self, seconds: float) -> bytes:
        if not self.meddles:
            return super().read(seconds)
        came = self._board.run(self._rng.randrange(1, 4000))
        result = self._board.transfer(self._step + bytes(self._spare))
        self.answered += result_in(result[len(self._step) :])[:1] == bytes([FrameType.DONE])
        return came


@pytest.mark.slow
@pytest.mark.parametrize(("clock", "spare"), [(7, 4 * SPARE), (100, SPARE)])
def test_a_program_is_loaded_while_steps_come(tmp_path: Path, clock: int, spare: int):
    """They are dropped or refused while there is no whole program, and neither mode stops for it."""
    network, parameters = stacked(3, 4), Parameters(family="ecp5", streams=2)
    generate_build(network, tmp_path, settings=NARROW, parameters=parameters, capacities=ROOMY)
    on_board = OnBoard.create(tmp_path, "ulx3s-12f", clock, spi=True, raw=True)
    manifest, x = on_board.manifest, drawn(on_board.manifest, 5, 7)
    board, golden = on_board.simulate(), open_transport("golden", tmp_path, manifest)
    port = Meddler(board, raw_step(bytes(input_bytes(manifest)), RESET_STATE), spare)
    with LinkTransport(port, manifest, QUICK, seed=1) as transport:
        accelerator = Accelerator(transport, manifest)
        for _ in range(2):
            accelerator.load_weights(tmp_path / "weights.bin", verify=True)
        # Their resets of stream 0 leave the session's choice as it was.
        transport.write(Register.STREAM, [1])
        transport.flush()
        port.read(0)
        assert transport.read(Register.STREAM).tolist() == [1]
        # Half a program, with nothing of a step in work.
        accelerator.device.write_rows(Region.PROGRAM, 0, 0, np.zeros(4, dtype=np.int64))
        transport.flush()
        port.meddles = False
        link = RawLink(manifest, board.transfer, spare, seconds=0.1)
        before = dropped(board)
        # An earlier step's result, which may wait, is no answer.
        with pytest.raises(DeviceError, match="no whole result came"):
            link.step(x[0])
        assert dropped(board) == before + 1
        with pytest.raises(DeviceError, match="does not hold its network"):
            transport.exchange(np.zeros(1, dtype=np.int32), x[:1])
        accelerator.load_weights(tmp_path / "weights.bin")
        transport.flush()
        Accelerator(golden, manifest).load_weights(tmp_path / "weights.bin")
        assert [link.step(row).tolist() for row in x] == run(golden, x)
    assert before > 20 and port.answered > 10


@pytest.mark.slow
def test_the_c_clients_raw_steps(
    on_board: OnBoard, native: NativeBoard, framed: LinkTransport, golden: Transport, tmp_path: Path
):
    client, manifest = load_client(tmp_path), on_board.manifest

    @ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.c_uint8), ctypes.c_size_t)
    def exchange(_, data, count) -> int:
        ctypes.memmove(data, native.transfer(ctypes.string_at(data, count)), count)
        return 0

    device, x = ctypes.create_string_buffer(8192), drawn(manifest, 40, 2).astype(np.int32)
    y = (ctypes.c_int32 * manifest.program.outputs)()
    bits, size = (manifest.numerics.data_bits, manifest.numerics.output_bits), manifest.program.inputs

    def step(stream: int, row, reset: bool) -> int:
        row = row.ctypes.data_as(ctypes.c_void_p)
        return client.rtlstm_raw_step(device, stream, reset, row, size, bits[0], y, len(y), bits[1])

    assert client.rtlstm_open_raw_spi(device, exchange, None, ctypes.c_size_t(257)) != 0
    found = []
    for number, row in enumerate(x):
        if number % 20 == 0:
            spare = ctypes.c_size_t(number and SPARE)
            assert client.rtlstm_open_raw_spi(device, exchange, None, spare) == 0
        assert step(0, row, number == 0) == 0, device.raw
        found.append(list(y))
    assert found == run(golden, x)
    assert step(manifest.parameters.streams, x[0], False) != 0 and b"no such stream" in device.raw


@pytest.mark.slow
def test_broken_transfers_at_the_pins(on_board: OnBoard, compiled, tmp_path: Path):
    """Another project's master: pauses, transfers that are broken off, glitches, and other modes."""
    name, family = on_board.manifest.name, on_board.manifest.parameters.family
    core = simulation_sources(on_board.folder / "rtl" / f"{name}.v", family)
    models = board_models(on_board.board.chosen.device.family)
    sources = (on_board.output_folder / "top.v", *core, *models)
    design = Design(top=TOP, sources=sources, defines={SIMULATION: 1})
    bench = ROOT / "tests" / "support" / "testbenches" / "spi_testbench.py"
    found = run_tests(bench, on_board.folder, design, "verilator", tmp_path)
    assert len(found.outcomes) == 4 and found.passed, found.outcomes


def test_refused(cli, board_build: Path):
    done = cli("bitstream", board_build, "--board", "ulx3s-12f", "--raw")
    done.refused("the raw mode is for SPI or Ethernet; give --spi or --ip, or no --raw")
    raw = ("board", board_build, "--board", "ulx3s-12f", "--spi", "--raw")
    cli(*raw, "--tcp", 0).refused("--udp PORT for raw transfers")
    cli(*raw, "--udp", 0).refused("--tcp PORT for frames")
    cli(*raw, "--tcp", 0, "--udp", 0, "--faults", 0.1).refused("without --faults")


@pytest.mark.slow
def test_raw_transfers_served_at_a_port(
    on_board: OnBoard, golden: Transport, board_user: Path, tmp_path: Path
):
    """Frames at a TCP port load the weights; then each datagram is a transfer."""
    x = drawn(on_board.manifest, 10, 3)
    command = f"rtlstm board {on_board.folder} --board ulx3s-12f --spi --raw --clock 100 --tcp 0 --udp 0"
    with running(command, tmp_path) as process:
        port = said(process, r"tcp:localhost:(\d+)")
        other = said(process, r"UDP port (\d+) of localhost")
        with Accelerator.open(on_board.folder, f"tcp:localhost:{port}"):
            pass
        with UdpExchange("localhost", int(other), 60.0) as exchange:
            link = RawLink(on_board.manifest, exchange, SPARE, seconds=60.0)
            assert [link.step(row).tolist() for row in x] == run(golden, x)
