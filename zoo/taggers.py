"""Two published taggers of a word's letters, bidirectional LSTMs, read from their checkpoints.

``uzmorph`` (uzmorph-nn 0.1.0: Uzbek morphology, 2 layers 64 -> 2 x 64, 746 tags) and ``segmenter``
(arabic-morph-segmenter 0.1.0: prefix, stem or suffix, 2 layers 128 -> 2 x 256, a conditional random field
behind). The host looks up letters and decodes tags; the network is in between.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rtlstm.gen.frontends import ReadOptions, read_model
from rtlstm.gen.frontends.arrays import import_extra
from rtlstm.host.embeddings import Embedding
from rtlstm.sim.reference import run_float
from rtlstm.zoo.entry import Entry, Floats, Integers, Metric, Package, Subject, fetch

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


_DATA = "uzmorph_nn/data"
_UZMORPH = Package(
    "uzmorph-nn==0.1.0",
    {
        f"{_DATA}/morph_bilstm.pth": "1262676915c0a36b91a1430092447a8744962c996a91d93405538e77bad26a07",
        f"{_DATA}/char_vocab.json": "02ae00eea8d7d02b2e3ff40cdae0989313a0b3e485d346e2039c678423b31c1f",
        f"{_DATA}/tag_vocab.json": "c22d8e7eda3589aa405a7474946f47ae68ed6cb5e014cc0a7d407cf1f787c46f",
    },
)
_SEGMENTER = Package(
    "arabic-morph-segmenter==0.1.0",
    {
        "arabic_morph_segmenter/assets/arabic_morph_segmenter_bilstm_crf.pt": (
            "0a38ee295fb4ead9cc8e2fb1078e61a01b9aa6c391dc350ee1479029856b6e28"
        )
    },
)


@dataclass(frozen=True)
class Tagger:
    """A network with what the host does before and behind it."""

    name: str
    source: Path
    """Checkpoint for the front end."""
    options: ReadOptions
    state: Mapping[str, Any]
    """The checkpoint's tensors, by the names ``embedding``, ``lstm`` and ``linear`` of their layers."""
    encode: Callable[[str], list[int]]
    decode: Callable[[Floats], list[str]]
    """Tags of a word's scores ``(T, tags)``."""
    words: tuple[str, ...]

    def inputs(self, table: Embedding, words: Sequence[str]) -> tuple[Floats, Integers]:
        """Return what the network reads for words, ``(T, N, width)``, and each one's steps, ``(N,)``."""
        letters = [self.encode(word) for word in words]
        lengths = np.array([len(word) for word in letters])
        x = np.zeros((lengths.max(), len(letters), table.table.shape[1]))
        for at, word in enumerate(letters):
            x[: len(word), at] = table(word)
        return x, lengths

    def tags(self, scores: list[Floats]) -> list[list[str]]:
        """Return the tags of the letters of all words, from the scores of each word's letters."""
        pairs = zip(self.words, scores, strict=True)
        return [self.decode(mine)[: len(word)] for word, mine in pairs]


def load_uzmorph() -> Tagger:
    """Letters, padded to 30, through the network to the most likely tags."""
    torch = import_extra("torch", "zoo", "uzmorph")
    weights, letters, tags = fetch(_UZMORPH).values()
    numbers: dict[str, int] = json.loads(letters.read_text())
    names = {number: tag for tag, number in json.loads(tags.read_text()).items()}
    state = _renamed(torch.load(weights, weights_only=True), "char_embeddings", "hidden2tag")

    def encode(word: str) -> list[int]:
        found = [numbers.get(letter, numbers["UNK"]) for letter in word[:30]]
        return found + [numbers["PAD"]] * (30 - len(found))

    def decode(scores: Floats) -> list[str]:
        return [names[number] for number in scores.argmax(axis=1).tolist()]

    options = ReadOptions(dense=("hidden2tag",))
    return Tagger("uzmorph", weights, options, state, encode, decode, tuple(dict.fromkeys(UZBEK)))


