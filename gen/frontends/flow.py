"""A tensor of a model as an affine function of what any number of layers give.

Scales, constants, selected features, sums and concatenations are arithmetic on that affine function. The next
layer with weights absorbs it. Only if none follows does it become a dense layer of its own. So batch norm
folds into a neighbour, and the sum of a bidirectional layer's two halves becomes its merge mode. Layers know
what they read (:class:`Source`); their order is decided at the end, by :meth:`Flow.network`.

Layers may run at a slower rate than the input. A strided convolution gives one output for several steps that
it reads. At the end :func:`widen` makes layers of one rate of them: a step takes as many frames as the last
layer needs for one output, side by side, and what runs several times in that time becomes a layer with
several outputs side by side. This is exact: each value is the same sum.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from itertools import count
from operator import methodcaller
from types import MappingProxyType
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rtlstm.gen.frontends.arrays import Floats, fresh
from rtlstm.gen.frontends.reading import InitialState, directions_of
from rtlstm.spec.activations.functions import IDENTITY, RELU, ActivationFunction
from rtlstm.spec.errors import ModelError
from rtlstm.spec.files import check_size
from rtlstm.spec.layout import OutputPart, Window
from rtlstm.spec.network import (
    Bidirectional,
    Custom,
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
    keeps_cell_state,
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


@dataclass(eq=False)
class Source:
    """What a layer gives, or an input of the model, which has no layer.

    ``reads`` has what each block of columns of the layer's matrix is multiplied by, and whether through a
    ReLU. ``width`` is None for an input until a layer shows it. ``pace`` says which steps have a value, and
    ``delays`` how many steps back a line of delays goes. ``begins`` has the state of each direction in which
    the layer begins, if that was learned.
    """

    layer: Layer | None = None
    reads: "tuple[tuple[Source, bool], ...]" = ()
    width: int | None = None
    pace: Pace = EACH_STEP
    delays: int = 0
    begins: tuple[LayerState, ...] = ()
    guessed: bool = False
    """Whether its width is a guess, until a layer shows it: of an input that is joined to others."""
    normed: bool = False
    """Whether a norm stands right behind it."""
    around: "dict[int, Source]" = field(default_factory=dict)
    """The same input at later steps, or earlier ones if negative, which stand beside it."""
    number: float = field(default_factory=count().__next__)
    """In the order in which they were made: those that a layer reads come before it."""

    @property
    def features(self) -> int:
        """Its width, which is known once a layer reads it."""
        return self.width or 0

    def later(self, steps: int) -> "Source":
        """An input so many steps later, or earlier if negative."""
        self.around.setdefault(0, self)
        return self.around.setdefault(steps, Source(width=self.width, around=self.around))

    @cached_property
    def reversed(self) -> "Source":
        """A bidirectional layer's results with those of its backward direction reversed.

        The last step then has the final states of both.
        """
        both = self.layer
        if not isinstance(both, Bidirectional) or both.backward.reversed_output:
            return self
        # Weights are not copied, so their identity shows that it is the same layer.
        backward = both.backward.model_copy(update={"reversed_output": True})
        layer = both.model_copy(update={"backward": backward})
        return Source(layer, self.reads, self.width, self.pace, begins=self.begins)


class WidthError(ModelError):
    """The width of an input was guessed, and a layer shows what it is."""

    def __init__(self, source: Source, width: int, text: str) -> None:
        super().__init__(text)
        self.source, self.width = source, width


@dataclass(frozen=True)
class _Given:
    """What a layer gives in a step: the columns of each of its values, ``(values, features)``, of ``width``.

    ``position`` counts the new layers up to it; 0 is the input.
    """

    pace: Pace
    position: int
    columns: Columns
    width: int


class _Widener:
    """Makes layers that compute the same of ``frames`` frames at once, all at the pace of the last layer.

    Their input has the frames side by side, the oldest first. It goes through the layers once; ``given`` has
    the input and what each layer before gives.

    Raises ModelError if a recurrent layer runs more than once in that time, because a stride is behind it.
    """

    def __init__(self, layers: Sequence[Layer], sources: Sequence[Source], frames: int) -> None:
        self.layers, self.sources, self.frames = layers, sources, frames
        width = frames * layers[0].sources[0].width
        check_size((width,), f"an input of {frames} frames a step")
        self.given = [_Given(EACH_STEP, 0, np.arange(width).reshape(frames, -1), width)]
        self.made: list[Layer] = []

    def widened(self) -> tuple[Layer, ...]:
        for number, (layer, source) in enumerate(zip(self.layers, self.sources, strict=True)):
            if source.delays and isinstance(layer, Rnn):
                self._delays(layer, source, number)
            elif isinstance(layer, Dense):
                self._dense(layer, source.pace, number)
            elif isinstance(layer, Norm):
                self._norm(layer, source.pace, number)
            else:
                self._recurrent(layer, source.pace, number)
        return tuple(self.made)

    def _add(self, layer: Layer, pace: Pace, columns: Columns) -> None:
        self.made.append(layer)
        self.given.append(_Given(pace, len(self.made), columns, layer.outputs))

    def _spread(
        self, layer: PseudoLayer | Dense, pace: Pace, number: int, rows: slice | None = None
    ) -> tuple[Floats, dict[str, Any]]:
        """Weights of one value as those of all values of a step, ``(values * outputs, width)``; and reads."""
        weights, reads = [], []
        for read, matrix in layer.products:
            weight, given = matrix[rows or slice(None)], self.given[number + 1 - read.back]
            numbers, outputs = pace.numbers(given.pace, self.frames), len(weight)
            check_size(
                (len(numbers) * outputs, given.width), f"layer {layer.name!r} of {self.frames} frames a step"
            )
            wide = np.zeros((len(numbers), outputs, given.width))
            for value, at in enumerate(numbers):
                wide[value][:, given.columns[at]] = weight
            weights.append(wide.reshape(-1, given.width))
            reads.append(Read(back=len(self.made) + 1 - given.position, width=given.width, relu=read.relu))
        return np.concatenate(weights, axis=1), read_fields(reads)

    def _norm(self, layer: Norm, pace: Pace, number: int) -> None:
        count, given = self.frames // pace.every, self.given[number]
        if count > 1:
            raise ModelError(
                f"layer {layer.name!r} is a norm and stands before a stride of {count}: the core computes a "
                "norm once a step; end the network before the stride, with `output`, and make another build "
                "of the rest"
            )
        read = given.columns[pace.numbers(given.pace, self.frames)[0]]
        if given.position < len(self.made) or not np.array_equal(read, np.arange(given.width)):
            weight = np.zeros((layer.values, given.width))
            weight[np.arange(layer.values), read] = 1.0
            reads = read_fields([Read(back=len(self.made) + 1 - given.position, width=given.width)])
            name = f"{layer.name} input"
            taken = Dense(name=name, weight=weight, bias=np.zeros(layer.values), **reads)
            self._add(taken, pace, np.arange(layer.values)[None])
        self._add(layer, pace, np.arange(layer.values)[None])

    def _dense(self, layer: Dense, pace: Pace, number: int) -> None:
        values = self.frames // pace.every
        weight, fields = self._spread(layer, pace, number)
        wide = layer.replace(weight=weight, bias=np.tile(layer.bias, values), **fields)
        self._add(wide, pace, np.arange(values * layer.outputs).reshape(values, layer.outputs))

    def _delays(self, line: Rnn, source: Source, number: int) -> None:
        """A line of delays that takes several values at once; a copy if a step's own are all it gives."""
        features, values = line.outputs // (source.delays + 1), self.frames // source.pace.every
        weight, fields = self._spread(line, source.pace, number, slice(features))
        bias = np.tile(line.bias[:features], values)
        oldest = min(self._read(number), default=0)
        if oldest >= source.delays:
            self._copy(line, source, number, weight, bias, fields)
            return
        # The newest value is the line's first, as in a line that takes one at a time.
        size = (values - oldest + source.delays) * features
        check_size((size, size), f"layer {line.name!r} of {self.frames} frames a step")
        newest_first = np.arange(values * features).reshape(values, features)[::-1].reshape(-1)
        w_ih, full = np.zeros((size, weight.shape[1])), np.zeros(size)
        w_ih[: len(newest_first)], full[: len(newest_first)] = weight[newest_first], bias[newest_first]
        window = np.arange((source.delays + 1) * features)
        columns = np.array([(values - 1 - value) * features + window for value in range(values)])
        w_hh = np.eye(size, k=-values * features)
        self._add(line.replace(w_ih=w_ih, w_hh=w_hh, bias=full, **fields), source.pace, columns)

    def _copy(
        self, line: Rnn, source: Source, number: int, weight: Floats, bias: Floats, fields: Mapping[str, Any]
    ) -> None:
        """Windows that lie within a step; no layer if these are values of the layer before as they are."""
        features, read = line.outputs // (source.delays + 1), line.sources[0]
        given = self.given[number + 1 - read.back]
        values: Columns = np.arange(len(weight)).reshape(-1, features)
        plain = np.array_equal(line.w_ih[:features], np.eye(features)) and not bias.any() and not read.relu
        if plain:
            values = given.columns[source.pace.numbers(given.pace, self.frames)]
        # Windows of the first values would begin in the step before: nothing reads them.
        at = np.arange(len(values))[:, None] - np.arange(source.delays + 1)
        columns = values[np.maximum(at, 0)].reshape(len(values), -1)
        if plain:
            self.given.append(_Given(source.pace, given.position, columns, given.width))
        else:
            self._add(Dense(name=line.name, weight=weight, bias=bias, **fields), source.pace, columns)

    def _read(self, number: int) -> Iterator[int]:
        """The values of a layer that others read, in a step."""
        pace = self.sources[number].pace
        for reader, layer in enumerate(self.layers):
            if any(reader - read.back == number for read in layer.sources):
                yield from self.sources[reader].pace.numbers(pace, self.frames)

    def _recurrent(self, layer: PseudoLayer | Bidirectional, pace: Pace, number: int) -> None:
        values = self.frames // pace.every
        if values > 1 and not is_stateless(layer):
            raise ModelError(
                f"layer {layer.name!r} is recurrent and stands before a stride of {values}: the core "
                "computes a recurrent layer once a step; end the network before the stride, with `output`, "
                "and make another build of the rest"
            )

        def spread(one: Any) -> Any:
            rows = [slice(at * one.units, (at + 1) * one.units) for at in range(one.gates)]
            weights, fields = zip(*(self._spread(one, pace, number, gate) for gate in rows), strict=True)
            update = dict(fields[0])
            if values > 1:
                bias = np.repeat(one.bias.reshape(one.gates, -1), values, 0).ravel()
                update |= {"w_hh": None, "bias": bias}
            return one.replace(w_ih=np.concatenate(weights), **update)

        columns = np.arange(values * layer.outputs).reshape(values, -1)
        self._add(each_direction(layer, spread), pace, columns)


