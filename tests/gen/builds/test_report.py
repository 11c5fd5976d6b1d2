"""The report: its numbers against the manifest, the models and a count by hand."""

import json
import re
from xml.etree import ElementTree

import numpy as np
import pytest
from support.cell_networks import CELL_NETWORKS
from support.pictures import bars, check_texts, lines, texts
from support.small_builds import TINY, network

import rtlstm.gen.quantise.ranges
from rtlstm.gen.accuracy.records import ErrorReport, LayerErrors, PartErrors, Saturations, Score, WidthErrors
from rtlstm.gen.builds.advice import _offset_inputs, explain_trials
from rtlstm.gen.builds.hardware import Design
from rtlstm.gen.builds.report import BuildReport, create_report, table_error
from rtlstm.gen.builds.report_html import render_report
from rtlstm.gen.frontends import read_if_needed
from rtlstm.gen.pictures.charts import draw_cycles, draw_error_parts, draw_error_steps, rounded_parts
from rtlstm.gen.quantise.accuracy import measure_accuracy
from rtlstm.gen.quantise.calibration import Calibration
from rtlstm.gen.quantise.plan import Trial
from rtlstm.gen.quantise.quantiser import QuantizationSettings, choose_formats, quantise
from rtlstm.sim.golden import Golden
from rtlstm.sim.reference import run_float
from rtlstm.spec.manifest import Manifest

pytestmark = pytest.mark.usefixtures("without_verilog")

CALIBRATION = np.random.default_rng(0).normal(size=(50, 2, 3))


def make(calibration=None, **settings):
    chosen = QuantizationSettings(**settings)
    quantised = quantise(network(), chosen, calibration)
    manifest = Manifest.of("tiny", quantised, TINY)
    data = None if calibration is None else Calibration.of(network(), calibration)
    return (
        create_report(read_if_needed(network()), Design(chosen, quantised, manifest), data),
        quantised,
        manifest,
    )


def test_control_characters_of_names_are_escaped():
    """A page shows them as a terminal does; safe text, such as a picture, stays as it is."""
    report, _, manifest = make()
    name = "a\x1b]0;b\x07\x00\u202e<b>"
    layers = tuple(each.replace(name=name) for each in report.layers)
    page = render_report(report.replace(name=name, layers=layers, notes=(name,)), manifest)
    assert page.count("a\\x1b]0;b\\x07\\x00\\u202e&lt;b&gt;") >= 2 + len(layers)
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", page)
    assert "<svg" in page


def test_sizes_and_cycles():
    report, quantised, manifest = make()
    assert report.parameters == network().weight_count == sum(x.parameters for x in report.layers)
    memories = {memory.name: memory.bits for memory in report.memories}
    # 16 x 3 and 16 x 4 weights in words of 2 for 4 lanes, and 2 x 4: (8 + 8 + 2) rows.
    assert memories["weights"] == 4 * 18 * 2 * 16 and memories["cell states"] == 2 * 4 * 16
    counts = {some.name: (some.count, some.kind) for some in report.multipliers}
    slopes = {"sigmoid slopes": 3, "tanh slopes": 1, "cell tanh slopes": 1}
    listed = {"products": 4 * 2, "f c": 1, "i g": 1, "o tanh(c)": 1} | slopes
    assert counts == {name: (count, "dsp") for name, count in listed.items()}
    assert report.memory_bits == sum(memories.values())
    assert report.cycles.step_latency_cycles == manifest.cycles.step_latency_cycles
    path = sum(layer.array_cycles + layer.overhead_cycles for layer in report.layers)
    assert path == report.cycles.step_latency_cycles
    at_100 = next(time for time in report.times if time.assumed_clock_mhz == 100)
    assert at_100.step_latency_us == pytest.approx(manifest.cycles.step_latency_cycles / 100)
    assert [table.max_error_ulp <= 1 for table in report.tables] == [True] * 3
    assert table_error(quantised.numerics.unit.sigmoid) <= 1


def test_accuracy_on_calibration_data():
    report, quantised, _ = make(CALIBRATION)
    form = quantised.numerics.input
    y = quantised.shapes[-1].output.to_floats(Golden(quantised).run(form.to_integers(CALIBRATION)).y)
    error = y - run_float(network(), CALIBRATION).y
    accuracy = report.accuracy
    assert (accuracy.data, accuracy.steps, accuracy.sequences) == ("calibration", 50, 2)
    assert accuracy.max_abs_error == pytest.approx(np.abs(error).max(), rel=1e-4)
    assert accuracy.rms_error == pytest.approx(np.sqrt((error**2).mean()), rel=1e-4)
    assert not any("no calibration" in text for text in report.assumptions)


