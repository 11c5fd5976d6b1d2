"""Lanes of two kinds, with and without multipliers that two lanes share: bits, cycles, netlist, estimate."""

import json
from pathlib import Path

import pytest
from support.estimate_checks import check_synthesis
from support.quick import quick
from support.random_builds import Case, make_case
from support.small_builds import network
from support.step_checks import check_device, check_netlist

from rtlstm.gen.quantise.quantiser import QuantizationSettings, quantise
from rtlstm.hdl.emit.verilog import core_to_verilog
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.parameters import Parameters

ALONE, PAIRED = 8, 4
"""Bits of weights: lanes have DSP blocks of their own, or two lanes share each."""
SIZES: dict[str, tuple[int, dict[str, int]]] = {
    # The first block of eight lanes is of both kinds. Some lanes have no multiplier of LUTs.
    "alone": (ALONE, {"lanes": 16, "macs": 2, "gate_units": 2, "beat_out": 2, "lut_lanes": 11}),
    # Some lanes have no DSP block.
    "alone, all in LUTs": (ALONE, {"lanes": 8, "macs": 3, "lut_macs": 2, "lut_lanes": 3}),
    "pairs": (PAIRED, {"lanes": 8, "macs": 3, "lut_macs": 1, "lut_lanes": 2}),
    "pairs, all in LUTs": (PAIRED, {"lanes": 8, "macs": 2, "lut_macs": 1, "lut_lanes": 6}),
}


def make(name: str, steps: int = 6) -> Case:
    bits, sizes = SIZES[name]
    settings = QuantizationSettings(weight_bits=bits, data_bits=8, gate_bits=8, cell_bits=12)
    parameters = Parameters.for_family("ecp5", bits, streams=2, **sizes)
    return make_case(1, quantise(network(), settings), parameters, steps)


@pytest.mark.rtl
@pytest.mark.parametrize(
    ("name", "backend"),
    quick(
        zip(SIZES, ("verilator", "icarus", "verilator", "icarus"), strict=True),
        ("pairs, all in LUTs", "icarus"),
    ),
)
def test_bits_and_cycles(name: str, backend: str, tmp_path: Path) -> None:
    case = make(name)
    assert case.manifest.paired_lanes == name.startswith("pairs")
    check_device(case, tmp_path, backend)


@pytest.mark.slow
@pytest.mark.rtl
@pytest.mark.tools
@pytest.mark.parametrize("name", ["alone", "pairs"])
def test_netlist_equals_golden(name: str, tmp_path: Path) -> None:
    check_netlist(make(name, steps=4), tmp_path)


@pytest.mark.slow
@pytest.mark.tools
@pytest.mark.parametrize("name", ["alone", "pairs"])
def test_estimate_against_synthesis(name: str, tmp_path: Path) -> None:
    check_synthesis(make(name).manifest, "lfe5u-25f", tmp_path)


@pytest.mark.slow
def test_each_kind_is_a_module() -> None:
    """The two blocks of four LUT lanes are one module, too."""
    text = core_to_verilog(make("alone").manifest)
    assert text.count("\nmodule random1_lane(") == text.count("\nmodule random1_lut_lane(") == 1
    assert [text.count(f"  random1_{kind} ") for kind in ("lane", "lut_lane")] == [5, 7]


def test_manifest(tmp_path: Path) -> None:
    with_them = make("alone").manifest
    for manifest in (
        with_them,
        Manifest.create(
            "plain", with_them.layers, with_them.parameters.replace(lut_lanes=0), with_them.numerics
        ),
    ):
        (tmp_path / "manifest.json").write_text(manifest.to_json())
        assert Manifest.load(tmp_path) == manifest
        said = json.loads(manifest.to_json())["parameters"]
        assert said["lut_lanes"] == manifest.parameters.lut_lanes
