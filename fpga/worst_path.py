"""Describes the worst path of a placed and routed design, and its slowest paths by family."""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rtlstm.fpga.families.base import Cells
from rtlstm.fpga.netlist.canonical import plain_name
from rtlstm.fpga.netlist.harness import INSTANCE, PORT_REGISTER
from rtlstm.spec.record import Record


class Hop(Record):
    """A cell of a path, and the wire behind it."""

    cell: str
    """What it is: the kind and name of the path's start or end, else the cell's type in the netlist."""
    net: str
    """The named signal that the wire is, or empty."""
    cell_ns: float
    wire_ns: float
    """0 of the path's end."""


class WorstPath(Record):
    """A path from one clock edge to the next."""

    start: str
    start_kind: str
    """Kind of the start: register, block RAM, distributed RAM, multiplier or input port."""
    end: str
    end_kind: str
    delay_ns: float
    logic_ns: float
    """Delay in cells, with the start's clock-to-output time and the end's set-up time."""
    routing_ns: float
    cells: int
    """Logic cells between start and end."""
    multipliers: int
    """Multipliers between start and end: they have no registers on this path."""
    through: tuple[str, ...]
    """Named signals on the path."""
    text: str
    hops: tuple[Hop, ...] = ()
    """From start to end."""


def _without(beginning: re.Pattern[str], name: str) -> str:
    """Return a name without a beginning that matches."""
    found = beginning.match(name)
    return name[found.end() :] if found else name


class _Names:
    """How tools change the names of signals, and how to recover them."""

    def __init__(self, cells: Cells) -> None:
        self._cells = cells
        blocks = (*cells.multipliers, *cells.block_rams, *cells.large_rams)
        kinds = "|".join((*cells.luts, *cells.flip_flops, *blocks, *cells.others))
        outputs = "|".join(cells.memory_outputs)
        # Synthesis names a cell after a net near it, and adds the cell's kind and port. It does the same with
        # nets at a memory's port.
        self._added = re.compile(
            rf"_(?:{kinds})[A-Z0-9]*_.*$" + (rf"|_(?:{outputs})\d.*$" if outputs else "")
        )
        self._flip_flop = re.compile(rf"_(?:{'|'.join(cells.flip_flops)})[A-Z0-9]*_Q")
        # Packing adds to names, too; the first of these are the same for every family.
        ends = ("$nextpnr", "$PACK", "$conn", *cells.packed)
        self._packed = re.compile(
            "|".join(re.escape(end) + (".*$" if end.startswith("$") else "$") for end in ends)
        )

    def signal(self, name: str) -> str:
        """Return the Verilog name behind a cell's or net's name."""
        clean = _without(INSTANCE, plain_name(name))
        clean = self._packed.sub("", clean.partition("/")[0])
        clean = self._added.sub("", clean)
        clean = re.sub(r"(\[\d+\]|\.\d+)+$", "", clean)
        return _without(PORT_REGISTER, clean)

    def kind(self, cell: str, kinds: Mapping[str, str]) -> str:
        """Return a cell's type in the netlist, without what packing added to the cell's name."""
        whole = cell.partition("/")[0]
        return kinds.get(whole) or kinds.get(self._packed.sub("", whole), "")

    def end(self, cell: str, kind: str, net: str) -> tuple[str, str]:
        """Return the name and the kind of a path's start or end."""
        if PORT_REGISTER.match(plain_name(cell)):
            return self.signal(cell), "port"
        if kind in self._cells.multipliers:
            return self.signal(cell), "multiplier"
        if kind in self._cells.lutrams:
            return self.signal(cell), "distributed RAM"
        if kind in self._cells.block_rams or kind in self._cells.large_rams:
            return self.signal(cell), "block RAM"
        # A flip-flop is named after what it drives, unless it is packed with the LUT before it.
        named = not self._flip_flop.search(cell) and net and not self._added.search(net) and "$abc" not in net
        return self.signal(net if named else cell), "register"


def signal_name(name: str, cells: Cells) -> str:
    """Return the Verilog name behind a cell's or net's name, in a netlist of a family's cells."""
    return _Names(cells).signal(name)


