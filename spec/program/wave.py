"""The wave-front: the program's last part, in which layers work on different steps.

Layer ``l`` works on the step before that of layer ``l - 1``. This part has each recurrent layer's product
with its input, which stores partial sums, and its product with h, which completes the layer; and the other
layers' products. It is repeated as long as there are steps: each time, all layers go on to the next step, and
a layer that has none computes for nothing (a *bubble*): nothing is stored or sent, and all cycles are as if
it were.

Whoever reads a layer's results of the step before comes before what computes the next ones. So nothing
is stored too early, however long an operation waits. Here are two LSTM layers and a dense one, in steady
state; ``in`` and ``h`` are the two products of a layer:

==========  ==============  ==============  =============  ==============  ==============
in(0), t    in(1), t - 1    h(0), t         dense, t - 2   h(1), t - 1     in(0), t + 1
==========  ==============  ==============  =============  ==============  ==============

It begins behind the product of the first layer, as if that had been ``h(0)`` of the wave, if the next step's
input waits then; or with the first operation when a step ends. It ends when no layer has a step any more.
"""

from collections.abc import Sequence
from itertools import pairwise

from rtlstm.spec.cells.unit import UnitTiming
from rtlstm.spec.errors import ConfigurationError
from rtlstm.spec.numerics import LayerShape, Numerics
from rtlstm.spec.parameters import Parameters
from rtlstm.spec.program.passes import NOTHING_SKIPPED, Kept, Passes
from rtlstm.spec.program.step import Op, Program, compile_program, group_ends, idle_between, newer_results

_LEAVE_OUT = "leave `wave_front` out"


def compile_wave(
    shapes: tuple[LayerShape, ...],
    parameters: Parameters,
    timing: UnitTiming,
    kept: Kept = NOTHING_SKIPPED,
) -> Program:
    """Compile a program of steps whose last part is a wave-front; parameters as :func:`compile_program`.

    Raises ConfigurationError if layers read others than the one before them, or the first one is not
    recurrent, or a layer's results could come before its old ones have been read.
    """
    check_wave(shapes)
    program = compile_program(shapes, parameters, timing, kept, prefetches=False)
    ops = _waiting(_order(program), len(shapes))
    for op in ops:
        _check_reads(op, shapes[op.layer], parameters)
    first = len(program.ops)
    wave = program.replace(ops=(*program.ops, *ops), wave=first)
    ops = list(wave.ops)
    for op in program.ops[: program.body]:
        stores, adds = (index for index in range(first, len(ops)) if ops[index].layer == op.layer)
        # Idle before the layer's h is waited for, by its first reader: not in the loop.
        before = max(i for i in range(first, adds) if i == first or ops[i].kind == "recurrent")
        while idle_between(ops[stores:adds], ops[adds], parameters.partial_to_add):
            _add_idle(ops, before, 1)
    return _in_order(wave.replace(ops=tuple(_exit_waits(ops, wave))), parameters)


def takes_wave(shapes: Sequence[LayerShape], parameters: Parameters, numerics: Numerics) -> bool:
    """Return whether an array is wide enough for a wave-front."""
    timing = numerics.unit.timing(parameters)
    program = compile_program(tuple(shapes), parameters, timing, prefetches=False)
    return all(_lasts(op) <= _most(op, parameters) for op in program.ops[: program.body])


def _lasts(op: Op) -> int:
    """Return the cycles from the first group's last word to the last group's."""
    ends, _ = group_ends(op, 0, 0)
    return ends[-1] - ends[0]


def _most(op: Op, parameters: Parameters) -> int:
    """Return the most of these cycles in which a product with h has read it before its first results come."""
    return op.results - parameters.pipeline.operand


_OTHERS = {
    "norm": "a norm",
    "product": "a product of results",
    "gru_reset": "a GRU that resets h before its product",
    "gru_candidate": "a GRU that resets h before its product",
    "recall": "an LSTM with norms",
}
"""What a network has with layers of these kinds, which have no name in it."""


def check_wave(shapes: Sequence[LayerShape], passes: Passes = ()) -> None:
    """Refuse layers whose steps cannot follow each other so. Raises ConfigurationError."""
    if passes:
        raise ConfigurationError(
            "`wave_front` is for steps that come one by one, but a network with a reverse direction takes "
            f"whole sequences, a layer after the other: {_LEAVE_OUT}"
        )
    for index, shape in enumerate(shapes):
        other = _OTHERS.get(shape.kind)
        if shape.feedback:
            other = other or "an LSTM with a projection"
        elif shape.kind not in ("lstm", "gru", "unit", "rnn", "dense") or (index and shape.before != 1):
            other = other or "a layer that reads several results, or not those of the one before"
        if other is not None:
            raise ConfigurationError(
                "`wave_front` is for layers that read the one before them and their h, but the network has "
                f"{other}: {_LEAVE_OUT}"
            )
    if not shapes[0].recurrent:
        raise ConfigurationError(
            f"`wave_front` needs a recurrent layer first, which reads its h, but {shapes[0].name!r} does "
            f"not: {_LEAVE_OUT}"
        )


