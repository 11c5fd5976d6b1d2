"""Many streams at once: one accelerator for all threads of a program, or all tasks of an event loop.

One thread communicates with the device. It sends all waiting steps together. While the device computes them,
it sends the steps requested since, so that the connection is not idle until a caller has its answer.
"""

import asyncio
import queue
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rtlstm.host.accelerator import Accelerator
from rtlstm.host.raw_values import as_codes, as_numbers, check_values
from rtlstm.host.state import State
from rtlstm.host.stream import Stream
from rtlstm.host.transport import Closing, Owner
from rtlstm.spec.errors import DeviceError, InputError
from rtlstm.spec.fixed import IntArray
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.progress import Progress

Result = TypeVar("Result")

_AHEAD = 4
"""Largest number of exchanges in progress."""
_ONE = "; use steps for several at once"


class _Future(Future[Result]):
    """A result that the thread which serves requests does not wait for: it would for ever."""

    server: threading.Thread | None = None

    def result(self, timeout: float | None = None) -> Result:
        if threading.current_thread() is self.server and not self.done():
            self.cancel()
            raise DeviceError(
                "a function that call calls, or a future when it is done, must not wait for the shared "
                "accelerator, which waits for it; use what call gives the function, or submit and a callback"
            )
        return super().result(timeout)


@dataclass
class _Steps:
    """Requested steps of one stream."""

    stream: Stream
    x: IntArray
    saturated: int
    """Values of x that saturated."""
    future: _Future[IntArray] = field(default_factory=_Future)


@dataclass
class _Call:
    """Any other call, made between two exchanges."""

    function: Callable[[], Any]
    future: _Future[Any] = field(default_factory=_Future)


