"""The fields of a program that the hardware reads: those of each operation, and those of a step.

In a build with a fixed program they are constants. A core with a loadable program keeps them in the program
memory: one operation per row, and the fields of the step in the last row.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from rtlstm.spec.cells.unit import Norms, Unit, UnitTiming
from rtlstm.spec.numerics import LayerShape
from rtlstm.spec.parameters import Parameters
from rtlstm.spec.program.step import CREDIT_CYCLES, STATE_CYCLES, Op, Program
from rtlstm.spec.record import Record

BEAT_FLAGS = ("writes_partial", "lstm", "dense", "relu", "sigmoid", "tanh", "emit", "store")
"""Flags that all beats of an operation share, in addition to the index of their cell's kind."""

Fields = dict[str, list[int]]
"""Values of each field, one per operation."""


class Bases(Record):
    """The rows at which a network begins in a device that holds several."""

    operations: int = 0
    weight_rows: int = 0
    shift_rows: int = 0
    bias_rows: int = 0


FIRST: Final = Bases()
"""Where the only network begins, or the first one."""


def issue_fields(program: Program, bases: Bases = FIRST, sections: bool = False) -> Fields:
    """The fields of every operation that the sequencer reads; also those of ``sections``, on request."""
    ops, first = program.ops, bases.operations
    return {
        # Both less 1: the registers count down to 0.
        "columns": [len(op.group_words[0]) - 1 if op.sections else op.columns - 1 for op in ops],
        "groups": [op.groups - 1 for op in ops],
        "drain_cycles": [op.drain_cycles for op in ops],
        "last_drain_cycles": [op.last_drain_cycles for op in ops],
        "single": [int(len(op.group_words[0]) == 1) for op in ops],
        "one_cycle": [int(op.drain_cycles == 1) for op in ops],
        "last_one_cycle": [int(op.last_drain_cycles == 1) for op in ops],
        "weights": [op.weights + bases.weight_rows for op in ops],
        "idle_cycles": [op.idle_cycles for op in ops],
        "newer_results": [op.newer_results for op in ops],
        "from_input": [int(op.from_input) for op in ops],
        # The body's first operation: with prefetch, the operation that reads the input finds it complete.
        "waits_for_input": [int(op.from_input and op.yields) for op in ops],
        "relu": [int(op.relu) for op in ops],
        "waits_for_results": [int(op.waits_for_results) for op in ops],
        "emit": [int(op.emit) for op in ops],
        "stores": [int(op.destination is not None) for op in ops],
        "prepares": [int(index == program.body - 1) for index in range(len(ops))],
        "follows": [(program.follows(index) or 0) + first for index in range(len(ops))],
        "ends": [int(program.follows(index) is None) for index in range(len(ops))],
        "ends_suppressed": [int(program.follows(index, suppress=True) is None) for index in range(len(ops))],
        "writes_current": [int(op.writes_copy == "current") for op in ops],
        "writes_other": [int(op.writes_copy == "other") for op in ops],
        # First words of the vectors read, for the first and the second copy of the first layer's h.
        "source": [op.source for op in ops],
        "source_copied": [op.source + program.copy_words * op.reads_copy for op in ops],
        **(_kept_fields(program) if program.kept else {}),
        **(_section_fields(program) if sections else {}),
        **({} if program.wave is None else _wave_fields(program, program.wave)),
    }


def _section_fields(program: Program) -> Fields:
    """The fields of a program where lanes keep sums; words of a section less 1 are in ``columns``."""
    return {
        "sections": [max(0, len(op.sections) - 1) for op in program.ops],
        "last_columns": [len(op.group_words[-1]) - 1 for op in program.ops],
        # The first word ends a group that drains.
        "drains_first": [int(len(op.group_words[0]) == 1 and not op.sections) for op in program.ops],
    }


def _wave_fields(program: Program, wave: int) -> Fields:
    """The fields of a program with a wave-front: the operation's layer, and what it is."""
    waves = [index >= wave for index in range(len(program.ops))]
    return {
        "stage": [op.layer * mine for op, mine in zip(program.ops, waves, strict=True)],
        "in_wave": [int(mine) for mine in waves],
        "reads_h": [int(op.kind == "recurrent") for op in program.ops],
    }


def _kept_fields(program: Program) -> Fields:
    """The fields of a program that skips words: the first two kept words, and the third one's row."""
    table = kept_words(program)
    rows = [op.weights for op in program.ops]
    after = [table[row + 1] if row + 1 < len(table) else (0, False) for row in rows]
    return {
        "first_word": [table[row][0] for row in rows],
        "second_word": [word for word, _ in after],
        "second_ends": [int(ends) for _, ends in after],
        "third_row": [row + 2 for row in rows],
    }


