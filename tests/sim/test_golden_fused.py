"""The fused unit's golden model computes what the graphs of the same network say, on every bit."""

import numpy as np
import pytest
from support.cell_networks import CELL_NETWORKS
from support.golden_runs import random_codes
from support.loadable_builds import stacked
from support.random_builds import random_case

from rtlstm.gen.quantise.quantiser import QuantizationSettings, quantise
from rtlstm.sim.golden_cells import CellNetwork
from rtlstm.sim.golden_lstm import LstmNetwork
from rtlstm.spec.activations.functions import TANH, ActivationFunction
from rtlstm.spec.cells.kinds import dense_cell, is_fused_cell, lstm_cell
from rtlstm.spec.cells.unit import FusedUnit
from rtlstm.spec.network import Dense, Layer, Lstm, Network


@pytest.mark.parametrize("seed", range(3000, 3040))
def test_graphs_give_the_fused_models_bits(seed: int) -> None:
    case = random_case(seed, sizes=(1, 2, 3, 5, 7))
    unit = case.network.numerics.unit
    assert isinstance(unit, FusedUnit)
    x = random_codes(case.network, 9, 3, seed=seed)
    h, c = ([part[:1].repeat(3, axis=0) for part in parts] for parts in case.state)
    alive = np.arange(9)[:, None, None] < np.array([9, 4, 1])[None, :, None]
    (fast, left), (slow, there) = (
        model.run(x, h, c, alive) for model in (LstmNetwork(case.network, unit), CellNetwork(case.network))
    )
    np.testing.assert_array_equal(fast[alive[..., 0]], slow[alive[..., 0]])
    for one, other in zip((*left.h, *left.c), (*there.h, *there.c), strict=True):
        np.testing.assert_array_equal(one, other)
    assert left.cell_saturations == there.cell_saturations


def fused(*layers: Layer) -> bool:
    return quantise(Network(layers=layers), QuantizationSettings()).numerics.fused_lstm is not None


def test_what_is_fused() -> None:
    lstm, other = stacked(3, 4, 4).layers
    heads = [
        Dense(weight=np.eye(4), bias=np.zeros(4), activation=name)
        for name in ("identity", "relu", "sigmoid", "tanh", "leaky_relu")
    ]
    assert fused(lstm, other, *heads[:4]) and not fused(lstm, heads[4])
    # A dense layer in front of an LSTM, or a step that reads more than the layer before.
    assert not fused(lstm, heads[0], other)
    assert not fused(lstm, other, heads[0].replace(skip=np.eye(4)))
    # A norm has a part of its own, beside the LSTM's unit.
    for name, network in CELL_NETWORKS.items():
        assert fused(*network.layers) == (name == "norm")


def test_a_cell_is_recognised_by_its_operations() -> None:
    rows = np.ones((4, 1))
    plain = Lstm(w_ih=rows, w_hh=rows, bias=rows[:, 0], input_relu=True)
    assert is_fused_cell(lstm_cell(plain))
    assert not is_fused_cell(lstm_cell(plain.replace(cell_clip=100.0)))
    assert not is_fused_cell(lstm_cell(plain.replace(coupled=True)))
    assert is_fused_cell(dense_cell(TANH)) and not is_fused_cell(
        dense_cell(ActivationFunction.of("softsign"))
    )
