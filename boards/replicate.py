"""Registers that several lanes read, one for each of them.

Synthesis makes one register of equal ones, so that the lanes of a block, which stand apart, share what they
were given copies of: the placer can then put it beside one lane only.
"""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

__all__ = ["REPLICATED", "replicate"]

REPLICATED = "registers read by the logic of several lanes"
"""What is replicated, for the hash of a synthesis."""

_REGISTER = "TRELLIS_FF"
_HARD = ("MULT18X18D", "DP16KD", "PDPW16KD")
"""Cells with registers at their inputs, to which a long way does no harm."""
_LANE = re.compile(r"\barray\.lane(\d+)\.")

Pin = tuple[dict[str, Any], str, int]
"""A cell, and one bit of one of its ports."""


def replicate(path: Path) -> int:
    """Give each lane its own copies in a netlist in Yosys's JSON; return how many were added.

    The lane with the lowest number and all that is in no lane keep the register that was there.
    """
    netlist = json.loads(path.read_text())
    added = 0
    for module in netlist["modules"].values():
        cells: dict[str, dict[str, Any]] = module.get("cells", {})
        readers = _readers(cells)
        free = max((bit for bit in _bits(module) if isinstance(bit, int)), default=1) + 1
        copies: dict[str, dict[str, Any]] = {}
        for name, cell in cells.items():
            if cell["type"] != _REGISTER:
                continue
            for lane, pins in list(_apart(readers.get(cell["connections"]["Q"][0], {})))[1:]:
                copies[f"{name}$lane{lane}"] = _copy(cell, free)
                for reader, port, place in pins:
                    reader["connections"][port][place] = free
                free += 1
        cells.update(copies)
        added += len(copies)
    path.write_text(json.dumps(netlist))
    return added


def _readers(cells: Mapping[str, dict[str, Any]]) -> dict[Any, dict[int, list[Pin]]]:
    """Return which pins of which lanes' cells read each net."""
    readers: dict[Any, dict[int, list[Pin]]] = {}
    for name, cell in cells.items():
        if not (found := _LANE.search(name)):
            continue
        for port, bits in cell["connections"].items():
            if cell["port_directions"][port] != "input":
                continue
            for place, bit in enumerate(bits):
                readers.setdefault(bit, {}).setdefault(int(found[1]), []).append((cell, port, place))
    return readers


def _apart(lanes: Mapping[int, list[Pin]]) -> Iterator[tuple[int, list[Pin]]]:
    """Lanes whose logic reads a net, in order."""
    for lane, pins in sorted(lanes.items()):
        if any(cell["type"] not in _HARD for cell, _, _ in pins):
            yield lane, pins


def _copy(register: dict[str, Any], net: int) -> dict[str, Any]:
    return {**register, "connections": {**register["connections"], "Q": [net]}}


def _bits(module: dict[str, Any]) -> Iterator[Any]:
    for cell in module.get("cells", {}).values():
        for bits in cell["connections"].values():
            yield from bits
    for net in (*module.get("netnames", {}).values(), *module.get("ports", {}).values()):
        yield from net["bits"]
