"""Modules of Verilog inside a design, and what a platform may have in their place."""

from abc import ABC, abstractmethod

from amaranth.hdl import Elaboratable, Instance


class Primitive(Elaboratable, ABC):
    """An instance of a Verilog module.

    Platform overrides
    ------------------
    A :class:`Platform` has something else in its place, such as a model for a simulator that runs no Verilog.
    """

    def elaborate(self, platform: object) -> Elaboratable | Instance:
        return platform.replace(self) if isinstance(platform, Platform) else self.instance()

    @abstractmethod
    def instance(self) -> Instance:
        """Make the instance."""


class Platform(ABC):
    """A platform without the Verilog of primitives."""

    @abstractmethod
    def replace(self, primitive: Primitive) -> Elaboratable:
        """Make what does the same as a primitive, between the same signals."""
