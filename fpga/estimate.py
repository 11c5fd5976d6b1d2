"""Estimates a core's utilisation, Fmax and energy on a device, before synthesis.

Multipliers and block RAM are exact. LUTs, flip-flops and carry chains are
sums of the sizes of a core's parts (:mod:`rtlstm.fpga.core_parts`), each multiplied by a factor. Fmax is that
of the family's pipeline at a speed grade on a die, less a loss on a full device. The factors are measured,
and belong to the family. :mod:`rtlstm.fpga.resources` says how full a device may be.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import ceil
from typing import NamedTuple

from rtlstm.fpga.core_parts import chain_parts, ff_parts, lut_parts
from rtlstm.fpga.devices import devices, find_device
from rtlstm.fpga.families.base import FpgaFamily, fpga_family
from rtlstm.fpga.families.device import Chosen, FpgaDevice, PowerFigures
from rtlstm.fpga.families.estimates import Estimates, EthernetSizes
from rtlstm.fpga.resources import (
    BLOCK_RAMS,
    Resources,
    count_text,
    design_name,
    fill_limits,
    fit_advice,
    large_name,
    percent,
    resource_uses,
    whole,
    without_blocks,
)
from rtlstm.fpga.spatial_parts import CoreParts, spatial_parts
from rtlstm.spec import inventory
from rtlstm.spec.errors import ConfigurationError
from rtlstm.spec.family import FAMILIES
from rtlstm.spec.inventory import (
    MultiplierSpec,
    constant_tables,
    lane_kinds,
    link_limits,
    link_memories,
    multipliers,
)
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.record import Record

MARGIN = 0.15
"""Largest relative error of estimated LUTs and flip-flops; ``bench/estimates.py`` measures it."""
BOARD_SHARE = 0.85
"""Share of a core's estimated Fmax that is expected of a board's bitstream: the rest is a margin for the link
beside the core, for the PLL, whose clocks are up to 2 % apart, and for the estimate."""
_UNSURE = ("LUTs", "flip-flops")


class BoardTop(Record):
    """A board whose top, with its link, stands around the core: what an estimate needs to know of it."""

    name: str
    most_mhz: float | None = None
    """The highest clock of its PLL, which limits the expected clock; None for the clock of the core alone."""
    ethernet: bool = False
    """Whether it has Ethernet, for whose link a design leaves room."""


class Estimate(Resources):
    """Estimated utilisation and Fmax of a core, or of a core in a board's top."""

    device: str
    """The device with its speed grade, as ``rtlstm implement`` takes it."""
    board: str = ""
    """The board whose top, with its link, is included; empty for the core alone."""
    cores: int = 1
    """Cores side by side, which take these resources together."""
    loop_registers: int | None = None
    """Registers in the loop of a spatial build; None for an array."""
    multipliers: int | float
    """DSP blocks; a half of one counts as such."""
    block_rams: int | float
    """A half of one counts as such, as for multipliers."""
    wrapper_block_rams: int | float = 0
    """Block RAMs of the bus wrapper's FIFOs, in addition to the core's. A board's top has no wrapper."""
    cells: int
    """Logic cells, each a LUT and a flip-flop, or that share of a flip-flop which the device has."""
    cell_share: float
    """Share of the device's logic cells in percent."""
    chain_tiles: int | None = None
    """Tiles of the carry chains; None if the family does not limit them."""
    chain_share: float | None = None
    """Share of the device's tiles in percent."""
    fits: bool
    """Whether the device has enough of each resource, and is no fuller than designs that were routed."""
    fmax_mhz: float | None
    """None if no tool here knows the device's delays, and nobody assumed a clock."""
    clock_assumed: bool = False
    """Whether ``fmax_mhz`` is what the user assumes, and no estimate."""
    step_latency_us: float | None
    """Exact cycles of a step, divided by the clock; None without one."""
    board_mhz: float | None = None
    """The clock that is expected of a bitstream for the board; None for the core alone."""

    @property
    def clock_mhz(self) -> float | None:
        """The board's clock, or that of the core alone."""
        return self.board_mhz or self.fmax_mhz

    @property
    def clock_text(self) -> str:
        """That clock as text, which says if it is assumed; empty without one."""
        return "" if self.clock_mhz is None else f"{self.clock_mhz:g} MHz{', assumed' * self.clock_assumed}"


