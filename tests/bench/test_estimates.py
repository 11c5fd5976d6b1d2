"""The benchmark of the estimates: its cases, its fit and its command, without synthesis."""

import json

import pytest
from support.clock_fit import fit_clocks

import rtlstm.bench.estimates as module
from rtlstm.bench.estimates import CASES, EstimateResult, factors_in_use, fit_factors
from rtlstm.bench.shapes import SHAPES
from rtlstm.cli.main import main
from rtlstm.fpga.devices import find_device
from rtlstm.fpga.estimate import estimate, parts_of
from rtlstm.fpga.families.base import estimated_families, fpga_family
from rtlstm.fpga.families.estimates import RoutedDesign


def result(case, scale: float = 1.0, **changes: object) -> EstimateResult:
    """What a case would measure if each part but those that count one to one took ``scale`` times as much."""
    made, chosen = case.manifest(), find_device(case.device)
    family = fpga_family(chosen.device.family).need_estimates()
    found = estimate(made, chosen)
    parts, registers, _ = parts_of(made, family, chosen.device.multipliers > 0)
    factors = family if made.spatial is None else family.spatial
    luts = sum(size * factors.luts.get(name, 1 / scale) * scale for name, size in parts.items())
    ffs = sum(size * factors.ffs.get(name, 1 / scale) * scale for name, size in registers.items())
    fields = {
        "name": case.name,
        "device": chosen.device.name,
        "lanes": made.parameters.lanes,
        "macs": made.parameters.macs,
        "spatial": made.spatial is not None,
        "luts": round(luts),
        "estimated_luts": found.luts,
        "lut_error": 0.0,
        "ffs": round(ffs),
        "estimated_ffs": found.ffs,
        "ff_error": 0.0,
        "multipliers": found.multipliers,
        "estimated_multipliers": found.multipliers,
        "block_rams": found.block_rams,
        "estimated_block_rams": found.block_rams,
        "parts": parts,
        "registers": registers,
    }
    return EstimateResult(**(fields | changes))


QUICK = [case for case in CASES if case.quick]


def test_cases():
    assert len({case.name for case in CASES}) == len(CASES)
    assert {find_device(case.device).device.family for case in QUICK} == set(estimated_families())
    assert {case.shape for case in CASES} <= SHAPES.keys()


ICE40_FLIP_FLOPS = {
    "up5k_small": 2_060,
    "up5k_16_bits": 2_544,
    "up5k_tables": 3_451,
    "up5k_slopes": 2_798,
    "up5k_rom": 2_319,
    "up5k_board": 1_699,
    "up5k_outputs": 1_959,
    "up5k_narrow": 1_758,
    "up5k_gru": 2_568,
    "hx8k_gru": 2_362,
    "hx8k_small": 2_430,
    "hx8k_lanes": 3_953,
}
"""Of the cases in front of the mapping of LUTs, as Yosys counted them; some ten fewer are left behind it."""


@pytest.mark.parametrize("name", ICE40_FLIP_FLOPS)
def test_flip_flops_of_ice40_are_what_was_synthesised(name):
    case = next(case for case in CASES if case.name == name)
    found = estimate(case.manifest(), find_device(case.device))
    assert found is not None and found.ffs == pytest.approx(ICE40_FLIP_FLOPS[name], rel=0.03)


def test_fit_keeps_what_agrees_and_follows_what_does_not():
    same = fit_factors([result(case) for case in QUICK])
    assert same.keys() == factors_in_use().keys()
    for name, now in factors_in_use().items():
        assert same[name]["luts"] == pytest.approx(now["luts"], rel=0.02)
        assert same[name]["ffs"] == pytest.approx(now["ffs"], rel=0.02)
    more = [result(case, 1.2) for case in QUICK]
    fitted = fit_factors(more)
    for row in more:
        ffs = fitted[find_device(row.device).device.family + ", in space" * row.spatial]["ffs"]
        now = sum(size * ffs.get(name, 1.0) for name, size in row.registers.items())
        assert now == pytest.approx(row.ffs, rel=0.02)
    assert fit_factors(more[:1]).keys() == {"ecp5"}


def test_clocks_are_fitted_to_routed_designs():
    now = fpga_family("ecp5").need_estimates()

    def routed(device: str, share: float, factor: float, direct: bool) -> RoutedDesign:
        model = now.clock(device.rpartition("-")[0]).replace(filled=0.3, direct_tables=0.2)
        mhz = factor * model.mhz("8", share / 100, 20, direct_tables=direct)
        return RoutedDesign(device, "drawn", share, None, mhz, 20, direct)

    drawn = [
        routed(device, share, factor, share in (30, 90))
        for device, factor in (("lfe5u-25f-8", 0.9), ("lfe5u-85f-8", 1.1))
        for share in (10, 30, 50, 70, 90)
    ]
    wanted = {"lfe5u-25f": 0.9, "lfe5u-85f": 1.1, "filled": 0.3, "direct_tables": 0.2}
    assert fit_clocks(now, drawn) == pytest.approx(wanted, abs=0.02)
    # Designs of one kind do not tell what the other loses.
    alike = [each for each in drawn if not each.direct]
    assert fit_clocks(now, alike)["direct_tables"] == now.clocks[""].direct_tables
    unknown = [each._replace(sum_bits=None) for each in drawn] + [drawn[0]._replace(mhz=None)]
    assert fit_clocks(now, unknown) == {}
    # iCE40's clocks are those of its devices.
    assert fit_clocks(fpga_family("ice40").need_estimates(), drawn) == {}


@pytest.mark.slow
def test_clocks_in_use_are_those_that_fit():
    now = fpga_family("ecp5").need_estimates()
    found = fit_clocks(now, now.routed)
    for loss in ("filled", "direct_tables"):
        assert found.pop(loss) == pytest.approx(getattr(now.clocks[""], loss), abs=0.03)
    assert set(found) == {"lfe5u-25f", "lfe5u-85f"}
    assert all(factor == pytest.approx(1, abs=0.02) for factor in found.values())


def test_command(monkeypatch, capfd, tmp_path):
    rows = [result(case) for case in QUICK]
    monkeypatch.setattr(module, "measure_estimates", lambda quick, progress: iter(rows))
    save = tmp_path / "estimates.json"

    def run(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main(["bench", *arguments])
        captured = capfd.readouterr()
        return int(ended.value.code or 0), captured.out, captured.err

    code, out, _ = run("--estimates", "--quick", "--save", str(save))
    assert code == 0
    assert "ecp5_small" in out and "fitted to these builds" in out
    assert len(json.loads(save.read_text())["estimates"]) == len(rows)
    rows[0] = result(QUICK[0], multipliers=1)
    code, out, _ = run("--estimates", "--quick")
    assert code == 1 and "FAILED" in out and "1, not " in out
    code, _, err = run("--estimates", "stac_a")
    assert code == 2 and "leave out the networks" in err
