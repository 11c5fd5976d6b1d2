"""``rtlstm generate --fit``: the search finds what trying everything finds, and says what limits it."""

import json
import re

import numpy as np
import pytest
from safetensors.numpy import save_file
from support.quick import quick
from support.random_sequences import random_gru, random_lstm, random_projection
from support.small_builds import named_options, network

from rtlstm import Bidirectional, BuildReport, ConfigurationError, Dense, Lstm, Manifest, Network, Parameters
from rtlstm.bench.shapes import SHAPES
from rtlstm.boards.catalogue import find_target
from rtlstm.fpga.devices import find_device
from rtlstm.fpga.estimate import BOARD_SHARE, check_estimate, demands, estimate, worst_demand
from rtlstm.fpga.families.base import fpga_family
from rtlstm.fpga.fit import FitRequest, NothingFitsError, _Search, fit_device
from rtlstm.fpga.resources import fill_limits
from rtlstm.gen.builds.advice import find_fit_advice
from rtlstm.gen.builds.generate import generate_build
from rtlstm.gen.quantise.calibration import Calibration
from rtlstm.gen.quantise.quantiser import QuantizationSettings, choose_formats, quantise
from rtlstm.spec.numerics import array_words

pytestmark = pytest.mark.usefixtures("without_verilog")

FOUR = QuantizationSettings(weight_bits=4, data_bits=4, gate_bits=6, cell_bits=8)
EIGHT = QuantizationSettings(weight_bits=8, data_bits=8)


def fit(device: str, settings: QuantizationSettings = EIGHT, **given: object):
    quantised = quantise(network(), settings)
    request = FitRequest(chosen=find_device(device), **given)
    return quantised, *fit_device("tiny", quantised.shapes, quantised.numerics, request)


@pytest.mark.parametrize("device", quick(["lfe5u-12f-8", "hx8k", "up5k", "gw1n-9", "lifcl-17"], "up5k"))
def test_nothing_tried_is_better(device: str):
    chosen = find_device(device)
    quantised, parameters, found = fit(device, FOUR)
    assert estimate(Manifest.of("tiny", quantised, parameters), chosen) == found.estimate
    assert found.estimate.fits
    assert all(each.used <= each.most for each in demands(found.estimate, chosen.device))
    assert parameters.family == chosen.device.family
    search = _Search("tiny", quantised.shapes, quantised.numerics, FitRequest(chosen=chosen))
    for candidate in search._candidates():
        design = search._design(candidate)
        made = Manifest.of("tiny", quantised, design.parameters)
        # The bound that ends the search holds.
        assert candidate.cycles <= made.cycles.step_latency_cycles
        worst, least = worst_demand(design.estimate, search._device), search._least(candidate)
        assert not least.exceeds or worst.exceeds
        assert worst.exceeds or design.key >= (found.estimate.step_latency_us, found.estimate.cells)


def both_ways(kind: str) -> Network:
    """Two directions side by side, perhaps with a dense layer behind them."""
    rng = np.random.default_rng(1)
    match kind:
        case "lstm":
            forward, backward = random_lstm(rng, 3, 5), random_lstm(rng, 3, 4, reverse=True)
        case "gru":
            forward, backward = random_gru(rng, 3, 5), random_gru(rng, 3, 4, True, reset_after=True)
        case _:
            # h that is fed back is shorter than c.
            forward, backward = (random_projection(rng, 2, 10, 2, reverse) for reverse in (False, True))
    layers = (Bidirectional(forward=forward, backward=backward),)
    head = Dense(weight=rng.normal(size=(2, layers[0].outputs)) / 4, bias=np.zeros(2))
    return Network(layers=layers if kind == "projection" else (*layers, head))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["lstm", "gru", "projection"])
