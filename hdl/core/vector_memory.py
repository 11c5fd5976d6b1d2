"""The vector memory: h and dense results, which the array reads while they are being written.

A word is issued in cycle ``n``. With ``operand`` of ``Pipeline`` and the memory's ``latency``, it is used in
cycle ``use = n + operand - 1``, and ``behind = operand - 1 - latency`` (0 or 1) registers follow the memory:

=======================  ==============================================================================
cycle                    what happens
=======================  ==============================================================================
n                        its row is the memory's address
use - latency            it is compared with those of results: of the ones that will be there up to
                         ``use``, and of the ones that were
use                      its word is there, from the memory or from beside it
use + 1                  ``operand``: the word, at the multipliers
=======================  ==============================================================================

A result that a unit gives in cycle ``t`` is part of every word whose ``use`` is ``t`` or later. It is written
in cycle ``t + 1``, so the memory has what came ``operand + 1`` cycles before or earlier; a word that changed
since goes past it, whole. So a word may be issued ``operand - 1`` cycles before its last result is there.
"""

from dataclasses import dataclass

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value

from rtlstm.hdl.component import Component, In, Out, Struct
from rtlstm.hdl.core.array import any_of
from rtlstm.hdl.core.layouts import DelayLine, result_layout, result_words, vector_bits
from rtlstm.hdl.core.program_store import CorePart
from rtlstm.hdl.primitives.pipeline import delay, delay_event, storage
from rtlstm.spec.inventory import memories
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.registers import Region


@dataclass(frozen=True)
class _Filled:
    """What results fill of a word, as it is known in the cycle before they are there."""

    stores: Value
    """Whether the word is stored at all."""
    parts: Value
    """Its parts that are written, a bit each: the one of the results, and all with a word's first results."""
    by_units: Value
    """Its values that results of units are, a bit each."""
    by_rows: Value
    """Its values that results of single rows are, a bit each."""


