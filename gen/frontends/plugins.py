"""Front ends of other packages, which are asked before the ones of rtlstm."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from rtlstm.gen.frontends.reading import ReadOptions, ReportBuilder
from rtlstm.spec.network import Network
from rtlstm.spec.plugins import Registry

__all__ = ["FRONT_ENDS", "FrontEnd", "find_front_end"]


@dataclass(frozen=True, kw_only=True)
class FrontEnd:
    """Reads one kind of model."""

    recognises: Callable[[Any], bool]
    """Whether a source (a path, or any object) is of this kind. It must not raise."""
    read: Callable[[Any, ReadOptions, ReportBuilder], Network]
    """Return the network; raise a :class:`~rtlstm.spec.errors.ModelError` for what cannot be read."""


FRONT_ENDS: Final = Registry[FrontEnd]("front end", "rtlstm.front_ends", kind=FrontEnd)
"""Those of other packages by name."""


def find_front_end(source: Any) -> FrontEnd | None:
    """Return the first that recognises a source, if any."""
    return next((each for each in FRONT_ENDS.values() if each.recognises(source)), None)
