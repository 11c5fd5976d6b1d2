"""A build's core in Amaranth's own simulator, behind the driver.

It is slow, but it needs no Verilog, and every signal of ``hdl`` is in its waveforms under its own name. What
is simulated is what ``hdl`` makes of the manifest, and not the build's Verilog.
"""

from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import numpy as np
from amaranth.hdl import Value
from numpy.typing import NDArray

from rtlstm.hdl.core.core import CorePorts
from rtlstm.hdl.sequences.part_steps import make_core
from rtlstm.sim.amaranth_platform import simulator
from rtlstm.sim.backends import SimulatedDevice
from rtlstm.sim.simulated_ports import PortFault, PortSpec, StepCycles, sign_extend, step_marks
from rtlstm.spec.errors import ConfigurationError
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.progress import Progress

T = TypeVar("T")


class AmaranthDevice(SimulatedDevice):
    """A core in Amaranth's simulator. ``argument`` is a file for waveforms (VCD); none if empty."""

    def __init__(
        self, folder: Path, manifest: Manifest, argument: str = "", progress: Progress | None = None
    ) -> None:
        model = AmaranthModel(manifest, argument, progress)
        super().__init__(model, PortSpec.from_manifest(manifest), manifest)


class _Stalls:
    """Which cycles a port waits in, and what it carries while it is idle, which must not matter."""

    def __init__(self, seed: int = 1, p_in: float = 0.0, p_out: float = 0.0) -> None:
        self._draw, self._p_in, self._p_out = Random(seed), p_in, p_out

    def inward(self) -> bool:
        """Whether a request or an input beat is held back in this cycle."""
        return self._draw.random() < self._p_in

    def outward(self) -> bool:
        """Whether an output beat is not taken in this cycle."""
        return self._draw.random() < self._p_out

    def junk(self, ctx: Any, *signals: Value) -> None:
        """Set signals to anything."""
        for signal in signals:
            ctx.set(signal, self._draw.getrandbits(len(signal)))


