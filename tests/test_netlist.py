"""Netlists of whole builds, simulated with models of the hard cells, equal the golden model on every bit."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from support.netlist import flat_netlist, netlist_build
from support.quick import quick
from support.random_builds import Case, make_case, random_network
from support.small_builds import normal_lstm

from rtlstm import Accelerator, ConfigurationError, Network, Parameters
from rtlstm.gen.quantise.quantiser import QuantizationSettings, quantise

pytestmark = [pytest.mark.rtl, pytest.mark.tools]


@dataclass(frozen=True)
class Size:
    """What a random network is built as."""

    seed: int
    weight_bits: int
    data_bits: int
    gate_bits: int
    cell_bits: int
    lanes: int
    macs: int
    streams: int = 1
    lut_macs: int = 0


FAMILIES = ("ecp5", "ice40", "xilinx", "ultrascale")
SIZES = (
    Size(301, weight_bits=8, data_bits=8, gate_bits=10, cell_bits=16, lanes=4, macs=4, streams=3),
    Size(302, weight_bits=4, data_bits=9, gate_bits=9, cell_bits=12, lanes=8, macs=2, streams=2, lut_macs=1),
    Size(303, weight_bits=16, data_bits=16, gate_bits=16, cell_bits=18, lanes=4, macs=2),
)


def tiny() -> tuple[Network, QuantizationSettings]:
    """Two layers with different formats of c."""
    rng = np.random.default_rng(5)
    layers = normal_lstm(rng, 2, 2), normal_lstm(rng, 2, 2)
    return Network(layers=layers), QuantizationSettings(
        weight_bits=4, data_bits=6, gate_bits=8, cell_bits=10, cell_range="4,1"
    )


def check(case: Case, backend: str, folder: Path, verify: bool = True) -> None:
    """Run every step on the netlist; compare outputs and final states with the golden model.

    ``verify``: the weights are read back.
    """
    netlist = netlist_build(case.write(folder / "rtl"), case.manifest, folder / "netlist")
    text = (netlist / "rtl" / f"{case.manifest.name}.v").read_text()
    # The netlist has hard cells, and nothing of the RTL's memories and multipliers.
    parameters = case.manifest.parameters
    cells = {"ecp5": "MULT18X18D", "ice40": "SB_MAC16", "xilinx": "DSP48E1", "ultrascale": "DSP48E2"}
    assert cells[parameters.family] in text and f"{case.manifest.name}_multiplier" not in text
    large = {"ice40": "SB_SPRAM256KA", "ultrascale": "URAM288_BASE"}.get(parameters.family, "none")
    assert (large in text) == (parameters.weight_memory == "large")
    y, results = case.golden()
    with Accelerator.open(netlist, backend, verify) as accelerator:
        device = accelerator.device
        for stream in range(parameters.streams):
            h, c = ([part[stream] for part in parts] for parts in case.state)
            device.write_state(stream, h, c)
        np.testing.assert_array_equal(device.exchange(case.streams, case.x), y)
        for stream, result in enumerate(results):
            h, c = device.read_state(stream)
            for got, want in zip((*h, *c), (*result.h, *result.c), strict=True):
                np.testing.assert_array_equal(got, want[0])


@pytest.mark.parametrize("family", quick(FAMILIES, "ice40"))
def test_tiny_netlist_equals_golden(family: str, tmp_path: Path) -> None:
    network, settings = tiny()
    memory = "large" if family in ("ice40", "ultrascale") else "block"
    parameters = Parameters.for_family(family, lanes=4, macs=2, weight_memory=memory)
    check(make_case(1, quantise(network, settings), parameters, steps=4), "icarus", tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("family", ["ecp5", "ice40", "xilinx"])
def test_netlist_with_constant_tables_equals_golden(family: str, tmp_path: Path) -> None:
    network, settings = tiny()
    parameters = Parameters.for_family(family, lanes=4, macs=2, table_memory="rom")
    check(
        make_case(1, quantise(network, settings), parameters, steps=4),
        "icarus",
        tmp_path,
        verify=family != "ecp5",
    )


@pytest.mark.slow
@pytest.mark.parametrize("size", SIZES, ids=lambda size: str(size.seed))
@pytest.mark.parametrize("family", FAMILIES)
def test_netlist_equals_golden(family: str, size: Size, tmp_path: Path) -> None:
    network = random_network(np.random.default_rng(size.seed), (2, 3, 5, 7))
    settings = QuantizationSettings(
        weight_bits=size.weight_bits,
        data_bits=size.data_bits,
        gate_bits=size.gate_bits,
        cell_bits=size.cell_bits,
    )
    parameters = Parameters.for_family(
        family, lanes=size.lanes, macs=size.macs, streams=size.streams, lut_macs=size.lut_macs
    )
    case = make_case(size.seed, quantise(network, settings), parameters, steps=20)
    check(case, "icarus", tmp_path)
    check(case, "verilator", tmp_path)


def test_family_without_models_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="ecp5, ice40, ultrascale, xilinx, not for gowin"):
        flat_netlist("module top; endmodule", "top", "gowin")
