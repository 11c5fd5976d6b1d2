"""The points that no other one beats."""

from collections.abc import Sequence

import numpy as np

from rtlstm.explore.metrics import Metric
from rtlstm.explore.records import Point

__all__ = ["costs", "pareto_front", "rank", "unbeaten"]


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
