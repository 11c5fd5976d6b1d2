"""h that has more bits than inputs: golden models and RTL, the ports, and what the search takes."""

from pathlib import Path

import numpy as np
import pytest
from support.cell_networks import CELL_NETWORKS
from support.golden_runs import check_trained, equals_second, random_codes, rms_error
from support.lazy import torch, train
from support.link_bench import LinkBench
from support.loadable_builds import Build, build_for, check, make_device, stacked
from support.quick import quick
from support.random_builds import make_case
from support.random_sequences import make_sequence_case
from support.sequence_checks import check_device as check_sequences
from support.small_builds import TINY
from support.step_checks import check_device

from rtlstm import Accelerator, Bidirectional, ConfigurationError, Dense, Manifest, Network, compile
from rtlstm.explore.measure import Context, measure_numbers
from rtlstm.explore.metrics import Evaluation, find_metric
from rtlstm.explore.space import Choice, Numbers
from rtlstm.fpga.devices import find_device
from rtlstm.fpga.fit import FitRequest
from rtlstm.gen.accuracy.measure import measure_errors
from rtlstm.gen.accuracy.samples import Samples
from rtlstm.gen.builds.advice import find_fit_advice
from rtlstm.gen.builds.compare import compare
from rtlstm.gen.builds.generate import generate_build
from rtlstm.gen.quantise.calibration import Calibration
from rtlstm.gen.quantise.quantiser import QuantizationSettings, quantise
from rtlstm.gen.quantise.target import TargetHardware
from rtlstm.hdl.emit.header import build_options
from rtlstm.hdl.emit.verilog import core_to_verilog
from rtlstm.sim.golden import Golden
from rtlstm.sim.reference import run_float
from rtlstm.sim.simulated_ports import PortSpec
from rtlstm.spec.parameters import Parameters
from rtlstm.spec.registers import Register

RNG = np.random.default_rng(0)
SETTINGS = QuantizationSettings(weight_bits=6, data_bits=6, hidden_bits=9, gate_bits=10, cell_bits=14)
PARAMETERS = Parameters(lanes=8, macs=4, gate_units=2, beat_in=2, beat_out=2, streams=2)


def dense(outputs: int, inputs: int, activation: str = "identity") -> Dense:
    weight, bias = RNG.normal(size=(outputs, inputs)), RNG.normal(size=outputs)
    return Dense(weight=weight, bias=bias, activation=activation)


WIDE = SETTINGS.replace(weight_bits=8, data_bits=8, hidden_bits=None)
FIRST, SECOND, LAST = stacked(3, 4, 4, dense=((2, "identity"),)).layers
BOTH = Bidirectional(forward=FIRST, backward=FIRST.replace(reverse=True))
STEPS = CELL_NETWORKS | {
    "dense layers": Network(layers=(dense(3, 3, "relu"), FIRST, dense(3, 4, "tanh"), dense(2, 3, "sigmoid")))
}
WHOLE = {
    "both directions": Network(layers=(BOTH, dense(5, 8))),
    "outputs are h": Network(layers=(dense(3, 3), BOTH)),
}


@pytest.mark.parametrize("name", sorted(STEPS))
def test_golden_models_agree(name: str) -> None:
    """With the lowest codes of inputs, whose values reach as far as those of h."""
    network = quantise(STEPS[name], SETTINGS)
    form = network.numerics.input
    assert (form.bits, network.numerics.data_bits) == (6, 9)
    x = random_codes(network, 10, 2, seed=1)
    x[3:5] = form.lowest
    equals_second(network, x)


@pytest.mark.rtl
@pytest.mark.parametrize("name", quick(sorted(STEPS), "dense layers", "gru"))
def test_icarus_equals_golden(name: str, tmp_path: Path) -> None:
    check_device(make_case(3, quantise(STEPS[name], SETTINGS), PARAMETERS, steps=10), tmp_path, "icarus")


@pytest.mark.rtl
@pytest.mark.slow
@pytest.mark.parametrize("name", ["dense layers", "gru", "chosen by the search"])
def test_verilator_equals_golden(name: str, tmp_path: Path) -> None:
    if name in STEPS:
        found = quantise(STEPS[name], SETTINGS)
    else:
        x = np.random.default_rng(2).uniform(-1, 1, (40, 20, 3))
        found = quantise(stacked(3, 6, dense=((2, "identity"),)), WIDE, x)
        assert (found.numerics.input.bits, found.numerics.data_bits) == (8, 9)
    check_device(make_case(4, found, PARAMETERS, steps=40), tmp_path, "verilator")


