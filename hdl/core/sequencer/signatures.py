"""What the sequencer's parts tell each other."""

from amaranth.hdl import Signal, Value
from amaranth.lib import wiring
from amaranth.lib.data import StructLayout
from amaranth.lib.wiring import Out

from rtlstm.hdl.component import Interface, Struct
from rtlstm.hdl.core.layouts import row_bits
from rtlstm.hdl.core.program_store import OpFields, program_store
from rtlstm.spec.manifest import Manifest

READY = StructLayout({"loaded": 1, "goes_on": 1, "waits": 1})
"""Whether a word of the vector may be read in the next cycle, for three of the four cases of this cycle; see
:class:`rtlstm.hdl.core.sequencer.admission.Admission`."""

AFTER = StructLayout({"ends_step": 1, "prefetches": 1})
"""What comes after an operation: it ends its step; the next step, if it does, begins with the prefetch."""


def vector_bits(manifest: Manifest) -> int:
    """Width of the address of a word that the array multiplies, in the vector memory or the input's."""
    program = manifest.program
    words = manifest.parameters.streams * program.vector_context
    inputs = 2 * program.input_words if manifest.sequence is None else manifest.sequence.rows
    return row_bits(max(words, inputs))


class FetchedPort(Interface):
    """A port with the members of :class:`Fetched`."""

    index: Signal
    op: Struct
    next_op: Struct
    halted: Signal
    loading: Signal
    load: Signal


class Fetched(wiring.Signature):
    """The operation that is loaded, and the next one.

    Members
    -------
    index : Out
        Its number in the program.
    op, next_op : Out
        Fields of the operation that is loaded, and of the one that comes next.
    halted : Out(1)
        No operation is loaded: there is no program, or its memory shows another row.
    loading : Out(1)
        The next operation is to be loaded without one ending: after a reset, a redirect or the window.
    load : Out(1)
        It is loaded with this cycle.
    """

    def __init__(self, manifest: Manifest, fields: OpFields) -> None:
        super().__init__(
            {
                "index": Out(row_bits(manifest.capacity.operations)),
                "op": Out(fields.of_op),
                "next_op": Out(fields.of_next),
                "halted": Out(1),
                "loading": Out(1),
                "load": Out(1),
            }
        )

    def create(self, *, path: tuple[str | int, ...] = (), src_loc_at: int = 0) -> FetchedPort:
        """Make a port."""
        return FetchedPort(self, path=path, src_loc_at=src_loc_at + 1)


class WalkPort(Interface):
    """A port with the members of :class:`Walk`."""

    signature: "Walk"
    issued: Signal
    begins: Signal
    first_group: Signal
    last_group: Signal
    last_column: Signal
    last_follows: Signal
    ends: Signal
    word: Signal
    next_word: Signal
    drains: Signal
    idles: Signal
    idles_on: Signal

    @property
    def underway(self) -> Value:
        """Whether words of the operation have been issued, where it has not come to its second group."""
        # A word's number is 0 for the first one only, unless that is skipped.
        started: Value = ~self.begins if self.signature.skips else self.word != 0
        return started

    def single_follows(self, op: Struct) -> Value:
        """Whether the group after this one, of the same operation ``op``, has one word."""
        single: Value = self.last_follows if self.signature.skips else op.single
        return single


class Walk(wiring.Signature):
    """How far the words of the operation that is loaded have been issued; all from registers.

    Members
    -------
    issued : Out(1)
        A word is issued in this cycle.
    begins : Out(1)
        It is the operation's first, or the next one will be.
    first_group, last_group : Out(1)
        It belongs to that group of rows.
    last_column, last_follows : Out(1)
        It ends its group; the one after it does, which is of the same group unless words are skipped.
    ends : Out(1)
        It is issued, and the operation's last.
    word, next_word : Out
        Its number in the vector, and that of the one after it; in the first group only, unless words are
        skipped.
    drains : Out(1)
        In the next cycle the drain is still busy with a group before.
    idles, idles_on : Out(1)
        The array must not work in this cycle, and in the next.
    """

    def __init__(self, manifest: Manifest, fields: OpFields) -> None:
        most, self.skips = program_store(manifest).most_words, fields.skip
        """Whether groups skip words."""
        flags = (
            "issued",
            "begins",
            "first_group",
            "last_group",
            "last_column",
            "last_follows",
            "ends",
            "drains",
            "idles",
            "idles_on",
        )
        counts = {"word": Out(range(most + 1)), "next_word": Out(range(most + 2))}
        super().__init__({name: Out(1) for name in flags} | counts)

    def create(self, *, path: tuple[str | int, ...] = (), src_loc_at: int = 0) -> WalkPort:
        """Make a port."""
        return WalkPort(self, path=path, src_loc_at=src_loc_at + 1)
