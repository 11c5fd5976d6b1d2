"""The C client of the examples: compiled, and run with integer steps."""

import ctypes
import subprocess
from pathlib import Path

import numpy as np

from rtlstm.spec.fixed import IntArray
from rtlstm.spec.manifest import Manifest
from support.paths import EXAMPLES

SOURCES = EXAMPLES / "c_client"
STRICT = (
    "-std=c99",
    "-pedantic",
    "-D_DEFAULT_SOURCE",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-fsanitize=undefined",
    "-fno-sanitize-recover",
)


def compile_client(folder: Path) -> Path:
    program = folder / "client"
    files = [SOURCES / "main.c", SOURCES / "rtlstm.c"]
    subprocess.run(["gcc", *STRICT, "-o", program, *files], check=True)
    return program


def load_client(folder: Path) -> ctypes.CDLL:
    """Compile its functions alone, and load them here."""
    library = folder / "client.so"
    subprocess.run(["gcc", *STRICT, "-fPIC", "-shared", "-o", library, SOURCES / "rtlstm.c"], check=True)
    return ctypes.CDLL(str(library))


def run_client(
    program: Path, line: str, weights: Path, manifest: Manifest, x: IntArray | str, build: str | None = None
) -> subprocess.CompletedProcess[str]:
    """Run it with steps, or with any text; ``build`` is its last argument."""
    numerics = manifest.numerics
    bits = str(numerics.input.bits)
    if numerics.output_bits != numerics.input.bits:
        bits += f":{numerics.output_bits}"
    sizes = (manifest.program.inputs, manifest.program.outputs, bits)
    text = x if isinstance(x, str) else "\n".join(" ".join(str(value) for value in row) for row in x.tolist())
    command = [str(program), line, str(weights), *(str(size) for size in sizes)]
    command += [] if build is None else [build]
    return subprocess.run(command, input=text, text=True, capture_output=True, timeout=120, check=False)


def read_outputs(done: subprocess.CompletedProcess[str]) -> IntArray:
    assert done.returncode == 0, done.stderr
    return np.array([[int(word) for word in line.split()] for line in done.stdout.splitlines()])
