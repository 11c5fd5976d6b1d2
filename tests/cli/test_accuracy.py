"""``rtlstm accuracy``: what people and programs read, what the report gets, and what is refused."""

import json
import shlex
import shutil

import numpy as np
import pytest
import safetensors.numpy
from support.golden_runs import golden_outputs
from support.no_logic import no_logic
from support.small_builds import INPUTS, OUTPUTS, UNITS, snapshot, tensors

import rtlstm
from rtlstm import BuildReport, Manifest, WeightImage
from rtlstm.sim.reference import run_float
from rtlstm.spec.packing import unpack

pytestmark = pytest.mark.usefixtures("without_verilog")

STEPS, COUNT = 12, 3
DENSE = ("--dense", "fc:sigmoid")
OTHER = np.ones((4 * UNITS, INPUTS), np.float32)
"""Weights of another model."""


@pytest.fixture(scope="module")
def narrow(tmp_path_factory):
    """A build of few bits with a dense layer, and the model that it is of."""
    folder = tmp_path_factory.mktemp("narrow")
    safetensors.numpy.save_file(tensors(), folder / "tiny.safetensors")
    with no_logic():
        rtlstm.compile(
            folder / "tiny.safetensors",
            folder=folder / "build",
            dense=["fc:sigmoid"],
            weight_bits=4,
            data_bits=8,
            calibration=inputs(),
            lanes=4,
            macs=2,
        )
    return folder


def inputs() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(STEPS, COUNT, INPUTS))


@pytest.fixture
def files(tmp_path, narrow):
    np.save(tmp_path / "x.npy", inputs())
    np.save(tmp_path / "calibration.npy", inputs())
    shutil.copytree(narrow / "build", tmp_path / "build")
    return tmp_path


def expected_outputs(narrow):
    """Outputs of the model in float and of the golden model, by other ways than the command's."""
    manifest = Manifest.load(narrow / "build")
    network = unpack(WeightImage.load(narrow / "build" / "weights.bin", manifest), manifest)
    options = rtlstm.ReadOptions(dense=("fc:sigmoid",))
    model = rtlstm.read_model(narrow / "tiny.safetensors", options).network
    return run_float(model, inputs()).y, golden_outputs(network, inputs())


def test_sequences_begin_in_given_states(cli, files, narrow):
    state = {name: np.full((1, COUNT, UNITS), 0.4) for name in "hc"}
    np.savez(files / "state.npz", **state)
    arguments = ("accuracy", files / "build", "--input", files / "x.npy", "--json")
    given = cli(*arguments, "--state", files / "state.npz")
    zeros = cli(*arguments)
    assert given.code == zeros.code == 0, given.err
    told = "the sequences begin in the states that were given, not in the model's"
    assert told in given.json["remarks"] and told not in zeros.json["remarks"]
    first, later = (
        [found.json["output"]["steps"][step] for found in (given, zeros)] for step in (0, STEPS - 1)
    )
    assert first[0] != first[1] and abs(later[0] - later[1]) < abs(first[0] - first[1])
    np.savez(files / "few.npz", h=state["h"][:, :2], c=state["c"])
    refused = cli(*arguments, "--state", files / "few.npz")
    assert refused.code == 2 and "h_0 of x must be an array (1, 3, 4)" in refused.err


def test_with_the_model(cli, files, narrow):
    arguments = ("accuracy", files / "build", "--input", files / "x.npy")
    arguments += ("--model", narrow / "tiny.safetensors", *DENSE, "--calibrate", files / "calibration.npy")
    labels = np.random.default_rng(1).integers(0, OUTPUTS, (STEPS, COUNT))
    np.save(files / "y.npy", labels)
    found = cli(*arguments, "--labels", files / "y.npy", "--json").good()
    exact, fixed = expected_outputs(narrow)
    output = found.json["output"]
    assert output["rms_error"] == pytest.approx(np.sqrt(np.mean((fixed - exact) ** 2)), rel=1e-4)
    assert output["max_abs_error"] == pytest.approx(np.abs(fixed - exact).max(), rel=1e-4)
    noise = np.sqrt(np.mean((fixed - exact) ** 2) / np.mean(exact**2))
    assert output["snr_db"] == pytest.approx(-20 * np.log10(noise), abs=0.01)
    by_step = np.sqrt(np.mean((fixed - exact) ** 2, axis=(1, 2)))
    assert output["steps"] == pytest.approx(by_step.tolist(), rel=1e-4)
    # Four bits of weights cost most, and more help most.
    parts = {each["part"]: each for each in output["parts"]}
    assert list(parts) == ["weights", "activations", "tables", "state"]
    assert min(parts.values(), key=lambda each: each["without"]) is parts["weights"]
    assert parts["weights"]["without"] < output["rms_error"] / 2
    assert "weights" in found.json["verdict"] and found.json["advice"]["changes"]["weight_bits"] > 4
    assert "--weight-bits" in found.json["verdict"]
    score = found.json["score"]
    assert score["labels"] == labels.size
    assert score["float_score"] == pytest.approx(np.mean(exact.argmax(axis=2) == labels), rel=1e-5)
    assert score["fixed_score"] == pytest.approx(np.mean(fixed.argmax(axis=2) == labels), rel=1e-5)
    assert score["changed"] == np.count_nonzero(exact.argmax(axis=2) != fixed.argmax(axis=2))
    people = cli(*arguments)
    assert people.out.startswith("Error of the outputs: ")
    for words in ("--weight-bits 5", "lstm", "cycles", "fc", "SNR", "report.html"):
        assert words in people.out


