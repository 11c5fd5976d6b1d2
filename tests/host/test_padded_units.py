"""Units that do not fill the gate units: the host reads whole rows of cell states, past the last one too."""

from pathlib import Path

import numpy as np
import pytest
from support.cell_networks import CELL_NETWORKS

from rtlstm import Accelerator, Lstm, Network, Parameters, QuantizationSettings
from rtlstm.gen.builds.generate import generate_build

pytestmark = pytest.mark.rtl

RNG = np.random.default_rng(0)
PLAIN = Network(
    layers=(Lstm(w_ih=RNG.normal(size=(20, 3)), w_hh=RNG.normal(size=(20, 5)), bias=RNG.normal(size=20)),)
)


@pytest.mark.parametrize(
    "network",
    [pytest.param(PLAIN, id="plain"), pytest.param(CELL_NETWORKS["gru"], id="gru", marks=pytest.mark.slow)],
)
def test_states_are_known_where_there_is_no_unit(network: Network, tmp_path: Path) -> None:
    settings = QuantizationSettings(weight_bits=6, data_bits=6, gate_bits=6, cell_bits=8)
    parameters = Parameters(lanes=12, macs=3, gate_units=3, beat_out=3)
    generate_build(network, tmp_path / "build", name="padded", settings=settings, parameters=parameters)
    x = RNG.uniform(-2, 2, (4, network.inputs))
    results = []
    for backend in ("golden", "icarus"):
        with Accelerator.open(tmp_path / "build", backend=backend) as accelerator:
            y, (h, c) = accelerator.run(x)
            results.append([y, *h, *c])
    for golden, rtl in zip(*results, strict=True):
        np.testing.assert_array_equal(rtl, golden)
