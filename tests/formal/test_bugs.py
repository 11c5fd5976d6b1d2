"""The bugs that the proofs must find fit the hardware as it is, those of slow tests, too."""

from importlib import import_module
from pathlib import Path

import pytest

import rtlstm.hdl.core

HERE = Path(__file__).parent
HDL = Path(rtlstm.hdl.core.__path__[0]).parent
PROOFS = sorted(path.stem for path in HERE.glob("test_*.py") if "\nBUGS = {" in path.read_text())


@pytest.mark.parametrize("name", PROOFS)
def test_each_is_about_one_place(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(HERE)
    sources = [path.read_text() for path in HDL.rglob("*.py")]
    for bug, (*_, right, wrong) in import_module(name).BUGS.items():
        assert right != wrong
        assert any(source.count(right) == 1 for source in sources), f"{bug}: no module has {right!r} once"


def test_there_are_proofs() -> None:
    assert len(PROOFS) >= 16
