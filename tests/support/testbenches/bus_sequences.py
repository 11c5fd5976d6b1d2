"""What testbenches of bus wrappers have in common: a golden device, and random sequences played on it.

Runs inside the simulator, beside cocotb.
"""

import os
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
from cocotb.triggers import ClockCycles, RisingEdge

from rtlstm.sim.golden import Golden
from rtlstm.spec.fixed import IntArray
from rtlstm.spec.image import WeightImage
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.numerics import QuantizedNetwork, QuantizedRecurrent
from rtlstm.spec.packing import pack, unpack
from rtlstm.spec.registers import Command, Region, Register

PERIOD = 2
FOLDER, SEEDS = Path(os.environ.get("RTLSTM_BUILD", "")), os.environ.get("RTLSTM_SEEDS", "0:1")


def other_network(network: QuantizedNetwork) -> QuantizedNetwork:
    """Other weights within the same bounds: each row's own, in another order."""

    def reversed_output(weights: IntArray) -> IntArray:
        return np.roll(weights, 1, axis=1)

    layers = [
        replace(layer, w_ih=reversed_output(layer.w_ih), w_hh=reversed_output(layer.w_hh))
        if isinstance(layer, QuantizedRecurrent)
        else replace(layer, weight=reversed_output(layer.weight))
        for layer in network.layers
    ]
    return replace(network, layers=tuple(layers))


class Device:
    """The golden model of a device whose weights may be changed bank by bank.

    A loadable device may be given the networks of the builds in ``others`` in its folder, too.
    """

    def __init__(self, folder: Path) -> None:
        self.builds = [folder, *sorted(folder.glob("others/*"))]
        self.adopt(folder)

    def adopt(self, folder: Path) -> None:
        """Be a device that holds the network of a build."""
        self.manifest = Manifest.load(folder)
        own = WeightImage.load(folder / "weights.bin", self.manifest)
        other = pack(other_network(unpack(own, self.manifest)), self.manifest)
        self.images = (own.regions, other.regions)
        self.memory = {region: banks.copy() for region, banks in own.regions.items()}
        self.streams = self.manifest.parameters.streams
        self.state: dict[int, Any] = {}
        self.reset(range(self.streams))
        self.loaded()

    def reset(self, streams: Any) -> None:
        units = [shape.outputs for shape in self.manifest.layers if shape.kind == "lstm"]
        for stream in streams:
            self.state[stream] = tuple([np.zeros((1, size), dtype=np.int64) for size in units] for _ in "hc")

    def loaded(self) -> None:
        """The memory has changed."""
        image = WeightImage(build_hash=self.manifest.build_hash, regions=self.memory)
        self.model = Golden(unpack(image, self.manifest))

    def step(self, stream: int, x: IntArray) -> list[int]:
        result = self.model.run(x[None, None], self.state[stream])
        self.state[stream] = (list(result.h), list(result.c))
        return result.y.reshape(-1).tolist()


class Port(Protocol):
    """A device in simulation, on any bus."""

    dut: Any
    clock: Any
    device: Device

    async def start(self) -> None:
        """Start the clock and reset the device."""

    async def write(self, register: Register, word: int) -> None: ...

    async def read(self, register: Register) -> int: ...

    def begin(self, stream: int, suppress: bool, x: list[int]) -> None:
        """Queue a step's input."""

    async def outputs(self, steps: int) -> list[tuple[int, list[int]]]:
        """Wait for the outputs of so many steps: stream and values."""

    async def reset(self, cycles: int) -> list[tuple[int, list[int]]]:
        """Reset the device; forget what is queued; return outputs that nobody has asked for yet."""


OnePort = TypeVar("OnePort", bound=Port)


async def load(port: Port, device: Device, banks: list[tuple[Region, int]], image: int) -> None:
    """Write banks of one of the two images."""
    for region, bank in banks:
        words = device.images[image][region][bank]
        await port.write(Register.SELECT, region << 28 | bank)
        await port.write(Register.ROW, 0)
        for word in words.reshape(-1).tolist():
            await port.write(Register.DATA, word)
        device.memory[region][bank] = words
    device.loaded()


async def load_all(port: Port, device: Device) -> None:
    """Load every bank."""
    banks = [(region, bank) for region, words in device.memory.items() for bank in range(len(words))]
    await load(port, device, banks, 0)


async def restart(port: Port, device: Device) -> None:
    """After a reset: a loadable core stands still until its program's last row has been written."""
    if Region.PROGRAM in device.memory:
        words = device.memory[Region.PROGRAM][0]
        await port.write(Register.SELECT, Region.PROGRAM << 28)
        await port.write(Register.ROW, len(words) - 1)
        for word in words[-1].tolist():
            await port.write(Register.DATA, word)


async def load_network(port: Port, device: Device, folder: Path) -> None:
    """Load all of a build, the program last."""
    device.adopt(folder)
    await load_all(port, device)
    await reset_streams(port, device, range(device.streams))


async def reset_streams(port: Port, device: Device, streams: Any) -> None:
    """Reset streams by command."""
    for stream in streams:
        await port.write(Register.STREAM, stream)
        await port.write(Register.COMMAND, Command.RESET)
    device.reset(streams)


