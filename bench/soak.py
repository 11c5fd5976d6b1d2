"""The link's efficiency over a simulated serial port, boards beside the processor, and steps with faults.

For ``rtlstm bench --boards`` the times of boards are those of :mod:`rtlstm.boards.wire`. The software's
share is measured against simulated boards' sockets, the processor's time of a step by the engines of the
other tables.

For ``rtlstm bench --link`` the driver's side of the protocol talks to the reference device with the golden
model behind it, with simulated time. Connections with faults go to it, too, or to a simulated board.

Every step must run once, and all its bits must be right.
"""

import contextlib
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, Self

import numpy as np
from pydantic import computed_field

from rtlstm.bench.hardware import build_shape
from rtlstm.bench.jobs import Journal
from rtlstm.bench.records import CpuTime, Machine
from rtlstm.bench.shapes import Floats, Shape, find_shapes
from rtlstm.bench.worker import describe_machine, start
from rtlstm.boards.board import Link
from rtlstm.boards.catalogue import find_board, usable_boards
from rtlstm.boards.wire import LINK_COSTS
from rtlstm.gen.builds.generate import BuildRequest, generate_build
from rtlstm.gen.builds.on_board import BoardOffer, OnBoard, compare_boards, mark_cheapest
from rtlstm.gen.frontends import read_if_needed
from rtlstm.gen.quantise.calibration import Calibration
from rtlstm.gen.quantise.quantiser import quantise
from rtlstm.host import Accelerator, pack
from rtlstm.host.link.byte_ports import BytePort
from rtlstm.host.link.engine import LinkTimeouts
from rtlstm.host.link.link_transport import LinkTransport
from rtlstm.sim.faults import FaultyPort
from rtlstm.sim.golden import Golden
from rtlstm.sim.golden_device import GoldenDevice
from rtlstm.sim.link_device import DEVICE_LIMITS, DeviceEngine
from rtlstm.sim.link_port import SimulatedPort
from rtlstm.sim.simulated_board import BoardPort
from rtlstm.spec.errors import ToolError
from rtlstm.spec.fixed import IntArray
from rtlstm.spec.link import Limits
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.parameters import Parameters
from rtlstm.spec.progress import Progress, counted, tell
from rtlstm.spec.record import Record, filled
from rtlstm.tools.work import Workers

LEAST_SHARE = 0.85
"""Least share of payload in all bytes, with payloads of 256 bytes."""
LEAST_USE = 0.90
"""Least throughput, relative to back-to-back frames."""

BAUD = 3_000_000
STREAMS = 64
_USB_SECONDS = 0.001
"""Seconds that a USB adapter adds, each way."""


class Efficiency(Record):
    """Steps of one build over a connection without faults."""

    name: str
    payload_bytes: int
    """Input bytes of a step."""
    steps: int
    payload_share: float
    """Share of input bytes in all bytes sent to the device."""
    steps_per_second: float
    limit_per_second: float
    """Steps per second if the same frames were sent back to back."""
    port_use: float
    """Ratio of the two: throughput relative to back-to-back frames."""
    latency_seconds: float
    """Latency of the connection, each way."""
    processor_us_per_step: float
    """Processor time per step of driver, simulated port and golden model together."""

    @property
    def passed(self) -> bool:
        """Whether both shares reach their limits."""
        return self.port_use >= LEAST_USE and (self.payload_bytes < 256 or self.payload_share >= LEAST_SHARE)


