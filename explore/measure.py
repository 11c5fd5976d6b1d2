"""The two stages of a search. Each function is the work of one item for :mod:`rtlstm.tools.work`.

The first has no Verilog: it gives exact errors and cycles, and estimates of the rest. Errors depend on the
numbers alone, so they are measured once for all devices and arrays. In the second, a point is generated,
simulated and, if wanted, placed and routed.
"""

import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from rtlstm.explore.metrics import Evaluation, Metric
from rtlstm.explore.space import Choice, Errors, Numbers, Outcome, Point, Proof, Refusal
from rtlstm.fpga.estimate import Estimate, demands, step_energy_nj
from rtlstm.fpga.families.base import fpga_family
from rtlstm.fpga.fit import NothingFitsError, fit_device
from rtlstm.gen.builds.command_options import ImplementOptions, SimulateOptions
from rtlstm.gen.builds.compare import compare_build
from rtlstm.gen.builds.generate import generate_build
from rtlstm.gen.builds.implement import implement
from rtlstm.gen.frontends import read_if_needed
from rtlstm.gen.frontends.reading import InitialState
from rtlstm.gen.quantise.calibration import Calibration, fixed_outputs
from rtlstm.gen.quantise.quantiser import choose_formats, quantise_with
from rtlstm.sim.simulated_ports import Simulator
from rtlstm.spec.errors import ConfigurationError
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.network import Network
from rtlstm.spec.record import Record, few_digits, filled


@dataclass(frozen=True)
class Context:
    """What all choices have in common."""

    name: str
    """The name of the builds' top modules."""
    network: Network
    calibration: Calibration | None
    evaluation: Evaluation
    metric: Metric
    searched: dict[object, float] = field(default_factory=dict)
    """Ranges of cell states that this process has found."""
    initial_state: InitialState | None = None
    """The state in which the model begins; None for zeros."""


def measure_numbers(context: Context, choice: Choice) -> Numbers | str:
    """Quantise the network with a choice's numbers and measure its errors.

    The errors are those of the golden model, so those of the hardware. If there are no such formats, the
    result says why.
    """
    network, calibration = context.network, context.calibration
    try:
        settings = choice.settings
        formats = choose_formats(
            network,
            settings,
            calibration,
            choice.hardware,
            searched=context.searched,
            initial_state=context.initial_state,
        )
        quantised = quantise_with(network, settings, formats, choice.hardware)
    except ConfigurationError as refused:
        return str(refused)
    data, numerics = context.evaluation, quantised.numerics
    fixed = fixed_outputs(quantised, data.samples)
    error = (fixed - data.exact)[data.samples.alive]
    value = context.metric.measure(fixed, data)
    errors = Errors(
        rms=few_digits(float(np.sqrt(np.mean(error**2)))),
        largest=few_digits(float(np.abs(error).max())),
        metric=None if value is None else few_digits(value),
    )
    return Numbers(shapes=quantised.shapes, numerics=numerics, passes=quantised.passes, errors=errors)


def measure_point(context: Context, work: tuple[Choice, Numbers]) -> Outcome:
    """Find a choice's array on its device, its exact cycles, and the estimate of its size and clock."""
    choice, numbers = work
    request = choice.request
    try:
        parameters, fit = fit_device(context.name, numbers.shapes, numbers.numerics, request, numbers.passes)
    except NothingFitsError as refused:
        return Refusal(choice=choice, why=str(refused), fits=False, share=refused.share)
    except ConfigurationError as refused:
        return Refusal(choice=choice, why=str(refused), fits=True)
    manifest = Manifest.create(context.name, numbers.shapes, parameters, numbers.numerics, numbers.passes)
    cycles = manifest.cycles
    found, clock = fit.estimate, fit.clock_mhz
    return filled(
        Point,
        *(parameters, cycles, found, fit, numbers),
        choice=choice,
        pipeline=parameters.pipeline_name,
        interval_us=round(cycles.step_interval_cycles / clock, 4),
        fmax_mhz=clock,
        energy_nj=step_energy_nj(manifest, found, request.chosen, clock),
        share=_share(found, choice),
    )


def _share(found: Estimate, choice: Choice) -> float:
    """How full the device is with what it has least of, in percent of what may be used.

    Where logic can replace DSP blocks, arrays take all of these before any logic, so they say nothing.
    """
    device = choice.request.chosen.device
    given = fpga_family(device.family).need_estimates().inferred_multipliers
    taken = [each for each in demands(found, device) if given or each.resource != "multipliers"]
    return round(100 * max(each.used / each.most for each in taken if each.most), 1)


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
            read_if_needed(context.network).replace(initial_state=context.initial_state),
            folder,
            name=context.name,
            settings=point.choice.settings,
            fit=point.choice.request,
            calibration=None if data is None else data.x,
            calibration_lengths=None if data is None else data.lengths,
            calibration_state=None if data is None or data.state is None else tuple(map(tuple, data.state)),
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
