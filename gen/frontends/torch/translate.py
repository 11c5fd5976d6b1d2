"""Translates PyTorch's operations into the graph that the reader reads, call by call.

A traced module, an exported program and TorchScript each walk what they have, and tell the
:class:`Translator` every call. :mod:`rtlstm.gen.frontends.torch.operators` has what an operation becomes.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from rtlstm.gen.frontends.arrays import FLOAT_TYPES, fresh
from rtlstm.gen.frontends.formulas import COMPARED, ELEMENTWISE
from rtlstm.gen.frontends.graph import Graph, Node, Stored, WeightsError, Words, input_rank
from rtlstm.gen.frontends.layers import WEIGHTED
from rtlstm.gen.frontends.reading import ReadOptions, ReportBuilder
from rtlstm.spec.errors import ModelError
from rtlstm.spec.files import Budget

_END: Final = 2**31 - 1
"""An index beyond the end of any axis."""
FEW_STEPS: Final = 64
"""Steps of a loop that are gone through to tell what each computes: the second to the last must be alike.

Two would tell it, but a module may do something else in a later one, as ``if t > 10: break`` does.
"""


class Few(int):
    """A number that is known because a loop over the steps is gone through a few times alone."""


class Tensor(str):
    """A tensor of the graph, by its name."""


class Number(Tensor):
    """Whole numbers that follow from sizes of tensors, one or several: only a run knows them."""


class Packed(Tensor):
    """A PackedSequence."""


class Constant:
    """What does not depend on the model's inputs: its value is loaded when it is asked for."""

    def __init__(self, load: Callable[[], Any], name: str = "") -> None:
        self._load, self.name = load, name
        self._value: Any = None
        self.base: Constant | None = None
        """The constant that this is a view of."""
        self.view: tuple[str, Mapping[str, Any]] = "", {}
        """The operator that gives it of its base, and its attributes."""
        self.sizes: Sequence[Any] = ()
        """Its sizes, where only a run knows one: the value has 1 there."""

    @property
    def value(self) -> Any:
        """The value as an array, float64 if it is of floats."""
        if self._value is None:
            try:
                array = self._load()
            except ModelError as error:
                raise WeightsError(str(error)) from None
            self._value = array.astype(np.float64) if array.dtype.kind == "f" else array
        return self._value

    @classmethod
    def of(cls, value: Any, name: str = "") -> "Constant":
        """A number, an array, or a tensor of PyTorch, which is converted when it is asked for."""
        if hasattr(value, "detach"):
            return cls(lambda: _array(value, name), name)
        return cls(lambda: np.asarray(value), name)


def _array(tensor: Any, name: str) -> Any:
    kind, what = str(tensor.dtype).removeprefix("torch."), f"tensor {name!r}"
    if tensor.is_meta:
        raise ModelError(f"{what} must have values, but is on PyTorch's meta device; load the weights first")
    if tensor.is_floating_point() or tensor.is_complex() or tensor.is_quantized:
        if kind not in FLOAT_TYPES:
            raise ModelError(f"{what} must be one of {', '.join(FLOAT_TYPES)}, not {kind}")
        tensor = tensor.double()
    return tensor.detach().cpu().numpy()


@dataclass(frozen=True)
class Shape:
    """The sizes of a tensor, before one of them is taken."""

    tensor: Tensor


@dataclass(frozen=True)
class Parts:
    """A list of tensors whose length is not known: ``take`` gives one by its number, for the call at hand."""

    take: Callable[["Call", int], Any]
    count: Callable[["Call"], Any] | None = None
    """Gives how many there are, as a size that only a run knows."""


def flat(values: Any) -> Iterator[Any]:
    """What a nest of tuples, lists, slices and dictionaries holds."""
    if isinstance(values, list | tuple):
        for item in values:
            yield from flat(item)
    elif isinstance(values, dict):
        yield from flat(list(values.values()))
    elif isinstance(values, slice):
        yield from flat([values.start, values.stop, values.step])
    elif values is not None:
        yield values