class Sequence:
    """One random sequence: interleaved steps, reloads between them, resets in mid-step."""

    def __init__(self, port: Port, device: Device, seed: int) -> None:
        self.port, self.device = port, device
        self.random = random.Random(seed)
        self.words = self.resets = self.reloads = self.switches = 0
        self.acts = [self.steps, self.steps, self.interrupted, self.reload, self.renew, self.look]
        if len(device.builds) > 1:
            self.acts.append(self.switch)

    async def play(self) -> None:
        for _ in range(self.random.randint(2, 5)):
            await self.random.choice(self.acts)()
        await self.steps()

    def begin(self) -> list[tuple[int, IntArray, bool]]:
        """Queue some steps."""
        form = self.device.manifest.numerics.input
        inputs = self.device.manifest.program.inputs
        found = []
        for _ in range(self.random.randint(1, 8)):
            stream, suppress = self.random.randrange(self.device.streams), self.random.random() < 0.2
            x = np.array([self.random.randint(form.lowest, form.maximum) for _ in range(inputs)])
            self.port.begin(stream, suppress, x.tolist())
            found.append((stream, x, suppress))
        return found

    def expected(self, steps: list[tuple[int, IntArray, bool]]) -> list[tuple[int, list[int]]]:
        given = [(stream, self.device.step(stream, x), suppress) for stream, x, suppress in steps]
        return [(stream, y) for stream, y, suppress in given if not suppress]

    async def steps(self) -> None:
        """Steps, and all their outputs; then no step is under way."""
        wanted = self.expected(self.begin())
        found = await self.port.outputs(len(wanted))
        assert found == wanted
        self.words += sum(len(y) for _, y in wanted)
        while await self.port.read(Register.STATUS) & 1:
            pass

    async def interrupted(self) -> None:
        """A reset in the middle of steps: what came out until then is right, nothing else comes out."""
        steps = self.begin()
        longest = len(steps) * self.device.manifest.cycles.step_interval_cycles
        await ClockCycles(self.port.clock, self.random.randint(1, 3 * longest))
        found = await self.port.reset(self.random.randint(1, 4))
        await restart(self.port, self.device)
        wanted = self.expected(steps)
        assert found == wanted[: len(found)]
        self.device.reset(range(self.device.streams))
        self.words += sum(len(y) for _, y in found)
        self.resets += 1

    async def reload(self) -> None:
        """Other weights in some lanes; the streams go on."""
        lanes = self.random.sample(range(self.device.manifest.parameters.lanes), 2)
        image = self.random.randrange(2)
        await load(self.port, self.device, [(Region.WEIGHTS, lane) for lane in lanes], image)
        self.reloads += 1

    async def switch(self) -> None:
        """Another network on the same device."""
        await load_network(self.port, self.device, self.random.choice(self.device.builds))
        self.switches += 1

    async def renew(self) -> None:
        """Some streams begin anew."""
        await reset_streams(self.port, self.device, [self.random.randrange(self.device.streams)])

    async def look(self) -> None:
        """Read a bank of weights back."""
        bank = self.random.randrange(self.device.manifest.parameters.lanes)
        await self.port.write(Register.SELECT, Region.WEIGHTS << 28 | bank)
        await self.port.write(Register.ROW, 0)
        for word in self.device.memory[Region.WEIGHTS][bank].reshape(-1).tolist():
            assert await self.port.read(Register.DATA) == word


LOADED: list[Device] = []
"""The device, once it is loaded: its memories outlast every reset."""


async def open_port(dut: Any, make: Callable[[Any, Device], OnePort]) -> OnePort:
    """Start the clock and reset; the first time, load the weights."""
    device = LOADED[0] if LOADED else Device(FOLDER)
    port = make(dut, device)
    await port.start()
    if not LOADED:
        await load_all(port, device)
        LOADED.append(device)
    elif len(device.builds) > 1:
        await load_network(port, device, FOLDER)
    device.reset(range(device.streams))
    return port


async def play_all(port: Port, prepare: Callable[[int], None]) -> None:
    """Play the random sequences of all seeds, each after ``prepare(seed)``: all bits are golden."""
    first, last = (int(number) for number in SEEDS.split(":"))
    total = {"words": 0, "resets": 0, "reloads": 0, "switches": 0}
    for seed in range(first, last):
        prepare(seed)
        sequence = Sequence(port, port.device, seed)
        try:
            await sequence.play()
        except AssertionError as error:
            raise AssertionError(f"sequence {seed}: {error}") from error
        for name in total:
            total[name] += getattr(sequence, name)
    assert await port.read(Register.LINK_ERRORS) == 0
    assert total["words"] > 0
    port.dut._log.info(f"played {last - first} sequences: {total}")


async def check_stable(dut: Any, clock: Any, channels: Any) -> None:
    """What is offered stays, unchanged, until it is taken; nothing of a handshake is ever undefined.

    ``channels`` names valid, ready and what is offered of each.
    """
    signals = [
        (getattr(dut, valid), getattr(dut, ready), [getattr(dut, name) for name in payload], valid)
        for valid, ready, payload in channels
    ]
    before: list[tuple[str, ...] | None] = [None] * len(signals)
    edge = RisingEdge(clock)
    while True:
        await edge
        for index, (valid, ready, payload, name) in enumerate(signals):
            offered, taken = str(valid.value), str(ready.value)
            assert offered in "01" and taken in "01", (name, offered, taken)
            if offered == "0":
                assert before[index] is None, f"{name}: withdrawn before it was taken"
                continue
            now = tuple(str(signal.value) for signal in payload)
            assert set("".join(now)) <= {"0", "1"}, (name, now)
            changed = before[index] is not None and now != before[index]
            assert not changed, f"{name}: {before[index]} became {now} before it was taken"
            before[index] = now if taken == "0" else None
