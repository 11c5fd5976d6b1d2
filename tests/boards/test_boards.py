"""Boards: their pins, lines and constraint files."""

import re
from fractions import Fraction
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from amaranth.build import Clock, Pins, Resource, Subsignal
from support.packages import install
from support.served_board import check_golden
from support.small_builds import network

from rtlstm import Accelerator, ConfigurationError, Parameters
from rtlstm.boards.bitstream import constraints
from rtlstm.boards.board import Board, find_timing
from rtlstm.boards.catalogue import BOARDS, describe, find_any_board, find_board, find_target, usable_boards
from rtlstm.gen.builds.generate import generate_build
from rtlstm.gen.builds.on_board import OnBoard
from rtlstm.hdl.link.uart import bit_cycles
from rtlstm.host.link.engine import LinkTimeouts
from rtlstm.host.link.link_transport import LinkTransport
from rtlstm.sim.simulated_board import BoardPort
from rtlstm.spec.link import BAUD_RATES
from rtlstm.spec.plugins import PluginWarning


@pytest.mark.parametrize("name", BOARDS)
def test_every_board_is_whole(name: str):
    board = find_board(name)
    assert board.chosen.device.routable
    pins = list(board.pins())
    assert len({pin.site for pin in pins}) == len({pin.port for pin in pins}) == len(pins)
    timing = find_timing(board, 48.0)
    assert timing.clock_mhz <= 48 and timing.port.baud in BAUD_RATES and abs(timing.port.baud_error) <= 1
    assert board.clock_hz / timing.divisor == timing.port.baud


CLOCK = Resource("clk", 0, Pins("P1", dir="i"), Clock(25e6))
LINE = Resource("uart", 0, Subsignal("rx", Pins("P2", dir="i")), Subsignal("tx", Pins("P3", dir="o")))
LEDS = [Resource("led", index, Pins(f"L{index}", dir="o")) for index in range(4)]


def described(*resources: Resource, leds: int = 1, button: tuple[str, int] | None = None):
    names = tuple(("led", index, "") for index in range(leds))
    device = ("lfe5u-25f", "CABGA381", "6")
    return describe("mine", "Mine", device, resources, ("--cable", "x"), leds=names, button=button)


def test_a_board_is_described_by_its_resources():
    board = described(CLOCK, LINE, *LEDS, leds=3)
    assert [pin.site for pin in board.pins()] == ["P1", "P2", "P3", "L0", "L1", "L2"]


@pytest.mark.parametrize(
    ("resources", "options", "words"),
    [
        ([LINE, *LEDS], {}, "board 'mine' needs a resource with a clock's frequency"),
        ([CLOCK, *LEDS], {}, "board 'mine' needs resource 'uart' 0 for rx, but has none"),
        ([CLOCK, LINE], {}, "board 'mine' needs resource 'led' 0 for led0"),
        ([CLOCK, LINE, *LEDS], {"button": ("button", 0)}, "needs resource 'button' 0 for button"),
        ([CLOCK, Resource("uart", 0, Subsignal("rx", Pins("1"))), *LEDS], {}, "a part 'tx' of single-ended"),
        ([CLOCK, Resource("uart", 0, Pins("1")), *LEDS], {}, "resource 'uart' must have a part 'rx' of"),
        ([CLOCK, LINE, Resource("led", 0, Pins("1 2"))], {}, "'led' must have one pin for led0, but has 2"),
        ([CLOCK, LINE, *LEDS], {"leds": 4}, "leds: .* at most 3 items"),
        ([CLOCK, LINE, *LEDS], {"leds": 1, "button": ("led", 0)}, "but L0 is used twice"),
    ],
)
def test_what_a_board_lacks_is_named(resources: list[Resource], options: dict[str, object], words: str):
    with pytest.raises(ConfigurationError, match=words):
        described(*resources, **options)


def test_pins_come_from_amaranth_boards():
    board = find_board("ulx3s-85f")
    assert (board.clock.site, board.clock_hz) == ("G2", 25_000_000)
    assert (board.rx.site, board.tx.site) == ("M1", "L4")
    assert board.button is not None and board.button.inverted
    assert find_board(" iCEBreaker ").rx.attributes["PULLUP"] == "1"


def test_constraint_files():
    lpf = constraints(find_board("ulx3s-12f"))
    assert 'LOCATE COMP "rx" SITE "M1";\nIOBUF PORT "rx" IO_TYPE=LVCMOS33;' in lpf
    assert lpf.endswith('FREQUENCY PORT "clk" 25000000 HZ;\n')
    pcf = constraints(find_board("icebreaker"))
    assert (
        "set_io -pullup yes rx 6\n" in pcf and "set_io led0 37\n" in pcf and "set_frequency clk 12\n" in pcf
    )
    cst = constraints(find_board("tang-nano-20k"))
    assert 'IO_LOC "tx" 69;\nIO_PORT "tx" IO_TYPE=LVCMOS33;\n' in cst
    pdc = constraints(find_board("crosslink-nx"), aim_hz=Fraction(140_000_000))
    assert "ldc_set_location -site {F16} [get_ports rx]\n" in pdc
    assert "ldc_set_port -iobuf {IO_TYPE=LVCMOS33} [get_ports rx]\n" in pdc
    assert "create_clock -period 83.333333 [get_pins pll/REFCK]\n" in pdc
    assert pdc.endswith("create_clock -period 7.142857 [get_nets core.clk]\n")
    for text, pin in ((lpf, r'"(\w+)" SITE'), (pcf, r"set_io (?:-pullup yes )?(\w+)"), (cst, r'LOC "(\w+)"')):
        assert {"clk", "rx", "tx", "led0"} <= set(re.findall(pin, text))


