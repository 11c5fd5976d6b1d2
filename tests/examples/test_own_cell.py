"""The example of a cell of one's own: bits as the golden model, values near floats."""

import runpy

import pytest
from support.paths import EXAMPLES

pytestmark = pytest.mark.rtl

EXAMPLE = EXAMPLES / "own_cell.py"


@pytest.mark.slow
def test_a_cell_of_ones_own_runs_in_simulation() -> None:
    differences = runpy.run_path(str(EXAMPLE))["compare"]("icarus")
    assert differences["bits"] == 0
    assert 0 < differences["float"] < 0.02
