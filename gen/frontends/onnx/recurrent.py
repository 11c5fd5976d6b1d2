"""Checks ONNX nodes against their operators' definitions, and reads LSTM, GRU, RNN and Scan nodes.

The ``onnx`` package's own inference of shapes and types checks tensors, also constants and what is ignored,
node by node, where it looks at them. :data:`_SHAPES` has the shapes that it does not look at. Every attribute
and input of a recurrent node is supported, or an error names it.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from rtlstm.gen.frontends.arrays import (
    CellKind,
    Floats,
    first_line,
    import_extra,
    reorder,
    stacked_layer,
    to_float64,
)
from rtlstm.gen.frontends.forms import Forms
from rtlstm.gen.frontends.graph import Graph, Node, Recurrent
from rtlstm.gen.frontends.loops import Loop, final_states, lifted
from rtlstm.gen.frontends.onnx.node_graph import (
    MOST_NUMBERS,
    OnnxGraph,
    captured,
    kind_of,
    name_of,
    subgraphs,
)
from rtlstm.spec.activations.functions import ACTIVATIONS, ActivationFunction, FunctionName, functions
from rtlstm.spec.errors import ModelError
from rtlstm.spec.network import Bidirectional, Gru, Lstm, Rnn

_ONE: Final = "one"
"""A single number, with or without an axis."""
_RNN_SHAPES: Final = {
    "X": "T N I", "W": "D 1H I", "R": "D 1H H", "B": "D 2H", "sequence_lens": "N", "initial_h": "D N H",
}  # fmt: skip
_GRU_SHAPES: Final = _RNN_SHAPES | {"W": "D 3H I", "R": "D 3H H", "B": "D 6H"}
_LSTM_SHAPES: Final = _RNN_SHAPES | {
    "W": "D 4H I", "R": "D 4H H", "B": "D 8H", "initial_c": "D N H", "P": "D 3H",
}  # fmt: skip
_SHAPES: Final[Mapping[str, Mapping[str, str]]] = {
    "RNN": _RNN_SHAPES,
    "GRU": _GRU_SHAPES,
    "LSTM": _LSTM_SHAPES,
    "com.microsoft.DynamicQuantizeLSTM": _LSTM_SHAPES | {"W": "D I 4H", "R": "D H 4H"},
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
        foreign = node.domain not in ("", "ai.onnx")
        if foreign or any(subgraphs(node)) or not all(name in types for name in names):
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


def operator_functions() -> dict[str, FunctionName]:
    """The functions that are operators, too, by the operators' names."""
    return {key: name for key, name in functions("onnx").items() if ACTIVATIONS[name].onnx_operator}


def functions_of(operator: str) -> list[FunctionName]:
    """Return the functions that are registered for this operator, of variants one; there should be one."""
    found: list[FunctionName] = []
    for name, each in ACTIVATIONS.items():
        variant = any(each.is_variant(ACTIVATIONS[other]) for other in found)
        if each.onnx == operator and each.onnx_operator and not variant:
            found.append(name)
    return found


def read_functions(
    attributes: dict[str, Any], defaults: Sequence[str], directions: int, problems: list[str]
) -> list[tuple[ActivationFunction, ...]]:
    """Return each direction's functions; reasons for a refusal are added to ``problems``.

    ONNX assigns ``activation_alpha`` and ``activation_beta`` in order to the functions that have such a
    parameter. When they are used up, the operator of that name gives the default. Affine and ScaledTanh are
    not operators, so they have none.
    """
    given = [str(name) for name in attributes.get("activations") or [*defaults] * directions]
    offered = functions("onnx")
    known = {operator.lower(): name for operator, name in offered.items()}
    names = [known.get(name.lower(), "") for name in given]
    if not all(names):
        problems.append(f"attribute activations={given} must be of {', '.join(sorted(offered))}")
        return []
    if len(names) != len(defaults) * directions:
        problems.append(
            f"attribute activations={given} must hold {len(defaults)} for each of {directions} directions"
        )
        return []
    alphas = _hand_out("activation_alpha", attributes, names, 0, problems)
    betas = _hand_out("activation_beta", attributes, names, 1, problems)
    found = [ActivationFunction.of(*each) for each in zip(names, alphas, betas, strict=True)]
    count = len(defaults)
    return [tuple(found[at * count : (at + 1) * count]) for at in range(directions)]


