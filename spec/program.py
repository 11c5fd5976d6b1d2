"""The program of one time step: the array operations, as data, and the memory they use.

Row order in the array: lane ``4 * unit + gate`` computes a gate (i, f, g, o) of a unit of an LSTM
layer, ``lanes / 4`` units to a group; :func:`dense_lanes` says which lane computes an output of a
dense layer. Groups drain ``gate_units`` units or outputs a cycle, in their own order: an *item*.
"""

from collections.abc import Sequence
from typing import Literal

from rtlstm.spec.numerics import LayerShape
from rtlstm.spec.parameters import Parameters
from rtlstm.spec.record import Record

__all__ = ["Op", "Program", "compile_program", "dense_lanes", "group_ends", "idle_between"]

OpKind = Literal["recurrent", "input", "dense"]


class Op(Record):
    """One matrix-vector product on the array: ``groups`` row groups of ``columns`` words each.

    Every group drains its items one per cycle: ``gate_units`` units or outputs each. An LSTM
    layer's ``recurrent`` and ``input`` products meet in the partial sums: the one that comes first
    adds the biases and ``parks``; the other adds what is parked and goes on to the gate unit.
    ``dense`` adds the biases and goes on to its activation. Addresses marked *context* are relative
    to the stream's own part of that memory.
    """

    kind: OpKind
    layer: int
    columns: int
    groups: int
    source: int
    """First word of the vector read (context); 0 of the input buffer if ``from_input``."""
    from_input: bool
    """Read the network's input instead of the vector memory."""
    relu: bool
    """Apply ReLU to the vector read."""
    parks: bool
    """Keep the sums for the layer's other product."""
    fence: bool
    """Words of the first group wait until the results they read have been written."""
    behind: int
    """How many operations have stored, or will store, results since those that the fence is for."""
    rest: int
    """Idle cycles after this operation, for what is parked to be there when the next one adds it."""
    reads_copy: bool
    """The vector read is the first layer's h: its current copy."""
    writes_copy: Literal["current", "other"] | None
    """The results are the first layer's h: they replace the current copy, or become it."""
    weights: int
    """First row of the weight banks."""
    shifts: int
    """First row of the shift memory."""
    addends: int
    """First row of the partial-sum memory that items add: biases, or (context) parked sums."""
    park: int
    """First row of the partial-sum memory that items are parked in (context)."""
    items: int
    """Items of a full group."""
    last_items: int
    """Items of the last group."""
    tail: int
    """Units or outputs in the last item of the last group."""
    cell: int
    """First row of the cell memory (context; only of what goes on to the gate unit)."""
    destination: int | None
    """First word of the vector memory written (context), or None."""
    emit: bool
    """Send the results to the output port."""

    @property
    def yields(self) -> bool:
        """Whether the items become results: new h and c, or a dense layer's outputs."""
        return not self.parks

    @property
    def adds_parked(self) -> bool:
        """Whether items add what the layer's other product parked; else they add biases."""
        return self.kind != "dense" and not self.parks


class Program(Record):
    """The operations of a step, two ways through them, and the depths of the memories.

    ``ops`` has three parts. First one parking ``recurrent`` operation per LSTM layer: they prepare
    a step and run as soon as the one before is done. From ``body`` on, the operations that need the
    input. From ``ahead`` on, what takes the place of the first part and the first layer's input
    product if the stream's next input is there already: that product parks, the recurrent product
    is the one that ends the layer, and the other layers' recurrent products follow. As the array
    still reads the old h of the first layer then, that h has two copies.
    """

    ops: tuple[Op, ...]
    body: int
    ahead: int
    """Index of the first operation if the next input is there when a step ends."""
    recurrent_end: int
    """Index of the operation after the last LSTM layer's, in the second part: where a quiet step,
    whose output nobody wants, ends."""
    copy_words: int
    """Words of the vector memory from one copy of the first layer's h to the other."""
    inputs: int
    outputs: int
    input_words: int
    weight_rows: int
    bias_rows: int
    """Rows of the partial-sum memory that hold biases; parked sums follow, stream by stream."""
    park_context: int
    shift_rows: int
    vector_context: int
    cell_context: int
    hidden: tuple[tuple[int, int], ...]
    """First vector word (context) and number of units of each LSTM layer's h."""
    cells: tuple[tuple[int, int], ...]
    """First cell row (context) and number of units of each LSTM layer's c; ``gate_units`` a row."""

    def follows(self, index: int, quiet: bool = False) -> int | None:
        """Return the index of the operation after this one; None if it ends a step."""
        if self.ahead <= index < len(self.ops) - 1:
            return index + 1
        # The third part leads to what follows the first layer in the second.
        after = self.body + 1 if index >= self.ahead else index + 1
        if quiet and index >= self.body and after >= self.recurrent_end:
            return None
        return after if after != self.ahead else None