def test_nothing_tried_is_better_for_whole_sequences(kind: str):
    quantised = quantise(both_ways(kind), FOUR)
    request = FitRequest(chosen=find_device("lfe5u-12f-8"), max_steps=9)
    given = "both", quantised.shapes, quantised.numerics, request, quantised.passes
    parameters, found = fit_device(*given)
    best = Manifest.of("both", quantised, parameters)
    assert estimate(best, request.chosen) == found.estimate and found.estimate.fits
    assert parameters.max_steps == 9
    search, bounds = _Search(*given), []
    for candidate in search._candidates():
        design = search._design(candidate)
        made = Manifest.of("both", quantised, design.parameters)
        assert candidate.cycles <= made.cycles.step_latency_cycles
        bounds.append(candidate.cycles / made.cycles.step_latency_cycles)
        words = array_words(quantised.shapes, candidate.lanes, candidate.macs)
        assert words <= made.program.weight_rows
        worst, least = worst_demand(design.estimate, search._device), search._least(candidate)
        assert not least.exceeds or worst.exceeds
        assert worst.exceeds or design.key >= (found.estimate.step_latency_us, found.estimate.cells)
    # A bound that is much too low would end no search.
    assert max(bounds) > 0.6


def test_gate_units_of_whole_sequences_divide_the_multipliers():
    quantised = quantise(both_ways("lstm"), FOUR)
    request = FitRequest(chosen=find_device("lfe5u-12f-8"), max_steps=9, gate_units=4, macs=2)
    with pytest.raises(ConfigurationError, match=r"`gate_units` .4. must divide `macs` .2.* `gate_units=2`"):
        fit_device("both", quantised.shapes, quantised.numerics, request, quantised.passes)


def test_what_is_given_is_kept():
    _, parameters, _ = fit("lfe5u-12f", lanes=8, macs=3, gate_units=1, multipliers=2, streams=2)
    assert (parameters.lanes, parameters.macs, parameters.lut_macs, parameters.streams) == (8, 3, 2, 2)
    _, parameters, _ = fit("lfe5u-12f", lanes=8, macs=3, multipliers=1, lut_lanes=5)
    assert (parameters.lut_macs, parameters.lut_lanes) == (1, 5)
    _, parameters, _ = fit("lfe5u-12f", beat_in=3, beat_out=4)
    assert parameters.macs % 3 == 0 and parameters.beat_out == 4
    _, parameters, found = fit("lfe5u-12f", multipliers="lut")
    assert parameters.lut_macs == parameters.macs
    assert found.estimate.multipliers == 8 * parameters.gate_units


def test_large_memory_where_block_ram_is_too_small():
    rows = np.zeros((4 * 64, 64))
    quantised = quantise(Network(layers=(Lstm(w_ih=rows, w_hh=rows, bias=rows[:, 0]),)), FOUR)
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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("device", "name", "weight_bits"),
    [("lfe5u-85f-8", "stac_a", 8), ("lfe5u-85f-8", "stac_a", 4), ("lfe5u-25f-8", "mnist32", 8)],
)
def test_no_dsp_block_is_left(device: str, name: str, weight_bits: int):
    """Some lanes have one more multiplier of LUTs, so that all others can be DSP blocks."""
    chosen, settings = find_device(device), QuantizationSettings(weight_bits=weight_bits, data_bits=8)
    quantised = quantise(SHAPES[name].network(), settings)
    found = {}
    for lut_lanes in (None, 0):
        request = FitRequest(chosen=chosen, lut_lanes=lut_lanes)
        found[lut_lanes] = fit_device(name, quantised.shapes, quantised.numerics, request)
    parameters, fit = found[None]
    assert parameters.lut_lanes > 0 and fit.estimate.fits
    assert fit.estimate.multipliers == chosen.device.multipliers
    alike, other = found[0]
    assert alike.lut_lanes == 0 and other.estimate.multipliers < fit.estimate.multipliers
    assert fit.estimate.step_latency_us <= other.estimate.step_latency_us