def each_direction(layer: Any, change: Callable[[Any], Any]) -> Any:
    """Return a recurrent layer with a function applied to it, or to both of its directions."""
    if not isinstance(layer, Bidirectional):
        return change(layer)
    both = {"forward": change(layer.forward), "backward": change(layer.backward)}
    return layer.model_copy(update=both)


_ONE, _ZERO = np.array(1.0), np.array(0.0)


@dataclass(frozen=True, eq=False)
class Term:
    """``matrix @ relu?(source)``; ``matrix`` is ``(outputs, width)``, or a single factor."""

    source: Source
    relu: bool = False
    matrix: Floats = field(default_factory=lambda: _ONE)


@dataclass(frozen=True, eq=False)
class Flow:
    """The sum of ``terms``, plus ``bias``, ``(outputs,)`` or a single addend.

    If it has several terms, all have full matrices. ``dense`` names the fully connected layer that it is; it
    is empty for lighter arithmetic. ``pace`` says which steps have a value, if strides leave some out. In
    methods ``where`` is how messages name the operator at hand.
    """

    terms: tuple[Term, ...]
    bias: Floats = field(default_factory=lambda: _ZERO)
    dense: str = ""
    pace: Pace = EACH_STEP

    @classmethod
    def of(cls, source: Source) -> "Flow":
        """What a source gives, unchanged."""
        return cls((Term(source),), pace=source.pace)

    @classmethod
    def begin(cls, width: int | None = None) -> "Flow":
        """An input of the model; None for a width that a layer will show."""
        return cls.of(Source(width=width))

    @property
    def outputs(self) -> int | None:
        """Number of features; None if unknown."""
        first = self.terms[0]
        return int(first.matrix.shape[0]) if first.matrix.ndim else first.source.width

    @property
    def last(self) -> Layer | None:
        """The layer that it is a function of; None if that is the input, or if there are several."""
        return self.terms[0].source.layer if len(self.terms) == 1 else None

    @property
    def relu(self) -> bool:
        """Whether all that it reads goes through a ReLU."""
        return all(term.relu for term in self.terms)

    @property
    def plain(self) -> bool:
        """Whether it is what one source gives, unchanged, with or without a ReLU."""
        first = self.terms[0]
        bare = not self.dense and len(self.terms) == 1 and self.pace == first.source.pace
        return bare and first.matrix.ndim == 0 and first.matrix == 1.0 and not np.any(self.bias)

    @cached_property
    def sources(self) -> tuple[Source, ...]:
        """What it depends on, in an order in which it can be computed; without inputs."""
        return tuple(source for source in _behind(self.terms) if source.layer is not None)

    @property
    def layers(self) -> tuple[Layer, ...]:
        """The layers that it depends on, in an order in which they can be computed."""
        return tuple(source.layer for source in self.sources if source.layer is not None)

    @property
    def before(self) -> bool:
        """Whether it is before all recurrent layers."""
        return all(map(is_stateless, self.layers))

    def final_states(self) -> "Flow":
        """The output of the last layer with its backward direction reversed, if it has two.

        The last step then has the final states of both.
        """
        return self._reading({term.source: term.source.reversed for term in self.terms})

    def reads_alone(self, *, backward: bool) -> bool:
        """Whether it reads one direction of a last layer that has two."""
        both, matrix = self.last, self.terms[0].matrix
        if not isinstance(both, Bidirectional) or both.merge != "concat" or matrix.ndim == 0:
            return False
        half = both.forward.outputs
        return not np.any(matrix[:, :half] if backward else matrix[:, half:])

    def _reading(self, others: Mapping[Source, Source]) -> "Flow":
        """The same of other sources."""
        terms = (replace(term, source=others.get(term.source, term.source)) for term in self.terms)
        return replace(self, terms=tuple(terms))

    def features(self, where: str) -> int:
        """Return the number of features; a ModelError that names ``where`` if no layer has shown it."""
        if self.outputs is None:
            raise ModelError(f"{where} comes before any layer that shows how many features there are")
        return self.outputs

    def _full(self, where: str) -> "Flow":
        """Return the same with full matrices and bias."""
        outputs = self.features(where)
        terms = self.terms
        if terms[0].matrix.ndim == 0:
            check_size((outputs, outputs), f"{where}: a matrix")
            terms = (replace(terms[0], matrix=np.eye(outputs) * terms[0].matrix),)
        return replace(self, terms=terms, bias=np.broadcast_to(self.bias, (outputs,)))

    # Arithmetic

    def _mapped(self, change: Callable[[Floats], Floats]) -> "Flow":
        """Return the same with the matrices and the bias changed; without terms that are all zero then."""
        terms = [replace(term, matrix=change(term.matrix)) for term in self.terms]
        used = [term for term in terms if np.any(term.matrix)]
        return replace(self, terms=tuple(used or terms[:1]), bias=change(self.bias))

    def scale(self, factor: Floats, where: str) -> "Flow":
        """Multiply by one factor, or by one for each feature."""
        if factor.ndim == 0:
            return self._mapped(lambda given: given * factor)
        full = self._known(len(factor), where)._full(where)
        return full._mapped(lambda given: (given.T * factor).T)

    def shift(self, addend: Floats, where: str) -> "Flow":
        """Add one constant, or one for each feature."""
        flow = self if addend.ndim == 0 else self._known(len(addend), where)
        return replace(flow, bias=flow.bias + addend)

    def pick(self, features: Sequence[int], where: str) -> "Flow":
        """Keep some of the features, in the given order."""
        chosen = list(features)
        return self._full(where)._mapped(lambda given: given[chosen])

    def plus(self, other: "Flow", where: str) -> "Flow":
        """Add another function of any values of the same steps."""
        mine, theirs = (flow._full(where) for flow in together([self, other], where))
        if mine.outputs != theirs.outputs:
            raise ModelError(
                f"{where} must add as many features as it has, but adds {mine.outputs} and {theirs.outputs}"
            )
        terms = _collected((*mine.terms, *theirs.terms))
        return replace(mine, terms=terms, bias=mine.bias + theirs.bias, dense=mine.dense or theirs.dense)

    def join(self, others: Sequence["Flow"], where: str) -> "Flow":
        """Append the features of other functions of any values of the same steps."""
        unknown = {flow.terms[0].source for flow in (self, *others) if flow.outputs is None}
        if len(unknown) == 1 and len(others):
            (source,) = unknown
            source.width, source.guessed = 1, True
        parts = [flow._full(where) for flow in together([self, *others], where)]
        outputs = sum(len(part.bias) for part in parts)
        terms, first = [], 0
        for part in parts:
            for term in part.terms:
                check_size((outputs, term.source.features), f"{where}: a matrix")
                wide = np.zeros((outputs, term.source.features))
                wide[first : first + len(part.bias)] = term.matrix
                terms.append(replace(term, matrix=wide))
            first += len(part.bias)
        names = [part.dense for part in parts if part.dense]
        return replace(
            parts[0],
            terms=_collected(terms),
            bias=np.concatenate([part.bias for part in parts]),
            dense=names[0] if names else "",
        )

    def through(self, source: Source) -> "Flow":
        """Return the same values as a multiple of a dense layer's, if they are; else the flow."""
        layer, mine = source.layer, self.terms
        if not isinstance(layer, Dense) or layer.activation != "identity" or source.pace != self.pace:
            return self
        if source.reads != tuple((term.source, term.relu) for term in mine) or mine[0].matrix.ndim == 0:
            return self
        matrix = np.concatenate([term.matrix for term in mine], axis=1)
        if matrix.shape != layer.weight.shape:
            return self
        largest = np.unravel_index(np.abs(layer.weight).argmax(), layer.weight.shape)
        factor = matrix[largest] / (layer.weight[largest] or 1.0)
        if not np.allclose(factor * layer.weight, matrix, rtol=1e-12, atol=0.0):
            return self
        return replace(Flow.of(source).scale(factor, ""), bias=self.bias - factor * layer.bias)

    def _known(self, outputs: int, where: str) -> "Flow":
        """Return the flow, which has ``outputs`` features: that sets the width of an input if it was unknown.

        Raises ModelError if it has another number.
        """
        first = self.terms[0]
        if self.outputs is None:
            first.source.width = outputs
        if self.outputs != outputs:
            before = self.dense or (first.source.layer.name if first.source.layer else "the input")
            text = f"{where} reads {outputs} values, but {before!r} before it gives {self.outputs}"
            guessed = next((each for each in _behind(self.terms) if each.guessed), None)
            if guessed is not None and outputs - (self.outputs or 0) + guessed.features > 0:
                raise WidthError(guessed, outputs - (self.outputs or 0) + guessed.features, text)
            raise ModelError(text)
        return self

    # Layers

    def linear(self, name: str, where: str, weight: Floats, bias: Floats) -> "Flow":
        """Multiply by ``weight``, ``(outputs, inputs)``: a dense layer, if the next one cannot take it in."""
        flow = self._settled if self.dense else self._merged
        made = flow._times(weight, where)
        return replace(made, bias=bias + made.bias, dense=name)

    def _times(self, weight: Floats, where: str) -> "Flow":
        """Multiply by a matrix from the left."""
        self._known(weight.shape[1], where)
        for term in self.terms:
            columns = term.matrix.shape[1:] or weight.shape[1:]
            check_size((len(weight), *columns), f"{where}: its product with what it reads")
        terms = tuple(
            replace(term, matrix=weight @ term.matrix if term.matrix.ndim else weight * term.matrix)
            for term in self.terms
        )
        return replace(self, terms=terms, bias=weight @ np.broadcast_to(self.bias, (weight.shape[1],)))

    def activate(self, function: ActivationFunction, name: str, where: str) -> "Flow":
        """Apply a function to every feature."""
        flow = self._merged
        if flow.plain and function == RELU:
            return replace(flow, terms=(replace(flow.terms[0], relu=True),))
        return flow._add_dense(flow.dense or name, function, where)

    def recurrent(self, layer: PseudoLayer | Bidirectional, where: str) -> "Flow":
        """Add a recurrent layer, whose input weights absorb the affine function.

        A function of several sources becomes a dense layer first if that needs fewer weights in all; a dense
        layer stays one, unless the layer reads single values of it.
        """
        single = isinstance(layer, Custom) and not (np.count_nonzero(layer.w_ih, axis=1) > 1).any()
        flow = self._settled if self.dense and not single else self._merged
        flow._known(layer.inputs, where)
        if looks_back([layer]) and (len(flow.terms) > 1 or not _is_chain(flow.sources)):
            raise ModelError(
                f"{where} goes through sequences from their end, behind a layer that reads two layers' "
                "results (a residual), which has to go step by step; make two builds of them"
            )
        if (len(flow.terms) > 1 or flow.dense) and not isinstance(layer, Bidirectional):
            wide, rows = sum(term.source.features for term in flow.terms), len(layer.w_ih)
            if rows * wide > layer.inputs * (wide + rows):
                flow = flow._settled

        def absorb(one: Any) -> Any:
            made, key = flow._times(one.w_ih, where), "bias_ih" if isinstance(one, Gru) else "bias"
            if isinstance(one, Lstm) and one.norms is not None:
                return one.replace(w_ih=made.matrix, **one.with_input_bias(made.bias))
            return one.replace(w_ih=made.matrix, **{key: getattr(one, key) + made.bias})

        return flow.with_layer(each_direction(layer, absorb))

    @property
    def matrix(self) -> Floats:
        """All that its sources are multiplied by, side by side."""
        first = self.terms[0].matrix
        return first if len(self.terms) == 1 else np.concatenate([term.matrix for term in self.terms], axis=1)

    def norm(self, layer: Norm, where: str) -> "Flow":
        """Add a norm, which reads the last layer's output as it is."""
        flow = self._known(layer.values, where).settled(where)
        if flow.terms[0].source.normed:
            flow = flow._add_dense(f"{layer.name} input")
        before = flow.terms[0].source
        before.normed = True
        made = flow.with_layer(layer)
        made.terms[0].source.number = before.number + 0.5  # right behind what it reads
        return made

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

    @property
    def is_input(self) -> bool:
        """Whether it is linear in one input of the model, so that it is zero where that is."""
        first = self.terms[0].source
        alone = first.layer is None and all(term.source is first for term in self.terms)
        of_now = first.around.get(0, first) is first and self.pace.every == 1
        return alone and of_now and not np.any(self.bias)

    def convolve_around(
        self, name: str, where: str, weight: Floats, bias: Floats, dilation: int, ahead: int
    ) -> "Flow":
        """Add a convolution that reads ``ahead`` steps ahead in an input: a window around each step."""
        flow = self._known(weight.shape[1], where)
        taps: list[Flow] = []
        for tap, matrix in enumerate(weight.transpose(2, 0, 1)):
            steps = ahead - dilation * (weight.shape[2] - 1 - tap)
            read = flow._reading({term.source: term.source.later(steps) for term in flow.terms})
            taps.append(read._times(matrix, where))
        total = reduce(lambda one, other: one.plus(other, where), taps)
        return replace(total, bias=bias + total.bias, dense=name)

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
        flow.terms[0].source.delays = steps
        return flow

    def beginning(self, states: Sequence[tuple[LayerState, ...]]) -> "Flow":
        """Return the flow with its last layers beginning in these states, each direction's own."""
        source = self.terms[0].source
        for state in reversed(states):
            source.begins = state
            source = source.reads[0][0]
        return self

    def initial_state(self, network: Network) -> InitialState | None:
        """Return the state in which this flow's network begins; None if its layers have learned none."""
        # Names are unique within a network.
        pairs = zip(self._named, self.sources, strict=True)
        learned = {name: source.begins for name, source in pairs if source.begins}
        h: list[Floats] = []
        c: list[Floats] = []
        for layer in network.layers:
            if isinstance(layer, StatelessLayer):
                continue
            both = directions_of(layer)
            zeros = [(np.zeros(one.outputs), None) for one in both]
            for one, (its_h, its_c) in zip(both, learned.get(layer.name, zeros), strict=True):
                h.append(its_h)
                if keeps_cell_state(one):
                    c.append(np.zeros(one.units) if its_c is None else its_c)
        return (tuple(h), tuple(c)) if learned else None

    def network(
        self,
        name: str,
        parts: tuple[OutputPart, ...] = (),
        inputs: Mapping[str, Source] = MappingProxyType({}),
    ) -> Network:
        """Return the network that computes this flow; with strides, a step of it takes several frames.

        Several ``inputs`` are one input of the network, side by side in their order.
        """
        flow = self.settled("the end of the model")
        frames = flow.pace.every
        window, read = flow._window(inputs)
        layers = flow._wired(read)
        if frames > 1 and len(inputs) > 1:
            raise ModelError(
                f"the model has {len(inputs)} inputs and strides that leave steps out, which cannot be read "
                "together; end before the strides, with `output`"
            )
        if frames > 1:
            layers = _Widener(layers, flow.sources, frames).widened()
        widths = tuple(OutputPart(name=each, width=source.features) for each, source in inputs.items())
        several = {"input_parts": widths} if len(widths) > 1 else {}
        return Network(name=name, layers=layers, frames=frames, window=window, parts=parts, **several)

    def check_ahead(self, inputs: int) -> None:
        """Refuse what cannot be read together with steps ahead."""
        if self._around and (inputs > 1 or self.pace.every > 1):
            raise ModelError(
                "a convolution that reads steps ahead must be of a model with one input and without strides; "
                "end before the strides, or before the inputs meet, with `output`"
            )

    @property
    def _around(self) -> Mapping[int, Source]:
        return next((source.around for source in _behind(self.terms) if source.around), {})

    def _window(self, inputs: Mapping[str, Source]) -> tuple[Window, tuple[Source, ...]]:
        """The steps around each that the layers read, and all inputs in the order in which they stand."""
        self.check_ahead(len(inputs))
        around = self._around
        if not around:
            return (0, 0), tuple(inputs.values())
        before, after = -min(around), max(around)
        return (before, after), tuple(around[0].later(steps) for steps in range(-before, after + 1))

    @property
    def _named(self) -> list[str]:
        """The layers' names in the network, in order."""
        names: list[str] = []
        for layer in self.layers:
            names.append(fresh(layer.name, names.__contains__))
        return names

    def _wired(self, inputs: Sequence[Source]) -> tuple[Layer, ...]:
        """The layers, each with its name in the network and with how far back is what it reads."""
        position = {source: at for at, source in enumerate(self.sources)}
        layers = []
        for at, (source, name) in enumerate(zip(self.sources, self._named, strict=True)):
            reads = [
                Read(back=at - position.get(read, -1), width=read.features, relu=relu)
                for read, relu in source.reads
            ]
            layer: Any = source.layer
            if len(inputs) > 1:
                layer, reads = _of_inputs(layer, source, reads, inputs)
            fields = read_fields(reads)
            if isinstance(layer, Bidirectional):
                layer = each_direction(layer, methodcaller("model_copy", update=fields))
            if isinstance(layer, Bidirectional | Norm):
                fields = {}
            layers.append(layer.model_copy(update={"name": name, **fields}))
        return tuple(layers)

    def settled(self, where: str) -> "Flow":
        """Return the flow as the output of its last layer, a dense one more if necessary."""
        flow = self._merged
        return flow if flow.plain and not flow.relu else flow._add_dense(flow.dense or "affine", where=where)

    def with_layer(self, layer: Layer) -> "Flow":
        """Return the output of a layer that reads this flow's sources, at this flow's pace."""
        reads = tuple((term.source, term.relu) for term in self.terms)
        return Flow.of(Source(layer, reads, layer.outputs, self.pace))

    @cached_property
    def _settled(self) -> "Flow":
        """The flow with its affine function as a dense layer."""
        return self._add_dense(self.dense or "affine")

    def _add_dense(
        self, name: str, function: ActivationFunction = IDENTITY, where: str = "the end of the model"
    ) -> "Flow":
        full = self._full(where)
        kept = sum(layer.weight.size for layer in self.layers if isinstance(layer, Dense))
        check_size((kept + full.matrix.size,), f"the dense layers up to {name!r}, as a whole")
        layer = Dense(
            name=name,
            weight=full.matrix,
            bias=full.bias,
            activation=function.name,
            alpha=function.alpha,
            beta=function.beta,
        )
        return full.with_layer(layer)

    @cached_property
    def _merged(self) -> "Flow":
        """The flow with a sum or mean of a bidirectional layer's halves as that layer's merge mode."""
        last, term = self.last, self.terms[0]
        if self.dense or term.relu or np.any(self.bias) or term.matrix.ndim == 0:
            return self
        if not isinstance(last, Bidirectional) or last.merge != "concat" or self.pace != term.source.pace:
            return self
        half = last.forward.outputs
        for merge, factor in (("sum", 1.0), ("average", 0.5)):
            if np.array_equal(term.matrix, np.hstack([np.eye(half), np.eye(half)]) * factor):
                layer = last.model_copy(update={"merge": merge})
                return Flow.of(replace(term.source, layer=layer, width=layer.outputs))
        return self


