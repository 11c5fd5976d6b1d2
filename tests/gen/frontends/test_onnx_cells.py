"""LSTM cells that an exporter took apart, and LSTMs whose weights onnxruntime quantised."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper
from support.closeness import close
from support.onnx_files import H, I, O, const, edited, ints, node, rand, save
from support.refusals import refused

from rtlstm.gen.frontends import ReadOptions, inspect_model, read_model
from rtlstm.sim.reference import run_float


def gates(how):
    """Nodes that give the activated gates i, f, g and o from x and h, and their weights.

    The order of the rows is g, o, i, f.
    """
    names = "gofi" if how == "separate" else "goif"
    kinds = {"g": "Tanh", "i": "Sigmoid", "f": "Sigmoid", "o": "Sigmoid"}
    w, u, b = rand(4 * H, I), rand(4 * H, H), rand(4 * H)
    activations = [node(kinds[gate], f"{gate}_pre", gate, f"act_{gate}") for gate in "ifgo"]
    parts = " ".join(f"{gate}_pre" for gate in names)
    if how == "gemm and split":
        nodes = [
            node("Gemm", "h u b", "from_h", "gh", transB=1),
            node("Gemm", "x w b", "from_x", "gx", transB=1, alpha=0.5),
            node("Add", "from_h from_x", "sum"), node("Split", "sum", parts, axis=1),
        ]  # fmt: skip
        return [*nodes, *activations], [const("w", w), const("u", u), const("b", b)]
    if how == "joined and sliced":
        nodes = [
            node("Concat", "x h", "xh", axis=-1),
            node("MatMul", "xh wu", "sum"),
            node("Add", "b sum", "biased"),
        ]
        nodes += [
            node("Slice", f"biased s{k} e{k} one", f"{gate}_pre", f"cut_{gate}")
            for k, gate in enumerate(names)
        ]
        bounds = [ints(f"s{k}", k * H) for k in range(4)] + [ints(f"e{k}", (k + 1) * H) for k in range(4)]
        weights = [const("wu", np.concatenate([w, u], axis=1).T), const("b", b), ints("one", 1), *bounds]
        return [*nodes, *activations], weights
    nodes, weights = [], []
    for k, gate in enumerate(names):
        rows = slice(k * H, (k + 1) * H)
        weights += [const(f"w{gate}", w[rows].T), const(f"u{gate}", u[rows].T), const(f"b{gate}", b[rows])]
        nodes += [
            node("MatMul", f"x w{gate}", f"wx{gate}", f"wx{gate}"),
            node("MatMul", f"h u{gate}", f"uh{gate}", f"uh{gate}"),
            node("Add", f"wx{gate} uh{gate}", f"s{gate}", f"s{gate}"),
            node("Add", f"s{gate} b{gate}", f"{gate}_pre", f"b{gate}"),
        ]
    return [*nodes, *activations], weights


def cell_model(path, how, output_activation="Tanh", swap=False, h=(1, H), c=(1, H), x=(1, I)):
    """A cell of one step with a dense layer behind it, its state given and handed out."""
    nodes, weights = gates(how)
    nodes += [
        node("Mul", "g i" if swap else "i g", "new", "m1"),
        node("Mul", "c f" if swap else "f c", "kept", "m2"),
        node("Add", "new kept" if swap else "kept new", "c_out", "add_c"),
        node(output_activation, "c_out", "activated"),
        node("Mul", "activated o" if swap else "o activated", "h_out", "m3"),
        node("MatMul", "h_out v", "out", "head"),
    ]  # fmt: skip
    states = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("h", h), ("c", c))]
    return save(path, nodes, [*weights, const("v", rand(H, O))], ["out", "h_out", "c_out"], states, shape=x)


@pytest.mark.parametrize("swap", [False, True])
@pytest.mark.parametrize("how", ["gemm and split", "joined and sliced", "separate"])
def test_cell_in_parts(path, how, swap):
    cell_model(path, how, output_activation="Softsign" if swap else "Tanh", swap=swap)
    result = read_model(path)
    assert [layer.kind for layer in result.network.layers] == ["lstm", "dense"]
    feeds = {name: rand(1, I if name == "x" else H) for name in ("x", "h", "c")}
    out, h, c = onnxruntime.InferenceSession(str(path)).run(None, feeds)
    ours = run_float(result.network, feeds["x"][None], state=((feeds["h"],), (feeds["c"],)))
    for found, expected in ((ours.y[0], out), (ours.h[0], h), (ours.c[0], c)):
        close(found, expected)
    assert result.network.layers[0].name == "m3" and read_model(path, ReadOptions(lstm="m3"))
    notes = " ".join(result.report.notes)
    assert "'h_out' are an LSTM cell: it reads 'x', and its state is 'h' and 'c'" in notes
    assert "initial_c is the model's input 'c'" in notes


def test_cell_in_parts_with_other_functions(path):
    """One that has an operator's default does not take the next one's parameter."""
    cell_model(path, "separate")
    with edited(path) as model:
        for each in model.graph.node:
            if each.op_type == "Sigmoid":
                each.op_type = "HardSigmoid"
            if each.output[0] == "activated":
                each.op_type = "LeakyRelu"
                each.attribute.append(helper.make_attribute("alpha", 0.3))
    layer = read_model(path).network.layers[0]
    assert (str(layer.gate), str(layer.output_activation)) == ("hard_sigmoid(0.2, 0.5)", "leaky_relu(0.3)")
    feeds = {name: rand(1, I if name == "x" else H) for name in ("x", "h", "c")}
    (expected,) = onnxruntime.InferenceSession(str(path)).run(["out"], feeds)
    ours = run_float(read_model(path).network, feeds["x"][None], state=((feeds["h"],), (feeds["c"],)))
    close(ours.y[0], expected)


@pytest.mark.parametrize("width", [I, H])
def test_cell_with_one_state_tensor(path, width):
    """silero's way: both halves of one input; so it is clear which product reads h, whatever the sizes."""
    nodes = [
        node("Gather", "state zero", "h", "g0"), node("Gather", "state one", "c", "g1"),
        node("Gemm", "h u", "from_h", "gh"), node("Gemm", "x w", "from_x", "gx"),
        node("Add", "from_h from_x", "sum"), node("Split", "sum", "p0 p1 p2 p3", axis=1),
        node("Sigmoid", "p0", "i", "a0"), node("Sigmoid", "p1", "f", "a1"), node("Tanh", "p2", "g", "a2"),
        node("Sigmoid", "p3", "o", "a3"), node("Mul", "i g", "new", "m1"), node("Mul", "f c", "kept", "m2"),
        node("Add", "kept new", "c_out", "add_c"), node("Tanh", "c_out", "t"),
        node("Mul", "o t", "out", "m3"),
    ]  # fmt: skip
    weights = [
        const("w", rand(width, 4 * H)), const("u", rand(H, 4 * H)),
        const("zero", np.int64(0)), const("one", np.int64(1)),
    ]  # fmt: skip
    state = helper.make_tensor_value_info("state", TensorProto.FLOAT, (2, 1, H))
    save(path, nodes, weights, inputs=[state], shape=(1, width))
    feeds = {"x": rand(1, width), "state": rand(2, 1, H)}
    (expected,) = onnxruntime.InferenceSession(str(path)).run(None, feeds)
    given = tuple((part,) for part in feeds["state"])
    close(run_float(read_model(path).network, feeds["x"][None], state=given).y[0], expected)


