"""Signals that end a program: they end a command as Ctrl-C does, so that it leaves nothing half done."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["Ended", "ends_cleanly"]

_AGAIN = 0.02
"""Seconds after which a signal is raised again that was lost."""
_SIGNALS = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))


class Ended(KeyboardInterrupt):
    """The program was told to end, by a signal other than Ctrl-C's."""

    def __init__(self, number: int) -> None:
        super().__init__(f"ended by {signal.Signals(number).name}")
        self.number = number
        self.code = 128 + number
        """The exit code, as shells have it."""


@contextmanager
def ends_cleanly() -> Iterator[None]:
    """Have SIGTERM and SIGHUP raise :class:`Ended`, unless they are ignored, as with ``nohup``.

    Python drops what a signal raises while a finaliser runs, as in a garbage collection. Such a signal, and a
    Ctrl-C, is raised again.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    handled = [number for number, handler in before.items() if handler is signal.SIG_DFL]

    def end(number: int, _: Any) -> None:
        # The first one is enough: what is being tidied up is not to be interrupted by another.
        for other in handled:
            signal.signal(other, signal.SIG_IGN)
        raise Ended(number)

    report = sys.unraisablehook

    def raise_again(dropped: "sys.UnraisableHookArgs") -> None:
        error = dropped.exc_value
        if not isinstance(error, KeyboardInterrupt):
            report(dropped)
            return
        number = error.number if isinstance(error, Ended) else signal.SIGINT
        if number in handled:
            signal.signal(number, end)
        # A real signal, so that it also ends a wait for another program.
        threading.Timer(_AGAIN, os.kill, (os.getpid(), number)).start()

    sys.unraisablehook = raise_again
    try:
        for number in handled:
            signal.signal(number, end)
        yield
    finally:
        sys.unraisablehook = report
        for number in handled:
            signal.signal(number, before[number])
