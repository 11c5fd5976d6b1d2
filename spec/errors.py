"""The errors that rtlstm raises on purpose, and the warning that tells notes about a build.

Every message says what must hold, what was given, and what to do about it. The command line
prints only the message and exits with 2; a Python caller catches :class:`RtlstmError` or one
of its subclasses.
"""

import difflib
import inspect
import warnings
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version


class RtlstmError(Exception):
    """Base of every error that rtlstm raises on purpose."""


class ConfigurationError(RtlstmError, ValueError):
    """A parameter (lanes, bits, streams, ...) is outside what the hardware can be built for."""


class ModelError(RtlstmError, ValueError):
    """A model file, module or network cannot be read or is not supported."""


class BuildError(RtlstmError, ValueError):
    """A build folder or its manifest is missing, damaged or of another version."""


class ImageError(RtlstmError, ValueError):
    """A weight image is damaged or belongs to another build."""


class InputError(RtlstmError, ValueError):
    """Data handed to a run has the wrong shape, type or values."""


class DeviceError(RtlstmError, RuntimeError):
    """A device or simulator did not answer, or answered with something impossible."""


class ToolError(RtlstmError, RuntimeError):
    """A needed external tool or optional package is missing or failed."""


class AbsentError(ToolError, AttributeError):
    """A public name of rtlstm is not part of rtlstm-driver; for ``hasattr`` it is no attribute."""


class AbsentImportError(ToolError, ImportError):
    """A public name of rtlstm is imported, but is not part of rtlstm-driver."""


class NoteWarning(UserWarning):
    """A note about a build: what was assumed or left to the host, or what is lost in its formats."""


def warn_caller(text: str, category: type[Warning] = NoteWarning) -> None:
    """Warn at the line that called rtlstm, through however many of its functions."""
    level, frame = 1, inspect.currentframe()
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "rtlstm":
        level, frame = level + 1, frame.f_back
    warnings.warn(text, category, stacklevel=level)


WHOLE, DRIVER = "rtlstm", "rtlstm-driver"


def distribution() -> str:
    """Return the name of the installed distribution, as pip takes it."""
    try:
        version(WHOLE)
    except PackageNotFoundError:
        return DRIVER
    return WHOLE


def suggest(name: str, known: Iterable[str], most: int = 1) -> str:
    """Return the end of a message about an unknown name: the names most like it, or all if none is."""
    names = list(known)
    similar = difflib.get_close_matches(name, names, n=most)
    return f"did you mean {' or '.join(similar)}?" if similar else f"there are {', '.join(names)}"
