"""The command line: exit codes, one sentence per error, one JSON object per run."""

import json
import os
import re
import subprocess
import sys
import warnings

import numpy as np
import pytest
import safetensors.numpy
from support.lazy import nets, torch
from support.onnx_files import after_lstm, lstm, node, save
from support.small_builds import INPUTS, UNITS, snapshot, tensors

import rtlstm.gen.builds.generate
from rtlstm import Accelerator, BuildReport, Lstm, Manifest, Network, Parameters, SaturationWarning
from rtlstm.gen.builds.report_html import render_report
from rtlstm.sim.backends import SimulatedDevice
from rtlstm.spec.program.schedule import StepSchedule

DENSE = ("--dense", "fc:sigmoid")
SMALL = ("--macs", "2")


@pytest.fixture
def x_file(tmp_path):
    path = tmp_path / "x.npy"
    np.save(path, np.random.default_rng(0).normal(size=(6, 2, INPUTS)))
    return path


# generate


@pytest.mark.usefixtures("without_verilog")
def test_generate(cli, model, tmp_path):
    calibration = tmp_path / "c.npz"
    np.savez(calibration, x=np.random.default_rng(0).normal(size=(40, INPUTS)), p=np.zeros(3))
    arguments = ("generate", model, "-o", tmp_path / "b", *SMALL, *DENSE, "--calibrate", calibration)
    arguments += ("--calibrate-lengths", "30", "--final-states")
    np.savez(tmp_path / "state.npz", h=np.zeros((1, UNITS)), c=np.full((1, UNITS), 20.0))
    arguments += ("--calibrate-state", tmp_path / "state.npz")
    result = cli(*arguments, "--json").good()
    assert result.json["report"] == json.loads((tmp_path / "b" / "report.json").read_text())
    assert result.json["report"]["name"] == "tiny"
    assert result.json["report"]["source"] == "tiny.net.safetensors"
    assert result.json["report"]["accuracy"]["input_values"] == 30 * INPUTS
    # c begins at 20, and a quarter more has room.
    cell = Manifest.load(tmp_path / "b").numerics.cell
    assert cell.limit >= 1.25 * 20 and cell.fraction == 15
    before = snapshot(tmp_path / "b")
    people = cli(*arguments)
    assert people.code == 0 and "step latency" in people.out
    # The last line says how good it is.
    verdict = result.json["verdict"]
    assert verdict == BuildReport.load(tmp_path / "b").verdict
    assert "% of the outputs' spread, on calibration data; a step takes" in verdict
    assert people.out.splitlines()[-1] == verdict
    assert snapshot(tmp_path / "b") == before


def broken_models(folder):
    """Models that are refused, and words of the sentence that says so."""
    text = folder / "a.onnx"
    text.write_bytes(b"\x08\x07 not a model at all \xff\xff")
    nan = tensors()
    nan["lstm.weight_ih_l0"][0, 0] = np.nan
    infinite = tensors()
    infinite["lstm.weight_hh_l0"][1, 1] = np.inf
    safetensors.numpy.save_file(nan, folder / "nan.safetensors")
    safetensors.numpy.save_file(infinite, folder / "inf.safetensors")
    return {
        "missing": (folder / "no.onnx", ["no.onnx", "no such file"]),
        "not ONNX": (text, ["a.onnx"]),
        "no LSTM": (save(folder / "relu.onnx", [node("Relu", "x", "out")], []), ["LSTM"]),
        "operator": (after_lstm(folder / "op.onnx", [node("Celu", "s", "out", "odd")]), ["Celu", "odd"]),
        "attribute": (save(folder / "at.onnx", *lstm(y="out", clip=-1.0)), ["rec", "clip"]),
        "NaN": (folder / "nan.safetensors", ["weight_ih_l0", "NaN"]),
        "infinite": (folder / "inf.safetensors", ["weight_hh_l0", "infinite"]),
    }