@pytest.mark.parametrize(("weight_bits", "shared"), quick([(6, False), (4, True)], (4, True)))
def test_narrow_weights_share_multipliers(weight_bits: int, shared: bool):
    """``stac_a`` with data of 8 bits: from 4 bits on, a DSP block computes two products."""
    settings = QuantizationSettings(weight_bits=weight_bits, data_bits=8)
    quantised = quantise(SHAPES["stac_a"].network(), settings)
    request = FitRequest(chosen=find_device("lfe5u-85f-8"))
    parameters, found = fit_device("stac_a", quantised.shapes, quantised.numerics, request)
    products = parameters.lanes * (parameters.macs - parameters.lut_macs) - parameters.lut_lanes
    lanes = found.estimate.multipliers - 8 * parameters.gate_units
    assert lanes == (products // 2 if shared else products) > 0


@pytest.mark.parametrize(("factor", "name"), [(0.99, "short"), (0.7, "default")])
def test_the_pipeline_with_the_shortest_step_is_chosen(monkeypatch, factor: float, name: str):
    estimates = fpga_family("ecp5").need_estimates()
    assert estimates.pipelines.keys() == {"short", "wide_loop"}
    monkeypatch.setattr(type(estimates), "pipelines", {"short": factor})
    _, parameters, found = fit("lfe5u-12f-8")
    assert parameters.pipeline_name == found.pipeline == name
    tried = {}
    for other in ("default", "short"):
        sizes = {"lanes": parameters.lanes, "macs": parameters.macs, "gate_units": parameters.gate_units}
        sizes |= {"lut_macs": parameters.lut_macs, "lut_lanes": parameters.lut_lanes}
        sizes |= {"beat_out": parameters.beat_out}
        quantised = quantise(network(), EIGHT)
        made = Parameters.for_family("ecp5", quantised.numerics.factor_bits, other, **sizes)
        manifest = Manifest.of("tiny", quantised, made)
        tried[other] = estimate(manifest, find_device("lfe5u-12f-8")).step_latency_us
    assert found.estimate.step_latency_us == tried[name] == min(tried.values())


def test_a_pipeline_with_copies_is_offered_for_one_block(monkeypatch):
    """Its clock was measured for arrays of one block only."""
    monkeypatch.setattr(type(fpga_family("ecp5").need_estimates()), "pipelines", {"wide_loop": 1.5})
    _, parameters, found = fit("lfe5u-25f-8")
    assert found.pipeline == "wide_loop" and parameters.blocks == 1
    _, parameters, found = fit("lfe5u-25f-8", lanes=8, gate_units=1)
    assert found.pipeline == "default" and parameters.blocks == 2


def test_far_too_many_weights_are_refused_at_once(cli, monkeypatch, tmp_path):
    """Before they are quantised, with the fewest bits that would be tried."""
    shapes = {"weight_ih_l0": (1200, 300), "weight_hh_l0": (1200, 300), "bias_ih_l0": (1200,)}
    tensors = {name: np.ones(shape, "float32") for name, shape in shapes.items()}
    save_file(tensors | {"bias_hh_l0": tensors["bias_ih_l0"]}, tmp_path / "large.safetensors")
    monkeypatch.setattr("rtlstm.gen.builds.generate.choose_formats", None)
    done = cli("generate", tmp_path / "large.safetensors", "-o", tmp_path / "build", "--fit", "up5k")
    done.refused("721,200 weights of 4 bits", "times its memory; choose a larger device")


def test_nothing_fits():
    with pytest.raises(
        NothingFitsError, match=r"up5k, with `lanes=16`, `macs=4`: .* logic cells \(of 5,280, of which 4,8"
    ):
        fit("up5k", lanes=16, macs=4)
    with pytest.raises(ConfigurationError, match=r"tiny does not fit up5k, .* multipliers \(of 8"):
        fit("up5k", FOUR, lanes=4, macs=2, multipliers=0)
    with pytest.raises(ConfigurationError, match=r"does not fit up5k, .* block RAMs \(of 30"):
        # Tables of LUTs lack logic cells by as much.
        fit("up5k", QuantizationSettings(weight_bits=8, data_bits=16, gate_bits=18), table_memory="ram")
    with pytest.raises(NothingFitsError, match="no array with `multipliers=0`, `lut_lanes=1023`; leave out"):
        fit("lfe5u-12f", multipliers=0, lut_lanes=1023)


@pytest.mark.parametrize(
    ("given", "array"),
    [({"gate_units": 3}, (12, 3)), ({"gate_units": 5, "beat_out": 5}, (20, 1)), ({"gate_units": 6}, (24, 2))],
    ids=str,
)
def test_gate_units_alone(given: dict[str, int], array: tuple[int, int]):
    """Lanes are in blocks of them, and macs divide them or are a multiple."""
    _, parameters, _ = fit("lfe5u-85f-8", **given)
    assert parameters.gate_units == given["gate_units"]
    assert (parameters.lanes, parameters.macs) == array


def test_gate_units_that_the_lanes_cannot_have():
    with pytest.raises(ConfigurationError, match=r"`gate_units` \(5\) must divide `lanes` / 4 \(3\); try 1$"):
        fit("lfe5u-85f-8", lanes=12, gate_units=5)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"multipliers": 1024}, "no array with `multipliers=1024`; leave it out"),
        (
            {"gate_units": 7, "multipliers": 1000},
            "no array with `gate_units=7`, `multipliers=1000`; leave out one",
        ),
        ({"gate_units": 3, "beat_in": 1024}, "multiples of `gate_units=3` and `beat_in=1024` begin with"),
    ],
)
def test_sizes_that_no_array_has(given: dict[str, int], words: str):
    with pytest.raises(ConfigurationError, match=words):
        fit("lfe5u-12f-8", **given)


