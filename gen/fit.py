"""The array that computes a step soonest on a device: ``rtlstm generate --fit``.

The search goes through the sizes that matter (a lane or a multiplier more than needed for the same
number of words only costs), soonest possible first, and ends when no other can be sooner than the
best that fits.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import lcm

from rtlstm.boards.blocks import MemoryPart, hard_blocks, map_memory
from rtlstm.boards.devices import Chosen
from rtlstm.boards.estimate import ESTIMATED, Estimate, clock_model, estimate, multiplier_tables
from rtlstm.spec.errors import ConfigurationError
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.numerics import LayerShape, Numerics
from rtlstm.spec.parameters import FAMILIES, MultiplierKind, Parameters, TableKind
from rtlstm.spec.record import Record

__all__ = ["LUT_SHARE", "Fit", "FitRequest", "fit_device"]

LUT_SHARE = 0.85
"""Share of a device's tables that a design may be estimated at: beyond it, routing takes long or fails."""

_MOST_UNITS = 16
"""Gate units beyond which no network has been found to gain."""
_NOTHING = "nothing: more would not make a step shorter"


class FitRequest(Record):
    """A device to fill, and what about the hardware is not to be chosen."""

    chosen: Chosen
    lanes: int | None = None
    macs: int | None = None
    gate_units: int | None = None
    lut_macs: int | None = None
    """Multipliers per lane made of tables; None: as many as the device lacks hard ones."""
    all_lut: bool = False
    """All multipliers of the lanes are made of tables."""
    tables: TableKind = "interpolated"
    beat_in: int = 1
    beat_out: int | None = None
    """By default as many as there are gate units."""
    streams: int = 1
    max_steps: int | None = None


class Fit(Record):
    """What was chosen for a device, and why no more."""

    device: str
    limited_by: str
    """The resource of which a sooner design would take too much."""
    tried: int
    """Designs of which cycles and sizes were worked out."""
    estimate: Estimate


@dataclass(frozen=True)
class _Candidate:
    """Sizes, and the fewest cycles that a step can take with them."""

    lanes: int
    macs: int
    gate_units: int
    lut_macs: int
    slopes: MultiplierKind
    cycles: int


@dataclass
class _Excess:
    """The resource of which a candidate takes most beyond what may be used; none if it fits."""

    share: float = 1.0
    resource: str = ""
    text: str = ""

    def compare(self, resource: str, used: float, there: float) -> None:
        """Hold what is taken of a resource against what may be used of it."""
        share = used / there if there else float(used > 0) * used * 1e9
        if share > self.share:
            self.share, self.resource = share, resource
            self.text = f"{used:,.0f} {resource} (of {there:,.0f} that may be used)"


def fit_device(
    name: str, shapes: tuple[LayerShape, ...], numerics: Numerics, request: FitRequest
) -> tuple[Parameters, Fit]:
    """Choose lanes, multipliers and gate units for the shortest estimated step latency.

    Raises
    ------
    ConfigurationError
        If the device's family has no estimates, what is given cannot be built, or nothing fits; the
        message names the resource.
    """
    return _Search(name, shapes, numerics, request).run()


