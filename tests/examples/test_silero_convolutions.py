"""silero's convolutions as layers of the core: what needs no download."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

onnxruntime = pytest.importorskip("onnxruntime")

from convolutions import (  # noqa: E402
    ARRAY,
    BINS,
    FRAMES,
    MAGNITUDES,
    SETTINGS,
    parse_arguments,
    predict,
    read_all,
    run_golden,
    run_rtl,
)

from rtlstm.gen.builds.generate import generate_build  # noqa: E402
from rtlstm.gen.quantise.quantiser import quantise  # noqa: E402
from rtlstm.sim.reference import run_float  # noqa: E402


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file of the same form with two convolutions, the second over the two frames that the first leaves."""
    rng = np.random.default_rng(0)
    nodes, weights, given = [helper.make_node("Sqrt", ["power"], [MAGNITUDES])], [], MAGNITUDES
    sizes = {"W": (1, 16, 5), "R": (1, 16, 4), "B": (1, 32)}
    for number, (inputs, outputs, taps) in enumerate([(BINS, 6, 3), (6, 5, 2)]):
        sizes |= {f"encoder.{number}.weight": (outputs, inputs, taps), f"encoder.{number}.bias": (outputs,)}
        names = [f"encoder.{number}.{name}" for name in ("weight", "bias")]
        pads = [1, 1] if number == 0 else [0, 0]
        nodes.append(helper.make_node("Conv", [given, *names], [f"c{number}"], strides=[2], pads=pads))
        nodes.append(helper.make_node("Relu", [f"c{number}"], [f"r{number}"]))
        given = f"r{number}"
    nodes.append(helper.make_node("Transpose", [given], ["steps"], perm=[0, 2, 1]))
    nodes.append(helper.make_node("LSTM", ["steps", "W", "R", "B"], ["y"], hidden_size=4))
    for name, size in sizes.items():
        array = rng.normal(size=size, scale=0.3).astype(np.float32)
        weights.append(numpy_helper.from_array(array, name))
    real = onnx.TensorProto.FLOAT
    ends = [
        helper.make_tensor_value_info("power", real, ["T", BINS, FRAMES]),
        helper.make_tensor_value_info("y", real, None),
    ]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


def test_network_equals_the_file(file: Path) -> None:
    x = np.random.default_rng(1).uniform(0, 1, (3, BINS, FRAMES)).astype(np.float32)
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    (wanted,) = session.run(None, {"power": x})
    y = run_float(read_all(file).network, np.sqrt(x).transpose(0, 2, 1).reshape(3, 1, -1)).y
    np.testing.assert_allclose(y, wanted[:, 0], atol=1e-5)


@pytest.mark.slow
@pytest.mark.rtl
def test_rtl_equals_both_golden_models(file: Path, tmp_path: Path) -> None:
    """The golden model with the network's own integers is compared, too: changed ones are seen."""
    network = read_all(file).network
    x = np.random.default_rng(1).uniform(0, 1, (3, 1, network.inputs))
    build, integers = tmp_path / "vad", quantise(network, SETTINGS, x)
    manifest = generate_build(network, build, name="vad", settings=SETTINGS, array=ARRAY, calibration=x)
    golden = run_golden(integers, x)
    found, different = run_rtl(build, x[:, 0], golden)
    assert found.passed
    assert (found.output_words, found.state_words, different) == (3 * 4, 2 * 4, 0)
    assert predict(integers, skip_zeros=True).cycles == manifest.cycles
    golden[1, 2] += 1
    assert run_rtl(build, x[:, 0], golden)[1] == 1


@pytest.mark.parametrize("steps", ["0", "-1"])
def test_wrong_steps(steps: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        parse_arguments(["--steps", steps])
    assert raised.value.code == 2
    assert "--steps must be at least 1" in capsys.readouterr().err
