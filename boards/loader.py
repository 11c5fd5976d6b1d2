"""Configures a board over USB, with openFPGALoader."""

import shutil
from pathlib import Path

from rtlstm.boards.board import Board
from rtlstm.spec.errors import ToolError
from rtlstm.tools.toolchain import run_tool

__all__ = ["load_board"]


def load_board(board: Board, bitstream: Path, flash: bool = False) -> None:
    """Configure a board that is plugged in.

    Parameters
    ----------
    flash
        Write the flash memory, so that the bitstream stays when the power goes.

    Raises
    ------
    ToolError
        If openFPGALoader is missing or fails; it fails without a board.
    """
    loader = shutil.which("openFPGALoader")
    if loader is None:
        raise ToolError(
            "configuring a board needs openFPGALoader on the path; install it (Debian, Ubuntu: apt install "
            "openfpgaloader; macOS: brew install openfpgaloader), or load the file with another tool: "
            f"{bitstream}"
        )
    options = [*board.loader, *(["--write-flash"] if flash else [])]
    run_tool([loader, *options, bitstream], f"configuring {board.name}")
