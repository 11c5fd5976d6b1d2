"""Reads TorchScript: its graph is walked, and none of its code runs.

Calls of torch.nn's recurrent modules are read from their parameters and options; all other modules are walked
through. A condition that only a run decides (a rank, whether a state is given) is decided by the wanted
module, or by its branches: a branch that only raises is never taken.
"""

import ast
import contextlib
import inspect
import io
import operator
import pickletools
import re
import warnings
import zipfile
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from types import SimpleNamespace
from typing import Any, BinaryIO, Final

from rtlstm.gen.frontends.arrays import import_extra, listed, one_error
from rtlstm.gen.frontends.graph import Graph
from rtlstm.gen.frontends.limits import keeps_files_shut, no_files
from rtlstm.gen.frontends.reader import read
from rtlstm.gen.frontends.reading import ReadOptions, ReportBuilder
from rtlstm.gen.frontends.tensors import parts_refusal, with_pruned
from rtlstm.gen.frontends.torch.operators import SEQUENCES, find, words
from rtlstm.gen.frontends.torch.translate import (
    FEW_STEPS,
    Constant,
    Few,
    Tensor,
    Translator,
    flat,
    loop_refusal,
    owner,
)
from rtlstm.spec.errors import ModelError
from rtlstm.spec.files import MAX_ELEMENTS, open_archive, read_member
from rtlstm.spec.network import Network

_PASS = ("prim::unchecked_cast", "prim::data", "prim::NumToTensor", "aten::Int", "aten::IntImplicit")
_BUILD = ("prim::TupleConstruct", "prim::ListConstruct")
_UNPACK = ("prim::TupleUnpack", "prim::ListUnpack")
_CHANGES = {
    **{f"aten::{name}": name for name in ("append", "clear", "extend", "insert", "pop", "reverse")},
    "aten::_set_item": "__setitem__",
    "aten::add_": "__iadd__",
}
"""Operators that change a list in place, as methods of Python's."""
_SEQUENCES = {f"aten::{name}": kind for name, kind in SEQUENCES.items()}
_PACKING = ("pack_padded_sequence", "pad_packed_sequence")
_CELLS = ("GRUCell", "LSTMCell", "RNNCell")
_RECURRENT = frozenset({*_SEQUENCES.values(), *_CELLS})
_FLOATS = (5, 6, 7, 15)
"""TorchScript's numbers of floating-point types."""
_MOST_TURNS: Final = 256
"""Largest number of times that a loop is gone through."""
_OF_NUMBERS: Final[dict[str, Callable[..., Any]]] = {
    **{f"aten::{name}": getattr(operator, name) for name in ("add", "mul", "neg", "sub")},
    **{f"aten::{name}": getattr(operator, name) for name in ("eq", "ge", "gt", "le", "lt", "ne")},
    "aten::__range_length": lambda *limits: len(range(*limits)),
    "aten::__derive_index": lambda at, start, step: start + at * step,
    "prim::max": lambda *given: max(flat(list(given))),
    "prim::min": lambda *given: min(flat(list(given))),
}
"""What operators make of Python's numbers."""
_COUNTS: Final = ("aten::__range_length", "aten::__derive_index", "prim::max", "prim::min")
_COMPARES: Final = ("aten::eq", "aten::ge", "aten::gt", "aten::le", "aten::lt", "aten::ne")
_LOOP: Final = (
    "a loop must go over all steps of its input, as for t in range(x.size(1)) does, and no value that it "
    "computes may end it; write it so, or give the module whose forward computes one step"
)


def read_script(file: BinaryIO, options: ReadOptions, report: ReportBuilder) -> Network:
    """Read a file of TorchScript, as ``torch.jit.save`` writes it."""
    torch = import_extra("torch", "torch")
    report.format = "TorchScript"
    if not keeps_files_shut():
        raise ModelError(
            "TorchScript files must be read where a process can be kept from opening files, which this "
            "system cannot; give the torch.nn.Module itself in Python, its state_dict() or ONNX"
        )
    # torch raises errors of several kinds with long texts.
    unreadable = "must be a TorchScript file, but cannot be loaded ({line}); save the model again"
    with one_error(unreadable, Exception):
        archive = checked_archive(file)
        import_all(torch)
        with no_files():
            module = torch.jit.load(archive, map_location="cpu")
    return read(translate_script(module, options, report), options, report)


