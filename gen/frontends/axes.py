"""Follows the axes of a tensor through operators that only move them, and sizes that a model computes.

A dense layer or a second LSTM reads the right numbers only if its features and steps are on the axes
that it expects. Each axis has a letter: T steps, N sequences, F features, D a direction or layer axis of
size 1, B both directions (forward first), L several layers (of a final state), S both directions of
several layers, K4 four frames inside a step, or four groups of features, 1 any other axis of size 1,
M:T:N the merged rows of steps and sequences, M alone merged rows of which that is not known, and ?0, ?1,
... an axis of the model's input, before a layer has shown what it is. When an operator mixes features with
anything else the axes are lost: what follows may be elementwise, but not a layer.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from operator import index
from types import MappingProxyType
from typing import Any

import numpy as np

from rtlstm.gen.frontends.graph import Graph, Node
from rtlstm.spec.errors import ModelError


@dataclass(frozen=True)
class Size:
    """A whole number times sizes that only a run knows, by their names in alphabetic order.

    Python's operators raise an ArithmeticError if the result is no such product.
    """

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

    def __index__(self) -> int:
        if self.names:
            raise ArithmeticError
        return self.number

    def __add__(self, other: "Size") -> "Size":
        return Size(index(self) + index(other))

    def __sub__(self, other: "Size") -> "Size":
        return Size(index(self) - index(other))

    def __mul__(self, other: "Size") -> "Size":
        return self.times(other)

    def __floordiv__(self, other: "Size") -> "Size":
        found = self.over(other) if self.names or other.names else Size(self.number // other.number)
        if found is None:
            raise ArithmeticError
        return found

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
    atoms = [
        (atom, current[at] if atom == "M" else axis_sizes([atom], features)[0].resolved(known))
        for at, tag in enumerate(tags)
        for atom in _atoms(tag)
    ]
    long = [(atom, size) for atom, size in atoms if size != _ONE]
    wanted = [size for size in filled if size != _ONE]
    runs = groups([size for _, size in long], wanted)
    if runs is None:
        return None
    made = _runs([atom for atom, _ in long], wanted, runs, features)
    singles = _singles(atoms, filled, runs)
    if made is None or singles is None:
        return None
    (kept, features), ones = made, iter(singles)
    rest = iter(kept)
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
        elif old == ["F"] and into == 2 and _may_group(atoms, new):
            made, width = [*made, f"K{new[0].number}", "F"], new[1].number
        else:
            return None
    return made, width


def _may_group(atoms: Sequence[str], sizes: Sequence[Size]) -> bool:
    """Whether features may be split into groups of known sizes: no axis is a part of a step already."""
    return not any(size.names for size in sizes) and not any(atom[0] in "BK" for atom in atoms)


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


_NOTHING: Mapping[str, Size] = MappingProxyType({})


@dataclass(frozen=True)
class Axes:
    """The axes of one tensor; ``lost`` names the operator that mixed them.

    ``features`` is the size of F, for each direction if there is a B. ``last_step`` and ``first_step`` say
    which of the steps alone is left.
    """

    tags: tuple[str, ...]
    features: int
    lost: str = ""
    squeezed: str = ""
    """The operator that took the axis of a single feature away."""
    last_step: bool = False
    first_step: bool = False
    shown: tuple[tuple[str, str], ...] = ()
    """Tags that layers have given to axes of the input: the first tag, and the present one."""
    single: tuple[str, ...] = ()
    """Steps or sequences, if the model handles one at a time."""
    fixed: tuple[tuple[str, int], ...] = ()
    """Sizes of axes of the input, by their first tags, that the model was exported for."""
    grouped: str = ""
    """The operator that put groups of the features on an axis of their own."""

    @property
    def frames(self) -> int:
        """Frames inside a step, each of ``features``; 1 without such an axis."""
        atoms = [atom for tag in self.tags for atom in tag.split(":")]
        return next((int(atom[1:]) for atom in atoms if atom[0] == "K"), 1)

    def _lose(self, where: str) -> "Axes":
        return replace(self, tags=(), lost=where)

    def ungrouped(self) -> "Axes":
        """The same, but lost if groups of features are apart, for an operator that cannot read these."""
        return self._lose(self.grouped) if self.grouped and self.frames > 1 else self

    def _index(self, axis: int, where: str, rank: int | None = None) -> int:
        rank = len(self.tags) if rank is None else rank
        if not -rank <= axis < rank:
            raise ModelError(f"{where} names axis {axis} of a tensor with {rank} axes; the model is damaged")
        return axis % rank

    def _indices(self, axes: Sequence[int], where: str, rank: int | None = None) -> list[int]:
        found = [self._index(axis, where, rank) for axis in axes]
        if len(set(found)) < len(found):
            raise ModelError(f"{where} names an axis twice: {list(axes)}; the model is damaged")
        return found

    @classmethod
    def unknown(cls, rank: int) -> "Axes":
        """Axes of a model's input."""
        return cls(tuple(f"?{axis}" for axis in range(rank)), 0)

    @property
    def waits(self) -> bool:
        """Whether no layer has shown yet what some axis is."""
        return any(map(_hidden, self.tags))

    def settle(self, tags: tuple[str, ...], features: int, where: str) -> "Axes":
        """Return these axes with the given tags; unknown ones take them over."""
        self.expect(where)
        pairs = list(zip(self.tags, tags, strict=False))
        # An axis that the model inserted is one step, or one sequence, unless it is what is left of several.
        alone = () if self.last_step or self.first_step else tuple(
            wanted for mine, wanted in pairs if mine == "1" and wanted in ("T", "N")
        )  # fmt: skip
        fits = len(tags) == len(self.tags) and all(
            mine == wanted or _hidden(mine) or (mine == "1" and wanted in alone) for mine, wanted in pairs
        )
        if not fits:
            raise ModelError(
                f"{where} must read axes ({', '.join(tags)}) for steps, sequences and features, but "
                f"its input has {self}"
            )
        return replace(
            self, tags=tags, features=features, shown=self._shows(tags), single=self.single + alone
        )

    def _shows(self, tags: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
        """Return the known tags of the input's axes, with these tags in place of unknown ones."""
        pairs = zip(self.tags, tags, strict=True)
        return (*self.shown, *((old, new) for old, new in pairs if _hidden(old) and old != new))

    def meaning(self, axis: int) -> str:
        """What an axis is, in words."""
        return _MEANING[self.tags[axis][0]]

    def __str__(self) -> str:
        return f"({', '.join(tag[0] for tag in self.tags)})"

    def settle_features(self, axis: int, where: str) -> "Axes":
        """Return these axes with the features on ``axis``; refuse them if features are elsewhere."""
        self.expect(where)
        rank = len(self.tags)
        if "F" not in self.tags and -rank <= axis < rank and _hidden(self.tags[axis]):
            at = axis % rank
            tags = (*self.tags[:at], "F", *self.tags[at + 1 :])
            return replace(self, tags=tags, shown=self._shows(tags))
        self.expect_features_at(axis, where)
        return self

    def expect(self, where: str) -> None:
        """Refuse a layer behind lost axes."""
        if self.lost and self.lost == self.grouped:
            raise ModelError(
                f"{where} must read whole feature vectors, but {self.lost} before it put groups of them on "
                "an axis of their own, which Linear, Einsum, arithmetic, activations, slices, sums and means "
                "can read; flatten the groups first"
            )
        if self.lost:
            raise ModelError(
                f"{where} must read whole feature vectors, but {self.lost} before it mixed the "
                "features with other axes (or its shape is not known)"
            )

    def expect_features_at(self, axis: int, where: str) -> None:
        """Refuse unless the features lie on ``axis``."""
        self.expect(where)
        rank = len(self.tags)
        if not -rank <= axis < rank or self.tags[axis] != "F":
            raise ModelError(
                f"{where} works along axis {axis}, but its input has axes {self} "
                "with the features on F; only layers along the features are supported"
            )
        if "B" in self.tags:
            raise ModelError(
                f"{where} reads the directions of a bidirectional layer apart; they must be joined before "
                "(side by side, as sum or as mean)"
            )

    def together(self, other: "Axes") -> "Axes | None":
        """Return the axes of a tensor computed from two, one may be the input; None if they differ."""
        shown = dict((*self.shown, *other.shown))
        mine, theirs = (tuple(_renamed(tag, shown) for tag in axes.tags) for axes in (self, other))
        if not _alike(mine, theirs) or any(shown[old] != new for old, new in (*self.shown, *other.shown)):
            return None
        if (self.last_step, self.first_step) != (other.last_step, other.first_step):
            return None
        single = tuple(dict.fromkeys((*self.single, *other.single)))
        return replace(self, tags=mine, shown=tuple(shown.items()), single=single)

    def with_features(self, features: int) -> "Axes":
        """Return the same axes with another number of features."""
        return replace(self, features=features)

    def transpose(self, perm: Sequence[int], where: str) -> "Axes":
        """Permute the axes."""
        if self.lost:
            return self
        order = self._indices(perm, where)
        if sorted(order) != list(range(len(self.tags))):
            raise ModelError(f"{where} must permute {len(self.tags)} axes, not {list(perm)}")
        return replace(self, tags=tuple(self.tags[axis] for axis in order))

    def swap(self, first: int, second: int, where: str) -> "Axes":
        """Exchange two axes."""
        if self.lost:
            return self
        (one, other), tags = (self._index(axis, where) for axis in (first, second)), list(self.tags)
        tags[one], tags[other] = tags[other], tags[one]
        return replace(self, tags=tuple(tags))

    def unsqueeze(self, axes: Sequence[int], where: str) -> "Axes":
        """Insert axes of size 1."""
        if self.lost:
            return self
        rank = len(self.tags) + len(axes)
        positions = self._indices(axes, where, rank)
        old = iter(self.tags)
        return replace(self, tags=tuple("1" if at in positions else next(old) for at in range(rank)))

    def squeeze(self, axes: Sequence[int] | None, where: str, *, strict: bool = True) -> "Axes":
        """Remove axes of size 1; ``strict`` if the operator fails on another size."""
        if self.lost:
            return self
        if axes is None:
            if all(tag in (*SINGLE, *self.single, "F") for tag in self.tags) and self.features > 1:
                return replace(self, tags=("F",))
            return self._lose(where)
        drop = set()
        for at in self._indices(axes, where):
            tag = self.tags[at]
            if tag == "F" and self.features == 1 and "B" not in self.tags:
                drop.add(at)
                continue
            if tag in ("F", "L", "B", "S") or tag[0] == "K":
                if strict:
                    raise ModelError(f"{where} removes axis {at} ({tag}), which is not of size 1")
                continue
            if tag not in (*SINGLE, *self.single) and not strict:
                return self._lose(where)
            drop.add(at)
        tags = tuple(tag for at, tag in enumerate(self.tags) if at not in drop)
        if "F" in tags or "F" not in self.tags:
            return replace(self, tags=tags)
        if self.grouped and self.frames > 1:  # Then groups of one feature each are the features.
            whole = tuple("F" if tag[0] == "K" else tag for tag in tags)
            return replace(self, tags=whole, features=self.frames, grouped="")
        return replace(self, tags=tags, squeezed=where)

    def flatten(self, start: int, end: int, where: str) -> "Axes":
        """Merge the axes from ``start`` to ``end`` (included)."""
        if self.lost:
            return self
        first, last = self._index(start, where), self._index(end, where)
        merged = self.tags[first : last + 1]
        if len(merged) == 1:
            return self
        if "F" in merged or "B" in merged:
            return self._merge((*self.tags[:first],), merged, (*self.tags[last + 1 :],), where)
        made = replace(self, tags=(*self.tags[:first], merge(merged), *self.tags[last + 1 :]))
        return self._whole(made, where)

    def _whole(self, made: "Axes", where: str) -> "Axes":
        """Return what these axes have become, but lost if groups of features were merged with other axes."""
        values = [
            math.prod([each.features, *(int(tag[1:]) for tag in each.tags if tag[0] == "K")])
            for each in (self, made)
        ]
        return made if not self.grouped or values[0] == values[1] else self._lose(where)

    def _merge(
        self, before: tuple[str, ...], merged: tuple[str, ...], after: tuple[str, ...], where: str
    ) -> "Axes":
        """Merge these axes to one of features, if they are features, with or without both directions."""
        if "".join(tag for tag in merged if tag not in SINGLE) not in ("F", "BF"):
            return self._lose(where)
        return replace(self, tags=(*before, "F", *after), features=self.features * (1 + ("B" in merged)))

    def reshape(
        self,
        shape: Sequence[int | Size | None] | None,
        where: str,
        *,
        zero_copies: bool = True,
        known: Mapping[str, Size] = _NOTHING,
    ) -> "Axes":
        """Change the shape; None stands for a number that is unknown before the run.

        ``known`` tells what sizes are, by the names that ``shape`` gives them; those of axes are their tags.
        """
        if self.lost:
            return self
        if not shape:
            return self._lose(where)
        sizes = [Size(size) if isinstance(size, int) else size for size in shape]
        if self.tags[1:] == ("N", "F") and len(sizes) == 4 and sizes[3] == Size(self.features):
            # PyTorch's documentation splits h_n like this.
            apart = {("S", 2): ("L", "B"), ("B", 2): ("D", "B"), ("L", 1): ("L", "D"), ("D", 1): ("D", "D")}
            found = apart.get((self.tags[0], sizes[1].number if sizes[1] and not sizes[1].names else 0))
            if found:
                return replace(self, tags=(*found, "N", "F"))
        if "L" in self.tags or "S" in self.tags:
            return self._lose(where)
        if sizes.count(None) == 1 and Size(-1) not in sizes:
            sizes = [size or Size(-1) for size in sizes]
        given = [size for size in sizes if size is not None]
        names = {**known, **{old: Size(1, (new,)) for old, new in self.shown if new != "F"}}
        names |= dict.fromkeys(self.single, Size())
        for tag, size in self.fixed:
            names |= dict.fromkeys((tag, dict(self.shown).get(tag, tag)), Size(size))
        regrouped = (
            regroup(self.tags, self.features, given, names, zero_copies) if None not in sizes else None
        ) or self._rows(sizes)
        if regrouped is None:
            return self._lose(where)
        made = self._whole(replace(self, tags=regrouped[0], features=regrouped[1]), where)
        return replace(made, grouped=where) if made.frames > self.frames == 1 else made

    def _rows(self, sizes: Sequence[Size | None]) -> tuple[tuple[str, ...], int] | None:
        """Return rows of whole features, with unknown other axes."""
        both = self.tags[-2:] == ("B", "F")
        features = self.features * (1 + both)
        kept = self.tags[: -2 if both else -1]
        if self.tags[-1:] != ("F",) or "B" in kept or sizes[-1] != Size(features) or Size(0) in sizes:
            return None
        return (*("M" for _ in sizes[:-1]), "F"), features

    def without(self, axis: int, *, keep: bool = False) -> "Axes":
        """Drop an axis, of which one element or the sum is taken; ``keep`` leaves an axis of size 1."""
        return replace(self, tags=(*self.tags[:axis], *(("1",) if keep else ()), *self.tags[axis + 1 :]))

    def select(self, axis: int, index: int, where: str, *, keep: bool = False) -> "Axes":
        """Take one element of an axis: the last step or the first, or the only element of a single axis.

        ``keep`` leaves an axis of size 1 in place, as a slice does.
        """
        self.expect(where)
        at = self._index(axis, where)
        tag = self.tags[at]
        last, first = tag == "T" and index == -1, tag == "T" and index == 0
        only = (tag in SINGLE and index in (0, -1)) or (tag == "L" and index == -1)
        if not (last or first or only):
            raise ModelError(
                f"{where} takes element {index} of axis {at}, which is {self.meaning(at)}; of the steps "
                "only the first, 0, or the last, -1, can be taken, and of a final state's layers the last"
            )
        return replace(
            self.without(at, keep=keep), last_step=self.last_step or last, first_step=self.first_step or first
        )


def _renamed(tag: str, shown: Mapping[str, str]) -> str:
    """Return a tag, or those that an axis was merged from, as layers have determined them."""
    return ":".join(shown.get(atom, atom) for atom in tag.split(":"))


def _alike(mine: Sequence[str], theirs: Sequence[str]) -> bool:
    """Whether two tensors have the same axes; merged rows may be unknown."""
    return len(mine) == len(theirs) and all(
        one == other or (one[0] == other[0] == "M" and "M" in (one, other))
        for one, other in zip(mine, theirs, strict=True)
    )


def _hidden(tag: str) -> bool:
    """Whether it is an axis of the input whose meaning no layer has determined."""
    return tag.startswith("?")


_MEANING = {
    "T": "the steps",
    "N": "the sequences of the batch",
    "F": "the features",
    "D": "a direction",
    "B": "both directions",
    "L": "the layers",
    "S": "the layers and directions",
    "K": "the frames of a step or groups of features",
    "1": "an axis of size 1",
    "M": "merged rows",
    "?": "an axis of the input",
}


# Sizes that a model computes


_PASS = ("cast", "identity", "reshape", "squeeze", "unsqueeze")
_MAX_RANK = 64
_Numbers = tuple[Size, ...]


class KnownSizes:
    """What is known of tensors that hold sizes, collected node by node in the graph's order."""

    def __init__(self, graph: Graph, steps: int = 0) -> None:
        self._graph = graph
        self.steps = steps
        """The steps of a sequence, if the caller has said how many; else 0."""
        self._measured: dict[str, _Numbers] = {}
        self._shown: dict[str, Size] = {}
        self._input = ""
        self._input_axes = Axes((), 0)

    def begin(self, tensor: str, axes: Axes) -> None:
        """The core's input, whose declared sizes are numbers or names."""
        self._input, self._input_axes = tensor, axes

    def made(self, node: Node) -> bool:
        """Whether a node gave sizes."""
        return any(name in self._measured for name in node.outputs)

    def measure(self, node: Node, axes: Axes | None) -> None:
        """Find a node's results, if they are sizes; ``axes`` are its input's, if the core computes that."""
        numbers: _Numbers | None = None
        if node.operator in ("shape", "size"):
            numbers = self._shape(node, axes)
        elif node.operator in (*_PASS, *_OPERATORS) and any(name in self._measured for name in node.inputs):
            given = [self.of(name) if name else () for name in node.inputs]
            numbers = given[0] if node.operator in _PASS else self._computed(node, given)
        if numbers is not None and len(node.outputs) == 1 and all(map(_small, numbers)):
            self._measured[node.outputs[0]] = numbers

    def of(self, tensor: str) -> _Numbers | None:
        """Return a tensor of whole numbers, row by row, constant or computed from sizes; None if neither."""
        if tensor in self._measured:
            return self._measured[tensor]
        value = self._graph.constant(tensor)
        if value is None or value.size > _MAX_RANK or value.dtype.kind not in "iu":
            return None
        return tuple(Size(int(item)) for item in value.reshape(-1))

    def known(self, tensor: str, axes: Axes) -> Mapping[str, Size]:
        """Return the values of named sizes that follow from the declared sizes of input and tensor."""
        shown = dict(axes.shown)
        found: dict[str, Size] = {}
        names: dict[str, set[str]] = {}
        for name, tags in ((self._input, self._input_axes.tags), (tensor, axes.tags)):
            for tag, declared in zip(tags, self._graph.dimensions(name), strict=False):
                root = shown.get(tag, tag)
                if isinstance(declared, int):
                    found.setdefault(tag, Size(declared))
                    if root not in ("F", "M"):
                        found.setdefault(root, Size(declared))
                elif declared and root[0] != "M":
                    names.setdefault(declared, set()).add(root)
        once = {f"size {name}": Size(1, tuple(roots)) for name, roots in names.items() if len(roots) == 1}
        return {**once, **found}

    def _shape(self, node: Node, axes: Axes | None) -> _Numbers | None:
        tensor = node.inputs[0]
        numbers: _Numbers
        if axes is not None and not axes.lost:
            numbers = tuple(axis_sizes(axes.tags, axes.features))
            self._shown |= {old: Size(1, (new,)) for old, new in axes.shown if new != "F"}
        else:
            declared = self._graph.dimensions(tensor)
            if not declared:
                return None
            numbers = tuple(
                Size(size) if isinstance(size, int) else Size(1, (f"size {size or f'{at} of {tensor}'}",))
                for at, size in enumerate(declared)
            )
        if node.operator == "size":
            return (product(numbers),)
        attributes = node.attributes
        return numbers[attributes.get("start", 0) : attributes.get("end")]

    def _computed(self, node: Node, given: Sequence[_Numbers | None]) -> _Numbers | None:
        """What an operator makes of sizes; None if one of them is not known, or the result is none."""
        parts = [part for part in given if part is not None]
        if node.operator == "div":  # The same size may be read before and after a layer determines its axis.
            parts = [tuple(size.resolved(self._shown) for size in part) for part in parts]
        if len(parts) < len(given):
            return None
        try:
            found = _OPERATORS[node.operator](node, *(np.array(part, dtype=object) for part in parts))
        except (ArithmeticError, IndexError, TypeError, ValueError):
            return None
        return tuple(found) if len(found) <= _MAX_RANK else None


def _small(size: Size) -> bool:
    """Whether a number can be a tensor's size; chains of products would grow without bound."""
    return abs(size.number) < 2**63 and len(size.names) <= _MAX_RANK


def _slice(node: Node, numbers: Any, *given: Any) -> Any:
    names = enumerate(("starts", "ends", "axes", "steps"))
    limits = (given[at] if at < len(given) else node.attributes.get(name, [Size()]) for at, name in names)
    (start,), (end,), _, (step,) = (limit if len(limit) else [Size()] for limit in limits)
    return numbers[start:end:step]


_OPERATORS: dict[str, Callable[..., Any]] = {
    "add": lambda _, one, other: one + other,
    "concat": lambda _, *parts: np.concatenate(parts),
    "div": lambda _, one, other: one // other,
    "gather": lambda _, numbers, chosen: [numbers[at] for at in chosen],
    "mul": lambda _, one, other: one * other,
    "reduce_prod": lambda _, numbers, *axes: (product(numbers),),
    "slice": _slice,
    "sub": lambda _, one, other: one - other,
}
"""What operators make of sizes, each an array of one axis."""
