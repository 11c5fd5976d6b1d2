"""The core: all parts of the datapath, wired together."""

from collections.abc import Mapping
from dataclasses import dataclass

from amaranth.hdl import Cat, Const, Module, Mux, ResetSignal, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.data import View

from rtlstm.hdl.component import Component, In, Interface, Out, Ports, Struct, instance_of
from rtlstm.hdl.core.array import MacArray, any_of
from rtlstm.hdl.core.cell_unit import CellUnit
from rtlstm.hdl.core.drain import Drain
from rtlstm.hdl.core.ends import Ends
from rtlstm.hdl.core.gate_unit import GateUnit
from rtlstm.hdl.core.lane import lane_modules
from rtlstm.hdl.core.layouts import (
    DelayLine,
    beat_layout,
    from_number,
    input_beats,
    output_beats,
    token_layout,
    upper_sum_bits,
)
from rtlstm.hdl.core.memory_window import CoreBus, MemoryWindow, WeightReader
from rtlstm.hdl.core.normaliser import Normaliser, program_bits
from rtlstm.hdl.core.preactivation import Preactivation
from rtlstm.hdl.core.program_store import CorePart, ProgramPart, program_store
from rtlstm.hdl.core.token_table import TokenTable
from rtlstm.hdl.core.unit import Unit
from rtlstm.hdl.core.vector_memory import ResultWords, VectorMemory
from rtlstm.hdl.primitives.pipeline import copies, delay, delay_event
from rtlstm.spec.cells.unit import FusedUnit
from rtlstm.spec.inventory import memories
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.registers import Region

DRAINED = ("blocks", "lanes", "shift_row", "addend_row", "next_beat", "cell_row", "cell_zero_state")
"""What gate units see of the drain."""


@dataclass
class _Access:
    """A row of a memory behind the window."""

    row: Signal
    bank: Signal
    write: Signal
    write_data: Signal


class CorePorts(Ports):
    """The ports of a core; see ``docs/ports.md``."""

    x: stream.Interface = In(input_beats)
    y: stream.Interface = Out(output_beats)
    bus: CoreBus = In(CoreBus)
    shape: Signal = Out(lambda manifest: program_store(manifest).told.get("shape"))
    stopped: Signal = Out(lambda manifest: program_store(manifest).told.get("stopped"))
    """Only where a program can be loaded."""


class CoreInstance(CorePorts, Interface):
    """Wires to the ports of a core's module."""


def core_instance(m: Module, manifest: Manifest, reset: Value) -> CoreInstance:
    """Add an instance of the module of a build's core; return its ports."""
    core = CoreInstance(CoreInstance.signature_for(manifest), path=("core",))
    m.submodules.core = instance_of(manifest.name, core, reset)
    return core


class CoreSide(Ports):
    """The ports of what drives a core, from its side."""

    x: stream.Interface = Out(input_beats)
    y: stream.Interface = In(output_beats)
    bus: CoreBus = Out(CoreBus)
    shape: Signal = In(lambda manifest: program_store(manifest).told.get("shape"))
    stopped: Signal = In(lambda manifest: program_store(manifest).told.get("stopped"))
    """Only where a program can be loaded."""


