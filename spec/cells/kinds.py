"""The cells of all layers that model files can have.

Gates come in the order of the layer's rows (:mod:`rtlstm.spec.network`); a GRU's candidate has two
rows if the reset gate multiplies only its recurrent part.
"""

from rtlstm.spec.activations.functions import IDENTITY, ActivationFunction
from rtlstm.spec.cells.description import Cell, CellBuilder, Term
from rtlstm.spec.network import Gru, Lstm, Rnn

__all__ = [
    "dense_cell",
    "gru_candidate_cell",
    "gru_cell",
    "gru_reset_cell",
    "lstm_cell",
    "product_cell",
    "rnn_cell",
]


def lstm_cell(layer: Lstm) -> Cell:
    """``c = f c + i g``, ``h = o output_activation(c)``; gates i, f, g, o; peepholes of i, f and o."""
    cell = CellBuilder()
    old = cell.state()
    before_i, before_f, before_g, before_o = (cell.gate(index) for index in range(4))
    if layer.peephole is not None:
        before_i = before_i + cell.parameter(0) * old
        before_f = before_f + cell.parameter(1) * old
    i = cell.apply(layer.gate, cell.clip(before_i, layer.clip))
    g = cell.apply(layer.candidate, cell.clip(before_g, layer.clip))
    f = 1.0 - i if layer.coupled else cell.apply(layer.gate, cell.clip(before_f, layer.clip))
    c = cell.clip(f * old + i * g, layer.cell_clip)
    kept = cell.keep(c)
    if layer.peephole is not None:
        before_o = before_o + cell.parameter(2) * kept
    o = cell.apply(layer.gate, cell.clip(before_o, layer.clip))
    return cell.build("lstm", o * cell.apply(layer.output_activation, c))


def gru_cell(layer: Gru) -> Cell:
    """Reset after the product; gates r, z, the candidate's input part, its recurrent part."""
    cell = CellBuilder()
    r = cell.apply(layer.gate, cell.clip(cell.gate(0), layer.clip))
    n = cell.apply(layer.candidate, cell.clip(cell.gate(2) + r * cell.gate(3), layer.clip))
    return _gru_update(cell, "gru", layer, n)


def gru_reset_cell(layer: Gru) -> Cell:
    """Reset before the product: gate r gives ``r h`` for the candidate's recurrent product."""
    cell = CellBuilder()
    r = cell.apply(layer.gate, cell.clip(cell.gate(0), layer.clip))
    # Only the candidate's cell changes the state.
    return cell.build("gru_reset", r * cell.state())


def gru_candidate_cell(layer: Gru) -> Cell:
    """The cell after :func:`gru_reset_cell`; gates r (unused), z, n."""
    cell = CellBuilder()
    n = cell.apply(layer.candidate, cell.clip(cell.gate(2), layer.clip))
    return _gru_update(cell, "gru_candidate", layer, n)


def _gru_update(cell: CellBuilder, name: str, layer: Gru, n: Term) -> Cell:
    z = cell.apply(layer.gate, cell.clip(cell.gate(1), layer.clip))
    # The state keeps h with more bits than the array reads: otherwise it would not change for z close to 1.
    return cell.build(name, cell.keep(n + z * (cell.state() - n)))


def product_cell() -> Cell:
    """The product of two rows."""
    cell = CellBuilder()
    return cell.build("product", cell.gate(0) * cell.gate(1))


def rnn_cell(layer: Rnn) -> Cell:
    """``h = activation(gate)``."""
    cell = CellBuilder()
    return cell.build("rnn", cell.apply(layer.activation, cell.clip(cell.gate(0), layer.clip)))


def dense_cell(function: ActivationFunction = IDENTITY) -> Cell:
    """``activation(row)``."""
    cell = CellBuilder()
    return cell.build("dense", cell.apply(function, cell.gate(0)))
