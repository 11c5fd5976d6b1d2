"""Makes a netlist's text pass a linter, so that a user's own ``verilator -Wall`` needs no waiver for it.

Yosys writes operators whose operands have different widths, and bits that nothing reads. Here operands are
extended or cut to the operator's width, and all bits without a reader get a name that says so. Synthesis
removes both: the hardware is the same. What each part is for, by Verilator's warnings:

==================================  ==================================================================
equal widths                        WIDTHEXPAND, WIDTHTRUNC
comparisons that are always true    UNSIGNED, CMPCONST
separate wires for bits that        UNOPTFLAT: Verilator looks at whole wires, and takes a sign
depend on bits of their own wire    extension in one for a loop
names for unused bits               UNUSEDSIGNAL
initial values apart from wires     PROCASSINIT
cases in priority order             CASEOVERLAP; and simulation is what synthesis makes of it
==================================  ==================================================================
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby

Bit = tuple[str, int] | str
"""A bit of a wire, or a constant one: 0, 1 or x."""

_COMPARES = ("$eq", "$ne", "$lt", "$le", "$gt", "$ge")
_WIDE = ("$add", "$sub", "$and", "$or", "$xor", "$not", "$neg", "$pos", "$shl", "$sshl")
"""Operators whose low bits depend only on the operands' low bits."""
_SHIFTS = ("$shl", "$sshl", "$shr", "$sshr", "$shift")
_RIGHT = ("$shr", "$sshr", "$shift")
_OUTPUTS = ("\\Y", "\\Q", "\\RD_DATA")
"""Output ports of Yosys' cells."""
_TOKEN = re.compile(r"\{|\}|\d+'[01xz-]*|\[\d+(?::\d+)?\]|[^\s{}]+")


@dataclass
class _Cell:
    kind: str
    name: str
    before: list[str]
    parameters: dict[str, str] = field(default_factory=dict)
    ports: dict[str, list[Bit]] = field(default_factory=dict)

    def signed(self, operand: str) -> bool:
        """Whether an operand is a signed number."""
        text = self.parameters[f"\\{operand}_SIGNED"]
        return int(text.rpartition("'")[2], 2) == 1

    def put(self, operand: str, bits: list[Bit]) -> None:
        self.ports[f"\\{operand}"] = bits
        self.parameters[f"\\{operand}_WIDTH"] = str(len(bits))

    def resize(self, operand: str, width: int) -> None:
        """Extend or cut an operand."""
        bits = self.ports[f"\\{operand}"]
        fill: Bit = bits[-1] if self.signed(operand) else "0"
        self.put(operand, (bits + [fill] * (width - len(bits)))[:width])