def kept_words(program: Program) -> list[tuple[int, bool]]:
    """Return, of each row of the weight banks, the word of the vector and whether it ends a group."""
    table = [(0, False)] * program.weight_rows
    for op in program.ops:
        found = [(word, word == words[-1]) for words in op.group_words for word in words]
        table[op.weights : op.weights + len(found)] = found
    return table


def issue_widths(parameters: Parameters, timing: UnitTiming) -> dict[str, int]:
    """Bits of these fields in the program memory, for any program of a core with that unit."""
    capacity = parameters.program_memory
    columns = max(parameters.words(capacity.inputs), capacity.vector_words)
    drain_cycles = parameters.most_drain_cycles(timing.norm_values)
    most = {
        "columns": columns - 1,
        "groups": capacity.weight_rows - 1,
        "drain_cycles": drain_cycles,
        "last_drain_cycles": drain_cycles,
        "weights": capacity.weight_rows - 1,
        "idle_cycles": _most_idle_cycles(parameters, timing),
        "follows": capacity.operations - 1,
        "source": capacity.vector_words - 1,
        "source_copied": capacity.vector_words - 1,
        **({"sections": columns - 1, "last_columns": columns - 1} if parameters.lane_sums else {}),
        **({"drains_first": 1} if parameters.lane_sums else {}),
    }
    flags = (
        "single",
        "one_cycle",
        "last_one_cycle",
        "newer_results",
        "from_input",
        "waits_for_input",
        "relu",
        "waits_for_results",
        "emit",
        "stores",
        "prepares",
        "ends",
        "ends_suppressed",
        "writes_current",
        "writes_other",
    )
    return _bits(most | dict.fromkeys(flags, 1))


