"""Replaces the quantisers of an ONNX model: integer weights become floats, rounded results what they round.

The rest of the front end then reads a float model. Notes say what was left out.
"""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeGuard

import numpy as np
from numpy.typing import NDArray

from rtlstm.gen.frontends.arrays import FLOAT_TYPES, Floats, along_axis, import_extra, listed
from rtlstm.gen.frontends.onnx.node_graph import OnnxGraph, captured, name_of
from rtlstm.gen.frontends.onnx.recurrent import is_recurrent
from rtlstm.gen.frontends.reading import ReportBuilder
from rtlstm.spec.errors import ModelError

_INTEGER: Final = re.compile(
    r"(com\.microsoft\.)?(QLinear\w+|QGemm|\w+Integer|\w*[Qq]uantizeLinear|DynamicQuantizeMatMul|MatMul\w*ToFloat)"
)
_PRODUCTS: Final = {"ConvInteger": "Conv", "MatMulInteger": "MatMul"}
INTEGER_ADVICE: Final = (
    "it computes with integers; rtlstm reads pairs of QuantizeLinear and DequantizeLinear with the same "
    "constants (onnxruntime's quant_format=QuantFormat.QDQ), and its dynamic MatMulInteger and ConvInteger"
)
_NOT_NEGATIVE: Final = ("Relu", "Sigmoid", "HardSigmoid", "Softplus")
_MOVES: Final = ("Identity", "Flatten", "Reshape", "Squeeze", "Transpose", "Unsqueeze")
_SUMS: Final = ("Add", "Conv", "Gemm", "MatMul", "Sub")


def is_integer_operator(operator: str) -> bool:
    """Whether an operator, its name with a domain other than ONNX's, computes with quantised integers."""
    return _INTEGER.fullmatch(operator) is not None


@dataclass(frozen=True)
class Rounding:
    """What a pair of QuantizeLinear and DequantizeLinear does to a tensor."""

    tensor: str
    gives: str
    bits: int
    low: float
    high: float
    step: float
    centred: bool
    """Whether its zero point is 0."""
    relu: bool
    """Whether it makes negative values 0."""
    sum: bool
    """Whether it rounds what an operator of :data:`_SUMS` gives."""


def replace_quantisers(
    model: Any, graph: OnnxGraph, end: str | None, report: ReportBuilder
) -> tuple[OnnxGraph, list[Rounding]]:
    """Replace quantisers in the model. Others stay, and are refused where they are read.

    DequantizeLinear of constants becomes a constant. A pair of QuantizeLinear and DequantizeLinear, with a
    Clip between them or not, becomes nothing, or a Relu if its integers begin at the zero point. Products
    of DynamicQuantizeLinear and MatMulInteger or ConvInteger become MatMul and Conv. The tensor ``end`` keeps
    its name.

    Returns the model's graph, and the pairs.
    """
    if not any(is_integer_operator(node.op_type) for node in graph.nodes):
        return graph, []
    writer = _Writer(model, graph, end, report)
    writer.write()
    return OnnxGraph(model), writer.roundings


def input_text(one: Rounding) -> str:
    """Say how the file rounds the core's input."""
    largest = float(f"{max(-one.low, one.high):.4g}")
    return (
        f"the file rounds the input {one.tensor!r} to {one.bits} bits, {one.low:.4g} to {one.high:.4g} in "
        f"steps of {one.step:.4g}; here `data_bits` and the range of the calibration data, or "
        f"`input_range`, say how it is rounded: nearest are `data_bits={one.bits}` and "
        f"`input_range={largest:g}`"
    )


