"""Activation functions of gates and layers, as model files name them, in floats.

Definitions and default parameters are those of ONNX's recurrent operators, which frameworks share:
https://onnx.ai/onnx/operators/onnx__LSTM.html
"""

from collections.abc import Callable
from typing import Final, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from rtlstm.spec.record import Record

__all__ = ["FUNCTION_NAMES", "IDENTITY", "RELU", "SIGMOID", "TANH", "ActivationFunction", "FunctionName"]

Floats = NDArray[np.float64]

FunctionName = Literal[
    "identity",
    "relu",
    "sigmoid",
    "tanh",
    "hard_sigmoid",
    "hard_tanh",
    "softsign",
    "elu",
    "leaky_relu",
    "thresholded_relu",
    "affine",
    "scaled_tanh",
    "softplus",
]
FUNCTION_NAMES: Final[tuple[str, ...]] = get_args(FunctionName)

_FORMULAS: dict[str, Callable[[Floats, float, float], Floats]] = {
    "identity": lambda x, a, b: x,
    "relu": lambda x, a, b: np.maximum(x, 0.0),
    # In this form nothing is lost for x < 0; the limit is for the exponential not to overflow.
    "sigmoid": lambda x, a, b: 1.0 / (1.0 + np.exp(np.minimum(-x, 700.0))),
    "tanh": lambda x, a, b: np.tanh(x),
    "hard_sigmoid": lambda x, a, b: np.clip(a * x + b, 0.0, 1.0),
    "hard_tanh": lambda x, a, b: np.clip(x, a, b),
    "softsign": lambda x, a, b: x / (1.0 + np.abs(x)),
    "elu": lambda x, a, b: np.where(x > 0.0, x, a * np.expm1(np.minimum(x, 0.0))),
    "leaky_relu": lambda x, a, b: np.where(x >= 0.0, x, a * x),
    "thresholded_relu": lambda x, a, b: np.where(x > a, x, 0.0),
    "affine": lambda x, a, b: a * x + b,
    "scaled_tanh": lambda x, a, b: a * np.tanh(b * x),
    "softplus": lambda x, a, b: np.logaddexp(0.0, x),
}
_DEFAULTS: dict[str, tuple[float, float]] = {
    "hard_sigmoid": (0.2, 0.5),
    "hard_tanh": (-1.0, 1.0),
    "elu": (1.0, 0.0),
    "leaky_relu": (0.01, 0.0),
    "thresholded_relu": (1.0, 0.0),
    "affine": (1.0, 0.0),
    "scaled_tanh": (1.0, 1.0),
}
_PARAMETERS: dict[str, int] = {
    "hard_sigmoid": 2,
    "hard_tanh": 2,
    "elu": 1,
    "leaky_relu": 1,
    "thresholded_relu": 1,
    "affine": 2,
    "scaled_tanh": 2,
}
"""How many of alpha and beta a function has."""
_WITHIN_ONE = frozenset({"sigmoid", "tanh", "hard_sigmoid", "softsign"})


class ActivationFunction(Record):
    """A function with its parameters. Make one with :meth:`of`, which knows the defaults.

    ``hard_tanh`` clips to ``alpha`` .. ``beta``; the others are ONNX's of the same name.
    """

    name: FunctionName
    alpha: float = 0.0
    beta: float = 0.0

    @classmethod
    def of(
        cls, name: FunctionName, alpha: float | None = None, beta: float | None = None
    ) -> "ActivationFunction":
        """Return the function; parameters that it has get their defaults if None, others are dropped."""
        first, second = _DEFAULTS.get(name, (0.0, 0.0))
        count = _PARAMETERS.get(name, 0)
        return cls(
            name=name,
            alpha=(first if alpha is None else alpha) if count >= 1 else 0.0,
            beta=(second if beta is None else beta) if count >= 2 else 0.0,
        )

    def __call__(self, x: Floats) -> Floats:
        """Evaluate it in float64."""
        return _FORMULAS[self.name](np.asarray(x, dtype=np.float64), self.alpha, self.beta)

    def __str__(self) -> str:
        parameters = (self.alpha, self.beta)[: _PARAMETERS.get(self.name, 0)]
        return self.name + (f"({', '.join(f'{value:g}' for value in parameters)})" if parameters else "")

    @property
    def within_one(self) -> bool:
        """Whether all its values are in -1 .. 1, whatever its input."""
        clips = self.name == "hard_tanh" and self.alpha >= -1.0 and self.beta <= 1.0
        return self.name in _WITHIN_ONE or clips

    def reach(self, magnitude: float) -> float:
        """Largest magnitude of its values for inputs of at most ``magnitude``: at an end or a kink."""
        kinks = [0.0, self.alpha, np.nextafter(self.alpha, np.inf)]
        points = np.array([-magnitude, magnitude, *(x for x in kinks if abs(x) <= magnitude)])
        return float(np.abs(self(points)).max())


IDENTITY: Final = ActivationFunction(name="identity")
RELU: Final = ActivationFunction(name="relu")
SIGMOID: Final = ActivationFunction(name="sigmoid")
TANH: Final = ActivationFunction(name="tanh")
