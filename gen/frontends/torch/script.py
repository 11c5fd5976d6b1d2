"""Converts a TorchScript module's graph to one of torch.fx, which is read like a traced module's.

Calls of submodules of torch.nn stay calls; others are inlined. A condition that only a run decides (a rank,
whether a state is given) is decided by the wanted module, or by its branches: a branch that only raises is
never taken.
"""

import operator
from typing import Any

from rtlstm.gen.frontends.arrays import listed
from rtlstm.gen.frontends.reading import ReadOptions, ReportBuilder
from rtlstm.gen.frontends.torch.rebuild import LEAVES, SEQUENCES, rebuild, script_kind
from rtlstm.spec.errors import ModelError

__all__ = ["convert"]

_PASS = ("prim::unchecked_cast", "aten::detach", "prim::data", "prim::NumToTensor", "aten::Int")
_BUILD = ("prim::TupleConstruct", "prim::ListConstruct")
_UNPACK = ("prim::TupleUnpack", "prim::ListUnpack")
_RECURRENT = frozenset({"GRU", "GRUCell", "LSTM", "LSTMCell", "RNN", "RNNCell"})
_KEYWORDS = ("alpha", "rounding_mode", "training", "dtype")


def convert(module: Any, options: ReadOptions, report: ReportBuilder) -> tuple[Any, dict[str, Any]]:
    """Convert the forward of a TorchScript module; return the graph, and its modules by path.

    With ``options.lstm``, the forward of the module that calls the LSTM of that name is converted.

    Raises
    ------
    ModelError
        If there is no such module, or a condition cannot be settled.
    """
    from torch import fx

    base, path = module, ""
    if options.lstm is not None and "." in options.lstm:
        path = options.lstm.rpartition(".")[0]
        named = dict(module.named_modules())
        if path not in named:
            names = listed(name for name, inner in named.items() if script_kind(inner) in _RECURRENT)
            raise ModelError(
                f"lstm must name a recurrent module, but {options.lstm!r} is none; it has {names}"
            )
        base = named[path]
        report.note(
            f"the forward of {path!r} is read, which calls {options.lstm!r}; what calls it stays outside"
        )
    graph = fx.Graph()
    forward = _forward(base)
    inputs = list(forward.graph.inputs())[1:]
    values = {value.debugName(): graph.placeholder(value.debugName().replace(".", "_")) for value in inputs}
    converter = _Converter(module, graph, report)
    if script_kind(base) in LEAVES and not path:
        graph.output(converter.alone(script_kind(base).lower(), base, forward, tuple(values.values())))
        return graph, converter.made
    module_input = next(forward.graph.inputs()).debugName()
    found = converter.block(forward.graph, {**values, module_input: _Path(path)})
    graph.output(found[0] if len(found) == 1 else tuple(found))
    return graph, converter.made


def _forward(module: Any) -> Any:
    """The method that computes; of a scripted recurrent module it has one name for each kind of input."""
    names = sorted(name for name in module._c._method_names() if name.partition("__")[0] == "forward")
    if not names:
        raise ModelError(f"{script_kind(module)} must have a forward, but has none; save the module again")
    return module._c._get_method(names[0])


class _Path(str):
    """A module by its path, as a value of the graph."""


