"""The slowest paths of a routed design by family, from the delays that nextpnr writes as SDF."""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from rtlstm.spec.record import Record

__all__ = ["PathFamily", "path_families"]

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

    Parameters
    ----------
    sdf
        Lines of nextpnr's SDF.
    name
        Gives the Verilog name behind a cell's.
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
    """Read the largest delays of a design."""
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
