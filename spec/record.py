"""Base of the frozen, validated records that make up rtlstm's JSON files, and options of the user.

Each option is declared once, and a message names it by its Python name. A field of a record whose annotation
holds an :class:`Option` is an option. The command line, ``rtlstm.compile`` and the page ``docs/options.md``
are made from these fields, whose types, defaults and bounds are checked.

A message has an option between backticks, as ```weight_bits``` or ```weight_bits=8```, and a call on a build
as ```Build('folder').simulate(batches=3)```. The command line prints its flags and commands in their place.
"""

import inspect
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self, TypeVar, Union, get_args, get_origin

import numpy as np
from pydantic import BaseModel, ConfigDict, SerializerFunctionWrapHandler, ValidationError, model_serializer

from rtlstm.spec.errors import ConfigurationError, InputError


def describe_validation(error: ValidationError, record: type[BaseModel] | None = None) -> str:
    """Return one sentence with all problems of pydantic's list of errors.

    Fields of ``record`` that are options are named as messages name options: :mod:`rtlstm.spec.record`.
    """
    names = {each.name for each in declared_options(record)} if record else set()
    parts, errors = [], error.errors()
    # Of two kinds of value, a number is no tuple, and a tuple no number, or short if an item is wrong.
    others = ("_type", "too_short")
    apt = [
        item
        for item in errors
        if not (len(item["loc"]) > 1 and item["loc"][0] in names and item["type"].endswith(others))
    ]
    for item in apt or errors:
        location = [str(part) for part in item["loc"]]
        what = item["msg"].removeprefix("Value error, ")
        given = item["input"]
        ours = item["type"] == "value_error"
        if not ours:
            what = what.replace("Input should be", "must be")
            if given is None or isinstance(given, bool | int | float | str):
                what += f", not {given!r}"
        if location and location[0] in names:
            # A check of our own may begin with the field's name.
            said = what.removeprefix(f"{location[0]} ")
            parts.append(what if ours and said == what else f"`{location[0]}` {said}")
        else:
            where = ".".join(location)
            parts.append(f"{where}: {what}" if where and where not in what else what)
    return "; ".join(parts)


_PYDANTICS = frozenset(dir(BaseModel))


if TYPE_CHECKING:
    from pydantic._internal._model_construction import ModelMetaclass as _Metaclass
else:
    _Metaclass = type(BaseModel)


class _Shown(_Metaclass):
    """The class of records, whose ``help`` shows what they are and not what pydantic's base class has."""

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if not name.startswith("__") and name not in _PYDANTICS]


class Record(BaseModel, metaclass=_Shown):
    """A frozen record: unknown fields are refused, every field is validated.

    Raises ConfigurationError if a field is missing, unknown or out of range; the message lists all problems.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    def __init__(self, **fields: Any) -> None:
        try:
            super().__init__(**fields)
        except ValidationError as error:
            raise ConfigurationError(describe_validation(error, type(self))) from None

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        """Show the fields in the signature as a user gives them, without how they are validated."""
        keyword, empty = inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.empty
        cls.__signature__ = inspect.Signature(
            [
                inspect.Parameter(
                    name,
                    keyword,
                    default=empty if field.is_required() else field.default,
                    annotation=empty if (kind := plain_type(field.annotation)) is Any else kind,
                )
                for name, field in cls.model_fields.items()
            ]
        )

    def replace(self, **changes: Any) -> Self:
        """Return a copy with some fields changed, validated again."""
        fields = {name: getattr(self, name) for name in type(self).model_fields}
        return type(self)(**(fields | changes))


class Extended(Record):
    """A record that got fields later: its text has those in ``_later`` only if they differ from the default.

    So a build that does not use them keeps its text, and its hash.
    """

    _later: ClassVar[frozenset[str]]

    @model_serializer(mode="wrap")
    def _without_later(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields: dict[str, Any] = handler(self)
        known = type(self).model_fields
        unused = {name for name in self._later if getattr(self, name) == known[name].default}
        return {name: each for name, each in fields.items() if name not in unused}


Filled = TypeVar("Filled", bound=Record)


def filled(record: type[Filled], *holders: object, **others: object) -> Filled:
    """Return a record with the attributes of these objects that have the names of its fields."""
    found = {
        name: getattr(each, name) for each in holders for name in record.model_fields if hasattr(each, name)
    }
    return record(**found | others)


def few_digits(value: float, digits: int = 5) -> float:
    """Round a measured value: float sums differ in their last digits from machine to machine."""
    return float(f"{value:.{digits}g}")


Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True)
class Option:
    """The description of an option for all interfaces.

    ``help`` is the meaning of its values in one or two sentences. ``group`` is the heading under which it is
    listed. ``flag`` is its name on the command line; by default ``--`` and the field's name with hyphens.
    ``--yes/--no`` names both values of a switch. ``metavar`` is the placeholder for its value in the help; by
    default the type.
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
                metadata = fields[name].metadata if name in fields else []
                for declared in (each for each in metadata if isinstance(each, Option)):
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

    Raises InputError if it is neither one nor 0 or 1: a text or an array is rejected, not taken as true.
    """
    if isinstance(value, bool | int | np.bool_) and value in (0, 1):
        return bool(value)
    raise InputError(f"{name} must be True or False, not {value!r}")


def option_values(record: type[BaseModel], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of the given options that this record declares."""
    names = {each.name for each in declared_options(record)}
    return {name: value for name, value in given.items() if name in names}


def plain_type(annotation: Any) -> Any:
    """Return a type without the metadata of ``Annotated`` and without None."""
    if get_origin(annotation) is Annotated:
        return plain_type(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        parts = [plain_type(part) for part in get_args(annotation) if part is not types.NoneType]
        return parts[0] if len(parts) == 1 else Union[tuple(parts)]  # noqa: UP007 - of parts known only now
    return annotation


def option_text(values: Mapping[str, Any]) -> str:
    """Name options and their values for a message: ```weight_bits=8, data_bits=8```."""
    shown = (
        f"{name}={f'{value:g}' if isinstance(value, float) else repr(value)}"
        for name, value in values.items()
    )
    return f"`{', '.join(shown)}`"
