"""Many streams at once: one accelerator for all tasks of an event loop."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rtlstm.host.accelerator import Accelerator
from rtlstm.host.raw_values import as_numbers
from rtlstm.host.shared import SharedAccelerator, SharedStream
from rtlstm.host.state import State
from rtlstm.host.stream import Stream
from rtlstm.spec.progress import Progress

__all__ = ["AsyncAccelerator", "AsyncStream"]

Result = TypeVar("Result")


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
        y: NDArray[Any] = (await self.steps(as_numbers("x", x)[np.newaxis]))[0]
        return y

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
