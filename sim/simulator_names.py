"""The simulators that run the Verilog."""

from typing import Literal

__all__ = ["Simulator"]

Simulator = Literal["verilator", "icarus"]
