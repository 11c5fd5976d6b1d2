"""Sizes of a core's parts, from its manifest alone, in units of about one LUT or one flip-flop.

Each size is a number of bits, computed from the manifest's widths. The factors are in
:mod:`rtlstm.fpga.estimate`.

Multipliers made of LUTs are built by ``hdl/primitives/rows.v`` from rows and trees of adders. The functions
here follow the modules there, ``x`` the wider factor and ``y`` the narrower one.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np

from rtlstm.fpga.families.estimates import Estimates
from rtlstm.fpga.netlist.ecp5 import chain_tiles
from rtlstm.spec import inventory
from rtlstm.spec.activations.interpolated import ActivationTable
from rtlstm.spec.cells.graph import CellGraph, Node
from rtlstm.spec.cells.unit import FusedUnit
from rtlstm.spec.inventory import MultiplierSpec, lane_kinds
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.norms import COARSE, digits, square_in_parts
from rtlstm.spec.packing import to_bits
from rtlstm.spec.parameters import Parameters, ceil_log2
from rtlstm.spec.registers import Region

_TABLE_PART = 32
"""Rows of a constant table that a few LUTs hold."""


def even(bits: int) -> int:
    """Return the bits of an adder, whose carry cells have two bits each."""
    return bits + bits % 2


def _levels(parameters: Parameters, bits: int) -> Iterator[tuple[list[int], int]]:
    """Yield, for each level of a lane's tree, the terms of its adders, and the bits of their sums.

    The products have ``bits`` bits.
    """
    for adders in parameters.adders:
        bits += ceil_log2(max(adders))
        yield adders, bits


def _adder_luts(terms: int, bits: int, family: Estimates) -> int:
    """Return the LUTs of an adder: a term more than two takes a sum and a carry for each bit."""
    return ((even(bits) if family.pair_adders else bits) + 2 * bits * (terms - 2)) if terms > 1 else 0


def _accumulated(parameters: Parameters) -> int:
    """Return the terms of a lane's accumulator: its total, and what the tree leaves."""
    return 1 + (len(parameters.adders[-1]) if parameters.adders else parameters.macs)


_CARRIES = {"add": 1, "subtract": 1, "narrow": 3, "clamp": 3, "table": 1, "pieces": 4}
"""Number of adders and comparisons, of the result's width, of each kind of node."""


def node_carries(node: Node) -> int:
    """Return the bits of the adders and comparisons of an operation of a cell."""
    return _CARRIES.get(node.kind, 0) * node.format.bits


@dataclass(frozen=True)
class GateSizes:
    """Numbers of bits, computed from the formats."""

    carries: int
    """Bits of all sums, roundings and comparisons."""
    chains: tuple[int, ...]
    """Width of each carry chain."""
    registers: int
    """Bits of pipeline registers."""


def gate_sizes(manifest: Manifest) -> GateSizes:
    """Return the sizes of one of a core's gate units."""
    if isinstance(manifest.numerics.unit, FusedUnit):
        return _fused(manifest)
    cells = [pipeline.graph for pipeline in manifest.numerics.unit.pipelines]
    nodes = [node for cell in cells for node in cell.nodes]
    return GateSizes(
        carries=sum(map(node_carries, nodes)),
        chains=tuple(node.format.bits for node in nodes if node.kind in _CARRIES and node.kind != "table"),
        registers=sum(_cell_registers(cell, manifest.parameters) for cell in cells),
    )


def _fused(manifest: Manifest) -> GateSizes:
    numerics = manifest.numerics
    fraction = numerics.cell_sum_fraction
    cell = numerics.cell.bits + numerics.cell_shifts[-1]
    product = cell + numerics.gate.bits - numerics.gate.fraction - numerics.cell.fraction
    # f c + i g before rounding.
    total = max(product + fraction, fraction + 2)
    shifted = total if numerics.cell_shifts[-1] else 0
    # Odd codes take no adder, and dense results have one of their own.
    hidden = numerics.result_bits if numerics.hidden_rounding == "half_up" or manifest.has_single_rows else 0
    return GateSizes(
        # The sum, its rounding and the rounding of h. The argument of tanh takes no adder.
        carries=2 * total + numerics.cell.bits + hidden,
        chains=(total,) * 2,
        registers=(numerics.gate.bits + cell) * (manifest.parameters.activation + 1) + shifted,
    )


