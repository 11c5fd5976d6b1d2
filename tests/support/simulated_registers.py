"""The registers of a build in Icarus, one access at a time, for the memory-mapped driver."""

import subprocess
from pathlib import Path

from rtlstm.spec.registers import Register
from rtlstm.tools.toolchain import icarus


class SimulatedRegisters:
    """A testbench that takes accesses from its standard input, such as ``tests/support/wishbone_port.v``.

    ``base`` is the word address of the first register.
    """

    def __init__(self, program: Path, top: str, sources: list[Path], base: int = 0) -> None:
        tool = icarus()
        command = [tool.iverilog, "-g2005", "-s", top, "-o", program, *sources]
        subprocess.run(list(map(str, command)), check=True)
        # Files that the sources name stand beside the program.
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
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()
        kind, *word = self.process.stdout.readline().split()
        assert kind == "a", f"{line} was refused"
        return int(word[0], 16)

    def read(self, register: Register) -> int:
        self.reads += 1
        return self.ask(f"r {self.base + register:x}")

    def write(self, register: Register, word: int) -> None:
        self.ask(f"w {self.base + register:x} {word:x}")

    def close(self) -> None:
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait(10)
