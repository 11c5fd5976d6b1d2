"""The block diagram: what is drawn of each kind of layer, and that no texts meet."""

import numpy as np
import pytest
from support.cell_networks import CELL_NETWORKS
from support.pictures import bars, check_texts, shapes, size, texts

from rtlstm.gen.frontends.reading import NodeReport
from rtlstm.gen.pictures.network import describe_blocks, draw_network
from rtlstm.gen.pictures.picture import shorten
from rtlstm.spec.network import Bidirectional, Dense, Lstm, Network

pytestmark = pytest.mark.usefixtures("drawn")


def lstm(inputs: int, units: int, **more: object) -> Lstm:
    rows = 4 * units
    return Lstm(w_ih=np.ones((rows, inputs)), w_hh=np.ones((rows, units)), bias=np.ones(rows), **more)


@pytest.mark.parametrize("name", [*CELL_NETWORKS, "both_ways"])
def test_everything_is_in_the_picture_and_apart(name: str):
    both = Bidirectional(name="x" * 80, forward=lstm(3, 4), backward=lstm(3, 4, reverse=True))
    head = Dense(name="y" * 80, weight=np.ones((2, 8)), bias=np.ones(2), activation="thresholded_relu")
    network = CELL_NETWORKS.get(name) or Network(layers=(both, head))
    host = tuple(NodeReport(name=f"n{i}", kind="Gather", role="outside", why="z" * 90) for i in range(9))
    picture = draw_network(network.inputs, describe_blocks(network), host)
    check_texts(picture)
    drawn = bars(picture)
    directions = sum(2 if isinstance(layer, Bidirectional) else 1 for layer in network.layers)
    assert len(drawn) == directions
    assert sum(each.fill == "recurrent" for each in drawn) == len(network.pseudo_layers)
    skips = sum(len({read.back for read in layer.sources} - {1}) for layer in network.layers)
    assert sum(shape.stroke == "skip" for shape in shapes(picture, "path")) == skips
    assert texts(picture)[-1] == "and 3 more"
    assert max(bar.right for bar in drawn) < size(picture)[0]


def test_skips_come_from_their_sources():
    """``around`` adds the first layer's results, which are two layers earlier than what it reads."""
    network = CELL_NETWORKS["skip_around_two"]
    blocks = describe_blocks(network)
    assert [block.reads for block in blocks] == [(-1,), (0,), (1,), (2, 0), (3,)]
    assert [block.state for block in blocks] == ["h", "h", "h, c", "", ""]
    picture = draw_network(network.inputs, blocks)
    (skip,) = (shape.element.attrib["d"] for shape in shapes(picture, "path") if shape.stroke == "skip")
    start, end = float(skip.split()[1].split("H")[0]), float(skip.split("V")[1].split("H")[0])
    first, second, *_, around, _ = bars(picture)
    assert first.top + first.height < start < second.top
    assert around.top < end < around.top + around.height


def test_layers_side_by_side_have_no_arrow_between_them():
    network = CELL_NETWORKS["side_by_side"]
    blocks = describe_blocks(network)
    assert [block.reads for block in blocks] == [(-1,), (0,), (0,), (2, 1)]
    drawn = list(shapes(draw_network(network.inputs, blocks), "path"))
    arrows = sum(shape.element.attrib["d"].endswith("l-4 -7h8z") for shape in drawn)
    # Into the first two, into the dense layer, and out of it; not between the two LSTMs.
    assert arrows == 4, [shape.element.attrib["d"] for shape in drawn]


def test_what_is_said_of_layers():
    (both, head) = describe_blocks(
        Network(
            layers=(
                Bidirectional(forward=lstm(3, 4), backward=lstm(3, 4, reverse=True), merge="sum"),
                Dense(weight=np.ones((2, 4)), bias=np.ones(2), activation="hard_sigmoid", input_relu=True),
            )
        )
    )
    assert (both.directions, both.details, both.outputs) == (("LSTM, 4", "LSTM, 4"), ("sum",), 4)
    assert head.details == ("ReLU first", "hard sigmoid")
    (projected,) = describe_blocks(CELL_NETWORKS["projection_last"])
    assert "units" in projected.details[0] and projected.state == "h, c"


def test_long_texts_are_cut():
    assert shorten("abc", 3) == "abc" and shorten("abcd", 3) == "ab\u2026"
    network = Network(layers=(Dense(name="y" * 80, weight=np.ones((2, 8)), bias=np.ones(2)),))
    _, name, *_ = texts(draw_network(8, describe_blocks(network)))
    assert name.startswith("yyy") and name.endswith("\u2026") and len(name) < 80
