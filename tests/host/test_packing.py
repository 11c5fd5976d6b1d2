"""Weights to memory words and back, and the file that holds their image."""

import dataclasses
import struct
import time
import zlib

import numpy as np
import pytest

from rtlstm.host import WeightImage, pack, unpack
from rtlstm.spec.errors import ConfigurationError, ImageError
from rtlstm.spec.packing import pack_fields, pack_vector, unpack_fields, unpack_vector
from rtlstm.spec.registers import Region


def assert_same(left, right):
    assert left.shapes == right.shapes and left.numerics == right.numerics
    for one, other in zip(left.layers, right.layers, strict=True):
        assert type(one) is type(other)
        for field in dataclasses.fields(one):
            np.testing.assert_array_equal(getattr(one, field.name), getattr(other, field.name))


@pytest.mark.parametrize("signed", [True, False])
@pytest.mark.parametrize("bits", [1, 2, 3, 7, 8, 9, 17, 18, 31, 32, 33, 41, 50, 62])
@pytest.mark.parametrize("count", [1, 2, 4, 7])
def test_fields_round_trip(bits, count, signed):
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    values = np.random.default_rng(bits).integers(low, high, (3, 5, count), endpoint=True)
    values[0, 0], values[0, 1] = low, high
    words = pack_fields(values, bits, signed)
    assert words.shape == (3, 5, -(-count * bits // 32)) and words.dtype == np.uint32
    np.testing.assert_array_equal(unpack_fields(words, bits, count, signed), values)
    for first in range(1, count + 1):
        later = unpack_fields(words, bits, count - first, signed, skip=first * bits)
        np.testing.assert_array_equal(later, values[..., first:])
    # Against the definition: element j in bits [j * bits +: bits] of one big integer.
    for row, packed in zip(values.reshape(-1, count), words.reshape(-1, words.shape[-1]), strict=True):
        number = sum((int(value) & (1 << bits) - 1) << index * bits for index, value in enumerate(row))
        assert sum(int(word) << 32 * index for index, word in enumerate(packed)) == number


@pytest.mark.parametrize("value", [-129, 128])
def test_fields_too_large(value):
    with pytest.raises(ImageError, match="within -128 to 127"):
        pack_fields([0, value], 8)


@pytest.mark.parametrize(("count", "macs"), [(1, 1), (1, 7), (5, 3), (6, 3), (13, 4)])
def test_vector_round_trip(count, macs):
    values = np.random.default_rng(0).integers(-128, 128, (2, count))
    words = pack_vector(values, macs, 8)
    assert words.shape[1] == -(-count // macs)
    np.testing.assert_array_equal(unpack_vector(words, macs, 8, count), values)


@pytest.mark.parametrize("lanes", [4, 8, 12])
@pytest.mark.parametrize("macs", [1, 3, 7])
@pytest.mark.parametrize(
    ("inputs", "hidden", "dense"), [(1, (1,), ()), (13, (7, 5), (1,)), (2, (3,), (11, 2)), (8, (8, 8, 8), ())]
)
def test_round_trip(make_build, lanes, macs, inputs, hidden, dense):
    build = make_build(inputs, hidden, dense, lanes=lanes, macs=macs)
    assert_same(unpack(pack(build.network, build.manifest), build.manifest), build.network)


@pytest.mark.parametrize("weight_bits", range(2, 19))
def test_round_trip_of_every_weight_width(make_build, weight_bits):
    build = make_build(7, (5,), (3,), weight_bits=weight_bits, macs=5)
    assert_same(unpack(pack(build.network, build.manifest), build.manifest), build.network)


def test_every_word_is_where_the_program_says(make_build):
    build = make_build(5, (3, 4), (6,), lanes=8, macs=2)
    manifest, bits = build.manifest, build.network.numerics.weight_bits
    image = pack(build.network, manifest)
    weights = unpack_fields(image.regions[Region.WEIGHTS], bits, 2)
    partial_bits = build.network.numerics.accumulator.partial_bits
    biases = unpack_fields(image.regions[Region.PARTIALS], partial_bits, 4)[0]
    shifts = unpack_fields(image.regions[Region.SHIFTS], 5, 4, signed=False)[0]
    for op in manifest.program.ops:
        layer, shape = build.network.layers[op.layer], manifest.layers[op.layer]
        if op.kind == "dense":
            matrix, shift = layer.weight, layer.shift
        else:
            own = op.kind == "recurrent"
            matrix, shift = (layer.w_hh, layer.shift_hh) if own else (layer.w_ih, layer.shift_ih)
        for row in range(shape.rows):
            unit, gate = divmod(row, 4)
            source = row if op.kind == "dense" else gate * shape.outputs + unit
            lane, first = row % 8, op.weights + row // 8 * op.columns
            for column, weight in enumerate(matrix[source]):
                assert weights[lane, first + column // 2, column % 2] == weight
            item, field = (row, slice(None)) if op.kind == "dense" else (unit, gate)
            assert (shifts[op.shifts + item, field] == shift[source]).all()
            if op.kind != "input":
                assert (biases[op.addends + item, field] == layer.bias[source]).all()


def test_activation_tables(small):
    numerics, image = small.network.numerics, pack(small.network, small.manifest)
    for region, table in [
        (Region.SIGMOID, numerics.unit.sigmoid),
        (Region.TANH, numerics.unit.tanh),
        (Region.CELL_TANH, numerics.unit.cell_tanh),
    ]:
        for row, words in enumerate(image.regions[region][0]):
            number = sum(int(word) << 32 * index for index, word in enumerate(words))
            assert number & (1 << table.base_bits) - 1 == table.base[row]
            slope = number >> table.base_bits
            assert slope < 1 << table.slope_bits
            assert slope - (slope >> table.slope_bits - 1 << table.slope_bits) == table.slope[row]


def test_values_that_do_not_fit(small):
    lstm, *rest = small.network.layers
    wide = lstm.w_ih.copy()
    wide[0, 0] = 128
    for layer, words in [
        (dataclasses.replace(lstm, w_ih=wide), "layer0.w_ih must be within -128 to 127"),
        (dataclasses.replace(lstm, shift_hh=lstm.shift_hh - 100), "layer0.shift_hh must be within 0"),
        (dataclasses.replace(lstm, bias=lstm.bias + (1 << 40)), "layer0.bias must be within"),
        (dataclasses.replace(lstm, bias=lstm.bias[:-1]), "layer0.bias must have shape"),
    ]:
        network = dataclasses.replace(small.network, layers=(layer, *rest))
        with pytest.raises(ImageError, match=words):
            pack(network, small.manifest)


def test_sums_that_could_overflow(small):
    lstm, *rest = small.network.layers
    with_output = dataclasses.replace(lstm, shift_ih=lstm.shift_ih * 0)
    network = dataclasses.replace(small.network, layers=(with_output, *rest))
    with pytest.raises(ImageError, match="sums must fit in this build's accumulators"):
        pack(network, small.manifest)


def test_network_of_another_build(small, make_build):
    with pytest.raises(ConfigurationError, match="must have the layers"):
        pack(make_build(inputs=6).network, small.manifest)
    with pytest.raises(ConfigurationError, match="weight_bits"):
        pack(make_build(weight_bits=9).network, small.manifest)


def test_a_million_weights_take_a_second(make_build):
    build = make_build(256, (360,), (), lanes=32, macs=32)
    begin = time.process_time()
    image = pack(build.network, build.manifest)
    assert time.process_time() - begin < 3.0
    assert_same(unpack(image, build.manifest), build.network)


# The file


@pytest.fixture
def data(small):
    return pack(small.network, small.manifest).to_bytes()


def seal(body):
    return bytes(body) + struct.pack("<I", zlib.crc32(body))


def test_round_trip_of_a_file(small, data):
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
