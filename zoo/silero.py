"""silero VAD: speech or silence, 31.25 times a second, a published ONNX file, on a minute of real speech.

The convolutions before the LSTM turn 64 samples of context and 512 new samples (32 ms at 16 kHz) into 128
features. They are computed by the network's own ONNX file, with the LSTM's input as one output more, so that
nothing is re-implemented here. Network and speech come out of the project's own releases.
"""

import wave
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rtlstm.gen.frontends import read_model
from rtlstm.gen.frontends.arrays import import_extra
from rtlstm.spec.errors import InputError
from rtlstm.spec.progress import Progress, counted
from rtlstm.zoo.entry import Entry, Floats, Metric, Package, Subject, fetch

_REQUIREMENT = "silero-vad==6.2.3"
MODEL = Package(
    _REQUIREMENT,
    {
        "silero_vad/data/silero_vad_16k_sequence.onnx": (
            "9ccdacc4719d8aa7e45a77536bfabec45a03ba1f2fad5e241ab4060b24238a85"
        )
    },
)
SPEECH = Package(
    _REQUIREMENT,
    {"tests/data/test.wav": "89f17d9c94c4b31eb320f424628bcbc920abaddbee6e2760fd868bfb1d9a2e47"},
    source=True,
)

RATE = 16000
CHUNK = 512
CONTEXT = 64
STEPS_PER_SECOND = RATE / CHUNK
_CALIBRATION_SECONDS = 20.0

_STATE = (1, 1, 128)
_PROBABILITY = "speech_probs"

Samples = NDArray[np.float32]


@dataclass(frozen=True)
class SileroFiles:
    """Where the checked files are."""

    model: Path
    speech: Path


@dataclass(frozen=True)
class Recording:
    """Speech, the LSTM's input computed from it, and the float model's answer."""

    audio: Samples
    """Samples within -1 to 1, a whole number of chunks."""
    features: Samples
    """What the LSTM reads, ``(steps, 128)``."""
    probability: Samples
    """The float model's speech probability of each step."""


def fetch_silero(progress: Progress | None = None) -> SileroFiles:
    """Return the network and the speech; download what the cache does not hold (errors: :func:`fetch`)."""
    paths: list[Path] = []
    for package in counted(progress, "fetch network and speech", (MODEL, SPEECH)):
        paths += fetch(package).values()
    return SileroFiles(*paths)


def read_speech(path: Path) -> Samples:
    """Return a 16 kHz mono 16-bit WAV file as floats within -1 to 1.

    Raises InputError if the file is of another kind.
    """
    try:
        with wave.open(str(path)) as file:
            kind = (file.getframerate(), file.getnchannels(), file.getsampwidth())
            data = file.readframes(file.getnframes())
    except (wave.Error, EOFError) as error:
        raise InputError(f"{path} must be a WAV file, but: {error}") from None
    if kind != (RATE, 1, 2):
        raise InputError(
            f"{path} must hold {RATE} Hz, 1 channel, 2 bytes a sample, not {kind[0]} Hz, "
            f"{kind[1]} channels, {kind[2]} bytes"
        )
    return np.frombuffer(data, dtype="<i2").astype(np.float32) / np.float32(32768)


def chunk_audio(audio: Samples) -> Samples:
    """Return ``(steps, 64 + 512)``: each whole chunk behind the last samples of the one before.

    Zeros come before the first chunk; samples after the last whole chunk are left out.
    """
    steps = len(audio) // CHUNK
    if not steps:
        raise InputError(f"audio must have at least {CHUNK} samples, not {len(audio)}")
    new = audio[: steps * CHUNK].reshape(steps, CHUNK)
    context = np.zeros((steps, CONTEXT), dtype=np.float32)
    context[1:] = new[:-1, -CONTEXT:]
    return np.concatenate([context, new], axis=1)


def open_session(model: Any) -> Any:
    """Return an onnxruntime session of a model, on one thread."""
    runtime = import_extra("onnxruntime", "zoo", "silero-vad")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    return runtime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def run_float_model(path: Path, audio: Samples, tap: str) -> Recording:
    """Run the whole float model over the audio, from zero state on.

    ``tap`` is the tensor that the LSTM reads.
    """
    onnx = import_extra("onnx", "zoo", "silero-vad")
    model = onnx.load(str(path))
    model.graph.output.append(onnx.helper.make_tensor_value_info(tap, onnx.TensorProto.FLOAT, None))
    zero = np.zeros(_STATE, dtype=np.float32)
    chunks = chunk_audio(audio)
    session = open_session(model)
    probability, features = session.run([_PROBABILITY, tap], {"input": chunks, "h": zero, "c": zero})
    return Recording(
        audio=audio[: len(chunks) * CHUNK],
        features=features.reshape(len(chunks), -1),
        probability=probability.reshape(-1),
    )


def _load(progress: Progress | None) -> Subject:
    files = fetch_silero(progress)
    model = read_model(files.model, name="vad")
    recording = run_float_model(files.model, read_speech(files.speech), model.report.input)
    decided = recording.probability > 0.5

    def judge(y: Floats, begin: int) -> float:
        return 100.0 * float(np.mean((y[begin:, 0, 0] > 0.5) == decided[begin : len(y)]))

    x = recording.features[:, None].astype(np.float64)
    return Subject(model, x, round(_CALIBRATION_SECONDS * STEPS_PER_SECOND), judge)


SILERO = Entry(
    name="silero-vad",
    does="speech or silence, every 32 ms",
    package=MODEL,
    licence="MIT",
    network="LSTM 128 -> 128, dense 1",
    metric=Metric("decisions as in onnxruntime, %", margin=0.0),
    load=_load,
    stretch=256,
    device="lfe5u-85f-8",
)
