"""Packs quantised weights into memory words, and unpacks them. See :mod:`rtlstm.spec.program.step`."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rtlstm.spec.activations.interpolated import ActivationTable
from rtlstm.spec.errors import ConfigurationError, ImageError
from rtlstm.spec.fixed import IntArray
from rtlstm.spec.image import WeightImage, WordArray
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.numerics import (
    GUARD_BITS,
    SCALE_UNIT,
    LayerShape,
    Numerics,
    QuantizedDense,
    QuantizedLayer,
    QuantizedNetwork,
    QuantizedRecurrent,
    bound_sums,
    continues_sums,
    row_parts,
    scale_factors,
)
from rtlstm.spec.parameters import Parameters
from rtlstm.spec.program.passes import Kept, input_positions, keep
from rtlstm.spec.program.step import Op, dense_lanes
from rtlstm.spec.registers import Region


def pack_fields(values: ArrayLike, bits: int, signed: bool = True) -> WordArray:
    """Pack integers side by side into words of 32 bits, the first in the least significant bits.

    ``values``, ``(..., n)``, fit in ``bits`` bits, at most 62, in two's complement if they are ``signed``.
    The words are ``(..., ceil(n * bits / 32))``; bits past the last field are 0. Raises ImageError if a value
    does not fit.
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


_GATES = 4


def _interleave(rows: IntArray) -> IntArray:
    """Reorder rows from gate order i, f, g, o to ``4 * unit + gate``."""
    return rows.reshape(_GATES, -1, *rows.shape[1:]).swapaxes(0, 1).reshape(rows.shape)


def _separate(rows: IntArray) -> IntArray:
    """Reorder rows from ``4 * unit + gate`` to gate order."""
    return rows.reshape(-1, _GATES, *rows.shape[1:]).swapaxes(0, 1).reshape(rows.shape)


def _ops(manifest: Manifest, layer: int) -> tuple[Op | None, Op]:
    """Return the layer's recurrent operation, if it has one, and the other one."""
    return manifest.program.recurrent_op(layer), manifest.program.body_op(layer)


def _pack_table(table: ActivationTable) -> WordArray:
    """Return a table's rows, ``(rows, words)``."""
    rows = np.asarray(table.words, dtype=np.int64)
    return to_words(to_bits(rows, table.word_bits))


def pack_tables(numerics: Numerics) -> dict[Region, WordArray]:
    """Return the words of the regions of tables, ``(tables, rows, words)``."""
    memories = numerics.unit.memories
    return {region: _stack([_pack_table(table) for table in tables]) for region, tables in memories.items()}


def _program(manifest: Manifest) -> dict[Region, WordArray]:
    """Return the program memory: an operation in each row, and in the last one the fields of a step."""
    return {
        region: pack_rows(rows, manifest.regions[region].width)[np.newaxis]
        for region, rows in manifest.program_rows.items()
    }


def pack_rows(rows: Sequence[Sequence[tuple[int, int]]], width: int) -> WordArray:
    """Pack rows of values and their widths, the first in the lowest bits, as words of rows of ``width``."""
    bits = np.zeros((len(rows), width), dtype=np.uint8)
    for row, fields in enumerate(rows):
        low = 0
        for value, size in fields:
            assert 0 <= value < 1 << size, "the program memory has room for any program"
            bits[row, low : low + size] = to_bits(np.asarray(value, dtype=np.int64), size)
            low += size
    return to_words(bits)


def _stack(banks: list[WordArray]) -> WordArray:
    """Return banks of different sizes as one array, padded with zeros."""
    shape = tuple(max(sizes) for sizes in zip(*(bank.shape for bank in banks), strict=True))
    whole = np.zeros((len(banks), *shape), dtype=np.uint32)
    for number, bank in enumerate(banks):
        whole[number, : bank.shape[0], : bank.shape[1]] = bank
    return whole


def _lane_order(op: Op, parameters: Parameters) -> NDArray[np.int64]:
    """Return the lane of each row of a group."""
    return np.asarray(range(parameters.lanes) if op.four_rows else dense_lanes(parameters))


