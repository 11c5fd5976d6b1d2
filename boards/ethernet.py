"""Ethernet on a board: its PHY's pins, its addresses, and LiteEth's MAC, ARP, IP, ICMP and UDP in Verilog.

LiteEth is the package liteeth, which is in the extra ``ethernet``.
"""

import ipaddress
import re
from dataclasses import replace
from importlib.metadata import files
from typing import Any, Final, Self

from rtlstm.fpga.families.base import Pin
from rtlstm.fpga.families.device import Pll
from rtlstm.spec.errors import ConfigurationError, ToolError, distribution
from rtlstm.spec.link import UDP_PORT
from rtlstm.spec.record import Record

LICENCE_FILE = "LICENSE-LiteEth.txt"
NETWORK_HZ: Final = 125_000_000
"""Clock of a Gigabit PHY, and of LiteEth, which handles a byte in each cycle."""
LINK_HZ: Final = 62_500_000
"""Clock of the link behind it."""
SIGNALS: Final = ("rx_clk", "rx_ctl", "rx_data", "tx_clk", "tx_ctl", "tx_data", "rst")
"""Parts of a PHY, as amaranth-boards names them."""
_STREAM: Final = {
    "valid": 1, "ready": 1, "last": 1, "data": 8, "error": 1, "length": 16, "ip_address": 32, "src_port": 16,
    "dst_port": 16,
}  # fmt: skip


class Phy(Record):
    """A Gigabit PHY with an RGMII."""

    pins: tuple[Pin, ...]
    """Its pins: those of each of :data:`SIGNALS`, in this order."""
    tx_delay_ps: int = 2000
    rx_delay_ps: int = 2000
    """Delay of the clock that the device sends, and of what it receives. A PHY may add them itself."""

    def ports(self, signal: str) -> tuple[Pin, ...]:
        """Return the pins of a signal, the lowest bit first."""
        return tuple(pin for pin in self.pins if pin.port.rstrip("0123456789") == f"eth_{signal}")


class Ethernet(Record):
    """A board's addresses, and the hosts to which it listens."""

    ip: str
    mac: str
    peer: str
    """The address of the only host; ``first`` for the one that sends the first datagram, until reset; ``any``
    to answer whoever asked last."""
    port: int = UDP_PORT

    @classmethod
    def create(cls, ip: str, mac: str | None = None, peer: str = "first") -> Self:
        """Check addresses.

        Parameters
        ----------
        mac
            By default one for local use, made of the IP address.

        Raises
        ------
        ConfigurationError
            If one is no address of a single device.
        """
        address = _ip("the board's IP address", ip)
        if mac is None:
            mac = ":".join(f"{byte:02x}" for byte in (2, 0, *address.packed))
        octets = re.fullmatch(r"([0-9a-f]{2})([:-][0-9a-f]{2}){5}", mac.lower())
        if octets is None or int(octets[1], 16) & 1 or not int(re.sub("[:-]", "", mac), 16):
            raise ConfigurationError(
                f"the board's MAC address must be that of one device, such as 02:00:c0:a8:01:32, not {mac!r}"
            )
        if peer not in ("first", "any"):
            peer = str(_ip("`peer`, the host's IP address, 'first' or 'any',", peer))
        return cls(ip=str(address), mac=mac.lower().replace("-", ":"), peer=peer)

    @property
    def host(self) -> str | None:
        """The IP address of the only host; None if any may be the host."""
        return None if self.peer in ("first", "any") else self.peer

    @property
    def only_peer(self) -> int | None:
        """Its number."""
        return None if self.host is None else int(ipaddress.IPv4Address(self.host))


def _ip(what: str, given: str) -> ipaddress.IPv4Address:
    try:
        address = ipaddress.IPv4Address(given)
    except ValueError:
        address = ipaddress.IPv4Address(0)
    if address.is_multicast or address.is_loopback or address.is_unspecified or address.packed[3] == 255:
        raise ConfigurationError(f"{what} must be that of one device, such as 192.168.1.50, not {given!r}")
    return address


