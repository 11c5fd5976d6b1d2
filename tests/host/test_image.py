"""The file that holds a weight image."""

import struct
import zlib

import numpy as np
import pytest

from rtlstm.host import WeightImage, pack
from rtlstm.spec.errors import ImageError


@pytest.fixture
def data(small):
    return pack(small.network, small.manifest).to_bytes()


def seal(body):
    return bytes(body) + struct.pack("<I", zlib.crc32(body))


def test_round_trip(small, data):
    image = WeightImage.from_bytes(data, small.manifest)
    assert image == pack(small.network, small.manifest) and image.to_bytes() == data


def test_same_network_same_bytes(make_build, data):
    again = make_build()
    assert pack(again.network, again.manifest).to_bytes() == data


def test_every_flipped_bit_is_found(small, data):
    bits = [*range(8 * 160), *range(8 * 160, 8 * len(data), 37), *range(8 * len(data) - 64, 8 * len(data))]
    for bit in bits:
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(ImageError):
            WeightImage.from_bytes(bytes(damaged), small.manifest)


def changed(data, at, by):
    body = bytearray(data)
    body[at] ^= by
    return bytes(body)


REFUSED = {
    "damaged": (lambda data: changed(data, len(data) // 2, 1), "damaged: its CRC-32 must be"),
    "too long": (lambda data: data + b"\0", "too long"),
    "another kind": (
        lambda _: b"PK\3\4" + bytes(999),
        "must begin with b'RTLSTMWI', but this begins with b'PK",
    ),
    "version": (
        lambda data: seal(changed(data[:-4], 8, 3)),
        "format version 2, but this rtlstm reads version 1",
    ),
}
REFUSED |= {
    f"cut at {length}": (lambda data, length=length: data[:length], "cut off")
    for length in (0, 1, 7, 8, 30, 60, 100, -4, -1)
}


@pytest.mark.parametrize(("change", "message"), REFUSED.values(), ids=REFUSED)
def test_other_files_are_refused(small, data, change, message):
    with pytest.raises(ImageError, match=message):
        WeightImage.from_bytes(change(data), small.manifest)


def test_other_build(small, make_build, data):
    other = make_build(macs=5).manifest
    with pytest.raises(ImageError, match="must belong to build"):
        WeightImage.from_bytes(data, other)


def test_table_that_makes_no_sense(small, data):
    for offset, value in [(56, 99), (60, 1 << 30), (52, 1 << 30), (52, 2), (52, 0)]:
        body = bytearray(data[:-4])
        struct.pack_into("<I", body, offset, value)
        with pytest.raises(ImageError):
            WeightImage.from_bytes(seal(body), small.manifest)


def test_file_is_named_in_errors(small, tmp_path):
    path = tmp_path / "weights.bin"
    with pytest.raises(ImageError, match=r"weights\.bin.* cannot be read"):
        WeightImage.load(path, small.manifest)
    path.write_bytes(b"RTL")
    with pytest.raises(ImageError, match=r"weights\.bin: .*cut off"):
        WeightImage.load(path, small.manifest)


def test_regions_of_another_size(small):
    image = pack(small.network, small.manifest)
    regions = {region: np.zeros((1, 1, 1), np.uint32) for region in image.regions}
    with pytest.raises(ImageError, match=r"must hold \(banks, rows, words\)"):
        WeightImage(image.build_hash, regions).check(small.manifest)
