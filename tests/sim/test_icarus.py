"""The four-state simulator, on a dummy core."""

import numpy as np
import pytest

from rtlstm.sim.compile_model import NativeModel, build_native
from rtlstm.sim.icarus import IcarusModel, build_icarus
from rtlstm.sim.simulated_ports import pack_beats, unpack_beats
from rtlstm.spec.errors import DeviceError, ToolError

pytestmark = pytest.mark.rtl


@pytest.fixture
def model(dummy):
    model = IcarusModel(build_icarus(dummy.verilog, dummy.ports), dummy.ports)
    dummy.clear(model)
    yield model
    model.close()


@pytest.mark.parametrize("bits, count", [(4, 1), (8, 3), (18, 4), (17, 7)])
def test_beats_are_packed_first_word_lowest(bits: int, count: int) -> None:
    words = np.random.default_rng(1).integers(0, 1 << bits, (5, count))
    packed = pack_beats(words, bits)
    for text, row in zip(packed, words.tolist(), strict=True):
        assert int(text, 16) == sum(word << (bits * index) for index, word in enumerate(row))
    assert (unpack_beats(packed, count, bits) == words).all()


def test_agrees_with_the_native_model_to_the_cycle(dummy, model) -> None:
    native = NativeModel(build_native(dummy.verilog, dummy.ports), dummy.ports)
    dummy.clear(native)
    streams, x = dummy.stimulus(300)
    for part in (slice(0, 1), slice(1, 300)):
        y, cycles = model.exchange(streams[part], x[part])
        native_y, native_cycles = native.exchange(streams[part], x[part])
        assert (y == native_y).all()
        assert all((a == b).all() for a, b in zip(cycles, native_cycles, strict=True))
    assert model.cycle == native.cycle
    native.close()


def test_unknown_output_bits_are_reported(dummy, model) -> None:
    model.write(5, np.array([1 << 4]))
    model.stalls(1, 0.0, 0.8)
    with pytest.raises(DeviceError, match="y_data, y_stream or y_last has X or Z bits"):
        model.exchange(*dummy.stimulus(20))


def test_unwritten_memory_is_reported(model) -> None:
    with pytest.raises(DeviceError, match="the bus read gives X or Z bits"):
        model.read(8, 1)


def test_simulator_that_dies_is_reported(dummy, model) -> None:
    model._process.kill()
    with pytest.raises(DeviceError, match="the simulator ended without an answer"):
        model.exchange(*dummy.stimulus(5))


def test_broken_verilog_shows_icarus_words(dummy) -> None:
    dummy.verilog.write_text("module narrow(input clk) endmodule")
    with pytest.raises(ToolError, match=r"(?s)compiling \w+ for simulation failed.*error"):
        build_icarus(dummy.verilog, dummy.ports)
