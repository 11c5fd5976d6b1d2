"""``rtlstm explore``: what it finds, that its commands build that, and that nothing of a study is lost."""

import json
import os
import re
import shlex
import shutil
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest
import safetensors.numpy
from support.nam_files import content, save
from support.small_builds import INPUTS, tensors

from rtlstm import BuildReport, Manifest, compile, read_model
from rtlstm.cli.explore import Given
from rtlstm.explore.measure import measure_numbers, measure_point
from rtlstm.explore.metrics import find_metric
from rtlstm.explore.request import SearchOptions, SpaceOptions
from rtlstm.explore.search import Plan
from rtlstm.explore.search import explore as search
from rtlstm.explore.space import Numbers, Point
from rtlstm.fpga.estimate import BOARD_SHARE
from rtlstm.sim.reference import run_float
from rtlstm.tools.work import Workers, open_workers

DENSE = ("--dense", "fc:sigmoid")
SMALL = ("--devices", "up5k,lfe5u-25f-8", "--tables", "direct", "--weight-bits", "4,8", "--data-bits", "8")
SMALL += ("--gate-bits", "8", "--cell-bits", "12", "--lanes", "4", "--macs", "1,2")
"""Eight choices."""


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("explore")
    rng = np.random.default_rng(0)
    safetensors.numpy.save_file(tensors(), folder / "tiny.safetensors")
    np.save(folder / "x.npy", rng.normal(size=(12, 3, INPUTS)))
    np.savez(
        folder / "data.npz", x=rng.normal(size=(9, 5, INPUTS)), y=rng.integers(0, 2, (9, 5)), lengths=[9] * 5
    )
    (folder / "own_metric.py").write_text(
        "def score(outputs, labels):\n    assert outputs.shape == (9, 5, 2)\n    return 1 - labels.mean()\n"
    )
    (folder / "ratio.py").write_text(
        "import numpy\n\nfirst = []\n\n\ndef decibels(outputs, labels):\n"
        "    first.append(outputs.copy())\n    outputs -= first[0]\n"
        "    return numpy.log10(numpy.mean(outputs**2))\n"
    )
    (folder / "broken.py").write_text("def score(outputs, labels:\n")
    return folder


@pytest.fixture
def run(cli, files, tmp_path, monkeypatch):
    """Explore in this process, with a study of its own; the study's folder is ``out``."""
    monkeypatch.chdir(files)

    def call(*arguments: object, out: Path = tmp_path / "out"):
        given = ("explore", "tiny.safetensors", *DENSE, "--calibrate", "x.npy", "--workers", 1, "-o", out)
        return cli(*given, *arguments)

    return call


@pytest.mark.slow
@pytest.mark.rtl
def test_commands_build_what_was_found(run, cli, tmp_path, monkeypatch, files):
    # Simulated with golden model and cycles, one point of the front.
    found = run(*SMALL, "--simulate", 1, "--simulator", "icarus", "--json").good().json
    assert (found["size"], found["tried"], found["new"]) == (8, 8, 8)
    best = found["front"][0]
    assert best["proven"]["passed"] and best["proven"]["words"] > 100 and best["proof"] == "simulated"
    assert found["next"] == best["command"]
    assert json.loads((tmp_path / "out" / "explore.json").read_text()) == found
    assert {each["device"] for each in found["front"]} == {"up5k", "lfe5u-25f-8"}
    point = found["front"][-1]
    words = shlex.split(point["command"])
    words[words.index("-o") + 1] = str(tmp_path / "build")
    assert words[0] == "rtlstm" and cli(*words[1:]).code == 0
    manifest, report = Manifest.load(tmp_path / "build"), BuildReport.load(tmp_path / "build")
    assert manifest.cycles.step_latency_cycles == point["step_latency_cycles"]
    assert manifest.cycles.step_interval_cycles == point["step_interval_cycles"]
    assert (manifest.parameters.lanes, manifest.parameters.macs) == (point["lanes"], point["macs"])
    numerics = manifest.numerics
    bits = numerics.weight_bits, numerics.input.bits, numerics.gate.bits, numerics.cell.bits
    assert bits == tuple(point["choice"][f"{kind}_bits"] for kind in ("weight", "data", "gate", "cell"))
    assert report.accuracy.rms_error == pytest.approx(point["errors"]["rms"], rel=1e-4)
    assert report.accuracy.max_abs_error == pytest.approx(point["errors"]["largest"], rel=1e-4)
    estimate = next(each for each in report.estimates if each.device.startswith(point["device"][:9]))
    assert (estimate.luts, estimate.block_rams) == (point["luts"], point["block_rams"])
    # The same call again tries and proves nothing: all was kept. People see the same.
    monkeypatch.setattr("rtlstm.explore.search.prove_point", None)
    again = run(*SMALL, "--simulate", 1, "--simulator", "icarus")
    assert again.code == 0 and "8 of 8 choices tried" in again.out and "simulated" in again.out
    page = (tmp_path / "out" / "explore.html").read_text()
    assert all(json.dumps(each["command"])[1:-1] in page for each in found["front"])
    # It can be read on a phone and on a dark screen.
    assert 'name="viewport"' in page and "prefers-color-scheme: dark" in page
    # Nothing is fetched: scripts are in the page.
    bare = re.sub(r"(<script[^>]*>).*?</script>", r"\1", page, flags=re.DOTALL)
    assert "<script" in bare and not re.search(r"(src|href)=", bare)


