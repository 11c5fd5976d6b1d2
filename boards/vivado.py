"""Writes what Vivado needs for a Zynq board's bitstream: sources, constraints and a script."""

import string
from importlib.resources import files
from pathlib import Path

from rtlstm.boards.zynq import BASE_ADDRESS, FabricClock, ZynqBoard
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
_INTERRUPT = 29
"""The first interrupt from the logic, IRQ_F2P[0], as device trees count shared interrupts."""


class VivadoProject(Record):
    """A folder for Vivado, and what it was made from."""

    board: str
    build_hash: str
    part: str
    clock_mhz: float
    requested_mhz: float
    base_address: int
    """Address of the registers in the processor's memory map."""
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
    values = {
        "licence": SPDX,
        "board": board.title,
        "board_part": board.board_part,
        "part": board.part,
        "name": manifest.name,
        "core": wrapper_name(manifest),
        "top": VIVADO_TOP,
        "mhz": megahertz(clock.hz),
        "hz": str(int(clock.hz)),
        "address": f"0x{BASE_ADDRESS:08X}",
        "unit": f"{BASE_ADDRESS:08x}",
        "interrupt": str(_INTERRUPT),
        "led0": board.leds[0],
        "led1": board.leds[1],
    }
    texts = {
        SCRIPT: _fill("zynq.tcl", values),
        "top.v": _fill("zynq_top.v", values),
        f"{manifest.name}.v": core,
        "top.xdc": _fill("zynq.xdc", values),
        "uio.dtsi": _fill("zynq.dtsi", values),
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
        base_address=BASE_ADDRESS,
        files=tuple(texts),
        bitstream=f"{manifest.name}.bit",
    )
    write_file(folder / RECORD, project.model_dump_json(indent=1) + "\n")
    return project


def _fill(template: str, values: dict[str, str]) -> str:
    text = (files("rtlstm.boards") / "templates" / template).read_text()
    return _Template(text).substitute(values)
