"""Timing of short calls, on one core."""

import os
import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

_WARM, _FEWEST, _MOST = 20, 20, 100_000

ONE_THREAD = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"), "1"
)
"""Environment of a program whose libraries must not start threads of their own."""


def pin() -> int | None:
    """Pin this process to one core, the last it may use; return which, or None if the system cannot."""
    if not hasattr(os, "sched_setaffinity"):
        return None
    core = max(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {core})
    return core


def sample(call: Callable[[int], object], seconds: float) -> NDArray[np.float64]:
    """Call ``call(0)``, ``call(1)``, ... for about ``seconds``; return each call's time but the first's."""
    clock = time.perf_counter_ns
    for index in range(_WARM):
        call(index)
    end = clock() + round(seconds * 1e9)
    taken: list[int] = []
    while len(taken) < _FEWEST or (clock() < end and len(taken) < _MOST):
        before = clock()
        call(len(taken))
        taken.append(clock() - before)
    return np.array(taken) * 1e-9
