"""Generates a complete build folder from a network."""

from collections.abc import Callable, Iterable, Mapping
from io import BytesIO
from pathlib import Path
from typing import Any
from warnings import warn

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rtlstm.fpga.devices import devices
from rtlstm.fpga.fit import Fit, FitRequest, NothingFitsError, fit_device
from rtlstm.gen.builds.c_header import c_header
from rtlstm.gen.builds.default_array import ArrayRequest, choose_array
from rtlstm.gen.builds.fit_advice import FitAdvice, find_fit_advice, refuse_fit_anyway
from rtlstm.gen.builds.folder import check_target, new_folder, write_files
from rtlstm.gen.builds.former import FormerResult, ReplacedWarning, former_results
from rtlstm.gen.builds.loadable import (
    capacity_hardware,
    device_hardware,
    device_settings,
    refuse_capacities,
    with_capacity,
)
from rtlstm.gen.builds.names import check_build_name, derive_build_name, explain_build_name
from rtlstm.gen.builds.report import BuildReport, create_report, find_fit
from rtlstm.gen.builds.report_html import render_report
from rtlstm.gen.frontends.reading import InitialState, ModelReport
from rtlstm.gen.ip.files import Vectors, bill_of_materials, ip_files
from rtlstm.gen.ip.paths import IpPaths
from rtlstm.gen.quantise.calibration import Calibration
from rtlstm.gen.quantise.format_request import FormatRequest, as_numbers
from rtlstm.gen.quantise.quantiser import (
    QuantizationSettings,
    choose_formats,
    quantise,
    quantise_with,
)
from rtlstm.gen.quantise.ranges import Calibrated
from rtlstm.gen.quantise.trained import TrainedNetwork
from rtlstm.hdl.emit.verilog import core_to_verilog
from rtlstm.host.loadable import check_loadable
from rtlstm.spec.build_files import read_verilog
from rtlstm.spec.errors import BuildError, ConfigurationError
from rtlstm.spec.manifest import C_HEADER, INITIAL_STATE, Manifest
from rtlstm.spec.network import Network
from rtlstm.spec.numerics import QuantizedNetwork
from rtlstm.spec.packing import find_kept, pack
from rtlstm.spec.padding import Pad
from rtlstm.spec.parameters import Parameters
from rtlstm.spec.program.kept import no_loadable_program
from rtlstm.spec.progress import Progress

__all__ = ["ReplacedWarning", "default_name", "generate_build", "generate_for"]

_TRAINED = (
    "the network was trained in this arithmetic, and its integers are taken as they are: errors are those "
    "against the same weights in floats"
)
_IMAGE = "weights.bin"
_STAGES = ("quantise", "write Verilog", "compare with float", "write files")


