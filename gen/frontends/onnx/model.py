"""Reads the recurrent layers of an ONNX model and the dense layers around them."""

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from rtlstm.gen.frontends.arrays import listed
from rtlstm.gen.frontends.axes import Axes
from rtlstm.gen.frontends.classes import host_classes
from rtlstm.gen.frontends.flow import Flow
from rtlstm.gen.frontends.onnx.branches import take_branches
from rtlstm.gen.frontends.onnx.cells import join_cells
from rtlstm.gen.frontends.onnx.classes import check_classes, without_classes
from rtlstm.gen.frontends.onnx.definitions import find_undefined
from rtlstm.gen.frontends.onnx.known_sizes import KnownSizes
from rtlstm.gen.frontends.onnx.movers import take_states
from rtlstm.gen.frontends.onnx.node_graph import OnnxGraph, captured, load_onnx
from rtlstm.gen.frontends.onnx.ops import STATE_ONLY, Applied, apply_node, check_meanings, cut_earlier
from rtlstm.gen.frontends.onnx.quantised import input_text, replace_quantisers
from rtlstm.gen.frontends.onnx.recurrent import is_recurrent
from rtlstm.gen.frontends.onnx.scans import read_scans
from rtlstm.gen.frontends.onnx.start import find_input, find_start, name_condition, unrolled_loop
from rtlstm.gen.frontends.onnx.step_frames import begins_with_frames, may_be_between
from rtlstm.gen.frontends.onnx.values import Known, OnnxNode, OnnxState, Value
from rtlstm.gen.frontends.orders import input_order, note_input_order, note_output_orders
from rtlstm.gen.frontends.outputs import alike, is_state, join_outputs, note_steps
from rtlstm.gen.frontends.reading import ReadOptions, ReportBuilder
from rtlstm.spec.errors import ModelError
from rtlstm.spec.network import Network
from rtlstm.spec.output_parts import OutputPart

__all__ = ["read_onnx", "read_onnx_model"]

_SIZES = ("Shape", "Size")
_Known = TypeVar("_Known", Value, OnnxState)


def read_onnx(path: Path, options: ReadOptions, report: ReportBuilder) -> Network:
    """Read an ONNX file; ``report`` records how every node is treated."""
    report.format = "onnx"
    return read_onnx_model(load_onnx(path), options, report)


def read_onnx_model(model: Any, options: ReadOptions, report: ReportBuilder) -> Network:
    """Read an ONNX model that is loaded and checked."""
    if options.dense is not None:
        raise ModelError(
            "`dense` is for files of tensors without a graph; this model has its dense layers "
            "in the graph (end it with `output`)"
        )
    graph, taken = take_branches(model, options.branches)
    check_meanings(graph.nodes)
    undefined = find_undefined(graph, model)
    graph, roundings = replace_quantisers(model, graph, options.output, report)
    graph, cells, unread = read_scans(model, graph)
    if cells:
        undefined = undefined or find_undefined(graph, model)
    graph, joined, unclear = join_cells(model, graph)
    graph.cells = cells
    graph.integer_rows = report.integer_rows
    for note in (*taken, *joined):
        report.note(note)
    report.model_inputs, report.model_outputs = tuple(graph.inputs), tuple(graph.outputs)
    try:
        network = _Reader(graph, options, report).read()
    except ModelError as error:
        texts = [unrolled_loop(graph), str(error), *unread, *unclear]
        raise ModelError("; ".join(filter(None, texts))) from None
    if undefined:
        raise ModelError(undefined)
    for one in roundings:
        if report.input in (one.tensor, one.gives):
            report.note(input_text(one))
    return network


