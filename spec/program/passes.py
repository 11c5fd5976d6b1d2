"""Passes of whole sequences through layers, the parts of a pass, and the words of weights that are kept.

A *part* is a series of layers that process a sequence's steps in one direction. Parts of a *pass* read the
same sequence, and the next pass reads their concatenated outputs: a bidirectional layer is a pass of two
parts.

A word of weights that is zero in a whole group of rows adds nothing to its sums: it can be left out. Which
words are kept is part of a build's program, and fixed in its hardware.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType
from typing import Annotated, Any, Final

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from rtlstm.spec.errors import ConfigurationError
from rtlstm.spec.record import Record


class Part(Record):
    """Consecutive layers that process a sequence together."""

    layers: Annotated[int, Field(ge=1)]
    """Number of layers; parts follow the order of the network's layers."""
    reverse: bool = False
    """Process steps from the sequence's last to its first."""
    reversed_output: bool = False
    """The part is in reverse, and its outputs are in the order in which they are computed."""


Passes = tuple[tuple[Part, ...], ...]
"""Parts of each pass, in order; empty for a network without a reverse direction, computed step by step."""


def part_layers(passes: Passes) -> list[list[range]]:
    """Return the indices of the layers of each part, pass by pass."""
    first, found = 0, []
    for parts in passes:
        mine = []
        for part in parts:
            mine.append(range(first, first + part.layers))
            first += part.layers
        found.append(mine)
    return found


def feeds(passes: Passes, layer: int, back: int = 1) -> list[int]:
    """Return the layers whose outputs a layer reads; none if it reads the network's input.

    Within a part, this is the layer that is ``back`` layers earlier.
    """
    before: list[range] = []
    for parts in part_layers(passes):
        for layers in parts:
            if layer in layers:
                return [other[-1] for other in before] if layer == layers[0] else [layer - back]
        before = parts
    return [layer - back] if layer else []


def reverse_valid(values: NDArray[Any], lengths: NDArray[Any]) -> NDArray[Any]:
    """Reverse the valid steps of each sequence: ``values`` are ``(T, N, ...)``, ``lengths`` ``(N,)``."""
    steps = np.arange(len(values))[:, None]
    positions = np.where(steps < lengths, lengths - 1 - steps, steps)
    return np.take_along_axis(values, positions.reshape(*positions.shape, *(1,) * (values.ndim - 2)), axis=0)


def output_positions(widths: Sequence[int], gate_units: int) -> list[int]:
    """Return the index of each value in the concatenated outputs of parts of these widths.

    The results of one cycle are stored together: each part begins at a multiple of ``gate_units``.
    """
    first = 0
    positions: list[int] = []
    for width in widths:
        positions += range(first, first + width)
        first = -(-(first + width) // gate_units) * gate_units
    return positions


def input_positions(
    passes: Passes, outputs: Sequence[int], layer: int, inputs: int, gate_units: int
) -> list[int]:
    """Return the indices of a layer's inputs in the vector that it reads; ``outputs`` is for all layers."""
    found = part_layers(passes)
    for before, parts in pairwise(found):
        if any(layer == layers[0] for layers in parts):
            return output_positions([outputs[layers[-1]] for layers in before], gate_units)
    return list(range(inputs))


Groups = tuple[tuple[int, ...], ...]
"""Indices of the kept words of each group, in order."""
Kept = Mapping[tuple[int, bool], Groups]
"""The kept words of products that skip some: by layer, and whether it is the product with the layer's h."""

NOTHING_SKIPPED: Final[Kept] = MappingProxyType({})


def keep(needed: Sequence[Sequence[bool]]) -> Groups:
    """Choose the words to keep; ``needed`` says of each group which of its words are not zero.

    Each group keeps one word at least, because its sums leave the array behind its last word. The first one
    keeps the vector's last word: in it the sequencer waits for the vector.
    """
    groups = []
    for number, words in enumerate(needed):
        last = len(words) - 1
        kept = [word for word, wanted in enumerate(words) if wanted or (number == 0 and word == last)]
        groups.append(tuple(kept or [0]))
    return tuple(groups)


def check_groups(groups: Groups, layer: str, count: int, columns: int) -> None:
    """Check the kept words of a product of ``count`` groups of ``columns`` words.

    Raises ConfigurationError if :func:`keep` cannot have chosen them.
    """
    ordered = all(
        words
        and words[0] >= 0
        and words[-1] < columns
        and all(word < after for word, after in pairwise(words))
        for words in groups
    )
    if len(groups) != count or not ordered or groups[0][-1] != columns - 1:
        raise ConfigurationError(
            f"the kept words of layer {layer!r} must be those of {count} groups, one or more of each, in "
            f"order and below {columns}, and the first group's with {columns - 1}"
        )


def no_loadable_program() -> str:
    """Return why a loadable program cannot skip words."""
    return (
        "a loadable program cannot skip words: its device takes other networks, whose zeros are elsewhere; "
        "leave out `skip_zeros` or `capacities`"
    )
