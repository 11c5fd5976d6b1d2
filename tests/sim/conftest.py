"""A small core in Verilog that keeps the port contract, to test the simulators without a build."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from rtlstm.sim.simulated_ports import Model, PortSpec, sign_extend

LATENCY = 5

PORTS = {
    "narrow": PortSpec(name="narrow", inputs=3, outputs=2, data_bits=8, timeout_cycles=500),
    # 72-bit and 54-bit ports: wider than Verilator's widest integer, and words across 32 bits.
    "wide": PortSpec(
        name="wide", inputs=10, outputs=7, data_bits=18, beat_in=4, beat_out=3, streams=3, timeout_cycles=500
    ),
}


@dataclass(frozen=True)
class Dummy:
    """A dummy core in a folder laid out like a build: running sums of each stream's inputs."""

    folder: Path
    ports: PortSpec

    @property
    def verilog(self) -> Path:
        return self.folder / "rtl" / f"{self.ports.name}.v"

    @property
    def latency(self) -> int:
        """Cycles from the last input beat to the last output beat."""
        return LATENCY + self.ports.beats_out - 1

    def save(self) -> "Dummy":
        ports = self.ports
        sizes = {
            "TOP": ports.name,
            "BITS": ports.data_bits,
            "INPUTS": ports.inputs,
            "OUTPUTS": ports.outputs,
            "BEAT_IN": ports.beat_in,
            "BEAT_OUT": ports.beat_out,
            "BEATS_IN": ports.beats_in,
            "BEATS_OUT": ports.beats_out,
            "STREAMS": ports.streams,
            "STREAM_BITS": ports.stream_bits,
            "LATENCY": LATENCY,
        }
        text = "".join(f"`define {name} {value}\n" for name, value in sizes.items())
        self.verilog.parent.mkdir(parents=True)
        self.verilog.write_text(text + (Path(__file__).parent / "dummy_core.v").read_text())
        return self

    def stimulus(self, steps: int, seed: int = 1) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Return random streams and inputs."""
        ports, random = self.ports, np.random.default_rng(seed)
        half = 1 << (ports.data_bits - 1)
        streams = random.integers(0, ports.streams, steps, dtype=np.int32)
        return streams, random.integers(-half, half, (steps, ports.inputs), dtype=np.int32)

    def clear(self, model: Model) -> None:
        """Clear the sums of all streams."""
        for stream in range(self.ports.streams):
            model.write(3, np.array([stream]))
            model.write(4, np.array([1]))

    def expected(self, streams: NDArray[np.int32], x: NDArray[np.int32]) -> NDArray[np.int32]:
        """Return what the core gives when its sums were cleared before."""
        ports = self.ports
        sums = np.zeros((ports.streams, ports.inputs), dtype=np.int64)
        y = np.empty((len(streams), ports.outputs), dtype=np.int64)
        for step, stream in enumerate(streams):
            sums[stream] += x[step]
            y[step] = np.resize(sums[stream], ports.outputs)
        return sign_extend(y, ports.data_bits)


@pytest.fixture(params=PORTS)
def dummy(request: pytest.FixtureRequest, tmp_path: Path) -> Dummy:
    """Each of the dummy cores."""
    return Dummy(tmp_path, PORTS[request.param]).save()


@pytest.fixture
def wide_dummy(tmp_path: Path) -> Dummy:
    """The dummy core with wide ports and three streams."""
    return Dummy(tmp_path, PORTS["wide"]).save()


@pytest.fixture
def dummy_of(tmp_path: Path) -> Callable[[PortSpec], Dummy]:
    """Make a dummy core with other ports."""
    return lambda ports: Dummy(tmp_path / ports.name, ports).save()
