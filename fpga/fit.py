"""Finds the array with the lowest step latency on a device: ``rtlstm generate --fit``.

Of a network that takes whole sequences, latency is that of the longest sequence. The search tries sizes, with
each of the family's pipelines (those with copies of registers for arrays of one block), in the order of their
lowest possible latency, and ends when no other can be faster than the best one that fits. It leaves out lanes
and multipliers that do not reduce the number of words.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from math import ceil, gcd, lcm
from typing import Any

from pydantic import field_validator

from rtlstm.fpga.core_parts import multiplier_luts
from rtlstm.fpga.estimate import BoardTop, Demand, Estimate, board_clock, estimate, worst_demand
from rtlstm.fpga.families.base import fpga_family
from rtlstm.fpga.families.device import Chosen
from rtlstm.fpga.families.estimates import Estimates
from rtlstm.fpga.request import HardwareRequest
from rtlstm.fpga.resources import BLOCK_RAMS, fill_limits, large_name
from rtlstm.spec.errors import ConfigurationError
from rtlstm.spec.family import DEFAULT_PIPELINE, FAMILIES
from rtlstm.spec.inventory import (
    MultiplierSpec,
    activation_spec,
    gate_multipliers,
    scale_multipliers,
    weight_memory,
)
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.numerics import SKIPS, LayerShape, Numerics, array_words, vector_lengths
from rtlstm.spec.parameters import MultiplierKind, Parameters, TableMemory, WeightMemory
from rtlstm.spec.program.passes import Passes, part_layers
from rtlstm.spec.program.sequences import check_gate_units, longest_sequence
from rtlstm.spec.program.step import unit_cycles
from rtlstm.spec.program.wave import takes_wave
from rtlstm.spec.record import Record

_MOST_UNITS = 16
"""Largest number of gate units that is tried: no network was faster with more."""
_MOST = 1024
"""Largest numbers of lanes, and of multipliers per lane, that can be built."""
_BLOCK_BITS, _LUT_BITS = 36 * 1024, 64
"""The most bits that a block RAM, or a LUT as memory, has in any family."""
_MOST_REFUSED = 100
"""Largest number of refused arrays that are estimated, to find the one that is nearest to fitting."""
_SIZES = ("lanes", "macs", "gate_units", "multipliers", "lut_lanes", "weight_memory", "table_memory")
"""The fields of a request that determine the array."""


class NothingFitsError(ConfigurationError):
    """No array of a network fits a device.

    ``share`` is what the nearest one needs of the resource that it exceeds most, more than 1; None if there
    is no array of the sizes that were given. The message begins with ``what`` does not fit ``target``, if
    they are given.
    """

    def __init__(self, text: str, share: float | None = None, what: str = "", target: str = "") -> None:
        super().__init__(f"{what} does not fit {target}, {text}" if target else text)
        self.share = share
        self._text, self._what, self._target = text, what, target

    def advised(self, advice: str) -> "NothingFitsError":
        """Return the error with a remedy at the end of its message."""
        return NothingFitsError(f"{self._text}; {advice}", self.share, self._what, self._target)

    def said_of(self, target: str) -> str:
        """Return the message for another board with the same device."""
        return str(NothingFitsError(self._text, self.share, self._what, self._target and target))


class FitRequest(HardwareRequest):
    """A device to fit, and the properties of the hardware that the user has chosen.

    By default, multipliers are made of LUTs only where the device has too few DSP blocks, and weights are in
    block RAM, or in the device's largest memory if they do not fit in block RAM. Tables are memories, or
    constants of LUTs if block RAM lacks.
    """

    chosen: Chosen
    board: BoardTop | None = None
    """The board whose top and link must fit, too; None for the core alone."""

    @field_validator("multipliers")
    @classmethod
    def _choose_multipliers(cls, given: str | int | None) -> str | int | None:
        """Take auto as not given: it is the default with a device to fit."""
        return None if given == "auto" else given

    def check(self) -> None:
        """Check the given properties, before others are chosen.

        Raises ConfigurationError if the device's family has no estimates, its clock is neither known nor
        given, or the given properties cannot be built.
        """
        device = self.chosen.device
        if self.array == "spatial":
            self._check_in_space()
            return
        self.check_loop()
        remedy = f"give `family={device.family!r}`, `lanes` and `macs`"
        estimates = self.need_estimates("`fit`", remedy)
        if self.clock_mhz is not None and estimates.knows_clocks:
            raise ConfigurationError(
                f"`clock_mhz` is for devices whose delays no tool here knows, but the clock of {device.name} "
                "is estimated; leave it out"
            )
        if self.family is not None:
            raise ConfigurationError("`fit` takes the family from its device: leave out `family`, or `fit`")
        in_luts = self.all_lut or self.lut_macs or self.lut_lanes
        if in_luts and estimates.inferred_multipliers:
            raise ConfigurationError(
                f"`multipliers` and `lut_lanes` cannot be chosen for {device.name}, "
                f"because synthesis makes DSP blocks of all multipliers; leave them out, or implement the "
                "build with `multipliers=False`"
            )
        if self.lut_lanes and self.multipliers is None:
            raise ConfigurationError(
                f"`lut_lanes` ({self.lut_lanes}) needs a number of `multipliers` beside "
                "`fit`, which else chooses both; leave out `lut_lanes`, or try "
                "`multipliers=0`"
            )
        units = self.gate_units or 1
        blocks, rest = divmod(self.lanes or 0, 4)
        if blocks % units and not rest and self.macs is None:
            raise ConfigurationError(
                f"`gate_units` ({units}) must divide `lanes` / 4 ({blocks}); try {gcd(blocks, units)}"
            )
        together = lcm(units, self.beat_in)
        macs = self.macs or _up(self.least_macs, together)
        if macs > _MOST:
            raise ConfigurationError(
                f"`macs` can be at most {_MOST}, but multiples of `gate_units={units}` "
                f"and `beat_in={self.beat_in}` begin with {macs}; give a smaller one"
            )
        self.sized(device.family, self.lanes or _up(self.least_lanes, 4 * units), macs)

    def _check_in_space(self) -> None:
        """Check a request for a spatial build, as :meth:`check` does."""
        self.check_spatial()
        device = self.chosen.device
        estimates = self.need_estimates("`fit`", f"give `family={device.family!r}`")
        if estimates.spatial_clocks is None:
            untimed = "" if estimates.spatial is None else estimates.spatial.untimed
            why = f", because nextpnr knows no delays of its {untimed}" if untimed else ""
            raise ConfigurationError(
                f"`fit` has no clocks of spatial builds for {device.name}{why}: leave it out and give "
                f"`family={device.family!r}`, or leave out `array='spatial'`"
            )
        for name in ("family", "clock_mhz", "fit_anyway"):
            if name in self.model_fields_set:
                raise ConfigurationError(f"`fit` with `array='spatial'` takes no `{name}`: leave it out")

    def need_estimates(self, option: str, remedy: str) -> Estimates:
        """Return the estimates of the device's family; ``option`` names it, and ``remedy`` is one without.

        Raises ConfigurationError if there are none, or none of what surrounds the core on the board, or the
        clock is neither known nor given.
        """
        device = self.chosen.device
        estimates = fpga_family(device.family).need_estimates(option, device.name, remedy)
        if self.board and estimates.top_luts is None:
            raise ConfigurationError(
                f"{option} has no estimate of what surrounds the core on {self.target}; name its device, "
                f"{device.name}, and leave room for it"
            )
        if not estimates.knows_clocks and self.clock_mhz is None:
            raise ConfigurationError(
                f"{option} needs the clock that you assume of {device.name}, because no tool here knows its "
                "delays; give it in MHz, such as `clock_mhz=200`"
            )
        return estimates

    def check_weights(self, name: str, weights: int, bits: int) -> None:
        """Raise NothingFitsError if the device could not hold weights of so many bits in all its memories."""
        device, large = self.chosen.device, self.chosen.device.large_ram
        most = device.block_rams * _BLOCK_BITS + device.luts * _LUT_BITS
        most += 0 if large is None else large.count * large.kibit * 1024
        share = weights * bits / most
        if share > 1:
            text = f"whatever the array: {weights:,} weights of {bits} bits are {share:.3g} times its memory"
            raise self.misfit(name, text, share)

    def misfit(self, name: str, text: str, share: float) -> NothingFitsError:
        """Return the error for a network of this name, with its link if a board is asked for."""
        if self.board is None:
            return NothingFitsError(text, share, name, self.chosen.device.name)
        return NothingFitsError(text, share, f"{name} with its link", self.board.name)

    @property
    def given_sizes(self) -> tuple[str, ...]:
        """The fields that determine the array and were given."""
        fields = type(self).model_fields
        return tuple(name for name in _SIZES if getattr(self, name) != fields[name].default)

    @property
    def target(self) -> str:
        """Name of the board, or of the device."""
        return self.board.name if self.board else self.chosen.label

    def parameters(self, **sizes: object) -> Parameters:
        """Return parameters of these sizes for the device's family."""
        fields: dict[str, Any] = self.core_options | sizes
        return Parameters.for_family(self.chosen.device.family, **fields)


