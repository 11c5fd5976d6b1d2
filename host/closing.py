"""What all have in common that are closed at the end of a ``with`` block."""

from abc import ABC, abstractmethod
from typing import Self

__all__ = ["Closing"]


class Closing(ABC):
    """A context manager that closes itself, whatever happens in its block."""

    @abstractmethod
    def close(self) -> None:
        """Release what it holds. May be called again."""

    def __enter__(self) -> Self:
        """Return this object."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()
