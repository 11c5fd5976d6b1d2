"""What a file declares is counted before it is made, and reading takes time in proportion to the file."""

import itertools
import sys
import time
import tracemalloc

import numpy as np
import onnx
import pytest
from onnx import helper
from support.onnx_files import (
    OPSETS,
    H,
    after_lstm,
    call,
    const,
    ints,
    lstm,
    node,
    rand,
    save,
    save_with,
    squeezed,
)

from rtlstm.gen.frontends import inspect_model, read_model
from rtlstm.spec.errors import ModelError
from rtlstm.spec.files import MAX_COMPUTED, MAX_ELEMENTS

HUGE = 10**10


def refuse(path, *words):
    """Refused within a second and some MiB, whatever it declares."""
    begin = time.process_time()
    tracemalloc.start()
    try:
        with pytest.raises(ModelError) as refusal:
            read_model(path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    for word in words:
        assert word in str(refusal.value), refusal.value
    assert time.process_time() - begin < 3 and peak < 2**24


def declare(path, *nodes, weights=()):
    """A model whose LSTM reads a W that nodes compute from constants."""
    (cell,), own = lstm()
    cell.input[1] = "w"
    return save(path, [*nodes, cell], [*own[1:], *weights], ["y"])


FILLS = {
    "ConstantOfShape": [node("ConstantOfShape", "sizes", "w")],
    "Expand": [node("Expand", "one sizes", "w")],
    "Tile": [node("Tile", "ones sizes", "w")],
    "Range": [node("Range", "zero many step", "w")],
    "OneHot": [node("OneHot", "ten many both", "w")],
    "Pad": [node("Pad", "ones pads", "w")],
    "Gather": [node("Gather", "wide places", "w")],
    "Add": [node("Add", "row column", "w")],
    "MatMul": [node("MatMul", "column row", "w")],
}


@pytest.mark.parametrize("kind", FILLS)
def test_declared_sizes_are_counted(path, kind):
    many = np.zeros(20_000, np.float32)
    weights = [
        ints("sizes", 1, 10**5, 10**5),
        const("one", np.float32(1)),
        const("zero", np.float32(0)),
        const("ones", np.ones((1, 1, 1), np.float32)),
        const("many", np.float32(HUGE)),
        const("step", np.float32(1)),
        ints("ten", *range(10)),
        const("both", np.array([0, 1], np.float32)),
        ints("pads", 0, 0, 0, 0, 0, HUGE),
        const("wide", many[None]),
        ints("places", *[0] * 20_000),
        const("row", many[None]),
        const("column", many[:, None]),
    ]
    declare(path, *FILLS[kind], weights=weights)
    assert path.stat().st_size < 500_000
    refuse(path, f"{MAX_COMPUTED:,} elements")


def test_fills_count_together(path):
    """A thousand that are each within the budget."""
    count, size = 1000, MAX_COMPUTED // 100
    fills = [node("ConstantOfShape", "size", f"f{at}", f"f{at}") for at in range(count)]
    sums = [node("Add", f"s{at} f{at}" if at else "f0 f0", f"s{at + 1}", f"s{at}") for at in range(count)]
    declare(path, *fills, *sums, node("Identity", f"s{count}", "w"), weights=[ints("size", size)])
    with pytest.raises(ModelError, match=f"{MAX_COMPUTED:,} elements"):
        read_model(path)


@pytest.mark.parametrize("kind", ["Cast", "CastLike", "ConstantOfShape", "Constant"])
def test_strings_are_not_computed(path, kind):
    """An object of Python each."""
    text = helper.make_tensor("text", onnx.TensorProto.STRING, [1], [b"a"])
    nodes = {
        "Cast": [node("ConstantOfShape", "size", "f"), node("Cast", "f", "w", to=onnx.TensorProto.STRING)],
        "CastLike": [node("ConstantOfShape", "size", "f"), node("CastLike", "f text", "w")],
        "ConstantOfShape": [node("ConstantOfShape", "size", "w", value=text)],
        "Constant": [node("Constant", "", "w", value_strings=["a", "b"])],
    }[kind]
    declare(path, *nodes, weights=[ints("size", 1000), text])
    refuse(path, f"'w', which {kind} computes", "strings")


def peak_of_reading(path):
    """Bytes that are held at most while a model is read."""
    tracemalloc.start()
    try:
        read_model(path)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_erf_is_computed_in_little_memory(path):
    """Of fills that are within the budget: some arrays of eight bytes an element, no object of each."""
    nodes = [
        node("ConstantOfShape", "size", "f"),
        node("Erf", "f", "e"),
        node("ReduceSum", "e", "sum", keepdims=0),
        node("Add", "sum raw", "w"),
    ]
    size = MAX_COMPUTED // 8
    own = const("raw", onnx.numpy_helper.to_array(lstm()[1][0]))
    declare(path, *nodes, weights=[ints("size", size), own])
    assert peak_of_reading(path) < 24 * size + 2**23


def test_erf_of_more_than_the_budget(path):
    nodes = [node("ConstantOfShape", "size", "f"), node("Erf", "f", "w")]
    declare(path, *nodes, weights=[ints("size", 2**25 - 100)])
    refuse(path, f"{MAX_COMPUTED:,} elements")


def test_shape_and_size_cost_nothing(path):
    """However large a tensor is whose axes they count."""
    nodes = [
        node("ConstantOfShape", "size", "f"),
        node("Shape", "f", "a"),
        node("Size", "f", "b"),
        node("Add", "a b", "c"),
        node("Sub", "c c", "d"),
        node("Cast", "d", "e", to=1),
        node("Add", "e raw", "w"),
    ]
    own = const("raw", onnx.numpy_helper.to_array(lstm()[1][0]))
    declare(path, *nodes, weights=[ints("size", MAX_COMPUTED - 2000), own])
    assert read_model(path).network.layers


def test_operators_of_unknown_size_are_not_computed(path):
    declare(path, node("HannWindow", "many", "w"), weights=[const("many", np.int64(HUGE))])
    refuse(path, "'w'", "HannWindow is not computed here")


def test_constants_that_nobody_needs_are_not_computed(path):
    nodes, weights = squeezed()
    huge = [node("ConstantOfShape", "sizes", "w"), node("HannWindow", "size", "v")]
    save(path, [*huge, *nodes], [*weights, ints("sizes", HUGE), const("size", np.int64(HUGE))], ["s"])
    assert read_model(path).network.outputs == H


def test_matrices_of_wide_layers_are_counted(path):
    """One factor for each of 10^5 features would be a matrix of 10^10: it stays outside, or is refused."""
    size = 10**5
    nodes, weights = lstm(x="wide", y="out", inputs=size)
    weights += [const("k", np.ones(size, np.float32))]
    save(path, [node("Mul", "x k", "wide"), *nodes], weights, shape=("T", "N", size))
    assert inspect_model(path).input == "wide"

    nodes = [node("MatMul", "s k", "a", "first"), node("Relu", "a", "r"), node("Tanh", "r", "out", "last")]
    after_lstm(path, nodes, [const("k", rand(H, size))])
    refuse(path, "'last'", f"{MAX_ELEMENTS:,} elements")


def outside(path, count, *dims, **entries):
    """A model with tensors in a sparse file of 100 MB, beside one with weights of its own."""
    nodes, weights = squeezed()
    with open(path.with_name("far.bin"), "wb") as file:
        file.truncate(100 << 20)
    for at in range(count):
        tensor = onnx.TensorProto(
            name=f"u{at}", data_type=1, dims=dims, data_location=onnx.TensorProto.EXTERNAL
        )
        for key, value in {"location": "far.bin", **entries}.items():
            tensor.external_data.add(key=key, value=str(value))
        weights.append(tensor)
    info = [
        helper.make_tensor_value_info(name, 1, shape) for name, shape in (("x", ("T", "N", 5)), ("s", None))
    ]
    graph = helper.make_graph(nodes, "g", info[:1], info[1:], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    path.write_bytes(model.SerializeToString())


def test_external_data_is_read_as_far_as_the_shape_goes(path):
    outside(path, 30, 1)
    assert peak_of_reading(path) < 2**24


def test_external_data_is_counted_before_it_is_read(path):
    outside(path, 5, 2**24)
    refuse(path, "tensor 'u4'", f"{MAX_ELEMENTS:,} elements")


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ({"length": 100 << 20}, "must have the 4 bytes"),
        ({"length": 0}, "must have the 4 bytes"),
        ({"offset": 100 << 20}, "cannot be read"),
        ({"offset": -4}, "cannot be read"),
    ],
)
def test_external_data_of_another_size(path, entries, words):
    outside(path, 1, 1, **entries)
    refuse(path, words)


