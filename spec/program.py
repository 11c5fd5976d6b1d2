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

__all__ = ["Op", "Program", "compile_program", "dense_lanes", "group_ends"]

OpKind = Literal["recurrent", "input", "dense"]


class Op(Record):
    """One matrix-vector product on the array: ``groups`` row groups of ``columns`` words each.

    Every group drains its items one per cycle: ``gate_units`` units or outputs each.
    ``recurrent`` adds the biases and parks the partial sums; ``input`` adds the parked sums and
    goes on to the gate unit; ``dense`` adds the biases and goes on to its activation.
    Addresses marked *context* are relative to the stream's own part of that memory.
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
    fence: bool
    """Words of the first group wait until the results before have been written."""
    weights: int
    """First row of the weight banks."""
    shifts: int
    """First row of the shift memory."""
    addends: int
    """First row of the partial-sum memory that items add (context for ``input``)."""
    park: int
    """First row of the partial-sum memory that items are parked in (context; ``recurrent``)."""
    items: int
    """Items of a full group."""
    last_items: int
    """Items of the last group."""
    tail: int
    """Units or outputs in the last item of the last group."""
    cell: int
    """First row of the cell memory (context; ``input`` only)."""
    destination: int | None
    """First word of the vector memory written (context), or None."""
    emit: bool
    """Send the results to the output port."""

    @property
    def yields(self) -> bool:
        """Whether the items become results: new h and c, or a dense layer's outputs."""
        return self.kind != "recurrent"


class Program(Record):
    """The operations of one step and the depths of the memories.

    ``ops`` begins with one ``recurrent`` operation per LSTM layer, which prepare the step and
    run as soon as the step before is done; ``body`` is the index of the first operation that
    needs the new input.
    """

    ops: tuple[Op, ...]
    body: int
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
    settle: int
    """Idle cycles between the recurrent operations and the next step's first operation."""


class _Layout:
    """Hands out memory rows while operations are appended."""

    def __init__(self, shapes: tuple[LayerShape, ...], parameters: Parameters) -> None:
        self.shapes = shapes
        self.parameters = parameters
        self.ops: list[Op] = []
        self.weights = self.shifts = self.biases = self.parked = self.cells = self.vectors = 0
        self.outputs_at: list[int] = []
        for index, layer in enumerate(shapes):
            self.outputs_at.append(self.vectors)
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
        common |= {"emit": False, "park": 0}
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


def compile_program(shapes: tuple[LayerShape, ...], parameters: Parameters) -> Program:
    """Lay out the memories and order the operations of one step."""
    layout = _Layout(shapes, parameters)
    last_layer = len(shapes) - 1
    lstm = [index for index, layer in enumerate(shapes) if layer.kind == "lstm"]
    hidden, cells, parked_at = [], [], []
    for index in lstm:
        units = shapes[index].outputs
        layout.append(
            "recurrent",
            index,
            source=layout.outputs_at[index],
            fence=index == last_layer,
            addends=layout.biases,
            park=layout.parked,
        )
        parked_at.append(layout.parked)
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
    return Program(
        ops=tuple(layout.ops),
        body=len(lstm),
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
        settle=_settle(layout.ops, len(lstm), parameters.park_to_add),
    )


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


def _settle(ops: list[Op], body: int, park_to_add: int) -> int:
    """Fewest idle cycles after which no parked sum is late for the next step."""
    parked, drain_free = group_ends(ops[0], 0, 0)
    last = parked[-1]
    for op in ops[1:body]:
        ends, drain_free = group_ends(op, last + 1, drain_free)
        last = ends[-1]
    # A later start moves the ends by less where the drain is what they wait for: so try.
    for settle in range(park_to_add + 1):
        added, _ = group_ends(ops[body], last + 1 + settle, drain_free)
        if all(at >= end + park_to_add for end, at in zip(parked, added, strict=True)):
            return settle
    raise AssertionError("the first group ends after its start")  # pragma: no cover
