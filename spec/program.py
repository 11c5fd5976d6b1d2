"""The program of one time step: the array operations, as data, and the memory they use.

Row order in the array: row ``4 * unit + gate`` of an LSTM layer (gates i, f, g, o), row
``output`` of a dense layer; row ``r`` is computed by lane ``r % lanes`` in group ``r // lanes``.
"""

from typing import Literal

from rtlstm.spec.numerics import LayerShape
from rtlstm.spec.parameters import Parameters
from rtlstm.spec.record import Record

__all__ = ["Op", "Program", "compile_program"]

OpKind = Literal["recurrent", "input", "dense"]


class Op(Record):
    """One matrix-vector product on the array: ``groups`` row groups of ``columns`` words each.

    ``recurrent`` starts from the biases and parks its sums; ``input`` starts from the parked
    sums and drains into the gate unit; ``dense`` starts from the biases and drains.
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
    """Wait until every drained result has been written."""
    weights: int
    """First row of the weight banks."""
    start: int
    """First row of the sum banks that accumulation starts from (context for ``input``)."""
    park: int
    """First row of the sum banks that sums are parked in (context; ``recurrent`` only)."""
    shifts: int
    """First entry of the shift memory (draining operations)."""
    items: int
    """Results drained from a full group: units of an LSTM layer, rows of a dense one."""
    last_items: int
    """Results drained from the last group."""
    cell: int
    """First word of the cell memory (context; ``input`` only)."""
    destination: int | None
    """First word of the vector memory written (context), or None."""
    emit: bool
    """Send the results to the output port."""

    @property
    def drains(self) -> bool:
        """Whether results leave the array."""
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
    """Rows of the sum banks that hold biases; parked sums follow, stream by stream."""
    park_context: int
    shift_rows: int
    vector_context: int
    cell_context: int
    hidden: tuple[tuple[int, int], ...]
    """First vector word (context) and number of units of each LSTM layer's h."""
    cells: tuple[tuple[int, int], ...]
    """First cell word (context) and number of units of each LSTM layer's c."""
    settle: int
    """Idle cycles between the recurrent operations and the next step's first operation."""


def _groups(rows: int, parameters: Parameters) -> int:
    return -(-rows // parameters.lanes)


def _last(count: int, per_group: int) -> int:
    return (count - 1) % per_group + 1


def compile_program(shapes: tuple[LayerShape, ...], parameters: Parameters) -> Program:
    """Lay out the memories and order the operations of one step."""
    lstm = [layer for layer in shapes if layer.kind == "lstm"]
    last_layer = len(shapes) - 1
    weights = biases = shifts = parked = cells = vectors = 0
    outputs_at: list[int | None] = []
    for index, layer in enumerate(shapes):
        needed = layer.kind == "lstm" or index < last_layer
        outputs_at.append(vectors if needed else None)
        vectors += parameters.words(layer.outputs) if needed else 0

    ops: list[Op] = []
    park_at: list[int] = []
    for index, layer in enumerate(lstm):
        groups, columns = _groups(layer.rows, parameters), parameters.words(layer.outputs)
        park_at.append(parked)
        ops.append(
            Op(
                kind="recurrent",
                layer=index,
                columns=columns,
                groups=groups,
                source=outputs_at[index] or 0,
                from_input=False,
                relu=False,
                fence=index == last_layer,
                weights=weights,
                start=biases,
                park=parked,
                shifts=0,
                items=0,
                last_items=0,
                cell=0,
                destination=None,
                emit=False,
            )
        )
        weights += groups * columns
        biases += groups
        parked += groups
    hidden, cell_at = [], []
    for index, layer in enumerate(shapes):
        groups, columns = _groups(layer.rows, parameters), parameters.words(layer.inputs)
        recurrent = layer.kind == "lstm"
        per_group = parameters.units if recurrent else parameters.lanes
        ops.append(
            Op(
                kind="input" if recurrent else "dense",
                layer=index,
                columns=columns,
                groups=groups,
                source=0 if index == 0 else outputs_at[index - 1] or 0,
                from_input=index == 0,
                relu=layer.input_relu,
                fence=index > 0,
                weights=weights,
                start=park_at[index] if recurrent else biases,
                park=0,
                shifts=shifts,
                items=per_group,
                last_items=_last(layer.outputs, per_group),
                cell=cells,
                destination=outputs_at[index],
                emit=index == last_layer,
            )
        )
        weights += groups * columns
        shifts += layer.outputs
        if recurrent:
            hidden.append((outputs_at[index] or 0, layer.outputs))
            cell_at.append((cells, layer.outputs))
            cells += layer.outputs
        else:
            biases += groups
    return Program(
        ops=tuple(ops),
        body=len(lstm),
        inputs=shapes[0].inputs,
        outputs=shapes[-1].outputs,
        input_words=parameters.words(shapes[0].inputs),
        weight_rows=weights,
        bias_rows=biases,
        park_context=parked,
        shift_rows=shifts,
        vector_context=vectors,
        cell_context=cells,
        hidden=tuple(hidden),
        cells=tuple(cell_at),
        settle=_settle(ops, len(lstm)),
    )


PARK_TO_START = 4
"""Issue cycles from a group's last recurrent word to the first word that may start from it."""


def _settle(ops: list[Op], body: int) -> int:
    """Cycles by which a parked sum would be late for the next step if nothing waited."""
    parked, after = ops[0], ops[body]
    later = sum(op.groups * op.columns for op in ops[1:body])
    late = 0
    for group in range(parked.groups):
        ends = (group + 1) * parked.columns - 1
        starts = parked.groups * parked.columns + later + group * after.columns
        late = max(late, ends + PARK_TO_START - starts)
    return late
