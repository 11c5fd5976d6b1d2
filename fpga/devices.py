"""The FPGAs of all families, and how to find one by its name."""

import difflib
import re

from rtlstm.fpga.families.base import fpga_families
from rtlstm.fpga.families.device import Chosen, FpgaDevice, device_label
from rtlstm.spec.errors import ConfigurationError


class UnknownDeviceError(ConfigurationError):
    """There is no device of a name."""


def devices() -> dict[str, FpgaDevice]:
    """Return all devices by name."""
    return {device.name: device for family in fpga_families() for device in family.devices}


def _aliases() -> dict[str, FpgaDevice]:
    """Return all devices by each of their names."""
    return {alias: device for device in devices().values() for alias in (device.name, *device.aliases)}


def find_device(name: str, package: str | None = None, grade: str | None = None) -> Chosen:
    """Find a device by its name, which may end in a speed grade or be an ECP5 part's order code.

    Raises UnknownDeviceError if there is none of this name, or what follows a device's name is none of its
    speed grades. Raises ConfigurationError if it has no such package or speed grade, or is refused by name.
    """
    device, code, own_grade = _split(name.strip().lower())
    if device is None:
        _check_refused(name.strip().lower())
        _check_ending(name.strip().lower())
        similar = similar_devices(name)
        offered = f"near names: {similar}" if similar else f"known ones: {', '.join(devices())}"
        raise UnknownDeviceError(f"there is no device {name!r}; {offered}")
    if grade is not None and own_grade is not None and grade.lower() != own_grade.lower():
        raise ConfigurationError(
            f"`speed_grade` must agree with the device's name, but they say {grade} and {own_grade}"
        )
    grade = own_grade if grade is None else grade
    return Chosen(
        device=device,
        package=_choose(device, "package", tuple(device.pins), package or code),
        grade=_choose(device, "speed grade", device.grades, grade),
    )


def _split(text: str) -> tuple[FpgaDevice | None, str | None, str | None]:
    """Return a device, and the package and speed grade that its name holds."""
    aliases = _aliases()
    if text in aliases:
        return aliases[text], None, None
    for alias, device in aliases.items():
        for grade in device.grades:
            # Names of grades may have a slash, labels of devices have none.
            heads = (f"{alias}-{grade.lower()}", device_label(alias, grade))
            rest = next((text.removeprefix(head) for head in heads if text.startswith(head)), None)
            if rest is None:
                continue
            if not rest:
                return device, None, grade
            order = re.fullmatch(r"([a-z]+\d+)[ci]?", rest)
            if order and order[1] in device.order_codes:
                return device, device.order_codes[order[1]], grade
    return None, None, None


def _check_refused(text: str) -> None:
    """Refuse a device that is known not to be supported."""
    for family in fpga_families():
        for pattern, why in family.refused.items():
            if re.match(pattern, text):
                raise ConfigurationError(f"{text} is not supported: {why}")


def _check_ending(text: str) -> None:
    """Refuse a device's name that ends in a speed grade or an order code that the device does not have."""
    for alias, device in _aliases().items():
        ending = text.removeprefix(f"{alias}-")
        if device.grades and ending != text:
            codes = f", with or without a package's code, {', '.join(device.order_codes)}"
            raise UnknownDeviceError(
                f"what follows {alias}- must be one of its speed grades, {', '.join(device.grades)}"
                f"{codes if device.order_codes else ''}, not {ending!r}"
            )


def _choose(device: FpgaDevice, what: str, offered: tuple[str, ...], wanted: str | None) -> str:
    if wanted is None:
        return offered[0] if offered else ""
    for name in offered:
        if name.lower() == wanted.lower():
            return name
    have = f"must be one of {', '.join(offered)}" if offered else "cannot be chosen"
    raise ConfigurationError(f"the {what} of {device.name} {have}, not {wanted!r}")


def _with_grades(devices: list[FpgaDevice], text: str) -> str:
    """Name devices with the speed grade that ends ``text``, or with the first one's grades."""
    typed = [grade for grade in devices[0].grades if text.endswith(f"-{grade.lower()}")]
    names = [
        f"{device.name}-{grade}" if grade in device.grades else device.name
        for device in devices
        for grade in typed or [""]
    ]
    offered = [f"{devices[0].name}-{grade}" for grade in devices[0].grades]
    hint = f"; with a speed grade: {', '.join(offered)}" if len(offered) > 1 and not typed else ""
    return ", ".join(names) + hint


def similar_devices(name: str) -> str:
    """Return the devices whose names are like this one, as a text; empty if there are none."""
    names, known = _aliases(), devices()
    similar = difflib.get_close_matches(name.strip().lower(), names, n=6, cutoff=0.5)
    found = [known[each] for each in dict.fromkeys(names[alias].name for alias in similar)][:3]
    return _with_grades(found, name.strip().lower()) if found else ""
