"""Each node's tensors are as its operator's definition says, those that the core ignores, too."""

import math
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper
from support.lazy import torch
from support.onnx_files import H, I, const, edited, ints, lstm, node, rand, run, save, squeezed
from support.refusals import refused

from rtlstm.gen.frontends import read_model
from rtlstm.gen.frontends.arrays import reorder

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
N, T = 2, 7


def recurrent(kind: str, direction: str, layout: int, units: int = H, inputs: int = I):
    """All tensors of a recurrent node, by the names of the definition; with every optional one."""
    d, rows = 1 + (direction == "bidirectional"), GATES[kind] * units
    state = (N, d, units) if layout else (d, N, units)
    return {
        "X": (N, T, inputs) if layout else (T, N, inputs),
        "W": rand(d, rows, inputs),
        "R": rand(d, rows, units),
        "B": rand(d, 2 * rows),
        "sequence_lens": np.full(N, T, np.int32),
        "initial_h": np.zeros(state, np.float32),
        **({"initial_c": np.zeros(state, np.float32)} if kind == "LSTM" else {}),
        **({"P": rand(d, 3 * units)} if kind == "LSTM" else {}),
    }


def write(path: Path, kind: str, tensors, direction: str, layout: int, units: int = H) -> Path:
    shape, given = tensors["X"], [(name, value) for name, value in tensors.items() if name != "X"]
    attributes = {"direction": direction, "hidden_size": units}
    if layout:
        attributes["layout"] = 1
    made = helper.make_node(kind, ["x", *(name for name, _ in given)], ["out"], name="rec", **attributes)
    return save(path, [made], [const(name, value) for name, value in given], shape=shape)


@pytest.mark.parametrize("layout", [0, 1])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("kind", GATES)
def test_every_tensor_of_a_recurrent_node(kind: str, direction: str, layout: int, tmp_path: Path):
    """Each axis of each tensor, one at a time, one larger and one smaller; all right, the node is read."""
    tensors, path = recurrent(kind, direction, layout), tmp_path / "a.onnx"
    assert read_model(write(path, kind, tensors, direction, layout)).network.inputs == I
    for name, value in tensors.items():
        shape = value if name == "X" else value.shape
        for axis in range(len(shape)):
            for change in (1, -1):
                other = tuple(size + change * (at == axis) for at, size in enumerate(shape))
                # X alone says how many steps and sequences there are, if no constant does.
                if name == "X" and axis == (1 if layout else 0):
                    continue
                wrong = other if name == "X" else np.zeros(other, value.dtype)
                refused(write(path, kind, {**tensors, name: wrong}, direction, layout), "rec")


@pytest.mark.parametrize("units", [3, 4, 17])
def test_a_state_of_another_width_is_named(units: int, tmp_path: Path):
    """As PyTorch's newer exporter writes an LSTM with a projection, without that."""
    tensors = recurrent("LSTM", "forward", 0, units)
    tensors["initial_c"] = np.zeros((1, N, units + 2), np.float32)
    path = write(tmp_path / "a.onnx", "LSTM", tensors, "forward", 0, units)
    wanted = (
        rf"LSTM node 'rec': input initial_c \('initial_c'\) must have shape \(1, 2, {units}\), not "
        rf"\(1, 2, {units + 2}\); .*proj_size: then give the module itself, or a \.pt2 file"
    )
    refused(path, wanted)
    with pytest.raises(Exception, match="initial_c"):
        run(path, rand(T, N, I))


@pytest.mark.filterwarnings("ignore:The tensor attributes")
def test_the_way_out_for_a_projection(tmp_path: Path):
    """The module and a .pt2 file keep it."""
    module, path = torch.nn.LSTM(I, 6, proj_size=4).eval(), tmp_path / "a.pt2"
    torch.export.save(torch.export.export(module, (torch.rand(T, N, I),)), path)
    for source in (module, path):
        layer = read_model(source).network.layers[0]
        assert layer.units == 6 and layer.outputs == 4


def test_types(tmp_path: Path):
    """Whole numbers in place of fractions, and the other way round; widths of fractions may differ."""
    for name, kind in (("sequence_lens", np.float32), ("sequence_lens", np.int64), ("initial_h", np.int32)):
        tensors = recurrent("LSTM", "forward", 0)
        tensors[name] = tensors[name].astype(kind)
        refused(write(tmp_path / "a.onnx", "LSTM", tensors, "forward", 0), "node 'rec'.* (type|must)")
    tensors = recurrent("GRU", "forward", 0)
    tensors |= {"R": tensors["R"].astype(np.float64), "initial_h": tensors["initial_h"].astype(np.float16)}
    assert read_model(write(tmp_path / "a.onnx", "GRU", tensors, "forward", 0)).network.layers[0].units == H


