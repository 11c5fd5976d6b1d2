"""An ONNX file as a graph: loading, constants, producers and consumers."""

import contextlib
import importlib
import math
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from rtlstm.gen.frontends.arrays import first_line, import_extra, listed
from rtlstm.gen.frontends.integer_weights import IntegerRows
from rtlstm.gen.frontends.onnx.constants import Constants, inline_functions, subgraphs
from rtlstm.spec.budget import Budget
from rtlstm.spec.errors import ModelError

__all__ = ["OnnxGraph", "captured", "load_onnx", "subgraphs"]

_MIN_OPSET = 7
_MOST_NUMBERS = 64
"""Whole numbers in a tensor that may be sizes, paddings or limits of slices."""
_BITS = {"INT2": 2, "UINT2": 2, "INT4": 4, "UINT4": 4, "FLOAT4E2M1": 4}
"""Types of which several elements share a byte."""


def load_onnx(path: Path) -> Any:
    """Load and check an ONNX file, external weights included, functions inlined."""
    onnx = import_extra("onnx", "onnx")
    unreadable = "must be an ONNX model, but it is not one (or is damaged)"
    try:
        model = onnx.load_model(str(path), load_external_data=False)
    except Exception as error:  # protobuf's own classes differ between its versions
        raise ModelError(f"{unreadable}: {first_line(error)}") from None
    if not model.graph.node and not model.graph.output:
        raise ModelError(f"{unreadable}: it holds no graph")
    try:
        _load_external(onnx, model, path.parent)
    except ModelError:
        raise
    except Exception as error:
        raise ModelError(
            "keeps its weights in another file that cannot be read; put that file beside it: "
            f"{first_line(error)}"
        ) from None
    model = inline_functions(model)
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.SetInParent()  # The checker requires shapes; this reader does not.
    try:
        onnx.checker.check_model(model)
    except Exception as error:  # ValidationError, or what Python makes of names that are not UTF-8
        text = first_line(error)
        raise ModelError(f"must be a valid ONNX model, but onnx's checker says: {text}") from None
    opset = {item.domain: item.version for item in model.opset_import}.get("", 0)
    if opset and opset < _MIN_OPSET:
        raise ModelError(f"must use ONNX opset {_MIN_OPSET} or newer, not {opset}; {_newer(onnx, model)}")
    return model


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
        yield from (name for name in read if name not in local_names)


class OnnxGraph:
    """The top-level graph of a model."""

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
        self._producer: dict[str, int] = {}
        self._consumers: dict[str, list[int]] = {}
        self.constants = Constants(model)
        self.budget = self.constants.budget
        self.integer_rows = IntegerRows()
        """The rows of integer weights, which nodes that have some of their own add."""
        self._shapes: dict[str, tuple[int | str, ...]] | None = None
        self._folded: dict[str, tuple[int | str, ...]] | None = None
        for index, node in enumerate(self.nodes):
            for name in filter(None, node.output):
                self._producer[name] = index
            for name in dict.fromkeys(filter(None, (*node.input, *captured(node)))):
                self._consumers.setdefault(name, []).append(index)

    def producer(self, tensor: str) -> Any | None:
        """The node that gives a tensor, or None for an input or initializer."""
        index = self._producer.get(tensor)
        return None if index is None else self.nodes[index]

    def index_of(self, tensor: str) -> int:
        """Index of the node that gives a tensor; -1 for an input or initializer."""
        return self._producer.get(tensor, -1)

    def consumers(self, tensor: str) -> list[int]:
        """Indices of the nodes that read a tensor."""
        return self._consumers.get(tensor, [])

    def ancestors(self, tensors: Iterable[str]) -> set[int]:
        """Indices of all nodes that the tensors depend on."""
        found: set[int] = set()
        open_tensors = list(tensors)
        while open_tensors:
            index = self._producer.get(open_tensors.pop())
            if index is not None and index not in found:
                found.add(index)
                node = self.nodes[index]
                open_tensors.extend(name for name in (*node.input, *captured(node)) if name)
        return found

    def descendants(self, nodes: Collection[int]) -> set[int]:
        """Indices of all nodes that depend on nodes, which are given by their indices."""
        found: set[int] = set()
        for index, node in enumerate(self.nodes):  # the checker has seen that they stand in order
            read = {self.index_of(name) for name in (*node.input, *captured(node))}
            if not read.isdisjoint(found) or any(position in nodes for position in read):
                found.add(index)
        return found

    def shape(self, tensor: str) -> tuple[int | None, ...]:
        """Sizes of a tensor's axes, None where one is not known; empty if nothing is known."""
        return tuple(size if isinstance(size, int) else None for size in self.dimensions(tensor))

    def dimensions(self, tensor: str) -> tuple[int | str, ...]:
        """The same with the name that the model gives to a size; empty text where one has none."""
        if self._shapes is None:
            self._shapes = self._infer_shapes(self._model)
        return self._shapes.get(tensor, ())

    def folded_shape(self, tensor: str) -> tuple[int | None, ...]:
        """The same as ``shape``, found with the whole numbers that nodes compute of constants; slower."""
        found = self.shape(tensor)
        if found and None not in found:
            return found
        if self._folded is None:
            self._folded = self._infer_shapes(self._with_numbers())
        return tuple(size if isinstance(size, int) else None for size in self._folded.get(tensor, ()))

    def _with_numbers(self) -> Any:
        """The model with whole numbers, as Pad and Slice read them, in place of the nodes that give them."""
        model = self._onnx.ModelProto()
        model.CopyFrom(self._model)
        numbers = {}
        for name in dict.fromkeys(each for node in self.nodes for each in node.input):
            with contextlib.suppress(ModelError):
                made = name in self._producer and self.is_constant(name)
                value = self.constant(name) if made else None
                if value is not None and value.dtype.kind == "i" and value.size <= _MOST_NUMBERS:
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

    def array(self, proto: Any) -> Any:
        """A tensor message as an array."""
        return self.constants.array(proto)

    def is_constant(self, tensor: str) -> bool:
        """Whether a tensor does not depend on the model's inputs; nothing is computed for this."""
        return tensor in self.constants

    def constant(self, tensor: str) -> Any | None:
        """The value of a tensor that does not depend on the model's inputs, or None.

        Raises
        ------
        ModelError
            If it cannot be computed.
        """
        return self.constants.get(tensor)

    def origin(self, tensor: str) -> str:
        """Say where a tensor comes from that is not constant, as the end of a sentence."""
        node = self.producer(tensor)
        return (
            "it is an input of the model" if node is None else f"{self.where(node)} computes it of the input"
        )

    def integers(self, tensor: str) -> list[int] | None:
        """The value of a constant integer tensor as a flat list, or None."""
        value = self.constant(tensor)
        return None if value is None else [int(item) for item in np.asarray(value).reshape(-1)]

    @staticmethod
    def label(node: Any) -> str:
        """A node's name, or the name of its first output where it has none."""
        return node.name or next(filter(None, node.output), "?")

    @classmethod
    def where(cls, node: Any) -> str:
        """Return the text by which messages name a node."""
        return f"{node.op_type} node {cls.label(node)!r}"
