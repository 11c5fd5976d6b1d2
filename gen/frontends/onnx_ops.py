"""The ONNX operators that may follow an LSTM."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rtlstm.gen.frontends.arrays import to_float64
from rtlstm.gen.frontends.axes import Axes
from rtlstm.gen.frontends.chain import Chain
from rtlstm.gen.frontends.onnx_graph import OnnxGraph
from rtlstm.spec.errors import ModelError
from rtlstm.spec.network import Activation

__all__ = ["OPERATORS", "SUPPORTED", "Step"]

_LAST = 2**31 - 1
_ACTIVATIONS: dict[str, Activation] = {"Relu": "relu", "Sigmoid": "sigmoid", "Tanh": "tanh"}


@dataclass
class Step:
    """One node to apply to the tensor that the chain has reached."""

    graph: OnnxGraph
    node: Any
    tensor: str
    axes: Axes
    chain: Chain

    @property
    def where(self) -> str:
        """The node as messages name it."""
        return self.graph.where(self.node)

    def attributes(self) -> dict[str, Any]:
        """The node's attributes."""
        return self.graph.attributes(self.node)

    def expect_first(self) -> None:
        """Refuse a node that reads the chain's tensor by another input than its first."""
        if self.node.input[0] != self.tensor or list(self.node.input).count(self.tensor) > 1:
            raise ModelError(f"{self.where} must read {self.tensor!r} as its first input alone")

    def constant(self, index: int, what: str) -> NDArray[np.float64]:
        """A constant input as float64."""
        name = self.node.input[index]
        value = self.graph.constant(name)
        if value is None:
            raise ModelError(f"{self.where}: {what} ({name!r}) must be constant, but depends on the input")
        return to_float64(value, f"{self.where}: {what} ({name!r})")

    def has(self, index: int) -> bool:
        """Whether an optional input is given."""
        return len(self.node.input) > index and bool(self.node.input[index])

    def numbers(self, attribute: str, index: int) -> list[int] | None:
        """Integers given as an attribute (older opsets) or as a constant input."""
        attributes = self.attributes()
        if attribute in attributes:
            value = attributes[attribute]
            return [int(item) for item in value] if isinstance(value, list | tuple) else [int(value)]
        if not self.has(index):
            return None
        values = self.graph.integers(self.node.input[index])
        if values is None:
            raise ModelError(f"{self.where}: {attribute} must be constant, but depends on the input")
        return values


def _activation(step: Step) -> Axes:
    step.expect_first()
    step.chain.add_activation(_ACTIVATIONS[step.node.op_type], step.where)
    return step.axes


def _pass(step: Step) -> Axes:
    step.expect_first()
    return step.axes


def _dropout(step: Step) -> Axes:
    step.expect_first()
    if step.has(2):
        training = step.graph.constant(step.node.input[2])
        if training is None or np.any(training):
            raise ModelError(f"{step.where}: training_mode must be false; export the model for inference")
    return step.axes


def _cast(step: Step) -> Axes:
    step.expect_first()
    # TensorProto: FLOAT 1, FLOAT16 10, DOUBLE 11, BFLOAT16 16.
    if step.attributes().get("to") not in (1, 10, 11, 16):
        raise ModelError(f"{step.where}: only casts between floating-point types are supported")
    return step.axes


def _transpose(step: Step) -> Axes:
    step.expect_first()
    perm = step.attributes().get("perm", list(range(len(step.axes.tags)))[::-1])
    return step.axes.transpose(perm, step.where)


def _squeeze(step: Step) -> Axes:
    step.expect_first()
    return step.axes.squeeze(step.numbers("axes", 1), step.where)


def _unsqueeze(step: Step) -> Axes:
    step.expect_first()
    return step.axes.unsqueeze(step.numbers("axes", 1) or [], step.where)


def _reshape(step: Step) -> Axes:
    step.expect_first()
    shape = step.graph.integers(step.node.input[1])
    return step.axes.reshape(shape, step.where, zero_copies=not step.attributes().get("allowzero", 0))


def _flatten(step: Step) -> Axes:
    step.expect_first()
    axes = step.axes
    if axes.lost:
        return axes
    rank = len(axes.tags)
    cut = int(step.attributes().get("axis", 1))
    cut += rank if cut < 0 else 0
    if cut in (0, rank):  # ONNX then puts an axis of size 1 before or behind
        axes = axes.flatten(0, -1, step.where)
        return axes.unsqueeze([0 if cut == 0 else 1], step.where)
    return axes.flatten(cut, -1, step.where).flatten(0, cut - 1, step.where)


def _gather(step: Step) -> Axes:
    step.expect_first()
    axis = int(step.attributes().get("axis", 0))
    value = step.graph.constant(step.node.input[1])
    if value is None or value.size != 1 or value.ndim > 1:
        raise ModelError(f"{step.where} must take one element by a constant index")
    return step.axes.select(axis, int(value.reshape(-1)[0]), step.where, keep=value.ndim == 1)


def _slice(step: Step) -> Axes:
    step.expect_first()
    starts, ends = step.numbers("starts", 1) or [], step.numbers("ends", 2) or []
    chosen = step.numbers("axes", 3) or list(range(len(starts)))
    strides = (step.numbers("steps", 4) if step.has(4) else None) or [1] * len(starts)
    axes = step.axes
    for axis, start, end, stride in zip(chosen, starts, ends, strides, strict=True):
        if stride != 1 or end < _LAST or start not in (0, -1):
            raise ModelError(
                f"{step.where} takes [{start}:{end}:{stride}] of axis {axis}; only the last step, [-1:], "
                "can be taken"
            )
        if start == -1:
            axes = axes.select(axis, -1, step.where, keep=True)
    return axes


