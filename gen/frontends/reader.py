"""Reads a graph: the recurrent layers that it has, and the dense layers around them.

It alone decides where the core begins and ends, what is a state, and what is left to the host.
"""

import contextlib
import difflib
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, TypeVar

from rtlstm.gen.frontends.arithmetic import (
    ARITHMETIC,
    alike,
    is_state,
    join_outputs,
    join_truths,
    note_input_order,
    note_output_orders,
    note_steps,
)
from rtlstm.gen.frontends.arrays import listed
from rtlstm.gen.frontends.axes import Axes, KnownSizes
from rtlstm.gen.frontends.bodies import join_steps
from rtlstm.gen.frontends.cells import join_cells
from rtlstm.gen.frontends.flow import Flow, Source, WidthError
from rtlstm.gen.frontends.formulas import join_functions, join_norms
from rtlstm.gen.frontends.graph import Graph, Node, WeightsError, input_rank
from rtlstm.gen.frontends.layers import (
    LAYERS,
    WEIGHTED,
    FramesError,
    Known,
    State,
    Step,
    Value,
    begins_with_frames,
    check_frames,
    may_be_between,
    one_input,
)
from rtlstm.gen.frontends.loops import LoopError, join_loops, takes_step
from rtlstm.gen.frontends.moves import MOVES, take_states
from rtlstm.gen.frontends.plugins import offered
from rtlstm.gen.frontends.reading import (
    LEFT_BEFORE,
    LOOKED_UP,
    ROWS_READ,
    ReadOptions,
    ReportBuilder,
    host_classes,
    host_note,
)
from rtlstm.gen.frontends.recurrent import Applied, apply_recurrent, encoder_of, join_reversals
from rtlstm.host.embeddings import Embedding
from rtlstm.spec.errors import ModelError
from rtlstm.spec.layout import OutputPart
from rtlstm.spec.network import Dense, Network

STATE_ONLY = (
    "cast", "concat", "gather", "identity", "reshape", "select", "shape", "slice", "squeeze", "stack",
    "transpose", "unsqueeze",
)  # fmt: skip
"""Operators that may output a final state."""
_SIZES = ("shape", "size")
_CLASSES = ("softmax", "log_softmax", "argmax")
_SCANS = ("cumsum", "cumprod", "logcumsumexp", "associative_scan")
"""Kinds of operators of a recurrence that is written for all steps together."""
_AT_ONCE = "goes over all steps at once: give the module whose forward(x, state) computes one step of that"
_PACKED = ("pack_padded_sequence", "_pack_padded_sequence")
_CHOOSING = (*_PACKED, "gather", "gatherelements", "gathernd", "getitem", "index", "take_along_dim")
"""Kinds of operators whose other inputs are lengths or indices."""
_CUT = "to end earlier, give the tensor to end at as `output`"
_LENGTHS = {
    "pack": ("give the lengths to the driver, run(x, lengths); they may be in any order",),
    "unpack": ("the driver gives zeros past the end of a sequence",),
}
"""What a user should know of sequences of several lengths."""
_BEFORE_CONVOLUTION = ("average_pool", "conv", "identity", "pad", "transpose")
"""Operators that may read steps with zeros in front."""
_Known = TypeVar("_Known", Value, State)


@dataclass(frozen=True, eq=False)
class Found:
    """What was found in a graph, read or refused: for whoever cuts the model where the core begins and ends.

    ``begin`` is the tensor that the core reads and ``axes`` are those of it; ``values`` has what is known of
    each tensor, ``ends`` the tensors that the core gives side by side, and ``recurrent`` the core's recurrent
    nodes.
    """

    graph: Graph
    begin: str
    axes: tuple[str, ...]
    values: Mapping[str, Known]
    ends: Mapping[str, Axes]
    recurrent: tuple[Node, ...]


def read(graph: Graph, options: ReadOptions, report: ReportBuilder) -> Network:
    """Return the network of a graph; ``report`` records how every node is treated.

    Raises ModelError if the core cannot compute what the model gives; the message names the node and the way
    out.
    """
    if options.dense is not None:
        raise ModelError(
            "`dense` is for files of tensors without a graph; this model has its dense layers in the graph "
            "(end it with `output`)"
        )
    if options.branches:
        raise ModelError("`branches` are for ONNX models, whose If nodes have some; leave the option out")
    report.model_inputs = tuple(graph.inputs)
    report.model_outputs = tuple(graph.names.get(name, name) for name in graph.outputs)
    graph, backwards = join_reversals(graph)
    graph, norms = join_norms(join_truths(graph), options.output)
    graph, written = join_functions(graph, options.output)
    graph, loops, no_loops = join_loops(graph)
    graph, joined, unclear = join_cells(graph)
    graph, stepped, no_steps = join_steps(graph)
    for note in (*backwards, *norms, *written, *loops, *joined, *stepped):
        report.note(note)
    readers: list[_Reader] = []
    try:
        return _read(graph, options, report, readers, bool(no_steps))
    except ModelError as error:
        split = graph.words.split if readers and readers[-1].stands_outside(error) else ""
        refused = [node for node in graph.nodes if node.operator == "refused"]
        whys = {str(node.attributes["why"]): node.kind in _PACKED for node in refused}
        if any(whys.values()):  # Before a traced pack, sequences are put in order.
            others = [why for why, packs in whys.items() if not packs and "PackedSequence" not in why]
            raise ModelError("; ".join([max(whys, key=whys.__getitem__), *others])) from None
        scan = next((node for node in graph.nodes if node.kind.lower() in _SCANS), None)
        scans = "" if scan is None else f"{scan.where} {_AT_ONCE}"
        why = no_steps or tuple(map(str, no_loops))  # Parts of a step's states look like steps of a loop.
        if not no_steps and any(isinstance(each, LoopError) for each in no_loops):
            refused = [
                each.refused for each in readers if each.refused is not None and each.refused_in_loop()
            ]
            if refused and all(map(is_recurrent, refused)):
                split = ""  # It is called in each step.
            said = [] if refused else [str(error)]  # It is refused because the loop is no layer.
            raise LoopError("; ".join(filter(None, [*why, *said, split]))) from None
        # Of a loop that is unrolled, each step has one.
        said = [*unclear, str(error)] if len(unclear) == 1 else [str(error), *unclear]
        raise ModelError("; ".join(filter(None, [*said, *why, scans, split]))) from None
    finally:
        report.found = readers[-1].found() if readers else None