def test_saved_external_data_is_read(path):
    after_lstm(path, [], (), ["s"])
    inside = read_model(path).network.layers[0].w_ih
    onnx.save_model(onnx.load(path), path, save_as_external_data=True, location="far.bin", size_threshold=0)
    assert path.with_name("far.bin").stat().st_size > 500
    np.testing.assert_array_equal(read_model(path).network.layers[0].w_ih, inside)


# Time

MANY = 1100  # More than the exponents of floats.
MOST_CALLS = 4500 * MANY  # Some 3,600 for each node are needed: one look at all nodes for each is found.


def spend(path, *words):
    """Look at the file and count Python's calls, which depend on neither the machine nor its load."""
    calls = 0

    def count(_frame, event, _argument):
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        refusal = inspect_model(path).refusal
    finally:
        sys.setprofile(None)
    assert all(word in refusal for word in words) and bool(words) == bool(refusal), refusal
    assert calls < MOST_CALLS


def chain(kind, first, last, name, extra=""):
    """Nodes of one kind from one tensor to another."""
    tensors = [first, *(f"{name}{at}" for at in range(1, MANY)), last]
    return [
        node(kind, f"{a} {extra}", b, f"{name}_{at}") for at, (a, b) in enumerate(itertools.pairwise(tensors))
    ]


