"""Tries a wheel as its users get it: a new environment, installed with its dependencies, and a first run.

    python packaging/smoke.py WHEEL [PIP_OPTION ...]

``rtlstm`` generates a build from a state dict, and its golden model, driver and command line agree on it.
With the extra ``pictures``, the report has some; with ``litex``, a SoC of LiteX holds the build.
``rtlstm-driver`` loads the same manifest beside NumPy and pydantic alone, and says what is missing.
"""

import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

WHOLE = """
import subprocess, sys
from pathlib import Path
import numpy as np
import safetensors.numpy
rng = np.random.default_rng(0)
shapes = {"weight_ih_l0": (16, 3), "weight_hh_l0": (16, 4), "bias_ih_l0": (16,), "bias_hh_l0": (16,)}
arrays = {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
safetensors.numpy.save_file(arrays, "m.safetensors")
x = rng.normal(size=(7, 3)).astype(np.float32)
np.save("x.npy", x)
tool = str(Path(sys.executable).with_name("rtlstm"))
def call(*words):
    return subprocess.run([tool, *words], check=True, capture_output=True, text=True).stdout
assert call("--version").split()[0] == "rtlstm"
call("generate", "m.safetensors", "-o", "build", "--lanes", "4", "--macs", "1")
call("run", "build", "--backend", "golden", "--input", "x.npy", "--output", "y.npy")
import rtlstm
with rtlstm.Accelerator.open("build", "golden") as accelerator:
    y, _ = accelerator.run(x)
assert np.array_equal(y, np.load("y.npy")) and np.abs(y).max() > 0.01, y
assert Path("build/rtl/m.v").stat().st_size > 10_000
assert "pip install 'rtlstm[pictures]'" in Path("build/report.html").read_text()
print("rtlstm", rtlstm.__version__, "from", Path(rtlstm.__file__).parent)
"""

LITEX = """
from pathlib import Path
import numpy as np
from litex.build.sim import SimPlatform
from litex.soc.integration.soc_core import SoCMini
from rtlstm import compile, Lstm, Network
from rtlstm.litex import add_core
lstm = Lstm(name="l", w_ih=np.ones((16, 3)), w_hh=np.ones((16, 4)), bias=np.ones(16))
build = compile(Network(name="m", layers=(lstm,)), folder="build", lanes=4, macs=1, bus="wishbone")
platform = SimPlatform("SIM", [])
soc = SoCMini(platform, clk_freq=int(1e6))
add_core(soc, Path("build"), origin=0x9000_0000)
assert soc.bus.regions["m"].origin == 0x9000_0000
assert any("m.v" in str(source) for source in platform.sources)
print("rtlstm.litex holds", build.name)
"""

PICTURES = """
from pathlib import Path
from rtlstm import compile, Lstm, Network
import numpy as np
lstm = Lstm(name="l", w_ih=np.ones((16, 3)), w_hh=np.ones((16, 4)), bias=np.ones(16))
build = compile(Network(name="m", layers=(lstm,)), folder="drawn", lanes=4, macs=1)
assert "<title>array: " in Path("drawn/report.html").read_text()
print("pictures are drawn")
"""

DRIVER = """
import importlib.util, sys
import rtlstm
for name in ("amaranth", "jinja2", "onnx", "rich", "typer", "vl_convert"):
    assert importlib.util.find_spec(name) is None, name
from rtlstm.spec.family import FAMILIES
assert "ecp5" in FAMILIES and {"mmio", "serial", "spi", "tcp", "udp"} <= set(rtlstm.host.backend_names())
try:
    rtlstm.compile
    raise SystemExit("rtlstm-driver must not have rtlstm.compile")
except rtlstm.ToolError as error:
    assert "pip install rtlstm" in str(error), error
try:
    rtlstm.Accelerator.open(".", "serial:/dev/none")
    raise SystemExit("there is no build here")
except rtlstm.BuildError as error:
    assert "is not a build folder" in str(error), error
print("rtlstm-driver", rtlstm.__version__, "from", rtlstm.__file__)
"""


def try_wheel(wheel: Path, options: list[str]) -> None:
    """Install a wheel in an environment of its own and run its programs there."""
    driver = wheel.name.startswith("rtlstm_driver-")
    programs = [("", DRIVER)] if driver else [("", WHOLE), ("[pictures]", PICTURES), ("[litex]", LITEX)]
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        subprocess.run([sys.executable, "-m", "venv", folder / "env"], check=True)
        python = str(folder / "env" / "bin" / "python")
        pip = [python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", *options]
        # Away from the tree, and without what the shell has for another Python.
        for extra, tried in programs:
            subprocess.run([*pip, f"{wheel.absolute()}{extra}"], check=True)
            subprocess.run([python, "-I", "-c", textwrap.dedent(tried)], cwd=folder, check=True)


if __name__ == "__main__":
    if len(sys.argv) < 2 or not Path(sys.argv[1]).is_file():
        sys.exit(f"usage: python {sys.argv[0]} WHEEL [PIP_OPTION ...]")
    try_wheel(Path(sys.argv[1]), sys.argv[2:])
