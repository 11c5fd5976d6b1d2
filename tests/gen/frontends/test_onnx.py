"""ONNX models: built by hand and exported by PyTorch, against onnxruntime; refusals by name."""

import re

import numpy as np
import onnx
import onnx.reference
import pytest
from onnx import TensorProto, helper, numpy_helper
from support.closeness import close
from support.onnx_files import H, I, O, after_lstm, check, const, ints, lstm, node, rand, run, save, squeezed
from support.refusals import refused

from rtlstm.gen.frontends import ReadOptions, inspect_model, read_model
from rtlstm.gen.frontends.arrays import reorder
from rtlstm.gen.frontends.axes import KnownSizes, Size
from rtlstm.gen.frontends.onnx.node_graph import OnnxGraph
from rtlstm.gen.frontends.onnx.translate import translate
from rtlstm.sim.reference import run_float
from rtlstm.spec.errors import ToolError

# What is honoured


def test_lstm_alone(path):
    after_lstm(path, [], (), ["s"])
    result = check(path, "s")
    assert result.network.name == "model"
    assert (result.report.input, result.report.output) == ("x", "s")
    assert [entry.role for entry in result.report.nodes] == ["core", "shape"]


@pytest.mark.parametrize("opset", [7, 11, 13, 21])
def test_two_lstms_and_dense_layers(path, opset):
    first, w1 = lstm(y="y1", name="one")
    second, w2 = lstm(x="s1", y="y2", name="two", inputs=H)
    if opset >= 13:
        squeezes = [node("Squeeze", "y1 ax", "s1"), node("Squeeze", "y2 ax", "s2", "q2")]
    else:
        squeezes = [node("Squeeze", "y1", "s1", axes=[1]), node("Squeeze", "y2", "s2", "q2", axes=[1])]
    nodes = [
        *first,
        squeezes[0],
        *second,
        squeezes[1],
        node("Relu", "s2", "r"),
        node("MatMul", "r m", "mm", "fc1"),
        node("Add", "c mm", "a"),
        node("Tanh", "a", "t"),
        node("MatMul", "t m2", "mm2", "fc2"),
        node("Sigmoid", "mm2", "out"),
    ]
    weights = [*w1, *w2, const("m", rand(H, 4)), const("c", rand(4)), const("m2", rand(4, O)), ints("ax", 1)]
    save(path, nodes, weights, opset=opset)
    network = check(path).network
    assert [layer.name for layer in network.layers] == ["one", "two", "fc1", "fc2"]
    assert [layer.input_relu for layer in network.layers] == [False, False, True, False]


def test_conv_head_as_in_silero(path):
    nodes = [
        node("Relu", "s", "r"),
        node("Transpose", "r", "t", perm=[1, 2, 0]),
        node("Conv", "t k kb", "v", kernel_shape=[1]),
        node("Sigmoid", "v", "g"),
        node("Reshape", "g shape", "out"),
    ]
    after_lstm(path, nodes, [const("k", rand(1, H, 1)), const("kb", rand(1)), ints("shape", -1)])
    network, x = read_model(path).network, rand(7, 1, I)
    close(run_float(network, x).y.reshape(-1), run(path, x))
    assert network.layers[1].input_relu and network.layers[1].activation == "sigmoid"


def last_state(*more):
    """An LSTM whose final state ``s`` these nodes read, and its weights."""
    nodes, weights = lstm(y="", y_h="h")
    return [*nodes, node("Squeeze", "h zero", "s"), *more], [*weights, ints("zero", 0)]


@pytest.mark.parametrize("trans_b", [0, 1])
@pytest.mark.parametrize("bias", [(O,), (1, O), (1,), ()])
def test_gemm_folds_alpha_beta_and_bias(path, trans_b, bias):
    nodes, weights = last_state(node("Gemm", "s w c", "out", transB=trans_b, alpha=0.5, beta=2.0))
    weights += [const("w", rand(*((O, H) if trans_b else (H, O)))), const("c", rand(*bias))]
    save(path, nodes, weights)
    assert any("last step" in note for note in check(path, at=-1).report.notes)