def test_cell_of_which_it_is_not_clear_what_the_state_is(path):
    nodes, weights = gates("separate")
    weights = [w for w in weights if not w.name.startswith("w")]
    weights += [const(f"w{gate}", rand(H, H)) for gate in "ifgo"]
    nodes += [
        node("Mul", "i g", "new", "m1"), node("Mul", "f c", "kept", "m2"), node("Add", "kept new", "c_out"),
        node("Tanh", "c_out", "t"), node("Mul", "o t", "out", "m3"),
    ]  # fmt: skip
    states = [helper.make_tensor_value_info(n, TensorProto.FLOAT, (1, H)) for n in ("h", "c")]
    save(path, nodes, weights, inputs=states, shape=(1, H))
    refused(path, "'out' look like an LSTM cell, but it is not clear which of 'x', 'h' is its")


def test_unrolled_steps_are_refused(path):
    """The second step's old state is computed by the first, which is no longer one step."""
    cell_model(path, "gemm and split")
    with edited(path) as model:
        again = [onnx.NodeProto.FromString(each.SerializeToString()) for each in model.graph.node]
        renamed = {"h": "h_out", "c": "c_out"}
        for each in again:
            each.name += "_2"
            for part in (each.input, each.output):
                for k, name in enumerate(part):
                    kept = name in ("x", "w", "u", "b", "v")
                    new = renamed.get(name, f"{name}_2") if part is each.input else f"{name}_2"
                    part[k] = name if kept else new
        model.graph.node.extend(again)
        model.graph.output[0].name = "out_2"
        del model.graph.output[1:]
    refused(path, "'h_out_2' look like an LSTM cell, but its state must be an input")


