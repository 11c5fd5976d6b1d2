"""Front ends of other packages, which are tried before those of rtlstm."""

import re
import reprlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

from rtlstm.gen.frontends.reading import ReadOptions, ReportBuilder
from rtlstm.spec.errors import ConfigurationError, ModelError, RtlstmError
from rtlstm.spec.files import DAMAGE, open_archive, open_file
from rtlstm.spec.network import Network
from rtlstm.spec.plugins import Registry

T = TypeVar("T")
FileKind = Literal["onnx", "keras", "safetensors", "torch", "torchscript", "exported", "nam", "tflite"]

_OTHER_SUFFIXES = (".safetensors", ".pt", ".pth", ".v", ".bin", ".tflite")
# Field 1 of an ONNX ModelProto, ir_version, 3 (2017) or later.
_ONNX_START = tuple(bytes((0x08, version)) for version in range(3, 32))
_CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")
"""Bytes that a text has not."""
SUPPORTED = (
    "give an ONNX, Keras, safetensors, TFLite, TorchScript, .pt2 or .nam file, or a PyTorch state dict"
)


def detect(path: Path) -> FileKind:
    """Return the kind of a model file.

    Raises ModelError if there is no such file, it is not a regular file, or of a kind that is not supported.
    """
    try:
        if path.is_dir():
            raise ModelError(f"a model must be a file, but this is a directory; {SUPPORTED}")
        if not path.exists():
            raise ModelError(f"there is no such file; {SUPPORTED}")
        with open_file(path) as file:
            return _detect(file, path)
    except OSError as error:
        raise ModelError(f"cannot be read: {error.strerror or error}") from None


def _detect(file: BufferedReader, path: Path) -> FileKind:
    """The kind by the content, then by the name.

    What begins with a size comes first: the size may have any bytes, also another kind's first ones. It
    then is too large for the file in files of all other kinds.
    """
    size, head = path.stat().st_size, file.read(4096)
    if not head:
        raise ModelError(f"the file is empty; {SUPPORTED}")
    # The size of a header, which the file has, and then JSON's first letter.
    if head[8:9] == b"{" and 2 <= int.from_bytes(head[:8], "little") <= size - 8:
        return "safetensors"
    if _is_tflite(file, head, size):
        return "tflite"
    if head.startswith(b"PK\x03\x04"):
        return _detect_zip(path)
    if head.startswith((b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")):
        return "torch"
    if head.startswith(b"\x89HDF\r\n\x1a\n"):
        return "keras"
    if path.suffix == ".nam":
        return "nam"
    if head.startswith(b"\x93NUMPY") or path.suffix in (".npy", ".npz"):
        raise ModelError(f"the file holds arrays of NumPy's, not a model; {SUPPORTED}")
    if path.suffix in _OTHER_SUFFIXES and not head.startswith(_ONNX_START):
        raise ModelError(
            f"the file's name says {path.suffix}, but it is no such model, or is damaged; {SUPPORTED}"
        )
    if not _CONTROL.search(head):
        raise ModelError(f"the file is text, not a model; {SUPPORTED}")
    return "onnx"


def _is_tflite(file: BufferedReader, head: bytes, size: int) -> bool:
    """Whether the mark follows the place of a table that the file has: an ONNX file may have that mark."""
    root = int.from_bytes(head[:4], "little")
    if head[4:8] != b"TFL3" or not 8 <= root <= size - 4:
        return False
    file.seek(root)
    fields = root - int.from_bytes(file.read(4), "little", signed=True)
    file.seek(max(0, fields))
    return 8 <= fields <= size - 4 and int.from_bytes(file.read(2), "little") in range(4, 256, 2)


def _detect_zip(path: Path) -> FileKind:
    try:
        with open_archive(path) as archive:
            names = archive.namelist()
    except (*DAMAGE, OSError) as error:
        raise ModelError(f"the file is a damaged archive ({error}); save the model again") from None
    if "model.weights.h5" in names:
        return "keras"
    if any(name.endswith(("/archive_format", "serialized_exported_program.json")) for name in names):
        return "exported"
    lower = [name.lower() for name in names]  # This is how PyTorch recognises them.
    if any(name.endswith("/constants.pkl") or "/code/" in name for name in lower):
        return "torchscript"
    if any(name.endswith("data.pkl") for name in lower):
        return "torch"
    if names and all(name.endswith(".npy") for name in names):
        raise ModelError(f"the file holds arrays of NumPy's, not a model; {SUPPORTED}")
    raise ModelError(f"the archive holds no model; {SUPPORTED}")


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

    Raises ConfigurationError if one raises instead of an answer; the message names it.
    """
    for name, front_end in FRONT_ENDS.items():
        with blamed(f"{FRONT_ENDS.label(name)} must say whether it reads {reprlib.repr(source)}"):
            if front_end.recognises(source):
                return name
    return None


def offered(label: str, kind: type[T], call: Callable[[], object]) -> T:
    """Return what a function of another package gives, which ``label`` names; it must be of a kind.

    Raises ConfigurationError if it gives something else, or raises another error than one of rtlstm's.
    """
    with blamed(f"{label} must return a {kind.__name__} or raise a ModelError"):
        found = call()
    if not isinstance(found, kind):
        raise ConfigurationError(
            f"{label} must return a {kind.__name__}, not {reprlib.repr(found)}; correct it"
        )
    return found


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