@dataclass
class _Module:
    head: list[str]
    widths: dict[str, int] = field(default_factory=dict)
    directions: dict[str, str] = field(default_factory=dict)
    wires: dict[str, list[str]] = field(default_factory=dict)
    cells: list[_Cell] = field(default_factory=list)
    connects: list[tuple[list[Bit], list[Bit]]] = field(default_factory=list)
    known: dict[str, list[Bit]] = field(default_factory=dict)
    """Bits of wires that were asked for."""

    @property
    def name(self) -> str:
        return self.head[-1].split()[1]

    def wire_bits(self, name: str) -> list[Bit]:
        """Return all bits of a wire: always the same objects, which makes them quick to compare."""
        if name not in self.known:
            self.known[name] = [(name, index) for index in range(self.widths[name])]
        return self.known[name]

    def bits(self, text: str) -> list[Bit]:
        """Read a signal; the least significant bit comes first."""
        parts: list[list[Bit]] = []
        for token in _TOKEN.findall(text):
            if token in "{}":
                continue
            if token[0] == "[":
                high, _, low = token[1:-1].partition(":")
                parts[-1] = parts[-1][int(low or high) : int(high) + 1]
            elif "'" in token:
                width, _, digits = token.partition("'")
                fill = "0" if digits[0] == "1" else digits[0]
                parts.append(list(reversed(digits.rjust(int(width), fill))))
            elif token.lstrip("-").isdecimal():
                # Yosys writes a constant of 32 known bits as a number.
                parts.append(list(reversed(f"{int(token) & 0xFFFFFFFF:032b}")))
            else:
                parts.append(self.wire_bits(token))
        return [bit for part in reversed(parts) for bit in part]

    def text(self, bits: list[Bit]) -> str:
        if bits and not isinstance(bits[0], str) and bits == self.wire_bits(bits[0][0]):
            return bits[0][0]
        parts, at = [], 0
        while at < len(bits):
            end, bit = at + 1, bits[at]
            while end < len(bits) and _follows(bit, bits[end], end - at):
                end += 1
            if isinstance(bit, str):
                parts.append(f"{end - at}'{''.join(str(b) for b in reversed(bits[at:end]))}")
            elif end - at == self.widths[bit[0]]:
                parts.append(bit[0])
            else:
                parts.append(f"{bit[0]} [{bit[1] + end - at - 1}:{bit[1]}]")
            at = end
        return parts[0] if len(parts) == 1 else f"{{ {' '.join(reversed(parts))} }}"

    def new_wire(self, name: str, width: int) -> list[Bit]:
        self.widths[name] = width
        self.wires[name] = [f"wire width {width} {name}"]
        return list(self.wire_bits(name))

    def lines(self) -> Iterator[str]:
        yield from self.head
        for lines in self.wires.values():
            yield from lines
        for cell in self.cells:
            yield from [*cell.before, f"cell {cell.kind} {cell.name}"]
            yield from (f"parameter {name} {value}" for name, value in cell.parameters.items())
            yield from (f"connect {name} {self.text(bits)}" for name, bits in cell.ports.items())
            yield "end"
        yield from (f"connect {self.text(left)} {self.text(right)}" for left, right in self.connects)
        yield "end"


def _follows(first: Bit, bit: Bit, distance: int) -> bool:
    if isinstance(first, str):
        return isinstance(bit, str)
    return bit == (first[0], first[1] + distance)


_Lines = Iterator[tuple[list[str], str]]
"""Lines of a netlist, each with the attributes before it."""


def _lines(text: str) -> _Lines:
    attributes: list[str] = []
    for line in map(str.strip, text.splitlines()):
        if line.startswith("attribute "):
            attributes.append(line)
        elif line and not line.startswith(("#", "autoidx ")):
            yield attributes, line
            attributes = []


def _read(text: str) -> Iterator[_Module]:
    lines = _lines(text)
    for attributes, line in lines:
        if not line.startswith("module "):
            raise ValueError(f"cannot read {line!r}")
        yield _read_module([*attributes, line], lines)


def _read_module(head: list[str], lines: _Lines) -> _Module:
    module = _Module(head)
    for attributes, line in lines:
        match line.split():
            case ["wire", *options, name]:
                module.wires[name] = [*attributes, line]
                module.widths[name] = int(options[options.index("width") + 1]) if "width" in options else 1
                for direction in {"input", "output"}.intersection(options):
                    module.directions[name] = direction
            case ["cell", kind, name]:
                module.cells.append(_read_cell(_Cell(kind, name, attributes), module, lines))
            case ["connect", *_]:
                left, right = _split(line.removeprefix("connect "))
                module.connects.append((module.bits(left), module.bits(right)))
            case ["parameter", *_]:
                module.head.insert(-1, line)
            case ["end"]:
                break
            case _:
                raise ValueError(f"cannot read {line!r}")
    return module


def _read_cell(cell: _Cell, module: _Module, lines: _Lines) -> _Cell:
    for _, line in lines:
        match line.split(None, 2):
            case ["connect", port, signal]:
                cell.ports[port] = module.bits(signal)
            case ["parameter", "signed" | "real" as kind, setting]:
                name, value = setting.split(None, 1)
                cell.parameters[f"{kind} {name}"] = value
            case ["parameter", name, value]:
                cell.parameters[name] = value
            case ["end"]:
                break
            case _:
                raise ValueError(f"cannot read {line!r}")
    return cell