def _positions(manifest: Manifest, layer: int) -> list[int]:
    """Return the index of each of a layer's inputs in the vector that it reads."""
    outputs = [shape.outputs for shape in manifest.layers]
    units = manifest.parameters.gate_units
    return input_positions(manifest.passes, outputs, layer, manifest.layers[layer].inputs, units)


def _spaced(matrix: IntArray, positions: list[int]) -> IntArray:
    """Return the columns at their indices, with zeros between them."""
    spaced = np.zeros((len(matrix), positions[-1] + 1), dtype=np.int64)
    spaced[:, positions] = matrix
    return spaced


def _bank_matrix(matrix: IntArray, op: Op, parameters: Parameters) -> IntArray:
    """Convert rows in array order to ``(lanes, groups, columns, macs)``, padded with zeros."""
    lanes, macs = parameters.lanes, parameters.macs
    rows, columns = matrix.shape
    padded = np.zeros((op.groups * lanes, op.columns * macs), dtype=np.int64)
    padded[:rows, :columns] = matrix
    banks = np.empty((lanes, op.groups, op.columns, macs), dtype=np.int64)
    banks[_lane_order(op, parameters)] = padded.reshape(op.groups, lanes, op.columns, macs).swapaxes(0, 1)
    return banks


def _stored_words(op: Op) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return group and column of the words of an operation that are stored, in their order."""
    stored = [(at % op.groups, word) for at, words in enumerate(op.group_words) for word in words]
    groups, columns = np.array(stored, dtype=np.int64).T
    return groups, columns


def _unbank_matrix(banks: IntArray, op: Op, parameters: Parameters, shape: tuple[int, int]) -> IntArray:
    """Inverse of :func:`_bank_matrix`, for a matrix of ``shape``."""
    lanes, macs = parameters.lanes, parameters.macs
    whole = banks[_lane_order(op, parameters)].swapaxes(0, 1).reshape(op.groups * lanes, op.columns * macs)
    return np.ascontiguousarray(whole[: shape[0], : shape[1]])


def _within(name: str, values: IntArray, low: int, high: int, shape: tuple[int, ...]) -> None:
    if values.shape != shape:
        raise ImageError(f"{name} must have shape {shape}, not {values.shape}")
    if values.size and (values.min() < low or values.max() > high):
        raise ImageError(
            f"{name} must be within {low} to {high}, but it ranges from {values.min()} to "
            f"{values.max()}; quantise the network with this build's numerics"
        )


def _check_layer(layer: QuantizedLayer, shape: LayerShape, manifest: Manifest) -> None:
    numerics = manifest.numerics
    if isinstance(layer, QuantizedRecurrent) != shape.recurrent:
        raise ImageError(f"layer {shape.name!r} must be of kind {shape.kind}, not {type(layer).__name__}")
    if isinstance(layer, QuantizedRecurrent):
        matrices = {"w_ih": (layer.w_ih, shape.inputs), "w_hh": (layer.w_hh, layer.w_hh.shape[1])}
        shifts = {"shift_ih": layer.shift_ih, "shift_hh": layer.shift_hh}
    else:
        matrices = {"weight": (layer.weight, shape.inputs)}
        shifts = {"shift": layer.shift}
    weight = 1 << (numerics.weight_bits - 1)
    for name, (values, columns) in matrices.items():
        _within(f"{shape.name}.{name}", values, -weight, weight - 1, (shape.rows, columns))
    total = 1 << (numerics.accumulator.partial_bits - 1)
    _within(f"{shape.name}.bias", layer.bias, -total, total - 1, (shape.rows,))
    for name, values in shifts.items():
        _within(f"{shape.name}.{name}", values, 0, (1 << numerics.shift_bits) - 1, (shape.rows,))
    for part in row_parts(layer):
        _check_scale(f"{part.what} of {shape.name}", part.scale, numerics)


def _check_scale(name: str, scale: IntArray | None, numerics: Numerics) -> None:
    bits = numerics.scale_bits
    alike = (scale is None) == (bits == 0)
    if scale is not None:
        alike &= not ((scale >> (SCALE_UNIT - 1) != 1) | (scale % (1 << (SCALE_UNIT - bits)) != 0)).any()
    if not alike:
        raise ImageError(
            f"the rows of the {name} must have scales of {bits} bits, as this build; quantise the network "
            "with this build's numerics"
        )


def _check_network(network: QuantizedNetwork, manifest: Manifest) -> None:
    if network.shapes != manifest.layers or network.passes != manifest.passes:
        raise ConfigurationError(
            f"the network must have the layers that build {manifest.name!r} was generated for; "
            "generate a build for this network"
        )
    if network.numerics != manifest.numerics:
        differing = [
            name
            for name in type(manifest.numerics).model_fields
            if getattr(network.numerics, name) != getattr(manifest.numerics, name)
        ]
        raise ConfigurationError(
            f"the network must be quantised with the numerics of build {manifest.name!r}, but "
            f"{', '.join(differing)} differ; quantise it again or generate a build for it"
        )
    for layer, shape in zip(network.layers, network.shapes, strict=True):
        _check_layer(layer, shape, manifest)
    _check_sums(network)


def _check_sums(network: QuantizedNetwork) -> None:
    """Refuse weights whose sums could overflow the accumulators and wrap around."""
    numerics = network.numerics
    needed = bound_sums(network.layers, numerics.vector, numerics.accumulator.align, network.shapes)
    if lacking := needed.lacking(numerics.accumulator, network.shapes):
        raise ImageError(
            f"sums must fit in this build's accumulators, but {lacking}; generate a separate build for "
            "this network, or the build again with more `headroom_bits` (of a loadable one the "
            "capacity headroom)"
        )


def check_image(image: WeightImage, manifest: Manifest) -> QuantizedNetwork:
    """Return the network that an image holds, after a check that none of its sums overflows in the build.

    Raises ImageError if the image is of another build, its activation tables or program are not the build's,
    or a sum needs more bits than the build has; the message names the sum.
    """
    network = unpack(image, manifest)
    _check_sums(network)
    return network


def _by_four(values: IntArray, op: Op) -> IntArray:
    """Return values of a layer's rows as ``(rows, 4)``: a unit's four, or an output's one four times."""
    return _interleave(values).reshape(-1, _GATES) if op.four_rows else np.repeat(values[:, None], _GATES, 1)


