"""Amaranth's classes as a type checker needs them: its generic ones with arguments, which Python refuses.

A component's ports are the signature that it gives to its base class. Bare annotations in its body, such as
``done: Signal``, tell the type checker of them; Amaranth reads those alone whose value is a member.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeAlias

from amaranth.hdl import ClockDomain, ClockSignal, Instance, Module, Signal, Value
from amaranth.lib import data, wiring

__all__ = ["Component", "Domain", "Interface", "Struct", "add_instance", "connect_some"]

if TYPE_CHECKING:
    Component: TypeAlias = wiring.Component[wiring.Signature]
    Interface: TypeAlias = wiring.PureInterface[wiring.Signature]
    Struct: TypeAlias = data.View[data.StructLayout]
    _Whole: TypeAlias = Component | Interface | wiring.FlippedInterface[Any, Any]

    class Domain(ClockDomain):
        """A clock domain, with what the stubs leave out."""

        clk: Signal
        rst: Signal

else:
    Component = wiring.Component
    Interface = wiring.PureInterface
    Struct = data.View
    Domain = ClockDomain


class _Member:
    """An interface with one of another's members."""

    def __init__(self, whole: "_Whole", name: str) -> None:
        self.signature = wiring.Signature({name: whole.signature.members[name]})
        setattr(self, name, getattr(whole, name))


def connect_some(m: Module, one: "_Whole", other: "_Whole", names: Iterable[str]) -> None:
    """Connect some members of two interfaces, in this order, as ``wiring.connect`` does all of them.

    Widths and directions must fit; seen from inside, a component's own ports are ``wiring.flipped(self)``.
    """
    for name in names:
        wiring.connect(m, _Member(one, name), _Member(other, name))


def add_instance(m: Module, module: str, ports: "Interface", name: str, reset: Value) -> None:
    """Add an instance of a component that is converted to a module of its own.

    ``ports`` are the wires to it, of the component's signature; ``name`` is the instance's.
    """
    wires = {
        f"{'i' if member.flow is wiring.In else 'o'}_{port}": getattr(ports, port)
        for port, member in ports.signature.members.items()
    }
    m.submodules[name] = Instance(module, i_clk=ClockSignal(), i_rst=reset, **wires)
