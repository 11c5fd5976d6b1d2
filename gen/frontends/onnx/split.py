"""Splits an ONNX model: what stands in front of the core and behind it become models of their own."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from rtlstm.gen.frontends.arrays import first_line, fresh, import_extra, listed
from rtlstm.gen.frontends.onnx.node_graph import OnnxGraph, captured, load_onnx
from rtlstm.gen.frontends.onnx.recurrent import is_recurrent
from rtlstm.gen.frontends.onnx.translate import take_branches
from rtlstm.gen.frontends.reading import ReadOptions, ReadResult
from rtlstm.gen.frontends.split import Cut, between, divide, find_cut, in_front, last_of
from rtlstm.spec.errors import InputError, ModelError

_AXES_AS_INPUT = 13
"""The opset from which Unsqueeze reads its axes."""


@dataclass(frozen=True, eq=False)
class OnnxSplit:
    """A divided model: ``read`` has the network of the core; a part is None if nothing stands there."""

    front: Any
    read: ReadResult
    back: Any
    core: Mapping[str, str]
    """The tensors of ``front``, or the inputs of the model, that are the arguments of a run: x, h and c."""
    sequences_first: bool

    def cores(self, calls: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Return the arguments of the core's runs for inputs of the model by name.

        Raises InputError if inputs are missing, or the part in front cannot compute with them.
        """
        run = (lambda given: given) if self.front is None else _runner(self.front)
        found = []
        for call in calls:
            given = run(call)
            x, *states = (np.asarray(given[name], np.float32) for name in self.core.values())
            core: dict[str, Any] = {"x": x, "batch_first": self.sequences_first}
            if states:
                core["state"] = tuple(map(tuple, (states[0], states[1] if len(states) > 1 else ())))
            found.append(core)
        return found


def inputs_by_name(path: Path, x: Any) -> list[dict[str, Any]]:
    """Return the calls that ``x`` stands for: an array, a tuple, a dictionary, or a list of these.

    Raises InputError if there are more or other inputs than the model has.
    """
    graph = OnnxGraph(load_onnx(path))
    calls = []
    for each in x if isinstance(x, list) else [x]:
        named = each if isinstance(each, dict) else dict(
            zip(graph.inputs, each if isinstance(each, tuple) else (each,), strict=False)
        )  # fmt: skip
        count = len(each) if isinstance(each, dict | tuple) else 1
        if count > len(graph.inputs) or not set(named) <= set(graph.inputs):
            what = listed(named) if count == len(named) else count
            raise InputError(
                f"x must have inputs of the model, which are {', '.join(map(repr, graph.inputs))}: one, a "
                f"tuple of them or a dictionary by name, not {what}"
            )
        calls.append({name: np.asarray(value) for name, value in named.items()})
    if not calls:
        raise InputError("x must have the inputs of at least one call, but is an empty list")
    return calls


def _runner(model: Any) -> Any:
    """A function that computes a model's outputs, by onnxruntime if it is installed, else by onnx itself."""
    types = {item.name: item.type.tensor_type.elem_type for item in model.graph.input}
    names = [item.name for item in model.graph.output]
    onnx = import_extra("onnx", "onnx")
    session: Any
    try:
        session = import_module("onnxruntime").InferenceSession(model.SerializeToString())
    except ImportError:
        session = import_module("onnx.reference").ReferenceEvaluator(model)

    def run(given: Mapping[str, Any]) -> dict[str, Any]:
        missing = [name for name in types if name not in given]
        if missing:
            raise InputError(
                f"x must have what the part in front of the core reads, but {', '.join(map(repr, missing))} "
                "is missing: give a tuple of inputs, or a dictionary"
            )
        kinds = {name: onnx.helper.tensor_dtype_to_np_dtype(kind) for name, kind in types.items()}
        cast = {name: np.asarray(given[name], kind) for name, kind in kinds.items()}
        try:
            return dict(zip(names, session.run(None, cast), strict=True))
        except Exception as error:  # onnxruntime has errors of its own
            raise InputError(
                f"x must fit the model, but it cannot compute with it: {first_line(error)}"
            ) from None

    return run


def split_onnx(path: Path, options: ReadOptions, name: str | None) -> OnnxSplit:
    """Divide a model.

    Raises ModelError if the core can compute no part of it, or it cannot be cut around that.
    """
    model = load_onnx(path)
    graph, _ = take_branches(model, options.branches)
    found = find_cut(path, options, name, partial(_Plan, model, graph))
    front, core = found.front()
    return OnnxSplit(front, found.cut.read, found.back(), core, found.cut.order.sequences_first)


