"""Reads weights back through the datapath: each is its own product with a unit vector.

While the memory window is open, the array multiplies and every word is the last of its row, so that each
lane's total is the product with the word of one cycle. The host's bank selects the block that is collected.
A 1 that passes from multiplier to multiplier gives a row's weights one after the other.

=================================  ====================================================================
cycle                              what happens
=================================  ====================================================================
0                                  ``start``; row and bank have stood long enough
1 + blocks - b + k                 ``unit`` has the 1 of multiplier ``k``, for a row in block ``b``: an
                                   earlier block waits for what a later one takes longer
3 + blocks + k                     the unit vector is at the inputs of block ``b``, or in their copies
4 + blocks + k + sum + collect     weight ``k`` is at ``totals``; ``sum = summed - operand``
=================================  ====================================================================
"""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib.wiring import In, Out

from rtlstm.hdl.component import Component
from rtlstm.hdl.core.array import any_of
from rtlstm.hdl.core.layouts import row_bits
from rtlstm.hdl.core.preactivation import GATES
from rtlstm.hdl.primitives.pipeline import delay
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.registers import Region


class WeightReader(Component):
    """Gives a lane's word of weights without wires from every lane.

    Latency: ``cycles`` from ``start``. Throughput: one word in this time. Exact: a lane's total is at least
    as wide as a weight. A bank that does not exist reads as zero.

    Members
    -------
    start : In(1)
        The row stands at every bank, and ``bank`` here.
    bank : In
        The lane.
    block : Out(blocks)
        One-hot: the block whose totals are to be collected.
    unit : Out(macs)
        What the array multiplies, two cycles before: 1 where a bit is set, 0 elsewhere.
    totals : In(gate_units * 4 * weight_bits)
        Low bits of the totals collected for each gate unit.
    weights : Out(macs * weight_bits)
        The word, in that cycle only.
    """

    start: Signal
    bank: Signal
    block: Signal
    unit: Signal
    totals: Signal
    weights: Signal

    def __init__(self, manifest: Manifest) -> None:
        self._parameters = parameters = manifest.parameters
        self._bits = manifest.numerics.weight_bits
        # Registers behind the choice of a unit's total, where wires are long.
        self._chosen = min(parameters.pipeline.window, 1)
        super().__init__(
            {
                "start": In(1),
                "bank": In(row_bits(parameters.lanes + 1)),
                "block": Out(parameters.blocks),
                "unit": Out(parameters.macs),
                "totals": In(parameters.gate_units * GATES * self._bits),
                "weights": Out(manifest.regions[Region.WEIGHTS].width),
            }
        )

    @property
    def cycles(self) -> int:
        """Cycles from ``start`` to the cycle in which ``weights`` is the word."""
        parameters = self._parameters
        first = 4 + parameters.blocks + parameters.summed - parameters.pipeline.operand + parameters.collect
        return first + parameters.macs + self._chosen

    def elaborate(self, platform: object) -> Module:
        m = Module()
        blocks, units = self._parameters.blocks, self._parameters.gate_units
        fours = [self.bank[2:] == number for number in range(blocks * units)]
        block, unit = Signal(blocks, reset_less=True), Signal(units, reset_less=True)
        m.d.sync += [
            block.eq(Cat(any_of(fours[index * units : (index + 1) * units]) for index in range(blocks))),
            unit.eq(Cat(any_of(fours[index::units]) for index in range(units))),
        ]
        m.d.comb += self.block.eq(block)
        self._select(m, block)
        chosen = [Mux(unit[index], self._total(m, index), 0) for index in range(units)]
        weights = Signal.like(self.weights, reset_less=True)
        m.d.sync += weights.eq(Cat(weights[self._bits :], any_of(chosen)))
        m.d.comb += self.weights.eq(weights)
        return m

    def _select(self, m: Module, block: Signal) -> None:
        """Pass a 1 from the block's position to the last block's, and then through the multipliers."""
        # With a reset: nothing is added to the vectors of a step.
        position = Signal(len(block) + len(self.unit))
        m.d.sync += position.eq(Mux(self.start, block, position << 1))
        m.d.comb += self.unit.eq(position[len(block) :])

    def _total(self, m: Module, unit: int) -> Value:
        """Choose a gate unit's total of the bank's gate."""
        mine = self.totals.word_select(unit, GATES * self._bits)
        return delay(m, mine.word_select(self.bank[:2], self._bits), self._chosen)
