"""What a link costs: the time of a step at a board's pins, before there is a board.

Bytes and bits are those of docs/link.md, so they are exact. What the link's logic takes was fitted to
simulated boards, whose times are within :data:`TOLERANCE` of the prediction; a test compares them.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from pydantic import computed_field

from rtlstm.boards.board import Board, BoardTiming, Link, find_timing
from rtlstm.boards.ethernet import PHY_HZ, Ethernet
from rtlstm.spec.inventory import link_limits
from rtlstm.spec.link import AHEAD_BYTES, BODY_LIMIT, CRC_BYTES, HEADER, value_bytes
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.record import Record, filled

TOLERANCE: Final = 0.06
"""Largest relative error of a predicted time at the pins."""
USB_US: Final = 1000.0
"""Microseconds that a USB adapter adds, each way: an assumption."""
_ANY = "192.168.1.50"
"""An address: times do not depend on it."""


class LinkCost(NamedTuple):
    """One link: a row of :data:`LINK_COSTS`."""

    byte_us: Callable[[BoardTiming], float]
    """Microseconds of a byte on the wire."""
    around: int
    """Bytes that the wire adds to a frame: those of a network, or of SPI one before the first that counts."""
    shortest: int
    """Fewest bytes of a frame with them."""
    gap: int
    """Bytes of the pause between two frames."""
    framing: float
    """Cycles of the link's clock for each byte of an answer that must be there before the first leaves."""
    software_us: float
    """Microseconds of the host's processor for a step alone, and ``batch_us`` for one of many: measured by
    ``rtlstm bench --boards`` (docs/boards.md), for a link that is not Ethernet at a TCP socket."""
    batch_us: float
    adapter_us: float = 0.0
    """Microseconds that an adapter adds to a step alone: an assumption."""
    ahead: int = 0
    """Bytes of an answer that must be there, or all of a shorter one; 0 for those up to its first zero."""
    pause: int = 0
    """Bytes for which the wire waits before each answer of a batch, whose first are still being written."""
    beat: float = 4
    """Cycles of the core's clock for a beat of the input."""
    fixed_us: float = 0.0
    request_us: float = 0.0
    answer_us: float = 0.0
    """Microseconds in a network's logic: of a step, of a byte of its request and of one of its answer."""


_TCP_US, _TCP_BATCH_US = 372, 3.8
LINK_COSTS: Final[dict[Link, LinkCost]] = {
    "serial": LinkCost(
        lambda timing: 1e7 / timing.bit_hz, 0, 0, 0, 9,
        software_us=_TCP_US, batch_us=_TCP_BATCH_US, adapter_us=2 * USB_US,
    ),
    "ethernet": LinkCost(
        lambda timing: 1e6 / PHY_HZ, 54, 72, 12, 2, software_us=226, batch_us=2.5,
        ahead=BODY_LIMIT, beat=2, fixed_us=1.1, request_us=0.0166, answer_us=0.026,
    ),
    "spi": LinkCost(
        lambda timing: 8e6 / timing.bit_hz, 1, 0, 0, 2,
        software_us=_TCP_US, batch_us=_TCP_BATCH_US, ahead=AHEAD_BYTES, pause=AHEAD_BYTES,
    ),
}  # fmt: skip
"""The links by what they are on: another one is a row here."""
_FIXED = 8
"""Cycles of the link's clock for a request, whatever its size."""
_HANDOVER = 2.6
"""Cycles of each clock, on average, from one beat that crosses between link and core to the next; and of the
link's clock between two steps."""


class WireTime(Record):
    """Times of a step between a host and a board's core, in microseconds."""

    link: Link
    request_bytes: int
    answer_bytes: int
    """Bytes on the wire of a step alone, with those that the wire adds."""
    core_us: float
    """The core's step."""
    wire_us: float
    """Request and answer on the wire."""
    logic_us: float
    """The link's logic, with the crossing to the core's clock and back."""
    steps_per_second: float
    """Steps of one stream back to back, many in a frame, at the pins."""
    software_us: float
    batch_us: float
    adapter_us: float
    """As in :class:`LinkCost`."""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def pins_us(self) -> float:
        """From the first bit of a step's request to the last bit of its answer."""
        return round(self.core_us + self.wire_us + self.logic_us, 4)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def host_us(self) -> float:
        """A step alone, for a program at the host."""
        return round(self.pins_us + self.software_us + self.adapter_us, 4)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def host_steps_per_second(self) -> float:
        """Steps a second for a program at the host that sends many at once."""
        return round(min(self.steps_per_second, 1e6 / self.batch_us), 1)


