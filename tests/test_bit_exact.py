"""Random configurations: golden model, Icarus and Verilator agree on every bit and every cycle."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from support.loadable_builds import Build, build_for, check, make_device
from support.paths import TESTS
from support.quick import quick
from support.random_builds import TINY, make_case, random_case, random_network
from support.small_builds import NARROW, normal_lstm
from support.small_builds import network as small_network
from support.step_checks import check_device

from rtlstm.gen.quantise.quantiser import quantise
from rtlstm.hdl.emit.verilog import core_to_verilog
from rtlstm.host import Accelerator
from rtlstm.sim.cocotb_run import Design, run_tests
from rtlstm.sim.simulated_ports import Simulator, simulation_sources
from rtlstm.spec.network import Network
from rtlstm.spec.parameters import Parameters, TableKind
from rtlstm.spec.program.schedule import offer_cycles

pytestmark = pytest.mark.rtl

ALL = range(1, 65)
# Without the cases of large arrays or tables, which take Icarus minutes.
ICARUS = quick((3, 16, 2, 9, 11, 14), 3)
TINY_SEEDS = quick(range(201, 213), 210)
VERILATOR = quick(range(1, 6), 5)
COCOTB = quick((118, 101, 102), 118)
LOADED = quick(range(1, 101), *range(1, 21))
"""Networks that one loadable core takes."""
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
    quick([(1, 2, 8, 4), (2, 3, 12, 4), (2, 4, 16, 4), (3, 3, 16, 4)], (1, 2, 8, 4)),
)
def test_partial_sums_of_short_steps(inputs: int, units: int, lanes: int, macs: int, tmp_path: Path) -> None:
    """Shapes whose next step would overtake its partial sums without idle cycles."""
    network = quantise(Network(layers=(normal_lstm(np.random.default_rng(5), inputs, units),)), NARROW)
    case = make_case(1, network, Parameters(lanes=lanes, macs=macs), steps=16)
    check_device(case, tmp_path, "icarus")


@pytest.mark.slow
@pytest.mark.parametrize("tables", ["interpolated", "direct"])
def test_two_registers_for_products(tables: TableKind, tmp_path: Path) -> None:
    """The pipeline of UltraScale+ registers the operands of all products of a gate unit."""
    parameters = Parameters.for_family("ultrascale", lanes=4, macs=2, streams=2, tables=tables)
    assert (parameters.pipeline.product, parameters.pipeline.slope) == (2, 2)
    network = quantise(small_network(), NARROW.replace(tables=tables))
    check_device(make_case(1, network, parameters, steps=8), tmp_path, "icarus")


@pytest.fixture(scope="module")
def loadable(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Build, Accelerator]]:
    """A core that is compiled once, and takes every drawn network."""
    sizes = {"lanes": 8, "macs": 4, "gate_units": 2, "beat_in": 2, "beat_out": 2, "streams": 3}
    parameters = Parameters.for_family("ecp5", factor_bits=6, lut_macs=1, **sizes)
    device = make_device(
        small_network(), parameters, headroom=14, weight_rows=600, bias_rows=200, shift_rows=300
    )
    folder = device.save(tmp_path_factory.mktemp("loadable") / "device", core_to_verilog(device.manifest))
    with Accelerator.open(folder, "verilator") as accelerator:
        yield device, accelerator


@pytest.mark.parametrize("seed", LOADED)
def test_drawn_networks_on_one_core(seed: int, loadable: tuple[Build, Accelerator], tmp_path: Path) -> None:
    device, accelerator = loadable
    build = build_for(random_network(np.random.default_rng(seed), SMALL), device)
    accelerator.load(build.save(tmp_path / "build"))
    check(accelerator, build, seed)


@pytest.mark.parametrize("seed", VERILATOR)
def test_verilator_equals_golden(seed: int, tmp_path: Path) -> None:
    check_device(random_case(seed, steps=20), tmp_path, "verilator")


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["icarus", "verilator"])
@pytest.mark.parametrize("seed", ALL)
def test_both_simulators_equal_golden(seed: int, backend: str, tmp_path: Path) -> None:
    check_device(random_case(seed), tmp_path, backend)


@pytest.mark.slow
@pytest.mark.parametrize("stalled", [False, True])
@pytest.mark.parametrize("simulator", ["icarus", "verilator"])
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
