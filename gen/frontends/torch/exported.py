"""Reads exported programs (``torch.export``): a graph in JSON, and tensors as plain bytes, in one archive.

PyTorch is used only to save a program that is given as an object. Nothing in the archive is run or unpickled.
"""

import io
import json
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from rtlstm.gen.frontends.arrays import import_extra, one_error
from rtlstm.gen.frontends.graph import Graph
from rtlstm.gen.frontends.reader import read
from rtlstm.gen.frontends.reading import ReadOptions, ReportBuilder
from rtlstm.gen.frontends.torch.operators import SEQUENCES, SPLIT, find, words
from rtlstm.gen.frontends.torch.translate import Constant, Tensor, Translator, owner
from rtlstm.spec.errors import ModelError
from rtlstm.spec.files import Budget, open_file
from rtlstm.spec.network import Network

_TYPES = {1: "u1", 2: "i1", 3: "i2", 4: "i4", 5: "i8", 6: "f2", 7: "f4", 8: "f8", 12: "?", 13: "u2"}
"""NumPy's types of torch's scalar types, numbered as in the archive; 13 is bfloat16."""
_BFLOAT16 = 13
_MAX_JSON = 2**23
"""Bytes of a description, of which parsing makes some thirty times as many; real graphs have below 2^20."""
_FLOATS = (6, 7, 8, 13)
_SAVE = "save the model again, with torch.export.save"
_DAMAGED = f"must be an exported program as torch.export.save writes it, but is damaged ({{}}); {_SAVE}"


def read_exported(source: Path | Any, options: ReadOptions, report: ReportBuilder) -> Network:
    """Read a file that ``torch.export.save`` wrote, or a ``torch.export.ExportedProgram``."""
    report.format = "exported program"
    if isinstance(source, Path):
        with open_file(source) as file:
            return read(translate_exported(file, options, report), options, report)
    saved = io.BytesIO()
    import_extra("torch", "torch").export.save(source, saved)
    saved.seek(0)
    return read(translate_exported(saved, options, report), options, report)


def translate_exported(file: BinaryIO, options: ReadOptions, report: ReportBuilder) -> Graph:
    """Translate what ``torch.export.save`` wrote; the file must stay open while the graph is read."""
    archive = Archive(file)
    with one_error(_DAMAGED):
        return _Program(archive).translated(options, report)


def exported_values(file: BinaryIO) -> dict[str, Any]:
    """Return what each name of a program's graph stands for in the graph that is read."""
    with one_error(_DAMAGED):
        program = _Program(Archive(file))
        program.translated(ReadOptions(), ReportBuilder(""))
    return program.scope | program.to.known


# Translation


