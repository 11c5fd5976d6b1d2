"""What an exploration measures outputs and compares points by: metrics, figures, limits, the Pareto front."""

import hashlib
import importlib
import math
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rtlstm.explore.space import Errors, Point
from rtlstm.gen.accuracy.samples import Labels, Samples
from rtlstm.spec.errors import ConfigurationError, InputError

Floats = NDArray[np.float64]

_MEANINGS = {
    "error": "root mean square of the differences from the float outputs",
    "max-error": "largest difference from a float output",
    "agreement": "share of decisions that are those of the float network",
    "accuracy": "share of right decisions",
    "mean-absolute-error": "mean difference from the labels",
}
BUILT_IN = tuple(_MEANINGS)
_LABELLED = {"accuracy": "integers, which are classes", "mean-absolute-error": "floats, which are targets"}


@dataclass(frozen=True)
class Evaluation:
    """The data that outputs are measured on."""

    samples: Samples
    exact: Floats
    """The float network's outputs, ``(T, N, outputs)``."""
    threshold: float
    """A single output above it means class 1."""
    labels: Labels | None = None
    given: Any = None
    """The labels as they are in the file."""

    def decisions(self, outputs: Floats) -> NDArray[Any]:
        """Return the class of each valid step: the largest output, or if one alone is above the threshold."""
        some = outputs[self.samples.alive]
        return some[:, 0] > self.threshold if some.shape[1] == 1 else some.argmax(axis=1)


@dataclass(frozen=True)
class Metric:
    """A measure of outputs; make it with :func:`find_metric`."""

    name: str
    function: Callable[..., Any] | None = None
    """The user's, of outputs ``(T, N, outputs)`` and labels; its number is better if it is smaller.

    The outputs of inputs whose first axis is the batch are ``(N, T, outputs)``, as their labels are.
    """
    source: str = ""
    """A hash of the file of the user's module, not of what that imports; empty without a file."""

    @property
    def short_name(self) -> str:
        """Its name in limits and tables."""
        return self.name.rpartition(":")[2]

    @property
    def meaning(self) -> str:
        """What its values are, a clause for tables."""
        return _MEANINGS.get(self.name, "better if smaller")

    @property
    def larger_is_better(self) -> bool:
        """Whether it is a share, of steps or decisions; a larger value of another is never better."""
        return self.name in ("agreement", "accuracy")

    def value_of(self, point: Point) -> float:
        """Return its value for a point."""
        return self.of(point.errors)

    def of(self, errors: Errors) -> float:
        """Return its value."""
        if self.name == "max-error":
            return errors.largest
        return errors.rms if errors.metric is None else errors.metric

    def cost(self, errors: Errors) -> float:
        """Return its value, negative if a larger one is better."""
        return -self.of(errors) if self.larger_is_better else self.of(errors)

    def check(self, data: Evaluation) -> None:
        """Refuse data whose labels it cannot use; InputError says which it needs."""
        kind, labels = _LABELLED.get(self.name), data.labels
        if kind is None:
            return
        if labels is None or labels.classes != (self.name == "accuracy"):
            given = "there are none" if labels is None else "those given are the other kind"
            raise InputError(
                f"the metric {self.name} needs labels that are {kind}, but {given}; give them as array y "
                "beside inputs x in the .npz file of `evaluation`"
            )

    def measure(self, fixed: Floats, data: Evaluation) -> float | None:
        """Measure fixed outputs, ``(T, N, outputs)``; None if :class:`Errors` has it already."""
        if self.function is not None:
            return self._call(data.samples.as_given(fixed), data.given)
        if self.name in _LABELLED and data.labels is not None:
            return data.labels.score(data.exact, fixed).fixed_score
        if self.name == "agreement":
            return float(np.mean(data.decisions(data.exact) == data.decisions(fixed)))
        return None

    def measure_float(self, data: Evaluation) -> float | None:
        """Measure the float network's outputs; None if the metric compares with them, or has no value there.

        A user's ratio to the error, for example, has none where the error is 0.
        """
        if self.name in _MEANINGS and self.name not in _LABELLED:
            return None
        try:
            # The function may change what it is given.
            return self.measure(data.exact.copy(), data)
        except InputError:
            return None

    def _call(self, outputs: Floats, given: Any) -> float:
        assert self.function is not None
        # The function may change what it is given.
        shape = outputs.shape
        labels = "no labels" if given is None else f"labels {np.shape(given)}"
        try:
            value = float(self.function(outputs, given))
        except Exception as error:
            raise InputError(
                f"the metric {self.name} failed on outputs {shape} and {labels}: "
                f"{type(error).__name__}: {error}"
            ) from None
        if not math.isfinite(value):
            raise InputError(f"the metric {self.name} must give a finite number, not {value}")
        return value


