"""The core: all parts of the datapath, wired together."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from rtlstm.hdl.drain import Drain
from rtlstm.hdl.gate_unit import GateUnit
from rtlstm.hdl.lane import lane_instance
from rtlstm.hdl.layouts import DelayLine, stream_bits, token_layout
from rtlstm.hdl.pipeline import storage
from rtlstm.hdl.ports import InputBuffer, OutputQueue
from rtlstm.hdl.sequencer import Sequencer
from rtlstm.hdl.window import Window
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.registers import Region

__all__ = ["Core"]

BUS_PORTS = (
    "bus_address",
    "bus_write",
    "bus_data",
    "bus_valid",
    "bus_ready",
    "bus_read_data",
    "bus_read_valid",
)


class Core(wiring.Component):
    """An LSTM network in hardware, as a manifest describes it.

    Latency and throughput: ``manifest.cycles``, exact. Results: :class:`rtlstm.sim.golden.Golden`,
    exact. Ports: ``docs/ports.md``.
    """

    def __init__(self, manifest: Manifest) -> None:
        self._manifest = manifest
        parameters, data = manifest.parameters, manifest.numerics.data_bits
        streams = stream_bits(manifest)
        super().__init__(
            {
                "x_data": In(parameters.beat_in * data),
                "x_stream": In(streams),
                "x_valid": In(1),
                "x_ready": Out(1),
                "y_data": Out(parameters.beat_out * data),
                "y_stream": Out(streams),
                "y_last": Out(1),
                "y_valid": Out(1),
                "y_ready": In(1),
                "bus_address": In(4),
                "bus_write": In(1),
                "bus_data": In(32),
                "bus_valid": In(1),
                "bus_ready": Out(1),
                "bus_read_data": Out(32),
                "bus_read_valid": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        manifest = self._manifest
        m.submodules.sequencer = self._sequencer = Sequencer(manifest)
        m.submodules.input_buffer = self._input = InputBuffer(manifest)
        m.submodules.drain = self._drain = Drain(manifest)
        m.submodules.gate_unit = self._gate_unit = GateUnit(manifest)
        m.submodules.output_queue = self._output = OutputQueue(manifest)
        m.submodules.window = self._window = Window(manifest)

        vector = self._vectors(m)
        tokens = DelayLine(m, token_layout(manifest), self._sequencer.token, "token", self._summed)
        totals = self._lanes(m, vector, tokens)
        self._ports(m)
        self._control(m, tokens)
        m.d.comb += [
            self._drain.token.eq(tokens.at(self._summed - 2)),
            self._drain.totals.eq(totals),
            self._gate_unit.item.eq(self._drain.item),
            self._gate_unit.negative.eq(self._drain.negative),
            self._gate_unit.magnitudes.eq(self._drain.magnitudes),
            self._output.result.eq(self._gate_unit.result),
        ]
        self._memory_window(m)
        return m

    @property
    def _summed(self) -> int:
        parameters = self._manifest.parameters
        return parameters.pipeline.summed(parameters.macs)

    def _vectors(self, m: Module) -> Signal:
        """Read the vector that the issued word multiplies; write new h and dense results."""
        manifest, sequencer = self._manifest, self._sequencer
        layout, bits = manifest.regions[Region.VECTORS], manifest.numerics.data_bits
        macs = manifest.parameters.macs
        read, write = storage(m, "vectors", layout.width, layout.rows, granularity=bits)
        result, window = self._gate_unit.result, self._window
        stores = result.valid & result.store
        loads = window.write[Region.VECTORS]
        chosen = [result.slot == index for index in range(macs)]
        value = Signal(bits)
        m.d.comb += [
            self._input.row.eq(sequencer.vector_row),
            read.addr.eq(sequencer.vector_row),
            value.eq(result.value),
            write.addr.eq(Mux(loads, window.row, result.row)),
            # A word's first value clears the rest of it, so that no position stays undefined.
            write.en.eq(Cat(loads | stores & (chosen[0] | chosen[i]) for i in range(macs))),
            write.data.eq(Mux(loads, window.write_data, Cat(Mux(chosen[i], value, 0) for i in range(macs)))),
        ]
        self._vector_entry = read.data
        flags = Signal(3, reset_less=True)
        m.d.sync += flags.eq(Cat(sequencer.from_input, sequencer.relu, sequencer.blank))
        word = Mux(flags[0], self._input.word, read.data)
        operand = Signal(layout.width, reset_less=True)
        for index in range(macs):
            part = word.word_select(index, bits)
            hidden = flags[2] | (flags[1] & part[-1])
            m.d.sync += operand.word_select(index, bits).eq(Mux(hidden, 0, part))
        return operand

    def _lanes(self, m: Module, vector: Signal, tokens: DelayLine) -> Value:
        """Add the lanes; return their totals side by side."""
        window, token = self._window, tokens.at(self._summed)
        totals, entries = [], []
        for index in range(self._manifest.parameters.lanes):
            lane = lane_instance(m, self._manifest, f"lane{index}")
            selected = window.bank == index
            m.d.comb += [
                lane.address.eq(self._sequencer.weight_row),
                lane.vector.eq(vector),
                lane.add.eq(token.valid),
                lane.first.eq(token.first),
                lane.write.eq(window.write[Region.WEIGHTS] & selected),
                lane.write_row.eq(window.row),
                lane.write_data.eq(window.write_data),
            ]
            totals.append(lane.total)
            entries.append(Mux(selected, lane.weights, 0))
        self._weight_entry = _any_of(entries)
        return Cat(totals)

    def _ports(self, m: Module) -> None:
        for name in ("x_data", "x_stream", "x_valid"):
            m.d.comb += getattr(self._input, name).eq(getattr(self, name))
        m.d.comb += self.x_ready.eq(self._input.x_ready)
        for name in ("y_data", "y_stream", "y_last", "y_valid"):
            m.d.comb += getattr(self, name).eq(getattr(self._output, name))
        m.d.comb += self._output.y_ready.eq(self.y_ready)
        for name in BUS_PORTS:
            ours, inner = getattr(self, name), getattr(self._window, name)
            outward = name in ("bus_ready", "bus_read_data", "bus_read_valid")
            m.d.comb += ours.eq(inner) if outward else inner.eq(ours)

    def _control(self, m: Module, tokens: DelayLine) -> None:
        """Wire sequencer, ports, window and counters."""
        sequencer, window, source = self._sequencer, self._window, self._input
        result = self._gate_unit.result
        # The cycle of a step's last input beat follows the step to its last output beat.
        reading, emitting = Signal(32, reset_less=True), Signal(32, reset_less=True)
        since = Mux(sequencer.from_input, source.since, reading)
        with m.If(sequencer.input_taken):
            m.d.sync += reading.eq(source.since)
        with m.If(sequencer.emits):
            m.d.sync += emitting.eq(since)
        m.d.comb += [
            sequencer.input_valid.eq(source.full),
            sequencer.input_stream.eq(source.stream),
            sequencer.input_bank.eq(source.bank),
            source.taken.eq(sequencer.input_taken),
            source.now.eq(window.now),
            sequencer.room.eq(self._output.room),
            self._output.emits.eq(sequencer.emits),
            sequencer.result_last.eq(result.valid & result.last),
            sequencer.window.eq(window.active & sequencer.idle),
            sequencer.window_wanted.eq(window.active),
            sequencer.window_row.eq(window.row),
            sequencer.reset_stream.eq(window.reset_stream),
            sequencer.state_written.eq(window.state_written),
            sequencer.weights_written.eq(window.weights_written),
            sequencer.command_stream.eq(window.stream),
            window.idle.eq(sequencer.idle),
            window.flags.eq(sequencer.flags),
            window.step_done.eq(self._output.pushed_last),
            window.saturated.eq(self._gate_unit.saturated),
            window.since.eq(emitting),
        ]

    def _memory_window(self, m: Module) -> None:
        """Connect the window to every memory."""
        window, drain, gates = self._window, self._drain, self._gate_unit
        opened = self._sequencer.window
        m.d.comb += [
            drain.window.eq(opened),
            drain.window_row.eq(window.row),
            drain.write_shifts.eq(window.write[Region.SHIFTS]),
            drain.write_partials.eq(window.write[Region.PARTIALS]),
            drain.write_data.eq(window.write_data),
            gates.window.eq(opened),
            gates.window_row.eq(window.row),
            gates.write.eq(window.write),
            gates.write_data.eq(window.write_data),
        ]
        entries = {
            Region.WEIGHTS: self._weight_entry,
            Region.PARTIALS: drain.partials,
            Region.SHIFTS: drain.shifts,
            Region.VECTORS: self._vector_entry,
            Region.CELLS: gates.entries.cells,
            Region.SIGMOID: gates.entries.sigmoid,
            Region.TANH: gates.entries.tanh,
            Region.CELL_TANH: gates.entries.cell_tanh,
        }
        with m.Switch(window.region):
            for region, entry in entries.items():
                with m.Case(int(region)):
                    m.d.comb += window.read_data.eq(entry)


def _any_of(values: list[Value]) -> Value:
    """OR of values of which at most one is not zero, as a balanced tree."""
    while len(values) > 1:
        pairs = [values[i : i + 2] for i in range(0, len(values), 2)]
        values = [pair[0] | pair[1] if len(pair) == 2 else pair[0] for pair in pairs]
    return values[0]
