"""Sizes of axes as products, some factors of which are known only in a run."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

__all__ = ["Size", "groups", "product"]


@dataclass(frozen=True)
class Size:
    """A whole number times sizes that only a run knows, by their names in alphabetic order."""

    number: int = 1
    names: tuple[str, ...] = ()

    def times(self, other: "Size") -> "Size":
        """Return the product."""
        return Size(self.number * other.number, tuple(sorted(self.names + other.names)))

    def over(self, other: "Size") -> "Size | None":
        """Return the quotient, if it has no remainder for any values of the names."""
        mine, theirs = Counter(self.names), Counter(other.names)
        if other.number == 0 or self.number % other.number or theirs - mine:
            return None
        return Size(self.number // other.number, tuple(sorted((mine - theirs).elements())))

    def resolved(self, known: Mapping[str, "Size"]) -> "Size":
        """The same with what is known in place of names; what a name stands for may name others in turn."""
        found = [known[name].resolved(known) if name in known else Size(1, (name,)) for name in self.names]
        return product(found, self.number)


def product(sizes: Sequence[Size], number: int = 1) -> Size:
    """Return the product of all, times a number."""
    names = [name for size in sizes for name in size.names]
    for size in sizes:
        number *= size.number
    return Size(number, tuple(sorted(names)))


def groups(old: Sequence[Size], new: Sequence[Size]) -> list[tuple[int, int]] | None:
    """Split both into the shortest runs of equal products; None if the products of all differ.

    Each entry says how many sizes of ``old`` and of ``new`` the next run has. No size may be 1.
    """
    found: list[tuple[int, int]] = []
    at = to = 0
    while at < len(old) and to < len(new):
        ends = [at + 1, to + 1]
        left, right = old[at], new[to]
        while left != right:
            behind = right.over(left) is not None or (left.over(right) is None and ends[1] == len(new))
            if behind and ends[0] < len(old):
                left, ends[0] = left.times(old[ends[0]]), ends[0] + 1
            elif ends[1] < len(new):
                right, ends[1] = right.times(new[ends[1]]), ends[1] + 1
            else:
                return None
        found.append((ends[0] - at, ends[1] - to))
        at, to = ends
    return found if at == len(old) and to == len(new) else None
