"""Step latency: array cycles and at most 24 per layer, predicted and measured on RTL."""

from pathlib import Path

import numpy as np
import pytest
from support.device_pair import pair
from support.loadable_builds import stacked
from support.quick import quick
from support.random_builds import make_case, write_build
from support.small_builds import INPUTS, NARROW, TINY
from support.small_builds import network as small_network

from rtlstm import Accelerator, Dense, Lstm, Manifest, Network, Parameters
from rtlstm.gen.builds.generate import generate_build
from rtlstm.gen.quantise.quantiser import QuantizationSettings, quantise
from rtlstm.sim.golden import Golden
from rtlstm.spec.family import Pipeline
from rtlstm.spec.registers import Register

pytestmark = pytest.mark.rtl

SHAPES = {"lstm128": (128, (128,), None), "stac_a": (100, (100, 100), 1)}


def network(inputs: int, hidden: tuple[int, ...], head: int | None) -> Network:
    rng = np.random.default_rng(7)
    layers: list[Lstm | Dense] = []
    for units in hidden:
        bound = 1 / np.sqrt(units)
        draw = [rng.uniform(-bound, bound, s) for s in ((4 * units, inputs), (4 * units, units), 4 * units)]
        layers.append(Lstm(name=f"lstm{len(layers)}", w_ih=draw[0], w_hh=draw[1], bias=draw[2]))
        inputs = units
    if head:
        layers.append(Dense(weight=rng.uniform(-0.1, 0.1, (head, inputs)), bias=np.zeros(head)))
    return Network(layers=tuple(layers))


def build(folder: Path, shape: str, lanes: int, macs: int) -> Manifest:
    quantised = quantise(network(*SHAPES[shape]), QuantizationSettings(weight_bits=8, data_bits=8))
    manifest = Manifest.of(shape, quantised, Parameters(lanes=lanes, macs=macs))
    write_build(folder, quantised, manifest)
    x = np.random.default_rng(1).integers(-100, 100, size=(6, quantised.inputs))
    np.savez(folder / "golden.npz", x=x, y=Golden(quantised).run(x[:, None]).y[:, 0])
    return manifest


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shape", "lanes", "macs"), [("stac_a", 4, 32), ("lstm128", 8, 16), ("stac_a", 8, 16), ("lstm128", 4, 32)]
)
def test_latency(shape: str, lanes: int, macs: int, tmp_path: Path) -> None:
    """Of arrays of 128 multiply-accumulates per cycle."""
    cycles = build(tmp_path, shape, lanes, macs).cycles
    for layer in cycles.layers:
        assert layer.overhead_cycles <= 24
    assert cycles.step_latency_cycles == cycles.array_cycles + cycles.overhead_cycles
    data = np.load(tmp_path / "golden.npz")
    with Accelerator.open(tmp_path, backend="verilator") as accelerator, accelerator.stream() as stream:
        measured = []
        for x, y in zip(data["x"], data["y"], strict=True):
            np.testing.assert_array_equal(stream.step(x), y)
            measured.append(accelerator.measured_latency_cycles)
            # Let the recurrent part of the next step finish: every read takes cycles.
            accelerator.device.transport.read(Register.CYCLES, cycles.step_interval_cycles)
    assert measured[0] == cycles.first_step_latency_cycles
    assert measured[1:] == [cycles.step_latency_cycles] * (len(measured) - 1)


def test_latency_register_counts_the_wait(tmp_path: Path) -> None:
    """What the register says after steps that were sent together: the wait in the input buffer is part of it.

    The buffer holds two steps. So a step of a long run waits for the two before it, however many there are.
    """
    cycles = generate_build(small_network(), tmp_path, parameters=TINY, settings=NARROW).cycles
    found = {}
    with Accelerator.open(tmp_path, backend="icarus", verify=False) as accelerator:
        device = accelerator.device.transport
        for steps in (1, 2, 3, 4, 5, 9):
            accelerator.run(np.zeros((steps, INPUTS)))
            found[steps] = accelerator.measured_latency_cycles
            last = device.last_cycles
            assert found[steps] == last.offered[-1] - last.accepted[-1]
        with accelerator.stream() as stream:
            stream.step(np.zeros(INPUTS))
            device.read(Register.CYCLES, cycles.step_interval_cycles)
            stream.step(np.zeros(INPUTS))
            assert accelerator.measured_latency_cycles == cycles.step_latency_cycles
    assert found[1] == cycles.first_step_latency_cycles
    assert found[5] == found[9] > cycles.step_latency_cycles + cycles.step_interval_cycles


@pytest.mark.parametrize("suppressed", quick([[3], [2, 3], [1], [0]], [2, 3]))
def test_latency_register_of_steps_closer_than_the_pipeline_is_long(
    suppressed: list[int], tmp_path: Path
) -> None:
    """The next steps have begun, with output or without, when a step's output comes."""
    long = Pipeline(
        operand=4, multiplier=3, collect=2, narrow=4, table=2, slope=2, cell=4, accept=1, result=2
    )
    parameters = Parameters(lanes=16, macs=2, pipeline=long)
    case = make_case(2, quantise(stacked(2, 1), NARROW), parameters, steps=3)
    case.write(tmp_path)
    x, streams = case.x[:4], case.streams[:4]
    with pair(tmp_path, "icarus", verify=False) as both:
        both.stalls(1, 0.0, 0.0)
        both.exchange(streams, x)
        # Compares LATENCY with the golden device's.
        both.exchange(streams, x, np.isin(np.arange(4), suppressed))
        both.exchange(streams, x)
