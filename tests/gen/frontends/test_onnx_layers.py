"""What may stand around recurrent nodes: activations, constants, batch norm, and directions joined."""

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from support.closeness import close
from support.onnx_files import H, I, O, after_lstm, check, const, ints, lstm, node, rand, run, save, squeezed
from support.refusals import refused

from rtlstm.gen.frontends import ReadOptions, read_model
from rtlstm.gen.frontends.onnx.translate import _OPERATORS, _USUAL
from rtlstm.sim.reference import run_float
from rtlstm.spec.network import Bidirectional

ACTIVATIONS = [
    ("Elu", {}),
    ("Elu", {"alpha": 0.5}),
    ("HardSigmoid", {}),
    ("HardSigmoid", {"alpha": 0.3, "beta": 0.4}),
    ("LeakyRelu", {}),
    ("LeakyRelu", {"alpha": 0.2}),
    ("Relu", {}),
    ("Sigmoid", {}),
    ("Softplus", {}),
    ("Softsign", {}),
    ("Tanh", {}),
    ("ThresholdedRelu", {}),
    ("ThresholdedRelu", {"alpha": 0.1}),
    ("Gelu", {}),
    ("Gelu", {"approximate": "tanh"}),
    ("HardSwish", {}),
    ("Mish", {}),
    ("Selu", {}),
]


def kinds(result):
    return [layer.kind for layer in result.network.layers]


@pytest.mark.parametrize(("kind", "attributes"), ACTIVATIONS)
def test_activation_of_an_lstm_and_of_a_dense_layer(path, kind, attributes):
    nodes = [
        node(kind, "s", "t", "of_lstm", **attributes),
        node("MatMul", "t w", "m"),
        node("Add", "m b", "a"),
        node(kind, "a", "out", "of_dense", **attributes),
    ]
    after_lstm(path, nodes, [const("w", rand(H, O)), const("b", rand(O))], opset=20)
    # ReLU is free on what a layer reads; others become a dense layer of ones.
    assert kinds(check(path)) == ["lstm"] + ["dense"] * (1 if kind == "Relu" else 2)


@pytest.mark.parametrize("slopes", [1, O])
def test_prelu_with_slopes_for_the_last_axis(path, slopes):
    nodes = [node("MatMul", "s w", "m"), node("PRelu", "m p", "out")]
    after_lstm(path, nodes, [const("w", rand(H, O)), const("p", rand(slopes))])
    assert kinds(check(path)) == ["lstm", "dense"] + ["dense"] * (slopes > 1)


@pytest.mark.parametrize("opset", [7, 17])
@pytest.mark.parametrize(("low", "high", "name"), [(-0.2, 0.3, "hard_tanh"), (0, None, "relu")])
def test_clip_as_an_activation(path, low, high, name, opset):
    nodes, weights = squeezed() if opset > 12 else lstm()
    given = {key: float(value) for key, value in (("min", low), ("max", high)) if value is not None}
    limits = [] if opset < 11 else [const(key, np.float32(value)) for key, value in given.items()]
    nodes = nodes if opset > 12 else [*nodes, node("Squeeze", "y", "s", axes=[1])]
    clip = node("Clip", " ".join(["m", *(c.name for c in limits)]), "out", **(given if opset < 11 else {}))
    save(
        path,
        [*nodes, node("MatMul", "s w", "m"), clip],
        [*weights, *limits, const("w", rand(H, O))],
        opset=opset,
    )
    assert check(path).network.layers[1].activation == name


def test_relu_at_the_end(path):
    after_lstm(path, [node("Relu", "s", "out")])
    assert kinds(check(path)) == ["lstm", "dense"]


# Batch norm and constants


def batch_norm(name, x, y, features):
    weights = [
        const(f"{name}.s", rand(features)),
        const(f"{name}.b", rand(features)),
        const(f"{name}.m", rand(features)),
        const(f"{name}.v", np.abs(rand(features)) + 0.3),
    ]
    inputs = " ".join([x, *(weight.name for weight in weights)])
    return node("BatchNormalization", inputs, y, name, epsilon=1e-3), weights


