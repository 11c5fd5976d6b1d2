"""The golden model as a device: the registers and memories of a core in Python."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from rtlstm.host.raw_values import Steps
from rtlstm.host.state import LayerArrays, StateLayout
from rtlstm.host.transport import Transport, register_words
from rtlstm.sim.golden import Golden
from rtlstm.sim.golden_cells import CellStream
from rtlstm.sim.golden_lstm import LstmStream
from rtlstm.spec.errors import ConfigurationError, DeviceError
from rtlstm.spec.fixed import IntArray, check_range
from rtlstm.spec.image import WeightImage, WordArray, image_shapes
from rtlstm.spec.manifest import Manifest, RegionLayout
from rtlstm.spec.packing import pack_tables, unpack
from rtlstm.spec.progress import Progress
from rtlstm.spec.registers import Command, Region, Register, field
from rtlstm.spec.residents import held_at, held_step, resident_image, split_numbers

_WORD = 0xFFFFFFFF
_REGION, _BANK = field(Register.SELECT, "REGION"), field(Register.SELECT, "BANK")
_ZERO = field(Register.FLAGS, "ZERO")
_PARTIALS_INVALID = field(Register.FLAGS, "PARTIALS_INVALID")


@dataclass(frozen=True)
class _Runs:
    """Steps that follow each other on a stream; one entry for each run of them, in order."""

    streams: IntArray
    first: IntArray
    """Index of its first step; the others follow it."""
    lengths: IntArray

    def batches(self) -> Iterator[IntArray]:
        """Yield the numbers of runs that are computed together.

        Streams do not depend on each other, but the runs of one do. A run is at least half as long as the
        longest of its batch, so that padding at most doubles the work.
        """
        order = np.argsort(self.streams, kind="stable")
        _, begins, counts = np.unique(self.streams[order], return_index=True, return_counts=True)
        earlier = np.empty_like(order)
        earlier[order] = np.arange(len(order)) - np.repeat(begins, counts)
        left = np.lexsort((-self.lengths, earlier))
        while len(left):
            same = earlier[left] == earlier[left[0]]
            together = same & (2 * self.lengths[left] >= self.lengths[left[0]])
            yield left[together]
            left = left[~together]


@dataclass
class _MemoryWindow:
    """The memories and the position in them that SELECT, ROW and DATA work on."""

    layouts: dict[Region, RegionLayout]
    constants: dict[Region, WordArray]
    """Those that keep these words, whatever is written."""

    def __post_init__(self) -> None:
        self.memories: dict[Region, WordArray] = {
            region: np.zeros((layout.banks, layout.rows, layout.words), dtype=np.uint32)
            for region, layout in self.layouts.items()
        } | self.constants
        self.select = self.row = self._word = 0
        self._staged: list[int] = []

    def point(self, select: int | None = None, row: int | None = None) -> None:
        """Write SELECT or ROW; both begin a new row."""
        self.select = self.select if select is None else select & (_REGION.mask | _BANK.mask)
        self.row = self.row if row is None else row
        self._word, self._staged = 0, []

    @property
    def region(self) -> Region:
        number = _REGION.of(self.select)
        if number not in self.layouts:
            named = ", ".join(str(int(region)) for region in self.layouts)
            raise DeviceError(f"SELECT must name a region of {named}, not {number}; write it before DATA")
        return Region(number)

    def _bank(self) -> tuple[RegionLayout, WordArray]:
        layout = self.layouts[self.region]
        bank = _BANK.of(self.select)
        if bank >= layout.banks:
            raise DeviceError(
                f"{layout.region.name} has banks 0 to {layout.banks - 1}, but SELECT names bank {bank}"
            )
        return layout, self.memories[self.region][bank]

    def _limit(self, layout: RegionLayout, end: int) -> None:
        if end > layout.rows:
            raise DeviceError(
                f"{layout.region.name} has rows 0 to {layout.rows - 1}, but row {end - 1} was asked "
                "for; write ROW before DATA"
            )

    def write(self, words: IntArray) -> int:
        """Write to DATA; return the rows completed. A row reaches the memory with its last word."""
        layout, bank = self._bank()
        pending = np.concatenate([np.asarray(self._staged, dtype=np.int64), words])
        rows = len(pending) // layout.words
        self._limit(layout, self.row + -(-len(pending) // layout.words))
        whole = pending[: rows * layout.words].reshape(rows, layout.words).astype(np.uint32)
        # A row need not fill its last word: the surplus bits are dropped.
        whole[:, -1] &= np.uint32((1 << (layout.width - 32 * (layout.words - 1))) - 1)
        if layout.region not in self.constants:
            bank[self.row : self.row + rows] = whole
        self.row += rows
        self._staged = pending[rows * layout.words :].tolist()
        self._word = len(self._staged)
        return rows

    def read(self, count: int) -> IntArray:
        layout, bank = self._bank()
        end = self._word + count
        self._limit(layout, self.row + -(-end // layout.words))
        words = bank[self.row :].reshape(-1)[self._word : end].astype(np.int64)
        self.row += end // layout.words
        self._word = end % layout.words
        return words


class GoldenDevice(Transport):
    """A device that computes with the golden model.

    The manifest says everything: the build's ``folder`` and ``progress`` are unused. Raises
    ConfigurationError if ``argument`` is not empty.
    """

    takes_sequences = True
    simulated = True

    def __init__(
        self,
        folder: Path,
        manifest: Manifest,
        argument: str = "",
        progress: Progress | None = None,
    ) -> None:
        if argument:
            raise ConfigurationError(f"the golden backend takes no argument, not {argument!r}; try 'golden'")
        super().__init__(manifest)
        self._layout = StateLayout(manifest)
        constant = manifest.parameters.table_memory == "rom"
        self._window = _MemoryWindow(manifest.regions, pack_tables(manifest.numerics) if constant else {})
        streams = manifest.parameters.streams
        self._zero_state = np.ones(streams, dtype=bool)
        self._partials_invalid = np.ones(streams, dtype=bool)
        self._stream = 0
        self._goldens: dict[int, Golden] = {}
        """Models of the networks that the memories hold, as far as they were asked for."""
        self._network = 0
        """The network that ran last."""
        self._networks = np.zeros(streams, dtype=np.int64)
        """Whose state each stream has."""
        self._live: dict[int, tuple[StateLayout, LstmStream | CellStream]] = {}
        """States of streams stepped one by one; they go to the memories when these are read."""
        self._closed = False
        self._stopped = self._is_single(manifest)
        """Whether the program memory holds no complete program; of several, each step's row says it."""
        self._counters = dict.fromkeys(
            (Register.STEPS, Register.LATENCY, Register.CELL_SATURATIONS, Register.CYCLES), 0
        )
        self._timed: dict[str, Any] | None = None
        """What the latency of the last exchange with an output depends on, as the schedule names it."""

    @staticmethod
    def _is_single(manifest: Manifest) -> bool:
        """Whether the program is loadable, and that of one network."""
        return manifest.parameters.capacity is not None and manifest.parameters.networks == 1

    def adopt(self, manifest: Manifest) -> None:
        """Take the manifest of another build of the same hardware, whose image is loaded next."""
        self._settle()
        self._latency()
        self.manifest, self._layout = manifest, StateLayout(manifest)
        if manifest.parameters.networks == 1:
            self._goldens.clear()

    def restart(self) -> None:
        """Do what a reset does: states are zero, a loadable device has no program; memories stay."""
        self._live.clear()
        self._zero_state[:] = self._partials_invalid[:] = True
        self._stopped = self._is_single(self.manifest)
        self._networks[:] = self._network = 0
        if self.manifest.parameters.networks > 1:
            self._window.memories[Region.PROGRAM][:, self.manifest.capacity.operations :] = 0
            self._goldens.clear()
        self._counters = dict.fromkeys(self._counters, 0)
        self._timed = None

    def close(self) -> None:
        """Close the device: every later call is refused."""
        self._closed = True

    def _open(self) -> None:
        if self._closed:
            raise DeviceError("the golden device is closed; open it again")

    def write(self, register: Register, words: Sequence[int] | IntArray) -> None:
        """Write 32-bit words to a register, one after the other."""
        self._open()
        values = register_words(words)
        if register == Register.DATA:
            self._settle()
            stops = self._window.region == Region.PROGRAM and self.manifest.parameters.networks == 1
            if stops and len(values):
                self._stopped = True
            if self._window.write(values):
                if stops:
                    self._stopped = self._window.row != self.manifest.regions[Region.PROGRAM].rows
                if self._window.region in image_shapes(self.manifest):
                    self._goldens.clear()
                if self._window.region not in (Region.VECTORS, Region.CELLS):
                    # As in the hardware: stored partial sums were made from other weights.
                    self._partials_invalid[:] = True
            return
        for value in values.tolist():
            self._write(register, value)

    def _write(self, register: Register, value: int) -> None:
        if register == Register.STREAM:
            self._stream = value
        elif register == Register.SELECT:
            self._window.point(select=value)
        elif register == Register.ROW:
            self._window.point(row=value)
        elif register == Register.COMMAND and value in set(Command):
            stream, network = self._checked(self._stream)
            if value == Command.HAND_OVER and self.manifest.parameters.networks == 1:
                return
            self._settle()
            self._networks[stream] = network
            if value != Command.HAND_OVER:
                self._zero_state[stream] = value == Command.RESET
            self._partials_invalid[stream] = True
        # Other registers are read-only or do not exist: writes are ignored, as by the hardware.

    def _checked(self, number: int) -> tuple[int, int]:
        """Return the stream and the network that a number names."""
        several = self.manifest.parameters.networks > 1
        stream, network = split_numbers(number) if several else (number, 0)
        if not 0 <= stream < len(self._zero_state):
            raise DeviceError(
                f"this build has streams 0 to {len(self._zero_state) - 1}, but stream {stream} was named"
            )
        return stream, network

    def holds(self, manifest: Manifest, network: int) -> bool:
        """Whether the memories of a device of several networks hold the program of this build as this one."""
        return held_at(self._window.memories[Region.PROGRAM][0], manifest, network) is not None

    def _step_of(self, network: int) -> dict[str, int]:
        """The fields of a network's step that the program memory holds; zeros if it is not there."""
        if network >= self.manifest.parameters.networks:
            return {}
        return held_step(self._window.memories[Region.PROGRAM][0], self.manifest, network)

    def read(self, register: Register, count: int = 1) -> IntArray:
        """Read a register ``count`` times; 32-bit words as non-negative int64."""
        self._open()
        if register == Register.DATA:
            self._settle()
            return self._window.read(count)
        return np.full(count, self._read(register) & _WORD, dtype=np.int64)

    def _read(self, register: Register) -> int:
        if register == Register.FLAGS:
            stream, network = self._checked(self._stream)
            several = self.manifest.parameters.networks > 1
            prepares = (
                bool(self._step_of(network).get("prepares")) if several else self.manifest.schedule.prepares
            )
            invalid = self._partials_invalid[stream] and prepares
            return _ZERO.at(int(self._zero_state[stream])) | _PARTIALS_INVALID.at(int(invalid))
        if register == Register.LATENCY:
            return self._latency()
        fixed = {
            Register.STREAM: self._stream,
            Register.SELECT: self._window.select,
            Register.ROW: self._window.row,
            Register.SHAPE: self.manifest.shape,
        }
        if register == Register.SHAPE and self.manifest.parameters.networks > 1:
            step = self._step_of(int(split_numbers(self._stream)[1]))
            return (step["outputs"] << 16 | step["inputs"]) * step["present"] if step else 0
        return (fixed | self.manifest.constants | self._counters).get(register, 0)

    def run_steps(self, steps: Steps) -> IntArray:
        """Run checked steps in order; see :meth:`rtlstm.host.transport.Transport.run_steps`."""
        self._open()
        if not len(steps):
            return np.zeros((0, self.manifest.program.outputs), dtype=np.int64)
        if self._stopped:
            raise DeviceError("the device must hold a complete program, but does not; load a build")
        changed: dict[str, bool] = {}
        if self.manifest.parameters.networks > 1:
            steps, changed = self._turn_to(steps)
        if not steps.suppress.all():
            marks = {"ends": steps.ends, "ready": ~self._partials_invalid, "suppress": steps.suppress}
            self._timed = {"streams": steps.streams} | marks | changed
        if rows := self.manifest.parameters.token_rows:
            check_range("x", steps.x, 0, rows - 1)
            steps = replace(steps, x=self._model().network.looked_up(steps.x))
        alone = len(steps) == 1 and not steps.ends[0]
        y = self._step(int(steps.streams[0]), steps.x) if alone else self._run_runs(steps)
        self._counters[Register.STEPS] += len(y) - int(np.count_nonzero(steps.suppress))
        return np.where(steps.suppress[:, None], 0, y)

    def _turn_to(self, steps: Steps) -> tuple[Steps, dict[str, bool]]:
        """Return steps with the bare numbers of their streams, and whether another network ran before."""
        streams, networks = split_numbers(steps.streams)
        network = int(networks[0])
        if not self._step_of(network)["present"]:
            raise DeviceError(
                f"the device must hold network {network}, but does not; load a build as this one"
            )
        foreign = np.unique(streams[self._networks[streams] != network])
        for stream in foreign.tolist():
            self._live.pop(stream, None)
        self._networks[foreign] = network
        self._zero_state[foreign] = self._partials_invalid[foreign] = True
        changed, self._network = network != self._network, network
        return replace(steps, streams=streams), {"changed": changed}

    def _run_runs(self, steps: Steps) -> IntArray:
        """Run steps, run by run: a run ends with its sequence, if not with the stream's last step."""
        self._settle()
        order = np.argsort(steps.streams, kind="stable")
        streams, ends = steps.streams[order], steps.ends[order]
        first = np.flatnonzero(np.append(True, (streams[1:] != streams[:-1]) | ends[:-1]))
        runs = _Runs(streams[first], first, np.diff(first, append=len(steps)))
        for length, count in zip(*np.unique(runs.lengths, return_counts=True), strict=True):
            self._counters[Register.CYCLES] += int(count) * self.manifest.schedule.duration(int(length))
        y = np.zeros((len(steps), self.manifest.program.outputs), dtype=np.int64)
        y[order] = self.manifest.emitted(self._run(runs, steps.x[order]))
        return y

    def _step(self, stream: int, x: IntArray) -> IntArray:
        """Run one step, x ``(1, inputs)``, and keep the state for the next one."""
        golden = self._model()
        if stream not in self._live:
            h, c = self._load_state(stream)
            live = golden.stream(1, ([part[None] for part in h], [part[None] for part in c]))
            self._live[stream] = self._layout, live
        _, live = self._live[stream]
        before = live.cell_saturations
        y = live.step(x)
        self._counters[Register.CELL_SATURATIONS] += live.cell_saturations - before
        self._counters[Register.CYCLES] += self.manifest.schedule.duration(1)
        self._zero_state[stream] = self._partials_invalid[stream] = False
        return self.manifest.emitted(y)

    def _settle(self) -> None:
        """Write the states of streams stepped one by one to the memories."""
        for stream, (layout, live) in self._live.items():
            self._store_state(layout, stream, [part[0] for part in live.h], [part[0] for part in live.c])
        self._live.clear()

    def _run(self, runs: _Runs, x: IntArray) -> IntArray:
        """Run x ``(steps, inputs)``; returns ``(steps, outputs)``."""
        y = np.zeros((len(x), self.manifest.classes), dtype=np.int64)
        for batch in runs.batches():
            lengths = runs.lengths[batch]
            steps = np.arange(lengths.max())[:, None]
            alive = steps < lengths
            # Values past a run's end are padding and not computed with.
            positions = runs.first[batch] + np.minimum(steps, lengths - 1)
            found = self._run_batch(runs.streams[batch], x[positions], None if alive.all() else lengths)
            y[positions[alive]] = found[alive]
        return y

    def _run_batch(self, streams: IntArray, x: IntArray, lengths: IntArray | None) -> IntArray:
        """Run x ``(T, N, inputs)`` on N different streams; returns ``(T, N, outputs)``."""
        states = [self._load_state(stream) for stream in streams.tolist()]
        h = tuple(np.stack(parts) for parts in zip(*(state[0] for state in states), strict=True))
        c = tuple(np.stack(parts) for parts in zip(*(state[1] for state in states), strict=True))
        result = self._model().run(x, (h, c), lengths)
        for index, stream in enumerate(streams.tolist()):
            state = ([part[index] for part in parts] for parts in (result.h, result.c))
            self._store_state(self._layout, stream, *state)
            self._zero_state[stream] = self._partials_invalid[stream] = False
        self._counters[Register.CELL_SATURATIONS] += result.cell_saturations
        return result.y

    def _model(self) -> Golden:
        """The golden model of the weights that the memories hold."""
        if self._network not in self._goldens:
            memories = self._window.memories
            if self.manifest.parameters.networks > 1:
                image = resident_image(memories, self.manifest, self._network)
            else:
                image = WeightImage(
                    build_hash=self.manifest.build_hash,
                    regions={
                        region: memories[region][:, :rows]
                        for region, (_, rows, _) in image_shapes(self.manifest).items()
                    },
                )
            self._goldens[self._network] = Golden(unpack(image, self.manifest))
        return self._goldens[self._network]

    def _context(self, layout: StateLayout, stream: int) -> tuple[WordArray, WordArray]:
        """The parts of the vector and cell memories that hold a stream's state."""
        program, memories = self.manifest.program, self._window.memories
        row = stream * program.vector_context + layout.vector_span[0]
        cell = stream * program.cell_context + layout.cell_span[0]
        return (
            memories[Region.VECTORS][0, row : row + layout.vector_span[1]],
            memories[Region.CELLS][:, cell : cell + layout.cell_span[1], 0],
        )

    def _load_state(self, stream: int) -> tuple[LayerArrays, LayerArrays]:
        if self._zero_state[stream]:
            h, c = self._layout.zeros(1)
            return tuple(array[0] for array in h), tuple(array[0] for array in c)
        vectors, cells = self._context(self._layout, stream)
        return self._layout.decode(vectors.astype(np.int64), cells.astype(np.int64))

    def _store_state(
        self, layout: StateLayout, stream: int, h: Sequence[IntArray], c: Sequence[IntArray]
    ) -> None:
        vectors, cells = self._context(layout, stream)
        words, cell_words = layout.encode(h, c)
        vectors[...] = words.reshape(vectors.shape)
        cells[...] = cell_words

    def _latency(self) -> int:
        """Cycles of the last step that had an output.

        Computed on request, because the schedule takes as long as the steps.
        """
        if self._timed is not None:
            self._counters[Register.LATENCY] = self.manifest.schedule.latency(**self._timed)
            self._timed = None
        return self._counters[Register.LATENCY]
