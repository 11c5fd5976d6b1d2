"""What links cost: frames, times on the wire, and those of simulated boards beside what is predicted."""

from pathlib import Path

import numpy as np
import pytest
from support.wire_time import check_steps_per_second, check_wire_time

from rtlstm import Lstm, Manifest, Network, Parameters, QuantizationSettings
from rtlstm.boards.board import Link
from rtlstm.boards.catalogue import BOARDS, PRICES, find_board, price_class
from rtlstm.boards.ethernet import Ethernet
from rtlstm.boards.wire import LINK_COSTS, frame_bytes, link_timing, predict_wire
from rtlstm.gen.builds.generate import generate_build
from rtlstm.gen.builds.on_board import OnBoard
from rtlstm.host.link.engine import LinkTimeouts
from rtlstm.host.link.framing import Frame
from rtlstm.sim.link_port import EthernetPort
from rtlstm.sim.simulated_board import BoardPort
from rtlstm.spec.link import PAYLOAD_LIMIT, FrameType

IP = "192.168.1.50"


@pytest.mark.parametrize("size", [0, 1, 100, 242, 243, 244, 300, PAYLOAD_LIMIT])
def test_bytes_of_a_frame(size: int):
    """Those of the longest one: a payload without zeros."""
    longest = Frame(FrameType.STEPS, 0x1234, 0x0101, 0x0101, b"\1" * size).to_wire()
    assert frame_bytes(size) == len(longest)
    assert len(Frame(FrameType.STEPS, 0x1234, 0, 0, bytes(size)).to_wire()) <= frame_bytes(size)


@pytest.mark.parametrize("name", BOARDS)
def test_every_link_of_a_board_has_times(name: str, pristine: Path):
    board, manifest = find_board(name), Manifest.load(pristine)
    assert set(board.links) <= LINK_COSTS.keys() and board.links[0] == "serial"
    assert price_class(name)[1] in PRICES
    clock = float(board.clock_range[0]) / 1e6
    for link in board.links:
        found = predict_wire(manifest, link_timing(board, link, clock))
        assert found.link == link and found.core_us + found.wire_us < found.pins_us < found.host_us
        assert 1e6 / found.host_us < found.host_steps_per_second <= found.steps_per_second


def test_another_packages_board_has_no_class_of_prices():
    assert price_class("mine") == (len(PRICES), "not known")


def test_wire_of_a_serial_port(pristine: Path):
    """Ten bits a byte."""
    board, manifest = find_board("ulx3s-85f"), Manifest.load(pristine)
    found = predict_wire(manifest, link_timing(board, "serial", 100))
    assert found.wire_us == pytest.approx((found.request_bytes + found.answer_bytes) * 10 / 3)
    slow = board.replace(most_baud=1_000_000)
    assert predict_wire(manifest, link_timing(slow, "serial", 100)).wire_us == pytest.approx(
        3 * found.wire_us
    )


def test_wire_of_ethernet(pristine: Path):
    """A byte in each cycle of 125 MHz."""
    board, manifest = find_board("colorlight-i5"), Manifest.load(pristine)
    found = predict_wire(manifest, link_timing(board, "ethernet", 100))
    assert found.wire_us == pytest.approx((found.request_bytes + found.answer_bytes) * 0.008)


def wide(inputs: int, units: int) -> Network:
    rng = np.random.default_rng(1)
    w_ih, w_hh, bias = (rng.uniform(-0.5, 0.5, (4 * units, *size)) for size in ((inputs,), (units,), ()))
    return Network(name="wide", layers=(Lstm(name="lstm", w_ih=w_ih, w_hh=w_hh, bias=bias),))


@pytest.mark.slow
@pytest.mark.rtl
@pytest.mark.parametrize(("inputs", "units", "bits", "clock"), [(40, 4, 16, 100), (3, 40, 8, 50)])
@pytest.mark.parametrize("link", LINK_COSTS)
def test_a_step_takes_as_long_as_predicted(
    link: Link, inputs: int, units: int, bits: int, clock: float, tmp_path: Path
):
    """Of many inputs of two bytes, and of many outputs; many of them take as long, too."""
    parameters = Parameters.for_family("ecp5", lanes=4, macs=4)
    settings = QuantizationSettings(weight_bits=8, data_bits=bits)
    generate_build(wide(inputs, units), tmp_path / "wide", settings=settings, parameters=parameters)
    ethernet = Ethernet.create(IP) if link == "ethernet" else None
    board = "ulx3s-85f" if ethernet is None else "colorlight-i5"
    on_board = OnBoard.create(tmp_path / "wide", board, clock, ethernet=ethernet, spi=link == "spi")
    scale = 1.0 if ethernet is None else 0.1
    timeouts = LinkTimeouts(retry=0.005 * scale, least_retry=0.001 * scale, most_retry=0.01 * scale)
    for check in (check_wire_time, check_steps_per_second):
        native = on_board.simulate()
        check(on_board, native, BoardPort(native) if ethernet is None else EthernetPort(native, IP), timeouts)
        native.close()
