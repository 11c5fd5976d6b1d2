"""Synthesis of a core for a device, and what it takes of the device."""

import json
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from threading import Event
from typing import Any

from pydantic import BaseModel

from rtlstm.boards.devices import Architecture, Device
from rtlstm.boards.fpga_tools import Tool, run_logged
from rtlstm.boards.harness import HARNESS, black_box, harness, read_ports
from rtlstm.sim.cache import Report, cached, digest
from rtlstm.spec.errors import ConfigurationError, ToolError
from rtlstm.spec.record import Record

__all__ = [
    "LARGE_RAM",
    "NETLIST",
    "Counts",
    "Synthesis",
    "check_fit",
    "count_cells",
    "resource_uses",
    "script",
    "synthesise",
]

NETLIST = "netlist.json"
"""The mapped netlist of frame and core, for place and route."""

_LOG = "synthesis.log"

_COMMANDS: dict[Architecture, tuple[str, str, str]] = {
    "ecp5": ("synth_ecp5", "", "-nodsp"),
    "ice40": ("synth_ice40 -dsp", "", ""),
    "nexus": ("synth_nexus", "-noiopad", "-nodsp"),
    "gowin": ("synth_gowin", "-noiopads", "-nodsp"),
    "xilinx": ("synth_xilinx -family xc7 -flatten", "-noiopad -noclkbuf", "-nodsp"),
    "xilinx-ultrascale-plus": ("synth_xilinx -family xcup -flatten", "-noiopad -noclkbuf", "-nodsp"),
    "intel": ("synth_intel_alm -family cyclonev", "-noiopad -noclkbuf", "-nodsp"),
}
"""Yosys's command, what leaves out pins, and what leaves out multiplier blocks."""

LARGE_RAM = {"SB_SPRAM256KA": 1, "PDPSC512K": 1, "DPSC512K": 1, "SP512K": 1, "URAM288": 1}
"""Cells of a device's large memories."""

_LUTS: dict[str, float] = {
    # ECP5 and Nexus. A 16 x 4 distributed RAM keeps one and a half slice pairs.
    "LUT4": 1,
    "CCU2C": 2,
    "CCU2": 2,
    "TRELLIS_DPR16X4": 6,
    "DPR16X4": 6,
    "WIDEFN9": 2,
    "INV": 1,
    # iCE40
    "SB_LUT4": 1,
    # Gowin
    "LUT1": 1,
    "LUT2": 1,
    "LUT3": 1,
    "ALU": 1,
    "RAM16SDP4": 4,
    "RAM16SDP2": 4,
    "RAM16SDP1": 4,
    "RAM16S4": 4,
    # Xilinx
    "LUT5": 1,
    "LUT6": 1,
    "RAM32X1D": 2,
    "RAM64X1D": 2,
    "RAM128X1D": 4,
    "RAM32M": 4,
    "RAM64M": 4,
    "RAM32M16": 8,
    "RAM64M8": 8,
    "SRL16E": 1,
    "SRLC32E": 1,
    # Intel: halves of an adaptive logic module
    "MISTRAL_ALUT6": 1,
    "MISTRAL_ALUT5": 0.5,
    "MISTRAL_ALUT4": 0.5,
    "MISTRAL_ALUT3": 0.5,
    "MISTRAL_ALUT2": 0.5,
    "MISTRAL_NOT": 0.5,
    "MISTRAL_ALUT_ARITH": 0.5,
    "MISTRAL_MLAB": 0.5,
}

_MULTIPLIERS: dict[str, float] = {
    "MULT18X18D": 1,
    "MULT9X9D": 0.5,
    "SB_MAC16": 1,
    "MULT9X9": 0.5,
    "MULT18X18": 1,
    "MULT18X36": 2,
    "MULT36X36": 4,
    "MULTADDSUB9X9WIDE": 2,
    "MULTADDSUB18X18": 1,
    "MULTALU18X18": 2,
    "MULTADDALU18X18": 2,
    "DSP48E1": 1,
    "DSP48E2": 1,
    "MISTRAL_MUL9X9": 1 / 3,
    "MISTRAL_MUL18X18": 0.5,
    "MISTRAL_MUL27X27": 1,
}

_BLOCK_RAMS: dict[str, float] = {
    "DP16KD": 1,
    "PDPW16KD": 1,
    "SB_RAM40_4K": 1,
    "SB_RAM40_4KNR": 1,
    "SB_RAM40_4KNW": 1,
    "SB_RAM40_4KNRNW": 1,
    "DP16K": 1,
    "PDP16K": 1,
    "PDPSC16K": 1,
    "SP16K": 1,
    "SP": 1,
    "SPX9": 1,
    "SDPB": 1,
    "SDPX9B": 1,
    "DPB": 1,
    "DPX9B": 1,
    "pROM": 1,
    "pROMX9": 1,
    "RAMB18E1": 0.5,
    "RAMB18E2": 0.5,
    "RAMB36E1": 1,
    "RAMB36E2": 1,
    "MISTRAL_M10K": 1,
}

_FFS = ("TRELLIS_FF", "SB_DFF", "FD1P3", "DFF", "FD", "LD", "MISTRAL_FF")
"""How the names of flip-flops begin."""


class Counts(Record):
    """What a design takes of a device, in the units of the device's own sizes."""

    luts: int
    ffs: int
    multipliers: float
    block_rams: float
    large_rams: int
    cells: Mapping[str, int]
    """The tool's own cells."""


