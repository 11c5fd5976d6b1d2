"""The timelines: their cycles are the manifest's, and the array multiplies one word at a time."""

from itertools import pairwise

import numpy as np
import pytest
from support.cell_networks import CELL_NETWORKS
from support.pictures import check_texts, lines, rules, shapes
from support.small_builds import TINY, network

from rtlstm import Bidirectional, Dense, Manifest, Network, Parameters
from rtlstm.gen.pictures.picture import WIDE
from rtlstm.gen.pictures.timeline import Activity, activities, draw_activity
from rtlstm.gen.quantise.quantiser import QuantizationSettings, quantise

pytestmark = pytest.mark.usefixtures("drawn")


def both_ways() -> Network:
    forward = CELL_NETWORKS["projection_last"].layers[0]
    both = Bidirectional(forward=forward, backward=forward.replace(reverse=True))
    return Network(layers=(both, Dense(weight=np.ones((2, 4)), bias=np.ones(2))))


NETWORKS = {
    "lstm": network(),
    "one_layer": CELL_NETWORKS["peephole"],
    "two_layers": CELL_NETWORKS["two_grus"],
    "dense_first": CELL_NETWORKS["dense_first_and_mixed"],
    "skips": CELL_NETWORKS["residuals"],
    "dense_alone": Network(
        layers=(
            Dense(weight=np.ones((5, 9)), bias=np.ones(5), activation="tanh"),
            Dense(weight=np.ones((3, 5)), bias=np.ones(3)),
        )
    ),
}
SIZES = {
    "tiny": TINY,
    "wide": Parameters(lanes=16, macs=8, gate_units=2, beat_in=2, beat_out=2),
    "deep": Parameters.for_family("ecp5", lanes=8, macs=2),
}


def build(name: str, parameters: Parameters) -> Manifest:
    quantised = quantise(NETWORKS.get(name) or both_ways(), QuantizationSettings())
    return Manifest.of("m", quantised, parameters)


def array_rows(activity: Activity) -> list[tuple[int, int, int]]:
    rows = [row for row in activity.rows if row.about.startswith("words")]
    return sorted(span for row in rows for span in row.busy)


def row(activity: Activity, name: str) -> list[tuple[int, int, int]]:
    (found,) = (row for row in activity.rows if row.name == name)
    return found.busy


def check_one_word_at_a_time(activity: Activity) -> None:
    spans = array_rows(activity)
    assert all(before[1] <= behind[0] for before, behind in pairwise(spans))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", NETWORKS)
def test_steps_are_those_of_the_manifest(name: str, size: str):
    manifest = build(name, SIZES[size])
    cycles = manifest.cycles
    one, two = activities(manifest)
    check_one_word_at_a_time(one)
    check_one_word_at_a_time(two)
    assert row(one, "output port") == [(cycles.step_latency_cycles, cycles.step_latency_cycles + 1, 0)]
    assert max(after for _, after, _ in row(one, "results")) == cycles.step_latency_cycles
    assert one.marks[-1][0] == cycles.step_latency_cycles
    assert max(after for _, after, _ in row(one, "input port")) == 1
    words = [sum(after - first for first, after, step in array_rows(one) if step == n) for n in (0, 1)]
    assert words == [cycles.array_cycles, cycles.recurrent_cycles]
    # Back to back, a step begins one interval after the step before, in every part.
    interval = cycles.step_interval_cycles
    assert [cycle for cycle, _ in two.marks] == [0, interval, 2 * interval]
    first, second = two.steps
    for part in two.rows[1:]:
        begun = [[span[:2] for span in part.busy if span[2] == step] for step in (first, second)]
        assert begun[0] and begun[1] == [(at + interval, after + interval) for at, after in begun[0]]
    busy = sum(
        min(after, interval) - max(at, 0) for at, after, _ in array_rows(two) if after > 0 and at < interval
    )
    assert busy == cycles.array_cycles + cycles.recurrent_cycles


@pytest.mark.parametrize("steps", [1, 3, 4])
def test_sequence_is_that_of_the_manifest(steps: int):
    manifest = build("both_ways", TINY.replace(max_steps=steps))
    (activity,) = activities(manifest)
    check_one_word_at_a_time(activity)
    cycles = manifest.cycles
    assert activity.marks[-1][0] == cycles.step_latency_cycles
    assert len(row(activity, "output port")) == steps
    assert row(activity, "output port")[-1][0] == cycles.step_latency_cycles
    words = sum(after - first for first, after, _ in array_rows(activity))
    assert words == steps * (cycles.array_cycles + cycles.recurrent_cycles)


def test_long_sequences_are_shown_by_a_short_one():
    (activity,) = activities(build("both_ways", TINY.replace(max_steps=50)))
    assert activity.title == "A sequence of 4 steps"
    assert activity.marks[-1][0] == activities(build("both_ways", TINY.replace(max_steps=4)))[0].marks[-1][0]


@pytest.mark.parametrize("name", [*NETWORKS, "both_ways"])
def test_pictures_are_to_scale(name: str):
    manifest = build(name, TINY.replace(max_steps=4))
    for activity in activities(manifest):
        picture = draw_activity(activity)
        check_texts(picture)
        drawn = lines(picture)
        shown = {
            (index, step)
            for index, part in enumerate(activity.rows)
            for at, after, step in part.busy
            if at < activity.after and after > activity.first
        }
        assert len(drawn) == len(shown)
        ends = [(points[::2], points[1::2]) for points in drawn.values()]
        edges = [
            (left[0], right[0]) for lefts, rights in ends for left, right in zip(lefts, rights, strict=True)
        ]
        # The plot begins behind the names; a bar is as narrow as 1.2.
        left, right = min(left for left, _ in edges), max(right for _, right in edges)
        assert all(begin < end for begin, end in edges) and right - left <= WIDE + 1.2
        scale = WIDE / (activity.after - activity.first)
        # The dashed lines are at the marks' cycles.
        first, *others = rules(picture)
        cycles = sorted(cycle for cycle, _ in activity.marks)
        assert [x - first for x in others] == pytest.approx(
            [(cycle - cycles[0]) * scale for cycle in cycles[1:]], abs=0.06
        )
        ports = (shape for shape in shapes(picture, "path") if shape.title.startswith("output port"))
        port = next(shape for shape in ports if shape.stroke == "array")
        at = next(at for at, _, step in row(activity, "output port") if step == activity.steps[0])
        assert drawn[port.title][0][0] - first == pytest.approx((at - cycles[0]) * scale, abs=0.6)