def _of_inputs(
    layer: Any, source: Source, reads: Sequence[Read], inputs: Sequence[Source]
) -> tuple[Any, list[Read]]:
    """A layer that reads some of several inputs as one that reads all of them side by side, and its reads."""
    ends = np.cumsum([each.features for each in inputs])
    first = {each: int(end) - each.features for each, end in zip(inputs, ends, strict=True)}
    wide = [read.replace(width=int(ends[-1])) if each in first else read
            for read, (each, _) in zip(reads, source.reads, strict=True)]  # fmt: skip
    kept = list(dict.fromkeys(wide))

    def spread(one: Any) -> Any:
        key = "weight" if isinstance(one, Dense) else "w_ih"
        matrix = getattr(one, key)
        found = {read: np.zeros((len(matrix), read.width)) for read in kept}
        blocks = np.split(matrix, np.cumsum([each.features for each, _ in source.reads])[:-1], axis=1)
        for read, (each, _), block in zip(wide, source.reads, blocks, strict=True):
            begin = first.get(each, 0)
            found[read][:, begin : begin + each.features] += block
        return one.replace(**{key: np.concatenate([*found.values()], axis=1)})

    return each_direction(layer, spread), kept


def _behind(terms: Sequence[Term]) -> list[Source]:
    """All that the terms depend on, in an order in which it can be computed."""
    found: set[Source] = set()
    waiting = [term.source for term in terms]
    while waiting:
        source = waiting.pop()
        if source not in found:
            found.add(source)
            waiting += [read for read, _ in source.reads]
    return sorted(found, key=lambda source: source.number)