class AmaranthModel:
    """A core in Amaranth's simulator. Implements :class:`rtlstm.sim.simulated_ports.Model`.

    ``waves`` is the file for waveforms, if it is not empty; the file is complete when the model is closed.
    Raises ConfigurationError if the file cannot be written.
    """

    def __init__(self, manifest: Manifest, waves: str = "", progress: Progress | None = None) -> None:
        self._ports = PortSpec.from_manifest(manifest)
        self._progress = progress
        self._stalls = _Stalls()
        self._cycle = 0
        self._reading = False
        self._command: Callable[[Any], Awaitable[Any]] | None = None
        self._results: list[Any] = []
        self._core = make_core(manifest)
        self._simulator = simulator(self._core)
        self._open = ExitStack()
        if waves:
            try:
                self._open.enter_context(self._simulator.write_vcd(waves))
            except OSError as error:
                raise ConfigurationError(
                    f"waveforms cannot be written to {waves}: {error.strerror}"
                ) from None
        self._simulator.add_testbench(self._serve)
        self._simulator.advance()

    @property
    def cycle(self) -> int:
        """Cycles since reset."""
        return self._cycle

    def resize(self, ports: PortSpec) -> None:
        """Take steps of other sizes from now on."""
        self._ports = ports

    def stalls(self, seed: int, p_in: float, p_out: float) -> None:
        """Hold back each request and input beat with probability ``p_in`` per cycle, each
        acceptance of an output with ``p_out``."""
        self._stalls = _Stalls(seed, p_in, p_out)

    def write(self, register: int, words: NDArray[np.uint32]) -> None:
        """Write words to a register."""

        async def play(ctx: Any) -> None:
            for word in words.tolist():
                await self._request(ctx, register, word)
                await self._tick(ctx)
            self._idle(ctx)

        self._run(play)

    def read(self, register: int, count: int) -> NDArray[np.uint32]:
        """Read a register ``count`` times."""
        bus = self._core.bus

        async def play(ctx: Any) -> list[int]:
            words = []
            for _ in range(count):
                await self._request(ctx, register)
                self._reading = True
                if not ctx.get(bus.read_valid):
                    await self._tick(ctx)
                    self._idle(ctx)
                    await self._until(ctx, bus.read_valid, 3)
                words.append(ctx.get(bus.read_data))
                await self._tick(ctx)
                self._reading = False
                self._idle(ctx)
            return words

        return np.array(self._run(play), dtype=np.uint32)

    def exchange(
        self,
        streams: NDArray[np.int32],
        x: NDArray[np.int32],
        suppress: NDArray[np.bool_] | None = None,
        ends: NDArray[np.bool_] | None = None,
    ) -> tuple[NDArray[np.int32], StepCycles]:
        """Run steps; return the outputs and the cycles of each step."""
        suppress, ends = step_marks(len(streams), suppress, ends)
        source = _Source(self._core, self._ports, streams, x, suppress, ends)
        sink = _Sink(self._core, self._ports, streams, suppress)

        async def play(ctx: Any) -> None:
            moved = self._cycle
            while sink.delivered < len(streams):
                source.drive(ctx, self._stalls)
                sink.drive(ctx, self._stalls)
                if sink.look(ctx, self._cycle, source.sent) | source.look(ctx, self._cycle):
                    moved = self._cycle
                sink.pass_suppressed(source.sent)
                if self._cycle - moved > self._ports.timeout_cycles:
                    raise PortFault(1, sink.delivered).error(self._ports)
                if self._progress and not self._cycle % 1024:
                    self._progress("simulating", sink.delivered, len(streams))
                await self._tick(ctx)
            ctx.set(self._core.x.valid, 0)
            ctx.set(self._core.y.ready, 0)

        self._run(play)
        return sink.y, StepCycles(source.begun, source.accepted, sink.offered)

    def close(self) -> None:
        """End the simulation."""
        self._open.close()

    def _run(self, command: Callable[[Any], Awaitable[T]]) -> T:
        """Let the testbench play a command; return its result. The simulation rests between commands."""
        self._command = command
        while not self._results:
            self._simulator.advance()
        result: T = self._results.pop()
        return result

    async def _serve(self, ctx: Any) -> None:
        while True:
            if self._command is not None:
                self._results.append(await self._command(ctx))
                self._command = None
            # The next cycle is the next command's.
            await ctx.delay(0)

    async def _tick(self, ctx: Any) -> None:
        if not self._reading and ctx.get(self._core.bus.read_valid):
            raise PortFault(14, -1).error(self._ports)
        await ctx.tick()
        self._cycle += 1

    async def _until(self, ctx: Any, event: Value, fault: int) -> None:
        limit = self._cycle + self._ports.timeout_cycles
        while not ctx.get(event):
            if self._cycle > limit:
                raise PortFault(fault, -1).error(self._ports)
            await self._tick(ctx)

    async def _request(self, ctx: Any, register: int, word: int | None = None) -> None:
        """Offer a request, a write if there is a word; return in the cycle that accepts it."""
        bus = self._core.bus
        while self._stalls.inward():
            self._idle(ctx)
            await self._tick(ctx)
        ctx.set(bus.address, register)
        ctx.set(bus.write, word is not None)
        if word is None:
            self._stalls.junk(ctx, bus.data)
        else:
            ctx.set(bus.data, word)
        ctx.set(bus.valid, 1)
        await self._until(ctx, bus.ready, 2)

    def _idle(self, ctx: Any) -> None:
        bus = self._core.bus
        ctx.set(bus.valid, 0)
        self._stalls.junk(ctx, bus.address, bus.write, bus.data)


