"""A study's journal: cut anywhere, of another form, or continued for a whole space."""

import json
from pathlib import Path

import pytest
from support.explored import point

from rtlstm.explore.metrics import find_metric
from rtlstm.explore.space import Space
from rtlstm.explore.study import JOURNAL, Study
from rtlstm.spec.errors import BuildError

SPACE = Space(
    device=("up5k",),
    tables=("direct",),
    weight_bits=(4, 5, 6, 7, 8),
    data_bits=(8,),
    gate_bits=(8,),
    cell_bits=(12, 16),
    lanes=(4,),
    macs=(1,),
)
"""Ten choices."""


def explore(folder: Path, total: int) -> list[str]:
    """Search as ``rtlstm explore`` does; return the keys of the choices that are known then."""
    with Study.opened(folder, SPACE, 0, {"model": "a"}) as study:
        while asked := study.ask(total):
            for number, choice in asked:
                error = 1 / (choice.weight_bits + choice.cell_bits)
                found = point(float(choice.weight_bits), choice.cell_bits, error).replace(choice=choice)
                study.tell(number, found, (), find_metric("error"))
        return [each.choice.key for each in study.outcomes()]


def test_small_space_is_searched_as_a_whole_after_a_part(tmp_path):
    first = explore(tmp_path, 5)
    found = explore(tmp_path, 50)
    assert 0 < len(first) <= 5 and found[: len(first)] == first
    assert len(found) == SPACE.size == 10
    assert explore(tmp_path, 50) == found


@pytest.mark.parametrize("total", [3, 10])
def test_goes_on_after_any_line(total: int, tmp_path):
    whole = explore(tmp_path / "whole", total)
    lines = (tmp_path / "whole" / JOURNAL).read_bytes().splitlines(keepends=True)
    assert len(lines) > 10 * total
    for count in range(len(lines)):
        folder = tmp_path / str(count)
        folder.mkdir()
        (folder / JOURNAL).write_bytes(b"".join(lines[:count]))
        assert explore(folder, total) == whole, lines[count - 1]


@pytest.mark.parametrize("old, new", [('"latency_us"', '"latency"'), ('"outcome"', '"result"')])
def test_records_of_another_form_are_refused(old: str, new: str, tmp_path):
    explore(tmp_path, 2)
    journal = tmp_path / JOURNAL
    assert old in journal.read_text()
    journal.write_text(journal.read_text().replace(old, new))
    with pytest.raises(BuildError, match="is damaged .*; delete it to begin again"):
        explore(tmp_path, 2)


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
