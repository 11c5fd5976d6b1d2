"""Reads files of weights without a graph: safetensors, PyTorch state dicts, and ``.nam``.

A layer of PyTorch's recurrent modules is made of its named parameters here, wherever these come from.
"""

import json
import re
import zipfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, BinaryIO, Final

import numpy as np

from rtlstm.gen.frontends.arrays import (
    CellKind,
    Floats,
    expect_shape,
    import_extra,
    listed,
    stacked_layer,
    to_float64,
)
from rtlstm.gen.frontends.flow import Flow
from rtlstm.gen.frontends.reading import LOOKED_UP, OWN_STATE, ROWS_READ, ReadOptions, ReportBuilder
from rtlstm.host.embeddings import Embedding
from rtlstm.spec.activations.functions import ACTIVATIONS, RELU, SIGMOID, TANH, ActivationFunction
from rtlstm.spec.errors import ModelError
from rtlstm.spec.files import MAX_TEXT, Budget, check_size, open_archive, read_file
from rtlstm.spec.network import Activation, Bidirectional, Dense, Gru, Lstm, Network, Rnn

Tensors = dict[str, Any]
"""Arrays by name; of a tensor whose type no layer can use, only its type and shape."""
_RECURRENT_NAME = re.compile(
    r"^(?P<prefix>.*?)(?P<kind>(?:weight|bias)_(?:ih|hh|hr))(?:_l(?P<layer>\d{1,9}))?(?P<reverse>_reverse)?$"
)
_SYNTAX = "NAME, NAME:ACTIVATION or relu:NAME:ACTIVATION"


def read_safetensors(path: Path, options: ReadOptions, report: ReportBuilder) -> Network:
    """Read a safetensors file."""
    report.format = "safetensors"
    return _read(load_safetensors(path), options, report)


def read_state_dict(file: BinaryIO, options: ReadOptions, report: ReportBuilder) -> Network:
    """Read a state dict saved by ``torch.save``."""
    report.format = "torch state dict"
    return _read(load_state_dict(file, report), options, report)


def _read(tensors: Tensors, options: ReadOptions, report: ReportBuilder) -> Network:
    if options.output is not None:
        raise ModelError("`output` is for models with a graph; choose dense layers with `dense`")
    if options.branches:
        raise ModelError("`branches` must be left out: only ONNX models with conditions have some")
    if not tensors:
        raise ModelError("must hold tensors, but has none")
    tensors = with_pruned(tensors)
    if options.dense == (_NONE,) and f"{_NONE}.weight" not in tensors:
        options = options.replace(dense=())
    return _Reader(tensors, options, report).read()


_NONE = "none"
"""Given in place of a dense layer: the file's are left out."""


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
    if len(rest) > 1 or not name or activation not in ACTIVATIONS:
        raise ModelError(
            f"`dense` must be {_SYNTAX} with an ACTIVATION of {listed(ACTIVATIONS)}, not {text!r}"
        )
    name = name.removesuffix(".weight")
    return _DenseChoice(name, activation, relu)


