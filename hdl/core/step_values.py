"""Where a transfer is in its step, of whose sizes the core tells."""

from dataclasses import dataclass

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from rtlstm.hdl.component import Component
from rtlstm.hdl.core.program_store import PortSide, ProgramStore

SHAPE_PORT: dict[str, wiring.Member] = {"shape": In(32)}
"""The port of the sizes of a step, as the SHAPE register gives them."""


class StepPart(Component):
    """A component with the port :data:`SHAPE_PORT`, and more."""

    shape: Signal


@dataclass(frozen=True)
class StepValues:
    """Where a part is in a step: whether the next transfer is its first, and its last."""

    first: Value
    last: Value


def count_values(
    m: Module, program: ProgramStore, part: StepPart, side: PortSide, moved: Value, by: int = 1
) -> StepValues:
    """Count a step's values, ``by`` of them in each cycle with ``moved``.

    Another network is loaded between steps only. Its first step may begin in the cycle after the next.
    """
    begins = program.after_first(part.shape, side)
    # How many follow the first value of the next transfer.
    left = program.counter(side, f"{side}_left")
    first = Signal(init=1, name=f"{side}_first")
    last = left < by
    with m.If(moved):
        m.d.sync += [left.eq(Mux(last, begins, left - by)), first.eq(last)]
    program.when(m, first, [left.eq(begins)], otherwise=True)
    return StepValues(first, last)
