"""The core's registers, made from the register map; DATA and COMMAND are the memory window's."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, ValueLike

from rtlstm.hdl.component import In, Out
from rtlstm.hdl.core.array import any_of
from rtlstm.hdl.core.layouts import number_bits, row_bits
from rtlstm.hdl.core.program_store import CorePart
from rtlstm.hdl.primitives.pipeline import delay
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.registers import REGISTERS, Field, Register

ADDRESS_BITS = 4
"""Width of the number of a register of the core."""

_READABLE: list[Register] = [
    register
    for register, description in REGISTERS.items()
    if description.owner == "core" and "r" in description.access and register != Register.DATA
]


class RegisterBank(CorePart):
    """What is kept, counted and told in the core's registers, each field at its bits of the map.

    Latency: a register's value comes two cycles after its address. Throughput: one access per cycle. Counters
    count from reset on, modulo 2**32.
    """

    address: Signal = In(ADDRESS_BITS)
    """A register's number."""
    write: Signal = In(1)
    data: Signal = In(32)
    """Store ``data`` in the register whose number was at ``address`` in the cycle before."""
    value: Signal = Out(32)
    """What the register holds whose number was at ``address`` two cycles before."""
    stream: Signal = Out(number_bits)
    region: Signal = Out(4)
    bank: Signal = Out(
        lambda manifest: row_bits(max(layout.banks for layout in manifest.regions.values()) + 1)
    )
    row: Signal = Out(lambda manifest: row_bits(max(layout.rows for layout in manifest.regions.values()) + 1))
    """The fields of STREAM, SELECT and ROW, in as many bits as there are streams, regions, banks and rows."""
    moves: Signal = In(1)
    """ROW moves to the next row."""
    selects: Signal = Out(1)
    """SELECT or ROW is being written."""
    busy: Signal = In(1)
    flags: Signal = In(3)
    stopped: Signal = In(1)
    shape: Signal = In(lambda manifest: 32 * manifest.parameters.networks)
    """What is told, as it is in the cycle before that of the address's register."""
    step_done: Signal = In(1)
    saturated: Signal = In(lambda manifest: range(manifest.most_saturated + 1))
    since: Signal = In(32)
    now: Signal = Out(32)
    """What the counters count, as those of :class:`rtlstm.hdl.core.memory_window.MemoryWindow`."""

    def __init__(self, manifest: Manifest) -> None:
        # Where the fields that a host writes are kept.
        self._kept: dict[Register, dict[str, str]] = {
            Register.STREAM: {"": "stream"},
            Register.SELECT: {"REGION": "region", "BANK": "bank"},
            Register.ROW: {"": "row"},
        }
        super().__init__(manifest)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        contents = self._told(m) | self._counters(m) | self._constants() | self._held()
        here: dict[Register, Signal] = {register: self._is_addressed(m, register) for register in _READABLE}
        words = [Mux(here[register], _word(register, contents[register]), 0) for register in _READABLE]
        value = Signal.like(self.value, reset_less=True)
        m.d.sync += value.eq(any_of(words))
        m.d.comb += self.value.eq(value)
        self._keep(m, here)
        return m

    def _is_addressed(self, m: Module, register: Register) -> Signal:
        """Whether a register's number stood at ``address`` in the cycle before."""
        here = Signal(reset_less=True, name=f"at_{register.name.lower()}")
        m.d.sync += here.eq(self.address == register)
        return here

    def _keep(self, m: Module, here: dict[Register, Signal]) -> None:
        """Store what is written; ROW moves on."""
        with m.If(self.moves):
            m.d.sync += self.row.eq(self.row + 1)
        for register, fields in self._kept.items():
            with m.If(self.write & here[register]):
                m.d.sync += [
                    getattr(self, name).eq(self.data[found.low : found.high + 1])
                    for found in _fields(register)
                    if (name := fields[found.name])
                ]
        m.d.comb += self.selects.eq(self.write & (here[Register.SELECT] | here[Register.ROW]))

    def _held(self) -> dict[Register, dict[str, ValueLike]]:
        return {
            register: {name: getattr(self, kept) for name, kept in fields.items()}
            for register, fields in self._kept.items()
        }

    def _told(self, m: Module) -> dict[Register, dict[str, ValueLike]]:
        """What other parts tell. The sequencer is far: it is looked at in the address's cycle."""
        flags = delay(m, self.flags, 1)
        told: dict[Register, dict[str, ValueLike]] = {
            Register.STATUS: {
                "BUSY": delay(m, self.busy, 1),
                "STOPPED": self._program.tells(self, "stopped"),
            },
            Register.FLAGS: {name.name: flags[name.low] for name in REGISTERS[Register.FLAGS].fields},
        }
        return told

    def _constants(self) -> dict[Register, dict[str, ValueLike]]:
        words = {register: {"": Const(word, 32)} for register, word in self._manifest.constants.items()}
        return words | {
            Register.SHAPE: {"": self._program.shape_of(self._program.tells(self, "shape"), self.stream)}
        }

    def _counters(self, m: Module) -> dict[Register, dict[str, ValueLike]]:
        steps, latency, saturations = Signal(32), Signal(32), Signal(32)
        # With a reset, so that nothing of before is counted after it.
        done, clipped = Signal(name="done"), Signal.like(self.saturated, name="clipped")
        m.d.sync += [
            self.now.eq(self.now + 1),
            done.eq(self.step_done),
            clipped.eq(self.saturated),
            steps.eq(steps + done),
            saturations.eq(saturations + clipped),
        ]
        with m.If(done):
            # The beat is offered one cycle after it enters the queue: now.
            m.d.sync += latency.eq(self.now - self.since)
        return {
            Register.STEPS: {"": steps},
            Register.LATENCY: {"": latency},
            Register.CELL_SATURATIONS: {"": saturations},
            Register.CYCLES: {"": self.now},
        }


def _fields(register: Register) -> tuple[Field, ...]:
    """A register's fields; one without a name if it is a number as a whole."""
    return REGISTERS[register].fields or (Field("", 31, 0, REGISTERS[register].text),)


def _word(register: Register, contents: dict[str, ValueLike]) -> Value:
    """Return a register's word, each field at its bits of the map, or a whole word under the name ""."""
    if set(contents) == {""}:
        return Value.cast(contents[""])
    word: Value = Const(0, 32)
    for found in _fields(register):
        word |= Cat(Const(0, found.low), contents[found.name])
    return word
