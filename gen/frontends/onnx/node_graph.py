"""An ONNX file as a graph: loading, constants, producers and consumers."""

import contextlib
import importlib
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from rtlstm.gen.frontends.arrays import fresh, import_extra, listed, one_error
from rtlstm.gen.frontends.graph import Wiring
from rtlstm.gen.frontends.plugins import SUPPORTED
from rtlstm.gen.frontends.reading import IntegerRows
from rtlstm.spec.errors import ModelError
from rtlstm.spec.files import MAX_COMPUTED, Budget

_MAX_NODES = 50_000
"""Most nodes of a graph with its functions inlined: n functions that each call the next twice make 2^n."""
_MAX_DEPTH = 32
_TOO_DEEP = (
    f"must have functions that call others at most {_MAX_DEPTH} deep; export the model with its "
    "functions inlined"
)

_Key = tuple[str, str, str]


def name_of(node: Any) -> str:
    """The name of a node's operator; of another domain than ONNX's, with the domain."""
    return str(node.op_type) if node.domain in ("", "ai.onnx") else f"{node.domain}.{node.op_type}"


FROM_LOOP: Final = "made by rtlstm of a Loop node"
"""The ``doc_string`` of a Scan node that stands for the model's Loop node."""


def kind_of(node: Any) -> str:
    """The name of the operator that a node is in the user's model."""
    return "Loop" if node.doc_string == FROM_LOOP else str(node.op_type)


