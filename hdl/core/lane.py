"""A lane: one weight bank, ``macs`` multipliers, an adder tree and an accumulator.

Two lanes are one module where they share their multipliers. Lanes are of two kinds at most, which differ in
how many multipliers are made of LUTs; the latency is the same. With a word's address in cycle ``n``,
``operand`` and ``multiplier`` of ``Pipeline``, and ``tree = parameters.tree`` (``summed`` less its
``lane_copies``, which stand before the lane):

=================================  ====================================================================
cycle                              what is in registers
=================================  ====================================================================
n + operand                        the weights, and ``vector`` beside them, at the multipliers
n + operand + multiplier           ``macs`` products; sums of two in DSP blocks stay there, and come a cycle
                                   later, as those of the tree's first level
n + summed                         their sum (or the two terms that are left of it, with adders of three
                                   terms), behind ``tree`` registers of the adder tree; ``add`` or ``ends``
                                   say what becomes of it
n + summed + 1                     added to the accumulator; after a row's last word, the row's sum in
                                   ``held``, where it stays until the next row is complete
=================================  ====================================================================
"""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from itertools import islice

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed

from rtlstm.hdl.component import In, Out, Ports, SharedModule
from rtlstm.hdl.core.layouts import row_bits
from rtlstm.hdl.primitives.pipeline import (
    Factors,
    copies,
    delay,
    delay_event,
    multiply,
    multiply_pair,
    product_sums,
    storage,
)
from rtlstm.spec.inventory import LaneKind, lane_kinds, memories
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.registers import Region

TOGETHER = 4
"""Lanes that stand together."""

_Term = tuple[Value, Value | None]
"""A signed value, and a carry that belongs to it, if it has one."""


def sum_row_bits(manifest: Manifest) -> int | None:
    """Width of a row's number in the memories of row groups' sums; None where lanes keep none."""
    sums = manifest.parameters.lane_sums
    return row_bits(sums) if sums else None


def if_sums_kept(manifest: Manifest) -> int | None:
    """Width of a port that there is only where lanes keep sums."""
    return 1 if manifest.parameters.lane_sums else None


class LanePorts(Ports):
    """Ports that one lane and four have alike."""

    address: Signal = In(lambda manifest: row_bits(manifest.regions[Region.WEIGHTS].rows))
    """Row of the weight bank."""
    vector: Signal = In(lambda manifest: manifest.parameters.macs * manifest.numerics.data_bits)
    """The vector's word, two cycles after its address, or three: its weights are at the multipliers then."""
    add: Signal = In(1)
    ends: Signal = In(1)
    """The registered sum of products counts; it counts and ends a row (or nothing counts, and what was added
    is dropped)."""
    sum_row: Signal = In(sum_row_bits)
    continues: Signal = In(if_sums_kept)
    keeps: Signal = In(if_sums_kept)
    """Where sums of row groups are kept: the word's row in their memory, two cycles before the word's sum of
    products counts; in the cycle before, that it is added to that row's sum; with ``ends``, that the row's
    sum is to be stored there."""
    write_row: Signal = In(lambda manifest: row_bits(manifest.regions[Region.WEIGHTS].rows))
    write_data: Signal = In(lambda manifest: manifest.parameters.macs * manifest.numerics.weight_bits)
    """What is written to the banks that ``write`` names, and its row."""


