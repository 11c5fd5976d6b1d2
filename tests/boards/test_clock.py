"""The fastest clock of a board's bitstream, with routes that are invented here."""

import json
from collections.abc import Callable, Iterable
from fractions import Fraction
from pathlib import Path
from threading import Event
from typing import cast

import pytest
from support import implementations
from support.quick import quick

from rtlstm.boards import bitstream as bitstreams
from rtlstm.boards.bitstream import BITSTREAM_RECORD, Bitstream, at_clock, find_fastest
from rtlstm.boards.board import BoardTiming, LogicPins, find_logic_timing, find_timing
from rtlstm.boards.catalogue import find_board
from rtlstm.boards.top import PLL
from rtlstm.fpga.families.base import Pin, fpga_family
from rtlstm.fpga.families.device import Pll
from rtlstm.fpga.place_route import Routed, UnroutedError, place_and_route, route_seeds
from rtlstm.fpga.resources import Counts
from rtlstm.fpga.synthesis import NETLIST, Synthesis, Top, synthesise, with_parameters
from rtlstm.fpga.tools import Tool, find_yosys
from rtlstm.gen.builds.on_board import OnBoard
from rtlstm.hdl.component import Component
from rtlstm.spec.errors import ConfigurationError, ToolError
from rtlstm.spec.manifest import Manifest
from rtlstm.tools.cache import CACHE_VARIABLE


def routed(mhz: float, seed: int = 1, missed: float | None = None, folder: Path | None = None) -> Routed:
    used = {"used": {"LUT": 1}, "available": {"LUT": 2}}
    return implementations.routed(seed, mhz, missed_mhz=missed, folder=folder, **used)


def search(board: str, first: float, later: Iterable[float], blocks: int = 0) -> tuple[list[float], Routed]:
    """Return the clocks that were tried, and the last route."""
    tried, answers = [], iter(later)

    def again(timing: BoardTiming) -> Routed:
        tried.append(timing.clock_mhz)
        return routed(next(answers))

    there = find_board(board)
    timing, found = find_fastest(there, find_timing(there, 20, 2_000_000), routed(first), blocks, again)
    assert timing.clock_mhz == tried[-1] and timing.bit_hz == 2_000_000
    return tried, found


@pytest.mark.parametrize(
    ("board", "first", "later", "blocks", "tried"),
    [
        ("ulx3s-12f", 137.36, [137.36], 0, [135]),
        # The PLL can make exactly what is reached.
        ("ulx3s-12f", 150, [150], 0, [150]),
        # A route that misses: the setting below what it reaches; one that misses by nothing: the one below.
        ("ulx3s-12f", 137.36, [131.2, 133], 0, [135, 130]),
        ("ulx3s-12f", 137.36, [100, 90, 80], 0, [135, 100, 90]),
        # The PLL's range.
        ("ulx3s-12f", 777, [777], 0, [400]),
        ("icebreaker", 41.8, [41.8], 4, [41.25]),
        ("icebreaker", 9.5, [9.5, 9.5, 9.5], 0, [16.125] * 3),
        # The data sheet's limit of block RAM in grade 6.
        ("ulx3s-12f", 250, [250], 1, [208.333333]),
        ("ulx3s-12f", 250, [250], 0, [250]),
        ("tang-nano-20k", 273, [270], 0, [270]),
    ],
)
def test_the_setting_below_what_is_reached(
    board: str, first: float, later: list[float], blocks: int, tried: list[float]
):
    clocks, found = search(board, first, later, blocks)
    assert clocks == tried
    assert found.fmax_mhz == later[len(tried) - 1]


