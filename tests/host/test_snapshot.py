"""Snapshots: a stream's state in a file, from any backend to any other."""

import numpy as np
import pytest
from support.cell_networks import CELL_NETWORKS
from support.golden_runs import random_codes
from support.link_bench import LinkBench
from support.loadable_builds import NARROW
from support.quick import quick

from rtlstm import Accelerator, InputError, Manifest, Parameters
from rtlstm.gen.quantise.quantiser import quantise
from rtlstm.sim.golden import Golden
from rtlstm.sim.golden_device import GoldenDevice
from rtlstm.spec.packing import pack

pytestmark = pytest.mark.rtl


@pytest.mark.parametrize("name", ["small", "uneven"])
def test_another_backend_continues_on_the_same_bits(name, request, tmp_path):
    build = request.getfixturevalue(name)
    x = build.inputs(30)
    y = build.golden.run(x[:, None]).y[:, 0]
    path = tmp_path / "stream.npz"
    with LinkBench(build, rate=0.02).open() as first, first.stream() as stream:
        np.testing.assert_array_equal(stream.steps(x[:10]), y[:10])
        stream.save(path)
    with build.open() as second, second.stream() as other, second.stream() as stream:
        other.steps(x[3:9])
        stream.restore(path)
        np.testing.assert_array_equal(stream.steps(x[10:20]), y[10:20])
        stream.save(path)
    with LinkBench(build).open() as third, third.stream() as stream:
        stream.restore(path)
        np.testing.assert_array_equal(stream.steps(x[20:]), y[20:])
    assert [file.name for file in tmp_path.iterdir()] == ["stream.npz"]


@pytest.mark.parametrize("name", quick(CELL_NETWORKS, "gru", "projections", "custom_c"))
def test_states_of_other_cells(name, tmp_path):
    """A GRU keeps its h with more bits, plain cells keep no cell state, a projected h is narrower than c."""
    network = quantise(CELL_NETWORKS[name], NARROW)
    manifest = Manifest.of("cells", network, Parameters(lanes=16, macs=2))
    x = random_codes(network, 9, seed=2)
    y, path = Golden(network).run(x[:, None]).y[:, 0], tmp_path / "stream.npz"

    def opened() -> Accelerator:
        accelerator = Accelerator(GoldenDevice(tmp_path, manifest), manifest)
        accelerator.load_weights(pack(network, manifest))
        return accelerator

    with opened() as first, first.stream() as stream:
        np.testing.assert_array_equal(stream.steps(x[:4]), y[:4])
        stream.save(path)
    with opened() as second, second.stream() as stream:
        stream.restore(path)
        np.testing.assert_array_equal(stream.steps(x[4:]), y[4:])


def test_build_with_another_array_takes_it(make_build, tmp_path):
    small, large = make_build(), make_build(lanes=8, macs=4, streams=2)
    assert small.manifest.build_hash != large.manifest.build_hash
    x = small.inputs(12)
    with small.open() as first, first.stream() as stream:
        stream.steps(x[:5])
        stream.save(tmp_path / "s")
    with large.open() as second, second.stream() as stream:
        stream.restore(tmp_path / "s")
        np.testing.assert_array_equal(stream.steps(x[5:]), small.golden.run(x[:, None]).y[5:, 0])


def test_new_stream(small, tmp_path):
    with small.open() as accelerator, accelerator.stream() as stream:
        stream.save(tmp_path / "s")
        stream.steps(small.inputs(3))
        stream.restore(tmp_path / "s")
        assert not np.any(stream.state)


def test_wrong_files(small, uneven, make_build, tmp_path):
    path = tmp_path / "s.npz"
    with small.open() as accelerator, accelerator.stream() as stream:
        stream.steps(small.inputs(3))
        before = stream.state_integers
        for data in (None, b"", b"no snapshot", b"PK\x03\x04"):
            if data is not None:
                path.write_bytes(data)
            with pytest.raises(InputError, match="must be a snapshot that save wrote"):
                stream.restore(path)
        np.savez(path, h=np.zeros(3))
        with pytest.raises(InputError, match="must be a snapshot that save wrote"):
            stream.restore(path)
        stream.save(path)
        whole = path.read_bytes()
        path.write_bytes(whole[:-40])
        with pytest.raises(InputError, match="must be a snapshot that save wrote"):
            stream.restore(path)
        np.save(tmp_path / "array.npy", np.zeros(3))
        with pytest.raises(InputError, match="must be a snapshot that save wrote"):
            stream.restore(tmp_path / "array.npy")
        path.write_bytes(whole)
        with np.load(path) as file:
            fields = dict(file)
        np.savez(path, **(fields | {"version": 2}))
        with pytest.raises(InputError, match="must be a snapshot of version 1, not 2"):
            stream.restore(path)
        np.savez(path, **(fields | {"h0": fields["h0"] + 1000}))
        with pytest.raises(InputError, match="must be within"):
            stream.restore(path)
        np.savez(path, **(fields | {"c0": fields["c0"] / 2}))
        with pytest.raises(InputError, match="c0 of .* must hold integers, not float64"):
            stream.restore(path)
        with pytest.raises(InputError, match="cannot be written: its folder does not exist"):
            stream.save(tmp_path / "none" / "s")
        np.testing.assert_array_equal(stream.state_integers, before)
        path.write_bytes(whole)
    for other in (uneven, make_build(data_bits=9), make_build(hidden=(6, 6, 6))):
        with (
            other.open() as accelerator,
            accelerator.stream() as stream,
            pytest.raises(InputError, match="must hold recurrent layers of"),
        ):
            stream.restore(path)
