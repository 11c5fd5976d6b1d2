"""Front ends of other packages, which are tried before those of rtlstm."""

import reprlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from rtlstm.gen.frontends.reading import ReadOptions, ReportBuilder
from rtlstm.spec.errors import ConfigurationError
from rtlstm.spec.network import Network
from rtlstm.spec.plugins import Registry

__all__ = ["FRONT_ENDS", "FrontEnd", "find_front_end"]


@dataclass(frozen=True, kw_only=True)
class FrontEnd:
    """Reads one kind of model."""

    recognises: Callable[[Any], bool]
    """Whether a source (a path, or any object) is of this kind. It must not raise: that ends the reading of
    every model."""
    read: Callable[[Any, ReadOptions, ReportBuilder], Network]
    """Return the network; raise a :class:`~rtlstm.spec.errors.ModelError` for what cannot be read."""


FRONT_ENDS: Final = Registry[FrontEnd]("front end", "rtlstm.front_ends", kind=FrontEnd)
"""Front ends of other packages, by name."""


def find_front_end(source: Any) -> FrontEnd | None:
    """Return the first front end that recognises a source, if any.

    Raises
    ------
    ConfigurationError
        If one raises instead of an answer; the message names it.
    """
    return next((each for name, each in FRONT_ENDS.items() if _recognises(name, each, source)), None)


def _recognises(name: str, front_end: FrontEnd, source: Any) -> bool:
    try:
        return bool(front_end.recognises(source))
    except Exception as error:
        raise ConfigurationError(
            f"{FRONT_ENDS.label(name)} must say whether it reads {reprlib.repr(source)}, but raises "
            f"{type(error).__name__}: {error}; correct its recognises, or uninstall it"
        ) from error
