"""Spatial builds of all cells: drawn networks, and what they refuse or hold back."""

from pathlib import Path

import numpy as np
import pytest
from support.cell_networks import CELL_NETWORKS, INPUTS, UNITS, Drawing, function
from support.lazy import torch
from support.quick import quick
from support.random_builds import Case, make_case
from support.step_checks import check_device, check_netlist

import rtlstm
from rtlstm import CellBuilder, ConfigurationError, Network, Parameters
from rtlstm.gen.quantise.quantiser import QuantizationSettings, quantise
from rtlstm.spec.activations.functions import RELU, SIGMOID, TANH
from rtlstm.spec.program.spatial import MOST_LOOP_REGISTERS, SpatialPlan

pytestmark = pytest.mark.rtl

DRAWN = range(501, 531)
REFUSED = {name for name in CELL_NETWORKS if "norm" in name}
"""Networks with norms."""
KINDS = {name: network for name, network in CELL_NETWORKS.items() if name not in REFUSED}


def drawn_network(rng: np.random.Generator) -> Network:
    """Draw one to three recurrent layers of any cell, and dense layers before, between and behind."""
    draw, layers, width = Drawing(int(rng.integers(1000))), list[object](), INPUTS
    for number in range(int(rng.integers(1, 4))):
        if rng.random() < 0.2:
            layers.append(draw.dense(width, 4, activation="tanh", name=f"between{number}"))
            width = 4
        name = f"layer{number}"
        inputs, width = width, UNITS
        match int(rng.integers(7)):
            case 0:
                peephole = draw.array(3 * UNITS) if rng.random() < 0.5 else None
                clip = float(rng.choice([0.5, 2.0])) if rng.random() < 0.5 else None
                layers.append(draw.lstm(inputs, peephole=peephole, clip=clip, name=name))
            case 1:
                functions = {"gate": function("hard_sigmoid"), "candidate": function("softsign")}
                layers.append(draw.lstm(inputs, coupled=bool(rng.integers(2)), name=name, **functions))
            case 2:
                layers.append(draw.gru(inputs, name=name))
            case 3:
                activation = (TANH, RELU, function("elu"), function("gelu"))[int(rng.integers(4))]
                layers.append(draw.rnn(inputs, activation=activation, name=name))
            case 4:
                width = int(rng.integers(2, UNITS))
                clip = 1.5 if rng.random() < 0.5 else None
                layers.append(draw.lstm(inputs, projection=width, clip=clip, name=name))
            case 5:
                layers.append(draw.gru(inputs, reset_after=False, name=name))
            case _:
                cell = CellBuilder()
                share, new = cell.apply(SIGMOID, cell.gate(0)), cell.apply(TANH, cell.gate(1))
                kept = cell.keep(new + share * (cell.parameter(0) * cell.state() - new))
                result = kept * cell.apply(SIGMOID, cell.gate(2)) if rng.random() < 0.5 else kept
                layers.append(draw.custom(cell, result, own=1, inputs=inputs, name=name))
    for number in range(int(rng.integers(0, 3))):
        activation = str(rng.choice(["identity", "relu", "sigmoid", "softplus"]))
        layers.append(draw.dense(width, 3, activation=activation, name=f"behind{number}"))
        width = 3
    return Network(name="drawn", layers=tuple(layers))


def cell_case(
    seed: int, network: Network | None = None, registers: int | None = None, family: str = "generic"
) -> Case:
    """Draw a network, if none is given, its formats, the registers of its loop, and its streams."""
    rng = np.random.default_rng(seed)
    network = drawn_network(rng) if network is None else network
    data = int(rng.integers(4, 8))
    settings = QuantizationSettings(
        tables="direct",
        weight_bits=int(rng.integers(3, 7)),
        data_bits=data,
        gate_bits=int(rng.integers(max(6, data), 9)),
        cell_bits=int(rng.integers(8, 12)),
        cell_range=float(rng.choice([1.0, 4.0])),
        input_range=2.0,
    )
    quantised = quantise(network, settings)
    beat, streams = int(rng.integers(1, 4)), int(rng.choice([1, 1, 2, 5, 9, 12]))
    parameters = Parameters.for_family(
        family,
        lanes=4,
        macs=beat,
        beat_in=beat,
        beat_out=int(rng.integers(1, quantised.outputs + 1)),
        streams=streams,
        tables="direct",
    )
    drawn = int(rng.integers(1, MOST_LOOP_REGISTERS + 1))
    plan = SpatialPlan.of(quantised, registers or drawn)
    return make_case(seed, quantised, parameters, max(12, 3 * streams), plan)


