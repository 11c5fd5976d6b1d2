"""Activation functions of gates and layers: one definition each, a function with its parameters,
and piecewise linear ones in integers.

Definitions and default parameters are those of ONNX's recurrent operators, which frameworks share:
https://onnx.ai/onnx/operators/onnx__LSTM.html. Front ends look functions up by the names that a source has
for them, so that one that is added here is read from every source.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Annotated, Any, Final, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, Field

from rtlstm.spec.errors import ConfigurationError, ModelError
from rtlstm.spec.fixed import Format, IntArray, round_shift
from rtlstm.spec.plugins import Registry
from rtlstm.spec.record import Record

Floats = NDArray[np.float64]
Bounds = tuple[float, float]
"""The lowest and the highest of some values; infinite if there is none."""


@dataclass(frozen=True, kw_only=True)
class Lines:
    """A piecewise linear function: ``slope * x + offset``, clipped to ``low`` .. ``high``."""

    lines: tuple[tuple[float, float], ...] = ((1.0, 0.0),)
    """Slope and offset of each piece, from the lowest ``x`` on."""
    starts: tuple[float, ...] = ()
    """The start of each piece except the first."""
    exclusive: bool = False
    """A piece begins right above its start, which belongs to the piece before."""
    low: float = -np.inf
    high: float = np.inf


@dataclass(frozen=True)
class TorchNames:
    """PyTorch's names of a function in ``torch.nn.functional``, of its module, and of alpha and beta.

    ATen's name of the function, if it has another one, follows it behind a blank.
    A function whose alpha has no name here has the default in PyTorch.
    """

    function: str
    module: str
    parameters: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class FunctionDefinition:
    """The definition of an activation function; alpha and beta are 0 if it has none.

    It has all names by which front ends know the function. An argument in a model that is neither alpha nor
    beta, nor one of ``fixed``, is refused.

    The values of a function without ``lines`` must have one sign for all ``x > 0`` and one for all
    ``x < 0``, and its largest magnitude over ``-m .. m`` must be at an end, at 0 or at alpha. The latter is
    checked when the function is first computed, on a grid.
    """

    formula: Callable[[Floats, float, float], Floats]
    """The function of x, alpha and beta in float64; finite for all finite x."""
    defaults: tuple[float, ...] = ()
    """Defaults of alpha and beta, as far as it has them."""
    bounds: Bounds | Callable[[float, float], Bounds] = (-np.inf, np.inf)
    """Bounds of its values for all x, alpha and beta; or a function that returns those for alpha and beta."""
    odd: bool = False
    """Whether ``f(-x) == -f(x)``: its table then holds only positive inputs."""
    lines: Callable[[float, float], Lines] | None = None
    """Returns its pieces for alpha and beta; None if the hardware has a table for it."""
    saturates: Callable[[float, float], bool] = lambda a, b: False
    """Returns for alpha and beta whether it is flat wherever sigmoid is."""
    onnx: str = ""
    """Its name in attributes of ONNX's recurrent operators, and of the operator; empty if it has none."""
    onnx_operator: bool = True
    """Whether ONNX also has an operator of this name, with the same defaults."""
    keras: str = ""
    """Its names as an ``activation`` in Keras, and with capital letters of its layer, with blanks between."""
    torch: TorchNames | None = None
    """PyTorch's names; None if it has no such function, or one with other parameters."""
    tflite: str = ""
    """Its name as an operator of TFLite; empty if it has none."""
    fixed: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """Further arguments that some source has, each with the value, or a tuple of values, for which it is this
    function. They tell functions apart for which a source has one name."""

    def __post_init__(self) -> None:
        names = () if self.torch is None else self.torch.parameters
        if len(self.defaults) > 2 or len(names) > len(self.defaults):
            raise ConfigurationError(
                "an activation function must have defaults of alpha and beta at most, and no more names of "
                f"parameters in PyTorch than defaults, not defaults {self.defaults} and names {names}"
            )

    def takes(self, argument: str, value: Any) -> bool:
        """Whether it is this function with a further argument of this value."""
        return argument in self.fixed and value in _tuple(self.fixed[argument])

    def is_variant(self, other: "FunctionDefinition") -> bool:
        """Whether a source calls both the same, and a further argument tells which of them it is."""
        keys = self.fixed.keys() & other.fixed.keys()
        apart = any(set(_tuple(self.fixed[key])).isdisjoint(_tuple(other.fixed[key])) for key in keys)
        return apart and any(set(names_in(each, self)) & set(names_in(each, other)) for each in SOURCES)


