"""The outputs of a model that has several: names for parts of the core's one output."""

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from rtlstm.spec.record import Record


class OutputPart(Record):
    """One of a model's outputs: so many of the core's output values, behind those of the parts before it."""

    name: Annotated[str, Field(min_length=1, max_length=200)]
    width: Annotated[int, Field(ge=1)]


def check_parts(parts: Sequence[OutputPart], outputs: int) -> None:
    """Check that parts make up all output values, with names of their own; a ValueError if not."""
    total, names = sum(part.width for part in parts), {part.name for part in parts}
    if parts and (total != outputs or len(names) < len(parts)):
        raise ValueError(
            f"the parts of {outputs} outputs must have {outputs} values in all, and names of their own, but "
            f"have {total} values and the names {', '.join(part.name for part in parts)}"
        )


def part_slices(parts: Sequence[OutputPart]) -> dict[str, slice]:
    """Return where each part is among the output values."""
    found, first = {}, 0
    for part in parts:
        found[part.name] = slice(first, first + part.width)
        first += part.width
    return found
