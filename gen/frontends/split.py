"""Finds where a model can be cut: in front of the core, and behind it.

A framework's graph says what stands on each side, and the reader what the core between them computes.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from rtlstm.gen.frontends import ReadOptions, ReadResult, _builder, _read
from rtlstm.gen.frontends.axes import Axes
from rtlstm.gen.frontends.graph import Node, Wiring
from rtlstm.gen.frontends.layers import Value
from rtlstm.gen.frontends.reader import Found, is_recurrent
from rtlstm.gen.frontends.reading import directions_of
from rtlstm.spec.errors import ModelError

Move = tuple[str, list[int]]
"""``select`` axis and index, ``transpose`` to an order of axes, or ``unsqueeze`` an axis; ``rows``: all axes
but the features are steps, or these again as they were."""


_ROWS = ("*", "F")


@dataclass(frozen=True)
class Order:
    """The axes of a tensor of the model: T, N and F, each at most once, and 1 for one of size 1.

    Dense layers alone read any axes in front of F, which are ``*``. ``step`` is ``last`` or ``first`` if it
    is that step alone.
    """

    tags: tuple[str, ...]
    step: str = ""

    @classmethod
    def of(cls, axes: Axes) -> "Order | None":
        """That of a tensor of the core; None if it is more than a reordering of what the core gives."""
        tags = tuple("1" if tag == "D" else tag for tag in axes.tags)
        if len(tags) > 1 and tags[-1] == "F" and all(tag[0] == "?" for tag in tags[:-1]):
            return cls(_ROWS)
        squeezed = bool(axes.squeezed) and axes.features == 1
        named = [tag for tag in tags if tag != "1"]
        plain = len(set(named)) == len(named) and {*named} <= {"T", "N", "F"}
        if axes.lost or not plain or ("F" in tags) == squeezed:
            return None
        return cls(tags, "last" if axes.last_step else "first" if axes.first_step else "")

    @property
    def sequences_first(self) -> bool:
        """Whether sequences are before steps."""
        return {"N", "T"} <= set(self.tags) and self.tags.index("N") < self.tags.index("T")

    def run_tags(self, *, last: bool = False) -> tuple[str, ...]:
        """The axes of what the driver takes for such a tensor, and of what it then gives."""
        order = "NTF" if self.sequences_first else "TNF"
        left = {"F", *("T" * (not last)), *({"N"} & set(self.tags))}
        return tuple(tag for tag in order if tag in left)

    def unbatched(self) -> "Order":
        """The same without an axis of sequences."""
        return replace(self, tags=tuple(tag for tag in self.tags if tag != "N"))

    def to_run(self) -> list[Move]:
        """Make what the driver takes of such a tensor."""
        if self.tags == _ROWS:
            return [("rows", [])]
        moves, tags = _selected(list(self.tags), {"1"}, 0)
        if "T" not in tags:
            moves.append(("unsqueeze", [0]))
            tags.insert(0, "T")
        return [*moves, *_transposed(tags, self.run_tags())]

    def from_run(self, tags: Sequence[str]) -> list[Move]:
        """Make such a tensor of what the driver gives with these axes."""
        if self.tags == _ROWS:
            return [("rows", [])]
        dropped = {tag for tag in tags if tag not in self.tags}
        moves, left = _selected(list(tags), dropped & {"T"}, -1 if self.step == "last" else 0)
        more, left = _selected(left, dropped, 0)
        wanted = [tag for tag in self.tags if tag in left]
        new: list[Move] = [("unsqueeze", [at]) for at, tag in enumerate(self.tags) if tag not in left]
        return [*moves, *more, *_transposed(left, wanted), *new]


def _selected(tags: list[str], which: set[str], index: int) -> tuple[list[Move], list[str]]:
    """Take one element of each of these axes; also return the axes that are left."""
    moves: list[Move] = []
    for at in reversed(range(len(tags))):
        if tags[at] in which:
            moves.append(("select", [at, index]))
            tags = tags[:at] + tags[at + 1 :]
    return moves, tags


def _transposed(tags: Sequence[str], wanted: Sequence[str]) -> list[Move]:
    return [] if list(tags) == list(wanted) else [("transpose", [tags.index(tag) for tag in wanted])]


@dataclass(frozen=True, eq=False)
class End:
    """A tensor that the core gives, and the features of the core's output that it has."""

    tensor: str
    features: slice
    order: Order


