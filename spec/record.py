"""Base of the frozen, validated records that make up rtlstm's JSON files."""

import inspect
from typing import TYPE_CHECKING, Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from rtlstm.spec.errors import ConfigurationError
from rtlstm.spec.options import declared_options, plain_type


def describe_validation(error: ValidationError, record: type[BaseModel] | None = None) -> str:
    """Return one sentence with all problems of pydantic's list of errors.

    Fields of ``record`` that are options are named as messages name options: :mod:`rtlstm.spec.options`.
    """
    names = {each.name for each in declared_options(record)} if record else set()
    parts = []
    for item in error.errors():
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


def few_digits(value: float, digits: int = 5) -> float:
    """Round a measured value: float sums differ in their last digits from machine to machine."""
    return float(f"{value:.{digits}g}")
