"""Steps that wait for beats while the bus is served, steps of several streams with time between, STATUS."""

from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from support.benches import run_bench
from support.loadable_builds import build_for, make_device, stacked
from support.quick import quick
from support.random_builds import make_case

from rtlstm import Dense, Lstm, Manifest, Network, Parameters
from rtlstm.gen.quantise.quantiser import QuantizationSettings, QuantizedNetwork, quantise
from rtlstm.hdl.emit.verilog import core_to_verilog
from rtlstm.sim.golden import Golden
from rtlstm.spec.family import Pipeline
from rtlstm.spec.packing import pack
from rtlstm.spec.registers import Command, Region, Register

pytestmark = pytest.mark.rtl

BEAT, WAIT, WRITE, READ, POLL = range(5)
TOKENS = 100
"""Rows of a table in the core, for numbers of 8 bits."""

BENCH = """
module bench;
  reg clk = 0, rst = 1, x_valid = 0, bus_valid = 0, bus_write = 0, polls = 0, again;
  reg {stream} x_stream = 0;
  reg [{beat}-1:0] x_data;
  reg [3:0] bus_address = 0;
  reg [31:0] bus_data = 0;
  reg [67:0] actions [0:{count}-1];
  wire [7:0] y_data;
  wire [31:0] bus_read_data;
  wire x_ready, y_valid, bus_ready, bus_read_valid;
  integer k, cycle = 0, waited, accepted;
  dut dut (.clk(clk), .rst(rst), .x_data(x_data), .x_stream(x_stream), .x_quiet(1'b0), .x_valid(x_valid),
    .x_ready(x_ready), .y_data(y_data), .y_valid(y_valid), .y_ready(1'b1), .bus_address(bus_address),
    .bus_write(bus_write), .bus_data(bus_data), .bus_valid(bus_valid), .bus_ready(bus_ready),
    .bus_read_data(bus_read_data), .bus_read_valid(bus_read_valid));
  task tick; begin
    #1; if (y_valid === 1) $display("y %0d %0d", cycle, $signed(y_data));
    if (polls && bus_read_valid) $display("s %0d %0d", accepted, bus_read_data);
    if (bus_valid && bus_ready) accepted = cycle;
    again = bus_valid ? !bus_ready : bus_read_valid;
    clk = 1; #1 clk = 0; cycle = cycle + 1;
    if (polls) bus_valid = again;
  end endtask
  task patience; begin
    tick; waited = waited + 1;
    if (waited > 5000) begin $display("stuck"); $finish; end
  end endtask
  initial begin
    $readmemh("actions.hex", actions);
    tick; tick; rst = 0; tick;
    for (k = 0; k < {count}; k = k + 1) begin
      waited = 0;
      case (actions[k][67:64])
        0: begin
          x_data = actions[k][31:0]; x_stream = actions[k][63:32]; x_valid = 1; #1;
          while (!x_ready) patience;
          $display("x %0d", cycle);
          tick; x_valid = 0;
        end
        1: repeat (actions[k][31:0]) tick;
        4: begin
          bus_write = 0; bus_address = actions[k][35:32]; bus_valid = 1; polls = 1;
        end
        default: begin
          bus_write = actions[k][67:64] == 2; bus_address = actions[k][35:32];
          bus_data = actions[k][31:0]; bus_valid = 1; #1;
          while (!bus_ready) patience;
          tick; bus_valid = 0;
          if (!bus_write) while (bus_read_valid !== 1) patience;
        end
      endcase
    end
    repeat (500) tick;
    $finish;
  end
endmodule
"""