def test_batch_norm_between_lstms_and_dense_layers_is_folded(path):
    first, w1 = lstm(y="y1", name="one")
    second, w2 = lstm(x="n1", y="y2", name="two", inputs=H)
    norm1, w3 = batch_norm("norm1", "t1", "t2", H)
    norm2, w4 = batch_norm("norm2", "t3", "t4", H)
    norm3, w5 = batch_norm("norm3", "m1", "m2", O)
    nodes = [
        *first,
        node("Squeeze", "y1 one_", "s1", "q1"),
        node("Transpose", "s1", "t1", "p1", perm=[1, 2, 0]),
        norm1,
        node("Transpose", "t2", "n1", "p2", perm=[2, 0, 1]),
        *second,
        node("Squeeze", "y2 one_", "s2", "q2"),
        node("Relu", "s2", "r2"),
        node("Transpose", "r2", "t3", "p3", perm=[1, 2, 0]),
        norm2,
        node("Conv", "t4 k", "m1"),
        norm3,
        node("Sigmoid", "m2", "out"),
    ]
    save(path, nodes, [*w1, *w2, *w3, *w4, *w5, ints("one_", 1), const("k", rand(O, H, 1))])
    result = check(path, transpose=(1, 2, 0))
    assert kinds(result) == ["lstm", "lstm", "dense"] and result.network.layers[2].input_relu


def test_batch_norm_before_relu_becomes_a_layer(path):
    norm, more = batch_norm("norm", "t", "n", H)
    nodes = [
        node("Transpose", "s", "t", perm=[1, 2, 0]),
        norm,
        node("Relu", "n", "r"),
        node("Conv", "r k", "out"),
    ]
    after_lstm(path, nodes, [*more, const("k", rand(O, H, 1))])
    layers = check(path, transpose=(1, 2, 0)).network.layers
    assert len(layers) == 3 and np.count_nonzero(layers[1].weight) == H and layers[1].activation == "relu"


def test_batch_norm_and_dense_layer_before_the_lstm(path):
    nodes, weights = squeezed(x="v", inputs=O)
    nodes = [
        node("Mul", "x scale", "a"),
        node("Add", "a shift", "b"),
        node("MatMul", "b w", "u"),
        node("Tanh", "u", "v"),
        *nodes,
    ]
    weights += [const("scale", rand(I)), const("shift", rand(I)), const("w", rand(I, O))]
    save(path, nodes, weights, ["s"])
    assert kinds(check(path, "s")) == ["dense", "lstm"] and read_model(path).report.input == "x"
    result = read_model(path, ReadOptions(lstm="rec"))
    assert kinds(result) == ["lstm"] and result.network.inputs == O


@pytest.mark.parametrize("shape", [(), (1,), (H,), (1, 1, H)])
@pytest.mark.parametrize(
    ("kind", "inputs"),
    [("Mul", "s c"), ("Mul", "c s"), ("Add", "s c"), ("Sub", "s c"), ("Sub", "c s"), ("Div", "s c")],
)
def test_constants_are_folded(path, kind, inputs, shape):
    nodes = [node(kind, inputs, "a"), node("Neg", "a", "b"), node("MatMul", "b w", "out")]
    after_lstm(path, nodes, [const("c", rand(*shape) + 2), const("w", rand(H, O))])
    assert kinds(check(path)) == ["lstm", "dense"]


def test_constant_along_another_axis_of_features(path):
    nodes = [node("Transpose", "s", "t", perm=[1, 2, 0]), node("Mul", "t c", "a"), node("Conv", "a k", "out")]
    after_lstm(path, nodes, [const("c", rand(H, 1)), const("k", rand(O, H, 1))])
    check(path, transpose=(1, 2, 0))


def test_residual_around_a_chosen_lstm(path):
    nodes, weights = squeezed(inputs=H, x="u", name="b")
    before, more = lstm(y="a.y", name="a")
    nodes = [*before, node("Squeeze", "a.y one", "u", "squeeze.a"), *nodes, node("Add", "s u", "out")]
    save(path, nodes, [*weights, *more])
    result = read_model(path, ReadOptions(lstm="b"))
    assert kinds(result) == ["lstm", "dense"]
    assert [read.back for read in result.network.layers[1].reads] == [1, 2]


@pytest.mark.parametrize(
    "beside",
    [
        [node("Softmax", "x", "other")],
        [node("Mul", "x x", "other")],
        [node("Identity", "x", "other")],
        [node("MatMul", "x w", "t"), node("Tanh", "t", "other")],
    ],
)
def test_what_reads_the_input_alone_stays_outside(path, beside):
    after_lstm(path, [*beside], [const("w", rand(I, O))], ["s", "other"])
    result = read_model(path)
    assert kinds(result) == ["lstm"] and result.report.output == "s"


