"""Prepares a model for training in the hardware's arithmetic."""

import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike

from rtlstm.gen.builds.compiled import Build, check_alone, device_folder
from rtlstm.gen.builds.hardware import device_settings, table_settings
from rtlstm.gen.frontends import ReadOptions, read_if_needed
from rtlstm.gen.frontends.arrays import first_line
from rtlstm.gen.quantise.calibration import Calibration, read_data
from rtlstm.gen.quantise.quantiser import QuantizationSettings, choose_formats
from rtlstm.host.device import refuse_spatial
from rtlstm.host.embeddings import Embedding
from rtlstm.host.raw_values import as_array
from rtlstm.sim.reference import run_float
from rtlstm.spec.errors import ConfigurationError, InputError, ModelError
from rtlstm.spec.layout import Pad, sequences_first
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.network import Network
from rtlstm.spec.numerics import Numerics
from rtlstm.spec.progress import Progress, shown
from rtlstm.spec.record import declared_options, option_values
from rtlstm.train.module import CallForm, ExistingDevice, Prepared, Steps

_STEPS, _SEQUENCES, _SEED = 7, 3, 0
_TOLERANCE = 1e-3
_DEFAULT_BITS = 4
_OWN = ("calibration", "device", "train_ranges", "weight_normalisation")
"""Options of preparing alone, for a message."""


