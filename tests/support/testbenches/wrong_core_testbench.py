"""The cocotb module of tests/test_cocotb.py whose tests all fail: each says in its docstring how."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import cocotb
from cocotb.handle import Force, Release
from cocotb.triggers import ClockCycles, RisingEdge
from cocotb.types import Logic, LogicArray

from rtlstm.cocotb import Core
from rtlstm.spec.image import WeightImage
from rtlstm.spec.registers import Register


async def offer(dut: Any, cycles: int) -> None:
    """Offer zeros for some cycles."""
    dut.x_data.value, dut.x_valid.value = 0, 1
    await ClockCycles(dut.clk, cycles)


@cocotb.test()
async def word_that_nobody_wrote(dut: Any) -> None:
    r"""the word read from register \d+ has X or Z bits: [0X]+"""
    # The first test: memories keep what the others write.
    core = Core(dut)
    await core.start(load=False)
    await core.write(Register.ROW, 0)
    await core.read(Register.DATA)


@cocotb.test()
async def other_weights_in_the_golden_model(dut: Any) -> None:
    r"""y of step \d+, word \d+ must be -?\d+, not -?\d+"""
    core = await Core.open(dut)
    golden, lanes = core.scoreboard.golden, core.manifest.parameters.lanes
    for lane in range(lanes):
        golden.write(Register.SELECT, [lane])
        golden.write(Register.ROW, [0])
        golden.write(Register.DATA, [0x7F7F])
    await core.check(steps=8)


@cocotb.test()
@cocotb.parametrize(wait=["drain", "output"])
async def wrong_word_before_the_wait(dut: Any, wait: str) -> None:
    r"""y of step 0, word \d+ must be -?\d+, not -?\d+"""
    core = await Core.open(dut)
    await offer(dut, core.scoreboard.ports.beats_in)
    dut.x_valid.value = 0
    await ClockCycles(dut.clk, 3)
    core.scoreboard.due[-1].y = core.scoreboard.due[-1].y + 1
    beats = core.scoreboard.ports.beats_out
    while beats:
        await RisingEdge(dut.clk)
        beats -= int(dut.y_valid.value and dut.y_ready.value)
    await getattr(core, wait)()


@cocotb.test()
async def no_weights(dut: Any) -> None:
    """step 0 was accepted before weights and tables were loaded completely"""
    core = Core(dut)
    await core.start(load=False)
    await core.check(steps=1)


@cocotb.test()
async def bits_without_a_value(dut: Any) -> None:
    """x_data has X or Z bits: XXXXXXXX"""
    core = await Core.open(dut)
    dut.x_data.value, dut.x_valid.value = LogicArray("XXXXXXXX"), 1
    await core.output()


@cocotb.test()
async def valid_loses_its_value(dut: Any) -> None:
    """x_valid has X or Z bits: X"""
    core = await Core.open(dut)
    dut.x_valid.value = 0
    await ClockCycles(dut.clk, 5)
    dut.x_valid.value = Logic("X")
    await ClockCycles(dut.clk, 2)
    core.monitor.check()


@cocotb.test()
async def ready_loses_its_value(dut: Any) -> None:
    """y_ready has X or Z bits: X"""
    core = await Core.open(dut)
    dut.y_ready.value = 0
    await offer(dut, 100)
    dut.y_ready.value = Logic("X")
    await ClockCycles(dut.clk, 2)
    core.monitor.check()


@cocotb.test()
async def input_withdrawn(dut: Any) -> None:
    """x was withdrawn before it was taken"""
    core = await Core.open(dut)
    dut.y_ready.value = 0
    await offer(dut, 500)
    assert not dut.x_ready.value
    dut.x_valid.value = 0
    await RisingEdge(dut.clk)
    dut.x_valid.value = 1
    await ClockCycles(dut.clk, 8)
    core.monitor.check()


@cocotb.test()
async def input_that_changes_for_one_cycle(dut: Any) -> None:
    """x changed before it was taken"""
    core = await Core.open(dut)
    dut.y_ready.value = 0
    await offer(dut, 500)
    assert not dut.x_ready.value
    dut.x_data.value = 1
    await RisingEdge(dut.clk)
    dut.x_data.value = 0
    await ClockCycles(dut.clk, 8)
    core.monitor.check()


@cocotb.test()
async def nobody_takes_the_output(dut: Any) -> None:
    r"""outputs of 1 more steps, but has given none for \d+ cycles; it offers one, but y_ready is 0"""
    core = await Core.open(dut)
    dut.y_ready.value = 0
    await offer(dut, 500)
    await core.output()


@cocotb.test()
async def half_a_step(dut: Any) -> None:
    r"""given none for \d+ cycles; of the next step it has 1 of \d input beats"""
    core = await Core.open(dut)
    dut.x_valid.value = 1
    await RisingEdge(dut.clk)
    dut.x_valid.value = 0
    await core.output()


async def open_offering(dut: Any) -> Core:
    """Open a core whose outputs nobody takes, and let it offer one."""
    core = await Core.open(dut)
    dut.y_ready.value = 0
    await offer(dut, core.scoreboard.ports.beats_in)
    dut.x_valid.value = 0
    while not dut.y_valid.value:
        await RisingEdge(dut.clk)
    await ClockCycles(dut.clk, 2)
    return core


@contextmanager
def forced(dut: Any, **values: Any) -> Iterator[None]:
    """Let ports of the core be what they must not be. The next test finds them free again."""
    for name, value in values.items():
        getattr(dut, name).value = Force(value)
    try:
        yield
    finally:
        for name in values:
            getattr(dut, name).value = Release()


async def look(core: Core) -> None:
    """Wait until the monitor has seen what there is to be seen."""
    await ClockCycles(core.dut.clk, 8)
    core.monitor.check()


@cocotb.test()
async def output_that_changes(dut: Any) -> None:
    """y changed before it was taken"""
    core = await open_offering(dut)
    with forced(dut, y_data=dut.y_data.value.to_unsigned() ^ 1):
        await look(core)


@cocotb.test()
async def output_withdrawn(dut: Any) -> None:
    """y was withdrawn before it was taken"""
    core = await open_offering(dut)
    with forced(dut, y_valid=0):
        await look(core)


@cocotb.test()
async def output_of_another_stream(dut: Any) -> None:
    r"""step 0, beat 0: y_stream must be 0, not 1"""
    core = await Core.open(dut)
    with forced(dut, y_stream=1):
        await core.check(steps=1)


@cocotb.test()
async def output_without_its_last(dut: Any) -> None:
    r"""step 0, beat \d: y_last must be 1, not 0"""
    core = await Core.open(dut)
    with forced(dut, y_last=0):
        await core.check(steps=1)


@cocotb.test()
async def output_without_a_value(dut: Any) -> None:
    """y_data has X or Z bits"""
    core = await Core.open(dut)
    with forced(dut, y_data=LogicArray("X" * len(dut.y_data))):
        await core.check(steps=1)


@cocotb.test()
async def output_that_nobody_asked_for(dut: Any) -> None:
    """but no step's output is due"""
    core = await Core.open(dut)
    with forced(dut, y_valid=1):
        await look(core)