def test_errors_are_those_of_valid_steps():
    """Padding has none, and does not make their mean less."""
    both, quantised, _ = make(CALIBRATION)
    short = Calibration.of(network(), np.pad(CALIBRATION, ((0, 150), (0, 0), (0, 0))), np.array([50, 50]))
    padded = measure_accuracy(network(), quantised, short)
    assert padded.rms_error == both.accuracy.rms_error > 0 and padded.spread == both.accuracy.spread


@pytest.mark.parametrize(
    "x, words",
    [
        (np.zeros((9, 4, 3)), "all calibration data are 0, so ranges follow from initial states and biases"),
        (np.ones((1, 40, 3)), "no sequence of the calibration data has more than one step"),
        (np.eye(9, 3)[:, None], None),
    ],
)
def test_calibration_data_that_are_not_typical_are_said(x: np.ndarray, words: str | None):
    report, _, _ = make(x)
    found = [text for text in report.assumptions if "give " in text]
    assert len(found) == (words is not None) and all(text.startswith(words) for text in found)


@pytest.mark.parametrize(("value", "said"), [("double", True), ("none", False)])
def test_why_a_wide_range_that_gains_nothing_is_taken(value: str, said: bool):
    first = Trial(choice="all", value="by formulas", error=0.5, taken=True)
    (note,) = explain_trials([first, Trial(choice="range of inputs", value=value, error=0.51, taken=True)])
    assert "range of inputs " + value in note and "taken, with 2 % more error there" in note
    assert note.endswith("since other data may have larger values") == said


@pytest.mark.parametrize(("error", "said"), [(0.51, True), (0.49, False)])
def test_why_rounding_that_gains_nothing_is_taken(error: float, said: bool):
    first = Trial(choice="all", value="by formulas", error=0.5, taken=True)
    then = Trial(choice="rounding of weights", value="cancelling", error=error, taken=True)
    (note,) = explain_trials([first, then])
    assert note.endswith("since it keeps rare large errors down") == said


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (0.369, 0.3691, "about the same error"),
        (0.4, 0.1, "75 % less error"),
        (0.4, 0.0012, "99.7 % less error"),
        (0.1, 0.25, "150 % more error"),
        (0.0, 0.0, "about the same error"),
    ],
)
def test_what_trials_changed_is_said(before: float, after: float, said: str):
    first = Trial(choice="all", value="by formulas", error=before, taken=True)
    (note,) = explain_trials([first, Trial(choice="ranges of c", value="double", error=after, taken=True)])
    assert f"taken, with {said} there: ranges of c double;" in note


def test_trials_that_changed_nothing_are_not_said():
    first = Trial(choice="all", value="by formulas", error=0.5, taken=True)
    assert not [*explain_trials([])] and not [*explain_trials([first])]
    assert not [*explain_trials([first, first.replace(value="none", taken=False)])]


def test_inputs_far_from_zero_are_said():
    """Rounding to few bits is off by more than they change; with 16 bits only by a small part of it."""
    x = np.random.default_rng(0).normal((0.0, 55.0, -4.0), (1.0, 0.4, 1.0), (30, 4, 3))
    for bits, words in ((16, None), (8, "input 1 is far"), (4, "inputs 1, 2 are far")):
        data = max(8, bits)
        # With the rounding of h, so that the search moves no zeros.
        settings = QuantizationSettings(weight_bits=bits, data_bits=data, hidden_bits=data)
        quantised = quantise(network(), settings, x)
        manifest = Manifest.of("tiny", quantised, TINY)
        design = Design(settings, quantised, manifest)
        report = create_report(read_if_needed(network()), design, Calibration.of(network(), x))
        found = [text for text in report.assumptions if "far from 0" in text]
        assert len(found) == (words is not None)
        assert all(text.startswith(words) and "(input 1: 55 +- 0." in text for text in found)


def test_many_inputs_are_named_in_short():
    data = Calibration(np.random.default_rng(0).normal(9, 0.1, (30, 2, 10)), np.array([30, 30]), None)
    settings = QuantizationSettings(weight_bits=4, data_bits=8)
    (text,) = _offset_inputs(settings, quantise(network(), settings).numerics, data)
    assert text.startswith("inputs 0, 1, 2, 3, 4, 5, 6, 7 and 2 more are far from 0 for how much they change")


