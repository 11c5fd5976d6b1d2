"""Whole cores in Amaranth's own simulator: the golden model's bits, the schedule's cycles."""

from pathlib import Path

import numpy as np
import pytest
from amaranth.hdl import Cat, Const, Module, Mux, Signal
from support import sequence_checks
from support.cell_networks import CELL_NETWORKS
from support.loadable_builds import build_for, check, make_device, stacked
from support.random_builds import Case, make_case
from support.random_sequences import make_sequence_case, random_lstm
from support.small_builds import TINY, network
from support.step_checks import check_device

from rtlstm import Accelerator, ConfigurationError, DeviceError, Manifest, Network, Parameters
from rtlstm.gen.quantise.quantiser import QuantizationSettings, quantise
from rtlstm.hdl.component import Component
from rtlstm.hdl.core.core import CorePorts
from rtlstm.sim import amaranth_device
from rtlstm.sim.amaranth_device import AmaranthDevice
from rtlstm.spec.family import Pipeline
from rtlstm.spec.inventory import memories
from rtlstm.spec.registers import Register

LITTLE = QuantizationSettings(weight_bits=4, data_bits=6, gate_bits=6, cell_bits=8)


@pytest.mark.usefixtures("without_verilog")
def test_lstm_and_dense(tmp_path: Path) -> None:
    """With stalls and without, warm and not, weights read back."""
    check_device(make_case(1, quantise(network(), LITTLE), TINY, steps=2), tmp_path, "amaranth")


@pytest.mark.slow
def test_lanes_and_tables_in_pairs(tmp_path: Path) -> None:
    """Two lanes share multipliers, whose carries count; two gates share a table."""
    made = quantise(network(), LITTLE.replace(tables="direct"))
    parameters = Parameters.for_family("ecp5", lanes=8, macs=4, gate_units=2, beat_out=2, tables="direct")
    case = make_case(2, made, parameters, steps=2)
    assert case.manifest.paired_lanes
    assert any(memory.pairs for memory in memories(case.manifest).values())
    check_device(case, tmp_path, "amaranth", verify=False)


@pytest.mark.slow
def test_gru_with_large_memories(tmp_path: Path) -> None:
    made = quantise(CELL_NETWORKS["gru"], LITTLE)
    parameters = Parameters.for_family("ice40", lanes=8, macs=3, weight_memory="large", lut_macs=1)
    check_device(make_case(3, made, parameters, steps=2), tmp_path, "amaranth", verify=False)


@pytest.mark.slow
def test_whole_sequences(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    net = Network(layers=(random_lstm(rng, 2, 3), random_lstm(rng, 3, 2, reverse=True)))
    parameters = Parameters(lanes=4, macs=2, max_steps=4, streams=2, pipeline=Pipeline(accept=1, window=1))
    case = make_sequence_case(4, quantise(net, LITTLE), parameters, steps=4)
    sequence_checks.check_device(case, tmp_path, "amaranth")


@pytest.mark.slow
def test_loads_another_network(tmp_path: Path) -> None:
    device = make_device(stacked(2, 3, dense=((2, "sigmoid"),)), Parameters(lanes=4, macs=2), LITTLE)
    other = build_for(stacked(4, 2, seed=1), device)
    folders = [build.save(tmp_path / str(number)) for number, build in enumerate((device, other))]
    with Accelerator.open(folders[0], "amaranth", verify=False) as accelerator:
        check(accelerator, device, 0, 2)
        accelerator.load(folders[1], verify=False)
        check(accelerator, other, 1, 2)


@pytest.fixture(scope="module")
def little() -> Case:
    return make_case(5, quantise(network(), LITTLE), TINY, steps=1)


def test_waveforms_have_the_names_of_hdl(little: Case, tmp_path: Path) -> None:
    case, waves = little, tmp_path / "core.vcd"
    device = AmaranthDevice(tmp_path, case.manifest, str(waves))
    assert device.read(Register.ID)[0] == 0x4C53544D
    device.close()
    text = waves.read_text()
    for name in ("module sequencer", "module gate_unit0", "module lane", "bank0_rdata"):
        assert name in text


def test_waveforms_that_cannot_be_written(little: Case, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"waveforms cannot be written to .*: Is a directory"):
        AmaranthDevice(tmp_path, little.manifest, str(tmp_path))


FAULTS = {
    "silent": "no transfer on x or y for",
    "deaf bus": "the bus did not accept a request within",
    "mute bus": "the bus did not answer a read within",
    "extra answer": "bus_read_valid must be 1 for one cycle of each read",
    "stream": "y_stream is not the stream",
    "last": "y_last must be 1 in the last beat",
    "withdrawn": "y changed or was withdrawn",
    "changed": "y changed or was withdrawn",
    "more": "y offers a result after that of the last step",
    "words": "words of y past the last output must be 0",
}


class Wrong(CorePorts, Component):
    """The ports of a core, which gives 5 in each word of y, and a fault of one kind."""

    def __init__(self, manifest: Manifest, fault: str) -> None:
        self._fault, self._inputs = fault, manifest.program.inputs
        super().__init__(manifest)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        x, y, bus = self.x, self.y, self.bus

        def has(fault: str) -> Const:
            return Const(self._fault == fault, 1)

        beat, clock = Signal(range(self._inputs)), Signal(6)
        m.d.sync += clock.eq(clock + 1)
        with m.If(x.valid & x.ready):
            m.d.sync += [beat.eq(beat + 1), y.payload.stream.eq(x.payload.stream ^ has("stream"))]
            with m.If(beat == self._inputs - 1):
                m.d.sync += [beat.eq(0), y.valid.eq(~has("silent"))]
        with m.Elif(y.ready | has("withdrawn")):
            m.d.sync += y.valid.eq(has("more"))
        answers = bus.valid & bus.ready & ~bus.write & ~has("mute bus")
        m.d.sync += bus.read_valid.eq(answers | (bus.read_valid & has("extra answer")))
        first = Mux(has("changed"), clock, Const(5, 6))
        m.d.comb += [
            x.ready.eq(~y.valid),
            y.payload.last.eq(~has("last")),
            y.payload.data.eq(Cat(first, Const(5, 6), has("words"))),
            bus.ready.eq(~has("deaf bus")),
            bus.read_data.eq(77),
        ]
        return m


def wrong_device(folder: Path, fault: str, monkeypatch: pytest.MonkeyPatch) -> AmaranthDevice:
    monkeypatch.setattr(amaranth_device, "make_core", lambda manifest: Wrong(manifest, fault))
    parameters = TINY.replace(beat_out=3)
    quantised = quantise(network(), LITTLE.replace(output_bits=6))
    manifest = make_case(6, quantised, parameters, steps=1).manifest
    return AmaranthDevice(folder, manifest)


def use(device: AmaranthDevice) -> np.ndarray:
    device.stalls(1, 0.2, 0.7)
    assert device.read(Register.STEPS, 2).tolist() == [77, 77]
    return device.exchange(np.array([0, 1, 1, 0]), np.zeros((4, 3), dtype=np.int64))


def test_ports_without_a_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    device = wrong_device(tmp_path, "", monkeypatch)
    assert (use(device) == 5).all()
    np.testing.assert_array_equal(device.last_cycles.latency, 1)


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_at_the_ports_are_told(fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    device = wrong_device(tmp_path, fault, monkeypatch)
    with pytest.raises(DeviceError, match=FAULTS[fault]):
        use(device)
    with pytest.raises(DeviceError, match="cannot be used any more"):
        device.read(Register.ID)
