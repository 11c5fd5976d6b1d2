"""Builds the graph of a TFLite file, node by node."""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rtlstm.gen.frontends.graph import Graph, Node, Stored, Words
from rtlstm.gen.frontends.reading import ReportBuilder
from rtlstm.gen.frontends.tflite.file import TfliteFile, TfliteOperator
from rtlstm.spec.activations.functions import ActivationFunction, FunctionName
from rtlstm.spec.errors import ModelError

Floats = NDArray[np.float64]

_ACTIVATIONS: Final = ("NONE", "RELU", "RELU_N1_TO_1", "RELU6", "TANH", "SIGN_BIT")
_LIMITS: Final = {"RELU_N1_TO_1": (-1.0, 1.0), "RELU6": (0.0, 6.0)}
_FUNCTIONS: Final[dict[str, FunctionName]] = {"RELU": "relu", "TANH": "tanh"}


class GraphWriter:
    """The nodes and constants so far; tensors keep their names, if these are unique."""

    def __init__(self, file: TfliteFile, report: ReportBuilder) -> None:
        self.file, self.report = file, report
        self._names: dict[int, str] = {}
        self._taken: set[str] = set()
        self._nodes: list[Node] = []
        self._constants = Stored()
        for index, tensor in enumerate(file.tensors):
            self._names[index] = self.fresh(tensor.name)

    # Names

    def fresh(self, name: str) -> str:
        """A name that no tensor has yet."""
        unique, count = name, 2
        while unique in self._taken:
            unique, count = f"{name}:{count}", count + 1
        self._taken.add(unique)
        return unique

    def tensor(self, index: int) -> str:
        """The name of a tensor of the file; empty of one that is left out."""
        return self._names[index] if index >= 0 else ""

    def alias(self, index: int, source: int) -> None:
        """From now on, a tensor is another one."""
        self._names[index] = self._names[source]

    # Constants

    def constant(self, name: str, values: ArrayLike) -> str:
        """Add a constant and return its name."""
        return self._constants.add(self.fresh(name), np.asarray(values))

    def integers(self, values: Sequence[int]) -> str:
        """Add whole numbers, as shapes and axes are, and return their name."""
        return self.constant("numbers", np.asarray(values, np.int64))

    def weights(self, index: int, what: str, *, negative: bool = False) -> Floats:
        """A constant tensor's values, or these with the other sign; reports which are quantised.

        Raises
        ------
        ModelError
            If they are integers, and nothing says what scale they have; or as :meth:`TfliteFile.constant`.
        """
        tensor = self.file.tensors[index]
        if not (tensor.bits or tensor.kind.startswith("FLOAT")):
            raise ModelError(
                f"{what} ({tensor.name!r}) must be floats, or integers with a scale, but has {tensor.kind} "
                "without one; convert the model again"
            )
        return self._constant(index, what, negative)

    def _constant(self, index: int, what: str, negative: bool = False) -> Floats:
        found = self.file.constant(index, what)
        values = -found.values if negative else found.values
        if found.steps is not None and values.ndim == 2:
            self.report.integer_rows.add(
                self.tensor(index), values, found.steps, found.bits, found.zero_points
            )
        return values

    def operand(self, index: int, what: str) -> str:
        """The name of a tensor that may be constant."""
        if not self.file.is_constant(index):
            return self.tensor(index)
        return self.constant(self.tensor(index), self._constant(index, what))

    # Nodes

    def node(
        self,
        operator: TfliteOperator,
        kind: str,
        inputs: Sequence[str],
        outputs: Sequence[str],
        part: str = "",
        **attributes: Any,
    ) -> None:
        """Add a node of an operator; ``part`` names one of several, which reports leave out."""
        label = f"{operator.name}/{part}" if part else operator.name
        self._nodes.append(
            Node(
                kind,
                tuple(inputs),
                tuple(outputs),
                label,
                operator.kind,
                attributes,
                " operator",
                hidden=bool(part),
            )
        )

    def activation(self, operator: TfliteOperator) -> str:
        """The name of an operator's fused activation function."""
        number = int(operator.option("FusedActivationFunction"))
        return _ACTIVATIONS[number] if 0 <= number < len(_ACTIVATIONS) else f"number {number}"

    def activated(self, operator: TfliteOperator) -> str:
        """The tensor that an operator must give, so that its fused activation function gives its output.

        The node of the function is added by :meth:`activate`.
        """
        given = self.tensor(operator.outputs[0])
        return given if self.activation(operator) == "NONE" else self.fresh(f"{operator.name}/sum")

    def activate(self, operator: TfliteOperator, source: str) -> None:
        """Add an operator's fused activation function behind ``source``."""
        kind, given = self.activation(operator), self.tensor(operator.outputs[0])
        if source == given:
            return
        if kind in _LIMITS:
            low, high = _LIMITS[kind]
            self.node(operator, "clip", [source], [given], "activation", min=low, max=high)
        elif kind in _FUNCTIONS:
            function = ActivationFunction.of(_FUNCTIONS[kind])
            self.node(operator, "activation", [source], [given], "activation", function=function)
        else:
            why = f"{operator.where}: fused_activation_function={kind} is not supported"
            self.node(operator, "refused", [source], [given], "activation", why=why)

    def graph(self, supported: Sequence[str]) -> Graph:
        """The whole graph; ``supported`` are the operators that are read.

        Raises
        ------
        ModelError
            If nodes do not stand in their order, or two give one tensor.
        """
        file = self.file
        known = {self.tensor(index) for index in file.inputs} | {""}
        for node in self._nodes:
            lost = {name for name in node.inputs if name not in known and name not in self._constants}
            twice = known.intersection(filter(None, node.outputs))
            if lost or twice:
                what = "read a tensor that is there" if lost else "give a new tensor"
                names = ", ".join(sorted(map(repr, lost or twice)))
                raise ModelError(f"{node.label!r} must {what}, not {names}; convert the model again")
            known |= set(node.outputs)
        shapes = {self.tensor(index): tuple(each.shape) for index, each in enumerate(file.tensors)}
        return Graph(
            self._nodes,
            [self.tensor(index) for index in file.inputs],
            [self.tensor(index) for index in file.outputs],
            self._constants,
            words=Words(
                "a recurrent operator",
                "a tensor or an operator",
                ", ".join(sorted(supported)),
                "a UNIDIRECTIONAL_SEQUENCE_LSTM, or a FULLY_CONNECTED on the way to its output",
            ),
            dimensions=lambda name: tuple("" if size < 0 else size for size in shapes.get(name, ())),
            integer_rows=self.report.integer_rows,
        )