@pytest.mark.parametrize(
    "case", ["missing", "not ONNX", "no LSTM", "operator", "attribute", "NaN", "infinite"]
)
def test_broken_models_are_refused(cli, tmp_path, case, request):
    if case != "not ONNX":
        request.getfixturevalue("read_here")
    (tmp_path / "models").mkdir()
    path, words = broken_models(tmp_path / "models")[case]
    result = cli("generate", path, "-o", tmp_path / "b")
    result.refused(*words)
    assert not result.out
    assert [found.name for found in tmp_path.iterdir()] == ["models"]
    as_json = cli("inspect", path, "--json")
    assert as_json.code == 2 and as_json.json["error"] == as_json.json["model"]["refusal"]
    assert not as_json.json["supported"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--lanes", "6"), ["multiple of 4", "6"]),
        (("--macs", "6", "--beat-in", "4"), ["divide"]),
        (("--weight-bits", "40"), ["--weight-bits must"]),
        (("--gate-bits", "6"), ["gates"]),
        (("--input-range", "nan"), ["--input-range must"]),
        (("--input-range", "-1"), ["--input-range must"]),
        (("--family", "z80"), ["error: --family must be one of", "z80", "ecp5"]),
        (("--bus", "spi"), ["error: --bus must be one of none, axi", "'spi'"]),
        (("--tables", "foo"), ["'--tables': 'foo' is not one of 'interpolated', 'direct'"]),
        (("--name", "module"), ["module"]),
        (("--calibrate", "no.npy"), ["no.npy"]),
        (("--calibrate-state", "no.npz"), ["no.npz"]),
        (("--final-states",), ["--final-states", "--calibrate", "there are none"]),
        (("--no-final-states", "--cell-range", "8"), ["--no-final-states", "--cell-range", "not both"]),
        (("--dense", "nothing"), ["nothing"]),
        (("--lanes", "many"), ["'--lanes': must be a valid integer"]),
        (("--fit", "lfe5u"), ["no device 'lfe5u'", "lfe5u-85f"]),
    ],
)
def test_wrong_options_are_refused(cli, model, tmp_path, arguments, words):
    plain = () if "--dense" in arguments else DENSE
    cli("generate", model, "-o", tmp_path / "b", *plain, *arguments).refused(*words)
    assert not list(tmp_path.iterdir())
    as_json = cli("generate", model, "-o", tmp_path / "b", *plain, *arguments, "--json")
    assert as_json.code == 2 and as_json.err == f"error: {as_json.json['error']}\n"


def test_wrong_calibration_data_are_refused(cli, model, tmp_path):
    def refused(arrays, *words):
        np.savez(tmp_path / "c.npz", **arrays)
        result = cli("generate", model, "-o", tmp_path / "b", *DENSE, "--calibrate", tmp_path / "c.npz")
        result.refused(*words)
        assert not (tmp_path / "b").exists()

    alone = cli("generate", model, "-o", tmp_path / "b", *DENSE, "--calibrate-lengths", "3")
    alone.refused("lengths of calibration data need the data")
    np.savez(tmp_path / "h.npz", h=np.zeros((1, 1, UNITS)), c=np.zeros((1, 1, UNITS)))
    alone = cli("generate", model, "-o", tmp_path / "b", *DENSE, "--calibrate-state", tmp_path / "h.npz")
    alone.refused("initial states of calibration data need the data")
    refused({"a": np.zeros(2), "b": np.zeros(2)}, "'x'", "a, b")
    refused({"x": np.zeros((4, INPUTS + 1))}, "calibration", str(INPUTS))
    refused({"x": np.full((4, INPUTS), np.inf)}, "finite")
    refused({"x": np.array([{}], dtype=object)}, "plain numbers")


