"""Published taggers tag words as PyTorch does; their checkpoints are downloaded, so that test is slow."""

from itertools import pairwise, product

import numpy as np
import pytest
from support.example_file import load_example

from rtlstm.zoo.taggers import best_path

pytestmark = pytest.mark.rtl


@pytest.mark.slow
@pytest.mark.parametrize("name", ["uzmorph", "segmenter"])
def test_tags(name: str) -> None:
    """In float as PyTorch's; on the golden model nearly so; on the RTL the golden model's bits."""
    example = load_example("word_taggers")
    tagger = example.TAGGERS[name]()
    figures = example.compare(tagger, example.score(tagger, "float"))
    assert figures["largest difference of a score"] < 1e-4
    assert figures["words with PyTorch's tags, in 100"] == 100
    golden = example.score(tagger, "golden")
    figures = example.compare(tagger, golden)
    assert figures["largest difference of a score"] < 0.05
    assert figures["letters with PyTorch's tag, in 100"] == 100
    for ours, rtl in zip(golden, example.score(tagger, "verilator"), strict=True):
        np.testing.assert_array_equal(ours, rtl)


def test_best_path_beats_every_other() -> None:
    rng = np.random.default_rng(5)
    for length in (1, 2, 6):
        scores, change = rng.normal(size=(length, 3)), rng.normal(size=(3, 3))
        begin, end = rng.normal(size=(2, 3))

        def total(path: tuple[int, ...]) -> float:
            steps = sum(change[a, b] for a, b in pairwise(path))  # noqa: B023
            return begin[path[0]] + end[path[-1]] + steps + sum(scores[range(len(path)), path])  # noqa: B023

        best = max(product(range(3), repeat=length), key=total)
        assert best_path(scores, begin, end, change) == list(best)
