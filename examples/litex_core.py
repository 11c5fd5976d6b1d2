"""A Wishbone build as a LiteX module, for LiteX 2024.12 or later: copy it beside a SoC description."""

from litex.gen import ClockSignal, Instance, LiteXModule, ResetSignal
from litex.soc.integration.soc import SoC
from litex.soc.interconnect import wishbone
from litex.soc.interconnect.csr_eventmanager import EventManager, EventSourceLevel


class RtlstmCore(LiteXModule):
    """The registers and data FIFOs of a build made with ``--bus wishbone``, 128 bytes of them.

    ``bus`` is a slave, addressed in words of 32 bits. ``ev.done`` is the build's interrupt, a level.

    Parameters
    ----------
    soc
        The SoC whose platform takes the Verilog.
    verilog
        ``rtl/NAME.v`` of the build.
    name
        The build's name.
    """

    def __init__(self, soc: SoC, verilog: str, name: str) -> None:
        self.bus = bus = wishbone.Interface(data_width=32, adr_width=5, addressing="word")
        self.ev = EventManager()
        # Not ``ev.irq``: that is the event manager's own output, which goes to the CPU.
        self.ev.done = EventSourceLevel()
        self.ev.finalize()
        soc.platform.add_source(verilog)
        self.specials += Instance(
            f"{name}_wishbone",
            i_clk=ClockSignal("sys"),
            i_rst=ResetSignal("sys"),
            i_wb_cyc=bus.cyc,
            i_wb_stb=bus.stb,
            i_wb_we=bus.we,
            i_wb_adr=bus.adr,
            i_wb_dat_w=bus.dat_w,
            i_wb_sel=bus.sel,
            o_wb_dat_r=bus.dat_r,
            o_wb_ack=bus.ack,
            o_wb_err=bus.err,
            o_irq=self.ev.done.trigger,
        )
