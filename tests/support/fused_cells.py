"""Numerics of hand-made networks that the fused LSTM gate unit computes."""

import numpy as np

from rtlstm.spec.activations.functions import SIGMOID, TANH
from rtlstm.spec.cells.formats import CellFormats, Functions, resolve
from rtlstm.spec.cells.kinds import dense_cell, lstm_cell
from rtlstm.spec.fixed import Format
from rtlstm.spec.network import Lstm
from rtlstm.spec.numerics import FusedTables, Numerics

LSTM, DENSE = 0, 1
"""Numbers of the cells: of a plain LSTM, and of a dense layer without an activation."""


def fused_numerics(output: Format, **fields: object) -> Numerics:
    """Numerics with these fields, two cells whose results have the format ``output``, and their tables."""
    reads, gate, argument = fields["preactivation"], fields["gate"], fields["cell_argument"]
    functions = Functions()
    tables = FusedTables(
        sigmoid=functions.table(SIGMOID, reads, gate, middle=True),
        tanh=functions.table(TANH, reads, gate, middle=True),
        cell_tanh=functions.table(TANH, argument, gate, middle=True),
    )
    lstm = lstm_cell(Lstm(w_ih=np.zeros((4, 1)), w_hh=np.zeros((4, 1)), bias=np.zeros(4)))
    of_lstm = CellFormats(reads, gate, output, state=fields["cell"], argument=argument)
    of_dense = CellFormats(Format(bits=reads.bits, fraction=output.fraction), gate, output)
    cells = tuple(
        resolve(cell, formats, functions)[0] for cell, formats in ((lstm, of_lstm), (dense_cell(), of_dense))
    )
    return Numerics(cells=cells, tables=tuple(functions.tables), fused_lstm=tables, **fields)
