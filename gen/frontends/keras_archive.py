"""Keras files: the layers' configuration, what each reads, and its arrays. Keras itself is not needed."""

import io
import json
import re
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rtlstm.gen.frontends.arrays import import_extra
from rtlstm.spec.errors import ModelError

__all__ = ["Arrays", "KerasLayer", "KerasModel", "Reads", "Result", "read_archive"]

Floats = NDArray[np.float64]


class Arrays:
    """A layer's arrays: in Keras' order, and by path where the file has one for each part of the layer."""

    def __init__(self, group: Any, by_name: bool) -> None:
        self._group = group
        self._by_name = by_name

    def part(self, number: str, name: str) -> "Arrays":
        """The arrays of a layer within this one: ``number`` in new files, of name ``name`` in old ones."""
        if self._by_name:
            return Arrays([(path, array) for path, array in self._found() if f"/{name}/" in f"/{path}"], True)
        return Arrays(self._group.get(number, {}), False)

    def _found(self) -> list[tuple[str, Any]]:
        if isinstance(self._group, list):
            return self._group
        found: list[tuple[str, Any]] = []
        self._group.visititems(
            lambda path, item: found.append((path, item)) if hasattr(item, "shape") else None
        )
        return found

    def get(self, names: tuple[str, ...]) -> list[Floats]:
        """The arrays called ``names``; those that are missing at the end are left out."""
        if self._by_name:
            last = {re.sub(r":\d+$", "", path.rsplit("/", 1)[-1]): array for path, array in self._found()}
            return [np.asarray(last[name], dtype=np.float64) for name in names if name in last]
        vars_ = self._group.get("vars", {}) if "vars" in self._group else {}
        return [np.asarray(vars_[str(i)], dtype=np.float64) for i in range(len(names)) if str(i) in vars_]


@dataclass(frozen=True)
class Result:
    """One of the tensors that a layer gives."""

    layer: str
    index: int = 0


@dataclass(frozen=True)
class Reads:
    """What a layer is called with."""

    values: tuple[Result, ...] = ()
    states: tuple[Result, ...] = ()
    """Initial states."""
    calls: int = 1


class KerasLayer:
    """One layer: class, configuration, arrays, and what it reads."""

    def __init__(self, kind: str, config: dict[str, Any], arrays: Arrays, reads: Reads) -> None:
        self.kind = kind
        self.config = config
        self.arrays = arrays
        self.reads = reads

    @property
    def name(self) -> str:
        """The layer's name."""
        return str(self.config.get("name", self.kind))

    @property
    def where(self) -> str:
        """How messages name it."""
        return f"layer {self.name!r} ({self.kind})"


@dataclass(frozen=True)
class KerasModel:
    """A file's layers, each after those that it reads, and the layers whose results the model gives."""

    version: int
    """Of the Keras that wrote it."""
    layers: list[KerasLayer]
    ends: tuple[str, ...]


def read_archive(path: Path) -> KerasModel:
    """Read a file.

    Raises
    ------
    ModelError
        If it is damaged, or neither a Sequential nor a Functional model.
    """
    h5py = import_extra("h5py", "keras")
    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                model = json.loads(archive.read("config.json"))
                version = str(json.loads(archive.read("metadata.json")).get("keras_version", "3"))
                weights = h5py.File(io.BytesIO(archive.read("model.weights.h5")), "r")
            return _model(version, model, list(_new(model, weights)))
        weights = h5py.File(path, "r")
        text = weights.attrs.get("model_config")
        if text is None:
            raise ModelError("holds weights alone; save the whole model, with model.save")
        model = json.loads(text)
        version = str(weights.attrs.get("keras_version", "2"))
        return _model(version, model, list(_old(model, weights["model_weights"])))
    except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
        if isinstance(error, ModelError):
            raise
        raise ModelError(f"is a damaged Keras file ({error}); save the model again") from None


def _model(version: str, model: dict[str, Any], layers: list[KerasLayer]) -> KerasModel:
    config = model.get("config", {})
    given = config.get("output_layers", []) if isinstance(config, dict) else []
    ends = tuple(dict.fromkeys(result.layer for result in _results(given)))
    return KerasModel(int(version.split(".")[0]), layers, ends or (layers[-1].name,))


def _new(model: dict[str, Any], weights: Any) -> Iterator[KerasLayer]:
    """Layers of the new format, whose groups are numbered by class."""
    counts: dict[str, int] = {}
    groups = weights.get("layers", {})
    for entry, reads in _entries(model):
        kind = entry["class_name"]
        base = re.sub(r"([a-z])([A-Z])", r"\1_\2", re.sub(r"(.)([A-Z][a-z0-9]+)", r"\1_\2", kind)).lower()
        number = counts.get(base, 0)
        counts[base] = number + 1
        name = base if not number else f"{base}_{number}"
        yield KerasLayer(kind, entry["config"], Arrays(groups.get(name, {}), by_name=False), reads)


def _old(model: dict[str, Any], weights: Any) -> Iterator[KerasLayer]:
    """Layers of the old format, whose groups have their names."""
    for entry, reads in _entries(model):
        config = entry["config"]
        group = weights.get(config["name"], [])
        yield KerasLayer(entry["class_name"], config, Arrays(group, by_name=True), reads)


def _entries(model: dict[str, Any]) -> Iterator[tuple[dict[str, Any], Reads]]:
    """The layers, and what they read: in a Sequential model the one before."""
    kind, config = model.get("class_name"), model.get("config", {})
    if kind == "Sequential":
        before: tuple[Result, ...] = ()
        for entry in config["layers"] if isinstance(config, dict) else config:
            yield entry, Reads(before)
            before = (Result(str(entry["config"].get("name", entry["class_name"]))),)
    elif kind in ("Functional", "Model"):
        for entry in config["layers"]:
            yield entry, _reads(entry.get("inbound_nodes", []))
    else:
        raise ModelError(f"must be a Sequential or Functional model, not {kind}; export it to ONNX instead")


def _reads(nodes: list[Any]) -> Reads:
    """What a layer's first call reads; the mask that it may be given is none of it."""
    if not nodes:
        return Reads()
    first = nodes[0]
    if isinstance(first, dict):  # Keras 3
        given, options = first.get("args", []), [first.get("kwargs") or {}]
    else:  # in Keras 2 each tensor has options of its own
        given = [tensor[:3] for tensor in first]
        options = [tensor[3] for tensor in first if len(tensor) > 3 and isinstance(tensor[3], dict)]
    states = [each["initial_state"] for each in options if each.get("initial_state") is not None]
    return Reads(tuple(_results(given)), tuple(_results(states)), len(nodes))


def _results(given: Any) -> Iterator[Result]:
    """All tensors in what a layer is called with."""
    if isinstance(given, dict):
        history = given.get("config", {}).get("keras_history")
        if history is not None:
            yield Result(history[0], history[2])
    elif isinstance(given, list | tuple):
        if len(given) == 3 and isinstance(given[0], str) and isinstance(given[2], int):
            yield Result(given[0], given[2])
        else:
            for item in given:
                yield from _results(item)
