"""Splits a module of PyTorch: what stands in front of the core, and what stands behind it.

If ``forward`` can be traced, its graph is divided. If it cannot, as where Python decides what to compute, the
core is one submodule that is called once: what stands behind it then runs the module again, around it.
"""

import contextlib
import io
import operator
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import fx, nn
from torch.fx.node import map_arg
from torch.utils import _pytree as pytree

from rtlstm.gen.frontends.arrays import first_line
from rtlstm.gen.frontends.graph import Wiring
from rtlstm.gen.frontends.loops import LoopError
from rtlstm.gen.frontends.reading import ReadOptions, ReadResult, ReportBuilder
from rtlstm.gen.frontends.split import Cut, End, Move, Order, between, divide, find_cut, in_front, last_of
from rtlstm.gen.frontends.torch import Walk, has_brevitas, trace
from rtlstm.gen.frontends.torch.exported import exported_values
from rtlstm.gen.frontends.torch.operators import ATTACH
from rtlstm.gen.frontends.torch.translate import Packed, Tensor, flat
from rtlstm.host.torch import Form, calls_of, check_detached, instead_of, run_model
from rtlstm.sim.reference import run_float
from rtlstm.spec.errors import ConfigurationError, InputError, ModelError
from rtlstm.spec.network import Lstm, Network

RECURRENT = nn.RNNBase | nn.RNNCellBase


class Past(NamedTuple):
    """What goes past the core, from in front of it to behind it."""

    form: Form
    batched: bool
    rows: tuple[int, ...]
    """The axes in front of the features of what the core reads."""
    values: tuple[Any, ...]
    call: tuple[Any, Any] = ((), {})
    """The arguments of a module that is run again."""


class Split(NamedTuple):
    """A divided module: ``read`` has the network of the core."""

    front: nn.Module
    read: ReadResult
    back: nn.Module


def split_module(module: nn.Module, options: ReadOptions, name: str | None, calls: Sequence[Any]) -> Split:
    """Divide a module; ``calls`` are arguments that it gets, pairs of a tuple and a dictionary.

    Raises ConfigurationError if the module is not in evaluation mode or has modules of brevitas, or ``lstm``
    names no part that is called once. Raises ModelError if the core can compute no part of it.
    """
    if module.training:
        raise ConfigurationError(
            "a model must be in evaluation mode to be split, since dropout and batch normalisation compute "
            f"something else in training; {type(module).__name__} is in training: call eval() on it first"
        )
    check_detached(module)
    if has_brevitas(module):
        raise ConfigurationError(
            "a model must have no modules of brevitas to be split, since what they round outside of the core "
            "would be lost; give the recurrent one alone to rtlstm.compile"
        )
    name = name or type(module).__name__.lower()
    if isinstance(module, RECURRENT):
        # The build has the name of the class.
        return _divided(type(type(module).__name__, (_Alone,), {})(module), options, name)
    part = dict(module.named_modules()).get(options.lstm or "")
    larger = options.lstm and part is not None and not isinstance(part, RECURRENT)
    if not larger and _is_traced(module, calls):
        return _divided(module, options, name)
    why = ""
    if not larger:
        try:
            return _looped(module, options, name, calls)
        except LoopError as error:
            why = str(error)
        except ModelError:
            pass
    part_name = options.lstm or _first_called(module, calls, why)
    return _around(module, part_name, options.replace(lstm=None), name, calls)


def _is_traced(module: nn.Module, calls: Sequence[Any]) -> bool:
    """Whether a trace of a module computes the same: what Python decides by the inputs is not in it."""
    try:
        traced = fx.GraphModule(module, _traced(module))
    except ModelError:
        return False
    with torch.no_grad():
        for args, kwargs in calls:
            try:
                found = traced(*args, **kwargs)
            except Exception:  # The trace left something out that the module does.
                return False
            one, other = list(flat(found)), list(flat(run_model(module, args, kwargs)))
            if len(one) != len(other) or not all(map(_equal, one, other)):
                return False
    return True


def _equal(one: Any, other: Any, most: float = 1e-8) -> bool:
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return one.shape == other.shape and bool(torch.allclose(one, other, atol=most, equal_nan=True))
    return isinstance(one, torch.Tensor) == isinstance(other, torch.Tensor)


