"""Front ends: read a trained model into rtlstm's network.

>>> result = read_model("model.onnx")
>>> result.network.layers
>>> result.report.notes

ONNX, Keras, safetensors, TFLite, TorchScript, exported (``.pt2``) and ``.nam`` files, PyTorch state dicts,
``torch.nn.Module`` and ``torch.export.ExportedProgram`` objects are read.
Every attribute of a recurrent layer is supported, or an error names it. :func:`inspect_model` returns the
same report, and does not raise for a refused model.
"""

import re
import sys
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import numpy as np

from rtlstm.gen.frontends.child import FOREIGN, read_in_child
from rtlstm.gen.frontends.plugins import FRONT_ENDS, FrontEnd, detect, find_front_end, offered
from rtlstm.gen.frontends.reading import ModelReport, NodeReport, ReadOptions, ReadResult, ReportBuilder
from rtlstm.host.embeddings import Embedding
from rtlstm.spec.errors import ConfigurationError, ModelError
from rtlstm.spec.network import Network

__all__ = [
    "FRONT_ENDS",
    "Embedding",
    "FrontEnd",
    "ModelReport",
    "NodeReport",
    "ReadOptions",
    "ReadResult",
    "inspect_model",
    "read_if_needed",
    "read_model",
    "try_model",
]


def read_model(source: Any, options: ReadOptions | None = None, *, name: str | None = None) -> ReadResult:
    """Read a model's recurrent layers and the dense layers around them.

    Parameters
    ----------
    source:
        Path of an ONNX, Keras, safetensors, TFLite, TorchScript, ``.pt2`` or ``.nam`` file or of a PyTorch
        state dict, a ``torch.nn.Module`` or a ``torch.export.ExportedProgram``.
    options:
        Which part of the model to take; by default everything from its only LSTM on.
    name:
        Name of the network; by default from the file's or the class's name.

    Raises
    ------
    ModelError
        If the model cannot be read or is not supported; the message says why.
    ToolError
        If reading it needs a package that is not installed.
    """
    source = _unwrapped(source)
    report = _builder(source, name)
    return _read(source, options or ReadOptions(), report)


def read_if_needed(model: Any, options: ReadOptions | None = None, *, name: str | None = None) -> ReadResult:
    """Return a result of :func:`read_model` as it is, or that of a network or a model: what all take that
    take models.

    Raises what :func:`read_model` raises, and ConfigurationError if there are options, but the model is read
    already.
    """
    if not isinstance(model, Network | ReadResult):
        return read_model(model, options, name=name)
    if options is not None and options.model_fields_set:
        raise ConfigurationError(
            f"{', '.join(sorted(options.model_fields_set))} choose what is read from a model, but this one "
            "is read already; give them to read_model"
        )
    if isinstance(model, ReadResult):
        return model
    return ReadResult(network=model, report=ModelReport(source="", format="", batch_first=False))


def inspect_model(source: Any, options: ReadOptions | None = None, *, name: str | None = None) -> ModelReport:
    """Report on a model, with :attr:`ModelReport.refusal` set where :func:`read_model` would raise.

    Raises
    ------
    ToolError
        If reading it needs a package that is not installed.
    """
    found = try_model(source, options, name=name)
    return found.report if isinstance(found, ReadResult) else found


def try_model(
    source: Any, options: ReadOptions | None = None, *, name: str | None = None
) -> ReadResult | ModelReport:
    """Read a model; if that is refused, return the report that says why.

    Raises ToolError if reading it needs a package that is not installed.
    """
    source = _unwrapped(source)
    report = _builder(source, name)
    try:
        return _read(source, options or ReadOptions(), report)
    except ModelError as error:
        return report.build(str(error))


