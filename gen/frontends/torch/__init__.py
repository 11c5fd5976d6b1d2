"""Reads a ``torch.nn.Module``: a recurrent module, or one that contains some, by tracing."""

import contextlib
import copy
import inspect
import math
import operator
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial, partialmethod
from importlib import import_module
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from rtlstm.gen.frontends.arrays import Floats, import_extra, listed
from rtlstm.gen.frontends.graph import Graph
from rtlstm.gen.frontends.reader import read
from rtlstm.gen.frontends.reading import ReadOptions, ReportBuilder
from rtlstm.gen.frontends.tensors import QUANTISED
from rtlstm.gen.frontends.torch.operators import ATTACH, SPLIT, find, words
from rtlstm.gen.frontends.torch.operators import modules as known_modules
from rtlstm.gen.frontends.torch.translate import FEW_STEPS, Constant, Translator, flat, loop_refusal
from rtlstm.spec.errors import ModelError
from rtlstm.spec.network import Network

_QUANTISED = ("torch.ao.nn.quantized.", "torch.ao.nn.intrinsic.quantized.")


def read_module(module: Any, options: ReadOptions, report: ReportBuilder) -> Network:
    """Read a module; ``report`` records how every node is treated."""
    torch = import_extra("torch", "torch")
    report.format = "torch module"
    if isinstance(module, torch.jit.ScriptModule):
        from rtlstm.gen.frontends.torch.script import translate_script

        report.format = "TorchScript"
        return read(translate_script(module, options, report), options, report)
    import_module("rtlstm.host.torch").check_detached(module)
    given, module = module, without_brevitas(module, report)
    plain = module is given
    if isinstance(module, torch.nn.RNNBase | torch.nn.RNNCellBase | torch.nn.Linear | torch.nn.Conv1d):
        root = torch.nn.Sequential()
        root.add_module(type(module).__name__.lower(), module)
        module = root
    unrolled: list[str] = []
    known = {
        name: each.default
        for name, each in inspect.signature(module.forward).parameters.items()
        if isinstance(each.default, bool | int | float | str)
    }
    walk = Walk(module, trace(module, unrolled, known))
    walk.to.unrolled = bool(unrolled)
    if known:
        shown = ", ".join(f"{name}={value!r}" for name, value in known.items())
        report.note(f"arguments of forward have their defaults: {shown}")
    graph = walk.translated(options, report)
    graph = graph if plain else replace(graph, words=replace(graph.words, split=""))
    network = read(graph, options, report)
    _report_unused(module, graph, report)
    return network


def module_kind(module: Any) -> str:
    """The name of torch.nn's class that computes what a module does, else of the module's own class."""
    import torch

    known = known_modules()
    for base in type(module).__mro__:
        is_torchs = getattr(torch.nn, base.__name__, None) is base and base.__name__ in known
        if is_torchs and getattr(type(module), "forward", None) is getattr(base, "forward", 0):
            return str(base.__name__)
    return type(module).__name__


# Tracing


