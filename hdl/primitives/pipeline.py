"""Small helpers of the datapath: delays, constant tables, and the primitives.

Memories and multipliers are instances of the Verilog modules in ``primitives/``, of which
:mod:`rtlstm.hdl.emit.verilog` adds the family's file to the output. ``docs/primitives.md`` has their
contract; nothing else in ``hdl`` knows of them. Here they are called ``rtlstm_memory`` and so on; in the
output they bear the build's name.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from amaranth.hdl import Cat, ClockSignal, Elaboratable, Instance, Module, Signal, Value, signed

from rtlstm.spec.inventory import ActivationSpec, MemorySpec, MultiplierSpec
from rtlstm.spec.parameters import Parameters, ceil_log2


class Primitive(Elaboratable, ABC):
    """An instance of a Verilog module.

    Platform overrides
    ------------------
    A :class:`Platform` has something else in its place, such as a model for a simulator that runs no Verilog.
    """

    def elaborate(self, platform: object) -> Elaboratable | Instance:
        return platform.replace(self) if isinstance(platform, Platform) else self.instance()

    @abstractmethod
    def instance(self) -> Instance:
        """Make the instance."""


class Platform(ABC):
    """A platform without the Verilog of primitives."""

    @abstractmethod
    def replace(self, primitive: Primitive) -> Elaboratable:
        """Make what does the same as a primitive, between the same signals."""


def delay(m: Module, value: Value, cycles: int) -> Value:
    """Return a datapath value as it was ``cycles`` clock cycles ago; it carries no reset."""
    for _ in range(cycles):
        delayed = Signal(value.shape(), reset_less=True, name=f"{_name(value)}_d")
        m.d.sync += delayed.eq(value)
        value = delayed
    return value


def delay_event(m: Module, event: Value, cycles: int) -> Value:
    """Return bits as they were ``cycles`` clock cycles ago, and 0 after a reset."""
    for _ in range(cycles):
        delayed = Signal(len(event), name=f"{_name(event)}_d")
        m.d.sync += delayed.eq(event)
        event = delayed
    return event


class Copy(Primitive):
    """Registers that synthesis does not merge with others of the same contents; see :func:`copies`."""

    def __init__(self, value: Value, name: str) -> None:
        self.value, self.copied = value, Signal(len(value), name=name)

    def instance(self) -> Instance:
        return Instance(
            "rtlstm_copy",
            p_BITS=len(self.value),
            i_clk=ClockSignal(),
            i_value=self.value,
            o_copied=self.copied,
        )


def copies(
    m: Module, values: Mapping[str, Value], name: str, parameters: Parameters, stages: int
) -> Mapping[str, Value]:
    """Return datapath values as they were ``stages`` (0 or 1) clock cycles ago, from registers of one's own.

    Synthesis keeps them, whoever else has the same, so that they can be placed beside what reads them; in a
    family without ``register_copies`` it need not. They carry no reset.
    """
    assert stages <= 1, "a copy is one register"
    if not stages or not parameters.register_copies:
        return {key: delay(m, value, stages) for key, value in values.items()}
    m.submodules[f"{name}_copy"] = copy = Copy(Cat(values.values()), f"{name}_copied")
    firsts = accumulate((len(value) for value in values.values()), initial=0)
    return {
        key: _like(value, copy.copied[first : first + len(value)])
        for first, (key, value) in zip(firsts, values.items(), strict=False)
    }


def _like(value: Value, copied: Value) -> Value:
    """Return copied bits with the sign that the value has."""
    return copied.as_signed() if value.shape().signed else copied


def _name(value: Value) -> str:
    name = getattr(value, "name", "value")
    return str(name).removesuffix("_d")


_LONG, _CASES = 512, 16
"""More values than this are chosen from in steps, of so many choices: Yosys makes a chain of a choice, and
its stack bounds the length."""


def lookup(m: Module, index: Value, values: Sequence[int], name: str, at_once: int = _LONG) -> Value:
    """Return ``values[index]`` as combinational logic (0 past the end).

    Synthesis may make a block RAM of more than a few that are chosen from ``at_once``.
    """
    shape = range(max(1, *values) + 1) if len(values) else 1
    choices: Sequence[Value | int] = values
    while len(values) > at_once and len(choices) > _CASES:
        low = ceil_log2(_CASES)
        blocks = [choices[first : first + _CASES] for first in range(0, len(choices), _CASES)]
        choices = [_choose(m, index[:low], block, Signal(shape, name=f"{name}_part")) for block in blocks]
        index = index[low:]
    return _choose(m, index, choices, Signal(shape, name=name))


def _choose(m: Module, index: Value, choices: Sequence[Value | int], result: Signal) -> Value:
    with m.Switch(index):
        for position, value in enumerate(choices):
            with m.Case(position):
                m.d.comb += result.eq(value)
    return result


@dataclass(frozen=True)
class ReadPort:
    """Clocked: ``data`` is the word that ``addr`` pointed at one cycle before, or two with the
    memory's output register."""

    addr: Signal
    data: Signal


