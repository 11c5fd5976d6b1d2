"""The program of one time step: the array operations, as data, and the memory they use.

Row order in the array: lane ``4 * unit + gate`` computes a gate (i, f, g, o) of a unit of an LSTM
layer, ``lanes / 4`` units to a group; :func:`dense_lanes` says which lane computes an output of a
dense layer. Groups drain ``gate_units`` units or outputs at a time, a *beat*, in this order: one beat per
cycle, or one in ``beat_cycles`` if its results fill several words of the vector memory.
"""

from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from types import MappingProxyType
from typing import Final, Literal

from rtlstm.spec.cells.unit import UnitTiming
from rtlstm.spec.numerics import SKIPS, LayerShape, continues_sums, leads_to
from rtlstm.spec.parameters import Needs, Parameters
from rtlstm.spec.program.passes import (
    NOTHING_SKIPPED,
    Groups,
    Kept,
    check_groups,
    no_loadable_program,
)
from rtlstm.spec.record import Extended, filled

CREDIT_CYCLES = 4
"""Cycles after a beat is offered in which the sequencer hears that the output queue has room for another."""

STATE_CYCLES = 5
"""Least cycles from a state being kept to the next one of the same unit being used, by their stages."""

_MOST_OUTSTANDING = 3
"""Operations whose results are on the way that the sequencer counts."""

OpKind = Literal["recurrent", "input", "dense"]

Sections = Mapping[int, tuple[int, ...]]
"""Words of the vector in each section of the product of a layer with its input, by the layer's index."""

NO_SECTIONS: Final[Sections] = MappingProxyType({})


class Op(Extended):
    """One matrix-vector product on the array: ``groups`` row groups of ``columns`` words each.

    Of each group, only the words in ``kept`` are stored and issued, if any are given.
    A group drains ``gate_units`` units or outputs at a time, a beat. A recurrent layer has a
    ``recurrent`` and an ``input`` product. The first one adds the biases and ``writes_partials``;
    the other ``adds_partials`` and ``yields``: its beats go to the gate unit. ``dense`` adds the biases, and
    its beats go to the activation. Of several products of a layer, the first adds the biases, all but the
    last ``writes_partials``, and the last yields. Addresses marked *context* are relative to the stream's
    part of that memory.
    """

    _later = frozenset({"sections"})

    kind: OpKind
    layer: int
    columns: int
    """Words of the vector."""
    groups: int
    kept: Groups | None = None
    """The words of the vector that each group multiplies, in order; all, if None. The first group's last one
    is the vector's last: once that group is issued, everything that the operation waits for is there."""
    sections: tuple[int, ...] = ()
    """Words of the vector in each section, all but the last of the same number; none if it is one. All groups
    multiply the first section's words, then all the next one's; meanwhile lanes keep their sums."""
    source: int
    """First word of the vector read (context); 0 of the input buffer if ``from_input``."""
    from_input: bool
    """Read the network's input instead of the vector memory."""
    relu: bool
    """Apply ReLU to the vector read."""
    four_rows: bool
    """Beats contain units with four rows each, not outputs with one."""
    adds_partials: bool
    """Beats add the partial sums that another product stored; else they add biases."""
    writes_partials: bool
    """Store the sums as partial sums for another product."""
    yields: bool
    """The beats become results: new h and c, or a dense layer's outputs."""
    waits_for_results: bool
    """Words of the first group wait until the results they read have been written."""
    newer_results: int
    """If ``waits_for_results``: how many later storing operations may still be outstanding.

    An operation counts as outstanding from its last word's issue until its last result is written."""
    idle_cycles: int
    """Idle cycles after this operation: partial sums are stored before the next one adds them, and results
    come in the order of their operations."""
    reads_copy: bool
    """The vector read is the current copy of the first layer's h."""
    writes_copy: Literal["current", "other"] | None
    """The results are the first layer's h: they are written to the current copy or to the other one, which
    becomes current."""
    weights: int
    """First row of the weight banks."""
    shifts: int
    """First row of the shift memory."""
    addends: int
    """First row of the partial-sum memory that beats add: biases, or (context) partial sums."""
    partials_row: int
    """First row of the partial-sum memory that beats are stored in (context)."""
    drain_beats: int
    """Beats of a full group."""
    last_drain_beats: int
    """Beats of the last group."""
    last_units: int
    """Units or outputs in the last beat of the last group."""
    beat_cycles: int = 1
    """Cycles that a beat takes: if its results are stored, as many as the words that they fill."""
    cell: int
    """First row of the memory of cell states (context; only if the beats go to the gate unit)."""
    destination: int | None
    """First word of the vector memory written (context), or None."""
    emit: bool
    """Send the results to the output port."""
    results: int
    """Number of cycles from a group's last word to its first beat's results being written."""

    @property
    def group_words(self) -> tuple[Sequence[int], ...]:
        """The words of the vector that each group multiplies, section after section."""
        if self.kept is not None:
            return self.kept
        ends = [0, *accumulate(self.sections)] if self.sections else [0, self.columns]
        sections = [range(*section) for section in pairwise(ends)]
        return tuple(words for section in sections for words in (section,) * self.groups)

    @property
    def words(self) -> int:
        """Words that are stored in a bank of weights, and issued."""
        return sum(map(len, self.group_words))

    @property
    def drain_cycles(self) -> int:
        """Cycles in which a full group drains."""
        return self.drain_beats * self.beat_cycles

    @property
    def last_drain_cycles(self) -> int:
        """Cycles in which the last group drains."""
        return self.last_drain_beats * self.beat_cycles