def test_residual_within_one_layer_is_folded(path):
    after_lstm(path, [node("MatMul", "s w", "a"), node("Add", "s a", "out")], [const("w", rand(H, H))])
    assert kinds(check(path)) == ["lstm", "dense"]


# Causal convolutions


@pytest.mark.parametrize("dilation", [1, 2])
@pytest.mark.parametrize("place", ["before", "behind"])
@pytest.mark.parametrize("how", ["pads", "Pad"])
def test_causal_convolution(path, place, how, dilation):
    source, result, width = ("x", "u", I) if place == "before" else ("s", "out", H)
    padding = 2 * dilation
    pads = {"pads": [padding, 0]} if how == "pads" else {}
    conv = node("Conv", "t k b" if pads else "z k b", "v", dilations=[dilation], **pads)
    pad = [] if pads else [node("Pad", "t front", "z")]
    turns = [
        node("Transpose", source, "t", "p1", perm=[1, 2, 0]),
        node("Transpose", "v", result, "p2", perm=[2, 0, 1]),
    ]
    nodes = [turns[0], *pad, conv, turns[1]]
    weights = [const("k", rand(O, width, 3)), const("b", rand(O))]
    weights += [ints("front", 0, 0, padding, 0, 0, 0)] if pad else []
    rec, more = squeezed(x="u", inputs=O) if place == "before" else squeezed()
    end = "s" if place == "before" else "out"
    save(path, [*nodes, *rec] if place == "before" else [*rec, *nodes], [*weights, *more], [end])
    expected = ["rnn", "dense", "lstm"] if place == "before" else ["lstm", "rnn", "dense"]
    assert kinds(check(path, end, x=rand(9, 2, I))) == expected


@pytest.mark.parametrize(
    ("pads", "more", "words"),
    [
        ((0, 0, 1, 0, 0, 0), {}, r"with pads=\[0, 0\] and 1 zeros put in front it looks ahead"),
        ((0, 0, 2, 0, 0, 1), {}, "Pad node 'pad' must put zeros in front of the steps"),
        ((0, 1, 2, 0, 0, 0), {}, "Pad node 'pad' must put zeros in front of the steps"),
        ((0, 0, 0, 0, 0, 0), {"strides": [2]}, "put 1 to 2 zeros in front of the steps"),
        ((0, 0, 2, 0, 0, 0), {"strides": [0]}, r"attribute strides=\[0\] must be 1 or more"),
        ((0, 0, 2, 0, 0, 0), {"strides": [2]}, "'rec' is recurrent and stands before a stride of 2"),
        ((0, 0, 2, 0, 0, 0), {"auto_pad": "SAME_LOWER"}, "Conv node 'conv': attribute auto_pad=SAME_LOWER"),
    ],
)
def test_convolution_that_is_not_causal_is_refused(path, pads, more, words):
    nodes = [
        node("Transpose", "s", "t", perm=[1, 2, 0]),
        node("Pad", "t p", "z"),
        node("Conv", "z k", "out", **more),
    ]
    after_lstm(path, nodes, [ints("p", *pads), const("k", rand(O, H, 3))])
    refused(path, words)


def test_padding_before_anything_else_is_refused(path):
    nodes = [node("Transpose", "s", "t", perm=[1, 2, 0]), node("Pad", "t p", "z"), node("Tanh", "z", "out")]
    after_lstm(path, nodes, [ints("p", 0, 0, 2, 0, 0, 0)])
    refused(path, "Tanh node 'tanh' reads steps with zeros in front")
    refused(path, "'z' has 2 steps of zeros in front", ReadOptions(output="z"))


# Two directions


def bidirectional(name="rec", **attributes):
    """A bidirectional LSTM node and its weights."""
    nodes, weights = lstm(name=name, direction="bidirectional", **attributes)
    _, others = lstm(name=name, inputs=attributes.get("inputs", I))
    both = [
        const(a.name, np.concatenate([numpy_helper.to_array(a), numpy_helper.to_array(b)]))
        for a, b in zip(weights, others, strict=True)
    ]
    return nodes, both


