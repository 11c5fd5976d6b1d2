"""Shifts of input features: small ones are multiplied by a power of two, and their weights divided by it.

All features share one format, set by the largest. A much smaller feature would use few of its codes, or only
0. A shift lets it use more of them. It is exact, but its weights then have fewer codes.
"""

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from rtlstm.spec.fixed import Format, IntArray
from rtlstm.spec.network import Bidirectional, Dense, Network
from rtlstm.spec.numerics import MOST_INPUT_SHIFT

Floats = NDArray[np.float64]

_MARGIN = 2.0
"""A shifted feature must fit at this multiple of its peak: other data may be larger, and saturation costs
more than a bit."""


def choose_shifts(network: Network, peaks: Floats, input: Format, weight_bits: int) -> IntArray:
    """Choose the shift of each feature, ``(inputs,)``, so that the noise of its rounding is least.

    ``peaks`` are the features' largest magnitudes.

    A shift s divides the noise of a feature's rounding by ``2**s``, and multiplies that of its weights'
    rounding, whose steps are set by the largest weight of a row. With p the peak, P the largest that the
    format holds, m the root mean square of the weights and M the largest m that no shift can divide further,
    both are equal where ``4**s = (m / M) * (P / p) * 2**(weight_bits - input.bits)``. No shift is so large
    that the feature would saturate at twice its peak, nor so small that its weights would make the rows'
    scales coarser.
    """
    weights = np.sqrt(np.mean(np.concatenate(_matrices(network)) ** 2, axis=0))
    used = (peaks > 0) & (weights > 0)
    shifts = np.zeros(len(peaks), dtype=np.int64)
    if not used.any():
        return shifts
    room = np.array([_room(input, float(peak)) for peak in peaks[used]])
    heights = np.log2(weights[used])
    heights -= (heights - room).max()
    max_abs = math.log2(input.limit)
    balanced = (heights + max_abs - np.log2(peaks[used]) + weight_bits - input.bits) / 2
    shifts[used] = np.clip(np.maximum(np.rint(balanced), np.ceil(heights)), 0, room)
    return shifts


def _room(input: Format, peak: float) -> int:
    finest = Format.covering(input.bits, _MARGIN * peak).fraction
    return min(max(0, finest - input.fraction), MOST_INPUT_SHIFT)


def fold_shifts(network: Network, shifts: IntArray) -> Network:
    """Return the network whose outputs for ``x * 2**shifts`` are exactly those of ``network`` for x."""
    factors = np.ldexp(1.0, -shifts)
    return _with_input_weights(network, lambda weights: weights * factors)


def _matrices(network: Network) -> list[Floats]:
    """Return all matrices that the network's input is multiplied by, ``(rows, inputs)`` each."""
    found: list[Floats] = []

    def keep(weights: Floats) -> Floats:
        found.append(weights)
        return weights

    _with_input_weights(network, keep)
    return found


def _with_input_weights(network: Network, change: Callable[[Floats], Floats]) -> Network:
    """Change the matrices that the network's input is multiplied by: the first layer's, and skips'."""
    first, *layers = network.layers
    if isinstance(first, Bidirectional):
        directions = {"forward": first.forward, "backward": first.backward}
        first = first.replace(
            **{name: direction.replace(w_ih=change(direction.w_ih)) for name, direction in directions.items()}
        )
    elif isinstance(first, Dense):
        first = first.replace(weight=change(first.weight))
    else:
        first = first.replace(w_ih=change(first.w_ih))
    for index, layer in enumerate(layers):
        if isinstance(layer, Dense) and layer.skip is not None and layer.skips == index + 2:
            layers[index] = layer.replace(skip=change(layer.skip))
    return network.replace(layers=(first, *layers))
