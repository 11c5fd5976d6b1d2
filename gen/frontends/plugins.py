"""Front ends of other packages, which are tried before those of rtlstm."""

import reprlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from rtlstm.gen.frontends.reading import ReadOptions, ReportBuilder
from rtlstm.spec.errors import ConfigurationError, ModelError, RtlstmError
from rtlstm.spec.network import Network
from rtlstm.spec.plugins import Registry

__all__ = ["FRONT_ENDS", "FrontEnd", "blamed", "find_front_end", "read_offered"]


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


def find_front_end(source: Any) -> str | None:
    """Return the name of the first front end that recognises a source, if any.

    Raises
    ------
    ConfigurationError
        If one raises instead of an answer; the message names it.
    """
    for name, front_end in FRONT_ENDS.items():
        with blamed(f"{FRONT_ENDS.label(name)} must say whether it reads {reprlib.repr(source)}"):
            if front_end.recognises(source):
                return name
    return None


def read_offered(name: str, source: Any, options: ReadOptions, report: ReportBuilder) -> Network:
    """Read a source with the front end that recognises it.

    Raises
    ------
    ModelError
        If the front end refuses it.
    ConfigurationError
        If it raises something else, or returns no network; the message names it.
    """
    label = FRONT_ENDS.label(name)
    with blamed(f"{label} must return a Network or raise a ModelError"):
        network: object = FRONT_ENDS[name].read(source, options, report)
    if not isinstance(network, Network):
        raise ConfigurationError(
            f"{label} must return a Network, not {reprlib.repr(network)}; correct its read"
        )
    return network


@contextmanager
def blamed(what: str) -> Iterator[None]:
    """Name an extension that raises anything but an error of rtlstm's; ``what`` says what it must do.

    An OSError is the model's: the file is missing or cannot be read.
    """
    try:
        yield
    except (RtlstmError, MemoryError, RecursionError):
        raise
    except OSError as error:
        raise ModelError(f"cannot be read: {error.strerror or error}") from error
    except Exception as error:
        raise ConfigurationError(
            f"{what}, but raises {type(error).__name__}: {error}; correct it, or leave it out"
        ) from error
