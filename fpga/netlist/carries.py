"""Loose ends of ECP5 carry chains, which place and route would spend logic on.

nextpnr puts a cell in front of every chain whose first carry input is connected, if only to a
constant, and one behind every chain whose last carry output is, if only to a net that nobody reads:
four tables a chain. Yosys connects both always.
"""

from collections import Counter
from typing import Any

__all__ = ["CUT", "cut_carries"]

CUT = "unread carry outputs, and carry inputs that have no effect"
"""What is cut, for the hash of a synthesis."""


def cut_carries(netlist: dict[str, Any]) -> tuple[int, int]:
    """Cut the loose ends in a netlist in Yosys's JSON; return how many inputs and outputs those were.

    An output goes if nothing reads it. An input goes if its half of the cell is a table of zeros, so
    that the carry behind it comes from the table's own inputs, and nothing reads the half's sum: so
    the chains of ``rtlstm_sum`` begin, and nextpnr's own cell in front of a chain.
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
    """Whether the first half's table gives 0, with C and D high."""
    pins = cell["connections"]
    return pins["C0"] == ["1"] and pins["D0"] == ["1"] and int(cell["parameters"]["INIT0"], 2) >> 12 == 0
