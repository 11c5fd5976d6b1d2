"""Measures the errors of estimates against synthesis, and fits the factors of the estimates.

``rtlstm bench --estimates`` synthesises builds of several networks, formats and families, and compares
multipliers, block RAM, LUTs and flip-flops with :mod:`rtlstm.fpga.estimate`.
"""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from rtlstm.bench.shapes import SHAPES
from rtlstm.fpga.devices import find_device
from rtlstm.fpga.estimate import estimate, parts_of
from rtlstm.fpga.families.base import estimated_families, fpga_family
from rtlstm.fpga.implementation import error_percent
from rtlstm.fpga.synthesis import synthesise
from rtlstm.fpga.tools import find_yosys
from rtlstm.gen.builds.hardware import SPATIAL, ArrayRequest, in_space
from rtlstm.gen.quantise.quantiser import QuantizationSettings, quantise
from rtlstm.hdl.emit.verilog import core_to_verilog
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.parameters import Parameters
from rtlstm.spec.progress import Progress, counted
from rtlstm.spec.record import Record, filled


class EstimateCase(Record):
    """A build to be synthesised: a benchmark network, formats and sizes."""

    name: str
    shape: str
    device: str
    settings: QuantizationSettings
    sizes: Mapping[str, Any]
    cell: Literal["lstm", "gru"] = "lstm"
    """What the recurrent layers are."""
    lstm_only: bool = False
    """Whether to leave out the dense layers, so that h is the output."""
    units: int | None = None
    """Units in the place of the network's."""
    loop_registers: int | None = None
    """Registers in the loop of a spatial build, which ``sizes`` are options of; None for an array."""
    quick: bool = False
    """Whether ``--quick`` takes this small case."""

    def manifest(self) -> Manifest:
        """Quantise the network's random weights and return the core's manifest; same case, same manifest."""
        family = find_device(self.device).device.family
        shape = SHAPES[self.shape].replace(cell=self.cell)
        shape = shape.replace(dense=()) if self.lstm_only else shape
        shape = shape.replace(units=(self.units,)) if self.units else shape
        if self.loop_registers is not None:
            quantised = quantise(shape.network(), self.settings, hardware=SPATIAL)
            asked = {"array": "spatial", "family": family, "loop_registers": self.loop_registers}
            return in_space(self.name, quantised, ArrayRequest(**asked, **self.sizes))
        quantised = quantise(shape.network(), self.settings)
        parameters = Parameters.for_family(family, **self.sizes)
        return Manifest.of(self.name, quantised, parameters)


class EstimateResult(Record):
    """Estimated and synthesised utilisation of a case; errors in percent of the synthesised figures."""

    name: str
    device: str
    lanes: int
    macs: int
    spatial: bool = False
    """Whether it is a spatial build, whose lanes and multipliers in them mean nothing."""
    luts: int
    estimated_luts: int
    lut_error: float
    ffs: int
    estimated_ffs: int
    ff_error: float
    multipliers: float
    estimated_multipliers: int | float
    block_rams: float
    estimated_block_rams: int
    parts: Mapping[str, float]
    """Sizes of the core's parts, which the factors of LUTs multiply."""
    registers: Mapping[str, float]
    """The same for flip-flops."""

    @property
    def exact(self) -> bool:
        """Whether multipliers and block RAM are what was estimated."""
        return (self.multipliers, self.block_rams) == (self.estimated_multipliers, self.estimated_block_rams)


def _case(name: str, device: str, shape: str, bits: tuple[int, ...], **more: Any) -> EstimateCase:
    """Return a case; ``bits`` are those of weights, data and, if there are four, gates and cell states.

    ``more`` are other fields, and sizes.
    """
    fields = {key: more.pop(key) for key in [*more] if key in EstimateCase.model_fields}
    names = ("weight_bits", "data_bits", "gate_bits", "cell_bits")
    formats = dict(zip(names, bits, strict=False))
    # Outputs have the bits of the data, as when these were measured.
    tables = more.get("tables", "interpolated")
    settings = QuantizationSettings(**formats, output_bits=formats["data_bits"], tables=tables)
    return EstimateCase(name=name, device=device, shape=shape, settings=settings, sizes=more, **fields)


