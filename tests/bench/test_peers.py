"""The programs that are timed compute the network, and what is missing is named."""

import platform
import sys
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from support.quick import quick

from rtlstm.bench.peers import ENGINES, CppLoop, lstm_session, sample
from rtlstm.bench.shapes import SHAPES, Shape
from rtlstm.bench.worker import measure_engine, measure_golden, start
from rtlstm.sim.reference import run_float
from rtlstm.spec.errors import RtlstmError, ToolError

ODD = Shape(name="odd", origin="a test", inputs=3, units=(5, 7), dense=(9, 2), steps=4, family="generic")
"""No size is a multiple of a vector."""
NETWORKS = {
    shape.name: shape
    for shape in (ODD, ODD.replace(name="odd_gru", cell="gru"), SHAPES["traffic20"], SHAPES["deepbench256"])
}


def reference(shape: Shape, x: np.ndarray) -> np.ndarray:
    return run_float(shape.network(), x[:, None].astype(np.float64)).y[:, 0]


@pytest.mark.rtl
@pytest.mark.parametrize(
    ("engine", "name"), quick(product(ENGINES, NETWORKS), *product(ENGINES, ("odd",)), ("c++", "odd_gru"))
)
def test_engine_computes_the_network(engine: str, name: str) -> None:
    shape = NETWORKS[name]
    x = shape.input_values(20)
    y = ENGINES[engine](shape).run(x)
    assert y.shape == (20, shape.outputs)
    tolerance = {"c++": 1e-3, "c++ int8": 0.02}.get(engine, 1e-5)
    np.testing.assert_allclose(y, reference(shape, x), atol=tolerance)


def processor_has(name: str) -> bool:
    """Whether this processor has some instructions; what compiles for it may use them."""
    info = Path("/proc/cpuinfo")
    return info.exists() and f" {name} " in info.read_text().replace("\n", " ")


KERNELS = {
    # What the processor must have, and what is left out although it may be there.
    "AVX-512 VNNI": ("avx512_vnni", ()),
    "AVX-VNNI": ("avx_vnni", ("-mno-avx512f",)),
    "AVX2": ("avx2", ("-mno-avx512f", "-mno-avxvnni")),
    "portable C++": ("", ("-mno-avx512f", "-mno-avx2") if platform.machine() == "x86_64" else ()),
}


@pytest.mark.rtl
@pytest.mark.parametrize("kernel", quick(KERNELS, "portable C++"))
def test_int8_loop_on_every_kernel(kernel: str) -> None:
    needed, flags = KERNELS[kernel]
    if needed and not processor_has(needed):
        pytest.skip(f"needs a processor with {needed}")
    found = []
    for shape in (ODD, NETWORKS["odd_gru"].replace(dense=())):
        loop = CppLoop(shape, int8=True, flags=flags)
        assert loop.kernel == kernel
        x = shape.input_values(40)
        found.append(loop.run(x))
        error = found[-1] - reference(shape, x)
        # Eight bits are within 1/254; codes of h sum up over steps.
        assert 1e-5 < np.abs(error).max() < 0.015
    # Sums of integers are the same in any order; only the functions' last bits may differ.
    portable = CppLoop(ODD, int8=True, flags=KERNELS["portable C++"][1]).run(ODD.input_values(40))
    np.testing.assert_allclose(found[0], portable, atol=0.01)


@pytest.mark.slow
@pytest.mark.rtl
def test_int8_loop_limits_what_its_dense_layers_never_saw() -> None:
    """Values of a dense layer beyond the ranges are its largest code, without a change of sign."""
    shape = SHAPES["toptag"]
    loop, narrow = CppLoop(shape, int8=True), CppLoop(shape, int8=True)
    lstm, *dense = shape.network().layers
    arrays = [
        lstm.w_ih,
        lstm.w_hh,
        lstm.bias,
        *(each for layer in dense for each in (layer.weight, layer.bias)),
    ]
    weights = np.concatenate([np.ravel(array) for array in arrays]).astype(np.float32)
    x = shape.input_values(20)
    ranges = np.array([1, 1e-3, 1], dtype=np.float32)
    narrow._model = narrow._library.loop_create(weights.ctypes.data, ranges.ctypes.data)
    last = dense[-1]
    bound = 1e-3 * np.abs(last.weight).sum() + 1e-4
    assert np.abs(narrow.run(x) - last.bias).max() <= bound < np.abs(loop.run(x) - last.bias).max()


