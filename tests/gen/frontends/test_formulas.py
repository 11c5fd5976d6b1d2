"""Activation functions that a model writes out in parts are one node, by the values that they give."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.closeness import close
from support.onnx_files import H, I, const, node, rand, run, save, squeezed
from support.refusals import refused

from rtlstm.gen.frontends import ReadOptions, read_model
from rtlstm.sim.reference import run_float

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


def written(path: Path, nodes: list[Any], outputs: Sequence[str] = ("out",), **numbers: Any) -> Path:
    """An LSTM and these nodes, which read its result ``s``."""
    begin, weights = squeezed()
    values = {name: np.float32(number) for name, number in (NUMBERS | numbers).items()}
    for each in nodes[:-1]:
        each.name = each.output[0]
    constants = [const(name, value) for name, value in values.items()]
    return save(path / "model.onnx", [*begin, *nodes], [*weights, *constants], outputs)


@pytest.mark.parametrize(
    ("name", "nodes"), [("silu", SILU), ("gelu", GELU), ("gelu_tanh", TANH), ("hard_swish", HARD)]
)
def test_a_function_in_parts_is_one_node(name: str, nodes: list[Any], tmp_path: Path) -> None:
    path = written(tmp_path, nodes)
    result = read_model(path)
    lstm, dense = result.network.layers
    assert (lstm.kind, dense.name, dense.activation) == ("lstm", "product", name)
    assert f"the nodes that give 'out' are {name} of 's'" in result.report.notes
    assert [each.kind for each in result.report.outside] == []
    x = rand(5, 2, I)
    close(run_float(result.network, x).y, run(path, x))


def test_constants_of_sixteen_bits_are_near_enough(tmp_path: Path) -> None:
    """The two forms of GELU stay apart."""
    for name, nodes in (("gelu", GELU), ("gelu_tanh", TANH)):
        rounded = {key: np.float16(number) for key, number in NUMBERS.items()}
        assert read_model(written(tmp_path, nodes, **rounded)).network.layers[-1].activation == name


def test_a_part_that_is_an_end_stays(tmp_path: Path) -> None:
    """One of the model's outputs, and one that is asked for."""
    for outputs in (("out", "p"), ("out",)):
        path = written(tmp_path, SILU, outputs)
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
def test_other_values_are_refused_as_before(nodes: list[Any], numbers: Any, tmp_path: Path) -> None:
    refused(written(tmp_path, nodes, **numbers), "is not supported|must read")
