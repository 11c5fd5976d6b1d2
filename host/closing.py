"""Base class of objects that are closed at the end of a ``with`` block."""

from abc import ABC, abstractmethod
from typing import Any, NoReturn, Self

from rtlstm.spec.errors import DeviceError

__all__ = ["Closing"]


class Closing(ABC):
    """A context manager that closes itself when its block ends, also by an exception.

    It holds a device or a port, so it can be neither copied nor pickled: both raise DeviceError.
    """

    @abstractmethod
    def close(self) -> None:
        """Release all resources. Further calls do nothing."""

    def __enter__(self) -> Self:
        """Return this object."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise DeviceError(
            f"{type(self).__name__} objects cannot be copied, pickled or sent to another process, because "
            "each holds a device that is there once; open the build again where it is needed"
        )
