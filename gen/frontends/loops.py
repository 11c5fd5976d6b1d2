"""Loops over the steps: what one step computes becomes layers of the whole sequence.

An exporter that unrolls a loop writes each step's nodes anew. They are recognised by what they read: steps of
one tensor, each with the results of the step before. A Scan has the nodes of one step as its body.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from rtlstm.gen.frontends.arrays import Floats, fresh, listed
from rtlstm.gen.frontends.bodies import NO_CORE, join_bodies, sorted_graph
from rtlstm.gen.frontends.cells import join_cells
from rtlstm.gen.frontends.forms import Forms
from rtlstm.gen.frontends.graph import Graph, Node, Recurrent, input_rank
from rtlstm.gen.frontends.layers import DENSE
from rtlstm.gen.frontends.recurrent import reset_advice
from rtlstm.spec.errors import ConfigurationError, ModelError

_FEWEST: Final = 3
"""Steps that an unrolled loop must have to be recognised: the first may differ, for its states are zeros."""
_END: Final = 2**31 - 1
"""An index beyond the end of any axis."""
_LINEAR: Final = ("cast", "div", "identity", "mul", "neg", "slice", "split", "squeeze", "unsqueeze", *DENSE)
_LIMITS: Final = (("starts", 1), ("ends", 2), ("steps", 4))
_LAYOUTS: Final = (("T", "N", "F"), ("N", "T", "F"))
"""The axes of a sequence, by that of its steps."""


class LoopError(ModelError):
    """It is known what each step of a loop computes, and the core cannot compute that."""


@dataclass(frozen=True, eq=False)
class Loop:
    """What one step computes, and where it stands in a sequence.

    ``body`` reads steps of sequences, and old states, and gives its outputs. ``xs`` has the sequence of each
    of these steps, ``states`` the new value of each old state, ``begins`` the tensor in which it begins;
    empty for zeros.
    """

    body: Graph
    xs: Mapping[str, str]
    states: Mapping[str, str]
    begins: Mapping[str, str]
    axis: int
    backward: bool = False
    node: Node | None = None
    """The node that is the loop, if there is one: its name is that of the only cell."""


def lifted(loop: Loop, taken: Graph, prefix: str = "") -> tuple[list[Node], dict[str, str], list[str]]:
    """The nodes of a loop on whole sequences, what each tensor of a step became, and notes.

    A new state became the sequence of its values, but a c the final one.

    Raises ModelError, ConfigurationError if a state is none of a cell.
    """
    ends = list(loop.body.outputs)
    news = list(loop.states.values())
    body = loop.body.with_nodes([each for node in loop.body.nodes for each in _of_one_step(loop.body, node)])
    body = replace(body, outputs=list(dict.fromkeys([*ends, *news])))
    body = body.with_nodes([body.nodes[at] for at in sorted(body.ancestors(body.outputs))])
    copies = {
        name: old
        for node in body.nodes
        for name in node.outputs
        if node.operator == "identity"
        and (old := body.behind(name, "identity")) in loop.states
        and name not in body.outputs
    }
    kept = [node for node in body.nodes if copies.keys().isdisjoint(node.outputs)]
    body = body.with_nodes(
        [replace(n, inputs=tuple(copies.get(name, name) for name in n.inputs)) for n in kept]
    )
    body, notes, _ = join_cells(body, loop.xs)
    states = _own_states(body, loop.states)
    body, more = join_bodies(replace(body, outputs=ends), states)
    for node in body.nodes:
        first = node.inputs[:1] if node.operator == "recurrent" else node.inputs
        delayed = next((name for name in first if name in loop.states), "")
        if delayed:
            raise ModelError(
                f"{node.where} reads the old state {delayed!r}, which only its cell can; let it read the new "
                f"value, {loop.states[delayed]!r}"
            )
    read = {name for node in body.nodes for name in node.inputs}
    for old, begin in loop.begins.items():
        if begin and old not in read:
            raise ModelError(
                f"the state {old!r} begins in {begin!r}, but states that are kept side by side must begin in "
                "zeros; make one state of them, with torch.cat"
            )
    names = dict(loop.xs)
    nodes: list[Node] = []
    for node in body.nodes:
        if body.is_constant(node.outputs[0]):
            continue
        if node.operator == "gemm" and not _is_linear(node):
            raise ModelError(f"{node.where} must have transB=1, alpha=1 and beta=1 in a loop")
        for name in filter(None, node.outputs):
            names[name] = fresh(
                f"{prefix}{name}.steps", lambda free: taken.is_tensor(free) or free in names.values()
            )
        nodes.append(_on_sequences(node, loop, names))
    return nodes, names, [*notes, *more]


def _of_one_step(body: Graph, node: Node) -> list[Node]:
    """A node, or the cell that a layer is which goes through a sequence of one step."""
    given = node.attributes
    if node.operator != "recurrent" or "T" not in given["axes"]:
        return [node]
    maker = body.producer(node.inputs[0])
    made = maker is not None and maker.operator == "unsqueeze" and body.numbers(maker, "axes", 1)
    if made != [given["axes"].index("T")]:
        raise ModelError(f"{node.where} goes through steps inside of a step")
    y, h, *c = [*node.outputs, "", ""][:3]
    inputs = [body.behind(name, "squeeze", "unsqueeze") for name in node.inputs[:3]]
    cell = replace(
        node,
        inputs=(*inputs, *node.inputs[3:]),
        outputs=(y or h, "", *c),
        attributes={**given, "axes": ("N", "F"), "y_axes": ("N", "F")},
    )
    return [cell, *([replace(cell, operator="identity", inputs=(y,), outputs=(h,))] if y and h else [])]


def _own_states(body: Graph, states: Mapping[str, str]) -> dict[str, str]:
    """The states that no recurrent node has yet; those of recurrent nodes must be what these give."""
    left = dict(states)
    for node in body.nodes:
        if node.operator != "recurrent":
            continue
        given = [*node.inputs, "", ""]
        for old, at in ((given[1], 0), (given[2], 2)):
            old = body.behind(old, "identity", "squeeze", "unsqueeze") if old else ""
            if old not in left:
                if old:
                    why = f"{node.where} begins each step in {old!r}, which is no state of the loop"
                    attach = body.words.attach.format(part=node.label)
                    raise ModelError(f"{why}; {reset_advice(body, old) or attach or NO_CORE}")
                continue
            new = body.behind(left.pop(old), "identity", "squeeze", "unsqueeze")
            results = [
                name for name in (node.outputs[0], *node.outputs[at : at + 1], *node.outputs[1:2]) if name
            ]
            if new not in results:
                raise ModelError(
                    f"{node.where} reads the state {old!r}, whose new value {new!r} is not what it gives; "
                    "keep what the cell gives, and compute with it behind the loop; if a mask ends each "
                    "sequence, give the driver the lengths, run(x, lengths)"
                )
    return left


def _on_sequences(node: Node, loop: Loop, names: Mapping[str, str]) -> Node:
    """The same node for all steps at once, whose features stay the last axis."""

    def renamed(name: str) -> str:
        return loop.begins.get(name, names.get(name, name))

    given = dict(node.attributes)
    if node.operator == "recurrent" and loop.node is not None:
        node = replace(node, label=loop.node.label, kind=loop.node.kind, noun=loop.node.noun)
    if node.operator == "gemm":  # which reads two axes alone
        return replace(
            node,
            operator="linear",
            inputs=(*map(renamed, node.inputs[:1]), *node.inputs[1:]),
            outputs=(names[node.outputs[0]],),
            attributes={},
        )
    if node.operator == "recurrent":
        layers = given["layers"]
        given |= {
            "axes": _LAYOUTS[loop.axis],
            "h_axes": ("N", "F"),
            "layers": lambda: _directed(layers(), loop),
            "unchecked_states": loop.node is not None,
        }
        given.pop("loop", None)
        given.pop("y_axes", None)
        if loop.axis:
            given["why_sequences_first"] = "reads steps of the second axis"
    if node.operator in ("squeeze", "unsqueeze"):
        return replace(
            node, operator="identity", inputs=(renamed(node.inputs[0]),), outputs=(names[node.outputs[0]],)
        )
    if given.get("axis") in (1, -1):
        given["axis"] = -1
    elif "axis" in given:
        raise ModelError(f"{node.where} must work along the features, axis 1 of a step, not {given['axis']}")
    if node.operator == "slice" and "axes" in given:
        given["axes"] = [-1 if axis == 1 else axis for axis in given["axes"]]
    inputs = tuple(renamed(name) if name else "" for name in node.inputs)
    outputs = tuple(names[name] if name else "" for name in node.outputs)
    return replace(node, inputs=inputs, outputs=outputs, attributes=given)


def _is_linear(node: Node) -> bool:
    """Whether a Gemm multiplies with (outputs, inputs) as PyTorch's Linear does."""
    given = node.attributes
    plain = given.get("alpha", 1.0) == 1.0 and given.get("beta", 1.0) == 1.0 and not given.get("transA", 0)
    return plain and bool(given.get("transB", 0))


