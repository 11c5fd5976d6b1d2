"""The vector memory: h and dense results, which the array reads while they are being written.

With a word issued in cycle ``n`` (``operand`` of ``Pipeline``, ``latency`` of the memory):

=======================  ==============================================================================
cycle                    what happens
=======================  ==============================================================================
n + operand - 1          its address is at the memory ``latency`` cycles before; now its word is there
n + operand              ``operand``: the word, at the multipliers
=======================  ==============================================================================

A result that a unit gives in cycle ``t`` is part of every word that is there in cycle ``t`` or later: the
memory has what was written before its address came, and what came since goes past it. So a word may be issued
``operand - 1`` cycles before its last result is there.
"""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib.wiring import In, Out

from rtlstm.hdl.component import Component, Struct
from rtlstm.hdl.core.layouts import result_layout
from rtlstm.hdl.primitives.pipeline import delay, storage
from rtlstm.spec.inventory import memories
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.registers import Region

__all__ = ["VectorMemory"]


class VectorMemory(Component):
    """Stores results, and gives the array the words that it multiplies, those of the input among them.

    Latency: ``pipeline.operand`` cycles from ``row``; results as in the module's text. Throughput: one word
    and one beat of results per cycle.

    Members
    -------
    row : In
        Word of the memory, or of the input buffer, that is issued.
    from_input, relu, blank : In(1)
        Of that word: read the input; apply ReLU; read zeros.
    input_row : Out, input_word : In
        Clocked read of the input, whose memory is as fast as this one.
    result, next_result : In, values : In(gate_units * data_bits)
        Results, where they go, and where those of the next cycle go.
    write : In(1), write_row, write_data : In
        Store the window's word; the core is idle.
    operand : Out(macs * data_bits)
        The word, for the multipliers.
    entry : Out
        Word of the memory, for read-back.
    """

    row: Signal
    from_input: Signal
    relu: Signal
    blank: Signal
    input_row: Signal
    input_word: Signal
    result: Struct
    next_result: Struct
    values: Signal
    write: Signal
    write_row: Signal
    write_data: Signal
    operand: Signal
    entry: Signal

    def __init__(self, manifest: Manifest, row_bits: int) -> None:
        self._spec = memories(manifest)["vectors"]
        self._bits, self._units = manifest.numerics.data_bits, manifest.parameters.gate_units
        self._early = manifest.parameters.pipeline.operand - 1 - self._spec.latency
        width = manifest.regions[Region.VECTORS].width
        super().__init__(
            {
                "row": In(row_bits),
                "from_input": In(1),
                "relu": In(1),
                "blank": In(1),
                "input_row": Out(row_bits),
                "input_word": In(width),
                "result": In(result_layout(manifest)),
                "next_result": In(result_layout(manifest)),
                "values": In(self._units * self._bits),
                "write": In(1),
                "write_row": In(32),
                "write_data": In(width),
                "operand": Out(width),
                "entry": Out(width),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        read, write = storage(m, self._spec, "vectors")
        # The word's row while the memory reads it, and in the cycles after that.
        rows = [delay(m, self.row, self._early)]
        for _ in range(self._spec.latency - 1):
            rows.append(delay(m, rows[-1], 1))
        stores, arrives, parts = self._align_results(m, rows[-1])
        m.d.comb += [
            self.input_row.eq(rows[0]),
            read.addr.eq(rows[0]),
            write.addr.eq(Mux(self.write, self.write_row, self.result.row)),
            write.en.eq(stores | self.write.replicate(len(stores))),
            write.data.eq(Mux(self.write, self.write_data, Cat(parts))),
            self.entry.eq(read.data),
        ]
        word = self._overlay(m, read.data, rows, stores, parts)
        word = [Mux(now, part, old) for now, part, old in zip(arrives, parts, word, strict=True)]
        self._give_operand(m, Cat(word))
        return m

    def _align_results(self, m: Module, read_row: Value) -> tuple[Signal, Signal, list[Value]]:
        """Return the parts of a word that results are, which are stored, and which go past the memory.

        A part of a word has ``gate_units`` values. All selects are known a cycle ahead.
        """
        slots = range(self._spec.granules)
        coming = self.next_result
        chosen, counts = Signal(len(slots), reset_less=True), Signal(self._units, reset_less=True)
        stores, arrives = Signal(len(slots)), Signal(len(slots))
        here = Cat(coming.slot == index for index in slots)
        # A word's first values clear the rest of it, so that no position stays undefined.
        will_store = (here | here[0].replicate(len(slots))) & (coming.valid & coming.store).replicate(
            len(slots)
        )
        m.d.sync += [
            chosen.eq(here),
            counts.eq(coming.mask),
            stores.eq(will_store),
            arrives.eq(will_store & (coming.row == read_row).replicate(len(slots))),
        ]
        values = [self.values.word_select(unit, self._bits) for unit in range(self._units)]
        parts: list[Value] = [
            Cat(Mux(counts[unit] & chosen[slot], value, 0) for unit, value in enumerate(values))
            for slot in slots
        ]
        return stores, arrives, parts

    def _overlay(
        self, m: Module, word: Value, rows: list[Value], stores: Signal, parts: list[Value]
    ) -> list[Value]:
        """Return a word's parts, with what was written to it while the memory read it."""
        granule = self._units * self._bits
        written = [delay(m, part, 1) for part in parts]
        newest: list[tuple[Value, Value]] = []
        for row in rows:
            hits = Signal(len(stores), name="overlaps", reset_less=True)
            m.d.sync += hits.eq(stores & (self.result.row == row).replicate(len(stores)))
            before = [(delay(m, hit, 1), delay(m, data, 1)) for hit, data in newest]
            newest = list(zip(hits, written, strict=True))
            if before:
                newest = [
                    (hit | was, Mux(hit, part, data))
                    for (hit, part), (was, data) in zip(newest, before, strict=True)
                ]
        return [Mux(hit, data, word.word_select(index, granule)) for index, (hit, data) in enumerate(newest)]

    def _give_operand(self, m: Module, word: Value) -> None:
        """Choose between results and input, apply ReLU, and register."""
        flags = delay(m, Cat(self.from_input, self.relu, self.blank), self._early + self._spec.latency)
        chosen = Signal(len(word))
        m.d.comb += chosen.eq(Mux(flags[0], self.input_word, word))
        operand = Signal.like(self.operand, reset_less=True)
        for index in range(len(word) // self._bits):
            value = chosen.word_select(index, self._bits)
            hidden = flags[2] | (flags[1] & value[-1])
            m.d.sync += operand.word_select(index, self._bits).eq(Mux(hidden, 0, value))
        m.d.comb += self.operand.eq(operand)
