"""Selects the network's output among those of a traced module, with notes for the user."""

from collections.abc import Mapping
from typing import Any

from rtlstm.gen.frontends.flow import Flow
from rtlstm.gen.frontends.outputs import alike, is_state, join_outputs, note_output_orders, note_steps
from rtlstm.gen.frontends.reading import ReportBuilder
from rtlstm.gen.frontends.torch.values import Data
from rtlstm.spec.errors import ModelError
from rtlstm.spec.network import Dense
from rtlstm.spec.output_parts import OutputPart

__all__ = ["choose_outputs", "is_computed"]


def choose_outputs(
    outputs: list[tuple[str, str, Any]],
    names: Mapping[str, str],
    report: ReportBuilder,
    cut: str,
    *,
    recurrent: bool,
) -> tuple[str, Flow, tuple[OutputPart, ...]]:
    """Return the label of the last output, and all outputs of each step side by side, with their parts.

    ``outputs`` gives of each how messages call it, its label and its value; ``names`` the model's own names,
    by how messages call them. ``recurrent`` says whether the model has recurrent layers.
    """
    labels = {where: label for where, label, _ in outputs}
    values = [(where, value) for where, _, value in outputs if isinstance(value, Data)]
    found = [(where, value) for where, value in values if is_computed(value, recurrent)]
    data = [(where, value) for where, value in found if not value.state] or found
    if not data and not recurrent:
        raise ModelError(f"the model must give what its layers with weights compute, but does not; {cut}")
    if not data:
        raise ModelError(
            f"the model must give what its recurrent layers compute, but gives only states; {cut}"
        )
    where, main = max(data, key=lambda pair: (len(pair[1].flow.layers), not pair[1].flow.plain))
    parts: list[tuple[str, Data]] = []
    for other, value in data:
        if value is not main and value.flow is main.flow:
            continue
        if value is main or _is_part(value, main):
            parts.append((other, value))
        elif _leads_to_output(value, main):
            report.note(f"the output {other} is not computed by the core, only the end is")
        else:
            raise ModelError(_one_chain(where, other, cut))
    named = {other: names.get(other) or _layer_name(value.flow) or labels[other] for other, value in parts}
    for other, value in parts:
        _note(other, value, report)
    note_steps(
        {named[other]: (value.axes.last_step, value.axes.first_step) for other, value in parts}, report
    )
    note_output_orders({named[other]: value.axes for other, value in parts}, report)
    try:
        flow, found_parts = join_outputs([(named[other], value.flow) for other, value in parts], report)
    except ModelError as error:
        other = next(other for other, value in parts if value is not main)
        raise ModelError(f"{_one_chain(where, other, cut)} ({error})") from None
    return names.get(where) or labels[where], flow, found_parts


def _layer_name(flow: Flow) -> str:
    """The layer that gives an output: a head has its name, not that of the activation behind it."""
    return flow.dense or (flow.layers[-1].name if flow.plain and flow.layers else "")


def _one_chain(where: str, other: str, cut: str) -> str:
    return f"both {where} and {other} are outputs, but the core computes one chain; {cut}"


def _is_part(value: Data, main: Data) -> bool:
    """Whether it may stand beside the last output, and is no state."""
    same = (value.source, value.packed) == (main.source, main.packed)
    beside = alike(value.axes, main.axes, aside=not _leads_to_output(value, main))
    return beside and same and not value.of_layers and not is_state(value.flow, value.axes)


def is_computed(data: Data, recurrent: bool) -> bool:
    """Whether it is computed by a recurrent layer, or, in a model without any, by one with weights."""
    if not recurrent:
        return bool(data.flow.layers or data.flow.dense)
    return any(layer.kind != "dense" for layer in data.flow.layers)


def _leads_to_output(value: Data, main: Data) -> bool:
    before = zip(value.flow.layers, main.flow.layers, strict=False)
    return value.flow.plain and not value.flow.relu and all(mine is theirs for mine, theirs in before)


def _note(where: str, main: Data, report: ReportBuilder) -> None:
    if any(main.margin):
        raise ModelError(f"{where} has steps that a convolution padded; drop the last ones first")
    if main.packed:
        report.note("the output is a PackedSequence: the driver gives it padded, or packs it again")
    if main.padded and (not main.flow.plain or isinstance(main.flow.layers[-1], Dense)):
        report.note("past the end of a sequence the core gives zeros, not what its last layers make of zeros")
