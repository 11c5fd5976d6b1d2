"""Options of the user. Each is declared once and named in the words of the interface in use.

A field of a record whose annotation holds an :class:`Option` is an option. The command line,
``rtlstm.compile`` and the page ``docs/options.md`` are made from these fields, whose types, defaults and
bounds are checked.

A message names an option with :func:`option`. Python's words are ``weight_bits`` and ``weight_bits=8``. The
command line sets its words with :func:`worded` while it runs.
"""

import inspect
import json
import re
import shlex
import types
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any, Final, Protocol, TypeVar, Union, get_args, get_origin

import numpy as np
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from rtlstm.spec.errors import InputError

__all__ = [
    "BARE",
    "DeclaredOption",
    "Kept",
    "Option",
    "Wording",
    "as_flag",
    "call",
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
    """The description of an option for all interfaces.

    Parameters
    ----------
    help
        The meaning of its values; one or two sentences.
    group
        The heading under which it is listed.
    flag
        Its name on the command line; by default ``--`` and the field's name with hyphens. ``--yes/--no``
        names both values of a switch.
    metavar
        The placeholder for its value in the help; by default the type.
    """

    help: str
    group: str = ""
    flag: str = ""
    metavar: str = ""


@dataclass(frozen=True)
class DeclaredOption:
    """An option and the field that declares it."""

    name: str
    """The name of the field, and of the keyword in Python."""
    option: Option
    type: Any
    """The type without bounds and without None."""
    default: Any
    required: bool = False

    @property
    def flag(self) -> str:
        """Its name on the command line; both names of a switch."""
        return self.option.flag or f"--{self.name.replace('_', '-')}"


def declared_options(*records: type[BaseModel]) -> tuple[DeclaredOption, ...]:
    """Return the options that records declare: those of a class before those of its bases, each name once."""
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
        vars(function)["__signature__"] = signature.replace(parameters=[*before, *shown])
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


def as_flag(name: str, value: Any) -> bool:
    """Return ``value`` as a bool.

    Raises
    ------
    InputError
        If it is neither one nor 0 or 1: a text or an array is rejected, not taken as true.
    """
    if isinstance(value, bool | int | np.bool_) and value in (0, 1):
        return bool(value)
    raise InputError(f"{name} must be True or False, not {value!r}")


def option_values(record: type[BaseModel], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of the given options that this record declares."""
    names = {each.name for each in declared_options(record)}
    return {name: value for name, value in given.items() if name in names}


def _option_of(field: FieldInfo) -> Option | None:
    return next((each for each in field.metadata if isinstance(each, Option)), None)


def plain_type(annotation: Any) -> Any:
    """Return a type without the metadata of ``Annotated`` and without None."""
    if get_origin(annotation) is Annotated:
        return plain_type(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        parts = [plain_type(part) for part in get_args(annotation) if part is not types.NoneType]
        return parts[0] if len(parts) == 1 else Union[tuple(parts)]  # noqa: UP007 - of parts known only now
    return annotation


BARE: Final = object()
"""No value: only the option's name is given."""


class Wording(Protocol):
    """How an interface names options."""

    separator: str
    """Separator between several options."""
    call: str
    """Form of a command on a build, with ``{command}``, ``{folder}`` and ``{options}``; see :func:`call`."""

    def name(self, option: str, value: Any, command: str) -> str:
        """Return an option's name, with a value or :data:`BARE`; see :func:`option`."""


class _Python:
    separator = ", "
    call = "build.{command}({options})"

    def name(self, option: str, value: Any, command: str) -> str:
        shown = f"{value:g}" if isinstance(value, float) else repr(value)
        return option if value is BARE else f"{option}={shown}"


_wording: Wording = _Python()


def option(name: str, value: Any = BARE, command: str = "") -> str:
    """Return an option's name, for a message, in the words of the interface in use.

    Parameters
    ----------
    name
        The name in Python.
    value
        Value to show with it.
    command
        The command, if several have an option of this name; by default ``generate`` if it has one, else the
        running command.
    """
    return _wording.name(name, value, command)


def options(values: Mapping[str, Any], command: str = "") -> str:
    """Return several options with their values, as they are typed."""
    return _wording.separator.join(option(name, value, command) for name, value in values.items())


def call(command: str, folder: object, **values: Any) -> str:
    """Return a command on a build folder, for a message, as the interface in use calls it."""
    typed = options(values, command)
    return _wording.call.format(command=command, folder=shlex.quote(str(folder)), options=typed)


@contextmanager
def worded(wording: Wording) -> Iterator[None]:
    """Set the wording of options in messages for the whole process, while an interface runs.

    It applies to all threads, because errors also come from the threads of a command.
    """
    global _wording
    before, _wording = _wording, wording
    try:
        yield
    finally:
        _wording = before


_KEPT = re.compile("\ue000([^\ue001]*)\ue001")


class Kept:
    """Writes references to options into a text; another process replaces them by names: :func:`named`."""

    separator = ", "
    call = _Python.call

    def name(self, option: str, value: Any, command: str) -> str:
        """Return a reference that holds letters and digits, and a mark at each end."""
        reference = json.dumps([option, None if value is BARE else [value], command])
        return f"\ue000{reference.encode().hex()}\ue001"


def named(text: str) -> str:
    """Return a JSON text in which references of a process with :class:`Kept` wording are replaced by names.

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
