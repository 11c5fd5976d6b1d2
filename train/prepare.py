"""Prepares a model for training in the hardware's arithmetic."""

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike

from rtlstm.gen.frontends import ReadOptions, ReadResult, read_model
from rtlstm.gen.frontends.arrays import first_line
from rtlstm.gen.quantise.calibration import Calibration
from rtlstm.gen.quantise.quantiser import QuantizationSettings, choose_formats
from rtlstm.host.raw_values import as_array
from rtlstm.sim.reference import run_float
from rtlstm.spec.errors import ConfigurationError, ModelError
from rtlstm.spec.network import Network
from rtlstm.spec.options import declared_options, option_values
from rtlstm.train.module import CallForm, Prepared, Steps

__all__ = ["prepare"]

_STEPS, _SEQUENCES, _SEED = 7, 3, 0
_TOLERANCE = 1e-3


def prepare(
    model: Any,
    *,
    calibration: ArrayLike | None = None,
    calibration_lengths: ArrayLike | None = None,
    calibration_state: Any = None,
    batch_first: bool | None = None,
    weight_bits: int | Mapping[str, int] = 4,
    **options: Any,
) -> Prepared:
    """Turn a model into a module that computes the hardware's integers, with gradients.

    Parameters
    ----------
    model
        A ``torch.nn.Module``, a :class:`rtlstm.Network`, a result of :func:`rtlstm.read_model`, or a path.
        The model is not changed.
    calibration
        Typical inputs, which determine the number formats, in the order of axes that the model takes.
    calibration_lengths
        Valid steps of each of these sequences, ``(N,)``.
    calibration_state
        Initial state of each sequence, ``(h_0, c_0)`` as for :meth:`rtlstm.Build.run`; zeros if None.
    batch_first
        Whether inputs have the batch first, ``(N, T, I)``; by default as the module has it.
    weight_bits
        Bits of the weights, 2 to 18, of all layers or by the layers' names; a layer that is not named has 4.
        Weights of 2 bits are -1, 0 or 1 times a power of two.
    options
        Other options of ``rtlstm generate`` for the model's part (:class:`rtlstm.ReadOptions`) and for
        numbers (:class:`rtlstm.QuantizationSettings`), such as ``data_bits=8``.

    Raises
    ------
    ModelError
        If the model cannot be read, or does not return what its layers compute.
    ConfigurationError
        If there is no such option, or formats cannot be built.
    InputError
        If the calibration data do not fit the model.
    """
    known = [each.name for each in declared_options(ReadOptions, QuantizationSettings)]
    unknown = [key for key in options if key not in known]
    if unknown:
        raise ConfigurationError(
            f"prepare has no option {unknown[0]!r}; there are {', '.join(sorted({*known, 'calibration'}))}"
        )
    network = _read(model, ReadOptions(**option_values(ReadOptions, options)))
    by_layer = dict(weight_bits) if isinstance(weight_bits, Mapping) else {}
    default = by_layer.pop("", 4) if isinstance(weight_bits, Mapping) else weight_bits
    settings = QuantizationSettings(weight_bits=default, **option_values(QuantizationSettings, options))
    _check_layers(network, by_layer)
    form = _call_form(model, network, batch_first)
    data = Calibration.given(
        network,
        None if calibration is None else _as_floats(calibration),
        calibration_lengths,
        calibration_state,
        form.batch_first and calibration is not None and np.ndim(calibration) == 3,
    )
    return Prepared(network, settings, choose_formats(network, settings, data), form, by_layer, data)


def _read(model: Any, options: ReadOptions) -> Network:
    if isinstance(model, Network):
        return model
    read = model if isinstance(model, ReadResult) else read_model(model, options)
    if read.embeddings:
        names = ", ".join(one.name for one in read.embeddings)
        raise ModelError(
            f"the model looks up {names}, which stays with the host: prepare the part behind it, and train "
            "both, for example as nn.Sequential"
        )
    return read.network


def _as_floats(values: Any) -> Any:
    if isinstance(values, torch.Tensor):
        values = values.detach().cpu().numpy()
    return as_array("calibration", values)


def _check_layers(network: Network, by_layer: Mapping[str, int]) -> None:
    names = [layer.name for layer in network.layers]
    for name, bits in by_layer.items():
        if name not in names:
            raise ConfigurationError(
                f"weight_bits must name layers of the network, but {name!r} is none; it has "
                f"{', '.join(names)}"
            )
        if not isinstance(bits, int) or not 2 <= bits <= 18:
            raise ConfigurationError(f"weight_bits of layer {name!r} must be 2 to 18, not {bits!r}")


def _call_form(model: Any, network: Network, batch_first: bool | None) -> CallForm:
    """Find how a module is called: run it, and look for the network's outputs in what it returns."""
    if isinstance(model, Network | ReadResult | str | Path) or not isinstance(model, torch.nn.Module):
        return CallForm(batch_first=bool(batch_first))
    recurrent = [part for part in model.modules() if isinstance(part, torch.nn.RNNBase)]
    first = recurrent[0].batch_first if recurrent and batch_first is None else bool(batch_first)
    x = np.random.default_rng(_SEED).uniform(-1.0, 1.0, (_STEPS, _SEQUENCES, network.inputs))
    wanted = run_float(network, x).y
    like = next(model.parameters())
    training, refused = model.training, ""
    model.eval()
    try:
        for order in (first,) if batch_first is not None else (first, not first):
            given = torch.from_numpy(x.swapaxes(0, 1) if order else x).to(like)
            try:
                with torch.no_grad(), warnings.catch_warnings(action="ignore"):
                    result = model(given)
            except Exception as error:  # A module may refuse the other order of axes in any way.
                refused = f"; on inputs of shape {tuple(given.shape)} it failed: {first_line(error)[:100]}"
                continue
            found = _match(result, wanted, order)
            if found is not None:
                return found
    finally:
        model.train(training)
    raise ModelError(
        "the module must return its layers' outputs, of all steps or of the first or last one, with or "
        "without the final state, but it returns something else; prepare its recurrent part alone, or give "
        f"rtlstm.read_model(module).network, which is called as x -> (y, state){refused}"
    )


def _match(result: Any, wanted: np.ndarray[Any, Any], batch_first: bool) -> CallForm | None:
    state = isinstance(result, tuple) and len(result) == 2
    y = result[0] if state else result
    if not isinstance(y, torch.Tensor):
        return None
    values = y.detach().cpu().double().numpy()
    whole = wanted.swapaxes(0, 1) if batch_first else wanted
    choices: dict[Steps, Any] = {"all": whole, "last": wanted[-1], "first": wanted[0]}
    for steps, expected in choices.items():
        for mine in (values, values[..., None]):
            if mine.shape == expected.shape and np.abs(mine - expected).max() < _TOLERANCE * (
                1.0 + np.abs(expected).max()
            ):
                return CallForm(batch_first, steps, state)
    return None
