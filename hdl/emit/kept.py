"""Verilog that was written before comes from the cache, where it is kept under all that decides it."""

import gzip
import json
import time
import zlib
from collections.abc import Callable
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path

from amaranth._toolchain.yosys import YosysError

from rtlstm.hdl.emit.yosys import find_writer
from rtlstm.spec.activations.functions import ACTIVATIONS
from rtlstm.spec.buses import BUSES
from rtlstm.spec.family import FAMILIES
from rtlstm.spec.manifest import Manifest
from rtlstm.tools.cache import CacheError, cached, digest, load_cached

_BEGIN = time.time()
_NAME = "verilog.gz"
_ELSEWHERE = {"files", "frames", "batch_first", "parts"}
"""Fields of the manifest that say what data mean and what else a build folder has."""


def kept_verilog(what: str, manifest: Manifest, write: Callable[[], str]) -> str:
    """Return the Verilog of a manifest: from the cache, or if it is not there, as ``write`` gives it.

    ``what`` tells different Verilog of the same manifest apart. Entries that are damaged are written again.
    """
    # The code of other packages and of the running program is not in the key.
    foreign = any(registry.is_extended for registry in (ACTIVATIONS, BUSES, FAMILIES))
    sources = None if foreign else _sources()
    if sources is None:
        return write()
    try:
        yosys = find_writer()
        tools = (
            f"{yosys.__name__} {yosys.version()}, Amaranth {version('amaranth')}, NumPy {version('numpy')}"
        )
    except YosysError:
        return write()  # Its error says what is missing.
    told = json.dumps(manifest.model_dump(mode="json", exclude=_ELSEWHERE), sort_keys=True)
    written: list[str] = []

    def build(folder: Path) -> None:
        written.append(write())
        (folder / _NAME).write_bytes(gzip.compress(written[0].encode(), 1))

    key = digest(what, told, tools, sources)
    try:
        return load_cached(lambda: cached("verilog", key, build) / _NAME, _read)
    except (CacheError, OSError):  # Without a cache, it is written each time.
        return written[0] if written else write()


def _read(path: Path) -> str:
    try:
        return gzip.decompress(path.read_bytes()).decode()
    except (EOFError, zlib.error) as error:
        raise OSError("damaged") from error


@cache
def _sources() -> str | None:
    """Return a digest of code that decides Verilog, of fpga its families alone; None if it changed since."""
    rooms = [Path(str(files(f"rtlstm.{name}"))) for name in ("spec", "fpga.families", "hdl")]
    paths = [path for room in rooms for path in sorted(room.rglob("*")) if path.suffix in (".py", ".v")]
    if max(path.stat().st_mtime for path in paths) > _BEGIN:
        return None
    return digest(*(path.read_bytes() for path in paths))