@pytest.mark.parametrize("name", quick(KINDS, "gru", "custom_c", "gru_reset_before", "projections"))
def test_each_kind_of_cell_equals_golden(name: str, tmp_path: Path) -> None:
    check_device(cell_case(len(name), KINDS[name]), tmp_path, "icarus")


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_other_networks_are_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match="has no norms and no products of results, but layer"):
        cell_case(len(name), CELL_NETWORKS[name])


@pytest.mark.parametrize("backend", ["icarus", "verilator"])
@pytest.mark.parametrize("seed", [pytest.param(seed, marks=pytest.mark.slow) for seed in DRAWN])
def test_drawn_networks_equal_golden(seed: int, backend: str, tmp_path: Path) -> None:
    check_device(cell_case(seed), tmp_path, backend)


@pytest.mark.slow
@pytest.mark.parametrize("registers", range(1, MOST_LOOP_REGISTERS + 1))
def test_any_number_of_registers_equals_golden(registers: int, tmp_path: Path) -> None:
    check_device(cell_case(600, KINDS["gru"], registers), tmp_path, "icarus")


def test_states_without_a_product_of_h_have_loops_of_one_register(tmp_path: Path) -> None:
    check_device(cell_case(602, KINDS["min_gru"], 1), tmp_path, "icarus")


def test_sums_of_two_matrices_whose_adders_have_a_register_half_way(tmp_path: Path) -> None:
    """The sums of the first one come in the stage behind it, too late for the adders of the second one."""
    draw = Drawing(1)
    behind = (draw.dense(size, 6, activation="tanh", name=f"dense{size}") for size in (UNITS, 6))
    last = draw.dense(6, 2, activation="tanh", skip=draw.array(2, 6), skips=2, name="last")
    case = cell_case(701, Network(name="skip", layers=(draw.rnn(name="rnn"), *behind, last)), 2)
    stages = case.manifest.spatial_schedule.stages[-1]
    assert stages.halves == (True, True) and stages.sums == 1
    check_device(case, tmp_path, "icarus")


@pytest.mark.slow
@pytest.mark.tools
@pytest.mark.parametrize(
    ("name", "registers"),
    [("gru", 3), ("custom_c", 2), ("rnn", 9), ("gru_reset_before", 4), ("projections", 3)],
)
def test_netlist_equals_golden(name: str, registers: int, tmp_path: Path) -> None:
    check_netlist(cell_case(601, KINDS[name], registers, "ecp5"), tmp_path)


def test_a_gru_with_streams_goes_through_generate_and_driver(tmp_path: Path) -> None:
    torch.manual_seed(0)
    x = np.random.default_rng(1).normal(size=(7, 3, 3))
    options = {"array": "spatial", "tables": "direct", "weight_bits": 4, "data_bits": 6, "gate_bits": 6}
    build = rtlstm.compile(
        torch.nn.GRU(3, 4, num_layers=2), folder=tmp_path / "build", calibration=x, streams=3, **options
    )
    assert build.simulate(simulator="icarus", steps=6).passed
    wanted, state = build.run(x)
    with build.open("icarus") as core:
        y, found = core.run(x)
        np.testing.assert_array_equal(y, wanted)
        np.testing.assert_array_equal(found[0], state[0])
        # Streams keep their states while others go on; a reset one begins anew.
        with core.stream() as first, core.stream() as second:
            for step in range(3):
                np.testing.assert_array_equal(first.step(x[step, 0]), wanted[step, 0])
                if step:
                    np.testing.assert_array_equal(second.step(x[step - 1, 1]), wanted[step - 1, 1])
            first.reset()
            np.testing.assert_array_equal(first.step(x[0, 0]), wanted[0, 0])
            np.testing.assert_array_equal(second.step(x[2, 1]), wanted[2, 1])