def last_of(end: End, tensor: str) -> End:
    """The last step of what the core gives, which is a tensor of the model, too."""
    return End(tensor, end.features, Order(tuple(tag for tag in end.order.tags if tag != "T"), "last"))


@dataclass(frozen=True, eq=False)
class Cut:
    """A part of a model that the core computes.

    ``begin`` is the tensor that it reads, and ``ends`` are those that it gives. ``recurrent`` has its
    recurrent nodes, and of each the numbers of its layers in a state of the driver. ``begun`` says that the
    build knows the state in which the model begins.
    """

    read: ReadResult
    begin: str
    order: Order
    ends: tuple[End, ...]
    recurrent: tuple[tuple[Node, tuple[int, ...]], ...]
    begun: bool

    def ranks(self, part: int, numbers: Sequence[int]) -> list[int]:
        """Return the places of layers among those that have an h (``part`` 0), or a c (1)."""
        layers = self.read.network.pseudo_layers
        those = [at for at, layer in enumerate(layers) if part == 0 or layer.kind == "lstm"]
        return [those.index(at) for at in numbers]


Plan = TypeVar("Plan")


def find_cut(source: Any, options: ReadOptions, name: str | None, plan: Callable[[Cut], Plan]) -> Plan:
    """Read as much of a model as the core can compute, and as the model can be cut around; plan that cut.

    The core begins as the reader begins, or else with the first recurrent layer. Without ``output`` it ends
    as late as possible. ``plan`` raises a ModelError if the model cannot be cut there.

    Raises ModelError if nothing can be cut out: what was said first.
    """
    problems: list[str] = []
    reasons: list[str] = []
    asked = options
    while True:
        made, found = _try(source, asked, name, plan, problems, reasons)
        if made is not None:
            return made
        for tensor in _candidates(found) if options.output is None else ():
            made, _ = _try(source, asked.replace(output=tensor), name, plan, problems, reasons)
            if made is not None:
                return made
        nodes = [] if found is None else [node for node in found.graph.nodes if is_recurrent(node)]
        if not nodes or asked.lstm is not None or asked.begin is not None:
            # What the refusal says of splitting has just been tried.
            split = "" if found is None else found.graph.words.split
            told = problems[0].replace(f"; {split}", "") if split else problems[0]
            raise ModelError("; it cannot be split either: ".join([told, *reasons[:1]]))
        asked = asked.replace(lstm=nodes[0].label)


def _try(
    source: Any,
    options: ReadOptions,
    name: str | None,
    plan: Callable[[Cut], Plan],
    problems: list[str],
    reasons: list[str],
) -> tuple[Plan | None, Found | None]:
    """The plan of a cut, and what was found. Without one, ``problems`` gets why, and ``reasons`` of a cut."""
    report, cut = _builder(source, name), None
    try:
        cut = _cut(_read(source, options, report), report.found, options)
        return plan(cut), report.found
    except ModelError as error:
        problems.append(str(error))
        reasons += [] if cut is None else [str(error)]
    return None, report.found


def _candidates(found: Found | None) -> list[str]:
    """The tensors to end at, the last ones first."""
    if found is None:
        return []
    recurrent = any(map(is_recurrent, found.graph.nodes))
    names = [
        name
        for name, value in found.values.items()
        if isinstance(value, Value)
        and not (value.state or value.front or value.extra or value.padded)
        and (value.flow.layers or value.flow.dense)
        and not (recurrent and value.flow.before)
        and Order.of(value.axes) is not None
    ]
    return sorted(names, key=found.graph.index_of, reverse=True)


