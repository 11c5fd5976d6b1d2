"""A link on a simulated line, for tests: the driver at one end, the golden model at the other."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rtlstm.host import Accelerator, pack
from rtlstm.host.link.byte_ports import BytePort
from rtlstm.host.link.engine import LinkTimeouts
from rtlstm.host.link.link_transport import LinkTransport
from rtlstm.sim.faults import Fault, FaultyPort
from rtlstm.sim.golden_device import GoldenDevice
from rtlstm.sim.link_device import DEVICE_LIMITS, DeviceEngine
from rtlstm.sim.link_port import SimulatedPort
from rtlstm.spec.fixed import IntArray
from rtlstm.spec.link import HEADER, Limits, value_bytes
from rtlstm.spec.manifest import Manifest


def least_limits(manifest: Manifest, body: int = 64) -> Limits:
    """The least that a device of this build may offer, with bodies of so many bytes."""
    room, numerics = body - HEADER.size, manifest.numerics
    pieces = -(-(2 + manifest.program.inputs * value_bytes(numerics.input.bits)) // room)
    answers = -(-manifest.program.outputs * value_bytes(numerics.output_bits) // room)
    frames = pieces + answers - 1
    return Limits(body, max(2, frames) * body, max(2, frames) * body, max(2, frames))


@dataclass
class LinkBench:
    """A build at the end of a line; ``rate`` faults per frame."""

    build: Any
    limits: Limits = DEVICE_LIMITS
    baud: float = 3e6
    latency: float = 0.0
    rate: float = 0.0
    seed: int = 1
    faults: tuple[Fault, ...] = tuple(Fault)

    def __post_init__(self) -> None:
        self.manifest: Manifest = self.build.manifest
        self.golden = GoldenDevice(Path(), self.manifest)
        self.device = DeviceEngine(self.golden, self.manifest, self.limits)
        self.good = SimulatedPort(self.device, self.baud, self.latency)
        self.port: BytePort = self.good
        if self.rate:
            self.port = FaultyPort(self.good, self.rate, self.seed, self.faults, longest=0.01)

    def transport(self, timeouts: LinkTimeouts | None = None) -> LinkTransport:
        return LinkTransport(self.port, self.manifest, timeouts, self.seed)

    def open(self, timeouts: LinkTimeouts | None = None) -> Accelerator:
        """Open it, weights loaded and read back over the link."""
        accelerator = Accelerator(self.transport(timeouts), self.manifest)
        accelerator.load_weights(pack(self.build.network, self.manifest))
        return accelerator


def separate_runs(build: Any, streams: IntArray, x: IntArray) -> IntArray:
    """What steps of streams must give: each stream's own steps in a golden model of its own."""
    y = np.zeros((len(x), build.network.outputs), dtype=np.int64)
    for stream in np.unique(streams):
        mine = streams == stream
        y[mine] = build.golden.run(x[mine][:, None]).y[:, 0]
    return y
