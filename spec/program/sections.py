"""Sections of products: the order in which a layer's words are multiplied where lanes keep sums of groups.

A layer that waits for its vector multiplies meanwhile, for all row groups, the words that are there: the
first section. What is left behind the last result is the last section, and not almost the whole product.
"""

from collections.abc import Iterator

from rtlstm.spec.cells.unit import UnitTiming
from rtlstm.spec.errors import ConfigurationError
from rtlstm.spec.numerics import LayerShape
from rtlstm.spec.parameters import Parameters
from rtlstm.spec.program.passes import NOTHING_SKIPPED, Kept
from rtlstm.spec.program.schedule import StepSchedule, Timeline
from rtlstm.spec.program.step import NO_SECTIONS, Program, compile_program

_LEAST_GROUPS = 4
"""A kept sum can be read four cycles after its group's last word, and each other group takes a cycle."""
_MOST_SECTIONS = 3
_MOST_SIZES = 16
"""Sizes of sections that are tried."""
_MOST_WORDS = 4096
"""Words of a product up to which they are: of a longer one, the wait is a small part."""


def plan_program(
    shapes: tuple[LayerShape, ...], parameters: Parameters, timing: UnitTiming, kept: Kept = NOTHING_SKIPPED
) -> Program:
    """Compile a step's program, with the sections that make its latency least and its interval no longer.

    Layer by layer, sizes of sections are tried on the schedule, until none is better. Parameters and errors
    are those of :func:`rtlstm.spec.program.step.compile_program`. Raises ConfigurationError, too, if lanes
    are to keep sums of a program that skips words.
    """
    program = compile_program(shapes, parameters, timing, kept)
    sums = parameters.lane_sums
    if sums is None:
        return program
    if kept:
        raise ConfigurationError(
            "`lane_sums` cannot be given for a build that skips words, whose order is in a table; leave out "
            "`lane_sums` or `skip_zeros`"
        )

    def latency(program: Program) -> int:
        timeline = Timeline(program, parameters)
        beats = timeline.beats(0)
        return timeline.step(beats, first_step=False)[1] - beats[-1]

    def interval(program: Program) -> int:
        return StepSchedule(program, parameters).interval

    best, longest, chosen, before = latency(program), interval(program), NO_SECTIONS, None
    while chosen is not before:
        before = chosen
        for op in program.ops[program.body : program.body_end]:
            divides = _LEAST_GROUPS <= op.groups <= sums and op.words <= _MOST_WORDS
            for sizes in _sizes(op.columns) if divides else ():
                sections = {**chosen, op.layer: sizes}
                tried = compile_program(shapes, parameters, timing, sections=sections)
                reached = latency(tried)
                if reached < best and interval(tried) <= longest:
                    best, program, chosen = reached, tried, sections
    return program


def _sizes(columns: int) -> Iterator[tuple[int, ...]]:
    """Yield sizes of two or more sections of so many words; all but the last are equal."""
    for count in range(2, _MOST_SECTIONS + 1):
        largest = (columns - 1) // (count - 1)
        for size in range(1, largest + 1, -(-largest // _MOST_SIZES) or 1):
            yield (*(size,) * (count - 1), columns - size * (count - 1))
