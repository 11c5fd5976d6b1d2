"""Reads a ``torch.nn.Module``: an ``nn.LSTM``, or a module that has one, followed by tracing."""

import operator
from typing import Any

from rtlstm.gen.frontends.arrays import import_extra, listed
from rtlstm.gen.frontends.axes import Axes
from rtlstm.gen.frontends.chain import Chain, LstmWeights
from rtlstm.gen.frontends.report import ReadOptions, ReportBuilder
from rtlstm.gen.frontends.tensors import lstm_weights
from rtlstm.gen.frontends.torch_ops import SUPPORTED, TorchStep, apply_node, operation, parameter
from rtlstm.gen.frontends.torch_trace import ancestors, first_input, trace
from rtlstm.spec.errors import ModelError
from rtlstm.spec.network import Network

__all__ = ["read_module"]

_CUT = "to end earlier, give the node or module to end at as output"
_UPSTREAM_PASS = (
    "clone", "contiguous", "detach", "double", "dropout", "float", "half", "permute", "squeeze",
    "transpose", "unsqueeze",
)  # fmt: skip
_SHAPE_QUERIES = ("dim", "size")
_ZEROS = ("zeros", "zeros_like", "new_zeros")
_STATE_PASS = (
    "clone", "contiguous", "cpu", "cuda", "detach", "double", "float", "half", "repeat", "expand",
    "squeeze", "to", "unsqueeze",
)  # fmt: skip


def read_module(module: Any, options: ReadOptions, report: ReportBuilder) -> Network:
    """Read a module; ``report`` collects what becomes of every node."""
    torch = import_extra("torch", "torch")
    report.format = "torch module"
    if options.dense is not None:
        raise ModelError("the option dense is for files of tensors; a module has its dense layers in itself")
    if isinstance(module, torch.jit.ScriptModule):
        raise ModelError(
            "TorchScript modules are not supported; give the original nn.Module, or export it with "
            "torch.onnx.export"
        )
    if isinstance(module, torch.nn.RNNBase | torch.nn.RNNCellBase):
        root = torch.nn.Sequential()
        root.add_module(type(module).__name__.lower(), module)
        module = root
    return _Reader(module, trace(torch, module), options, report).read()