class Lane(LanePorts, SharedModule):
    """Dot products of one or two rows with a vector, one word of ``macs`` values per cycle.

    Latency: with the address in cycle ``n``, the word's sum of products stands in a register in
    cycle ``n + parameters.summed``, and a row's whole sum in ``held`` one cycle later. Throughput:
    one word per cycle. Exact: products and sums are as wide as the manifest's bound needs.
    """

    held: Signal = Out(lambda manifest: lanes_per_module(manifest) * manifest.numerics.accumulator.bits)
    """The last row's sum of each lane, signed, until the next one is complete."""
    write: Signal = In(lambda manifest: lanes_per_module(manifest))
    """A bit for each lane: store ``write_data`` in row ``write_row`` of its bank."""

    def __init__(self, manifest: Manifest, kind: LaneKind) -> None:
        self._kind = kind
        self._parameters = manifest.parameters
        self._numerics = manifest.numerics
        self._memories = memories(manifest)
        self._lanes = lanes_per_module(manifest)
        super().__init__(manifest, kind.name)

    def inside(self) -> Module:
        m = Module()
        words = [self._bank(m, lane) for lane in range(self._lanes)]
        factors = self._factors(words)
        chains, products = self._chains(m, factors), self._products(m, factors)
        terms = [self._tree(m, *lane) for lane in zip(products, chains, strict=True)]
        m.d.comb += self.held.eq(Cat(self._accumulate(m, lane, each) for lane, each in enumerate(terms)))
        return m

    def _bank(self, m: Module, lane: int) -> Value:
        """Add a lane's weights; return the word that the address points at."""
        read, write = storage(m, self._memories["weights"], f"bank{lane}")
        m.d.comb += [
            read.addr.eq(self.address),
            write.addr.eq(self.write_row),
            write.data.eq(self.write_data),
            write.en.eq(self.write[lane]),
        ]
        return delay(m, read.data, max(0, self._parameters.pipeline.operand - 3))

    def _factors(self, words: list[Value]) -> list[list[Factors]]:
        """Return, for each lane, the factors of its products: a weight, and a value of the vector."""
        weight_bits, data_bits = self._numerics.weight_bits, self._numerics.data_bits
        return [
            [
                (
                    word.word_select(index, weight_bits).as_signed(),
                    self.vector.word_select(index, data_bits).as_signed(),
                )
                for index in range(self._parameters.macs)
            ]
            for word in words
        ]

    def _chains(self, m: Module, factors: list[list[Factors]]) -> list[dict[int, Value]]:
        """Return, for each lane, the sums of the tree's first level that chains of DSP blocks make."""
        chains: list[dict[int, Value]] = [{} for _ in factors]
        for adder in self._kind.sums_in_dsp:
            first = 2 * adder
            given = [(each[first], each[first + 1]) for each in factors]
            sums = product_sums(m, given, self._kind.hard, f"chain{adder}")
            for chain, total in zip(chains, sums, strict=True):
                chain[adder] = total
        return chains

    def _products(self, m: Module, factors: list[list[Factors]]) -> list[list[_Term]]:
        """Multiply each lane's word with the vector's, less what chains multiply.

        Of two products of one block, the second leaves a carry to the tree's adders.
        """
        soft, hard, chained = self._kind.soft, self._kind.hard, self._kind.sums_in_dsp
        in_luts, macs = soft.each, self._parameters.macs
        products: list[list[_Term]] = [
            [(multiply(m, *each[index], soft, f"product{lane}_{index}"), None) for index in range(in_luts)]
            for lane, each in enumerate(factors)
        ]
        alone = [index for index in range(in_luts, macs) if index // 2 not in chained]
        if hard.pairing == "lanes":
            for index in alone:
                name = f"product{index}"
                first, second, carry = multiply_pair(m, factors[0][index], factors[1][index], hard, name)
                products[0].append((first, None))
                products[1].append((second, carry))
            return products
        (mine,), (factor_list,) = products, factors
        for one, other in zip(alone[::2], alone[1::2], strict=False):
            # Only two products with the same factor leave a carry.
            pair = multiply_pair(m, factor_list[one], factor_list[other], hard, f"product{one}")
            mine += [(product, None) for product in pair[:2]]
        if len(alone) % 2:
            mine.append((multiply(m, *factor_list[alone[-1]], hard, f"product{alone[-1]}"), None))
        return products

    def _accumulate(self, m: Module, lane: int, terms: list[_Term]) -> Signal:
        """Add a lane's words up, each of one or two terms; return its last row's sum."""
        shape = signed(self._numerics.accumulator.bits)
        total, held = Signal(shape, reset_less=True), Signal(shape, reset_less=True)
        longer = Signal(shape)
        before: Value = total
        if self._parameters.lane_sums:
            # Where a kept sum counts, nothing was added yet: the total is 0.
            before = (total | self._kept_sum(m, lane, longer)).as_signed()
        m.d.comb += longer.eq(_join([(before, None), *terms])[0])
        # Cleared behind a row, not before the next: nothing stands between the total and its adder.
        with m.If(self.ends):
            m.d.sync += total.eq(0)
            # What is kept is not drained, and leaves what is drained as it is.
            with m.If(~self.keeps) if self._parameters.lane_sums else nullcontext():
                m.d.sync += held.eq(longer)
        with m.Elif(self.add):
            m.d.sync += total.eq(longer)
        return held

    def _kept_sum(self, m: Module, lane: int, longer: Signal) -> Signal:
        """Add the memory of a lane's sums; return the one that a word is added to, and 0 for other words.

        ``longer`` is the sum of this cycle.
        """
        read, write = storage(m, self._memories["sums of groups"], f"sums{lane}")
        kept = Signal(len(longer), reset_less=True, name=f"kept_sum{lane}")
        m.d.comb += [
            read.addr.eq(self.sum_row),
            # The row of the word that was added in the last cycle.
            write.addr.eq(delay(m, self.sum_row, 3)),
            write.data.eq(delay(m, longer, 1)),
            write.en.eq(delay_event(m, self.keeps, 1)),
        ]
        m.d.sync += kept.eq(Mux(self.continues, read.data, 0))
        return kept

    def _tree(self, m: Module, terms: list[_Term], chains: Mapping[int, Value]) -> list[_Term]:
        """Add products until no more are left than the accumulator takes.

        An adder takes a carry less than it has terms, so each of its sums has one at most. Sums of
        ``chains`` are in the registers of the first level.
        """
        levels, stride = self._parameters.adders, self._parameters.pipeline.tree_levels
        for level, adders in enumerate(levels, 1):
            remaining, chained = iter(terms), chains if level == 1 else {}
            registers = int(level % stride == 0 or level == len(levels))
            terms = []
            for adder, count in enumerate(adders):
                if adder in chained:
                    terms.append((chained[adder], None))
                    continue
                value, carry = _join(list(islice(remaining, count)))
                if registers:
                    value = _named(m, value, f"sum{level}_{adder}")
                delayed = None if carry is None else delay(m, carry, registers)
                terms.append((delay(m, value, registers), delayed))
        return terms


def _join(terms: list[_Term]) -> _Term:
    """Add terms, and all but one of their carries, by one adder.

    Rows of LUTs before it make two values of three, until two are left.
    """
    values, carries = [value for value, _ in terms], [carry for _, carry in terms if carry is not None]
    left = carries.pop() if len(carries) == len(terms) else None
    while len(values) > 2:
        row, values = values, []
        while len(row) > 2:
            values += _compress(row[0], row[1], row[2], carries.pop() if carries else None)
            row = row[3:]
        values += row
    if len(values) == 1:
        return values[0], left
    return _add(values[0], values[1], carries.pop() if carries else None), left


def _compress(a: Value, b: Value, c: Value, carry: Value | None) -> tuple[Value, Value]:
    """Return two signed values whose sum is that of three and a carry; one LUT deep."""
    width = max(len(a), len(b), len(c)) + 1
    a, b, c = (Cat(value, value[-1].replicate(width - len(value))) for value in (a, b, c))
    majority = (a & b) | (c & (a | b))
    return (a ^ b ^ c).as_signed(), Cat(Const(0, 1) if carry is None else carry, majority).as_signed()


def _add(first: Value, second: Value, carry: Value | None) -> Value:
    """Return a sum with a carry, if there is one, by one adder: it comes in below the lowest bit."""
    if carry is None:
        return first + second
    total: Value = Cat(Const(1, 1), first).as_signed() + Cat(carry, second).as_signed()
    return total[1:].as_signed()


def _named(m: Module, value: Value, name: str) -> Signal:
    signal = Signal(value.shape(), name=name)
    m.d.comb += signal.eq(value)
    return signal


def lanes_per_module(manifest: Manifest) -> int:
    """How many lanes share their multipliers, in one module."""
    return 2 if manifest.paired_lanes else 1


class FourLanes(LanePorts, SharedModule):
    """Four lanes, which stand together: one module for all with the same kinds makes conversion fast.

    Latency: as of a lane, and ``parameters.lane_copies`` cycles more from what lanes see, of which these have
    a copy; what is written has none.
    """

    held: Signal = Out(lambda manifest: TOGETHER * manifest.numerics.accumulator.bits)
    """The last row's sum of each lane, as of :class:`Lane`."""
    write: Signal = In(TOGETHER)
    """A bit for each lane, likewise."""

    def __init__(self, manifest: Manifest, kinds: Sequence[LaneKind]) -> None:
        self._kinds = kinds
        names = [kind.name for kind in kinds]
        first, *others = dict.fromkeys(names)
        # Where kinds meet, the last lanes are of the second.
        super().__init__(manifest, f"{first}s_{names.count(first)}" if others else f"{first}s")

    def inside(self) -> Module:
        m = Module()
        parameters, held = self._manifest.parameters, list[Value]()
        seen = [name for name in LanePorts.port_names() if name in self.signature.members]
        written = {name: getattr(self, name) for name in ("write_row", "write_data")}
        inputs = {name: getattr(self, name) for name in seen if name not in written}
        given = {**copies(m, inputs, "lanes", parameters, parameters.lane_copies), **written}
        each = TOGETHER // len(self._kinds)
        for first, kind in zip(range(0, TOGETHER, each), self._kinds, strict=True):
            m.submodules[f"lane{first}"] = lane = Lane(self._manifest, kind)
            lane.connect({**given, "write": self.write[first : first + each]})
            held.append(lane.held)
        m.d.comb += self.held.eq(Cat(held))
        return m


def kinds_of_four(manifest: Manifest) -> list[tuple[LaneKind, ...]]:
    """Return the kinds of the lanes' modules, for each four lanes."""
    each, kinds = lanes_per_module(manifest), lane_kinds(manifest)
    lanes = range(manifest.parameters.lanes)
    of_lanes = [kind for kind in kinds for _ in kind.lanes]
    return [tuple(of_lanes[first : first + TOGETHER : each]) for first in lanes[::TOGETHER]]


def lane_modules(manifest: Manifest) -> list[SharedModule]:
    """Return a lane of each kind, and four lanes of each that there are."""
    lanes = [Lane(manifest, kind) for kind in lane_kinds(manifest)]
    return [*lanes, *(FourLanes(manifest, kinds) for kinds in dict.fromkeys(kinds_of_four(manifest)))]
