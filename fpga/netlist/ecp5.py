"""An ECP5 netlist before place and route: carry chains, copies of registers, and sites of hard blocks.

Every lane's multipliers stand beside its weights: the placer alone scatters the blocks of each lane over the
die. Here the lanes and their order are known: consecutive lanes get neighbouring sites along a line that
winds through the rows of multipliers. The blocks that read the lanes' totals get sites in the middle, unit
by unit along the same line. The placer then places the logic by itself. (36 lanes of 4 on an LFE5U-85F: half
the wire length, 147 MHz instead of 99, a quarter of the time.) Of several cores side by side, each has a
part of the die of its own. Without that the placer would begin with all of them in the middle, and would
never get them apart.
"""

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rtlstm.fpga.netlist.harness import INSTANCE

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
_PART = re.compile(r"\barray\.lanes(\d+)\.lane(\d+)\.|\b(?:preactivation|gate_unit)(\d+)\.")

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
        if (part := _part(name)) is None:
            continue
        for port, bits in cell["connections"].items():
            if cell["port_directions"][port] != "input":
                continue
            for position, bit in enumerate(bits):
                readers.setdefault(bit, {}).setdefault(part, []).append((cell, port, position))
    return readers


def _part(name: str) -> FabricPart | None:
    """Return the part that a cell is in; of lanes, names have the first of four, and which of them."""
    if not (found := _PART.search(name)):
        return None
    return ("unit", int(found[3])) if found[3] else ("lane", int(found[1]) + int(found[2]))


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


PLAN = "lanes along the rows of multipliers, 7; cores, 1"
"""The rule, as a text for the hash of a synthesis: increase the number when it changes."""

_MULTIPLIER, _RAM = "MULT18X18D", "DP16KD"
_UNIT = re.compile(r"\b(?:gate_unit|preactivation)(\d+)\.(\w+?)(?:_multiplier)?\.")
"""Matches the number of a gate unit, and a part of it or of its pre-activations."""
_FEEDS = {
    "input_gate": "added",
    "candidate_gate": "added",
    "forget_gate": "kept",
    "cells": "kept",
    "output_gate": "hidden",
    "cell_tanh": "hidden",
}
"""The product that reads a memory of the gate unit as a factor, unless the memory has slopes of its own."""
_LEAST = 16
"""With fewer multipliers in lanes, the placer alone does well."""


@dataclass(frozen=True)
class Site:
    """A site of a hard block."""

    x: int
    y: int
    name: str

    @property
    def bel(self) -> str:
        """nextpnr's name of the site."""
        return f"X{self.x}/Y{self.y}/{self.name}"


