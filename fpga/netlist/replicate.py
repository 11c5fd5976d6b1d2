"""Copies registers that several lanes or units read, one for each of them.

Synthesis merges equal registers. So the lanes of a block, and neighbouring units, share registers of which
the Verilog has copies, and the placer can put such a register beside only one of them.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["REPLICATED", "replicate"]

REPLICATED = "registers read by the logic of several lanes or units"
"""What is copied, as a text for the hash of a synthesis."""

_REGISTER = "TRELLIS_FF"
_HARD = ("MULT18X18D", "DP16KD", "PDPW16KD")
"""Cells with registers at their inputs, to which a long wire does no harm."""
_PART = re.compile(r"\barray\.(?P<lane>lane)(\d+)\.|\b(?:preactivation|gate_unit)(\d+)\.")

FabricPart = tuple[str, int]
"""A lane, or a unit with its pre-activations."""

CellPin = tuple[dict[str, Any], str, int]
"""A cell, and one bit of one of its ports."""


def replicate(netlist: dict[str, Any]) -> int:
    """Give each lane and unit its own copies in a netlist in Yosys's JSON; return the number of copies.

    The first lane, the first unit and all other logic keep the original register.
    """
    added = 0
    for module in netlist["modules"].values():
        cells: dict[str, dict[str, Any]] = module.get("cells", {})
        readers = _readers(cells)
        free = max((bit for bit in _bits(module) if isinstance(bit, int)), default=1) + 1
        copies: dict[str, dict[str, Any]] = {}
        for name, cell in cells.items():
            if cell["type"] != _REGISTER:
                continue
            for (kind, number), pins in _others(readers.get(cell["connections"]["Q"][0], {})):
                copies[f"{name}${kind}{number}"] = _copy(cell, free)
                for reader, port, position in pins:
                    reader["connections"][port][position] = free
                free += 1
        cells.update(copies)
        added += len(copies)
    return added


def _readers(cells: Mapping[str, dict[str, Any]]) -> dict[Any, dict[FabricPart, list[CellPin]]]:
    """Return which pins of which parts' cells read each net."""
    readers: dict[Any, dict[FabricPart, list[CellPin]]] = {}
    for name, cell in cells.items():
        if not (found := _PART.search(name)):
            continue
        part = ("lane", int(found[2])) if found["lane"] else ("unit", int(found[3]))
        for port, bits in cell["connections"].items():
            if cell["port_directions"][port] != "input":
                continue
            for position, bit in enumerate(bits):
                readers.setdefault(bit, {}).setdefault(part, []).append((cell, port, position))
    return readers


def _others(parts: Mapping[FabricPart, list[CellPin]]) -> Iterator[tuple[FabricPart, list[CellPin]]]:
    """Return the parts whose logic reads a net, without the first lane and the first unit."""
    met = set()
    for part in sorted(parts):
        kind, _ = part
        if any(cell["type"] not in _HARD for cell, _, _ in parts[part]):
            if kind in met:
                yield part, parts[part]
            met.add(kind)


def _copy(register: dict[str, Any], net: int) -> dict[str, Any]:
    return {**register, "connections": {**register["connections"], "Q": [net]}}


def _bits(module: dict[str, Any]) -> Iterator[Any]:
    for cell in module.get("cells", {}).values():
        for bits in cell["connections"].values():
            yield from bits
    for net in (*module.get("netnames", {}).values(), *module.get("ports", {}).values()):
        yield from net["bits"]
