"""The simulators that run the Verilog."""

from typing import Literal

Simulator = Literal["verilator", "icarus"]
