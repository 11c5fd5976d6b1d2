"""What watches and drives a core's ports under cocotb: plain ports, AXI and Wishbone.

Signals are read just before the rising edge takes effect and written after it. A task sleeps until a signal
changes and does not wake in every cycle, because each call of Python costs as much as thousands of native
cycles.
"""

import random
from asyncio import CancelledError
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import cocotb
import numpy as np
from cocotb.simtime import get_sim_time
from cocotb.triggers import Event, First, RisingEdge, SimTimeoutError, ValueChange, with_timeout

from rtlstm.host.raw_values import Steps
from rtlstm.sim.scoreboard import Scoreboard
from rtlstm.sim.simulated_ports import PortSpec, pack_beats
from rtlstm.spec.errors import ConfigurationError, DeviceError
from rtlstm.spec.fixed import IntArray
from rtlstm.tools.toolchain import package_version

_CORE = (
    "x_data",
    "x_stream",
    "x_quiet",
    "x_valid",
    "x_ready",
    "bus_read_valid",
    "y_last",
    "y_valid",
    "y_ready",
)


def has_ports(handle: Any, *names: str) -> bool:
    """Whether a module has all of these ports."""
    return all(hasattr(handle, name) for name in names)


def find_core(handle: Any, name: str) -> Any:
    """Return the handle of the core itself: the given one, or the one inside a bus wrapper.

    Raises ConfigurationError if there is none.
    """
    inner = handle
    for _ in range(3):
        missing = [port for port in _CORE if not hasattr(inner, port)]
        if not missing:
            return inner
        if not hasattr(inner, "core"):
            break
        inner = inner.core
    missing = [port for port in _CORE if not hasattr(handle, port)]
    raise ConfigurationError(
        f"{handle._path} must be an instance of {name} or of its bus wrapper, but has no port {missing[0]}; "
        "give the path of the instance, such as core='filter.core'"
    )


def level(value: Any, name: str) -> int:
    """Return a signal's value as a number; AssertionError if it has X or Z bits."""
    try:
        # Loading reads many words: this is much faster than to ask the value about each of its bits.
        return int(str(value), 2)
    except ValueError:
        raise AssertionError(f"{name} has X or Z bits: {value}") from None


class CoreClock:
    """A core's clock, and the number of its cycle."""

    def __init__(self, signal: Any) -> None:
        self.signal = signal
        self.edge = RisingEdge(signal)
        self._start = 0
        self._period = 0

    async def measure(self) -> None:
        """Find out the period, which takes two edges."""
        if not self._period:
            await self.edge
            first = get_sim_time("step")
            await self.edge
            self._start, self._period = int(first), int(get_sim_time("step") - first)

    @property
    def cycle(self) -> int:
        """The number of the cycle that ends at this moment's rising edge."""
        return (int(get_sim_time("step")) - self._start) // (self._period or 1)

    async def wait(self, trigger: Any, cycles: int) -> bool:
        """Wait for a trigger; return whether it came within so many cycles.

        If it did not, that is known right after an edge, as for all that is written.
        """
        try:
            await with_timeout(trigger, cycles * self._period, "step")
        except SimTimeoutError:
            # The time is an edge's, but the edge has not been: what the caller writes now could be before it.
            await self.edge
            return False
        return True


class Stalls:
    """Random stalls: of input beats and register requests, and of output beats."""

    def __init__(self) -> None:
        self.set(0.0, 0.0, 1)

    def set(self, x: float, y: float, seed: int) -> None:
        """Stall with these probabilities per cycle from now on.

        Raises ConfigurationError if one is not in [0, 1).
        """
        if not (0.0 <= x < 1.0 and 0.0 <= y < 1.0):
            raise ConfigurationError(f"stall probabilities must be at least 0 and below 1, not {x} and {y}")
        self.x, self.y, self.random = x, y, random.Random(seed)

    def pauses(self, share: Callable[[], float]) -> Iterator[bool]:
        """Say for each cycle whether a channel pauses."""
        while True:
            yield self.random.random() < share()


