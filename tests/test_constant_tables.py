"""Tables that are constants made of LUTs: bits and cycles, what is written, netlist, estimate, choice."""

from pathlib import Path

import numpy as np
import pytest
from support.cell_networks import CELL_NETWORKS
from support.estimate_checks import check_synthesis
from support.quick import quick
from support.random_builds import Case, make_case
from support.small_builds import network
from support.step_checks import check_device

from rtlstm import Accelerator, Manifest, Network
from rtlstm.bench.shapes import SHAPES
from rtlstm.fpga.devices import find_device
from rtlstm.fpga.fit import FitRequest, fit_device
from rtlstm.gen.quantise.quantiser import QuantizationSettings, quantise
from rtlstm.hdl.emit.verilog import core_to_verilog
from rtlstm.spec.inventory import activations, memories
from rtlstm.spec.packing import pack
from rtlstm.spec.parameters import Parameters, TableKind, TableMemory
from rtlstm.spec.registers import Region

LSTM, GRU = network(), CELL_NETWORKS["gru"]


def make(
    source: Network,
    tables: TableKind,
    family: str = "ecp5",
    table_memory: TableMemory = "rom",
    steps: int = 6,
) -> Case:
    """A build with two gate units and narrow numbers."""
    settings = QuantizationSettings(weight_bits=6, data_bits=8, gate_bits=8, cell_bits=12, tables=tables)
    parameters = Parameters.for_family(
        family, lanes=8, macs=2, streams=2, gate_units=2, beat_out=2, tables=tables, table_memory=table_memory
    )
    return make_case(1, quantise(source, settings), parameters, steps)


@pytest.mark.rtl
@pytest.mark.parametrize(
    ("source", "tables", "family", "backend"),
    quick(
        [
            ("lstm", "interpolated", "ecp5", "icarus"),
            ("lstm", "direct", "ice40", "verilator"),
            ("gru", "interpolated", "generic", "verilator"),
            ("gru", "direct", "ecp5", "icarus"),
            ("lstm", "direct", "ecp5", "amaranth"),
            ("gru", "interpolated", "generic", "amaranth"),
        ],
        ("lstm", "interpolated", "ecp5", "icarus"),
    ),
)
def test_bits_and_cycles(source: str, tables: TableKind, family: str, backend: str, tmp_path: Path) -> None:
    """With one register and with two; Verilator's weights and tables are read back."""
    case = make(LSTM if source == "lstm" else GRU, tables, family)
    assert not any("tables" in name for name in memories(case.manifest))
    check_device(case, tmp_path, backend, verify=backend == "verilator")


@pytest.mark.parametrize("tables", ["interpolated", "direct"])
def test_cycles_and_image_are_those_of_memories(tables: TableKind) -> None:
    constant, memory = (make(LSTM, tables, table_memory=kind) for kind in ("rom", "ram"))
    assert constant.manifest.cycles == memory.manifest.cycles
    images = (pack(case.network, case.manifest) for case in (constant, memory))
    regions = [image.regions for image in images]
    assert regions[0].keys() == regions[1].keys()
    for region, words in regions[0].items():
        np.testing.assert_array_equal(words, regions[1][region])


@pytest.mark.rtl
@pytest.mark.parametrize("backend", ["golden", "icarus"])
def test_what_is_written_to_them_changes_nothing(backend: str, tmp_path: Path) -> None:
    case = make(LSTM, "interpolated")
    case.write(tmp_path)
    image = pack(case.network, case.manifest).regions
    with Accelerator.open(tmp_path, backend=backend, verify=False) as accelerator:
        device = accelerator.device
        for region in (Region.SIGMOID, Region.TANH, Region.CELL_TANH):
            words = image[region][0].reshape(-1).astype(np.int64)
            device.write_rows(region, 0, 0, np.zeros_like(words))
            np.testing.assert_array_equal(device.read_rows(region, 0, 0, words.size), words)
        np.testing.assert_array_equal(
            device.read_rows(Region.WEIGHTS, 0, 0, 1), image[Region.WEIGHTS][0, 0, :1]
        )


@pytest.mark.slow
@pytest.mark.tools
@pytest.mark.parametrize(
    ("tables", "family", "device"),
    [
        ("interpolated", "ecp5", "lfe5u-25f"),
        ("direct", "ecp5", "lfe5u-25f"),
        ("interpolated", "ice40", "up5k"),
    ],
)
def test_estimate_against_synthesis(tables: TableKind, family: str, device: str, tmp_path: Path) -> None:
    check_synthesis(make(LSTM, tables, family).manifest, device, tmp_path)


def test_each_table_is_one_module() -> None:
    """All gates are instances of it, in the one module that all units are."""
    made = make(LSTM, "interpolated").manifest
    text = core_to_verilog(made)
    for activation in activations(made):
        name = f"random1_{activation.module}"
        assert text.count(f"\nmodule {name} (") == 1 and f" words of {activation.memory.name}." in text
        instances = text.count(f"  {name} ") * made.parameters.gate_units
        assert instances == activation.memory.count
    assert "--table-memory rom" in text


def test_manifest(tmp_path: Path) -> None:
    constant, memory = (make(LSTM, "direct", table_memory=kind).manifest for kind in ("rom", "ram"))
    assert '"table_memory": "rom"' in constant.to_json() and '"table_memory": "ram"' in memory.to_json()
    (tmp_path / "manifest.json").write_text(constant.to_json())
    assert Manifest.load(tmp_path) == constant
    assert constant.device_hash != memory.device_hash


@pytest.mark.slow
def test_fit_takes_them_where_block_ram_lacks() -> None:
    chosen = find_device("lfe5u-25f-8")
    quantised = quantise(SHAPES["stac_a"].network(), QuantizationSettings(weight_bits=4, data_bits=8))
    times = {}
    for kind in (None, "ram", "rom"):
        request = FitRequest(chosen=chosen, table_memory=kind)
        parameters, found = fit_device("stac_a", quantised.shapes, quantised.numerics, request)
        assert parameters.table_memory == kind or kind is None
        times[kind] = found.estimate.step_latency_us, parameters.table_memory
    assert times[None] == times["rom"] < times["ram"]
    # Where both fit, memories take fewer cells.
    quantised = quantise(SHAPES["toptag"].network(), QuantizationSettings(weight_bits=8, data_bits=8))
    parameters, _ = fit_device("toptag", quantised.shapes, quantised.numerics, FitRequest(chosen=chosen))
    assert parameters.table_memory == "ram"
