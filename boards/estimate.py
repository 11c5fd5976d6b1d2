"""What a core will take of a device and how fast it will be there, before any synthesis.

Multipliers and block RAM are exact (:mod:`rtlstm.boards.blocks`). Tables are a sum over the parts of
the core, each a count of bits that follows from the manifest's widths, times what synthesis makes of
such a bit; the clock is what the family's pipeline reaches at a speed grade, less what a full device
costs. The factors of both are measured and stand here, in one place.
"""

from collections.abc import Mapping

from rtlstm.boards.blocks import count_blocks, map_memory, memory_parts, multiplications
from rtlstm.boards.devices import DEVICES, Chosen, Device, find_device
from rtlstm.boards.resources import Sizes, resource_uses
from rtlstm.spec.errors import ConfigurationError
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.record import Record

__all__ = [
    "ESTIMATED",
    "FF_FACTORS",
    "LUT_FACTORS",
    "MARGIN",
    "ClockModel",
    "Estimate",
    "check_estimate",
    "clock_model",
    "estimate",
    "estimate_devices",
    "ff_parts",
    "lut_parts",
    "multiplier_tables",
]

ESTIMATED = ("ecp5", "ice40")
"""Families whose parts are known well enough to be estimated."""

MARGIN = 0.15
"""How far tables and flip-flops of an estimate may be off, as a share; ``bench/estimates.py`` measures it."""
_UNSURE = ("lookup tables", "flip-flops")

LUT_FACTORS: Mapping[str, Mapping[str, float]] = {
    "ecp5": {
        "table RAM": 1.41,
        "registers": 0.7,
        "banks": 0.949,
        "read back": 4.4,
        "collect": 0.826,
        "shift": 0.801,
        "round": 2.11,
        "gates": 3.29,
        "slopes": 0.765,
        "vector": 0.894,
        "window": 5.2,
        "rows": 5.37,
        "core": 261,
    },
    "ice40": {
        "table RAM": 1,
        "registers": 1.08,
        "banks": 0.69,
        "read back": 4.85,
        "collect": 0.931,
        "shift": 1.48,
        "round": 1.74,
        "gates": 2,
        "slopes": 0.592,
        "vector": 3.65,
        "window": 3.8,
        "rows": 5.14,
        "core": 192,
    },
}
"""Tables for each unit of :func:`lut_parts`; those left out count one to one. Least squares over the
builds of ``rtlstm bench --estimates``, which fits them again; Yosys 0.70."""


FF_FACTORS: Mapping[str, Mapping[str, float]] = {
    "ecp5": {
        "sums": 1,
        "products": 1.3,
        "banks": 1.17,
        "passed": 0.984,
        "vector": 0.829,
        "collected": 1.17,
        "memories": 0.864,
        "pre-activations": 1.16,
        "gates": 3.93,
        "window": 3.3,
        "items": 0.779,
        "core": 502,
    },
    "ice40": {
        "sums": 1.2,
        "products": 1.11,
        "banks": 1.07,
        "passed": 1.05,
        "vector": 1.01,
        "collected": 1.04,
        "memories": 1.25,
        "pre-activations": 1.11,
        "gates": 3.43,
        "window": 3.3,
        "items": 0.749,
        "core": 445,
    },
}
"""Flip-flops for each unit of :func:`ff_parts`, fitted in the same way."""

LONE_FLIP_FLOPS: Mapping[str, float] = {"ice40": 0.62}
"""Share of the flip-flops that no table feeds alone, so that each takes a logic cell to itself, where
those have one table and one flip-flop: nextpnr's packing of the up5k, and cells that only carry."""


class ClockModel(Record):
    """Clock in MHz per speed grade of a family's pipeline, in a device that is hardly filled."""

    base_mhz: Mapping[str, float]
    """Per speed grade."""
    filled: float
    """Share of the clock that is lost in a device whose logic cells are all taken."""
    narrow_bits: int
    """Widest sum of a lane that costs nothing."""
    wide_bit: float
    """Share of the clock that each further bit of it costs."""
    logic_slopes: float
    """Share of it that slope multipliers of tables cost, which have one stage, where the device has
    multiplier blocks."""

    def mhz(self, grade: str, fill: float, sum_bits: int, logic_slopes: bool = False) -> float:
        """Clock of a core at a speed grade; ``fill`` is the share of the logic cells it takes."""
        base = self.base_mhz.get(grade, min(self.base_mhz.values()))
        wide = max(0, sum_bits - self.narrow_bits) * self.wide_bit
        lost = self.filled * min(1.0, fill) + self.logic_slopes * logic_slopes
        return base * (1 - lost) / (1 + wide)


