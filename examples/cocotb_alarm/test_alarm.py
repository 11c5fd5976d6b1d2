"""A core inside a design, tested with cocotb: docs/integrate.md explains it.

The network is random, because the example is about the test. Yours comes from a file:
``rtlstm_build("model.onnx", name="spotter", bus="axi")``.
"""

import cocotb
import numpy as np
from cocotb.triggers import ClockCycles, RisingEdge

import rtlstm
from rtlstm import Dense, Gru, Network
from rtlstm.cocotb import Core

THRESHOLD = 3

FORMATS = {"weight_bits": 8, "data_bits": 8, "output_bits": 8, "gate_bits": 8, "cell_bits": 12}


def network() -> Network:
    """A GRU of 4 units and a dense layer of one output."""
    random = np.random.default_rng(5)
    shapes = {"w_ih": (12, 1), "w_hh": (12, 4), "bias_ih": (12,), "bias_hh": (12,)}
    gru = Gru(**{name: random.normal(size=shape) for name, shape in shapes.items()})
    dense = Dense(weight=random.normal(size=(1, 4)), bias=random.normal(size=1))
    return Network(name="spotter", layers=(gru, dense))


def averages(samples: list[int]) -> list[int]:
    """What alarm.v makes of samples: the mean of the last four, rounded down."""
    padded = [0, 0, 0, *samples]
    return [sum(padded[at : at + 4]) >> 2 for at in range(len(padded) - 3)]


@cocotb.test()
async def alarm_follows_the_model(dut):
    """Samples in, alarms out; the scoreboard compares the core in between."""
    dut.sample_valid.value = 0
    core = await Core.open(dut, core="detector", registers="s_axi")
    samples = np.random.default_rng(1).integers(-128, 128, 40).tolist()
    alarms = []

    async def take_alarms():
        while True:
            await RisingEdge(dut.alarm_valid)
            await RisingEdge(dut.clk)
            while dut.alarm_valid.value:
                alarms.append(bool(dut.alarm.value))
                await RisingEdge(dut.clk)

    cocotb.start_soon(take_alarms())
    for sample in samples:
        dut.sample.value, dut.sample_valid.value = sample, 1
        await RisingEdge(dut.clk)
        while not dut.sample_ready.value:
            await RisingEdge(dut.clk)
    dut.sample_valid.value = 0
    for _ in samples:
        await core.output()
    await ClockCycles(dut.clk, 10)

    steps = np.array(averages(samples))[:, np.newaxis]
    scores, _ = rtlstm.Build(core.folder).run(steps)
    assert len(alarms) == len(samples)
    assert alarms == (scores[:, 0] > THRESHOLD).tolist()
    assert 0 < sum(alarms) < len(alarms)
    assert core.scoreboard.words == core.scoreboard.cycles == len(samples)


def test_alarm(rtlstm_build, rtlstm_simulation):
    """Build the network, put it into alarm.v, and run the test above."""
    build = rtlstm_build(network(), name="spotter", bus="axi", lanes=4, macs=2, **FORMATS)
    rtlstm_simulation(build, top="alarm_filter", sources=["alarm.v"], parameters={"THRESHOLD": THRESHOLD})
