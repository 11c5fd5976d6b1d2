"""Base class of objects that are closed at the end of a ``with`` block."""

from abc import ABC, abstractmethod
from typing import Self

__all__ = ["Closing"]


class Closing(ABC):
    """A context manager that closes itself when its block ends, also by an exception."""

    @abstractmethod
    def close(self) -> None:
        """Release all resources. Further calls do nothing."""

    def __enter__(self) -> Self:
        """Return this object."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()
