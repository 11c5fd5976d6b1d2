"""The command, end to end on the smallest shape, and its verdicts."""

import csv
import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rtlstm.bench import benchmark
from rtlstm.bench.hardware import (
    build_shape,
    describe,
    estimated_clock,
    measure_cycles,
    post_route,
    predict_cycles,
)
from rtlstm.bench.records import BenchResult
from rtlstm.bench.shapes import SHAPES, find_shapes
from rtlstm.cli.main import app

pytestmark = pytest.mark.rtl


@pytest.fixture(scope="module")
def builds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("builds")


@pytest.fixture(scope="module")
def found(builds: Path) -> BenchResult:
    saved = builds.parent / "saved.json"
    files = ["-o", str(builds), "--save", str(saved), "--csv", str(saved.with_suffix(".csv"))]
    done = CliRunner().invoke(app, ["bench", "traffic20", "--quick", "--json", *files])
    assert done.exit_code == 0, done.stderr
    fields = json.loads(done.stdout)
    assert fields.pop("notes") and fields.pop("next") is None
    assert fields == json.loads(saved.read_text())
    return BenchResult.model_validate_json(saved.read_text())


@pytest.mark.slow
def test_cycles_are_measured_and_equal(found: BenchResult) -> None:
    (shape,) = found.shapes
    hardware = shape.hardware
    assert found.passed and hardware.agrees and not hardware.not_simulated
    assert hardware.measured_latency == hardware.predicted_latency > hardware.array_cycles
    assert hardware.measured_interval == hardware.predicted_interval
    assert hardware.words_compared == hardware.steps + 2 * 20
    assert sum(layer.overhead_cycles for layer in hardware.layers) == hardware.overhead_cycles


def test_times_follow_from_cycles_and_clock(found: BenchResult) -> None:
    (shape,) = found.shapes
    assert (shape.clock.source, shape.clock.mhz) == ("assumed", 100)
    hardware = shape.hardware
    assert shape.latency_us == pytest.approx(hardware.predicted_latency / 100)
    assert shape.sequence_us == pytest.approx(hardware.predicted_sequence / 100)
    # Its inputs wait, and all outputs but the last are left out: less than six steps one by one.
    assert hardware.predicted_latency < hardware.predicted_sequence
    assert hardware.predicted_sequence <= 6 * (hardware.predicted_latency + hardware.predicted_interval)


def test_every_engine_is_timed_and_checked(found: BenchResult) -> None:
    (shape,) = found.shapes
    assert [time.engine for time in shape.cpu] == ["onnxruntime", "torch", "c++", "c++ int8"]
    for time in shape.cpu:
        assert not time.missing
        assert 0 < time.p50_us <= time.p99_us
        assert time.rms_error <= time.max_error < (0.02 if time.engine == "c++ int8" else 1e-3)
        assert bool(time.kernel) == (time.ready_us is not None) == time.engine.startswith("c++")


def test_anchors_stand_beside(found: BenchResult) -> None:
    (shape,) = found.shapes
    assert {anchor.shape for anchor in shape.anchors} == {"traffic20"}
    # Figures of other networks are of a run of all networks.
    assert not found.other_anchors


def test_goals_are_not_told_unasked(found: BenchResult) -> None:
    assert not found.targets and not found.golden


def test_csv_has_the_figures_of_the_json_object(builds: Path, found: BenchResult) -> None:
    with (builds.parent / "saved.csv").open(newline="") as file:
        (row,) = csv.DictReader(file)
    (shape,) = found.shapes
    assert row["name"] == "traffic20" and row["units"] == "20"
    assert int(row["hardware.predicted_latency"]) == shape.hardware.predicted_latency
    assert float(row["latency_us"]) == shape.latency_us
    assert int(row["hardware.layers.lstm0.overhead_cycles"]) == shape.hardware.layers[0].overhead_cycles
    for time in shape.cpu:
        assert float(row[f"cpu.{time.engine}.p50_us"]) == time.p50_us
        assert row[f"cpu.{time.engine}.kernel"] == time.kernel
    assert float(row["anchors.0.highest_us"]) == shape.anchors[0].highest_us


