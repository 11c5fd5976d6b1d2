"""Explores the builds of a network: asks the study, spreads the work, and says what is best."""

import hashlib
import math
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from pydantic import BaseModel

from rtlstm.boards.catalogue import find_target
from rtlstm.explore.measure import Context, Proving, measure_numbers, measure_point, prove_point
from rtlstm.explore.metrics import Evaluation, Limit, Metric, pareto_front, rank, ruled_out
from rtlstm.explore.request import SearchOptions
from rtlstm.explore.space import Choice, Exploration, Numbers, Outcome, Point, Refusal, Space
from rtlstm.explore.study import Study
from rtlstm.fpga.devices import devices
from rtlstm.gen.accuracy.samples import Labels, Samples
from rtlstm.gen.frontends.reading import ReadResult
from rtlstm.gen.quantise.calibration import Calibration, run_reference
from rtlstm.gen.quantise.quantiser import QuantizationSettings, quantise
from rtlstm.spec.activations.functions import ActivationFunction
from rtlstm.spec.errors import ConfigurationError
from rtlstm.spec.fixed import HiddenRounding
from rtlstm.spec.layout import Pad
from rtlstm.spec.network import Network
from rtlstm.spec.numerics import LayerShape
from rtlstm.spec.program.sequences import longest_sequence
from rtlstm.spec.program.wave import check_wave
from rtlstm.spec.progress import Progress, tell
from rtlstm.spec.record import few_digits
from rtlstm.tools.work import Workers

_RECORDS = "8"
"""Raised with the fields of points, and what they mean: a study of others is refused."""


@dataclass(frozen=True)
class Plan:
    """What to search, and how far."""

    space: Space
    folder: Path
    """The study's."""
    limits: Sequence[Limit]
    options: SearchOptions


def make_context(
    name: str,
    read: ReadResult,
    metric: Metric,
    calibration: Calibration | None,
    x: ArrayLike,
    labels: Any = None,
    lengths: ArrayLike | None = None,
    batch_first: bool = False,
    pad: Pad = "back",
) -> Context:
    """Check the data that outputs are measured on, ``x`` and labels, and run the float network on them once.

    Sequences begin in the model's state.

    Raises InputError if the data do not fit the network, or lack what the metric needs. Raises
    ConfigurationError if the float network's values overflow.
    """
    network = read.network
    samples = Samples.of(x, network.inputs, lengths, batch_first, network.frames, pad, network.window)
    last = ActivationFunction.of(quantise(network).shapes[-1].activation)
    threshold = 0.5 if last.is_share else 0.0
    # A user's function takes labels of any kind.
    known = None
    if labels is not None and metric.function is None:
        known = Labels.of(labels, samples, network.outputs, threshold)
    samples = replace(samples, state=read.calibration_state(samples.x, False))
    exact = run_reference(network, samples).y
    data = Evaluation(samples, exact, threshold, known, labels)
    metric.check(data)
    return Context(name, network, calibration, data, metric, initial_state=read.initial_state)


def find_shapes(
    network: Network,
    hidden_rounding: Sequence[HiddenRounding] = (),
    max_steps: int | None = None,
    wave_front: bool = False,
) -> tuple[LayerShape, ...]:
    """Return the layers that the array computes, whose sizes depend on no choice.

    Raises ConfigurationError if the h of such networks is not rounded in one of these ways, or they take
    whole sequences and ``max_steps``, the longest one, is not stated, or they take no ``wave_front``.
    """
    for rounding in hidden_rounding:
        quantise(network, QuantizationSettings(hidden_rounding=rounding))
    found = quantise(network)
    if found.passes:
        longest_sequence(max_steps)
    if wave_front:
        check_wave(found.shapes, found.passes)
    return found.shapes


def check_boards(network: Network, space: Space) -> None:
    """Refuse boards for a network that takes whole sequences. Raises ConfigurationError if there are any."""
    boards = [name for name in space.device if find_target(name).board]
    if boards and quantise(network).passes:
        parts = ", ".join(find_target(name).chosen.label for name in boards)
        raise ConfigurationError(
            "`devices` must be devices for a network with a reverse direction, not boards "
            f"({', '.join(boards)}), whose serial link takes steps one by one; try {parts}"
        )


