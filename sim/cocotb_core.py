"""A build's core in a cocotb test: the ordinary driver on the dut, and a scoreboard beside it.

The driver's calls block, so they run in threads of cocotb's (:func:`cocotb.task.bridge`); its transports wait
for the simulation there (:func:`cocotb.task.resume`).
"""

import os
import warnings
from asyncio import CancelledError
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

import numpy as np

try:
    import cocotb
except ModuleNotFoundError:
    from rtlstm.spec.errors import AbsentImportError

    raise AbsentImportError(
        "rtlstm.cocotb needs the package cocotb; install it with pip install 'rtlstm[sim]'"
    ) from None
from cocotb.clock import Clock
from cocotb.task import bridge, resume
from cocotb.triggers import Event, Lock, Timer, ValueChange
from numpy.typing import ArrayLike, NDArray

from rtlstm.host.accelerator import Accelerator, Outputs
from rtlstm.host.device import check_loadable
from rtlstm.host.mmio import MmioTransport
from rtlstm.host.raw_values import CodesWarning, Steps, to_caller
from rtlstm.host.state import State
from rtlstm.host.stream import Stream
from rtlstm.host.transport import Transport, register_words
from rtlstm.sim.cocotb_ports import (
    AxiLiteRegisters,
    AxiStreams,
    CoreClock,
    Monitor,
    PlainRegisters,
    PlainStreams,
    Registers,
    Stalls,
    Streams,
    WishboneRegisters,
    find_core,
    has_ports,
    level,
)
from rtlstm.sim.cocotb_run import BUILD_VARIABLE
from rtlstm.sim.scoreboard import Scoreboard
from rtlstm.sim.simulated_ports import PortSpec, random_input
from rtlstm.spec.buses import registers_of
from rtlstm.spec.errors import ConfigurationError, DeviceError
from rtlstm.spec.files import as_path
from rtlstm.spec.fixed import IntArray
from rtlstm.spec.layout import Pad
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.registers import Register

_CLOCKS = ("aclk", "clk", "clock")
_RESETS = ("aresetn", "rst_n", "resetn", "rst", "reset")
_PLAIN = {"x": "x", "y": "y", "registers": "bus"}
_BUS_PREFIXES = {
    "axi": {"x": "s_axis_x", "y": "m_axis_y", "registers": "s_axi"},
    "axilite": {"registers": "s_axi"},
    "wishbone": {"registers": "wb"},
}
"""Prefixes of a build's own ports, by its bus; of a core without a bus those of ``_PLAIN``."""
_RESET_CYCLES = 8
_SETTLED = 4
"""Cycles before a call sends steps.

A core loads its first operation after the memory window was open, and its outputs go through a wrapper.
"""

P = ParamSpec("P")
Result = TypeVar("Result")


