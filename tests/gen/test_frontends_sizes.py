"""What a file declares is counted before it is made, and reading takes time in proportion to the file."""

import itertools
import time
import tracemalloc

import numpy as np
import onnx
import pytest
from onnx import helper
from test_frontends_onnx import H, const, ints, lstm, node, rand, save, squeezed
from test_frontends_onnx_functions import OPSETS, call, save_with

from rtlstm.gen.frontends import inspect_model, read_model
from rtlstm.spec.budget import MAX_ELEMENTS
from rtlstm.spec.errors import ModelError

HUGE = 10**10


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.onnx"


def refuse(path, *words):
    """Refused within a second and some MiB, whatever it declares."""
    begin = time.monotonic()
    tracemalloc.start()
    try:
        with pytest.raises(ModelError) as refusal:
            read_model(path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    for word in words:
        assert word in str(refusal.value), refusal.value
    assert time.monotonic() - begin < 3 and peak < 2**24


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
        ints("sizes", 1, 10**5, 10**5), const("one", np.float32(1)), const("zero", np.float32(0)),
        const("ones", np.ones((1, 1, 1), np.float32)), const("many", np.float32(HUGE)),
        const("step", np.float32(1)), ints("ten", *range(10)), const("both", np.array([0, 1], np.float32)),
        ints("pads", 0, 0, 0, 0, 0, HUGE),
        const("wide", many[None]), ints("places", *[0] * 20_000), const("row", many[None]),
        const("column", many[:, None]),
    ]  # fmt: skip
    declare(path, *FILLS[kind], weights=weights)
    assert path.stat().st_size < 500_000
    refuse(path, f"{MAX_ELEMENTS:,} elements")


def test_fills_count_together(path):
    """A thousand that are each within the budget."""
    count, size = 1000, MAX_ELEMENTS // 100
    fills = [node("ConstantOfShape", "size", f"f{at}", f"f{at}") for at in range(count)]
    sums = [node("Add", f"s{at} f{at}" if at else "f0 f0", f"s{at + 1}", f"s{at}") for at in range(count)]
    declare(path, *fills, *sums, node("Identity", f"s{count}", "w"), weights=[ints("size", size)])
    with pytest.raises(ModelError, match=f"{MAX_ELEMENTS:,} elements"):
        read_model(path)


def test_operators_of_unknown_size_are_not_computed(path):
    declare(path, node("HannWindow", "many", "w"), weights=[ints("many", HUGE)])
    refuse(path, "'w'", "HannWindow is not computed here")


def test_constants_that_nobody_needs_are_not_computed(path):
    nodes, weights = squeezed()
    huge = [node("ConstantOfShape", "sizes", "w"), node("HannWindow", "sizes", "v")]
    save(path, [*huge, *nodes], [*weights, ints("sizes", HUGE)], ["s"])
    assert read_model(path).network.outputs == H


def test_matrices_of_wide_layers_are_counted(path):
    """One factor for each of 10^5 features would be a matrix of 10^10: it stays outside, or is refused."""
    size = 10**5
    nodes, weights = lstm(x="wide", y="out", inputs=size)
    weights += [const("k", np.ones(size, np.float32))]
    save(path, [node("Mul", "x k", "wide"), *nodes], weights, shape=("T", "N", size))
    assert inspect_model(path).input == "wide"

    nodes, weights = squeezed()
    nodes += [node("MatMul", "s k", "a", "first"), node("Relu", "a", "r"), node("Tanh", "r", "out", "last")]
    save(path, nodes, [*weights, const("k", rand(H, size))])
    refuse(path, "'last'", f"{MAX_ELEMENTS:,} elements")


# Time

MANY = 2000


def spend(path, *words, limit=2.0):
    begin = time.monotonic()
    refusal = inspect_model(path).refusal
    assert all(word in refusal for word in words) and bool(words) == bool(refusal), refusal
    assert time.monotonic() - begin < limit


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
    spend(path, limit=4)


def test_doubled_sums_of_the_input_and_of_a_layer(path):
    """Every node reads the one before it twice: 2^n ways back to the input."""
    nodes, weights = squeezed(x="begin")
    for part in (before := chain("Add", "x", "begin", "b")), (behind := chain("Add", "s", "out", "e")):
        for each in part:
            each.input[1:] = [each.input[0]]
    save(path, [*before, *nodes, *behind], weights)
    spend(path, "NaN or infinite", limit=4)


def test_state_through_a_chain(path):
    nodes, weights = squeezed(extra=("", "h0"))
    state = helper.make_tensor_value_info("h", onnx.TensorProto.FLOAT, (1, "N", H))
    save(path, [*chain("Identity", "h", "h0", "h"), *nodes], weights, ["s"], [state])
    spend(path)


def test_sums_that_look_like_a_cell(path):
    """Every product might be a cell's h, and its gate's sum goes back through all others."""
    nodes, weights = squeezed()
    sums = chain("Add", "first", "last", "a")
    for each in sums:
        each.input[1:] = [each.input[0]]
    gates = [node("Sigmoid", f"a{at}", f"g{at}", f"sigmoid{at}") for at in range(1, MANY, 2)]
    products = [node("Mul", f"g{at} g{at}", f"p{at}", f"mul{at}") for at in range(1, MANY, 2)]
    save(
        path,
        [*nodes, node("MatMul", "s k", "first"), *sums, *gates, *products],
        [*weights, const("k", rand(H, H))],
        ["s"],
    )
    spend(path, limit=4)


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
    spend(path, limit=4)
