"""The core's ports that the link connects to, from the link's side."""

from amaranth.lib import wiring

from rtlstm.hdl.core.core import core_ports
from rtlstm.hdl.core.program_store import program_store
from rtlstm.spec.manifest import Manifest


def core_names(manifest: Manifest) -> tuple[str, ...]:
    """Return the names of a build's core's ports that the link is wired to."""
    return ("x", "y", "bus", *(name for name in program_store(manifest).told if name == "shape"))


def core_side(manifest: Manifest) -> dict[str, wiring.Member]:
    """Return the members of a component that drives a build's core."""
    ports = core_ports(manifest)
    return {name: ports[name].flip() for name in core_names(manifest)}
