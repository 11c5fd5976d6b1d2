"""The core's ports that the link is wired to, as the link sees them."""

from amaranth.hdl import Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from rtlstm.hdl.component import Component
from rtlstm.hdl.core.layouts import stream_bits
from rtlstm.hdl.core.step_values import shape_port
from rtlstm.spec.manifest import Manifest

__all__ = ["CoreDriver", "core_names", "core_side"]

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


class CoreDriver(Component):
    """A component with the members of :func:`core_side`, and more."""

    x_data: Signal
    x_stream: Signal
    x_quiet: Signal
    x_valid: Signal
    x_ready: Signal
    y_data: Signal
    y_valid: Signal
    y_ready: Signal
    bus_address: Signal
    bus_write: Signal
    bus_data: Signal
    bus_valid: Signal
    bus_ready: Signal
    bus_read_data: Signal
    bus_read_valid: Signal
    shape: Signal
    """Of a loadable core only."""


def core_side(manifest: Manifest) -> dict[str, wiring.Member]:
    """Return the members of a component that drives a build's core."""
    return {
        "x_data": Out(manifest.parameters.beat_in * manifest.numerics.data_bits),
        "x_stream": Out(stream_bits(manifest)),
        "x_quiet": Out(1),
        "x_valid": Out(1),
        "x_ready": In(1),
        "y_data": In(manifest.parameters.beat_out * manifest.numerics.output_bits),
        "y_valid": In(1),
        "y_ready": Out(1),
        "bus_address": Out(4),
        "bus_write": Out(1),
        "bus_data": Out(32),
        "bus_valid": Out(1),
        "bus_ready": In(1),
        "bus_read_data": In(32),
        "bus_read_valid": In(1),
        **shape_port(manifest),
    }
