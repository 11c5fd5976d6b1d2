"""The range of the cell state, from calibration data.

In a wide range c is rounded coarsely, in a narrow one it saturates. Rounding has the same effect on any data,
but saturation only where c reaches the limit, and other data may have a larger c than those of the
calibration. So two errors judge a range: that of the golden model with it, and that of the float network
whose c saturates at two thirds of it. The latter covers data whose c is half as large again.
"""

import math
from collections.abc import Callable

import numpy as np

from rtlstm.gen.quantise.calibration import Calibration, keeps_cell_state, run_reference
from rtlstm.sim.golden import Golden
from rtlstm.sim.reference import FloatResult
from rtlstm.spec.network import Dense, Lstm, Network
from rtlstm.spec.numerics import QuantizedNetwork

MARGIN = 1.25
"""Factor from the largest calibrated magnitude to the one that a format must hold."""
_SATURATED = 2 / 3
"""Share of a range at which c saturates in the float network's trial."""
_GAIN = 1.25
"""A range is taken if its error is at most this multiple of the smallest one."""
_STEPS = 2048
_WORK = 100_000_000
"""Steps that each trial may always run, and multiplications that it may take if it runs more."""


def power_of_two(magnitude: float) -> float:
    """Return the least power of two that is at least ``magnitude``; 1 for 0."""
    return float(2.0 ** np.ceil(np.log2(magnitude))) if magnitude > 0 else 1.0


def states_leave(network: Network, asked: bool | None) -> bool:
    """Whether final states are results like y: as ``asked``, else if no dense layer is the last one."""
    return not isinstance(network.layers[-1], Dense) if asked is None else asked


def _bound(network: Network) -> float:
    """Return the magnitude to which the network itself clips c; infinite if it does not."""
    kept = [layer for layer in network.pseudo_layers if keeps_cell_state(layer)]
    clips = [layer.cell_clip if isinstance(layer, Lstm) else None for layer in kept]
    return max((math.inf if clip is None else clip for clip in clips), default=math.inf)


def search_sample(network: Network, data: Calibration) -> Calibration:
    """Return the sequences that the search runs: all, or a sample if all would take too long."""
    return data.sample(max(_STEPS, _WORK // network.weight_count))


def search_cell_range(
    network: Network,
    data: Calibration,
    reference: FloatResult,
    leave: bool,
    begin: float,
    build: Callable[[float], QuantizedNetwork],
    limit: float,
) -> float:
    """Try powers of two as ranges; return the widest one whose error is about the smallest.

    Parameters
    ----------
    data
        The data that ``reference`` is the result of; a sample of them is run.
    leave
        Whether final states are results, too. Then the range holds them with a quarter more, as it always
        holds the initial states.
    begin
        The largest c of the initial states.
    build
        The function that quantises with a range.
    limit
        The largest range that may be taken.
    """
    if not any(map(keeps_cell_state, network.pseudo_layers)):
        return 1.0
    some = search_sample(network, data)
    wanted = reference.y if some is data else run_reference(network, some).y
    most = _bound(network)
    held = max([begin, *(float(np.abs(c).max(initial=0.0)) for c in (reference.c if leave else ()))])
    least = min(power_of_two(max(min(MARGIN * held, most), 1.0)), limit)
    max_abs = min(power_of_two(max(min(2.0 * reference.cell, most), least)), limit)
    errors: dict[float, float] = {}
    # When one range is far worse than the best, narrower ones are worse still.
    while max_abs >= least and (not errors or errors[2 * max_abs] <= 4 * min(errors.values())):
        trial = build(max_abs)
        integers = trial.numerics.input.to_integers(some.x)
        found = Golden(trial).run(integers, some.integer_state(trial), some.lengths)
        rounded = trial.shapes[-1].output.to_floats(found.y)
        saturated = run_reference(network, some, max_abs if max_abs >= most else _SATURATED * max_abs).y
        errors[max_abs] = max(float(np.abs(y - wanted).max()) for y in (rounded, saturated))
        max_abs /= 2
    return max(max_abs for max_abs, error in errors.items() if error <= _GAIN * min(errors.values()))