def subgraphs(node: Any) -> Iterator[Any]:
    """The graphs inside a control-flow node."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def inline_functions(model: Any) -> Any:
    """Return the model without functions of its own.

    Raises ModelError if functions call themselves, or the graph would have too many nodes.
    """
    _check_functions(model)
    if not model.functions:
        return model
    # A module of its own, which `import onnx` need not bring along.
    inliner = import_extra("onnx.inliner", "onnx")
    with one_error("has functions that onnx cannot inline: {line}", Exception):
        return inliner.inline_local_functions(model)


def _check_functions(model: Any) -> None:
    """Refuse functions that never end, and graphs that would be too large with all functions inlined."""
    functions = {(item.domain, item.name, item.overload): item for item in model.functions}
    known: dict[_Key, tuple[int, int]] = {}
    calling: list[_Key] = []

    def measure(nodes: Any) -> tuple[int, int]:
        """Nodes with those of the graphs inside, and how deep functions nest."""
        size = depth = 0
        for node in nodes:
            key = (node.domain, node.op_type, node.overload)
            called = key in functions
            inner = [call(key)] if called else [measure(graph.node) for graph in subgraphs(node)]
            size += sum(count for count, _ in inner) + (not called)
            depth = max(depth, *(below + called for _, below in inner), 0)
        return size, depth

    def call(key: _Key) -> tuple[int, int]:
        if key in calling:
            raise ModelError(f"has a function {key[1]!r} that calls itself; export the model again")
        if len(calling) > _MAX_DEPTH:
            raise ModelError(_TOO_DEEP)
        if key not in known:
            calling.append(key)
            known[key] = measure(functions[key].node)
            calling.pop()
        return known[key]

    size, depth = measure(model.graph.node)
    for key in functions:
        call(key)
    if depth > _MAX_DEPTH:
        raise ModelError(_TOO_DEEP)
    if size > _MAX_NODES:
        raise ModelError(
            f"must have at most {_MAX_NODES:,} nodes, its functions inlined, but has {size:,}; export "
            "the part around the LSTM alone"
        )


_RANDOM = ("Random", "Multinomial", "Bernoulli")
_PRODUCTS_OF_AN_ELEMENT = 64
"""How many products count as one element: so the budget limits the time of matrix products, too."""
_LOOPED = 16
"""How many elements one counts as, for operators that the evaluator computes in a Python loop."""
_FOLD = "fold the model's constants first (for example with onnxsim)"
_COMPUTED_OF_A_BYTE = 2
"""How many elements may be computed for each byte of a large model: eight for a weight of four bytes."""


class Constants:
    """The tensors of a graph that do not depend on its inputs.

    A node's elements are counted from its inputs' shapes before it is computed, because a few bytes can
    declare any size.
    """

    def __init__(self, model: Any) -> None:
        self._onnx = import_extra("onnx", "onnx")
        self._model = model
        self._initializers = {item.name: item for item in model.graph.initializer}
        self._nodes: dict[str, Any] = {}
        self._values: dict[str, Any] = {}
        self.budget = Budget(ModelError)
        limit = max(MAX_COMPUTED, _COMPUTED_OF_A_BYTE * model.ByteSize())
        self._computed = Budget(ModelError, _FOLD, limit)
        for node in model.graph.node:
            varies = node.op_type.startswith(_RANDOM) or any(subgraphs(node))
            if all(map(self.__contains__, filter(None, node.input))) and not varies:
                self._nodes.update(dict.fromkeys(filter(None, node.output), node))

    def __contains__(self, tensor: object) -> bool:
        return tensor in self._initializers or tensor in self._nodes or tensor in self._values

    def add(self, name: str, value: Any) -> str:
        """Add a constant under a new name that begins with this one, and return its name."""
        name = fresh(name, self.__contains__)
        self._values[name] = value
        return name

    def get(self, tensor: str) -> Any | None:
        """The value of a tensor, or None if it depends on the model's inputs.

        Raises ModelError if it cannot be computed, or the constants that were asked for have too many
        elements together.
        """
        if tensor not in self:
            return None
        waiting = [tensor]
        while waiting:
            name = waiting[-1]
            known = name in self._values or name in self._initializers
            read = () if known else filter(None, self._nodes[name].input)
            missing = [each for each in read if each not in self._values]
            waiting += missing
            if not missing:
                waiting.pop()
                if name not in self._values:
                    self._make(name)
        return self._values[tensor]

    def _make(self, tensor: str) -> None:
        if tensor in self._initializers:
            self._values[tensor] = self.array(self._initializers[tensor])
            return
        node = self._nodes[tensor]
        inputs = [self._values[name] if name else None for name in node.input]
        failed = f"tensor {tensor!r} is computed from constants by {node.op_type}, which failed: {{line}}"
        with one_error(f"{failed}; {_FOLD}", Exception):
            found = self._compute(node, inputs)
        self._values.update(zip(node.output, found, strict=False))

    def array(self, proto: Any) -> Any:
        """A tensor message as an array."""
        self.budget.take(proto.dims, f"tensor {proto.name!r}")
        # a type or size that is none
        with one_error(f"tensor {proto.name!r} is damaged: {{line}}", Exception):
            return self._onnx.numpy_helper.to_array(proto)

    def _compute(self, node: Any, inputs: list[Any]) -> Sequence[Any]:
        kind = name_of(node)
        if kind == "Identity":
            return inputs[:1]
        attributes = {item.name: item for item in node.attribute}
        if kind == "Constant" and "value" in attributes:
            return [self.array(attributes["value"].t)]
        bound = _BOUNDS.get(kind)
        if bound is None or "sparse_value" in attributes:
            raise NotImplementedError(f"{kind} is not computed here")
        values = {name: self._onnx.helper.get_attribute_value(item) for name, item in attributes.items()}
        what = f"tensor {node.output[0]!r}, which {kind} computes,"
        kinds = (values.get("to"), getattr(values.get("value"), "data_type", None))
        text = self._onnx.TensorProto.STRING in kinds or {"value_string", "value_strings"} & values.keys()
        # Each would be a Python object.
        if text or any(np.asarray(each).dtype.kind in "OSTU" for each in inputs if each is not None):
            raise ModelError(f"{what} must not be made of strings: only numbers are computed here")
        self._computed.take(bound(inputs, values), what)
        if kind == "Erf":  # The evaluator makes a Python object of every element.
            found = np.fromiter(map(math.erf, inputs[0].reshape(-1)), np.float64, inputs[0].size)
            return [found.astype(inputs[0].dtype).reshape(inputs[0].shape)]
        return [np.asarray(value) for value in self._evaluate(node, inputs)]

    def _evaluate(self, node: Any, inputs: list[Any]) -> list[Any]:
        helper, reference = self._onnx.helper, import_extra("onnx.reference", "onnx")
        feeds = {name: value for name, value in zip(node.input, inputs, strict=True) if name}
        graph = helper.make_graph(
            [node],
            "constant",
            [helper.make_empty_tensor_value_info(name) for name in feeds],
            [helper.make_empty_tensor_value_info(name) for name in node.output if name],
        )
        model = helper.make_model(graph, opset_imports=list(self._model.opset_import))
        model.ir_version = self._model.ir_version
        values = iter(reference.ReferenceEvaluator(model).run(None, feeds))
        return [next(values) if name else None for name in node.output]


# Upper bounds of a node's elements: a shape, or several to be multiplied.

_Bound = Callable[[list[Any], dict[str, Any]], Sequence[int]]


def _given(inputs: list[Any]) -> list[Any]:
    return [value for value in inputs if value is not None]


def _whole(values: Any) -> tuple[int, ...]:
    return tuple(int(value) for value in values.reshape(-1))


def _all_inputs(inputs: list[Any], _: dict[str, Any]) -> Sequence[int]:
    """As many elements as the node reads."""
    return (sum(max(value.size, 1) for value in _given(inputs)),)


def _range(inputs: list[Any], _: dict[str, Any]) -> Sequence[int]:
    start, limit, step = (float(value.item()) for value in inputs)
    return (max(0, math.ceil((limit - start) / step)),)


def _padded(inputs: list[Any], attributes: dict[str, Any]) -> Sequence[int]:
    extra = sum(map(abs, _whole(inputs[1]) if len(inputs) > 1 else attributes["pads"]))
    return [size + extra for size in inputs[0].shape]


def _gathered(inputs: list[Any], attributes: dict[str, Any]) -> Sequence[int]:
    data, indices = inputs
    axis = int(attributes.get("axis", 0))
    rest = [size for at, size in enumerate(data.shape) if at != axis % data.ndim]
    return (*indices.shape, *rest)


def _product(inputs: list[Any], attributes: dict[str, Any]) -> Sequence[int]:
    """Rows and columns of a matrix product, and a share of the products of each element."""
    first, second = inputs[:2]
    first = first.reshape(1, -1) if first.ndim == 1 else first
    second = second.reshape(-1, 1) if second.ndim == 1 else second
    rows, inner = first.shape[-2:][:: -1 if attributes.get("transA") else 1]
    columns = second.shape[-2 if attributes.get("transB") else -1]
    batch = np.broadcast_shapes(first.shape[:-2], second.shape[:-2])
    return (*batch, rows, columns, -(-inner // _PRODUCTS_OF_AN_ELEMENT))


_NO_MORE = (
    "Abs", "Acos", "Acosh", "ArgMax", "ArgMin", "Asin", "Asinh", "Atan", "Atanh", "BatchNormalization",
    "BitwiseNot", "Cast", "CastLike", "Ceil", "Celu", "Clip", "Compress", "Concat", "Cos", "Cosh",
    "CumSum", "DequantizeLinear", "Dropout", "Elu", "Erf", "Exp", "EyeLike", "Flatten", "Floor",
    "HardSigmoid", "HardSwish", "IsInf", "IsNaN", "LayerNormalization", "LeakyRelu",
    "Log", "LogSoftmax", "Neg", "Not", "QuantizeLinear", "Reciprocal", "ReduceL1",
    "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd",
    "ReduceSum", "ReduceSumSquare", "Relu", "Reshape", "Round", "Selu",
    "Sigmoid", "Sign", "Sin", "Sinh", "Slice", "Softmax", "Softplus", "Softsign",
    "Split", "Sqrt", "Squeeze", "Tan", "Tanh", "ThresholdedRelu", "TopK", "Transpose", "Trilu",
    "Unsqueeze",
)  # fmt: skip
_BROADCASTING = (
    "Add", "And", "BitShift", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Div", "Equal", "Greater",
    "GreaterOrEqual", "Less", "LessOrEqual", "Max", "Mean", "Min", "Mod", "Mul", "Or", "PRelu", "Pow", "Sub",
    "Sum", "Where", "Xor",
)  # fmt: skip
_LOOPING = ("GatherElements", "ScatterElements", "ScatterND")
_BOUNDS: dict[str, _Bound] = {
    **dict.fromkeys(("Constant", *_NO_MORE), _all_inputs),
    **dict.fromkeys(_BROADCASTING, lambda inputs, _: np.broadcast_shapes(*map(np.shape, _given(inputs)))),
    **dict.fromkeys(_LOOPING, lambda inputs, given: (*_all_inputs(inputs, given), _LOOPED)),
    **dict.fromkeys(("Gemm", "MatMul"), _product),
    **dict.fromkeys(("Shape", "Size"), lambda inputs, _: (max(1, inputs[0].ndim),)),
    "ConstantOfShape": lambda inputs, _: _whole(inputs[0]),
    "Expand": lambda inputs, _: np.broadcast_shapes(inputs[0].shape, _whole(inputs[1])),
    "Gather": _gathered,
    "NonZero": lambda inputs, _: (inputs[0].size, max(1, inputs[0].ndim)),  # an index for each axis
    "OneHot": lambda inputs, _: (inputs[0].size, int(inputs[1].item())),
    "Pad": _padded,
    "Range": _range,
    "Tile": lambda inputs, _: (inputs[0].size, *_whole(inputs[1])),
    "Unique": lambda inputs, _: (inputs[0].size, 4),  # values, and three outputs of indices and counts
}
"""The operators that are computed."""

_MIN_OPSET = 7
MOST_NUMBERS = 64
"""Whole numbers in a tensor that may be sizes, paddings or limits of slices."""
_BITS = {"INT2": 2, "UINT2": 2, "INT4": 4, "UINT4": 4, "FLOAT4E2M1": 4}
"""Types of which several elements share a byte."""


_UNNAMED = ("SimplifiedLayerNormalization",)
"""Operators of onnxruntime that have no domain in files."""


def load_onnx(path: Path) -> Any:
    """Load and check an ONNX file, external weights included, functions inlined."""
    onnx = import_extra("onnx", "onnx")
    unreadable = "must be an ONNX model, but it is not one (or is damaged)"
    # protobuf's own classes differ between its versions
    with one_error(f"{unreadable}: {{line}}; {SUPPORTED}", Exception):
        model = onnx.load_model(str(path), load_external_data=False)
    if not model.graph.node and not model.graph.output:
        raise ModelError(f"{unreadable}: it holds no graph; {SUPPORTED}")
    beside = "keeps its weights in another file that cannot be read; put that file beside it: {line}"
    with one_error(beside, Exception):
        _load_external(onnx, model, path.parent)
    model = inline_functions(model)
    _name_domains(model)
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.SetInParent()  # The checker requires shapes; this reader does not.
    # ValidationError, or what Python makes of names that are not UTF-8
    with one_error("must be a valid ONNX model, but onnx's checker says: {line}", Exception):
        onnx.checker.check_model(model)
    opset = {item.domain: item.version for item in model.opset_import}.get("", 0)
    if opset and opset < _MIN_OPSET:
        raise ModelError(f"must use ONNX opset {_MIN_OPSET} or newer, not {opset}; {_newer(onnx, model)}")
    return model


def _name_domains(model: Any) -> None:
    """Give onnxruntime's operators that it writes among ONNX's the domain of its others: the checker knows
    none of them."""
    found = [each for each in model.graph.node if each.op_type in _UNNAMED and not each.domain]
    for each in found:
        each.domain = "com.microsoft"
    if found and all(item.domain != "com.microsoft" for item in model.opset_import):
        model.opset_import.add(domain="com.microsoft", version=1)


def _newer(onnx: Any, model: Any) -> str:
    """Advise how to get a newer opset: onnx's converter knows some operators only."""
    again = f"export it again with opset {_MIN_OPSET} or newer"
    try:
        converter = importlib.import_module("onnx.version_converter")
        onnx.checker.check_model(converter.convert_version(model, _MIN_OPSET))
    except Exception:  # of several kinds, from its C++ part
        return f"{again}: onnx's own converter cannot convert it"
    return f"{again}, or convert it with onnx.version_converter.convert_version(model, {_MIN_OPSET})"


