"""Pruning by whole words of weights, those that the array can skip, with the cycles that this saves."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rtlstm.gen.builds.default_array import ArrayRequest, choose_array
from rtlstm.gen.builds.report import CycleReport, cycle_report
from rtlstm.spec.errors import ConfigurationError
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.numerics import QuantizedNetwork
from rtlstm.spec.packing import WordMap, find_kept, map_words
from rtlstm.spec.record import Record

__all__ = ["Masks", "Pruned", "choose_words", "manifest_of", "pruned_report"]

Floats = NDArray[np.float64]
Masks = list[dict[bool, NDArray[np.bool_]]]
"""The weights of each layer that are kept: of the product with h (True), and of that with its input."""


class Pruned(Record):
    """What is left of the words of weights, and what a step takes then."""

    words: int
    """Words of weights of the array before pruning."""
    kept: int
    cycles: CycleReport


def manifest_of(network: QuantizedNetwork, array: ArrayRequest) -> Manifest:
    """Return the manifest of a network on an array, which skips nothing."""
    parameters = choose_array(network, array)
    return Manifest.create("network", network.shapes, parameters, network.numerics, network.passes)


def choose_words(manifest: Manifest, weights: Sequence[dict[bool, Floats]], share: float) -> Masks:
    """Choose the words to keep: in each group, the largest by the sum of their weights' squares.

    Every group of a product loses as many words, so that no group makes others wait. A group keeps one word
    at least, and the first group of a product its last one, which the sequencer waits for.

    Parameters
    ----------
    weights
        Of each layer, the weights for h (True) and for its input.
    share
        Share of each group's words that goes, 0 to 1.

    Raises
    ------
    ConfigurationError
        If the share is none.
    """
    if not 0.0 <= share < 1.0:
        raise ConfigurationError(f"the share of words to prune must be 0 or more and below 1, not {share:g}")
    return [
        {each.recurrent: _kept(each, mine[each.recurrent], share) for each in map_words(manifest, index)}
        for index, mine in enumerate(weights)
    ]


def _kept(words: WordMap, weights: Floats, share: float) -> NDArray[np.bool_]:
    size = words.groups * words.columns
    norms = np.bincount(words.numbers.ravel(), np.square(weights).ravel(), size)
    norms = norms.reshape(words.groups, words.columns)
    norms[0, -1] = np.inf
    count = max(1, words.columns - int(share * words.columns))
    largest = np.argsort(-norms, axis=1, kind="stable")[:, :count]
    mask = np.zeros(norms.shape, dtype=bool)
    np.put_along_axis(mask, largest, True, axis=1)
    return np.asarray(mask.ravel()[words.numbers])


def pruned_report(network: QuantizedNetwork, manifest: Manifest) -> Pruned:
    """Count a network's words and its cycles if words of zeros are skipped."""
    kept = find_kept(network, manifest)
    skipping = Manifest.create(
        manifest.name, manifest.layers, manifest.parameters, manifest.numerics, manifest.passes, kept
    )
    return Pruned(
        words=manifest.program.weight_rows,
        kept=skipping.program.weight_rows,
        cycles=cycle_report(skipping),
    )
