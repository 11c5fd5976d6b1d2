"""The slowest path: its cells and wires behind each other, to scale."""

from itertools import pairwise

import pytest
from support.implementations import PATH
from support.pictures import bars, check_texts, texts

from rtlstm.fpga.worst_path import Hop
from rtlstm.gen.pictures.charts import draw_path

pytestmark = pytest.mark.usefixtures("drawn")

HOPS = (
    Hop(cell="register a", net="a", cell_ns=0.5, wire_ns=2.0),
    Hop(cell="LUT4", net="x" * 90, cell_ns=0.25, wire_ns=1.0),
    Hop(cell="block RAM b", net="", cell_ns=0.25, wire_ns=0.0),
)


def test_cells_and_wires_follow_each_other_to_scale():
    picture = draw_path(PATH.replace(hops=HOPS))
    assert picture is not None
    check_texts(picture)
    drawn = bars(picture)
    assert [bar.fill for bar in drawn] == ["array", "others"] * 2 + ["array"]
    for bar, following in pairwise(drawn):
        assert bar.right == pytest.approx(following.left, abs=0.05)
    assert [bar.width / drawn[1].width for bar in drawn] == pytest.approx(
        [0.25, 1, 0.125, 0.5, 0.125], abs=1e-3
    )
    told = texts(picture)
    assert {"register a", "block RAM b", "2.50", "1.25", "0.25"} <= set(told)
    assert any(text.startswith("LUT4, xxx") and text.endswith("\u2026") for text in told)
    assert drawn[1].title == "wire a: 2 ns"


def test_paths_of_earlier_reports_have_no_picture():
    assert draw_path(PATH) is None
