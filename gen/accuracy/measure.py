"""Measures where the accuracy of a quantised network goes."""

from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import count
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rtlstm.gen.accuracy.mixed import MixedRun, float_layers, layers_of_build, reads_table, run_mixed
from rtlstm.gen.accuracy.records import (
    PARTS,
    ErrorReport,
    LayerErrors,
    Part,
    PartErrors,
    Saturations,
    Score,
    named_part,
)
from rtlstm.gen.accuracy.samples import Floats, Labels, Samples
from rtlstm.spec.errors import InputError
from rtlstm.spec.network import Network
from rtlstm.spec.numerics import SKIPS, LayerShape, QuantizedNetwork
from rtlstm.spec.progress import Progress, tell
from rtlstm.spec.record import few_digits

_POINTS = 240
"""Most points of an error over time."""
_PARTS, _LEAST_PARTS = 16, 4
"""Parts of a single sequence, and least number of sequences or parts that tell how errors differ."""


def measure_errors(
    network: QuantizedNetwork,
    samples: Samples,
    model: Network | None = None,
    labels: Labels | None = None,
    progress: Progress | None = None,
) -> ErrorReport:
    """Compare a quantised network with float, layer by layer, and with some of its parts in float.

    ``model`` is the network that it was quantised from; if None, float is the network of its rounded weights,
    and what rounding the weights costs is not included. Raises InputError if it was quantised from another
    model, or the float network's values overflow.
    """
    floats = layers_of_build(network) if model is None else float_layers(model, network)
    parts = _rounded_parts(network, model is not None)
    begin = _counter(progress, 2 + 2 * len(parts), "runs with parts in float")

    def run(exact: Collection[Part]) -> MixedRun:
        begin()
        with np.errstate(over="ignore", invalid="ignore"):
            found = run_mixed(network, floats, exact, samples)
        _check_finite(found)
        return found

    exact, fixed = run(PARTS), run(())
    errors = _Errors(network.shapes, exact, samples)
    split = {
        part: errors.change(run([other for other in PARTS if other != part]), run([part])) for part in parts
    }
    *layers, output = errors.describe(fixed, split)
    score = None if labels is None else labels.score(exact.y, fixed.y)
    return ErrorReport(
        model=model is not None,
        sequences=len(samples.lengths),
        steps=len(samples.x),
        total_steps=int(samples.lengths.sum()),
        steps_per_point=errors.steps_per_point,
        output=output,
        layers=tuple(layers),
        saturations=tuple(_saturations(network, samples, fixed)),
        widths=(),
        uncertainty=find_uncertainty(fixed.y - exact.y, samples),
        score=score,
        verdict=conclude(output, score, model is not None),
    )


def _counter(progress: Progress | None, total: int, what: str) -> Callable[[], None]:
    """Return what tells that a run begins."""
    done = count()

    def begin() -> None:
        tell(progress, what, next(done), total)

    return begin


def _rounded_parts(network: QuantizedNetwork, weights: bool) -> list[Part]:
    graphs = [network.numerics.cells[shape.cell] for shape in network.shapes]
    found: list[Part] = ["weights"] if weights else []
    found.append("activations")
    if any(reads_table(graph, network.numerics) for graph in graphs):
        found.append("tables")
    if any(graph.state is not None for graph in graphs):
        found.append("state")
    return found


def _check_finite(run: MixedRun) -> None:
    if not all(np.isfinite(layer.results).all() for layer in run.layers):
        raise InputError(
            "the float network's values must stay finite, but overflow on these inputs: its activations have "
            "no bounds; give shorter or smaller inputs"
        )


class _Change(NamedTuple):
    """Errors of each layer, then of the outputs."""

    alone: list[float]
    over_time: list[tuple[float, ...]]
    """Errors over time with the part alone rounded."""
    without: list[float]


