"""What is searched, the choices that each build consists of, and what an exploration finds."""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from math import prod
from typing import Any, Self

from rtlstm.boards.catalogue import find_target
from rtlstm.explore.request import SpaceOptions
from rtlstm.fpga.devices import find_device
from rtlstm.fpga.families.base import fpga_family
from rtlstm.fpga.fit import FitRequest
from rtlstm.gen.builds.hardware import loses_pairs, quantised_for
from rtlstm.gen.quantise.quantiser import QuantizationSettings
from rtlstm.gen.quantise.target import TargetHardware
from rtlstm.spec.activations.interpolated import DIRECT_BITS
from rtlstm.spec.errors import ConfigurationError
from rtlstm.spec.fixed import HiddenRounding
from rtlstm.spec.numerics import LayerShape, Numerics, vector_lengths
from rtlstm.spec.parameters import TableKind, TableMemory
from rtlstm.spec.program.passes import Passes
from rtlstm.spec.record import Record

_LARGEST = 1024
"""Largest numbers of lanes, and of multipliers per lane, that can be built."""
_BITS = ("weight_bits", "data_bits", "hidden_bits", "gate_bits", "cell_bits")
_NUMBERS = (*_BITS, "tables", "hidden_rounding")
_ARRAY = ("lanes", "macs", "lane_sums", "wave_front", "max_steps")
"""What a choice says of numbers, and of the array: options of ``rtlstm generate``."""
_BESIDE_DEFAULT = ("hidden_bits", "lane_sums")
"""What is tried beside what ``rtlstm generate`` does without the option."""
_AT_ONCE = "tables", "data_bits", "hidden_bits", "gate_bits"
"""Values that depend on each other."""


class Choice(Record):
    """A build's device, numbers and array: what ``rtlstm generate --fit`` takes."""

    device: str
    """The device with its speed grade, or a board, whose serial link is counted in."""
    tables: TableKind
    weight_bits: int
    data_bits: int
    gate_bits: int
    cell_bits: int
    hidden_rounding: HiddenRounding
    lanes: int | None
    """None, as for ``macs``, for the array with the shortest step that the device holds."""
    macs: int | None
    max_steps: int | None = None
    """The longest sequence, of a network that takes whole ones."""
    clock_mhz: float | None = None
    """The clock that is assumed, if the device's is not known."""
    hidden_bits: int | None = None
    """None for what ``rtlstm generate`` chooses."""
    lane_sums: int | None = None
    wave_front: bool = False

    @property
    def settings(self) -> QuantizationSettings:
        """The settings of its numbers; ConfigurationError if there are no such formats."""
        return QuantizationSettings(**{name: getattr(self, name) for name in _NUMBERS})

    @property
    def request(self) -> FitRequest:
        """The request for its hardware."""
        given = {name: getattr(self, name) for name in ("tables", *_ARRAY)}
        return _request(self.device, self.clock_mhz).replace(**given)

    @property
    def _family(self) -> str:
        return find_target(self.device).chosen.device.family

    @property
    def hardware(self) -> TargetHardware | None:
        """What the network is quantised for; ConfigurationError if there are no such formats."""
        return quantised_for(self.settings, self._family)

    @property
    def key(self) -> str:
        """A text that no other choice has."""
        return self.model_dump_json()

    @property
    def numbers_key(self) -> str:
        """A text that choices with the same numbers have: the accuracy depends on no more."""
        pairs = loses_pairs(self._family, self.weight_bits, self.data_bits)
        return self.model_dump_json(include=set(_NUMBERS)) + (" in pairs" if pairs else "")

    @property
    def options(self) -> dict[str, float | str]:
        """The options of ``rtlstm generate`` that make this build."""
        given = {"fit": self.device} | {name: getattr(self, name) for name in (*_ARRAY, *_NUMBERS)}
        given["clock_mhz"] = self.request.clock_mhz
        if self.hidden_rounding == QuantizationSettings.model_fields["hidden_rounding"].default:
            del given["hidden_rounding"]
        return {name: value for name, value in given.items() if value is not None and value is not False}


