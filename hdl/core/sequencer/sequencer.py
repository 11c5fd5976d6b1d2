"""The sequencer: executes the program, one word of the array per cycle.

The program is a list of operations, each a matrix-vector product: ``groups`` row groups of ``columns`` words.
The sequencer walks the words of an operation, then loads the next; no cycle is lost between two operations.

=======  ==========================================================================================
cycle    what happens
=======  ==========================================================================================
k - 1    ``Admission`` decides whether a word may be issued in cycle k. What it depends on (results in
         memory, words of the input, room for the output, the drain) is announced one cycle ahead.
k        The word is issued: ``token`` is valid, beside ``weight_row`` and ``vector_row``.
k        If it is the operation's last word, ``Fetch`` loads the fields of the next operation ...
k + 1    ... and its first word may be issued.
=======  ==========================================================================================

A redirect takes 2 cycles (``REDIRECT_CYCLES`` in :mod:`rtlstm.spec.program.schedule`). In cycle k a
complete input waits whose stream has invalid partial sums; in k + 1 the program's first operation is the
next one and is loaded; in k + 2 its first word may be issued.
"""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from rtlstm.hdl.component import Struct, connect_some
from rtlstm.hdl.core.layouts import row_bits, token_layout
from rtlstm.hdl.core.program_store import ProgramPart, program_ports, program_store
from rtlstm.hdl.core.sequencer.activity import Activity
from rtlstm.hdl.core.sequencer.admission import Admission
from rtlstm.hdl.core.sequencer.fetch import Fetch
from rtlstm.hdl.core.sequencer.results import Results
from rtlstm.hdl.core.sequencer.signatures import FetchedPort, WalkPort, vector_bits
from rtlstm.hdl.core.sequencer.steps import Steps
from rtlstm.hdl.core.sequencer.walker import Walker
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.registers import Region

# Members of the sequencer that are those of one of its parts.
_COMMANDS = ("reset_stream", "state_written", "weights_written", "command_stream", "flags")
_OF_STEPS = ("window_wanted", "blank")
_OF_PROGRAM = ("step", "stopped", "program_window", "program_write", "program_data", "program_word")


