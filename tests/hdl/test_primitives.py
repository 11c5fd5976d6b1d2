"""Every family's primitives do what the portable ones do, in every cycle, and so do their netlists."""

import re
from pathlib import Path

import pytest
from primitive_bench import Memory, Multiplier, Primitive, bench, duts, reference, run

from rtlstm.hdl.verilog import primitives
from rtlstm.sim.sources import SIMULATION, cell_models

MEMORIES: dict[str, list[Memory]] = {
    "ecp5": [
        Memory(36, 512, style="block"),
        Memory(36, 512, outreg=1, style="block"),
        Memory(70, 300, outreg=1),
        Memory(32, 512, granules=4, outreg=1),
        Memory(36, 100, granules=4),
        Memory(18, 1024, outreg=1),
        Memory(18, 1024, granules=2, outreg=1, style="block"),
        Memory(24, 700, granules=3),
        Memory(9, 2048, outreg=1),
        Memory(4, 4096),
        Memory(4, 3000, outreg=1),
        Memory(2, 8192, outreg=1),
        Memory(1, 16384, outreg=1),
        Memory(8, 70, granules=2, outreg=1),
        Memory(72, 1500, granules=2, outreg=1),
        Memory(13, 20000, outreg=1),
        Memory(5, 20000),
        Memory(20, 40, outreg=1),
        Memory(20, 40, granules=2, style="distributed"),
        Memory(3, 2, style="block"),
        Memory(40, 100, outreg=1, style="huge"),
        Memory(1, 1),
    ],
}
CYCLES = 2000
SIZES = [(2, 2), (2, 9), (4, 8), (8, 8), (9, 14), (8, 16), (18, 18), (18, 4), (16, 16), (20, 12)]
MULTIPLIERS = [
    Multiplier(a, b, stages, kind) for a, b in SIZES for stages in (1, 2, 3) for kind in ("dsp", "lut")
]


def check(
    items: list[Primitive], device: list[str], simulator: str, folder: Path, macro: bool = False
) -> None:
    texts = [reference(items), *device, bench(items, CYCLES)]
    printed = run(texts, simulator, folder, [SIMULATION] if macro else [])
    found = re.search(r"passed (\d+)", printed)
    assert found, printed
    # Most reads are of words that were written before.
    assert int(found[1]) > CYCLES * len(items) // 2


@pytest.mark.parametrize("simulator", ["icarus", "verilator"])
@pytest.mark.parametrize("family", MEMORIES)
@pytest.mark.parametrize("macro", [False, True], ids=["cells", "described"])
def test_family_equals_portable(family: str, macro: bool, simulator: str, tmp_path: Path) -> None:
    items: list[Primitive] = [*MEMORIES[family], *MULTIPLIERS]
    device = [primitives(family), duts("device", items)]
    device += [] if macro else [path.read_text() for path in cell_models(family)]
    check(items, device, simulator, tmp_path, macro)
