"""The report as one self-contained page."""

from pathlib import Path

from rtlstm.gen.builds.error_charts import error_charts
from rtlstm.gen.builds.pictures import Pictures, templates
from rtlstm.gen.builds.report import BuildReport
from rtlstm.spec.files import write_file
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.record import Record

__all__ = ["Bar", "cycle_bars", "next_commands", "render_report", "write_report"]

_WIDTH = 640.0
"""Length of the chart's longest bar in SVG units."""


class Bar(Record):
    """One layer's bar: where its three parts begin and how long they are, in SVG units."""

    name: str
    top: int
    array: int
    overhead: int
    recurrent: int
    array_width: float
    overhead_width: float
    recurrent_width: float


def cycle_bars(report: BuildReport) -> tuple[Bar, ...]:
    """Lay out the chart: per layer, cycles of the array, of the overhead, and off the path."""
    longest = max(
        layer.array_cycles + layer.overhead_cycles + layer.recurrent_cycles for layer in report.layers
    )
    scale = _WIDTH / max(1, longest)
    return tuple(
        Bar(
            name=layer.name,
            top=index * 34,
            array=layer.array_cycles,
            overhead=layer.overhead_cycles,
            recurrent=layer.recurrent_cycles,
            array_width=round(layer.array_cycles * scale, 2),
            overhead_width=round(layer.overhead_cycles * scale, 2),
            recurrent_width=round(layer.recurrent_cycles * scale, 2),
        )
        for index, layer in enumerate(report.layers)
    )


def next_commands(report: BuildReport) -> tuple[tuple[str, str], ...]:
    """Return commands for the build, to be typed in its folder, and what each is good for."""
    device = "DEVICE" if report.expected is None else report.expected.device
    simulate = ("rtlstm simulate .", "compare the Verilog with the golden model, every word and every cycle")
    accuracy = ("rtlstm accuracy . --input x.npy", "find out where accuracy goes, on inputs of yours")
    implement = (f"rtlstm implement . --device {device}", "place and route: size, clock and time of a step")
    run = ("rtlstm run . --backend golden --input x.npy --output y.npy", "compute outputs, bit for bit")
    asked = (
        (simulate, True),
        (accuracy, report.errors is None),
        (implement, not report.implementations),
        (run, True),
    )
    return tuple(command for command, wanted in asked if wanted)


def render_report(report: BuildReport, manifest: Manifest) -> str:
    """Return the text of ``report.html``; the manifest has the schedule that is drawn."""
    shown = {
        "bars": cycle_bars(report),
        "charts": None if report.errors is None else error_charts(report.errors),
        "commands": next_commands(report),
        "p": Pictures.of_build(report, manifest),
    }
    return templates().get_template("report.html").render(r=report, **shown) + "\n"


def write_report(folder: Path, report: BuildReport, manifest: Manifest) -> None:
    """Write ``report.json`` and ``report.html`` of a build folder again."""
    for name, text in (("report.json", report.to_json()), ("report.html", render_report(report, manifest))):
        write_file(Path(folder) / name, text)
