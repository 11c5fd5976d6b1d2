"""Writes what Vivado needs for a Zynq board's bitstream: sources, constraints and a script."""

import math
import string
from importlib.resources import files
from pathlib import Path

from rtlstm.boards.zynq import FabricClock, ZynqBoard
from rtlstm.fpga.pll import megahertz
from rtlstm.hdl.buses.wrappers import wrapper_name
from rtlstm.hdl.emit.header import SPDX
from rtlstm.spec.files import write_file
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.record import Record

__all__ = ["RECORD", "RESERVED", "SCRIPT", "VIVADO_TOP", "VivadoProject", "write_project"]

SCRIPT = "build.tcl"
RECORD = "vivado.json"
VIVADO_TOP = "rtlstm_zynq"
"""The module that the block design instantiates."""
RESERVED = (VIVADO_TOP, "top", "system", "system_wrapper")
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
    """The bitstream that the script makes for JTAG and PYNQ; one for Linux, ``.bin``, is beside it."""


class _Template(string.Template):
    """Placeholders begin with ``@``: the script's own variables begin with ``$``."""

    delimiter = "@"


def write_project(
    board: ZynqBoard,
    manifest: Manifest,
    core: str,
    clock: FabricClock,
    folder: Path,
    *,
    requested_mhz: float,
) -> VivadoProject:
    """Write script, Verilog, constraints and a device tree fragment into ``folder``, which may move.

    Parameters
    ----------
    core
        The build's Verilog, with its AXI4-Lite wrapper.
    """
    processor = board.processor
    values = {
        "licence": SPDX,
        "board": board.title,
        "board_part": board.board_part,
        "part": board.part,
        "name": manifest.name,
        "core": wrapper_name(manifest),
        "top": VIVADO_TOP,
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
    texts = {
        SCRIPT: _fill("zynq.tcl", values | {"processor": _read(f"zynq_{processor.cell}.tcl")}),
        "top.v": _fill("zynq_top.v", values),
        f"{manifest.name}.v": core,
        "top.xdc": _fill("zynq.xdc", values),
        "uio.dtsi": _fill(f"zynq_{processor.cell}.dtsi", values),
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        write_file(folder / name, text)
    project = VivadoProject(
        board=board.name,
        build_hash=manifest.build_hash,
        part=board.part,
        clock_mhz=clock.mhz,
        requested_mhz=requested_mhz,
        base_address=processor.base_address,
        interrupt_pin=processor.interrupt_pin,
        files=tuple(texts),
        bitstream=f"{manifest.name}.bit",
    )
    write_file(folder / RECORD, project.model_dump_json(indent=1) + "\n")
    return project


def _fill(template: str, values: dict[str, str]) -> str:
    return _Template(_read(template)).substitute(values)


def _read(template: str) -> str:
    return (files("rtlstm.boards") / "templates" / template).read_text()
