"""Measures where the accuracy of a build goes, and adds it to the build's report."""

from pathlib import Path
from typing import Any

from numpy.typing import ArrayLike

from rtlstm.gen.accuracy.measure import measure_errors
from rtlstm.gen.accuracy.records import ErrorReport
from rtlstm.gen.accuracy.samples import Labels, Samples
from rtlstm.gen.builds.report import BuildReport
from rtlstm.gen.builds.report_html import render_report, write_report
from rtlstm.gen.frontends import ReadOptions, read_if_needed
from rtlstm.spec.activations.functions import ActivationFunction
from rtlstm.spec.files import write_file
from rtlstm.spec.image import WeightImage
from rtlstm.spec.layout import sequences_first
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.packing import check_image
from rtlstm.spec.padding import Pad
from rtlstm.spec.progress import Progress

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
    reading: ReadOptions | None = None,
    labels: ArrayLike | None = None,
    lengths: ArrayLike | None = None,
    batch_first: bool | None = None,
    pad: Pad = "back",
    page: Path | None = None,
    progress: Progress | None = None,
) -> ErrorReport:
    """Measure the errors of a build against float.

    Parameters
    ----------
    folder
        A build. Its ``report.json`` and ``report.html`` get what was found.
    x, lengths, batch_first, pad
        See :class:`rtlstm.gen.accuracy.samples.Samples`; the order is by default the model's.
    model
        The model that it was generated from, as :func:`rtlstm.compile` takes it. If None, float is the
        network of the build's rounded weights: what rounding them costs is not included, and other widths
        cannot be tried.
    reading
        How the model is read, as it was for the build.
    labels
        See :meth:`rtlstm.gen.accuracy.samples.Labels.of`.
    page
        Where to write the report's page instead; the build is not changed then.
    progress
        Called as ``progress(what, done, total)``.

    Raises
    ------
    BuildError
        If the folder is not a build, or is damaged.
    ImageError
        If the build's weights are damaged.
    InputError
        If inputs, labels or model do not fit the build.
    ModelError
        If the model cannot be read or is not supported.
    """
    manifest = Manifest.load(folder)
    report = BuildReport.load(folder)
    network = check_image(WeightImage.load(folder / "weights.bin", manifest), manifest)
    first = sequences_first("x", x, batch_first, manifest.batch_first, lengths)
    samples = Samples.of(x, network.inputs, lengths, first, manifest.frames, pad)
    last = ActivationFunction.of(manifest.layers[-1].activation)
    threshold = 0.5 if last.is_share else 0.0
    known = None if labels is None else Labels.of(labels, samples, network.outputs, threshold)
    source = None if model is None else read_if_needed(model, reading).network
    request = report.format_request
    found = measure_errors(network, samples, source, request, known, progress)
    if source is not None and request is None:
        found = found.replace(remarks=(_TRAINED_WIDTHS if report.trained else _FIXED_WIDTHS,))
    elif found.widths and report.fit is not None:
        found = found.replace(remarks=(_FIT_WIDTHS.format(report.fit.device),))
    whole = report.replace(errors=found)
    if page is None:
        write_report(folder, whole, manifest)
    else:
        write_file(page, render_report(whole, manifest))
    return found
