"""Reads the archive that ``torch.export.save`` writes: a graph in JSON, and tensors as plain bytes.

PyTorch is not used, and nothing in the archive is run or unpickled.
"""

import json
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from rtlstm.spec.budget import Budget
from rtlstm.spec.errors import ModelError

__all__ = ["Archive", "one_error"]

_TYPES = {1: "u1", 2: "i1", 3: "i2", 4: "i4", 5: "i8", 6: "f2", 7: "f4", 8: "f8", 12: "?", 13: "u2"}
"""NumPy's types of torch's scalar types, numbered as in the archive; 13 is bfloat16."""
_BFLOAT16 = 13
_MAX_JSON = 2**23
"""Bytes of a description, of which parsing makes some thirty times as many; real graphs have below 2^20."""
_SAVE = "save the model again, with torch.export.save"
_DAMAGE = (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError, EOFError, OSError,
           NotImplementedError, RuntimeError, zipfile.BadZipFile)  # fmt: skip


@dataclass(frozen=True)
class _Stored:
    """Where a tensor of the model lies in the archive."""

    folder: str
    entry: Mapping[str, Any]


class Archive:
    """The graph of an exported program, and its tensors by name, which are loaded when they are asked for.

    Raises
    ------
    ModelError
        If it is damaged, or of a kind that is not read: compiled, of several models, or of an older PyTorch.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._budget = Budget(ModelError)
        with one_error():
            self._zip = zipfile.ZipFile(file)
            if len(set(self._zip.namelist())) < len(self._zip.namelist()):
                raise ModelError(f"must hold every member once, but two have one name; {_SAVE}")
            self._names = {name.partition("/")[2]: name for name in self._zip.namelist()}
            self._read()

    def _read(self) -> None:
        models = [name for name in self._names if name.startswith("models/") and name.endswith(".json")]
        if len(models) != 1:
            raise ModelError(
                f"must be an archive of one exported program, but it holds {len(models)}; {_SAVE} of PyTorch "
                "2.9 or newer (not compiled by AOTInductor)"
            )
        order = self._bytes("byteorder").decode() if "byteorder" in self._names else "little"
        if order != "little":
            raise ModelError(f"must store its tensors in little-endian order, not {order!r}")
        module = self._json(models[0])["graph_module"]
        self.graph: Mapping[str, Any] = module["graph"]
        self.signature: Mapping[str, Any] = module["signature"]
        self._tensors: dict[str, _Stored] = {}
        name = models[0].removeprefix("models/").removesuffix(".json")
        for kind in ("weights", "constants"):
            config = f"data/{kind}/{name}_{kind}_config.json"
            if config in self._names:
                entries = self._json(config)["config"]
                self._tensors |= {key: _Stored(f"data/{kind}", entry) for key, entry in entries.items()}

    def tensor(self, name: str) -> NDArray[Any]:
        """A parameter, buffer or constant of the model by the name that the module has for it."""
        if name not in self._tensors:
            raise ModelError(f"must hold the tensor {name!r}, which its graph reads; {_SAVE}")
        with one_error():
            return self._load(name, self._tensors[name])

    def _load(self, name: str, stored: _Stored) -> NDArray[Any]:
        entry, meta = stored.entry, stored.entry["tensor_meta"]
        shape = [int(size["as_int"]) for size in meta["sizes"]]
        strides = [int(size["as_int"]) for size in meta["strides"]]
        kind, offset = meta["dtype"], int(meta["storage_offset"]["as_int"])
        if entry["use_pickle"] or kind not in _TYPES:
            raise ModelError(f"tensor {name!r} is pickled or of a type that is not read; {_SAVE}")
        self._budget.take(shape, f"tensor {name!r}")
        values = np.frombuffer(self._bytes(f"{stored.folder}/{entry['path_name']}"), "<" + _TYPES[kind])
        last = offset + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
        if min([offset, *shape, *strides]) < 0 or (0 not in shape and last >= len(values)):
            raise ModelError(f"tensor {name!r} of shape {tuple(shape)} goes beyond its data; {_SAVE}")
        steps = [stride * values.itemsize for stride in strides]
        if 0 in shape:
            return np.zeros(shape, values.dtype)
        array = np.lib.stride_tricks.as_strided(values[offset:], shape, steps, writeable=False).copy()
        return (array.astype(np.uint32) << 16).view(np.float32) if kind == _BFLOAT16 else array

    def _json(self, name: str) -> Any:
        data = self._bytes(name, _MAX_JSON)
        return json.loads(data)

    def _bytes(self, name: str, most: int = 2**62) -> bytes:
        info = self._zip.getinfo(self._names[name])
        if info.compress_type != zipfile.ZIP_STORED:  # So that nothing is larger than the file.
            raise ModelError(f"must store {name!r} as it is, not compressed; {_SAVE}")
        if info.file_size > most:
            raise ModelError(f"has {info.file_size:,} bytes of {name!r}, which is more than {most:,}")
        return self._zip.read(info)


@contextmanager
def one_error() -> Iterator[None]:
    """Give every exception that only a damaged archive can cause inside as one ModelError."""
    try:
        yield
    except ModelError:
        raise
    except _DAMAGE as error:
        text = str(error).splitlines()[0][:100] if str(error) else ""
        raise ModelError(
            "must be an exported program as torch.export.save writes it, but is damaged "
            f"({type(error).__name__}: {text}); {_SAVE}"
        ) from None
