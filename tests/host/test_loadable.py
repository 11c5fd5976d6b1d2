"""Another network, and other weights, on a device that runs."""

from pathlib import Path

import numpy as np
import pytest
from support.loadable_builds import build_for, check, make_device, stacked

from rtlstm import Accelerator, ConfigurationError, DeviceError, ImageError, Parameters, SharedAccelerator
from rtlstm.sim.golden import Golden
from rtlstm.sim.golden_device import GoldenDevice
from rtlstm.spec.packing import pack
from rtlstm.spec.registers import Region, Register

PARAMETERS = Parameters(lanes=8, macs=4, streams=3)


@pytest.fixture(scope="module")
def device():
    return make_device(stacked(3, 5, dense=((2, "sigmoid"),)), PARAMETERS)


@pytest.fixture(scope="module")
def other(device):
    return build_for(stacked(7, 4, 9, dense=((6, "relu"), (3, "identity")), seed=1), device)


@pytest.fixture
def folders(device, other, tmp_path):
    return device.save(tmp_path / "device"), other.save(tmp_path / "other")


def test_another_network_and_back(device, other, folders):
    with Accelerator.open(folders[0]) as accelerator:
        check(accelerator, device, seed=1)
        accelerator.load(folders[1])
        assert accelerator.manifest == other.manifest
        check(accelerator, other, seed=2)
        with accelerator.stream() as stream:
            x = other.inputs(4)[:, 0]
            np.testing.assert_array_equal(stream.steps(x), Golden(other.network).run(x[:, None]).y[:, 0])
        accelerator.load(folders[0])
        check(accelerator, device, seed=3)


def test_either_build_opens_the_device(device, other, folders):
    assert other.manifest.build_number == device.manifest.build_number
    assert other.manifest.build_hash != device.manifest.build_hash
    with Accelerator.open(folders[1]) as accelerator:
        check(accelerator, other, seed=1)
        with pytest.raises(ImageError, match="must belong to build"):
            accelerator.load_weights(folders[0] / "weights.bin")
        check(accelerator, other, seed=1)


def test_a_program_larger_than_its_capacity(device, folders, tmp_path):
    """One error that names what is too small; the device goes on."""
    larger = make_device(stacked(3, 5, dense=((2, "sigmoid"),)), PARAMETERS, outputs=40, weight_rows=999)
    folder = build_for(stacked(3, 5, dense=((33, "relu"),)), larger).save(tmp_path / "larger")
    with Accelerator.open(folders[0]) as accelerator:
        with pytest.raises(ConfigurationError) as refused:
            accelerator.load(folder)
        assert "it needs 33 outputs and the device holds 20" in str(refused.value)
        assert "'outputs': 33" in str(refused.value) and "weight_rows" not in str(refused.value)
        check(accelerator, device, seed=1)


def test_a_capacity_out_of_range():
    """The message says that it is a capacity, since only its name follows."""
    with pytest.raises(ConfigurationError, match="a capacity is out of range: networks: .* 16, not 17"):
        make_device(stacked(3, 5), PARAMETERS, networks=17)


def test_a_build_of_other_hardware(device, folders, tmp_path):
    wider = make_device(stacked(3, 5), PARAMETERS.replace(macs=8)).save(tmp_path / "wider")
    with Accelerator.open(folders[0]) as accelerator:
        with pytest.raises(ConfigurationError, match="with other parameters|with other macs.*device"):
            accelerator.load(wider)
        check(accelerator, device, seed=1)


def test_a_device_with_a_fixed_program(small, folders, tmp_path):
    with (
        Accelerator.open(small.save(tmp_path / "small")) as accelerator,
        pytest.raises(ConfigurationError, match="is fixed and takes other weights alone"),
    ):
        accelerator.load(folders[1])


def test_open_streams_keep_their_network(device, folders):
    with Accelerator.open(folders[0]) as accelerator:
        stream = accelerator.stream()
        with pytest.raises(DeviceError, match=r"no stream may be open .* but 1 are"):
            accelerator.load(folders[1])
        stream.close()
        accelerator.load(folders[1])