def explore(context: Context, plan: Plan, workers: Workers, progress: Progress | None = None) -> Exploration:
    """Search a space; the study in the plan's folder goes on if there is one.

    With the same seed, the same choices are tried, whatever the workers and interruptions.

    Raises BuildError if the folder holds the study of something else. Raises ConfigurationError if energies
    are asked for, and a device has no published currents, or routes, and a device has no place and route.
    Raises ToolError if a package or a tool is missing,
    or the workers are lost.
    """
    if plan.options.goal == "energy" or any(limit.figure.name == "energy" for limit in plan.limits):
        _check_energy(plan.space)
    if plan.options.route:
        _check_routable(plan.space)
    total = min(plan.options.choices, plan.space.size)
    in_float = context.metric.measure_float(context.evaluation)
    with Study.opened(plan.folder, plan.space, plan.options.seed, _about(context, plan)) as study:
        stage = _FirstStage(context, plan, workers, study)
        started = time.perf_counter()
        for done in stage.run(total):
            tell(progress, "choices", min(done, total), total)
        seconds = time.perf_counter() - started
        outcomes = study.outcomes()
        points = [each for each in outcomes if isinstance(each, Point)]
        within = [point for point in points if all(limit.met(point) for limit in plan.limits)]
        front = rank(pareto_front(within, context.metric), plan.options.goal, context.metric)
        front = _prove(front, context, plan, workers, study, progress)
    refused = [each for each in outcomes if isinstance(each, Refusal)]
    return Exploration(
        size=plan.space.size,
        tried=len(outcomes),
        too_large=sum(not each.fits for each in refused),
        impossible=sum(each.fits for each in refused),
        front=tuple(front),
        within=len(within),
        metric=context.metric.name,
        metric_meaning=context.metric.meaning,
        larger_is_better=context.metric.larger_is_better,
        float_metric=None if in_float is None else few_digits(in_float),
        goal=plan.options.goal,
        limits=tuple(limit.text for limit in plan.limits),
        ruled_out=ruled_out(points, plan.limits),
        new=stage.new,
        seconds=round(seconds, 3),
        workers=workers.description,
        without_build=_without_build(outcomes),
        beyond_limits=_beyond_limits(points, within, plan.limits),
        refusals=dict(Counter(each.why for each in refused).most_common(5)),
    )


def _without_build(outcomes: Sequence[Outcome]) -> dict[str, str]:
    """Return the devices that have no build, and why the choice that came nearest to one is none."""
    fits = {each.choice.device for each in outcomes if isinstance(each, Point)}
    refusals = [each for each in outcomes if isinstance(each, Refusal)]
    # The nearest one of a device comes last, and stays.
    refusals.sort(key=lambda each: -(each.share or math.inf))
    refused = {each.choice.device: each.why for each in refusals}
    return {device: why for device, why in refused.items() if device not in fits}


def _beyond_limits(
    points: Sequence[Point], within: Sequence[Point], limits: Sequence[Limit]
) -> dict[str, tuple[str, ...]]:
    """Return the devices whose builds all miss limits that others meet, and which limits rule them out."""
    met = {point.choice.device for point in within}
    beyond = {point.choice.device for point in points} - met if within else ()
    return {
        device: ruled_out(
            [point for point in points if point.choice.device == device],
            limits,
            f"no build tried for {device} has it",
        )
        for device in sorted(beyond)
    }


def _check_energy(space: Space) -> None:
    """Refuse devices of whose currents nothing is known."""
    without = [name for name in space.device if find_target(name).chosen.device.power is None]
    if without:
        known = ", ".join(device.name for device in devices().values() if device.power)
        raise ConfigurationError(
            f"energies are estimated from published currents, which are known of {known} alone, not of "
            f"{', '.join(without)}; leave these out of `devices`, or choose another goal or limit"
        )


def _check_routable(space: Space) -> None:
    """Refuse devices that nothing here can route."""
    without = [name for name in space.device if not find_target(name).chosen.device.routable]
    if without:
        raise ConfigurationError(
            f"`route` needs place and route, of which there is none here for {', '.join(without)}; leave "
            "these out of `devices`, or leave out `route`"
        )


