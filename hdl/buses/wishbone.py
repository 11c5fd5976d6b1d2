"""Wishbone B4, as a slave for classic and pipelined masters."""

from collections.abc import Mapping
from typing import ClassVar

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from rtlstm.hdl.buses.request_port import NUMBER_BITS, BusSlave, Requests
from rtlstm.hdl.buses.wrappers import FifoWrapper

_TEXTS = {
    "wb_cyc": "bus cycle",
    "wb_stb": "request",
    "wb_we": "1 to write, 0 to read",
    "wb_adr": "register number",
    "wb_dat_w": "word to write",
    "wb_sel": "all bits 1: words are whole",
    "wb_dat_r": "word read",
    "wb_ack": "done",
    "wb_err": "refused",
    "wb_stall": "0 in the cycle that answers",
}


def wishbone_ports(prefix: str = "") -> dict[str, wiring.Member]:
    """Return the ports of a 32-bit slave that is addressed by words."""
    ports = {
        "cyc": In(1),
        "stb": In(1),
        "we": In(1),
        "adr": In(NUMBER_BITS),
        "dat_w": In(32),
        "sel": In(4),
        "dat_r": Out(32),
        "ack": Out(1),
        "err": Out(1),
        "stall": Out(1),
    }
    return {prefix + name: member for name, member in ports.items()}


class Wishbone(BusSlave):
    """Turns Wishbone transfers into requests.

    ``stall`` is low only in the cycle of ``ack`` or ``err``: a pipelined master then keeps its request as a
    classic one does, and both end it in that cycle. Latency for a register that answers at once: 3 cycles
    from ``stb`` to ``ack``. A transfer that its master aborts (``cyc`` or ``stb`` low before the answer)
    still takes effect; its answer is dropped.

    Members
    -------
    The ports of :func:`wishbone_ports`, and ``bus`` : Out(Requests).
    """

    cyc: Signal
    stb: Signal
    we: Signal
    adr: Signal
    dat_w: Signal
    sel: Signal
    dat_r: Signal
    ack: Signal
    err: Signal
    stall: Signal

    def __init__(self) -> None:
        super().__init__(wishbone_ports() | {"bus": Out(Requests())})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        bus, asks = self.bus, self.cyc & self.stb
        given_up, acked, failed = (Signal(name=name) for name in ("given_up", "acked", "failed"))
        answered = acked | failed
        m.d.comb += [
            self.ack.eq(acked & asks),
            self.err.eq(failed & asks),
            self.stall.eq(~answered),
        ]
        heard = bus.done & asks & ~given_up
        m.d.sync += [
            acked.eq(heard & ~bus.refused),
            failed.eq(heard & bus.refused),
            given_up.eq(bus.valid & ~bus.done & (given_up | ~asks)),
        ]
        with m.If(bus.done):
            m.d.sync += [bus.valid.eq(0), self.dat_r.eq(bus.read_data)]
        with m.Elif(asks & ~answered & ~bus.valid):
            m.d.sync += [
                bus.valid.eq(1),
                bus.number.eq(self.adr),
                bus.write.eq(self.we),
                bus.data.eq(self.dat_w),
                bus.whole.eq(self.sel.all()),
            ]
        return m


class WishboneCore(FifoWrapper):
    """The core with Wishbone B4 registers and data FIFOs; see ``docs/integrate.md``."""

    prefix, slave, port_texts = "wb_", Wishbone, _TEXTS
    interfaces: ClassVar[Mapping[str, str]] = {"wb": "wishbone"}
    bus_ports = staticmethod(wishbone_ports)