def generate_build(
    network: Network,
    folder: Path,
    *,
    name: str | None = None,
    settings: QuantizationSettings | None = None,
    parameters: Parameters | None = None,
    fit: FitRequest | None = None,
    array: ArrayRequest | None = None,
    capacities: Mapping[str, int] | None = None,
    calibration: NDArray[np.generic] | None = None,
    calibration_lengths: ArrayLike | None = None,
    calibration_state: Any = None,
    batch_first: bool | None = None,
    pad: Pad = "back",
    initial_state: InitialState | None = None,
    source: ModelReport | None = None,
    trained: TrainedNetwork | None = None,
    progress: Progress | None = None,
) -> Manifest:
    """Generate a build: manifest, Verilog, weight image and report. Same input, same bytes.

    Parameters
    ----------
    network
        The network; that of ``trained``, if it is given.
    folder
        New, empty, or a build that is replaced. It appears or changes only when everything is done. Results
        of ``rtlstm implement`` and ``bitstream`` in a former build are removed, each with a
        ``ReplacedWarning``.
    name
        Name of the top module; by default from the model file's name, else from the network's.
    fit
        A device or board for which the parameters are chosen, instead of ``parameters``.
    array
        Chosen sizes of the array, instead of ``parameters``; the other sizes are the smallest that are as
        fast as 4 lanes x 32 (:mod:`rtlstm.gen.builds.default_array`). By default all sizes are chosen so.
    capacities
        The program is loadable, with these of :class:`rtlstm.spec.capacity.Capacity`, and for the others what
        the network needs, up to the next power of two; None for a fixed program.
    calibration
        Typical inputs, ``(T, inputs)`` or ``(T, N, inputs)``; see
        :func:`rtlstm.gen.quantise.quantiser.quantise`.
    calibration_lengths
        Valid steps of each of these sequences, ``(N,)``; all if None.
    calibration_state
        Initial state of each sequence, ``(h_0, c_0)`` as for a build's ``run``; zeros if None.
    batch_first
        Whether ``calibration`` has the batch first, ``(N, T, inputs)``; by default as the model has it.
    pad
        Where the padding of sequences shorter than T stands in ``calibration``.
    initial_state
        The state in which the model begins, which the build has as ``state.npz``, in the form that
        ``rtlstm run --state`` takes for one sequence; None for zeros, without that file.
    source
        The front end's report, which the build's report contains.
    trained
        The network with integers that are taken as they are, and with its own settings: ``settings`` and
        calibration data are not given then.
    progress
        Called as ``progress(what, done, total)``.

    Raises
    ------
    BuildError
        If ``folder`` holds anything but a build.
    ConfigurationError
        If name, formats, parameters or capacities cannot be built, or nothing fits the device.
    InputError
        If the calibration data do not fit the network.
    ToolError
        If Yosys fails.

    Warns
    -----
    LayoutWarning
        If neither the model nor ``batch_first`` tells the order of calibration data's three axes.
    """
    target, former = check_target(folder), former_results(folder)
    chosen = default_name(network, source) if name is None else check_build_name(name)
    settings = (trained.settings if trained else settings) or QuantizationSettings()
    if sum(given is not None for given in (parameters, fit, array)) > 1:
        raise ConfigurationError(
            "parameters, fit and array all choose the hardware's sizes; give one of them"
        )
    if settings.headroom_bits:
        refuse_capacities(
            capacities,
            "`headroom_bits` is for fixed programs: the headroom of a loadable device is a "
            f"capacity, give `capacities={{'headroom': {settings.headroom_bits}}}`",
        )
    _check_skipping(array, fit, capacities)
    if trained is not None:
        refuse_capacities(
            capacities,
            "a trained network is built with hardware of its own, because its formats are part of what was "
            "trained: leave out `capacities`",
        )
    known = False if source is None else source.batch_first  # A network alone has steps first.
    data = Calibration.given(
        network, calibration, calibration_lengths, calibration_state, batch_first, pad, known
    )
    data = trained.calibration if trained else data

    begin = _stages(progress)
    with new_folder(target) as work:
        begin(0)
        hardware = capacity_hardware(capacities)
        request = None
        if trained:
            quantised = trained.quantised()
        else:
            choices = choose_formats(network, settings, data, hardware, initial_state=initial_state)
            quantised = quantise_with(network, settings, choices, hardware)
            request = FormatRequest(
                settings=settings,
                calibrated=None if data is None else Calibrated.of(data, choices.ranges),
                initial_state=None if data is not None else as_numbers(initial_state),
                headroom=None if hardware is None else hardware.headroom,
            )
        fitted: Fit | None = None
        advised: tuple[str, ...] = ()
        if fit is not None:
            _check_fit(capacities, fit.fit_anyway and trained is not None)
            try:
                parameters, fitted = fit_device(
                    chosen, quantised.shapes, quantised.numerics, fit, quantised.passes
                )
            except NothingFitsError as refused:
                advice = _advise(refused, chosen, network, settings, data, fit, initial_state, progress)
                settings, quantised = advice.settings, advice.quantised
                parameters, fitted = advice.parameters, advice.fit
                request = None if request is None else request.replace(settings=settings)
                advised = (f"{refused}; {advice.taken}",)
        if parameters is None:
            parameters = choose_array(quantised, array or ArrayRequest(tables=settings.tables))
        parameters = with_capacity(chosen, quantised, parameters, capacities)
        manifest = Manifest.create(chosen, quantised.shapes, parameters, quantised.numerics, quantised.passes)
        notes = (*advised, *(() if trained is None else (_TRAINED,)))
        if name is None and (renamed := explain_build_name(_model_name(network, source))) is not None:
            notes += (renamed,)
        notes += _device_notes(manifest.parameters.family, fit)
        if array is not None and array.skip_zeros:
            manifest, more = _skip_zeros(quantised, manifest)
            notes += more
        manifest = manifest.replace(frames=network.frames, batch_first=known, parts=network.parts)
        image = pack(quantised, manifest).to_bytes()
        begin(1)
        verilog = core_to_verilog(manifest)
        begin(2)
        report = create_report(
            network,
            quantised,
            manifest,
            settings,
            data,
            source,
            fitted,
            notes=notes,
            trained=trained is not None,
            format_request=request,
            initial_state=initial_state,
        )
        begin(3)
        clock = _clock_of(report.fit)
        manifest = _write(work, manifest, quantised, image, verilog, report, initial_state, clock)
    begin(4)
    _tell_former(former)
    return manifest


