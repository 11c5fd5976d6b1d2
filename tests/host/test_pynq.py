"""A core in a PYNQ overlay, on the RTL of a Zynq board's top: PYNQ itself is a stand-in here.

``make wheels`` opens the same overlay with PYNQ's own package, which needs an older NumPy than rtlstm.
"""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from support.bus_builds import quantised_network, write_build
from support.golden_runs import random_codes

from rtlstm.boards.zynq import ZYNQ_BOARDS, SimulatedPynq
from rtlstm.gen.builds.on_board import OnZynq
from rtlstm.host import Accelerator
from rtlstm.host.pynq import load_overlay, open_core
from rtlstm.spec.errors import ConfigurationError, DeviceError, ImageError, ToolError

pytestmark = pytest.mark.rtl


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pynq") / "build"
    write_build(folder, "axilite")
    return folder


@pytest.fixture
def board(folder: Path, request: pytest.FixtureRequest) -> Iterator[SimulatedPynq]:
    """A PYNQ-Z2, if the test names no other board."""
    board = ZYNQ_BOARDS[getattr(request, "param", "pynq-z2")]
    with OnZynq.create(folder, board).simulate_pynq() as found:
        yield found
    assert "pynq" not in sys.modules and "rtlstm.host.pynq_driver" not in sys.modules


@pytest.fixture
def overlay(board: SimulatedPynq) -> Path:
    """The folder that is copied to the board."""
    return board.bitstream.parent


@pytest.fixture(scope="module")
def x() -> np.ndarray:
    return random_codes(quantised_network(), 3, 2, seed=1)


def check(accelerator: Accelerator, folder: Path, x: np.ndarray) -> None:
    """A batch, and a stream whose state stays on the device: what the golden model says, on every bit."""
    said = []
    for each in (accelerator, Accelerator.open(folder)):
        y, (h, c) = each.run(x, lengths=[3, 2])
        with each.stream() as stream:
            steps = [stream.step(x[0, 0]), stream.step(x[1, 0])]
            saved = stream.state_integers
            stream.reset()
            said.append([y, *h, *c, *steps, *saved[0], *saved[1], stream.step(x[0, 1])])
    for found, wanted in zip(*said, strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_backend_loads_the_overlay(overlay: Path, folder: Path, x: np.ndarray) -> None:
    with Accelerator.open(overlay, "pynq") as accelerator:
        check(accelerator, folder, x)
    from pynq import Clocks

    # 1,000 MHz / (5 * 4); pynq 4.0.0 itself cannot set it on a Zynq-7000.
    assert Clocks.divisors == {0: (5, 4)} and not Clocks.mhz


def test_pynq_binds_the_driver(overlay: Path, folder: Path, x: np.ndarray) -> None:
    from pynq import Overlay

    with pytest.raises(TypeError):
        Overlay(str(overlay / "dut.bit"))
    from rtlstm.host.pynq_driver import RtlstmCore

    loaded = load_overlay(overlay / "dut.bit")
    assert type(loaded.core) is RtlstmCore
    with loaded.core.open(overlay, verify=False) as first:
        second = Accelerator.open(folder, f"pynq:{overlay / 'dut.bit'}", verify=False)
        with pytest.raises(DeviceError, match="another user now, because it was opened again"):
            first.run(x[:1])
    np.testing.assert_array_equal(second.run(x[:1])[0], Accelerator.open(folder).run(x[:1])[0])


@pytest.mark.parametrize("board", ["kv260"], indirect=True)
def test_cells_of_other_designs(overlay: Path, folder: Path, x: np.ndarray, tmp_path: Path) -> None:
    """A core under another type is opened by its cell; the backend looks for its own."""
    from pynq import Clocks, DefaultIP

    handoff = (overlay / "dut.hwh").read_text()
    (tmp_path / "dut.bit").write_bytes(b"")
    (tmp_path / "dut.hwh").write_text(handoff.replace("xilinx.com:module_ref:", "a:b:"))
    with pytest.raises(DeviceError, match=r"must have one cell of type \S+, not 0 \(its cells: core, ps8\)"):
        Accelerator.open(folder, f"pynq:{tmp_path / 'dut.bit'}")
    loaded = load_overlay(tmp_path / "dut.bit")
    assert type(loaded.core) is DefaultIP
    assert Clocks.mhz == {0: 99.999}
    with open_core(loaded.core, folder, verify=False) as accelerator:
        np.testing.assert_array_equal(accelerator.run(x[:1])[0], Accelerator.open(folder).run(x[:1])[0])


@pytest.mark.usefixtures("without_verilog")
def test_refusals(overlay: Path, tmp_path: Path) -> None:
    write_build(tmp_path / "other", "axilite", streams=2)
    with pytest.raises(DeviceError, match=r"must hold build \w{8} \(dut\), but it holds build \w{8}"):
        Accelerator.open(tmp_path / "other", f"pynq:{overlay / 'dut.bit'}")
    with pytest.raises(ConfigurationError, match=r"lacks dut.bit and dut.hwh; Vivado makes both"):
        Accelerator.open(tmp_path / "other", "pynq")
    (tmp_path / "other" / "dut.bit").write_bytes(b"")
    (tmp_path / "other" / "dut.xsa").write_bytes(b"")
    (tmp_path / "other" / "dut.hwh").write_text("<EDKSYSTEM>")
    with pytest.raises(ConfigurationError, match="PYNQ would read dut.xsa in the place of dut.hwh"):
        Accelerator.open(tmp_path / "other", "pynq")
    (tmp_path / "other" / "dut.xsa").unlink()
    with pytest.raises(DeviceError, match=r"PYNQ must load .*dut.bit, but could not: "):
        Accelerator.open(tmp_path / "other", "pynq")
    write_build(tmp_path / "plain", "none")
    with pytest.raises(ConfigurationError, match="bus is none; generate it with `bus='axilite'`"):
        Accelerator.open(tmp_path / "plain", "pynq")
    (tmp_path / "other" / "weights.bin").write_bytes(b"")
    with pytest.raises(ImageError):
        OnZynq.create(tmp_path / "other", ZYNQ_BOARDS["pynq-z2"]).write()


def test_one_stand_in_at_a_time(board: SimulatedPynq, folder: Path) -> None:
    with pytest.raises(ToolError, match="must come before the first import of pynq, and one at a time"):
        OnZynq.create(folder, ZYNQ_BOARDS["pynq-z2"]).simulate_pynq()


def test_missing_package_is_named(folder: Path) -> None:
    program = (
        "import sys\n"
        "sys.modules['pynq'] = None\n"
        "import rtlstm\n"
        "try:\n"
        "    rtlstm.Accelerator.open(sys.argv[1], 'pynq')\n"
        "except rtlstm.ToolError as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, folder], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("overlays need the package pynq (")
    assert done.stdout.strip().endswith("install it there, beside rtlstm, with pip install pynq")
