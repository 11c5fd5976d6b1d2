"""Random inputs for a build's Verilog."""

import numpy as np

from rtlstm.spec.fixed import IntArray
from rtlstm.spec.manifest import Manifest

_MOST_SEQUENCES = 8
_STEPS = 64


def random_input(manifest: Manifest, steps: int | None, seed: int) -> IntArray:
    """Return integers over the whole input range, ``(steps, N, inputs)``; one sequence per stream.

    By default 64 steps, or as many as a sequence may have on the device, if these are fewer.
    """
    steps = steps or min(_STEPS, manifest.parameters.max_steps or _STEPS)
    most = manifest.numerics.input.maximum
    count = min(manifest.parameters.streams, _MOST_SEQUENCES)
    shape = (steps, count, manifest.program.inputs)
    return np.random.default_rng(seed).integers(-most, most, shape, endpoint=True)
