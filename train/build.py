"""Builds a network that was trained on its own float outputs: ``rtlstm generate --finetune``."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from rtlstm.fpga.request import HardwareRequest
from rtlstm.gen.builds.advice import refuse_fit_anyway
from rtlstm.gen.builds.compiled import begin_states, check_alone, compile
from rtlstm.gen.builds.folder import check_target
from rtlstm.gen.builds.hardware import check_hardware, refuse_capacities, with_tables
from rtlstm.gen.frontends import ReadOptions, read_model
from rtlstm.gen.quantise.quantiser import QuantizationSettings
from rtlstm.spec.errors import ConfigurationError
from rtlstm.spec.program.spatial import SpatialPlan
from rtlstm.spec.progress import Progress
from rtlstm.spec.record import option_values
from rtlstm.train.finetune import DigitTrial, Finetuned, FinetuneReport, FinetuneRequest, finetune

DIGIT_PRICES = (0.0, 0.15, 0.3, 0.6)
"""Prices of digits that are tried for spatial builds."""
_AS_GOOD = 1.02
"""Errors up to so many times the least count as equal to it: then the fewest adders are built."""


def finetune_build(
    model: Path,
    request: FinetuneRequest,
    built: Mapping[str, Any],
    given: Mapping[str, Any],
    progress: Progress | None,
) -> FinetuneReport:
    """Train a model on its float outputs, and build it with the better weights: trained, or rounded only.

    ``request`` says how to train. ``built`` and ``given`` are arguments of :func:`rtlstm.compile`: those for
    the build, and those for the numbers, among them the data. Raises ConfigurationError if the build is for a
    loadable device of its own, whose formats are for other networks, too, or if the network does not fit the
    existing device that it is for. Raises RtlstmError as :func:`rtlstm.compile` and
    :func:`rtlstm.train.finetune` do.
    """
    device, given = built["device"], with_tables(given)
    options = {
        key: value for key, value in given.items() if not key.startswith(("calibration", "batch", "pad"))
    }
    _check(request, built, given, options)
    check_target(built["folder"])
    check_hardware(built["fit"], option_values(HardwareRequest, given))
    if given.get("fit_anyway"):
        refuse_fit_anyway()
    hardware = option_values(HardwareRequest, options)
    numbers = option_values(QuantizationSettings, options)
    formats = {"weight_bits": QuantizationSettings().weight_bits} if device is None else {"device": device}
    read = read_model(model, ReadOptions(**option_values(ReadOptions, options)), name=built["name"])
    from_build = [given.get(f"calibration_from{part}") for part in ("", "_input", "_lengths")]
    its = given["calibration_lengths"], given["batch_first"], given["pad"]
    x = read.looked_up(given["calibration"], "calibration", *its)
    state, _ = begin_states(read, x, given["calibration_state"], given["batch_first"], *from_build)
    train = partial(
        finetune,
        read,
        given["calibration"],
        lengths=given["calibration_lengths"],
        state=state,
        batch_first=given["batch_first"],
        pad=given["pad"],
        array=hardware,
        **formats | numbers,
    )
    if hardware.get("array") == "spatial":
        result = _few_adders(train, request, progress)
    else:
        result = train(request=request, progress=progress)
    if result.report.trained_is_built:
        hardware.pop("tables", None)
        compile(result.module, progress=progress, **{**built, "device": None}, **hardware)
    else:
        compile(model, progress=progress, **built, **given)
    return result.report


def _few_adders(
    train: Callable[..., Finetuned], request: FinetuneRequest, progress: Progress | None
) -> Finetuned:
    """Train with several prices of digits; return what has the fewest adders of those that are as good."""
    results, errors, adders = list[Finetuned](), list[float](), list[int]()
    for price in DIGIT_PRICES:

        def seen(what: str, done: int, total: int, price: float = price) -> None:
            if progress:
                progress(f"{what}, digits at {price:g}", done, total)

        result = train(request=request.replace(digit_price=price), progress=seen if progress else None)
        report = result.report
        results.append(result)
        errors.append((report.trained if report.trained_is_built else report.rounded).rms)
        adders.append(sum(len(graph.adders) for graph in SpatialPlan.of(result.network, 1).graphs))
    good = [number for number, error in enumerate(errors) if error <= _AS_GOOD * min(errors)]
    chosen = min(good, key=lambda number: (adders[number], errors[number]))
    trials = tuple(
        DigitTrial(digit_price=price, adders=adders[number], rms=errors[number], built=number == chosen)
        for number, price in enumerate(DIGIT_PRICES)
    )
    result = results[chosen]
    return replace(result, report=result.report.replace(digits=trials))


def _check(
    request: FinetuneRequest, built: Mapping[str, Any], given: Mapping[str, Any], options: Mapping[str, Any]
) -> None:
    """Refuse what does not go together; ``options`` are those of ``given`` that are not about data."""
    existing = built["device"] is not None
    refuse_capacities(
        built["capacities"],
        "a network is trained for hardware of its own or for an existing device: leave out "
        "`capacities`, or `finetune`",
    )
    if existing:
        check_alone(options, fit=built["fit"], name=built["name"])
    if request.prune and existing:
        raise ConfigurationError("`finetune_prune` is for hardware of its own: leave it out, or `device`")
    sizes = [given.get(name) for name in ("lanes", "macs")]
    if request.prune and (None in sizes or not given.get("skip_zeros")):
        raise ConfigurationError(
            "`finetune_prune` prunes words of an array that skips them: give `lanes`, `macs` and "
            "`skip_zeros`, too"
        )
