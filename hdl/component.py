"""Components and interfaces that declare each port once, in their bodies.

.. code::

    class Counter(Component):
        enable: Signal = In(1)
        value: Signal = Out(lambda bits: bits)

        def __init__(self, bits: int) -> None:
            super().__init__(bits)

A shape may be a function of what the component gives to its base class. In Amaranth's annotations, such as
``enable: In(1)``, it cannot, and to a type checker a call is no type.

Shared components are Verilog modules: those that are equal share one, and are converted once.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from inspect import isfunction
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from amaranth.hdl import (
    ClockDomain,
    ClockSignal,
    Elaboratable,
    Fragment,
    Instance,
    Module,
    ResetSignal,
    Signal,
    Value,
)
from amaranth.lib import data, wiring

from rtlstm.hdl.primitives.pipeline import Platform
from rtlstm.spec.manifest import Manifest

if TYPE_CHECKING:
    _Component: TypeAlias = wiring.Component[wiring.Signature]
    _Interface: TypeAlias = wiring.PureInterface["InterfaceSignature"]
    Struct: TypeAlias = data.View[data.StructLayout]
    AnyInterface: TypeAlias = "Component | Interface | wiring.FlippedInterface[Any, Any]"

    class Domain(ClockDomain):
        """A clock domain, with what the stubs leave out."""

        clk: Signal
        rst: Signal

else:
    _Component, _Interface = wiring.Component, wiring.PureInterface
    Struct, Domain = data.View, ClockDomain
    AnyInterface = object


@dataclass(frozen=True)
class _Port:
    """A port as a body declares it."""

    flow: wiring.Flow
    shape: Any

    def member(self, given: Any) -> wiring.Member | None:
        """Return Amaranth's member; none if a function says that there is no such port."""
        shape = self.shape
        if isfunction(shape):
            shape = shape(given)
        elif isinstance(shape, type) and issubclass(shape, Interface):
            shape = shape.signature_for(given)
        return None if shape is None else self.flow(shape)


In: Callable[[Any], Any] = partial(_Port, wiring.In)
"""Declare an input: its shape, signature, the class of its interface, or a function that returns one."""
Out: Callable[[Any], Any] = partial(_Port, wiring.Out)
"""Declare an output in the same way."""


class Ports:
    """A class with ports in its body: a component, an interface, or what several of them have in common."""

    _declared: ClassVar[Mapping[str, _Port]] = MappingProxyType({})

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        in_body = {name: port for name, port in vars(cls).items() if isinstance(port, _Port)}
        for name in in_body:
            delattr(cls, name)
        inherited = [vars(base).get("_declared", {}) for base in reversed(cls.__mro__[1:])]
        cls._declared = {name: port for ports in (*inherited, in_body) for name, port in ports.items()}

    @classmethod
    def port_names(cls) -> tuple[str, ...]:
        """Return the names of its ports, those of base classes first."""
        return tuple(cls._declared)

    @classmethod
    def declared_members(cls, given: Any = None) -> dict[str, wiring.Member]:
        """Return Amaranth's members; shapes are functions of ``given``."""
        members = {name: port.member(given) for name, port in cls._declared.items()}
        return {name: member for name, member in members.items() if member is not None}


class Component(Ports, _Component):
    """A component with the ports that its body declares, and perhaps more.

    ``given`` is what shapes are functions of. ``more`` are ports that no body can declare; they may stand in
    the first place, as in Amaranth.
    """

    def __init__(self, given: Any = None, more: Mapping[str, wiring.Member] = MappingProxyType({})) -> None:
        given, more = (None, given) if isinstance(given, Mapping) else (given, more)
        super().__init__({**self.declared_members(given), **more})


class Interface(Ports, _Interface):
    """An interface with the ports that its body declares."""

    @classmethod
    def signature_for(cls, given: Any = None) -> "InterfaceSignature":
        """Return its signature; shapes are functions of ``given``."""
        return InterfaceSignature(cls, given)


