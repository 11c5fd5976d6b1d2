"""Registries of named items that this package, a program or an installed package provides."""

import reprlib
import sys
import warnings
from collections.abc import Callable, Collection, ItemsView, Iterator, Mapping, ValuesView
from importlib.metadata import EntryPoint, entry_points
from typing import Any, TypeVar

from rtlstm.spec.errors import DRIVER, WHOLE, ConfigurationError, RtlstmError

T = TypeVar("T")
U = TypeVar("U")

_OURS = (WHOLE, DRIVER)
"""Distributions of rtlstm. An earlier one listed its own items as entry points, which are not read."""


class PluginWarning(UserWarning):
    """An item of an installed package cannot be used, and is skipped."""


class Registry(Mapping[str, T]):
    """Items by name: those of rtlstm, of the running program, and of installed packages.

    An installed package offers an item as an entry point of ``group``. It is imported at the first access
    to its name or to the values of all items. Access to a name raises a ConfigurationError if the item cannot
    be imported, is of another kind or has another name, or if the name is offered twice or is one of
    rtlstm's. The values of all items leave out what cannot be used of installed packages, with one
    :class:`PluginWarning` for each.

    Parameters
    ----------
    what
        The word for an item in messages, such as "activation".
    group
        The group of entry points.
    items
        Items of rtlstm.
    lazy
        Further items of rtlstm as ``MODULE:OBJECT``, imported like those of installed packages.
    kind
        The class of an item; None for a function or a class to call.
    taken
        Further names of rtlstm, which stand elsewhere.
    name
        Gives an item's own name, which must be the one that it is offered by; None if items have no names.
    """

    def __init__(
        self,
        what: str,
        group: str,
        items: Mapping[str, T] | None = None,
        *,
        lazy: Mapping[str, str] | None = None,
        kind: type[Any] | None = None,
        taken: Collection[str] = (),
        name: Callable[[T], str] | None = None,
    ) -> None:
        self.what = what
        self.group = group
        self._kind = kind
        self._name = name
        self._lazy = {name: EntryPoint(name, value, group) for name, value in (lazy or {}).items()}
        self._items = dict(items or {})
        """Items of rtlstm that need no import, or are imported."""
        self._included = (*self._items, *self._lazy)
        self._taken = {*self._included, *taken}
        self._added: dict[str, T] = {}
        self._offered: dict[str, list[EntryPoint]] = {}
        self._imported: dict[str, T] = {}
        """Items of installed packages that are imported."""
        self._skipped: set[str] = set()
        self._searched: tuple[str, ...] | None = None

    @property
    def included(self) -> Mapping[str, T]:
        """Items of rtlstm that are imported."""
        return {name: self._items[name] for name in self._included if name in self._items}

    @property
    def added(self) -> Mapping[str, T]:
        """What was added in this process."""
        return dict(self._added)

    @property
    def is_extended(self) -> bool:
        """Whether this process uses items of the program or of installed packages."""
        return bool(self._added or self._imported)

    def add(self, name: str, item: T) -> None:
        """Add an item for the rest of this process.

        Raises ConfigurationError if the name is taken, or the item is of another kind.
        """
        if name in self or name in self._taken:
            raise ConfigurationError(f"{self.what} {name!r} is there already; choose another name")
        self._added[name] = self._checked(f"{self.what} {name!r}", name, item)

    def remove(self, name: str) -> None:
        """Remove an added item. Raises ConfigurationError if no item of this name was added."""
        if name not in self._added:
            raise ConfigurationError(f"{self.what} {name!r} cannot be removed: it was not added")
        del self._added[name]

    def named(self, name: str) -> T:
        """Return an item.

        Raises ConfigurationError if there is no item of this name, or it cannot be used.
        """
        if name not in self:
            raise ConfigurationError(
                f"{self.what} must be one of {', '.join(self)}, not {name!r}; one of an installed package "
                f"is an entry point of the group {self.group!r}"
            )
        return self[name]

    def known(self, name: str) -> str:
        """Return a name after a check that its item can be used; raises the errors of :meth:`named`."""
        self.named(name)
        return name

    def label(self, name: str) -> str:
        """Return an item's name for messages, and who offers it."""
        offers = self._offers().get(name)
        who = _distributions(offers) if offers else "this program" if name in self._added else WHOLE
        return f"{self.what} {name!r} of {who}"

    def check(self, name: str) -> None:
        """Refuse a name of rtlstm that an installed package offers, too; nothing is imported.

        Raises ConfigurationError if a package offers it.
        """
        if name in self._taken and name in self._offers():
            raise ConfigurationError(
                f"{self.what} {name!r} is one of rtlstm's, but {_distributions(self._offers()[name])} offers "
                "one of this name, too; uninstall that package, or choose another name in it"
            )

    def each(self, use: Callable[[str], U]) -> dict[str, U]:
        """Return ``use(name)`` by name, without the items of installed packages for which it fails.

        An :class:`~rtlstm.spec.errors.RtlstmError` is such a failure. It becomes a :class:`PluginWarning`,
        and the item is not tried here again. What fails for an item of rtlstm or of the program is raised.
        """
        found = {}
        for name in self:
            if name in self._skipped:
                continue
            try:
                found[name] = use(name)
            except RtlstmError as error:
                if name in self._taken or name in self._added:
                    raise
                self._skipped.add(name)
                warnings.warn(f"{self.label(name)} is skipped: {error}", PluginWarning, stacklevel=2)
        return found

    def items(self) -> ItemsView[str, T]:
        """Return all items that can be used, with their names."""
        return self.each(self.__getitem__).items()

    def values(self) -> ValuesView[T]:
        """Return all items that can be used."""
        return self.each(self.__getitem__).values()

    def __getitem__(self, name: str) -> T:
        self.check(name)
        if name in self._added:
            return self._added[name]
        if name in self._items:
            return self._items[name]
        if name in self._lazy:
            self._items[name] = self._load(self._lazy[name])
            return self._items[name]
        if name not in self._imported:
            self._imported[name] = self._load(self._one_offer(name))
        return self._imported[name]

    def __contains__(self, name: object) -> bool:
        return name in self._included or name in self._added or name in self._offers()

    def __iter__(self) -> Iterator[str]:
        """Names: rtlstm's own items as they are listed, then the others in alphabetical order."""
        others = {*self._added, *self._offers()}.difference(self._included)
        return iter([*self._included, *sorted(others)])

    def __len__(self) -> int:
        return len({*self._included, *self._added, *self._offers()})

    def _one_offer(self, name: str) -> EntryPoint:
        offers = self._offers()[name]
        if len(offers) > 1:
            raise ConfigurationError(
                f"{self.what} {name!r} is offered twice, by {_distributions(offers)}; uninstall one of them"
            )
        return offers[0]

    def _load(self, point: EntryPoint) -> T:
        label = f"{self.what} {point.name!r} of {_distributions([point])}, {point.value!r},"
        try:
            item = point.load()
        except RtlstmError:
            raise  # its message says what to do, for example that an optional package is missing
        except Exception as error:
            raise ConfigurationError(f"{label} cannot be imported: {error}") from error
        return self._checked(label, point.name, item)

    def _checked(self, label: str, name: str, item: Any) -> T:
        fits = callable(item) if self._kind is None else isinstance(item, self._kind)
        if not fits:
            wanted = "a function" if self._kind is None else f"an object of the class {self._kind.__name__}"
            raise ConfigurationError(f"{label} must be {wanted}, not {reprlib.repr(item)}")
        checked: T = item
        if self._name is not None and self._name(checked) != name:
            raise ConfigurationError(
                f"{label} must have that name, too, but its name is {self._name(checked)!r}; use one for both"
            )
        return checked

    def _offers(self) -> Mapping[str, list[EntryPoint]]:
        """Entry points by name. A search is slow, so it is repeated only if ``sys.path`` has changed."""
        if self._searched != tuple(sys.path):
            self._offered = {}
            for point in entry_points(group=self.group):
                if point.dist is None or point.dist.name not in _OURS:
                    self._offered.setdefault(point.name, []).append(point)
            self._imported, self._skipped = {}, set()
            self._searched = tuple(sys.path)
        return self._offered


def _distributions(points: list[EntryPoint]) -> str:
    names = (f"{point.dist.name} {point.dist.version}" if point.dist else WHOLE for point in points)
    return " and ".join(names)
