"""Bars of a device's resources: whose they are, and that they are to scale."""

from pathlib import Path

import pytest
from support.implementations import ESTIMATE, implementation
from support.pictures import bars, check_texts
from support.small_builds import NARROW, network

from rtlstm.fpga.estimate import Estimate, estimate_devices
from rtlstm.gen.pictures.charts import draw_use, expected_use, measured_uses
from rtlstm.gen.quantise.quantiser import quantise
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.parameters import Parameters

pytestmark = pytest.mark.usefixtures("drawn")


@pytest.fixture(scope="module")
def manifest() -> Manifest:
    quantised = quantise(network(), NARROW)
    return Manifest.of("m", quantised, Parameters.for_family("ecp5", lanes=16, macs=4))


@pytest.fixture(scope="module")
def estimates(manifest: Manifest) -> tuple[Estimate, ...]:
    return estimate_devices(manifest)


def test_smallest_device_that_fits(estimates: tuple[Estimate, ...]):
    found = expected_use(estimates)
    assert found is not None
    # 64 products and a gate unit's: more than the 28 of an LFE5U-25F.
    assert found.device == "lfe5u-45f-6" and "does not fit" not in found.about
    resources = {use.name: (use.used, use.available) for use in found.resources}
    chosen = next(one for one in estimates if one.device == found.device)
    assert resources["multipliers"] == (chosen.multipliers, 72)
    assert resources["LUTs"] == (chosen.luts, 43848)
    assert resources["tiles for carry chains"][0] == chosen.chain_tiles
    assert f"{chosen.step_latency_us:.5g} \u00b5s" in found.about


def test_chosen_device_comes_first_and_none_is_none(estimates: tuple[Estimate, ...]):
    found = expected_use(estimates, ESTIMATE.replace(board="ulx3s-25f", wrapper_block_rams=3))
    assert found is not None and found.device == "lfe5u-25f-6" and "link of ulx3s-25f" in found.about
    assert next(use.used for use in found.resources if use.name == "block RAMs") == 2 + 3
    assert expected_use(()) is None
    small = expected_use([one for one in estimates if "25f" in one.device])
    assert small is not None and small.about.endswith("it does not fit")


def test_routed_designs_come_first_the_fastest_first(manifest: Manifest, tmp_path: Path):
    (tmp_path / "manifest.json").write_text(manifest.to_json())
    runs = [implementation(tmp_path), implementation(tmp_path, 100), implementation(tmp_path, 150)]
    times = [use.about for use in measured_uses(runs)]
    assert "at 150 MHz" in times[0] and "at 100 MHz" in times[1] and times[2] == "synthesised"
    assert f"{runs[2].step_latency_us:.5g} \u00b5s" in times[0]


def test_bars_are_to_scale(estimates: tuple[Estimate, ...]):
    small = expected_use([one for one in estimates if "25f" in one.device])
    assert small is not None
    picture = draw_use(small)
    check_texts(picture)
    drawn = bars(picture)
    wholes = [bar for bar in drawn if bar.fill == "line"]
    shares = [bar for bar in drawn if bar.fill != "line"]
    for use, whole, bar in zip(small.resources, wholes, shares, strict=True):
        assert (bar.left, bar.top, bar.height) == (whole.left, whole.top, whole.height)
        assert bar.width == pytest.approx(whole.width * min(1, use.used / use.available), abs=0.06)
        assert bar.fill == ("array" if use.used <= use.available else "overhead")
        assert bar.title.startswith(use.name)
    assert {bar.fill for bar in shares} == {"array", "overhead"}
