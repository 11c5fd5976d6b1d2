"""Structures and streams inside, single ports in Verilog: their names, order, directions and widths stay."""

import pytest
from amaranth.hdl import Module
from amaranth.lib import stream
from amaranth.lib.data import StructLayout
from amaranth.lib.wiring import In, Out
from support.bus_builds import CAPACITIES, SETTINGS, SIZES, quantised_network, small_network
from support.loadable_builds import make_device
from support.random_builds import TINY
from support.random_sequences import random_sequence_case

from rtlstm.fpga.netlist.harness import read_ports
from rtlstm.hdl.component import Component, flat_ports
from rtlstm.hdl.core.core import CoreInstance
from rtlstm.hdl.emit.verilog import core_to_verilog, to_verilog
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.parameters import Parameters

INPUTS = "x_data x_stream x_quiet x_valid y_ready bus_address bus_write bus_data bus_valid"
OUTPUTS = "x_ready y_data y_stream y_last y_valid bus_ready bus_read_data bus_read_valid"


def fixed() -> Manifest:
    return Manifest.of("dut", quantised_network(), Parameters(**SIZES))


def loadable() -> Manifest:
    return make_device(small_network(), Parameters(**SIZES), SETTINGS, "dut", **CAPACITIES).manifest


def sequences() -> Manifest:
    return random_sequence_case(1, TINY).manifest


@pytest.mark.parametrize(
    ("make", "names"),
    [
        (fixed, f"rst {INPUTS} {OUTPUTS} clk"),
        (loadable, f"rst {INPUTS} {OUTPUTS} shape stopped clk"),
        (sequences, f"rst {INPUTS} x_last {OUTPUTS} clk"),
    ],
    ids=lambda part: getattr(part, "__name__", ""),
)
def test_a_cores_module_has_the_ports_of_the_contract(make, names: str) -> None:
    manifest = make()
    ports = read_ports(core_to_verilog(manifest), manifest.name)
    assert [port.name for port in ports] == names.split()
    wires = CoreInstance(CoreInstance.signature_for(manifest))
    flat = {port.name: (port.flow, len(port.value)) for port in flat_ports(wires)}
    found = {port.name: (In if port.direction == "input" else Out, port.width) for port in ports}
    assert found == flat | {"clk": (In, 1), "rst": (In, 1)}
    parameters, numerics = manifest.parameters, manifest.numerics
    assert flat["x_data"] == (In, parameters.beat_in * numerics.data_bits)
    assert flat["y_data"] == (Out, parameters.beat_out * numerics.output_bits)


class Swap(Component):
    """Exchanges the fields of a structure."""

    i: stream.Interface
    o: stream.Interface
    byte: stream.Interface

    def __init__(self) -> None:
        pair = stream.Signature(StructLayout({"low": 3, "high": 3}))
        super().__init__({"i": In(pair), "o": Out(pair), "byte": Out(stream.Signature(8))})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.d.comb += [
            self.o.payload.low.eq(self.i.payload.high),
            self.o.payload.high.eq(self.i.payload.low),
            self.o.valid.eq(self.i.valid),
            self.i.ready.eq(self.o.ready),
            self.byte.payload.eq(self.i.payload),
        ]
        return m


def test_fields_are_led_out_in_both_directions() -> None:
    text = to_verilog({"swap": Swap()})
    widths = {port.name: (port.direction, port.width) for port in read_ports(text, "swap")}
    del widths["clk"], widths["rst"]
    assert widths == {
        "i_low": ("input", 3),
        "i_high": ("input", 3),
        "i_valid": ("input", 1),
        "i_ready": ("output", 1),
        "o_low": ("output", 3),
        "o_high": ("output", 3),
        "o_valid": ("output", 1),
        "o_ready": ("input", 1),
        "byte_payload": ("output", 8),
        "byte_valid": ("output", 1),
        "byte_ready": ("input", 1),
    }
