"""Reads a ``torch.nn.Module``: a recurrent module, or one that contains some, by tracing."""

import math
import operator
from collections import Counter
from collections.abc import Mapping
from typing import Any

from rtlstm.gen.frontends.arrays import import_extra
from rtlstm.gen.frontends.graph import Graph
from rtlstm.gen.frontends.reader import read
from rtlstm.gen.frontends.reading import ReadOptions, ReportBuilder
from rtlstm.gen.frontends.tensor_files import quantised_refusal
from rtlstm.gen.frontends.torch.brevitas import without_brevitas
from rtlstm.gen.frontends.torch.operators import find, words
from rtlstm.gen.frontends.torch.operators import modules as known_modules
from rtlstm.gen.frontends.torch.translate import Constant, Translator, loop_refusal
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
    module = without_brevitas(module, report)
    if isinstance(module, torch.nn.RNNBase | torch.nn.RNNCellBase | torch.nn.Linear | torch.nn.Conv1d):
        root = torch.nn.Sequential()
        root.add_module(type(module).__name__.lower(), module)
        module = root
    graph = translate(module, trace(torch, module), options, report)
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


def trace(torch: Any, module: Any) -> Any:
    """Trace with every recurrent module, packing and padding as one node each."""
    from torch import fx
    from torch.nn.utils import rnn

    class Tracer(fx.Tracer):  # type: ignore[misc]
        def is_leaf_module(self, m: Any, module_qualified_name: str) -> bool:
            if isinstance(m, torch.nn.RNNBase | torch.nn.RNNCellBase):
                return True
            return bool(super().is_leaf_module(m, module_qualified_name))

    cell = next((name for name, part in module.named_modules() if isinstance(part, torch.nn.RNNCellBase)), "")
    try:
        return Tracer(autowrap_modules=(math, rnn)).trace(module)
    except Exception as error:  # Tracing runs the user's code, which may raise any error.
        line = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
        if cell and "Proxy" in line:
            raise ModelError(loop_refusal(cell)) from None
        raise ModelError(
            f"the module's forward cannot be traced ({line}); export it with torch.onnx.export, or save its "
            "state_dict()"
        ) from None


# Translation


def translate(root: Any, graph: Any, options: ReadOptions, report: ReportBuilder) -> Graph:
    """Translate a graph of torch.fx, whose modules and tensors are attributes of ``root``."""
    walk = _Walk(root, graph)
    return walk.translated(options, report)


class _Walk:
    """Goes through the nodes once; ``values`` has what each of them gives."""

    def __init__(self, root: Any, graph: Any) -> None:
        self.root, self.nodes = root, list(graph.nodes)
        self.modules = dict(root.named_modules(remove_duplicate=False))
        self.to = Translator(words(), find)
        self.to.reserve(node.name for node in self.nodes)
        self.values: dict[Any, Any] = {}
        self.calls = Counter(node.target for node in self.nodes if node.op == "call_module")

    def translated(self, options: ReadOptions, report: ReportBuilder) -> Graph:
        names: Mapping[str, Any] = {}
        results: Any = None
        for node in self.nodes:
            if node.op == "output":
                results = self._value(node.args[0])
                names = results if isinstance(results, dict) else {}
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
        return Constant.of(value, target) if hasattr(value, "detach") else value

    def _call(self, node: Any) -> Any:
        args, kwargs = self._value(node.args), {key: self._value(item) for key, item in node.kwargs.items()}
        if node.op == "call_module":
            return self._module(node, args, kwargs)
        kind = getattr(node.target, "__name__", str(node.target))
        name = node.target if node.op == "call_method" else _function(node.target)
        overwrites = (
            (kind.endswith("_") and not kind.endswith("__"))
            or name in _OVERWRITES
            or kwargs.get("inplace") is True
        )
        return self.to.call(name.rstrip("_"), args, kwargs, node.name, kind, overwrites=overwrites)

    def _module(self, node: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        import torch

        module, label = self.modules[node.target], str(node.target)
        kind = module_kind(module)
        operation, attributes = known_modules().get(kind, ("", ())) if hasattr(torch.nn, kind) else ("", ())
        if isinstance(module, torch.nn.RNNBase | torch.nn.RNNCellBase):
            operation = "recurrent"
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
            return f"{where} must be a module of torch.nn, but {quantised_refusal()}"
        if _has_hooks(module):
            return (
                f"{where} has forward hooks, which are not supported; remove them first, those of "
                "weight norm and spectral norm with torch.nn.utils.remove_weight_norm, remove_spectral_norm"
            )
        if isinstance(module, torch.nn.RNNBase | torch.nn.RNNCellBase):
            if not hasattr(torch.nn, module_kind(module)):
                return f"{where}: it has a forward of its own, but only those of torch.nn are supported"
            if isinstance(module, torch.nn.RNNCellBase) and self.calls[label] > 1:
                return loop_refusal(label)
        return ""


_OVERWRITES = ("iadd", "imul", "isub", "itruediv", "setitem")


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
    """Whether a module has hooks, but for those of pruning, which are called: they set the pruned weights."""
    from torch.nn.utils.prune import BasePruningMethod

    before = list((getattr(module, "_forward_pre_hooks", None) or {}).values())
    pruning = [hook for hook in before if isinstance(hook, BasePruningMethod)]
    for hook in pruning:
        hook(module, ())
    return len(pruning) < len(before) or bool(getattr(module, "_forward_hooks", None))


def _report_unused(root: Any, graph: Graph, report: ReportBuilder) -> None:
    """Report modules with parameters that forward does not call."""
    read = {node.label for node in graph.nodes}
    for name, module in root.named_modules():
        if name and not list(module.children()) and name not in read and list(module.parameters()):
            report.node(name, module_kind(module), "outside", "not used by forward")
