"""One sequence whose state stays on the device between calls."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rtlstm.host.device import Device
from rtlstm.host.state import State, load_snapshot, save_snapshot
from rtlstm.host.transport import Closing
from rtlstm.spec.errors import DeviceError
from rtlstm.spec.fixed import IntArray
from rtlstm.spec.manifest import Manifest


class StreamDevice(Protocol):
    """The part of an accelerator that its streams use."""

    manifest: Manifest
    device: Device

    def _stream_steps(
        self, streams: Sequence[Stream], x: ArrayLike, leading: tuple[int | str, ...], advice: str = ""
    ) -> NDArray[Any]:
        """Run ``x``, ``(*leading, I)``, one step per stream or all steps on one; return ``(K, O)``."""

    def _warn_states(self, name: str, c: Sequence[IntArray]) -> None:
        """Warn about cell states that may have saturated."""

    def _note_codes(self, array: NDArray[Any]) -> None:
        """Warn, once, that integers are taken as codes."""

    def _release(self, number: int) -> None:
        """Free a stream."""


class Stream(Closing):
    """A sequence in progress. Made by :meth:`Accelerator.stream`; a context manager.

    Floats in give floats out; integers of the build's formats in give integers out. A stream
    may have any number of steps: the build's ``max_steps`` applies only to :meth:`Accelerator.run`.
    Loading weights resets it.
    """

    def __init__(self, accelerator: StreamDevice, number: int) -> None:
        self._accelerator: StreamDevice | None = accelerator
        self._number = number

    @property
    def accelerator(self) -> StreamDevice:
        """The accelerator that computes it. Raises DeviceError after :meth:`close`."""
        if self._accelerator is None:
            raise DeviceError("the stream is closed; open another with Accelerator.stream")
        return self._accelerator

    @property
    def number(self) -> int:
        """Its number on the device."""
        return self._number

    @property
    def closed(self) -> bool:
        """Whether :meth:`close` was called."""
        return self._accelerator is None

    def step(self, x: ArrayLike) -> NDArray[Any]:
        """Compute one step: ``(inputs,)``, or its frames ``(frames, inputs / frames)``, to ``(outputs,)``.

        If the model begins with an embedding, ``x`` may be a token, an integer. Of a build that decides, the
        number of the largest output is returned, ``()``; of :meth:`steps`, ``(T,)``.

        Raises
        ------
        InputError
            If ``x`` has another shape, or values that the input format cannot take.
        DeviceError
            If the stream or the accelerator is closed, or the device fails.
        """
        advice = "; use steps for several at once"
        y: NDArray[Any] = self.accelerator._stream_steps([self], x, (), advice=advice)[0]
        return y

    def steps(self, x: ArrayLike) -> NDArray[Any]:
        """Compute ``T`` steps: ``(T, inputs)``, their frames or tokens ``(T,)``, to ``(T, outputs)``.

        Raises the errors of :meth:`step`.
        """
        return self.accelerator._stream_steps([self], x, ("T",))

    @property
    def state(self) -> State:
        """``(h, c)`` as floats, in the structure that an unbatched ``run`` returns.

        ``h`` and ``c`` are ``(num_layers, H)``, or tuples of ``(H_l,)`` if the layers differ in
        size. Setting it accepts floats or integers; a state that was read is restored exactly.
        """
        return self._read_state(raw=False)

    @state.setter
    def state(self, value: Any) -> None:
        device = self.accelerator.device
        h, c, saturations = device.layout.parse(value, None)
        device.layout.warn_saturations(("h", "c"), saturations, 1)
        device.write_state(self._number, [part[0] for part in h], [part[0] for part in c])

    @property
    def state_integers(self) -> State:
        """:attr:`state` as the device's integers."""
        return self._read_state(raw=True)

    def _read_state(self, raw: bool) -> State:
        device = self.accelerator.device
        h, c = device.read_state(self._number)
        if not raw:
            self.accelerator._warn_states("c", c)
        return device.layout.present(
            [part[np.newaxis] for part in h], [part[np.newaxis] for part in c], raw, batched=False
        )

    def save(self, path: str | Path) -> None:
        """Write the state to a file, for :meth:`restore` on this or any other backend.

        Raises
        ------
        InputError
            If the file cannot be written.
        """
        device = self.accelerator.device
        save_snapshot(path, device.layout, *device.read_state(self._number))

    def restore(self, path: str | Path) -> None:
        """Set the state to what :meth:`save` wrote; the stream continues on the same bits.

        Raises
        ------
        InputError
            If the file is not the state of a stream with the same layers and formats.
        """
        device = self.accelerator.device
        device.write_state(self._number, *load_snapshot(path, device.layout))

    def reset(self) -> None:
        """Begin a new sequence with the next step: in the model's initial state, zeros for most."""
        self.accelerator.device.reset([self._number])

    def close(self) -> None:
        """Free the stream. Further calls do nothing."""
        accelerator, self._accelerator = self._accelerator, None
        if accelerator is not None:
            accelerator._release(self._number)
