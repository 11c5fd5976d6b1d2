"""Chooses the array if the user gives no size: the smallest array that is as fast as the reference array.

The reference has 4 lanes x 32 multipliers. A network of few units cannot use all of them: with more than one
word for each row group, further multipliers only lengthen the adder tree. So smaller sizes are tried with the
exact schedule of the family's pipeline. The smallest is chosen whose step latency and step interval are not
longer. A lane counts as one additional multiplier, for its accumulator and its memory.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import lcm
from typing import Any

import numpy as np

from rtlstm.boards.catalogue import find_target
from rtlstm.fpga.fit import Fit, FitRequest, fit_device
from rtlstm.fpga.request import HardwareRequest
from rtlstm.gen.frontends.reading import ReadResult
from rtlstm.gen.quantise.plan import QuantizationSettings, Trial, hardware_alone
from rtlstm.gen.quantise.target import TargetHardware
from rtlstm.spec.errors import ConfigurationError
from rtlstm.spec.family import FAMILIES, GENERIC
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.numerics import (
    LayerShape,
    QuantizedNetwork,
    array_words,
    stated_cell_range,
    vector_lengths,
)
from rtlstm.spec.parameters import Capacity, Parameters
from rtlstm.spec.program.spatial import SpatialPlan
from rtlstm.spec.program.wave import takes_wave
from rtlstm.spec.record import Record, option_values

_CLOCKS: Mapping[int, float] = {1: 26.5, 2: 51.0, 3: 72.6, 6: 95.2, 9: 154.7}
"""MHz of LSTM 8 -> 8 with so many registers in its loop, as routed (notes/spatial.md); of 6, a prototype's.
Others are much in proportion."""
SPATIAL = TargetHardware(finer_arguments=1, constant=True)
"""What a network in space is quantised for: each bit of an argument doubles the tables of every unit."""
_LANES, _MACS = 4, 32
"""The reference array, for each gate unit."""
_STEPS = 50
"""Steps of the sequences for the comparison of arrays, if the network takes whole sequences."""


class ArrayRequest(HardwareRequest):
    """The user's choices for an array, from a family's multipliers and memories."""

    def check(self) -> None:
        """Check the user's choices, independently of the other sizes.

        Raises ConfigurationError if it cannot be built.
        """
        if self.multipliers == "auto":
            raise ConfigurationError(
                "`multipliers='auto'` makes of LUTs what a device lacks, so it needs one to fit: "
                "give `fit`, or dsp, lut or a number"
            )
        if self.fit_anyway:
            raise ConfigurationError(
                "`fit_anyway` says what to do if a device is too small: give `fit`, "
                "too, or leave out `fit_anyway`"
            )
        if self.clock_mhz is not None:
            raise ConfigurationError(
                f"`clock_mhz={self.clock_mhz:g}` is assumed of a device to fit: give `fit`, too, or leave "
                "out `clock_mhz`"
            )
        if self.array == "spatial":
            self.check_spatial()
        else:
            self.check_loop()
            self.largest()

    def spatial_plan(self, network: QuantizedNetwork) -> SpatialPlan | None:
        """Return the plan of a spatial build; None for an array.

        Raises ConfigurationError if there is no spatial build of such a network.
        """
        if self.array != "spatial":
            return None
        return SpatialPlan.of(network, self.chosen_loop)

    @property
    def chosen_loop(self) -> int:
        """Registers in the loop of a spatial build: by default those with the most steps a second."""

        def rate(registers: int) -> float:
            return _CLOCKS[registers] * min(1, self.streams / registers)

        return self.loop_registers or max(_CLOCKS, key=rate)

    @property
    def multiple(self) -> int:
        """Kind of the multipliers in lanes."""
        return lcm(self.gate_units or 1, self.beat_in)

    def largest(self, factor_bits: int = 18) -> Parameters:
        """Return the array, with the reference's sizes where none were chosen."""
        block = _LANES * (self.gate_units or 1)
        lanes = -(-self.least_lanes // block) * block
        macs = -(-max(_MACS, self.least_macs) // self.multiple) * self.multiple
        return self.parameters(self.lanes or lanes, self.macs or macs, factor_bits)

    def parameters(self, lanes: int, macs: int, factor_bits: int) -> Parameters:
        """Return the parameters of an array of this size; ``factor_bits`` as for a family's pipeline."""
        return self.sized(self.family or GENERIC, lanes, macs, factor_bits=factor_bits)


def with_tables(options: Mapping[str, Any], capacities: Mapping[str, int] | None = None) -> dict[str, Any]:
    """Return options with the kind of tables that a spatial build has, if they name none.

    Raises ConfigurationError if some are given that are for weights that are loaded.
    """
    if options.get("array") != "spatial":
        return dict(options)
    found = {"tables": "direct"} | dict(options)
    check_constants(capacities, found.get("headroom_bits"))
    return found


def check_constants(capacities: Mapping[str, int] | None, headroom_bits: int | None) -> None:
    """Raise a ConfigurationError if what is for weights that are loaded is given to a spatial build."""
    refuse_capacities(
        capacities, "a spatial build has no program to load: leave out `capacities`, or `array='spatial'`"
    )
    if headroom_bits:
        raise ConfigurationError(
            "`headroom_bits` is for weights that are loaded later, and those of a spatial build are "
            "constants: leave it out"
        )


def check_hardware(fit: str | None, given: Mapping[str, Any]) -> dict[str, Any]:
    """Check and return the request for the hardware: sizes of the array, or a device or board to fit."""
    if fit is None:
        array = ArrayRequest(**given)
        array.check()
        return {"array": array}
    request = FitRequest(**find_target(fit)._asdict(), **given)
    request.check()
    return {"fit": request}


class Asked(Record):
    """What a build was asked to be: with model and data it can be made again, or with other widths."""

    settings: QuantizationSettings
    hardware: Mapping[str, Any] | None
    """Options that chose the hardware's sizes, ``fit`` among them; None if they were given as parameters."""
    capacities: Mapping[str, int] | None = None
    name: str | None = None
    calibration: str | None = None
    """A digest of the calibration data; None without any."""


@dataclass(frozen=True)
class Design:
    """A network in integers, and the hardware that computes it."""

    settings: QuantizationSettings
    quantised: QuantizedNetwork
    manifest: Manifest
    notes: tuple[str, ...] = ()
    fit: Fit | None = None
    asked: Asked | None = None
    trials: tuple[Trial, ...] = ()
    """What was tried to find the formats."""


def hardware_options(request: HardwareRequest | None) -> dict[str, Any]:
    """Return the options that give a request, but for the kind of tables, which belongs to the numbers."""
    if request is None:
        return {}
    given = option_values(HardwareRequest, request.model_dump(exclude_defaults=True, exclude={"tables"}))
    return given | ({"fit": request.target} if isinstance(request, FitRequest) else {})


def choose_sizes(
    name: str, network: QuantizedNetwork, request: ArrayRequest | FitRequest
) -> tuple[Parameters, Fit | None]:
    """Choose the hardware's sizes, for a device if the request has one.

    Raises ConfigurationError if the user's choices cannot be built, or nothing fits.
    """
    if isinstance(request, FitRequest):
        return fit_device(name, network.shapes, network.numerics, request, network.passes)
    return choose_array(network, request), None


def choose_array(network: QuantizedNetwork, request: ArrayRequest) -> Parameters:
    """Choose lanes and multipliers for a network, unless the request gives them.

    Raises ConfigurationError if the user's choices cannot be built.
    """
    if request.array == "spatial":
        return _spatial_sizes(network, request)
    bits = network.numerics.factor_bits
    large = request.largest(bits)
    if request.lanes and request.macs:
        return large
    latency, interval = _speed(network, large)
    smaller = sorted(
        _smaller(network.shapes, request, large), key=lambda size: (size[0] * (size[1] + 1), size[0])
    )
    for lanes, macs in smaller:
        if array_words(network.shapes, lanes, macs) > interval:
            continue
        found = request.parameters(lanes, macs, bits)
        if found.wave_front and not takes_wave(network.shapes, found, network.numerics):
            continue
        its_latency, its_interval = _speed(network, found)
        if its_latency <= latency and its_interval <= interval:
            return found
    return large


def _spatial_sizes(network: QuantizedNetwork, request: ArrayRequest) -> Parameters:
    """Return a spatial build's parameters: its ports are as wide as its steps in the loop's cycles need."""
    cycles = max(1, request.chosen_loop // request.streams)
    beat = request.beat_in if "beat_in" in request.model_fields_set else -(-network.inputs // cycles)
    if beat > network.inputs:
        raise ConfigurationError(f"`beat_in` ({beat}) must be at most the {network.inputs} inputs of a step")
    return Parameters.for_family(
        request.family or GENERIC,
        lanes=_LANES,
        macs=beat,
        beat_out=request.beat_out or -(-network.outputs // cycles),
        table_memory=request.table_memory or "ram",
        **request.core_options | {"beat_in": beat},
    )


def in_space(name: str, network: QuantizedNetwork, request: ArrayRequest) -> Manifest:
    """Return the manifest of a spatial build.

    Raises ConfigurationError if there is none of such a network, or the user's choices cannot be built.
    """
    return Manifest.of(name, network, _spatial_sizes(network, request), spatial=request.spatial_plan(network))


def _smaller(
    shapes: tuple[LayerShape, ...], request: ArrayRequest, large: Parameters
) -> Iterator[tuple[int, int]]:
    """Yield lanes and multipliers of the smaller arrays: the fewest for each number of groups and words."""
    cost = large.lanes * (large.macs + 1)
    lengths = vector_lengths(shapes)
    rows = {shape.rows for shape in shapes}
    all_lanes = [request.lanes] if request.lanes else _sizes(rows, 4 * (request.gate_units or 1))
    all_macs = [request.macs] if request.macs else _sizes(lengths, request.multiple)
    for lanes in all_lanes:
        for macs in all_macs:
            enough = lanes >= request.least_lanes and macs >= request.least_macs
            if lanes * (macs + 1) < cost and enough:
                yield lanes, macs


def _sizes(values: set[int], multiple: int) -> list[int]:
    """Return the smallest sizes of parts that values can be divided into, for each number of parts."""
    parts = {-(-value // count) for value in values for count in range(1, value + 1)}
    return sorted({-(-part // multiple) * multiple for part in parts})


def _speed(network: QuantizedNetwork, parameters: Parameters) -> tuple[int, int]:
    """Return latency and interval of a step, or of a sequence, in cycles."""
    if parameters.max_steps is not None:
        # Longer sequences only add steps with equal numbers of cycles.
        parameters = parameters.replace(max_steps=min(parameters.max_steps, _STEPS))
    cycles = Manifest.of("size", network, parameters).cycles
    return cycles.step_latency_cycles, cycles.step_interval_cycles


def refuse_capacities(capacities: Mapping[str, int] | None, why: str) -> None:
    """Refuse capacities, if any are given, with a ConfigurationError that says why."""
    if capacities is not None:
        raise ConfigurationError(why)


def capacity_hardware(capacities: Mapping[str, int] | None) -> TargetHardware | None:
    """Return what a network for a core with these capacities is quantised for; None without any."""
    if capacities is None:
        return None
    default: int = Capacity.model_fields["headroom"].default
    return TargetHardware(headroom=capacities.get("headroom", default))


def loses_pairs(family: str, weight_bits: int, data_bits: int) -> bool:
    """Return whether two lanes share a multiplier with so many bits of h, and with one more do not."""
    shares = FAMILIES.named(family).shares_multipliers
    return shares(weight_bits, data_bits) and not shares(weight_bits, data_bits + 1)


def quantised_for(
    settings: QuantizationSettings, family: str, capacities: Mapping[str, int] | None = None
) -> TargetHardware | None:
    """Return what a network for an array of a family is quantised for; None for hardware for it alone."""
    found = capacity_hardware(capacities)
    if loses_pairs(family, settings.most_weight_bits, settings.data_bits):
        return replace(found or hardware_alone(settings), wider_hidden=0)
    return found


def with_capacity(
    name: str, network: QuantizedNetwork, parameters: Parameters, capacities: Mapping[str, int] | None
) -> Parameters:
    """Return parameters of a loadable core that holds ``network`` and has these capacities, if any are given.

    Raises ConfigurationError if a capacity is out of range or too small, or no loadable core can hold such a
    network.
    """
    if capacities is None:
        return parameters
    fixed = Manifest.of(name, network, parameters)
    return parameters.replace(capacity=fixed.program.needs.capacity(**capacities))


def table_settings(
    settings: QuantizationSettings, read: ReadResult, calibrated: bool
) -> QuantizationSettings:
    """Return the settings with the range of the table whose rows are the only input, unless data or the
    settings give one."""
    alone = len(read.embeddings) == 1 and not read.network.input_parts
    if calibrated or settings.input_range is not None or not alone:
        return settings
    largest = float(np.abs(read.embeddings[0].table).max())
    return settings.replace(input_range=largest) if largest else settings


def device_settings(device: Manifest, input_range: float | None) -> QuantizationSettings:
    """Return the settings that give a device's formats, with an input range of the network's own.

    Raises ConfigurationError if an input range is given for a device whose program is fixed, and the input's
    format with it.
    """
    numerics = device.numerics
    if input_range is not None and device.parameters.capacity is None:
        raise ConfigurationError(
            "`input_range` is that of the device where its program is fixed, as of "
            f"{device.name!r}: leave it out, or generate a build of its own for the network"
        )
    used = numerics.own_weight_bits or (numerics.weight_bits, None)
    return QuantizationSettings(
        weight_bits=used[0],
        dense_weight_bits=used[1],
        scale_bits=numerics.scale_bits,
        data_bits=numerics.input.bits,
        hidden_bits=numerics.own_hidden_bits,
        output_bits=numerics.own_output_bits,
        gate_bits=numerics.gate.bits,
        cell_bits=numerics.cell.bits,
        # Where it has several formats of c, the network's layers take the one that they need.
        cell_range=None if numerics.cell_shifts[-1] else stated_cell_range(device.layers, numerics),
        input_range=input_range,
        hidden_rounding=numerics.hidden_rounding,
        tables=device.parameters.tables,
    )


def device_hardware(device: Manifest) -> TargetHardware:
    """Return what a network for this device is quantised for."""
    fixed = device.parameters.capacity is None
    return TargetHardware(device=device.numerics, layers=device.layers if fixed else ())


def formats_note(device: Manifest) -> str:
    """Return which formats of a network may be others than those of the device that it is loaded into."""
    return "" if device.parameters.capacity is None else ", but for the input's range"