@pytest.mark.slow
def test_devices_share_the_table_and_each_row_has_its_command(run):
    one = ("--tables", "direct", "--data-bits", 8, "--gate-bits", 8, "--cell-bits", 12)
    many = (*one, "--devices", "lfe5u-25f,lfe5u-25f-8,up5k", "--weight-bits", "2:9")
    many += ("--lanes", 4, "--macs", "1,2")
    found = run(*many, "--json").json
    counts = Counter(each["device"] for each in found["front"])
    # All take the eight multipliers of an up5k, which says nothing of how full it is.
    assert len({each["share"] for each in found["front"] if each["device"] == "up5k"}) > 2
    assert len(found["front"]) > 20 and found["next"] == found["front"][0]["command"]
    done = run(*many)
    rows = re.findall(r"^ *(\d+) +(\S+)", done.out, re.MULTILINE)
    shown = Counter(device for _, device in rows if device in counts)
    assert shown.total() == 16 and max(shown.values()) - min(shown.values()) <= 2
    assert f"next: {found['front'][0]['command']}" in done.err
    # Of one build its command alone, and its own JSON object.
    last = len(found["front"])
    one_build = run(*many, "--show", last)
    assert (one_build.code, one_build.out) == (0, found["front"][-1]["command"] + "\n")
    shown = run(*many, "--show", last, "--json").json
    assert shown | {"notes": []} == found["front"][-1] | {"next": None, "notes": []}
    run(*many, "--show", 99).refused(f"--show must be the number of a build, 1 to {len(found['front'])}")


@pytest.mark.slow
def test_h_in_odd_codes_is_searched(run, cli, tmp_path):
    """A cycle less, and a bit less of h; its command says so."""
    given = ("--devices", "lfe5u-25f-8", *SMALL[2:], "--hidden-rounding", "half_up,odd")
    found = run(*given, "--json").json
    assert found["size"] == found["tried"] == 8 and found["impossible"] == 0
    plain = run(*given[:-1], "half_up", "--json", out=tmp_path / "plain").json
    best, without = (min(each["step_latency_cycles"] for each in part["front"]) for part in (found, plain))
    assert best < without
    point = next(each for each in found["front"] if each["choice"]["hidden_rounding"] == "odd")
    assert point["numbers"].endswith(" direct odd")
    words = shlex.split(point["command"])
    words[words.index("-o") + 1] = str(tmp_path / "build")
    assert words[words.index("--hidden-rounding") + 1] == "odd" and cli(*words[1:]).code == 0
    assert Manifest.load(tmp_path / "build").cycles.step_latency_cycles == point["step_latency_cycles"]
    run(*SMALL, "--hidden-rounding", "up").refused("--hidden-rounding must be")


