"""Base of the frozen, validated records that make up rtlstm's JSON files."""

from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from rtlstm.spec.errors import ConfigurationError

__all__ = ["Record", "describe_validation"]


def describe_validation(error: ValidationError) -> str:
    """Turn pydantic's list of errors into one sentence, all problems at once."""
    parts = []
    for item in error.errors():
        where = ".".join(str(part) for part in item["loc"])
        what = item["msg"].removeprefix("Value error, ")
        given = item["input"]
        if isinstance(given, bool | int | float | str) and item["type"] != "value_error":
            what = what.replace("Input should be", "must be") + f", not {given!r}"
        parts.append(f"{where}: {what}" if where and where not in what else what)
    return "; ".join(parts)


class Record(BaseModel):
    """A frozen record: unknown fields are refused, every field is validated.

    Raises
    ------
    ConfigurationError
        If a field is missing, unknown or out of range; the message lists all problems.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    def __init__(self, **fields: Any) -> None:
        try:
            super().__init__(**fields)
        except ValidationError as error:
            raise ConfigurationError(describe_validation(error)) from None

    def replace(self, **changes: Any) -> Self:
        """Return a copy with some fields changed, validated again."""
        fields = {name: getattr(self, name) for name in type(self).model_fields}
        return type(self)(**(fields | changes))
