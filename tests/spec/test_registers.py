"""The register map: the documentation's table is made of it, and its numbers fit each other."""

import re

import pytest
from support.paths import DOCS

from rtlstm.spec.buses import registers_of
from rtlstm.spec.registers import REGISTERS, Register, field

PAGE = DOCS / "ports.md"


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
    for part in REGISTERS[register].fields:
        assert 0 <= part.low <= part.high < 32
        assert not seen & part.mask
        seen |= part.mask


def test_core_has_its_sixteen() -> None:
    assert list(registers_of("none")) == list(Register)[:16]
    assert set(registers_of("axilite")) == set(registers_of("wishbone"))
    assert set(registers_of("axi")) < set(registers_of("wishbone")) == set(Register)
    assert Register.X_DATA not in registers_of("wishbone", "r")


def test_fields_take_words_apart_and_put_them_together() -> None:
    region, bank = field(Register.SELECT, "REGION"), field(Register.SELECT, "BANK")
    word = region.at(9) | bank.at(0x1234)
    assert word == 0x90001234 and (region.of(word), bank.of(word)) == (9, 0x1234)
    assert field(Register.STATUS, "STOPPED").at(1) == 2
    for register, description in REGISTERS.items():
        for each in description.fields:
            assert field(register, each.name) is each
            most = (1 << (each.high - each.low + 1)) - 1
            assert each.at(most) == each.mask and each.of(0xFFFFFFFF) == most
    with pytest.raises(KeyError, match="BUSSY"):
        field(Register.STATUS, "BUSSY")
