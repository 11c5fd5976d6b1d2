"""Words of weights that are kept: in a group of rows, those that are not zero in all of its lanes.

The array works on groups of ``lanes`` rows by words of ``macs`` columns. A word that is zero in a whole
group adds nothing to its sums, so it is neither stored nor issued. Which words are kept is part of a build's
program, and fixed in its hardware.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType
from typing import Final

from rtlstm.spec.errors import ConfigurationError

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

    Raises
    ------
    ConfigurationError
        If :func:`keep` cannot have chosen them.
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