REVERSED_OUTPUT = node("Transpose", "y", "t", perm=[0, 2, 1, 3])
JOINS = {
    "side by side": ([REVERSED_OUTPUT, node("Reshape", "t all", "j")], "concat"),
    "flattened": ([REVERSED_OUTPUT, node("Reshape", "t sizes", "j")], "concat"),
    "sum": ([node("ReduceSum", "y one", "j", keepdims=0)], "sum"),
    "mean": ([node("ReduceMean", "y", "j", axes=[1], keepdims=0)], "average"),
    "split and add": (
        [node("Split", "y", "a b", axis=1), node("Add", "a b", "c"), node("Squeeze", "c one", "j")],
        "sum",
    ),
    "gather and concatenate": (
        [
            node("Gather", "y zero", "a", "g0", axis=1),
            node("Gather", "y minus", "b", "g1", axis=1),
            node("Concat", "a b", "j", axis=-1),
        ],
        "concat",
    ),
    "slice and mean": (
        [
            node("Slice", "y i0 i1 one", "a", "s0"),
            node("Slice", "y i1 i2 one", "b", "s1"),
            node("Mean", "a b", "c"),
            node("Squeeze", "c one", "j"),
        ],
        "average",
    ),
}
JOIN_CONSTANTS = [
    ints("all", 0, 0, -1),
    ints("sizes", -1, 2, 2 * H),
    ints("one", 1),
    const("zero", np.int64(0)),
    const("minus", np.int64(-1)),
    ints("i0", 0),
    ints("i1", 1),
    ints("i2", 2),
]


@pytest.mark.parametrize("how", JOINS)
def test_bidirectional_node_and_what_joins_it(path, how):
    nodes, weights = bidirectional()
    joined, merge = JOINS[how]
    width = 2 * H if merge == "concat" else H
    nodes = [*nodes, *joined, node("MatMul", "j w", "out")]
    used = {name for each in nodes for name in each.input}
    constants = [constant for constant in JOIN_CONSTANTS if constant.name in used]
    save(path, nodes, [*weights, *constants, const("w", rand(width, O))])
    result = check(path)
    assert kinds(result) == ["bidirectional", "dense"] and result.network.layers[0].merge == merge


@pytest.mark.parametrize("merge", ["concat", "sum", "average"])
def test_two_nodes_of_opposite_directions(path, merge):
    a, w1 = lstm(y="ya", name="a")
    b, w2 = lstm(y="yb", name="b", direction="reverse")
    joins = {
        "concat": [node("Concat", "ya yb", "j", axis=3)],
        "sum": [node("Add", "yb ya", "j")],
        "average": [node("Add", "ya yb", "k"), node("Mul", "k half", "j")],
    }
    nodes = [*a, *b, *joins[merge], node("Squeeze", "j one", "out")]
    constants = [ints("one", 1)] + ([const("half", np.float32(0.5))] if merge == "average" else [])
    save(path, nodes, [*w1, *w2, *constants])
    (layer,) = check(path).network.layers
    assert isinstance(layer, Bidirectional) and layer.merge == merge
    assert (layer.forward.name, layer.backward.name) == ("a", "b")


def test_backward_features_first_are_put_in_order(path):
    a, w1 = lstm(y="ya", name="a")
    b, w2 = lstm(y="yb", name="b", direction="reverse")
    nodes = [
        *a,
        *b,
        node("Concat", "yb ya", "j", axis=3),
        node("Squeeze", "j one", "s"),
        node("MatMul", "s w", "out"),
    ]
    save(path, nodes, [*w1, *w2, ints("one", 1), const("w", rand(2 * H, O))])
    assert kinds(check(path)) == ["bidirectional", "dense"]


def test_stacked_bidirectional_with_constants_on_both_directions(path):
    first, w1 = bidirectional("one", y="y1")
    second, w2 = bidirectional("two", x="j1", y="y2", inputs=2 * H)
    nodes = [
        *first,
        node("Mul", "y1 c", "m"),
        node("Relu", "m", "r"),
        node("Transpose", "r", "t1", "p1", perm=[0, 2, 1, 3]),
        node("Reshape", "t1 all", "j1", "r1"),
        *second,
        node("ReduceSum", "y2 one", "out", keepdims=0),
    ]
    save(path, nodes, [*w1, *w2, const("c", rand(1, 2, 1, H)), *JOIN_CONSTANTS[:1], ints("one", 1)])
    check(path)


def test_dense_layer_on_directions_apart_is_refused(path):
    nodes, weights = bidirectional()
    save(path, [*nodes, node("MatMul", "y w", "out")], [*weights, const("w", rand(H, O))])
    refused(path, "MatMul node 'matmul' reads the directions of a bidirectional layer apart")


