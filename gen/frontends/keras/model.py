"""Reads Keras models: LSTM, GRU, SimpleRNN and Bidirectional layers, and the layers around them.

Every argument of a recurrent layer is supported, or an error names it. Gate orders are Keras'
(:mod:`rtlstm.gen.frontends.gates`); a GRU's ``reset_after`` is kept, and so are its two biases.
"""

from dataclasses import replace
from itertools import zip_longest
from typing import BinaryIO

from rtlstm.gen.frontends.arrays import listed
from rtlstm.gen.frontends.keras.archive import ArchiveResult, KerasLayer, KerasModel, read_archive
from rtlstm.gen.frontends.keras.layers import LAYERS, LINEAR, MERGERS, WINDOWS, with_activation
from rtlstm.gen.frontends.keras.node import KerasNode, KerasTensor
from rtlstm.gen.frontends.keras.recurrent import RECURRENT, recurrent
from rtlstm.gen.frontends.outputs import join_outputs, note_steps
from rtlstm.gen.frontends.reading import ReadOptions, ReportBuilder
from rtlstm.spec.errors import ModelError, RtlstmError
from rtlstm.spec.network import Network

__all__ = ["read_keras"]

_DAMAGE = (ArithmeticError, AttributeError, LookupError, OSError, RuntimeError, TypeError, ValueError)
"""Errors of descriptions that Keras did not write, and errors of h5py."""


def read_keras(file: BinaryIO, options: ReadOptions, report: ReportBuilder) -> Network:
    """Read a ``.keras`` or HDF5 model.

    Raises
    ------
    ModelError
        If a layer or an argument is not supported; the message has its name.
    ToolError
        If h5py is not installed.
    """
    try:
        return _read_model(read_archive(file), options, report)
    except _DAMAGE as error:
        if isinstance(error, RtlstmError):
            raise
        text = f"{type(error).__name__}: {error}".splitlines()[0][:200]
        raise ModelError(f"is a damaged Keras file ({text}); save the model again") from None


def _read_model(model: KerasModel, options: ReadOptions, report: ReportBuilder) -> Network:
    report.format = f"Keras {model.version}"
    if options.dense is not None or options.branches or options.lstm:
        raise ModelError(
            "of a Keras model only `output`, the layer to end at, chooses what is read; leave out "
            "`dense`, `branches` and `lstm`"
        )
    output, linear = _output(model, options.output)
    ends, needed = _choose_ends(model, output)
    read_on = {
        result.layer for layer in model.layers if layer.name in needed for result in layer.reads.values
    }
    known: dict[str, KerasTensor] = {}
    inputs = {layer.name for layer in model.layers if layer.kind == "InputLayer"}
    for layer in model.layers:
        if layer.name in needed:
            _check_calls(layer, known, report)
            for mask in layer.reads.masks:
                if mask.layer in inputs:
                    report.note(
                        f"{layer.where} reads a mask, the input {mask.layer!r}, which the core does not "
                        "take: give run() the lengths of the sequences, and "
                        "leave out what it hides within one"
                    )
            read = tuple(_read(known, result, layer) for result in layer.reads.values)
            last = layer.name in set(ends) - read_on
            step = KerasNode(layer, read, report, old=model.version < 3, ends=last, linear=last and linear)
            known[layer.name] = _compute(step)
        elif layer.kind != "InputLayer":
            report.node(layer.name, layer.kind, "outside", "not on the way to the core's output")
    parts = _choose_parts({name: known[name] for name in ends}, model, report)
    for name in parts:
        known[name].check_padding("the end of the model")
    end = parts[-1]
    report.input, report.output = known[end].source, end + LINEAR * linear
    # Files of early Keras 2 have no layer for the input: the first layer has its shape.
    begin, shape = known.get(report.input), model.layers[0].config.get("batch_input_shape") or []
    if not (len(shape) == 2 if begin is None else begin.last):
        report.takes_sequences_first("Keras has sequences before steps")
    try:
        parts = [name for name in ends if name in parts]
        flow, found = join_outputs([(name, known[name].flow) for name in parts], report)
    except ModelError as error:
        raise ModelError(f"{_one_result(list(ends))} ({error})") from None
    for name, part in zip_longest(parts, found):
        if known[name].softmax:
            y = "y" if part is None else f"parts(y)[{part.name!r}]"
            report.note(
                f"{known[name].softmax} ends in softmax, which the host computes: rtlstm.host.softmax({y})"
            )
    return flow.network(report.name, found)


def _output(model: KerasModel, output: str | None) -> tuple[str | None, bool]:
    """The layer that is asked for as the end, and whether its activation is to stay outside."""
    layers = {layer.name: layer for layer in model.layers}
    if output is None or output in layers or not output.endswith(LINEAR):
        return output, False
    name = output.removesuffix(LINEAR)
    if name in layers and not with_activation(layers[name]):
        raise ModelError(
            f"{layers[name].where} has no linear result that {output!r} could end at, as Dense and Conv1D "
            f"have; end at a layer, such as `output={name!r}`"
        )
    return name, True


