"""Inputs and labels that an accuracy is measured on."""

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rtlstm.gen.accuracy.records import Score
from rtlstm.gen.quantise.calibration import Sequences, check_sequences, check_state
from rtlstm.host.raw_values import as_array
from rtlstm.host.state import StateFormats
from rtlstm.spec.errors import InputError
from rtlstm.spec.fixed import IntArray
from rtlstm.spec.layout import Pad, Window, padded_behind, padded_in_front
from rtlstm.spec.numerics import QuantizedNetwork
from rtlstm.spec.record import few_digits

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Samples(Sequences):
    """Checked inputs, and how they were given; make them with :meth:`of`."""

    batched: bool = True
    batch_first: bool = False
    front: bool = False
    """Whether the padding of the data that are given stands in front."""

    @classmethod
    def of(
        cls,
        x: ArrayLike,
        inputs: int,
        lengths: ArrayLike | None = None,
        batch_first: bool = False,
        frames: int = 1,
        pad: Pad = "back",
        window: Window = (0, 0),
    ) -> Self:
        """Check inputs.

        ``x`` has floats, ``(T, inputs)`` or ``(T, N, inputs)``; ``(N, T, inputs)`` if ``batch_first``.
        ``lengths`` are the valid steps of each sequence, ``(N,)``; all if None. There are ``frames`` of the
        model in a step of so many inputs; ``x`` and lengths may be in frames. ``x`` may be in steps of the
        network's ``window``. ``pad`` says where the padding of sequences shorter than T stands, as for a
        build's ``run``. Raises InputError if they are not finite numbers of such a shape, or lengths do not
        fit them.
        """
        given = check_sequences("x", x, inputs, lengths, batch_first, frames, pad, window)
        floats, valid, batched, front = given
        return cls(floats, valid, None, batched, batched and batch_first, front)

    def begin_in(self, network: QuantizedNetwork, state: Any) -> Self:
        """Return the same samples that begin in a state as a build's ``run`` takes it, real values.

        Raises InputError if it does not fit the network and the samples.
        """
        formats = StateFormats(network.shapes, network.numerics)
        count = len(self.lengths) if self.batched else None
        return replace(self, state=check_state("x", (formats.sizes, formats.lstm_sizes), state, count))

    def warn_saturations(self, network: QuantizedNetwork) -> None:
        """Warn of states in which the sequences begin that are beyond their formats."""
        if self.state is None:
            return
        formats, count = StateFormats(network.shapes, network.numerics), len(self.lengths)
        *_, saturations = formats.parse(tuple(map(tuple, self.state)), count, raw=False)
        formats.warn_saturations(("h_0", "c_0"), saturations, count)

    def as_given(self, values: Floats) -> Floats:
        """Return values of each step, ``(T, N, ...)``, with the axes and the padding of the data given."""
        values = padded_in_front(values, self.lengths) if self.front else values
        return values.swapaxes(0, 1) if self.batch_first else values