def trace(
    module: Any,
    unrolled: list[str] | None = None,
    known: Mapping[str, Any] = MappingProxyType({}),
) -> Any:
    """Trace with every recurrent module, packing and padding as one node each.

    Loops over the steps are gone through a few times if ``unrolled`` is given, which gets what they go over.
    ``known`` are arguments of forward with numbers or texts, in which Python may branch.
    """
    import torch
    from torch import fx
    from torch.nn.utils import rnn

    class Overwritten(fx.Proxy):  # type: ignore[misc]
        """A tensor that `x += y` changes under all of its names: torch.fx itself records `x + y`."""

    for name in _OVERWRITES:
        setattr(Overwritten, f"__{name}__", partialmethod(_overwrite, getattr(operator, name)))

    class Tracer(fx.Tracer):  # type: ignore[misc]
        def proxy(self, node: Any) -> Any:
            return Overwritten(node, self)

        def is_leaf_module(self, m: Any, module_qualified_name: str) -> bool:
            if isinstance(m, torch.nn.RNNBase | torch.nn.RNNCellBase):
                return True
            return bool(super().is_leaf_module(m, module_qualified_name))

        def call_module(self, m: Any, *args: Any) -> Any:
            found = super().call_module(m, *args)
            name = self.path_of_module(m)
            calls[name] += 1  # Names of calls but the first have numbers, as in exported programs.
            given[f"{name}@{calls[name] - 1}" if calls[name] > 1 else name] = fx.node.map_aggregate(
                found, lambda one: getattr(one, "node", one)
            )
            return found

    class Steps(Overwritten):
        """A tensor or size that a loop goes through as if there were a few of its steps."""

        def __index__(self) -> int:
            return int(self.tracer.steps(self.node, _is_size(self.node)))

        def __len__(self) -> int:
            return int(self.tracer.steps(self.node, not _is_shape(self.node)))

    class Unrolling(Tracer):
        """Goes through loops over the steps as many times as steps are needed to tell what each computes."""

        def proxy(self, node: Any) -> Any:
            return Steps(node, self)

        def steps(self, node: Any, possible: bool) -> int:
            if not possible:
                raise TypeError(
                    f"a loop must go over the steps of its input, as x.shape[1], not {node.name!r}"
                )
            if unrolled is not None:
                unrolled.append(str(node.name))
            return FEW_STEPS

        def iter(self, obj: Any) -> Any:
            return iter([obj[at] for at in range(self.steps(obj.node, not _is_shape(obj.node)))])

    def traced(tracer: Any) -> Any:
        for one in (given, calls):
            one.clear()
        graph = tracer(autowrap_modules=(math, rnn)).trace(module, dict(known))
        checks = [node for node in graph.nodes if node.target is torch._assert] if known else []
        for check in checks:  # that an argument is what is known
            equal = check.args[0]
            if equal.target is operator.eq and equal.args[0].op == "placeholder":
                for node in (check, equal, equal.args[0]):
                    graph.erase_node(node)
        graph.output_node().meta["given"] = dict(given)
        return graph

    given, calls = dict[str, Any](), Counter[str]()
    cell = next((name for name, part in module.named_modules() if isinstance(part, torch.nn.RNNCellBase)), "")
    try:
        with _recorded(torch):
            stops = () if unrolled is None else (TypeError, fx.proxy.TraceError)
            with contextlib.suppress(*stops):
                return traced(Tracer)
            return traced(Unrolling)
    except Exception as error:  # Tracing runs the user's code, which may raise any error.
        line = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
        if cell and "Proxy" in line:
            raise ModelError(loop_refusal(cell)) from None
        raise ModelError(
            f"the module's forward cannot be traced ({line}); export it with torch.onnx.export, or save its "
            "state_dict()"
        ) from None


def _is_shape(node: Any) -> bool:
    """Whether a node gives all sizes of a tensor."""
    return (node.target is getattr and node.args[1] == "shape") or (
        node.target == "size" and len(node.args) == 1 and not node.kwargs
    )


def _is_size(node: Any) -> bool:
    """Whether a node gives the size of one of a tensor's first two axes, which may be that of the steps."""
    if node.target == "size":
        return len(node.args) > 1 and node.args[1] in (0, 1)
    return node.target is operator.getitem and _is_shape(node.args[0]) and node.args[1] in (0, 1)


@contextlib.contextmanager
def _recorded(torch: Any) -> Iterator[None]:
    """Record calls that make initial states of sizes which only a run knows; PyTorch itself refuses these."""
    kept = {name: getattr(torch, name) for name in ("empty", "full", "ones", "zeros")}
    for name, function in kept.items():
        setattr(torch, name, partial(_record, function))
    try:
        yield
    finally:
        for name, function in kept.items():
            setattr(torch, name, function)


