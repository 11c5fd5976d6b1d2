"""ONNX's own tests of the LSTM, GRU and RNN operators: our network of each node gives what they expect."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnx_nodes import WEIGHTS, run_ours

INPUTS = ("X", "W", "R", "B", "sequence_lens", "initial_h", "initial_c", "P")
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


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_node_tests(kind: str, folder: Path) -> None:
    tested = 0
    for model_path in sorted(folder.glob("*.onnx")):
        model = onnx.load(model_path)
        (node,) = model.graph.node
        if node.op_type == kind:
            check(model_path, model, node)
            tested += 1
    assert tested == 6


def check(model_path: Path, model: onnx.ModelProto, node: onnx.NodeProto) -> None:
    """Compare with every output that the test gives."""
    named = dict(zip(INPUTS, node.input, strict=False))
    data = {name: array(model_path, tensor) for name, tensor in named.items() if tensor}
    for name in data.keys() & WEIGHTS:  # which the tests have as inputs, too
        model.graph.initializer.append(numpy_helper.from_array(data[name], named[name]))
    path = model_path.with_suffix(".constant")
    onnx.save(model, path)
    layout = next((helper.get_attribute_value(a) for a in node.attribute if a.name == "layout"), 0)
    ours = run_ours(path, data, layout)
    for name, tensor in zip(("Y", "Y_h", "Y_c"), node.output, strict=False):
        if tensor:
            expected = array(model_path, tensor)
            np.testing.assert_allclose(ours[name], expected, rtol=0, atol=1e-6, err_msg=model_path.stem)