class _FirstStage:
    """Generation by generation: numbers that are new, then the choices, then what they gave is told."""

    def __init__(self, context: Context, plan: Plan, workers: Workers, study: Study) -> None:
        self._context, self._plan, self._workers, self._study = context, plan, workers, study
        self._numbers = study.numbers()
        self._known = {each.choice.key: each for each in study.outcomes(unfinished=True)}
        self.new = 0

    def run(self, total: int) -> Iterator[int]:
        """Search until ``total`` choices were asked; yield how many are finished."""
        while asked := self._study.ask(total):
            new = [(number, choice) for number, choice in asked if choice.key not in self._known]
            self.new += len(new)
            yield len(self._known)
            self._measure(new)
            for number, choice in asked:
                self._study.tell(number, self._known[choice.key], self._plan.limits, self._context.metric)
            yield len(self._known)

    def _measure(self, new: Sequence[tuple[int, Choice]]) -> None:
        """Measure choices and keep what is found; ``new`` has the number of each one's trial, too."""
        unknown = {choice.numbers_key: choice for _, choice in new if choice.numbers_key not in self._numbers}
        keys = list(unknown)
        for index, found in self._workers.run(measure_numbers, self._context, list(unknown.values())):
            self._numbers[keys[index]] = found
            self._study.keep_numbers(keys[index], found)
        trials: list[int] = []
        work: list[tuple[Choice, Numbers]] = []
        for trial, choice in new:
            known = self._numbers[choice.numbers_key]
            if isinstance(known, str):
                self._keep(trial, Refusal(choice=choice, why=known, fits=True))
            else:
                trials.append(trial)
                work.append((choice, known))
        for index, outcome in self._workers.run(measure_point, self._context, work):
            self._keep(trials[index], outcome)

    def _keep(self, trial: int, outcome: Outcome) -> None:
        self._known[outcome.choice.key] = outcome
        self._study.keep(trial, outcome)


def _prove(
    front: Sequence[Point],
    context: Context,
    plan: Plan,
    workers: Workers,
    study: Study,
    progress: Progress | None,
) -> list[Point]:
    """Prove the first points of the front, those that were proven before not again."""
    known = study.proofs()
    asked = plan.options
    wanted = {
        index: Proving(
            point=point,
            simulator=asked.simulator or "verilator",
            route=index < asked.route,
            seeds=asked.seeds or 1,
        )
        for index, point in enumerate(front[: max(asked.simulate, asked.route)])
    }
    keys = {index: _proof_key(each) for index, each in wanted.items()}
    open_ones = [index for index in wanted if keys[index] not in known]
    # The longest first: else one worker begins it when the others have no work left.
    open_ones.sort(key=lambda index: (-wanted[index].route, -front[index].luts))
    if progress and open_ones:
        progress("build and prove", 0, len(open_ones))
    for done, (index, proof) in enumerate(
        workers.run(prove_point, context, [wanted[index] for index in open_ones])
    ):
        known[keys[open_ones[index]]] = proof
        study.keep_proof(keys[open_ones[index]], proof)
        tell(progress, "build and prove", done + 1, len(open_ones))
    return [
        point.replace(proof=known[keys[index]]) if index in wanted else point
        for index, point in enumerate(front)
    ]


def _proof_key(work: Proving) -> str:
    how = f"route {work.seeds}" if work.route else "simulate"
    return f"{how} {work.simulator} {work.point.choice.key}"


def _about(context: Context, plan: Plan) -> Mapping[str, str]:
    """What a study is of: the points of another would not be this one's."""
    data, metric = context.evaluation, context.metric
    about = {
        "version of rtlstm": version("rtlstm"),
        "form of records": _RECORDS,
        "model": _digest(context.network),
        "calibration data": _digest(context.calibration),
        "evaluation data": _digest((data.samples, data.given)),
        "metric": metric.name,
        "space": plan.space.model_dump_json(),
        "seed": str(plan.options.seed),
    }
    return about | ({"source of the metric": metric.source} if metric.source else {})


def _digest(value: object) -> str:
    found = hashlib.sha256()
    for part in _parts(value):
        found.update(len(part).to_bytes(8, "little") + part)
    return found.hexdigest()[:16]


def _parts(value: Any) -> Iterator[bytes]:
    if isinstance(value, np.ndarray):
        yield f"{value.dtype} {value.shape}".encode()
        yield np.ascontiguousarray(value).tobytes()
    elif isinstance(value, BaseModel) or is_dataclass(value):
        names = (
            type(value).model_fields
            if isinstance(value, BaseModel)
            else [each.name for each in fields(value)]
        )
        yield type(value).__name__.encode()
        for name in names:
            yield from _parts(getattr(value, name))
    elif isinstance(value, tuple | list):
        yield str(len(value)).encode()
        for each in value:
            yield from _parts(each)
    else:
        yield repr(value).encode()
