"""A tensor of a model as layers and an affine function of the last layer's output.

Scales, constants, selected features, sums and concatenations are arithmetic on that affine function. The next
layer with weights absorbs it. Only if none follows does it become a dense layer of its own. So batch norm
folds into a neighbour, and the sum of a bidirectional layer's two halves becomes its merge mode. The function
may have a second term, of an earlier layer's output (a residual): then it becomes a dense layer with a skip.

Layers may run at a slower rate than the input. A strided convolution gives one output for several steps that
it reads. At the end :func:`widen` makes layers of one rate of them: a step takes as many frames as the last
layer needs for one output, side by side, and what runs several times in that time becomes a layer with
several outputs side by side. This is exact: each value is the same sum.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rtlstm.gen.frontends.arrays import Floats, fresh
from rtlstm.gen.frontends.reading import InitialState
from rtlstm.spec.activations.functions import IDENTITY, RELU, ActivationFunction
from rtlstm.spec.archives import check_size
from rtlstm.spec.errors import ModelError
from rtlstm.spec.layout import OutputPart
from rtlstm.spec.network import (
    Bidirectional,
    Dense,
    Gru,
    Layer,
    Lstm,
    Network,
    Norm,
    PseudoLayer,
    Read,
    Rnn,
    StatelessLayer,
    read_fields,
)

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

    Raises ModelError if a recurrent layer runs more than once in that time, because a stride is behind it.
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
        self.skips = any(len(layer.sources) > 1 for layer in layers)

    def widened(self) -> tuple[Layer, ...]:
        for number, (layer, its) in enumerate(zip(self.layers, self.placed, strict=True)):
            if its.delays and isinstance(layer, Rnn):
                self._delays(layer, its, number)
            elif isinstance(layer, Dense):
                self._dense(layer, its.pace, number)
            elif isinstance(layer, Norm):
                self._norm(layer, its.pace)
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
        weights, reads = [], []
        for read, matrix in layer.products:
            source = self.sources[number + 1 - read.back]
            weights.append(self._spread(matrix, pace, source, layer.name))
            reads.append(Read(back=len(self.made) + 1 - source.position, width=source.width, relu=read.relu))
        wide = layer.replace(
            weight=np.concatenate(weights, axis=1), bias=np.tile(layer.bias, count), **read_fields(reads)
        )
        self._add(wide, pace, np.arange(count * layer.outputs).reshape(count, layer.outputs))

    def _norm(self, layer: Norm, pace: Pace) -> None:
        count, source = self.frames // pace.every, self.sources[-1]
        if count > 1:
            raise ModelError(
                f"layer {layer.name!r} is a norm and stands before a stride of {count}: the core computes a "
                "norm once a step; end the network before the stride, with `output`, and make another build "
                "of the rest"
            )
        read = source.columns[pace.numbers(source.pace, self.frames)[0]]
        if not np.array_equal(read, np.arange(source.width)):
            weight = self._spread(np.eye(layer.values), pace, source, layer.name)
            taken = Dense(name=f"{layer.name} input", weight=weight, bias=np.zeros(layer.values))
            self._add(taken, pace, np.arange(layer.values)[None])
        self._add(layer, pace, np.arange(layer.values)[None])

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
            if any(reader - read.back == number for read in layer.sources):
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


_ONE, _ZERO = np.array(1.0), np.array(0.0)


@dataclass(frozen=True, eq=False)
class Skip:
    """``matrix @ relu?(output of layer number source - 1)``; of the model's input if ``source`` is 0."""

    source: int
    relu: bool
    matrix: Floats

    def times(self, factor: Floats) -> "Skip":
        """Return the term multiplied from the left by a matrix, or by one factor."""
        return replace(self, matrix=factor @ self.matrix if factor.ndim else factor * self.matrix)


