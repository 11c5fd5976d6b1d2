"""Options and results of reading a model: the part to take, the report, the network, its integer weights."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from rtlstm.gen.frontends.arrays import Floats, listed
from rtlstm.host.embeddings import Embedding, Tables
from rtlstm.spec.errors import InputError
from rtlstm.spec.fixed import WeightFormat
from rtlstm.spec.layout import Pad
from rtlstm.spec.network import Bidirectional, FloatArray, Network, Reader, StatelessLayer
from rtlstm.spec.record import Option, Record

MATRICES = ("w_ih", "w_hh", "projection", "weight")
"""The fields of layers that are matrices of weights."""


class IntegerWeights(Record):
    """A matrix of a network's layer whose weights are integers in the model."""

    layer: str
    weight: str
    """The layer's field: ``w_ih``, ``w_hh``, ``projection`` or ``weight``."""
    read: int = 0
    """Index of the result that the layer reads whose columns these are."""
    bits: int
    """Bits of the model's integers."""
    largest: int
    """Largest magnitude of an integer less its zero point."""
    zero_points: bool
    """Whether there are zero points other than 0."""
    steps: tuple[float, ...]
    """The model's step of each row, 0 for a row of zeros; or one, if it is that of all rows."""

    @property
    def exact_bits(self) -> int | None:
        """Return the least bits of weights that hold these exactly; None if a step is no power of two."""
        whole = all(np.frexp(step)[0] == 0.5 for step in self.steps if step)
        return max(2, self.largest.bit_length() + 1) if whole else None


@dataclass(frozen=True)
class _Row:
    step: float
    bits: int
    zero_points: bool
    tensors: frozenset[str]


class IntegerRows:
    """The rows of the model's integer weights, by their values: readers reorder, join and split matrices."""

    def __init__(self) -> None:
        self._rows: dict[bytes, _Row] = {}
        self._tensors: dict[str, None] = {}

    def __bool__(self) -> bool:
        return bool(self._tensors)

    def add(self, tensor: str, values: Floats, steps: Floats, bits: int, zero_points: bool) -> None:
        """Add a tensor's weights, ``(..., rows, columns)``, either of the last axes may be a layer's rows.

        ``steps`` has the same shape, and ``values`` are whole multiples of them.
        """
        self._tensors[tensor] = None
        for array, step in ((values, steps), (values.swapaxes(-1, -2), steps.swapaxes(-1, -2))):
            for row, its in zip(_rows(array), _rows(step), strict=True):
                key = _key(row)
                tensors = self._rows[key].tensors if key in self._rows else frozenset[str]()
                self._rows[key] = _Row(float(its.min()), bits, zero_points, tensors | {tensor})

    def find(self, network: Network) -> tuple[tuple[IntegerWeights, ...], tuple[str, ...]]:
        """Return which of a network's matrices these are, and notes on them for the user."""
        found, notes = [], []
        used: set[str] = set()
        for layer, name, read, matrix in _matrices(network):
            rows = [self._rows.get(_key(row)) if row.any() else None for row in matrix]
            known = [row for row in rows if row is not None]
            if not known or len(known) < int(matrix.any(axis=1).sum()):
                continue
            used.update(*(row.tensors for row in known))
            steps = np.array([0.0 if row is None else row.step for row in rows])
            weights = IntegerWeights(
                layer=layer,
                weight=name,
                read=read,
                bits=max(row.bits for row in known),
                largest=round(float((np.abs(matrix).max(axis=1) / np.where(steps, steps, 1.0)).max())),
                zero_points=any(row.zero_points for row in known),
                steps=tuple(steps.tolist()) if len({row.step for row in known}) > 1 else (known[0].step,),
            )
            found.append(weights)
            notes.append(_note(weights, matrix, steps))
        lost = [tensor for tensor in self._tensors if tensor not in used]
        if lost:
            notes.append(
                f"the model's integers {listed(map(repr, lost))} are no layer's weights as they stand: they "
                "are folded into other numbers, or outside of the core"
            )
        return tuple(found), tuple(notes)


