"""The gates' order in a model file and in the project."""

import numpy as np
import pytest

from rtlstm.gen.frontends.arrays import GATE_ORDERS, reorder


@pytest.mark.parametrize("order", GATE_ORDERS)
def test_reorder_puts_every_gate_in_its_place(order):
    blocks = {gate: np.full((2, 3), index) for index, gate in enumerate("ifgo")}
    stacked = np.concatenate([blocks[gate] for gate in GATE_ORDERS[order]])
    assert (reorder(stacked, order)[:, 0] == [0, 0, 1, 1, 2, 2, 3, 3]).all()


def test_reorder_refuses_rows_that_are_not_four_gates():
    with pytest.raises(ValueError, match="four gates, not have 6 rows"):
        reorder(np.zeros((6, 1)), "onnx")
