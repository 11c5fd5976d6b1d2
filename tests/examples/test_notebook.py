"""The notebook runs in a real kernel, and each of its cells works a second time."""

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from support.paths import ROOT

pytestmark = pytest.mark.rtl

NOTEBOOK = ROOT / "examples" / "notebook" / "rtlstm.ipynb"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> list[nbformat.NotebookNode]:
    """Cells that ran: all in order, and then all once more in the same kernel and folder."""
    folder = tmp_path_factory.mktemp("notebook")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert not any(cell.outputs for cell in cells), "the notebook is kept without outputs"
    notebook.cells = cells + [nbformat.v4.new_code_cell(cell.source) for cell in cells]
    # An error in a cell is raised here, with the cell's traceback.
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(folder)}}).execute()
    assert (folder / "build" / "Detector" / "manifest.json").is_file()
    return notebook.cells


def shown(cell: nbformat.NotebookNode) -> str:
    """Everything that a cell has printed or shown."""
    texts = [output.text for output in cell.outputs if output.get("name") == "stdout"]
    return "".join(
        texts + [text for each in cell.outputs for text in map(str, each.get("data", {}).values())]
    )


def test_every_cell_works_twice_and_says_the_same(run: list[nbformat.NotebookNode]) -> None:
    half = len(run) // 2
    assert half >= 7
    assert [shown(cell) for cell in run[half:]] == [shown(cell) for cell in run[:half]]


def test_cells_show_what_they_should(run: list[nbformat.NotebookNode]) -> None:
    text = "\n".join(map(shown, run[: len(run) // 2]))
    for part in (
        "Detector: 3 inputs, 1 outputs",
        "<table",
        "largest difference from PyTorch: 0.0",
        "words and 2 steps' cycles as predicted",
        "device: GoldenDevice",
        "cycles per time step",
        "build.tcl",
    ):
        assert part in text
    said = [output.text for cell in run for output in cell.outputs if output.get("name") == "stderr"]
    # The second time, compile says that it removes the board's folder, which the next line makes again.
    assert len(said) == 1 and "boards/zybo-z7-20 belonged to the former build and is removed" in said[0]


def test_notebook_has_the_calls_of_the_front_door() -> None:
    source = Path(NOTEBOOK).read_text()
    for call in (
        "rtlstm.compile(model",
        ".run(x)",
        ".simulate(",
        ".open(",
        ".report()",
        ".bitstream(",
        ".implement(",
    ):
        assert call in source