@dataclass
class Core:
    """A build and what is done to it."""

    quantised: QuantizedNetwork
    manifest: Manifest
    actions: list[int] = field(default_factory=list)

    def act(self, kind: int, low: int, high: int = 0) -> None:
        self.actions.append(kind << 64 | high << 32 | low)

    def write(self, register: Register, value: int) -> None:
        self.act(WRITE, value, register)

    def load(self) -> None:
        for region, banks in pack(self.quantised, self.manifest).regions.items():
            for bank, words in enumerate(banks):
                self.write(Register.SELECT, region << 28 | bank)
                self.write(Register.ROW, 0)
                for word in words.reshape(-1).tolist():
                    self.write(Register.DATA, word)

    def beats(self, x: np.ndarray) -> list[int]:
        width = self.manifest.input_port.beat
        padded = np.zeros(-(-len(x) // width) * width, dtype=int)
        padded[: len(x)] = x & 255
        return [sum(int(v) << 8 * i for i, v in enumerate(part)) for part in padded.reshape(-1, width)]

    def run(self, folder: Path) -> tuple[list[int], list[int], list[int]]:
        """Return the cycles of the beats, those of the outputs, and the outputs."""
        found = self.events(folder)
        return [x for (x,) in found["x"]], [cycle for cycle, _ in found["y"]], [y for _, y in found["y"]]

    def events(self, folder: Path) -> dict[str, list[tuple[int, ...]]]:
        """Return the cycles of the beats, the outputs with their cycles, and what polls read."""
        bits = max(1, (self.manifest.parameters.streams - 1).bit_length())
        (folder / "actions.hex").write_text("\n".join(f"{action:017x}" for action in self.actions))
        beat = 8 * self.manifest.input_port.beat
        text = BENCH.format(stream=f"[{bits - 1}:0]", beat=beat, count=len(self.actions))
        printed = run_bench(folder, text, core_to_verilog(self.manifest))
        assert "stuck" not in printed
        lines = [line.split() for line in printed.splitlines()]
        return {
            kind: [tuple(int(word) for word in line[1:]) for line in lines if line[:1] == [kind]]
            for kind in "xys"
        }


def core(dense: bool, inputs: int = 6, **sizes: object) -> Core:
    rng = np.random.default_rng(8)
    shapes = ((12, inputs), (12, 3), (12,))
    arrays = (rng.normal(size=shape) for shape in shapes)
    layers = [Lstm(**dict(zip(("w_ih", "w_hh", "bias"), arrays, strict=True)))]
    if dense:
        layers.append(Dense(weight=rng.normal(size=(2, 3)), bias=rng.normal(size=2)))
    settings = QuantizationSettings(weight_bits=8, data_bits=8, output_bits=8)
    quantised = quantise(Network(layers=tuple(layers)), settings)
    parameters = Parameters(**{"lanes": 4, "macs": 2, **sizes})
    if rows := parameters.token_rows:
        quantised = replace(quantised, tokens=rng.integers(-127, 127, (rows, inputs), endpoint=True))
    return Core(quantised, Manifest.of("dut", quantised, parameters))


@pytest.mark.parametrize(
    ("asks", "dense", "accept"),
    quick(product(("reads", "resets"), (False, True), (0, 1)), ("resets", True, 1)),
)
def test_bus_in_the_middle_of_an_input(asks: str, dense: bool, accept: int, tmp_path: Path) -> None:
    """After each beat of a step's input the core waits, is asked on the bus, and goes on."""
    built = core(dense, pipeline=Pipeline(accept=accept))
    x = make_case(3, built.quantised, built.manifest.parameters, 7).x
    built.load()
    wanted = []
    state = None
    for k, row in enumerate(x):
        for at, beat in enumerate(built.beats(row)):
            if at == k:
                built.act(WAIT, 100)
                if asks == "reads":
                    built.write(Register.SELECT, 0)
                    built.write(Register.ROW, 1)
                    built.act(READ, 0, Register.DATA)
                else:
                    built.write(Register.COMMAND, Command.RESET)
                    state = None
            built.act(BEAT, beat)
        result = Golden(built.quantised).run(row[None, None], state)
        wanted += result.y.reshape(-1).tolist()
        state = (result.h, result.c)
        if k % 2:
            built.act(WAIT, 300)
    assert built.run(tmp_path)[2] == wanted


def test_bus_while_a_token_is_looked_up(tmp_path: Path) -> None:
    """In each cycle from a token to its row's last beat, and later, the core is asked for its table."""
    built = core(True, token_rows=TOKENS)
    tokens = np.random.default_rng(5).integers(0, TOKENS, 24)
    built.load()
    for wait, token in enumerate(tokens):
        built.write(Register.SELECT, Region.TOKENS << 28)
        built.write(Register.ROW, int(tokens[-1]))
        built.act(BEAT, int(token))
        built.act(WAIT, wait % 12)
        built.act(READ, 0, Register.DATA)
    wanted = Golden(built.quantised).run(built.quantised.looked_up(tokens[:, None, None])).y
    assert built.run(tmp_path)[2] == wanted.reshape(-1).tolist()


@pytest.mark.slow
def test_another_network_in_the_middle_of_an_input(tmp_path: Path) -> None:
    """What the step that was begun had reserved of the output queue is free again, however often."""
    first, second = stacked(6, 5), stacked(6, 1, seed=1)
    settings = QuantizationSettings(weight_bits=8, data_bits=8)
    device = make_device(first, Parameters(lanes=4, macs=2), settings, "dut", outputs=5)
    other = build_for(second, device)
    large, small = (Core(build.network, build.manifest) for build in (device, other))
    small.actions = large.actions
    wanted: list[int] = []
    for row in make_case(3, small.quantised, small.manifest.parameters, 3).x[:3]:
        for built in (large, small):
            built.load()
            built.write(Register.COMMAND, Command.RESET)
            for beat in built.beats(row):
                built.act(BEAT, beat)
            built.act(WAIT, 300)
            wanted += Golden(built.quantised).run(row[None, None]).y.reshape(-1).tolist()
            if built is large:
                # The next step begins with its first words, and there it ends.
                for beat in built.beats(row)[:-1]:
                    built.act(BEAT, beat)
                built.act(WAIT, 100)
    assert small.run(tmp_path)[2] == wanted


@pytest.mark.parametrize(("inputs", "accept"), quick(product((2, 4), (0, 1)), (4, 1)))
def test_streams_with_time_between_steps(inputs: int, accept: int, tmp_path: Path) -> None:
    """Outputs are right, and every step takes the cycles of a cold or a warm one."""
    sizes = {"streams": 3, "macs": inputs, "beat_in": inputs, "pipeline": Pipeline(accept=accept)}
    built = core(False, inputs, **sizes)
    streams = [1, 1, 1, 0, 2, 2, 0, 1, 2, 0, 0, 1]
    x = make_case(3, built.quantised, built.manifest.parameters, len(streams)).x[: len(streams)]
    built.load()
    wanted, states, latencies = [], {}, []
    cycles = built.manifest.cycles
    for stream, row in zip(streams, x, strict=True):
        built.act(WAIT, 200)
        for beat in built.beats(row):
            built.act(BEAT, beat, stream)
        result = Golden(built.quantised).run(row[None, None], states.get(stream))
        latencies.append(cycles.step_latency_cycles if stream in states else cycles.first_step_latency_cycles)
        states[stream] = (result.h, result.c)
        wanted += result.y.reshape(-1).tolist()
    offered, given, y = built.run(tmp_path)
    assert y == wanted
    outputs = built.quantised.outputs
    assert [
        end - begin for begin, end in zip(offered, given[outputs - 1 :: outputs], strict=True)
    ] == latencies


@pytest.mark.slow
@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("accept", [0, 1])
@pytest.mark.parametrize("rows", [0, TOKENS])
def test_status_is_busy_from_the_last_beat_to_the_last_output(
    dense: bool, accept: int, rows: int, tmp_path: Path
) -> None:
    """STATUS, read without pause: never idle while a step waits or is computed, but idle between steps."""
    built = core(dense, 2, beat_in=1 if rows else 2, token_rows=rows, pipeline=Pipeline(accept=accept))
    steps = 16
    x = make_case(3, built.quantised, built.manifest.parameters, steps).x[:steps]
    if rows:
        x = np.arange(steps)[:, None]
    built.load()
    built.act(POLL, 0, Register.STATUS)
    for row, wait in zip(x, np.random.default_rng(3).integers(400, 420, steps), strict=True):
        built.act(WAIT, int(wait))
        for beat in built.beats(row):
            built.act(BEAT, beat)
    found = built.events(tmp_path)
    beats, outputs = np.array(found["x"]).reshape(len(x), -1), np.array(found["y"]).reshape(len(x), -1, 2)
    ends, soonest = outputs[:, -1, 0], []
    for begin, end, following in zip(beats[:, -1], ends, [*beats[1:, 0], ends[-1] + 400], strict=True):
        under_way = {cycle - begin: busy for cycle, busy in found["s"] if begin < cycle <= end}
        assert all(under_way.values()), under_way
        soonest.append(min(under_way))
        after = [busy for cycle, busy in found["s"] if end < cycle <= following]
        assert after[-20:] == [0] * 20 and after == sorted(after, reverse=True)
    # The promise holds for a read that is accepted in the cycle after the beat.
    assert min(soonest) == 1
