"""Layers that run at a slower rate than the input, and the core that takes several frames in one step.

A strided convolution gives one output for several steps that it reads. The layers of a model with strides are
read at their own rates first. At the end :func:`widen` makes layers of one rate of them: a step takes as many
frames as the last layer needs for one output, side by side, and what runs several times in that time becomes
a layer with several outputs side by side. This is exact: each value is the same sum.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rtlstm.spec.budget import check_size
from rtlstm.spec.errors import ModelError
from rtlstm.spec.network import Bidirectional, Dense, Layer, PseudoLayer, Rnn

Floats = NDArray[np.float64]
Columns = NDArray[np.int64]


@dataclass(frozen=True)
class Pace:
    """When values come: number ``j`` with the model's input frame ``every * j + first``."""

    every: int = 1
    first: int = 0

    def strided(self, stride: int, phase: int) -> "Pace":
        """The pace of each ``stride``-th value, from number ``phase`` on."""
        return Pace(self.every * stride, self.first + self.every * phase)

    def numbers(self, of: "Pace", frames: int) -> list[int]:
        """The numbers that values of this pace have among those of another, in ``frames`` frames."""
        count = frames // self.every
        return [(self.every * value + self.first - of.first) // of.every for value in range(count)]


EACH_STEP: Final = Pace()


@dataclass(frozen=True)
class CausalTaps:
    """Which steps a convolution reads: of each ``stride`` steps number ``phase``, and earlier ones.

    ``extra`` is how many values more than steps / stride it gives, at the end.
    """

    phase: int
    extra: int

    @classmethod
    def of(cls, history: int, stride: int, front: int, back: int) -> "CausalTaps | None":
        """That of a convolution whose first tap is ``history`` steps before its last, with zeros around.

        None if it is not causal: if its first value would need more steps than the first ``stride``, begins
        before the first step, or if values are missing at the end.
        """
        if stride < 1:
            return None
        phase, extra = history - front, (front + back - history - 1) // stride + 1
        return cls(phase, extra) if 0 <= phase < stride and extra >= 0 else None

    @staticmethod
    def zeros(history: int, stride: int) -> str:
        """The zeros in front with which a convolution is causal, in words."""
        least = max(0, history - stride + 1)
        return str(history) if least == history else f"{least} to {history}"


LayerState = tuple[Floats, Floats | None]
"""h and c in which a direction of a layer begins, ``(units,)``; c is None for zeros, or without c."""


@dataclass(frozen=True, eq=False)
class Placed:
    """How a layer stands in a model: its pace and, if it is a line of delays, how many steps back it goes.

    ``begins`` has the state of each direction in which the layer begins, if that was learned.
    """

    pace: Pace = EACH_STEP
    delays: int = 0
    begins: tuple[LayerState, ...] = ()


def widen(layers: Sequence[Layer], placed: Sequence[Placed], frames: int) -> tuple[Layer, ...]:
    """Return layers that compute the same of ``frames`` frames at once, all at the pace of the last layer.

    Their input has the frames side by side, the oldest first.

    Raises
    ------
    ModelError
        If a recurrent layer runs more than once in that time, because a stride is behind it.
    """
    if frames == 1:
        return tuple(layers)
    return _Widener(layers, placed, frames).widened()


@dataclass(frozen=True)
class _Source:
    """What a layer gives in a step: the columns of each of its values, ``(values, features)``, of ``width``.

    ``position`` counts the new layers up to it; 0 is the input.
    """

    pace: Pace
    position: int
    columns: Columns
    width: int


class _Widener:
    """Goes through the layers once; ``sources`` has the input and what each layer before gives."""

    def __init__(self, layers: Sequence[Layer], placed: Sequence[Placed], frames: int) -> None:
        self.layers, self.placed, self.frames = layers, placed, frames
        width = frames * layers[0].inputs
        check_size((width,), f"an input of {frames} frames a step")
        self.sources = [_Source(EACH_STEP, 0, np.arange(width).reshape(frames, -1), width)]
        self.made: list[Layer] = []
        self.skips = any(isinstance(layer, Dense) and layer.skip is not None for layer in layers)

    def widened(self) -> tuple[Layer, ...]:
        for number, (layer, its) in enumerate(zip(self.layers, self.placed, strict=True)):
            if its.delays and isinstance(layer, Rnn):
                self._delays(layer, its, number)
            elif isinstance(layer, Dense):
                self._dense(layer, its.pace, number)
            else:
                self._recurrent(layer, its.pace)
        return tuple(self.made)

    def _add(self, layer: Layer, pace: Pace, columns: Columns) -> None:
        self.made.append(layer)
        self.sources.append(_Source(pace, len(self.made), columns, layer.outputs))

    def _spread(self, weight: Floats, pace: Pace, source: _Source, name: str) -> Floats:
        """Weights of one value as those of all values of a step, ``(values * outputs, width)``."""
        numbers, outputs = pace.numbers(source.pace, self.frames), len(weight)
        check_size((len(numbers) * outputs, source.width), f"layer {name!r} of {self.frames} frames a step")
        wide = np.zeros((len(numbers), outputs, source.width))
        for value, number in enumerate(numbers):
            wide[value][:, source.columns[number]] = weight
        return wide.reshape(-1, source.width)

    def _dense(self, layer: Dense, pace: Pace, number: int) -> None:
        count = self.frames // pace.every
        update: dict[str, Any] = {
            "weight": self._spread(layer.weight, pace, self.sources[-1], layer.name),
            "bias": np.tile(layer.bias, count),
        }
        if layer.skip is not None:
            source = self.sources[number + 1 - layer.skips]
            update["skip"] = self._spread(layer.skip, pace, source, layer.name)
            update["skips"] = len(self.made) + 1 - source.position
        self._add(
            layer.replace(**update), pace, np.arange(count * layer.outputs).reshape(count, layer.outputs)
        )

    def _delays(self, line: Rnn, its: Placed, number: int) -> None:
        """A line of delays that takes several values at once; a copy if a step's own are all it gives."""
        features, count = line.outputs // (its.delays + 1), self.frames // its.pace.every
        weight = self._spread(line.w_ih[:features], its.pace, self.sources[-1], line.name)
        bias = np.tile(line.bias[:features], count)
        oldest = min(self._read(number), default=0)
        if oldest >= its.delays:
            self._copy(line, its, weight, bias)
            return
        # The newest value is the line's first, as in a line that takes one at a time.
        size = (count - oldest + its.delays) * features
        check_size((size, size), f"layer {line.name!r} of {self.frames} frames a step")
        newest_first = np.arange(count * features).reshape(count, features)[::-1].reshape(-1)
        w_ih, full = np.zeros((size, weight.shape[1])), np.zeros(size)
        w_ih[: len(newest_first)], full[: len(newest_first)] = weight[newest_first], bias[newest_first]
        window = np.arange((its.delays + 1) * features)
        columns = np.array([(count - 1 - value) * features + window for value in range(count)])
        w_hh = np.eye(size, k=-count * features)
        self._add(line.replace(w_ih=w_ih, w_hh=w_hh, bias=full), its.pace, columns)

    def _copy(self, line: Rnn, its: Placed, weight: Floats, bias: Floats) -> None:
        """Windows that lie within a step; no layer if these are values of the layer before as they are."""
        features, source = line.outputs // (its.delays + 1), self.sources[-1]
        numbers = its.pace.numbers(source.pace, self.frames)
        values: Columns = np.arange(len(weight)).reshape(-1, features)
        plain = np.array_equal(line.w_ih[:features], np.eye(features)) and not bias.any()
        dropped = plain and not line.input_relu and not self.skips
        if dropped:
            values = source.columns[numbers]
        # Windows of the first values would begin in the step before: nothing reads them.
        at = np.arange(len(values))[:, None] - np.arange(its.delays + 1)
        columns = values[np.maximum(at, 0)].reshape(len(values), -1)
        if dropped:
            self.sources.append(_Source(its.pace, source.position, columns, source.width))
            return
        self._add(
            Dense(name=line.name, weight=weight, bias=bias, input_relu=line.input_relu), its.pace, columns
        )

    def _read(self, number: int) -> Iterator[int]:
        """The values of a layer that others read, in a step."""
        pace = self.placed[number].pace
        for reader, layer in enumerate(self.layers):
            skipped = isinstance(layer, Dense) and layer.skip is not None and reader - layer.skips == number
            if reader == number + 1 or skipped:
                yield from self.placed[reader].pace.numbers(pace, self.frames)

    def _recurrent(self, layer: PseudoLayer | Bidirectional, pace: Pace) -> None:
        count = self.frames // pace.every
        if count > 1:
            raise ModelError(
                f"layer {layer.name!r} is recurrent and stands before a stride of {count}: the core computes "
                "a recurrent layer once a step; end the network before the stride, with `output`, "
                "and make another build of the rest"
            )
        source = self.sources[-1]
        if isinstance(layer, Bidirectional):
            update: dict[str, Any] = {
                name: part.replace(w_ih=self._spread(part.w_ih, pace, source, part.name))
                for name, part in (("forward", layer.forward), ("backward", layer.backward))
            }
        else:
            update = {"w_ih": self._spread(layer.w_ih, pace, source, layer.name)}
        self._add(layer.replace(**update), pace, np.arange(layer.outputs)[None])
