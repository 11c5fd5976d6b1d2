"""A lane: one weight bank, ``macs`` multipliers, an adder tree and an accumulator."""

from amaranth.hdl import ClockSignal, Instance, Module, ResetSignal, Signal, Value, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from rtlstm.hdl.pipeline import delay, multiply, multiply_pair, storage
from rtlstm.spec.manifest import Manifest

__all__ = ["Lane", "lane_instance", "lane_module"]


class Lane(wiring.Component):
    """Dot product of one row part with a vector, one word of ``macs`` values per cycle.

    Latency: with the address in cycle ``n``, the word's sum of products stands in a register in
    cycle ``n + parameters.summed``, and a row's whole sum in ``held`` one cycle later. Throughput:
    one word per cycle. Exact: products and sums are as wide as the manifest's bound needs.

    Members
    -------
    address : In
        Row of the weight bank.
    vector : In(macs * data_bits)
        The vector's word, in the cycle in which its address's word is in ``weights``.
    add, ends : In(1)
        The registered sum of products counts; it counts and ends a row (or reset does, without a sum).
    held : Out(signed)
        The last row's sum, until the next one is complete.
    weights : Out
        The bank's word two cycles after its address, or three, for the multipliers and read-back.
    write : In(1)
        Store ``write_data`` in row ``write_row``.
    """

    def __init__(self, manifest: Manifest) -> None:
        self._parameters = manifest.parameters
        self._numerics = manifest.numerics
        self._rows = manifest.program.weight_rows
        super().__init__(_signature(manifest))

    def elaborate(self, platform: object) -> Module:
        m = Module()
        read, write = storage(m, "bank", len(self.weights), self._rows, output_register=True)
        m.d.comb += [
            read.addr.eq(self.address),
            write.addr.eq(self.write_row),
            write.data.eq(self.write_data),
            write.en.eq(self.write),
            self.weights.eq(delay(m, read.data, max(0, self._parameters.pipeline.operand - 3))),
        ]
        word_sum = self._tree(m, self._products(m))
        total = Signal(self.held.shape(), reset_less=True)
        held = Signal(self.held.shape(), reset_less=True)
        longer = Signal(self.held.shape())
        m.d.comb += [longer.eq(total + word_sum), self.held.eq(held)]
        # Cleared behind a row, not before the next: nothing stands between the total and its adder.
        with m.If(self.ends):
            m.d.sync += [total.eq(0), held.eq(longer)]
        with m.Elif(self.add):
            m.d.sync += total.eq(longer)
        return m

    def _products(self, m: Module) -> list[Value]:
        parameters = self._parameters
        weight_bits, data_bits = self._numerics.weight_bits, self._numerics.data_bits
        stages, macs, in_luts = parameters.pipeline.multiplier, parameters.macs, parameters.lut_macs
        factors = [
            (
                self.weights.word_select(index, weight_bits).as_signed(),
                self.vector.word_select(index, data_bits).as_signed(),
            )
            for index in range(macs)
        ]
        products: list[Value] = []
        for index in range(in_luts):
            products.append(multiply(m, *factors[index], stages, "lut", name=f"product{index}"))
        for index in range(in_luts, macs - 1, 2):
            pair = multiply_pair(m, factors[index], factors[index + 1], stages, name=f"product{index}")
            products.extend(pair)
        if (macs - in_luts) % 2:
            products.append(multiply(m, *factors[-1], stages, name=f"product{macs - 1}"))
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


def lane_module(manifest: Manifest) -> str:
    """Name of the Verilog module that all lanes of a build are instances of."""
    return f"{manifest.name}_lane"


def lane_instance(m: Module, manifest: Manifest, name: str) -> wiring.PureInterface:
    """Add an instance of the build's lane module; return its ports."""
    lane = _signature(manifest).create(path=(name,))
    ports = {
        f"{'i' if member.flow is In else 'o'}_{path[0]}": value
        for path, member, value in lane.signature.flatten(lane)
    }
    m.submodules[name] = Instance(lane_module(manifest), i_clk=ClockSignal(), i_rst=ResetSignal(), **ports)
    return lane


def _signature(manifest: Manifest) -> wiring.Signature:
    parameters, numerics = manifest.parameters, manifest.numerics
    rows = manifest.program.weight_rows
    word = parameters.macs * numerics.weight_bits
    return wiring.Signature(
        {
            "address": In(range(rows)),
            "vector": In(parameters.macs * numerics.data_bits),
            "add": In(1),
            "ends": In(1),
            "held": Out(signed(numerics.accumulator.bits)),
            "weights": Out(word),
            "write": In(1),
            "write_row": In(range(rows)),
            "write_data": In(word),
        }
    )