CLOCKS: Mapping[str, ClockModel] = {
    "ecp5": ClockModel(
        base_mhz={"6": 162, "7": 181, "8": 200}, filled=0.2, narrow_bits=24, wide_bit=0.01, logic_slopes=0.2
    ),
    "up5k": ClockModel(base_mhz={"": 52}, filled=0.25, narrow_bits=24, wide_bit=0.01, logic_slopes=0.2),
    "hx8k": ClockModel(base_mhz={"": 86}, filled=0.25, narrow_bits=24, wide_bit=0.01, logic_slopes=0.2),
}
"""By family or, where one family has devices of different speed, by device.

Clocks in MHz that the bases stand for. ECP5: stac_a, 40 x 4, 8 bits, on the 85F 194 (grade 8, aiming at
230, median of three seeds); the other grades in proportion to what an earlier state of the hardware
reached in grades 6 and 8. With 4 gate units and 156 multipliers an LFE5U-85F reached 130, far from the
estimate. up5k: traffic20 and toptag, 4 x 1, 8 bits, 40.6 and 40.0 with 91 % of the cells taken. hx8k: an
earlier state, traffic20, 4 x 1, 6 bits, 73.2 with 65 %. The losses are assumptions.
"""


def clock_model(device: Device) -> ClockModel:
    """What is known of the clock on a device of an estimated family."""
    return CLOCKS.get(device.name) or CLOCKS[device.architecture]


def _even(bits: int) -> int:
    """Adders take whole cells of two bits."""
    return bits + bits % 2


def _tree_bits(products: int, bits: int, family: str) -> int:
    """Tables of the adders that sum ``products`` values of ``bits`` bits."""
    total = 0
    while products > 1:
        bits += 1
        total += products // 2 * (_even(bits) if family == "ecp5" else bits)
        products = (products + 1) // 2
    return total


