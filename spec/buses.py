"""The buses between a core and its system: the registers that a build has, and its wrapper."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Final, Literal

from pydantic import AfterValidator

from rtlstm.spec.plugins import Registry
from rtlstm.spec.registers import REGISTERS, Owner, Register


@dataclass(frozen=True, kw_only=True)
class Bus:
    """A kind of wrapper between a core and its system."""

    owners: tuple[Owner, ...]
    """The parts of such a build that have registers."""
    packets: bool = False
    """Whether each step is a packet of AXI4-Stream, which may be malformed."""
    wrapper: str = ""
    """``MODULE:CLASS`` of the wrapper, which is imported to make Verilog: reading a build needs no Amaranth.

    The class is an :class:`rtlstm.hdl.buses.wrappers.Wrapper`. Empty: the core has no wrapper.
    """


NO_BUS: Final = "none"
_FIFOS: Final[tuple[Owner, ...]] = ("core", "bus", "fifos")

BUSES: Final = Registry(
    "bus",
    "rtlstm.buses",
    {
        NO_BUS: Bus(owners=("core",)),
        "axi": Bus(owners=("core", "bus"), packets=True, wrapper="rtlstm.hdl.buses.axi:AxiCore"),
        "axilite": Bus(owners=_FIFOS, wrapper="rtlstm.hdl.buses.axi:AxiLiteCore"),
        "wishbone": Bus(owners=_FIFOS, wrapper="rtlstm.hdl.buses.wishbone:WishboneCore"),
    },
    kind=Bus,
)
"""Every bus by its name."""

BusName = Annotated[str, AfterValidator(BUSES.known)]
"""Name of a bus, one of :data:`BUSES`."""


def registers_of(bus: str, access: Literal["r", "w"] | None = None) -> Iterable[Register]:
    """Return the registers of a build with this bus; optionally only readable or only writable ones."""
    return (
        register
        for register, description in REGISTERS.items()
        if description.owner in BUSES[bus].owners and (access is None or access in description.access)
    )