def _device_notes(family: str, fit: FitRequest | None) -> tuple[str, ...]:
    """Return the note of the device to fit, or the one that all devices of the family have."""
    every = devices().values() if fit is None else (fit.chosen.device,)
    found = {each.note for each in every if each.family == family}
    return tuple(found) if len(found) == 1 and "" not in found else ()


def _check_skipping(
    array: ArrayRequest | None, fit: FitRequest | None, capacities: Mapping[str, int] | None
) -> None:
    """Refuse to skip words where that is not supported."""
    if fit is not None and fit.skip_zeros:
        raise ConfigurationError(
            "`fit` does not count on skipped words when it chooses an array: leave it out and "
            "state `lanes` and `macs`, or leave out `skip_zeros`"
        )
    if array is not None and array.skip_zeros:
        refuse_capacities(capacities, no_loadable_program())


def _skip_zeros(quantised: QuantizedNetwork, manifest: Manifest) -> tuple[Manifest, tuple[str, ...]]:
    """Return the manifest of the same build without words of weights that are zero, and what to say of it."""
    kept = find_kept(quantised, manifest)
    found = Manifest.create(
        manifest.name, manifest.layers, manifest.parameters, manifest.numerics, manifest.passes, kept
    )
    words, parameters = manifest.program.weight_rows, manifest.parameters
    skipped = words - found.program.weight_rows
    tile = f"a group of {parameters.lanes} rows x {parameters.macs} columns"
    if not skipped:
        return found, (f"no word of the weights is skipped: each has a weight in {tile} that is not zero",)
    return found, (
        f"{skipped:,} of {words:,} words of the weights are skipped, each zero in {tile}: weights that are "
        "loaded later must be zero there, too",
    )


def _check_fit(capacities: Mapping[str, int] | None, changes_trained: bool) -> None:
    """Refuse to choose an array, or formats, where that is not supported."""
    refuse_capacities(
        capacities,
        "`fit` does not choose arrays for loadable cores yet: state `lanes` and `macs`",
    )
    if changes_trained:
        refuse_fit_anyway()


def _advise(
    refused: NothingFitsError,
    name: str,
    network: Network,
    settings: QuantizationSettings,
    data: Calibration | None,
    request: FitRequest,
    initial_state: InitialState | None,
    progress: Progress | None,
) -> FitAdvice:
    """Return what to change so that a network fits; raise if there is nothing, or nobody asked for it."""
    found = find_fit_advice(name, network, settings, data, request, progress, initial_state)
    if found is None or not request.fit_anyway:
        advice = "choose a larger device" if found is None else found.text
        raise NothingFitsError(f"{refused}; {advice}") from None
    return found