def _directed(read: Recurrent, loop: Loop) -> Recurrent:
    name: dict[str, Any] = {} if loop.node is None else {"name": loop.node.label}
    layers = tuple(layer.replace(reverse=loop.backward, **name) for layer in read.layers)
    return replace(read, layers=layers)


def final_states(nodes: list[Node], names: Mapping[str, str], wanted: Mapping[str, str]) -> Iterator[Node]:
    """The nodes with final states: ``wanted`` has the name of that of each new state."""
    for node in nodes:
        given = [*node.outputs, "", "", ""][:3]
        if node.operator == "recurrent":
            for new, final in wanted.items():
                if final and names.get(new) == given[0]:
                    given[1] = final
                elif final and names.get(new) == given[2]:
                    given[2] = final
            node = replace(node, outputs=tuple(given))
        yield node


# Loops that an exporter has unrolled


def join_loops(graph: Graph) -> tuple[Graph, tuple[str, ...], tuple[ModelError, ...]]:
    """Put layers in place of loops that are unrolled.

    Returns the graph, notes, and why loops stay as they are; cells in such a loop then say so, too. If it is
    known what the steps of some compute, only those are told.
    """
    notes: list[str] = []
    problems: list[ModelError] = []
    found: tuple[Graph, list[str]] | None = graph, []
    while found is not None:
        graph, more = found
        notes, problems = [*notes, *more], []
        found = _first_loop(graph, problems)
    if graph.unrolled and not notes:
        needed = [graph.nodes[at] for at in sorted(graph.ancestors(graph.outputs))]
        refused = [str(node.attributes["why"]) for node in needed if node.operator == "refused"]
        alone = "it has a loop whose steps read nothing of each other; give the module whole tensors instead"
        raise ModelError([*refused, *map(str, problems), alone][0])
    nodes = [_refusing(node) if node.attributes.get("loop") else node for node in graph.nodes]
    known = [each for each in problems if isinstance(each, LoopError)]
    return graph.with_nodes(nodes), tuple(notes), tuple(known or problems)


