"""Keras files of one LSTM, written without Keras."""

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import h5py
import numpy as np

I, H = 3, 2  # noqa: E741
SHAPES = {"0": (I, 4 * H), "1": (H, 4 * H), "2": (4 * H,)}
CONFIG = {
    "class_name": "Sequential",
    "config": {
        "layers": [
            {"class_name": "InputLayer", "config": {"name": "x", "batch_shape": [None, None, I]}},
            {"class_name": "LSTM", "config": {"name": "rec", "units": H, "return_sequences": True}},
        ]
    },
}
CELL = "layers/lstm/cell/vars"


def fill(group: Any, **others: Any) -> None:
    """Write an LSTM's arrays; a function of ``others`` writes the one of its name (``a0``, ...) instead."""
    for name, shape in SHAPES.items():
        if f"a{name}" in others:
            others[f"a{name}"](group, name)
        else:
            group[name] = np.full(shape, 0.25, np.float32)


def save(path: Path, config: Any = CONFIG, metadata: Any = None, cell: str = CELL, **others: Any) -> Path:
    """Write a Keras 3 file."""
    data = io.BytesIO()
    with h5py.File(data, "w") as file:
        fill(file.create_group(cell), **others)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("config.json", config if isinstance(config, str) else json.dumps(config))
        archive.writestr("metadata.json", json.dumps(metadata or {"keras_version": "3.5.0"}))
        archive.writestr("model.weights.h5", data.getvalue())
    return path