class Space(Record):
    """The values of each part of a choice."""

    device: tuple[str, ...]
    tables: tuple[TableKind, ...]
    weight_bits: tuple[int, ...]
    data_bits: tuple[int, ...]
    gate_bits: tuple[int, ...]
    cell_bits: tuple[int, ...]
    hidden_rounding: tuple[HiddenRounding, ...]
    lanes: tuple[int | None, ...]
    """None for an array that is chosen with its ``macs``."""
    macs: tuple[int, ...]
    max_steps: tuple[int | None] = (None,)
    clock_mhz: tuple[float | None] = (None,)
    hidden_bits: tuple[int | None, ...] = (None,)
    lane_sums: tuple[int | None, ...] = (None,)
    wave_front: tuple[bool, ...] = (False,)

    @classmethod
    def of(
        cls,
        shapes: Sequence[LayerShape],
        *,
        lanes: tuple[int, ...] | None,
        macs: tuple[int, ...] | None,
        **values: Any,
    ) -> Self:
        """Return a space of a network's arrays.

        Without ``lanes`` and ``macs`` it has all that differ in their words, and the fastest that fits. That
        one has multipliers of its own choice, so it is left out if either is given.
        """
        lengths = vector_lengths(shapes)
        rows = {shape.rows for shape in shapes}
        arrays: dict[str, Any] = {
            "lanes": lanes or (*(() if macs else (None,)), *_parts(rows, 4)),
            "macs": macs or _parts(lengths, 1),
        }
        return cls(**arrays, **values)

    @classmethod
    def asked(cls, shapes: Sequence[LayerShape], asked: SpaceOptions) -> Self:
        """Return the space that a user typed.

        Raises ConfigurationError if a device, a kind of tables or a number is none.
        """
        texts = {name: getattr(asked, name) for name in (*_BITS, "lanes", "macs", "lane_sums")}
        values: dict[str, Any] = {
            name: None if text is None else parse_numbers(name, text) for name, text in texts.items()
        }
        values |= {name: (None, *(values[name] or ())) for name in _BESIDE_DEFAULT}
        return cls.of(
            shapes,
            device=find_devices(asked.devices, asked.clock_mhz),
            clock_mhz=(asked.clock_mhz,),
            tables=parse_tables(asked.tables),
            hidden_rounding=parse_roundings(asked.hidden_rounding),
            max_steps=(asked.max_steps,),
            wave_front=(False, True) if asked.wave_front else (False,),
            **values,
        )

    @property
    def dimensions(self) -> Mapping[str, Sequence[Any]]:
        """The values by the names of a choice's fields."""
        return {name: getattr(self, name) for name in type(self).model_fields}

    @property
    def notes(self) -> tuple[str, ...]:
        """What to know of the devices."""
        found = [find_target(name).chosen.device.note for name in self.device]
        assumed = [name for name in self.device if _request(name, *self.clock_mhz).clock_mhz is not None]
        if assumed:
            found.append(f"the clock of {', '.join(assumed)} is assumed to be {self.clock_mhz[0]:g} MHz")
        return tuple(dict.fromkeys(note for note in found if note))

    @property
    def size(self) -> int:
        """How many choices there are."""
        kinds = product(*(self.dimensions[name] for name in _AT_ONCE))
        numbers = sum(self._possible(*each) == each for each in kinds)
        arrays = sum(1 if lanes is None else len(self.macs) for lanes in self.lanes)
        sums = sum(not (sums and wave) for sums, wave in product(self.lane_sums, self.wave_front))
        others = (self.device, self.weight_bits, self.cell_bits, self.hidden_rounding)
        return prod(map(len, others)) * numbers * arrays * sums

    @property
    def fewest_bits(self) -> dict[str, int]:
        """The indices of the fewest bits of each kind, and of the tables that take fewer LUTs with these."""
        every = {name: values for name, values in self.dimensions.items() if name in _BITS}
        found = {
            name: values.index(min(values, key=lambda bits: bits or 0)) for name, values in every.items()
        }
        if "direct" in self.tables and min(self.gate_bits) <= DIRECT_BITS:
            found["tables"] = self.tables.index("direct")
        return found

    def choice(self, indices: Mapping[str, int]) -> Choice:
        """Return the choice with the values of these indices, or the next one that can be built."""
        fields = {name: values[indices[name]] for name, values in self.dimensions.items()}
        fields |= zip(_AT_ONCE, self._possible(*(fields[name] for name in _AT_ONCE)), strict=True)
        if fields["lanes"] is None:
            fields["macs"] = None
        # They exclude each other.
        fields["wave_front"] &= fields["lane_sums"] is None
        return Choice(**fields)

    def _possible(
        self, tables: TableKind, data_bits: int, hidden_bits: int | None, gate_bits: int
    ) -> tuple[TableKind, int, int | None, int]:
        """Return these, or other tables or bits of h and gates of this space if the bits of data need it."""
        if hidden_bits is not None and hidden_bits < data_bits:
            hidden_bits = None
        widest = max(data_bits, hidden_bits or 0)
        if widest > DIRECT_BITS and "interpolated" in self.tables:
            tables = "interpolated"
        enough = [bits for bits in self.gate_bits if bits >= max(widest, gate_bits)]
        return tables, data_bits, hidden_bits, enough[0] if enough else gate_bits

    def all_indices(self) -> Iterator[dict[str, int]]:
        """Yield the indices of each choice once."""
        names = list(self.dimensions)
        for found in product(*(range(len(values)) for values in self.dimensions.values())):
            indices = dict(zip(names, found, strict=True))
            given = {name: values[indices[name]] for name, values in self.dimensions.items()}
            if given["lanes"] is None and not indices["macs"]:
                given["macs"] = None
            if self.choice(indices).model_dump() == given:
                yield indices


