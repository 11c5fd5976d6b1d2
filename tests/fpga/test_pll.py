"""Clocks of PLLs: exact, within their limits, and the nearest below."""

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rtlstm.fpga.families.base import fpga_family
from rtlstm.fpga.families.device import Pll, megahertz
from rtlstm.spec.errors import ConfigurationError

M = 1_000_000


def find_pll(family: str, source: int, wanted: Fraction) -> Pll:
    return fpga_family(family).need_bitstream().pll.find(source, wanted)


def ecp5_clocks(pll: Pll) -> tuple[Fraction, Fraction, Fraction]:
    """Phase detector, oscillator and output, from the cell's parameters alone, as Lattice's guide has it."""
    p = {name: value for name, value in pll.parameters.items() if isinstance(value, int)}
    detector = Fraction(pll.input_hz, p["CLKI_DIV"])
    vco = detector * p["CLKFB_DIV"] * p["CLKOP_DIV"]
    return detector, vco, vco / p["CLKOS_DIV" if pll.output_port == "CLKOS" else "CLKOP_DIV"]


@settings(max_examples=6, deadline=None)
@given(st.sampled_from((12, 25, 48)), st.integers(4_000, 396_000))
def test_ecp5(source: int, kilohertz: int):
    """Up to the fastest clock that is made of all three: of 12 MHz, none is between 396 and 400."""
    wanted = Fraction(kilohertz * 1000)
    pll = find_pll("ecp5", source * M, wanted)
    detector, vco, output = ecp5_clocks(pll)
    assert (vco, output) == (pll.vco_hz, pll.output_hz)
    assert detector >= 10 * M and 400 * M <= vco <= 800 * M and output <= wanted
    assert all(1 <= pll.parameters[name] <= 128 for name in ("CLKI_DIV", "CLKFB_DIV", "CLKOP_DIV"))
    # A second opinion on "nearest": every oscillator within its range, divided by every divider.
    vcos = {
        Fraction(source * M * times, before)
        for before in range(1, source // 10 + 1)
        for times in range(1, 129)
        if 400 * before <= source * times <= 800 * before
    }
    assert output == max(vco / after for vco in vcos for after in range(1, 129) if vco / after <= wanted)


@pytest.mark.parametrize(
    ("family", "source", "wanted", "found"),
    [
        ("ecp5", 25, "100", "100"),
        ("ecp5", 25, "90", "90"),
        ("ecp5", 48, "120", "120"),
        ("ice40", 12, "39.75", "39.75"),
        ("ice40", 12, "40", "39.75"),
        ("ice40", 12, "16.125", "16.125"),
        ("gowin", 27, "54", "54"),
        ("gowin", 27, "60", "60"),
        ("gowin", 27, "61", "60.75"),
    ],
)
def test_known_clocks(family: str, source: int, wanted: str, found: str):
    pll = find_pll(family, source * M, Fraction(wanted) * M)
    assert pll.output_hz == Fraction(found) * M and megahertz(pll.output_hz) == found


def test_ice40_parameters_make_the_clock():
    for wanted in (17, 24, 40, 100, 200, 270):
        pll = find_pll("ice40", 12 * M, Fraction(wanted * M))
        p = pll.parameters
        vco = Fraction(12 * M * (p["DIVF"] + 1), p["DIVR"] + 1)
        assert vco == pll.vco_hz and 533 * M <= vco <= 1066 * M
        assert vco / 2 ** p["DIVQ"] == pll.output_hz and p["FILTER_RANGE"] == 1


def test_gowin_parameters_make_the_clock():
    for wanted in (10, 27, 50, 100, 400):
        pll = find_pll("gowin", 27 * M, Fraction(wanted * M))
        p = pll.parameters
        clock = Fraction(27 * M * (p["FBDIV_SEL"] + 1), p["IDIV_SEL"] + 1)
        assert clock == pll.output_hz and 500 * M <= clock * p["ODIV_SEL"] == pll.vco_hz <= 1250 * M


def test_impossible_clocks():
    with pytest.raises(ConfigurationError, match=r"must be 16.125 to 270 MHz.* of 12 MHz, not 400"):
        find_pll("ice40", 12 * M, Fraction(400 * M))
    with pytest.raises(ConfigurationError, match="not 1"):
        find_pll("ecp5", 25 * M, Fraction(1 * M))