class LinkSetup:
    """A small network with random weights, and its build for 64 streams."""

    def __init__(self, inputs: int, units: int, bits: int) -> None:
        self._shape = Shape(
            name="link", origin="", inputs=inputs, units=(units,), steps=1, bits=bits, family="generic"
        )
        self.network = quantise(self._shape.network(), self._shape.settings)
        self._parameters = Parameters(lanes=4, macs=4, streams=STREAMS)
        self.manifest = Manifest.of("link", self.network, self._parameters)

    def device(self, limits: Limits = DEVICE_LIMITS) -> DeviceEngine:
        """Return the reference device, with the golden model behind it."""
        return DeviceEngine(GoldenDevice(Path(), self.manifest), self.manifest, limits)

    def write(self, folder: Path) -> Path:
        """Write the build."""
        found = generate_build(
            self._shape.network(),
            folder,
            name="link",
            settings=self._shape.settings,
            parameters=self._parameters,
        )
        assert found.build_hash == self.manifest.build_hash
        return folder

    def open(self, port: BytePort, seed: int, timeouts: LinkTimeouts | None = None) -> LinkTransport:
        """Open the link, and load the weights over it."""
        transport = LinkTransport(port, self.manifest, timeouts, seed)
        Accelerator(transport, self.manifest).load_weights(pack(self.network, self.manifest))
        return transport

    def inputs(self, rng: np.random.Generator, *lead: int) -> IntArray:
        """Random inputs."""
        format = self.network.numerics.input
        shape = (*lead, self.network.inputs)
        return rng.integers(format.lowest, format.maximum, shape, endpoint=True)


