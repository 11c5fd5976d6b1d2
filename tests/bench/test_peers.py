"""The programs that are timed compute the network, and what is missing is named."""

import sys

import numpy as np
import pytest

from rtlstm.bench.cpu_time import sample
from rtlstm.bench.peers import ENGINES, CppLoop, lstm_session
from rtlstm.bench.shapes import SHAPES, Shape
from rtlstm.bench.worker import measure_engine, measure_golden, start
from rtlstm.sim.reference import run_float
from rtlstm.spec.errors import RtlstmError, ToolError

ODD = Shape(name="odd", origin="a test", inputs=3, units=(5, 7), dense=(9, 2), steps=4, family="generic")
"""No size is a multiple of a vector."""
ODD_GRU = ODD.replace(name="odd_gru", cell="gru")


def reference(shape: Shape, x: np.ndarray) -> np.ndarray:
    return run_float(shape.network(), x[:, None].astype(np.float64)).y[:, 0]


@pytest.mark.rtl
@pytest.mark.parametrize(
    "shape", [ODD, ODD_GRU, SHAPES["traffic20"], SHAPES["deepbench256"]], ids=lambda s: s.name
)
@pytest.mark.parametrize("engine", ENGINES)
def test_engine_computes_the_network(engine: str, shape: Shape) -> None:
    x = shape.input_values(20)
    runner = ENGINES[engine](shape)
    y = runner.run(x)
    assert y.shape == (20, shape.outputs)
    np.testing.assert_allclose(y, reference(shape, x), atol=1e-3 if engine == "c++" else 1e-5)


@pytest.mark.rtl
def test_cpp_loop_with_saturated_gates() -> None:
    x = 40 * SHAPES["toptag"].input_values(30)
    y = CppLoop(SHAPES["toptag"]).run(x)
    np.testing.assert_allclose(y, reference(SHAPES["toptag"], x), atol=1e-3)


@pytest.mark.rtl
def test_cpp_loop_times_every_step() -> None:
    seconds, mean = CppLoop(ODD).time(ODD.input_values(8), 0.002)
    assert len(seconds) >= 16
    assert (seconds >= 0).all() and 0 < mean < 1e-3


def test_sequence_session_is_the_layer() -> None:
    shape = Shape(name="one", origin="a test", inputs=4, units=(6,), steps=5, family="generic")
    x = shape.input_values(15).reshape(5, 3, 4)
    expected = run_float(shape.network(), x.astype(np.float64)).y
    np.testing.assert_allclose(lstm_session(shape)(x), expected, atol=1e-6)


@pytest.mark.parametrize(("engine", "module"), [("torch", "torch"), ("onnxruntime", "onnxruntime")])
def test_missing_package_names_its_extra(engine: str, module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setattr("rtlstm.bench.worker.pin", lambda: None)
    (line,) = measure_engine(engine, ["traffic20"], 0.01)
    assert line["time"]["p50_us"] is None
    assert "pip install 'rtlstm[" in line["time"]["missing"]


def test_missing_compiler_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> None:
        raise ToolError("g++ was not found")

    monkeypatch.setattr("rtlstm.bench.peers.compiler", none)
    monkeypatch.setattr("rtlstm.bench.worker.pin", lambda: None)
    (line,) = measure_engine("c++", ["traffic20"], 0.01)
    assert line["time"]["missing"] == "g++ was not found"


def test_golden_without_onnxruntime(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    monkeypatch.setattr("rtlstm.bench.worker.pin", lambda: None)
    wide, narrow = measure_golden("vad128", batch=2, steps=3, seconds=0.001)
    assert [wide["golden"]["weight_bits"], narrow["golden"]["weight_bits"]] == [16, 8]
    assert wide["golden"]["onnxruntime_ms"] is None and wide["golden"]["golden_ms"] > 0


@pytest.mark.rtl
def test_wrong_engine_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rtlstm.bench.worker.pin", lambda: None)
    monkeypatch.setattr("rtlstm.bench.peers.CppLoop.run", lambda self, x: np.full((len(x), 1), 0.5))
    with pytest.raises(RtlstmError, match=r"must agree with the float reference within 0\.001"):
        list(measure_engine("c++", ["traffic20"], 0.01))


def test_task_fails_with_its_own_words() -> None:
    with pytest.raises(RtlstmError, match="the benchmark engine ended with 1: KeyError: 'nothing'"):
        list(start("engine", engine="c++", names=["nothing"], seconds=0.01))


def test_sample_calls_in_order() -> None:
    calls: list[int] = []
    taken = sample(calls.append, 0.0)
    assert len(taken) == 20 and calls[-20:] == list(range(20))