def _traced(module: nn.Module, unrolled: list[str] | None = None) -> fx.Graph:
    graph: fx.Graph = trace(module, unrolled)
    for node in graph.nodes:
        node.meta.pop("is_wrapped", None)  # Later traces in this process would look for its dotted name.
    return graph


class _Alone(nn.Module):  # type: ignore[misc]
    """A recurrent module, called with a state or without."""

    def __init__(self, part: nn.Module) -> None:
        super().__init__()
        self.add_module(type(part).__name__.lower(), part)
        self.eval()

    def forward(self, input: Any, hx: Any = None) -> Any:
        """Call the module."""
        (part,) = self.children()
        return part(input, hx)


# One graph, divided


def _divided(module: nn.Module, options: ReadOptions, name: str) -> Split:
    return _of_trace(module, _traced(module), options, name)


def _of_trace(module: nn.Module, traced: fx.Graph, options: ReadOptions, name: str | None) -> Split:
    walk = Walk(module, traced)
    walk.translated(ReadOptions(), ReportBuilder(""))
    return _planned(module, partial(_Plan, module, traced, walk.values), options, name)


def _looped(module: nn.Module, options: ReadOptions, name: str | None, calls: Sequence[Any]) -> Split:
    """Divide a module with a loop over steps, of which some are traced. What stands behind the core must not
    depend on how many these are: its results are compared with the module's.

    Raises ModelError if there is no such loop, or the module cannot be divided.
    """
    wanted = [run_model(module, args, kwargs) for args, kwargs in calls]
    unrolled: list[str] = []
    traced = _traced(module, unrolled)
    if not unrolled:
        raise ModelError("the module has no loop over steps")
    try:
        found = _of_trace(module, traced, options, name)
    except ModelError as error:
        raise LoopError(str(error)) from None
    for (args, kwargs), theirs in zip(calls, wanted, strict=True):
        core, past = found.front(*args, **kwargs)
        try:
            result = found.back(*_computed(found.read.network, core), past)
        except (TypeError, RuntimeError) as error:
            raise ModelError(f"the part behind the loop cannot be computed ({first_line(error)})") from None
        pairs = zip(flat(result), flat(theirs), strict=True)
        if not all(_equal(one, other, 1e-3) for one, other in pairs):
            raise ModelError("what stands behind a loop depends on how many steps it has")
    return found


def _computed(network: Network, core: dict[str, Any]) -> tuple[Any, Any]:
    """What the driver would give for these arguments, without rounding."""
    x = core["x"] if core["x"].ndim > 2 else core["x"][:, None]
    x = x.swapaxes(0, 1) if core["batch_first"] and core["x"].ndim > 2 else x
    found = run_float(network, x, lengths=core.get("lengths"))
    parts = [found.y[-1] if core.get("outputs") == "last" else found.y, *found.h, *found.c]
    if core["x"].ndim < 3:
        parts = [part[..., 0, :] for part in parts]
    elif core["batch_first"] and core.get("outputs") != "last":
        parts[0] = parts[0].swapaxes(0, 1)
    return parts[0], (tuple(parts[1 : 1 + len(found.h)]), tuple(parts[1 + len(found.h) :]))


def _planned(source: Any, plan: Callable[[Cut], "_Plan"], options: ReadOptions, name: str | None) -> Split:
    found = find_cut(source, options, name, plan)
    return Split(found.front(), found.cut.read, found.back())


class Program:
    """An exported program, or the path of one, as a module to be divided.

    Raises ModelError if the file is damaged.
    """

    def __init__(self, source: Any) -> None:
        saved = io.BytesIO(source.read_bytes() if isinstance(source, Path) else b"")
        if not isinstance(source, Path):
            torch.export.save(source, saved)
        self.source, self._values = source, exported_values(saved)
        saved.seek(0)
        program = torch.export.load(saved)
        self.module, self._results = program.module(), program.call_spec.out_spec
        graph = self.module.graph
        for node in [*graph.nodes]:
            if node.op == "call_module":  # It compares the sizes of inputs with those of the export.
                graph.erase_node(node)

    def split(self, options: ReadOptions, name: str | None) -> Split:
        """Divide it; raises ModelError if the core can compute no part of it."""
        graph = self.module.graph
        # Names of inputs that are words of Python are others in torch.fx.
        named = [(node, node.target if node.op == "placeholder" else node.name) for node in graph.nodes]
        values = {node: self._values.get(name) for node, name in named}
        found = _planned(self.source, partial(_Plan, self.module, graph, values), options, name)
        results = self._results
        found.back.results = lambda given: pytree.tree_unflatten(list(given), results)
        return found


