"""Joins several outputs of a model to one: the core gives them side by side.

Outputs that are functions of the same layer are arithmetic. Layers that stand side by side are dense ones, as
of two heads: they are computed one after the other, and each first layer reads what the heads have in common
as a skip, with zeros for the layer before it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from rtlstm.gen.frontends.axes import Axes
from rtlstm.gen.frontends.bidirectional import without_identity
from rtlstm.gen.frontends.flow import Flow, looks_back
from rtlstm.gen.frontends.reading import ReportBuilder
from rtlstm.gen.frontends.sizes import SINGLE
from rtlstm.spec.errors import ModelError
from rtlstm.spec.network import Dense, Layer
from rtlstm.spec.output_parts import OutputPart

_NAMES = {"T": "steps", "N": "sequences", "F": "features", "B": "directions", "K": "frames", "M": "rows"}
_LAST = ("K", "B", "F")
"""Parts of a step, in the core's order."""


def input_order(tags: Sequence[str], found: Iterable[Axes]) -> tuple[str, ...]:
    """Return the axes of a model's input as its layers have shown them; ``tags`` are those before."""
    shown = dict(pair for axes in found for pair in axes.shown)
    return tuple(shown.get(tag, tag) for tag in tags)


def note_input_order(tags: Sequence[str], why: str, report: ReportBuilder) -> None:
    """Record which of steps and sequences the input has first, and note if its features are not last.

    ``why`` is what to say if sequences are first, unless that has been said.
    """
    if {"N", "T"} <= set(tags):
        if tags.index("T") < tags.index("N"):
            report.takes_steps_first()
        elif not report.batch_first:
            report.takes_sequences_first(why)
    wanted = _core_order(tags, None)
    if wanted != list(tags):
        order = ", ".join(str(tags.index(tag)) for tag in wanted)
        report.note(
            f"the model takes {_text(tags)}, but rtlstm takes {_text(wanted)}: transpose its data before "
            f"a run, x.transpose({order})"
        )


def note_output_orders(ends: Mapping[str, Axes], report: ReportBuilder) -> None:
    """Note of which outputs the axes stand in another order than those of what the core gives."""
    for name, axes in ends.items():
        which = f" the output {name!r} as" if len(ends) > 1 else ""
        if axes.lost or axes.squeezed:
            given, hint = f"what {axes.lost} makes of several axes in one", ""
            if axes.features == 1:
                given = f"its only feature without an axis of its own ({axes.squeezed or axes.lost})"
                hint = ": y[..., 0] is that feature"
            core = _text(_core_order("TNF", report.batch_first))
            report.note(f"the model gives{which} {given}; rtlstm gives {core}{hint}")
            continue
        tags = [tag for tag in axes.tags if tag not in SINGLE]
        atoms = [atom for tag in tags for atom in tag.removeprefix("M:").split(":")]
        wanted = _core_order(atoms, report.batch_first)
        states = "B" in atoms and "T" not in atoms  # The driver gives those of both directions.
        if states or wanted == atoms:
            continue
        back = ""
        if sorted(axes.tags) == ["F", "N", "T"]:
            order = ", ".join(str(wanted.index(tag)) for tag in tags)
            back = f": y.transpose({order}) has the model's order"
        report.note(f"the model gives{which} {_text(axes.tags)}, but rtlstm gives {_text(wanted)}{back}")


def _core_order(tags: Sequence[str], batch_first: bool | None) -> list[str]:
    """The axes as the core has them; steps and sequences as given if it is not known which are first."""
    first = {None: "", False: "TN", True: "NT"}[batch_first if {"N", "T"} <= set(tags) else None]
    return sorted(tags, key=lambda tag: (_LAST.index(tag[0]) if tag[0] in _LAST else -1, first.find(tag[0])))


def _text(tags: Sequence[str]) -> str:
    """The names of axes; of an axis that no layer has determined its number."""
    names = [
        " x ".join(_NAMES.get(atom[0], atom) for atom in tag.removeprefix("M:").split(":")) for tag in tags
    ]
    shown = (f"axis {tag[1:]}" if tag[0] == "?" else "1" if tag in SINGLE else name
             for tag, name in zip(tags, names, strict=True))  # fmt: skip
    return f"({', '.join(shown)})".replace("directions, features)", "directions x features)")


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
        return whole.join([flow], where, gather=False)
    except ModelError:
        first, second = whole.settled(where), flow.settled(where)
        moved = _behind(flow, first)
        if moved is not None:
            return first.join([moved], where)
        moved = _behind(whole, second)
        if moved is None:
            return whole.join([flow], where)
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
