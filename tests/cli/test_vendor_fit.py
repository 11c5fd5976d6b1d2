"""``--fit`` on devices of AMD: exact blocks, and a clock that the user assumes and everything says so."""

import json
import re

import numpy as np
import pytest
from safetensors.numpy import save_file
from support.example_file import load_example
from support.small_builds import INPUTS, network

from rtlstm.bench.shapes import SHAPES
from rtlstm.fpga.core_parts import multiplier_luts
from rtlstm.fpga.devices import find_device
from rtlstm.fpga.estimate import check_estimate, demands, estimate
from rtlstm.fpga.families.base import fpga_family
from rtlstm.fpga.fit import FitRequest, NothingFitsError, fit_device
from rtlstm.gen.builds.hardware import ArrayRequest
from rtlstm.gen.quantise.quantiser import QuantizationSettings, quantise
from rtlstm.spec.errors import ConfigurationError
from rtlstm.spec.inventory import MemorySpec
from rtlstm.spec.manifest import Manifest

EIGHT = QuantizationSettings(weight_bits=8, data_bits=8)


@pytest.fixture(scope="module")
def vollo():
    return rounded(8)


def rounded(weight_bits: int):
    """The network of ``examples/vollo_lstm.py``."""
    settings = QuantizationSettings(weight_bits=weight_bits, data_bits=8, quick=True)
    return quantise(SHAPES["vollo_ex3"].network(), settings)


def fit(quantised, device: str, clock_mhz: float | None, **given: object):
    request = FitRequest(chosen=find_device(device), clock_mhz=clock_mhz, **given)
    parameters, found = fit_device("net", quantised.shapes, quantised.numerics, request)
    return parameters, found, Manifest.of("net", quantised, parameters)


def test_the_example_that_is_too_large_for_ecp5_gets_its_array(vollo):
    """LSTM 128 -> 256 twice, dense 16, 8 bits: its weights alone exceed an LFE5U-85F at 4 bits."""
    with pytest.raises(NothingFitsError, match="block RAMs"):
        fit(rounded(4), "lfe5u-85f-8", None)
    parameters, found, made = fit(vollo, "xcku5p", 300)
    assert made.outputs == 16 and parameters.family == "ultrascale"
    use, device = found.estimate, find_device("xcku5p").device
    assert use.fits and all(each.used <= each.most < each.there for each in demands(use, device))
    # A product of each lane's in each cycle, two lanes to a block, and the gate units'.
    assert parameters.lanes * parameters.macs / 2 < use.multipliers <= 0.8 * device.multipliers
    assert use.clock_assumed and use.fmax_mhz == 300
    assert use.step_latency_us == pytest.approx(made.cycles.step_latency_cycles / 300, abs=1e-4)
    slow = estimate(made, find_device("xcku5p"), assumed_mhz=100)
    assert slow is not None and slow.step_latency_us == pytest.approx(3 * found.latency_us, rel=1e-3)


@pytest.mark.slow
@pytest.mark.usefixtures("without_verilog")
def test_the_example_by_one_command(cli, tmp_path):
    """``docs/sizing.md`` has these figures; a smaller array of it is synthesised as ``us_wide_array``."""
    module, model = load_example("vollo_lstm"), tmp_path / "vollo.safetensors"
    module.torch.manual_seed(0)
    save_file({name: value.numpy() for name, value in module.LstmNet().state_dict().items()}, model)
    done = cli(
        *("generate", model, "-o", tmp_path / "build", "--json"),
        *("--weight-bits", 8, "--data-bits", 8, "--fit", "xcku5p", "--clock", 300),
    ).good()
    report = done.json["report"]
    found, cycles = report["fit"]["estimate"], report["cycles"]["step_latency_cycles"]
    assert (report["lanes"], report["macs"], report["gate_units"], cycles) == (208, 13, 13, 210)
    device = find_device("xcku5p").device
    assert round(100 * found["multipliers"] / device.multipliers, 1) == 79.8
    assert round(100 * found["block_rams"] / device.block_rams, 1) == 72.5
    assert (found["step_latency_us"], found["clock_assumed"]) == (0.7, True)