class _Nodes(Wiring[fx.Node]):
    """The nodes of a graph of torch.fx, each of which gives one value of its name."""

    def __init__(self, graph: fx.Graph) -> None:
        self.nodes = list(graph.nodes)
        self.constants: Any = {node.name: None for node in self.nodes if node.op == "get_attr"}
        self._wire(lambda node: [each.name for each in node.all_input_nodes], lambda node: [node.name])


class _Final(NamedTuple):
    """A final state: h or c, the numbers of its layers, and whether it has no axis of layers."""

    part: int
    numbers: tuple[int, ...]
    alone: bool


class _Plan:
    """Which nodes of a graph stand in front of the core and which behind it, and what goes between them."""

    def __init__(self, module: nn.Module, traced: fx.Graph, values: dict[fx.Node, Any], cut: Cut) -> None:
        self.module, self.cut, self.nodes, self.values = module, cut, _Nodes(traced), values
        self.begin = self._node(cut.begin)
        calls = [self._find(node.outputs[0], call=True) for node, _ in cut.recurrent]
        self.calls = [call for call in calls if call is not None]
        self.states_of = {
            name: _Final(part, numbers, "T" not in node.attributes["axes"])
            for node, numbers in cut.recurrent
            for part, name in enumerate(node.outputs[1:])
        }
        self.ends = {end.tensor: end for end in cut.ends}
        # Without a recurrent layer, what reads the core's input is the core's.
        begins = self.nodes.consumers(self.begin.name) if not calls else []
        self.core = {*begins, *(self.nodes.index_of(node.name) for node in self.calls)}
        if None in calls:
            self._follow_loops([cut.recurrent[at] for at, call in enumerate(calls) if call is None])
        self.known = {*self.ends, *self.states_of}
        self.given = {node.name for node in self.nodes.nodes if self._is_given(node)}
        self.output = self.nodes.nodes[-1]
        self.wanted = [node.name for node in self.output.all_input_nodes]
        self.inside, self.past = divide(self.nodes, self.core, self.given, self.wanted)
        self.states = [
            None if node is None else node.args[1] if len(node.args) > 1 else node.kwargs.get("hx")
            for node in calls
        ]
        read: list[fx.Node] = []
        map_arg(self.states, read.append)
        asked = [self.begin.name, *self.past, *(each.name for each in read)]
        self.before = in_front(self.nodes, self.core, asked)

    def _node(self, tensor: str) -> fx.Node:
        """The node that gives a tensor of the reader's graph."""
        found = self._find(tensor)
        if found is None:
            raise ModelError(
                f"{tensor!r} is no result of one call in forward, so the model cannot be cut there"
            )
        return found

    def _follow_loops(self, loops: Sequence[tuple[Any, tuple[int, ...]]]) -> None:
        """All between the core's input and its results is the core's, where calls of one step are in a loop.

        What the last of them gave is a result, too: as the last of steps that are stacked, or as a state.
        """
        for end in [*self.ends.values()]:
            node = self._node_of_end(end)
            items = node.args[0] if node.args and isinstance(node.args[0], list | tuple) else [None]
            last = self.values.get(items[-1])
            if isinstance(last, Tensor):
                self.ends.setdefault(last, last_of(end, last))
        for node, numbers in loops:
            call = self._last_call(node.outputs[0].removesuffix(".steps"))
            if call is not None:
                self.calls.append(call)
                for part, last in enumerate(flat(self.values[call])):
                    self.states_of[str(last)] = _Final(part, numbers, True)
        ends = [*map(self._node_of_end, self.ends.values()), *self.calls]

        def is_size(at: int) -> bool:
            values = flat(self.values.get(self.nodes.nodes[at]))
            return not any(isinstance(leaf, Tensor) for leaf in values)

        names = [node.name for node in ends]
        self.core |= between(self.nodes, self.cut.read, self.begin.name, names, is_size)

    def _node_of_end(self, end: End) -> fx.Node:
        found = self._find(end.tensor) or self._find(end.tensor, call=True)
        return self._node(end.tensor) if found is None else found

    def _last_call(self, h: str) -> fx.Node | None:
        """The last call of the cell of PyTorch that gives ``h`` in one step; None if no such cell does."""
        one = self._find(h, call=True)
        if one is None or not {one.target, getattr(one.target, "overloadpacket", None)} & self.cells:
            return None
        alike = [
            each for each in self.nodes.nodes if (each.target, each.args[2:]) == (one.target, one.args[2:])
        ]
        return alike[-1]

    @property
    def cells(self) -> set[Any]:
        """What a call of one step of a layer of PyTorch has as its target."""
        modules = {name for name, part in self.module.named_modules() if isinstance(part, nn.RNNCellBase)}
        aten = torch.ops.aten
        return {*modules, aten.lstm_cell, aten.gru_cell, aten.rnn_tanh_cell, aten.rnn_relu_cell}

    def _find(self, tensor: str, *, call: bool = False) -> fx.Node | None:
        """The node that gives a tensor of the reader's graph; or the call that gives it with others."""
        for node in self.nodes.nodes:
            value = self.values.get(node)
            if call and not self._takes(node) and next(flat(value), None) == tensor:
                return node
            named = node.op == "placeholder" or node.name == tensor or self._takes(node)
            if not call and str(value) == tensor and named:
                return node
        return None

    def _takes(self, node: fx.Node) -> bool:
        """Whether a node takes an item of a tuple."""
        return node.target is operator.getitem and isinstance(self.values.get(node.args[0]), tuple | list)

    def _is_given(self, node: fx.Node) -> bool:
        value = self.values.get(node)
        leaves = list(flat(value))
        whole = node in self.calls or self._takes(node) or node.name == value
        return bool(leaves) and whole and all(leaf in self.known for leaf in leaves)

    def front(self) -> nn.Module:
        """The module in front of the core."""
        graph, new = fx.Graph(), dict[fx.Node, fx.Node]()
        for at, node in enumerate(self.nodes.nodes):
            if node.op == "placeholder" or at in self.before:
                new[node] = graph.node_copy(node, new.__getitem__)
        named = {node.name: node for node in self.nodes.nodes}
        states = [map_arg(state, new.__getitem__) for state in self.states]
        graph.output((new[self.begin], states, tuple(new[named[name]] for name in self.past)))
        return Front(fx.GraphModule(self.module, graph), self.cut, self.outputs)

    @property
    def used(self) -> list[fx.Node]:
        """The nodes of the core that those behind it read."""
        read = {name for at in self.inside for name in self.nodes.reads(at)} | {*self.wanted}
        return [node for node in self.nodes.nodes if node.name in read & self.given]

    @property
    def outputs(self) -> str:
        """Which outputs the driver must compute."""
        leaves = {str(leaf) for node in self.used for leaf in flat(self.values[node])}
        steps = {end.order.step for end in self.ends.values() if end.tensor in leaves}
        return "none" if not steps else "last" if steps == {"last"} else "all"

    @property
    def packs(self) -> bool:
        """Whether what the core reads is packed in forward, and not by the caller."""
        return isinstance(self.values[self.begin], Packed)

    def back(self) -> nn.Module:
        """The module behind the core."""
        graph, new = fx.Graph(), dict[fx.Node, fx.Node]()
        named, given = {node.name: node for node in self.nodes.nodes}, self.used
        for node in (*given, *(named[name] for name in self.past)):
            new[node] = graph.placeholder(node.name)
        for at in sorted(self.inside):
            node = self.nodes.nodes[at]
            new[node] = graph.node_copy(node, new.__getitem__)
        graph.node_copy(self.output, new.__getitem__)
        values = [self.values[node] for node in given]
        return Back(fx.GraphModule(self.module, graph), self, values)


