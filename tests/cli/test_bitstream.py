"""``rtlstm bitstream`` and ``rtlstm program``: real bitstreams of a tiny network, and what is refused."""

import os
import shutil
import stat
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file
from support.implementations import bitstream
from support.small_builds import named_options, network, rand

from rtlstm import Bitstream, BuildError, Dense, Lstm, Manifest, Network, Parameters, QuantizationSettings
from rtlstm.boards.catalogue import find_board, find_target
from rtlstm.boards.ethernet import LICENCE_FILE, Ethernet
from rtlstm.fpga.estimate import BOARD_SHARE, BoardTop, estimate
from rtlstm.fpga.fit import FitRequest
from rtlstm.gen.builds.generate import generate_build
from rtlstm.gen.builds.on_board import OnBoard, load_bitstream, slower_clock

pytestmark = pytest.mark.tools

SMALL = QuantizationSettings(weight_bits=4, data_bits=4, gate_bits=6, cell_bits=8)


def small_build(folder: Path, family: str) -> Path:
    parameters = Parameters(lanes=4, macs=1, family=family)
    generate_build(network(), folder, parameters=parameters, settings=SMALL)
    return folder


@pytest.mark.slow
def test_ecp5(cli, tmp_path: Path):
    """The whole way, then from what is stored."""
    folder = small_build(tmp_path / "small", "ecp5")
    arguments = ("bitstream", folder, "--board", "ulx3s-12f", "--clock", "30.1")
    done = cli(*arguments, "--json").good()
    found = done.json["bitstream"]
    assert found["met"] and found["clock_mhz"] == 30 and found["fmax_mhz"] > 30
    assert found["build_hash"] == Manifest.load(folder).build_hash
    used = {use["name"]: use["used"] for use in found["uses"]}
    assert used["EHXPLLL"] == 1 and used["TRELLIS_IO"] == 7 and used["TRELLIS_COMB"] > 1000
    file = Path(done.json["file"])
    data = file.read_bytes()
    # A comment, the preamble, and the part's own number among the first commands.
    assert data.startswith(b"\xff\x00") and b"\xff\xff\xbd\xb3" in data
    assert bytes.fromhex("e2000000 21111043") in data
    assert {"top.v", "top.lpf", "seed1.log", "bitstream.json"} <= {
        path.name for path in file.parent.iterdir()
    }
    again = cli(*arguments).good()
    assert "30 MHz, the PLL's nearest below 30.1; 3,000,000 baud" in again.out
    assert "bitstream (stored): " in again.out and file.read_bytes() == data
    programmed(cli, folder, file, tmp_path)


def programmed(cli, folder: Path, file: Path, tmp_path: Path) -> None:
    """With a stand-in for openFPGALoader that writes down what it was asked."""
    tools = tmp_path / "tools"
    tools.mkdir()
    loader = tools / "openFPGALoader"
    loader.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/asked\n')
    loader.chmod(loader.stat().st_mode | stat.S_IXUSR)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{tools}{os.pathsep}{os.environ['PATH']}")
        cli("program", folder, "--flash").good()
        assert (tmp_path / "asked").read_text() == f"--board ulx3s --write-flash {file}\n"
        loader.write_text("#!/bin/sh\necho no cable; exit 1\n")
        failed = cli("program", folder)
        assert failed.code == 2 and "configuring ulx3s-12f failed" in failed.err and "no cable" in failed.err
        patch.setenv("PATH", str(tools.parent))
        cli("program", folder).refused("needs openFPGALoader on the path", "apt install openfpgaloader")


@pytest.mark.slow
def test_ice40(cli, tmp_path: Path):
    folder = tmp_path / "small"
    parameters = Parameters(
        lanes=4, macs=1, lut_macs=1, slope_multipliers="lut", family="ice40", weight_memory="large"
    )
    settings = SMALL.replace(output_bits=8, gate_bits=8)
    generate_build(network(), folder, parameters=parameters, settings=settings)
    done = cli("bitstream", folder, "--board", "icebreaker", "--clock", "16.5", "--json").good()
    found = done.json["bitstream"]
    assert found["met"] and found["clock_mhz"] == 16.5
    used = {use["name"]: use["used"] for use in found["uses"]}
    assert used["ICESTORM_PLL"] == 1 and used["ICESTORM_SPRAM"] == 4 and used["ICESTORM_DSP"] > 0
    data = Path(done.json["file"]).read_bytes()
    assert data.startswith(b"\xff\x00") and b"\x7e\xaa\x99\x7e" in data and len(data) > 100_000


