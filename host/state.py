"""The recurrent state of streams: what callers see, the words that memories hold, and states in files.

A snapshot of a stream is saved on one backend and restored on another, to the bit. It is NumPy's ``.npz``:
``version``, the formats ``hidden`` and ``cell`` as a row (bits, fraction) for each array, and the state in
integers as the device has it: h of each recurrent layer, ``h0``, ``h1`` and so on, and each cell state,
``c0``, ``c1`` and so on. A GRU's h is there twice, with more bits as a cell state.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rtlstm.host.raw_values import SaturationWarning, as_numbers, is_raw, quantise, warn_saturated
from rtlstm.spec.errors import BuildError, InputError, warn_caller
from rtlstm.spec.files import DamagedArraysError, read_arrays, write_file
from rtlstm.spec.fixed import Format, IntArray, saturate
from rtlstm.spec.manifest import INITIAL_STATE, Manifest, read_listed
from rtlstm.spec.numerics import LayerShape, Numerics
from rtlstm.spec.packing import gather, pack_fields, pack_vector, spread, unpack_fields, unpack_vector

LayerArrays = tuple[IntArray, ...]
"""One integer array ``(N, H_l)`` per layer."""

StatePart = NDArray[Any] | tuple[NDArray[Any], ...]
"""h or c: one array ``(num_layers, N, H)``, or a tuple of ``(N, H_l)`` if the sizes differ."""

State = tuple[StatePart, StatePart]
"""``(h, c)``: h of every recurrent layer, c of every LSTM layer."""


_Array = TypeVar("_Array", bound=NDArray[Any])


class Saturations(NamedTuple):
    """Values of a caller's state that saturated because they are beyond their format."""

    values: int
    largest: float
    """Largest magnitude given."""
    form: Format
    """The format that it is beyond."""