_PACKED = Order(("T", "N", "F"))
"""The axes of a PackedSequence that was padded."""


def _moved(x: torch.Tensor, moves: Sequence[Move], rows: Sequence[int] = (-1,)) -> torch.Tensor:
    for kind, numbers in moves:
        if kind == "rows":
            x = x.reshape(*rows, x.shape[-1])
        elif kind == "transpose":
            x = x.permute(numbers)
        else:
            x = x.select(*numbers) if kind == "select" else x.unsqueeze(*numbers)
    return x


class Front(nn.Module):  # type: ignore[misc]
    """What stands in front of the core."""

    def __init__(self, graph: fx.GraphModule, cut: Cut, outputs: str) -> None:
        super().__init__()
        self.graph, self._cut, self._outputs = graph, cut, outputs

    def forward(self, *args: Any, **kwargs: Any) -> tuple[dict[str, Any], Past]:
        """Take what the model takes; without gradients, which the core does not have.

        Returns
        -------
        core
            The arguments of :meth:`rtlstm.Build.run`: ``x`` and ``batch_first``, and where the model has
            them, ``lengths``, ``state`` and ``outputs``.
        past
            What goes past the core, for the module behind it.
        """
        with torch.no_grad():
            given, states, values = self.graph(*args, **kwargs)
        x, form = Form.of(given)
        order = self._cut.order if form.packed is None else _PACKED
        batched = x.dim() == len(order.tags)
        moved = _moved(x, (order if batched else order.unbatched()).to_run())
        core: dict[str, Any] = {"x": _array(moved), "batch_first": order.sequences_first}
        if form.lengths is not None:
            core["lengths"] = form.lengths
        if any(state is not None for state in states):
            several = batched and "N" in order.tags
            core["state"] = self._state(states, (moved.shape[not order.sequences_first],) if several else ())
        if self._outputs != "all":
            core["outputs"] = self._outputs
        return core, Past(form, batched, tuple(x.shape[:-1]), values)

    def _state(self, states: Sequence[Any], rows: tuple[int, ...]) -> Any:
        """The states of all layers as the driver takes them, of those that the model gives."""
        layers = self._cut.read.network.pseudo_layers
        h: Any = [np.zeros((*rows, layer.outputs)) for layer in layers]
        c = {at: np.zeros((*rows, layer.units)) for at, layer in enumerate(layers) if isinstance(layer, Lstm)}
        for state, (_, numbers) in zip(states, self._cut.recurrent, strict=True):
            for part, given in zip((h, c), flat([state]), strict=False):
                rank = 1 + len(rows)
                each = given if given.dim() > rank else given.unsqueeze(0)
                for number, one in zip(numbers, each, strict=True):
                    # Operators have an axis of sequences also where the model has none.
                    part[number] = _array(one).reshape(part[number].shape)
        return tuple(h), tuple(c.values())