def test_single_steps_with_a_state_each_are_typical():
    x = np.ones((1, 40, 3))
    state = np.zeros((40, 4)), np.ones((40, 4))
    quantised = quantise(network(), QuantizationSettings(), x)
    manifest = Manifest.of("tiny", quantised, TINY)
    data = Calibration.of(network(), x, state=state)
    report = create_report(
        read_if_needed(network()), Design(QuantizationSettings(), quantised, manifest), data
    )
    assert not any("more than one step" in text for text in report.assumptions)


def test_without_calibration_data_the_assumptions_are_stated():
    report, _, _ = make()
    assert report.accuracy.data == "random" and "seed" in report.accuracy.description
    assert any("input range +-8 assumed: no calibration data" in text for text in report.assumptions)
    chosen, _, _ = make(input_range=2.0, cell_range=4.0)
    assert not any("input range" in text or "cell state" in text for text in chosen.assumptions)


def test_saturated_values_are_counted():
    report, quantised, _ = make(CALIBRATION, input_range=0.9, cell_range=0.25)
    assert report.accuracy.input_saturations == quantised.numerics.input.saturated(CALIBRATION) > 0
    assert 0 < report.accuracy.cell_saturations <= report.accuracy.cell_values == 50 * 2 * 4


def test_json_comes_back():
    report, _, _ = make()
    assert BuildReport.model_validate(json.loads(report.to_json())) == report


@pytest.mark.usefixtures("drawn")
def test_page_is_self_contained():
    report, _, manifest = make()
    page = render_report(report.replace(source='<b>&"x"</b>', notes=("a <script> note",)), manifest)
    assert "<script" not in page and "&lt;b&gt;" in page
    assert not re.search(r"https?://|\bsrc=|@import|url\(", page)
    assert "at an assumed clock, not placed and routed" in page.lower()
    bins = sum(count > 0 for each in report.accuracy.histograms for count in each.counts)
    assert page.count("<title>fixed</title>") == page.count("<title>float</title>") == 2
    assert len(re.findall(r"<title>[\d,]+ values</title>", page)) == bins > 0
    for tag in ("table", "tr", "td", "ul", "svg", "div", "p"):
        assert len(re.findall(rf"<{tag}[ >]", page)) == page.count(f"</{tag}>"), tag


def test_page_names_what_the_layers_are():
    network = CELL_NETWORKS["gru"]
    quantised = quantise(network, QuantizationSettings())
    manifest = Manifest.of("tiny", quantised, TINY)
    report = create_report(read_if_needed(network), Design(QuantizationSettings(), quantised, manifest))
    page = render_report(report, manifest)
    assert "<td>gru</td>" in page and "LSTM" not in page
    # Its units have four rows in the core, three in the model.
    held = sum(layer.parameters for layer in report.layers)
    assert held > report.parameters and f"the {held} weights and biases that the core stores" in page


@pytest.mark.usefixtures("drawn")
def test_bars_are_to_scale():
    report, _, _ = make()
    drawn = bars(draw_cycles(report.layers))
    assert len(drawn) == 3 * len(report.layers)
    for index, layer in enumerate(report.layers):
        widths = {bar.fill: bar.width for bar in drawn[3 * index : 3 * index + 3]}
        assert widths["array"] * layer.overhead_cycles == pytest.approx(
            widths["overhead"] * layer.array_cycles, rel=0.01
        )


def test_final_states_that_saturate_are_told():
    """By the network's own outputs a narrow range is best; what goes on elsewhere is the user's to say."""
    report, _, manifest = make(CALIBRATION, cell_range=0.25)
    (told,) = (text for text in report.assumptions if "after a sequence's last step" in text)
    assert f"c reaches {report.accuracy.max_abs_final_cell:.4g}" in told and "larger cell range" in told
    held, _, _ = make(CALIBRATION, final_states=True)
    assert not any("after a sequence's last step" in text for text in held.assumptions)
    (searched,) = (text for text in held.assumptions if "cell states reach" in text)
    assert "of the ranges tried on the calibration data" in searched and "also holds final states" in searched
    quantised = quantise(network(), QuantizationSettings(cell_range=0.25), CALIBRATION)
    design, data = Design(QuantizationSettings(), quantised, manifest), Calibration.of(network(), CALIBRATION)
    loaded = create_report(read_if_needed(network()), design, data, loaded=True)
    assert any("generate that hardware with a larger cell range" in text for text in loaded.assumptions)


