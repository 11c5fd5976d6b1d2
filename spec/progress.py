"""How long work tells what it is doing."""

from collections.abc import Callable

__all__ = ["Progress"]

Progress = Callable[[str, int, int], None]
"""Called as ``progress(what, done, total)`` during long work."""