class InterfaceSignature(wiring.Signature):
    """The signature of an interface, which knows what its shapes are functions of."""

    def __init__(self, kind: type[Interface], given: Any) -> None:
        super().__init__(kind.declared_members(given))
        self.kind, self.given = kind, given

    def create(self, *, path: tuple[str | int, ...] = (), src_loc_at: int = 0) -> Interface:
        """Make an interface."""
        return self.kind(self, path=path, src_loc_at=src_loc_at + 1)


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


_CONTRACT = {"x_suppress": "x_quiet"}
"""Names that ``docs/ports.md`` has for fields which are called otherwise inside."""
_LAST = "x_last"
"""A port of some cores only: it comes after those that all cores have."""


@dataclass(frozen=True)
class FlatPort:
    """A port of a module: its name, its direction as the module sees it, and its wire."""

    name: str
    flow: wiring.Flow
    value: Value


def flat_ports(ports: AnyInterface) -> list[FlatPort]:
    """Return the ports of a component, or of an instance's wires, in the order of its module's ports.

    A member of an interface ``x`` is ``x_MEMBER``. If ``x`` is a stream of structures, its payload is
    ``x_FIELD`` for each field.
    """
    return sorted(_walk(ports, ()), key=lambda port: port.name == _LAST)


def _walk(ports: AnyInterface, path: tuple[str, ...]) -> Iterator[FlatPort]:
    for name, member in ports.signature.members.items():
        part = getattr(ports, name)
        if member.is_signature:
            yield from _walk(part, (*path, name))
            continue
        fields = {name: Value.cast(part)}
        if name == "payload" and isinstance(part, data.View):
            fields = {field: part[field] for field in part.shape().members}
        for field, value in fields.items():
            flat = "_".join((*path, field))
            yield FlatPort(_CONTRACT.get(flat, flat), member.flow, value)


def lead_out(m: Module, component: AnyInterface) -> list[Value]:
    """Give a component's ports the names that they have in Verilog; return them for the conversion.

    ``m`` holds the component.
    """
    outside: list[Value] = []
    for port in flat_ports(component):
        wire = port.value
        if not isinstance(wire, Signal) or wire.name != port.name:
            wire = Signal(port.value.shape(), name=port.name)
            m.d.comb += port.value.eq(wire) if port.flow is wiring.In else wire.eq(port.value)
        outside.append(wire)
    return outside


def instance_of(
    module: str, ports: AnyInterface, reset: Value, given: Mapping[str, Value] = MappingProxyType({})
) -> Instance:
    """Make an instance of a component that is converted to a module of its own.

    ``ports`` are the wires to it, of the component's signature; for some inputs, others are ``given``.
    """
    wires = {
        f"{'i' if port.flow is wiring.In else 'o'}_{port.name}": given.get(port.name, port.value)
        for port in flat_ports(ports)
    }
    return Instance(module, i_clk=ClockSignal(), i_rst=reset, **wires)


class SharedModule(Component):
    """A component that is an instance of a Verilog module, with its ports as wires.

    Parameters
    ----------
    manifest
        The build, which ports are functions of.
    name
        Name of the module behind the build's.

    Platform overrides
    ------------------
    On a :class:`~rtlstm.hdl.primitives.pipeline.Platform` it is what the module is made of.
    """

    def __init__(self, manifest: Manifest, name: str) -> None:
        self._manifest = manifest
        self.module = f"{manifest.name}_{name}"
        self._defined = False
        self._given: dict[str, Value] = {}
        super().__init__(manifest)

    @abstractmethod
    def inside(self) -> Module:
        """Make what the module consists of."""

    def elaborate(self, platform: object) -> Elaboratable | Fragment:
        if not self._defined and not isinstance(platform, Platform):
            return instance_of(self.module, self, ResetSignal(), self._given)
        m = self.inside()
        m.d.comb += [getattr(self, name).eq(value) for name, value in self._given.items()]
        return m

    def connect(self, values: Mapping[str, Value]) -> None:
        """Connect inputs with values of their widths, without wires between: conversion would take longer."""
        for name, value in values.items():
            assert len(value) == len(getattr(self, name)), f"{name} of {self.module} is as wide as its value"
            self._given[name] = value

    def definition(self) -> "SharedModule":
        """Return the component as what its module is converted from."""
        self._defined = True
        return self
