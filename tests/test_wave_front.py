"""A wave-front: layers of one stream work on different steps at once, and all bits and cycles are as ever."""

from pathlib import Path

import numpy as np
import pytest
from support.cell_networks import CELL_NETWORKS
from support.quick import quick
from support.random_builds import make_case
from support.small_builds import NARROW, normal_lstm
from support.step_checks import check_device, check_netlist
from support.wave_builds import check_pauses, wave_case

import rtlstm
from rtlstm import ConfigurationError, Manifest, Network, Parameters
from rtlstm.bench.shapes import find_shapes
from rtlstm.gen.quantise.quantiser import QuantizationSettings, quantise
from rtlstm.spec.numerics import QuantizedNetwork
from rtlstm.spec.program.schedule import offer_cycles

LITTLE = QuantizationSettings(weight_bits=4, data_bits=6, gate_bits=6, cell_bits=8)
SMALL = (1, 2, 3, 4, 5, 7, 9, 12)
CELLS = {
    "gru": 26,
    "two_grus": 29,
    "rnns_without_bounds": 18,
    "rnn_then_lstm": 26,
    "custom_c": 30,
    "custom_stateless": 16,
    "state_behind_an_lstm": 29,
    "peephole": 30,
}
"""Networks of other cells, and the cycles between their steps."""


def two_lstms() -> Network:
    rng = np.random.default_rng(5)
    return Network(layers=(normal_lstm(rng, 3, 2), normal_lstm(rng, 2, 2)))


def cell_network(name: str) -> QuantizedNetwork:
    return quantise(CELL_NETWORKS[name], NARROW.replace(weight_bits=6))


@pytest.mark.rtl
@pytest.mark.parametrize("decide", quick([None, "argmax", "top1", "softmax"], None, "softmax"))
def test_two_layers(decide: str | None, tmp_path: Path) -> None:
    """From a reset and from a state, back to back and with pauses, with all outputs and without some."""
    sizes = {"lanes": 8, "macs": 4, "gate_units": 2, "beat_in": 4, "beat_out": 2}
    parameters = Parameters(wave_front=True, decide=decide, **sizes)
    case = make_case(3, quantise(two_lstms(), LITTLE), parameters, 6)
    check_pauses(case, tmp_path, "icarus", (0.0, 0.95))


@pytest.mark.rtl
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 13))
def test_drawn_builds(tmp_path: Path, seed: int) -> None:
    """Held back at both ports, too."""
    backend = "icarus" if seed % 4 == 0 else "verilator"
    check_device(wave_case(seed, SMALL, 14), tmp_path / "steps", backend)


@pytest.mark.rtl
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 9))
def test_pauses_between_inputs(tmp_path: Path, seed: int) -> None:
    case = wave_case(seed, SMALL[:4], 60, whole=True)
    check_pauses(case, tmp_path, "verilator", (0.0, 0.8, 0.9, 0.95, 0.97, 0.98, 0.99))


@pytest.mark.rtl
@pytest.mark.slow
@pytest.mark.parametrize("name", CELLS)
def test_other_cells(tmp_path: Path, name: str) -> None:
    parameters = Parameters(lanes=32, macs=16, gate_units=2, beat_in=16, beat_out=2, wave_front=True)
    case = make_case(1, cell_network(name), parameters, 24)
    check_pauses(case, tmp_path, "verilator", (0.0, 0.9, 0.97))


@pytest.mark.rtl
@pytest.mark.tools
@pytest.mark.slow
def test_netlist(tmp_path: Path) -> None:
    parameters = Parameters.for_family("ecp5", lanes=8, macs=4, gate_units=2, beat_out=2, wave_front=True)
    check_netlist(make_case(3, quantise(two_lstms(), NARROW), parameters, 6), tmp_path)


@pytest.mark.parametrize("name", CELLS)
def test_cells_intervals(name: str) -> None:
    parameters = Parameters(lanes=32, macs=16, gate_units=2, beat_in=16, beat_out=2, wave_front=True)
    manifest = Manifest.of(name, cell_network(name), parameters)
    assert manifest.cycles.step_interval_cycles == CELLS[name]


def test_three_layers_take_the_loop_of_one() -> None:
    """``dropbear`` with an array that multiplies a layer's words in a cycle; one step takes what it took."""
    shape = find_shapes(["dropbear"])[0].replace(bits=8, tables="direct")
    found = quantise(shape.network(blank=True), shape.settings)
    sizes = {"lanes": 64, "macs": 16, "gate_units": 16, "beat_in": 16, "beat_out": 16, "tables": "direct"}
    usual, wave = (
        Manifest.of("dropbear", found, Parameters.for_family("ecp5", 8, wave_front=chosen, **sizes)).cycles
        for chosen in (False, True)
    )
    assert (usual.step_interval_cycles, wave.step_interval_cycles) == (60, 19)
    assert usual.step_latency_cycles == wave.step_latency_cycles == 73
    assert usual.first_step_latency_cycles == wave.first_step_latency_cycles == 79


