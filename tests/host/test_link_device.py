"""The device's side of the link, frame by frame: docs/link.md, rule by rule."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from rtlstm.host.link.framing import Deframer, Frame
from rtlstm.sim.link_device import DeviceEngine
from rtlstm.spec.errors import DeviceError
from rtlstm.spec.fixed import IntArray
from rtlstm.spec.link import SUPPRESS, ErrorCode, FrameType, Limits, LinkReport
from rtlstm.spec.registers import IDENTITY

SESSION = 0x1234
F = FrameType


class Recorder:
    """A transport that notes what it is told; a step's output is its input plus one."""

    def __init__(self, outputs: int) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.outputs = outputs
        self.fails = False

    def write(self, register: int, words: IntArray) -> None:
        if self.fails:
            raise DeviceError("broken")
        self.calls.append(("write", int(register), *words.tolist()))

    def read(self, register: int, count: int = 1) -> IntArray:
        self.calls.append(("read", int(register), count))
        return np.arange(count) + 100 * register

    def exchange(self, streams: IntArray, x: IntArray, suppress: Any = None) -> IntArray:
        suppressed = np.zeros(len(x), bool) if suppress is None else suppress
        self.calls += [
            ("step", s, *v, q)
            for s, v, q in zip(streams.tolist(), x.tolist(), suppressed.tolist(), strict=True)
        ]
        return np.stack([np.resize(row + 1, self.outputs) for row in x])

    def close(self) -> None:
        pass


class Bench:
    """A device in session, spoken to in frames."""

    def __init__(self, build: Any, limits: Limits) -> None:
        # Steps of whole sequences never come here, so the recorder need not know their ends.
        self.core: Any = Recorder(build.manifest.program.outputs)
        self.device = DeviceEngine(self.core, build.manifest, limits)
        self.deframer = Deframer()

    def __call__(self, *frames: Frame, work: bool = True) -> list[Frame]:
        """Send frames; return what the device says."""
        self.device.receive(b"".join(frame.to_wire() for frame in frames))
        while work and self.device.work():
            pass
        said = []
        while line := self.device.transmit():
            said += self.deframer.feed(line)
        return said

    def hello(self, session: int = SESSION, believed: int = 0, nonce: int = 7) -> Frame:
        (said,) = self(Frame(F.HELLO, session, nonce, 0, b"\1" + believed.to_bytes(2, "little")))
        assert said.seq == nonce and said.session == session
        return said


@pytest.fixture
def bench(make_build: Callable[..., Any]) -> Bench:
    """Two inputs of one byte, three outputs, two streams; small memories."""
    bench = Bench(make_build(inputs=2, hidden=(3,), dense=(), streams=2), Limits(64, 256, 256, 4))
    assert bench.hello().type == F.REPORT
    return bench


def write(seq: int, word: int = 0, ack: int = 0, session: int = SESSION) -> Frame:
    return Frame(F.WRITE, session, seq, ack, bytes([3]) + word.to_bytes(4, "little"))


def done(seq: int, ack: int, payload: bytes = b"") -> Frame:
    return Frame(F.DONE, SESSION, seq, ack, payload)


def test_report_says_what_the_device_is(bench):
    report = LinkReport.from_bytes(bench.hello().payload)
    assert report.version == 1 and report.session == SESSION and report.identity == IDENTITY
    assert report.limits == Limits(64, 256, 256, 4)
    bench(Frame(F.STEPS, SESSION, 0, 0, bytes([0, 0, 1, 2, 1, 0x80, 3, 4])), write(9), write(0))
    report = LinkReport.from_bytes(bench.hello().payload)
    assert (report.steps, report.dropped) == (2, 2)


def test_requests_are_carried_out_once_and_in_order(bench):
    read = Frame(F.READ, SESSION, 1, 0, bytes([5, 2]))
    said = bench(write(0, 7), read, write(0, 7), read)
    words = (500).to_bytes(4, "little") + (501).to_bytes(4, "little")
    assert said == [done(0, 2), done(1, 2, words)]
    assert bench.core.calls == [("write", 3, 7), ("read", 5, 2)]


