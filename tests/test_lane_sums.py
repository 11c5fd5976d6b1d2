"""Lanes that keep sums of row groups: a layer multiplies what is there of its vector, for all groups."""

from pathlib import Path

import pytest
from support.loadable_builds import NARROW, stacked
from support.random_builds import Case, make_case
from support.step_checks import check_device

from rtlstm.gen.quantise.quantiser import QuantizationSettings, quantise
from rtlstm.spec.parameters import Parameters

pytestmark = pytest.mark.rtl

DIRECT = QuantizationSettings(weight_bits=4, data_bits=6, gate_bits=7, cell_bits=10, tables="direct")
STACK = stacked(11, 10, 9, dense=((17, "relu"), (2, "identity")))
CASES: dict[str, Parameters] = {
    "short pipeline": Parameters(lanes=8, macs=3, lane_sums=8, streams=2),
    "two beats a group": Parameters.for_family(
        "ecp5", 4, tables="direct", lanes=8, macs=2, lut_macs=1, lane_sums=5, streams=3
    ),
    "one beat a group": Parameters.for_family(
        "ecp5", 4, tables="direct", lanes=8, macs=2, gate_units=2, beat_in=2, beat_out=2, lane_sums=8
    ),
    "words of one value": Parameters.for_family("xilinx", lanes=8, macs=1, lane_sums=16, streams=2),
}


def case_of(name: str, steps: int = 8) -> Case:
    settings = DIRECT if CASES[name].tables == "direct" else NARROW
    return make_case(3, quantise(STACK, settings), CASES[name], steps)


@pytest.mark.parametrize("name", CASES)
def test_bits_and_cycles(name: str, tmp_path: Path) -> None:
    case = case_of(name)
    sections = [op.sections for op in case.manifest.program.ops]
    print(sections, case.manifest.cycles)
    assert any(sections)
    check_device(case, tmp_path, "icarus")
