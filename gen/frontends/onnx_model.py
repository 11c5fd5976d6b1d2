"""Reads the LSTM layers of an ONNX model and the dense layers after them."""

from collections import Counter
from pathlib import Path
from typing import Any

from rtlstm.gen.frontends.arrays import listed
from rtlstm.gen.frontends.axes import Axes
from rtlstm.gen.frontends.chain import Chain
from rtlstm.gen.frontends.onnx_branches import take_branches
from rtlstm.gen.frontends.onnx_graph import OnnxGraph, load_onnx, subgraphs
from rtlstm.gen.frontends.onnx_lstm import read_lstm_node
from rtlstm.gen.frontends.onnx_ops import OPERATORS, SUPPORTED, Step
from rtlstm.gen.frontends.report import ReadOptions, ReportBuilder
from rtlstm.spec.errors import ModelError
from rtlstm.spec.network import Network

__all__ = ["read_onnx"]

_OTHER_CELLS = ("GRU", "RNN")
_STATE_ONLY = (
    "Cast", "Concat", "Gather", "Identity", "Reshape", "Shape", "Slice", "Squeeze", "Transpose", "Unsqueeze",
)  # fmt: skip
_CUT = "to end earlier, give the tensor to end at as output (--output)"


def read_onnx(path: Path, options: ReadOptions, report: ReportBuilder) -> Network:
    """Read an ONNX file; ``report`` collects what becomes of every node."""
    report.format = "onnx"
    if options.dense is not None:
        raise ModelError(
            "the option dense is for files of tensors without a graph; an ONNX model has its dense layers "
            "in the graph (end it with output)"
        )
    graph, notes = take_branches(load_onnx(path), options.branches)
    for note in notes:
        report.note(note)
    report.model_inputs, report.model_outputs = tuple(graph.inputs), tuple(graph.outputs)
    return _Reader(graph, options, report).read()


