"""Generation: from a network to a whole build folder."""

from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rtlstm.gen.c_header import HEADER, c_header
from rtlstm.gen.calibration import Calibration
from rtlstm.gen.fit import FitRequest, fit_device
from rtlstm.gen.folder import check_target, new_folder, write_files
from rtlstm.gen.frontends.report import ModelReport
from rtlstm.gen.names import check_build_name, derive_build_name
from rtlstm.gen.quantise import QuantizationSettings, quantise
from rtlstm.gen.report import create_report
from rtlstm.gen.report_html import render_report
from rtlstm.hdl.verilog import core_to_verilog
from rtlstm.host.packing import pack
from rtlstm.host.transport import Progress
from rtlstm.spec.errors import ConfigurationError
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.network import Network
from rtlstm.spec.parameters import Parameters

__all__ = ["generate_build"]

_STAGES = ("quantise", "write Verilog", "compare with float", "write files")


def generate_build(
    network: Network,
    folder: Path,
    *,
    name: str | None = None,
    settings: QuantizationSettings | None = None,
    parameters: Parameters | None = None,
    fit: FitRequest | None = None,
    calibration: NDArray[np.generic] | None = None,
    calibration_lengths: ArrayLike | None = None,
    source: ModelReport | None = None,
    progress: Progress | None = None,
) -> Manifest:
    """Generate a build: manifest, Verilog, weight image and report. Same input, same bytes.

    Parameters
    ----------
    folder
        New, empty, or a build that is replaced. It appears, or changes, only when all is done.
    name
        Of the top module; by default from the model file's name, else from the network's.
    fit
        A device for which the parameters are chosen, instead of ``parameters``.
    calibration
        Typical inputs, ``(T, inputs)`` or ``(T, N, inputs)``; see :func:`rtlstm.gen.quantise.quantise`.
    calibration_lengths
        Valid steps of each of these sequences, ``(N,)``; all if None.
    source
        The front end's report, for the record.
    progress
        Called as ``progress(what, done, total)``.

    Raises
    ------
    BuildError
        If ``folder`` holds something else.
    ConfigurationError
        If name, formats or parameters cannot be built, or nothing fits the device.
    InputError
        If the calibration data do not fit the network.
    ToolError
        If Yosys fails.
    """
    target = check_target(folder)
    chosen = derive_build_name(_stem(network, source)) if name is None else check_build_name(name)
    settings = settings or QuantizationSettings()
    data = Calibration.given(network, calibration, calibration_lengths)

    def begin(stage: int) -> None:
        if progress:
            progress(_STAGES[min(stage, len(_STAGES) - 1)], stage, len(_STAGES))

    with new_folder(target) as work:
        begin(0)
        quantised = quantise(network, settings, calibration, calibration_lengths)
        fitted = None
        if fit is not None and quantised.passes:
            raise ConfigurationError(
                "--fit does not choose arrays for networks with a reverse direction yet: state "
                "--lanes and --macs"
            )
        if fit is not None:
            parameters, fitted = fit_device(chosen, quantised.shapes, quantised.numerics, fit)
        manifest = Manifest.create(
            chosen, quantised.shapes, parameters or Parameters(), quantised.numerics, quantised.passes
        )
        image = pack(quantised, manifest).to_bytes()
        begin(1)
        verilog = core_to_verilog(manifest)
        begin(2)
        report = create_report(network, quantised, manifest, settings, data, source, fitted)
        begin(3)
        write_files(
            work,
            {
                "manifest.json": manifest.to_json(),
                f"rtl/{chosen}.v": verilog,
                "weights.bin": image,
                HEADER: c_header(manifest),
                "report.json": report.to_json(),
                "report.html": render_report(report),
            },
        )
    begin(4)
    return manifest


def _stem(network: Network, source: ModelReport | None) -> str:
    return network.name if source is None else source.source.split(".")[0] or network.name