def _parts(values: set[int], multiple: int) -> tuple[int, ...]:
    """Return the least sizes of parts that values can be divided into, for each number of parts."""
    parts = {-(-value // count) for value in values for count in range(1, value + 1)}
    sizes = sorted({-(-part // multiple) * multiple for part in parts})
    return tuple(size for size in sizes if size <= _LARGEST)


def parse_numbers(name: str, text: str) -> tuple[int, ...]:
    """Read numbers: one, some with commas between them, or ``FIRST:LAST``, both included.

    ``name`` is that of the option. The numbers are checked against the option of ``rtlstm generate``.

    Raises ConfigurationError if it is none of these, or a number is out of range.
    """
    found: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,4})\s*(?::\s*(\d{1,4})\s*)?", part)
        if match is None or (match[2] is not None and int(match[2]) < int(match[1])):
            raise ConfigurationError(
                f"`{name}` must be numbers, such as 8 or 4,8,16 or 4:16 (both ends included), not {text!r}"
            )
        found += range(int(match[1]), int(match[2] or match[1]) + 1)
    numbers = tuple(sorted(set(found)))
    # Each end is checked as generate would check it.
    record = FitRequest if name in FitRequest.model_fields else QuantizationSettings
    # The fewest bits of data, so that those of h are checked alone.
    fields: dict[str, Any] = {"chosen": find_device("up5k")} if record is FitRequest else {"data_bits": 4}
    for number in (numbers[0], numbers[-1]):
        record(**fields | {name: number})
    if name == "lanes" and any(number % 4 for number in numbers):
        raise ConfigurationError(f"`{name}` must be multiples of 4, not {text!r}")
    return numbers


def parse_tables(text: str) -> tuple[TableKind, ...]:
    """Read the kinds of tables, with commas between them; ConfigurationError if there is no such kind."""
    return tuple(QuantizationSettings(tables=each, data_bits=8).tables for each in _words(text))


def parse_roundings(text: str) -> tuple[HiddenRounding, ...]:
    """Read how h is rounded, ways with commas between them; ConfigurationError if there is no such way."""
    return tuple(QuantizationSettings(hidden_rounding=each).hidden_rounding for each in _words(text))


def _words(text: str) -> Sequence[Any]:
    """Return words with commas between them, each once; they are checked where they are used."""
    return tuple(dict.fromkeys(part.strip() for part in text.split(",")))


def _request(device: str, clock_mhz: float | None) -> FitRequest:
    """Return the request for a device, at the clock that is assumed of those whose clocks are not known."""
    target = find_target(device)
    assumes = fpga_family(target.chosen.device.family).assumes_clock
    return FitRequest(**target._asdict(), clock_mhz=clock_mhz if assumes else None)


def find_devices(text: str, clock_mhz: float | None = None) -> tuple[str, ...]:
    """Find devices and boards by their names, with commas between them; return devices with speed grades.

    Raises ConfigurationError if there is none of a name, its family has no estimates, or its clock is neither
    known nor assumed; or if a clock is assumed, and all are known.
    """
    found = [_request(name, clock_mhz) for name in text.split(",")]
    for each in found:
        each.need_estimates("`devices`", "leave it out")
    if clock_mhz is not None and all(each.clock_mhz is None for each in found):
        raise ConfigurationError(
            "`clock_mhz` is for devices whose delays no tool here knows, but the clocks of `devices` are "
            "estimated; leave it out"
        )
    return tuple(dict.fromkeys(each.target for each in found))


class Errors(Record):
    """How far a network's outputs are from float ones."""

    rms: float
    largest: float
    metric: float | None = None
    """What the user's metric says; None without one."""


class Numbers(Record):
    """Formats of a network, and their errors: what estimates need of a quantised network."""

    shapes: tuple[LayerShape, ...]
    numerics: Numerics
    passes: Passes
    errors: Errors


class Proof(Record):
    """What building, simulating and routing a point gave."""

    words: int
    """Output words and words of final states whose RTL and golden model were compared."""
    words_different: int
    cycles_different: int
    """Steps that are not offered in the predicted cycle."""
    step_latency_cycles: int
    """What the build's manifest has."""
    passed: bool
    """Whether no word and no cycle differs, and the build has the point's cycles."""
    fmax_mhz: float | None = None
    """Routed, the median of the seeds; None without a route, as those that follow."""
    step_latency_us: float | None = None
    luts: int | None = None
    multipliers: float | None = None
    block_rams: float | None = None
    refusal: str = ""
    """Why the tools did not route it."""


class Point(Record):
    """A build that fits its device: exact cycles and errors, and estimates before synthesis."""

    choice: Choice
    lanes: int
    macs: int
    gate_units: int
    pipeline: str
    table_memory: TableMemory
    """What holds the tables: ``rom`` where the device lacks block RAM."""
    step_latency_cycles: int
    step_interval_cycles: int
    latency_us: float
    interval_us: float
    fmax_mhz: float
    clock_assumed: bool = False
    """Whether the clock is what the user assumes, and no estimate."""
    luts: int
    ffs: int
    multipliers: int | float
    block_rams: int | float
    large_rams: int
    energy_nj: float | None
    """Estimated energy of a step, one after another without a pause; None without published figures."""
    share: float
    """How much is used of what is fullest, in percent of what may be: of logic cells, carry chains and memory
    blocks, and of multipliers where logic cannot replace them."""
    limited_by: str
    errors: Errors
    proof: Proof | None = None


class Refusal(Record):
    """A choice that cannot be built, and why."""

    choice: Choice
    why: str
    fits: bool
    """Whether there are such numbers, but no array of them fits the device."""
    share: float | None = None
    """What the nearest array needs of the resource that it exceeds most, more than 1; None if not known."""


Outcome = Point | Refusal


class Exploration(Record):
    """The whole result."""

    size: int
    """How many choices there are."""
    tried: int
    """How many were tried, earlier calls included."""
    too_large: int
    """How many of these do not fit their device."""
    impossible: int
    """How many of these have formats that cannot be built."""
    front: tuple[Point, ...]
    """The points that meet the limits and that no other such point of their device beats, the best first."""
    within: int
    """How many points meet the limits."""
    metric: str
    metric_meaning: str
    """What its values are."""
    larger_is_better: bool
    """Whether larger values of the metric are better."""
    float_metric: float | None
    """The metric of the float network; None if it compares with that."""
    goal: str
    limits: tuple[str, ...]
    ruled_out: tuple[str, ...]
    """Which limits rule all out, and by how much; empty if some points meet them."""
    new: int
    """How many choices this call tried."""
    seconds: float
    """How long this call took for them."""
    workers: str
    without_build: Mapping[str, str]
    """Devices that have no build, and why the last choice that was tried for them is none."""
    beyond_limits: Mapping[str, tuple[str, ...]]
    """Devices whose builds all miss limits that others meet, and which limits rule them out."""
    refusals: Mapping[str, int]
    """Why choices cannot be built, and how often."""

    @property
    def points_per_hour(self) -> float | None:
        """How many choices this call tried in an hour; None if it tried none."""
        return self.new / self.seconds * 3600 if self.new else None