class _Program:
    """Goes through the operators once; ``scope`` has what each name stands for."""

    def __init__(self, archive: "Archive") -> None:
        self.archive, self.to = archive, Translator(replace(words(), split=SPLIT), find)
        self.scope: dict[str, Any] = {}
        self.tensors = archive.graph["tensor_values"]

    def translated(self, options: ReadOptions, report: ReportBuilder) -> Graph:
        for spec in self.archive.signature["input_specs"]:
            self._input(spec)
        self.to.reserve(name for node in self.archive.graph["nodes"] for name in _names(node["outputs"]))
        for node in self.archive.graph["nodes"]:
            self._node(node)
        for module, name in _modules(self.archive.graph).items():
            self.to.known.setdefault(module, self.scope[name])
        specs = self.archive.signature["output_specs"]
        results = [self._value(spec["user_output"]["arg"]) for spec in specs if "user_output" in spec]
        return self.to.graph(results, options, report)

    def _input(self, spec: Mapping[str, Any]) -> None:
        for kind in ("parameter", "buffer", "tensor_constant"):
            if kind in spec:
                name = str(spec[kind][f"{kind}_name"])
                self.scope[spec[kind]["arg"]["name"]] = Constant(partial(self.archive.tensor, name), name)
        arg = spec.get("user_input", {}).get("arg", {})
        if "as_tensor" in arg:
            name = arg["as_tensor"]["name"]
            self.scope[name] = self.to.input(name, self._sizes(name))

    def _sizes(self, name: str) -> Sequence[int | str]:
        declared = self.tensors.get(name, {}).get("sizes", [])
        return [size["as_int"] if "as_int" in size else str(size["as_expr"]["expr_str"]) for size in declared]

    def _node(self, node: Mapping[str, Any]) -> None:
        target = str(node["target"])
        name = target.split(".")[-2 if target.startswith(_ATEN) else -1]
        named = {str(item["name"]): self._value(item["arg"]) for item in node["inputs"]}
        outputs = _names(node["outputs"])
        output = str(node.get("name") or (outputs[0] if outputs else name))
        results = self.to.known[output] = self._call(name, target, named, output)
        if len(outputs) > 1 or "as_tensors" in next(iter(node["outputs"]), {}):
            each = range(len(outputs))
            results = [self.to.call("getitem", (results, at), {}, output, "getitem") for at in each]
        else:
            results = [results]
        for output, value in zip(outputs, results, strict=False):
            self.scope[output] = self.to.known[output] = value
            if isinstance(value, Tensor) and output in self.tensors:
                self.to.sizes.setdefault(str(value), self._sizes(output))

    def _call(self, name: str, target: str, named: dict[str, Any], output: str) -> Any:
        """Translate an operator; one with weights has the name of the module that has them."""
        kind = name.rstrip("_")
        operation = kind if target.startswith((_ATEN, "_operator.")) else ""
        kind = SEQUENCES.get(kind, kind)
        return self.to.call(
            operation, (), named, owner(named) or output, kind, output, overwrites=name.endswith("_")
        )

    def _value(self, arg: Mapping[str, Any]) -> Any:
        """An argument: what its names stand for, and numbers."""
        ((kind, value),) = arg.items()
        if kind in _LISTS:
            return [self._value({_LISTS[kind]: item}) for item in value]
        if kind in ("as_tensor", "as_custom_obj"):
            return self.scope[value["name"]]
        if kind in _LISTS.values():  # a tensor that may be none, or a number that a name may stand for
            return self._value(value)
        if kind == "as_name":
            return self.scope[value]
        if kind == "as_none":
            return None
        if kind == "as_scalar_type":
            return SimpleNamespace(is_floating_point=value in _FLOATS)
        return str(value) if kind in ("as_device", "as_graph", "as_operator") else value


_ATEN = "torch.ops.aten."
_LISTS = {
    f"as_{kind}s": f"as_{kind.removeprefix('nested_')}"
    for kind in ("tensor", "nested_tensor", "optional_tensor", "sym_int", "sym_float", "sym_bool")
}
"""Kinds of lists, and of their items."""


