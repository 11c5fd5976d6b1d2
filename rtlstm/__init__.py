"""Turns a trained LSTM into FPGA hardware, proves it bit for bit, and drives it.

>>> import rtlstm
>>> build = rtlstm.compile(model, calibration=x, lanes=8, macs=4)
>>> y, state = build.run(x)
>>> with build.open("verilator") as acc:
...     y, state = acc.run(x)

Every name is imported when it is first used: the driver alone needs numpy and pydantic.
"""

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

_CHECKOUT = Path(__file__).parents[1]
if (_CHECKOUT / "pyproject.toml").is_file() and (_CHECKOUT / "spec").is_dir():
    # Python that is started in a checkout finds this folder before the installed package, and the other
    # folders stand beside it.
    __path__.append(str(_CHECKOUT))

if TYPE_CHECKING:
    from rtlstm.gen.builds.compiled import Build, compile
    from rtlstm.gen.frontends import ReadOptions, ReadResult, inspect_model, read_model
    from rtlstm.gen.quantise.quantiser import QuantizationSettings
    from rtlstm.host import Accelerator, AsyncAccelerator, SharedAccelerator, Stream
    from rtlstm.host.values import CodesWarning, SaturationWarning
    from rtlstm.spec.cells.description import CellBuilder
    from rtlstm.spec.errors import (
        BuildError,
        ConfigurationError,
        DeviceError,
        ImageError,
        InputError,
        ModelError,
        RtlstmError,
        ToolError,
    )
    from rtlstm.spec.network import Custom, Dense, Gru, Lstm, Network, Rnn
    from rtlstm.spec.parameters import Parameters

    __version__: str

__all__ = [
    "Accelerator",
    "AsyncAccelerator",
    "Build",
    "BuildError",
    "CellBuilder",
    "CodesWarning",
    "ConfigurationError",
    "Custom",
    "Dense",
    "DeviceError",
    "Gru",
    "ImageError",
    "InputError",
    "Lstm",
    "ModelError",
    "Network",
    "Parameters",
    "QuantizationSettings",
    "ReadOptions",
    "ReadResult",
    "Rnn",
    "RtlstmError",
    "SaturationWarning",
    "SharedAccelerator",
    "Stream",
    "ToolError",
    "__version__",
    "compile",
    "inspect_model",
    "read_model",
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
    "rtlstm.gen.builds.compiled": ("Build", "compile"),
    "rtlstm.gen.frontends": ("ReadOptions", "ReadResult", "inspect_model", "read_model"),
    "rtlstm.gen.quantise.quantiser": ("QuantizationSettings",),
    "rtlstm.host": ("Accelerator", "AsyncAccelerator", "SharedAccelerator", "Stream"),
    "rtlstm.host.values": ("CodesWarning", "SaturationWarning"),
    "rtlstm.spec.cells.description": ("CellBuilder",),
    "rtlstm.spec.errors": _ERRORS,
    "rtlstm.spec.network": ("Custom", "Dense", "Gru", "Lstm", "Network", "Rnn"),
    "rtlstm.spec.parameters": ("Parameters",),
}
"""The module that each public name is imported from."""
_HOME = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("rtlstm")
    if name not in _HOME:
        raise AttributeError(f"module 'rtlstm' has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
