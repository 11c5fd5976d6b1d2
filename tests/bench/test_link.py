"""The benchmark of the serial link: short runs of the real thing, and its command."""

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from support.paths import DOCS

import rtlstm.bench.soak as module
import rtlstm.bench.soak as soaks
from rtlstm.bench.hardware import predict_cycles
from rtlstm.bench.jobs import open_journal
from rtlstm.bench.shapes import SHAPES
from rtlstm.bench.soak import BAUD, measure_efficiency, soak, soak_pieces
from rtlstm.cli.main import main
from rtlstm.gen.quantise.quantiser import quantise
from rtlstm.host import Accelerator
from rtlstm.host.link.framing import Frame
from rtlstm.host.link.link_transport import LinkTransport
from rtlstm.host.mmio import MmioTransport
from rtlstm.sim.faults import Fault
from rtlstm.sim.golden_device import GoldenDevice
from rtlstm.sim.link_device import DeviceEngine
from rtlstm.sim.link_port import SimulatedPort
from rtlstm.spec.link import value_bytes
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.packing import pack
from rtlstm.spec.registers import Register
from rtlstm.tools.work import open_workers

pytestmark = pytest.mark.rtl

BENCHMARKS = (DOCS / "benchmarks.md").read_text()

_UART_BITS = 10
"""Bits of a byte on the line: start, eight of data, stop."""
_SLAVE_CYCLES = 4
"""Cycles of an access to the wrapper's FIFOs, read or write."""


def serial_step_us(manifest: Manifest, baud: int = BAUD) -> float:
    """Return how long a step's request and response are on a serial line, one step at a time.

    Not counted are the cycles of the step, the adapter's time and the driver's.
    """
    numerics, program = manifest.numerics, manifest.program
    request = 2 + program.inputs * value_bytes(numerics.data_bits)
    response = program.outputs * value_bytes(numerics.output_bits)
    # Bytes without zeros, as long as any others: COBS adds a byte to each.
    frames = [Frame(255, 257, 257, 257, b"\1" * size) for size in (request, response)]
    return sum(len(each.to_wire()) for each in frames) * _UART_BITS / baud * 1e6


def register_step_cycles(manifest: Manifest, interconnect: int) -> int:
    """Return the cycles of one step through the registers of ``axilite``, one access after the other.

    An access spends ``interconnect`` cycles between processor and wrapper, there and back.
    """
    program = manifest.program
    # X_ROOM, Y_STEPS, Y_STREAM; X_STREAM.
    accesses = 3 + 1 + program.inputs + program.outputs
    return accesses * (_SLAVE_CYCLES + interconnect) + manifest.cycles.step_latency_cycles


def test_efficiency():
    found = list(measure_efficiency(quick=True))
    assert [each.payload_bytes for each in found] == [256, 256, 12, 12]
    for each in found:
        assert each.passed and each.steps_per_second == pytest.approx(each.limit_per_second * each.port_use)
    assert found[0].payload_share == pytest.approx(256 / 272, rel=0.01)
    assert not found[0].replace(payload_share=0.8).passed
    assert not found[2].replace(port_use=0.8).passed


@pytest.mark.parametrize("name", ["toptag", "stac_a"])
def test_serial_step_is_what_the_simulated_port_takes(name: str) -> None:
    shape = SHAPES[name]
    quantised = quantise(shape.network(), shape.settings)
    manifest = Manifest.of(name, quantised, shape.parameters)
    port = SimulatedPort(DeviceEngine(GoldenDevice(Path(), manifest), manifest), BAUD, 0.0)
    transport = LinkTransport(port, manifest, None, 1)
    x = shape.input_values(40)
    with Accelerator(transport, manifest) as accelerator:
        accelerator.load_weights(pack(quantised, manifest))
        with accelerator.stream() as stream:
            stream.step(x[0])
            begun = port.now()
            for row in x[1:]:
                stream.step(row)
            taken = (port.now() - begun) / (len(x) - 1) * 1e6
    # Bytes that happen to be zero, and now and then a report, are the rest.
    assert serial_step_us(manifest) == pytest.approx(taken, rel=0.03)
    assert f"| {serial_step_us(manifest):,.0f} us" in BENCHMARKS


