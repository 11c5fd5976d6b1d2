"""A step's time at the pins of a simulated board, beside what is predicted of it."""

import numpy as np

from rtlstm.boards.wire import TOLERANCE, link_cost, predict_wire
from rtlstm.gen.builds.on_board import OnBoard
from rtlstm.host import Accelerator
from rtlstm.host.link.byte_ports import BytePort
from rtlstm.host.link.engine import LinkTimeouts
from rtlstm.host.link.framing import Frame, encode_values
from rtlstm.host.link.link_transport import LinkTransport
from rtlstm.sim.simulated_board import NativeBoard
from rtlstm.spec.link import FrameType, value_bytes


def check_wire_time(on_board: OnBoard, native: NativeBoard, port: BytePort, timeouts: LinkTimeouts) -> None:
    """Run single steps from a rested board; each takes what is predicted, within the tolerance."""
    manifest = on_board.manifest
    rng, inputs = np.random.default_rng(3), manifest.program.inputs
    with LinkTransport(port, manifest, timeouts, seed=1) as transport:
        Accelerator(transport, manifest).load_weights(on_board.folder / "weights.bin")
        for number in range(4):
            x = rng.integers(1, 100, (1, inputs))
            before = transport.statistics.bytes_sent, transport.statistics.bytes_received
            y = transport.exchange(np.zeros(1, dtype=np.int32), x.astype(np.int32))
            port.read(manifest.cycles.step_interval_cycles * 4e-8)
            if not number:
                # The weights' last writes were answered, too, and the core's first step takes longer.
                continue
            # What comes before the answer's first zero is in the frame's first byte.
            sent = transport.statistics.requests - 1
            payload = encode_values(y, value_bytes(manifest.numerics.output_bits)).tobytes()
            frame = Frame(FrameType.DONE, transport._engine._session, sent, sent + 1, payload).to_wire()
            found = predict_wire(manifest, on_board.timing, frame[0])
            measured = native.answer_seconds * 1e6
            if on_board.timing.link != "ethernet":
                after = transport.statistics.bytes_sent, transport.statistics.bytes_received
                added = link_cost(on_board.timing).around
                assert tuple(now - then + added for now, then in zip(after, before, strict=True)) == (
                    found.request_bytes,
                    found.answer_bytes,
                )
            assert abs(measured / found.pins_us - 1) <= TOLERANCE, (measured, found)
            assert transport.statistics.repeated == 0


def check_steps_per_second(
    on_board: OnBoard, native: NativeBoard, port: BytePort, timeouts: LinkTimeouts | None, least: float = 0
) -> None:
    """Run batches of steps, by the board's clock: as many a second as are predicted."""
    manifest, steps = on_board.manifest, 1000
    predicted = predict_wire(manifest, on_board.timing).steps_per_second
    x = np.random.default_rng(1).integers(-100, 100, (steps, manifest.program.inputs))
    with LinkTransport(port, manifest, timeouts, seed=1) as transport:
        Accelerator(transport, manifest).load_weights(on_board.folder / "weights.bin")
        transport.flush()
        begun = port.now()
        transport.exchange(np.zeros(steps, dtype=np.int32), x)
        measured = steps / (port.now() - begun)
        print(f"{measured:,.0f} steps a second, {predicted:,.0f} predicted")
        assert abs(measured / predicted - 1) <= TOLERANCE and measured > least
        assert transport.statistics.repeated == 0
