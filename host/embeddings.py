"""Tables in which a model looks up tokens, the numbers that it reads, and greedy decoding of tokens.

The driver looks tokens up, and the core reads the tables' rows; or the core looks up. In greedy decoding,
what is decided of a step is the next step's token. A build folder has the tables as ``embeddings.npz``,
arrays ``table_0`` and so on.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rtlstm.host.device import Device
from rtlstm.host.raw_values import argmax, as_array, is_raw
from rtlstm.host.state import State
from rtlstm.host.stream import Stream
from rtlstm.spec.errors import BuildError, ConfigurationError, InputError
from rtlstm.spec.files import DamagedArraysError, read_arrays
from rtlstm.spec.fixed import Floats, IntArray, where_bad
from rtlstm.spec.layout import EmbeddingShape, OutputPart, Pad, side_by_side, valid_steps
from rtlstm.spec.manifest import EMBEDDINGS, Manifest, read_listed
from rtlstm.spec.network import FloatArray
from rtlstm.spec.record import Record


class Embedding(Record):
    """A table of a model: row ``i`` is what the network reads for the token ``i``."""

    name: str
    table: FloatArray
    input: str = ""
    """The model's input that it looks up, if the model has several."""

    def __call__(self, tokens: ArrayLike, name: str = "x", instead: str = "") -> Floats:
        """Look up: tokens ``(...)``, called ``name`` in messages, to ``(..., width)``.

        ``instead`` is what a message says that may be given in their place.

        Raises
        ------
        InputError
            If they are not numbers of rows of the table.
        """
        array, rows = as_array(name, tokens), len(self.table)
        if not is_raw(array):
            raise InputError(
                f"{name} must hold tokens as integers, which the model looks up in {self.name!r}{instead}, "
                f"not {array.shape} of {array.dtype}; convert tokens with numpy.asarray({name}, int)"
            )
        bad = (array < 0) | (array >= rows)
        if bad.any():
            raise InputError(
                f"{name} must hold tokens from 0 to {rows - 1}, which the model looks up in {self.name!r}, "
                f"but {where_bad(name, array, bad)}; correct them, and give lengths if they are padding"
            )
        return np.asarray(self.table[array], dtype=np.float64)

    @property
    def shape(self) -> EmbeddingShape:
        """What the manifest says of it."""
        return EmbeddingShape(
            name=self.name, rows=self.table.shape[0], width=self.table.shape[1], input=self.input
        )


_SHAPES = {
    (0,): "one token (steps takes several)",
    (1,): "tokens (T,), one for each step",
    (1, 2): "tokens (T,), or (T, N) or (N, T) of several sequences",
}
"""Which tokens are taken, by the axes that they may have."""


@dataclass(frozen=True)
class Tables:
    """The tables of a model or of its build, and how its data lie."""

    tables: tuple[Embedding, ...] = ()
    frames: int = 1
    """Frames of the model in a step."""
    batch_first: bool | None = False
    """Whether the model's data have sequences before steps; None if it does not tell."""
    parts: tuple[OutputPart, ...] = ()
    """The model's inputs, if it has several."""
    in_core: bool = False
    """Whether the core looks up: it gets tokens as they are."""

    def look_up(
        self,
        x: Any,
        lengths: Any = None,
        batch_first: bool | None = None,
        pad: Pad = "back",
        *,
        name: str = "x",
        axes: Sequence[int] = (1, 2),
    ) -> NDArray[Any]:
        """Return rows of the model's table for tokens; other data as they are.

        Of tokens that the core looks up, return their numbers as floats, ``(..., 1)``.

        Parameters
        ----------
        x
            Of several inputs a dictionary of their arrays, or a tuple in their order: they are put side by
            side, one without an axis of steps for each of them. Tokens are integers with so many ``axes``, or
            with a last axis of 1 beside, and then also whole floats; of single steps of several frames they
            may have one axis more. Other integers are codes of the input format, and floats are rows.
        lengths, batch_first, pad
            Where padding is in tokens ``(T, N)``, ``(N, T)`` if ``batch_first``, or ``(T,)``: it may hold
            anything. The order is by default the model's.
        name
            Name of the data in messages.

        Raises
        ------
        InputError
            If tokens are not numbers of rows of the table, or have another shape, or the model has several
            tables.
        """
        if self.parts or isinstance(x, Mapping):
            first = self.batch_first if batch_first is None else batch_first
            if isinstance(x, tuple) and len(x) == len(self.parts):
                x = dict(zip((part.name for part in self.parts), x, strict=True))
            if isinstance(x, Mapping):
                of = {table.input: table for table in self.tables if table.input}
                x = {
                    key: of[key](_without_padding(as_array(key, each), lengths, bool(first), pad), key)
                    if key in of
                    else as_array(key, each)
                    for key, each in x.items()
                }
            x = side_by_side(name, x, self.parts, first)
        array = as_array(name, x)
        if self.parts:
            return array
        if len(self.tables) == 1:
            return self._look_up_in_one(array, lengths, batch_first, pad, name, axes)
        if self.tables and array.ndim in axes and is_raw(array):
            names = ", ".join(each.name for each in self.tables)
            raise InputError(
                f"{name} holds whole numbers, which the model looks up in several tables ({names}): look "
                "them up in each of the build's embeddings, and give what the network reads of them"
            )
        return array

    def _look_up_in_one(
        self,
        array: NDArray[Any],
        lengths: Any,
        batch_first: bool | None,
        pad: Pad,
        name: str,
        axes: Sequence[int],
    ) -> NDArray[Any]:
        """Look up in the only table; data that this returned before are returned as they are."""
        (table,) = self.tables
        width = table.shape.width
        instead = f", or its rows as floats (..., {width})"
        alone = array.shape[-1:] == (1,) and array.ndim - 1 in axes
        if alone and (self.in_core or width > 1) and (array.dtype.kind == "f" or array.ndim not in axes):
            if array.dtype.kind == "f":
                if not ((np.abs(array) < 2**31) & (array == np.floor(array))).all():
                    return table(array, name, instead)  # It says what tokens must be.
                array = array.astype(np.int64)
            array = array[..., 0]
        last = array.shape[-1:]
        single = len(axes) == 1 and self.frames > 1 and array.ndim == axes[0] + 1
        apart = single and is_raw(array) and last == (self.frames,)
        if array.ndim in axes:
            rows = array.dtype.kind == "f" and last in ((width,), (width * self.frames,))
        else:  # Steps of a window have several rows.
            rows = not apart and last != () and last[0] % width == 0
        if rows and not self.in_core:
            return array
        if array.ndim not in axes and not apart:
            end = f"{instead}, not {array.shape}; reshape it"
            if self.in_core:
                end = (
                    f", not {array.shape}; generate with `token_table='host'` to give what the network reads"
                )
            raise InputError(f"{name} must hold {_SHAPES[tuple(axes)]}{end}")
        first = self.batch_first if batch_first is None else batch_first
        tokens = _without_padding(array, lengths, bool(first), pad)
        if not self.in_core:
            return table(tokens, name, instead)
        table(tokens, name, " (the core does: it takes no rows)")
        return tokens.astype(np.float64)[..., None]