class _Reader:
    """Finds the layers among the tensors."""

    def __init__(self, tensors: Tensors, options: ReadOptions, report: ReportBuilder) -> None:
        self.tensors, self.options, self.report = tensors, options, report
        self.used: set[str] = set()
        self.flow = Flow.begin()
        # prefix -> layer number (None for a cell) -> whether reverse -> parameter -> tensor
        self.groups: dict[str, dict[int | None, dict[bool, dict[str, str]]]] = {}
        for name in tensors:
            match = _RECURRENT_NAME.match(name)
            if match is not None:
                number = None if match["layer"] is None else int(match["layer"])
                directions = self.groups.setdefault(match["prefix"], {}).setdefault(number, {})
                directions.setdefault(match["reverse"] is not None, {})[match["kind"]] = name

    def read(self) -> Network:
        report = self.report
        self._refuse_parts()
        last = ""
        for prefix in self._prefixes():
            last = prefix or "lstm"
            self._add_recurrent(prefix)
        self._add_tables()
        report.input = f"the input of {next(iter(report.nodes)).name}"
        report.output = f"the output of {self._add_dense() or last.rstrip('.')}"
        self._report_rest()
        return self.flow.network(report.name)

    def _refuse_parts(self) -> None:
        """Find weights that the file has in parts."""
        lstm, given = self.options.lstm, self.options.dense
        chosen = None if lstm is None else [part.strip() for part in lstm.split(",")]
        dense = None if given is None else [_parse_dense(text).name for text in given]
        for name in self.tensors:
            found = parts_refusal(name, self.tensors)
            if found is None:
                continue
            weight, refusal = found
            recurrent = _RECURRENT_NAME.match(weight)
            if recurrent is not None:
                needed = chosen is None or recurrent["prefix"].rstrip(".") in chosen
            else:
                needed = dense is None or weight.rpartition(".")[0] in dense
            if needed:
                raise ModelError(refusal)

    # Recurrent layers

    def _prefixes(self) -> list[str]:
        names = listed(prefix.rstrip(".") or "(no prefix)" for prefix in self.groups)
        if not self.groups:
            raise ModelError(
                "must hold an LSTM, GRU or RNN (weight_ih_l0, weight_hh_l0, ... by PyTorch's names), but "
                f"there is none among {listed(self.tensors)}"
            )
        if self.options.lstm is None:
            if len(self.groups) > 1:
                raise ModelError(
                    f"must hold one LSTM, but has {len(self.groups)}: {names}; choose with `lstm`, "
                    "or stack several as PREFIX,PREFIX"
                )
            return list(self.groups)
        chosen = []
        for part in self.options.lstm.split(","):
            wanted = part.strip().rstrip(".")
            found = [prefix for prefix in self.groups if prefix.rstrip(".") == wanted]
            if not found:
                raise ModelError(
                    f"`lstm` must name an LSTM's prefix, but there is no {wanted!r}; it has {names}"
                )
            chosen += found
        return chosen

    def _add_recurrent(self, prefix: str) -> None:
        title = prefix.rstrip(".") or "lstm"
        layers = self.groups[prefix]
        numbers = sorted(number for number in layers if number is not None)
        if (None in layers and numbers) or numbers != list(range(len(numbers))):
            found = [name for both in layers.values() for names in both.values() for name in names.values()]
            raise ModelError(
                f"LSTM {title!r} must have layers l0, l1, ... without gaps, or be one cell; "
                f"it has {listed(found)}"
            )
        for number in numbers or (None,):
            label = title if number is None or len(numbers) == 1 else f"{title}_l{number}"
            layer = self._layer(layers[number], label)
            kind = layer.forward.kind if isinstance(layer, Bidirectional) else layer.kind
            both = ", both directions" if isinstance(layer, Bidirectional) else ""
            self.flow = self.flow.recurrent(layer, f"LSTM layer {label!r}")
            self.report.node(label, kind.upper(), "core", f"{layer.inputs} -> {layer.outputs}{both}")
            if kind == "rnn":
                self.report.note(
                    f"a file of tensors does not say which activation the RNN {label!r} has: tanh is taken; "
                    "if it is relu, give the torch.nn.Module or an ONNX file"
                )

    def _layer(self, directions: dict[bool, dict[str, str]], label: str) -> Lstm | Gru | Rnn | Bidirectional:
        where = f"LSTM layer {label!r}"
        if False not in directions:
            raise ModelError(
                f"{where} must have a forward direction, but has only {listed(directions[True].values())}"
            )
        found = {}
        for reverse, names in directions.items():
            name = label if len(directions) == 1 else f"{label}_{'backward' if reverse else 'forward'}"
            found[reverse] = recurrent_layer(self.tensors.__getitem__, names, name, where, reverse=reverse)
            self.used.update(names.values())
        return bidirectional_layer(label, found[False], found[True], where) if True in found else found[False]

    # Dense layers

    def _candidates(self) -> list[str]:
        weights = [name for name in self.tensors if name.endswith(".weight") and name not in self.used]
        names = [name.removesuffix(".weight") for name in weights if self._is_dense(self.tensors[name])]
        return [name for name in names if not self._is_table(name)]

    def _is_table(self, name: str) -> bool:
        """Whether a tensor is an embedding by its shape: rows that the network reads, and no bias."""
        first, bias = self.flow.layers[0], f"{name}.bias" in self.tensors
        tensor = self.tensors[f"{name}.weight"]
        width = tensor.shape[1] if tensor.ndim == 2 else 0
        adapter = any(f"{name}.weight".endswith(end) for end in ("lora_A.weight", "lora_embedding_A.weight"))
        return width == first.inputs and width != self.flow.outputs and not bias and not adapter

    def _add_tables(self) -> None:
        """Keep embeddings, which are looked up before the network."""
        chosen = {_parse_dense(text).name for text in self.options.dense or ()}
        for name in list(self.tensors):
            base = name.removesuffix(".weight")
            if base == name or base in chosen or name in self.used or not self._is_table(base):
                continue
            table = self._take(f"embedding {base!r}", name)
            self.report.embeddings.append(Embedding(name=base, table=table))
            self.report.node(base, "embedding", "outside", f"{LOOKED_UP}: {table.shape}")
            self.report.note(f"{base!r} is an embedding by its shape {table.shape}: {ROWS_READ}")

    @staticmethod
    def _is_dense(tensor: Any) -> bool:
        return tensor.ndim == 2 or (tensor.ndim > 2 and set(tensor.shape[2:]) == {1})

    def _leftovers(self, known: set[str]) -> list[str]:
        return [name for name in self.tensors if name not in self.used | known]

    def _add_dense(self) -> str:
        """Add the dense layers and return the last one's name, or nothing."""
        choices = self._guess() if self.options.dense is None else list(map(_parse_dense, self.options.dense))
        both = self.flow.layers[-1]
        if choices and isinstance(both, Bidirectional):
            self.report.note(
                f"a file of tensors does not say what layers read: dense layer {choices[0].name!r} is taken "
                f"to read every step of {both.name!r}; of a model that reads the final states of both "
                "directions give the module, TorchScript or ONNX"
            )
        for choice in choices:
            weight, bias = self._dense_tensors(choice.name)
            where, shape = f"dense layer {choice.name!r}", f"{weight.shape[1]} -> {weight.shape[0]}"
            shape += f", {choice.activation}" + ", relu on its input" * choice.input_relu
            if choice.input_relu:
                self.flow = self.flow.activate(RELU, f"{choice.name}_relu", where)
            self.flow = self.flow.linear(choice.name, where, weight, bias)
            if choice.activation != "identity":
                function = ActivationFunction.of(choice.activation)
                self.flow = self.flow.activate(function, choice.name, where)
            self.report.node(choice.name, "dense", "core", shape)
        return choices[-1].name if choices else ""

    def _guess(self) -> list[_DenseChoice]:
        """Choose the dense layer without an option: the only one that fits, if no tensor is left over."""
        candidates = self._candidates()
        known = {f"{name}.{part}" for name in candidates for part in ("weight", "bias")}
        leftovers = self._leftovers(known)
        if len(candidates) > 1 or leftovers:
            raise ModelError(
                "tensors beside the LSTM do not say how they are connected, nor which activations are used: "
                f"{listed(self._leftovers(set()))}; name the dense layers in order with `dense`, "
                f"each {_SYNTAX}, or take none of them with `dense={(_NONE,)!r}`"
            )
        for name in candidates:
            fits = self.tensors[f"{name}.weight"].shape[0] == self.flow.layers[0].inputs
            self.report.note(
                f"a file of tensors names no activations: dense layer {name!r} is taken with none "
                f"(else name it with its own by `dense`, for example {name}:sigmoid)"
                + f"; it is taken to stand behind {self.flow.layers[-1].name!r}, but would fit in front, too"
                * fits
            )
        return [_DenseChoice(name) for name in candidates]

    def _dense_tensors(self, name: str) -> tuple[Floats, Floats]:
        where = f"dense layer {name!r}"
        if f"{name}.weight" not in self.tensors:
            candidates = self._candidates()
            others = f"there are {listed(candidates)}"
            if not candidates:
                others = "there are none beside the LSTM's: leave out `dense`"
            raise ModelError(f"{where} must have a tensor {name + '.weight'!r}; {others}")
        tensor = self.tensors[f"{name}.weight"]
        if not self._is_dense(tensor):
            raise ModelError(
                f"{where} must have a weight of shape (outputs, inputs), or a convolution of size 1, "
                f"not {tuple(tensor.shape)}"
            )
        weight = self._take(where, f"{name}.weight").reshape(tensor.shape[:2])
        bias = np.zeros(weight.shape[0])
        if f"{name}.bias" in self.tensors:
            bias = self._take(where, f"{name}.bias")
            expect_shape(bias, (weight.shape[0],), f"{where}: tensor {name + '.bias'!r}")
        return weight, bias

    def _take(self, where: str, name: str) -> Floats:
        self.used.add(name)
        return to_float64(self.tensors[name], f"{where}: tensor {name!r}")

    def _report_rest(self) -> None:
        owners: dict[str, list[str]] = {}
        for name in self._leftovers(set()):
            shape = " x ".join(map(str, self.tensors[name].shape)) or "one number"
            self.report.node(name, "tensor", "outside", f"not named by the options ({shape})")
            owner, _, part = name.rpartition(".")
            owners.setdefault(owner, []).append(part)
        if owners:
            modules = listed(
                f"{owner!r} ({', '.join(parts)})" if owner else ", ".join(map(repr, parts))
                for owner, parts in owners.items()
            )
            self.report.note(
                f"left out, since no option names them: {modules}; if the model computes with them, the "
                "build's outputs are others: compute what they do outside, or give the torch.nn.Module, "
                "TorchScript or ONNX"
            )


