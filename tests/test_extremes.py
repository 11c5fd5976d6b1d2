"""Accumulators at their bound: every weight and every input at its most negative, on RTL."""

from pathlib import Path

import numpy as np
import pytest
from support.quick import quick
from support.random_builds import write_build
from support.small_builds import normal_lstm

from rtlstm import Accelerator, Dense, Manifest, Network, Parameters
from rtlstm.gen.quantise.quantiser import QuantizationSettings, quantise
from rtlstm.sim.golden import Golden
from rtlstm.spec.numerics import QuantizedDense, QuantizedNetwork, QuantizedRecurrent, bound_sums
from rtlstm.spec.packing import unpack_fields
from rtlstm.spec.registers import Region

pytestmark = pytest.mark.rtl

INPUTS, UNITS = 13, 13
BACKENDS = ("icarus", "verilator")


def extreme_network(weight_bits: int, data_bits: int, sign: int) -> QuantizedNetwork:
    """All weights at the most negative word (or, for sign 1, the most positive)."""
    rng = np.random.default_rng(3)
    lstm = normal_lstm(rng, INPUTS, UNITS)
    dense = Dense(weight=rng.normal(size=(3, UNITS)), bias=rng.normal(size=3))
    settings = QuantizationSettings(weight_bits=weight_bits, data_bits=data_bits)
    start = quantise(Network(layers=(lstm, dense)), settings)
    weight = -(1 << (weight_bits - 1)) if sign < 0 else (1 << (weight_bits - 1)) - 1
    first, last = start.layers
    assert isinstance(first, QuantizedRecurrent)
    assert isinstance(last, QuantizedDense)
    layers = (
        QuantizedRecurrent(
            w_ih=np.full_like(first.w_ih, weight),
            w_hh=np.full_like(first.w_hh, weight),
            bias=np.full_like(first.bias, -sign * (1 << 20)),
            shift_ih=np.zeros_like(first.shift_ih),
            shift_hh=np.zeros_like(first.shift_hh),
        ),
        QuantizedDense(np.full_like(last.weight, weight), last.bias, last.shift),
    )
    align = start.numerics.accumulator.align
    widths = bound_sums(layers, start.numerics.input, align).widths(align, weight_bits)
    return QuantizedNetwork(start.shapes, start.numerics.replace(accumulator=widths), layers)


@pytest.mark.parametrize(
    ("weight_bits", "data_bits", "sign", "backend"),
    quick(
        [(*sizes, backend) for sizes in ((8, 8, -1), (3, 5, -1), (16, 16, 1)) for backend in BACKENDS],
        (8, 8, -1, "icarus"),
    ),
)
def test_bound_is_reached_and_held(
    weight_bits: int, data_bits: int, sign: int, backend: str, tmp_path: Path
) -> None:
    network = extreme_network(weight_bits, data_bits, sign)
    numerics = network.numerics
    lowest = numerics.input.lowest
    manifest = Manifest.of("extreme", network, Parameters(lanes=8, macs=3))
    write_build(tmp_path, network, manifest)
    x = np.full((3, INPUTS), lowest)
    h, c = np.full(UNITS, lowest), np.full(UNITS, -numerics.cell.maximum)
    lstm = network.layers[0]
    assert isinstance(lstm, QuantizedRecurrent)
    parts = [weights.sum(axis=1) * lowest for weights in (lstm.w_ih, lstm.w_hh)]
    # The bounds are tight: these data reach them (rounding down may add one unit per part).
    bounds = bound_sums(network.layers, numerics.input, numerics.accumulator.align)
    assert np.abs(parts).max() == bounds.lane.magnitude
    partial = np.abs(sum(parts) * 2**numerics.accumulator.align + lstm.bias).max()
    assert 0 <= bounds.partial.magnitude - partial <= 2
    with Accelerator.open(tmp_path, backend=backend, verify=backend != "icarus") as accelerator:
        accelerator.device.write_state(0, [h], [c])
        y = accelerator.device.exchange(np.zeros(len(x), dtype=np.int64), x)
        wanted = Golden(network).run(x[:, None], ([h[None]], [c[None]]))
        np.testing.assert_array_equal(y, wanted.y[:, 0])
        state = accelerator.device.read_state(0)
        for got, result in zip(state, (wanted.h, wanted.c), strict=True):
            np.testing.assert_array_equal(got[0], result[0][0])
        # After one step from the extreme state, the stored partial sum is the whole sum, not saturated.
        accelerator.device.write_state(0, [h], [c])
        accelerator.device.exchange(np.zeros(1, dtype=np.int64), x[:1])
        h_1 = Golden(network).run(x[:1, None], ([h[None]], [c[None]])).h[0][0]
        count = UNITS * manifest.regions[Region.PARTIALS].words
        partials = accelerator.device.read_rows(Region.PARTIALS, 0, manifest.program.bias_rows, count)
    words = partials.reshape(UNITS, -1)
    sums = unpack_fields(words, numerics.accumulator.partial_bits, 4).T.reshape(-1)
    np.testing.assert_array_equal(sums, ((lstm.w_hh @ h_1) << numerics.accumulator.align) + lstm.bias)
