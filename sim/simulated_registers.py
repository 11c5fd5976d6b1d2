"""The registers of a build in Icarus, one access at a time, for the memory-mapped driver."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

from rtlstm.sim.sources import SIMULATION
from rtlstm.spec.errors import DeviceError
from rtlstm.spec.registers import Register
from rtlstm.tools.toolchain import icarus, run_tool


class SimulatedRegisters:
    """A testbench that takes accesses from its standard input, such as ``sim/axilite_port.v``.

    Parameters
    ----------
    program
        Absolute path of the compiled simulation, which is written. Files that sources name stand beside it.
    top
        The testbench's module.
    sources
        Verilog, the testbench's too; relative to the program's folder.
    base
        The word address of the first register.

    Raises
    ------
    ToolError
        If Icarus Verilog is missing or fails.
    """

    def __init__(self, program: Path, top: str, sources: Sequence[str | Path], base: int = 0) -> None:
        tool = icarus()
        options = ("-g2005", f"-D{SIMULATION}", "-s", top, "-o", program)
        command: list[str | Path] = [tool.iverilog, *options, *sources]
        run_tool(command, f"compiling {top} for simulation", program.parent)
        self.process = subprocess.Popen(
            [str(tool.vvp), "-n", str(program)],
            cwd=program.parent,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.base = base
        self.reads = 0

    def ask(self, line: str) -> int:
        """Send a command; return the word that answers it.

        Raises
        ------
        DeviceError
            If the access was refused, or the simulation has ended.
        """
        stdin, stdout = self.process.stdin, self.process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(f"{line}\n")
        stdin.flush()
        kind, *word = stdout.readline().split() or ["no answer"]
        if kind != "a":
            raise DeviceError(f"a simulated bus must take every access, but {line!r} gave {kind!r}")
        return int(word[0], 16)

    def read(self, register: Register) -> int:
        """Read a register: an unsigned 32-bit word."""
        self.reads += 1
        return self.ask(f"r {self.base + register:x}")

    def write(self, register: Register, word: int) -> None:
        """Write an unsigned 32-bit word."""
        self.ask(f"w {self.base + register:x} {word:x}")

    def close(self) -> None:
        """End the simulation. Further calls do nothing."""
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()
        self.process.wait(10)
