"""Verilog of cores, for tests that are not about its generation.

Each core is converted once, for all test processes.
"""

from collections.abc import Callable
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path

from rtlstm.hdl.emit.verilog import core_to_verilog, linked_core_to_verilog, primitives
from rtlstm.hdl.emit.yosys import find_writer
from rtlstm.spec.manifest import Manifest
from rtlstm.tools.cache import cached, digest
from support.paths import ROOT

__all__ = ["core_verilog", "linked_core_verilog"]


def core_verilog(manifest: Manifest) -> str:
    """Return what :func:`rtlstm.hdl.emit.verilog.core_to_verilog` makes of a manifest."""
    return _converted(manifest, "core", partial(core_to_verilog, manifest))


def linked_core_verilog(manifest: Manifest, divisor: int) -> str:
    """Return what :func:`rtlstm.hdl.emit.verilog.linked_core_to_verilog` makes of a manifest."""
    return _converted(manifest, f"link {divisor}", partial(linked_core_to_verilog, manifest, divisor))


def _converted(manifest: Manifest, what: str, convert: Callable[[], str]) -> str:
    def build(folder: Path) -> None:
        (folder / "core.v").write_text(convert())

    cells = primitives(manifest.parameters.family)
    key = digest(what, manifest.to_json(), cells, _tools(), _sources())
    return (cached("verilog", key, build) / "core.v").read_text()


@cache
def _tools() -> str:
    yosys = find_writer()
    return f"Amaranth {version('amaranth')}, {yosys.__name__} {yosys.version()}"


@cache
def _sources() -> str:
    """Return a digest of all code that takes part in a conversion."""
    files = [path for room in ("spec", "fpga", "hdl") for path in sorted((ROOT / room).rglob("*.py"))]
    return digest(*(path.read_bytes() for path in files))
