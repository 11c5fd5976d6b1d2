"""Tries other widths for a build, each as ``generate`` would build it, and says which to take.

A search of formats by measurement takes seconds, so all widths are tried with the formulas' formats first,
and errors are scaled by what the search gained for the build itself. What may be worth it is then built in
full, the cheapest first.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from math import ceil, log2, sqrt
from typing import Any

import numpy as np

from rtlstm.boards.catalogue import find_target
from rtlstm.fpga.estimate import Estimate, estimate
from rtlstm.gen.accuracy.measure import find_uncertainty
from rtlstm.gen.accuracy.records import GAIN, Advice, Cost, ErrorReport, Part, WidthErrors, named_part
from rtlstm.gen.accuracy.samples import Samples
from rtlstm.gen.builds.generate import BuildRequest
from rtlstm.gen.builds.hardware import Asked
from rtlstm.gen.builds.report import memory_reports
from rtlstm.gen.quantise.calibration import fixed_outputs
from rtlstm.gen.quantise.quantiser import QuantizationSettings, choose_formats, quantise_with
from rtlstm.gen.quantise.ranges import power_of_two
from rtlstm.sim.reference import FloatResult
from rtlstm.spec.errors import ConfigurationError
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.numerics import QuantizedNetwork, stated_cell_range
from rtlstm.spec.progress import Progress
from rtlstm.spec.record import few_digits

_Changes = Mapping[str, int | float | str]

_HELP: Mapping[Part, tuple[str, ...]] = {
    "weights": ("weight_bits", "dense_weight_bits"),
    "activations": ("data_bits", "hidden_bits", "output_bits"),
    "tables": ("gate_bits",),
    "state": ("cell_bits",),
}
"""The widths of each part."""
_AT_LEAST: Mapping[str, tuple[str, ...]] = {
    "data_bits": ("hidden_bits", "gate_bits"),
    "hidden_bits": ("gate_bits",),
}
"""What has at least as many bits."""
_MOST_BITS = 8
"""Most bits that are added to a width."""
_ENOUGH = sqrt(2)
"""A part has the bits that it needs if its error is no larger than that of all others together."""
_MOST_BUILT, _MOST_NARROWER, _GUESSES = 4, 2, 3
"""Most builds in full with more bits, and with fewer; and with more if none is expected to be good enough."""
_MAY_DO = 1.15
"""A build is made in full if its expected error is at most this multiple of the one that is wanted."""


@dataclass(frozen=True)
class Made:
    """A build, and what it was made of."""

    request: BuildRequest
    asked: Asked
    network: QuantizedNetwork
    manifest: Manifest
    estimate: Estimate | None
    """That of the device for which its cost is estimated."""

    def cost(self, manifest: Manifest) -> Cost:
        """Return what a build takes on this one's device."""
        found = None
        if self.estimate is not None:
            target = find_target(self.estimate.board or self.estimate.device)
            found = estimate(manifest, target.chosen, board=target.board)
        return Cost(
            device="" if found is None else found.board or found.device,
            luts=None if found is None else found.luts,
            block_rams=None if found is None else found.block_rams,
            memory_bits=sum(memory.bits for memory in memory_reports(manifest)),
            step_latency_cycles=manifest.cycles.step_latency_cycles,
        )

    def options(self, changes: _Changes) -> dict[str, Any]:
        """Return the options of a build with changes, but for data and how the model is read."""
        asked = self.asked
        others = {"name": asked.name, "capacities": asked.capacities or None}
        numbers = asked.settings.model_dump(exclude_defaults=True)
        found = {**others, **(asked.hardware or {}), **numbers, **changes}
        for option in ("cell_range", "hidden_range"):
            if isinstance(ranges := found.get(option), tuple):
                found[option] = ",".join(f"{each:g}" for each in ranges)
        return {name: value for name, value in found.items() if value is not None}


