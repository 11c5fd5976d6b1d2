"""What ``rtlstm explore`` reads: the model and its data."""

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rtlstm.gen.frontends.reading import ReadOptions
from rtlstm.spec.padding import Pad, is_front

if TYPE_CHECKING:
    from rtlstm.explore.measure import Context
    from rtlstm.explore.metrics import Metric
    from rtlstm.explore.request import SpaceOptions
    from rtlstm.explore.space import Space

__all__ = ["Given"]


class Given:
    """Model and data: read, and as they are typed."""

    def __init__(
        self,
        model: Path,
        calibration: Path,
        lengths: str | None,
        batch_first: bool | None,
        pad: Pad,
        options: Mapping[str, Any],
    ) -> None:
        self._model, self._name = model, ""
        self._calibration, self._lengths = calibration, lengths
        self._batch_first, self._pad, self._options = batch_first, pad, options
        self.notes: tuple[str, ...] = ()
        """What the reader of the model says; known after :meth:`read`."""

    def read(
        self, metric: "Metric", evaluation: Path | None, asked: "SpaceOptions"
    ) -> "tuple[Space, Context]":
        """Read the files; return what is searched, and what all choices have in common."""
        from rtlstm.cli.data import load_array, load_arrays, load_lengths
        from rtlstm.explore.search import check_boards, find_shapes, make_context
        from rtlstm.explore.space import Space, parse_roundings
        from rtlstm.gen.builds.generate import default_name
        from rtlstm.gen.frontends import read_model
        from rtlstm.gen.quantise.calibration import Calibration
        from rtlstm.spec.layout import sequences_first

        x, labels = load_array(self._calibration, "the calibration data"), None
        valid = load_lengths(self._lengths)
        read = read_model(self._model, ReadOptions(**self._options))
        self.notes = tuple(read.report.notes)
        known = read.report.batch_first
        first = sequences_first("the calibration data", x, self._batch_first, known, valid)
        roundings = parse_roundings(asked.hidden_rounding)
        space = Space.asked(find_shapes(read.network, roundings, asked.max_steps), asked)
        check_boards(read.network, space)
        self._name = default_name(read.network, read.report)
        state = read.calibration_state(x, first)
        data = Calibration.of(read.network, x, valid, state, first, self._pad_of(valid))
        padded = valid is not None
        if evaluation is not None:
            arrays = load_arrays(evaluation, "the evaluation data")
            x = load_array(evaluation, "the evaluation data")
            labels, valid = arrays.get("y"), arrays.get("lengths")
            padded |= valid is not None
            first = sequences_first("the evaluation data", x, self._batch_first, known, valid)
        is_front(self._pad, padded or None)
        context = make_context(self._name, read, metric, data, x, labels, valid, first, self._pad_of(valid))
        return space, context

    def _pad_of(self, lengths: Any) -> Pad:
        """Where the padding of data stands: without lengths nowhere."""
        return "back" if lengths is None else self._pad

    def command(self, number: int, choice: Mapping[str, Any]) -> str:
        """Return the command that builds a choice."""
        from rtlstm.cli.wording import as_typed

        given = {
            **choice,
            "calibration": str(self._calibration),
            "calibration_lengths": self._lengths,
            "batch_first": self._batch_first,
            "pad": None if self._lengths is None or self._pad == "back" else self._pad,
            **self._options,
        }
        words = [str(self._model), "-o", f"build/{self._name}_{number}"]
        typed = " ".join(as_typed(key, value) for key, value in given.items() if value is not None)
        return f"rtlstm generate {' '.join(map(shlex.quote, words))} {typed}"