class _Source:
    """Gives steps to a core's input, and notes when their first and last beats are accepted."""

    def __init__(
        self,
        core: CorePorts,
        ports: PortSpec,
        streams: NDArray[np.int32],
        x: NDArray[np.int32],
        suppress: NDArray[np.bool_],
        ends: NDArray[np.bool_],
    ) -> None:
        self._x, self._ports, self._steps = core.x, ports, len(streams)
        self._words = x.astype(np.int64) & ((1 << ports.data_bits) - 1)
        self._marks = {"stream": streams.astype(np.int64), "suppress": suppress.astype(np.int64)}
        if ports.sequence_steps:
            self._marks["last"] = ends.astype(np.int64)
        self._beat, self._holding = 0, False
        self.sent = 0
        """Steps that were accepted."""
        self.begun, self.accepted = np.full((2, self._steps), -1, dtype=np.int64)

    def drive(self, ctx: Any, stalls: _Stalls) -> None:
        """Offer a beat, if none is offered that was not accepted yet."""
        if self._holding:
            return
        payload = self._x.payload
        fields = [Value.cast(payload[name]) for name in ("data", *self._marks)]
        stalls.junk(ctx, *fields)
        self._holding = self.sent < self._steps and not stalls.inward()
        ctx.set(self._x.valid, self._holding)
        if self._holding:
            # Words past the last input stay what they are.
            first, bits = self._beat * self._ports.beat_in, self._ports.data_bits
            for index, word in enumerate(
                self._words[self.sent, first : first + self._ports.beat_in].tolist()
            ):
                ctx.set(fields[0].word_select(index, bits), word)
            for name, values in self._marks.items():
                ctx.set(Value.cast(payload[name]), int(values[self.sent]))

    def look(self, ctx: Any, cycle: int) -> bool:
        """Whether a beat is accepted."""
        if not (self._holding and ctx.get(self._x.ready)):
            return False
        self._holding = False
        if self._beat == 0:
            self.begun[self.sent] = cycle
        self._beat += 1
        if self._beat == self._ports.beats_in:
            self.accepted[self.sent] = cycle
            self._beat, self.sent = 0, self.sent + 1
        return True


class _Sink:
    """Takes steps from a core's output, and notes when their last beats are offered."""

    def __init__(
        self, core: CorePorts, ports: PortSpec, streams: NDArray[np.int32], suppress: NDArray[np.bool_]
    ) -> None:
        self._y, self._ports = core.y, ports
        self._streams, self._suppress = streams, suppress
        self._words: list[int] = []
        self._offering: int | None = None
        self.delivered = 0
        """Steps whose output was taken, or not wanted."""
        self.y = np.zeros((len(streams), ports.outputs), dtype=np.int32)
        self.offered = np.full(len(streams), -1, dtype=np.int64)

    def drive(self, ctx: Any, stalls: _Stalls) -> None:
        """Be ready, or not."""
        ctx.set(self._y.ready, not stalls.outward())

    def look(self, ctx: Any, cycle: int, sent: int) -> bool:
        """Whether a beat is taken."""
        y, step, ports = self._y, self.delivered, self._ports
        if not ctx.get(y.valid):
            self._check(self._offering is None, 6)
            return False
        self._check(sent > step, 7)
        beat = ctx.get(Value.cast(y.payload))
        self._check(self._offering in (None, beat), 6)
        self._check(ctx.get(y.payload.stream) == self._streams[step], 4)
        last = len(self._words) == (ports.beats_out - 1) * ports.beat_out
        self._check(ctx.get(y.payload.last) == last, 5)
        if self._offering is None and last:
            self.offered[step] = cycle
        self._offering = beat
        if not ctx.get(y.ready):
            return False
        self._offering = None
        data = ctx.get(y.payload.data)
        mask = (1 << ports.y_bits) - 1
        self._words += [data >> index * ports.y_bits & mask for index in range(ports.beat_out)]
        if last:
            self._check(not any(self._words[ports.outputs :]), 8)
            self.y[step] = sign_extend(np.array(self._words[: ports.outputs], dtype=np.int64), ports.y_bits)
            self._words, self.delivered = [], step + 1
        return True

    def pass_suppressed(self, sent: int) -> None:
        """A step without an output is done when its input is taken: nothing else is heard of it."""
        while self.delivered < sent and self._suppress[self.delivered]:
            self.delivered += 1

    def _check(self, holds: bool, fault: int) -> None:
        if not holds:
            raise PortFault(fault, self.delivered).error(self._ports)