@dataclass(frozen=True)
class WritePort:
    """Clocked: stores ``data`` (or those granules whose ``en`` bit is 1) at ``addr``."""

    addr: Signal
    data: Signal
    en: Signal


class Memory(Primitive):
    """One of the memories of an inventory; see :func:`storage`."""

    def __init__(self, spec: MemorySpec, name: str) -> None:
        assert not spec.asynchronous, f"{spec.name} are read without a clock"
        address_bits = ceil_log2(spec.depth)
        self.spec = spec
        self.read = ReadPort(
            Signal(address_bits, name=f"{name}_raddr"), Signal(spec.width, name=f"{name}_rdata")
        )
        self.write = WritePort(
            Signal(address_bits, name=f"{name}_waddr"),
            Signal(spec.width, name=f"{name}_wdata"),
            Signal(spec.granules, name=f"{name}_wen"),
        )

    def instance(self) -> Instance:
        return Instance(
            "rtlstm_memory",
            p_WIDTH=self.spec.width,
            p_DEPTH=self.spec.depth,
            p_ABITS=len(self.read.addr),
            p_GRANULES=self.spec.granules,
            p_OUTREG=int(self.spec.output_register),
            p_STYLE=self.spec.style,
            i_clk=ClockSignal(),
            i_read_address=self.read.addr,
            o_read_data=self.read.data,
            i_write_address=self.write.addr,
            i_write_data=self.write.data,
            i_write_enable=self.write.en,
        )


def storage(m: Module, spec: MemorySpec, name: str) -> tuple[ReadPort, WritePort]:
    """Add one of the memories of an inventory; return its ports.

    A read gives what was written up to the clock edge before; what it gives of a word that is
    written at the same edge is undefined. Contents are undefined until written: nothing in the
    core relies on initial values. Amaranth's own memories would spell out initial contents bit by
    bit, megabytes of them.
    """
    m.submodules[name] = memory = Memory(spec, name)
    return memory.read, memory.write


class MemoryPair(Primitive):
    """Two memories with the same contents, as one with two read ports; see :func:`storage_pair`."""

    def __init__(self, spec: MemorySpec, name: str) -> None:
        assert spec.pairs, f"{spec.name} have one read port each"
        address_bits = ceil_log2(spec.depth)
        self.spec = spec
        self.first, self.second = (
            ReadPort(
                Signal(address_bits, name=f"{name}_raddr{index}"),
                Signal(spec.width, name=f"{name}_rdata{index}"),
            )
            for index in range(2)
        )
        self.write = WritePort(
            self.first.addr, Signal(spec.width, name=f"{name}_wdata"), Signal(name=f"{name}_wen")
        )

    def instance(self) -> Instance:
        return Instance(
            "rtlstm_memory_pair",
            p_WIDTH=self.spec.width,
            p_DEPTH=self.spec.depth,
            p_ABITS=len(self.first.addr),
            p_OUTREG=int(self.spec.output_register),
            i_clk=ClockSignal(),
            i_address0=self.first.addr,
            o_read_data0=self.first.data,
            i_address1=self.second.addr,
            o_read_data1=self.second.data,
            i_write_data=self.write.data,
            i_write_enable=self.write.en,
        )


def storage_pair(m: Module, spec: MemorySpec, name: str) -> tuple[ReadPort, ReadPort, WritePort]:
    """Add two of the memories of an inventory, with the same contents, as one with two read ports.

    The write port's address is the first read port's. What either port reads in a cycle with a write is
    undefined; else as :func:`storage`.
    """
    m.submodules[name] = pair = MemoryPair(spec, name)
    return pair.first, pair.second, pair.write


class ConstantTable(Primitive):
    """One of the constant tables of an inventory; see :func:`constant_table`."""

    def __init__(self, spec: ActivationSpec) -> None:
        self.spec = spec
        memory = spec.memory
        self.read = ReadPort(
            Signal(ceil_log2(memory.depth), name="table_raddr"), Signal(memory.width, name="table_rdata")
        )

    def instance(self) -> Instance:
        return Instance(
            f"rtlstm_{self.spec.module}",
            i_clk=ClockSignal(),
            i_row=self.read.addr,
            o_word=self.read.data,
        )


def constant_table(m: Module, spec: ActivationSpec) -> ReadPort:
    """Add one of the constant tables of an inventory; return its port.

    It is read as :func:`storage` is, in as many cycles. Its module is in the build's Verilog
    (:func:`rtlstm.hdl.emit.verilog.table_modules`).
    """
    m.submodules.table = table = ConstantTable(spec)
    return table.read


class Multiplier(Primitive):
    """One of the multipliers of an inventory; see :func:`multiply`."""

    def __init__(self, a: Value, b: Value, spec: MultiplierSpec, name: str) -> None:
        _check_factors(a, b, spec)
        self.spec, self.a, self.b = spec, a, b
        self.product = Signal(signed(spec.a_bits + spec.b_bits), name=name)

    def instance(self) -> Instance:
        return Instance(
            "rtlstm_multiplier",
            p_A_BITS=self.spec.a_bits,
            p_B_BITS=self.spec.b_bits,
            p_STAGES=self.spec.stages,
            p_KIND=self.spec.kind,
            i_clk=ClockSignal(),
            i_a=self.a,
            i_b=self.b,
            o_product=self.product,
        )


