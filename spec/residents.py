"""Several networks in one device: the numbers of their streams, and the rows that each has of memories."""

from collections.abc import Mapping
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from rtlstm.spec.errors import ConfigurationError, DeviceError
from rtlstm.spec.fixed import IntArray
from rtlstm.spec.image import WeightImage, WordArray, image_shapes
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.packing import pack_rows, unpack_fields
from rtlstm.spec.parameters import NETWORK_BIT
from rtlstm.spec.program.fields import Bases, step_widths
from rtlstm.spec.registers import Region

_POOLS = {Region.WEIGHTS: "weight_rows", Region.SHIFTS: "shift_rows", Region.PARTIALS: "bias_rows"}
"""What a network has of each region beside its program."""

Part = tuple[Region, int, int, IntArray]
"""Region, bank, first row, and words ``(rows, words)``."""


Number = TypeVar("Number", int, IntArray)


def split_numbers(numbers: Number) -> tuple[Number, Number]:
    """Return the streams and the networks that streams' numbers name."""
    return numbers & ((1 << NETWORK_BIT) - 1), numbers >> NETWORK_BIT


def find_rows(networks: Mapping[int, tuple[Manifest, Bases]], number: int, manifest: Manifest) -> Bases:
    """Return free rows for a network that is loaded as ``number`` beside others.

    Raises ConfigurationError if there are not as many in one piece as it needs; the message says which.
    """
    capacity, needs = manifest.capacity, manifest.needs
    chosen: dict[str, int] = {}
    lacking: list[str] = []
    for pool in Bases.model_fields:
        needed = getattr(needs, pool)
        taken = sorted(
            (getattr(bases, pool), getattr(bases, pool) + getattr(other.needs, pool))
            for each, (other, bases) in networks.items()
            if each != number
        )
        ends = [0, *(end for _, end in taken)]
        gaps = list(zip(ends, [*(first for first, _ in taken), getattr(capacity, pool)], strict=True))
        first = next((first for first, end in gaps if end - first >= needed), None)
        if first is None:
            most = max(end - first for first, end in gaps)
            lacking.append(
                f"{needed} {pool.replace('_', '-')}, of which {max(most, 0)} are free side by side"
            )
        else:
            chosen[pool] = first
    if lacking:
        raise ConfigurationError(
            f"the device must have room for network {number} beside the others, but it needs "
            f"{'; '.join(lacking)}; unload one that is not used any more, or generate the device with larger "
            "`capacities`"
        )
    return Bases(**chosen)


def step_row(manifest: Manifest, number: int) -> int:
    """Return the row of the program with the fields of a network's step."""
    return manifest.capacity.operations + number


def resident_parts(image: WeightImage, manifest: Manifest, bases: Bases) -> list[Part]:
    """Return what of a network's image is written where, but for the fields of its step.

    Tables are those of the device, and written again.
    """
    ops, _ = program_words(manifest, bases)
    parts: list[Part] = [(Region.PROGRAM, 0, bases.operations, ops)]
    for region, words in image.regions.items():
        if region == Region.PROGRAM:
            continue
        first, count = 0, words.shape[1]
        if region in _POOLS:
            first, count = getattr(bases, _POOLS[region]), getattr(manifest.needs, _POOLS[region])
        parts += [(region, bank, first, rows[:count]) for bank, rows in enumerate(words.astype(np.int64))]
    return parts


def program_words(manifest: Manifest, bases: Bases) -> tuple[IntArray, IntArray]:
    """Return the rows of a network's operations, and that of its step, which begins at these rows."""
    ops, step = manifest.program_at(bases)
    rows = pack_rows([*ops, step], manifest.regions[Region.PROGRAM].width).astype(np.int64)
    return rows[:-1], rows[-1:]


def resident_image(memories: Mapping[Region, WordArray], manifest: Manifest, number: int) -> WeightImage:
    """Return the image of a network that a device's memories hold.

    Raises DeviceError if they do not hold this program.
    """
    program = memories[Region.PROGRAM][0]
    bases = held_at(program, manifest, number)
    if bases is None:
        raise DeviceError(
            f"the device must hold the program of {manifest.name!r} as network {number}, but holds another "
            "or a part of it; load the build again"
        )
    regions: dict[Region, NDArray[np.uint32]] = {}
    for region, (_, rows, _) in image_shapes(manifest).items():
        words = memories[region]
        if region == Region.PROGRAM:
            regions[region] = pack_rows(manifest.program_rows[region], manifest.regions[region].width)[
                np.newaxis
            ]
        elif region in _POOLS:
            at, count = getattr(bases, _POOLS[region]), getattr(manifest.needs, _POOLS[region])
            found = np.zeros_like(words[:, :rows])
            found[:, :count] = words[:, at : at + count]
            regions[region] = found
        else:
            regions[region] = words[:, :rows]
    return WeightImage(build_hash=manifest.build_hash, regions=regions)


def held_at(program: WordArray, manifest: Manifest, number: int) -> Bases | None:
    """Return where a build's program begins in these rows, as it says itself; None if they hold another."""
    step = held_step(program, manifest, number)
    first = step["begin"]
    if not step["present"] or first >= manifest.capacity.operations:
        return None
    memories = manifest.program_memories.values()
    op = _fields(program[first], {name: width for widths in memories for name, width in widths.items()})
    # The first operation has the first rows of everything, and adds biases.
    bases = Bases(operations=first, weight_rows=op["weights"], shift_rows=op["shift"], bias_rows=op["addend"])
    ops, held = program_words(manifest, bases)
    same = np.array_equal(program[first : first + len(ops)], ops)
    return bases if same and np.array_equal(program[step_row(manifest, number)], held[0]) else None


def held_step(program: WordArray, manifest: Manifest, number: int) -> dict[str, int]:
    """Return the fields of a network's step that the program's rows hold."""
    return _fields(program[step_row(manifest, number)], step_widths(manifest.parameters))


def _fields(row: WordArray, widths: Mapping[str, int]) -> dict[str, int]:
    """Return the fields of a row of the program."""
    found, low = {}, 0
    for name, width in widths.items():
        found[name] = int(unpack_fields(row, width, 1, signed=False, skip=low)[0])
        low += width
    return found
