"""The pieces of the silero VAD demo that need no download."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import convolutions
import measure
import numpy as np
import onnx
import peer
import pytest
import results
from support.implementations import comparison
from support.lazy import Lazy
from support.small_builds import NARROW

from rtlstm import Dense, Lstm, Manifest, Network, Parameters, ToolError
from rtlstm.gen.builds.generate import generate_build
from rtlstm.gen.quantise.quantiser import quantise
from rtlstm.zoo.silero import CHUNK

pytestmark = pytest.mark.rtl
demo, picture = Lazy("demo"), Lazy("picture")  # They import matplotlib.


class TestPeer:
    def test_cut_model(self) -> None:
        helper = onnx.helper
        graph = helper.make_graph(
            [
                helper.make_node("Relu", ["x"], ["tap"]),
                helper.make_node("Neg", ["tap"], ["left"]),
                helper.make_node("Add", ["left", "h"], ["y"]),
            ],
            "g",
            [helper.make_tensor_value_info(name, 1, ["T", 1, 4]) for name in ("x", "h")],
            [helper.make_tensor_value_info("y", 1, ["T", 1, 4])],
        )
        cut = peer.cut_model(helper.make_model(graph), "tap", 4)
        onnx.checker.check_model(cut)
        assert [node.op_type for node in cut.graph.node] == ["Neg", "Add"]
        assert [value.name for value in cut.graph.input] == ["tap", "h"]


class TestMeasure:
    @pytest.mark.parametrize(("seconds", "steps"), [(0.1, 32), (1.024, 32), (20.0, 640), (60.0, 1875)])
    def test_whole_chunks(self, seconds: float, steps: int) -> None:
        assert measure.whole_chunks(seconds, 1875) == steps

    def test_accuracy(self) -> None:
        found = measure.measure_accuracy(np.array([0.4, 0.6, 0.9]), np.array([0.4, 0.4, 0.8, 0.1]))
        assert (found.steps, found.flips) == (3, 1)
        assert found.difference == pytest.approx(0.2)

    def test_compare_words(self, found: results.Results) -> None:
        assert measure.compare_words(found.golden, found.rtl) == (40 + 2 * 2 * 4, 0)
        y = found.rtl.y.copy()
        y[3] += 1
        h, c = found.rtl.states[1]
        rtl = replace(found.rtl, y=y, states=(found.rtl.states[0], (h, c + 1)))
        assert measure.compare_words(found.golden, rtl) == (40 + 2 * 2 * 4, 1 + 4)

    def test_chunks_do_not_change_the_golden_run(self, network: Network) -> None:
        quantised = quantise(network)
        x = np.random.default_rng(1).normal(size=(measure.CHUNK_STEPS + 8, 3))
        run = measure.run_golden(quantised, x)
        whole = measure.Golden(quantised).run(quantised.numerics.quantise_input(x)[:, None])
        assert np.array_equal(run.y, whole.y[:, 0, 0])
        assert np.array_equal(run.states[-1][1], whole.c[0][0])

    def test_rtl_of_a_small_network(self, network: Network, tmp_path: Path) -> None:
        """What the demo does with its own network: words, states after each chunk, and cycles."""
        parameters = Parameters(lanes=4, macs=2)
        manifest = generate_build(network, tmp_path / "tiny", settings=NARROW, parameters=parameters)
        x = np.random.default_rng(1).uniform(-1, 1, (measure.CHUNK_STEPS + 8, 3))
        golden = measure.run_golden(quantise(network, NARROW), x)
        rtl = measure.run_rtl(tmp_path / "tiny", "verilator", x)
        assert measure.compare_words(golden, rtl) == (len(x) + 2 * 2 * 4, 0)
        cycles = manifest.cycles
        assert (rtl.warm_latency, rtl.first_step_latency, rtl.intervals) == (
            cycles.step_latency_cycles,
            cycles.first_step_latency_cycles,
            (cycles.step_interval_cycles,),
        )


@pytest.fixture
def network() -> Network:
    random = np.random.default_rng(0)
    lstm = Lstm(
        name="lstm",
        w_ih=random.normal(size=(16, 3)),
        w_hh=random.normal(size=(16, 4)),
        bias=random.normal(size=16),
    )
    head = Dense(name="head", weight=random.normal(size=(1, 4)), bias=np.zeros(1), activation="sigmoid")
    return Network(name="tiny", layers=(lstm, head))


@pytest.fixture
def found(network: Network) -> results.Results:
    """Results of a perfect run: what the RTL gave is what golden model and schedule predict."""
    quantised = quantise(network)
    manifest = Manifest.of("tiny", quantised, Parameters(lanes=4, macs=2))
    golden = measure.run_golden(quantised, np.random.default_rng(1).normal(size=(40, 3)))
    cycles = manifest.cycles
    rtl = measure.RtlRun(
        y=golden.y,
        probability=golden.probability,
        states=golden.states,
        seconds=0.5,
        warm_latency=cycles.step_latency_cycles,
        first_step_latency=cycles.first_step_latency_cycles,
        intervals=(cycles.step_interval_cycles,),
    )
    accuracy = measure.Accuracy(steps=40, difference=0.001, flips=0)
    return results.Results(
        manifest=manifest,
        simulator="verilator",
        calibration_steps=20,
        golden=golden,
        rtl=rtl,
        words_compared=56,
        words_different=0,
        accuracy=accuracy,
        rtl_accuracy=accuracy,
        narrow_accuracy=accuracy,
        peer=peer.PeerTiming(calls=2000, p50_us=25.0, p99_us=70.0, largest_difference=0.0),
        convolutions=found_convolutions(manifest),
    )


def found_convolutions(manifest: Manifest) -> convolutions.ConvolutionResults:
    """Results of a perfect run of the build with the convolutions; its manifests do not matter here."""
    return convolutions.ConvolutionResults(
        manifest=manifest,
        whole=manifest,
        alone=manifest,
        weights=100,
        rtl=comparison(output_words=40, state_words=8, cycles_predicted=4000, cycles_measured=4000),
        output_different=0,
        steps=1000,
        float_difference=1e-6,
        changed=10,
        host_us=22.0,
    )


class TestResults:
    def test_passes(self, found: results.Results) -> None:
        assert found.passed
        assert found.as_json()["simulation"]["times_real_time"] == pytest.approx(80 / 31.25)
        assert found.table().row_count > len(found.gates)

    @pytest.mark.parametrize(
        ("changes", "gate"),
        [
            ({"words_different": 1}, 0),
            ({"rtl_accuracy": measure.Accuracy(40, 0.001, 1)}, 2),
            ({"accuracy": measure.Accuracy(40, 0.02, 0)}, 3),
            ({"accuracy": measure.Accuracy(40, float("nan"), 0)}, 3),
            ({"narrow_accuracy": measure.Accuracy(100, 0.001, 1)}, 4),
        ],
    )
    def test_gate_fails(self, found: results.Results, changes: dict[str, Any], gate: int) -> None:
        changed = replace(found, **changes)
        assert [index for index, one in enumerate(changed.gates) if not one.passed] == [gate]
        assert not changed.as_json()["passed"]

    @pytest.mark.parametrize(
        ("changes", "gate"),
        [
            ({"output_different": 1}, 5),
            ({"float_difference": 2e-4}, 6),
            ({"float_difference": float("nan")}, 6),
            ({"changed": 11}, 7),
        ],
    )
    def test_gate_of_the_convolutions_fails(
        self, found: results.Results, changes: dict[str, Any], gate: int
    ) -> None:
        changed = replace(found, convolutions=replace(found.convolutions, **changes))
        assert [index for index, one in enumerate(changed.gates) if not one.passed] == [gate]
        assert not changed.convolutions.passed

    @pytest.mark.parametrize("changes", [{"state_different": 1}, {"cycles_different": 1}])
    def test_comparison_of_the_convolutions_fails(
        self, found: results.Results, changes: dict[str, int]
    ) -> None:
        rtl = found.convolutions.rtl.replace(**changes)
        changed = replace(found, convolutions=replace(found.convolutions, rtl=rtl))
        assert [one.passed for one in changed.gates] == [True] * 5 + [False, True, True]
        assert not changed.convolutions.passed

    def test_json_has_the_convolutions(self, found: results.Results) -> None:
        assert found.convolutions.passed
        told = found.as_json()["convolutions"]
        assert told["words"] == {"compared": 48, "different": 0}
        assert told["cycles"] == {"predicted": 4000, "measured": 4000}
        assert told["costs"]["with_them"]["inputs"] == 3 and told["host_us"] == 22.0

    def test_cycle_gate_fails(self, found: results.Results) -> None:
        interval = found.rtl.intervals[0]
        changed = replace(found, rtl=replace(found.rtl, intervals=(interval, interval + 1)))
        assert [one.passed for one in changed.gates] == [True, False] + [True] * 6


class TestPicture:
    def test_runs(self) -> None:
        assert list(picture.runs(np.array([True, True, False, True]))) == [(0, 2), (3, 4)]
        assert not list(picture.runs(np.zeros(3, dtype=np.bool_)))

    def test_writes_a_file(self, tmp_path: Path) -> None:
        path = tmp_path / "it.png"
        reference = np.linspace(0, 1, 40)
        picture.draw_picture(path, np.zeros(40 * CHUNK), reference, reference[:32])
        assert path.read_bytes().startswith(b"\x89PNG")


class TestDemo:
    def test_defaults(self) -> None:
        assert demo.parse_arguments([]).seconds == 60.0
        assert demo.parse_arguments(["--simulator", "icarus"]).seconds == 1.0

    @pytest.mark.parametrize("seconds", ["0", "-1", "61", "nan"])
    def test_wrong_seconds(self, seconds: str, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit) as raised:
            demo.parse_arguments(["--seconds", seconds])
        assert raised.value.code == 2
        assert "--seconds must be more than 0" in capsys.readouterr().err

    def test_failed_download_is_one_sentence(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        def offline(_: Any) -> Any:
            raise ToolError("no network")

        monkeypatch.setattr("demo.fetch_silero", offline)
        assert demo.main(["-o", str(tmp_path)]) == 2
        assert capsys.readouterr().err.endswith("error: no network\n")
