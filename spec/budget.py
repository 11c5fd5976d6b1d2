"""Limits the size of the arrays of one untrusted file, counted from declared shapes before any is made."""

import math
from collections.abc import Iterable

from rtlstm.spec.errors import ModelError, RtlstmError

MAX_ELEMENTS = 2**26
"""Elements of all arrays of a file together: half a GiB in float64, far beyond any core's memory."""
MAX_COMPUTED = 2**22
"""Elements of all arrays that a model computes from constants, which need no space in its file."""
MAX_TEXT = 2**26
"""Largest size in bytes of a text in a file, such as a model's description in JSON."""


class Budget:
    """The elements that the arrays of one file may still have.

    A few bytes of a file can declare arrays of any size: fills, strides of 0, chunks never written, archives.
    """

    def __init__(
        self,
        error: type[RtlstmError] = ModelError,
        advice: str = "use only the part around the recurrent layers",
        limit: int = MAX_ELEMENTS,
    ) -> None:
        self._error, self._advice, self._limit, self._left = error, advice, limit, limit

    def take(self, shape: Iterable[int], what: str) -> None:
        """Count an array of this shape, before it is made; ``what`` begins the message.

        Raises
        ------
        RtlstmError
            Of the class given, if the file's arrays then have too many elements.
        """
        sizes = tuple(int(size) for size in shape)
        count = math.prod(max(size, 0) for size in sizes)
        if count > self._left:
            raise self._error(
                f"{what} of shape {sizes} goes beyond the {self._limit:,} elements that a file's arrays may "
                f"have together; {self._advice}"
            )
        self._left -= count


def check_size(shape: Iterable[int], what: str) -> None:
    """Refuse an array that is made from several arrays of a file and is too large.

    Raises
    ------
    ModelError
        If it has more than :data:`MAX_ELEMENTS`.
    """
    Budget(advice="end the network before").take(shape, what)
