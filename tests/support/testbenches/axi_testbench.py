"""The cocotb module of tests/hdl/test_buses.py: an AXI build, driven by cocotbext-axi's models."""

import random
from collections.abc import Iterator
from typing import Any

import cocotb
import numpy as np
from cocotb.clock import Clock
from cocotb.simtime import get_sim_time
from cocotb.triggers import ClockCycles, RisingEdge
from cocotbext.axi import (
    AxiLiteBus,
    AxiLiteMaster,
    AxiResp,
    AxiStreamBus,
    AxiStreamFrame,
    AxiStreamSink,
    AxiStreamSource,
)

from rtlstm.spec.program.step import Program
from rtlstm.spec.registers import IDENTITY, MAP_VERSION, Interrupt, Region, Register
from support.testbenches.bus_sequences import (
    PERIOD,
    Device,
    check_stable,
    load,
    load_network,
    open_port,
    play_all,
    reset_streams,
    restart,
)

CHANNELS = (
    (
        "m_axis_y_tvalid",
        "m_axis_y_tready",
        ("m_axis_y_tdata", "m_axis_y_tid", "m_axis_y_tlast", "m_axis_y_tuser"),
    ),
    ("s_axi_bvalid", "s_axi_bready", ("s_axi_bresp",)),
    ("s_axi_rvalid", "s_axi_rready", ("s_axi_rresp", "s_axi_rdata")),
)


def pauses(seed: int, share: float) -> Iterator[bool]:
    """Say for each cycle whether a channel pauses, in runs of random length."""
    dice = random.Random(seed)
    while True:
        busy = dice.randint(1, 12)
        for _ in range(busy):
            yield dice.random() < share


class AxiRegisters:
    """Registers behind an AXI4-Lite master, whose channels may pause, as those of ``streams``."""

    master: AxiLiteMaster
    streams: tuple[Any, ...] = ()

    def pause(self, seed: int, share: float) -> None:
        """Pause every channel at random."""
        write, read = self.master.write_if, self.master.read_if
        channels = (write.aw_channel, write.w_channel, write.b_channel, read.ar_channel, read.r_channel)
        for index, channel in enumerate((*self.streams, *channels)):
            channel.set_pause_generator(pauses(seed * 10 + index, share) if share else None)
            if not share:
                channel.pause = False

    async def write(self, register: Register, word: int) -> None:
        answer = await self.master.write(4 * register, (word & 0xFFFFFFFF).to_bytes(4, "little"))
        assert answer.resp == AxiResp.OKAY, (register, answer)

    async def read(self, register: Register) -> int:
        answer = await self.master.read(4 * register, 4)
        assert answer.resp == AxiResp.OKAY, (register, answer)
        return int.from_bytes(answer.data, "little")