def _tuple(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def erf(x: Floats) -> Floats:
    """The error function of every element, which NumPy does not have."""
    return np.asarray(_ERF(x), dtype=np.float64)


_ERF, _ERFC = np.frompyfunc(math.erf, 1, 1), np.frompyfunc(math.erfc, 1, 1)
_GELU: Final[dict[str, Any]] = {
    "bounds": (-0.2, np.inf),
    "onnx": "Gelu",
    "keras": "gelu",
    "torch": TorchNames("gelu", "GELU"),
    "tflite": "GELU",
}
_SELU: Final = (1.6732632423543772, 1.0507009873554805)


def _always(a: float, b: float) -> bool:
    return True


ACTIVATIONS: Final = Registry(
    "activation",
    "rtlstm.activations",
    {
        "identity": FunctionDefinition(
            formula=lambda x, a, b: x,
            lines=lambda a, b: Lines(),
            keras="linear",
        ),
        "relu": FunctionDefinition(
            formula=lambda x, a, b: np.maximum(x, 0.0),
            lines=lambda a, b: Lines(low=0.0),
            onnx="Relu",
            keras="relu",
            torch=TorchNames("relu", "ReLU"),
            tflite="RELU",
        ),
        "sigmoid": FunctionDefinition(
            # This form is exact for x < 0; the limit keeps the exponential from overflowing.
            formula=lambda x, a, b: 1.0 / (1.0 + np.exp(np.minimum(-x, 700.0))),
            bounds=(0.0, 1.0),
            saturates=_always,
            onnx="Sigmoid",
            keras="sigmoid",
            torch=TorchNames("sigmoid", "Sigmoid"),
            tflite="LOGISTIC",
        ),
        "tanh": FunctionDefinition(
            formula=lambda x, a, b: np.tanh(x),
            bounds=(-1.0, 1.0),
            odd=True,
            saturates=_always,
            onnx="Tanh",
            keras="tanh",
            torch=TorchNames("tanh", "Tanh"),
            tflite="TANH",
        ),
        "hard_sigmoid": FunctionDefinition(
            formula=lambda x, a, b: np.clip(a * x + b, 0.0, 1.0),
            defaults=(0.2, 0.5),
            bounds=(0.0, 1.0),
            lines=lambda a, b: Lines(lines=((a, b),), low=0.0, high=1.0),
            saturates=lambda a, b: a >= 0.1,
            onnx="HardSigmoid",
        ),
        # Clips to alpha .. beta.
        "hard_tanh": FunctionDefinition(
            formula=lambda x, a, b: np.clip(x, a, b),
            defaults=(-1.0, 1.0),
            lines=lambda a, b: Lines(low=a, high=b),
            saturates=lambda a, b: max(abs(a), abs(b)) <= 4.0,
            keras="hard_tanh",
            torch=TorchNames("hardtanh", "Hardtanh", ("min_val", "max_val")),
            tflite="RELU_N1_TO_1",
        ),
        "softsign": FunctionDefinition(
            formula=lambda x, a, b: x / (1.0 + np.abs(x)),
            bounds=(-1.0, 1.0),
            odd=True,
            onnx="Softsign",
            keras="softsign",
            torch=TorchNames("softsign", "Softsign"),
        ),
        "elu": FunctionDefinition(
            formula=lambda x, a, b: np.where(x > 0.0, x, a * np.expm1(np.minimum(x, 0.0))),
            defaults=(1.0,),
            bounds=lambda a, b: (min(-a, 0.0), np.inf),
            onnx="Elu",
            keras="elu",
            torch=TorchNames("elu", "ELU", ("alpha",)),
            tflite="ELU",
            fixed={"scale": 1, "input_scale": 1},
        ),
        "leaky_relu": FunctionDefinition(
            formula=lambda x, a, b: np.where(x >= 0.0, x, a * x),
            defaults=(0.01,),
            lines=lambda a, b: Lines(lines=((a, 0.0), (1.0, 0.0)), starts=(0.0,)),
            onnx="LeakyRelu",
            keras="leaky_relu",
            torch=TorchNames("leaky_relu", "LeakyReLU", ("negative_slope",)),
            tflite="LEAKY_RELU",
        ),
        "thresholded_relu": FunctionDefinition(
            formula=lambda x, a, b: np.where(x > a, x, 0.0),
            defaults=(1.0,),
            lines=lambda a, b: Lines(lines=((0.0, 0.0), (1.0, 0.0)), starts=(a,), exclusive=True),
            onnx="ThresholdedRelu",
        ),
        # 1 above alpha, else 0: whether a neuron fires.
        "heaviside": FunctionDefinition(
            formula=lambda x, a, b: np.where(x > a, 1.0, 0.0),
            defaults=(0.0,),
            bounds=(0.0, 1.0),
            lines=lambda a, b: Lines(lines=((0.0, 0.0), (0.0, 1.0)), starts=(a,), exclusive=True),
        ),
        "affine": FunctionDefinition(
            formula=lambda x, a, b: a * x + b,
            defaults=(1.0, 0.0),
            lines=lambda a, b: Lines(lines=((a, b),)),
            onnx="Affine",
            onnx_operator=False,
        ),
        "scaled_tanh": FunctionDefinition(
            formula=lambda x, a, b: a * np.tanh(b * x),
            defaults=(1.0, 1.0),
            odd=True,
            onnx="ScaledTanh",
            onnx_operator=False,
        ),
        "softplus": FunctionDefinition(
            formula=lambda x, a, b: np.logaddexp(0.0, x),
            bounds=(0.0, np.inf),
            onnx="Softplus",
            keras="softplus",
        ),
        "silu": FunctionDefinition(
            formula=lambda x, a, b: x / (1.0 + np.exp(np.minimum(-a * x, 700.0))),
            defaults=(1.0,),
            bounds=lambda a, b: (-0.3 / a if a > 0.0 else -np.inf, np.inf),
            onnx="Swish",
            keras="silu swish",
            torch=TorchNames("silu", "SiLU"),
        ),
        # Of two with one name in a source, the last is that without arguments.
        "gelu_tanh": FunctionDefinition(
            formula=lambda x, a, b: x / 2 * (1.0 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
            fixed={"approximate": ("tanh", True)},
            **_GELU,
        ),
        "gelu": FunctionDefinition(
            # This form is exact for x < 0.
            formula=lambda x, a, b: x / 2 * np.asarray(_ERFC(x * -math.sqrt(0.5)), dtype=np.float64),
            fixed={"approximate": ("none", False)},
            **_GELU,
        ),
        "mish": FunctionDefinition(
            formula=lambda x, a, b: x * np.tanh(np.logaddexp(0.0, x)),
            bounds=(-0.35, np.inf),
            onnx="Mish",
            keras="mish",
            torch=TorchNames("mish", "Mish"),
        ),
        "selu": FunctionDefinition(
            formula=lambda x, a, b: _SELU[1] * np.where(x > 0.0, x, _SELU[0] * np.expm1(np.minimum(x, 0.0))),
            bounds=(-_SELU[0] * _SELU[1], np.inf),
            onnx="Selu",
            keras="selu",
            torch=TorchNames("selu", "SELU"),
            # ONNX's defaults, which are floats of 32 bits.
            fixed={"alpha": 1.67326319217681884765625, "gamma": 1.05070102214813232421875},
        ),
        "hard_swish": FunctionDefinition(
            formula=lambda x, a, b: x * np.clip(x / 6 + 0.5, 0.0, 1.0),
            bounds=(-0.375, np.inf),
            onnx="HardSwish",
            keras="hard_silu hard_swish",
            torch=TorchNames("hardswish", "Hardswish"),
            tflite="HARD_SWISH",
        ),
        # How much of a state is left: exp of what is never positive.
        "decay": FunctionDefinition(
            formula=lambda x, a, b: np.exp(np.minimum(x, 0.0)),
            bounds=(0.0, 1.0),
            saturates=_always,
        ),
        # Of a mantissa: 1 + x from 0 on, twice 1 - x below 0; that of norms.
        "inverse_root": FunctionDefinition(
            formula=lambda x, a, b: 1.0 / np.sqrt(np.where(x < 0.0, 2.0, 1.0) * (1.0 + np.abs(x))),
            bounds=(0.0, 1.0),
        ),
    },
    kind=FunctionDefinition,
)
"""Every activation function's definition by its name."""

FunctionName = Annotated[str, AfterValidator(ACTIVATIONS.known)]
"""Name of an activation function, one of :data:`ACTIVATIONS`."""


class ActivationFunction(Record):
    """A function with its parameters. Make one with :meth:`of`, which inserts the defaults."""

    name: FunctionName
    alpha: float = 0.0
    beta: float = 0.0

    @classmethod
    def of(cls, name: str, alpha: float | None = None, beta: float | None = None) -> "ActivationFunction":
        """Return the function; parameters that it has get their defaults if None, others are dropped."""
        defaults = ACTIVATIONS.named(name).defaults
        given = zip(("alpha", "beta"), (alpha, beta), strict=True)
        chosen = {
            key: default if value is None else value
            for (key, value), default in zip(given, defaults, strict=False)
        }
        return cls(name=name, **chosen)

    def __call__(self, x: Floats) -> Floats:
        """Evaluate it in float64.

        Raises ConfigurationError if its definition does not hold what :class:`FunctionDefinition` says.
        """
        definition = self.definition
        if definition.lines is None:
            _check_formula(self, definition)
        return definition.formula(np.asarray(x, dtype=np.float64), self.alpha, self.beta)

    def __str__(self) -> str:
        parameters = (self.alpha, self.beta)[: len(self.definition.defaults)]
        return self.name + (f"({', '.join(f'{value:g}' for value in parameters)})" if parameters else "")

    @property
    def definition(self) -> FunctionDefinition:
        """The function's definition."""
        return ACTIVATIONS[self.name]

    @property
    def lines(self) -> Lines | None:
        """Its pieces, if it is piecewise linear."""
        made_of = self.definition.lines
        return None if made_of is None else made_of(self.alpha, self.beta)

    @property
    def limits(self) -> Bounds:
        """The lowest and the highest value that it can have for any input; infinite if there is none."""
        bounds, lines = self.definition.bounds, self.lines or Lines()
        low, high = bounds(self.alpha, self.beta) if callable(bounds) else bounds
        return max(low, lines.low), min(high, lines.high)

    @property
    def within_one(self) -> bool:
        """Whether all its values are in -1 .. 1, whatever its input."""
        return _within(-1.0, self.limits)

    @property
    def is_share(self) -> bool:
        """Whether all its values are in 0 .. 1, whatever its input and parameters."""
        bounds = self.definition.bounds
        return not callable(bounds) and _within(0.0, bounds)

    @property
    def saturates(self) -> bool:
        """Whether it is flat wherever sigmoid is."""
        return self.definition.saturates(self.alpha, self.beta)

    def max_abs(self, magnitude: float) -> float:
        """Largest magnitude of its values for inputs of at most ``magnitude``; it is at an end or a kink."""
        kinks = [0.0, self.alpha, np.nextafter(self.alpha, np.inf)]
        points = np.array([-magnitude, magnitude, *(x for x in kinks if abs(x) <= magnitude)])
        return float(np.abs(self.definition.formula(points, self.alpha, self.beta)).max())


@cache
def _check_formula(function: ActivationFunction, definition: FunctionDefinition) -> None:
    """Check a definition on a grid: its formula is finite, within its bounds and odd if that is said, and has
    its largest magnitude where ``max_abs`` looks.

    The definition is a parameter because a program may remove it and add another one of its name.
    """
    alpha, beta = function.alpha, function.beta
    grid = np.concatenate([np.linspace(1 / 64, 8.0, 512), np.geomspace(8.25, 256.0, 64)])
    with np.errstate(all="ignore"):
        for x in (np.zeros(1), grid, -grid):
            finite = np.isfinite(definition.formula(x, alpha, beta))
            if not finite.all():
                raise ConfigurationError(
                    f"the formula of activation {function} must be finite for all x, but is not for "
                    f"x = {x[np.argmin(finite)]:g}; correct its definition"
                )
        values = np.array([definition.formula(x, alpha, beta) for x in (grid, -grid)])
        if definition.odd and not np.allclose(values[0], -values[1], rtol=1e-9, atol=1e-12):
            raise ConfigurationError(
                f"activation {function} must be odd, f(-x) = -f(x), as its definition says; define it with "
                "odd=False"
            )
        low, high = function.limits
        if values.min() < low - 1e-9 or values.max() > high + 1e-9:
            raise ConfigurationError(
                f"activation {function} must be within its bounds, {low:g} .. {high:g}, but reaches "
                f"{values.min():g} .. {values.max():g}; correct the bounds in its definition"
            )
        largest = np.maximum.accumulate(np.abs(values).max(axis=0))
        bounds = [function.max_abs(magnitude) for magnitude in grid.tolist()]
    above = largest > np.multiply(bounds, 1 + 1e-9)
    if above.any():
        end = grid[np.argmax(above)]
        raise ConfigurationError(
            f"the largest magnitude of activation {function} over {-end:g} .. {end:g} must be at an end, at "
            "0 or at alpha, but is in between; define a function that has its largest magnitude there"
        )


def _within(low: float, bounds: Bounds) -> bool:
    return bounds[0] >= low and bounds[1] <= 1.0


IDENTITY: Final = ActivationFunction(name="identity")
RELU: Final = ActivationFunction(name="relu")
SIGMOID: Final = ActivationFunction(name="sigmoid")
TANH: Final = ActivationFunction(name="tanh")


class PiecewiseLinear(Record):
    """``(slope * x + offset) / 2**extra`` of the piece that ``x`` is in, rounded half up and saturated.

    Piece ``k`` is where ``k`` of the ``thresholds`` are at most ``x``. Integers of ``input`` and ``output``.
    """

    function: ActivationFunction
    input: Format
    output: Format
    thresholds: tuple[int, ...]
    slopes: tuple[int, ...]
    offsets: tuple[int, ...]
    extra: Annotated[int, Field(ge=0, le=48)]
    lowest: int
    highest: int

    @property
    def slope_bits(self) -> int:
        """Width of a slope, signed."""
        return max(2, *(slope.bit_length() + 1 for slope in self.slopes))

    def compute(self, integers: IntArray) -> IntArray:
        """Return the function's value, in units of ``output``, for integers of ``input``."""
        x = np.asarray(integers, dtype=np.int64)
        piece = np.searchsorted(np.asarray(self.thresholds, dtype=np.int64), x, side="right")
        slope, offset = (np.asarray(values, dtype=np.int64)[piece] for values in (self.slopes, self.offsets))
        return np.clip(round_shift(slope * x + offset, self.extra), self.lowest, self.highest)


def design_pieces(function: ActivationFunction, input: Format, output: Format) -> PiecewiseLinear:
    """Choose integers for a piecewise linear function: exact ones where possible."""
    made_of = function.lines
    if made_of is None:
        raise ConfigurationError(f"activation {function} is not piecewise linear; it needs a table")
    lines = made_of.lines
    starts = [math.ldexp(start, input.fraction) for start in made_of.starts]
    added_fraction = output.fraction - input.fraction
    most = input.bits + max(0, -added_fraction)
    extra = next((e for e in range(most) if _exact(lines, output.fraction, added_fraction, e)), most)
    return PiecewiseLinear(
        function=function,
        input=input,
        output=output,
        thresholds=tuple(math.floor(x) + 1 if made_of.exclusive else math.ceil(x) for x in starts),
        slopes=tuple(round(np.ldexp(slope, added_fraction + extra)) for slope, _ in lines),
        offsets=tuple(round(np.ldexp(offset, output.fraction + extra)) for _, offset in lines),
        extra=extra,
        lowest=int(output.to_integers(max(made_of.low, -1e18))),
        highest=int(output.to_integers(min(made_of.high, 1e18))),
    )


def _exact(lines: tuple[tuple[float, float], ...], fraction: int, added_fraction: int, extra: int) -> bool:
    """Return whether slopes and offsets are integers with this number of extra bits."""
    return all(
        float(np.ldexp(slope, added_fraction + extra)).is_integer()
        and float(np.ldexp(offset, fraction + extra)).is_integer()
        for slope, offset in lines
    )


Source = Literal["onnx", "keras", "torch", "tflite"]
SOURCES: Final[tuple[Source, ...]] = get_args(Source)
_PARAMETERS = ("alpha", "beta")


def names_in(source: Source, definition: FunctionDefinition) -> tuple[str, ...]:
    """The names that a source has for a function; in PyTorch the last one is the module's."""
    given: TorchNames | str | None = getattr(definition, source)
    if isinstance(given, TorchNames):
        return (*given.function.split(), given.module)
    return tuple((given or "").split())


def functions(source: Source) -> dict[str, FunctionName]:
    """All functions that a source has, by its names; in PyTorch by those of functions."""
    found = ((name, names_in(source, definition)) for name, definition in ACTIVATIONS.items())
    return {each: name for name, names in found for each in names[: -1 if source == "torch" else None]}


def function(name: FunctionName, given: Mapping[str, Any], where: str) -> ActivationFunction:
    """A function with the arguments that a model gives, by any source's names; None is a default.

    It is a variant of that name if one takes the arguments. Raises ModelError if it has no such argument, or
    only with another value; the message names both.
    """
    alike = [other for other, each in ACTIVATIONS.items() if each.is_variant(ACTIVATIONS[name])]
    takes = (other for other in alike if any(ACTIVATIONS[other].takes(*item) for item in given.items()))
    name = next(takes, name)
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
        elif not definition.takes(key, value):
            wanted = " or ".join(map(repr, _tuple(definition.fixed[key])))
            raise ModelError(f"{where}: {key} must be {wanted}, as in activation {name!r}, not {value!r}")
    return ActivationFunction.of(name, *found)


def _number(value: Any, what: str) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ModelError(f"{what} must be a number, not {value!r}") from None
