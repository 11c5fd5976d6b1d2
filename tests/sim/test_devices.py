"""The driver's simulated devices, with a dummy core in the place of a build's."""

import numpy as np
import pytest
from support.fused_cells import LSTM, fused_numerics

from rtlstm import BuildError, ConfigurationError, DeviceError, Manifest, Parameters
from rtlstm.host.transport import Transport
from rtlstm.sim.backends import IcarusDevice, VerilatorDevice
from rtlstm.sim.simulated_ports import PortSpec
from rtlstm.spec.fixed import Format
from rtlstm.spec.numerics import Accumulator, LayerShape
from rtlstm.spec.registers import Register

pytestmark = pytest.mark.rtl

DEVICES = {"verilator": VerilatorDevice, "icarus": IcarusDevice}


@pytest.fixture(scope="module")
def manifest() -> Manifest:
    data, gate, read = (Format(bits=8, fraction=7), Format(bits=8, fraction=7), Format(bits=8, fraction=5))
    numerics = fused_numerics(
        data,
        weight_bits=8,
        input=data,
        gate=gate,
        preactivation=read,
        cell=Format(bits=16, fraction=12),
        cell_argument=read,
        accumulator=Accumulator(bits=24, align=0, partial_bits=24),
        shift_bits=4,
    )
    layer = LayerShape(
        kind="lstm", name="lstm", inputs=6, outputs=5, output=data, cell=LSTM, state=numerics.cell
    )
    parameters = Parameters(lanes=4, macs=4, beat_in=4, beat_out=2, streams=3)
    return Manifest.create("little", (layer,), parameters, numerics)


@pytest.fixture
def core(dummy_of, manifest):
    return dummy_of(PortSpec.from_manifest(manifest))


@pytest.fixture(params=DEVICES)
def device(request, core, manifest):
    device = DEVICES[request.param](core.folder, manifest, "", None)
    for stream in range(3):
        device.write(Register.STREAM, [stream])
        device.write(Register.COMMAND, [1])
    yield device
    device.close()


def test_is_a_transport(core, device) -> None:
    assert isinstance(device, Transport) and device.read(Register.ID).tolist() == [0x4C53544D]
    streams, x = core.stimulus(50)
    y = device.exchange(streams.astype(np.int64), x.astype(np.int64))
    assert y.dtype == np.int64 and (y == core.expected(streams, x)).all()
    assert (device.last_cycles.latency == core.latency).all()
    assert device.cycle > device.last_cycles.offered[-1]
    assert device.exchange(streams[:0], x[:0]).shape == (0, 5)


def test_stalls(core, device) -> None:
    device.stalls(3, 0.4, 0.4)
    streams, x = core.stimulus(50)
    assert (device.exchange(streams, x) == core.expected(streams, x)).all()
    assert (device.last_cycles.latency > core.latency).any()
    with pytest.raises(ConfigurationError, match=r"below 1, not 1\.0 and 0\.0"):
        device.stalls(3, 1.0, 0.0)


def test_failed_device_refuses_until_reopened(core, device) -> None:
    device.write(Register.FLAGS, [1])
    with pytest.raises(DeviceError, match="no transfer on x or y"):
        device.exchange(*core.stimulus(2))
    with pytest.raises(DeviceError, match=r"cannot be used any more.*open it again"):
        device.read(Register.ID)


def test_closed_device_refuses(device) -> None:
    device.close()
    device.close()
    with pytest.raises(DeviceError, match="the device is closed; open it again"):
        device.read(Register.ID)


def test_arguments(core, manifest) -> None:
    VerilatorDevice(core.folder, manifest, "7").close()
    with pytest.raises(ConfigurationError, match="must be a seed"):
        VerilatorDevice(core.folder, manifest, "fast")
    with pytest.raises(ConfigurationError, match="waveforms must be called"):
        IcarusDevice(core.folder, manifest, "fast")


def test_build_without_verilog(tmp_path, manifest) -> None:
    with pytest.raises(BuildError, match=r"rtl/little\.v cannot be read .*; generate the build again"):
        IcarusDevice(tmp_path, manifest)
