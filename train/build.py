"""Builds a network that was trained on its own float outputs: ``rtlstm generate --finetune``."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rtlstm.fpga.request import HardwareRequest
from rtlstm.gen.builds.compiled import check_hardware, compile
from rtlstm.gen.builds.folder import check_target
from rtlstm.gen.frontends import ReadOptions, read_model
from rtlstm.gen.quantise.quantiser import QuantizationSettings
from rtlstm.spec.errors import ConfigurationError
from rtlstm.spec.options import option, option_values
from rtlstm.spec.progress import Progress
from rtlstm.train.finetune import FinetuneReport, FinetuneRequest, finetune

__all__ = ["finetune_build"]


def finetune_build(
    model: Path,
    request: FinetuneRequest,
    built: Mapping[str, Any],
    given: Mapping[str, Any],
    progress: Progress | None,
) -> FinetuneReport:
    """Train a model on its float outputs, and build it with the better weights: trained, or rounded only.

    Parameters
    ----------
    model
        The model's file.
    request
        How to train.
    built, given
        Arguments of :func:`rtlstm.compile`: for the build, and for the numbers, among them the data.

    Raises
    ------
    ConfigurationError
        If the build is for an existing or a loadable device, whose formats are not this network's.
    RtlstmError
        As :func:`rtlstm.compile` and :func:`rtlstm.train.finetune` do.
    """
    for name in ("device", "capacities"):
        if built[name] is not None:
            raise ConfigurationError(
                f"a network is trained for hardware of its own: leave out {option(name)}, or --finetune"
            )
    if given["calibration_state"] is not None:
        raise ConfigurationError(
            f"--finetune trains from the state of zeros: leave out {option('calibration_state')}"
        )
    sizes = [given.get(name) for name in ("lanes", "macs")]
    if request.prune and (None in sizes or not given.get("skip_zeros")):
        raise ConfigurationError(
            "--finetune-prune prunes words of an array that skips them: give --lanes, --macs and "
            "--skip-zeros, too"
        )
    check_target(built["folder"])
    check_hardware(built["fit"], option_values(HardwareRequest, given))
    options = {key: value for key, value in given.items() if not key.startswith(("calibration", "batch"))}
    hardware = option_values(HardwareRequest, options)
    numbers = option_values(QuantizationSettings, options)
    read = read_model(model, ReadOptions(**option_values(ReadOptions, options)), name=built["name"])
    result = finetune(
        read,
        given["calibration"],
        lengths=given["calibration_lengths"],
        batch_first=given["batch_first"],
        request=request,
        array=hardware,
        progress=progress,
        **{"weight_bits": QuantizationSettings().weight_bits} | numbers,
    )
    if result.report.helped or request.prune:
        hardware.pop("tables", None)
        compile(result.module, progress=progress, **built, **hardware)
    else:
        compile(model, progress=progress, **built, **given)
    return result.report
