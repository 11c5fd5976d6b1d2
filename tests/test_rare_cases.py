"""The core meets every rare case that a build has, and answers as golden device and second model do.

Ties, limits and values one unit beyond them; states written, streams reset and weights loaded between steps;
outputs that nobody takes for several steps. The second model counts what was met, over what the core was
given; a case that was not met fails the test. The tables are printed when all tests are done.
"""

from collections.abc import Callable
from pathlib import Path

import pytest
from support.quick import quick
from support.rare_cases import BUILDS, play, write_script

from rtlstm.host import Accelerator

pytestmark = pytest.mark.rtl


@pytest.mark.parametrize("name", quick(BUILDS, "odd"))
def test_every_rare_case_is_met(
    name: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    script = write_script(BUILDS[name], tmp_path)
    with Accelerator.open(tmp_path, "icarus", verify=False) as core:
        met = play(script, core)
    record_property("rare cases", (name, met))
    assert script.acts[-1].shown["CELL_SATURATIONS"] > 0
    assert not [case for case, count in met.items() if not count]
