"""The cells of all layers that model files can have.

Gates come in the order of the layer's rows (:mod:`rtlstm.spec.network`); a GRU's candidate has two
rows if the reset gate multiplies only its recurrent part.
"""

import numpy as np

from rtlstm.spec.activations.functions import IDENTITY, RELU, SIGMOID, TANH, ActivationFunction
from rtlstm.spec.cells.description import Cell, CellBuilder, Term
from rtlstm.spec.network import Gru, Lstm, Norm, PseudoLayer, Rnn


def cells_of(layer: PseudoLayer) -> tuple[Cell, ...]:
    """Return the cell of a layer; of a GRU that resets first, and of an LSTM with a norm of c, both."""
    if isinstance(layer, Lstm):
        normed = layer.norms is not None and layer.norms.cell is not None
        return (lstm_state_cell(layer), lstm_output_cell(layer)) if normed else (lstm_cell(layer),)
    if isinstance(layer, Gru):
        return (gru_cell(layer),) if layer.reset_after else (gru_reset_cell(layer), gru_candidate_cell(layer))
    return (rnn_cell(layer) if isinstance(layer, Rnn) else layer.step_cell(),)


def lstm_cell(layer: Lstm) -> Cell:
    """``c = f c + i g``, ``h = o output_activation(c)``; gates i, f, g, o; peepholes of i, f and o."""
    cell = CellBuilder()
    cell.state()
    *_, before_o = (cell.gate(index) for index in range(4))
    c, kept = _lstm_state(cell, layer)
    if layer.peephole is not None:
        before_o = before_o + cell.parameter(2) * kept
    o = cell.apply(layer.gate, cell.clip(before_o, layer.clip))
    return cell.build("lstm", o * cell.apply(layer.output_activation, c))


def lstm_state_cell(layer: Lstm) -> Cell:
    """The new c of an LSTM whose c has a norm; gates i, f, g. It is kept here, or by the next cell."""
    cell = CellBuilder()
    return cell.build("lstm_state", _lstm_state(cell, layer)[0])


def lstm_output_cell(layer: Lstm) -> Cell:
    """The h of an LSTM whose c has a norm; gates o and the norm's result."""
    cell = CellBuilder()
    o, c = cell.apply(layer.gate, cell.clip(cell.gate(0), layer.clip)), cell.gate(1)
    if keeps_normed(layer):
        cell.keep(c)
    return cell.build("lstm_output", o * cell.apply(layer.output_activation, c))


def keeps_normed(layer: Lstm) -> bool:
    """Whether an LSTM keeps its c behind a norm."""
    return layer.norms is not None and layer.norms.kept


def _lstm_state(cell: CellBuilder, layer: Lstm) -> tuple[Term, Term]:
    """Return the new c, and what is kept of it."""
    old = cell.state()
    before_i, before_f, before_g = (cell.gate(index) for index in range(3))
    if layer.peephole is not None:
        before_i = before_i + cell.parameter(0) * old
        before_f = before_f + cell.parameter(1) * old
    i = cell.apply(layer.gate, cell.clip(before_i, layer.clip))
    g = cell.apply(layer.candidate, cell.clip(before_g, layer.clip))
    f = 1.0 - i if layer.coupled else cell.apply(layer.gate, cell.clip(before_f, layer.clip))
    c = cell.clip(f * old + i * g, layer.cell_clip)
    return c, c if keeps_normed(layer) else cell.keep(c)


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


def norm_cell(layer: Norm) -> Cell:
    """``normalised * gain + bias``, with those that it has."""
    cell = CellBuilder()
    gain = None if layer.gain is None else cell.parameter(0)
    value = cell.normalise(cell.gate(0), layer.epsilon, layer.centre, gain)
    if layer.bias is not None:
        value = value + cell.parameter(len(layer.constants) - 1)
    return cell.build("norm", value)


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