def _rows(values: IntArray, op: Op) -> IntArray:
    """Return a layer's rows, the inverse of :func:`_by_four`."""
    return _separate(values.reshape(-1)) if op.four_rows else values[:, 0].copy()


def _pack_shifts(
    shifts: IntArray, scales: IntArray, unit_constants: IntArray, numerics: Numerics
) -> WordArray:
    """Pack four shifts, then four scales and the per-unit constants, if any."""
    parts = [(shifts, numerics.shift_bits), (unit_constants, numerics.weight_bits)]
    if bits := numerics.scale_field_bits:
        # Without the highest bit, which is set.
        parts.insert(1, ((scales >> (SCALE_UNIT - 1 - bits)) & (1 << bits) - 1, bits))
    return to_words(
        np.concatenate([to_bits(v, bits).reshape(*v.shape[:-1], -1) for v, bits in parts], axis=-1)
    )


def _unpack_shifts(words: WordArray, numerics: Numerics) -> tuple[IntArray, IntArray | None, IntArray]:
    """Return shifts, scales and per-unit constants, the inverse of :func:`_pack_shifts`."""
    shifts, scales = unpack_fields(words, numerics.shift_bits, _GATES, signed=False), None
    skip = _GATES * numerics.shift_bits
    if bits := numerics.scale_field_bits:
        fields = unpack_fields(words, bits, _GATES, signed=False, skip=skip)
        scales = (fields | 1 << bits) << (SCALE_UNIT - 1 - bits)
        skip += _GATES * bits
    return shifts, scales, unpack_fields(words, numerics.weight_bits, numerics.unit_parameters, skip=skip)


@dataclass(frozen=True)
class _Product:
    """A product of a layer: its weights in the words of the array, and shifts and scales of its rows."""

    op: Op
    vector: str
    """Name of what is multiplied."""
    words: IntArray
    """``(lanes, groups, columns, macs)``."""
    shift: IntArray
    scale: IntArray | None

    @property
    def needed(self) -> NDArray[np.bool_]:
        """The words that are not zero in a whole group, ``(groups, columns)``."""
        return np.asarray(self.words.any(axis=(0, 3)))


