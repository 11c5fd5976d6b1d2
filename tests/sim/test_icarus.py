"""The four-state simulator, on a dummy core."""

import numpy as np
import pytest

from rtlstm.sim.icarus import IcarusModel, build_icarus
from rtlstm.sim.native import NativeModel, build_native
from rtlstm.sim.simulated_ports import pack_beats, unpack_beats
from rtlstm.spec.errors import DeviceError, ToolError

pytestmark = pytest.mark.rtl


@pytest.fixture
def model(dummy):
    model = IcarusModel(build_icarus(dummy.verilog, dummy.ports), dummy.ports)
    for stream in range(dummy.ports.streams):
        model.write(3, np.array([stream]))
        model.write(4, np.array([1]))
    yield model
    model.close()


@pytest.mark.parametrize("bits, count", [(4, 1), (8, 3), (18, 4), (17, 7)])
def test_beats_are_packed_first_word_lowest(bits: int, count: int) -> None:
    words = np.random.default_rng(1).integers(0, 1 << bits, (5, count))
    packed = pack_beats(words, bits)
    for text, row in zip(packed, words.tolist(), strict=True):
        assert int(text, 16) == sum(word << (bits * index) for index, word in enumerate(row))
    assert (unpack_beats(packed, count, bits) == words).all()


def test_bus(model) -> None:
    assert model.read(0, 2).tolist() == [0x4C53544D] * 2
    words = np.arange(0xFFFFFFF0, 0xFFFFFFF0 + 16, dtype=np.uint32)
    model.write(7, np.array([10]))
    model.write(8, words)
    model.write(7, np.array([10]))
    assert (model.read(8, 16) == words).all()
    before = model.cycle
    assert model.read(12, 1)[0] == before


def test_agrees_with_the_native_model_to_the_cycle(dummy, model) -> None:
    native = NativeModel(build_native(dummy.verilog, dummy.ports), dummy.ports)
    for stream in range(dummy.ports.streams):
        native.write(3, np.array([stream]))
        native.write(4, np.array([1]))
    streams, x = dummy.stimulus(300)
    for part in (slice(0, 1), slice(1, 300)):
        y, cycles = model.exchange(streams[part], x[part])
        native_y, native_cycles = native.exchange(streams[part], x[part])
        assert (y == native_y).all()
        assert all((a == b).all() for a, b in zip(cycles, native_cycles, strict=True))
    assert model.cycle == native.cycle
    native.close()


@pytest.mark.parametrize("p_in, p_out", [(0.5, 0.0), (0.0, 0.5), (0.3, 0.7)])
def test_stalls_change_the_cycles_alone(dummy, model, p_in: float, p_out: float) -> None:
    streams, x = dummy.stimulus(200)
    model.stalls(7, p_in, p_out)
    start = model.cycle
    y, cycles = model.exchange(streams, x)
    assert (y == dummy.expected(streams, x)).all()
    assert (cycles.latency >= dummy.latency).all()
    assert model.cycle - start > 200 * (dummy.latency + dummy.ports.beats_in) + 50
    model.stalls(7, 0.0, 0.0)
    assert (model.exchange(streams, x)[1].latency == dummy.latency).all()


FAULTS = [
    (0, "no transfer on x or y for 500 cycles"),
    (1, "y_stream is not the stream"),
    (2, "y changed or was withdrawn"),
    (3, "y_last must be 1"),
    (4, "y_data, y_stream or y_last has X or Z bits"),
    (7, "y offers a result after that of the last step"),
]


@pytest.mark.parametrize("flag, message", FAULTS)
def test_faults(dummy, model, flag: int, message: str) -> None:
    model.write(5, np.array([1 << flag]))
    model.stalls(1, 0.0, 0.8)
    with pytest.raises(DeviceError, match=message):
        model.exchange(*dummy.stimulus(20))


def test_rubbish_past_the_last_output(wide_dummy) -> None:
    model = IcarusModel(build_icarus(wide_dummy.verilog, wide_dummy.ports), wide_dummy.ports)
    for stream in range(3):
        model.write(3, np.array([stream]))
        model.write(4, np.array([1]))
    model.write(5, np.array([1 << 5]))
    with pytest.raises(DeviceError, match=r"words of y past the last output .*\(step 0 of"):
        model.exchange(*wide_dummy.stimulus(2))
    model.close()


def test_unwritten_memory_is_reported(model) -> None:
    with pytest.raises(DeviceError, match="the bus read gives X or Z bits"):
        model.read(8, 1)


def test_bus_that_never_accepts(model) -> None:
    model.write(5, np.array([1 << 6]))
    with pytest.raises(DeviceError, match="the bus did not accept a request within 500 cycles"):
        model.read(0, 1)


def test_simulator_that_dies_is_reported(dummy, model) -> None:
    model._process.kill()
    with pytest.raises(DeviceError, match="the simulator ended without an answer"):
        model.exchange(*dummy.stimulus(5))


def test_broken_verilog_shows_icarus_words(dummy) -> None:
    dummy.verilog.write_text("module narrow(input clk) endmodule")
    with pytest.raises(ToolError, match=r"(?s)compiling \w+ for simulation failed.*error"):
        build_icarus(dummy.verilog, dummy.ports)
