"""Checks whether a build can be loaded into a device that was made from another build."""

from collections.abc import Callable

from rtlstm.spec.errors import ConfigurationError, DeviceError
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.program.step import compile_program
from rtlstm.spec.registers import Register, field

_STOPPED = field(Register.STATUS, "STOPPED")


def check_loadable(manifest: Manifest, device: Manifest) -> None:
    """Check that ``manifest``'s network can be loaded into the hardware that ``device`` describes.

    Raises
    ------
    ConfigurationError
        If the hardware's program is fixed and of another network, or it lacks a capacity, or differs in
        anything else.
    """
    if manifest.device_hash == device.device_hash:
        return
    if device.parameters.capacity is None:
        raise ConfigurationError(
            f"a device must have a loadable program to be given another network, but that of {device.name!r} "
            "is fixed and takes other weights alone; generate it with `capacities`, or this "
            "build, if only its weights are new, with `device` and the device's folder"
        )
    if not manifest.passes:
        # Says which capacity is too small, if one is.
        compile_program(manifest.layers, device.parameters, device.timing)
    raise ConfigurationError(
        f"a build must be made for the device that it is loaded into ({device.name!r}, hardware "
        f"{device.device_hash[:8]}), but this one is for {manifest.name!r} ({manifest.device_hash[:8]}), "
        f"with other {_differences(manifest, device)}; generate it with "
        "`device` and the device's folder"
    )


def check_program(device: Manifest, status: Callable[[], int]) -> None:
    """Check that a device has a program; ``status`` reads STATUS.

    Raises
    ------
    DeviceError
        If it has none.
    """
    if device.parameters.capacity is not None and _STOPPED.of(status()):
        raise DeviceError(
            "the device must have a program, but a loadable device loses it at a reset; load its weights "
            "again, which loads the program, too"
        )


def _differences(manifest: Manifest, device: Manifest) -> str:
    """Names of the differences."""
    found = ["name"] if manifest.name != device.name else []
    for ours, theirs in ((manifest.parameters, device.parameters), (manifest.numerics, device.numerics)):
        found += [name for name in type(ours).model_fields if getattr(ours, name) != getattr(theirs, name)]
    return ", ".join(found)