def change_text(change: Floats, steps: Floats) -> str:
    """Return the largest change of weights, in the model's steps and as it is; ``steps`` is 0 without one."""
    relative = change / np.where(steps > 0, steps, np.inf)
    return f"at most {relative.max():.2g} of the model's step ({change.max():.2g})"


def _rows(array: Floats) -> Iterator[Floats]:
    yield from array.reshape(-1, array.shape[-1])


def _key(row: Floats) -> bytes:
    # Without the sign of zeros. A digest, because all rows together are as large as the model.
    return blake2b(np.ascontiguousarray(row + 0.0).tobytes(), digest_size=16).digest()


def directions_of(layer: Any) -> tuple[Any, ...]:
    """Return a layer's directions, forward first; a layer of one direction as it is."""
    return (layer.forward, layer.backward) if isinstance(layer, Bidirectional) else (layer,)


def read_parts(layer: Reader | StatelessLayer, name: str) -> tuple[Floats, ...]:
    """Return a matrix of a layer: its columns for each result that it reads, or all if they read h."""
    matrix = getattr(layer, name, None)
    if isinstance(layer, Reader) and matrix is layer.input_weights:
        return tuple(columns for _, columns in layer.products)
    return () if matrix is None else (matrix,)


def _matrices(network: Network) -> Iterator[tuple[str, str, int, Floats]]:
    """Yield the name of the layer, that of the field, the index of what is read, and the matrix."""
    for layer in network.layers:
        for one in directions_of(layer):
            for name in MATRICES:
                for read, matrix in enumerate(read_parts(one, name)):
                    yield one.name, name, read, matrix


def _note(weights: IntegerWeights, matrix: Floats, steps: Floats) -> str:
    some = sorted({step for step in weights.steps if step})
    of_rows = f"{some[0]:.3g} to {some[-1]:.3g}, one for each row" if len(some) > 1 else f"{some[0]:.6g}"
    exact = weights.exact_bits
    zero = "with zero points other than 0, " if weights.zero_points else ""
    kind = "powers of two" if exact else "not powers of two" if len(some) > 1 else "not a power of two"
    if exact and len(some) == 1:
        kind = "a power of two"
    name = f"{weights.weight} (read {weights.read + 1})" if weights.read else weights.weight
    text = (
        f"{name} of {weights.layer!r} has integers of {weights.bits} bits in the model, {zero}"
        f"in steps of {of_rows} ({kind}): "
    )
    if exact:
        return f"{text}`weight_bits={exact}` or more holds them exactly"
    change = np.abs(WeightFormat(weights.bits).rounded(matrix) - matrix)
    changes = change_text(change, np.broadcast_to(steps[:, None], matrix.shape))
    return (
        f"{text}`weight_bits={weights.bits}` changes them by {changes}, more bits by less; "
        "`scale_bits=16` keeps them"
    )


Role = Literal["core", "shape", "state", "outside", "refused"]
"""How a node is treated: computed by the core, only moving axes, only about state, left outside
of the core (its work stays with the caller), or refused."""

OWN_STATE = (
    "which a build has as state.npz: the driver's sequences and streams begin in it, and reset returns to it"
)
"""What becomes of the state in which a model begins."""

LOOKED_UP = "looked up before the network"
ROWS_READ = "the network reads its rows, which a build has as embeddings.npz"
"""What becomes of a table, unless the core looks up; a note on one ends with the latter."""

LEFT_BEFORE = " stay outside of the core"
"""What a note says of nodes in front of the core: its input is not the model's."""

InitialState = tuple[tuple[FloatArray, ...], tuple[FloatArray, ...]]
"""h and c of each layer, ``(units,)``, in which a model begins."""

_ModelOption = partial(Option, group="Model")


