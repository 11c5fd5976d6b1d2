"""Sizes of a spatial build's parts, from its manifest alone, in units of about one LUT or one flip-flop.

Most LUTs are adders of constant products, which :mod:`rtlstm.hdl.spatial.layers` makes of the same graphs.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from rtlstm.fpga.core_parts import adder_tiles, even, multiplier_luts, node_carries
from rtlstm.fpga.families.estimates import Estimates
from rtlstm.spec import inventory
from rtlstm.spec.activations.interpolated import ActivationTable
from rtlstm.spec.adders import share_adders
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.numerics import SKIPS, leads_to
from rtlstm.spec.packing import to_bits
from rtlstm.spec.program.spatial import ConstantLayer, Integers, Matrix, RowSums, input_sum_bits

_LEAF = 16
"""Rows of a table in a LUT; multiplexers of the LUTs cost nothing."""


class CoreParts(NamedTuple):
    """Sizes of a core's parts, by name."""

    luts: Mapping[str, float]
    ffs: Mapping[str, float]
    tiles: Mapping[str, float]
    """Tiles of carry chains."""


@dataclass(frozen=True)
class _Products:
    """The adders of a matrix in space."""

    adders: tuple[int, ...]
    """Bits of those that rows share."""
    behind: tuple[int, ...] = ()
    """Bits of those that add addends behind them."""


def spatial_parts(manifest: Manifest, family: Estimates, multipliers: bool = True) -> CoreParts:
    """Return the sizes of a spatial build's parts; ``multipliers`` says whether it uses DSP blocks."""
    assert manifest.spatial is not None, "only a spatial build has such parts"
    plan, numerics, parameters = manifest.spatial, manifest.numerics, manifest.parameters
    schedule, shapes = manifest.spatial_schedule, manifest.layers
    products = list(_products(manifest))
    adders = [bits for each in products for bits in each.adders]
    behind = [bits for each in products for bits in each.behind]
    cells = [
        (shape.outputs, node)
        for shape in shapes
        if shape.kind not in SKIPS
        for node in numerics.cells[shape.cell].nodes
    ]
    kept = sum(
        shape.outputs * (shape.output.bits + (shape.state.bits if shape.state else 0))
        for shape in shapes
        if shape.has_h
    )
    mapped = [(each.count, family.map_memory(each)) for each in inventory.memories(manifest).values()]
    inputs = manifest.program.inputs * numerics.input.bits
    outputs = manifest.program.outputs * numerics.output_bits
    partial = numerics.accumulator.partial_bits
    chains = [
        (count, node.format.bits) for count, node in cells if node_carries(node) and node.kind != "table"
    ]
    several = parameters.streams > 1
    registers = sum(stages.registers for stages in schedule.stages)
    luts: dict[str, float] = {
        "adders": sum(map(even, adders)),
        "row sums": sum(map(even, behind)),
        "tables": sum(
            each.memory.count * table_luts(each.table)
            for each in inventory.constant_tables(manifest)
            if each.memory.style != "block"
        ),
        "products": sum(
            some.count * multiplier_luts(some.a_bits, some.b_bits, 1, family)
            for some in inventory.multipliers(manifest).values()
            if not family.is_hard(some, multipliers)
        ),
        "cells": sum(count * node_carries(node) for count, node in cells),
        "LUTRAM": sum(count * family.lutram_luts * each.lutrams for count, each in mapped),
        "states": kept,
        "ports": inputs + outputs,
    }
    later = sum(
        shape.rows * partial * ("products" in plan.registered)
        + shape.rows * numerics.preactivation.bits * ("sums" in plan.registered)
        + shape.rows * numerics.gate.bits * ("gates" in plan.registered)
        + shape.outputs * numerics.cell_argument.bits * max(0, len(plan.registered) - 1)
        for shape in shapes
        if shape.kind not in SKIPS
    )
    ffs: dict[str, float] = {
        "states": kept * (1 + several),
        "sums": sum(shape.rows * partial for shape in shapes if shape.kind not in SKIPS and shape.recurrent),
        "ports": inputs,
        "stages": later,
        "results": sum(shape.outputs * shape.output.bits for shape in shapes if not shape.has_h),
        "memories": sum(count * (each.output_bits + each.flip_flop_bits) for count, each in mapped),
        "events": registers * (1 + parameters.stream_bits),
        "core": 1,
    }
    tiles: dict[str, float] = {
        "adders": sum(map(adder_tiles, adders)),
        "row sums": sum(map(adder_tiles, behind)),
        "cells": sum(count * adder_tiles(bits) for count, bits in chains),
        "core": 1,
    }
    return CoreParts(luts, ffs, tiles)


def _products(manifest: Manifest) -> Iterator[_Products]:
    """Yield the products of all matrices, as layers in space add them."""
    assert manifest.spatial is not None
    numerics, plan = manifest.numerics, manifest.spatial
    align, partial = numerics.accumulator.align, numerics.accumulator.partial_bits
    read = list[ConstantLayer]()
    """The skips of the next layer, and then that layer."""
    row_sums = manifest.spatial_schedule.row_sums
    for index, (layer, shape) in enumerate(zip(plan.layers, manifest.layers, strict=True)):
        form = numerics.input if not index else manifest.layers[index - shape.before].output
        moves = tuple(align - drop for drop in layer.shift)
        addends = (partial,) * shape.rows
        sums = row_sums(leads_to(manifest.layers, index), len(read))
        yield _product(layer.weight, moves, (form.bits,) * shape.inputs, addends, partial, sums)
        read.append(layer)
        if shape.kind in SKIPS:
            continue
        if shape.recurrent and layer.recurrent_weight:
            addends = input_sum_bits(read, numerics)
            moves = tuple(align - drop for drop in layer.recurrent_shift)
            h = manifest.layers[index + shape.feedback].output
            values = (h.bits,) * len(layer.recurrent_weight[0])
            sums = row_sums(index, -1)
            yield _product(layer.recurrent_weight, moves, values, addends, partial, sums)
        read.clear()


def _product(
    matrix: Matrix,
    moves: Integers,
    inputs: Integers,
    addends: Integers,
    partial: int,
    sums: RowSums,
) -> _Products:
    graph = share_adders(np.array(matrix, dtype=np.int64), moves if sums.joined else None, sums.groups)
    widths: Sequence[int] = (*inputs, *addends)[: graph.inputs]
    most, found, bits = partial - min(0, *moves), list[int](), list(widths)
    for number, adder in enumerate(graph.adders, graph.inputs):
        bits.append(min(most, graph.bits(number, widths)))
        # Low bits that only one term has need no adder. Of differences, they are counted.
        shift = 0 if adder.second.negative else adder.first.shift or adder.second.shift
        found.append(max(0, bits[-1] - shift))
    return _Products(tuple(found), () if sums.joined else tuple([partial] * len(moves)))


@lru_cache(maxsize=64)
def table_luts(table: ActivationTable) -> int:
    """Return the LUTs of a direct table made of logic: those of 16 rows, where equal halves are one."""
    words = np.asarray(table.words, dtype=np.int64)
    words = np.pad(words, (0, -len(words) % _LEAF))
    bits = to_bits(words, table.word_bits).reshape(-1, table.word_bits)

    def leaves(rows: np.ndarray) -> int:
        if rows.min() == rows.max():
            return 0
        if len(rows) <= _LEAF:
            return 1
        half = 1 << (len(rows) - 1).bit_length() - 1
        low, high = rows[:half], rows[half:]
        return leaves(low) + (0 if np.array_equal(low, high) else leaves(high))

    return sum(leaves(bits[:, bit]) for bit in range(table.word_bits))