class Widths:
    """Tries widths of a build on inputs that did not calibrate it.

    ``reference`` is the float network's run on them.
    """

    def __init__(
        self,
        build: Made,
        samples: Samples,
        reference: FloatResult,
        errors: ErrorReport,
        progress: Progress | None = None,
    ) -> None:
        self._build, self._samples, self._errors = build, samples, errors
        self._reference = reference
        self._progress, self._begun, self._total = progress, 0, 0
        self._searched: dict[object, float] = {}
        self._settings = build.request.settings
        self._formulas = self._settings.quick or build.request.data is None
        """Whether ``generate`` takes the formulas' formats itself."""
        self._names = list(_changeable(build.network, self._settings))
        self._now = build.cost(build.manifest)

    def run(self) -> tuple[tuple[WidthErrors, ...], Advice | None]:
        """Return the errors of all widths, the cheapest first, and the change to make."""
        now = self._errors.output
        if not now.rms_error:
            return (), None
        numerics = self._build.network.numerics
        # h has at least the bits of inputs.
        fewer = [
            each for each in self._names if each != "hidden_bits" or numerics.own_hidden_bits is not None
        ]
        wanted = [*self._more(), *((self._changes(name, -1), -1) for name in fewer)]
        self._total = len(wanted) + (0 if self._formulas else 1 + _MOST_BUILT + _MOST_NARROWER)
        plain, scale = self._settings, 1.0
        if not self._formulas:
            plain = plain.replace(quick=True, **{name: self._bits(name) for name in self._names})
            known = self._try({}, 0, plain, False).rms_error
            scale = now.rms_error / known if known else 1.0
        tried = [self._try(changes, bits, plain, self._formulas, scale) for changes, bits in wanted]
        # Of widths that there are not, the first is enough.
        found = [each for each in tried if not (each.refusal and each.bits > 1)]
        found.sort(key=self._growth)
        part = named_part(now)
        goal = GAIN * now.rms_error if part is None else _ENOUGH * part.without
        goal = min(goal, GAIN * now.rms_error)
        if not self._formulas:
            found = self._built(found, goal)
        return tuple(found), self._advice(found, goal)

    def _growth(self, width: WidthErrors) -> float:
        return np.inf if width.cost is None else width.cost.growth(self._now)

    def _built(self, found: list[WidthErrors], goal: float) -> list[WidthErrors]:
        """Build in full what may be worth it."""
        now = self._errors.output
        more = [each for each in found if each.bits >= 0 and each.rms_error is not None]
        fewer = [each for each in found if each.bits < 0 and self._growth(each) < 0]
        some = [each for each in more if _below(each, _MAY_DO * goal)][:_MOST_BUILT]
        if not some:
            some = sorted(more, key=lambda each: each.rms_error or 0.0)[:_GUESSES]
        done: dict[int, WidthErrors] = {}
        for each in some:
            done[id(each)] = self._try(each.changes, each.bits, self._settings, True)
            if _below(done[id(each)], goal):
                break
        for each in [each for each in fewer if _below(each, _MAY_DO * now.rms_error)][:_MOST_NARROWER]:
            done[id(each)] = self._try(each.changes, each.bits, self._settings, True)
        return sorted((done.get(id(each), each) for each in found), key=self._growth)

    def _advice(self, found: list[WidthErrors], goal: float) -> Advice | None:
        """Return the cheapest change that is good enough, else the best one, else one that saves."""
        now = self._errors.output.rms_error
        built = [each for each in found if each.measured]
        more = [each for each in built if each.bits >= 0 and _below(each, GAIN * now)]
        enough = [each for each in more if _below(each, goal)]
        best = [*enough, *sorted(more, key=lambda each: each.rms_error or 0.0)]
        chosen = next(chain(best, narrower(built, self._errors)), None)
        if chosen is None or chosen.rms_error is None or chosen.cost is None:
            return None
        return Advice(
            changes=chosen.changes,
            options=self._build.options(chosen.changes),
            rms_error=chosen.rms_error,
            max_abs_error=chosen.max_abs_error or 0.0,
            uncertainty=chosen.uncertainty,
            cost=chosen.cost,
            cost_now=self._now,
        )

    # What is tried

    def _more(self) -> Iterator[tuple[_Changes, int]]:
        """Yield changes to more bits: as many as the named part needs for its widths, one of others."""
        errors = self._errors.output
        part = named_part(errors)
        for name in self._names:
            most = 1
            if part is not None and name in _HELP[part.part]:
                needed = ceil(log2(part.alone / part.without)) if part.without else _MOST_BITS
                most = max(needed, 0) + 1  # Ranges may take one.
            for bits in range(1, min(most, _MOST_BITS) + 1):
                yield self._changes(name, bits), bits
        if part is None:
            largest = sorted(errors.parts, key=lambda each: -each.alone)[:2]
            names = [name for each in largest for name in _HELP[each.part][:1] if name in self._names]
            if len(names) == 2:
                yield {**self._changes(names[0], 1), **self._changes(names[1], 1)}, 1
        network, numbers = self._build.network, self._settings
        saturated = {each.quantity for each in self._errors.saturations if each.saturated}
        if "state" in saturated and numbers.final_states is None:
            stated = str(stated_cell_range(network.shapes, network.numerics)).split(",")
            ranges = [float(each) for each in stated]
            for factor in sorted({2.0, max(2.0, power_of_two(self._reference.cell / min(ranges)))}):
                yield {"cell_range": ",".join(f"{factor * each:g}" for each in ranges)}, 0
        if "input" in saturated:
            yield {"input_range": power_of_two(float(np.abs(self._samples.x).max()))}, 0

    def _bits(self, name: str) -> int:
        numerics = self._build.network.numerics
        bits: int | None = getattr(self._settings, name)
        if name == "hidden_bits":
            return bits or numerics.data_bits
        return bits or (numerics.cell if name == "cell_bits" else numerics.gate).bits

    def _changes(self, name: str, more: int) -> _Changes:
        bits = self._bits(name) + more
        # Stated bits of h and of gates that are too few for the data are more, too.
        given = {each: getattr(self._settings, each) for each in _AT_LEAST.get(name, ())}
        also = {each: bits for each, its in given.items() if its is not None and its < bits}
        return {name: bits, **also}

    def _try(
        self,
        changes: _Changes,
        bits: int,
        settings: QuantizationSettings,
        measured: bool,
        scale: float = 1.0,
    ) -> WidthErrors:
        """Measure a build with changes."""
        if self._progress:
            self._progress("try other widths", self._begun, self._total)
        self._begun += 1
        build, about = self._build, {"changes": changes, "bits": bits, "measured": measured}
        network, begin = build.request.network, build.request.read.initial_state
        name = build.manifest.name
        try:
            settings = settings.replace(**self._widened(settings, changes))
            request = replace(build.request, settings=settings)
            hardware = request.hardware
            choices = choose_formats(
                network, settings, build.request.data, hardware, self._searched, initial_state=begin
            )
            quantised = quantise_with(network, settings, choices, hardware)
            settled, _ = request.settled(name, quantised)
            manifest, _ = settled.manifest(name, quantised, settled.sizes(name, quantised))
        except ConfigurationError as refused:
            return WidthErrors(**about, rms_error=None, max_abs_error=None, refusal=str(refused))
        whole = fixed_outputs(quantised, self._samples) - self._reference.y
        error = whole[self._samples.alive]
        return WidthErrors(
            **about,
            uncertainty=find_uncertainty(whole, self._samples),
            rms_error=few_digits(scale * np.sqrt(np.mean(error**2))),
            max_abs_error=few_digits(scale * np.abs(error).max()),
            cost=build.cost(manifest),
        )

    def _widened(self, settings: QuantizationSettings, changes: _Changes) -> dict[str, Any]:
        """Return changes with what follows in settings that state the build's bits, to have its formats."""
        widest = max([0, *(int(changes[name]) for name in _AT_LEAST if name in changes)])
        also: dict[str, Any] = {}
        if widest and settings.gate_bits is not None:
            also["gate_bits"] = max(settings.gate_bits, widest)
        if "data_bits" in changes and self._settings.hidden_bits is None:
            also["hidden_bits"] = None  # Those of other data.
        return {**also, **changes}


