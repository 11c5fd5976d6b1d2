"""``rtlstm generate --fit``: the search finds what trying everything finds, and says what limits it."""

import json

import numpy as np
import pytest
from small_builds import network

from rtlstm.boards.devices import find_device
from rtlstm.boards.estimate import estimate
from rtlstm.gen.fit import CELL_SHARE, FitRequest, _Search, fit_device
from rtlstm.gen.quantise import QuantizationSettings, quantise
from rtlstm.spec.errors import ConfigurationError
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.network import Lstm, Network

FOUR = QuantizationSettings(weight_bits=4, data_bits=4, gate_bits=6, cell_bits=8)
EIGHT = QuantizationSettings(weight_bits=8, data_bits=8)


def fit(device: str, settings: QuantizationSettings = EIGHT, **given: object):
    quantised = quantise(network(), settings)
    request = FitRequest(chosen=find_device(device), **given)
    return quantised, *fit_device("tiny", quantised.shapes, quantised.numerics, request)


@pytest.mark.parametrize("device", ["lfe5u-12f-8", "hx8k", "up5k"])
def test_nothing_tried_is_better(device: str):
    chosen = find_device(device)
    quantised, parameters, found = fit(device, FOUR)
    best = Manifest.create("tiny", quantised.shapes, parameters, quantised.numerics)
    assert estimate(best, chosen) == found.estimate
    assert found.estimate.cells <= CELL_SHARE[chosen.device.architecture] * chosen.device.luts
    assert found.estimate.multipliers <= chosen.device.multipliers
    assert parameters.family == chosen.device.family
    search = _Search("tiny", quantised.shapes, quantised.numerics, FitRequest(chosen=chosen))
    for candidate in search._candidates():
        design = search._design(candidate)
        made = Manifest.create("tiny", quantised.shapes, design.parameters, quantised.numerics)
        # The bound that ends the search holds.
        assert candidate.cycles <= made.cycles.step_latency_cycles
        excess, least = search._excess(design.estimate), search._least(candidate)
        assert not least.resource or excess.resource
        assert excess.resource or design.key >= (found.estimate.step_latency_us, found.estimate.cells)


def test_what_is_given_is_kept():
    _, parameters, _ = fit("lfe5u-12f", lanes=8, macs=3, gate_units=1, lut_macs=2, streams=2)
    assert (parameters.lanes, parameters.macs, parameters.lut_macs, parameters.streams) == (8, 3, 2, 2)
    _, parameters, _ = fit("lfe5u-12f", beat_in=3, beat_out=4)
    assert parameters.macs % 3 == 0 and parameters.beat_out == 4
    _, parameters, found = fit("lfe5u-12f", all_lut=True)
    assert parameters.lut_macs == parameters.macs
    assert found.estimate.multipliers == 8 * parameters.gate_units


def test_large_memory_where_block_ram_is_too_small():
    rows = np.zeros((4 * 64, 64))
    wide = Network(layers=(Lstm(w_ih=rows, w_hh=rows, bias=rows[:, 0]),))
    quantised = quantise(wide, FOUR)
    shapes, chosen = quantised.shapes, find_device("up5k")
    parameters, found = fit_device("wide", shapes, quantised.numerics, FitRequest(chosen=chosen))
    assert parameters.weight_memory == "large" and 0 < found.estimate.large_rams <= 4
    with pytest.raises(ConfigurationError, match="block RAMs"):
        fit_device("wide", shapes, quantised.numerics, FitRequest(chosen=chosen, weight_memory="block"))
    _, parameters, _ = fit("up5k", FOUR)
    assert parameters.weight_memory == "block"


def test_hard_multipliers_first_then_tables():
    _, parameters, found = fit("up5k", FOUR, lanes=4, macs=2)
    assert parameters.lut_macs > 0 and found.estimate.multipliers <= 8
    _, parameters, _ = fit("lfe5u-12f", lanes=4, macs=2)
    assert parameters.lut_macs == 0


def test_nothing_fits():
    with pytest.raises(ConfigurationError, match=r"tiny does not fit up5k, .* logic cells \(of 4,858"):
        fit("up5k", lanes=16, macs=4)
    with pytest.raises(ConfigurationError, match=r"tiny does not fit up5k, .* multipliers \(of 8"):
        fit("up5k", FOUR, lanes=4, macs=2, lut_macs=0)
    with pytest.raises(ConfigurationError, match=r"does not fit up5k, .* block RAMs \(of 30"):
        fit("up5k", QuantizationSettings(weight_bits=8, data_bits=16, gate_bits=18))
    with pytest.raises(ConfigurationError, match="leave out lanes, macs or gate units"):
        fit("lfe5u-12f", gate_units=5, beat_out=5)


def test_command(cli, model, tmp_path):
    folder = tmp_path / "build"
    arguments = ("generate", model, "-o", folder, "--weight-bits", "8", "--data-bits", "8")
    done = cli(*arguments, "--fit", "lfe5u-12f-8", "--json")
    assert done.code == 0, done.err
    report = done.json["report"]
    assert report["family"] == "ecp5" and report["fit"]["device"] == "lfe5u-12f-8"
    assert {found["device"] for found in report["estimates"]} >= {"lfe5u-12f-6", "lfe5u-85f-6"}
    assert Manifest.load(folder).parameters.lanes == report["lanes"]
    page = (folder / "report.html").read_text()
    assert "Sizes chosen for lfe5u-12f-8" in page and "before synthesis" in page
    again = cli(*arguments, "--fit", "lfe5u-12f-8", "--lanes", "8", "--multipliers", "auto")
    assert again.code == 0, again.err
    assert (
        "8 lanes" in again.out and "limited by what was given (lanes): without it, more may fit" in again.out
    )
    assert json.loads((folder / "report.json").read_text())["fit"]["tried"] >= 1


def test_estimates_without_a_device(cli, model, tmp_path):
    done = cli("generate", model, "-o", tmp_path / "b", "--family", "ice40", "--macs", "2")
    assert done.code == 0, done.err
    assert "up5k" in done.out and "hx8k" in done.out
    done = cli("generate", model, "-o", tmp_path / "c", "--macs", "2", "--json")
    assert done.json["report"]["estimates"] == [] and done.json["report"]["fit"] is None


def test_wrong_options_are_refused(cli, model, tmp_path):
    run = ("generate", model, "-o", tmp_path / "b")
    cli(*run, "--fit", "up5k", "--family", "ice40").refused("leave out --family")
    cli(*run, "--fit", "up5").refused("near names: up5k")
    cli(*run, "--fit", "xc7a35t").refused("--fit needs estimates", "ecp5 and ice40", "not for xc7a35t")
    cli(*run, "--fit", "up5k", "--lanes", "6").refused("multiple of 4", "try 8")
    cli(*run, "--fit", "up5k", "--multipliers", "some").refused("must be dsp, lut, auto or a number")
    cli(*run, "--multipliers", "auto").refused("needs --fit DEVICE")
    cli(*run, "--fit", "up5k", "--lanes", "64", "--macs", "8").refused("does not fit up5k", "logic cells")
    assert not (tmp_path / "b").exists()


def test_implement_refuses_before_synthesis(cli, model, tmp_path):
    folder = tmp_path / "b"
    assert cli("generate", model, "-o", folder, "--family", "ice40", "--macs", "4").code == 0
    refused = cli("implement", folder, "--device", "up5k")
    refused.refused("does not fit up5k: by its estimate", "24 multipliers (it has 8)")
    assert not (folder / "impl").exists()
