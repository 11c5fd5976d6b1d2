"""The timeline of a step, of two back to back, or of a sequence: who is busy in which cycle.

All cycles are those of the schedule (:class:`rtlstm.spec.program.schedule.Timeline`), which the RTL keeps.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from rtlstm.gen.pictures.picture import WIDE, Picture, colour, rows_axis, shorten, whole_numbers
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.program.passes import part_layers
from rtlstm.spec.program.schedule import Issued, Timeline, step_cycles
from rtlstm.spec.program.sequences import SequenceSchedule
from rtlstm.spec.program.step import Op

_STEPS, _MORE = 8, 2
"""Steps back to back until the last two are like all that follow: the manifest's interval is theirs. And as
many more as the input buffer takes before the last one ends."""
_MOST_STEPS = 4
"""Steps of a sequence that is drawn."""
_COLOURS = ("array", "overhead")
_OTHER = "others"
_NAME = 24
"""The most characters of a row's name."""
_SPACE = 0.5
"""Length of a gap between two bars that is not drawn."""
_THIN = 1.2
"""Width of the narrowest bar."""
_LETTER = 6.5
"""Width of a character of a mark's name, or more."""


@dataclass
class Row:
    """A part of the core, and when it is busy: first cycle, cycle after the last one, number of the step."""

    name: str
    about: str
    busy: list[tuple[int, int, int]] = field(default_factory=list)


@dataclass
class Activity:
    """Who is busy when, from cycle ``first`` until cycle ``after``.

    ``marks`` are cycles with a name each. The two steps in ``steps`` have colours of their own.
    """

    title: str
    rows: list[Row]
    first: int
    after: int
    marks: list[tuple[int, str]]
    steps: tuple[int, int]


def activities(manifest: Manifest) -> tuple[Activity, ...]:
    """Return what is to be drawn of a build: a step and two back to back, or a sequence."""
    schedule = manifest.schedule
    if manifest.spatial is not None:
        # All layers work in every cycle.
        return ()
    if isinstance(schedule, SequenceSchedule):
        return (sequence_activity(manifest, schedule),)
    if manifest.program.wave is not None:
        # Back to back, an operation's step depends on its layer.
        return (step_activity(manifest),)
    return step_activity(manifest), steps_activity(manifest)


def step_activity(manifest: Manifest) -> Activity:
    """Return the activity of a step whose recurrent part is ready, and of the next one's recurrent part.

    Cycle 0 accepts the last input beat; the last mark is the cycle that offers the last output beat.
    """
    program, parameters = manifest.program, manifest.parameters
    begins = 1 - parameters.port_beats(program.inputs)
    issued: list[Issued] = []
    timeline = Timeline(program, parameters, free=begins, record=issued)
    _, offered = timeline.step(timeline.beats(begins), first_step=False)
    timeline.prepare()
    rows = _rows(manifest, [(begins, 1, 0)], list(_by_step(issued, manifest)), [(offered, 0)])
    after = max(end for row in rows for _, end, _ in row.busy)
    marks = [(0, "last input"), (offered, "last output")]
    return Activity("One step", rows, min(begins, 0), after, marks, (0, -1))


def steps_activity(manifest: Manifest) -> Activity:
    """Return the activity of two steps of a stream among many, back to back.

    Cycle 0 offers the last output beat of the step before; the other marks are those of the two.
    """
    program, parameters = manifest.program, manifest.parameters
    beats = parameters.port_beats(program.inputs)
    issued: list[Issued] = []
    found = step_cycles(program, parameters, [0] * (_STEPS + _MORE), {0}, record=issued)
    inputs = [(accepted + 1 - beats, accepted + 1, step) for step, (accepted, _) in enumerate(found)]
    outputs = [(offered, step) for step, (_, offered) in enumerate(found)]
    rows = _rows(manifest, inputs, list(_by_step(issued, manifest)), outputs)
    before, middle, last = (offered for _, offered in found[_STEPS - 3 : _STEPS])
    _shift(rows, before)
    marks = [(0, "output before"), (middle - before, "output"), (last - before, "output after")]
    steps = (_STEPS - 2, _STEPS - 1)
    return Activity("Two steps back to back", rows, 0, last - before + 1, marks, steps)


