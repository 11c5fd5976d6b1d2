"""The link in hardware answers every frame as the reference device does, the wrong ones too."""

from pathlib import Path

import numpy as np
import pytest
from support.linked_core import LinkedPort, compile_linked
from support.quick import quick
from support.random_builds import Case, make_case

from rtlstm.gen.quantise.quantiser import QuantizationSettings, quantise
from rtlstm.hdl.emit.verilog import linked_core_to_verilog
from rtlstm.host.device import Device
from rtlstm.host.link.framing import Deframer, Frame
from rtlstm.host.link.link_transport import LinkTransport
from rtlstm.sim.golden_device import GoldenDevice
from rtlstm.sim.link_device import DeviceEngine
from rtlstm.spec.inventory import link_limits
from rtlstm.spec.link import HEADER, NUMBERED, PAYLOAD_LIMIT, SUPPRESS, FrameType, value_bytes
from rtlstm.spec.network import Dense, Lstm, Network
from rtlstm.spec.packing import pack
from rtlstm.spec.parameters import Parameters
from rtlstm.spec.registers import Command, Register

pytestmark = pytest.mark.rtl

DIVISOR = 4
SESSION = 0x1234


def build(
    inputs: int, outputs: int, data_bits: int, output_bits: int | None = None, **parameters: int
) -> Case:
    rng = np.random.default_rng(inputs)
    layers = (
        Lstm(
            name="lstm",
            w_ih=rng.normal(size=(16, inputs)) / np.sqrt(inputs),
            w_hh=rng.normal(size=(16, 4)),
            bias=rng.normal(size=16),
        ),
        Dense(name="dense", weight=rng.normal(size=(outputs, 4)), bias=rng.normal(size=outputs)),
    )
    settings = QuantizationSettings(data_bits=data_bits, output_bits=output_bits)
    network = quantise(Network(layers=layers), settings)
    return make_case(1, network, Parameters(lanes=4, macs=4, **parameters), 1)


CASES = {
    "short steps": lambda: build(3, 2, 8, streams=3),
    "uneven beats": lambda: build(7, 5, 8, output_bits=12, streams=2, beat_in=4, beat_out=4),
    "steps beyond a frame": lambda: build(601, 301, 16, streams=1, beat_in=2),
}


class Pair:
    """A linked core and the reference, both with a session and the case's weights."""

    def __init__(self, case: Case) -> None:
        self.case, manifest = case, case.manifest
        library = compile_linked(linked_core_to_verilog(manifest, DIVISOR), f"{manifest.name}_link")
        self.line = LinkedPort(library, DIVISOR)
        transport = LinkTransport(self.line, manifest, seed=1)
        golden = GoldenDevice(Path(), manifest)
        for device in (transport, golden):
            Device(device, manifest).load(pack(case.network, manifest), verify=True)
        transport.flush()
        self.reference = DeviceEngine(golden, manifest, link_limits(manifest))
        self._deframers = Deframer(), Deframer()
        believed = transport.report.session
        hello = bytes([1]) + believed.to_bytes(2, "little")
        self.reference.receive(Frame(FrameType.HELLO, believed, 0, 0, bytes(3)).to_wire())
        answers = self.ask(Frame(FrameType.HELLO, SESSION, 9, 0, hello).to_wire())
        assert [frame.type for frame in answers] == [FrameType.REPORT]
        self.next = 0

    def ask(self, data: bytes) -> list[Frame]:
        """Send bytes to both; return the frames that both answer with."""
        self.line.write(data)
        came = b""
        while True:
            pending = self.line.pending
            more = self.line.read(0.02)
            came += more
            # 20,000 cycles of silence: the largest case's steps take a sixth of that each.
            if not more and not pending:
                break
        self.reference.receive(data)
        while self.reference.work():
            pass
        expected = b""
        while frame := self.reference.transmit():
            expected += frame
        got, wanted = (
            deframer.feed(part) for deframer, part in zip(self._deframers, (came, expected), strict=True)
        )
        assert [comparable(frame) for frame in got] == [comparable(frame) for frame in wanted]
        return got

    def request(self, *requests: tuple[int, bytes]) -> list[Frame]:
        """Send numbered requests that follow each other."""
        data = b""
        first = self.next
        for type, payload in requests:
            data += Frame(type, SESSION, self.next % 65536, first % 65536, payload).to_wire()
            self.next += 1
        return self.ask(data)