class _Reader:
    """Walks the traced graph from the LSTM to the output."""

    def __init__(self, root: Any, graph: Any, options: ReadOptions, report: ReportBuilder) -> None:
        self.options, self.report = options, report
        self.modules = dict(root.named_modules(remove_duplicate=False))
        self.root = root
        self.nodes = list(graph.nodes)
        self.chain = Chain(_CUT)
        self.used: set[str] = set()
        result = next(node for node in self.nodes if node.op == "output")
        self.targets = self._targets(result)
        self.needed = ancestors(self.targets)
        report.model_inputs = tuple(node.name for node in self.nodes if node.op == "placeholder")
        report.model_outputs = tuple(node.name for node in result.all_input_nodes)

    def _targets(self, result: Any) -> list[Any]:
        wanted = self.options.output
        if wanted is None:
            return list(result.all_input_nodes)
        found = [node for node in self.nodes if wanted in (node.name, self._label(node))]
        if not found:
            names = listed(self._label(node) for node in self.nodes if node.op.startswith("call"))
            raise ModelError(f"output must name a node of the module, but {wanted!r} is none; it has {names}")
        return found[:1]

    def _label(self, node: Any) -> str:
        return str(node.target) if node.op in ("call_module", "get_attr") else str(node.name)

    def _kind(self, node: Any) -> str:
        if node.op == "call_module":
            return type(self.modules[node.target]).__name__
        return getattr(node.target, "__name__", str(node.target))

    def _where(self, node: Any) -> str:
        return f"{self._kind(node)} {self._label(node)!r}"

    def read(self) -> Network:
        node = self._start()
        self._upstream(first_input(node), node)
        self.report.input = f"the input of {self._label(node)}"
        axes: Axes | None = None
        last = node
        while node is not None:
            try:
                last, axes = self._apply(node, last, axes)
            except ModelError as error:
                self.report.node(self._label(node), self._kind(node), "refused", str(error))
                raise
            node = self._next(last)
        if last not in self.targets:
            raise ModelError(
                f"the chain after the LSTM must lead to {listed(map(self._label, self.targets))}, "
                f"but it ends at {self._label(last)!r}; {_CUT}"
            )
        self.report.output = self._label(last)
        for other in self.targets:
            if other is not last and other.target is not operator.getitem:
                self.report.note(f"the output {self._where(other)} is not computed by the core")
        if axes is not None and axes.last_step:
            self.report.note("the model keeps only the last step; the core gives every step, use its last")
        self._report_unused()
        return self.chain.finish(self.report.name)

    # Where to begin

    def _is_recurrent(self, node: Any) -> bool:
        import torch

        kinds = (torch.nn.RNNBase, torch.nn.RNNCellBase)
        return node.op == "call_module" and isinstance(self.modules[node.target], kinds)

    def _is_lstm(self, node: Any) -> bool:
        import torch

        return isinstance(self.modules[node.target], torch.nn.LSTM | torch.nn.LSTMCell)

    def _start(self) -> Any:
        found = [node for node in self.nodes if self._is_recurrent(node)]
        for node in found:
            if not self._is_lstm(node) and self.options.lstm is None:
                self.report.node(self._label(node), self._kind(node), "refused", "only LSTM is supported")
                raise ModelError(f"{self._where(node)} is not supported, only LSTM is")
        found = [node for node in found if self._is_lstm(node)]
        names = listed(self._label(node) for node in found)
        if not found:
            have = listed(self._kind(node) for node in self.nodes if node.op.startswith("call"))
            raise ModelError(f"must have an nn.LSTM, but its forward uses none; it uses {have}")
        if self.options.lstm is not None:
            for node in found:
                if self.options.lstm in (node.name, node.target):
                    return node
            raise ModelError(
                f"lstm must name an LSTM module, but {self.options.lstm!r} is none; it has {names}"
            )
        found = [node for node in found if node in self.needed]
        first = [node for node in found if not any(other in ancestors([node]) - {node} for other in found)]
        if len(first) != 1:
            raise ModelError(
                f"LSTM modules must follow one another and lead to the output, but {len(first)} of "
                f"{names} begin a chain; choose one as lstm"
            )
        return first[0]

    def _upstream(self, value: Any, start: Any) -> None:
        before = ancestors([value]) if hasattr(value, "op") else set()
        inputs = [node for node in self.nodes if node in before]
        outside = [node for node in inputs if node.op not in ("placeholder",)]
        strange = [node for node in outside if operation(node, self.modules) not in _UPSTREAM_PASS]
        if self.options.lstm is None:
            for node in strange:
                self.report.node(self._label(node), self._kind(node), "refused", "before the LSTM")
                raise ModelError(
                    f"{self._where(node)} comes before {self._where(start)} and would stay outside of the "
                    f"core; give lstm={self._label(start)!r} to begin there and compute it yourself"
                )
        for node in outside:
            self.report.node(self._label(node), self._kind(node), "outside", "before the LSTM")
        if outside:
            self.report.note(f"{listed(map(self._where, outside))} before the LSTM stays outside of the core")

    # Along the chain

    def _apply(self, node: Any, before: Any, axes: Axes | None) -> tuple[Any, Axes]:
        name = operation(node, self.modules)
        where = self._where(node)
        if node.op == "call_module":
            self._check_module(node, where)
        if self._is_recurrent(node):
            return self._apply_lstm(node, before, axes)
        if name is None:
            raise ModelError(
                f"{where}, which reads {self._label(before)!r}, is not supported after an LSTM; supported "
                f"are {SUPPORTED}; to leave it outside of the core, give output={before.name!r}"
            )
        if not node.args or node.args[0] is not before:
            raise ModelError(f"{where} must read {self._label(before)!r} as its first argument")
        assert axes is not None
        module = self.modules[node.target] if node.op == "call_module" else None
        axes = apply_node(TorchStep(node, self._label(node), where, module, axes, self.chain), name)
        core = name in ("Linear", "Conv1d") or name.rstrip("_") in ("relu", "sigmoid", "tanh")
        if name == "dropout" and node.op != "call_module":
            _check_dropout(node, where)
        why = "ignored in inference" if name == "dropout" else ""
        self.report.node(self._label(node), self._kind(node), "core" if core else "shape", why)
        return node, axes

    def _check_module(self, node: Any, where: str) -> None:
        module = self.modules[node.target]
        if node.target in self.used and list(module.parameters()):
            raise ModelError(
                f"{where} is called more than once, but every layer must have weights of its own"
            )
        self.used.add(node.target)
        if module._forward_hooks or module._forward_pre_hooks:
            raise ModelError(f"{where} has forward hooks, which are not supported; remove them first")

    def _apply_lstm(self, node: Any, before: Any, axes: Axes | None) -> tuple[Any, Axes]:
        module, where, label = self.modules[node.target], self._where(node), self._label(node)
        self._check_lstm(node, module, where)
        cell = not hasattr(module, "num_layers")
        batch_first = bool(getattr(module, "batch_first", False))
        expected = ("N", "F") if cell else ("N", "T", "F") if batch_first else ("T", "N", "F")
        if axes is not None:
            axes.expect(where)
            if first_input(node) is not before or axes.tags != expected or (axes.last_step and not cell):
                raise ModelError(
                    f"{where} must read axes ({', '.join(expected)}) for steps, sequences and features, but "
                    f"its input has ({', '.join(axes.tags)})"
                )
        count = getattr(module, "num_layers", 1)
        for number in range(count):
            name = label if count == 1 else f"{label}_l{number}"
            suffix = "" if cell else f"_l{number}"
            weights = self._weights(module, suffix, f"{where} layer {number}" if count > 1 else where)
            self.chain.add_lstm(name, where, weights)
            size = f"{weights.w_ih.shape[1]} -> {weights.w_hh.shape[1]}"
            self.report.node(name, self._kind(node), "core", size)
        if batch_first:
            self.report.note(f"{where} has batch_first: its data are (sequences, steps, features)")
        if getattr(module, "dropout", 0):
            self.report.note(
                f"{where}: dropout={module.dropout} is ignored, for it has no effect in inference"
            )
        y, final = self._lstm_output(node, where, cell)
        if final:
            tags: tuple[str, ...] = ("D" if count == 1 else "L", "N", "F")
        else:
            tags = expected
        return y, Axes(tags, int(module.hidden_size), last_step=final)

    def _check_lstm(self, node: Any, module: Any, where: str) -> None:
        import torch

        base = torch.nn.LSTM if isinstance(module, torch.nn.LSTM) else torch.nn.LSTMCell
        if not isinstance(module, base):
            raise ModelError(f"{where} is not supported, only torch.nn.LSTM and torch.nn.LSTMCell are")
        problems = []
        if type(module).forward is not base.forward:
            problems.append("it has a forward of its own")
        if getattr(module, "bidirectional", False):
            problems.append("bidirectional=True is not supported, only False")
        if getattr(module, "proj_size", 0):
            problems.append(f"proj_size={module.proj_size} is not supported, only 0")
        state = node.args[1] if len(node.args) > 1 else node.kwargs.get("hx")
        problems += self._state_problems(state, where)
        if problems:
            raise ModelError(f"{where}: " + "; ".join(problems))

    @staticmethod
    def _weights(module: Any, suffix: str, where: str) -> LstmWeights:
        kinds = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        names = {kind: kind + suffix for kind in kinds if getattr(module, kind + suffix, None) is not None}
        return lstm_weights(lambda name: parameter(getattr(module, name), f"{where}: {name}"), names, where)

    def _state_problems(self, state: Any, where: str) -> list[str]:
        if state is None:
            return []
        if isinstance(state, list | tuple):
            found = (self._state_problems(item, where) for item in state)
            return [problem for problems in found for problem in problems]
        if not hasattr(state, "op"):
            return [f"the state {state!r} is not supported"]
        if state.op == "placeholder":
            self.report.note(
                f"{where} begins with the input {state.name!r}: give the state to the driver at run time"
            )
            return []
        if state.op == "get_attr":
            value: Any = self.root
            for part in state.target.split("."):
                value = getattr(value, part)
            if bool((value == 0).all()):
                return []
            return [f"the state {state.target!r} is a constant that is not zero (give a state to the driver)"]
        kind = self._kind(state)
        if kind in _ZEROS:
            return []
        if kind in _STATE_PASS or state.target is operator.getitem:
            return self._state_problems(state.args[0], where)
        return [f"the state is computed by {self._where(state)}; it must be absent, zero or an input"]

    def _lstm_output(self, node: Any, where: str, cell: bool) -> tuple[Any, bool]:
        """The node of the outputs, and whether it is the final state instead."""
        users = self._users(node)
        items = {user.args[1]: user for user in users if user.target is operator.getitem}
        direct = [user for user in users if user.target is not operator.getitem and user.op != "output"]
        if direct and items:
            raise ModelError(f"{where}: its tuple must be used whole or by its items, not both")
        if direct:
            self.report.note(
                f"{self._where(direct[0])} reads the tuple that {where} gives; its first item is taken"
            )
        if cell:
            y, hidden, memory = items.get(0), None, items.get(1)
        else:
            y, hidden, memory = items.get(0), None, None
            if 1 in items:
                parts = {u.args[1]: u for u in self._users(items[1]) if u.target is operator.getitem}
                hidden, memory = parts.get(0), parts.get(1)
        if memory is not None and self._computes(memory):
            raise ModelError(
                f"{where}: its cell state is read by {self._computes(memory)}, "
                "but the core gives it only as state"
            )
        main = y if y is not None else node if direct or hidden is None else None
        if hidden is not None and self._computes(hidden):
            if main is not None:
                raise ModelError(
                    f"{where}: both its output and its final hidden state (read by {self._computes(hidden)}) "
                    f"are used, but the core computes one chain; {_CUT}"
                )
            return hidden, True
        return (main, False) if main is not None else (hidden, True)

    def _users(self, node: Any) -> list[Any]:
        return [
            user
            for user in node.users
            if user in self.needed
            and not (user.op == "call_method" and user.target in _SHAPE_QUERIES)
            and not (user.op == "call_function" and user.target is getattr)
        ]

    def _computes(self, node: Any) -> str:
        return listed(map(self._where, self._users(node)))

    def _next(self, node: Any) -> Any:
        if self.options.output is not None and node is self.targets[0]:
            return None
        users = self._users(node)
        if self._is_recurrent(node):  # its tuple is used whole, as nn.Sequential does
            users = [user for user in users if user.target is not operator.getitem]
        if len(users) > 1:
            raise ModelError(
                f"{self._where(node)} must go to one place, but {len(users)} read it: "
                f"{listed(map(self._where, users))}; the core computes one chain; {_CUT}"
            )
        if users and node in self.targets:
            self.report.note(
                f"{self._where(node)} is an output of the model too, but the core gives only the end"
            )
        return users[0] if users else None

    def _report_unused(self) -> None:
        known = {entry.name for entry in self.report.nodes}
        for name, module in self.modules.items():
            leaf = name and not list(module.children())
            called = any(node.op == "call_module" and node.target == name for node in self.nodes)
            if leaf and name not in known and not called and list(module.parameters()):
                self.report.node(name, type(module).__name__, "outside", "not used by forward")


def _check_dropout(node: Any, where: str) -> None:
    """Functional dropout is active unless it is told otherwise, whatever ``eval()`` says."""
    named = [node.kwargs[key] for key in ("training", "train") if key in node.kwargs]
    given = list(node.args[2:3]) or named
    if given != [False]:
        raise ModelError(
            f"{where}: training must be False, not {given[0] if given else 'left to its default, True'}; "
            "write F.dropout(x, p, self.training) and call eval() on the model, or use nn.Dropout"
        )
