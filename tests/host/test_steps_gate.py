"""One check of a step's values stands before every backend, those of other packages too."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.link_bench import LinkBench
from support.packages import install
from support.small_builds import INPUTS, NARROW, OUTPUTS, TINY, network

from rtlstm.gen.builds.generate import generate_build
from rtlstm.host import Accelerator, SharedAccelerator, Transport, backend_names
from rtlstm.host.link.link_transport import LinkTransport
from rtlstm.host.mmio import MmioTransport
from rtlstm.host.transport import open_transport
from rtlstm.sim.backends import IcarusDevice, VerilatorDevice
from rtlstm.sim.golden_device import GoldenDevice
from rtlstm.spec.errors import ConfigurationError, DeviceError, InputError
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.registers import IDENTITY, Register

WHOLE = np.zeros((2, INPUTS), np.int64)
STREAMS = np.array([0, 1])

# What is wrong with an exchange of two steps, and what is said.
BAD_STEPS: list[tuple[dict[str, Any], str]] = [
    ({"x": WHOLE[:, 1:]}, r"x must be \(2, 3\), not \(2, 2\); this build reads 3 values per time step"),
    ({"x": WHOLE[:1]}, r"x must be \(2, 3\), not \(1, 3\)"),
    (
        {"x": WHOLE.T},
        r"x must be \(2, 3\), not \(3, 2\);.* features stand before steps, .*swapaxes\(x, -1, -2\)",
    ),
    ({"x": WHOLE[0]}, r"x must be \(2, 3\), not \(3,\)"),
    ({"x": WHOLE[None]}, r"x must be \(2, 3\), not \(1, 2, 3\)"),
    ({"x": WHOLE + 0.5}, "x must hold codes, integers of the input format, not float64"),
    ({"x": WHOLE.astype(complex)}, "x must hold floats, or integers .* not complex128"),
    ({"x": WHOLE.astype(bool)}, "x must hold floats, or integers .* not bool"),
    ({"x": [["a"] * 3] * 2}, "x must hold floats, or integers .* not <U1"),
    ({"x": [[1, 2], [3]]}, "x must be an array of numbers"),
    ({"x": np.ma.masked_equal(WHOLE, 0)}, "x must hold a number everywhere, but some are masked"),
    (
        {"x": WHOLE + np.array([0, 128, 0])},
        r"x must be within -128 to 127 \(s8\.\d+\), but x\[0, 1\] is 128 and 1 more",
    ),
    ({"x": WHOLE - 129}, r"within -128 to 127 .* but x\[0, 0\] is -129 and 5 more; integers are codes"),
    ({"x": np.full((2, 3), 2**64 - 1, np.uint64)}, r"x\[0, 0\] is 18446744073709551615 and 5 more"),
    ({"streams": STREAMS + 1}, r"streams must be within 0 to 1, but streams\[1\] is 2"),
    ({"streams": STREAMS - 1}, r"streams must be within 0 to 1, but streams\[0\] is -1"),
    ({"streams": STREAMS[:, None]}, r"streams must be \(steps,\) integers, not \(2, 1\)"),
    ({"streams": STREAMS.astype(float)}, r"streams must be \(steps,\) integers, not \(2,\) of type float64"),
    ({"suppress": [True]}, r"suppress must be \(2,\) booleans, one per time step, not \(1,\)"),
    ({"suppress": [0, 1]}, r"suppress must be \(2,\) booleans, .* of type int64"),
]


class Untouched:
    """Registers or a simulated core, which no bad step may reach."""

    def read(self, register: int, count: int = 0) -> Any:
        if count:
            return np.zeros(count, np.uint32)
        return {Register.ID: IDENTITY, Register.VERSION: 1 << 16}.get(register, 0)

    def write(self, register: Register, word: int) -> None:
        assert register == Register.CONTROL

    def close(self) -> None:
        pass


PLUGIN = '''
from rtlstm.host import Transport
from rtlstm.sim.golden_device import GoldenDevice


class Borrowed(Transport):
    """A device of another package: the golden model behind four functions."""

    def __init__(self, folder, manifest, argument, progress):
        super().__init__(manifest)
        self.golden, self.seen = GoldenDevice(folder, manifest), []

    def write(self, register, words):
        self.golden.write(register, words)

    def read(self, register, count=1):
        return self.golden.read(register, count)

    def run_steps(self, steps):
        self.seen.append(steps)
        return self.golden.run_steps(steps)

    def close(self):
        self.golden.close()


def nothing(folder, manifest, argument, progress):
    return object()
'''


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("gate") / "tiny"
    generate_build(network(), place, settings=NARROW, parameters=TINY)
    return place


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install a package that brings the backends ``borrowed`` and ``nothing``."""
    (tmp_path / "borrowed.py").write_text(PLUGIN)
    points = "[rtlstm.backends]\nborrowed = borrowed:Borrowed\nnothing = borrowed:nothing\n"
    install(tmp_path, "borrowed", points)
    monkeypatch.syspath_prepend(tmp_path)


def over_a_link(folder: Path, manifest: Manifest) -> Transport:
    class Build:
        pass

    Build.manifest = manifest
    return LinkBench(Build).transport()


OPENERS: dict[str, Callable[[Path, Manifest], Transport]] = {
    "link": over_a_link,
    "mmio": lambda folder, manifest: MmioTransport(Untouched(), manifest),
}


