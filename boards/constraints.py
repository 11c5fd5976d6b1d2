"""Where a board's top has its pins, in the words of the family's place and route."""

from rtlstm.boards.board import Board

__all__ = ["constraints"]


def constraints(board: Board) -> str:
    """Return the constraint file of a board: sites, buffers, and the clock that comes in."""
    tools = board.family.need_place_route()
    lines = [line for pin in board.pins() for line in tools.pin_lines(pin)]
    return "\n".join([*lines, *tools.clock_lines(board.clock.port, board.clock_hz)]) + "\n"
