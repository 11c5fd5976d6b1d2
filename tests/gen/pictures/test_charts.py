"""The report's charts: what is counted and shown, whose it is, and that all is to scale."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from support.cell_networks import CELL_NETWORKS
from support.implementations import ESTIMATE, PATH, implementation
from support.pictures import bars, check_texts, lines, rules, shapes, texts
from support.small_builds import NARROW, network

from rtlstm.fpga.estimate import Estimate, estimate_devices
from rtlstm.fpga.worst_path import Hop
from rtlstm.gen.pictures.charts import (
    draw_histogram,
    draw_path,
    draw_trace,
    draw_use,
    expected_use,
    measured_uses,
)
from rtlstm.gen.quantise.accuracy import Histogram, Trace, count_histograms, find_traces, measure_accuracy
from rtlstm.gen.quantise.calibration import Calibration
from rtlstm.gen.quantise.quantiser import QuantizationSettings, quantise
from rtlstm.sim.reference import run_float
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.parameters import Parameters

pytestmark = pytest.mark.usefixtures("drawn")


# Histograms: their counts against a count by hand, and their limits


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


# Outputs over time


def test_the_worst_outputs_around_the_largest_error():
    exact = np.random.default_rng(0).uniform(-1, 1, (400, 3, 5))
    fixed = exact.copy()
    fixed[250, 1, 4] += 0.5
    fixed[255, 1, 2] -= 0.25
    # Neither another sequence nor what is behind a sequence's end counts.
    fixed[9, 0, 1] += 0.4
    fixed[350, 1, 3] += 0.9
    found = find_traces(exact, fixed, np.array([400, 300, 2]), 2**-7)
    assert [(each.output, each.sequence, each.first_step) for each in found] == [
        (4, 1, 140),
        (2, 1, 140),
        (0, 1, 140),
    ]
    assert [len(each.exact) for each in found] == [160] * 3 == [len(each.fixed) for each in found]
    assert found[0].exact[110] == pytest.approx(exact[250, 1, 4], rel=1e-4)
    assert found[0].fixed[110] - found[0].exact[110] == pytest.approx(0.5, abs=1e-3)


def test_short_sequences_are_shown_whole():
    exact = np.zeros((7, 2, 1))
    (found,) = find_traces(exact, exact, np.array([5, 7]), 0.5)
    assert (found.sequence, found.first_step, len(found.exact)) == (0, 0, 5)
    check_texts(draw_trace(found))


def test_lines_are_to_scale():
    trace = Trace(output=2, sequence=3, first_step=40, exact=(0.0, 1.0, 0.5), fixed=(0.25, 1.0, 0.0))
    picture = draw_trace(trace, "a name")
    check_texts(picture)
    drawn = lines(picture)
    left, middle, right = (x for x, _ in drawn["float"])
    assert middle == pytest.approx((left + right) / 2, abs=0.05) and left < right
    assert [[x for x, _ in points] for points in drawn.values()] == [[left, middle, right]] * 3
    (_, low), (_, high), (_, half) = drawn["float"]
    assert half == pytest.approx((low + high) / 2, abs=0.1) and low > high
    assert drawn["fixed"][0][1] == pytest.approx(low + (high - low) / 4, abs=0.1)
    errors = [y for _, y in drawn["fixed - float"]]
    assert errors[0] < errors[1] < errors[2] and errors[1] - errors[0] == pytest.approx(
        (errors[2] - errors[1]) / 2, abs=0.1
    )
    assert {"a name, sequence 3", "step", "40", "41", "42"} <= set(texts(picture))


def test_one_step_is_a_point():
    picture = draw_trace(Trace(output=0, sequence=0, first_step=0, exact=(1.0,), fixed=(1.0,)))
    points = [shape for shape in shapes(picture, "path") if "A" in shape.element.get("d", "")]
    assert len(points) == 3 and all(shape.fill for shape in points)


# A device's resources


@pytest.fixture(scope="module")
def manifest() -> Manifest:
    quantised = quantise(network(), NARROW)
    return Manifest.of("m", quantised, Parameters.for_family("ecp5", lanes=16, macs=4))


@pytest.fixture(scope="module")
def estimates(manifest: Manifest) -> tuple[Estimate, ...]:
    return estimate_devices(manifest)


def test_smallest_device_that_fits(estimates: tuple[Estimate, ...]):
    found = expected_use(estimates)
    assert found is not None
    # 64 products and a gate unit's: more than the 28 of an LFE5U-25F.
    assert found.device == "lfe5u-45f-6" and "does not fit" not in found.about
    resources = {use.name: (use.used, use.available) for use in found.resources}
    chosen = next(one for one in estimates if one.device == found.device)
    assert resources["multipliers"] == (chosen.multipliers, 72)
    assert resources["LUTs"] == (chosen.luts, 43848)
    assert resources["tiles for carry chains"][0] == chosen.chain_tiles
    assert f"{chosen.step_latency_us:.5g} \u00b5s" in found.about


def test_chosen_device_comes_first_and_none_is_none(estimates: tuple[Estimate, ...]):
    found = expected_use(estimates, ESTIMATE.replace(board="ulx3s-25f", wrapper_block_rams=3))
    assert found is not None and found.device == "lfe5u-25f-6" and "link of ulx3s-25f" in found.about
    assert next(use.used for use in found.resources if use.name == "block RAMs") == 2 + 3
    assert expected_use(()) is None
    small = expected_use([one for one in estimates if "25f" in one.device])
    assert small is not None and small.about.endswith("it does not fit")


def test_routed_designs_come_first_the_fastest_first(manifest: Manifest, tmp_path: Path):
    (tmp_path / "manifest.json").write_text(manifest.to_json())
    runs = [implementation(tmp_path), implementation(tmp_path, 100), implementation(tmp_path, 150)]
    times = [use.about for use in measured_uses(runs)]
    assert "at 150 MHz" in times[0] and "at 100 MHz" in times[1] and times[2] == "synthesised"
    assert f"{runs[2].step_latency_us:.5g} \u00b5s" in times[0]


def test_bars_are_to_scale(estimates: tuple[Estimate, ...]):
    small = expected_use([one for one in estimates if "25f" in one.device])
    assert small is not None
    picture = draw_use(small)
    check_texts(picture)
    drawn = bars(picture)
    wholes = [bar for bar in drawn if bar.fill == "line"]
    shares = [bar for bar in drawn if bar.fill != "line"]
    for use, whole, bar in zip(small.resources, wholes, shares, strict=True):
        assert (bar.left, bar.top, bar.height) == (whole.left, whole.top, whole.height)
        assert bar.width == pytest.approx(whole.width * min(1, use.used / use.available), abs=0.06)
        assert bar.fill == ("array" if use.used <= use.available else "overhead")
        assert bar.title.startswith(use.name)
    assert {bar.fill for bar in shares} == {"array", "overhead"}


# The slowest path: its cells and wires behind each other


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