def network_pll(pll: Pll) -> Pll:
    """Return an ECP5's PLL for :data:`NETWORK_HZ` with a further output for the link, ``CLKOS2``.

    Raises
    ------
    ConfigurationError
        If it does not make both clocks.
    """
    divider = pll.vco_hz / LINK_HZ
    if pll.output_hz != NETWORK_HZ or divider != int(divider):
        raise ConfigurationError("the board's clock must give the PHY's 125 MHz exactly; it has no Ethernet")
    more: dict[str, int | str] = {
        "OUTDIVIDER_MUXC": "DIVC",
        "CLKOS2_ENABLE": "ENABLED",
        "CLKOS2_DIV": int(divider),
        "CLKOS2_CPHASE": int(divider) - 1,
        "CLKOS2_FPHASE": 0,
    }
    return replace(pll, parameters={**pll.parameters, **more})


def ethernet_verilog(name: str, ethernet: Ethernet, phy: Phy) -> str:
    """Generate LiteEth's module for an ECP5: RGMII at one end, the datagrams of one UDP port at the other.

    ``name`` is the module's.

    Raises
    ------
    ToolError
        If LiteEth is not installed.
    """
    try:
        from liteeth.core import LiteEthUDPIPCore
        from liteeth.phy.ecp5rgmii import LiteEthPHYRGMII
        from litex.build.generic_platform import Pins, Subsignal
        from litex.build.lattice import LatticePlatform
        from migen import ClockDomain, Module
    except ImportError as error:
        raise ToolError(
            f"a board's Ethernet needs the package liteeth ({error}); install it with "
            f"pip install '{distribution()}[ethernet]'"
        ) from None

    def pads(name: str, **sizes: int) -> tuple[Any, ...]:
        return (name, 0, *(Subsignal(part, Pins(size)) for part, size in sizes.items()))

    # Of the device only its family matters.
    platform = LatticePlatform(
        "LFE5U-25F-6BG381C",
        io=[
            pads("network", clk=1, rst=1),
            pads("rgmii_clocks", rx=1, tx=1),
            pads("rgmii", rst_n=1, rx_ctl=1, rx_data=4, tx_ctl=1, tx_data=4),
            pads("rx", **_STREAM),
            pads("tx", **_STREAM),
        ],
        toolchain="trellis",
    )
    module, network = Module(), platform.request("network")
    module.clock_domains.cd_sys = ClockDomain("sys")
    module.comb += [module.cd_sys.clk.eq(network.clk), module.cd_sys.rst.eq(network.rst)]
    module.submodules.phy = LiteEthPHYRGMII(
        platform.request("rgmii_clocks"),
        platform.request("rgmii"),
        tx_delay=phy.tx_delay_ps * 1e-12,
        rx_delay=phy.rx_delay_ps * 1e-12,
        with_inband_status=False,
        # A datagram's bytes follow each other: the clock of the cable may be faster than LiteEth's.
        tx_clk=module.cd_sys.clk,
    )
    module.submodules.core = core = LiteEthUDPIPCore(
        module.phy,
        mac_address=int(ethernet.mac.replace(":", ""), 16),
        ip_address=ethernet.ip,
        clk_freq=NETWORK_HZ,
        with_ip_broadcast=False,
    )
    port = core.udp.crossbar.get_port(ethernet.port)
    for side, end in (("rx", port.source), ("tx", port.sink)):
        ends = platform.request(side)
        for part in _STREAM:
            pad, wire = getattr(ends, part), getattr(end, part)
            outwards = (side == "rx") != (part == "ready")
            module.comb += pad.eq(wire) if outwards else wire.eq(pad)
    text = str(platform.get_verilog(module, name=name))
    # Its head has the time of day and the commit of whatever folder this is run in.
    body = text[text.index("module ") : text.index("endmodule") + len("endmodule")]
    return f"// LiteEth, BSD-2-Clause: see {LICENCE_FILE}.\n{body}\n"


def ethernet_licence() -> str:
    """Return the text of LiteEth's licence."""
    found = [path for path in files("liteeth") or () if path.name == "LICENSE"]
    return found[0].read_text()
