"""Greedy decoding: what is decided of a step is the next step's token."""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rtlstm.host.device import Device
from rtlstm.host.embeddings import Tables
from rtlstm.host.raw_values import argmax, as_array
from rtlstm.host.state import State
from rtlstm.host.stream import Stream
from rtlstm.spec.errors import ConfigurationError, InputError
from rtlstm.spec.fixed import IntArray
from rtlstm.spec.manifest import Manifest


class DecodingDevice(Protocol):
    """The part of an accelerator that decodes."""

    manifest: Manifest
    device: Device
    tables: Tables

    def stream(self) -> Stream:
        """Reserve a stream."""

    def step_many(self, streams: Sequence[Stream], x: ArrayLike) -> NDArray[Any]:
        """Compute one step of each of several streams."""

    def _free(self) -> list[int]:
        """Numbers of the free streams."""


def decode(
    accelerator: DecodingDevice, first: ArrayLike, steps: int, stop: int | None, state: Any
) -> tuple[IntArray, State]:
    """Decode; see :meth:`rtlstm.host.Accelerator.decode`."""
    manifest, layout = accelerator.manifest, accelerator.device.layout
    tokens, batched = _check(accelerator, first, steps, stop)
    h = c = None
    if state is not None:
        h, c, saturations = layout.parse(state, len(tokens) if batched else None)
        layout.warn_saturations(("h_0", "c_0"), saturations, len(tokens), stacklevel=3)
    found = np.full((steps, len(tokens)), 0 if stop is None else stop, dtype=np.int64)
    ends_h, ends_c = layout.zeros(len(tokens))
    most = len(accelerator._free()) or 1
    for begin in range(0, len(tokens), most):
        members = range(begin, min(begin + most, len(tokens)))
        streams: list[Stream] = []
        try:
            for member in members:
                streams.append(stream := accelerator.stream())
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
        row[alive] = tokens[alive] = y if accelerator.manifest.decides else argmax(y)
        alive = alive[tokens[alive] != stop] if stop is not None else alive
        if not len(alive):
            return


def _check(accelerator: DecodingDevice, first: ArrayLike, steps: Any, stop: Any) -> tuple[IntArray, bool]:
    """Return the first tokens ``(N,)``, and whether they are a batch."""
    manifest, tables = accelerator.manifest, accelerator.tables.tables
    if manifest.sequence is not None or manifest.frames > 1:
        raise ConfigurationError(
            f"decode needs a network that takes single tokens, but {manifest.name!r} takes "
            f"{'whole sequences' if manifest.sequence is not None else 'several in a step'}; use run"
        )
    rows = tables[0].shape.rows if len(tables) == 1 else 0
    if manifest.classes > rows:
        has = f"has a table of {rows} rows" if rows else f"looks up in {len(tables)} tables"
        raise ConfigurationError(
            f"decode needs a model that looks up the numbers of its {manifest.classes} outputs in one table, "
            f"but {manifest.name!r} {has}; choose the next input yourself, and give it to a stream's step"
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
