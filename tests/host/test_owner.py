"""A device is for the process that opened it and for one thread at a time; what is not, is one error."""

import copy
import os
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from support.link_bench import LinkBench

from rtlstm.host import Accelerator, AsyncAccelerator, SharedAccelerator, pack
from rtlstm.host.link.byte_ports import TcpPort
from rtlstm.host.link.link_transport import LinkTransport
from rtlstm.sim.golden_device import GoldenDevice
from rtlstm.sim.link_device import DeviceEngine
from rtlstm.sim.link_port import SimulatedPort
from rtlstm.sim.port_server import PortServer
from rtlstm.spec.errors import DeviceError
from rtlstm.spec.registers import Register

BUSY = "must be used by one thread at a time, but another one is using it; open it as a SharedAccelerator"
ELSEWHERE = "was opened in process .* and must be used there"


@contextmanager
def held(owner):
    """Another thread is inside meanwhile."""
    inside, leave = threading.Event(), threading.Event()

    def hold():
        with owner:
            inside.set()
            leave.wait(30)

    thread = threading.Thread(target=hold)
    thread.start()
    inside.wait(30)
    try:
        yield
    finally:
        leave.set()
        thread.join()


def in_child(*attempts):
    """What each attempt raises in a forked child: the texts of its DeviceErrors."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            found = []
            for attempt in attempts:
                try:
                    found.append(repr(attempt()))
                except DeviceError as error:
                    found.append(f"DeviceError: {error}")
            os.write(writer, "\n".join(found).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as file:
        text = file.read()
    os.waitpid(child, 0)
    return text.splitlines()


def uses(accelerator, stream, build):
    """Each way to use an open accelerator, by its name."""
    x, state = build.inputs(3), stream.state_integers
    return {
        "run": lambda: accelerator.run(x),
        "stream": accelerator.stream,
        "step": lambda: stream.step(x[0]),
        "steps": lambda: stream.steps(x),
        "step_many": lambda: accelerator.step_many([stream], x[:1]),
        "state": lambda: stream.state,
        "set state": lambda: setattr(stream, "state", state),
        "reset": stream.reset,
        "load_weights": lambda: accelerator.load_weights(pack(build.network, build.manifest)),
        "register": lambda: accelerator.measured_latency_cycles,
        "write": lambda: accelerator.device.transport.write(Register.STREAM, [0]),
        "begin": lambda: accelerator.device.begin(np.zeros(1, int), x[:1]),
    }


@pytest.mark.parametrize("backend", ["golden", "link"])
def test_every_use_beside_another_thread_is_refused(small, backend):
    with small.open() if backend == "golden" else LinkBench(small).open() as accelerator:
        stream = accelerator.stream()
        before, finish = stream.state_integers, accelerator.device.begin(np.zeros(1, int), small.inputs(1))
        ways = {**uses(accelerator, stream, small), "finish": finish, "close": accelerator.close}
        with held(accelerator.device.owner):
            for name, use in ways.items():
                if name != "close":
                    with pytest.raises(DeviceError, match=BUSY):
                        use()
                        pytest.fail(name)
        # Nothing was done meanwhile, and everything works again.
        assert not np.any(before[0]) and finish().shape == (1, accelerator.outputs)
        for name, use in ways.items():
            if name not in ("close", "finish"):
                use()


def test_two_runs_at_once_never_give_wrong_outputs(small):
    """A run takes several exchanges: it is one use."""
    inside, leave = threading.Event(), threading.Event()
    x = small.inputs(4, 7)
    expected = small.golden.run(x).y

    def wait(what, done, total):
        if what == "run" and threading.current_thread() is not threading.main_thread():
            inside.set()
            leave.wait(30)

    accelerator = Accelerator(GoldenDevice(Path(), small.manifest), small.manifest, wait)
    accelerator.load_weights(pack(small.network, small.manifest))
    with accelerator, ThreadPoolExecutor(1) as pool:
        first = pool.submit(accelerator.run, x)
        inside.wait(30)
        with pytest.raises(DeviceError, match=BUSY):
            accelerator.run(x)
        leave.set()
        np.testing.assert_array_equal(first.result()[0], expected)
        np.testing.assert_array_equal(accelerator.run(x)[0], expected)


def test_many_threads_are_right_or_told(small):
    x = small.inputs(4, 3)
    expected, told = small.golden.run(x).y, []
    with small.open() as accelerator:

        def run(_):
            try:
                return accelerator.run(x)[0]
            except DeviceError as error:
                told.append(str(error))
                return expected

        with ThreadPoolExecutor(8) as pool:
            for y in pool.map(run, range(40)):
                np.testing.assert_array_equal(y, expected)
    assert all("one thread at a time" in text for text in told)


@pytest.mark.parametrize("backend", ["golden", "link"])
def test_a_forked_process_is_told(small, backend):
    with small.open() if backend == "golden" else LinkBench(small).open() as accelerator:
        stream = accelerator.stream()
        ways = {**uses(accelerator, stream, small), "close": accelerator.close}
        found = in_child(*ways.values())
        assert len(found) == len(ways)
        for text in found:
            assert text.startswith("DeviceError: the device was opened in process "), text
            assert text.endswith("open it again in this process")
        # The device of this process is as it was.
        np.testing.assert_array_equal(
            stream.steps(small.inputs(3)), small.golden.run(small.inputs(3)[:, None]).y[:, 0]
        )


def test_a_fork_of_a_shared_accelerator_does_not_wait(small):
    x = small.inputs(2)
    with SharedAccelerator(small.open()) as shared:
        stream = shared.stream()
        with shared._lock:  # As another thread may hold it while a process forks.
            found = in_child(
                lambda: stream.step(x[0]),
                lambda: stream.submit(x),
                lambda: stream.state,
                stream.reset,
                stream.close,
                shared.stream,
                lambda: shared.call(lambda accelerator: accelerator.run(x)),
                shared.close,
            )
        assert len(found) == 8
        for text in found:
            assert text.startswith("DeviceError: the accelerator was opened in process "), text
        np.testing.assert_array_equal(stream.steps(x), small.golden.run(x[:, None]).y[:, 0])


def test_a_port_and_its_server_belong_to_their_process(small):
    device = GoldenDevice(Path(), small.manifest)
    with PortServer(SimulatedPort(DeviceEngine(device, small.manifest)), tcp=0, terminal=False) as server:
        link = LinkTransport(TcpPort("localhost", server.port), small.manifest)
        found = in_child(
            server.disconnect,
            server.stop,
            server.wait,
            server.close,
            lambda: link.read(Register.ID),
            link.close,
        )
        assert len(found) == 6
        for text in found:
            assert text.startswith("DeviceError: the ") and "was opened in process" in text, text
        assert link.read(Register.BUILD)[0] == small.manifest.build_number
        link.close()


@pytest.mark.parametrize(
    "carry", [copy.copy, copy.deepcopy, pickle.dumps], ids=["copy", "deepcopy", "pickle"]
)
def test_nothing_that_holds_a_device_is_copied(small, carry):
    with small.open() as accelerator, accelerator.stream() as stream:
        for thing in (accelerator, stream, accelerator.device.transport):
            with pytest.raises(
                DeviceError, match=f"{type(thing).__name__} objects cannot be copied, pickled"
            ):
                carry(thing)
    with SharedAccelerator(small.open()) as shared, shared.stream() as stream:
        for thing in (shared, stream):
            with pytest.raises(DeviceError, match="open the build again where it is needed"):
                carry(thing)
        if carry is not copy.copy:
            asynchronous = AsyncAccelerator.__new__(AsyncAccelerator)
            asynchronous._shared = shared
            with pytest.raises(DeviceError, match="SharedAccelerator objects cannot be copied"):
                carry(asynchronous)
