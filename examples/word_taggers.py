"""Two published taggers of a word's letters, bidirectional LSTMs, read from their checkpoints.

``uzmorph`` and ``segmenter`` come by way of pip; ``rtlstm zoo`` says what they are. The host looks up letters
and decodes tags; the network in between runs in float, or as a build on a backend, and its tags are compared
with PyTorch's. Run with ``python examples/word_taggers.py uzmorph|segmenter [float|BACKEND]``; needs
``rtlstm[torch,sim]``.
"""

import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from rtlstm.gen.builds.generate import generate_build
from rtlstm.gen.frontends import read_model
from rtlstm.gen.quantise.quantiser import QuantizationSettings
from rtlstm.host import Accelerator
from rtlstm.sim.reference import run_float
from rtlstm.spec.parameters import Parameters
from rtlstm.zoo.taggers import TAGGERS, TYPICAL, Tagger

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


class LetterTagger(torch.nn.Module):
    """Embedding, bidirectional LSTM of two layers, linear layer."""

    def __init__(self, letters: int, width: int, units: int, tags: int) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(letters, width)
        self.lstm = torch.nn.LSTM(width, units, num_layers=2, bidirectional=True, batch_first=True)
        self.linear = torch.nn.Linear(2 * units, tags)

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> "LetterTagger":
        """Return the module with a tagger's tensors, from letters' numbers ``(N, T)`` to scores."""
        letters, width = state["embedding.weight"].shape
        tags, features = state["linear.weight"].shape
        module = cls(letters, width, features // 2, tags)
        module.load_state_dict(state)
        return module.eval()

    def forward(self, letters: torch.Tensor) -> torch.Tensor:
        """Return the scores of every letter's tags."""
        return self.linear(self.lstm(self.embedding(letters))[0])


def score(tagger: Tagger, backend: str) -> list[Floats]:
    """Scores ``(T, tags)`` of every word, from the network in float or from a build on a backend."""
    result = read_model(tagger.source, tagger.options)
    (table,) = result.embeddings
    x, lengths = tagger.inputs(table, tagger.words)
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
    module = LetterTagger.of(tagger.state)
    with torch.no_grad():
        theirs = [module(torch.tensor([tagger.encode(word)]))[0].double().numpy() for word in tagger.words]
    words = list(zip(tagger.tags(scores), tagger.tags(theirs), strict=True))
    letters = [a == b for word in words for a, b in zip(*word, strict=True)]
    return {
        "largest difference of a score": max(
            float(np.abs(ours - wanted).max()) for ours, wanted in zip(scores, theirs, strict=True)
        ),
        "letters with PyTorch's tag, in 100": 100 * float(np.mean(letters)),
        "words with PyTorch's tags, in 100": 100 * float(np.mean([mine == wanted for mine, wanted in words])),
    }


if __name__ == "__main__":
    chosen = TAGGERS[sys.argv[1] if len(sys.argv) > 1 else "uzmorph"]()
    found = score(chosen, sys.argv[2] if len(sys.argv) > 2 else "float")
    for name, figure in compare(chosen, found).items():
        print(f"{name}: {figure:.3g}")