class Sequencer(ProgramPart):
    """Issues the program's operations in order.

    Whether a word may be issued is decided one cycle ahead, so that little stands between two
    registers; what it depends on is announced a cycle ahead, too.

    Parameters
    ----------
    manifest
        The build.
    steps
        What decides which step comes next; the sequencer has its members ``outside``, too.

    Members
    -------
    token : Out
        The word being issued, beside its addresses.
    weight_row, vector_row : Out
        Addresses of the word: of its weights, and of what they multiply.
    from_input, relu, blank : Out(1)
        Of the word: read the input buffer; apply ReLU; read zeros.
    input_taken : Out(1)
        The operation that reads the input has been issued.
    room : In(1), emits : Out(1)
        The output has room for a whole step; an operation that will need it begins.
    abandons : Out(1)
        What was issued of an operation will be issued again: it waited in the middle of a row.
    result_last, result_word : In(1)
        An operation's last result, or one that completes a word of the vector memory, will be there two
        cycles more than ``parameters.ahead()`` later; of operations whose results are stored.
    window_wanted, window : In(1), window_row : In
        The memory window waits for the core to be idle: from the next cycle on no step begins. It is
        open: addresses follow its row.
    reset_stream, state_written : In(1)
        The stream ``command_stream`` starts from zero, or from what was written.
    weights_written : In(1)
        The partial sums of all streams are invalid from now on.
    idle : Out(1)
        Nothing is issued or under way, and no partial sum is to be stored any more.
    flags : Out(3)
        State of ``command_stream``: it is zero; its partial sums are invalid; the first layer's h is in the
        second half of its ping-pong buffer.
    step : In, stopped : In(1), program_window : In(1), program_write, program_data, program_word
        What is loaded of a step; no operation is to be loaded; the window looks at the program; and the ports
        of :func:`rtlstm.hdl.core.program_store.program_ports`.
    releases : Out(1)
        The room for the output that the last ``emits`` reserved is free again, since the operation that began
        will not end: another program is loaded.
    """

    step: Struct
    stopped: Signal
    program_window: Signal
    releases: Signal
    token: Struct
    weight_row: Signal
    vector_row: Signal
    from_input: Signal
    relu: Signal
    blank: Signal
    input_taken: Signal
    room: Signal
    emits: Signal
    abandons: Signal
    result_last: Signal
    result_word: Signal
    window: Signal
    window_wanted: Signal
    window_row: Signal
    reset_stream: Signal
    state_written: Signal
    weights_written: Signal
    command_stream: Signal
    idle: Signal
    flags: Signal

    def __init__(self, manifest: Manifest, steps: Steps) -> None:
        self._manifest, self._program = manifest, program_store(manifest)
        self._steps = steps
        super().__init__(
            {
                "step": In(self._program.step_layout),
                "stopped": In(1),
                "program_window": In(1),
                **program_ports(steps.fields),
                "releases": Out(1),
            }
            | steps.outside
            | {
                "token": Out(token_layout(manifest)),
                "weight_row": Out(row_bits(manifest.regions[Region.WEIGHTS].rows)),
                "vector_row": Out(vector_bits(manifest)),
                "from_input": Out(1),
                "relu": Out(1),
                "blank": Out(1),
                "input_taken": Out(1),
                "room": In(1),
                "emits": Out(1),
                "abandons": Out(1),
                "result_last": In(1),
                "result_word": In(1),
                "window": In(1),
                "window_wanted": In(1),
                "window_row": In(32),
                "reset_stream": In(1),
                "state_written": In(1),
                "weights_written": In(1),
                "command_stream": In(manifest.parameters.stream_bits),
                "idle": Out(1),
                "flags": Out(3),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        manifest, fields, outside = self._manifest, self._steps.fields, wiring.flipped(self)
        m.submodules.steps = steps = self._steps
        m.submodules.fetch = fetch = Fetch(manifest, fields)
        m.submodules.walker = walker = Walker(manifest, fields)
        m.submodules.results = results = Results(manifest, fields)
        m.submodules.admission = admission = Admission(manifest, fields)
        m.submodules.activity = activity = Activity(manifest, fields)
        followers = (steps, results, admission, activity)
        wiring.connect(m, fetch.fetched, walker.fetched, *(part.fetched for part in followers))
        wiring.connect(m, walker.walk, fetch.walk, *(part.walk for part in followers))

        # Steps choose what is fetched, and where its vectors begin.
        connect_some(m, steps, fetch, ("after_op", "after_next", "redirect", "target"))
        connect_some(m, steps, walker, ("vector_start", "restarts"))
        # A word is issued when what it reads is there, and its results have room.
        connect_some(m, results, admission, ("results_ready",))
        connect_some(m, steps, admission, ("input_ready", "suppress"))
        connect_some(m, admission, walker, ("issued",))
        connect_some(m, steps, activity, ("redirect",))

        connect_some(m, outside, steps, (*steps.outside, *_COMMANDS, *_OF_STEPS))
        connect_some(m, outside, fetch, ("window", "window_row"))
        connect_some(m, outside, walker, ("window", "window_row", "weight_row", "vector_row"))
        connect_some(m, outside, results, ("result_last", "result_word"))
        connect_some(m, outside, admission, ("room", "emits"))
        connect_some(m, outside, activity, ("idle",))
        self._program.connect(m, outside, fetch, _OF_PROGRAM)
        self._program.connect(m, outside, steps, ("step",))
        self._program.connect(m, outside, admission, ("releases",))
        self._describe_word(m, fetch.fetched, walker.walk)
        return m

    def _describe_word(self, m: Module, fetched: FetchedPort, walk: WalkPort) -> None:
        """Tell what goes with the word that is issued."""
        steps, op = self._steps, fetched.op
        m.d.comb += [
            self.token.valid.eq(walk.issued),
            self.token.last.eq(walk.last_column),
            self.token.group_first.eq(walk.first_group),
            self.token.group_last.eq(walk.last_group),
            self.token.op.eq(fetched.index),
            self.token.stream.eq(steps.stream),
            self.token.zero_state.eq(steps.zero_state),
            self.token.copy.eq(steps.copy),
            self.token.suppress.eq(steps.suppress),
            self.from_input.eq(op.from_input),
            self.relu.eq(op.relu),
            self.input_taken.eq(walk.ends & op.from_input),
            self.abandons.eq(self.window | (steps.redirect & walk.underway)),
        ]
