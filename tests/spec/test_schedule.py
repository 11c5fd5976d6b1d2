"""The schedule's rules, over thousands of shapes, without a simulator."""

from itertools import pairwise
from pathlib import Path

import pytest
from support.random_sequences import random_sequence_case

from rtlstm.spec.cells.unit import FusedUnit
from rtlstm.spec.fixed import Format
from rtlstm.spec.numerics import LayerShape
from rtlstm.spec.parameters import Parameters
from rtlstm.spec.program.schedule import Issued, StepSchedule, Timeline, offer_cycles
from rtlstm.spec.program.sequences import SequenceSchedule
from rtlstm.spec.program.step import Program, compile_program, group_ends

FORMAT = Format(bits=16, fraction=15)
SIZES = (1, 2, 3, 4, 5, 7, 8, 13, 16, 31, 70)


def shapes(inputs: int, *units: int, head: int | None = None) -> tuple[LayerShape, ...]:
    layers = []
    for index, size in enumerate(units):
        layers.append(
            LayerShape(kind="lstm", name=f"l{index}", inputs=inputs, outputs=size, output=FORMAT, cell=0)
        )
        inputs = size
    if head:
        layers.append(LayerShape(kind="dense", name="d", inputs=inputs, outputs=head, output=FORMAT, cell=0))
    return tuple(layers)


def every_program(lanes: int, macs: int) -> list[Program]:
    parameters = Parameters(lanes=lanes, macs=macs)
    drawn = [shapes(i, h, head=d) for i in SIZES for h in SIZES for d in (None, 1, 40)]
    drawn += [shapes(3, h, h2, head=2) for h in SIZES for h2 in SIZES]
    return [compile_program(layers, parameters, FusedUnit.timing_of(parameters)) for layers in drawn]


@pytest.mark.parametrize("macs", [1, 2, 3, 4, 8, 16])
@pytest.mark.parametrize("lanes", [4, 8, 12, 16, 20, 64])
def test_partial_sums_are_stored_before_they_are_added(lanes: int, macs: int) -> None:
    """Back to back, every group of the next step ends long enough after the one that stored its sum."""
    least = Parameters(lanes=lanes, macs=macs).partial_to_add
    for program in every_program(lanes, macs):
        ops, body, prefetch = program.ops, program.body, program.prefetch
        paths = [ops[: body + 1], ops[prefetch : prefetch + 2]]
        if body > 1:
            paths.append((*ops[prefetch + 2 :], ops[body + 1]))
        for path in paths:
            start, drain_free = 0, 0
            ends = []
            for op in path:
                found, drain_free = group_ends(op, start, drain_free)
                ends.append(found)
                start = found[-1] + 1 + op.idle_cycles
            distances = [added - partials for partials, added in zip(ends[0], ends[-1], strict=True)]
            assert min(distances) >= least


@pytest.mark.parametrize("units", [(16,), (16, 8), (16, 8, 4)])
@pytest.mark.parametrize("head", [None, 5])
def test_both_paths_through_a_step(units: tuple[int, ...], head: int | None) -> None:
    """Each layer is finished once on either path, by the product that stores no partial sums."""
    parameters = Parameters(lanes=4, macs=4)
    program = compile_program(shapes(4, *units, head=head), parameters, FusedUnit.timing_of(parameters))

    def path(first: int, suppress: bool) -> list[int]:
        indices, index = [], first
        while index is not None:
            indices.append(index)
            index = program.follows(index, suppress)
        return indices

    lstm = len(units)
    for suppress in (False, True):
        dense = [lstm] if head and not suppress else []
        usual, prefetch = (path(first, suppress) for first in (0, program.prefetch))
        for indices in (usual, prefetch):
            ops = [program.ops[index] for index in indices]
            assert [op.layer for op in ops if op.yields] == [*range(lstm), *dense]
            assert sorted(op.layer for op in ops if op.writes_partials) == list(range(lstm))
            assert sum(op.from_input for op in ops) == 1
        assert [program.ops[index].kind for index in prefetch[:2]] == ["input", "recurrent"]