def _products(network: QuantizedNetwork, manifest: Manifest, index: int) -> list[_Product]:
    """Return the products of a layer, in the order in which its program adds them."""
    layer = network.layers[index]
    recurrent, drain = _ops(manifest, index)
    positions = _positions(manifest, index)
    if manifest.layers[index].kind == "norm":
        # Its words are multiplied with nothing.
        words = np.zeros(
            (manifest.parameters.lanes, 1, drain.columns, manifest.parameters.macs), dtype=np.int64
        )
        assert isinstance(layer, QuantizedDense)
        return [_Product(drain, "its input", words, layer.shift, layer.scale)]
    if isinstance(layer, QuantizedRecurrent):
        assert recurrent is not None
        parts = [
            (recurrent, "h", layer.w_hh, layer.shift_hh, layer.scale_hh),
            (drain, "its input", _spaced(layer.w_ih, positions), layer.shift_ih, layer.scale_ih),
        ]
    else:
        parts = [(drain, "its input", _spaced(layer.weight, positions), layer.shift, layer.scale)]
    return [
        _Product(
            op,
            vector,
            _bank_matrix(_interleave(matrix) if op.four_rows else matrix, op, manifest.parameters),
            shift,
            scale,
        )
        for op, vector, matrix, shift, scale in parts
    ]


def find_kept(network: QuantizedNetwork, manifest: Manifest) -> Kept:
    """Find the words of weights that are not zero in a whole row group; ``manifest`` skips none.

    Returns only products that skip a word. The result is for :meth:`rtlstm.spec.manifest.Manifest.create`.
    """
    _check_network(network, manifest)
    found = {}
    for index in range(len(network.layers)):
        for product in _products(network, manifest, index):
            op = product.op
            groups = keep(product.needed.tolist())
            if groups != tuple(map(tuple, op.group_words)):
                found[op.layer, op.kind == "recurrent"] = groups
    return found


@dataclass(frozen=True)
class WordMap:
    """Which word of the array each weight of a product is in; a word is one of a group of rows."""

    recurrent: bool
    """Whether it is the product with h."""
    groups: int
    columns: int
    """Words of a group."""
    numbers: IntArray
    """Each weight's ``group * columns + word``, ``(rows, vector)``."""


def map_words(manifest: Manifest, layer: int) -> tuple[WordMap, ...]:
    """Return the words of a layer's weights, for its input and, if it has one, its h."""
    recurrent, drain = _ops(manifest, layer)
    shape, positions = manifest.layers[layer], _positions(manifest, layer)
    found = [_map_words(drain, positions, shape.rows, manifest.parameters, recurrent=False)]
    if recurrent is not None:
        read_back = list(range(manifest.layers[layer + shape.feedback].outputs))
        found.append(_map_words(recurrent, read_back, shape.rows, manifest.parameters, recurrent=True))
    return tuple(found)


def _map_words(op: Op, positions: list[int], rows: int, parameters: Parameters, recurrent: bool) -> WordMap:
    weights = np.arange(1, rows * len(positions) + 1).reshape(rows, -1)
    spaced = _spaced(weights, positions)
    banks = _bank_matrix(_interleave(spaced) if op.four_rows else spaced, op, parameters)
    words = np.arange(op.groups * op.columns).reshape(op.groups, op.columns, 1)
    there = banks > 0
    numbers = np.empty(weights.size, dtype=np.int64)
    numbers[banks[there] - 1] = np.broadcast_to(words, banks.shape)[there]
    return WordMap(recurrent, op.groups, op.columns, numbers.reshape(weights.shape))