def whole(value: Any) -> int | None:
    """A whole number that is known, or None."""
    if isinstance(value, Constant) and value.value.size == 1 and value.value.dtype.kind in "iu":
        value = value.value.item()
    return int(value) if isinstance(value, int | np.integer) and not isinstance(value, bool) else None


_OTHER_NAMES = {
    **dict.fromkeys(("self", "input", "tensor", "l", "list", "a"), "x"),
    "b": "other", "x2": "other", "axis": "dim", "axis0": "dim0", "axis1": "dim1", "keepdims": "keepdim",
}  # fmt: skip
"""Other names of arguments: of the first one, and NumPy's, which PyTorch takes, too."""
WITHOUT_EFFECT = {
    "_stacklevel", "allow_tf32", "benchmark", "copy", "cudnn_enable", "cudnn_enabled", "deterministic",
    "device", "enforce_sorted", "half_to_float", "implicit", "inplace", "keepdim", "layout", "lengths",
    "memory_format", "momentum", "non_blocking", "norm_type", "num_batches_tracked", "output_padding", "p",
    "padding_idx", "pin_memory", "requires_grad", "scale_grad_by_freq", "sparse", "total_length",
    "train", "training",
}  # fmt: skip
"""Arguments that change nothing when a trained model is used, or only what the driver gives."""