def test_gemm_with_transposed_input(path):
    nodes, weights = last_state(node("Transpose", "s", "t"), node("Gemm", "t w", "out", transA=1))
    save(path, nodes, [*weights, const("w", rand(H, O))])
    check(path, at=-1)


@pytest.mark.parametrize("shape", [(0, 0, -1), (-1, H), (0, 0, H)])
def test_reshape_that_keeps_features(path, shape):
    nodes, weights = lstm()
    nodes += [node("Transpose", "y", "t", perm=[0, 2, 1, 3]), node("Reshape", "t shape", "s")]
    weights += [ints("shape", *shape), const("w", rand(H, O))]
    save(path, [*nodes, node("MatMul", "s w", "out")], weights)
    x = rand(5, 2, I)
    close(run_float(read_model(path).network, x).y.reshape(-1, O), run(path, x).reshape(-1, O))


MEASURED = {  # nodes that make "shape" of sizes, behind t of axes (steps, sequences, 1, features)
    "taken one by one": [
        node("Shape", "t", "all"),
        node("Gather", "all i01", "front"),
        node("Gather", "all i3", "last", "g2"),
        node("Concat", "front last", "shape", axis=0),
    ],
    "multiplied": [
        node("Shape", "t", "all"),
        node("Slice", "all i0 i2", "front", "s1"),
        node("Slice", "all i2 i4", "two", "s2"),
        node("ReduceProd", "two", "one", keepdims=0),
        node("Unsqueeze", "one i0", "last"),
        node("Concat", "front last", "shape", axis=0),
    ],
    "divided": [
        node("Shape", "x", "in"),
        node("Slice", "in i0 i1", "steps", "cut"),
        node("Size", "t", "size"),
        node("Unsqueeze", "size i0", "whole"),
        node("Div", "whole features", "rows", "d1"),
        node("Div", "rows steps", "n", "d2"),
        node("Concat", "steps n features", "shape", axis=0),
    ],
    "with the rest left open": [
        node("Shape", "x", "in", start=0, end=1),
        node("Cast", "in", "steps", to=7),
        node("Concat", "steps minus features", "shape", axis=0),
    ],
}


def reshaped(measured):
    """A second LSTM behind the shape tells whether steps, sequences and features lie where they must."""
    first, w1 = lstm()
    second, w2 = lstm(x="s", y="out", name="two", inputs=H)
    transposed = node("Transpose", "y", "t", perm=[0, 2, 1, 3])
    return [*first, transposed, *measured, node("Reshape", "t shape", "s"), *second], [*w1, *w2]


@pytest.mark.parametrize("how", MEASURED)
@pytest.mark.parametrize("shape", [("T", "N", I), (5, "N", I), (5, 2, I), (None, None, I)])
def test_reshape_to_sizes_of_tensors(path, how, shape):
    nodes, weights = reshaped(MEASURED[how])
    weights += [ints(f"i{at}", at) for at in range(5)]
    weights += [ints("i01", 0, 1), ints("features", H), ints("minus", -1)]
    save(path, nodes, weights, shape=shape, opset=18)
    x = rand(5, 2, I)
    result = read_model(path)
    close(run_float(result.network, x).y, run(path, x)[:, 0])
    assert {entry.role for entry in result.report.nodes} == {"core", "shape", "state"}


@pytest.mark.parametrize("order", ["i10", "i00"])
def test_reshape_that_takes_steps_for_sequences_is_refused(path, order):
    measured = [
        node("Shape", "t", "all"),
        node("Gather", f"all {order}", "front"),
        node("Concat", "front features", "shape", axis=0),
    ]
    nodes, weights = reshaped(measured)
    save(path, nodes, [*weights, ints("i10", 1, 0), ints("i00", 0, 0), ints("features", H)])
    refused(path, r"LSTM node 'two' must read axes \(T, N, F\)")