def _array(x: torch.Tensor) -> Any:
    return x.detach().to("cpu", torch.float64 if x.dtype == torch.float64 else torch.float32).numpy()


class Back(nn.Module):  # type: ignore[misc]
    """What stands behind the core."""

    def __init__(self, graph: fx.GraphModule, plan: _Plan, given: Sequence[Any]) -> None:
        super().__init__()
        self.graph, self._cut, self._given, self._packs = graph, plan.cut, given, plan.packs
        self._last = plan.outputs == "last"
        self._operators = any(call.op == "call_function" for call in plan.calls)
        self._ends, self._states = plan.ends, plan.states_of
        self.results: Callable[[Any], Any] = lambda results: results
        """Gives the results the form that the model has for them."""

    def forward(self, y: Any, state: Any = None, past: Any = None) -> Any:
        """Give what the model gives, of what the core gave and what went past it.

        Parameters
        ----------
        y, state
            What :meth:`rtlstm.Build.run` returned for the arguments that the module in front gave.
        past
            What that module gave beside them.

        Raises
        ------
        InputError
            If ``past`` is not from the module in front.
        """
        if not isinstance(past, Past):
            raise InputError(
                "past must be what the module in front gave beside the core's arguments, not "
                f"{type(past).__name__}: core, past = front(x); y, state = build.run(**core); "
                "back(y, state, past)"
            )
        found = self.graph(*(self._leaf(each, y, state, past) for each in self._given), *past.values)
        return self.results(found)

    def _leaf(self, value: Any, y: Any, state: Any, past: Past) -> Any:
        if isinstance(value, tuple | list):
            return tuple(self._leaf(each, y, state, past) for each in value)
        if value in self._ends:
            return self._end(self._ends[value], isinstance(value, Packed), y, past)
        part, numbers, alone = self._states[value]
        ranks = self._cut.ranks(part, numbers)
        found = [torch.as_tensor(state[part][at]).to(past.form.like) for at in ranks]
        if self._operators and "N" not in self._cut.order.tags:
            found = [each.unsqueeze(0) for each in found]
        return found[0] if alone else torch.stack(found)

    def _end(self, end: End, packed: bool, y: Any, past: Past) -> Any:
        order, begin = end.order, self._cut.order
        if past.form.packed is not None:
            begin, packed = _PACKED, packed or not self._packs
            order = _PACKED if packed and not order.step else order
        tags = begin.run_tags(last=self._last)
        if not past.batched:
            order, tags = order.unbatched(), tuple(tag for tag in tags if tag != "N")
        moved = _moved(torch.as_tensor(y)[..., end.features], order.from_run(tags), past.rows)
        return past.form.give(moved) if packed and not end.order.step else moved.to(past.form.like)