def test_lines():
    board = find_board("ulx3s-85f")
    timing = find_timing(board, 100, 115_200)
    assert (timing.port.baud, timing.port.baud_error) == (115_200, pytest.approx(0.006))
    assert bit_cycles(timing.divisor) == (217,) * 10
    # Not every bit has as many cycles; a byte's last one ends a third of a cycle early.
    timing = find_timing(board, 50)
    assert (timing.port.baud, timing.port.baud_error, sum(bit_cycles(timing.divisor))) == (
        3_000_000,
        0.402,
        83,
    )
    # The line has the board's clock, whatever the core's is.
    assert find_timing(board, 7) == timing.replace(pll=board.find_pll(Fraction(7_000_000)))
    assert find_timing(find_board("colorlight-i9"), 50).port.baud == 1_000_000
    # A slower port than all usual rates has its own.
    assert find_timing(board.replace(most_baud=57_600), 50).port.baud == 57_600


@pytest.mark.parametrize(
    ("clock", "baud", "words"),
    [
        (25, 12_000_000, "must have 300 to 3,000,000 baud, not 12,000,000"),
        (10, 299, "must have 300 to 3,000,000 baud, not 299"),
        (500, None, "must be 3.125 to 400 MHz"),
    ],
)
def test_impossible_lines(clock: float, baud: int | None, words: str):
    with pytest.raises(ConfigurationError, match=words):
        find_timing(find_board("ulx3s-85f"), clock, baud)


@pytest.mark.slow
@pytest.mark.rtl
def test_a_nexus_board_runs(tmp_path: Path):
    """Its PLL multiplies the clock pin by its parameters, and results are the golden model's."""
    generate_build(network(), tmp_path, parameters=Parameters(lanes=4, macs=1, family="nexus"))
    on_board = OnBoard.create(tmp_path, "crosslink-nx", 100)
    native, manifest = on_board.simulate(), on_board.manifest
    assert native.clock_hz == pytest.approx(float(on_board.timing.clock_hz), rel=1e-6)
    assert 98e6 < native.clock_hz <= 100e6
    x = np.random.default_rng(1).uniform(-1, 1, (10, manifest.program.inputs))
    timeouts = LinkTimeouts(retry=0.005, least_retry=0.001, most_retry=0.01)
    with Accelerator(LinkTransport(BoardPort(native), manifest, timeouts, seed=1), manifest) as board:
        board.load_weights(tmp_path / "weights.bin")
        y, _ = board.run(x)
    check_golden(tmp_path, x, y)


def own_board(name: str, **fields: object) -> Board:
    return find_board("icebreaker").replace(name=name, **fields)


def test_board_is_made_anew_after_another_was_added():
    for title in ("first", "second"):
        BOARDS.add("own", partial(own_board, "own", title=title))
        try:
            assert find_board("own").title == title
        finally:
            BOARDS.remove("own")
    with pytest.raises(ConfigurationError, match="there is no board 'own'"):
        find_board("own")


def test_board_with_a_capital_is_found_in_any_case():
    for name in ("Own", "own"):
        BOARDS.add(name, partial(own_board, name))
    try:
        assert [find_board(name).name for name in ("Own", "own", "OWN", " oWn ")] == [
            "Own",
            "own",
            "Own",
            "Own",
        ]
        assert find_target("OWN").board.name == "Own"
    finally:
        for name in ("Own", "own"):
            BOARDS.remove(name)


def test_name_of_a_zynq_board_is_taken():
    with pytest.raises(ConfigurationError, match="board 'pynq-z2' is there already"):
        BOARDS.add("pynq-z2", partial(own_board, "pynq-z2"))
    assert find_any_board("PYNQ-Z2").name == "pynq-z2"


def test_board_that_cannot_be_made_is_skipped_in_the_list(tmp_path, monkeypatch):
    (tmp_path / "bad_boards.py").write_text("def bad(): return {}['clk']\nother = dict\n")
    install(tmp_path, "bad-boards", "[rtlstm.boards]\nbad = bad_boards:bad\nother = bad_boards:other\n")
    monkeypatch.syspath_prepend(tmp_path)
    good = [name for name in BOARDS if name not in ("bad", "other")]
    with pytest.warns(PluginWarning) as said:
        assert [board.name for board in usable_boards()] == good
    assert [str(each.message) for each in said] == [
        "board 'bad' of bad-boards 1.0 is skipped: board 'bad' cannot be made: KeyError('clk')",
        "board 'other' of bad-boards 1.0 is skipped: board 'other' must be a function that returns a Board "
        "of this name",
    ]


def test_unknown_board():
    with pytest.raises(ConfigurationError, match="there is no board .*; near names: ulx3s-85f"):
        find_board("ulx3s85f")
    with pytest.raises(ConfigurationError, match="there is no board 'arty'; there are .*ulx3s-85f"):
        find_board("arty")
