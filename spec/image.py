"""The weight image: the contents of a build's memories as 32-bit words, and the format of its file.

A file is little-endian throughout: magic, format version, total length, the build's hash, a
table of segments, the words of each segment in bank, row, word order, and a CRC-32 over all of
it. Length and CRC have the same position in every version, so that a damaged file is never taken for
another version.
"""

import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from rtlstm.spec.errors import ImageError
from rtlstm.spec.files import as_path, read_file
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.registers import Region

WordArray = NDArray[np.uint32]

MAGIC = b"RTLSTMWI"
IMAGE_VERSION = 1

_HEADER = struct.Struct("<8sIQ32sI")
"""Magic, version, bytes of the whole file, build hash, number of segments."""
_SEGMENT = struct.Struct("<4I")
"""Region, banks, rows, words per row."""
_CRC = struct.Struct("<I")

_REMEDY = "generate the build again, or copy its weights.bin once more"


def image_shapes(manifest: Manifest) -> dict[Region, tuple[int, int, int]]:
    """Return (banks, image rows, words per row) of every region that the image fills."""
    return {
        region: (layout.banks, layout.image_rows, layout.words)
        for region, layout in manifest.regions.items()
        if layout.image_rows
    }


@dataclass(frozen=True, eq=False)
class WeightImage:
    """The contents of a build's memories before the first step.

    ``regions`` maps a region to its words, uint32 of shape ``(banks, image_rows, words)``, the
    least significant word first; ``build_hash`` is the manifest's.
    """

    build_hash: str
    regions: Mapping[Region, WordArray]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, WeightImage):
            return NotImplemented
        return (
            self.build_hash == other.build_hash
            and self.regions.keys() == other.regions.keys()
            and all(np.array_equal(words, other.regions[key]) for key, words in self.regions.items())
        )

    def check(self, manifest: Manifest) -> None:
        """Check that the image belongs to ``manifest``'s build.

        Raises
        ------
        ImageError
            If the build's hash or the size of a region differs.
        """
        if self.build_hash != manifest.build_hash:
            raise ImageError(
                f"the weight image must belong to build {manifest.build_hash[:16]} "
                f"({manifest.name}), but it belongs to build {self.build_hash[:16]}; use the "
                "weights.bin beside this manifest.json"
            )
        expected = image_shapes(manifest)
        found = {region: words.shape for region, words in self.regions.items()}
        if found != expected:
            raise ImageError(
                f"the weight image must hold (banks, rows, words) {_describe(expected)}, "
                f"not {_describe(found)}; {_REMEDY}"
            )

    def to_bytes(self) -> bytes:
        """Return the bytes of ``weights.bin``."""
        table = b"".join(_SEGMENT.pack(region, *words.shape) for region, words in self.regions.items())
        payload = b"".join(
            np.ascontiguousarray(words, dtype="<u4").tobytes() for words in self.regions.values()
        )
        length = _HEADER.size + len(table) + len(payload) + _CRC.size
        build = bytes.fromhex(self.build_hash)
        header = _HEADER.pack(MAGIC, IMAGE_VERSION, length, build, len(self.regions))
        body = header + table + payload
        return body + _CRC.pack(zlib.crc32(body))

    @classmethod
    def from_bytes(cls, data: bytes, manifest: Manifest) -> Self:
        """Read an image and check it against ``manifest``.

        Raises
        ------
        ImageError
            If it is not an image, is incomplete or damaged, or is of another version or build.
        """
        count, build = _check_envelope(data)
        end = len(data) - _CRC.size
        position = _HEADER.size + count * _SEGMENT.size
        if position > end:
            raise ImageError(f"the weight image's table does not fit in its {len(data)} bytes; {_REMEDY}")
        regions: dict[Region, WordArray] = {}
        for index in range(count):
            number, *shape = _SEGMENT.unpack_from(data, _HEADER.size + index * _SEGMENT.size)
            banks, rows, words = shape
            size = 4 * banks * rows * words
            if number not in set(Region) or position + size > end:
                raise ImageError(f"segment {index} of the weight image is invalid; {_REMEDY}")
            flat = np.frombuffer(data, dtype="<u4", count=banks * rows * words, offset=position)
            regions[Region(number)] = flat.astype(np.uint32).reshape(banks, rows, words)
            position += size
        if position != end:
            raise ImageError(f"the weight image has {end - position} bytes too many; {_REMEDY}")
        image = cls(build_hash=build.hex(), regions=regions)
        image.check(manifest)
        return image

    @classmethod
    def load(cls, path: str | Path, manifest: Manifest) -> Self:
        """Read ``weights.bin``. Raises ImageError as :meth:`from_bytes`, or if it cannot be read."""
        path = as_path("the weight image", path)
        try:
            data = read_file(path)
        except OSError as error:
            raise ImageError(
                f"the weight image {path} cannot be read ({error.strerror}); {_REMEDY}"
            ) from None
        try:
            return cls.from_bytes(data, manifest)
        except ImageError as error:
            raise ImageError(f"{path}: {error}") from None


def _describe(shapes: Mapping[Region, tuple[int, ...]]) -> str:
    return ", ".join(f"{region.name} {tuple(shape)}" for region, shape in shapes.items()) or "nothing"


def _check_envelope(data: bytes) -> tuple[int, bytes]:
    """Make the checks that do not need the manifest; return the segment count and the build hash."""
    if data[: len(MAGIC)] != MAGIC[: len(data)]:
        raise ImageError(
            f"a weight image must begin with {MAGIC!r}, but this begins with "
            f"{bytes(data[: len(MAGIC)])!r}; it is damaged or another kind of file"
        )
    if len(data) < _HEADER.size + _CRC.size:
        raise ImageError(f"the weight image is cut off after {len(data)} bytes; {_REMEDY}")
    _, version, length, build, count = _HEADER.unpack_from(data)
    if len(data) != length:
        what = "cut off" if len(data) < length else "too long"
        raise ImageError(
            f"the weight image must have {length} bytes, but it has {len(data)} ({what} or "
            f"damaged); {_REMEDY}"
        )
    stored = _CRC.unpack_from(data, len(data) - _CRC.size)[0]
    found = zlib.crc32(memoryview(data)[: -_CRC.size])
    if stored != found:
        raise ImageError(
            f"the weight image is damaged: its CRC-32 must be {stored:08x}, but it is {found:08x}; {_REMEDY}"
        )
    if version != IMAGE_VERSION:
        raise ImageError(
            f"the weight image has format version {version}, but this rtlstm reads version "
            f"{IMAGE_VERSION}; generate the build again"
        )
    return count, build
