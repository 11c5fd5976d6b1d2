"""Turns a trained LSTM into FPGA hardware, proves it bit for bit, and drives it.

>>> import rtlstm
>>> build = rtlstm.compile(model, calibration=x, lanes=8, macs=4)
>>> y, state = build.run(x)
>>> with build.open("verilator") as acc:
...     y, state = acc.run(x)

Every name is imported when it is first used: the driver alone needs numpy and pydantic.
"""

import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

_CHECKOUT = Path(__file__).parents[1]
if (_CHECKOUT / "pyproject.toml").is_file() and (_CHECKOUT / "spec").is_dir():
    # Python that is started in a checkout finds this folder before the installed package, and the other
    # folders stand beside it.
    __path__.append(str(_CHECKOUT))

if TYPE_CHECKING:
    from rtlstm.boards.bitstream import Bitstream
    from rtlstm.fpga.implementation import Implementation
    from rtlstm.gen.accuracy.records import ErrorReport
    from rtlstm.gen.builds.compare import Comparison
    from rtlstm.gen.builds.compiled import Build, compile
    from rtlstm.gen.builds.report import BuildReport
    from rtlstm.gen.builds.split import split
    from rtlstm.gen.frontends import ReadOptions, ReadResult, inspect_model, read_model
    from rtlstm.gen.quantise.quantiser import QuantizationSettings
    from rtlstm.host import (
        Accelerator,
        AsyncAccelerator,
        AsyncStream,
        SharedAccelerator,
        SharedStream,
        Stream,
        Transport,
        WeightImage,
    )
    from rtlstm.host.raw_values import CodesWarning, SaturationWarning
    from rtlstm.spec.cells.description import CellBuilder
    from rtlstm.spec.errors import (
        BuildError,
        ConfigurationError,
        DeviceError,
        ImageError,
        InputError,
        ModelError,
        NoteWarning,
        RtlstmError,
        ToolError,
    )
    from rtlstm.spec.layout import LayoutWarning
    from rtlstm.spec.manifest import Manifest
    from rtlstm.spec.network import Bidirectional, Custom, Dense, Gru, Lstm, LstmNorms, Network, Norm, Rnn
    from rtlstm.spec.parameters import Parameters

    __version__: str

__all__ = [
    "Accelerator",
    "AsyncAccelerator",
    "AsyncStream",
    "Bidirectional",
    "Bitstream",
    "Build",
    "BuildError",
    "BuildReport",
    "CellBuilder",
    "CodesWarning",
    "Comparison",
    "ConfigurationError",
    "Custom",
    "Dense",
    "DeviceError",
    "ErrorReport",
    "Gru",
    "ImageError",
    "Implementation",
    "InputError",
    "LayoutWarning",
    "Lstm",
    "LstmNorms",
    "Manifest",
    "ModelError",
    "Network",
    "Norm",
    "NoteWarning",
    "Parameters",
    "QuantizationSettings",
    "ReadOptions",
    "ReadResult",
    "Rnn",
    "RtlstmError",
    "SaturationWarning",
    "SharedAccelerator",
    "SharedStream",
    "Stream",
    "ToolError",
    "Transport",
    "WeightImage",
    "__version__",
    "compile",
    "inspect_model",
    "read_model",
    "split",
]

_ERRORS = (
    "BuildError",
    "ConfigurationError",
    "DeviceError",
    "ImageError",
    "InputError",
    "ModelError",
    "RtlstmError",
    "ToolError",
)
_HOMES = {
    "rtlstm.boards.bitstream": ("Bitstream",),
    "rtlstm.fpga.implementation": ("Implementation",),
    "rtlstm.gen.accuracy.records": ("ErrorReport",),
    "rtlstm.gen.builds.compare": ("Comparison",),
    "rtlstm.gen.builds.compiled": ("Build", "compile"),
    "rtlstm.gen.builds.report": ("BuildReport",),
    "rtlstm.gen.builds.split": ("split",),
    "rtlstm.gen.frontends": ("ReadOptions", "ReadResult", "inspect_model", "read_model"),
    "rtlstm.gen.quantise.quantiser": ("QuantizationSettings",),
    "rtlstm.host": (
        "Accelerator",
        "AsyncAccelerator",
        "AsyncStream",
        "SharedAccelerator",
        "SharedStream",
        "Stream",
        "Transport",
        "WeightImage",
    ),
    "rtlstm.host.raw_values": ("CodesWarning", "SaturationWarning"),
    "rtlstm.spec.cells.description": ("CellBuilder",),
    "rtlstm.spec.errors": (*_ERRORS, "NoteWarning"),
    "rtlstm.spec.layout": ("LayoutWarning",),
    "rtlstm.spec.manifest": ("Manifest",),
    "rtlstm.spec.network": (
        "Bidirectional",
        "Custom",
        "Dense",
        "Gru",
        "Lstm",
        "LstmNorms",
        "Network",
        "Norm",
        "Rnn",
    ),
    "rtlstm.spec.parameters": ("Parameters",),
}
"""The module that each public name is imported from."""
_HOME = {name: home for home, names in _HOMES.items() for name in names}


def _is_here(module: str) -> bool:
    """Whether a module is part of this installation; of its packages, the outer ones are imported."""
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


class _AbsentNames:
    """Refuses ``from rtlstm import NAME``: import looks for a module where it finds no attribute."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        package, _, public = name.rpartition(".")
        if package == "rtlstm" and public in _HOME and public not in __all__:
            from rtlstm.spec.errors import AbsentImportError

            raise AbsentImportError(_absent(name))


if not _is_here("rtlstm.gen"):
    # The driver alone: what it lacks is not offered, and refused by name.
    __all__[:] = [name for name in __all__ if name not in _HOME or _is_here(_HOME[name])]
    sys.meta_path.append(_AbsentNames)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return _version()
    if name not in _HOME:
        raise AttributeError(f"module 'rtlstm' has no attribute {name!r}")
    value = getattr(_import(_HOME[name], f"rtlstm.{name}"), name)
    globals()[name] = value
    return value


def _version() -> str:
    from importlib.metadata import version

    from rtlstm.spec.errors import distribution

    return version(distribution())


def _import(module: str, what: str) -> ModuleType:
    """Import one of the package's modules, or say what to install if it is not part of this installation."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("rtlstm."):
            raise
        from rtlstm.spec.errors import AbsentError

        raise AbsentError(_absent(what)) from None


def _absent(what: str) -> str:
    """Return what to say about a part of rtlstm that its driver alone lacks."""
    return (
        f"{what} is not part of rtlstm-driver, which only drives builds; install the whole of rtlstm in its "
        "place: pip uninstall rtlstm-driver, then pip install rtlstm"
    )


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
