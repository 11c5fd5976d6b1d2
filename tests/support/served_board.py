"""``rtlstm board`` as a process of its own, and the README's commands for it."""

import contextlib
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rtlstm.gen.builds.on_board import OnBoard
from rtlstm.host import Accelerator
from support.paths import ROOT

README = ROOT / "README.md"


def commands() -> list[str]:
    """The README's three, in its section on boards."""
    section = README.read_text().partition("\n## On a board\n")[2].partition("\n## ")[0]
    block = re.search(r"^```sh\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
    assert block is not None
    return block[1].splitlines()


def check_golden(build: Path, x: NDArray[np.float64], y: NDArray[np.float64]) -> None:
    """The outputs of a board are those of the golden model."""
    with Accelerator.open(build, "golden") as golden:
        assert np.array_equal(y, golden.run(x)[0])


def start(command: str, folder: Path) -> subprocess.Popen[str]:
    program = [sys.executable, "-c", "from rtlstm.cli.main import main; main()", *shlex.split(command)[1:]]
    return subprocess.Popen(program, cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def finish(process: subprocess.Popen[str]) -> None:
    printed, _ = process.communicate(timeout=300)
    assert process.returncode == 0, printed


def said(process: subprocess.Popen[str], pattern: str) -> str:
    """Read what a process prints up to a line with this pattern."""
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if found := re.search(pattern, line):
            return found[1]
    raise AssertionError(f"{pattern} was not printed, but {''.join(lines)}")


@contextlib.contextmanager
def running(
    command: str, folder: Path, number: signal.Signals = signal.SIGTERM
) -> Iterator[subprocess.Popen[str]]:
    """Run a board until the end of the block, then have it end by this signal, well."""
    with start(command, folder) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.send_signal(number)
                finish(process)


@contextlib.contextmanager
def served(
    on_board: OnBoard, folder: Path, *options: str
) -> Iterator[tuple[subprocess.Popen[str], str, str]]:
    """Run a board; give its process and the backends that reach it, by pseudo-terminal and by TCP."""
    command = (
        f"rtlstm board {on_board.folder} --board {on_board.board.name} --clock {on_board.timing.clock_mhz}"
    )
    with running(" ".join([command, "--tcp 0", *options]), folder) as process:
        yield process, said(process, r"(serial:\S+)"), said(process, r"(tcp:\S+)")