@contextmanager
def opened(name: str, folder: Path) -> Iterator[Transport]:
    manifest = Manifest.load(folder)
    open_it = OPENERS.get(name, lambda folder, manifest: open_transport(name, folder, manifest))
    with open_it(folder, manifest) as transport:
        yield transport


@pytest.mark.parametrize("backend", ["golden", "verilator", "icarus", "link", "mmio", "borrowed"])
def test_every_backend_refuses_the_same_in_the_same_words(
    backend: str, folder: Path, plugin: None, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("rtlstm.sim.backends.load_cached", lambda *_: Untouched())
    with opened(backend, folder) as transport:
        for wrong, message in BAD_STEPS:
            given = {"streams": STREAMS, "x": WHOLE} | wrong
            for call in (transport.exchange, transport.begin):
                with pytest.raises(InputError, match=message):
                    call(**given)
        with pytest.raises((InputError, DeviceError), match="takes time steps one by one|takes whole seq"):
            transport.exchange(STREAMS, WHOLE, ends=[False, True])
        for words in ([-1], [2**32], [2**70]):
            with pytest.raises(InputError, match="words must be within 0 to 4294967295"):
                transport.write(Register.STREAM, words)
        for words in ([1.7], np.zeros(2), ["a"], [None]):
            with pytest.raises(InputError, match="words must be integers, not"):
                transport.write(Register.STREAM, words)
        if backend == "link":
            assert transport.statistics.requests == 0
        if backend != "mmio":
            assert transport.read(Register.STEPS)[0] == 0


def test_no_backend_has_a_way_around_the_check():
    for device in (GoldenDevice, VerilatorDevice, IcarusDevice, LinkTransport, MmioTransport):
        assert issubclass(device, Transport)
        assert device.exchange is Transport.exchange and device.begin is Transport.begin
    with pytest.raises(TypeError, match="abstract method"):
        type("Half", (Transport,), {"close": lambda self: None})(None)


def test_a_backend_of_another_package(folder: Path, plugin: None):
    assert {"borrowed", "nothing", "golden"} <= set(backend_names())
    x = np.random.default_rng(2).normal(size=(6, 2, INPUTS))
    with Accelerator.open(folder, "borrowed") as accelerator, Accelerator.open(folder) as golden:
        y, state = accelerator.run(x, outputs="last")
        wanted, wanted_state = golden.run(x, outputs="last")
        np.testing.assert_array_equal(y, wanted)
        np.testing.assert_array_equal(state, wanted_state)
        seen = accelerator.device.transport.seen
        assert sum(map(len, seen)) == 12 and sum(steps.suppress.sum() for steps in seen) == 10
        with pytest.raises(ConfigurationError, match="this backend cannot change to another network"):
            accelerator.device.adopt(accelerator.manifest)
    with SharedAccelerator.open(folder, "borrowed") as shared, shared.stream() as stream:
        assert stream.submit(x[:, 0]).result().shape == (6, OUTPUTS)
    with pytest.raises(ConfigurationError, match="backend 'nothing' must give an object of a class derived"):
        Accelerator.open(folder, "nothing")


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (np.zeros((2, OUTPUTS)), "must answer an array of integers .* of float64"),
        (np.zeros((1, OUTPUTS), np.int64), r"must answer an array of integers \(2, ., not \(1, "),
        ([[0] * OUTPUTS] * 2, "must answer an array of integers .*, not list"),
        (np.full((2, OUTPUTS), 40000), r"answer must be within .* but a backend's answer\[0, 0\] is 40000"),
    ],
)
def test_what_a_backend_answers_must_be_codes(folder: Path, answer: Any, words: str):
    class Answers(GoldenDevice):
        def run_steps(self, steps: Any) -> Any:
            return answer

    device = Answers(folder, Manifest.load(folder))
    with pytest.raises(DeviceError, match=words.replace("2, .,", f"2, {OUTPUTS}\\),")):
        device.exchange(STREAMS, WHOLE)
    finish = device.begin(STREAMS, WHOLE)
    with pytest.raises(DeviceError, match="answer"):
        finish()


BAD_VALUES: list[tuple[Any, str]] = [
    (np.zeros(2), r"x must be \(3,\), not \(2,\); this build reads 3 values per time step; use steps for"),
    ([0.0, np.nan, 0.0], r"x must be finite, but x\[1\] is nan"),
    ([0, 200, 0], r"x must be within -128 to 127 \(s8\.\d+\), but x\[1\] is 200; integers are codes"),
    (["a", "b", "c"], "x must hold floats, or integers"),
    ([True, False, True], "x must hold floats, or integers .* not bool"),
]


@pytest.mark.parametrize(("x", "message"), BAD_VALUES)
def test_every_call_refuses_the_same_values_in_the_same_words(folder: Path, x: Any, message: str):
    """One step of a stream, of a shared one, of several streams, and a run."""
    with Accelerator.open(folder) as accelerator:
        with accelerator.stream() as stream:
            with pytest.raises(InputError, match=message):
                stream.step(x)
            many = message.replace(r"\(3,\), not \(2,\)", r"\(., 3\), not \(1, 2\)").replace(
                "x\\[1", "x\\[0, 1"
            )
            many = many.partition("; use")[0]
            for call in (stream.steps, lambda x: accelerator.step_many([stream], x), accelerator.run):
                with pytest.raises(InputError, match=many):
                    call([x])
        shared = SharedAccelerator(accelerator)
        with shared, shared.stream() as stream, pytest.raises(InputError, match=message):
            stream.step(x)
