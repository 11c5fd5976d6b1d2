"""The estimate of a core beside what synthesis gives."""

from pathlib import Path

import pytest

from rtlstm.fpga.devices import find_device
from rtlstm.fpga.estimate import MARGIN, Estimate, estimate
from rtlstm.fpga.synthesis import Synthesis, synthesise
from rtlstm.fpga.tools import find_yosys
from rtlstm.hdl.emit.verilog import core_to_verilog
from rtlstm.spec.manifest import Manifest


def check_synthesis(manifest: Manifest, device: str, folder: Path) -> tuple[Estimate, Synthesis]:
    """Synthesise a core: its hard blocks are those of the estimate, LUTs and flip-flops within the margin."""
    chosen = find_device(device)
    found = estimate(manifest, chosen)
    assert found is not None
    synthesis = synthesise(core_to_verilog(manifest), manifest.name, chosen.device, find_yosys(), folder)
    core = synthesis.core
    assert (found.multipliers, found.block_rams) == (core.multipliers, core.block_rams)
    assert found.luts == pytest.approx(core.luts, rel=MARGIN)
    assert found.ffs == pytest.approx(core.ffs, rel=MARGIN)
    return found, synthesis