@dataclass(frozen=True, eq=False)
class Flow:
    """``matrix @ relu?(output of the last layer) + bias``; of the model's input if there is no layer.

    ``matrix`` is ``(outputs, width)``, or a single factor; ``bias`` ``(outputs,)``, or a single addend.
    ``width`` is None until a layer shows how wide the input is. ``dense`` names the fully connected layer
    that the matrix is; it is empty for lighter arithmetic. ``skip`` is what is added of an earlier layer's
    output. ``pace`` says which steps have a value, if strides leave some out, and ``placed`` how the layers
    stand in the model. In methods ``where`` is how messages name the operator at hand.
    """

    layers: tuple[Layer, ...] = ()
    width: int | None = None
    relu: bool = False
    matrix: Floats = field(default_factory=lambda: _ONE)
    bias: Floats = field(default_factory=lambda: _ZERO)
    dense: str = ""
    skip: Skip | None = None
    pace: Pace = EACH_STEP
    placed: tuple[Placed, ...] = ()

    @property
    def outputs(self) -> int | None:
        """Number of features; None if unknown."""
        return int(self.matrix.shape[0]) if self.matrix.ndim else self.width

    @property
    def plain(self) -> bool:
        """Whether it is the unchanged output of its last layer, with or without a ReLU."""
        bare = not self.dense and self.skip is None and self.pace == self._layers_pace
        return bare and self.matrix.ndim == 0 and self.matrix == 1.0 and not np.any(self.bias)

    @property
    def _layers_pace(self) -> Pace:
        """The pace of the last layer, or of the input."""
        return self.placed[-1].pace if self.placed else EACH_STEP

    @property
    def before(self) -> bool:
        """Whether it is before all recurrent layers."""
        return all(isinstance(layer, StatelessLayer) for layer in self.layers)

    def same_base(self, other: "Flow") -> bool:
        """Whether both are functions of the same values."""
        alike = self.relu == other.relu and self.pace == other.pace
        return alike and len(self.layers) == len(other.layers) and self._begins(other)

    @property
    def reads_final_states(self) -> bool:
        """Whether its last layer has a backward direction that is reversed."""
        last = self.layers[-1] if self.layers else None
        return isinstance(last, Bidirectional) and last.backward.reversed_output

    def final_states(self) -> "Flow":
        """The output of the last layer with its backward direction reversed, if it has two.

        The last step then has the final states of both.
        """
        both = self.layers[-1]
        if not isinstance(both, Bidirectional) or self.reads_final_states:
            return self
        # Weights are not copied, so their identity shows that it is the same layer.
        backward = both.backward.model_copy(update={"reversed_output": True})
        reversed_output = both.model_copy(update={"backward": backward})
        return replace(self, layers=(*self.layers[:-1], reversed_output))

    def reads_alone(self, *, backward: bool) -> bool:
        """Whether it reads one direction of a last layer that has two."""
        both = self.layers[-1] if self.layers else None
        if not isinstance(both, Bidirectional) or both.merge != "concat" or self.matrix.ndim == 0:
            return False
        half = both.forward.outputs
        return self.skip is None and not np.any(self.matrix[:, :half] if backward else self.matrix[:, half:])

    def _begins(self, other: "Flow") -> bool:
        """Whether the other flow's layers begin with this one's."""
        return all(mine is theirs for mine, theirs in zip(self.layers, other.layers, strict=False))

    def features(self, where: str) -> int:
        """Return the number of features; a ModelError that names ``where`` if no layer has shown it."""
        if self.outputs is None:
            raise ModelError(f"{where} comes before any layer that shows how many features there are")
        return self.outputs

    def _full(self, where: str) -> tuple[Floats, Floats]:
        """Return matrix and bias as full arrays."""
        outputs = self.features(where)
        if self.matrix.ndim == 0:
            check_size((outputs, outputs), f"{where}: a matrix")
        matrix = self.matrix if self.matrix.ndim else np.eye(outputs) * self.matrix
        return matrix, np.broadcast_to(self.bias, (outputs,))

    # Arithmetic

    def scale(self, factor: Floats, where: str) -> "Flow":
        """Multiply by one factor, or by one for each feature."""
        if factor.ndim == 0:
            skip = self.skip and self.skip.times(factor)
            return replace(self, matrix=self.matrix * factor, bias=self.bias * factor, skip=skip)
        matrix, bias = self._known(len(factor), where)._full(where)
        return replace(
            self._known(len(factor), where),
            matrix=factor[:, None] * matrix,
            bias=factor * bias,
            skip=self.skip and replace(self.skip, matrix=factor[:, None] * self.skip.matrix),
        )

    def shift(self, addend: Floats, where: str) -> "Flow":
        """Add one constant, or one for each feature."""
        flow = self if addend.ndim == 0 else self._known(len(addend), where)
        return replace(flow, bias=flow.bias + addend)

    def pick(self, features: Sequence[int], where: str) -> "Flow":
        """Keep some of the features, in the given order."""
        matrix, bias = self._full(where)
        chosen = list(features)
        skip = self.skip and replace(self.skip, matrix=self.skip.matrix[chosen])
        return replace(self, matrix=matrix[chosen], bias=bias[chosen], skip=skip)

    def plus(self, other: "Flow", where: str) -> "Flow":
        """Add another function of the same values, or of an earlier layer's."""
        mine, theirs = _align([self, other], where)
        (a, b), (c, d) = mine._full(where), theirs._full(where)
        if a.shape != c.shape:
            raise ModelError(f"{where} must add as many features as it has, but adds {len(a)} and {len(c)}")
        skip = mine.skip
        if skip is not None and theirs.skip is not None:
            skip = replace(skip, matrix=skip.matrix + theirs.skip.matrix)
        return replace(mine, matrix=a + c, bias=b + d, dense=mine.dense or theirs.dense, skip=skip)

    def join(self, others: Sequence["Flow"], where: str, *, gather: bool = True) -> "Flow":
        """Append the features of other functions of the same values, or of earlier layers'.

        Without ``gather`` no layer is added: they may be of one earlier layer alone.
        """
        parts = _align([self, *others], where, gather=gather)
        full = [part._full(where) for part in parts]
        names = [part.dense for part in parts if part.dense]
        skips = [part.skip.matrix for part in parts if part.skip is not None]
        return replace(
            parts[0],
            matrix=np.concatenate([matrix for matrix, _ in full]),
            bias=np.concatenate([bias for _, bias in full]),
            dense=names[0] if names else "",
            skip=parts[0].skip and replace(parts[0].skip, matrix=np.concatenate(skips)),
        )

    def _over(self, base: "Flow", where: str) -> "Flow":
        """Return the same values as a function of what ``base`` reads, or as a skip from an earlier layer."""
        if self.same_base(base):
            return self
        if self.pace != base.pace:
            raise ModelError(
                f"{where} needs two results of different steps at once, because strides left out other "
                "steps of one than of the other; give both the same strides and the same zeros in front"
            )
        if self._ends_like(base):
            return replace(self, layers=base.layers)
        source = self._source(base)
        if source is not None and source.same_base(base):
            return source
        if source is not None and looks_back(base.layers):
            raise ModelError(
                f"{where} needs two results of different layers at once, which a network with a "
                "bidirectional or reverse layer cannot have: end the network before it, and add or join "
                "on the host"
            )
        if source is None or len(source.layers) == len(base.layers):
            raise ModelError(
                f"{where} needs two results of different layers at once, but every layer reads the one "
                "before it, and a dense layer one earlier, too: results of layers that stand side by side "
                "need builds of their own, joined on the host"
            )
        if source.outputs is None:
            source = replace(source, width=base.layers[0].inputs)
        matrix, bias = source._full(where)
        skip = Skip(len(source.layers), source.relu, matrix)
        check_size((len(matrix), base.width or 0), f"{where}: a matrix")
        none = np.zeros((len(matrix), base.width or 0))
        return replace(base, matrix=none, bias=bias, dense=source.dense, skip=skip)

    def _ends_like(self, base: "Flow") -> bool:
        """Whether ``base`` reads final states, and this function the same, or forward results alone."""
        if not self.layers or len(self.layers) != len(base.layers) or self.relu != base.relu:
            return False
        mine, theirs = self.layers[-1], base.layers[-1]
        if not isinstance(mine, Bidirectional) or not isinstance(theirs, Bidirectional):
            return False
        below = zip(self.layers[:-1], base.layers[:-1], strict=True)
        same = mine.forward is theirs.forward and mine.backward.w_hh is theirs.backward.w_hh
        alike = same and all(one is other for one, other in below)
        final = mine.backward.reversed_output or self.reads_alone(backward=False)
        return alike and theirs.backward.reversed_output and final

    def _source(self, base: "Flow") -> "Flow | None":
        """Return the same values as a function of one of ``base``'s layers, if possible."""
        count = len(self.layers)
        if count >= len(base.layers) or not self._begins(base):
            return None
        layer = base.layers[count]
        if isinstance(layer, Dense) and layer.activation == "identity" and self.matrix.ndim:
            through = self._through(layer, base)
            if through is not None:
                return through
        return self if self.skip is None else None

    def _through(self, layer: Dense, base: "Flow") -> "Flow | None":
        """Return the same values as a multiple of ``layer``, the next one of ``base``, if possible."""
        count = len(self.layers) + 1
        if base.placed[count - 1].pace != self.pace:
            return None
        mine = [self.matrix] if self.skip is None else [self.matrix, self.skip.matrix]
        pairs = [(matrix, weight) for matrix, (_, weight) in zip(mine, layer.products, strict=False)]
        shapes = all(matrix.shape == weight.shape for matrix, weight in pairs)
        if not shapes or layer.sources != self._reads():
            return None
        weight = layer.products[0][1]
        largest = np.unravel_index(np.abs(weight).argmax(), weight.shape)
        factor = self.matrix[largest] / (weight[largest] or 1.0)
        if not all(np.allclose(factor * weight, matrix, rtol=1e-12, atol=0.0) for matrix, weight in pairs):
            return None
        return Flow(
            layers=base.layers[:count],
            width=layer.outputs,
            matrix=factor,
            bias=self.bias - factor * layer.bias,
            pace=self.pace,
            placed=base.placed[:count],
        )

    def _known(self, outputs: int, where: str) -> "Flow":
        """Return the flow with ``outputs`` features, which sets the width of the input if it was unknown."""
        if self.outputs is None:
            return replace(self, width=outputs)
        if self.outputs != outputs:
            before = self.dense or (self.layers[-1].name if self.layers else "the input")
            raise ModelError(f"{where} reads {outputs} values, but {before!r} before it gives {self.outputs}")
        return self

    # Layers

    def linear(self, name: str, where: str, weight: Floats, bias: Floats) -> "Flow":
        """Add a fully connected layer with ``weight`` of shape ``(outputs, inputs)``."""
        flow = self._settled() if self.dense else self._merged()
        flow = flow._known(weight.shape[1], where)
        matrix, added = _compose(weight, flow.matrix, flow.bias, where)
        skip = flow.skip and flow.skip.times(weight)
        return replace(flow, matrix=matrix, bias=bias + added, dense=name, skip=skip)

    def activate(self, function: ActivationFunction, name: str, where: str) -> "Flow":
        """Apply a function to every feature."""
        flow = self._merged()
        if flow.plain and function == RELU:
            return replace(flow, relu=True)
        matrix, bias = flow._full(where)
        return flow._add_dense(flow.dense or name, matrix, bias, function)

    def recurrent(self, layer: PseudoLayer | Bidirectional, where: str) -> "Flow":
        """Add a recurrent layer, whose input weights absorb the affine function."""
        flow = self._settled() if self.dense or self.skip else self._merged()
        flow = flow._known(layer.inputs, where)
        if looks_back([layer]) and any(len(before.sources) > 1 for before in flow.layers):
            raise ModelError(
                f"{where} goes through sequences from their end, behind a layer that reads two layers' "
                "results (a residual), which has to go step by step; make two builds of them"
            )
        if isinstance(layer, Bidirectional):
            layer = layer.model_copy(
                update={
                    "forward": flow._absorb(layer.forward, where),
                    "backward": flow._absorb(layer.backward, where),
                }
            )
        else:
            layer = flow._absorb(layer, where)
        layer = layer.model_copy(update={"name": self._unique(layer.name)})
        return flow._with_layer(layer)

    def norm(self, layer: Norm, where: str) -> "Flow":
        """Add a norm, which reads the last layer's output as it is."""
        flow = self._known(layer.values, where).settled(where)
        return flow._with_layer(layer.replace(name=flow._unique(layer.name)))

    def strided(self, stride: int, phase: int) -> "Flow":
        """Return the values of each ``stride``-th step, from step ``phase`` on."""
        return replace(self, pace=self.pace.strided(stride, phase))

    def convolve(
        self, name: str, where: str, weight: Floats, bias: Floats, dilation: int, stride: int, phase: int
    ) -> "Flow":
        """Add a convolution along the steps with ``weight`` of shape ``(outputs, inputs, taps)``.

        The last tap reads step ``phase`` of each ``stride`` steps, the others those before it, ``dilation``
        steps apart; zeros before the first step.
        """
        outputs, inputs, taps = weight.shape
        history = dilation * (taps - 1)
        if not history:
            return self.strided(stride, phase).linear(name, where, weight[:, :, 0], bias)
        flow = self.delays(history, inputs, name, where).strided(stride, phase)
        check_size((outputs, history + 1, inputs), f"{where}: its weights with zeros between")
        wide = np.zeros((outputs, history + 1, inputs))
        wide[:, history::-dilation] = weight.transpose(0, 2, 1)
        return flow.linear(name, where, wide.reshape(outputs, -1), bias)

    def delays(self, steps: int, features: int, name: str, where: str) -> "Flow":
        """Return the features of this step and of ``steps`` before it, the newest first; zeros at the start.

        It is a plain RNN with weights of ones and zeros, whose state is a delay line.
        """
        size = features * (steps + 1)
        check_size((size, size), f"{where}: a line of delays")
        line = Rnn(
            name=f"{name}_delays",
            w_ih=np.eye(size, features),
            w_hh=np.eye(size, k=-features),
            bias=np.zeros(size),
            activation=IDENTITY,
        )
        flow = self.recurrent(line, where)
        return replace(flow, placed=(*flow.placed[:-1], Placed(flow.pace, steps)))

    def beginning(self, states: Sequence[tuple[LayerState, ...]]) -> "Flow":
        """Return the flow with its last layers beginning in these states, each direction's own."""
        count = len(self.placed) - len(states)
        pairs = zip(self.placed[count:], states, strict=True)
        return replace(
            self, placed=(*self.placed[:count], *(replace(its, begins=each) for its, each in pairs))
        )

    def initial_state(self, network: Network) -> InitialState | None:
        """Return the state in which this flow's network begins; None if its layers have learned none."""
        # Names are unique within a flow, and a network has its layers by the same names.
        pairs = zip(self.layers, self.placed, strict=True)
        learned = {layer.name: its.begins for layer, its in pairs if its.begins}
        h: list[Floats] = []
        c: list[Floats] = []
        for layer in network.layers:
            if isinstance(layer, StatelessLayer):
                continue
            both = (layer.forward, layer.backward) if isinstance(layer, Bidirectional) else (layer,)
            zeros = [(np.zeros(one.outputs), None) for one in both]
            for one, (its_h, its_c) in zip(both, learned.get(layer.name, zeros), strict=True):
                h.append(its_h)
                if isinstance(one, Lstm):
                    c.append(np.zeros(one.units) if its_c is None else its_c)
        return (tuple(h), tuple(c)) if learned else None

    def network(self, name: str, parts: tuple[OutputPart, ...] = ()) -> Network:
        """Return the network that computes this flow; with strides, a step of it takes several frames."""
        flow = self.settled("the end of the model")
        frames = flow.pace.every
        layers = widen(flow.layers, flow.placed, frames)
        return Network(name=name, layers=layers, frames=frames, parts=parts)

    def settled(self, where: str) -> "Flow":
        """Return the flow as the output of its last layer, a dense one more if necessary."""
        flow = self._merged()
        return flow if flow.plain and not flow.relu else flow._settled(where)

    def _with_layer(self, layer: Layer) -> "Flow":
        """Return the output of a layer behind this flow's layers, at this flow's pace."""
        return Flow(
            layers=(*self.layers, layer),
            width=layer.outputs,
            pace=self.pace,
            placed=(*self.placed, Placed(self.pace)),
        )

    def _absorb(self, layer: Any, where: str) -> Any:
        weight, added = _compose(layer.w_ih, self.matrix, self.bias, where)
        key = "bias_ih" if isinstance(layer, Gru) else "bias"
        update = {"w_ih": weight, key: getattr(layer, key) + added, "input_relu": self.relu}
        return layer.replace(**update)

    def _settled(self, where: str = "the end of the model") -> "Flow":
        """Return the flow with its affine function as a dense layer."""
        matrix, bias = self._full(where)
        return self._add_dense(self.dense or "affine", matrix, bias, IDENTITY)

    def _add_dense(self, name: str, matrix: Floats, bias: Floats, function: ActivationFunction) -> "Flow":
        kept = sum(layer.weight.size for layer in self.layers if isinstance(layer, Dense))
        check_size((kept + matrix.size,), f"the dense layers up to {name!r}, as a whole")
        layer = Dense(
            name=self._unique(name),
            weight=matrix if self.skip is None else np.concatenate([matrix, self.skip.matrix], axis=1),
            bias=bias,
            activation=function.name,
            alpha=function.alpha,
            beta=function.beta,
            **read_fields(self._reads(matrix.shape[1])),
        )
        return self._with_layer(layer)

    def _reads(self, width: int = 0) -> tuple[Read, ...]:
        """What its affine function reads; ``width`` is that of the last layer's results."""
        mine = Read(width=width or self.matrix.shape[1], relu=self.relu)
        if self.skip is None:
            return (mine,)
        back = len(self.layers) + 1 - self.skip.source
        return (mine, Read(back=back, width=self.skip.matrix.shape[1], relu=self.skip.relu))

    def _merged(self) -> "Flow":
        """Return the flow with a sum or mean of a bidirectional layer's halves as that layer's merge mode."""
        last = self.layers[-1] if self.layers else None
        if self.dense or self.relu or self.skip or np.any(self.bias) or self.matrix.ndim == 0:
            return self
        if not isinstance(last, Bidirectional) or last.merge != "concat" or self.pace != self._layers_pace:
            return self
        half = last.forward.outputs
        for merge, factor in (("sum", 1.0), ("average", 0.5)):
            if np.array_equal(self.matrix, np.hstack([np.eye(half), np.eye(half)]) * factor):
                layer = last.model_copy(update={"merge": merge})
                below = replace(self, layers=self.layers[:-1], placed=self.placed[:-1])
                return replace(below._with_layer(layer), placed=self.placed)
        return self

    def _unique(self, name: str) -> str:
        return fresh(name, {layer.name for layer in self.layers}.__contains__)


