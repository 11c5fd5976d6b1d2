"""A file's kind is told by what only that kind has, whatever its sizes; only regular files are opened."""

import os
import random
import struct
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import safetensors.numpy
from support import keras_files, nam_files, tflite_files
from support.lazy import torch
from support.onnx_files import node, save

from rtlstm.gen.frontends import read_model
from rtlstm.gen.frontends.plugins import detect
from rtlstm.spec.errors import ModelError

DRAWS = 12


def state_dict(rng: random.Random) -> dict[str, Any]:
    layers, inputs, units = rng.randint(1, 6), rng.randint(1, 40), rng.randint(1, 24)
    prefix = rng.choice(("", "lstm.", "model.encoder.", "x" * rng.randint(1, 90) + "."))
    lstm = torch.nn.LSTM(inputs, units, layers, bias=rng.random() < 0.7, bidirectional=rng.random() < 0.3)
    return {prefix + name: value for name, value in lstm.state_dict().items()}


def write_onnx(path: Path, rng: random.Random) -> None:
    relu = [node("Relu", "x", "out", name="n" * rng.randint(1, 300))]
    model = onnx.load(save(path, relu, [], shape=("T", "N", rng.randint(1, 10**6))))
    model.ir_version = rng.randint(3, 11)
    # Its length and first letters stand where a size or another kind's mark would.
    model.producer_name = rng.choice(("", "TFL3", "TFL3 " + "p" * rng.randint(1, 200), "PK\3\4", "pytorch"))
    onnx.save(model, path)


def write_tflite(path: Path, rng: random.Random) -> None:
    shape = (1, rng.randint(1, 40), rng.randint(1, 90))
    tensors = {name: tflite_files.Tensor(shape=shape, name=name * rng.randint(1, 99)) for name in "xy"}
    path.write_bytes(tflite_files.build(tensors, [tflite_files.Operator("TANH", "x", "y")], ["x"], ["y"]))


def write_nam(path: Path, rng: random.Random) -> None:
    found = nam_files.content(rng.randint(1, 3), units=rng.randint(1, 8))[0]
    nam_files.save(path.parent, found).replace(path)


def write_torchscript(path: Path, rng: random.Random) -> None:
    torch.jit.script(torch.nn.Linear(rng.randint(1, 40), rng.randint(1, 40))).save(str(path))


def write_exported(path: Path, rng: random.Random) -> None:
    wide = rng.randint(1, 40)
    torch.export.save(torch.export.export(torch.nn.Linear(wide, 3), (torch.rand(2, wide),)), path)


WRITERS = {
    "onnx": write_onnx,
    "tflite": write_tflite,
    "nam": write_nam,
    "keras": lambda path, rng: keras_files.save(path, metadata={"note": "5" * rng.randint(1, 99)}),
    "safetensors": lambda path, rng: safetensors.numpy.save_file(
        {name: value.numpy() for name, value in state_dict(rng).items()}, path
    ),
    "torch": lambda path, rng: torch.save(
        state_dict(rng), path, pickle_protocol=rng.randint(2, 5),
        _use_new_zipfile_serialization=rng.random() < 0.5,
    ),
    "torchscript": write_torchscript,
    "exported": write_exported,
}  # fmt: skip
FEW = {"torchscript": 2, "exported": 1}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("kind", WRITERS)
def test_sizes_of_valid_files(kind: str, tmp_path: Path):
    """The content tells the kind: a name without a suffix, or with one of others', does not matter."""
    for number in range(FEW.get(kind, DRAWS)):
        rng = random.Random(f"{kind}.{number}")
        path = tmp_path / ("model.nam" if kind == "nam" else rng.choice(("model", "model.pt", "a.b")))
        WRITERS[kind](path, rng)
        assert detect(path) == kind, number


def padded(length: int) -> bytes:
    """A valid safetensors file whose header has this length, as writers that pad make it."""
    header = b'{"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'.ljust(length)
    return length.to_bytes(8, "little") + header + struct.pack("<f", 1.0)


def test_every_length_of_a_safetensors_header(tmp_path: Path):
    path = tmp_path / "model.safetensors"
    for length in (
        *range(64, 4096, 8),
        *(0x80 + 256 * n for n in range(2, 6)),
        0x4B50,
        0x4889,
        0x0808,
        2**16,
    ):
        path.write_bytes(padded(length))
        assert detect(path) == "safetensors", length
    assert list(safetensors.numpy.load_file(path)) == ["w"]


@pytest.mark.parametrize("inputs", [40, 64, 80])
def test_a_state_dict_whose_header_begins_like_a_pickle_is_read(inputs: int, tmp_path: Path):
    tensors: dict[str, np.ndarray] = {}
    for layer, width in ((0, inputs), (1, 100)):
        shapes = {"weight_ih": (400, width), "weight_hh": (400, 100), "bias_ih": (400,), "bias_hh": (400,)}
        tensors |= {f"lstm.{name}_l{layer}": np.zeros(shape, "f4") for name, shape in shapes.items()}
    path = tmp_path / "model.safetensors"
    safetensors.numpy.save_file(tensors, path)
    assert path.read_bytes()[:2] == b"\x80\x02" and read_model(path).network.inputs == inputs


def test_arrays_are_told_by_their_content(tmp_path: Path):
    for name, write in (("a", np.save), ("b", np.savez)):
        with (tmp_path / name).open("wb") as file:
            write(file, np.zeros(3))
        with pytest.raises(ModelError, match="holds arrays of NumPy's, not a model; give"):
            detect(tmp_path / name)


@pytest.mark.parametrize("suffix", ["", ".onnx", ".nam", ".safetensors", ".keras", ".pt2", ".tflite"])
def test_other_files_are_not_opened(suffix: str, tmp_path: Path):
    """A pipe without a writer would wait for ever, and a device may never end."""
    pipe, link = tmp_path / f"pipe{suffix}", tmp_path / f"link{suffix}"
    os.mkfifo(pipe)
    link.symlink_to("/dev/zero")
    for path, kind in ((pipe, "a pipe"), (link, "a character device")):
        with pytest.raises(ModelError, match=f"cannot be read: it is {kind}, not a regular file; copy"):
            read_model(path)