def test_products_of_sizes_without_end_are_not_followed():
    """Each node squares what the one before gave: the last would have 2 to the 60th factors."""
    nodes, weights = squeezed()
    nodes += [node("Shape", "x", "p0", start=0, end=1)]
    nodes += [node("Mul", f"p{at} p{at}", f"p{at + 1}", f"m{at}") for at in range(60)]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ("T", "N", I))
    graph = OnnxGraph(helper.make_model(helper.make_graph(nodes, "g", [x], [], weights)))
    translated = translate(graph)
    sizes = KnownSizes(translated)
    for each in translated.nodes:
        sizes.measure(each, None)
    assert sizes.of("p3") == (Size(1, ("size T",) * 8),) and sizes.of("p60") is None


def test_reshape_that_mixes_features_is_refused_before_a_layer(path):
    nodes = [node("Reshape", "s shape", "m"), node("MatMul", "m w", "out")]
    after_lstm(path, nodes, [ints("shape", 1, -1), const("w", rand(H, O))])
    refused(path, r"MatMul node 'matmul' must read whole feature.*Reshape node 'reshape'")


def test_batch_taken_for_steps_is_refused(path):
    first, w1 = squeezed()
    second, w2 = lstm(x="t", y="out", name="two", inputs=H)
    save(path, [*first, node("Transpose", "s", "t", perm=[1, 0, 2]), *second], [*w1, *w2])
    refused(path, r"LSTM node 'two' must read axes \(T, N, F\).*\(N, T, F\)")


def test_layout_1_is_honoured(path):
    nodes, weights = lstm(layout=1)
    nodes += [node("Squeeze", "y two", "s"), node("MatMul", "s w", "out")]
    save(path, nodes, [*weights, ints("two", 2), const("w", rand(H, O))])
    x = rand(2, 5, I)  # onnxruntime refuses layout=1, onnx.reference is right
    expected = onnx.reference.ReferenceEvaluator(str(path)).run(None, {"x": x})[0]
    result = read_model(path)
    close(run_float(result.network, x.transpose(1, 0, 2)).y.transpose(1, 0, 2), expected)
    assert result.report.batch_first
    assert "has layout 1: data are (sequences, steps, features)" in result.report.layout


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("front", ["MatMul", "Relu", "Mul"])
def test_the_order_of_steps_and_sequences_behind_other_nodes(path, front, batch_first):
    nodes, weights = lstm(x="permuted" if batch_first else "front")
    before = [node(front, {"MatMul": "x w", "Relu": "x", "Mul": "scale x"}[front], "front")]
    if batch_first:
        before.append(node("Transpose", "front", "permuted", perm=[1, 0, 2]))
    more = [const("w", rand(I, I)), const("scale", rand(1))]
    save(path, [*before, *nodes], [*weights, *more], "y")
    report = read_model(path).report
    assert report.input == "x" and report.batch_first == batch_first


@pytest.mark.parametrize(
    ("turns", "layout", "first"),
    [
        ([(1, 0, 2)], 0, True),
        ([(1, 0, 2)], 1, False),
        ([(0, 2, 1)], 0, False),
        ([(0, 2, 1), (2, 0, 1)], 0, True),
        ([(1, 0, 2), (1, 0, 2)], 0, False),
    ],
)
def test_permuted_axes_are_followed_to_the_input(path, turns, layout, first):
    nodes, weights = lstm(layout=layout)
    nodes[0].input[0] = f"permuted{len(turns)}"
    before = ["x", *(f"permuted{number}" for number in range(1, len(turns) + 1))]
    moved = [
        node("Transpose", given, to, perm=perm)
        for given, to, perm in zip(before, before[1:], turns, strict=False)
    ]
    save(path, [*moved, *nodes], weights, "y")
    assert read_model(path).report.batch_first == first