@pytest.mark.slow
def test_ethernet(cli, tmp_path: Path):
    """All clocks are met: also those of LiteEth, of the link and of the PHY."""
    folder = small_build(tmp_path / "small", "ecp5")
    arguments = ("bitstream", folder, "--board", "colorlight-i5", "--ip", "192.168.1.50", "--clock", "100")
    found = cli(*arguments, "--json").good().json["bitstream"]
    assert found["met"] and found["link_mhz"] is None and found["fmax_mhz"] > 100
    assert "Redistribution" in (folder / "boards" / "colorlight-i5" / LICENCE_FILE).read_text()


def layers(inputs: int, units: int, *outputs: int) -> Network:
    """An LSTM and dense layers of these sizes."""
    lstm = Lstm(name="lstm", w_ih=rand(4 * units, inputs), w_hh=rand(4 * units, units), bias=rand(4 * units))
    dense = (
        Dense(name=f"fc{index}", weight=rand(many, few), bias=rand(many))
        for index, (few, many) in enumerate(pairwise((units, *outputs)))
    )
    return Network(name="sized", layers=(lstm, *dense))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("board", "sizes", "parameters", "settings", "least_mhz"),
    [
        (
            "icebreaker",
            (6, 20, 64, 1),
            {"lanes": 4, "macs": 1, "family": "ice40", "weight_memory": "large", "tables": "direct"},
            {"gate_bits": 8, "cell_bits": 12, "tables": "direct"},
            18,
        ),
        ("ulx3s-85f", (128, 128, 1), {"lanes": 4, "macs": 32, "family": "ecp5"}, {}, 112),
    ],
    ids=["toptag", "silero"],
)
def test_published_sizes_have_the_fastest_clock(
    cli,
    tmp_path: Path,
    board: str,
    sizes: tuple[int, ...],
    parameters: dict,
    settings: dict,
    least_mhz: float,
):
    """Networks of two published sizes, with 8-bit weights, as docs/boards.md has them."""
    folder = tmp_path / "sized"
    generate_build(
        layers(*sizes),
        folder,
        parameters=Parameters.for_family(**parameters),
        settings=QuantizationSettings(weight_bits=8, data_bits=8, output_bits=8, **settings),
    )
    found = cli("bitstream", folder, "--board", board, "--json").good().json["bitstream"]
    assert found["met"] and found["clock_mhz"] > least_mhz and found["port"]["baud"] == 3_000_000


@pytest.mark.slow
@pytest.mark.parametrize(
    ("board", "sizes"),
    [("icebreaker", (6, 20)), ("icebreaker", (6, 20, 64, 1)), ("ulx3s-12f", (100, 100, 1))],
)
def test_options_that_a_refusal_names_make_a_bitstream(
    cli, tmp_path: Path, board: str, sizes: tuple[int, ...]
):
    """The LSTM of the README, toptag, and one whose weights fill the block RAM: too large with 16 bits."""
    model, folder = tmp_path / "sized.safetensors", tmp_path / "sized"
    lstm, *dense = layers(*sizes).layers
    tensors = {"lstm.weight_ih_l0": lstm.w_ih, "lstm.weight_hh_l0": lstm.w_hh, "lstm.bias_ih_l0": lstm.bias}
    tensors["lstm.bias_hh_l0"] = 0 * lstm.bias
    for layer in dense:
        tensors |= {f"{layer.name}.weight": layer.weight, f"{layer.name}.bias": layer.bias}
    save_file({name: np.float32(value) for name, value in tensors.items()}, model)
    run = ["generate", model, "-o", folder, "--fit", board]
    run += [word for layer in dense for word in ("--dense", layer.name)]
    refused = cli(*run)
    refused.refused(f"does not fit {board}", "it fits: ")
    done = cli(*run, *named_options(refused.err)).good()
    done = cli("bitstream", folder, "--board", board, "--json").good()
    assert done.json["bitstream"]["met"]