class SharedAccelerator(Closing):
    """An accelerator that any number of threads of one process may use. A context manager.

    Parameters
    ----------
    accelerator
        This object owns it from now on and closes it.
    """

    def __init__(self, accelerator: Accelerator) -> None:
        if not isinstance(accelerator, Accelerator):
            raise InputError(f"a SharedAccelerator needs an Accelerator, not {accelerator!r}; or use open")
        self._accelerator = accelerator
        self._jobs: queue.SimpleQueue[_Steps | _Call | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._owner = Owner("the accelerator")
        self._closed = False
        self._trouble: DeviceError | None = None
        self._thread = threading.Thread(target=self._work, name="rtlstm", daemon=True)
        self._thread.start()

    @property
    def manifest(self) -> Manifest:
        """The manifest of the build that the device holds."""
        return self._accelerator.manifest

    @classmethod
    def open(
        cls,
        folder: str | Path,
        backend: str = "golden",
        verify: bool = True,
        progress: Progress | None = None,
    ) -> Self:
        """Open a build folder; see :meth:`Accelerator.open`."""
        return cls(Accelerator.open(folder, backend, verify, progress))

    def call(self, function: Callable[[Accelerator], Result]) -> "Future[Result]":
        """Request a call of ``function(accelerator)`` after all steps requested so far.

        Raises
        ------
        DeviceError
            If this object is closed, or another process opened it.
        """
        if not callable(function):
            raise InputError(f"what is called must be a function of the accelerator, not {function!r}")
        job = _Call(lambda: function(self._accelerator))
        self._put(job)
        return job.future

    def stream(self) -> "SharedStream":
        """Reserve a stream with zero state. Raises the errors of :meth:`Accelerator.stream`."""
        return SharedStream(self, self.call(lambda accelerator: accelerator.stream()).result())

    def close(self) -> None:
        """Finish all requests and release the device. Further calls do nothing.

        In a function that :meth:`call` calls, it does not wait for that.

        Raises
        ------
        DeviceError
            If the device refused the last write, or another process opened it.
        """
        self._owner.check_process()
        with self._lock:
            if not self._closed:
                self._closed = True
                self._jobs.put(None)
        if threading.current_thread() is not self._thread:
            self._thread.join()
        trouble, self._trouble = self._trouble, None
        if trouble is not None:
            raise trouble

    def _put(self, job: _Steps | _Call) -> None:
        self._owner.check_process()  # A forked one has no thread that serves, and a lock that may stay taken.
        with self._lock:
            if self._closed:
                raise DeviceError("the accelerator is closed; open it again with SharedAccelerator.open")
            job.future.server = self._thread
            self._jobs.put(job)

    def _work(self) -> None:
        """Serve jobs in order; this is the thread's function."""
        under_way: deque[tuple[list[_Steps], Callable[[], IntArray]]] = deque()
        more = True
        while more or under_way:
            jobs = self._take(wait=more and not under_way) if more else []
            more = None not in jobs
            batch: list[_Steps] = []
            for job in jobs:
                if isinstance(job, _Steps):
                    if not job.future.set_running_or_notify_cancel():
                        continue
                    # A call before may have closed it, or handed it over to another network.
                    if job.stream.closed:
                        job.future.set_exception(DeviceError("the stream was closed before its steps"))
                    else:
                        batch.append(job)
                elif job is not None:
                    self._begin(batch, under_way)
                    batch = []
                    _fulfil(job)
            self._begin(batch, under_way)
            if under_way and (len(under_way) >= _AHEAD or self._jobs.empty()):
                self._finish(*under_way.popleft())
        try:
            self._accelerator.close()
        except DeviceError as error:
            self._trouble = error

    def _take(self, wait: bool) -> list[_Steps | _Call | None]:
        """Return all waiting jobs; wait for at least one if ``wait`` is set."""
        jobs: list[_Steps | _Call | None] = []
        try:
            while True:
                jobs.append(self._jobs.get(block=wait and not jobs))
        except queue.Empty:
            return jobs

    def _begin(
        self, batch: list[_Steps], under_way: deque[tuple[list[_Steps], Callable[[], IntArray]]]
    ) -> None:
        if not batch:
            return
        try:
            numbers = np.concatenate([np.full(len(job.x), job.stream.number) for job in batch])
            x = np.concatenate([job.x for job in batch])
            self._accelerator.saturated_inputs += sum(job.saturated for job in batch)
            under_way.append((batch, self._accelerator.device.begin(numbers, x)))
        except BaseException as error:
            for job in batch:
                job.future.set_exception(error)

    def _finish(self, batch: list[_Steps], finish: Callable[[], IntArray]) -> None:
        try:
            y = finish()
            self._accelerator._count_saturated(y, raw=True)
        except BaseException as error:
            for job in batch:
                job.future.set_exception(error)
            return
        ends = np.cumsum([len(job.x) for job in batch])
        for job, part in zip(batch, np.split(y, ends[:-1]), strict=True):
            job.future.set_result(part)


def _fulfil(job: _Call) -> None:
    if job.future.set_running_or_notify_cancel():
        try:
            job.future.set_result(job.function())
        except BaseException as error:
            job.future.set_exception(error)


class SharedStream(Closing):
    """A sequence in progress, as :class:`Stream`, for any thread. A context manager.

    Steps of one stream are computed in the order of the requests. Values outside the
    input format saturate without a warning; the accelerator's ``saturated_inputs`` counts them.
    """

    def __init__(self, shared: SharedAccelerator, stream: Stream) -> None:
        self._shared = shared
        self._stream = stream

    def submit(self, x: ArrayLike) -> "Future[IntArray]":
        """Request ``T`` steps, ``(T, inputs)`` or tokens; the future gives integers ``(T, outputs)``.

        The steps are not run if the future is cancelled before they are sent.

        Raises
        ------
        InputError
            If ``x`` has another shape, or values that the input format cannot take.
        DeviceError
            If the accelerator or the stream is closed.
        """
        return self._ask(x, ("T",))

    def _ask(self, x: ArrayLike, leading: tuple[str, ...], advice: str = "") -> "Future[IntArray]":
        """Request steps ``(*leading, inputs)``."""
        array = check_values(self._rows(x, len(leading)), leading, self._shared.manifest, advice)
        integers, saturated = as_codes(array, self._shared.manifest)
        self._stream.accelerator._note_codes(array)
        job = _Steps(self._stream, integers.reshape(-1, array.shape[-1]), saturated)
        self._shared._put(job)
        return job.future

    def step(self, x: ArrayLike) -> NDArray[Any]:
        """Compute one step and wait for it: ``(inputs,)`` to ``(outputs,)``; see :meth:`Stream.step`."""
        return self.present(x, self._ask(x, (), _ONE).result()[0])

    def steps(self, x: ArrayLike) -> NDArray[Any]:
        """Compute ``T`` steps and wait: ``(T, inputs)`` to ``(T, outputs)``."""
        return self.present(x, self._ask(x, ("T",)).result())

    def present(self, x: ArrayLike, y: IntArray) -> NDArray[Any]:
        """Convert outputs to the type of the caller's ``x``: floats for floats."""
        read = as_numbers("x", self._rows(x, y.ndim - 1))
        return self._shared._accelerator._present(y, read)

    def _rows(self, x: ArrayLike, axes: int) -> NDArray[Any]:
        """Look up tokens with so many axes."""
        return self._shared._accelerator.tables.look_up(x, axes=(axes,))

    def call(self, function: Callable[[Stream], Result]) -> "Future[Result]":
        """Request a call of ``function(stream)`` after all steps requested so far."""
        return self._shared.call(lambda _: function(self._stream))

    @property
    def state(self) -> State:
        """``(h, c)`` as floats; see :attr:`Stream.state`."""
        return self.call(lambda stream: stream.state).result()

    @state.setter
    def state(self, value: Any) -> None:
        self.call(lambda stream: setattr(stream, "state", value)).result()

    def reset(self) -> None:
        """Set the state to zero."""
        self.call(Stream.reset).result()

    def close(self) -> None:
        """Free the stream. Further calls do nothing."""
        if not self._shared._closed:
            self.call(Stream.close).result()


class AsyncAccelerator:
    """An accelerator for the tasks of an event loop. An asynchronous context manager.

    Parameters
    ----------
    accelerator
        As for :class:`SharedAccelerator`.
    """

    def __init__(self, accelerator: Accelerator) -> None:
        self._shared = SharedAccelerator(accelerator)

    @classmethod
    async def open(
        cls,
        folder: str | Path,
        backend: str = "golden",
        verify: bool = True,
        progress: Progress | None = None,
    ) -> Self:
        """Open a build folder; see :meth:`Accelerator.open`. ``progress`` is called in another thread."""
        return cls(await asyncio.to_thread(Accelerator.open, folder, backend, verify, progress))

    async def call(self, function: Callable[[Accelerator], Result]) -> Result:
        """Call ``function(accelerator)`` after all steps requested so far."""
        return await asyncio.wrap_future(self._shared.call(function))

    async def stream(self) -> "AsyncStream":
        """Reserve a stream with zero state. Raises the errors of :meth:`Accelerator.stream`."""
        stream = await self.call(lambda accelerator: accelerator.stream())
        return AsyncStream(SharedStream(self._shared, stream))

    async def close(self) -> None:
        """Finish all requested steps and release the device. Further calls do nothing."""
        await asyncio.to_thread(self._shared.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class AsyncStream:
    """A sequence in progress, as :class:`Stream`. An asynchronous context manager."""

    def __init__(self, shared: SharedStream) -> None:
        self._shared = shared

    async def step(self, x: ArrayLike) -> NDArray[Any]:
        """Compute one step: ``(inputs,)`` to ``(outputs,)``."""
        return self._shared.present(x, (await asyncio.wrap_future(self._shared._ask(x, (), _ONE)))[0])

    async def steps(self, x: ArrayLike) -> NDArray[Any]:
        """Compute ``T`` steps: ``(T, inputs)`` to ``(T, outputs)``."""
        return self._shared.present(x, await asyncio.wrap_future(self._shared.submit(x)))

    async def state(self) -> State:
        """``(h, c)`` as floats; see :attr:`Stream.state`."""
        return await asyncio.wrap_future(self._shared.call(lambda stream: stream.state))

    async def set_state(self, value: Any) -> None:
        """Set ``(h, c)``; see :attr:`Stream.state`."""
        await asyncio.wrap_future(self._shared.call(lambda stream: setattr(stream, "state", value)))

    async def reset(self) -> None:
        """Set the state to zero."""
        await asyncio.wrap_future(self._shared.call(Stream.reset))

    async def close(self) -> None:
        """Release the stream. Further calls do nothing."""
        await asyncio.to_thread(self._shared.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