class _Writer:
    """Writes the model's nodes again."""

    def __init__(self, model: Any, graph: OnnxGraph, end: str | None, report: ReportBuilder) -> None:
        self._onnx = import_extra("onnx", "onnx")
        self.model, self.graph, self.report = model, graph, report
        self.renamed: dict[str, str] = {}
        self.replaced: set[int] = set()
        self.roundings: list[Rounding] = []
        self.not_negative: set[str] = set()
        self.products: list[str] = []
        inside = (name for node in graph.nodes for name in captured(node))
        self.seen_outside = {*inside, *graph.outputs, *([end] if end else [])}

    def write(self) -> None:
        written: list[Any] = []
        for node in self.graph.nodes:
            written += self._written(node)
        for node in written:
            for names in (node.input, node.output):
                for at, name in enumerate(names):
                    names[at] = self._final(name)
        kept = self._without_unread(written)
        del self.model.graph.node[:]
        self.model.graph.node.extend(kept)
        self._notes()

    def _written(self, node: Any) -> list[Any]:
        """Return the nodes in a node's place."""
        try:
            found = self._replacement(node)
        except ModelError:
            found = None  # Perhaps nothing of the core needs it; what does, refuses it.
        return [node] if found is None else found

    def _replacement(self, node: Any) -> list[Any] | None:
        """Return what a quantiser's node becomes; None if it stays, or is none."""
        if _is_quantiser(node, "DequantizeLinear"):
            if self.graph.is_constant(node.output[0]):
                return self._constant(node)
            rounding = _find_rounding(self.graph, node, self.not_negative)
            return None if rounding is None else self._passed(node, rounding)
        return self._dynamic_product(node) if _is(node, "Mul") else None

    def _without_unread(self, nodes: Sequence[Any]) -> list[Any]:
        """Return the nodes without those of quantisers that nothing reads any more."""
        read, unneeded = set(self.seen_outside), {id(self.graph.nodes[index]) for index in self.replaced}
        kept = []
        for node in reversed(nodes):
            if id(node) not in unneeded or not read.isdisjoint(node.output):
                kept.append(node)
                read |= {*node.input, *captured(node)}
        return kept[::-1]

    # Weights

    def _constant(self, node: Any) -> list[Any] | None:
        """Make DequantizeLinear of constants an initializer, if it can be computed here."""
        found = _dequantised(self.graph, node)
        if found is None:
            return None
        self.replaced |= self.graph.ancestors([node.input[0]])
        self._add_constant(node.output[0], found)
        return []

    def _add_constant(self, name: str, found: "_Dequantised") -> None:
        self.model.graph.initializer.append(self._onnx.numpy_helper.from_array(found.values, name))
        if found.values.ndim > 1 and not self._is_bias(name):
            self.report.integer_rows.add(
                found.tensor, found.values.astype(np.float64), found.steps, found.bits, found.zero_points
            )

    def _is_bias(self, tensor: str) -> bool:
        """Whether a recurrent node reads a tensor behind its two matrices: a bias has two axes, too."""
        readers = [self.graph.nodes[index] for index in self.graph.consumers(tensor)]
        return any(is_recurrent(node) and tensor in node.input[3:] for node in readers)

    # What is rounded

    def _passed(self, node: Any, rounding: Rounding) -> list[Any]:
        """Return what stands for a pair: nothing, if it and what it rounds can have one name."""
        self.roundings.append(rounding)
        self.not_negative |= {node.output[0]} if rounding.low >= 0 else set()
        self.replaced |= set(_chain(self.graph, node))
        name, source = node.output[0], self._final(rounding.tensor)
        if not rounding.relu and name not in self.seen_outside:
            self.renamed[name] = source
            return []
        if not rounding.relu and source not in {*self.seen_outside, *self.graph.inputs}:
            self.renamed[source] = name
            return []
        kind = "Relu" if rounding.relu else "Identity"
        return [self._onnx.helper.make_node(kind, [rounding.tensor], [name], name=node.name)]

    def _final(self, tensor: str) -> str:
        """The name that a tensor has in the end."""
        while tensor in self.renamed:
            tensor = self.renamed[tensor]
        return tensor

    def _dynamic_product(self, scaled: Any) -> list[Any] | None:
        """Return the node that a dynamic product of integers, scaled by this Mul, stands for; or None."""
        found = _find_product(self.graph, scaled)
        if found is None:
            return None
        whole, tensor, scale, nodes = found
        operator, scales = _PRODUCTS[whole.op_type], self.graph.constant(scale)
        if operator == "Conv" and (scales is None or scales.size > 1):
            return None  # The last axis, along which Mul would have several, is that of the steps.
        weight = _dequantise(self.graph, whole.input[1], scale, [*whole.input, ""][3], axis=-1)
        if weight is None:
            return None
        constant = f"{scaled.output[0]}/dequantised"
        self._add_constant(constant, weight)
        self.products.append(tensor)
        self.replaced |= nodes
        make, name = self._onnx.helper.make_node, whole.name.removesuffix("_quant") or scaled.name
        attributes = self.graph.attributes(whole)
        return [make(operator, [tensor, constant], [scaled.output[0]], name=name, **attributes)]

    # Notes

    def _notes(self) -> None:
        if self.roundings:
            self.report.note(results_text(self.roundings))
        begun = [one.tensor for one in self.roundings if one.relu]
        if begun:
            self.report.note(
                f"the file's integers for {listed(map(repr, begun))} begin at 0, as where onnxruntime's "
                "quantiser merges a Relu: rtlstm reads a Relu there. If the float model has none, quantise "
                "with extra_options={'ActivationSymmetric': True}"
            )
        cut = [one for one in self.roundings if one.sum and not one.relu]
        if cut:
            ends = listed(f"{one.tensor!r} at {one.low:.4g} and {one.high:.4g}" for one in cut)
            self.report.note(
                f"the file saturates sums where its integers end, {ends}; the core does not. If one of them "
                "stands for a Clip, which onnxruntime's quantiser merges, too, quantise with "
                "extra_options={'QDQKeepRemovableActivations': True}"
            )
        if self.products:
            self.report.note(dynamic_text(listed(map(repr, self.products))))


