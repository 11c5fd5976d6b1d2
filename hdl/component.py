"""Amaranth's classes as a type checker needs them: its generic ones with arguments, which Python refuses.

A component's ports are the signature that it gives to its base class. Bare annotations in its body, such as
``done: Signal``, tell the type checker of them; Amaranth reads those alone whose value is a member.
"""

from typing import TYPE_CHECKING, TypeAlias

from amaranth.hdl import ClockDomain, Signal
from amaranth.lib import data, wiring

__all__ = ["Component", "Domain", "Interface", "Struct"]

if TYPE_CHECKING:
    Component: TypeAlias = wiring.Component[wiring.Signature]
    Interface: TypeAlias = wiring.PureInterface[wiring.Signature]
    Struct: TypeAlias = data.View[data.StructLayout]

    class Domain(ClockDomain):
        """A clock domain, with what the stubs leave out."""

        clk: Signal
        rst: Signal

else:
    Component = wiring.Component
    Interface = wiring.PureInterface
    Struct = data.View
    Domain = ClockDomain