def load_segmenter() -> Tagger:
    """Letters through the network to the tags that the conditional random field likes best together."""
    torch = import_extra("torch", "zoo", "segmenter")
    (path,) = fetch(_SEGMENTER).values()
    checkpoint = torch.load(path, weights_only=True)
    state, numbers = checkpoint["model_state_dict"], checkpoint["char2id"]
    begin, end, change = (
        state[f"crf.{name}"].double().numpy()
        for name in ("start_transitions", "end_transitions", "transitions")
    )

    def encode(word: str) -> list[int]:
        return [numbers.get(letter, numbers["<UNK>"]) for letter in word]

    def decode(scores: Floats) -> list[str]:
        return [checkpoint["id2label"][tag] for tag in best_path(scores, begin, end, change)]

    tensors = _renamed(state, "embedding", "classifier")
    options = ReadOptions(dense=("classifier",))
    return Tagger("segmenter", path, options, tensors, encode, decode, tuple(dict.fromkeys(ARABIC)))


def _renamed(state: Mapping[str, Any], embedding: str, linear: str) -> dict[str, Any]:
    names = {f"{embedding}.": "embedding.", f"{linear}.": "linear.", "lstm.": "lstm."}
    return {
        new + key[len(old) :]: value
        for key, value in state.items()
        for old, new in names.items()
        if key.startswith(old)
    }


def best_path(scores: Floats, begin: Floats, end: Floats, change: Floats) -> list[int]:
    """The sequence of tags with the largest sum of scores and transitions (Viterbi's algorithm)."""
    total, back = begin + scores[0], []
    for row in scores[1:]:
        sums = total[:, None] + change
        back.append(sums.argmax(axis=0))
        total = sums.max(axis=0) + row
    path = [int((total + end).argmax())]
    for choice in reversed(back):
        path.append(int(choice[path[-1]]))
    return path[::-1]


TAGGERS = {"uzmorph": load_uzmorph, "segmenter": load_segmenter}


def _subject(load: Callable[[], Tagger], whole_words: bool) -> Subject:
    """Read a tagger; it is judged by its letters' tags, or whole words', beside the float network's."""
    tagger = load()
    model = read_model(tagger.source, tagger.options)
    (table,) = model.embeddings
    x, lengths = tagger.inputs(table, tagger.words)

    def tags(y: Floats) -> list[list[str]]:
        return tagger.tags([y[:length, at] for at, length in enumerate(lengths)])

    wanted = tags(run_float(model.network, x, lengths=lengths).y)

    def judge(y: Floats, begin: int) -> float:
        words = list(zip(tags(y), wanted, strict=True))[begin:]
        if whole_words:
            return 100.0 * float(np.mean([mine == theirs for mine, theirs in words]))
        return 100.0 * float(np.mean([a == b for word in words for a, b in zip(*word, strict=True)]))

    return Subject(model, x, TYPICAL, judge, lengths)


UZMORPH = Entry(
    name="uzmorph",
    does="morphology of Uzbek words, letter by letter",
    package=_UZMORPH,
    licence="MIT",
    network="bidirectional LSTM, 2 layers, 64 -> 2 x 64, dense 746",
    metric=Metric("letters with the tag of float, %", margin=1.0),
    load=lambda progress: _subject(load_uzmorph, whole_words=False),
    stretch=8,
    device="lfe5u-85f-8",
    options={"weight_bits": 8, "lanes": 16, "macs": 8, "max_steps": 30},
)
SEGMENTER = Entry(
    name="segmenter",
    does="prefix, stem and suffix of Arabic words",
    package=_SEGMENTER,
    licence="MIT",
    network="bidirectional LSTM, 2 layers, 128 -> 2 x 256, dense 3",
    metric=Metric("words with the segments of float, %", margin=0.0),
    load=lambda progress: _subject(load_segmenter, whole_words=True),
    stretch=2,
    device=None,
    options={"weight_bits": 8, "lanes": 16, "macs": 16, "max_steps": 30},
)
