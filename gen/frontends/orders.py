"""Compares the order of the axes of a model's input and outputs with that of the core's data.

The core takes and gives features last. Steps and sequences stand in its outputs as in its input, and in that
as in the model's.
"""

from collections.abc import Iterable, Mapping, Sequence

from rtlstm.gen.frontends.axes import Axes
from rtlstm.gen.frontends.reading import ReportBuilder
from rtlstm.gen.frontends.regroup import SINGLE

__all__ = ["input_order", "note_input_order", "note_output_orders"]

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
