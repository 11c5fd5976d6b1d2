"""Where a board's top has its pins, in the words of the family's place and route."""

from rtlstm.boards.board import Board, Pin
from rtlstm.fpga.devices import Architecture

__all__ = ["CONSTRAINT_FILES", "constraints"]

CONSTRAINT_FILES: dict[Architecture, str] = {"ecp5": "top.lpf", "ice40": "top.pcf", "gowin": "top.cst"}
"""The file's name, by the end of which its language goes."""


def constraints(board: Board) -> str:
    """Return the constraint file of a board: places, buffers, and the clock that comes in."""
    architecture = board.chosen.device.architecture
    lines = [line for pin in board.pins() for line in _WRITE[architecture](pin)]
    if architecture == "ecp5":
        lines.append(f'FREQUENCY PORT "{board.clock.port}" {board.clock_hz} HZ;')
    if architecture == "ice40":
        lines.append(f"set_frequency {board.clock.port} {board.clock_hz / 1e6:g}")
    return "\n".join(lines) + "\n"


def _lpf(pin: Pin) -> list[str]:
    settings = " ".join(f"{name}={value}" for name, value in pin.attributes.items())
    lines = [f'LOCATE COMP "{pin.port}" SITE "{pin.site}";']
    return [*lines, f'IOBUF PORT "{pin.port}" {settings};'] if settings else lines


def _pcf(pin: Pin) -> list[str]:
    # The other settings are those of every pin there.
    pull = "-pullup yes " if pin.attributes.get("PULLUP") == "1" else ""
    return [f"set_io {pull}{pin.port} {pin.site}"]


def _cst(pin: Pin) -> list[str]:
    settings = " ".join(f"{name}={value}" for name, value in pin.attributes.items())
    lines = [f'IO_LOC "{pin.port}" {pin.site};']
    return [*lines, f'IO_PORT "{pin.port}" {settings};'] if settings else lines


_WRITE = {"ecp5": _lpf, "ice40": _pcf, "gowin": _cst}