class StateFormats:
    """Shapes and formats of the state of a quantised network.

    In integers, a state is h of each recurrent layer as the vector memory holds it, and the cell state of
    each layer that has one: an LSTM's c; a GRU's h, with more bits. A caller sees only the latter of a GRU.
    """

    def __init__(self, layers: Sequence[LayerShape], numerics: Numerics) -> None:
        recurrent = [(index, layer) for index, layer in enumerate(layers) if layer.has_h]
        self._hidden = [layers[index + layer.feedback].output for index, layer in recurrent]
        self._kept = [layer.state for layer in layers if layer.state is not None and layer.has_state]
        stateful = [layer.kind for layer in layers if layer.has_state]
        # ``_wide``: index of the cell state that is a layer's h. ``_lstms``: indices of an LSTM's c.
        numbers = iter(range(len(stateful)))
        cell_of = [next(numbers) if layer.has_state else None for _, layer in recurrent]
        self._wide = [
            number if layer.kind != "lstm" else None
            for number, (_, layer) in zip(cell_of, recurrent, strict=True)
        ]
        self._lstms = [number for number, kind in enumerate(stateful) if kind == "lstm"]
        self.sizes = tuple(layers[index + layer.feedback].outputs for index, layer in recurrent)
        """Values of each recurrent layer's h."""
        self.cell_sizes = tuple(layer.outputs for layer in layers if layer.has_state)
        """Units of each cell state."""
        self.lstm_sizes = tuple(self.cell_sizes[number] for number in self._lstms)
        """Units of each LSTM's c."""
        self.hidden = self._seen_h(0) if recurrent else numerics.hidden

    @property
    def hidden_formats(self) -> tuple[Format, ...]:
        """Formats of each recurrent layer's h in the vector memory."""
        return tuple(self._hidden)

    @property
    def cell_formats(self) -> tuple[Format, ...]:
        """Formats of each cell state."""
        return tuple(self._kept)

    @property
    def kinds(self) -> tuple[Any, ...]:
        """Sizes and formats: equal ones have the same integers."""
        return self.sizes, self.cell_sizes, self.hidden_formats, self.cell_formats

    @property
    def described(self) -> str:
        """Sizes and formats in words."""
        cells = f" and cell states of {self.cell_sizes} units in {_named(self.cell_formats)}"
        hidden = f"recurrent layers of {self.sizes} units with h in {_named(self.hidden_formats)}"
        return hidden + (cells if self.cell_sizes else "")

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

    def parse(
        self, state: Any, batch: int | None, raw: bool | None = None
    ) -> tuple[LayerArrays, LayerArrays, tuple[Saturations, Saturations]]:
        """Turn a caller's ``(h, c)`` into integers, in the structure that :meth:`present` gives.

        ``batch`` is the number of sequences N, or None for arrays without that axis. ``raw`` says whether
        integers are expected (True) or floats (False); None takes either. Returns h and cell states as arrays
        ``(N, H_l)`` (N = 1 without a batch), and which values of a caller's h and c saturated. Raises
        InputError if shape, type or values are wrong.
        """
        if isinstance(state, np.ndarray) or not isinstance(state, Sequence) or len(state) != 2:
            count = f" of {len(state)}" if isinstance(state, tuple | list) else ""
            raise InputError(
                f"state must be a pair (h_0, c_0), with an empty tuple for c_0 if no layer is an LSTM, not "
                f"{type(state).__name__}{count}"
            )
        formats = [self._seen_h(index) for index in range(len(self.sizes))]
        seen, saturated_h = self._integers("h_0", state[0], self.sizes, formats, batch, raw)
        lstm_formats = [self._kept[number] for number in self._lstms]
        lstm_c, saturated_c = self._integers("c_0", state[1], self.lstm_sizes, lstm_formats, batch, raw)
        h: list[IntArray] = []
        for values, wide, narrow in zip(seen, self._wide, self._hidden, strict=True):
            if wide is not None:
                # As the cell rounds what it keeps to the h that the array reads.
                values = saturate(narrow.round_codes(values, self._kept[wide].fraction), narrow.bits)
            h.append(values)
        return tuple(h), self.cell_states(seen, lstm_c), (saturated_h, saturated_c)

    def cell_states(self, h: Sequence[_Array], c: Sequence[_Array]) -> tuple[_Array, ...]:
        """Return all cell states: c of LSTMs, and h of cells that keep it with more bits."""
        found = dict(zip(self._lstms, c, strict=True))
        found |= {wide: values for values, wide in zip(h, self._wide, strict=True) if wide is not None}
        return tuple(found[number] for number in range(len(found)))

    def _integers(
        self,
        name: str,
        part: Any,
        sizes: tuple[int, ...],
        formats: list[Format],
        batch: int | None,
        raw: bool | None,
    ) -> tuple[list[IntArray], Saturations]:
        """Return h or c in integers, and which of its values saturated."""
        layers, worst = [], Saturations(0, 0.0, formats[0] if formats else self.hidden)
        for index, array in enumerate(split_layers(name, part, sizes, batch)):
            if raw is not None and is_raw(array) != raw:
                raise InputError(
                    f"state must be {'integers' if raw else 'floats'} because x is, but {name} "
                    f"is {array.dtype}; convert one of them"
                )
            form = formats[index]
            integers, _ = quantise(f"{name}[{index}]", array, form)
            layers.append(integers.reshape(-1, sizes[index]))
            # The end of a range, a step above its last code, is rounded to that.
            beyond = 0 if is_raw(array) else int(np.count_nonzero(np.abs(array) > form.limit + form.step))
            largest = float(np.abs(array).max(initial=0)) if beyond else 0.0
            if largest > worst.largest:
                worst = worst._replace(largest=largest, form=form)
            worst = worst._replace(values=worst.values + beyond)
        return layers, worst

    def warn_saturations(
        self, names: tuple[str, str], saturations: tuple[Saturations, Saturations], batch: int
    ) -> None:
        """Warn about values of h and c that saturated in :meth:`parse`; ``names`` are used in the message."""
        h, c = saturations
        begin = "calibration data that begin with such states"
        typical = f"generate with {begin} (`calibration_state`)"
        total = batch * sum(self.sizes)
        warn_saturated(names[0], h.values, total, h.form, advice=typical)
        limit = _range_of(c.form, c.largest)
        advice = f"generate with `cell_range={limit:g}`, or with {begin}"
        total = batch * sum(self.lstm_sizes)
        warn_saturated(names[1], c.values, total, c.form, advice=advice)

    def warn_at_limit(self, name: str, c: Sequence[IntArray]) -> None:
        """Warn about values of an LSTM's c, called ``name``, that are at the limits of their format."""
        pairs = [(self._kept[number], c[number]) for number in self._lstms]
        counts = [int(np.count_nonzero(np.abs(values) == form.maximum)) for form, values in pairs]
        if count := sum(counts):
            reached = [form for (form, _), mine in zip(pairs, counts, strict=True) if mine]
            limit, widest = reached[0].limit, max(form.limit for form in reached)
            total = sum(values.size for _, values in pairs)
            warn_caller(
                f"{count:,} of {total:,} values of {name} are at the limits "
                f"of their format, +-{limit:.6g}, and may have saturated; if sequences continue from them, "
                f"generate with `cell_range={_range_of(reached[0], 2.0 * widest):g}` or more, or with "
                "calibration data that cover them",
                SaturationWarning,
            )

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
            part([(c[number], self._kept[number]) for number in self._lstms]),
        )


