"""Calibration data: typical inputs, and the length and initial state of each sequence."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rtlstm.host.raw_values import as_array
from rtlstm.host.state import LayerArrays, StateFormats, split_layers
from rtlstm.sim.reference import FloatResult, FloatState, run_float
from rtlstm.spec.errors import ConfigurationError, InputError
from rtlstm.spec.fixed import IntArray
from rtlstm.spec.layout import Pad, Window, as_steps, is_front, padded_behind, sequences_first, valid_steps
from rtlstm.spec.network import Network, keeps_cell_state
from rtlstm.spec.numerics import QuantizedNetwork
from rtlstm.tools.cache import digest

Floats = NDArray[np.float64]


class AxesError(InputError):
    """Data have other axes or features than a network reads."""


@contextmanager
def explained(front: str) -> Iterator[None]:
    """Say why a network reads other data than its model, if there is a reason and they are refused."""
    try:
        yield
    except AxesError as error:
        raise InputError(f"{error}; {front}" if front else str(error)) from None


def repeat_state(begin: FloatState | None, sequences: int) -> FloatState | None:
    """Return the state of so many sequences that begin in one, ``(units,)`` per layer; None for zeros."""
    if begin is None:
        return None
    h, c = (tuple(np.tile(layer, (sequences, 1)) for layer in part) for part in begin)
    return h, c


@dataclass(frozen=True)
class Calibration:
    """Checked data; make them with :meth:`of`."""

    x: Floats
    """``(T, N, inputs)``; zero past a sequence's length."""
    lengths: IntArray
    """Valid steps of each sequence, ``(N,)``."""
    state: FloatState | None = None
    """h of each pseudo-layer, and c of each that has one, before the first step, ``(N, units)``."""

    @classmethod
    def given(
        cls,
        network: Network,
        x: ArrayLike | None,
        lengths: ArrayLike | None,
        state: Any = None,
        batch_first: bool | None = None,
        pad: Pad = "back",
        known: bool | None = False,
    ) -> Self | None:
        """Check optional data; None without data. Raises as :meth:`of` does.

        ``known`` is the order of the model, which data have by default: :func:`sequences_first`.
        """
        for name, part in (("lengths", lengths), ("initial states", state)):
            if x is None and part is not None:
                raise InputError(
                    f"{name} of calibration data need the data; give them, or leave the {name} out"
                )
        if x is None and batch_first is not None:
            raise InputError("`batch_first` is the order of calibration data; give them, or leave it out")
        if x is None:
            is_front(pad, None)
            return None
        counts = state if lengths is None else lengths
        first = sequences_first("calibration data", x, batch_first, known, counts, stacklevel=4)
        return cls.of(network, x, lengths, state, first, pad)

    @classmethod
    def of(
        cls,
        network: Network,
        x: ArrayLike,
        lengths: ArrayLike | None = None,
        state: Any = None,
        batch_first: bool = False,
        pad: Pad = "back",
    ) -> Self:
        """Check calibration data.

        ``x`` are floats, ``(T, inputs)`` or ``(T, N, inputs)``; ``(N, T, inputs)`` if ``batch_first``.
        ``lengths`` are valid steps of each sequence, ``(N,)``; all if None. ``state`` is the initial state of
        each sequence, ``(h_0, c_0)`` in the structure that a build's ``run`` takes and returns, floats; zeros
        if None. ``pad`` says where the padding of sequences shorter than T stands, as for a build's ``run``.
        Raises InputError if the data are not finite numbers of such a shape, or lengths or states do not fit
        them.
        """
        values = as_array("calibration data", x)
        if not np.issubdtype(values.dtype, np.floating):
            # The driver takes integers as codes of a format; here they would be real values.
            raise InputError(
                f"calibration data must be real numbers, as floats, not {values.dtype}; convert them with "
                "astype(float) if they are real values"
            )
        values, valid, front = check_sequences(
            "calibration data",
            values,
            network.inputs,
            lengths,
            batch_first,
            network.frames,
            pad,
            network.window,
        )
        if not np.isfinite(values).all():
            bad = tuple(int(axis) for axis in np.argwhere(~np.isfinite(values))[0])
            raise InputError(
                f"calibration data must be finite, but those of step {bad[0]}, sequence {bad[1]}, value "
                f"{bad[2]} are {values[bad]}; leave them out, or replace them, for example with "
                "numpy.nan_to_num"
            )
        begins = (
            None
            if state is None
            else check_state(
                "calibration data", _state_sizes(network), state, len(valid) if np.ndim(x) != 2 else None
            )
        )
        values = padded_behind(values, valid) if front else values
        return cls(values[: valid.max()], valid, begins)

    def scaled(self, factors: Floats) -> Self:
        """Return the data with each feature multiplied by its factor, ``(inputs,)``."""
        return type(self)(self.x * factors, self.lengths, self.state)

    def sample(self, steps: int) -> Self:
        """Return evenly chosen whole sequences with at most ``steps`` steps in total.

        If one sequence alone has more, the result is its first ``steps`` steps. If all sequences together
        have no more, the result is this object.
        """
        if self.total_steps <= steps:
            return self
        chosen = np.arange(self.sequences)
        while len(chosen) > 1 and self.lengths[chosen].sum() > steps:
            count = max(1, min(len(chosen) - 1, int(steps / self.lengths[chosen].mean())))
            chosen = (2 * np.arange(count) + 1) * self.sequences // (2 * count)
        return self.take(chosen, steps if len(chosen) == 1 else self.steps)

    def take(self, chosen: IntArray, steps: int) -> Self:
        """Return some of the sequences, at most so many steps of each."""
        lengths, state = np.minimum(self.lengths[chosen], steps), None
        if self.state is not None:
            h, c = ([part[chosen] for part in parts] for parts in self.state)
            state = h, c
        return type(self)(self.x[: lengths.max(), chosen], lengths, state)

    def share_of(self, whole: Self) -> str:
        """Describe a :meth:`sample` of the data ``whole``."""
        if self.total_steps == whole.total_steps:
            return "the calibration data"
        if whole.sequences == 1:
            return f"the first {self.steps} of {whole.steps} steps of the calibration data"
        steps = f"{self.total_steps} steps in all"
        return f"{self.sequences} of {whole.sequences} sequences of the calibration data, {steps}"

    def integer_state(self, network: QuantizedNetwork) -> tuple[LayerArrays, LayerArrays] | None:
        """Return the initial states as the golden model's integers, saturated; None for zeros."""
        if self.state is None:
            return None
        return integer_state(network, self.state)

    def begins_in(self, begin: FloatState | None) -> bool:
        """Whether all sequences begin in this state of the model, ``(units,)`` per layer; None is any."""
        if begin is None or self.state is None:
            return begin is None
        pairs = zip((*begin[0], *begin[1]), (*self.state[0], *self.state[1]), strict=True)
        return all(bool((one == all_of_it).all()) for one, all_of_it in pairs)

    @property
    def digest(self) -> str:
        """A text that other data do not have."""
        state = () if self.state is None else (*self.state[0], *self.state[1])
        arrays = (self.x, self.lengths, *state)
        return digest(*(part for each in arrays for part in (repr(each.shape), each.tobytes())))

    @property
    def peaks(self) -> Floats:
        """Largest magnitude of each feature, ``(inputs,)``."""
        peaks: Floats = np.abs(self.x).max(axis=(0, 1))
        return peaks

    @property
    def extent(self) -> tuple[Floats, Floats]:
        """Least and largest value of each feature, ``(inputs,)``."""
        valid = self.x[self.alive]
        return valid.min(axis=0), valid.max(axis=0)

    @property
    def steps(self) -> int:
        """Steps of the longest sequence."""
        return len(self.x)

    @property
    def alive(self) -> NDArray[np.bool_]:
        """Which steps belong to a sequence and are no padding, ``(T, N)``."""
        return valid_steps(self.steps, self.lengths)

    @property
    def total_steps(self) -> int:
        """Steps of all sequences."""
        return int(self.lengths.sum())

    @property
    def sequences(self) -> int:
        """Number of sequences."""
        return len(self.lengths)


