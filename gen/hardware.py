"""What a network is quantised for: hardware of its own, for others, too, or that is there."""

from dataclasses import dataclass

from rtlstm.spec.errors import ConfigurationError
from rtlstm.spec.numerics import Accumulator, Numerics

__all__ = ["FINEST", "Hardware"]

FINEST = 10
"""Bits by which a row's scale may be finer than that of its products with the smallest input."""
_MOST_ALIGN, _MOST_BITS, _MOST_PARTIAL_BITS = 32, 48, 50


@dataclass(frozen=True)
class Hardware:
    """Hardware of the network's own, but for one of these.

    ``headroom``: it is to take other networks, too, whose weights and sums may need so many bits more.
    ``device``: it is there, with these formats.
    """

    headroom: int | None = None
    device: Numerics | None = None

    @property
    def shared(self) -> bool:
        """Whether it is not the network's alone."""
        return self.headroom is not None or self.device is not None

    def align(self, needed: int) -> int:
        """Return the common left shift of sums.

        Raises
        ------
        ConfigurationError
            If the device's is too small.
        """
        if self.device is None:
            return min(needed + (self.headroom or 0), _MOST_ALIGN)
        there = self.device.accumulator.align
        if needed > there:
            raise _lacks(needed - there, "its largest weights need")
        return there

    def accumulator(self, needed: Accumulator) -> Accumulator:
        """Return the widths of sums; errors as :meth:`align`."""
        if self.device is not None:
            there = self.device.accumulator
            lacking = max(needed.bits - there.bits, needed.partial_bits - there.partial_bits)
            if lacking > 0:
                raise _lacks(lacking, "its sums need")
            return there
        if self.headroom is None:
            return needed
        bits = min(needed.bits + self.headroom, _MOST_BITS)
        partial_bits = min(needed.partial_bits + self.headroom, _MOST_PARTIAL_BITS)
        return Accumulator(
            bits=bits,
            bound=(1 << (bits - 1)) - 1,
            align=needed.align,
            partial_bits=partial_bits,
            partial_bound=(1 << (partial_bits - 1)) - 1,
        )

    def shift_bits(self, largest: int, data_bits: int, align: int) -> int:
        """Return the width of a row's right shift: if shared, that of the finest row that there can be."""
        return max(1, (data_bits + FINEST + align if self.shared else largest).bit_length())

    def check(self, numerics: Numerics) -> None:
        """Check that these formats are the device's, but for where the input's point is.

        Raises
        ------
        ConfigurationError
            If they are not.
        """
        there = numerics if self.device is None else self.device.replace(input=numerics.input)
        names = [
            name for name in type(numerics).model_fields if getattr(numerics, name) != getattr(there, name)
        ]
        if names:
            raise ConfigurationError(
                "the network must be of the kinds of cells and functions that the device was built with, in "
                f"the same formats, but its {', '.join(names)} differ; generate a loadable device from a "
                "network that has them, and give it the same ranges"
            )


def _lacks(bits: int, what: str) -> ConfigurationError:
    return ConfigurationError(
        f"the network must fit the device's capacities, but {what} {bits} bits more headroom than the device "
        "has; generate the device again with a larger --capacity headroom"
    )
