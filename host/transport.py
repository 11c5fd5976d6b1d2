"""The interface between the driver and its backends: golden model, simulators, boards."""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import wraps
from importlib.util import find_spec
from pathlib import Path
from threading import RLock
from types import FunctionType, MethodType
from typing import Any, ClassVar, Final, NoReturn, Self, TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from rtlstm.host.raw_values import Steps, as_array
from rtlstm.spec.errors import ConfigurationError, DeviceError, InputError
from rtlstm.spec.fixed import IntArray, check_range
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.plugins import Registry
from rtlstm.spec.progress import Progress
from rtlstm.spec.registers import Register

_SIMULATIONS = {
    "golden": "rtlstm.sim.golden_device:GoldenDevice",
    "verilator": "rtlstm.sim.backends:VerilatorDevice",
    "icarus": "rtlstm.sim.backends:IcarusDevice",
    "amaranth": "rtlstm.sim.amaranth_device:AmaranthDevice",
}
"""Backends that rtlstm has and its driver alone has not."""
_LINKS = {
    "serial": "rtlstm.host.link.link_transport:open_serial",
    "tcp": "rtlstm.host.link.link_transport:open_tcp",
    "udp": "rtlstm.host.link.link_transport:open_udp",
    "spi": "rtlstm.host.link.link_transport:open_spi",
    "mmio": "rtlstm.host.mmio:open_mmio",
    "pynq": "rtlstm.host.pynq:open_pynq",
}


class Closing(ABC):
    """A context manager that closes itself when its block ends, also by an exception.

    It holds a device or a port, so it can be neither copied nor pickled: both raise DeviceError.
    """

    @abstractmethod
    def close(self) -> None:
        """Release all resources. Further calls do nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise DeviceError(
            f"{type(self).__name__} objects cannot be copied, pickled or sent to another process, because "
            "each holds a device that is there once; open the build again where it is needed"
        )


Method = TypeVar("Method", bound=Callable[..., Any])

GUARDED: Final = ("write", "read", "run_steps", "begin_steps", "adopt", "close")
"""What a backend's class implements, and the owner guards."""


class Owner:
    """A context manager around each use. It never waits: what would have to wait is an error.

    ``what`` names it in messages.
    """

    def __init__(self, what: str = "the device") -> None:
        self._what, self._process, self._lock = what, os.getpid(), RLock()

    def check_process(self) -> None:
        """Raise DeviceError in any process but that in which the object was opened."""
        here = os.getpid()
        if here != self._process:
            raise DeviceError(
                f"{self._what} was opened in process {self._process} and must be used there, not in process "
                f"{here}, where a fork has made a copy of it; open it again in this process"
            )

    def __enter__(self) -> None:
        self.check_process()
        if not self._lock.acquire(blocking=False):
            raise DeviceError(
                f"{self._what} must be used by one thread at a time, but another one is using it; open it as "
                "a SharedAccelerator, which any number of threads may use"
            )

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def guarded(method: Method) -> Method:
    """Return a method that its object's ``owner`` guards."""

    @wraps(method)
    def guard(self: Any, *args: Any, **options: Any) -> Any:
        with self.owner:
            return method(self, *args, **options)

    return guard  # type: ignore[return-value]


Factory: TypeAlias = Callable[[Path, Manifest, str, Progress | None], "Transport"]
"""Makes a backend's transport."""

BACKENDS: Final = Registry[Factory](
    "backend", "rtlstm.backends", lazy=_SIMULATIONS | _LINKS if find_spec("rtlstm.sim") else _LINKS
)
"""The factory of each backend's transport, by the name given to ``open``.

It is called as ``factory(folder, manifest, argument, progress)``, where ``argument`` is what follows the
colon of ``name:argument`` (empty without one).
"""


