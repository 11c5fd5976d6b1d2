"""Reads ``.nam`` files: neural models of guitar amplifiers, those with LSTM layers.

The file is JSON. Its list ``weights`` has, for each layer, the matrix ``(4 units, inputs + units)`` row by
row in PyTorch's order of gates (i, f, g, o), the bias, then h and c of a settled amplifier; behind the layers
weights and bias of a linear layer with one output.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np

from rtlstm.gen.frontends.arrays import Floats, to_float64
from rtlstm.gen.frontends.reading import ReadOptions, ReportBuilder
from rtlstm.spec.errors import ModelError
from rtlstm.spec.files import MAX_TEXT, check_size, read_file
from rtlstm.spec.network import Dense, Lstm, Network

_SIZES = ("input_size", "hidden_size", "num_layers")
_SAVE = "export the model again"


def read_nam(path: Path, options: ReadOptions, report: ReportBuilder) -> Network:
    """Read a file; the report has the state in which the amplifier begins.

    Raises ModelError if it is damaged, or of another architecture than LSTM.
    """
    report.format = "nam"
    given = [name for name in ("lstm", "output", "dense", "branches") if getattr(options, name)]
    if given:
        raise ModelError(
            f"a .nam file is read as a whole; leave out {', '.join(f'`{name}`' for name in given)}"
        )
    config, weights = _contents(path)
    inputs, units, layers = (_size(config, name) for name in _SIZES)
    check_size((layers, 4 * units, inputs + units), "LSTM layers")
    parts = _Parts(weights)
    stack: list[Lstm | Dense] = []
    h, c = [], []
    for index in range(layers):
        width = units if index else inputs
        matrix = parts.take("weights", index, 4 * units, width + units)
        bias = parts.take("bias", index, 4 * units)
        stack.append(Lstm(name=f"lstm{index}", w_ih=matrix[:, :width], w_hh=matrix[:, width:], bias=bias))
        h.append(parts.take("h", index, units))
        c.append(parts.take("c", index, units))
        report.node(f"lstm{index}", "LSTM", "core", f"{width} -> {units}")
    head, bias = parts.take("the head's weights", None, 1, units), parts.take("the head's bias", None, 1)
    parts.end()
    stack.append(Dense(name="head", weight=head, bias=bias))
    report.node("head", "Linear", "core", f"{units} -> 1")
    report.initial_state = (tuple(h), tuple(c))
    report.input, report.output = "the samples", "head"
    report.note(
        "the amplifier begins in a state of its own, which a build has as state.npz: the driver's sequences "
        "and streams begin in it, and reset returns to it"
    )
    return Network(name=report.name, layers=tuple(stack))


def _contents(path: Path) -> tuple[dict[str, Any], Floats]:
    """The configuration and the weights of a file."""
    if path.stat().st_size > MAX_TEXT:
        raise ModelError(f"a .nam file must have at most {MAX_TEXT:,} bytes, not {path.stat().st_size:,}")
    try:
        found = json.loads(read_file(path).decode())
    except (ValueError, RecursionError) as error:
        raise ModelError(f"is no JSON, as a .nam file must be ({error}); {_SAVE}") from None
    if not isinstance(found, dict):
        raise ModelError(f"must hold an object of JSON, not {type(found).__name__}; {_SAVE}")
    architecture = found.get("architecture")
    if architecture != "LSTM":
        raise ModelError(
            f"must be of the architecture 'LSTM', not {architecture!r}: a .nam file of another kind is not "
            "read; train an LSTM model of the amplifier"
        )
    config, weights = found.get("config"), found.get("weights")
    if not isinstance(config, dict) or not isinstance(weights, list):
        raise ModelError(f"must have an object 'config' and a list 'weights'; {_SAVE}")
    # Not text and not true, which NumPy would take for numbers.
    if not all(type(each) in (int, float) for each in weights):
        raise ModelError(f"'weights' must be one list of numbers; {_SAVE}")
    try:
        array = np.array(weights, dtype=np.float64)
    except OverflowError:
        raise ModelError(f"'weights' must be numbers of 64 bits, but one is too large; {_SAVE}") from None
    return config, to_float64(array, "weights")


def _size(config: dict[str, Any], name: str) -> int:
    value = config.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ModelError(f"'config' must have a whole number {name!r} of 1 or more, not {value!r}; {_SAVE}")
    return value


class _Parts:
    """Takes arrays off the list of weights, from its front."""

    def __init__(self, weights: Floats) -> None:
        self._weights, self._at = weights, 0

    def take(self, what: str, layer: int | None, *shape: int) -> Floats:
        """Return the next array of a shape."""
        count, left = int(np.prod(shape)), len(self._weights) - self._at
        if count > left:
            where = "" if layer is None else f" of layer {layer}"
            raise ModelError(
                f"'weights' ends within {what}{where}: {count} numbers must be left, but {left} are; {_SAVE}"
            )
        self._at += count
        return self._weights[self._at - count : self._at].reshape(shape)

    def end(self) -> None:
        """Refuse a list that goes on."""
        left = len(self._weights) - self._at
        if left:
            raise ModelError(f"'weights' has {left} numbers more than 'config' tells of; {_SAVE}")
