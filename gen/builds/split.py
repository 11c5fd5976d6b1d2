"""Splits a model: the core as a build, and what stands in front of it and behind it as it was."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rtlstm.gen.builds.compiled import OPTIONS, Build, compile
from rtlstm.gen.frontends import ReadOptions, is_live, is_module
from rtlstm.gen.frontends.plugins import detect
from rtlstm.gen.frontends.reading import ReadResult
from rtlstm.spec.errors import ConfigurationError, ModelError
from rtlstm.spec.files import as_path
from rtlstm.spec.record import option_values, shows_options

_CALIBRATION = (
    "batch_first", "calibration", "calibration_from", "calibration_from_input", "calibration_from_lengths",
    "calibration_lengths", "calibration_state", "pad",
)  # fmt: skip


@shows_options(*OPTIONS)
def split(
    model: Any, x: Any, *, folder: str | Path | None = None, name: str | None = None, **options: Any
) -> tuple[Any, Build, Any]:
    """Split a model into what stands in front of the core, a build of the core, and what stands behind it.

    The core is all that rtlstm can read: from the first recurrent layer, or what it can compute in front of
    that, to the last tensor that all of the rest can be computed from. The build is calibrated on what the
    part in front makes of ``x``. Of a module of PyTorch, and of an exported program, both parts are modules:

    >>> front, build, back = rtlstm.split(model, x)
    >>> core, past = front(x)
    >>> y, state = build.run(**core)
    >>> result = back(y, state, past)

    Of an ONNX file both parts are files, or None where nothing stands.

    Parameters
    ----------
    model
        A ``torch.nn.Module`` in evaluation mode, an exported program or the path of its ``.pt2`` file, or
        the path of an ONNX file.
    x
        Typical inputs of the model: one, a tuple of them, or a dictionary by name; a list of these for
        several calls.
    folder
        The build folder, as for :func:`compile`; files of ONNX are beside it.
    name
        Name of the Verilog's top module.
    options
        The options of :func:`compile`, but for those of calibration. ``lstm`` names the recurrent layer to
        begin with, or a submodule that is the core, ``begin`` what gives the tensor to begin at, and
        ``output`` where to end.

    Raises
    ------
    ModelError
        If the core can compute no part of the model, or the model cannot be cut around it.
    ConfigurationError
        If the model is neither of these, is in training mode, or an option does not fit.
    InputError
        If ``x`` does not fit the model.
    """
    given = [key for key in _CALIBRATION if key in options]
    if given:
        raise ConfigurationError(
            f"split calibrates the core on what it gets of x: leave out {', '.join(given)}, and give x"
        )
    if options.get("decide") is not None:
        raise ConfigurationError(
            "the part behind the core reads all outputs, so the device must not decide which is the largest: "
            "leave out decide"
        )
    reading = ReadOptions(**option_values(ReadOptions, options))
    rest = {key: value for key, value in options.items() if key not in ReadOptions.model_fields}
    path = as_path("the model", model) if isinstance(model, str | Path) else None
    if path is not None and path.suffix in (".pt2", ".onnx"):
        with _named(path):
            detect(path)
    exported = path.suffix == ".pt2" if path is not None else is_live(model) and not is_module(model)
    if exported or is_module(model):
        parts = import_module("rtlstm.gen.frontends.torch.split")
        with _named(path):
            program = parts.Program(path or model) if exported else None
        calls = import_module("rtlstm.host.torch").as_calls(model if program is None else program.module, x)
        split_it = partial(parts.split_module, model, calls=calls) if program is None else program.split
        found = split_it(options=reading, name=name)
        cores = [found.front(*args, **kwargs)[0] for args, kwargs in calls]
        return found.front, _build(found.read, cores, folder, name, rest), found.back
    if path is not None and path.suffix == ".onnx":
        return _split_file(path, x, reading, folder, name, rest)
    raise ConfigurationError(
        "split takes a torch.nn.Module, a torch.export.ExportedProgram, or the path of an ONNX or .pt2 file, "
        f"not {path or type(model).__name__}; read other models with `lstm` and `output`, and compute what "
        "is left yourself"
    )


@contextmanager
def _named(path: Path | None) -> Iterator[None]:
    try:
        yield
    except ModelError as error:
        raise ModelError(str(error) if path is None else f"{path}: {error}") from None


def _split_file(
    path: Path, x: Any, reading: ReadOptions, folder: Any, name: str | None, options: dict[str, Any]
) -> tuple[Path | None, Build, Path | None]:
    """Split an ONNX file into files beside the build's folder."""
    onnx = import_module("rtlstm.gen.frontends.onnx.split")
    with _named(path):
        calls = onnx.inputs_by_name(path, x)
    found = onnx.split_onnx(path, reading, name)
    build = _build(found.read, found.cores(calls), folder, name, options)
    files: list[Path | None] = []
    for part, model in (("front", found.front), ("back", found.back)):
        target = build.folder.parent / f"{build.folder.name}_{part}.onnx"
        if model is not None:
            target.write_bytes(model.SerializeToString())
        files.append(None if model is None else target)
    return files[0], build, files[1]


def _build(
    read: ReadResult, cores: Sequence[dict[str, Any]], folder: Any, name: str | None, options: dict[str, Any]
) -> Build:
    """Compile the core, calibrated on the arguments of its runs."""
    x, lengths, state = calibration(cores)
    # The part in front looks numbers up.
    return compile(
        read.replace(embeddings=()),
        calibration=x,
        calibration_lengths=lengths,
        calibration_state=state,
        batch_first=False,
        folder=folder,
        name=name,
        **options,
    )


def calibration(cores: Sequence[dict[str, Any]]) -> tuple[NDArray[Any], NDArray[Any] | None, Any]:
    """Return all sequences of several runs: inputs ``(T, N, I)``, lengths, and states in which they begin."""
    inputs = [_steps_first(core) for core in cores]
    steps = max(len(x) for x in inputs)
    lengths = np.concatenate(
        [core.get("lengths", np.full(x.shape[1], len(x))) for core, x in zip(cores, inputs, strict=True)]
    )
    padded = [np.pad(x, ((0, steps - len(x)), (0, 0), (0, 0))) for x in inputs]
    found = [core.get("state") for core in cores]
    state = None
    like = next((each for each in found if each is not None), None)
    if like is not None:
        parts: list[list[Any]] = []
        for one, x in zip(found, inputs, strict=True):
            zeros = tuple(tuple(np.zeros((x.shape[1], part.shape[-1])) for part in half) for half in like)
            parts.append([np.reshape(part, (x.shape[1], -1)) for half in one or zeros for part in half])
        joined = [np.concatenate(each) for each in zip(*parts, strict=True)]
        state = tuple(joined[: len(like[0])]), tuple(joined[len(like[0]) :])
    return np.concatenate(padded, axis=1), None if (lengths == steps).all() else lengths, state


def _steps_first(core: dict[str, Any]) -> NDArray[Any]:
    x: NDArray[Any] = core["x"]
    if x.ndim == 2:
        return x[:, None]
    return x.swapaxes(0, 1) if core["batch_first"] else x
