"""How tools are found and run, the cache of what they built, and when the garbage collector rests."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_collection() -> Iterator[None]:
    """Suspend the garbage collector; also a decorator.

    Amaranth's designs, netlists, templates and imported modules are many objects, and nearly all stay until
    the end. The collector would walk over them and over all other objects of the process again and again.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