@pytest.mark.slow
def test_the_resource_that_a_faster_array_lacks():
    """Of 700 arrays that do not fit, few are faster: those that lack the least are not among them."""
    quantised = quantise(SHAPES["stac_a"].network(), QuantizationSettings(weight_bits=2, data_bits=8))
    request = FitRequest(chosen=find_device("lfe5u-85f-8"))
    _, found = fit_device("stac_a", quantised.shapes, quantised.numerics, request)
    assert found.limited_by == "logic cells"
    assert found.limit_text == "a faster array would need too many logic cells"


def test_command(cli, model, tmp_path):
    folder = tmp_path / "build"
    arguments = ("generate", model, "-o", folder, "--weight-bits", "8", "--data-bits", "8")
    done = cli(*arguments, "--fit", "lfe5u-12f-8", "--json").good()
    report = done.json["report"]
    assert report["family"] == "ecp5" and report["fit"]["device"] == "lfe5u-12f-8"
    assert {found["device"] for found in report["estimates"]} >= {"lfe5u-12f-8", "lfe5u-85f-6"}
    assert Manifest.load(folder).parameters.lanes == report["lanes"]
    page = (folder / "report.html").read_text()
    assert "Sizes chosen for lfe5u-12f-8" in page and "before synthesis" in page
    assert any("Lattice promises only 12,000" in text for text in done.json["report"]["notes"])
    again = cli(*arguments, "--fit", "lfe5u-12f-8", "--lanes", "8", "--multipliers", "auto").good()
    assert (
        "8 lanes" in again.out
        and "limited by the sizes that were given (lanes): without them, more may fit" in again.out
        and re.search(r" of 28 +\d+ of 56 ", again.out)
    )
    fitted = json.loads((folder / "report.json").read_text())["fit"]
    assert fitted["tried"] >= 1
    name = Manifest.load(folder).parameters.pipeline_name
    assert fitted["pipeline"] == name and f"with the {name} pipeline" in again.out
    assert re.search(rf"^ pipeline +{name}\b", cli("inspect", folder).out, re.MULTILINE)
    assert cli("inspect", folder, "--json").json["pipeline_name"] == name


@pytest.mark.slow
def test_estimates_without_a_device(cli, model, tmp_path):
    done = cli("generate", model, "-o", tmp_path / "b", "--family", "ice40", "--macs", "2").good()
    assert "up5k" in done.out and "hx8k" in done.out
    # Chains limit nothing there.
    assert "flip-flops" in done.out and "carry chains" not in done.out
    assert "carry chains" in cli("generate", model, "-o", tmp_path / "e", "--family", "ecp5").out
    done = cli("generate", model, "-o", tmp_path / "g", "--family", "gowin", "--macs", "2")
    assert "gw2ar-18-c8-i7" in done.out and "nextpnr knows no delays of Gowin's multipliers" in done.err
    done = cli("generate", model, "-o", tmp_path / "c", "--macs", "2", "--json")
    assert done.json["report"]["estimates"] == [] and done.json["report"]["fit"] is None


