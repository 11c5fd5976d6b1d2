"""What a simulator must know of a build: Verilog, ports, the cycles that it records, and random inputs.

The primitives of some families are instances of hard cells. There are two ways to simulate them:

- With :data:`SIMULATION` defined, the build's own file describes their behaviour. That is several
  times faster. The driver's backends and cocotb tests use it.
- Without it, the family's models replace the cells, pin by pin. Every netlist, which has only cells, needs
  them. A model that does not know a parameter or a pin ends the simulation.

The tests show that both are the same in every cycle.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Literal, NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from rtlstm.spec.errors import DeviceError
from rtlstm.spec.family import FAMILIES, GENERIC
from rtlstm.spec.fixed import IntArray
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.parameters import NUMBER_BITS, ceil_log2


@dataclass(frozen=True, kw_only=True)
class PortSpec:
    """A core's ports, as a simulator must know them; see the port contract in the documentation."""

    name: str
    inputs: int
    outputs: int
    data_bits: int
    output_bits: int = 0
    """Width of a word of y; that of x if 0."""
    beat_in: int = 1
    beat_out: int = 1
    streams: int = 1
    sequence_steps: int = 0
    """Steps of the longest sequence, if the core takes whole sequences; else 0."""
    networks: int = 1
    """Networks at once, which the ports that name a stream name, too."""
    family: str = GENERIC
    """Device family: whose cells the core's Verilog may use."""
    timeout_cycles: int = 20_000
    """Cycles without any transfer after which a simulator gives up."""

    @classmethod
    def from_manifest(cls, manifest: Manifest) -> Self:
        """Take the sizes from a build's manifest."""
        cycles = manifest.cycles
        return cls(
            name=manifest.name,
            inputs=manifest.input_port.values,
            outputs=manifest.program.outputs,
            data_bits=manifest.input_port.bits,
            output_bits=manifest.numerics.output_bits,
            beat_in=manifest.input_port.beat,
            beat_out=manifest.parameters.beat_out,
            streams=manifest.parameters.streams,
            networks=manifest.parameters.networks,
            sequence_steps=0 if manifest.sequence is None else manifest.sequence.steps,
            family=manifest.parameters.family,
            timeout_cycles=10_000 + 4 * (cycles.first_step_latency_cycles + cycles.step_interval_cycles),
        )

    @property
    def y_bits(self) -> int:
        """Width of a word of y."""
        return self.output_bits or self.data_bits

    @property
    def stream_bits(self) -> int:
        """Width of the ports that name a stream."""
        return NUMBER_BITS if self.networks > 1 else max(1, ceil_log2(self.streams))

    @property
    def beats_in(self) -> int:
        """Transfers of one step's input."""
        return -(-self.inputs // self.beat_in)

    @property
    def beats_out(self) -> int:
        """Transfers of one step's output."""
        return -(-self.outputs // self.beat_out)


class StepCycles(NamedTuple):
    """Cycle numbers of each step of one exchange; cycle 0 is the first after reset."""

    begun: NDArray[np.int64]
    """Cycle that accepts the first input beat."""
    accepted: NDArray[np.int64]
    """Cycle that accepts the last input beat."""
    offered: NDArray[np.int64]
    """First cycle that offers the last output beat."""

    @property
    def latency(self) -> NDArray[np.int64]:
        """Cycles from the last input beat to the last output beat."""
        return self.offered - self.accepted


class PortFault(NamedTuple):
    """The number by which a harness names a fault of the core."""

    code: int
    step: int

    def error(self, ports: PortSpec) -> DeviceError:
        """Return the exception for this fault."""
        text = _FAULTS.get(self.code, f"the simulator reported the unknown fault {self.code}")
        where = "" if self.step < 0 else f" (step {self.step} of this exchange)"
        return DeviceError(f"{ports.name}: {text.format(timeout_cycles=ports.timeout_cycles)}{where}")


_FAULTS = {
    1: "no transfer on x or y for {timeout_cycles} cycles; was the weight image loaded?",
    2: "the bus did not accept a request within {timeout_cycles} cycles",
    3: "the bus did not answer a read within {timeout_cycles} cycles",
    4: "y_stream is not the stream of the step whose result is due",
    5: "y_last must be 1 in the last beat of a step and 0 in the others",
    6: "y changed or was withdrawn before it was taken",
    7: "y offers a result after that of the last step",
    8: "words of y past the last output must be 0",
    9: "x_ready or y_valid is X or Z",
    10: "y_data, y_stream or y_last has X or Z bits",
    11: "bus_ready or bus_read_valid is X or Z",
    12: "the bus read gives X or Z bits (memory that was never written, or a fault)",
    13: "the Verilog ended the simulation ($finish or $stop); its output says why",
    14: "bus_read_valid must be 1 for one cycle of each read and 0 in all others",
}


class Model(Protocol):
    """A core in a simulator; the devices are made from it. Calls are not checked."""

    @property
    def cycle(self) -> int:
        """Cycles since reset."""

    def write(self, register: int, words: NDArray[np.uint32]) -> None:
        """Write words to a register."""

    def read(self, register: int, count: int) -> NDArray[np.uint32]:
        """Read a register ``count`` times."""

    def exchange(
        self,
        streams: NDArray[np.int32],
        x: NDArray[np.int32],
        suppress: NDArray[np.bool_] | None = None,
        ends: NDArray[np.bool_] | None = None,
    ) -> tuple[NDArray[np.int32], StepCycles]:
        """Run steps; return the outputs (zeros for a suppressed step) and the cycles in which each step was
        accepted and offered (-1 for a suppressed one)."""

    def stalls(self, seed: int, p_in: float, p_out: float) -> None:
        """Insert random stalls on both sides from now on."""

    def resize(self, ports: PortSpec) -> None:
        """Take steps of other sizes from now on; ports stay as they are."""

    def close(self) -> None:
        """End the simulation."""


def step_marks(steps: int, *given: NDArray[np.bool_] | None) -> list[NDArray[np.bool_]]:
    """Return marks of steps, such as ``suppress`` and ``ends``; none is set of those that were not given."""
    return [np.zeros(steps, dtype=bool) if marks is None else marks for marks in given]


def sign_extend(words: IntArray, bits: int) -> NDArray[np.int32]:
    """Read unsigned words as two's complement numbers of ``bits`` bits."""
    half = 1 << (bits - 1)
    return (((words & ((1 << bits) - 1)) ^ half) - half).astype(np.int32)


def pack_beats(words: IntArray, bits: int) -> list[str]:
    """Pack each row of words into one hexadecimal number, the first word lowest."""
    rows, count = words.shape
    positions = np.arange(bits)
    lines = (words[:, :, None] >> positions) & 1
    flat = lines.reshape(rows, count * bits).astype(np.uint8)
    width = -(-count * bits // 8) * 8
    padded = np.zeros((rows, width), dtype=np.uint8)
    padded[:, : count * bits] = flat
    octets = np.packbits(padded[:, ::-1], axis=1)
    return [row.tobytes().hex() for row in octets]


def unpack_beats(numbers: list[str], count: int, bits: int) -> IntArray:
    """Undo :func:`pack_beats`: ``count`` unsigned words from each number."""
    digits = -(-count * bits // 8) * 2
    octets = np.frombuffer(bytes.fromhex("".join(number.zfill(digits) for number in numbers)), dtype=np.uint8)
    lines = np.unpackbits(octets.reshape(len(numbers), digits // 2), axis=1)[:, ::-1]
    fields = lines[:, : count * bits].reshape(len(numbers), count, bits).astype(np.int64)
    return fields @ (np.int64(1) << np.arange(bits, dtype=np.int64))


_MOST_SEQUENCES = 8
_STEPS = 64


def random_input(manifest: Manifest, steps: int | None, seed: int) -> IntArray:
    """Return integers over the whole input range, or tokens, ``(steps, N, inputs)``; one sequence per stream.

    By default 64 steps, or as many as a sequence may have on the device, if these are fewer.
    """
    steps = steps or min(_STEPS, manifest.parameters.max_steps or _STEPS)
    least, most = port_range(manifest)
    count = min(manifest.parameters.streams, _MOST_SEQUENCES)
    shape = (steps, count, manifest.input_port.values)
    return np.random.default_rng(seed).integers(least, most, shape, endpoint=True)


def port_range(manifest: Manifest) -> tuple[int, int]:
    """Return the least and the most integer of random values at the port."""
    most = manifest.numerics.input.maximum
    return (0, manifest.parameters.token_rows - 1) if manifest.parameters.token_rows else (-most, most)


Simulator = Literal["verilator", "icarus"]

SIMULATION = "RTLSTM_SIMULATION"
"""Macro that replaces hard cells by descriptions of their behaviour."""


def own_file(*names: str) -> Path:
    """Return the path of a file of this package that is not Python."""
    return Path(str(files("rtlstm.sim").joinpath(*names))).absolute()


def cell_models(family: str) -> list[Path]:
    """Return the files with the models of a family's hard cells; none if the family has no hard cells."""
    return list(FAMILIES.named(family).cell_models)


def board_models(family: str) -> list[Path]:
    """Return the files with models of a board's other cells: the PLL of the device's family."""
    return [own_file("pll.v"), *FAMILIES.named(family).pll_models]


def simulation_sources(verilog: Path, family: str) -> list[Path]:
    """Return the files to simulate a build or its netlist from; the build's own file is the first."""
    return [verilog.absolute(), *cell_models(family)]


def copy_sources(sources: Sequence[Path], folder: Path) -> list[str]:
    """Copy sources into a folder and return their names there.

    The compilers then get only plain file names, because some of them fail on other paths.
    """
    names = []
    for index, path in enumerate(sources):
        names.append(f"{index}_{re.sub(r'[^A-Za-z0-9]', '_', path.stem)}.v")
        (folder / names[-1]).write_bytes(path.read_bytes())
    return names
