"""Components that are Verilog modules: those that are equal share one, and are converted once."""

from abc import abstractmethod
from collections.abc import Mapping

from amaranth.hdl import Elaboratable, Fragment, Module, ResetSignal, Value

from rtlstm.hdl.component import Component, instance_of
from rtlstm.hdl.primitives.pipeline import Platform
from rtlstm.spec.manifest import Manifest


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
