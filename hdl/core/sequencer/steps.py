"""What decides which step comes next, as the sequencer sees it."""

from amaranth.hdl import Signal
from amaranth.lib.wiring import In, Member, Out

from rtlstm.hdl.component import Component, Struct
from rtlstm.hdl.core.layouts import row_bits
from rtlstm.hdl.core.program_store import OpFields, program_store
from rtlstm.hdl.core.sequencer.signatures import (
    AFTER,
    READY,
    Fetched,
    FetchedPort,
    Walk,
    WalkPort,
    vector_bits,
)
from rtlstm.spec.manifest import Manifest


class Steps(Component):
    """Decides which step comes next, when it begins and with which operation; knows its stream and vectors.

    Parameters
    ----------
    manifest
        The build.
    fields
        The fields of its operations.
    outside
        Members beside those below, which the sequencer has, too.

    Members
    -------
    fetched, walk : In
        The operation that is loaded, the next one, and how far it is.
    window_wanted : In(1)
        The memory window waits to be open: from the next cycle on no step begins.
    reset_stream, state_written : In(1), command_stream : In
        A stream starts from zero, or from what was written.
    weights_written : In(1)
        The partial sums of all streams are invalid.
    after_op, after_next : Out
        What comes after the operation that is loaded, and after the next one.
    redirect : Out(1), target : Out
        The step that is there begins with another operation than the one that is loaded.
    input_ready : Out
        The word that may be issued in the next cycle is in the input, and its step may begin.
    vector_start : Out
        First word of the vector of the next operation: in the input, or in the vector memory.
    restarts : Out(1)
        It is that of the loaded operation, which waits, and may be another than when that was loaded.
    stream : Out
        The stream of the step under way.
    zero_state, copy, suppress : Out(1)
        Its state is zero; results go to the second copy of the first layer's h; its output is not wanted.
    blank : Out(1)
        The operation reads zeros.
    flags : Out(3)
        State of ``command_stream``.
    step : In
        What is loaded of a step.
    """

    fetched: FetchedPort
    walk: WalkPort
    window_wanted: Signal
    reset_stream: Signal
    state_written: Signal
    weights_written: Signal
    command_stream: Signal
    after_op: Struct
    after_next: Struct
    redirect: Signal
    target: Signal
    input_ready: Struct
    vector_start: Signal
    restarts: Signal
    stream: Signal
    zero_state: Signal
    copy: Signal
    suppress: Signal
    blank: Signal
    flags: Signal
    step: Struct

    def __init__(self, manifest: Manifest, fields: OpFields, outside: dict[str, Member]) -> None:
        self.fields = fields
        self.outside = outside
        index, streams = row_bits(manifest.capacity.operations), manifest.parameters.stream_bits
        super().__init__(
            {"step": In(program_store(manifest).step_layout)}
            | outside
            | {
                "fetched": In(Fetched(manifest, fields)),
                "walk": In(Walk(manifest, fields)),
                "window_wanted": In(1),
                "reset_stream": In(1),
                "state_written": In(1),
                "weights_written": In(1),
                "command_stream": In(streams),
                "after_op": Out(AFTER),
                "after_next": Out(AFTER),
                "redirect": Out(1),
                "target": Out(index),
                "input_ready": Out(READY),
                "vector_start": Out(vector_bits(manifest)),
                "restarts": Out(1),
                "stream": Out(streams),
                "zero_state": Out(1),
                "copy": Out(1),
                "suppress": Out(1),
                "blank": Out(1),
                "flags": Out(3),
            }
        )
