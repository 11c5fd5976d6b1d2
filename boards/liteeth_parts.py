"""What stands in for parts of LiteEth that other people's frames can stop (needs the package liteeth).

LiteEth's table of MAC addresses waits up to 0.8 s for one that does not answer, and whatever is to be sent
waits behind it: one ping in the name of an absent device stops a link. Its echo waits for ever for the end of
a ping that is longer than its header says.
"""

from typing import Any, Final

from liteeth.common import arp_table_request_layout, arp_table_response_layout, icmp_protocol
from liteeth.core.arp import _arp_table_layout
from liteeth.core.icmp import LiteEthICMPEcho, LiteEthICMPRX, LiteEthICMPTX
from litex.soc.interconnect.stream import Endpoint
from migen import FSM, If, Module, NextState, NextValue, Signal

ASK_SECONDS: Final = 0.001
"""How long an answer waits for its host's address: a device answers within microseconds."""


class Neighbours(Module):  # type: ignore[misc]  # migen has no types
    """Knows two devices: the host to which datagrams go, and the other one that asked last.

    It learns from questions for the board as well as from answers (RFC 826). It asks for the host alone, once
    for each datagram, and says at once of other addresses that they are not known: all who ping have asked.
    """

    def __init__(self, clock_hz: int) -> None:
        self.sink = heard = Endpoint(_arp_table_layout)
        self.source = said = Endpoint(_arp_table_layout)
        self.request = request = Endpoint(arp_table_request_layout)
        self.response = response = Endpoint(arp_table_response_layout)
        self.sends, self.host = Signal(), Signal(32)
        """A datagram is to be sent, and the address of its host."""

        host_ip, host_mac, host_known = Signal(32), Signal(48), Signal()
        other_ip, other_mac, other_known = Signal(32), Signal(48), Signal()
        changes = self.sends & (self.host != host_ip)
        self.sync += [
            If(
                changes,
                host_ip.eq(self.host),
                host_mac.eq(other_mac),
                host_known.eq(other_known & (other_ip == self.host)),
            ),
            If(
                heard.valid & (heard.request | heard.reply),
                If(
                    (heard.ip_address == host_ip) & ~changes,
                    host_mac.eq(heard.mac_address),
                    host_known.eq(1),
                ).Else(
                    other_ip.eq(heard.ip_address),
                    other_mac.eq(heard.mac_address),
                    other_known.eq(1),
                ),
            ),
        ]

        # What it says: an answer, of which one can wait, or a question.
        answers, asks, asker_ip, asker_mac = Signal(), Signal(), Signal(32), Signal(48)
        self.submodules.speaker = speaker = FSM(reset_state="IDLE")
        speaker.act(
            "IDLE", If(answers, NextState("ANSWER")).Elif(asks, NextValue(asks, 0), NextState("QUESTION"))
        )
        speaker.act(
            "ANSWER",
            said.valid.eq(1),
            said.reply.eq(1),
            said.ip_address.eq(asker_ip),
            said.mac_address.eq(asker_mac),
            If(said.ready, NextValue(answers, 0), NextState("IDLE")),
        )
        speaker.act(
            "QUESTION",
            said.valid.eq(1),
            said.request.eq(1),
            said.ip_address.eq(host_ip),
            If(said.ready, NextState("IDLE")),
        )
        self.sync += If(
            heard.valid & heard.request & ~answers,
            answers.eq(1),
            asker_ip.eq(heard.ip_address),
            asker_mac.eq(heard.mac_address),
        )

        # Whom IP packets are for.
        waits = round(ASK_SECONDS * clock_hz)
        left = Signal(max=waits + 1)
        self.submodules.fsm = fsm = FSM(reset_state="IDLE")
        self.comb += request.ready.eq(fsm.ongoing("IDLE"))
        fsm.act(
            "IDLE",
            NextValue(left, waits),
            If(
                request.valid,
                NextValue(response.mac_address, host_mac),
                NextValue(response.failed, 0),
                If((request.ip_address == host_ip) & host_known, NextState("ANSWER"))
                .Elif(
                    (request.ip_address == other_ip) & other_known,
                    NextValue(response.mac_address, other_mac),
                    NextState("ANSWER"),
                )
                .Elif(request.ip_address == host_ip, NextValue(asks, 1), NextState("ASK"))
                .Else(NextValue(response.failed, 1), NextState("ANSWER")),
            ),
        )
        fsm.act(
            "ASK",
            NextValue(left, left - 1),
            NextValue(response.mac_address, host_mac),
            If(host_known, NextState("ANSWER")).Elif(
                left == 0, NextValue(response.failed, 1), NextState("ANSWER")
            ),
        )
        fsm.act("ANSWER", response.valid.eq(1), If(response.ready, NextState("IDLE")))


PING_BYTES: Final = 128
"""Most data of a ping that is answered."""


class Echo(Module):  # type: ignore[misc]
    """Answers pings: what LiteEth's ICMP does, with an end for those that have none."""

    def __init__(self, ip: Any, ip_address: int) -> None:
        self.submodules.rx = rx = LiteEthICMPRX(ip_address, dw=32)
        self.submodules.tx = tx = LiteEthICMPTX(ip_address, dw=32)
        self.submodules.echo = echo = LiteEthICMPEcho(dw=32, fifo_depth=PING_BYTES)
        port = ip.crossbar.get_port(icmp_protocol, dw=32)
        given, taken = rx.source, echo.sink
        count, beyond, last = Signal(max=PING_BYTES // 4), Signal(), Signal()
        self.comb += [
            port.source.connect(rx.sink),
            echo.source.connect(tx.sink),
            tx.source.connect(port.sink),
            given.connect(taken, omit={"valid", "ready", "last", "last_be"}),
            last.eq(count == PING_BYTES // 4 - 1),
            taken.valid.eq(given.valid & ~beyond),
            given.ready.eq(taken.ready | beyond),
            taken.last.eq(given.last | last),
            taken.last_be.eq(given.last_be),
            If(~given.last, taken.last_be.eq(0b1000)),
        ]
        self.sync += If(
            given.valid & given.ready,
            If(last, beyond.eq(1)).Else(count.eq(count + 1)),
            If(given.last, count.eq(0), beyond.eq(0)),
        )