@dataclass(frozen=True)
class Die:
    """Rows and columns of the hard blocks, as nextpnr names them.

    Read from placements that fill every site. A slice is four multipliers or four block RAMs side by
    side; both kinds begin at the same columns.
    """

    columns: tuple[int, ...]
    multiplier_rows: tuple[int, ...]
    ram_rows: tuple[int, ...]

    @property
    def middle(self) -> tuple[float, float]:
        """Return the centre of the sites."""
        return sum(self.columns) / len(self.columns), sum(self.multiplier_rows) / len(self.multiplier_rows)

    def cuts(self, count: int) -> list[list["Die"]]:
        """Return the ways to cut the die into a grid of at least so many parts, the squarest parts first."""

        def elongation(grid: tuple[int, int]) -> float:
            across, down = grid
            width, height = max(self.columns) / across, max(self.ram_rows) / down
            return max(width, height) / min(width, height)

        grids = {(-(-count // down), down) for down in range(1, len(self.multiplier_rows) + 1)}
        return [self._parts(across, down) for across, down in sorted(grids, key=elongation)]

    def _parts(self, across: int, down: int) -> list["Die"]:
        # A row of block RAMs belongs to the row of multipliers beside it.
        beside = {y: min(self.multiplier_rows, key=lambda row: abs(row - y)) for y in self.ram_rows}
        return [
            Die(columns, rows, tuple(y for y in self.ram_rows if beside[y] in rows))
            for rows in _pieces(self.multiplier_rows, down)
            for columns in _pieces(self.columns, across)
        ]

    def holds(self, kinds: Iterable[str]) -> bool:
        """Whether there is a site for each multiplier and block RAM among cells of these types."""
        counts = Counter(kinds)
        return counts[_MULTIPLIER] <= len(self.multipliers()) and counts[_RAM] <= len(self.rams())

    def multipliers(self) -> list[Site]:
        """Return the sites of multipliers, slice by slice along a line that winds through the rows."""
        sites = []
        for index, y in enumerate(self.multiplier_rows):
            for column in self.columns if index % 2 == 0 else self.columns[::-1]:
                sites += [Site(column + step, y, f"MULT18_{step}") for step in (0, 1, 4, 5)]
        return sites

    def rams(self) -> list[Site]:
        """Return the sites of block RAMs."""
        return [
            Site(column + 2 * step, y, f"EBR{step}")
            for y in self.ram_rows
            for column in self.columns
            for step in range(4)
        ]


def _pieces(row: tuple[int, ...], count: int) -> list[tuple[int, ...]]:
    edges = [round(index * len(row) / count) for index in range(count + 1)]
    return [row[begin:end] for begin, end in itertools.pairwise(edges)]


_NARROW = (4, 13, 22, 33, 42, 51, 60)
_MIDDLE = (4, 13, 22, 31, 42, 51, 60, 69, 78)
_WIDE = (4, 13, 22, 31, 40, 49, 58, 69, 78, 87, 96, 105, 114)
DIES: dict[str, Die] = {
    "lfe5u-25f": Die(_NARROW, (13,), (25, 37)),
    "lfe5u-45f": Die(_MIDDLE, (22, 46), (10, 34, 58)),
    "lfe5u-85f": Die(_WIDE, (10, 34, 58), (22, 46, 70, 82)),
}
"""Dies by device."""


def floorplan(netlist: dict[str, Any], device: str) -> int:
    """Assign sites to the hard blocks of a netlist in Yosys's JSON; return how many got one.

    No block gets one if the device's sites are unknown or too few, or if the lanes of the only core have few
    multipliers.
    """
    die = DIES.get(device)
    if die is None:
        return 0
    module = next(m for m in netlist["modules"].values() if m.get("attributes", {}).get("top"))
    cores: dict[str, dict[str, str]] = {}
    for name, cell in module["cells"].items():
        found = INSTANCE.match(name)
        cores.setdefault(found[1] if found else "", {})[name] = cell["type"]
    # What has no number is the only core with its top, or the harness of several, without blocks.
    only = cores.pop("", {})
    sites = _side_by_side(list(cores.values()), die) if cores else plan(only, die)
    for name, site in sites.items():
        module["cells"][name].setdefault("attributes", {})["BEL"] = site.bel
    return len(sites)


def _side_by_side(cores: list[dict[str, str]], die: Die) -> dict[str, Site]:
    """Choose the sites of each core in a part of the die of its own; none if the parts are too small."""
    for parts in die.cuts(len(cores)):
        pairs = list(zip(cores, parts, strict=False))
        if all(part.holds(kinds.values()) for kinds, part in pairs):
            return {name: site for kinds, part in pairs for name, site in plan(kinds, part, 0).items()}
    return {}


def plan(kinds: dict[str, str], die: Die, least: int = _LEAST) -> dict[str, Site]:
    """Choose a site for each multiplier and block RAM among cells of these names and types.

    None is chosen if the sites do not suffice, if no block belongs to a lane or unit, or if the lanes have
    fewer multipliers than ``least``.
    """
    lanes: dict[int, dict[str, list[str]]] = {}
    others: dict[str, list[str]] = {_MULTIPLIER: [], _RAM: []}
    for name in sorted(kinds):
        if kinds[name] not in others:
            continue
        part, number = _part(name) or ("", 0)
        group = lanes.setdefault(number, {_MULTIPLIER: [], _RAM: []}) if part == "lane" else others
        group[kinds[name]].append(name)
    in_lanes = sum(len(lane[_MULTIPLIER]) for lane in lanes.values())
    # Portable Verilog is flat when its multipliers are chosen: their names say nothing of lanes and units.
    known = lanes or any(_UNIT.search(name) for names in others.values() for name in names)
    if in_lanes < least or not known or not die.holds(kinds.values()):
        return {}
    blocks = {number: lane[_MULTIPLIER] for number, lane in sorted(lanes.items())}
    sites = _along_the_line(blocks, others[_MULTIPLIER], die)
    free = set(die.rams())
    sites |= _beside_units(others, sites, free, die)
    x, y = die.middle
    for _, lane in sorted(lanes.items()):
        positions = [sites[name] for name in lane[_MULTIPLIER]]
        # The weights of a lane without multipliers are near those of the lane before it.
        x, y = _centre(positions) if positions else (x, y)
        for name in lane[_RAM]:
            sites[name] = _take_nearest(free, x, y)
    return sites


def _along_the_line(lanes: dict[int, list[str]], others: list[str], die: Die) -> dict[str, Site]:
    """Return the sites of all multipliers: those of lanes, lane by lane, and the others.

    Where a unit reads the totals of its own four lanes alone, its multipliers stand behind theirs. Else a
    stretch in the middle is for the readers of the lanes' totals, unit after unit, and for the lanes what is
    left around it; both are whole slices.
    """
    in_lanes = sum(map(len, lanes.values()))
    multipliers = die.multipliers()
    central = _central(multipliers, die)
    units: dict[int, list[str]] = {}
    for name in others:
        if found := _UNIT.search(name):
            units.setdefault(int(found[1]), []).append(name)
    if len(units) > 1 and max(lanes, default=-1) // 4 == max(units):
        order: list[str] = []
        for unit in range(max(units) + 1):
            order += [name for lane in range(4 * unit, 4 * unit + 4) for name in lanes.get(lane, ())]
            order += units.get(unit, ())
        order += [name for name in others if not _UNIT.search(name)]
        chosen = set(central[: 4 * -(-len(order) // 4)])
        return dict(zip(order, [site for site in multipliers if site in chosen], strict=False))
    stretch = 4 * -(-len(others) // 4)
    first = multipliers.index(central[0]) - stretch // 8 * 4
    first = max(0, min(first, len(multipliers) - stretch))
    middle = multipliers[first : first + stretch]
    sites = dict(zip(others, middle, strict=False))
    central = [site for site in central if site not in middle]
    rest = set(central[: 4 * -(-in_lanes // 4)])
    rest |= set(middle[len(others) :]) if len(rest) < in_lanes else set()
    line = [site for site in multipliers if site in rest]
    return sites | dict(zip([name for lane in lanes.values() for name in lane], line, strict=False))


def _beside_units(
    others: dict[str, list[str]], sites: dict[str, Site], free: set[Site], die: Die
) -> dict[str, Site]:
    """Return the sites of block RAMs outside the lanes: near the blocks that read them, with priority for
    multipliers without an input register; else in the middle."""
    units: dict[str, list[Site]] = {}
    fed: dict[tuple[str, str], Site] = {}
    for name in others[_MULTIPLIER]:
        if found := _UNIT.search(name):
            units.setdefault(found[1], []).append(sites[name])
            fed[found[1], found[2]] = sites[name]
    placed: dict[str, Site] = {}

    def take(name: str, x: float, y: float) -> None:
        placed[name] = _take_nearest(free, x, y)

    for name in others[_RAM]:
        found = _UNIT.search(name)
        parts = (found[2], _FEEDS.get(found[2], "")) if found else ()
        if found and (
            neighbour := next((fed[found[1], part] for part in parts if (found[1], part) in fed), None)
        ):
            take(name, neighbour.x, neighbour.y)
    for name in others[_RAM]:
        if name not in placed:
            found = _UNIT.search(name)
            mine = units.get(found[1], []) if found else []
            take(name, *(_centre(mine) if mine else die.middle))
    return placed


def _central(sites: list[Site], die: Die) -> list[Site]:
    """Return the sites by their slice's distance from the middle."""
    x, y = die.middle
    slices = [sites[first : first + 4] for first in range(0, len(sites), 4)]
    slices.sort(key=lambda four: (abs(four[0].x - x) + abs(four[0].y - y), four[0].y, four[0].x))
    return [site for four in slices for site in sorted(four, key=lambda site: site.x)]


def _centre(sites: Iterable[Site]) -> tuple[float, float]:
    positions = list(sites)
    return sum(site.x for site in positions) / len(positions), sum(site.y for site in positions) / len(
        positions
    )


def _take_nearest(free: set[Site], x: float, y: float) -> Site:
    site = min(free, key=lambda site: (abs(site.x - x) + abs(site.y - y), site.y, site.x))
    free.remove(site)
    return site