def test_generate_into_a_foreign_folder(cli, model, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    cli("generate", model, "-o", tmp_path, *DENSE).refused("notes.txt")
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


# inspect


def test_help_names_every_format(cli):
    shown = " ".join(cli("generate", "--help").out.split())
    assert "ONNX, .pt2, TorchScript, Keras, TFLite, safetensors, state dict or .nam" in shown


def test_inspect_model(cli, model):
    result = cli("inspect", model, *DENSE, "--json").good()
    assert [layer["kind"] for layer in result.json["layers"]] == ["lstm", "dense"]
    people = cli("inspect", model, *DENSE)
    assert people.code == 0 and "supported" in people.out and "fc" in people.out


def test_inspect_refused_model_shows_its_nodes(cli, tmp_path):
    result = cli("inspect", after_lstm(tmp_path / "m.onnx", [node("Celu", "s", "out", "odd")]))
    result.refused(
        "Celu node 'odd', which reads 's', is not supported; to leave it outside of the core, end at"
    )
    result.refused("; docs/models.md lists what is, such as Selu, Relu, ")
    # The reason stands in the error alone.
    assert "refused" in result.out and "see the error" in result.out and "models.md" not in result.out


def test_inspect_build(cli, pristine):
    result = cli("inspect", pristine, "--json").good()
    assert result.json["image"] == {"ok": True, "bytes": (pristine / "weights.bin").stat().st_size}
    kinds = [op["kind"] for op in result.json["ops"]]
    # The last two are those of a step that goes ahead.
    assert kinds == ["recurrent", "input", "dense", "input", "recurrent"]
    people = cli("inspect", pristine)
    assert "CRC-32" in people.out and "goes on with 3 to 4, which take the place of 0 to 1" in people.out
    program = [(op["when"], op["multiplies"], op["then"]) for op in result.json["program"]]
    assert program == [
        ("before the input", "own h", "adds biases, keeps the sums"),
        ("with the input", "the input", "adds the kept sums: new h and c"),
        ("with the input", "results of layer 1", "adds biases: outputs, sent"),
        ("next input is there", "the input", "adds biases, keeps the sums"),
        ("next input is there", "own h", "adds the kept sums: new h and c"),
    ]
    array = result.json["cycles"]["array_cycles"]
    assert sum(op["cycles"] for op in result.json["program"] if op["when"] == "with the input") == array
    for op in result.json["program"]:
        assert f"{op['multiplies']}  " in people.out and f"{op['then']}  " in people.out


@pytest.mark.usefixtures("without_verilog")
def test_a_negative_overhead_is_explained(cli, pristine, tmp_path):
    wide = Lstm(name="wide", w_ih=np.zeros((16, 40)), w_hh=np.zeros((16, 4)), bias=np.zeros(16))
    network = Network(name="wide", layers=(wide,))
    rtlstm.gen.builds.generate.generate_build(
        network, tmp_path / "wide", parameters=Parameters(lanes=4, macs=1)
    )
    assert cli("inspect", tmp_path / "wide", "--json").json["layers"][0]["overhead_cycles"] < 0
    assert "A negative overhead: " in cli("inspect", tmp_path / "wide").out
    assert "A negative overhead: " not in cli("inspect", pristine).out


@pytest.mark.slow
def test_without_vega_reports_have_no_pictures(cli, model, pristine, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    install = "pip install 'rtlstm[pictures]'"
    cli("inspect", model, "-o", tmp_path / "p.html").refused("a page of pictures needs", install)
    assert cli("generate", model, *DENSE, "-o", tmp_path / "b", "--lanes", 4, "--macs", 1).code == 0
    page = (tmp_path / "b" / "report.html").read_text()
    assert "<svg" not in page and f"<code>{install}</code>" in page
    assert page.count("Not drawn: ") > 3
    monkeypatch.undo()
    drawn = render_report(BuildReport.load(pristine), Manifest.load(pristine))
    assert "<svg" in drawn and install not in drawn


@pytest.mark.usefixtures("drawn")
def test_inspect_draws(cli, model, pristine, tmp_path):
    """A model's network; of a build all that its report has, in one file each."""
    written = tmp_path / "page.html"
    assert f"written: {written}" in cli("inspect", model, *DENSE, "-o", written).out
    page = written.read_text()
    assert page.count("<svg") == 1 and "LSTM 3" in page and "dense" in page
    assert cli("inspect", pristine, "--json", "-o", written).json["page"] == str(written)
    page = written.read_text()
    report = render_report(BuildReport.load(pristine), Manifest.load(pristine))
    drawn = re.findall("<svg.*?</svg>", page, re.DOTALL)
    assert len(drawn) > 4 and all(each in report for each in drawn)
    for each in (page, report):
        assert not re.search(r"https?://|\bsrc=|@import|url\(|<script", each)
    cli("inspect", model, "-o", tmp_path / "none" / "page.html").refused("none")


def test_inspect_another_folder(cli, tmp_path):
    cli("inspect", tmp_path).refused("manifest.json", "generate")


# Damaged builds


def refuse_all(cli, build, x_file, *words):
    before, golden = snapshot(build), ("--backend", "golden", "--input", x_file)
    for command, *options in (("inspect",), ("simulate", "--simulator", "icarus"), ("run", *golden)):
        cli(command, build, *options).refused(*words)
        assert snapshot(build) == before


@pytest.mark.parametrize(
    ("field", "old", "new", "words"),
    [("schema_version", 1, 99, ["99", "generate"]), ("streams", 2, 3, ["changed"])],
)
def test_manifest_of_another_version_or_changed(cli, build, x_file, field, old, new, words):
    path = build / "manifest.json"
    path.write_text(path.read_text().replace(f'"{field}": {old}', f'"{field}": {new}'))
    refuse_all(cli, build, x_file, *words)


@pytest.mark.parametrize("position", [0, 20, 60, 200, -1])
def test_one_flipped_bit(cli, build, x_file, position):
    path = build / "weights.bin"
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)
    refuse_all(cli, build, x_file, "weight")
    assert cli("inspect", build, "--json").json["image"]["ok"] is False


def test_missing_parts(cli, build, x_file):
    (build / "rtl" / "tiny.v").unlink()
    cli("simulate", build, "--simulator", "icarus").refused("rtl/tiny.v")
    (build / "weights.bin").unlink()
    refuse_all(cli, build, x_file, "weights.bin")


# run


def test_run_goes_on_from_a_state(cli, pristine, tmp_path):
    x = np.random.default_rng(1).normal(size=(8, INPUTS))
    with Accelerator.open(pristine, "golden") as accelerator:
        y, (h, c) = accelerator.run(x)
    for part, name in ((x[:5], "a"), (x[5:], "b")):
        np.save(tmp_path / f"{name}.npy", part)
    state = tmp_path / "s.npz"
    run = ("run", pristine, "--backend", "golden", "--input")
    cli(*run, tmp_path / "a.npy", "--state-output", state, "--output", tmp_path / "ya.npy").good()
    cli(
        *run, tmp_path / "b.npy", "--state", state, "--state-output", state, "--output", tmp_path / "yb.npy"
    ).good()
    parts = [np.load(tmp_path / name) for name in ("ya.npy", "yb.npy")]
    np.testing.assert_array_equal(np.concatenate(parts), y)
    with np.load(state) as final:
        np.testing.assert_array_equal(final["h"], h)
        np.testing.assert_array_equal(final["c"], c)


def test_run_counts_its_own_saturations(cli, pristine, x_file, monkeypatch):
    """A device counts from its reset on; a board may have run before, and its counter may begin anew."""
    counts = iter([(1 << 32) - 2, 5])
    monkeypatch.setattr(Accelerator, "cell_saturations", property(lambda _: next(counts)))
    assert cli("run", pristine, "--input", x_file, "--json").json["cell_saturations"] == 7


def test_run_batch_first_with_lengths(cli, pristine, x_file, tmp_path):
    x = np.load(x_file)
    np.save(tmp_path / "first.npy", x.swapaxes(0, 1))
    np.save(tmp_path / "lengths.npy", np.array([6, 2]))
    with Accelerator.open(pristine, "golden") as accelerator:
        y, _ = accelerator.run(x, [6, 2])
    for lengths in ("6,2", tmp_path / "lengths.npy"):
        arguments = ("--batch-first", "--lengths", lengths, "--output", tmp_path / "y.npy", "--json")
        result = cli(
            "run", pristine, "--backend", "golden", "--input", tmp_path / "first.npy", *arguments
        ).good()
        assert (result.json["steps"], result.json["sequences"]) == (8, 2)
        assert result.json["output_shape"] == [2, 6, 2]
        np.testing.assert_array_equal(np.load(tmp_path / "y.npy").swapaxes(0, 1), y)


@pytest.mark.slow
@pytest.mark.rtl
@pytest.mark.filterwarnings("ignore:The tensor attributes")
def test_data_of_a_model_with_the_batch_first(cli, read_here, tmp_path):
    """Commands read data as the model has them, unless they are told otherwise."""
    module = nets.Net(lambda net, x: net.lstm(x)[0], lstm=torch.nn.LSTM(3, 5, batch_first=True))
    x = np.random.default_rng(0).normal(size=(4, 6, 3)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "one.npy", x[0])
    torch.export.save(torch.export.export(module, (torch.from_numpy(x),)), tmp_path / "tagger.pt2")
    folder, data = tmp_path / "build", tmp_path / "x.npy"
    made = ("generate", tmp_path / "tagger.pt2", "-o", folder, "--lanes", "4", "--macs", "2")
    ran = ("run", folder, "--backend", "golden", "--input")
    for command in ((*made, "--calibrate", data), (*ran, data), ("accuracy", folder, "--input", data)):
        found = [cli(*command, *said, "--json").json for said in ((), ("--batch-first",))]
        for each in found:
            each.pop("seconds", None), each.pop("steps_per_second", None)
        assert found[0] == found[1] and not any("was read" in note for note in found[0]["notes"])
    assert (cli(*ran, data, "--json").json["sequences"]) == 4
    assert cli(*ran, data, "--no-batch-first", "--json").json["sequences"] == 6
    simulated = cli("simulate", folder, "--simulator", "icarus", "--input", data, "--json").json
    assert simulated["sequences"] == 4 and simulated["steps"] == 24 and simulated["passed"]
    # A sequence alone has one layout, and the report of a build is not needed.
    (folder / "report.json").unlink()
    assert cli(*ran, tmp_path / "one.npy", "--json").json["sequences"] == 1
    assert cli(*ran, data, "--json").json["sequences"] == 4


@pytest.mark.slow
def test_data_of_a_model_that_tells_no_order(cli, tmp_path):
    """A file of tensors does not: then the commands say, once, how they read data."""
    torch.save(torch.nn.LSTM(3, 5).state_dict(), tmp_path / "lstm.pt")
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(4, 6, 3)))
    folder, data = tmp_path / "build", tmp_path / "x.npy"
    made = ("generate", tmp_path / "lstm.pt", "-o", folder, "--lanes", 4, "--macs", 2, "--calibrate", data)
    said = "of shape (4, 6, 3) was read as 4 steps of 6 sequences"
    for command, what in (
        (made, "calibration data"),
        (("run", folder, "--input", data), "the input"),
        (("accuracy", folder, "--input", data), "x"),
    ):
        done = cli(*command)
        words = " ".join(done.err.split())
        assert done.code == 0 and words.count(f"{what} {said}") == 1, done.err
        assert (
            "give --no-batch-first if this is right, --batch-first if it is 4 sequences of 6 steps" in words
        )
        for word in ("--no-batch-first", "--batch-first"):
            assert "was read as" not in cli(*command, word).err


