"""What both simulators do alike, on a dummy core."""

import numpy as np
import pytest

from rtlstm.sim.compile_model import NativeModel, build_native
from rtlstm.sim.icarus import IcarusModel, build_icarus
from rtlstm.spec.errors import DeviceError

pytestmark = pytest.mark.rtl


@pytest.fixture(params=["icarus", "verilator"])
def start(request):
    """Start a dummy core, its sums cleared."""
    models = []

    def started(core):
        if request.param == "icarus":
            models.append(IcarusModel(build_icarus(core.verilog, core.ports), core.ports))
        else:
            models.append(NativeModel(build_native(core.verilog, core.ports), core.ports))
        core.clear(models[-1])
        return models[-1]

    yield started
    for model in models:
        model.close()


@pytest.fixture
def model(start, dummy):
    return start(dummy)


def test_bus(model) -> None:
    assert model.read(0, 2).tolist() == [0x4C53544D] * 2
    words = np.arange(0xFFFFFFF0, 0xFFFFFFF0 + 16, dtype=np.uint32)
    model.write(7, np.array([10]))
    model.write(8, words)
    model.write(7, np.array([10]))
    assert (model.read(8, 16) == words).all()
    before = model.cycle
    assert model.read(12, 1)[0] == before


@pytest.mark.parametrize("p_in, p_out", [(0.5, 0.0), (0.0, 0.5), (0.3, 0.7)])
def test_stalls_change_the_cycles_alone(dummy, model, p_in: float, p_out: float) -> None:
    streams, x = dummy.stimulus(300)
    model.stalls(7, p_in, p_out)
    start = model.cycle
    y, cycles = model.exchange(streams, x)
    assert (y == dummy.expected(streams, x)).all()
    assert (cycles.latency >= dummy.latency).all()
    assert model.cycle - start > 300 * (dummy.latency + dummy.ports.beats_in) + 100
    model.stalls(7, 0.0, 0.0)
    assert (model.exchange(streams, x)[1].latency == dummy.latency).all()


FAULTS = [
    (0, "no transfer on x or y for 500 cycles"),
    (1, "y_stream is not the stream"),
    (2, "y changed or was withdrawn"),
    (3, "y_last must be 1"),
    (7, "y offers a result after that of the last step"),
]


@pytest.mark.parametrize("flag, message", FAULTS)
def test_faults(dummy, model, flag: int, message: str) -> None:
    model.write(5, np.array([1 << flag]))
    model.stalls(1, 0.0, 0.8)
    with pytest.raises(DeviceError, match=message):
        model.exchange(*dummy.stimulus(20))


def test_rubbish_past_the_last_output(start, wide_dummy) -> None:
    model = start(wide_dummy)
    model.write(5, np.array([1 << 5]))
    with pytest.raises(DeviceError, match=r"words of y past the last output .*\(step 0 of"):
        model.exchange(*wide_dummy.stimulus(2))


def test_bus_that_never_accepts(model) -> None:
    model.write(5, np.array([1 << 6]))
    with pytest.raises(DeviceError, match="the bus did not accept a request within 500 cycles"):
        model.read(0, 1)


@pytest.mark.parametrize("then", ["write", "stalled write", "exchange"])
def test_an_answer_that_nothing_asked_for(dummy, model, then: str) -> None:
    model.write(5, np.array([1 << 8]))
    assert model.read(0, 1)[0] == 0x4C53544D
    model.stalls(1, 0.9 * (then == "stalled write"), 0.0)
    with pytest.raises(DeviceError, match="bus_read_valid must be 1 for one cycle of each read"):
        model.exchange(*dummy.stimulus(1)) if then == "exchange" else model.write(1, np.array([5]))