class ReadOptions(Record):
    """Which part of a model to take.

    Names are those that ``rtlstm inspect`` shows: of nodes, modules, layers or operators, or of the tensors
    they give. ``lstm`` is the recurrent layer to begin with (of files of tensors, the prefix of its names;
    several prefixes joined by commas are stacked layers), ``begin`` what gives the tensor to begin at, and
    ``output`` where to end; Keras' ``LAYER:linear`` is a layer's result before its activation. ``dense``
    lists the dense layers of a file of tensors in order, each ``NAME``, ``NAME:ACTIVATION`` or
    ``relu:NAME:ACTIVATION`` (ReLU on what the layer reads); an empty list, or ``none`` alone, takes none.
    ``branches`` chooses among the branches of an ONNX model's If nodes, each ``NODE:then`` or ``NODE:else``.
    ``input_widths`` are the features of inputs, each ``NAME:WIDTH``, of a module that has several.
    ``sequence_length`` is the number of steps that a mean over the steps divides by.
    """

    lstm: Annotated[
        str | None,
        _ModelOption(
            "Recurrent layer to begin with: a node, module or tensor prefix. Commas separate stacked layers."
        ),
    ] = None
    begin: Annotated[
        str | None,
        _ModelOption(
            "Tensor, node or module whose result the core reads first.", flag="--input-tensor", metavar="NAME"
        ),
    ] = None
    output: Annotated[
        str | None,
        _ModelOption(
            "Tensor, node or Keras layer to end at. LAYER:linear ends before the layer's activation.",
            flag="--output-tensor",
        ),
    ] = None
    dense: Annotated[
        tuple[str, ...] | None,
        _ModelOption(
            "Dense layer of a state dict, in order: NAME, NAME:ACTIVATION or "
            "relu:NAME:ACTIVATION; none takes none. May be repeated.",
            metavar="LAYER",
        ),
    ] = None
    branches: Annotated[
        tuple[str, ...],
        _ModelOption(
            "Branch of an ONNX If node: NODE:then or NODE:else. May be repeated.",
            flag="--branch",
            metavar="NODE:BRANCH",
        ),
    ] = ()
    input_widths: Annotated[
        tuple[str, ...],
        _ModelOption(
            "Width of one of several inputs: NAME:WIDTH. May be repeated.",
            flag="--input-width",
            metavar="NAME:WIDTH",
        ),
    ] = ()
    sequence_length: Annotated[
        int | None, Field(ge=1), _ModelOption("Steps of a sequence, for a mean over them.", metavar="STEPS")
    ] = None


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
    state_inputs: tuple[str, ...] = ()
    """The model's inputs in which its recurrent layers begin."""

    @property
    def outside(self) -> tuple[NodeReport, ...]:
        """The nodes whose work stays with the caller."""
        return tuple(node for node in self.nodes if node.role == "outside")

    @property
    def front(self) -> str:
        """Why the core's input is not the model's, and what to do, for a refusal of data; empty if it is."""
        notes = [note for note in self.notes if LEFT_BEFORE in note]
        because = "give what the model computes where the core begins, because "
        return "".join(because + note for note in notes[:1])

    @property
    def decides(self) -> bool:
        """Whether the host makes probabilities or classes of the outputs."""
        return any(host_classes(node.kind) is not None for node in self.outside)

    def decided(self, decide: str) -> "ModelReport":
        """The report for a device that decides so: what it computes of scores is not left to the host."""
        by_device = ["softmax"] if decide == "softmax" else [*_HOST]

        def of_probabilities(text: str) -> str:
            return text.replace(_HOST["softmax"], "y") if decide == "softmax" else text

        nodes = tuple(
            node.replace(role="core", why="the device decides")
            if node.role == "outside" and _host_name(node.kind) in by_device
            else node.replace(why=of_probabilities(node.why))
            for node in self.nodes
        )
        done = tuple(host_note("", _HOST[name]) for name in by_device)
        notes = (note for note in self.notes if not note.endswith(done))
        return self.replace(nodes=nodes, notes=tuple(map(of_probabilities, notes)))

    def looked_up_in_core(self) -> "ModelReport":
        """The report for a core that looks up: its table is not left to the host."""
        nodes = tuple(
            node.replace(role="core", why="the core looks up") if node.why.startswith(LOOKED_UP) else node
            for node in self.nodes
        )
        notes = tuple(note for note in self.notes if not note.endswith(ROWS_READ))
        return self.replace(nodes=nodes, notes=notes)