class Core:
    """A core, or its bus wrapper, in a simulation: at the top, or anywhere in a design.

    If ``dut`` is the core or its wrapper, all its ports are driven. If the core is inside a design, those
    ports of the design are driven that are named here; what the design drives itself is only watched. In
    every case a scoreboard compares each output of the core with the golden model, and the cycle of each
    step's last output beat with the prediction, which knows the pauses between its input beats. A difference
    fails the test.

    Parameters
    ----------
    dut
        Handle of the module with the ports to drive.
    build
        The build folder; by default the run's.
    core
        The instance of the core or wrapper, its handle or its path below ``dut``, such as ``"filter.core"``;
        by default ``dut`` itself.
    clock, reset
        Names of ports of ``dut``; by default the first of ``aclk``, ``clk`` and ``clock``, and of
        ``aresetn``, ``rst_n``, ``resetn``, ``rst`` and ``reset``. A reset whose name ends with ``n`` is
        active low.
    x, y
        Prefixes of a design's ports for the core's steps: those of a core (``x`` for ``x_valid``) or of
        AXI4-Streams (``s_axis_x`` for ``s_axis_x_tvalid``).
    registers
        Prefix of a design's ports for the core's registers: those of a core (``bus`` for ``bus_valid``), of
        AXI4-Lite (``s_axi`` for ``s_axi_awvalid``) or of Wishbone (``wb`` for ``wb_cyc``); or an object with
        coroutines ``write(number, word)`` and ``read(number)``.
    base
        Address of the first register, in bytes.
    period_ns
        Period of the clock that :meth:`start` starts.

    Raises
    ------
    BuildError
        If there is no such build.
    ConfigurationError
        If no build is named, or ``dut`` or the instance has not the ports.
    """

    def __init__(
        self,
        dut: Any,
        build: str | Path | None = None,
        *,
        core: Any = None,
        clock: str | None = None,
        reset: str | None = None,
        x: str | None = None,
        y: str | None = None,
        registers: str | Registers | None = None,
        base: int = 0,
        period_ns: float = 10.0,
    ) -> None:
        named = build if build is not None else os.environ.get(BUILD_VARIABLE, "")
        if not str(named):
            raise ConfigurationError(
                f"Core must know its build: give the folder, or set {BUILD_VARIABLE} to it"
            )
        self.folder = as_path("the build folder", named)
        """The build folder."""
        self._folders = {0: self.folder}
        """Builds that were loaded, by the network that they are."""
        self.dut = dut
        self.manifest = Manifest.load(self.folder)
        """The build that the core holds."""
        self.core = find_core(_inside(dut, core), self.manifest.name)
        """Handle of the core itself, inside its wrapper if there is one."""
        self.scoreboard = Scoreboard(self.manifest)
        """Counts what was compared."""
        self._period_ns, self._base = period_ns, base
        self._clock_name = _port(dut, "clock", clock, _CLOCKS)
        self.clock = CoreClock(getattr(dut, self._clock_name))
        self._reset_name = _found(dut, _RESETS) if reset is None else _port(dut, "reset", reset, _RESETS)
        self._given = None if registers is None or isinstance(registers, str) else registers
        prefixes: dict[str, str] = {}
        if core is None:
            prefixes = _PLAIN if self.core is dut else _BUS_PREFIXES.get(self.manifest.parameters.bus, {})
        self._x = _ports(dut, x or prefixes.get("x"), _X)
        self._y = _ports(dut, y or prefixes.get("y"), _Y)
        prefix = registers if isinstance(registers, str) else prefixes.get("registers")
        self._prefix = _ports(dut, prefix, _REGISTERS) if self._given is None else None
        if (self._x is None) != (self._y is None):
            given, missing = ("y", "x") if self._x is None else ("x", "y")
            raise ConfigurationError(
                f"x and y must be given together, but {missing} is missing; give {missing}, or leave out "
                f"{given}: then the design sends the steps"
            )
        self.stalls = Stalls()
        self.monitor = Monitor(self.core, self.clock, self.scoreboard, self._interrupt)
        self.registers: Registers | None = self._given
        self.streams: Streams | None = None
        self._accelerator: Accelerator | None = None
        self._stream: CoreStream | None = None
        self._lock = Lock()
        self._watching: Any = None
        self._resets = self._resets_before = 0
        """Resets of the dut so far, and when the call that is under way began."""
        self._working: Any = None
        """The task that is at the ports for that call."""
        self._usable = Event()
        """Set but during :meth:`reset`."""
        self._usable.set()
        self._stopped = False
        """Whether a call has ended with an error while it sent steps, and there was no reset since."""

    @classmethod
    async def open(cls, dut: Any, build: str | Path | None = None, **options: Any) -> Self:
        """Make a core and :meth:`start` it."""
        core = cls(dut, build, **options)
        await core.start()
        return core

    def watch(self) -> None:
        """Begin to watch the core, without driving anything. :meth:`start` does it, too."""
        if self._watching is None:
            self._watching = cocotb.start_soon(self.monitor.start())
            cocotb.start_soon(self._watch_reset())

    async def start(
        self, *, clock: bool = True, reset: bool = True, load: bool = True, verify: bool = False
    ) -> None:
        """Start the clock, reset the design and load the build's weights.

        Parameters
        ----------
        clock
            Start the clock; without it, the test has done so.
        reset
            Reset the design for 8 cycles; without it, the test does so.
        load
            Load the weights, if ``dut`` has the registers; without it, the design does so.
        verify
            Read the weights back, which takes as long again.

        Raises
        ------
        DeviceError
            If the core is of another build.
        ImageError
            If ``weights.bin`` is damaged or of another build.
        ToolError
            If the bus needs a package that is not installed.
        """
        # Icarus does not hear of what is set before the simulation has begun.
        await Timer(1, "step")
        if reset:
            # Bus models hear only of a reset that begins when they are there.
            self._set_reset(False)
            await Timer(1, "step")
        self._connect()
        if reset:
            self._set_reset(True)
        self.watch()
        if clock:
            Clock(self.clock.signal, self._period_ns, unit="ns").start(start_high=False)
        await self.clock.measure()
        if reset:
            await self._cycles(_RESET_CYCLES)
            self._set_reset(False)
            await self._cycles(3)
        if self.registers is not None:
            await self._load(load, verify)

    async def reset(self, cycles: int = _RESET_CYCLES) -> None:
        """Reset the design for some cycles: streams begin anew, weights stay, steps under way are lost.

        Calls in other tasks, such as :meth:`sequence`, that are under way or wait for others raise
        DeviceError there; one that begins during the reset waits for its end. A loadable core must be loaded
        again.

        Raises
        ------
        ConfigurationError
            If the design has no reset.
        """
        self._set_reset(True)
        self._usable.clear()
        try:
            await self._cycles(cycles)
            self._set_reset(False)
            await self._cycles(3)
        finally:
            # A reset that is cancelled ends here.
            self._set_reset(False)
            if self._accelerator is not None:
                self._accelerator.close_streams()
                for other in self._accelerator.device.residents.accelerators.values():
                    other.close_streams()
                self._stream = None
            self._usable.set()

    def stall(self, x: float = 0.0, y: float = 0.0, seed: int = 1) -> None:
        """Stall at random from now on. Zeros end the stalls.

        In each cycle, input beats and register requests wait with probability ``x``, output beats with ``y``.
        Cycles are not compared while outputs are held back.

        Raises
        ------
        ConfigurationError
            If a probability is not in [0, 1), or the design drives the steps itself.
        """
        if (x or y) and self._x is None and self._given is None and self._prefix is None:
            raise ConfigurationError(f"{self._who()} drives the core's ports itself: stall its own inputs")
        self.stalls.set(x, y, seed)

    async def call(
        self, function: Callable[Concatenate[Accelerator, P], Result], *args: P.args, **options: P.kwargs
    ) -> Result:
        """Call ``function(accelerator, ...)`` with the driver on this core, and return its result.

        The function may use everything that :class:`rtlstm.Accelerator` has. It runs in a thread; simulated
        time passes only while the driver waits for the core.

        Raises
        ------
        ConfigurationError
            If the design drives the core's registers itself.
        DeviceError
            If the design is reset before the call has ended.
        """
        if self._accelerator is None:
            raise ConfigurationError(
                f"{self._who()} has no ports for the core's registers, or start was not called: the core can "
                "only be watched; name the ports' prefix (registers=), or give an object that reaches them"
            )
        async with self._alone():
            self.monitor.check()
            result = await bridge(function)(self._accelerator, *args, **options)
        self.monitor.check()
        return result

    async def run(
        self,
        x: ArrayLike,
        lengths: ArrayLike | None = None,
        state: Any = None,
        batch_first: bool | None = None,
        outputs: Outputs = "all",
        pad: Pad = "back",
        network: int | None = None,
    ) -> tuple[NDArray[Any], State]:
        """Run whole sequences, of a device of several networks on this one.

        The other arguments and the results are those of :meth:`rtlstm.Accelerator.run`.
        """

        def run(driver: Accelerator) -> tuple[NDArray[Any], State]:
            chosen: Accelerator = driver if network is None else driver.device.residents.accelerator(network)
            return chosen.run(x, lengths, state, batch_first, outputs, pad)

        return await self.call(run)

    async def load(self, folder: str | Path, network: int | None = None, verify: bool = False) -> None:
        """Load another build, as this network of several; see :meth:`rtlstm.Accelerator.load`."""
        await self.call(Accelerator.load, folder, verify, network)
        self._folders[network or 0] = as_path("the build folder", folder)

    def expect(self, folder: str | Path) -> None:
        """Tell the scoreboard of a build that the design itself loads, beside others or in their place.

        Raises
        ------
        BuildError
            If there is no such build.
        ConfigurationError
            If it is not for this device.
        """
        manifest = Manifest.load(as_path("the build folder", folder))
        check_loadable(manifest, self.manifest)
        self.scoreboard.adopt(manifest)

    async def stream(self, network: int | None = None, after: "CoreStream | None" = None) -> "CoreStream":
        """Reserve a stream, of this network, or to go on after another one, which is closed.

        See :meth:`rtlstm.Accelerator.stream`.
        """
        before = after.stream if isinstance(after, CoreStream) else after
        return CoreStream(self, await self.call(Accelerator.stream, network, before))

    async def _default_stream(self) -> "CoreStream":
        if self._stream is None or self._stream.stream.closed:
            self._stream = await self.stream()
        return self._stream

    async def step(self, x: ArrayLike) -> NDArray[Any]:
        """Compute one step of the core's own stream: ``(inputs,)`` to ``(outputs,)``."""
        return await (await self._default_stream()).step(x)

    async def sequence(self, x: ArrayLike) -> NDArray[Any]:
        """Compute steps back to back: ``(T, inputs)`` to ``(T, outputs)``.

        They continue the core's own stream. A build of whole sequences takes them as one sequence.
        """
        if self.manifest.sequence is not None:
            y, _ = await self.run(x)
            return y
        return await (await self._default_stream()).steps(x)

    async def state(self) -> State:
        """``(h, c)`` of the core's own stream; see :attr:`rtlstm.Stream.state`."""
        return await (await self._default_stream()).state()

    async def set_state(self, value: Any) -> None:
        """Set ``(h, c)`` of the core's own stream."""
        await (await self._default_stream()).set_state(value)

    async def check(
        self,
        x: ArrayLike | None = None,
        steps: int | None = None,
        seed: int = 0,
        network: int | None = None,
    ) -> int:
        """Run sequences and compare outputs and final states with the golden model.

        Returns the number of words compared.

        Parameters
        ----------
        x
            As for :meth:`run`; if None, random codes over the whole range, a sequence for each of up to 8
            streams.
        steps
            Steps of random sequences; by default 64, or as many as the build allows.
        seed
            Of random sequences.
        network
            Which of several networks runs them; :meth:`load` has loaded it.
        """
        folder = self._folders.get(network or 0, self.folder)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CodesWarning)
            with Accelerator.open(folder) as golden:
                given, first = (random_input(golden.manifest, steps, seed), False) if x is None else (x, None)
                wanted = golden.run(given, batch_first=first)
            found = await self.run(given, batch_first=first, network=network)
        words = 0
        for name, must, has in zip(("y", "h", "c"), _arrays(wanted), _arrays(found), strict=True):
            for part, (one, other) in enumerate(zip(must, has, strict=True)):
                for where in map(tuple, np.argwhere(one != other)[:1].tolist()):
                    raise AssertionError(
                        f"{name} (part {part}) at {where} must be {one[where]}, not {other[where]}"
                    )
                words += one.size
        return words

    async def output(self) -> NDArray[Any]:
        """Wait for the core's next output, of a step that the design sent: ``(outputs,)`` floats.

        Of a device that gives the K largest ones, an array ``(K,)`` of ``number`` and ``score``.

        Outputs are kept until they are taken here, or a call sends steps.

        Raises
        ------
        DeviceError
            If none comes for as long as the slowest step takes several times.
        """
        await self._outputs(lambda: 1 - len(self.scoreboard.outputs))
        number, y = self.scoreboard.outputs.popleft()
        manifest, _ = self.scoreboard.build_of(number)
        return to_caller(y[manifest.schedule.output_index], manifest, np.empty(0))

    async def drain(self) -> None:
        """Wait until the core has given the output of every step that it has accepted so far.

        A reset throws outputs away: they are not waited for any more. After a call that has ended with an
        error, the step that it had begun to send is waited for, too.

        Raises
        ------
        DeviceError
            If an output does not come.
        """
        if self._stopped:
            await self._ports_idle()
            await self._cycles(_SETTLED)
        # A step that was accepted at this very edge counts, too, and the monitor may wake later at it.
        await self._cycles(1)
        board = self.scoreboard
        accepted = board.steps
        await self._outputs(lambda: sum(step.number < accepted for step in board.due))

    async def read(self, register: Register) -> int:
        """Read a register: an unsigned 32-bit word."""
        async with self._alone():
            return await self._uninterrupted(self._read(int(register)))

    async def write(self, register: Register, *words: int) -> None:
        """Write 32-bit words to a register, one after the other."""
        async with self._alone():
            await self._uninterrupted(self._write_words(int(register), register_words(words).tolist()))

    # What the transports are made of.

    @asynccontextmanager
    async def _alone(self) -> AsyncIterator[None]:
        """Wait for earlier calls and for the end of a reset; then the core is this call's alone."""
        before = self._resets
        async with self._lock:
            await self._usable.wait()
            self._resets_before = before
            self._check_reset()
            yield

    def _check_reset(self) -> None:
        """Raise DeviceError if the dut was reset since the call began."""
        if self._resets != self._resets_before:
            raise DeviceError(
                f"{self._who()} must not be reset while a call is under way, but it was, and what the call "
                "had begun is lost; call again after the reset, or expect this error where a test wants the "
                "reset"
            )

    async def _watch_reset(self) -> None:
        """End what is under way at each reset of the dut, whoever resets it.

        Not at those of the core alone: the driver itself makes them, by a register.
        """
        signal, low = self._reset()
        while signal is not None:
            await ValueChange(signal)
            if signal.value == int(not low):
                self._resets += 1
                self._interrupt()
                if self._stopped and self.streams is not None:
                    self.streams.drop()
                self._stopped = False

    def _interrupt(self) -> bool:
        """End what a call does at the ports; return whether a call is under way."""
        if self._working is not None:
            self._working.cancel()
        return self._lock.locked()

    async def _uninterrupted(self, work: Coroutine[Any, None, Result]) -> Result:
        """Await what a call does at the ports; DeviceError if the dut was reset since the call began."""
        try:
            self._check_reset()
        except DeviceError:
            work.close()
            raise
        self._working = cocotb.start_soon(work)
        try:
            result: Result = await self._working
        except CancelledError:
            # A failure, or a reset, has ended it; or else the test.
            self.monitor.check()
            self._check_reset()
            raise
        finally:
            self._working = None
        self.monitor.check()
        return result

    async def _read(self, register: int) -> int:
        self.monitor.check()
        assert self.registers is not None, f"{self._who()} has no ports for the core's registers"
        return await self.registers.read(register)

    async def _write(self, register: int, word: int) -> None:
        self.monitor.check()
        assert self.registers is not None, f"{self._who()} has no ports for the core's registers"
        await self.registers.write(register, word)

    async def _write_words(self, register: int, words: list[int]) -> None:
        for word in words:
            await self._write(register, word)

    async def _read_words(self, register: int, count: int) -> list[int]:
        return [await self._read(register) for _ in range(count)]

    async def _exchange(self, steps: Steps) -> IntArray:
        """Send steps and return their outputs, zeros for suppressed ones."""
        streams, outputs = self.streams, self.scoreboard.outputs
        assert streams is not None
        await self._cycles(_SETTLED)
        self._check_nothing_due()
        await self._ports_idle()
        self._check_nothing_due()
        # Outputs of steps that others sent are not this call's.
        streams.drop()
        outputs.clear()
        self._stopped = False
        due = np.flatnonzero(~steps.suppress)
        sending = streams.begin(steps)
        finishing: Any = None
        try:
            await self._outputs(lambda: len(due) - len(outputs))
            await self._sent(sending)
            given = [outputs.popleft() for _ in due]
            finishing = cocotb.start_soon(
                streams.finish([each for _, each in given], [to for to, _ in given])
            )
            if not await self.clock.wait(finishing, self.scoreboard.ports.timeout_cycles):
                raise DeviceError(
                    f"the core has given {len(given)} outputs, but not all have come out of its wrapper"
                )
        except (CancelledError, DeviceError) as error:
            if finishing is not None:
                finishing.cancel()
            outputs.clear()
            self._stopped = isinstance(error, DeviceError)
            if self._stopped:
                streams.stop()
            else:
                streams.drop()
            raise
        y = np.zeros((len(steps), self.manifest.program.outputs), dtype=np.int64)
        if given:
            y[due] = [words for _, words in given]
        return y

    def _check_nothing_due(self) -> None:
        """Raise DeviceError if the core has steps of somebody else."""
        board = self.scoreboard
        if board.due or board.unfinished:
            raise DeviceError(
                f"{self._who()} must have no steps under way when a call sends steps, but has "
                f"{len(board.due)} of an earlier call, or sent by hand; drain or reset first"
                if board.due
                else f"{self._who()} must have whole steps when a call sends more, but of one of an earlier "
                "call, or sent by hand, a part is missing; send it, or reset first"
            )

    async def _ports_idle(self) -> None:
        """Wait until nothing moves through the ports of steps.

        Raises DeviceError if something waits there and the core accepts no step.
        """
        board, cycles = self.scoreboard, self.scoreboard.ports.timeout_cycles
        left, before = cycles, board.steps
        while self.streams is not None and not self.streams.idle():
            if board.steps != before:
                left, before = cycles, board.steps
            if not left:
                raise DeviceError(
                    f"the ports of {self._who()} for steps must become idle, but a step of before has waited "
                    f"there for {cycles} cycles; let the core go on, or reset first"
                )
            left -= 1
            await self.clock.edge

    async def _sent(self, sending: Any) -> None:
        """Wait until all steps of a call are accepted."""
        board, cycles = self.scoreboard, self.scoreboard.ports.timeout_cycles
        while not sending.done():
            before = board.steps
            if not await self.clock.wait(sending.complete, cycles) and board.steps == before:
                raise DeviceError(
                    f"the core must accept all steps, but has accepted none for {cycles} cycles; "
                    f"{self._waits()}"
                )
        await sending

    async def _outputs(self, missing: Callable[[], int]) -> None:
        """Wait until so many outputs have been given that none is missing."""
        board, cycles = self.scoreboard, self.scoreboard.ports.timeout_cycles
        while missing() > 0:
            self.monitor.given.clear()
            before = board.steps
            came = await self.clock.wait(self.monitor.given.wait(), cycles)
            self.monitor.check()
            if not (came or self.monitor.given.is_set()) and board.steps == before:
                raise DeviceError(
                    f"the core must give the outputs of {missing()} more steps, but has given none for "
                    f"{cycles} cycles; {self._waits()}"
                )
        self.monitor.check()

    def _waits(self) -> str:
        """Say what the core waits for, as its ports show it."""
        core, board = self.core, self.scoreboard
        if level(core.y_valid.value, "y_valid"):
            return "it offers one, but y_ready is 0"
        if board.beats_in:
            return f"of the next step it has {board.beats_in} of {board.ports.beats_in} input beats"
        if level(core.x_valid.value, "x_valid"):
            return "it is offered a step, but x_ready is 0"
        return f"{len(board.due)} of them have been sent to it"

    def _adopt(self, manifest: Manifest) -> None:
        self.manifest = manifest
        self.scoreboard.adopt(manifest)
        if self.streams is not None:
            self.streams.resize(self.scoreboard.ports)

    def _connect(self) -> None:
        """Make what drives the ports that the dut has."""
        ports, clock, stalls = PortSpec.from_manifest(self.manifest), self.clock, self.stalls
        reset, low = self._reset()
        if self._prefix is not None:
            kind, prefix = self._prefix
            if kind == "axi":
                self.registers = AxiLiteRegisters(
                    self.dut, prefix, clock.signal, reset, low, self._base, stalls
                )
            elif kind == "wishbone":
                self.registers = WishboneRegisters(self.dut, prefix, clock.signal, self._base, stalls)
            else:
                self.registers = PlainRegisters(self.dut, prefix, clock, stalls, ports.timeout_cycles)
        if self._x is not None and self._y is not None:
            prefixes = (self._x[1], self._y[1])
            if self._x[0] == "axi":
                self.streams = AxiStreams(self.dut, prefixes, clock, reset, low, ports, stalls)
            else:
                self.streams = PlainStreams(self.dut, prefixes, clock, stalls, ports)

    async def _load(self, load: bool, verify: bool) -> None:
        def open_driver() -> Accelerator:
            fifos = Register.X_DATA in registers_of(self.manifest.parameters.bus)
            transport = _FifoTransport if self.streams is None and fifos else _CoreTransport
            accelerator = Accelerator(transport(self), self.manifest)
            if load:
                accelerator.begin_as(self.folder)
                accelerator.load_weights(self.folder / "weights.bin", verify)
            return accelerator

        async with self._alone():
            self._accelerator = await bridge(open_driver)()

    def _seconds(self) -> float:
        """The time that a driver waits by: 5 seconds are as long as any step may take."""
        return 5.0 * self.clock.cycle / self.scoreboard.ports.timeout_cycles

    def _reset(self) -> tuple[Any, bool]:
        """The reset's handle, None if there is none, and whether it is active low."""
        if self._reset_name is None:
            return None, False
        return getattr(self.dut, self._reset_name), _active_low(self._reset_name)

    def _set_reset(self, active: bool) -> None:
        signal, low = self._reset()
        if signal is None:
            raise ConfigurationError(
                f"{self._who()} must have a reset to be reset, one of {', '.join(_RESETS)}; name it (reset=)"
            )
        signal.value = int(active != low)

    async def _cycles(self, count: int) -> None:
        for _ in range(count):
            await self.clock.edge

    def _who(self) -> str:
        return str(self.dut._path)


