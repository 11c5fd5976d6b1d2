"""Histograms: their counts against a count by hand, and their limits in the picture."""

import numpy as np
import pytest
from support.cell_networks import CELL_NETWORKS
from support.pictures import bars, check_texts, rules
from support.small_builds import network

from rtlstm.gen.pictures.charts import draw_histogram
from rtlstm.gen.quantise.accuracy import Histogram, count_histograms, measure_accuracy
from rtlstm.gen.quantise.calibration import Calibration
from rtlstm.gen.quantise.quantiser import QuantizationSettings, quantise
from rtlstm.sim.reference import run_float

pytestmark = pytest.mark.usefixtures("drawn")

X = np.random.default_rng(0).normal(size=(50, 4, 3))
LENGTHS = np.array([50, 20, 1, 7])


def histograms(x: np.ndarray = X, **settings: float) -> tuple[Histogram, ...]:
    chosen, data = network(), Calibration.of(network(), x, LENGTHS)
    quantised = quantise(chosen, QuantizationSettings(**settings), x, LENGTHS)
    return count_histograms(quantised, data, run_float(chosen, data.x, data.state, data.lengths))


def test_counts_are_of_the_valid_steps():
    # Past a sequence's end there may be anything.
    found = histograms(np.where(np.arange(50)[:, None, None] < LENGTHS[None, :, None], X, 3.9))
    x = found[0]
    assert [sum(each.counts) for each in found] == [78 * 3, 4 * 4, 4 * 4, 78 * 2]
    names = ["input x", "final hidden state h", "final cell state c", "output y"]
    assert [each.quantity for each in found] == names
    values = np.concatenate([X[:length, n].ravel() for n, length in enumerate(LENGTHS)])
    assert x.largest == pytest.approx(np.abs(values).max(), rel=1e-4)
    width = 2 * x.span / 49
    for index in (0, 24, 30):
        low = -x.span + index * width
        assert x.counts[index] == ((values >= low) & (values < low + width)).sum()
    assert x.span == pytest.approx(1.05 * x.limit, rel=1e-4) and x.limit >= x.largest


def test_values_beyond_the_limit_are_seen_as_such():
    x, *_ = histograms(input_range=0.9)
    assert x.largest > 2 * x.limit and x.span == pytest.approx(2.1 * x.limit, rel=1e-4)
    assert sum(x.counts) == 78 * 3 and x.counts[0] > 0 and x.counts[-1] > 0
    picture = draw_histogram(x)
    check_texts(picture)
    left, right = rules(picture)
    beyond = [bar for bar in bars(picture) if bar.fill == "overhead"]
    assert beyond and all(bar.middle < left or bar.middle > right for bar in beyond)
    within = [bar for bar in bars(picture) if bar.fill == "array"]
    assert within and all(left <= bar.middle <= right for bar in within)
    shown = [count for count in x.counts if count]
    drawn = sorted(bars(picture), key=lambda bar: bar.left)
    assert [bar.title for bar in drawn] == [f"{count:,} values" for count in shown]
    tallest = max(drawn, key=lambda bar: bar.height)
    assert tallest.height == pytest.approx(70, abs=1) and tallest.title == f"{max(shown):,} values"
    for bar, count in zip(drawn, shown, strict=True):
        assert (bar.height / tallest.height) ** 2 == pytest.approx(count / max(shown), abs=0.02)


def test_many_values_are_counted_by_some_of_them():
    x = np.tile(np.random.default_rng(1).normal(size=(1000, 100, 1)), (1, 1, 3))
    quantised = quantise(network(), QuantizationSettings(), x[:10])
    found, *_ = measure_accuracy(network(), quantised, Calibration.of(network(), x)).histograms
    assert 100_000 <= sum(found.counts) < 200_001


@pytest.mark.parametrize("name", CELL_NETWORKS)
def test_h_of_every_layer_is_counted(name: str):
    """For each of its formats, against that format."""
    chosen = CELL_NETWORKS[name]
    x = np.random.default_rng(0).normal(size=(9, 4, chosen.inputs))
    quantised = quantise(chosen, QuantizationSettings(data_bits=12, tables="interpolated", quick=True), x)
    data = Calibration.of(chosen, x)
    found = count_histograms(quantised, data, run_float(chosen, data.x))
    hidden = [each for each in found if each.quantity == "final hidden state h"]
    final = run_float(chosen, x).h
    assert sum(sum(each.counts) for each in hidden) == sum(h.size for h in final) > 0
    assert len({each.form for each in hidden}) == len(hidden)
    largest = max(np.abs(h).max() for h in final)
    assert max(each.largest for each in hidden) == pytest.approx(largest, rel=1e-4)


def test_inputs_with_factors_and_networks_without_c():
    chosen = CELL_NETWORKS["rnn"]
    x = X * np.array([1.0, 1e-3, 1.0])
    quantised = quantise(chosen, QuantizationSettings(), x)
    found = measure_accuracy(chosen, quantised, Calibration.of(chosen, x)).histograms
    assert "final cell state c" not in [each.quantity for each in found]
    assert quantised.numerics.input_factors == (1, 32, 1) and found[0].quantity == "input x, times factors"
    assert found[0].largest == pytest.approx(np.abs(x * [1, 32, 1]).max(), rel=1e-4)
    for each in found:
        check_texts(draw_histogram(each))
