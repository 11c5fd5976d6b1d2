"""Activation functions as ONNX names them, in attributes of recurrent nodes and as operators."""

from collections.abc import Sequence
from typing import Any, Final

from rtlstm.spec.activations.functions import ActivationFunction, FunctionName

__all__ = ["OPERATOR_FUNCTIONS", "node_attributes", "operator_function", "read_functions"]

_NAMES: Final[dict[str, FunctionName]] = {
    "Affine": "affine",
    "Elu": "elu",
    "HardSigmoid": "hard_sigmoid",
    "LeakyRelu": "leaky_relu",
    "Relu": "relu",
    "ScaledTanh": "scaled_tanh",
    "Sigmoid": "sigmoid",
    "Softplus": "softplus",
    "Softsign": "softsign",
    "Tanh": "tanh",
    "ThresholdedRelu": "thresholded_relu",
}
_BY_LOWER: Final = {name.lower(): name for name in _NAMES}
_ALPHA: Final = {"Affine", "Elu", "HardSigmoid", "LeakyRelu", "ScaledTanh", "ThresholdedRelu"}
_BETA: Final = {"Affine", "HardSigmoid", "ScaledTanh"}
_NO_DEFAULT: Final = {"Affine", "ScaledTanh"}

OPERATOR_FUNCTIONS: Final = {name: kind for name, kind in _NAMES.items() if name not in _NO_DEFAULT}
"""The functions that are operators, too, by the operators' names."""


def operator_function(node: Any) -> ActivationFunction:
    """The function of an operator's node."""
    given = {item.name: float(item.f) for item in node.attribute}
    return ActivationFunction.of(OPERATOR_FUNCTIONS[node.op_type], given.get("alpha"), given.get("beta"))


def node_attributes(operators: Sequence[Any]) -> dict[str, Any]:
    """The functions of operators' nodes as attributes of a recurrent node, which has them read back."""
    functions = [(node.op_type, operator_function(node)) for node in operators]
    found: dict[str, Any] = {
        "activations": [name for name, _ in functions],
        "activation_alpha": [function.alpha for name, function in functions if name in _ALPHA],
        "activation_beta": [function.beta for name, function in functions if name in _BETA],
    }
    return {name: values for name, values in found.items() if values}


def read_functions(
    attributes: dict[str, Any], defaults: Sequence[str], directions: int, problems: list[str]
) -> list[tuple[ActivationFunction, ...]]:
    """Return each direction's functions; what stands against them is added to ``problems``.

    ONNX hands ``activation_alpha`` and ``activation_beta`` out in order, to the functions that have such a
    parameter; once they are used up, the parameter has the default of the operator of that name. Affine and
    ScaledTanh are no operators and so have none.
    """
    given = [str(name) for name in attributes.get("activations") or [*defaults] * directions]
    names = [_BY_LOWER.get(name.lower(), "") for name in given]
    unknown = [name for name, known in zip(given, names, strict=True) if not known]
    if unknown:
        problems.append(f"attribute activations={given} must be of {', '.join(sorted(_NAMES))}")
        return []
    if len(names) != len(defaults) * directions:
        problems.append(
            f"attribute activations={given} must hold {len(defaults)} for each of {directions} directions"
        )
        return []
    alphas = _hand_out("activation_alpha", attributes, names, _ALPHA, problems)
    betas = _hand_out("activation_beta", attributes, names, _BETA, problems)
    functions = [
        ActivationFunction.of(_NAMES[name], alpha, beta)
        for name, alpha, beta in zip(names, alphas, betas, strict=True)
    ]
    count = len(defaults)
    return [tuple(functions[at * count : (at + 1) * count]) for at in range(directions)]


def _hand_out(
    attribute: str, attributes: dict[str, Any], names: list[str], takers: set[str], problems: list[str]
) -> list[float | None]:
    """The parameter of each function, None for its default."""
    values = [float(value) for value in attributes.get(attribute) or ()]
    taking = [name for name in names if name in takers]
    if len(values) > len(taking):
        problems.append(
            f"attribute {attribute}={[round(value, 6) for value in values]} must hold one value for each of "
            f"the functions that take one, which are {', '.join(taking) or 'none'}"
        )
    missing = [name for name in taking[len(values) :] if name in _NO_DEFAULT]
    if missing:
        problems.append(f"attribute {attribute} must be given for {missing[0]}, which has no default")
    waiting = iter(values)
    return [next(waiting, None) if name in takers else None for name in names]