def _changeable(network: QuantizedNetwork, settings: QuantizationSettings) -> Iterator[str]:
    yield "weight_bits"
    if len(network.shapes) > 1 or network.shapes[0].recurrent:
        yield "hidden_bits"  # Before the data's, which cost as much and change the ports.
    yield "data_bits"
    yield from (name for name in ("dense_weight_bits", "output_bits") if getattr(settings, name) is not None)
    graphs = [network.numerics.cells[shape.cell] for shape in network.shapes]
    if any(node.kind in ("table", "pieces") for graph in graphs for node in graph.nodes):
        yield "gate_bits"
    if any(graph.state is not None for graph in graphs):
        yield "cell_bits"


def _below(width: WidthErrors, most: float) -> bool:
    return width.rms_error is not None and width.rms_error <= most


def narrower(widths: list[WidthErrors], errors: ErrorReport) -> Iterator[WidthErrors]:
    """Yield widths of fewer bits with which neither the rms nor the largest error is larger."""
    now = errors.output
    for each in widths:
        no_larger = each.max_abs_error is not None and each.max_abs_error <= now.max_abs_error
        if each.bits < 0 and each.measured and _below(each, now.rms_error) and no_larger:
            yield each


def conclude_widths(errors: ErrorReport) -> str:
    """Say what to change, what that gives and what it costs."""
    widths, advice, now = errors.widths, errors.advice, errors.output.rms_error
    if not widths:
        return ""
    text = ""
    if advice is None or advice.rms_error > GAIN * now:
        part = named_part(errors.output)
        text = " No other width gains 5 %."
        if part is not None and part.part == "state":
            text += " Calibrate with data like these, in which states become as large."
    if advice is not None:
        text += f" {advice.text}."
    for each in narrower([*widths], errors):
        if advice is None or each.changes != advice.changes:
            text += f" One bit less is no worse: {each.change_text}, {now:.3g} -> {each.rms_error:.3g}."
            break
    return text
