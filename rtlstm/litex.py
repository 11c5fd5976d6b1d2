"""A build as a module of a LiteX SoC; needs the extra ``litex``. docs/integrate.md explains it.

Nothing else imports this module.
"""

from pathlib import Path
from typing import Any

from litex.gen import ClockSignal, Instance, LiteXModule, ResetSignal
from litex.soc.integration.soc import SoC, SoCRegion
from litex.soc.interconnect import axi, wishbone
from litex.soc.interconnect.csr_eventmanager import EventManager, EventSourceLevel

from rtlstm.spec.errors import ConfigurationError
from rtlstm.spec.manifest import Manifest, read_verilog

REGION_BYTES = 128
"""Size of a core's registers on the bus."""


class RtlstmCore(LiteXModule):
    """A core with its registers and data FIFOs, in the clock domain ``sys``.

    Parameters
    ----------
    platform
        LiteX's platform, which takes the Verilog.
    folder
        The build, made with ``--bus wishbone`` or ``--bus axilite``.

    Members
    -------
    bus
        A slave of 32 bits: LiteX's ``wishbone.Interface``, addressed in words, or ``axi.AXILiteInterface``.
    ev.done
        The core's interrupt, a level: clear IRQ_PENDING of the core first, then LiteX's pending bit.

    Raises
    ------
    BuildError
        If ``folder`` is not a build, or its Verilog was changed.
    ConfigurationError
        If the build has another bus.
    """

    def __init__(self, platform: Any, folder: str | Path) -> None:
        folder = Path(folder)
        self.manifest = manifest = Manifest.load(folder)
        name, bus = manifest.name, manifest.parameters.bus
        ports = {"wishbone": self._wishbone, "axilite": self._axi_lite}
        if bus not in ports:
            raise ConfigurationError(
                f"a SoC's processor reaches a core through registers, which needs a build with "
                f"`bus='wishbone'` or `bus='axilite'`, but the bus of {name} is {bus}"
            )
        # It also compares the file with the manifest.
        read_verilog(folder, manifest)
        platform.add_source(str(folder.absolute() / manifest.rtl))
        self.ev = EventManager()
        # Not ``ev.irq``: that is the event manager's own output, which goes to the CPU.
        self.ev.done = EventSourceLevel()
        self.ev.finalize()
        self.specials += Instance(f"{name}_{bus}", o_irq=self.ev.done.trigger, **ports[bus]())

    def _wishbone(self) -> dict[str, Any]:
        """Make the bus; return the ports of the Verilog."""
        self.bus = bus = wishbone.Interface(data_width=32, adr_width=5, addressing="word")
        inputs = {f"i_wb_{name}": getattr(bus, name) for name in ("cyc", "stb", "we", "adr", "dat_w", "sel")}
        outputs = {f"o_wb_{name}": getattr(bus, name) for name in ("dat_r", "ack", "err")}
        return {"i_clk": ClockSignal("sys"), "i_rst": ResetSignal("sys"), **inputs, **outputs}

    def _axi_lite(self) -> dict[str, Any]:
        self.bus = bus = axi.AXILiteInterface(data_width=32, address_width=32)
        ports = {"i_aclk": ClockSignal("sys"), "i_aresetn": ~ResetSignal("sys")}
        for name, to_core in {"aw": True, "w": True, "b": False, "ar": True, "r": False}.items():
            channel = getattr(bus, name)
            forth, back = ("i", "o") if to_core else ("o", "i")
            ports |= {f"{forth}_s_axi_{name}valid": channel.valid, f"{back}_s_axi_{name}ready": channel.ready}
        ports |= {"i_s_axi_awaddr": bus.aw.addr[:7], "i_s_axi_araddr": bus.ar.addr[:7]}
        ports |= {"i_s_axi_wdata": bus.w.data, "i_s_axi_wstrb": bus.w.strb, "o_s_axi_bresp": bus.b.resp}
        return ports | {"o_s_axi_rdata": bus.r.data, "o_s_axi_rresp": bus.r.resp}


def add_core(
    soc: SoC, folder: str | Path, *, origin: int | None = None, name: str | None = None
) -> RtlstmCore:
    """Put a build into a SoC: Verilog, bus, constants, and the interrupt if the SoC takes any.

    Parameters
    ----------
    soc
        Any subclass of LiteX's ``SoC``, with or without a CPU. Call it in its ``__init__``.
    folder
        The build.
    origin
        Address of the registers, in a region of the CPU's that is not cached. By default LiteX chooses it.
    name
        Of module and region; by default the build's. LiteX's headers then have ``NAME_BASE``, the address of
        the registers, and ``NAME_BUILD_NUMBER``, ``NAME_INPUTS``, ``NAME_OUTPUTS``, ``NAME_STREAMS`` and
        ``NAME_NETWORKS``: of several, a stream's number has its network's in the bits from 10 on.

    Raises
    ------
    BuildError
        If ``folder`` is not a build, or its Verilog was changed.
    ConfigurationError
        If the build has neither Wishbone nor AXI4-Lite.
    """
    core = RtlstmCore(soc.platform, folder)
    manifest = core.manifest
    name = name or manifest.name
    soc.add_module(name, core)
    soc.bus.add_slave(name, core.bus, SoCRegion(origin=origin, size=REGION_BYTES, cached=False))
    for what, value in {
        "BUILD_NUMBER": manifest.build_number,
        "INPUTS": manifest.input_port.values,
        "OUTPUTS": manifest.program.outputs,
        "STREAMS": manifest.parameters.streams,
        "NETWORKS": manifest.parameters.networks,
    }.items():
        soc.add_constant(f"{name}_{what}", value)
    if soc.irq.enabled:
        soc.irq.add(name)
    return core