def _range_of(form: Format, magnitude: float) -> float:
    """The smallest range, a power of two, at which a format of as many bits holds ``+-magnitude``."""
    covering = Format.covering(form.bits, min(magnitude, 2.0**form.bits))
    return float(2.0 ** (covering.bits - 1 - covering.fraction))


class StateLayout(StateFormats):
    """Shapes, formats and memory words of the state of a build's streams."""

    def __init__(self, manifest: Manifest) -> None:
        super().__init__(manifest.layers, manifest.numerics)
        program = manifest.program
        self.macs = manifest.parameters.macs
        self.banks = manifest.parameters.gate_units
        # (first row, rows) of each layer, and the rows that a single burst reads or writes.
        self._vectors = [(first, manifest.parameters.words(units)) for first, units in program.hidden]
        self._cells = [(first, manifest.parameters.drain_beats(units)) for first, units in program.cells]
        # The first layer's h has two addresses, the second directly after the first.
        copies = [(first + program.copy_words, rows) for first, rows in self._vectors[:1]]
        self.rows = self._vectors, self._cells, program.copy_words
        """Where the state stands: layouts with the same rows and formats have the same words."""
        self.vector_span = _span([*self._vectors, *copies])
        self.cell_span = _span(self._cells)
        self._word_bits = manifest.numerics.data_bits
        self._row_words = -(-self.macs * self._word_bits // 32)
        self._cell_bits = manifest.numerics.cell.bits

    def encode(self, h: Sequence[IntArray], c: Sequence[IntArray]) -> tuple[IntArray, IntArray]:
        """Return the memory words of one stream's ``(H_l,)`` arrays.

        These are the words of the vector span, and of the cell span of each bank ``(banks, words)``.
        """
        vectors = np.zeros((self.vector_span[1], self._row_words), dtype=np.int64)
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
        """Return the arrays of memory words, the inverse of :meth:`encode`: the first layer's h is read at
        its first address.
        """
        rows_of = vectors.reshape(self.vector_span[1], self._row_words)
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


def split_layers(
    name: str, part: ArrayLike, sizes: tuple[int, ...], batch: int | None
) -> list[NDArray[np.generic]]:
    """Return one array per layer of h or c, in any structure that a caller may give.

    ``name`` is for messages. ``part`` is an array ``(layers, batch, units)``, or one ``(batch, units)`` per
    layer. ``sizes`` are the units of each layer. ``batch`` is the number of sequences, or None for arrays
    without that axis. Raises InputError if these are not numbers of such shapes.
    """
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
    if not shapes and (not isinstance(part, tuple | list) or part):
        raise InputError(
            f"{name} must be an empty tuple, because no layer keeps any, not {type(part).__name__}; "
            "give what run or state returned"
        )
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


SNAPSHOT_VERSION = 1


def save_snapshot(
    path: str | Path, layout: StateLayout, h: Sequence[IntArray], c: Sequence[IntArray]
) -> None:
    """Write h of each recurrent layer and each cell state, arrays ``(H_l,)``.

    The old file is replaced once the new one is complete.

    Raises InputError if the file cannot be written.
    """
    fields: dict[str, Any] = {"version": np.int64(SNAPSHOT_VERSION), **_formats(layout)}
    for name, parts in (("h", h), ("c", c)):
        fields |= {f"{name}{index}": part for index, part in enumerate(parts)}
    write_file(path, lambda file: np.savez(file, allow_pickle=False, **fields))


def load_snapshot(path: str | Path, layout: StateLayout) -> tuple[LayerArrays, LayerArrays]:
    """Read what :func:`save_snapshot` wrote: h of each recurrent layer and each cell state.

    The build may be another than the one it was saved from, if layers and formats are the same.

    Raises InputError if the file cannot be read, or belongs to other layers or formats.
    """
    try:
        fields = read_arrays(Path(path))
        if not isinstance(fields, dict) or fields["version"].size != 1:
            raise DamagedArraysError("it is no snapshot")
        version = int(fields.pop("version").item())
    except OSError as error:
        raise InputError(
            f"{path} must be a snapshot that save wrote, but it cannot be read: {error.strerror or error}"
        ) from None
    except (DamagedArraysError, LookupError, ValueError, TypeError, OverflowError):
        raise InputError(
            f"{path} must be a snapshot that save wrote, but it is something else or damaged; save it again"
        ) from None
    if version != SNAPSHOT_VERSION:
        raise InputError(
            f"{path} must be a snapshot of version {SNAPSHOT_VERSION}, not {version}; save it again, or "
            "restore it with the rtlstm that wrote it"
        )
    expected = _formats(layout)
    sizes = {f"h{index}": (size,) for index, size in enumerate(layout.sizes)}
    sizes |= {f"c{index}": (size,) for index, size in enumerate(layout.cell_sizes)}
    found = {name: part.shape for name, part in fields.items() if name not in expected}
    same = all(np.array_equal(fields.get(name, ()), format) for name, format in expected.items())
    if found != sizes or not same:
        raise InputError(
            f"{path} must hold {layout.described}, but it holds others; restore it on a build of the "
            "network it was saved from"
        )
    return (
        _codes(path, "h", fields, layout.hidden_formats),
        _codes(path, "c", fields, layout.cell_formats),
    )


def _codes(
    path: str | Path, name: str, fields: Mapping[str, NDArray[Any]], formats: Sequence[Format]
) -> LayerArrays:
    """Return the integers of a file's arrays of this name, which must be codes of their formats."""
    found = []
    for index, form in enumerate(formats):
        which = f"{name}{index} of {path}"
        codes = as_numbers(which, fields[f"{name}{index}"])
        if not is_raw(codes):
            raise InputError(f"{which} must hold integers, not {codes.dtype}; save it again")
        found.append(quantise(which, codes, form)[0])
    return tuple(found)


def _named(formats: Sequence[Format]) -> str:
    return " and ".join(dict.fromkeys(map(str, formats))) or "no format"


def _formats(layout: StateLayout) -> dict[str, IntArray]:
    formats = {"hidden": layout.hidden_formats, "cell": layout.cell_formats}
    return {
        name: np.array([(form.bits, form.fraction) for form in each], dtype=np.int64).reshape(-1, 2)
        for name, each in formats.items()
    }


def load_initial_state(
    folder: Path, manifest: Manifest, layout: StateLayout
) -> tuple[LayerArrays, LayerArrays] | None:
    """Read a build's initial state: h and cell states in integers, ``(H_l,)`` per layer; None for zeros.

    The manifest is the folder's and says whether there is one. The layout is that of the core, which may be
    another build's.

    Values beyond their format saturate, with a :class:`SaturationWarning`.

    Raises BuildError if the file is missing, is not the one that was generated, or is not listed; if it
    cannot be read, or has another network's layers.
    """
    try:
        state = read_initial_state(folder, manifest)
        if state is None:
            return None
        h, c, saturations = layout.parse(state, None)
    except (OSError, DamagedArraysError, InputError) as error:
        raise BuildError(
            f"{folder / INITIAL_STATE} must hold the state in which the model begins, but does not "
            f"({error}); generate the build again"
        ) from None
    layout.warn_saturations(("h_0", "c_0"), saturations, 1)
    return tuple(part[0] for part in h), tuple(part[0] for part in c)


def read_initial_state(
    folder: Path, manifest: Manifest
) -> tuple[tuple[NDArray[Any], ...], tuple[NDArray[Any], ...]] | None:
    """Read a build's initial state, real values as the model has them; None for zeros."""
    path = folder / INITIAL_STATE
    listed = any(file.path == INITIAL_STATE for file in manifest.files)
    if not listed and not path.exists():
        return None
    read_listed(folder, manifest, INITIAL_STATE)
    found = read_arrays(path)
    arrays = found if isinstance(found, dict) else {}
    return _layers(arrays, "h"), _layers(arrays, "c")


def _layers(arrays: dict[str, NDArray[Any]], part: str) -> tuple[NDArray[Any], ...]:
    """One array of each layer, ``h_0``, ``h_1`` and so on."""
    names = (f"{part}_{index}" for index in range(len(arrays)))
    return tuple(arrays[name] for name in names if name in arrays)