def test_identities_before_and_behind(path):
    nodes, weights = squeezed(x="begin")
    save(path, [*chain("Identity", "x", "begin", "b"), *nodes, *chain("Identity", "s", "out", "e")], weights)
    spend(path)


def test_chain_of_constants(path):
    (cell,), weights = lstm()
    weights[0].name = "raw"
    save(path, [*chain("Neg", "raw", cell.input[1], "c"), cell], weights, ["y"])
    spend(path)


def test_doubled_sums_of_the_input_and_of_a_layer(path):
    """Every node reads the one before it twice: 2^n ways back to the input."""
    nodes, weights = squeezed(x="begin")
    for part in (before := chain("Add", "x", "begin", "b")), (behind := chain("Add", "s", "out", "e")):
        for each in part:
            each.input[1:] = [each.input[0]]
    save(path, [*before, *nodes, *behind], weights)
    spend(path, "NaN or infinite")


def test_state_through_a_chain(path):
    nodes, weights = squeezed(extra=("", "h0"))
    state = helper.make_tensor_value_info("h", onnx.TensorProto.FLOAT, (1, "N", H))
    save(path, [*chain("Identity", "h", "h0", "h"), *nodes], weights, ["s"], [state])
    spend(path)


def test_sums_that_look_like_a_cell(path):
    """Every product might be a cell's h, and its gate's sum goes back through all others."""
    sums = chain("Add", "first", "last", "a")
    for each in sums:
        each.input[1:] = [each.input[0]]
    gates = [node("Sigmoid", f"a{at}", f"g{at}", f"sigmoid{at}") for at in range(1, MANY, 2)]
    products = [node("Mul", f"g{at} g{at}", f"p{at}", f"mul{at}") for at in range(1, MANY, 2)]
    nodes = [node("MatMul", "s k", "first"), *sums, *gates, *products]
    after_lstm(path, nodes, [const("k", rand(H, H))], ["s"])
    spend(path)


def test_many_conditions(path):
    """Each If node is decided by a constant."""
    nodes, weights = squeezed()
    info = helper.make_tensor_value_info("t", onnx.TensorProto.FLOAT, None)
    tensors = ["s", *(f"i{at}" for at in range(1, 500)), "out"]
    for at, (a, b) in enumerate(itertools.pairwise(tensors)):
        branch = helper.make_graph([node("Identity", a, f"t{at}")], "g", [], [info])
        branch.output[0].name = f"t{at}"
        nodes.append(node("If", "yes", b, f"if{at}", then_branch=branch, else_branch=branch))
    save(path, nodes, [*weights, const("yes", np.array(True))])
    spend(path)


def test_functions_of_functions(path):
    end = helper.make_function(
        "own", "f13", ["a"], ["b"], [helper.make_node("Identity", ["a"], ["b"])], OPSETS
    )
    parts = [
        helper.make_function(
            "own",
            f"f{at}",
            ["a"],
            ["b"],
            [call(f"f{at + 1}", "a", "m"), call(f"f{at + 1}", "m", "b")],
            OPSETS,
        )
        for at in range(2, 13)
    ]
    save_with(path, [*parts, end], "f2")
    spend(path)
