"""Selects the network's output among those of a traced module, with notes for the user."""

from typing import Any

from rtlstm.gen.frontends.reading import ReportBuilder
from rtlstm.gen.frontends.torch.values import Data
from rtlstm.spec.errors import ModelError
from rtlstm.spec.network import Dense

__all__ = ["choose_output", "is_computed"]


def choose_output(
    outputs: list[tuple[str, Any]], report: ReportBuilder, cut: str, *, recurrent: bool
) -> tuple[str, Data]:
    """Return the output at the end of the chain and what it stands for.

    ``outputs`` names each output and gives its value. Others must be on the way to it, or states.
    ``recurrent`` says whether the model has recurrent layers.
    """
    values = [(where, value) for where, value in outputs if isinstance(value, Data)]
    found = [(where, value) for where, value in values if is_computed(value, recurrent)]
    data = [(where, value) for where, value in found if not value.state] or found
    if not data and not recurrent:
        raise ModelError(f"the model must give what its layers with weights compute, but does not; {cut}")
    if not data:
        raise ModelError(
            f"the model must give what its recurrent layers compute, but gives only states; {cut}"
        )
    where, main = max(data, key=lambda pair: (len(pair[1].flow.layers), not pair[1].flow.plain))
    for other, value in data:
        if value.flow is main.flow:
            continue
        if not _leads_to_output(value, main):
            raise ModelError(f"both {where} and {other} are outputs, but the core computes one chain; {cut}")
        report.note(f"the output {other} is not computed by the core, only the end is")
    _note(where, main, report)
    return where, main


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
    if main.axes.last_step:
        report.note("the model keeps only the last step; the core gives every step, use its last")
    if main.axes.first_step:
        report.note("the model keeps only the first step; the core gives every step, use its first")