class _Reader:
    """Walks from the first LSTM node to the output."""

    def __init__(self, graph: OnnxGraph, options: ReadOptions, report: ReportBuilder) -> None:
        self.graph, self.options, self.report = graph, options, report
        if options.output is not None and not graph.is_tensor(options.output):
            raise ModelError(
                f"output must name a tensor of the model, but there is no {options.output!r}; "
                f"its outputs are {listed(graph.outputs)}"
            )
        self.targets = graph.outputs if options.output is None else [options.output]
        self.needed = graph.ancestors(self.targets)
        self.chain = Chain(_CUT)
        self.visited: set[int] = set()
        self.upstream: set[int] = set()

    def read(self) -> Network:
        index = self._start()
        tensor = self.graph.nodes[index].input[0]
        self.report.input = tensor
        self.upstream = self.graph.ancestors([tensor])
        self._report_upstream(tensor)
        axes: Axes | None = None
        following: int | None = index
        while following is not None:
            node = self.graph.nodes[following]
            self.visited.add(following)
            try:
                tensor, axes = self._apply(node, tensor, axes)
            except ModelError as error:
                self.report.node(self.graph.label(node), node.op_type, "refused", str(error))
                raise
            following = self._next(tensor)
        if tensor not in self.targets:
            raise ModelError(
                f"the chain after the LSTM must lead to {listed(map(repr, self.targets))}, but it ends at "
                f"{tensor!r}; {_CUT}"
            )
        self.report.output = tensor
        self._report_rest()
        if axes is not None and axes.last_step:
            self.report.note("the model keeps only the last step; the core gives every step, use its last")
        return self.chain.finish(self.report.name)

    # Where to begin

    def _start(self) -> int:
        nodes = self.graph.nodes
        found = [index for index, node in enumerate(nodes) if node.op_type == "LSTM"]
        if not found:
            raise ModelError(self._no_lstm())
        names = listed(self.graph.label(nodes[index]) for index in found)
        if self.options.lstm is not None:
            for index in found:
                if self.options.lstm in (nodes[index].name, *nodes[index].output):
                    return index
            raise ModelError(
                f"lstm must name an LSTM node, but there is no {self.options.lstm!r}; it has {names}"
            )
        for index in sorted(self.needed):
            if nodes[index].op_type in _OTHER_CELLS:
                where = self.graph.where(nodes[index])
                self.report.node(
                    self.graph.label(nodes[index]), nodes[index].op_type, "refused", "not supported yet"
                )
                raise ModelError(
                    f"{where} is not supported, only LSTM is; to leave it outside of the core, name the "
                    f"LSTM to begin with as lstm (--lstm): {names}"
                )
        used = [index for index in found if index in self.needed]
        if not used:
            raise ModelError(f"output {listed(self.targets)} does not depend on an LSTM node; it has {names}")
        first = [i for i in used if not self._has_lstm_before(i)]
        if len(first) > 1:
            names = listed(self.graph.label(nodes[index]) for index in first)
            raise ModelError(
                f"LSTM nodes must follow one another, but these stand side by side: {names}; "
                "choose one as lstm (--lstm) and, if needed, an end as output (--output)"
            )
        return first[0]

    def _has_lstm_before(self, index: int) -> bool:
        before = self.graph.ancestors(self.graph.nodes[index].input)
        return any(self.graph.nodes[at].op_type == "LSTM" for at in before)

    def _no_lstm(self) -> str:
        nodes = self.graph.nodes
        operators = listed(
            f"{name} ({count})" for name, count in Counter(n.op_type for n in nodes).most_common()
        )
        text = "must have an LSTM node at the top of its graph, but there is no LSTM node in it"
        inner = sum(_count_lstm(sub) for node in nodes for sub in subgraphs(node))
        for node in nodes:
            if node.op_type in _OTHER_CELLS:
                self.report.node(self.graph.label(node), node.op_type, "refused", "not supported yet")
                text += f"; {self.graph.where(node)} is not supported yet"
        if inner:
            holders = [node for node in nodes if any(map(_count_lstm, subgraphs(node)))]
            text += f" ({inner} LSTM node{'s' * (inner > 1)} inside {self._condition(holders[0])})"
        return f"{text}; it has {operators}"

    def _condition(self, node: Any) -> str:
        """Name a node with graphs inside, and say what to do about it."""
        where, label = self.graph.where(node), self.graph.label(node)
        if node.op_type != "If":
            return f"{where}, which is not supported; export the model without it"
        cause = self.graph.producer(node.input[0])
        condition = (
            repr(node.input[0]) if cause is None else f"{node.input[0]!r}, of {self.graph.where(cause)}"
        )
        return (
            f"{where}, whose condition is {condition}; choose a branch with "
            f"branch='{label}:then' or ':else' (--branch)"
        )

    # Along the chain

    def _apply(self, node: Any, tensor: str, axes: Axes | None) -> tuple[str, Axes]:
        graph, where = self.graph, self.graph.where(node)
        if node.op_type == "LSTM" and node.domain in ("", "ai.onnx"):
            return self._apply_lstm(node, tensor, axes)
        operator = OPERATORS.get(node.op_type) if node.domain in ("", "ai.onnx") else None
        if node.op_type == "If":
            raise ModelError(f"after the LSTM {tensor!r} goes into {self._condition(node)}")
        if operator is None:
            extra = " yet" if node.op_type in _OTHER_CELLS else ""
            raise ModelError(
                f"{where}, which reads {tensor!r}, is not supported{extra} after an LSTM; supported are "
                f"{SUPPORTED}; to leave it outside of the core, end at output={tensor!r} (--output)"
            )
        assert axes is not None
        axes = operator(Step(graph, node, tensor, axes, self.chain))
        computes = node.op_type in ("Add", "Conv", "Gemm", "MatMul", "Relu", "Sigmoid", "Tanh")
        self.report.node(graph.label(node), node.op_type, "core" if computes else "shape")
        return node.output[0], axes

    def _apply_lstm(self, node: Any, tensor: str, axes: Axes | None) -> tuple[str, Axes]:
        where = self.graph.where(node)
        if node.input[0] != tensor:
            raise ModelError(f"{where} must read {tensor!r} as its input X, but reads it elsewhere")
        read = read_lstm_node(self.graph, node)
        expected = ("N", "T", "F") if read.layout else ("T", "N", "F")
        if axes is not None:
            axes.expect(where)
            if axes.tags != expected:
                raise ModelError(
                    f"{where} must read axes ({', '.join(expected)}) for steps, sequences and features, "
                    f"but its input has ({', '.join(axes.tags)})"
                )
        for note in read.notes:
            self.report.note(f"{where}: {note}")
        self.chain.add_lstm(self.graph.label(node), where, read.weights)
        hidden = read.weights.w_hh.shape[1]
        layout = f", layout {read.layout}" if read.layout else ""
        self.report.node(
            self.graph.label(node), "LSTM", "core", f"{read.weights.w_ih.shape[1]} -> {hidden}{layout}"
        )
        name, final = self._lstm_output(node, where)
        tags: tuple[str, ...]
        if final:
            tags = ("N", "D", "F") if read.layout else ("D", "N", "F")
        else:
            tags = ("N", "T", "D", "F") if read.layout else ("T", "D", "N", "F")
        return name, Axes(tags, hidden, last_step=final)

    def _lstm_output(self, node: Any, where: str) -> tuple[str, bool]:
        """The output that the chain goes on with: Y, or Y_h where Y is not used."""
        outputs: list[str] = [*node.output, "", "", ""]
        y, y_h, y_c = outputs[:3]
        busy = self._computes(y_c)
        if busy is not None:
            raise ModelError(
                f"{where}: output Y_c ({y_c!r}) is read by {busy}, but the core gives the cell state only "
                f"as state; {_CUT}"
            )
        if not (y and self._used(y)) and y_h and self._used(y_h):
            return y_h, True
        busy = self._computes(y_h)
        if busy is not None:
            raise ModelError(
                f"{where}: both outputs Y ({y!r}) and Y_h ({y_h!r}, read by {busy}) are used, but the core "
                f"computes one chain; {_CUT}"
            )
        if not y:
            raise ModelError(f"{where}: output Y must be given where Y_h is not used")
        return y, False

    def _used(self, tensor: str) -> bool:
        return tensor in self.targets or any(index in self.needed for index in self._readers(tensor))

    def _computes(self, tensor: str) -> str | None:
        """The first node that computes with a state, rather than handing it out."""
        if not tensor:
            return None
        for index in self._readers(tensor):
            found = self._node_computes(index)
            if found is not None:
                return found
        return None

    def _node_computes(self, index: int) -> str | None:
        """The node itself if it computes, else the first one behind it that does."""
        node = self.graph.nodes[index]
        if node.op_type not in _STATE_ONLY:
            return self.graph.where(node)
        found = (self._computes(output) for output in node.output if output)
        return next((name for name in found if name is not None), None)

    def _readers(self, tensor: str) -> list[int]:
        nodes = self.graph.nodes
        return [
            index
            for index in self.graph.consumers(tensor)
            if index in self.needed and nodes[index].op_type != "Shape"
        ]

    def _next(self, tensor: str) -> int | None:
        if tensor == self.options.output:
            return None
        readers = self._readers(tensor)
        if len(readers) > 1:  # one may go on while others only hand the tensor out as a state
            readers = [index for index in readers if self._node_computes(index) is not None] or readers
        if len(readers) > 1:
            names = listed(self.graph.where(self.graph.nodes[index]) for index in readers)
            raise ModelError(
                f"tensor {tensor!r} must go to one node, but {len(readers)} read it: {names}; "
                f"the core computes one chain; end at output={tensor!r} or at a later tensor (--output)"
            )
        if readers and tensor in self.targets:
            self.report.note(
                f"{tensor!r} is an output of the model too, but the core gives only the end of the chain"
            )
        return readers[0] if readers else None

    # What is left

    def _report_upstream(self, tensor: str) -> None:
        nodes = [self.graph.nodes[index] for index in sorted(self.upstream)]
        nodes = [node for node in nodes if self.graph.constant(node.output[0]) is None]
        for node in nodes:
            self.report.node(self.graph.label(node), node.op_type, "outside", "before the first LSTM")
        if not nodes:
            return
        if all(node.op_type in ("Identity", "Transpose") for node in nodes):
            self.report.note(
                f"the model's input is turned by {listed(n.op_type for n in nodes)} before the LSTM"
            )
        else:
            self.report.note(
                f"{len(nodes)} nodes before the first LSTM stay outside of the core: its input is {tensor!r}"
            )

    def _report_rest(self) -> None:
        graph, chain = self.graph, [self.graph.nodes[index] for index in sorted(self.visited)]
        states = [tensor for node in chain if node.op_type == "LSTM" for tensor in node.input[4:7]]
        before = graph.ancestors(states)
        for index, node in enumerate(graph.nodes):
            if index in self.visited | self.upstream or graph.constant(node.output[0]) is not None:
                continue
            if index in before or self._hands_out_state(index):
                self.report.node(graph.label(node), node.op_type, "state", "shapes and states")
            else:
                why = "not on the way from the LSTM to the output"
                self.report.node(graph.label(node), node.op_type, "outside", why)
                if index in self.needed:
                    self.report.note(f"{graph.where(node)} stays outside of the core")
        for name in graph.outputs:
            if name != self.report.output and any(name in node.output[1:] for node in chain):
                self.report.note(f"the model's output {name!r} is a state; the driver gives it")

    def _hands_out_state(self, index: int) -> bool:
        node = self.graph.nodes[index]
        return node.op_type in _STATE_ONLY and bool(self.graph.ancestors(node.input) & self.visited)


def _count_lstm(graph: Any) -> int:
    return sum(
        (node.op_type == "LSTM") + sum(_count_lstm(inner) for inner in subgraphs(node)) for node in graph.node
    )