class CoreStream:
    """A sequence in progress, as :class:`rtlstm.Stream`; made by :meth:`Core.stream`."""

    def __init__(self, core: Core, stream: Stream) -> None:
        self._core = core
        self.stream = stream
        """The driver's stream."""

    async def step(self, x: ArrayLike) -> NDArray[Any]:
        """Compute one step: ``(inputs,)`` to ``(outputs,)``."""
        return await self._core.call(lambda _: self.stream.step(x))

    async def steps(self, x: ArrayLike) -> NDArray[Any]:
        """Compute ``T`` steps back to back: ``(T, inputs)`` to ``(T, outputs)``."""
        return await self._core.call(lambda _: self.stream.steps(x))

    async def state(self) -> State:
        """``(h, c)`` as floats; see :attr:`rtlstm.Stream.state`."""
        return await self._core.call(lambda _: self.stream.state)

    async def set_state(self, value: Any) -> None:
        """Set ``(h, c)``."""
        await self._core.call(lambda _: setattr(self.stream, "state", value))

    async def reset(self) -> None:
        """Set the state to that in which the model begins, zeros for most."""
        await self._core.call(lambda _: self.stream.reset())

    async def close(self) -> None:
        """Release the stream."""
        await self._core.call(lambda _: self.stream.close())


