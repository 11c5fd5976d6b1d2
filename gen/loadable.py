"""Loadable builds: capacities that are chosen, and networks for a device that is there."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from rtlstm.gen.quantise import QuantizationSettings
from rtlstm.spec.capacity import CAPACITIES, Capacity
from rtlstm.spec.errors import BuildError, ConfigurationError
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.numerics import QuantizedNetwork
from rtlstm.spec.parameters import Parameters

__all__ = [
    "device_manifest",
    "device_settings",
    "device_verilog",
    "headroom",
    "parse_capacities",
    "with_capacity",
]


def parse_capacities(given: Sequence[str]) -> dict[str, int]:
    """Read ``NAME=NUMBER``, each name at most once.

    Raises
    ------
    ConfigurationError
        If one is something else.
    """
    chosen: dict[str, int] = {}
    for text in given:
        name, _, number = text.partition("=")
        field = name.replace("-", "_")
        if name not in CAPACITIES or not number.isdecimal() or field in chosen:
            raise ConfigurationError(
                f"--capacity must be NAME=NUMBER, each name once, with a name of {', '.join(CAPACITIES)}, "
                f"not {text!r}"
            )
        chosen[field] = int(number)
    return chosen


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


def device_manifest(folder: Path) -> Manifest:
    """Return the manifest of a loadable build.

    Raises
    ------
    BuildError
        If the folder holds no build.
    ConfigurationError
        If its program is fixed.
    """
    manifest = Manifest.load(folder)
    if manifest.parameters.capacity is None:
        raise ConfigurationError(
            f"--for needs a device with a loadable program, but that of {folder} is fixed; generate it with "
            "--loadable"
        )
    return manifest


def device_settings(device: Manifest, input_range: float | None) -> QuantizationSettings:
    """Return the settings that give a device's formats, with an input range of the network's own."""
    numerics = device.numerics
    return QuantizationSettings(
        weight_bits=numerics.weight_bits,
        data_bits=numerics.data_bits,
        gate_bits=numerics.gate.bits,
        cell_bits=numerics.cell.bits,
        cell_range=2.0 ** (numerics.cell.bits - 1 - numerics.cell.fraction),
        input_range=input_range,
        tables=device.parameters.tables,
    )


def device_verilog(folder: Path, device: Manifest) -> str:
    """Return a device's Verilog.

    Raises
    ------
    BuildError
        If it cannot be read.
    """
    path = Path(folder) / "rtl" / f"{device.name}.v"
    try:
        return path.read_text()
    except OSError as error:
        raise BuildError(f"{path} cannot be read ({error.strerror}); generate the device again") from None
