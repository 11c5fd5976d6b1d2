"""A reset in any cycle of a step: nothing comes out, nothing is counted, and the next step is right."""

from functools import partial
from pathlib import Path

import numpy as np
import pytest
from support.benches import run_bench
from support.quick import quick
from support.random_builds import make_case
from support.small_builds import normal_lstm

from rtlstm import Dense, Manifest, Network, Parameters
from rtlstm.gen.quantise.quantiser import QuantizationSettings, quantise
from rtlstm.hdl.emit.verilog import core_to_verilog
from rtlstm.sim.golden import Golden
from rtlstm.sim.simulated_ports import SIMULATION
from rtlstm.spec.family import Pipeline
from rtlstm.spec.packing import pack
from rtlstm.spec.program.spatial import SpatialPlan
from rtlstm.spec.registers import Register

pytestmark = pytest.mark.rtl

BENCH = """
module bench;
  reg clk = 0, rst = 1, x_valid = 0, bus_valid = 0, bus_write = 1;
  reg [7:0] x_data, x [0:{inputs}-1];
  reg [3:0] bus_address;
  reg [31:0] bus_data;
  reg [35:0] bus [0:{words}-1];
  wire [7:0] y_data;
  wire x_ready, y_valid, y_last, bus_ready, bus_read_valid;
  wire [31:0] bus_read_data;
  integer i, k, beats, phantom;
  dut dut (.clk(clk), .rst(rst), .x_data(x_data), .x_stream(1'b0), .x_quiet(1'b0), .x_valid(x_valid),
    .x_ready(x_ready), .y_data(y_data), .y_valid(y_valid), .y_last(y_last), .y_ready(1'b1),
    .bus_address(bus_address), .bus_write(bus_write), .bus_data(bus_data), .bus_valid(bus_valid),
    .bus_ready(bus_ready), .bus_read_data(bus_read_data), .bus_read_valid(bus_read_valid));
  task tick; begin #1 clk = 1; #1 clk = 0; end endtask
  task send; begin
    for (i = 0; i < {inputs}; i = i + 1) begin
      x_data = x[i]; x_valid = 1; #1;
      while (!x_ready) tick;
      tick;
    end
    x_valid = 0;
  end endtask
  task count(input [3:0] register); begin
    bus_address = register; bus_write = 0; bus_valid = 1; #1;
    while (!bus_ready) tick;
    tick; bus_valid = 0; bus_write = 1; #1;
    while (!bus_read_valid) tick;
    $write(" %0d", bus_read_data);
  end endtask
  initial begin
    $readmemh("bus.hex", bus);
    $readmemh("x.hex", x);
    tick; tick; rst = 0; tick;
    for (k = 0; k < {words}; k = k + 1) begin
      {{bus_address, bus_data}} = bus[k]; bus_valid = 1; #1;
      while (!bus_ready) tick;
      tick;
    end
    bus_valid = 0;
    // The last word is on its way to its memory, and a reset would lose it.
    repeat (4) tick;
    for (k = 0; k < {cycles}; k = k + 1) begin
      send;
      for (i = 0; i < k; i = i + 1) tick;
      rst = 1; tick; rst = 0;
      phantom = 0;
      for (i = 0; i < {cycles}; i = i + 1) begin phantom = phantom + y_valid; tick; end
      $write("%0d", phantom);
      count({steps}); count({latency}); count({saturations});
      send;
      for (i = 0; i < {cycles}; i = i + 1) begin
        if (y_valid === 1) $write(" %0d", $signed(y_data));
        tick;
      end
      $write("\\n");
    end
    $finish;
  end
endmodule
"""


def networks() -> dict[str, tuple[Network, Parameters]]:
    rng = np.random.default_rng(4)
    lstm = partial(normal_lstm, rng)
    dense = Dense(weight=rng.normal(size=(5, 3)), bias=rng.normal(size=5), activation="tanh")
    copied = Parameters(lanes=32, macs=1, pipeline=Pipeline(copies=2))
    return {
        "long drain": (Network(layers=(lstm(1, 8),)), Parameters(lanes=32, macs=1)),
        "copies of registers": (Network(layers=(lstm(1, 8),)), copied),
        "copies that synthesis keeps": (
            Network(layers=(lstm(1, 8),)),
            Parameters.for_family("ecp5", factor_bits=8, pipeline_name="wide_loop", lanes=32, macs=1),
        ),
        "layers": (Network(layers=(lstm(2, 4), lstm(4, 3), dense)), Parameters(lanes=8, macs=2)),
    }


SPATIAL = {"in space": (3, 1), "streams in space": (6, 2)}
"""Registers of the loop, and streams."""


@pytest.mark.parametrize("name", quick([*networks(), *SPATIAL], "layers", "streams in space"))
def test_reset_in_every_cycle(name: str, tmp_path: Path) -> None:
    # A narrow range of c, so that it saturates.
    settings = QuantizationSettings(
        weight_bits=8, data_bits=8, output_bits=8, gate_bits=8, cell_bits=10, cell_range=0.25
    )
    plan = None
    if name in SPATIAL:
        registers, streams = SPATIAL[name]
        network, _ = networks()["layers"]
        parameters = Parameters(lanes=4, macs=2, streams=streams, tables="direct")
        quantised = quantise(network, settings.replace(tables="direct"))
        plan = SpatialPlan.of(quantised, registers)
    else:
        network, parameters = networks()[name]
        quantised = quantise(network, settings)
    manifest = Manifest.of("dut", quantised, parameters, spatial=plan)
    x = make_case(1, quantised, parameters, 1).x[:1]
    requests = [(Register.STREAM, 0)]
    for region, banks in pack(quantised, manifest).regions.items():
        for bank, words in enumerate(banks):
            requests += [(Register.SELECT, region << 28 | bank), (Register.ROW, 0)]
            requests += [(Register.DATA, word) for word in words.reshape(-1).tolist()]
    (tmp_path / "bus.hex").write_text("\n".join(f"{a << 32 | d:09x}" for a, d in requests))
    (tmp_path / "x.hex").write_text("\n".join(f"{value & 255:x}" for value in x[0].tolist()))
    cycles = manifest.cycles.first_step_latency_cycles + manifest.cycles.recurrent_cycles + 16
    bench = BENCH.format(
        inputs=quantised.inputs,
        words=len(requests),
        cycles=cycles,
        steps=int(Register.STEPS),
        latency=int(Register.LATENCY),
        saturations=int(Register.CELL_SATURATIONS),
    )
    printed = run_bench(tmp_path, bench, core_to_verilog(manifest), f"-D{SIMULATION}")
    lines = [[int(word) for word in line.split()] for line in printed.splitlines()]
    found = Golden(quantised).run(x[:, None])
    assert found.cell_saturations > 0
    assert len(lines) == cycles
    for outputs, steps, latency, saturations, *y in lines:
        assert (outputs, steps, latency, saturations) == (0, 0, 0, 0)
        assert y == found.y.reshape(-1).tolist()