def _hand_out(
    attribute: str, attributes: dict[str, Any], names: list[FunctionName], which: int, problems: list[str]
) -> list[float | None]:
    """Parameter ``which`` (alpha, beta) of each function, None for its default."""
    values = [float(value) for value in attributes.get(attribute) or ()]
    definitions = [ACTIVATIONS[name] for name in names]
    taking = [function for function in definitions if len(function.defaults) > which]
    if len(values) > len(taking):
        takers = ", ".join(function.onnx for function in taking)
        problems.append(
            f"attribute {attribute}={[round(value, 6) for value in values]} must hold one value for each of "
            f"the functions that take one, which are {takers or 'none'}"
        )
    missing = [function.onnx for function in taking[len(values) :] if not function.onnx_operator]
    if missing:
        problems.append(f"attribute {attribute} must be given for {missing[0]}, which has no default")
    waiting = iter(values)
    return [next(waiting, None) if len(each.defaults) > which else None for each in definitions]


@dataclass(frozen=True)
class _Kind:
    cell: CellKind
    functions: tuple[str, ...]
    extra_attributes: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ("X", "W", "R", "B", "sequence_lens", "initial_h")


_LSTM_INPUTS: Final = ("X", "W", "R", "B", "sequence_lens", "initial_h", "initial_c", "P")
_LSTM: Final = _Kind("lstm", ("Sigmoid", "Tanh", "Tanh"), ("input_forget",), _LSTM_INPUTS)
_SCALES: Final = ("W_scale", "W_zero_point", "R_scale", "R_zero_point")
_KINDS: Final[dict[str, _Kind]] = {
    "LSTM": _LSTM,
    "GRU": _Kind("gru", ("Sigmoid", "Tanh"), ("linear_before_reset",)),
    "RNN": _Kind("rnn", ("Tanh",)),
    "com.microsoft.DynamicQuantizeLSTM": _Kind(
        "lstm", _LSTM.functions, _LSTM.extra_attributes, (*_LSTM_INPUTS, *_SCALES)
    ),
}
RECURRENT: Final = tuple(_KINDS)
"""The recurrent operators, of another domain than ONNX's with the domain."""
_DIRECTIONS: Final = {"forward": 1, "reverse": 1, "bidirectional": 2}
_KNOWN: Final = (
    "activation_alpha", "activation_beta", "activations", "clip", "direction", "hidden_size", "layout",
)  # fmt: skip


def is_recurrent(node: Any) -> bool:
    """Whether it is one of the nodes that :class:`RecurrentNode` reads."""
    return name_of(node) in _KINDS


