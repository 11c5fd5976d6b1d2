"""Keeps an object that holds a device to the process that opened it, and to one thread at a time."""

import os
from collections.abc import Callable
from functools import wraps
from threading import RLock
from typing import Any, Final, TypeVar

from rtlstm.spec.errors import DeviceError

__all__ = ["GUARDED", "Owner", "guarded"]

Method = TypeVar("Method", bound=Callable[..., Any])

GUARDED: Final = ("write", "read", "run_steps", "begin_steps", "adopt", "close")
"""What a backend's class implements, and the owner guards."""


class Owner:
    """A context manager around each use. It never waits: what would have to wait is an error.

    Parameters
    ----------
    what
        What is owned, for messages.
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
