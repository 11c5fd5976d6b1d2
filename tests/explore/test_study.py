"""A study's journal: cut anywhere, of another form, or continued for a whole space."""

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from support.explored import point
from support.quick import quick

from rtlstm.explore.metrics import Limit, figures, find_metric, parse_limit
from rtlstm.explore.space import Choice, Space
from rtlstm.explore.study import GENERATION, JOURNAL, Study
from rtlstm.spec.errors import BuildError

SPACE = Space(
    device=("up5k",),
    tables=("direct",),
    weight_bits=(4, 5, 6, 7, 8),
    data_bits=(8,),
    gate_bits=(8,),
    cell_bits=(12, 16),
    hidden_rounding=("half_up",),
    lanes=(4,),
    macs=(1,),
)
"""Ten choices."""

ARRAYS = SPACE.replace(lanes=(None, 4, 8, 12, 16), macs=(1, 2))
"""The same numbers for nine arrays, 90 choices."""


def explore(folder: Path, total: int, space: Space = SPACE, limits: Sequence[Limit] = ()) -> list[Choice]:
    """Search as ``rtlstm explore`` does; return the choices that are known then.

    The array of ``--fit`` is the fastest for all numbers.
    """
    with Study.opened(folder, space, 0, {"model": "a"}) as study:
        while asked := study.ask(total):
            for number, choice in asked:
                error = 1 / (choice.weight_bits + choice.cell_bits)
                latency = float(choice.weight_bits) + (choice.lanes or 0) + 100 * (choice.device == "up5k")
                found = point(latency, choice.cell_bits, error).replace(choice=choice)
                study.tell(number, found, limits, find_metric("error"))
        return [each.choice for each in study.outcomes()]


def test_small_space_is_searched_as_a_whole_after_a_part(tmp_path):
    first = explore(tmp_path, 5)
    found = explore(tmp_path, 50)
    assert 0 < len(first) <= 5 and found[: len(first)] == first
    assert len(found) == SPACE.size == 10
    assert explore(tmp_path, 50) == found


@pytest.mark.parametrize("draws", [0, 1000])
def test_no_choice_comes_twice(draws: int, tmp_path, monkeypatch):
    """The search closes in on few of them, and all but three are asked for."""
    monkeypatch.setattr("rtlstm.explore.study._DRAWS", draws)
    found = explore(tmp_path, 87, ARRAYS)
    assert len(found) == len({each.key for each in found}) == 87 and ARRAYS.size == 90


def test_the_array_of_fit_is_for_every_device_and_within_limits(tmp_path):
    """Not for the fastest device alone, and not for numbers that miss a limit."""
    space = ARRAYS.replace(device=("up5k", "hx8k"), weight_bits=tuple(range(4, 17)))
    found = explore(tmp_path, 96, space, (parse_limit("error<=0.045", figures(find_metric("error"))),))
    later = [each for each in found[GENERATION::4] if each.lanes is None]
    assert {each.device for each in later} == {"up5k", "hx8k"}
    within = [each for each in later if 1 / (each.weight_bits + each.cell_bits) <= 0.045]
    assert len(within) > len(later) / 2


def test_each_device_has_its_share(tmp_path):
    """Also one that is slower with everything."""
    space = ARRAYS.replace(device=("up5k", "hx8k", "lfe5u-25f-6"), weight_bits=tuple(range(4, 17)))
    counts = Counter(each.device for each in explore(tmp_path, 96, space))
    assert len(counts) == 3 and min(counts.values()) >= 30