def import_all(torch: Any) -> None:
    """Make torch import the modules of its first load now, because no file can be opened later."""
    empty = io.BytesIO()
    with warnings.catch_warnings(action="ignore"):
        torch.jit.save(torch.jit.script(torch.nn.Identity()), empty)
        torch.jit.load(io.BytesIO(empty.getvalue()), map_location="cpu")


def translate_script(module: Any, options: ReadOptions, report: ReportBuilder) -> Graph:
    """Translate the forward of a TorchScript module.

    With ``options.lstm``, the forward of the module that calls the LSTM of that name is translated.

    Raises ModelError if there is no such module, or a condition cannot be settled.
    """
    base, path = module, ""
    if options.lstm is not None and "." in options.lstm:
        path = options.lstm.rpartition(".")[0]
        named = dict(module.named_modules())
        if path not in named:
            names = listed(name for name, inner in named.items() if script_kind(inner) in _RECURRENT)
            raise ModelError(
                f"`lstm` must name a recurrent module, but {options.lstm!r} is none; it has {names}"
            )
        base = named[path]
        report.note(
            f"the forward of {path!r} is read, which calls {options.lstm!r}; what calls it stays outside"
        )
    forward, walk = _forward(base), _Walk(module, report)
    itself, *inputs = [value.debugName() for value in forward.graph.inputs()]
    given = {name: walk.to.input(walk.fresh(name.replace(".", "_"))) for name in inputs}
    if script_kind(base) in _RECURRENT and not path:
        found = walk.leaf(base, "", script_kind(base).lower(), forward, tuple(given.values()))
    else:
        found = walk.block(forward.graph, {itself: _Path(path), **given})
    return walk.to.graph(found, options, report)


def script_kind(module: Any) -> str:
    """The class that a TorchScript module was made from."""
    return str(getattr(module, "original_name", type(module).__name__))


def _forward(module: Any) -> Any:
    """The method that computes; of a scripted recurrent module it has one name for each kind of input."""
    names = sorted(name for name in module._c._method_names() if name.partition("__")[0] == "forward")
    if not names:
        raise ModelError(f"{script_kind(module)} must have a forward, but has none; save the module again")
    return module._c._get_method(names[0])


class _Path(str):
    """A module by its path, as a value of the graph."""


