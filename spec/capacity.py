"""Capacities: the limits of the networks that a core with a loadable program can hold."""

from typing import Annotated

from pydantic import Field

from rtlstm.spec.errors import ConfigurationError
from rtlstm.spec.record import Record

_LEAST_OPERATIONS = 16
_MOST_HEADROOM = 16


class Capacity(Record):
    """Depths of a loadable core's memories, and its other limits on networks.

    Rows and words depend on the array: these bound the sizes of :class:`rtlstm.spec.program.step.Program`.
    """

    operations: Annotated[int, Field(ge=4, le=1024)]
    """Operations of a step's program."""
    inputs: Annotated[int, Field(ge=1, le=65536)]
    """Input values of a step."""
    outputs: Annotated[int, Field(ge=1, le=65536)]
    """Output values of a step."""
    weight_rows: Annotated[int, Field(ge=1, le=1 << 24)]
    """Rows of each lane's weight bank."""
    shift_rows: Annotated[int, Field(ge=1, le=1 << 20)]
    """Rows of each gate unit's shift memory."""
    bias_rows: Annotated[int, Field(ge=1, le=1 << 20)]
    """Rows of biases in each gate unit's partial-sum memory."""
    partial_rows: Annotated[int, Field(ge=1, le=1 << 20)]
    """Rows of a stream's partial sums in each gate unit's partial-sum memory."""
    vector_words: Annotated[int, Field(ge=1, le=1 << 20)]
    """Words of the vector memory for each stream."""
    cell_rows: Annotated[int, Field(ge=1, le=1 << 20)]
    """Rows of each gate unit's cell memory for each stream."""
    headroom: Annotated[int, Field(ge=0, le=_MOST_HEADROOM)] = 4
    """Bits by which another network's weights and sums may be larger than those of the first."""


CAPACITIES = tuple(name.replace("_", "-") for name in Capacity.model_fields)
"""Names for ``rtlstm generate --capacity NAME=NUMBER``."""


class Needs(Record):
    """What a network needs of each capacity except the headroom."""

    operations: int
    inputs: int
    outputs: int
    weight_rows: int
    shift_rows: int
    bias_rows: int
    partial_rows: int
    vector_words: int
    cell_rows: int

    def check(self, capacity: Capacity) -> None:
        """Check that a network with these needs fits.

        Raises
        ------
        ConfigurationError
            If it does not; the message lists every capacity that is too small, and how to raise it.
        """
        lacking = {
            name: needed for name, needed in self.model_dump().items() if needed > getattr(capacity, name)
        }
        if lacking:
            listed = "; ".join(
                f"it needs {needed} {name.replace('_', '-')} and the device holds {getattr(capacity, name)}"
                for name, needed in lacking.items()
            )
            raise ConfigurationError(
                f"the network must fit the device's capacities, but {listed}; load a smaller one, or "
                f"generate the device again with `capacities={lacking!r}`"
            )

    def capacity(self, **chosen: int) -> Capacity:
        """Return the capacities ``chosen``; for the others, these needs up to the next power of two.

        Raises
        ------
        ConfigurationError
            If one is out of range, or less than is needed.
        """
        sizes = {name: 1 << (needed - 1).bit_length() for name, needed in self.model_dump().items()}
        sizes["operations"] = max(_LEAST_OPERATIONS, sizes["operations"])
        capacity = Capacity(**(sizes | chosen))
        self.check(capacity)
        return capacity