def prepare(
    model: Any,
    *,
    calibration: ArrayLike | None = None,
    calibration_lengths: ArrayLike | None = None,
    calibration_state: Any = None,
    batch_first: bool | None = None,
    pad: Pad = "back",
    weight_bits: int | Mapping[str, int] | None = None,
    weight_normalisation: bool = False,
    train_ranges: bool = False,
    device: str | Path | Build | None = None,
    progress: Progress | None = None,
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
        Initial state of each sequence, ``(h_0, c_0)`` as for :meth:`rtlstm.Build.run`; if None, the one in
        which the model begins, zeros for most.
    batch_first
        Whether inputs have the batch first, ``(N, T, I)``; by default as the model has it.
    pad
        Where the padding of sequences shorter than T stands in ``calibration``, as for
        :meth:`rtlstm.Build.run`.
    weight_bits
        Bits of the weights, 2 to 18, of all layers or by the layers' names; a layer that is not named has 4,
        and so have all by default. Weights of 2 bits are -1, 0 or 1 times a power of two.
    weight_normalisation
        Whether the direction and the length of each row of weights are trained apart. The bits follow from
        their product, as without it.
    train_ranges
        Whether the ranges of the input, of pre-activations, of c, and of results without a bound of 1 are
        trained, too, as powers of two.
    device
        A build whose hardware the trained weights go into, as :func:`rtlstm.compile` takes it: all formats
        are that build's. Weights in words that it skips are zero and stay zero.
    progress
        Called as ``progress(what, done, total)``.
    options
        Other options of ``rtlstm generate`` for the model's part (:class:`rtlstm.ReadOptions`) and for
        numbers (:class:`rtlstm.QuantizationSettings`), such as ``data_bits=8``.

    Raises
    ------
    ModelError
        If the model cannot be read, or does not return what its layers compute.
    ConfigurationError
        If there is no such option, or formats cannot be built, or the network does not fit the device.
    BuildError
        If the device is no build.
    InputError
        If the calibration data do not fit the model, or all of them are beyond the input's range.
    """
    known = [each.name for each in declared_options(ReadOptions, QuantizationSettings)]
    unknown = [key for key in options if key not in known]
    if unknown:
        raise ConfigurationError(
            f"prepare has no option {unknown[0]!r}; there are {', '.join(sorted({*known, *_OWN}))}"
        )
    if isinstance(model, Prepared):
        raise ConfigurationError(
            "the model is prepared already; train it as it is, or prepare the model that it was made from"
        )
    with shown(progress) as seen:

        def step(what: str, done: int) -> None:
            if seen:
                seen(what, done, 3)

        step("read the model", 0)
        read = read_if_needed(model, ReadOptions(**option_values(ReadOptions, options)))
        network = read.network
        by_layer = dict(weight_bits) if isinstance(weight_bits, Mapping) else {}
        numbers = option_values(QuantizationSettings, options)
        if weight_bits is not None:
            numbers["weight_bits"] = _DEFAULT_BITS if isinstance(weight_bits, Mapping) else weight_bits
        existing = None
        if device is None:
            settings = QuantizationSettings(**{"weight_bits": _DEFAULT_BITS} | numbers)
            settings = table_settings(settings, read, calibration is not None)
        else:
            check_alone(numbers)
            if train_ranges:
                raise ConfigurationError(
                    "the ranges of an existing device are fixed; leave out train_ranges, or device"
                )
            folder = device_folder(device)
            existing = ExistingDevice(folder, Manifest.load(folder))
            refuse_spatial(existing.manifest)
            settings = device_settings(existing.manifest, numbers.get("input_range"))
        if settings.scale_bits:
            raise ConfigurationError(
                "training finds steps of weights that are powers of two: leave out `scale_bits` "
                f"({settings.scale_bits}), or choose a device whose rows have no scales"
            )
        _check_layers(network, by_layer)
        module = model if isinstance(model, torch.nn.Module) else None
        # A module looks its numbers up itself; elsewhere the host gives the rows.
        table = read.embeddings[0] if module is not None and read.embeddings else None
        x = None
        if calibration is not None:
            given = as_array("calibration", _on_host(calibration))
            x = read.looked_up(given, "calibration", calibration_lengths, batch_first, pad)
        if module is not None:
            form = _call_form(module, network, batch_first, table)
        else:
            counts = calibration_state if calibration_lengths is None else calibration_lengths
            form = CallForm(sequences_first("calibration", x, batch_first, read.report.batch_first, counts))
        swapped = form.batch_first and x is not None and (table is not None or x.ndim == 3)
        if x is not None and calibration_state is None:
            calibration_state = read.calibration_state(x, swapped)
        data = read_data(read, x, calibration_lengths, calibration_state, swapped or None, pad)
        step("choose formats", 1)
        found = choose_formats(
            network,
            settings,
            data,
            None if existing is None else existing.hardware,
            initial_state=read.initial_state,
        )
        choices = replace(found, trials=())
        step("make the module", 2)
        prepared = Prepared(
            read,
            settings,
            choices,
            form,
            by_layer,
            data,
            table is not None,
            existing,
            weight_normalisation,
            train_ranges,
        )
        if data is not None:
            _check_range(data, prepared.layers.numerics)
    return prepared


def _on_host(values: Any) -> Any:
    return values.detach().cpu().numpy() if isinstance(values, torch.Tensor) else values


def _check_range(data: Calibration, numerics: Numerics) -> None:
    """Refuse data of which nothing is left: their gradients would be zero as well."""
    valid = data.x[data.alive]
    if (np.abs(numerics.scale_input(valid)) > numerics.input.limit).all():
        raise InputError(
            f"calibration data must be within the input's range, +-{numerics.input.limit:g}, but all "
            f"{valid.size} values are beyond it and would saturate; give a larger `input_range`, "
            "or scale the data"
        )


def _check_layers(network: Network, by_layer: Mapping[str, int]) -> None:
    names = [layer.name for layer in network.layers]
    for name, bits in by_layer.items():
        if name not in names:
            raise ConfigurationError(
                f"weight_bits must name layers of the network, but {name!r} is none; it has "
                f"{', '.join(names)}"
            )
        if not isinstance(bits, int | np.integer) or not 2 <= bits <= 18:
            raise ConfigurationError(f"weight_bits of layer {name!r} must be 2 to 18, not {bits!r}")


def _call_form(
    model: torch.nn.Module, network: Network, batch_first: bool | None, table: Embedding | None
) -> CallForm:
    """Find how a module is called: run it, and look for the network's outputs in what it returns."""
    recurrent = [part for part in model.modules() if isinstance(part, torch.nn.RNNBase)]
    first = recurrent[0].batch_first if recurrent and batch_first is None else bool(batch_first)
    rng, shape = np.random.default_rng(_SEED), (_STEPS, _SEQUENCES)
    if table is None:
        given: np.ndarray[Any, Any] = rng.uniform(-1.0, 1.0, (*shape, network.inputs))
        x = given
    else:
        given = rng.integers(0, len(table.table), shape)
        x = table(given)
    wanted = run_float(network, x).y
    like = next(model.parameters())
    modes, refused = {part: part.training for part in model.modules()}, ""
    model.eval()
    try:
        for order in (first,) if batch_first is not None else (first, not first):
            tensor = torch.from_numpy(np.ascontiguousarray(given.swapaxes(0, 1) if order else given))
            tensor = tensor.to(like) if table is None else tensor.to(like.device)
            try:
                with torch.no_grad(), warnings.catch_warnings(action="ignore"):
                    result = model(tensor)
            except Exception as error:  # A module may refuse the other order of axes in any way.
                refused = f"; on inputs of shape {tuple(tensor.shape)} it failed: {first_line(error)[:100]}"
                continue
            found = _match(result, wanted, order)
            if found is not None:
                return found
    finally:
        for part, training in modes.items():
            part.training = training
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
        tolerance = _TOLERANCE * (1.0 + np.abs(expected).max())
        for squeezed, mine in ((False, values), (True, values[..., None])):
            if mine.shape == expected.shape and np.abs(mine - expected).max() < tolerance:
                return CallForm(batch_first, steps, state, squeezed)
    return None