class Fit(Record):
    """The array that was chosen for a device, and the limiting resource."""

    device: str
    """Name of the device or board."""
    limited_by: str
    """The limiting resource: a faster design would take too much of it."""
    pipeline: str = DEFAULT_PIPELINE
    """Name of the family's pipeline that was chosen."""
    tried: int
    """How many designs were computed, cycles and sizes."""
    estimate: Estimate

    @property
    def clock_mhz(self) -> float:
        """The clock: a device without an estimated one is fitted at one that is assumed."""
        assert self.estimate.clock_mhz is not None
        return self.estimate.clock_mhz

    @property
    def latency_us(self) -> float:
        """Time of a step, or of the longest sequence, at that clock."""
        assert self.estimate.step_latency_us is not None
        return self.estimate.step_latency_us

    @property
    def limit_text(self) -> str:
        """A clause for people: what keeps a faster design from this device, whatever share this one takes."""
        if self.limited_by.startswith("the "):
            return f"limited by {self.limited_by}"
        what = "array" if self.estimate.loop_registers is None else "build"
        return f"a faster {what} would need too many {self.limited_by}"


@dataclass(frozen=True)
class _Candidate:
    """Parameters of an array, and lower bounds of its step's cycles and time."""

    lanes: int
    macs: int
    gate_units: int
    lut_macs: int
    lut_lanes: int
    slope_multipliers: MultiplierKind
    weight_memory: WeightMemory
    table_memory: TableMemory
    pipeline_name: str
    cycles: int
    least_us: float
    """Lower bound of a step's time."""


