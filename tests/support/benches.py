"""Benches in Verilog, beside the modules that are written for them."""

import subprocess
from pathlib import Path

from rtlstm.tools.toolchain import icarus


def run_bench(folder: Path, bench: str, dut: str, *flags: str) -> str:
    """Compile a bench and a design with Icarus Verilog; return what the bench prints."""
    for name, text in (("bench.v", bench), ("dut.v", dut)):
        (folder / name).write_text(text)
    command = [str(icarus().iverilog), "-g2005", *flags, "-o", "bench.vvp", "bench.v", "dut.v"]
    subprocess.run(command, cwd=folder, check=True)
    run = [str(icarus().vvp), "bench.vvp"]
    return subprocess.run(run, cwd=folder, check=True, capture_output=True, text=True).stdout