def dynamic_text(what: str) -> str:
    """Say how what products read is rounded in the file, in each call anew."""
    return (
        f"the file rounds {what} to 8 bits before products, the values of each call to a range of their own; "
        "here they have the core's formats (`data_bits`)"
    )


def results_text(roundings: Sequence[Rounding]) -> str:
    """Say how results are rounded in the file."""
    steps = sorted(one.step for one in roundings)
    bits = listed(sorted({one.bits for one in roundings}))
    uneven = sum(np.frexp(step)[0] != 0.5 for step in steps)
    moved = sum(not one.centred for one in roundings)
    count = f"{len(roundings)} tensors" if len(roundings) > 1 else "1 tensor"
    widest = max(roundings, key=lambda one: one.high - one.low)
    return (
        f"the file rounds {count} to {bits} bits, in steps of {steps[0]:.3g} to "
        f"{steps[-1]:.3g} ({uneven} are no powers of two, {moved} have a zero point other than 0; the widest "
        f"is {widest.tensor!r}, {widest.low:.4g} to {widest.high:.4g}); here they have the core's formats "
        "instead (`data_bits`)"
    )


def _find_product(graph: OnnxGraph, scaled: Any) -> tuple[Any, str, str, set[int]] | None:
    """Return the product with constant integers that a Mul scales: Cast of one of :data:`_PRODUCTS`, times
    both scales; the tensor that DynamicQuantizeLinear rounds for it, the scale of the constants, and the
    indices of all these nodes.
    """
    for product, scale in (scaled.input, scaled.input[::-1]):
        cast, scales = graph.producer(product), graph.producer(scale)
        if not _is(cast, "Cast") or not _is(scales, "Mul"):
            continue
        whole = graph.producer(cast.input[0])
        if whole is None or not any(_is(whole, operator) for operator in _PRODUCTS):
            continue
        dynamic = graph.producer(whole.input[0])
        codes, weight, zero_point, zero = [*whole.input, "", ""][:4]
        if not _is(dynamic, "DynamicQuantizeLinear"):
            continue
        others = [name for name in scales.input if name != dynamic.output[1]]
        constants = (weight, *others, *filter(None, [zero]))
        mine = [codes, zero_point] == [dynamic.output[0], dynamic.output[2]]
        if mine and len(others) == 1 and all(map(graph.is_constant, constants)):
            nodes = {graph.index_of(one.output[0]) for one in (cast, scales, whole, dynamic)}
            return whole, dynamic.input[0], others[0], nodes
    return None