@dataclass(frozen=True)
class Labels:
    """Checked labels of samples; make them with :meth:`of`."""

    values: NDArray[Any]
    """Classes, ``(n,)``, or targets, ``(n, outputs)``."""
    chosen: tuple[IntArray, IntArray]
    """Step and sequence of each of the n outputs that have a label."""
    classes: bool
    threshold: float
    """Above it, a single output means class 1."""

    @classmethod
    def of(cls, labels: ArrayLike, samples: Samples, outputs: int, threshold: float) -> Self:
        """Check labels.

        Labels that are integers are classes: of each sequence's last valid step, ``(N,)``, or of each step,
        ``(T, N)``, ``(N, T)`` if the batch is first. Floats are targets, with a last axis of ``outputs``
        values, which may be left out if there is one. Inputs without a batch have labels without N. Raises
        InputError if they have another shape, are not finite, or there is no such class.
        """
        array = as_array("labels", labels)
        if array.dtype.kind not in "iubf":
            raise InputError(
                "labels must be integers, which are classes, or floats, which are targets, not "
                f"{array.dtype}; convert them"
            )
        classes = array.dtype.kind != "f"
        values, chosen = _placed(array, samples, None if classes else outputs)
        if classes:
            most = max(1, outputs - 1)
            bad = (values < 0) | (values > most)
            if bad.any():
                raise InputError(
                    f"labels must be classes within 0 to {most}, of {outputs} "
                    f"output{'s' if outputs > 1 else ''}, but {_first(values, bad, chosen)}; targets are "
                    "floats"
                )
        elif not np.isfinite(values).all():
            raise InputError(f"labels must be finite, but {_first(values, ~np.isfinite(values), chosen)}")
        return cls(values, chosen, classes, threshold)

    def score(self, exact: Floats, fixed: Floats) -> Score:
        """Compare float and fixed outputs, ``(T, N, outputs)``, with the labels."""
        some = [outputs[self.chosen] for outputs in (exact, fixed)]
        if self.classes:
            decisions = [self._decide(outputs) for outputs in some]
            right = [float(np.mean(each == self.values)) for each in decisions]
            changed = int(np.count_nonzero(decisions[0] != decisions[1]))
            classes = len(np.unique(self.values))
            return _score("accuracy", self.values.size, right, changed, classes)
        errors = [float(np.mean(np.abs(outputs - self.values))) for outputs in some]
        return _score("mean absolute error", self.values.size, errors)

    def _decide(self, outputs: Floats) -> IntArray:
        if outputs.shape[1] == 1:
            return (outputs[:, 0] > self.threshold).astype(np.int64)
        decisions: IntArray = outputs.argmax(axis=1).astype(np.int64)
        return decisions


def _first(values: NDArray[Any], bad: NDArray[np.bool_], chosen: tuple[IntArray, IntArray]) -> str:
    """Say where the first bad label is."""
    number = int(np.nonzero(bad)[0][0])
    step, sequence = (int(axis[number]) for axis in chosen)
    return f"that of step {step}, sequence {sequence} is {values[bad][0]}"


def _score(
    measure: str, labels: int, both: list[float], changed: int | None = None, classes: int | None = None
) -> Score:
    exact, fixed = (few_digits(value, 6) for value in both)
    return Score.model_validate(
        {
            "measure": measure,
            "labels": labels,
            "float_score": exact,
            "fixed_score": fixed,
            "changed": changed,
            "classes": classes,
        }
    )


def _placed(
    array: NDArray[Any], samples: Samples, outputs: int | None
) -> tuple[NDArray[Any], tuple[IntArray, IntArray]]:
    """Return labels of valid steps, and their steps and sequences; ``outputs`` is None for classes."""
    steps, count, _ = samples.x.shape
    sequences = (count,) if samples.batched else ()
    each = (count, steps) if samples.batch_first else (steps, *sequences)
    ends = () if outputs is None else (outputs,)
    wanted = [(*each, *ends), (*sequences, *ends)]
    if outputs == 1:
        wanted += [each, sequences]
    if array.shape not in wanted:
        shapes = " or ".join(str(shape) for shape in dict.fromkeys(wanted))
        raise InputError(
            f"labels must be of each step or of each sequence's last one, {shapes} for these inputs, not "
            f"{array.shape}{_other_kind(array, outputs)}"
        )
    number = wanted.index(array.shape)
    last = np.arange(count)
    if number % 2:
        return array.reshape(count, *ends), (samples.lengths - 1, last)
    values = array.reshape((*each, *ends) if samples.batched else (steps, 1, *ends))
    if samples.batch_first:
        values = values.swapaxes(0, 1)
    if samples.front:
        values = padded_behind(values, samples.lengths)
    where = np.nonzero(samples.alive)
    return values[where], (where[0], where[1])


def _other_kind(array: NDArray[Any], outputs: int | None) -> str:
    """Say how labels are read, for those that were meant otherwise."""
    if outputs is None:
        return ": integers are classes; targets are floats"
    whole = bool(np.all(np.equal(np.mod(array, 1), 0))) if array.size else False
    return ": floats are targets; classes are integers" if whole else ""