def run_reference(network: Network, data: Calibration, cell_limit: float | None = None) -> FloatResult:
    """Run the data through the float network, whose c saturates at ``cell_limit``.

    Raises ConfigurationError if its values grow without bound: a recurrence without a bounded activation may
    diverge.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        result = run_float(network, data.x, data.state, data.lengths, cell_limit)
    met = (result.preactivation, result.cell, *result.layers)
    if not np.isfinite(met).all() or not np.isfinite(result.y).all():
        raise ConfigurationError(
            f"the values of network {network.name!r} must stay finite, but overflow within "
            f"{data.steps} steps: its activations have no bounds; use a bounded one, a clip, or shorter or "
            "smaller calibration data"
        )
    return result


def check_sequences(
    name: str,
    x: NDArray[Any],
    inputs: int,
    lengths: Any,
    batch_first: bool,
    frames: int,
    pad: Pad,
    window: Window = (0, 0),
) -> tuple[Floats, IntArray, bool]:
    """Return floats ``(T, N, inputs)``, zero in the padding, lengths, and whether padding stands in front.

    ``x`` is ``(T, inputs)`` or ``(T, N, inputs)``, ``(N, T, inputs)`` if ``batch_first``, or in frames.

    Raises InputError if the data have another shape, or lengths do not fit them; messages call the data
    ``name``.
    """
    front, batched, given = is_front(pad, lengths), x.ndim != 2, x.shape
    x, lengths = as_steps(name, x, lengths, int(batched and batch_first), inputs, frames, window, pad)
    values = x if batched else x[:, None, :]
    if values.ndim != 3 or values.shape[2] != inputs or 0 in values.shape:
        axes = "N, T" if batch_first else "T, N"
        turn = values.ndim == 3 and values.shape[1] == inputs
        hint = "; if features stand before steps, transpose them: numpy.swapaxes(x, -1, -2)" * turn
        raise AxesError(
            f"{name} must be (T, {inputs}) or ({axes}, {inputs}) and not empty, not {given}{hint}"
        )
    if batched and batch_first:
        values = values.swapaxes(0, 1)
    of_data = "lengths" if name == "x" else f"lengths of {name}"
    valid = check_lengths(of_data, lengths, *values.shape[:2])
    alive = valid_steps(len(values), valid, front)
    return np.where(alive[..., None], values.astype(np.float64), 0.0), valid, front


def check_lengths(name: str, lengths: ArrayLike | None, steps: int, count: int) -> IntArray:
    """Return the valid steps of ``count`` sequences of ``steps`` steps; all if None.

    Raises InputError if they are not such integers; the message calls them ``name``.
    """
    if lengths is None:
        return np.full(count, steps, dtype=np.int64)
    array = np.atleast_1d(as_array(name, lengths))
    whole = np.issubdtype(array.dtype, np.integer) and array.shape == (count,)
    if not whole or array.min() < 1 or array.max() > steps:
        raise InputError(
            f"{name} must be {count} integers, one per sequence, within 1 to {steps}, "
            f"not {np.asarray(lengths).tolist()!r:.80}"
        )
    return array.astype(np.int64)


def integer_state(network: QuantizedNetwork, state: FloatState) -> tuple[LayerArrays, LayerArrays]:
    """Return states ``(N, units)`` of each layer, if any, as the golden model's integers, saturated."""
    h, c = state
    formats = StateFormats(network.shapes, network.numerics)
    return formats.parse((tuple(h), tuple(c)), len(h[0]) if h else None, raw=False)[:2]