def test_saturation_is_a_note(cli, pristine, tmp_path):
    # One step: a later one would wait for those before it, which is a note of its own.
    np.save(tmp_path / "x.npy", np.full((1, INPUTS), 100.0))
    arguments = ("run", pristine, "--backend", "golden", "--input", tmp_path / "x.npy")
    result = cli(*arguments)
    assert result.code == 0 and result.err.startswith("note: ") and result.err.count("\n") == 1
    as_json = cli(*arguments, "--json")
    assert as_json.json["input_saturations"] == INPUTS and len(as_json.json["notes"]) == 1
    # The command leaves warnings as it found them.
    with pytest.warns(SaturationWarning):
        warnings.warn("x", SaturationWarning, stacklevel=1)


@pytest.mark.parametrize(
    ("shape", "arguments", "words"),
    [
        ((4, 2, INPUTS + 1), (), [f"{INPUTS + 1}", f"{INPUTS} values"]),
        ((4, 2, INPUTS), ("--lengths", "4,9"), ["lengths", "9"]),
        ((4, 2, INPUTS), ("--lengths", "0,4"), ["lengths", "0"]),
        ((4, 2, INPUTS), ("--lengths", "4"), ["lengths", "2 integers"]),
        ((4, 2, INPUTS), ("--lengths", "four"), ["four"]),
        ((0, 2, INPUTS), (), ["at least one step"]),
        ((4, 2, INPUTS), ("--state", "no.npz"), ["no.npz"]),
        ((4, 2, INPUTS), ("--output", "nowhere/y.npy"), ["nowhere"]),
    ],
)
def test_wrong_input_to_run_and_simulate(cli, pristine, tmp_path, shape, arguments, words):
    np.save(tmp_path / "x.npy", np.zeros(shape))
    data = ("--input", tmp_path / "x.npy", *arguments)
    cli("run", pristine, "--backend", "golden", *data).refused(*words)
    if "--state" not in arguments:
        cli("simulate", pristine, "--simulator", "icarus", *data).refused(*words)
    cli("simulate", pristine, "--steps", 2**65).refused("--steps must be less than 2147483648, not ")
    assert [path.name for path in tmp_path.iterdir()] == ["x.npy"]