def link_cost(timing: BoardTiming) -> LinkCost:
    """Return what a timing's link costs; frames cost as much where there is the raw mode, too."""
    return LINK_COSTS["spi" if timing.link == "raw_spi" else timing.link]


def link_timing(board: Board, link: Link, clock_mhz: float) -> BoardTiming:
    """Return the timing of a board with its link on this, at its fastest; errors as of ``find_timing``."""
    ethernet = Ethernet.create(_ANY) if link == "ethernet" else None
    return find_timing(board, clock_mhz, ethernet=ethernet, spi=link == "spi", alike=True)


def frame_bytes(payload: int) -> int:
    """Return the bytes of a frame, at most: header, checksum, stuffing and the zero at its end."""
    body = HEADER.size + payload + CRC_BYTES
    return body + -(-body // 254) + 1


def predict_wire(manifest: Manifest, timing: BoardTiming, block: int | None = None) -> WireTime:
    """Predict the times of a build's step on a board.

    ``block`` is the number of an answer's bytes up to its first zero. By default there is no zero, so that
    times are the longest.

    Raises ConfigurationError if the link cannot carry the build's steps.
    """
    cost, parameters, numerics = link_cost(timing), manifest.parameters, manifest.numerics
    port, program, room = manifest.input_port, manifest.program, link_limits(manifest).body - HEADER.size
    x_bytes = 2 + port.values * value_bytes(port.bits)
    y_bytes = program.outputs * value_bytes(numerics.output_bits)

    def wire_bytes(count: int) -> int:
        """Bytes on the wire of so many bytes of payload, in as few frames as they need."""
        full, rest = divmod(count, room)
        sizes = [frame_bytes(room)] * full + [frame_bytes(rest)] * (rest > 0 or not full)
        return sum(max(size + cost.around, cost.shortest) for size in sizes)

    byte_us, cycle_us, core_us = cost.byte_us(timing), 1e6 / timing.link_hz, 1 / timing.clock_mhz
    beats = parameters.port_beats(program.inputs), -(-program.outputs // parameters.beat_out)
    # A byte is read in two cycles. A beat of the input waits for the core, one of the output for the link.
    fed = (2 * x_bytes + 2 * beats[0]) * cycle_us + cost.beat * beats[0] * core_us
    read = y_bytes * cycle_us + beats[1] * (cycle_us + 4 * core_us)
    # Back to back, a beat is handed over only when the news has come that the last one was taken.
    beat_us = _HANDOVER * (cycle_us + core_us)
    feeding, reading = (
        (2 * x_bytes + _HANDOVER) * cycle_us + beats[0] * beat_us,
        y_bytes * cycle_us + beats[1] * beat_us,
    )
    around = cost.fixed_us + cost.request_us * frame_bytes(x_bytes) + cost.answer_us * frame_bytes(y_bytes)
    framed = HEADER.size + y_bytes + CRC_BYTES
    framed = min(framed, cost.ahead) if cost.ahead else min(block or framed, 254)
    request, answer = wire_bytes(x_bytes), wire_bytes(y_bytes)
    interval = manifest.cycles.step_interval_cycles * core_us
    many = max(1, min(room // x_bytes, room // max(1, y_bytes)))
    answers = wire_bytes(many * y_bytes) + cost.pause
    each = (max(wire_bytes(many * x_bytes), answers) + cost.gap) / many * byte_us
    return filled(
        WireTime,
        cost,
        link=timing.link,
        request_bytes=request,
        answer_bytes=answer,
        core_us=round(manifest.cycles.step_latency_cycles * core_us, 4),
        wire_us=round((request + answer) * byte_us, 4),
        logic_us=round(_FIXED * cycle_us + around + fed + read + cost.framing * framed * cycle_us, 4),
        steps_per_second=round(1e6 / max(each, interval, feeding, reading), 1),
    )