@pytest.mark.parametrize(
    "name", ["ulx3s-85f", "orangecrab-25f", "icebreaker", "tang-nano-20k", "crosslink-nx"]
)
def test_settings_that_are_alike_differ_in_numbers_alone(name: str):
    """Each is nearest below what is wanted, and no further than what the documentation says."""
    board = find_board(name)
    uart = find_timing(board, 100)
    first = at_clock(board, uart, 100).pll
    texts = {key: value for key, value in first.parameters.items() if isinstance(value, str)}
    for mhz in ("16.2", "41.8", "99", "131.07", "180", "211.5"):
        pll = at_clock(board, uart, float(mhz)).pll
        assert pll.parameters.keys() == first.parameters.keys()
        assert texts.items() <= pll.parameters.items()
        assert (pll.output_port, pll.feedback, pll.attributes, pll.constants) == (
            first.output_port,
            first.feedback,
            first.attributes,
            first.constants,
        )
        wanted = Fraction(mhz) * 1_000_000
        assert 0.95 * wanted <= pll.output_hz <= wanted
        assert pll.output_hz <= find_timing(board, float(mhz)).clock_hz


def test_the_loop_of_a_nexus_pll_suits_its_dividers():
    """By the model of it in LiteX, with LiteX' limits, from the first divider to the last."""
    nx = pytest.importorskip("litex.soc.cores.clock.lattice_nx").NXPLL()
    board = find_board("crosslink-nx")
    cells = [at_clock(board, find_timing(board, 100), mhz).pll for mhz in range(60, 250)]
    (loop,) = [
        each
        for each in nx.transfer_func_coefficients
        if nx.numerical_params_to_HDL_params(each).items() <= cells[0].parameters.items()
    ]
    dividers = {cell.parameters["DIVF"] + 1 for cell in cells}
    assert min(dividers) <= 90 and max(dividers) >= 104 and dividers <= set(range(87, 108))
    for divider in (87, 97, 107):
        assert 0.8 <= nx.closed_loop_peak(divider, loop)["peak"] <= 1.35
        assert nx.open_loop_crossing(divider, loop)["phase"] > 45
    with pytest.raises(ConfigurationError, match="must have 10 to 14 MHz for its PLL, not 27"):
        board.replace(clock_hz=27_000_000).find_pll(Fraction(100_000_000))


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    return tmp_path / "cache"


def synthesised(folder: Path) -> Synthesis:
    cells = {PLL: {"type": "EHXPLLL", "parameters": {"CLKOS_DIV": f"{5:032b}", "CLKOS_ENABLE": "ENABLED"}}}
    cells["core.pll"] = {"type": "LUT4", "parameters": {"CLKOS_DIV": f"{5:032b}"}}
    folder.mkdir(parents=True)
    (folder / NETLIST).write_text(json.dumps({"modules": {"top": {"cells": cells}, "LUT4": {"cells": {}}}}))
    counts = Counts(cells={}, luts=1, ffs=1, multipliers=0, block_rams=1, large_rams=0)
    return Synthesis(folder=folder, key="k", core=counts, cores=1, harness=counts, seconds=1, stored=False)


def test_parameters_change_and_nothing_else(cache: Path, tmp_path: Path):
    given = synthesised(tmp_path / "netlist")
    found = with_parameters(given, PLL, {"CLKOS_DIV": 9, "CLKOS_ENABLE": "ENABLED"})
    cells = json.loads((found.folder / NETLIST).read_text())["modules"]["top"]["cells"]
    assert cells[PLL]["parameters"] == {"CLKOS_DIV": f"{9:032b}", "CLKOS_ENABLE": "ENABLED"}
    before = json.loads((given.folder / NETLIST).read_text())["modules"]["top"]["cells"]
    assert cells["core.pll"] == before["core.pll"] and before[PLL]["parameters"]["CLKOS_DIV"] == f"{5:032b}"
    assert found.key != given.key and found.core == given.core
    assert with_parameters(given, PLL, {"CLKOS_DIV": 8}).key not in (given.key, found.key)


Tools = Callable[..., list[tuple[int, str]]]


