"""The benchmark of the serial link: short runs of the real thing, and its command."""

import json

import pytest

import rtlstm.bench.link as module
from rtlstm.bench.link import measure_efficiency, soak
from rtlstm.gen.cli import main


def test_efficiency():
    found = list(measure_efficiency(quick=True))
    assert [each.payload_bytes for each in found] == [256, 256, 12, 12]
    for each in found:
        assert each.passed and each.steps_per_second == pytest.approx(each.limit_per_second * each.line_use)
    assert found[0].payload_share == pytest.approx(256 / 272, rel=0.01)
    assert not found[0].replace(payload_share=0.8).passed
    assert not found[2].replace(line_use=0.8).passed


def test_soak_counts_what_is_wrong(monkeypatch):
    good = soak(640, rate=0.05)
    assert good.passed and good.steps == 640 and good.requests > 640 and sum(good.faults.values()) > 20
    assert not good.replace(executed=641).passed
    exchange = module.LinkTransport.exchange

    def wrong(self, streams, x, quiet=None):
        y = exchange(self, streams, x, quiet)
        y[5] ^= 1
        return y

    monkeypatch.setattr(module.LinkTransport, "exchange", wrong)
    assert soak(128, rate=0.0).wrong == 1


def test_command(monkeypatch, capfd, tmp_path):
    rows = [module._measure("256 inputs of 8 bits", 256, 8, 0.0, 32)]
    monkeypatch.setattr(module, "measure_efficiency", lambda quick: iter(rows))
    monkeypatch.setattr(module, "soak", lambda steps, progress: soak(128, progress=progress))
    save = tmp_path / "link.json"

    def run(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main(["bench", "--link", *arguments])
        captured = capfd.readouterr()
        return int(ended.value.code or 0), captured.out, captured.err

    code, out, _ = run("--quick", "--save", str(save))
    assert code == 0 and "256 inputs of 8 bits" in out and "passed" in out
    assert json.loads(save.read_text())["soak"]["steps"] == 128
    monkeypatch.setattr(module, "soak", lambda steps, progress: soak(128).replace(wrong=1))
    code, out, _ = run("--quick")
    assert code == 1 and "FAILED" in out
    code, _, err = run("stac_a")
    assert code == 2 and "leave out the shapes" in err


@pytest.mark.slow
def test_a_hundred_thousand_steps_over_a_bad_line():
    found = soak(100_000, seed=2)
    assert found.passed and found.wrong == 0
