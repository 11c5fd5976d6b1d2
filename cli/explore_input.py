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
        batch_first: bool,
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
        from rtlstm.cli.main import find_command
        from rtlstm.cli.wording import CommandWording
        from rtlstm.explore.search import check_boards, find_shapes, make_context
        from rtlstm.explore.space import Space, parse_roundings
        from rtlstm.gen.builds.generate import default_name
        from rtlstm.gen.frontends import read_model
        from rtlstm.gen.frontends.reading import describe_layout
        from rtlstm.gen.quantise.calibration import Calibration

        x, labels = load_array(self._calibration, "the calibration data"), None
        valid = load_lengths(self._lengths)
        read = read_model(self._model, ReadOptions(**self._options))
        self.notes = tuple(read.report.notes)
        first = self._batch_first, read.report.batch_first
        if text := describe_layout("the calibration data", x.shape, *first):
            self.notes += (text,)
        roundings = parse_roundings(asked.hidden_rounding)
        space = Space.asked(find_shapes(read.network, roundings, asked.max_steps), asked)
        check_boards(read.network, space)
        self._name = default_name(read.network, read.report)
        state = read.calibration_state(x, self._batch_first)
        data = Calibration.of(read.network, x, valid, state, *self._layout(valid))
        padded = valid is not None
        if evaluation is not None:
            arrays = load_arrays(evaluation, "the evaluation data")
            x = load_array(evaluation, "the evaluation data")
            labels, valid = arrays.get("y"), arrays.get("lengths")
            padded |= valid is not None
            if text := describe_layout("the evaluation data", x.shape, *first):
                self.notes += (text,)
        is_front(self._pad, padded or None)
        wording = CommandWording(find_command, "explore")
        layout = self._layout(valid)
        context = make_context(self._name, read, metric, data, wording, x, labels, valid, *layout)
        return space, context

    def _layout(self, lengths: Any) -> "tuple[bool, Pad]":
        """Whether data have the batch first, and where their padding stands: without lengths nowhere."""
        return self._batch_first, "back" if lengths is None else self._pad

    def command(self, number: int, choice: Mapping[str, Any]) -> str:
        """Return the command that builds a choice."""
        from rtlstm.spec.options import options

        given = {
            **choice,
            "calibration": str(self._calibration),
            "calibration_lengths": self._lengths,
            "batch_first": self._batch_first or None,
            "pad": None if self._lengths is None or self._pad == "back" else self._pad,
            **self._options,
        }
        words = [str(self._model), "-o", f"build/{self._name}_{number}"]
        typed = options({key: value for key, value in given.items() if value is not None})
        return f"rtlstm generate {' '.join(map(shlex.quote, words))} {typed}"