class Monitor:
    """Tells a scoreboard what crosses a core's own ports, wherever the core is and whoever drives it.

    A bus tells its master that a request was taken some cycles after the core took it, so register requests
    are watched at the core, too. ``core`` is the handle of the core. ``interrupt`` is called at a failure, to
    end what is under way, and says whether a call was.
    """

    def __init__(
        self, core: Any, clock: CoreClock, scoreboard: Scoreboard, interrupt: Callable[[], bool]
    ) -> None:
        self.core, self.clock, self.scoreboard = core, clock, scoreboard
        self.interrupt = interrupt
        self.given = Event()
        """Set at every output, at a reset, and at a failure."""
        self.failure: AssertionError | None = None
        self._resetting = True
        self._resets = 0

    async def start(self) -> None:
        """Watch from the third edge of the clock on, until the test ends or a check fails."""
        await self.clock.measure()
        for task in (self._reset, self._input, self._output, self._requests):
            cocotb.start_soon(self._guarded(task()))

    async def _guarded(self, task: Any) -> None:
        try:
            await task
        except AssertionError as failure:
            self.failure = self.failure or failure
            self.given.set()
            if self.interrupt():
                # The call fails first: cocotb would complain that its thread cannot be cancelled.
                await self.clock.edge
            raise

    def check(self) -> None:
        """Raise AssertionError if a check has failed."""
        if self.failure is not None:
            raise self.failure

    async def _reset(self) -> None:
        signal = self.core.rst
        while True:
            resetting = not (signal.value.is_resolvable and level(signal.value, "rst") == 0)
            if resetting and not self._resetting:
                self._resets += 1
                self.scoreboard.reset()
                self.given.set()
            self._resetting = resetting
            await ValueChange(signal)

    async def _transfer(self, name: str, held: tuple[Any, ...] = ()) -> int:
        """Wait for the edge of a channel's next transfer; return the first cycle that offered it.

        ``held`` are the signals that must not change until the transfer.
        """
        valid, ready = getattr(self.core, f"{name}_valid"), getattr(self.core, f"{name}_ready")
        offered, first, resets = -1, "", self._resets
        while True:
            await self.clock.edge
            if self._resetting:
                await ValueChange(self.core.rst)
                continue
            if resets != self._resets:
                # What was offered before a reset is gone.
                offered, resets = -1, self._resets
            if not level(valid.value, f"{name}_valid"):
                if offered >= 0 and held:
                    await self._unless_reset(f"{name} was withdrawn before it was taken")
                    continue
                await ValueChange(valid)
                continue
            now = "".join(str(signal.value) for signal in held)
            if offered < 0:
                offered, first = self.clock.cycle, now
            if now != first:
                await self._unless_reset(f"{name} changed before it was taken")
                continue
            if level(ready.value, f"{name}_ready"):
                return offered
            await First(*(ValueChange(signal) for signal in (valid, ready, *held)))

    async def _unless_reset(self, failure: str) -> None:
        """Fail, unless a reset begins: a wrapper may pass it on some cycles after what is around it."""
        resets = self._resets
        for _ in range(4):
            await self.clock.edge
        assert resets != self._resets, failure

    async def _input(self) -> None:
        core, last = self.core, getattr(self.core, "x_last", None)
        held = (core.x_data, core.x_stream, core.x_quiet, *([] if last is None else [last]))
        while True:
            await self._transfer("x", held)
            self.scoreboard.input_beat(
                level(core.x_data.value, "x_data"),
                level(core.x_stream.value, "x_stream"),
                bool(level(core.x_quiet.value, "x_quiet")),
                last is not None and bool(level(last.value, "x_last")),
                self.clock.cycle,
            )

    async def _output(self) -> None:
        core = self.core
        while True:
            offered = await self._transfer("y", (core.y_data, core.y_stream, core.y_last))
            self.scoreboard.output_beat(
                level(core.y_data.value, "y_data"),
                level(core.y_stream.value, "y_stream"),
                bool(level(core.y_last.value, "y_last")),
                offered,
                self.clock.cycle,
            )
            self.given.set()

    async def _requests(self) -> None:
        core = self.core
        while True:
            await self._transfer("bus")
            register = level(core.bus_address.value, "bus_address")
            if level(core.bus_write.value, "bus_write"):
                self.scoreboard.wrote(register, level(core.bus_data.value, "bus_data"), self.clock.cycle)
            else:
                self.scoreboard.read(register, self.clock.cycle)


class Registers(Protocol):
    """Reaches a core's registers, one word at a time."""

    async def write(self, register: int, word: int) -> None:
        """Write an unsigned 32-bit word."""

    async def read(self, register: int) -> int:
        """Read an unsigned 32-bit word."""


