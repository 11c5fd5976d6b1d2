"""Products of constant matrices as shared adders: exact, no deeper than trees, and fewer."""

from itertools import pairwise

import numpy as np
import pytest

from rtlstm.spec.adders import count_digits, share_adders, signed_digits


@pytest.mark.parametrize("value", [0, 1, -1, 3, 7, -7, 11, 85, -128, 127])
def test_signed_digits_are_the_fewest(value: int) -> None:
    digits = list(signed_digits(value))
    assert sum((-1 if negative else 1) << shift for shift, negative in digits) == value
    shifts = [shift for shift, _ in digits]
    # No two are neighbours: that makes them the fewest.
    assert all(later - shift > 1 for shift, later in pairwise(shifts))
    assert count_digits(np.array([value])) == len(digits)


@pytest.mark.parametrize("seed", range(12))
def test_products_are_exact(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows, columns = rng.integers(1, 24, size=2)
    most = 1 << int(rng.integers(1, 8))
    matrix = rng.integers(-most, most, size=(rows, columns))
    graph = share_adders(matrix)
    for _ in range(5):
        vector = rng.integers(-128, 128, size=columns)
        assert graph.compute(vector.tolist()) == (matrix @ vector).tolist()
    for row, term in zip(matrix, graph.rows, strict=True):
        if term is not None:
            sign = -1 if term.negative else 1
            ends = [sign * row @ np.where(sign * end * row > 0, 127, -128) >> term.shift for end in (1, -1)]
            # All values fit, and not in one bit less.
            bits = graph.bits(term.node, [8] * columns)
            assert all(-(1 << bits - 1) <= end < 1 << bits - 1 for end in ends)
            assert not all(-(1 << bits - 2) <= end < 1 << bits - 2 for end in ends)


@pytest.mark.parametrize("seed", range(12))
def test_addends_are_terms_of_their_rows(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows, columns = rng.integers(1, 24, size=2)
    matrix = rng.integers(-8, 8, size=(rows, columns))
    moves = rng.integers(-3, 4, size=rows)
    graph = share_adders(matrix, moves.tolist())
    vector, addends = rng.integers(-128, 128, size=columns), rng.integers(-1000, 1000, size=rows)
    found = graph.compute([*vector.tolist(), *addends.tolist()])
    product = matrix @ vector
    shifted = np.where(moves > 0, product << moves.clip(0), product >> -moves.clip(max=0))
    assert [value >> max(0, -move) for value, move in zip(found, moves, strict=True)] == (
        shifted + addends
    ).tolist()
    assert not any(term is None or term.negative for term in graph.rows)
    digits = [sum(len(list(signed_digits(value))) for value in row) for row in matrix.tolist()]
    assert graph.depth <= max(digits).bit_length()


@pytest.mark.parametrize("seed", range(4))
def test_sharing_saves_adders_and_no_row_gets_deeper(seed: int) -> None:
    matrix = np.random.default_rng(seed).integers(-7, 8, size=(32, 8))
    digits = [sum(len(list(signed_digits(value))) for value in row) for row in matrix.tolist()]
    graph = share_adders(matrix)
    assert len(graph.adders) < 0.75 * (sum(digits) - len(digits))
    assert graph.depth == (max(digits) - 1).bit_length()


def test_equal_rows_take_no_adders_of_their_own() -> None:
    row = [3, -5, 7, 2]
    one, four = (share_adders(np.array([row] * count)) for count in (1, 4))
    assert len(four.adders) == len(one.adders) and four.rows[0] == four.rows[3]


def test_groups_of_rows_share_nothing() -> None:
    row = [3, -5, 7, 2]
    graph = share_adders(np.array([row] * 6), groups=3)
    assert len(graph.adders) == 3 * len(share_adders(np.array([row])).adders)
    assert graph.rows[0] == graph.rows[3] and len(set(graph.rows)) == 3
    assert graph.compute([1, 2, -3, 4]) == [np.dot(row, [1, 2, -3, 4])] * 6
    rng = np.random.default_rng(0)
    matrix, vector = rng.integers(-7, 8, size=(12, 4)), rng.integers(-99, 99, size=4)
    assert share_adders(matrix, groups=3).compute(vector.tolist()) == (matrix @ vector).tolist()


def test_a_row_of_zeros_is_none() -> None:
    graph = share_adders(np.array([[0, 0], [0, 4]]))
    assert graph.rows[0] is None and not graph.adders
    assert graph.compute([5, -3]) == [0, -12]
