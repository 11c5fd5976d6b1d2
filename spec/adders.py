"""Products of constant matrices with vectors, as graphs of adders that rows share.

Each weight is a sum of powers of two in canonical signed digits, the fewest possible. A row is then a sum of
terms: shifted inputs. The pair of terms that occurs most often becomes an adder, which is a new term of all
rows with that pair. This repeats until no pair occurs twice. Only pairs of terms of equal depth are shared:
so no row gets deeper than a tree of its terms would be that shares nothing.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from heapq import heapify, heappop, heappush

import numpy as np

from rtlstm.spec.fixed import IntArray


@dataclass(frozen=True, order=True)
class Term:
    """A node's value times ``2**shift``, or that with its sign changed."""

    node: int
    shift: int
    negative: bool = False


@dataclass(frozen=True)
class Adder:
    """The sum of two terms, of which the first is not negative."""

    first: Term
    second: Term


@dataclass(frozen=True)
class AdderGraph:
    """Adders whose results include a matrix's products with a vector.

    Nodes ``0`` to ``inputs - 1`` are the vector's values, and behind these the rows' addends if there are
    some. The adders are the nodes from ``inputs`` on. Each adder comes after the nodes that it adds.
    """

    inputs: int
    adders: tuple[Adder, ...]
    rows: tuple[Term | None, ...]
    """The term that is each row's result; None if the row is zero."""
    forms: tuple[Mapping[int, int], ...]
    """Each node as a sum of inputs: their factors."""
    depth: int
    """Adders behind each other, at most."""

    def bits(self, node: int, inputs: Sequence[int]) -> int:
        """Return how many bits a node's values need, with their sign, from how many the inputs have."""
        least = most = 0
        for column, factor in self.forms[node].items():
            top = (1 << inputs[column] - 1) * abs(factor)
            # A signed input reaches one further below zero than above: -8 to 7.
            least -= top - abs(factor) * (factor < 0)
            most += top - abs(factor) * (factor > 0)
        return 1 + max(most, -least - 1).bit_length()

    def compute(self, vector: Sequence[int]) -> list[int]:
        """Return the products of the rows."""
        values = list(vector)

        def of(term: Term) -> int:
            value = values[term.node] << term.shift
            return -value if term.negative else value

        for adder in self.adders:
            values.append(of(adder.first) + of(adder.second))
        return [0 if term is None else of(term) for term in self.rows]


Pattern = tuple[int, int, int, bool, int]
"""Two nodes, the second's shift less the first's, whether their signs differ, and the group of rows."""


def signed_digits(value: int) -> Iterator[tuple[int, bool]]:
    """Yield the shifts of an integer's canonical signed digits, and whether they are negative."""
    shift = 0
    while value:
        if value & 1:
            digit = 2 - (value & 3)
            yield shift, digit < 0
            value -= digit
        value >>= 1
        shift += 1


def count_digits(values: IntArray) -> IntArray:
    """Return how many canonical signed digits integers have."""
    # Where a number and three times it differ, it has a digit one bit below.
    magnitudes = np.abs(values).astype(np.uint64)
    counts: IntArray = np.bitwise_count(magnitudes ^ (3 * magnitudes)).astype(np.int64)
    return counts


def share_adders(matrix: IntArray, moves: Sequence[int] | None = None, groups: int = 1) -> AdderGraph:
    """Return a graph of the products with a matrix ``(rows, columns)``.

    Row ``n`` is in group ``n % groups``. Only rows of the same group share adders.

    With ``moves``, each row is the sum of its product and an addend. The addends are inputs, behind the
    columns. A positive move shifts the row's product left by so many bits. A negative one shifts its addend
    left instead: the caller then drops so many low bits of the sum. No row is a negative term then.
    """
    rows = tuple(map(tuple, matrix.tolist()))
    return _share(rows, matrix.shape[1], None if moves is None else tuple(moves), groups)


# Hardware, estimates and reports ask for the same graphs, which take a tenth of a second.
@lru_cache(maxsize=32)
def _share(
    rows: tuple[tuple[int, ...], ...], columns: int, moves: tuple[int, ...] | None, groups: int
) -> AdderGraph:
    return _Sharing(rows, columns, moves, groups).graph()


