"""Checks each node's tensors against its operator's definition, also constants and what is ignored.

The ``onnx`` package's own inference of shapes and types does it, node by node, where it looks at a tensor.
:data:`_SHAPES` has the shapes that it does not look at.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from rtlstm.gen.frontends.arrays import first_line, import_extra
from rtlstm.gen.frontends.onnx.node_graph import MOST_NUMBERS, OnnxGraph, name_of, subgraphs

_ONE: Final = "one"
"""A single number, with or without an axis."""
_RNN: Final = {
    "X": "T N I", "W": "D 1H I", "R": "D 1H H", "B": "D 2H", "sequence_lens": "N", "initial_h": "D N H",
}  # fmt: skip
_GRU: Final = _RNN | {"W": "D 3H I", "R": "D 3H H", "B": "D 6H"}
_LSTM: Final = _RNN | {
    "W": "D 4H I", "R": "D 4H H", "B": "D 8H", "initial_c": "D N H", "P": "D 3H",
}  # fmt: skip
_SHAPES: Final[Mapping[str, Mapping[str, str]]] = {
    "RNN": _RNN,
    "GRU": _GRU,
    "LSTM": _LSTM,
    "com.microsoft.DynamicQuantizeLSTM": _LSTM | {"W": "D I 4H", "R": "D H 4H"},
    "BatchNormalization": dict.fromkeys(("X", "scale", "B", "input_mean", "input_var"), "C")
    | {"X": "N C ..."},
    "Clip": {"input": "...", "min": _ONE, "max": _ONE},
    "Conv": {"X": "N C ...", "W": "M K ...", "B": "M"},
    "Dropout": {"data": "...", "ratio": _ONE, "training_mode": _ONE},
    "Pad": {"data": "...", "pads": "A", "constant_value": _ONE},
}  # fmt: skip
"""Shapes of an operator's inputs in their order, by the operator's name.

A letter is the same size wherever it stands in a node, ``4H`` four times as much; ``...`` are further axes.
"""


def find_undefined(graph: OnnxGraph, model: Any) -> str:
    """Say which node has a tensor of another shape or type than its operator's definition has.

    Empty if none has. Shapes and types follow from the model's inputs and constants; what the file notes of
    others is not used. All floating-point types count as the same: the core has formats of its own.
    """
    onnx = import_extra("onnx", "onnx")
    helper = onnx.helper
    opsets = {each.domain.replace("ai.onnx", ""): each.version for each in model.opset_import}
    types: dict[str, Any] = {}
    numbers: dict[str, Any] = {}

    def know(name: str, kind: Any) -> None:
        types[name] = _plain(onnx, kind)

    for item in model.graph.input:
        know(item.name, item.type)
    for tensor in model.graph.initializer:
        know(tensor.name, helper.make_tensor_type_proto(tensor.data_type, tensor.dims))
        _keep_numbers(onnx, tensor.name, tensor, numbers)
    for node in graph.nodes:
        names = [name for name in node.input if name]
        if wrong := wrong_shape(graph, node, lambda name: _shape(types.get(name))):
            return wrong
        if (
            node.domain not in ("", "ai.onnx")
            or any(subgraphs(node))
            or not all(name in types for name in names)
        ):
            continue
        value = next((item.t for item in node.attribute if item.name == "value"), None)
        if node.op_type == "Constant" and value is not None:
            _keep_numbers(onnx, node.output[0], value, numbers)
        known = {name: types[name] for name in names}
        data = {name: numbers[name] for name in names if name in numbers}
        try:
            schema = onnx.defs.get_schema(node.op_type, opsets.get("", 1), "")
            given = onnx.shape_inference.infer_node_outputs(
                schema, node, known, data, opset_imports=list(model.opset_import)
            )
        except (onnx.shape_inference.InferenceError, onnx.checker.ValidationError) as error:
            text = re.sub(r"^(\[\w+\]\s*)+", "", first_line(error))
            return f"{graph.where(node)} is not as ONNX defines it: {text}; export the model again"
        except Exception:  # of the package's parts in C++: then nothing is known of what the node gives
            given = {}
        for name, kind in given.items():
            know(name, kind)
    return ""


def _plain(onnx: Any, kind: Any) -> Any:
    """A type with 32 bits in place of another floating-point type's."""
    types = onnx.TensorProto
    if kind.tensor_type.elem_type not in (types.FLOAT16, types.BFLOAT16, types.DOUBLE):
        return kind
    plain = onnx.TypeProto()
    plain.CopyFrom(kind)
    plain.tensor_type.elem_type = types.FLOAT
    return plain


