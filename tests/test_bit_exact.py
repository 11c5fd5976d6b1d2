"""Random configurations: golden model, Icarus and Verilator agree on every bit and every cycle."""

from itertools import product
from pathlib import Path

import numpy as np
import pytest
from support.paths import TESTS
from support.quick import quick
from support.random_builds import TINY, make_case, random_case
from support.small_builds import NARROW
from support.small_builds import network as small_network
from support.step_checks import check_device

from rtlstm.gen.quantise.quantiser import quantise
from rtlstm.sim.cocotb_run import Design, Simulator, run_tests
from rtlstm.sim.sources import simulation_sources
from rtlstm.spec.network import Lstm, Network
from rtlstm.spec.parameters import Parameters, TableKind
from rtlstm.spec.program.schedule import offer_cycles

pytestmark = pytest.mark.rtl

ALL = range(1, 65)
# Without the cases of large arrays or tables, which take Icarus minutes; the four longest are slow.
ICARUS = (3, 16, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (2, 9, 11, 14)))
_LONG = (201, 203, 204, 205, 206, 208, 211)
TINY_SEEDS = [
    pytest.param(seed, marks=pytest.mark.slow) if seed in _LONG else seed for seed in range(201, 213)
]
VERILATOR = quick(range(1, 6), 2, 5)
COCOTB = quick((118, 101, 102), 118)
SMALL = (1, 2, 3, 5, 7, 11, 13)


@pytest.mark.parametrize("seed", ICARUS)
def test_icarus_equals_golden(seed: int, tmp_path: Path) -> None:
    check_device(random_case(seed, sizes=SMALL), tmp_path, "icarus")


@pytest.mark.parametrize("seed", TINY_SEEDS)
def test_tiny_layers_equal_golden(seed: int, tmp_path: Path) -> None:
    """Single row groups, where drains, partial sums and RAW hazards are closest to each other."""
    check_device(random_case(seed, sizes=TINY, steps=8), tmp_path, "icarus")


@pytest.mark.parametrize(
    ("inputs", "units", "lanes", "macs"),
    quick([(1, 2, 8, 4), (2, 3, 12, 4), (2, 4, 16, 4), (3, 3, 16, 4)], (1, 2, 8, 4), (3, 3, 16, 4)),
)
def test_partial_sums_of_short_steps(inputs: int, units: int, lanes: int, macs: int, tmp_path: Path) -> None:
    """Shapes whose next step would overtake its partial sums without idle cycles."""
    rng = np.random.default_rng(5)
    lstm = Lstm(
        w_ih=rng.normal(size=(4 * units, inputs)),
        w_hh=rng.normal(size=(4 * units, units)),
        bias=rng.normal(size=4 * units),
    )
    network = quantise(Network(layers=(lstm,)), NARROW)
    case = make_case(1, network, Parameters(lanes=lanes, macs=macs), steps=32)
    check_device(case, tmp_path, "icarus")


@pytest.mark.parametrize("tables", ["interpolated", "direct"])
def test_two_registers_for_products(tables: TableKind, tmp_path: Path) -> None:
    """The pipeline of UltraScale+ registers the operands of all products of a gate unit."""
    parameters = Parameters.for_family("ultrascale", lanes=4, macs=2, streams=2, tables=tables)
    assert (parameters.pipeline.product, parameters.pipeline.slope) == (2, 2)
    network = quantise(small_network(), NARROW.replace(tables=tables))
    check_device(make_case(1, network, parameters, steps=8), tmp_path, "icarus")


@pytest.mark.parametrize("seed", VERILATOR)
def test_verilator_equals_golden(seed: int, tmp_path: Path) -> None:
    check_device(random_case(seed, steps=20), tmp_path, "verilator")


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["icarus", "verilator"])
@pytest.mark.parametrize("seed", ALL)
def test_both_simulators_equal_golden(seed: int, backend: str, tmp_path: Path) -> None:
    check_device(random_case(seed), tmp_path, backend)


@pytest.mark.parametrize(
    ("stalled", "simulator"),
    quick(product((False, True), ("icarus", "verilator")), (True, "icarus"), (False, "icarus")),
)
@pytest.mark.parametrize("seed", COCOTB)
def test_cocotb(seed: int, stalled: bool, simulator: Simulator, tmp_path: Path) -> None:
    case = random_case(seed, sizes=SMALL)
    verilog = case.write(tmp_path) / case.manifest.rtl
    y, results = case.golden()
    program, parameters = case.manifest.program, case.manifest.parameters
    offered = offer_cycles(program, parameters, len(case.x), streams=case.streams.tolist())
    last = [
        [np.concatenate(parts) for parts in zip(*each, strict=True)]
        for each in ((result.h for result in results), (result.c for result in results))
    ]
    states = dict(zip(("h", "c", "last_h", "last_c"), (*case.state, *last), strict=True))
    np.savez(
        tmp_path / "case.npz",
        seed=seed,
        streams=case.streams,
        x=case.x,
        y=y,
        offered=offered,
        stalls=case.stalls if stalled else (0.0, 0.0),
        layers=len(case.state[0]),
        **{f"{name}{layer}": part for name, parts in states.items() for layer, part in enumerate(parts)},
    )
    # The family's models in place of the cells, as netlists have them.
    design = Design(case.manifest.name, tuple(simulation_sources(verilog, parameters.family)))
    run = run_tests(
        TESTS / "support" / "testbenches" / "case_testbench.py",
        tmp_path,
        design,
        simulator,
        tmp_path / "run",
        variables={"RTLSTM_CASE": str(tmp_path / "case.npz")},
    )
    assert [each.failure for each in run.outcomes] == [""]