def _most_idle_cycles(parameters: Parameters, timing: UnitTiming) -> int:
    """Idle cycles that an operation may have after it: for partial sums, for the order of results, for
    states, and for room in the output queue; :mod:`rtlstm.spec.program.step` adds them.
    """
    drain = parameters.most_drain_cycles(timing.norm_values)
    in_order = timing.spread + drain
    leaves = drain + parameters.preactivation + timing.slowest + CREDIT_CYCLES
    states = timing.keep - timing.state + STATE_CYCLES
    return max(parameters.partial_to_add, in_order, -(-leaves // 2), states)


def drain_fields(program: Program, layers: Sequence[LayerShape], unit: Unit, bases: Bases = FIRST) -> Fields:
    """The fields of every operation that the drain reads: counts and flags of its beats, and first rows."""
    ops = program.ops
    biases = [program.bias_rows if op.adds_partials else bases.bias_rows for op in ops]
    copies = [program.copy_words * (op.writes_copy is not None) for op in ops]
    return {
        # Beats of a group less 1: those after its first.
        "more": [op.drain_beats - 1 for op in ops],
        "last_more": [op.last_drain_beats - 1 for op in ops],
        "adds": [int(op.adds_partials) for op in ops],
        "shift": [op.shifts + bases.shift_rows for op in ops],
        "addend": [op.addends + more for op, more in zip(ops, biases, strict=True)],
        "partials_row": [op.partials_row + program.bias_rows for op in ops],
        # First row of the cell states; which cell computes the beat is in ``flags``.
        "cell": [op.cell for op in ops],
        "row": [op.destination or 0 for op in ops],
        "other_row": [(op.destination or 0) + more for op, more in zip(ops, copies, strict=True)],
        "last_mask": [(1 << op.last_units) - 1 for op in ops],
        "flags": [_flags(op, layers, unit) for op in ops],
    }


def drain_widths(parameters: Parameters, unit: Unit) -> dict[str, int]:
    """Bits of these fields in the program memory."""
    capacity = parameters.program_memory
    values = parameters.lanes if unit.norms is None else max(parameters.lanes, unit.norms.most_values)
    drain_beats = parameters.drain_beats(values) - 1
    partials = capacity.bias_rows + capacity.partial_rows - 1
    most = {
        "more": drain_beats,
        "last_more": drain_beats,
        "adds": 1,
        "shift": capacity.shift_rows - 1,
        "addend": partials,
        "partials_row": partials,
        "cell": capacity.cell_rows - 1,
        "row": capacity.vector_words - 1,
        "other_row": capacity.vector_words - 1,
        "last_mask": (1 << parameters.gate_units) - 1,
        "flags": (1 << len(BEAT_FLAGS) + unit.number_bits) - 1,
    }
    return _bits(most)


def norm_fields(program: Program, layers: Sequence[LayerShape], norms: Norms, bases: Bases = FIRST) -> Fields:
    """The fields of every operation that what computes norms reads: the index, plus 1, of the norm that it
    is; the first row of the gains and biases; whether its beats fill several words."""
    found = [norms.of_cell.get(layers[op.layer].cell, -1) + 1 for op in program.ops]
    return {
        "norm": found,
        "constants": [
            (op.shifts + bases.shift_rows) * (norm > 0) for op, norm in zip(program.ops, found, strict=True)
        ],
        "stores": [int(op.beat_cycles > 1) for op in program.ops],
    }


def norm_widths(parameters: Parameters, norms: Norms) -> dict[str, int]:
    """Bits of these fields in the program memory."""
    rows = parameters.program_memory.shift_rows
    return _bits({"norm": len(norms.forms), "constants": rows - 1, "stores": 1})


def step_fields(program: Program, parameters: Parameters, bases: Bases = FIRST) -> dict[str, int]:
    """The fields of a step that are not part of its operations."""
    beat = parameters.beat_in
    follows = program.body_end < len(program.ops)
    first = program.ops[program.body].words if program.ops else 0
    return {
        "body": program.body + bases.operations,
        # The third part, or the wave: what follows a step if the next input is there.
        "prefetch": program.body_end * follows + bases.operations,
        "prefetches": int(follows),
        "inputs": parameters.values_taken(program.inputs) & 0xFFFF,
        "outputs": program.outputs & 0xFFFF,
        "beats_after": -(-program.inputs // beat) - 1,
        # Of the buffer's beats: how many follow the first, and a mask of the values that count in the last.
        "last_beat": (1 << ((program.inputs - 1) % beat + 1)) - 1,
        # All of the input's product is issued in one cycle.
        "one_word": int(first == 1),
        "beats_out": -(-program.outputs // parameters.beat_out),
        **({} if program.wave is None else {"enter": program.wave_enter}),
    }


def resident_fields(
    program: Program, parameters: Parameters, timing: UnitTiming, bases: Bases = FIRST
) -> dict[str, int]:
    """The further fields of a step in a device that holds several networks. Zeros are no network."""
    return {
        "present": 1,
        "begin": bases.operations,
        "prepares": int(program.body > 0),
        "overtakes": int(program.overtakes(parameters.preactivation + timing.slowest)),
    }


def step_widths(parameters: Parameters) -> dict[str, int]:
    """Bits of these fields in the program memory."""
    capacity = parameters.program_memory
    most = {
        "body": capacity.operations - 1,
        "prefetch": capacity.operations - 1,
        "prefetches": 1,
        "inputs": 0xFFFF,
        "outputs": 0xFFFF,
        "beats_after": -(-capacity.inputs // parameters.beat_in) - 1,
        "last_beat": (1 << parameters.beat_in) - 1,
        "one_word": 1,
        "beats_out": -(-capacity.outputs // parameters.beat_out),
    }
    if parameters.networks > 1:
        most |= {"present": 1, "begin": capacity.operations - 1, "prepares": 1, "overtakes": 1}
    return _bits(most)


def _bits(most: Mapping[str, int]) -> dict[str, int]:
    return {name: max(1, value.bit_length()) for name, value in most.items()}


def _flags(op: Op, layers: Sequence[LayerShape], unit: Unit) -> int:
    """Pack the fields that an operation's beats share: ``BEAT_FLAGS``, then their cell's kind by index."""
    layer, behind = layers[op.layer], layers[op.layer + 1 : op.layer + 2]
    single = not op.four_rows and layer.kind != "norm"
    function = layer.activation if single and layer.activation in unit.functions else None
    flags = {
        "writes_partial": op.writes_partials,
        "lstm": op.yields and op.four_rows,
        "dense": single,
        "relu": function == "relu",
        "sigmoid": function == "sigmoid",
        "tanh": function == "tanh",
        "emit": op.emit,
        "store": op.destination is not None,
    }
    packed = sum(flags[name] << position for position, name in enumerate(BEAT_FLAGS))
    # What a norm reads is measured as it is stored.
    measured = behind[0].cell if op.yields and behind and behind[0].kind == "norm" else None
    return packed | unit.number(layer.cell, layer.state, layer.output, measured) << len(BEAT_FLAGS)
