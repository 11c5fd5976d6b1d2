"""The slowest path: its cells and wires behind each other, to scale."""

from itertools import pairwise

import pytest
from support.implementations import PATH
from support.pictures import check_texts

from rtlstm.fpga.worst_path import Hop
from rtlstm.gen.pictures.slowest_path import draw_path

HOPS = (
    Hop(cell="register a", net="a", cell_ns=0.5, wire_ns=2.0),
    Hop(cell="LUT4", net="x" * 90, cell_ns=0.25, wire_ns=1.0),
    Hop(cell="block RAM b", net="", cell_ns=0.25, wire_ns=0.0),
)


def test_cells_and_wires_follow_each_other_to_scale():
    picture = draw_path(PATH.replace(hops=HOPS))
    assert picture is not None
    check_texts(picture)
    bars = picture.rectangles
    assert [bar.colour for bar in bars] == ["array", "others"] * 2 + ["array"]
    for bar, following in pairwise(bars):
        assert bar.x + bar.width == pytest.approx(following.x, abs=0.2)
    assert [bar.width for bar in bars] == pytest.approx([52.5, 210, 26.2, 105, 26.2], abs=0.11)
    told = [each.text for each in picture.texts if each.size == 12]
    assert told[0] == "register a" and told[1].startswith("LUT4, xxx") and told[2] == "block RAM b"
    assert bars[1].title == "wire a: 2 ns"


def test_paths_of_earlier_reports_have_no_picture():
    assert draw_path(PATH) is None