def test_prefetch_is_faster_and_suppressed_outputs_faster_still() -> None:
    layers, parameters = (
        shapes(6, 20, head=8),
        Parameters(lanes=40, macs=4, gate_units=2, beat_in=4, beat_out=2),
    )
    program = compile_program(layers, parameters, FusedUnit.timing_of(parameters))
    turns = offer_cycles(program, parameters.model_copy(update={"streams": 2}), 40, streams=[0, 1] * 20)
    with_output = offer_cycles(program, parameters, 40)
    suppress = offer_cycles(program, parameters, 40, suppress=[True] * 39 + [False])
    assert turns[-1] > with_output[-1] > suppress[-1]


@pytest.mark.parametrize("macs", [1, 5, 16])
@pytest.mark.parametrize("lanes", [4, 20])
def test_groups_never_meet_in_the_drain(lanes: int, macs: int) -> None:
    for program in every_program(lanes, macs):
        for op in program.ops:
            ends, free = group_ends(op, 0, 0)
            assert all(after - before >= max(op.drain_beats, op.columns) for before, after in pairwise(ends))
            assert free == ends[-1] + op.last_drain_beats


@pytest.mark.parametrize("seed", range(6))
def test_counts_agree_with_each_other(seed: int) -> None:
    layers = shapes(7 + seed, 20, 13, head=5)
    parameters = Parameters(lanes=8, macs=1 + seed)
    program = compile_program(layers, parameters, FusedUnit.timing_of(parameters))
    cycles = StepSchedule(program, parameters).count(layers)
    assert cycles.step_latency_cycles == cycles.array_cycles + cycles.overhead_cycles
    assert cycles.overhead_cycles == sum(layer.overhead_cycles for layer in cycles.layers)
    beats = program.inputs
    assert offer_cycles(program, parameters, 1)[0] == beats - 1 + cycles.first_step_latency_cycles
    assert offer_cycles(program, parameters, 1, first_step=False)[0] == beats - 1 + cycles.step_latency_cycles
    long = offer_cycles(program, parameters, 40)
    assert long[-1] - long[-2] == cycles.step_interval_cycles
    assert 0 < cycles.use <= 1


def test_each_stream_has_one_first_step() -> None:
    layers, parameters = shapes(4, 16), Parameters(lanes=4, macs=4, streams=2)
    program = compile_program(layers, parameters, FusedUnit.timing_of(parameters))
    together = offer_cycles(program, parameters, 4, streams=[0, 1, 0, 1])
    alone = offer_cycles(program, parameters, 4)
    warm = offer_cycles(program, parameters, 4, first_step=False)
    assert together[0] == alone[0] and together[-1] > alone[-1] > warm[-1]


def test_the_architecture_page_counts_right() -> None:
    """The steps that the page shows, of 4 inputs on 4 macs, take the cycles that it says."""
    parameters = Parameters.for_family("generic", lanes=8, macs=4)
    layers = shapes(4, 8)
    program = compile_program(layers, parameters, FusedUnit.timing_of(parameters))
    cycles = StepSchedule(program, parameters).count(layers)
    page = " ".join((Path(__file__).parents[2] / "docs/architecture.md").read_text().split())
    for sentence in (
        f"latency is {cycles.step_latency_cycles} cycles",
        f"first step latency is {cycles.first_step_latency_cycles} cycles",
        f"`narrow` + 1, here {parameters.partial_to_add}",
        f"and cycle {cycles.step_interval_cycles} that for the blue one",
    ):
        assert sentence in page


@pytest.mark.parametrize("seed", range(1, 13))
def test_long_sequences_take_what_all_their_steps_take(seed: int, monkeypatch) -> None:
    """Without a record, equal steps are counted and not run one by one."""
    schedule = random_sequence_case(seed, (1, 2, 3, 5, 7, 11, 13)).manifest.schedule
    assert isinstance(schedule, SequenceSchedule)
    lengths = [1, 2, 3, 5, 40, 41, 7]
    record: list[Issued] = []
    assert schedule.cycles(lengths) == schedule.cycles(lengths, record=record)
    assert len(record) >= sum(lengths)
    runs = []
    run = Timeline.run
    monkeypatch.setattr(Timeline, "run", lambda *given: runs.append(1) or run(*given))
    assert schedule.cycles([10_000])[0].computed > 10_000
    assert len(runs) < 1000
