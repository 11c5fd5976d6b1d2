"""The slowest path of a placed and routed design, in words."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from rtlstm.fpga.netlist.harness import CORE, PREFIX
from rtlstm.spec.record import Record

__all__ = ["WorstPath", "signal_name", "worst_path"]

# Synthesis names a cell after a net near it, then adds the cell's kind and port.
_ADDED = re.compile(
    r"_(TRELLIS_|LUT\d|PFUMX|L6MUX|CCU2|DP16K|PDPW|PDPSC|MULT\d|ALU|SB_|DFF|FD1P|WIDEFN|DPR16|MUX2_|RAM16|SDP"
    r"|INV_|VLO|VHI|DO[AB]?\d).*$"
)
_FLIP_FLOP = re.compile(r"_(TRELLIS_FF|SB_DFF\w*|FD1P3\w*|DFF\w*)_Q")
# Packing adds to names, too.
_PACKED = re.compile(r"\$(DPRAM|RAMW|CCU2|ccu2|nextpnr|PACK|tr_io|sb_io|conn).*$|_(LC|DFFLC|DSP|RAM)$")
_MEMORY = re.compile(r"DP16K|PDP|SP16K|RAM40|SDP[BX]|^DP[BX]|^SPX?9?$|pROM|SPRAM|PDPSC512|DPSC512")
_TABLE = re.compile(r"DPR16|RAM16")
_MULTIPLIER = re.compile(r"MULT|MAC16")


class WorstPath(Record):
    """A path from one clock edge to the next."""

    start: str
    start_kind: str
    """register, block RAM, distributed RAM, multiplier or input port."""
    end: str
    end_kind: str
    delay_ns: float
    logic_ns: float
    """In cells, with the start's clock to output and the end's set-up."""
    routing_ns: float
    cells: int
    """Logic cells between start and end."""
    multipliers: int
    """Multipliers between start and end: they have no registers on this path."""
    through: tuple[str, ...]
    """Signals on the way that have names."""
    text: str


def signal_name(name: str) -> str:
    """Return the Verilog name behind a cell's or net's name."""
    clean = name.removeprefix(f"{CORE}.")
    clean = _PACKED.sub("", clean.partition("/")[0])
    clean = _ADDED.sub("", clean)
    clean = re.sub(r"(\[\d+\]|\.\d+)+$", "", clean)
    return clean.removeprefix(PREFIX) if clean.startswith(PREFIX) else clean


def worst_path(path: Sequence[Mapping[str, Any]], kinds: Mapping[str, str]) -> WorstPath:
    """Describe a path of nextpnr's report.

    Parameters
    ----------
    path
        ``critical_paths[n].path``.
    kinds
        The type of each cell in the netlist.
    """
    routing = sum(step["delay"] for step in path if step["type"] == "routing")
    total = sum(step["delay"] for step in path)
    crossed = [_kind(str(step["from"]["cell"]), kinds) for step in path if step["type"] == "logic"]
    multipliers = len(_blocks(path, kinds))
    cells = sum(not _MULTIPLIER.search(kind) for kind in crossed)
    first, last = path[0], path[-1]
    start_net = next((str(step["net"]) for step in path if step["type"] == "routing"), "")
    start, start_kind = _end(str(first["from"]["cell"]), kinds, start_net)
    end, end_kind = _end(str(last["to"]["cell"]), kinds, "")
    if start_kind == "port":
        start_kind = "input port"
    if end_kind == "port":
        end_kind = "output port"
    names = [signal_name(str(step["net"])) for step in path if step["type"] == "routing"]
    through = [name for name in dict.fromkeys(names) if name not in (start, end) and "$abc" not in name]
    share = round(100 * routing / total) if total else 0
    between = f"{cells} logic cell{'s' if cells != 1 else ''}"
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
        cells=cells,
        multipliers=multipliers,
        through=tuple(through),
        text=text,
    )


def _kind(cell: str, kinds: Mapping[str, str]) -> str:
    """Return a cell's type in the netlist; packing adds to its name."""
    whole = cell.partition("/")[0]
    return kinds.get(whole) or kinds.get(_PACKED.sub("", whole), "")


def _blocks(path: Sequence[Mapping[str, Any]], kinds: Mapping[str, str]) -> set[str]:
    """Return the multipliers that a path passes; nexus's are of several cells each."""
    ends = {str(path[0]["from"]["cell"]).partition("/")[0], str(path[-1]["to"]["cell"]).partition("/")[0]}
    cells = {str(step["from"]["cell"]).partition("/")[0] for step in path if step["type"] == "logic"}
    return {cell for cell in cells - ends if _MULTIPLIER.search(_kind(cell, kinds))}


def _end(cell: str, kinds: Mapping[str, str], net: str) -> tuple[str, str]:
    """Name a path's start or end, and say what it is."""
    kind = _kind(cell, kinds)
    if cell.startswith(PREFIX):
        return signal_name(cell), "port"
    if _MULTIPLIER.search(kind):
        return signal_name(cell), "multiplier"
    if _TABLE.search(kind):
        return signal_name(cell), "distributed RAM"
    if _MEMORY.search(kind):
        return signal_name(cell), "block RAM"
    # A flip-flop is named after what it drives, unless it is packed with the table before it.
    named = not _FLIP_FLOP.search(cell) and net and not _ADDED.search(net) and "$abc" not in net
    return signal_name(net if named else cell), "register"