def takes_step(graph: Graph, node: Node) -> bool:
    """Whether a node takes one step of a tensor, or what might be one."""
    return any(axis in (0, 1) for axis, _, _ in _taken(graph, node))


def _first_loop(graph: Graph, problems: list[ModelError]) -> tuple[Graph, list[str]] | None:
    """The graph with layers in place of one loop, and notes; None if no more can be read."""
    for axis, sources in _sequences(graph):
        why: list[Exception] = []
        for delayed in (True, False):
            try:
                found = _Unrolled(graph, axis, sources, delayed).joined()
            except (ModelError, ConfigurationError, RecursionError) as error:
                why.append(error)
                continue
            if found is not None:
                return found
            break
        if why:
            kind = LoopError if isinstance(why[0], LoopError) else ModelError
            text = f"the loop over the steps of {listed(map(repr, sources))} is not read: {why[0]}"
            problems.append(kind(text))
    return None


def _refusing(node: Node) -> Node:
    def layers() -> Recurrent:
        raise ModelError(f"{node.where}: {node.attributes['loop']}")

    return replace(node, attributes={**node.attributes, "layers": layers})


Steps = list[str]
"""What one step after the other takes of a tensor."""


def _sequences(graph: Graph) -> Iterator[tuple[int, dict[str, Steps]]]:
    """Tensors that are read step by step, those together that one loop may go through, and the axis of steps.

    What takes the same step again is left out.
    """
    found: dict[tuple[str, int], dict[int, str]] = {}
    for node in graph.nodes:
        for axis, index, name in _taken(graph, node):
            if index >= 0:
                found.setdefault((_whole(graph, node.inputs[0]), axis), {}).setdefault(index, name)
    groups: list[tuple[int, dict[str, Steps]]] = []
    for (source, axis), steps in found.items():
        whole = len(steps) > 1 and sorted(steps) == [*range(len(steps))]
        if axis not in (0, 1) or not whole or graph.is_constant(source):
            continue
        taken = [steps[index] for index in range(len(steps))]
        before = graph.ancestors([source])
        for other, group in groups:
            same = other == axis and all(len(each) == len(taken) for each in group.values())
            if same and all(graph.index_of(name) not in before for each in group.values() for name in each):
                group.setdefault(source, taken)
                break
        else:
            groups.append((axis, {source: taken}))
    yield from groups
    for axis, group in groups:
        if len(group) > 1:
            yield from ((axis, {source: taken}) for source, taken in group.items())