def test_the_printed_command_gives_what_it_promises(cli, files, narrow):
    """Follow the advice: run the command, and measure again."""
    np.save(files / "other.npy", np.random.default_rng(5).normal(size=(40, 8, INPUTS)))
    measure = ("--input", files / "other.npy", "--model", narrow / "tiny.safetensors", *DENSE, "--json")
    found = cli("accuracy", files / "build", *measure, "--calibrate", files / "calibration.npy").json
    program, command, *words = shlex.split(found["next"])
    assert (program, command) == ("rtlstm", "generate")
    assert words[:3] == [str(narrow / "tiny.safetensors"), "-o", str(files / "build")]
    assert cli(command, *words).code == 0
    again = cli("accuracy", files / "build", *measure).json["output"]
    for name in ("rms_error", "max_abs_error"):
        assert again[name] == found["advice"][name]
    assert again["rms_error"] < 0.8 * found["output"]["rms_error"]
    report = BuildReport.load(files / "build")
    assert report.cycles.step_latency_cycles == found["advice"]["cost"]["step_latency_cycles"]
    assert (report.lanes, report.macs) == (4, 2)


@pytest.mark.slow
def test_the_array_of_a_device_may_change_with_a_bit(cli, files, narrow):
    model = narrow / "tiny.safetensors"
    cli("generate", model, "-o", files / "fitted", *DENSE, "--weight-bits", 4, "--fit", "lfe5u-25f-6")
    arguments = ("accuracy", files / "fitted", "--input", files / "x.npy", "--model", model, *DENSE, "--json")
    assert any("chosen for lfe5u-25f" in note for note in cli(*arguments).json["notes"])


@pytest.mark.slow
def test_why_a_width_cannot_be_built(cli, files, narrow):
    numbers = {"weight_bits": 8, "data_bits": 8, "gate_bits": 8, "cell_bits": 12}
    model, array = narrow / "tiny.safetensors", {"lanes": 4, "macs": 2}
    rtlstm.compile(
        model, folder=files / "least", dense=["fc:sigmoid"], calibration=inputs(), **numbers, **array
    )
    arguments = ("accuracy", files / "least", "--input", files / "x.npy", "--model", model, *DENSE)
    arguments += ("--calibrate", files / "calibration.npy")
    refused = {each["flag"]: each["refusal"] for each in cli(*arguments, "--json").json["widths"]}
    (options,) = (each for each in refused if each == "--gate-bits 7")
    assert refused[options].startswith("gates have 8 to 18 bits")
    lines = cli(*arguments).out.splitlines()
    assert f"{options}: {refused[options]}" in lines[lines.index("Widths that cannot be built:") :]
    assert not any(f"{options} " in line for line in lines)
    assert not any(line.startswith("--gate-bits 9") and ": " in line for line in lines)


def test_without_the_calibration_data(cli, files, narrow):
    arguments = ("accuracy", files / "build", "--input", files / "x.npy")
    found = cli(*arguments, "--model", narrow / "tiny.safetensors", *DENSE, "--json").json
    assert found["widths"] == [] and found["next"] is None
    assert any("give the same again, --calibrate" in note for note in found["notes"])
    cli(*arguments, "--calibrate", files / "calibration.npy").refused("give --model")
    cli(*arguments, "--calibrate-lengths", "3").refused(
        "--calibrate-lengths is for trying other widths", "give --calibrate,"
    )


def test_without_the_model(cli, files):
    before = snapshot(files / "build")
    page = files / "page.html"
    found = cli("accuracy", files / "build", "--input", files / "x.npy", "-o", page, "--json").good()
    assert not found.json["model"] and found.json["widths"] == []
    assert [each["part"] for each in found.json["output"]["parts"]] == ["activations", "tables", "state"]
    assert "rounded weights not counted" in found.json["verdict"]
    assert any("--model" in note for note in found.json["notes"])
    assert "Where accuracy goes" in page.read_text()
    assert snapshot(files / "build") == before