@dataclass(frozen=True)
class _Dequantised:
    tensor: str
    values: NDArray[Any]
    steps: Floats
    bits: int
    zero_points: bool


def _is(node: Any, kind: str) -> TypeGuard[Any]:
    """Whether there is a node, of this operator of ONNX."""
    return node is not None and name_of(node) == kind


def _is_quantiser(node: Any, kind: str) -> TypeGuard[Any]:
    """Whether there is a node, of this operator of ONNX or of onnxruntime, which has its own for 16 bits."""
    return node is not None and name_of(node).removeprefix("com.microsoft.") == kind and len(node.input) > 1


def _dequantised(graph: OnnxGraph, node: Any) -> _Dequantised | None:
    """Compute a DequantizeLinear of constants; None if it is of a kind that is not computed here."""
    attributes = graph.attributes(node)
    zero = node.input[2] if len(node.input) > 2 else ""
    axis, block = attributes.get("axis", 1), attributes.get("block_size", 0)
    return _dequantise(graph, node.input[0], node.input[1], zero, axis, block, _limits(graph, node))


def _dequantise(
    graph: OnnxGraph,
    codes: str,
    scale: str,
    zero: str,
    axis: int,
    block: int = 0,
    limits: tuple[float, float] | None = None,
) -> _Dequantised | None:
    """Return ``(codes - zero) * scale``, computed as ONNX defines it, in the scale's float type."""
    integers, scales = graph.constant(codes), graph.constant(scale)
    zeros = graph.constant(zero) if zero else np.zeros((), np.int64)
    if integers is None or scales is None or zeros is None or scales.dtype.name not in FLOAT_TYPES:
        return None
    bounds = _type_limits(integers.dtype)
    if bounds is None or not np.isfinite(scales).all():
        return None
    steps, offsets = (_spread(values, integers.shape, axis, block) for values in (scales, zeros))
    if steps is None or offsets is None:
        return None
    whole = (integers.astype(np.int64) - offsets.astype(np.int64)).astype(scales.dtype)
    values = (whole * steps).astype(scales.dtype)
    steps = np.abs(steps.astype(np.float64))
    return _Dequantised(codes, values, steps, _bits(*(limits or bounds)), bool(np.any(zeros)))


