"""What the device families' modules share."""

from importlib.resources import files
from pathlib import Path

__all__ = ["LOGIC_MULTIPLIERS"]

LOGIC_MULTIPLIERS = Path(str(files("rtlstm.hdl").joinpath("primitives", "rows.v"))).absolute()
"""Verilog of multipliers made of logic, for primitives with an ``rtlstm_sum`` of their own."""
