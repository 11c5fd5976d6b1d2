"""Options: what a user may choose. Each is declared once and named in the words of the interface in use.

A field of a record whose annotation holds an :class:`Option` is an option. The command line,
``rtlstm.compile`` and the page ``docs/options.md`` are made of these fields; their types, defaults and bounds
are the check.

A message names an option with :func:`option`. Python's words are ``weight_bits`` and ``weight_bits=8``. The
command line sets its words for as long as it runs, with :func:`worded`.
"""

import inspect
import json
import re
import types
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any, Final, Protocol, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

__all__ = [
    "BARE",
    "DeclaredOption",
    "Kept",
    "Option",
    "Wording",
    "declared_options",
    "named",
    "option",
    "option_values",
    "options",
    "plain_type",
    "shows_options",
    "worded",
]


Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True)
class Option:
    """What the interfaces tell of an option.

    Parameters
    ----------
    help
        What it chooses; one or two sentences.
    group
        The heading under which it is listed.
    flag
        Its name on the command line; by default ``--`` and the field's name with hyphens. ``--yes/--no``
        names both values of a switch.
    metavar
        What stands for its value in the help; by default the type.
    """

    help: str
    group: str = ""
    flag: str = ""
    metavar: str = ""


@dataclass(frozen=True)
class DeclaredOption:
    """An option and the field that declares it."""

    name: str
    """The field's, and the keyword's in Python."""
    option: Option
    type: Any
    """Without bounds and without None."""
    default: Any
    required: bool = False

    @property
    def flag(self) -> str:
        """Its name on the command line; of a switch both."""
        return self.option.flag or f"--{self.name.replace('_', '-')}"


def declared_options(*records: type[BaseModel]) -> tuple[DeclaredOption, ...]:
    """Return the options that records declare: a class's own before its bases', each name once."""
    found: dict[str, DeclaredOption] = {}
    for record in records:
        fields = record.model_fields
        for holder in record.__mro__:
            for name in inspect.get_annotations(holder):
                if name in fields and (declared := _option_of(fields[name])) is not None:
                    kind = plain_type(fields[name].annotation)
                    required = fields[name].is_required()
                    default = None if required else fields[name].default
                    found.setdefault(name, DeclaredOption(name, declared, kind, default, required))
    return tuple(found.values())


def shows_options(*records: type[BaseModel]) -> Callable[[Function], Function]:
    """Show the options of records in the signature of a function that takes them as ``**options``."""

    def decorate(function: Function) -> Function:
        signature = inspect.signature(function)
        *before, _ = signature.parameters.values()
        shown = [
            _parameter(each) for each in declared_options(*records) if each.name not in signature.parameters
        ]
        # Read by inspect and by notebooks.
        function.__signature__ = signature.replace(parameters=[*before, *shown])  # type: ignore[attr-defined]
        return function

    return decorate


def _parameter(declared: DeclaredOption) -> inspect.Parameter:
    none = not declared.required and declared.default is None
    return inspect.Parameter(
        declared.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=inspect.Parameter.empty if declared.required else declared.default,
        annotation=declared.type | None if none else declared.type,
    )


def option_values(record: type[BaseModel], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of the options given that this record declares."""
    names = {each.name for each in declared_options(record)}
    return {name: value for name, value in given.items() if name in names}


def _option_of(field: FieldInfo) -> Option | None:
    return next((each for each in field.metadata if isinstance(each, Option)), None)


def plain_type(annotation: Any) -> Any:
    """Return a type without what ``Annotated`` adds to it, and without None."""
    if get_origin(annotation) is Annotated:
        return plain_type(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        parts = [plain_type(part) for part in get_args(annotation) if part is not types.NoneType]
        return parts[0] if len(parts) == 1 else Union[tuple(parts)]  # noqa: UP007 - of parts known only now
    return annotation


BARE: Final = object()
"""No value: the option alone is named."""


class Wording(Protocol):
    """How an interface names options."""

    separator: str
    """Between several that are to be given."""

    def name(self, option: str, value: Any, command: str) -> str:
        """Return what an option is called, with a value or :data:`BARE`; see :func:`option`."""


class _Python:
    separator = ", "

    def name(self, option: str, value: Any, command: str) -> str:
        shown = f"{value:g}" if isinstance(value, float) else repr(value)
        return option if value is BARE else f"{option}={shown}"


_wording: Wording = _Python()


def option(name: str, value: Any = BARE, command: str = "") -> str:
    """Return an option's name, for a message, in the words of the interface in use.

    Parameters
    ----------
    name
        As Python has it.
    value
        What to give it.
    command
        Whose option it is, where several have one of this name; by default that of ``generate``, else the
        running command's.
    """
    return _wording.name(name, value, command)


def options(values: Mapping[str, Any]) -> str:
    """Return several options with what to give them, as they are typed."""
    return _wording.separator.join(option(name, value) for name, value in values.items())


@contextmanager
def worded(wording: Wording) -> Iterator[None]:
    """Have messages name options so, in the whole process: an interface does this while it runs.

    It holds for all threads, because work that a command hands to threads reports its errors, too.
    """
    global _wording
    before, _wording = _wording, wording
    try:
        yield
    finally:
        _wording = before


_KEPT = re.compile("\ue000([^\ue001]*)\ue001")


class Kept:
    """Keeps references to options in a text as they are, for another process to name them: :func:`named`."""

    separator = ", "

    def name(self, option: str, value: Any, command: str) -> str:
        """Return a reference that holds letters and digits, and a mark at each end."""
        reference = json.dumps([option, None if value is BARE else [value], command])
        return f"\ue000{reference.encode().hex()}\ue001"


def named(text: str) -> str:
    """Return a JSON text in which options are named that a process with :class:`Kept` wording left open.

    Raises
    ------
    ValueError
        If a reference is damaged.
    """

    def name(found: re.Match[str]) -> str:
        reference = json.loads(bytes.fromhex(found[1]))
        if not isinstance(reference, list) or len(reference) != 3:
            raise ValueError(f"no reference to an option: {reference!r}")
        key, values, command = reference
        return json.dumps(option(str(key), values[0] if values else BARE, str(command)))[1:-1]

    return _KEPT.sub(name, text)
