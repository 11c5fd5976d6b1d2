"""Passes of whole sequences through layers, and the parts of a pass.

A *part* is a series of layers that process a sequence's steps in one direction. Parts of a *pass* read the
same sequence, and the next pass reads their concatenated outputs: a bidirectional layer is a pass of two
parts.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

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