UNSQUEEZED = [node("Unsqueeze", "s at", "u"), node("Relu", "u", "out")]
BEHIND = {
    "a limit of 12": (
        [node("Clip", "s low high", "out")],
        [const("low", np.zeros(12, "f4")), const("high", np.float32(1))],
    ),
    "axes twice": (UNSQUEEZED, [ints("at", 0, 0)]),
    "axes twice, from the end": (UNSQUEEZED, [ints("at", 1, -4)]),
    "an axis beyond": (UNSQUEEZED, [ints("at", 9)]),
    "squeezed twice": (
        [node("Unsqueeze", "s zero", "u"), node("Squeeze", "u twice", "out")],
        [ints("zero", 0), ints("twice", 0, 0)],
    ),
    "an addend of C": (
        [node("MatMul", "s k", "m"), node("Add", "m b", "out")],
        [const("k", rand(H, 3)), const("b", rand(4))],
    ),
    "a variance": (
        [node("Transpose", "s", "t", perm=[1, 2, 0]), node("BatchNormalization", "t a a a b", "out")],
        [const("a", np.ones(H, "f4")), const("b", np.ones(H + 1, "f4"))],
    ),
    "a bias of Conv": (
        [node("Transpose", "s", "t", perm=[1, 2, 0]), node("Conv", "t k b", "out")],
        [const("k", rand(3, H, 1)), const("b", rand(4))],
    ),
    "a ratio of Dropout": ([node("Dropout", "s r", "out")], [const("r", np.zeros(5, "f4"))]),
    "a value of Pad": (
        [node("Transpose", "s", "t", perm=[1, 2, 0]), node("Pad", "t p v", "out")],
        [ints("p", 0, 0, 1, 0, 0, 0), const("v", np.zeros(3, "f4"))],
    ),
    "an index of Gather": ([node("Gather", "s i", "out", axis=7)], [ints("i", 0)]),
    "starts of Slice": ([node("Slice", "s a b", "out")], [ints("a", 0, 0), ints("b", 1)]),
}  # fmt: skip


@pytest.mark.parametrize("case", BEHIND)
def test_what_stands_behind(case: str, tmp_path: Path):
    nodes, weights = squeezed()
    more, constants = BEHIND[case]
    refused(
        save(tmp_path / "a.onnx", [*nodes, *more], [*weights, *constants]),
        rf"{more[-1].op_type}|{more[0].op_type}",
    )


def test_one_number_may_have_an_axis(tmp_path: Path):
    nodes, weights = squeezed()
    limits = [const("low", np.array([-1], "f4")), const("high", np.float32(2))]
    assert read_model(
        save(tmp_path / "a.onnx", [*nodes, node("Clip", "s low high", "out")], [*weights, *limits])
    )


def test_gemm_adds_one_value_for_each_output(tmp_path: Path):
    nodes, weights = squeezed()
    last = [node("Gather", "s i", "g", axis=0), node("Gemm", "g k b", "out")]
    weights += [ints("i", -1), const("k", rand(H, 3))]
    for shape, fits in (((3,), True), ((1, 3), True), ((4,), False), ((7, 3), False)):
        given = [*weights, const("b", rand(*shape))]
        path = save(
            tmp_path / "a.onnx",
            [*nodes, *last],
            [each for each in given if each.name != "i"] + [const("i", np.int64(-1))],
        )
        if fits:
            assert read_model(path).network.outputs == 3
        else:
            refused(path, "Gemm node")


def test_sizes_that_the_file_notes_wrongly_do_not_matter(tmp_path: Path):
    """Tools that change a graph leave the noted sizes of tensors inside it; onnxruntime only warns."""
    nodes, weights = squeezed()
    path = save(tmp_path / "a.onnx", [*nodes, node("Relu", "s", "out")], weights)
    with edited(path) as model:
        model.graph.value_info.append(helper.make_tensor_value_info("y", TensorProto.FLOAT, (3, 1, 9, 77)))
    assert read_model(path).network.outputs == H


def test_scan_begins_with_as_many_values_as_its_states_have(tmp_path: Path):
    body = helper.make_graph(
        [node("MatMul", "v w", "p"), node("MatMul", "h r", "q"), node("Add", "p q", "a"),
         node("Tanh", "a", "n"), node("Identity", "n", "g")],
        "b",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("h", "v")],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("n", "g")],
    )  # fmt: skip
    scan = helper.make_node("Scan", ["h0", "x"], ["last", "out"], name="loop", body=body, num_scan_inputs=1)
    weights = [const("w", rand(I, H)), const("r", rand(H, H))]
    for width, fits in ((H, True), (H + 1, False), (1, False)):
        path = save(
            tmp_path / "a.onnx", [scan], [*weights, const("h0", np.zeros((N, width), "f4"))], shape=(T, N, I)
        )
        if fits:
            assert math.isclose(read_model(path).network.outputs, H)
        else:
            refused(path, "Scan node 'loop'.*initial_h")


def test_lstm_without_its_hidden_size(tmp_path: Path):
    """R alone then says it."""
    nodes, weights = lstm(y="out", extra=("", "h0"))
    del nodes[0].attribute[:]
    for width, fits in ((H, True), (H + 2, False)):
        path = save(
            tmp_path / "a.onnx",
            nodes,
            [*weights, const("h0", np.zeros((1, 1, width), "f4"))],
            shape=(T, 1, I),
        )
        if fits:
            assert read_model(path).network.layers[0].units == H
        else:
            refused(path, rf"initial_h .* must have shape \(1, 1, {H}\), not")


def test_rows_that_are_not_four_gates() -> None:
    with pytest.raises(ValueError, match="four gates, not have 6 rows"):
        reorder(np.zeros((6, 1)), "onnx")