def find_metric(name: str) -> Metric:
    """Find a metric: one of :data:`BUILT_IN`, or ``module:function``.

    A module is also looked for in the current folder.

    Raises ConfigurationError if there is none of this name.
    """
    if name in BUILT_IN:
        return Metric(name)
    module, colon, function = name.partition(":")
    if not colon or not module or not function:
        raise ConfigurationError(
            f"a metric must be one of {', '.join(BUILT_IN)}, or your own as module:function, not {name!r}"
        )
    here = os.getcwd()
    sys.path.insert(0, here)
    try:
        holder = importlib.import_module(module)
        found = getattr(holder, function)
    except Exception as error:
        # The module is the user's, so that it may raise anything.
        raise ConfigurationError(
            f"the metric {name} cannot be imported: {type(error).__name__}: {error}"
        ) from None
    finally:
        sys.path.remove(here)
    if not callable(found):
        raise ConfigurationError(f"the metric {name} must be a function of outputs and labels, not {found!r}")
    with suppress(ImportError):
        # Workers elsewhere need not have the module.
        import cloudpickle

        cloudpickle.register_pickle_by_value(holder)
    return Metric(name, found, _source(holder))


def _source(module: ModuleType) -> str:
    file = getattr(module, "__file__", None)
    return hashlib.sha256(Path(file).read_bytes()).hexdigest()[:16] if file else ""


_TIME: Mapping[str, float] = {"ns": 1e-3, "us": 1.0, "ms": 1e3}
_ENERGY: Mapping[str, float] = {"pJ": 1e-3, "nJ": 1.0, "uJ": 1e3}
_SHARE: Mapping[str, float] = {"": 1.0, "%": 0.01}
_MEANT: Mapping[str, float] = {"%": 0.01, "k": 1e3}
"""What people mean by units of plain numbers, which have none."""
_FORM = re.compile(r"\s*([\w-]+)\s*(<=|>=)\s*(-?[0-9.]+(?:e[+-]?[0-9]+)?)\s*([a-z%]*)\s*", re.IGNORECASE)
_FORM_SAID = (
    "NAME<=NUMBER or NAME>=NUMBER with the figure's unit, such as latency<=2us, luts<=5000 or error<=0.01"
)


@dataclass(frozen=True)
class Figure:
    """Something of a point that can be compared."""

    name: str
    value: Callable[[Point], float]
    units: Mapping[str, float]
    """What each unit is in the figure's own, which is the first that is 1; empty for a plain number. The unit
    "" may be left out."""
    larger_is_better: bool = False

    @property
    def unit(self) -> str:
        """Its own unit; empty for a plain number."""
        return next((unit for unit, factor in self.units.items() if factor == 1.0), "")

    def text(self, value: float) -> str:
        """Write a value of it."""
        return f"{value:.4g}{' ' if self.unit else ''}{self.unit}"

    def cost(self, point: Point) -> float:
        """Return its value, negative if a larger one is better."""
        return -self.value(point) if self.larger_is_better else self.value(point)


def figures(metric: Metric) -> dict[str, Figure]:
    """Return all figures by name; ConfigurationError if the metric's name is another figure's."""
    found = (
        Figure("latency", lambda point: point.latency_us, _TIME),
        Figure("interval", lambda point: point.interval_us, _TIME),
        Figure("clock", lambda point: point.fmax_mhz, {"MHz": 1.0}, larger_is_better=True),
        Figure("luts", lambda point: point.luts, {}),
        Figure("multipliers", lambda point: point.multipliers, {}),
        Figure("block-rams", lambda point: point.block_rams, {}),
        Figure("energy", lambda point: point.energy_nj or 0.0, _ENERGY),
        Figure("share", lambda point: point.share, {"%": 1.0}),
        Figure("error", lambda point: point.errors.rms, {}),
        Figure("max-error", lambda point: point.errors.largest, {}),
    )
    named = {each.name: each for each in found}
    if metric.short_name not in named:
        named[metric.short_name] = Figure(
            metric.short_name,
            metric.value_of,
            _SHARE if metric.larger_is_better else {},
            larger_is_better=metric.larger_is_better,
        )
    elif metric.function is not None:
        raise ConfigurationError(
            f"the metric {metric.name} needs another name, because {metric.short_name} is a figure already; "
            "rename the function"
        )
    # As the table calls its column.
    named.setdefault("metric", named[metric.short_name])
    return named


@dataclass(frozen=True)
class Limit:
    """The worst value of a figure that a user accepts."""

    text: str
    figure: Figure
    bound: float

    def excess(self, point: Point) -> float:
        """Return by what share of the limit a point misses it; 0 or less if it meets it."""
        bound = -self.bound if self.figure.larger_is_better else self.bound
        return (self.figure.cost(point) - bound) / (abs(bound) or 1.0)

    def met(self, point: Point) -> bool:
        """Whether a point meets it."""
        return self.excess(point) <= 0


