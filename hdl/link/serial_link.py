"""The device's side of the link, complete."""

from fractions import Fraction

from amaranth.hdl import Cat, Const, Module, Signal, Value
from amaranth.lib import stream, wiring

from rtlstm.hdl.component import Component, In, Out, Ports, connect_some
from rtlstm.hdl.core.core import Core, CoreSide
from rtlstm.hdl.core.ends import StepEnds
from rtlstm.hdl.core.program_store import CorePart
from rtlstm.hdl.link.executor import Executor
from rtlstm.hdl.link.framing import FrameReceiver, FrameSender
from rtlstm.hdl.link.memories import RequestMemory, ResponseMemory
from rtlstm.hdl.link.responder import LinkSession, Responder
from rtlstm.hdl.link.uart import Uart, check_divisor
from rtlstm.spec.inventory import link_limits
from rtlstm.spec.link import LINK_VERSION, Limits
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.registers import IDENTITY


class LinkDevice(CoreSide, CorePart):
    """The device's side of the protocol in ``docs/link.md``, on streams of bytes.

    For ``crc_bits``, see :class:`~rtlstm.hdl.link.framing.Crc32c`. For ``gapless``, see
    :class:`~rtlstm.hdl.link.framing.CobsEncoder`. Raises ConfigurationError if a step is too large for the
    protocol.
    """

    i: stream.Interface = In(stream.Signature(8))
    o: stream.Interface = Out(stream.Signature(8))
    """Received and sent bytes. ``i`` is not accepted for at most five cycles at a frame's end."""
    errors: Signal = Out(32)
    """Frames dropped."""
    active: Signal = Out(1)
    """A host has opened a session."""

    def __init__(self, manifest: Manifest, crc_bits: int = 1, gapless: bool = False) -> None:
        self._limits = link_limits(manifest)
        self._crc_bits, self._gapless = crc_bits, gapless
        super().__init__(manifest)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        limits = self._limits
        m.submodules.frames = frames = FrameReceiver(self._crc_bits)
        m.submodules.session = session = LinkSession()
        m.submodules.requests = requests = RequestMemory(limits)
        m.submodules.executor = executor = Executor(self._manifest)
        m.submodules.responses = responses = ResponseMemory(limits)
        m.submodules.responder = responder = Responder(limits.response_bytes)
        m.submodules.sender = sender = FrameSender(self._crc_bits, self._gapless)

        wiring.connect(m, wiring.flipped(self.i), frames.i)
        wiring.connect(m, frames.o, session.i)
        kept = ("write", "data", "forget", "commit", "kind", "publish", "fits", "long")
        connect_some(m, session, requests, kept)
        self._execute(m, session, requests, executor, responses)
        read = ("made", "word", "end", "error", "oldest", "oldest_address", "address", "number")
        connect_some(m, responses, responder, read)
        news = ("session", "expected", "ack", "acked", "answer", "answers", "again", "ending", "answered")
        connect_some(m, session, responder, news)
        wiring.connect(m, responder.o, sender.i)
        wiring.connect(m, sender.o, wiring.flipped(self.o))
        connect_some(m, wiring.flipped(self), executor, CoreSide.declared_members(self._manifest))
        ended = session.ending & executor.idle & responder.idle
        m.d.comb += [
            executor.ending.eq(session.ending),
            responses.discard.eq(session.ending),
            session.ended.eq(ended),
            *(part.clear.eq(ended) for part in (requests, responses, responder)),
            responder.report.eq(self._report(limits, session, executor)),
            self.errors.eq(session.dropped),
            self.active.eq(session.session != 0),
        ]
        return m

    def _execute(
        self,
        m: Module,
        session: LinkSession,
        requests: RequestMemory,
        executor: Executor,
        responses: ResponseMemory,
    ) -> None:
        """Have the requests of the session executed."""
        wiring.connect(m, requests.o, executor.i)
        connect_some(m, requests, executor, ("there", "request", "close"))
        wiring.connect(m, executor.o, responses.i)
        connect_some(m, executor, responses, ("restart", "finish", "failed", "full", "room"))

    def _report(self, limits: Limits, session: LinkSession, executor: Executor) -> Value:
        """Return the payload of :class:`rtlstm.spec.link.LinkReport`."""
        return Cat(
            Const(LINK_VERSION, 16),
            session.session,
            Const(limits.body, 16),
            Const(limits.request_bytes, 16),
            Const(limits.response_bytes, 16),
            Const(limits.frames, 16),
            Const(IDENTITY, 32),
            Const(self._manifest.build_number, 32),
            executor.steps,
            session.dropped,
        )


class SerialPorts(Ports):
    """The ports of a link on a UART, away from the core."""

    rx: Signal = In(1)
    tx: Signal = Out(1)
    """The line; ``rx`` need not be synchronous to the clock."""
    errors: Signal = Out(32)
    active: Signal = Out(1)
    """Frames dropped since reset; a host has opened a session."""


class SerialLink(SerialPorts, CoreSide, CorePart):
    """The link on a UART; see :class:`LinkDevice`.

    ``divisor`` is the number of clock cycles per bit, perhaps a fraction.
    """

    def __init__(self, manifest: Manifest, divisor: Fraction | int) -> None:
        self._divisor = check_divisor(divisor)
        super().__init__(manifest)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.uart = uart = Uart(self._divisor)
        m.submodules.engine = engine = LinkDevice(self._manifest)
        outside = wiring.flipped(self)
        connect_some(m, outside, uart, ("rx", "tx"))
        wiring.connect(m, uart.received, engine.i)
        wiring.connect(m, engine.o, uart.sent)
        connect_some(m, outside, engine, ("errors", "active", *CoreSide.declared_members(self._manifest)))
        return m


class LinkedCore(SerialPorts, Component):
    """A :class:`~rtlstm.hdl.core.core.Core` with a :class:`~rtlstm.hdl.link.serial_link.SerialLink`.

    ``divisor`` is the number of clock cycles per bit, at least 4.
    """

    def __init__(self, manifest: Manifest, divisor: int) -> None:
        self._manifest, self._divisor = manifest, divisor
        super().__init__()

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.core = core = Core(self._manifest, StepEnds(self._manifest))
        m.submodules.link = link = SerialLink(self._manifest, self._divisor)
        connect_some(m, wiring.flipped(self), link, SerialPorts.port_names())
        connect_some(m, core, link, CoreSide.declared_members(self._manifest))
        return m
