"""What a build's formats make of weights that are integers in the model already."""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from rtlstm.gen.frontends.integer_weights import MATRICES, IntegerWeights, change_text
from rtlstm.gen.quantise.directions import unfold
from rtlstm.gen.quantise.input_shifts import fold_shifts
from rtlstm.gen.quantise.lowering import ArrayLayer, lower
from rtlstm.spec.network import Bidirectional, Dense, Network, PseudoLayer
from rtlstm.spec.numerics import GUARD_BITS, QuantizedNetwork
from rtlstm.spec.program.passes import feeds
from rtlstm.spec.record import Record
from rtlstm.spec.sum_bounds import row_parts

__all__ = ["WeightChange", "change_notes", "measure_changes"]

Floats = NDArray[np.float64]


class WeightChange(Record):
    """How far the weights of one product of a layer are from the integers that the model holds."""

    layer: str
    product: str
    """``input products``, ``products with h`` or ``products``."""
    largest: float
    """The largest change; 0 if the build holds the model's integers, times a power of two for each row.

    It is that of the build's weights, which the shift of an input, or the mean of two directions, divides.
    """
    largest_steps: float
    """The largest change in the model's own steps."""
    text: str
    """Both for a message."""


def measure_changes(
    network: Network, quantised: QuantizedNetwork, given: Sequence[IntegerWeights]
) -> tuple[WeightChange, ...]:
    """Compare a build's weights with those that are integers in the model, ``given``."""
    if not given:
        return ()
    steps = _with_steps(network, given)
    if quantised.numerics.input_shifts:
        shifts = np.array(quantised.numerics.input_shifts)
        network, steps = fold_shifts(network, shifts), fold_shifts(steps, shifts)
    # The steps go through the same changes of order and shape as the weights.
    layers, of_steps = lower(unfold(network))[0], lower(unfold(steps))[0]
    return tuple(_changes(quantised, layers, of_steps))


def change_notes(changes: Iterable[WeightChange]) -> tuple[str, ...]:
    """Return what a user should know about the changes."""
    found = [(change.largest > 0, f"the {change.product} of {change.layer!r}", change) for change in changes]
    same = [what for changed, what, _ in found if not changed]
    other = [f"{what} by {change.text}" for changed, what, change in found if changed]
    return (
        *((f"weights are the model's integers, exactly: those of {', '.join(same)}",) if same else ()),
        *((f"weights differ from the model's integers: those of {', '.join(other)}",) if other else ()),
    )


def _with_steps(network: Network, given: Sequence[IntegerWeights]) -> Network:
    """Return the network with the model's steps as its weights; 0 where it has none."""
    known = {(one.layer, one.weight): np.array(one.steps) for one in given}

    def with_steps(layer: PseudoLayer | Dense) -> PseudoLayer | Dense:
        found = {}
        for name in MATRICES:
            matrix = getattr(layer, name, None)
            if matrix is not None:
                its = known.get((layer.name, name), np.zeros(1))
                found[name] = np.broadcast_to(its[:, None], matrix.shape)
        return layer.replace(**found)

    layers = [
        layer.replace(forward=with_steps(layer.forward), backward=with_steps(layer.backward))
        if isinstance(layer, Bidirectional)
        else with_steps(layer)
        for layer in network.layers
    ]
    return network.replace(layers=tuple(layers))


def _changes(
    quantised: QuantizedNetwork, layers: Sequence[ArrayLayer], of_steps: Sequence[ArrayLayer]
) -> Iterator[WeightChange]:
    for index, (layer, its) in enumerate(zip(layers, of_steps, strict=True)):
        values, steps = ([part for part in (one.w_in, one.w_rec) if part is not None] for one in (layer, its))
        if layer.kind == "product" or layer.origin < 0:  # They only copy.
            continue
        for part, (product, codes, exponents) in enumerate(_parts(quantised, layers, index)):
            if not steps[part].any():
                continue
            there = np.ldexp(codes.astype(np.float64), -exponents[:, None])
            change = np.abs(there - values[part])
            text = change_text(change, steps[part])
            relative = (change / np.where(steps[part] > 0, steps[part], np.inf)).max()
            yield WeightChange(
                layer=layer.name,
                product=product,
                largest=_short(change.max()),
                largest_steps=_short(relative),
                text=text,
            )


def _parts(
    quantised: QuantizedNetwork, layers: Sequence[ArrayLayer], index: int
) -> Iterator[tuple[str, NDArray[np.int64], NDArray[np.int64]]]:
    """Return a layer's products, each with its codes and the rows' fraction bits."""
    layer, shapes, numerics = layers[index], quantised.shapes, quantised.numerics
    before = feeds(quantised.passes, index, layer.before)
    read = [shapes[before[0]].output if before else numerics.input, shapes[index + layer.feedback].output]
    target = (shapes[index].output if layer.linear else numerics.preactivation).fraction + GUARD_BITS
    parts = row_parts(quantised.layers[index])
    for source, (product, codes, shifts) in zip(read, parts, strict=False):
        # The shift brings a row's sums from their fraction bits, and the left shift, to the target's.
        yield product, codes, shifts - numerics.accumulator.align + target - source.fraction


def _short(value: float) -> float:
    return float(f"{value:.5g}")