class _CoreTransport(Transport):
    """A transport to a core's ports in the simulation, for the threads of :func:`cocotb.task.bridge`."""

    takes_sequences = True
    simulated = True

    def __init__(self, core: Core) -> None:
        super().__init__(core.manifest)
        self._core = core

        async def write(register: int, words: list[int]) -> None:
            await core._uninterrupted(core._write_words(register, words))

        async def read(register: int, count: int) -> list[int]:
            return await core._uninterrupted(core._read_words(register, count))

        async def exchange(steps: Steps) -> IntArray:
            return await core._uninterrupted(core._exchange(steps))

        self._write, self._read, self._exchange = resume(write), resume(read), resume(exchange)

    def write(self, register: Register, words: Sequence[int] | IntArray) -> None:
        self._write(int(register), register_words(words).tolist())

    def read(self, register: Register, count: int = 1) -> IntArray:
        return np.array(self._read(int(register), count), dtype=np.int64)

    def run_steps(self, steps: Steps) -> IntArray:
        if self._core.streams is None:
            raise DeviceError(
                f"{self._core._who()} has no ports for the core's steps: its own design sends them; drive "
                "its inputs, and take what the core makes of them with output, or name the ports (x=, y=)"
            )
        y: IntArray = self._exchange(steps)
        return y

    def adopt(self, manifest: Manifest) -> None:
        self.manifest = manifest
        self._core._adopt(manifest)

    def close(self) -> None:
        """The simulation goes on."""


