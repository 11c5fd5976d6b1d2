"""A core with a serial port as its only interface."""

from amaranth.hdl import Module, Signal
from amaranth.lib.wiring import In, Out

from rtlstm.hdl.component import Component, connect_some
from rtlstm.hdl.core.core import Core
from rtlstm.hdl.core.ends import StepEnds
from rtlstm.hdl.link.core_side import core_names
from rtlstm.hdl.link.serial_link import SerialLink
from rtlstm.spec.manifest import Manifest


class LinkedCore(Component):
    """A :class:`~rtlstm.hdl.core.core.Core` with a :class:`~rtlstm.hdl.link.serial_link.SerialLink`.

    Parameters
    ----------
    divisor
        Clock cycles per bit, at least 4.

    Members
    -------
    rx : In(1), tx : Out(1)
        The serial port.
    errors : Out(32), active : Out(1)
        Frames dropped since reset; a host has opened a session.
    """

    rx: Signal
    tx: Signal
    errors: Signal
    active: Signal

    def __init__(self, manifest: Manifest, divisor: int) -> None:
        self._manifest, self._divisor = manifest, divisor
        super().__init__(
            {
                "rx": In(1),
                "tx": Out(1),
                "errors": Out(32),
                "active": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.core = core = Core(self._manifest, StepEnds(self._manifest))
        m.submodules.link = link = SerialLink(self._manifest, self._divisor)
        m.d.comb += [
            link.rx.eq(self.rx),
            self.tx.eq(link.tx),
            self.errors.eq(link.errors),
            self.active.eq(link.active),
        ]
        connect_some(m, core, link, core_names(self._manifest))
        return m
