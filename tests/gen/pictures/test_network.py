"""The block diagram: what is drawn of each kind of layer, and that no texts meet."""

import numpy as np
import pytest
from support.cell_networks import CELL_NETWORKS
from support.pictures import check_texts

from rtlstm.gen.frontends.reading import NodeReport
from rtlstm.gen.pictures.network import describe_blocks, draw_network
from rtlstm.gen.pictures.picture import shorten, text_width
from rtlstm.spec.network import Bidirectional, Dense, Lstm, Network


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
    drawn = [each for each in picture.rectangles if not each.dashed]
    directions = sum(2 if isinstance(layer, Bidirectional) else 1 for layer in network.layers)
    assert len(drawn) == directions
    assert sum(each.colour == "recurrent" for each in drawn) == len(network.pseudo_layers)
    skips = sum(isinstance(layer, Dense) and layer.skip is not None for layer in network.layers)
    assert sum(each.colour == "skip" and each.width > 0 for each in picture.strokes) == skips
    assert picture.texts[-1].text == "and 3 more"


def test_skips_come_from_their_sources():
    """``around`` adds the first layer's results, which are two layers earlier than what it reads."""
    network = CELL_NETWORKS["skip_around_two"]
    blocks = describe_blocks(network)
    assert [block.skip_from for block in blocks] == [None, None, None, 0, None]
    assert [block.state for block in blocks] == ["h", "h", "h, c", "", ""]
    picture = draw_network(network.inputs, blocks)
    (skip,) = (each for each in picture.strokes if each.colour == "skip" and each.width)
    start, end = float(skip.path.split()[1].split("H")[0]), float(skip.path.split("V")[1].split("H")[0])
    first, second, *_, around, _ = picture.rectangles
    assert first.y + first.height < start < second.y
    assert around.y < end < around.y + around.height


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
    assert shorten("abc", 100) == "abc"
    cut = shorten("a" * 50, 100)
    assert cut.endswith("\u2026") and text_width(cut, 13) <= 100 < text_width(cut + "aa", 13)