@pytest.mark.parametrize("dtype", [np.float16, np.float64, "bfloat16"])
def test_other_float_types(path, dtype):
    nodes, weights = squeezed()
    kinds = {
        np.float16: TensorProto.FLOAT16,
        np.float64: TensorProto.DOUBLE,
        "bfloat16": TensorProto.BFLOAT16,
    }
    plain = {w.name: numpy_helper.to_array(w) for w in weights if w.data_type == TensorProto.FLOAT}
    weights = [
        helper.make_tensor(w.name, kinds[dtype], w.dims, plain[w.name].reshape(-1)) if w.name in plain else w
        for w in weights
    ]
    save(path, nodes, weights, ["s"])
    layer = read_model(path).network.layers[0]
    assert np.abs(np.sort(layer.w_ih, axis=None) - np.sort(plain["rec.W"], axis=None)).max() < 0.02


@pytest.mark.parametrize("states", [False, True])
def test_half_precision_between_inputs_and_outputs_of_floats(states, path):
    """As converters write it that keep the types of inputs and outputs: a Cast at each of them."""
    names = {"y_h": "hn16", "y_c": "cn16", "extra": ["", "h16", "c16"]} if states else {}
    nodes, weights = squeezed(x="x16", **names)
    nodes += [node("MatMul", "s w", "m"), node("Add", "m b", "out16"), node("Relu", "out16", "r16")]
    weights += [const("w", rand(H, O)), const("b", rand(O))]
    halves = {
        w.name: numpy_helper.to_array(w).astype(np.float16)
        for w in weights
        if w.data_type == TensorProto.FLOAT
    }
    weights = [const(w.name, halves[w.name]) if w.name in halves else w for w in weights]
    before, after, inputs, feeds = [("x", "x16")], [("r16", "out")], [], {}
    if states:
        before += [("h0", "h16"), ("c0", "c16")]
        after += [("hn16", "hn"), ("cn16", "cn")]
        inputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, (1, "N", H)) for n in ("h0", "c0")]
        feeds = {name: rand(1, 2, H) for name in ("h0", "c0")}
    casts = [
        [node("Cast", source, target, f"cast_{target}", to=kind) for source, target in pairs]
        for pairs, kind in ((before, TensorProto.FLOAT16), (after, TensorProto.FLOAT))
    ]
    outputs = [target for _, target in after]
    save(path, [*casts[0], *nodes, *casts[1]], weights, outputs, inputs)

    network, x = read_model(path).network, rand(7, 2, I)
    found = run_float(network, x, state=tuple((given[0],) for given in feeds.values()) or None)
    close(found.y, run(path, x, **feeds), 4e-3)  # steps of half precision below 4: 2 ** -9
    if states:
        close(found.h[0], run(path, x, "hn", **feeds)[0], 4e-3)
        close(found.c[0], run(path, x, "cn", **feeds)[0], 4e-3)
    layer, dense = network.layers
    biases = halves["rec.B"][0].astype(np.float64).reshape(2, -1).sum(0)
    exact = [
        (layer.w_ih, reorder(halves["rec.W"][0], "onnx")),
        (layer.w_hh, reorder(halves["rec.R"][0], "onnx")),
        (layer.bias, reorder(biases, "onnx")),
        (dense.weight, halves["w"].T),
        (dense.bias, halves["b"]),
    ]
    for ours, theirs in exact:
        np.testing.assert_array_equal(ours, theirs)


def test_weights_through_constant_nodes_and_operators(path):
    nodes, weights = squeezed()
    halves = np.split(numpy_helper.to_array(weights[0]), 2, axis=1)
    before = [
        helper.make_node("Constant", [], ["a"], value=const("", halves[0])),
        node("Identity", "a", "b"),
        node("Concat", "b rest", "rec.W", axis=1),
    ]
    save(path, [*before, *nodes], [const("rest", halves[1]), *weights[1:]], ["s"])
    check(path, "s")


