"""Activation functions by the names that a source has for them, with the arguments that a model gives.

The records of :data:`~rtlstm.spec.activations.functions.ACTIVATIONS` have the names. Front ends look a
function up here, so that one that is added there is read from every source.
"""

from collections.abc import Mapping
from typing import Any, Literal

from rtlstm.spec.activations.functions import (
    ACTIVATIONS,
    ActivationFunction,
    FunctionDefinition,
    FunctionName,
    TorchNames,
)
from rtlstm.spec.errors import ModelError

Source = Literal["onnx", "keras", "torch", "tflite"]
_PARAMETERS = ("alpha", "beta")


def names_in(source: Source, definition: FunctionDefinition) -> tuple[str, ...]:
    """The names that a source has for a function; in PyTorch of the function and of the module."""
    given: TorchNames | str | None = getattr(definition, source)
    if isinstance(given, TorchNames):
        return (given.function, given.module)
    return (given,) if given else ()


def functions(source: Source) -> dict[str, FunctionName]:
    """All functions that a source has, by its names; in PyTorch by those of functions."""
    found = ((name, names_in(source, definition)) for name, definition in ACTIVATIONS.items())
    return {names[0]: name for name, names in found if names}


def function(name: FunctionName, given: Mapping[str, Any], where: str) -> ActivationFunction:
    """A function with the arguments that a model gives, by any source's names; None is a default.

    Raises
    ------
    ModelError
        If it has no such argument, or only with another value; the message names both.
    """
    definition = ACTIVATIONS[name]
    of_torch = () if definition.torch is None else definition.torch.parameters
    names = [
        (each, *of_torch[at : at + 1]) for at, each in enumerate(_PARAMETERS[: len(definition.defaults)])
    ]
    found: list[float | None] = [None, None]
    for key, value in given.items():
        at = next((at for at, known in enumerate(names) if key.lower() in known), None)
        if value is None or key == "inplace":
            continue
        if at is not None:
            found[at] = _number(value, f"{where}: {key}")
        elif key not in definition.fixed:
            raise ModelError(f"{where}: {key}={value!r} is not supported: activation {name!r} has no {key}")
        elif definition.fixed[key] != value:
            wanted = definition.fixed[key]
            raise ModelError(f"{where}: {key} must be {wanted!r}, as in activation {name!r}, not {value!r}")
    return ActivationFunction.of(name, *found)


def _number(value: Any, what: str) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ModelError(f"{what} must be a number, not {value!r}") from None
