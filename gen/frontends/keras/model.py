"""Reads Keras models: LSTM, GRU, SimpleRNN and Bidirectional layers, and the layers around them.

Every argument of a recurrent layer is supported, or an error names it. Gate orders are Keras'
(:mod:`rtlstm.gen.frontends.gates`); a GRU's ``reset_after`` is kept, and so are its two biases.
"""

from typing import BinaryIO

from rtlstm.gen.frontends.keras.archive import KerasModel, read_archive
from rtlstm.gen.frontends.keras.translate import LINEAR, translate, with_activation
from rtlstm.gen.frontends.reader import read
from rtlstm.gen.frontends.reading import ReadOptions, ReportBuilder
from rtlstm.spec.errors import ModelError, RtlstmError
from rtlstm.spec.network import Network

_DAMAGE = (ArithmeticError, AttributeError, LookupError, OSError, RuntimeError, TypeError, ValueError)
"""Errors of descriptions that Keras did not write, and errors of h5py."""


def read_keras(file: BinaryIO, options: ReadOptions, report: ReportBuilder) -> Network:
    """Read a ``.keras`` or HDF5 model.

    Raises
    ------
    ModelError
        If a layer or an argument is not supported; the message has its name.
    ToolError
        If h5py is not installed.
    """
    try:
        return _read_model(read_archive(file), options, report)
    except _DAMAGE as error:
        if isinstance(error, RtlstmError):
            raise
        text = f"{type(error).__name__}: {error}".splitlines()[0][:200]
        raise ModelError(f"is a damaged Keras file ({text}); save the model again") from None


def _read_model(model: KerasModel, options: ReadOptions, report: ReportBuilder) -> Network:
    report.format = f"Keras {model.version}"
    _check_end(model, options.output)
    return read(translate(model, report), options, report)


def _check_end(model: KerasModel, output: str | None) -> None:
    """Refuse an end before the activation of a layer that has none."""
    layers = {layer.name: layer for layer in model.layers}
    if output is None or output in layers or not output.endswith(LINEAR):
        return
    name = output.removesuffix(LINEAR)
    if name in layers and not with_activation(layers[name]):
        raise ModelError(
            f"{layers[name].where} has no linear result that {output!r} could end at, as Dense and Conv1D "
            f"have; end at a layer, such as `output={name!r}`"
        )
