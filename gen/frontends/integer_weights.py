"""Weights that a model holds as integers: which layer's they became, and what a width does to them."""

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from rtlstm.gen.frontends.arrays import listed
from rtlstm.spec.network import Bidirectional, Network
from rtlstm.spec.record import Record
from rtlstm.spec.weights import WeightFormat

Floats = NDArray[np.float64]

MATRICES = ("w_ih", "w_hh", "projection", "weight", "skip")
"""The fields of layers that are matrices of weights."""


class IntegerWeights(Record):
    """A matrix of a network's layer whose weights are integers in the model."""

    layer: str
    weight: str
    """The layer's field: ``w_ih``, ``w_hh``, ``projection``, ``weight`` or ``skip``."""
    bits: int
    """Bits of the model's integers."""
    largest: int
    """Largest magnitude of an integer less its zero point."""
    zero_points: bool
    """Whether there are zero points other than 0."""
    steps: tuple[float, ...]
    """The model's step of each row, 0 for a row of zeros; or one, if it is that of all rows."""

    @property
    def exact_bits(self) -> int | None:
        """Return the least bits of weights that hold these exactly; None if a step is no power of two."""
        whole = all(np.frexp(step)[0] == 0.5 for step in self.steps if step)
        return max(2, self.largest.bit_length() + 1) if whole else None


@dataclass(frozen=True)
class _Row:
    step: float
    bits: int
    zero_points: bool
    tensors: frozenset[str]


class IntegerRows:
    """The rows of the model's integer weights, by their values: readers reorder, join and split matrices."""

    def __init__(self) -> None:
        self._rows: dict[bytes, _Row] = {}
        self._tensors: dict[str, None] = {}

    def __bool__(self) -> bool:
        return bool(self._tensors)

    def add(self, tensor: str, values: Floats, steps: Floats, bits: int, zero_points: bool) -> None:
        """Add a tensor's weights, ``(..., rows, columns)``, either of the last axes may be a layer's rows.

        ``steps`` has the same shape, and ``values`` are whole multiples of them.
        """
        self._tensors[tensor] = None
        for array, step in ((values, steps), (values.swapaxes(-1, -2), steps.swapaxes(-1, -2))):
            for row, its in zip(_rows(array), _rows(step), strict=True):
                key = _key(row)
                tensors = self._rows[key].tensors if key in self._rows else frozenset[str]()
                self._rows[key] = _Row(float(its.min()), bits, zero_points, tensors | {tensor})

    def find(self, network: Network) -> tuple[tuple[IntegerWeights, ...], tuple[str, ...]]:
        """Return which of a network's matrices these are, and notes on them for the user."""
        found, notes = [], []
        used: set[str] = set()
        for layer, name, matrix in _matrices(network):
            rows = [self._rows.get(_key(row)) if row.any() else None for row in matrix]
            known = [row for row in rows if row is not None]
            if not known or len(known) < int(matrix.any(axis=1).sum()):
                continue
            used.update(*(row.tensors for row in known))
            steps = np.array([0.0 if row is None else row.step for row in rows])
            weights = IntegerWeights(
                layer=layer,
                weight=name,
                bits=max(row.bits for row in known),
                largest=round(float((np.abs(matrix).max(axis=1) / np.where(steps, steps, 1.0)).max())),
                zero_points=any(row.zero_points for row in known),
                steps=tuple(steps.tolist()) if len({row.step for row in known}) > 1 else (known[0].step,),
            )
            found.append(weights)
            notes.append(_note(weights, matrix, steps))
        lost = [tensor for tensor in self._tensors if tensor not in used]
        if lost:
            notes.append(
                f"the model's integers {listed(map(repr, lost))} are no layer's weights as they stand: they "
                "are folded into other numbers, or outside of the core"
            )
        return tuple(found), tuple(notes)


def change_text(change: Floats, steps: Floats) -> str:
    """Return the largest change of weights, in the model's steps and as it is; ``steps`` is 0 without one."""
    relative = change / np.where(steps > 0, steps, np.inf)
    return f"at most {relative.max():.2g} of the model's step ({change.max():.2g})"


def _rows(array: Floats) -> Iterator[Floats]:
    yield from array.reshape(-1, array.shape[-1])


def _key(row: Floats) -> bytes:
    # Without the sign of zeros. A digest, because all rows together are as large as the model.
    return blake2b(np.ascontiguousarray(row + 0.0).tobytes(), digest_size=16).digest()


def _matrices(network: Network) -> Iterator[tuple[str, str, Floats]]:
    """Yield the name of the layer, that of the field, and the matrix."""
    for layer in network.layers:
        both = (layer.forward, layer.backward) if isinstance(layer, Bidirectional) else (layer,)
        for one in both:
            for name in MATRICES:
                matrix = getattr(one, name, None)
                if matrix is not None:
                    yield one.name, name, matrix


def _rounded(matrix: Floats, bits: int) -> Floats:
    """Return weights as ``bits`` bits hold them, each row at the finest scale at which it fits."""
    form = WeightFormat(bits)
    scale = form.finest_of_rows(matrix)[:, None]
    return np.ldexp(form.to_integers(matrix, scale).astype(np.float64), -scale)


def _note(weights: IntegerWeights, matrix: Floats, steps: Floats) -> str:
    some = sorted({step for step in weights.steps if step})
    of_rows = f"{some[0]:.3g} to {some[-1]:.3g}, one for each row" if len(some) > 1 else f"{some[0]:.6g}"
    exact = weights.exact_bits
    zero = "with zero points other than 0, " if weights.zero_points else ""
    kind = "powers of two" if exact else "not powers of two" if len(some) > 1 else "not a power of two"
    if exact and len(some) == 1:
        kind = "a power of two"
    text = (
        f"{weights.weight} of {weights.layer!r} has integers of {weights.bits} bits in the model, {zero}"
        f"in steps of {of_rows} ({kind}): "
    )
    if exact:
        return f"{text}`weight_bits={exact}` or more holds them exactly"
    change = np.abs(_rounded(matrix, weights.bits) - matrix)
    changes = change_text(change, np.broadcast_to(steps[:, None], matrix.shape))
    return f"{text}`weight_bits={weights.bits}` changes them by {changes}, more bits by less"
