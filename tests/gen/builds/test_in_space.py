"""Estimates of spatial builds, and their choice for a device."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.lazy import torch
from support.quick import quick

import rtlstm
from rtlstm.bench.shapes import Shape
from rtlstm.fpga.devices import find_device
from rtlstm.fpga.estimate import Estimate, estimate
from rtlstm.fpga.families.base import fpga_family
from rtlstm.fpga.families.estimates import RoutedInSpace
from rtlstm.gen.builds.hardware import SPATIAL, ArrayRequest, in_space
from rtlstm.gen.quantise.quantiser import QuantizationSettings, quantise
from rtlstm.spec.errors import ConfigurationError

pytestmark = pytest.mark.usefixtures("without_verilog")

ROUTED = [
    each
    for name in ("ecp5", "nexus", "ice40")
    for each in fpga_family(name).need_estimates().spatial_clocks.routed
]
GIVEN = {"weight_bits": 4, "data_bits": 6, "gate_bits": 6}
X = np.random.default_rng(1).normal(size=(9, 2, 3))


def lstm(units: int = 4) -> Any:
    torch.manual_seed(0)
    return torch.nn.LSTM(3, units)


def estimate_in_space(routed: RoutedInSpace) -> Estimate:
    dense = (routed.dense,) if routed.dense else ()
    sizes = {"inputs": routed.inputs, "units": (routed.units,), "dense": dense}
    shape = Shape(name="routed", origin="", steps=1, family="ecp5", **sizes)
    bits = {"weight_bits": 4, "data_bits": 8, "gate_bits": 8, "cell_bits": 12}
    settings = QuantizationSettings(**bits, tables="direct", hidden_rounding="odd")
    asked = {"loop_registers": routed.loop_registers, "streams": routed.streams, "tables": "direct"}
    asked |= {"table_memory": "rom"} if routed.table_memory == "rom" else {}
    chosen = find_device(routed.device)
    request = ArrayRequest(array="spatial", family=chosen.device.family, **asked)
    manifest = in_space("routed", quantise(shape.network(), settings, hardware=SPATIAL), request)
    found = estimate(manifest, chosen)
    assert found is not None
    return found


@pytest.mark.parametrize("number", quick(range(len(ROUTED)), 3, len(ROUTED) - 3, len(ROUTED) - 1))
def test_estimates_are_near_what_was_routed(number: int) -> None:
    """Weights are others than those that were routed, of the same bits."""
    routed = ROUTED[number]
    found = estimate_in_space(routed)
    assert found.fits and found.loop_registers == routed.loop_registers
    small = routed.device == "up5k"
    # Products of up to 9 bits take half a block of Nexus, unless a register stands at a factor.
    nexus = {1: 8, 3: 10}[routed.loop_registers] if routed.device.startswith("lifcl") else None
    assert found.multipliers == (0 if small else nexus or 3 * routed.units)
    assert found.block_rams == (4 * routed.units if routed.table_memory == "ram" else 0) + 2 * small
    assert found.fmax_mhz == pytest.approx(routed.mhz, rel=0.15)
    assert 0.75 * routed.luts < found.luts < 1.1 * routed.luts


@pytest.mark.parametrize(
    ("device", "luts", "multipliers", "block_rams"),
    [
        ("lifcl-40", 3_003, 10, 16),
        ("gw2ar-18", 2_734, 8, 16),
        # Products without a register are made of LUTs.
        ("up5k", 4_580, 0, 18),
    ],
)
def test_estimates_of_other_families_are_near_what_was_synthesised(
    device: str, luts: int, multipliers: int, block_rams: int, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    given = {"weight_bits": 4, "data_bits": 6, "gate_bits": 8, "array": "spatial", "quick": True}
    x, chosen = np.random.default_rng(1).normal(size=(9, 2, 2)), find_device(device)
    asked = given | {"family": chosen.device.family, "loop_registers": 3}
    build = rtlstm.compile(torch.nn.LSTM(2, 4), folder=tmp_path / "build", calibration=x, **asked)
    found = estimate(build.manifest, chosen)
    assert found is not None and found.device in [each.device for each in build.report().estimates]
    assert (found.multipliers, found.block_rams) == (multipliers, block_rams)
    assert found.luts == pytest.approx(luts, rel=0.1)
    # nextpnr had 53 logic cells too few of an UP5K.
    assert found.fits == (device != "up5k") and (found.fmax_mhz is None) == (device == "gw2ar-18")
    if not found.fits:
        with pytest.raises(ConfigurationError, match="is fuller than any spatial build known"):
            build.implement(device)


def test_a_device_gets_the_registers_with_the_shortest_step(tmp_path: Path) -> None:
    given = {"array": "spatial", "calibration": X, "quick": True} | GIVEN
    build = rtlstm.compile(lstm(), folder=tmp_path / "build", fit="lfe5u-25f-8", **given)
    report = build.report()
    assert report.fit is not None and report.fit.estimate.loop_registers == report.spatial.loop_registers == 1
    assert report.fit.tried == 9 and "limited by the network" in report.fit.limit_text
    assert report.estimates[0].device == "lfe5u-25f-8" and len(report.estimates) > 1
    assert "the next step can follow every cycle, " in report.verdict
    with build.open("golden") as core:
        np.testing.assert_array_equal(core.run(X)[0], build.run(X)[0])
    # With several streams, the steps of all count.
    several = rtlstm.compile(lstm(), folder=tmp_path / "several", fit="lfe5u-25f-8", streams=9, **given)
    assert several.report().spatial.loop_registers == 9
    few = {"loop_registers": 3, "table_memory": "rom"}
    stated = rtlstm.compile(lstm(), folder=tmp_path / "stated", fit="lfe5u-25f-8", **given, **few)
    assert stated.report().fit.limit_text == (
        "limited by the sizes that were given (loop registers, table memory)"
    )


def test_other_widths_of_a_spatial_build_for_a_device_are_spatial(tmp_path: Path) -> None:
    given = {"array": "spatial", "calibration": X, "quick": True, "fit": "lfe5u-25f-8"} | GIVEN
    build = rtlstm.compile(lstm(), folder=tmp_path / "build", **given)
    found = build.accuracy(X[:, :1], model=lstm(), calibration=X)
    costs = [each.cost for each in found.widths if each.cost is not None]
    # An array would take some twenty cycles.
    assert costs and all(cost.step_latency_cycles <= 10 for cost in costs)


def test_four_units_are_fitted_to_an_up5k(tmp_path: Path) -> None:
    given = {"array": "spatial", "fit": "up5k", "calibration": X, "quick": True} | GIVEN
    build = rtlstm.compile(lstm(), folder=tmp_path / "build", **given)
    found = build.report().fit.estimate
    assert found == estimate(build.manifest, find_device("up5k")) and found.multipliers <= 8
    with pytest.raises(ConfigurationError, match=r"not fit up5k, in space: the nearest takes [\d,]+ logic"):
        rtlstm.compile(lstm(8), folder=tmp_path / "large", **given)


def test_a_nexus_device_gets_registers(tmp_path: Path) -> None:
    given = {"array": "spatial", "fit": "lifcl-40-9", "calibration": X, "quick": True} | GIVEN
    build = rtlstm.compile(lstm(), folder=tmp_path / "build", **given)
    found = build.report().fit.estimate
    assert found == estimate(build.manifest, find_device("lifcl-40-9"))
    assert found.loop_registers == build.report().spatial.loop_registers and 10 < found.fmax_mhz < 232
    # The slower grade is in proportion to arrays.
    slower = estimate(build.manifest, find_device("lifcl-40-7"))
    assert slower is not None and slower.fmax_mhz == pytest.approx(found.fmax_mhz * 193 / 232, rel=0.01)
    with pytest.raises(
        ConfigurationError, match=r"not fit lifcl-40, in space: the nearest takes [\d,]+ logic"
    ):
        rtlstm.compile(lstm(20), folder=tmp_path / "large", **given | {"weight_bits": 8})


def test_a_device_without_clocks_in_space_takes_builds_of_its_family(tmp_path: Path) -> None:
    given = {"calibration": X, "quick": True, "folder": tmp_path / "build"} | GIVEN
    no_clocks = (
        "no clocks of spatial builds for gw2ar-18, because nextpnr knows no delays of its DSP blocks: le"
    )
    with pytest.raises(ConfigurationError, match=no_clocks):
        rtlstm.compile(lstm(), **given, array="spatial", fit="gw2ar-18")
    # Nor with other bits, so those are not asked for first.
    with pytest.raises(ConfigurationError, match=no_clocks):
        rtlstm.compile(lstm(), **given | {"data_bits": 16}, array="spatial", fit="gw2ar-18")
    # Two ways out.
    rtlstm.compile(lstm(), **given, array="spatial", family="gowin")
    rtlstm.compile(lstm(), **given | {"folder": tmp_path / "array"}, fit="gw2ar-18")


def test_what_fits_no_device_is_said_with_what_was_needed(tmp_path: Path) -> None:
    def compile(units: int, **more: object) -> Any:
        given = {"calibration": X[:, :, :3], "fit": "lfe5u-25f-8", "quick": True} | GIVEN | more
        return rtlstm.compile(lstm(units), folder=tmp_path / "build", **given)

    with pytest.raises(ConfigurationError, match="not fit lfe5u-25f, in space: the nearest takes 30 mul"):
        compile(10, array="spatial")
    # Two ways out.
    compile(10)
    compile(10, array="spatial", fit="lfe5u-45f-8")
    with pytest.raises(ConfigurationError, match=r"63 block RAMs \(of 56\); give fewer .* and `gate_bits`"):
        compile(9, array="spatial", weight_bits=8, data_bits=8, gate_bits=10)
    compile(9, array="spatial", weight_bits=8, data_bits=8, gate_bits=8)
    with pytest.raises(ConfigurationError, match=r"\(of 30\); give fewer `weight_bits`, or `data_bits` and"):
        compile(4, array="spatial", fit="up5k", weight_bits=4, data_bits=12, gate_bits=12)
    compile(4, array="spatial", fit="up5k", weight_bits=3, data_bits=6, gate_bits=6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fit": "lfe5u-25f-8", "fit_anyway": True}, "takes no `fit_anyway`: leave it out"),
        ({"fit": "lfe5u-25f-8", "lanes": 4}, "an array in time takes `lanes`, not"),
        ({"fit": "lfe5u-25f-8", "array": "shared", "loop_registers": 3}, "is for spatial builds: give"),
    ],
)
def test_options_that_a_device_in_space_does_not_take_are_refused(
    options: dict[str, object], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        rtlstm.compile(
            lstm(), folder=tmp_path / "build", calibration=X, **{"array": "spatial"} | GIVEN | options
        )


def test_an_array_for_a_device_says_what_a_spatial_build_would_take(tmp_path: Path) -> None:
    given = {"calibration": X, "fit": "lfe5u-25f-8", "quick": True} | GIVEN
    build = rtlstm.compile(lstm(), folder=tmp_path / "build", **given)
    (note,) = [each for each in build.report().notes if "in space" in each]
    assert "steps would follow each other in an estimated " in note and "none are loaded later" in note
    other = rtlstm.compile(lstm(), folder=tmp_path / "other", **given | {"fit": "gw2ar-18"})
    assert not any("in space" in each for each in other.report().notes)