class _Converter:
    """Converts block by block; ``scope`` maps names of values to nodes, constants or modules."""

    def __init__(self, root: Any, graph: Any, report: ReportBuilder) -> None:
        self.root, self.graph, self.report = root, graph, report
        self.modules = dict(root.named_modules())
        self.made: dict[str, Any] = {}

    def alone(self, name: str, module: Any, forward: Any, inputs: tuple[Any, ...]) -> Any:
        """Convert a module of torch.nn that no other calls, under a name."""
        self.made[name] = rebuild(module, forward.inlined_graph, f"{script_kind(module)} {name!r}")
        return self._outputs(forward.graph, self.graph.call_module(name, inputs))

    def block(self, block: Any, scope: dict[str, Any]) -> list[Any]:
        """Convert a block's nodes and return what it gives."""
        for node in block.nodes():
            results = self._node(node, scope)
            for output, value in zip(node.outputs(), results, strict=False):
                scope[output.debugName()] = value
        return [scope[value.debugName()] for value in block.outputs()]

    def _node(self, node: Any, scope: dict[str, Any]) -> list[Any]:
        kind = node.kind()
        args = [scope.get(value.debugName()) for value in node.inputs()]
        if kind == "prim::Constant":
            return [node.output().toIValue()]
        if kind == "prim::GetAttr":
            return [self._attribute(args[0], node.s("name"))]
        if kind == "prim::CallMethod":
            return [self._call(node, args)]
        if kind == "prim::CallFunction":
            return [self._function(node, args[1:])]
        if kind == "prim::If":
            return self._branch(node, args[0], scope)
        if kind in _BUILD:
            return [tuple(args) if kind == "prim::TupleConstruct" else list(args)]
        if kind in _UNPACK:
            count = len(list(node.outputs()))
            if isinstance(args[0], tuple | list):
                return list(args[0])
            return [self.graph.call_function(operator.getitem, (args[0], at)) for at in range(count)]
        if kind == "prim::TupleIndex":
            whole, at = args[0], int(args[1] or 0)
            return [whole[at] if isinstance(whole, tuple) else self._item(whole, (at,))]
        if kind in _PASS:
            return args[:1]
        folded = _fold(kind, args)
        if folded is not None:
            return [folded[0]]
        return [self._operator(node, args) for _ in node.outputs()]

    def _attribute(self, owner: Any, name: str) -> Any:
        path = _Path(f"{owner}.{name}" if owner else name)
        if path in self.modules:
            return path
        value: Any = self.modules[str(owner)]
        value = getattr(value, name)
        return self.graph.get_attr(str(path)) if hasattr(value, "dtype") else value

    def _call(self, node: Any, args: list[Any]) -> Any:
        path = args[0]
        module = self.modules[str(path)]
        method = module._c._get_method(
            node.s("name")
        )  # This includes modules that were traced in this process.
        inner = method.graph
        if node.s("name").startswith("forward") and script_kind(module) in LEAVES:
            self.made[str(path)] = rebuild(
                module, method.inlined_graph, f"{script_kind(module)} {str(path)!r}"
            )
            return self._outputs(inner, self.graph.call_module(str(path), tuple(args[1:])))
        names = [value.debugName() for value in inner.inputs()]
        found = self.block(inner, dict(zip(names, args, strict=True)))
        return found[0] if len(found) == 1 else tuple(found)

    def _outputs(self, inner: Any, called: Any) -> Any:
        """What a call gives: a traced recurrent module gives only those of its results that were used."""
        layers = [node for node in inner.nodes() if node.kind() in SEQUENCES]
        if len(layers) != 1:
            return called
        names = [value.debugName() for value in layers[0].outputs()]
        all_indices = [(0,), (1,)] if len(names) == 2 else [(0,), (1, 0), (1, 1)]
        results = list(inner.outputs())
        inside = results[0].node()
        if inside.kind() == "prim::TupleConstruct":
            results = list(inside.inputs())
        if any(value.debugName() not in names for value in results):
            return called  # scripted, with all results in their structure
        items = [self._item(called, all_indices[names.index(value.debugName())]) for value in results]
        return items[0] if len(items) == 1 else tuple(items)

    def _item(self, value: Any, indices: tuple[int, ...]) -> Any:
        for at in indices:
            value = self.graph.call_function(operator.getitem, (value, at))
        return value

    def _function(self, node: Any, args: list[Any]) -> Any:
        """Convert a call of torch.nn.functional, without reading its code."""
        from torch.nn import functional

        name = next(iter(node.inputs())).node().s("name").rpartition(".")[2]
        if not hasattr(functional, name):
            raise ModelError(f"the function {name!r} of the TorchScript module is not of torch.nn.functional")
        return self.graph.call_function(getattr(functional, name), tuple(args))

    def _branch(self, node: Any, condition: Any, scope: dict[str, Any]) -> list[Any]:
        blocks = list(node.blocks())
        if isinstance(condition, bool):
            return self.block(blocks[0 if condition else 1], scope)
        possible = [block for block in blocks if not _raises(block)]
        if len(possible) > 1:
            called = [_called(block) for block in possible]
            if called[0] != called[1] or not list(node.outputs()):
                raise ModelError(
                    "a condition of the TorchScript module is known only in a run, and its branches call "
                    f"{listed(called[0]) or 'nothing'} and {listed(called[1]) or 'nothing'}; name the LSTM "
                    "to read as `lstm`"
                )
            self.report.note(
                f"of a condition's branches that both call {listed(called[0]) or 'no modules'} the first is "
                "read"
            )
        return self.block(possible[0], scope)

    def _operator(self, node: Any, args: list[Any]) -> Any:
        import torch
        from torch.nn import functional

        name = node.kind().partition("::")[2].rstrip("_")
        target = getattr(torch, name, None) or getattr(functional, name, None)
        schema = node.schema()
        keywords: dict[str, Any] = {}
        if schema != "(no schema)":
            names = [argument.name for argument in torch._C.parse_schema(schema).arguments]
            keywords = {key: value for key, value in zip(names, args, strict=False) if key in _KEYWORDS}
            args = [value for key, value in zip(names, args, strict=False) if key not in _KEYWORDS]
        if target is None or not callable(target):
            return self.graph.call_method(name, tuple(args))
        return self.graph.call_function(target, tuple(args), keywords)


def _raises(block: Any) -> bool:
    return any(node.kind() == "prim::RaiseException" for node in block.nodes())


def _called(block: Any) -> tuple[str, ...]:
    """Names of the modules that a block calls."""
    names = []
    for node in block.nodes():
        if node.kind() == "prim::CallMethod":
            owner = next(iter(node.inputs())).node()
            names.append(owner.s("name") if owner.kind() == "prim::GetAttr" else "itself")
        for inner in node.blocks():
            names += _called(inner)
    return tuple(names)


def _fold(kind: str, args: list[Any]) -> tuple[Any] | None:
    """A condition's value where it is a constant."""
    if kind in ("aten::__is__", "aten::__isnot__") and None in args:
        other = args[0] if args[1] is None else args[1]
        return ((other is None) == (kind == "aten::__is__"),)
    if kind == "aten::__not__" and isinstance(args[0], bool):
        return (not args[0],)
    if kind in ("aten::eq", "aten::ne") and all(isinstance(arg, int | str | float) for arg in args):
        return ((args[0] == args[1]) == (kind == "aten::eq"),)
    return None
