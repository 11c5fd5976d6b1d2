"""Networks with words of zeros for whole row groups, and manifests of builds that skip them."""

import dataclasses

import numpy as np
from numpy.random import Generator

from rtlstm.spec.fixed import IntArray
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.numerics import QuantizedLayer, QuantizedNetwork, QuantizedRecurrent
from rtlstm.spec.packing import find_kept
from rtlstm.spec.parameters import Parameters
from rtlstm.spec.program.passes import Kept
from support.random_builds import Case, make_case


def _pruned(rng: Generator, weights: IntArray, gates: int, rows: int, columns: int, share: float) -> IntArray:
    """Set tiles of so many rows of each gate and so many columns to zero."""
    found = weights.reshape(gates, -1, weights.shape[1]).copy()
    for row in range(0, found.shape[1], rows):
        for column in range(0, found.shape[2], columns):
            if rng.random() < share:
                found[:, row : row + rows, column : column + columns] = 0
    return found.reshape(weights.shape)


def prune(
    rng: Generator, network: QuantizedNetwork, parameters: Parameters, share: float = 0.6
) -> QuantizedNetwork:
    """Set about that share of the words of every product of LSTM and dense layers to zero."""
    layers: list[QuantizedLayer] = []
    for layer in network.layers:
        if isinstance(layer, QuantizedRecurrent):
            tile = (4, parameters.units, parameters.macs, share)
            w_ih, w_hh = (_pruned(rng, weights, *tile) for weights in (layer.w_ih, layer.w_hh))
            layers.append(dataclasses.replace(layer, w_ih=w_ih, w_hh=w_hh))
        else:
            tile = (1, parameters.lanes, parameters.macs, share)
            layers.append(dataclasses.replace(layer, weight=_pruned(rng, layer.weight, *tile)))
    return dataclasses.replace(network, layers=tuple(layers))


def skipping(network: QuantizedNetwork, plain: Manifest) -> Manifest:
    """The manifest of the same build without words of zeros."""
    return with_kept(plain, find_kept(network, plain))


def with_kept(plain: Manifest, kept: Kept) -> Manifest:
    return Manifest.create(plain.name, plain.layers, plain.parameters, plain.numerics, plain.passes, kept)


def everything(plain: Manifest) -> Kept:
    """A table of kept words that leaves out none."""
    return {(op.layer, op.kind == "recurrent"): tuple(map(tuple, op.group_words)) for op in plain.program.ops}


def pruned_case(seed: int, network: QuantizedNetwork, parameters: Parameters, steps: int = 8) -> Case:
    """A case of a pruned network, in a build that skips words of every product."""
    pruned = prune(np.random.default_rng(seed), network, parameters)
    case = make_case(seed, pruned, parameters, steps)
    return dataclasses.replace(case, manifest=skipping(pruned, case.manifest))