@dataclass(eq=False)
class _Part:
    """A model in the making."""

    plan: "_Plan"
    inputs: list[Any] = field(default_factory=list)
    outputs: list[Any] = field(default_factory=list)
    before: list[Any] = field(default_factory=list)
    nodes: list[Any] = field(default_factory=list)
    after: list[Any] = field(default_factory=list)
    constants: list[Any] = field(default_factory=list)

    def value(self, array: Any) -> str:
        """Add a constant."""
        name = self.plan.new("core_constant")
        self.constants.append(self.plan.onnx.numpy_helper.from_array(np.asarray(array), name))
        return name

    def move(self, tensor: str, moves: Sequence[tuple[str, Any]], target: str, nodes: list[Any]) -> None:
        """Add nodes that make ``target`` of a tensor."""
        make = self.plan.onnx.helper.make_node
        for number, (kind, given) in enumerate(moves or [("cast", None)]):
            output = target if number >= len(moves) - 1 else self.plan.new("core_moved")
            if kind == "transpose":
                node = make("Transpose", [tensor], [output], perm=given)
            elif kind == "select":
                node = make("Gather", [tensor, self.value(np.int64(given[1]))], [output], axis=given[0])
            elif kind == "gather":
                node = make("Gather", [tensor, self.value(np.array(given[1]))], [output], axis=given[0])
            elif kind == "join":
                node = make("Concat", given, [output], axis=0)
            elif kind == "unsqueeze" and self.plan.graph.opset >= _AXES_AS_INPUT:
                node = make("Unsqueeze", [tensor, self.value(np.array(given))], [output])
            elif kind == "unsqueeze":
                node = make("Unsqueeze", [tensor], [output], axes=given)
            else:
                node = make("Identity", [tensor], [output])
            nodes.append(node)
            tensor = output

    def model(self) -> Any:
        """The model."""
        helper, whole = self.plan.onnx.helper, self.plan.model
        nodes = [*self.before, *self.nodes, *self.after]
        read = {name for node in nodes for name in (*node.input, *captured(node))}
        stored = [item for item in whole.graph.initializer if item.name in read]
        graph = helper.make_graph(
            nodes,
            whole.graph.name or "part",
            self.inputs,
            self.outputs,
            initializer=[*stored, *self.constants],
        )
        return helper.make_model(graph, opset_imports=whole.opset_import, ir_version=whole.ir_version)