class _Sharing:
    """Rows as sets of terms, and how often each pair of terms occurs in them."""

    def __init__(
        self, rows: Sequence[Sequence[int]], columns: int, moves: Sequence[int] | None, groups: int
    ) -> None:
        self._groups = groups
        self._inputs = columns if moves is None else columns + len(rows)
        self._adders: list[Adder] = []
        self._depths = [0] * self._inputs
        self._forms: list[Counter[int]] = [Counter({column: 1}) for column in range(self._inputs)]
        """Each node as a sum of inputs."""
        self._made: dict[Pattern, Term] = {}
        """The sum of a pattern's terms, if the first one is positive and the lower shift is 0."""
        self._rows = [
            {Term(column, *digit) for column, value in enumerate(row) for digit in signed_digits(value)}
            for row in rows
        ]
        for number, (terms, move) in enumerate(zip(self._rows, moves or (), strict=moves is not None)):
            moved = {replace(term, shift=term.shift + move) for term in terms} if move > 0 else terms
            self._rows[number] = moved | {Term(columns + number, max(0, -move))}
        self._counts: Counter[Pattern] = Counter()
        self._changed = set[Pattern]()
        """Patterns that occur more often than before, and more than once."""
        self._where: defaultdict[Pattern, Counter[int]] = defaultdict(Counter)
        for number, terms in enumerate(self._rows):
            ordered = sorted(terms)
            for index, term in enumerate(ordered):
                self._count(number, term, ordered[:index], 1)

    def graph(self) -> AdderGraph:
        """Share what rows have in common, then add what is left of each row."""
        self._share()
        rows = tuple(self._add_all(number % self._groups, terms) for number, terms in enumerate(self._rows))
        depth = max((self._depths[term.node] for term in rows if term is not None), default=0)
        return AdderGraph(self._inputs, tuple(self._adders), rows, tuple(self._forms), depth)

    def _count(self, row: int, term: Term, others: Sequence[Term], change: int) -> None:
        for other in others:
            if self._depths[term.node] == self._depths[other.node]:
                pattern = _pattern(term, other, row % self._groups)
                self._counts[pattern] += change
                self._where[pattern][row] += change
                if change > 0 and self._counts[pattern] > 1:
                    self._changed.add(pattern)

    def _share(self) -> None:
        best = [(-self._counts[pattern], pattern) for pattern in self._changed]
        heapify(best)
        while best:
            count, pattern = heappop(best)
            now = self._counts[pattern]
            if now < 2:
                continue
            if now != -count:
                heappush(best, (-now, pattern))
                continue
            found = [
                (row, pairs)
                for row in sorted(row for row, count in self._where[pattern].items() if count)
                if (pairs := self._pairs(row, pattern))
            ]
            if sum(len(pairs) for _, pairs in found) < 2:
                # Pairs that share a term were all counted, but only one of them can be taken.
                self._counts[pattern] = 0
                continue
            self._changed = set()
            for row, pairs in found:
                for first, second in pairs:
                    self._replace(row, first, second)
            for other in sorted(self._changed):
                heappush(best, (-self._counts[other], other))

    def _pairs(self, row: int, pattern: Pattern) -> list[tuple[Term, Term]]:
        """Return the pairs of a row that have a pattern, each term in one of them at most."""
        node, other, distance, differ, _ = pattern
        terms, used, found = self._rows[row], set[Term](), list[tuple[Term, Term]]()
        for term in sorted(term for term in terms if term.node == node):
            partner = Term(other, term.shift + distance, term.negative != differ)
            if term not in used and partner in terms and partner not in used and partner != term:
                used |= {term, partner}
                found.append((term, partner))
        return found

    def _replace(self, row: int, first: Term, second: Term) -> None:
        terms = self._rows[row]
        for term in (first, second):
            terms.remove(term)
            self._count(row, term, list(terms), -1)
        sum_of = self._add(row % self._groups, first, second)
        while sum_of in terms:
            # Twice the same is one with the next shift.
            terms.remove(sum_of)
            self._count(row, sum_of, list(terms), -1)
            sum_of = Term(sum_of.node, sum_of.shift + 1, sum_of.negative)
        self._count(row, sum_of, list(terms), 1)
        terms.add(sum_of)

    def _add(self, group: int, first: Term, second: Term) -> Term:
        """Return the sum of two terms, of an adder that the group has already if there is one."""
        pattern = _pattern(first, second, group)
        first, second = sorted((first, second))
        low, negative = min(first.shift, second.shift), first.negative
        if pattern not in self._made:
            # A positive term comes first. Addends are positive, so no sum with an addend is a negative term.
            swaps = first.negative and not second.negative
            if swaps:
                first, second = second, first
            self._made[pattern] = Term(len(self._depths), 0, swaps)
            one = Term(first.node, first.shift - low)
            other = Term(second.node, second.shift - low, first.negative != second.negative)
            self._adders.append(Adder(one, other))
            self._depths.append(1 + max(self._depths[first.node], self._depths[second.node]))
            form = Counter[int]()
            for term in (one, other):
                for column, factor in self._forms[term.node].items():
                    form[column] += (-factor if term.negative else factor) << term.shift
            self._forms.append(form)
        made = self._made[pattern]
        return Term(made.node, low, made.negative != negative)

    def _add_all(self, group: int, terms: set[Term]) -> Term | None:
        """Add terms, the shallowest first."""
        waiting = [(self._depths[term.node], term) for term in terms]
        heapify(waiting)
        while len(waiting) > 1:
            (_, first), (_, second) = heappop(waiting), heappop(waiting)
            whole = self._add(group, first, second)
            heappush(waiting, (self._depths[whole.node], whole))
        return waiting[0][1] if waiting else None


def _pattern(one: Term, other: Term, group: int) -> Pattern:
    """Return what two terms have in common with any others of the same distance in a group of rows."""
    first, second = sorted((one, other))
    return first.node, second.node, second.shift - first.shift, first.negative != second.negative, group