# One submodule, around which the module runs


def _around(module: nn.Module, part: str, options: ReadOptions, name: str, calls: Sequence[Any]) -> Split:
    found = dict(module.named_modules())
    if part not in found:
        names = ", ".join(repr(key) for key, each in found.items() if isinstance(each, RECURRENT))
        raise ConfigurationError(
            f"`lstm` must name a submodule, but there is no {part!r}; recurrent ones are {names or 'none'}"
        )
    for args, kwargs in calls:
        count = len(calls_of(module, found[part], args, kwargs))
        if count != 1:
            raise ConfigurationError(
                f"{part!r} must be called once to be split from the rest, not {count} times: what is split "
                "off runs once in front of the core, and once behind it"
                + (f"; {ATTACH.format(part=part)}" if count else "")
            )
    inner = [calls_of(module, found[part], args, kwargs)[0] for args, kwargs in calls]
    front, read, back = split_module(found[part], options, name, inner)
    return Split(_FrontAround(module, part, front), read, _BackAround(module, part, back))


def _first_called(module: nn.Module, calls: Sequence[Any], why: str) -> str:
    """The recurrent module that is called first. ``why`` a loop of the module itself is not read, or "".

    Raises ConfigurationError if none is called.
    """
    order: list[str] = []
    args, kwargs = calls[0]
    with contextlib.ExitStack() as stack:
        for name, part in module.named_modules():
            if isinstance(part, RECURRENT):
                stack.enter_context(instead_of(part, partial(_noted, order, name, part.forward)))
        run_model(module, args, kwargs)
    if not order:
        raise ConfigurationError(
            "a model must call a recurrent module of torch.nn to be split, but calls none; "
            + (why or "name the part for the core with `lstm`")
        )
    return order[0]


def _noted(order: list[str], name: str, forward: Any, *args: Any, **kwargs: Any) -> Any:
    order.append(name)
    return forward(*args, **kwargs)


class _Reached(BaseException):
    """Ends a run of the module where the core begins; no error, so that no handler of errors takes it."""


class _FrontAround(nn.Module):  # type: ignore[misc]
    """Runs a module until it calls one of its parts, and what stands in front of the core in that."""

    def __init__(self, module: nn.Module, part: str, front: nn.Module) -> None:
        super().__init__()
        self.module, self.part, self.front = module, part, front

    def forward(self, *args: Any, **kwargs: Any) -> tuple[dict[str, Any], Past]:
        """As :meth:`Front.forward`."""
        found: list[Any] = []

        def reached(*given: Any, **named: Any) -> None:
            found.append((given, named))
            raise _Reached

        part = self.module.get_submodule(self.part)
        with torch.no_grad(), instead_of(part, reached), contextlib.suppress(_Reached):
            self.module(*args, **kwargs)
        if not found:
            raise InputError(f"the model must call {self.part!r}, which the core computes, but does not")
        core, past = self.front(*found[0][0], **found[0][1])
        return core, past._replace(values=(past,), call=(args, kwargs))


class _BackAround(nn.Module):  # type: ignore[misc]
    """Runs a module again, with what the core gave as the result of one of its parts."""

    def __init__(self, module: nn.Module, part: str, back: nn.Module) -> None:
        super().__init__()
        self.module, self.part, self.back = module, part, back

    def forward(self, y: Any, state: Any = None, past: Any = None) -> Any:
        """As :meth:`Back.forward`."""
        result = self.back(y, state, past.values[0] if isinstance(past, Past) else past)
        with instead_of(self.module.get_submodule(self.part), lambda *_, **__: result):
            args, kwargs = past.call
            return self.module(*args, **kwargs)
