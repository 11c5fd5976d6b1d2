"""Mutants of the hardware: most are seen, and the hardware as it is passes."""

import re
from pathlib import Path

import pytest
from support import mutation

pytestmark = [pytest.mark.rtl, pytest.mark.tools]


PLACE = r"-module odd -cell $flatten\core.\gate_unit0.\added_multiplier.$mul$rtl/odd.v:8492$3105 -port Y"
LINES = {
    "cnot1 Y[38] of core.window$264.write_data[38]": (
        f"mutate -mode cnot1 {PLACE} -portbit 38 -ctrlbit 63 -wire core.window$264.write_data -wirebit 38"
    ),
    r"inv Y[5] of $flatten\core.\gate_unit0.\added_multiplier.$mul": f"mutate -mode inv {PLACE} -portbit 5",
}
"""Lines of Yosys's, and what is said of them."""


@pytest.mark.parametrize("said", LINES)
def test_mutants_are_named(said: str) -> None:
    assert mutation.where(LINES[said]) == said


@pytest.mark.slow
def test_mutants_are_drawn_and_named() -> None:
    drawn = mutation.draw("odd", 3, seed=1)
    assert len(drawn) == 3 and drawn == mutation.draw("odd", 3, seed=1) != mutation.draw("odd", 3, seed=2)
    for mutant in drawn:
        mode, port, place = mutation.where(mutant).split(" ", 2)
        assert f"-mode {mode} " in mutant and f"-port {port.partition('[')[0]} " in mutant
        assert place.startswith("of ") and "rtl/" not in place


@pytest.mark.slow
def test_what_changes_bits_is_seen(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code = mutation.main(["--workers", "1", "--mutants", "3", "--journal", str(tmp_path / "j"), "odd"])
    said = capsys.readouterr().out
    # The build as it is passes, or the code would be 1.
    assert code == 0 and "1 jobs, 0 of them done before" in said
    found = re.search(r"(\d) of 3 mutants were seen with 1 worker in ", said)
    assert found is not None
    # Which ones are drawn depends on Yosys's version.
    assert said.count("survived: odd") == 3 - int(found[1])
    assert int(found[1]) >= 1