def _keep_numbers(onnx: Any, name: str, tensor: Any, numbers: dict[str, Any]) -> None:
    kinds = (onnx.TensorProto.INT64, onnx.TensorProto.INT32)
    if tensor.data_type in kinds and len(tensor.dims) < 2 and sum(tensor.dims) <= MOST_NUMBERS:
        numbers[name] = tensor


def wrong_shape(graph: OnnxGraph, node: Any, shape_of: Callable[[str], Sequence[int | None] | None]) -> str:
    """Say which tensor of a node has another shape than :data:`_SHAPES` has, where one is known."""
    shapes = _SHAPES.get(name_of(node), {})
    attributes = graph.attributes(node)
    sizes = {"D": 2 if attributes.get("direction") == "bidirectional" else 1}
    if isinstance(attributes.get("hidden_size"), int):
        sizes["H"] = attributes["hidden_size"]
    tensors = dict(zip(shapes, node.input, strict=False))
    # Weights and constants tell sizes first: an input that differs from them is the one to name.
    for what, name in sorted(tensors.items(), key=lambda pair: not graph.is_constant(pair[1])):
        shape = shape_of(name) if name else None
        if shape is None:
            continue
        wanted = shapes[what].split()
        if attributes.get("layout", 0) and what in ("X", "initial_h", "initial_c"):
            wanted[0], wanted[1] = wanted[1], wanted[0]
        if not _fits(wanted, shape, sizes):
            text = "one number" if wanted == [_ONE] else f"shape {_written(wanted, sizes)}"
            given = ", ".join("?" if size is None else str(size) for size in shape)
            return (
                f"{graph.where(node)}: input {what} ({name!r}) must have {text}, not "
                f"({given}{',' * (len(shape) == 1)}); the model is damaged{_advice(node, what)}"
            )
    return ""


def _advice(node: Any, what: str) -> str:
    if node.op_type != "LSTM" or what not in ("initial_h", "initial_c"):
        return ""
    return ", or PyTorch's exporter has left out its proj_size: then give the module itself, or a .pt2 file"


def _shape(kind: Any) -> list[int | None] | None:
    """Sizes of a tensor's axes, None where one is not known; None if their number is not."""
    if kind is None or not kind.tensor_type.HasField("shape"):
        return None
    return [
        axis.dim_value if axis.HasField("dim_value") and axis.dim_value >= 0 else None
        for axis in kind.tensor_type.shape.dim
    ]


def _fits(wanted: list[str], shape: Sequence[int | None], sizes: dict[str, int]) -> bool:
    """Whether a shape is the wanted one; sizes that it tells are added."""
    if wanted == [_ONE]:
        return len(shape) < 2 and set(shape) <= {1, None}
    open_end = wanted[-1] == "..."
    terms = [(int(term[:-1] or 1), term[-1]) for term in wanted[: len(wanted) - open_end]]
    if len(shape) < len(terms) or (len(shape) > len(terms) and not open_end):
        return False
    known = [(*term, size) for term, size in zip(terms, shape, strict=False) if size is not None]
    # All are looked at: those that fit tell the message what the others must be.
    wrong = [size for times, name, size in known if size != times * sizes.setdefault(name, size // times)]
    return not wrong


def _written(wanted: list[str], sizes: Mapping[str, int]) -> str:
    parts = [str(int(term[:-1] or 1) * sizes[term[-1]]) if term[-1] in sizes else term for term in wanted]
    return f"({', '.join(parts)}{',' * (len(parts) == 1)})"
