"""What a tensor of a model is: layers, then an affine function of what the last of them gives.

Scales, constants, picked features, sums and concatenations are arithmetic on that affine function. The
next layer that multiplies by weights takes it in; only where none follows does it become a dense layer
of its own. So batch norm folds into a neighbour, and the sum of a bidirectional layer's two halves
becomes its merge mode.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rtlstm.spec.errors import ModelError
from rtlstm.spec.functions import IDENTITY, RELU, ActivationFunction
from rtlstm.spec.network import Bidirectional, Dense, Gru, Layer, Lstm, Network, Rnn

__all__ = ["Flow"]

Floats = NDArray[np.float64]
_ONE, _ZERO = np.array(1.0), np.array(0.0)


@dataclass(frozen=True, eq=False)
class Flow:
    """``matrix @ relu?(output of the last layer) + bias``; of the model's input if there is no layer.

    ``matrix`` is ``(outputs, width)``, or a single factor; ``bias`` ``(outputs,)``, or a single addend.
    ``width`` is None until a layer shows how wide the input is. ``dense`` names the fully connected layer
    that the matrix is; it is empty for lighter arithmetic. In methods ``where`` is how messages name the
    operator at hand.
    """

    layers: tuple[Layer, ...] = ()
    width: int | None = None
    relu: bool = False
    matrix: Floats = field(default_factory=lambda: _ONE)
    bias: Floats = field(default_factory=lambda: _ZERO)
    dense: str = ""

    @property
    def outputs(self) -> int | None:
        """Number of features; None if not known yet."""
        return int(self.matrix.shape[0]) if self.matrix.ndim else self.width

    @property
    def plain(self) -> bool:
        """Whether it is the output of its last layer, as that gives it, but for a ReLU."""
        return not self.dense and self.matrix.ndim == 0 and self.matrix == 1.0 and not np.any(self.bias)

    def same_base(self, other: "Flow") -> bool:
        """Whether both are functions of the same values."""
        same = len(self.layers) == len(other.layers) and all(
            mine is theirs for mine, theirs in zip(self.layers, other.layers, strict=True)
        )
        return same and self.relu == other.relu

    def _features(self, where: str) -> int:
        if self.outputs is None:
            raise ModelError(f"{where} comes before any layer that shows how many features there are")
        return self.outputs

    def _full(self, where: str) -> tuple[Floats, Floats]:
        """Matrix and bias with all their axes."""
        outputs = self._features(where)
        matrix = self.matrix if self.matrix.ndim else np.eye(outputs) * self.matrix
        return matrix, np.broadcast_to(self.bias, (outputs,))

    # Arithmetic

    def scale(self, factor: Floats, where: str) -> "Flow":
        """Multiply by one factor, or by one for each feature."""
        if factor.ndim == 0:
            return replace(self, matrix=self.matrix * factor, bias=self.bias * factor)
        matrix, bias = self._known(len(factor), where)._full(where)
        return replace(self._known(len(factor), where), matrix=factor[:, None] * matrix, bias=factor * bias)

    def shift(self, addend: Floats, where: str) -> "Flow":
        """Add one constant, or one for each feature."""
        flow = self if addend.ndim == 0 else self._known(len(addend), where)
        return replace(flow, bias=flow.bias + addend)

    def pick(self, features: Sequence[int], where: str) -> "Flow":
        """Keep some of the features, in the given order."""
        matrix, bias = self._full(where)
        return replace(self, matrix=matrix[list(features)], bias=bias[list(features)])

    def plus(self, other: "Flow", where: str) -> "Flow":
        """Add another function of the same values."""
        mine, theirs = self._aligned(other, where)
        (a, b), (c, d) = mine._full(where), theirs._full(where)
        if a.shape != c.shape:
            raise ModelError(f"{where} adds {len(a)} and {len(c)} features, which must be as many")
        return replace(mine, matrix=a + c, bias=b + d, dense=mine.dense or theirs.dense)

    def join(self, others: Sequence["Flow"], where: str) -> "Flow":
        """Put other functions of the same values behind this one's features."""
        parts = [self._aligned(other, where)[1] for other in others]
        full = [part._full(where) for part in (self, *parts)]
        names = [part.dense for part in (self, *parts) if part.dense]
        return replace(
            self,
            matrix=np.concatenate([matrix for matrix, _ in full]),
            bias=np.concatenate([bias for _, bias in full]),
            dense=names[0] if names else "",
        )

    def _aligned(self, other: "Flow", where: str) -> tuple["Flow", "Flow"]:
        if not self.same_base(other):
            raise ModelError(
                f"{where} needs two results of different layers at once, but the core computes one chain, in "
                "which every layer reads the one before it"
            )
        return self, other

    def _known(self, outputs: int, where: str) -> "Flow":
        """The same, with that many features, which decides the width of the input if it was not known."""
        if self.outputs is None:
            return replace(self, width=outputs)
        if self.outputs != outputs:
            before = self.dense or (self.layers[-1].name if self.layers else "the input")
            raise ModelError(f"{where} reads {outputs} values, but {before!r} before it gives {self.outputs}")
        return self

    # Layers

    def linear(self, name: str, where: str, weight: Floats, bias: Floats) -> "Flow":
        """A fully connected layer, ``weight`` being ``(outputs, inputs)``."""
        flow = self._settled() if self.dense else self._merged()
        flow = flow._known(weight.shape[1], where)
        matrix, added = _compose(weight, flow.matrix, flow.bias)
        return replace(flow, matrix=matrix, bias=bias + added, dense=name)

    def activate(self, function: ActivationFunction, name: str, where: str) -> "Flow":
        """Apply a function to every feature."""
        flow = self._merged()
        if flow.plain and function == RELU:
            return replace(flow, relu=True)
        matrix, bias = flow._full(where)
        return flow._add_dense(flow.dense or name, matrix, bias, function)

    def recurrent(self, layer: Lstm | Gru | Rnn | Bidirectional, where: str) -> "Flow":
        """A recurrent layer, which takes the affine function into its input weights."""
        flow = self._settled() if self.dense else self._merged()
        flow = flow._known(layer.inputs, where)
        if isinstance(layer, Bidirectional):
            layer = layer.model_copy(
                update={"forward": flow._absorb(layer.forward), "backward": flow._absorb(layer.backward)}
            )
        else:
            layer = flow._absorb(layer)
        layer = layer.model_copy(update={"name": self._unique(layer.name)})
        return Flow(layers=(*flow.layers, layer), width=layer.outputs)

    def delays(self, steps: int, features: int, name: str, where: str) -> "Flow":
        """The features of this step and of each of ``steps`` before it, the newest first; zeros at the start.

        A plain RNN with weights of ones and zeros, whose state is a line of delays.
        """
        size = features * (steps + 1)
        line = Rnn(
            name=f"{name}_delays",
            w_ih=np.eye(size, features),
            w_hh=np.eye(size, k=-features),
            bias=np.zeros(size),
            activation=IDENTITY,
        )
        return self.recurrent(line, where)

    def network(self, name: str) -> Network:
        """The network that computes it."""
        flow = self._merged()
        return Network(name=name, layers=(flow if flow.plain and not flow.relu else flow._settled()).layers)

    def _absorb(self, layer: Any) -> Any:
        weight, added = _compose(layer.w_ih, self.matrix, self.bias)
        key = "bias_ih" if isinstance(layer, Gru) else "bias"
        update = {"w_ih": weight, key: getattr(layer, key) + added, "input_relu": self.relu}
        return type(layer).model_validate({**dict(layer), **update})

    def _settled(self) -> "Flow":
        """The same, with its affine function as a dense layer."""
        matrix, bias = self._full("the end of the model")
        return self._add_dense(self.dense or "affine", matrix, bias, IDENTITY)

    def _add_dense(self, name: str, matrix: Floats, bias: Floats, function: ActivationFunction) -> "Flow":
        layer = Dense(
            name=self._unique(name),
            weight=matrix,
            bias=bias,
            activation=function.name,
            alpha=function.alpha,
            beta=function.beta,
            input_relu=self.relu,
        )
        return Flow(layers=(*self.layers, layer), width=layer.outputs)

    def _merged(self) -> "Flow":
        """The same, with a sum or mean of a bidirectional layer's halves as that layer's merge mode."""
        last = self.layers[-1] if self.layers else None
        if self.dense or self.relu or np.any(self.bias) or self.matrix.ndim == 0:
            return self
        if not isinstance(last, Bidirectional) or last.merge != "concat":
            return self
        half = last.forward.outputs
        for merge, factor in (("sum", 1.0), ("average", 0.5)):
            if np.array_equal(self.matrix, np.hstack([np.eye(half), np.eye(half)]) * factor):
                layer = last.model_copy(update={"merge": merge})
                return Flow(layers=(*self.layers[:-1], layer), width=layer.outputs)
        return self

    def _unique(self, name: str) -> str:
        taken = {layer.name for layer in self.layers}
        unique, count = name, 2
        while unique in taken:
            unique, count = f"{name}_{count}", count + 1
        return unique


def _compose(weight: Floats, matrix: Floats, bias: Floats) -> tuple[Floats, Floats]:
    """``weight @ (matrix @ x + bias)`` as matrix and bias."""
    product = weight @ matrix if matrix.ndim else weight * matrix
    return product, weight @ np.broadcast_to(bias, (weight.shape[1],))