@pytest.mark.parametrize("name", ["toptag", "stac_a"])
def test_step_through_registers_has_the_accesses_that_the_driver_makes(name: str) -> None:
    manifest = predict_cycles(SHAPES[name])
    made: list[Register] = []

    class Counted:
        """A core that has always room, and the output of the step before."""

        def read(self, register: Register) -> int:
            made.append(register)
            return {Register.X_ROOM: 4, Register.Y_STEPS: 1}.get(register, 0)

        def write(self, register: Register, word: int) -> None:
            made.append(register)

        def close(self) -> None:
            pass

    transport = MmioTransport(Counted(), manifest)
    made.clear()
    transport._exchange(
        transport._registers,
        np.zeros(1, dtype=np.int64),
        np.zeros((1, manifest.program.inputs), dtype=np.int64),
        np.ones(1, dtype=np.bool_),
    )
    latency = manifest.cycles.step_latency_cycles
    assert register_step_cycles(manifest, 20) == 24 * len(made) + latency
    assert f"{register_step_cycles(manifest, 20) / 200:.1f} us at 200 MHz" in BENCHMARKS


def test_soak_counts_what_is_wrong(monkeypatch):
    good = soak(640, rate=0.05)
    assert good.passed and good.steps == 640 and good.requests > 640 and sum(good.faults.values()) > 20
    assert not good.replace(executed=641).passed
    exchange = module.LinkTransport.exchange

    def wrong(self, streams, x, suppress=None):
        y = exchange(self, streams, x, suppress)
        y[5] ^= 1
        return y

    monkeypatch.setattr(module.LinkTransport, "exchange", wrong)
    assert soak(128, rate=0.0).wrong == 1


def bench(capfd, *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(["bench", *arguments])
    captured = capfd.readouterr()
    return int(ended.value.code or 0), captured.out, captured.err


def test_command(monkeypatch, capfd, tmp_path):
    rows = [module._measure("256 inputs of 8 bits", 256, 8, 0.0, 32)]
    monkeypatch.setattr(module, "measure_efficiency", lambda quick: iter(rows))
    monkeypatch.setattr(soaks, "soak", lambda steps, progress: soak(128, progress=progress))
    save = tmp_path / "link.json"

    code, out, _ = bench(capfd, "--link", "--quick", "--save", str(save))
    assert code == 0 and "256 inputs of 8 bits" in out and "passed" in out
    assert json.loads(save.read_text())["soak"]["steps"] == 128
    monkeypatch.setattr(soaks, "soak", lambda steps, progress: soak(128).replace(wrong=1))
    code, out, _ = bench(capfd, "--link", "--quick")
    assert code == 1 and "FAILED" in out
    code, _, err = bench(capfd, "--link", "stac_a")
    assert code == 2 and "leave out the networks" in err


@pytest.mark.slow
def test_a_hundred_thousand_steps_over_a_bad_line():
    found = soak(100_000, seed=2)
    assert found.passed and found.wrong == 0


def test_board_command(monkeypatch, capfd):
    monkeypatch.setattr(soaks, "soak_board", lambda board, steps, progress: soak(128).replace(executed=129))
    code, out, _ = bench(capfd, "--link", "--board", "ulx3s-85f")
    assert code == 1 and "FAILED" in out
    monkeypatch.undo()
    code, _, err = bench(capfd, "--board", "ulx3s-85f")
    assert code == 2 and "--board needs --link" in err
    code, _, err = bench(capfd, "--link", "--board", "nothing")
    assert code == 2 and "there is no board 'nothing'" in err


@pytest.mark.slow
def test_ten_thousand_steps_over_the_line_of_a_board(capfd, tmp_path):
    """Every kind of fault happens, each costs something, and no step is lost, run twice or wrong."""
    save = tmp_path / "board.json"
    code, out, _ = bench(capfd, "--link", "--board", "ulx3s-85f", "--save", str(save))
    found = json.loads(save.read_text())["soak"]
    assert code == 0 and "passed: every step once and right" in out
    assert found["steps"] == found["executed"] >= 10_000 and not found["wrong"]
    assert set(found["faults"]) == {fault.value for fault in Fault}
    assert all(found[name] > 0 for name in ("repeated", "responses_again", "damaged", "dropped", "reopened"))


def test_sessions_side_by_side_are_added(monkeypatch, tmp_path):
    monkeypatch.setattr(soaks, "_PIECE", 128)
    with open_workers(1) as workers, open_journal(tmp_path / "j", "x") as journal:
        found = soak_pieces(320, workers, journal)
    parts = [soak(steps, seed=seed) for seed, steps in ((1, 128), (2, 128), (3, 64))]
    assert found.passed and found.steps == found.executed == 320
    assert found.faults == Counter(
        {name: sum(part.faults.get(name, 0) for part in parts) for part in parts for name in part.faults}
    )
    assert found.requests == sum(part.requests for part in parts) > 320
    assert not soaks.Soak.together([*parts, parts[0].replace(wrong=1)]).passed
