"""Chooses capacities of loadable builds, and quantises networks for an existing device."""

from collections.abc import Mapping

from rtlstm.gen.quantise.quantiser import QuantizationSettings
from rtlstm.gen.quantise.target import TargetHardware
from rtlstm.spec.capacity import Capacity
from rtlstm.spec.errors import ConfigurationError
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.numerics import QuantizedNetwork
from rtlstm.spec.parameters import Parameters

__all__ = [
    "capacity_hardware",
    "device_hardware",
    "device_settings",
    "formats_note",
    "refuse_capacities",
    "shape_note",
    "with_capacity",
]


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


def with_capacity(
    name: str, network: QuantizedNetwork, parameters: Parameters, capacities: Mapping[str, int] | None
) -> Parameters:
    """Return parameters of a loadable core that holds ``network`` and has these capacities, if any are given.

    Raises
    ------
    ConfigurationError
        If a capacity is out of range or too small, or no loadable core can hold such a network.
    """
    if capacities is None:
        return parameters
    fixed = Manifest.create(name, network.shapes, parameters, network.numerics, network.passes)
    return parameters.replace(capacity=fixed.program.needs.capacity(**capacities))


def device_settings(device: Manifest, input_range: float | None) -> QuantizationSettings:
    """Return the settings that give a device's formats, with an input range of the network's own.

    Raises
    ------
    ConfigurationError
        If an input range is given for a device whose program is fixed, and the input's format with it.
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
        data_bits=numerics.data_bits,
        output_bits=numerics.own_output_bits,
        gate_bits=numerics.gate.bits,
        cell_bits=numerics.cell.bits,
        cell_range=2.0 ** (numerics.cell.bits - 1 - numerics.cell.fraction),
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


def shape_note(manifest: Manifest) -> str:
    """Return what the constants of a build's C header say of the network that is loaded."""
    if manifest.parameters.capacity is None:
        return ""
    return "; INPUTS, OUTPUTS and the fractions are of its own network: SHAPE tells which is loaded"
