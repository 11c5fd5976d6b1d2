"""Weights are read back through the datapath, bit by bit as they were written, whatever they are."""

from pathlib import Path

import numpy as np
import pytest
from support.quick import quick
from support.random_builds import make_case

from rtlstm import Accelerator, Dense, Lstm, Network, Parameters
from rtlstm.gen.quantise.quantiser import QuantizationSettings, quantise
from rtlstm.spec.family import Pipeline
from rtlstm.spec.numerics import QuantizedNetwork
from rtlstm.spec.registers import Region, Register

pytestmark = pytest.mark.rtl

DEEP = Pipeline(operand=4, multiplier=3, collect=2, narrow=4, window=2, accept=1)


def network(weight_bits: int, data_bits: int, scale: float = 0.3) -> QuantizedNetwork:
    """An LSTM and a dense layer."""
    rng = np.random.default_rng(0)
    units, inputs = 7, 5
    w_ih, w_hh, weight = (
        rng.normal(size=shape) * scale for shape in ((4 * units, inputs), (4 * units, units), (3, units))
    )
    layers = (
        Lstm(name="lstm", w_ih=w_ih, w_hh=w_hh, bias=np.zeros(4 * units)),
        Dense(name="dense", weight=weight, bias=np.zeros(3)),
    )
    settings = QuantizationSettings(weight_bits=weight_bits, data_bits=data_bits, gate_bits=max(8, data_bits))
    return quantise(Network(layers=layers), settings)


CASES = {
    "one block of one multiplier": ((8, 8), Parameters(lanes=4, macs=1)),
    "blocks of three units": ((5, 6), Parameters(lanes=24, macs=3, beat_out=3, gate_units=3, pipeline=DEEP)),
    "seven blocks": ((7, 4), Parameters(lanes=28, macs=2, pipeline=DEEP)),
    "words of nine registers": ((18, 9), Parameters(lanes=8, macs=16)),
    "lanes that share multipliers": (
        (4, 8),
        Parameters.for_family("ecp5", lanes=16, macs=4, beat_out=2, gate_units=2, lut_macs=1),
    ),
    "multipliers in pairs": ((8, 8), Parameters.for_family("ice40", lanes=8, macs=3)),
    # Sums of zeros need 4 bits, and what is written to a memory may be any word.
    "weights of zero": ((18, 4, 0.0), Parameters(lanes=8, macs=2)),
}


# Blocks of several units, and several blocks, are those of "lanes that share multipliers", too.
@pytest.mark.parametrize("name", quick(CASES, "weights of zero"))
def test_any_word_reads_back(name: str, tmp_path: Path) -> None:
    settings, parameters = CASES[name]
    case = make_case(1, network(*settings), parameters, steps=2)
    case.write(tmp_path)
    layout = case.manifest.regions[Region.WEIGHTS]
    assert layout.rows > 2
    rng = np.random.default_rng(2)
    bits = rng.integers(0, 2, (layout.banks, layout.rows, layout.words * 32))
    bits[:, :, layout.width :] = 0
    words = (bits.reshape(layout.banks, layout.rows, layout.words, 32) << np.arange(32)).sum(axis=-1)
    rows = min(3, layout.rows)
    with Accelerator.open(tmp_path, backend="icarus", verify=False) as accelerator:
        device = accelerator.device.transport
        # All of them first: what one lane holds is not what another one does.
        for bank in range(layout.banks):
            device.write(Register.SELECT, [Region.WEIGHTS << 28 | bank])
            for first in (0, layout.rows - rows):
                device.write(Register.ROW, [first])
                device.write(Register.DATA, words[bank, first : first + rows].reshape(-1))
        for bank in rng.permutation(layout.banks).tolist():
            device.write(Register.SELECT, [Region.WEIGHTS << 28 | bank])
            for first in (layout.rows - rows, 0):
                device.write(Register.ROW, [first])
                found = device.read(Register.DATA, rows * layout.words)
                np.testing.assert_array_equal(found, words[bank, first : first + rows].reshape(-1))
