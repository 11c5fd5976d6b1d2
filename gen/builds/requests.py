"""What a user asks for of a build's array: sizes of one's own, or a device to fill."""

from rtlstm.boards.catalogue import find_place
from rtlstm.fpga.fit import FitRequest
from rtlstm.gen.builds.default_array import ArrayRequest
from rtlstm.spec.errors import ConfigurationError
from rtlstm.spec.family import find_family

__all__ = ["array_request", "fit_request"]


def array_request(
    family: str | None = None, multipliers: str | int | None = None, **sizes: object
) -> ArrayRequest:
    """Return a request for an array of which some sizes are given; those that are None are chosen.

    Parameters
    ----------
    family
        The device family; generic if None.
    multipliers
        ``dsp``, ``lut``, or how many of each lane's are made of look-up tables.
    sizes
        Other fields of :class:`rtlstm.gen.builds.default_array.ArrayRequest`.

    Raises
    ------
    ConfigurationError
        If what is given cannot be built, whatever the rest will be.
    """
    if family is not None:
        find_family(family)
    fields = sizes | {"family": family, "all_lut": multipliers == "lut"}
    if multipliers not in (None, "lut"):
        fields["lut_macs"] = _lut_macs(multipliers)
    request = ArrayRequest(**{name: value for name, value in fields.items() if value is not None})
    request.check()
    return request


def fit_request(
    place: str, family: str | None = None, multipliers: str | int | None = None, **sizes: object
) -> FitRequest:
    """Return a request for the array that computes a step soonest on a device or a board.

    Parameters
    ----------
    place
        Name of a device or a board.
    family
        None: the device has one.
    multipliers
        As of :func:`array_request`; by default ``auto``: look-up tables make what the device lacks.
    sizes
        Other fields of :class:`rtlstm.fpga.fit.FitRequest`.

    Raises
    ------
    ConfigurationError
        If there is no such device, or what is given cannot be built.
    """
    if family is not None:
        raise ConfigurationError("--fit takes the family from its device: leave out --family, or --fit")
    kind = "auto" if multipliers is None else multipliers
    chosen, board = find_place(place)
    request = FitRequest(
        chosen=chosen,
        board=board,
        **sizes
        | {
            "all_lut": kind == "lut",
            "lut_macs": None if kind in ("auto", "lut") else _lut_macs(kind),
        },
    )
    request.check()
    return request


def _lut_macs(multipliers: str | int | None) -> int:
    """Multipliers of look-up tables in each lane, by a number or as dsp."""
    if multipliers == "dsp":
        return 0
    if str(multipliers).isdecimal():
        return int(str(multipliers))
    if multipliers == "auto":
        raise ConfigurationError(
            "--multipliers auto makes of tables what a device lacks, so it needs --fit DEVICE; give that, or "
            "dsp, lut or a number"
        )
    raise ConfigurationError(
        "multipliers must be dsp, lut, auto or a number of look-up table multipliers per lane, "
        f"not {multipliers!r}"
    )
