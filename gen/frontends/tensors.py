"""Reads recurrent and dense layers from files of named tensors: safetensors and PyTorch state dicts."""

import re
import zipfile
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, BinaryIO

import numpy as np

from rtlstm.gen.frontends.arrays import Floats, expect_shape, import_extra, listed, to_float64
from rtlstm.gen.frontends.flow import Flow
from rtlstm.gen.frontends.reading import ReadOptions, ReportBuilder
from rtlstm.gen.frontends.torch.cells import bidirectional_layer, parts_refusal, recurrent_layer, with_pruned
from rtlstm.host.embeddings import Embedding
from rtlstm.spec.activations.functions import ACTIVATIONS, RELU, ActivationFunction
from rtlstm.spec.errors import ModelError
from rtlstm.spec.files import Budget, open_archive, read_file
from rtlstm.spec.network import Activation, Bidirectional, Gru, Lstm, Network, Rnn

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
        names = []
        for name, tensor in self.tensors.items():
            base = name.removesuffix(".weight")
            if name in self.used or base == name or not self._is_dense(tensor) or self._is_table(base):
                continue
            names.append(base)
        return names

    def _is_table(self, name: str) -> bool:
        """Whether a tensor is an embedding by its shape: rows that the network reads, and no bias."""
        first, bias = self.flow.layers[0], f"{name}.bias" in self.tensors
        tensor = self.tensors[f"{name}.weight"]
        width = tensor.shape[1] if tensor.ndim == 2 else 0
        adapter = any(f"{name}.weight".endswith(end) for end in ("lora_A.weight", "lora_embedding_A.weight"))
        return width == first.inputs and width != self.flow.outputs and not bias and not adapter

    def _add_tables(self) -> None:
        """Keep embeddings for the host."""
        chosen = {_parse_dense(text).name for text in self.options.dense or ()}
        for name in list(self.tensors):
            base = name.removesuffix(".weight")
            if base == name or base in chosen or name in self.used or not self._is_table(base):
                continue
            table = self._take(f"embedding {base!r}", name)
            self.report.embeddings.append(Embedding(name=base, table=table))
            self.report.node(base, "embedding", "outside", f"looked up by the host: {table.shape}")
            self.report.note(
                f"{base!r} is an embedding by its shape {table.shape}: the core reads its rows, which the "
                "host looks up (ReadResult.embeddings)"
            )

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
            where = f"dense layer {choice.name!r}"
            if choice.input_relu:
                self.flow = self.flow.activate(RELU, f"{choice.name}_relu", where)
            self.flow = self.flow.linear(choice.name, where, weight, bias)
            if choice.activation != "identity":
                function = ActivationFunction.of(choice.activation)
                self.flow = self.flow.activate(function, choice.name, where)
            shape = f"{weight.shape[1]} -> {weight.shape[0]}, {choice.activation}"
            if choice.input_relu:
                shape += ", relu on its input"
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
            # The weight of a quantised Linear, which is refused if a layer needs it.
            weight = tensor[0] if isinstance(tensor, tuple) and tensor else None
            kind = str(getattr(weight, "dtype", "an object")).removeprefix("torch.")
            other = _other(f"{kind} {_PACKED}", tuple(getattr(weight, "shape", ())))
            tensors[f"{str(name).removesuffix(_PACKED_LINEAR)}.weight"] = other
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