class AxiPort(AxiRegisters):
    """The device behind the bus models."""

    def __init__(self, dut: Any, device: Device) -> None:
        self.dut, self.clock, self.device = dut, dut.aclk, device
        numerics, self.parameters = device.manifest.numerics, device.manifest.parameters
        self.bits, self.bytes = numerics.data_bits, -(-numerics.data_bits // 8)
        self.output_bytes = -(-numerics.output_bits // 8)
        level = {"reset": dut.aresetn, "reset_active_level": False}
        self.source = AxiStreamSource(AxiStreamBus.from_prefix(dut, "s_axis_x"), dut.aclk, **level)
        self.sink = AxiStreamSink(AxiStreamBus.from_prefix(dut, "m_axis_y"), dut.aclk, **level)
        self.master = AxiLiteMaster(AxiLiteBus.from_prefix(dut, "s_axi"), dut.aclk, **level)
        self.streams, self.random = (self.source, self.sink), random.Random(1)

    @property
    def program(self) -> Program:
        """Of the network that the device holds."""
        return self.device.manifest.program

    async def start(self) -> None:
        self.dut.aresetn.value = 0
        Clock(self.clock, PERIOD, unit="ns").start(start_high=False)
        await ClockCycles(self.clock, 8)
        self.dut.aresetn.value = 1
        self.watch()
        await ClockCycles(self.clock, 2)

    def watch(self) -> None:
        self.check = cocotb.start_soon(check_stable(self.dut, self.clock, CHANNELS))

    def frame(self, stream: int, suppress: bool, x: list[int]) -> AxiStreamFrame:
        """A step's packet; bits of the padding, and words past the last, are random."""
        beats = -(-self.program.inputs // self.parameters.beat_in)
        x = x + [self.random.getrandbits(8) for _ in range(beats * self.parameters.beat_in - len(x))]
        data = b""
        for value in x:
            word = self.random.getrandbits(8 * self.bytes) >> self.bits << self.bits
            data += (word | value & (1 << self.bits) - 1).to_bytes(self.bytes, "little")
        return AxiStreamFrame(data, tid=stream, tuser=int(suppress))

    def begin(self, stream: int, suppress: bool, x: list[int]) -> None:
        self.source.send_nowait(self.frame(stream, suppress, x))

    def values(self, frame: AxiStreamFrame) -> list[int]:
        """A step's output, of a packet that must have the right length and nothing in what is left over."""
        words = [
            int.from_bytes(frame.tdata[at : at + self.output_bytes], "little", signed=True)
            for at in range(0, len(frame.tdata), self.output_bytes)
        ]
        beats = -(-self.program.outputs // self.parameters.beat_out)
        assert len(words) == beats * self.parameters.beat_out
        assert not any(words[self.program.outputs :])
        return words[: self.program.outputs]

    async def outputs(self, steps: int) -> list[tuple[int, list[int]]]:
        found = []
        for _ in range(steps):
            frame = await self.sink.recv()
            assert frame.tuser == 0
            found.append((frame.tid, self.values(frame)))
        return found

    async def reset(self, cycles: int) -> list[tuple[int, list[int]]]:
        self.check.cancel()
        self.dut.aresetn.value = 0
        await ClockCycles(self.clock, cycles)
        self.source.clear()
        found = []
        while not self.sink.empty():
            frame = self.sink.recv_nowait()
            found.append((frame.tid, self.values(frame)))
        self.dut.aresetn.value = 1
        await ClockCycles(self.clock, 3)
        assert self.dut.m_axis_y_tvalid.value == 0
        self.watch()
        return found


async def opened(dut: Any) -> AxiPort:
    """Reset it; weights are loaded without pauses."""
    return await open_port(dut, AxiPort)


@cocotb.test()
async def plays_sequences(dut: Any) -> None:
    """Random sequences, random pauses on every channel: all bits are golden."""
    port = await opened(dut)
    await play_all(port, lambda seed: port.pause(seed, random.Random(seed).choice((0.0, 0.2, 0.5, 0.8))))
    assert port.sink.empty()


async def exchange(port: AxiPort, stream: int, *frames: AxiStreamFrame) -> list[AxiStreamFrame]:
    """Send packets; return as many, raw."""
    for frame in frames:
        port.source.send_nowait(frame)
    return [await port.sink.recv() for _ in frames]


@cocotb.test()
async def says_what_it_is(dut: Any) -> None:
    port = await opened(dut)
    manifest = port.device.manifest
    assert await port.read(Register.ID) == IDENTITY
    assert await port.read(Register.BUILD) == manifest.build_number
    assert await port.read(Register.VERSION) == MAP_VERSION[0] << 16 | MAP_VERSION[1]
    assert await port.read(Register.SHAPE) == manifest.program.outputs << 16 | manifest.program.inputs
    assert await port.read(Register.CAPACITY) == 7 << 24 | 10 << 16 | 3


@cocotb.test()
async def malformed_packets_are_reported(dut: Any) -> None:
    """Short, long, of changing stream, of no stream: each is counted, and the next packet is right."""
    port = await opened(dut)
    port.pause(1, 0.5)
    device, beat = port.device, port.bytes * port.parameters.beat_in
    x = [7, -8, 9, -10, 11]

    async def good() -> None:
        wanted = device.step(1, np.array(x))
        (frame,) = await exchange(port, 1, port.frame(1, False, x))
        assert (frame.tid, frame.tuser, port.values(frame)) == (1, 0, wanted)

    whole = port.frame(0, False, x)
    short = AxiStreamFrame(whole.tdata[:beat], tid=0, tuser=0)
    long = AxiStreamFrame(bytes(whole.tdata) + bytes(3 * beat), tid=0, tuser=0)
    torn = AxiStreamFrame(whole.tdata, tid=[0] * beat + [2] * (len(whole.tdata) - beat), tuser=0)
    with_output = AxiStreamFrame(whole.tdata, tid=0, tuser=[0] * beat + [1] * (len(whole.tdata) - beat))
    for count, frame in enumerate((short, long, torn, with_output), start=1):
        (answer,) = await exchange(port, 0, frame)
        assert (answer.tid, answer.tuser) == (0, 1)
        port.values(answer)
        assert await port.read(Register.LINK_ERRORS) == count
        await good()
    # The padding of a short one is zeros; what is too much of a long one does not count.
    await reset_streams(port, device, [0])
    wanted = device.step(0, np.array([7, -8, 0, 0, 0]))
    (answer,) = await exchange(port, 0, short)
    assert port.values(answer) == wanted
    wanted = device.step(0, np.array(x))
    (answer,) = await exchange(port, 0, long)
    assert port.values(answer) == wanted
    # Nothing comes of a stream that is none; all that is seen is the next step's.
    for frame in (AxiStreamFrame(whole.tdata, tid=3), AxiStreamFrame(whole.tdata[:beat], tid=3)):
        port.source.send_nowait(frame)
        await good()
    # A short step without output has no output to mark: it is counted.
    port.source.send_nowait(AxiStreamFrame(short.tdata, tid=2, tuser=1))
    await good()
    assert await port.read(Register.LINK_ERRORS) == 9
    assert await port.read(Register.IRQ_PENDING) & Interrupt.LINK_ERROR
    assert port.sink.empty()


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def loading_in_the_midst_of_packets(dut: Any) -> None:
    """Whatever packets are under way: what comes after a load is right, and marked as it should be."""
    port = await opened(dut)
    for build in port.device.builds:
        await load_network(port, port.device, build)
        for _ in range(6):
            await load_with_half_a_packet(port)
            await load_with_steps_under_way(port)


async def write_again(port: AxiPort) -> None:
    """Write a bank of weights, and a loadable core's program enough to stop it for a moment."""
    await load(port, port.device, [(Region.WEIGHTS, 0)], 0)
    await restart(port, port.device)


async def load_with_half_a_packet(port: AxiPort) -> None:
    """A fixed core has it still; of a loadable one's the rest is a malformed packet."""
    device, dut, beat = port.device, port.dut, port.parameters.beat_in
    x = [port.random.randint(-200, 200) for _ in range(device.manifest.program.inputs)]
    if len(x) <= beat:
        return
    errors = await port.read(Register.LINK_ERRORS)
    await reset_streams(port, device, [0])
    frame = port.frame(0, False, x)
    # The model pauses after the beat that it offers.
    port.source.send_nowait(frame)
    await RisingEdge(dut.s_axis_x_tvalid)
    port.source.pause = True
    await write_again(port)
    port.source.pause = False
    answer = await port.sink.recv()
    forgot = len(device.builds) > 1
    assert (answer.tid, answer.tuser) == (0, forgot)
    assert await port.read(Register.LINK_ERRORS) == errors + forgot
    if not forgot:
        assert port.values(answer) == device.step(0, np.array(x))


async def load_with_steps_under_way(port: AxiPort) -> None:
    """The later ones malformed: each mark stays with its step, and no later step gets one."""
    device, size = port.device, port.bytes * port.parameters.beat_in
    x = [port.random.randint(-200, 200) for _ in range(device.manifest.program.inputs)]
    whole = port.frame(0, False, x)
    torn = AxiStreamFrame(whole.tdata, tid=[0] * size + [2] * (len(whole.tdata) - size), tuser=0)
    for frame in (whole, whole, torn, torn):
        port.source.send_nowait(frame)
    await ClockCycles(port.clock, port.random.randint(1, 100))
    await write_again(port)
    await reset_streams(port, device, range(device.streams))
    await port.source.wait()
    port.begin(1, False, x)
    marks = []
    while (frame := await port.sink.recv()).tid == 0:
        marks.append(frame.tuser)
    assert (frame.tid, frame.tuser, port.values(frame)) == (1, 0, device.step(1, np.array(x)))
    # A loadable core forgets the steps that wait as its program is written.
    if len(device.builds) == 1:
        mark = int(len(whole.tdata) > size)
        assert marks == [0, 0, mark, mark]


@cocotb.test()
async def refused_accesses_are_errors(dut: Any) -> None:
    port = await opened(dut)
    before = await port.read(Register.IRQ_ENABLE)
    reads = (4 * Register.X_DATA, 4 * Register.COMMAND, 4 * Register.CONTROL, 124)
    for address in reads:
        assert (await port.master.read(address, 4)).resp == AxiResp.SLVERR, address
    writes = ((4 * Register.ID, 4), (4 * Register.X_DATA, 4), (4 * Register.IRQ_ENABLE, 2), (100, 4))
    for address, size in writes:
        assert (await port.master.write(address, bytes([255] * size))).resp == AxiResp.SLVERR, address
    assert await port.read(Register.LINK_ERRORS) == len(reads) + len(writes)
    assert await port.read(Register.IRQ_ENABLE) == before


@cocotb.test()
async def interrupt_on_done(dut: Any) -> None:
    port = await opened(dut)
    await port.write(Register.IRQ_PENDING, 3)
    await port.write(Register.IRQ_ENABLE, Interrupt.DONE)
    assert dut.irq.value == 0
    port.begin(0, True, [1] * 5)
    await ClockCycles(port.clock, 3 * port.device.manifest.cycles.first_step_latency_cycles)
    assert dut.irq.value == 0, "a step with suppressed output has none"
    port.begin(0, False, [1] * 5)
    await RisingEdge(dut.irq)
    await port.outputs(1)
    assert await port.read(Register.IRQ_PENDING) == Interrupt.DONE
    await port.write(Register.IRQ_PENDING, Interrupt.LINK_ERROR)
    assert dut.irq.value == 1
    await port.write(Register.IRQ_PENDING, Interrupt.DONE)
    assert dut.irq.value == 0


@cocotb.test()
async def control_resets_core_and_data(dut: Any) -> None:
    """In the middle of a packet, of a step, of an output that nobody takes: what comes next is right."""
    port = await opened(dut)
    x = [3, -200, 100, 50, -1]
    await port.write(Register.IRQ_ENABLE, Interrupt.DONE)
    for _ in range(20):
        port.check.cancel()
        port.sink.pause = port.random.random() < 0.5
        for stream in (0, 1, 2):
            port.begin(stream, False, x)
        await ClockCycles(port.clock, port.random.randint(1, 150))
        await port.write(Register.CONTROL, 1)
        # The models forget what they had begun, as a user's logic must.
        for model in (port.source, port.sink):
            model.assert_reset()
            model.clear()
        port.sink.pause = False
        port.watch()
        port.device.reset(range(3))
        await ClockCycles(port.clock, 4)
        assert await port.read(Register.STEPS) == 0
        wanted = port.device.step(1, np.array(x))
        # A loadable core stands still: what is offered meanwhile waits.
        early = port.random.random() < 0.5
        if early:
            port.begin(1, False, x)
        await restart(port, port.device)
        if not early:
            port.begin(1, False, x)
        assert await port.outputs(1) == [(1, wanted)]
        port.device.reset(range(3))
        await reset_streams(port, port.device, range(3))
    assert await port.read(Register.IRQ_ENABLE) == Interrupt.DONE


@cocotb.test()
async def timing_is_as_documented(dut: Any) -> None:
    """The wrapper adds no cycle to a step; registers answer as soon as docs/integrate.md says."""
    port = await opened(dut)
    for _ in range(2):
        port.begin(0, False, [1] * 5)
        await port.outputs(1)
        while await port.read(Register.STATUS) & 1:
            pass
    since: dict[str, int] = {}
    now = 0

    async def count() -> None:
        nonlocal now
        while True:
            await RisingEdge(port.clock)
            for event in ("s_axis_x_tlast", "m_axis_y_tlast"):
                prefix = event.removesuffix("tlast")
                if getattr(dut, event).value == 1 and getattr(dut, f"{prefix}tvalid").value == 1:
                    since.setdefault(event, now)
            now += 1

    counter = cocotb.start_soon(count())
    port.begin(0, False, [1] * 5)
    await port.outputs(1)
    counter.cancel()
    cycles = since["m_axis_y_tlast"] - since["s_axis_x_tlast"]
    assert cycles == port.device.manifest.cycles.step_latency_cycles
    assert await port.read(Register.LATENCY) == cycles
    for register, valid, answer, wanted in (
        (Register.IRQ_ENABLE, "arvalid", "rvalid", 4),
        (Register.STREAM, "awvalid", "bvalid", 5),
        (Register.STREAM, "arvalid", "rvalid", 8),
    ):
        access = port.write(register, 0) if valid == "awvalid" else port.read(register)
        task = cocotb.start_soon(access)
        await RisingEdge(getattr(dut, f"s_axi_{valid}"))
        began = get_sim_time("ns")
        await RisingEdge(getattr(dut, f"s_axi_{answer}"))
        assert (get_sim_time("ns") - began) / PERIOD == wanted, (register, valid)
        await task
