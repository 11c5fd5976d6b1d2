"""Puts a netlist into an order that follows from what it connects, not from how its Verilog is written.

Synthesis, placement and routing break ties by the order and the names of what they read. So a renumbered
name or two exchanged lines give another mapping and another placement, whose clock may be 10 % off. Here
the cells and nets of each module are ranked by what they are connected to, by colour refinement: cells of
equal type and parameters are told apart by the ranks of their nets, nets by the ranks of their cells, until
no rank changes. What is alike even then is exchangeable; one of it is picked and the ranks are refined again.

Ports, modules and instances keep their names, but for numbers that Amaranth added to tell equal names apart.
A signal's name gets the rank of its first bit in front (see :func:`plain_name`), generated names go.
"""

import json
import re
from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any

CANONICAL = "cells and nets ranked by their connections, 4"
"""The rule, as a text for the hash of a synthesis: increase the number when it changes."""

_NUMBERED = re.compile(r"\$\d+")
"""Matches the number that Amaranth adds to a name that is there already."""
_GENERATED = re.compile(r"^\$|^_\d+_$|\$[a-z]")
"""Matches the names of signals that have none in the source."""
_RANK = re.compile(r"\bn\d{5,}\$")
_TEXT = ("src", "hdlname", "module_src")
"""Attributes that tell where in the text something stands."""

Bit = int | str
"""A net's number, or a constant."""


def plain_name(name: str) -> str:
    """Return a name without the ranks that :func:`canonical_netlist` put into it."""
    return _RANK.sub("", name)


def canonical_netlist(netlist: Mapping[str, Any]) -> dict[str, Any]:
    """Return a netlist in Yosys's JSON, of modules without processes, in canonical order.

    Two netlists that differ in the order of statements, in generated names and numbers, or in the names of
    signals give the same one, but for the signals' names behind their ranks.
    """
    modules = netlist["modules"]
    named = _unnumbered(modules)
    result = {named[name]: _Module(module, named).canonical() for name, module in modules.items()}
    return {"creator": "", "modules": dict(sorted(result.items()))}


def _unnumbered(names: Sequence[str] | Mapping[str, Any]) -> dict[str, str]:
    """Return each name without numbers that Amaranth added, or with the least ones where names then meet."""
    short: dict[str, list[str]] = defaultdict(list)
    for name in names:
        # Yosys' own names of modules with parameters follow from these.
        short[name if name.startswith("$") else _NUMBERED.sub("", name)].append(name)
    return {
        name: base if len(alike) == 1 else f"{base}${index}"
        for base, alike in short.items()
        for index, name in enumerate(sorted(alike, key=_natural))
    }


