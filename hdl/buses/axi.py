"""A core with AXI4-Stream data and AXI4-Lite registers."""

from collections.abc import Mapping
from typing import ClassVar

from amaranth.hdl import DomainRenamer, Module
from amaranth.lib import wiring

from rtlstm.hdl.buses.axi_lite import AXI_LITE_TEXTS, AXI_PINS, AxiLite, interface_attributes
from rtlstm.hdl.buses.axi_stream import InputStream, OutputStream
from rtlstm.hdl.buses.wrappers import Wrapper
from rtlstm.hdl.component import Component
from rtlstm.spec.manifest import Manifest

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
