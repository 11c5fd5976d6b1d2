"""Arrays of weights from other tools: checks, orders of gates, and imports of optional packages."""

import importlib
import struct
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, count
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from rtlstm.spec.activations.functions import SIGMOID, TANH, ActivationFunction
from rtlstm.spec.errors import ModelError, RtlstmError, ToolError
from rtlstm.spec.network import Gru, Lstm, Rnn

Floats = NDArray[np.float64]
FLOAT_TYPES = ("float16", "bfloat16", "float32", "float64")


def to_float64(array: Any, what: str) -> Floats:
    """Convert a floating-point array to float64; refuse other types, NaN and infinity.

    ``what`` names the tensor and its node in messages.
    """
    if array.dtype.name not in FLOAT_TYPES:
        raise ModelError(
            f"{what} must be one of {', '.join(FLOAT_TYPES)}, not {array.dtype.name}; "
            "give the model with floating-point weights (rtlstm quantises by itself)"
        )
    result: Floats = np.asarray(array).astype(np.float64)
    bad = int(np.count_nonzero(~np.isfinite(result)))
    if bad:
        raise ModelError(
            f"{what} must hold finite numbers, but {bad} of {result.size} are NaN or infinite; "
            "train or export the model again"
        )
    return result


def expect_shape(array: Floats, shape: tuple[int, ...], what: str) -> None:
    """Refuse an array of another shape."""
    if array.shape != shape:
        raise ModelError(f"{what} must have shape {shape}, not {array.shape}; the model is damaged")


def first_line(error: Exception) -> str:
    """Return the first line of a library's error, without the path of the working folder."""
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0][:300].replace(str(Path.cwd()), ".")


_DAMAGE = (
    ArithmeticError, AttributeError, EOFError, LookupError, NotImplementedError, OSError, RuntimeError,
    TypeError, ValueError, struct.error, zipfile.BadZipFile,
)  # fmt: skip
"""What readers and their libraries raise over a file that no tool has written so."""


@contextmanager
def one_error(text: str, kinds: Any = _DAMAGE) -> Iterator[None]:
    """Give whatever a damaged file raises inside as one ModelError.

    ``{}`` of the text is the class and the first line of what it was, ``{line}`` that line alone.
    """
    try:
        yield
    except RtlstmError:
        raise
    except kinds as error:
        found = f"{type(error).__name__}: {error}".splitlines()[0][:200]
        raise ModelError(text.replace("{}", found).replace("{line}", first_line(error))) from None


def import_extra(module: str, extra: str, what: str = "reading this model") -> Any:
    """Import an optional package that ``what`` needs; ToolError says how to install it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ToolError(
            f"{what} needs the package {module!r} ({error}); install it with: pip install 'rtlstm[{extra}]'"
        ) from None


def fresh(name: str, is_taken: Callable[[str], bool]) -> str:
    """Return a name that is not taken: this one, or it with the first number from 2 on that makes it new."""
    numbered = (f"{name}_{number}" for number in count(2))
    return next(each for each in chain([name], numbered) if not is_taken(each))


def listed(names: Any, limit: int = 20) -> str:
    """Join names for a message, in order and without repeats, cut at ``limit``."""
    unique = list(dict.fromkeys(str(name) for name in names))
    text = ", ".join(unique[:limit])
    return text + (f" and {len(unique) - limit} more" if len(unique) > limit else "")


def along_axis(values: NDArray[Any], shape: tuple[int, ...], axis: int) -> NDArray[Any] | None:
    """Return values for all elements: there is one, or one for each index of an axis; None if neither."""
    if values.size == 1:
        return np.broadcast_to(values.reshape(()), shape)
    if not -len(shape) <= axis < len(shape) or values.shape != (shape[axis],):
        return None
    along = [1] * len(shape)
    along[axis] = values.size
    return np.broadcast_to(values.reshape(along), shape)


def half_bytes(packed: NDArray[Any], axis: int, length: int, *, signed: bool = True) -> Floats:
    """Return the integers of 4 bits of which a byte has two, the first one in its lower half."""
    whole = np.asarray(packed).astype(np.int64) & 0xFF
    values = np.stack([whole & 15, whole >> 4], axis + 1)
    values = values.reshape([size * (1 + (at == axis)) for at, size in enumerate(whole.shape)])
    values = (values ^ 8) - 8 if signed else values
    return np.take(values, range(length), axis).astype(np.float64)


# Gate orders of other tools, and their conversion to the project's order


GateOrder = Literal["torch", "onnx", "keras", "cudnn"]
CellKind = Literal["lstm", "gru", "rnn", "peephole"]

PROJECT_ORDERS: dict[CellKind, str] = {"lstm": "ifgo", "gru": "rzn", "rnn": "h", "peephole": "ifo"}

GATE_ORDERS: dict[GateOrder, str] = {
    "torch": "ifgo",
    "onnx": "iofg",  # ONNX calls the candidate c.
    "keras": "ifgo",  # Keras calls the candidate c.
    "cudnn": "ifgo",
}
"""The order in which each tool stacks an LSTM's four gates; g is the candidate for the cell."""

CELL_ORDERS: dict[CellKind, dict[GateOrder, str]] = {
    "lstm": GATE_ORDERS,
    "gru": {"torch": "rzn", "onnx": "zrn", "keras": "zrn", "cudnn": "rzn"},  # ONNX and Keras: h for n
    "rnn": dict.fromkeys(GATE_ORDERS, "h"),
    "peephole": {"onnx": "iof"},
}
"""The same for every cell; n is a GRU's candidate. ``peephole`` is an LSTM's weights from c to its gates."""


def reorder(array: Floats, from_order: GateOrder, cell: CellKind = "lstm") -> Floats:
    """Return ``array``, whose first axis stacks the gates of a cell, in the project's order."""
    order = CELL_ORDERS[cell][from_order]
    if array.shape[0] % len(order):
        count = {4: "four", 3: "three"}[len(order)]
        raise ValueError(f"the first axis must stack {count} gates, not have {array.shape[0]} rows")
    blocks = dict(zip(order, np.split(array, len(order)), strict=True))
    return np.concatenate([blocks[gate] for gate in PROJECT_ORDERS[cell]])


def stacked_layer(
    tool: GateOrder,
    cell: CellKind,
    name: str,
    weights: Sequence[Floats | None],
    functions: Sequence[ActivationFunction] = (SIGMOID, TANH, TANH),
    **given: Any,
) -> Lstm | Gru | Rnn:
    """Return a layer of one direction from weights that stack the gates as a tool does.

    ``weights`` are those of x and of h, and both biases, of which an LSTM and an RNN need one. ``functions``
    are those of the gates (of an LSTM and a GRU), of the candidate, and of c.
    """
    w_ih, w_hh, b_ih, b_hh = (None if each is None else reorder(each, tool, cell) for each in weights)
    given |= {"name": name, "w_ih": w_ih, "w_hh": w_hh}
    if cell == "gru":
        return Gru(bias_ih=b_ih, bias_hh=b_hh, gate=functions[0], candidate=functions[1], **given)
    given["bias"] = b_ih if b_ih is None or b_hh is None else b_ih + b_hh
    if cell == "rnn":
        return Rnn(activation=functions[0], **given)
    gate, candidate, last = functions
    return Lstm(gate=gate, candidate=candidate, output_activation=last, **given)