def test_state_as_input_and_output(path):
    nodes, weights = squeezed(extra=["", "h0", "c0"], y_h="hn", y_c="cn")
    state = [helper.make_tensor_value_info(n, TensorProto.FLOAT, (1, "N", H)) for n in ("h0", "c0")]
    nodes.append(node("Concat", "hn cn", "state", axis=0))
    save(path, nodes, weights, ["s", "state"], state)
    result, x, zero = read_model(path), rand(4, 2, I), np.zeros((1, 2, H), np.float32)
    close(run_float(result.network, x).y, run(path, x, "s", h0=zero, c0=zero))
    assert any("initial_h is the model's input 'h0'" in note for note in result.report.notes)
    assert [entry.role for entry in result.report.nodes] == ["core", "shape", "state"]


def test_sequence_lens_as_input_is_noted(path):
    nodes, weights = squeezed(extra=["lens"])
    lens = helper.make_tensor_value_info("lens", TensorProto.INT32, ("N",))
    save(path, nodes, weights, ["s"], [lens])
    assert any("sequence_lens is the model's input 'lens'" in note for note in read_model(path).report.notes)


def test_output_cuts_before_an_unsupported_operator(path):
    nodes = [node("MatMul", "s w", "logits"), node("Exp", "logits", "out")]
    after_lstm(path, nodes, [const("w", rand(H, O))])
    refused(path, r"Exp node 'exp'.*not supported; .*`output='logits'`; docs/models.md lists")
    result = read_model(path, ReadOptions(output="logits"))
    assert result.report.output == "logits" and result.network.outputs == O
    assert [entry.name for entry in result.report.outside] == ["exp"]
    assert "Exp" in inspect_model(path).refusal and inspect_model(path).nodes[-1].role == "refused"


# What is refused, by name


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        (["lens"], "input sequence_lens"),
        (["", "made"], "input initial_h is computed by ReduceSum node 'sum'"),
    ],
)
def test_lstm_input_is_refused_by_name(path, extra, words):
    nodes, weights = squeezed(extra=extra)
    weights += [const("lens", np.array([3], np.int32)), const("ones", np.ones((1, 1, H), np.float32))]
    nodes.insert(0, node("ReduceSum", "x", "made", "sum"))
    save(path, nodes, weights, ["s"])
    refused(path, f"LSTM node 'rec': {words}")


def test_a_constant_state_is_learned(path):
    nodes, weights = squeezed(extra=["", "h", "c"])
    h, c = (rand(1, 1, H).astype(np.float32) for _ in "hc")
    save(path, nodes, [*weights, const("h", h), const("c", c)], ["s"])
    found = read_model(path)
    (first_h,), (first_c,) = found.initial_state
    close(first_h, h[0, 0])
    close(first_c, c[0, 0])
    assert any("a state that was learned" in note for note in found.report.notes)


@pytest.mark.parametrize(
    ("weight", "value", "words"),
    [
        (0, rand(1, 4 * H + 1, I), r"input W \('rec.W'\) must have shape"),
        (0, rand(4 * H, I), r"input W \('rec.W'\) must have shape \(1, 24, I\), not \(24, 5\)"),
        (1, rand(1, 4 * H, H + 1), r"input R \('rec.R'\) must have shape"),
        (2, rand(1, 4 * H), r"input B \('rec.B'\) must have shape"),
        (0, np.full((1, 4 * H, I), np.nan, np.float32), r"input W \('rec.W'\).*120 of 120 are NaN"),
        (2, np.full((1, 8 * H), np.inf, np.float32), r"input B \('rec.B'\).*infinite"),
        (1, np.ones((1, 4 * H, H), np.int8), r"input R \('rec.R'\) must be one of float16.*int8"),
    ],
)
def test_damaged_weights(path, weight, value, words):
    nodes, weights = squeezed()
    weights[weight] = const(weights[weight].name, value)
    save(path, nodes, weights, ["s"])
    refused(path, f"LSTM node 'rec': {words}")