def _collected(terms: Sequence[Term]) -> tuple[Term, ...]:
    """Add up the terms of the same source, the last layer's first, and leave out what is all zero."""
    found: dict[tuple[Source, bool], Floats] = {}
    for term in terms:
        key = (term.source, term.relu)
        found[key] = found[key] + term.matrix if key in found else term.matrix
    order = sorted(found, key=lambda key: (-key[0].number, key[1]))
    used = [key for key in order if np.any(found[key])]
    return tuple(Term(*key, found[key]) for key in used or order[:1])


def together(flows: Sequence[Flow], where: str) -> list[Flow]:
    """Return functions of values that may stand in one network, of the same layers where they can be.

    Raises ModelError if they have values at different steps, or of several layers in a network that goes
    through sequences from their end.
    """
    if any(flow.pace != flows[0].pace for flow in flows):
        raise ModelError(
            f"{where} needs two results of different steps at once, because strides left out other "
            "steps of one than of the other; give both the same strides and the same zeros in front"
        )
    read = {term.source for flow in flows for term in flow.terms}
    final = {source: source.reversed for source in read if source.reversed in read}
    found = [flow._reading(final) if flow.reads_alone(backward=False) else flow for flow in flows]
    dense = [source for flow in flows for source in flow.sources if isinstance(source.layer, Dense)]
    for source in dict.fromkeys(dense):
        found = [flow.through(source) for flow in found]
    behind = _behind([term for flow in found for term in flow.terms])
    layers = [source for source in behind if source.layer is not None]
    if looks_back([source.layer for source in layers if source.layer is not None]) and not (
        _is_chain(layers) and {term.source for flow in found for term in flow.terms} == {layers[-1]}
    ):
        raise ModelError(
            f"{where} needs two results of different layers at once, which a network with a "
            "bidirectional or reverse layer cannot have: end the network before it, and add or join "
            "on the host"
        )
    return found


def _is_chain(sources: Sequence[Source]) -> bool:
    """Whether each layer reads the one before it, and nothing else."""
    read = [{each if each.layer is not None else None for each, _ in source.reads} for source in sources]
    return all(len(each) == 1 for each in read) and all(
        {before} == each for before, each in zip(sources, read[1:], strict=False)
    )


def is_stateless(layer: Layer) -> bool:
    """Whether a layer's results are of the step at hand alone."""
    return isinstance(layer, StatelessLayer) or (
        isinstance(layer, Custom) and layer.cell.state is None and not layer.w_hh.any()
    )


def looks_back(layers: Sequence[Layer]) -> bool:
    """Whether a layer has a reverse direction."""
    return any(isinstance(layer, Bidirectional) or getattr(layer, "reverse", False) for layer in layers)
