"""The sequencer of whole sequences: which part's step comes next is told, not waited for at a port."""

from collections.abc import Mapping

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib.wiring import In, Member, Out

from rtlstm.hdl.core.layouts import row_bits
from rtlstm.hdl.core.sequencer import Case, Sequencer
from rtlstm.hdl.primitives.pipeline import lookup
from rtlstm.spec.manifest import Manifest

__all__ = ["PartSequencer"]


class PartSequencer(Sequencer):
    """Executes the programs of several parts.

    Its exact model is :mod:`rtlstm.spec.program.sequence_schedule`.

    A part's first operation waits until its step may begin. If the next step is of another part than the
    loaded operation's, that part's first operation is loaded instead. Nothing is computed in advance, and
    there is no prefetch: a step computes its recurrent products itself, while the results of the step
    before, which is another part's, are outstanding. So no partial sums are ever invalid, and h has one
    copy.

    Members
    -------
    step_part, step_base : In, step_there : In(1)
        The next step's part, whatever it waits for, and the first word of its input; it may begin.
        Its stream is ``input_stream``.
    begun : Out(1)
        Its first word is being issued; from the next cycle on these speak of the step after it.
    """

    step_part: Signal
    step_base: Signal
    step_there: Signal
    begun: Signal

    def __init__(self, manifest: Manifest) -> None:
        assert manifest.sequence is not None
        self._plan = manifest.sequence
        super().__init__(manifest)

    def _members(self, manifest: Manifest) -> dict[str, Member]:
        return super()._members(manifest) | {
            "step_part": In(row_bits(len(self._plan.parts))),
            "step_base": In(row_bits(self._plan.rows)),
            "step_there": In(1),
            "begun": Out(1),
        }

    def _registers(self, m: Module) -> None:
        super()._registers(m)
        self._base = Signal.like(self._vector_base, name="base")

    def _field_values(self) -> dict[str, list[int]]:
        ops, parts = self._manifest.program.ops, self._plan.parts
        part_of = [
            next(number for number, part in enumerate(parts) if part.first <= index <= part.last)
            for index in range(len(ops))
        ]
        first = [parts[part].first == index for index, part in enumerate(part_of)]
        last = [parts[part].last == index for index, part in enumerate(part_of)]
        return super()._field_values() | {
            "part": part_of,
            "recurrent": [int(op.kind == "recurrent") for op in ops],
            "waits_for_input": [int(begins) for begins in first],
            "prepares": [0] * len(ops),
            "ends": [int(ends) for ends in last],
            "ends_suppressed": [int(ends) for ends in last],
            "follows": [
                parts[self._plan.follows(part)].first if ends else index + 1
                for index, (part, ends) in enumerate(zip(part_of, last, strict=True))
            ],
        }

    @property
    def _states(self) -> int:
        """One per stream and part."""
        return self._manifest.parameters.streams << len(self.step_part)

    def _of(self, bits: Signal, stream: Value | None = None) -> Value:
        """A bit of the current part in a stream, the current one if none is named."""
        part = self._fields["part"]
        bit_index = Cat(
            part, Const(0, len(self.step_part) - len(part)), self._stream if stream is None else stream
        )
        return bits.bit_select(bit_index, 1)

    def _conditions(self, m: Module) -> None:
        super()._conditions(m)
        m.d.comb += self.begun.eq(self._valid & self._begin & self._fields["waits_for_input"])

    def _listens(self) -> Value:
        return self._begin & ~self._valid & self._fields["waits_for_input"] & ~self._loading

    def _begins_elsewhere(self) -> Value:
        return self._listening & (self.step_part != self._fields["part"])

    def _redirect_target(self, m: Module) -> Value:
        return lookup(m, self.step_part, [part.first for part in self._plan.parts], "first_of_part")

    def _input_row(self) -> Value:
        return Mux(self._table["waits_for_input"], self.step_base, self._base)

    def _successor(self, op: Mapping[str, Value]) -> Value:
        return op["follows"]

    def _input_ready(self, case: Case) -> Value:
        op = self._table if case == "loaded" else self._fields
        # What has begun finds all of its input; a step that begins is not the next one any more.
        begun = Const(0) if case == "loaded" else ~self._begin if case == "waits" else Const(1)
        may_begin = self.step_there & ~self.begun & (self.step_part == op["part"]) & ~self.window_wanted
        return ~op["waits_for_input"] | begun | may_begin

    def _streams(self, m: Module) -> None:
        """Keep, per stream and part, whether its state is zero."""
        program = self._manifest.program
        listens = self._listening | (self._load & self._table["waits_for_input"])
        stream = Mux(listens, self.input_stream, self._stream)
        sizes = [i * program.vector_context for i in range(self._manifest.parameters.streams)]
        context = lookup(m, stream, sizes, "context")
        m.d.sync += [self._stream.eq(stream), self._context.eq(context)]
        m.d.comb += self._blank.eq(self._fields["recurrent"] & self._of(self._zero_state))
        with m.If(listens):
            m.d.sync += self._base.eq(self.step_base)
        with m.If(self._listening):
            m.d.sync += self._vector_base.eq(Mux(self._fields["from_input"], self.step_base, context))
        with m.If(self._ends_step):
            m.d.sync += self._of(self._zero_state).eq(0)
        mine = self._zero_state.word_select(self.command_stream, 1 << len(self.step_part))
        with m.If(self.reset_stream | self.state_written):
            m.d.sync += mine.eq(self.reset_stream.replicate(len(mine)))
        m.d.comb += self.flags.eq(mine[0])