def measure_efficiency(quick: bool = False) -> Iterator[Efficiency]:
    """Measure steps of 256 bytes and of fewer, with and without the latency of a USB adapter."""
    for name, inputs, bits in (("256 inputs of 8 bits", 256, 8), ("6 inputs of 16 bits", 6, 16)):
        for latency in (0.0, _USB_SECONDS):
            payload = (24 if quick else 512) << 10
            yield _measure(name, inputs, bits, latency, payload // (inputs * bits // 8))


def _measure(name: str, inputs: int, bits: int, latency: float, steps: int) -> Efficiency:
    setup = LinkSetup(inputs, 4, bits)
    port = SimulatedPort(setup.device(), BAUD, latency)
    with setup.open(port, 1) as transport:
        rng = np.random.default_rng(1)
        streams, x = rng.integers(0, STREAMS, steps), setup.inputs(rng, steps)
        sent, begun, carried = transport.statistics.bytes_sent, port.now(), port.busy_seconds[0]
        started = time.process_time()
        transport.exchange(streams, x)
        spent = time.process_time() - started
        sent, carried = transport.statistics.bytes_sent - sent, port.busy_seconds[0] - carried
        payload = inputs * bits // 8
        return Efficiency(
            name=name,
            payload_bytes=payload,
            steps=steps,
            payload_share=steps * payload / sent,
            steps_per_second=steps / (port.now() - begun),
            limit_per_second=steps / carried,
            port_use=carried / (port.now() - begun),
            latency_seconds=latency,
            processor_us_per_step=1e6 * spent / steps,
        )


_BLOCK = 64
"""Steps of each stream between two comparisons."""
_BOARD_BLOCK = 4

_CLOCK_MHZ = 12.0
"""Four cycles per bit at 3 Mbaud: the fewest, so that a simulated cycle transfers most."""
_BOARD_TIMEOUTS = LinkTimeouts(retry=0.01, least_retry=0.002, most_retry=0.02)
"""Timeouts in the board's own seconds, each of which takes the simulator half a minute."""


_PIECE = 128_000
"""Steps of a session, where many are run side by side."""


class Soak(Record):
    """Steps over a connection with faults, each compared with the golden model."""

    device: str
    """Name of the device."""
    steps: int
    rate: float
    """Faults per frame, each way."""
    faults: dict[str, int]
    wrong: int
    """Steps whose output differs from the golden model's."""
    executed: int
    """Steps the device has run: equal to ``steps`` if none was lost or run twice."""
    requests: int
    repeated: int
    """Requests sent once more."""
    responses_again: int
    """Responses that came again or too early."""
    damaged: int
    """Frames damaged on the way to the host."""
    dropped: int
    """Frames that the device dropped."""
    resumed: int
    reopened: int
    port_seconds: float
    wall_seconds: float

    @property
    def passed(self) -> bool:
        """Whether no step was lost, run twice or wrong."""
        return not self.wrong and self.executed == self.steps

    @classmethod
    def together(cls, parts: Sequence[Self]) -> Self:
        """Return the sums of several runs on devices of one kind."""
        faults = sum((Counter(part.faults) for part in parts), Counter[str]())
        sums = {
            name: sum(getattr(part, name) for part in parts)
            for name in cls.model_fields
            if name not in ("device", "rate", "faults")
        }
        return cls(device=parts[0].device, rate=parts[0].rate, faults=faults, **sums)


@dataclass(frozen=True)
class _Remote:
    """A device behind a port, and how to use it."""

    name: str
    setup: LinkSetup
    port: BytePort
    block: int
    """Steps of each stream that are sent at once."""
    longest: float
    """Seconds of the longest pause."""
    timeouts: LinkTimeouts | None = None
    one_by_one: bool = False
    """Whether to send steps one by one, so that each has its own frame where several would fit."""


def soak(steps: int, rate: float = 0.01, seed: int = 1, progress: Progress | None = None) -> Soak:
    """Run steps of 64 streams in random order over a connection with faults, a frame each.

    ``steps`` is rounded up to a multiple of 64. Every output is compared with the golden model's.
    """
    setup = LinkSetup(28, 3, 8)
    limits = Limits(body=64, request_bytes=512, response_bytes=512, frames=16)
    port = SimulatedPort(setup.device(limits), BAUD)
    return _soak(_Remote("the reference device", setup, port, _BLOCK, 0.01), steps, rate, seed, progress)


def soak_pieces(steps: int, workers: Workers, journal: Journal, progress: Progress | None = None) -> Soak:
    """Run as many steps as :func:`soak` in sessions of their own with other faults, spread over workers."""
    jobs = {
        f"soak {index}": (index + 1, min(_PIECE, steps - done))
        for index, done in enumerate(range(0, steps, _PIECE))
    }
    found = {}
    for name, result in journal.run(workers, _soak_piece, None, jobs):
        found[name] = Soak(**result)
        tell(progress, "sessions over connections with faults", len(found), len(jobs))
    return Soak.together([found[name] for name in jobs])


def _soak_piece(_: None, job: tuple[int, int]) -> dict[str, Any]:
    seed, steps = job
    return soak(steps, seed=seed).model_dump(mode="json")


def soak_board(
    board: str, steps: int, rate: float = 0.01, seed: int = 1, progress: Progress | None = None
) -> Soak:
    """Run steps as :func:`soak` over the serial port of a board's top level in simulation.

    Raises ConfigurationError if there is no such board. Raises ToolError if Verilator or a C++ compiler is
    missing or fails.
    """
    find_board(board)
    setup = LinkSetup(6, 3, 8)
    with TemporaryDirectory() as folder:
        build = setup.write(Path(folder) / "build")
        top = OnBoard.create(build, board, _CLOCK_MHZ)
        port = BoardPort(top.simulate(seed, progress))
    name = f"{top.board.title}, simulated at {top.timing.clock_mhz:g} MHz and {top.timing.bit_hz:,} baud"
    remote = _Remote(name, setup, port, _BOARD_BLOCK, 0.002, _BOARD_TIMEOUTS, one_by_one=True)
    return _soak(remote, steps, rate, seed, progress)


def _soak(remote: _Remote, steps: int, rate: float, seed: int, progress: Progress | None) -> Soak:
    setup, port = remote.setup, FaultyPort(remote.port, rate, seed, longest=remote.longest)
    started, wrong, done = time.perf_counter(), 0, 0
    with contextlib.closing(remote.port):
        transport = setup.open(port, seed, remote.timeouts)
        exchange = partial(_one_by_one, transport) if remote.one_by_one else transport.exchange
        golden, state = Golden(setup.network), None
        for streams, turn, x in _rounds(setup, -(-steps // STREAMS), remote.block, seed):
            y = exchange(streams, x[turn, streams])
            expected = golden.run(x, state)
            state = (expected.h, expected.c)
            wrong += int((y != expected.y[turn, streams]).any(axis=1).sum())
            done += len(streams)
            tell(progress, "steps over a connection with faults", done, max(done, steps))
        found, report = transport.statistics, transport.report
        # A device reports its number of steps only when a session begins, so a second session is opened.
        after = LinkTransport(remote.port, setup.manifest, remote.timeouts, seed + 1).report
        return filled(
            Soak,
            found,
            device=remote.name,
            steps=done,
            rate=rate,
            faults={fault.value: count for fault, count in sorted(port.counts.items(), key=str)},
            wrong=wrong,
            executed=after.steps - report.steps,
            responses_again=found.surplus,
            dropped=after.dropped - report.dropped,
            port_seconds=port.now(),
            wall_seconds=time.perf_counter() - started,
        )


def _rounds(
    setup: LinkSetup, turns: int, block: int, seed: int
) -> Iterator[tuple[IntArray, IntArray, IntArray]]:
    """Yield ``turns`` steps of each stream, in blocks; the order of the streams is random.

    Streams and turns are ``(steps,)``, the inputs ``(turns, streams, inputs)``.
    """
    rng = np.random.default_rng(seed)
    for begin in range(0, turns, block):
        count = min(block, turns - begin)
        x = setup.inputs(rng, count, STREAMS)
        streams = rng.permutation(np.repeat(np.arange(STREAMS), count))
        turn = np.empty_like(streams)
        turn[np.argsort(streams, kind="stable")] = np.tile(np.arange(count), STREAMS)
        yield streams, turn, x


def _one_by_one(transport: LinkTransport, streams: IntArray, x: IntArray) -> IntArray:
    """Run steps, a frame each; as many are sent at once as the device has room for."""
    finish = [transport.begin(streams[at : at + 1], x[at : at + 1]) for at in range(len(streams))]
    return np.concatenate([each() for each in finish])


NETWORKS: Final = ("toptag", "stac_a", "vad128")
ENGINES: Final = ("c++ int8", "onnxruntime")
_CALIBRATION = 64
"""Steps of the inputs that set the formats."""
_SERVED: Final[Mapping[Link, tuple[str, ...]]] = {
    "serial": ("--board", "ulx3s-85f", "--no-pty", "--tcp", "0"),
    "spi": ("--board", "ulx3s-85f", "--spi", "--tcp", "0"),
    "ethernet": ("--board", "colorlight-i5", "--ip", "192.168.1.50", "--udp", "0"),
}
"""How a simulated board with each link is reached."""
_BOARD_MHZ = 25
"""A slow core is simulated faster; the driver does not notice."""
_SMALL = Shape(name="driven", origin="", inputs=6, units=(4,), steps=1, macs=4, bits=8, family="ecp5")


class Software(Record):
    """The driver's processor time of a step over the socket of a simulated board.

    That of a link that is not Ethernet is measured at a TCP socket, so it is the same for all: the larger.
    """

    link: Link
    alone_us: float
    batch_us: float
    """For a step alone, and for one of many."""


class NetworkBoards(Record):
    """A network on each board, and on this machine's processor."""

    name: str
    boards: tuple[BoardOffer, ...]
    cpu: tuple[CpuTime, ...]

    @computed_field  # type: ignore[prop-decorator]
    @property
    def verdict(self) -> str:
        """One sentence: where the fastest board loses to the processor, and where it wins.

        Boards that need fewer bits than were asked for are left out.
        """
        builds = [(offer.board, offer.build) for offer in self.boards if offer.build]
        links = [(on, link) for on, build in builds if not build.changed for link in build.links]
        times = {time.engine: time.mean_us if time.kernel else time.p50_us for time in self.cpu}
        times = {engine: us for engine, us in times.items() if us is not None}
        if not links or not times:
            return f"{self.name}: nothing to compare."
        parts = []
        for name, where in (("core", "in the core"), ("pins", "at the pins"), ("host", "at the host")):
            us, board, link = min((getattr(each, f"{name}_us"), board, each.link) for board, each in links)
            verbs = (f"{'wins against' if us < cpu else 'loses to'} {each}" for each, cpu in times.items())
            on = board if name == "core" else f"{board} on {link}"
            parts.append(f"{where} {on}, {us:.3g} us ({', '.join(verbs)})")
        cpu = ", ".join(f"{each} {us:.3g} us" for each, us in times.items())
        return f"{self.name}: here {cpu}; the fastest boards: {'; '.join(parts)}."


class BoardsResult(Record):
    """The result of ``rtlstm bench --boards``."""

    machine: Machine
    software: tuple[Software, ...]
    networks: tuple[NetworkBoards, ...]


def run_boards(
    names: Sequence[str] | None, folder: Path, quick: bool = False, progress: Progress | None = None
) -> BoardsResult:
    """Compare boards and the processor for networks, by default :data:`NETWORKS`.

    Raises ConfigurationError if there is no such network. Raises ToolError if a simulator is missing.
    """
    chosen = find_shapes(list(names or NETWORKS))
    machine = describe_machine()
    build = folder / _SMALL.name
    build_shape(_SMALL, build, progress)
    software = _alike_at_tcp(
        [_measure_link(build, link, 10 if quick else 60) for link in counted(progress, "links", LINK_COSTS)]
    )
    names = [shape.name for shape in chosen]
    times: dict[str, list[CpuTime]] = {name: [] for name in names}
    for engine in counted(progress, "time a step on the processor", ENGINES):
        for line in start("engine", engine=engine, names=names, seconds=0.05 if quick else 1.0):
            times[line["shape"]].append(CpuTime(**line["time"]))
    found = []
    for shape in chosen:
        read = read_if_needed(shape.network())
        data = Calibration.of(read.network, shape.input_values(_CALIBRATION).astype(np.float64))
        request = BuildRequest(read=read, settings=shape.settings, data=data)
        offers = compare_boards(request, usable_boards(), progress, f"compare boards for {shape.name}")
        ours = mark_cheapest([_with_software(offer, software) for offer in offers])
        found.append(NetworkBoards(name=shape.name, boards=ours, cpu=tuple(times[shape.name])))
    return BoardsResult(machine=machine, software=tuple(software.values()), networks=tuple(found))


def _alike_at_tcp(measured: Sequence[Software]) -> dict[Link, Software]:
    at_tcp = [each for each in measured if each.link != "ethernet"]
    larger = {name: max(getattr(each, name) for each in at_tcp) for name in ("alone_us", "batch_us")}
    return {each.link: each.replace(**larger) if each in at_tcp else each for each in measured}


def _with_software(offer: BoardOffer, software: Mapping[Link, Software]) -> BoardOffer:
    """Put what was measured here in the place of what is known of another machine."""
    if offer.build is None:
        return offer
    links = tuple(
        each.replace(software_us=software[each.link].alone_us, batch_us=software[each.link].batch_us)
        for each in offer.build.links
    )
    return offer.replace(build=offer.build.replace(links=links))


def _measure_link(build: Path, link: Link, steps: int) -> Software:
    """Measure the driver's processor time over the socket of a simulated board, which is another process."""
    options = [*_SERVED[link], "--clock", str(_BOARD_MHZ)]
    command = [sys.executable, "-P", "-m", "rtlstm", "board", str(build), *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as board:
        assert board.stdout is not None
        try:
            said: list[str] = []
            for line in board.stdout:
                said.append(line)
                if found := re.search(r"\b(?:tcp|udp):localhost:\d+", line):
                    break
            else:
                raise ToolError(f"the simulated board on {link} must begin to serve, but: {''.join(said)}")
            with Accelerator.open(build, found[0]) as driver, driver.stream() as stream:
                x = _SMALL.input_values(steps)
                alone = [_processor_us(stream.step, row) for row in x]
                many = _processor_us(stream.steps, _SMALL.input_values(10 * steps))
        finally:
            board.send_signal(signal.SIGTERM)
    return Software(
        link=link, alone_us=round(float(np.median(alone)), 1), batch_us=round(many / (10 * steps), 2)
    )


def _processor_us(call: Callable[[Floats], object], x: Floats) -> float:
    begun = time.process_time()
    call(x)
    return 1e6 * (time.process_time() - begun)