def _without_padding(array: NDArray[Any], lengths: Any, first: bool, pad: Pad) -> NDArray[Any]:
    """Return tokens with zeros as padding; as they are where the lengths do not fit, which others refuse."""
    if lengths is None or not is_raw(array) or array.ndim not in (1, 2):
        return array
    whole = array[:, None] if array.ndim == 1 else array.T if first else array
    counts = np.atleast_1d(as_array("lengths", lengths))
    if not is_raw(counts) or counts.shape != whole.shape[1:]:
        return array
    valid = valid_steps(len(whole), counts.astype(np.int64), pad == "front")
    valid = valid[:, 0] if array.ndim == 1 else valid.T if first else valid
    return np.where(valid, array, array.dtype.type(0))


def embeddings_file(tables: Sequence[Embedding]) -> bytes:
    """Return the file of a build's tables; in 32 bits where these hold them exactly."""
    file, arrays = BytesIO(), {}
    for index, each in enumerate(tables):
        narrow = each.table.astype(np.float32)
        arrays[f"table_{index}"] = narrow if np.array_equal(narrow, each.table) else each.table
    np.savez(file, allow_pickle=False, **arrays)
    return file.getvalue()


def load_tables(folder: Path, manifest: Manifest) -> Tables:
    """Read the tables of a build's model; none if it looks nothing up.

    Raises BuildError if the file is missing, is not the one that was generated, or has other tables.
    """
    if not manifest.embeddings:
        return Tables((), manifest.frames, manifest.batch_first, manifest.input_parts)
    read_listed(folder, manifest, EMBEDDINGS)
    path = folder / EMBEDDINGS
    try:
        found = read_arrays(path)
        arrays = list(found.values()) if isinstance(found, dict) else []
        shapes = [(each.rows, each.width) for each in manifest.embeddings]
        if [array.shape for array in arrays] != shapes:
            raise DamagedArraysError("it has other arrays")
    except (OSError, DamagedArraysError, InputError) as error:
        raise BuildError(
            f"{path} must hold the tables in which the model looks up tokens, but does not ({error}); "
            "generate the build again"
        ) from None
    named = zip(manifest.embeddings, arrays, strict=True)
    tables = tuple(Embedding(name=shape.name, table=array, input=shape.input) for shape, array in named)
    looks_up = manifest.parameters.token_rows > 0
    return Tables(tables, manifest.frames, manifest.batch_first, manifest.input_parts, looks_up)


class DecodingDevice(Protocol):
    """The part of an accelerator that decodes."""

    manifest: Manifest
    device: Device
    tables: Tables

    def stream(self, network: int | None = None, after: Stream | None = None) -> Stream:
        """Reserve a stream, which may go on after another one."""

    def step_many(self, streams: Sequence[Stream], x: ArrayLike) -> NDArray[Any]:
        """Compute one step of each of several streams."""

    def _free(self) -> list[int]:
        """Numbers of the free streams."""