@pytest.mark.usefixtures("without_verilog")
def test_whole_sequences(cli, tmp_path, monkeypatch):
    """A network with a reverse direction: cycles are those of the longest sequence."""
    monkeypatch.chdir(tmp_path)
    rng, both = np.random.default_rng(3), {}
    for way in ("", "_reverse"):
        for name, shape in (("ih", (12, 2)), ("hh", (12, 3))):
            both[f"rnn.weight_{name}_l0{way}"] = rng.normal(size=shape).astype("f4") / 3
            both[f"rnn.bias_{name}_l0{way}"] = np.zeros(12, "f4")
    safetensors.numpy.save_file(both, "both.safetensors")
    np.save("steps.npy", rng.normal(size=(6, 2, 2)))
    asked = ("explore", "both.safetensors", "--calibrate", "steps.npy", "--workers", 1, *SMALL)
    cli(*asked).refused("keeps whole sequences on the device: state the longest one, with --max-steps")
    cli(*asked, "--max-steps", 6, "--devices", "up5k,icebreaker").refused(
        "--devices must be devices for a network with a reverse direction, not boards (icebreaker)"
    )
    done = cli(*asked, "--max-steps", 6, "--json").good()
    for best in (done.json["front"][0], done.json["front"][-1]):
        words = shlex.split(best["command"])
        assert words[words.index("--max-steps") + 1] == "6"
        assert cli(*words[1:]).code == 0
        manifest = Manifest.load(tmp_path / words[words.index("-o") + 1])
        assert manifest.sequence is not None and manifest.parameters.max_steps == 6
        assert manifest.cycles.step_latency_cycles == best["step_latency_cycles"]
        assert manifest.cycles.step_interval_cycles == best["step_interval_cycles"]


@pytest.mark.usefixtures("without_verilog")
def test_a_boards_clock_and_link_count(run, cli, tmp_path):
    few = (*SMALL[2:], "--devices", "ulx3s-25f,lfe5u-25f", "--json")
    found = run(*few).json
    board, bare = (
        next(each for each in found["front"] if each["device"] == name)
        for name in ("ulx3s-25f", "lfe5u-25f-6")
    )
    assert board["choice"] | {"device": ""} == bare["choice"] | {"device": ""}
    assert board["luts"] > bare["luts"] and board["cycles"] == bare["cycles"]
    # The clock that is expected of the bitstream: the estimate less a margin, on a device with the link.
    assert 0.8 * bare["fmax_mhz"] < board["fmax_mhz"] < BOARD_SHARE * bare["fmax_mhz"]
    assert board["latency_us"] == pytest.approx(board["cycles"] / board["fmax_mhz"], abs=1e-4)
    words = shlex.split(board["command"])
    words[words.index("-o") + 1] = str(tmp_path / "build")
    assert cli(*words[1:]).code == 0
    # The report's estimates begin with the board, which stands in the place of its device.
    estimate, *others = BuildReport.load(tmp_path / "build").estimates
    assert others and not any(each.device.startswith("lfe5u-25f") for each in others)
    assert (estimate.board, estimate.luts) == ("ulx3s-25f", board["luts"])
    assert estimate.fmax_mhz > estimate.clock_mhz == board["fmax_mhz"]
    assert estimate.step_latency_us == board["latency_us"]