def test_liteeth_counts_in_the_expected_clock(board_build: Path):
    """As --fit counts it: it fills a device of 24 k LUTs by a fifth more."""
    boards = [
        OnBoard.create(board_build, "colorlight-i5", ethernet=each)
        for each in (None, Ethernet.create("10.0.0.5"))
    ]
    for board, ethernet in zip(boards, (False, True), strict=True):
        core = estimate(
            board.manifest, board.board.chosen, board=BoardTop(name="colorlight-i5", ethernet=ethernet)
        )
        assert core is not None and core.fmax_mhz is not None
        wanted = BOARD_SHARE * core.fmax_mhz
        assert 0.96 * wanted < board.timing.clock_mhz <= wanted + 0.05
    assert boards[1].timing.clock_mhz < boards[0].timing.clock_mhz


@pytest.mark.slow
def test_expected_clock(tmp_path: Path):
    """Before place and route: a share of the core's estimate, or of a usual target for a portable build."""
    small = OnBoard.create(small_build(tmp_path / "small", "ecp5"), "ulx3s-12f")
    core = estimate(small.manifest, small.board.chosen, board=BoardTop(name="ulx3s-12f"))
    assert core is not None and small.requested_mhz is None
    assert 0.96 * BOARD_SHARE * core.fmax_mhz < small.timing.clock_mhz <= BOARD_SHARE * core.fmax_mhz + 0.05
    portable = OnBoard.create(small_build(tmp_path / "portable", "generic"), "ulx3s-12f")
    assert portable.timing.clock_mhz == BOARD_SHARE * portable.board.chosen.target_mhz
    # More than the device has: slower than the PLL can be.
    folder = tmp_path / "wide"
    settings = QuantizationSettings(weight_bits=18, data_bits=18)
    generate_build(
        network(), folder, parameters=Parameters(lanes=64, macs=1, family="ice40"), settings=settings
    )
    assert OnBoard.create(folder, "icebreaker").timing.clock_mhz >= 16.125


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"link_mhz": 24.1},
            "another clock than the core's, with which the link runs, reaches only 24.1 MHz",
        ),
        (
            {},
            "seed 1 reaches 91 MHz, but the PLL was set to 100 MHz; generate the build with fewer --lanes or",
        ),
    ],
)
def test_fastest_clock_that_is_not_met(cli, pristine: Path, tmp_path: Path, monkeypatch, changes, said: str):
    """Of the best of two seeds."""
    folder = shutil.copytree(pristine, tmp_path / "build")
    more = {"seeds_mhz": {1: 91.0, 2: 88.5}, "failed_seeds": {3: "see seed3.log"}}
    found = bitstream(requested_mhz=None, **more, **changes)
    asked: list[object] = []
    monkeypatch.setattr(
        "rtlstm.gen.builds.on_board.make_bitstream", lambda *_, **given: asked.append(given) or found
    )
    (folder / "boards" / "ulx3s-12f").mkdir(parents=True)
    done = cli("bitstream", folder, "--board", "ulx3s-12f", "--seeds", "2", "--json")
    assert done.code == 1 and said in "".join(done.json["notes"])
    assert done.json["target"]["clock_mhz"] is done.json["target"]["requested_mhz"] is None
    assert done.json["bitstream"]["clock_mhz"] == 100
    assert list(asked[0]["seeds"]) == [1, 2] and asked[0]["requested_mhz"] is None
    shown = cli("bitstream", folder, "--board", "ulx3s-12f", "--seed", "7")
    assert "the fastest clock that is reached; 3,000,000 baud" in shown.out
    assert "seed 3 did not route and is left out: see seed3.log" in shown.err
    assert "seeds: 1: 91 MHz, 2: 88.5 MHz" in shown.out and list(asked[1]["seeds"]) == [7]


def test_clock_to_ask_for():
    # 97 % of 91 MHz, and the nearest clock below that the PLL makes.
    assert slower_clock(bitstream(), find_board("ulx3s-12f")) == "87.5"
    assert slower_clock(bitstream(fmax_mhz=3.0), find_board("ulx3s-12f")) is None
    assert slower_clock(bitstream(fmax_mhz=16.2), find_board("icebreaker")) is None