def _spread(values: Any, shape: tuple[int, ...], axis: int, block: int) -> Any | None:
    """Return scales or zero points for each element; there is one for all, or one for each index of an axis
    or each block of them. None if they do not fit.
    """
    if values.size == 1 or block <= 0 or not -len(shape) <= axis < len(shape):
        return along_axis(values, shape, axis)
    blocks = list(shape)
    blocks[axis] = -(-shape[axis] // block)
    if values.shape != tuple(blocks):
        return None
    return np.repeat(values, min(block, shape[axis]), axis)[tuple(map(slice, shape))]


def _type_limits(kind: Any) -> tuple[float, float] | None:
    """Return the range of an integer type, those of 2 and 4 bits included; None of another one."""
    match = re.fullmatch(r"(u?)int(\d+)", np.dtype(kind).name)
    if match is None:
        return None
    bits = int(match[2])
    return (0.0, 2.0**bits - 1) if match[1] else (-(2.0 ** (bits - 1)), 2.0 ** (bits - 1) - 1)


def _bits(low: float, high: float) -> int:
    """Return the bits of integers of this range: brevitas states a narrow one by a Clip."""
    return int(max(high, -low - 1)).bit_length() + (low < 0)


def _clips(graph: OnnxGraph, node: Any) -> tuple[list[int], Any]:
    """Return the indices of the Clips that a DequantizeLinear reads, and the node before them or None."""
    found: list[int] = []
    before = graph.producer(node.input[0])
    while _is(before, "Clip"):
        found.append(graph.index_of(before.output[0]))
        before = graph.producer(before.input[0])
    return found, before


def _chain(graph: OnnxGraph, node: Any) -> list[int]:
    """Return the indices of QuantizeLinear and the Clips between it and a DequantizeLinear; empty if none."""
    clips, before = _clips(graph, node)
    return [*clips, graph.index_of(before.output[0])] if _is_quantiser(before, "QuantizeLinear") else []


def _limits(graph: OnnxGraph, node: Any) -> tuple[float, float] | None:
    """Return the range of a DequantizeLinear's integers, as Clips before it narrow it; None if none does."""
    low, high = -np.inf, np.inf
    for index in _clips(graph, node)[0]:
        least, most = [*graph.nodes[index].input, "", ""][1:3]
        low = max(low, _number(graph, least, -np.inf))
        high = min(high, _number(graph, most, np.inf))
    return (low, high) if np.isfinite([low, high]).all() and low < high else None


def _number(graph: OnnxGraph, tensor: str, default: float) -> float:
    """Return a constant's number, or the default if the input is left out."""
    value = graph.constant(tensor) if tensor else np.array(default)
    if value is None or value.size != 1:
        raise ModelError(f"the limit {tensor!r} of a Clip must be one constant number")
    return float(value.astype(np.float64).item())


def _find_rounding(graph: OnnxGraph, node: Any, not_negative: Collection[str]) -> Rounding | None:
    """Return what DequantizeLinear and the QuantizeLinear before it round; None if they are no such pair.

    ``not_negative`` are results of pairs whose values are 0 or more.
    """
    chain = _chain(graph, node)
    if not chain:
        return None
    first = graph.nodes[chain[-1]]
    given, taken = ([*one.input, ""][1:3] for one in (first, node))
    default = np.zeros((), _output_type(graph, first))
    constants = [[graph.constant(name) if name else default for name in both] for both in (given, taken)]
    (scale, zero), again = constants
    pairs: Any = zip((scale, zero), again, strict=True)
    if scale is None or zero is None or not all(np.array_equal(*pair) for pair in pairs):
        return None
    bounds = _type_limits(zero.dtype)
    if bounds is None or scale.size != 1 or zero.size != 1 or not float(scale.item()) > 0:
        return None
    low, high = _limits(graph, node) or bounds
    step, offset = float(scale.item()), float(zero.item())
    producer = graph.producer(first.input[0])
    return Rounding(
        tensor=first.input[0],
        gives=node.output[0],
        bits=_bits(low, high),
        low=(low - offset) * step,
        high=(high - offset) * step,
        step=step,
        centred=offset == 0,
        relu=offset == low and not _is_not_negative(graph, first.input[0], not_negative),
        sum=producer is not None and producer.op_type in _SUMS,
    )


def _output_type(graph: OnnxGraph, node: Any) -> Any:
    """Return the type of a QuantizeLinear's integers, if it has no zero point."""
    kind = graph.attributes(node).get("output_dtype", 0)
    return import_extra("onnx", "onnx").helper.tensor_dtype_to_np_dtype(kind) if kind else np.dtype(np.uint8)


def _is_not_negative(graph: OnnxGraph, tensor: str, known: Collection[str]) -> bool:
    """Whether a tensor's values are 0 or more for any input."""
    node = graph.producer(tensor)
    while node is not None and tensor not in known and node.op_type in (*_MOVES, "DequantizeLinear"):
        tensor = node.input[0]
        if node.op_type == "DequantizeLinear":
            chain = _chain(graph, node)
            tensor = graph.nodes[chain[-1]].input[0] if chain else tensor
        node = graph.producer(tensor)
    return tensor in known or (node is not None and node.op_type in _NOT_NEGATIVE)
