"""The networks that a device holds at once, for the accelerators that share it."""

import operator
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from rtlstm.spec.errors import ConfigurationError, DeviceError, InputError
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.packing import pack_tables
from rtlstm.spec.program.fields import Bases
from rtlstm.spec.residents import find_rows


class OpenStreams(Protocol):
    """The part of an accelerator that the others on its device ask for."""

    @property
    def open_streams(self) -> list[int]:
        """Numbers of its open streams."""


Resident = TypeVar("Resident", bound=OpenStreams)


class Residents(Generic[Resident]):
    """What accelerators on one device know of each other.

    Parameters
    ----------
    device
        The manifest of any build for the device.
    """

    def __init__(self, device: Manifest) -> None:
        self.count = device.parameters.networks
        """Networks that the device can hold."""
        self.chosen = 0
        """The network whose steps the connection takes now."""
        self.known = False
        """Whether what the device holds was loaded over this connection: what it held before was cleared."""
        self.loaded: dict[int, tuple[Manifest, Bases]] = {}
        """What is loaded, and from which rows on."""
        self.accelerators: dict[int, Resident] = {}
        """The accelerator of each network."""

    def number(self, network: Any, device: Manifest) -> int:
        """Check the number of a network of the device.

        Raises InputError if it is no whole number, ConfigurationError if the device has no such network.
        """
        try:
            found = operator.index(network)
        except TypeError:
            raise InputError(f"network must be a whole number, not {network!r}") from None
        if not 0 <= found < self.count:
            held = "1 network" if self.count == 1 else f"{self.count} networks, 0 to {self.count - 1}"
            if found < 0:
                raise ConfigurationError(f"network must be at least 0, not {found}; the device holds {held}")
            raise ConfigurationError(
                f"network must be one that the device has room for, but {device.name!r} holds {held}, and "
                f"network {found} was named; generate it with `capacities={{'networks': {found + 1}}}`"
            )
        return found

    def accelerator(self, network: int) -> Resident:
        """Return the accelerator of a network. Raises DeviceError if it is not loaded."""
        if network not in self.accelerators:
            held = ", ".join(map(str, sorted(self.accelerators)))
            raise DeviceError(
                f"network {network} is not loaded, and the device holds {held or 'none'}; "
                f"load(folder, network={network}) loads a build"
            )
        return self.accelerators[network]

    def taken(self) -> set[int]:
        """Numbers of the streams that are open, of any network."""
        return {number for each in self.accelerators.values() for number in each.open_streams}

    def find_rows(self, number: int, manifest: Manifest) -> Bases:
        """Return free rows for a network that is loaded as ``number`` beside the others.

        Raises ConfigurationError if its tables are not theirs, or if there is no room.
        """
        self._check_tables(manifest)
        return find_rows(self.loaded, number, manifest)

    def _check_tables(self, manifest: Manifest) -> None:
        mine = pack_tables(manifest.numerics)
        for other, _ in self.loaded.values():
            theirs = pack_tables(other.numerics)
            if not all(np.array_equal(mine[region], theirs[region]) for region in mine):
                raise ConfigurationError(
                    f"networks of one device share its tables, but {manifest.name!r} has other tables of "
                    "activations than the network that is loaded; generate both with `device` and one folder"
                )