def board_clock(most_mhz: float, fmax_mhz: float) -> float:
    """Return the clock that is expected of a board's bitstream, which place and route then decides.

    ``most_mhz`` is the highest clock of the board's PLL, ``fmax_mhz`` the core's estimate.
    """
    return round(min(most_mhz, BOARD_SHARE * fmax_mhz), 1)


def top_sizes(manifest: Manifest, family: Estimates, ethernet: bool = False) -> Resources:
    """Estimate what a board's top takes in addition to the core: link, PLL, reset and LEDs.

    The link is serial, or on Ethernet. Block RAMs are exact, because the link's memories are known. LUTs and
    flip-flops depend little on the network: they are those of synthesised tops, plus some for each bit of the
    core's data ports.

    Raises ConfigurationError if a step is too large for the link, or the build takes whole sequences.
    """
    parameters, numerics = manifest.parameters, manifest.numerics
    x_bits = manifest.input_port.beat * manifest.input_port.bits
    y_bits = parameters.beat_out * numerics.output_bits
    memories = link_memories(link_limits(manifest)).values()
    assert family.top_luts is not None  # a request for such a board is refused
    luts, per_bit = family.top_luts
    ffs, per_input_bit = family.top_ffs
    more = family.ethernet if ethernet else EthernetSizes()
    return Resources(
        luts=round(luts + per_bit * (x_bits + y_bits)) + more.luts,
        ffs=round(ffs + per_input_bit * x_bits) + more.ffs,
        multipliers=0,
        block_rams=sum(family.map_memory(memory).block_rams for memory in memories) + more.block_rams,
        large_rams=0,
    )


@dataclass(frozen=True)
class Blocks:
    """Exact counts of hard blocks."""

    multipliers: float
    """A half of a block counts as such, also of block RAM."""
    block_rams: float
    large_rams: int
    wrapper_block_rams: float = 0
    """Block RAMs of the bus wrapper, in addition to those of the core."""


def count_blocks(manifest: Manifest, family: Estimates, multipliers: bool = True) -> Blocks:
    """Count the hard blocks of a core for a family; ``multipliers`` says whether it uses DSP blocks."""
    products = inventory.multipliers(manifest).values()
    hard = sum(family.multiplier_blocks(some) for some in products if family.is_hard(some, multipliers))
    memories = [*inventory.memories(manifest).values()]
    if manifest.spatial is not None:
        tables = (table.memory for table in constant_tables(manifest))
        memories += [memory for memory in tables if memory.style == "block"]
    wrapped = inventory.wrapper_memories(manifest).values()
    return Blocks(
        multipliers=hard,
        block_rams=sum(map(family.block_rams, memories)),
        large_rams=sum(memory.count * family.map_memory(memory).large_rams for memory in memories),
        wrapper_block_rams=sum(family.map_memory(memory).block_rams for memory in wrapped),
    )


