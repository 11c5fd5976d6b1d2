"""PyTorch modules in the forms in which they are read."""

import warnings
from pathlib import Path
from typing import Any

from support.lazy import torch


def in_form(
    form: str, module: Any, inputs: tuple[Any, ...], folder: Path, *, saved: bool = True, **how: Any
) -> Any:
    """A module as it is, ``exported``, as ``trace`` or ``script``, or in ``onnx`` by either exporter.

    ``dynamo`` is the newer one. It is a file, or the object if it is not ``saved``; ``how`` is for the
    exporter.
    """
    with warnings.catch_warnings(action="ignore"):
        if form in ("onnx", "dynamo"):
            path = folder / "model.onnx"
            torch.onnx.export(module, inputs, path, **{"dynamo": form == "dynamo", "verbose": False} | how)
            return path
        if form == "exported":
            made = torch.export.export(module, inputs, **how)
            save, path = torch.export.save, folder / "model.pt2"
        elif form in ("trace", "script"):
            made = torch.jit.script(module) if form == "script" else torch.jit.trace(module, inputs)
            save, path = torch.jit.save, folder / "model.pt"
        else:
            return module
        if not saved:
            return made
        save(made, path)
        return path
