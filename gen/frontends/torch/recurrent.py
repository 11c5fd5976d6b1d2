"""PyTorch's recurrent modules in a traced graph: parameters, initial states, packed sequences, outputs."""

from dataclasses import replace
from typing import Any

from rtlstm.gen.frontends.axes import Axes
from rtlstm.gen.frontends.reading import ReportBuilder
from rtlstm.gen.frontends.torch.cells import PARAMETERS, bidirectional_layer, recurrent_layer
from rtlstm.gen.frontends.torch.initial_states import learned_states
from rtlstm.gen.frontends.torch.module_names import module_kind
from rtlstm.gen.frontends.torch.ops import parameter
from rtlstm.gen.frontends.torch.values import Data, Outside, TorchNode, TorchState
from rtlstm.spec.errors import ModelError
from rtlstm.spec.network import Bidirectional, Gru, Lstm, Rnn

__all__ = ["pack", "pad_packed", "recurrent"]


def recurrent(step: TorchNode, report: ReportBuilder) -> Any:
    """Append a module's layers; give what the module gives, with tuples for its tuples."""
    module, where = step.module, step.where
    kind = module_kind(module)
    cell = kind.endswith("Cell")
    batch_first = bool(getattr(module, "batch_first", False))
    packed = _PACKED_AXES if not cell else ("N", "F")
    layout = ("N", "F") if cell else ("N", "T", "F") if batch_first else ("T", "N", "F")
    data = _input(step, layout if not _first(step).packed else packed)
    layers = _layers(module, kind, step.label, where)
    flow = data.flow
    for layer in layers:
        flow = flow.recurrent(layer, where)
        report.node(layer.name, kind, "core", f"{layer.inputs} -> {layer.outputs}")
    flow = flow.beginning(learned_states(step, flow.layers[-len(layers) :], report))
    _note(step, module, kind, batch_first, report)
    if "T" in data.axes.single:
        report.note(_one_step(where))
    kept: dict[str, Any] = {name: getattr(data.axes, name) for name in ("shown", "single", "fixed")}
    axes = Axes(data.axes.tags, flow.outputs or 0, **kept)
    y = replace(data, axes=axes, flow=flow, packed=where if data.packed else "")
    if isinstance(layers[-1], Bidirectional):
        both = ("B" if len(layers) == 1 else "S", "N", "F")
        final = Axes(both, layers[-1].forward.outputs, last_step=True, **kept)
        hidden = Data(flow.final_states(), final, data.source, state=True)
    else:
        tags = ("N", "F") if cell else ("D" if len(layers) == 1 else "L", "N", "F")
        final = Axes(tags, flow.outputs or 0, last_step=not cell, **kept)
        hidden = Data(flow, final, data.source)
    long = kind.startswith("LSTM")
    memory = TorchState(where, "cell state")
    if cell:
        return (hidden, memory) if long else hidden
    return (y, (hidden, memory)) if long else (y, hidden)


_PACKED_AXES = ("T", "N", "F")


def _first(step: TorchNode) -> Data:
    """The input; of another module's tuple its first item."""
    value = step.argument(0, "input")
    while isinstance(value, tuple) and value:
        value = value[0]
    return value if isinstance(value, Data) else step.as_data(value)


def _input(step: TorchNode, layout: tuple[str, ...]) -> Data:
    data = _first(step)
    if data.padded:
        raise ModelError(
            f"{step.where} reads sequences that {data.padded} padded, and would go on through the padding; "
            "pack them again, with torch.nn.utils.rnn.pack_padded_sequence"
        )
    if any(data.margin):
        raise ModelError(f"{step.where} reads steps that a convolution padded; drop the last ones first")
    if data.of_layers or data.axes.last_step or data.axes.first_step:
        raise ModelError(f"{step.where} must read every step of a sequence, not final states")
    return data.with_axes(data.axes.settle(layout, data.flow.outputs or 0, step.where))


def _layers(module: Any, kind: str, label: str, where: str) -> list[Lstm | Gru | Rnn | Bidirectional]:
    cell = kind.endswith("Cell")
    count = 1 if cell else int(module.num_layers)
    relu = getattr(module, "nonlinearity", "tanh") == "relu"

    def direction(number: int, name: str, reverse: bool) -> Lstm | Gru | Rnn:
        suffix = "" if cell else f"_l{number}" + "_reverse" * reverse
        names = {
            part: part + suffix for part in PARAMETERS if getattr(module, part + suffix, None) is not None
        }
        title = f"{where} layer {number}" if count > 1 else where

        def get(key: str) -> Any:
            return parameter(getattr(module, key), f"{title}: {key}")

        return recurrent_layer(get, names, name, title, reverse=reverse, relu=relu)

    layers: list[Lstm | Gru | Rnn | Bidirectional] = []
    for number in range(count):
        name = label if count == 1 else f"{label}_l{number}"
        if getattr(module, "bidirectional", False):
            both = direction(number, f"{name}_forward", False), direction(number, f"{name}_backward", True)
            layers.append(bidirectional_layer(name, *both, where))
        else:
            layers.append(direction(number, name, False))
    return layers


def _note(step: TorchNode, module: Any, kind: str, batch_first: bool, report: ReportBuilder) -> None:
    if batch_first:
        report.takes_sequences_first(f"{step.where} has batch_first in PyTorch")
    if getattr(module, "dropout", 0):
        report.note(f"{step.where}: dropout={module.dropout} is ignored, for it has no effect in inference")
    if kind.endswith("Cell"):
        report.note(_one_step(step.where))


def _one_step(where: str) -> str:
    return f"{where} computes one step: the core keeps its state from step to step"


def pack(step: TorchNode, report: ReportBuilder) -> Data:
    """``pack_padded_sequence``: from here on every sequence ends at its length."""
    data = step.as_data(step.args[0] if step.args else step.kwargs.get("input"))
    if any(data.margin):
        raise ModelError(f"{step.where} reads steps that a convolution padded; drop the last ones first")
    batch_first = step.argument(2, "batch_first", False)
    layout = ("N", "T", "F") if batch_first else ("T", "N", "F")
    axes = data.axes.settle(layout, data.flow.outputs or 0, step.where)
    if axes.last_step or axes.first_step:
        raise ModelError(f"{step.where} must read every step of a sequence, not one of them")
    report.note(f"{step.where}: give the lengths to the driver, run(x, lengths); they may be in any order")
    return replace(data, axes=replace(axes, tags=_PACKED_AXES), packed=step.where, padded="")


def pad_packed(step: TorchNode, report: ReportBuilder) -> Any:
    """``pad_packed_sequence``: a padded tensor, and the lengths."""
    value = step.args[0] if step.args else step.kwargs.get("sequence")
    if not isinstance(value, Data) or not value.packed:
        raise ModelError(f"{step.where} must read a PackedSequence")
    filling = step.argument(2, "padding_value", 0.0)
    if filling != 0.0:
        raise ModelError(f"{step.where}: padding_value must be 0, not {filling}")
    tags = ("N", "T", "F") if step.argument(1, "batch_first", False) else ("T", "N", "F")
    report.note(f"{step.where}: the driver gives zeros past the end of a sequence")
    padded = replace(value, axes=replace(value.axes, tags=tags), packed="", padded=step.where)
    return padded, Outside(step.where)
