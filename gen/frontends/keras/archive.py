"""Reads Keras files: the layers' configurations, inputs and arrays. Keras itself is not needed."""

import io
import json
import re
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, BinaryIO

import numpy as np

from rtlstm.gen.frontends.arrays import Floats, import_extra, listed
from rtlstm.gen.frontends.limits import no_files
from rtlstm.spec.errors import ModelError
from rtlstm.spec.files import MAX_ELEMENTS, MAX_TEXT, Budget, open_archive, read_member

_MAX_OBJECTS = 100_000


def open_hdf5(file: Any) -> "Group":
    """Open a binary file, and return its root.

    Raises ModelError if it is not an HDF5 file. Raises ToolError if h5py is not installed.
    """
    h5py = import_extra("h5py", "keras")
    with no_files():
        return Group(h5py.File(file, "r"), "", Budget(ModelError))


class _Node:
    """An object in a file, and the path that messages name it by."""

    def __init__(self, item: Any, path: str, budget: Budget) -> None:
        self._item, self.path, self._budget = item, path, budget


class Group(_Node):
    """A group, which other objects are in."""

    def text(self, name: str) -> str | None:
        """An attribute of text, or None."""
        value = self._item.attrs.get(name)
        if isinstance(value, bytes):
            return value.decode()
        if value is not None and not isinstance(value, str):
            raise ModelError(f"its attribute {name!r} must be text, not {type(value).__name__}")
        return value

    def group(self, path: str) -> "Group | None":
        """The group at a path below this one, or None.

        Raises ModelError if a link on the way leads elsewhere.
        """
        found: Group | Dataset | None = self
        for name in filter(None, path.split("/")):
            found = found._child(name) if isinstance(found, Group) else None
        return found if isinstance(found, Group) else None

    def datasets(self) -> Iterator[tuple[str, "Dataset"]]:
        """The datasets in the group itself, and their names."""
        for name in self._item:
            child = self._child(name)
            if isinstance(child, Dataset):
                yield name, child

    def walk(self) -> Iterator["Dataset"]:
        """All datasets below, each once; ``path`` is as seen from the root."""
        seen, left = {self._item.id}, [self]
        while left:
            group = left.pop()
            for name in group._item:
                child = group._child(name)
                if isinstance(child, Dataset):
                    yield child
                elif child is not None and child._item.id not in seen:
                    seen.add(child._item.id)
                    left.append(child)
                if len(seen) > _MAX_OBJECTS:
                    raise ModelError(f"has more than {_MAX_OBJECTS:,} groups; save the model again")

    def _child(self, name: str) -> "Group | Dataset | None":
        h5py = import_extra("h5py", "keras")
        link = self._item.get(name, getlink=True)
        if link is None:
            return None
        path = f"{self.path}/{name}".removeprefix("/")
        if isinstance(link, h5py.ExternalLink):
            raise ModelError(
                f"{path!r} is a link to another file, {link.filename!r}, which is not read; save the model "
                "again"
            )
        if isinstance(link, h5py.SoftLink):
            raise ModelError(f"{path!r} is a soft link to {link.path!r}; save the model again, without links")
        with no_files():
            item = self._item.get(name)
        if isinstance(item, h5py.Group):
            return Group(item, path, self._budget)
        return Dataset(item, path, self._budget) if isinstance(item, h5py.Dataset) else None


class Dataset(_Node):
    """An array in the file."""

    def read(self, integers: bool = False) -> Floats:
        """Return its values, which may be ``integers`` if the reader knows what scale they have.

        Raises ModelError if they are in other files, were never written, are not such numbers, or are too
        many.
        """
        item, where = self._item, f"the array {self.path!r}"
        if item.external or item.is_virtual:
            kind = "external storage" if item.external else "a virtual dataset"
            raise ModelError(f"{where} is {kind}: its bytes are another file's, which is not read")
        if item.shape is None or item.dtype.kind not in "fiu":
            raise ModelError(f"{where} must hold numbers, not {item.dtype}; save the model again")
        if item.dtype.kind != "f" and not integers:
            raise ModelError(
                f"{where} must hold weights as floats, but has {item.dtype}, and nothing says what scale "
                "these integers have; give the model as it was before they were rounded"
            )
        self._budget.take(item.shape, where)
        if item.size and not item.id.get_storage_size():
            raise ModelError(f"{where} was declared, but never written; save the model again")
        with no_files():
            return np.asarray(item[()], dtype=np.float64)