_ECP5, _UP5K, _HX8K, _GW2A, _LIFCL = "lfe5u-85f", "up5k", "hx8k", "gw2a-18", "lifcl-40"
_XC7, _US = "xc7a200t", "xcku5p"
_FOR_BOARD: Mapping[str, Any] = {"lanes": 4, "macs": 1, "tables": "direct", "weight_memory": "large"}


def _portable_cases(name: str, device: str) -> Iterator[EstimateCase]:
    """Yield the cases of a device whose hard blocks synthesis infers."""
    yield _case(f"{name}_small", device, "traffic20", (8, 8), lanes=4, macs=2, quick=True)
    yield _case(f"{name}_direct", device, "traffic20", (8, 8), lanes=8, macs=4, tables="direct")
    yield _case(f"{name}_16_bits", device, "traffic20", (16, 16), lanes=4, macs=2)
    yield _case(f"{name}_macs", device, "toptag", (8, 8), lanes=8, macs=4)
    yield _case(f"{name}_units", device, "toptag", (8, 8), lanes=16, macs=2, gate_units=2, beat_out=2)
    yield _case(f"{name}_narrow", device, "toptag", (6, 6, 6, 10), lanes=8, macs=2, tables="direct")
    yield _case(f"{name}_12_bits", device, "mnist32", (12, 12), lanes=8, macs=2)
    yield _case(f"{name}_4_bits", device, "stac_a", (4, 8), lanes=16, macs=2)
    yield _case(f"{name}_lanes", device, "stac_a", (8, 8), lanes=40, macs=1)
    yield _case(f"{name}_long_rows", device, "stac_a", (8, 8), lanes=4, macs=8)
    # Weights in LUTRAM.
    short: Mapping[str, Any] = {"shape": "toptag", "lstm_only": True}
    yield _case(
        f"{name}_short_rows", device, bits=(8, 8), lanes=16, macs=2, gate_units=2, beat_out=2, **short
    )
    yield _case(f"{name}_3_bits", device, bits=(3, 8), lanes=8, macs=1, **short)
    yield _case(f"{name}_lutram", device, bits=(4, 8), lanes=16, macs=1, **short)
    yield _case(f"{name}_9_bits", device, bits=(9, 9), lanes=16, macs=1, **short)
    yield _case(f"{name}_rom", device, "toptag", (8, 8), lanes=8, macs=2, table_memory="rom")
    yield _case(f"{name}_gru", device, "toptag", (8, 8), cell="gru", lanes=8, macs=2)
    yield _case(
        f"{name}_gru_direct", device, "traffic20", (8, 8), cell="gru", lanes=4, macs=2, tables="direct"
    )


def _spatial_cases(name: str, device: str) -> Iterator[EstimateCase]:
    """Yield builds of 4 units in space: one register and three, tables in LUTs and in block RAM, streams."""
    given: Mapping[str, Any] = {"shape": "traffic20", "bits": (4, 8, 8, 12), "units": 4, "tables": "direct"}
    yield _case(f"{name}_space", device, loop_registers=1, quick=True, **given)
    yield _case(f"{name}_space_tables", device, loop_registers=3, **given)
    yield _case(f"{name}_space_streams", device, loop_registers=9, streams=9, **given)
    yield _case(f"{name}_space_gru", device, cell="gru", loop_registers=3, **given)


_VENDOR_KINDS = ("small", "direct", "16_bits", "macs", "units", "narrow", "12_bits", "rom", "gru")


def _vendor_cases(name: str, device: str, *more: str) -> Iterator[EstimateCase]:
    """Yield the cases of a device of AMD, whose DSP blocks are instances; ``more`` kinds as for others."""
    kinds = {f"{name}_{kind}" for kind in (*_VENDOR_KINDS, *more)}
    yield from (case for case in _portable_cases(name, device) if case.name in kinds)
    yield _case(f"{name}_tables", device, "toptag", (8, 8), lanes=8, macs=8, lut_macs=8)