class Streams(Protocol):
    """Sends steps and takes their outputs."""

    def resize(self, ports: PortSpec) -> None:
        """Take steps of other sizes from now on."""

    def begin(self, steps: Steps) -> Any:
        """Begin to send steps; return the task that ends when all are accepted."""

    def idle(self) -> bool:
        """Whether no step is being sent, and no output is being taken."""

    def stop(self) -> None:
        """Send no more steps, but the one that has begun to its end: what is offered must not change."""

    def drop(self) -> None:
        """Forget steps at once: those to send, and outputs that nobody has asked for."""

    async def finish(self, outputs: list[IntArray], streams: list[int]) -> None:
        """Check, once the core has given outputs ``(outputs,)``, what they have become at these ports."""


async def _high(clock: CoreClock, signal: Any, name: str, cycles: int) -> None:
    """Wait for the edge of the first cycle that ends with the signal high, at most so many cycles."""
    await clock.edge
    while not level(signal.value, name):
        if not await clock.wait(RisingEdge(signal), cycles):
            raise DeviceError(f"{name} must become 1, but has not for {cycles} cycles")
        await clock.edge


class PlainRegisters:
    """The register port of a core without a bus."""

    def __init__(self, dut: Any, prefix: str, clock: CoreClock, stalls: Stalls, timeout: int) -> None:
        self._clock, self._stalls, self._timeout = clock, stalls, timeout
        names = ("address", "write", "data", "valid", "ready", "read_data", "read_valid")
        self._ports = {name: getattr(dut, f"{prefix}_{name}") for name in names}
        for name in names[:4]:
            self._ports[name].value = 0

    async def _request(self, register: int, write: int, word: int) -> None:
        ports, stalls = self._ports, self._stalls
        while stalls.x and stalls.random.random() < stalls.x:
            ports["valid"].value = 0
            await self._clock.edge
        ports["address"].value = int(register)
        ports["write"].value = write
        ports["data"].value = word
        ports["valid"].value = 1
        try:
            await _high(self._clock, ports["ready"], "bus_ready", self._timeout)
        finally:
            ports["valid"].value = 0

    async def write(self, register: int, word: int) -> None:
        """Write a word; the next one may follow in the next cycle."""
        await self._request(register, 1, word)

    async def read(self, register: int) -> int:
        """Read a word."""
        await self._request(register, 0, 0)
        if not level(self._ports["read_valid"].value, "bus_read_valid"):
            await _high(self._clock, self._ports["read_valid"], "bus_read_valid", self._timeout)
        return level(self._ports["read_data"].value, f"the word read from register {int(register)}")


class PlainStreams:
    """The ports x and y of a core without a bus."""

    def __init__(
        self, dut: Any, prefixes: tuple[str, str], clock: CoreClock, stalls: Stalls, ports: PortSpec
    ) -> None:
        self._clock, self._stalls, self._ports = clock, stalls, ports
        x, y = prefixes
        names = ("data", "stream", "quiet", "valid")
        self._x = {name: getattr(dut, f"{x}_{name}") for name in (*names, "ready")}
        if ports.sequence_steps:
            self._x["last"] = getattr(dut, f"{x}_last")
        for name in names:
            self._x[name].value = 0
        self._y_ready = getattr(dut, f"{y}_ready")
        self._y_ready.value = 1
        self._taking: Any = None
        self._sending: Any = None
        self._stopped = False

    def resize(self, ports: PortSpec) -> None:
        """Take steps of other sizes from now on."""
        self._ports = ports

    def begin(self, steps: Steps) -> Any:
        """Begin to send steps."""
        if self._stalls.y and (self._taking is None or self._taking.done()):
            self._taking = cocotb.start_soon(self._take())
        self._stopped = False
        self._sending = cocotb.start_soon(self._send(steps))
        return self._sending

    async def _take(self) -> None:
        """Take outputs at random, until there are no stalls any more."""
        stalls = self._stalls
        while stalls.y:
            self._y_ready.value = int(stalls.random.random() >= stalls.y)
            await self._clock.edge
        self._y_ready.value = 1

    async def _send(self, steps: Steps) -> None:
        ports, stalls, x = self._ports, self._stalls, self._x
        # What the core must ignore is random: words past the last input, and those that are not offered.
        junk = np.random.default_rng(len(steps))
        words = junk.integers(0, 1 << ports.data_bits, (len(steps), ports.beats_in * ports.beat_in))
        words[:, : ports.inputs] = steps.x & ((1 << ports.data_bits) - 1)
        beats = pack_beats(words.reshape(-1, ports.beat_in), ports.data_bits)
        for index, beat in enumerate(beats):
            step = index // ports.beats_in
            if self._stopped and not index % ports.beats_in:
                break
            while stalls.x and stalls.random.random() < stalls.x:
                x["valid"].value = 0
                x["data"].value = stalls.random.getrandbits(ports.beat_in * ports.data_bits)
                await self._clock.edge
            x["data"].value = int(beat, 16)
            x["stream"].value = int(steps.streams[step])
            x["quiet"].value = int(steps.suppress[step])
            if "last" in x:
                x["last"].value = int(steps.ends[step])
            x["valid"].value = 1
            # The core is waited for without end: whoever has called it says when that is too long.
            await self._clock.edge
            while not level(x["ready"].value, "x_ready"):
                await RisingEdge(x["ready"])
                await self._clock.edge
        x["valid"].value = 0

    def idle(self) -> bool:
        """Whether no step is being sent."""
        return self._sending is None or self._sending.done()

    def stop(self) -> None:
        """Send no more steps, but the one that has begun to its end."""
        self._stopped = True

    def drop(self) -> None:
        """Offer nothing any more."""
        if not self.idle():
            self._sending.cancel()
            self._x["valid"].value = 0

    async def finish(self, outputs: list[IntArray], streams: list[int]) -> None:
        """The monitor has compared them at these very ports."""