@pytest.mark.parametrize(
    ("target", "device"),
    quick(
        [("tang-nano-20k", "gw2ar-18-c8-i7"), ("lifcl-40-9", "lifcl-40-9")],
        ("tang-nano-20k", "gw2ar-18-c8-i7"),
    ),
)
def test_devices_whose_blocks_are_inferred(cli, model, tmp_path, target: str, device: str):
    """Every multiplier of their arrays is a DSP block, and all of them are there."""
    done = cli("generate", model, "-o", tmp_path / "b", "--fit", target, "--json").good()
    report = done.json["report"]
    found = report["fit"]["estimate"]
    assert (found["device"], report["lut_macs"], report["lut_lanes"]) == (device, 0, 0)
    clock = f"clock and time are those expected of rtlstm bitstream on {target}: "
    assert any(clock in note for note in done.json["notes"]) == bool(found["board"])
    assert found["board_mhz"] == (round(BOARD_SHARE * found["fmax_mhz"], 1) if found["board"] else None)
    cycles = report["cycles"]["step_latency_cycles"]
    assert found["step_latency_us"] == pytest.approx(cycles / (found["board_mhz"] or found["fmax_mhz"]), 1e-3)
    assert f"Sizes chosen for {target}" in cli("inspect", tmp_path / "b").out
    # The label is a device's name, too.
    assert 0 < found["multipliers"] <= find_device(device).device.multipliers


def test_wrong_options_are_refused(cli, model, tmp_path):
    run = ("generate", model, "-o", tmp_path / "b")
    cli(*run, "--fit", "up5k", "--family", "ice40").refused("leave out --family")
    cli(*run, "--fit", "up5").refused("near names: up5k")
    cli(*run, "--fit", "icebraker").refused(
        "there is no device or board 'icebraker'; boards of near names: icebreaker"
    )
    cli(*run, "--fit", "tang").refused("boards of near names: tang-nano-20k")
    cli(*run, "--fit", "nosuch").refused("boards: ulx3s-12f", "icebreaker", "devices: lfe5u-12f", "lifcl-40")
    cli(*run, "--fit", "lifcl-40-6").refused("must be one of its speed grades, 7, 8, 9, not '6'")
    known = "ecp5, gowin, ice40, nexus, ultrascale, xilinx"
    cli(*run, "--fit", "5cseba6").refused("--fit needs estimates", known, "not for 5cseba6", "--family intel")
    inferred = ("cannot be chosen for gw2a-18", "implement the build with --no-dsp")
    cli(*run, "--fit", "gw2a-18", "--multipliers", "lut").refused("--multipliers", *inferred)
    cli(*run, "--fit", "up5k", "--lanes", "6").refused("multiple of 4", "try 8")
    cli(*run, "--fit", "up5k", "--multipliers", "some").refused("must be dsp, lut, auto or a number")
    cli(*run, "--multipliers", "auto").refused("give --fit, or dsp")
    hopeless = ("--lanes", "1024", "--macs", "64", "--fit", "up5k", "--streams", "1024")
    cli(*run, *hopeless).refused("does not fit up5k", "choose a larger device")
    assert not (tmp_path / "b").exists()


@pytest.mark.slow
def test_a_way_out_is_asked_for_where_there_is_one(cli, model, tmp_path):
    run = ("generate", model, "-o", tmp_path / "b", "--fit-anyway")
    cli(*run).refused("--fit-anyway says what to do if a device is too small: give --fit, too")
    np.save(tmp_path / "x.npy", np.zeros((4, 3)))
    cli(*run, "--fit", "up5k", "--finetune", tmp_path / "x.npy").refused("leave it out", "formats to train")
    hopeless = ("--lanes", "1024", "--macs", "64", "--streams", "1024")
    cli(*run, "--fit", "up5k", *hopeless).refused("does not fit up5k", "choose a larger device")
    assert not (tmp_path / "b").exists()


def test_a_refusal_of_another_board():
    """Its name alone is another one, also where the network has the same."""
    refused = NothingFitsError("whatever the array: too much", 2.0, "up5k with its link", "up5k")
    advised = refused.advised("choose a larger device than up5k")
    expected = "up5k with its link does not fit mine, whatever the array: too much; choose a larger device"
    assert advised.said_of("mine") == f"{expected} than up5k" and advised.share == 2.0
    assert NothingFitsError("no array").said_of("mine") == "no array"