def _read(
    graph: Graph, options: ReadOptions, report: ReportBuilder, readers: "list[_Reader]", steps: bool
) -> Network:
    """Read a graph from its one input on, or from several side by side if it needs them.

    ``steps``: its other inputs are states, which are no values of a step.
    """
    alone = _Reader(graph, options, report)
    names = alone.data_inputs()
    if len(names) < 2 or steps or options.begin is not None or options.lstm is not None:
        readers.append(alone)
        network = alone.read()
        whole = len(names) == 1 and options.begin is None and options.lstm is None and not alone.embeddings
        if whole and network.frames == 1:
            for name, width in _given_widths(options.input_widths, names).items():
                if width != network.inputs:
                    raise _DeclaredError(name, network.inputs, width)
        return network
    refusal: ModelError | None = None
    tries: tuple[dict[str, Any], ...] = ({"names": names}, {"names": names, "still": True}, {})
    given = _given_widths(options.input_widths, names)
    for how in tries:
        widths = dict(given)
        for _ in names:
            trial = ReportBuilder(report.source)
            trial.take_all(report)
            reader = _Reader(graph, options, trial, widths=widths, **how)
            readers.append(reader)
            try:
                network = reader.read()
                reader.check_declared(given)
            except WidthError as error:
                refusal = refusal or ModelError(str(error))
                shown = [name for name, source in reader.inputs.items() if source is error.source]
                if not shown or shown[0] in widths:
                    break
                widths[shown[0]] = error.width
            except (WeightsError, _DeclaredError):
                raise
            except ModelError as error:
                refusal = refusal or error
                break
            else:
                report.take_all(trial)
                return network
    raise refusal or ModelError("must have an input")


class _DeclaredError(ModelError):
    """The model declares another width of an input than the caller gives."""

    def __init__(self, name: str, width: int, given: int) -> None:
        super().__init__(
            f"input {name!r} has {width} features in the model, but {given} are given, by data or "
            "`input_widths`; give each input what is its, or leave the width out"
        )


def _given_widths(given: Sequence[str], names: Sequence[str]) -> dict[str, int]:
    """The widths of inputs that the caller gives."""
    found = {}
    for text in given:
        name, _, width = text.rpartition(":")
        if not (width.isascii() and width.isdecimal() and 0 < int(width) < 2**31):
            raise ModelError(f"`input_widths` must be NAME:WIDTH, not {text!r}")
        if name not in names:
            raise ModelError(
                f"data by name and `input_widths` must be of the inputs {listed(names)}, not {name!r}"
            )
        found[name] = int(width)
    return found


def is_recurrent(node: Node) -> bool:
    """Whether a node has recurrent layers."""
    return node.operator == "recurrent"


