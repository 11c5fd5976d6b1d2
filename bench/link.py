"""The serial link on a simulated line: how much of it is payload, and whether faults cost a bit.

``rtlstm bench --link``: the driver's side of the protocol talks to the reference device with the
golden model behind it, over a line with a clock of its own.
"""

import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from rtlstm.bench.shapes import Shape
from rtlstm.gen.quantise import quantise
from rtlstm.host import Accelerator, pack
from rtlstm.host.link.lines import Line
from rtlstm.host.link.transport import LinkTransport
from rtlstm.host.transport import Progress
from rtlstm.sim.faults import FaultyLine
from rtlstm.sim.golden import Golden
from rtlstm.sim.golden_device import GoldenDevice
from rtlstm.sim.link_device import DEVICE_LIMITS, DeviceEngine
from rtlstm.sim.link_line import SimulatedLine
from rtlstm.spec.fixed import IntArray
from rtlstm.spec.link import Limits
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.parameters import Parameters
from rtlstm.spec.record import Record

__all__ = ["LEAST_SHARE", "LEAST_USE", "Efficiency", "Soak", "measure_efficiency", "soak"]

LEAST_SHARE = 0.85
"""Payload in all bytes, with payloads of 256 bytes."""
LEAST_USE = 0.90
"""Steps per second, against those of a line without gaps."""

_BAUD = 3_000_000
_STREAMS = 64
_USB_SECONDS = 0.001
"""What a USB adapter adds, each way."""


_BLOCK = 64
"""Steps of each stream between two comparisons."""


class Efficiency(Record):
    """One build's steps over a good line."""

    name: str
    payload_bytes: int
    """Input bytes of a step."""
    steps: int
    payload_share: float
    """Input bytes of all bytes sent to the device."""
    steps_per_second: float
    limit_per_second: float
    """If these frames followed each other without a gap."""
    line_use: float
    """The one of the other."""
    latency_seconds: float
    """What the line adds each way."""
    processor_us_per_step: float
    """Processor time per step of driver, line and golden model together."""

    @property
    def passed(self) -> bool:
        """Whether the link is as good as it is to be."""
        return self.line_use >= LEAST_USE and (self.payload_bytes < 256 or self.payload_share >= LEAST_SHARE)


class Soak(Record):
    """Steps over a bad line, each compared with the golden model."""

    steps: int
    rate: float
    """Faults per frame, each way."""
    faults: dict[str, int]
    wrong: int
    """Steps whose output differs from the golden model's."""
    executed: int
    """Steps the device has run: as many as were asked for if none was lost or run twice."""
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
    line_seconds: float
    wall_seconds: float

    @property
    def passed(self) -> bool:
        """Whether no step was lost, run twice or wrong."""
        return not self.wrong and self.executed == self.steps


class _Setup:
    """A small build with random weights, its golden model, and a device at the end of a line."""

    def __init__(self, inputs: int, units: int, bits: int, limits: Limits = DEVICE_LIMITS) -> None:
        shape = Shape(name="link", origin="", inputs=inputs, lstm=(units,), steps=1, bits=bits)
        self.network = quantise(shape.network(), shape.settings)
        parameters = Parameters(lanes=4, macs=4, streams=_STREAMS)
        self.manifest = Manifest.create("link", self.network.shapes, parameters, self.network.numerics)
        self.device = DeviceEngine(GoldenDevice(Path(), self.manifest), self.manifest, limits)

    def open(self, line: Line, seed: int) -> LinkTransport:
        """Open the link, and load the weights over it."""
        transport = LinkTransport(line, self.manifest, seed=seed)
        Accelerator(transport, self.manifest).load_weights(pack(self.network, self.manifest))
        return transport

    def inputs(self, rng: np.random.Generator, *lead: int) -> IntArray:
        """Random inputs."""
        format = self.network.numerics.input
        shape = (*lead, self.network.inputs)
        return rng.integers(format.lowest, format.maximum, shape, endpoint=True)


def measure_efficiency(quick: bool = False) -> Iterator[Efficiency]:
    """Measure steps of 256 bytes and of fewer, on a line and through a USB adapter."""
    for name, inputs, bits in (("256 inputs of 8 bits", 256, 8), ("6 inputs of 16 bits", 6, 16)):
        for latency in (0.0, _USB_SECONDS):
            payload = (24 if quick else 512) << 10
            yield _measure(name, inputs, bits, latency, payload // (inputs * bits // 8))


def _measure(name: str, inputs: int, bits: int, latency: float, steps: int) -> Efficiency:
    setup = _Setup(inputs, 4, bits)
    line = SimulatedLine(setup.device, _BAUD, latency)
    with setup.open(line, 1) as transport:
        rng = np.random.default_rng(1)
        streams, x = rng.integers(0, _STREAMS, steps), setup.inputs(rng, steps)
        sent, begun, carried = transport.statistics.bytes_sent, line.now(), line.busy_seconds[0]
        started = time.process_time()
        transport.exchange(streams, x)
        spent = time.process_time() - started
        sent, carried = transport.statistics.bytes_sent - sent, line.busy_seconds[0] - carried
        payload = inputs * bits // 8
        return Efficiency(
            name=name,
            payload_bytes=payload,
            steps=steps,
            payload_share=steps * payload / sent,
            steps_per_second=steps / (line.now() - begun),
            limit_per_second=steps / carried,
            line_use=carried / (line.now() - begun),
            latency_seconds=latency,
            processor_us_per_step=1e6 * spent / steps,
        )


def soak(steps: int, rate: float = 0.01, seed: int = 1, progress: Progress | None = None) -> Soak:
    """Run steps of 64 streams in random order over a line with faults, a frame each.

    ``steps`` is rounded down to a multiple of 64. Every output is compared with the golden model's.
    """
    setup = _Setup(28, 3, 8, Limits(body=64, request_bytes=512, response_bytes=512, frames=16))
    golden = Golden(setup.network)
    line = FaultyLine(SimulatedLine(setup.device, _BAUD), rate, seed, longest=0.01)
    started, rng, wrong, done = time.perf_counter(), np.random.default_rng(seed), 0, 0
    state = None
    with setup.open(line, seed) as transport:
        before = setup.device.steps
        while done < steps // _STREAMS:
            turns = min(_BLOCK, steps // _STREAMS - done)
            x = setup.inputs(rng, turns, _STREAMS)
            # A random order of streams; each stream's own steps stay in theirs.
            streams = rng.permutation(np.repeat(np.arange(_STREAMS), turns))
            turn = np.empty_like(streams)
            turn[np.argsort(streams, kind="stable")] = np.tile(np.arange(turns), _STREAMS)
            y = transport.exchange(streams, x[turn, streams])
            expected = golden.run(x, state)
            state = (expected.h, expected.c)
            wrong += int((y != expected.y[turn, streams]).any(axis=1).sum())
            done += turns
            if progress:
                progress("steps over a bad line", done * _STREAMS, steps)
        found = transport.statistics
        return Soak(
            steps=done * _STREAMS,
            rate=rate,
            faults={fault.value: count for fault, count in sorted(line.counts.items(), key=str)},
            wrong=wrong,
            executed=setup.device.steps - before,
            requests=found.requests,
            repeated=found.repeated,
            responses_again=found.surplus,
            damaged=found.damaged,
            dropped=setup.device.dropped,
            resumed=found.resumed,
            reopened=found.reopened,
            line_seconds=line.now(),
            wall_seconds=time.perf_counter() - started,
        )