def comparable(frame: Frame) -> Frame:
    # A response may be sent before the last request of its chain has come. What REPORT says of steps and
    # of damaged frames may differ where the host was at fault.
    return frame._replace(payload=frame.payload if frame.type & NUMBERED else frame.payload[:20], ack=0)


@pytest.fixture(scope="module", params=quick(CASES, "short steps"))
def pair(request: pytest.FixtureRequest) -> Pair:
    return Pair(CASES[request.param]())


def steps(rng: np.random.Generator, case: Case, count: int, with_output: int) -> bytes:
    """Steps of random streams, of which the last so many want their output."""
    manifest = case.manifest
    size = value_bytes(manifest.numerics.data_bits)
    data = b""
    for index in range(count):
        stream = int(rng.integers(manifest.parameters.streams)) | (
            0 if index >= count - with_output else SUPPRESS
        )
        x = rng.integers(
            case.network.numerics.input.lowest, case.network.numerics.input.maximum, case.network.inputs
        )
        data += stream.to_bytes(2, "little")
        data += b"".join(int(value).to_bytes(size, "little", signed=True) for value in x)
    return data


def chain(rng: np.random.Generator, data: bytes, empty: int) -> list[tuple[int, bytes]]:
    """Bytes cut at random places into frames, and some frames without bytes for the output."""
    pieces = []
    while len(data) > PAYLOAD_LIMIT or (data and rng.random() < 0.4):
        cut = int(rng.integers(1, min(len(data), PAYLOAD_LIMIT) + 1))
        pieces.append(data[:cut])
        data = data[cut:]
    pieces += [data] + [b""] * empty
    return [(FrameType.PART, piece) for piece in pieces[:-1]] + [(FrameType.STEPS, pieces[-1])]