def parse_limit(text: str, known: Mapping[str, Figure]) -> Limit:
    """Read a limit.

    Raises ConfigurationError if it has another form, there is no such figure, its unit is missing or
    another's, or the limit is on the side that is better.
    """
    match = _FORM.fullmatch(text)
    if match is None:
        raise ConfigurationError(f"a limit must be {_FORM_SAID}, not {text!r}")
    name, relation, number, unit = match.groups()
    # A user's metric may have capitals.
    figure = known.get(name) or known.get(name.lower())
    if figure is None:
        hint = f"; give `metric={name.lower()!r}`" if name.lower() in BUILT_IN else ""
        raise ConfigurationError(
            f"a limit must be on one of {', '.join(known)}, not on {name!r} as in {text!r}{hint}"
        )
    if relation != (">=" if figure.larger_is_better else "<="):
        better = "larger, so its limit is >=" if figure.larger_is_better else "smaller, so its limit is <="
        raise ConfigurationError(f"{figure.name} is better if it is {better}, not {relation} as in {text!r}")
    try:
        value = float(number)
    except ValueError:
        raise ConfigurationError(f"a limit must be {_FORM_SAID}, not {text!r}") from None
    factors = {name.lower(): factor for name, factor in figure.units.items()} or {"": 1.0}
    if unit.lower() not in factors:
        wanted = f"a unit, one of {', '.join(figure.units)}" if figure.units else "no unit"
        meant = number if figure.units else f"{value * _MEANT.get(unit.lower(), 1.0):g}"
        example = f"{figure.name}{relation}{meant}{figure.unit}"
        raise ConfigurationError(
            f"the limit on {figure.name} must have {wanted}, not {text!r}; try {example}"
        )
    bound = value * factors[unit.lower()]
    if figure.units is _SHARE and not 0 <= bound <= 1:
        raise ConfigurationError(
            f"{figure.name} is a share, so its limit must be from 0 to 1, or from 0% to 100%, not {text!r}"
        )
    return Limit(text.strip(), figure, bound)


def ruled_out(
    points: Sequence[Point], limits: Sequence[Limit], none: str = "no build that was tried has it"
) -> tuple[str, ...]:
    """Say which limits no point meets, and by how much; if each is met by some, what they miss together.

    Returns nothing if a point meets all limits. ``none`` says what builds the points are.
    """
    if not limits or not points or any(all(limit.met(point) for limit in limits) for point in points):
        return ()
    alone = [limit for limit in limits if not any(limit.met(point) for point in points)]
    if alone:
        return tuple(_misses(limit, points, none) for limit in alone)
    found = []
    for limit in limits:
        others = [each for each in limits if each is not limit]
        some = [point for point in points if all(each.met(point) for each in others)]
        if some:
            found.append(_misses(limit, some, "builds that meet the other limits miss it"))
    return tuple(found) or ("each limit is met by some builds, but any two of them by none",)


def _misses(limit: Limit, points: Sequence[Point], why: str) -> str:
    nearest = min(points, key=limit.excess)
    value = limit.figure.text(limit.figure.value(nearest))
    excess = limit.excess(nearest)
    off = f", {_times(1 + excess)} the limit" if excess > 1 else f", off by {100 * excess:.3g} % of it"
    off = off if limit.bound else ""
    return f"{limit.text}: {why}; the best is {value}{off}"


def _times(factor: float) -> str:
    return f"{factor:.2g} times" if factor < 100 else f"{factor:,.0f} times"


def costs(point: Point, metric: Metric) -> tuple[float, ...]:
    """Return what a point costs: latency, energy if known, LUTs, multipliers, memory blocks, error."""
    sizes = point.luts, point.multipliers, point.block_rams, point.large_rams
    return (point.latency_us, point.energy_nj or 0.0, *sizes, metric.cost(point.errors))


def pareto_front(points: Sequence[Point], metric: Metric) -> list[Point]:
    """Return the points of which no other on the same device is as good in all costs and better in one.

    Counts of different devices are not compared: their LUTs and multipliers differ. Of points with equal
    costs, the first stays.
    """
    found = []
    for device in dict.fromkeys(point.choice.device for point in points):
        mine = [point for point in points if point.choice.device == device]
        found += [mine[index] for index in unbeaten([costs(point, metric) for point in mine])]
    return found


def unbeaten(rows: Sequence[Sequence[float]]) -> list[int]:
    """Return the indices of the rows that no other beats: none is as low in all columns and lower in one.

    Of equal rows, the first stays.
    """
    table = np.array(rows)
    found = []
    for index, row in enumerate(table):
        no_worse = (table <= row).all(axis=1)
        better = no_worse & (table < row).any(axis=1)
        equal_before = no_worse[:index] & (table[:index] == row).all(axis=1)
        if not better.any() and not equal_before.any():
            found.append(index)
    return found


def rank(points: Sequence[Point], goal: str, metric: Metric) -> list[Point]:
    """Sort points: the best for a goal first, and of equal ones the best in the other costs."""

    def key(point: Point) -> tuple[float, ...]:
        first = {
            "latency": point.latency_us,
            "area": point.share,
            "accuracy": metric.cost(point.errors),
            "energy": point.energy_nj or 0.0,
        }
        return (first[goal], point.latency_us, point.share, metric.cost(point.errors), *costs(point, metric))

    return sorted(points, key=lambda point: (key(point), point.choice.key))