def _overwrite(proxy: Any, function: Any, *args: Any) -> Any:
    return proxy.tracer.create_proxy("call_function", function, (proxy, *args), {})


def _record(function: Any, *args: Any, **kwargs: Any) -> Any:
    proxy = next((each for each in flat(args) if hasattr(each, "tracer")), None)
    if proxy is None:
        return function(*args, **kwargs)
    return proxy.tracer.create_proxy("call_function", function, args, kwargs)


# Translation


class Walk:
    """Goes once through a graph of torch.fx, whose modules and tensors are attributes of ``root``.

    ``values`` has what each of its nodes gives.
    """

    def __init__(self, root: Any, graph: Any) -> None:
        self.root, self.nodes = root, list(graph.nodes)
        self.modules = dict(root.named_modules(remove_duplicate=False))
        self.to = Translator(replace(words(), split=SPLIT, attach=ATTACH), find)
        self.to.reserve(node.name for node in self.nodes)
        self.values: dict[Any, Any] = {}
        self.held: dict[str, Constant] = {}
        self.calls = Counter(node.target for node in self.nodes if node.op == "call_module")

    def translated(self, options: ReadOptions, report: ReportBuilder) -> Graph:
        """The graph to read."""
        names: Mapping[str, Any] = {}
        results: Any = None
        for node in self.nodes:
            if node.op == "output":
                results = self._value(node.args[0])
                names = results if isinstance(results, dict) else {}
                for name, given in node.meta.get("given", {}).items():
                    self.to.known.setdefault(name, self._value(given))
            elif node.op == "placeholder":
                self.values[node] = self.to.input(node.name)
            elif node.op == "get_attr":
                self.values[node] = self._attribute(node.target)
            else:
                self.values[node] = self.to.known[node.name] = self._call(node)
        return self.to.graph(results, options, report, names)

    def _value(self, item: Any) -> Any:
        """What an argument stands for; torch.fx has tuples, lists and dictionaries of its own."""
        if isinstance(item, slice):
            return slice(*map(self._value, (item.start, item.stop, item.step)))
        if isinstance(item, tuple):
            return tuple(map(self._value, item))
        if isinstance(item, list):
            return [self._value(part) for part in item]
        if isinstance(item, dict):
            return {str(key): self._value(part) for key, part in item.items()}
        if hasattr(item, "detach"):
            return Constant.of(item)
        return self.values[item] if hasattr(item, "op") else item

    def _attribute(self, target: str) -> Any:
        value: Any = self.root
        for part in target.split("."):
            value = getattr(value, part)
        return self.held.setdefault(target, Constant.of(value, target)) if hasattr(value, "detach") else value

    def _call(self, node: Any) -> Any:
        import torch
        from torch.nn import functional

        args, kwargs = self._value(node.args), {key: self._value(item) for key, item in node.kwargs.items()}
        if node.op == "call_module":
            return self._module(node, args, kwargs)
        kind = getattr(node.target, "__name__", str(node.target))
        name = node.target if node.op == "call_method" else _function(node.target)
        if node.op == "call_function" and getattr(functional, name, node.target) is not node.target:
            # torch's own function may have its arguments in another order, as batch_norm and embedding have.
            schema = torch._C._jit_get_schemas_for_operator(f"aten::{name}")[0]
            kwargs |= dict(zip((argument.name for argument in schema.arguments), args, strict=False))
            args = ()
        underscored = kind.endswith("_") and not kind.endswith("__")
        name = name.strip("_") if name.startswith("__") else name.rstrip("_")
        overwrites = underscored or name in _OVERWRITES or kwargs.get("inplace") is True
        return self.to.call(name, args, kwargs, node.name, kind, overwrites=overwrites)

    def _module(self, node: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        import torch

        module, label = self.modules[node.target], str(node.target)
        kind = module_kind(module)
        operation, attributes = known_modules().get(kind, ("", ())) if hasattr(torch.nn, kind) else ("", ())
        if isinstance(module, torch.nn.RNNBase | torch.nn.RNNCellBase):
            operation = "recurrent"
        elif operation and not attributes:
            attributes = getattr(module, "__constants__", ())
        why = self._refusal(module, f"{kind} {label!r}", label)
        for name in () if why else attributes:
            value = getattr(module, name, None)
            kwargs[name] = Constant.of(value, f"{label}.{name}") if hasattr(value, "detach") else value
        overwrites = getattr(module, "inplace", False) is True
        return self.to.call(
            operation, args, kwargs, label, kind, node.name, module=module, overwrites=overwrites, why=why
        )

    def _refusal(self, module: Any, where: str, label: str) -> str:
        """Why a module is not read, or nothing."""
        import torch

        if type(module).__module__.startswith(_QUANTISED):
            return f"{where} must be a module of torch.nn, but {QUANTISED}"
        if _has_hooks(module):
            return (
                f"{where} has forward hooks, which are not supported; remove them first, those of "
                "spectral norm with torch.nn.utils.remove_spectral_norm"
            )
        if isinstance(module, torch.nn.RNNBase | torch.nn.RNNCellBase):
            if not hasattr(torch.nn, module_kind(module)):
                return f"{where}: it has a forward of its own, but only those of torch.nn are supported"
            if isinstance(module, torch.nn.RNNCellBase) and self.calls[label] > 1:
                self.to.looped[label] = loop_refusal(label)
        return ""


_OVERWRITES = ("iadd", "imul", "ipow", "isub", "itruediv", "setitem")


def _function(target: Any) -> str:
    """The name of a function of PyTorch or Python; empty for another one."""
    import torch
    from torch.nn import functional
    from torch.nn.utils import rnn

    name = getattr(target, "__name__", "")
    if target is getattr:
        return "getattr"
    homes = (operator, torch, functional, rnn)
    return name if any(getattr(home, name, None) is target for home in homes) else ""


def _has_hooks(module: Any) -> bool:
    """Whether a module has hooks, but for those that set pruned or normed weights: these are called."""
    from torch.nn.utils.prune import BasePruningMethod
    from torch.nn.utils.weight_norm import WeightNorm

    before = list((getattr(module, "_forward_pre_hooks", None) or {}).values())
    setting = [hook for hook in before if isinstance(hook, BasePruningMethod | WeightNorm)]
    for hook in setting:
        hook(module, ())
    return len(setting) < len(before) or bool(getattr(module, "_forward_hooks", None))


def _report_unused(root: Any, graph: Graph, report: ReportBuilder) -> None:
    """Report modules with parameters that forward does not call."""
    read = {node.label for node in graph.nodes}
    for name, module in root.named_modules():
        if name and not list(module.children()) and name not in read and list(module.parameters()):
            report.node(name, module_kind(module), "outside", "not used by forward")


# Brevitas' quantised modules, which plain ones with the dequantised weights replace.
# brevitas itself is not imported: its modules are recognised by their classes, and asked for what they hold.


_PACKAGE: Final = "brevitas.nn."
_GATES: Final = ("input", "forget", "cell", "output")
"""brevitas' names of gates, in PyTorch's order."""
_LSTM_ROUNDINGS: Final = {
    "output_quant": "x and h",
    "input_acc_quant": "gates' sums",
    "input_sigmoid_quant": "sigmoid",
    "cell_tanh_quant": "tanh",
    "cell_state_quant": "c",
}
_RNN_ROUNDINGS: Final = {"output_quant": "x and h", "gate_acc_quant": "sums"}


def without_brevitas(module: Any, report: ReportBuilder) -> Any:
    """Return a module with plain modules instead of brevitas'; it itself if it has none. It is not changed.

    Raises ModelError if a module of brevitas has no such counterpart; the message names it.
    """
    if not has_brevitas(module):
        return module
    reader = _Reader(report)
    found = reader.plain(module, "")
    if reader.roundings:
        count = len(reader.roundings)
        report.note(
            f"brevitas rounds {count} results: {listed(reader.roundings)}. What is larger saturates there, x "
            "too: give the core an input that is clipped likewise. Here they have the core's formats instead "
            "(`data_bits`, `gate_bits`, `cell_bits`, `cell_range`), and biases are read before they are "
            "rounded"
        )
    return found


def has_brevitas(module: Any) -> bool:
    """Whether a module has modules of brevitas in it, or is one."""
    return any(_kind(part) for part in module.modules())


def _kind(module: Any) -> str:
    """The name of brevitas' class that a module is of, or derived from; empty if it is of none."""
    classes = (base for base in type(module).__mro__ if base.__module__.startswith(_PACKAGE))
    return next((str(base.__name__) for base in classes), "")


class _Reader:
    """Makes plain modules, and collects what is rounded."""

    def __init__(self, report: ReportBuilder) -> None:
        self.torch = import_extra("torch", "torch")
        self.report = report
        self.roundings: list[str] = []
        self.made: dict[int, Any] = {}

    def plain(self, module: Any, name: str) -> Any:
        """Return a module with plain ones in it: a copy that shares the others, and all tensors."""
        key_of = id(module)
        if key_of not in self.made:
            kind = _kind(module)
            if kind:
                module = self._replaced(module, kind, name or kind)
            elif has_brevitas(module):
                parts, module = module.named_children(), copy.copy(module)
                children = {key: self.plain(part, f"{name}.{key}".lstrip(".")) for key, part in parts}
                module.__dict__["_modules"] = {**module._modules, **children}
            self.made[key_of] = module
        return self.made[key_of]

    def _replaced(self, module: Any, kind: str, name: str) -> Any:
        makers: dict[str, Callable[[Any, str], Any]] = {
            "QuantIdentity": self._identity,
            "QuantLinear": self._linear,
            "QuantLSTM": self._recurrent,
            "QuantRNN": self._recurrent,
            **{f"Quant{kind}": partial(self._activation, kind) for kind in ("ReLU", "Sigmoid", "Tanh")},
        }
        forwards = [getattr(base, "forward", None) for base in type(module).__mro__ if base.__name__ == kind]
        if kind not in makers or type(module).forward is not forwards[0]:
            why = " with a forward of its own" if kind in makers else ""
            raise ModelError(
                f"brevitas' {kind} {name!r}{why} is not supported; supported are {', '.join(makers)}: put "
                "one of them, or a module of torch.nn, in its place"
            )
        with self.torch.no_grad():
            return makers[kind](module, name)

    # Modules

    def _activation(self, kind: str, module: Any, name: str) -> Any:
        self._round(module.input_quant, f"what {name!r} reads")
        self._round(module.act_quant, repr(name))
        return getattr(self.torch.nn, kind)()

    def _identity(self, module: Any, name: str) -> Any:
        return self._activation("ReLU" if _begins_at_zero(module.act_quant) else "Identity", module, name)

    def _linear(self, module: Any, name: str) -> Any:
        self._round(module.input_quant, f"what {name!r} reads")
        self._round(module.output_quant, f"what {name!r} gives")
        weight = self._weight(module, f"{name}.weight")
        made = self.torch.nn.Linear(module.in_features, module.out_features, bias=module.bias is not None)
        made.weight = self._parameter(weight)
        if module.bias is not None:
            made.bias = self._parameter(module.bias)
        return made

    def _recurrent(self, module: Any, name: str) -> Any:
        """QuantLSTM or QuantRNN: one layer's weights are those of its gates."""
        layers = [list(directions) for directions in module.layers]
        first, lstm = layers[0][0], _kind(module) == "QuantLSTM"
        options = {"batch_first": first.cell.batch_first, "bidirectional": len(layers[0]) == 2}
        if not lstm:
            relu = isinstance(first.cell.act_fn, self.torch.nn.ReLU)
            options["nonlinearity"] = "relu" if relu else "tanh"
        of_torch = self.torch.nn.LSTM if lstm else self.torch.nn.RNN
        made = of_torch(first.input_size, first.hidden_size, len(layers), **options)
        for number, directions in enumerate(layers):
            for layer, suffix in zip(directions, ("", "_reverse"), strict=False):
                label = f"{name}.layers.{number}{suffix}"
                self._round_cell(layer.cell, label, _LSTM_ROUNDINGS if lstm else _RNN_ROUNDINGS)
                for key, value in self._gates(layer, label, lstm).items():
                    setattr(made, f"{key}_l{number}{suffix}", self._parameter(value))
        return made

    def _gates(self, layer: Any, label: str, lstm: bool) -> dict[str, Any]:
        """Return the parameters of a layer of torch.nn."""
        found = []
        for gate in _GATES if lstm else ("",):
            parameters, sign = getattr(layer, f"{gate}_gate_params".lstrip("_")), 1
            if parameters is None:  # f is 1 - i, the sigmoid of the negative sum.
                parameters, sign = layer.input_gate_params, -1
            both = [
                sign * self._weight(part, f"{label}.{gate}.{key}", sign)
                for key, part in (("w_ih", parameters.input_weight), ("w_hh", parameters.hidden_weight))
            ]
            bias = parameters.bias
            found.append((*both, both[0].new_zeros(layer.hidden_size) if bias is None else sign * bias))
        w_ih, w_hh, bias = (self.torch.cat(parts) for parts in zip(*found, strict=True))
        return {"weight_ih": w_ih, "weight_hh": w_hh, "bias_ih": bias, "bias_hh": self.torch.zeros_like(bias)}

    # Values

    def _weight(self, module: Any, tensor: str, sign: int = 1) -> Any:
        """Return a module's dequantised weights, and register their integers."""
        found = module.quant_weight()
        if not module.weight_quant.is_quant_enabled:
            return found
        value = found.value
        scale, zero = (_floats(part.expand(value.shape)) for part in (found.scale, found.zero_point))
        self.report.integer_rows.add(
            tensor, sign * _floats(value), np.abs(scale), round(float(found.bit_width)), bool(zero.any())
        )
        return value

    def _parameter(self, tensor: Any) -> Any:
        return self.torch.nn.Parameter(tensor.detach().clone())

    def _round_cell(self, cell: Any, label: str, roundings: dict[str, str]) -> None:
        for key, what in roundings.items():
            proxy = getattr(cell, key)
            if what != "sigmoid" and _begins_at_zero(proxy):
                raise ModelError(
                    f"{label}: brevitas rounds {what} to integers without a sign, so that negative values "
                    "become 0, which is not supported; choose a signed quantiser, as Int8ActPerTensorFloat"
                )
            self._round(proxy, f"{what} of {label!r}")

    def _round(self, proxy: Any, what: str) -> None:
        """Note what an activation's quantiser does."""
        if proxy.is_quant_enabled:
            parts = (proxy.bit_width, proxy.scale, proxy.zero_point)
            bits, step, zero = (float(part().reshape(-1)[0]) for part in parts)
            most = (2 ** (bits - 1 if proxy.is_signed else bits) - 1 - zero) * step
            self.roundings.append(f"{what} to {bits:g} bits, at most {most:.4g} in steps of {step:.4g}")


def _begins_at_zero(proxy: Any) -> bool:
    """Whether an activation's quantiser makes negative values 0."""
    return bool(proxy.is_quant_enabled and not proxy.is_signed and not proxy.zero_point().any())


def _floats(tensor: Any) -> Floats:
    return np.asarray(tensor.detach().cpu().double().numpy())
