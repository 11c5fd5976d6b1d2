"""Writes the Verilog of a LiteX SoC with a build in it: litex_soc.py CPU SOC.V

The SoC has the line that docs/integrate.md tells the reader to write. The build that they name is in the
working folder. With a CPU or without one, a master on the SoC's bus comes from outside, for the bench in
litex_soc.v. The addresses of its registers are printed as LiteX's JSON.

It is a process of its own because LiteX keeps the state of a SoC in its modules.
"""

import logging
import sys
from pathlib import Path

from litex.build.generic_platform import Pins, Subsignal
from litex.build.sim import SimPlatform
from litex.gen import ClockDomain, LiteXModule
from litex.soc.integration.export import get_csr_json
from litex.soc.integration.soc_core import SoCCore
from litex.soc.interconnect import wishbone

from rtlstm.litex import add_core

ROOT = Path(__file__).parents[2]
TO_BUS = {"adr": 30, "dat_w": 32, "sel": 4, "cyc": 1, "stb": 1, "we": 1}
FROM_BUS = {"dat_r": 32, "ack": 1, "err": 1}
MEMORIES = {
    "integrated_rom_size": 4096,
    # Whole memories, else Icarus warns. The program: a jump to itself.
    "integrated_rom_init": [0x0000_006F] * 1024,
    "integrated_sram_size": 4096,
}


class Clock(LiteXModule):
    """Clock and reset from pins."""

    def __init__(self, platform: SimPlatform) -> None:
        self.cd_sys = ClockDomain()
        self.comb += self.cd_sys.clk.eq(platform.request("clk"))
        self.comb += self.cd_sys.rst.eq(platform.request("rst"))


class Soc(SoCCore):
    """What docs/integrate.md describes, and a master from outside."""

    def __init__(self, lines: str, cpu: str) -> None:
        pins = TO_BUS | FROM_BUS | {"irq": 1}
        host_pins = (Subsignal(name, Pins(bits)) for name, bits in pins.items())
        platform = SimPlatform("SIM", [("clk", 0, Pins(1)), ("rst", 0, Pins(1)), ("host", 0, *host_pins)])
        memories = {"integrated_sram_size": 0} if cpu == "none" else MEMORIES
        cpu_type = None if cpu == "none" else cpu
        super().__init__(platform, 1e6, cpu_type=cpu_type, with_uart=False, with_timer=False, **memories)
        if cpu_type is not None:
            self.sram.mem.init = [0] * 1024
        self.crg = Clock(platform)
        exec(lines, {"self": self, "add_core": add_core})
        host = platform.request("host")
        master = wishbone.Interface(data_width=32, adr_width=30, addressing="word")
        self.bus.add_master("host", master)
        self.comb += [getattr(master, name).eq(getattr(host, name)) for name in TO_BUS]
        self.comb += [getattr(host, name).eq(getattr(master, name)) for name in FROM_BUS]
        irq = self.vad.ev.irq if cpu_type is None else self.cpu.interrupt[self.irq.locs["vad"]]
        self.comb += host.irq.eq(irq)


def main(cpu: str, target: str) -> None:
    """Write the Verilog."""
    logging.getLogger().setLevel(logging.WARNING)
    page = (ROOT / "docs" / "integrate.md").read_text()
    line = next(line for line in page.splitlines() if line.startswith("add_core(self, "))
    soc = Soc(line, cpu)
    soc.finalize()
    # As LiteX writes it for simulation: Icarus hangs in its AXI4-Lite bridge as written for synthesis.
    soc.platform.get_verilog(soc, name="soc", regular_comb=False).write(target)
    print(get_csr_json(soc.csr_regions, soc.constants, soc.mem_regions))


main(*sys.argv[1:])