@pytest.mark.rtl
@pytest.mark.parametrize("name", quick(WHOLE, "both directions"))
def test_whole_sequences(name: str, tmp_path: Path) -> None:
    network = quantise(WHOLE[name], SETTINGS)
    check_sequences(make_sequence_case(3, network, PARAMETERS.replace(max_steps=6), 6), tmp_path, "icarus")


@pytest.mark.rtl
@pytest.mark.slow
@pytest.mark.parametrize("array", [{"array": "spatial"}, {"lanes": 4, "macs": 1, "bus": "axi"}])
def test_builds_in_space_and_behind_a_bus(array: dict[str, object], tmp_path: Path) -> None:
    network = Network(layers=(FIRST, LAST))
    numbers = {"weight_bits": 6, "data_bits": 6, "hidden_bits": 9, "gate_bits": 10}
    compile(network, folder=tmp_path / "b", **numbers, **array)
    x = np.random.default_rng(4).integers(-32, 31, (12, 2, 3), endpoint=True)
    result, _ = compare(tmp_path / "b", x, simulator="icarus", verify=False)
    assert result.passed, result.first_difference


def test_ports_have_the_bits_of_inputs_and_no_cycle_is_lost() -> None:
    network = Network(layers=(FIRST, SECOND, LAST))
    wide, narrow = (
        Manifest.of("wide", found, PARAMETERS)
        for found in (quantise(network, SETTINGS), quantise(network, SETTINGS.replace(hidden_bits=None)))
    )
    ports = PortSpec.from_manifest(wide)
    assert (ports.data_bits, ports.y_bits) == (6, 16)
    assert wide.cycles == narrow.cycles
    assert "--data-bits 6 --hidden-bits 9" in " ".join(build_options(wide))
    assert "own_hidden_bits" not in narrow.model_dump_json()


@pytest.mark.rtl
def test_over_a_link_with_h_that_is_written_and_read() -> None:
    """Inputs have one byte, h more bits than one."""
    found = quantise(Network(layers=(FIRST,)), WIDE.replace(hidden_bits=10))
    build = Build(found, Manifest.of("tiny", found, TINY))
    x = found.numerics.quantise_input(np.random.default_rng(2).uniform(-1, 1, (6, 1, 3)))
    h, c = np.full((1, 4), -300), np.full((1, 4), 77)
    wanted = Golden(found).run(x, ([h], [c]))
    with LinkBench(build).open() as accelerator:
        y, (h, c) = accelerator.run(x, state=(h[None], c[None]))
        assert accelerator.device.register(Register.CAPACITY) == 10 << 24 | 8 << 16 | 2
    np.testing.assert_array_equal(y, wanted.y)
    np.testing.assert_array_equal((h[0], c[0]), (wanted.h[0], wanted.c[0]))
    assert np.abs(y).max() > 127


@pytest.mark.rtl
@pytest.mark.slow
def test_a_loadable_device_takes_networks_in_its_bits(tmp_path: Path) -> None:
    """One ends in a dense layer, the other in h."""
    device = make_device(stacked(3, 4, dense=((2, "identity"),)), TINY, SETTINGS.replace(output_bits=9))
    folder = device.save(tmp_path / "device", core_to_verilog(device.manifest))
    with Accelerator.open(folder, "icarus", verify=False) as accelerator:
        for seed, other in enumerate((stacked(2, 3, seed=1), stacked(3, 4, dense=((2, "tanh"),), seed=2))):
            build = build_for(other, device)
            assert build.manifest.numerics.data_bits == 9
            accelerator.load(build.save(tmp_path / str(seed)))
            check(accelerator, build, seed)


def test_a_ninth_bit_is_taken_where_it_helps() -> None:
    network = stacked(3, 6, dense=((2, "identity"),))
    x, other = np.random.default_rng(2).uniform(-1, 1, (2, 40, 20, 3))
    found, narrow = quantise(network, WIDE, x), quantise(network, WIDE.replace(hidden_bits=8), x)
    assert (found.numerics.data_bits, narrow.numerics.data_bits) == (9, 8)
    assert rms_error(network, found, other) < 0.7 * rms_error(network, narrow, other)
    for settings, hardware in (
        (WIDE.replace(quick=True), None),
        (WIDE.replace(data_bits=7), None),
        (WIDE.replace(tables="direct"), None),
        (WIDE, TargetHardware(wider_hidden=0)),
    ):
        assert quantise(network, settings, x, hardware=hardware).numerics.own_hidden_bits is None
    assert quantise(stacked(3, 6), WIDE, x).numerics.own_hidden_bits is None, "h leaves in bytes"