class _Reader:
    """Determines every needed tensor, node by node, from the core's input on."""

    def __init__(
        self,
        graph: Graph,
        options: ReadOptions,
        report: ReportBuilder,
        *,
        names: Sequence[str] = (),
        still: bool = False,
        widths: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        self.graph, self.options, self.report = graph, options, report
        self.several, self.still, self.widths = tuple(names), still, widths
        """Inputs to begin at, if several; whether those that no layer along steps reads have none."""
        self.inputs: dict[str, Source] = {}
        self.wanted = self._named_begin(options.begin)
        """The tensor to begin at that the caller has named; empty without."""
        self.classes: list[int] = []
        self.names: dict[str, str] = {}
        if options.output is None:
            for output in graph.outputs:
                self.names.setdefault(self._before_classes(output), graph.names.get(output, output))
        else:
            self.names[self._before_classes(self._named_end(options.output))] = options.output
        self.targets = list(self.names)
        self.chosen = options.output is not None
        self.needed = graph.ancestors(self.targets)
        self.known: dict[str, Known] = {}
        self.begin = ""
        """The tensor that the core reads."""
        self.ends: dict[str, Axes] = {}
        """The tensors that the core gives, side by side."""
        self.applied: dict[int, Applied] = {}
        self.fetched: set[str] = set()
        self.first: list[int] = []
        self.visited = 0
        """The node that was visited last."""
        self.sizes = KnownSizes(graph, options.sequence_length or 0)
        self.frames = 1
        """Frames inside a step of the tensor to begin at."""
        self.input_tags: tuple[str, ...] = ()
        """The axes of the caller's data, before a layer has shown what they are."""
        self.embeddings: list[Embedding] = []
        self.refused: Node | None = None
        self.front_problem = ""
        """Why the core cannot compute the nodes in front of the first recurrent layer."""
        self.beside: dict[int, str] = {}
        """Nodes beside the layers that the core cannot compute, each with the reason."""

    def read(self) -> Network:
        self._find_start()
        upstream = self._begin()
        for index in sorted(self.needed - upstream):
            if index in self.first or self._follows(index):
                self._try(index)
            else:
                self._measure(index)
        for index, applied in sorted(self.applied.items()):
            self._report(index, applied)
        self.report.embeddings += self.embeddings
        self._note_layout()
        target, flow, parts = self._end()
        self._leave_classes(bool(parts))
        self.report.output = self.names[target] if target in self.graph.names else target
        self._report_rest(upstream)
        network = flow.network(self.report.name, parts, self.inputs)
        self.report.initial_state = flow.initial_state(network)
        nodes = {node.label for node in self.graph.nodes}
        for layer in network.layers:
            if isinstance(layer, Dense) and layer.name not in nodes:
                self.report.note(f"{layer.name!r} becomes a dense layer of its own in the core")
        if self.frames > 1 and network.frames > 1:
            raise ModelError(
                f"its steps have {self.frames} frames, and strides leave steps out, too, which the core "
                "cannot do; end before the strides, with `output`"
            )
        return network if self.frames == 1 else network.replace(frames=self.frames)

    def stands_outside(self, error: ModelError) -> bool:
        """Whether what was refused may stay outside of the core: nothing damaged, and no recurrent layer.

        Of a recurrent layer, the nodes that compute the state in which it begins may.
        """
        layer = self.refused is not None and is_recurrent(self.refused)
        if layer and self.refused is not None:
            states = self.graph.ancestors(self.refused.inputs[1:3])
            layer = not states or any(is_recurrent(self.graph.nodes[index]) for index in states)
        return bool(self.first) and not layer and not isinstance(error, WeightsError)

    def refused_in_loop(self) -> bool:
        """Whether what was refused takes one step of a tensor, or is computed of one."""
        assert self.refused is not None
        before = self.graph.ancestors(self.refused.inputs)
        return any(
            takes_step(self.graph, n) for n in (self.refused, *map(self.graph.nodes.__getitem__, before))
        )

    def found(self) -> Found:
        """What was found until now."""
        nodes = (self.graph.nodes[index] for index in sorted(self.applied))
        recurrent = tuple(filter(is_recurrent, nodes))
        return Found(self.graph, self.begin, self._input_order(), self.known, self.ends, recurrent)

    def check_declared(self, given: Mapping[str, int]) -> None:
        """Refuse widths of inputs that are not those that the model declares."""
        for name, width in given.items():
            value, shape = self.known.get(name), self.graph.shape(name)
            order = self._shown(value.axes.tags) if isinstance(value, Value) else ()
            declared = shape[order.index("F")] if "F" in order and len(order) == len(shape) else None
            if declared is not None and declared != width:
                raise _DeclaredError(name, declared, width)

    def _input_order(self) -> tuple[str, ...]:
        """The axes of the core's input, as its layers have shown them."""
        return self._shown(self.input_tags)

    def _shown(self, tags: Sequence[str]) -> tuple[str, ...]:
        axes = (value.axes for value in self.known.values() if isinstance(value, Value))
        shown = dict(pair for each in axes for pair in each.shown)
        return tuple(shown.get(tag, tag) for tag in tags)

    # What to read

    def _named_end(self, wanted: str) -> str:
        """The tensor to end at: one of this name, or what the node of this name gives first."""
        graph = self.graph
        given = self._called(wanted)
        if len(given) != 1:
            what = f"there are {len(given)} nodes" if given else "there is none"
            raise ModelError(
                f"`output` must name {graph.words.end} of the model, but {what} of the name "
                f"{wanted!r}; its outputs are {listed(graph.names.get(name, name) for name in graph.outputs)}"
            )
        return given[0]

    def _named_begin(self, wanted: str | None) -> str:
        """The tensor to begin at, named as one to end at; what names none is refused with the layers."""
        if wanted is None:
            return ""
        given = self._called(wanted)
        tensor = given[0] if len(given) == 1 else wanted
        node = self.graph.producer(tensor)  # A name that the translator gave in addition is behind it.
        return node.inputs[0] if node is not None and node.hidden and node.operator == "identity" else tensor

    def _called(self, wanted: str) -> list[str]:
        """The tensors of this name, or what the nodes of this name give first."""
        graph = self.graph
        if graph.is_tensor(wanted):
            return [wanted]
        if wanted in graph.names.values():
            return [tensor for tensor, name in graph.names.items() if name == wanted][:1]
        found = [node for node in graph.nodes if node.label == wanted and not node.hidden]
        return [node.outputs[0] for node in found if node.outputs and node.outputs[0]]

    def _before_classes(self, target: str) -> str:
        """The tensor before the operators at the end that make classes of scores."""
        graph = self.graph
        while (node := graph.producer(graph.behind(target, "identity"))) and node.operator in _CLASSES:
            before = [graph.nodes[index] for index in graph.ancestors([node.inputs[0]])]
            if not any(is_recurrent(one) or one.operator in WEIGHTED for one in before):
                break
            self.classes.append(graph.index_of(node.outputs[0]))
            target = node.inputs[0]
        return target

    def _find_start(self) -> None:
        """Find the recurrent nodes to begin with, which all read the same tensor.

        There are none if the graph has no recurrent node, but others with weights: then the network begins at
        the model's input.
        """
        if self.several:  # All that is computed from them is the core's.
            return
        graph, nodes, wanted = self.graph, self.graph.nodes, self.options.lstm
        found = [index for index, node in enumerate(nodes) if is_recurrent(node)]
        behind = graph.descendants(graph.consumers(self.wanted)) | {*graph.consumers(self.wanted)}
        found = [index for index in found if index in behind] or found
        if not found:
            weighted = any(nodes[index].operator in WEIGHTED for index in self.needed)
            if wanted is not None and weighted:
                kinds = listed(node.kind for node in nodes if not node.hidden)
                raise ModelError(
                    f"`lstm` must name {graph.words.begin}, but the model has none; it has {kinds}"
                )
            hidden = any(node.inner and node.attributes.get("holds") for node in nodes)
            if wanted is not None or hidden or not weighted:
                raise ModelError(self._none())
            return
        names = listed(nodes[index].label for index in found)
        if wanted is not None:
            chosen = [index for index in found if wanted in (nodes[index].label, *nodes[index].outputs)]
            if not chosen:
                raise ModelError(
                    f"`lstm` must name {graph.words.begin}, but there is no {wanted!r}; it has {names}"
                )
            self.first = chosen[:1]
            self._leave_others()
            return
        used = [index for index in found if index in self.needed]
        if not used and any(nodes[index].operator in WEIGHTED for index in self.needed):
            return  # What is asked for stands in front of them.
        if not used:
            raise ModelError(
                f"output {listed(self.targets)} does not depend on {graph.words.begin}; it has {names}"
            )
        self.first = first = [
            index for index in used if graph.ancestors(nodes[index].inputs).isdisjoint(found)
        ]
        if len({nodes[index].inputs[0] for index in first}) > 1:
            labels = [nodes[index].label for index in first]
            if len(set(labels)) < len(labels):  # One layer that is called for each step: it says so itself.
                nodes[first[0]].attributes["layers"]()
            return  # All that is computed from the model's input is the core's.

    def _leave_others(self) -> None:
        """Leave outputs that do not come from the layer to begin with, if others do."""
        graph, (start,) = self.graph, self.first
        mine = [name for name in self.targets if start in graph.ancestors([name])]
        if self.chosen or not mine or len(mine) == len(self.targets):
            return
        for name in self.targets:
            if name not in mine:
                self.report.note(
                    f"the output {self.names[name]!r} stays outside: it does not come from "
                    f"{graph.nodes[start].label!r}, where the core begins"
                )
        self.targets = mine
        self.names = {name: self.names[name] for name in mine}
        self.needed = graph.ancestors(mine)
        self.classes = [index for index in self.classes if graph.nodes[index].inputs[0] in mine]

    def _none(self) -> str:
        graph = self.graph
        for index in sorted(self.needed):
            if graph.nodes[index].operator == "refused":
                return str(graph.nodes[index].attributes["why"])
        counted = Counter(node.kind for node in graph.nodes if not node.hidden)
        text = f"must have {graph.words.needed}, but there is none in it"
        holder = next((node for node in graph.nodes if node.attributes.get("holds")), None)
        if holder is not None:
            text += f" ({holder.attributes['holds']} inside {self._condition(holder)})"
        operators = listed(f"{name} ({count})" for name, count in counted.most_common())
        return f"{text}; it has {operators or 'no nodes'}"

    def _condition(self, node: Node) -> str:
        """Name a node with graphs inside, and say what to do about it."""
        if node.kind != "If":
            return f"{node.where}, which is not supported; export the model without it"
        tensor = node.inputs[0]
        cause = self.graph.producer(tensor)
        condition = repr(tensor) if cause is None else f"{tensor!r}, of {cause.where}"
        return (
            f"{node.where}, whose condition is {condition}; choose a branch with "
            f"`branches={(f'{node.label}:then',)!r}` or :else"
        )

    # The beginning

    def _begin(self) -> set[int]:
        """Begin at the model's input or at the first recurrent nodes; return the nodes before these."""
        if self.several:
            self._begin_with_all()
            return set()
        if not self.first and self.wanted:
            raise ModelError(
                "`begin` names a tensor in front of a recurrent layer, but the model has none; leave it out"
            )
        if not self.first:
            source = self._find_input()
            self._begin_with(source, self._plain(source))
            self.report.input = source
            return set()
        tensor = self.graph.nodes[self.first[0]].inputs[0]
        upstream = self.graph.ancestors([tensor])
        if self.wanted not in ("", tensor):
            self._begin_within(tensor, upstream)
        elif self.wanted:
            self._begin_at(tensor, upstream)
        elif not (
            self._begin_before(tensor, upstream)
            or self._begin_where_they_meet(tensor, upstream)
            or self._begin_where_read_again(tensor, upstream)
        ):
            offered = self._offered(tensor, upstream)
            self._begin_at(tensor, upstream)
            if offered:
                self.report.note(
                    f"the core can compute the convolutions in front of its input, too: from {offered!r} on, "
                    f"with `begin={offered!r}`"
                )
        return upstream

    def _begin_with_all(self) -> None:
        """Begin at several inputs of the model."""
        graph, several = self.graph, self.several
        reads = {name: [graph.nodes[at].operator for at in graph.consumers(name)] for name in several}
        looked_up = {name for name in several if "embedding" in reads[name]}
        along = [node.inputs[0] for node in graph.nodes if is_recurrent(node) or node.operator == "conv"]
        before = graph.ancestors(along)
        moving = {name for name in several if name in along or before & set(graph.consumers(name))}
        others = [name for name in several if name not in looked_up]
        rank = max(len(graph.shape(name)) + (not others) for name in others or several)
        known: dict[str, Known] = {}
        for name in several:
            value = self._plain(name)
            if name in looked_up:
                tags = graph.axes.get(name)
                value = Value(Flow.begin(), Axes(tags, 0) if tags else Axes.unknown(rank - 1))
            elif rank > 2 and (len(value.axes.tags) < rank or (self.still and name not in moving)):
                features = self.widths.get(name) or (graph.shape(name) or (0,))[-1] or 0
                value = Value(Flow.begin(features or None), Axes(("N", "F"), features), still=True)
            elif name in self.widths:
                value = replace(value, flow=Flow.begin(self.widths[name]))
            self.inputs[name] = value.flow.terms[0].source
            known[name] = value
        first = next((name for name in several if name in moving), several[0])
        self._begin_with(first, known[first])  # type: ignore[arg-type]
        self.known |= known
        self.report.input = listed(several)

    def data_inputs(self) -> list[str]:
        """The inputs of the model that its ends are computed from, but no states and no lengths."""
        graph = self.graph
        found, waiting = set(), list(self.targets)
        while waiting:
            name = waiting.pop()
            if name in found or graph.is_constant(name):
                continue
            found.add(name)
            node = graph.producer(name)
            if node is not None and node.operator not in _SIZES:
                first = is_recurrent(node) or node.operator == "pack" or self._chooses(node)
                data = node.inputs[:1] if first else node.inputs
                waiting += filter(None, node.inner if node.kind == "If" else (*data, *node.inner))
        return [name for name in graph.inputs if name in found]

    def _chooses(self, node: Node) -> bool:
        """Whether all but the first of what a node reads are lengths or indices."""
        return node.kind.lower() in _CHOOSING and not self.graph.is_constant(node.inputs[0])

    def _find_input(self) -> str:
        """Return the one input of the model to begin at."""
        read = self.data_inputs()
        if len(read) == 1:
            return read[0]
        names = listed(sorted(read))
        raise ModelError(one_input(f"the layers read {len(read)} inputs of the model: {names}"))

    def _plain(self, source: str) -> Value:
        """A tensor to begin at, of whose axes only the number is known."""
        shape = self.graph.shape(source) or (None,) * self._rank_of(source)
        tags = self.graph.axes.get(source)
        if tags is None:
            return Value(Flow.begin(), Axes.unknown(len(shape)))
        features = shape[tags.index("F")] or 0 if "F" in tags else 0
        return Value(Flow.begin(features or None), Axes(tags, features))

    def _rank_of(self, source: str) -> int:
        """How many axes the tensor has that the caller wants to begin at, as the layers behind it tell."""
        graph, ranks = self.graph, [0]
        for node in (graph.nodes[index] for index in self.first if source == self.wanted):
            ranks[0] = ranks[0] or len(node.attributes["axes"])
            found, rank = input_rank(
                lambda name: None if name == source else graph.producer(name), node.inputs[0], ranks[0]
            )
            ranks += [rank] * (found == source)
        return ranks[-1]

    def _begin_with(self, source: str, value: Value) -> None:
        """Register the tensor to begin at, and forget what was found from another one."""
        self.known, self.applied, self.fetched, self.embeddings = {source: value}, {}, set(), []
        self.beside = {}
        self.begin = source
        self.input_tags = value.axes.tags
        self.sizes = KnownSizes(self.graph, self.options.sequence_length or 0)
        self.sizes.begin(source, value.axes)

    def _begin_before(self, tensor: str, upstream: set[int]) -> bool:
        """Include the nodes before the first recurrent one, if the core can compute them from one input."""
        nodes = [self.graph.nodes[index] for index in upstream]
        sources = {name for node in nodes for name in node.inputs if name in self.graph.inputs}
        if self.options.lstm is not None or len(sources) != 1:
            return False
        source = sources.pop()
        try:
            return self._compute_front(source, tensor, upstream)
        except ModelError as error:
            # Numbers without their table are no use, and damage is no reason to begin elsewhere.
            if isinstance(error, WeightsError) or any(node.operator == "embedding" for node in nodes):
                raise
            self.front_problem = f" ({str(error).partition(';')[0]})"
        with contextlib.suppress(ModelError):  # What refuses the recurrent layer then names it.
            return self._visit_front(source, self._plain(source), tensor, upstream, whole=False)
        return False  # it stays outside

    def _begin_within(self, tensor: str, upstream: set[int]) -> None:
        """Begin at the tensor that is asked for; nodes before it stay outside."""
        source = self.wanted
        before = self.graph.ancestors([source])
        if not any(source in self.graph.nodes[index].inputs for index in upstream):
            label = self.graph.nodes[self.first[0]].label
            raise ModelError(
                f"`begin` must name a tensor on the way to the first recurrent layer, {label!r}, "
                f"but {source!r} is none; there are {listed(self._names_to(tensor, upstream))}"
            )
        if not self._compute_front(source, tensor, upstream - before):
            raise ModelError(f"nothing of the core is between {source!r} and {tensor!r}: begin at the latter")
        nodes = self._leave(before)
        self._note_outside(
            nodes, f"{source!r}", f", for the host to compute: {listed(node.kind for node in nodes)}"
        )

    def _names_to(self, tensor: str, upstream: set[int]) -> list[str]:
        """What ``begin`` may name on the way to a tensor and what it is made of, the nearest first."""
        graph, found = self.graph, dict[str, str]()
        read = {tensor, *(name for index in upstream for name in graph.reads(index))}
        of_nodes = (node.label for node in graph.nodes if not node.hidden)
        for name in (*graph.names.values(), *of_nodes, *graph.inputs, *sorted(read)):
            if not graph.is_constant(begun := self._named_begin(name)):
                found.setdefault(begun, name)
        return [found[each] for each in sorted(found.keys() & read, key=graph.index_of, reverse=True)]

    def _begin_where_they_meet(self, tensor: str, upstream: set[int]) -> bool:
        """Begin at the last tensor of which all that the first recurrent layers read is made, if they read
        several; whether the core can compute what is behind it."""
        graph = self.graph
        read = {graph.nodes[index].inputs[0] for index in self.first}
        if len(read) < 2 or self.options.lstm is not None:
            return False
        common = set[int].intersection(*(graph.ancestors([name]) | {graph.index_of(name)} for name in read))
        for index in sorted(common, reverse=True):
            if index >= 0 and self._all_made_of(source := graph.gives(index)[0], read):
                return self._begin_unasked(source, tensor, upstream)
        return False

    def _begin_where_read_again(self, tensor: str, upstream: set[int]) -> bool:
        """Begin where only moves of axes lead to the first recurrent layer, if a residual around it begins
        there; whether it does."""
        graph, source = self.graph, tensor
        while (node := graph.producer(source)) is not None and node.operator == "transpose":
            source = node.inputs[0]
        again = set(graph.consumers(source)) - upstream
        joined = graph.descendants(self.first) & (again | graph.descendants(again))
        if source == tensor or not joined & graph.ancestors(self.targets) or self.options.lstm is not None:
            return False
        return self._begin_unasked(source, tensor, upstream)

    def _begin_unasked(self, source: str, tensor: str, upstream: set[int]) -> bool:
        """Begin at a tensor that nobody named; whether the core can compute what is behind it."""
        self.wanted = source
        with contextlib.suppress(ModelError):
            self._begin_within(tensor, upstream)
            return True
        self.wanted = ""
        return False

    def _all_made_of(self, source: str, tensors: Collection[str]) -> bool:
        """Whether tensors are computed of a tensor and constants alone."""
        seen, waiting = {source}, list(tensors)
        while waiting:
            name = waiting.pop()
            if name in seen or self.graph.is_constant(name):
                continue
            seen.add(name)
            index = self.graph.index_of(name)
            if index < 0:
                return False
            waiting += self.graph.reads(index)
        return True

    def _offered(self, tensor: str, upstream: set[int]) -> str:
        """The earliest tensor from which only convolutions, and what may be between them, lead here."""
        found, name = "", tensor
        while (node := self.graph.producer(name)) is not None and may_be_between(node):
            name = node.inputs[0]
            found = name if node.operator == "conv" else found
        if found and self.options.lstm is None:
            with contextlib.suppress(ModelError):
                if self._compute_front(found, tensor, upstream - self.graph.ancestors([found])):
                    return found
        return ""

    def _compute_front(self, source: str, tensor: str, nodes: set[int]) -> bool:
        """Include nodes from ``source`` to the first recurrent layers; False if they compute nothing.

        A step is a vector at first; if the layers cannot read that, it has frames, for convolutions.

        Raises ModelError if the core cannot compute them; the message says why, of both if both may help.
        """
        convolved = any(self.graph.nodes[index].operator == "conv" for index in nodes)
        sizes = self.graph.shape(source, folded=True) if convolved else ()
        framed = list(begins_with_frames(sizes))
        refusals: list[tuple[int, int, ModelError]] = []
        for begin, frames in [(self._plain(source), 1), *framed]:
            try:
                found = self._visit_front(source, begin, tensor, nodes, whole=bool(framed))
            except WeightsError:
                raise
            except ModelError as error:
                refusals.append((self.visited, frames, error))
            else:
                self.frames = frames
                return found
        if not framed:
            unknown = f"; the file does not tell how many frames a step of {source!r} has" * (None in sizes)
            raise ModelError(f"{refusals[0][2]}{unknown}")
        (reached, _, said), *others = refusals
        at, frames, other = max(others, key=lambda one: one[0])
        if isinstance(other, FramesError) and (at < reached or is_recurrent(self.graph.nodes[at])):
            raise said
        why, *rest = str(said).split("; ")
        why += f", or, with the {frames} frames of {source!r} inside a step, {other}"
        raise ModelError("; ".join([why, *rest]))

    def _visit_front(self, source: str, begin: Value, tensor: str, nodes: set[int], *, whole: bool) -> bool:
        """Apply nodes to a tensor to begin at; ``whole`` with the recurrent layers behind them."""
        self._begin_with(source, begin)
        for index in sorted(nodes):
            self._visit(index)
        found = self.known.get(tensor)
        if not isinstance(found, Value):
            return False
        flow = found.flow
        flow.check_ahead(1)
        if not (flow.layers or flow.relu or not flow.plain or self.embeddings or self._only_moved(nodes)):
            return False
        for index in self.first if whole else ():
            self._fetch(index)
            self._visit(index)
        self.report.input = f"the output of {self.embeddings[0].name}" if self.embeddings else source
        return True

    def _only_moved(self, nodes: set[int]) -> bool:
        """Whether the recurrent layers can read the input through nodes that only move its axes."""
        applied = self.applied
        for index in self.first:
            self._fetch(index)
            try:
                self._visit(index)
            except ModelError as error:
                self.front_problem = f" ({str(error).partition(';')[0]})"
                return False
        return all(self.graph.nodes[index].operator in MOVES for index in nodes & applied.keys())

    def _leave(self, before: set[int]) -> list[Node]:
        """Leave nodes outside; return those that are no constants."""
        nodes = [self.graph.nodes[index] for index in sorted(before)]
        nodes = [node for node in nodes if not self.graph.is_constant(node.outputs[0])]
        for node in nodes:
            if not node.hidden:
                self.report.node(node.label, node.kind, "outside", "before the core")
        return nodes

    def _note_outside(self, nodes: list[Node], end: str, told: str) -> None:
        if nodes:
            note = f"{len(nodes)} nodes before {end}{LEFT_BEFORE}{told}{self.front_problem}"
            self.report.note("; ".join(filter(None, [note, self.graph.words.split])))

    def _begin_at(self, tensor: str, upstream: set[int]) -> None:
        """Begin with the first recurrent nodes; nodes before them stay outside."""
        self.frames = 1
        rank = len(self.graph.nodes[self.first[0]].attributes["axes"])
        self._begin_with(tensor, Value(Flow.begin(), Axes.unknown(rank)))
        self.report.input = tensor
        self._note_outside(self._leave(upstream), "the first recurrent layer", f": its input is {tensor!r}")
        for index in sorted(upstream):
            self._measure(index)
        for index in self.first:
            self._try(index)

    def _note_layout(self) -> None:
        """Record the order of the axes of the caller's data, as the layers have shown it."""
        why = self.graph.words.sequences_first
        node = self.graph.nodes[self.first[0]] if self.first else None
        if node is not None and node.attributes.get("why_sequences_first"):
            why = f"{node.where} {node.attributes['why_sequences_first']}"
        note_input_order(self._input_order(), why, self.report)

    # Node by node

    def _follows(self, index: int) -> bool:
        """Whether a node reads results of recurrent layers; nodes of the input alone are not the core's.

        If the model has none, all that is computed from its input is the core's.
        """
        node = self.graph.nodes[index]
        read = [self.known.get(name) for name in (*node.inputs, *node.inner)]
        return any(found is not None and not (self.first and found.flow.before) for found in read)

    def _fetch(self, reader: int) -> None:
        """Compute what a node reads beside a layer's results, from the input alone."""
        begin = self.known.get(self.begin)
        if isinstance(begin, Value) and begin.axes.waits and "F" in (order := self._input_order()):
            axes = begin.axes.settle(order, begin.flow.outputs or begin.axes.features, self.begin)
            self.known[self.begin] = replace(begin, axes=axes)
        for tensor in self.graph.nodes[reader].inputs:
            found, waiting = [], [tensor]
            while waiting:
                name = waiting.pop()
                node = self.graph.producer(name)
                if node is None or name in self.known or name in self.fetched or self.graph.is_constant(name):
                    continue
                self.fetched.add(name)
                found.append(self.graph.index_of(name))
                waiting += node.inputs
            for index in sorted(found):
                try:
                    self._visit(index)
                except ModelError as error:  # The node that reads it then reports the error.
                    self.beside[index] = f" ({str(error).partition(';')[0]})"

    def _try(self, index: int) -> None:
        """Visit a node and its other inputs; if it is refused, report everything up to it."""
        self._fetch(index)
        try:
            self._visit(index)
        except WidthError:
            raise
        except ModelError as error:
            for before, applied in sorted(self.applied.items()):
                self._report(before, applied)
            node = self.graph.nodes[index]
            self.report.node(node.label, node.kind, "refused", str(error))
            self.refused = node
            for at in sorted(self.needed):  # A model of two builds is divided there, not inside of one.
                if told := self._decodes(self.graph.nodes[at]):
                    self.refused = self.graph.nodes[at]
                    raise ModelError(told) from None
            kind = WeightsError if isinstance(error, WeightsError) else ModelError
            raise kind(self._with_end(str(error) + self._outside(node), node)) from None

    def _outside(self, node: Node) -> str:
        """Say what a refused node reads that stays outside of the core, and why."""
        for name in node.inputs:
            before = self.graph.ancestors([name]) if name not in self.known else set()
            reason = next((self.beside[index] for index in sorted(before) if index in self.beside), "")
            if before and not self.graph.is_constant(name) and (reason or self.front_problem):
                return f"; {name!r} stays outside of the core{reason or self.front_problem}"
        return ""

    def _with_end(self, text: str, node: Node) -> str:
        """Name the tensor to end at in a refusal: the last one before the node that can be an end."""
        if "`output=" in text or not (last := self._last_end(node)):
            return text
        end = f"to end before it, give `output={last!r}`"
        return text.replace(_CUT, end) if _CUT in text else f"{text}; {end}"

    def _last_end(self, node: Node) -> str:
        """The last tensor before a node that can be an end, if possible one that tells all behind it."""
        before = self.graph.ancestors(node.inputs)
        ends = [
            name
            for name, found in self.known.items()
            if self.graph.index_of(name) in before and isinstance(found, Value) and self._may_end(found)
        ]
        ends.sort(key=self.graph.index_of, reverse=True)
        return self._known_as(next(filter(self._tells_rest, ends), next(iter(ends), "")))

    def _known_as(self, tensor: str) -> str:
        """The name for `output` by which users know a tensor: a result's, or that of a module or layer."""
        node, named = self.graph.producer(tensor), not self.graph.words.end.startswith("a tensor")
        given = [self.graph.names.get(tensor, ""), node.label if node is not None and named else ""]
        return next((name for name in given if name and self._called(name) == [tensor]), tensor)

    def _tells_rest(self, end: str) -> bool:
        """Whether all that the model computes behind a tensor reads no other result of layers before it."""
        inside = self.graph.ancestors([end])
        read = {
            name
            for index in self.graph.ancestors(self.targets) - inside
            for name in self.graph.nodes[index].inputs
            if name and self.graph.index_of(name) in inside
        }
        found = [self.known.get(name) for name in read - {end}]
        return not any(isinstance(one, Value) and self._may_end(one) for one in found)

    def _may_end(self, found: Value) -> bool:
        """Whether a network can end at a value: it has layers, recurrent ones if the model has some."""
        whole = not (found.state or found.front or found.extra or found.packed or found.axes.lost)
        return whole and (
            not found.flow.before if self.first else bool(found.flow.layers or found.flow.dense)
        )

    def _visit(self, index: int) -> None:
        node, self.visited = self.graph.nodes[index], index
        self._measure(index)
        if index in self.applied or node.operator in _SIZES:
            return
        inputs: list[Known | None] = [self.known.get(name) for name in node.inputs]
        inner = next((name for name in node.inner if name in self.known), None)
        if inner is None and not any(inputs):
            return
        applied = self._apply(node, inputs, inner)
        self.applied[index] = applied
        for name, found in zip(node.outputs, applied.outputs, strict=False):
            if name and found is not None:
                self.known[name] = found

    def _measure(self, index: int) -> None:
        """Follow sizes of tensors through a node."""
        node = self.graph.nodes[index]
        found = self.known.get(next(iter(node.inputs), ""))
        self.sizes.measure(node, found.axes if isinstance(found, Value) else None)

    def _apply(self, node: Node, inputs: list[Known | None], inner: str | None) -> Applied:
        if inner is not None or node.kind == "If":
            tensor = inner or node.inputs[0]
            raise ModelError(f"after the LSTM {tensor!r} goes into {self._condition(node)}")
        stuck = [found for found in inputs if isinstance(found, State)]
        values = tuple(found if isinstance(found, Value) else None for found in inputs)
        step = Step(self.graph, node, values, self.sizes)
        if stuck and node.operator in ("gather", "select", "slice"):
            taken = take_states(step, stuck[0].parts)
            if taken is not None:
                return Applied((taken,), "shape")
        several = len(inputs) > 1 and all(isinstance(found, Value) and found.state for found in inputs)
        if node.operator in STATE_ONLY and several:
            joined = self._join_states(step)
            if isinstance(joined, Applied):
                return joined
            stuck = [joined]
        elif node.operator in STATE_ONLY and stuck:
            stuck = [replace(_deepest(stuck), parts=())]
        if node.operator in STATE_ONLY and stuck:
            return Applied((stuck[0],) * len(node.outputs), "state", "shapes and states")
        if stuck and not is_recurrent(node):
            raise ModelError(stuck[0].text.replace("{reader}", node.where))
        return self._apply_node(step)

    def _join_states(self, step: Step) -> Applied | State:
        """Final states that a node joins: features side by side, or layers of which one may be taken."""
        axis, tags = int(step.attributes().get("axis", 0)), step.values[0].axes.tags
        if -len(tags) <= axis < len(tags) and tags[axis] == "F":
            with contextlib.suppress(ModelError):  # Then only the driver returns them.
                return self._apply_node(step)
        text = f"{{reader}} reads several final states, which only the driver gives; {_CUT}"
        layers = axis == 0 and all(value.axes.tags[:1] in (("D",), ("B",)) for value in step.values)
        return State(text, _deepest(step.values).flow, tuple(step.values) if layers else ())

    def _apply_node(self, step: Step) -> Applied:
        """Apply a node that reads at least one value that the core computes.

        Raises ModelError if the node or one of its attributes is not supported; the message names it. Raises
        ConfigurationError if another package's operator raises something else, or returns no value; the
        message names it.
        """
        node, operator = step.node, step.node.operator
        if operator == "refused":
            raise ModelError(str(node.attributes["why"]))
        self._check_values(step)
        if operator == "embedding":
            return self._embed(step)
        step = check_frames(step)
        if is_recurrent(node):
            return self._recurrent(step)
        if operator in MOVES:
            moved = MOVES[operator](step)
            results = tuple(moved) if isinstance(moved, list) else (moved,)
            return Applied(results, "shape", notes=(*node.notes, *step.notes, *_LENGTHS.get(operator, ())))
        apply = LAYERS.get(operator) or ARITHMETIC.get(operator)
        if apply is not None:
            return Applied((apply(step),), "core", notes=(*node.notes, *step.notes))
        others = step.graph.offered
        if others is not None and operator in others:
            value = offered(others.label(operator), Value, lambda: others[operator](step))
            return Applied((value,), "core")
        raise ModelError(self._unsupported(step))

    def _check_values(self, step: Step) -> None:
        """Refuse steps that a convolution or packing has changed, where they are not read as such."""
        operator, where = step.node.operator, step.where
        for value in step.values:
            if value.front and operator not in _BEFORE_CONVOLUTION:
                raise ModelError(
                    f"{where} reads steps with zeros in front, which only a causal convolution may do; {_CUT}"
                )
            if value.packed and operator not in ("identity", "recurrent", "unpack"):
                raise ModelError(
                    f"{where} reads the PackedSequence of {value.packed}, which only recurrent modules and "
                    "pad_packed_sequence can read; pad it first, with torch.nn.utils.rnn.pad_packed_sequence"
                )
            several = next((tag for tag in value.axes.tags if tag in ("L", "S")), "")
            if several and operator not in MOVES and not is_recurrent(step.node):
                which = "-1" if several == "L" else "-2, its forward direction, or -1"
                raise ModelError(
                    f"{where} reads the final states of all layers, but the core gives the last layer's "
                    f"output; take element {which}"
                )

    def _unsupported(self, step: Step) -> str:
        node = step.node
        tensor = next(name for name, value in zip(node.inputs, step.inputs, strict=True) if value is not None)
        similar = listed(difflib.get_close_matches(node.kind, self.graph.words.supported.split(", ")))
        others = "docs/models.md lists what is" + f", such as {similar}" * bool(similar)
        text = node.attributes.get("advice", "")
        if node.operator in _CLASSES:
            text = "the host computes it, of the scores that a model ends in"
        front = all(value.flow.before for value in step.values) and self.first
        if front and self.options.lstm is None:
            label = self.graph.nodes[self.first[0]].label
            leave = f"to leave it outside of the core, give `lstm={label!r}`"
        elif tensor in self.graph.inputs:
            leave = (
                "to leave it outside of the core, compute it yourself, and give a model that begins behind it"
            )
        else:
            leave = f"to leave it outside of the core, end at `output={(self._last_end(node) or tensor)!r}`"
        separator = ":" if node.attributes.get("advice") else ";"
        said = "; ".join([text, leave] if text else [leave, others])
        return f"{node.where}, which reads {tensor!r}, is not supported{separator} {said}"

    def _decodes(self, node: Node) -> str:
        """Why a recurrent node is not in one build with that in whose final state it begins, if it does."""
        encoder = encoder_of(self.graph, node) if is_recurrent(node) and self.options.lstm is None else None
        if encoder is None:
            return ""
        return (
            f"{node.where} begins in the final state of {encoder.where}, as a decoder does: make two "
            f"builds, one with `output={encoder.label!r}`, one with `lstm={node.label!r}` that is "
            "calibrated from the first (`calibration_from`), and give the state that the first returns "
            "to the second"
        )

    def _recurrent(self, step: Step) -> Applied:
        value = step.inputs[0]
        if decodes := self._decodes(step.node):
            raise ModelError(decodes)
        if value is None:
            raise ModelError(
                f"{step.where} must read its input X ({step.node.inputs[0]!r}) from what the core computes, "
                f"but only another input does; {_CUT}"
            )
        if self.options.lstm is not None and step.node is self.graph.nodes[self.first[0]]:
            read = (step.node.inputs[0], "", "", *step.node.inputs[3:])  # The driver gives the state.
            step = replace(step, node=replace(step.node, inputs=read))
        return apply_recurrent(step, value, _CUT)

    def _embed(self, step: Step) -> Applied:
        """Read a table: the network begins after it."""
        value = step.only()
        if value.flow.layers or value.packed or not value.flow.plain:
            raise ModelError(f"{step.where} must read the model's input; the core does not look up")
        if self.embeddings and not self.several:
            both = f"{self.embeddings[0].name!r} and {step.label!r}"
            raise ModelError(one_input(f"{step.where} needs two inputs of the model at once, {both}"))
        table = step.constant(1, "its table")
        if table.ndim != 2:
            raise ModelError(f"{step.where} must have a table with 2 axes, not {table.ndim}")
        source = value.flow.terms[0].source
        which = next((name for name, each in self.inputs.items() if each is source), "")
        self.embeddings.append(Embedding(name=step.label, table=table, input=which))
        note = f"{step.where} is {LOOKED_UP}, in a table of {table.shape[0]} x {table.shape[1]}: {ROWS_READ}"
        width = table.shape[1]
        result = Value(Flow.begin(width), Axes((*value.axes.tags, "F"), width))
        if not self.several or step.node.inputs[0] == next(iter(self.known)):
            self.input_tags, self.begin = result.axes.tags, step.node.outputs[0]
        if which:
            self.inputs[which] = result.flow.terms[0].source
        why = f"{LOOKED_UP}: {table.shape}"
        return Applied((result,), "outside", why, (note, *step.node.notes))

    # The end

    def _end(self) -> tuple[str, Flow, tuple[OutputPart, ...]]:
        """The last tensor to end at, and all of each step side by side, with their parts."""
        found = {name: self.known[name] for name in self.targets if name in self.known}
        computed = {k: v for k, v in found.items() if isinstance(v, Value) and not v.state}
        whole = {k: v for k, v in found.items() if isinstance(v, Value)}
        ends = computed or whole or found
        if not ends:
            raise ModelError(
                f"what follows the LSTM must lead to {listed(map(repr, self.targets))}, but does not; {_CUT}"
            )
        last = max(ends, key=lambda name: self.graph.index_of(name))
        before = self.graph.ancestors([last])
        parts: dict[str, Flow] = {}
        axes: dict[str, Axes] = {}
        for name, end in ends.items():
            if isinstance(end, Value):
                self._check_end(name, end)
            aside = self.graph.index_of(name) not in before
            # An output may stand beside the last one if it is no state.
            fits = ends is computed and alike(computed[name].axes, computed[last].axes, aside=aside)
            if name == last or (fits and not is_state(end.flow, computed[name].axes)):
                parts[name] = end.flow
                if isinstance(end, Value):
                    axes[self.names[name]] = self.ends[name] = end.axes
            elif ends is computed and aside:
                raise ModelError(self._two_results(name, last))
            elif ends is computed and is_state(end.flow, computed[name].axes):
                self.report.note(f"the model's output {name!r} is a state; the driver gives it")
            elif ends is computed:
                self.report.note(
                    f"{name!r} is an output of the model too, but the core gives only the end of the chain"
                )
        note_steps({name: (one.last_step, one.first_step) for name, one in axes.items()}, self.report)
        note_output_orders(axes, self.report)
        for name in self.targets:
            if self.graph.is_constant(name):
                self.report.constant_output(self.names[name])
        for name in found:
            if name not in computed and not self.chosen:
                self.report.note(f"the model's output {name!r} is a state; the driver gives it")
        try:
            named = [(self.names[name], flow) for name, flow in parts.items()]
            return last, *join_outputs(named, self.report)
        except ModelError as error:
            other = next(name for name in ends if name != last)
            raise ModelError(f"{self._two_results(other, last)} ({error})") from None

    def _check_end(self, name: str, end: Value) -> None:
        """Refuse an end that the core cannot give, and note what lengths do to one that it gives."""
        if end.front:
            raise ModelError(f"{name!r} has {end.front} steps of zeros in front, which the core cannot give")
        if end.extra:
            raise ModelError(f"{name!r} has steps that a convolution padded; drop the last {end.extra} first")
        if end.packed:
            self.report.note("the output is a PackedSequence: the driver gives it padded, or packs it again")
        if end.padded and (not end.flow.plain or isinstance(end.flow.last, Dense)):
            self.report.note(
                "past the end of a sequence the core gives zeros, not what its last layers make of zeros"
            )

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
            before = self.known.get(node.inputs[0])
            if isinstance(before, Value):
                self._check_classes(node, before.axes)
            host = host_classes(node.operator, self.names.get(node.inputs[0], "") if apart else "")
            self.report.node(node.label, node.kind, "outside", host or "")
            self.report.note(host_note(node.where, host or ""))

    @staticmethod
    def _check_classes(node: Node, axes: Axes) -> None:
        """Check that an operator works over the features."""
        axis, rank = node.attributes.get("axis", -1), len(axes.tags)
        if not isinstance(axis, int):
            raise ModelError(f"{node.where}: dim must be given, the axis of the features; {_CUT}")
        if node.attributes.get("to_the_end") and axis not in (-1, rank - 1):
            why = node.attributes["to_the_end"]
            raise ModelError(
                f"{node.where} works along axis {axis} and those behind it ({why}); it must work over the "
                f"features; {_CUT}"
            )
        axes.expect_features_at(axis, node.where)

    # The rest

    def _report(self, index: int, applied: Applied) -> None:
        node = self.graph.nodes[index]
        if not node.hidden:
            for label, why in applied.layers or ((node.label, applied.why),):
                role = node.attributes.get("role", applied.role)
                self.report.node(label, node.kind, role, why or str(node.attributes.get("reason", "")))
        for note in applied.notes:
            self.report.note(note)
        self.report.state_inputs += applied.states

    def _report_rest(self, upstream: set[int]) -> None:
        graph = self.graph
        nodes = [graph.nodes[index] for index in sorted(self.applied)]
        states = [tensor for node in nodes if is_recurrent(node) for tensor in node.inputs[1:]]
        before, after = graph.ancestors(states), graph.descendants(self.applied)
        for index, node in enumerate(graph.nodes):
            done = index in self.applied or index in upstream or index in self.classes or node.hidden
            if done or graph.is_constant(node.outputs[0]):
                continue
            moved = index in after and node.operator in (*STATE_ONLY, *_SIZES)
            if moved or index in before or self.sizes.made(node):
                self.report.node(node.label, node.kind, "state", "shapes and states")
            else:
                why = "not on the way from the core's input to its output"
                self.report.node(node.label, node.kind, "outside", why)
                if index in self.needed:
                    self.report.note(f"{node.where} stays outside of the core")


def _deepest(found: Sequence[_Known]) -> _Known:
    """Return the value that is last in the chain; other layers' states come before it."""
    return max(found, key=lambda one: len(one.flow.layers))
