"""Devices are found by many names, and wrong names get help."""

import re

import pytest

from rtlstm.fpga.devices import devices, find_device
from rtlstm.spec.errors import ConfigurationError


@pytest.mark.parametrize(
    ("name", "found", "package", "grade"),
    [
        ("lfe5u-85f", "lfe5u-85f", "CABGA381", "6"),
        ("LFE5U-85F-8", "lfe5u-85f", "CABGA381", "8"),
        ("LFE5U-45F-7BG554C", "lfe5u-45f", "CABGA554", "7"),
        ("ecp5-25k", "lfe5u-25f", "CABGA381", "6"),
        ("ice40up5k-sg48", "up5k", "sg48", ""),
        ("hx8k", "hx8k", "ct256", ""),
        ("lifcl-40-9", "lifcl-40", "SG72", "9"),
        ("gw2ar-18", "gw2ar-18", "QN88", "C8/I7"),
        ("xc7a35t", "xc7a35t", "", ""),
    ],
)
def test_names(name: str, found: str, package: str, grade: str):
    chosen = find_device(name)
    assert (chosen.device.name, chosen.package, chosen.grade) == (found, package, grade)


def test_package_and_grade_by_option():
    chosen = find_device("lfe5u-85f", "cabga756", "8")
    assert chosen.label == "lfe5u-85f-8"
    assert chosen.options[:5] == ("--85k", "--package", "CABGA756", "--speed", "8")
    assert find_device("lfe5u-85f-8", grade="8") == find_device("lfe5u-85f-8")


def test_block_ram_limits_the_clock_of_designs_that_have_some():
    chosen = find_device("lfe5u-85f", grade="8")
    assert chosen.block_ram_mhz == 271
    assert [chosen.usable_mhz(fmax, 1) for fmax in (200.0, 300.0)] == [200, 271]
    assert chosen.usable_mhz(300.0, 0) == 300
    assert find_device("up5k").usable_mhz(300.0, 1) == 300


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("lfe5u-85",), "there is no device 'lfe5u-85'; near names: lfe5u-85f"),
        (("lfe5u-85-8",), "near names: lfe5u-85f-8, lfe5um-85f-8"),
        (
            ("lfe5u-85f-9",),
            "what follows lfe5u-85f- must be one of its speed grades, 6, 7, 8, with or without",
        ),
        (("lfe5u-45f-6bg999c",), "a package's code, bg256, bg381, "),
        (("gw2a-18-8",), "what follows gw2a-18- must be one of its speed grades, C8/I7, not '8'"),
        (("lfe5u-8f",), "; with a speed grade: lfe5u-85f-6, lfe5u-85f-7, lfe5u-85f-8"),
        (("up5",), "near names: up5k"),
        (("",), "known ones: lfe5u-12f"),
        (("lfe5u-85f-8", None, "7"), "`speed_grade` must agree with the device's name, but they say 7 and 8"),
        (("lfe5u-85f", None, "5"), "the speed grade of lfe5u-85f must be one of 6, 7, 8, not '5'"),
        (("up5k", "qfn"), "the package of up5k must be one of sg48, uwg30, not 'qfn'"),
        (("xc7a35t", None, "1"), "the speed grade of xc7a35t cannot be chosen, not '1'"),
    ],
)
def test_wrong_names(arguments: tuple[str | None, ...], words: str):
    with pytest.raises(ConfigurationError, match=re.escape(words)):
        find_device(*arguments)


def test_aliases_are_unique_and_labels_make_folders():
    names = [name for device in devices().values() for name in (device.name, *device.aliases)]
    assert len(names) == len(set(names))
    for name in devices():
        label = find_device(name).label
        assert re.fullmatch(r"[a-z0-9-]+", label)
        assert find_device(label) == find_device(name)


def test_clock_limits_and_targets_are_per_grade():
    for device in devices().values():
        grades = set(device.grades or ("",))
        assert set(device.block_ram_mhz) <= grades
        if device.routable:
            assert set(device.target_mhz) == grades and device.pins
