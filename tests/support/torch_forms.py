"""PyTorch modules in the forms in which they are read."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np

from rtlstm.gen.frontends import ReadOptions, ReadResult, read_model
from rtlstm.sim.reference import run_float
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


def equals(
    source: Any, module: Any, *inputs: Any, options: ReadOptions | None = None, atol: float = 1e-5
) -> ReadResult:
    """Assert that what is read of a source gives the module's results of these inputs; return it.

    The results are of every step, or of the last one. Of a tuple they are the first.
    """
    result = read_model(source, options)
    with torch.no_grad():
        wanted = module(*inputs)
    wanted = (wanted[0] if isinstance(wanted, tuple) else wanted).numpy()
    arrays = tuple(each.numpy() for each in inputs)
    x = result.looked_up(arrays if len(arrays) > 1 else arrays[0])
    first = result.report.batch_first
    steps = x.swapaxes(0, 1) if first else x
    state = None if result.initial_state is None else result.initial_state_of(steps.shape[1])
    y = run_float(result.network, steps, state).y
    y = y[-1] if wanted.ndim < y.ndim else y.swapaxes(0, 1) if first else y
    np.testing.assert_allclose(y, wanted, atol=atol)
    return result