class Core(CorePorts, CorePart):
    """An LSTM network in hardware, as a manifest describes it.

    Latency and throughput: ``manifest.cycles``, exact. Results: :class:`rtlstm.sim.golden.Golden`,
    exact. Ports: ``docs/ports.md``.

    Parameters
    ----------
    manifest
        The build.
    ends
        Where the input comes from and the results go: those of a core that takes steps, or whole sequences.
    """

    def __init__(self, manifest: Manifest, ends: Ends) -> None:
        self._ends = ends
        self._sequencer, self._input, self._output = ends.sequencer, ends.source, ends.sink
        super().__init__(manifest)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        manifest = self._manifest
        self._ends.add_input(m)
        self._tokens = TokenTable(manifest) if manifest.parameters.token_rows else None
        m.submodules.array = self._array = MacArray(manifest)
        m.submodules.drain = self._drain = Drain(manifest)
        units = range(manifest.parameters.gate_units)
        self._preactivations = [Preactivation(manifest) for _ in units]
        self._gate_units = [make_unit(manifest) for _ in units]
        for index in units:
            m.submodules[f"preactivation{index}"] = self._preactivations[index]
            m.submodules[f"gate_unit{index}"] = self._gate_units[index]
        self._normaliser = self._normalise(m) if manifest.numerics.norms else None
        self._ends.add_output(m)
        m.submodules.weight_reader = self._weight_reader = WeightReader(manifest)
        # Registers where each word comes from that the window reads, and as many where they meet.
        self._read_registers = min(manifest.parameters.pipeline.window, 1)
        m.submodules.window = self._window = MemoryWindow(
            manifest, self._weight_reader.cycles + 2 * self._read_registers
        )
        self._opened = Signal()
        distance = manifest.parameters.pipeline.window
        self._access = self._registered(m, self._window, "window_stage") if distance > 1 else self._window
        self._array_access = self._registered(m, self._access, "array_access") if distance else self._window
        self._result = self._gate_units[0].result
        tokens = DelayLine(
            m, token_layout(manifest), self._sequencer.token, "token", manifest.parameters.summed
        )
        self._feed_array(m, self._vectors(m), tokens)
        # Copies of what the drain gives are a cycle behind it.
        drained = tokens.at(manifest.parameters.summed - 3 - manifest.parameters.unit_copies)
        m.d.comb += self._drain.token.eq(drained)
        if manifest.parameters.lane_sums:
            m.d.comb += self._drain.token.last.eq(drained.last & ~drained.keeps)
        self._drain_array(m)
        self._ports(m)
        self._control(m)
        self._memory_window(m, self._load_program(m))
        return m

    def _registered(self, m: Module, source: MemoryWindow | _Access, name: str) -> _Access:
        """Register what the window gives: it is far from most memories."""
        access = _Access(
            row=Signal.like(source.row, reset_less=True, name=f"{name}_row"),
            bank=Signal.like(source.bank, reset_less=True, name=f"{name}_bank"),
            write=Signal.like(source.write, name=f"{name}_write"),
            write_data=Signal.like(source.write_data, reset_less=True, name=f"{name}_write_data"),
        )
        m.d.sync += [
            access.row.eq(source.row),
            access.bank.eq(source.bank),
            access.write.eq(source.write),
            access.write_data.eq(source.write_data),
        ]
        return access

    def _vectors(self, m: Module) -> Value:
        """Add the memory of h and dense results; return what the issued word multiplies."""
        sequencer, access, bits = self._sequencer, self._access, self._manifest.numerics.data_bits
        m.submodules.vectors = self._vector_memory = vectors = VectorMemory(self._manifest)
        m.d.comb += [
            vectors.row.eq(sequencer.vector_row),
            vectors.from_input.eq(sequencer.from_input),
            vectors.relu.eq(sequencer.relu),
            # While the window is open, the array multiplies what reads weights back.
            vectors.blank.eq(sequencer.blank | self._opened),
            vectors.unit.eq(self._weight_reader.unit),
            self._input.row.eq(vectors.input_row),
            vectors.input_word.eq(self._input.word),
            vectors.write.eq(access.write[Region.VECTORS]),
            vectors.write_row.eq(access.row),
            vectors.write_data.eq(access.write_data),
        ]
        # What has more bits is an output, and is not stored.
        results: dict[str, Value | Struct] = {
            "coming": self._gate_units[0].coming,
            "of_units": Cat(unit.of_units[:bits] for unit in self._gate_units),
            "of_rows": Cat(unit.of_rows[:bits] for unit in self._gate_units)
            if self._manifest.stores_single_rows
            else Const(0),
        }
        if self._manifest.parameters.words_per_beat > 1:
            m.submodules.result_words = words = ResultWords(self._manifest)
            m.d.comb += [getattr(words, name).eq(value) for name, value in results.items()]
            results = {name: getattr(words, f"word_{name}") for name in results}
        m.d.comb += [getattr(vectors, name).eq(value) for name, value in results.items()]
        return vectors.operand

    def _feed_array(self, m: Module, vector: Value, tokens: DelayLine) -> None:
        """Give the array what it multiplies, and the window's writes."""
        # Weights come two cycles after their address (three, with a register behind), the vector later.
        array_delay = min(self._manifest.parameters.pipeline.operand - 2, 1)
        # Lanes see all of this a cycle later if they have copies.
        array, access, parameters = self._array, self._access, self._manifest.parameters
        summed = parameters.summed - parameters.lane_copies
        # Reset ends what was being added, and so does the sequencer before it begins anew.
        ends, before = Signal(init=1), tokens.at(summed - 1)
        abandoned = delay(m, self._sequencer.abandons, 1)
        m.d.sync += ends.eq((before.valid & before.last) | abandoned)
        m.d.comb += [
            array.address.eq(delay(m, self._sequencer.weight_row, array_delay)),
            array.vector.eq(vector),
            array.add.eq(tokens.at(summed).valid),
            array.ends.eq(ends),
            array.write.eq(access.write[Region.WEIGHTS]),
            array.bank.eq(access.bank),
            array.row.eq(access.row),
            array.write_data.eq(access.write_data),
        ]
        if parameters.lane_sums:
            coming = tokens.at(summed - 2)
            keeps, continues = Signal(), Signal()
            m.d.sync += [
                keeps.eq(before.valid & before.last & before.keeps),
                continues.eq(coming.valid & coming.first & coming.continues),
            ]
            m.d.comb += [
                array.sum_row.eq(coming.sum_row),
                array.continues.eq(continues),
                array.keeps.eq(keeps),
            ]

    def _drain_array(self, m: Module) -> None:
        """Deal the lanes' totals to the gate units: unit ``j`` of each block goes to the ``j``-th."""
        four_sums = 4 * self._manifest.numerics.accumulator.bits
        parameters, units = self._manifest.parameters, self._manifest.parameters.gate_units
        layout = beat_layout(self._manifest)
        drained: Mapping[str, Value] = {name: Value.cast(getattr(self._drain, name)) for name in DRAINED}
        if parameters.unit_copies:
            # Copies carry no reset: the beat of the cycle before must not pass one.
            beat = View(layout, Signal(layout, name="copied_beat"))
            valid = self._drain.next_beat.valid & ~ResetSignal()
            m.d.comb += [beat.eq(self._drain.next_beat), beat.valid.eq(valid)]
            drained = {**drained, "next_beat": Value.cast(beat)}
        for index, (unit, gates) in enumerate(zip(self._preactivations, self._gate_units, strict=True)):
            mine = range(index, self._manifest.parameters.units, units)
            seen = copies(m, drained, f"drain{index}", parameters, parameters.unit_copies)
            m.d.comb += [
                unit.held.eq(Cat(self._array.held.word_select(number, four_sums) for number in mine)),
                unit.blocks.eq(seen["blocks"]),
                unit.lanes.eq(seen["lanes"]),
                unit.shift_row.eq(seen["shift_row"]),
                unit.addend_row.eq(seen["addend_row"]),
                unit.next_beat.eq(seen["next_beat"]),
                gates.next_beat.eq(seen["next_beat"]),
                gates.next_beat.mask.eq(View(layout, seen["next_beat"]).mask[index:]),
                gates.cell_row.eq(seen["cell_row"]),
                gates.negative.eq(unit.negative),
                gates.magnitudes.eq(unit.magnitudes),
                gates.next_negative.eq(unit.next_negative),
                gates.next_magnitudes.eq(unit.next_magnitudes),
            ]
            if upper_sum_bits(self._manifest):
                m.d.comb += gates.upper.eq(unit.upper)
            if self._manifest.ends_passes_in_both_widths:
                m.d.comb += gates.last_pass.eq(self._ends.last_pass)
            gates.connect_beat(m, unit.unit_constants, seen["cell_zero_state"])

    def _normalise(self, m: Module) -> Normaliser:
        """Add what computes norms of results."""
        m.submodules.normaliser = normaliser = Normaliser(self._manifest)
        numerics, first = self._manifest.numerics, self._gate_units[0]
        m.d.comb += [
            normaliser.result.eq(first.result),
            normaliser.values.eq(Cat(unit.value[: numerics.data_bits] for unit in self._gate_units)),
            normaliser.token.eq(self._sequencer.token),
        ]
        for index, unit in enumerate(self._gate_units):
            m.d.comb += unit.normed.eq(normaliser.normed.word_select(index, numerics.result_bits))
        return normaliser

    def _ports(self, m: Module) -> None:
        if self._tokens is None:
            wiring.connect(m, wiring.flipped(self.x), self._input.x)
        else:
            m.submodules.token_table = self._tokens
            wiring.connect(m, wiring.flipped(self.x), self._tokens.x)
            wiring.connect(m, self._tokens.y, self._input.x)
        wiring.connect(m, self._output.y, wiring.flipped(self.y))
        width = len(self._output.values) // len(self._gate_units)
        m.d.comb += [
            self._output.result.eq(self._result),
            self._output.values.eq(Cat(unit.value[:width] for unit in self._gate_units)),
        ]
        wiring.connect(m, wiring.flipped(self.bus), self._window.bus)

    def _load_program(self, m: Module) -> Value:
        """Let the window write the program; what is loaded of a step goes to whoever needs it.

        Returns the row of the program at which the window looks.
        """
        program, window, array_access = self._program, self._window, self._array_access
        sequencer, drain, operations = self._sequencer, self._drain, self._manifest.capacity.operations
        # Each part's row comes from as far as what is written there.
        parts: list[tuple[ProgramPart | Normaliser, _Access | MemoryWindow]] = [
            (sequencer, self._access),
            (drain, array_access),
        ]
        if self._normaliser is not None and program_bits(self._manifest):
            parts.append((self._normaliser, array_access))
            m.d.comb += self._normaliser.program_window.eq(self._opened)
        low = 0
        for part, access in parts:
            writes = access.write[Region.PROGRAM] & (access.row < operations)
            data = access.write_data[low:]
            program.drive(m, [part.program_write.eq(writes), part.program_data.eq(data)])
            low += len(part.program_data)
        loaded = program.load(
            m,
            touched=window.touches,
            write=array_access.write[Region.PROGRAM],
            row=array_access.row,
            data=array_access.write_data,
        )
        self._ends.connect_program(m, loaded)
        looks = self._opened & (window.region == Region.PROGRAM)
        told = [
            getattr(part, name).eq(getattr(loaded, name)) for part in (self, window) for name in program.told
        ]
        program.drive(m, [sequencer.program_window.eq(looks), *told])
        words = Cat(part.program_word for part, _ in parts)
        fields = program.fields_of(
            loaded.fields, (array_access.row - operations)[: self._manifest.parameters.network_bits]
        )
        return Mux(array_access.row < operations, words, fields)

    def _control(self, m: Module) -> None:
        """Wire sequencer, ports, window and counters."""
        sequencer, window = self._sequencer, self._window
        access = self._access
        # From the bus to the sequencer is far, and to every address register: the window opens two
        # cycles later. While the bus asks, no step begins: what was idle then is idle now. A step
        # that comes when it does not ask any more begins at once.
        granted, asked, wanted, idle = (Signal(name=name) for name in ("granted", "asked", "wanted", "idle"))
        # Nor does one begin before the sequencer hears that what was stored makes partial sums invalid.
        held = Signal()
        asks = self._ends.window_wanted(window)
        at_rest: Value = sequencer.idle
        busy: Value = ~sequencer.idle | self._ends.waiting
        if self._tokens is not None:
            # A token that is being looked up reads the memory that the window is to read.
            at_rest &= ~self._tokens.busy
            busy |= self._tokens.busy
            m.d.comb += self._tokens.held.eq(wanted)
        m.d.sync += [
            asked.eq(asks),
            wanted.eq(asked & asks),
            held.eq((asked & asks) | window.stores),
            idle.eq(wanted & at_rest),
            granted.eq(window.active & asked & wanted & idle),
            self._opened.eq(window.opens & asked & wanted & idle),
        ]
        since = self._ends.since(m, window)
        self._ends.connect(m, window)
        m.d.comb += [
            sequencer.result_last.eq(self._drain.result_last),
            sequencer.result_word.eq(self._drain.result_word),
            sequencer.window.eq(self._opened),
            sequencer.window_wanted.eq(held),
            sequencer.window_row.eq(access.row),
            sequencer.reset_stream.eq(window.reset_stream),
            sequencer.state_written.eq(window.state_written),
            sequencer.weights_written.eq(window.weights_written),
            sequencer.command_stream.eq(from_number(self._manifest, window.stream)),
            *([sequencer.handed_over.eq(window.handed_over)] if self._program.several else []),
            window.busy.eq(busy),
            window.granted.eq(granted),
            window.flags.eq(sequencer.flags),
            window.step_done.eq(self._output.pushed_last),
            # From registers: the units are far from each other.
            window.saturated.eq(sum(delay_event(m, unit.saturated, 1) for unit in self._gate_units)),
            window.since.eq(since),
        ]

    def _memory_window(self, m: Module, program_entry: Value) -> None:
        """Connect the window to every memory; ``program_entry`` is that of the program."""
        window, access, drain = self._window, self._array_access, self._drain
        opened = self._opened
        distance = self._manifest.parameters.pipeline.window
        # Units that are far away hear of the open window from a register, a cycle later.
        later = min(distance, 1)
        zeroes: Value = opened
        if any(memory.pairs for memory in memories(self._manifest).values()):
            # A table with two read ports is written at the first one's address, a cycle later than others. So
            # the argument is 0 then, too: what the window stores arrives here in the second of these cycles.
            zeroes = opened | delay_event(m, window.stores, min(distance, 2) - later)
        zeroes = delay_event(m, zeroes, later)
        table_row = Signal.like(access.row)
        m.d.sync += table_row.eq(Mux(opened | zeroes, access.row, 0))
        reader = self._weight_reader
        m.d.comb += [
            drain.window.eq(opened),
            drain.window_row.eq(access.row),
            drain.window_block.eq(reader.block),
            reader.start.eq(window.multiplies),
            reader.bank.eq(access.bank),
            reader.totals.eq(Cat(unit.totals for unit in self._preactivations)),
        ]
        banked = (Region.PARTIALS, Region.SHIFTS, Region.CELLS)
        # Which bank is looked at stands in a register, too: it chooses write enables and whole words.
        units = len(self._gate_units)
        chosen_bank = Signal(units)
        m.d.comb += chosen_bank.eq(Cat(self._access.bank == index for index in range(units)))
        here = delay(m, chosen_bank, min(distance, 1)) if units > 1 else Const(1)
        words: dict[Region, list[Value]] = {region: [] for region in banked}
        for index, (unit, gates) in enumerate(zip(self._preactivations, self._gate_units, strict=True)):
            selected = here[index]
            m.d.comb += [
                unit.window.eq(zeroes),
                unit.window_row.eq(access.row),
                unit.write_shifts.eq(access.write[Region.SHIFTS] & selected),
                unit.write_partials.eq(access.write[Region.PARTIALS] & selected),
                unit.write_data.eq(access.write_data),
                gates.window.eq(zeroes),
                gates.window_row.eq(access.row),
                gates.table_row.eq(table_row),
                gates.write.eq(access.write),
                gates.write[Region.CELLS].eq(access.write[Region.CELLS] & selected),
                gates.write_data.eq(access.write_data),
            ]
            for region, word in zip(banked, (unit.partials, unit.shifts, gates.entries.cells), strict=True):
                words[region].append(Mux(selected, word, 0))
            gates.connect_bank(m, access.bank)
        if (normaliser := self._normaliser) is not None:
            m.d.comb += [
                normaliser.window.eq(zeroes),
                normaliser.window_row.eq(access.row),
                normaliser.window_bank.eq(access.bank),
                normaliser.table_row.eq(table_row),
                normaliser.write.eq(access.write[Region.TABLES]),
                normaliser.write_shifts.eq(Cat(access.write[Region.SHIFTS] & bank for bank in here)),
                normaliser.write_data.eq(access.write_data),
            ]
        if (tokens := self._tokens) is not None:
            m.d.comb += [
                tokens.window.eq(opened),
                tokens.window_row.eq(access.row),
                tokens.write.eq(access.write[Region.TOKENS]),
                tokens.write_data.eq(access.write_data),
            ]
        tables = self._gate_units[0].entries
        entries = {
            Region.WEIGHTS: reader.weights,
            **{region: any_of(found) for region, found in words.items()},
            Region.VECTORS: self._vector_memory.entry,
            Region.PROGRAM: program_entry,
            **({Region.TOKENS: tokens.entry} if tokens is not None else {}),
        }
        regions = self._manifest.regions
        for region in regions:
            if region not in entries:
                entries[region] = getattr(tables, region.name.lower(), Const(0, 1))
        if normaliser is not None:
            entries[Region.TABLES] |= normaliser.entry
        words_read: list[Value] = []
        for region, entry in entries.items():
            if region not in regions:
                continue
            selected = Signal(reset_less=True, name=f"reads_{region.name.lower()}")
            m.d.sync += selected.eq(window.region == int(region))
            words_read.append(Mux(selected, delay(m, entry, self._read_registers), 0))
        chosen = Signal.like(window.read_data)
        m.d.comb += [
            chosen.eq(any_of(words_read)),
            window.read_data.eq(delay(m, chosen, self._read_registers)),
        ]


def make_unit(manifest: Manifest) -> Unit:
    """Return a gate unit: the fused one, or one with a pipeline for each cell."""
    return (GateUnit if isinstance(manifest.numerics.unit, FusedUnit) else CellUnit)(manifest)


def part_modules(manifest: Manifest) -> dict[str, Component]:
    """The Verilog modules that parts of a core are instances of, by name: one for all that are equal."""
    if manifest.spatial is not None:
        return {}
    parts = (*lane_modules(manifest), Preactivation(manifest), make_unit(manifest))
    return {part.module: part.definition() for part in parts}