class Synthesis(BaseModel):
    """A finished synthesis."""

    folder: Path
    """With the netlist; in the cache, nothing may be changed there."""
    key: str
    core: Counts
    harness: Counts
    seconds: float
    stored: bool
    """Taken from the cache."""


def count_cells(cells: Mapping[str, int]) -> Counts:
    """Sum up cells by what they take."""

    def total(costs: Mapping[str, float]) -> float:
        return round(sum(costs.get(name, 0) * count for name, count in cells.items()), 2)

    known = _LUTS.keys() | _MULTIPLIERS.keys() | _BLOCK_RAMS.keys() | LARGE_RAM.keys()
    return Counts(
        luts=-int(-total(_LUTS) // 1),
        ffs=sum(count for name, count in cells.items() if name.startswith(_FFS) and name not in known),
        multipliers=total(_MULTIPLIERS),
        block_rams=total(_BLOCK_RAMS),
        large_rams=int(total(LARGE_RAM)),
        cells={name: count for name, count in sorted(cells.items()) if not name.startswith("$")},
    )


def resource_uses(counts: Counts, device: Device) -> Iterator[tuple[str, float, int]]:
    """Yield each resource of a device: its name, how much is taken, how much there is."""
    yield "lookup tables" if device.architecture != "intel" else "logic modules", counts.luts, device.luts
    yield "flip-flops", counts.ffs, device.ffs
    yield "multipliers", counts.multipliers, device.multipliers
    yield "block RAMs", counts.block_rams, device.block_rams
    if device.large_ram is not None:
        yield f"{device.large_ram.name} blocks", counts.large_rams, device.large_ram.count


def check_fit(name: str, counts: Counts, device: Device) -> None:
    """Check a design's counts against a device.

    Raises
    ------
    ConfigurationError
        If there is too little of something; the message names all of it.
    """
    lacking = [
        f"{used:g} {what} (it has {there:,})"
        for what, used, there in resource_uses(counts, device)
        if used > there
    ]
    if lacking:
        raise ConfigurationError(
            f"{name} does not fit {device.name}: it takes {', '.join(lacking)}; generate it with fewer "
            "lanes or macs, or choose a larger device"
        )


def script(device: Device, top: str, multipliers: bool = True) -> str:
    """Return Yosys's commands: the core by itself, counted, then the frame around it.

    The frame is synthesised with the core as a black box, so that nothing of the core changes.
    """
    command, no_pads, no_multipliers = _COMMANDS[device.architecture]
    if not multipliers or not device.multipliers:
        command = f"{command} {no_multipliers}".replace("-dsp", "").strip()
    lines = ["read_verilog core.v", f"{command} {no_pads} -top {top}", "tee -q -o core_stat.json stat -json"]
    if device.routable:
        lines += [
            "design -stash core",
            "read_verilog shell.v harness.v",
            f"{command} -top {HARNESS}",
            "tee -q -o harness_stat.json stat -json",
            f"delete ={top}",
            f"design -copy-from core {top}",
            "flatten",
            "opt_clean -purge",
            "setattr -unset src */c:* */w:* */m:*",
            f"write_json -noscopeinfo {NETLIST}",
        ]
    return "\n".join(lines) + "\n"


def synthesise(
    verilog: str,
    top: str,
    device: Device,
    tool: Tool,
    folder: Path,
    *,
    multipliers: bool = True,
    report: Report | None = None,
    stop: Event | None = None,
) -> Synthesis:
    """Synthesise a core, or take the stored result of the same synthesis.

    Parameters
    ----------
    folder
        Where log, script and frame go.
    multipliers
        Whether to use the device's multiplier blocks.

    Raises
    ------
    BuildError
        If the core's ports cannot be read.
    ToolError
        If Yosys fails.
    """
    ports = read_ports(verilog, top)
    files = {
        "core.v": verilog,
        "harness.v": harness(top, ports),
        "shell.v": black_box(top, ports),
        "synthesis.ys": script(device, top, multipliers),
    }
    key = digest(tool.version, *(text for pair in files.items() for text in pair))
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("harness.v", "synthesis.ys"):
        (folder / name).write_text(files[name])
    fresh = False

    def build(work: Path) -> None:
        nonlocal fresh
        fresh = True
        for name, text in files.items():
            (work / name).write_text(text)
        seconds = run_logged(
            tool,
            ["-q", "-l", _LOG, "synthesis.ys"],
            folder=work,
            log=folder / _LOG,
            what=f"synthesis of {top} for {device.name}",
            report=report,
            stop=stop,
        )
        (work / "seconds.json").write_text(json.dumps(round(seconds, 1)))

    if report:
        report("synthesis", 0, 1)
    found = cached("synthesis", key, build, report)
    if report:
        report("synthesis", 1, 1)
    if not fresh:
        shutil.copyfile(found / _LOG, folder / _LOG)
    return Synthesis(
        folder=found,
        key=key,
        core=count_cells(_cells(found / "core_stat.json")),
        harness=count_cells(_cells(found / "harness_stat.json") if device.routable else {}),
        seconds=_json(found / "seconds.json"),
        stored=not fresh,
    )


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise ToolError(f"{path} cannot be read ({error}); remove its folder and try again") from None


def _cells(path: Path) -> dict[str, int]:
    found = _json(path)["design"].get("num_cells_by_type", {})
    return {str(name): int(count) for name, count in found.items()}