def _cell_registers(cell: CellGraph, parameters: Parameters) -> int:
    """Return the bits of a cell's registers: a node has them for each stage, and until the last use."""
    count, stages = 0, cell.stages(parameters)
    begins = [
        max((stages[arg] for arg in node.args), default=stages[position])
        for position, node in enumerate(cell.nodes)
    ]
    for position, node in enumerate(cell.nodes):
        used = [begins[user] for user, other in enumerate(cell.nodes) if position in other.args]
        waits = max(0, max(used, default=0) - stages[position])
        count += node.format.bits * (stages[position] - begins[position] + waits)
    return count


def _tree_depth(y: int, part: int) -> int:
    """Return how many levels of adders, up to 2, an ``rtlstm_tree`` of parts of ``part`` bits has."""
    return 2 if y > 2 * part else 1 if y > part else 0


def _part(y: int, stages: int) -> int:
    """Return the most bits of ``y`` in a part of a tree."""
    return 3 if stages - 1 > _tree_depth(y, 3) else 2


def _split(y: int, part: int) -> tuple[int, int]:
    """Return the bits of ``y`` in the two halves of an ``rtlstm_tree``, the lower first."""
    low = part * (4 if y > 4 * part else 2 if y > 2 * part else 1)
    return low, y - low


def _sum_luts(bits: int, family: Estimates) -> int:
    return 2 * (bits // 2 + 1) if family.pair_adders else bits


def _row_luts(x: int, y: int, family: Estimates) -> int:
    """Return the LUTs of ``rtlstm_rows``. A partial product may take a LUT in addition to the adder's."""
    products = 1 + family.row_luts * x if family.adders_multiply else x * y
    return (y - 1) * _sum_luts(x + 1, family) + products


def _tree_luts(x: int, y: int, part: int, top: bool, family: Estimates) -> int:
    if y == 1:
        return x
    if y <= part:
        return _row_luts(x, y, family)
    low, high = _split(y, part)
    bits = x + high
    luts = _tree_luts(x, low, part, False, family)
    if high == 1 and top:
        return luts + _sum_luts(bits, family) + (0 if family.adders_multiply else x)
    luts += _tree_luts(x, high, part, top, family)
    return luts + (_sum_luts(bits, family) if bits % 2 else _sum_luts(bits - 1, family) + 1)


def multiplier_luts(a: int, b: int, stages: int, family: Estimates) -> int:
    """Return the LUTs of one multiplier of factors of these bits."""
    x, y = max(a, b), min(a, b)
    if stages == 1 and not family.fast_multipliers:
        return _row_luts(x, y, family)
    return _tree_luts(x, y, _part(y, stages), True, family)


def _product_registers(x: int, y: int, part: int, registers: int, top: bool = True) -> tuple[int, int]:
    """Return the bits in the registers of ``rtlstm_tree``: its own, and those that only delay ``x``."""
    if y <= part:
        return registers * (x + y), 0
    low, high = _split(y, part)
    inner = 1 if registers == 2 and y <= 2 * part else registers
    exclusive, delayed = _product_registers(x, low, part, inner, False)
    if high == 1 and top:
        exclusive, delayed = exclusive + inner, delayed + inner * x
    else:
        upper, more = _product_registers(x, high, part, inner, top)
        exclusive, delayed = exclusive + upper, delayed + more
    return exclusive + (registers - inner) * (x + y), delayed


def multiplier_registers(a: int, b: int, stages: int) -> tuple[int, int]:
    """Return the bits in the registers of one multiplier: its own, and those that only delay ``b``."""
    x, y = max(a, b), min(a, b)
    part = _part(y, stages)
    inside = min(stages - 1, _tree_depth(y, part))
    exclusive, delayed = _product_registers(x, y, part, inside)
    waits = stages - 1 - inside
    if b < a:
        # The delayed factor is a.
        exclusive, delayed = exclusive + delayed, 0
    return exclusive + waits * a + a + b, delayed + waits * b


def _sum_tiles(bits: int) -> int:
    """Return the tiles of the carry chain of one ``rtlstm_sum`` on ECP5."""
    return chain_tiles(bits // 2 + 1)


def _tree_tiles(x: int, y: int, part: int, top: bool = True) -> int:
    if y <= part:
        return (y - 1) * _sum_tiles(x + 1)
    low, high = _split(y, part)
    bits = x + high
    tiles = _tree_tiles(x, low, part, False)
    if high == 1 and top:
        return tiles + _sum_tiles(bits)
    return tiles + _tree_tiles(x, high, part, top) + _sum_tiles(bits if bits % 2 else bits - 1)


def multiplier_tiles(a: int, b: int, stages: int) -> int:
    """Return the tiles of the chains of one multiplier on ECP5."""
    x, y = max(a, b), min(a, b)
    return _tree_tiles(x, y, _part(y, stages))


def lut_parts(manifest: Manifest, family: Estimates, multipliers: bool = True) -> dict[str, float]:
    """Return the sizes of a core's parts in units of about one LUT, for any family."""
    parameters, numerics = manifest.parameters, manifest.numerics
    units, lanes, blocks, macs = parameters.gate_units, parameters.lanes, parameters.blocks, parameters.macs
    accumulator, partial = numerics.accumulator.bits, numerics.accumulator.partial_bits
    total = _adder_luts(_accumulated(parameters), accumulator, family)
    # A kept sum is 0 for most words, and joins the total before its adder.
    total += accumulator * (parameters.lane_sums is not None)
    levels = _levels(parameters, numerics.weight_bits + numerics.data_bits)
    tree = sum(_adder_luts(terms, bits, family) for adders, bits in levels for terms in adders)
    chained = _chained_sums(manifest, family, multipliers)
    sums = chained * _adder_luts(2, numerics.weight_bits + numerics.data_bits + 1, family)
    shared = manifest.has_single_rows + ("tanh" in manifest.single_functions)
    return {
        "lanes": lanes * (tree + total) - sums + _delayed_words(manifest, family)[0],
        "multipliers": sum(
            some.count
            * (
                # In a shared DSP block, a weight may be corrected by the other's sign before its product.
                ((some.a_bits + 1) * family.shared_luts if some.shared else 0)
                + family.hard_luts(some.a_bits, some.b_bits)
                if family.is_hard(some, multipliers)
                else multiplier_luts(some.a_bits, some.b_bits, some.stages, family)
            )
            for some in inventory.multipliers(manifest).values()
        ),
        **_memory_units(manifest, family),
        "read back": parameters.units + units * 4 * numerics.weight_bits,
        "collect": units * accumulator * blocks * (4 + 2 * shared),
        "shift": units * 4 * (numerics.scaled_bits if numerics.scale_bits else partial) * numerics.shift_bits,
        "round": units * (4 * even(partial) + 2 * _limited_bits(manifest)),
        **_unit_parts(manifest, gate_sizes(manifest).carries),
        "slopes": units * sum(table.base_bits * count for _, table, count in numerics.unit.table_uses)
        if parameters.tables == "interpolated"
        else 0,
        # Also what keeps the words of a beat that fills several.
        "vector": (macs + _kept_results(manifest)) * numerics.data_bits,
        "window": 32 * max(layout.words for layout in manifest.regions.values()),
        "rows": sum(_row_bits(manifest)),
        **_decision(manifest, "luts"),
        **_norms(manifest, "luts"),
        "core": 1,
    }


def _decision(manifest: Manifest, of: Literal["luts", "registers", "tiles"]) -> dict[str, int]:
    """Return the size of what decides which output is the largest; nothing where nothing decides."""
    parameters, bits = manifest.parameters, manifest.numerics.output_bits
    if not manifest.decides:
        return {}
    numbers = ceil_log2(manifest.classes) if parameters.capacity is None else bits - 1
    if best := parameters.best:
        # Each stage compares all of a beat and what it keeps; results carry their numbers.
        units, key, levels = parameters.gate_units, bits + numbers, ceil_log2(parameters.gate_units)
        compared, given = best * units, parameters.best_beats * units * bits
        passed = units * (1 + levels) + (units - 1) + 1
        sizes = {
            "luts": compared * (2 * even(key) + key) + given,
            "registers": key * (best * passed + best * (best - 1) // 2 * (levels + 1)) + given,
            "tiles": compared * adder_tiles(key),
        }
        return {"decision": sizes[of]}
    if parameters.decide == "softmax":
        return {"decision": _softmax(manifest)[of]}
    left, compared, kept = parameters.gate_units, 1, parameters.gate_units * (bits + 1)
    while left > 1:
        compared, left = compared + left // 2, -(-left // 2)
        kept += left * (bits + 1 + ceil_log2(parameters.gate_units))
    delay = manifest.decision_cycles
    sizes = {
        # A comparison, whose one side is inverted, and a choice for each pair; the last one's choice is the
        # registers' enable.
        "luts": 2 * compared * even(bits) + (compared - 1) * bits + 6 * numbers,
        "registers": kept + bits + (delay + 1) * numbers + delay * (parameters.stream_bits + 2),
        "tiles": compared * adder_tiles(bits),
    }
    return {"decision": sizes[of]}


def _softmax(manifest: Manifest) -> dict[str, int]:
    """Return the sizes of what makes probabilities of outputs, without its products and memories."""
    softmax, units = manifest.softmax, manifest.parameters.gate_units
    stages, levels = manifest.parameters.softmax_stages, ceil_log2(units)
    power, bits, shifts_by = softmax.power_bits + 1, softmax.bits, ceil_log2(softmax.classes) + 1
    # In each unit a comparison, a difference, two roundings and a sum; then what the reciprocal is made of.
    adders = [*[bits, bits, 2 * power, power + levels, power + bits] * units, softmax.sum_bits]
    adders.append(softmax.mantissa_bits + softmax.seed_bits)
    entries = units * (len(softmax.high) + len(softmax.low)) * power
    entries += len(softmax.seeds) * (softmax.seed_bits + 1)
    shifts = shifts_by * (softmax.mantissa_bits + softmax.refined_bits) // 2
    in_unit = 2 * bits + levels * (bits + power) + bits + 3 * power + bits
    beside = softmax.sum_bits * 2 + softmax.mantissa_bits * 2 + (2 + stages) * softmax.seed_bits
    beside += 4 * softmax.refined_bits + (5 + 2 * stages) * (manifest.parameters.stream_bits + 1)
    return {
        # A LUT has 16 bits of a table, and others choose among these.
        "luts": sum(even(each) for each in adders) + entries // 12 + shifts + units * (bits + power),
        "registers": units * in_unit + beside,
        "tiles": sum(adder_tiles(each) for each in adders),
    }


def _norms(manifest: Manifest, of: Literal["luts", "registers", "tiles"]) -> dict[str, int]:
    """Return the size of the statistics of norms, and of what each gate unit makes of them; nothing without.

    The products are among the multipliers.
    """
    norms, units = manifest.numerics.unit.norms, manifest.parameters.gate_units
    if norms is None:
        return {}
    mine = norms.normalisations
    most, root = max(mine, key=lambda norm: norm.spread_bits), norms.root
    spread, groups = most.spread_bits, most.spread_bits // COARSE
    sums = most.sum_bits + most.square_bits
    product, kept = norms.factor_bits + root.output.bits, norms.shifted_bits + COARSE // 2 - 1
    chains = [most.sum_bits, most.square_bits, *[spread] * (1 + square_in_parts(mine)), root.base_bits]
    chains += [norm.square_bits for norm in mine for _ in digits(norm.values)[1:]]
    chains += units * [norm.deviation_bits for norm in mine for _ in digits(norm.values)]
    chains += units * [product, product - norms.drop]
    moved = spread * (groups // 2 + 2) + units * (kept * groups // 2 + 2 * norms.shifted_bits)
    sizes = {
        "luts": sum(map(even, chains)) + moved,
        "registers": sums + 2 * spread + most.sum_bits + units * (most.deviation_bits + 3 * kept + product),
        "tiles": sum(map(adder_tiles, chains)),
    }
    return {"norms": sizes[of]}


def _limited_bits(manifest: Manifest) -> int:
    """Return the bits of a unit's four limited sums; the first may have more, for a wide linear output."""
    return 3 * manifest.numerics.preactivation.bits + manifest.sum_bits


def _unit_parts(manifest: Manifest, bits: int) -> dict[str, int]:
    """Return the arithmetic of all gate units; that of LSTMs takes another number of cells per bit."""
    all_bits, fused = manifest.parameters.gate_units * bits, isinstance(manifest.numerics.unit, FusedUnit)
    return {"gates": all_bits if fused else 0, "other gates": 0 if fused else all_bits}


def _chained_sums(manifest: Manifest, family: Estimates, multipliers: bool) -> int:
    """Return the adders of the lanes' trees, with their registers, that are in DSP blocks."""
    numerics = manifest.numerics
    bits = numerics.weight_bits, numerics.data_bits
    if not multipliers or not family.adds_products(*bits, manifest.paired_lanes):
        return 0
    return sum(len(kind.lanes) * len(kind.sums_in_dsp) for kind in lane_kinds(manifest))


def _delayed_words(manifest: Manifest, family: Estimates) -> tuple[int, int]:
    """Return the LUTs that delay the lanes' words of weights, and the bits of the registers of their memories
    that these replace; 0 and 0 where the registers are flip-flops."""
    weights = inventory.memories(manifest)["weights"]
    bits = family.map_memory(weights).output_bits
    behind = max(0, manifest.parameters.pipeline.operand - 3)
    if family.delay_stages is None or not bits or bits // weights.width + behind < family.delay_stages:
        return 0, 0
    return weights.count * weights.width, weights.count * bits


def _tree_registers(parameters: Parameters, bits: int) -> int:
    """Return the bits of registers in the tree that sums products of ``bits`` bits; a value without a partner
    is registered, too."""
    levels = list(_levels(parameters, bits))
    return sum(
        len(adders) * wide
        for level, (adders, wide) in enumerate(levels, 1)
        if level % parameters.pipeline.tree_levels == 0 or level == len(levels)
    )


def _kept_sum(manifest: Manifest) -> int:
    """Return the registers of a lane that keeps sums: of the one that is added, and the one that is written;
    those of rows are shared."""
    return 0 if manifest.parameters.lane_sums is None else 2 * manifest.numerics.accumulator.bits


def ff_parts(manifest: Manifest, family: Estimates, multipliers: bool = True) -> dict[str, float]:
    """Return the registers of a core's parts in units of about one flip-flop."""
    parameters, numerics = manifest.parameters, manifest.numerics
    units, lanes, blocks, macs = parameters.gate_units, parameters.lanes, parameters.blocks, parameters.macs
    word, values = macs * numerics.weight_bits, macs * numerics.data_bits
    pipeline = parameters.pipeline
    tree = _tree_registers(parameters, numerics.weight_bits + numerics.data_bits)
    chained = _chained_sums(manifest, family, multipliers)
    collected = blocks if parameters.collect > 1 else 1
    mapped = [(each.count, family.map_memory(each)) for each in inventory.memories(manifest).values()]
    behind = max(0, pipeline.operand - 3)
    _, delayed = _delayed_words(manifest, family)
    cells = manifest.regions.get(Region.CELLS)
    last = max(op.results for op in manifest.program.ops)
    return {
        "sums": lanes * (tree + 2 * numerics.accumulator.bits + _kept_sum(manifest))
        - chained * (numerics.weight_bits + numerics.data_bits + 1),
        "products": sum(
            _registers(some, blocks, family, family.is_hard(some, multipliers))
            for some in inventory.multipliers(manifest).values()
        ),
        "banks": 0 if delayed else lanes * behind * word,
        "passed": blocks * (word + values),
        "read back": word + 2 * blocks + macs + units * (1 + numerics.weight_bits * min(pipeline.window, 1)),
        # With a register behind the memory, what results filled is kept for a cycle longer.
        "vector": values * (pipeline.operand + 2 * behind) + _kept_results(manifest) * numerics.data_bits,
        "collected": units * 4 * collected * numerics.accumulator.bits,
        # States pass a register before their memory.
        "memories": sum(count * (each.output_bits + each.flip_flop_bits) for count, each in mapped)
        - delayed
        + _table_registers(manifest)
        + units * (numerics.cell.bits + _address_bits(cells.rows) if cells else 0),
        # The sum and the pre-activation; before, what is shifted beside what is added to it.
        "pre-activations": units
        * (4 * (2 * pipeline.narrow - 3) * numerics.accumulator.partial_bits + _limited_bits(manifest)),
        **_unit_parts(manifest, gate_sizes(manifest).registers),
        "copies": _copied_bits(manifest) if parameters.register_copies else 0,
        "window": 32 * max(layout.words for layout in manifest.regions.values()),
        "items": sum(_row_bits(manifest)) * (last - parameters.summed),
        **_decision(manifest, "registers"),
        **_norms(manifest, "registers"),
        "core": 1,
    }


def _table_registers(manifest: Manifest) -> int:
    """Return the bits of the registers of constant tables: of their words, and perhaps of their rows."""
    found = 0
    for activation in inventory.constant_tables(manifest):
        memory, table = activation.memory, activation.table
        word = table.base_bits if table.direct else table.word_bits
        row = _address_bits(memory.depth) if memory.output_register else 0
        found += memory.count * (word + row)
    return found


def _copied_bits(manifest: Manifest) -> int:
    """Return the bits of the copies of registers, for each four lanes and for each gate unit.

    Lanes see the address of their words, the vector, and two events; units the rows that they read, the same
    rows of the next beat, and a dozen flags with a bit of ``mask`` for each unit.
    """
    parameters, numerics = manifest.parameters, manifest.numerics
    regions = manifest.regions
    address = _address_bits(regions[Region.WEIGHTS].rows)
    seen = (Region.SHIFTS, Region.PARTIALS, Region.CELLS)
    rows = sum(_address_bits(regions[region].rows) for region in seen if region in regions)
    units = parameters.gate_units
    return parameters.lane_copies * (parameters.lanes // 4) * (
        address + parameters.macs * numerics.data_bits + 2
    ) + parameters.unit_copies * units * (2 * rows + 12 + units)


def _all_registers(some: MultiplierSpec, blocks: int) -> float:
    """Return the bits of registers in multipliers made of LUTs.

    The lanes of a block multiply the same value of the vector: synthesis keeps one copy of its registers.
    """
    exclusive, shared = multiplier_registers(some.a_bits, some.b_bits, some.stages)
    copies = min(some.sets, blocks) if some.blocks is None else some.blocks
    return some.count * exclusive + copies * some.each * shared


def _registers(some: MultiplierSpec, blocks: int, family: Estimates, hard: bool) -> float:
    """Return the bits of a core's multipliers' registers that are flip-flops."""
    if not hard:
        return _all_registers(some, blocks)
    if not family.registers_outside:
        return 0
    # As portable.v has them: of the factors if there are two stages or more, and of the product.
    factors, products = min(1, some.stages - 1), max(1, some.stages - 1)
    copies = min(some.sets, blocks) if some.blocks is None else some.blocks
    exclusive = factors * some.a_bits + products * (some.a_bits + some.b_bits)
    return some.count * exclusive + copies * some.each * factors * some.b_bits


def _kept_results(manifest: Manifest) -> int:
    """Return the results that are kept until they are stored, a word per cycle."""
    return manifest.parameters.gate_units - manifest.parameters.values_stored


def _row_bits(manifest: Manifest) -> list[int]:
    """Return the address widths of the memories behind the window."""
    return [_address_bits(layout.rows) for layout in manifest.regions.values()]


def _address_bits(rows: int) -> int:
    return ceil_log2(max(2, rows))


def _memory_units(manifest: Manifest, family: Estimates) -> dict[str, float]:
    """Return the LUTs of memories, and the bits of the multiplexers between their banks."""
    found = {"LUTRAM": 0.0, "registers": 0.0, "banks": 0.0, "tables": 0.0}
    for memory in inventory.memories(manifest).values():
        mapped = family.map_memory(memory)
        found["LUTRAM"] += memory.count * family.lutram_luts * mapped.lutrams
        found["registers"] += memory.count * mapped.flip_flop_bits
        found["banks"] += memory.count * (mapped.banks - 1) * memory.width
    for activation in inventory.constant_tables(manifest):
        found["tables"] += activation.memory.count * _varied_parts(activation.table)
    return found


@lru_cache(maxsize=64)
def _varied_parts(table: ActivationTable) -> int:
    """Return how many of the parts of 32 rows of each of a table's bits are not all 0 or all 1."""
    words = np.asarray(table.words, dtype=np.int64)
    words = np.pad(words, (0, -len(words) % _TABLE_PART))
    parts = to_bits(words, table.word_bits).reshape(-1, _TABLE_PART, table.word_bits)
    return int(np.count_nonzero(parts.min(axis=1) != parts.max(axis=1)))


def adder_tiles(bits: int) -> int:
    """Return the tiles of an adder's carry chain on ECP5; nextpnr adds a cell in front of it."""
    return chain_tiles(-(-bits // 2) + 1)


def chain_parts(manifest: Manifest, multipliers: bool = True) -> dict[str, int]:
    """Return the tiles of the carry chains of a core's parts; see :mod:`rtlstm.fpga.netlist.ecp5`."""
    parameters, numerics = manifest.parameters, manifest.numerics
    levels = _levels(parameters, numerics.weight_bits + numerics.data_bits)
    tree = sum(adder_tiles(bits) for adders, bits in levels for terms in adders if terms > 1)
    found = 0
    for some in inventory.multipliers(manifest).values():
        if some.kind != "dsp" or not multipliers:
            found += some.count * multiplier_tiles(some.a_bits, some.b_bits, some.stages)
    return {
        "lanes": parameters.lanes * (tree + adder_tiles(numerics.accumulator.bits)),
        "multipliers": found,
        "gate units": parameters.gate_units * _gate_tiles(manifest),
        **_decision(manifest, "tiles"),
        **_norms(manifest, "tiles"),
        "core": 1,
    }


def _gate_tiles(manifest: Manifest) -> int:
    """Return the tiles of the chains of a gate unit and of its pre-activations."""
    numerics = manifest.numerics
    # For each gate the sum with stored partial sums, which is rounded down.
    tiles = 4 * adder_tiles(numerics.accumulator.partial_bits)
    if manifest.parameters.tables == "interpolated":
        tiles += sum(
            count * (adder_tiles(table.base_bits) + 1) for _, table, count in numerics.unit.table_uses
        )
    return tiles + sum(map(adder_tiles, gate_sizes(manifest).chains))
