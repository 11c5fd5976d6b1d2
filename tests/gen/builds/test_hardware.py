"""The array of a build whose size nobody chose: as fast as 4 x 32, and nothing smaller is."""

from itertools import product

import numpy as np
import pytest
from support.quick import quick

from rtlstm import Bidirectional, ConfigurationError, Dense, Lstm, Manifest, Network, Parameters
from rtlstm.gen.builds.hardware import ArrayRequest, choose_array
from rtlstm.gen.quantise.quantiser import QuantizationSettings, quantise
from rtlstm.spec.numerics import QuantizedNetwork


def quantised(inputs: int, units: int, outputs: int = 0) -> QuantizedNetwork:
    rng = np.random.default_rng(0)
    sizes = {"w_ih": (4 * units, inputs), "w_hh": (4 * units, units), "bias": (4 * units,)}
    layers: list[Lstm | Dense] = [
        Lstm(**{name: rng.normal(size=size) / units for name, size in sizes.items()})
    ]
    if outputs:
        layers.append(Dense(weight=rng.normal(size=(outputs, units)), bias=np.zeros(outputs)))
    return quantise(Network(layers=tuple(layers)), QuantizationSettings(weight_bits=8, data_bits=8))


def speed(network: QuantizedNetwork, parameters: Parameters) -> tuple[int, int]:
    cycles = Manifest.of("n", network, parameters).cycles
    return cycles.step_latency_cycles, cycles.step_interval_cycles


def as_fast(found: tuple[int, int], wanted: tuple[int, int]) -> bool:
    return found[0] <= wanted[0] and found[1] <= wanted[1]


@pytest.mark.parametrize(
    ("sizes", "family"),
    quick(
        product([(3, 4, 2), (1, 12, 0)], ["generic", "ecp5"]), ((3, 4, 2), "generic"), ((1, 12, 0), "ecp5")
    ),
)
def test_nothing_smaller_is_as_fast(sizes: tuple[int, int, int], family: str):
    network = quantised(*sizes)
    request = ArrayRequest(family=family)
    bits = network.numerics.factor_bits
    found, large = choose_array(network, request), request.largest(bits)
    assert (large.lanes, large.macs) == (4, 32) and found.family == large.family == family
    wanted = speed(network, large)
    assert as_fast(speed(network, found), wanted)
    cost = found.lanes * (found.macs + 1)
    assert cost < 4 * 33
    for lanes in range(4, cost, 4):
        for macs in range(1, cost // lanes):
            if lanes * (macs + 1) < cost:
                smaller = request.parameters(lanes, macs, bits)
                assert not as_fast(speed(network, smaller), wanted), (lanes, macs)


def test_large_networks_get_the_large_array():
    found = choose_array(quantised(64, 64, 1), ArrayRequest())
    assert (found.lanes, found.macs) == (4, 32)


def test_what_is_given_is_kept():
    network = quantised(3, 12)
    found = choose_array(network, ArrayRequest(lanes=8))
    assert found.lanes == 8 and found.macs < 32
    assert as_fast(speed(network, found), speed(network, Parameters(lanes=8, macs=32)))
    assert choose_array(network, ArrayRequest(macs=2)) == Parameters(lanes=4, macs=2)
    assert choose_array(network, ArrayRequest(lanes=12, macs=30)) == Parameters(lanes=12, macs=30)
    found = choose_array(network, ArrayRequest(gate_units=3, beat_in=2))
    assert found.gate_units == found.beat_out == 3 and found.lanes % 12 == found.macs % 6 == 0
    found = choose_array(network, ArrayRequest(multipliers="lut"))
    assert found.lut_macs == found.macs
    assert choose_array(network, ArrayRequest(multipliers=7)).macs >= 7
    found = choose_array(network, ArrayRequest(multipliers=7, lut_lanes=9))
    assert found.macs >= 8 and found.lanes >= 12 and (found.lut_macs, found.lut_lanes) == (7, 9)
    with pytest.raises(ConfigurationError, match="`lanes` must be a multiple of 4"):
        ArrayRequest(lanes=6).check()


def test_networks_that_take_whole_sequences():
    """However long they are, the choice is quick and the same."""
    rng = np.random.default_rng(0)
    sizes = {"w_ih": (16, 3), "w_hh": (16, 4), "bias": (16,)}
    forward, backward = (
        Lstm(reverse=reverse, **{key: rng.normal(size=size) for key, size in sizes.items()})
        for reverse in (False, True)
    )
    network = Network(layers=(Bidirectional(forward=forward, backward=backward),))
    network = quantise(network, QuantizationSettings(weight_bits=8, data_bits=8))
    short, long = (choose_array(network, ArrayRequest(max_steps=steps)) for steps in (80, 1_000_000))
    assert (short.lanes, short.macs) == (long.lanes, long.macs) and short.multiplies_per_cycle < 128
    assert (short.max_steps, long.max_steps) == (80, 1_000_000)


@pytest.mark.slow
def test_commands(cli, model, tmp_path):
    small = cli("generate", model, "-o", tmp_path / "small", "--json").good()
    large = cli("generate", model, "-o", tmp_path / "large", "--lanes", "4", "--macs", "32", "--json")
    report, other = small.json["report"], large.json["report"]
    assert report["multiplies_per_cycle"] < other["multiplies_per_cycle"] == 128
    for cycles in ("step_latency_cycles", "step_interval_cycles"):
        assert report["cycles"][cycles] <= other["cycles"][cycles]
    loadable = cli("generate", model, "-o", tmp_path / "loadable", "--loadable", "--json").good()
    assert loadable.json["report"]["lanes"] == report["lanes"]
    units = cli("generate", model, "-o", tmp_path / "units", "--gate-units", "2", "--json").good()
    assert units.json["report"]["gate_units"] == 2
