"""Random configurations: golden model, Icarus and Verilator agree on every bit and every cycle."""

from itertools import product
from pathlib import Path

import numpy as np
import pytest
from support.quick import quick
from support.random_builds import TINY, Case, make_case, random_case
from support.small_builds import NARROW
from support.small_builds import network as small_network
from support.step_checks import check_device

from rtlstm.gen.quantise.quantiser import quantise
from rtlstm.host.state import StateLayout
from rtlstm.sim.cocotb_run import BusRead, BusWrite, Scenario, run_cocotb
from rtlstm.sim.golden import GoldenResult
from rtlstm.spec.network import Lstm, Network
from rtlstm.spec.packing import pack
from rtlstm.spec.parameters import Parameters, TableKind
from rtlstm.spec.program.schedule import offer_cycles
from rtlstm.spec.registers import Command, Region, Register

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


def point(region: Region, row: int, bank: int = 0) -> list[BusWrite]:
    """Bus writes that point the window at a row."""
    return [
        BusWrite(Register.SELECT, [int(region) << 28 | bank]),
        BusWrite(Register.ROW, [row]),
    ]


def state_words(
    case: Case, stream: int, h: list[np.ndarray], c: list[np.ndarray]
) -> list[tuple[Region, int, int, np.ndarray]]:
    """Region, bank, first row and words of a stream's state."""
    layout, program = StateLayout(case.manifest), case.manifest.program
    vectors, cells = layout.encode(h, c)
    return [
        (Region.VECTORS, 0, stream * program.vector_context + layout.vector_span[0], vectors),
        *(
            (Region.CELLS, bank, stream * program.cell_context + layout.cell_span[0], words)
            for bank, words in enumerate(cells)
        ),
    ]


def load_actions(case: Case) -> list[BusWrite]:
    """Bus writes that load the weights and every stream's state."""
    actions = []
    for region, banks in pack(case.network, case.manifest).regions.items():
        for bank, words in enumerate(banks):
            actions += [*point(region, 0, bank), BusWrite(Register.DATA, words.reshape(-1))]
    for stream in range(case.manifest.parameters.streams):
        h, c = ([part[stream] for part in parts] for parts in case.state)
        for region, bank, row, words in state_words(case, stream, h, c):
            actions += [*point(region, row, bank), BusWrite(Register.DATA, words)]
        actions += [
            BusWrite(Register.STREAM, [stream]),
            BusWrite(Register.COMMAND, [Command.STATE_WRITTEN]),
        ]
    return actions


def check_actions(case: Case, results: list[GoldenResult]) -> list[BusWrite | BusRead]:
    """Bus reads that compare every stream's final state."""
    actions: list[BusWrite | BusRead] = []
    for stream, result in enumerate(results):
        h, c = [part[0] for part in result.h], [part[0] for part in result.c]
        # Where the first layer's h stands, and whether its other place was ever written, depends on time.
        places = 2 * case.manifest.program.copy_words
        for region, bank, row, words in state_words(case, stream, h, c):
            if region == Region.VECTORS:
                row, words = row + places, words[places * case.manifest.regions[region].words :]
                if not len(words):
                    continue
            what = f"{region.name} of stream {stream}"
            actions += [*point(region, row, bank), BusRead(Register.DATA, words, what)]
    return actions


@pytest.mark.parametrize(
    ("stalled", "simulator"),
    quick(product((False, True), ("icarus", "verilator")), (True, "icarus"), (False, "verilator")),
)
@pytest.mark.parametrize("seed", COCOTB)
def test_cocotb_testbench(seed: int, stalled: bool, simulator: str, tmp_path: Path) -> None:
    case = random_case(seed, sizes=SMALL)
    case.write(tmp_path)
    y, results = case.golden()
    program, parameters = case.manifest.program, case.manifest.parameters
    offered = offer_cycles(program, parameters, len(case.x), streams=case.streams.tolist())
    p_in, p_out = case.stalls if stalled else (0.0, 0.0)
    scenario = Scenario(
        streams=case.streams,
        x=case.x,
        y=y,
        before=load_actions(case),
        after=check_actions(case, results),
        offered=None if stalled else np.array(offered),
        p_in=p_in,
        p_out=p_out,
        seed=seed,
    )
    result = run_cocotb(tmp_path, case.manifest, simulator, scenario)
    assert result.failures == ()
    assert result.different == 0
    assert result.words > y.size
