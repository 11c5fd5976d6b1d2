"""Reads LSTM and dense layers from named tensors: safetensors files and PyTorch state dicts."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from rtlstm.gen.frontends.arrays import expect_shape, import_extra, listed, to_float64
from rtlstm.gen.frontends.chain import Chain, LstmWeights
from rtlstm.gen.frontends.gates import reorder
from rtlstm.gen.frontends.report import ReadOptions, ReportBuilder
from rtlstm.spec.errors import ModelError
from rtlstm.spec.network import Activation, Network

__all__ = ["lstm_weights", "read_tensors"]

_LSTM_NAME = re.compile(
    r"^(?P<prefix>.*?)(?P<kind>(?:weight|bias)_(?:ih|hh|hr))(?:_l(?P<layer>\d+))?(?P<reverse>_reverse)?$"
)
_DTYPES = {"F16": "<f2", "F32": "<f4", "F64": "<f8"}
_CELLS = {3: "a GRU", 1: "a plain RNN"}
_SYNTAX = "NAME, NAME:ACTIVATION or relu:NAME:ACTIVATION"

Tensors = dict[str, Any]


def read_tensors(path: Path, kind: str, options: ReadOptions, report: ReportBuilder) -> Network:
    """Read a safetensors file or a state dict saved by ``torch.save``."""
    if kind == "safetensors":
        report.format = "safetensors"
        tensors = _load_safetensors(path)
    else:
        report.format = "torch state dict"
        tensors = _load_state_dict(path, report)
    if options.output is not None:
        raise ModelError("the option output is for models with a graph; choose dense layers with dense")
    if not tensors:
        raise ModelError("must hold tensors, but has none")
    return _Reader(tensors, options, report).read()


def _load_safetensors(path: Path) -> Tensors:
    safetensors = import_extra("safetensors", "")
    try:
        items = safetensors.deserialize(path.read_bytes())
    except (safetensors.SafetensorError, OSError) as error:
        raise ModelError(f"must be a safetensors file, but is damaged: {error}") from None
    tensors: Tensors = {}
    for name, item in sorted(items, key=lambda pair: pair[0]):  # the library's order changes between runs
        dtype, shape, data = item["dtype"], item["shape"], bytes(item["data"])
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


def _load_state_dict(path: Path, report: ReportBuilder) -> Tensors:
    torch = import_extra("torch", "torch")
    try:
        loaded = torch.load(str(path), map_location="cpu", weights_only=True)
    except Exception:  # torch raises several kinds, with long texts, for damaged and for refused files
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
    for name, tensor in state.items():
        if not isinstance(tensor, torch.Tensor):
            continue
        plain = tensor.detach()
        if plain.dtype == torch.bfloat16:
            plain = plain.float()
        floating = plain.dtype in (torch.float16, torch.float32, torch.float64)
        if floating and plain.layout == torch.strided:
            tensors[str(name)] = plain.numpy()
        else:
            tensors[str(name)] = _Other(str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape))
    return tensors


def _find_states(torch: Any, loaded: Any) -> dict[str, Any]:
    def is_state(value: Any) -> bool:
        return isinstance(value, dict) and any(isinstance(item, torch.Tensor) for item in value.values())

    if is_state(loaded):
        return {"": loaded}
    if not isinstance(loaded, dict):
        return {}
    return {str(key): value for key, value in loaded.items() if is_state(value)}


def lstm_weights(get: Any, names: dict[str, str], where: str) -> LstmWeights:
    """Build one layer's weights; ``names`` gives the tensor of each kind that is present.

    ``get`` returns a tensor by its name.
    """
    for kind in ("weight_ih", "weight_hh"):
        if kind not in names:
            raise ModelError(f"{where} must have {kind}, but it is missing")
    w_ih, w_hh = (
        to_float64(get(names[kind]), f"{where}: tensor {names[kind]!r}")
        for kind in ("weight_ih", "weight_hh")
    )
    if w_ih.ndim != 2 or w_hh.ndim != 2 or 0 in (*w_ih.shape, *w_hh.shape):
        raise ModelError(f"{where} must have weights with 2 axes, not shapes {w_ih.shape} and {w_hh.shape}")
    hidden = w_hh.shape[1]
    rows, rest = divmod(w_ih.shape[0], hidden)
    if not rest and rows in _CELLS:
        raise ModelError(
            f"{where} is {_CELLS[rows]} by its shape ({w_ih.shape[0]} rows for {hidden} units); "
            f"only LSTM (4 x {hidden} rows) is supported"
        )
    expect_shape(w_ih, (4 * hidden, w_ih.shape[1]), f"{where}: tensor {names['weight_ih']!r}")
    expect_shape(w_hh, (4 * hidden, hidden), f"{where}: tensor {names['weight_hh']!r}")
    given = [kind for kind in ("bias_ih", "bias_hh") if kind in names]
    if len(given) == 1:
        raise ModelError(f"{where} must have both biases or none, but has only {names[given[0]]!r}")
    bias = np.zeros(4 * hidden)
    for kind in given:
        part = to_float64(get(names[kind]), f"{where}: tensor {names[kind]!r}")
        expect_shape(part, (4 * hidden,), f"{where}: tensor {names[kind]!r}")
        bias = bias + part
    return LstmWeights(reorder(w_ih, "torch"), reorder(w_hh, "torch"), reorder(bias, "torch"))


@dataclass(frozen=True)
class _DenseChoice:
    name: str
    activation: Activation = "identity"
    input_relu: bool = False


def _parse_dense(text: str) -> _DenseChoice:
    parts = text.split(":")
    relu = len(parts) > 2 and parts[0] == "relu"
    name, *rest = parts[1:] if relu else parts
    activation = rest[0] if rest else "identity"
    if len(rest) > 1 or not name or activation not in get_args(Activation):
        raise ModelError(
            f"dense must be {_SYNTAX} with an ACTIVATION of {listed(get_args(Activation))}, not {text!r}"
        )
    name = name.removesuffix(".weight")
    return _DenseChoice(name, activation, relu)  # type: ignore[arg-type]


class _Reader:
    """Finds the layers among the tensors."""

    def __init__(self, tensors: Tensors, options: ReadOptions, report: ReportBuilder) -> None:
        self.tensors, self.options, self.report = tensors, options, report
        self.used: set[str] = set()
        self.chain = Chain("choose other dense layers with dense")
        # prefix -> layer number (None for a cell) -> kind -> tensor
        self.groups: dict[str, dict[int | None, dict[str, str]]] = {}
        self.odd: dict[str, list[str]] = {}
        for name in tensors:
            match = _LSTM_NAME.match(name)
            if match is None:
                continue
            prefix, layer = match["prefix"], None if match["layer"] is None else int(match["layer"])
            if match["reverse"] or match["kind"] == "weight_hr":
                self.odd.setdefault(prefix, []).append(name)
            self.groups.setdefault(prefix, {}).setdefault(layer, {})[match["kind"]] = name

    def read(self) -> Network:
        report = self.report
        last = ""
        for prefix in self._prefixes():
            last = prefix or "lstm"
            self._add_lstm(prefix)
        report.input = f"the input of {next(iter(report.nodes)).name}"
        report.output = f"the output of {self._add_dense() or last.rstrip('.')}"
        self._report_rest()
        return self.chain.finish(report.name)

    # LSTM layers

    def _prefixes(self) -> list[str]:
        names = listed(prefix.rstrip(".") or "(no prefix)" for prefix in self.groups)
        if not self.groups:
            raise ModelError(
                "must hold an LSTM (weight_ih_l0, weight_hh_l0, ... by PyTorch's names), but there is none "
                f"among {listed(self.tensors)}"
            )
        if self.options.lstm is None:
            if len(self.groups) > 1:
                raise ModelError(
                    f"must hold one LSTM, but has {len(self.groups)}: {names}; choose with lstm (--lstm), "
                    "or stack several as PREFIX,PREFIX"
                )
            return list(self.groups)
        chosen = []
        for part in self.options.lstm.split(","):
            wanted = part.strip().rstrip(".")
            found = [prefix for prefix in self.groups if prefix.rstrip(".") == wanted]
            if not found:
                raise ModelError(
                    f"lstm must name an LSTM's prefix, but there is no {wanted!r}; it has {names}"
                )
            chosen += found
        return chosen

    def _add_lstm(self, prefix: str) -> None:
        title = prefix.rstrip(".")
        if prefix in self.odd:
            odd = self.odd[prefix]
            what = (
                "bidirectional" if any(name.endswith("_reverse") for name in odd) else "projected (proj_size)"
            )
            self.report.node(title or "lstm", "LSTM", "refused", f"{what}: {listed(odd)}")
            raise ModelError(
                f"LSTM {title or 'lstm'!r} is {what}, which is not supported (tensors {listed(odd)}); "
                "use a forward LSTM without projection"
            )
        layers = self.groups[prefix]
        numbers = sorted(number for number in layers if number is not None)
        if (None in layers and numbers) or numbers != list(range(len(numbers))):
            found = [name for kinds in layers.values() for name in kinds.values()]
            raise ModelError(
                f"LSTM {title or 'lstm'!r} must have layers l0, l1, ... without gaps, or be one cell; "
                f"it has {listed(found)}"
            )
        for number in numbers or (None,):
            names = layers[number]
            label = title or "lstm"
            if number is not None and len(numbers) > 1:
                label = f"{label}_l{number}"
            where = f"LSTM layer {label!r}"
            weights = lstm_weights(self.tensors.__getitem__, names, where)
            self.chain.add_lstm(label, where, weights)
            self.used.update(names.values())
            self.report.node(label, "LSTM", "core", f"{weights.w_ih.shape[1]} -> {weights.w_hh.shape[1]}")

    # Dense layers

    def _candidates(self) -> list[str]:
        names = []
        for name, tensor in self.tensors.items():
            base = name.removesuffix(".weight")
            if name in self.used or base == name or not self._is_dense(tensor):
                continue
            names.append(base)
        return names

    @staticmethod
    def _is_dense(tensor: Any) -> bool:
        return tensor.ndim == 2 or (tensor.ndim > 2 and set(tensor.shape[2:]) == {1})

    def _leftovers(self, known: set[str]) -> list[str]:
        return [name for name in self.tensors if name not in self.used | known]

    def _add_dense(self) -> str:
        """Add the dense layers and return the last one's name, or nothing."""
        choices = self._guess() if self.options.dense is None else list(map(_parse_dense, self.options.dense))
        for choice in choices:
            weight, bias = self._dense_tensors(choice.name)
            where = f"dense layer {choice.name!r}"
            if choice.input_relu:
                self.chain.add_activation("relu", f"the relu of {where}")
            self.chain.add_dense(choice.name, where, weight, bias)
            self.chain.add_activation(choice.activation, f"the {choice.activation} of {where}")
            shape = f"{weight.shape[1]} -> {weight.shape[0]}, {choice.activation}"
            if choice.input_relu:
                shape += ", relu on its input"
            self.report.node(choice.name, "dense", "core", shape)
        return choices[-1].name if choices else ""

    def _guess(self) -> list[_DenseChoice]:
        """Without a choice: one dense layer that fits, and nothing left over."""
        candidates = self._candidates()
        known = {f"{name}.{part}" for name in candidates for part in ("weight", "bias")}
        leftovers = self._leftovers(known)
        if len(candidates) > 1 or leftovers:
            raise ModelError(
                "tensors beside the LSTM do not say how they are connected, nor which activations are used: "
                f"{listed(self._leftovers(set()))}; name the dense layers in order as dense (--dense "
                f"{_SYNTAX}), or none of them as an empty list"
            )
        for name in candidates:
            self.report.note(
                f"a file of tensors names no activations: dense layer {name!r} is taken with none "
                f"(else say so, for example --dense {name}:sigmoid)"
            )
        return [_DenseChoice(name) for name in candidates]

    def _dense_tensors(self, name: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        where = f"dense layer {name!r}"
        if f"{name}.weight" not in self.tensors:
            raise ModelError(
                f"{where} must have a tensor {name + '.weight'!r}; there are {listed(self._candidates())}"
            )
        tensor = self.tensors[f"{name}.weight"]
        if not self._is_dense(tensor):
            raise ModelError(
                f"{where} must have a weight of shape (outputs, inputs), or a convolution of size 1, "
                f"not {tuple(tensor.shape)}"
            )
        weight = to_float64(tensor, f"{where}: tensor {name + '.weight'!r}").reshape(tensor.shape[:2])
        self.used.add(f"{name}.weight")
        bias = np.zeros(weight.shape[0])
        if f"{name}.bias" in self.tensors:
            bias = to_float64(self.tensors[f"{name}.bias"], f"{where}: tensor {name + '.bias'!r}")
            expect_shape(bias, (weight.shape[0],), f"{where}: tensor {name + '.bias'!r}")
            self.used.add(f"{name}.bias")
        return weight, bias

    def _report_rest(self) -> None:
        for name in self._leftovers(set()):
            shape = " x ".join(map(str, self.tensors[name].shape)) or "one number"
            self.report.node(name, "tensor", "outside", f"not named by the options ({shape})")
