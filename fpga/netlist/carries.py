"""Disconnects unused ends of ECP5 carry chains, which would cost logic in place and route.

nextpnr adds a cell in front of every chain whose first carry input is connected, even to a constant, and one
behind every chain whose last carry output is connected, even to an unused net: four LUTs per chain. Yosys
always connects both.
"""

from collections import Counter
from typing import Any

__all__ = ["CUT", "cut_carries"]

CUT = "unread carry outputs, and carry inputs that have no effect"
"""What is disconnected, as a text for the hash of a synthesis."""


def cut_carries(netlist: dict[str, Any]) -> tuple[int, int]:
    """Disconnect unused ends in a netlist in Yosys's JSON; return the numbers of inputs and outputs.

    An output is disconnected if nothing reads it. An input is disconnected if the LUT of its half of the cell
    is all zeros, so that the next carry comes from the LUT's own inputs, and nothing reads the half's sum.
    The chains of ``rtlstm_sum`` begin like this, and so does nextpnr's own cell in front of a chain.
    """
    inputs = outputs = 0
    for module in netlist["modules"].values():
        cells = module.get("cells", {})
        uses = _uses(module)
        for cell in cells.values():
            if cell["type"] != "CCU2C":
                continue
            pins = cell["connections"]
            if all(uses[bit] == 1 for bit in pins.get("COUT", ["x"])):
                pins["COUT"] = ["x"]
                outputs += 1
            unread = all(uses[bit] == 1 for bit in pins.get("S0", []))
            if pins["CIN"] in (["0"], ["1"]) and unread and _zero(cell):
                pins["CIN"] = ["x"]
                inputs += 1
    return inputs, outputs


def _uses(module: dict[str, Any]) -> Counter[Any]:
    """Count the pins and ports that each net is connected to."""
    uses: Counter[Any] = Counter()
    for cell in module.get("cells", {}).values():
        for bits in cell["connections"].values():
            uses.update(bits)
    for port in module.get("ports", {}).values():
        uses.update(port["bits"])
    return uses


def _zero(cell: dict[str, Any]) -> bool:
    """Whether the LUT of the first half gives 0, with C and D high."""
    pins = cell["connections"]
    return pins["C0"] == ["1"] and pins["D0"] == ["1"] and int(cell["parameters"]["INIT0"], 2) >> 12 == 0