@cocotb.test()
async def output_that_never_comes(dut: Any) -> None:
    r"""given none for \d+ cycles; [12] of them have been sent to it"""
    core = await Core.open(dut)
    with forced(dut, y_valid=0):
        await core.check(steps=1)


@cocotb.test()
async def register_that_never_answers(dut: Any) -> None:
    r"""bus_ready must become 1, but has not for \d+ cycles"""
    core = await Core.open(dut)
    dut.rst.value = 1
    await ClockCycles(dut.clk, 2)
    await core.read(Register.ID)


@cocotb.test()
async def inputs_without_outputs(dut: Any) -> None:
    """x and y must be given together, but y is missing; give y, or leave out x"""
    Core(dut, core=dut, x="x")


@cocotb.test()
async def stream_without_all_its_ports(dut: Any) -> None:
    """tiny must have bus_valid, bus_ready, bus_data, bus_stream, bus_quiet, but has no bus_stream"""
    Core(dut, x="bus")


@cocotb.test()
async def module_without_the_ports(dut: Any) -> None:
    r"""tiny\.core must be an instance of tiny or of its bus wrapper, but has no port x_data; give the path"""
    await Core.open(dut, core="core")


@cocotb.test()
async def path_that_leads_nowhere(dut: Any) -> None:
    """core must be the path of an instance, but tiny has no 'filter'"""
    Core(dut, core="filter.core")


@cocotb.test()
async def ports_with_another_prefix(dut: Any) -> None:
    """tiny must have ports that begin with s_axi_, such as s_axi_valid"""
    Core(dut, registers="s_axi")


@cocotb.test()
async def clock_with_another_name(dut: Any) -> None:
    r"""tiny must have a port for the clock, but it has no clock_25; name it \(clock=\)"""
    Core(dut, clock="clock_25")


@cocotb.test()
async def another_builds_weights(dut: Any) -> None:
    """the weight image must belong to build"""
    core = await Core.open(dut)
    image = core.folder / "weights.bin"
    other = Path("other.bin")
    found = WeightImage.load(image, core.manifest)
    other.write_bytes(WeightImage(build_hash="00" * 32, regions=found.regions).to_bytes())
    await core.call(lambda driver: driver.load_weights(other))


@cocotb.test()
async def stalls_that_never_end(dut: Any) -> None:
    """stall probabilities must be at least 0 and below 1"""
    Core(dut).stall(x=1.0)


@cocotb.test()
async def registers_that_the_design_drives(dut: Any) -> None:
    r"""tiny has no ports for the core's registers, or start was not called"""
    await Core(dut).step([0.0, 0.0, 0.0])


@cocotb.test()
async def errors_of_python(dut: Any) -> None:
    """ZeroDivisionError: division by zero"""
    assert dut.x_valid is not None
    1 / 0  # noqa: B018
