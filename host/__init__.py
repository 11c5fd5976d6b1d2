"""The driver of rtlstm's cores. It needs numpy and pydantic, and the packages of the chosen backend."""

from rtlstm.host.accelerator import Accelerator
from rtlstm.host.raw_values import CodesWarning, SaturationWarning, argmax, softmax, top_k
from rtlstm.host.shared import AsyncAccelerator, AsyncStream, SharedAccelerator, SharedStream
from rtlstm.host.stream import Stream
from rtlstm.host.transport import Transport, backend_names, open_transport
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
from rtlstm.spec.image import WeightImage
from rtlstm.spec.packing import pack, unpack

__all__ = [
    "Accelerator",
    "AsyncAccelerator",
    "AsyncStream",
    "BuildError",
    "CodesWarning",
    "ConfigurationError",
    "DeviceError",
    "ImageError",
    "InputError",
    "ModelError",
    "RtlstmError",
    "SaturationWarning",
    "SharedAccelerator",
    "SharedStream",
    "Stream",
    "ToolError",
    "Transport",
    "WeightImage",
    "argmax",
    "backend_names",
    "open_transport",
    "pack",
    "softmax",
    "top_k",
    "unpack",
]