def _natural(name: str) -> list[tuple[int, str]]:
    """Return a key that sorts numbers in names by their value."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name) if part]


class _Module:
    """A module, its cells and nets with ranks."""

    def __init__(self, module: Mapping[str, Any], modules: Mapping[str, str]) -> None:
        self._module = module
        self._modules = modules
        self._cells: list[tuple[str, Mapping[str, Any]]] = sorted(
            module["cells"].items(), key=lambda item: _natural(item[0])
        )
        instances = [
            name for name, cell in self._cells if cell["type"] in modules or not cell["type"].startswith("$")
        ]
        # Yosys has one list of names for instances and ports.
        self._instances = {
            name: f"{short}$instance" if short in module["ports"] else short
            for name, short in _unnumbered(instances).items()
        }
        self._pins = [
            [
                (port, index, bit)
                for port, bits in sorted(cell["connections"].items())
                for index, bit in enumerate(bits)
            ]
            for _, cell in self._cells
        ]
        nets = {bit for pins in self._pins for _, _, bit in pins if isinstance(bit, int)}
        nets |= {bit for port in module["ports"].values() for bit in port["bits"] if isinstance(bit, int)}
        self._nets = sorted(nets)
        self._readers: dict[int, list[tuple[int, int]]] = {net: [] for net in self._nets}
        for number, pins in enumerate(self._pins):
            for position, (_, _, bit) in enumerate(pins):
                if isinstance(bit, int):
                    self._readers[bit].append((number, position))

    def canonical(self) -> dict[str, Any]:
        cells, nets = self._ranks()
        order = sorted(range(len(self._cells)), key=cells.__getitem__)
        number = {net: rank + 2 for rank, net in enumerate(sorted(self._nets, key=nets.__getitem__))}

        def bits(connected: Sequence[Bit]) -> list[Bit]:
            return [number[bit] if isinstance(bit, int) else bit for bit in connected]

        ports = {
            name: port | {"bits": bits(port["bits"])} for name, port in sorted(self._module["ports"].items())
        }
        return {
            "attributes": _content(self._module.get("attributes", {})),
            "parameter_default_values": self._module.get("parameter_default_values", {}),
            "ports": ports,
            "cells": dict(self._named_cells(order, bits)),
            "memories": self._memories(),
            "netnames": {name: _net(port["bits"]) for name, port in ports.items()}
            | dict(self._named_nets(number)),
        }

    def _memories(self) -> dict[str, Any]:
        return {
            name: memory | {"attributes": _content(memory["attributes"])}
            for name, memory in sorted(self._module.get("memories", {}).items())
        }

    def _named_cells(self, order: Sequence[int], bits: Any) -> Iterator[tuple[str, dict[str, Any]]]:
        for rank, index in enumerate(order):
            name, cell = self._cells[index]
            yield (
                self._instances.get(name, f"$c{rank:05d}"),
                dict(cell)
                | {
                    "hide_name": int(name not in self._instances),
                    "type": self._modules.get(cell["type"], cell["type"]),
                    "attributes": _content(cell.get("attributes", {})),
                    "connections": {port: bits(found) for port, found in sorted(cell["connections"].items())},
                },
            )

    def _named_nets(self, number: Mapping[int, int]) -> Iterator[tuple[str, dict[str, Any]]]:
        named = []
        for name, net in self._module["netnames"].items():
            if name in self._module["ports"] or _GENERATED.search(name):
                continue
            # Bits that no cell and no port has are connected to nothing.
            found = [number.get(bit) if isinstance(bit, int) else bit for bit in net["bits"]]
            if not any(isinstance(bit, int) for bit in found) or None in found:
                continue
            first = next(bit for bit in found if isinstance(bit, int))
            named.append((first, found, _NUMBERED.sub("", name), _content(net.get("attributes", {}))))
        met = set()
        for first, found, name, attributes in sorted(
            named, key=lambda item: (item[0], -len(item[1]), item[1:3].__repr__())
        ):
            if first in met:
                continue
            met.add(first)
            yield f"n{first:05d}${name}", _net(found, attributes)

    def _ranks(self) -> tuple[list[int], dict[int, int]]:
        """Return a rank of its own for each cell and each net."""
        kinds: list[Hashable] = [
            (
                self._modules.get(cell["type"], cell["type"]),
                json.dumps(
                    [cell.get("parameters", {}), _content(cell.get("attributes", {}))], sort_keys=True
                ),
                self._instances.get(name, ""),
                tuple((port, index, bit) for port, index, bit in pins if isinstance(bit, str)),
            )
            for (name, cell), pins in zip(self._cells, self._pins, strict=True)
        ]
        cells = _ranked(kinds)
        port_bits: dict[int, list[tuple[str, int]]] = defaultdict(list)
        for name, port in sorted(self._module["ports"].items()):
            for index, bit in enumerate(port["bits"]):
                if isinstance(bit, int):
                    port_bits[bit].append((name, index))
        of_net = _ranked([tuple(port_bits[net]) for net in self._nets])
        nets = dict(zip(self._nets, of_net, strict=True))
        while True:
            cells, nets = self._refined(cells, nets)
            alike = _alike(cells)
            if alike is None:
                break
            cells = [2 * rank for rank in cells]
            cells[alike] -= 1
        # Nets of equal rank have the same pins of the same cells: there is at most one.
        return cells, nets

    def _refined(self, cells: list[int], nets: dict[int, int]) -> tuple[list[int], dict[int, int]]:
        classes = 0
        while True:
            cells = _ranked(
                [
                    (rank, tuple(nets[bit] if isinstance(bit, int) else -1 for _, _, bit in pins))
                    for rank, pins in zip(cells, self._pins, strict=True)
                ]
            )
            found = _ranked(
                [
                    (
                        nets[net],
                        tuple(sorted((cells[cell], position) for cell, position in self._readers[net])),
                    )
                    for net in self._nets
                ]
            )
            nets = dict(zip(self._nets, found, strict=True))
            count = len(set(cells)) + len(set(found))
            if count == classes:
                return cells, nets
            classes = count


def _ranked(keys: Sequence[Any]) -> list[int]:
    """Return the rank of each key among the different ones."""
    ranks = {key: rank for rank, key in enumerate(sorted(set(keys)))}
    return [ranks[key] for key in keys]


def _alike(ranks: Sequence[int]) -> int | None:
    """Return the first of the cells that share the least rank that several have."""
    first: dict[int, int] = {}
    shared = {}
    for index, rank in enumerate(ranks):
        if rank in first:
            shared[rank] = first[rank]
        else:
            first[rank] = index
    return shared[min(shared)] if shared else None


def _net(bits: Sequence[Any], attributes: Mapping[str, Any] | None = None) -> dict[str, Any]:
    return {"hide_name": 0, "bits": bits, "attributes": attributes or {}}


def _content(attributes: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in sorted(attributes.items()) if name not in _TEXT}