# Files


_PACKED = "packed by torch.ao.quantization, as quantize_dynamic does"
QUANTISED = (
    f"has weights {_PACKED}; give the model, or its state dict, from before that: rtlstm quantises by "
    "itself, with `weight_bits=8`"
)
"""What is wrong with quantised modules of PyTorch, and what to do, as the end of a sentence."""
_PACKED_LINEAR = "._packed_params._packed_params"
_PACKED_NAMES = (b"_packed_params", b"_all_weight_values")
"""What names in a state dict of torch.ao.quantization have, where the weights are no tensors."""
_HEAD = 1 << 20
"""Bytes of a file in which a state dict of such modules names one."""
_DTYPES = {"F16": "<f2", "F32": "<f4", "F64": "<f8"}


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
            tensors[name] = _other(dtype, tuple(shape))
    return tensors


def _other(kind: str, shape: tuple[int, ...]) -> SimpleNamespace:
    """A tensor of a type that no layer can use; refused only if a layer needs it."""
    return SimpleNamespace(dtype=SimpleNamespace(name=kind), shape=shape, ndim=len(shape))


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
            raise ModelError(f"must hold tensors, but {QUANTISED}") from None
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
    named = [(str(name), value) for name, value in state.items()]
    packed = [name.removesuffix(_PACKED_LINEAR) for name, _ in named if name.endswith(_PACKED_LINEAR)]
    inside = [
        name
        for name, _ in named
        for owner in packed
        if name in (f"{owner}.scale", f"{owner}.zero_point") or name.startswith(f"{owner}._packed_params.")
    ]
    others = [name for name, each in named if not isinstance(each, torch.Tensor) and name not in inside]
    if others:
        report.note(f"left out of the state dict, since they are no tensors: {listed(others)}")
    budget = Budget()
    for name, tensor in named:
        if name.endswith(_PACKED_LINEAR):
            # The weight of a quantised Linear, which is refused if a layer needs it.
            weight = tensor[0] if isinstance(tensor, tuple) and tensor else None
            kind = str(getattr(weight, "dtype", "an object")).removeprefix("torch.")
            other = _other(f"{kind} {_PACKED}", tuple(getattr(weight, "shape", ())))
            tensors[f"{name.removesuffix(_PACKED_LINEAR)}.weight"] = other
        if not isinstance(tensor, torch.Tensor) or name in inside:
            continue
        if not tensor.is_nested:
            budget.take(tensor.shape, f"tensor {name!r}")  # strides of 0 let one element stand for all
        tensors[name] = _to_array(torch, tensor)
    return tensors


