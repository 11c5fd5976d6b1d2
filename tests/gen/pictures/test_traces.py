"""Outputs over time: which are shown, and that their lines are to scale."""

import numpy as np
import pytest
from support.pictures import check_texts, lines, shapes, texts

from rtlstm.gen.pictures.charts import draw_trace
from rtlstm.gen.quantise.accuracy import Trace, find_traces

pytestmark = pytest.mark.usefixtures("drawn")


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
