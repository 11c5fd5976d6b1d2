"""Damaged files of every kind: each is read, or refused by one named error; nothing else escapes a reader."""

import io
import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import h5py
import numpy as np
import onnx
import pytest
import safetensors.numpy
from onnx import helper
from support import fuzzing
from support.keras_files import CONFIG, fill, save
from support.lazy import torch
from support.onnx_files import O, const, ints, node, rand, squeezed
from support.onnx_files import save as save_onnx
from support.paths import ROOT
from support.quantised_files import dynamic, float_model, quantised_dense
from support.small_builds import tensors

from rtlstm.cli.data import load_array, load_state
from rtlstm.gen.frontends import limits, read_model
from rtlstm.host.state import StateLayout, load_snapshot, save_snapshot
from rtlstm.spec.errors import InputError
from rtlstm.spec.manifest import Manifest

TFLITE = ROOT / "tests" / "support" / "tflite"
SEED = 16
FEW = {
    "onnx": 300, "tflite": 300, "safetensors": 300, "npy": 400, "npz": 300, "snapshot": 300, "manifest": 200,
    "keras": 250, "h5": 150, "torch": 100, "torchscript": 40,
}  # fmt: skip
MORE = 15
"""How many times as many the slow run reads."""


def onnx_files(folder: Path) -> list[bytes]:
    nodes, weights = squeezed()
    dense = [node("MatMul", "s k", "m"), node("Add", "m b", "a"), node("Tanh", "a", "out")]
    save_onnx(folder / "a.onnx", [*nodes, *dense], [*weights, const("k", rand(6, O)), const("b", rand(O))])
    nodes, weights = squeezed(direction="forward")
    shape = [node("Shape", "x", "n"), node("Gather", "n zero", "g"), node("Unsqueeze", "g zero", "u")]
    more = [
        node("ConstantOfShape", "six", "f"),
        node("Mul", "s f", "p"),
        node("Slice", "p zero six one", "out"),
    ]
    weights += [ints("zero", 0), ints("six", 6)]
    branch = helper.make_graph(
        [node("Relu", "s", "r")], "g", [], [helper.make_tensor_value_info("r", onnx.TensorProto.FLOAT, None)]
    )
    more.append(node("If", "yes", "i", then_branch=branch, else_branch=branch))
    weights.append(const("yes", np.array(True)))
    save_onnx(folder / "b.onnx", [*nodes, *shape, *more], weights)
    quantised_dense(folder / "c.onnx", np.full((6, 4), 3, np.int8), np.float32(0.1), np.int8(1), clip=(-7, 7))
    float_model(folder / "float.onnx", np.random.default_rng(0))
    dynamic(folder / "float.onnx")
    return [(folder / name).read_bytes() for name in ("a.onnx", "b.onnx", "c.onnx", "dynamic.onnx")]


def model_reader(folder: Path, suffix: str):
    path = folder / f"fuzz{suffix}"

    def read(data: bytes) -> None:
        path.write_bytes(data)
        read_model(path)

    return read


def saved(write, *arrays, **named) -> bytes:
    data = io.BytesIO()
    write(data, *arrays, **named)
    return data.getvalue()


def safetensors_files() -> list[bytes]:
    """Headers of lengths that other kinds' files begin with, too, and of drawn ones."""
    layer = {name: value for name, value in tensors().items() if name.startswith("lstm")}
    lengths = (160, 416, 672, *np.random.default_rng(SEED).integers(1, 900, 4).tolist())
    return [safetensors.numpy.save(layer, metadata={"note": "x" * length}) for length in lengths]


def array_files() -> dict[str, list[bytes]]:
    x, state = np.ones((4, 2, 3), np.float32), np.zeros((2, 5))
    return {
        "npy": [saved(np.save, x), saved(np.save, np.arange(7)), saved(np.save, np.asfortranarray(state))],
        "npz": [saved(np.savez, x=x, lengths=np.arange(3)), saved(np.savez_compressed, h=state, c=state)],
    }


def array_reader(folder: Path):
    path = folder / "fuzz.npz"

    def read(data: bytes) -> None:
        path.write_bytes(data)
        with suppress(InputError):
            load_state(path)
        load_array(path, "inputs")

    return read


