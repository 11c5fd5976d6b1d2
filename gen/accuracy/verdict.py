"""The conclusion of an accuracy measurement, in a sentence or two."""

from collections.abc import Iterable, Sequence

from rtlstm.gen.accuracy.records import LayerErrors, Score, WidthErrors, largest_part

PART_NAMES = {
    "weights": "weights",
    "activations": "activations (input, h, dense results)",
    "tables": "tables (sigmoid, tanh)",
    "state": "state (c)",
}
"""What people call the parts."""

_GAIN = 0.95
"""A change is worth naming if it leaves at most this share of the error."""


def best_width(errors: LayerErrors, widths: Sequence[WidthErrors]) -> WidthErrors | None:
    """Return the bit more that gains most; None if none gains much."""
    best = _least(each for each in widths if each.change > 0)
    return best[1] if best is not None and best[0] <= _GAIN * errors.rms_error else None


def _least(widths: Iterable[WidthErrors]) -> tuple[float, WidthErrors] | None:
    """Return the least rms error and its width, of those that can be built; None if none can."""
    built = [(each.rms_error, each) for each in widths if each.rms_error is not None]
    return min(built, key=lambda each: each[0], default=None)


def conclude(errors: LayerErrors, widths: Sequence[WidthErrors], score: Score | None, model: bool) -> str:
    """Say how large the error is, what costs most, and what would help most."""
    if not errors.rms_error:
        return "Fixed outputs equal float ones." + _changed(score)
    now = f"{errors.rms_error:.3g}"
    ratio = "" if errors.snr_db is None else f", {errors.snr_db:.3g} dB below the signal"
    against = "" if model else ", rounded weights not counted"
    text = f"Error of the outputs{against}: {now} rms{ratio}"
    part = largest_part(errors)
    if part is not None and part.without <= _GAIN * errors.rms_error:
        text += f", most of it from {part.part} ({part.without:.3g} with {part.part} in float)"
    elif part is not None:
        text += ", from no part alone"
    text += "." + _changed(score)
    best = best_width(errors, widths)
    if best is not None:
        text += f" Best bit to add: {best.change_text}, {now} -> {best.rms_error:.3g}."
    elif widths:
        text += " No bit more of any one width gains 5 %."
    fewer = _least(each for each in widths if each.change < 0 and _is_no_worse(each, errors))
    if fewer is not None:
        text += f" One bit less is no worse: {fewer[1].change_text}, {now} -> {fewer[0]:.3g}."
    return text


def _is_no_worse(width: WidthErrors, errors: LayerErrors) -> bool:
    """Whether neither the rms nor the largest error is larger with a width."""
    rms, largest = width.rms_error, width.max_abs_error
    if rms is None or largest is None:
        return False
    return rms <= errors.rms_error and largest <= errors.max_abs_error


def _changed(score: Score | None) -> str:
    if score is None:
        return ""
    if score.changed is None:
        return f" Mean absolute error {score.float_score:.4g} in float, {score.fixed_score:.4g} fixed."
    same = " All labels are of one class, so this says little." if score.classes == 1 else ""
    return (
        f" {100 * score.fixed_score:.4g} % right, {100 * score.float_score:.4g} % in float; "
        f"{score.changed:,} of {score.labels:,} decisions change.{same}"
    )
