"""What Python tells a user: notes, reports and help, progress, and where numbers are looked up."""

import io
import pydoc
import sys

import numpy as np
import pytest
from support.lazy import nets, torch
from support.no_logic import no_logic

import rtlstm
from rtlstm.gen.builds.report import BuildReport
from rtlstm.spec import progress
from rtlstm.spec.errors import InputError

ARRAY = {"lanes": 4, "macs": 2, "weight_bits": 16, "data_bits": 16}


def make_tagger():
    """Letters to classes: both ends stay with the host."""
    return nets.Net(
        lambda net, x: net.head(net.lstm(net.letters(x))[0]).softmax(-1),
        letters=torch.nn.Embedding(7, 3),
        lstm=torch.nn.LSTM(3, 5, batch_first=True),
        head=torch.nn.Linear(5, 4),
    )


@pytest.fixture(scope="module")
def tagger():
    torch.manual_seed(0)
    return make_tagger().eval()


@pytest.fixture(scope="module")
def tokens():
    return np.random.default_rng(0).integers(0, 7, (6, 9))


@pytest.fixture(scope="module")
def build(tagger, tokens, tmp_path_factory):
    with no_logic(), pytest.warns(rtlstm.NoteWarning) as told:
        build = rtlstm.compile(
            tagger, calibration=tokens, folder=tmp_path_factory.mktemp("tagger") / "build", **ARRAY
        )
    report = build.report()
    texts = [str(each.message) for each in told if each.category is rtlstm.NoteWarning]
    assert texts == [*report.assumptions, *report.notes] and texts
    assert all(each.filename == __file__ for each in told if each.category is rtlstm.NoteWarning)
    return build


def test_numbers_are_looked_up_where_the_model_does(build, tagger, tokens):
    wanted = tagger(torch.from_numpy(tokens)).detach().numpy()
    y, _ = build.run(tokens)
    (table,) = build.embeddings
    assert np.abs(rtlstm.host.softmax(y) - wanted).max() < 5e-3
    assert np.array_equal(build.run(table(tokens))[0], y)
    assert np.array_equal(build.run(tokens[0])[0], y[0])
    assert build.accuracy(tokens).steps == 9
    with pytest.raises(InputError, match="tokens from 0 to 6, which the model looks up in 'letters'"):
        build.run(tokens + 5)


def test_a_report_is_read_by_people(build):
    report = build.report()
    text = str(report)
    assert len(text) < 2000 and max(map(len, text.splitlines())) < 400 and len(text.splitlines()) < 25
    assert "lstm: lstm, 3 -> 5" in text and text.endswith(report.verdict)
    assert all(note in text for note in report.notes)
    assert repr(report) == f"<BuildReport {report.name}: {report.verdict}>"


def test_the_verdict_is_one_sentence_of_the_figures(build, tokens):
    report = build.report()
    found = report.accuracy
    assert found.decisions == tokens.size and 0 <= found.decisions_changed <= 2
    wanted = f"{100 * found.rms_error / found.spread:.2g} % of the outputs' spread, on calibration data; "
    decided = f"{found.decisions_changed} of 54 decisions change; a step takes "
    assert wanted + decided + f"{report.cycles.step_latency_cycles} cycles" in report.verdict
    # Of outputs that do not change, there is no spread; of no classes, there are no decisions.
    other = report.replace(accuracy=found.replace(spread=0.0, decisions=0))
    assert "decisions" not in other.verdict and f"is {found.rms_error:.3g} rms" in other.verdict
    assert BuildReport.load(build.folder).verdict == report.verdict


@pytest.mark.parametrize("name", ["Custom", "Lstm", "Network", "Parameters", "Manifest", "ReadOptions"])
def test_help_is_of_the_class_and_not_of_its_library(name):
    shown = pydoc.plain(pydoc.render_doc(getattr(rtlstm, name)))
    assert "model_dump" not in shown and "model_config" not in shown and "Validator" not in shown
    assert getattr(rtlstm, name).__doc__.splitlines()[0] in shown
    assert len(shown.splitlines()) < 200


@pytest.mark.usefixtures("without_verilog")
def test_long_work_is_shown_and_pipes_stay_clean(build, tagger, tokens, monkeypatch, tmp_path):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.delenv("RTLSTM_PROGRESS", raising=False)
    for name in ("_LONG_SECONDS", "_DRAW_SECONDS"):
        monkeypatch.setattr(progress, name, 0.0)
    from rtlstm.train import prepare

    work = {
        "run": lambda: build.run(tokens),
        "choose formats": lambda: prepare(tagger.lstm, calibration=build.embeddings[0](tokens)),
        "quantise": lambda: rtlstm.compile(tagger, folder=tmp_path / "build", **ARRAY),
    }
    for what, call in work.items():
        monkeypatch.setattr(sys, "stderr", file := Terminal())
        call()
        assert f"\r{what} [" in file.getvalue(), what
        monkeypatch.setattr(sys, "stderr", file := io.StringIO())
        call()
        assert not file.getvalue()