@pytest.mark.slow
def test_a_refusal_works_out_few_arrays(monkeypatch):
    """The nearest array is the one that all are compared for, but few of them are worked out."""
    worked_out, design = [], _Search._design
    monkeypatch.setattr(_Search, "_design", lambda self, each: worked_out.append(each) or design(self, each))
    rng = np.random.default_rng(0)
    layer = Lstm(w_ih=rng.normal(size=(480, 24)), w_hh=rng.normal(size=(480, 120)), bias=np.zeros(480))
    for device, settings, most in (("up5k", QuantizationSettings(), 20), ("hx8k", EIGHT, 100)):
        quantised = quantise(Network(layers=(layer,)), settings)
        given = "wide", quantised.shapes, quantised.numerics, FitRequest(chosen=find_device(device))
        worked_out.clear()
        with pytest.raises(NothingFitsError) as refused:
            fit_device(*given)
        assert len(worked_out) < most
        search = _Search(*given)
        bounds = sorted(
            (search._least(each).share, number) for number, each in enumerate(search._candidates())
        )
        candidates = list(search._candidates())
        nearest = (
            worst_demand(search._design(candidates[at]).estimate, search._device).share
            for _, at in bounds[:100]
        )
        assert refused.value.share == min(nearest)


@pytest.mark.slow
def test_implement_refuses_before_synthesis(cli, model, tmp_path):
    folder = tmp_path / "b"
    assert cli("generate", model, "-o", folder, "--family", "ice40", "--lanes", "4", "--macs", "4").code == 0
    refused = cli("implement", folder, "--device", "up5k")
    refused.refused("does not fit up5k: by its estimate", "24 multipliers (it has 8)", "--fit up5k")
    assert not (folder / "impl").exists()


@pytest.mark.slow
def test_refusal_names_the_options_that_fit(cli, tmp_path):
    """The LSTM of the README, on the device that is too small for 16 bits."""
    model, folder = tmp_path / "lstm.safetensors", tmp_path / "build"
    save_file(lstm(6, 20), model)
    run = ("generate", model, "-o", folder, "--fit")
    for place in ("up5k", "icebreaker"):
        refused = cli(*run, place)
        refused.refused(f"does not fit {place}, whatever the array", "logic cells")
        options = named_options(refused.err)
        done = cli(*run, place, *options, "--json").good()
        found = done.json["report"]["fit"]
        assert found["device"] == place and found["estimate"]["fits"]
        assert f"it fits: {found['estimate']['cell_share']:g} % of the logic cells" in refused.err
        # The same without typing them.
        anyway = cli("generate", model, "-o", tmp_path / "anyway", "--fit", place, "--fit-anyway", "--json")
        assert anyway.json["report"]["build_hash"] == done.json["report"]["build_hash"]
        (note,) = (note for note in anyway.json["notes"] if "so it is built with " in note)
        assert " ".join(options) in note and note.startswith("lstm")
    # What was fixed about the array is given free.
    refused = cli(
        *run, "up5k", *named_options(cli(*run, "up5k").err), "--lanes", "40", "--multipliers", "lut"
    )
    refused.refused("without --lanes, --multipliers it fits")


def test_what_was_tried_is_told_of_the_formats_that_fit(tmp_path):
    """Not of those that were refused."""
    rng = np.random.default_rng(0)
    arrays = (rng.uniform(-0.2, 0.2, size) for size in ((80, 6), (80, 20), (80,)))
    network = Network(layers=(Lstm(**dict(zip(("w_ih", "w_hh", "bias"), arrays, strict=True))),))
    x = rng.normal(size=(40, 4, 6))
    settings, request = QuantizationSettings(), FitRequest(chosen=find_device("up5k"), fit_anyway=True)
    data = Calibration.of(network, x)
    generate_build(network, tmp_path / "b", settings=settings, fit=request, calibration=x)
    report = BuildReport.load(tmp_path / "b")
    assert report.asked is not None and report.asked.settings != settings
    found = choose_formats(network, report.asked.settings, data)
    assert report.trials == found.trials and len(found.trials) > 1
    assert report.asked.calibration == data.digest