class _Plan:
    """Which nodes stand in front of the core and which behind it, and what goes between them."""

    def __init__(self, model: Any, graph: OnnxGraph, cut: Cut) -> None:
        self.onnx = import_extra("onnx", "onnx")
        self.model, self.graph, self.cut = model, graph, cut
        self.taken = {name for node in graph.nodes for name in (*node.input, *node.output)}
        self.taken |= {*graph.inputs, *graph.outputs}
        missing = [name for name in (cut.begin, *(e.tensor for e in cut.ends)) if name not in self.taken]
        if missing:
            raise ModelError(f"{missing[0]!r} is no tensor of the file as it stands; cut it elsewhere")
        self.ends = {end.tensor: end for end in cut.ends}
        self.core = {graph.index_of(next(filter(None, node.outputs))) for node, _ in cut.recurrent}
        self.swapped = not cut.recurrent or cut.recurrent[0][0].attributes["h_axes"][0] == "N"
        if -1 in self.core:
            self._follow_loops()
            self.swapped = False
        elif not self.core or not all(is_recurrent(graph.nodes[at]) for at in self.core):
            raise ModelError("the recurrent layers must be LSTM, GRU or RNN nodes for the file to be split")
        self.finals = {
            name: (part, numbers, node.attributes["h_axes"][0] == "N")
            for node, numbers in cut.recurrent
            for part, name in enumerate(node.outputs[1:])
            if name
        }
        self.given = {*self.ends, *self.finals}
        self.inside, self.past = divide(graph, self.core, self.given, graph.outputs)
        self.states = self._states()
        asked = [cut.begin, *(name for names in self.states for name in names), *self.past]
        self.in_front = in_front(graph, self.core, asked)

    def _follow_loops(self) -> None:
        """All between the core's input and its results is the core's, where a loop over steps was unrolled.

        The last of steps that are joined is a result, too.
        """
        for end in [*self.ends.values()]:
            joined = self.graph.producer(end.tensor)
            if joined is not None and joined.op_type == "Concat":
                last = self.graph.producer(joined.input[-1])
                if last is not None and last.op_type == "Unsqueeze":
                    self.ends.setdefault(last.input[0], last_of(end, last.input[0]))

        def is_size(at: int) -> bool:
            return self.graph.nodes[at].op_type in ("Shape", "Size")

        self.core |= between(self.graph, self.cut.read, self.cut.begin, self.ends, is_size)
        self.core -= {-1}

    def _states(self) -> list[list[str]]:
        """The tensors of initial states: h, and c of LSTMs, of each recurrent node."""
        nodes = [node for node, _ in self.cut.recurrent]
        found = [[name for name in node.inputs[1:3] if name] for node in nodes]
        values = [self.graph.constant(name) for names in found for name in names]
        if self.cut.begun or all(value is not None and not value.any() for value in values):
            return []
        layers = self.cut.read.network.pseudo_layers
        alike = len({(layer.outputs, layer.units, layer.kind) for layer in layers}) == 1
        covered = sorted(at for _, numbers in self.cut.recurrent for at in numbers) == [*range(len(layers))]
        if len({len(names) for names in found}) > 1 or not alike or not covered:
            raise ModelError(
                "initial states of layers of different sizes are not split; end in the first one"
            )
        return [list(part) for part in zip(*found, strict=True)]

    def new(self, name: str) -> str:
        """A name that no tensor has."""
        name = fresh(name, self.taken.__contains__)
        self.taken.add(name)
        return name

    @cached_property
    def _infos(self) -> dict[str, Any]:
        """What is known of types and sizes of tensors."""
        found = self.onnx.shape_inference.infer_shapes(self.model).graph
        return {item.name: item for item in (*found.value_info, *found.output, *found.input)}

    def _info(self, name: str) -> Any:
        if name not in self._infos:
            raise ModelError(
                f"the type of the tensor {name!r} is not known, so the model cannot be cut there"
            )
        return self._infos[name]

    def _floats(self, name: str, tags: Sequence[str]) -> Any:
        return self.onnx.helper.make_tensor_value_info(name, self.onnx.TensorProto.FLOAT, tags)

    def front(self) -> tuple[Any, dict[str, str]]:
        """The model in front of the core, or None; and the core's x, h and c among its outputs or inputs."""
        cut, part = self.cut, _Part(self)
        moves = cut.order.to_run()
        swap = self.swapped
        names = [cut.begin, *(names[0] for names in self.states)]
        given = all(name in self.graph.inputs for name in names)
        if not moves and given and not swap and all(len(names) == 1 for names in self.states):
            return None, dict(zip("xhc", names, strict=False))
        part.nodes = [self.graph.nodes[at] for at in sorted(self.in_front)]
        read = {name for node in part.nodes for name in (*node.input, *captured(node))}
        used = read | {cut.begin, *self.past, *(name for names in self.states for name in names)}
        part.inputs = [item for item in self.model.graph.input if item.name in used & set(self.graph.inputs)]
        core = {"x": self.new("core_x")}
        part.move(cut.begin, moves, core["x"], part.after)
        part.outputs.append(self._floats(core["x"], cut.order.run_tags()))
        for key, names in zip("hc", self.states, strict=False):
            core[key] = self.new(f"core_{key}")
            swapped: list[str] = []
            for name in names:
                swapped.append(self.new("core_swapped"))
                part.move(name, [("transpose", [1, 0, 2])] if swap else [], swapped[-1], part.after)
            part.move(swapped[0], [("join", swapped)], core[key], part.after)
            part.outputs.append(self._floats(core[key], ("layers", "N", "H")))
        part.outputs += [self._info(name) for name in self.past if name not in self.graph.inputs]
        return part.model(), core

    def back(self) -> Any:
        """The model behind the core, or None."""
        part, graph = _Part(self), self.graph
        plain = [end for end in self.cut.ends if end.order.from_run(self.cut.order.run_tags())] == []
        if plain and len(self.cut.ends) == 1 and graph.outputs == [self.cut.ends[0].tensor]:
            return None
        part.nodes = [graph.nodes[at] for at in sorted(self.inside)]
        read = {name for node in part.nodes for name in (*node.input, *captured(node))} | {*graph.outputs}
        for end in self.ends.values():
            if end.tensor in read:
                self._add_end(part, end)
        for name, (which, numbers, swap) in self.finals.items():
            if name in read:
                key = ("core_h_n", "core_c_n")[which]
                if key not in [item.name for item in part.inputs]:
                    part.inputs.append(self._floats(key, ("layers", "N", "H")))
                moves: list[tuple[str, Any]] = [("gather", [0, self.cut.ranks(which, numbers)])]
                part.move(key, [*moves, *([("transpose", [1, 0, 2])] if swap else [])], name, part.before)
        part.inputs += [self._info(name) for name in self.past]
        part.outputs = list(self.model.graph.output)
        return part.model()

    def _add_end(self, part: _Part, end: Any) -> None:
        tags = self.cut.order.run_tags()
        if "core_y" not in [item.name for item in part.inputs]:
            part.inputs.append(self._floats("core_y", tags))
        moves: list[tuple[str, Any]] = list(end.order.from_run(tags))
        if len(self.cut.ends) > 1:
            chosen = list(range(end.features.start, end.features.stop))
            moves.insert(0, ("gather", [len(tags) - 1, chosen]))
        part.move("core_y", moves, end.tensor, part.before)
