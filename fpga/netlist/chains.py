"""Carry chains of an ECP5 netlist, and the tiles that they take.

nextpnr begins every chain in a new tile, which has four carry cells, and continues it in the tiles beside it.
The rest of a chain's last tile can hold LUTs but no other chain. So a chain of five cells takes two tiles,
and a device with many short chains runs out of tiles for chains long before it runs out of LUTs.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["CHAIN_CELLS", "Chains", "chain_tiles", "count_chains"]

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
    """Find the carry chains of a flat netlist in Yosys's JSON, as nextpnr will pack them."""
    found: list[int] = []
    for module in netlist["modules"].values():
        carries = {name: cell for name, cell in module.get("cells", {}).items() if cell["type"] == _CARRY}
        readers = _readers(module)
        found += _lengths(carries, readers)
    return Chains(cells=tuple(sorted(found, reverse=True)))


def _readers(module: Mapping[str, Any]) -> Counter[Any]:
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
