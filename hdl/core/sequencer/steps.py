"""What decides which step comes next, as the sequencer sees it."""

from typing import ClassVar

from amaranth.hdl import Const, Module, Mux, Signal, Value
from amaranth.lib.data import StructLayout

from rtlstm.hdl.component import Component, In, Interface, Out, Ports, Struct
from rtlstm.hdl.core.layouts import if_several, row_bits, stream_bits, vector_bits
from rtlstm.hdl.core.program_store import OpFields, program_store
from rtlstm.hdl.primitives.pipeline import lookup
from rtlstm.spec.manifest import Manifest


def network_bits(fields: OpFields) -> int | None:
    """Width of a network's number, where a core holds several."""
    return fields.manifest.parameters.network_bits or None


def several_bit(fields: OpFields) -> int | None:
    """As :func:`~rtlstm.hdl.core.layouts.if_several`, of a part that knows the program's fields."""
    return if_several(fields.manifest)


READY = StructLayout({"loaded": 1, "goes_on": 1, "waits": 1})
"""Whether a word of the vector may be read in the next cycle, for three of the four cases of this cycle; see
:class:`rtlstm.hdl.core.sequencer.admission.Admission`."""


def wave_bit(fields: OpFields) -> int | None:
    """Width of a port that only a core with a wave-front has."""
    return 1 if fields.wave else None


def section_bit(fields: OpFields) -> int | None:
    """Width of a port that there is only where lanes keep sums."""
    return 1 if fields.sections else None


def after_layout(fields: OpFields) -> StructLayout:
    """What comes after an operation: it ends its step; the next step, if it does, begins with the prefetch.

    With a wave-front: the wave does, in the middle of a step.
    """
    return StructLayout({"ends_step": 1, "prefetches": 1} | ({"enters": 1} if fields.wave else {}))


class Fetched(Interface):
    """The operation that is loaded, and the next one."""

    index: Signal = Out(lambda fields: row_bits(fields.manifest.capacity.operations))
    """Its number in the program."""
    op: Struct = Out(lambda fields: fields.of_op)
    next_op: Struct = Out(lambda fields: StructLayout(fields.widths))
    """Fields of the operation that is loaded, and of the one that comes next."""
    halted: Signal = Out(1)
    """No operation is loaded: there is no program, or its memory shows another row."""
    loading: Signal = Out(1)
    """The next operation is to be loaded without one ending: after a reset, a redirect or the window."""
    load: Signal = Out(1)
    """It is loaded with this cycle."""


class Walk(Interface):
    """How far the words of the operation that is loaded have been issued; all from registers."""

    issued: Signal = Out(1)
    """A word is issued in this cycle."""
    begins: Signal = Out(1)
    """It is the operation's first, or the next one will be."""
    first_group: Signal = Out(1)
    last_group: Signal = Out(1)
    """It belongs to that group of rows."""
    last_column: Signal = Out(1)
    last_follows: Signal = Out(1)
    """It ends its group; the one after it does, which is of the same group unless words are skipped."""
    ends: Signal = Out(1)
    """It is issued, and the operation's last."""
    drains: Signal = Out(1)
    """In the next cycle the drain is still busy with a group before."""
    idles: Signal = Out(1)
    idles_on: Signal = Out(1)
    """The array must not work in this cycle, and in the next."""
    word: Signal = Out(lambda fields: range(program_store(fields.manifest).most_words + 1))
    next_word: Signal = Out(lambda fields: range(program_store(fields.manifest).most_words + 2))
    """Its number in the vector, and that of the one after it; in the first group only, unless words are
    skipped."""

    first_column: Signal = Out(section_bit)
    """It is the first of its group, or of what a section has of that."""
    keeps: Signal = Out(section_bit)
    continues: Signal = Out(section_bit)
    """There are later sections, and earlier ones."""
    section_ends: Signal = Out(section_bit)
    """It is the last of its section, and not of the last one: the next section's first word follows, whose
    number in the vector is ``word``."""
    ends_in_last: Signal = Out(section_bit)
    """The next section is the last one."""
    single_next: Signal = Out(section_bit)
    """If it ends a group, the next one has one word."""
    group: Signal = Out(
        lambda fields: row_bits(fields.manifest.parameters.lane_sums) if fields.sections else None
    )
    """Groups of its section that follow its own: the number of its sum."""

    @property
    def _skips(self) -> bool:
        """Whether groups skip words."""
        fields: OpFields = self.signature.given
        return fields.skip

    @property
    def underway(self) -> Value:
        """Whether words of the operation have been issued, where it has not come to its second group."""
        # A word's number is 0 for the first one only, unless that is skipped.
        started: Value = ~self.begins if self._skips else self.word != 0
        return started

    def single_follows(self, op: Struct) -> Value:
        """Whether the group after this one, of the same operation ``op``, has one word."""
        fields: OpFields = self.signature.given
        if fields.sections:
            return self.single_next
        single: Value = self.last_follows if self._skips else op.single
        return single