@pytest.mark.rtl
@pytest.mark.parametrize("int8", [False, True])
def test_step_is_shorter_if_the_recurrent_product_is_there(int8: bool) -> None:
    shape = SHAPES["vad128"]
    loop = CppLoop(shape, int8=int8)
    x = shape.input_values(16)
    ready = np.percentile(loop.time_ready(x, 2000), 10)
    each, mean = loop.time(x, 0.02)
    assert 0 < ready < 0.85 * np.percentile(each, 10)
    assert len(each) >= 16 and mean > 0


@pytest.mark.rtl
def test_worker_tells_kernel_and_error_of_the_int8_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rtlstm.bench.worker.pin", lambda: None)
    (line,) = measure_engine("c++ int8", ["traffic20"], 0.01)
    time = line["time"]
    assert time["kernel"] in KERNELS and time["ready_us"] > 0
    assert 1e-5 < time["rms_error"] <= time["max_error"] < 0.02
    (line,) = measure_engine("c++", ["traffic20"], 0.01)
    assert line["time"]["kernel"] == "float" and line["time"]["rms_error"] < 2e-4


@pytest.mark.rtl
def test_cpp_loop_with_saturated_gates() -> None:
    x = 40 * SHAPES["toptag"].input_values(30)
    y = CppLoop(SHAPES["toptag"]).run(x)
    np.testing.assert_allclose(y, reference(SHAPES["toptag"], x), atol=1e-3)


@pytest.mark.rtl
def test_cpp_loop_times_every_step() -> None:
    seconds, mean = CppLoop(ODD).time(ODD.input_values(8), 0.002)
    assert len(seconds) >= 16 and (seconds >= 0).all() and 0 < mean < 1e-3


def test_sequence_session_is_the_layer() -> None:
    shape = Shape(name="one", origin="a test", inputs=4, units=(6,), steps=5, family="generic")
    x = shape.input_values(15).reshape(5, 3, 4)
    expected = run_float(shape.network(), x.astype(np.float64)).y
    np.testing.assert_allclose(lstm_session(shape)(x), expected, atol=1e-6)


@pytest.mark.parametrize(("engine", "module"), [("torch", "torch"), ("onnxruntime", "onnxruntime")])
def test_missing_package_is_named(engine: str, module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setattr("rtlstm.bench.worker.pin", lambda: None)
    (line,) = measure_engine(engine, ["traffic20"], 0.01)
    assert line["time"]["p50_us"] is None
    assert f"{module} is not installed: run 'make setup'" in line["time"]["missing"]


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
    wide, narrow = measure_golden("traffic20", batch=2, steps=3, seconds=0.001)
    assert [wide["golden"]["weight_bits"], narrow["golden"]["weight_bits"]] == [16, 8]
    assert wide["golden"]["onnxruntime_ms"] is None and wide["golden"]["golden_ms"] > 0


@pytest.mark.slow
@pytest.mark.rtl
def test_wrong_engine_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rtlstm.bench.worker.pin", lambda: None)
    monkeypatch.setattr("rtlstm.bench.peers.CppLoop.run", lambda self, x: np.full((len(x), 1), 0.5))
    for engine, tolerance in ("c++", r"0\.001"), ("c++ int8", r"0\.05"):
        with pytest.raises(RtlstmError, match=f"must agree with the float reference within {tolerance}"):
            list(measure_engine(engine, ["traffic20"], 0.01))


def test_task_fails_with_its_own_words() -> None:
    with pytest.raises(RtlstmError, match="the benchmark engine ended with 1: KeyError: 'nothing'"):
        list(start("engine", engine="c++", names=["nothing"], seconds=0.01))


def test_sample_calls_in_order() -> None:
    calls: list[int] = []
    taken = sample(calls.append, 0.0)
    assert len(taken) == 20 and calls[-20:] == list(range(20))
