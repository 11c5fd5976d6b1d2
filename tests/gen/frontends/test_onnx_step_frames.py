"""Convolutions over the frames inside a step: alone, and in ONNX models in front of their recurrent layer."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper
from support.lazy import F, nn, torch
from support.onnx_files import O, const, ints, lstm, node, rand, run, save
from support.refusals import named_begins, refused

from rtlstm.gen.builds.compiled import compile
from rtlstm.gen.frontends import ReadOptions, read_model
from rtlstm.gen.frontends.layers import convolve_step
from rtlstm.sim.reference import run_float
from rtlstm.spec.errors import ModelError
from rtlstm.spec.network import Network

C, K, T = 3, 4, 7
"""Channels and frames of a step, and steps."""


def convolution(x: str, y: str, inputs: int, outputs: int, taps: int = 3, **given: Any) -> tuple[list, list]:
    """A convolution and its ReLU."""
    shape = (outputs, inputs, *given.pop("other", ()), taps)
    weights = [const(f"{y}.W", rand(*shape)), const(f"{y}.B", rand(outputs))]
    conv = node("Conv", f"{x} {y}.W {y}.B", f"{y}_linear", name=y, **{"pads": [1, 1], **given})
    return [conv, node("Relu", f"{y}_linear", y, name=f"{y}_relu")], weights


def like_silero(path: Path, front: str = "", shape: Any = ("T", C, K)) -> Path:
    """Frames 4, 2, 1 and, over the one that is left, 1; ``front`` is an operator before all."""
    nodes = [node(front, "x", "m")] if front else []
    weights = [const("head.W", rand(6, O))]
    read, sizes = "m" if front else "x", [(C, 5, 1), (5, 4, 2), (4, 4, 2), (4, 5, 1)]
    for number, (inputs, outputs, stride) in enumerate(sizes):
        made = convolution(read, f"conv{number}", inputs, outputs, strides=[stride])
        nodes, weights, read = nodes + made[0], weights + made[1], f"conv{number}"
    layer = lstm(x="turned", inputs=5)
    nodes += [node("Transpose", read, "turned", perm=[0, 2, 1]), *layer[0]]
    nodes += [node("Squeeze", "y direction", "h"), node("MatMul", "h head.W", "out")]
    return save(path, nodes, [*weights, *layer[1], ints("direction", 1)], shape=shape)


def x_like_silero(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(0, 2, (T, C, K)).astype(np.float32)


def steps_of(x: np.ndarray) -> np.ndarray:
    """``(T, C, K)`` as steps of one sequence, frames side by side."""
    return x.transpose(0, 2, 1).reshape(len(x), 1, -1).astype(np.float64)


def test_like_silero(tmp_path: Path) -> None:
    path, x = like_silero(tmp_path / "m.onnx"), x_like_silero()
    result = read_model(path)
    assert result.report.input == "x" and (result.network.inputs, result.network.frames) == (C * K, K)
    assert [layer.kind for layer in result.network.layers] == ["dense"] * 4 + ["lstm", "dense"]
    np.testing.assert_allclose(run_float(result.network, steps_of(x)).y, run(path, x), atol=1e-5)
    assert any("takes 4 frames of 3 values at once" in note for note in result.report.notes)


def joined(path: Path, layout: str) -> tuple[Path, np.ndarray, np.ndarray]:
    """Convolutions whose frames a Flatten or Reshape joins; with an input and its steps."""
    x = np.random.default_rng(2).normal(size=(T, 2, C, K)).astype(np.float32)
    steps = x.swapaxes(2, 3).reshape(T, 2, -1).astype(np.float64)
    conv, weights = convolution("read", "front", C, 5, strides=[2])  # It leaves two frames.
    scales = [const(f"norm.{name}", rand(5) ** 2 + 0.5) for name in ("s", "b", "m", "v")]
    conv.append(node("BatchNormalization", "front norm.s norm.b norm.m norm.v", "normed"))
    layer = lstm(x="rows", inputs=10)
    if layout == "rows":
        shapes = [ints("apart", -1, C, K), ints("shape", T, 2, -1)]
        nodes = [node("Reshape", "x apart", "read"), *conv, node("Flatten", "normed", "flat")]
        nodes.append(node("Reshape", "flat shape", "rows", name="restored"))
    elif layout == "frames first":
        x = x.swapaxes(2, 3).copy()
        shapes = [ints("apart", -1, K, C), ints("shape", T, 2, -1)]
        nodes = [node("Reshape", "x apart", "k"), node("Transpose", "k", "read", perm=[0, 2, 1]), *conv]
        nodes.append(node("Reshape", "normed shape", "rows", name="restored"))
    else:
        x = x.transpose(1, 2, 0, 3).copy()
        conv, weights = convolution("x", "front", C, 5, other=(1,), strides=[1, 2], pads=[0, 1, 0, 1])
        conv.append(node("BatchNormalization", "front norm.s norm.b norm.m norm.v", "normed"))
        shapes = [ints("shape", 0, 0, -1)]
        nodes = [*conv, node("Transpose", "normed", "turned", perm=[2, 0, 1, 3])]
        nodes.append(node("Reshape", "turned shape", "rows"))
    nodes += [*layer[0], node("Squeeze", "y direction", "out")]
    save(path, nodes, [*weights, *scales, *layer[1], *shapes, ints("direction", 1)], shape=x.shape)
    return path, x, steps


def test_residual_between_convolutions(tmp_path: Path) -> None:
    """One of them in groups. And constants of one frame, and a Transpose that brings the frames in front."""
    first, second = convolution("x", "a", C, C), convolution("a", "b", 1, C, group=C)
    layer = lstm(x="z", inputs=C * K)
    nodes = [*first[0], *second[0], node("Add", "a b", "c"), node("Mul", "c scale", "d")]
    nodes += [node("Transpose", "d", "e", perm=[0, 2, 1]), node("Reshape", "e shape", "z"), *layer[0]]
    weights = [*first[1], *second[1], *layer[1], const("scale", rand(C, 1)), ints("shape", 0, 1, -1)]
    path, x = save(tmp_path / "m.onnx", nodes, weights, ["y"], shape=("T", C, K)), x_like_silero()
    y = run_float(read_model(path).network, steps_of(x)).y
    np.testing.assert_allclose(y, run(path, x, "y")[:, 0], atol=1e-5)


@pytest.mark.parametrize("layout", ["rows", "frames first", "two axes"])
def test_frames_that_are_joined(layout: str, tmp_path: Path) -> None:
    path, x, steps = joined(tmp_path / "m.onnx", layout)
    result = read_model(path)
    assert result.report.input == "x" and result.network.frames == K
    np.testing.assert_allclose(run_float(result.network, steps).y, run(path, x), atol=1e-5)


def test_begin_behind_what_the_core_cannot_compute(tmp_path: Path) -> None:
    """The reader offers it, and takes it if asked."""
    path, x = like_silero(tmp_path / "m.onnx", front="Sqrt"), x_like_silero()
    as_ever = read_model(path)
    assert as_ever.report.input == "turned" and as_ever.network.frames == 1
    assert any("from 'm' on, with" in note and "'m'" in note for note in as_ever.report.notes)
    result = read_model(path, ReadOptions(begin="m"))
    assert any("1 nodes before 'm' stay outside" in note and "Sqrt" in note for note in result.report.notes)
    found = run_float(result.network, steps_of(np.sqrt(x))).y
    np.testing.assert_allclose(found, run(path, x), atol=1e-5)
    assert read_model(path, ReadOptions(begin="turned")).network.layers[0].kind == "lstm"


AT_M = ReadOptions(begin="m")


@pytest.mark.parametrize(
    ("attributes", "words"),
    [
        ({"dilations": [2], "pads": [2, 2]}, r"'front' convolves over the 4 .*: dilations=\[2\] must be"),
        ({"pads": [2, 0]}, r"pads=\[2, 0\] must be \[2, 2\]"),
        ({"auto_pad": "SAME_UPPER", "pads": None}, "auto_pad=SAME_UPPER must be NOTSET"),
    ],
)
def test_attributes_that_are_refused(attributes: dict[str, Any], words: str, tmp_path: Path) -> None:
    given = {"pads": [1, 1]} | attributes
    conv = helper.make_node(
        "Conv", ["m", "w"], ["front"], name="front", **{k: v for k, v in given.items() if v is not None}
    )
    layer = lstm(x="rows", inputs=3 * K)
    nodes = [node("Sqrt", "x", "m"), conv, node("Reshape", "front shape", "rows"), *layer[0]]
    weights = [const("w", rand(3, C, 3)), *layer[1], ints("shape", 0, 1, -1)]
    refused(save(tmp_path / "m.onnx", nodes, weights, ["y"], shape=("T", C, K)), words, AT_M)


def test_begins_that_are_refused(tmp_path: Path) -> None:
    torch.save(nn.LSTM(C, 2).state_dict(), tmp_path / "lstm.pt")
    refused(tmp_path / "lstm.pt", "`begin` names a tensor of a model's graph, and this file has none", AT_M)
    path = like_silero(tmp_path / "m.onnx", front="Sqrt")
    assert named_begins(path)[-2:] == ["sqrt", "x"]
    refused(path, "Sqrt node 'sqrt', which reads 'x', is not supported.*lstm='rec'", ReadOptions(begin="x"))
    unknown = like_silero(tmp_path / "u.onnx", front="Sqrt", shape=("T", C, "K"))
    refused(unknown, "does not tell how many frames a step of 'm' has", AT_M)
    nodes, weights = convolution("m", "front", C, 5)
    layer = lstm(x="turned", inputs=2)
    nodes += [node("MatMul", "front w", "mixed"), node("Transpose", "mixed", "turned", perm=[0, 1, 2])]
    constants = [*weights, const("w", rand(K, 2)), *layer[1]]
    path = save(
        tmp_path / "m.onnx", [node("Sqrt", "x", "m"), *nodes, *layer[0]], constants, ["y"], shape=("T", C, K)
    )
    refused(path, "MatMul node 'matmul' reads frames inside a step", AT_M)


@pytest.mark.slow
@pytest.mark.rtl
def test_golden_rtl_and_streams(tmp_path: Path) -> None:
    """The file as it is: golden equals Icarus on every bit and cycle, and a stream keeps its state."""
    path, x = like_silero(tmp_path / "m.onnx"), x_like_silero()
    frames = x.transpose(0, 2, 1).reshape(T * K, 1, C)
    build = compile(path, folder=tmp_path / "build", calibration=frames, lanes=4, macs=4, skip_zeros=True)
    assert build.simulate(frames[: 2 * K], simulator="icarus", verify=False).passed
    with build.open("golden") as accelerator:
        y, _ = accelerator.run(frames)
        np.testing.assert_allclose(y[:, 0], run(path, x)[:, 0], atol=5e-3)
        with accelerator.stream() as stream:
            halves = [stream.steps(frames[: 3 * K, 0]), stream.steps(frames[3 * K :, 0])]
            np.testing.assert_array_equal(np.concatenate(halves), y[:, 0])


# One convolution


@pytest.mark.parametrize(
    ("frames", "stride", "padding", "zero_shares"),
    [(4, 1, 1, 6 / 16), (4, 2, 1, 3 / 8), (2, 2, 1, 0), (1, 1, 1, 0), (5, 2, 0, 4 / 10)],
)
def test_equals_pytorch(frames: int, stride: int, padding: int, zero_shares: float) -> None:
    """Also how much of the weights is zero: that is what can be skipped."""
    rng = np.random.default_rng(frames)
    weight, bias, x = rng.normal(size=(3, 2, 3)), rng.normal(size=3), rng.normal(size=(7, 1, frames, 2))
    layer = convolve_step("conv", weight, bias, frames, stride=stride, padding=padding)
    wanted = F.conv1d(
        torch.from_numpy(x[:, 0].swapaxes(1, 2)),
        torch.from_numpy(weight),
        torch.from_numpy(bias),
        stride=stride,
        padding=padding,
    )
    found = run_float(Network(layers=(layer,), frames=frames), x.reshape(7, 1, -1)).y
    np.testing.assert_allclose(found[:, 0], wanted.numpy().swapaxes(1, 2).reshape(7, -1), atol=1e-12)
    assert np.mean(layer.weight == 0) == pytest.approx(zero_shares)


@pytest.mark.parametrize(
    ("shape", "frames", "words"),
    [((3, 2), 4, r"must be \(outputs, inputs, taps\) and"), ((3, 2, 5), 2, "conv must give a frame, but 2")],
)
def test_bad_input(shape: tuple[int, ...], frames: int, words: str) -> None:
    """One sentence."""
    with pytest.raises(ModelError, match=words):
        convolve_step("conv", np.ones(shape), np.ones(3), frames)
