"""The example of a cell of one's own: bits as the golden model, values near floats."""

import runpy

import pytest
from support.no_logic import logic_for
from support.paths import EXAMPLES
from support.quick import quick

pytestmark = pytest.mark.rtl

EXAMPLE = EXAMPLES / "own_cell.py"


@pytest.mark.parametrize("backend", quick(("golden", "icarus"), "golden"))
def test_a_cell_of_ones_own_runs(backend: str) -> None:
    with logic_for(backend):
        differences = runpy.run_path(str(EXAMPLE))["compare"](backend)
    assert differences["bits"] == 0
    assert 0 < differences["float"] < 0.02
