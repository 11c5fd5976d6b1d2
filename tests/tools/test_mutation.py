"""Mutants of the hardware: most are seen, and the hardware as it is passes."""

import re
from pathlib import Path

import pytest
from support import mutation

pytestmark = [pytest.mark.rtl, pytest.mark.tools]


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
