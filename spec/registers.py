"""The register map: one object that RTL, driver and documentation are made from.

Registers are 32 bits wide and addressed by number. The memories of the core are reached through
a window: SELECT names the region and bank, ROW the row; DATA then reads or writes the row's
words, least significant first, and moves on to the next row by itself.
"""

from enum import IntEnum

__all__ = ["IDENTITY", "REGISTERS", "Command", "Region", "Register"]

IDENTITY = 0x4C53544D
"""What the ID register reads: "LSTM" in ASCII."""


class Register(IntEnum):
    """Register numbers."""

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


REGISTERS: dict[Register, tuple[str, str]] = {
    Register.ID: ("r", "Reads 0x4C53544D."),
    Register.BUILD: ("r", "First 32 bits of the build's hash."),
    Register.STATUS: (
        "r",
        "Bit 0: a step is being computed or waits in the input buffer, or results are under way.",
    ),
    Register.STREAM: ("rw", "The stream that COMMAND and FLAGS speak of."),
    Register.COMMAND: ("w", "1: reset the stream to zero state. 2: its state has been written."),
    Register.FLAGS: (
        "r",
        "Of the stream: bit 0, its state is zero whatever the memories hold; "
        "bit 1, its recurrent part must be computed anew; "
        "bit 2, its first layer's h is in the second of its two places.",
    ),
    Register.SELECT: ("rw", "Bits 31..28 region, bits 15..0 bank, of the memory window."),
    Register.ROW: ("rw", "Row of the memory window; moves on after a row's last word."),
    Register.DATA: ("rw", "Next word of the row. Waits until no step is being computed."),
    Register.STEPS: ("r", "Steps since reset whose output was given, modulo 2**32."),
    Register.LATENCY: ("r", "Cycles of the last step: last input beat to last output beat."),
    Register.CELL_SATURATIONS: ("r", "Cell states limited since reset, modulo 2**32."),
    Register.CYCLES: ("r", "Cycles since reset, modulo 2**32."),
}
"""Access and meaning of each register."""


class Command(IntEnum):
    """Values of the COMMAND register."""

    RESET = 1
    STATE_WRITTEN = 2


class Region(IntEnum):
    """Memories behind the window."""

    WEIGHTS = 0
    PARTIALS = 1
    SHIFTS = 2
    VECTORS = 3
    CELLS = 4
    SIGMOID = 5
    TANH = 6
    CELL_TANH = 7
    TABLES = 8
