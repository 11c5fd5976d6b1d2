"""Ports and bus interfaces of the module that a system instantiates."""

import re
from dataclasses import dataclass
from typing import Literal

from rtlstm.hdl.buses.wrappers import Pins, Wrapper, wrapper_class, wrapper_name
from rtlstm.spec.manifest import Manifest

__all__ = ["CorePorts", "Interface", "Port", "core_ports", "read_ports"]


@dataclass(frozen=True)
class Port:
    """A port of a module."""

    name: str
    direction: Literal["in", "out"]
    width: int
    text: str

    @property
    def range(self) -> str:
        """The Verilog range of a bus, with a blank behind it; empty for a single bit."""
        return f"[{self.width - 1}:0] " if self.width > 1 else ""


@dataclass(frozen=True)
class Interface:
    """A bus interface: ports that a system connects together."""

    name: str
    kind: str
    """``aximm``, ``axis`` or ``wishbone``, as the wrapper names it."""
    ports: dict[str, Port]
    """By the signal's name in the bus' own document, in lower case."""

    @property
    def slave(self) -> bool:
        """Whether the other end begins the transfers."""
        return not self.name.startswith("m_")


@dataclass(frozen=True)
class CorePorts:
    """The module that a system instantiates."""

    module: str
    ports: tuple[Port, ...]
    pins: Pins
    """Names of clock and reset."""
    interfaces: tuple[Interface, ...]

    def port(self, name: str) -> Port:
        """The port of this name."""
        return next(port for port in self.ports if port.name == name)

    @property
    def clock(self) -> Port:
        """The clock."""
        return self.port(self.pins.clock)

    @property
    def reset(self) -> Port:
        """The synchronous reset."""
        return self.port(self.pins.reset)

    @property
    def interrupt(self) -> Port | None:
        """The interrupt, if the module has one."""
        return next((port for port in self.ports if port.name == "irq"), None)

    @property
    def others(self) -> tuple[Port, ...]:
        """Ports that are part of no interface: all but clock, reset and interrupt of a core without a bus."""
        known = {port.name for interface in self.interfaces for port in interface.ports.values()}
        known |= {self.pins.clock, self.pins.reset, "irq"}
        return tuple(port for port in self.ports if port.name not in known)


def read_ports(verilog: str, module: str) -> tuple[Port, ...]:
    """Return a module's ports, from the list at the beginning of a build's Verilog."""
    _, _, listed = verilog.partition(f"// Ports of {module}, see ")
    ports = []
    for line in listed.splitlines()[1:]:
        found = re.fullmatch(r"//   (\w+) +(in|out) +(\d+)(?:  (.*))?", line)
        if found is None:
            break
        direction: Literal["in", "out"] = "in" if found[2] == "in" else "out"
        ports.append(Port(found[1], direction, int(found[3]), found[4] or ""))
    return tuple(ports)


def core_ports(manifest: Manifest, verilog: str) -> CorePorts:
    """Return the ports of the bus wrapper or, without one, of the core: what a system instantiates.

    Parameters
    ----------
    verilog
        The build's Verilog.
    """
    module = wrapper_name(manifest)
    kind = wrapper_class(manifest.parameters.bus) or Wrapper
    ports = read_ports(verilog, module)
    interfaces = tuple(
        Interface(
            name,
            bus,
            {port.name.removeprefix(f"{name}_"): port for port in ports if port.name.startswith(f"{name}_")},
        )
        for name, bus in kind.interfaces.items()
    )
    return CorePorts(module, ports, kind.pins, interfaces)