@pytest.mark.usefixtures("without_verilog")
def test_no_ninth_bit_where_two_lanes_share_a_multiplier_of_eight(tmp_path: Path) -> None:
    network = stacked(3, 6, dense=((2, "identity"),))
    numbers = {"weight_bits": 8, "data_bits": 8, "lanes": 8, "macs": 2}
    x = np.random.default_rng(2).uniform(-1, 1, (40, 20, 3))
    bits = []
    for family in ("xilinx", "ecp5"):
        build = compile(network, calibration=x, folder=tmp_path / family, family=family, **numbers)
        bits.append(build.manifest.numerics.data_bits)
    assert bits == [8, 9]


@pytest.mark.usefixtures("without_verilog")
@pytest.mark.parametrize(("device", "bits"), [("xc7a35t", 8), ("lfe5u-25f-6", 9)])
def test_explore_and_advice_quantise_for_the_device_as_generate_does(
    device: str, bits: int, tmp_path: Path
) -> None:
    network = stacked(3, 6, dense=((2, "identity"),))
    x = np.random.default_rng(2).uniform(-1, 1, (20, 8, 3))
    data = Calibration.of(network, x)
    numbers = {"weight_bits": 8, "data_bits": 8, "gate_bits": 12, "cell_bits": 16}
    choice = Choice(
        device=device,
        tables="interpolated",
        hidden_rounding="half_up",
        lanes=4,
        macs=2,
        clock_mhz=100.0,
        **numbers,
    )
    exact = run_float(network, x).y
    evaluation = Evaluation(Samples.of(x, network.inputs), exact, threshold=0.0)
    measured = measure_numbers(Context("made", network, data, evaluation, find_metric("error")), choice)
    assert isinstance(measured, Numbers)
    built = generate_build(
        network, tmp_path / "b", settings=choice.settings, fit=choice.request, calibration=x
    )
    assert measured.numerics == built.numerics
    advice = find_fit_advice("made", network, choice.settings, data, choice.request)
    assert advice is not None and not advice.more
    assert [advice.quantised.numerics.data_bits, built.numerics.data_bits] == [bits, bits]


def test_training_gives_the_same_bits() -> None:
    torch.manual_seed(0)
    x = np.random.default_rng(7).uniform(-1, 1, (6, 4, 3))
    check_trained(train.prepare(torch.nn.LSTM(3, 6), calibration=x, data_bits=8, hidden_bits=11), x)


def test_accuracy_names_no_error_that_the_golden_model_has_not() -> None:
    network = STEPS["dense layers"]
    found = quantise(network, SETTINGS)
    x = np.random.default_rng(3).uniform(-1, 1, (20, 4, network.inputs))
    measured = measure_errors(found, Samples.of(x, network.inputs), network)
    assert measured.output.rms_error == pytest.approx(rms_error(network, found, x), rel=1e-3)


def test_fewer_bits_than_inputs_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="`hidden_bits` must be at least the 8 bits.*leave it out"):
        WIDE.replace(hidden_bits=7)
    with pytest.raises(ConfigurationError, match="`hidden_bits` must be at most 12 with direct tables"):
        WIDE.replace(hidden_bits=14, tables="direct")
    with pytest.raises(ConfigurationError, match="gives h, which has 9.*or change `hidden_bits`"):
        quantise(stacked(3, 4), WIDE.replace(hidden_bits=9, output_bits=8))
    assert quantise(stacked(3, 4), WIDE.replace(hidden_bits=9, output_bits=9)).numerics.output_bits == 9
    with pytest.raises(ConfigurationError, match="gives h, which has 8; .*or change `data_bits`"):
        quantise(stacked(3, 4), WIDE.replace(output_bits=6))
    assert quantise(stacked(3, 4), WIDE.replace(data_bits=6, output_bits=6)).numerics.output_bits == 6
    with pytest.raises(ConfigurationError, match="gates have 12 to 18 bits .*inputs and h.*`gate_bits`"):
        quantise(stacked(3, 4), WIDE.replace(hidden_bits=12, gate_bits=10))
    assert quantise(stacked(3, 4), WIDE.replace(hidden_bits=12, gate_bits=12)).numerics.data_bits == 12


def test_advice_for_a_device_gives_h_fewer_bits_too() -> None:
    settings = QuantizationSettings(data_bits=12, hidden_bits=16)
    request = FitRequest(chosen=find_device("up5k"))
    advice = find_fit_advice("made", stacked(6, 20), settings, None, request)
    assert advice is not None and advice.more == {"weight_bits": 8, "data_bits": 8, "hidden_bits": 8}
