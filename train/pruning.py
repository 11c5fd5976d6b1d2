"""Pruning by whole words of weights, those that the array can skip."""

import math
from collections.abc import Iterable, Sequence
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from rtlstm.gen.builds.hardware import ArrayRequest, choose_array
from rtlstm.gen.builds.report import CycleReport, cycle_report
from rtlstm.spec.errors import ConfigurationError
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.numerics import QuantizedNetwork
from rtlstm.spec.packing import WordMap, find_kept, map_words
from rtlstm.spec.record import Record
from rtlstm.train.layers import Squares
from rtlstm.train.parameters import LayerArrays
from rtlstm.train.rows import LayerRows

Floats = NDArray[np.float64]
Masks = list[dict[bool, NDArray[np.bool_]]]
"""The weights of each layer that are kept: of the product with h (True), and of that with its input."""

Scores = list[dict[bool, Floats]]
"""What each weight counts, of the product with h (True) and of that with its input; for each layer."""

Among = Literal["group", "network"]
"""Which words are compared to choose those that go."""


class Pruned(Record):
    """What is left of the words of weights, and what a step takes then."""

    words: int
    """Words of weights of the array before pruning."""
    kept: int
    cycles: CycleReport


def manifest_of(network: QuantizedNetwork, array: ArrayRequest) -> Manifest:
    """Return the manifest of a network on an array, which skips nothing."""
    parameters = choose_array(network, array)
    return Manifest.of("network", network, parameters)


def effects(layers: Iterable[tuple[LayerRows, LayerArrays]]) -> Scores:
    """Return each weight times the root mean square of its gradient (LeCun et al., Optimal Brain Damage,
    with squares of gradients for the curvature).

    Raises ConfigurationError if no gradients of rows that are trained have been seen.
    """
    found = []
    with torch.no_grad():
        for rows, arrays in layers:
            matrices = rows.matrices(arrays)
            if rows.trained and set(rows.slopes) != set(matrices):
                raise ConfigurationError(
                    "words of the whole network are compared by their gradients, but there "
                    "were none yet: train some updates before words go"
                )
            seen = [recurrent for recurrent in matrices if recurrent in rows.slopes]
            found.append({each: _numbers(matrices[each] * rows.slopes[each][0].sqrt()) for each in seen})
    return found


def contributions(layers: Iterable[tuple[LayerRows, LayerArrays]], squares: Squares) -> Scores:
    """Return each weight times the root mean square of what it multiplies, up to a factor per product.

    Weights alone say little where values differ much (Sun et al., arXiv 2306.11695). Without calibration
    data, of which ``squares`` are, they are all there is.
    """
    with torch.no_grad():
        return [
            {
                recurrent: _numbers(values * squares.get((index, recurrent), values.new_ones(1)).sqrt())
                for recurrent, values in rows.matrices(arrays).items()
            }
            for index, (rows, arrays) in enumerate(layers)
        ]


def _numbers(values: Any) -> Floats:
    found: Floats = values.cpu().double().numpy()
    return found


def choose_words(
    manifest: Manifest, weights: Sequence[dict[bool, Floats]], share: float, among: Among = "group"
) -> Masks:
    """Choose the words to keep: the largest by the sum of their weights' squares.

    A group keeps one word at least, and the first group of a product its last one, which the sequencer waits
    for. ``weights`` are those of each layer, for h (True) and for its input; empty if they do not count.
    ``share`` is the share of the words that goes, 0 to 1. With ``among="group"`` every group of a product
    loses as many words, so that no group makes others wait; with ``"network"`` the words of all layers are
    compared. Raises ConfigurationError if the share is none, or there is no such choice.
    """
    if not 0.0 <= share < 1.0:
        raise ConfigurationError(f"the share of words to prune must be 0 or more and below 1, not {share:g}")
    if among not in get_args(Among):
        raise ConfigurationError(f"words to prune are chosen among 'group' or 'network', not {among!r}")
    words = [
        {each.recurrent: each for each in map_words(manifest, index)} if mine else {}
        for index, mine in enumerate(weights)
    ]
    sizes = [
        {recurrent: _sizes(each, mine[recurrent]) for recurrent, each in of_layer.items()}
        for of_layer, mine in zip(words, weights, strict=True)
    ]
    limit = None if among == "group" else _limit(sizes, share)
    return [
        {
            recurrent: np.asarray(_kept(found[recurrent], share, limit).ravel()[each.numbers])
            for recurrent, each in of_layer.items()
        }
        for of_layer, found in zip(words, sizes, strict=True)
    ]


def _sizes(words: WordMap, weights: Floats) -> Floats:
    """Return the sum of squares of each word, ``(groups, columns)``; infinite if it must stay."""
    size = words.groups * words.columns
    sums = np.bincount(words.numbers.ravel(), np.square(weights).ravel(), size).astype(np.float64)
    sums = sums.reshape(words.groups, words.columns)
    largest = sums.argmax(axis=1)
    largest[0] = words.columns - 1
    np.put_along_axis(sums, largest[:, None], np.inf, axis=1)
    return sums


def _limit(sizes: Sequence[dict[bool, Floats]], share: float) -> float:
    """Return the size from which words stay if a share of all goes."""
    ordered = np.sort(np.concatenate([each.ravel() for mine in sizes for each in mine.values()]))
    return float(ordered[min(math.ceil(share * len(ordered)), len(ordered) - 1)])


def _kept(sizes: Floats, share: float, limit: float | None) -> NDArray[np.bool_]:
    if limit is not None:
        return np.asarray(sizes >= limit)
    count = max(1, sizes.shape[1] - int(share * sizes.shape[1]))
    largest = np.argsort(-sizes, axis=1, kind="stable")[:, :count]
    mask = np.zeros(sizes.shape, dtype=bool)
    np.put_along_axis(mask, largest, True, axis=1)
    return mask


def pruned_report(network: QuantizedNetwork, manifest: Manifest) -> Pruned:
    """Count a network's words and its cycles if words of zeros are skipped."""
    kept = find_kept(network, manifest)
    skipping = Manifest.of(manifest.name, network, manifest.parameters, kept)
    return Pruned(
        words=manifest.program.weight_rows,
        kept=skipping.program.weight_rows,
        cycles=cycle_report(skipping),
    )