def _check_reads(op: Op, shape: LayerShape, parameters: Parameters) -> None:
    """Refuse a product with h that goes on so long that its first results replace the h that it reads."""
    if op.kind != "recurrent":
        return
    most, lasts = _most(op, parameters), _lasts(op)
    if lasts > most:
        raise ConfigurationError(
            f"`wave_front` needs h to be read before the next one is stored: the groups behind the first one "
            f"of layer {shape.name!r} must take {most} cycles at most, not {lasts}; choose more `lanes` or "
            f"`macs`, or {_LEAVE_OUT}"
        )


def _order(program: Program) -> list[Op]:
    """Return the operations in order: before each one that gives results, the one that reads the old ones."""
    recurrent = {op.layer: op for op in program.ops[: program.body]}
    body = {op.layer: op for op in program.ops[program.body :]}
    common = {"idle_cycles": 0, "waits_for_results": False, "newer_results": 0}

    def reads(layer: int) -> Op:
        """The product with a layer's input, which stores partial sums where the layer is recurrent."""
        op, other = body[layer], recurrent.get(layer)
        if other is None:
            return op.replace(**common)
        return op.replace(
            **common,
            writes_partials=True,
            yields=False,
            adds_partials=False,
            addends=other.addends,
            partials_row=other.partials_row,
            destination=None,
            beat_cycles=1,
            emit=False,
        )

    def completes(layer: int) -> Op:
        """The product with h, which completes a recurrent layer."""
        finished = ("addends", "cell", "destination", "emit", "yields", "adds_partials", "beat_cycles")
        given = {name: getattr(body[layer], name) for name in finished}
        return recurrent[layer].replace(**common, **given, writes_partials=False, partials_row=0)

    found = [reads(0)]
    firsts = [*sorted(recurrent), len(body)]
    for layer, after in pairwise(firsts):
        found += [reads(each) for each in reversed(range(layer + 1, min(after + 1, len(body))))]
        found.append(completes(layer))
    return found


def _waiting(ops: list[Op], layers: int) -> list[Op]:
    """Make operations wait for the results that they read, which came in the repetition before."""
    path = [*ops, *ops, *ops]
    found = newer_results(path, [False] * len(path), len(path), layers + 1)[2 * len(ops) :]
    return [
        op if newer is None else op.replace(waits_for_results=True, newer_results=newer)
        for op, newer in zip(ops, found, strict=True)
    ]


def _exit_waits(ops: list[Op], wave: Program) -> list[Op]:
    """Make the first part wait for results of the wave."""
    first, body = wave.body_end, wave.body
    path = [*ops[first:], *ops[first : wave.wave_exit + 1]]
    steps = ops[:first]
    waits = [False] * len(path) + [index == body - 1 for index in range(first)]
    found = newer_results([*path, *steps], waits)
    for index, newer in enumerate(found[len(path) :]):
        if newer is not None:
            op = ops[index]
            least = min(newer, op.newer_results) if op.waits_for_results else newer
            ops[index] = op.replace(waits_for_results=True, newer_results=least)
    return ops


def _in_order(wave: Program, parameters: Parameters) -> Program:
    """Add idle cycles, so that no results come before those of an operation before, whichever that is."""
    ops, first = list(wave.ops), wave.body_end
    repeated = range(first, len(ops))
    paths = [
        [*repeated, *repeated],
        [wave.body, *range(wave.wave_enter, len(ops)), *repeated],
        [first - 1, *repeated],
        [wave.recurrent_end - 1, *repeated],
        [wave.wave_exit, *range(wave.body + 1)],
        [wave.wave_exit, *repeated],
    ]
    for path in paths:
        yielding = [position for position, index in enumerate(path) if ops[index].yields]
        for before, after in pairwise(yielding):
            # A wait for the drain may be part of the idle cycles: so this is tried again.
            while cycles := _overtaken([ops[index] for index in path[before : after + 1]], parameters):
                _add_idle(ops, path[after - 1], cycles)
    return wave.replace(ops=tuple(ops))


def _overtaken(path: Sequence[Op], parameters: Parameters) -> int:
    """Return the cycles by which the last operation's first results would come before those of the first."""
    ends, drain_free = group_ends(path[0], 0, 0)
    op = path[0]
    words = parameters.words(op.last_units) if op.beat_cycles > 1 else 1
    stored = drain_free + op.results - op.beat_cycles + words
    for op_before, op in pairwise(path):
        ends, drain_free = group_ends(op, ends[-1] + 1 + op_before.idle_cycles, drain_free)
    return max(0, stored - ends[0] - path[-1].results)


def _add_idle(ops: list[Op], index: int, cycles: int) -> None:
    ops[index] = ops[index].replace(idle_cycles=ops[index].idle_cycles + cycles)