@pytest.mark.parametrize(
    ("ends", "host"),
    [
        ([("Softmax", -1)], "rtlstm.host.softmax(y)"),
        ([("LogSoftmax", 2)], "numpy.log(rtlstm.host.softmax(y))"),
        ([("Softmax", -1), ("ArgMax", 2)], "rtlstm.host.argmax(y)"),
    ],
)
def test_classes_stay_with_the_host(path, ends, host):
    nodes, weights = squeezed()
    for number, (kind, axis) in enumerate(ends):
        nodes.append(node(kind, f"p{number - 1}" if number else "s", f"p{number}", axis=axis))
    save(path, nodes, weights, [f"p{len(ends) - 1}"])
    result = read_model(path)
    assert result.report.output == "s" and [entry.kind for entry in result.report.outside] == [
        kind for kind, _ in ends
    ]
    assert any(note.endswith(f"stays on the host: {host}") for note in result.report.notes)


def test_classes_not_over_the_features_are_refused(path):
    nodes, weights = squeezed()
    save(path, [*nodes, node("Softmax", "s", "out", axis=0)], weights)
    refused(path, "Softmax node 'softmax' works along axis 0")
    save(path, [*nodes, node("Softmax", "s", "t"), node("Tanh", "t", "out")], weights)
    assert "Softmax node 'softmax', which reads 's', is not supported" in inspect_model(path).refusal


