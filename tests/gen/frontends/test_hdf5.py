"""HDF5 files that read other files, declare more than they hold, or are no Keras models: refused by name."""

import json
import zipfile
from pathlib import Path

import h5py
import numpy as np
import pytest
from support.keras_files import CELL, CONFIG, SHAPES, H, save

from rtlstm.gen.frontends import read_model
from rtlstm.spec.errors import ModelError
from rtlstm.spec.files import MAX_ELEMENTS

pytestmark = pytest.mark.usefixtures("read_here")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.keras"


@pytest.fixture
def secret(tmp_path):
    """Another file, of as many bytes as the first array has."""
    path = tmp_path / "secret"
    path.write_bytes(np.full(SHAPES["0"], 7.0, np.float32).tobytes())
    return path


def refuse(path: Path, *words: str) -> None:
    with pytest.raises(ModelError) as refusal:
        read_model(path)
    for word in words:
        assert word in str(refusal.value), refusal.value


def test_plain_file_is_read(path):
    layer = read_model(save(path)).network.layers[0]
    assert layer.units == H and np.all(layer.w_ih == 0.25)


def test_external_storage_is_refused(path, secret):
    def write(group, name):
        group.create_dataset(name, SHAPES[name], np.float32, external=[(str(secret), 0, 96)])

    refuse(save(path, a0=write), f"{CELL}/0", "external storage", "another file's")


def test_virtual_dataset_is_refused(path, tmp_path):
    with h5py.File(tmp_path / "other.h5", "w") as other:
        other["data"] = np.ones(SHAPES["0"])

    def write(group, name):
        layout = h5py.VirtualLayout(SHAPES[name], np.float64)
        layout[:] = h5py.VirtualSource(str(tmp_path / "other.h5"), "data", SHAPES[name])
        group.create_virtual_dataset(name, layout)

    refuse(save(path, a0=write), f"{CELL}/0", "a virtual dataset")


@pytest.mark.parametrize("where", ["0", "vars"])
def test_links_are_refused(path, tmp_path, where):
    def write(group, name):
        group[name] = h5py.ExternalLink(str(tmp_path / "other.h5"), "/data")

    def soft(group, name):
        group[name] = h5py.SoftLink("/elsewhere")

    refuse(save(path, a0=write), f"{CELL}/0", "a link to another file", "other.h5")
    refuse(save(path, a0=soft), f"{CELL}/0", "a soft link to '/elsewhere'")


def test_linked_groups_are_refused(tmp_path):
    """In the old format, too, whose arrays are found by walking through groups."""
    path = tmp_path / "model.h5"
    with h5py.File(path, "w") as file:
        file.attrs["model_config"] = json.dumps(CONFIG)
        file.create_group("model_weights/rec")["part"] = h5py.ExternalLink("other.h5", "/data")
    refuse(path, "model_weights/rec/part", "a link to another file")


def test_array_that_was_never_written_is_refused(path):
    def write(group, name):
        group.create_dataset(name, SHAPES[name], np.float32, chunks=(1, 1))

    refuse(save(path, a0=write), f"{CELL}/0", "declared, but never written")


def test_declared_size_is_bounded(path):
    """12 KB of file, and more elements than the budget has."""

    def write(group, name):
        array = group.create_dataset(name, (2**20, 2**20), np.float32, chunks=(1024, 1))
        array[0, 0] = 1.0

    save(path, a0=write)
    assert path.stat().st_size < 20_000
    refuse(path, f"{CELL}/0", f"{MAX_ELEMENTS:,} elements")


def test_arrays_count_together(path):
    def write(group, name):
        array = group.create_dataset(name, (MAX_ELEMENTS // 2, 1), np.float16, chunks=(1024, 1))
        array[0, 0] = 1

    def large(group, name):
        array = group.create_dataset(name, (MAX_ELEMENTS, 1), np.float16, chunks=(1024, 1))
        array[0, 0] = 1

    refuse(save(path, a1=write, a0=large), f"{CELL}/1", "have together")


def test_member_that_unpacks_to_gigabytes_is_refused(path):
    """A zip bomb: its sizes are declared, and kept to while unpacking."""
    save(path)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("model.weights.h5", b"")
        archive.writestr("metadata.json", "{}")
        with archive.open("config.json", "w", force_zip64=True) as member:
            for _ in range(80):
                member.write(bytes(2**20))
    refuse(path, "'config.json' unpacks to 83,886,080 bytes")


@pytest.mark.parametrize(
    "config",
    [
        "[" * 100_000,
        "[]",
        "{}",
        "null",
        "{",
        json.dumps({"class_name": "Sequential"}),
        json.dumps({"class_name": "Sequential", "config": None}),
        json.dumps({"class_name": "Sequential", "config": {"layers": []}}),
        json.dumps({"class_name": "Sequential", "config": {"layers": [{"class_name": 3, "config": {}}]}}),
        json.dumps({"class_name": "Sequential", "config": {"layers": [[]]}}),
        json.dumps({"class_name": "Functional", "config": {"layers": [{"inbound_nodes": [[[[]]]]}]}}),
        json.dumps(CONFIG).replace(f'"units": {H}', '"units": "many"'),
        json.dumps(CONFIG).replace(f'"units": {H}', '"units": null'),
    ],
)
def test_other_descriptions_are_refused(path, config):
    refuse(save(path, config))


@pytest.mark.parametrize("version", ["", "x", "3" * 5000, "-", None])
def test_other_versions_are_refused(path, version):
    refuse(save(path, metadata={"keras_version": version}))


def test_other_types_are_refused(path):
    def write(group, name):
        group.create_dataset(name, data=np.array([b"text"] * 3))

    refuse(save(path, a0=write), "must hold numbers")


def test_encrypted_member_is_refused(path):
    data = bytearray(save(path).read_bytes())
    for mark, place in ((b"PK\1\2", 8), (b"PK\3\4", 6)):
        at = data.find(mark)
        data[at + place] |= 1
    path.write_bytes(data)
    refuse(path, "'config.json'", "encrypted")