@pytest.mark.parametrize("name", ["traffic20", "toptag", "mnist32", "nam16_space", "dropbear_wave"])
def test_prediction_needs_no_weights(name: str) -> None:
    shape = SHAPES[name]
    manifest = shape.manifest()
    assert predict_cycles(shape).cycles.model_dump(exclude={"layers"}) == manifest.cycles.model_dump(
        exclude={"layers"}
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", ["nam16_space", "toptag_space", "dropbear_wave"])
def test_networks_in_space_and_in_a_wave_front_are_as_predicted(name: str, tmp_path: Path) -> None:
    build_shape(SHAPES[name], tmp_path)
    assert measure_cycles(SHAPES[name], tmp_path, 24).agrees


@pytest.mark.slow
def test_stac_c_is_predicted() -> None:
    hardware = describe(predict_cycles(SHAPES["stac_c"]), 3, SHAPES["stac_c"].without_rtl)
    assert hardware.agrees and hardware.measured_latency is None
    assert hardware.array_cycles >= SHAPES["stac_c"].input_path_macs / 128


@pytest.mark.slow
def test_without_rtl_says_so(tmp_path: Path) -> None:
    names = ["traffic20", "gru512"]
    words = ["bench", *names, "--quick", "--no-rtl", "--goals", "-o", str(tmp_path / "no")]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.stderr
    for name in names:
        latency = predict_cycles(SHAPES[name]).cycles.step_latency_cycles
        assert f" {latency:,}* " in done.stdout
    assert re.search(r"gru512 +VOLLO SDK 29.* 0\.694 ", done.stdout)
    # Whatever tells cycles or times of the hardware names the pipeline: four tables, and the targets.
    heads = [line for line in done.stdout.splitlines() if line.lstrip().startswith("network ")]
    assert len(heads) == 4 and all("pipeline" in head for head in heads)
    rows = [line for line in done.stdout.splitlines() if "traffic20" in line]
    rows = [row for row in rows if not row.startswith("A C++ loop on one core")]
    assert len(rows) >= 7 and all("ecp5" in row for row in rows)
    assert "Goals of the project" in done.stdout
    # A loop is quicker than a hundred MHz for so small a network: why one would want an FPGA is told.
    assert re.search(
        r"A C\+\+ loop on one core .* is quicker .*: traffic20.* An FPGA is then for ", done.stdout
    )
    assert re.search(r"The int8 loop multiplies with (AVX|portable)", done.stdout)
    assert "* predicted only, not asked for (--no-rtl): traffic20, gru512" in done.stderr
    assert not (tmp_path / "no").exists()


@pytest.fixture
def no_engines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time nothing on this machine."""
    monkeypatch.setattr(benchmark, "start", lambda *_, **__: iter(()))


@pytest.mark.usefixtures("no_engines")
def test_without_rtl_nothing_is_built(tmp_path: Path) -> None:
    """What :func:`test_without_rtl_says_so` says of the hardware, without the times of this machine."""
    names = ["traffic20", "nam16_space", "dropbear_wave"]
    words = ["bench", *names, "--quick", "--no-rtl", "--goals", "-o", str(tmp_path / "no")]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.stderr
    latency = predict_cycles(SHAPES["traffic20"]).cycles.step_latency_cycles
    assert f" {latency:,}* " in done.stdout
    assert f"* predicted only, not asked for (--no-rtl): {', '.join(names)}" in done.stderr
    # Both kinds: in space at a clock that is estimated, and with an array.
    (space,) = re.findall(r"^ *nam16_space .*space, 1 .*", done.stdout, re.M)
    mhz = estimated_clock(SHAPES["nam16_space"]).mhz
    assert f" {mhz:g} ~ " in space and f"{1 / mhz:.3g}" in space
    assert estimated_clock(SHAPES["nam16"]) is None
    assert predict_cycles(SHAPES["dropbear_wave"]).cycles.step_interval_cycles == 21
    assert not (tmp_path / "no").exists()


def test_loop_is_beside_the_step_of_the_recurrence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A loop may be slower step after step, and still quicker from an input to its output."""
    loop = {"engine": "c++ int8", "mean_us": 0.06, "p99_us": 0.07, "ready_us": 0.05, "kernel": "AVX2"}

    def timed(_: str, engine: str, names: list[str], **__: object) -> list[dict[str, object]]:
        return [{"shape": name, "time": loop} for name in names if engine == loop["engine"]]

    monkeypatch.setattr(benchmark, "start", timed)
    names = ["nam16_space", "traffic20"]
    done = CliRunner().invoke(app, ["bench", *names, "--quick", "--no-rtl", "-o", str(tmp_path / "no")])
    assert done.exit_code == 0, done.stderr
    mhz = estimated_clock(SHAPES["nam16_space"]).mhz
    latency = predict_cycles(SHAPES["nam16_space"]).cycles.step_latency_cycles / mhz
    times = rf" 0\.06 +0\.07 +0\.05 +- +{1 / mhz:.3g} ~ +{latency:.3g} ~ +ecp5"
    assert re.search(rf"^ *nam16_space .*{times}", done.stdout, re.M)
    said = "step after step: traffic20; from an input to its output: nam16_space, traffic20. An FPGA is then"
    assert said in done.stdout


@pytest.mark.usefixtures("no_engines")
def test_difference_fails(builds: Path, found: BenchResult, monkeypatch: pytest.MonkeyPatch) -> None:
    hardware = measure_cycles(SHAPES["traffic20"], builds / "traffic20", 4)
    assert hardware.agrees and not hardware.replace(words_different=1).agrees
    assert not hardware.replace(steps_off_cycle=1).agrees
    assert not hardware.replace(measured_latency=60).agrees
    monkeypatch.setattr(
        "rtlstm.bench.benchmark.measure_cycles", lambda *_: hardware.replace(measured_interval=None)
    )
    done = CliRunner().invoke(app, ["bench", "traffic20", "--quick", "-o", str(builds)])
    assert done.exit_code == 1
    assert "FAILED" in done.stdout and "oals of the project" not in done.stdout
    assert "! traffic20: 0 of" in done.stderr and "interval not constant measured" in done.stderr


def test_post_route_clock(tmp_path: Path) -> None:
    assert post_route(tmp_path) is None
    report = tmp_path / "report.json"
    report.write_text(json.dumps({"name": "x"}))
    assert post_route(tmp_path) is None
    implementation = {"device": "lfe5u-85f", "speed_grade": "8", "fmax_median_mhz": 201.5}
    report.write_text(
        json.dumps({"implementations": [{"device": "up5k", "fmax_median_mhz": 30}, implementation]})
    )
    clock = post_route(tmp_path)
    assert clock is not None and clock.label == "201.5 MHz post-route, lfe5u-85f grade 8"
    assert post_route(tmp_path, ("lfe5u-85f",)) == clock
    several = implementation | {"cores": 4, "fmax_median_mhz": 150}
    report.write_text(json.dumps({"implementations": [implementation, several]}))
    assert post_route(tmp_path) == clock
    report.write_text(
        json.dumps({"implementations": [{"device": "up5k", "fmax_median_mhz": 30}, implementation]})
    )
    other = post_route(tmp_path, ("up5k",))
    assert other is not None and other.label == "30 MHz post-route, up5k"
    assert post_route(tmp_path, ("up5k-ice",)) is None
    report.write_text(json.dumps({"implementations": [implementation | {"fmax_median_mhz": None}]}))
    assert post_route(tmp_path) is None


@pytest.mark.usefixtures("no_engines")
def test_build_that_is_there_is_used(builds: Path, found: BenchResult) -> None:
    report = builds / "traffic20" / "report.json"
    fields = json.loads(report.read_text())
    routed = {"device": "lfe5u-85f", "fmax_median_mhz": 200}
    report.write_text(json.dumps(fields | {"implementations": [routed]}))
    done = CliRunner().invoke(app, ["bench", "traffic20", "--quick", "-o", str(builds), "--json"])
    assert done.exit_code == 0, done.stderr
    (shape,) = json.loads(done.stdout)["shapes"]
    assert shape["clock"] == {"mhz": 200.0, "source": "post-route", "device": "lfe5u-85f"}
    assert shape["latency_us"] == pytest.approx(shape["hardware"]["predicted_latency"] / 200)


def test_schema_names_what_users_read() -> None:
    fields = BenchResult.model_json_schema()["properties"]
    assert {"machine", "shapes", "golden", "targets", "passed", "schema_version"} <= set(fields)


@pytest.mark.parametrize(
    "arguments",
    [
        ["mnist"],
        ["traffic20", "--clock", "0"],
        ["traffic20", "--save", "/nowhere/x.json"],
        ["traffic20", "--csv", "/nowhere/x.csv"],
        ["--link", "--goals"],
    ],
)
def test_wrong_arguments_end_with_2(arguments: list[str]) -> None:
    done = CliRunner().invoke(app, ["bench", *arguments])
    assert done.exit_code == 2 and done.stderr.count("error: ") == 1


def test_builds_are_used_again_unless_their_verilog_is_another(found: BenchResult, builds: Path) -> None:
    folder = builds / "traffic20"
    rtl, report = folder / "rtl" / "traffic20.v", folder / "report.json"
    before = report.stat().st_mtime_ns
    build_shape(SHAPES["traffic20"], folder)
    assert report.stat().st_mtime_ns == before
    text = rtl.read_text()
    rtl.write_text(text + "// an older version's\n")
    build_shape(SHAPES["traffic20"], folder)
    assert rtl.read_text() == text and report.stat().st_mtime_ns > before


@pytest.mark.usefixtures("no_engines")
def test_networks_that_ended_before_an_interruption_are_kept(tmp_path: Path, monkeypatch) -> None:
    done: list[str] = []

    def figures(shape, plan, progress):
        if shape.name == "toptag" and len(done) == 1:
            done.append("interrupted")
            raise KeyboardInterrupt
        done.append(shape.name)
        return describe(predict_cycles(shape), shape.steps, "not asked for")

    monkeypatch.setattr(benchmark, "_figures", figures)
    plan = benchmark.Plan(find_shapes(["traffic20", "toptag"]), tmp_path, quick=True)
    with pytest.raises(KeyboardInterrupt):
        benchmark.run_bench(plan)
    assert (tmp_path / "bench.journal").exists()
    found = benchmark.run_bench(plan)
    assert done == ["traffic20", "interrupted", "toptag"] and not (tmp_path / "bench.journal").exists()
    assert [shape.name for shape in found.shapes] == ["traffic20", "toptag"]
    wanted = [predict_cycles(SHAPES[name]).cycles.step_latency_cycles for name in ("traffic20", "toptag")]
    assert [shape.hardware.predicted_latency for shape in found.shapes] == wanted


@pytest.mark.slow
@pytest.mark.usefixtures("no_engines")
def test_two_workers_measure_what_one_does(tmp_path: Path) -> None:
    shapes = find_shapes(["traffic20", "toptag", "nam16"])
    one, two = (
        benchmark.run_bench(benchmark.Plan(shapes, tmp_path, quick=True, rtl=False, workers=workers))
        for workers in (1, 2)
    )
    assert [each.hardware for each in two.shapes] == [each.hardware for each in one.shapes]
    assert len(two.shapes) == 3
