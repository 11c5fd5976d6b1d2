"""The vector memory: h and dense results, which the array reads while they are being written.

With a word issued in cycle ``n`` (``operand`` of ``Pipeline``, ``latency`` of the memory):

=======================  ==============================================================================
cycle                    what happens
=======================  ==============================================================================
n + operand - 1          its address is at the memory ``latency`` cycles before; now its word is there
n + operand              ``operand``: the word, at the multipliers
=======================  ==============================================================================

A result that a unit gives in cycle ``t`` is part of every word that is there in cycle ``t`` or later: the
memory has what was written before its address came, and a word that was written since goes past it, whole.
So a word may be issued ``operand - 1`` cycles before its last result is there.
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
        stores, arrives, filled, written = self._align_results(m, rows[-1])
        m.d.comb += [
            self.input_row.eq(rows[0]),
            read.addr.eq(rows[0]),
            write.addr.eq(Mux(self.write, self.write_row, self.result.row)),
            write.en.eq(stores | self.write.replicate(len(stores))),
            write.data.eq(Mux(self.write, self.write_data, filled)),
            self.entry.eq(read.data),
        ]
        older = self._overlay(m, read.data, rows, stores.any(), written)
        self._give_operand(m, Mux(arrives, filled, older))
        return m

    def _align_results(self, m: Module, read_row: Value) -> tuple[Signal, Signal, Signal, Signal]:
        """Return which parts of a word are stored, whether it goes past the memory, and the whole word.

        A part of a word has ``gate_units`` values. Results fill a word part by part, from the first on. What
        a memory gives of a word in which a part is being written is undefined, so all of the word is kept
        beside it. All selects are known a cycle ahead. Last comes the word as it was a cycle before.
        """
        slots = range(self._spec.granules)
        coming = self.next_result
        chosen, counts = Signal(len(slots), reset_less=True), Signal(self._units, reset_less=True)
        stores, arrives = Signal(len(slots)), Signal()
        here = Cat(coming.slot == index for index in slots)
        stored = coming.valid & coming.store
        m.d.sync += [
            chosen.eq(here),
            counts.eq(coming.mask),
            # A word's first values clear the rest of it, so that no position stays undefined.
            stores.eq((here | here[0].replicate(len(slots))) & stored.replicate(len(slots))),
            arrives.eq(stored & (coming.row == read_row)),
        ]
        values = [self.values.word_select(unit, self._bits) for unit in range(self._units)]
        part = Cat(Mux(counts[unit], value, 0) for unit, value in enumerate(values))
        filling = Signal(self._spec.width, reset_less=True)
        before = [Mux(chosen[0], 0, filling.word_select(slot, len(part))) for slot in slots]
        filled = Signal.like(filling)
        m.d.comb += filled.eq(Cat(Mux(chosen[slot], part, before[slot]) for slot in slots))
        with m.If(stores.any()):
            m.d.sync += filling.eq(filled)
        return stores, arrives, filled, filling

    def _overlay(self, m: Module, word: Value, rows: list[Value], stores: Value, written: Value) -> Value:
        """Return the memory's word, or what it became while the memory read it."""
        newest: tuple[Value, Value] | None = None
        for row in rows:
            hit = Signal(name="overlaps", reset_less=True)
            m.d.sync += hit.eq(stores & (self.result.row == row))
            if newest is None:
                newest = hit, written
            else:
                was, data = (delay(m, value, 1) for value in newest)
                newest = hit | was, Mux(hit, written, data)
        assert newest is not None
        return Mux(newest[0], newest[1], word)

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
