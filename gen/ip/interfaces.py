"""Names that IP-XACT and Platform Designer have for the interfaces of a core."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from rtlstm.gen.ip.ports import CorePorts, Interface, Port

__all__ = ["IpxactInterface", "QsysInterface", "ipxact_interfaces", "qsys_interfaces"]

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