def test_wrong_files_to_run(cli, pristine, x_file, tmp_path):
    run = ("run", pristine, "--backend")
    cli(*run, "abacus", "--input", x_file).refused("abacus", "golden")
    cli(*run, "golden:5", "--input", x_file).refused("golden")
    cli(*run, "golden", "--input", tmp_path / "no.npy").refused("no.npy")
    cli(*run, "golden", "--input", pristine / "report.json").refused("report.json")
    cli(*run, "golden", "--input", tmp_path).refused(str(tmp_path))
    np.save(tmp_path / "nan.npy", np.full((2, INPUTS), np.nan))
    cli(*run, "golden", "--input", tmp_path / "nan.npy").refused("finite")
    np.savez(tmp_path / "s.npz", h=np.zeros(3), d=np.zeros(3))
    cli(*run, "golden", "--input", x_file, "--state", tmp_path / "s.npz").refused("h, d")


# simulate


@pytest.mark.rtl
def test_simulate(cli, pristine, x_file, tmp_path):
    arguments = ("simulate", pristine, "--simulator", "icarus")
    found = cli(*arguments, "--steps", "5", "--json").good().json
    assert found["passed"] and (found["steps"], found["sequences"]) == (10, 2)
    assert (found["output_words"], found["state_words"]) == (20, 16)
    assert found["output_different"] == found["state_different"] == found["cycles_different"] == 0
    assert found["cycles_predicted"] == found["cycles_measured"] > 0
    given = cli(*arguments, "--input", x_file, "--lengths", "6,3", "--output", tmp_path / "y.npy").good()
    assert "passed" in given.out
    with Accelerator.open(pristine, "golden") as accelerator:
        y, _ = accelerator.run(np.load(x_file), [6, 3])
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), y)