def snapshot_case(folder: Path, build: Path):
    layout = StateLayout(Manifest.load(build))
    parts = tuple(np.ones(size, np.int64) for size in layout.sizes)
    path = folder / "fuzz.npz"
    save_snapshot(path, layout, parts, parts)

    def read(data: bytes) -> None:
        path.write_bytes(data)
        load_snapshot(path, layout)

    return read, [path.read_bytes()]


def manifest_case(folder: Path, build: Path):
    path = folder / "manifest.json"

    def read(data: bytes) -> None:
        path.write_bytes(data)
        Manifest.load(folder)

    return read, [(build / "manifest.json").read_bytes()]


def check(name: str, counts: dict[str, int]) -> None:
    """Nothing but what is read or refused; and the damage is of both kinds."""
    print(f"{name}: {counts}")
    others = counts.keys() - {"accepted", "refused", "ended by a limit or a crash"}
    assert not others, {other: counts[other] for other in others}
    assert counts["refused"] > 0 and counts.get("accepted", 0) > 0


TIMES = pytest.mark.parametrize("times", [1, pytest.param(MORE, marks=pytest.mark.slow)])


@TIMES
@pytest.mark.parametrize("kind", ["onnx", "tflite", "safetensors", "npy", "npz", "snapshot", "manifest"])
def test_damaged_files(kind, times, tmp_path, pristine):
    cases = {
        "onnx": lambda: (fuzzing.damage_model, model_reader(tmp_path, ".onnx"), onnx_files(tmp_path)),
        "tflite": lambda: (
            fuzzing.damage_bytes,
            model_reader(tmp_path, ".tflite"),
            [(TFLITE / f"{name}.tflite").read_bytes() for name in ("special", "steps_int8_ends")],
        ),
        "safetensors": lambda: (
            fuzzing.damage_bytes,
            model_reader(tmp_path, ".safetensors"),
            safetensors_files(),
        ),
        "npy": lambda: (fuzzing.damage_bytes, array_reader(tmp_path), array_files()["npy"]),
        "npz": lambda: (fuzzing.damage_archive, array_reader(tmp_path), array_files()["npz"]),
        "snapshot": lambda: (fuzzing.damage_archive, *snapshot_case(tmp_path, pristine)),
        "manifest": lambda: (fuzzing.damage_json, *manifest_case(tmp_path, pristine)),
    }
    damage, read, files = cases[kind]()
    seed = SEED + times - 1
    counts = fuzzing.count_outcomes(
        damage, lambda data: fuzzing.outcome(read, data), files, seed, FEW[kind] * times
    )
    check(kind, counts)


def foreign_files(kind: str, folder: Path) -> list[Path]:
    """Small files of a kind that is read in a child process."""
    path = folder / f"net.{kind}"
    if kind == "keras":
        return [save(path)]
    if kind == "h5":
        with h5py.File(path, "w") as file:
            file.attrs["model_config"] = json.dumps(CONFIG)
            file.attrs["keras_version"] = "2.9.0"
            group = file.create_group("model_weights/rec/rec/lstm_cell")
            fill(group)
            for new, old in (("kernel:0", "0"), ("recurrent_kernel:0", "1"), ("bias:0", "2")):
                group.move(old, new)
        return [path]
    module = torch.nn.Sequential(torch.nn.LSTM(3, 2))
    if kind == "torch":
        torch.save(torch.nn.LSTM(3, 2).state_dict(), path)
    else:
        torch.jit.trace(module, torch.rand(2, 1, 3)).save(str(path))
    return [path]


@TIMES
@pytest.mark.skipif(not hasattr(os, "fork"), reason="each is read in a fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize("kind", ["keras", "h5", "torch", "torchscript"])
def test_damaged_foreign_files(kind, times, tmp_path):
    """Each in a fork with the child process's limits; to end by one of these is a named error, too."""
    files = foreign_files(kind, tmp_path)
    command = [sys.executable, fuzzing.__file__, {"h5": "keras"}.get(kind, kind)]
    numbers = [SEED + times - 1, FEW[kind] * times]
    done = subprocess.run(
        [*command, *map(str, numbers), *map(str, files)],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | limits.ENVIRONMENT,
    )
    assert done.returncode == 0, done.stderr
    check(kind, json.loads(done.stdout))
