"""TorchScript archives, made safe to load: none of the file's own code runs.

``torch.jit.load`` runs a class's ``__setstate__``, evaluates default arguments, and lets classes of C++
restore themselves; operators such as ``torch.from_file`` then overwrite files. All three are refused here,
before anything is loaded. The checked members are written to a new archive, which is then loaded, because two
readers may see different members. PyTorch ignores the case of members' names, so only names that it writes
are taken.
"""

import io
import pickletools
import re
import zipfile
from typing import BinaryIO

from rtlstm.gen.frontends.torch.source import check_source
from rtlstm.spec.archives import open_archive, read_member
from rtlstm.spec.budget import MAX_ELEMENTS
from rtlstm.spec.errors import ModelError

__all__ = ["checked_archive"]

_RUNS = b"__setstate__"
_NATIVE = "__torch__.torch.classes."
_LOADED = re.compile(
    r"(?:data|constants)\.pkl|(?:data|constants)/[0-9]+|code/[\w./]+\.py"
    r"|version|\.data/version|byteorder|\.format_version|\.storage_alignment",
    re.ASCII,
)
_NOT_NEEDED = re.compile(
    r"code/[\w./]+\.debug_pkl|traced_inputs\.pkl|traced_inputs/[0-9]+|bytecode\.pkl"
    r"|mobile_debug_handles\.pkl|\.data/serialization_id|extra/.*",
    re.ASCII | re.DOTALL,
)
"""Members that are not loaded: sources of the code, inputs of a trace, the mobile format, extra files."""


def checked_archive(file: BinaryIO) -> io.BytesIO:
    """Copy an archive, member by member.

    Raises
    ------
    ModelError
        If loading it would run code of its own, or it has members that PyTorch does not write.
    DamagedArchiveError
        If it is damaged, or has more than the budget of elements.
    """
    copy, left = io.BytesIO(), MAX_ELEMENTS * 8
    with open_archive(file) as source, zipfile.ZipFile(copy, "w") as target:
        for name in _loaded(source.namelist()):
            data = read_member(source, name, left)
            left -= len(data)
            _check(name, data)
            target.writestr(name, data)
    copy.seek(0)
    return copy


def _loaded(names: list[str]) -> list[str]:
    """The members to load; all are in the folder of the first."""
    loaded, folder = [], names[0].partition("/")[0] if names else ""
    for name in names:
        if name.endswith("/"):  # a folder, of which PyTorch writes none
            continue
        first, _, member = name.partition("/")
        if first == folder and _LOADED.fullmatch(member):
            loaded.append(name)
        elif first != folder or not _NOT_NEEDED.fullmatch(member):
            raise ModelError(
                f"must have only members that torch.jit.save writes, but has {name!r}; save the model again"
            )
    if len({name.casefold() for name in loaded}) < len(loaded):
        raise ModelError(
            "must have members whose names differ by more than upper and lower case, since PyTorch does not "
            "tell them apart; rename the model's classes and files, and save it again"
        )
    return loaded


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
    elif name.endswith(".py"):
        check_source(name, data)