class VectorMemory(Component):
    """Stores results, and gives the array the words that it multiplies, those of the input among them.

    Latency: ``pipeline.operand`` cycles from ``row``; results as in the module's text. Throughput: one word
    and one beat of results per cycle.
    """

    row: Signal = In(vector_bits)
    """Word of the memory, or of the input buffer, that is issued."""
    from_input: Signal = In(1)
    relu: Signal = In(1)
    blank: Signal = In(1)
    """That word is read from the input; with ReLU; as zeros."""
    input_row: Signal = Out(vector_bits)
    input_word: Signal = In(lambda manifest: manifest.regions[Region.VECTORS].width)
    """Clocked read of the input, whose memory is as fast as this one."""
    coming: Struct = In(result_words)
    """Where the results go that are there in ``latency`` cycles."""
    of_units: Signal = In(lambda manifest: manifest.parameters.values_stored * manifest.numerics.data_bits)
    of_rows: Signal = In(lambda manifest: manifest.parameters.values_stored * manifest.numerics.data_bits)
    """Results of units and of single rows."""
    write: Signal = In(1)
    write_row: Signal = In(32)
    write_data: Signal = In(lambda manifest: manifest.regions[Region.VECTORS].width)
    """Store the window's word; the core is idle."""
    unit: Signal = In(lambda manifest: manifest.regions[Region.VECTORS].width // manifest.numerics.data_bits)
    """With a blank word: makes values of ``operand`` 1, two cycles later."""
    operand: Signal = Out(lambda manifest: manifest.regions[Region.VECTORS].width)
    """The word, for the multipliers."""
    entry: Signal = Out(lambda manifest: manifest.regions[Region.VECTORS].width)
    """Word of the memory, for read-back."""

    def __init__(self, manifest: Manifest) -> None:
        self._spec = memories(manifest)["vectors"]
        self._layout = result_words(manifest)
        self._bits, self._values = manifest.numerics.data_bits, manifest.parameters.values_stored
        self._behind = manifest.parameters.pipeline.operand - 1 - self._spec.latency
        super().__init__(manifest)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        read, write = storage(m, self._spec, "vectors")
        latency, behind = self._spec.latency, self._behind
        # ``targets.at(k)`` is that of the results there ``latency - k`` cycles from now.
        targets = DelayLine(m, self._layout, self.coming, "target", latency + behind + 1)
        # All is known a cycle before the results; with a latency of 2, a register follows.
        filled = self._decode(m, targets.at(max(0, latency - 2)), min(1, latency - 1))
        filling, stored = self._fill(m, filled)
        m.d.comb += [
            self.input_row.eq(self.row),
            read.addr.eq(self.row),
            write.addr.eq(Mux(self.write, self.write_row, targets.at(latency + 1).row)),
            write.en.eq(stored | self.write.replicate(len(stored))),
            write.data.eq(Mux(self.write, self.write_data, filling)),
            self.entry.eq(read.data),
        ]
        # Whether results of ``use``, of the cycle before, and so on, are of the word that is being read.
        row, compared = delay(m, self.row, behind), [targets.at(age) for age in range(latency + behind + 2)]
        same = [target.valid & target.store & (target.row == row) for target in compared]
        hits = [delay(m, hit, latency - 1) for hit in same]
        self._give_operand(m, read.data, filled, filling, hits)
        return m

    def _decode(self, m: Module, target: Struct, stages: int) -> _Filled:
        """Return what a target's results fill, ``stages`` cycles after it.

        A part of a word has ``values_stored`` values. Results fill a word part by part, from the first on.
        """
        slots = Cat(target.slot == slot for slot in range(self._spec.granules))
        # A word's first values clear the rest of it, so that no position stays undefined.
        written = slots | (target.slot == 0).replicate(len(slots))
        here = Cat(slot & counts for slot in slots for counts in target.mask)
        return _Filled(
            stores=delay_event(m, target.valid & target.store, stages),
            parts=delay(m, written, stages),
            by_units=delay(m, here & (~target.single).replicate(len(here)), stages),
            by_rows=delay(m, here & target.single.replicate(len(here)), stages),
        )

    def _fill(self, m: Module, filled: _Filled) -> tuple[Signal, Value]:
        """Return the word that results fill, a cycle after them, and which of its parts are stored then.

        What a memory gives of a word in which a part is being written is undefined, so all of it is kept.
        """
        stores, keeps = Signal(len(filled.parts)), Signal(len(filled.parts), reset_less=True)
        m.d.sync += [
            stores.eq(filled.parts & filled.stores.replicate(len(stores))),
            keeps.eq(~filled.parts),
        ]
        filling = Signal(self._spec.width, reset_less=True)
        results = self._results(m, filled, Const(1))
        with m.If(stores.any()):
            m.d.sync += filling.eq(results | (filling & self._masks(keeps)))
        return filling, delay_event(m, stores, 1)

    def _give_operand(
        self, m: Module, word: Value, filled: _Filled, filling: Signal, hits: list[Value]
    ) -> None:
        """Choose between results, memory and input, apply ReLU, and register.

        ``hits`` say from which cycles on, counted back from ``use``, results belong to the word. All is
        decided a cycle ahead, so that a result passes two LUTs on its way.
        """
        flags = Cat(self.from_input, self.relu, self.blank)
        from_input, relu, blank = delay(m, flags, self._behind + self._spec.latency - 1)
        reads = ~from_input & ~blank
        arrives, fills, *misses = hits
        earlier = Signal(len(filled.parts), name="filled", reset_less=True)
        rectifies = Signal(reset_less=True)
        m.d.sync += [
            earlier.eq(
                Mux(arrives, ~filled.parts, fills.replicate(len(earlier))) & reads.replicate(len(earlier))
            ),
            rectifies.eq(relu),
        ]
        # The word as the results before the last left it, if the memory does not give these yet; or ones.
        missing = Signal(self._spec.width, reset_less=True)
        left: Value = Const(0, len(filling))
        known = [delay(m, filling, age) for age in range(len(misses))]
        for hit, word_then in reversed([*zip(misses, known, strict=True)]):
            left = Mux(hit, word_then, left)
        ones = Cat(Cat(one, Const(0, self._bits - 1)) for one in self.unit)
        m.d.sync += missing.eq(Mux(reads & ~arrives & ~fills, left, 0) | ones)
        stored, enters = reads & ~any_of(hits), from_input & ~blank
        if self._behind:
            read = delay(m, Mux(from_input, self.input_word, word), 1) & _registered(m, stored | enters, word)
        else:
            read = (word & _registered(m, stored, word)) | (self.input_word & _registered(m, enters, word))
        chosen = Signal(len(word))
        m.d.comb += chosen.eq(
            self._results(m, filled, reads & arrives) | (filling & self._masks(earlier)) | read | missing
        )
        operand = Signal.like(self.operand, reset_less=True)
        for index in range(len(word) // self._bits):
            value = chosen.word_select(index, self._bits)
            hidden = rectifies & value[-1]
            m.d.sync += operand.word_select(index, self._bits).eq(Mux(hidden, 0, value))
        m.d.comb += self.operand.eq(operand)

    def _results(self, m: Module, filled: _Filled, wanted: Value) -> Value:
        """Return a word with the results in their part, and 0 elsewhere, or if not ``wanted`` before."""
        word: Value = Const(0, self._spec.width)
        for values, here in ((self.of_units, filled.by_units), (self.of_rows, filled.by_rows)):
            takes = delay(m, here & wanted.replicate(len(here)), 1)
            word |= values.replicate(self._spec.granules) & _spread(takes, self._bits)
        return word

    def _masks(self, parts: Value) -> Value:
        """Bits of a word of which these parts are chosen."""
        return _spread(parts, self._values * self._bits)


def _registered(m: Module, flag: Value, of: Value) -> Value:
    """The flag of the cycle before, once for each bit of ``of``."""
    return delay(m, flag, 1).replicate(len(of))


def _spread(flags: Value, bits: int) -> Value:
    return Cat(flag.replicate(bits) for flag in flags)


def _results(manifest: Manifest) -> int:
    return manifest.parameters.gate_units * manifest.numerics.data_bits


def _values(manifest: Manifest) -> int:
    return manifest.parameters.values_stored * manifest.numerics.data_bits


class ResultWords(CorePart):
    """Gives each beat's results as words of ``macs`` values, where they fill several.

    With ``parameters.words_per_beat`` words and results that are there in cycle ``t``:

    ==================  ====================================================================================
    cycle               what is given
    ==================  ====================================================================================
    t                   the first word, straight from the units
    t + 1, ...          the others, one per cycle, from registers
    ==================  ====================================================================================

    The array reads one word per cycle in the same order, so it waits for none of them.

    Latency: none for a beat's first word, one cycle more for each that follows. Throughput: one word per
    cycle, so one beat in ``words_per_beat`` cycles; the drain keeps to it.
    """

    coming: Struct = In(result_layout)
    """Where the results go that are there in ``parameters.announced`` cycles."""
    of_units: Signal = In(_results)
    of_rows: Signal = In(_results)
    """Results of units and of single rows."""
    word_coming: Struct = Out(result_words)
    """Where the word goes that is there in ``parameters.announced`` cycles."""
    word_of_units: Signal = Out(_values)
    word_of_rows: Signal = Out(_values)
    """Its values: the second for single rows, and for all words but a beat's first."""

    def __init__(self, manifest: Manifest) -> None:
        self._values = manifest.parameters.values_stored
        super().__init__(manifest)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        begins = self.coming.valid & self.coming.store
        self._address(m, begins)
        self._give(m, delay_event(m, begins, self._manifest.parameters.announced))
        return m

    def _address(self, m: Module, begins: Value) -> None:
        """Say where words go: a beat's first as announced, the others to the rows behind it."""
        row = Signal.like(self.coming.row, reset_less=True, name="next_row")
        # Of the words that follow, the values that count; a word of which none does is not stored.
        mask = Signal(len(self.coming.mask) - self._values, name="next_mask")
        word = self.word_coming
        m.d.comb += [
            *(word[name].eq(self.coming[name]) for name in word.shape().members if name != "mask"),
            word.valid.eq(begins | mask[: self._values].any()),
            word.store.eq(word.valid),
            word.row.eq(Mux(begins, self.coming.row, row)),
            word.mask.eq(Mux(begins, self.coming.mask[: self._values], mask[: self._values])),
            word.single.eq(self.coming.single | ~begins),
        ]
        m.d.sync += [
            row.eq(word.row + 1),
            mask.eq(Mux(begins, self.coming.mask[self._values :], mask >> self._values)),
        ]

    def _give(self, m: Module, arrive: Value) -> None:
        """Give a beat's first word as it comes, and keep the others for the cycles after it."""
        size, kept = len(self.word_of_units), Value.cast(self.of_units)
        if self._manifest.stores_single_rows:
            single = delay_event(m, self.coming.single, self._manifest.parameters.announced)
            kept = Mux(single, self.of_rows, self.of_units)
        held = Signal(len(self.of_units) - size, reset_less=True)
        m.d.sync += held.eq(Mux(arrive, kept[size:], held >> size))
        m.d.comb += [
            self.word_of_units.eq(self.of_units[:size]),
            self.word_of_rows.eq(Mux(arrive, self.of_rows[:size], held[:size])),
        ]