def test_the_report_gets_it(cli, files):
    assert "Where accuracy goes" not in (files / "build" / "report.html").read_text()
    found = cli("accuracy", files / "build", "--input", files / "x.npy", "--json")
    report = json.loads((files / "build" / "report.json").read_text())
    assert report["errors"]["output"] == found.json["output"]
    assert BuildReport.load(files / "build").errors is not None
    assert found.json["verdict"] in (files / "build" / "report.html").read_text()
    # The build itself is as it was.
    assert rtlstm.Build(files / "build").run(inputs())[0].shape == (STEPS, COUNT, OUTPUTS)


def test_batch_first_and_lengths(cli, files):
    """The same data in another order, and padding that may hold anything."""
    lengths = np.array([12, 5, 8])
    x = inputs()
    x[~(np.arange(STEPS)[:, None] < lengths)] = np.nan
    np.save(files / "x.npy", x)
    np.save(files / "first.npy", x.swapaxes(0, 1))
    labels = np.random.default_rng(1).integers(0, OUTPUTS, (STEPS, COUNT))
    np.save(files / "y.npy", labels)
    np.save(files / "yfirst.npy", labels.T)
    common = ("accuracy", files / "build", "--lengths", "12,5,8", "--json")
    one = cli(*common, "--input", files / "x.npy", "--labels", files / "y.npy").json
    other = cli(
        *common, "--input", files / "first.npy", "--labels", files / "yfirst.npy", "--batch-first"
    ).json
    assert one["total_steps"] == one["score"]["labels"] == 25
    for name in ("output", "layers", "saturations", "score"):
        assert one[name] == other[name]


def test_targets_and_last_steps(narrow):
    build, x = rtlstm.Build(narrow / "build"), inputs()
    y, _ = build.run(x)
    lengths = np.array([12, 5, 8])
    last = y[lengths - 1, np.arange(COUNT)]
    score = build.accuracy(x, labels=last + 0.25, lengths=lengths).score
    assert score is not None and score.measure == "mean absolute error"
    assert score.fixed_score == pytest.approx(0.25) and score.labels == last.size
    assert score.changed is None
    classes = build.accuracy(x, labels=last.argmax(axis=1), lengths=lengths).score
    assert classes is not None and classes.fixed_score == 1.0
    alone = build.accuracy(x[:, 0], labels=y[:, 0].argmax(axis=1)).score
    assert alone is not None
    assert (alone.fixed_score, alone.labels) == (1.0, STEPS)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"x": np.zeros((4, INPUTS + 1))}, ["x must be", f"(T, {INPUTS})", f"(4, {INPUTS + 1})"]),
        ({"x": np.zeros((4, INPUTS), dtype=int)}, ["x must hold real numbers", "int64"]),
        ({"x": np.full((4, INPUTS), np.nan)}, ["x must be finite", "x[0, 0] is nan", "nan_to_num"]),
        ({"x": np.zeros((0, INPUTS))}, ["x must be", "not empty"]),
        ({"y": np.zeros(STEPS, dtype=int)}, ["labels must be", f"({STEPS}, {COUNT})", "classes"]),
        (
            {"y": np.full((STEPS, COUNT), 2)},
            ["labels must be classes within 0 to 1", "that of step 0, sequence 0 is 2"],
        ),
        ({"y": np.zeros((STEPS, COUNT))}, ["labels must be", "floats are targets; classes are integers"]),
        ({"y": np.full((COUNT, OUTPUTS), np.inf)}, ["labels must be finite", "inf"]),
        ({"y": np.array(["a"] * COUNT)}, ["y.npy must be", "plain numbers"]),
        ({"lengths": "1,2"}, ["lengths must be 3 integers", "[1, 2]"]),
        ({"lengths": " "}, ["lengths must be whole numbers with commas between them"]),
        ({"options": DENSE}, ["--dense", "give --model"]),
        ({"model": {}}, ["read with the same options", "layer 2 is dense 4 -> 2 identity", "sigmoid"]),
        ({"model": {"lstm.weight_ih_l0": OTHER}}, ["weights of layer 'lstm' differ from the build's by"]),
    ],
)
def test_refused(cli, files, change, words):
    before = snapshot(files / "build")
    arguments = ["accuracy", files / "build", "--input", files / "x.npy", *change.get("options", ())]
    if "x" in change:
        np.save(files / "x.npy", change["x"])
    if "y" in change:
        np.save(files / "y.npy", change["y"])
        arguments += ["--labels", files / "y.npy"]
    if "lengths" in change:
        arguments += ["--lengths", change["lengths"]]
    if "model" in change:
        safetensors.numpy.save_file(tensors(**change["model"]), files / "other.safetensors")
        arguments += ["--model", files / "other.safetensors"]
        arguments += DENSE if change["model"] else ()
    cli(*arguments).refused(*words)
    assert snapshot(files / "build") == before
