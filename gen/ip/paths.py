"""Where the files for other flows are in a build folder.

It imports nothing of the generator: whoever only looks at a folder needs no more than this.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class IpPaths:
    """Paths in the build folder, of a build with this name.

    Those that a tool finds by looking into folders are at the top; they name the others from there.
    """

    name: str

    @property
    def rtl(self) -> str:
        """The build's Verilog."""
        return f"rtl/{self.name}.v"

    @property
    def core(self) -> str:
        """FuseSoC's description."""
        return f"{self.name}.core"

    @property
    def component(self) -> str:
        """IP-XACT's description."""
        return "component.xml"

    @property
    def qsys(self) -> str:
        """Platform Designer's description."""
        return f"{self.name}_hw.tcl"

    @property
    def testbench(self) -> str:
        """The testbench, in SystemVerilog."""
        return f"ip/{self.name}_tb.sv"

    @property
    def vectors(self) -> str:
        """What the testbench sends and expects."""
        return f"ip/{self.name}_tb.hex"

    @property
    def cocotb_test(self) -> str:
        """The test with cocotb, for pytest."""
        return f"ip/test_{self.name}.py"

    @property
    def instance(self) -> str:
        """How to instantiate the core."""
        return f"ip/{self.name}.veo"

    @property
    def sdc(self) -> str:
        """Timing constraints."""
        return f"ip/{self.name}.sdc"

    @property
    def xdc(self) -> str:
        """The same for Vivado."""
        return f"ip/{self.name}.xdc"

    @property
    def rdl(self) -> str:
        """The registers in SystemRDL."""
        return "ip/registers.rdl"

    @property
    def driver(self) -> tuple[str, str]:
        """The C driver for memory-mapped registers, and its header."""
        return "ip/rtlstm_mmio.c", "ip/rtlstm_mmio.h"

    @property
    def bill(self) -> str:
        """The bill of materials."""
        return f"ip/{self.name}.cdx.json"

    @property
    def top(self) -> set[str]:
        """Names of these files' places at the top of the folder."""
        return {self.core, self.component, self.qsys, "ip"}