class RecurrentNode:
    """One recurrent node, its attributes and inputs by name, and what has been found out."""

    def __init__(self, graph: OnnxGraph, node: Any) -> None:
        self.graph, self.node, self.kind = graph, node, _KINDS[name_of(node)]
        self.name, self.where = graph.label(node), graph.where(node)
        self.attributes = graph.attributes(node)
        self.inputs = {name: each for name, each in zip(self.kind.inputs, node.input, strict=False) if each}
        self.notes: list[str] = []

    def read(self) -> Recurrent:
        """Read the node, or say all that stands against it."""
        direction = self.attributes.get("direction", "forward")
        directions = _DIRECTIONS.get(direction, 1)
        problems = self._attribute_problems()
        functions = read_functions(self.attributes, self.kind.functions, directions, problems)
        if problems:
            raise ModelError(f"{self.where}: " + "; ".join(problems))
        arrays = self._arrays(directions)
        layers = [
            self._layer(arrays, at, functions[at], reverse=direction == "reverse" or at == 1)
            for at in range(directions)
        ]
        layer: Any = layers[0]
        if directions == 2:
            layer = Bidirectional(name=self.name, forward=layers[0], backward=layers[1])
        return Recurrent((layer,), tuple(f"{self.where}: {note}" for note in self.notes))

    def _attribute_problems(self) -> list[str]:
        attributes = self.attributes
        problems = []
        direction = attributes.get("direction", "forward")
        if direction not in _DIRECTIONS:
            problems.append(f"attribute direction={direction!r} must be one of {', '.join(_DIRECTIONS)}")
        if not attributes.get("clip", 1.0) > 0.0:
            problems.append(f"attribute clip={attributes['clip']:g} must be above 0")
        for name in ("input_forget", "layout", "linear_before_reset"):
            if attributes.get(name, 0) not in (0, 1):
                problems.append(f"attribute {name}={attributes[name]} must be 0 or 1")
        unknown = set(attributes) - {*_KNOWN, *self.kind.extra_attributes}
        return problems + [f"attribute {name!r} is not known" for name in sorted(unknown)]

    # Weights

    def _constant(self, name: str) -> Any:
        if name not in self.inputs:
            raise ModelError(f"{self.where}: input {name} must be given, but is absent; the model is damaged")
        value = self.graph.constant(self.inputs[name])
        if value is None:
            raise ModelError(
                f"{self._what(name)} must be constant, but {self.graph.origin(self.inputs[name])}; export "
                "the model with its weights inside"
            )
        return value

    def _weight(self, name: str) -> Floats:
        value = self._constant(name)
        if f"{name}_scale" in self.kind.inputs:
            return self._dequantised(name, value)
        return to_float64(value, self._what(name))

    def _what(self, name: str) -> str:
        return f"{self.where}: input {name} ({self.inputs[name]!r})"

    def _dequantised(self, name: str, value: Any) -> Floats:
        """``(directions, columns, rows)`` of whole numbers, with a scale and a zero point for each of the
        rows or for all, as ``(directions, rows, columns)``.
        """
        self.notes.append("its weights were quantised once already, by the tool that wrote the model")
        if value.ndim != 3 or value.dtype.kind not in "iu":
            raise ModelError(
                f"{self._what(name)} must be whole numbers with 3 axes, not {value.dtype} {value.shape}"
            )
        directions, _, rows = value.shape
        result: Floats = value.astype(np.float64)
        scale = to_float64(self._constant(f"{name}_scale"), self._what(f"{name}_scale"))
        zero = self._constant(f"{name}_zero_point").astype(np.float64)
        for what, array in ((f"{name}_scale", scale), (f"{name}_zero_point", zero)):
            if array.shape not in ((directions,), (directions, rows)):
                raise ModelError(
                    f"{self._what(what)} must have shape ({directions},) or ({directions}, {rows}), "
                    f"not {array.shape}"
                )
        scale, zero = (array.reshape(directions, 1, -1) for array in (scale, zero))
        result = (result - zero) * scale
        steps, bits = np.broadcast_to(np.abs(scale), result.shape), 8 * value.dtype.itemsize
        self.graph.integer_rows.add(self.inputs[name], result, steps, bits, bool(zero.any()))
        return np.asarray(result.transpose(0, 2, 1))

    def _arrays(self, directions: int) -> dict[str, Floats]:
        """W, R, B and, if given, P, of the right shapes."""
        w, r = self._weight("W"), self._weight("R")
        if wrong := wrong_shape(self.graph, self.node, self._shape):
            raise ModelError(wrong)
        if 0 in w.shape:
            raise ModelError(f"{self._what('W')} must have inputs and units, not shape {w.shape}")
        given = {
            name: to_float64(self._constant(name), self._what(name)) for name in "BP" if name in self.inputs
        }
        return {"W": w, "R": r, "B": np.zeros((directions, 2 * w.shape[1])), **given}

    def _shape(self, tensor: str) -> tuple[int, ...] | None:
        """The shape of a weight; that of states and lengths depends on the input."""
        weights = [self.inputs.get(name) for name in ("W", "R", "B", "P")]
        value = self.graph.constant(tensor) if tensor in weights else None
        return None if value is None else value.shape

    def _layer(
        self, arrays: dict[str, Floats], at: int, functions: tuple[ActivationFunction, ...], reverse: bool
    ) -> Lstm | Gru | Rnn:
        """One direction's layer."""
        cell = self.kind.cell
        clip = float(self.attributes.get("clip", math.inf))
        given: dict[str, Any] = {"reverse": reverse, "clip": clip if math.isfinite(clip) else None}
        if cell == "gru":
            given["reset_after"] = bool(self.attributes.get("linear_before_reset", 0))
        if cell == "lstm":
            given["coupled"] = bool(self.attributes.get("input_forget", 0))
            given["peephole"] = reorder(arrays["P"][at], "onnx", "peephole") if "P" in arrays else None
        weights = (arrays["W"][at], arrays["R"][at], *np.split(arrays["B"][at], 2))
        name = f"{self.name}_reverse" if at else self.name
        return stacked_layer("onnx", cell, name, weights, functions, **given)


_MIN_OPSET: Final = 9
MAX_SCANS: Final = 64
"""Largest number of Scan nodes: the constants around them are copied into each."""


