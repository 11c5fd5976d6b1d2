"""Measures the efficiency of the link over a simulated serial port.

``rtlstm bench --link``: the driver's side of the protocol talks to the reference device with the
golden model behind it, over a serial port with simulated time.
"""

import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from rtlstm.bench.shapes import Shape
from rtlstm.gen.builds.generate import generate_build
from rtlstm.gen.quantise.quantiser import quantise
from rtlstm.host import Accelerator, pack
from rtlstm.host.link.byte_ports import BytePort
from rtlstm.host.link.engine import LinkTimeouts
from rtlstm.host.link.link_transport import LinkTransport
from rtlstm.sim.golden_device import GoldenDevice
from rtlstm.sim.link_device import DEVICE_LIMITS, DeviceEngine
from rtlstm.sim.link_port import SimulatedPort
from rtlstm.spec.fixed import IntArray
from rtlstm.spec.link import Limits
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.parameters import Parameters
from rtlstm.spec.record import Record

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
