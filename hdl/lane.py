"""A lane: one weight bank, ``macs`` multipliers, an adder tree and an accumulator."""

from amaranth.hdl import Module, Mux, Signal, Value, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from rtlstm.hdl.pipeline import delay, read_twice, storage
from rtlstm.spec.manifest import Manifest

__all__ = ["Lane"]


class Lane(wiring.Component):
    """Dot product of one row part with a vector, one word of ``macs`` values per cycle.

    Latency: with the address in cycle ``n``, the word's sum of products stands in a register in
    cycle ``n + pipeline.summed(macs)`` and is in ``total`` one cycle later. Throughput: one word
    per cycle. Exact: products and sums are as wide as the manifest's bound needs.

    Members
    -------
    address : In
        Row of the weight bank.
    vector : In(macs * data_bits)
        The vector's word, two cycles after its address.
    add, first : In(1)
        Whether the registered sum of products counts, and starts a new total.
    total : Out(signed)
        The accumulator.
    weights : Out
        The bank's word two cycles after its address, for read-back.
    write : In(1)
        Store ``write_data`` in row ``write_row``.
    """

    def __init__(self, manifest: Manifest) -> None:
        self._parameters = manifest.parameters
        self._numerics = manifest.numerics
        self._rows = manifest.program.weight_rows
        word = self._parameters.macs * self._numerics.weight_bits
        super().__init__(
            {
                "address": In(range(self._rows)),
                "vector": In(self._parameters.macs * self._numerics.data_bits),
                "add": In(1),
                "first": In(1),
                "total": Out(signed(self._numerics.accumulator.bits)),
                "weights": Out(word),
                "write": In(1),
                "write_row": In(range(self._rows)),
                "write_data": In(word),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        read, write = storage(m, "bank", len(self.weights), self._rows)
        m.d.comb += [
            read.addr.eq(self.address),
            write.addr.eq(self.write_row),
            write.data.eq(self.write_data),
            write.en.eq(self.write),
            self.weights.eq(read_twice(m, read, "weights_q")),
        ]
        total = Signal(self.total.shape(), reset_less=True)
        word_sum = self._tree(m, self._products(m))
        with m.If(self.add):
            m.d.sync += total.eq(Mux(self.first, 0, total) + word_sum)
        m.d.comb += self.total.eq(total)
        return m

    def _products(self, m: Module) -> list[Value]:
        weight_bits, data_bits = self._numerics.weight_bits, self._numerics.data_bits
        products = []
        for index in range(self._parameters.macs):
            weight = self.weights.word_select(index, weight_bits).as_signed()
            value = self.vector.word_select(index, data_bits).as_signed()
            product = Signal(signed(weight_bits + data_bits), name=f"product{index}", reset_less=True)
            m.d.sync += product.eq(weight * value)
            products.append(delay(m, product, self._parameters.pipeline.multiplier - 1))
        return products

    def _tree(self, m: Module, terms: list[Value]) -> Value:
        levels = 0
        while len(terms) > 1:
            pairs = [terms[index : index + 2] for index in range(0, len(terms), 2)]
            terms = [sum(pair[1:], start=pair[0]) for pair in pairs]
            levels += 1
            if levels % self._parameters.pipeline.tree_levels == 0 or len(terms) == 1:
                terms = [delay(m, _named(m, term, f"sum{levels}_{i}"), 1) for i, term in enumerate(terms)]
        return terms[0]


def _named(m: Module, value: Value, name: str) -> Signal:
    signal = Signal(value.shape(), name=name)
    m.d.comb += signal.eq(value)
    return signal