def _to_array(torch: Any, tensor: Any) -> Any:
    plain, kind = tensor.detach(), str(tensor.dtype).removeprefix("torch.")
    if plain.is_nested:
        return _other(f"{kind} nested", ())
    if plain.layout != torch.strided:
        layout = str(plain.layout).removeprefix("torch.")
        return _other(f"{kind} in layout {layout} (to_dense() makes it plain)", tuple(plain.shape))
    if plain.device.type == "meta":
        return _other(f"{kind} on the meta device, without values", tuple(plain.shape))
    if plain.dtype == torch.bfloat16:
        plain = plain.float()
    if plain.dtype in (torch.float16, torch.float32, torch.float64):
        return plain.resolve_neg().numpy()
    return _other(kind, tuple(plain.shape))


def _find_states(torch: Any, loaded: Any) -> dict[str, Any]:
    def is_state(value: Any) -> bool:
        return isinstance(value, dict) and any(isinstance(item, torch.Tensor) for item in value.values())

    if is_state(loaded):
        return {"": loaded}
    if not isinstance(loaded, dict):
        return {}
    return {str(key): value for key, value in loaded.items() if is_state(value)}


# One layer of PyTorch's recurrent modules from its named parameters: LSTM, GRU, RNN and their cells


KINDS: Final[dict[int, CellKind]] = {4: "lstm", 3: "gru", 1: "rnn"}
"""By the number of gates that are stacked in the weights."""
PARAMETERS: Final = ("weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_hr")