def _end(graph: OnnxGraph, wanted: str) -> str:
    """The tensor to end at: one of this name, or what the node of this name gives first."""
    if graph.is_tensor(wanted):
        return wanted
    found = [node for node in graph.nodes if node.name == wanted]
    given = [str(name) for node in found for name in list(node.output)[:1] if name]
    if len(given) != 1:
        what = f"there are {len(given)} nodes" if given else "there is none"
        raise ModelError(
            f"`output` must name a tensor or a node of the model, but {what} of the name "
            f"{wanted!r}; its outputs are {listed(graph.outputs)}"
        )
    return given[0]


class _Reader:
    """Determines every needed tensor, node by node, from the core's input on."""

    def __init__(self, graph: OnnxGraph, options: ReadOptions, report: ReportBuilder) -> None:
        self.graph, self.options, self.report = graph, options, report
        self.classes: list[int] = []
        self.names: dict[str, str] = {}
        if options.output is None:
            for output in graph.outputs:
                (target,), left = without_classes(graph, [output])
                self.names.setdefault(target, output)
                self.classes += left
        else:
            self.names[_end(graph, options.output)] = options.output
        self.targets = list(self.names)
        self.chosen = options.output is not None
        self.needed = graph.ancestors(self.targets)
        self.known: dict[str, Known] = {}
        self.applied: dict[int, Applied] = {}
        self.fetched: set[str] = set()
        self.first: list[int] = []
        self.sizes = KnownSizes(graph)
        self.frames = 1
        """Frames inside a step of the tensor to begin at."""
        self.input_tags: tuple[str, ...] = ()
        """The axes of the caller's data, before a layer has shown what they are."""

    def read(self) -> Network:
        self.first = find_start(self.graph, self.options.lstm, self.needed, self.targets)
        upstream = self._begin()
        for index in sorted(self.needed - upstream):
            if index in self.first or self._follows(index):
                self._try(index)
            else:
                self._measure(index)
        for index, applied in sorted(self.applied.items()):
            self._report(index, applied)
        self._note_layout()
        target, flow, parts = self._end()
        self._leave_classes(bool(parts))
        self.report.output = target
        self._report_rest(upstream)
        return self._with_frames(flow.network(self.report.name, parts))

    def _with_frames(self, network: Network) -> Network:
        """Return the network of steps that have frames in the model, too."""
        if self.frames > 1 and network.frames > 1:
            raise ModelError(
                f"its steps have {self.frames} frames, and strides leave steps out, too, which the core "
                "cannot do; end before the strides, with `output`"
            )
        return network if self.frames == 1 else network.replace(frames=self.frames)

    # The beginning

    def _begin(self) -> set[int]:
        """Begin at the model's input or at the first recurrent nodes; return the nodes before these."""
        if not self.first and self.options.begin is not None:
            raise ModelError(
                "`begin` names a tensor in front of a recurrent layer, but the model has none; leave it out"
            )
        if not self.first:
            source = find_input(self.graph, self.needed)
            self._begin_with(source, self._plain(source))
            self.report.input = source
            return set()
        tensor = self.graph.nodes[self.first[0]].input[0]
        upstream = self.graph.ancestors([tensor])
        if self.options.begin not in (None, tensor):
            self._begin_within(tensor, upstream)
        elif self.options.begin == tensor:
            self._begin_at(tensor, upstream)
        elif not self._begin_before(tensor, upstream):
            offered = self._offered(tensor, upstream)
            self._begin_at(tensor, upstream)
            if offered:
                self.report.note(
                    f"the core can compute the convolutions in front of its input, too: from {offered!r} on, "
                    f"with `begin={offered!r}`"
                )
        return upstream

    def _plain(self, source: str) -> Value:
        """A tensor to begin at, of whose axes only the number is known."""
        return Value(Flow(), Axes.unknown(len(self.graph.shape(source))))

    def _begin_with(self, source: str, value: Value) -> None:
        """Register the tensor to begin at, and forget what was found from another one."""
        self.known, self.applied, self.fetched = {source: value}, {}, set()
        self.input_tags = value.axes.tags
        self.sizes = KnownSizes(self.graph)
        self.sizes.begin(source, value.axes)

    def _begin_before(self, tensor: str, upstream: set[int]) -> bool:
        """Include the nodes before the first recurrent one, if the core can compute them from one input."""
        nodes = [self.graph.nodes[index] for index in upstream]
        sources = {name for node in nodes for name in node.input if name in self.graph.inputs}
        if self.options.lstm is not None or len(sources) != 1:
            return False
        source = sources.pop()
        with contextlib.suppress(ModelError):
            return self._compute_front(source, tensor, upstream)
        with contextlib.suppress(ModelError):  # What refuses the recurrent layer then names it.
            return self._visit_front(source, self._plain(source), tensor, upstream, whole=False)
        return False  # it stays outside

    def _begin_within(self, tensor: str, upstream: set[int]) -> None:
        """Begin at the tensor that is asked for; nodes before it stay outside."""
        source = self.options.begin or ""
        before = self.graph.ancestors([source])
        if not any(source in self.graph.nodes[index].input for index in upstream):
            label = self.graph.label(self.graph.nodes[self.first[0]])
            raise ModelError(
                f"`begin` must name a tensor on the way to the first recurrent layer, {label!r}, "
                f"but {source!r} is none"
            )
        nodes = self._leave(before)
        if nodes:
            self.report.note(
                f"{len(nodes)} nodes before {source!r} stay outside of the core, for the host to compute: "
                f"{listed(node.op_type for node in nodes)}"
            )
        if not self._compute_front(source, tensor, upstream - before):
            raise ModelError(f"nothing of the core is between {source!r} and {tensor!r}: begin at the latter")

    def _offered(self, tensor: str, upstream: set[int]) -> str:
        """The earliest tensor from which only convolutions, and what may be between them, lead here."""
        found, name = "", tensor
        while (node := self.graph.producer(name)) is not None and may_be_between(node):
            name = node.input[0]
            found = name if node.op_type == "Conv" else found
        if found and self.options.lstm is None:
            with contextlib.suppress(ModelError):
                if self._compute_front(found, tensor, upstream - self.graph.ancestors([found])):
                    return found
        return ""

    def _compute_front(self, source: str, tensor: str, nodes: set[int]) -> bool:
        """Include nodes from ``source`` to the first recurrent layers; False if they compute nothing.

        A step is a vector at first; if the layers cannot read that, it has frames, for convolutions.

        Raises
        ------
        ModelError
            If the core cannot compute them; of frames, what the first try said.
        """
        convolved = any(self.graph.nodes[index].op_type == "Conv" for index in nodes)
        sizes = self.graph.folded_shape(source) if convolved else ()
        framed = list(begins_with_frames(sizes))
        errors: list[ModelError] = []
        for begin, frames in [(self._plain(source), 1), *framed]:
            try:
                found = self._visit_front(source, begin, tensor, nodes, whole=bool(framed))
            except ModelError as error:
                errors.append(error)
            else:
                self.frames = frames
                return found
        if not framed:
            unknown = f"; the file does not tell how many frames a step of {source!r} has" * (None in sizes)
            raise ModelError(f"{errors[0]}{unknown}")
        raise errors[1]

    def _visit_front(self, source: str, begin: Value, tensor: str, nodes: set[int], *, whole: bool) -> bool:
        """Apply nodes to a tensor to begin at; ``whole`` with the recurrent layers behind them."""
        self._begin_with(source, begin)
        for index in sorted(nodes):
            self._visit(index)
        found = self.known.get(tensor)
        if not isinstance(found, Value) or not (found.flow.layers or found.flow.relu or not found.flow.plain):
            return False
        for index in self.first if whole else ():
            for name in self.graph.nodes[index].input:
                self._fetch(name)
            self._visit(index)
        self.report.input = source
        return True

    def _leave(self, before: set[int]) -> list[Any]:
        """Leave nodes outside; return those that are no constants."""
        nodes = [self.graph.nodes[index] for index in sorted(before)]
        nodes = [node for node in nodes if not self.graph.is_constant(node.output[0])]
        for node in nodes:
            self.report.node(self.graph.label(node), node.op_type, "outside", "before the core")
        return nodes

    def _begin_at(self, tensor: str, upstream: set[int]) -> None:
        """Begin with the first recurrent nodes; nodes before them stay outside."""
        self.known, self.applied, self.fetched = {}, {}, set()
        self.sizes, self.frames = KnownSizes(self.graph), 1
        self.report.input = tensor
        nodes = self._leave(upstream)
        axes = Axes.unknown(3)
        self.input_tags = axes.tags
        self.known[tensor] = Value(Flow(), axes)
        if nodes and all(node.op_type in ("Identity", "Transpose") for node in nodes):
            # The caller's data are the model's input, of which the core reads the permuted axes.
            axes = self._know_reversed(nodes, axes)
        elif nodes:
            self.report.note(
                f"{len(nodes)} nodes before the first recurrent layer stay outside of the core: its input is "
                f"{tensor!r}"
            )
        self.sizes.begin(tensor, axes)
        for index in sorted(upstream):
            self._measure(index)
        for index in self.first:
            self._try(index)

    def _know_reversed(self, nodes: list[Any], axes: Axes) -> Axes:
        """Register the input before and after the nodes that permute it, and return its last axes."""
        self.known[nodes[0].input[0]] = Value(Flow(), axes)
        for node in nodes:
            if node.op_type == "Transpose":
                turns = self.graph.attributes(node).get("perm", (2, 1, 0))
                axes = axes.transpose(turns, self.graph.where(node))
            self.known[node.output[0]] = Value(Flow(), axes)
        return axes

    def _note_layout(self) -> None:
        """Record the order of the axes of the caller's data, as the layers have shown it."""
        found = (value.axes for value in self.known.values() if isinstance(value, Value))
        why = "the model's input has sequences before steps"
        node = self.graph.nodes[self.first[0]] if self.first else None
        if node is not None and self.graph.attributes(node).get("layout", 0):
            why = f"{self.graph.where(node)} has layout 1"
        note_input_order(input_order(self.input_tags, found), why, self.report)

    # Node by node

    def _follows(self, index: int) -> bool:
        """Whether a node reads results of recurrent layers; nodes of the input alone are not the core's.

        If the model has none, all that is computed from its input is the core's.
        """
        node = self.graph.nodes[index]
        read = [self.known.get(name) for name in (*node.input, *captured(node))]
        return any(found is not None and not (self.first and found.flow.before) for found in read)

    def _fetch(self, tensor: str) -> None:
        """Compute a tensor from the input alone, for a node that reads it beside a layer's results."""
        found, waiting = [], [tensor]
        while waiting:
            name = waiting.pop()
            node = self.graph.producer(name)
            if node is None or name in self.known or name in self.fetched or self.graph.is_constant(name):
                continue
            self.fetched.add(name)
            found.append(self.graph.index_of(name))
            waiting += node.input
        for index in sorted(found):
            with contextlib.suppress(ModelError):  # The node that reads it then reports the error.
                self._visit(index)

    def _try(self, index: int) -> None:
        """Visit a node and its other inputs; if it is refused, report everything up to it."""
        for name in self.graph.nodes[index].input:
            self._fetch(name)
        try:
            self._visit(index)
        except ModelError as error:
            for before, applied in sorted(self.applied.items()):
                self._report(before, applied)
            node = self.graph.nodes[index]
            self.report.node(self.graph.label(node), node.op_type, "refused", str(error))
            raise ModelError(self._with_end(str(error), node)) from None

    def _with_end(self, text: str, node: Any) -> str:
        """Name the tensor to end at in a refusal: the last one before the node that can be an end."""
        before = self.graph.ancestors(node.input)
        ends = [
            name
            for name, found in self.known.items()
            if self.graph.index_of(name) in before and isinstance(found, Value) and self._may_end(found)
        ]
        if not ends or "`output=" in text:
            return text
        end = f"to end before it, give `output={max(ends, key=self.graph.index_of)!r}`"
        return text.replace(cut_earlier(), end) if cut_earlier() in text else f"{text}; {end}"

    def _may_end(self, found: Value) -> bool:
        """Whether a network can end at a value: it has layers, recurrent ones if the model has some."""
        whole = not (found.state or found.front or found.axes.lost)
        return whole and (
            not found.flow.before if self.first else bool(found.flow.layers or found.flow.dense)
        )

    def _visit(self, index: int) -> None:
        node = self.graph.nodes[index]
        self._measure(index)
        if index in self.applied or node.op_type in _SIZES:
            return
        inputs: list[Known | None] = [self.known.get(name) for name in node.input]
        inner = next((name for name in captured(node) if name in self.known), None)
        if inner is None and not any(inputs):
            return
        applied = self._apply(node, inputs, inner)
        self.applied[index] = applied
        for name, found in zip(node.output, applied.outputs, strict=False):
            if name and found is not None:
                self.known[name] = found

    def _measure(self, index: int) -> None:
        """Follow sizes of tensors through a node."""
        node = self.graph.nodes[index]
        found = self.known.get(next(iter(node.input), ""))
        self.sizes.measure(node, found.axes if isinstance(found, Value) else None)

    def _apply(self, node: Any, inputs: list[Known | None], inner: str | None) -> Applied:
        if inner is not None or node.op_type == "If":
            tensor = inner or node.input[0]
            raise ModelError(f"after the LSTM {tensor!r} goes into {name_condition(self.graph, node)}")
        stuck = [found for found in inputs if isinstance(found, OnnxState)]
        values = tuple(found if isinstance(found, Value) else None for found in inputs)
        step = OnnxNode(self.graph, node, values, self.sizes)
        if stuck and node.op_type in ("Gather", "Slice"):
            taken = take_states(step, stuck[0].parts)
            if taken is not None:
                return Applied((taken,), "shape")
        if node.op_type in STATE_ONLY and not stuck and _several_states(inputs):
            joined = self._join_states(step)
            if isinstance(joined, Applied):
                return joined
            stuck = [joined]
        elif node.op_type in STATE_ONLY and stuck:
            stuck = [replace(_deepest(stuck), parts=())]
        if node.op_type in STATE_ONLY and stuck:
            return Applied((stuck[0],) * len(node.output), "state", "shapes and states")
        if stuck and not is_recurrent(node):
            raise ModelError(stuck[0].text.replace("{reader}", self.graph.where(node)))
        return apply_node(step)

    def _join_states(self, step: OnnxNode) -> Applied | OnnxState:
        """Final states that a Concat joins: features side by side, or layers of which one may be taken."""
        axis, tags = int(step.attributes().get("axis", 0)), step.values[0].axes.tags
        if -len(tags) <= axis < len(tags) and tags[axis] == "F":
            with contextlib.suppress(ModelError):  # Then only the driver returns them.
                return apply_node(step)
        text = f"{{reader}} reads several final states, which only the driver gives; {cut_earlier()}"
        layers = axis == 0 and all(value.axes.tags[:1] in (("D",), ("B",)) for value in step.values)
        return OnnxState(text, _deepest(step.values).flow, tuple(step.values) if layers else ())

    # The end

    def _end(self) -> tuple[str, Flow, tuple[OutputPart, ...]]:
        """The last tensor to end at, and all of each step side by side, with their parts."""
        found = {name: self.known[name] for name in self.targets if name in self.known}
        computed = {k: v for k, v in found.items() if isinstance(v, Value) and not v.state}
        whole = {k: v for k, v in found.items() if isinstance(v, Value)}
        ends = computed or whole or found
        if not ends:
            raise ModelError(
                f"what follows the LSTM must lead to {listed(map(repr, self.targets))}, but does not; "
                f"{cut_earlier()}"
            )
        last = max(ends, key=lambda name: self.graph.index_of(name))
        before = self.graph.ancestors([last])
        parts: dict[str, Flow] = {}
        axes: dict[str, Axes] = {}
        for name, end in ends.items():
            if isinstance(end, Value) and end.front:
                raise ModelError(
                    f"{name!r} has {end.front} steps of zeros in front, which the core cannot give"
                )
            aside = self.graph.index_of(name) not in before
            if name == last or (ends is computed and _is_part(computed[name], computed[last], aside)):
                parts[name] = end.flow
                if isinstance(end, Value):
                    axes[self.names[name]] = end.axes
            elif ends is computed and aside:
                raise ModelError(self._two_results(name, last))
            elif ends is computed:
                self.report.note(
                    f"{name!r} is an output of the model too, but the core gives only the end of the chain"
                )
        note_steps({name: (one.last_step, one.first_step) for name, one in axes.items()}, self.report)
        note_output_orders(axes, self.report)
        for name in found:
            if name not in computed and not self.chosen:
                self.report.note(f"the model's output {name!r} is a state; the driver gives it")
        try:
            named = [(self.names[name], flow) for name, flow in parts.items()]
            return last, *join_outputs(named, self.report)
        except ModelError as error:
            other = next(name for name in ends if name != last)
            raise ModelError(f"{self._two_results(other, last)} ({error})") from None

    @staticmethod
    def _two_results(name: str, last: str) -> str:
        return (
            f"the model's outputs {name!r} and {last!r} are two results, but the core computes one "
            "chain of layers; choose one as `output`"
        )

    def _leave_classes(self, apart: bool) -> None:
        """Leave what makes classes of scores to the host."""
        for index in reversed(self.classes):
            node = self.graph.nodes[index]
            before = self.known.get(node.input[0])
            if isinstance(before, Value):
                check_classes(self.graph, node, before.axes)
            host = host_classes(node.op_type, apart)
            self.report.node(self.graph.label(node), node.op_type, "outside", host or "")
            self.report.note(f"{self.graph.where(node)} stays on the host: {host}")

    # The rest

    def _report(self, index: int, applied: Applied) -> None:
        node = self.graph.nodes[index]
        self.report.node(self.graph.label(node), node.op_type, applied.role, applied.why)
        for note in applied.notes:
            self.report.note(note)

    def _report_rest(self, upstream: set[int]) -> None:
        graph = self.graph
        nodes = [graph.nodes[index] for index in sorted(self.applied)]
        states = [tensor for node in nodes if is_recurrent(node) for tensor in node.input[4:7]]
        before, after = graph.ancestors(states), graph.descendants(self.applied)
        for index, node in enumerate(graph.nodes):
            done = index in self.applied or index in upstream or index in self.classes
            if done or graph.is_constant(node.output[0]):
                continue
            moved = index in after and node.op_type in (*STATE_ONLY, *_SIZES)
            if moved or index in before or self.sizes.made(node):
                self.report.node(graph.label(node), node.op_type, "state", "shapes and states")
            else:
                why = "not on the way from the core's input to its output"
                self.report.node(graph.label(node), node.op_type, "outside", why)
                if index in self.needed:
                    self.report.note(f"{graph.where(node)} stays outside of the core")


def _is_part(one: Value, last: Value, aside: bool) -> bool:
    """Whether an output may stand beside the last one, and is no state."""
    return alike(one.axes, last.axes, aside=aside) and not is_state(one.flow, one.axes)


def _deepest(found: Sequence[_Known]) -> _Known:
    """Return the value that is last in the chain; other layers' states come before it."""
    return max(found, key=lambda one: len(one.flow.layers))


def _several_states(inputs: list[Known | None]) -> bool:
    """Whether a node reads nothing but final states, and more than one of them."""
    return len(inputs) > 1 and all(isinstance(found, Value) and found.state for found in inputs)
