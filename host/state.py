"""The recurrent state of streams: what callers see, and the words that memories hold."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rtlstm.host.packing import gather, pack_fields, pack_vector, spread, unpack_fields, unpack_vector
from rtlstm.host.values import as_numbers, is_raw, quantise
from rtlstm.spec.errors import InputError
from rtlstm.spec.fixed import Format, IntArray, round_shift, saturate
from rtlstm.spec.manifest import Manifest

__all__ = ["LayerArrays", "State", "StateLayout", "StatePart"]

LayerArrays = tuple[IntArray, ...]
"""One integer array ``(N, H_l)`` per layer."""

StatePart = NDArray[Any] | tuple[NDArray[Any], ...]
"""h or c: one array ``(num_layers, N, H)``, or a tuple of ``(N, H_l)`` if the sizes differ."""

State = tuple[StatePart, StatePart]
"""``(h, c)``: h of every recurrent layer, c of every LSTM layer."""


class StateLayout:
    """Shapes, formats and memory words of the state of a build's streams.

    In integers, a state is h of each recurrent layer as the vector memory holds it, and the cell state of
    each layer that has one: an LSTM's c; a GRU's h, with more bits. To a caller, a GRU has the latter alone.

    Parameters
    ----------
    manifest
        The build's.
    """

    def __init__(self, manifest: Manifest) -> None:
        program, numerics, layers = manifest.program, manifest.numerics, manifest.layers
        self.macs = manifest.parameters.macs
        self.banks = manifest.parameters.gate_units
        recurrent = [(index, layer) for index, layer in enumerate(layers) if layer.recurrent]
        self._hidden = [layers[index + layer.feedback].output for index, layer in recurrent]
        self._kept = [layer.state or numerics.cell for layer in layers if layer.has_state]
        stateful = [layer.kind for layer in layers if layer.has_state]
        # Number of the cell state that is a layer's h; those that are an LSTM's c.
        numbers = iter(range(len(stateful)))
        cell_of = [next(numbers) if layer.has_state else None for _, layer in recurrent]
        self._wide = [
            number if layer.kind != "lstm" else None
            for number, (_, layer) in zip(cell_of, recurrent, strict=True)
        ]
        self._own = [number for number, kind in enumerate(stateful) if kind == "lstm"]
        self.sizes = tuple(units for _, units in program.hidden)
        """Values of each recurrent layer's h."""
        self.cell_sizes = tuple(units for _, units in program.cells)
        """Units of each cell state."""
        self.hidden, self.cell = self._seen_h(0), self._kept[self._own[0]] if self._own else numerics.cell
        # (first row, rows) of each layer, and the span that a single burst reads and writes.
        self._vectors = [(first, manifest.parameters.words(units)) for first, units in program.hidden]
        self._cells = [(first, manifest.parameters.items(units)) for first, units in program.cells]
        # The first layer's h may be in the place after its own.
        first, rows = self._vectors[0]
        self.vector_span = _span([*self._vectors, (first + program.copy_words, rows)])
        self.cell_span = _span(self._cells)
        self._word_bits = numerics.data_bits
        self._cell_bits = numerics.cell.bits

    def _seen_h(self, index: int) -> Format:
        """Format of a layer's h as a caller sees it."""
        wide = self._wide[index]
        return self._hidden[index] if wide is None else self._kept[wide]

    def zeros(self, batch: int) -> tuple[LayerArrays, LayerArrays]:
        """State of ``batch`` sequences that have not begun: h and cell states."""
        h, c = (
            tuple(np.zeros((batch, units), dtype=np.int64) for units in sizes)
            for sizes in (self.sizes, self.cell_sizes)
        )
        return h, c

    def encode(self, h: Sequence[IntArray], c: Sequence[IntArray]) -> tuple[IntArray, IntArray]:
        """Words of one stream's ``(H_l,)`` arrays.

        Returns the words of the vector span, and of the cell span of each bank ``(banks, words)``.
        """
        vectors = np.zeros((self.vector_span[1], -(-self.macs * self._word_bits // 32)), dtype=np.int64)
        cells = np.zeros((self.banks, self.cell_span[1]), dtype=np.int64)
        for (row, rows), h_l in zip(self._vectors, h, strict=True):
            row -= self.vector_span[0]
            vectors[row : row + rows] = pack_vector(h_l, self.macs, self._word_bits)
        for (row, rows), c_l in zip(self._cells, c, strict=True):
            row -= self.cell_span[0]
            words = pack_fields(c_l[:, None], self._cell_bits)[:, 0].astype(np.int64)
            cells[:, row : row + rows] = spread(words, self.banks)
        return vectors.reshape(-1), cells

    def decode(self, vectors: IntArray, cells: IntArray) -> tuple[LayerArrays, LayerArrays]:
        """Inverse of :meth:`encode`; the first layer's h in the first of its places."""
        rows_of = vectors.reshape(self.vector_span[1], -1)
        words_of = cells.reshape(self.banks, self.cell_span[1])
        h: list[IntArray] = []
        c: list[IntArray] = []
        for (row, rows), units in zip(self._vectors, self.sizes, strict=True):
            row -= self.vector_span[0]
            h.append(unpack_vector(rows_of[row : row + rows], self.macs, self._word_bits, units))
        for (row, rows), units in zip(self._cells, self.cell_sizes, strict=True):
            row -= self.cell_span[0]
            mine = gather(words_of[:, row : row + rows], units)
            c.append(unpack_fields(mine[:, None], self._cell_bits, 1)[:, 0])
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
        h and cell states as arrays ``(N, H_l)`` (N = 1 without a batch), and the counts of
        saturated values of a caller's h and c.

        Raises
        ------
        InputError
            If shape, type or values are wrong.
        """
        if isinstance(state, np.ndarray) or not isinstance(state, Sequence) or len(state) != 2:
            raise InputError(f"state must be a pair (h_0, c_0), not {type(state).__name__}")
        formats = [self._seen_h(index) for index in range(len(self.sizes))]
        seen, saturated_h = self._integers("h_0", state[0], self.sizes, formats, batch, raw)
        own_sizes = tuple(self.cell_sizes[number] for number in self._own)
        own_formats = [self._kept[number] for number in self._own]
        own, saturated_c = self._integers("c_0", state[1], own_sizes, own_formats, batch, raw)
        c = dict(zip(self._own, own, strict=True))
        h: list[IntArray] = []
        for values, wide, narrow in zip(seen, self._wide, self._hidden, strict=True):
            if wide is None:
                h.append(values)
            else:
                c[wide] = values
                drop = self._kept[wide].fraction - narrow.fraction
                h.append(saturate(round_shift(values, drop), narrow.bits))
        return tuple(h), tuple(c[number] for number in range(len(c))), (saturated_h, saturated_c)

    def _integers(
        self,
        name: str,
        part: Any,
        sizes: tuple[int, ...],
        formats: list[Format],
        batch: int | None,
        raw: bool | None,
    ) -> tuple[list[IntArray], int]:
        """One half of a state in integers, and how many values were limited."""
        layers, saturated = [], 0
        for index, array in enumerate(_split(name, part, sizes, batch)):
            if raw is not None and is_raw(array) != raw:
                raise InputError(
                    f"state must be {'integers' if raw else 'floats'} because x is, but {name} "
                    f"is {array.dtype}; convert one of them"
                )
            integers, count = quantise(f"{name}[{index}]", array, formats[index])
            layers.append(integers.reshape(-1, sizes[index]))
            saturated += count
        return layers, saturated

    def present(self, h: Sequence[IntArray], c: Sequence[IntArray], raw: bool, batched: bool) -> State:
        """Turn integer arrays ``(N, H_l)`` per layer into what a caller sees."""

        def part(arrays: list[tuple[IntArray, Format]]) -> StatePart:
            values: list[NDArray[Any]] = []
            for array, form in arrays:
                mine = array if batched else array[0]
                values.append(mine if raw else form.to_floats(mine))
            same = len({array.shape[-1] for array, _ in arrays}) == 1
            return np.stack(values) if same else tuple(values)

        seen = [values if wide is None else c[wide] for values, wide in zip(h, self._wide, strict=True)]
        return (
            part([(values, self._seen_h(index)) for index, values in enumerate(seen)]),
            part([(c[number], self._kept[number]) for number in self._own]),
        )


def _split(
    name: str, part: ArrayLike, sizes: tuple[int, ...], batch: int | None
) -> list[NDArray[np.generic]]:
    """One array per layer, of the right shape."""
    lead = () if batch is None else (batch,)
    shapes = [(*lead, units) for units in sizes]
    uniform = len(set(sizes)) == 1
    if isinstance(part, tuple | list) and len(part) == len(shapes):
        arrays = [as_numbers(f"{name}[{index}]", array) for index, array in enumerate(part)]
    elif uniform:
        whole = as_numbers(name, part)
        arrays = list(whole) if whole.ndim == len(lead) + 2 else [whole]
    else:
        arrays = []
    found = [array.shape for array in arrays]
    if found != shapes:
        want = f"an array {(len(shapes), *shapes[0])}" if uniform else f"a tuple of {shapes}"
        given = f"arrays of {found}" if found else type(part).__name__
        raise InputError(
            f"{name} must be {want} (layers, {'batch, ' if lead else ''}units), not {given}; "
            "give what run or state returned"
        )
    return arrays


def _span(parts: list[tuple[int, int]]) -> tuple[int, int]:
    """First entry and number of entries that cover all ``(first, count)``."""
    first = min((begin for begin, _ in parts), default=0)
    return first, max((begin + count for begin, count in parts), default=first) - first