def _split(text: str) -> tuple[str, str]:
    """Split the two signals of a connection."""
    tokens = _TOKEN.findall(text)
    depth = 0
    for at, token in enumerate(tokens):
        depth += (token == "{") - (token == "}")
        if depth == 0 and not (at + 1 < len(tokens) and tokens[at + 1][0] == "["):
            return " ".join(tokens[: at + 1]), " ".join(tokens[at + 1 :])
    raise ValueError(f"cannot read the connection {text!r}")


def tidy_netlist(text: str, outputs: Mapping[str, frozenset[str]]) -> str:
    """Return the RTLIL text of a netlist without processes, widths made equal, unused bits named.

    ``outputs`` are outputs of the modules that the text uses and has not.
    """
    modules = list(_read(text))
    driven = {f"\\{name}": {f"\\{port}" for port in ports} for name, ports in outputs.items()}
    for module in modules:
        driven[module.name] = {name for name, direction in module.directions.items() if direction == "output"}
    for module in modules:
        for cell in list(module.cells):
            _even(module, cell)
        _part_wires(module, driven)
        _name_unused(module, driven)
    return "\n".join(line for module in modules for line in module.lines()) + "\n"


def _even(module: _Module, cell: _Cell) -> None:
    """Give an operator's operands the width that it computes with."""
    ports = cell.ports
    if cell.kind == "$logic_not" and len(ports["\\A"]) > 1:
        cell.kind = "$eq"
        cell.parameters["\\B_SIGNED"] = cell.parameters["\\A_SIGNED"] = "0"
        cell.put("B", ["0"] * len(ports["\\A"]))
    elif cell.kind in _COMPARES:
        settled = _settled(cell)
        if settled is not None:
            module.cells.remove(cell)
            module.connects.append((ports["\\Y"], [settled]))
            return
        width = max(len(ports["\\A"]), len(ports["\\B"]))
        for operand in ("A", "B"):
            cell.resize(operand, width)
    elif cell.kind in _WIDE:
        for operand in ("A", "B") if "\\B" in ports and cell.kind not in _SHIFTS else ("A",):
            cell.resize(operand, len(ports["\\Y"]))
    elif cell.kind in _RIGHT:
        given, result = len(ports["\\A"]), ports["\\Y"]
        if given < len(result):
            cell.resize("A", len(result))
        elif given > len(result):
            whole = module.new_wire(f"$tidy${cell.name}", given)
            cell.put("Y", whole)
            module.connects.append((result, whole[: len(result)]))


def _settled(cell: _Cell) -> Bit | None:
    """Return the result of a comparison of unsigned numbers if it is constant, else None."""
    if cell.kind in ("$eq", "$ne") or (cell.signed("A") and cell.signed("B")):
        return None
    (low_a, high_a), (low_b, high_b) = (_range(cell.ports[port]) for port in ("\\A", "\\B"))
    if cell.kind in ("$gt", "$ge"):
        low_a, high_a, low_b, high_b = low_b, high_b, low_a, high_a
    # The comparison is now a < b, or a <= b.
    equal = cell.kind in ("$le", "$ge")
    if high_a < low_b or (equal and high_a == low_b):
        return "1"
    return "0" if low_a > high_b or (not equal and low_a == high_b) else None


def _range(bits: list[Bit]) -> tuple[int, int]:
    """Return the smallest and largest number of bits of which some are constant."""
    least = sum(1 << index for index, bit in enumerate(bits) if bit == "1")
    return least, sum(1 << index for index, bit in enumerate(bits) if bit != "0")


def _outward(cell: _Cell, driven: Mapping[str, set[str]]) -> set[str]:
    """Return the names of a cell's output ports."""
    return driven.get(cell.kind, set()) if cell.kind[0] == "\\" else set(_OUTPUTS)


