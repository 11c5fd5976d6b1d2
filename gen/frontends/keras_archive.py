"""Keras files: the configuration of the layers, and each layer's arrays. Keras itself is not needed."""

import io
import json
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rtlstm.gen.frontends.arrays import import_extra
from rtlstm.spec.errors import ModelError

__all__ = ["Arrays", "KerasLayer", "read_archive"]

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


class KerasLayer:
    """One layer: class, configuration, arrays."""

    def __init__(self, kind: str, config: dict[str, Any], arrays: Arrays) -> None:
        self.kind = kind
        self.config = config
        self.arrays = arrays

    @property
    def name(self) -> str:
        """The layer's name."""
        return str(self.config.get("name", self.kind))

    @property
    def where(self) -> str:
        """How messages name it."""
        return f"layer {self.name!r} ({self.kind})"


def read_archive(path: Path) -> tuple[int, list[KerasLayer]]:
    """Return the version of Keras that wrote the file, and its layers in order.

    Raises
    ------
    ModelError
        If it is damaged, or its layers are not one chain.
    """
    h5py = import_extra("h5py", "keras")
    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                model = json.loads(archive.read("config.json"))
                version = str(json.loads(archive.read("metadata.json")).get("keras_version", "3"))
                weights = h5py.File(io.BytesIO(archive.read("model.weights.h5")), "r")
            return int(version.split(".")[0]), list(_new(model, weights))
        weights = h5py.File(path, "r")
        text = weights.attrs.get("model_config")
        if text is None:
            raise ModelError("holds weights alone; save the whole model, with model.save")
        version = str(weights.attrs.get("keras_version", "2"))
        return int(version.split(".")[0]), list(_old(json.loads(text), weights["model_weights"]))
    except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
        if isinstance(error, ModelError):
            raise
        raise ModelError(f"is a damaged Keras file ({error}); save the model again") from None


def _new(model: dict[str, Any], weights: Any) -> Iterator[KerasLayer]:
    """Layers of the new format, whose groups are numbered by class."""
    counts: dict[str, int] = {}
    groups = weights.get("layers", {})
    for entry in _chain(model):
        kind = entry["class_name"]
        base = re.sub(r"([a-z])([A-Z])", r"\1_\2", re.sub(r"(.)([A-Z][a-z0-9]+)", r"\1_\2", kind)).lower()
        number = counts.get(base, 0)
        counts[base] = number + 1
        name = base if not number else f"{base}_{number}"
        yield KerasLayer(kind, entry["config"], Arrays(groups.get(name, {}), by_name=False))


def _old(model: dict[str, Any], weights: Any) -> Iterator[KerasLayer]:
    """Layers of the old format, whose groups have their names."""
    for entry in _chain(model):
        config = entry["config"]
        group = weights.get(config["name"], [])
        yield KerasLayer(entry["class_name"], config, Arrays(group, by_name=True))


def _chain(model: dict[str, Any]) -> list[dict[str, Any]]:
    """The layers, each of which reads the one before."""
    kind, config = model.get("class_name"), model.get("config", {})
    if kind == "Sequential":
        entries = config["layers"] if isinstance(config, dict) else config
        return list(entries)
    if kind not in ("Functional", "Model"):
        raise ModelError(f"must be a Sequential or Functional model, not {kind}; export it to ONNX instead")
    before = ""
    for entry in config["layers"]:
        read = _inputs(entry.get("inbound_nodes", []))
        if before and read != [before]:
            raise ModelError(
                f"layer {entry['config']['name']!r} reads {', '.join(read) or 'nothing'}, but the core "
                f"computes one chain, in which every layer reads the one before it ({before!r})"
            )
        before = entry["config"]["name"]
    return list(config["layers"])


def _inputs(nodes: Any) -> list[str]:
    """Names of the layers that a layer's calls read."""
    text = json.dumps(nodes)
    new = re.findall(r'"keras_history": \["([^"]+)"', text)
    return new or re.findall(r'\["([^"]+)", \d+, \d+', text)
