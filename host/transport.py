"""The one interface between the driver and whatever computes: golden model, simulator, board."""

from collections.abc import Callable, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from rtlstm.spec.errors import ConfigurationError, DeviceError
from rtlstm.spec.fixed import IntArray
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.registers import Register

__all__ = ["BACKENDS_GROUP", "Progress", "Transport", "backend_names", "open_transport", "refuse_sequences"]

BACKENDS_GROUP = "rtlstm.backends"
"""Entry point group of the backends: the name given to ``open`` and a factory.

A factory is called as ``factory(folder, manifest, argument, progress)``, where ``argument`` is
what follows the colon of ``name:argument`` (empty without one).
"""

Progress = Callable[[str, int, int], None]
"""Called as ``progress(what, done, total)`` during long work."""


@runtime_checkable
class Transport(Protocol):
    """A device that holds one core. Not safe for use from several threads at once.

    It may have two functions more. ``begin(streams, x)`` begins an exchange and returns the function that
    ends it. ``adopt(manifest)`` says that another build of the same hardware is being loaded: steps are of
    its sizes from then on. Without it a loadable core keeps the network that it was opened with.
    """

    def write(self, register: Register, words: Sequence[int] | IntArray) -> None:
        """Write 32-bit words to a register, one after the other."""

    def read(self, register: Register, count: int = 1) -> IntArray:
        """Read a register ``count`` times; 32-bit words as non-negative int64."""

    def exchange(
        self,
        streams: IntArray,
        x: IntArray,
        suppress: NDArray[np.bool_] | None = None,
        ends: NDArray[np.bool_] | None = None,
    ) -> IntArray:
        """Run steps in order.

        Parameters
        ----------
        streams
            Stream of each step, shape ``(steps,)``.
        x
            Inputs, shape ``(steps, inputs)``, integers of the input format.
        suppress
            Which steps' outputs nobody wants, ``(steps,)``: they are not computed, and 0 in the
            result. None for none.
        ends
            Which steps are the last of a sequence, ``(steps,)``, for a device that takes whole sequences;
            the steps of one come together, on one stream. None for other devices.

        Returns
        -------
        Outputs, shape ``(steps, manifest.program.outputs)``, integers of the last layer's output format.
        """

    def close(self) -> None:
        """Release the device; further calls raise :class:`~rtlstm.spec.errors.DeviceError`."""


def refuse_sequences(ends: NDArray[np.bool_] | None) -> None:
    """Refuse whole sequences, for a transport that sends one step after another.

    Raises
    ------
    DeviceError
        If ``ends`` marks any.
    """
    if ends is not None:
        raise DeviceError(
            "this build takes whole sequences, but the backend sends steps one by one; open the build on "
            "golden, verilator or icarus"
        )


def backend_names() -> list[str]:
    """Names of the installed backends."""
    return sorted(point.name for point in entry_points(group=BACKENDS_GROUP))


def open_transport(
    backend: str, folder: Path, manifest: Manifest, progress: Progress | None = None
) -> Transport:
    """Open ``name`` or ``name:argument``.

    Raises
    ------
    ConfigurationError
        If no such backend is installed.
    """
    name, _, argument = backend.partition(":") if isinstance(backend, str) else ("", "", "")
    found = [point for point in entry_points(group=BACKENDS_GROUP) if point.name == name]
    if not found:
        raise ConfigurationError(f"backend must be one of {', '.join(backend_names())}, not {backend!r}")
    factory = found[0].load()
    transport: Transport = factory(folder, manifest, argument, progress)
    return transport
