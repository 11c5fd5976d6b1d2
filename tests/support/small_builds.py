"""A small network, as tensors and as a record, and a small build's parameters."""

import hashlib
import json
import re
from pathlib import Path

import numpy as np

from rtlstm import Dense, Lstm, Network, Parameters, QuantizationSettings

INPUTS, UNITS, OUTPUTS = 3, 4, 2
TINY = Parameters(lanes=4, macs=2, streams=2)
NARROW = QuantizationSettings(weight_bits=8, data_bits=8, gate_bits=8, cell_bits=12)
"""Small tables: a four-state simulator loads them quickly."""


def rand(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape, scale=0.5).astype(np.float32)


def tensors(**changes: np.ndarray) -> dict[str, np.ndarray]:
    """An LSTM and a dense layer, with PyTorch's names."""
    return {
        "lstm.weight_ih_l0": rand(4 * UNITS, INPUTS, seed=1),
        "lstm.weight_hh_l0": rand(4 * UNITS, UNITS, seed=2),
        "lstm.bias_ih_l0": rand(4 * UNITS, seed=3),
        "lstm.bias_hh_l0": rand(4 * UNITS, seed=4),
        "fc.weight": rand(OUTPUTS, UNITS, seed=5),
        "fc.bias": rand(OUTPUTS, seed=6),
        **changes,
    }


def normal_lstm(rng: np.random.Generator, inputs: int, units: int, **more: object) -> Lstm:
    """A layer of normal numbers."""
    shapes = {"w_ih": (4 * units, inputs), "w_hh": (4 * units, units), "bias": (4 * units,)}
    return Lstm(**{name: rng.normal(size=shape) for name, shape in shapes.items()}, **more)


def network() -> Network:
    """The same layers as :func:`tensors`, without a file."""
    t = tensors()
    lstm = Lstm(
        name="lstm",
        w_ih=t["lstm.weight_ih_l0"],
        w_hh=t["lstm.weight_hh_l0"],
        bias=t["lstm.bias_ih_l0"].astype(np.float64) + t["lstm.bias_hh_l0"],
    )
    return Network(name="tiny", layers=(lstm, Dense(name="fc", weight=t["fc.weight"], bias=t["fc.bias"])))


def own_verilog(build: Path, text: str) -> None:
    """Give a build other Verilog on purpose: it is used, because the manifest lists its hash."""
    manifest = json.loads((build / "manifest.json").read_text())
    rtl = manifest["files"][0]
    rtl["sha256"] = hashlib.sha256(text.encode()).hexdigest()
    (build / rtl["path"]).write_text(text)
    (build / "manifest.json").write_text(json.dumps(manifest))


def snapshot(folder: Path) -> dict[str, bytes]:
    """Every file of a folder, hidden ones too."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def named_options(refusal: str) -> list[str]:
    """The options with which a network fits, as ``rtlstm generate --fit`` names them when it does not."""
    found = re.search(r" with ((?:--[\w-]+ \w+ ?)+)it fits", refusal)
    assert found is not None, refusal
    return found[1].split()
