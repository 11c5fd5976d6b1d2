"""Stream flags: where each stream's state stands."""

from amaranth.hdl import Cat, Module, Signal, Value
from amaranth.lib.wiring import In, Out

from rtlstm.hdl.component import Component


class StreamFlags(Component):
    """Keeps three bits per stream: its state is zero; its partial sums are invalid; h is in the other half.

    ====================  ==========  =============  ====
    after                 zero state  sums invalid   copy
    ====================  ==========  =============  ====
    reset                 1           1              0
    ``prepared``                      0
    ``flips``                                        ~copy
    ``step_ends``         0
    ``reset_stream``      1           1              0
    ``state_written``     0           1              0
    ``weights_written``               1, all streams
    ====================  ==========  =============  ====

    Members
    -------
    prepares : In(1)
        The program has recurrent operations that store partial sums; without them none are ever invalid.
    stream, input_stream : In
        The stream of the step under way, and that of the next input.
    prepared : In(1)
        Its recurrent operations, which store its partial sums, are issued.
    flips : In(1)
        The first layer's h is from now on in the other half of its ping-pong buffer.
    step_ends : In(1)
        Its last operation is issued.
    reset_stream, state_written : In(1), command_stream : In
        A stream starts from zero, or from what was written.
    weights_written : In(1)
        The partial sums of all streams are invalid.
    zero_state, copy : Out(1)
        Of ``stream``: its state is zero; which half holds the first layer's h.
    input_zero_state, input_invalid : Out(1)
        Of ``input_stream``: its state is zero; its partial sums are invalid.
    flags : Out(3)
        The three bits of ``command_stream``.
    """

    prepares: Signal
    stream: Signal
    input_stream: Signal
    prepared: Signal
    flips: Signal
    step_ends: Signal
    reset_stream: Signal
    state_written: Signal
    weights_written: Signal
    command_stream: Signal
    zero_state: Signal
    copy: Signal
    input_zero_state: Signal
    input_invalid: Signal
    flags: Signal

    def __init__(self, streams: int, stream_bits: int) -> None:
        self._streams = streams
        events = ("prepared", "flips", "step_ends", "reset_stream", "state_written", "weights_written")
        bits = ("zero_state", "copy", "input_zero_state", "input_invalid")
        super().__init__(
            {name: In(stream_bits) for name in ("stream", "input_stream", "command_stream")}
            | {name: In(1) for name in ("prepares", *events)}
            | {name: Out(1) for name in bits}
            | {"flags": Out(3)}
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        zero_state = Signal(self._streams, init=-1)
        invalid = Signal(self._streams, init=-1)
        copy = Signal(self._streams)
        with m.If(self.prepared):
            m.d.sync += self._of(invalid, self.stream).eq(0)
        with m.If(self.flips):
            m.d.sync += self._of(copy, self.stream).eq(~self.copy)
        with m.If(self.step_ends):
            m.d.sync += self._of(zero_state, self.stream).eq(0)
        # A host may name a stream that is not there: then nothing changes.
        commanded = [bits.bit_select(self.command_stream, 1) for bits in (zero_state, invalid, copy)]
        with m.If(self.reset_stream | self.state_written):
            m.d.sync += [
                bit.eq(value) for bit, value in zip(commanded, (self.reset_stream, 1, 0), strict=True)
            ]
        with m.If(self.weights_written):
            m.d.sync += invalid.eq(-1)
        m.d.comb += [
            self.zero_state.eq(self._of(zero_state, self.stream)),
            self.copy.eq(self._of(copy, self.stream)),
            self.input_zero_state.eq(self._of(zero_state, self.input_stream)),
            self.input_invalid.eq(self._of(invalid, self.input_stream) & self.prepares),
            self.flags.eq(Cat(commanded[0], commanded[1] & self.prepares, commanded[2])),
        ]
        return m

    def _of(self, bits: Signal, stream: Signal) -> Value:
        """A stream's bit."""
        return bits.bit_select(stream, 1) if self._streams > 1 else bits[0]
