"""Registries of named items that this package, a program or an installed package provides."""

import sys
from collections.abc import Iterator, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import TypeVar

from rtlstm.spec.errors import ConfigurationError, RtlstmError

__all__ = ["Registry"]

T = TypeVar("T")


class Registry(Mapping[str, T]):
    """Items by name: those of rtlstm, of the running program, and of installed packages.

    An installed package offers an item as an entry point of ``group``. It is imported at the first access
    to its name or to the values of all items.

    Parameters
    ----------
    what
        The word for an item in messages, such as "activation".
    group
        The group of entry points.
    items
        The items of rtlstm.
    """

    def __init__(self, what: str, group: str, items: Mapping[str, T]) -> None:
        self.what = what
        self.group = group
        self._included = tuple(items)
        self._items = dict(items)
        self._offered: dict[str, EntryPoint] = {}
        self._searched: tuple[str, ...] | None = None

    def add(self, name: str, item: T) -> None:
        """Add an item for the rest of this process.

        Raises
        ------
        ConfigurationError
            If the name is taken.
        """
        if name in self:
            raise ConfigurationError(f"there is a {self.what} {name!r} already; choose another name")
        self._items[name] = item

    def remove(self, name: str) -> None:
        """Remove an added item."""
        del self._items[name]

    def named(self, name: str) -> T:
        """Return an item.

        Raises
        ------
        ConfigurationError
            If there is no item of this name, or its package cannot be imported.
        """
        if name not in self:
            raise ConfigurationError(
                f"{self.what} must be one of {', '.join(self)}, not {name!r}; one of an installed package "
                f"is an entry point of the group {self.group!r}"
            )
        return self[name]

    def __getitem__(self, name: str) -> T:
        if name not in self._items:
            point = self._points()[name]
            try:
                self._items[name] = point.load()
            except RtlstmError:
                raise  # its message says what to do, for example that an optional package is missing
            except Exception as error:
                raise ConfigurationError(
                    f"{self.what} {name!r} is offered as {point.value!r}, which cannot be imported: {error}"
                ) from error
        return self._items[name]

    def __contains__(self, name: object) -> bool:
        return name in self._items or name in self._points()

    def __iter__(self) -> Iterator[str]:
        """Names: rtlstm's own items as they are listed, then the others in alphabetical order."""
        others = {*self._items, *self._points()}.difference(self._included)
        return iter([*self._included, *sorted(others)])

    def __len__(self) -> int:
        return len({*self._items, *self._points()})

    def _points(self) -> dict[str, EntryPoint]:
        """The entry points. A search is slow, so it is repeated only if ``sys.path`` has changed."""
        if self._searched != tuple(sys.path):
            self._offered = {point.name: point for point in entry_points(group=self.group)}
            self._searched = tuple(sys.path)
        return self._offered