STATES = {
    "gathered": [
        node("Gather", "h zero", "a", "g0", axis=0),
        node("Gather", "h minus", "b", "g1", axis=0),
        node("Concat", "a b", "j", axis=1),
    ],
    "reversed_output": [node("Transpose", "h", "t", perm=[1, 0, 2]), node("Reshape", "t all", "j")],
    "split": [
        node("Split", "h", "a b", axis=0),
        node("Concat", "b a", "c", axis=-1),
        node("Squeeze", "c i0", "j"),
    ],
    "from the output": [
        node("Gather", "y minus", "u", "g0", axis=0),
        node("Gather", "u zero", "a", "g1", axis=0),
        node("Gather", "y zero", "v", "g2", axis=0),
        node("Gather", "v minus", "b", "g3", axis=0),
        node("Concat", "a b", "j", axis=1),
    ],
}


@pytest.mark.parametrize("how", STATES)
def test_final_states_of_both_directions_are_the_last_step(path, how):
    nodes, weights = bidirectional(y="y" if how == "from the output" else "", y_h="h")
    nodes = [*nodes, *STATES[how], node("MatMul", "j w", "out")]
    used = {name for each in nodes for name in each.input}
    constants = [ints("all", 0, -1), *JOIN_CONSTANTS[1:]]
    constants = [constant for constant in constants if constant.name in used]
    save(path, nodes, [*weights, *constants, const("w", rand(2 * H, O))])
    result = check(path, at=-1)
    assert result.network.layers[0].backward.reversed_output
    assert any("use its last" in note for note in result.report.notes)


def test_final_states_of_two_nodes_of_opposite_directions(path):
    a, w1 = lstm(y="", y_h="ha", name="a")
    b, w2 = lstm(y="", y_h="hb", name="b", direction="reverse")
    nodes = [
        *a,
        *b,
        node("Concat", "ha hb", "j", axis=2),
        node("Squeeze", "j i0", "s"),
        node("MatMul", "s w", "out"),
    ]
    save(path, nodes, [*w1, *w2, ints("i0", 0), const("w", rand(2 * H, O))])
    result = check(path, at=-1)
    assert kinds(result) == ["bidirectional", "dense"]
    assert result.network.layers[0].backward.reversed_output


def test_final_states_of_two_reverse_nodes_beside_one_forward_are_told_apart(path):
    nodes, weights = [], []
    for name in "abc":
        more = lstm(y="", y_h=f"h{name}", name=name, direction="forward" if name == "a" else "reverse")
        nodes, weights = nodes + more[0], weights + more[1]
    nodes += [
        node("Concat", "ha hb", "j", "j1", axis=2),
        node("Concat", "ha hc", "k", "k1", axis=2),
        node("Add", "j k", "s"),
        node("MatMul", "s w", "out"),
    ]
    save(path, nodes, [*weights, const("w", rand(2 * H, O))])
    refused(path, "needs two results of different layers at once")


@pytest.mark.parametrize("state", ["h", "c"])
def test_a_model_that_gives_only_all_states_has_all_layers(path, state):
    first, w1 = bidirectional("one", y="y1", y_h="h1")
    second, w2 = bidirectional("two", x="j1", y="", y_h="h2", inputs=2 * H)
    for at, each in enumerate((first, second), 1):
        each[0].output[2] = f"c{at}"
    nodes = [
        *first,
        node("Transpose", "y1", "t1", "p1", perm=[0, 2, 1, 3]),
        node("Reshape", "t1 all", "j1", "r1"),
        *second,
        node("Concat", f"{state}1 {state}2", "out", "c0", axis=0),
    ]
    save(path, nodes, [*w1, *w2, next(one for one in JOIN_CONSTANTS if one.name == "all")])
    result, x = read_model(path), rand(5, 2, I)
    assert kinds(result) == ["bidirectional", "bidirectional"]
    close(np.stack(getattr(run_float(result.network, x), state)), run(path, x))


