"""Measures where the accuracy of a build goes, and adds it to the build's report."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from rtlstm.gen.accuracy.measure import measure_errors
from rtlstm.gen.accuracy.records import ErrorReport
from rtlstm.gen.accuracy.samples import Labels, Samples
from rtlstm.gen.builds.generate import BuildRequest
from rtlstm.gen.builds.hardware import check_hardware
from rtlstm.gen.builds.report import BuildReport
from rtlstm.gen.builds.report_html import render_report, update_report
from rtlstm.gen.builds.widths import Made, Widths, conclude_widths
from rtlstm.gen.frontends import ReadOptions, read_if_needed
from rtlstm.gen.frontends.reading import ReadResult
from rtlstm.gen.quantise.calibration import Calibration, read_data, repeat_state
from rtlstm.host.embeddings import load_tables
from rtlstm.host.state import read_initial_state
from rtlstm.sim.reference import run_float
from rtlstm.spec.activations.functions import ActivationFunction
from rtlstm.spec.errors import ConfigurationError
from rtlstm.spec.files import write_file
from rtlstm.spec.image import WeightImage
from rtlstm.spec.layout import Pad, sequences_first
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.numerics import QuantizedNetwork
from rtlstm.spec.packing import check_image
from rtlstm.spec.progress import Progress
from rtlstm.spec.record import option_text

_NO_DATA = (
    "other widths are not tried: the formats were chosen on calibration data: give the same again, "
    "`calibration`, to see which width to change"
)
_OTHER_DATA = "the build was generated with other calibration data, or none: its error now is with those"
_NOT_HELD_OUT = (
    "these inputs calibrated the build: on others its errors may be larger; give inputs that did not"
)
_GIVEN_STATES = "the sequences begin in the states that were given, not in the model's"
_OF_SCORES = "errors are those of the scores, from which the device finds what it gives"
_FIXED_WIDTHS = (
    "other widths are not tried: the build has the formats of the hardware that it is for; measure a build "
    "of that hardware"
)
_TRAINED_WIDTHS = "other widths are not tried: the network was trained with these; train it again with others"
_FIT_WIDTHS = (
    "the array was chosen for {}: with another width, generate chooses again, and says if nothing fits"
)


def measure_build(
    folder: Path,
    x: ArrayLike,
    *,
    model: Any = None,
    calibration: ArrayLike | None = None,
    calibration_lengths: ArrayLike | None = None,
    calibration_state: Any = None,
    reading: ReadOptions | None = None,
    labels: ArrayLike | None = None,
    lengths: ArrayLike | None = None,
    state: Any = None,
    batch_first: bool | None = None,
    pad: Pad = "back",
    page: Path | None = None,
    progress: Progress | None = None,
) -> ErrorReport:
    """Measure the errors of a build against float; its report and page get what was found.

    Data, model and labels are those of :meth:`rtlstm.Build.accuracy`; ``reading`` says how the model is read,
    as it was for the build. If there is no model, float is the network of the build's rounded weights.
    ``page`` is where to write the report's page instead; the build is not changed then. ``progress`` is
    called as ``progress(what, done, total)``.

    Raises BuildError if the folder is not a build, or is damaged. Raises ImageError if the build's weights
    are damaged. Raises InputError if inputs, labels or model do not fit the build. Raises ModelError if the
    model cannot be read or is not supported.
    """
    _refuse_unused(model, calibration, calibration_lengths, calibration_state, reading)
    manifest = Manifest.load(folder)
    report = BuildReport.load(folder)
    network = check_image(WeightImage.load(folder / "weights.bin", manifest), manifest)
    x = replace(load_tables(folder, manifest), in_core=False).look_up(x, lengths, batch_first, pad)
    first = sequences_first("x", x, batch_first, manifest.batch_first, lengths)
    samples = Samples.of(x, network.inputs, lengths, first, manifest.frames, pad, manifest.window)
    if state is not None:
        samples = samples.begin_in(network, state)
        samples.warn_saturations(network)
    elif (begin := read_initial_state(folder, manifest)) is not None:
        samples = replace(samples, state=repeat_state(begin, len(samples.lengths)))
    last = ActivationFunction.of(manifest.layers[-1].activation)
    threshold = 0.5 if last.is_share else 0.0
    known = None if labels is None else Labels.of(labels, samples, network.outputs, threshold)
    read = None if model is None else read_if_needed(model, reading)
    found = measure_errors(network, samples, None if read is None else read.network, known, progress)
    if read is not None:
        its_pad: Pad = "back" if calibration_lengths is None else pad
        data = None
        if calibration is not None:
            given = read.looked_up(calibration, "calibration", calibration_lengths, batch_first, pad)
            data = read_data(read, given, calibration_lengths, calibration_state, batch_first, its_pad)
        found = _with_widths(found, report, manifest, network, read, data, samples, progress)
    said = (_GIVEN_STATES,) * (state is not None) + (_OF_SCORES,) * manifest.decides
    found = found.replace(remarks=(*found.remarks, *said))
    if page is None:
        update_report(folder, manifest, report, lambda now: now.replace(errors=found))
    else:
        write_file(page, render_report(report.replace(errors=found), manifest))
    return found


def _refuse_unused(
    model: Any, calibration: Any, lengths: Any, state: Any, reading: ReadOptions | None
) -> None:
    """Refuse what says how something is read that is not given."""
    how = {} if reading is None else reading.model_dump(exclude_defaults=True)
    if how and model is None:
        raise ConfigurationError(
            f"{option_text(how)} says how a model is read: give `model`, too, or leave it out"
        )
    for name, part, needed, there in (
        ("calibration", calibration, "model", model),
        ("calibration_lengths", lengths, "calibration", calibration),
        ("calibration_state", state, "calibration", calibration),
    ):
        if part is not None and there is None:
            raise ConfigurationError(
                f"`{name}` is for trying other widths: give `{needed}`, too, or leave it out"
            )


def _with_widths(
    found: ErrorReport,
    report: BuildReport,
    manifest: Manifest,
    network: QuantizedNetwork,
    read: ReadResult,
    data: Calibration | None,
    samples: Samples,
    progress: Progress | None,
) -> ErrorReport:
    """Try other widths, and say what to change; or say why none are tried."""
    asked = report.asked
    if asked is None:
        return found.replace(remarks=(_TRAINED_WIDTHS if report.trained else _FIXED_WIDTHS,))
    if data is None and asked.calibration is not None:
        return found.replace(remarks=(_NO_DATA,))
    numbers, remarks = asked.settings, []
    if data is not None and data.digest != asked.calibration:
        remarks.append(_OTHER_DATA)
    if data is not None and np.array_equal(data.x, samples.x):
        remarks.append(_NOT_HELD_OUT)
    if report.fit is not None:
        remarks.append(_FIT_WIDTHS.format(report.fit.device))
    hardware: dict[str, Any] = {"parameters": manifest.parameters.replace(capacity=None)}
    if asked.hardware is not None:
        options = dict(asked.hardware)
        hardware = check_hardware(options.pop("fit", None), options | {"tables": numbers.tables})
    request = BuildRequest(
        read=read,
        settings=numbers,
        capacities=asked.capacities,
        data=data,
        **hardware,
    )
    estimate = None if report.fit is None else report.fit.estimate
    if report.expected is not None:
        named = (each for each in report.estimates if each.device == report.expected.device)
        estimate = estimate or next(named, None)
    made = Made(request, asked, network, manifest, estimate)
    exact = run_float(read.network, samples.x, samples.state, samples.lengths)
    widths, advice = Widths(made, samples, exact, found, progress).run()
    found = found.replace(widths=widths, advice=advice, remarks=tuple(remarks))
    return found.replace(verdict=found.verdict + conclude_widths(found))