class _Errors:
    """Errors against a float run: of each layer that has results, and of the outputs, which come last."""

    def __init__(self, shapes: Sequence[LayerShape], exact: MixedRun, samples: Samples) -> None:
        # Of several products of a layer, the last one gives results.
        self._shapes = {index: shape for index, shape in enumerate(shapes) if shape.kind not in SKIPS}
        self._exact, self._alive = self._values(exact), samples.alive
        self.steps_per_point = -(-len(samples.x) // _POINTS)

    def _values(self, run: MixedRun) -> list[Floats]:
        return [run.layers[index].results for index in self._shapes] + [run.y]

    def _of(self, run: MixedRun) -> Iterator[Floats]:
        for values, exact in zip(self._values(run), self._exact, strict=True):
            yield values - exact

    def change(self, alone: MixedRun, without: MixedRun) -> _Change:
        """Measure a run with a part alone rounded, and one with that part in float."""
        errors = list(self._of(alone))
        return _Change(
            alone=[self._rms(error) for error in errors],
            over_time=[self._over_time(error) for error in errors],
            without=[self._rms(error) for error in self._of(without)],
        )

    def _rms(self, error: Floats) -> float:
        return few_digits(np.sqrt(np.mean(error[self._alive] ** 2)))

    def describe(self, fixed: MixedRun, parts: dict[Part, _Change]) -> list[LayerErrors]:
        found = []
        names = [(shape.name, shape.kind) for shape in self._shapes.values()] + [("y", "output")]
        for index, error in enumerate(self._of(fixed)):
            signal, noise = self._rms(self._exact[index]), self._rms(error)
            split = [
                PartErrors(
                    part=part,
                    alone=change.alone[index],
                    without=change.without[index],
                    steps=change.over_time[index],
                )
                for part, change in parts.items()
            ]
            found.append(
                LayerErrors(
                    name=names[index][0],
                    kind=names[index][1],
                    rms_signal=signal,
                    rms_error=noise,
                    max_abs_error=few_digits(np.abs(error[self._alive]).max()),
                    snr_db=round(20 * float(np.log10(signal / noise)), 2) if signal and noise else None,
                    parts=tuple(split),
                    steps=self._over_time(error),
                )
            )
        return found

    def _over_time(self, error: Floats) -> tuple[float, ...]:
        """Return the error of each point of time: of the steps that are valid there."""
        found = []
        for first in range(0, len(error), self.steps_per_point):
            some = slice(first, first + self.steps_per_point)
            squares = error[some][self._alive[some]] ** 2
            # The given steps may be more than the longest sequence has.
            found.append(few_digits(np.sqrt(np.mean(squares))) if squares.size else 0.0)
        return tuple(found)


def _saturations(network: QuantizedNetwork, samples: Samples, run: MixedRun) -> Iterator[Saturations]:
    numerics, steps = network.numerics, int(samples.lengths.sum())
    x = numerics.scale_input(samples.x)
    given = [numerics.input.saturated(x[..., one]) for one in range(network.inputs)]
    yield _counted("", "input", np.array(given), steps)
    for shape, layer in zip(network.shapes, run.layers, strict=True):
        graph = numerics.cells[shape.cell]
        yield _counted(shape.name, "pre-activations", layer.row_saturations, steps)
        if graph.state is not None:
            yield _counted(shape.name, "state", layer.state_saturations, steps)
        yield _counted(shape.name, "results", layer.result_saturations, steps)


def _counted(name: str, quantity: str, counts: NDArray[np.int64], steps: int) -> Saturations:
    return Saturations.model_validate(
        {
            "name": name,
            "quantity": quantity,
            "values": steps * len(counts),
            "saturated": int(counts.sum()),
            "counts": tuple(counts.tolist()),
        }
    )


def find_uncertainty(error: Floats, samples: Samples) -> float | None:
    """Return the standard error of an rms error by its share, by leaving out one sequence after the other.

    A single sequence is taken in parts, as errors of steps side by side go together.
    """
    squares = np.mean(error**2, axis=2) * samples.alive
    parts = squares.sum(axis=0), samples.lengths
    if len(samples.lengths) == 1:
        some = np.array_split(squares[: samples.lengths[0], 0], _PARTS)
        parts = np.array([each.sum() for each in some]), np.array([len(each) for each in some])
    sums, steps = parts
    count = len(sums)
    if count < _LEAST_PARTS or not sums.sum() or (steps == steps.sum()).any():
        return None
    without = np.sqrt((sums.sum() - sums) / (steps.sum() - steps))
    deviation = np.sqrt((count - 1) / count * np.sum((without - without.mean()) ** 2))
    return few_digits(deviation / np.sqrt(sums.sum() / steps.sum()), 2)


# The verdict


def conclude(errors: LayerErrors, score: Score | None, model: bool) -> str:
    """Say how large the error is, and what costs most."""
    if not errors.rms_error:
        return "Fixed outputs equal float ones." + _changed(score)
    now = f"{errors.rms_error:.3g}"
    ratio = "" if errors.snr_db is None else f", {errors.snr_db:.3g} dB below the signal"
    against = "" if model else ", rounded weights not counted"
    text = f"Error of the outputs{against}: {now} rms{ratio}"
    part = named_part(errors)
    if part is not None:
        text += f", most of it from {part.part} ({part.without:.3g} with {part.part} in float)"
    elif errors.parts:
        text += ", from no part alone"
    return f"{text}.{_changed(score)}"


def _changed(score: Score | None) -> str:
    if score is None:
        return ""
    if score.changed is None:
        return f" Mean absolute error {score.float_score:.4g} in float, {score.fixed_score:.4g} fixed."
    same = " All labels are of one class, so this says little." if score.classes == 1 else ""
    return (
        f" {100 * score.fixed_score:.4g} % right, {100 * score.float_score:.4g} % in float; "
        f"{score.changed:,} of {score.labels:,} decisions change.{same}"
    )
