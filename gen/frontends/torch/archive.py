"""TorchScript archives, made safe to load: none of the file's own code runs.

``torch.jit.load`` runs a class's ``__setstate__``, and lets classes of C++ restore themselves; operators such
as ``torch.from_file`` then overwrite files. Both are refused here, before anything is loaded. What was looked
at is written to a new archive, and that one is loaded: two readers may see different members.
"""

import io
import pickletools
import zipfile
from typing import BinaryIO

from rtlstm.spec.archives import open_archive, read_member
from rtlstm.spec.budget import MAX_ELEMENTS
from rtlstm.spec.errors import ModelError

__all__ = ["checked_archive"]

_RUNS = b"__setstate__"
_NATIVE = "__torch__.torch.classes."
_NOT_NEEDED = (".debug_pkl",)
"""Where the code came from, for error messages."""


def checked_archive(file: BinaryIO) -> io.BytesIO:
    """Copy an archive, member by member.

    Raises
    ------
    ModelError
        If loading it would run code of its own, or it has more than the budget of elements.
    DamagedArchiveError
        If it is damaged.
    """
    copy, left = io.BytesIO(), MAX_ELEMENTS * 8
    with open_archive(file) as source, zipfile.ZipFile(copy, "w") as target:
        for name in source.namelist():
            if name.endswith(_NOT_NEEDED):
                continue
            data = read_member(source, name, left)
            left -= len(data)
            _check(name, data)
            target.writestr(name, data)
    copy.seek(0)
    return copy


def _check(name: str, data: bytes) -> None:
    if _RUNS in data:
        raise ModelError(
            f"must have no {_RUNS.decode()}, but {name!r} has: code of a file that runs when it is loaded is "
            "not trusted; remove it, or give the torch.nn.Module itself in Python, or its state_dict()"
        )
    if name.endswith(".pkl"):
        for operation, argument, _ in pickletools.genops(data):
            # "module name", of which either may have the dots
            if operation.name == "GLOBAL" and f"{argument}.".replace(" ", ".").startswith(_NATIVE):
                raise ModelError(
                    f"must have no objects of C++ classes, but {name!r} has one of {argument!r}, as "
                    "quantised modules do; give the model before it was quantised: rtlstm does that itself"
                )
