"""The cocotb module of tests/test_bit_exact.py: rtlstm.cocotb plays a random case, which a file holds.

Its expectations come from outside of the simulation, so that the scoreboard is checked, too.
"""

import os
from typing import Any

import cocotb
import numpy as np

from rtlstm.cocotb import Core


@cocotb.test()
async def case_equals_golden(dut: Any) -> None:
    """Every stream's state in, steps, every stream's state out: all words, and without stalls all cycles."""
    with np.load(os.environ["RTLSTM_CASE"]) as file:
        case = dict(file)
    core = await Core.open(dut)
    board, streams = core.scoreboard, core.manifest.parameters.streams
    begun, offered = [], []
    input_beat, output_beat = board.input_beat, board.output_beat

    def note_input(*beat: Any) -> None:
        begun.append(beat[-1])
        input_beat(*beat)

    def note_output(data: int, stream: int, last: bool, first: int, accepted: int) -> None:
        if last:
            offered.append(first)
        output_beat(data, stream, last, first, accepted)

    board.input_beat, board.output_beat = note_input, note_output  # type: ignore[method-assign]

    def state(name: str, stream: int) -> list[Any]:
        return [case[f"{name}{layer}"][stream] for layer in range(int(case["layers"]))]

    for stream in range(streams):
        h, c = state("h", stream), state("c", stream)
        await core.call(lambda driver, n, h, c: driver.device.write_state(n, h, c), stream, h, c)
    core.stall(*case["stalls"].tolist(), seed=int(case["seed"]))
    y = await core.call(lambda driver: driver.device.exchange(case["streams"], case["x"]))
    np.testing.assert_array_equal(y, case["y"])
    assert board.words == y.size
    if not case["stalls"].any():
        assert board.cycles == len(y)
        np.testing.assert_array_equal(np.array(offered) - begun[0], case["offered"])
    for stream in range(streams):
        h, c = await core.call(lambda driver, n: driver.device.read_state(n), stream)
        for found, wanted in zip((*h, *c), state("last_h", stream) + state("last_c", stream), strict=True):
            np.testing.assert_array_equal(found, wanted)
