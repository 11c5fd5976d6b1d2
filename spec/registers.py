"""The register map: RTL, driver, documentation and the C header are generated from it.

Registers are 32 bits wide and addressed by number; on a byte-addressed bus register ``n`` has the address
``4 * n``. The memories of the core are accessed through a window: SELECT names the region and bank, ROW
the row; DATA then reads or writes the row's words, least significant first, and goes on to the next
row automatically.
"""

from dataclasses import dataclass
from enum import IntEnum, IntFlag
from typing import Final, Literal

CORE_MODULE: Final = "rtlstm_zynq"
"""The Verilog module that the block design instantiates."""
CORE_CELL: Final = "core"
"""Its cell in the block design, and so its name in a PYNQ overlay."""
CORE_TYPE: Final = f"xilinx.com:module_ref:{CORE_MODULE}:1.0"
"""The type (vendor, library, name, version) that Vivado gives a cell made of a module."""
OVERLAY: Final = "overlay"
"""Folder, in that of the board, of what PYNQ needs."""

IDENTITY = 0x4C53544D
"""Value of the ID register: "LSTM" in ASCII."""

MAP_VERSION = (1, 3)
"""Major and minor version of this map: a new major number breaks drivers."""

Owner = Literal["core", "bus", "fifos"]
"""Which part has a register: the core, every bus wrapper, or wrappers with data FIFOs."""


class Register(IntEnum):
    """Register numbers; 0 to 15 are the core's."""

    ID = 0
    BUILD = 1
    STATUS = 2
    STREAM = 3
    COMMAND = 4
    FLAGS = 5
    SELECT = 6
    ROW = 7
    DATA = 8
    STEPS = 9
    LATENCY = 10
    CELL_SATURATIONS = 11
    CYCLES = 12
    VERSION = 13
    SHAPE = 14
    CAPACITY = 15
    CONTROL = 16
    LINK_ERRORS = 17
    IRQ_ENABLE = 18
    IRQ_PENDING = 19
    X_DATA = 20
    X_STREAM = 21
    X_ROOM = 22
    Y_DATA = 23
    Y_STREAM = 24
    Y_STEPS = 25


class Command(IntEnum):
    """Values of the COMMAND register."""

    RESET = 1
    STATE_WRITTEN = 2
    HAND_OVER = 3


class Interrupt(IntFlag):
    """Bits of IRQ_ENABLE and IRQ_PENDING."""

    DONE = 1
    LINK_ERROR = 2


class Region(IntEnum):
    """Memories that are accessed through the window."""

    WEIGHTS = 0
    PARTIALS = 1
    SHIFTS = 2
    VECTORS = 3
    CELLS = 4
    SIGMOID = 5
    TANH = 6
    CELL_TANH = 7
    TABLES = 8
    PROGRAM = 9
    TOKENS = 10


@dataclass(frozen=True)
class Field:
    """Some bits of a register: ``high`` down to ``low``."""

    name: str
    high: int
    low: int
    text: str

    @property
    def mask(self) -> int:
        """The field's bits."""
        return (1 << (self.high + 1)) - (1 << self.low)

    def of(self, word: int) -> int:
        """Return the field's value in a word of its register."""
        return (word & self.mask) >> self.low

    def at(self, value: int) -> int:
        """Return a word in which this field holds ``value`` and all other bits are 0."""
        return (value << self.low) & self.mask


@dataclass(frozen=True)
class Description:
    """Meaning of a register, its access (``r``, ``w`` or ``rw``), and the part that has it."""

    access: str
    text: str
    fields: tuple[Field, ...] = ()
    owner: Owner = "core"


def _bit(name: str, bit: int, text: str) -> Field:
    return Field(name, bit, bit, text)


_INTERRUPTS = (
    _bit("DONE", 0, "a step's last output beat has been given"),
    _bit("LINK_ERROR", 1, "LINK_ERRORS has counted"),
)

