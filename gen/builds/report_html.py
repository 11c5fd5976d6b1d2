"""The report as one self-contained page."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Self

from rtlstm.fpga.devices import find_device
from rtlstm.fpga.resources import count_text
from rtlstm.gen.builds.report import BuildReport
from rtlstm.gen.frontends.arrays import import_extra
from rtlstm.gen.frontends.reading import ReadResult
from rtlstm.gen.pictures.charts import (
    DeviceUse,
    draw_cycles,
    draw_error_parts,
    draw_error_steps,
    draw_histogram,
    draw_path,
    draw_trace,
    draw_use,
    measured_uses,
    rounded_parts,
)
from rtlstm.gen.pictures.network import describe_blocks, draw_network
from rtlstm.gen.pictures.picture import Picture, can_draw, escape_controls
from rtlstm.gen.pictures.timeline import activities, draw_activity
from rtlstm.spec.errors import BuildError
from rtlstm.spec.files import locked, write_file
from rtlstm.spec.layout import part_slices
from rtlstm.spec.manifest import Manifest
from rtlstm.tools import no_collection

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup


@dataclass(frozen=True)
class Pictures:
    """All there are, in the order in which they are shown; a notebook shows them by itself."""

    network: Picture | None = None
    uses: Sequence[tuple[DeviceUse, Picture]] = ()
    cycles: Picture | None = None
    """The cycles of a step, layer by layer."""
    timelines: Sequence[tuple[str, Picture]] = ()
    paths: Mapping[str, Picture] = field(default_factory=dict)
    """The slowest path of the median seed, by device."""
    traces: Sequence[Picture] = ()
    histograms: Sequence[Picture] = ()
    data: str = ""
    """What traces and histograms were measured on."""

    @classmethod
    def of_build(cls, report: BuildReport, manifest: Manifest) -> Self:
        """Draw a build; the manifest has the schedule that is drawn."""
        expected = () if report.expected is None else (report.expected,)
        drawn = {
            run.label: draw_path(run.worst_path)
            for run in report.implementations
            if run.worst_path is not None
        }
        return cls(
            network=draw_network(report.inputs, report.blocks, report.host),
            uses=[(use, draw_use(use)) for use in measured_uses(report.implementations) or expected],
            cycles=draw_cycles(report.layers),
            timelines=[(each.title, draw_activity(each)) for each in activities(manifest)],
            paths={label: picture for label, picture in drawn.items() if picture is not None},
            traces=[draw_trace(each, _output_name(manifest, each.output)) for each in report.accuracy.traces],
            histograms=[draw_histogram(each) for each in report.accuracy.histograms],
            data=report.accuracy.description,
        )

    @classmethod
    def of_model(cls, found: ReadResult) -> Self:
        """Draw a model that was read: its network, and what stays on the host."""
        network = found.network
        return cls(network=draw_network(network.inputs, describe_blocks(network), found.report.outside))

    def page(self, title: str) -> str:
        """Return a page of its own, one file. Raises ToolError if there is nothing to draw with."""
        check_drawing()
        return templates().get_template("pictures_page.html").render(p=self, title=title) + "\n"

    def _repr_html_(self) -> str:
        return templates().get_template("pictures.html").render(p=self)


def _output_name(manifest: Manifest, output: int) -> str:
    """Return what an output is called: by its part of several, else by its number."""
    for name, part in part_slices(manifest.parts).items():
        if part.start <= output < part.stop:
            return f"{name}, value {output - part.start}"
    return f"output {output}"


def check_drawing() -> None:
    """Refuse a page of pictures if there is nothing to draw with.

    Raises ToolError, which says what to install.
    """
    import_extra("vl_convert", "pictures", "a page of pictures")


def _code(text: str) -> "Markup":
    from markupsafe import Markup, escape

    shown = re.sub("`([^`]+)`", r"<code>\1</code>", escape(escape_controls(text)))
    return Markup(shown)


@cache  # Else most of a small build's time would go into the same templates again.
def templates() -> "Environment":
    """Return the templates of the report and of its pictures."""
    # Imported here: nothing else of the generator needs it.
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    folder = files("rtlstm.gen.builds") / "templates"
    environment = Environment(
        autoescape=True,
        finalize=lambda value: escape_controls(value) if isinstance(value, str) else value,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        loader=FunctionLoader(lambda name: (folder / name).read_text(encoding="utf-8")),
    )
    environment.globals["can_draw"] = lambda: can_draw()
    environment.filters["code"] = _code
    environment.filters["thousands"] = lambda value: f"{value:,}".replace(",", "\u202f")
    environment.filters["count"] = lambda value: count_text(value).replace(",", "\u202f")
    environment.filters["short"] = lambda value: f"{value:.5g}"
    return environment


def next_commands(report: BuildReport) -> tuple[tuple[str, str], ...]:
    """Return commands for the build, to be typed in its folder, and what each is good for."""
    device = "DEVICE" if report.expected is None else report.expected.device
    simulate = ("rtlstm simulate .", "compare the Verilog with the golden model, every word and every cycle")
    accuracy = ("rtlstm accuracy . --input x.npy", "find out where accuracy goes, on inputs of yours")
    routed = report.expected is None or find_device(device).device.routable
    what = "place and route: size, clock and time of a step" if routed else "synthesis: size"
    implement = (f"rtlstm implement . --device {device}", what)
    run = (
        "rtlstm run . --backend golden --input x.npy --output y.npy",
        "compute outputs, bit for bit",
    )
    asked = (
        (simulate, True),
        (accuracy, report.errors is None),
        (implement, not report.implementations),
        (run, True),
    )
    return tuple(command for command, wanted in asked if wanted)


@no_collection()
def render_report(report: BuildReport, manifest: Manifest) -> str:
    """Return the text of ``report.html``; the manifest has the schedule that is drawn."""
    shown = {
        "errors": None
        if report.errors is None
        else {
            "parts": draw_error_parts(report.errors),
            "rounded": rounded_parts(report.errors),
            "steps": draw_error_steps(report.errors),
        },
        "commands": next_commands(report),
        "p": Pictures.of_build(report, manifest),
    }
    return templates().get_template("report.html").render(r=report, **shown) + "\n"


def write_report(folder: Path, report: BuildReport, manifest: Manifest) -> None:
    """Write ``report.json`` and ``report.html`` of a build folder again."""
    for name, text in (("report.json", report.to_json()), ("report.html", render_report(report, manifest))):
        write_file(Path(folder) / name, text)


def update_report(
    folder: Path, manifest: Manifest, before: BuildReport, change: Callable[[BuildReport], BuildReport]
) -> None:
    """Change a build's report as it is now: other commands may have changed it since ``before`` was read.

    Raises BuildError if the build was generated again since.
    """
    folder = Path(folder).resolve()
    # Who puts a new build in the place of another has this lock, too.
    with locked(folder.parent, wait=True):
        now, added = BuildReport.load(folder), {"implementations": (), "errors": None}
        same = Manifest.load(folder).build_hash == manifest.build_hash
        if not same or now.replace(**added) != before.replace(**added):
            raise BuildError(
                f"{folder} must hold the build that was looked at, but it was generated again since; "
                "run the command again"
            )
        write_report(folder, change(now), manifest)
