"""Two published taggers of a word's letters, bidirectional LSTMs, read from their checkpoints.

``uzmorph`` (uzmorph-nn 0.1.0: Uzbek morphology, 2 layers 64 -> 2 x 64, 746 tags) and ``segmenter``
(arabic-morph-segmenter 0.1.0: prefix, stem or suffix, 2 layers 128 -> 2 x 256, a conditional random
field behind). The checkpoints come out of the projects' own wheels (MIT licence) by way of pip. The
host looks up letters and decodes tags; the network in between runs in float, or as a build on a
backend, and its tags are compared with PyTorch's. Run with ``python examples/word_taggers.py
uzmorph|segmenter [float|BACKEND]``; needs ``rtlstm[torch,sim]``.
"""

import json
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from wheels import fetch

from rtlstm.gen.builds.generate import generate_build
from rtlstm.gen.frontends import ReadOptions, read_model
from rtlstm.gen.quantise.quantiser import QuantizationSettings
from rtlstm.host import Accelerator
from rtlstm.sim.reference import run_float
from rtlstm.spec.parameters import Parameters

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

TYPICAL = 20
"""Words whose letters calibrate the formats, the first ones; all words are compared."""
UZBEK = (
    "kitoblarimizdan", "maktabda", "o'quvchilar", "yaxshiroq", "bolalarning", "keldi", "yozganman",
    "uylarimiz", "shaharga", "daraxtning", "ishlayapti", "katta", "suvdan", "onamga", "do'stlarim",
    "o'qidilar", "qizil", "gapirmoqda", "tog'larda", "bilmayman",
    *(
        stem + ending
        for stem in ("kitob", "maktab", "bola", "daraxt", "shahar", "uy", "suv", "gul", "tog'", "do'st")
        for ending in ("", "lar", "ning", "ni", "ga", "da", "dan", "im", "imiz", "larimizda")
    ),
)  # fmt: skip
ARABIC = (
    "وندد", "الفلسطينيون", "وبكتابهم", "فبالمدرسة", "والناس", "تفرقت", "كتاب", "المدرسة", "وقال", "بيتهم",
    "للطلاب", "سيكتبون", "مدرستنا", "وبالسيارة", "كتبها", "فقالوا", "والشمس", "لأنهم", "يعملون", "بلادنا",
    *(
        before + stem + ending
        for before in ("", "و", "ال", "وال", "ب")
        for stem in ("كتاب", "بيت", "قلم", "درس", "طريق", "علم", "ولد", "جبل", "بحر", "باب")
        for ending in (("",) if before.endswith("ال") else ("", "هم", "نا"))
    ),
)  # fmt: skip
"""Words from texts, then stems with the endings and prefixes of their language."""


@dataclass(frozen=True)
class Tagger:
    """A network with what the host does before and behind it."""

    name: str
    source: Path
    """Checkpoint for the front end."""
    options: ReadOptions
    module: torch.nn.Module
    """The same in PyTorch, from letters' numbers ``(N, T)`` to scores ``(N, T, tags)``."""
    encode: Callable[[str], list[int]]
    decode: Callable[[Floats], list[str]]
    """Tags of a word's scores ``(T, tags)``."""
    words: tuple[str, ...]


class LetterTagger(torch.nn.Module):
    """Embedding, bidirectional LSTM of two layers, linear layer."""

    def __init__(self, letters: int, width: int, units: int, tags: int) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(letters, width)
        self.lstm = torch.nn.LSTM(width, units, num_layers=2, bidirectional=True, batch_first=True)
        self.linear = torch.nn.Linear(2 * units, tags)

    def forward(self, letters: torch.Tensor) -> torch.Tensor:
        """Return the scores of every letter's tags."""
        return self.linear(self.lstm(self.embedding(letters))[0])


def load_uzmorph() -> Tagger:
    """Letters, padded to 30, through the network to the most likely tags."""
    folder = "uzmorph_nn/data"
    files = fetch(
        "uzmorph-nn==0.1.0",
        {
            f"{folder}/morph_bilstm.pth": "1262676915c0a36b91a1430092447a8744962c996a91d93405538e77bad26a07",
            f"{folder}/char_vocab.json": "02ae00eea8d7d02b2e3ff40cdae0989313a0b3e485d346e2039c678423b31c1f",
            f"{folder}/tag_vocab.json": "c22d8e7eda3589aa405a7474946f47ae68ed6cb5e014cc0a7d407cf1f787c46f",
        },
    )
    weights, letters, tags = files.values()
    numbers: dict[str, int] = json.loads(letters.read_text())
    names = {number: tag for tag, number in json.loads(tags.read_text()).items()}
    state = torch.load(weights, weights_only=True)
    module = _module(state, "char_embeddings", "hidden2tag")

    def encode(word: str) -> list[int]:
        found = [numbers.get(letter, numbers["UNK"]) for letter in word[:30]]
        return found + [numbers["PAD"]] * (30 - len(found))

    def decode(scores: Floats) -> list[str]:
        return [names[number] for number in scores.argmax(axis=1).tolist()]

    return Tagger(
        "uzmorph", weights, ReadOptions(dense=("hidden2tag",)), module, encode, decode, _distinct(UZBEK)
    )


