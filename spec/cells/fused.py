"""Recognises the cells that the fused LSTM gate unit computes."""

import numpy as np

from rtlstm.spec.activations.functions import IDENTITY, RELU, SIGMOID, TANH
from rtlstm.spec.cells.description import Cell
from rtlstm.spec.cells.kinds import dense_cell, lstm_cell
from rtlstm.spec.network import Lstm

__all__ = ["is_fused_cell"]

_FUSED = (
    lstm_cell(Lstm(w_ih=np.zeros((4, 1)), w_hh=np.zeros((4, 1)), bias=np.zeros(4))),
    *(dense_cell(function) for function in (IDENTITY, RELU, SIGMOID, TANH)),
)


def is_fused_cell(cell: Cell) -> bool:
    """Recognise a cell of the fused unit: a plain LSTM's, or a dense layer's with one of its functions.

    Either that unit computes all cells of a network, or each cell has a separate pipeline. The bits are the
    same; :class:`~rtlstm.spec.cells.unit.FusedUnit` takes fewer cycles.
    """
    return cell in _FUSED