def _sum_tables(bits: int, family: str) -> int:
    """Tables of one ``rtlstm_sum``."""
    return 2 * (bits // 2 + 1) if family == "ecp5" else bits


def _row_tables(x: int, y: int, family: str) -> int:
    """Tables of ``rtlstm_rows``. On iCE40 a partial product takes a table beside the adder's."""
    products = 1 if family == "ecp5" else x * y
    return (y - 1) * _sum_tables(x + 1, family) + products


def _tree_tables(x: int, y: int, top: bool, family: str) -> int:
    """Tables of ``rtlstm_tree``."""
    if y == 1:
        return x
    if y <= 3:
        return _row_tables(x, y, family)
    low = 12 if y > 12 else 6 if y > 6 else 3
    high = y - low
    bits = x + high
    tables = _tree_tables(x, low, False, family)
    if high == 1 and top:
        return tables + _sum_tables(bits, family) + (0 if family == "ecp5" else x)
    tables += _tree_tables(x, high, top, family)
    return tables + (_sum_tables(bits, family) if bits % 2 else _sum_tables(bits - 1, family) + 1)


def multiplier_tables(a: int, b: int, stages: int, family: str) -> int:
    """Tables of one multiplier made of logic."""
    x, y = max(a, b), min(a, b)
    return _row_tables(x, y, family) if stages == 1 else _tree_tables(x, y, True, family)


def _hard_tables(a: int, b: int, family: str) -> int:
    """Tables beside a multiplier block, for operands that are wider than it."""
    if family == "ecp5":
        wide = max(a, b) > 18
        return a + b if wide else 0
    if max(a, b) > 20:
        return 2 * a * b
    low_a, low_b = max(0, a - 16), max(0, b - 16)
    return low_a * (b + 2) * 2 + low_b * (a + 2) * 2


def lut_parts(manifest: Manifest, family: str, multipliers: bool = True) -> dict[str, float]:
    """Sizes of a core's parts, in units of about one table, whatever the family makes of them."""
    parameters, numerics = manifest.parameters, manifest.numerics
    units, lanes, blocks, macs = parameters.gate_units, parameters.lanes, parameters.blocks, parameters.macs
    accumulator, partial = numerics.accumulator.bits, numerics.accumulator.partial_bits
    word = macs * numerics.weight_bits
    total = accumulator if family == "ice40" else _even(accumulator)
    tree = _tree_bits(macs, numerics.weight_bits + numerics.data_bits, family)
    shared = manifest.has_single_rows + manifest.has_single_tanh
    return {
        "lanes": lanes * (tree + total),
        "multipliers": sum(
            some.count
            * (
                # Beside a shared block, a pair of 4 x 8 takes 20 tables.
                (some.a_bits + some.b_bits / 2 + 2 if some.paired else 0)
                + _hard_tables(some.a_bits, some.b_bits, family)
                if some.kind == "dsp" and multipliers
                else multiplier_tables(some.a_bits, some.b_bits, some.stages, family)
            )
            for some in multiplications(manifest)
        ),
        **_memory_units(manifest, family),
        "read back": word * (blocks if parameters.gate_units == 1 else lanes / 4),
        "collect": units * accumulator * blocks * (4 + 2 * shared),
        "shift": units * 4 * partial * numerics.shift_bits,
        "round": units * 4 * (3 * _even(partial) + 3 * numerics.preactivation.bits),
        "gates": units * _gate_tables(manifest),
        "slopes": units * sum(table.base_bits * count for _, table, count in numerics.table_uses)
        if parameters.tables == "interpolated"
        else 0,
        "vector": macs * numerics.data_bits,
        "window": 32 * max(layout.words for layout in manifest.regions.values()),
        "rows": sum(_row_bits(manifest)),
        "core": 1,
    }


def _gate_tables(manifest: Manifest) -> float:
    """Tables of a gate unit's sums and roundings."""
    numerics = manifest.numerics
    if numerics.cells:
        carries = {"add": 1, "subtract": 1, "narrow": 3, "clamp": 3, "table": 1, "pieces": 4}
        return sum(
            carries.get(node.kind, 0) * node.format.bits for cell in numerics.cells for node in cell.nodes
        )
    fraction = numerics.cell_sum_fraction
    cell_sum = max(
        numerics.cell.bits + numerics.gate.bits + fraction - numerics.gate.fraction - numerics.cell.fraction,
        fraction + 2,
    )
    return 3 * cell_sum + numerics.cell.bits + numerics.cell_argument.bits + numerics.data_bits


def _gate_registers(manifest: Manifest) -> float:
    """Registers of a gate unit."""
    numerics, parameters = manifest.numerics, manifest.parameters
    if not numerics.cells:
        return (numerics.gate.bits + numerics.cell.bits) * (parameters.activation + 1)
    count = 0
    for cell in numerics.cells:
        stages = cell.stages(parameters)
        for place, node in enumerate(cell.nodes):
            used = [stages[user] for user, other in enumerate(cell.nodes) if place in other.args]
            # A register, and as many more as its last user is late.
            count += node.format.bits * max(1, max(used, default=0) - stages[place])
    return count


def ff_parts(manifest: Manifest, family: str, multipliers: bool = True) -> dict[str, float]:
    """Registers of a core's parts, in units of about one flip-flop."""
    parameters, numerics = manifest.parameters, manifest.numerics
    units, lanes, blocks, macs = parameters.gate_units, parameters.lanes, parameters.blocks, parameters.macs
    word, values = macs * numerics.weight_bits, macs * numerics.data_bits
    pipeline = parameters.pipeline
    tree = _tree_bits(macs, numerics.weight_bits + numerics.data_bits, "ice40") / pipeline.tree_levels
    collected = blocks if parameters.collect > 1 else 1
    mapped = [(part.count, map_memory(part, family)) for part in memory_parts(manifest)]
    banks = lanes * (1 + max(0, pipeline.operand - 3))
    last = max(op.results for op in manifest.program.ops)
    return {
        "sums": lanes * (tree + 2 * numerics.accumulator.bits),
        "products": sum(
            some.count
            * (some.stages if some.kind == "lut" or not multipliers else int(some.paired))
            * (some.a_bits + some.b_bits)
            for some in multiplications(manifest)
        ),
        "banks": banks * word,
        "passed": blocks * (2 * word + values),
        "vector": values * pipeline.operand,
        "collected": units * 4 * collected * numerics.accumulator.bits,
        "memories": sum(count * (each.output_bits + each.flip_flop_bits) for count, each in mapped),
        "pre-activations": units * 4 * pipeline.narrow * numerics.accumulator.partial_bits,
        "gates": units * _gate_registers(manifest),
        "window": 32 * max(layout.words for layout in manifest.regions.values()),
        "items": sum(_row_bits(manifest)) * (last - parameters.summed),
        "core": 1,
    }


def _row_bits(manifest: Manifest) -> list[int]:
    """Address widths of the memories behind the window."""
    return [max(1, (max(2, layout.rows) - 1).bit_length()) for layout in manifest.regions.values()]


def _memory_units(manifest: Manifest, family: str) -> dict[str, float]:
    """Tables that memories take, and bits of the multiplexers between their banks."""
    found = {"table RAM": 0.0, "registers": 0.0, "banks": 0.0}
    for part in memory_parts(manifest):
        mapped = map_memory(part, family)
        found["table RAM"] += part.count * 6 * mapped.table_rams
        found["registers"] += part.count * mapped.flip_flop_bits
        found["banks"] += part.count * (mapped.banks - 1) * part.width
    return found


class Estimate(Sizes):
    """What a core is expected to take of a device, and to reach there."""

    device: str
    """With its speed grade, as ``rtlstm implement`` takes it."""
    multipliers: int
    block_rams: int
    cells: int
    """Logic cells: places of a table and a flip-flop."""
    cell_share: float
    """Of the device's, in percent."""
    fits: bool
    """Whether the device has all of it."""
    fmax_mhz: float
    step_latency_us: float
    """Cycles of a step, which are exact, at that clock."""


def estimate(manifest: Manifest, chosen: Chosen, multipliers: bool = True) -> Estimate | None:
    """Estimate a core on a device; None if the core or the device is of a family without estimates.

    ``multipliers`` says whether the device's multiplier blocks are used.
    """
    device = chosen.device
    family = device.architecture
    # What synthesis makes of the portable primitives is not known well enough.
    if family not in ESTIMATED or manifest.parameters.family != family:
        return None
    hard = multipliers and device.multipliers > 0
    luts = _total(LUT_FACTORS[family], lut_parts(manifest, family, hard))
    ffs = _total(FF_FACTORS[family], ff_parts(manifest, family, hard))
    lone = LONE_FLIP_FLOPS.get(family)
    cells = max(luts, ffs) if lone is None else luts + round(lone * ffs)
    blocks = count_blocks(manifest, family, hard)
    logic_slopes = hard and manifest.parameters.slope_multipliers == "lut"
    clock = clock_model(device).mhz(
        chosen.grade, cells / device.luts, manifest.numerics.accumulator.bits, logic_slopes
    )
    if chosen.block_ram_mhz is not None and blocks.block_rams:
        clock = min(clock, chosen.block_ram_mhz)
    large = 0 if device.large_ram is None else device.large_ram.count
    fits = cells <= device.luts and blocks.multipliers <= device.multipliers
    return Estimate(
        device=chosen.label,
        luts=luts,
        ffs=ffs,
        cells=cells,
        cell_share=round(100 * cells / device.luts, 1),
        fits=fits and blocks.block_rams <= device.block_rams and blocks.large_rams <= large,
        multipliers=blocks.multipliers,
        block_rams=blocks.block_rams,
        large_rams=blocks.large_rams,
        fmax_mhz=round(clock, 1),
        step_latency_us=round(manifest.cycles.step_latency_cycles / clock, 4),
    )


def _total(factors: Mapping[str, float], parts: Mapping[str, float]) -> int:
    return round(sum(factors.get(name, 1.0) * size for name, size in parts.items()))


def estimate_devices(manifest: Manifest) -> tuple[Estimate, ...]:
    """Estimate a core on every device of its family, in its slowest grade; none without estimates."""
    chosen = [find_device(name) for name, device in DEVICES.items() if device.architecture in ESTIMATED]
    found = (estimate(manifest, each) for each in chosen)
    return tuple(each for each in found if each is not None)


def check_estimate(name: str, found: Estimate, device: Device) -> None:
    """Refuse a core of which an estimate says that it cannot fit, and only such a one.

    Raises
    ------
    ConfigurationError
        If multipliers or block RAM, which are exact, are too few, or if tables or flip-flops are by more
        than :data:`MARGIN`; the message names all of it.
    """
    lacking = [
        f"{used:,} {what} (it has {there:,})"
        for what, used, there in resource_uses(found, device)
        if used * (1 - MARGIN if what in _UNSURE else 1) > there
    ]
    if lacking:
        raise ConfigurationError(
            f"{name} does not fit {device.name}: by its estimate it takes {', '.join(lacking)}; generate it "
            "with fewer lanes or macs, or choose a larger device"
        )
