"""What a command found: one JSON object, and declared views of it that people read.

A view reads nothing but the JSON object, so people see nothing that ``--json`` leaves out. It says
once for each field what people call it and how its value is written.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from rtlstm.cli.terminal import plain, render_table
from rtlstm.cli.wording import worded

if TYPE_CHECKING:
    from rtlstm.spec.manifest import Manifest

Found = Mapping[str, Any]
"""A command's JSON object, as it is read back."""

Reading = str | Callable[[Any], object]
"""How text is made of an object: a format text, such as ``"{luts:,} LUTs"``, whose names are fields of a
mapping or a record; or a function of it, which may return None for nothing."""


class _Names:
    """The fields of a mapping or a record, by name, for a format text."""

    def __init__(self, holder: Any) -> None:
        self._holder = holder

    def __getitem__(self, name: str) -> Any:
        return self._holder[name] if isinstance(self._holder, Mapping) else getattr(self._holder, name)


def write_value(reading: Reading, holder: Any) -> str | None:
    """Write what a reading makes of an object; whole numbers of functions have commas."""
    if isinstance(reading, str):
        return reading.format_map(_Names(holder))
    value = reading(holder)
    if value is None:
        return None
    return f"{value:,}" if type(value) is int else str(value)


def part_ends(manifest: "Manifest") -> dict[str, list[int]]:
    """Return the JSON object of a model's several outputs: the first value of each, and the one behind it."""
    from rtlstm.spec.output_parts import part_slices

    return {name: [part.start, part.stop] for name, part in part_slices(manifest.parts).items()}


def named_parts(found: Found) -> str | None:
    """Write them, or nothing for a model with one output."""
    parts = found["output_parts"].items()
    return ", ".join(f"{name}: {first} to {end - 1}" for name, (first, end) in parts) or None


class Section(Protocol):
    """A part of a view."""

    def text(self, found: Found) -> str | None:
        """Return what people read of a command's JSON object; None for nothing."""


View = Sequence[Section]


@dataclass(frozen=True)
class Field:
    """What people call a field, and how its value is written.

    ``right`` aligns it to the right in a table.
    """

    label: str
    reading: Reading
    right: bool = False


@dataclass(frozen=True)
class Text:
    """A line, or some; left out where its reading gives nothing."""

    reading: Reading

    def text(self, found: Found) -> str | None:
        """Return the line."""
        text = write_value(self.reading, found)
        return None if text is None else plain(text, lines=True)


@dataclass(frozen=True)
class Table:
    """A row for each of some objects, a column for each field; both are left out where there is nothing."""

    title: Reading
    rows: Callable[[Found], Iterable[Any]]
    """The objects, of the JSON object."""
    columns: Sequence[Field]

    def text(self, found: Found) -> str | None:
        """Return title and table."""
        objects = list(self.rows(found))
        if not objects:
            return None
        values = [[write_value(column.reading, each) for each in objects] for column in self.columns]
        shown = [pair for pair in zip(self.columns, values, strict=True) if set(pair[1]) != {None}]
        columns = [(column.label, column.right) for column, _ in shown]
        rows = [[text or "" for text in row] for row in zip(*(texts for _, texts in shown), strict=True)]
        return render_table(write_value(self.title, found) or "", columns, rows)


@dataclass(frozen=True)
class Values:
    """A row for each field of one object; a field without a value is left out."""

    title: Reading
    fields: Sequence[Field]
    holder: Callable[[Found], Any] = lambda found: found
    """The object, of the JSON object; None leaves all of it out."""
    right: bool = False
    """Align the values to the right."""

    def text(self, found: Found) -> str | None:
        """Return title, names and values."""
        holder = self.holder(found)
        if holder is None:
            return None
        texts = ((each.label, write_value(each.reading, holder)) for each in self.fields)
        rows = [(label, text) for label, text in texts if text is not None]
        return render_table(write_value(self.title, holder) or "", [("", False), ("", self.right)], rows)


def _worded(value: Any) -> Any:
    """A JSON value whose texts name options and commands as they are typed."""
    if isinstance(value, dict):
        return {name: _worded(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_worded(each) for each in value]
    return worded(value) if isinstance(value, str) else value


@dataclass
class Result:
    """The one object that a command fills: printed as JSON, or read through views."""

    fields: dict[str, Any] = field(default_factory=dict)

    def add(self, fields: Mapping[str, Any]) -> None:
        """Add fields, as their JSON is read back: views have no more to read than that."""
        self.fields |= _worded(json.loads(json.dumps(fields)))

    def texts(self, view: View) -> Iterator[str]:
        """Write the sections of a view that have something to say."""
        texts = (section.text(self.fields) for section in view)
        return (text for text in texts if text is not None)

    def as_json(self) -> str:
        """Write all fields as one JSON object.

        Raises
        ------
        ValueError
            If a number is not finite, for which JSON has no word.
        """
        return json.dumps(self.fields, allow_nan=False)