class Program(Extended):
    """The operations of a step, their two orders, and the depths of the memories.

    ``ops`` has three parts. The first has one ``recurrent`` operation per LSTM layer, which stores partial
    sums: these prepare a step and run as soon as the step before is done. The second part, from ``body`` on,
    has the operations that need the input. The third part, from ``prefetch`` on, replaces the first part and
    the first layer's input product if the stream's next input is already there: the input product stores
    partial sums, the recurrent product completes the layer, and the other layers' recurrent products follow.
    Since the array then still reads the old h of the first layer, that h has two copies. There is no third
    part if the first layer has more than these two products, or no recurrent one.

    In a core with a loadable program, ``input_words``, ``bias_rows`` and the contexts are the core's
    capacities: they determine addresses, which are the same for all programs.
    """

    _later = frozenset({"wave"})

    ops: tuple[Op, ...]
    body: int
    prefetch: int | None
    """Index of the first operation if the next input is there when a step ends."""
    recurrent_end: int
    """Index of the operation after the last recurrent layer's, in the second part: a step with a suppressed
    output ends there. Without a recurrent layer, that is the end of any step."""
    copy_words: int
    """Distance in words of the vector memory from one copy of the first layer's h to the other."""
    inputs: int
    outputs: int
    """Values that the device gives of a step: those of its last layer, or one that is decided of them."""
    input_words: int
    weight_rows: int
    bias_rows: int
    """Rows of the partial-sum memory that hold biases; partial sums follow, stream by stream."""
    partials_context: int
    shift_rows: int
    vector_context: int
    cell_context: int
    hidden: tuple[tuple[int, int], ...]
    """First vector word (context) and number of values of each recurrent layer's h."""
    cells: tuple[tuple[int, int], ...]
    """First cell row (context) and number of units of each layer's cell state; a row has ``gate_units``."""
    wave: int | None = None
    """Index of the first operation of the last part, in which layers work on different steps: it is repeated
    as long as steps come; :mod:`rtlstm.spec.program.wave` appends it."""

    @property
    def body_end(self) -> int:
        """Index after the second part's last operation."""
        return min(index for index in (self.prefetch, self.wave, len(self.ops)) if index is not None)

    @property
    def wave_enter(self) -> int:
        """Index of the wave's operation that may follow the body's first one: after the first layer's."""
        assert self.wave is not None
        ops = self.ops[self.wave :]
        after = 1 + next(index for index, op in enumerate(ops) if op.yields and op.layer == 0)
        return self.wave + after % len(ops)

    @property
    def wave_exit(self) -> int:
        """Index of the wave's operation that may be its last: that of the last layer's results."""
        assert self.wave is not None
        return next(index for index in range(self.wave, len(self.ops)) if self.ops[index].emit)

    def follows(self, index: int, suppress: bool = False) -> int | None:
        """Return the index of the operation after this one; None if it ends a step."""
        body_end = self.body_end
        if body_end <= index < len(self.ops) - 1:
            return index + 1
        if self.wave is not None and index >= body_end:
            return self.wave
        # After the third part, the second continues after the first layer.
        after = self.body + 1 if index >= body_end else index + 1
        if suppress and index >= self.body and after >= self.recurrent_end:
            return None
        return after if after != body_end else None

    @property
    def needs(self) -> Needs:
        """What the program needs of each capacity, if it was compiled without capacities."""
        return filled(
            Needs,
            self,
            operations=len(self.ops),
            bias_rows=max(1, self.bias_rows),
            partial_rows=max(1, self.partials_context),
            vector_words=max(1, self.vector_context),
            cell_rows=max(1, self.cell_context),
        )

    def overtakes(self, slowest: int) -> bool:
        """Whether a step's first results could come before those of another network's step before it, of
        which the last come ``slowest`` cycles after a group's last word."""
        return next(op for op in self.ops[self.body :] if op.yields).results < slowest

    @property
    def kept(self) -> Kept:
        """The kept words of the products that skip any."""
        return {(op.layer, op.kind == "recurrent"): op.kept for op in self.ops if op.kept is not None}

    def recurrent_op(self, layer: int) -> Op | None:
        """Return the layer's recurrent operation, if it has one."""
        return next((op for op in self.ops if op.layer == layer and op.kind == "recurrent"), None)

    def body_op(self, layer: int) -> Op:
        """Return the layer's operation that is not the recurrent one."""
        return next(op for op in self.ops if op.layer == layer and op.kind != "recurrent")


