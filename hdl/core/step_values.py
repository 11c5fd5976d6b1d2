"""How many values a step has: a constant of a build, or what a loadable core says of its network."""

from dataclasses import dataclass
from typing import Literal

from amaranth.hdl import Module, Mux, Signal, Value, ValueLike
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from rtlstm.hdl.component import Component
from rtlstm.spec.manifest import Manifest

__all__ = ["PortSide", "StepPart", "StepValues", "after_first", "count_values", "shape_port"]

PortSide = Literal["inputs", "outputs"]
"""Values into a step, or out of it."""


def shape_port(manifest: Manifest) -> dict[str, wiring.Member]:
    """Return the port that tells the sizes of a loadable core's steps, as its SHAPE register gives them."""
    return {"shape": In(32)} if manifest.parameters.capacity else {}


class StepPart(Component):
    """A component with the port of :func:`shape_port`, and more."""

    shape: Signal
    """Only in a loadable core."""


def _most(manifest: Manifest, side: PortSide) -> int:
    """How many values a step can have."""
    return manifest.capacity.inputs if side == "inputs" else manifest.capacity.outputs


def after_first(manifest: Manifest, part: StepPart, side: PortSide) -> ValueLike:
    """How many values follow a step's first one; ``part`` has the port of :func:`shape_port`."""
    if manifest.parameters.capacity is None:
        return _most(manifest, side) - 1
    # Of 16 bits, as SHAPE has: 0 stands for 65,536 values.
    values = part.shape[:16] if side == "inputs" else part.shape[16:]
    return (values - 1)[:16]


@dataclass(frozen=True)
class StepValues:
    """Where a part is in a step: whether the next transfer is its first, and its last."""

    first: Value
    last: Value


def count_values(
    m: Module, manifest: Manifest, part: StepPart, side: PortSide, moved: Value, by: int = 1
) -> StepValues:
    """Count a step's values, ``by`` of them in each cycle with ``moved``.

    ``part`` has the port of :func:`shape_port`; another network is loaded between steps only. Its first step
    may begin in the cycle after the next.
    """
    most, begins = _most(manifest, side), after_first(manifest, part, side)
    # How many follow the first value of the next transfer.
    loadable = manifest.parameters.capacity is not None
    left = Signal(range(most), init=0 if loadable else most - 1, reset_less=loadable, name=f"{side}_left")
    first = Signal(init=1, name=f"{side}_first")
    last = left < by
    with m.If(moved):
        m.d.sync += [left.eq(Mux(last, begins, left - by)), first.eq(last)]
    if loadable:
        with m.Elif(first):
            m.d.sync += left.eq(begins)
    return StepValues(first, last)
