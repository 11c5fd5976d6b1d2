"""The core meets every rare case that a build has, and answers as golden device and second model do.

Ties, limits and values one unit beyond them; states written, streams reset and weights loaded between steps;
outputs that nobody takes for several steps. The second model counts what was met, over what the core was
given; a case that was not met fails the test. The tables are printed when all tests are done.
"""

from collections.abc import Callable
from pathlib import Path

import pytest
from support.quick import quick
from support.rare_cases import BUILDS, MARCH, play, rare_build, write_script

from rtlstm.host import Accelerator

pytestmark = pytest.mark.rtl


def met_by(name: str, simulator: str, folder: Path, short: bool = False) -> dict[str, int]:
    """Play a build's script; return how often each case was met."""
    march = 0 if short or simulator == "icarus" else MARCH
    script = write_script(rare_build(name), folder, short, march)
    with Accelerator.open(folder, simulator, verify=False) as core:
        met = play(script, core)
    # What a GRU keeps is between the old value and the candidate.
    assert script.acts[-1].shown["CELL_SATURATIONS"] > 0 or name == "space_gru"
    return met


# Icarus takes a hundred times as long, for the weights that are loaded.
CASES = [(name, simulator) for name in BUILDS for simulator in ("verilator", "icarus")]


@pytest.mark.parametrize(("name", "simulator"), quick(CASES, ("odd", "verilator")))
def test_every_rare_case_is_met(
    name: str, simulator: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    met = met_by(name, simulator, tmp_path)
    record_property("rare cases", (name, met))
    assert not [case for case, count in met.items() if not count]


@pytest.mark.parametrize("name", [name for name in BUILDS if name != "odd"])
def test_a_short_script(name: str, tmp_path: Path) -> None:
    """Each other build meets most cases in a second; solving for the others takes longer."""
    met = met_by(name, "verilator", tmp_path, short=True)
    assert sum(map(bool, met.values())) > 0.6 * len(met)
