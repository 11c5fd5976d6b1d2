"""A core with AXI4-Stream data and AXI4-Lite registers, and AXI4-Lite as a slave."""

from collections.abc import Iterable, Mapping
from typing import ClassVar

from amaranth.hdl import DomainRenamer, Module, Mux, ResetSignal, Signal, Value
from amaranth.lib import wiring

from rtlstm.hdl.buses.axi_stream import InputStream, OutputStream
from rtlstm.hdl.buses.request_port import NUMBER_BITS, BusSlave
from rtlstm.hdl.buses.wrappers import FifoWrapper, Pins, Wrapper
from rtlstm.hdl.component import Component, In, Out
from rtlstm.spec.manifest import Manifest

AXI_PINS = Pins("aclk", "aresetn", reset_low=True)
"""AXI's names of clock and reset."""
AXI_LITE_TEXTS = {
    "aclk": "clock",
    "aresetn": "reset, synchronous, active low",
    "s_axi_awaddr": "register to write, in bytes",
    "s_axi_awvalid": "offered",
    "s_axi_awready": "taken",
    "s_axi_wdata": "word to write",
    "s_axi_wstrb": "all bits 1: words are whole",
    "s_axi_wvalid": "offered",
    "s_axi_wready": "taken",
    "s_axi_bresp": "0: done; 2: refused",
    "s_axi_bvalid": "offered",
    "s_axi_bready": "taken",
    "s_axi_araddr": "register to read, in bytes",
    "s_axi_arvalid": "offered",
    "s_axi_arready": "taken",
    "s_axi_rdata": "word read",
    "s_axi_rresp": "0: done; 2: refused",
    "s_axi_rvalid": "offered",
    "s_axi_rready": "taken",
}