class Arrays:
    """A layer's arrays: in Keras' order, and by path where the file has one for each part of the layer."""

    def __init__(self, group: Group | None, by_name: bool, inside: tuple[str, ...] = ()) -> None:
        self._group, self._by_name, self._inside = group, by_name, inside

    def part(self, number: str, name: str) -> "Arrays":
        """The arrays of a layer within this one: ``number`` in new files, of name ``name`` in old ones."""
        if self._by_name:
            return Arrays(self._group, True, (*self._inside, f"/{name}/"))
        return Arrays(self._group and self._group.group(number), False)

    def get(self, names: tuple[str, ...]) -> list[Floats]:
        """The arrays called ``names``; those that are missing are left out. Raises as :meth:`named`."""
        return list(self.named(names).values())

    def named(
        self, names: tuple[str, ...], others: tuple[str, ...] = (), integers: tuple[str, ...] = ()
    ) -> dict[str, Floats]:
        """The arrays called ``names``, and ``others``, which only old files have; missing ones are left out.

        Raises ModelError if there are arrays beside them, which may change what they mean, or one holds
        integers that is not among ``integers``.
        """
        found = self._found(names)
        known = (*names, *others) if self._by_name else names
        more = [array.path for name, array in found.items() if name not in known and "seed" not in name]
        if found.keys() & set(known) and more:
            raise ModelError(
                f"holds {listed(map(repr, more))} beside a layer's {listed(names)}, and nothing says how "
                "they change these; give the model as it was before its weights were rounded or adapted"
            )
        return {name: found[name].read(name in integers) for name in known if name in found}

    def _found(self, names: tuple[str, ...]) -> dict[str, Dataset]:
        """All arrays; those of new files have the names of their numbers, or else these numbers."""
        if self._group is None:
            return {}
        if not self._by_name:
            group, numbers = self._group.group("vars"), {str(at): name for at, name in enumerate(names)}
            return {numbers.get(name, name): array for name, array in (group.datasets() if group else ())}
        return {
            re.sub(r":\d+$", "", array.path.rsplit("/", 1)[-1]): array
            for array in self._group.walk()
            if all(part in array.path.removeprefix(self._group.path) for part in self._inside)
        }


@dataclass(frozen=True)
class ArchiveResult:
    """One of the tensors that a layer gives."""

    layer: str
    index: int = 0


@dataclass(frozen=True)
class Reads:
    """Arguments of a layer's call."""

    values: tuple[ArchiveResult, ...] = ()
    states: tuple[ArchiveResult, ...] = ()
    """Initial states."""
    calls: int = 1
    masks: tuple[ArchiveResult, ...] = ()
    constants: tuple[str, ...] = ()
    """Arguments that are stored beside the layer's weights, as an initial state or a mask."""
    arguments: tuple[Any, ...] = ()
    """What the call was given, as the file has it."""
    named: tuple[str, ...] = ()
    """What the call was given by name, but for None."""


@dataclass(frozen=True, eq=False)
class KerasLayer:
    """One layer: class, configuration, arrays, and what it reads."""

    kind: str
    config: dict[str, Any]
    arrays: Arrays
    reads: Reads

    @property
    def name(self) -> str:
        """The layer's name."""
        return str(self.config.get("name", self.kind))

    @property
    def where(self) -> str:
        """How messages name it."""
        return f"layer {self.name!r} ({self.kind})"

    def expect(self, found: list[Any], least: int) -> list[Any]:
        """Return what was found of its weights; refuse less than ``least`` of them."""
        if len(found) < least:
            raise ModelError(f"{self.where} has no weights in the file; save the model again")
        return found