@pytest.mark.slow
def test_sequences_begin_in_the_models_state(cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = save(tmp_path, content()[0])
    x = np.random.default_rng(0).uniform(-1, 1, (12, 3, 1))
    np.save("x.npy", x)
    given = ("explore", model, "--calibrate", "x.npy", "--workers", 1, "-o", "out", *SMALL, "--json")
    point = cli(*given, "--weight-bits", 8, "--macs", 1, "--devices", "up5k").json["front"][0]
    result = read_model(model)
    state = result.initial_state_of(3)
    build = compile(
        result, folder="build", calibration=x, **point["choice"] | {"device": None, "fit": "up5k"}
    )
    y, _ = build.run(x, state=state)
    error = y - run_float(result.network, x, state).y
    assert point["errors"]["rms"] == pytest.approx(np.sqrt(np.mean(error**2)), rel=1e-4)


def test_energies_rank(run):
    few = (*SMALL[2:], "--devices", "up5k,icebreaker", "--json")
    found = run(*few, "--goal", "energy").json
    energies = [each["energy_nj"] for each in found["front"]]
    assert energies == sorted(energies) and 0 < energies[0] < energies[-1]
    limit = run(*few, "--limit", f"energy<={energies[0]}nJ", "--goal", "energy").json
    assert limit["new"] == 0 and limit["within"] >= 1 and limit["front"][0] == found["front"][0]


@pytest.mark.slow
def test_metrics_of_labels(run, files, tmp_path):
    few = (*SMALL, "--evaluate", "data.npz", "--choices", 4)
    found = {
        name: run(*few, "--metric", name, "--json", out=tmp_path / name[:4]).json["front"][0]["measure"]
        for name in ("accuracy", "agreement", "own_metric:score", "max-error")
    }
    labels = np.load("data.npz")["y"]
    assert found["own_metric:score"] == pytest.approx(1 - labels.mean(), rel=1e-4)
    assert 0.5 < found["agreement"] <= 1 and 0 < found["max-error"] < 0.1
    share = found["accuracy"] * labels.size
    assert share == pytest.approx(round(share), abs=1e-3) and 0 < found["accuracy"] < 1


def test_own_metric_has_outputs_in_the_order_of_the_data(run, files, tmp_path):
    """With the batch first, outputs are (N, T, outputs), as x and y are; equal sizes would hide another."""
    data = np.load("data.npz")
    np.savez(tmp_path / "swapped.npz", **{name: data[name][:5, :5].swapaxes(0, 1) for name in "xy"})
    np.savez(tmp_path / "plain.npz", **{name: data[name][:5, :5] for name in "xy"})
    np.save(tmp_path / "first.npy", np.load("x.npy").swapaxes(0, 1))
    (files / "agrees.py").write_text(
        "def wrong(outputs, labels):\n    return ((outputs[..., 0] > 0.5) != labels).mean()\n"
        "def fails(outputs, labels):\n    return outputs + labels[:3]\n"
    )
    given = (*SMALL, "--choices", 2, "--metric", "agrees:wrong", "--json", "--evaluate")
    plain = run(*given, tmp_path / "plain.npz", out=tmp_path / "plain").json
    first = ("--calibrate", tmp_path / "first.npy", "--batch-first")
    same = run(*given, tmp_path / "swapped.npz", *first, out=tmp_path / "swapped").json
    assert same["float_metric"] == plain["float_metric"] > 0
    assert [each["measure"] for each in same["front"]] == [each["measure"] for each in plain["front"]]
    failing = (*SMALL, "--metric", "agrees:fails", "--evaluate", tmp_path / "plain.npz")
    run(*failing, out=tmp_path / "fails").refused("failed on outputs (5, 5, 2) and labels (5, 5): ValueError")


def test_study_without_a_result_is_begun_again(run, files, tmp_path, monkeypatch):
    module = files / "mended.py"
    given = (*SMALL, "--choices", 2, "--metric", "mended:score")
    try:
        module.write_text("def score(outputs, labels):\n    return outputs\n")
        run(*given).refused("the metric mended:score failed")
        module.write_text("def score(outputs, labels):\n    return outputs.mean()\n")
        monkeypatch.delitem(sys.modules, "mended")
        assert run(*given).code == 0
    finally:
        sys.modules.pop("mended", None)


@pytest.mark.slow
def test_metric_is_said(run, tmp_path):
    """What it is, which build is the best if that is not the first, and what the float network has."""
    given = (*SMALL, "--goal", "area")
    found = run(*given, "--json").json
    best = min(found["front"], key=lambda each: each["measure"])
    assert best["number"] > 1 and found["float_metric"] is None
    words = f"float outputs; the best is {best['measure']:.3g}, of build {best['number']}; --limit 'metric<=N"
    assert f"metric: error, root mean square of the differences from the {words}" in run(*given).out
    given = (*SMALL, "--evaluate", "data.npz", "--metric", "accuracy")
    found = run(*given, "--json", out=tmp_path / "labels").json
    assert 0 < found["float_metric"] < 1
    words = f"share of right decisions; the float network has {found['float_metric']:.3g}"
    assert f"metric: accuracy, {words}" in run(*given, out=tmp_path / "labels").out
    # A user's metric that has no value for the labels' own outputs, and changes what it is given.
    given = (*SMALL, "--metric", "ratio:decibels", "--json")
    found = run(*given, out=tmp_path / "ratio").json
    assert found["float_metric"] is None and all(each["measure"] < 0 for each in found["front"])


@pytest.mark.slow
def test_device_without_a_build_is_named(run, tmp_path):
    """So many multipliers are more than the UP5K can have."""
    given = (*SMALL[:-4], "--lanes", 16, "--macs", 4)
    found = run(*given, "--json").json
    assert list(found["without_build"]) == ["up5k"] and found["front"] and found["too_large"] == 2
    out = " ".join(run(*given).out.split())
    why = found["without_build"]["up5k"]
    assert f"none of the choices tried for up5k is a build; at best: {why}" in out
    assert "does not fit up5k" in why
    assert run(*SMALL, "--json", out=tmp_path / "all").json["without_build"] == {}


def test_device_beyond_the_limits_is_named(run, tmp_path):
    found = run(*SMALL, "--json").json
    slow = min(each["latency_us"] for each in found["front"] if each["device"] == "up5k")
    assert slow > min(each["latency_us"] for each in found["front"])
    limited = run(*SMALL, "--limit", f"latency<={slow - 0.001:.4f}us", "--json").json
    assert {each["device"] for each in limited["front"]} == {"lfe5u-25f-8"}
    (why,) = limited["beyond_limits"]["up5k"]
    out = " ".join(run(*SMALL, "--limit", f"latency<={slow - 0.001:.4f}us").out.split())
    assert f"up5k is left out by {why}" in out and not found["beyond_limits"]
    assert f": no build tried for up5k has it; the best is {slow:.4g} us" in why


def test_edited_metric_is_another(run, files, monkeypatch):
    given = (*SMALL, "--choices", 2, "--metric", "edited:Third_of3", "--limit", "Third_of3<=-0.3", "--json")
    module = files / "edited.py"
    try:
        module.write_text("def Third_of3(outputs, labels):\n    return -1 / 3\n")
        done = run(*given)
        # Results have few digits, as other errors do.
        assert done.code == 0 and done.json["front"][0]["measure"] == -0.33333
        module.write_text("def Third_of3(outputs, labels):\n    return -2 / 3\n\n")
        monkeypatch.delitem(sys.modules, "edited")
        run(*given).refused("holds a study that differs in: source of the metric")
    finally:
        sys.modules.pop("edited", None)


def test_what_rules_all_out(run, tmp_path):
    page = tmp_path / "out" / "explore.html"
    assert run(*SMALL, "--json").json["page"] == str(page)
    kept = page.read_bytes()
    done = run(*SMALL, "--limit", "latency<=1ns", "--limit", "error<=0.5", "--json")
    assert done.code == 1 and done.json["front"] == [] and done.json["within"] == 0
    assert done.json["page"] is None and page.read_bytes() == kept
    (why,) = done.json["ruled_out"]
    assert why.startswith("latency<=1ns: no build that was tried has it; the best is ")
    # Others, over the same study: nothing is worked out again.
    done = run(*SMALL, "--limit", "error<=0.5", "--json")
    assert done.code == 0 and done.json["new"] == 0 and done.json["within"] == done.json["tried"] == 8
    assert page.exists()


def test_the_page_has_no_column_without_values(run, tmp_path):
    """Energy is known of one device alone."""
    pages = []
    for devices in ("up5k,lfe5u-25f-8", "lfe5u-25f-8"):
        assert run("--devices", devices, *SMALL[2:], out=tmp_path / devices).code == 0
        pages.append((tmp_path / devices / "explore.html").read_text())
    assert ["energy, nJ" in page for page in pages] == [True, False]


@pytest.mark.parametrize(
    "arguments, words",
    [
        (("--devices", "lfe5u-26f"), ("there is no device 'lfe5u-26f'",)),
        (("--metric", "f1"), ("a metric must be one of", "not 'f1'")),
        (
            ("--metric", "accuracy"),
            (
                "needs labels that are integers",
                "there are none",
                "y beside inputs x in the .npz file of --evaluate",
            ),
        ),
        (("--limit", "latency<2us"), ("a limit must be NAME<=NUMBER", "not 'latency<2us'")),
        (("--limit", "latency<=2"), ("must have a unit",)),
        (("--weight-bits", "1:8"), ("--weight-bits must be greater than or equal to 2",)),
        (("--tables", "small"), ("tables must be",)),
        (("--scheduler", "tcp://127.0.0.1:9"), ("give one of them",)),
        (("--metric", "broken:score"), ("the metric broken:score cannot be imported: SyntaxError",)),
        (("--seeds", 3), ("--seeds needs --route",)),
        (("--simulate", 1, "--seeds", 1), ("--seeds needs --route",)),
        (("--simulator", "verilator"), ("--simulator needs --simulate or --route",)),
        (("--goal", "energy"), ("published currents, which are known of up5k alone", "not of lfe5u-25f-6")),
        (("--limit", "energy<=9nJ", "--devices", "hx8k"), ("not of hx8k; leave these out of --devices",)),
        (("--devices", "5cseba6"), ("--devices needs estimates", "not for 5cseba6; leave it out")),
        (("--devices", "zybo-z7-20"), ("what surrounds the core on zybo-z7-20; name its device, xc7z020",)),
        (("--devices", "up5k,xc7a35t"), ("--devices needs the clock", "of xc7a35t", "--clock 200")),
        (("--clock", 200), ("--clock is for devices whose delays no tool here knows",)),
    ],
)
def test_refusals(run, arguments, words):
    run(*arguments).refused(*words)


def test_routes_need_place_and_route(run):
    refused = run("--devices", "xc7a35t", "--clock", 200, "--route", 1)
    assert refused.code == 2
    assert "error: --route needs place and route, of which there is none here for xc7a35t" in refused.err


def test_refused_studies(run, cli, tmp_path, files, monkeypatch):
    assert run(*SMALL, "--choices", 2).code == 0
    run(*SMALL, "--choices", 2, "--seed", 1).refused("holds a study that differs in: seed", "--output")
    run(*SMALL[:-1], "1", "--choices", 2).refused("holds a study that differs in: space")
    other = tmp_path / "other.safetensors"
    safetensors.numpy.save_file(tensors(**{"fc.bias": np.ones(2, np.float32)}), other)
    given = ("explore", other, *DENSE, "--calibrate", "x.npy", "--workers", 1, "-o", tmp_path / "out", *SMALL)
    cli(*given).refused("holds a study that differs in: model;")
    (tmp_path / "out" / "study.journal").write_text("what is this\n")
    run(*SMALL).refused("is damaged", "delete it")
    monkeypatch.setitem(sys.modules, "optuna", None)
    run(*SMALL).refused("needs the package 'optuna'", "pip install 'rtlstm[explore]'")


@pytest.mark.usefixtures("without_verilog")
def test_bits_of_h_and_schedules_are_those_of_the_build(files, cli, tmp_path, monkeypatch):
    """Those that generate chooses are tried, too; kept sums and a wave-front exclude each other."""
    monkeypatch.chdir(files)
    given = Given(Path("tiny.safetensors"), Path("x.npy"), None, False, "back", {"dense": ("fc:sigmoid",)})
    numbers = {"weight_bits": "8", "data_bits": "8", "gate_bits": "12", "cell_bits": "16"}
    asked = SpaceOptions(
        devices="lfe5u-25f-8",
        tables="interpolated",
        hidden_bits="10",
        lane_sums="16",
        wave_front=True,
        lanes="8",
        macs="1",
        **numbers,
    )
    space, context = given.read(find_metric("error"), None, asked)
    choices = [space.choice(indices) for indices in space.all_indices()]
    assert len(choices) == space.size == 6 and {each.hidden_bits for each in choices} == {None, 10}
    for number, choice in enumerate(each for each in choices if each.hidden_bits):
        measured = measure_numbers(context, choice)
        assert isinstance(measured, Numbers)
        point = measure_point(context, (choice, measured))
        assert isinstance(point, Point)
        words = shlex.split(given.command(number, choice.options))
        words[words.index("-o") + 1] = str(tmp_path / f"{number}")
        assert cli(*words[1:]).code == 0
        manifest = Manifest.load(tmp_path / f"{number}")
        found = manifest.parameters
        assert (found.lane_sums, found.wave_front) == (choice.lane_sums, choice.wave_front)
        assert manifest.numerics.data_bits == 10
        cycles = manifest.cycles
        assert (cycles.step_latency_cycles, cycles.step_interval_cycles) == (
            point.step_latency_cycles,
            point.step_interval_cycles,
        )


class Stopped:
    """Workers that are interrupted after some items, as by Ctrl-C."""

    description = "interrupted"

    def __init__(self, workers: Workers, items: int) -> None:
        self.workers, self.left = workers, items

    def run(self, function, shared, items) -> Iterator[tuple[int, object]]:
        for found in self.workers.run(function, shared, items):
            self.left -= 1
            if self.left < 0:
                raise KeyboardInterrupt
            yield found


class Killed:
    """Workers of which one is killed in the midst of its work."""

    description = "killed"

    def __init__(self, workers: Workers) -> None:
        self.workers, self.killed = workers, 0

    def run(self, function, shared, items) -> Iterator[tuple[int, object]]:
        for found in self.workers.run(function, shared, items):
            if not self.killed:
                children = psutil.Process().children()
                self.killed = next(each.pid for each in children if "spawn_main" in "".join(each.cmdline()))
                os.kill(self.killed, signal.SIGKILL)
            yield found


@pytest.mark.slow
def test_nothing_is_lost(files, tmp_path, monkeypatch):
    """Interruptions, killed workers and their number change nothing of what is found."""
    monkeypatch.chdir(files)
    given = Given(Path("tiny.safetensors"), Path("x.npy"), None, False, "back", {"dense": ("fc:sigmoid",)})
    asked = SpaceOptions(
        devices="up5k,lfe5u-25f-8",
        tables="direct",
        weight_bits="4:11",
        data_bits="8,9",
        gate_bits="8",
        cell_bits="12",
        lanes="4,8,16",
        macs="1,2,4",
    )
    space, context = given.read(find_metric("error"), None, asked)

    def plan(name: str) -> Plan:
        return Plan(space, tmp_path / name, (), SearchOptions(choices=48, seed=3))

    def found(name: str, workers: Workers) -> dict:
        return search(context, plan(name), workers).model_dump(exclude={"new", "seconds", "workers"})

    with open_workers(1) as one:
        counted = Stopped(one, 1000)
        whole = found("whole", counted)
        assert whole["size"] == 288 and whole["tried"] == 48 and len(whole["front"]) > 5
        # In the first generation, and in the second. What was done before is not done again.
        done = 1000 - counted.left
        for items in (10, done - 10 - 2):
            with pytest.raises(KeyboardInterrupt):
                found("stopped", Stopped(one, items))
            # As if the process had been killed while it wrote.
            with (tmp_path / "stopped" / "study.journal").open("a") as file:
                file.write('{"op_code": 5, "wor')
        counted = Stopped(one, 1000)
        assert found("stopped", counted) == whole
        assert 1000 - counted.left == 2
    with open_workers(2) as two:
        killed = Killed(two)
        assert found("killed", killed) == whole
        assert killed.killed and not psutil.pid_exists(killed.killed)
    shutil.rmtree(tmp_path / "killed")


def test_notes_of_the_reader_are_shown(run, monkeypatch):
    """As generate shows them: data in the wrong order give errors that nothing else explains."""

    def read(*given: object):
        found = read_model(*given)
        return found.replace(report=found.report.replace(notes=("mind the order",)))

    monkeypatch.setattr("rtlstm.cli.explore.read_model", read)
    assert "note: mind the order" in run(*SMALL).err
