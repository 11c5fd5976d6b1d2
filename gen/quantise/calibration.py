"""Calibration data: typical inputs, and the length and initial state of each sequence."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rtlstm.gen.frontends.reading import ReadResult
from rtlstm.host.raw_values import as_array
from rtlstm.host.state import LayerArrays, StateFormats, split_layers
from rtlstm.sim.golden import Golden, GoldenResult
from rtlstm.sim.reference import FloatResult, FloatState, run_float
from rtlstm.spec.errors import ConfigurationError, InputError
from rtlstm.spec.fixed import IntArray, where_bad
from rtlstm.spec.layout import Pad, Window, as_steps, is_front, padded_behind, sequences_first, valid_steps
from rtlstm.spec.network import Network, keeps_cell_state
from rtlstm.spec.numerics import QuantizedNetwork
from rtlstm.tools.cache import digest

Floats = NDArray[np.float64]


class AxesError(InputError):
    """Data have other axes or features than a network reads."""


def repeat_state(begin: FloatState | None, sequences: int) -> FloatState | None:
    """Return the state of so many sequences that begin in one, ``(units,)`` per layer; None for zeros."""
    if begin is None:
        return None
    h, c = (tuple(np.tile(layer, (sequences, 1)) for layer in part) for part in begin)
    return h, c


@dataclass(frozen=True)
class Sequences:
    """Checked data."""

    x: Floats
    """``(T, N, inputs)``; zero past a sequence's length."""
    lengths: IntArray
    """Valid steps of each sequence, ``(N,)``."""
    state: FloatState | None = None
    """h of each pseudo-layer, and c of each that has one, before the first step, ``(N, units)``."""

    def integer_state(self, network: QuantizedNetwork) -> tuple[LayerArrays, LayerArrays] | None:
        """Return the initial states as the golden model's integers, saturated; None for zeros."""
        if self.state is None:
            return None
        (h, c), formats = self.state, StateFormats(network.shapes, network.numerics)
        return formats.parse((tuple(h), tuple(c)), len(h[0]) if h else None, raw=False)[:2]

    @property
    def alive(self) -> NDArray[np.bool_]:
        """Which steps belong to a sequence and are no padding, ``(T, N)``."""
        return valid_steps(len(self.x), self.lengths)


@dataclass(frozen=True)
class Calibration(Sequences):
    """Checked calibration data; make them with :meth:`of`."""

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
        first = sequences_first("calibration data", x, batch_first, known, counts)
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
        what, sizes = "calibration data", (network.frames, pad, network.window)
        values, valid, batched, _ = check_sequences(what, x, network.inputs, lengths, batch_first, *sizes)
        if state is not None:
            state = check_state(what, _state_sizes(network), state, len(valid) if batched else None)
        return cls(values[: valid.max()], valid, state)

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
    def total_steps(self) -> int:
        """Steps of all sequences."""
        return int(self.lengths.sum())

    @property
    def sequences(self) -> int:
        """Number of sequences."""
        return len(self.lengths)


def read_data(
    read: ReadResult,
    x: ArrayLike | None,
    lengths: ArrayLike | None = None,
    state: Any = None,
    batch_first: bool | None = None,
    pad: Pad = "back",
) -> Calibration | None:
    """Return a model's calibration data, by default in its order of axes and state; None without data.

    Raises InputError as :meth:`Calibration.given`; the message says why the network reads other data than the
    model, if it does.
    """
    if x is not None and state is None:
        state = read.calibration_state(np.asarray(x), batch_first)
    try:
        return Calibration.given(read.network, x, lengths, state, batch_first, pad, read.report.batch_first)
    except AxesError as error:
        raise InputError("; ".join(filter(None, [str(error), read.report.front]))) from None


def run_reference(network: Network, data: Sequences, cell_limit: float | None = None) -> FloatResult:
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
            f"{len(data.x)} steps: its activations have no bounds; use a bounded one, a clip, or shorter or "
            "smaller calibration data"
        )
    return result


def run_golden(network: QuantizedNetwork, data: Sequences) -> GoldenResult:
    """Run the data through the golden model, all integers."""
    codes = network.numerics.quantise_input(data.x)
    return Golden(network).run(codes, data.integer_state(network), data.lengths)


def fixed_outputs(network: QuantizedNetwork, data: Sequences) -> Floats:
    """Return the golden model's outputs as real values, ``(T, N, outputs)``."""
    return network.shapes[-1].output.to_floats(run_golden(network, data).y)


def check_sequences(
    name: str,
    x: ArrayLike,
    inputs: int,
    lengths: Any,
    batch_first: bool,
    frames: int = 1,
    pad: Pad = "back",
    window: Window = (0, 0),
) -> tuple[Floats, IntArray, bool, bool]:
    """Return floats ``(T, N, inputs)``, with zeros as padding behind each, lengths, whether ``x`` has the
    axis N, and whether its padding stands in front.

    ``x`` is ``(T, inputs)`` or ``(T, N, inputs)``, ``(N, T, inputs)`` if ``batch_first``, or in frames.

    Raises InputError if the data are not finite numbers of such a shape, or lengths do not fit them; messages
    call the data ``name``.
    """
    array = as_array(name, x)
    if array.dtype.kind != "f":
        # The driver takes integers as codes of a format; here they would be real values.
        raise InputError(
            f"{name} must hold real numbers, as floats, not {array.dtype}; convert them with astype(float) "
            "if they are real values"
        )
    front, batched, given = is_front(pad, lengths), array.ndim != 2, array.shape
    array, lengths = as_steps(name, array, lengths, int(batched and batch_first), inputs, frames, window, pad)
    values = array if batched else array[:, None, :]
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
    values = np.where(alive[..., None], values.astype(np.float64), 0.0)
    if not np.isfinite(values).all():
        seen = values[:, 0] if not batched else values.swapaxes(0, 1) if batch_first else values
        raise InputError(
            f"{name} must be finite, but {where_bad(name, seen, ~np.isfinite(seen))}; leave such steps out, "
            "or replace them, for example with numpy.nan_to_num"
        )
    return padded_behind(values, valid) if front else values, valid, batched, front


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