@dataclass(frozen=True)
class KerasModel:
    """A file's layers, each after those that it reads, and the layers whose results the model gives."""

    version: int
    """Version of the Keras that wrote it."""
    layers: list[KerasLayer]
    ends: tuple[ArchiveResult, ...]
    begins: tuple[str, ...] = ()
    """Its inputs in their order, as far as the file tells."""


def read_archive(file: BinaryIO) -> KerasModel:
    """Read a file. Raises ModelError if it is damaged, or neither a Sequential nor a Functional model."""
    if zipfile.is_zipfile(file):
        with open_archive(file) as archive:
            model, metadata = (
                _json(read_member(archive, name, MAX_TEXT)) for name in ("config.json", "metadata.json")
            )
            data = read_member(archive, "model.weights.h5", MAX_ELEMENTS * 8)
        version = str(metadata.get("keras_version", "3"))
        return _model(version, model, list(_new(model, open_hdf5(io.BytesIO(data)))))
    root = open_hdf5(file)
    text, weights = root.text("model_config"), root.group("model_weights")
    if text is None:
        raise ModelError("holds weights alone; save the whole model, with model.save")
    model = _json(text)
    return _model(root.text("keras_version") or "2", model, list(_old(model, weights)))


def _json(text: str | bytes) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except RecursionError:
        raise ModelError("describes its layers in JSON that nests too deep; save the model again") from None
    if not isinstance(found, dict):
        raise ModelError(f"must describe itself by an object in JSON, not by {type(found).__name__}")
    return found


def _model(version: str, model: dict[str, Any], layers: list[KerasLayer]) -> KerasModel:
    begins = tuple(result.layer for result in _listed(model, "input_layers"))
    return KerasModel(int(version.split(".")[0]), layers, _ends(model, layers), begins)


def _ends(model: dict[str, Any], layers: list[KerasLayer]) -> tuple[ArchiveResult, ...]:
    """The results that a model gives."""
    return _listed(model, "output_layers") or (ArchiveResult(layers[-1].name),)


def _listed(model: dict[str, Any], what: str) -> tuple[ArchiveResult, ...]:
    config = model.get("config", {})
    return tuple(_results(config.get(what, []) if isinstance(config, dict) else []))


def _new(model: dict[str, Any], weights: Group | None) -> Iterator[KerasLayer]:
    """Layers of the new format, whose groups are numbered by class."""
    entries = list(_entries(model))
    for (entry, reads), name in zip(entries, numbered(entry for entry, _ in entries), strict=True):
        group = weights and weights.group(f"layers/{name}")
        if entry["class_name"] in _MODELS:
            yield from _inside(entry, reads, list(_new(entry, group)))
        else:
            yield KerasLayer(_kind(entry, reads), entry["config"], Arrays(group, False), reads)


OPERATION = "ops."
"""In front of the class of a function of keras.ops."""


def _kind(entry: dict[str, Any], reads: Reads) -> str:
    """The class; of functions of keras.ops with a mark, since layers have the same: Add, Average, Reshape."""
    operation = reads.arguments and "trainable" not in entry["config"]
    return OPERATION * bool(operation) + str(entry["class_name"])


_MODELS = ("Functional", "Model", "Sequential")


def _inside(entry: dict[str, Any], reads: Reads, layers: list[KerasLayer]) -> Iterator[KerasLayer]:
    """The layers of a model that is a layer of another one, as if they stood there; then its results."""
    name, given = str(entry["config"]["name"]), iter(reads.values)

    def inside(results: Iterable[ArchiveResult]) -> tuple[ArchiveResult, ...]:
        return tuple(ArchiveResult(f"{name}/{one.layer}", one.index) for one in results)

    for layer in layers:
        config = {**layer.config, "name": f"{name}/{layer.name}"}
        values, states = inside(layer.reads.values), inside(layer.reads.states)
        if layer.kind == "InputLayer" or not values:
            values = tuple(islice(given, 1))
        read = replace(layer.reads, values=values, states=states, masks=())
        yield KerasLayer(layer.kind, config, layer.arrays, read)
    results = inside(_ends(entry, layers))
    yield KerasLayer("Nested", {"name": name}, Arrays(None, False), Reads(results, calls=reads.calls))