def test_sums_in_dsp_blocks_exclude_no_array_that_fits(vollo):
    """On so small a device the array's adders of LUTs alone would exceed the limit, if they were all."""
    chosen, sizes = find_device("xcku5p"), {"lanes": 64, "macs": 32, "gate_units": 1}
    chosen = chosen.replace(device=chosen.device.replace(luts=49_000))
    request = FitRequest(chosen=chosen, clock_mhz=200, **sizes)
    _, found = fit_device("net", vollo.shapes, vollo.numerics, request)
    assert found.estimate.cells < 0.7 * 49_000 < 64 * 31 * 16 + 64 * 2 * vollo.numerics.accumulator.bits


def test_large_memory(vollo):
    parameters, found, made = fit(vollo, "xczu7ev", 300, weight_memory="large")
    assert parameters.weight_memory == "large" and 0 < found.estimate.large_rams <= 0.8 * 96
    memory = MemorySpec("m", 1, 73, 4097, style="huge")
    assert fpga_family("ultrascale").need_estimates().map_memory(memory).large_rams == 4
    assert made.cycles.step_latency_cycles > 0


def test_blocks_by_hand():
    seven, ultra = (fpga_family(name).need_estimates() for name in ("xilinx", "ultrascale"))
    assert [seven.hard_blocks(*bits) for bits in ((18, 25), (25, 18), (4, 4))] == [1, 1, 1]
    # As Yosys divides them.
    wide = ((28, 18), (27, 19), (32, 16), (30, 30), (20, 40), (45, 20))
    assert [ultra.hard_blocks(*bits) for bits in wide] == [2, 2, 2, 4, 4, 6]
    assert [seven.hard_blocks(*bits) for bits in wide[:3]] == [2, 4, 2]
    sizes = ((4, 4, 1), (8, 8, 1), (6, 8, 2), (8, 8, 3), (12, 12, 3))
    # Yosys took 20, 72, 75, 105 and 235; notes/implement.md says how far that depends on names.
    assert [multiplier_luts(*size, ultra) for size in sizes] == [20, 72, 74, 104, 230]
    # Weights and data of 8 bits leave no room for a sum's bit in a DSP48E1 that two lanes share.
    assert [each.adds_products(8, 8, True) for each in (seven, ultra)] == [False, True]
    assert [each.adds_products(8, 8, False) for each in (seven, ultra)] == [True, True]
    assert not fpga_family("ecp5").need_estimates().adds_products(8, 8, False)
    halves = [seven.map_memory(MemorySpec("m", 1, width, 512)).block_rams for width in (36, 37, 72, 73)]
    assert halves == [0.5, 1, 1, 1.5]
    assert ultra.map_memory(MemorySpec("m", 1, 14, 32)).lutrams == 1
    assert seven.map_memory(MemorySpec("m", 1, 14, 32)).lutrams == 3


def test_a_clock_is_for_devices_without_one():
    tiny = quantise(network(), EIGHT)
    with pytest.raises(ConfigurationError, match=r"needs the clock .* of xc7a35t.*`clock_mhz=200`"):
        fit(tiny, "xc7a35t", None)
    with pytest.raises(ConfigurationError, match="the clock of up5k is estimated; leave it out"):
        fit(tiny, "up5k", 50)
    with pytest.raises(ConfigurationError, match="give `fit`, too, or leave out `clock_mhz`"):
        ArrayRequest(clock_mhz=200).check()


def test_without_a_clock_there_is_a_size_and_no_time():
    _, _, made = fit(quantise(network(), EIGHT), "xc7z010", 200)
    found = estimate(made, find_device("xc7z010"))
    assert found is not None and found.luts and found.fits
    assert (found.clock_mhz, found.step_latency_us, found.clock_text) == (None, None, "")
    full = found.replace(cells=int(0.8 * find_device("xc7z010").device.luts))
    with pytest.raises(ConfigurationError, match="fuller than what is assumed to be routable"):
        check_estimate("tiny", full, find_device("xc7z010").device)
    check_estimate("tiny", full, find_device("xc7z010").device, insist=True)


