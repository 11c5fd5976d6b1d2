"""Whatever is handed to the driver, what comes back is a result or one of rtlstm's own errors."""

import asyncio
import warnings
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from support.lazy import torch

from rtlstm.host import Accelerator, AsyncAccelerator, SharedAccelerator, WeightImage, argmax, softmax
from rtlstm.host.transport import open_transport
from rtlstm.spec.errors import InputError, RtlstmError


class Odd:
    """Says that it is an array and is none."""

    def __array__(self, *_: object, **__: object) -> None:
        raise RuntimeError("no")


ODD: list[object] = [
    *(None, 5, -1, 2.5, True, float("nan"), 10**400, 1j, "x", "", "a\0b", b"b", "\udcff"),
    *([], [[]], (), {}, {"a": 1}, [[1, 2], [3]], [None] * 5, [1.0] * 5, ["1"] * 5, iter([1.0] * 5), range(5)),
    *(object(), Odd(), SimpleNamespace(shape=(2, 5)), int, Path("none"), Path("a\0b"), np.float16(1)),
    *(np.zeros(shape) for shape in ((), 0, (0, 5), 5, (2, 5), (2, 1, 5), (1,) * 32)),
    *(np.zeros((2, 5), kind) for kind in ("object", "complex", "datetime64[s]", "bool", "V4", "U3", "f2")),
    *(np.full((2, 5), np.inf), np.full((2, 5), 2**63, np.uint64)),
    *(np.recarray((2, 5), dtype=[("a", float)]), np.ma.masked_array(np.zeros((2, 5)), True)),
]


class Outcomes:
    """Tries calls with every odd value and keeps what is no error of ours."""

    def __init__(self) -> None:
        self.raw: list[str] = []
        self.passed: dict[str, int] = {}

    def attempt(self, name: str, call: Callable[[object], object]) -> None:
        for value in ODD:
            try:
                call(value)
            except RtlstmError:
                continue
            except Exception as error:
                self.raw.append(f"{name}({value!r:.40}): {type(error).__name__}: {error}")
            else:
                self.passed[name] = self.passed.get(name, 0) + 1


@pytest.fixture
def outcomes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Fails the test for each raw error. What is written goes to the test's own folder."""
    monkeypatch.chdir(tmp_path)
    found = Outcomes()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield found
    assert not found.raw, "\n".join(found.raw)


def test_opening(outcomes: Outcomes, small, tmp_path: Path):
    folder = small.save(tmp_path / "build")
    transport, attempt = small.open().device.transport, outcomes.attempt
    attempt("folder", lambda value: Accelerator.open(value))
    attempt("backend", lambda value: Accelerator.open(folder, value))
    attempt("verify", lambda value: Accelerator.open(folder, "golden", value).close())
    attempt("shared", lambda value: SharedAccelerator.open(value))
    attempt("around", lambda value: SharedAccelerator(value))
    attempt("transport", lambda value: Accelerator(value, small.manifest))
    attempt("manifest", lambda value: Accelerator(transport, value))
    attempt("open_transport", lambda value: open_transport(value, folder, small.manifest))
    attempt("image", lambda value: WeightImage.load(value, small.manifest))
    attempt("asynchronous", lambda value: asyncio.run(AsyncAccelerator.open(value)))
    # True, and 1 as a NumPy number is none.
    assert outcomes.passed == {"verify": 1}
    for value in (5, "progress"):
        with pytest.raises(InputError, match="progress must be a function of what, done and total"):
            Accelerator.open(folder, progress=value)
    with pytest.raises(InputError, match="the build folder must be a path, such as 'build/lstm', not 5"):
        Accelerator.open(5)
    with pytest.raises(InputError, match=r"not b'(0|\.)+'$"):  # Some values are long.
        Accelerator.open(b"0" * 1000)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="backend must be one of amaranth, golden, .* not None"):
        Accelerator.open(folder, None)


def test_running(outcomes: Outcomes, small, tmp_path: Path):
    folder, accelerator, x = small.save(tmp_path / "build"), small.open(), np.zeros((2, 3, 5))
    attempt = outcomes.attempt
    attempt("x", accelerator.run)
    attempt("lengths", lambda value: accelerator.run(x, value))
    attempt("state", lambda value: accelerator.run(x, None, value))
    attempt("states", lambda value: accelerator.run(x, None, (value, value)))
    attempt("batch_first", lambda value: accelerator.run(x, batch_first=value))
    attempt("outputs", lambda value: accelerator.run(x, outputs=value))
    attempt("weights", accelerator.load_weights)
    attempt("keep", lambda value: accelerator.load_weights(folder / "weights.bin", True, value))
    attempt("build", accelerator.load)
    attempt("scores", softmax)
    attempt("classes", argmax)
    expected = small.golden.run(np.zeros((2, 3, 5), np.int64)).y
    np.testing.assert_array_equal(accelerator.run(x.astype(int))[0], expected)


def test_streaming(outcomes: Outcomes, small):
    accelerator = small.open()
    stream, attempt = accelerator.stream(), outcomes.attempt
    attempt("streams", lambda value: accelerator.step_many(value, np.zeros((2, 5))))
    attempt("a stream", lambda value: accelerator.step_many([value], np.zeros((1, 5))))
    attempt("many", lambda value: accelerator.step_many([stream], value))
    attempt("step", stream.step)
    attempt("steps", stream.steps)
    attempt("state", lambda value: setattr(stream, "state", value))
    attempt("states", lambda value: setattr(stream, "state", (value, value)))
    attempt("restore", stream.restore)
    attempt("save", stream.save)


def test_sharing(outcomes: Outcomes, small):
    async def steps(accelerator: Accelerator, value: object) -> None:
        async with AsyncAccelerator(accelerator) as shared, await shared.stream() as stream:
            await stream.steps(value)

    with SharedAccelerator(small.open()) as shared:
        stream, attempt = shared.stream(), outcomes.attempt
        attempt("call", lambda value: value is int or shared.call(value).result())
        attempt("submit", lambda value: stream.submit(value).result())
        attempt("step", stream.step)
        attempt("steps", stream.steps)
        attempt("state", lambda value: setattr(stream, "state", value))
        attempt("tasks", lambda value: asyncio.run(steps(small.open(), value)))
        # The thread that serves it lives.
        assert stream.steps(np.zeros((2, 5))).shape == (2, 3)


def test_masked_values_are_not_ignored(small):
    accelerator, x = small.open(), np.ma.masked_array(np.zeros((2, 5)), False)
    assert accelerator.run(x)[0].shape == (2, 3)
    x.mask[1, 2] = True
    with pytest.raises(InputError, match=r"some are masked; fill them, .* give lengths if they are padding"):
        accelerator.run(x)


def test_advice_fits_what_is_no_array(small):
    accelerator = small.open()
    with pytest.raises(InputError, match=r"rows of the same length; pad .* give lengths"):
        accelerator.run([[0.0] * 5, [0.0]])
    tensor = torch.zeros(2, 5, dtype=torch.bfloat16)
    with pytest.raises(InputError, match="a detached float32 tensor on the CPU"):
        accelerator.run(tensor)
    assert accelerator.run(tensor.float())[0].shape == (2, 3)
