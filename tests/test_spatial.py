"""Spatial builds: golden model, Icarus, Verilator and Amaranth agree on every bit and every cycle."""

import re
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.cell_networks import CELL_NETWORKS
from support.implementations import implementation
from support.lazy import torch
from support.quick import quick
from support.random_builds import Case, make_case, random_network
from support.step_checks import check_device, check_netlist

import rtlstm
from rtlstm import ConfigurationError, Dense, Network, Parameters, ToolError
from rtlstm.fpga.devices import find_device
from rtlstm.fpga.synthesis import synthesise
from rtlstm.fpga.tools import find_yosys
from rtlstm.gen.builds.hardware import ArrayRequest
from rtlstm.gen.quantise.quantiser import QuantizationSettings, quantise
from rtlstm.sim.backends import SimulatedDevice
from rtlstm.spec.inventory import activations
from rtlstm.spec.program.spatial import BEHIND_SUMS, MOST_LOOP_REGISTERS, SpatialPlan

pytestmark = pytest.mark.rtl

SIZES = (2, 3, 4, 5, 7, 8, 11, 20)
SMALL = (2, 3, 4)
ALL = range(301, 331)


def spatial_case(
    seed: int,
    sizes: tuple[int, ...],
    registers: int | None = None,
    family: str = "generic",
    streams: int | None = None,
) -> Case:
    """Draw a network, its formats, the registers of its loop, and its streams."""
    rng = np.random.default_rng(seed)
    data = int(rng.integers(4, 10))
    settings = QuantizationSettings(
        tables="direct",
        weight_bits=int(rng.integers(3, 9)),
        data_bits=data,
        gate_bits=int(rng.integers(max(6, data), 11)),
        cell_bits=int(rng.integers(8, 15)),
        input_range=float(rng.choice([0.5, 1.0, 4.0])),
        cell_range=float(rng.choice([1.0, 2.0, 8.0])),
        hidden_rounding=("half_up", "odd")[int(rng.integers(2))],
    )
    network = quantise(random_network(rng, sizes), settings)
    beat = int(rng.integers(1, network.inputs + 1))
    parameters = Parameters.for_family(
        family,
        lanes=4,
        macs=beat,
        beat_in=beat,
        beat_out=int(rng.integers(1, network.outputs + 1)),
        streams=streams or int(rng.spawn(1)[0].choice([1, 2, 5, 9, 12])),
        tables="direct",
    )
    drawn = int(rng.integers(1, MOST_LOOP_REGISTERS + 1))
    plan = SpatialPlan.of(network, registers or drawn)
    return make_case(seed, network, parameters, max(12, 5 * parameters.streams), plan)


@pytest.mark.parametrize("registers", quick(range(1, MOST_LOOP_REGISTERS + 1), 1, 3, 6, 9))
def test_icarus_equals_golden(registers: int, tmp_path: Path) -> None:
    check_device(spatial_case(300 - registers, SMALL, registers, streams=1), tmp_path, "icarus")


@pytest.mark.parametrize(
    ("registers", "streams"), quick([(1, 2), (2, 3), (3, 3), (4, 2), (6, 6), (9, 9), (9, 12)], (1, 2), (3, 3))
)
def test_streams_equal_golden(registers: int, streams: int, tmp_path: Path) -> None:
    check_device(spatial_case(400 + registers, SMALL, registers, streams=streams), tmp_path, "icarus")


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["icarus", "verilator"])
@pytest.mark.parametrize("seed", ALL)
def test_both_simulators_equal_golden(seed: int, backend: str, tmp_path: Path) -> None:
    check_device(spatial_case(seed, SIZES), tmp_path, backend)


def test_amaranth_equals_golden(tmp_path: Path) -> None:
    check_device(spatial_case(299, (2, 3), 3, streams=2), tmp_path, "amaranth")