class _Search:
    """One search; keeps the best design and the nearest refused one."""

    def __init__(
        self, name: str, shapes: tuple[LayerShape, ...], numerics: Numerics, request: FitRequest
    ) -> None:
        self._name, self._shapes, self._numerics = name, shapes, numerics
        self._request, self._device = request, request.chosen.device
        self._lut_limit = LUT_SHARE * self._device.luts
        if self._device.architecture not in ESTIMATED:
            raise ConfigurationError(
                f"--fit needs estimates, which there are for {' and '.join(ESTIMATED)} devices, not for "
                f"{self._device.name}; give --family, --lanes and --macs"
            )
        # What is given must be possible at all, whatever else is chosen.
        self._parameters(
            _Candidate(
                request.lanes or 4 * (request.gate_units or 1),
                request.macs or lcm(request.gate_units or 1, request.beat_in, request.lut_macs or 1),
                request.gate_units or 1,
                0,
                "dsp",
                0,
            )
        )

    def run(self) -> tuple[Parameters, Fit]:
        """Search; see :func:`fit_device`."""
        best: tuple[tuple[float, int], Parameters, Estimate] | None = None
        refused: list[tuple[float, _Excess]] = []
        tried = 0
        for candidate in sorted(self._candidates(), key=lambda item: (item.cycles, item.lanes * item.macs)):
            clock = clock_model(self._device).mhz(self._request.chosen.grade, 0, 0)
            if best is not None and candidate.cycles / clock > best[0][0]:
                break
            excess = _Excess()
            self._least(candidate, excess)
            if excess.resource:
                refused.append((candidate.cycles / clock, excess))
                continue
            parameters = self._parameters(candidate)
            manifest = Manifest.create(self._name, self._shapes, parameters, self._numerics)
            found = estimate(manifest, self._request.chosen)
            assert found is not None  # the family has estimates, and the parameters are its own
            tried += 1
            self._all(found, excess)
            if excess.resource:
                refused.append((found.step_latency_us, excess))
                continue
            key = (found.step_latency_us, found.luts)
            if best is None or key < best[0]:
                best = key, parameters, found
        if best is None:
            nearest = min((excess for _, excess in refused), key=lambda item: item.share)
            raise ConfigurationError(
                f"{self._name} does not fit {self._device.name}, whatever the array: the nearest takes "
                f"{nearest.text}; choose a larger device or fewer bits"
            )
        key, parameters, found = best
        sooner = [excess for latency, excess in refused if latency < key[0]]
        limit = min(sooner, key=lambda item: item.share).resource if sooner else _NOTHING
        return parameters, Fit(
            device=self._request.chosen.label, limited_by=limit, tried=tried, estimate=found
        )

    def _candidates(self) -> Iterator[_Candidate]:
        request = self._request
        for lanes in self._lanes():
            units = lanes // 4
            given = request.gate_units
            for gate_units in (given,) if given else range(1, min(units, _MOST_UNITS) + 1):
                if units % gate_units or (request.beat_out or gate_units) % gate_units:
                    continue
                for macs in self._macs(lcm(gate_units, request.beat_in)):
                    if macs % gate_units or macs % request.beat_in:
                        continue
                    cycles = self._fewest_cycles(lanes, macs)
                    for lut_macs, slopes in self._multipliers(lanes, macs, gate_units):
                        yield _Candidate(lanes, macs, gate_units, lut_macs, slopes, cycles)

    def _lanes(self) -> list[int]:
        """Fewest lanes for each number of row groups that a layer can have."""
        if self._request.lanes:
            return [self._request.lanes]
        return sorted({_up(needed, 4) for shape in self._shapes for needed in _shares(shape.rows)})

    def _macs(self, multiple: int) -> list[int]:
        """Fewest multipliers for each number of words that a vector can have."""
        if self._request.macs:
            return [self._request.macs]
        lengths = {shape.inputs for shape in self._shapes}
        lengths |= {shape.outputs for shape in self._shapes if shape.kind == "lstm"}
        return sorted({_up(needed, multiple) for length in lengths for needed in _shares(length)})

    def _multipliers(self, lanes: int, macs: int, gate_units: int) -> Iterator[tuple[int, MultiplierKind]]:
        """Yield how many of a lane's multipliers, and which of the slopes', are made of tables."""
        if self._request.all_lut or self._request.lut_macs is not None:
            given = macs if self._request.all_lut else self._request.lut_macs or 0
            if given <= macs:
                yield given, "dsp"
            return
        gate, cell = self._numerics.gate.bits, self._numerics.cell.bits
        family = self._device.architecture
        fixed = hard_blocks(gate, cell, family) + 2 * hard_blocks(gate, gate, family)
        tables = (self._numerics.sigmoid,) * 3 + (self._numerics.tanh, self._numerics.cell_tanh)
        slopes = sum(
            hard_blocks(table.slope_bits, table.low_bits + 1, family)
            for table in tables
            if table.low_bits and self._request.tables == "interpolated"
        )
        there = self._device.multipliers
        if not there:
            # Synthesis makes all of them of tables, whatever their kind.
            yield 0, "dsp"
            return
        hard = min(macs, max(0, there - gate_units * (fixed + slopes)) // lanes)
        yield macs - hard, "dsp"
        # Where multipliers are few, those of the slopes are better used in the lanes.
        more = min(macs, max(0, there - gate_units * fixed) // lanes)
        if slopes and (more > hard or gate_units * (fixed + slopes) > there):
            yield macs - more, "lut"

    def _fewest_cycles(self, lanes: int, macs: int) -> int:
        """Fewer than a step takes: a layer's first group may be all but done before its input is."""
        stages = self._parameters(_Candidate(4, 1, 1, 0, "dsp", 0), bare=True)
        cycles = 0
        for index, shape in enumerate(self._shapes):
            groups, columns = -(-shape.rows // lanes), -(-shape.inputs // macs)
            cycles += (groups - 1) * columns + 1 if index else groups * columns
            cycles += stages.hidden_result if shape.kind == "lstm" else stages.dense_result
        return cycles

    def _least(self, candidate: _Candidate, excess: _Excess) -> None:
        """Hold the least that lanes and weights alone take against the device."""
        numerics, family, device = self._numerics, self._device.architecture, self._device
        lanes, macs = candidate.lanes, candidate.macs
        in_tables = macs if not device.multipliers else candidate.lut_macs
        logic = multiplier_tables(numerics.weight_bits, numerics.data_bits, 2, family)
        sums = (macs - 1) * (numerics.weight_bits + numerics.data_bits)
        tables = lanes * (in_tables * logic + sums + 2 * numerics.accumulator.bits)
        excess.compare("lookup tables", tables, self._lut_limit)
        rows = 0
        for shape in self._shapes:
            words = -(-shape.inputs // macs) + (-(-shape.outputs // macs) if shape.kind == "lstm" else 0)
            rows += -(-shape.rows // lanes) * words
        bank = MemoryPart("weights", lanes, macs * numerics.weight_bits, max(2, rows))
        excess.compare("block RAMs", lanes * map_memory(bank, family).block_rams, device.block_rams)

    def _all(self, found: Estimate, excess: _Excess) -> None:
        """Hold an estimate against the device."""
        excess.compare("multipliers", found.multipliers, self._device.multipliers)
        excess.compare("block RAMs", found.block_rams, self._device.block_rams)
        excess.compare("lookup tables", found.luts, self._lut_limit)

    def _parameters(self, candidate: _Candidate, bare: bool = False) -> Parameters:
        request, device = self._request, self._device
        return Parameters(
            lanes=candidate.lanes,
            macs=candidate.macs,
            gate_units=candidate.gate_units,
            lut_macs=candidate.lut_macs,
            slope_multipliers=candidate.slopes,
            tables=request.tables,
            beat_in=1 if bare else request.beat_in,
            beat_out=1 if bare else request.beat_out or candidate.gate_units,
            streams=request.streams,
            max_steps=request.max_steps,
            family=device.family,
            pipeline=FAMILIES[device.family],
        )


def _up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


def _shares(values: int) -> list[int]:
    """The least sizes of the parts that ``values`` can be cut into, each for another number of parts."""
    return sorted({-(-values // parts) for parts in range(1, values + 1)})