def test_multipliers_chosen_for_the_device_are_not_fixed():
    chosen = find_device("up5k")
    asked, plain = FitRequest(chosen=chosen, multipliers="auto"), FitRequest(chosen=chosen)
    assert asked == plain
    draw = np.random.default_rng(0).normal
    layer = Lstm(name="lstm", w_ih=draw(size=(80, 6)), w_hh=draw(size=(80, 20)), bias=draw(size=80))
    network, settings = Network(name="tiny", layers=(layer,)), QuantizationSettings()
    advice = find_fit_advice("tiny", network, settings, None, asked)
    # The settings as they are were refused before: all advice changes something.
    assert advice is not None and advice.less == () and advice.more


def lstm(inputs: int, units: int) -> dict[str, np.ndarray]:
    """The state dict of a PyTorch LSTM."""
    rng = np.random.default_rng(0)
    sizes = {"weight_ih_l0": (4 * units, inputs), "weight_hh_l0": (4 * units, units)}
    sizes |= {"bias_ih_l0": (4 * units,), "bias_hh_l0": (4 * units,)}
    max_abs = units**-0.5
    return {name: rng.uniform(-max_abs, max_abs, size).astype(np.float32) for name, size in sizes.items()}


def test_board_is_counted_in():
    quantised = quantise(network(), FOUR)
    core, whole = (
        fit_device("tiny", quantised.shapes, quantised.numerics, request)[1].estimate
        for request in (
            FitRequest(chosen=find_device("up5k"), lanes=4, macs=1),
            FitRequest(**find_target("icebreaker")._asdict(), lanes=4, macs=1),
        )
    )
    assert (core.board, whole.board) == ("", "icebreaker")
    assert whole.block_rams == core.block_rams + 11
    assert 1300 < whole.luts - core.luts < 1500 and 700 < whole.ffs - core.ffs < 850


@pytest.mark.slow
def test_no_offer_beyond_what_was_routed():
    """The network whose fit could not be placed: its carry chains would take 97 % of the device's tiles."""
    rows = np.zeros((400, 100))
    layers = [Lstm(name=f"lstm{index}", w_ih=rows, w_hh=rows, bias=rows[:, 0]) for index in range(2)]
    quantised = quantise(Network(layers=(*layers, Dense(weight=rows[:1], bias=rows[:1, 0]))), EIGHT)
    chosen = find_device("lfe5u-85f-8")
    sizes = {"lanes": 80, "macs": 8, "lut_macs": 7, "gate_units": 4, "beat_out": 4}
    full = estimate(Manifest.of("full", quantised, Parameters.for_family("ecp5", **sizes)), chosen)
    assert full.cells < chosen.device.luts and full.chain_share > 90 and not full.fits
    with pytest.raises(
        ConfigurationError, match=r"tiles for carry chains .*insist=True` does it all the same"
    ):
        check_estimate("full", full, chosen.device)
    check_estimate("full", full, chosen.device, insist=True)
    _, found = fit_device("full", quantised.shapes, quantised.numerics, FitRequest(chosen=chosen))
    limits = fill_limits(fpga_family("ecp5").need_estimates())
    assert found.estimate.fits and found.estimate.chain_share <= 100 * limits.chains
    assert found.estimate.step_latency_us > full.step_latency_us


@pytest.mark.slow
def test_boards_are_fitted_at_the_clock_of_their_bitstream(cli, model, tmp_path):
    """Which is limited by the core's estimate, less a margin, and by the PLL."""
    made = cli("generate", model, "-o", tmp_path / "b", "--fit", "colorlight-i5", "--json").good()
    found = made.json["report"]["fit"]["estimate"]
    assert found["board_mhz"] == pytest.approx(BOARD_SHARE * found["fmax_mhz"], abs=0.1)
    shown = cli("generate", model, "-o", tmp_path / "b", "--fit", "colorlight-i5")
    assert re.search(rf"colorlight-i5, lfe5u-25f-6 .* {found['board_mhz']:g} MHz ", shown.out)
    asked = cli("bitstream", tmp_path / "b", "--board", "arty")
    asked.refused("there is no board 'arty'; there are ulx3s-12f")
