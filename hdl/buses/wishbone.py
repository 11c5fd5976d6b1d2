"""Wishbone B4, as a slave for classic and pipelined masters."""

from collections.abc import Mapping
from typing import ClassVar

from amaranth.hdl import Module, Signal

from rtlstm.hdl.buses.request_port import NUMBER_BITS, BusSlave
from rtlstm.hdl.buses.wrappers import FifoWrapper
from rtlstm.hdl.component import In, Out

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


class Wishbone(BusSlave):
    """Turns Wishbone transfers into requests.

    ``stall`` is low only in the cycle of ``ack`` or ``err``: a pipelined master then keeps its request as a
    classic one does, and both end it in that cycle. Latency for a register that answers at once: 3 cycles
    from ``stb`` to ``ack``. A transfer that its master aborts (``cyc`` or ``stb`` low before the answer)
    still takes effect; its answer is dropped.
    """

    cyc: Signal = In(1)
    stb: Signal = In(1)
    we: Signal = In(1)
    adr: Signal = In(NUMBER_BITS)
    dat_w: Signal = In(32)
    sel: Signal = In(4)
    dat_r: Signal = Out(32)
    ack: Signal = Out(1)
    err: Signal = Out(1)
    stall: Signal = Out(1)
    """Those of a 32-bit slave that is addressed by words."""

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