def interface_attributes(ports: Iterable[str], interfaces: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Return the attributes by which Vivado's block designs know AXI's interfaces, clock and reset.

    ``interfaces`` has each one's kind, ``aximm`` or ``axis``, by its name, the prefix of its ports.
    """
    found = {
        f"{name}_{signal}": {"X_INTERFACE_INFO": f"xilinx.com:interface:{kind}:1.0 {name} {signal.upper()}"}
        for name, kind in interfaces.items()
        for signal in (port.removeprefix(f"{name}_") for port in ports if port.startswith(f"{name}_"))
    }
    signals = {
        "aclk": ("clock", "CLK", f"ASSOCIATED_BUSIF {':'.join(interfaces)}, ASSOCIATED_RESET aresetn"),
        "aresetn": ("reset", "RST", "POLARITY ACTIVE_LOW"),
        "irq": ("interrupt", "INTERRUPT", "SENSITIVITY LEVEL_HIGH"),
    }
    for name, (kind, pin, settings) in signals.items():
        info = f"xilinx.com:signal:{kind}:1.0 {name} {pin}"
        found[name] = {"X_INTERFACE_INFO": info, "X_INTERFACE_PARAMETER": settings}
    return found


ADDRESS_BITS = NUMBER_BITS + 2

SLVERR = 0b10
"""The response to a refused request: SLVERR."""


class AxiLite(BusSlave):
    """Turns AXI4-Lite transfers into requests, writes and reads in turn if both wait.

    Each channel holds one transfer. Latency for a register that answers at once: 4 cycles from the later
    of ``AWVALID`` and ``WVALID`` to ``BVALID``, and 4 cycles from ``ARVALID`` to ``RVALID``. No output
    depends on an input of the same cycle.
    """

    awaddr: Signal = In(ADDRESS_BITS)
    awvalid: Signal = In(1)
    awready: Signal = Out(1)
    wdata: Signal = In(32)
    wstrb: Signal = In(4)
    wvalid: Signal = In(1)
    wready: Signal = Out(1)
    bresp: Signal = Out(2)
    bvalid: Signal = Out(1)
    bready: Signal = In(1)
    araddr: Signal = In(ADDRESS_BITS)
    arvalid: Signal = In(1)
    arready: Signal = Out(1)
    rdata: Signal = Out(32)
    rresp: Signal = Out(2)
    rvalid: Signal = Out(1)
    rready: Signal = In(1)
    """The five channels, without ``AxPROT``, which is not used."""

    def elaborate(self, platform: object) -> Module:
        m = Module()
        address_held, written_address = self._hold(m, "aw", self.awvalid, self.awready, self.awaddr)
        data_held, written = self._hold(m, "w", self.wvalid, self.wready, self.wdata)
        strobes = Signal(4, reset_less=True)
        with m.If(self.wvalid & self.wready):
            m.d.sync += strobes.eq(self.wstrb)
        read_held, read_address = self._hold(m, "ar", self.arvalid, self.arready, self.araddr)
        active, writing = Signal(), Signal()
        write_waits = address_held & data_held & ~self.bvalid
        read_waits = read_held & ~self.rvalid
        with m.If(~active):
            # A read that waits is next: behind a write's request, no other waits yet.
            m.d.sync += [active.eq(write_waits | read_waits), writing.eq(write_waits)]
        address = Mux(writing, written_address, read_address)
        m.d.comb += [
            self.bus.valid.eq(active),
            self.bus.write.eq(writing),
            self.bus.number.eq(address[2:]),
            self.bus.data.eq(written),
            self.bus.whole.eq((address[:2] == 0) & (~writing | strobes.all())),
        ]
        with m.If(self.bus.done):
            m.d.sync += active.eq(0)
            with m.If(writing):
                m.d.sync += [address_held.eq(0), data_held.eq(0)]
            with m.Else():
                m.d.sync += [read_held.eq(0), self.rdata.eq(self.bus.read_data)]
        self._respond(m, self.bvalid, self.bready, self.bresp, writing)
        self._respond(m, self.rvalid, self.rready, self.rresp, ~writing)
        return m

    def _hold(
        self, m: Module, channel: str, valid: Value, ready: Value, payload: Value
    ) -> tuple[Signal, Signal]:
        """Take a transfer of a channel; return whether there is one, and what it carries."""
        held, word = Signal(name=f"{channel}_held"), Signal.like(payload, name=f"{channel}_word")
        m.d.comb += ready.eq(~held & ~ResetSignal())
        with m.If(valid & ready):
            m.d.sync += [held.eq(1), word.eq(payload)]
        return held, word

    def _respond(self, m: Module, valid: Value, ready: Value, response: Value, mine: Value) -> None:
        """Give the answer to a request of this channel until it is taken."""
        with m.If(self.bus.done & mine):
            m.d.sync += [valid.eq(1), response.eq(Mux(self.bus.refused, SLVERR, 0))]
        with m.Elif(ready):
            m.d.sync += valid.eq(0)


class AxiLiteCore(FifoWrapper):
    """The core with AXI4-Lite registers and data FIFOs; see ``docs/integrate.md``."""

    pins, port_texts = AXI_PINS, AXI_LITE_TEXTS
    interfaces: ClassVar[Mapping[str, str]] = {"s_axi": "aximm"}
    port_attributes = interface_attributes(AXI_LITE_TEXTS, interfaces)
    prefix, slave = "s_axi_", AxiLite


_STREAM_TEXTS = {
    "s_axis_x_tdata": "next values of a step's input, each in whole bytes, the first in the low bits",
    "s_axis_x_tid": "the step's stream",
    "s_axis_x_tuser": "the step's output is not wanted",
    "s_axis_x_tlast": "the step's last transfer",
    "s_axis_x_tvalid": "offered",
    "s_axis_x_tready": "taken",
    "m_axis_y_tdata": "next values of a step's output, sign-extended to whole bytes",
    "m_axis_y_tid": "the step's stream",
    "m_axis_y_tuser": "the step's input was malformed",
    "m_axis_y_tlast": "the step's last transfer",
    "m_axis_y_tvalid": "offered",
    "m_axis_y_tready": "taken",
}

_STREAM = ("tdata", "tid", "tuser", "tlast", "tvalid", "tready")


def _stream_ports(part: Component, prefix: str) -> dict[str, wiring.Member]:
    return {prefix + name: part.signature.members[name] for name in _STREAM}


class AxiCore(Wrapper):
    """The core with AXI4-Stream data and AXI4-Lite registers; see ``docs/integrate.md``.

    Data ports add no latency to the core's.
    """

    pins, port_texts = AXI_PINS, AXI_LITE_TEXTS | _STREAM_TEXTS
    interfaces: ClassVar[Mapping[str, str]] = {"s_axi": "aximm", "s_axis_x": "axis", "m_axis_y": "axis"}
    port_attributes = interface_attributes(port_texts, interfaces)

    def __init__(self, manifest: Manifest) -> None:
        self._source, self._sink = InputStream(manifest), OutputStream(manifest)
        super().__init__(
            manifest,
            {
                **_stream_ports(self._source, "s_axis_x_"),
                **_stream_ports(self._sink, "m_axis_y_"),
                **AxiLite.bus_ports("s_axi_"),
            },
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        self._begin(m)
        source, sink = self._source, self._sink
        m.submodules.source = DomainRenamer("steps")(source)
        m.submodules.sink = DomainRenamer("data")(sink)
        m.submodules.registers = registers = AxiLite()
        self._connect(m, source, sink)
        wiring.connect(m, registers.bus, self._control.bus)
        m.d.comb += [
            self._control.malformed.eq(source.malformed),
            sink.frame.eq(source.frame),
            sink.frame_valid.eq(source.frame_valid),
            source.frame_ready.eq(sink.frame_ready),
            sink.forget.eq(self._switching & ~self._core.y.valid),
        ]
        self._lead_out(m, source, "s_axis_x_", dict.fromkeys(_STREAM))
        self._lead_out(m, sink, "m_axis_y_", dict.fromkeys(_STREAM))
        self._lead_out(m, registers, "s_axi_", AxiLite.bus_ports())
        return m
