"""Clocks from the boards' PLLs: an exact search over the dividers of each family's cell.

All frequencies are whole hertz or fractions of them, so that a clock is what it is said to be. The limits
are those of the data sheets; where speed grades differ, of the slowest.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor

from rtlstm.spec.errors import ConfigurationError

__all__ = ["PLL_ARCHITECTURES", "Pll", "find_pll", "megahertz"]

_M = 1_000_000


@dataclass(frozen=True)
class Pll:
    """A PLL's cell with all that is set in it.

    ``parameters``, ``attributes`` and ``constants`` are the cell's own; constants are the bits of inputs.
    """

    cell: str
    input_hz: int
    vco_hz: Fraction
    output_hz: Fraction
    parameters: Mapping[str, int | str]
    attributes: Mapping[str, str]
    constants: Mapping[str, str]
    input_port: str
    output_port: str
    lock_port: str
    feedback: tuple[str, str] | None = None
    """Output and input between which a wire closes the loop outside of the cell."""


def megahertz(clock: Fraction) -> str:
    """Return a frequency in MHz, exact if it has up to six decimals."""
    return f"{float(clock / _M):.6f}".rstrip("0").rstrip(".")


def _ecp5(source: int) -> Iterator[tuple[Fraction, Fraction, tuple[int, ...]]]:
    """Yield clock, oscillator, and dividers of input, feedback, loop's output and core's output.

    The oscillator is the phase detector's clock times the feedback's and the loop output's divider. A clock
    that is a multiple of the phase detector's closes the loop itself; for others the loop has an
    output of its own, and the clock is a second one.
    """
    for before in range(1, 129):
        detector = Fraction(source, before)
        if not 10 * _M <= detector <= 400 * _M:
            continue
        for times in range(ceil(400 * _M / detector), floor(800 * _M / detector) + 1):
            for after in range(1, 129):
                clock = detector * times / after
                if not Fraction(3_125_000) <= clock <= 400 * _M:
                    continue
                feedback, rest = divmod(times, after)
                if rest == 0:
                    yield clock, detector * times, (before, feedback, after, after)
                elif times <= 128:
                    yield clock, detector * times, (before, 1, times, after)


def _ice40(source: int) -> Iterator[tuple[Fraction, Fraction, tuple[int, ...]]]:
    """Yield clock, oscillator, and dividers of input, feedback and output (a power of two)."""
    for before in range(1, 17):
        detector = Fraction(source, before)
        if not 10 * _M <= detector <= 133 * _M:
            continue
        for times in range(1, 129):
            for shift in range(1, 7):
                vco = detector * times
                if 533 * _M <= vco <= 1066 * _M and 16 * _M <= vco / 2**shift <= 275 * _M:
                    yield vco / 2**shift, vco, (before, times, shift)


def _gowin(source: int) -> Iterator[tuple[Fraction, Fraction, tuple[int, ...]]]:
    """Yield clock, oscillator, and dividers of input, feedback and oscillator."""
    for before in range(1, 65):
        detector = Fraction(source, before)
        if not 3 * _M <= detector <= 400 * _M:
            continue
        for times in range(1, 65):
            clock = detector * times
            for divider in (2, 4, 8, 16, 32, 48, 64, 80, 96, 112, 128):
                if 500 * _M <= clock * divider <= 1250 * _M and clock <= 625 * _M:
                    yield clock, clock * divider, (before, times, divider)


_Candidates = Callable[[int], Iterator[tuple[Fraction, Fraction, tuple[int, ...]]]]
_SEARCH: dict[str, tuple[_Candidates, int]] = {
    "ecp5": (_ecp5, 600 * _M),
    "ice40": (_ice40, 800 * _M),
    "gowin": (_gowin, 875 * _M),
}
"""By architecture: what the PLL can be set to, and the middle of its oscillator's range."""

PLL_ARCHITECTURES = tuple(_SEARCH)


def find_pll(architecture: str, source_hz: int, wanted_hz: Fraction) -> Pll:
    """Return the PLL whose clock is nearest to the wanted one and not above it.

    Of several with the same clock: one whose loop needs no output of its own, then the quickest phase
    detector, then the oscillator nearest to the middle of its range.

    Raises
    ------
    ConfigurationError
        If the wanted clock is outside the PLL's range.
    """
    candidates, middle = _SEARCH[architecture]
    found = list(candidates(source_hz))
    below = [item for item in found if item[0] <= wanted_hz]
    highest = max(item[0] for item in found)
    if not below or wanted_hz > highest:
        lowest = min(item[0] for item in found)
        raise ConfigurationError(
            f"the clock must be {megahertz(lowest)} to {megahertz(highest)} MHz, which is what the board's "
            f"PLL makes of {megahertz(Fraction(source_hz))} MHz, not {megahertz(wanted_hz)}"
        )
    best = max(item[0] for item in below)
    same = [item for item in below if item[0] == best]
    clock, vco, dividers = min(same, key=lambda item: (_second(item[2]), item[2][0], abs(item[1] - middle)))
    return {"ecp5": _ecp5_cell, "ice40": _ice40_cell, "gowin": _gowin_cell}[architecture](
        source_hz, clock, vco, dividers
    )


