"""Writes the pin constraints of a board's top, in the format of the family's place and route."""

from rtlstm.boards.board import Board

__all__ = ["constraints"]


def constraints(board: Board) -> str:
    """Return the text of a board's constraint file: sites, buffers, and the clock pin's frequency."""
    tools = board.family.need_place_route()
    lines = [line for pin in board.pins() for line in tools.pin_lines(pin)]
    return "\n".join([*lines, *tools.clock_lines(board.clock.port, board.clock_hz)]) + "\n"
