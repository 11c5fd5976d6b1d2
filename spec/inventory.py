"""The memories and multipliers of a core, its wrapper and its serial link.

``hdl`` instantiates them, estimates count them, the report prints them. Each decision about a memory's or a
multiplier's size, number and kind is made here and nowhere else.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import gcd
from typing import Literal

from rtlstm.spec.activations.interpolated import ActivationTable
from rtlstm.spec.buses import BUSES
from rtlstm.spec.cells.unit import Unit
from rtlstm.spec.errors import ConfigurationError
from rtlstm.spec.family import FAMILIES, Pipeline
from rtlstm.spec.link import (
    BODY_LIMIT,
    HEADER,
    RAW_CRC_BYTES,
    RECORDS,
    REQUEST_FIELDS,
    Limits,
    value_bytes,
)
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.norms import PART_BITS, square_in_parts
from rtlstm.spec.numerics import Numerics
from rtlstm.spec.parameters import (
    MemoryStyle,
    MultiplierKind,
    TableKind,
    TableMemory,
    WeightMemory,
    ceil_log2,
)
from rtlstm.spec.program.spatial import BEHIND_SUMS, SpatialPlan
from rtlstm.spec.registers import Region

_STEPS = 8
"""Steps that a core holds at most: two that wait, two that are computed, two in the queue, and a margin."""
WAITING_STEPS = 4
"""Number of whole steps that fit into each FIFO of a bus wrapper."""
_USUAL_BYTES = 2048
"""Usual size in bytes of each memory of a serial link."""
_MOST_BYTES = 1 << 15
"""The largest power of two that a report can contain."""
_QUEUED_STEPS = 2
"""Steps whose output the queue holds; twice as many after a sequence memory, and where it is decided."""
_SHALLOW = 256
"""Words up to which a memory without an output register is no block RAM, which would be slow."""

FEWEST_ROWS = 128
"""Rows from which on a constant table of a spatial build is worth a block RAM: 64 take few LUTs."""


@dataclass(frozen=True)
class MemorySpec:
    """``count`` equal memories, each with one read port and one write port."""

    name: str
    count: int
    width: int
    """Bits of a word."""
    depth: int
    """Words, at least 2."""
    granules: int = 1
    """Number of write enables of a word, each for an equal part of it."""
    output_register: bool = False
    """The memory has an output register: a word comes two cycles after its address, not one."""
    style: MemoryStyle = "auto"
    asynchronous: bool = False
    """The word comes in the same cycle as its address, as a FIFO's does."""
    inferred: bool = False
    """Synthesis alone decides what it becomes: it is no instance of ``rtlstm_memory``."""
    pairs: int = 0
    """Modules that hold two of them, with the same contents: one memory with two read ports, on families
    whose block RAM has them."""

    @property
    def latency(self) -> int:
        """Cycles from an address to its word."""
        return 0 if self.asynchronous else 1 + self.output_register

    @property
    def bits(self) -> int:
        """Bits of all of them."""
        return self.count * self.width * self.depth


Pairing = Literal["none", "neighbours", "lanes"]
"""Which two multipliers form one module, where a family's DSP block can hold both: none; two neighbours in a
lane; those of two lanes that have the same value of the vector."""


