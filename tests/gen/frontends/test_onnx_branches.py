"""Conditions in an ONNX model, of which a branch is asked for or decided, and its functions, inlined."""

import time

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper
from support.closeness import close
from support.onnx_files import (
    H,
    I,
    call,
    check,
    const,
    function,
    ints,
    lstm,
    node,
    rand,
    save,
    save_with,
    twice,
)  # fmt: skip
from support.refusals import refused

from rtlstm.gen.frontends import ReadOptions, read_model
from rtlstm.sim.reference import run_float


def branch(name: str, nodes, weights, *outputs: str):
    infos = [helper.make_tensor_value_info(output, TensorProto.FLOAT, None) for output in outputs]
    return helper.make_graph(nodes, name, [], infos, weights)


def choose(name: str, condition: str, then, other, output: str = "out"):
    return helper.make_node("If", [condition], [output], name=name, then_branch=then, else_branch=other)


def two_lstms(path, condition=(), weights=()):
    """An If with another LSTM in each branch, the else branch with one inside, and one behind it.

    All branches name their tensors alike.
    """
    nodes_a, weights_a = lstm(y="y", name="rec")
    nodes_b, weights_b = lstm(y="y", name="rec")
    squeezed = node("Squeeze", "y axes", "z")
    inner_then = branch("inner_then", [node("Tanh", "z", "t")], [], "t")
    inner_else = branch("inner_else", [node("Identity", "z", "i")], [], "i")
    then = branch("then", [*nodes_a, squeezed], [*weights_a, ints("axes", 1)], "z")
    other = branch(
        "other",
        [*nodes_b, squeezed, choose("inner", "flag", inner_then, inner_else, "w")],
        [*weights_b, ints("axes", 1)],
        "w",
    )
    flag = helper.make_tensor_value_info("flag", TensorProto.BOOL, [])
    tail = [branch(name, [node("Identity", "middle", "y")], [], "y") for name in ("one", "two")]
    outer = choose("outer", "chosen" if condition else "flag", then, other, "middle")
    return save(path, [*condition, outer, choose("tail", "flag", *tail)], list(weights), inputs=(flag,))


@pytest.mark.parametrize("flag", [True, False])
def test_chosen_branch_computes_what_the_model_does(flag: bool, tmp_path) -> None:
    path = two_lstms(tmp_path / "m.onnx")
    choices = ("outer:then", "tail:then") if flag else ("outer:else", "inner:else", "tail:else")
    result = read_model(path, ReadOptions(branches=choices))
    x = rand(7, 2, I)
    session = onnxruntime.InferenceSession(path)
    wanted = session.run(["out"], {"x": x, "flag": np.array(True) if flag else np.array(False)})[0]
    close(run_float(result.network, x).y, wanted)
    notes = " ".join(result.report.notes)
    assert all(f"If node {choice.split(':')[0]!r}" in notes for choice in choices)
    assert result.network.pseudo_layers[0].outputs == H


def test_stars_stand_for_any_text_and_the_first_choice_counts(tmp_path) -> None:
    path = two_lstms(tmp_path / "m.onnx")
    exact = read_model(path, ReadOptions(branches=("outer:else", "inner:else", "tail:then")))
    stars = read_model(path, ReadOptions(branches=("*:else", "outer:then")))
    assert stars.network.layers[0].w_ih.tolist() == exact.network.layers[0].w_ih.tolist()


def test_constants_decide_by_themselves(tmp_path) -> None:
    condition = [node("Greater", "two one", "chosen")]
    weights = [const("one", np.float32(1)), const("two", np.float32(2))]
    path = two_lstms(tmp_path / "m.onnx", condition, weights)
    decided = read_model(path, ReadOptions(branches=("*:then",)))
    x = rand(3, 1, I)
    wanted = onnxruntime.InferenceSession(path).run(["out"], {"x": x, "flag": np.array(False)})[0]
    close(run_float(decided.network, x).y, wanted)
    refused(
        path, r"branch outer:else cannot be taken: .* decide for then", ReadOptions(branches=("outer:else",))
    )


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ((), r"If node 'outer', whose condition is 'flag'; .* branch with `branches=\('outer:then',\)`"),
        (("outer:else",), r"after the LSTM 'z' goes into If node 'inner', whose condition is 'flag'"),
        (("outer",), r"branch must be NODE:then or NODE:else, not 'outer'"),
        (("outer:both",), r"branch must be NODE:then or NODE:else, not 'outer:both'"),
        (("other:then",), r"there is no 'other' \(any more\); there are: outer"),
    ],
)
def test_refusals(choices: tuple[str, ...], message: str, tmp_path) -> None:
    refused(two_lstms(tmp_path / "m.onnx"), message, ReadOptions(branches=choices))


@pytest.mark.parametrize(
    ("yes", "outputs", "words"),
    [
        (
            np.array([True, False]),
            "r",
            r"If node 'damaged': its condition must be one value, not of shape \(2,\)",
        ),
        (np.array(True), "r q", "If node 'damaged': its then branch must give 1 tensors, not 2"),
    ],
)
def test_damaged_conditions_are_refused(tmp_path, yes, outputs, words):
    nodes, weights = lstm(y="s")
    parts = branch("part", [node("Relu", "s", "r"), node("Tanh", "s", "q")], [], *outputs.split())
    nodes.append(choose("damaged", "yes", parts, parts))
    refused(save(tmp_path / "net.onnx", nodes, [*weights, const("yes", yes)]), words)


# Functions


def test_function_is_inlined(path):
    half = function("half", helper.make_node("Tanh", ["a"], ["b"]))
    save_with(path, [half, twice("whole", "half")], "whole")
    network = check(path).network
    assert [layer.activation for layer in network.layers[1:]] == ["tanh", "tanh"]


@pytest.mark.parametrize(
    "functions", [[twice("f0", "f0")], [twice("f0", "f1"), twice("f1", "f0")]], ids=["itself", "each other"]
)
def test_function_that_calls_itself_is_refused(path, functions):
    save_with(path, functions, "f0")
    refused(path, "has a function 'f0' that calls itself")


def test_small_file_of_many_nodes_is_refused(path):
    end = function("f30", helper.make_node("Identity", ["a"], ["b"]))
    save_with(path, [*(twice(f"f{at}", f"f{at + 1}") for at in range(30)), end], "f0")
    begin = time.process_time()
    refused(path, r"at most 50,000 nodes.*1,073,741,826")
    assert time.process_time() - begin < 1 and path.stat().st_size < 10_000


def test_deep_functions_are_refused(path):
    end = function("f500", helper.make_node("Identity", ["a"], ["b"]))
    save_with(path, [*(function(f"f{at}", call(f"f{at + 1}", "a", "b")) for at in range(500)), end], "f0")
    refused(path, "at most 32 deep")