class _FifoTransport(MmioTransport):
    """A core whose steps go through its registers, too; the test is told of each build that is loaded."""

    def __init__(self, core: Core) -> None:
        super().__init__(_Blocking(core), core.manifest, core._seconds)
        self._core = core

    def adopt(self, manifest: Manifest) -> None:
        super().adopt(manifest)
        self._core._adopt(manifest)


class _Blocking:
    """A core's registers for a driver that reads and writes words one by one."""

    def __init__(self, core: Core) -> None:
        async def read(register: int) -> int:
            return await core._uninterrupted(core._read(register))

        async def write(register: int, word: int) -> None:
            await core._uninterrupted(core._write(register, word))

        self._read, self._write = resume(read), resume(write)

    def read(self, register: Register) -> int:
        return self._read(int(register))

    def write(self, register: Register, word: int) -> None:
        self._write(int(register), word)

    def close(self) -> None:
        """The simulation goes on."""


_X = {"plain": ("valid", "ready", "data", "stream", "quiet"), "axi": ("tvalid", "tready", "tdata")}
_Y = {"plain": ("valid", "ready"), "axi": _X["axi"]}
_REGISTERS = {
    "plain": ("valid", "ready", "address", "write", "data", "read_valid", "read_data"),
    "axi": ("awvalid", "arvalid"),
    "wishbone": ("cyc", "stb"),
}
"""Ports by which an interface is known, the one that its kind is named by first."""


