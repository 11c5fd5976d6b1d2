"""Files of a build folder for other people's flows: a testbench, constraints and packages of the core."""


class IpPaths:
    """Paths in the build folder, of a build with this name.

    Those that a tool finds by looking into folders are at the top; they name the others from there.
    """

    def __init__(self, name: str) -> None:
        self.rtl = f"rtl/{name}.v"
        """The build's Verilog."""
        self.models = f"rtl/{name}_models.v"
        """Models of the hard cells that it instantiates, for families that have some."""
        self.core = f"{name}.core"
        """FuseSoC's description."""
        self.component = "component.xml"
        """IP-XACT's description."""
        self.qsys = f"{name}_hw.tcl"
        """Platform Designer's description."""
        self.testbench = f"ip/{name}_tb.sv"
        """The testbench, in SystemVerilog."""
        self.vectors = f"ip/{name}_tb.hex"
        """What the testbench sends and expects."""
        self.cocotb_test = f"ip/test_{name}.py"
        """The test with cocotb, for pytest."""
        self.instance = f"ip/{name}.veo"
        """How to instantiate the core."""
        self.sdc = f"ip/{name}.sdc"
        """Timing constraints."""
        self.xdc = f"ip/{name}.xdc"
        """The same for Vivado."""
        self.rdl = "ip/registers.rdl"
        """The registers in SystemRDL."""
        self.driver = "ip/rtlstm_mmio.c", "ip/rtlstm_mmio.h"
        """The C driver for memory-mapped registers, and its header."""
        self.bill = f"ip/{name}.cdx.json"
        """The bill of materials."""
        self.top = {self.core, self.component, self.qsys, "ip"}
        """Names of these files' places at the top of the folder."""