def _part_wires(module: _Module, driven: Mapping[str, set[str]]) -> None:
    """Move bits that other bits of the same wire depend on, as in a sign extension, to a separate wire."""
    sources = {a: b for left, right in module.connects for a, b in zip(left, right, strict=True)}
    fed = {b for a, b in sources.items() if a[0] == b[0] and not isinstance(b, str)}
    order: list[Bit] = [*sorted(fed - set(sources))]
    part_wires: dict[Bit, Bit] = {}
    if order:
        part_wires = dict(zip(order, module.new_wire("$tidy$part", len(order)), strict=True))
        module.connects.append((order, list(part_wires.values())))
    for cell in module.cells:
        for port in _outward(cell, driven) & set(cell.ports):
            cell.ports[port] = [part_wires.get(bit, bit) for bit in cell.ports[port]]

    def origin(bit: Bit) -> Bit:
        return origin(sources[bit]) if bit in sources else part_wires.get(bit, bit)

    module.connects = [
        (left, [origin(b) if b in fed and a[0] == b[0] else b for a, b in zip(left, right, strict=True)])
        for left, right in module.connects
    ]


def _name_unused(module: _Module, driven: Mapping[str, set[str]]) -> None:
    """Connect driven bits without a reader to a wire ``unused``; leave out wires without a driver."""
    reads: set[Bit] = set()
    drives: set[Bit] = set()
    for cell in module.cells:
        outward = _outward(cell, driven)
        for port, bits in cell.ports.items():
            (drives if port in outward else reads).update(bits)
    for left, right in module.connects:
        drives.update(left)
        reads.update(right)
    for name, direction in module.directions.items():
        (drives if direction == "input" else reads).update(module.wire_bits(name))
    unused: list[Bit] = []
    for name in list(module.widths):
        bits = module.wire_bits(name)
        if not any(bit in reads or bit in drives for bit in bits):
            del module.wires[name]
        unused += [bit for bit in bits if bit in drives and bit not in reads]
    if unused:
        # With a 0 among them the result is constant: synthesis removes it and its inputs.
        parameters = {"\\A_SIGNED": "0", "\\A_WIDTH": str(len(unused) + 1), "\\Y_WIDTH": "1"}
        ports = {"\\A": ["0", *unused], "\\Y": module.new_wire("\\unused", 1)}
        module.cells.append(_Cell("$reduce_and", "$tidy$unused", [], parameters, ports))


def drop_head(text: str) -> str:
    """Leave out the comment in which Yosys names its version and its compiler."""
    return re.sub(r"\A\s*/\*.*?\*/\s*", "", text, flags=re.DOTALL)


def _replicated(items: str) -> str:
    """Return the items of a concatenation with equal neighbours as a replication."""
    runs = [(item, len(list(same))) for item, same in groupby(items.split(", "))]
    return ", ".join(f"{{{count}{{{item}}}}}" if count > 1 else item for item, count in runs)


def tidy_verilog(text: str) -> str:
    """Return Yosys' Verilog with initial values in separate statements, and with cases in priority order.

    The cases are exclusive. Without ``parallel_case`` synthesis has the same semantics as simulation.
    Two parts are for the speed of Icarus, which doubles: only Verilator sees the wires ``unused``, and a bit
    that stands several times in a concatenation is replicated.
    """
    text = re.sub(r"(?<=\{ )[^{}\n]+(?= \})", lambda found: _replicated(found[0]), text)
    text = re.sub(r"^ *wire unused;\n", "", text, flags=re.MULTILINE)
    text = re.sub(
        r"^( *)assign unused = (.*);$",
        r"`ifdef VERILATOR\n\1wire unused = \2;\n`endif",
        text,
        flags=re.MULTILINE,
    )
    text = re.sub(
        r"^( *)reg (\[\d+:\d+\] )?(\S+|\\\S+ ) = (\d+'\S+);$",
        r"\1reg \2\3;\n\1initial \3 = \4;",
        text,
        flags=re.MULTILINE,
    )
    text = text.replace("casez (s) // synopsys parallel_case", "case (1'b1)")
    return re.sub(
        r"^( *)\d+'b([?1]+):$",
        lambda found: f"{found[1]}s[{len(found[2]) - 1 - found[2].index('1')}]:",
        text,
        flags=re.MULTILINE,
    )