class Transport(Closing):
    """A device that holds one core, for one thread at a time of the process that opened it.

    A backend implements register accesses, checked steps, and the release of the device. All steps go
    through :meth:`exchange` or :meth:`begin`, which check them. What a backend implements raises DeviceError
    while another thread is inside, and in another process, such as a forked one.

    Parameters
    ----------
    manifest
        The build that the device holds.
    """

    takes_sequences: ClassVar[bool] = False
    """Whether it runs builds that take whole sequences."""
    simulated: ClassVar[bool] = False
    """Whether a model on this computer stands for the device, so that the time of steps is no device's."""

    owner: Owner
    """Guards each use; a caller may hold it over several."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name in GUARDED:
            if name in vars(cls):
                setattr(cls, name, guarded(vars(cls)[name]))

    def __new__(cls, *_: Any, **__: Any) -> Self:
        """Make the owner, whatever a backend's constructor does."""
        self = super().__new__(cls)
        self.owner = Owner()
        return self

    def __init__(self, manifest: Manifest) -> None:
        self.manifest = manifest
        """The build whose steps are run."""

    @abstractmethod
    def write(self, register: Register, words: Sequence[int] | IntArray) -> None:
        """Write 32-bit words to a register, one after the other."""

    @abstractmethod
    def read(self, register: Register, count: int = 1) -> IntArray:
        """Read a register ``count`` times; 32-bit words as non-negative int64."""

    @abstractmethod
    def run_steps(self, steps: Steps) -> IntArray:
        """Run checked steps in order; return ``(steps, manifest.program.outputs)`` codes."""

    def begin_steps(self, steps: Steps) -> Callable[[], IntArray]:
        """Begin checked steps and return the function that gives what :meth:`run_steps` does.

        By default the steps are run at once. A backend overrides it if its device computes while further
        steps are sent.
        """
        y = self.run_steps(steps)
        return lambda: y

    def adopt(self, manifest: Manifest) -> None:
        """Use another build of the same hardware, which is being loaded.

        A backend that supports this overrides it and sets :attr:`manifest`.

        Raises
        ------
        ConfigurationError
            If the backend keeps the network that it was opened with.
        """
        raise ConfigurationError(
            "this backend cannot change to another network while it is open: open the other build on it"
        )

    @abstractmethod
    def close(self) -> None:
        """Release the device; further calls raise :class:`~rtlstm.spec.errors.DeviceError`."""

    def exchange(
        self,
        streams: ArrayLike,
        x: ArrayLike,
        suppress: ArrayLike | None = None,
        ends: ArrayLike | None = None,
    ) -> IntArray:
        """Check steps and run them in order.

        Parameters
        ----------
        streams, x, suppress, ends
            See :class:`~rtlstm.host.raw_values.Steps`.

        Returns
        -------
        Outputs, shape ``(steps, manifest.program.outputs)``, codes of ``manifest.output``; 0 for suppressed
        steps.

        Raises
        ------
        InputError
            If the build cannot take one of the steps; then none is sent to the device.
        DeviceError
            If the device fails, cannot run whole sequences, or answers other than codes of the output format.
        """
        steps = _checked(self, streams, x, suppress, ends)
        return _answered(self.manifest, steps, self.run_steps(steps))

    def begin(
        self, streams: ArrayLike, x: ArrayLike, suppress: ArrayLike | None = None
    ) -> Callable[[], IntArray]:
        """Check steps and begin them; return the function that waits for their end and gives the outputs.

        Further steps may be begun before these end; all are run in order. Raises the errors of
        :meth:`exchange`.
        """
        steps, manifest = _checked(self, streams, x, suppress, None), self.manifest
        finish = self.begin_steps(steps)

        def end() -> IntArray:
            with self.owner:
                return _answered(manifest, steps, finish())

        return end


def _checked(
    transport: Transport,
    streams: ArrayLike,
    x: ArrayLike,
    suppress: ArrayLike | None,
    ends: ArrayLike | None,
) -> Steps:
    """Check steps for a transport. This is not a method, since a backend could override that."""
    if ends is not None and not transport.takes_sequences:
        raise DeviceError(
            "this build takes whole sequences, but the backend sends steps one by one; open the build on "
            "golden, verilator or icarus"
        )
    return Steps.checked(transport.manifest, streams, x, suppress, ends)


def _answered(manifest: Manifest, steps: Steps, y: object) -> IntArray:
    """Return a backend's answer to steps, which must be codes."""
    wanted, form = (len(steps), manifest.program.outputs), manifest.output
    if not isinstance(y, np.ndarray) or y.shape != wanted or not np.issubdtype(y.dtype, np.integer):
        given = f"{y.shape} of {y.dtype}" if isinstance(y, np.ndarray) else type(y).__name__
        raise DeviceError(
            f"a backend must answer an array of integers {wanted}, not {given}; correct its steps"
        )
    try:
        form.check("a backend's answer", y, form.lowest)
    except InputError as error:
        raise DeviceError(str(error)) from None
    return y


def register_words(words: Sequence[int] | IntArray) -> IntArray:
    """Return words to be written to a register as an array ``(K,)``.

    Raises InputError if one is no integer, or does not fit 32 bits.
    """
    values = as_array("words", words).reshape(-1)
    # Python's integers beyond 64 bits form an array of objects: their range is refused below.
    if values.dtype.kind not in "iub" and not all(isinstance(each, int) for each in values):
        raise InputError(f"words must be integers, not {values.dtype}; round them first")
    check_range("words", values, 0, 0xFFFFFFFF, " (32 bits)")
    return values.astype(np.int64)


def backend_names() -> list[str]:
    """Names of the installed backends."""
    return sorted(BACKENDS)


def open_transport(
    backend: str | Factory, folder: Path, manifest: Manifest, progress: Progress | None = None
) -> Transport:
    """Open ``name`` or ``name:argument``, or what a function of your own makes, whose argument is empty.

    Raises ConfigurationError if no such backend is installed, or its factory does not return a transport.
    """
    if isinstance(backend, FunctionType | MethodType):
        return _made("of this program", backend(folder, manifest, "", progress))
    name, _, argument = backend.partition(":") if isinstance(backend, str) else ("", "", "")
    if name not in BACKENDS:
        if name in _SIMULATIONS:
            raise ConfigurationError(
                f"backend {name!r} is in rtlstm, not in rtlstm-driver, which only drives boards; give the "
                "board's, serial:PORT, tcp:HOST:PORT, udp:HOST, spi:DEVICE, mmio:PATH or pynq"
            )
        raise ConfigurationError(f"backend must be one of {', '.join(backend_names())}, not {backend!r}")
    return _made(repr(name), BACKENDS[name](folder, manifest, argument, progress))


def _made(backend: str, transport: object) -> Transport:
    if not isinstance(transport, Transport):
        raise ConfigurationError(
            f"backend {backend} must give an object of a class derived from rtlstm.host.Transport, "
            f"not {transport!r}"
        )
    return transport