class _Walk:
    """Goes through blocks of nodes; a scope maps names of values to what they stand for."""

    def __init__(self, root: Any, report: ReportBuilder) -> None:
        self.modules, self.report = dict(root.named_modules()), report
        self.to = Translator(words(), find)
        self.taken: Counter[str] = Counter()
        self.calls: Counter[str] = Counter()
        self.held: dict[str, Constant] = {}
        """Tensors of the modules, by their paths."""

    def fresh(self, name: str) -> str:
        """A name for a call, which others may have, too."""
        self.taken[name] += 1
        return name if self.taken[name] == 1 else self.fresh(f"{name}_{self.taken[name] - 1}")

    def block(self, block: Any, scope: dict[str, Any]) -> list[Any]:
        """Translate a block's nodes and return what it gives."""
        for node in block.nodes():
            results = self._node(node, scope)
            for output, value in zip(node.outputs(), results, strict=False):
                scope[output.debugName()] = value
        return [scope[value.debugName()] for value in block.outputs()]

    def _node(self, node: Any, scope: dict[str, Any]) -> list[Any]:
        kind = node.kind()
        args = [scope.get(value.debugName()) for value in node.inputs()]
        outputs = len(list(node.outputs()))
        if kind == "prim::Constant":
            value = node.output().toIValue()
            return [Constant.of(value) if hasattr(value, "detach") else value]
        if kind == "prim::GetAttr":
            return [self._attribute(args[0], node.s("name"))]
        if kind == "prim::CallMethod":
            return [self._method(node, args)]
        if kind == "prim::If":
            return self._branch(node, args[0], scope)
        if kind == "prim::Loop":
            return self._loop(node, args, scope)
        if kind in _BUILD:
            return [tuple(args) if kind == "prim::TupleConstruct" else list(args)]
        if kind == "prim::DictConstruct":
            return [dict(zip(args[::2], args[1::2], strict=True))]
        if kind in _UNPACK:
            return [self._item(args[0], at) for at in range(outputs)]
        if kind in _CHANGES and _of_list(node):
            return [self._change(kind, *args)]
        if kind == "aten::__getitem__" and isinstance(args[0], dict) and args[1] in args[0]:
            return [args[0][args[1]]]
        if kind == "prim::TupleIndex":
            return [self._item(args[0], int(args[1] or 0))]
        if kind in _PASS:
            return args[:1]
        folded = self._number(kind, args) or _fold(kind, args)
        if folded is not None:
            return [folded[0]]
        value = self._operator(node, kind, args)
        return [value] if outputs == 1 else [self._item(value, at) for at in range(outputs)]

    def _item(self, value: Any, at: int) -> Any:
        if not isinstance(value, tuple | list):
            return self._call("getitem", [value, at], {})
        if at >= len(value):
            raise ModelError(f"takes element {at} of a list that a loop fills; give the module itself")
        return value[at]

    def _change(self, kind: str, changed: Any, *given: Any) -> Any:
        """Change a list as the code does; of what is popped, return that."""
        if isinstance(changed, list | dict) and (
            kind not in ("aten::extend", "aten::add_") or isinstance(given[0], list)
        ):
            with contextlib.suppress(AttributeError, LookupError, TypeError):
                found = getattr(changed, _CHANGES[kind])(*given)
                return found if kind == "aten::pop" else changed
        raise ModelError(f"{kind} changes a list whose elements only a run tells; give the module itself")

    def _call(self, name: str, args: Any, kwargs: Mapping[str, Any], **how: Any) -> Any:
        """Translate an operation; one with weights has the name of the module that has them."""
        output = self.fresh(name)
        label = owner(kwargs) or output
        operation = how.pop("operation", name)
        value = self.to.known[output] = self.to.call(operation, args, kwargs, label, name, output, **how)
        return value

    def _attribute(self, owner: Any, name: str) -> Any:
        path = _Path(f"{owner}.{name}" if owner else name)
        if path in self.modules:
            return path
        value: Any = getattr(self.modules[str(owner)], name)
        return self.held.setdefault(path, Constant.of(value, path)) if hasattr(value, "detach") else value

    def _operator(self, node: Any, kind: str, args: list[Any]) -> Any:
        """An operator of ATen, or a function of torch.nn, whose code is not walked through."""
        import torch

        home, _, name = kind.partition("::")
        if kind == "prim::CallFunction":
            return self._function(node, args[1:])
        if kind == "prim::ConstantChunk":
            return self._call("chunk", [args[0], node.i("chunks"), node.i("dim")], {})
        if kind in ("prim::device", "prim::dtype"):
            return name
        plain = name.strip("_") if name.startswith("__") else name.rstrip("_")
        named: dict[str, Any] = {}
        schema = node.schema()
        if schema != "(no schema)":
            names = [argument.name for argument in torch._C.parse_schema(schema).arguments]
            named = dict(zip(names, args, strict=False))
        if isinstance(named.get("dtype"), int):
            named["dtype"] = SimpleNamespace(is_floating_point=named["dtype"] in _FLOATS)
        overwrites = name.endswith("_") and not name.startswith("__")
        operation = plain if home == "aten" else ""
        given = () if named else args
        return self._call(plain, given, named, operation=operation, overwrites=overwrites)

    def _function(self, node: Any, args: list[Any]) -> Any:
        from torch.nn import functional

        function = next(iter(node.inputs()))
        name = function.node().s("name").rpartition(".")[2]
        if function.type().annotation_str != f"__torch__.torch.nn.functional.{name}":
            return self._call(name, args, {}, operation=name if name in _PACKING else "")
        try:
            names = list(inspect.signature(getattr(functional, name)).parameters)
        except (TypeError, ValueError):
            return self._call(name, args, {})
        named = dict(zip(names, args, strict=False))
        return self._call(name, (), named, overwrites=named.get("inplace") is True)

    # Modules

    def _method(self, node: Any, args: list[Any]) -> Any:
        path, name = str(args[0]), node.s("name")
        module = self.modules[path]
        method = module._c._get_method(name)  # This includes modules that were traced in this process.
        kind = script_kind(module)
        if name.startswith("forward") and kind in (*_RECURRENT, "BatchNorm1d"):
            return self.leaf(module, path, path, method, tuple(args[1:]))
        if name.startswith("forward") and kind == "Dropout":
            return args[1]
        names = [value.debugName() for value in method.graph.inputs()]
        found = self.block(method.graph, dict(zip(names, args, strict=True)))
        result = found[0] if len(found) == 1 else tuple(found)
        self.to.known.setdefault(path, result)
        return result

    def leaf(self, module: Any, path: str, label: str, method: Any, args: tuple[Any, ...]) -> Any:
        """Translate the call of a module of torch.nn, whose options are only in its code."""
        kind, state = script_kind(module), with_pruned(module.state_dict())
        where = f"{kind} {label!r}"
        self.calls[path] += 1
        # A traced recurrent layer gets its pruned weights among its states.
        held = module.state_dict() if kind in _RECURRENT else state
        refusals = [found for name in held if (found := parts_refusal(name, held)) is not None]
        why = f"{where} {refusals[0][1]}" if refusals else ""
        options: dict[str, Any] = {}
        try:
            options = _options(kind, state, method.inlined_graph, where)
        except ModelError as error:
            why = why or str(error)
        if kind in _CELLS and self.calls[path] > 1:
            self.to.looped[label] = loop_refusal(label)
        output = self.fresh(label.replace(".", "_"))
        if kind == "BatchNorm1d":
            weights = {name: Constant.of(value, f"{label}.{name}") for name, value in state.items()}
            return self.to.call("batch_norm", args, weights | options, label, kind, output, why=why)
        stub = SimpleNamespace(**state, **options)
        args = _in_order(method.graph, args) if kind in _CELLS else args
        called = self.to.call("recurrent", args, {}, label, kind, output, module=stub, why=why)
        self.to.known[output] = called
        return _results(method.graph, called)

    # Conditions and loops

    def _branch(self, node: Any, condition: Any, scope: dict[str, Any]) -> list[Any]:
        blocks = list(node.blocks())
        if isinstance(condition, bool):
            return self.block(blocks[0 if condition else 1], scope)
        raises = "prim::RaiseException"
        possible = [block for block in blocks if all(node.kind() != raises for node in block.nodes())]
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

    def _loop(self, node: Any, args: list[Any], scope: dict[str, Any]) -> list[Any]:
        """Go through a loop: over the steps of a sequence a few times, to tell what each of them computes."""
        (body,) = node.blocks()
        (number, *old), (goes_on, *_) = ([*each] for each in (body.inputs(), body.outputs()))
        count, values, turns = self.to.counted(args[0]), args[2:], 0
        more, before = self._condition([*node.inputs()][1], scope), len(self.to.nodes)
        while more and isinstance(count, int) and turns < min(count, _MOST_TURNS):
            given = [turns, *values]
            if isinstance(count, Few) or isinstance(more, Few):
                given = [Few(one) if type(one) is int else one for one in given]
            scope |= {value.debugName(): one for value, one in zip([number, *old], given, strict=True)}
            _, *values = self.block(body, scope)
            more, turns = self._condition(goes_on, scope), turns + 1
        steps = isinstance(count, Few) or isinstance(more, Few)
        if more is None or turns != (FEW_STEPS if steps else count if more else turns):
            del self.to.nodes[before:]
            return [self._unread(node, args, scope)] * len(old)
        self.to.unrolled |= steps
        return values

    def _condition(self, value: Any, scope: Mapping[str, Any]) -> Any:
        """Whether a loop goes on: a truth value, a :class:`Few` of sizes, None if only a run tells."""
        node, found = value.node(), scope[value.debugName()]
        if node.kind() == "prim::If":  # A branch may be one that a run chooses.
            return None
        if isinstance(found, bool) or node.kind() not in _COMPARES:
            return found if isinstance(found, bool) else None
        given = [self.to.counted(scope[each.debugName()]) for each in node.inputs()]
        known = all(isinstance(each, int) for each in given)
        return Few(_OF_NUMBERS[node.kind()](*given)) if known else None

    def _number(self, kind: str, args: list[Any]) -> tuple[Any] | None:
        """What an operator makes of numbers, some of which a loop over the steps may tell."""
        given = [*flat(args)]
        compute, known = _OF_NUMBERS.get(kind), [*flat(self.to.counted(args))]
        if compute is None or not all(isinstance(each, int | float) for each in known):
            return None
        steps = any(isinstance(each, Few) for each in given)
        if any(map(_is_size, given)) and kind not in _COUNTS and not steps:
            return None  # It stays what a run tells.
        if steps and kind in _COMPARES and any(type(each) is int and each for each in given):
            raise ModelError(
                "a loop over the steps compares the number of the step with a constant, but a cell computes "
                "the same in every step; give what differs from step to step as a feature of x"
            )
        found = compute(*self.to.counted(args))
        counts = type(found) is int and any(isinstance(each, Few) for each in known)
        return (Few(found) if counts else found,)

    def _unread(self, node: Any, args: list[Any], scope: dict[str, Any]) -> Any:
        """What stands for a loop that is refused where its result is read, or a list that it changes."""
        inner = [each for block in node.blocks() for each in _find(block, _CHANGES) if _of_list(each)]
        changed = {name: scope[name] for each in inner if (name := _first(each).debugName()) in scope}
        given = [each for each in flat([*args, *changed.values()]) if isinstance(each, Tensor)]
        made = self._call("Loop", given, {}, operation="", why=_LOOP)
        for name, value in changed.items():
            if isinstance(value, list):
                value[:] = [made]
            else:
                scope[name] = made
        return made


