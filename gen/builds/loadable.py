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
    "device_hardware",
    "device_settings",
    "headroom",
    "with_capacity",
]


def headroom(chosen: Mapping[str, int]) -> int:
    """Return the headroom chosen, or the usual one."""
    default: int = Capacity.model_fields["headroom"].default
    return chosen.get("headroom", default)


def with_capacity(
    name: str, network: QuantizedNetwork, parameters: Parameters, chosen: Mapping[str, int]
) -> Parameters:
    """Return parameters of a loadable core that holds ``network`` and has the capacities ``chosen``.

    Raises
    ------
    ConfigurationError
        If a capacity is out of range or too small, or no loadable core can hold such a network.
    """
    fixed = Manifest.create(name, network.shapes, parameters, network.numerics, network.passes)
    return parameters.replace(capacity=fixed.program.needs.capacity(**chosen))


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
