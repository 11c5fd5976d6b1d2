"""Ports and bus interfaces of the module that a system instantiates, and other tools' names for them."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from rtlstm.hdl.buses.wrappers import Pins, Wrapper, wrapper_class, wrapper_name
from rtlstm.spec.manifest import Manifest


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
    """Return the ports of the bus wrapper or, without one, of the core: what a system instantiates."""
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


_ARM: Final = {"aximm": ("AXI4-Lite", "r0p0"), "axis": ("AXI4Stream", "r0p0_1")}
"""Arm's own bus definitions, library AMBA4 of amba.com."""


@dataclass(frozen=True)
class IpxactInterface:
    """A bus interface in IP-XACT; the abstraction's name is the bus' with ``_rtl``."""

    name: str
    vendor: str
    library: str
    bus: str
    version: str
    mode: str
    """``master`` or ``slave``."""
    ports: list[tuple[str, str]]
    """Names of the bus' signals and of the ports."""
    memory: bool = False
    """Whether the registers are behind it."""
    parameters: Mapping[str, str] = field(default_factory=dict)


def ipxact_interfaces(core: CorePorts) -> list[IpxactInterface]:
    """Return the interfaces of a core: its buses, clock, reset and interrupt.

    A bus without a definition that tools agree on, such as Wishbone, has none; its ports are listed as ports.
    """
    clock, reset = core.clock.name, core.reset.name
    found = []
    for each in core.interfaces:
        if each.kind not in _ARM:
            continue
        bus, version = _ARM[each.kind]
        signals = [("ACLK", clock), ("ARESETn", reset)]
        signals += [(signal.upper(), port.name) for signal, port in each.ports.items()]
        mode = "slave" if each.slave else "master"
        found.append(
            IpxactInterface(
                each.name, "amba.com", "AMBA4", bus, version, mode, signals, memory=each.kind == "aximm"
            )
        )
    names = ":".join(each.name for each in found)
    settings = ({"ASSOCIATED_BUSIF": names} if names else {}) | {"ASSOCIATED_RESET": reset}
    polarity = "ACTIVE_LOW" if core.pins.reset_low else "ACTIVE_HIGH"
    found.append(_signal(clock, "clock", "CLK", "slave", settings))
    found.append(_signal(reset, "reset", "RST", "slave", {"POLARITY": polarity}))
    if core.interrupt is not None:
        irq = core.interrupt.name
        found.append(_signal(irq, "interrupt", "INTERRUPT", "master", {"SENSITIVITY": "LEVEL_HIGH"}))
    return found


def _signal(name: str, bus: str, signal: str, mode: str, parameters: Mapping[str, str]) -> IpxactInterface:
    """A single wire, with the definitions that the attributes in the Verilog name."""
    return IpxactInterface(
        name, "xilinx.com", "signal", bus, "1.0", mode, [(signal, name)], parameters=parameters
    )


@dataclass(frozen=True)
class QsysInterface:
    """An interface in Platform Designer."""

    name: str
    type: str
    end: str
    """``start`` or ``end``."""
    ports: list[tuple[str, Port]]
    """Role of each port."""
    properties: Mapping[str, str] = field(default_factory=dict)


_QSYS: Final = {"aximm": "axi4lite", "axis": "axi4stream"}
_OUTSTANDING: Final = {
    "readAcceptanceCapability": "1",
    "writeAcceptanceCapability": "1",
    "combinedAcceptanceCapability": "1",
}
"""One transfer is in progress at a time."""


def qsys_interfaces(core: CorePorts) -> list[QsysInterface]:
    """Return the interfaces of a core but clock, reset and interrupt.

    What Platform Designer has no bus for is a conduit, whose roles are the names of the ports.
    """
    return [_qsys(each) for each in core.interfaces] + (
        [QsysInterface("ports", "conduit", "end", [(port.name, port) for port in core.others])]
        if core.others
        else []
    )


def _qsys(interface: Interface) -> QsysInterface:
    kind = _QSYS.get(interface.kind, "conduit")
    ports = list(interface.ports.items())
    end = "end" if interface.slave else "start"
    return QsysInterface(interface.name, kind, end, ports, _OUTSTANDING if kind == "axi4lite" else {})