def _choose_ends(model: KerasModel, output: str | None) -> tuple[tuple[str, ...], set[str]]:
    """The layers to end at, and all that they take."""
    layers = {layer.name: layer for layer in model.layers}
    if output is not None and output not in layers:
        raise ModelError(f"there is no layer {output!r}; there are {', '.join(layers)}")
    if output is None:
        found = [result.layer for result in model.ends if not _is_state(result, layers)]
        ends = tuple(dict.fromkeys(found or [result.layer for result in model.ends]))
    else:
        ends = (output,)
    return ends, set[str]().union(*(_before(layers, name) for name in ends))


def _is_state(result: ArchiveResult, layers: dict[str, KerasLayer]) -> bool:
    """Whether it is a final state of a recurrent layer, which the driver returns."""
    layer = layers.get(result.layer)
    if layer is None or layer.kind not in RECURRENT:
        return False
    apart = layer.kind == "Bidirectional" and layer.config.get("merge_mode", "concat") is None
    return result.index > int(apart)


def _choose_parts(found: dict[str, KerasTensor], model: KerasModel, report: ReportBuilder) -> list[str]:
    """The model's outputs that the core gives, the last one last; none on the way to it of other steps."""
    layers = {layer.name: layer for layer in model.layers}
    last = max(found, key=lambda name: len(found[name].flow.layers))
    parts = []
    for name, given in found.items():
        aside = name not in _before(layers, last)
        alike = given.source == found[last].source and (aside or given.last == found[last].last)
        if name == last or alike:
            parts.append(name)
        elif aside:
            raise ModelError(_one_result([name, last]))
        else:
            report.note(f"{name!r} is an output of the model too, but the core gives only the end, {last!r}")
    steps = {name: (found[name].last, False) for name in parts}
    if len(set(steps.values())) > 1:
        note_steps(steps, report)
    return sorted(parts, key=last.__eq__)


def _one_result(names: list[str]) -> str:
    return (
        f"the model gives {' and '.join(map(repr, names))}, but the core computes one result; choose "
        "the layer to end at as `output`"
    )


def _before(layers: dict[str, KerasLayer], name: str) -> set[str]:
    """A layer, and those whose values it is computed from."""
    found, left = {name}, [name]
    while left:
        if left[-1] not in layers:
            raise ModelError(f"names a layer {left[-1]!r} that it does not have; save the model again")
        more = {result.layer for result in layers[left.pop()].reads.values} - found
        found |= more
        left += more
    return found


def _read(known: dict[str, KerasTensor], result: ArchiveResult, layer: KerasLayer) -> KerasTensor:
    """One of the results of a layer."""
    if result.layer not in known:
        raise ModelError(
            f"{layer.where} stands before {result.layer!r}, which it reads; save the model again"
        )
    given, index = known[result.layer], result.index
    if layer.kind not in WINDOWS:
        given.check_padding(layer.where)
    if given.half:
        both = list(range(given.flow.outputs or 0))
        chosen = both[given.half :] if index else both[: given.half]
        return given.with_flow(given.flow.pick(chosen, layer.where))
    if index == 0:
        return given
    if index == 1 and given.state:
        return replace(given, last=True, state=False)
    raise ModelError(
        f"{layer.where} reads a final state of {result.layer!r} (its result {index}), which the core gives "
        "only as state; compute it on the host"
    )


def _check_calls(layer: KerasLayer, known: dict[str, KerasTensor], report: ReportBuilder) -> None:
    """Check that a layer is called once, and a recurrent one with states of the caller."""
    if layer.reads.calls > 1:
        raise ModelError(
            f"{layer.where} is called {layer.reads.calls} times, but the core computes a layer once a step; "
            "give each call a layer of its own"
        )
    if layer.reads.constants:
        raise ModelError(
            f"{layer.where} is called with numbers that are stored in the file, as "
            f"{listed(layer.reads.constants)}; save the model without, and give a state, or the lengths of "
            "sequences, to the driver at run time"
        )
    if layer.kind not in RECURRENT:
        return
    for result in (*layer.reads.values[1:], *layer.reads.states):
        if result.layer in known and known[result.layer].flow.layers:
            raise ModelError(
                f"{layer.where}: its initial state comes from layer {result.layer!r}; it must be absent, or "
                "an input of the model (give one build's state to the other)"
            )
        report.note(
            f"{layer.where} begins with the input {result.layer!r}: give the state to the driver at run time"
        )


def _compute(step: KerasNode) -> KerasTensor:
    """What a layer gives."""
    kind = step.layer.kind
    if kind in RECURRENT:
        return recurrent(step)
    if kind in MERGERS:
        return MERGERS[kind](step)
    if kind not in LAYERS:
        raise ModelError(
            f"{step.where} is not supported; end the model before it, or compute it outside of the core"
        )
    if len(step.read) > 1:
        raise ModelError(f"{step.where} must read one tensor, not {len(step.read)}")
    return LAYERS[kind](step)