def test_missed_clock(cli, pristine: Path, tmp_path: Path, monkeypatch):
    """Place and route is another test's: here it says that it was too slow."""
    folder = shutil.copytree(pristine, tmp_path / "build")
    manifest = Manifest.load(folder)

    def slow(board, *_, **__) -> Bitstream:
        place = folder / "boards" / board.name
        place.mkdir(parents=True)
        (place / "top.bit").write_bytes(b"bits")
        return bitstream(build_hash=manifest.build_hash)

    monkeypatch.setattr("rtlstm.gen.builds.on_board.make_bitstream", slow)
    done = cli("bitstream", folder, "--board", "ulx3s-12f", "--clock", "100")
    assert done.code == 1
    assert "timing is not met: 100 MHz was asked for and seed 1 reaches 91 MHz; use --clock 87.5" in done.err
    assert (
        "87.5, or try more --seeds" in done.err and "clock: 100 MHz, a step 0.5 us; 91 MHz would" in done.out
    )
    assert "wrapper" not in done.err
    cli("program", folder).refused("must meet its clock, but reaches 91 of 100 MHz")
    # Changed or incomplete.
    bits = folder / "boards" / "ulx3s-12f" / "top.bit"
    bits.write_bytes(b"bitz")
    changed = (
        "must have a bitstream of this build for ulx3s-12f; make one with "
        f"rtlstm bitstream {folder} --board ulx3s-12f"
    )
    cli("program", folder).refused(changed)
    bits.unlink()
    cli("program", folder).refused(changed)
    cli("program", folder, "--board", "ulx3s-85f").refused(
        f"for ulx3s-85f; make one with rtlstm bitstream {folder} --board ulx3s-85f"
    )
    with pytest.raises(BuildError, match=r"make one with `Build\('.*'\)\.bitstream\(board='ulx3s-85f'\)`$"):
        load_bitstream(folder, "ulx3s-85f")


@pytest.mark.slow
def test_what_a_serial_board_leaves_out(cli, tmp_path: Path, monkeypatch):
    folder = tmp_path / "build"
    generate_build(network(), folder, parameters=Parameters(lanes=4, macs=1, bus="axilite"), settings=SMALL)
    monkeypatch.setattr("rtlstm.gen.builds.on_board.make_bitstream", lambda *_, **__: bitstream(met=True))
    (folder / "boards" / "ulx3s-12f").mkdir(parents=True)
    done = cli("bitstream", folder, "--board", "ulx3s-12f", "--clock", "100").good()
    assert "the serial port is wired to the core itself: the build's axilite wrapper is left out" in done.err
    assert "sizes were chosen" not in done.err


@pytest.mark.slow
def test_another_board_than_the_sizes_were_chosen_for(cli, tmp_path: Path, monkeypatch):
    folder, fit = tmp_path / "build", FitRequest(**find_target("colorlight-i5")._asdict())
    generate_build(network(), folder, fit=fit, settings=SMALL)
    monkeypatch.setattr("rtlstm.gen.builds.on_board.make_bitstream", lambda *_, **__: bitstream(met=True))
    for board in ("ulx3s-12f", "colorlight-i5"):
        (folder / "boards" / board).mkdir(parents=True)
        done = cli("bitstream", folder, "--board", board).good()
        said = (
            f"sizes were chosen for colorlight-i5: 'rtlstm generate' with --fit {board} chooses" in done.err
        )
        assert said == (board != "colorlight-i5")


@pytest.mark.usefixtures("without_verilog")
def test_refused(cli, pristine: Path, tmp_path: Path):
    cli("program", pristine).refused(
        f"has no bitstream; make one with rtlstm bitstream {pristine} --board BOARD"
    )
    cli("bitstream", pristine, "--board", "nano").refused("there is no board 'nano'")
    cli("bitstream", pristine, "--board", "icebreaker", "--clock", "5").refused("must be 16.125 to 270 MHz")
    cli("bitstream", pristine, "--board", "icebreaker", "--seeds", "0").refused("--seeds")
    both = cli("bitstream", pristine, "--board", "icebreaker", "--seeds", "3", "--seed", "2")
    both.refused("--seeds 3 tries the seeds 1 to 3: leave out --seed 2, or --seeds")
    folder = small_build(tmp_path / "other", "ice40")
    cli("bitstream", folder, "--board", "ulx3s-85f").refused("generate it with --family ecp5")