CASES = (
    _case("ecp5_small", _ECP5, "traffic20", (8, 8), lanes=4, macs=2, quick=True),
    _case("ecp5_direct", _ECP5, "traffic20", (8, 8), lanes=8, macs=4, tables="direct", quick=True),
    _case("ecp5_tables", _ECP5, "toptag", (8, 8), lanes=8, macs=8, lut_macs=8, quick=True),
    _case("ecp5_rom", _ECP5, "toptag", (8, 8), lanes=8, macs=4, table_memory="rom"),
    _case(
        "ecp5_direct_rom",
        _ECP5,
        "traffic20",
        (8, 8, 9, 16),
        lanes=16,
        macs=4,
        gate_units=2,
        beat_out=2,
        tables="direct",
        table_memory="rom",
    ),
    _case(
        "ecp5_wide_loop",
        _ECP5,
        "toptag",
        (4, 8, 9, 16),
        lanes=24,
        macs=6,
        gate_units=6,
        beat_in=6,
        beat_out=6,
        lut_macs=2,
        tables="direct",
        pipeline_name="wide_loop",
        factor_bits=4,
    ),
    _case("ecp5_streams", _ECP5, "mnist32", (12, 12), lanes=12, macs=6, lut_macs=2, streams=4),
    _case("ecp5_16_bits", _ECP5, "stac_a", (16, 16), lanes=8, macs=4),
    _case("ecp5_lanes", _ECP5, "stac_a", (8, 8), lanes=36, macs=4),
    _case("ecp5_units", _ECP5, "stac_a", (8, 8), lanes=16, macs=8, gate_units=2, beat_out=2),
    _case("ecp5_macs", _ECP5, "stac_a", (8, 8), lanes=4, macs=32),
    _case("ecp5_4_bits", _ECP5, "stac_a", (4, 8), lanes=24, macs=12, lut_macs=6),
    _case("ecp5_narrow", _ECP5, "vollo_ex3", (8, 8), lanes=64, macs=2),
    _case("ecp5_gru", _ECP5, "toptag", (8, 8), cell="gru", lanes=8, macs=4),
    _case("ecp5_gru_direct", _ECP5, "traffic20", (8, 8), cell="gru", lanes=8, macs=4, tables="direct"),
    _case("ecp5_softmax", _ECP5, "mnist32", (16, 16), lanes=4, macs=2, decide="softmax"),
    _case("ecp5_top3", _ECP5, "mnist32", (8, 8), lanes=8, macs=2, gate_units=2, beat_out=2, decide="top3"),
    *_spatial_cases("ecp5", _ECP5),
    *_spatial_cases("lifcl", _LIFCL),
    *_spatial_cases("gw2a", _GW2A),
    *_spatial_cases("up5k", _UP5K),
    _case("up5k_small", _UP5K, "traffic20", (8, 8), lanes=4, macs=1, quick=True),
    _case("up5k_16_bits", _UP5K, "traffic20", (16, 16), lanes=4, macs=1),
    _case("up5k_tables", _UP5K, "toptag", (8, 8), lanes=4, macs=4, lut_macs=4, quick=True),
    _case("up5k_slopes", _UP5K, "traffic20", (12, 12), lanes=4, macs=2, slope_multipliers="lut"),
    _case("up5k_rom", _UP5K, "traffic20", (8, 8), lanes=4, macs=2, table_memory="rom"),
    _case("up5k_board", _UP5K, "toptag", (8, 8, 8, 12), **_FOR_BOARD),
    _case("up5k_outputs", _UP5K, "toptag", (8, 8, 8, 12), lstm_only=True, **_FOR_BOARD),
    _case("up5k_narrow", _UP5K, "toptag", (6, 6, 6, 10), lstm_only=True, lanes=4, macs=1, tables="direct"),
    _case("up5k_gru", _UP5K, "traffic20", (8, 8), cell="gru", lanes=4, macs=1),
    _case("hx8k_gru", _HX8K, "traffic20", (6, 6, 8, 12), cell="gru", lanes=4, macs=1),
    _case("hx8k_small", _HX8K, "traffic20", (8, 8), lanes=4, macs=1, quick=True),
    _case("hx8k_lanes", _HX8K, "mnist32", (8, 8), lanes=8, macs=2),
    *_portable_cases("gw2a", _GW2A),
    *_portable_cases("lifcl", _LIFCL),
    *_vendor_cases("xc7", _XC7, "lanes"),
    _case("xc7_slopes", _XC7, "traffic20", (8, 8), lanes=4, macs=2, slope_multipliers="lut"),
    *_vendor_cases("us", _US, "4_bits"),
    _case(
        "us_large",
        _US,
        "stac_a",
        (8, 8),
        lanes=32,
        macs=8,
        gate_units=4,
        beat_out=4,
        weight_memory="large",
    ),
    _case("us_wide_array", _US, "vollo_ex3", (8, 8), lanes=16, macs=8),
    _case("lifcl_large", "lifcl-17", "traffic20", (8, 8), lanes=4, macs=2, weight_memory="large"),
)
"""Fourteen quick cases, and others that vary everything that the utilisation depends on."""