def test_request_after_a_lost_one_is_noticed_once(bench):
    (notice,) = bench(write(1), write(2))
    assert notice[:4] == (F.REPORT, SESSION, 0, 0)
    assert bench(write(0, 5)) == [done(0, 1)]
    assert [frame.type for frame in bench(write(3))] == [F.REPORT]
    assert bench.core.calls == [("write", 3, 5)]


def test_old_request_is_not_noticed(bench):
    bench(write(0), write(1))
    assert bench(write(0)) == bench(write(1)) == []
    assert len(bench.core.calls) == 2 and bench.device.dropped == 2


def test_resume_sends_again_what_is_not_acknowledged(bench):
    bench(write(0), write(1), write(2))
    resumed = bench(Frame(F.RESUME, SESSION, 99, 1))
    assert resumed[0][:4] == (F.REPORT, SESSION, 99, 3) and resumed[1:] == [done(1, 3), done(2, 3)]
    # An old acknowledgement, and one of what does not exist, mean nothing.
    for ack in (0, 4, 0x8000, 0xFFFF):
        assert bench(Frame(F.RESUME, SESSION, 99, ack))[1:] == [done(1, 3), done(2, 3)]
    assert bench(Frame(F.RESUME, SESSION, 99, 3))[1:] == []


def test_stranger_is_told_and_changes_nothing(bench):
    bench(write(0))
    for stranger in (0, 77):
        (lost,) = bench(Frame(F.RESUME, stranger, 5, 1))
        assert lost[:3] == (F.LOST, stranger, 5)
        assert LinkReport.from_bytes(lost.payload).session == SESSION
    assert bench(write(1, session=77)) == []
    assert bench(Frame(F.RESUME, SESSION, 6, 0))[1:] == [done(0, 1)]


def test_hello_swaps_only_what_it_knows(bench):
    bench(write(0))
    assert bench.hello().type == F.REPORT and bench.hello(0x1111, believed=0).type == F.LOST
    assert bench(Frame(F.RESUME, SESSION, 6, 0))[1:] == [done(0, 1)]
    assert bench.hello(0x1111, believed=SESSION)[:4] == (F.REPORT, 0x1111, 7, 0)
    # The first session's HELLO comes late, and is not taken.
    assert bench.hello(SESSION, believed=0).type == F.LOST
    assert bench(write(0, session=0x1111))[0][:4] == (F.DONE, 0x1111, 0, 1)


def test_new_session_forgets_what_was_not_carried_out(bench):
    bench(write(0), Frame(F.PART, SESSION, 1, 0, bytes([0, 0, 1])), work=False)
    bench.hello(0x1111, believed=SESSION)
    assert bench.core.calls == []
    assert bench(write(0, session=0x1111))[0].seq == 0


def test_numbers_wrap(bench):
    bench.device._expected = bench.device._oldest = 65530
    for number in range(65530, 65550):
        seq, ack = number % 65536, (number - 1) % 65536
        if number > 65530:
            assert bench(Frame(F.RESUME, SESSION, 9, ack))[1:] == [done(ack, seq)]
        assert bench(write(seq, ack=seq)) == [done(seq, (seq + 1) % 65536)]
        assert bench(write(seq, ack=ack)) == bench(write(ack, ack=ack)) == []
    assert len(bench.core.calls) == 20


def test_more_than_there_is_room_for_is_dropped(bench):
    assert bench(*(write(seq) for seq in range(5)), work=False)[0].seq == 0
    assert bench.device.overflows == 1
    assert [frame.seq for frame in bench()] == [0, 1, 2, 3]
    # They are kept until acknowledged, so that there is no room either.
    assert bench(write(4)) == [] and len(bench.core.calls) == 4
    assert bench(write(4, ack=2)) == [done(4, 5)]


def test_steps(bench):
    payload = bytes([1, 0, 5, 0xFF, 0, SUPPRESS >> 8, 1, 2, 0, 0, 0x80, 0])
    said = bench(Frame(F.STEPS, SESSION, 0, 0, payload))
    assert said == [done(0, 1, bytes([6, 0, 6, 0x81, 1, 0x81]))]
    assert bench.core.calls == [
        ("step", 1, 5, -1, False),
        ("step", 0, 1, 2, True),
        ("step", 0, -128, 0, False),
    ]


