"""Initial states of PyTorch's recurrent modules: absent, zero, the caller's, or learned."""

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rtlstm.gen.frontends.pace import LayerState
from rtlstm.gen.frontends.reading import ReportBuilder
from rtlstm.gen.frontends.torch.values import Constant, Data, Outside, TorchNode, TorchState, flatten
from rtlstm.spec.budget import check_size
from rtlstm.spec.errors import ModelError
from rtlstm.spec.network import Bidirectional, Dense, Layer, Lstm, PseudoLayer

__all__ = ["learned_states", "moved_constant"]

Floats = NDArray[np.float64]


def learned_states(
    step: TorchNode, layers: Sequence[Layer], report: ReportBuilder
) -> list[tuple[LayerState, ...]]:
    """Check a module's initial state; return the states of its layers if they are learned, else none.

    Raises
    ------
    ModelError
        If it is computed, or differs from sequence to sequence.
    """
    # brevitas' modules take h and c one by one.
    given = list(flatten([*step.args[1:], step.kwargs.get("hx"), step.kwargs.get("cx")]))
    for item in given:
        if isinstance(item, Data) and not item.flow.layers:
            report.note(
                f"{step.where} begins with the input {item.source!r}: give the state to the driver "
                "at run time"
            )
        elif isinstance(item, Data | TorchState):
            raise ModelError(
                f"{step.where}: its initial state comes from another layer; it must be absent, zero, learned "
                "or an input"
            )
        elif isinstance(item, Outside):
            raise ModelError(
                f"{step.where}: the state is computed by {item.where}; it must be absent, zero, learned or "
                "an input"
            )
    if not any(isinstance(item, Constant) and item.array.any() for item in given):
        return []
    states = [item.array for item in given if isinstance(item, Constant)]
    if len(states) < len(given):
        raise ModelError(
            f"{step.where}: a part of its initial state is learned, another an input of the model"
        )
    return _of_layers(step, layers, states, report)


def _of_layers(
    step: TorchNode,
    layers: Sequence[Layer],
    states: list[Floats],
    report: ReportBuilder,
) -> list[tuple[LayerState, ...]]:
    directions: list[PseudoLayer] = []
    counts: list[int] = []
    for layer in layers:
        both = (layer.forward, layer.backward) if isinstance(layer, Bidirectional) else (layer,)
        directions += [one for one in both if not isinstance(one, Dense)]
        counts.append(len(both))
    h = _rows(step, states[0], [layer.outputs for layer in directions])
    long = isinstance(directions[0], Lstm)
    c = _rows(step, states[1], [layer.units for layer in directions]) if long and len(states) > 1 else []
    largest = max(float(np.abs(row).max(initial=0.0)) for row in h)
    if long and layers and getattr(directions[0], "projection", None) is None and largest > 1.0:
        report.note(
            f"{step.where} begins in an h of up to {largest:.4g}, but the core's format of h ends at 1, as "
            "what an LSTM gives does: such values saturate"
        )
    report.note(
        f"{step.where} begins in a state that was learned, which a build has as state.npz: the driver's "
        "sequences and streams begin in it, and reset returns to it"
    )
    each = iter([(row, c[at] if c else None) for at, row in enumerate(h)])
    return [tuple(islice(each, count)) for count in counts]


def _rows(step: TorchNode, array: Floats, sizes: list[int]) -> list[Floats]:
    """The state of each direction; all sequences must have the same."""
    count = len(sizes)
    if not array.any():
        return [np.zeros(size) for size in sizes]
    cell = step.module is not None and not hasattr(step.module, "num_layers")
    rows = array
    if cell and array.ndim == 2:
        rows = array[None]
    elif array.ndim < 3:
        rows = array.reshape(count, 1, -1) if array.shape[:-1] in ((), (count,)) else array
    if rows.ndim != 3 or len(rows) != count or any(rows.shape[2] != size for size in sizes):
        raise ModelError(
            f"{step.where}: its initial state must be ({count}, sequences, {sizes[0]}), not {array.shape}"
        )
    if np.ptp(rows, axis=1).any():
        raise ModelError(
            f"{step.where}: its initial state is a constant that differs from sequence to sequence; give it "
            "to the driver as state, and leave it out of the module"
        )
    return [row[0] for row in rows]


# Operations that only move a parameter


def moved_constant(kind: str, step: TorchNode) -> Constant | None:
    """Apply an operation that moves or repeats a constant; None if it is none of those.

    A size that only a run knows is that of the sequences, which all have the same state: it becomes 1.
    """
    move = _MOVES.get(kind.rstrip("_"))
    if move is None:
        return None
    try:
        return Constant(move(step.args[0].array, *step.args[1:], **step.kwargs))
    except (ValueError, TypeError, IndexError):
        return None  # What reads it then says what it must have.


def _sizes(given: Sequence[Any]) -> list[int | None]:
    """Sizes given one by one or as one list; None of one that only a run knows."""
    values = given[0] if given and isinstance(given[0], list | tuple) else given
    return [each if isinstance(each, int) else None for each in values]


def _expand(array: Floats, *given: Any, **_: Any) -> Floats:
    sizes = _sizes(given)
    whole = array.reshape((1,) * (len(sizes) - array.ndim) + array.shape)
    pairs = zip(sizes, whole.shape, strict=True)
    shape = tuple(old if size in (None, -1) else int(size or 0) for size, old in pairs)
    check_size(shape, "an initial state")
    return np.broadcast_to(whole, shape)


def _repeat(array: Floats, *given: Any) -> Floats:
    counts = [1 if count is None else count for count in _sizes(given)]
    shape = (1,) * (len(counts) - array.ndim) + array.shape
    check_size([size * count for size, count in zip(shape, counts, strict=True)], "an initial state")
    return np.tile(array, counts)


def _reshape(array: Floats, *given: Any) -> Floats:
    return array.reshape([-1 if size is None else size for size in _sizes(given)])


def _same(array: Floats, *_: Any, **__: Any) -> Floats:
    return array


def _unsqueeze(array: Floats, dim: int) -> Floats:
    return np.expand_dims(array, dim)


def _squeeze(array: Floats, dim: int) -> Floats:
    return np.squeeze(array, dim) if array.shape[dim] == 1 else array


def _get(array: Floats, index: Any) -> Floats:
    parts = index if isinstance(index, tuple) else (index,)
    for part in parts:
        limits = (part.start, part.stop, part.step) if isinstance(part, slice) else (part,)
        if not all(limit is None or isinstance(limit, int) for limit in limits) or limits == (None,):
            raise TypeError(index)
    return np.asarray(array[index])


def _select(array: Floats, dim: int, index: int) -> Floats:
    return np.asarray(np.take(array, index, axis=dim))


_MOVES: dict[str, Callable[..., Floats]] = {
    "expand": _expand,
    "repeat": _repeat,
    "reshape": _reshape,
    "view": _reshape,
    "unsqueeze": _unsqueeze,
    "squeeze": _squeeze,
    "getitem": _get,
    "select": _select,
    **dict.fromkeys(("clone", "contiguous", "detach", "double", "float", "half"), _same),
}