def test_versal_is_refused_by_name(cli, model, tmp_path):
    run = ("generate", model, "-o", tmp_path / "b", "--clock", 300, "--fit")
    for name in ("xcvc1902", "vp1802"):
        cli(*run, name).refused(f"{name} is not supported", "DSP58", "URAM288E5", "xcku5p")
    # A Virtex UltraScale+ is none.
    assert find_device("xcvu9p").device.family == "ultrascale"


@pytest.mark.usefixtures("without_verilog")
def test_the_clock_is_marked_wherever_it_is(cli, model, tmp_path):
    folder = tmp_path / "build"
    done = cli(
        *("generate", model, "-o", folder, "--weight-bits", 8, "--data-bits", 8),
        *("--fit", "xcku5p", "--clock", "300", "--json"),
    ).good()
    report, cycles = done.json["report"], done.json["report"]["cycles"]["step_latency_cycles"]
    found = report["fit"]["estimate"]
    assert (found["fmax_mhz"], found["clock_assumed"]) == (300, True)
    assert (
        f"{cycles} cycles, {found['step_latency_us']:.4g} us on xcku5p at an assumed 300 MHz"
        in (done.json["verdict"])
    )
    assert any("a clock is what the user assumes" in note for note in report["notes"])
    assert report["asked"]["hardware"]["clock_mhz"] == 300
    # Other devices of the family have sizes, and no times.
    (other,) = (each for each in report["estimates"] if each["device"] == "xczu3eg")
    assert other["luts"] == found["luts"] and other["fmax_mhz"] is None is other["step_latency_us"]
    page = (folder / "report.html").read_text()
    assert "300 MHz, assumed" in page and "a step are assumed;" in page
    assert re.search(
        r"300 MHz, as assumed for the device", "".join(path.read_text() for path in folder.rglob("*.sdc"))
    )
    shown = cli("generate", model, "-o", folder, "--fit", "xcku5p", "--clock", "300")
    assert "300 MHz, assumed" in shown.out and "assumes" in shown.err
    listed = {each["name"]: each for each in cli("devices", "--json").json["devices"]}
    assert listed["xcku5p"]["clock_assumed"] and not listed["up5k"]["clock_assumed"]
    assert "fit with --clock, synthesis only" in cli("devices").out


def test_explore_marks_it(cli, model, tmp_path):
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(12, 3, INPUTS)))
    run = ("explore", model, "--calibrate", tmp_path / "x.npy", "-o", tmp_path / "study", "--workers", 1)
    run += ("--devices", "xc7z010,up5k", "--weight-bits", 8, "--data-bits", 8, "--gate-bits", 8)
    run += ("--cell-bits", 12, "--tables", "direct", "--lanes", 4, "--macs", 1, "--clock", "150")
    done = cli(*run).good()
    assert re.search(r"xc7z010 .* assumed clock", done.out) and not re.search(r"up5k .* assumed", done.out)
    assert "the clock of xc7z010 is assumed to be 150 MHz" in done.err
    points = {
        each["device"]: each for each in json.loads((tmp_path / "study/explore.json").read_text())["front"]
    }
    assert points["xc7z010"]["clock_assumed"] and not points["up5k"]["clock_assumed"]
    assert "--clock 150" in points["xc7z010"]["command"] and "--clock" not in points["up5k"]["command"]
    assert "The clock of xc7z010 is assumed." in (tmp_path / "study/explore.html").read_text()


@pytest.mark.usefixtures("without_verilog")
def test_a_board_has_more_than_the_core(cli, model, tmp_path):
    run = ("generate", model, "-o", tmp_path / "b", "--clock", 100, "--fit")
    cli(*run, "pynq-z2").refused("surrounds the core on pynq-z2; name its device, xc7z020")
    assert cli(*run, "xc7z020").code == 0