def recurrent_layer(
    get: Callable[[str], Any],
    names: Mapping[str, str],
    name: str,
    where: str,
    *,
    reverse: bool = False,
    relu: bool = False,
) -> Lstm | Gru | Rnn:
    """Build one direction of one layer; its kind follows from the shapes.

    ``get`` returns a tensor by its name. ``names`` has the name of each of :data:`PARAMETERS` that is
    present. ``relu`` says whether a plain RNN has ReLU instead of tanh, which its weights do not tell. Raises
    ModelError if a parameter is missing or has another shape; the message has ``where`` and its name.
    """
    for part in ("weight_ih", "weight_hh"):
        if part not in names:
            raise ModelError(f"{where} must have {part}, but it is missing")

    def load(part: str) -> Floats:
        return to_float64(get(names[part]), _title(where, names[part]))

    w_ih, w_hh = load("weight_ih"), load("weight_hh")
    if w_ih.ndim != 2 or w_hh.ndim != 2 or 0 in (*w_ih.shape, *w_hh.shape):
        raise ModelError(f"{where} must have weights with 2 axes, not shapes {w_ih.shape} and {w_hh.shape}")
    projection = load("weight_hr") if "weight_hr" in names else None
    units = w_hh.shape[1]
    if projection is not None:
        if projection.ndim != 2 or projection.shape[0] != w_hh.shape[1]:
            raise ModelError(
                f"{_title(where, names['weight_hr'])} must have shape ({w_hh.shape[1]}, units), not "
                f"{projection.shape}; the model is damaged"
            )
        units = projection.shape[1]
    gates, rest = divmod(w_ih.shape[0], units)
    if rest or gates not in KINDS:
        raise ModelError(
            f"{_title(where, names['weight_ih'])} must have 4 x {units} rows (an LSTM), 3 x {units} (a GRU) "
            f"or {units} (a plain RNN), not {w_ih.shape[0]}: {names['weight_hh']!r} has shape {w_hh.shape}, "
            f"and {units} units; the model is damaged"
        )
    kind = KINDS[gates]
    expect_shape(w_hh, (w_ih.shape[0], w_hh.shape[1]), _title(where, names["weight_hh"]))
    if projection is not None and kind != "lstm":
        raise ModelError(
            f"{where} is a {kind.upper()} by its shape, but only an LSTM can have weight_hr (proj_size)"
        )
    b_ih, b_hh = _biases(load, names, w_ih.shape[0], where)
    functions = (RELU if relu else TANH,) if kind == "rnn" else (SIGMOID, TANH, TANH)
    given: dict[str, Any] = {"reverse": reverse} | ({"projection": projection} if kind == "lstm" else {})
    return stacked_layer("torch", kind, name, (w_ih, w_hh, b_ih, b_hh), functions, **given)


