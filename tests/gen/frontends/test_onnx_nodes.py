"""ONNX's own tests of the LSTM, GRU and RNN operators: what they expect, in floats, golden and RTL."""

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from support.loadable_builds import Build
from support.onnx_nodes import WEIGHTS, Arrays, run_ours

from rtlstm.gen.builds.generate import generate_build
from rtlstm.gen.frontends import read_model
from rtlstm.gen.quantise.quantiser import QuantizationSettings, quantise
from rtlstm.host import Accelerator
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.parameters import Parameters

# The longest sequence matters where a layer goes backwards.
PARAMETERS = Parameters(lanes=4, macs=2, streams=2, max_steps=8)
INPUTS = ("X", "W", "R", "B", "sequence_lens", "initial_h", "initial_c", "P")
NAMES = [
    "test_gru_batchwise",
    "test_gru_bidirectional",
    "test_gru_defaults",
    "test_gru_reverse",
    "test_gru_seq_length",
    "test_gru_with_initial_bias",
    "test_lstm_batchwise",
    "test_lstm_bidirectional",
    "test_lstm_defaults",
    "test_lstm_reverse",
    "test_lstm_with_initial_bias",
    "test_lstm_with_peepholes",
    "test_rnn_seq_length",
    "test_simple_rnn_batchwise",
    "test_simple_rnn_bidirectional",
    "test_simple_rnn_defaults",
    "test_simple_rnn_reverse",
    "test_simple_rnn_with_initial_bias",
]
LIST_CASES = """
import importlib, sys
from pathlib import Path
import onnx
from onnx import numpy_helper
from onnx.backend.test.case import node
# Of all operators' tests, those of these three: all take half a minute.
node.import_recursive = lambda package: [
    importlib.import_module(f"{package.__name__}.{name}") for name in ("lstm", "gru", "rnn")
]
folder = Path(sys.argv[1])
for case in node.collect_testcases():
    onnx.save(case.model, folder / f"{case.name}.onnx")
    (arrays,) = [inputs + outputs for inputs, outputs in case.data_sets]
    for item, array in zip([*case.model.graph.input, *case.model.graph.output], arrays, strict=True):
        proto = numpy_helper.from_array(array)
        (folder / f"{case.name}.{item.name}.pb").write_bytes(proto.SerializeToString())
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Models and arrays of all tests; another process collects them, for onnx keeps what it once made."""
    path = tmp_path_factory.mktemp("nodes")
    command = [sys.executable, "-W", "ignore", "-c", LIST_CASES, str(path)]
    subprocess.run(command, check=True, timeout=120)
    return path


def array(model: Path, name: str) -> np.ndarray:
    """An input or expected output of a test."""
    content = model.with_suffix(f".{name}.pb").read_bytes()
    return numpy_helper.to_array(onnx.TensorProto.FromString(content))


@dataclass(frozen=True)
class Case:
    """One test: a model whose weights are constants, what it reads and what it must give, by ONNX's names."""

    name: str
    path: Path
    data: Arrays
    expected: Arrays
    layout: int


def cases(folder: Path, *names: str) -> Iterator[Case]:
    """Tests by name; all of them without any."""
    assert sorted(path.stem for path in folder.glob("*.onnx")) == NAMES
    for test in names or NAMES:
        model_path = folder / f"{test}.onnx"
        model = onnx.load(model_path)
        (node,) = model.graph.node
        named = dict(zip(INPUTS, node.input, strict=False))
        data = {name: array(model_path, tensor) for name, tensor in named.items() if tensor}
        for name in data.keys() & WEIGHTS:  # which the tests have as inputs, too
            model.graph.initializer.append(numpy_helper.from_array(data[name], named[name]))
        outputs = zip(("Y", "Y_h", "Y_c"), node.output, strict=False)
        expected = {name: array(model_path, tensor) for name, tensor in outputs if tensor}
        attributes = {item.name: helper.get_attribute_value(item) for item in node.attribute}
        path = model_path.with_suffix(".constant")
        onnx.save(model, path)
        yield Case(test, path, data, expected, attributes.get("layout", 0))


def test_node_tests(folder: Path) -> None:
    for case in cases(folder):
        ours = run_ours(case.path, case.data, case.layout)
        for name, expected in case.expected.items():
            np.testing.assert_allclose(ours[name], expected, rtol=0, atol=1e-6, err_msg=case.name)


def batch_second(case: Case, array: np.ndarray) -> np.ndarray:
    """The driver's order of axes."""
    return array.swapaxes(0, 1) if case.layout else array


def test_node_tests_on_the_golden_model(folder: Path) -> None:
    for case in cases(folder):
        x = batch_second(case, case.data["X"])
        quantised = quantise(read_model(case.path).network, QuantizationSettings(), x)
        manifest = Manifest.of("node", quantised, PARAMETERS)
        build = Build(quantised, manifest).save(folder / f"{case.name}.golden")
        with Accelerator.open(build, backend="golden") as golden:
            _, (h, _) = golden.run(x)
        expected = batch_second(case, case.expected["Y_h"])
        # Of the result's steps, 2 are met.
        assert np.abs(h - expected).max() <= 4 * manifest.layers[-1].output.step, case.name


@pytest.mark.slow
@pytest.mark.rtl
@pytest.mark.parametrize("name", NAMES)
def test_node_tests_on_the_hardware(name: str, folder: Path, tmp_path: Path) -> None:
    (case,) = cases(folder, name)
    x = batch_second(case, case.data["X"])
    network = read_model(case.path).network
    generate_build(network, tmp_path / "build", name="node", parameters=PARAMETERS, calibration=x)
    results = []
    for backend in ("golden", "verilator"):
        with Accelerator.open(tmp_path / "build", backend=backend) as device:
            y, (h, c) = device.run(x)
            results.append([y, *h, *c])
    for golden, rtl in zip(*results, strict=True):
        np.testing.assert_array_equal(rtl, golden)
