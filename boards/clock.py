"""Which clock the core has on a board: the one asked for, or the fastest that its bitstream meets."""

from collections.abc import Callable
from fractions import Fraction

from rtlstm.boards.board import Board, BoardTiming
from rtlstm.fpga.estimate import board_clock, estimate
from rtlstm.fpga.place_route import Routed
from rtlstm.spec.manifest import Manifest

_ROUTES = 3
"""Most routes after the first, each with a slower clock."""


def within_range(board: Board, clock_mhz: float) -> Fraction:
    """Return the clock in MHz, or the nearest that the PLL of a routed design can be set to."""
    lowest, highest = (clock / 1_000_000 for clock in board.clock_range)
    return min(max(Fraction(str(clock_mhz)), lowest), highest)


def at_clock(board: Board, timing: BoardTiming, clock_mhz: float) -> BoardTiming:
    """Return the same timing with the core's clock that is nearest below, or the PLL's slowest."""
    return timing.replace(pll=board.find_pll(within_range(board, clock_mhz) * 1_000_000, alike=True))


def expected_clock(manifest: Manifest, board: Board) -> Fraction:
    """Return the clock in MHz that is expected of a bitstream, by the core's estimate if there is one."""
    found = estimate(manifest, board.chosen, board=board.name)
    fmax = (found and found.fmax_mhz) or board.chosen.target_mhz
    return within_range(board, board_clock(fmax, fmax))


def find_fastest(
    board: Board,
    first: BoardTiming,
    routed: Routed,
    block_rams: float,
    again: Callable[[BoardTiming], Routed],
) -> tuple[BoardTiming, Routed]:
    """Find the fastest clock of the PLL that a design meets, and the route that shows it.

    Parameters
    ----------
    first, routed
        The first route, and its timing: the PLL's clock just below what it has reached is the first that is
        tried.
    block_rams
        Block RAMs of the core, which may limit its clock.
    again
        Routes the same with this timing. If it misses the clock, the next slower one follows. The last one
        is the result even if it is missed.
    """
    limit = board.chosen.usable_mhz(routed.fmax_mhz, block_rams)
    for _ in range(_ROUTES):
        timing = at_clock(board, first, limit)
        found = again(timing)
        fmax = board.chosen.usable_mhz(found.fmax_mhz, block_rams)
        if fmax >= timing.clock_mhz:
            break
        limit = min(fmax, float((timing.clock_hz - 1) / 1_000_000))
    return timing, found
