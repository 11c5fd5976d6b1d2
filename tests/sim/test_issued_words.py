"""The cycles in which words are issued: what the schedule records against the RTL's own signal."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from rtlstm.host.accelerator import Accelerator
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.program.schedule import Issued, step_cycles

STEPS = 8
SIGNALS = {"clk": "clk", "valid": "x__valid", "ready": "x__ready", "issued": "sequencer.admission.issued"}


def ticks(file: Path) -> Iterator[dict[str, int]]:
    """Yield the signals' values just before each rising edge of the clock."""
    scopes: list[str] = []
    names: dict[str, str] = {}
    now = dict.fromkeys(SIGNALS, 0)
    before = dict(now)
    for line in file.read_text().splitlines():
        words = line.split()
        if words[:1] == ["$scope"]:
            scopes.append(words[2])
        elif words[:1] == ["$upscope"]:
            scopes.pop()
        elif words[:1] == ["$var"]:
            # Below the scopes of the bench and the core; of signals with one name, the first.
            path = ".".join([*scopes[2:], words[4]])
            known = [name for name, signal in SIGNALS.items() if signal == path]
            if known and known[0] not in names.values():
                names[words[3]] = known[0]
        elif line[:1] == "#":
            before = dict(now)
        elif line[:1] in ("0", "1") and line[1:] in names:
            name = names[line[1:]]
            now[name] = int(line[0])
            if name == "clk" and now[name]:
                yield before


@pytest.mark.slow
def test_words_are_issued_in_the_cycles_that_are_recorded(pristine: Path, tmp_path: Path):
    manifest = Manifest.load(pristine)
    x = np.random.default_rng(0).normal(size=(STEPS, 1, manifest.program.inputs))
    with Accelerator.open(pristine, backend=f"amaranth:{tmp_path / 'waves.vcd'}") as device:
        device.run(x)
    found = list(ticks(tmp_path / "waves.vcd"))
    first = next(cycle for cycle, at in enumerate(found) if at["valid"] and at["ready"])
    record: list[Issued] = []
    last = step_cycles(manifest.program, manifest.parameters, [0] * STEPS, (), record=record)[-1][1]
    expected = {cycle for one in record for run in one.issues for cycle in range(*run) if cycle <= last}
    measured = {cycle - first for cycle, at in enumerate(found) if at["issued"]}
    assert {cycle for cycle in measured if 0 <= cycle <= last} == expected
    assert len(expected) > 100