def _names(outputs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Names of the values that a node's outputs stand for."""
    found: list[str] = []
    for output in outputs:
        ((kind, value),) = output.items()
        if kind == "as_tensors":
            found += [item["name"] for item in value]
        elif kind == "as_none":
            found.append("")
        else:
            found.append(value["as_name" if kind.startswith("as_sym") else "name"])
    return found


def _modules(graph: Mapping[str, Any]) -> dict[str, str]:
    """What each call of a module gives: the one value of it that is read elsewhere.

    Calls but the first have numbers, as `norm@1`; what only another call of that module reads is no result.
    """
    calls: dict[str, set[str]] = {}
    readers: dict[str, list[set[str]]] = {}
    for node in graph["nodes"]:
        stack = str(node.get("metadata", {}).get("nn_module_stack", "")).split(";")
        parts = [part.split(",") for part in stack if part.count(",") > 1]  # key, path, type
        inside = {"@".join([path, *key.split("@")[1:]]) for key, path, *_ in parts if path}
        for name in filter(None, _names(node["outputs"])):
            for call in inside:
                calls.setdefault(call, set()).add(name)
        for name in {*_read([item["arg"] for item in node["inputs"]])}:
            readers.setdefault(name, []).append({call.partition("@")[0] for call in inside})
    for name in {*_read(graph["outputs"])}:
        readers.setdefault(name, []).append(set())
    found = {
        call: [n for n in names if any(call.partition("@")[0] not in each for each in readers.get(n, ()))]
        for call, names in calls.items()
    }
    return {call: names[0] for call, names in found.items() if len(names) == 1}


def _read(value: Any) -> Iterator[str]:
    """The names that arguments hold."""
    if isinstance(value, Mapping):
        if isinstance(value.get("name"), str):
            yield value["name"]
        value = list(value.values())
    for item in value if isinstance(value, list) else ():
        yield from _read(item)


# The archive


class Archive:
    """The graph of an exported program, and its tensors by name, which are loaded when they are asked for.

    Raises ModelError if it is damaged, or of a kind that is not read: compiled, of several models, or of an
    older PyTorch.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._budget = Budget(ModelError)
        with one_error(_DAMAGED):
            self._zip = zipfile.ZipFile(file)
            if len(set(self._zip.namelist())) < len(self._zip.namelist()):
                raise ModelError(f"must hold every member once, but two have one name; {_SAVE}")
            self._names = {name.partition("/")[2]: name for name in self._zip.namelist()}
            self._read()

    def _read(self) -> None:
        models = [name for name in self._names if name.startswith("models/") and name.endswith(".json")]
        if len(models) != 1:
            raise ModelError(
                f"must be an archive of one exported program, but it holds {len(models)}; {_SAVE} of PyTorch "
                "2.9 or newer (not compiled by AOTInductor)"
            )
        order = self._bytes("byteorder").decode() if "byteorder" in self._names else "little"
        if order != "little":
            raise ModelError(f"must store its tensors in little-endian order, not {order!r}")
        module = self._json(models[0])["graph_module"]
        self.graph: Mapping[str, Any] = module["graph"]
        self.signature: Mapping[str, Any] = module["signature"]
        self._tensors: dict[str, tuple[str, Mapping[str, Any]]] = {}
        """The folder of each tensor in the archive, and what is said of it."""
        name = models[0].removeprefix("models/").removesuffix(".json")
        for kind in ("weights", "constants"):
            config = f"data/{kind}/{name}_{kind}_config.json"
            if config in self._names:
                entries = self._json(config)["config"]
                self._tensors |= {key: (f"data/{kind}", entry) for key, entry in entries.items()}

    def tensor(self, name: str) -> NDArray[Any]:
        """A parameter, buffer or constant of the model by the name that the module has for it."""
        if name not in self._tensors:
            raise ModelError(f"must hold the tensor {name!r}, which its graph reads; {_SAVE}")
        with one_error(_DAMAGED):
            return self._load(name, *self._tensors[name])

    def _load(self, name: str, folder: str, entry: Mapping[str, Any]) -> NDArray[Any]:
        meta = entry["tensor_meta"]
        shape = [int(size["as_int"]) for size in meta["sizes"]]
        strides = [int(size["as_int"]) for size in meta["strides"]]
        kind, offset = meta["dtype"], int(meta["storage_offset"]["as_int"])
        if entry["use_pickle"] or kind not in _TYPES:
            raise ModelError(f"tensor {name!r} is pickled or of a type that is not read; {_SAVE}")
        self._budget.take(shape, f"tensor {name!r}")
        values = np.frombuffer(self._bytes(f"{folder}/{entry['path_name']}"), "<" + _TYPES[kind])
        last = offset + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
        if min([offset, *shape, *strides]) < 0 or (0 not in shape and last >= len(values)):
            raise ModelError(f"tensor {name!r} of shape {tuple(shape)} goes beyond its data; {_SAVE}")
        steps = [stride * values.itemsize for stride in strides]
        if 0 in shape:
            return np.zeros(shape, values.dtype)
        array = np.lib.stride_tricks.as_strided(values[offset:], shape, steps, writeable=False).copy()
        return (array.astype(np.uint32) << 16).view(np.float32) if kind == _BFLOAT16 else array

    def _json(self, name: str) -> Any:
        return json.loads(self._bytes(name, _MAX_JSON))

    def _bytes(self, name: str, most: int = 2**62) -> bytes:
        info = self._zip.getinfo(self._names[name])
        if info.compress_type != zipfile.ZIP_STORED:  # So that nothing is larger than the file.
            raise ModelError(f"must store {name!r} as it is, not compressed; {_SAVE}")
        if info.file_size > most:
            raise ModelError(f"has {info.file_size:,} bytes of {name!r}, which is more than {most:,}")
        return self._zip.read(info)