def test_quick_tries_ranges_of_cell_states_alone(monkeypatch):
    """The note speaks of the ranges that were tried: others than that of the build."""
    tried, ranges = [], rtlstm.gen.quantise.ranges
    run = ranges.fixed_outputs
    monkeypatch.setattr(
        ranges, "fixed_outputs", lambda model, data: tried.append(model.shapes) or run(model, data)
    )
    settings = QuantizationSettings(quick=True)
    found = choose_formats(network(), settings, Calibration.of(network(), CALIBRATION))
    assert len({shapes[0].state for shapes in tried}) > 1 and not found.trials
    report, _, _ = make(CALIBRATION, quick=True)
    (told,) = (text for text in report.assumptions if "cell states reach" in text)
    assert "of the ranges tried on the calibration data, this is the widest that costs outputs little" in told


def test_it_is_said_how_many_sequences_were_run(monkeypatch):
    monkeypatch.setattr(rtlstm.gen.quantise.ranges, "_WORK", 0)
    report, _, _ = make(np.zeros((100, 300, 3)))
    assert report.accuracy.description == "the calibration data"
    (searched,) = (text for text in report.assumptions if "cell states reach" in text)
    assert re.search(r"tried on 20 of 300 sequences of the calibration data, 2000 steps in all", searched)


@pytest.mark.usefixtures("drawn")
def test_page_shows_where_accuracy_goes():
    """Bars to scale, curves, and nothing from elsewhere; names from a model are text."""
    report, _, manifest = make()
    parts = (
        PartErrors(part="weights", alone=0.03, without=0.01, steps=(0.0, 0.0, 0.02)),
        PartErrors(part="tables", alone=0.01, without=0.03, steps=(0.01,)),
    )
    layer = LayerErrors(
        name="<b>lstm</b>",
        kind="lstm",
        rms_signal=0.5,
        rms_error=0.04,
        max_abs_error=0.1,
        snr_db=21.94,
        parts=parts,
        steps=(0.0, 0.02, 0.04),
    )
    output = layer.replace(name="y", kind="output", rms_signal=1.0, steps=(0.04,))
    limited = Saturations(name="lstm", quantity="state", values=40, saturated=7, counts=(1, 6))
    errors = ErrorReport(
        model=True,
        sequences=1,
        steps=3,
        total_steps=3,
        steps_per_point=1,
        output=output,
        layers=(layer,),
        saturations=(limited, limited.replace(saturated=0, quantity="results")),
        widths=(WidthErrors(changes={"weight_bits": 9}, bits=1, rms_error=0.02, max_abs_error=0.03),),
        score=Score(measure="accuracy", labels=1234, float_score=0.5, fixed_score=0.25, changed=56),
        verdict="All is told.",
    )
    assert rounded_parts(errors) == ("weights", "tables")
    parts = draw_error_parts(errors)
    assert parts is not None
    check_texts(parts)
    assert {"<b>lstm</b>", "y"} <= set(texts(parts))
    drawn = bars(parts)
    # Relative to the layer's float values: 8 %, 6 % and 2 %, then half of that.
    assert [bar.width / drawn[0].width for bar in drawn] == pytest.approx([1, 0.75, 0.25, 0.5, 0.375, 0.125])
    assert [bar.title for bar in drawn[:2]] == ["<b>lstm</b>, all: 8 %", "<b>lstm</b>, weights: 6 %"]
    assert [bar.fill for bar in drawn] == ["all", "weights", "tables"] * 2
    steps = draw_error_steps(errors)
    check_texts(steps)
    curves = lines(steps)
    heights = {part: [y for _, y in curves[f"<b>lstm</b>, {part}"]] for part in ("all", "weights")}
    zero, half, whole = heights["all"]
    assert half == pytest.approx((zero + whole) / 2, abs=0.02) and zero > whole
    assert heights["weights"] == pytest.approx([zero, zero, half], abs=0.02)
    page = render_report(report.replace(errors=errors), manifest)
    for words in ("All is told.", "&lt;b&gt;lstm", "21.9 dB", "bits=9", "17.5 %", "1 (6)", "1\u202f234"):
        assert words in page, words
    assert "<b>lstm" not in page
    assert not re.search(r"https?://|\bsrc=|@import|url\(", page)
    pictures = re.findall(r"<svg.*?</svg>", page, re.DOTALL)
    labels = [ElementTree.fromstring(picture).attrib["aria-label"] for picture in pictures]
    shown = ["Block diagram", "Cycles", "One step", "Two steps", "Output", "Output", "Error", "Error"]
    histograms = ["Histogram"] * len(report.accuracy.histograms)
    for label, words in zip(labels, (*shown, *histograms), strict=True):
        assert label.startswith(words)
    assert "prefers-color-scheme: dark" in page