def dense_cases():
    transposed = node("Transpose", "s", "t", perm=[0, 2, 1])
    return [
        *(
            ([node(kind, "s", "out")], [], f"{kind} node '{kind.lower()}', which reads 's', is not supported")
            for kind in ("Celu", "Erf", "Exp", "Sqrt")
        ),
        ([node("PRelu", "s b", "out")], [const("b", rand(4, 1, H))], r"of 6 features, not shape \(4, 1, 6"),
        ([node("LpNormalization", "s", "out")], [], "LpNormalization node"),
        ([node("Clip", "s", "out")], [], "Clip node 'clip': min and max must be two constants in order"),
        ([node("Clip", "s b", "out")], [const("b", np.float32(-1))], "Clip node 'clip': min and max must be"),
        ([node("Add", "s x", "out")], [], "as many features as it has, but adds 6 and 5"),
        ([node("Div", "b s", "out")], [const("b", rand(H))], "Div node 'div' must read 's' as its first"),
        ([node("Div", "s b", "out")], [const("b", np.float32(0))], "the divisor must not be zero"),
        ([node("Add", "s b", "out")], [const("b", rand(4, 1, H))], r"of 6 features, not shape \(4, 1, 6"),
        ([node("ReduceMean", "s", "out", axes=[0])], [], "takes a mean over steps, but how many"),
        ([node("ReduceMean", "s", "out", axes=[1])], [], "ReduceMean node 'reducemean' reduces axis 1"),
        (
            [node("BatchNormalization", "s b b b b", "out")],
            [const("b", rand(H))],
            "BatchNormalization node 'batchnormalization' works along axis 1",
        ),
        (
            [node("BatchNormalization", "s b b b b", "out", training_mode=1)],
            [const("b", rand(H))],
            "BatchNormalization node 'batchnormalization': attribute training_mode must be 0",
        ),
        ([node("MatMul", "s x", "out")], [], "MatMul node 'matmul' multiplies two tensors"),
        (
            [transposed, node("Conv", "t k", "out", strides=[2])],
            [const("k", rand(O, H, 1))],
            r"Conv node 'conv' must read axes \(N, F, T\)",
        ),
        (
            [transposed, node("Conv", "t k", "out", pads=[1, 1])],
            [const("k", rand(O, H, 3))],
            r"with pads=\[1, 1\] .* put 2 zeros in front",
        ),
        (
            [transposed, node("Conv", "t k", "out", group=2)],
            [const("k", rand(3, H // 2, 1))],
            r"Conv node 'conv': attribute group=2 must divide the outputs of weights of shape \(3, 3, 1\)",
        ),
        (
            [node("Transpose", "s", "t", perm=[1, 2, 0]), node("MatMul", "t w", "out")],
            [const("w", rand(4, O))],
            r"works along axis -1.*axes \(N, F, T\)",
        ),
        ([node("MatMul", "s w", "out")], [const("w", rand(H + 1, O))], "reads 7 values, but .* 6"),
        ([node("Gather", "s i", "out", axis=0)], [ints("i", 1)], "element 1 of axis 0, which is the steps"),
    ]


@pytest.mark.parametrize(("more", "constants", "words"), dense_cases())
def test_downstream_is_refused_by_name(path, more, constants, words):
    after_lstm(path, [*more], [*constants])
    refused(path, words)


def test_lstms_side_by_side(path):
    """Both are read; each may be chosen."""
    a, wa = lstm(y="ya", name="a")
    b, wb = lstm(y="yb", name="b")
    save(path, [*a, *b], [*wa, *wb], ["ya", "yb"])
    assert [part.name for part in read_model(path).network.parts] == ["ya", "yb"]
    assert read_model(path, ReadOptions(lstm="b")).network.layers[0].name == "b"
    assert read_model(path, ReadOptions(output="ya")).network.layers[0].name == "a"
    refused(path, "there is no 'z'; it has a, b", ReadOptions(lstm="z"))


def test_cell_state_that_is_computed_with_is_refused(path):
    nodes, weights = squeezed(y_c="c")
    save(path, [*nodes, node("Relu", "c", "out")], weights, ["s", "out"])
    refused(path, r"LSTM node 'rec': the final state c \('c'\) is read by Relu node")


def test_lstm_inside_if_is_named(path):
    nodes, weights = lstm(y="y_in")
    out = helper.make_tensor_value_info("y_in", TensorProto.FLOAT, None)
    branch = helper.make_graph(nodes, "b", [], [out], weights)
    choice = helper.make_node("If", ["cond"], ["out"], name="choice", then_branch=branch, else_branch=branch)
    save(path, [choice], [], inputs=(helper.make_tensor_value_info("cond", TensorProto.BOOL, []),))
    refused(path, r"there is none in it \(2 inside If node 'choice'")


def test_model_without_lstm_lists_its_operators(path):
    save(path, [node("Relu", "x", "r"), node("Relu", "r", "out", "r2")], [])
    refused(path, r"there is none in it; it has Relu \(2\)")


def test_wrong_output_name(path):
    after_lstm(path, [], (), ["s"])
    refused(
        path, "a tensor or a node of the model, but there is none of the name 'q'", ReadOptions(output="q")
    )
    refused(path, r"`dense` is for files of tensors", ReadOptions(dense=("q",)))


def test_a_node_is_an_end_too(path):
    nodes, weights = squeezed()
    nodes = [*nodes, node("Exp", "s", "out", "exp")]
    nodes[-2].name = "flat"
    save(path, nodes, weights, ["out"])
    refused(path, "Exp node 'exp'")
    by_tensor, by_node = (read_model(path, ReadOptions(output=name)) for name in ("s", "flat"))
    assert by_node.report.output == by_tensor.report.output == "s"
    nodes[0].name = "flat"
    save(path, nodes, weights, ["out"])
    refused(path, "but there are 2 nodes of the name 'flat'", ReadOptions(output="flat"))


# Files


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "there is no such file"),
        (b"", "the file is empty"),
        (b"\x00\xff garbage" * 9, "must be an ONNX model"),
        (b"\x00\xff garbage" * 9, "; give an ONNX, Keras, safetensors"),
        (b"{}", "the file is text"),
        (b"hi", "the file is text, not a model; give an ONNX, Keras, safetensors"),
        (b"\x89HDF\r\n\x1a\n", "Keras"),
        (b"PK\x03\x04", "damaged archive"),
    ],
)
def test_files_that_are_no_model(path, content, words):
    if content is not None:
        path.write_bytes(content)
    refused(path, f"^{re.escape(str(path))}: .*{words}")
    assert words in inspect_model(path).refusal


def test_directory(tmp_path):
    refused(tmp_path, "this is a directory")


def test_missing_package_names_the_extra(path, monkeypatch):
    after_lstm(path, [], (), ["s"])
    monkeypatch.setitem(__import__("sys").modules, "onnx", None)
    with pytest.raises(ToolError, match=r"pip install 'rtlstm\[onnx\]'"):
        read_model(path)
