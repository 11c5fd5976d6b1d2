"""Reads a ``torch.nn.Module``: a recurrent module, or one that contains some, by tracing."""

import io
import warnings
from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Any, BinaryIO

import numpy as np

from rtlstm.gen.frontends.arrays import FLOAT_TYPES, first_line, import_extra, listed
from rtlstm.gen.frontends.axes import Axes
from rtlstm.gen.frontends.classes import host_classes
from rtlstm.gen.frontends.flow import Flow
from rtlstm.gen.frontends.limits import keeps_files_shut, no_files
from rtlstm.gen.frontends.outputs import input_order, note_input_order
from rtlstm.gen.frontends.reading import Embedding, ReadOptions, ReportBuilder
from rtlstm.gen.frontends.tensor_files import quantised_refusal
from rtlstm.gen.frontends.torch.archive import checked_archive
from rtlstm.gen.frontends.torch.brevitas import without_brevitas
from rtlstm.gen.frontends.torch.initial_states import moved_constant
from rtlstm.gen.frontends.torch.module_names import module_kind, operation, supported
from rtlstm.gen.frontends.torch.ops import apply, parameter
from rtlstm.gen.frontends.torch.rebuild import script_kind
from rtlstm.gen.frontends.torch.recurrent import pack, pad_packed, recurrent
from rtlstm.gen.frontends.torch.result import choose_outputs, is_computed
from rtlstm.gen.frontends.torch.trace import (
    ancestors,
    input_rank,
    loop_refusal,
    rank_without_recurrent,
    trace,
)
from rtlstm.gen.frontends.torch.values import (
    Constant,
    Data,
    Outside,
    TorchNode,
    TorchState,
    flatten,
    packed_refusal,
)
from rtlstm.spec.errors import ModelError
from rtlstm.spec.network import Dense, Network
from rtlstm.spec.output_parts import OutputPart

__all__ = ["read_graph", "read_module", "read_script"]

_ZEROS = ("zeros", "zeros_like", "new_zeros")
_HOST_ATTRIBUTES = ("batch_sizes", "device", "dtype", "ndim", "shape", "sorted_indices", "unsorted_indices")
_HOST_METHODS = ("dim", "ndimension", "numel", "size")
_HOST_MOVES = ("cpu", "cuda", "to", "type", "type_as")
_QUANTISED = ("torch.ao.nn.quantized.", "torch.ao.nn.intrinsic.quantized.")
_RECURRENT = {"recurrent": recurrent, "pack_padded_sequence": pack, "pad_packed_sequence": pad_packed}
_WEIGHTED = ("linear", "conv1d")
_SHAPE = ("flatten", "flatten_module", "getitem", "permute", "reshape", "select", "slice", "squeeze",
          "transpose", "unsqueeze", "pad_packed_sequence", "pack_padded_sequence", "pad", "contiguous",
          "clone", "detach", "double", "float", "half", "dropout", "getattr")  # fmt: skip


def _cut_earlier() -> str:
    return "to end earlier, give the node or module to end at as `output`"


def read_module(module: Any, options: ReadOptions, report: ReportBuilder) -> Network:
    """Read a module; ``report`` records how every node is treated."""
    torch = import_extra("torch", "torch")
    report.format = "torch module"
    if options.dense is not None:
        raise ModelError("`dense` is for files of tensors; a module has its dense layers in itself")
    if isinstance(module, torch.jit.ScriptModule):
        from rtlstm.gen.frontends.torch.script import convert

        report.format = "TorchScript"
        graph, modules = convert(module, options, report)
        return _Reader(module, modules, graph, options, report).read()
    module = without_brevitas(module, report)
    if isinstance(module, torch.nn.RNNBase | torch.nn.RNNCellBase | torch.nn.Linear | torch.nn.Conv1d):
        root = torch.nn.Sequential()
        root.add_module(type(module).__name__.lower(), module)
        module = root
    modules = dict(module.named_modules(remove_duplicate=False))
    return _Reader(module, modules, trace(torch, module), options, report).read()


