"""Joins several outputs of a model to one: the core gives them side by side.

Outputs that are functions of the same layer are arithmetic. Layers that stand side by side are dense ones, as
of two heads: they are computed one after the other, and each first layer reads what the heads have in common
as a skip, with zeros for the layer before it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from rtlstm.gen.frontends.axes import Axes
from rtlstm.gen.frontends.bidirectional import without_identity
from rtlstm.gen.frontends.flow import Flow, looks_back
from rtlstm.gen.frontends.reading import ReportBuilder
from rtlstm.spec.errors import ModelError
from rtlstm.spec.network import Dense, Layer
from rtlstm.spec.output_parts import OutputPart

__all__ = ["alike", "is_state", "join_outputs", "note_steps"]


def alike(one: Axes, other: Axes, *, aside: bool) -> bool:
    """Whether one output may stand beside another: of the same steps, all, the last one, or the first one.

    If it is ``aside``, not on the way to the other, it may be of other steps: the core gives all of both.
    """
    if one.lost or other.lost:
        return False
    steps = [("T" in axes.tags, axes.last_step, axes.first_step) for axes in (one, other)]
    return steps[0] == steps[1] or (aside and all(map(any, steps)))


def note_steps(ends: Mapping[str, tuple[bool, bool]], report: ReportBuilder) -> None:
    """Note of which outputs the model keeps only the last step, or only the first one."""
    for name, kept in ends.items():
        which = f" of the output {name!r}" if len(set(ends.values())) > 1 else ""
        for step, is_kept in zip(("last", "first"), kept, strict=True):
            if is_kept:
                report.note(
                    f"the model keeps only the {step} step{which}; the core gives every step, use its {step}"
                )


def is_state(flow: Flow, axes: Axes) -> bool:
    """Whether an output is a recurrent layer's without an axis of steps: its state behind a step."""
    last = flow.layers[-1] if flow.layers else None
    return flow.plain and not isinstance(last, Dense) and "T" not in axes.tags


def join_outputs(
    named: Sequence[tuple[str, Flow]], report: ReportBuilder
) -> tuple[Flow, tuple[OutputPart, ...]]:
    """Return all outputs side by side, and their parts; a single output as it is, without parts.

    Raises
    ------
    ModelError
        If layers stand side by side that are not dense.
    """
    (_, whole), *others = named
    if not others:
        return whole, ()
    parts: list[OutputPart] = []
    for name, flow in named:
        unique, count = name, 2
        while unique in {part.name for part in parts}:
            unique, count = f"{name}_{count}", count + 1
        parts.append(OutputPart(name=unique, width=flow.outputs or 1))
    for part, (_, flow) in zip(parts[1:], others, strict=True):
        whole = _join(whole, flow, f"output {part.name!r}")
    report.note(
        "the model's outputs are parts of the core's one: "
        + ", ".join(f"{part.name!r} ({part.width})" for part in parts)
        + "; the driver's parts(y) takes them apart"
    )
    return without_identity(whole), tuple(parts)


def _join(whole: Flow, flow: Flow, where: str) -> Flow:
    try:
        return whole.join([flow], where)
    except ModelError:
        first, second = whole.settled(where), flow.settled(where)
        moved = _behind(flow, first)
        if moved is not None:
            return first.join([moved], where)
        moved = _behind(whole, second)
        if moved is None:
            raise
    joined = second.join([moved], where)
    count, total = flow.outputs or 0, joined.outputs or 0
    return joined.pick([*range(count, total), *range(count)], where)


def _behind(flow: Flow, base: Flow) -> Flow | None:
    """Return the same values with the layers that ``base`` lacks behind it; None if these must not move."""
    if flow.skip is not None:
        flow = flow.settled(flow.dense)
    pairs = zip(flow.layers, base.layers, strict=False)
    stem = next((at for at, (mine, theirs) in enumerate(pairs) if mine is not theirs), None)
    stem = min(len(flow.layers), len(base.layers)) if stem is None else stem
    moved = flow.layers[stem:]
    if not moved:
        return flow
    paces = {its.pace for its in (*flow.placed[stem:], *base.placed[-1:])} | {flow.pace, base.pace}
    if stem == len(base.layers) or len(paces) > 1 or looks_back(base.layers):
        return None
    layers: list[Layer] = list(base.layers)
    for number, layer in enumerate(moved, start=stem):
        if not isinstance(layer, Dense) or (number == stem and layer.skip is not None):
            return None
        layers.append(_placed(layer, number, stem, layers))
    placed = (*base.placed, *flow.placed[stem:])
    return replace(flow, layers=tuple(layers), placed=placed)


def _placed(layer: Dense, number: int, stem: int, before: Sequence[Layer]) -> Dense:
    """Layer ``number`` of a branch, behind other layers than those that stood before it."""
    update: dict[str, Any] = {}
    if number == stem:
        update = {
            "weight": np.zeros((layer.outputs, before[-1].outputs)),
            "input_relu": False,
            "skip": layer.weight,
            "skips": len(before) + 1 - stem,
            "skip_relu": layer.input_relu,
        }
    elif layer.skip is not None and number + 1 - layer.skips <= stem:
        update = {"skips": layer.skips + len(before) - number}
    names, name, count = {one.name for one in before}, layer.name, 2
    while name in names:
        name, count = f"{layer.name}_{count}", count + 1
    return layer.replace(**update, name=name)