def test_shared_accelerator_switches(device, other, folders):
    with SharedAccelerator.open(folders[0]) as shared:
        with shared.stream() as stream:
            assert stream.step(np.zeros(3)).shape == (2,)
        shared.call(lambda accelerator: accelerator.load(folders[1])).result()
        with shared.stream() as stream:
            x = other.inputs(4)[:, 0]
            np.testing.assert_array_equal(stream.steps(x), Golden(other.network).run(x[:, None]).y[:, 0])


class Failing(GoldenDevice):
    """Stores zeros in the region that ``fails``, once only if it ``heals``."""

    fails: Region | None = None
    heals = False

    def write(self, register, words):
        if register == Register.DATA and self._window.select >> 28 == self.fails:
            words = np.zeros(len(words), dtype=np.int64)
            self.fails = None if self.heals else self.fails
        super().write(register, words)


def failing(build) -> tuple[Accelerator, Failing]:
    transport = Failing(Path(), build.manifest)
    accelerator = Accelerator(transport, build.manifest)
    accelerator.load_weights(pack(build.network, build.manifest))
    return accelerator, transport


def test_a_half_loaded_network_takes_no_step(device, other, folders):
    accelerator, transport = failing(device)
    transport.fails = Region.SHIFTS
    with pytest.raises(DeviceError, match="SHIFTS bank 0 row 0"):
        accelerator.load(folders[1])
    x = np.zeros((1, 1, 7))
    with pytest.raises(DeviceError, match="loading it has failed"):
        accelerator.run(x)
    # Nor does the device itself.
    with pytest.raises(DeviceError, match="must hold a complete program, but does not"):
        transport.exchange(np.zeros(1, dtype=np.int64), np.zeros((1, 7), dtype=np.int64))
    transport.fails = None
    accelerator.load(folders[0])
    check(accelerator, device, seed=1)


def changed(build):
    """The same layers with other weights."""
    from copy import deepcopy

    network = deepcopy(build.network)
    lstm = network.layers[0]
    lstm.w_ih[:], lstm.w_hh[:] = lstm.w_ih[::-1].copy(), lstm.w_hh // 2
    return network


def test_streams_keep_their_states_under_new_weights(device, folders):
    weights = changed(device)
    with Accelerator.open(folders[0]) as accelerator:
        x = device.inputs(9)[:, 0]
        first = Golden(device.network).run(x[:4, None])
        rest = Golden(weights).run(x[4:, None], (first.h, first.c))
        assert not np.array_equal(rest.y, Golden(device.network).run(x[4:, None], (first.h, first.c)).y)
        with accelerator.stream() as stream:
            np.testing.assert_array_equal(stream.steps(x[:4]), first.y[:, 0])
            accelerator.load_weights(pack(weights, device.manifest), keep_states=True)
            np.testing.assert_array_equal(stream.steps(x[4:]), rest.y[:, 0])


def test_weights_that_cannot_be_written_leave_those_before(device):
    accelerator, transport = failing(device)
    x = device.inputs(9)[:, 0]
    expected = Golden(device.network).run(x[:, None]).y[:, 0]
    with accelerator.stream() as stream:
        np.testing.assert_array_equal(stream.steps(x[:4]), expected[:4])
        transport.fails, transport.heals = Region.PROGRAM, True
        with pytest.raises(DeviceError, match="previous weights have been loaded again"):
            accelerator.load_weights(pack(changed(device), device.manifest), keep_states=True)
        np.testing.assert_array_equal(stream.steps(x[4:]), expected[4:])


def test_weights_that_cannot_be_restored_stop_the_driver(device):
    accelerator, transport = failing(device)
    with accelerator.stream() as stream:
        transport.fails = Region.SHIFTS
        with pytest.raises(DeviceError, match="could not be loaded again either"):
            accelerator.load_weights(pack(changed(device), device.manifest))
        with pytest.raises(DeviceError, match="load weights or a build again"):
            stream.step(np.zeros(3))
        transport.fails = None
        accelerator.load_weights(pack(device.network, device.manifest))
        stream.reset()
        x = device.inputs(3)[:, 0]
        np.testing.assert_array_equal(stream.steps(x), Golden(device.network).run(x[:, None]).y[:, 0])