def estimate(
    manifest: Manifest,
    chosen: Chosen,
    multipliers: bool = True,
    board: BoardTop | None = None,
    cores: int = 1,
    assumed_mhz: float | None = None,
) -> Estimate | None:
    """Estimate a core on a device; None if the core or the device is of a family without estimates.

    ``multipliers`` says whether DSP blocks are used. ``board`` is the board whose top is included; None for
    the core alone. ``cores`` is the number of cores side by side, of which the utilisation is.
    ``assumed_mhz`` is the clock that the user assumes, for families whose clocks are not known. Raises
    ConfigurationError if the core's steps are too large for the board's link.
    """
    device = chosen.device
    family = fpga_family(device.family).estimates
    # The factors hold for builds of the family, not for generic ones.
    if family is None or manifest.parameters.family != device.family:
        return None
    if manifest.spatial is not None and family.spatial is None:
        return None
    hard = multipliers and device.multipliers > 0
    if family.inferred_multipliers and not hard:
        # What synthesis makes of such products without DSP blocks is not known.
        return None
    parts, factors = parts_of(manifest, family, hard), family if manifest.spatial is None else family.spatial
    assert factors is not None  # looked at above
    luts, ffs = _total(factors.luts, parts.luts), _total(factors.ffs, parts.ffs)
    lone = (family.lone_ffs or 0) * ffs
    blocks = count_blocks(manifest, family, hard)
    block_rams = blocks.block_rams
    tiles = None if device.chain_tiles is None else _total(factors.chain_tiles, parts.tiles)
    if board is not None:
        top = top_sizes(manifest, family, board.ethernet)
        luts, ffs, block_rams = luts + top.luts, ffs + top.ffs, block_rams + top.block_rams
        lone += family.top_lone_ffs * top.ffs
        if tiles is not None:
            tiles += family.top_chain_tiles + board.ethernet * family.ethernet.chain_tiles
    luts, ffs, lone, block_rams = cores * luts, cores * ffs, cores * lone, cores * block_rams
    tiles = None if tiles is None else cores * tiles
    if family.lone_ffs is None:
        cells = max(luts, round(ffs * device.luts / device.ffs))
    else:
        cells = luts + round(lone)
    clock = expected = None
    fmax = _core_clock(manifest, chosen, family, luts // cores, cells, hard, assumed_mhz)
    if fmax is not None:
        clock = chosen.usable_mhz(fmax, blocks.block_rams)
        expected = board_clock(board.most_mhz, clock) if board and board.most_mhz else None
    used = expected or clock
    found = Estimate(
        device=chosen.label,
        board=board.name if board else "",
        cores=cores,
        loop_registers=None if manifest.spatial is None else manifest.spatial.loop_registers,
        luts=luts,
        ffs=ffs,
        cells=cells,
        cell_share=percent(cells, device.luts),
        chain_tiles=tiles,
        chain_share=None if tiles is None else percent(tiles, device.chain_tiles or 0),
        fits=True,
        multipliers=whole(cores * blocks.multipliers),
        block_rams=whole(block_rams),
        wrapper_block_rams=0 if board else whole(cores * blocks.wrapper_block_rams),
        large_rams=cores * blocks.large_rams,
        fmax_mhz=None if clock is None else round(clock, 1),
        clock_assumed=clock is not None and not family.knows_clocks,
        step_latency_us=None if used is None else round(manifest.cycles.step_latency_cycles / used, 4),
        board_mhz=expected,
    )
    return found.replace(fits=all(each.used <= each.most for each in demands(found, device)))


def parts_of(manifest: Manifest, family: Estimates, hard: bool) -> CoreParts:
    """Return the sizes of the parts of a core with an array, or in space; ``hard`` as for those."""
    if manifest.spatial is not None:
        return spatial_parts(manifest, family, hard)
    return CoreParts(
        lut_parts(manifest, family, hard), ff_parts(manifest, family, hard), chain_parts(manifest, hard)
    )


def _core_clock(
    manifest: Manifest,
    chosen: Chosen,
    family: Estimates,
    luts: int,
    cells: int,
    hard: bool,
    assumed_mhz: float | None,
) -> float | None:
    """Return a core's Fmax, of so many LUTs on a device with so many used logic cells; None if unknown."""
    device, parameters, plan = chosen.device, manifest.parameters, manifest.spatial
    model = family.usable_clock(device.die, parameters.pipeline_name, assumed_mhz)
    if model is None:
        return None
    if plan is not None:
        if family.spatial_clocks is None:
            return None
        period, most = plan.period(manifest.layers, manifest.numerics), model.mhz(chosen.grade, 0, 0)
        # Short loops of other cells were not routed: none is faster than an array is known to be.
        return min(most, family.spatial_clocks.mhz(period, luts, most))
    return model.mhz(
        chosen.grade,
        cells / device.luts,
        manifest.numerics.accumulator.bits,
        logic_slopes=hard and parameters.slope_multipliers == "lut",
        direct_tables=parameters.tables == "direct",
        constant_rows=max((each.memory.depth for each in constant_tables(manifest)), default=0),
    )


class Demand(NamedTuple):
    """How much a design takes of a resource."""

    resource: str
    used: float
    most: float
    """How much a design may take."""
    there: float
    """How much the device has."""

    @property
    def share(self) -> float:
        """What it takes of what it may."""
        return self.used / self.most if self.most else self.used * 1e9

    @property
    def exceeds(self) -> bool:
        """Whether it takes too much."""
        return self.share > 1.0

    @property
    def text(self) -> str:
        """What messages say of a design that takes too much."""
        limit = f"of {count_text(self.there)}"
        if self.most < self.there:
            limit += f", of which {count_text(self.most)} may be used"
        return f"{count_text(self.used)} {self.resource} ({limit})"


def demands(found: Estimate, device: FpgaDevice) -> Iterator[Demand]:
    """Yield what an estimated design takes of each resource that limits designs.

    All block RAMs may be used, or a share that is assumed; the wrapper's are counted, too. Of logic cells,
    carry chains and DSP blocks, only as many may be used as in designs that were placed.
    """
    limits = fill_limits(fpga_family(device.family).need_estimates(), found.loop_registers is not None)
    large = 0 if device.large_ram is None else device.large_ram.count
    block_rams = found.block_rams + found.wrapper_block_rams
    yield Demand("multipliers", found.multipliers, limits.most_multipliers(device), device.multipliers)
    yield Demand(BLOCK_RAMS, block_rams, limits.most_memories(device.block_rams), device.block_rams)
    yield Demand(large_name(device), found.large_rams, limits.most_memories(large), large)
    yield Demand("logic cells", found.cells, int(limits.cells * device.luts), device.luts)
    if found.chain_tiles is not None and device.chain_tiles is not None and limits.chains is not None:
        most = int(limits.chains * device.chain_tiles)
        yield Demand("tiles for carry chains", found.chain_tiles, most, device.chain_tiles)


def worst_demand(found: Estimate, device: FpgaDevice) -> Demand:
    """Return the demand of an estimated design that is nearest to its limit, or most beyond it."""
    return max(demands(found, device), key=lambda each: each.share)


def _total(factors: Mapping[str, float], parts: Mapping[str, float]) -> int:
    return round(sum(factors.get(name, 1.0) * size for name, size in parts.items()))


def estimate_devices(manifest: Manifest, chosen: Estimate | None = None) -> tuple[Estimate, ...]:
    """Estimate a core on every device of its family, in the slowest grade; empty without estimates.

    The estimate of a ``chosen`` device, with its grade and board, comes first, in the place of that device's.
    """
    found = (estimate(manifest, find_device(name)) for name in devices())
    others = tuple(each for each in found if each is not None)
    if chosen is None:
        return others
    name = find_device(chosen.device).device.name
    return chosen, *(each for each in others if find_device(each.device).device.name != name)


def check_estimate(name: str, found: Estimate, device: FpgaDevice, insist: bool = False) -> None:
    """Refuse cores, or a core in a board's top, that do not fit by their estimate.

    With ``insist`` only what cannot fit is refused: too few multipliers or block RAMs, which are exact, or
    LUTs or flip-flops that exceed the device by more than :data:`MARGIN`. A design is then not refused
    because it is fuller than any that was routed. Raises ConfigurationError, which names every resource of
    which there is too little.
    """
    whole = f"{name} with its link" if found.board else design_name(name, found.cores)
    spatial = found.loop_registers is not None
    lacking = [
        f"{used:,} {what} (it has {there:,})"
        for what, used, there in resource_uses(found, device)
        if used * (1 - MARGIN if what in _UNSURE else 1) > there
    ]
    if lacking:
        other = ""
        if found.multipliers > device.multipliers:
            inferred = spatial or fpga_family(device.family).need_estimates().inferred_multipliers
            other = without_blocks(found.board) if inferred else "`multipliers='lut'`"
        raise ConfigurationError(
            f"{whole} does not fit {device.name}: by its estimate it takes {', '.join(lacking)}; "
            f"{fit_advice(device, found.board, other, found.cores, spatial)}"
        )
    full = [each.text for each in demands(found, device) if each.used > each.most]
    if full and not insist:
        family = fpga_family(device.family).need_estimates()
        kind = "spatial build" if spatial and family.spatial_clocks else "design"
        known = f"any {kind} known to have been routed on such a device"
        if not family.routed:
            known = "what is assumed to be routable on such a device"
        raise ConfigurationError(
            f"{whole} is fuller than {known}: by its estimate it takes {', '.join(full)}; "
            f"{fit_advice(device, found.board, cores=found.cores, spatial=spatial)}; `insist=True` does it "
            "all the same"
        )


def step_energy_nj(manifest: Manifest, found: Estimate, chosen: Chosen, clock_mhz: float) -> float | None:
    """Estimate the energy of a step, one after another without a pause; None without published figures.

    Four terms: what a device draws at rest, what a running clock adds, what each logic cell adds to that, and
    the multiplications, which are counted exactly. Nothing of it was measured on a core of rtlstm, and reads
    of memories are left out, of which nothing is published: it ranks builds on one device, and says little of
    others. ``docs/sizing.md`` names the source and the limits.

    ``found`` is the estimate of the core on the device. It runs at ``clock_mhz``.
    """
    figures = chosen.device.power
    if figures is None:
        return None
    cycles = manifest.cycles.step_interval_cycles
    blocks, bit_products = _multiplications(manifest)
    charge = cycles * (figures.static_ua / clock_mhz + cycle_charge(figures, found.cells))
    charge += cycle_charge(figures, 0, blocks, bit_products) - cycle_charge(figures, 0)
    # Charges are in pC, since uA / MHz is pC.
    return float(f"{charge * figures.volts / 1000:.4g}")


def cycle_charge(figures: PowerFigures, cells: int, blocks: float = 0.0, bit_products: float = 0.0) -> float:
    """Return the charge in pC that a cycle takes, beside what a device draws at rest.

    ``cells`` are the logic cells of the design. ``blocks`` are the multiplier blocks that work in the cycle.
    ``bit_products`` are bits times bits of the multiplications made of LUTs in the cycle.
    """
    return (
        figures.clock_ua_mhz
        + figures.cell_ua_mhz * cells
        + figures.block_ua_mhz * blocks
        + figures.bit_product_ua_mhz * bit_products
    )


def _multiplications(manifest: Manifest) -> tuple[float, float]:
    """Return how often a step has a multiplier block work, and its bit products in LUTs.

    The lanes' multipliers work once for each word of weights, those of the gate units once for each result.
    """
    parameters = manifest.parameters
    family = fpga_family(parameters.family).need_estimates()
    lanes = {spec.name for kind in lane_kinds(manifest) for spec in (kind.hard, kind.soft)}
    results = sum(shape.outputs for shape in manifest.layers) / parameters.gate_units

    def times(spec: MultiplierSpec) -> float:
        return manifest.program.weight_rows if spec.name in lanes else results

    blocks = bit_products = 0.0
    for spec in multipliers(manifest).values():
        if family.is_hard(spec, multipliers=True):
            blocks += times(spec) * family.hard_blocks(spec.a_bits, spec.b_bits, spec.count)
        else:
            bit_products += times(spec) * spec.count * spec.a_bits * spec.b_bits
    return blocks, bit_products


def least_blocks(manifest: Manifest, device: FpgaDevice, multipliers: bool = True) -> Blocks:
    """Return a lower bound of the hard blocks of a core, for families without estimates.

    Yosys uses DSP blocks for all multipliers of portable Verilog, also for those that ask for LUTs, and for
    more than the device has. It uses block RAM for every memory that would fill one.

    Its DSP blocks are exact if they are instances, and each product fits into one. ``multipliers`` says
    whether it uses any.
    """
    products = (
        _least_multipliers(some, manifest, device)
        for some in inventory.multipliers(manifest).values()
        if multipliers and device.multipliers
    )
    block = 1024 * device.block_ram_kibit
    rams = large_rams = 0
    owner = FAMILIES.named(manifest.parameters.family)
    for memory in inventory.memories(manifest).values():
        bits = memory.width * memory.depth
        huge = memory.style == "huge"
        instances = owner.large_instances(memory.width, memory.depth) if isinstance(owner, FpgaFamily) else 0
        large_rams += memory.count * instances * huge
        # Weights that ask for a larger memory get it if it is an instance, or if the device has one.
        large = huge and (instances > 0 or device.large_ram is not None)
        if bits >= block and not memory.asynchronous and not large:
            rams += (memory.count - memory.pairs) * ceil(bits / block)
    return Blocks(multipliers=ceil(sum(products)), block_rams=rams, large_rams=large_rams)


def _least_multipliers(some: inventory.MultiplierSpec, manifest: Manifest, device: FpgaDevice) -> float:
    least = fpga_family(device.family).least_multiplier(some.a_bits, some.b_bits, device)
    if not _has_instances(manifest):
        return some.count * least
    if some.kind == "lut":
        return 0
    blocks = some.count // 2 if some.shared else some.count
    return blocks * max(1, least)


def _has_instances(manifest: Manifest) -> bool:
    """Whether a core's DSP blocks are instances: its family has primitives."""
    return bool(FAMILIES.named(manifest.parameters.family).primitives)


def unpacked_registers(manifest: Manifest, device: FpgaDevice, multipliers: bool = True) -> int:
    """Count the flip-flops that Yosys leaves outside DSP blocks, although the blocks could hold them.

    Each stage of a multiplier is a register of as many bits as its operands have together: of the operands
    themselves, of the product before it leaves the block, of the product. Registers before the operands
    could be packed, too, but are not counted. Instances of DSP blocks have their registers.
    """
    if _has_instances(manifest):
        return 0
    family = fpga_family(device.family)
    return sum(
        some.count * some.stages * family.unpacked_bits(some.a_bits, some.b_bits, device)
        for some in inventory.multipliers(manifest).values()
        if multipliers
    )


def check_inventory(
    manifest: Manifest, device: FpgaDevice, multipliers: bool = True, board: str = "", cores: int = 1
) -> None:
    """Refuse a build, for a family without estimates, that needs more hard blocks than a device has.

    ``board`` is the name of the build's board, or empty. ``cores`` is the number of its cores side by side.

    Raises ConfigurationError if it does not fit; the message names the resources and a remedy.
    """
    found = least_blocks(manifest, device, multipliers)
    uses = (
        ("multipliers", cores * found.multipliers, device.multipliers),
        (BLOCK_RAMS, cores * found.block_rams, device.block_rams),
        (large_name(device), cores * found.large_rams, device.large_ram.count if device.large_ram else 0),
    )
    lacking = [f"{used:,} {what} (it has {there:,})" for what, used, there in uses if used > there]
    if lacking:
        other = without_blocks(board) if cores * found.multipliers > device.multipliers else ""
        raise ConfigurationError(
            f"{design_name(manifest.name, cores)} does not fit {device.name}: it takes at least "
            f"{', '.join(lacking)}; {fit_advice(device, board, other, cores, manifest.spatial is not None)}"
        )
