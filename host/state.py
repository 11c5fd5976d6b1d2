"""The recurrent state of streams: what callers see, and the words that memories hold."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rtlstm.host.packing import gather, pack_fields, pack_vector, spread, unpack_fields, unpack_vector
from rtlstm.host.values import as_numbers, is_raw, quantise
from rtlstm.spec.errors import InputError
from rtlstm.spec.fixed import Format, IntArray
from rtlstm.spec.manifest import Manifest

__all__ = ["LayerArrays", "State", "StateLayout", "StatePart"]

LayerArrays = tuple[IntArray, ...]
"""One integer array ``(N, H_l)`` per LSTM layer."""

StatePart = NDArray[Any] | tuple[NDArray[Any], ...]
"""h or c: one array ``(num_layers, N, H)``, or a tuple of ``(N, H_l)`` if the sizes differ."""

State = tuple[StatePart, StatePart]
"""``(h, c)``."""


class StateLayout:
    """Shapes, formats and memory words of the state of a build's streams.

    Parameters
    ----------
    manifest
        The build's.
    """

    def __init__(self, manifest: Manifest) -> None:
        program, numerics = manifest.program, manifest.numerics
        self.macs = manifest.parameters.macs
        self.hidden: Format = numerics.hidden
        self.cell: Format = numerics.cell
        self.sizes = tuple(units for _, units in program.hidden)
        # (first row, rows) of each layer, and the span that a single burst reads and writes.
        self._vectors = [(first, manifest.parameters.words(units)) for first, units in program.hidden]
        self.banks = manifest.parameters.gate_units
        self._cells = [(first, manifest.parameters.items(units)) for first, units in program.cells]
        # The first layer's h may be in the place after its own.
        first, rows = self._vectors[0]
        self.vector_span = _span([*self._vectors, (first + program.copy_words, rows)])
        self.cell_span = _span(self._cells)

    @property
    def uniform(self) -> bool:
        """Whether all LSTM layers have the same number of units."""
        return len(set(self.sizes)) == 1

    def zeros(self, batch: int) -> LayerArrays:
        """State of ``batch`` sequences that have not begun."""
        return tuple(np.zeros((batch, units), dtype=np.int64) for units in self.sizes)

    def encode(self, h: Sequence[IntArray], c: Sequence[IntArray]) -> tuple[IntArray, IntArray]:
        """Words of one stream's ``(H_l,)`` arrays.

        Returns the words of the vector span, and of the cell span of each bank ``(banks, words)``.
        """
        vectors = np.zeros((self.vector_span[1], -(-self.macs * self.hidden.bits // 32)), dtype=np.int64)
        cells = np.zeros((self.banks, self.cell_span[1]), dtype=np.int64)
        for (row, rows), (word, words), h_l, c_l in zip(self._vectors, self._cells, h, c, strict=True):
            row, word = row - self.vector_span[0], word - self.cell_span[0]
            vectors[row : row + rows] = pack_vector(h_l, self.macs, self.hidden.bits)
            cells[:, word : word + words] = spread(
                pack_fields(c_l[:, None], self.cell.bits)[:, 0].astype(np.int64), self.banks
            )
        return vectors.reshape(-1), cells

    def decode(self, vectors: IntArray, cells: IntArray) -> tuple[LayerArrays, LayerArrays]:
        """Inverse of :meth:`encode`; the first layer's h in the first of its places."""
        rows_of = vectors.reshape(self.vector_span[1], -1)
        words_of = cells.reshape(self.banks, self.cell_span[1])
        h: list[IntArray] = []
        c: list[IntArray] = []
        for (row, rows), (word, words), units in zip(self._vectors, self._cells, self.sizes, strict=True):
            row, word = row - self.vector_span[0], word - self.cell_span[0]
            h.append(unpack_vector(rows_of[row : row + rows], self.macs, self.hidden.bits, units))
            mine = gather(words_of[:, word : word + words], units)
            c.append(unpack_fields(mine[:, None], self.cell.bits, 1)[:, 0])
        return tuple(h), tuple(c)

    def parse(
        self, state: Any, batch: int | None, raw: bool | None = None
    ) -> tuple[LayerArrays, LayerArrays, tuple[int, int]]:
        """Turn a caller's ``(h, c)`` into integers.

        Parameters
        ----------
        state
            ``h`` and ``c`` in the structure that :meth:`present` gives.
        batch
            Number of sequences N, or None for arrays without that axis.
        raw
            Whether integers are expected (True) or floats (False); None takes either.

        Returns
        -------
        ``h`` and ``c`` as arrays ``(N, H_l)`` (N = 1 without a batch), and the counts of
        saturated values of each.

        Raises
        ------
        InputError
            If shape, type or values are wrong.
        """
        if isinstance(state, np.ndarray) or not isinstance(state, Sequence) or len(state) != 2:
            raise InputError(f"state must be a pair (h_0, c_0), not {type(state).__name__}")
        parts, counts = [], []
        for name, part, format in (("h_0", state[0], self.hidden), ("c_0", state[1], self.cell)):
            layers, saturated = [], 0
            for index, array in enumerate(self._split(name, part, batch)):
                if raw is not None and is_raw(array) != raw:
                    raise InputError(
                        f"state must be {'integers' if raw else 'floats'} because x is, but {name} "
                        f"is {array.dtype}; convert one of them"
                    )
                integers, count = quantise(f"{name}[{index}]", array, format)
                layers.append(integers.reshape(-1, self.sizes[index]))
                saturated += count
            parts.append(tuple(layers))
            counts.append(saturated)
        return parts[0], parts[1], (counts[0], counts[1])

    def _split(self, name: str, part: ArrayLike, batch: int | None) -> list[NDArray[np.generic]]:
        """One array per layer, of the right shape."""
        lead = () if batch is None else (batch,)
        shapes = [(*lead, units) for units in self.sizes]
        if isinstance(part, tuple | list) and len(part) == len(shapes):
            arrays = [as_numbers(f"{name}[{index}]", array) for index, array in enumerate(part)]
        elif self.uniform:
            whole = as_numbers(name, part)
            arrays = list(whole) if whole.ndim == len(lead) + 2 else [whole]
        else:
            arrays = []
        found = [array.shape for array in arrays]
        if found != shapes:
            want = f"an array {(len(shapes), *shapes[0])}" if self.uniform else f"a tuple of {shapes}"
            given = f"arrays of {found}" if found else type(part).__name__
            raise InputError(
                f"{name} must be {want} (layers, {'batch, ' if lead else ''}units), not {given}; "
                "give what run or state returned"
            )
        return arrays

    def present(self, h: Sequence[IntArray], c: Sequence[IntArray], raw: bool, batched: bool) -> State:
        """Turn integer arrays ``(N, H_l)`` per layer into what a caller sees."""

        def part(arrays: Sequence[IntArray], format: Format) -> StatePart:
            values: list[NDArray[Any]] = [
                array if raw else format.to_floats(array)
                for array in (arrays if batched else [array[0] for array in arrays])
            ]
            return np.stack(values) if self.uniform else tuple(values)

        return part(h, self.hidden), part(c, self.cell)


def _span(parts: list[tuple[int, int]]) -> tuple[int, int]:
    """First entry and number of entries that cover all ``(first, count)``."""
    first = min(begin for begin, _ in parts)
    return first, max(begin + count for begin, count in parts) - first