def exceeds(a: Value, b: Value) -> Value:
    """Whether ``a > b``, bit by bit from the top: ``above``, a larger bit was seen; ``equal``, none differed.

    Without a carry chain, whose delay synthesis does not see when it balances logic.
    """
    width = max(len(a), len(b))
    above: Value = Const(0, 1)
    equal: Value = Const(1, 1)
    for bit in reversed(range(width)):
        one = a[bit] if bit < len(a) else Const(0, 1)
        other = b[bit] if bit < len(b) else Const(0, 1)
        above, equal = above | (equal & one & ~other), equal & ~(one ^ other)
    return above


class Steps(Component):
    """Decides which step comes next, when it begins and with which operation; knows stream and vectors."""

    step: Struct = In(lambda fields: program_store(fields.manifest).step_layout)
    """What is loaded of a step."""
    fetched: Fetched = In(Fetched)
    walk: Walk = In(Walk)
    """The operation that is loaded, the next one, and how far it is."""
    window_wanted: Signal = In(1)
    """The memory window waits to be open: from the next cycle on no step begins."""
    reset_stream: Signal = In(1)
    state_written: Signal = In(1)
    """The stream ``command_stream`` starts from zero, or from what was written."""
    weights_written: Signal = In(1)
    """The partial sums of all streams are invalid."""
    command_stream: Signal = In(lambda fields: stream_bits(fields.manifest))
    after_op: Struct = Out(after_layout)
    after_next: Struct = Out(after_layout)
    """What comes after the operation that is loaded, and after the next one."""
    redirect: Signal = Out(1)
    target: Signal = Out(lambda fields: row_bits(fields.manifest.capacity.operations))
    """The step that is there begins with another operation than the one that is loaded."""
    input_ready: Struct = Out(READY)
    """The word that may be issued in the next cycle is in the input, and its step may begin."""
    vector_start: Signal = Out(lambda fields: vector_bits(fields.manifest))
    """First word of the vector of the next operation: in the input, or in the vector memory."""
    restarts: Signal = Out(1)
    """It is that of the loaded operation, which waits, and may be another than when that was loaded."""
    stream: Signal = Out(lambda fields: stream_bits(fields.manifest))
    """The stream of the step under way."""
    network: Signal = Out(network_bits)
    """The network whose operations are loaded."""
    handed_over: Signal = In(several_bit)
    """Where there are several: the state of ``command_stream`` is from now on that of the one it names."""
    settled: Signal = In(several_bit)
    drained: Signal = In(several_bit)
    """All results that are stored are written; nothing is issued or under way. Where there are several
    networks, as ``network``."""
    zero_state: Signal = Out(1)
    copy: Signal = Out(1)
    suppress: Signal = Out(1)
    """Its state is zero; results go to the second copy of the first layer's h; its output is not wanted."""
    blank: Signal = Out(1)
    """The operation reads zeros."""
    bubble: Signal = Out(wave_bit)
    silent: Signal = Out(wave_bit)
    """With a wave-front: the operation's layer has no step; the wave's output is not wanted."""
    flags: Signal = Out(3)
    """State of ``command_stream``."""

    outside: ClassVar[type[Ports]]
    """Ports beside these, which the sequencer has, too."""

    def __init__(self, fields: OpFields) -> None:
        self.fields = fields
        super().__init__(fields)

    @property
    def reads_input(self) -> Value:
        """Whether the operation that is loaded reads the step's input."""
        reads: Value = self.fetched.op.from_input
        return reads & ~self.bubble if self.fields.wave else reads


class CurrentStream(Component):
    """Takes the next step's stream as long as an operation waits for that step."""

    listens: Signal = In(1)
    """An operation waits for the next step, or is loaded and will."""
    input_stream: Signal = In(stream_bits)
    """The stream of the next step."""
    stream: Signal = Out(stream_bits)
    """That of the step under way."""
    context: Signal = Out(vector_bits)
    next_context: Signal = Out(vector_bits)
    """First word of the stream's vectors in the vector memory, in this cycle and in the next."""

    def __init__(self, manifest: Manifest) -> None:
        size = manifest.program.vector_context
        self._contexts = [index * size for index in range(manifest.parameters.streams)]
        self._bits = manifest.parameters.stream_bits
        super().__init__(manifest)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        stream = Mux(self.listens, self.input_stream, self.stream)
        context = Signal.like(self.context, reset_less=True)
        m.d.sync += [self.stream.eq(stream), context.eq(self.next_context)]
        m.d.comb += [
            self.next_context.eq(lookup(m, stream[: self._bits], self._contexts, "context")),
            self.context.eq(context),
        ]
        return m