def load_segmenter() -> Tagger:
    """Letters through the network to the tags that the conditional random field likes best together."""
    files = fetch(
        "arabic-morph-segmenter==0.1.0",
        {
            "arabic_morph_segmenter/assets/arabic_morph_segmenter_bilstm_crf.pt": (
                "0a38ee295fb4ead9cc8e2fb1078e61a01b9aa6c391dc350ee1479029856b6e28"
            )
        },
    )
    (path,) = files.values()
    checkpoint = torch.load(path, weights_only=True)
    state, numbers = checkpoint["model_state_dict"], checkpoint["char2id"]
    begin, end, change = (
        state[f"crf.{name}"].double().numpy()
        for name in ("start_transitions", "end_transitions", "transitions")
    )

    def decode(scores: Floats) -> list[str]:
        return [checkpoint["id2label"][tag] for tag in best_path(scores, begin, end, change)]

    return Tagger(
        "segmenter",
        path,
        ReadOptions(dense=("classifier",)),
        _module(state, "embedding", "classifier"),
        lambda word: [numbers.get(letter, numbers["<UNK>"]) for letter in word],
        decode,
        _distinct(ARABIC),
    )


def _distinct(words: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(words))


def _module(state: dict[str, Any], embedding: str, linear: str) -> LetterTagger:
    letters, width = state[f"{embedding}.weight"].shape
    tags, features = state[f"{linear}.weight"].shape
    module = LetterTagger(letters, width, features // 2, tags)
    names = {f"{embedding}.": "embedding.", f"{linear}.": "linear.", "lstm.": "lstm."}
    own = {
        new + key[len(old) :]: value
        for key, value in state.items()
        for old, new in names.items()
        if key.startswith(old)
    }
    module.load_state_dict(own)
    return module.eval()


def best_path(scores: Floats, begin: Floats, end: Floats, change: Floats) -> list[int]:
    """The sequence of tags with the largest sum of scores and transitions (Viterbi's algorithm)."""
    total, back = begin + scores[0], []
    for row in scores[1:]:
        ways = total[:, None] + change
        back.append(ways.argmax(axis=0))
        total = ways.max(axis=0) + row
    path = [int((total + end).argmax())]
    for choice in reversed(back):
        path.append(int(choice[path[-1]]))
    return path[::-1]


def score(tagger: Tagger, backend: str) -> list[Floats]:
    """Scores ``(T, tags)`` of every word, from the network in float or from a build on a backend."""
    result = read_model(tagger.source, tagger.options)
    (table,) = result.embeddings
    letters = [tagger.encode(word) for word in tagger.words]
    lengths = np.array([len(word) for word in letters])
    x = np.zeros((lengths.max(), len(letters), table.table.shape[1]))
    for at, word in enumerate(letters):
        x[: len(word), at] = table(word)
    if backend == "float":
        y = run_float(result.network, x, lengths=lengths).y
    else:
        y = _run_build(result.network, x, lengths, backend)
    return [y[:length, at] for at, length in enumerate(lengths)]


def _run_build(network: Any, x: Floats, lengths: Integers, backend: str) -> Floats:
    with tempfile.TemporaryDirectory() as folder:
        build = Path(folder) / "tagger"
        generate_build(
            network,
            build,
            settings=QuantizationSettings(weight_bits=16, data_bits=16),
            parameters=Parameters(lanes=16, macs=16, beat_in=8, beat_out=8, max_steps=len(x)),
            calibration=x[:, :TYPICAL],
            calibration_lengths=lengths[:TYPICAL],
        )
        with Accelerator.open(build, backend=backend) as accelerator:
            y, _ = accelerator.run(x, lengths=lengths)
    return np.asarray(y)


def compare(tagger: Tagger, scores: list[Floats]) -> dict[str, float]:
    """Figures of a run beside PyTorch's: differences of scores, agreement of tags and of whole words."""
    worst, letters, equal, same_words = 0.0, 0, 0, 0
    for word, ours in zip(tagger.words, scores, strict=True):
        with torch.no_grad():
            theirs = tagger.module(torch.tensor([tagger.encode(word)]))[0].double().numpy()
        mine, wanted = (tagger.decode(some)[: len(word)] for some in (ours, theirs))
        worst = max(worst, float(np.abs(ours - theirs).max()))
        letters += len(wanted)
        equal += sum(a == b for a, b in zip(mine, wanted, strict=True))
        same_words += mine == wanted
    return {
        "largest difference of a score": worst,
        "letters with PyTorch's tag, in 100": 100 * equal / letters,
        "words with PyTorch's tags, in 100": 100 * same_words / len(tagger.words),
    }


TAGGERS = {"uzmorph": load_uzmorph, "segmenter": load_segmenter}

if __name__ == "__main__":
    chosen = TAGGERS[sys.argv[1] if len(sys.argv) > 1 else "uzmorph"]()
    found = score(chosen, sys.argv[2] if len(sys.argv) > 2 else "float")
    for name, figure in compare(chosen, found).items():
        print(f"{name}: {figure:.3g}")
