"""The link's efficiency over a simulated serial port, and steps over a connection with faults.

For ``rtlstm bench --link`` the driver's side of the protocol talks to the reference device with the golden
model behind it, with simulated time. Connections with faults go to it, too, or to a simulated board.

Every step must run once, and all its bits must be right.
"""

import contextlib
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

import numpy as np

from rtlstm.bench.jobs import Journal
from rtlstm.bench.shapes import Shape
from rtlstm.boards.catalogue import find_board
from rtlstm.gen.builds.generate import generate_build
from rtlstm.gen.builds.on_board import OnBoard
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
from rtlstm.spec.fixed import IntArray
from rtlstm.spec.link import Limits
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.parameters import Parameters
from rtlstm.spec.progress import Progress, tell
from rtlstm.spec.record import Record
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
        self.manifest = Manifest.create("link", self.network.shapes, self._parameters, self.network.numerics)

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
        return Soak(
            device=remote.name,
            steps=done,
            rate=rate,
            faults={fault.value: count for fault, count in sorted(port.counts.items(), key=str)},
            wrong=wrong,
            executed=after.steps - report.steps,
            requests=found.requests,
            repeated=found.repeated,
            responses_again=found.surplus,
            damaged=found.damaged,
            dropped=after.dropped - report.dropped,
            resumed=found.resumed,
            reopened=found.reopened,
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