def decode(
    accelerator: DecodingDevice, first: ArrayLike, steps: int, stop: int | None, state: Any, after: Any
) -> tuple[IntArray, State]:
    """Decode; see :meth:`rtlstm.host.Accelerator.decode`."""
    manifest, layout = accelerator.manifest, accelerator.device.layout
    tokens, batched = _check(accelerator, first, steps, stop)
    before: Sequence[Stream | None] = [None] * len(tokens)
    if after is not None:
        before = after if isinstance(after, Sequence) else [after]
        streams_given = len(set(map(id, before))) == len(before) == len(tokens)
        if state is not None or not streams_given or not all(isinstance(each, Stream) for each in before):
            raise InputError(
                f"after must be another stream for each of {len(tokens)} sequences, without `state`, not "
                f"{after!r}{' and a state' if state is not None else ''}"
            )
    h = c = None
    if state is not None:
        h, c, saturations = layout.parse(state, len(tokens) if batched else None)
        layout.warn_saturations(("h_0", "c_0"), saturations, len(tokens))
    found = np.full((steps, len(tokens)), 0 if stop is None else stop, dtype=np.int64)
    ends_h, ends_c = layout.zeros(len(tokens))
    most = (len(accelerator._free()) or 1) if after is None else len(tokens)
    for begin in range(0, len(tokens), most):
        members = range(begin, min(begin + most, len(tokens)))
        streams: list[Stream] = []
        try:
            for member in members:
                streams.append(stream := accelerator.stream(after=before[member]))
                if h is not None and c is not None:
                    parts = [part[member] for part in h], [part[member] for part in c]
                    accelerator.device.write_state(stream.number, *parts)
            _follow(accelerator, streams, tokens[members], stop, found[:, members.start : members.stop])
            for member, stream in zip(members, streams, strict=True):
                its_h, its_c = accelerator.device.read_state(stream.number)
                for whole, part in zip((*ends_h, *ends_c), (*its_h, *its_c), strict=True):
                    whole[member] = part
        finally:
            for stream in streams:
                stream.close()
    if stop is not None and (ended := np.flatnonzero((found == stop).all(axis=1))).size:
        found = found[: ended[0] + 1]
    result = layout.present(ends_h, ends_c, False, batched)
    if not batched:
        return found[:, 0], result
    return (found.T if manifest.batch_first else found), result


def _follow(
    accelerator: DecodingDevice, streams: list[Stream], tokens: IntArray, stop: int | None, found: IntArray
) -> None:
    """Fill ``found``, ``(steps, N)``: the tokens of each stream, until it gives the one at which it stops."""
    alive = np.arange(len(streams))
    for row in found:
        y = accelerator.step_many([streams[at] for at in alive], tokens[alive])
        if accelerator.manifest.parameters.best:
            y = y["number"][:, 0]
        row[alive] = tokens[alive] = y if y.ndim == 1 else argmax(y)
        alive = alive[tokens[alive] != stop] if stop is not None else alive
        if not len(alive):
            return


def _check(accelerator: DecodingDevice, first: ArrayLike, steps: Any, stop: Any) -> tuple[IntArray, bool]:
    """Return the first tokens ``(N,)``, and whether they are a batch."""
    manifest, tables = accelerator.manifest, accelerator.tables.tables
    if manifest.sequence is not None or manifest.frames > 1:
        raise ConfigurationError(
            f"decode needs a network that takes single tokens, but {accelerator.device.label} takes "
            f"{'whole sequences' if manifest.sequence is not None else 'several in a step'}; use run"
        )
    if manifest.parameters.decide == "softmax":
        raise ConfigurationError(
            "decode needs to know which output is the largest, but probabilities of two may be rounded to "
            "the same; generate with `decide='argmax'`"
        )
    rows = tables[0].shape.rows if len(tables) == 1 else 0
    if manifest.classes > rows:
        has = f"has a table of {rows} rows" if rows else f"looks up in {len(tables)} tables"
        raise ConfigurationError(
            f"decode needs a model that looks up the numbers of its {manifest.classes} outputs in one table, "
            f"but {accelerator.device.label} {has}; choose the next input yourself, and give it to a "
            "stream's step"
        )
    tokens = as_array("first", first)
    if tokens.ndim > 1 or not tokens.size:
        raise InputError(f"first must be a token, or one of each sequence (N,), not of shape {tokens.shape}")
    tables[0](tokens, "first")
    for name, value, least, most in (("steps", steps, 1, None), ("stop", stop, 0, manifest.classes - 1)):
        whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
        if not whole and (name == "steps" or value is not None):
            raise InputError(f"{name} must be an integer, not {value!r}")
        if whole and (value < least or (most is not None and value > most)):
            raise InputError(
                f"{name} must be {least} or more{f', at most {most}' if most else ''}, not {value}"
            )
    return np.atleast_1d(tokens).astype(np.int64), tokens.ndim == 1