class Scan:
    """One node and its body, whose inputs are the states and x, and which ``translate`` reads.

    It and :meth:`nodes` raise a ModelError or ConfigurationError if it is no cell; the message names the node
    that has no place in one.
    """

    def __init__(self, graph: OnnxGraph, node: Any, translate: Callable[[OnnxGraph], Graph]) -> None:
        self._onnx = import_extra("onnx", "onnx")
        self.graph, self.node, self.label = graph, node, graph.label(node)
        self.attributes = graph.attributes(node)
        if graph.opset < _MIN_OPSET:
            raise ModelError(
                f"opset {graph.opset} has another Scan; convert the model to {_MIN_OPSET} or newer"
            )
        body = self._body(graph, self.attributes["body"])
        self.body = translate(OnnxGraph(body))
        names = [item.name for item in body.graph.input]
        count = len(node.input) - int(self.attributes["num_scan_inputs"])
        if not 0 <= count < len(names) == len(node.input):
            raise ModelError("it must go through a tensor, and have a value for each input of its body")
        self.states, self.xs = names[:count], dict(zip(names[count:], node.input[count:], strict=True))
        self.given = [item.name for item in body.graph.output]
        for name in filter(graph.is_constant, self.xs.values()):
            raise ModelError(
                f"it goes through the constant {name!r}, but the core computes the same in every step: give "
                "what differs as a feature of x"
            )
        if not self.states:
            raise ModelError("it must have a state, but has none; give the module whole tensors instead")
        self.axis, self.backward = self._direction()

    def _body(self, graph: OnnxGraph, found: Any) -> Any:
        """The body as a model, with the constants of the graph around it."""
        body = self._onnx.GraphProto()
        body.CopyFrom(found)
        for name in dict.fromkeys(captured(self.node)):
            value = graph.constant(name)
            if value is None:
                raise ModelError(
                    f"its body reads {name!r} of the graph around it, which must be constant, or a step of "
                    "what it goes over"
                )
            body.initializer.append(self._onnx.numpy_helper.from_array(value, name))
        for item in body.input:
            if not item.type.HasField("tensor_type"):
                item.type.tensor_type.elem_type = self._onnx.TensorProto.FLOAT
        opset = self._onnx.helper.make_opsetid("", graph.opset)
        return self._onnx.helper.make_model(body, opset_imports=[opset])

    def _direction(self) -> tuple[int, bool]:
        """The axis of steps, and whether they are read and given from their end."""
        outputs = len(self.given) - len(self.states)
        given = {name: self.attributes.get(f"scan_{name}", []) for name in (
            "input_axes", "output_axes", "input_directions", "output_directions"
        )}  # fmt: skip
        counts = dict.fromkeys(("input_axes", "input_directions"), len(self.xs))
        full = {name: values or [0] * counts.get(name, outputs) for name, values in given.items()}
        axes = {*full["input_axes"], *full["output_axes"]}
        directions = {*full["input_directions"], *full["output_directions"]}
        if len(axes) != 1 or not axes <= {0, 1} or len(directions) != 1:
            raise ModelError(
                "its inputs and outputs must have their steps on the same axis, 0 or 1, and in the same "
                f"direction, not {', '.join(f'scan_{name}={values}' for name, values in full.items())}"
            )
        return int(axes.pop()), bool(directions.pop())

    # The nodes

    def nodes(self) -> list[Node]:
        """The nodes on whole sequences; the graph gets the constants that they read."""
        given, count = list(self.node.output), len(self.states)
        scan = Node("recurrent", (), (), self.label, kind_of(self.node), noun=" node")
        last = [
            new for new, outer in zip(self.given, given[:count], strict=False) if self.graph.consumers(outer)
        ]
        body = replace(self.body, outputs=list(dict.fromkeys([*self.given[count:], *last])))
        states = dict(zip(self.states, self.given, strict=False))
        forms = Forms(body, states)
        begins = {
            name: self._begin(outer, forms.width(name))
            for name, outer in zip(self.states, self.node.input, strict=False)
        }
        loop = Loop(body, self.xs, states, begins, self.axis, self.backward, scan)
        nodes, names, _ = lifted(loop, body, f"{self.label}/")
        behind = {new: body.behind(new, "identity", "squeeze", "unsqueeze") for new in self.given}
        names |= {new: names[old] for new, old in behind.items() if old in names}
        finals = {
            new: "" if new in last else outer for new, outer in zip(self.given, given[:count], strict=False)
        }
        nodes = [*final_states(nodes, names, finals)]
        for at, (inner, outer) in enumerate(zip(self.given, given, strict=True)):
            if outer and (at >= count or inner in last):
                how = {} if at >= count else {"axis": self.axis, "index": 0 if self.backward else -1}
                operator, label = "select" if how else "identity", f"{self.label}/{outer}"
                nodes.append(Node(operator, (names[inner],), (outer,), label, "Identity", how, noun=" node",
                                  hidden=True))  # fmt: skip
        read = {name for node in nodes for name in node.inputs if name and body.is_constant(name)}
        add = self.graph.constants.add
        renamed = {name: add(f"{self.label}/{name}", body.constant(name)) for name in read}
        return [node.reading(renamed) for node in nodes]

    def _begin(self, outer: str, width: int) -> str:
        """The tensor in which a state of so many values begins; empty for zeros."""
        value = self.graph.constant(outer)
        if value is not None and width and value.shape[-1:] != (width,):
            raise ModelError(
                f"its initial_h {outer!r} must have the {width} values of its state, not shape {value.shape}"
            )
        maker = self.graph.producer(self.graph.behind(outer, "Cast", "Expand", "Identity"))
        if value is None and maker is not None and name_of(maker) == "ConstantOfShape":
            given = self.graph.attributes(maker)
            value = self.graph.constants.array(given["value"]) if "value" in given else np.zeros(1)
        return "" if value is not None and not np.any(value) else outer