@pytest.mark.slow
@pytest.mark.rtl
def test_simulate_with_the_batch_first(cli, pristine, x_file, tmp_path):
    written = ("--output", tmp_path / "y.npy")
    arguments = ("simulate", pristine, "--simulator", "icarus", "--batch-first", *written)
    np.save(tmp_path / "n.npy", np.load(x_file).swapaxes(0, 1))
    result = cli(*arguments, "--input", tmp_path / "n.npy", "--lengths", "6,3", "--json").good()
    assert (result.json["sequences"], result.json["steps"]) == (2, 9)
    with Accelerator.open(pristine, "golden") as accelerator:
        y, _ = accelerator.run(np.load(x_file), [6, 3])
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy").swapaxes(0, 1), y)
    first = cli(*arguments, "--input", tmp_path / "n.npy", "--lengths", "6,3", "--steps", 4, "--json")
    assert first.code == 0 and first.json["steps"] == 4 + 3, first.err
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy").swapaxes(0, 1), y[:4])
    drawn = cli(*arguments, "--steps", "3", "--json").good()
    assert (drawn.json["sequences"], drawn.json["steps"]) == (2, 6)
    assert np.load(tmp_path / "y.npy").shape[:2] == (2, 3)


@pytest.mark.rtl
def test_simulate_fails_where_cycles_differ(cli, pristine, monkeypatch):
    predict = StepSchedule.offered
    monkeypatch.setattr(StepSchedule, "offered", lambda *given: [cycle + 1 for cycle in predict(*given)])
    result = cli("simulate", pristine, "--simulator", "icarus", "--steps", "3")
    assert result.code == 1 and "FAILED" in result.out