def _matmul(step: Step) -> Axes:
    side = list(step.node.input).index(step.tensor)
    if step.node.input[1 - side] == step.tensor:
        raise ModelError(f"{step.where} multiplies a tensor by itself; a dense layer needs constant weights")
    weight = step.constant(1 - side, "the weight")
    if weight.ndim != 2:
        raise ModelError(f"{step.where}: the weight must have 2 axes, not {weight.ndim}")
    step.axes.expect_features_at(-1 if side == 0 else -2, step.where)
    weight = weight.T if side == 0 else weight
    return _dense(step, weight, np.zeros(weight.shape[0]))


def _gemm(step: Step) -> Axes:
    step.expect_first()
    attributes = step.attributes()
    transposed = bool(attributes.get("transA", 0))
    step.axes.expect_features_at(-2 if transposed else -1, step.where)
    if len(step.axes.tags) != 2:
        raise ModelError(f"{step.where} must read a tensor with 2 axes, not {len(step.axes.tags)}")
    weight = step.constant(1, "the weight B")
    if weight.ndim != 2:
        raise ModelError(f"{step.where}: the weight B must have 2 axes, not {weight.ndim}")
    weight = (weight if attributes.get("transB", 0) else weight.T) * float(attributes.get("alpha", 1.0))
    bias = np.zeros(weight.shape[0])
    if step.has(2):
        bias = _bias(step, 2, weight.shape[0], -1, 2) * float(attributes.get("beta", 1.0))
    axes = step.axes.transpose([1, 0], step.where) if transposed else step.axes
    return _dense(Step(step.graph, step.node, step.tensor, axes, step.chain), weight, bias)


def _conv(step: Step) -> Axes:
    step.expect_first()
    step.axes.expect_features_at(1, step.where)
    attributes = step.attributes()
    weight = step.constant(1, "the weight W")
    problems = []
    if weight.ndim < 3 or set(weight.shape[2:]) != {1}:
        problems.append(f"the kernel must have size 1, not {weight.shape[2:]}")
    if attributes.get("group", 1) != 1:
        problems.append(f"attribute group={attributes['group']} must be 1")
    if set(attributes.get("strides", [1])) != {1}:
        problems.append(f"attribute strides={list(attributes['strides'])} must be 1")
    if set(attributes.get("pads", [0])) != {0}:
        problems.append(f"attribute pads={list(attributes['pads'])} must be 0")
    if problems:
        raise ModelError(f"{step.where}: " + "; ".join(problems))
    if weight.ndim != len(step.axes.tags):
        raise ModelError(f"{step.where}: the weight must have {len(step.axes.tags)} axes, not {weight.ndim}")
    outputs = int(weight.shape[0])
    weight = weight.reshape(outputs, -1)
    bias = step.constant(2, "the bias B") if step.has(2) else np.zeros(outputs)
    if bias.shape != (outputs,):
        raise ModelError(f"{step.where}: the bias B must have shape ({outputs},), not {bias.shape}")
    return _dense(step, weight, bias)


def _dense(step: Step, weight: NDArray[np.float64], bias: NDArray[np.float64]) -> Axes:
    step.chain.add_dense(step.graph.label(step.node), step.where, weight, bias)
    return step.axes.with_features(weight.shape[0])


def _bias(step: Step, index: int, features: int, axis: int, rank: int) -> NDArray[np.float64]:
    """A constant that varies along the features alone, spread over them."""
    value = step.constant(index, "the added constant")
    shape = (1,) * (rank - value.ndim) + value.shape
    at = axis % rank
    others = {size for place, size in enumerate(shape) if place != at}
    if value.ndim > rank or others - {1} or shape[at] not in (1, features):
        raise ModelError(
            f"{step.where}: the added constant must have one value for each of {features} features, "
            f"not shape {value.shape}"
        )
    return np.broadcast_to(value.reshape(-1), (features,)).copy()


def _add(step: Step) -> Axes:
    side = list(step.node.input).index(step.tensor)
    step.axes.expect(step.where)
    if "F" not in step.axes.tags:
        raise ModelError(f"{step.where} must read a tensor with features")
    axis, rank = step.axes.tags.index("F"), len(step.axes.tags)
    bias = _bias(step, 1 - side, step.axes.features, axis, rank)
    step.chain.add_bias(bias, step.where)
    return step.axes


OPERATORS: dict[str, Callable[[Step], Axes]] = {
    "Add": _add,
    "Cast": _cast,
    "Conv": _conv,
    "Dropout": _dropout,
    "Flatten": _flatten,
    "Gather": _gather,
    "Gemm": _gemm,
    "Identity": _pass,
    "MatMul": _matmul,
    "Relu": _activation,
    "Reshape": _reshape,
    "Sigmoid": _activation,
    "Slice": _slice,
    "Squeeze": _squeeze,
    "Tanh": _activation,
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
}
"""What each supported operator does to the chain and to the axes."""

SUPPORTED = ", ".join(["LSTM", *OPERATORS])