@dataclass(frozen=True)
class MultiplierSpec:
    """Equal multipliers of two signed factors, ``each`` of them side by side in each of ``sets``."""

    name: str
    sets: int
    each: int
    a_bits: int
    b_bits: int
    stages: int
    """Cycles from the factors to the product."""
    kind: MultiplierKind = "dsp"
    pairing: Pairing = "none"
    blocks: int | None = None
    """Blocks of lanes that the sets are in; in each they have the same second factors. None outside lanes."""
    sums: int = 0
    """Sums of two of them in each set, in modules that a family may make chains of DSP blocks."""
    bare: bool = False
    """Whether no register stands at their factors or behind them, so that none is a block's."""

    @property
    def count(self) -> int:
        """All of them."""
        return self.sets * self.each

    @property
    def shared(self) -> bool:
        """Whether one DSP block holds multipliers of two lanes."""
        return self.pairing == "lanes"

    @property
    def pairs(self) -> int:
        """Number of modules that hold two of them, and no sum."""
        left = self.each - 2 * self.sums
        return {"none": 0, "neighbours": self.sets * (left // 2), "lanes": self.sets * left // 2}[
            self.pairing
        ]


@dataclass(frozen=True)
class LaneKind:
    """Lanes that are alike, and their multipliers."""

    name: str
    """Name of their module."""
    lanes: range
    hard: MultiplierSpec
    """Those that are DSP blocks."""
    soft: MultiplierSpec
    """Those that are made of LUTs."""
    sums_in_dsp: range
    """Adders of the tree's first level that are in DSP blocks: each adds its two products there."""


@dataclass(frozen=True)
class ActivationSpec:
    """The table and the multiplier that compute an activation function."""

    table: ActivationTable
    direct: bool
    """The table has an entry for each input; nothing is interpolated."""
    memory: MemorySpec
    constant: bool
    """The table is a constant made of LUTs, with the registers that its memory would have; or a block RAM
    that nothing writes, if its memory has that style."""
    slope: MultiplierSpec | None
    """Multiplies the slope of a segment with the offset in it; None where segments have one input each."""
    slope_stages: int
    """Cycles of this product; there is a register for each even where there is none."""
    number: int
    """Place among the tables of its unit."""

    @property
    def module(self) -> str:
        """Name of the module of a constant table, without that of its build."""
        return f"table{self.number}"

    @property
    def latency(self) -> int:
        """Cycles from the argument at the memory to the value: of memory, product and sum."""
        return self.memory.latency + (0 if self.direct else self.slope_stages + 1)


def activation_spec(
    name: str,
    table: ActivationTable,
    *,
    count: int = 1,
    tables: TableKind = "interpolated",
    stages: int = 1,
    slope_stages: int = 1,
    multiplier: MultiplierKind = "dsp",
    table_memory: TableMemory = "ram",
    pairs: int = 0,
    number: int = 0,
) -> ActivationSpec:
    """Describe ``count`` units that compute a function by equal tables.

    ``stages`` (1 or 2) are the cycles in which a table is read, ``slope_stages`` those of a multiplier. So
    many ``pairs`` share a table, if it is in block RAM. Only direct ones do: rows of interpolated ones are
    wide, and a block RAM with two read ports has words of half the bits.
    """
    constant = table_memory == "rom"
    slope = None
    if tables == "interpolated" and table.low_bits:
        bits = table.slope_bits, table.low_bits + 1
        slope = MultiplierSpec(f"{name} slopes", count, 1, *bits, stages=slope_stages, kind=multiplier)
    memory = _clocked(f"{name} tables", table.word_bits, table.rows, stages, count=count)
    if tables == "direct" and memory.style == "block" and not constant:
        memory = replace(memory, pairs=pairs)
    return ActivationSpec(table, tables == "direct", memory, constant, slope, slope_stages, number)


def activations(manifest: Manifest) -> tuple[ActivationSpec, ...]:
    """Describe the units that evaluate the numerics' tables, in the order of the unit's ``table_uses``."""
    parameters, uses = manifest.parameters, manifest.numerics.unit.table_uses
    if manifest.spatial is not None:
        return tuple(_spatial_tables(manifest))
    names, family = [name for name, _, _ in uses], FAMILIES.named(parameters.family)
    return tuple(
        activation_spec(
            # Functions with different formats have separate tables.
            name if names.count(name) == 1 else f"{name} {index}",
            table,
            # What no unit has is the norms' table of roots.
            count=count * parameters.gate_units or 1,
            tables=parameters.tables,
            stages=parameters.pipeline.table,
            slope_stages=parameters.pipeline.slope if count else 1,
            multiplier=parameters.slope_multipliers,
            table_memory=parameters.table_memory,
            pairs=count // 2 * parameters.gate_units if family.memory_pairs else 0,
            number=index,
        )
        for index, (name, table, count) in enumerate(uses)
    )


def _spatial_tables(manifest: Manifest) -> Iterator[ActivationSpec]:
    """Yield the tables of a spatial build, of each unit and each dense row.

    They are logic without a register; or block RAM, which takes the place of the register behind
    pre-activations, where there is one.
    """
    numerics, plan, parameters = manifest.numerics, manifest.spatial, manifest.parameters
    assert plan is not None, "only a spatial build has such tables"
    registered = plan.loop_registers in BEHIND_SUMS and numerics.fused_lstm is not None
    for index, (name, table, count) in enumerate(numerics.unit.table_uses):
        if numerics.fused_lstm is None:
            nodes = [(shape, node) for shape in manifest.layers for node in numerics.cells[shape.cell].nodes]
            readers = [shape for shape, node in nodes if node.kind == "table" and node.index == index]
            count = sum(shape.outputs for shape in readers)
        else:
            count *= manifest.most_saturated
            count += sum(
                shape.outputs for shape in manifest.layers if shape.dense and shape.activation == name
            )
        spec = activation_spec(name, table, count=count, tables="direct", table_memory="rom", number=index)
        block = registered and name != "cell tanh" and parameters.table_memory == "ram"
        if block and table.rows >= FEWEST_ROWS:
            yield replace(spec, memory=replace(spec.memory, style="block"))
        else:
            yield replace(spec, memory=replace(spec.memory, asynchronous=True))


def constant_tables(manifest: Manifest) -> tuple[ActivationSpec, ...]:
    """Describe the units whose tables are constants; :func:`memories` has all others' tables."""
    return tuple(activation for activation in activations(manifest) if activation.constant)


def memories(manifest: Manifest) -> dict[str, MemorySpec]:
    """Return all memories of a core, by name."""
    if manifest.spatial is not None:
        found = _spatial_memories(manifest)
        return {memory.name: memory for memory in found}
    found = (
        *_operand_memories(manifest),
        *_drain_memories(manifest),
        *_norm_memories(manifest),
        *_token_table(manifest),
        *(activation.memory for activation in activations(manifest) if not activation.constant),
        *(
            _clocked(name, sum(widths.values()), manifest.capacity.operations, 1)
            for name, widths in manifest.program_memories.items()
        ),
        _output_queue(manifest),
        *_softmax_memories(manifest),
    )
    return {memory.name: memory for memory in found}


def _softmax_memories(manifest: Manifest) -> Iterator[MemorySpec]:
    """Yield the rings of outputs and of their powers, each beat with its stream; none without softmax.

    They hold what is written until it is read: a step's beats, and those that come until then.
    """
    if manifest.parameters.decide != "softmax":
        return
    parameters, softmax = manifest.parameters, manifest.softmax
    units, beats = parameters.gate_units, parameters.drain_beats(manifest.program.outputs)
    levels = ceil_log2(units)
    waits = {"softmax outputs": 6 + levels, "softmax powers": 8 + levels + 2 * parameters.softmax_stages}
    bits = {"softmax outputs": softmax.bits, "softmax powers": softmax.power_bits + 1}
    for name, later in waits.items():
        depth = 1 << ceil_log2(beats + later)
        yield _clocked(name, units * bits[name] + parameters.stream_bits, depth, 1)


def softmax_multipliers(manifest: Manifest) -> Iterator[MultiplierSpec]:
    """Yield the multipliers of softmax: two in each gate unit, and two for the sum's reciprocal."""
    if manifest.parameters.decide != "softmax":
        return
    parameters, softmax = manifest.parameters, manifest.softmax
    units, stages = parameters.gate_units, parameters.softmax_stages
    power, share = softmax.power_bits + 2, softmax.refined_bits + 2
    mantissa, seed = softmax.mantissa_bits + 2, softmax.seed_bits + 2
    yield MultiplierSpec("softmax powers", units, 1, power, power, stages)
    yield MultiplierSpec("softmax shares", units, 1, power, share, stages)
    yield MultiplierSpec("softmax reciprocal", 1, 1, mantissa, seed, stages)
    yield MultiplierSpec("softmax refined", 1, 1, share, seed, stages)


def steps_held(manifest: Manifest) -> int:
    """Return the steps between input and output that a core records, a power of two: more than it holds.

    In a wave-front, each layer has one.
    """
    layers = len(manifest.layers) if manifest.parameters.wave_front else 0
    return max(_STEPS, 1 << ceil_log2(layers + 6), 1 << ceil_log2(_queued_steps(manifest) + 4))


def _spatial_memories(manifest: Manifest) -> Sequence[MemorySpec]:
    """Return the memories of a spatial build: of times, of steps' outputs, side by side, and of states.

    States of a single stream are in registers.
    """
    schedule, parameters = manifest.spatial_schedule, manifest.parameters
    several = parameters.streams > 1
    outputs = manifest.program.outputs * manifest.numerics.output_bits + several * parameters.stream_bits
    layers = manifest.layers
    recurrent = [shape for shape in layers if shape.has_h]
    given = [layers[index + shape.feedback] for index, shape in enumerate(layers) if shape.has_h]
    bits = {
        "h of streams": sum(shape.outputs * shape.output.bits for shape in given),
        "c of streams": sum(shape.outputs * shape.state.bits for shape in recurrent if shape.state),
    }
    kept = [
        MemorySpec(name, 1, width, parameters.streams, asynchronous=True, inferred=True)
        for name, width in bits.items()
        if several and width
    ]
    return (
        # Two steps more may have come than are on their way.
        _clocked("input times", 32, 1 << ceil_log2(schedule.depth + 2), 1),
        MemorySpec("output queue", 1, outputs, schedule.depth, asynchronous=True, inferred=True),
        *kept,
    )


def weight_memory(lanes: int, width: int, rows: int, kind: WeightMemory) -> MemorySpec:
    """Return the memories of weights, one per lane."""
    return MemorySpec(
        "weights",
        lanes,
        width,
        max(2, rows),
        output_register=True,
        style="huge" if kind == "large" else "auto",
    )


def _operand_memories(manifest: Manifest) -> Iterator[MemorySpec]:
    """Yield the memories that the array reads: weights, vectors, the network's input, and related ones."""
    parameters, regions, plan = manifest.parameters, manifest.regions, manifest.sequence
    macs, stored = parameters.macs, parameters.values_stored
    weights, vectors = regions[Region.WEIGHTS], regions[Region.VECTORS]
    yield weight_memory(parameters.lanes, weights.width, weights.rows, parameters.weight_memory)
    if parameters.lane_sums:
        bits, sums = manifest.numerics.accumulator.bits, parameters.lane_sums
        yield _clocked("sums of groups", bits, sums, 1, count=parameters.lanes)
    stages = parameters.announced
    yield _clocked("vectors", vectors.width, vectors.rows, stages, granules=macs // stored)
    width = macs * manifest.numerics.data_bits
    if plan is None:
        # Those of two steps.
        rows = 2 * manifest.program.input_words
        yield _clocked("input buffer", width, rows, stages, granules=macs // parameters.beat_in)
        yield _clocked("input times", 32, steps_held(manifest), 1)
    else:
        # Input beats and results are written to it.
        granule = gcd(parameters.beat_in, stored)
        yield _clocked("sequence memory", width, plan.rows, stages, granules=macs // granule)
        yield MemorySpec("suppressed outputs", 1, 1, max(2, plan.steps))
        upper = manifest.numerics.result_bits - manifest.numerics.data_bits
        if upper:
            depth = max(2, plan.steps * plan.output_beats)
            words = _clocked("upper outputs", upper * parameters.gate_units, depth, stages)
            yield words if stages == 1 else replace(words, style="auto")


def _drain_memories(manifest: Manifest) -> Iterator[MemorySpec]:
    """Yield the memories of each gate unit, for rows and states.

    Without its output register, a block RAM is slow: so a memory without one is none, unless it is deep.
    """
    parameters = manifest.parameters
    units, collect = parameters.gate_units, parameters.collect
    # Shifts are read a cycle before what is added, if the first part of a shift is in the collecting cycle.
    for name, region, register in (
        ("row shifts", Region.SHIFTS, collect > parameters.shifts_collected),
        ("partial sums", Region.PARTIALS, collect > 0),
        ("cell states", Region.CELLS, True),
    ):
        layout, depth = manifest.regions[region], max(2, manifest.regions[region].rows)
        style: MemoryStyle = "auto" if register or depth > _SHALLOW else "distributed"
        yield MemorySpec(name, units, layout.width, depth, output_register=register, style=style)


def _token_table(manifest: Manifest) -> Iterator[MemorySpec]:
    if (layout := manifest.regions.get(Region.TOKENS)) is not None:
        yield _clocked("token table", layout.width, layout.rows, 2)


def _norm_memories(manifest: Manifest) -> Iterator[MemorySpec]:
    """Yield the memories of norms: of the values of a vector, and of each gate unit's gains and biases."""
    parameters, numerics = manifest.parameters, manifest.numerics
    if numerics.unit.norms is not None:
        most = numerics.unit.norms.most_values
        width = parameters.gate_units * numerics.data_bits
        yield _clocked("measured values", width, parameters.drain_beats(most), 1)
        if numerics.unit_parameters:
            width, rows = (
                numerics.unit_parameters * numerics.weight_bits,
                manifest.regions[Region.SHIFTS].rows,
            )
            yield _clocked("gains and biases", width, rows, 1, count=parameters.gate_units)


def _queued_steps(manifest: Manifest) -> int:
    # What is decided of a step comes later, and must not keep the next but one back.
    doubled = manifest.sequence is not None or manifest.decides
    steps = _QUEUED_STEPS << doubled
    if manifest.decides and not manifest.gives_number:
        # A step takes at least as long as its outputs, of which there are as many as are given, or more.
        least = manifest.parameters.drain_beats(manifest.program.outputs)
        if manifest.sequence is None and manifest.parameters.capacity is None:
            least = max(least, manifest.cycles.array_cycles)
        steps += -(-manifest.decision_cycles // least)
    return steps


def _output_queue(manifest: Manifest) -> MemorySpec:
    """Return the FIFO of output beats, each with its stream and whether it is its step's last."""
    parameters = manifest.parameters
    stream = parameters.stream_bits + parameters.network_bits
    width = parameters.beat_out * manifest.numerics.output_bits + stream + 1
    depth = _queued_steps(manifest) * -(-manifest.capacity.outputs // parameters.beat_out)
    return MemorySpec("output queue", 1, width, depth, asynchronous=True, inferred=True)


def _clocked(
    name: str, width: int, depth: int, stages: int, *, count: int = 1, granules: int = 1
) -> MemorySpec:
    """Describe memories whose word comes ``stages`` (1 or 2) cycles after its address.

    With 2 it is a block RAM with its output register, unless it is tiny. With 1 it is not a block RAM unless
    it is deep, because a block RAM without the output register is slow.
    """
    style: MemoryStyle = "block" if stages == 2 and depth > 16 else "auto"
    if stages == 1 and depth <= _SHALLOW:
        style = "distributed"
    return MemorySpec(name, count, width, max(2, depth), granules, stages == 2, style)


def wrapper_memories(manifest: Manifest) -> dict[str, MemorySpec]:
    """Return the memories of a build's bus wrapper, by name; those of its core are not among them.

    Each FIFO holds one word more than its memory, which is read a cycle before the word is needed.
    """
    bus, parameters, numerics = BUSES[manifest.parameters.bus], manifest.parameters, manifest.numerics
    found: list[MemorySpec] = []
    if "fifos" in bus.owners:
        # With the stream, whether the output is suppressed, and whether the beat is its step's last.
        port = manifest.input_port
        width = port.beat * port.bits + parameters.number_bits + 2
        depth = WAITING_STEPS * -(-port.most // port.beat)
        found.append(MemorySpec("input FIFO", 1, width, depth - 1, inferred=True))
        width = parameters.beat_out * numerics.output_bits + parameters.number_bits
        depth = WAITING_STEPS * -(-manifest.capacity.outputs // parameters.beat_out)
        found.append(MemorySpec("output FIFO", 1, width, depth - 1, inferred=True))
    if bus.packets:
        # A core holds fewer steps than this between input and output.
        depth = steps_held(manifest)
        found.append(MemorySpec("malformed packets", 1, 1, depth, asynchronous=True, inferred=True))
    return {memory.name: memory for memory in found}


LINK_BLOCKS = MemorySpec("blocks of the sender", 1, 8, 512)
"""Bytes of a frame that a serial link stores until the next zero byte is known, for two blocks."""


def link_limits(manifest: Manifest) -> Limits:
    """Return the limits of the serial link of a build.

    Each memory holds 2 KiB, which at 3 Mbaud is enough for a host that answers within 6 ms, or two steps'
    bytes if that is more.

    Raises ConfigurationError if a step is too large for the protocol, or the build takes whole sequences.
    """
    if manifest.sequence is not None:
        raise ConfigurationError(
            "a link takes steps one by one, but this network has a reverse direction; generate it for a "
            "device instead of a board (`fit`), and connect the ports of its core yourself"
        )

    def memory(values: int, bits: int) -> int:
        bodies = -(-(2 + values * value_bytes(bits)) // (BODY_LIMIT - HEADER.size))
        return max(_USUAL_BYTES, 1 << ceil_log2(2 * bodies * BODY_LIMIT))

    inputs, outputs = manifest.input_port.most, manifest.capacity.outputs
    requests = memory(inputs, manifest.input_port.bits)
    responses = memory(outputs, manifest.numerics.output_bits)
    if max(requests, responses) > _MOST_BYTES:
        raise ConfigurationError(
            f"the serial link holds two steps in at most {_MOST_BYTES} bytes, which is too little for "
            f"{inputs} inputs and {outputs} outputs; use another bus"
        )
    frames = min(min(requests, responses) // HEADER.size, RECORDS - 1)
    return Limits(body=BODY_LIMIT, request_bytes=requests, response_bytes=responses, frames=frames)


def link_memories(limits: Limits) -> dict[str, MemorySpec]:
    """Return the memories of a device's serial link, by name."""
    # The end of a response, with a bit to tell a full ring from an empty one, and whether it is an error.
    end = ceil_log2(limits.response_bytes) + 2
    found = (
        MemorySpec("requests", 1, 8, limits.request_bytes),
        MemorySpec("records of requests", 1, sum(REQUEST_FIELDS.values()), RECORDS),
        MemorySpec("responses", 1, 8, limits.response_bytes),
        MemorySpec("records of responses", 1, end, RECORDS, output_register=True),
        LINK_BLOCKS,
    )
    return {memory.name: memory for memory in found}


def raw_memory(manifest: Manifest) -> MemorySpec:
    """Return the memory of the raw mode: a step behind its first byte, or the outputs of a result."""
    sizes = raw_sizes(manifest)
    return MemorySpec("raw transfer", 1, 8, max(sizes["step"] - 1, sizes["result"] - 1 - RAW_CRC_BYTES))


def raw_sizes(manifest: Manifest) -> dict[str, int]:
    """Return the most bytes of the raw mode's transfers, by what they hold: a step, a result."""
    capacity, numerics, port = manifest.capacity, manifest.numerics, manifest.input_port
    return {
        "step": 3 + port.most * value_bytes(port.bits) + RAW_CRC_BYTES,
        "result": 1 + capacity.outputs * value_bytes(numerics.output_bits) + RAW_CRC_BYTES,
    }


def multipliers(manifest: Manifest) -> dict[str, MultiplierSpec]:
    """Return all multipliers of a core, by name; the number may be 0."""
    parameters = manifest.parameters
    if manifest.spatial is not None:
        found = _spatial_multipliers(manifest, manifest.spatial)
        return {multiplier.name: multiplier for multiplier in found}
    slopes = (activation.slope for activation in activations(manifest))
    found = (
        *(some for kind in lane_kinds(manifest) for some in (kind.hard, kind.soft)),
        *gate_multipliers(manifest.numerics.unit, parameters.gate_units, parameters.pipeline),
        *scale_multipliers(manifest.numerics, parameters.gate_units, parameters.pipeline),
        *norm_multipliers(manifest.numerics, parameters.gate_units, parameters.pipeline),
        *softmax_multipliers(manifest),
        *(slope for slope in slopes if slope is not None),
    )
    return {multiplier.name: multiplier for multiplier in found}


def _spatial_multipliers(manifest: Manifest, plan: SpatialPlan) -> Sequence[MultiplierSpec]:
    """Return the multipliers of a spatial build, with the registers behind them.

    They are three for each unit of LSTMs, or those of a layer's graph for each of its outputs.
    """
    if manifest.numerics.fused_lstm is None:
        return tuple(_graph_multipliers(manifest))
    kept, added, output = manifest.numerics.unit.products
    # What is kept is in a register. The output gate waits in one for c's tanh, if the loop has a second one.
    bare = not {"gates", "multiplied"} & plan.registered
    kinds = [
        (kept, "multiplied", False),
        (added, "multiplied", bare),
        (output, "output", plan.loop_registers == 1),
    ]
    return tuple(
        MultiplierSpec(
            product.name,
            manifest.most_saturated,
            1,
            product.a_bits,
            product.b_bits,
            stages=int(kind in plan.registered),
            bare=bare,
        )
        for product, kind, bare in kinds
    )


def _graph_multipliers(manifest: Manifest) -> Iterator[MultiplierSpec]:
    """Yield the multipliers of the cells' graphs, whose registers stand elsewhere."""
    numerics = manifest.numerics
    for number, shape in enumerate(manifest.layers):
        nodes = numerics.cells[shape.cell].nodes
        for index, node in enumerate(nodes):
            if node.kind not in ("multiply", "pieces"):
                continue
            a, *other = (nodes[arg].format.bits for arg in node.args)
            b = other[0] if other else numerics.pieces[node.index].slope_bits
            yield MultiplierSpec(f"layer{number} {node.kind}{index}", shape.outputs, 1, a, b, stages=0)


def lane_kinds(manifest: Manifest) -> tuple[LaneKind, ...]:
    """Return the kinds of lanes: one, or two if some have one more multiplier of LUTs; none in space.

    These are the last lanes. Lanes of a kind are then neighbours, as the two of a pair must be, and lanes
    without a DSP block are at the end of the floorplan's line, not in gaps of it. Multipliers of LUTs have a
    register for their value of the vector, one for all lanes of a block: so the fewest blocks have one more.
    """
    parameters = manifest.parameters
    if manifest.spatial is not None:
        return ()
    first = parameters.lanes - parameters.lut_lanes
    most = _lane_kind(manifest, range(first), parameters.lut_macs)
    if not parameters.lut_lanes:
        return (most,)
    last = range(first, parameters.lanes)
    return most, _lane_kind(manifest, last, parameters.lut_macs + 1, "lut_lane", " of LUT lanes")


def _lane_kind(
    manifest: Manifest, lanes: range, in_luts: int, name: str = "lane", suffix: str = ""
) -> LaneKind:
    parameters, numerics = manifest.parameters, manifest.numerics
    size = 4 * parameters.gate_units
    hard = MultiplierSpec(
        f"products{suffix}",
        len(lanes),
        parameters.macs - in_luts,
        numerics.weight_bits,
        numerics.data_bits,
        parameters.pipeline.multiplier,
        pairing="lanes" if manifest.paired_lanes else "neighbours",
        # A block of both kinds counts as one of the second, which reads more values in LUTs.
        blocks=lanes.stop // size - lanes.start // size,
    )
    soft = replace(hard, name=f"products in LUTs{suffix}", each=in_luts, kind="lut", pairing="none")
    # Products of LUTs come first. An adder that has one of them, or a product alone, is no chain.
    in_dsp = range(-(-in_luts // 2), parameters.macs // 2 if parameters.sums_in_dsp else 0)
    return LaneKind(name, lanes, replace(hard, sums=len(in_dsp)), soft, in_dsp)


def scale_multipliers(
    numerics: Numerics, units: int = 1, pipeline: Pipeline | None = None
) -> Iterator[MultiplierSpec]:
    """Yield the multipliers of the scales of rows of ``units`` gate units, if rows have some.

    Without a pipeline they have two registers. A scale gets a sign bit.
    """
    if numerics.scale_bits:
        stages = 2 if pipeline is None else pipeline.scale
        yield MultiplierSpec(
            "row scales", units, 4, numerics.scaled_bits, numerics.scale_bits + 1, stages=stages
        )


def norm_multipliers(
    numerics: Numerics, units: int = 1, pipeline: Pipeline | None = None
) -> Iterator[MultiplierSpec]:
    """Yield the multipliers of norms: the squares of the values and of their sum, gains and roots.

    Without a pipeline they have one register.
    """
    norms, pipeline = numerics.unit.norms, pipeline or Pipeline()
    if norms is None:
        return
    bits, stages, found = numerics.data_bits, pipeline.product, norms.normalisations
    yield MultiplierSpec("squares", units, 1, bits, bits, stages)
    bits = max((norm.sum_bits for norm in found if norm.centre), default=0)
    upper = bits - PART_BITS if square_in_parts(found) else bits
    if bits:
        yield MultiplierSpec("square of the sum", 1, 1, upper, upper, stages)
    if upper < bits:
        yield MultiplierSpec("square of the sum's part", 1, 1, PART_BITS + 1, PART_BITS + 1, stages)
        yield MultiplierSpec("product of the sum's parts", 1, 1, upper, PART_BITS + 1, stages)
    wide = 2 if pipeline.cell > 3 else pipeline.product
    if norms.gain_bits:
        yield MultiplierSpec("gains", units, 1, norms.shifted_bits, norms.gain_bits, wide)
    yield MultiplierSpec("roots", units, 1, norms.factor_bits, norms.root.output.bits, wide)


def gate_multipliers(
    unit: Unit, units: int = 1, pipeline: Pipeline | None = None
) -> Iterator[MultiplierSpec]:
    """Yield the multipliers of ``units`` gate units except those of slopes.

    Without a pipeline they have one register.
    """
    pipeline = pipeline or Pipeline()
    for product in unit.products:
        stages = 2 if product.follows_cell and pipeline.cell > 3 else pipeline.product
        yield MultiplierSpec(product.name, units, 1, product.a_bits, product.b_bits, stages)