@dataclass(frozen=True)
class Operation:
    """What translates an operation, and its parameters in their order.

    ``one/other`` are two names of one parameter. The last one takes all that is left if it has a star.
    """

    translate: Callable[["Call"], Any]
    parameters: str = "x"

    def arguments(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Arguments by the first names of their parameters; what has none is called by its number."""
        names = [each.split("/") for each in self.parameters.replace("*", "").split()]
        others = _OTHER_NAMES | {other: first for first, *more in names for other in more}
        most = len(names) - 1
        if "*" in self.parameters and len(args) > most:
            rest = args[most:]
            args = (*args[:most], rest[0] if len(rest) == 1 else list(rest))
        order = [first for first, *_ in names] + [f"argument {at}" for at in range(most + 2, len(args) + 1)]
        found = dict(zip(order, args, strict=False))
        return found | {others.get(key, key): value for key, value in kwargs.items()}


@dataclass(frozen=True)
class Call:
    """One operation with its arguments: tensors, constants, numbers, and tuples of these."""

    to: "Translator"
    operation: str
    given: Mapping[str, Any]
    """Its arguments by name; the first one, the tensor to work on, is ``x``."""
    label: str
    kind: str
    output: str
    """The name of the tensor that it gives."""
    module: Any = None
    """The module of ``torch.nn`` that is called, if it is one with layers."""
    notes: tuple[str, ...] = ()
    why: str = ""
    """Why it is refused, if the core needs it."""
    overwrites: bool = False
    """Whether it writes over what it reads first."""
    read: set[str] = field(default_factory=set)
    """Names of arguments that the translation has asked for."""

    @property
    def where(self) -> str:
        """The call as messages name it."""
        return f"{self.kind} {self.label!r}"

    def get(self, name: str, default: Any = None) -> Any:
        """An argument by its name."""
        self.read.add(name)
        return self.given.get(name, default)

    @property
    def x(self) -> Any:
        """The first argument: the tensor to work on."""
        return self.get("x")

    def options(self) -> dict[str, Any]:
        """All arguments but the first one."""
        self.read.update(self.given)
        return {name: value for name, value in self.given.items() if name != "x"}

    def rest(self, name: str) -> list[Any]:
        """Arguments given one by one, or as one list."""
        values = self.get(name)
        return list(values) if isinstance(values, list | tuple) else [values]

    def whole(self, value: Any, what: str = "axes") -> int:
        """A whole number, which must be known before the run."""
        found = whole(self.to.counted(value) if self.to.unrolled else value)
        if found is None:
            raise ModelError(f"{self.where} must have constant {what}, not {_shown(value)}")
        return found

    def axis(self) -> int:
        """The axis that it works along, by default the first one."""
        return self.whole(self.get("dim", default=0))

    def wholes(self, values: Any, what: str = "axes") -> list[int]:
        """One or several whole numbers."""
        if isinstance(values, Constant):
            values = values.value.reshape(-1).tolist()
        return [self.whole(each, what) for each in (values if isinstance(values, list | tuple) else [values])]

    def number(self, name: str, default: float | None = None) -> float:
        """A number that is known before the run."""
        value = self.get(name)
        value = self.known(default if value is None else value, name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ModelError(f"{self.where}: {name} must be a constant number, not {_shown(value)}")
        return float(value)

    def known(self, value: Any, name: str) -> Any:
        """An argument that is no tensor: a number, a text or a truth value."""
        if isinstance(value, Constant) and value.value.size == 1:
            value = value.value.item()
        if isinstance(value, Tensor | Constant | Parts | Shape):
            raise ModelError(f"{self.where}: {name} must be a constant number, not {_shown(value)}")
        return value

    def check_read(self, result: Any) -> None:
        """Refuse an argument that the translation has not asked for, unless it does not matter."""
        for name, value in self.given.items():
            no_fraction = getattr(value, "is_floating_point", True) is False and isinstance(result, Tensor)
            harmless = name in ("x", *WITHOUT_EFFECT) or (name.endswith("dtype") and not no_fraction)
            if name not in self.read and not harmless and value is not None and value is not False:
                raise ModelError(f"{self.where}: {name}={_shown(value)} is not supported")

    def emit(
        self,
        operator: str,
        *inputs: Any,
        inner: bool = False,
        outputs: Iterable[int | str] = (),
        **given: Any,
    ) -> Any:
        """Add a node, or compute it if nothing but constants goes in; return what it gives.

        ``inner`` is a node in front of the last one of this call. ``outputs`` are ends of the names of
        further tensors that it gives.
        """
        values = [self.to.current(value) for value in inputs]
        numbers = any(isinstance(value, Number) for value in values)
        numbers = numbers and all(isinstance(value, Number | int | Constant) for value in values)
        if operator in _OF_FLOATS and not numbers:
            values = [_floating(value) for value in values]
        found = _folded(operator, values, given, self.to.budget)
        if found is not None:
            if operator == "slice" and isinstance(found, Constant) and _is_entire(given):
                return values[0]
            if isinstance(found, Constant) and operator in _VIEWS and self.kind != "clone":
                found.base = values[0]
                found.view = operator, given
            return found
        read = tuple(self.to.reference(value, self.where) for value in values)
        names = self.to.names(self.output, outputs, inner=inner)
        self.to.add(Node(operator, read, names, self.label, self.kind, given, notes=self.notes, hidden=inner))
        sizes = operator in ("shape", "size") or (numbers and operator in _OF_SIZES)
        made = tuple((Number if sizes else Tensor)(name) for name in names)
        return made if len(made) > 1 else made[0]

    def chain(self, x: Any, steps: Sequence[tuple[str, tuple[Any, ...], dict[str, Any]]]) -> Any:
        """Add nodes that each read what the one before gives; without any, one that changes nothing."""
        for number, (operator, inputs, given) in enumerate(steps or [("identity", (), {})], start=1):
            x = self.emit(operator, x, *inputs, inner=number < len(steps), **given)
        return x

    def unknown(self, operator: str = "", **attributes: Any) -> Any:
        """Add a node that no reader knows."""
        self.read.update(self.given)
        values = list(flat(dict(self.given)))
        read = [value for value in values if isinstance(value, Tensor | Constant)]
        read += [value.tensor for value in values if isinstance(value, Shape)]
        return self.emit(operator, *read, **attributes)

    def size(self, tensor: Any, start: int, end: int | None) -> Any:
        """Some of a tensor's sizes: known numbers of a constant."""
        if isinstance(tensor, Constant):
            return list(tensor.value.shape[start:end])
        limit: dict[str, Any] = {} if end is None else {"end": end}
        return self.emit("shape", tensor, inner=True, start=start, **limit)


def _is_entire(given: Mapping[str, Any]) -> bool:
    """Whether a slice takes all elements of its axis."""
    return bool(given["starts"] == [0] and given["ends"][0] >= _END and given["steps"] == [1])


def _shown(value: Any) -> str:
    """A value as messages show it: of a tensor, its name alone."""
    if isinstance(value, Tensor):
        return f"the tensor {str(value)!r}"
    return {Constant: "a constant tensor", Parts: "a list"}.get(type(value), repr(value))


def _floating(value: Any) -> Any:
    """A number or constant as floating-point, which arithmetic on tensors makes of it."""
    if isinstance(value, Constant):
        return Constant(lambda: value.value.astype(np.float64), value.name)
    return value if value is None or isinstance(value, Tensor) else float(value)


_OF_FLOATS = ("add", "clip", "div", "max", "min", "mul", "pow", "sub", "where", *COMPARED)
_OF_SIZES = ("add", "concat", "div", "identity", "mul", "sub")
_VIEWS = (
    "expand", "flatten", "identity", "reshape", "select", "slice", "split", "squeeze", "transpose",
    "unsqueeze",
)  # fmt: skip
"""Operators whose results may share their memory with what they read, as PyTorch has them."""


@dataclass(frozen=True)
class _Written:
    """A tensor into which elements of one axis were written: by their index, and how many there are."""

    axis: int
    size: int
    """0 if that cannot be told."""
    width: int
    """The size of the last axis; 0 if that cannot be told."""
    values: Mapping[int, Any]


@dataclass
class Translator:
    """Collects the nodes and constants of one model; ``known`` has what each of its values became."""

    words: Words
    find: Callable[[str], Operation | None]
    """What translates an operation, by its name; None for one that is not known."""
    nodes: list[Node] = field(default_factory=list)
    known: dict[str, Any] = field(default_factory=dict)
    sizes: dict[str, Sequence[int | str]] = field(default_factory=dict)
    """Sizes of tensors, as far as the model declares them."""
    inputs: list[str] = field(default_factory=list)
    looped: dict[str, str] = field(default_factory=dict)
    """Why a cell that is called several times is refused, by its name, unless the loop is read."""
    unrolled: bool = False
    """Whether loops over the steps are gone through a few times in place of all."""

    def __post_init__(self) -> None:
        self.budget = Budget(ModelError, "compute constants before the model is exported")
        self.constants = Stored()
        self._stored: dict[Constant, str] = {}
        self.made: dict[str, Node] = {}
        self._taken: set[str] = set()
        self._replaced: dict[Any, Any] = {}
        self._written: dict[Any, _Written] = {}

    def reserve(self, names: Iterable[str]) -> None:
        """Keep names for the model's values."""
        self._taken |= set(names)

    def input(self, name: str, sizes: Sequence[int | str] = ()) -> Tensor:
        """Add an input of the model."""
        self.inputs.append(name)
        self.reserve([name])
        if sizes:
            self.sizes[name] = sizes
        return Tensor(name)

    def names(self, name: str, ends: Iterable[int | str] = (), *, inner: bool = False) -> tuple[str, ...]:
        """Names of new tensors: the first has the call's, unless an inner node gives it."""
        wanted = [f"{name}.inner" if inner else name, *(f"{name}.{end}" for end in ends)]
        return tuple(
            fresh(each, lambda free: free in self.constants or self._produced(free)) for each in wanted
        )

    def _produced(self, name: str) -> bool:
        return name in self.inputs or name in self.made

    def add(self, node: Node) -> None:
        """Add a node."""
        self.nodes.append(node)
        self.made |= dict.fromkeys(node.outputs, node)

    def reference(self, value: Any, where: str) -> str:
        """The name of a value as an input of a node."""
        if value is None or isinstance(value, Tensor):
            return str(value or "")
        if isinstance(value, int | float | np.ndarray):
            value = Constant.of(value)
        if not isinstance(value, Constant):
            raise ModelError(f"{where} must read tensors, not {_shown(value)}")
        if value not in self._stored:
            name = value.name or "constant"
            name = f"{name}.constant" if name in self._taken else name
            self._stored[value] = self.constants.add(name, lambda: value.value)
        return self._stored[value]

    def counted(self, value: Any) -> Any:
        """A size as the number that it has in a loop over the steps, if it tells how many there are."""
        if isinstance(value, list):
            return [self.counted(each) for each in value]
        node = self.made.get(value) if isinstance(value, Number) else None
        if node is None:
            return value
        if node.operator == "shape":
            at = node.attributes["start"]
            return Few(FEW_STEPS) if at in (0, 1) and node.attributes.get("end") == at + 1 else value
        if node.operator not in ("add", "mul", "sub"):
            return value
        given = [
            self.counted(Number(name)) if name in self.made else np.asarray(self.constants.get(name)).item()
            for name in node.inputs
        ]
        known = all(isinstance(one, int) for one in given)
        return Few(ELEMENTWISE[node.operator](*given)) if known else value

    # Calls

    def call(
        self,
        operation: str,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        label: str,
        kind: str,
        output: str = "",
        *,
        module: Any = None,
        overwrites: bool = False,
        why: str = "",
    ) -> Any:
        """Translate an operation; return what stands for its result.

        ``overwrites`` says that it writes over what it reads first, ``why`` that it is refused.
        """
        args = tuple(self.current(tuple(args)))
        notes: tuple[str, ...] = ()
        if module is not None and args and isinstance(args[0], tuple):
            first = args[0]
            while isinstance(first, tuple) and first:
                first = first[0]
            args = (first, *args[1:])
            notes = (f"{kind} {label!r} reads the tuple of a recurrent module; its first item is taken",)
        known = self.find(operation) or Operation(Call.unknown)
        given = known.arguments(args, {key: self.current(value) for key, value in kwargs.items()})
        call = Call(self, operation, given, label, kind, output or label, module, notes, why, overwrites)
        try:
            if why and operation != "recurrent":
                raise ModelError(why)
            value = known.translate(call)
            call.check_read(value)
        except ModelError as error:
            value = call.unknown("refused", why=str(error))
        if overwrites and all(isinstance(each, Tensor | Constant) for each in (call.x, value)):
            self._overwrite(call, value)
        return value

    def current(self, value: Any) -> Any:
        """A value as it is now: something may have been written over it."""
        if isinstance(value, tuple):
            return tuple(map(self.current, value))
        if isinstance(value, list):
            return [self.current(each) for each in value]
        if isinstance(value, slice):
            return slice(*map(self.current, (value.start, value.stop, value.step)))
        while isinstance(value, Tensor | Constant) and value in self._replaced:
            value = self._replaced[value]
        base = self._base(value) if self._replaced and isinstance(value, Tensor | Constant) else None
        if base is None or (now := self.current(base)) is base or now == base:
            return value
        return self._again(value, now)

    def _again(self, view: Any, base: Any) -> Any:
        """A view of what is now in place of its base."""
        if isinstance(view, Constant):
            operator, given = view.view
            node = Node(operator, ("",), (operator,), view.name or operator, operator, given)
        else:
            node = self.made[view]
        read = (self.reference(base, node.where), *node.inputs[1:])
        names = tuple(fresh(name, self._produced) for name in node.outputs)
        self.add(replace(node, inputs=read, outputs=names, hidden=True))
        olds = [view] if isinstance(view, Constant) else [*map(Tensor, node.outputs)]
        self._replaced |= zip(olds, map(Tensor, names), strict=True)
        return self._replaced[view]

    def _overwrite(self, call: Call, value: Any) -> None:
        """Put a result in place of what was written over; if that is a part, refuse the whole.

        A size is a number, which is never written over.
        """
        made = self.made.get(value)
        same = made is not None and made.operator == "identity" and made.inputs[0] == call.x
        if same or value is call.x or isinstance(call.x, Number):
            return
        self._replaced[call.x] = value
        whole: Any = call.x
        while (whole := self._base(whole)) is not None:
            if whole not in self._replaced:
                self._replaced[whole] = self._refused_part(call, whole, [whole, value])

    def _refused_part(self, call: Call, whole: Any, read: Sequence[Any], **given: Any) -> Tensor:
        name = self.reference(whole, call.where)
        why = f"{call.where} writes over a part of {name!r}, which is not supported; make a new tensor"
        inputs = tuple(self.reference(each, call.where) for each in read)
        refused = self.names(call.output, inner=True)
        self.add(Node("refused", inputs, refused, call.label, call.kind, {"why": why, **given}, hidden=True))
        return Tensor(refused[0])

    def write(self, call: Call, whole: Any, axis: int, index: int, value: Any) -> Tensor:
        """A tensor with a value in place of one element of an axis: a stack, once all have been written.

        A trace does not tell how many there are: a loop over the steps writes all.
        """
        sizes = (whole.sizes or whole.value.shape) if isinstance(whole, Constant) else ()
        known = self.counted(sizes[axis]) if -len(sizes) <= axis < len(sizes) else 0
        wide = sizes[-1] if sizes and isinstance(sizes[-1], int) and axis + 1 < len(sizes) else 0
        first = _Written(axis, known if isinstance(known, int) else 0, wide, {})
        written = self._written.get(whole, first)
        traced = isinstance(written.size, Few) and not self.unrolled
        from_end = index < 0 and written.size and not traced
        values = {**written.values, index + written.size if from_end else index: value}
        order = [values[at] for at in sorted(values)]
        given: dict[str, Any] = {"axis": axis, "width": written.width}
        if axis != written.axis or sorted(values) != [*range(len(values))]:
            new = self._refused_part(call, whole, [whole, value])
        elif traced or len(values) < written.size or not written.size:
            new = self._refused_part(call, whole, order, **(given if traced else {}))
        else:
            new = call.emit("stack", *order, **given)
        self._replaced[whole] = new
        self._written[new] = replace(written, values=values)
        return Tensor(new)

    def element(self, tensor: Any) -> tuple[Any, int, int] | None:
        """The tensor of which one is a single element of an axis, the axis and the index, if it is one."""
        while (base := self._base(tensor)) is not None:
            node = self.made.get(tensor)
            operator, given = tensor.view if node is None else (node.operator, node.attributes)
            if operator == "select":
                return self._entire(base), given["axis"], given["index"]
            if (entire := self._entire(tensor)) == tensor:
                break
            tensor = entire
        return None

    def _entire(self, tensor: Any) -> Any:
        """What a tensor takes all steps, sequences and features of."""
        while (node := self.made.get(tensor)) is not None and node.operator == "slice":
            if not _is_entire(node.attributes):
                break
            tensor = self._base(tensor)
        return tensor

    def _base(self, value: Any) -> Any:
        """What a value is a view of; None if it is none."""
        if isinstance(value, Constant):
            return value.base
        node = self.made.get(value)
        if node is None or node.operator not in _VIEWS or node.kind == "clone":
            return None
        name = node.inputs[0]
        return next((one for one, stored in self._stored.items() if stored == name), Tensor(name))

    # The end

    def graph(
        self,
        results: Any,
        options: ReadOptions,
        report: ReportBuilder,
        names: Mapping[str, Any] | None = None,
    ) -> Graph:
        """The graph of a model that gives ``results``."""
        found = [each for each in flat(self.current(results)) if isinstance(each, Tensor)]
        outputs = list(dict.fromkeys(str(each) for each in found if not isinstance(each, Number)))
        for name in (options.output, options.begin):
            self._name_end(name)
        if options.output is None:
            self._note_constants(results, names or {}, report)
        called = {each: self._layer(each) if len(outputs) > 1 else self._label(each) for each in outputs}
        for key, value in (names or {}).items():
            tensors = [str(each) for each in flat(self.current(value)) if isinstance(each, Tensor)]
            called |= dict.fromkeys(tensors[:1], key)
        taken: set[str] = set()
        for tensor, name in called.items():
            called[tensor] = fresh(name, taken.__contains__)
            taken.add(called[tensor])
        for name in self.inputs:
            self.sizes.setdefault(name, ("",) * self._rank(name))
        for at, node in enumerate(self.nodes):
            if node.operator == "recurrent" and node.label in self.looped:
                given = {**node.attributes, "loop": self.looped[node.label]}
                self.nodes[at] = replace(node, attributes=given)
        return Graph(
            self.nodes,
            self.inputs,
            outputs,
            self.constants,
            words=self.words,
            dimensions=lambda tensor: self.sizes.get(tensor, ()),
            names=called,
            integer_rows=report.integer_rows,
            results=[str(each) for each in found],
            unrolled=FEW_STEPS if self.unrolled else 0,
        )

    def _note_constants(self, results: Any, names: Mapping[str, Any], report: ReportBuilder) -> None:
        """Say which results do not depend on the input: the core does not give them."""
        keys = {id(value): key for key, value in names.items()}
        for number, value in enumerate(flat(self.current(results)), start=1):
            if isinstance(value, Constant):
                report.constant_output(keys.get(id(value)) or value.name or f"number {number}")

    def _label(self, tensor: str) -> str:
        node = self.made.get(tensor)
        return node.label if node is not None and tensor == node.outputs[0] else tensor

    def _layer(self, tensor: str) -> str:
        """The name of an output beside others: that of the layer with weights which gives it."""
        name = tensor
        while (node := self.made.get(name)) is not None and node.operator not in ("recurrent", *WEIGHTED):
            read = [each for each in node.inputs if each and each not in self.constants]
            if len(read) != 1:
                break
            name = read[0]
        return self._label(name if name in self.made else tensor)

    def _name_end(self, wanted: str | None) -> None:
        """Give the end or begin that is asked for its name, if it has another one in the graph."""
        if wanted is None or wanted not in self.known or self._produced(wanted):
            return
        if any(node.label == wanted and not node.hidden for node in self.nodes):
            return
        values = flat(self.current(self.known[wanted]))
        found = next((each for each in values if isinstance(each, Tensor)), None)
        if found is not None:
            self.add(Node("identity", (str(found),), (wanted,), wanted, "identity", hidden=True))

    def _rank(self, name: str) -> int:
        """How many axes an input has: what the first layer behind it needs tells.

        A recurrent layer reads steps, sequences and features, a convolution sequences, features and steps.
        Without either, a module computes each sample from itself alone, and reads (samples, features), unless
        it names a third axis.
        """
        recurrent = [node for node in self.nodes if node.operator == "recurrent"]
        layers = [(node, len(node.attributes["axes"])) for node in recurrent]
        layers += [(n, 2 + len(n.attributes["strides"])) for n in self.nodes if n.operator == "conv"]
        for node, rank in layers:
            found, rank = input_rank(self.made.get, node.inputs[0], rank)
            if found == name:
                return rank
        moves = [node.attributes for node in self.nodes if node.operator == "transpose"]
        thrice = any({2, -3} & {*given.get("swap", ()), *given.get("perm", ())} for given in moves)
        return 3 if recurrent or thrice or any(node.operator == "pad" for node in self.nodes) else 2


# Operators that read constants alone


def _folded(operator: str, values: Sequence[Any], given: Mapping[str, Any], budget: Budget) -> Any:
    """What an operator makes of constants and numbers; None if it reads a tensor, or is not known."""
    known = values and all(isinstance(value, Constant | int | float) for value in values)
    if operator not in _FOLDED or not known:
        return None
    arrays = [each.value if isinstance(each, Constant) else np.asarray(each) for each in values]
    try:
        shapes = [each.shape for each in arrays]
        if operator in ("concat", "stack"):
            shape = [sum(map(math.prod, shapes))]
        elif operator == "matmul":
            shape = [*shapes[0][:-1], *shapes[1][-1:]]
        else:
            shape = [*np.broadcast_shapes(*shapes)]
        budget.take(shape, "a constant")
        with np.errstate(all="ignore"):
            found = np.asarray(_FOLDED[operator](*arrays, **given))
    except (ValueError, TypeError, IndexError, ZeroDivisionError):
        return None  # What reads it then says what it must have.
    return Constant.of(found) if any(isinstance(each, Constant) for each in values) else found.item()


def _transpose(array: Any, perm: Any = None, swap: Any = None) -> Any:
    return array.swapaxes(*swap) if swap else array.transpose(perm)


def _squeeze(array: Any, axes: Any = None, strict: int = 0) -> Any:
    chosen = range(array.ndim) if axes is None else axes
    return np.squeeze(array, tuple(axis for axis in chosen if array.shape[axis] == 1))


def _flatten(array: Any, start: int, end: int) -> Any:
    first, last = start % array.ndim, end % array.ndim
    return array.reshape(*array.shape[:first], -1, *array.shape[last + 1 :])


def _slice(array: Any, axes: Any, starts: Any, ends: Any, steps: Any) -> Any:
    (axis,), cut = axes, slice(starts[0], ends[0], steps[0])
    return array[(*(slice(None),) * (axis % array.ndim), cut)]


def _reduce(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda array, keepdims, axes=None: function(array, axis=axes and (*axes,), keepdims=bool(keepdims))


_FOLDED: dict[str, Callable[..., Any]] = {
    "matmul": np.matmul,
    **ELEMENTWISE,
    "activation": lambda array, function: function(array),
    "transpose": _transpose,
    "reshape": lambda array, shape: array.reshape(shape),
    "squeeze": _squeeze,
    "unsqueeze": lambda array, axes: np.expand_dims(array, tuple(axes)),
    "flatten": _flatten,
    "slice": _slice,
    "select": lambda array, index, axis: np.take(array, index, axis),
    "concat": lambda *arrays, axis: np.concatenate(arrays, axis),
    "stack": lambda *arrays, axis: np.stack(arrays, axis),
    "reduce_sum": _reduce(np.sum),
    "reduce_mean": _reduce(np.mean),
}


def owner(arguments: Mapping[str, Any]) -> str:
    """The module that has the weights which an operator reads; empty if it reads none of a module."""
    given = arguments.get("params") or [arguments.get(key) for key in ("weight", "w_ih", "running_mean")]
    stored = [value.name for value in given if isinstance(value, Constant) and "." in value.name]
    return stored[0].rpartition(".")[0] if stored else ""


def loop_refusal(cell: str) -> str:
    """Return the advice for a cell that the module calls in a loop over the steps."""
    return (
        f"the cell {cell!r} is called in a loop over the steps, but the core itself goes from step to step; "
        f"save the module's state_dict() and name its parts (`lstm={cell!r}`, and the layers "
        "behind it with `dense`), or use nn.LSTM, nn.GRU or nn.RNN, or a module "
        "whose forward computes one step"
    )
