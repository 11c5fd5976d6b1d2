"""The second stage: a point is generated, simulated and, if wanted, placed and routed."""

import tempfile
from pathlib import Path

from rtlstm.explore.measure import Context
from rtlstm.explore.records import Point, Proof
from rtlstm.gen.builds.command_options import ImplementOptions, SimulateOptions
from rtlstm.gen.builds.compare import compare_build
from rtlstm.gen.builds.generate import generate_build
from rtlstm.gen.builds.implement import implement
from rtlstm.sim.simulator_names import Simulator
from rtlstm.spec.errors import ConfigurationError
from rtlstm.spec.record import Record

__all__ = ["Proving", "prove_point"]


class Proving(Record):
    """A point, and how it is proven."""

    point: Point
    simulator: Simulator
    route: bool
    seeds: int


def prove_point(context: Context, work: Proving) -> Proof:
    """Build a point in a folder that goes, and compare it with what was predicted."""
    point, data = work.point, context.calibration
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text) / "build"
        manifest = generate_build(
            context.network,
            folder,
            name=context.name,
            settings=point.choice.settings,
            fit=point.choice.request,
            calibration=None if data is None else data.x,
            calibration_lengths=None if data is None else data.lengths,
            calibration_state=None if data is None or data.state is None else tuple(map(tuple, data.state)),
            initial_state=context.initial_state,
        )
        found, _ = compare_build(folder, SimulateOptions(simulator=work.simulator, verify=False))
        cycles = manifest.cycles.step_latency_cycles
        proof = Proof(
            words=found.output_words + found.state_words,
            words_different=found.output_different + found.state_different,
            cycles_different=found.cycles_different,
            step_latency_cycles=cycles,
            passed=found.passed and cycles == point.step_latency_cycles,
        )
        return _routed(folder, proof, work) if work.route and proof.passed else proof


def _routed(folder: Path, proof: Proof, work: Proving) -> Proof:
    """Place and route on this worker alone; others have other points. Of a board, its device is meant."""
    chosen = work.point.choice.request.chosen
    asked = ImplementOptions(device=chosen.label, package=chosen.package or None, seeds=work.seeds, jobs=1)
    try:
        found = implement(folder, asked)
    except ConfigurationError as refused:
        # The estimate was too small: after synthesis it does not fit.
        return proof.replace(refusal=str(refused))
    return proof.replace(
        fmax_mhz=found.fmax_median_mhz,
        step_latency_us=found.step_latency_us,
        luts=found.core.luts,
        multipliers=found.core.multipliers,
        block_rams=found.core.block_rams,
    )
