"""The driver over the serial link, on good lines and bad ones: the golden model's bits, each step once."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from support.link_bench import LinkBench, least_limits, separate_runs

from rtlstm.host import Accelerator, Transport, pack
from rtlstm.host.link.engine import LinkTimeouts
from rtlstm.host.link.link_transport import LinkTransport
from rtlstm.sim.faults import Fault
from rtlstm.sim.link_port import SimulatedPort
from rtlstm.spec.errors import ConfigurationError, DeviceError, ImageError
from rtlstm.spec.link import FrameType, Limits
from rtlstm.spec.registers import Register

pytestmark = pytest.mark.rtl

NOISY = 0.05


def test_good_line(small):
    bench = LinkBench(small)
    with bench.open() as accelerator:
        x = small.inputs(40, 3)
        expected = small.golden.run(x)
        y, (h, c) = accelerator.run(x)
        np.testing.assert_array_equal(y, expected.y)
        np.testing.assert_array_equal(h, np.stack(expected.h))
        np.testing.assert_array_equal(c, np.stack(expected.c))
        last, _ = accelerator.run(x, lengths=[40, 3, 7], outputs="last")
        np.testing.assert_array_equal(last[1], expected.y[2, 1])
        none, (h, _) = accelerator.run(x, outputs="none")
        assert none.shape == (0, 3, 3)
        np.testing.assert_array_equal(h, np.stack(expected.h))
        with accelerator.stream() as stream:
            first = stream.steps(x[:20, 0])
            saved = stream.state_integers
            stream.reset()
            stream.state = saved
            second = stream.steps(x[20:, 0])
        np.testing.assert_array_equal(np.concatenate([first, second]), expected.y[:, 0])
        found = accelerator.device.transport.statistics
    assert found.repeated == found.surplus == found.resumed == found.damaged == 0
    assert bench.device.steps == 120 + 50 + 120 + 40 and bench.device.overflows == 0


def test_is_a_transport(small):
    with LinkBench(small).transport() as transport:
        assert isinstance(transport, Transport)
        assert transport.exchange(np.zeros(0, int), small.inputs(0)).shape == (0, 3)
        assert transport.read(Register.ID, 1000).tolist() == [0x4C53544D] * 1000
        assert transport.report.build == small.manifest.build_number
    with pytest.raises(DeviceError, match="is closed"):
        transport.read(Register.ID)


@pytest.mark.parametrize("bits", [5, 8, 12, 16, 18])
@pytest.mark.parametrize("rate", [0.0, NOISY])
def test_every_width_with_the_least_memory(make_build, bits, rate):
    # Inputs and outputs of several frames, in a device that can hold no more than one step.
    build = make_build(inputs=50, hidden=(40,), dense=(), data_bits=bits, streams=5)
    bench = LinkBench(build, least_limits(build.manifest), rate=rate)
    with bench.open() as accelerator:
        rng = np.random.default_rng(bits)
        streams, x = rng.integers(0, 5, 60), build.inputs(60)
        suppress = rng.random(60) < 0.3
        y = accelerator.device.transport.exchange(streams, x, suppress)
    expected = separate_runs(build, streams, x)
    np.testing.assert_array_equal(y, np.where(suppress[:, None], 0, expected))
    assert bench.device.steps == 60 and bench.device.overflows == 0


@pytest.mark.slow
def test_64_streams_over_a_bad_line(make_build):
    build = make_build(inputs=24, hidden=(3,), dense=(), streams=64)
    bench = LinkBench(build, Limits(64, 512, 512, 16), rate=0.01, seed=5)
    with bench.open() as accelerator:
        before = bench.device.steps
        streams = np.random.default_rng(5).integers(0, 64, 10_000)
        x = build.inputs(10_000)
        y = accelerator.device.transport.exchange(streams, x)
        np.testing.assert_array_equal(y, separate_runs(build, streams, x))
        assert bench.device.steps - before == 10_000 and bench.device.overflows == 0
        found = accelerator.device.transport.statistics
    # Each kind of fault was there, and cost something.
    assert set(bench.port.counts) == set(Fault)
    assert found.repeated and found.surplus and found.damaged and found.resumed and found.reopened


@settings(
    max_examples=25,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@example(
    seed=10, rate=0.265625, faults={Fault.DROP, Fault.DISCONNECT}, frames=25, body=48, latency=0.0
)  # took over a minute for one response
@given(
    seed=st.integers(0, 2**32),
    rate=st.floats(0.0, 0.3),
    faults=st.sets(st.sampled_from(Fault), min_size=1),
    frames=st.integers(2, 32),
    body=st.integers(48, 512),
    latency=st.sampled_from([0.0, 0.001, 0.05]),
)
def test_any_faults_and_any_limits(make_build, seed, rate, faults, frames, body, latency):
    build = make_build(inputs=3, hidden=(2,), dense=(), streams=4)
    limits = Limits(body, frames * body, frames * body, frames)
    bench = LinkBench(
        build, limits, latency=latency, rate=rate, seed=seed, faults=tuple(sorted(faults, key=str))
    )
    # With a quarter of all frames cutting the line, a response may take minutes of the line's own time.
    with bench.transport(LinkTimeouts(silence=60.0, opening=60.0, stall=600.0)) as transport:
        Accelerator(transport, build.manifest).load_weights(pack(build.network, build.manifest))
        streams, x = np.random.default_rng(seed).integers(0, 4, 100), build.inputs(100, seed=seed)
        y = np.concatenate(
            [transport.exchange(streams[:50], x[:50]), transport.exchange(streams[50:], x[50:])]
        )
        np.testing.assert_array_equal(y, separate_runs(build, streams, x))
        assert bench.device.steps == 100 and bench.device.overflows == 0


def test_efficiency(make_build):
    build = make_build(inputs=256, hidden=(2,), dense=(), streams=64)
    bench = LinkBench(build, latency=0.001)
    with bench.open() as accelerator:
        transport = accelerator.device.transport
        x, streams = build.inputs(512), np.arange(512) % 64
        sent, begun, busy = transport.statistics.bytes_sent, bench.good.now(), bench.good.busy_seconds[0]
        transport.exchange(streams, x)
        sent, busy = transport.statistics.bytes_sent - sent, bench.good.busy_seconds[0] - busy
        assert 512 * 256 / sent >= 0.9
        assert busy / (bench.good.now() - begun) >= 0.97


class Cut(SimulatedPort):
    """A line that dies for good with the n-th STEPS: before it has come, or before its response has."""

    def __init__(self, device, after, arrives):
        super().__init__(device, 3e6)
        self.left, self.arrives = after, arrives

    def _arrive(self, data):
        if self.left > 0:
            # The second byte of a frame is its type: none is zero.
            self.left -= data[1:2] == bytes([FrameType.STEPS])
            if self.left or self.arrives:
                super()._arrive(data)

    def _send(self):
        if self.left > 0:
            super()._send()


@pytest.mark.parametrize("arrives", [False, True])
def test_dead_link_is_one_error_and_the_state_is_that_of_a_step(small, arrives):
    bench = LinkBench(small)
    with bench.open():
        pass
    x, done = small.inputs(100), []
    transport = LinkTransport(
        Cut(bench.device, 6, arrives), small.manifest, LinkTimeouts(silence=1.0), seed=3
    )
    with pytest.raises(DeviceError, match=r"must answer, but nothing was received from it for 1\.\d s"):
        for x_t in x:
            done.append(transport.exchange(np.array([0]), x_t[None])[0])
    with pytest.raises(DeviceError, match="nothing was received"):
        transport.read(Register.ID)
    transport.close()
    # In the next session, the stream is where the last step that came has left it, and the report says which.
    accelerator = Accelerator(LinkTransport(SimulatedPort(bench.device), small.manifest), small.manifest)
    executed = accelerator.device.transport.report.steps
    assert len(done) == 5 and executed == 5 + arrives
    expected = small.golden.run(x[:executed, None])
    np.testing.assert_array_equal(done, expected.y[:5, 0])
    for found, part in zip(accelerator.device.read_state(0)[0], expected.h, strict=True):
        np.testing.assert_array_equal(found, part[0])


def test_flipped_bit_in_a_weight_frame_is_mended(small):
    bench = LinkBench(small, rate=0.1, faults=(Fault.FLIP,), seed=4)
    with bench.open() as accelerator:
        x = small.inputs(5)
        np.testing.assert_array_equal(accelerator.run(x)[0], small.golden.run(x[:, None]).y[:, 0])
    assert bench.device.dropped > 5


def test_flipped_bit_in_a_weight_memory_is_found(small):
    bench = LinkBench(small)
    image = pack(small.network, small.manifest)
    with Accelerator(bench.transport(), small.manifest) as accelerator:
        accelerator.load_weights(image, verify=False)
        write = bench.golden.write

        def flipping(register, words):
            words = np.array(words)
            if register == Register.DATA:
                words[-1] ^= 1
            write(register, words)

        bench.golden.write = flipping
        with pytest.raises(DeviceError, match="WEIGHTS bank 0 row"):
            accelerator.load_weights(image)
        bench.golden.write = write
        accelerator.load_weights(image)
        x = small.inputs(5)
        np.testing.assert_array_equal(accelerator.run(x)[0], small.golden.run(x[:, None]).y[:, 0])


def test_wrong_build_wrong_device_wrong_weights(small, uneven):
    bench = LinkBench(small)
    with pytest.raises(DeviceError, match=f"it holds build {small.manifest.build_number:08x}"):
        Accelerator(bench.transport(), uneven.manifest)
    bench.golden.read, read = lambda register, count=1: np.full(count, 5), bench.golden.read
    with pytest.raises(DeviceError, match="ID register must read 0x4c53544d, but it reads 0x00000005"):
        Accelerator(bench.transport(), small.manifest)
    bench.golden.read = read
    with Accelerator(bench.transport(), small.manifest) as accelerator:
        with pytest.raises(ImageError, match="must belong to build"):
            accelerator.load_weights(pack(uneven.network, uneven.manifest))
        accelerator.load_weights(pack(small.network, small.manifest))


def test_other_version_is_refused(small, monkeypatch):
    bench = LinkBench(small)
    report = bench.device.report
    monkeypatch.setattr(bench.device, "report", lambda: replace(report(), version=2))
    with pytest.raises(DeviceError, match="must speak version 1 .* it speaks version 2"):
        bench.transport()


def test_second_program_takes_the_device_and_the_first_is_told(small):
    bench = LinkBench(small)
    first = bench.transport()
    second = LinkTransport(bench.good, small.manifest, seed=2)
    with pytest.raises(DeviceError, match="was reset, or another program has opened it"):
        first.read(Register.ID)
    assert second.read(Register.ID)[0] == 0x4C53544D
    bench.device.reset()
    with pytest.raises(DeviceError, match="was reset, or another program has opened it"):
        second.exchange(np.array([0]), small.inputs(1))
    with bench.open() as accelerator:
        accelerator.run(small.inputs(3))


def test_device_that_never_finishes_is_told_apart(small):
    bench = LinkBench(small)
    transport = bench.transport(LinkTimeouts(stall=5.0))
    bench.device.work = lambda: False
    with pytest.raises(DeviceError, match="it has answered no request for 5.* although the link works"):
        transport.read(Register.ID)
    assert bench.good.now() < 8


def test_refused_write_is_reported_by_the_next_call(small, monkeypatch):
    bench = LinkBench(small)
    transport = bench.transport()
    transport.write(13, [1])
    monkeypatch.setattr("rtlstm.sim.link_device._REGISTERS", 13)
    transport.write(13, [1])
    with pytest.raises(DeviceError, match="take a WRITE request, but it has no such register"):
        transport.read(Register.ID)
    assert transport.read(Register.ID)[0] == 0x4C53544D
    bench.golden.close()
    with pytest.raises(DeviceError, match="the core or server that the link connects to failed"):
        transport.read(Register.ID)


def test_build_that_the_link_cannot_hold(make_build):
    build = make_build(inputs=200, streams=1)
    with (
        LinkBench(build, Limits(64, 128, 128, 2)).transport() as transport,
        pytest.raises(ConfigurationError, match="needs 2.. and .* bytes, 4 frames of 64"),
    ):
        transport.exchange(np.array([0]), build.inputs(1))


def test_interrupted_exchange_harms_nothing(small):
    bench = LinkBench(small)
    with bench.open() as accelerator:
        transport = accelerator.device.transport
        write, count = bench.good.write, [0]

        def interrupted(data):
            write(data)
            count[0] += 1
            if count[0] == 3:
                raise KeyboardInterrupt

        bench.good.write = interrupted
        x = small.inputs(3000)
        with pytest.raises(KeyboardInterrupt):
            transport.exchange(np.zeros(3000, int), x)
        bench.good.write = write
        accelerator.device.reset([0])
        y = transport.exchange(np.zeros(3000, int), x)
    np.testing.assert_array_equal(y, small.golden.run(x[:, None]).y[:, 0])


def test_closing_after_an_interruption_waits_for_nothing(small):
    bench = LinkBench(small)
    accelerator = bench.open()
    transport, write = accelerator.device.transport, bench.good.write

    def interrupted(data):
        raise KeyboardInterrupt

    bench.good.write = interrupted
    with pytest.raises(KeyboardInterrupt):
        transport.exchange(np.zeros(3000, int), small.inputs(3000))
    bench.good.write = write
    steps = bench.device.steps
    accelerator.close()
    assert bench.device.steps == steps < 3000


def test_progress(small):
    seen = []
    bench = LinkBench(small)
    with Accelerator(
        bench.transport(), small.manifest, progress=lambda *what: seen.append(what)
    ) as accelerator:
        accelerator.load_weights(pack(small.network, small.manifest))
    assert seen[0][0] == "load weights" and seen[-1][0] == "check weights"
    assert seen[-1][1] == seen[-1][2] == len(seen)
