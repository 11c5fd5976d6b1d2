"""Rewrites Loop nodes over the steps of a sequence as Scan nodes, which say what a step reads and gives."""

from collections.abc import Iterator
from typing import Any, Final

from rtlstm.gen.frontends.arrays import import_extra, listed
from rtlstm.gen.frontends.onnx.node_graph import FROM_LOOP, OnnxGraph, captured, name_of
from rtlstm.spec.errors import ModelError

_COPIES: Final = ("Cast", "Identity", "Reshape", "Squeeze", "Unsqueeze")
_END: Final = 2**31 - 1
"""An index beyond the end of any axis."""
_State = tuple[str, str, str, str]
"""What a step has of a state, in what it begins, the new one, and the last one."""
_STEPS: Final = (
    "it must go over all steps of a sequence, as `for t in range(x.size(0))` or `x.size(1)` does, and take "
    "x[t] or x[:, t]"
)


def take_loops(model: Any, graph: OnnxGraph, unread: list[str]) -> tuple[OnnxGraph, list[str]]:
    """Put Scan nodes in place of Loop nodes of a model; return its graph, and notes on them.

    ``unread`` gets the reasons why Loop nodes stay.
    """
    notes = list[str]()
    loops = [node for node in graph.nodes if name_of(node) == "Loop"]
    for node in loops:
        try:
            loop = _Loop(graph, node)
            made = loop.nodes()
        except ModelError as error:
            unread.append(f"{graph.where(node)} is not read: {error}")
            continue
        notes.append(f"{graph.where(node)} goes over the steps of {listed(map(repr, loop.taken.values()))}")
        nodes = [*model.graph.node]
        at = nodes.index(node)
        del model.graph.node[:]
        model.graph.node.extend([*nodes[:at], *made, *nodes[at + 1 :]])
        graph = OnnxGraph(model)
    return graph, notes