def _read(source: Any, options: ReadOptions, report: ReportBuilder) -> ReadResult:
    try:
        # The check of finite numbers refuses what overflows, with a name.
        with np.errstate(over="ignore", invalid="ignore"):
            network = _dispatch(source, options, report)
            report.find_integers(network)
            frames = network.frames
            if frames > 1:
                report.note(
                    f"the model's convolutions make one output of {frames} frames: a step of the core takes "
                    f"{frames} frames of {network.inputs // frames} values at once, side by side; the driver "
                    f"takes the model's frames, a multiple of {frames}"
                )
            if report.batch_first is None and not network.pseudo_layers:
                report.takes_steps_first()  # Without states, either order gives the same.
        return ReadResult(
            network=network,
            report=report.build(),
            embeddings=tuple(report.embeddings),
            initial_state=report.initial_state,
        )
    except (ModelError, ConfigurationError) as error:
        text = str(error)
    except (MemoryError, RecursionError) as error:
        text = (
            f"is too large or too deep to be read ({type(error).__name__}); take the part around the "
            "recurrent layers alone"
        )
    raise ModelError(f"{source if isinstance(source, str | Path) else report.source}: {text}")


def _dispatch(source: Any, options: ReadOptions, report: ReportBuilder) -> Network:
    other = find_front_end(source)
    if other is not None:
        front_end = FRONT_ENDS[other]
        return offered(FRONT_ENDS.label(other), Network, lambda: front_end.read(source, options, report))
    kind = "module" if is_module(source) else "exported" if is_live(source) else detect(Path(source))
    if options.begin is not None and kind in ("nam", "safetensors", "torch"):
        raise ModelError("`begin` names a tensor of a model's graph, and this file has none; leave it out")
    model = source if is_live(source) else Path(source)
    if kind in FOREIGN:
        return read_in_child(model, kind, options, report)
    # Each reader imports its own optional packages, so none is needed for the others.
    module, name = _READERS[kind]
    network: Network = getattr(import_module(f"rtlstm.gen.frontends.{module}"), name)(model, options, report)
    return network


_READERS: Final = {
    "exported": ("torch.exported", "read_exported"),
    "module": ("torch", "read_module"),
    "nam": ("tensors", "read_nam"),
    "onnx": ("onnx.translate", "read_onnx"),
    "safetensors": ("tensors", "read_safetensors"),
    "tflite": ("tflite", "read_tflite"),
}
"""The kinds of models that this process reads, beside :data:`FOREIGN`: the module, and the function."""


def _unwrapped(source: Any) -> Any:
    """Return the module inside ``torch.compile``'s or ``DataParallel``'s wrapper: it computes the same."""
    while is_module(source):
        wrapper = type(source).__name__
        if wrapper == "OptimizedModule":
            source = source._orig_mod
        elif wrapper in ("DataParallel", "DistributedDataParallel"):
            source = source.module
        else:
            break
    return source


def is_module(source: Any) -> bool:
    """Return whether it is a module of PyTorch, without importing that."""
    torch = sys.modules.get("torch")  # A caller that has a module has imported torch.
    return torch is not None and isinstance(source, torch.nn.Module)


def is_live(source: Any) -> bool:
    """Whether ``source`` is an object of PyTorch: a module or an exported program."""
    torch = sys.modules.get("torch")
    return is_module(source) or (torch is not None and isinstance(source, torch.export.ExportedProgram))


def _builder(source: Any, name: str | None) -> ReportBuilder:
    label = stem = type(source).__name__
    if isinstance(source, str | Path):
        label, stem = Path(source).name or str(source), Path(source).name.split(".")[0]
    elif not is_live(source) and find_front_end(source) is None:
        raise ModelError(
            "a model must be a path, a torch.nn.Module or a torch.export.ExportedProgram, not "
            f"{type(source).__name__}"
        )
    builder = ReportBuilder(label)
    clean = re.sub(r"\W+", "_", stem, flags=re.ASCII).strip("_").lower()
    builder.name = name or (clean if clean[:1].isalpha() else f"network_{clean}".rstrip("_"))
    return builder
