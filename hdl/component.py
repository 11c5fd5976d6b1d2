"""Amaranth's classes as a type checker needs them: its generic ones with arguments, which Python refuses.

A component's ports are the signature that it gives to its base class. Bare annotations in its body, such as
``done: Signal``, tell the type checker of them; Amaranth reads those alone whose value is a member.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeAlias

from amaranth.hdl import ClockDomain, Module, Signal
from amaranth.lib import data, wiring

if TYPE_CHECKING:
    Component: TypeAlias = wiring.Component[wiring.Signature]
    Interface: TypeAlias = wiring.PureInterface[wiring.Signature]
    Struct: TypeAlias = data.View[data.StructLayout]
    AnyInterface: TypeAlias = Component | Interface | wiring.FlippedInterface[Any, Any]

    class Domain(ClockDomain):
        """A clock domain, with what the stubs leave out."""

        clk: Signal
        rst: Signal

else:
    Component = wiring.Component
    Interface = wiring.PureInterface
    Struct = data.View
    AnyInterface = object
    Domain = ClockDomain


class _Member:
    """An interface with one of another's members."""

    def __init__(self, whole: AnyInterface, name: str) -> None:
        self.signature = wiring.Signature({name: whole.signature.members[name]})
        setattr(self, name, getattr(whole, name))


def connect_some(m: Module, one: AnyInterface, other: AnyInterface, names: Iterable[str]) -> None:
    """Connect some members of two interfaces, in this order, as ``wiring.connect`` does all of them.

    Widths and directions must fit; seen from inside, a component's own ports are ``wiring.flipped(self)``.
    """
    for name in names:
        wiring.connect(m, _Member(one, name), _Member(other, name))