def read_script(file: BinaryIO, options: ReadOptions, report: ReportBuilder) -> Network:
    """Read a file of TorchScript, as ``torch.jit.save`` writes it. None of its code runs."""
    torch = import_extra("torch", "torch")
    report.format = "TorchScript"
    if not keeps_files_shut():
        raise ModelError(
            "TorchScript files must be read where a process can be kept from opening files, which this "
            "system cannot; give the torch.nn.Module itself in Python, its state_dict() or ONNX"
        )
    try:
        archive = checked_archive(file)
        _import_all(torch)
        with no_files():
            module = torch.jit.load(archive, map_location="cpu")
    except ModelError:
        raise
    except Exception as error:  # torch raises errors of several kinds with long texts.
        raise ModelError(
            f"must be a TorchScript file, but cannot be loaded ({first_line(error)[:100]}); save "
            "the model again"
        ) from None
    return read_module(module, options, report)


def _import_all(torch: Any) -> None:
    """Make torch import the modules of its first load now, because no file can be opened later."""
    empty = io.BytesIO()
    with warnings.catch_warnings(action="ignore"):
        torch.jit.save(torch.jit.script(torch.nn.Identity()), empty)
        torch.jit.load(io.BytesIO(empty.getvalue()), map_location="cpu")


def read_graph(
    root: Any, modules: dict[str, Any], graph: Any, options: ReadOptions, report: ReportBuilder
) -> Network:
    """Read a graph of torch.fx, its modules given by path, its tensors attributes of ``root``."""
    return _Reader(root, modules, graph, options, report).read()


