"""Tables in which a model looks up tokens, the numbers that it reads: the core reads rows of them.

The driver looks tokens up. A build folder has the tables as ``embeddings.npz``, arrays ``table_0`` and so on.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rtlstm.host.raw_values import as_array, is_raw
from rtlstm.spec.errors import BuildError, InputError
from rtlstm.spec.files import DamagedArraysError, read_arrays
from rtlstm.spec.fixed import Floats, where_bad
from rtlstm.spec.layout import EmbeddingShape, OutputPart, Pad, side_by_side, valid_steps
from rtlstm.spec.manifest import EMBEDDINGS, Manifest, read_listed
from rtlstm.spec.network import FloatArray
from rtlstm.spec.record import Record


class Embedding(Record):
    """A table that stays with the host: row ``i`` is what the network reads for the token ``i``."""

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

        Parameters
        ----------
        x
            Of several inputs a dictionary of their arrays, or a tuple in their order: they are put side by
            side, one without an axis of steps for each of them. Tokens are integers with so many ``axes``; of
            single steps of several frames they may have one more. Other integers are codes of the input
            format, and floats are rows.
        lengths, batch_first, pad
            Where padding is in tokens ``(T, N)``, ``(N, T)`` if ``batch_first``, or ``(T,)``: it may hold
            anything. The order is by default the model's.
        name
            Name of the data in messages.

        Raises
        ------
        InputError
            If tokens are not numbers of rows of the table, or the model has several tables.
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
        single = len(axes) == 1 and self.frames > 1 and array.ndim == axes[0] + 1
        apart = single and is_raw(array) and array.shape[-1] == self.frames
        if not self.tables or not (array.ndim in axes or apart):
            return array
        if len(self.tables) == 1:
            width = self.tables[0].shape.width
            if array.dtype.kind == "f" and array.shape[-1:] in ((width,), (width * self.frames,)):
                return array
            first = self.batch_first if batch_first is None else batch_first
            tokens = _without_padding(array, lengths, bool(first), pad)
            return self.tables[0](tokens, name, f", or its rows as floats (..., {width})")
        if is_raw(array):
            names = ", ".join(each.name for each in self.tables)
            raise InputError(
                f"{name} holds whole numbers, which the model looks up in several tables ({names}): look "
                "them up in each of the build's embeddings, and give what the network reads of them"
            )
        return array


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
    return Tables(tables, manifest.frames, manifest.batch_first, manifest.input_parts)
