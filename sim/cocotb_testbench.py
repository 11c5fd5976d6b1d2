"""The cocotb module of :mod:`rtlstm.sim.cocotb_run`: plays one scenario on a core's ports.

It runs inside the simulator and uses only the top level's ports. Signals are read just before the rising
edge takes effect and written after it. A task waits for the change of a signal, not cycle by cycle, because
each call of Python costs as much as thousands of native cycles.
"""

import json
import os
import random
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import cocotb
import numpy as np
from cocotb.clock import Clock
from cocotb.simtime import get_sim_time
from cocotb.triggers import Event, RisingEdge, Timer
from cocotb.types import LogicArray

from rtlstm.sim.simulated_ports import PortSpec, pack_beats, sign_extend, unpack_beats

__all__ = ["RESULT_VARIABLE", "SCENARIO_VARIABLE", "play_scenario"]

SCENARIO_VARIABLE = "RTLSTM_SCENARIO"
RESULT_VARIABLE = "RTLSTM_RESULT"

_PERIOD = 2
"""Simulator steps per clock cycle."""


class _CheckError(Exception):
    """A check of the scenario does not hold."""


class _Player:
    def __init__(self, dut: Any, scenario: dict[str, Any], ports: PortSpec) -> None:
        self.dut = dut
        self.scenario = scenario
        self.ports = ports
        self.random = random.Random(int(scenario["seed"]))
        self.p_in, self.p_out = float(scenario["p_in"]), float(scenario["p_out"])
        self.edge = RisingEdge(dut.clk)
        self.finished = Event()
        self.failures: list[str] = []
        self.progress = 0
        self.doing = "reset"
        self.words = self.different = 0
        self.start = 0
        steps = len(scenario["streams"])
        self.begun, self.accepted, self.offered = ([-1] * steps for _ in range(3))

    @property
    def cycle(self) -> int:
        """The number of the cycle that ends at this moment's rising edge."""
        return int(get_sim_time("step")) // _PERIOD - self.start

    async def guard(self, work: Awaitable[None]) -> None:
        """Let a failure in any task end the scenario."""
        try:
            await work
        except _CheckError as failure:
            self.failures.append(str(failure))
            self.finished.set()

    async def watch(self) -> None:
        """End a scenario in which nothing happens any more."""
        before = -1
        while before != self.progress:
            before = self.progress
            await Timer(self.ports.timeout_cycles * _PERIOD, unit="step")
        self.failures.append(
            f"no transfer for {self.ports.timeout_cycles} cycles while {self.doing} "
            f"({sum(c >= 0 for c in self.offered)} of {len(self.offered)} steps done)"
        )
        self.finished.set()

    async def high(self, signal: Any, name: str) -> None:
        """Wait for the edge of the first cycle that ends with the signal high."""
        await self.edge
        while (value := signal.value) != 1:
            if value != 0:
                raise _CheckError(f"{name} is {value} while {self.doing}")
            await RisingEdge(signal)
            await self.edge

    async def reset(self) -> None:
        dut = self.dut
        for signal in (dut.x_valid, dut.y_ready, dut.bus_valid, dut.x_data, dut.x_stream, dut.x_quiet):
            signal.value = 0
        if self.ports.sequence_steps:
            dut.x_last.value = 0
        for signal in (dut.bus_address, dut.bus_write, dut.bus_data):
            signal.value = 0
        dut.rst.value = 1
        Clock(dut.clk, _PERIOD, unit="step", impl="gpi").start(start_high=False)
        for _ in range(8):
            await self.edge
        dut.rst.value = 0
        self.start = int(get_sim_time("step")) // _PERIOD + 1

    async def play(self) -> None:
        scenario = self.scenario
        await self.reset()
        self.doing = "loading through the bus"
        await self.bus("before")
        self.doing = "streaming"
        sender = cocotb.start_soon(self.guard(self.send()))
        await self.receive()
        await sender
        if not self.failures:
            self.check_cycles()
            self.doing = "reading back through the bus"
            undue = cocotb.start_soon(self.guard(self.no_more()))
            await self.bus("after")
            undue.cancel()
        if not self.failures and self.words < scenario["y"].size:
            raise _CheckError(f"only {self.words} words were compared")
        self.finished.set()

    async def bus(self, when: str) -> None:
        """Play the requests of one phase, one per cycle where the core allows."""
        scenario = self.scenario
        dut = self.dut
        reads, registers, words, labels = (
            scenario[f"{when}_{part}"].tolist() for part in ("read", "register", "word", "label")
        )
        for index, (read, register, word) in enumerate(zip(reads, registers, words, strict=True)):
            dut.bus_address.value = register
            dut.bus_write.value = 0 if read else 1
            if not read:
                dut.bus_data.value = word
            dut.bus_valid.value = 1
            await self.high(dut.bus_ready, "bus_ready")
            self.progress += 1
            if read:
                found = await self.answer()
                self.words += 1
                if not found.is_resolvable:
                    self.mismatch(f"{labels[index]} must read {word:#010x}, not {found}")
                elif found.to_unsigned() != word:
                    given = found.to_unsigned()
                    self.mismatch(f"{labels[index]} must read {word:#010x}, not {given:#010x}")
        dut.bus_valid.value = 0

    async def answer(self) -> LogicArray:
        """Return the answer to a read request that was just accepted."""
        dut = self.dut
        dut.bus_valid.value = 0
        if dut.bus_read_valid.value != 1:
            await self.high(dut.bus_read_valid, "bus_read_valid")
        value: LogicArray = dut.bus_read_data.value
        return value

    def mismatch(self, text: str) -> None:
        """Record a wrong word; the message of the first of each kind is kept."""
        self.different += 1
        if self.different == 1:
            self.failures.append(text)

    async def send(self) -> None:
        ports, scenario, dut = self.ports, self.scenario, self.dut
        x = scenario["x"]
        steps = len(x)
        junk = np.random.default_rng(int(scenario["seed"]))
        words = junk.integers(0, 1 << ports.data_bits, (steps, ports.beats_in * ports.beat_in))
        words[:, : ports.inputs] = x & ((1 << ports.data_bits) - 1)
        beats = pack_beats(words.reshape(-1, ports.beat_in), ports.data_bits)
        streams, ends = scenario["streams"].tolist(), scenario["ends"].tolist()
        for index, beat in enumerate(beats):
            step, number = divmod(index, ports.beats_in)
            while self.random.random() < self.p_in:
                dut.x_valid.value = 0
                dut.x_data.value = self.random.getrandbits(ports.beat_in * ports.data_bits)
                await self.edge
            dut.x_data.value = int(beat, 16)
            dut.x_stream.value = streams[step]
            if ends:
                dut.x_last.value = ends[step]
            dut.x_valid.value = 1
            await self.high(dut.x_ready, "x_ready")
            self.progress += 1
            if number == 0:
                self.begun[step] = self.cycle
            if number == ports.beats_in - 1:
                self.accepted[step] = self.cycle
        dut.x_valid.value = 0

    async def receive(self) -> None:
        ports, dut = self.ports, self.dut
        for step, stream in enumerate(self.scenario["streams"].tolist()):
            beats = []
            for number in range(ports.beats_out):
                last = number == ports.beats_out - 1
                beats.append(await self.take(step, last))
                where = f"step {step}, beat {number}"
                if dut.y_stream.value != stream:
                    raise _CheckError(f"{where}: y_stream must be {stream}, not {dut.y_stream.value}")
                if dut.y_last.value != int(last):
                    raise _CheckError(f"{where}: y_last must be {int(last)}, not {dut.y_last.value}")
            self.compare(step, beats)
        dut.y_ready.value = 0

    async def take(self, step: int, last: bool) -> str:
        """Take one beat, perhaps after a stall; return it as hexadecimal digits."""
        dut = self.dut
        ready = self.random.random() >= self.p_out
        dut.y_ready.value = int(ready)
        await self.high(dut.y_valid, "y_valid")
        if last:
            self.offered[step] = self.cycle
        data = dut.y_data.value
        while not ready:
            ready = self.random.random() >= self.p_out
            dut.y_ready.value = int(ready)
            await self.edge
            if dut.y_valid.value != 1 or dut.y_data.value != data:
                raise _CheckError(f"step {step}: y changed or was withdrawn before it was taken")
        self.progress += 1
        if not data.is_resolvable:
            raise _CheckError(f"step {step}: y_data has X or Z bits: {data}")
        return f"{data.to_unsigned():x}"

    def compare(self, step: int, beats: list[str]) -> None:
        ports = self.ports
        words = unpack_beats(beats, ports.beat_out, ports.y_bits).reshape(-1)
        if words[ports.outputs :].any():
            raise _CheckError(f"step {step}: words of y past the last output must be 0")
        found = sign_extend(words[: ports.outputs], ports.y_bits)
        expected = self.scenario["y"][step]
        self.words += ports.outputs
        for index in np.flatnonzero(found != expected).tolist():
            self.mismatch(f"y of step {step}, word {index} must be {expected[index]}, not {found[index]}")

    def check_cycles(self) -> None:
        accepted, offered = np.array(self.accepted), np.array(self.offered)
        self.first("latency", offered - accepted, None, "it must be at least 1")
        if self.p_in or self.p_out:
            return
        if self.scenario["latency"].size:
            self.first("latency", offered - accepted, self.scenario["latency"], "")
        if self.scenario["offered"].size:
            since = offered - (self.begun[0] if self.begun else 0)
            self.first("output cycle", since, self.scenario["offered"], "")

    def first(self, what: str, found: Any, expected: Any, rule: str) -> None:
        wrong = np.flatnonzero(found < 1 if expected is None else found != expected)
        if wrong.size:
            step = int(wrong[0])
            must = rule or f"it must be {expected[step]}"
            raise _CheckError(
                f"{what} of step {step} is {found[step]} cycles, {must} ({wrong.size} steps differ)"
            )

    async def no_more(self) -> None:
        """Fail on an output after that of the last step."""
        if self.dut.y_valid.value != 1:
            await RisingEdge(self.dut.y_valid)
        await self.edge
        if self.dut.y_valid.value == 1:
            raise _CheckError("y offers a result after the last step's")

    def result(self) -> dict[str, Any]:
        return {
            "words": self.words,
            "different": self.different,
            "cycles": self.cycle,
            "failures": self.failures,
            "begun": self.begun,
            "accepted": self.accepted,
            "offered": self.offered,
        }


@cocotb.test()
async def play_scenario(dut: Any) -> None:
    """Play the scenario that the environment names and write its result."""
    with np.load(os.environ[SCENARIO_VARIABLE]) as file:
        scenario = dict(file)
    player = _Player(dut, scenario, PortSpec(**json.loads(str(scenario["ports"]))))
    cocotb.start_soon(player.watch())
    cocotb.start_soon(player.guard(player.play()))
    await player.finished.wait()
    Path(os.environ[RESULT_VARIABLE]).write_text(json.dumps(player.result()))
    assert not player.failures, "; ".join(player.failures)