def sequence_activity(manifest: Manifest, schedule: SequenceSchedule) -> Activity:
    """Return the activity of a short sequence; cycle 0 accepts its last input beat."""
    steps = min(schedule.plan.steps, _MOST_STEPS)
    issued: list[Issued] = []
    (found,) = schedule.cycles([steps], record=issued)
    beats = -(-manifest.program.inputs // manifest.parameters.beat_in)
    inputs = [
        (found.begun + beats * step, found.begun + beats * (step + 1), step % 2) for step in range(steps)
    ]
    outputs = [(offered, step % 2) for step, offered in enumerate(found.offered)]
    rows = _rows(manifest, inputs, list(_by_turn(issued)), outputs)
    _shift(rows, found.accepted)
    after = found.offered[-1] - found.accepted
    title = "A sequence of a step" if steps == 1 else f"A sequence of {steps} steps"
    marks = [(0, "last input"), (after, "last output")]
    return Activity(title, rows, found.begun - found.accepted, after + 1, marks, (0, 1))


def _shift(rows: Iterable[Row], zero: int) -> None:
    """Count cycles from this one."""
    for row in rows:
        row.busy = [(first - zero, after - zero, step) for first, after, step in row.busy]


def _by_step(issued: Iterable[Issued], manifest: Manifest) -> Iterator[tuple[Issued, int]]:
    """Yield each operation with the number of its step: one begins behind the operation that gives output."""
    step = 0
    for one in issued:
        yield one, step
        step += one.op.emit


def _by_turn(issued: Iterable[Issued]) -> Iterator[tuple[Issued, int]]:
    """Yield each operation with 0 or 1, in turn: each is issued once for each step."""
    turns: Counter[tuple[int, str]] = Counter()
    for one in issued:
        key = (one.op.layer, one.op.kind)
        yield one, turns[key] % 2
        turns[key] += 1


def _rows(
    manifest: Manifest,
    inputs: Sequence[tuple[int, int, int]],
    issued: Sequence[tuple[Issued, int]],
    outputs: Sequence[tuple[int, int]],
) -> list[Row]:
    """Return the rows of all parts; those of the array are in the order of the network's layers."""
    parameters = manifest.parameters
    held = parameters.summed + parameters.HELD
    array: dict[tuple[int, bool], Row] = {}
    names = _layer_names(manifest)
    drain = Row("drain", "takes a group's sums out of the array, a beat per cycle")
    units = Row("gate units", "from pre-activations to new h and c")
    functions = Row("activation", "from sums to the results of layers with one row per output")
    results = Row("results", "written to the vector memory, or given to the output port")
    memories = Row("memories", "weights and vectors are read, or results are written to the vector memory")
    for one, step in issued:
        op = one.op
        key = (op.layer, op.kind != "recurrent")
        array.setdefault(key, Row(_row_name(names[op.layer], op), "words that the array multiplies"))
        issues = [(first, after, step) for first, after in one.issues]
        array[key].busy += issues
        memories.busy += issues
        drain.busy += [(first, after, step) for first, after in one.beats(held)]
        if op.yields:
            begun = one.beats(parameters.preactivation)
            written = one.beats(op.results)
            busy = [(first, after, step) for (first, _), (_, after) in zip(begun, written, strict=True)]
            (units if op.four_rows else functions).busy += busy
            given = [(first, after, step) for first, after in written]
            results.busy += given
            if op.destination is not None:
                memories.busy += given
    ports = (
        Row("input port", "accepts a beat per cycle", list(inputs)),
        Row("output port", "offers a step's last beat", [(at, at + 1, step) for at, step in outputs]),
    )
    layers = [array[key] for key in sorted(array)]
    rows = [ports[0], memories, *layers, drain, units, functions, results, ports[1]]
    return [row for row in rows if row.busy]


def _row_name(layer: str, op: Op) -> str:
    kind = "" if op.kind == "dense" else f": {op.kind}"
    return shorten(layer, _NAME - len(kind)) + kind


def _layer_names(manifest: Manifest) -> list[str]:
    names = [layer.name for layer in manifest.layers]
    for parts, ranges in zip(manifest.passes, part_layers(manifest.passes), strict=True):
        for part, layers in zip(parts, ranges, strict=True):
            for index in layers:
                names[index] += ", reverse" if part.reverse else ""
    return names


def draw_activity(activity: Activity) -> Picture:
    """Draw the rows over a common axis of cycles."""
    scale = WIDE / max(1, activity.after - activity.first)
    bars: list[dict[str, Any]] = []
    for index, row in enumerate(activity.rows):
        for step in sorted({step for *_, step in row.busy}):
            spans = [(first, after) for first, after, which in row.busy if which == step]
            known = step in activity.steps
            shown = {
                "row": index,
                "series": f"{index}, {step}",
                "colour": colour(_COLOURS[activity.steps.index(step)] if known else _OTHER),
                "about": f"{row.name}: {row.about}; cycles {spans[0][0]:,} to {spans[-1][1] - 1:,}",
            }
            # A line with gaps, which is one element for all bars of a step.
            for left, right in _bars(spans, activity, scale):
                bars += [shown | {"cycle": cycle} for cycle in (left, right, None)]
    domain = {"domain": [activity.first, activity.after], "nice": False}
    cycle = {"field": "cycle", "type": "quantitative", "scale": domain}
    axis = whole_numbers(activity.first, activity.after) | {"title": "cycle", "labelFlush": True}
    names = [row.name for row in activity.rows]
    marks = list(_marks(activity, scale))
    chart = {
        "width": WIDE,
        "height": {"step": 20},
        "layer": [
            {
                "data": {"values": [each | {"order": order} for order, each in enumerate(bars)]},
                "mark": {"type": "line", "strokeWidth": 12, "strokeCap": "butt"},
                "encoding": {
                    "y": {"field": "row", "type": "ordinal", "axis": rows_axis(names)},
                    "x": cycle | {"axis": axis},
                    "detail": {"field": "series"},
                    "order": {"field": "order"},
                    "color": {"field": "colour", "scale": None},
                    "description": {"field": "about"},
                },
            },
            {
                "data": {"values": marks},
                "mark": {"type": "rule", "strokeDash": [4, 3], "color": colour("soft")},
                "encoding": {"x": cycle},
            },
            {
                "data": {"values": marks},
                "mark": {"type": "text", "align": "left"},
                "encoding": {"x": cycle | {"field": "left"}, "y": {"value": -9}, "text": {"field": "text"}},
            },
        ],
    }
    return Picture(f"{activity.title}: busy parts over cycles", chart)


def _marks(activity: Activity, scale: float) -> Iterator[dict[str, Any]]:
    """Yield the marks: each with its name, and the cycle where that begins, so that no two names meet."""
    taken = 0.0
    for cycle, name in activity.marks:
        text = f"{name}, {cycle:,}"
        wide = _LETTER * len(text)
        left = min(max((cycle - activity.first) * scale - wide / 2, taken), WIDE - wide)
        yield {"cycle": cycle, "text": text, "left": activity.first + left / scale}
        taken = left + wide + 8


def _bars(
    spans: Sequence[tuple[int, int]], activity: Activity, scale: float
) -> Iterator[tuple[float, float]]:
    """Yield the first and last cycles of bars within the picture; gaps too narrow to be seen are closed."""
    edges: list[tuple[int, int]] = []
    for first, after in sorted(spans):
        left, right = max(first, activity.first), min(after, activity.after)
        if left >= right:
            continue
        if edges and (left - edges[-1][1]) * scale < _SPACE:
            edges[-1] = (edges[-1][0], max(edges[-1][1], right))
        else:
            edges.append((left, right))
    for left, right in edges:
        yield left, max(right, left + _THIN / scale)