def _check_skipped(product: _Product, manifest: Manifest) -> None:
    """Refuse weights that are not zero where the build skips words."""
    lost = product.needed.copy()
    lost[_stored_words(product.op)] = False
    if not lost.any():
        return
    group, word = (int(index) for index in np.argwhere(lost)[0])
    macs, name = manifest.parameters.macs, manifest.layers[product.op.layer].name
    count = int(np.count_nonzero(product.words[:, lost]))
    raise ImageError(
        f"weights must be zero where build {manifest.name!r} skips their words, but {count} of layer "
        f"{name!r} for {product.vector} are not, the first of them of row group {group} and columns "
        f"{word * macs} to {word * macs + macs - 1}; keep these weights at zero when you train, or "
        "generate a build for this network"
    )


def pack(network: QuantizedNetwork, manifest: Manifest) -> WeightImage:
    """Pack a network into the memories of a build.

    Raises ConfigurationError if the network has other layers or numerics than the build. Raises ImageError if
    a value does not fit in its memory, a sum could overflow the accumulators, or a weight is not zero whose
    word the build skips.
    """
    _check_network(network, manifest)
    regions, numerics = manifest.regions, manifest.numerics
    if manifest.spatial is not None:
        # They are constants of the hardware.
        return WeightImage(build_hash=manifest.build_hash, regions={})
    parameters = manifest.parameters
    units = parameters.gate_units
    weights = np.zeros(
        (parameters.lanes, regions[Region.WEIGHTS].image_rows, parameters.macs), dtype=np.int64
    )
    biases = np.zeros((units, regions[Region.PARTIALS].image_rows, _GATES), dtype=np.int64)
    shifts = np.zeros((units, regions[Region.SHIFTS].image_rows, _GATES), dtype=np.int64)
    scales = np.zeros_like(shifts)
    unit_constants = np.zeros((*shifts.shape[:2], numerics.unit_parameters), dtype=np.int64)
    for index, layer in enumerate(network.layers):
        products = _products(network, manifest, index)
        for product in products:
            op = product.op
            _check_skipped(product, manifest)
            stored_groups, columns = _stored_words(op)
            weights[:, op.weights : op.weights + op.words] = product.words[:, stored_groups, columns]
            four_rows = spread(_by_four(product.shift, op), units)
            shifts[:, op.shifts : op.shifts + four_rows.shape[1]] = four_rows
            if product.scale is not None:
                scales[:, op.shifts : op.shifts + four_rows.shape[1]] = spread(
                    _by_four(product.scale, op), units
                )
            if layer.parameters is not None:
                unit_constants[:, op.shifts : op.shifts + four_rows.shape[1]] = spread(
                    layer.parameters, units
                )
        if not continues_sums(manifest.layers, index):
            first = products[0].op.addends
            four_rows = spread(_by_four(layer.bias, products[-1].op), units)
            biases[:, first : first + four_rows.shape[1]] = four_rows
    return WeightImage(
        build_hash=manifest.build_hash,
        regions={
            Region.WEIGHTS: pack_fields(weights, numerics.weight_bits),
            Region.PARTIALS: pack_fields(biases, numerics.accumulator.partial_bits),
            Region.SHIFTS: _pack_shifts(shifts, scales, unit_constants, numerics),
            **pack_tables(numerics),
            **_program(manifest),
            **_pack_tokens(network, manifest),
        },
    )