@pytest.mark.parametrize("seed", range(20))
def test_results_come_in_order_and_a_step_alone_takes_no_longer(seed: int) -> None:
    """The schedule asserts the order, whatever steps are there and whose outputs are wanted."""
    case = wave_case(seed, (*SMALL, 20, 40), 40)
    program, parameters = case.manifest.program, case.manifest.parameters
    offered = offer_cycles(program, parameters, len(case.x), suppress=case.suppress.tolist())
    assert offered[-1] > offered[0]
    usual = Manifest.of("usual", case.network, parameters.replace(wave_front=False)).cycles
    cycles = case.manifest.cycles
    assert cycles.step_latency_cycles == usual.step_latency_cycles
    assert cycles.first_step_latency_cycles == usual.first_step_latency_cycles


def test_builds_without_it_do_not_know_of_it() -> None:
    manifest = Manifest.of("usual", quantise(two_lstms(), NARROW), Parameters(lanes=8, macs=4))
    assert "wave" not in manifest.to_json()


LEAVE_OUT = ": leave `wave_front` out"
WIDE = Network(layers=(normal_lstm(np.random.default_rng(1), 3, 40),))
OFF = {"wave_front": False}
PARTS = "but the network has "
REFUSED = {
    "streams": (two_lstms(), {"streams": 2}, "waits already: leave it out, or try `streams=1`"),
    "reads": (CELL_NETWORKS["residuals"], {}, f"{PARTS}a layer that reads several results, .*{LEAVE_OUT}"),
    "projection": (CELL_NETWORKS["projections"], {}, f"{PARTS}an LSTM with a projection{LEAVE_OUT}"),
    "norm": (CELL_NETWORKS["norms_around_an_rnn"], {}, f"{PARTS}a norm{LEAVE_OUT}"),
    "first": (CELL_NETWORKS["dense_first_and_mixed"], {}, f"needs a recurrent layer first, .*{LEAVE_OUT}"),
    "groups": (WIDE, {"macs": 4}, "must take 16 cycles at most, not 390; choose more `lanes` or `macs`"),
}
WAYS_OUT = {
    "streams": ({"streams": 1}, OFF),
    "reads": (OFF,),
    "projection": (OFF,),
    "norm": (OFF,),
    "first": (OFF,),
    "groups": ({"lanes": 160}, {"lanes": 80, "gate_units": 4, "beat_out": 4, "macs": 40}, OFF),
}


def manifest_of(network: Network, **options: object) -> Manifest:
    return Manifest.of("made", quantise(network, NARROW), Parameters(**{"wave_front": True} | options))


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_for_it_is_refused_and_each_answer_works(name: str) -> None:
    network, options, message = REFUSED[name]
    with pytest.raises(ConfigurationError, match=message):
        manifest_of(network, **options)
    for answer in WAYS_OUT[name]:
        chosen = options | answer
        assert manifest_of(network, **chosen).parameters.wave_front == chosen.get("wave_front", True)


def compiled(network: Network, folder: Path, **options: object) -> rtlstm.Build:
    given = {"wave_front": True, "calibration": np.zeros((8, network.inputs)), "data_bits": 8, "gate_bits": 8}
    return rtlstm.compile(network, folder=folder, **given | options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"array": "spatial"}, "only an array in time takes `wave_front`, not"),
        ({"capacities": {}}, "needs a fixed program, .*: leave it or `capacities` out"),
        ({"fit": "up5k", "lanes": 4, "macs": 1}, "no array of the sizes that were given does: leave them or"),
    ],
)
def test_other_kinds_of_builds_are_refused(options: dict[str, object], message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=message):
        compiled(WIDE if "fit" in options else two_lstms(), tmp_path / "build", **options)
    assert not (tmp_path / "build").exists()


def test_fit_takes_an_array_that_is_wide_enough(tmp_path: Path) -> None:
    build = compiled(WIDE, tmp_path / "build", fit="lfe5u-85f-8", weight_bits=4, tables="direct")
    assert build.manifest.parameters.wave_front and build.manifest.parameters.lanes > 4


def sequence_manifest(network: QuantizedNetwork, **options: object) -> Manifest:
    return Manifest.of("whole", network, Parameters(max_steps=8, **options))


def test_layers_in_reverse_are_refused() -> None:
    rng = np.random.default_rng(2)
    network = quantise(Network(layers=(normal_lstm(rng, 3, 2, reverse=True),)), NARROW)
    with pytest.raises(ConfigurationError, match="a layer after the other: leave `wave_front` out"):
        sequence_manifest(network, wave_front=True)
    assert sequence_manifest(network).sequence is not None


def test_a_sequence_runs_and_its_report_says_the_interval(tmp_path: Path) -> None:
    """The driver on the golden model, whose cycles are the schedule's."""
    build = compiled(two_lstms(), tmp_path / "build", lanes=8, macs=4)
    cycles = build.manifest.cycles
    assert cycles.step_interval_cycles < cycles.step_latency_cycles
    assert (
        f'"step_interval_cycles": {cycles.step_interval_cycles}'
        in (tmp_path / "build/report.json").read_text()
    )
    x = np.random.default_rng(3).normal(size=(9, 3))
    with build.open("golden") as accelerator:
        whole, _ = accelerator.run(x)
        assert whole.shape[0] == 9
        assert accelerator.measured_latency_cycles > cycles.step_latency_cycles
        with accelerator.stream() as stream:
            one_by_one = [stream.step(step) for step in x]
            assert accelerator.measured_latency_cycles == cycles.step_latency_cycles
    np.testing.assert_array_equal(np.reshape(one_by_one, whole.shape), whole)