def random_requests(rng: np.random.Generator, case: Case) -> list[tuple[int, bytes]]:
    """A request, or a chain; one in three is wrong."""
    outputs = case.network.outputs * value_bytes(case.manifest.numerics.output_bits)
    kind = int(rng.integers(8))
    if kind == 0:
        words = b"".join(bytes([row, 0, 0, 0]) for row in rng.integers(16, size=rng.integers(1, 127)))
        return [(FrameType.WRITE, bytes([Register.ROW]) + words)]
    if kind == 1:
        register = int(rng.choice([Register.ID, Register.BUILD, Register.ROW, Register.STEPS]))
        return [(FrameType.READ, bytes([register, int(rng.integers(1, 127))]))]
    if kind == 2:
        payload = bytes([int(rng.integers(16)), 1, 2, 3, 4, 5])[: int(rng.integers(7))]
        return [(int(rng.choice([FrameType.READ, 0x14, 0x1F])), payload + b"\0\0")]
    if kind == 3:
        payload = bytes([int(rng.choice([Register.ROW, 16, 255]))]) + bytes(
            int(rng.choice([0, 3, 4, 4, 8, 9]))
        )
        return [(FrameType.WRITE, payload)]
    data = steps(rng, case, int(rng.integers(1, 4)), with_output=1)
    if kind == 4:
        # Quiet steps, cut within the last; or a stream that is not there.
        data = steps(rng, case, 2, with_output=0)
        if rng.integers(2):
            data = data[: int(rng.integers(1, len(data)))]
        else:
            data = data[: len(data) // 2] + b"\xff\x03" + data[len(data) // 2 + 2 :]
    return chain(rng, data, empty=-(-outputs // PAYLOAD_LIMIT))


def test_random_requests(pair: Pair) -> None:
    rng = np.random.default_rng(5)
    # One error that chance may leave out.
    kinds = {frame.payload for frame in pair.request((FrameType.WRITE, bytes([16, 0, 0, 0, 0])))}
    for _ in range(60):
        requests = random_requests(rng, pair.case)
        answers = pair.request(*requests)
        assert len(answers) == len(requests)
        # Whether the core was given anything of a step that was cut, is the device's affair.
        for stream in range(
            pair.case.manifest.parameters.streams if answers[-1].type == FrameType.ERROR else 0
        ):
            words = ((Register.STREAM, stream), (Register.COMMAND, Command.RESET))
            pair.request(*((FrameType.WRITE, bytes([register, value, 0, 0, 0])) for register, value in words))
        kinds |= {frame.type if frame.type == FrameType.DONE else frame.payload for frame in answers}
    assert kinds == {FrameType.DONE, b"\1", b"\2", b"\3", b"\4"}


def test_repeated_requests_are_not_carried_out_again(pair: Pair) -> None:
    frames = [
        Frame(FrameType.READ, SESSION, pair.next + k, pair.next, bytes([Register.ID, 1])) for k in range(3)
    ]
    lines = [frame.to_wire() for frame in frames]
    assert len(pair.ask(lines[0])) == 1 and pair.ask(lines[0]) == []
    # The next but one gives a notice, once.
    assert [frame.type for frame in pair.ask(lines[2])] == [FrameType.REPORT]
    assert pair.ask(lines[2]) == [] and len(pair.ask(lines[1] + lines[2])) == 2
    # All three are kept: only an acknowledgement frees them.
    resume = Frame(FrameType.RESUME, SESSION, 7, pair.next + 1, b"")
    again = pair.ask(resume.to_wire())
    assert [frame.seq for frame in again] == [7, pair.next + 1, pair.next + 2]
    assert [frame.seq for frame in pair.ask(resume._replace(ack=pair.next).to_wire())][1:] == [
        pair.next + 1,
        pair.next + 2,
    ]
    pair.next += 3


@pytest.mark.parametrize("body", [b"", b"\x01", bytes(HEADER.size - 1), bytes(600)])
def test_what_is_no_frame_is_dropped(pair: Pair, body: bytes) -> None:
    rng = np.random.default_rng(len(body))
    errors = pair.line.errors
    line = Frame(FrameType.RESUME, SESSION, 3, pair.next, b"").to_wire()
    bad = [
        line[:-3] + b"\0",
        line[1:],
        bytes([line[0]]) + line[2:],
        rng.bytes(200).replace(b"\0", b"") + b"\0",
    ]
    for data in bad:
        assert pair.ask(data) == []
    assert pair.line.errors == errors + len(bad) and len(pair.ask(b"\0\0" + line + b"\0\0")) == 1


def test_sessions(pair: Pair) -> None:
    wrong = Frame(FrameType.RESUME, 0, 4, 0, b"")
    assert [frame.type for frame in pair.ask(wrong.to_wire())] == [FrameType.LOST]
    other = Frame(FrameType.HELLO, 77, 4, 0, b"\1\0\0")
    assert [frame.type for frame in pair.ask(other.to_wire())] == [FrameType.LOST]
    same = Frame(FrameType.HELLO, SESSION, 4, 0, b"\1\0\0")
    assert [frame.type for frame in pair.ask(same.to_wire())] == [FrameType.REPORT]
    # An unfinished chain is forgotten with its session.
    pair.ask(Frame(FrameType.PART, SESSION, pair.next % 65536, pair.next % 65536, b"\0\0\1").to_wire())
    swap = Frame(FrameType.HELLO, 78, 5, 0, b"\1" + SESSION.to_bytes(2, "little"))
    back = Frame(FrameType.HELLO, SESSION, 6, 0, b"\1" + (78).to_bytes(2, "little"))
    for frame in (swap, back):
        assert [answer.type for answer in pair.ask(frame.to_wire())] == [FrameType.REPORT]
    pair.next = 0
    assert len(pair.request((FrameType.READ, bytes([Register.ID, 1])))) == 1