def unit_cycles(layer: LayerShape, timing: UnitTiming) -> int:
    """Return the cycles from a layer's pre-activations to its results."""
    if layer.kind == "norm":
        return timing.of_norms
    if layer.four_rows:
        return timing.of_units
    return timing.of_linear_rows if layer.linear else timing.of_rows


class _Layout:
    """Allocates memory rows while operations are appended."""

    def __init__(
        self,
        shapes: tuple[LayerShape, ...],
        parameters: Parameters,
        timing: UnitTiming,
        copies: bool,
        kept: Kept,
        sections: Sections,
    ) -> None:
        self.kept, self.sections = kept, sections
        self.shapes = shapes
        self.parameters = parameters
        self.timing = timing
        self.ops: list[Op] = []
        self.weights = self.shifts = self.biases = self.partials = self.cells = 0
        self.copy_words = parameters.words(shapes[0].outputs) if copies else 0
        self.vectors = self.copy_words
        # What is an h is part of the state, even if no row reads it back.
        states = {index + layer.feedback for index, layer in enumerate(shapes) if layer.has_h}
        self.outputs_at: list[int | None] = []
        for index, layer in enumerate(shapes):
            is_read = index in states or (index < len(shapes) - 1 and layer.kind not in SKIPS)
            # The first layer's two copies are adjacent.
            self.outputs_at.append((0 if index == 0 else self.vectors) if is_read else None)
            self.vectors += parameters.words(layer.outputs) if is_read else 0

    def append(self, kind: OpKind, index: int, **special: object) -> None:
        """Append an operation of layer ``index``; ``special`` are the fields of its kind."""
        layer, parameters = self.shapes[index], self.parameters
        # A norm reads its vector for nothing but to wait for it, and all its results leave as one group's.
        norm = layer.kind == "norm"
        groups = 1 if norm else -(-layer.rows // parameters.lanes)
        read = self.shapes[index + layer.feedback].outputs if kind == "recurrent" else layer.inputs
        columns = parameters.words(read)
        per_group = parameters.units if layer.four_rows else layer.outputs if norm else parameters.lanes
        last = (layer.outputs - 1) % per_group + 1
        kept = self.kept.get((index, kind == "recurrent"))
        if kept is not None:
            check_groups(kept, layer.name, groups, columns)
        common = {
            "relu": False,
            "from_input": False,
            "cell": 0,
            "destination": None,
            "emit": False,
            "partials_row": 0,
            "writes_partials": False,
            "waits_for_results": False,
            "newer_results": 0,
            "idle_cycles": 0,
            "reads_copy": False,
            "writes_copy": None,
            "four_rows": layer.four_rows,
        }
        op = Op(
            kind=kind,
            layer=index,
            columns=columns,
            groups=groups,
            kept=kept,
            sections=() if kind == "recurrent" else self.sections.get(index, ()),
            weights=self.weights,
            shifts=self.shifts,
            drain_beats=parameters.drain_beats(per_group),
            last_drain_beats=parameters.drain_beats(last),
            last_units=(last - 1) % parameters.gate_units + 1,
            results=parameters.preactivation + unit_cycles(layer, self.timing),
            beat_cycles=1 if special.get("destination") is None else parameters.words_per_beat,
            **(common | special),
        )
        self.ops.append(op)
        self.weights += op.words
        self.shifts += parameters.drain_beats(layer.outputs)

    def take(self, memory: Literal["biases", "partials", "cells"], index: int) -> int:
        """Allocate rows for a layer's beats; return the first."""
        first: int = getattr(self, memory)
        setattr(self, memory, first + self.parameters.drain_beats(self.shapes[index].outputs))
        return first

    def again(self, index: int, **changes: object) -> None:
        """Append a changed copy of operation ``index``, with the same weights."""
        self.ops.append(self.ops[index].model_copy(update=changes))

    def space(self, first: int, after: int, adder: int) -> None:
        """Add idle cycles after ``after``, so that partial sums of ``first`` are there for ``adder``."""
        self.space_path([*range(first, after + 1)], adder)

    def space_path(self, path: Sequence[int], adder: int) -> None:
        """Add idle cycles after operations that follow each other, so that partial sums of the first one are
        there for ``adder``."""
        ops, last = [self.ops[index] for index in path], path[-1]
        more = idle_between(ops, self.ops[adder], self.parameters.partial_to_add)
        self.ops[last] = self.ops[last].model_copy(update={"idle_cycles": ops[-1].idle_cycles + more})


def compile_program(
    shapes: tuple[LayerShape, ...],
    parameters: Parameters,
    timing: UnitTiming,
    kept: Kept = NOTHING_SKIPPED,
    *,
    kept_results: bool = False,
    prefetches: bool = True,
    sections: Sections = NO_SECTIONS,
) -> Program:
    """Allocate the memories and order the operations of one step.

    ``timing`` is that of the unit that computes the layers' cells; ``kept`` says which words are issued of
    products that skip some, ``sections`` which are multiplied section by section. ``kept_results``: the
    results go to a memory of whole sequences, and none to the output queue. Without ``prefetches``, there is
    no third part.

    Raises ConfigurationError if it does not fit the parameters' capacities, or they do not fit ``kept``.
    """
    if kept:
        parameters.require_fixed_program(no_loadable_program())
    prefetches = prefetches and shapes[0].recurrent and shapes[0].feedback == 0
    layout = _Layout(shapes, parameters, timing, prefetches, kept, sections)
    body = sum(layer.recurrent for layer in shapes)
    bias_of, partials_at = _prepare(layout, body, prefetches)
    cells = _compute(layout, partials_at, prefetches)
    prefetch = len(layout.ops)
    if prefetches:
        # Before idle cycles are added: repeated operations need other numbers of them.
        _prefetch(layout, body, bias_of[0], partials_at[0])
    # Without a recurrent product, a step with a suppressed output is computed as any other.
    last = max((index + layer.feedback for index, layer in enumerate(shapes) if layer.has_h), default=0)
    last = last if body else len(shapes) - 1
    steps = _step_paths(len(layout.ops), body, prefetch, body + last + 1)
    _await_results(layout.ops, body, steps)
    _space_sums(layout, body, prefetch)
    if prefetches:
        # The first layer's results take longest, so they overtake none of the step before.
        assert layout.ops[body].results == max(op.results for op in layout.ops)
    else:
        _keep_order(layout.ops, body)
    if not body:
        _keep_states(layout, timing)
    if not body and not kept_results:
        _leave_room(layout.ops, parameters)
    hidden = [
        (layout.outputs_at[index + layer.feedback] or 0, shapes[index + layer.feedback].outputs)
        for index, layer in enumerate(shapes)
        if layer.has_h
    ]
    program = Program(
        ops=tuple(layout.ops),
        body=body,
        prefetch=prefetch if prefetches else None,
        recurrent_end=body + last + 1,
        copy_words=layout.copy_words,
        inputs=shapes[0].inputs,
        outputs=parameters.values_given(shapes[-1].outputs),
        input_words=parameters.words(shapes[0].inputs),
        weight_rows=layout.weights,
        bias_rows=layout.biases,
        partials_context=layout.partials,
        shift_rows=layout.shifts,
        vector_context=layout.vectors,
        cell_context=layout.cells,
        hidden=tuple(hidden),
        cells=tuple(cells),
    )
    capacity = parameters.capacity
    if capacity is None:
        return program
    program.needs.check(capacity)
    return program.replace(
        input_words=parameters.words(capacity.inputs),
        bias_rows=capacity.bias_rows,
        partials_context=capacity.partial_rows,
        vector_context=capacity.vector_words,
        cell_context=capacity.cell_rows,
    )


def _keep_order(ops: list[Op], body: int) -> None:
    """Add idle cycles after a step, so that the next step's first results do not overtake its last ones.

    Within a step, an operation waits for the results that are stored before it.
    """
    first, last = ops[body], len(ops) - 1
    overtakes = ops[last].results - first.results
    if overtakes > 0:
        # From the last word: the last beat drains later; the next step's first group ends its words later.
        idle_cycles = overtakes + ops[last].last_drain_cycles - len(first.group_words[0])
        ops[last] = ops[last].replace(idle_cycles=max(ops[last].idle_cycles, idle_cycles, 0))


def _leave_room(ops: list[Op], parameters: Parameters) -> None:
    """Add idle cycles after a step of dense layers alone, if its outputs may take longer to leave.

    The output queue holds two steps: an output has left it before the next but one is begun. The input buffer
    turns to the next input in the first idle cycle, if a step has no other operation.
    """
    last = ops[-1]
    # From the first word to the credit of the last beat.
    _, drained = group_ends(last, 0, 0)
    leaves = drained + last.results + CREDIT_CYCLES
    # Words are issued one after the other, or wait for the drain; those of an operation wait for the results
    # of the one before.
    ends = [group_ends(op, 0, 0)[0] for op in ops]
    shortest = sum(mine[-1] + 1 for mine in ends)
    for mine, (before, op) in zip(ends, pairwise(ops), strict=False):
        waits = before.results - parameters.ahead(before.results) - (mine[-1] - mine[0])
        shortest += max(0, waits) if op.waits_for_results else 0
    idle_cycles = max(-(-leaves // 2) - shortest, int(len(ops) == 1), last.idle_cycles)
    ops[-1] = last.replace(idle_cycles=idle_cycles)


def _step_paths(count: int, body: int, prefetch: int, recurrent_end: int) -> list[list[int]]:
    """Return the operations of a step in order, for each course that it may take."""
    starts = [[*range(body + 1)]]
    if prefetch < count:
        starts.append([*range(prefetch, count)])
    ends = [prefetch, *([recurrent_end] if body else [])]
    return [[*start, *range(body + 1, end)] for start in starts for end in ends]


def _await_results(ops: list[Op], body: int, steps: Sequence[Sequence[int]]) -> None:
    """Make operations wait for results that may not be there, whatever course steps take.

    What another operation has waited for is there. Results come in order: if a word of some is there, all
    earlier ones are.
    """
    for before in steps:
        for step in steps:
            path = [*before, *before, *step]
            found = newer_results([ops[index] for index in path], [index == body - 1 for index in path])
            for index, newer in list(zip(path, found, strict=True))[2 * len(before) :]:
                if newer is not None:
                    op = ops[index]
                    least = min(newer, op.newer_results) if op.waits_for_results else newer
                    ops[index] = op.model_copy(update={"waits_for_results": True, "newer_results": least})


def newer_results(
    path: Sequence[Op], waits: Sequence[bool], most: int = 1, outstanding: int = _MOST_OUTSTANDING
) -> list[int | None]:
    """Return how many later results each operation need not wait for; None if it waits for none.

    ``waits`` says which operations wait for all results in any case. No more than ``most`` are later ones,
    and no more operations than ``outstanding`` have results on the way.
    """
    found: list[int | None] = []
    written: dict[int, int] = {}
    stored = known = 0
    for op, always in zip(path, waits, strict=True):
        read = None if op.from_input else written.get(op.source)
        newer: int | None = None
        if always:
            newer = 0
        elif read is not None and read >= known:
            newer = min(stored - 1 - read, most)
        elif op.destination is not None and stored - known >= outstanding:
            newer = min(most, outstanding - 1)
        if newer is not None:
            known = max(known, stored - newer - (read != stored - 1 - newer))
        if op.destination is not None:
            written[op.destination] = stored
            stored += 1
        found.append(newer)
    return found


def _space_sums(layout: _Layout, body: int, prefetch: int) -> None:
    """Add idle cycles where partial sums would not be there when they are added."""
    shapes, count = layout.shapes, len(layout.ops)
    # The first product of each recurrent layer in the second part.
    adders = [
        body + next(at for at in range(index + 1) if leads_to(shapes, at) == index)
        for index, layer in enumerate(shapes)
        if layer.recurrent
    ]
    if adders:
        layout.space(0, body - 1, adders[0])
    for skip in (body + index for index, layer in enumerate(shapes) if layer.kind in SKIPS):
        layout.space(skip, skip, skip + 1)
    if prefetch < count:
        layout.space(prefetch, prefetch, prefetch + 1)
    if prefetch < count and body > 1:
        layout.space(prefetch + 2, count - 1, adders[1])
    for number, adder in enumerate(adders):
        paths = [[*range(number, adder)]]
        if prefetch < count and number:
            paths.append([*range(prefetch + 1 + number, count), *range(body + 1, adder)])
        for path in paths:
            if not _waits_within([layout.ops[index] for index in [*path, adder]]):
                layout.space_path(path, adder)


def _waits_within(path: Sequence[Op]) -> bool:
    """Whether an operation waits for results of an earlier one of these: that takes longer than a sum."""
    stored = 0
    for op in path:
        if op.waits_for_results and stored > op.newer_results:
            return True
        stored += op.destination is not None
    return False


def _keep_states(layout: _Layout, timing: UnitTiming) -> None:
    """Add idle cycles after a step without a wait, so that a state is there when the next step reads it."""
    ops = layout.ops
    if not layout.cells or any(op.waits_for_results for op in ops):
        return
    needed = timing.keep - timing.state + STATE_CYCLES
    idle_cycles = needed - sum(op.words + op.idle_cycles for op in ops) + ops[-1].idle_cycles
    ops[-1] = ops[-1].replace(idle_cycles=max(ops[-1].idle_cycles, idle_cycles))


def _prepare(layout: _Layout, body: int, prefetches: bool) -> tuple[dict[int, int], dict[int, int]]:
    """Append the recurrent operations; return rows of biases and partial sums."""
    bias_of, partials_at = {}, {}
    for index, layer in enumerate(layout.shapes):
        if not layer.recurrent:
            continue
        bias_of[index], partials_at[index] = layout.take("biases", index), layout.take("partials", index)
        source = layout.outputs_at[index + layer.feedback]
        assert source is not None
        layout.append(
            "recurrent",
            index,
            source=source,
            adds_partials=False,
            writes_partials=True,
            yields=False,
            reads_copy=index == 0 and prefetches,
            addends=bias_of[index],
            partials_row=partials_at[index],
        )
    return bias_of, partials_at


def _compute(layout: _Layout, partials_at: dict[int, int], prefetches: bool) -> list[tuple[int, int]]:
    """Append the operations that need the input; return the addresses of cell states."""
    cells: list[tuple[int, int]] = []
    shapes = layout.shapes
    for index, layer in enumerate(shapes):
        skips = layer.kind in SKIPS
        stores = skips or layer.kind == "gru_reset"
        adds = layer.recurrent or continues_sums(shapes, index)
        # Partial sums belong to the layer that a skip leads to; those of a candidate to the layer before.
        owner = index - 1 if layer.kind == "gru_candidate" else leads_to(shapes, index)
        if skips and owner not in partials_at:
            partials_at[owner] = layout.take("partials", index)
        partials = partials_at.get(owner)
        read = index - layer.before
        if layer.has_state:
            cells.append((layout.take("cells", index), layer.outputs))
        stateful = layer.four_rows and bool(cells)
        layout.append(
            "dense" if layer.dense else "input",
            index,
            source=(layout.outputs_at[read] or 0) if index else 0,
            from_input=index == 0,
            relu=layer.input_relu,
            reads_copy=read == 0 and prefetches,
            writes_copy="current" if index == 0 and prefetches else None,
            adds_partials=adds,
            addends=partials if adds else layout.take("biases", index),
            writes_partials=stores,
            partials_row=partials if stores else 0,
            yields=not skips,
            cell=cells[-1][0] if stateful else 0,
            destination=layout.outputs_at[index],
            emit=index == len(layout.shapes) - 1,
        )
    return cells


def _prefetch(layout: _Layout, body: int, bias: int, partials: int) -> None:
    finished = ("addends", "cell", "destination", "emit", "yields", "adds_partials", "beat_cycles")
    first = {name: getattr(layout.ops[body], name) for name in finished}
    layout.again(
        body,
        writes_partials=True,
        yields=False,
        adds_partials=False,
        addends=bias,
        partials_row=partials,
        destination=None,
        beat_cycles=1,
        emit=False,
        writes_copy=None,
    )
    layout.again(0, writes_partials=False, writes_copy="other", **first)
    for index in range(1, body):
        layout.again(index)


def group_ends(op: Op, start: int, drain_free: int, readable: Sequence[int] = ()) -> tuple[list[int], int]:
    """Return the issue cycles of each group's last word, if the first word may issue in cycle ``start``.

    ``drain_free`` is the first cycle in which a group may end; the one after this operation is returned with
    the list, in which each section has all groups. ``readable`` is the first cycle in which each word of the
    vector can be read (at once, if none are given).
    """
    ends: list[int] = []
    # Made once: there may be hundreds of groups, and a search asks for the ends of many operations.
    groups = op.group_words
    kept = len(groups) - op.groups
    for number, words in enumerate(groups):
        if number % op.groups == 0 and readable:
            for word in words:
                # Results that are waited for may be of a shorter vector: then the others wait for all of it.
                start = max(start, readable[min(word, len(readable) - 1)]) + 1
            start -= len(words)
        end = start + len(words) - 1
        if number >= kept:
            # Sums that lanes keep need no drain.
            end = max(end, drain_free)
            last = number == len(groups) - 1
            drain_free = end + (op.last_drain_cycles if last else op.drain_cycles)
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


def idle_between(path: Sequence[Op], adder: Op, partial_to_add: int) -> int:
    """Return the fewest idle cycles after ``path`` for its first operation's partial sums to be in time."""
    partials, drain_free = group_ends(path[0], 0, 0)
    last = partials[-1] + path[0].idle_cycles
    for op in path[1:]:
        ends, drain_free = group_ends(op, last + 1, drain_free)
        last = ends[-1] + op.idle_cycles
    # A later start moves the ends by less if they wait for the drain: so all numbers are tried in turn.
    for idle_cycles in range(partial_to_add + 1):
        added, _ = group_ends(adder, last + 1 + idle_cycles, drain_free)
        groups = zip(partials[-adder.groups :], added[-adder.groups :], strict=True)
        if all(at >= end + partial_to_add for end, at in groups):
            return idle_cycles
    raise AssertionError("the first group ends after its start")
