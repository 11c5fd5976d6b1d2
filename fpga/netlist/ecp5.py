"""An ECP5 netlist before place and route: carry chains and their unused ends, and copies of registers."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

CUT = "unread carry outputs, and carry inputs that have no effect"
"""What is disconnected, as a text for the hash of a synthesis."""


def cut_carries(netlist: dict[str, Any]) -> tuple[int, int]:
    """Disconnect unused ends in a netlist in Yosys's JSON; return the numbers of inputs and outputs.

    nextpnr adds a cell in front of every chain whose first carry input is connected, even to a constant, and
    one behind every chain whose last carry output is connected, even to an unused net: four LUTs per chain.
    Yosys always connects both.

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

    Synthesis merges equal registers. So the lanes of a block, and neighbouring units, share registers of
    which the Verilog has copies, and the placer can put such a register beside only one of them.

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


CHAIN_CELLS = 4
"""Carry cells per tile, of two bits each."""

_CARRY = "CCU2C"


@dataclass(frozen=True)
class Chains:
    """Carry chains of a netlist."""

    cells: tuple[int, ...]
    """Carry cells of each chain, with those that nextpnr adds at its ends."""

    @property
    def tiles(self) -> int:
        """Tiles that the chains take."""
        return sum(chain_tiles(cells) for cells in self.cells)


def chain_tiles(cells: int) -> int:
    """Return the tiles of a chain of so many carry cells."""
    return -(-cells // CHAIN_CELLS)


def count_chains(netlist: Mapping[str, Any]) -> Chains:
    """Find the carry chains of a flat netlist in Yosys's JSON, as nextpnr will pack them.

    nextpnr begins every chain in a new tile, which has four carry cells, and continues it in the tiles beside
    it. The rest of a chain's last tile can hold LUTs but no other chain. So a chain of five cells takes two
    tiles, and a device with many short chains runs out of tiles for chains long before it runs out of LUTs.
    """
    found: list[int] = []
    for module in netlist["modules"].values():
        carries = {name: cell for name, cell in module.get("cells", {}).items() if cell["type"] == _CARRY}
        readers = _count_reads(module)
        found += _lengths(carries, readers)
    return Chains(cells=tuple(sorted(found, reverse=True)))


def _count_reads(module: Mapping[str, Any]) -> Counter[Any]:
    """Count the inputs and ports that read each net."""
    readers: Counter[Any] = Counter()
    for cell in module.get("cells", {}).values():
        for port, bits in cell["connections"].items():
            if cell["port_directions"][port] == "input":
                readers.update(bits)
    for port in module.get("ports", {}).values():
        readers.update(port["bits"])
    return readers


def _lengths(carries: Mapping[str, Any], readers: Counter[Any]) -> Iterator[int]:
    """Yield the carry cells of each chain."""
    ends = {cell["connections"]["COUT"][0] for cell in carries.values()} - {"x"}
    following = {cell["connections"]["CIN"][0]: cell for cell in carries.values()}
    for cell in carries.values():
        begins = cell["connections"]["CIN"][0]
        if begins in ends:
            continue
        # One cell brings in the first carry, if it is connected, and one brings out the last.
        length = int(begins != "x")
        at: Any = cell
        while at is not None:
            carry = at["connections"]["COUT"][0]
            length += 1
            after = None if carry == "x" else following.get(carry)
            length += int(readers[carry] > (after is not None)) if carry != "x" else 0
            at = after
        yield length