def _state_sizes(network: Network) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the values of each recurrent layer's h, and of each LSTM's c."""
    layers = network.pseudo_layers
    units = (layer.units for layer in layers if keeps_cell_state(layer))
    return tuple(layer.outputs for layer in layers), tuple(units)


def check_state(
    what: str, sizes: tuple[tuple[int, ...], tuple[int, ...]], state: Any, count: int | None
) -> FloatState:
    """Return the states of ``count`` sequences; if it is None, of one sequence without that axis.

    ``sizes`` are those of h and c; ``what`` begins in the states, for messages.
    """
    if not isinstance(state, tuple | list) or len(state) != 2:
        raise InputError(
            f"the initial states of {what} must be a pair (h_0, c_0), not {type(state).__name__}"
        )
    found: list[list[Floats]] = []
    for name, part, wanted in zip(("h_0", "c_0"), state, sizes, strict=True):
        name = f"{name} of {what}"
        arrays = split_layers(name, part, wanted, count)
        for index, array in enumerate(arrays):
            if array.dtype.kind != "f" or not np.isfinite(array).all():
                raise InputError(
                    f"{name} must hold finite floats, but those of layer {index} are not; convert integers "
                    "with astype(float) if they are real values, and leave out sequences without a state"
                )
        found.append([np.atleast_2d(array.astype(np.float64)) for array in arrays])
    return found[0], found[1]