def test_a_step_is_accepted_in_each_cycle(tmp_path: Path) -> None:
    torch.manual_seed(0)
    x = np.random.default_rng(1).normal(size=(4, 9, 4))
    options = GIVEN | {"streams": 9, "data_bits": 8, "gate_bits": 8}
    build = rtlstm.compile(torch.nn.LSTM(4, 4), folder=tmp_path / "build", calibration=x, **options)
    assert build.manifest.spatial is not None and build.manifest.spatial.loop_registers == 9
    report = build.report()
    assert "a step of any stream every cycle," in str(report)
    assert [time.steps_per_second for time in report.times] == [
        time.assumed_clock_mhz * 1e6 for time in report.times
    ]
    with build.open("icarus", verify=False) as core:
        y, _ = core.run(x)
        np.testing.assert_array_equal(y, build.run(x)[0])
        transport = core.device.transport
        assert isinstance(transport, SimulatedDevice)
        cycles = transport.last_cycles
    # Thirty-six steps in a row, of nine streams in turn.
    for found in (cycles.accepted, cycles.offered):
        np.testing.assert_array_equal(np.diff(found), 1)


@pytest.mark.parametrize(("streams", "registers"), [(1, 1), (2, 2), (3, 3), (6, 9), (9, 9), (16, 9)])
def test_the_loop_has_the_registers_with_the_most_steps_a_second(streams: int, registers: int) -> None:
    assert ArrayRequest(array="spatial", streams=streams).chosen_loop == registers


GIVEN = {"array": "spatial", "weight_bits": 4, "data_bits": 6, "gate_bits": 6}
X = np.random.default_rng(1).normal(size=(9, 2, 3))


def lstm() -> Any:
    torch.manual_seed(0)
    return torch.nn.LSTM(3, 4)


def test_the_longest_rows_lose_digits_for_one_adder_less(tmp_path: Path) -> None:
    torch.manual_seed(0)
    x, options = np.random.default_rng(0).normal(size=(50, 20, 6)), GIVEN | {"data_bits": 8, "gate_bits": 8}
    depths = []
    for formulas in (True, False):
        build = rtlstm.compile(
            torch.nn.LSTM(6, 20, batch_first=True),
            folder=tmp_path / f"build_{formulas}",
            calibration=x,
            quick=formulas,
            **options,
        )
        depths.append(build.report().spatial.depth)
    assert depths == [6, 5]


def test_a_build_goes_through_generate_and_driver(tmp_path: Path) -> None:
    build = rtlstm.compile(lstm(), folder=tmp_path / "build", calibration=X, loop_registers=2, **GIVEN)
    assert build.manifest.cycles.step_interval_cycles == 2
    found = build.report().spatial
    assert (found.loop_registers, found.adders > 0, found.depth > 1) == (2, True, True)
    assert "in space, 2 registers in the loop of h" in str(build.report())
    assert build.simulate(simulator="icarus", steps=6).passed
    wanted, (h, c) = build.run(X)
    with build.open("icarus") as core:
        # From zeros, from a state, and from zeros again.
        for state in (None, (h, c), None):
            golden, last = build.run(X, state=state)
            y, found = core.run(X, state=state)
            np.testing.assert_array_equal(y, golden)
            np.testing.assert_array_equal(found[0], last[0])
            np.testing.assert_array_equal(found[1], last[1])
    np.testing.assert_array_equal(y, wanted)


def test_weights_of_a_retrained_model_are_refused(tmp_path: Path) -> None:
    from rtlstm.train import prepare

    builds = []
    for number in range(2):
        model = lstm()
        with torch.no_grad():
            model.weight_hh_l0 *= 1 + number
        builds.append(rtlstm.compile(model, folder=tmp_path / f"build{number}", calibration=X, **GIVEN))
    first, second = builds
    assert first.manifest.build_hash != second.manifest.build_hash
    with first.open() as accelerator:
        accelerator.load_weights(first.folder / "weights.bin")
        with pytest.raises(ConfigurationError, match="cannot be loaded, because they are constants"):
            accelerator.load_weights(second.folder / "weights.bin")
        with pytest.raises(ConfigurationError, match="as a build of its own, and place and route that"):
            accelerator.load(second.folder)
    for load in (partial(rtlstm.compile, folder=tmp_path / "other"), prepare):
        with pytest.raises(ConfigurationError, match="cannot be loaded, because they are constants"):
            load(lstm(), device=first.folder)


