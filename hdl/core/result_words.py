"""Result words: a beat whose results fill several words of the vector memory is stored word by word.

With ``parameters.words_per_beat`` words and results that are there in cycle ``t``:

==================  ====================================================================================
cycle               what is given
==================  ====================================================================================
t                   the first word, straight from the units
t + 1, ...          the others, one per cycle, from registers
==================  ====================================================================================

The array reads one word per cycle in the same order, so it waits for none of them.
"""

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib.wiring import In, Out

from rtlstm.hdl.component import Component, Struct
from rtlstm.hdl.core.layouts import result_layout, result_words
from rtlstm.hdl.primitives.pipeline import delay_event
from rtlstm.spec.manifest import Manifest


class ResultWords(Component):
    """Gives each beat's results as words of ``macs`` values.

    Latency: none for a beat's first word, one cycle more for each that follows. Throughput: one word per
    cycle, so one beat in ``words_per_beat`` cycles; the drain keeps to it.

    Members
    -------
    coming : In
        Where the results go that are there in ``parameters.announced`` cycles.
    of_units, of_rows : In(gate_units * data_bits)
        Results of units and of single rows.
    word_coming : Out
        Where the word goes that is there in ``parameters.announced`` cycles.
    word_of_units, word_of_rows : Out(macs * data_bits)
        Its values: the second for single rows, and for all words but a beat's first.
    """

    coming: Struct
    of_units: Signal
    of_rows: Signal
    word_coming: Struct
    word_of_units: Signal
    word_of_rows: Signal

    def __init__(self, manifest: Manifest) -> None:
        self._manifest = manifest
        self._values = manifest.parameters.values_stored
        bits = manifest.numerics.data_bits
        results, word = (count * bits for count in (manifest.parameters.gate_units, self._values))
        super().__init__(
            {
                "coming": In(result_layout(manifest)),
                "of_units": In(results),
                "of_rows": In(results),
                "word_coming": Out(result_words(manifest)),
                "word_of_units": Out(word),
                "word_of_rows": Out(word),
            }
        )

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
