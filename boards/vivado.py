"""Writes what Vivado needs for a Zynq board's bitstream: sources, constraints and a script."""

import math
import string
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

from rtlstm.boards.zynq import FabricClock, ZynqBoard
from rtlstm.fpga.families.device import megahertz
from rtlstm.hdl.buses.wrappers import wrapper_name
from rtlstm.hdl.emit.header import SPDX
from rtlstm.spec.files import write_file
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.record import Record
from rtlstm.spec.registers import CORE_CELL, CORE_MODULE, OVERLAY

SCRIPT = "build.tcl"
RECORD = "vivado.json"
RESERVED = (CORE_MODULE, "top", "system", "system_wrapper")
"""Modules and files of the board's own; no build may have these names."""


class VivadoProject(Record):
    """A folder for Vivado, and what it was made from."""

    board: str
    build_hash: str
    part: str
    clock_mhz: float
    requested_mhz: float
    base_address: int
    """Address of the registers in the processor's memory map."""
    interrupt_pin: str
    """The processor's pin that the core's interrupt drives."""
    files: tuple[str, ...]
    """Names of files beside this record; the script is the first."""
    bitstream: str
    """The bitstream that the script makes for JTAG; one for Linux, ``.bin``, is beside it."""
    overlay: str
    """Folder for PYNQ: the build's manifest and weights. The script adds the bitstream and its ``.hwh``."""


class Template(string.Template):
    """A template of this package. Placeholders begin with ``@``: the script's variables begin with ``$``."""

    delimiter = "@"


def write_project(
    board: ZynqBoard,
    manifest: Manifest,
    core: str,
    clock: FabricClock,
    folder: Path,
    *,
    requested_mhz: float,
    driver_files: Mapping[str, bytes],
) -> VivadoProject:
    """Write script, Verilog, constraints, a device tree fragment and PYNQ's folder; ``folder`` may move.

    Parameters
    ----------
    core
        The build's Verilog, with its AXI4-Lite wrapper.
    driver_files
        What the driver needs of the build, by name.
    """
    processor = board.processor
    values = {
        "licence": SPDX,
        "board": board.title,
        "board_part": board.board_part,
        "part": board.part,
        "name": manifest.name,
        "core": wrapper_name(manifest),
        "top": CORE_MODULE,
        "core_cell": CORE_CELL,
        "overlay": OVERLAY,
        "mhz": megahertz(clock.hz),
        # Linux takes the nearest rate that is not above this one.
        "hz": str(math.ceil(clock.hz)),
        "address": f"0x{processor.base_address:08X}",
        "unit": f"{processor.base_address:08x}",
        "interrupt": str(processor.interrupt),
        "cell": processor.cell,
        "vivado": processor.vivado,
        "led0": board.leds[0],
        "led1": board.leds[1],
    }
    texts: dict[str, str | bytes] = {
        SCRIPT: _fill("zynq.tcl", values | {"processor": _read(f"zynq_{processor.cell}.tcl")}),
        "top.v": _fill("zynq_top.v", values),
        f"{manifest.name}.v": core,
        "top.xdc": _fill("zynq.xdc", values),
        "uio.dtsi": _fill(f"zynq_{processor.cell}.dtsi", values),
    }
    contents = texts | {f"{OVERLAY}/{name}": content for name, content in driver_files.items()}
    (folder / OVERLAY).mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        write_file(folder / name, content)
    project = VivadoProject(
        board=board.name,
        build_hash=manifest.build_hash,
        part=board.part,
        clock_mhz=clock.mhz,
        requested_mhz=requested_mhz,
        base_address=processor.base_address,
        interrupt_pin=processor.interrupt_pin,
        files=tuple(contents),
        bitstream=f"{manifest.name}.bit",
        overlay=OVERLAY,
    )
    write_file(folder / RECORD, project.model_dump_json(indent=1) + "\n")
    return project


def _fill(template: str, values: dict[str, str]) -> str:
    return Template(_read(template)).substitute(values)


def _read(template: str) -> str:
    return (files("rtlstm.boards") / "templates" / template).read_text()