def worst_path(path: Sequence[Mapping[str, Any]], kinds: Mapping[str, str], cells: Cells) -> WorstPath:
    """Describe a path of nextpnr's report.

    ``path`` is ``critical_paths[n].path``. ``kinds`` is the type of each cell in the netlist. ``cells`` are
    the family's cells, with their kinds and names.
    """
    names = _Names(cells)
    routing = sum(step["delay"] for step in path if step["type"] == "routing")
    total = sum(step["delay"] for step in path)
    crossed = [names.kind(str(step["from"]["cell"]), kinds) for step in path if step["type"] == "logic"]
    multipliers = _multipliers(path, kinds, names, cells)
    logic = sum(kind not in cells.multipliers for kind in crossed)
    first, last = path[0], path[-1]
    start_net = next((str(step["net"]) for step in path if step["type"] == "routing"), "")
    start_cell, end_cell = str(first["from"]["cell"]), str(last["to"]["cell"])
    start, start_kind = names.end(start_cell, names.kind(start_cell, kinds), start_net)
    end, end_kind = names.end(end_cell, names.kind(end_cell, kinds), "")
    if start_kind == "port":
        start_kind = "input port"
    if end_kind == "port":
        end_kind = "output port"
    nets = [names.signal(str(step["net"])) for step in path if step["type"] == "routing"]
    through = [name for name in dict.fromkeys(nets) if name not in ("", start, end) and "$abc" not in name]
    share = round(100 * routing / total) if total else 0
    between = f"{logic} logic cell{'s' if logic != 1 else ''}"
    if multipliers:
        between += f" and {multipliers} multiplier{'s' if multipliers > 1 else ''}"
    text = (
        f"from {start_kind} {start} through {between} to {end_kind} {end}: "
        f"{total:.2f} ns, of which {total - routing:.2f} in cells and {routing:.2f} ({share} %) in wires"
    )
    return WorstPath(
        start=start,
        start_kind=start_kind,
        end=end,
        end_kind=end_kind,
        delay_ns=round(total, 3),
        logic_ns=round(total - routing, 3),
        routing_ns=round(routing, 3),
        cells=logic,
        multipliers=multipliers,
        through=tuple(through),
        text=text,
        hops=tuple(_hops(path, kinds, names, f"{start_kind} {start}", f"{end_kind} {end}")),
    )


def _hops(
    path: Sequence[Mapping[str, Any]], kinds: Mapping[str, str], names: _Names, start: str, end: str
) -> Iterator[Hop]:
    """Yield the cells of a path, each with the wire behind it."""
    cells = [index for index, step in enumerate(path) if step["type"] != "routing"]
    for index, following in zip(cells, [*cells[1:], len(path)], strict=True):
        step, wires = path[index], path[index + 1 : following]
        net = names.signal(str(wires[0]["net"])) if wires else ""
        kind = names.kind(str(step["from"]["cell"]), kinds)
        inside = start if index == cells[0] else end if index == cells[-1] else kind
        yield Hop(
            cell=inside,
            net="" if "$abc" in net else net,
            cell_ns=round(step["delay"], 3),
            wire_ns=round(sum(wire["delay"] for wire in wires), 3),
        )


def _multipliers(
    path: Sequence[Mapping[str, Any]], kinds: Mapping[str, str], names: _Names, cells: Cells
) -> int:
    """Count the multipliers on a path; those of nexus have several cells each."""
    ends = {str(path[0]["from"]["cell"]).partition("/")[0], str(path[-1]["to"]["cell"]).partition("/")[0]}
    passed = {str(step["from"]["cell"]).partition("/")[0] for step in path if step["type"] == "logic"}
    return sum(names.kind(cell, kinds) in cells.multipliers for cell in passed - ends)


MOST = 12
"""Families in a report."""

_INSTANCE = re.compile(r"\(INSTANCE (\S+)\)")
_DELAY = re.compile(r"\((INTERCONNECT|IOPATH) (\S+) (\S+) \(\S*?(\d+)\)(?: \(\S*?(\d+)\))?\)")
_SETUP = re.compile(r"\(SETUPHOLD \(\w+ (\S+)\) \(\w+ (\S+)\) \(\S*?(-?\d+)\)")