class AxiLiteRegisters:
    """Registers behind AXI4-Lite, reached with cocotbext-axi's master."""

    def __init__(
        self, dut: Any, prefix: str, clock: Any, reset: Any, low: bool, base: int, stalls: Stalls
    ) -> None:
        package_version("cocotbext-axi", "sim", "a core's AXI bus")
        from cocotbext.axi import AxiLiteBus, AxiLiteMaster, AxiResp

        self._okay, self._base = AxiResp.OKAY, base
        bus = AxiLiteBus.from_prefix(dut, prefix)
        self.master = AxiLiteMaster(bus, clock, reset=reset, reset_active_level=not low)
        write, read = self.master.write_if, self.master.read_if
        for channel in (write.aw_channel, write.w_channel, write.b_channel, read.ar_channel, read.r_channel):
            channel.set_pause_generator(stalls.pauses(lambda: stalls.x))

    def _check(self, register: int, answer: Any) -> None:
        # The master gives None for an access that a reset has ended.
        if answer is None or answer.resp != self._okay:
            found = "was reset" if answer is None else f"answers {answer.resp.name}"
            raise DeviceError(f"register {int(register)} must take the access, but {found}")

    async def write(self, register: int, word: int) -> None:
        """Write a word."""
        answer = await self.master.write(self._base + 4 * register, word.to_bytes(4, "little"))
        self._check(register, answer)

    async def read(self, register: int) -> int:
        """Read a word."""
        answer = await self.master.read(self._base + 4 * register, 4)
        self._check(register, answer)
        return int.from_bytes(answer.data, "little")