def _once(graph: Graph, axis: int, sources: Mapping[str, Steps]) -> Graph:
    """The graph in which each step of the sources is taken once."""
    names: dict[str, str] = {}
    for node in graph.nodes:
        for at, index, name in _taken(graph, node):
            steps = sources.get(_whole(graph, node.inputs[0]), ())
            if at == axis and 0 <= index < len(steps):
                names[name] = steps[index]
    nodes = [replace(n, inputs=tuple(names.get(name, name) for name in n.inputs)) for n in graph.nodes]
    return graph.with_nodes(nodes)


def _whole(graph: Graph, tensor: str) -> str:
    """What a tensor is all of: exporters take all elements of an axis before they take one of another."""
    while (node := graph.producer(tensor)) is not None and node.operator in ("identity", "slice"):
        starts, ends, steps = (graph.numbers(node, *each) for each in _LIMITS)
        part = starts != [0] or not ends or ends[0] < _END or steps not in (None, [1])
        if node.operator == "slice" and part:
            break
        tensor = node.inputs[0]
    return tensor


def _taken(graph: Graph, node: Node) -> Iterator[tuple[int, int, str]]:
    """The axis and index of a single element that a node takes of a tensor, and the result."""
    given = node.attributes
    if node.operator == "select":
        yield int(given["axis"]), int(given["index"]), node.outputs[0]
    elif node.operator == "gather" and len(node.inputs) > 1:
        index = graph.constant(node.inputs[1])
        if index is not None and np.size(index) == 1:
            yield int(given.get("axis", 0)), int(np.reshape(index, ())), node.outputs[0]
    elif node.operator == "slice":
        names = enumerate(("starts", "ends", "axes"), start=1)
        starts, ends, axes = (graph.numbers(node, name, at) for at, name in names)
        if starts and ends and axes and len(axes) == 1 and ends[0] - starts[0] == 1:
            yield axes[0], starts[0], node.outputs[0]
    elif node.operator == "split":
        sizes = graph.numbers(node, "split", 1)
        if sizes is None or set(sizes) == {1}:
            for at, name in enumerate(node.outputs):
                yield int(given.get("axis", 0)), at, name