def _align(flows: Sequence[Flow], where: str, *, gather: bool = True) -> list[Flow]:
    """Return functions of the same values, with a skip from the same layer if any of them has one."""
    base = max(flows, key=lambda flow: (len(flow.layers), flow.reads_final_states))
    found = [flow._over(base, where) for flow in flows]
    kinds = dict.fromkeys((flow.skip.source, flow.skip.relu) for flow in found if flow.skip is not None)
    if len(kinds) > 1 and not gather:
        raise ModelError(f"{where} needs results of more than two layers at once")
    for kind in [*kinds][:-1]:
        found = _gathered(found, kind, where)
    skips = [flow.skip for flow in found if flow.skip is not None]
    if not skips:
        return found
    width = skips[0].matrix.shape[1]
    return [
        flow
        if flow.skip is not None
        else replace(flow, skip=replace(skips[0], matrix=np.zeros((flow.features(where), width))))
        for flow in found
    ]


def _gathered(flows: Sequence[Flow], kind: tuple[int, bool], where: str) -> list[Flow]:
    """Return the same functions without the skips of one kind: a dense layer puts what these read beside.

    A dense layer can read two layers' results, so results of three need one more layer, of four two.
    """
    base, (source, relu) = flows[0], kind
    width = base.width or 0
    mine = [flow.skip is not None and (flow.skip.source, flow.skip.relu) == kind for flow in flows]
    rows = [flow.skip.matrix for flow, its in zip(flows, mine, strict=True) if its and flow.skip is not None]
    count = sum(map(len, rows))
    check_size((width + count, max(width, rows[0].shape[1])), f"{where}: results side by side")
    layer = Dense(
        name=base._unique("gathered"),
        weight=np.concatenate(
            [np.eye(width + count, width), np.concatenate([np.zeros((width, rows[0].shape[1])), *rows])],
            axis=1,
        ),
        bias=np.zeros(width + count),
        reads=(
            Read(width=width, relu=base.relu),
            Read(back=len(base.layers) + 1 - source, width=rows[0].shape[1], relu=relu),
        ),
    )
    behind, first, found = base._with_layer(layer), width, []
    for flow, its in zip(flows, mine, strict=True):
        matrix, bias = flow._full(where)
        wide = np.zeros((len(matrix), width + count))
        wide[:, :width] = matrix
        if its:
            wide[:, first : first + len(matrix)] = np.eye(len(matrix))
            first += len(matrix)
        skip = None if its else flow.skip
        found.append(replace(behind, matrix=wide, bias=bias, dense=flow.dense, skip=skip))
    return found


def looks_back(layers: Sequence[Layer]) -> bool:
    """Whether a layer has a reverse direction."""
    return any(isinstance(layer, Bidirectional) or getattr(layer, "reverse", False) for layer in layers)


def _compose(weight: Floats, matrix: Floats, bias: Floats, where: str) -> tuple[Floats, Floats]:
    """Return ``weight @ (matrix @ x + bias)`` as matrix and bias."""
    check_size(
        (len(weight), *(matrix.shape[1:] or weight.shape[1:])), f"{where}: its product with what it reads"
    )
    product = weight @ matrix if matrix.ndim else weight * matrix
    return product, weight @ np.broadcast_to(bias, (weight.shape[1],))
