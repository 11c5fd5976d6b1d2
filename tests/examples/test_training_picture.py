"""The picture of accuracy against bits shows the figures of the page's tables, and these are the core's."""

import importlib
import re

import numpy as np
import pytest
from support.paths import EXAMPLES, ROOT

from rtlstm.spec.activations.functions import ActivationFunction
from rtlstm.spec.network import Dense, Gru, Network, Rnn

PICTURE = ROOT / "docs" / "images" / "accuracy-bits.svg"


@pytest.fixture
def picture(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES / "training"))
    return importlib.import_module("accuracy_picture")


@pytest.fixture
def figures(picture):
    return picture.read((ROOT / "docs" / "training.md").read_text())


def texts(path):
    return re.findall(r"<text [^>]*>([^<]*)</text>", path.read_text())


def test_the_picture_shows_the_figures_of_the_tables(picture, figures, tmp_path):
    assert tuple(each.bits for each in figures) == picture.BITS
    picture.main(["-o", str(tmp_path / "again.svg")])
    shown = texts(PICTURE)
    assert texts(tmp_path / "again.svg") == shown
    for each in figures:
        assert each.rounded > each.trained
        for figure in (f"{each.rounded:.3f}", f"{each.trained:.3f}", f"{each.luts:,}", f"{each.bits} bits"):
            assert figure in shown
    assert f"LUTs; {figures[0].cycles} cycles a step" in shown


def test_its_ink_follows_the_reader_s_page():
    svg = PICTURE.read_text()
    assert "@media(prefers-color-scheme:dark)" in svg
    assert svg.count("#1f2328") == 1, "only the style states the ink"
    assert 'style="fill: #ffffff' not in svg


def delays(values, count):
    """A line of delays: what the model's convolution and its pooling read."""
    w_ih = np.eye(values * count, values)
    return Rnn(
        w_ih=w_ih,
        w_hh=np.eye(values * count, k=-values),
        bias=np.zeros(values * count),
        activation=ActivationFunction.of("identity"),
    )


def test_cycles_and_luts_are_those_of_such_a_network(picture, figures):
    """Its weights are in a wheel. Cycles depend on shapes alone, and LUTs hardly on weights."""
    rng = np.random.default_rng(0)

    def draw(*shape):
        return rng.normal(size=shape) * 0.3

    gru = Gru(w_ih=draw(48, 48), w_hh=draw(48, 16), bias_ih=draw(48), bias_hh=draw(48))
    convolution, head = (
        Dense(weight=draw(outputs, inputs), bias=draw(outputs)) for outputs, inputs in ((16, 40), (2, 16))
    )
    network = Network(layers=(delays(2, 20), convolution, delays(16, 3), gru, head))
    x = rng.uniform(-2, 2, (100, 2))
    for each in figures:
        cycles, luts = picture.hardware(network, x, each.bits)
        assert cycles == each.cycles
        assert luts == pytest.approx(each.luts, rel=0.03)
