"""Activation functions as ONNX names them, in attributes of recurrent nodes and as operators."""

from collections.abc import Sequence
from typing import Any

from rtlstm.spec.activations.functions import (
    ACTIVATIONS,
    ActivationFunction,
    FunctionDefinition,
    FunctionName,
)

__all__ = [
    "functions_of",
    "included_operators",
    "node_attributes",
    "operator_function",
    "operator_functions",
    "read_functions",
]


def operator_functions() -> dict[str, FunctionName]:
    """The functions that are operators, too, by the operators' names."""
    return {definition.onnx: name for name, definition in _named().items() if definition.onnx_operator}


def included_operators() -> list[str]:
    """Operators of rtlstm's own functions."""
    return [each.onnx for each in ACTIVATIONS.included.values() if each.onnx and each.onnx_operator]


def functions_of(operator: str) -> list[FunctionName]:
    """Return all functions that are registered for this operator; there should be at most one."""
    return [name for name, each in _named().items() if each.onnx == operator and each.onnx_operator]


def _named() -> dict[FunctionName, FunctionDefinition]:
    """The functions that ONNX has."""
    return {name: definition for name, definition in ACTIVATIONS.items() if definition.onnx}


def operator_function(node: Any) -> ActivationFunction:
    """The function of an operator's node."""
    given = {item.name: float(item.f) for item in node.attribute}
    return ActivationFunction.of(operator_functions()[node.op_type], given.get("alpha"), given.get("beta"))


def node_attributes(operators: Sequence[Any]) -> dict[str, Any]:
    """The functions of operators' nodes as attributes of a recurrent node, which has them read back."""
    functions = [operator_function(node) for node in operators]
    found: dict[str, Any] = {
        "activations": [node.op_type for node in operators],
        "activation_alpha": [one.alpha for one in functions if len(one.definition.defaults) > 0],
        "activation_beta": [one.beta for one in functions if len(one.definition.defaults) > 1],
    }
    return {name: values for name, values in found.items() if values}


def read_functions(
    attributes: dict[str, Any], defaults: Sequence[str], directions: int, problems: list[str]
) -> list[tuple[ActivationFunction, ...]]:
    """Return each direction's functions; reasons for a refusal are added to ``problems``.

    ONNX assigns ``activation_alpha`` and ``activation_beta`` in order to the functions that have such a
    parameter. When they are used up, the operator of that name gives the default. Affine and ScaledTanh are
    not operators, so they have none.
    """
    given = [str(name) for name in attributes.get("activations") or [*defaults] * directions]
    known = {definition.onnx.lower(): name for name, definition in _named().items()}
    names = [known.get(name.lower(), "") for name in given]
    if not all(names):
        listed = ", ".join(sorted(definition.onnx for definition in _named().values()))
        problems.append(f"attribute activations={given} must be of {listed}")
        return []
    if len(names) != len(defaults) * directions:
        problems.append(
            f"attribute activations={given} must hold {len(defaults)} for each of {directions} directions"
        )
        return []
    alphas = _hand_out("activation_alpha", attributes, names, 0, problems)
    betas = _hand_out("activation_beta", attributes, names, 1, problems)
    functions = [
        ActivationFunction.of(name, alpha, beta)
        for name, alpha, beta in zip(names, alphas, betas, strict=True)
    ]
    count = len(defaults)
    return [tuple(functions[at * count : (at + 1) * count]) for at in range(directions)]


def _hand_out(
    attribute: str, attributes: dict[str, Any], names: list[FunctionName], which: int, problems: list[str]
) -> list[float | None]:
    """Parameter ``which`` (alpha, beta) of each function, None for its default."""
    values = [float(value) for value in attributes.get(attribute) or ()]
    functions = [ACTIVATIONS[name] for name in names]
    taking = [function for function in functions if len(function.defaults) > which]
    if len(values) > len(taking):
        takers = ", ".join(function.onnx for function in taking)
        problems.append(
            f"attribute {attribute}={[round(value, 6) for value in values]} must hold one value for each of "
            f"the functions that take one, which are {takers or 'none'}"
        )
    missing = [function.onnx for function in taking[len(values) :] if not function.onnx_operator]
    if missing:
        problems.append(f"attribute {attribute} must be given for {missing[0]}, which has no default")
    waiting = iter(values)
    return [next(waiting, None) if len(function.defaults) > which else None for function in functions]
