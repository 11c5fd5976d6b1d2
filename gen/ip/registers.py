"""The register map of a build as packages tell of it: the one map, with reset values and side effects."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from rtlstm.spec.buses import BUSES, registers_of
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.registers import REGISTERS, Description, Field, Register

__all__ = ["FieldEntry", "RegisterEntry", "is_mapped", "register_entries"]

_READ_ACTS: Final = {Register.DATA, Register.Y_DATA}
"""A read takes a word, so that the next read gives another one."""
_WRITE_ACTS: Final = {Register.COMMAND, Register.DATA, Register.CONTROL, Register.X_DATA}
"""A write does something, and no read gives back what was written."""
_CLEARED: Final = {Register.IRQ_PENDING}
"""Writing a 1 clears a bit."""
_MOVES: Final = {Register.ROW} | _CLEARED
"""Readable and writable, and the hardware changes it, too."""
_ZERO: Final = {
    Register.STEPS,
    Register.LATENCY,
    Register.CELL_SATURATIONS,
    Register.LINK_ERRORS,
    Register.Y_STEPS,
}
"""Only the hardware writes it, and a reset makes it 0."""


@dataclass(frozen=True)
class FieldEntry:
    """Some bits of a register."""

    name: str
    text: str
    high: int
    low: int
    reset: int | None
    """Value after a reset; None if it is not known, or never read."""

    @property
    def width(self) -> int:
        """Number of bits."""
        return self.high - self.low + 1


@dataclass(frozen=True)
class RegisterEntry:
    """A register of a build."""

    name: str
    text: str
    offset: int
    """Bytes from the first register."""
    access: str
    """``r``, ``w`` or ``rw``."""
    hardware: Literal["na", "r", "w", "rw"]
    """What the hardware does with it, in SystemRDL's words: ``na`` for a constant."""
    on_read: bool
    """Whether a read acts."""
    on_write: Literal["", "oneToClear", "modify"]
    """How a write acts, if it does not simply set the value."""
    fields: tuple[FieldEntry, ...]

    @property
    def acts(self) -> bool:
        """Whether an access does more than to read or to set the value."""
        return self.on_read or self.on_write == "modify"

    @property
    def volatile(self) -> bool:
        """Whether a read may give something else than what was written last."""
        return "w" in self.hardware


def is_mapped(manifest: Manifest) -> bool:
    """Whether the build has a bus on which its registers are mapped memory."""
    return "bus" in BUSES[manifest.parameters.bus].owners


def register_entries(manifest: Manifest) -> tuple[RegisterEntry, ...]:
    """Return the registers that a build answers, in the order of their addresses."""
    return tuple(
        _entry(register, REGISTERS[register], manifest.constants)
        for register in registers_of(manifest.parameters.bus)
    )


def _entry(register: Register, description: Description, constants: Mapping[Register, int]) -> RegisterEntry:
    access = description.access
    hardware: Literal["na", "r", "w", "rw"]
    if register in constants:
        hardware = "na"
    elif register in _MOVES or register == Register.DATA:
        hardware = "rw"
    else:
        hardware = "r" if "w" in access else "w"
    # Registers that only software writes begin at 0.
    known = (access == "rw" and register != Register.DATA) or register in _ZERO
    value = constants.get(register, 0 if known else None)
    fields = description.fields or (Field("VALUE", 31, 0, description.text),)
    return RegisterEntry(
        name=register.name,
        text=description.text,
        offset=4 * register,
        access=access,
        hardware=hardware,
        on_read=register in _READ_ACTS,
        on_write="oneToClear" if register in _CLEARED else "modify" if register in _WRITE_ACTS else "",
        fields=tuple(
            FieldEntry(each.name, each.text, each.high, each.low, None if value is None else each.of(value))
            for each in sorted(fields, key=lambda each: each.low)
        ),
    )
