"""The harness: a top around a core for place and route, so that the core's ports need no pins.

The core has more ports than most packages have pins. One long shift register behind one pin has a bit for
each input, and a second register at the port follows: nothing else reads it, so the placer can put it beside
the core, as a design around the core would have it. The core's outputs go to registers that are folded, by
one exclusive or each, into a second shift register in front of another pin. Between any two registers of the
harness is at most one logic cell, so no path inside it is the worst one. The paths from the core's inputs and
to its outputs stay, each with a register at the port. There may be several cores, each with registers of its
own.
"""

import re
from dataclasses import dataclass
from typing import Literal

from rtlstm.spec.errors import BuildError

HARNESS = "rtlstm_harness"
"""The harness's module; no build may have this name."""

CORE = "core"
"""Name of the core's instance in the harness or in a board's top; a number follows if there are several."""

INSTANCE = re.compile(rf"{CORE}(\d*)\.")
"""Matches the beginning of a cell's name inside a core."""

PORT_REGISTER = re.compile(r"port\d*_")
"""Matches the beginning of the name of the harness's register at a port, in front of the port's."""

_CLOCK = "clk"


@dataclass(frozen=True)
class Port:
    """A port of the core."""

    name: str
    direction: Literal["input", "output"]
    width: int


def read_ports(verilog: str, top: str) -> tuple[Port, ...]:
    """Read the ports of a module, in the order of its head.

    Raises BuildError if the module is not there, has no ``clk``, or has ports of another kind.
    """
    module = re.search(rf"^module {re.escape(top)}\s*\((.*?)\);(.*?)^endmodule", verilog, re.M | re.S)
    if module is None:
        raise BuildError(f"the build's Verilog must have a module {top} with ports, but has none")
    head, body = module.groups()
    # The module's head declares the ports, or only names them, and the body declares them.
    text = head if re.search(r"\b(in|out)put\b", head) else body
    declared: dict[str, Port] = {}
    for kind, high, low, name in re.findall(
        r"\b(input|output)\s+(?:wire\s+|reg\s+)?(?:signed\s+)?(?:\[(\d+):(\d+)\]\s*)?(\w+)", text
    ):
        width = int(high) - int(low) + 1 if high else 1
        # A function in the module may have an input of the same name, but only after the declaration.
        declared.setdefault(name, Port(name, "input" if kind == "input" else "output", width))
    names = declared if text is head else re.findall(r"\w+", head)
    missing = [name for name in names if name not in declared]
    if missing or _CLOCK not in names:
        what = f"port {missing[0]} is not declared" if missing else f"it has no port {_CLOCK}"
        raise BuildError(f"the ports of module {top} cannot be read: {what}; generate the build again")
    return tuple(declared[name] for name in names)


def _range(width: int) -> str:
    return f"[{width - 1}:0] " if width > 1 else ""


def harness(top: str, ports: tuple[Port, ...], cores: int = 1) -> str:
    """Return the Verilog of the harness around so many cores with these ports."""
    instances = [_Instance(top, ports, str(number) if cores > 1 else "") for number in range(cores)]
    inputs = [register for each in instances for register in each.shifted]
    outputs = [register for each in instances for register in each.output_registers]
    bits = cores * sum(port.width for port in ports if port.direction == "output")
    chain, found = ", ".join(inputs), ", ".join(outputs)
    lines = [
        f"module {HARNESS}(input clk, input pin_in, output reg pin_out);",
        *(line for each in instances for line in each.declarations),
        f"  reg {_range(bits)}folded;",
        "  always @(posedge clk) begin",
        # The assignment drops the uppermost bit: the shift register moves by one.
        *([f"    {{{chain}}} <= {{{chain}, pin_in}};"] if inputs else []),
        *(line for each in instances for line in each.captures),
        f"    folded <= {{folded, pin_in}} ^ {{{found}}};",
        f"    pin_out <= folded[{bits - 1}];" if bits > 1 else "    pin_out <= folded;",
        "  end",
        *(each.text for each in instances),
        "endmodule",
    ]
    return "\n".join(lines) + "\n"


class _Instance:
    """One core in the harness, with its registers; ``number`` is empty if there is only one."""

    def __init__(self, top: str, ports: tuple[Port, ...], number: str) -> None:
        self._prefix, self._out, shift = f"port{number}_", f"out{number}_", f"shift{number}_"
        inputs = [port for port in ports if port.direction == "input" and port.name != _CLOCK]
        outputs = [port for port in ports if port.direction == "output"]
        self.shifted = [shift + port.name for port in inputs]
        self.output_registers = [self._prefix + port.name for port in outputs]
        self.declarations = [
            *(f"  reg {_range(port.width)}{shift}{port.name};" for port in inputs),
            *(f"  reg {_range(port.width)}{self._prefix}{port.name};" for port in [*inputs, *outputs]),
            *(f"  wire {_range(port.width)}{self._out}{port.name};" for port in outputs),
        ]
        self.captures = [
            *(f"    {self._prefix}{port.name} <= {shift}{port.name};" for port in inputs),
            *(f"    {self._prefix}{port.name} <= {self._out}{port.name};" for port in outputs),
        ]
        connections = [
            f"    .{_CLOCK}({_CLOCK})",
            *(f"    .{port.name}({self._prefix}{port.name})" for port in inputs),
            *(f"    .{port.name}({self._out}{port.name})" for port in outputs),
        ]
        self.text = f"  {top} {CORE}{number} (\n" + ",\n".join(connections) + "\n  );"


def black_box(top: str, ports: tuple[Port, ...]) -> str:
    """Return the Verilog of the core as a black box, for the synthesis of the harness alone."""
    words = (f"{port.direction} {_range(port.width)}{port.name}" for port in ports)
    return f"(* blackbox *)\nmodule {top}({', '.join(words)});\nendmodule\n"
