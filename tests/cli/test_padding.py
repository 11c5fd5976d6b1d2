"""``--pad front``: data with the padding in front of shorter sequences."""

import numpy as np
import pytest
import safetensors.numpy
from support.small_builds import INPUTS, tensors

COMMON = ("--lengths", "5,2", "--pad", "front")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("padding")
    safetensors.numpy.save_file(tensors(), folder / "tiny.safetensors")
    x = np.random.default_rng(0).normal(size=(5, 2, INPUTS)).astype("float32")
    front = np.full_like(x, 100)
    front[:, 0], front[3:, 1] = x[:, 0], x[:2, 1]
    np.save(folder / "x.npy", x)
    np.save(folder / "front.npy", front)
    return folder


@pytest.mark.slow
@pytest.mark.rtl
def test_commands_take_padding_in_front(cli, folder):
    def build(name, data, *options):
        words = ("generate", folder / "tiny.safetensors", "-o", folder / name, "--dense", "fc")
        words += ("--lanes", "4", "--macs", "2", "--calibrate", folder / data)
        cli(*words, "--calibrate-lengths", "5,2", *options)
        return folder / name

    one, other = build("one", "x.npy"), build("other", "front.npy", "--pad", "front")
    assert (one / "weights.bin").read_bytes() == (other / "weights.bin").read_bytes()
    cli("run", one, "--input", folder / "x.npy", "--lengths", "5,2", "--output", folder / "y.npy")
    cli("run", one, "--input", folder / "front.npy", *COMMON, "--output", folder / "z.npy")
    y, z = np.load(folder / "y.npy"), np.load(folder / "z.npy")
    np.testing.assert_array_equal(z[:, 0], y[:, 0])
    np.testing.assert_array_equal(z[3:, 1], y[:2, 1])
    words = ("simulate", one, "--input", folder / "front.npy", *COMMON, "--simulator", "icarus", "--json")
    assert cli(*words).json["steps"] == 7
    found = cli("accuracy", one, "--input", folder / "front.npy", *COMMON, "--json").json
    plain = cli("accuracy", one, "--input", folder / "x.npy", "--lengths", "5,2", "--json").json
    assert found["output"] == plain["output"]


def test_padding_needs_lengths(cli, folder, pristine):
    found = cli("run", pristine, "--input", folder / "front.npy", "--pad", "front")
    found.refused("--pad front says where", "give the valid steps of each sequence, too")
