"""The array reads words of h while results fill them; what the memory gives of them is undefined."""

from pathlib import Path

import numpy as np
import pytest
from support.loadable_builds import stacked
from support.quick import quick
from support.random_builds import write_build
from support.small_builds import NARROW

from rtlstm import Accelerator, Manifest, Parameters
from rtlstm.fpga.families.base import fpga_family
from rtlstm.gen.quantise.quantiser import quantise
from rtlstm.sim.golden import Golden
from rtlstm.spec.inventory import memories

pytestmark = pytest.mark.rtl


_STREAMS = 12
"""So many that the memory has more words than ECP5 keeps in distributed RAM."""


@pytest.mark.parametrize(
    ("family", "gate_units"), quick([("ecp5", 1), ("ecp5", 2), ("generic", 1)], ("ecp5", 2))
)
def test_words_are_read_while_they_fill(family: str, gate_units: int, tmp_path: Path) -> None:
    """In block RAM, which ECP5's model leaves undefined at such an edge; Icarus shows it as X."""
    quantised = quantise(stacked(3, 24, dense=((20, "relu"), (5, "sigmoid"))), NARROW)
    parameters = Parameters.for_family(
        family, lanes=8, macs=8, gate_units=gate_units, beat_out=gate_units, streams=_STREAMS
    )
    manifest = Manifest.of("fills", quantised, parameters)
    if family == "ecp5":
        assert fpga_family(family).estimates.map_memory(memories(manifest)["vectors"]).block_rams
    write_build(tmp_path, quantised, manifest)
    x = np.random.default_rng(1).integers(-100, 100, size=(4, 1, quantised.inputs))
    with Accelerator.open(tmp_path, backend="icarus", verify=False) as accelerator:
        found, _ = accelerator.run(quantised.numerics.input.to_floats(x))
    np.testing.assert_array_equal(found, manifest.layers[-1].output.to_floats(Golden(quantised).run(x).y))