def _options(kind: str, state: Mapping[str, Any], graph: Any, where: str) -> dict[str, Any]:
    """The options of a module, from its code.

    Raises ModelError if its code is not that of torch.nn's class.
    """
    if kind == "BatchNorm1d":
        return {"eps": _argument(_only(graph, ("aten::batch_norm",), where), 7, where)}
    if kind in _CELLS:
        # A trace has the cell's arithmetic in place of one operator.
        return {"nonlinearity": "relu" if _find(graph, ("aten::relu", "aten::rnn_relu_cell")) else "tanh"}
    node = _only(graph, tuple(_SEQUENCES), where)
    numbers = [name for name in state if name.startswith("weight_ih_") and not name.endswith("_reverse")]
    return {
        "num_layers": len(numbers),
        "bidirectional": "weight_ih_l0_reverse" in state,
        "batch_first": _argument(node, len(list(node.inputs())) - 1, where),
        "nonlinearity": node.kind().removeprefix("aten::rnn_"),
    }


def _in_order(graph: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments of a cell as x, h, c: a trace has them in the order in which they are read first."""
    names = [value.debugName() for value in graph.inputs()][1:]
    read: dict[str, str] = {}
    for node in graph.nodes():
        given = list(node.inputs())
        weight = given[1].node() if node.kind() == "aten::linear" else node
        if weight.kind() == "prim::GetAttr" and weight is not node:
            read[weight.s("name")] = given[0].debugName()
    found = [read.get("weight_ih"), read.get("weight_hh")]
    if len(names) != len(args) or not {*found} <= {*names}:
        return args  # of a script, or without a state
    order = [*found, *(name for name in names if name not in found)]
    return tuple(args[names.index(name)] for name in order)


def _results(inner: Any, called: Any) -> Any:
    """What a call gives: a traced recurrent module gives only those of its results that were used."""
    results = list(inner.outputs())
    kind = results[0].node().kind() if len(results) == 1 else ""
    if isinstance(called, tuple) and kind in ("aten::mul", "aten::add_"):
        return called[kind == "aten::add_"]  # an LSTMCell's h, which is a product, or its c
    layers = [node for node in inner.nodes() if node.kind() in _SEQUENCES]
    if len(layers) != 1:
        return called
    names = [value.debugName() for value in layers[0].outputs()]
    inside = results[0].node()
    if inside.kind() == "prim::TupleConstruct":
        results = list(inside.inputs())
    if any(value.debugName() not in names for value in results):
        return called  # scripted, with all results in their structure
    given = list(flat(called))
    items = [given[names.index(value.debugName())] for value in results]
    return items[0] if len(items) == 1 else tuple(items)


def _called(block: Any) -> tuple[str, ...]:
    """Names of the modules that a block calls."""
    owners = [next(iter(node.inputs())).node() for node in _find(block, ["prim::CallMethod"])]
    return tuple(one.s("name") if one.kind() == "prim::GetAttr" else "itself" for one in owners)


def _fold(kind: str, args: list[Any]) -> tuple[Any] | None:
    """A condition's value where it is a constant."""
    if kind in ("aten::__is__", "aten::__isnot__") and None in args:
        other = args[0] if args[1] is None else args[1]
        return ((other is None) == (kind == "aten::__is__"),)
    if kind == "aten::__not__" and isinstance(args[0], bool):
        return (not args[0],)
    if kind in ("aten::eq", "aten::ne") and all(
        isinstance(arg, int | str | float) and not isinstance(arg, Tensor) for arg in args
    ):
        return ((args[0] == args[1]) == (kind == "aten::eq"),)
    return None


def _is_size(value: Any) -> bool:
    """Whether a value is a size that only a run knows."""
    return isinstance(value, Tensor)


def _first(node: Any) -> Any:
    """A node's first input."""
    return next(iter(node.inputs()))


def _of_list(node: Any) -> bool:
    """Whether a node's first input is a list, or a dictionary."""
    return str(_first(node).type().kind()) in ("DictType", "ListType")


def _find(block: Any, kinds: Collection[str]) -> list[Any]:
    """Nodes of these kinds, in inner blocks too."""
    found: list[Any] = []
    for node in block.nodes():
        found += [node] if node.kind() in kinds else []
        for inner in node.blocks():
            found += _find(inner, kinds)
    return found


def _only(graph: Any, kinds: tuple[str, ...], where: str) -> Any:
    found = _find(graph, kinds)
    if len(found) != 1:
        raise ModelError(f"{where} must have one {kinds[0]} in its code, but has {len(found)}")
    return found[0]


def _argument(node: Any, index: int, where: str) -> Any:
    """A constant argument of a node."""
    found = list(node.inputs())[index].toIValue()
    if found is None:
        raise ModelError(f"{where}: argument {index} of {node.kind()} must be a constant")
    return found


# Archives, made safe to load: none of the file's own code runs.
# torch.jit.load runs a class's __setstate__, evaluates default arguments, and lets classes of C++ restore
# themselves; operators such as torch.from_file then overwrite files. All three are refused here, before
# anything is loaded. The checked members are written to a new archive, which is then loaded, because two
# readers may see different members. PyTorch ignores the case of members' names, so only names that it writes
# are taken.


_RUNS = b"__setstate__"
_NATIVE = "__torch__.torch.classes."
_LOADED = re.compile(
    r"(?:data|constants)\.pkl|(?:data|constants)/[0-9]+|code/[\w./]+\.py"
    r"|version|\.data/version|byteorder|\.format_version|\.storage_alignment",
    re.ASCII,
)
_NOT_NEEDED = re.compile(
    r"code/[\w./]+\.debug_pkl|traced_inputs\.pkl|traced_inputs/[0-9]+|bytecode\.pkl"
    r"|mobile_debug_handles\.pkl|\.data/serialization_id|extra/.*",
    re.ASCII | re.DOTALL,
)
"""Members that are not loaded: sources of the code, inputs of a trace, the mobile format, extra files."""


def checked_archive(file: BinaryIO) -> io.BytesIO:
    """Copy an archive, member by member.

    Raises ModelError if loading it would run code of its own, or it has members that PyTorch does not write.
    Raises DamagedArchiveError if it is damaged, or has more than the budget of elements.
    """
    copy, left = io.BytesIO(), MAX_ELEMENTS * 8
    with open_archive(file) as source, zipfile.ZipFile(copy, "w") as target:
        for name in _loaded(source.namelist()):
            data = read_member(source, name, left)
            left -= len(data)
            _check(name, data)
            target.writestr(name, data)
    copy.seek(0)
    return copy


def _loaded(names: list[str]) -> list[str]:
    """The members to load; all are in the folder of the first."""
    loaded, folder = [], names[0].partition("/")[0] if names else ""
    for name in names:
        if name.endswith("/"):  # a folder, of which PyTorch writes none
            continue
        first, _, member = name.partition("/")
        if first == folder and _LOADED.fullmatch(member):
            loaded.append(name)
        elif first != folder or not _NOT_NEEDED.fullmatch(member):
            raise ModelError(
                f"must have only members that torch.jit.save writes, but has {name!r}; save the model again"
            )
    if len({name.casefold() for name in loaded}) < len(loaded):
        raise ModelError(
            "must have members whose names differ by more than upper and lower case, since PyTorch does not "
            "tell them apart; rename the model's classes and files, and save it again"
        )
    return loaded


def _check(name: str, data: bytes) -> None:
    if _RUNS in data:
        raise ModelError(
            f"must have no {_RUNS.decode()}, but {name!r} has: code of a file that runs when it is loaded is "
            "not trusted; remove it, or give the torch.nn.Module itself in Python, or its state_dict()"
        )
    if name.endswith(".pkl"):
        for operation, argument, _ in pickletools.genops(data):
            # "module name", of which either may have the dots
            if operation.name == "GLOBAL" and f"{argument}.".replace(" ", ".").startswith(_NATIVE):
                raise ModelError(
                    f"must have no objects of C++ classes, but {name!r} has one of {argument!r}, as "
                    "quantised modules do; give the model before it was quantised: rtlstm does that itself"
                )
    elif name.endswith(".py"):
        _check_source(name, data)


# Source: loading evaluates the default of every parameter and every value in a class


_TEXT = frozenset(b"\n" + bytes(range(32, 127)))
"""What torch writes. Of other characters, such as a carriage return, Python and TorchScript disagree where a
comment ends, so that one may read code where the other reads a string."""
_NUMBERS = ("inf", "nan", "infj", "nanj")
_INSTEAD = "give the torch.nn.Module itself in Python, or its state_dict()"


def _check_source(name: str, data: bytes) -> None:
    """Check that to load this source evaluates nothing but literals.

    Raises ModelError if it does, or cannot be parsed.
    """
    if not _TEXT.issuperset(data):
        raise ModelError(
            f"must be a TorchScript file with code in printable ASCII, as PyTorch writes, but {name!r} has "
            f"other characters; {_INSTEAD}"
        )
    try:
        tree = ast.parse(data.decode("ascii"))
        nodes = list(ast.walk(tree))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ModelError(
            f"must be a TorchScript file with code that parses, but {name!r} has not ({error}); {_INSTEAD}"
        ) from None
    _check_statements(name, tree.body)
    for node in nodes:
        if isinstance(node, ast.ClassDef):
            _check_statements(name, node.body)
        elif isinstance(node, ast.arguments):
            for default in (*node.defaults, *filter(None, node.kw_defaults)):
                if not _is_literal(default):
                    raise _refusal(name, "a default argument", default)


def _check_statements(name: str, body: list[ast.stmt]) -> None:
    for statement in body:
        match statement:
            case ast.FunctionDef() | ast.ClassDef() | ast.Import() | ast.Pass():
                pass
            case ast.Expr(value=value) | ast.AnnAssign(value=value) if value is None or _is_literal(value):
                pass
            case ast.Assign(targets=[ast.Name()], value=value) if _is_literal(value):
                pass
            case ast.Assign(targets=[ast.Subscript(value=ast.Name("__annotations__"))], value=value) if (
                _is_type(value)
            ):
                pass
            case _:
                raise _refusal(name, "a statement outside functions", statement)


def _is_literal(node: ast.expr) -> bool:
    match node:
        case ast.Constant():
            return True
        case ast.Name(id=name):
            return name in _NUMBERS
        case ast.UnaryOp(op=ast.USub() | ast.UAdd(), operand=operand):
            return _is_literal(operand)
        case ast.List(elts=items) | ast.Tuple(elts=items):
            return all(map(_is_literal, items))
        case ast.Dict(keys=keys, values=values):
            return all(key is not None and _is_literal(key) for key in keys) and all(map(_is_literal, values))
        case ast.Attribute(value=ast.Name("CONSTANTS")):
            return True
        case ast.Call(func=ast.Name("annotate"), args=[kind, value], keywords=[]):
            return _is_type(kind) and _is_literal(value)
        case ast.Call(func=ast.Attribute(ast.Name("torch"), "device"), args=[ast.Constant()], keywords=[]):
            return True
    return False


def _is_type(node: ast.expr) -> bool:
    """Whether it is a type, which is looked up and not evaluated."""
    parts = (ast.Name, ast.Attribute, ast.Subscript, ast.Tuple, ast.List, ast.Constant, ast.expr_context)
    return all(isinstance(part, parts) for part in ast.walk(node))


def _refusal(name: str, what: str, node: ast.expr | ast.stmt) -> ModelError:
    text = ast.unparse(node).splitlines()[0][:60]
    return ModelError(
        f"must have only literals outside the bodies of functions, but {name!r} has {what} {text!r}: code of "
        f"a file that runs when it is loaded is not trusted; {_INSTEAD}"
    )