class _Loop:
    """One node: its body reads the number of the step, a condition and values of the step before."""

    def __init__(self, graph: OnnxGraph, node: Any) -> None:
        self._onnx = import_extra("onnx", "onnx")
        self.graph, self.node = graph, node
        self.body = graph.attributes(node)["body"]
        self.makers = {name: inner for inner in self.body.node for name in inner.output}
        self.number, self.condition, *self.old = [item.name for item in self.body.input]
        self.new = [item.name for item in self.body.output][1:]
        self.taken: dict[str, str] = {}
        """What the body takes in each step, with what it is a step of."""
        self.axis = -1
        self._check_condition()
        self._find_steps()
        self._check_count()

    def _behind(self, name: str, *operators: str) -> str:
        """What a tensor of the body is a copy of."""
        while (maker := self.makers.get(name)) is not None and name_of(maker) in operators:
            name = maker.input[0]
        return name

    def _value(self, name: str) -> Any | None:
        """A constant of the body or of the graph around it."""
        name = self._behind(name, "Identity")
        if name in self.makers:
            maker = self.makers[name]
            given = [item.t for item in maker.attribute if item.name == "value"]
            constant = name_of(maker) == "Constant" and given
            return self._onnx.numpy_helper.to_array(given[0]) if constant else None
        held = next((item for item in self.body.initializer if item.name == name), None)
        return self.graph.constant(name) if held is None else self._onnx.numpy_helper.to_array(held)

    # What it goes over

    def _check_condition(self) -> None:
        """Check that nothing ends it before the last step."""
        begins = self.node.input[1]
        ends = self._behind(self.body.output[0].name, "Identity")
        for name, given in ((ends, ends != self.condition), (begins, bool(begins))):
            value = self._value(name) if given else True
            if value is None or not bool(value):
                raise ModelError(
                    "its condition must be true in every step, as of a loop that nothing ends: the core "
                    "gives every step of a sequence, and a stream's sequence ends when the driver says so"
                )

    def _find_steps(self) -> None:
        found: dict[str, tuple[str, int]] = {}
        for inner in self.body.node:
            index = self._behind(inner.input[1], "Identity") if len(inner.input) > 1 else ""
            if index != self.number or name_of(inner) not in ("Gather", "SequenceAt"):
                continue
            whole = self._whole(inner.input[0])
            axis = next((item.i for item in inner.attribute if item.name == "axis"), 0)
            maker = self.graph.producer(whole)
            if name_of(inner) == "SequenceAt":
                if maker is None or name_of(maker) != "SplitToSequence":
                    continue
                given = self.graph.attributes(maker)
                sizes = self.graph.constant(maker.input[1]) if len(maker.input) > 1 else None
                if int(given.get("keepdims", 1)) or (sizes is not None and (sizes.ndim or int(sizes) != 1)):
                    continue
                whole, axis = maker.input[0], int(given.get("axis", 0))
            if whole not in self.makers and whole not in self.old:
                found[inner.output[0]] = whole, axis + (len(self.graph.dimensions(whole)) if axis < 0 else 0)
        axes = {axis for _, axis in found.values()}
        if len(axes) != 1 or not axes <= {0, 1}:
            what = f"not steps of axis {' and '.join(map(str, sorted(axes)))}" if axes else "but takes none"
            raise ModelError(f"{_STEPS}, {what}")
        self.axis = axes.pop()
        self.taken = {name: whole for name, (whole, _) in found.items()}

    def _whole(self, name: str) -> str:
        """What a tensor of the body is all of."""
        while (maker := self.makers.get(name)) is not None:
            if name_of(maker) == "Slice":
                start, end, *_ = limits = [self._behind(each, *_COPIES) for each in maker.input[1:]]
                values = [self._value(each) for each in (start, end, *limits[3:])]
                if any(value is None or value.size != 1 for value in values):
                    break
                first, last, *step = (int(value.item()) for value in values if value is not None)
                if first or last < _END or step not in ([], [1]):
                    break
            elif name_of(maker) != "Identity":
                break
            name = maker.input[0]
        return name

    def _check_count(self) -> None:
        """Check that it goes over all steps."""
        count = self.node.input[0]
        lengths = {self._size(whole, self.axis) for whole in self.taken.values()}
        if not count or not lengths & {*self._counted(count)} - {""}:
            raise ModelError(
                f"{_STEPS}; {repr(count) if count else 'nothing'} is not known to be how many there are"
            )

    def _size(self, tensor: str, axis: int) -> int | str:
        sizes = self.graph.dimensions(tensor)
        return (sizes[axis] if axis < len(sizes) else "") or f"axis {axis} of {tensor}"

    def _counted(self, name: str) -> Iterator[int | str]:
        """The sizes that a number is."""
        name = self.graph.behind(name, *_COPIES)
        value, maker = self.graph.constant(name), self.graph.producer(name)
        if value is not None:
            yield int(value.item()) if value.size == 1 else ""
        elif maker is not None and name_of(maker) == "SequenceLength":
            split = self.graph.producer(maker.input[0])
            if split is not None and name_of(split) == "SplitToSequence":
                yield self._size(split.input[0], int(self.graph.attributes(split).get("axis", 0)))
        elif maker is not None and name_of(maker) == "Gather":
            sizes, at = self.graph.producer(maker.input[0]), self.graph.constant(maker.input[1])
            if sizes is not None and name_of(sizes) == "Shape" and at is not None and at.size == 1:
                yield self._size(sizes.input[0], int(at.item()))

    # The Scan

    def nodes(self) -> list[Any]:
        """The nodes in its place; readers of its lists of tensors are made to read tensors of all steps."""
        make, infos = self._onnx.helper, {item.name: item for item in self.body.input}
        states, steps, behind = self._results()
        inner = [each for each in self.body.node if self.taken.keys().isdisjoint(each.output)]
        front = list[Any]()
        if any(self.number in (*each.input, *captured(each)) for each in inner):
            state, begin, counting = self._counter()
            infos[state[0]] = make.make_tensor_value_info(state[0], self._onnx.TensorProto.INT64, [1])
            states.append(state)
            front, inner = [begin], [*counting, *inner]
        given = [f"{name}/given" for _, name in steps]
        pairs = zip(steps, given, strict=True)
        copies = [make.make_node("Identity", [new], [name], name) for (new, _), name in pairs]
        ends = [*(new for _, _, new, _ in states), *given]
        body = make.make_graph(
            [*self._needed([*inner, *copies], ends)],
            "body",
            [*(infos[old] for old, *_ in states), *map(self._step, self.taken.items())],
            [*map(make.make_empty_tensor_value_info, ends)],
            [*self.body.initializer],
        )
        scan = make.make_node(
            "Scan",
            [*(begin for _, begin, _, _ in states), *self.taken.values()],
            [*(final for *_, final in states), *(name for _, name in steps)],
            self.graph.label(self.node),
            FROM_LOOP,
            body=body,
            num_scan_inputs=len(self.taken),
            scan_input_axes=[self.axis] * len(self.taken),
            **({"scan_output_axes": [self.axis] * len(steps)} if steps else {}),
        )
        return [*front, scan, *behind]

    def _results(self) -> tuple[list[_State], list[tuple[str, str]], list[Any]]:
        """Its states; what the body gives in each step, with the tensor of all; and nodes behind these."""
        make, count = self._onnx.helper.make_node, len(self.old)
        states, steps, behind = list[_State](), list[tuple[str, str]](), list[Any]()
        for state in zip(self.old, self.node.input[2:], self.new, self.node.output, strict=False):
            maker = self.makers.get(state[2])
            if maker is not None and name_of(maker) == "SequenceInsert":
                steps.append((self._collected(maker, state), self._all_steps(state[3])))
            else:
                states.append(state)
        for new, output in zip(self.new[count:], self.node.output[count:], strict=True):
            steps.append((new, self._all_steps(output) if self.axis else output))
            if self.axis:
                behind.append(make("Transpose", [steps[-1][1]], [output], output, perm=[1, 0, 2]))
        return states, steps, behind

    def _counter(self) -> tuple[_State, Any, list[Any]]:
        """The number of the step as a state: it, the constant that it begins in, and the nodes that count."""
        make = self._onnx.helper.make_node
        words = ("old", "new", "begin", "one", "n")
        old, new, begin, one, final = (f"{self.number}/{word}" for word in words)
        counting = [
            make("Constant", [], [one], one, value_int=1),
            make("Add", [old, one], [new], new),
            make("Sub", [new, one], [self.number], self.number),
        ]
        return (old, begin, new, final), make("Constant", [], [begin], begin, value_ints=[0]), counting

    def _step(self, taken: tuple[str, str]) -> Any:
        """The body's input for what it takes."""
        sizes = [*self.graph.dimensions(taken[1])]
        left = [size or None for at, size in enumerate(sizes) if at != self.axis]
        return self._onnx.helper.make_tensor_value_info(taken[0], self._onnx.TensorProto.FLOAT, left or None)

    def _all_steps(self, name: str) -> str:
        return f"{name}/steps"

    def _collected(self, maker: Any, state: _State) -> str:
        """What the body puts into a list in each step."""
        old, begin, _, output = state
        empty, value = self.graph.producer(begin), str(maker.input[1])
        plain = maker.input[0] == old and len(maker.input) < 3
        if not plain or empty is None or name_of(empty) != "SequenceEmpty":
            raise ModelError(f"{self.graph.where(maker)} must append to a list that begins empty")
        make, inside = self._onnx.helper.make_node, self.makers.get(value)
        readers = [self.graph.nodes[at] for at in self.graph.consumers(output)]
        given = [self.graph.attributes(reader) for reader in readers]
        added: int | None = None  # the axis of steps that a step's tensor has, for torch.cat
        if inside is not None and name_of(inside) == "Unsqueeze" and len(inside.input) == 2:
            axes = self._value(inside.input[1])
            if axes is not None and axes.size == 1 and not any(each.get("new_axis", 0) for each in given):
                value, added = str(inside.input[0]), int(axes.item())
        for reader, each in zip(readers, given, strict=True):
            axis = int(each.get("axis", 0))
            at = self._value(reader.input[1]) if name_of(reader) == "SequenceAt" else None
            stacked = bool(each.get("new_axis", 0)) or axis == added
            if at is not None and added is None:
                read = [self._all_steps(output), reader.input[1]]
                changed = make("Gather", read, reader.output, reader.name, axis=self.axis)
            elif name_of(reader) == "ConcatFromSequence" and stacked and axis in (0, 1):
                perm = {} if axis == self.axis else {"perm": [1, 0, 2]}
                kind = "Transpose" if perm else "Identity"
                changed = make(kind, [self._all_steps(output)], reader.output, reader.name, **perm)
            else:
                raise ModelError(
                    f"{self.graph.where(reader)} must stack all tensors of the list along axis 0 or 1, as "
                    "torch.stack does, or take the last"
                )
            reader.CopyFrom(changed)
        return value

    def _needed(self, nodes: list[Any], names: list[str]) -> Iterator[Any]:
        """The nodes that give these tensors, in their order."""
        wanted, kept = {*names}, list[Any]()
        for node in reversed(nodes):
            if wanted & {*node.output}:
                wanted |= {*node.input, *captured(node)}
                kept.append(node)
        yield from reversed(kept)