def _load_external(onnx: Any, model: Any, folder: Path) -> None:
    """Load the tensors in other files, each with as many bytes as its shape and type have.

    All are counted before the first is read: a few bytes can name a large file many times.
    """
    helper = onnx.external_data_helper
    tensors = [each for each in helper._get_all_tensors(model) if helper.uses_external_data(each)]
    budget = Budget(ModelError)
    for tensor in tensors:
        budget.take(tensor.dims, f"tensor {tensor.name!r}")
        _set_length(tensor, _bytes(onnx, tensor))
    for tensor in tensors:
        if 0 in tensor.dims:  # A length of 0 may be read as no length.
            tensor.raw_data, tensor.data_location = b"", onnx.TensorProto.DEFAULT
            del tensor.external_data[:]
        else:
            helper.load_external_data_for_tensor(tensor, str(folder))


def _bytes(onnx: Any, tensor: Any) -> int:
    kind = onnx.TensorProto.DataType.Name(tensor.data_type)
    if kind in ("UNDEFINED", "STRING") or min(tensor.dims, default=0) < 0:
        raise ModelError(f"tensor {tensor.name!r} is damaged: {kind} of shape {list(tensor.dims)} in a file")
    bits = _BITS.get(kind) or 8 * onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
    return int(-(-math.prod(tensor.dims) * bits // 8))


def _set_length(tensor: Any, size: int) -> None:
    """Give a tensor's place in its file the length that follows from shape and type."""
    lengths = [entry.value for entry in tensor.external_data if entry.key == "length"]
    if any(length != str(size) for length in lengths):
        raise ModelError(
            f"tensor {tensor.name!r} must have the {size:,} bytes of its shape {tuple(tensor.dims)} in its "
            f"file, not length {lengths[0][:20]}; export the model again"
        )
    if not lengths:
        tensor.external_data.add(key="length", value=str(size))


def captured(node: Any) -> Iterator[str]:
    """Tensors of the graph around a node that the graphs inside it read."""
    for graph in subgraphs(node):
        local_names = {item.name for item in graph.initializer} | {item.name for item in graph.input}
        local_names |= {name for inner in graph.node for name in inner.output}
        read = [name for inner in graph.node for name in (*inner.input, *captured(inner))]
        read += [output.name for output in graph.output]
        yield from (name for name in read if name and name not in local_names)


class OnnxGraph(Wiring[Any]):
    """The top-level graph of a model."""

    constants: Constants

    def __init__(self, model: Any) -> None:
        self._onnx = import_extra("onnx", "onnx")
        self._model = model
        graph = model.graph
        self.nodes: list[Any] = list(graph.node)
        self.opset: int = {item.domain: item.version for item in model.opset_import}.get("", 1)
        self._initializers = {item.name: item for item in graph.initializer}
        sparse = {item.values.name for item in graph.sparse_initializer}
        if sparse:
            raise ModelError(f"sparse initializers are not supported: {listed(sparse)}; store them densely")
        self.inputs = [item.name for item in graph.input if item.name not in self._initializers]
        self.outputs = [item.name for item in graph.output]
        self.constants = Constants(model)
        self.budget = self.constants.budget
        self.integer_rows = IntegerRows()
        """The rows of integer weights, which nodes that have some of their own add."""
        self._shapes: dict[str, tuple[int | str, ...]] | None = None
        self._folded: dict[str, tuple[int | str, ...]] | None = None
        self._wire(lambda node: (*node.input, *captured(node)), lambda node: node.output)

    def dimensions(self, tensor: str) -> tuple[int | str, ...]:
        """Sizes of a tensor's axes, or their names in the model; empty if nothing is known."""
        if self._shapes is None:
            self._shapes = self._infer_shapes(self._model)
        return self._shapes.get(tensor, ())

    def folded_dimensions(self, tensor: str) -> tuple[int | str, ...]:
        """The same, found with the whole numbers that nodes compute of constants; slower."""
        found = self.dimensions(tensor)
        if found and all(isinstance(size, int) for size in found):
            return found
        if self._folded is None:
            self._folded = self._infer_shapes(self._with_numbers())
        return self._folded.get(tensor, ())

    def _with_numbers(self) -> Any:
        """The model with whole numbers, as Pad and Slice read them, in place of the nodes that give them."""
        model = self._onnx.ModelProto()
        model.CopyFrom(self._model)
        numbers = {}
        for name in dict.fromkeys(each for node in self.nodes for each in node.input):
            with contextlib.suppress(ModelError):
                made = name in self._producer and self.is_constant(name)
                value = self.constant(name) if made else None
                if value is not None and value.dtype.kind == "i" and value.size <= MOST_NUMBERS:
                    numbers[name] = value
        left = [node for node in model.graph.node if not numbers.keys() & set(node.output)]
        del model.graph.node[:]
        model.graph.node.extend(left)
        arrays = self._onnx.numpy_helper
        model.graph.initializer.extend(arrays.from_array(each, name) for name, each in numbers.items())
        return model

    def _infer_shapes(self, model: Any) -> dict[str, tuple[int | str, ...]]:
        try:
            graph = self._onnx.shape_inference.infer_shapes(model).graph
        except Exception:  # Shapes are optional: without them, sizes are unknown.
            graph = model.graph
        return {
            item.name: tuple(
                int(axis.dim_value) if axis.HasField("dim_value") else str(axis.dim_param)
                for axis in item.type.tensor_type.shape.dim
            )
            for item in (*graph.input, *graph.value_info, *graph.output)
        }

    def attributes(self, node: Any) -> dict[str, Any]:
        """A node's attributes as Python values, byte strings decoded."""
        values = {}
        for item in node.attribute:
            value = self._onnx.helper.get_attribute_value(item)
            if isinstance(value, bytes):
                value = value.decode(errors="replace")
            elif isinstance(value, list | tuple) and value and isinstance(value[0], bytes):
                value = [part.decode(errors="replace") for part in value]
            values[item.name] = value
        return values

    @staticmethod
    def label(node: Any) -> str:
        """A node's name, or the name of its first output where it has none."""
        return node.name or next(filter(None, node.output), "?")

    @staticmethod
    def operator(node: Any) -> str:
        """The name of a node's operator."""
        return name_of(node)

    @staticmethod
    def where(node: Any) -> str:
        """The text by which messages name a node."""
        return f"{kind_of(node)} node {OnnxGraph.label(node)!r}"