class _Layout:
    """Hands out memory rows while operations are appended."""

    def __init__(self, shapes: tuple[LayerShape, ...], parameters: Parameters) -> None:
        self.shapes = shapes
        self.parameters = parameters
        self.ops: list[Op] = []
        self.weights = self.shifts = self.biases = self.parked = self.cells = 0
        # The first layer's h has two copies.
        self.vectors = parameters.words(shapes[0].outputs)
        self.outputs_at: list[int] = []
        for index, layer in enumerate(shapes):
            self.outputs_at.append(0 if index == 0 else self.vectors)
            if layer.kind == "lstm" or index < len(shapes) - 1:
                self.vectors += parameters.words(layer.outputs)

    def append(self, kind: OpKind, index: int, **special: object) -> None:
        """Append an operation of layer ``index``; ``special`` are the fields of its kind."""
        layer, parameters = self.shapes[index], self.parameters
        groups = -(-layer.rows // parameters.lanes)
        columns = parameters.words(layer.outputs if kind == "recurrent" else layer.inputs)
        per_group = parameters.lanes if kind == "dense" else parameters.units
        last = (layer.outputs - 1) % per_group + 1
        common = {"relu": False, "from_input": False, "cell": 0, "destination": None}
        common |= {"emit": False, "park": 0, "parks": False, "fence": False, "behind": 0, "rest": 0}
        common |= {"reads_copy": False, "writes_copy": None}
        op = Op(
            kind=kind,
            layer=index,
            columns=columns,
            groups=groups,
            weights=self.weights,
            shifts=self.shifts,
            items=parameters.items(per_group),
            last_items=parameters.items(last),
            tail=(last - 1) % parameters.gate_units + 1,
            **(common | special),
        )
        self.ops.append(op)
        self.weights += groups * columns
        self.shifts += parameters.items(layer.outputs)

    def again(self, index: int, **changes: object) -> None:
        """Append operation ``index`` once more, with the same weights, changed."""
        self.ops.append(self.ops[index].model_copy(update=changes))

    def rest(self, first: int, after: int, adder: int) -> None:
        """Make operation ``after`` rest until what ``first`` parks is there for ``adder``."""
        path = self.ops[first : after + 1]
        rest = idle_between(path, self.ops[adder], self.parameters.park_to_add)
        self.ops[after] = self.ops[after].model_copy(update={"rest": rest})


def compile_program(shapes: tuple[LayerShape, ...], parameters: Parameters) -> Program:
    """Lay out the memories and order the operations of one step."""
    layout = _Layout(shapes, parameters)
    last_layer = len(shapes) - 1
    body = sum(layer.kind == "lstm" for layer in shapes)
    bias_of: dict[int, int] = {}
    parked_at: dict[int, int] = {}
    hidden, cells = [], []
    for index in range(len(shapes)):
        if shapes[index].kind != "lstm":
            continue
        bias_of[index] = layout.biases
        parked_at[index] = layout.parked
        layout.append(
            "recurrent",
            index,
            source=layout.outputs_at[index],
            parks=True,
            fence=len(layout.ops) == body - 1,
            reads_copy=index == 0,
            addends=bias_of[index],
            park=parked_at[index],
        )
        units = shapes[index].outputs
        hidden.append((layout.outputs_at[index], units))
        layout.biases += parameters.items(units)
        layout.parked += parameters.items(units)
    for index, layer in enumerate(shapes):
        recurrent = layer.kind == "lstm"
        layout.append(
            "input" if recurrent else "dense",
            index,
            source=layout.outputs_at[index - 1] if index else 0,
            from_input=index == 0,
            relu=layer.input_relu,
            fence=index > 0,
            reads_copy=index == 1,
            writes_copy="current" if index == 0 else None,
            addends=parked_at[index] if recurrent else layout.biases,
            cell=layout.cells if recurrent else 0,
            destination=layout.outputs_at[index] if recurrent or index < last_layer else None,
            emit=index == last_layer,
        )
        if recurrent:
            cells.append((layout.cells, layer.outputs))
            layout.cells += parameters.items(layer.outputs)
        else:
            layout.biases += parameters.items(layer.outputs)
    ahead = len(layout.ops)
    if shapes[0].kind == "lstm":
        _go_ahead(layout, body, bias_of[0], parked_at[0])
    return Program(
        ops=tuple(layout.ops),
        body=body,
        ahead=ahead,
        recurrent_end=2 * body,
        copy_words=parameters.words(shapes[0].outputs),
        inputs=shapes[0].inputs,
        outputs=shapes[-1].outputs,
        input_words=parameters.words(shapes[0].inputs),
        weight_rows=layout.weights,
        bias_rows=layout.biases,
        park_context=layout.parked,
        shift_rows=layout.shifts,
        vector_context=layout.vectors,
        cell_context=layout.cells,
        hidden=tuple(hidden),
        cells=tuple(cells),
    )


def _go_ahead(layout: _Layout, body: int, bias: int, parked: int) -> None:
    """Append the third part, and make operations rest for what they park."""
    ahead = len(layout.ops)
    finished = ("addends", "cell", "destination", "emit")
    first = {name: getattr(layout.ops[body], name) for name in finished}
    layout.again(
        body,
        parks=True,
        addends=bias,
        park=parked,
        destination=None,
        emit=False,
        writes_copy=None,
    )
    layout.again(0, parks=False, fence=body == 1, writes_copy="other", **first)
    for index in range(1, body):
        # The results of the last layer, then those of the first, are under way.
        layout.again(index, behind=1 if index == body - 1 else 0)
    layout.rest(0, body - 1, body)
    layout.rest(ahead, ahead, ahead + 1)
    if body > 1:
        layout.rest(ahead + 2, len(layout.ops) - 1, body + 1)


def group_ends(op: Op, start: int, drain_free: int, readable: Sequence[int] = ()) -> tuple[list[int], int]:
    """Issue cycles of each group's last word, if the first word may issue in cycle ``start``.

    ``drain_free`` is the first cycle in which a group may end; the one after this operation's
    last item is returned with the list. ``readable`` is the first cycle in which each word of the
    vector can be read (at once, if none are given).
    """
    ends = []
    for group in range(op.groups):
        if group == 0:
            for cycle in readable:
                start = max(start, cycle) + 1
            start -= len(readable)
        end = max(start + op.columns - 1, drain_free)
        drain_free = end + (op.last_items if group == op.groups - 1 else op.items)
        ends.append(end)
        start = end + 1
    return ends, drain_free


def dense_lanes(parameters: Parameters) -> list[int]:
    """Return the lane that computes each of a row group's dense outputs.

    The lanes of a block drain one after the other, in steps of ``gate_units`` outputs.
    """
    width = parameters.gate_units
    return [
        4 * (output // (4 * width) * width + output % width) + output // width % 4
        for output in range(parameters.lanes)
    ]


def idle_between(path: Sequence[Op], adder: Op, park_to_add: int) -> int:
    """Fewest idle cycles after ``path`` for which no sum that its first operation parks is late."""
    parked, drain_free = group_ends(path[0], 0, 0)
    last = parked[-1] + path[0].rest
    for op in path[1:]:
        ends, drain_free = group_ends(op, last + 1, drain_free)
        last = ends[-1] + op.rest
    # A later start moves the ends by less where the drain is what they wait for: so try.
    for rest in range(park_to_add + 1):
        added, _ = group_ends(adder, last + 1 + rest, drain_free)
        if all(at >= end + park_to_add for end, at in zip(parked, added, strict=True)):
            return rest
    raise AssertionError("the first group ends after its start")  # pragma: no cover
