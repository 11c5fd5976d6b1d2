"""Parts that are equal are instances of one Verilog module."""

import re

import pytest
from amaranth.hdl import Const, Fragment
from support.small_builds import NARROW, network

from rtlstm.gen.quantise.quantiser import quantise
from rtlstm.hdl.core.preactivation import Preactivation
from rtlstm.hdl.emit.verilog import core_to_verilog
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.parameters import Parameters


def manifest(**sizes: int) -> Manifest:
    return Manifest.of("equal", quantise(network(), NARROW), Parameters(macs=4, **sizes))


def test_equal_parts_have_one_module() -> None:
    text = core_to_verilog(manifest(lanes=16, gate_units=4, beat_out=4, lut_macs=1, lut_lanes=3))
    parts = "lane|lut_lane|lanes|lanes_1|gate_unit|preactivation"
    defined = re.findall(rf"^module (equal_(?:{parts}))\b", text, re.MULTILINE)
    assert len(defined) == len(set(defined))
    numbers = {name: len(re.findall(rf"^  {name} \w+ \(", text, re.MULTILINE)) for name in defined}
    # Four lanes of one kind, which are three times in the array; and one lane with three of the other kind.
    lanes = {"equal_lane": 5, "equal_lut_lane": 3, "equal_lanes": 3, "equal_lanes_1": 1}
    assert numbers == {**lanes, "equal_gate_unit": 4, "equal_preactivation": 4}


def test_values_are_as_wide_as_inputs() -> None:
    part = Preactivation(manifest(lanes=8)).definition()
    part.connect({"window": Const(1, 1)})
    with pytest.raises(AssertionError, match="window of equal_preactivation is as wide as its value"):
        part.connect({"window": Const(1, 2)})
    Fragment.get(part, None)
