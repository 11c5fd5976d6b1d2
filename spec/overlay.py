"""Names that the block design of a Zynq board and the driver on that board share."""

from typing import Final

CORE_MODULE: Final = "rtlstm_zynq"
"""The Verilog module that the block design instantiates."""
CORE_CELL: Final = "core"
"""Its cell in the block design, and so its name in a PYNQ overlay."""
CORE_TYPE: Final = f"xilinx.com:module_ref:{CORE_MODULE}:1.0"
"""The type (vendor, library, name, version) that Vivado gives a cell made of a module."""
OVERLAY: Final = "overlay"
"""Folder, in that of the board, of what PYNQ needs."""