def multiply(m: Module, a: Value, b: Value, spec: MultiplierSpec, name: str) -> Signal:
    """Add one of the multipliers of an inventory; return the product, exact, ``spec.stages`` cycles later.

    Throughput: one product per cycle. No reset. With 2 stages there are registers at the inputs
    and at the output, with 3 one in between as well, all inside the hard multiplier if its kind
    is "dsp".
    """
    m.submodules[f"{name}_multiplier"] = multiplier = Multiplier(a, b, spec, name)
    return multiplier.product


class MultiplierPair(Primitive):
    """Two multipliers side by side; see :func:`multiply_pair`."""

    def __init__(
        self, first: tuple[Value, Value], second: tuple[Value, Value], spec: MultiplierSpec, name: str
    ) -> None:
        assert spec.kind == "dsp", f"{spec.name} are no DSP blocks"
        for factors in (first, second):
            _check_factors(*factors, spec)
        self.spec, self.first, self.second = spec, first, second
        self.products = [
            Signal(signed(spec.a_bits + spec.b_bits), name=f"{name}_{index}") for index in (0, 1)
        ]
        self.carry = Signal(name=f"{name}_carry")

    def instance(self) -> Instance:
        return Instance(
            "rtlstm_multiplier_pair",
            p_A_BITS=self.spec.a_bits,
            p_B_BITS=self.spec.b_bits,
            p_STAGES=self.spec.stages,
            p_KIND=self.spec.kind,
            p_SHARED=int(self.spec.shared),
            i_clk=ClockSignal(),
            i_a0=self.first[0],
            i_b0=self.first[1],
            i_a1=self.second[0],
            i_b1=self.second[1],
            o_product0=self.products[0],
            o_product1=self.products[1],
            o_carry1=self.carry,
        )


def multiply_pair(
    m: Module, first: tuple[Value, Value], second: tuple[Value, Value], spec: MultiplierSpec, name: str
) -> tuple[Signal, Signal, Signal]:
    """Return two products, as two :func:`multiply` would, and a carry that belongs to the second.

    Where a family's hard multiplier can be two narrow ones, they take one; on some only if they
    have the same second factor, which ``spec.shared`` promises.
    """
    m.submodules[f"{name}_multipliers"] = pair = MultiplierPair(first, second, spec, name)
    return pair.products[0], pair.products[1], pair.carry


Factors = tuple[Value, Value]
"""The two factors of a product."""


class ProductSum(Primitive):
    """Sums of two products, of one lane or of two; see :func:`product_sums`."""

    def __init__(self, lanes: Sequence[tuple[Factors, Factors]], spec: MultiplierSpec, name: str) -> None:
        assert spec.sums, f"{spec.name} are in no chain"
        for factors in (each for lane in lanes for each in lane):
            _check_factors(*factors, spec)
        self.spec, self.lanes = spec, lanes
        shape = signed(spec.a_bits + spec.b_bits + 1)
        self.sums = [Signal(shape, name=f"{name}_{index}") for index in range(len(lanes))]

    def instance(self) -> Instance:
        (first, second), *other = self.lanes
        ports = {"i_b0": first[1], "i_b1": second[1]}
        if other:
            ports |= {"i_a00": first[0], "i_a01": second[0], "o_sum0": self.sums[0], "o_sum1": self.sums[1]}
            ports |= {"i_a10": other[0][0][0], "i_a11": other[0][1][0]}
        else:
            ports |= {"i_a0": first[0], "i_a1": second[0], "o_sum": self.sums[0]}
        return Instance(
            f"rtlstm_product_sum{'_pair' if other else ''}",
            p_A_BITS=self.spec.a_bits,
            p_B_BITS=self.spec.b_bits,
            p_STAGES=self.spec.stages,
            i_clk=ClockSignal(),
            **ports,
        )


def product_sums(
    m: Module, lanes: Sequence[tuple[Factors, Factors]], spec: MultiplierSpec, name: str
) -> list[Signal]:
    """Add a chain of DSP blocks; return each lane's sum of two products, ``spec.stages + 1`` cycles later.

    Exact, one bit wider than a product. Throughput: one per cycle. No reset. Of two lanes, the products side
    by side have the same second factor.
    """
    m.submodules[f"{name}_chain"] = chain = ProductSum(lanes, spec, name)
    return chain.sums


def _check_factors(a: Value, b: Value, spec: MultiplierSpec) -> None:
    """Whoever multiplies and the inventory must agree."""
    found, listed = (len(a), len(b)), (spec.a_bits, spec.b_bits)
    assert found == listed, f"{spec.name} have factors of {listed} bits, not {found}"
