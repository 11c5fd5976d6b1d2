"""Writes ONNX nodes for the operators of a TFLite file."""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rtlstm.gen.frontends.arrays import import_extra
from rtlstm.gen.frontends.reading import ReportBuilder
from rtlstm.gen.frontends.tflite.file import TfliteFile, TfliteOperator
from rtlstm.spec.errors import ModelError

__all__ = ["DOMAIN", "OPSET", "OnnxWriter"]

Floats = NDArray[np.float64]

DOMAIN: Final = "tflite"
"""The domain of operators that become no operator of ONNX."""
OPSET: Final = 17
_ACTIVATIONS: Final = ("NONE", "RELU", "RELU_N1_TO_1", "RELU6", "TANH", "SIGN_BIT")
_LIMITS: Final = {"RELU_N1_TO_1": (-1.0, 1.0), "RELU6": (0.0, 6.0)}
_OPERATORS: Final = {"RELU": "Relu", "TANH": "Tanh"}


class OnnxWriter:
    """The nodes and constants so far; tensors keep their names, if these are unique."""

    def __init__(self, file: TfliteFile, report: ReportBuilder) -> None:
        onnx = import_extra("onnx", "tflite")
        self._helper, self._float = onnx.helper, onnx.TensorProto.FLOAT
        self._from_array = onnx.numpy_helper.from_array
        self.file, self.report = file, report
        self._names: dict[int, str] = {}
        self._taken: set[str] = set()
        self._nodes: list[Any] = []
        self._constants: list[Any] = []
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
        name = self.fresh(name)
        self._constants.append(self._from_array(np.asarray(values), name))
        return name

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
        kind: str,
        inputs: Sequence[str],
        outputs: Sequence[str],
        name: str,
        domain: str = "",
        **attributes: Any,
    ) -> None:
        """Add a node."""
        made = self._helper.make_node(kind, inputs, outputs, name=name, domain=domain, **attributes)
        self._nodes.append(made)

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
        kind, given, name = (
            self.activation(operator),
            self.tensor(operator.outputs[0]),
            f"{operator.name}/activation",
        )
        if source == given:
            return
        if kind in _LIMITS:
            self.clip(source, given, name, *_LIMITS[kind])
        elif kind in _OPERATORS:
            self.node(_OPERATORS[kind], [source], [given], name)
        else:
            self.node(kind, [source], [given], name, domain=DOMAIN)

    def clip(self, source: str, given: str, name: str, low: float, high: float) -> None:
        """Add a Clip."""
        self.node("Clip", [source, self.constant("low", low), self.constant("high", high)], [given], name)

    def model(self) -> Any:
        """The ONNX model.

        Raises
        ------
        ModelError
            If nodes do not stand in their order, or two give one tensor.
        """
        file = self.file
        known = {self.tensor(index) for index in file.inputs} | {each.name for each in self._constants} | {""}
        for node in self._nodes:
            lost, twice = set(node.input) - known, known.intersection(filter(None, node.output))
            if lost or twice:
                what = "read a tensor that is there" if lost else "give a new tensor"
                names = ", ".join(sorted(map(repr, lost or twice)))
                raise ModelError(f"{node.name!r} must {what}, not {names}; convert the model again")
            known |= set(node.output)
        info = {index: self._info(index) for index in range(len(file.tensors)) if self.tensor(index) in known}
        graph = self._helper.make_graph(
            self._nodes,
            "model",
            [info[index] for index in file.inputs],
            [self._info(index) for index in file.outputs],
            self._constants,
            value_info=[each for index, each in info.items() if index not in (*file.inputs, *file.outputs)],
        )
        opsets = [
            self._helper.make_opsetid(domain, version) for domain, version in (("", OPSET), (DOMAIN, 1))
        ]
        return self._helper.make_model(graph, opset_imports=opsets)

    def _info(self, index: int) -> Any:
        shape = [None if size < 0 else size for size in self.file.tensors[index].shape]
        return self._helper.make_tensor_value_info(self.tensor(index), self._float, shape)
