"""Integers side by side in the 32-bit words of memories, and rows in the banks of memories."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rtlstm.spec.errors import ImageError
from rtlstm.spec.fixed import IntArray
from rtlstm.spec.image import WordArray


def pack_fields(values: ArrayLike, bits: int, signed: bool = True) -> WordArray:
    """Pack integers side by side, the first in the least significant bits.

    Parameters
    ----------
    values
        Integers of shape ``(..., n)`` that fit in ``bits`` bits.
    bits
        Width of a field, at most 62.
    signed
        Two's complement fields instead of unsigned ones.

    Returns
    -------
    Words of shape ``(..., ceil(n * bits / 32))``; bits past the last field are 0.

    Raises
    ------
    ImageError
        If a value does not fit.
    """
    values = np.asarray(values, dtype=np.int64)
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
    if values.size and (values.min() < low or values.max() > high):
        raise ImageError(
            f"values must be within {low} to {high} to fit in {bits} bits, but they range from "
            f"{values.min()} to {values.max()}; quantise them for this build"
        )
    return to_words(to_bits(values, bits).reshape(*values.shape[:-1], -1))


def unpack_fields(words: ArrayLike, bits: int, count: int, signed: bool = True, *, skip: int = 0) -> IntArray:
    """Return ``count`` integers from words of shape ``(..., words)``, behind the first ``skip`` bits.

    See :func:`pack_fields`.
    """
    octets = np.ascontiguousarray(words, dtype="<u4").view(np.uint8)
    field_bits = np.unpackbits(octets, axis=-1, count=skip + count * bits, bitorder="little")[..., skip:]
    field_bits = field_bits.reshape(*octets.shape[:-1], count, bits)
    fields = np.zeros((*field_bits.shape[:-1], 8), dtype=np.uint8)
    fields[..., : -(-bits // 8)] = np.packbits(field_bits, axis=-1, bitorder="little")
    values = fields.view("<i8")[..., 0].astype(np.int64, copy=False)
    if signed:
        values = (values ^ (1 << (bits - 1))) - (1 << (bits - 1))
    return values


def to_bits(values: IntArray, bits: int) -> NDArray[np.uint8]:
    """Return the low ``bits`` bits of each value, least significant first, on a new last axis."""
    octets = np.ascontiguousarray(values, dtype="<i8")[..., None].view(np.uint8)
    return np.unpackbits(octets, axis=-1, count=bits, bitorder="little")


def to_words(bits: NDArray[np.uint8]) -> WordArray:
    """Return bits on the last axis, least significant first, as 32-bit words padded with zeros."""
    octets = np.packbits(bits, axis=-1, bitorder="little")
    whole = np.zeros((*octets.shape[:-1], -(-octets.shape[-1] // 4) * 4), dtype=np.uint8)
    whole[..., : octets.shape[-1]] = octets
    return whole.view("<u4").astype(np.uint32, copy=False)


def pack_vector(values: ArrayLike, macs: int, bits: int) -> WordArray:
    """Pack a vector as the array reads it: ``macs`` values of ``bits`` bits per row.

    ``values`` is ``(..., n)``; returns ``(..., ceil(n / macs), words)``, padded with zeros.
    """
    values = np.asarray(values, dtype=np.int64)
    count = values.shape[-1]
    rows = -(-count // macs)
    padded = np.zeros((*values.shape[:-1], rows * macs), dtype=np.int64)
    padded[..., :count] = values
    return pack_fields(padded.reshape(*values.shape[:-1], rows, macs), bits)


def unpack_vector(words: ArrayLike, macs: int, bits: int, count: int) -> IntArray:
    """Return the ``(..., count)`` values of rows ``(..., rows, words)``; see :func:`pack_vector`."""
    values = unpack_fields(words, bits, macs)
    return values.reshape(*values.shape[:-2], -1)[..., :count]


def spread(rows: IntArray, banks: int) -> IntArray:
    """Distribute rows ``(n, ...)`` to ``(banks, ceil(n / banks), ...)`` in turn, padded with zeros."""
    padded = np.zeros((-(-len(rows) // banks) * banks, *rows.shape[1:]), dtype=np.int64)
    padded[: len(rows)] = rows
    return padded.reshape(-1, banks, *rows.shape[1:]).swapaxes(0, 1)


def gather(banks: IntArray, count: int) -> IntArray:
    """Inverse of :func:`spread`, for ``count`` rows."""
    return banks.swapaxes(0, 1).reshape(-1, *banks.shape[2:])[:count]