# com.microsoft's quantised LSTM


def quantised_model(path, per_column, **attributes):
    """An LSTM node and its twin with weights of 8 bits, as onnxruntime's quantiser makes it."""
    directions = 2 if attributes.get("direction") == "bidirectional" else 1
    rng = np.random.default_rng(5)
    weights = []
    floats = {}
    for name, columns in (("W", I), ("R", H)):
        shape = (directions, 4 * H) if per_column else (directions,)
        codes = rng.integers(0, 256, (directions, columns, 4 * H)).astype(np.uint8)
        zero = rng.integers(100, 150, shape).astype(np.uint8)
        if per_column:  # which onnxruntime runs only without zero points
            codes, zero = (codes.astype(np.int16) - 128).astype(np.int8), np.zeros(shape, np.int8)
        scale = rng.uniform(0.002, 0.004, shape).astype(np.float32)
        spread = scale.reshape(directions, 1, -1), zero.astype(np.float64).reshape(directions, 1, -1)
        floats[name] = ((codes - spread[1]) * spread[0]).transpose(0, 2, 1).astype(np.float32)
        weights += [const(name, codes), const(f"{name}s", scale), const(f"{name}z", zero)]
    weights.append(const("B", rand(directions, 8 * H)))
    inputs = ["x", "W", "R", "B", "", "", "", "", "Ws", "Wz", "Rs", "Rz"]
    quantised = helper.make_node(
        "DynamicQuantizeLSTM", inputs, ["y"], name="rec", domain="com.microsoft", hidden_size=H, **attributes
    )
    info = [
        helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", ("T", "N", I)), ("y", None))
    ]
    graph = helper.make_graph([quantised], "g", info[:1], info[1:], weights)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), path)
    plain = helper.make_node("LSTM", ["x", "W", "R", "B"], ["y"], name="rec", hidden_size=H, **attributes)
    twin = path.with_name("twin.onnx")
    save(twin, [plain], [const("W", floats["W"]), const("R", floats["R"]), weights[-1]], ["y"])
    return twin


@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
@pytest.mark.parametrize("per_column", [False, True])
def test_dynamic_quantize_lstm(path, per_column, direction):
    twin = quantised_model(path, per_column, direction=direction)
    result = read_model(path)
    x = rand(5, 2, I)
    ours = run_float(result.network, x).y
    close(ours, run_float(read_model(twin).network, x).y)
    (expected,) = onnxruntime.InferenceSession(str(path)).run(None, {"x": x})
    expected = expected.transpose(0, 2, 1, 3).reshape(ours.shape)
    # onnxruntime rounds x and h to 8 bits, too, and on some processors its sums of two products saturate.
    assert np.abs(ours - expected).mean() < 0.02
    assert any("quantised once already" in note for note in result.report.notes)
    assert inspect_model(path).nodes[0].kind == "DynamicQuantizeLSTM"


def test_onnxruntimes_own_quantiser(path, tmp_path):
    quantization = pytest.importorskip("onnxruntime.quantization")
    twin = quantised_model(path, False)
    quantization.quantize_dynamic(str(twin), str(tmp_path / "quantised.onnx"), op_types_to_quantize=["LSTM"])
    model = onnx.load(tmp_path / "quantised.onnx")
    assert [each.op_type for each in model.graph.node] == ["DynamicQuantizeLSTM"]
    x = rand(5, 2, I)
    found = run_float(read_model(tmp_path / "quantised.onnx").network, x).y
    assert 0 < np.abs(found - run_float(read_model(twin).network, x).y).max() < 0.03


def test_quantised_weights_of_a_wrong_shape(path):
    quantised_model(path, True)
    with edited(path) as model:
        scale = next(item for item in model.graph.initializer if item.name == "Rs")
        scale.CopyFrom(const("Rs", np.ones((1, 3), np.float32)))
    refused(path, r"input R_scale \('Rs'\) must have shape \(1,\) or \(1, 24\), not \(1, 3\)", ReadOptions())
