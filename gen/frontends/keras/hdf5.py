"""Reads foreign HDF5 files: only data in the file itself, within the budget of elements.

A dataset of HDF5 can have bytes of other files, by external storage, virtual datasets and links. These are
refused.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rtlstm.gen.frontends.arrays import import_extra
from rtlstm.gen.frontends.limits import no_files
from rtlstm.spec.budget import Budget
from rtlstm.spec.errors import ModelError

__all__ = ["Dataset", "Group", "open_hdf5"]

_MAX_OBJECTS = 100_000


def open_hdf5(file: Any) -> "Group":
    """Open a binary file, and return its root.

    Raises
    ------
    ModelError
        If it is not an HDF5 file.
    ToolError
        If h5py is not installed.
    """
    h5py = import_extra("h5py", "keras")
    with no_files():
        return Group(h5py.File(file, "r"), "", Budget(ModelError))


class _Node:
    """An object in a file, and the path that messages name it by."""

    def __init__(self, item: Any, path: str, budget: Budget) -> None:
        self._item, self.path, self._budget = item, path, budget


class Group(_Node):
    """A group, which other objects are in."""

    def text(self, name: str) -> str | None:
        """An attribute of text, or None."""
        value = self._item.attrs.get(name)
        if isinstance(value, bytes):
            return value.decode()
        if value is not None and not isinstance(value, str):
            raise ModelError(f"its attribute {name!r} must be text, not {type(value).__name__}")
        return value

    def group(self, path: str) -> "Group | None":
        """The group at a path below this one, or None.

        Raises
        ------
        ModelError
            If a link on the way leads elsewhere.
        """
        found: Group | Dataset | None = self
        for name in filter(None, path.split("/")):
            found = found._child(name) if isinstance(found, Group) else None
        return found if isinstance(found, Group) else None

    def dataset(self, name: str) -> "Dataset | None":
        """The dataset of this name in the group, or None."""
        found = self._child(name)
        return found if isinstance(found, Dataset) else None

    def datasets(self) -> Iterator[tuple[str, "Dataset"]]:
        """The datasets in the group itself, and their names."""
        for name in self._item:
            child = self._child(name)
            if isinstance(child, Dataset):
                yield name, child

    def walk(self) -> Iterator["Dataset"]:
        """All datasets below, each once; ``path`` is as seen from the root."""
        seen, left = {self._item.id}, [self]
        while left:
            group = left.pop()
            for name in group._item:
                child = group._child(name)
                if isinstance(child, Dataset):
                    yield child
                elif child is not None and child._item.id not in seen:
                    seen.add(child._item.id)
                    left.append(child)
                if len(seen) > _MAX_OBJECTS:
                    raise ModelError(f"has more than {_MAX_OBJECTS:,} groups; save the model again")

    def _child(self, name: str) -> "Group | Dataset | None":
        h5py = import_extra("h5py", "keras")
        link = self._item.get(name, getlink=True)
        if link is None:
            return None
        path = f"{self.path}/{name}".removeprefix("/")
        if isinstance(link, h5py.ExternalLink):
            raise ModelError(
                f"{path!r} is a link to another file, {link.filename!r}, which is not read; save the model "
                "again"
            )
        if isinstance(link, h5py.SoftLink):
            raise ModelError(f"{path!r} is a soft link to {link.path!r}; save the model again, without links")
        with no_files():
            item = self._item.get(name)
        if isinstance(item, h5py.Group):
            return Group(item, path, self._budget)
        return Dataset(item, path, self._budget) if isinstance(item, h5py.Dataset) else None


class Dataset(_Node):
    """An array in the file."""

    def read(self, integers: bool = False) -> NDArray[np.float64]:
        """Return its values, which may be ``integers`` if the reader knows what scale they have.

        Raises
        ------
        ModelError
            If they are in other files, were never written, are not such numbers, or are too many.
        """
        item, where = self._item, f"the array {self.path!r}"
        if item.external or item.is_virtual:
            kind = "external storage" if item.external else "a virtual dataset"
            raise ModelError(f"{where} is {kind}: its bytes are another file's, which is not read")
        if item.shape is None or item.dtype.kind not in "fiu":
            raise ModelError(f"{where} must hold numbers, not {item.dtype}; save the model again")
        if item.dtype.kind != "f" and not integers:
            raise ModelError(
                f"{where} must hold weights as floats, but has {item.dtype}, and nothing says what scale "
                "these integers have; give the model as it was before they were rounded"
            )
        self._budget.take(item.shape, where)
        if item.size and not item.id.get_storage_size():
            raise ModelError(f"{where} was declared, but never written; save the model again")
        with no_files():
            return np.asarray(item[()], dtype=np.float64)
