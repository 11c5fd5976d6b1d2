"""The networks of STAC-ML Markets in its terms: latencies of several instances, and the error.

It borrows networks and terms; it is neither a STAC benchmark nor audited. Latencies are those on chip, from
the input to the last output beat, in cycles of the exact schedule, at a clock. That is the clock of a core
with one stream, also for several instances: cores with as many streams were not placed and routed.
"""

from pathlib import Path

import numpy as np

from rtlstm.bench.hardware import post_route, predict_cycles, with_streams
from rtlstm.bench.records import Clock, Instances, StacResult, StacShape
from rtlstm.bench.shapes import Shape, find_shapes
from rtlstm.gen.quantise.quantiser import quantise
from rtlstm.sim.golden import Golden
from rtlstm.sim.reference import run_float
from rtlstm.spec.errors import ConfigurationError
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.program.schedule import offer_cycles
from rtlstm.spec.progress import Progress

PROFILE = ("stac_a", "stac_b", "stac_c")
"""Its networks: LSTM_A, LSTM_B and LSTM_C."""
INSTANCES = (1, 2, 4, 8)
"""Numbers of instances that share a core, each with a stream of its own."""


def run_profile(
    names: list[str] | None,
    folder: Path,
    devices: tuple[str, ...],
    assumed_mhz: float,
    progress: Progress | None,
) -> StacResult:
    """Work out the latencies of the named networks, or of all three, and the error of a window.

    Parameters
    ----------
    names
        Names of networks of :data:`PROFILE`.
    folder, devices
        Where builds may be that were placed and routed, whose clock is taken; of these devices, if any are
        given.
    assumed_mhz
        The clock of the others.
    progress
        Called with what is done.

    Raises
    ------
    ConfigurationError
        If a network is not one of these.
    """
    for name in names or ():
        if name not in PROFILE:
            raise ConfigurationError(
                f"a network of this profile must be one of {', '.join(PROFILE)}, not {name!r}"
            )
    found = []
    shapes = find_shapes(list(names or PROFILE))
    for done, shape in enumerate(shapes):
        if progress:
            progress("schedule and error of a window", done, len(shapes))
        clock = post_route(folder / shape.name, devices) or Clock(mhz=assumed_mhz, source="assumed")
        found.append(_measure(shape, clock))
    if progress:
        progress("schedule and error of a window", len(shapes), len(shapes))
    return StacResult(shapes=tuple(found))


def _measure(shape: Shape, clock: Clock) -> StacShape:
    manifest = predict_cycles(shape)
    error, largest = _errors(shape)
    return StacShape(
        name=shape.name,
        steps=shape.steps,
        clock=clock,
        instances=tuple(
            count_instances(manifest, count, steps, clock.mhz)
            for steps in (1, shape.steps)
            for count in INSTANCES
        ),
        rms_error=error,
        largest_error=largest,
    )


def count_instances(manifest: Manifest, instances: int, steps: int, mhz: float) -> Instances:
    """Return the latencies of instances whose inputs are all there in the same cycle.

    An instance's latency includes its wait for those before it, step by step in turns. With one step, its
    state is kept from the step before, and its recurrent part is ready; with several, it is a whole window
    that begins with a zero state, and only its last output is wanted.
    """
    program, parameters = with_streams(manifest, instances)
    streams = list(range(instances)) * steps
    suppress = [True] * (instances * (steps - 1)) + [False] * instances
    offered = offer_cycles(
        program, parameters, len(streams), first_step=steps > 1, streams=streams, suppress=suppress
    )
    latencies = np.array(offered[-instances:]) / mhz
    p50, p99 = np.percentile(latencies, (50, 99), method="inverted_cdf")
    return Instances(
        instances=instances,
        steps=steps,
        p50_us=round(float(p50), 4),
        p99_us=round(float(p99), 4),
        max_us=round(float(latencies.max()), 4),
    )


def _errors(shape: Shape) -> tuple[float, float]:
    """The rms and the largest error of a window's outputs against float64."""
    network, x = shape.network(), shape.input_values(shape.steps)[:, None].astype(np.float64)
    quantised = quantise(network, shape.settings)
    golden = Golden(quantised).run(quantised.numerics.quantise_input(x))
    error = quantised.shapes[-1].output.to_floats(golden.y) - run_float(network, x).y
    rms, largest = np.sqrt(np.mean(error**2)), np.abs(error).max()
    return float(f"{rms:.4g}"), float(f"{largest:.4g}")