def test_a_network_is_trained_with_the_tables_of_a_spatial_build(tmp_path: Path) -> None:
    from rtlstm.train import prepare

    numbers = {name: GIVEN[name] for name in ("weight_bits", "data_bits", "gate_bits")}
    direct, other = (
        prepare(lstm(), calibration=X, tables=kind, **numbers) for kind in ("direct", "interpolated")
    )
    build = rtlstm.compile(direct, folder=tmp_path / "build", array="spatial")
    assert build.manifest.parameters.tables == "direct"
    with pytest.raises(ConfigurationError, match="train a network for it with `tables='direct'`"):
        rtlstm.compile(other, folder=tmp_path / "other", array="spatial")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lanes": 4, "skip_zeros": True}, "an array in time takes `lanes`, `skip_zeros`, not"),
        ({"decide": "argmax"}, "leave it or `decide='argmax'` out"),
        ({"tables": "interpolated"}, "leave it out; train a network"),
        ({"scale_bits": 8}, "no scales of rows; leave out `scale_bits`"),
        ({"headroom_bits": 1}, "`headroom_bits` is for weights that are loaded later"),
        ({"capacities": {}}, "no program to load: leave out `capacities`"),
        ({"beat_in": 4}, r"`beat_in` \(4\) must be at most the 3 inputs"),
        ({"array": "shared", "loop_registers": 3}, "`loop_registers=3` is for spatial builds"),
    ],
)
def test_options_that_do_not_apply_are_refused_by_name(
    options: dict[str, object], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        rtlstm.compile(lstm(), folder=tmp_path / "build", calibration=X, **GIVEN | options)
    assert not (tmp_path / "build").exists()


def test_more_bits_than_direct_tables_take_are_refused(tmp_path: Path) -> None:
    """Interpolated tables, which help elsewhere, are no advice here: the message says so."""
    with pytest.raises(ConfigurationError, match="at most 12 .*which spatial builds have"):
        rtlstm.compile(lstm(), folder=tmp_path / "build", calibration=X, array="spatial")
    # Options that exclude each other come first.
    for other in ({"lanes": 4}, {"headroom_bits": 1}, {"capacities": {}}):
        with pytest.raises(ConfigurationError, match="leave"):
            rtlstm.compile(lstm(), folder=tmp_path / "build", calibration=X, array="spatial", **other)
    fewer = {"array": "spatial", "data_bits": 12, "quick": True}
    rtlstm.compile(lstm(), folder=tmp_path / "build", calibration=X, **fewer)


def test_other_layers_are_refused(tmp_path: Path) -> None:
    both = torch.nn.LSTM(3, 4, bidirectional=True)
    with pytest.raises(ConfigurationError, match="no layers in reverse; leave it out, and give `max_steps`"):
        rtlstm.compile(both, folder=tmp_path / "build", calibration=X, **GIVEN)
    with pytest.raises(ConfigurationError, match="no norms and no products of results, but layer 'norm'"):
        rtlstm.compile(CELL_NETWORKS["norm"], folder=tmp_path / "build", calibration=X, **GIVEN)


@pytest.mark.slow
@pytest.mark.tools
def test_netlist_equals_golden(tmp_path: Path) -> None:
    check_netlist(spatial_case(296, SMALL, 3, "ecp5"), tmp_path)


@pytest.mark.slow
@pytest.mark.tools
def test_tables_are_block_ram_of_a_nexus_device(tmp_path: Path) -> None:
    """The register behind a table is the block RAM's, and not that of the DSP block that reads it."""
    torch.manual_seed(0)
    x = np.random.default_rng(1).normal(size=(9, 2, 2))
    options = GIVEN | {"family": "nexus", "gate_bits": 8, "loop_registers": 3}
    build = rtlstm.compile(torch.nn.LSTM(2, 4), folder=tmp_path / "build", calibration=x, **options)
    tables = [table.memory.count for table in activations(build.manifest) if not table.memory.asynchronous]
    verilog = (tmp_path / "build" / build.manifest.rtl).read_text()
    device = find_device("lifcl-40").device
    found = synthesise(verilog, build.manifest.name, device, find_yosys(), tmp_path / "synthesis")
    assert found.core.block_rams == sum(tables) == 16


@pytest.mark.parametrize(
    ("registers", "memory", "kinds"),
    [(3, "ram", ["block RAM"] * 2 + ["LUTs"]), (3, "rom", ["LUTs"] * 3), (1, None, ["LUTs"] * 3)],
)
def test_tables_are_block_ram_where_a_register_stands_before_them(
    registers: int, memory: str | None, kinds: list[str], tmp_path: Path
) -> None:
    options = GIVEN | {"data_bits": 8, "gate_bits": 8, "loop_registers": registers}
    options |= {"table_memory": memory} if memory else {}
    build = rtlstm.compile(lstm(), folder=tmp_path / "build", calibration=X, **options)
    verilog = (tmp_path / "build" / "rtl" / "LSTM.v").read_text()
    assert re.findall("^// Constants of (.*):", verilog, re.M) == kinds
    assert build.simulate(simulator="icarus", steps=12).passed
    with build.open("golden") as golden, build.open("icarus") as core:
        np.testing.assert_array_equal(golden.run(X)[0], core.run(X)[0])


def test_dense_layers_alone_equal_golden(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    shapes = ((4, 3, "tanh"), (2, 4, "relu"))
    layers = tuple(
        Dense(weight=rng.normal(size=(rows, columns)), bias=rng.normal(size=rows), activation=activation)
        for rows, columns, activation in shapes
    )
    network = quantise(Network(layers=layers), QuantizationSettings(data_bits=8, tables="direct"))
    # Streams without a state wait for nothing but outputs.
    for streams in (1, 3):
        parameters = Parameters(lanes=4, macs=3, beat_in=3, streams=streams, tables="direct")
        case = make_case(1, network, parameters, 12, SpatialPlan.of(network, 3))
        assert case.manifest.cycles.step_interval_cycles == 2
        check_device(case, tmp_path / str(streams), "icarus")


@pytest.mark.slow
def test_a_bus_wrapper_and_the_build_s_testbench(tmp_path: Path, cli: Any) -> None:
    rtlstm.compile(lstm(), folder=tmp_path / "build", calibration=X, bus="axi", **GIVEN)
    result = cli("simulate", tmp_path / "build", "--cocotb", "--simulator", "icarus")
    assert "equals_golden_model: passed" in result.out


def test_a_missed_clock_is_met_with_a_longer_loop_or_fewer_bits(
    tmp_path: Path, cli: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "rtlstm.gen.builds.implement.implement",
        lambda folder, asked, progress: implementation(folder, 100, asked=asked.clock_mhz, cores=asked.cores),
    )
    for registers, said in ((3, "more --loop-registers or fewer --weight-bits"), (9, "fewer --weight-bits")):
        folder = tmp_path / str(registers)
        rtlstm.compile(lstm(), folder=folder, calibration=X, **GIVEN | {"loop_registers": registers})
        done = cli("implement", folder, "--device", "lfe5u-25f", "--clock", "120", "--cores", "2")
        assert done.code == 1 and f"fewer --cores, or generate the build with {said}\n" in done.err


def test_a_device_that_is_too_small_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = GIVEN | {"folder": tmp_path / "build", "calibration": X}
    build = rtlstm.compile(torch.nn.LSTM(3, 10), family="ecp5", **given)
    with pytest.raises(ConfigurationError, match=r"30 multipliers \(it has 28\).*`multipliers=False`, or wi"):
        build.implement("lfe5u-25f")
    # It begins with such products in LUTs, and stops at what it would synthesise them with.
    monkeypatch.setattr("rtlstm.gen.builds.implement.find_yosys", find_nothing)
    with pytest.raises(ToolError, match="nothing there"):
        build.implement("lfe5u-25f", multipliers=False)
    # The other way out.
    rtlstm.compile(torch.nn.LSTM(3, 10), **given | {"fit": "lfe5u-25f-8", "array": "shared"})


def find_nothing() -> None:
    raise ToolError("nothing there")


def test_memories_of_tables_that_none_has_are_refused(tmp_path: Path) -> None:
    given = GIVEN | {"loop_registers": 2}
    with pytest.raises(
        ConfigurationError, match=r"`loop_registers` of 3, 8 or 9, .* with 2 has none: leave it out"
    ):
        rtlstm.compile(lstm(), folder=tmp_path / "build", calibration=X, table_memory="ram", **given)
    rtlstm.compile(lstm(), folder=tmp_path / "build", calibration=X, **given)
    for registers in BEHIND_SUMS:
        given = GIVEN | {"loop_registers": registers, "table_memory": "ram"}
        rtlstm.compile(lstm(), folder=tmp_path / "build", calibration=X, **given)
