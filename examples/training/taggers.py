"""Words for the taggers of ``word_taggers.py``: to train on, and others to judge with.

Uzbek words are made of the stems and endings of uzmorph 1.2.2. Arabic ones are frequent words of film
subtitles, in pyspellchecker 0.9.1. Both packages are MIT licensed and come by way of pip.
"""

import csv
import gzip
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from word_taggers import LetterTagger

from rtlstm.gen.frontends import read_model
from rtlstm.host.embeddings import Embedding
from rtlstm.sim.reference import run_float
from rtlstm.spec.network import Network
from rtlstm.zoo.entry import Package, fetch
from rtlstm.zoo.taggers import Tagger, load_segmenter, load_uzmorph

__all__ = [
    "Letters",
    "Tags",
    "Words",
    "attach",
    "divergence",
    "draw_arabic",
    "draw_uzbek",
    "read_arabic",
    "read_uzbek",
    "same_letters",
    "same_words",
]

VOWELS = "aeiou"
Tags = list[list[str]]
"""Of each word, its letters' tags."""


@dataclass(frozen=True)
class Words:
    """Words, none of them twice."""

    trained: list[str]
    held_out: list[str]


@dataclass(frozen=True)
class Letters:
    """A tagger's network, and words as it reads them: letter by letter, looked up by the host."""

    tagger: Tagger
    network: Network
    table: Embedding
    words: Words

    def inputs(self, words: list[str]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Return what the network reads for words, ``(T, N, width)``, and each one's steps, ``(N,)``."""
        return self.tagger.inputs(self.table, words)

    def split(self, count: int) -> tuple["Letters", "Letters"]:
        """Return one that trains on all but the last words, and one whose held-out words are these."""
        trained, others = self.words.trained[:-count], self.words.trained[-count:]
        return (
            replace(self, words=Words(trained=trained, held_out=self.words.held_out)),
            replace(self, words=Words(trained=trained, held_out=others)),
        )

    def lesson(self, count: int, draws: np.random.Generator) -> tuple[Any, Any]:
        """Draw words of one length to train on.

        Returns ``(T, N, width)``, and the tags' logarithmic probabilities in PyTorch ``(T, N, tags)`` with
        where there are letters, ``(T, N)``.
        """
        lengths, counts = np.unique([len(mine) for mine in self._trained], return_counts=True)
        length = draws.choice(lengths, p=counts / counts.sum())
        fitting = [at for at, mine in enumerate(self._trained) if len(mine) == length]
        chosen = draws.choice(fitting, count)
        numbers = np.array([self._trained[at] for at in chosen]).T
        ends = np.array([len(self.words.trained[at]) for at in chosen])
        with torch.no_grad():
            scores = self._module(torch.from_numpy(numbers.T)).transpose(0, 1)
        there = torch.from_numpy(np.arange(length)[:, None] < ends)
        return torch.from_numpy(self.table(numbers)).float(), (scores.log_softmax(dim=-1), there)

    @cached_property
    def _module(self) -> LetterTagger:
        return LetterTagger.of(self.tagger.state)

    @cached_property
    def _trained(self) -> list[list[int]]:
        return [self.tagger.encode(word) for word in self.words.trained]

    def tags(self, run: Callable[[Any], Any]) -> Tags:
        """Return the tags of the held-out words; ``run`` scores words of one length, ``(T, N, width)``."""
        words = self.words.held_out
        x, lengths = self.inputs(words)
        found: Tags = [[] for _ in words]
        for length in np.unique(lengths):
            (chosen,) = np.nonzero(lengths == length)
            scores = run(x[:length, chosen])
            for number, at in enumerate(chosen):
                found[at] = self.tagger.decode(scores[:, number])[: len(words[at])]
        return found

    def float_tags(self) -> Tags:
        """Return the tags that the float network gives the held-out words."""
        return self.tags(lambda x: run_float(self.network, x).y)


def divergence(result: Any, wanted: Any) -> Any:
    """Return the Kullback-Leibler divergence of a prepared network's tags from the wanted ones, by letter."""
    scores, (likely, there) = result[0], wanted
    found = scores.log_softmax(dim=-1)[there]
    return torch.nn.functional.kl_div(found, likely[there], log_target=True, reduction="batchmean")


def same_letters(found: Tags, wanted: Tags) -> float:
    """Return how many letters have the tag that is wanted, in 100."""
    words = [zip(mine, theirs, strict=True) for mine, theirs in zip(found, wanted, strict=True)]
    return 100.0 * float(np.mean([a == b for letters in words for a, b in letters]))


def same_words(found: Tags, wanted: Tags) -> float:
    """Return how many words have all the tags that are wanted, in 100."""
    return 100.0 * float(np.mean([a == b for a, b in zip(found, wanted, strict=True)]))


def read_uzbek(trained: int, held_out: int, seed: int) -> Letters:
    """Fetch the Uzbek tagger, and words for it."""
    package = Package(
        "uzmorph==1.2.2",
        {
            "uzmorph/data/root.csv": "413042ff9966bfd5974ae81375b3460baf252049785f30ab171684339d1b76af",
            "uzmorph/data/cse.csv": "cd3cdee92a99ec8c8d25b90f3b7924dd218531de1d53a34463e746dcc7d1c596",
        },
    )
    stems, endings = (_table(path) for path in fetch(package).values())
    return _letters(load_uzmorph(), draw_uzbek(stems, endings, trained, held_out, seed))


def read_arabic(trained: int, held_out: int, seed: int) -> Letters:
    """Fetch the Arabic segmenter, and words for it."""
    name = "spellchecker/resources/ar.json.gz"
    sha256 = "eb6d166f55c8c4c11aea93b5c7c9490503f67f82b599d0b671fcf6c9f305ff73"
    (path,) = fetch(Package("pyspellchecker==0.9.1", {name: sha256})).values()
    counts = json.loads(gzip.decompress(path.read_bytes()))
    return _letters(load_segmenter(), draw_arabic(counts, trained, held_out, seed))


def _letters(tagger: Tagger, words: Words) -> Letters:
    result = read_model(tagger.source, tagger.options)
    (table,) = result.embeddings
    return Letters(tagger, result.network, table, words)


def _table(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8-sig") as file:
        return list(csv.DictReader(file))


def draw_uzbek(
    stems: list[dict[str, str]], endings: list[dict[str, str]], trained: int, held_out: int, seed: int
) -> Words:
    """Draw stems, each once, with an ending of its part of speech or none."""
    by_kind: dict[str, list[str]] = {}
    for row in endings:
        by_kind.setdefault(row["pos"], [""]).append(row["affix"])
    kinds = {}
    for row in stems:
        stem = row["stem"].removesuffix("moq" if row["pos"] == "VERB" else "")  # -moq is the infinitive's.
        if row["pos"] in by_kind and re.fullmatch("[a-z']{2,14}", stem):
            kinds[stem] = row["pos"]
    rng, known = np.random.default_rng(seed), sorted(kinds)
    drawn = [known[at] for at in rng.permutation(len(known))]
    return _split([attach(stem, str(rng.choice(by_kind[kinds[stem]]))) for stem in drawn], trained, held_out)


def attach(stem: str, ending: str) -> str:
    """Write an ending in uzmorph's notation behind a stem.

    A letter in brackets is there if it keeps two vowels or two consonants apart. G becomes k or q behind
    such a letter.

    >>> attach("kitob", "(S)i"), attach("opa", "(S)i"), attach("bog'", "(i)mda"), attach("ek", "Gan")
    ('kitobi', 'opasi', "bog'imda", 'ekkan')
    """
    vowel = stem[-1] in VOWELS
    hard = stem[-1] if stem[-1] in "kq" else "g"

    def between(found: re.Match[str]) -> str:
        return found[1] if (found[1][0] in VOWELS) != vowel else ""

    return stem + re.sub(r"\((\w+)\)", between, ending).replace("G", hard).replace(" ", "").lower()


def draw_arabic(counts: dict[str, int], trained: int, held_out: int, seed: int) -> Words:
    """Draw words of 3 to 10 letters from the 50,000 most frequent ones."""
    frequent = sorted(counts, key=lambda word: (-counts[word], word))[:50000]
    words = [word for word in frequent if re.fullmatch("[\u0621-\u064a]{3,10}", word)]
    order = np.random.default_rng(seed).permutation(len(words))
    return _split([words[at] for at in order], trained, held_out)


def _split(words: list[str], trained: int, held_out: int) -> Words:
    distinct = [*dict.fromkeys(words)]
    return Words(distinct[:trained], distinct[trained : trained + held_out])
