"""Changes of shape: every axis that is said to be kept holds what it held, by numbered elements."""

import numpy as np
import pytest

from rtlstm.gen.frontends.axes import Axes, Size, groups, product, regroup

FIXED = ("D", "1")


def drawn(rng):
    """Axes with their sizes, and a shape for as many elements: axes merged, taken apart, and of size 1."""
    tags = [str(tag) for tag in rng.permutation(["T", "N"])][: rng.integers(1, 3)]
    tags += ["B"] * int(rng.integers(2)) + ["F"]
    for _ in range(rng.integers(3)):
        tags.insert(rng.integers(len(tags) + 1), str(rng.choice(FIXED)))
    sizes = {"T": int(rng.integers(1, 5)), "N": int(rng.integers(1, 5)), "B": 2, "F": int(rng.integers(1, 7))}
    own = [sizes.get(tag, 1) for tag in tags]
    shape = [size for size in own if size > 1 or rng.random() < 0.5] or [1]
    for _ in range(rng.integers(4)):
        at = int(rng.integers(len(shape)))
        if rng.random() < 0.4 and at + 1 < len(shape):
            shape[at : at + 2] = [shape[at] * shape[at + 1]]
        elif rng.random() < 0.5:
            divisor = int(rng.choice([d for d in range(1, shape[at] + 1) if shape[at] % d == 0]))
            shape[at : at + 1] = [divisor, shape[at] // divisor]
        else:
            shape.insert(at, 1)
    return tuple(tags), sizes, own, shape


def expect_kept(tags, sizes, own, shape, made):
    new_tags, features = made
    # Of each tag, an array that numbers the elements along its axis.
    numbers = {tag: np.indices(own)[at] for at, tag in enumerate(tags) if tag not in FIXED}
    if features == 2 * sizes["F"]:  # both directions side by side
        numbers["F"] = numbers["B"] * sizes["F"] + numbers["F"]
        assert "B" not in new_tags
    elif features != sizes["F"]:  # features taken apart
        assert "B" not in tags
        groups, numbers["F"] = np.divmod(numbers["F"], features)
        numbers |= {tag: groups for tag in new_tags if tag[0] in "BK"}
    for at, tag in enumerate(new_tags):
        if tag in ("M", "1", "D"):
            continue
        atoms = tag.split(":")[1:] if ":" in tag else [tag]
        number = np.zeros(own, dtype=int)
        for atom in atoms:
            number = number * sizes[atom] + numbers[atom] if len(atoms) > 1 else numbers[atom]
        assert np.array_equal(number.reshape(shape), np.indices(shape)[at]), (tags, own, shape, new_tags)


@pytest.mark.parametrize("seed", range(4))
def test_every_axis_that_is_kept_holds_what_it_held(seed):
    rng = np.random.default_rng(seed)
    kept = 0
    for _ in range(400):
        tags, sizes, own, shape = drawn(rng)
        known = {tag: Size(sizes[tag]) for tag in ("T", "N") if rng.random() < 0.8}
        given = [Size(size) for size in shape]
        if rng.random() < 0.3:
            given[int(rng.integers(len(given)))] = Size(-1)
        made = regroup(tags, sizes["F"], given, known, copies=False)
        if made is not None:
            kept += 1
            expect_kept(tags, sizes, own, shape, made)
    assert kept > 150


def test_merged_axes_are_taken_apart_again():
    made = regroup(("T", "N", "F"), 6, [Size(-1), Size(6)], {}, copies=True)
    assert made == (("M:T:N", "F"), 6)
    back = regroup(made[0], 6, [Size(1, ("T",)), Size(-1), Size(6)], {}, copies=True)
    assert back == (("T", "N", "F"), 6)
    reversed_output = regroup(made[0], 6, [Size(1, ("N",)), Size(-1), Size(6)], {}, copies=True)
    assert reversed_output == (("M", "M", "F"), 6)


def test_zeros_copy_and_what_is_left_may_be_unknown():
    tags = ("T", "N", "D", "F")
    assert regroup(tags, 6, [Size(0), Size(0), Size(-1)], {}, copies=True) == (("T", "N", "F"), 6)
    assert regroup(tags, 6, [Size(4), Size(-1), Size(6)], {"T": Size(4)}, copies=False) == (
        ("T", "N", "F"),
        6,
    )
    assert regroup(tags, 6, [Size(3), Size(-1), Size(6)], {"T": Size(4)}, copies=False) is None
    assert regroup(tags, 6, [Size(-1), Size(-1), Size(6)], {}, copies=False) is None


def test_features_are_lost_where_they_mix():
    axes = Axes(("T", "N", "F"), 6)
    assert axes.reshape([-1], "Reshape 'r'").lost == "Reshape 'r'"
    assert axes.reshape([Size(1, ("T",)), -1], "r").lost == "r"
    assert axes.reshape([-1, None, 6], "r").tags == (
        "M",
        "M",
        "F",
    )  # rows, of which it is not known what they are
    assert axes.reshape([None, -1, 5], "r").lost == "r"


def test_groups_have_equal_products():
    rng = np.random.default_rng(0)
    for _ in range(300):
        old = [
            Size(int(rng.integers(2, 6)), ("N",) * int(rng.integers(2))) for _ in range(rng.integers(1, 5))
        ]
        new = [old[at] for at in rng.permutation(len(old))]
        runs = groups(old, new)
        assert runs is not None
        at = to = 0
        for count, into in runs:
            assert product(old[at : at + count]) == product(new[to : to + into])
            at, to = at + count, to + into
        assert (at, to) == (len(old), len(new))
    assert groups([Size(2)], [Size(3)]) is None
    assert Size(6, ("N", "T")).over(Size(2, ("T",))) == Size(3, ("N",))
    assert (
        Size(6).over(Size(4)) is None
        and Size(6).over(Size(6, ("N",))) is None
        and Size(0).over(Size(0)) is None
    )
