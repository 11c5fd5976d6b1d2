"""What all pictures have in common: names, titles, and axes of whole numbers."""

import os
import signal

import numpy as np
import pytest
from support.implementations import PATH
from support.pictures import bars, shapes, size, texts

import rtlstm
from rtlstm.fpga.implementation import ResourceUse
from rtlstm.fpga.worst_path import Hop
from rtlstm.gen.accuracy.records import ErrorReport, LayerErrors, PartErrors
from rtlstm.gen.builds.report import BuildReport
from rtlstm.gen.builds.report_html import render_report
from rtlstm.gen.pictures.charts import (
    DeviceUse,
    draw_cycles,
    draw_error_parts,
    draw_error_steps,
    draw_histogram,
    draw_path,
    draw_trace,
    draw_use,
)
from rtlstm.gen.pictures.network import describe_blocks, draw_network
from rtlstm.gen.pictures.picture import Picture, whole_numbers
from rtlstm.gen.pictures.timeline import Activity, Row, draw_activity
from rtlstm.gen.quantise.accuracy import Histogram, Trace
from rtlstm.spec.network import Dense, Network

pytestmark = pytest.mark.usefixtures("drawn")

NAMES = [
    "a\x00b",
    "a\x01b",
    "a\x1fb",
    "a\nb",
    "\\u0001 \\",
    "<b>&\"'",
    "\ud800",
    "\ufffe",
    "\u2028",
    "{x}",
    "",
]


class Layer:
    def __init__(self, name: str, cycles: int = 4) -> None:
        self.name, self.array_cycles, self.overhead_cycles, self.recurrent_cycles = name, cycles, 2, 1


def errors(name: str) -> ErrorReport:
    parts = (PartErrors(part="weights", alone=0.03, without=0.01, steps=(0.0, 0.02)),)
    figures = {"rms_signal": 0.5, "rms_error": 0.04, "max_abs_error": 0.1, "snr_db": 21.9}
    layer = LayerErrors(name=name, kind="lstm", **figures, parts=parts, steps=(0.0, 0.02))
    return ErrorReport(
        model=True,
        sequences=1,
        steps=2,
        total_steps=2,
        steps_per_point=1,
        output=layer,
        layers=(layer,),
        saturations=(),
        widths=(),
        verdict="",
    )


def pictures(name: str) -> list[Picture]:
    """Return one of each kind, with a name in it."""
    network = Network(layers=(Dense(name=name, weight=np.ones((2, 8)), bias=np.ones(2)),))
    activity = Activity(
        "One step", [Row(name, "words", [(0, 9, 0)])], 0, 9, [(0, "begun"), (9, name)], (0, 1)
    )
    path = draw_path(PATH.replace(hops=(Hop(cell=name, net=name, cell_ns=1.0, wire_ns=2.0),)))
    parts = draw_error_parts(errors(name))
    assert path is not None and parts is not None
    histogram = Histogram(quantity=name, form="s1.2", limit=1.0, span=1.05, largest=0.9, counts=(0, 3, 1))
    trace = Trace(output=0, sequence=0, first_step=0, exact=(0.0, float("inf")), fixed=(0.0, 1.0))
    uses = (ResourceUse(name=name, used=3, available=9), ResourceUse(name="DSP", used=3, available=0))
    return [
        draw_network(8, describe_blocks(network)),
        draw_cycles([Layer(name)]),
        draw_activity(activity),
        draw_use(DeviceUse(device=name, about="", resources=uses)),
        path,
        parts,
        draw_error_steps(errors(name)),
        draw_histogram(histogram),
        draw_trace(trace, name),
    ]


@pytest.mark.parametrize("name", NAMES)
def test_any_name_is_drawn(name: str):
    for picture in pictures(name):
        assert size(picture)[0] > 100 and texts(picture)


@pytest.mark.usefixtures("without_verilog")
def test_a_build_of_any_name_has_its_report(tmp_path):
    layer = Dense(name="a\x01b", weight=np.ones((2, 8)), bias=np.ones(2))
    build = rtlstm.compile(Network(layers=(layer,)), folder=tmp_path / "build", lanes=4, macs=2)
    assert render_report(BuildReport.load(build.folder), build.manifest).count("<svg") > 5


def test_titles_are_those_that_were_given():
    found = [shape.element.text or "" for each in pictures("lstm") for shape in shapes(each, "title")]
    assert len(found) >= 14
    for title in found:
        assert not any(word in title for word in ("row:", "left:", "cycle:", "Title text", "axis")), title


@pytest.mark.parametrize("steps", [1, 2, 3, 4, 9, 40])
def test_axes_have_whole_numbers_once(steps: int):
    values = tuple(step / 1000 for step in range(steps))
    trace = draw_trace(Trace(output=0, sequence=0, first_step=40, exact=values, fixed=values))
    rows = [Row("drain", "", [(0, steps, 0)])]
    step = draw_activity(Activity("One step", rows, 0, steps, [], (0, 1)))
    for picture, first, last in ((trace, 40, 39 + steps), (step, 0, steps)):
        whole = [text for text in texts(picture) if text.isdigit() and first <= int(text) <= last]
        at_axis = [text for text in whole if picture is step or int(text) >= 40]
        assert at_axis and len(set(at_axis)) == len(at_axis)
        assert whole_numbers(first, last)["values"][0] in (first, -(-first // 5) * 5)


def test_what_a_device_lacks_has_no_percentage():
    *_, lacks = texts(pictures("LUTs")[3])
    assert lacks == "3 of 0"
    assert [bar.fill for bar in bars(pictures("LUTs")[3])][-2:] == ["array", "overhead"]


def test_a_forked_process_draws():
    """Vega's threads are not in it."""
    first = draw_cycles([Layer("a")]).svg
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        drawn = draw_cycles([Layer("a", 5)]).svg
        os._exit(0 if drawn != first and drawn.startswith("<svg") else 3)
    assert os.waitpid(child, 0)[1] == 0
