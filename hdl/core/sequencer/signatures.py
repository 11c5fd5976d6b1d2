"""What the sequencer's parts tell each other."""

from amaranth.hdl import Const, Signal, Value
from amaranth.lib.data import StructLayout

from rtlstm.hdl.component import Interface, Out, Struct
from rtlstm.hdl.core.layouts import row_bits
from rtlstm.hdl.core.program_store import OpFields, program_store

READY = StructLayout({"loaded": 1, "goes_on": 1, "waits": 1})
"""Whether a word of the vector may be read in the next cycle, for three of the four cases of this cycle; see
:class:`rtlstm.hdl.core.sequencer.admission.Admission`."""

AFTER = StructLayout({"ends_step": 1, "prefetches": 1})
"""What comes after an operation: it ends its step; the next step, if it does, begins with the prefetch."""


class Fetched(Interface):
    """The operation that is loaded, and the next one."""

    index: Signal = Out(lambda fields: row_bits(fields.manifest.capacity.operations))
    """Its number in the program."""
    op: Struct = Out(lambda fields: fields.of_op)
    next_op: Struct = Out(lambda fields: fields.of_next)
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
