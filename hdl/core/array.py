"""The array: blocks of lanes, through which vectors, addresses and control pass one by one.

A block hands on what it was given through one register, so that no net is longer than a block. A word that
the first block works on in cycle ``n`` is at block ``b`` in cycle ``n + b``:

====================  =================================================================================
cycle                 block b
====================  =================================================================================
n + b                 the word's address is at the block's weight banks
n + b + summed        the sums of its products are in registers (:mod:`rtlstm.hdl.core.lane`)
n + b + summed + 1    after a row group's last word: its lanes' sums are in ``held``
====================  =================================================================================

With ``pipeline.copies = 2``, each four lanes have registers of their own for address, vector, ``add`` and
``ends``: the address is at the banks a cycle later, which ``summed`` contains.

The drain takes one block per cycle, the first first, so that the skew of ``b`` cycles costs nothing.
"""

from collections.abc import Mapping

from amaranth.hdl import Cat, Module, Mux, Signal, Value

from rtlstm.hdl.component import In, Out
from rtlstm.hdl.core.lane import TOGETHER, FourLanes, if_sums_kept, kinds_of_four, sum_row_bits
from rtlstm.hdl.core.layouts import row_bits
from rtlstm.hdl.core.program_store import CorePart
from rtlstm.hdl.primitives.pipeline import delay
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.registers import Region

PASSED = ("address", "vector", "row", "bank", "write_data")
"""What block after block sees."""
WRITTEN = ("row", "bank", "write_data", "write")
"""What of these is for one lane; the others are for all."""
EVENTS = {"add": 0, "ends": 1, "write": 0}
"""Control that they see, and its value in reset."""
KEEPING = ("continues", "keeps")
"""The same where lanes keep sums of row groups."""


def _row_bits(manifest: Manifest) -> int:
    return row_bits(manifest.regions[Region.WEIGHTS].rows)


class MacArray(CorePart):
    """All lanes, in blocks of ``4 * gate_units``. Each block hands on what it was given.

    Latency: block ``b`` works ``b`` cycles after the first, in step with the drain, which takes
    block ``b`` in a group's cycle ``b`` or later. Throughput: one word per lane and cycle.

    """

    address: Signal = In(_row_bits)
    """Row of the weight banks."""
    vector: Signal = In(lambda manifest: manifest.parameters.macs * manifest.numerics.data_bits)
    """Word of the vector, when the weights are there."""
    row: Signal = In(_row_bits)
    bank: Signal = In(lambda manifest: row_bits(manifest.parameters.lanes))
    write_data: Signal = In(lambda manifest: manifest.regions[Region.WEIGHTS].width)
    add: Signal = In(1)
    ends: Signal = In(1)
    """The word whose products' sum stands in the first block's registers counts; it counts and is the last of
    its rows. Reset and rows that begin anew end, too."""
    write: Signal = In(1)
    """Store a word, ``write_data``, in a row of a lane's bank."""
    sum_row: Signal = In(sum_row_bits)
    continues: Signal = In(if_sums_kept)
    keeps: Signal = In(if_sums_kept)
    """As the lanes', where they keep sums of row groups."""
    held: Signal = Out(lambda manifest: manifest.parameters.lanes * manifest.numerics.accumulator.bits)
    """Each lane's last row sum."""

    def __init__(self, manifest: Manifest) -> None:
        keeps = manifest.parameters.lane_sums is not None
        self._passed = (*PASSED, "sum_row") if keeps else PASSED
        self._kinds = kinds_of_four(manifest)
        self._events = EVENTS | (dict.fromkeys(KEEPING, 0) if keeps else {})
        super().__init__(manifest)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        given: Mapping[str, Value] = {name: getattr(self, name) for name in (*self._passed, *self._events)}
        held: list[Value] = []
        for block in range(self._manifest.parameters.blocks):
            if block:
                given = self._hand_on(m, given, block)
            held += self._block(m, given, block)
        m.d.comb += self.held.eq(Cat(held))
        return m

    def _hand_on(self, m: Module, given: Mapping[str, Value], block: int) -> Mapping[str, Value]:
        delayed = {
            name: Signal(len(given[name]), name=f"{name}{block}", reset_less=True) for name in self._passed
        }
        delayed |= {name: Signal(name=f"{name}{block}", init=value) for name, value in self._events.items()}
        m.d.sync += [register.eq(given[name]) for name, register in delayed.items()]
        return delayed

    def _block(self, m: Module, given: Mapping[str, Value], block: int) -> list[Value]:
        """Add a block's lanes; return their totals."""
        size = TOGETHER * self._manifest.parameters.gate_units
        row, write_data = (delay(m, given[name], 1) for name in ("row", "write_data"))
        seen = {name: value for name, value in given.items() if name not in WRITTEN}
        held: list[Value] = []
        for first in range(block * size, block * size + size, TOGETHER):
            m.submodules[f"lanes{first}"] = lanes = FourLanes(self._manifest, self._kinds[first // TOGETHER])
            write = Signal(TOGETHER, name=f"write{first}")
            # The bank stands long before the row comes.
            here = delay(m, Cat(given["bank"] == first + index for index in range(TOGETHER)), 1)
            m.d.sync += write.eq(Mux(given["write"], here, 0))
            lanes.connect({**seen, "write_row": row, "write_data": write_data, "write": write})
            held.append(lanes.held)
        return held


def any_of(values: list[Value]) -> Value:
    """OR of values of which at most one is not zero, as a balanced tree."""
    while len(values) > 1:
        pairs = [values[i : i + 2] for i in range(0, len(values), 2)]
        values = [pair[0] | pair[1] if len(pair) == 2 else pair[0] for pair in pairs]
    return values[0]
