"""Sizes of axes as products, some factors of which are known only in a run."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate


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


SINGLE = ("D", "1")
"""Tags of axes of size 1."""
_ONE = Size()


def merge(tags: Sequence[str]) -> str:
    """Return the tag of one axis that is merged from these."""
    atoms = [atom for tag in tags for atom in _atoms(tag) if atom not in SINGLE]
    if len(atoms) < 2:
        return atoms[0] if atoms else "1"
    return "M" if "M" in atoms else ":".join(["M", *atoms])


def _atoms(tag: str) -> list[str]:
    """Return the tags that an axis was merged from, or its own."""
    return tag.split(":")[1:] if tag.startswith("M:") else [tag]


def axis_sizes(tags: Sequence[str], features: int) -> list[Size]:
    """Return the size of each axis; sizes that only a run knows are named by their tags."""
    fixed = {"F": Size(features), "B": Size(2), **dict.fromkeys(SINGLE, _ONE)}
    return [
        Size(1, (f"M at {at}",)) if tag == "M"
        else product([
            Size(int(atom[1:])) if atom[0] == "K" else fixed.get(atom, Size(1, (atom,)))
            for atom in _atoms(tag)
        ])
        for at, tag in enumerate(tags)
    ]  # fmt: skip


def regroup(
    tags: Sequence[str], features: int, shape: Sequence[Size], known: Mapping[str, Size], copies: bool
) -> tuple[tuple[str, ...], int] | None:
    """Return tags and features after a change of shape; None if features were mixed with other axes.

    ``shape`` may have one -1, for what is left, and with ``copies`` zeros, for the size that stands there.
    ``known`` tells what names of sizes stand for.
    """
    current = [size.resolved(known) for size in axis_sizes(tags, features)]
    target = [size.resolved(known) for size in shape]
    if copies:
        target = [
            current[at] if size == Size(0) and at < len(current) else size for at, size in enumerate(target)
        ]
    filled = _fill(current, target)
    if filled is None:
        return None
    # Merged axes are split first: the new shape may restore them.
    atoms = [(atom, at) for at, tag in enumerate(tags) for atom in _atoms(tag)]
    sizes = [
        current[at] if atom == "M" else axis_sizes([atom], features)[0].resolved(known) for atom, at in atoms
    ]
    long = [(atom, size) for (atom, _), size in zip(atoms, sizes, strict=True) if size != _ONE]
    wanted = [size for size in filled if size != _ONE]
    runs = groups([size for _, size in long], wanted)
    if runs is None:
        return None
    made = _runs([atom for atom, _ in long], wanted, runs, features)
    if made is None:
        return None
    kept, features = made
    singles = _singles([(atom, size) for (atom, _), size in zip(atoms, sizes, strict=True)], filled, runs)
    if singles is None:
        return None
    rest, ones = iter(kept), iter(singles)
    return tuple(next(ones) if size == _ONE else next(rest) for size in filled), features


def _fill(current: Sequence[Size], target: Sequence[Size]) -> list[Size] | None:
    """Return the target with the remaining size in place of its -1."""
    open_positions = [at for at, size in enumerate(target) if size == Size(-1)]
    if not open_positions:
        return list(target)
    left = product(current).over(product([size for size in target if size != Size(-1)]))
    if len(open_positions) > 1 or left is None:
        return None
    return [left if size == Size(-1) else size for size in target]


def _runs(
    atoms: list[str], wanted: list[Size], runs: list[tuple[int, int]], features: int
) -> tuple[list[str], int] | None:
    """Return the tags of the new axes that are longer than 1, run by run."""
    made: list[str] = []
    width = features
    at = to = 0
    for count, into in runs:
        old, new = atoms[at : at + count], wanted[to : to + into]
        at, to = at + count, to + into
        if "F" not in old and "B" not in old:
            made += [merge(old)] if into == 1 else ["M"] * into
        elif len(old) == into == 1:
            made += old
        elif old == ["B", "F"] and into == 1:
            made, width = [*made, "F"], 2 * features
        elif old == ["F"] and new == [Size(2), Size(features // 2)] and "B" not in atoms:
            made, width = [*made, "B", "F"], features // 2
        else:
            return None
    return made, width


def _singles(
    atoms: list[tuple[str, Size]], target: list[Size], runs: list[tuple[int, int]]
) -> list[str] | None:
    """Return the tags of the new axes of size 1, in order; None if the only feature would lose its axis.

    Between two runs there may be more of them, or fewer, than before: steps and sequences keep theirs first.
    """
    old = _positions([size for _, size in atoms], list(accumulate(count for count, _ in runs)))
    new = _positions(target, list(accumulate(count for _, count in runs)))
    made: list[str] = []
    for gap in range(len(runs) + 1):
        there = [atoms[at][0] for at, gap_index in old if gap_index == gap]
        count = sum(gap_index == gap for _, gap_index in new)
        if "F" in there and not count:
            return None
        ranks = sorted(range(len(there)), key=lambda at: (there[at] != "F", there[at] in SINGLE, at))
        kept = [there[at] for at in sorted(ranks[:count])]
        blank = ["1"] * (count - len(kept))
        # The features are mostly the last axis, so new axes are put in front of them.
        made += [*kept[:-1], *blank, "F"] if kept[-1:] == ["F"] else [*kept, *blank]
    return made


def _positions(sizes: list[Size], ends: list[int]) -> list[tuple[int, int]]:
    """Return the index of each size of 1, and how many runs end before it."""
    found, seen = [], 0
    for at, size in enumerate(sizes):
        if size == _ONE:
            found.append((at, sum(end <= seen for end in ends)))
        else:
            seen += 1
    return found