class _Reader:
    """Determines the value of every node; the output's layers are the network."""

    def __init__(
        self, root: Any, modules: dict[str, Any], graph: Any, options: ReadOptions, report: ReportBuilder
    ) -> None:
        self.root, self.modules, self.options, self.report = root, modules, options, report
        self.nodes = list(graph.nodes)
        self.values: dict[Any, Any] = {}
        result = next(node for node in self.nodes if node.op == "output")
        self.classes: list[Any] = []
        self.names: dict[Any, str] = {}
        self.targets = self._targets(result)
        self.needed = ancestors(self.targets)
        self.start = self._start()
        begins = options.lstm is not None and self.start is not None
        if begins and options.output is None:
            self._leave_others()
        self.before = ancestors(self.start.all_input_nodes) if begins else set()
        self.input = Data(Flow(), Axes.unknown(self._input_rank()))
        report.model_inputs = tuple(node.name for node in self.nodes if node.op == "placeholder")
        report.model_outputs = tuple(node.name for node in result.all_input_nodes)

    def _targets(self, result: Any) -> list[Any]:
        wanted = self.options.output
        if wanted is None:
            ends = {node: self._before_classes(node) for node in result.all_input_nodes}
            if isinstance(result.args[0], dict):
                self.names = {ends[node]: str(key) for key, node in result.args[0].items() if node in ends}
            return list(dict.fromkeys(ends.values()))
        found = [node for node in self.nodes if wanted in (node.name, self._label(node))]
        if not found:
            names = listed(self._label(node) for node in self.nodes if node.op.startswith("call"))
            raise ModelError(
                f"`output` must name a node of the module, but {wanted!r} is none; it has {names}"
            )
        return found[:1]

    def _leave_others(self) -> None:
        """Leave outputs that do not come from the layer to begin with, if others do."""
        mine = [node for node in self.targets if self.start in ancestors([node])]
        for node in self.targets if mine else ():
            if node not in mine:
                self.report.note(
                    f"the output {self._where(node)} stays outside: it does not come from "
                    f"{self._label(self.start)!r}, where the core begins"
                )
        self.targets = mine or self.targets
        self.needed = ancestors(self.targets)
        self.classes = [node for node in self.classes if not ancestors([node]).isdisjoint(self.targets)]

    def _before_classes(self, node: Any) -> Any:
        """The node whose scores the end makes classes of: the host computes these."""
        while host_classes(self._kind(node)) and node.all_input_nodes:
            before = node.all_input_nodes[0]
            if not self._has(("recurrent", *_WEIGHTED), ancestors([before])):
                break
            self.classes.append(node)
            node = before
        return node

    def _label(self, node: Any) -> str:
        return str(node.target) if node.op in ("call_module", "get_attr") else str(node.name)

    def _kind(self, node: Any) -> str:
        if node.op == "call_module":
            return module_kind(self.modules[node.target])
        return getattr(node.target, "__name__", str(node.target))

    def _where(self, node: Any) -> str:
        return f"{self._kind(node)} {self._label(node)!r}"

    def _has(self, names: Collection[str], nodes: Iterable[Any]) -> bool:
        """Whether one of the nodes is one of these operations."""
        return any(operation(node, self.modules) in names for node in nodes)

    def _is_recurrent(self, node: Any) -> bool:
        return bool(node.op == "call_module" and operation(node, self.modules) == "recurrent")

    def _input_rank(self) -> int:
        """How many axes the model's input has."""
        if self.start is None:
            return rank_without_recurrent(self.needed, lambda node: operation(node, self.modules) or "")
        rank = 2 if module_kind(self.modules[self.start.target]).endswith("Cell") else 3
        if self.before:
            return rank
        return input_rank(self.start, rank, lambda node: operation(node, self.modules) or "")

    def _start(self) -> Any:
        """The recurrent module to begin with; of those that the output needs, the first.

        None if the module has none: then the network begins at the module's input.
        """
        import torch

        for node in self.nodes:
            if node.op == "call_module" and not self._is_recurrent(node):
                module = self.modules[node.target]
                if isinstance(module, torch.nn.RNNBase | torch.nn.RNNCellBase):
                    raise ModelError(
                        f"{self._where(node)}: it has a forward of its own, but only those of torch.nn's "
                        "recurrent modules are supported"
                    )
        found = [node for node in self.nodes if self._is_recurrent(node)]
        self._refuse_loops(found)
        if not found:
            return self._start_without_recurrent()
        names = listed(self._label(node) for node in found)
        if self.options.lstm is not None:
            for node in found:
                if self.options.lstm in (node.name, node.target):
                    return node
            raise ModelError(
                f"`lstm` must name a recurrent module, but {self.options.lstm!r} is none; it has {names}"
            )
        needed = [node for node in found if node in self.needed]
        if not needed:
            raise ModelError(f"the output does not depend on a recurrent module; there are {names}")
        return needed[0]

    def _start_without_recurrent(self) -> None:
        """Check that there are layers with weights, and that no recurrent one is asked for."""
        have = listed(self._kind(node) for node in self.nodes if node.op.startswith("call")) or "nothing"
        if not self._has(_WEIGHTED, self.needed):
            raise ModelError(
                "must have an nn.LSTM, nn.GRU, nn.RNN or a cell, or an nn.Linear or nn.Conv1d, but its "
                f"forward uses none; it uses {have}"
            )
        if self.options.lstm is not None:
            raise ModelError(f"`lstm` must name a recurrent module, but the module has none; it uses {have}")

    def _refuse_loops(self, found: list[Any]) -> None:
        """A cell in a loop over the steps: unrolled by tracing, or a loop in TorchScript."""
        called = [node.target for node in found if module_kind(self.modules[node.target]).endswith("Cell")]
        for cell in called:
            if called.count(cell) > 1:
                raise ModelError(loop_refusal(cell))
        if any(self._kind(node) == "Loop" for node in self.nodes) and not found:
            for name, part in self.root.named_modules():
                if script_kind(part).endswith("Cell"):
                    raise ModelError(loop_refusal(name))

    def read(self) -> Network:
        for node in self.nodes:
            if node in self.needed and node.op != "output":
                self.values[node] = self._evaluate(node)
        self._tell_layout()
        self.report.output, flow, parts = self._result()
        network = flow.network(self.report.name, parts)
        self.report.initial_state = flow.initial_state(network)
        first = network.layers[0].name
        self._leave_classes(bool(parts))
        self._name_input(first)
        taken = {entry.name for entry in self.report.nodes}
        for layer in network.layers:
            if isinstance(layer, Dense) and layer.name not in taken:
                self.report.note(f"{layer.name!r} becomes a dense layer of its own in the core")
        self._report_unused()
        return network

    def _tell_layout(self) -> None:
        """Record the order of the input's axes, as the layers have shown it."""
        found = (part for value in self.values.values() for part in flatten(value))
        tags = input_order(self.input.axes.tags, (part.axes for part in found if isinstance(part, Data)))
        note_input_order(tags, "the module's input has sequences before steps", self.report)

    def _name_input(self, first: str) -> None:
        """Say where the core begins; ``first`` is its first layer."""
        given = [node.name for node in self.nodes if node.op == "placeholder" and node in self.needed]
        whole = not self.before and len(given) == 1
        self.report.input = self.report.input or (given[0] if whole else f"the input of {first}")
        ahead = ancestors([self._read_first(self.start)]) if self.before else ()
        outside = [self._kind(node) for node in self.nodes if node in ahead and node.op.startswith("call")]
        if outside:
            self.report.note(f"the host computes what comes before {first!r}: {listed(outside)}")

    @staticmethod
    def _read_first(node: Any) -> Any:
        """The sequence that a recurrent module reads, which may be given by its name."""
        return node.args[0] if node.args else node.kwargs["input"]

    # Node by node

    def _evaluate(self, node: Any) -> Any:
        if node in self.before:
            self.report.node(self._label(node), self._kind(node), "outside", "before the LSTM")
            return Outside(self._where(node))
        if node.op == "placeholder":
            return self._placeholder(node)
        if node.op == "get_attr":
            return self._attribute(node)
        name = operation(node, self.modules)
        step = self._step(node, name or "")
        try:
            value = self._apply(node, step)
        except ModelError as error:
            self.report.node(self._label(node), self._kind(node), "refused", str(error))
            begin = f"`lstm={self._label(self.start)!r}`" if self._is_before(node) else ""
            if begin and node is not self.start and begin not in str(error):
                raise ModelError(f"{error}; to leave it outside of the core, give {begin}") from None
            raise
        return value

    def _placeholder(self, node: Any) -> Data:
        """An input; an exported program says for which sizes it was made."""
        sizes, axes = node.meta.get("sizes", []), self.input.axes
        if len(sizes) == len(axes.tags):
            fixed = zip(axes.tags, sizes, strict=True)
            axes = replace(axes, fixed=tuple((tag, size) for tag, size in fixed if isinstance(size, int)))
        return replace(self.input, axes=axes, source=node.name)

    def _step(self, node: Any, name: str) -> TorchNode:
        """The call with values in place of nodes."""
        args = tuple(self._value(item) for item in node.args)
        kwargs = {key: self._value(item) for key, item in node.kwargs.items()}
        if not args and "input" in kwargs:
            args = (kwargs.pop("input"),)
        if node is self.start and self.options.lstm is not None:
            args, kwargs = (self.input,), {}  # Begin here, with a state that the driver gives.
        module = self.modules[node.target] if node.op == "call_module" else None
        return TorchNode(name, self._label(node), self._where(node), args, kwargs, module)

    def _value(self, item: Any) -> Any:
        """What an argument stands for; torch.fx has tuples, lists and dictionaries of its own."""
        if isinstance(item, slice):
            return slice(*map(self._value, (item.start, item.stop, item.step)))
        if isinstance(item, tuple):
            return tuple(map(self._value, item))
        if isinstance(item, list):
            return [self._value(part) for part in item]
        if hasattr(item, "detach"):
            return Constant(parameter(item.double(), "a constant"))
        return self.values.get(item, item) if hasattr(item, "op") else item

    def _apply(self, node: Any, step: TorchNode) -> Any:
        if step.module is not None and type(step.module).__module__.startswith(_QUANTISED):
            raise ModelError(f"{step.where} must be a module of torch.nn, but {quantised_refusal()}")
        if step.module is not None and _has_hooks(step.module):
            raise ModelError(
                f"{step.where} has forward hooks, which are not supported; remove them first, those of "
                "weight norm and spectral norm with torch.nn.utils.remove_weight_norm, remove_spectral_norm"
            )
        if step.name in _RECURRENT:
            self._refuse_before(step)
            self._refuse_learned(node, step)
            value = _RECURRENT[step.name](step, self.report)
            if step.name != "recurrent":
                self.report.node(step.label, self._kind(node), "shape")
            return value
        if step.name == "embedding":
            return self._embedding(node, step)
        if step.name == "getattr":
            return self._get_attribute(step)
        step = self._first_of_tuple(step)
        if self.start is None:
            self._refuse_before(step)
        outside = self._outside(node, step)
        if outside is not None:
            return outside
        self._refuse_before(step)
        value = apply(step)
        why = "ignored in inference" if step.name == "dropout" else ""
        self.report.node(step.label, self._kind(node), "shape" if step.name in _SHAPE else "core", why)
        return value

    def _outside(self, node: Any, step: TorchNode) -> Any:
        """What an operation gives that is not the core's: sizes, zeros, states, what comes before the layers.

        None if the core computes it.
        """
        if step.args and isinstance(step.args[0], Constant):
            moved = moved_constant(self._kind(node), step)
            if moved is not None:
                return moved
        if step.name == "getitem" and isinstance(step.args[0], Outside):
            return step.args[0].item(step.where, step.args[1])
        if node.op == "call_method" and node.target in _HOST_METHODS:
            return (
                self._measured(step, step.argument(1, "dim"))
                if node.target == "size"
                else Outside(step.where)
            )
        if node.op == "call_method" and node.target in _HOST_MOVES:
            return step.args[0]
        if self._kind(node) in _ZEROS:
            return Constant(np.zeros(1))
        values = list(flatten([step.args, step.kwargs]))
        data = [value for value in values if isinstance(value, Data)]
        states = [value for value in values if isinstance(value, TorchState)]
        for value in data:
            if value.packed and step.name != "getitem":
                raise ModelError(packed_refusal(step.where, value.packed))
        computed = any(is_computed(value, self.start is not None) or value.flow.layers for value in data)
        if states and step.name != "getitem":
            return self._move_states(node, step, states)
        if step.name and (computed or states or all(not isinstance(value, Outside) for value in values)):
            return None if data or states else self._of_tuple(step)
        if computed:
            raise ModelError(self._unknown(node, step))
        return Outside(step.where)

    def _move_states(self, node: Any, step: TorchNode, states: list[TorchState]) -> TorchState:
        """Apply an operation to states, which may be moved and joined, but not computed with."""
        if step.name not in _SHAPE and self._kind(node) not in ("cat", "stack"):
            step.as_data(states[0])
        return states[0]

    @staticmethod
    def _measured(step: TorchNode, axis: Any = None) -> Outside:
        """The sizes of a tensor, or of one axis."""
        value = step.args[0]
        sizes = Outside(step.where, value.sizes if isinstance(value, Data) else ())
        return sizes if axis is None else sizes.item(step.where, axis)

    def _of_tuple(self, step: TorchNode) -> Any:
        """An operation without tensors of the core: an item of a tuple, or something of the host's."""
        whole = step.name == "getitem" and isinstance(step.args[0], tuple | list)
        return None if whole else Outside(step.where)

    def _unknown(self, node: Any, step: TorchNode) -> str:
        read = node.all_input_nodes
        before = next((arg for arg in read if isinstance(self.values[arg], Data | tuple)), read[0])
        name, choice = ("lstm", self._label(self.start)) if self._is_before(node) else ("output", before.name)
        return (
            f"{step.where}, which reads {self._label(before)!r}, is not supported after a layer of the core; "
            f"supported are {supported()}; to leave it outside of the core, give `{name}={choice!r}`"
        )

    def _is_before(self, node: Any) -> bool:
        """Whether a node comes before the recurrent module to begin with, which may leave it outside."""
        return self.start is not None and self.options.lstm is None and node in ancestors([self.start])

    def _refuse_before(self, step: TorchNode) -> None:
        value = step.argument(0, "input")
        if isinstance(value, Outside) and step.name in ("recurrent", *_WEIGHTED, "batch_norm"):
            if self.start is None:
                raise ModelError(
                    f"{value.where} comes before {step.where} and would stay outside of the core; give a "
                    "module that begins behind it, and compute it yourself"
                )
            start = self._label(self.start)
            if self.options.lstm is not None:
                raise ModelError(
                    f"{step.where} reads {value.where}, which stays outside, because the core begins at "
                    f"{start!r}; {_cut_earlier()}"
                )
            raise ModelError(
                f"{value.where} comes before {self._where(self.start)} and would stay outside of the "
                f"core; give `lstm={start!r}` to begin there and compute it yourself"
            )

    def _refuse_learned(self, node: Any, step: TorchNode) -> None:
        """An initial state that is more than a parameter, moved or repeated."""
        if step.name != "recurrent" or (node is self.start and self.options.lstm is not None):
            return
        learned: set[str] = set()
        for source in node.all_input_nodes:
            value = self.values[source]
            if isinstance(value, Outside):
                learned |= {str(part.target) for part in ancestors([source]) if part.op == "get_attr"}
        if learned:
            raise ModelError(
                f"{step.where}: its initial state is computed from parameters or other constants "
                f"({listed(sorted(learned))}); begin at the layer, with `lstm={self._label(node)!r}`, "
                "and give the state to the driver, as run(x, state=...)"
            )

    def _first_of_tuple(self, step: TorchNode) -> TorchNode:
        """nn.Sequential hands a recurrent module's whole tuple on."""
        value = step.args[0] if step.args else None
        if step.module is None or not isinstance(value, tuple):
            return step
        self.report.note(f"{step.where} reads the tuple of a recurrent module; its first item is taken")
        return TorchNode(
            step.name, step.label, step.where, (value[0], *step.args[1:]), step.kwargs, step.module
        )

    def _attribute(self, node: Any) -> Any:
        value: Any = self.root
        for part in node.target.split("."):
            value = getattr(value, part)
        kind = str(getattr(value, "dtype", "")).removeprefix("torch.")
        if kind in FLOAT_TYPES:
            return Constant(parameter(value, self._where(node)))
        return Outside(self._where(node))

    def _get_attribute(self, step: TorchNode) -> Any:
        value, name = step.args[:2]
        if isinstance(value, Data) and name == "data":
            return value
        if isinstance(value, Data) and name not in _HOST_ATTRIBUTES:
            raise ModelError(f"{step.where}: attribute {name!r} is not supported")
        return self._measured(step) if name == "shape" else Outside(step.where)

    def _embedding(self, node: Any, step: TorchNode) -> Any:
        """Read a table that the host looks up: the network begins after it."""
        value, module = step.argument(0, "input"), step.module
        if isinstance(value, Data) and (value.flow.layers or value.packed or not value.flow.plain):
            raise ModelError(f"{step.where} must read the model's input; the core does not look up")
        assert module is not None
        if module.max_norm is not None:
            raise ModelError(f"{step.where}: max_norm={module.max_norm} is not supported, only None")
        table = parameter(module.weight, f"{step.where}: weight")
        self.report.embeddings.append(Embedding(name=step.label, table=table))
        self.report.node(step.label, self._kind(node), "outside", f"looked up by the host: {table.shape}")
        self.report.note(
            f"{step.where} is looked up by the host (ReadResult.embeddings has its table of {table.shape[0]} "
            f"x {table.shape[1]}): the core reads its rows"
        )
        self.report.input = f"the output of {step.label}"
        tags = (*(value if isinstance(value, Data) else self.input).axes.tags, "F")
        return Data(Flow(width=table.shape[1]), Axes(tags, table.shape[1]), source=step.label)

    # The end

    def _result(self) -> tuple[str, Flow, tuple[OutputPart, ...]]:
        outputs = []
        for node in self.targets:
            for value in flatten(self.values[node]):
                if isinstance(value, Outside) and self._is_lost(node):
                    raise ModelError(
                        f"the output {self._where(node)} is not computed by the core; {_cut_earlier()}"
                    )
                outputs.append((self._where(node), self._label(node), value))
        names = {self._where(node): name for node, name in self.names.items()}
        return choose_outputs(outputs, names, self.report, _cut_earlier(), recurrent=self.start is not None)

    def _is_lost(self, node: Any) -> bool:
        """Whether it is computed from layers, and is no size or length."""
        sizes = self._kind(node) in ("getitem", "getattr", "size")
        layers = _WEIGHTED if self.start is None else ("recurrent",)
        return not sizes and self._has(layers, ancestors([node]))

    def _leave_classes(self, apart: bool) -> None:
        """Leave what makes classes of scores to the host, if it works over the features."""
        for node in reversed(self.classes):
            before, where = self.values.get(node.all_input_nodes[0]), self._where(node)
            if isinstance(before, Data):
                given = node.kwargs.get("dim", node.args[1] if len(node.args) > 1 else None)
                dim = getattr(self.modules[node.target], "dim", None) if node.op == "call_module" else given
                if not isinstance(dim, int):
                    raise ModelError(
                        f"{where}: dim must be given, the axis of the features; {_cut_earlier()}"
                    )
                before.axes.expect_features_at(dim, where)
            host = host_classes(
                self._kind(node), self.names.get(node.all_input_nodes[0], "NAME") if apart else ""
            )
            self.report.node(self._label(node), self._kind(node), "outside", host or "")
            self.report.note(f"{where} stays on the host: {host}")

    def _report_unused(self) -> None:
        known = {entry.name for entry in self.report.nodes}
        called = {node.target for node in self.nodes if node.op == "call_module"}
        for name, module in self.modules.items():
            leaf = name and not list(module.children())
            if leaf and name not in known | called and list(module.parameters()):
                self.report.node(name, module_kind(module), "outside", "not used by forward")


def _has_hooks(module: Any) -> bool:
    """Whether a module has hooks, but for those of pruning, which are called: they set the pruned weights."""
    from torch.nn.utils.prune import BasePruningMethod

    before = list((getattr(module, "_forward_pre_hooks", None) or {}).values())
    pruning = [hook for hook in before if isinstance(hook, BasePruningMethod)]
    for hook in pruning:
        hook(module, ())
    return len(pruning) < len(before) or bool(getattr(module, "_forward_hooks", None))