@pytest.mark.parametrize("how", ["gather", "slice"])
def test_final_states_of_stacked_layers(path, how):
    """What stands on the layers' axis is taken from the layer that it belongs to."""
    first, w1 = bidirectional("one", y="y1", y_h="h1")
    second, w2 = bidirectional("two", x="j1", y="", y_h="h2", inputs=2 * H)
    taken = {
        "gather": [
            node("Gather", "h two", "a", "g0", axis=0), node("Gather", "h minus", "b", "g1", axis=0),
            node("Concat", "a b", "j", "c1", axis=1),
        ],
        "slice": [
            node("Slice", "h i2 end i0", "s"), node("Transpose", "s", "t", "t2", perm=[1, 0, 2]),
            node("Reshape", "t flat", "j", "r2"),
        ],
    }[how]  # fmt: skip
    nodes = [
        *first,
        node("Transpose", "y1", "t1", "p1", perm=[0, 2, 1, 3]),
        node("Reshape", "t1 all", "j1", "r1"),
        *second,
        node("Concat", "h1 h2", "h", "c0", axis=0),
        *taken,
        node("MatMul", "j w", "out"),
    ]
    constants = [*JOIN_CONSTANTS, const("two", np.int64(2)), ints("end", 4), ints("flat", 0, -1)]
    used = {name for each in nodes for name in each.input}
    constants = [constant for constant in constants if constant.name in used]
    save(path, nodes, [*w1, *w2, *constants, const("w", rand(2 * H, O))])
    assert kinds(check(path, at=-1)) == ["bidirectional", "bidirectional", "dense"]


def test_final_state_of_a_reverse_node_is_its_first_step(path):
    nodes, weights = lstm(y="", y_h="h", direction="reverse")
    nodes += [node("Squeeze", "h zero", "s"), node("Gemm", "s w", "out")]
    save(path, nodes, [*weights, ints("zero", 0), const("w", rand(H, O))])
    result = check(path, at=0)
    assert any("use its first" in note for note in result.report.notes)


@pytest.mark.parametrize("kind", ["Add", "Sub", "Mul", "Div"])
@pytest.mark.parametrize("shape", [(1, I, 1), (I, 1, 1)])
def test_constants_along_steps_or_sequences_are_no_features(path, kind, shape):
    """As many as there are features, in front of the layer that shows which axis is which."""
    nodes, weights = lstm(x="a", y="out")
    save(path, [node(kind, "x k", "a"), *nodes], [*weights, const("k", rand(*shape))])
    refused(path, r"must read axes \(T, N, F\)")


def test_a_constant_of_features_that_are_not_last_yet(path):
    nodes, weights = lstm(x="b", y="y")
    nodes = [node("Transpose", "x", "t", perm=[0, 2, 1]), node("Add", "t k", "a"), *nodes]
    nodes.insert(2, node("Transpose", "a", "b", name="back", perm=[0, 2, 1]))
    nodes.append(node("Squeeze", "y one", "out"))
    save(path, nodes, [*weights, ints("one", 1), const("k", rand(I, 1))])
    check(path)
    save(path, nodes, [*weights, ints("one", 1), const("k", rand(I))])
    refused(path, "must read axes")


def pooled(path, opset=17, zeros=0, **attributes):
    """The mean of the last steps of an LSTM's results, with zeros in front of them."""
    nodes, weights = squeezed()
    nodes += [node("Transpose", "s", "t", perm=[1, 2, 0]), node("Pad", "t z", "f"),
              node("AveragePool", "f", "p", **attributes),
              node("Transpose", "p", "out", "back", perm=[2, 0, 1])]  # fmt: skip
    return save(path, nodes, [*weights, ints("z", 0, 0, zeros, 0, 0, 0)], opset=opset)


@pytest.mark.parametrize(
    "attributes",
    [
        {"kernel_shape": [3], "pads": [2, 0], "count_include_pad": 1},
        {"kernel_shape": [3], "pads": [2, 0], "count_include_pad": 1, "ceil_mode": 1},
        {"kernel_shape": [3], "dilations": [2], "zeros": 4, "opset": 19},
        {"kernel_shape": [1]},
    ],
)
def test_average_of_the_last_steps(path, attributes):
    pooled(path, **attributes)
    check(path)


@pytest.mark.parametrize(
    ("attributes", "words"),
    [
        (
            {"pads": [2, 0]},
            "attribute count_include_pad must be 1, since the core counts the zeros that pads",
        ),
        ({"pads": [2, 0], "count_include_pad": 1, "ceil_mode": 1, "strides": [2]}, "ceil_mode=1 must be 0"),
    ],
)
def test_average_that_the_core_does_not_compute(path, attributes, words):
    refused(pooled(path, kernel_shape=[3], **attributes), f"AveragePool node 'averagepool': .*{words}")