def _pack_tokens(network: QuantizedNetwork, manifest: Manifest) -> dict[Region, WordArray]:
    """Return the table of tokens, beat after beat of the input buffer; nothing where there is none."""
    parameters, tokens = manifest.parameters, network.tokens
    inputs, rows = manifest.program.inputs, parameters.token_rows
    if (0 if tokens is None else len(tokens)) != rows:
        raise ConfigurationError(
            f"the core looks up {rows} tokens, but the network's table has "
            f"{0 if tokens is None else len(tokens)}; give the model that the build was generated for"
        )
    if tokens is None:
        return {}
    layout = manifest.regions[Region.TOKENS]
    beats = np.zeros((rows, layout.rows // rows * parameters.beat_in), dtype=np.int64)
    beats[:, :inputs] = tokens
    words = beats.reshape(1, layout.rows, parameters.beat_in)
    return {Region.TOKENS: pack_fields(words, manifest.numerics.input.bits)}


def _unpack_tokens(image: WeightImage, manifest: Manifest) -> IntArray | None:
    parameters = manifest.parameters
    if not parameters.token_rows:
        return None
    beats = unpack_fields(image.regions[Region.TOKENS], manifest.numerics.input.bits, parameters.beat_in)
    return beats.reshape(parameters.token_rows, -1)[:, : manifest.program.inputs]


def unpack(image: WeightImage, manifest: Manifest) -> QuantizedNetwork:
    """Return the network that an image holds; the exact inverse of :func:`pack`.

    Raises ImageError if the image is of another build, or its activation tables or program are not the
    build's.
    """
    image.check(manifest)
    numerics, parameters = manifest.numerics, manifest.parameters
    if manifest.spatial is not None:
        return manifest.spatial.network(manifest.layers, numerics)
    for region, table in (pack_tables(numerics) | _program(manifest)).items():
        if not np.array_equal(image.regions[region], table):
            what = "program" if region == Region.PROGRAM else f"{region.name} table"
            raise ImageError(
                f"the image's {what} must be the one of build {manifest.name!r}, but "
                "it differs; load the build's weights.bin"
            )
    weights = unpack_fields(image.regions[Region.WEIGHTS], numerics.weight_bits, parameters.macs)
    partial_bits = numerics.accumulator.partial_bits
    biases = unpack_fields(image.regions[Region.PARTIALS], partial_bits, _GATES)
    shifts, scales, unit_constants = _unpack_shifts(image.regions[Region.SHIFTS], numerics)

    def rows_of(op: Op, fields: IntArray, count: int) -> IntArray:
        return _rows(gather(fields[:, op.shifts :], count), op)

    def scale_of(op: Op, count: int) -> IntArray | None:
        return None if scales is None else rows_of(op, scales, count)

    layers: list[QuantizedLayer] = []
    for index, shape in enumerate(manifest.layers):
        recurrent, drain = _ops(manifest, index)
        count = shape.outputs
        shift, scale = rows_of(drain, shifts, count), scale_of(drain, count)
        positions = _positions(manifest, index)
        if shape.kind == "norm":
            matrix = np.diag(_identity(shift, scale, numerics))
        else:
            matrix = _read_matrix(weights, drain, parameters, (shape.rows, positions[-1] + 1))[:, positions]
        bias = np.zeros(shape.rows, dtype=np.int64)
        if not continues_sums(manifest.layers, index):
            bias = _rows(gather(biases[:, (recurrent or drain).addends :], count), drain)
        has = (shape.has_h or shape.kind == "norm") and numerics.unit_parameters
        constants = gather(unit_constants[:, drain.shifts :], count) if has else None
        if recurrent is None:
            layers.append(QuantizedDense(matrix, bias, shift, scale, constants))
            continue
        read_back = manifest.layers[index + shape.feedback].outputs
        layers.append(
            QuantizedRecurrent(
                w_ih=matrix,
                w_hh=_read_matrix(weights, recurrent, parameters, (shape.rows, read_back)),
                bias=bias,
                shift_ih=shift,
                shift_hh=rows_of(recurrent, shifts, count),
                scale_ih=scale,
                scale_hh=scale_of(recurrent, count),
                parameters=constants,
            )
        )
    return QuantizedNetwork(
        shapes=manifest.layers,
        numerics=numerics,
        layers=tuple(layers),
        passes=manifest.passes,
        tokens=_unpack_tokens(image, manifest),
    )


def _identity(shift: IntArray, scale: IntArray | None, numerics: Numerics) -> IntArray:
    """Return the weights with which rows of these shifts and scales pass values on as they are."""
    codes = np.ldexp(1.0, GUARD_BITS + shift - numerics.accumulator.align)
    factors = scale_factors(scale)
    return np.rint(codes if factors is None else codes / factors).astype(np.int64)


def _read_matrix(weights: IntArray, op: Op, parameters: Parameters, shape: tuple[int, int]) -> IntArray:
    groups, columns = _stored_words(op)
    banks = np.zeros((parameters.lanes, op.groups, op.columns, parameters.macs), dtype=np.int64)
    banks[:, groups, columns] = weights[:, op.weights : op.weights + op.words]
    matrix = _unbank_matrix(banks, op, parameters, shape)
    return _separate(matrix) if op.four_rows else matrix
