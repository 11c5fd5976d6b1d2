"""The register map: the documentation's table is made of it, and its numbers fit each other."""

import re

import pytest
from support.paths import DOCS

from rtlstm.spec.buses import registers_of
from rtlstm.spec.registers import REGISTERS, Register

PAGE = DOCS / "registers.md"


def meaning(register: Register) -> str:
    """What the documentation says of a register: its text, then its fields."""
    description = REGISTERS[register]
    fields = [
        f"bit {field.low}: {field.text}"
        if field.high == field.low
        else f"bits {field.high}..{field.low}: {field.text}"
        for field in description.fields
    ]
    return " ".join([description.text, *([f"{'; '.join(fields)}."] if fields else [])])


def test_documented_table_is_the_map() -> None:
    rows = re.findall(r"^\| (\d+) \| 0x(\w\w) \| (\w+) \| (\w+) \| (\w+) \| (.*) \|$", PAGE.read_text(), re.M)
    assert rows == [
        (
            str(int(register)),
            f"{4 * register:02X}",
            register.name,
            description.access,
            description.owner,
            meaning(register),
        )
        for register, description in REGISTERS.items()
    ]


def test_every_register_is_described_once() -> None:
    assert list(REGISTERS) == list(Register)
    assert [int(register) for register in Register] == list(range(len(Register)))


@pytest.mark.parametrize("register", Register)
def test_fields_do_not_overlap(register: Register) -> None:
    seen = 0
    for field in REGISTERS[register].fields:
        assert 0 <= field.low <= field.high < 32
        assert not seen & field.mask
        seen |= field.mask


def test_core_has_its_sixteen() -> None:
    assert list(registers_of("none")) == list(Register)[:16]
    assert set(registers_of("axilite")) == set(registers_of("wishbone"))
    assert set(registers_of("axi")) < set(registers_of("wishbone")) == set(Register)
    assert Register.X_DATA not in registers_of("wishbone", "r")