def _cut(read: ReadResult, found: Found | None, options: ReadOptions) -> Cut:
    """The cut of what was read. Without ``output``, no layer may read padding, where the core gives zeros.

    Raises ModelError if there is none.
    """
    if found is None:
        raise ModelError("a model must have a graph to be split; give this one to rtlstm.compile")
    if read.network.input_parts:
        raise ModelError("a core that is split off reads one tensor")
    order, graph = Order.of(Axes(found.axes, 0)), found.graph
    if order is None:
        raise ModelError(f"the core's input {found.begin!r} is more than a reordering of sequences")
    reads = [node.inputs[0] for node in found.recurrent[:1]]
    inside = graph.ancestors(reads) - graph.ancestors([found.begin])
    if any(graph.nodes[index].operator == "pack" for index in inside):
        raise ModelError("the model packs sequences behind the core's input")
    if not found.ends:
        raise ModelError("the model gives final states alone")
    ends, first = [], 0
    widths = [part.width for part in read.network.parts] or [read.network.outputs]
    for (tensor, axes), width in zip(found.ends.items(), widths, strict=True):
        its, value = Order.of(axes), found.values[tensor]
        if its is None or (options.output is None and isinstance(value, Value) and value.padded):
            raise ModelError(f"{tensor!r} is more than a reordering of what the core gives")
        ends.append(End(tensor, slice(first, first + width), its))
        first += width
    names = [layer.name for layer in read.network.pseudo_layers]
    recurrent = []
    for node in found.recurrent:
        layers = node.attributes["layers"]().layers
        ours = [one.name for each in layers for one in directions_of(each)]
        if any(names.count(name) != 1 for name in ours):
            raise ModelError(f"the layers of {node.where} are not the core's as they stand")
        recurrent.append((node, tuple(map(names.index, ours))))
    begun = options.lstm is None and not read.report.state_inputs
    return Cut(read, found.begin, order, tuple(ends), tuple(recurrent), begun)


def between(
    wiring: Wiring[Any], read: ReadResult, begin: str, ends: Iterable[str], is_size: Callable[[int], bool]
) -> set[int]:
    """Return the nodes that compute the core's results from its input, as those of a loop over steps.

    ``is_size`` says which nodes only tell how large a tensor is.

    Raises ModelError if the loop begins in a state that the model is given.
    """
    if read.report.state_inputs:
        raise ModelError("the state in which a loop begins is an input, so the model cannot be cut there")
    data, found = {begin}, set[int]()
    for at in range(len(wiring.nodes)):
        if not data.isdisjoint(wiring.reads(at)) and not is_size(at):
            data |= {*wiring.gives(at)}
            found.add(at)
    return found & wiring.ancestors(ends)


def in_front(wiring: Wiring[Any], core: set[int], tensors: Iterable[str]) -> set[int]:
    """Return the nodes in front of the core that tensors need.

    Raises ModelError if one of these depends on the core.
    """
    found = wiring.ancestors(tensors)
    if found & (core | wiring.descendants(core)):
        raise ModelError("a state in which the core begins depends on the core itself; end before that")
    return found


def divide(
    wiring: Wiring[Any], core: set[int], given: set[str], wanted: Sequence[str]
) -> tuple[set[int], tuple[str, ...]]:
    """Return the nodes behind the core that tensors need, and what these read from in front of the core.

    ``core`` are the nodes whose results the core alone has, and ``given`` what it gives of them.

    Raises ModelError if another of their results is needed.
    """
    behind = core | wiring.descendants(core)
    inside: set[int] = set()
    past: dict[str, None] = {}
    waiting = list(wanted)
    while waiting:
        name = waiting.pop()
        at = wiring.index_of(name)
        if name in given or not name:
            continue
        if at in core:
            raise ModelError(
                f"the core must give all that is read behind it, but {name!r}, which is inside, is read "
                f"there: end at `output={name!r}`, or leave `output` out"
            )
        if at not in behind and not wiring.is_constant(name):
            past[name] = None
        elif at >= 0 and at not in inside:
            inside.add(at)
            waiting += wiring.reads(at)
    return inside, tuple(sorted(past, key=lambda name: (wiring.index_of(name), name)))
