"""Boards with a Zynq-7000: the core is in the logic beside the processor that runs the driver.

No open flow makes their bitstreams: :mod:`rtlstm.boards.vivado` writes what Vivado needs.
"""

from fractions import Fraction

from rtlstm.fpga.devices import find_device
from rtlstm.fpga.families.device import FpgaDevice
from rtlstm.fpga.pll import megahertz
from rtlstm.spec.errors import ConfigurationError
from rtlstm.spec.record import Record

__all__ = ["BASE_ADDRESS", "ZYNQ_BOARDS", "FabricClock", "ZynqBoard", "find_fabric_clock"]

BASE_ADDRESS = 0x43C0_0000
"""Address of the registers: in the range that the processor reaches through M_AXI_GP0."""

_PLL_MHZ = 1000
"""Frequency of the processor's IO PLL, as the boards' own presets set it."""
_LARGEST_DIVISOR = 63
_MOST_MHZ = 250
"""Highest frequency of a clock from the processor to the logic."""


class ZynqBoard(Record):
    """A board with one Zynq-7000 on it."""

    name: str
    title: str
    device: str
    part: str
    """Vivado's name of the device, with package and speed grade."""
    board_part: str
    """The board's name in the vendor's board files, without their version."""
    leds: tuple[str, str]
    """Sites of two LEDs: alive, traffic."""
    usual_mhz: float = 50.0
    """Clock of the core if the user asks for none. Not from place and route: Vivado does that."""

    @property
    def logic(self) -> FpgaDevice:
        """The FPGA beside the processor."""
        return find_device(self.device).device


class FabricClock(Record):
    """The clock that the processor gives to the logic: its IO PLL, divided twice."""

    divisors: tuple[int, int]

    @property
    def hz(self) -> Fraction:
        """Frequency in Hz."""
        return Fraction(_PLL_MHZ * 1_000_000, self.divisors[0] * self.divisors[1])

    @property
    def mhz(self) -> float:
        """Frequency in MHz, rounded to one hertz."""
        return round(float(self.hz) / 1e6, 6)


def find_fabric_clock(mhz: float) -> FabricClock:
    """Choose the divisors of the nearest clock that is not above the one asked for.

    Raises
    ------
    ConfigurationError
        If the logic's clock cannot be so fast or so slow.
    """
    # What a user types is decimal; see :func:`rtlstm.boards.board.find_uart_timing`.
    wanted = Fraction(str(mhz))
    slowest = Fraction(_PLL_MHZ, _LARGEST_DIVISOR**2)
    if not slowest <= wanted <= _MOST_MHZ:
        raise ConfigurationError(
            f"the clock of a Zynq-7000's logic must be from {megahertz(slowest * 1_000_000)} to {_MOST_MHZ} "
            f"MHz, not {mhz:g}"
        )
    least = -(-_PLL_MHZ // wanted)
    pairs = (
        (first, second)
        for first in range(1, _LARGEST_DIVISOR + 1)
        for second in range(1, first + 1)
        if first * second >= least
    )
    return FabricClock(divisors=min(pairs, key=lambda pair: (pair[0] * pair[1], pair[0])))


ZYNQ_BOARDS = {
    board.name: board
    for board in (
        ZynqBoard(
            name="zybo-z7-20",
            title="Digilent Zybo Z7-20",
            device="xc7z020",
            part="xc7z020clg400-1",
            board_part="digilentinc.com:zybo-z7-20:part0",
            leds=("M14", "M15"),
        ),
        ZynqBoard(
            name="pynq-z2",
            title="TUL PYNQ-Z2",
            device="xc7z020",
            part="xc7z020clg400-1",
            board_part="tul.com.tw:pynq-z2:part0",
            leds=("R14", "P14"),
        ),
    )
}
"""By name. LEDs are LD0 and LD1 of the vendors' constraint files."""
