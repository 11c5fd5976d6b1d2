"""ONNX's own tests of the LSTM, GRU and RNN operators: our network of each node gives what they expect."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnx_nodes import run_ours

COUNTS = {"LSTM": 6, "GRU": 6, "RNN": 6}
LIST_CASES = """
import sys, onnx
from pathlib import Path
from onnx.backend.test.case.node import collect_testcases
from onnx import numpy_helper
folder = Path(sys.argv[2])
for case in collect_testcases(sys.argv[1]):
    onnx.save(case.model, folder / f"{case.name}.onnx")
    (inputs, outputs), = case.data_sets
    names = [i.name for i in case.model.graph.input], [o.name for o in case.model.graph.output]
    for side, arrays in zip(names, (inputs, outputs)):
        for name, array in zip(side, arrays, strict=True):
            (folder / f"{case.name}.{name}.pb").write_bytes(numpy_helper.from_array(array).SerializeToString())
"""


@pytest.fixture(scope="module", params=COUNTS)
def cases(request, tmp_path_factory) -> list[Path]:
    """Models of one operator's tests; collecting them leaves its traces in the process, so another does it."""
    folder = tmp_path_factory.mktemp("nodes")
    subprocess.run(
        [sys.executable, "-W", "ignore", "-c", LIST_CASES, request.param, str(folder)],
        check=True,
        timeout=120,
    )
    found = sorted(folder.glob("*.onnx"))
    assert len(found) >= COUNTS[request.param]
    return found


def array(model: Path, name: str) -> np.ndarray:
    """An input or expected output of a test."""
    tensor = onnx.TensorProto.FromString(model.with_suffix(f".{name}.pb").read_bytes())
    return numpy_helper.to_array(tensor)


def test_node_tests(cases: list[Path]) -> None:
    for model_path in cases:
        model = onnx.load(model_path)
        (node,) = model.graph.node
        named = dict(zip(("X", "W", "R", "B", "sequence_lens", "initial_h", "initial_c", "P"), node.input))
        data = {name: array(model_path, tensor) for name, tensor in named.items() if tensor}
        for name in ("W", "R", "B", "P"):  # the tests have the weights as inputs, too
            if name in data:
                model.graph.initializer.append(numpy_helper.from_array(data[name], named[name]))
        path = model_path.with_suffix(".constant.onnx")
        onnx.save(model, path)
        layout = next((helper.get_attribute_value(a) for a in node.attribute if a.name == "layout"), 0)
        ours = run_ours(path, data, layout)
        for name, tensor in zip(("Y", "Y_h", "Y_c"), node.output):
            if tensor:
                expected = array(model_path, tensor)
                np.testing.assert_allclose(ours[name], expected, rtol=0, atol=1e-6, err_msg=model_path.stem)
