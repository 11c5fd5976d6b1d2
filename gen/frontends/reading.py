"""Options and results of reading a model: the part to take, the report, the network."""

from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rtlstm.gen.frontends.integer_weights import IntegerRows, IntegerWeights
from rtlstm.host.raw_values import as_array
from rtlstm.spec.errors import InputError
from rtlstm.spec.network import FloatArray, Network
from rtlstm.spec.options import Option
from rtlstm.spec.record import Record

Role = Literal["core", "shape", "state", "outside", "refused"]
"""How a node is treated: computed by the core, only moving axes, only about state, left outside
of the core (its work stays with the caller), or refused."""

InitialState = tuple[tuple[FloatArray, ...], tuple[FloatArray, ...]]
"""h and c of each layer, ``(units,)``, in which a model begins."""

_MODEL = "Model"


class ReadOptions(Record):
    """Which part of a model to take.

    Names are those that ``rtlstm inspect`` shows: of nodes, modules, layers or operators, or of the tensors
    they give. ``lstm`` is the recurrent layer to begin with (of files of tensors, the prefix of its names;
    several prefixes joined by commas are stacked layers), ``begin`` a tensor in front of it to begin at, and
    ``output`` where to end; Keras' ``LAYER:linear`` is a layer's result before its activation. ``dense``
    lists the dense layers of a file of tensors in order, each ``NAME``, ``NAME:ACTIVATION`` or
    ``relu:NAME:ACTIVATION`` (ReLU on what the layer reads); an empty list, or ``none`` alone, takes none.
    ``branches`` chooses among the branches of an ONNX model's If nodes, each ``NODE:then`` or ``NODE:else``.
    """

    lstm: Annotated[
        str | None,
        Option(
            "Recurrent layer to begin with: a node, module or tensor prefix. Commas separate stacked layers.",
            group=_MODEL,
        ),
    ] = None
    begin: Annotated[
        str | None,
        Option(
            "Tensor of an ONNX or TFLite model to begin at.",
            group=_MODEL,
            flag="--input-tensor",
            metavar="TENSOR",
        ),
    ] = None
    output: Annotated[
        str | None,
        Option(
            "Tensor, node or Keras layer to end at. LAYER:linear ends before the layer's activation.",
            group=_MODEL,
            flag="--output-tensor",
        ),
    ] = None
    dense: Annotated[
        tuple[str, ...] | None,
        Option(
            "Dense layer of a state dict, in order: NAME, NAME:ACTIVATION or "
            "relu:NAME:ACTIVATION; none takes none. May be repeated.",
            group=_MODEL,
            metavar="LAYER",
        ),
    ] = None
    branches: Annotated[
        tuple[str, ...],
        Option(
            "Branch of an ONNX If node: NODE:then or NODE:else. May be repeated.",
            group=_MODEL,
            flag="--branch",
            metavar="NODE:BRANCH",
        ),
    ] = ()


class NodeReport(Record):
    """One node, module or tensor group of the model, and how it is treated."""

    name: str
    kind: str
    role: Role
    why: str = ""

    @property
    def supported(self) -> bool:
        """Whether this node is supported."""
        return self.role != "refused"


class ModelReport(Record):
    """What ``inspect`` prints about a model.

    ``input`` and ``output`` are the tensors at which the core's network was cut out of the
    model; ``refusal`` is why the model cannot be read, or empty.
    """

    source: str
    format: str
    name: str = ""
    model_inputs: tuple[str, ...] = ()
    model_outputs: tuple[str, ...] = ()
    input: str = ""
    output: str = ""
    nodes: tuple[NodeReport, ...] = ()
    notes: tuple[str, ...] = ()
    refusal: str = ""
    integer_weights: tuple[IntegerWeights, ...] = ()
    """The network's weights that are integers in the model already."""
    batch_first: bool | None = None
    """Whether the model takes sequences before steps; None if it does not tell, as files of tensors."""
    layout: str = ""
    """Why, and how data are read, if the model has sequences before steps."""

    @property
    def outside(self) -> tuple[NodeReport, ...]:
        """The nodes whose work stays with the caller."""
        return tuple(node for node in self.nodes if node.role == "outside")


class Embedding(Record):
    """A table that stays with the host: row ``i`` is what the network reads for the number ``i``."""

    name: str
    table: FloatArray

    def __call__(self, numbers: ArrayLike) -> NDArray[np.float64]:
        """Look up: ``(...)`` whole numbers to ``(..., width)``.

        Raises
        ------
        InputError
            If they are not row numbers of the table.
        """
        indices = np.asarray(numbers)
        if indices.dtype.kind not in "iu" or (
            indices.size and not 0 <= indices.min() <= indices.max() < len(self.table)
        ):
            raise InputError(
                f"{self.name} must look up whole numbers from 0 to {len(self.table) - 1}, but has others"
            )
        return np.asarray(self.table[indices])