def test_attributes_that_are_not_read_are_refused(path):
    after_lstm(path, [node("ReduceSum", "s", "out", noop_with_empty_axes=1)])
    refused(path, "ReduceSum node .*: attribute noop_with_empty_axes=1 must be 0")


def test_every_attribute_of_a_definition_is_known():
    """An attribute is read, or changes nothing, or any value but its default is refused by its name."""
    definitions = [each for each in onnx.defs.get_all_schemas_with_history() if not each.domain]
    for each in definitions:
        since = [one.since_version for one in definitions if one.name == each.name]
        newer = min([version for version in since if version > each.since_version], default=99)
        if each.name in _OPERATORS and newer > 7:
            known = {*_OPERATORS[each.name].split()[1:], *_USUAL}
            assert set(each.attributes) <= known, f"{each.name} of opset {each.since_version}"
            assert all(
                item.default_value.i == _USUAL[name]
                for name, item in each.attributes.items()
                if name in _USUAL
            )


# Activation functions that are written out in parts are one node, by the values that they give.

SILU = [node("Sigmoid", "s", "p"), node("Mul", "s p", "out", "product")]
GELU = [
    node("Div", "s root", "u"),
    node("Erf", "u", "e"),
    node("Add", "e unit", "p"),
    node("Mul", "s p", "q"),
    node("Mul", "q half", "out", "product"),
]
TANH = [
    node("Pow", "s three", "u"),
    node("Mul", "u cubes", "v"),
    node("Add", "v s", "w"),
    node("Mul", "w k", "t"),
    node("Tanh", "t", "e"),
    node("Add", "e unit", "p"),
    node("Mul", "half s", "q"),
    node("Mul", "q p", "out", "product"),
]
HARD = [
    node("Add", "s three", "u"),
    node("Clip", "u zero six", "v"),
    node("Div", "v six", "p"),
    node("Mul", "s p", "out", "product"),
]
NUMBERS = {
    "root": 2**0.5,
    "unit": 1.0,
    "half": 0.5,
    "three": 3.0,
    "cubes": 0.044715,
    "k": (2 / np.pi) ** 0.5,
    "zero": 0.0,
    "six": 6.0,
}


def written(path, nodes, outputs=("out",), **numbers):
    """An LSTM and these nodes, which read its result ``s``."""
    begin, weights = squeezed()
    values = {name: np.float32(number) for name, number in (NUMBERS | numbers).items()}
    for each in nodes[:-1]:
        each.name = each.output[0]
    constants = [const(name, value) for name, value in values.items()]
    return save(path, [*begin, *nodes], [*weights, *constants], outputs)


@pytest.mark.parametrize(
    ("name", "nodes"), [("silu", SILU), ("gelu", GELU), ("gelu_tanh", TANH), ("hard_swish", HARD)]
)
def test_a_function_in_parts_is_one_node(path, name, nodes):
    written(path, nodes)
    result = check(path)
    lstm, dense = result.network.layers
    assert (lstm.kind, dense.name, dense.activation) == ("lstm", "product", name)
    assert f"the nodes that give 'out' are {name} of 's'" in result.report.notes
    assert [each.kind for each in result.report.outside] == []


def test_constants_of_sixteen_bits_are_near_enough(path):
    """The two forms of GELU stay apart."""
    for name, nodes in (("gelu", GELU), ("gelu_tanh", TANH)):
        rounded = {key: np.float16(number) for key, number in NUMBERS.items()}
        assert read_model(written(path, nodes, **rounded)).network.layers[-1].activation == name


def test_a_part_that_is_an_end_stays(path):
    """One of the model's outputs, and one that is asked for."""
    for outputs in (("out", "p"), ("out",)):
        written(path, SILU, outputs)
        for end, name in (("out", "silu"), ("p", "sigmoid")):
            assert read_model(path, ReadOptions(output=end)).network.layers[-1].activation == name


@pytest.mark.parametrize(
    ("nodes", "numbers"),
    [
        ([*SILU[:1], node("Div", "p p", "out", "quotient")], {}),
        (GELU, {"unit": 1.1}),
        (GELU, {"half": rand(H)}),
    ],
)
def test_other_values_are_refused_as_before(path, nodes, numbers):
    refused(written(path, nodes, **numbers), "is not supported|must read")