class AxiStreams:
    """The AXI4-Streams of a core, driven with cocotbext-axi's models."""

    def __init__(
        self,
        dut: Any,
        prefixes: tuple[str, str],
        clock: CoreClock,
        reset: Any,
        low: bool,
        ports: PortSpec,
        stalls: Stalls,
    ) -> None:
        package_version("cocotbext-axi", "sim", "a core's AXI bus")
        from cocotbext.axi import AxiStreamBus, AxiStreamSink, AxiStreamSource

        x, y = prefixes
        levels = {"reset": reset, "reset_active_level": not low}
        self.source = AxiStreamSource(AxiStreamBus.from_prefix(dut, x), clock.signal, **levels)
        self.sink = AxiStreamSink(AxiStreamBus.from_prefix(dut, y), clock.signal, **levels)
        self.source.set_pause_generator(stalls.pauses(lambda: stalls.x))
        self.sink.set_pause_generator(stalls.pauses(lambda: stalls.y))
        self._random = random.Random(1)
        self._clock = clock
        self.resize(ports)

    def resize(self, ports: PortSpec) -> None:
        """Take steps of other sizes from now on."""
        self._ports = ports
        self._bytes, self._output_bytes = -(-ports.data_bits // 8), -(-ports.y_bits // 8)

    def frame(self, stream: int, suppress: bool, x: list[int]) -> Any:
        """Return a step's packet; bits of the padding, and words past the last, are random."""
        from cocotbext.axi import AxiStreamFrame

        ports = self._ports
        missing = ports.beats_in * ports.beat_in - len(x)
        data = b""
        for value in [*x, *(self._random.getrandbits(8) for _ in range(missing))]:
            word = self._random.getrandbits(8 * self._bytes) >> ports.data_bits << ports.data_bits
            data += (word | value & (1 << ports.data_bits) - 1).to_bytes(self._bytes, "little")
        return AxiStreamFrame(data, tid=stream, tuser=int(suppress))

    def begin(self, steps: Steps) -> Any:
        """Begin to send steps."""
        for stream, suppress, x in zip(
            steps.streams.tolist(), steps.suppress.tolist(), steps.x.tolist(), strict=True
        ):
            self.source.send_nowait(self.frame(stream, suppress, x))
        return cocotb.start_soon(self.source.wait())

    def idle(self) -> bool:
        """Whether no packet is being sent, and none is offered or has come in part."""
        offered = level(self.sink.bus.tvalid.value, "tvalid of the outputs")
        return self.source.idle() and not self.sink.active and not offered

    def stop(self) -> None:
        """Send no more packets, but the one that has begun to its end."""
        self.source.clear()

    def drop(self) -> None:
        """Forget the packets of both sides."""
        self.source.clear()
        self.sink.clear()

    def values(self, frame: Any) -> list[int]:
        """Return a step's output, of a packet that must have the right length, and zeros at its end."""
        ports, size = self._ports, self._output_bytes
        words = [
            int.from_bytes(frame.tdata[at : at + size], "little", signed=True)
            for at in range(0, len(frame.tdata), size)
        ]
        count = ports.beats_out * ports.beat_out
        assert len(words) == count, f"a packet of m_axis_y must have {count} values, not {len(words)}"
        assert not any(words[ports.outputs :]), "values past the last output must be 0"
        return words[: ports.outputs]

    async def finish(self, outputs: list[IntArray], streams: list[int]) -> None:
        """Take the packets, which must hold the core's outputs."""
        for number, (wanted, stream) in enumerate(zip(outputs, streams, strict=True)):
            frame = await self.sink.recv()
            assert frame.tuser == 0, f"packet {number} of m_axis_y says that its input was malformed"
            assert frame.tid == stream, f"packet {number} of m_axis_y has TID {frame.tid}, not {stream}"
            found = self.values(frame)
            assert found == wanted.tolist(), f"packet {number} of m_axis_y is {found}, not {wanted.tolist()}"


class WishboneRegisters:
    """Registers behind Wishbone, reached with cocotbext-wishbone's master."""

    _ACK = 1

    def __init__(self, dut: Any, prefix: str, clock: Any, base: int, stalls: Stalls) -> None:
        package_version("cocotbext-wishbone", "sim", "a core's Wishbone bus")
        from cocotbext.wishbone.driver import WBOp, WishboneMaster

        class Master(WishboneMaster):  # type: ignore[misc, unused-ignore]
            _optional_signals = ("sel", "err", "stall")

        names = {name: name for name in ("cyc", "stb", "we", "adr", "ack")}
        names |= {"datwr": "dat_w", "datrd": "dat_r"}
        self._operation, self._base, self._stalls = WBOp, base, stalls
        self.master = Master(dut, prefix, clock, signals_dict=names, timeout=100_000)

    async def _access(self, register: int, word: int | None) -> Any:
        stalls = self._stalls
        idle = int(stalls.random.expovariate(1.0) * 4 * stalls.x) if stalls.x else 0
        operation = self._operation(self._base // 4 + register, word, idle=idle, acktimeout=100_000)
        try:
            (result,) = await self.master.send_cycle([operation])
        except CancelledError:
            # The master goes on with the next access only if it is told that this one has ended.
            self.master.busy = False
            for signal in (self.master.bus.cyc, self.master.bus.stb, self.master.bus.we):
                signal.value = 0
            raise
        if result.ack != self._ACK:
            raise DeviceError(f"register {int(register)} must take the access, but answers with an error")
        return result

    async def write(self, register: int, word: int) -> None:
        """Write a word."""
        await self._access(register, word)

    async def read(self, register: int) -> int:
        """Read a word."""
        result = await self._access(register, None)
        return level(result.datrd, f"the word read from register {int(register)}")