class PathFamily(Record):
    """Paths whose starts and ends have the same names but for digits, which are written as ``*``."""

    start: str
    end: str
    delay_ns: float
    """Delay of the slowest of them, with clock-to-output and set-up time."""
    ends: int
    """Inputs at which such a path is the slowest that arrives."""


@dataclass
class _Delays:
    """Delays in ps; a pin is its cell's name, a slash and the port."""

    wires: dict[str, tuple[str, int]] = field(default_factory=dict)
    """To an input pin: the output pin that drives it, and the wire's delay."""
    arcs: dict[str, list[tuple[str, int]]] = field(default_factory=lambda: defaultdict(list))
    """To an output pin: the input pins of its cell that it depends on, and the cell's delays."""
    setups: dict[str, int] = field(default_factory=dict)
    """Set-up times of input pins."""
    clocks: set[str] = field(default_factory=set)
    """Pins with a clock."""


def path_families(sdf: Iterable[str], name: Callable[[str], str]) -> tuple[PathFamily, ...]:
    """Group the slowest path to each clocked input, the slowest family first.

    ``sdf`` are lines of nextpnr's SDF. ``name`` gives the Verilog name behind a cell's.
    """
    delays = _read(sdf)
    slowest: dict[tuple[str, str], list[int]] = {}
    arrivals = _arrivals(delays)

    def family(pin: str) -> str:
        return re.sub(r"\d+", "*", name(pin.rpartition("/")[0]))

    for pin, setup in delays.setups.items():
        driver, wire = delays.wires.get(pin, ("", 0))
        if driver in arrivals:
            start, arrival = arrivals[driver]
            slowest.setdefault((family(start), family(pin)), []).append(arrival + wire + setup)
    ranked = sorted(slowest.items(), key=lambda item: (-max(item[1]), item[0]))
    return tuple(
        PathFamily(start=start, end=end, delay_ns=max(found) / 1000, ends=len(found))
        for (start, end), found in ranked[:MOST]
    )


def _read(lines: Iterable[str]) -> _Delays:
    found, cell = _Delays(), ""
    for escaped in lines:
        line = escaped.replace("\\", "")
        if delay := _DELAY.search(line):
            kind, source, sink, *times = delay.groups()
            slowest = max(int(time) for time in times if time)
            if kind == "INTERCONNECT":
                found.wires[sink] = (source, slowest)
            else:
                found.arcs[f"{cell}/{sink}"].append((f"{cell}/{source}", slowest))
        elif setup := _SETUP.search(line):
            pin, clock, time = setup.groups()
            found.setups[f"{cell}/{pin}"] = int(time)
            found.clocks.add(f"{cell}/{clock}")
        elif instance := _INSTANCE.search(line):
            cell = instance[1]
    return found


def _arrivals(delays: _Delays) -> dict[str, tuple[str, int]]:
    """Return for each output pin that a clock edge reaches where it comes from, and the longest delay."""
    found: dict[str, tuple[str, int]] = {}
    asked = set[str]()
    # Pins, each with whether what it depends on has been dealt with. A loop is cut where it closes.
    waiting = [(pin, False) for pin in delays.arcs]
    while waiting:
        pin, ready = waiting.pop()
        inputs = [(source, delay) for source, delay in delays.arcs[pin] if source not in delays.clocks]
        if ready:
            edges = [(delay, pin) for source, delay in delays.arcs[pin] if source in delays.clocks]
            for source, delay in inputs:
                driver, wire = delays.wires.get(source, ("", 0))
                if driver in found:
                    start, before = found[driver]
                    edges.append((before + wire + delay, start))
            if edges:
                arrival, start = max(edges)
                found[pin] = start, arrival
        elif pin not in asked:
            asked.add(pin)
            drivers = (delays.wires[source][0] for source, _ in inputs if source in delays.wires)
            waiting.append((pin, True))
            waiting += [(driver, False) for driver in drivers if driver in delays.arcs]
    return found
