"""The core's ports that the link is wired to, as the link sees them."""

from amaranth.lib import wiring

from rtlstm.hdl.core.core import core_ports
from rtlstm.hdl.core.step_values import shape_port
from rtlstm.spec.manifest import Manifest

__all__ = ["core_names", "core_side"]

_NAMES = (
    "x_data",
    "x_stream",
    "x_quiet",
    "x_valid",
    "y_ready",
    "bus_address",
    "bus_write",
    "bus_data",
    "bus_valid",
    "x_ready",
    "y_data",
    "y_valid",
    "bus_ready",
    "bus_read_data",
    "bus_read_valid",
)
"""All but ``y_stream`` and ``y_last``; ``docs/ports.md`` says what they do."""


def core_names(manifest: Manifest) -> tuple[str, ...]:
    """Return the names of a build's core's ports that the link is wired to: what it drives comes first."""
    return (*_NAMES, *shape_port(manifest))


def core_side(manifest: Manifest) -> dict[str, wiring.Member]:
    """Return the members of a component that drives a build's core."""
    ports = core_ports(manifest)
    return {name: member.flip() for name, member in ports.items() if name in core_names(manifest)}