def numbered(entries: Iterable[dict[str, Any]]) -> Iterator[str]:
    """The names of layers' groups in the new format: by class, with numbers."""
    counts: dict[str, int] = {}
    for entry in entries:
        kind = entry["class_name"]
        base = re.sub(r"([a-z])([A-Z])", r"\1_\2", re.sub(r"(.)([A-Z][a-z0-9]+)", r"\1_\2", kind)).lower()
        number = counts.get(base, 0)
        counts[base] = number + 1
        yield base if not number else f"{base}_{number}"


def _old(model: dict[str, Any], weights: Group | None) -> Iterator[KerasLayer]:
    """Layers of the old format, whose groups have their names."""
    for entry, reads in _entries(model):
        config = entry["config"]
        group = weights and weights.group(config["name"])
        if entry["class_name"] in _MODELS:
            inner = [
                KerasLayer(each.kind, each.config, Arrays(group, True, (f"/{each.name}/",)), each.reads)
                for each in _old(entry, None)
            ]
            yield from _inside(entry, reads, inner)
            continue
        yield KerasLayer(_kind(entry, reads), config, Arrays(group, by_name=True), reads)


def _entries(model: dict[str, Any]) -> Iterator[tuple[dict[str, Any], Reads]]:
    """Return the layers and their inputs: in a Sequential model each reads the one before."""
    kind, config = model.get("class_name"), model.get("config", {})
    if kind == "Sequential":
        before: tuple[ArchiveResult, ...] = ()
        for entry in config["layers"] if isinstance(config, dict) else config:
            yield entry, Reads(before)
            before = (ArchiveResult(str(entry["config"].get("name", entry["class_name"]))),)
    elif kind in ("Functional", "Model"):
        for entry in config["layers"]:
            yield entry, _reads(entry.get("inbound_nodes", []))
    else:
        raise ModelError(f"must be a Sequential or Functional model, not {kind}; export it to ONNX instead")


def _reads(nodes: list[Any]) -> Reads:
    """Return the inputs of a layer's first call."""
    if not nodes:
        return Reads()
    first = nodes[0]
    if isinstance(first, dict):  # Keras 3
        given, options = first.get("args", []), [first.get("kwargs") or {}]
    else:  # in Keras 2 each tensor has options of its own
        given = [tensor[:3] for tensor in first]
        options = [tensor[3] for tensor in first if len(tensor) > 3 and isinstance(tensor[3], dict)]
    states = [each["initial_state"] for each in options if each.get("initial_state") is not None]
    masks = tuple(_results([each.get("mask") for each in options]))
    stored = [name for each in options for name, value in each.items() if _holds_constants(value)]
    stored += ["inputs"] if _holds_constants(given) else []
    constants = tuple(dict.fromkeys(stored))
    named = {name: value for each in options for name, value in each.items() if value is not None}
    others = [value for name, value in named.items() if name not in ("initial_state", "mask")]
    values, begins = tuple(_results(given)) or tuple(_results(others)), tuple(_results(states))
    return Reads(values, begins, len(nodes), masks, constants, tuple(given), tuple(named))


def _holds_constants(given: Any) -> bool:
    """Whether an argument has an array of numbers, alone or in a list."""
    if isinstance(given, list | tuple):
        return any(_holds_constants(item) for item in given)
    return is_array(given)


def is_array(given: Any) -> bool:
    """Whether an argument is an array of numbers."""
    return isinstance(given, dict) and given.get("class_name") in ("__tensor__", "__numpy__")


def _results(given: Any) -> Iterator[ArchiveResult]:
    """All tensors in what a layer is called with."""
    if isinstance(given, dict):
        history = given.get("config", {}).get("keras_history")
        if history is not None:
            yield ArchiveResult(history[0], history[2])
    elif isinstance(given, list | tuple):
        if len(given) == 3 and isinstance(given[0], str) and isinstance(given[2], int):
            yield ArchiveResult(given[0], given[2])
        else:
            for item in given:
                yield from _results(item)
