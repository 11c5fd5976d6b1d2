"""A LiteX SoC with a core in it, simulated: its CPU drives the core in C and compares it with golden.

    python examples/litex_soc/run.py BUILD [--cpu picorv32] [--steps 4] [--folder build/soc]

``BUILD`` is a folder made with ``--bus wishbone`` or ``--bus axilite``. It needs the extra ``litex``, Icarus
Verilog and a compiler for the CPU, riscv64-unknown-elf-gcc. LiteX's BIOS is not built: the program begins at
the CPU's reset.
"""

import argparse
import logging
import shlex
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
from litex.build.generic_platform import Pins, Subsignal
from litex.build.sim import SimPlatform
from litex.gen import ClockDomain, LiteXModule
from litex.soc.integration.export import get_csr_header, get_linker_regions, get_mem_header
from litex.soc.integration.soc_core import SoCCore

from rtlstm.host import Accelerator, CodesWarning
from rtlstm.litex import add_core
from rtlstm.spec.errors import RtlstmError
from rtlstm.spec.manifest import C_HEADER, Manifest

HERE = Path(__file__).parent
COMPILER = "riscv64-unknown-elf-"
SERIAL = {
    "source_valid": 1,
    "source_ready": 1,
    "source_data": 8,
    "sink_valid": 1,
    "sink_ready": 1,
    "sink_data": 8,
}
ROM_BYTES = 1 << 16
"""Before the program's size is known."""


class Clock(LiteXModule):
    """Clock and reset from pins."""

    def __init__(self, platform: SimPlatform) -> None:
        self.cd_sys = ClockDomain()
        self.comb += self.cd_sys.clk.eq(platform.request("sys_clk"))
        self.comb += self.cd_sys.rst.eq(platform.request("sys_rst"))


class Soc(SoCCore):
    """A CPU, ROM, RAM, a UART and the core."""

    def __init__(self, build: Path, cpu: str) -> None:
        serial = (Subsignal(name, Pins(bits)) for name, bits in SERIAL.items())
        pins = [("sys_clk", 0, Pins(1)), ("sys_rst", 0, Pins(1)), ("serial", 0, *serial)]
        platform = SimPlatform("SIM", pins)
        memories = {"integrated_rom_size": ROM_BYTES, "integrated_sram_size": 4096}
        super().__init__(platform, 1e6, cpu_type=cpu, uart_name="sim", with_timer=False, **memories)
        self.sram.mem.init = [0] * 1024
        self.crg = Clock(platform)
        add_core(self, build, name="core")


def write_steps(build: Path, steps: int) -> str:
    """Random inputs and the golden model's outputs, as C arrays."""
    manifest = Manifest.load(build)
    form = manifest.numerics.input
    shape = (steps, manifest.program.inputs)
    x = np.random.default_rng(1).integers(form.lowest, form.maximum, shape, endpoint=True)
    with Accelerator.open(build, backend="golden") as golden, golden.stream() as stream:
        y = stream.steps(x)
    arrays = {"x[STEPS][RTLSTM_INPUTS]": x, "golden[STEPS][RTLSTM_OUTPUTS]": y}
    lines = [f"enum {{ STEPS = {steps} }};"]
    for name, values in arrays.items():
        rows = ", ".join("{" + ", ".join(map(str, row)) + "}" for row in values.tolist())
        lines.append(f"static const int32_t {name} = {{{rows}}};")
    return "\n".join(lines) + "\n"


def compile_program(soc: Soc, build: Path, folder: Path, steps: int) -> list[int]:
    """Compile the program for the SoC's CPU and addresses; return the words of the ROM."""
    texts = {
        "csr.h": get_csr_header(soc.csr_regions, soc.constants, with_access_functions=False),
        "mem.h": get_mem_header(soc.mem_regions),
        "regions.ld": get_linker_regions(soc.mem_regions),
        "steps.h": write_steps(build, steps),
    }
    for name, text in texts.items():
        (folder / name).write_text(text)
    for path in (build / "weights.bin", build / C_HEADER, *(build / "ip").glob("rtlstm_mmio.*")):
        shutil.copy(path, folder)
    flags = [*shlex.split(soc.cpu.gcc_flags), "-std=c99", "-Os", "-Wall", "-Wextra", "-Werror"]
    flags += ["-ffreestanding", "-nostdlib", "-I", ".", "-L", ".", "-T", str(HERE.absolute() / "program.ld")]
    sources = [HERE.absolute() / "start.S", HERE.absolute() / "main.c", "rtlstm_mmio.c"]
    run(f"{COMPILER}gcc", *flags, "-o", "program.elf", *sources, "-lgcc", folder=folder)
    run(f"{COMPILER}objcopy", "-O", "binary", "-j", ".text", "program.elf", "program.bin", folder=folder)
    program = (folder / "program.bin").read_bytes()
    program += bytes(-len(program) % 4)
    return [int.from_bytes(program[at : at + 4], "little") for at in range(0, len(program), 4)]


def run(*command: object, folder: Path) -> None:
    """Run a program, whose own words say what is wrong."""
    try:
        done = subprocess.run([str(word) for word in command], cwd=folder, check=False)
    except FileNotFoundError:
        sys.exit(f"error: {command[0]} must be installed; see docs/integrate.md")
    if done.returncode:
        sys.exit(f"error: {command[0]} has failed, see above")


def simulate(build: Path, folder: Path, cpu: str, steps: int) -> bool:
    """Make the SoC and run it in Icarus; return whether the CPU says PASS."""
    folder.mkdir(parents=True, exist_ok=True)
    soc = Soc(build, cpu)
    soc.finalize()
    words = compile_program(soc, build, folder, steps)
    # The whole memory, else Icarus warns.
    soc.rom.mem.init = words + [0] * (ROM_BYTES // 4 - len(words))
    # As LiteX writes it for simulation: Icarus hangs in its AXI4-Lite bridge as written for synthesis.
    made = soc.platform.get_verilog(soc, name="soc", regular_comb=False)
    # Its own write() puts the memories into the working folder.
    for name, text in {"soc.v": made.main_source, **made.data_files}.items():
        (folder / name).write_text(text)
    sources = [HERE.absolute() / "bench.v", "soc.v", *(source[0] for source in soc.platform.sources)]
    run("iverilog", "-g2005", "-DRTLSTM_SIMULATION", "-s", "bench", "-o", "soc.vvp", *sources, folder=folder)
    done = subprocess.run(["vvp", "-n", "soc.vvp"], cwd=folder, capture_output=True, text=True, check=True)
    print(done.stdout, end="")
    return done.stdout.startswith("PASS")


def main() -> None:
    """Read the command line and run the SoC."""
    logging.disable(logging.INFO)
    # The steps are integers on purpose.
    warnings.simplefilter("ignore", CodesWarning)
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("build", type=Path)
    parser.add_argument("--cpu", default="picorv32")
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--folder", type=Path, default=Path("build/soc"))
    chosen = parser.parse_args()
    try:
        passed = simulate(chosen.build, chosen.folder, chosen.cpu, chosen.steps)
    except RtlstmError as error:
        sys.exit(f"error: {error}")
    sys.exit(0 if passed else 1)


if __name__ == "__main__":
    main()