def _ports(dut: Any, prefix: str | None, kinds: Mapping[str, tuple[str, ...]]) -> tuple[str, str] | None:
    """Return the kind of the ports with a prefix, and the prefix; None without one.

    Raises ConfigurationError if there are no such ports.
    """
    if prefix is None:
        return None
    for kind, names in kinds.items():
        if has_ports(dut, *(f"{prefix}_{name}" for name in names)):
            return kind, prefix
    for names in kinds.values():
        if has_ports(dut, f"{prefix}_{names[0]}"):
            missing = next(name for name in names if not has_ports(dut, f"{prefix}_{name}"))
            raise ConfigurationError(
                f"{dut._path} must have {', '.join(f'{prefix}_{name}' for name in names)}, but has no "
                f"{prefix}_{missing}"
            )
    known = " or ".join(f"{prefix}_{names[0]}" for names in kinds.values())
    raise ConfigurationError(f"{dut._path} must have ports that begin with {prefix}_, such as {known}")


def _found(dut: Any, names: Sequence[str]) -> str | None:
    return next((name for name in names if hasattr(dut, name)), None)


def _active_low(reset: str) -> bool:
    """Whether a reset's name says so: ``rst_n``, ``aresetn``, ``rst_ni``, but not ``reset_in``."""
    name = reset.lower()
    return name.endswith(("n", "ni", "n_i")) and not name.endswith("in")


def _port(dut: Any, what: str, given: str | None, usual: Sequence[str]) -> str:
    found = _found(dut, usual if given is None else [given])
    if found is None:
        names = given or ", ".join(usual)
        raise ConfigurationError(
            f"{dut._path} must have a port for the {what}, but it has no {names}; name it ({what}=)"
        )
    return found


def _inside(dut: Any, core: Any) -> Any:
    """Return the handle of an instance: a handle, a path below ``dut``, or ``dut`` itself if None."""
    if not isinstance(core, str):
        return dut if core is None else core
    handle = dut
    for name in core.split("."):
        inner = getattr(handle, name, None)
        if inner is None:
            raise ConfigurationError(
                f"core must be the path of an instance, but {handle._path} has no {name!r}"
            )
        handle = inner
    return handle


def _arrays(result: tuple[NDArray[Any], State]) -> tuple[tuple[NDArray[Any], ...], ...]:
    """Return outputs, h and c of a run, each as its arrays."""
    y, (h, c) = result
    return tuple(part if isinstance(part, tuple) else (part,) for part in (y, h, c))