def bidirectional_layer(
    name: str, forward: Lstm | Gru | Rnn, backward: Lstm | Gru | Rnn, where: str
) -> Bidirectional:
    """Join two directions, as PyTorch does, forward outputs first."""
    if forward.kind != backward.kind or forward.w_ih.shape != backward.w_ih.shape:
        raise ModelError(f"{where} must have two directions of the same kind and size; the model is damaged")
    return Bidirectional(name=name, forward=forward, backward=backward)


def _biases(
    load: Callable[[str], Floats], names: Mapping[str, str], rows: int, where: str
) -> tuple[Floats, Floats]:
    given = [part for part in ("bias_ih", "bias_hh") if part in names]
    if len(given) == 1:
        raise ModelError(f"{where} must have both biases or none, but has only {names[given[0]]!r}")
    if not given:
        return np.zeros(rows), np.zeros(rows)
    b_ih, b_hh = load("bias_ih"), load("bias_hh")
    for part, bias in (("bias_ih", b_ih), ("bias_hh", b_hh)):
        expect_shape(bias, (rows,), _title(where, names[part]))
    return b_ih, b_hh


def _title(where: str, tensor: str) -> str:
    return f"{where}: tensor {tensor!r}"


# Weights of which PyTorch keeps parts: pruned ones are read, those of norms are refused with a remedy


_PART = re.compile(
    r"^(?:(?P<owner>.*\.|)parametrizations\.(?P<new>\w+)\.original\d*|(?P<old>.*(?:weight|bias)\w*?)_(?P<kind>g|v|orig))$"
)
"""Parts of a weight that torch.nn.utils.parametrizations, the older norms, or pruning keep."""
_UTILS = "torch.nn.utils."
_REMOVE = {
    "new": f"{_UTILS}parametrize.remove_parametrizations(module, name)",
    "mask": f"{_UTILS}prune.remove(module, name)",
    "orig": f"{_UTILS}remove_spectral_norm(module, name)",
    "norm": f"{_UTILS}remove_weight_norm(module, name)",
}
_MAKERS = {
    "new": "a parametrization, such as a weight norm,",
    "mask": "pruning",
    "orig": "a spectral norm",
    "norm": "a weight norm",
}
*_OTHERS, _LAST = _REMOVE.values()
PLAIN = f"make them plain before, with {', '.join(_OTHERS)} or {_LAST}"
"""What to do about weights that a model computes."""


def with_pruned(tensors: Mapping[str, Any]) -> dict[str, Any]:
    """Return tensors with each pruned one in place of its two parts: the values times a mask."""
    found = dict(tensors)
    for name in tensors:
        whole = name.removesuffix("_orig")
        values: Any = found.get(name)
        mask: Any = found.get(f"{whole}_mask")
        if whole == name or whole in found or not all(hasattr(part, "__mul__") for part in (values, mask)):
            continue
        if values.shape == mask.shape:
            del found[name], found[f"{whole}_mask"]
            found[whole] = values * mask
    return found


def parts_refusal(name: str, names: Iterable[str]) -> tuple[str, str] | None:
    """Return the weight that a tensor is a part of, and a refusal; None if that is there or it is no part."""
    found = _PART.match(name)
    weight = "" if found is None else found["old"] or f"{found['owner']}{found['new']}"
    if found is None or weight in names:
        return None
    if found["kind"] in ("g", "v") and not {f"{weight}_g", f"{weight}_v"} <= set(names):
        return None  # Another layer's tensor of that name, such as an attention's bias_v.
    kind = "new" if found["new"] else found["kind"] if found["kind"] == "orig" else "norm"
    kind = "mask" if f"{weight}_mask" in names else kind
    return weight, (
        f"must hold the weight {weight!r} itself, but has the parts that {_MAKERS[kind]} makes it of "
        f"({name!r}); make it plain before saving, with {_REMOVE[kind]}"
    )


# Neural models of guitar amplifiers, those with LSTM layers


_SIZES = ("input_size", "hidden_size", "num_layers")
_AGAIN = "export the model again"


