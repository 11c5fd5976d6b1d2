"""The report as one self-contained page."""

from pathlib import Path

from rtlstm.gen.builds.pictures import Pictures, templates
from rtlstm.gen.builds.report import BuildReport
from rtlstm.gen.pictures.charts import draw_error_parts, draw_error_steps, rounded_parts
from rtlstm.spec.files import write_file
from rtlstm.spec.manifest import Manifest

__all__ = ["next_commands", "render_report", "write_report"]


def next_commands(report: BuildReport) -> tuple[tuple[str, str], ...]:
    """Return commands for the build, to be typed in its folder, and what each is good for."""
    device = "DEVICE" if report.expected is None else report.expected.device
    simulate = ("rtlstm simulate .", "compare the Verilog with the golden model, every word and every cycle")
    accuracy = ("rtlstm accuracy . --input x.npy", "find out where accuracy goes, on inputs of yours")
    implement = (f"rtlstm implement . --device {device}", "place and route: size, clock and time of a step")
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
