"""The notebooks run, two in a real kernel, and each cell of the first one works a second time."""

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from support.lazy import Lazy
from support.paths import ROOT
from support.quick import quick

pytestmark = pytest.mark.rtl

NOTEBOOKS = ROOT / "examples" / "notebook"
NOTEBOOK = NOTEBOOKS / "rtlstm.ipynb"
QUICK = ("market_data",)
"""The tutorial that runs in any case."""


def read(path: Path) -> Any:
    """A notebook that follows the format."""
    import nbformat  # Takes seconds, so not where tests are collected.

    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    return notebook


def execute(path: Path, folder: Path, times: int = 1) -> list[Any]:
    """Run all code cells in order, so many times in the same kernel and folder; return those that ran."""
    from nbclient import NotebookClient

    notebook = read(path)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert not any(cell.outputs for cell in cells), "the notebook is kept without outputs"
    notebook.cells = [deepcopy(cell) for cell in times * cells]
    # An error in a cell is raised here, with the cell's traceback.
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(folder)}}).execute()
    return notebook.cells


def shown(cell: Any) -> str:
    """Everything that a cell has printed or shown."""
    texts = [output.text for output in cell.outputs if output.get("name") == "stdout"]
    return "".join(
        texts + [text for each in cell.outputs for text in map(str, each.get("data", {}).values())]
    )


def said_aside(cells: list[Any]) -> list[str]:
    """What cells have said on standard error."""
    return [output.text for cell in cells for output in cell.outputs if output.get("name") == "stderr"]


@pytest.mark.slow
def test_every_cell_works_twice_and_says_the_same(tmp_path: Path) -> None:
    """Once more in the same kernel and folder."""
    run = execute(NOTEBOOK, tmp_path, times=2)
    half = len(run) // 2
    assert half >= 7
    assert [shown(cell) for cell in run[half:]] == [shown(cell) for cell in run[:half]]
    # The second time, compile says that it removes the board's folder, which the next line makes again.
    removed = [
        text
        for text in said_aside(run)
        if "boards/zybo-z7-20 belonged to the former build and is removed" in text
    ]
    assert len(removed) == 1
    assert all("NoteWarning: " in text for text in said_aside(run) if text not in removed)


def test_cells_show_what_they_should(tmp_path: Path) -> None:
    run = execute(NOTEBOOK, tmp_path)
    assert len(run) >= 7 and (tmp_path / "build" / "Detector" / "manifest.json").is_file()
    text = "\n".join(map(shown, run))
    for part in (
        "Detector: 3 inputs, 1 outputs",
        "<table",
        "largest difference from PyTorch: 0.0",
        "words and 2 steps' cycles as predicted",
        "device: GoldenDevice",
        "cycles per time step",
        "rtlstm-pictures",
        "16 inputs of the core, 0.000",
        "build.tcl",
    ):
        assert part in text
    assert all("NoteWarning: " in said for said in said_aside(run))


def test_notebook_has_the_calls_of_the_front_door() -> None:
    source = Path(NOTEBOOK).read_text()
    for call in (
        "rtlstm.compile(model",
        "rtlstm.split(",
        ".run(x)",
        ".simulate(",
        ".open(",
        ".report()",
        ".bitstream(",
        ".implement(",
    ):
        assert call in source


@pytest.mark.slow
def test_from_float_to_four_bits_on_a_board(tmp_path: Path) -> None:
    """The cells' own assertions compare training, build and board; here, that they say what they found."""
    text = "".join(map(shown, execute(NOTEBOOKS / "four_bits.ipynb", tmp_path)))
    errors = [float(part.split()[0]) for part in text.split(": ")[1:4]]
    assert errors[0] < errors[1] > errors[2]
    assert "every bit as trained; " in text and "the board gives every bit as trained" in text
    assert (tmp_path / "build" / "adder" / "manifest.json").is_file()


TUTORIALS = {
    "market_data": ("cycles from an event to its estimate", "40 events, each as in the batch"),
    "audio": ("samples a second; a sample comes out after", "480 samples, each as in the batch"),
    "motion": ("both take", "200 samples of both legs, each as in the batch"),
    "pynq": ("2 sequences of 8 steps, each bit as predicted", "RtlstmCore at 0x43c00000", "goes on where"),
    "own_cell": ("14 words and the cycles of 6 steps", "cycles, array + pipeline of each layer"),
}


@pytest.mark.parametrize("path", sorted(NOTEBOOKS.glob("*.ipynb")), ids=lambda path: path.stem)
def test_cells_are_python_without_outputs(path: Path) -> None:
    """At once, without running them."""
    notebook = read(path)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            compile(cell.source, path.name, "exec")
            assert not cell.outputs


@pytest.mark.parametrize(
    ("name", "parts"), quick(TUTORIALS.items(), *(each for each in TUTORIALS.items() if each[0] in QUICK))
)
def test_tutorial(
    name: str,
    parts: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The cells' own assertions check what they claim. Without a kernel, which takes seconds to start."""
    notebook = read(NOTEBOOKS / f"{name}.ipynb")
    assert len(notebook.cells) <= 10
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "__main__"}
    for cell in notebook.cells:
        if cell.cell_type == "code":
            assert not cell.outputs, "the notebook is kept without outputs"
            exec(compile(cell.source, f"{name}.ipynb", "exec"), names)
    Lazy("matplotlib.pyplot").close("all")
    printed = capsys.readouterr().out
    assert [part for part in parts if part not in printed] == []