def test_chain_waits_for_its_end(bench):
    assert bench(Frame(F.PART, SESSION, 0, 0, bytes([1])), Frame(F.PART, SESSION, 1, 0, bytes([0, 5]))) == []
    assert bench.core.calls == []
    said = bench(Frame(F.STEPS, SESSION, 2, 0, bytes([6])))
    assert said == [done(0, 3), done(1, 3), done(2, 3, bytes([6, 7, 6]))]


def test_large_output_goes_on_in_the_next_response(make_build):
    bench = Bench(make_build(inputs=2, hidden=(70,), dense=(), streams=2), Limits(64, 256, 256, 4))
    bench.hello()
    parts = [Frame(F.PART, SESSION, 0, 0, bytes([0, 0])), Frame(F.PART, SESSION, 1, 0, bytes([1, 2]))]
    said = bench(*parts, Frame(F.STEPS, SESSION, 2, 0))
    assert [len(frame.payload) for frame in said] == [0, 57, 13]
    assert said[1].payload + said[2].payload == bytes([2, 3] * 35)
    # Without that frame, what is left over is thrown away, and the next request is not harmed.
    said = bench(Frame(F.STEPS, SESSION, 3, 3, bytes([0, 0, 1, 2])), write(4, ack=3))
    assert [len(frame.payload) for frame in said] == [57, 0]


@pytest.mark.parametrize(
    ("type", "payload", "code"),
    [
        (0x1F, b"", ErrorCode.TYPE),
        (F.WRITE, b"\3", ErrorCode.LENGTH),
        (F.WRITE, b"\3abcde", ErrorCode.LENGTH),
        (F.WRITE, b"\xffabcd", ErrorCode.REGISTER),
        (F.READ, b"\3", ErrorCode.LENGTH),
        (F.READ, b"\3\0", ErrorCode.LENGTH),
        (F.READ, b"\3\x7f", ErrorCode.LENGTH),
        (F.READ, b"\x10\1", ErrorCode.REGISTER),
        (F.STEPS, bytes([2, 0, 1, 1]), ErrorCode.STREAM),
        (F.STEPS, bytes([0, 0, 1]), ErrorCode.LENGTH),
        (F.STEPS, bytes([0]), ErrorCode.LENGTH),
    ],
)
def test_wrong_request_is_refused_and_the_next_one_taken(bench, type, payload, code):
    said = bench(Frame(type, SESSION, 0, 0, payload), write(1, 8))
    assert said == [Frame(F.ERROR, SESSION, 0, 2, bytes([code])), done(1, 2)]
    assert bench.core.calls[-1] == ("write", 3, 8)


def test_wrong_step_in_a_chain(bench):
    good, bad = bytes([0, 0, 1, 2]), bytes([3, 0, 1, 2])
    chain = [
        Frame(F.PART, SESSION, 0, 0, good),
        Frame(F.PART, SESSION, 1, 0, good + bad),
        Frame(F.STEPS, SESSION, 2, 0, good),
    ]
    said = bench(*chain)
    assert said[0] == done(0, 3, bytes([2, 3, 2]))
    assert said[1:] == [Frame(F.ERROR, SESSION, seq, 3, bytes([ErrorCode.STREAM])) for seq in (1, 2)]
    assert len(bench.core.calls) == 2


def test_core_that_fails_is_reported(bench):
    bench.core.fails = True
    assert bench(write(0)) == [Frame(F.ERROR, SESSION, 0, 1, bytes([ErrorCode.DEVICE]))]


def test_what_comes_from_a_device_is_dropped(bench):
    bench(Frame(F.DONE, SESSION, 0, 0), Frame(F.REPORT, SESSION, 0, 0, bytes(28)), Frame(0x55, SESSION, 0, 0))
    assert bench.device.dropped == 3 and bench.core.calls == []


def test_reset_device_knows_no_session(bench):
    bench(write(0))
    bench.device.reset()
    assert bench(Frame(F.RESUME, SESSION, 5, 0))[0].type == F.LOST
    assert bench.hello(believed=0).type == F.REPORT