def read_nam(path: Path, options: ReadOptions, report: ReportBuilder) -> Network:
    """Read a ``.nam`` file: JSON of an amplifier's model. The report has the state in which that begins.

    Its list ``weights`` has, for each layer, the matrix ``(4 units, inputs + units)`` row by row in PyTorch's
    order of gates (i, f, g, o), the bias, then h and c of a settled amplifier; behind the layers weights and
    bias of a linear layer with one output.

    Raises ModelError if it is damaged, or of another architecture than LSTM.
    """
    report.format = "nam"
    given = [name for name in ("lstm", "output", "dense", "branches") if getattr(options, name)]
    if given:
        raise ModelError(
            f"a .nam file is read as a whole; leave out {', '.join(f'`{name}`' for name in given)}"
        )
    config, weights = _contents(path)
    inputs, units, layers = (_size(config, name) for name in _SIZES)
    check_size((layers, 4 * units, inputs + units), "LSTM layers")

    def take(what: str, *shape: int) -> Floats:
        """The next array of a shape, off the front of the list."""
        nonlocal weights
        count, left = int(np.prod(shape)), len(weights)
        if count > left:
            raise ModelError(
                f"'weights' ends within {what}: {count} numbers must be left, but {left} are; {_AGAIN}"
            )
        array, weights = weights[:count], weights[count:]
        return array.reshape(shape)

    stack: list[Lstm | Dense] = []
    h, c = [], []
    for index in range(layers):
        width, where = units if index else inputs, f"of layer {index}"
        matrix, bias = take(f"weights {where}", 4 * units, width + units), take(f"bias {where}", 4 * units)
        stack.append(Lstm(name=f"lstm{index}", w_ih=matrix[:, :width], w_hh=matrix[:, width:], bias=bias))
        h.append(take(f"h {where}", units))
        c.append(take(f"c {where}", units))
        report.node(f"lstm{index}", "LSTM", "core", f"{width} -> {units}")
    head, bias = take("the head's weights", 1, units), take("the head's bias", 1)
    if len(weights):
        raise ModelError(f"'weights' has {len(weights)} numbers more than 'config' tells of; {_AGAIN}")
    stack.append(Dense(name="head", weight=head, bias=bias))
    report.node("head", "Linear", "core", f"{units} -> 1")
    report.initial_state = (tuple(h), tuple(c))
    report.input, report.output = "the samples", "head"
    report.note(f"the amplifier begins in a state of its own, {OWN_STATE}")
    return Network(name=report.name, layers=tuple(stack))


def _contents(path: Path) -> tuple[dict[str, Any], Floats]:
    """The configuration and the weights of a file."""
    if path.stat().st_size > MAX_TEXT:
        raise ModelError(f"a .nam file must have at most {MAX_TEXT:,} bytes, not {path.stat().st_size:,}")
    try:
        found = json.loads(read_file(path).decode())
    except (ValueError, RecursionError) as error:
        raise ModelError(f"is no JSON, as a .nam file must be ({error}); {_AGAIN}") from None
    if not isinstance(found, dict):
        raise ModelError(f"must hold an object of JSON, not {type(found).__name__}; {_AGAIN}")
    architecture = found.get("architecture")
    if architecture != "LSTM":
        raise ModelError(
            f"must be of the architecture 'LSTM', not {architecture!r}: a .nam file of another kind is not "
            "read; train an LSTM model of the amplifier"
        )
    config, weights = found.get("config"), found.get("weights")
    if not isinstance(config, dict) or not isinstance(weights, list):
        raise ModelError(f"must have an object 'config' and a list 'weights'; {_AGAIN}")
    # Not text and not true, which NumPy would take for numbers.
    if not all(type(each) in (int, float) for each in weights):
        raise ModelError(f"'weights' must be one list of numbers; {_AGAIN}")
    try:
        array = np.array(weights, dtype=np.float64)
    except OverflowError:
        raise ModelError(f"'weights' must be numbers of 64 bits, but one is too large; {_AGAIN}") from None
    return config, to_float64(array, "weights")


def _size(config: dict[str, Any], name: str) -> int:
    value = config.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ModelError(f"'config' must have a whole number {name!r} of 1 or more, not {value!r}; {_AGAIN}")
    return value