def _second(dividers: tuple[int, ...]) -> bool:
    """Whether an ECP5's clock is another output than the loop's."""
    return len(dividers) == 4 and dividers[2] != dividers[3]


def _ecp5_cell(source: int, clock: Fraction, vco: Fraction, dividers: tuple[int, ...]) -> Pll:
    before, feedback, loop, after = dividers
    second = _second(dividers)
    return Pll(
        cell="EHXPLLL",
        input_hz=source,
        vco_hz=vco,
        output_hz=clock,
        parameters={
            "PLLRST_ENA": "DISABLED",
            "INTFB_WAKE": "DISABLED",
            "STDBY_ENABLE": "DISABLED",
            "DPHASE_SOURCE": "DISABLED",
            "FEEDBK_PATH": "CLKOP",
            "OUTDIVIDER_MUXA": "DIVA",
            "CLKI_DIV": before,
            "CLKFB_DIV": feedback,
            "CLKOP_ENABLE": "ENABLED",
            "CLKOP_DIV": loop,
            "CLKOP_CPHASE": loop - 1,
            "CLKOP_FPHASE": 0,
            **(
                {
                    "OUTDIVIDER_MUXB": "DIVB",
                    "CLKOS_ENABLE": "ENABLED",
                    "CLKOS_DIV": after,
                    "CLKOS_CPHASE": after - 1,
                    "CLKOS_FPHASE": 0,
                }
                if second
                else {}
            ),
        },
        # The filter's settings that Lattice's own tools write for every clock.
        attributes={
            "ICP_CURRENT": "12",
            "LPF_RESISTOR": "8",
            "MFG_ENABLE_FILTEROPAMP": "1",
            "MFG_GMCREF_SEL": "2",
        },
        constants={
            "RST": "0",
            "STDBY": "0",
            "PHASESEL0": "0",
            "PHASESEL1": "0",
            "PHASEDIR": "1",
            "PHASESTEP": "1",
            "PHASELOADREG": "1",
            "PLLWAKESYNC": "0",
            "ENCLKOP": "0",
            "ENCLKOS": "0",
        },
        input_port="CLKI",
        output_port="CLKOS" if second else "CLKOP",
        lock_port="LOCK",
        feedback=("CLKOP", "CLKFB"),
    )


_FILTERS = ((17, 1), (26, 2), (44, 3), (66, 4), (101, 5), (134, 6))
"""iCE40: below so many MHz at the phase detector, this setting of the filter."""


def _ice40_cell(source: int, clock: Fraction, vco: Fraction, dividers: tuple[int, ...]) -> Pll:
    before, times, shift = dividers
    detector = Fraction(source, before)
    return Pll(
        cell="SB_PLL40_PAD",
        input_hz=source,
        vco_hz=vco,
        output_hz=clock,
        parameters={
            "FEEDBACK_PATH": "SIMPLE",
            "PLLOUT_SELECT": "GENCLK",
            "DIVR": before - 1,
            "DIVF": times - 1,
            "DIVQ": shift,
            "FILTER_RANGE": next(setting for limit, setting in _FILTERS if detector < limit * _M),
        },
        attributes={},
        constants={"RESETB": "1", "BYPASS": "0"},
        input_port="PACKAGEPIN",
        output_port="PLLOUTGLOBAL",
        lock_port="LOCK",
    )


def _gowin_cell(source: int, clock: Fraction, vco: Fraction, dividers: tuple[int, ...]) -> Pll:
    before, times, divider = dividers
    return Pll(
        cell="rPLL",
        input_hz=source,
        vco_hz=vco,
        output_hz=clock,
        parameters={
            "FCLKIN": megahertz(Fraction(source)),
            "DEVICE": "GW2AR-18C",
            "DYN_IDIV_SEL": "false",
            "DYN_FBDIV_SEL": "false",
            "DYN_ODIV_SEL": "false",
            "DYN_DA_EN": "false",
            "IDIV_SEL": before - 1,
            "FBDIV_SEL": times - 1,
            "ODIV_SEL": divider,
            "CLKFB_SEL": "internal",
        },
        attributes={},
        constants=dict.fromkeys(("RESET", "RESET_P", "CLKFB"), "0")
        | dict.fromkeys(("FBDSEL", "IDSEL", "ODSEL"), "000000")
        | dict.fromkeys(("PSDA", "DUTYDA", "FDLY"), "0000"),
        input_port="CLKIN",
        output_port="CLKOUT",
        lock_port="LOCK",
    )