def measure_case(case: EstimateCase, folder: Path, progress: Progress | None = None) -> EstimateResult:
    """Synthesise a case, with logs in ``folder``, and compare it with its estimate.

    Raises ToolError if Yosys is missing or fails.
    """
    chosen = find_device(case.device)
    family = fpga_family(chosen.device.family).need_estimates()
    manifest = case.manifest()
    found = estimate(manifest, chosen)
    assert found is not None  # all cases are of families with estimates
    parts = parts_of(manifest, family, chosen.device.multipliers > 0)
    core = synthesise(
        core_to_verilog(manifest), manifest.name, chosen.device, find_yosys(), folder, progress=progress
    ).core
    return filled(
        EstimateResult,
        manifest.parameters,
        core,
        name=case.name,
        device=chosen.device.name,
        spatial=manifest.spatial is not None,
        estimated_luts=found.luts,
        lut_error=error_percent(found.luts, core.luts),
        estimated_multipliers=found.multipliers,
        estimated_block_rams=found.block_rams,
        estimated_ffs=found.ffs,
        ff_error=error_percent(found.ffs, core.ffs),
        parts=parts.luts,
        registers=parts.ffs,
    )


def measure_estimates(quick: bool = False, progress: Progress | None = None) -> Iterator[EstimateResult]:
    """Measure all cases, or the quick ones, one after the other."""
    cases = [case for case in CASES if case.quick or not quick]
    with tempfile.TemporaryDirectory() as folder:
        for case in counted(progress, "cases", cases):
            yield measure_case(case, Path(folder) / case.name)


_HOLD = 0.1
"""Weight of the present factors in a fit: it decides where the builds do not."""


def fit_factors(results: Sequence[EstimateResult]) -> dict[str, dict[str, dict[str, float]]]:
    """Fit the factors of LUTs and flip-flops to results, per family, and for its spatial builds.

    The fit minimises the squares of the relative errors. Factors of exactly 1 stay. With few results, the
    factors stay near the present ones.
    """
    fitted = {}
    for name, now in factors_in_use().items():
        rows = [row for row in results if _factors_of(row) == name]
        if rows:
            fitted[name] = {
                "luts": _fit(now["luts"], [row.parts for row in rows], [row.luts for row in rows]),
                "ffs": _fit(now["ffs"], [row.registers for row in rows], [row.ffs for row in rows]),
            }
    return fitted


_IN_SPACE = ", in space"


def _factors_of(row: EstimateResult) -> str:
    return f"{find_device(row.device).device.family}{_IN_SPACE * row.spatial}"


def factors_in_use() -> dict[str, dict[str, dict[str, float]]]:
    """Return the factors of LUTs and flip-flops of each family, and of its spatial builds if it has some."""
    found = {}
    for family in estimated_families():
        now = fpga_family(family).need_estimates()
        found[family] = {"luts": dict(now.luts), "ffs": dict(now.ffs)}
        if now.spatial is not None:
            found[f"{family}{_IN_SPACE}"] = {"luts": dict(now.spatial.luts), "ffs": dict(now.spatial.ffs)}
    return found


def _fit(
    now: Mapping[str, float], parts: Sequence[Mapping[str, float]], taken: Sequence[int]
) -> dict[str, float]:
    fixed = np.array([sum(size for name, size in row.items() if name not in now) for row in parts])
    names, total = list(now), np.array(taken, dtype=np.float64)
    while True:
        sizes = np.array([[row[name] * now[name] for name in names] for row in parts])
        hold = _HOLD * np.eye(len(names))
        left = np.vstack([sizes / total[:, None], hold])
        right = np.concatenate([(total - fixed) / total, hold.sum(axis=1)])
        scale = np.linalg.lstsq(left, right, rcond=None)[0]
        if scale.min() >= 0:
            found = dict(zip(names, scale, strict=True))
            return {name: float(f"{now[name] * found.get(name, 0.0):.3g}") for name in now}
        # No part has a negative size.
        names.pop(int(scale.argmin()))