REGISTERS: dict[Register, Description] = {
    Register.ID: Description("r", "Reads 0x4C53544D."),
    Register.BUILD: Description("r", "The first 8 hexadecimal digits of the hardware's hash, as a number."),
    Register.STATUS: Description(
        "r",
        "What the core is doing.",
        (
            _bit(
                "BUSY", 0, "a step is being computed or waits in the input buffer, or results are under way"
            ),
            _bit("STOPPED", 1, "a loadable core has no whole program and takes no input"),
        ),
    ),
    Register.STREAM: Description(
        "rw", "The stream that COMMAND and FLAGS address, as x_stream has it; SHAPE tells of its network."
    ),
    Register.COMMAND: Description(
        "w",
        "1: reset the stream to zero state. 2: its state has been written. 3: it is the named network's.",
    ),
    Register.FLAGS: Description(
        "r",
        "State of the stream that STREAM names.",
        (
            _bit("ZERO", 0, "its state is zero whatever the memories hold"),
            _bit("PARTIALS_INVALID", 1, "its recurrent partial sums are invalid and will be computed again"),
            _bit("COPIED", 2, "its first layer's h is in the second half of the ping-pong buffer"),
        ),
    ),
    Register.SELECT: Description(
        "rw",
        "Memory and bank that ROW and DATA access.",
        (Field("REGION", 31, 28, "memory"), Field("BANK", 15, 0, "which of its banks")),
    ),
    Register.ROW: Description("rw", "Row of the memory window; moves on after a row's last word."),
    Register.DATA: Description("rw", "Next word of the row. Waits until no step is being computed."),
    Register.STEPS: Description("r", "Steps since reset whose output was given, modulo 2**32."),
    Register.LATENCY: Description(
        "r",
        "Cycles of the last step: last input beat to last output beat, its wait for earlier steps included.",
    ),
    Register.CELL_SATURATIONS: Description("r", "Cell states saturated since reset, modulo 2**32."),
    Register.CYCLES: Description("r", "Cycles since reset, modulo 2**32."),
    Register.VERSION: Description(
        "r",
        "Version of this register map.",
        (Field("MAJOR", 31, 16, "a new one breaks drivers"), Field("MINOR", 15, 0, "a new one adds")),
    ),
    Register.SHAPE: Description(
        "r",
        "Input and output sizes of the loaded network; 0 encodes 65,536.",
        (Field("OUTPUTS", 31, 16, "values out"), Field("INPUTS", 15, 0, "values in")),
    ),
    Register.CAPACITY: Description(
        "r",
        "What the build holds.",
        (
            Field("OUTPUT_BITS", 31, 24, "width of an output"),
            Field("DATA_BITS", 23, 16, "width of an input"),
            Field("NETWORKS", 15, 12, "networks at once, less 1"),
            Field("STREAMS", 11, 0, "independent sequences"),
        ),
    ),
    Register.CONTROL: Description(
        "w",
        "Acts at once.",
        (
            _bit(
                "RESET",
                0,
                "reset core and data path as the reset pin does; memories, LINK_ERRORS and interrupts stay",
            ),
        ),
        "bus",
    ),
    Register.LINK_ERRORS: Description(
        "r", "Malformed inputs and refused accesses since reset, modulo 2**32.", owner="bus"
    ),
    Register.IRQ_ENABLE: Description("rw", "Which of IRQ_PENDING raise the interrupt.", _INTERRUPTS, "bus"),
    Register.IRQ_PENDING: Description(
        "rw", "What has happened; writing a 1 clears a bit.", _INTERRUPTS, "bus"
    ),
    Register.X_DATA: Description(
        "w", "Next input value, in the low bits. Refused if X_ROOM is 0 as a step begins.", owner="fifos"
    ),
    Register.X_STREAM: Description(
        "rw",
        "Stream and flags of the steps that are written from now on. Refused if there is no such stream or "
        "network.",
        (
            _bit("SUPPRESS", 31, "their outputs are not wanted"),
            Field("STREAM", 15, 0, "their stream"),
        ),
        "fifos",
    ),
    Register.X_ROOM: Description("r", "Steps that can be begun now.", owner="fifos"),
    Register.Y_DATA: Description(
        "r", "Takes the next output value, sign-extended. Refused if Y_STEPS is 0.", owner="fifos"
    ),
    Register.Y_STREAM: Description("r", "Stream of the next output value, if any.", owner="fifos"),
    Register.Y_STEPS: Description(
        "r", "Steps whose output stands ready, one that is partly taken included.", owner="fifos"
    ),
}
"""Every register: access, meaning, fields."""


def field(register: Register, name: str) -> Field:
    """Return a register's field. Raises KeyError if the register has no field of this name."""
    return {each.name: each for each in REGISTERS[register].fields}[name]