def look_up(tables: Sequence[Embedding], x: ArrayLike, name: str = "x") -> NDArray[Any]:
    """Look up whole numbers in a model's only table; see :meth:`ReadResult.looked_up`."""
    array = as_array(name, x)
    if not tables or array.dtype.kind not in "iu" or array.ndim > 2:
        return array
    if len(tables) > 1:
        names = ", ".join(each.name for each in tables)
        raise InputError(
            f"{name} holds whole numbers, and the model looks numbers up in several tables ({names}): look "
            "them up in each of rtlstm.read_model(MODEL).embeddings, and give what the network reads of them"
        )
    return tables[0](array)


class ReadResult(Record):
    """A network and the report on the model that it was read from.

    ``embeddings`` are the model's tables, for the host to look up before the network. ``initial_state`` is
    the state in which the model begins, if that is not zero: h and c of each layer, ``(units,)``.
    """

    network: Network
    report: ModelReport
    embeddings: tuple[Embedding, ...] = ()
    initial_state: InitialState | None = None

    def looked_up(self, x: ArrayLike, name: str = "x") -> NDArray[Any]:
        """Return rows of the model's table for whole numbers in one or two axes; other data as they are.

        ``name`` is that of the data in messages.

        Raises
        ------
        InputError
            If they are not row numbers of the table, or the model has several tables.
        """
        return look_up(self.embeddings, x, name)

    def initial_state_of(self, sequences: int) -> tuple[tuple[FloatArray, ...], tuple[FloatArray, ...]]:
        """Return the state in which sequences begin, for the driver: ``(sequences, units)`` per layer.

        Raises
        ------
        InputError
            If the model begins with zeros: then the driver needs none.
        """
        if self.initial_state is None:
            raise InputError("this model begins with a state of zeros: leave the state out")
        h, c = (tuple(np.tile(layer, (sequences, 1)) for layer in part) for part in self.initial_state)
        return h, c

    def calibration_state(self, x: FloatArray, batch_first: bool | None = None) -> InitialState | None:
        """Return the state in which sequences of inputs begin, as ``calibration_state``; None for zeros.

        ``x`` is ``(T, I)`` or ``(T, N, I)``; ``(N, T, I)`` if ``batch_first``, by default as in the model.
        """
        if self.initial_state is None or x.ndim != 3:
            return self.initial_state
        batch_first = self.report.batch_first if batch_first is None else batch_first
        return self.initial_state_of(x.shape[0 if batch_first else 1])


class ReportBuilder:
    """Collects a report while a front end reads, so that a refusal still leaves one."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.format = "unknown"
        self.name = ""
        self.model_inputs: tuple[str, ...] = ()
        self.model_outputs: tuple[str, ...] = ()
        self.input = ""
        self.output = ""
        self.nodes: list[NodeReport] = []
        self.notes: list[str] = []
        self.embeddings: list[Embedding] = []
        self.initial_state: InitialState | None = None
        self.integer_rows = IntegerRows()
        self.integer_weights: tuple[IntegerWeights, ...] = ()
        self.batch_first: bool | None = None
        self.layout = ""

    def node(self, name: str, kind: str, role: Role, why: str = "") -> None:
        """Record one node."""
        self.nodes.append(NodeReport(name=name, kind=kind, role=role, why=why))

    def note(self, text: str) -> None:
        """Record a note for the user, once."""
        if text not in self.notes:
            self.notes.append(text)

    def takes_sequences_first(self, why: str) -> None:
        """Record that data have sequences before steps in the model; ``why`` is a clause of a note."""
        self.batch_first = True
        self.layout = (
            f"{why}: data are (sequences, steps, features), or (steps, sequences, features) with "
            "`batch_first=False`"
        )

    def takes_steps_first(self) -> None:
        """Record that data have steps before sequences in the model."""
        self.batch_first, self.layout = False, ""

    def find_integers(self, network: Network) -> None:
        """Record which of a network's weights are integers in the model."""
        if self.integer_rows:
            self.integer_weights, notes = self.integer_rows.find(network)
            for note in notes:
                self.note(note)

    def take(self, report: ModelReport, embeddings: Iterable[Embedding]) -> None:
        """Continue with what another report has collected."""
        fields = {name: getattr(report, name) for name in ModelReport.model_fields if name != "refusal"}
        vars(self).update(fields, nodes=list(report.nodes), notes=list(report.notes))
        self.embeddings = list(embeddings)

    def build(self, refusal: str = "") -> ModelReport:
        """Return the report as collected so far."""
        return ModelReport(
            source=self.source,
            format=self.format,
            name=self.name,
            model_inputs=self.model_inputs,
            model_outputs=self.model_outputs,
            input=self.input,
            output=self.output,
            nodes=tuple(self.nodes),
            notes=tuple(self.notes),
            refusal=refusal,
            integer_weights=self.integer_weights,
            batch_first=self.batch_first,
            layout=self.layout,
        )