def generate_for(
    network: Network,
    folder: Path,
    device_folder: Path,
    *,
    input_range: float | None = None,
    calibration: NDArray[np.generic] | None = None,
    calibration_lengths: ArrayLike | None = None,
    calibration_state: Any = None,
    batch_first: bool | None = None,
    pad: Pad = "back",
    initial_state: InitialState | None = None,
    source: ModelReport | None = None,
    trained: TrainedNetwork | None = None,
    progress: Progress | None = None,
) -> Manifest:
    """Generate a build for an existing device, with its hardware, formats and Verilog.

    A loadable device takes any network that fits. A device with a fixed program takes only other weights of
    its network, those of a retrained model: the build has the device's hash, so that its image can be loaded.

    Parameters
    ----------
    folder
        See :func:`generate_build`.
    device_folder
        Another build.
    input_range
        Largest input; if None, from calibration data, or 8 without them. A fixed device determines it.
    calibration, calibration_lengths, calibration_state, batch_first, pad
        See :func:`generate_build`.
    initial_state, source, trained, progress
        See :func:`generate_build`. What was trained must have been trained for this device.

    Raises
    ------
    BuildError
        If ``folder`` holds anything but a build, or ``device_folder`` is not a build.
    ConfigurationError
        If the device cannot hold the network: the message names the capacity or, for a fixed program,
        the layer that differs or the sum that does not fit. If it has changed since the network was prepared.
    InputError
        If the calibration data do not fit the network.
    """
    target, former = check_target(folder), former_results(folder)
    device = Manifest.load(device_folder)
    if target == Path(device_folder).resolve():
        raise BuildError(
            f"the build must not replace the device {folder} that it is for; choose another folder"
        )
    hardware = device_hardware(device)
    if trained is not None and trained.hardware != hardware:
        raise ConfigurationError(
            f"the device must be the one that the network was trained for, but {device_folder} has other "
            "layers or formats now; prepare the network for it again"
        )
    settings = trained.settings if trained else device_settings(device, input_range)
    known = False if source is None else source.batch_first  # A network alone has steps first.
    data = Calibration.given(
        network, calibration, calibration_lengths, calibration_state, batch_first, pad, known
    )
    data = trained.calibration if trained else data
    begin = _stages(progress)
    with new_folder(target) as work:
        begin(0)
        quantised = (
            trained.quantised()
            if trained
            else quantise(network, settings, data, hardware=hardware, initial_state=initial_state)
        )
        manifest = Manifest.create(
            device.name,
            quantised.shapes,
            device.parameters,
            quantised.numerics,
            quantised.passes,
            device.program.kept,
        )
        manifest = manifest.replace(frames=network.frames, batch_first=known, parts=network.parts)
        check_loadable(manifest, device)
        image = pack(quantised, manifest).to_bytes()
        begin(1)
        verilog = read_verilog(device_folder, device)
        begin(2)
        notes: tuple[str, ...] = () if trained is None else (_TRAINED,)
        report = create_report(
            network, quantised, manifest, settings, data, source, loaded=True, notes=notes,
            trained=trained is not None, initial_state=initial_state,
        )  # fmt: skip
        begin(3)
        clock = _clock_of(find_fit(device_folder))
        manifest = _write(work, manifest, quantised, image, verilog, report, initial_state, clock)
    begin(4)
    _tell_former(former)
    return manifest


def default_name(network: Network, source: ModelReport | None) -> str:
    """Return the default name of a build: from the model file's name, else from the network's."""
    return derive_build_name(_model_name(network, source))


def _model_name(network: Network, source: ModelReport | None) -> str:
    return network.name if source is None else source.source.split(".")[0] or network.name


def _tell_former(former: Iterable[FormerResult]) -> None:
    for result in former:
        warn(result.text, ReplacedWarning, stacklevel=3)


def _stages(progress: Progress | None) -> Callable[[int], None]:
    def begin(stage: int) -> None:
        if progress:
            progress(_STAGES[min(stage, len(_STAGES) - 1)], stage, len(_STAGES))

    return begin


def _write(
    work: Path,
    manifest: Manifest,
    quantised: QuantizedNetwork,
    image: bytes,
    verilog: str,
    report: BuildReport,
    initial_state: InitialState | None,
    clock_mhz: float | None,
) -> Manifest:
    """Write all files; return the manifest, which lists those that are compiled, and the initial state."""
    compiled = {manifest.rtl: verilog, C_HEADER: c_header(manifest, initial_state)}
    state = {} if initial_state is None else {INITIAL_STATE: _state_file(initial_state)}
    manifest = manifest.with_files({**compiled, **state})
    texts = {
        "manifest.json": manifest.to_json(),
        **compiled,
        **ip_files(manifest, verilog, Vectors.create(quantised, manifest), clock_mhz),
    }
    contents = {name: text.encode() for name, text in texts.items()} | {_IMAGE: image, **state}
    bill = bill_of_materials(manifest, contents, (_IMAGE, INITIAL_STATE))
    # The bill leaves these out: other commands add to them.
    reports = {"report.json": report.to_json(), "report.html": render_report(report, manifest)}
    write_files(work, {**contents, **reports, IpPaths(manifest.name).bill: bill})
    return manifest


def _state_file(state: InitialState) -> bytes:
    file = BytesIO()
    arrays: dict[str, Any] = {}
    for name, parts in zip("hc", state, strict=True):
        arrays |= {f"{name}_{index}": part for index, part in enumerate(parts)}
    np.savez(file, allow_pickle=False, **arrays)
    return file.getvalue()


def _clock_of(fit: Fit | None) -> float | None:
    """The clock of the device that a build's sizes were chosen for; None if none was named."""
    return None if fit is None else fit.estimate.fmax_mhz