@pytest.fixture
def tools(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tools:
    """Replace all tools; routes reach what is given for each seed, and are written down."""

    def replace(reached: dict[int, tuple[float, float | None]], *later: float) -> list[tuple[int, str]]:
        """Seeds that are not in ``reached`` do not route."""
        asked: list[tuple[int, str]] = []
        synthesis, rest, folder = synthesised(tmp_path / "netlist"), iter(later), tmp_path / "route"
        folder.mkdir()
        (folder / "routed.config").write_text("routed")

        def route(given: Synthesis, *, seed: int, pins: str, **_: object) -> Routed:
            asked.append((seed, pins))
            if seed not in reached:
                raise UnroutedError(f"see seed{seed}.log")
            if given.key == synthesis.key:
                mhz, missed = reached[seed]
                return routed(mhz, seed, missed, folder)
            return routed(next(rest), seed, reached[seed][1], folder)

        tool = Tool("tool", ("true",), "1")
        family = fpga_family("ecp5")
        monkeypatch.setattr(bitstreams, "find_yosys", lambda: tool)
        monkeypatch.setattr(bitstreams, "synthesise", lambda *_, **__: synthesis)
        monkeypatch.setattr(bitstreams, "check_chains", lambda *_, **__: None)
        monkeypatch.setattr(bitstreams, "place_and_route", route)
        monkeypatch.setattr(bitstreams, "_pack", lambda *paths: paths[-1].write_text("bits"))
        monkeypatch.setattr(type(family), "find_nextpnr", lambda _: tool)
        last = family.need_bitstream()
        monkeypatch.setattr(type(family), "need_bitstream", lambda _: last)

        def verilog(_: object, __: object, timing: BoardTiming, ___: str, logic: object) -> str:
            return f"{timing.clock_mhz}" if logic is None else f"{timing.clock_mhz} {logic}"

        monkeypatch.setattr(bitstreams, "board_verilog", verilog)
        monkeypatch.setitem(vars(last), "find_packer", lambda: tool)
        return asked

    return replace


def make(
    manifest: Manifest, folder: Path, requested_mhz: float | None = None, seeds: tuple[int, ...] = (1,)
) -> Bitstream:
    board = find_board("ulx3s-12f")
    uart, out = find_timing(board, requested_mhz or 20), folder / "out"
    return bitstreams.make_bitstream(board, manifest, "", uart, out, requested_mhz=requested_mhz, seeds=seeds)


def test_the_best_seed_whose_link_is_in_time(tools: Tools, pristine: Path, tmp_path: Path):
    """Three seeds, then the best again: with a slower clock, since it is missed once."""
    asked = tools({1: (140, None), 2: (190, 24.1), 3: (151, None)}, 149.9, 149)
    manifest = Manifest.load(pristine)
    found = make(manifest, tmp_path, seeds=(1, 2, 3))
    assert sorted(seed for seed, _ in asked[:3]) == [1, 2, 3] and [seed for seed, _ in asked[3:]] == [3, 3]
    # All of them aim at the same clock, whatever the PLL makes.
    (pins,) = {pins for _, pins in asked}
    assert 'FREQUENCY NET "core.clk" 160000000 HZ;' in pins
    assert (found.seed, found.clock_mhz, found.fmax_mhz, found.met) == (3, 147.5, 149, True)
    assert found.seeds_mhz == {1: 140, 2: 190, 3: 151} and found.requested_mhz is found.link_mhz is None
    assert found.step_latency_us == round(manifest.cycles.step_latency_cycles / 147.5, 4)
    assert (tmp_path / "out" / "top.v").read_text() == "147.5"


def test_a_seed_that_does_not_route_leaves_the_others(tools: Tools, pristine: Path, tmp_path: Path):
    """It is named; if none routes, the first one's error is."""
    asked, manifest = tools({2: (140, None)}, 140), Manifest.load(pristine)
    found = make(manifest, tmp_path, seeds=(1, 2, 3))
    assert sorted(seed for seed, _ in asked) == [1, 2, 2, 3]
    assert (found.seed, found.seeds_mhz) == (2, {2: 140})
    assert found.failed_seeds == {1: "see seed1.log", 3: "see seed3.log"}
    with pytest.raises(UnroutedError, match=r"see seed1\.log"):
        make(manifest, tmp_path, seeds=(1, 3))


def test_an_error_before_routing_ends_all_seeds():
    """No other seed is waited for."""
    stopped = []

    def route(*, seed: int, stop: Event) -> Routed:
        if seed > 1:
            stopped.append(stop.wait(60))
        raise ToolError(f"seed {seed} has no nextpnr")

    with pytest.raises(ToolError, match="seed 1 has no nextpnr"):
        route_seeds(route, range(1, 4), 2)
    assert stopped and all(stopped)


@pytest.mark.parametrize(
    ("said", "error"), [("Running router2...", UnroutedError), ("Running main analytical placer", ToolError)]
)
def test_only_what_fails_in_routing_is_unrouted(cache: Path, tmp_path: Path, said: str, error: type):
    """The log tells how far nextpnr came."""
    script = f'for log; do true; done; echo "Info: {said}" > $log; echo "ERROR: no luck" >> $log; exit 1'
    tool, chosen = Tool("sh", ("sh", "-c", script, "sh"), "1"), find_board("ulx3s-12f").chosen
    with pytest.raises(ToolError, match="no luck") as raised:
        place_and_route(
            synthesised(tmp_path / "made"), "tiny", chosen, tool, tmp_path, seed=1, target_mhz=50, pins=""
        )
    assert type(raised.value) is error


def test_a_link_that_is_too_slow_is_not_met(tools: Tools, pristine: Path, tmp_path: Path):
    tools({1: (190, 24.1)}, 190)
    found = make(Manifest.load(pristine), tmp_path)
    assert (found.fmax_mhz, found.link_mhz, found.met) == (190, 24.1, False)


def test_a_clock_that_is_asked_for_is_routed_once(tools: Tools, pristine: Path, tmp_path: Path):
    asked = tools({1: (140, None), 2: (130, None)})
    found = make(Manifest.load(pristine), tmp_path, 139, seeds=(1, 2))
    assert len(asked) == 2 and "FREQUENCY NET" not in asked[0][1]
    assert (found.seed, found.clock_mhz, found.requested_mhz, found.met) == (1, 137.5, 139, True)
    assert (tmp_path / "out" / "top.v").read_text() == "137.5"


def test_logic_has_its_pins_and_no_link(tools: Tools, pristine: Path, tmp_path: Path):
    asked = tools({1: (60, None)})
    board, pin = find_board("ulx3s-12f"), Pin(port="mine", site="U18")
    timing, logic = find_logic_timing(board, 50, [pin]), cast("Component", "the logic")
    found = bitstreams.make_bitstream(
        board, Manifest.load(pristine), "", timing, tmp_path / "out", requested_mhz=50, logic=logic
    )
    ((_, pins),) = asked
    assert 'LOCATE COMP "mine" SITE "U18";' in pins and 'COMP "rx"' not in pins
    assert found.met and found.port == LogicPins(pins=(pin,)) and not found.port.backend
    assert Bitstream.model_validate_json(found.model_dump_json()) == found
    # The replaced conversion writes what it is given.
    assert (tmp_path / "out" / "top.v").read_text() == "50.0 the logic"


def test_a_simulated_board_has_the_clock_of_the_bitstream(tools: Tools, board_build: Path, tmp_path: Path):
    """Before there is one, the expected clock, with the margin that the documentation states."""
    expected = OnBoard.create(board_build, "ulx3s-12f")
    assert expected.requested_mhz is None and expected.timing.clock_mhz < 160
    tools({1: (137.36, None)}, 137.36)
    build = OnBoard.create(board_build, "ulx3s-25f")
    made = build.make_bitstream()
    try:
        assert made.clock_mhz == 135
        simulated = OnBoard.create(board_build, "ulx3s-25f")
        assert simulated.timing.clock_mhz == 135 and simulated.timing == at_clock(
            build.board, build.timing, 135
        )
        # A clock is rounded to one hertz in the record.
        path = build.output_folder / BITSTREAM_RECORD
        third = Bitstream.model_validate_json(path.read_text()).replace(clock_mhz=133.333333)
        path.write_text(third.model_dump_json())
        assert OnBoard.create(board_build, "ulx3s-25f").timing.clock_hz == Fraction(400_000_000, 3)
        assert OnBoard.create(board_build, "ulx3s-25f", 50).timing.clock_mhz == 50
    finally:
        (build.output_folder / BITSTREAM_RECORD).unlink()


TINY = """
module tiny(input clk, output [0:0] q);
  reg [11:0] count = 0, sum = 0;
  always @(posedge clk) begin count <= count + 1; sum <= (sum ^ {sum[10:0], count[11]}) + count; end
  assign q = sum[11];
endmodule
"""


def tiny_top(pll: Pll) -> str:
    """That counter behind a PLL, at the pins of a clock and a LED."""

    def text(value: int | str) -> str:
        return str(value) if isinstance(value, int) else f'"{value}"'

    wires = {pll.input_port: "clk", pll.output_port: "fast"}
    wires |= {name: f"{len(bits)}'b{bits}" for name, bits in pll.constants.items()}
    if pll.feedback is not None:
        wires |= dict.fromkeys(pll.feedback, "loop")
    parameters = ", ".join(f".{name}({text(value)})" for name, value in pll.parameters.items())
    ports = ", ".join(f".{name}({wire})" for name, wire in wires.items())
    return (
        "module tiny_top(input clk, output led0);\n  wire fast, loop;\n"
        f"  {pll.cell} #({parameters}) {PLL}({ports});\n"
        "  tiny core(.clk(fast), .q(led0));\nendmodule\n"
    )


@pytest.mark.tools
@pytest.mark.parametrize("name", quick(["icebreaker", "ulx3s-12f"], "icebreaker"))
def test_the_same_is_routed_with_another_clock(cache: Path, tmp_path: Path, name: str):
    """Only the numbers of the PLL change: with the same target, the route is the same."""
    board = find_board(name)
    uart = find_timing(board, 50)
    device, tools = board.chosen.device, board.family.need_place_route()
    pins = [line for pin in (board.clock, board.leds[0]) for line in tools.pin_lines(pin)]
    pins += [*tools.clock_lines("clk", board.clock_hz), *tools.net_lines("core.clk", 90_000_000)]
    found = []
    for mhz in (90, 40):
        pll = at_clock(board, uart, mhz).pll
        if not found:
            top = Top("tiny_top", tiny_top(pll))
            first = synthesis = synthesise(TINY, "tiny", device, find_yosys(), tmp_path / "made", top=top)
        else:
            synthesis = with_parameters(first, PLL, pll.parameters)
        found.append(
            place_and_route(
                synthesis,
                "tiny",
                board.chosen,
                board.family.find_nextpnr(),
                tmp_path / "made",
                seed=1,
                target_mhz=50,
                pins="\n".join(pins) + "\n",
            )
        )
        report = json.loads((tmp_path / "made" / "seed1.json").read_text())
        assert any(clock["constraint"] == pytest.approx(90, 0.01) for clock in report["fmax"].values())
    fast, slow = found
    assert fast.folder != slow.folder and not slow.stored
    assert (fast.fmax_mhz, fast.used, fast.worst_path) == (slow.fmax_mhz, slow.used, slow.worst_path)
    # What the bitstream is packed from has the new numbers.
    file = board.family.need_bitstream().result_options[1]
    assert fast.folder and slow.folder
    assert (fast.folder / file).read_bytes() != (slow.folder / file).read_bytes()