@pytest.mark.rtl
def test_simulate_fails_where_words_differ(cli, pristine, monkeypatch):
    run_steps = SimulatedDevice.run_steps

    def wrong(*given):
        y = run_steps(*given)
        y[3, 1] ^= 1
        return y

    monkeypatch.setattr(SimulatedDevice, "run_steps", wrong)
    result = cli("simulate", pristine, "--simulator", "icarus", "--steps", "3", "--json")
    assert result.code == 1, result.err
    assert result.json["passed"] is False and result.json["output_different"] == 1
    # Step by step, one of each of two streams: the fourth is the second step of the second.
    assert result.json["first_difference"].startswith("y[1, 1, 1] is ")


def test_unknown_simulator(cli, pristine):
    cli("simulate", pristine, "--simulator", "vcs").refused("'--simulator': 'vcs' is not one of 'verilator'")
    cli("implement", pristine, "--device", "up5k", "--router", "foo").refused("'--router': 'foo' is not one")


# All commands


def test_version_and_help(cli):
    version = cli("--version")
    assert version.code == 0 and version.out.startswith("rtlstm ")
    for arguments in ((), ("--help",), ("run", "--help")):
        result = cli(*arguments)
        assert result.code == 0 and "Usage" in result.out
    cli("fly").refused("fly", "rtlstm --help")


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (KeyboardInterrupt(), 130, "interrupted"),
        (PermissionError(13, "Permission denied", "b"), 2, "b: Permission denied"),
        (ZeroDivisionError("x"), 70, "ZeroDivisionError"),
        (MemoryError(), 2, "memory"),
    ],
)
def test_no_traceback_without_debug(cli, model, tmp_path, monkeypatch, error, code, words):
    def fail(*arguments, **options):
        raise error

    monkeypatch.setattr(rtlstm.gen.builds.generate, "choose_formats", fail)
    arguments = ("generate", model, "-o", tmp_path / "b", *DENSE)
    result = cli(*arguments, "--json")
    assert result.code == code
    assert words in result.err and result.err.count("\n") == 1 and words in result.json["error"]
    assert "Traceback" in cli(*arguments, "--debug").err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("arguments", [(), ("--json",)])
def test_a_reader_that_has_gone_is_no_error(pristine, arguments):
    reader, writer = os.pipe()
    os.close(reader)
    code = "import sys; from rtlstm.cli.main import main; main(sys.argv[1:])"
    command = [sys.executable, "-c", code, "inspect", str(pristine), *arguments]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, "")


@pytest.mark.rtl
def test_simulate_runs_the_builds_cocotb_test(cli, pristine):
    done = cli("simulate", pristine, "--cocotb", "--simulator", "icarus", "--json").good()
    assert done.json["tests"] == [{"name": "equals_golden_model", "failure": ""}]
    assert done.json["passed"]


def test_simulate_refuses_options_of_other_runs_with_cocotb(cli, pristine, tmp_path):
    wave, pad = ("--wave", tmp_path / "a.vcd"), ("--pad", "front")
    for words in (("--steps", "3"), ("--no-verify",), wave, ("--batch-first",), pad):
        cli("simulate", pristine, "--cocotb", *words).refused("--cocotb runs a test that has its own inputs")