_BOUNDS = "cycles", "least_us"
"""What a candidate has beside its parameters."""


@dataclass(frozen=True)
class _Design:
    """A candidate with its cycles and its estimate."""

    parameters: Parameters
    estimate: Estimate
    latency_us: float

    @property
    def key(self) -> tuple[float, int]:
        """Order of preference: the least is the best."""
        return self.latency_us, self.estimate.cells


@dataclass(frozen=True)
class _Refused:
    """A candidate that does not fit, and why; its design, if it was computed."""

    candidate: _Candidate
    design: _Design | None
    worst: Demand


def fit_device(
    name: str,
    shapes: tuple[LayerShape, ...],
    numerics: Numerics,
    request: FitRequest,
    passes: Passes = (),
) -> tuple[Parameters, Fit]:
    """Choose lanes, multipliers and gate units for the shortest estimated step latency.

    With ``passes`` it is the latency of the longest sequence.

    Raises ConfigurationError if the device's family has no estimates, what is given cannot be built, or the
    board's link cannot carry the network's steps. Raises NothingFitsError if nothing fits; the message names
    the resource.
    """
    return _Search(name, shapes, numerics, request, passes).run()


class _Search:
    """One search; keeps the best design, and the refused one that is nearest to fitting."""

    def __init__(
        self,
        name: str,
        shapes: tuple[LayerShape, ...],
        numerics: Numerics,
        request: FitRequest,
        passes: Passes = (),
    ) -> None:
        self._name, self._shapes, self._numerics, self._passes = name, shapes, numerics, passes
        self._request, self._device = request, request.chosen.device
        request.check()
        self._steps = 1
        if passes:
            self._steps = longest_sequence(request.max_steps)
            if request.gate_units and request.macs:
                check_gate_units(request.gate_units, request.macs)
        self._family = fpga_family(self._device.family).need_estimates()
        limits = fill_limits(self._family)
        self._cell_limit = limits.cells * self._device.luts
        self._most_multipliers = limits.most_multipliers(self._device)
        large = self._device.large_ram
        self._block_rams = limits.most_memories(self._device.block_rams)
        self._large_rams = limits.most_memories(0 if large is None else large.count)
        self._large_name = large_name(self._device)
        grade = request.chosen.grade
        limit = request.board.most_mhz if request.board else None
        self._fastest = {
            name: fastest if limit is None else board_clock(limit, fastest)
            for name in (DEFAULT_PIPELINE, *self._family.pipelines)
            for model in [self._family.usable_clock(self._device.die, name, request.clock_mhz)]
            if model is not None
            for fastest in [model.mhz(grade, 0, 0)]
        }
        self._stages = {
            name: Parameters.for_family(
                self._device.family, pipeline_name=name, tables=request.tables, macs=1
            )
            for name in self._fastest
        }
        slopes = (
            activation_spec(name, table, count=count, tables=request.tables).slope
            for name, table, count in numerics.unit.table_uses
        )
        self._slope_blocks = self._blocks(some for some in slopes if some is not None)
        products = (*gate_multipliers(numerics.unit), *scale_multipliers(numerics))
        self._product_blocks = self._blocks(products)

    def _blocks(self, multipliers: Iterable[MultiplierSpec]) -> int:
        return ceil(
            sum(some.count * self._family.hard_blocks(some.a_bits, some.b_bits) for some in multipliers)
        )

    def run(self) -> tuple[Parameters, Fit]:
        best: _Design | None = None
        refused: list[_Refused] = []
        tried = 0
        for candidate in sorted(self._candidates(), key=lambda item: (item.least_us, item.lanes * item.macs)):
            if best is not None and candidate.least_us > best.latency_us:
                break
            if not self._takes_wave(candidate):
                continue
            worst = self._least(candidate)
            if worst.exceeds:
                refused.append(_Refused(candidate, None, worst))
                continue
            for table_memory in self._table_memories:
                each = replace(candidate, table_memory=table_memory)
                design = self._design(each)
                tried += 1
                worst = worst_demand(design.estimate, self._device)
                if worst.exceeds:
                    refused.append(_Refused(each, design, worst))
                elif best is None or design.key < best.key:
                    best = design
                # Further kinds of memory for the tables take more logic cells, and only save block RAM.
                if not worst.exceeds or worst.resource != BLOCK_RAMS:
                    break
        if best is None and not refused and self._request.wave_front:
            raise ConfigurationError(
                "`wave_front` needs h to be read before the next one is stored, and no array of the sizes "
                "that were given does: leave them or `wave_front` out"
            )
        if best is None:
            raise self._nothing_fits(refused)
        return best.parameters, Fit(
            device=self._request.target,
            pipeline=best.parameters.pipeline_name,
            limited_by=self._limit(refused, best),
            tried=tried,
            estimate=best.estimate,
        )

    def _takes_wave(self, candidate: _Candidate) -> bool:
        """Whether an array is wide enough for a wave-front, if one is asked for."""
        if self._passes or not self._request.wave_front:
            return True
        return takes_wave(self._shapes, self._parameters(candidate), self._numerics)

    def _limit(self, refused: list[_Refused], best: _Design) -> str:
        """Return the resource that a faster design than the best one exceeds, by the smallest share."""
        for each in sorted(refused, key=lambda item: item.worst.share):
            if each.candidate.least_us > best.latency_us:
                continue
            design = self._known_design(each)
            if design.key < best.key:
                return each.worst.resource
        if given := self._request.given_sizes:
            names = ", ".join(given).replace("_", " ")
            return f"the sizes that were given ({names}): without them, more may fit"
        return "the network: a larger array would not be faster"

    def _known_design(self, refused: _Refused) -> _Design:
        return refused.design or self._design(refused.candidate)

    def _design(self, candidate: _Candidate) -> _Design:
        parameters = self._parameters(candidate)
        manifest = Manifest.create(self._name, self._shapes, parameters, self._numerics, self._passes)
        found = estimate(
            manifest,
            self._request.chosen,
            board=self._request.board,
            assumed_mhz=self._request.clock_mhz,
        )
        # The family has estimates, the parameters are those of its pipeline, and the request has a clock.
        assert found is not None
        assert found.step_latency_us is not None
        return _Design(parameters, found, found.step_latency_us)

    def _nothing_fits(self, refused: list[_Refused]) -> NothingFitsError:
        given = [f"`{name}={getattr(self._request, name)!r}`" for name in self._request.given_sizes]
        if not refused:
            remedy = "leave it out" if len(given) == 1 else "leave out one of them"
            return NothingFitsError(f"{self._name} has no array with {', '.join(given)}; {remedy}")
        least = sorted(refused, key=lambda item: item.worst.share)[:_MOST_REFUSED]
        nearest = worst_demand(self._known_design(least[0]).estimate, self._device)
        for each in least[1:]:
            # A candidate without a design has a lower bound of its share.
            if each.worst.share >= nearest.share:
                break
            found = worst_demand(self._known_design(each).estimate, self._device)
            nearest = min(nearest, found, key=lambda item: item.share)
        array = f"with {', '.join(given)}" if given else "whatever the array"
        return self._request.misfit(self._name, f"{array}: the nearest takes {nearest.text}", nearest.share)

    def _candidates(self) -> Iterator[_Candidate]:
        request = self._request
        for lanes in self._lanes():
            units = lanes // 4
            given = request.gate_units
            for gate_units in (given,) if given else range(1, min(units, _MOST_UNITS) + 1):
                if units % gate_units or (request.beat_out or gate_units) % gate_units:
                    continue
                for macs in self._macs(gate_units):
                    arrays = [
                        (lanes, macs, gate_units, *kinds, memory, self._table_memories[0])
                        for kinds in self._multipliers(lanes, macs, gate_units)
                        for memory in self._memories()
                    ]
                    for pipeline, fastest in self._fastest.items():
                        # The clock of pipelines with copies was measured for arrays of one block only.
                        if gate_units < units and self._stages[pipeline].pipeline.copies:
                            continue
                        cycles = self._fewest_cycles(lanes, macs, pipeline)
                        for array in arrays:
                            yield _Candidate(*array, pipeline, cycles, cycles / fastest)

    def _lanes(self) -> list[int]:
        """Return the fewest lanes for each number of row groups that a layer can have."""
        if self._request.lanes:
            return [self._request.lanes]
        block = 4 * (self._request.gate_units or 1)
        found = {_up(needed, block) for shape in self._shapes for needed in _shares(shape.rows)}
        return sorted(lanes for lanes in found if self._request.least_lanes <= lanes <= _MOST)

    def _macs(self, gate_units: int) -> list[int]:
        """Return the fewest multipliers for each number of words that a vector can have.

        Beats that fill several words are taken only where gate units are given, and never for whole
        sequences.
        """
        request = self._request
        several = request.gate_units is not None and not self._passes
        if request.macs:
            found = {request.macs}
        else:
            shares = {needed for length in vector_lengths(self._shapes) for needed in _shares(length)}
            multiples = (lcm(gate_units, request.beat_in), *([request.beat_in] if several else []))
            found = {_up(needed, multiple) for multiple in multiples for needed in shares}
        return sorted(
            macs
            for macs in found
            if request.least_macs <= macs <= _MOST
            and macs % request.beat_in == 0
            and (macs % gate_units == 0 or (several and gate_units % macs == 0))
        )

    def _multipliers(
        self, lanes: int, macs: int, gate_units: int
    ) -> Iterator[tuple[int, int, MultiplierKind]]:
        """Yield how many of a lane's multipliers are made of LUTs, how many lanes have one more, and the kind
        of the slopes' multipliers."""
        request = self._request
        if request.all_lut or request.lut_macs is not None:
            yield macs if request.all_lut else request.lut_macs or 0, request.lut_lanes or 0, "dsp"
            return
        there = int(self._most_multipliers)
        if not there or self._family.inferred_multipliers:
            # Synthesis decides what it makes of multipliers, whatever their kind.
            yield 0, 0, "dsp"
            return
        products, slopes = gate_units * self._product_blocks, gate_units * self._slope_blocks
        in_luts = self._in_luts(macs, there - products - slopes, lanes)
        yield *in_luts, "dsp"
        # Where multipliers are few, those of the slopes are better used in the lanes, if each gets one more.
        # To try it for some lanes alone changed no choice.
        fewer = self._in_luts(macs, there - products, lanes)
        if slopes and (fewer[0] < in_luts[0] or products + slopes > there):
            yield *fewer, "lut"

    def _memories(self) -> tuple[WeightMemory, ...]:
        if self._request.weight_memory is not None:
            return (self._request.weight_memory,)
        return ("block",) if self._device.large_ram is None else ("block", "large")

    @property
    def _table_memories(self) -> tuple[TableMemory, ...]:
        """The kinds of memory that may hold the tables, the one with the fewest logic cells first."""
        given = self._request.table_memory
        return ("ram", "rom") if given is None else (given,)

    def _in_luts(self, macs: int, blocks: int, lanes: int) -> tuple[int, int]:
        """Return how many multipliers of a lane are made of LUTs, and how many lanes have one more.

        The fewest, with so many DSP blocks for all lanes. All lanes are alike if the user wants no others.
        """
        weight, data = self._numerics.weight_bits, self._numerics.data_bits
        together = 1 + FAMILIES.named(self._device.family).shares_multipliers(weight, data)
        for hard in range(macs, 0, -1):
            each, less = (ceil(self._family.hard_blocks(weight, data, count)) for count in (hard, hard - 1))
            lacking = lanes * each - together * blocks
            if lacking <= 0:
                return macs - hard, 0
            if self._request.lut_lanes is None and each > less:
                lut_lanes = _up(-(-lacking // (each - less)), together)
                if lut_lanes < lanes:
                    return macs - hard, lut_lanes
        return macs, 0

    def _fewest_cycles(self, lanes: int, macs: int, pipeline: str) -> int:
        """Return a lower bound of the cycles of a step, or of the longest sequence."""
        if self._passes:
            return self._steps * self._fewest_in_passes(lanes, macs, self._stages[pipeline])
        return self._fewest_in_step(lanes, macs, self._stages[pipeline])

    def _fewest_in_passes(self, lanes: int, macs: int, stages: Parameters) -> int:
        """Return a lower bound of a step's cycles in all passes.

        Each pass issues all of its words, and no step of a layer begins before the results of its last one.
        """
        cycles, timing = 0, self._numerics.unit.timing(stages)
        for parts in part_layers(self._passes):
            shapes = [self._shapes[layer] for layers in parts for layer in layers]
            loops = [
                stages.preactivation + unit_cycles(shape, timing) - stages.pipeline.operand
                for shape in shapes
                if shape.recurrent
            ]
            cycles += max([array_words(shapes, lanes, macs), *loops])
        return cycles

    def _fewest_in_step(self, lanes: int, macs: int, stages: Parameters) -> int:
        """Return a lower bound of a step's cycles: a layer's first group may be almost done at its input."""
        timing = self._numerics.unit.timing(stages)
        free, there = 0, [0]
        for index, shape in enumerate(self._shapes):
            groups, columns = -(-shape.rows // lanes), -(-shape.inputs // macs)
            read = there[index + 1 - shape.before] if index else 0
            if 1 < groups <= (self._request.lane_sums or 0):
                # What is there of its vector has been multiplied for all groups.
                free = max(free + (groups * columns if index else 0), read + groups)
            else:
                free = max(free, read) + (groups - 1) * columns + 1
            # Partial sums of a skip are added without idle cycles.
            # A layer's words are issued before the results that they contain are there.
            ahead = stages.pipeline.operand if index else 0
            results = stages.preactivation + unit_cycles(shape, timing) - ahead
            there.append(free if shape.kind in SKIPS else free + results)
        return max(there)

    def _least(self, candidate: _Candidate) -> Demand:
        """Return the demand nearest to its limit, or most beyond it, of bounds for lanes and weights."""
        numerics, family, device = self._numerics, self._family, self._device
        lanes, macs = candidate.lanes, candidate.macs
        in_luts = lanes * candidate.lut_macs + candidate.lut_lanes if device.multipliers else lanes * macs
        logic = multiplier_luts(numerics.weight_bits, numerics.data_bits, 3, family)
        in_blocks = self._chained_sums(candidate)
        sums = (macs - 1 - in_blocks) * (numerics.weight_bits + numerics.data_bits)
        luts = in_luts * logic + lanes * (sums + 2 * numerics.accumulator.bits)
        found = [Demand("logic cells", luts, self._cell_limit, device.luts)]
        if family.inferred_multipliers:
            products = family.hard_blocks(numerics.weight_bits, numerics.data_bits, macs)
            most = self._most_multipliers
            found.append(Demand("multipliers", lanes * products, most, device.multipliers))
        rows = array_words(self._shapes, lanes, macs)
        width = macs * numerics.weight_bits
        bank = family.map_memory(weight_memory(lanes, width, rows, candidate.weight_memory))
        rams, large_rams = self._block_rams, self._large_rams
        found.append(Demand(BLOCK_RAMS, lanes * bank.block_rams, rams, rams))
        found.append(Demand(self._large_name, lanes * bank.large_rams, large_rams, large_rams))
        return max(found, key=lambda each: each.share)

    def _chained_sums(self, candidate: _Candidate) -> int:
        """Return the most adders of a lane that are in DSP blocks."""
        bits = self._numerics.weight_bits, self._numerics.data_bits
        paired = FAMILIES.named(self._device.family).shares_multipliers(*bits)
        stages = self._stages[candidate.pipeline_name]
        if not stages.sums_in_dsp or not self._family.adds_products(*bits, paired):
            return 0
        return candidate.macs // 2 - min(candidate.macs, candidate.lut_macs + 1) // 2

    def _parameters(self, candidate: _Candidate) -> Parameters:
        sizes = {name: value for name, value in vars(candidate).items() if name not in _BOUNDS}
        beat_out = self._request.beat_out or candidate.gate_units
        return self._request.parameters(**sizes, beat_out=beat_out, factor_bits=self._numerics.factor_bits)


def _up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


def _shares(values: int) -> list[int]:
    """Return the least sizes of the parts that ``values`` can be divided into, for each number of parts."""
    return sorted({-(-values // parts) for parts in range(1, values + 1)})