class ReadResult(Record):
    """A network and the report on the model that it was read from.

    ``embeddings`` are the model's tables, for the host to look up before the network. ``initial_state`` is
    the state in which the model begins, if that is not zero: h and c of each layer, ``(units,)``.
    """

    network: Network
    report: ModelReport
    embeddings: tuple[Embedding, ...] = ()
    initial_state: InitialState | None = None

    def looked_up(
        self, x: Any, name: str = "x", lengths: Any = None, batch_first: bool | None = None, pad: Pad = "back"
    ) -> NDArray[Any]:
        """Return rows of the model's table for tokens ``(T,)``, ``(T, N)`` or ``(N, T)``; other data as is.

        ``name`` is that of the data in messages; see :meth:`rtlstm.host.embeddings.Tables.look_up`.

        Raises
        ------
        InputError
            If they are not numbers of rows of the table, or the model has several tables.
        """
        parts = self.network.input_parts
        tables = Tables(self.embeddings, self.network.frames, self.report.batch_first, parts)
        return tables.look_up(x, lengths, batch_first, pad, name=name)

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
        self.state_inputs: tuple[str, ...] = ()
        self.found: Any = None
        """What the reader of graphs found, :class:`rtlstm.gen.frontends.reader.Found`; None without one."""

    def node(self, name: str, kind: str, role: Role, why: str = "") -> None:
        """Record one node."""
        self.nodes.append(NodeReport(name=name, kind=kind, role=role, why=why))

    def note(self, text: str) -> None:
        """Record a note for the user, once."""
        if text not in self.notes:
            self.notes.append(text)

    def constant_output(self, name: str) -> None:
        """Record that the core does not give an output, because it is the same whatever the input is."""
        self.note(f"the model's output {name!r} does not depend on its input: the core does not give it")

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
        vars(self).update(_collected(report), nodes=list(report.nodes), notes=list(report.notes))
        self.embeddings = list(embeddings)

    def take_all(self, other: "ReportBuilder") -> None:
        """Become what another builder has collected."""
        vars(self).update({
            name: list(value) if isinstance(value, list) else value for name, value in vars(other).items()
        })  # fmt: skip

    def build(self, refusal: str = "") -> ModelReport:
        """Return the report as collected so far."""
        states = tuple(dict.fromkeys(self.state_inputs))
        lists = {"nodes": tuple(self.nodes), "notes": tuple(self.notes), "state_inputs": states}
        return ModelReport(**_collected(self) | lists, refusal=refusal)


def _collected(report: "ModelReport | ReportBuilder") -> dict[str, Any]:
    return {name: getattr(report, name) for name in ModelReport.model_fields if name != "refusal"}


# Classes, which the host computes of scores


_STAYS = " stays on the host: "
_HOST = {
    "softmax": "rtlstm.host.softmax(y)",
    "logsoftmax": "numpy.log(rtlstm.host.softmax(y))",
    "argmax": "rtlstm.host.argmax(y)",
}
"""The host's function for an operator, by its name in small letters without underscores."""


def _host_name(kind: str) -> str:
    return kind.lower().replace("_", "")


def host_classes(kind: str, part: str = "") -> str | None:
    """Return how the host computes an operator that makes probabilities or classes of scores, or None.

    Its scores are all of y, or the ``part`` of that name.
    """
    found = _HOST.get(_host_name(kind))
    return found and found.replace("(y)", f"(parts(y)[{part!r}])") if part else found


def host_note(where: str, host: str) -> str:
    """Return the note on an operator that the host computes."""
    return f"{where}{_STAYS}{host}"
