"""Ethernet on a board: its PHY's pins, its addresses, and LiteEth's MAC, ARP, IP, ICMP and UDP in Verilog.

LiteEth is the package liteeth, which is in the extra ``ethernet``.
"""

import ipaddress
import re
from dataclasses import replace
from fractions import Fraction
from importlib.metadata import files
from typing import Any, Final, Self

from rtlstm.fpga.families.base import Pin
from rtlstm.fpga.families.device import Pll
from rtlstm.spec.errors import ConfigurationError, ToolError, distribution
from rtlstm.spec.link import UDP_PORT
from rtlstm.spec.record import Record

LICENCE_FILE = "LICENSE-LiteEth.txt"
PHY_HZ: Final = 125_000_000
"""Clock of a Gigabit PHY."""
LINK_HZ, NETWORK_HZ = 62_500_000, 50_000_000
"""Clocks of the link, and of LiteEth, which handles four bytes in each cycle. With one byte in each it would
need 125 MHz, and reaches 56 MHz on an ECP5 of grade 6."""
SIGNALS: Final = ("rx_clk", "rx_ctl", "rx_data", "tx_clk", "tx_ctl", "tx_data", "rst")
"""Parts of a PHY, as amaranth-boards names them."""
_ARRIVED_WORDS = 512
"""Words of four bytes of datagrams that wait for the link: more than a host sends without an answer."""
_FRAME_WORDS = 256
"""Words of four bytes of which a datagram to be sent may have a few less."""
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
    raw: bool = False
    """Whether there is the raw mode."""

    @classmethod
    def create(cls, ip: str, mac: str | None = None, peer: str = "first", raw: bool = False) -> Self:
        """Check addresses.

        ``mac`` is by default one for local use, made of the IP address. Raises ConfigurationError if one is
        no address of a single device, or the host's is the board's.
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
            if peer == str(address):
                raise ConfigurationError(f"`peer` must be the host's IP address, not {peer}, the board's own")
        return cls(ip=str(address), mac=mac.lower().replace("-", ":"), peer=peer, raw=raw)

    @property
    def backend(self) -> str:
        """The driver's backend for it."""
        return f"udp:{self.ip}"

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
    """Return an ECP5's PLL for :data:`PHY_HZ` with outputs for link and LiteEth, ``CLKOS2`` and ``CLKOS3``.

    Raises ConfigurationError if it does not make all three clocks.
    """
    if pll.output_port != "CLKOP":
        raise ConfigurationError(
            f"a board with Ethernet must have an ECP5, whose PLL makes four clocks, but has a {pll.cell}; "
            "leave out its IP address"
        )
    if pll.output_hz != PHY_HZ:
        raise ConfigurationError("the board's clock must give the PHY's 125 MHz exactly; it has no Ethernet")
    # The loop's divider does not change its clock. With this one the oscillator is a multiple of all three.
    more: dict[str, int | str] = {"OUTDIVIDER_MUXC": "DIVC", "OUTDIVIDER_MUXD": "DIVD"}
    vco = 4 * PHY_HZ
    for port, clock in (("CLKOP", PHY_HZ), ("CLKOS2", LINK_HZ), ("CLKOS3", NETWORK_HZ)):
        divider = vco // clock
        settings: dict[str, int | str] = {
            "ENABLE": "ENABLED",
            "DIV": divider,
            "CPHASE": divider - 1,
            "FPHASE": 0,
        }
        more |= {f"{port}_{name}": value for name, value in settings.items()}
    return replace(pll, vco_hz=Fraction(vco), parameters={**pll.parameters, **more})


def ethernet_verilog(name: str, ethernet: Ethernet, phy: Phy) -> str:
    """Generate LiteEth's module for an ECP5: RGMII at one end, the datagrams of one UDP port at the other.

    ``name`` is the module's. Raises ToolError if LiteEth is not installed.
    """
    try:
        from liteeth.common import eth_phy_description, eth_udp_user_description, ethernet_type_arp
        from liteeth.core.arp import LiteEthARPRX, LiteEthARPTX
        from liteeth.core.ip import LiteEthIP
        from liteeth.core.udp import LiteEthUDP
        from liteeth.mac import LiteEthMAC
        from liteeth.phy.ecp5rgmii import LiteEthPHYRGMII
        from litex.build.generic_platform import Pins, Subsignal
        from litex.build.lattice import LatticePlatform
        from litex.soc.interconnect.packet import PacketFIFO
        from litex.soc.interconnect.stream import Buffer, StrideConverter, SyncFIFO
        from migen import ClockDomain, Module

        from rtlstm.boards.liteeth_parts import Echo, Neighbours
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
            pads("network", clk=1, rst=1, tx_clk=1),
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
        # That of the PHY stops without a cable.
        tx_clk=network.tx_clk,
    )
    mac_address, ip_address = int(ethernet.mac.replace(":", ""), 16), int(ipaddress.IPv4Address(ethernet.ip))
    module.submodules.mac = mac = LiteEthMAC(
        module.phy,
        dw=32,
        interface="crossbar",
        hw_mac=mac_address,
        # Checksums and padding at LiteEth's clock: at the PHY's they reach 97 MHz.
        with_sys_datapath=True,
        # Of this depth it needs no multiplexer at the PHY's clock.
        tx_cdc_depth=16,
    )
    module.submodules.heard = heard = LiteEthARPRX(mac_address, ip_address, dw=32)
    module.submodules.said = said = LiteEthARPTX(mac_address, ip_address, dw=32)
    module.submodules.neighbours = neighbours = Neighbours(NETWORK_HZ)
    arp = mac.crossbar.get_port(ethernet_type_arp, dw=32)
    module.comb += [
        arp.source.connect(heard.sink),
        heard.source.connect(neighbours.sink),
        neighbours.source.connect(said.sink),
        said.source.connect(arp.sink),
    ]
    module.submodules.ip = ip = LiteEthIP(
        mac, mac_address, ip_address, arp_table=neighbours, with_broadcast=False, dw=32
    )
    module.submodules.icmp = Echo(ip, ip_address)
    module.submodules.udp = udp = LiteEthUDP(ip, ip_address, dw=32)
    # "ready" is one path from the queues through all headers to the PHY's memories. These registers part it,
    # and take no time.
    for path, index in ((mac.core.rx_datapath, -1), (mac.core.tx_datapath, 1)):
        parted = Buffer(eth_phy_description(32), pipe_valid=False, pipe_ready=True)
        path.submodules += parted
        path.pipeline.insert(index, parted)
    port = udp.crossbar.get_port(ethernet.port, dw=32)
    narrow, wide = eth_udp_user_description(8), eth_udp_user_description(32)
    module.submodules.rx, module.submodules.tx = rx, tx = (
        StrideConverter(wide, narrow),
        StrideConverter(narrow, wide),
    )
    # The link takes 50 Mbyte/s, and the line brings 125.
    module.submodules.arrived = arrived = SyncFIFO(wide, _ARRIVED_WORDS, buffered=True)
    # Bytes come more slowly than the PHY takes them, and it takes a frame without a pause.
    module.submodules.whole = whole = PacketFIFO(
        wide, payload_depth=_FRAME_WORDS, param_depth=2, buffered=True
    )
    module.comb += [
        port.source.connect(arrived.sink),
        arrived.source.connect(rx.sink),
        tx.sink.last_be.eq(tx.sink.last),
        tx.source.connect(whole.sink),
        whole.source.connect(port.sink),
        neighbours.sends.eq(port.sink.valid),
        neighbours.host.eq(port.sink.ip_address),
    ]
    for side, end in (("rx", rx.source), ("tx", tx.sink)):
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