def test_the_best_numbers_have_the_array_of_fit(tmp_path):
    found = explore(tmp_path, 64, ARRAYS.replace(weight_bits=tuple(range(4, 17))))
    fitted = [each.lanes is None for each in found]
    assert all(fitted[:GENERATION:4])
    # Those of the first generation that no other beats have it in the second, which has places for eight.
    costs = {
        each: (each.weight_bits + (each.lanes or 0), each.cell_bits, 1 / (each.weight_bits + each.cell_bits))
        for each in found[:GENERATION]
    }
    best = [
        each
        for each, cost in costs.items()
        if not any(
            other != cost and all(less <= more for less, more in zip(other, cost, strict=True))
            for other in costs.values()
        )
    ]
    fit = [each.replace(lanes=None, macs=None) for each in best]
    lacking = [each for each in fit if each not in found[:GENERATION]]
    assert lacking and sum(each in found for each in lacking) >= min(len(lacking), GENERATION // 4)


def test_each_device_begins_with_the_fewest_bits(tmp_path):
    devices = ("up5k", "hx8k", *(f"lfe5u-{size}f-{grade}" for size in (12, 25, 45) for grade in (6, 7, 8)))
    space = ARRAYS.replace(device=devices, weight_bits=(8, 4, 6), tables=("interpolated", "direct"))
    found = explore(tmp_path, 64, space)
    for each, device in zip(found[: 4 * len(devices) : 4], devices, strict=True):
        assert (each.device, each.weight_bits, each.cell_bits, each.lanes) == (device, 4, 12, None)
        assert each.tables == "direct"


@pytest.mark.parametrize("total", quick([3, 10], 3))
def test_goes_on_after_any_line(total: int, tmp_path):
    whole = explore(tmp_path / "whole", total)
    lines = journal(tmp_path / "whole")
    assert len(lines) > 10 * total
    for count in range(len(lines)):
        goes_on(tmp_path / str(count), lines[:count], total, SPACE, whole)


@pytest.mark.slow
def test_goes_on_in_the_second_generation(tmp_path):
    """After any line of its first choices: one with the array of ``--fit``, and what came again."""
    whole = explore(tmp_path / "whole", 70, ARRAYS)
    lines = journal(tmp_path / "whole")
    begun = [number for number, line in enumerate(lines) if b'"op_code":4,' in line]
    # Some were withdrawn, so that there are more trials than choices.
    assert len(begun) > 70
    for count in range(begun[GENERATION], begun[GENERATION] + 30):
        goes_on(tmp_path / str(count), lines[:count], 70, ARRAYS, whole)


def journal(folder: Path) -> list[bytes]:
    return (folder / JOURNAL).read_bytes().splitlines(keepends=True)


def goes_on(folder: Path, lines: list[bytes], total: int, space: Space, whole: list[Choice]) -> None:
    """Begin with a part of a journal; what is known in the end is the same."""
    folder.mkdir()
    (folder / JOURNAL).write_bytes(b"".join(lines))
    assert explore(folder, total, space) == whole, lines[-1:]


@pytest.mark.parametrize("old, new", [('"latency_us"', '"latency"'), ('"outcome"', '"result"')])
def test_records_of_another_form_are_refused(old: str, new: str, tmp_path):
    explore(tmp_path, 2)
    journal = tmp_path / JOURNAL
    assert old in journal.read_text()
    journal.write_text(journal.read_text().replace(old, new))
    with pytest.raises(BuildError, match="is damaged .*; delete it to begin again"):
        explore(tmp_path, 2)


@pytest.mark.parametrize("change", ["no constraints", "a value less", "values are words", "no values"])
def test_trials_of_another_form_are_refused(change: str, tmp_path):
    """The search itself reads values and limits: what it makes of damaged ones is not shown."""
    explore(tmp_path, GENERATION, ARRAYS)
    lines = []
    for line in (tmp_path / JOURNAL).read_text().splitlines():
        log = json.loads(line)
        if log.get("values") and change != "no constraints":
            values = {
                "a value less": log["values"][1:],
                "values are words": ["a", "b", "c"],
                "no values": None,
            }
            log["values"] = values[change]
        if change != "no constraints" or "constraint" not in line:
            lines.append(json.dumps(log) + "\n")
    (tmp_path / JOURNAL).write_text("".join(lines))
    with pytest.raises(BuildError, match="is damaged .*; delete it to begin again"):
        explore(tmp_path, 2 * GENERATION, ARRAYS)


def test_proofs_of_another_form_are_refused(tmp_path):
    explore(tmp_path, 2)
    journal = tmp_path / JOURNAL
    line = {"op_code": 2, "worker_id": "a", "study_id": 0, "user_attr": {"proof:a": {"words": 1}}}
    journal.write_text(journal.read_text() + json.dumps(line) + "\n")
    with (
        Study.opened(tmp_path, SPACE, 0, {"model": "a"}) as study,
        pytest.raises(BuildError, match="is damaged .*; delete it to begin again"),
    ):
        study.proofs()


def test_what_to_know_of_devices_is_said_once():
    one = ("lfe5u-12f-6", "lfe5u-12f-8", "up5k")
    (note,) = SPACE.replace(device=one).notes
    assert "Lattice promises only 12,000" in note and SPACE.replace(device=("up5k",)).notes == ()


def test_kept_numbers_are_results(tmp_path):
    """They take long, and come before the first result of a choice."""
    with Study.opened(tmp_path, SPACE, 0, {"model": "a"}) as study:
        study.keep_numbers("of these bits", "there are none")
    with (
        pytest.raises(BuildError, match="holds a study that differs in: model;"),
        Study.opened(tmp_path, SPACE, 0, {"model": "b"}),
    ):
        pass
    with Study.opened(tmp_path, SPACE, 0, {"model": "a"}) as study:
        assert study.numbers() == {"of these bits": "there are none"}


def test_folders_that_no_study_may_have(tmp_path):
    (tmp_path / "manifest.json").write_text("{}")
    with pytest.raises(BuildError, match=r"must not go into a build, .*; choose another `folder`$"):
        explore(tmp_path, 1)
    with pytest.raises(BuildError, match=r"cannot be written to .*: File exists; choose another `folder`$"):
        explore(tmp_path / "manifest.json", 1)
    assert [path.name for path in tmp_path.iterdir()] == ["manifest.json"]
