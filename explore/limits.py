"""Figures of a point, and limits that a user sets for them, such as ``latency<=2us``."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from rtlstm.explore.metrics import BUILT_IN, Metric
from rtlstm.explore.records import Point
from rtlstm.spec.errors import ConfigurationError

__all__ = ["Figure", "Limit", "figures", "parse_limit", "ruled_out"]

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
            _SHARE if metric.is_share else {},
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

    Raises
    ------
    ConfigurationError
        If it has another form, there is no such figure, its unit is missing or another's, or the limit is on
        the side that is better.
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