class _Unrolled:
    """A loop whose steps stand one after the other; ``sources`` are what it takes a step of in each.

    ``delayed``: what only the next step reads is computed there; else what it makes of the state alone.
    """

    def __init__(self, graph: Graph, axis: int, sources: Mapping[str, Steps], delayed: bool) -> None:
        graph = _once(graph, axis, sources)
        graph = graph.with_nodes([graph.nodes[at] for at in sorted(graph.ancestors(graph.outputs))])
        self.graph, self.sources, self.axis = graph, tuple(sources), axis
        steps = [*map(list, zip(*sources.values(), strict=True))]
        first, last = (
            {at for name in names for at in graph.consumers(name)} for names in (steps[0], steps[-1])
        )
        self.backward = len(graph.descendants(last)) > len(graph.descendants(first))
        self.steps = steps[::-1] if self.backward else steps
        self.level: dict[str, int] = {}
        self.firsts = {name: at for at, names in enumerate(self.steps) for name in names}
        levels: list[int] = []
        for node in graph.nodes:
            levels.append(max((self.level.get(name, -1) for name in node.inputs), default=-1))
            self.level |= {name: self.firsts.get(name, levels[-1]) for name in node.outputs}
        self._postpone(levels, delayed)
        self.nodes: list[list[Node]] = [[] for _ in steps]
        for node, level in zip(graph.nodes, levels, strict=True):
            if level >= 0:
                self.nodes[level].append(node)
        self.states: dict[str, str] = {}
        self.begins: dict[str, str] = {}
        self.images: list[dict[str, str]] = [{} for _ in steps]
        self.changes: dict[str, Floats] = {}
        """By how much constants of the second step are more in each further one."""

    def _postpone(self, levels: list[int], delayed: bool) -> None:
        """Move what only the next step reads there, where that step computes it of the state.

        That is what is made of values behind which a step's results are, and what is linear in one tensor.
        """
        graph, last = self.graph, len(self.steps) - 1
        given: set[int] = set()
        results = [name for node in graph.nodes if self._may_collect(node) for name in node.inputs]
        for name in [*results, *graph.outputs]:
            given |= {at for at in graph.ancestors([name]) if levels[at] == self.level.get(name, -1)}
        consumers = [
            {each for name in node.outputs for each in graph.consumers(name)} for node in graph.nodes
        ]
        moved: set[int] = set()
        for at, node in enumerate(graph.nodes if delayed else ()):
            mine = [name for name in node.inputs if self.level.get(name, -1) == levels[at]]
            free = (
                0 <= levels[at] < last and at not in given and not self.firsts.keys() & {*node.outputs, *mine}
            )
            if free and consumers[at] and all(graph.index_of(name) in given | moved for name in mine):
                moved.add(at)
        while stuck := {
            at for at in moved if any(levels[o] == levels[at] and o not in moved for o in consumers[at])
        }:
            moved -= stuck
        for at in moved:
            levels[at] += 1
        for at, node in reversed([*enumerate(graph.nodes)]):
            level = levels[at]
            mine = [n for n in node.inputs if self.firsts.get(n, levels[max(0, graph.index_of(n))]) == level]
            mine = [name for name in mine if graph.index_of(name) >= 0]
            free = 0 <= level < last and at not in given and not self.firsts.keys() & {*node.outputs, *mine}
            if not free or not mine or {levels[each] for each in consumers[at]} != {level + 1}:
                continue
            read = [{levels[each] for each in graph.consumers(name)} for name in mine]
            anyway = delayed and node.operator != "recurrent" and all(level + 1 in each for each in read)
            if (node.operator in _LINEAR and len(mine) == 1) or node.operator == "concat" or anyway:
                levels[at] = level + 1
        self.level |= {
            name: level
            for node, level in zip(graph.nodes, levels, strict=True)
            for name in node.outputs
            if name not in self.firsts
        }

    def _may_collect(self, node: Node) -> bool:
        stacks = node.operator in ("stack", "concat") or (
            node.operator == "refused" and "axis" in node.attributes
        )
        return stacks and len(node.inputs) == len(self.steps)

    def joined(self) -> tuple[Graph, list[str]] | None:
        """The graph with layers in place of the steps, and notes; None if no step reads another's results."""
        pattern = self.nodes[1]
        crossing = any(self.level.get(name, -1) == 0 for node in pattern for name in node.inputs)
        if not crossing:
            return None
        if len(self.steps) < _FEWEST:
            if not any(_same_layer(node, other) for node in pattern for other in self.nodes[0]):
                return None  # Two parts of a state, or two lengths.
            raise ModelError(
                f"it has {len(self.steps)} steps, but {_FEWEST} are needed to tell what a step is; export "
                "the model with a longer sequence"
            )
        self.pattern = pattern
        self.images[1] = {name: name for node in pattern for name in node.outputs}
        self.images[1] |= {name: name for name in self.steps[1]}
        for at in range(2, len(self.steps)):
            self._follow(at)
        for node in pattern:
            for name in node.inputs:
                if self.level.get(name, -1) == 0 and name not in self.states:
                    raise ModelError(
                        f"{node.where} reads {name!r} of the step before, of which no later step has a "
                        "counterpart; export the model with a longer sequence"
                    )
        self._begin()
        return self._replaced()

    # Step by step

    def _follow(self, at: int) -> None:
        """Find the nodes of a step that do what those of the second step do."""
        image = self.images[at]
        image |= dict(zip(self.steps[1], self.steps[at], strict=True))
        pool = self.nodes[at]
        position = 0
        for node in self.pattern:
            left = range(position, len(pool))
            tries = ((k, counting) for counting in (False, True) for k in left)
            found = next((k for k, counting in tries if self._fits(node, pool[k], at, counting)), -1)
            counted = not self.changes.keys().isdisjoint(node.inputs)
            if found < 0 and at == len(self.steps) - 1 and not counted:
                continue  # what only a further step would read
            if found < 0:
                raise ModelError(self._difference(node, pool[position:], at))
            image |= dict(zip(node.outputs, pool[found].outputs, strict=True))
            position = found + 1

    def _fits(self, node: Node, other: Node, at: int, counting: bool) -> bool:
        if not _alike(node, other):
            return False
        states, changes = dict(self.states), dict(self.changes)
        for mine, theirs in zip(node.inputs, other.inputs, strict=True):
            if not (
                self._same(mine, theirs, at, states) or (counting and self._counts(mine, theirs, at, changes))
            ):
                return False
        self.states, self.changes = states, changes
        return True

    def _same(self, mine: str, theirs: str, at: int, states: dict[str, str]) -> bool:
        """Whether a node of a step reads what its pattern in the second step reads."""
        if mine in self.images[1]:
            return self.images[at].get(mine) == theirs
        if mine in states:
            return self.images[at - 1].get(states[mine]) == theirs
        if at == 2 and self.level.get(theirs, -1) == 1 and self.level.get(mine, -1) == 0:
            states[mine] = theirs
            return True
        return mine == theirs or self._equal(mine, theirs)

    def _counts(self, mine: str, theirs: str, at: int, changes: dict[str, Floats]) -> bool:
        """Whether a step has a constant that is as much more than that of the step before in every one."""
        values = [
            self.graph.constant(name) if name and self.graph.is_constant(name) else None
            for name in (mine, theirs)
        ]
        one, other = (None if value is None else np.asarray(value, dtype=np.float64) for value in values)
        if one is None or other is None or one.shape != other.shape:
            return False
        change = changes.setdefault(mine, other - one) if at == 2 else changes.get(mine)
        return change is not None and np.allclose(one + (at - 1) * change, other, rtol=1e-5, atol=1e-7)

    def _equal(self, mine: str, theirs: str) -> bool:
        """Whether two constants are the same."""
        if not (mine and theirs and self.graph.is_constant(mine) and self.graph.is_constant(theirs)):
            return False
        one, other = self.graph.constant(mine), self.graph.constant(theirs)
        return one is not None and other is not None and bool(np.array_equal(one, other))

    def _difference(self, node: Node, pool: list[Node], at: int) -> str:
        for other in pool:
            if not _alike(node, other):
                continue
            for mine, theirs in zip(node.inputs, other.inputs, strict=True):
                if (
                    self.graph.is_constant(mine)
                    and self.graph.is_constant(theirs)
                    and not self._equal(mine, theirs)
                ):
                    return (
                        f"{other.where} reads another constant in step {at} than {node.where} in step 1; a "
                        "cell computes the same in every step: give what differs, such as the number of the "
                        "step, as a feature of x"
                    )
            break
        return (
            f"step {at} has nothing that computes of its tensors what {node.where} computes in step 1; "
            "give the module whose forward computes one step"
        )

    # The first step, whose states may be constants

    def _begin(self) -> None:
        """Find in what the states begin; what an exporter computed of constants is not there."""
        image = self.images[0]
        image |= dict(zip(self.steps[1], self.steps[0], strict=True))
        pool = [node for node in self.graph.nodes if self._level_of(node) <= 0]
        begins: dict[str, str] = {}
        for node in self.pattern:
            found = next((other for other in pool if self._begins(node, other, image, begins)), None)
            if found is not None:
                image |= dict(zip(node.outputs, found.outputs, strict=True))
            elif (same := self._unchanged(node)) is not None:
                image[node.outputs[0]] = image[same]
            elif not all(self._steady(name, image) for name in node.inputs):
                raise ModelError(f"step 0 does not compute what step 1 does: it has no {node.where}")
        for old, new in self.states.items():
            if image.get(new, old) != old:
                raise ModelError(
                    f"step 1 reads {old!r}, which is not what step 0 gives; take each step of the input once"
                )
        for old in self.states:
            name = begins.get(old, "")
            value = self.graph.constant(name) if name else None
            self.begins[old] = "" if value is not None and not np.any(value) else name

    def _unchanged(self, node: Node) -> str | None:
        """What the first step adds nothing to, where the others add what grows with their number."""
        for one, other in (node.inputs[:2], node.inputs[1::-1]) if node.operator == "add" else ():
            value = self.graph.constant(other) if other in self.changes else None
            if (
                one in self.images[0]
                and value is not None
                and np.allclose(value, self.changes[other], atol=1e-7)
            ):
                return one
        return None

    def _level_of(self, node: Node) -> int:
        return max((self.level.get(name, -1) for name in node.outputs), default=-1)

    def _steady(self, name: str, image: Mapping[str, str]) -> bool:
        """Whether a tensor of the pattern is a constant in the first step, of which nodes are left out."""
        return name not in self.images[1] or name not in image

    def _begins(self, node: Node, other: Node, image: Mapping[str, str], begins: dict[str, str]) -> bool:
        if not _alike(node, other) or set(other.outputs) & set(image.values()):
            return False
        found = dict(begins)
        for mine, theirs in zip(node.inputs, other.inputs, strict=True):
            if mine in self.images[1]:
                if mine in image and image[mine] != theirs:
                    return False
                if mine not in image and theirs and not self._of_zeros(mine, theirs):
                    return False
            elif mine in self.states:
                if theirs and self.level.get(theirs, -1) >= 0:
                    return False
                if mine in found and found[mine] != theirs and not self._equal(found[mine], theirs):
                    return False
                found[mine] = theirs
            elif mine != theirs and not (
                self._equal(mine, theirs) or self._counts(mine, theirs, 0, self.changes)
            ):
                return False
        begins |= found
        return True

    def _of_zeros(self, mine: str, theirs: str) -> bool:
        """Whether a constant is what the exporter computed of zeros: a bias, what is added, or zeros."""
        value, node = self.graph.constant(theirs), self.graph.nodes[self.graph.index_of(mine)]
        if node.operator in ("add", "sub"):
            signs = (1.0, 1.0 if node.operator == "add" else -1.0)
            given = zip(signs, map(self.graph.constant, node.inputs), strict=True)
            if value is not None and any(
                each is not None and np.array_equal(s * each, value) for s, each in given
            ):
                return True
        if value is None or node.operator not in DENSE or len(node.inputs) < 3:
            return value is not None and not np.any(value)
        bias = self.graph.constant(node.inputs[2])
        return bias is not None and bool(np.all(value == bias))

    # The graph

    def _replaced(self) -> tuple[Graph, list[str]]:
        graph, last = self.graph, len(self.steps) - 1
        collected = {
            node.outputs[0]: (node, *found) for node in graph.nodes if (found := self._collects(node))
        }
        step = graph.with_nodes(self.pattern)
        ends = [name for node, _, _ in collected.values() for name in node.inputs]
        needed = step.ancestors([*self.states.values(), *ends])
        readers = {at for old in self.states for at in step.consumers(old)}
        moving = readers | step.descendants(readers)  # What is of x alone may be read elsewhere, too.
        moved = [name for at in needed & moving for name in self.pattern[at].outputs]
        inside = {image[name] for image in self.images for name in moved if name in image}
        outside = [node for node in graph.nodes if not inside & {*node.outputs}]
        backwards = {theirs: mine for mine, theirs in self.images[last].items()}
        finals: dict[str, str] = {}
        news = {*self.states.values()}
        results = [name for name in graph.outputs if backwards.get(name) not in news] or graph.outputs
        read = list(self._read(results, inside | collected.keys()))
        taken = {name for _, name in read if name in self.firsts}
        for where, name in read:
            if name in inside and self.level.get(name, -1) == last:
                finals[name] = backwards[name]
            elif name in inside and self.level.get(name, -1) >= 0:
                raise ModelError(
                    f"{where} reads {name!r} of one step, but the core gives every step or the last; stack "
                    "all, with torch.stack"
                )
        ends = [*(mine for _, mine, _ in collected.values()), *finals.values()]
        body = replace(
            graph,
            nodes=step.nodes,
            inputs=[*self.steps[1], *self.states, *graph.inputs],
            outputs=list(dict.fromkeys(ends)),
            dimensions=self._dimensions(),
        )
        xs = dict(zip(self.steps[1], self.sources, strict=True))
        loop = Loop(self._counting(body), xs, self.states, self.begins, self.axis, self.backward)
        try:
            made, names, notes = lifted(loop, graph)
        except (ModelError, ConfigurationError) as error:
            raise LoopError(str(error)) from None
        final_only = {node.outputs[2] for node in made if node.operator == "recurrent" and node.outputs[2:]}
        for name, (node, mine, axis) in collected.items():
            if names[mine] in final_only:
                raise ModelError(
                    f"{node.where} reads the state {mine!r} of every step, but the core gives h of every "
                    "step and other states as final ones; give what a layer makes of h"
                )
            how: dict[str, Any] = {"swap": [0, 1]} if axis != self.axis else {}
            operator = "transpose" if how else "identity"
            made.append(
                Node(
                    operator, (names[mine],), (name,), node.label, node.kind, how, noun=node.noun, hidden=True
                )
            )
        last_taken = {"axis": self.axis, "index": 0 if self.backward else -1}
        whole = {name: names[mine] for name, mine in finals.items()}
        if taken <= {*self.steps[last]}:  # Else a loop behind this one reads all of them.
            whole |= {name: xs[self.steps[1][self.steps[last].index(name)]] for name in taken}
        for name, sequence in whole.items():
            made.append(Node("select", (sequence,), (name,), name, "select", last_taken, hidden=True))
        kept = [n for n in outside if n.outputs[0] not in collected and whole.keys().isdisjoint(n.outputs)]
        notes.append(
            f"a loop over {listed(map(repr, self.sources))} was read from {len(self.steps)} steps: the core "
            "computes any number of steps"
        )
        for name in graph.outputs:
            if name not in results:
                notes.append(f"the model's output {name!r} is the final state; the driver gives it")
        graph = replace(graph, nodes=[*made, *kept], outputs=results, dimensions=self._input_sizes())
        return sorted_graph(graph, results), notes

    def _counting(self, body: Graph) -> Graph:
        """The body with a state that counts steps, of which constants that grow with them are computed."""
        if not self.changes:
            return body
        old, new = (fresh(f"step.{word}", body.is_tensor) for word in ("old", "new"))
        made, renamed = list[Node](), dict[str, str]()

        def compute(operator: str, read: str, label: str, word: str, value: Floats, output: str) -> None:
            inputs = read, body.constants.add(fresh(f"{label}.{word}", body.is_tensor), value)
            made.append(Node(operator, inputs, (output,), label, "number of the step", hidden=True))

        compute("add", old, "step", "one", np.ones(1), new)
        for name, change in self.changes.items():
            grown, renamed[name] = (fresh(f"{name}.{word}", body.is_tensor) for word in ("grown", "now"))
            value = np.asarray(body.constant(name), dtype=np.float64)
            compute("mul", new, name, "change", change, grown)
            compute("add", grown, name, "begin", value - 2 * change, renamed[name])
        self.states[old], self.begins[old] = new, ""
        sizes = body.dimensions
        nodes = [replace(n, inputs=tuple(renamed.get(name, name) for name in n.inputs)) for n in body.nodes]
        return replace(
            body,
            nodes=[*made, *nodes],
            inputs=[*body.inputs, old],
            dimensions=lambda name: ("", 1) if name == old else sizes(name),
        )

    def _dimensions(self) -> Callable[[str], Sequence[int | str]]:
        """The sizes of tensors, also of a step of each sequence, as far as its layers show its features."""
        widths = Forms(self.graph, {})
        known = {step: widths.width(source) for step, source in zip(self.steps[1], self.sources, strict=True)}
        sizes = self.graph.dimensions
        return lambda name: sizes(name) or (("", known[name]) if known.get(name) else ())

    def _read(self, results: Sequence[str], given: Collection[str]) -> Iterator[tuple[str, str]]:
        """The tensors that the rest of the model reads, with what reads them; up to those that are given."""
        seen: set[str] = set()
        waiting = [("the end of the model", name) for name in results]
        while waiting:
            where, name = waiting.pop()
            yield where, name
            node = self.graph.producer(name)
            if name in seen or name in given or name in self.firsts or node is None:
                continue
            seen.add(name)
            waiting += [(node.where, each) for each in node.inputs]

    def _input_sizes(self) -> Callable[[str], Sequence[int | str]]:
        """The sizes of tensors; of an input of which nothing is known, as many axes as the sequences show."""
        sizes = self.graph.dimensions
        ranks = dict(input_rank(self.graph.producer, source, len(_LAYOUTS[0])) for source in self.sources)
        return lambda name: ("",) * ranks[name] if name in ranks and not any(sizes(name)) else sizes(name)

    def _kept_axis(self) -> bool:
        """Whether a step keeps the axis of steps, with size 1."""
        maker = self.graph.producer(self.steps[1][0])
        return maker is not None and maker.operator in ("slice", "split")

    def _collects(self, node: Node) -> tuple[str, int] | None:
        """What a node collects of all steps, and along which axis; None if it does not."""
        if not self._may_collect(node):
            return None
        given = node.inputs[::-1] if self.backward else node.inputs
        axis = int(node.attributes["axis"])
        mine = given[1]
        if any(self.images[at].get(mine) != name for at, name in enumerate(given)):
            return None
        maker = self.graph.producer(mine)
        if node.operator == "concat" and maker is not None and maker.operator == "unsqueeze":
            mine = maker.inputs[0]
        elif node.operator == "concat" and not self._kept_axis():
            return None
        wide = node.attributes.get("width")  # of the tensor that it fills, which might repeat a value
        if wide and Forms(self.graph, {}).width(mine) not in (0, wide):
            return None
        return (mine, axis) if axis in (0, 1) else None


def _same_layer(node: Node, other: Node) -> bool:
    """Whether two nodes are the same recurrent layer, or multiply with the same weights."""
    shared = node.operator in DENSE and not {*node.inputs}.isdisjoint(other.inputs)
    return (shared or node.operator == "recurrent") and _alike(node, other)


def _alike(node: Node, other: Node) -> bool:
    """Whether two nodes compute the same of what they read."""
    counts = len(node.inputs) == len(other.inputs) and len(node.outputs) == len(other.outputs)
    if node.operator != other.operator or not counts:
        return False
    if node.operator == "activation":
        return node.function() == other.function()
    if node.operator == "recurrent":
        return node.label == other.label
    return str(dict(node.attributes)) == str(dict(other.attributes))
