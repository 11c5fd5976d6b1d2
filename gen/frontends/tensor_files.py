"""Loads files of named tensors: safetensors files and PyTorch state dicts."""

import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from rtlstm.gen.frontends.arrays import import_extra, listed
from rtlstm.gen.frontends.reading import ReportBuilder
from rtlstm.spec.archives import open_archive
from rtlstm.spec.budget import Budget
from rtlstm.spec.errors import ModelError
from rtlstm.spec.files import read_file

_PACKED = "packed by torch.ao.quantization, as quantize_dynamic does"
_PACKED_LINEAR = "._packed_params._packed_params"
_PACKED_NAMES = (b"_packed_params", b"_all_weight_values")
"""What names in a state dict of torch.ao.quantization have, where the weights are no tensors."""
_HEAD = 1 << 20
"""Bytes of a file in which a state dict of such modules names one."""
_DTYPES = {"F16": "<f2", "F32": "<f4", "F64": "<f8"}

Tensors = dict[str, Any]
"""Arrays by name; of a tensor whose type no layer can use, only its type and shape."""


def load_safetensors(path: Path) -> Tensors:
    """Load a safetensors file."""
    safetensors = import_extra("safetensors", "")
    try:
        items = safetensors.deserialize(read_file(path))
    except (safetensors.SafetensorError, OSError) as error:
        raise ModelError(f"must be a safetensors file, but is damaged: {error}") from None
    tensors: Tensors = {}
    budget = Budget()
    for name, item in sorted(items, key=lambda pair: pair[0]):  # the library's order changes between runs
        dtype, shape, data = item["dtype"], item["shape"], bytes(item["data"])
        budget.take(shape, f"tensor {name!r}")
        if dtype == "BF16":
            wide = np.frombuffer(data, dtype="<u2").astype("<u4") << 16
            tensors[name] = wide.view("<f4").reshape(shape)
        elif dtype in _DTYPES:
            tensors[name] = np.frombuffer(data, dtype=_DTYPES[dtype]).reshape(shape)
        else:
            tensors[name] = _Other(dtype, tuple(shape))
    return tensors


@dataclass(frozen=True)
class _Other:
    """A tensor of a type that no layer can use; refused only if a layer needs it."""

    type_name: str
    shape: tuple[int, ...]

    @property
    def dtype(self) -> Any:
        return type("dtype", (), {"name": self.type_name})

    @property
    def ndim(self) -> int:
        return len(self.shape)


def load_state_dict(file: BinaryIO, report: ReportBuilder) -> Tensors:
    """Load a state dict saved by ``torch.save``; none of its code runs."""
    torch = import_extra("torch", "torch")
    try:
        if zipfile.is_zipfile(file):
            with open_archive(file) as archive:
                sizes = [member.file_size for member in archive.infolist()]
            Budget().take([sum(sizes) // 8], "what the archive unpacks to, in float64,")
        file.seek(0)
        loaded = torch.load(file, map_location="cpu", weights_only=True)
    except ModelError:
        raise
    except Exception:  # torch raises several kinds, with long texts, for damaged and for refused files
        file.seek(0)
        head = file.read(_HEAD)
        if any(name in head for name in _PACKED_NAMES):
            raise ModelError(f"must hold tensors, but {quantised_refusal()}") from None
        raise ModelError(
            "must be a state dict saved with torch.save(model.state_dict(), path), but is damaged or holds "
            "other objects; pickled modules are not loaded, for they can run code"
        ) from None
    states = _find_states(torch, loaded)
    if len(states) != 1:
        raise ModelError(
            "must hold one state dict (names to tensors), but has "
            + (listed(states) if states else type(loaded).__name__)
        )
    key, state = next(iter(states.items()))
    if key:
        report.note(f"the state dict is the entry {key!r} of the file")
    tensors: Tensors = {}
    packed = [str(name).removesuffix(_PACKED_LINEAR) for name in state if str(name).endswith(_PACKED_LINEAR)]
    inside = {
        str(name)
        for name in state
        for owner in packed
        if str(name) in (f"{owner}.scale", f"{owner}.zero_point")
        or str(name).startswith(f"{owner}._packed_params.")
    }
    others = [str(name) for name, value in state.items() if not isinstance(value, torch.Tensor)]
    others = [name for name in others if name not in inside]
    if others:
        report.note(f"left out of the state dict, since they are no tensors: {listed(others)}")
    budget = Budget()
    for name, tensor in state.items():
        if str(name).endswith(_PACKED_LINEAR):
            tensors[f"{str(name).removesuffix(_PACKED_LINEAR)}.weight"] = _packed_weight(tensor)
        if not isinstance(tensor, torch.Tensor) or str(name) in inside:
            continue
        if not tensor.is_nested:
            budget.take(tensor.shape, f"tensor {str(name)!r}")  # strides of 0 let one element stand for all
        tensors[str(name)] = _to_array(torch, tensor)
    return tensors


def quantised_refusal() -> str:
    """Return what is wrong with quantised modules of PyTorch, and what to do, as the end of a sentence."""
    return (
        f"has weights {_PACKED}; give the model, or its state dict, from before that: rtlstm quantises by "
        "itself, with `weight_bits=8`"
    )


def _packed_weight(value: Any) -> _Other:
    """The weight of a quantised Linear, which is refused if a layer needs it."""
    weight = value[0] if isinstance(value, tuple) and value else None
    kind = str(getattr(weight, "dtype", "an object")).removeprefix("torch.")
    return _Other(f"{kind} {_PACKED}", tuple(getattr(weight, "shape", ())))


def _to_array(torch: Any, tensor: Any) -> Any:
    plain, kind = tensor.detach(), str(tensor.dtype).removeprefix("torch.")
    if plain.is_nested:
        return _Other(f"{kind} nested", ())
    if plain.layout != torch.strided:
        layout = str(plain.layout).removeprefix("torch.")
        return _Other(f"{kind} in layout {layout} (to_dense() makes it plain)", tuple(plain.shape))
    if plain.device.type == "meta":
        return _Other(f"{kind} on the meta device, without values", tuple(plain.shape))
    if plain.dtype == torch.bfloat16:
        plain = plain.float()
    if plain.dtype in (torch.float16, torch.float32, torch.float64):
        return plain.resolve_neg().numpy()
    return _Other(kind, tuple(plain.shape))


def _find_states(torch: Any, loaded: Any) -> dict[str, Any]:
    def is_state(value: Any) -> bool:
        return isinstance(value, dict) and any(isinstance(item, torch.Tensor) for item in value.values())

    if is_state(loaded):
        return {"": loaded}
    if not isinstance(loaded, dict):
        return {}
    return {str(key): value for key, value in loaded.items() if is_state(value)}
