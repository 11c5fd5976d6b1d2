"""The cocotb testbench, on a dummy core: what is right passes, what is wrong is named."""

import dataclasses

import numpy as np
import pytest
from support.quick import quick

from rtlstm.sim.cocotb_run import BusRead, BusWrite, Scenario, play
from rtlstm.spec.errors import InputError

pytestmark = pytest.mark.rtl


def scenario(dummy, steps: int, flags: int = 0, **changes) -> Scenario:
    streams, x = dummy.stimulus(steps)
    before = [BusWrite(7, 0), BusWrite(8, np.arange(20)), BusRead(0, 0x4C53544D, "ID")]
    for stream in range(dummy.ports.streams):
        before += [BusWrite(3, stream), BusWrite(4, 1)]
    plain = Scenario(
        streams=streams,
        x=x,
        y=dummy.expected(streams, x),
        before=[*before, BusWrite(5, flags)],
        after=[BusWrite(7, 0), BusRead(8, np.arange(20), "echo")],
    )
    return dataclasses.replace(plain, **changes)


def test_plays_to_the_cycle(dummy) -> None:
    interval = dummy.latency + dummy.ports.beats_in
    offered = dummy.ports.beats_in - 1 + dummy.latency + interval * np.arange(60)
    played = scenario(dummy, 60, latency=np.full(60, dummy.latency), offered=offered)
    result = play(dummy.verilog, dummy.ports, "icarus", played)
    assert result.passed, result.failures
    assert (result.words, result.different) == (60 * dummy.ports.outputs + 21, 0)
    assert (result.step_cycles.latency == dummy.latency).all()


@pytest.mark.parametrize("p_in, p_out", quick([(0.5, 0.0), (0.0, 0.5), (0.3, 0.7)], (0.3, 0.7)))
def test_plays_with_stalls(dummy, p_in: float, p_out: float) -> None:
    result = play(dummy.verilog, dummy.ports, "icarus", scenario(dummy, 60, p_in=p_in, p_out=p_out))
    assert result.passed, result.failures
    assert (result.step_cycles.latency >= dummy.latency).all()


def test_plays_under_verilator(wide_dummy) -> None:
    for stalls in (0.0, 0.4):
        played = scenario(wide_dummy, 60, p_in=stalls, p_out=stalls, latency=np.full(60, wide_dummy.latency))
        result = play(wide_dummy.verilog, wide_dummy.ports, "verilator", played)
        assert result.passed, result.failures


FAULTS = [
    (0, "no transfer for 500 cycles while streaming (0 of 20 steps done)"),
    (1, "step 0, beat 0: y_stream must be"),
    (2, "y changed or was withdrawn"),
    (3, "y_last must be 1, not 0"),
    (4, "y_data has X or Z bits"),
    (5, "step 0: words of y past the last output must be 0"),
    (6, "no transfer for 500 cycles while loading through the bus"),
]


@pytest.mark.parametrize("flag, message", FAULTS)
def test_faults(wide_dummy, flag: int, message: str) -> None:
    played = scenario(wide_dummy, 20, 1 << flag, p_out=0.8)
    played = dataclasses.replace(played, before=[*played.before, BusRead(0, 0x4C53544D)])
    result = play(wide_dummy.verilog, wide_dummy.ports, "icarus", played)
    assert not result.passed
    assert message in "; ".join(result.failures)


def test_wrong_expectations_are_found(wide_dummy) -> None:
    good = scenario(wide_dummy, 10)
    y = good.y.copy()
    y[3, 2] ^= 1
    y[5, 0] ^= 1
    latency = np.full(10, wide_dummy.latency)
    latency[4] += 1
    for changes, message, different in (
        ({"y": y}, f"y of step 3, word 2 must be {y[3, 2]}, not {y[3, 2] ^ 1}", 2),
        ({"latency": latency}, "latency of step 4 is 7 cycles, it must be 8 (1 steps differ)", 0),
        ({"after": [BusRead(0, [1], "the ID")]}, "the ID (word 0) must read 0x00000001, not 0x4c", 1),
        ({"after": [BusRead(8, [1], "fresh")]}, "fresh (word 0) must read 0x00000001, not XXXX", 1),
    ):
        result = play(wide_dummy.verilog, wide_dummy.ports, "icarus", dataclasses.replace(good, **changes))
        assert result.different == different
        assert len(result.failures) == 1
        assert message in result.failures[0]


def test_misfit_arrays_are_refused(wide_dummy) -> None:
    with pytest.raises(InputError, match=r"y must have shape \(10, 7\), not \(9, 7\)"):
        good = scenario(wide_dummy, 10)
        bad = dataclasses.replace(good, y=good.y[1:])
        play(wide_dummy.verilog, wide_dummy.ports, "icarus", bad)
