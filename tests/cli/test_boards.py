"""``rtlstm boards MODEL``: which board to buy."""

from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
from support.small_builds import INPUTS

from rtlstm.boards import catalogue
from rtlstm.boards.catalogue import BOARDS, PRICES, find_board


@pytest.fixture(scope="module")
def x(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("typical") / "x.npy"
    np.save(path, np.random.default_rng(0).uniform(-1, 1, (40, INPUTS)).astype(np.float32))
    return path


def only(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    monkeypatch.setattr(catalogue, "usable_boards", lambda: [find_board(name) for name in names])


@pytest.mark.usefixtures("without_verilog")
def test_boards_are_compared(cli, model: Path, x: Path, monkeypatch, tmp_path: Path):
    only(monkeypatch, "ulx3s-12f", "tang-nano-20k", "icebreaker", "colorlight-i5")
    asked = ("boards", model, "--calibrate", x, "--weight-bits", 8, "--data-bits", 8)
    found = cli(*asked, "--json").json
    first = [each for each in found["boards"] if each["price"] == next(iter(PRICES))]
    best = min(first, key=lambda each: min(link["host_us"] for link in each["build"]["links"]))["board"]
    assert [each["board"] for each in found["boards"] if each["cheapest"]] == [best]
    links = {each["board"]: [link["link"] for link in each["build"]["links"]] for each in found["boards"]}
    assert links["colorlight-i5"] == ["serial", "ethernet"] and links["icebreaker"] == ["serial", "spi"]
    for each in found["boards"]:
        assert each["price"] in PRICES and each["refusal"] == ""
        fewer = each["board"] == "icebreaker"
        assert (each["build"]["weight_bits"] < 8, bool(each["build"]["changed"])) == (fewer, fewer)
        assert 0 < each["build"]["rms_error"] < each["build"]["spread"]
        for link in each["build"]["links"]:
            assert link["core_us"] < link["pins_us"] < link["host_us"]
    # For people, of two of them.
    only(monkeypatch, best, "icebreaker")
    shown = cli(*asked)
    assert "(fewer)" in shown.out and f"The cheapest that fits is {best}" in shown.out
    # What is chosen is what --fit chooses.
    command = shown.err.splitlines()[-1].removeprefix("next: rtlstm ").split()
    assert command[command.index("--fit") + 1] == best
    command[command.index("-o") + 1] = str(tmp_path / "chosen")
    report = cli(*command, "--json").json["report"]
    chosen = next(each["build"] for each in found["boards"] if each["cheapest"])
    assert (report["lanes"], report["macs"]) == (chosen["lanes"], chosen["macs"])
    assert report["accuracy"]["rms_error"] == chosen["rms_error"]
    assert report["cycles"]["step_latency_cycles"] == chosen["step_cycles"]


@pytest.mark.slow
def test_all_boards(cli, model: Path, x: Path):
    found = cli("boards", model, "--calibrate", x, "--json").json["boards"]
    assert [each["board"] for each in found] == list(BOARDS)


def lstm(folder: Path, inputs: int, units: int, directions: tuple[str, ...] = ("",)) -> tuple[Path, Path]:
    rng, folder = np.random.default_rng(0), folder / "large"
    folder.mkdir()
    sizes = {"weight_ih_l0": (inputs,), "weight_hh_l0": (units,), "bias_ih_l0": (), "bias_hh_l0": ()}
    arrays = {
        name + direction: rng.uniform(-0.3, 0.3, (4 * units, *size)).astype(np.float32)
        for direction in directions
        for name, size in sizes.items()
    }
    safetensors.numpy.save_file(arrays, folder / "large.safetensors")
    np.save(folder / "x.npy", rng.uniform(-1, 1, (8, inputs)).astype(np.float32))
    return folder / "large.safetensors", folder / "x.npy"


@pytest.mark.slow
def test_fewer_bits_where_those_asked_for_do_not_fit(cli, monkeypatch, tmp_path: Path):
    """Such a board is the cheapest only if all are such; what follows builds it."""
    model, x = lstm(tmp_path, 6, 20)
    only(monkeypatch, "icebreaker", "ulx3s-85f")
    ice, large = cli("boards", model, "--calibrate", x, "--json").json["boards"]
    assert ice["build"]["changed"] and ice["build"]["weight_bits"] < 16 and not ice["cheapest"]
    assert large["build"]["weight_bits"] == 16 and large["cheapest"]
    only(monkeypatch, "icebreaker")
    done = cli("boards", model, "--calibrate", x)
    assert "(fewer)" in done.out and "--fit icebreaker --fit-anyway" in done.err


@pytest.mark.slow
def test_a_network_that_fits_no_board(cli, monkeypatch, tmp_path: Path):
    model, x = lstm(tmp_path, 250, 250)
    only(monkeypatch, "icebreaker", "tang-nano-20k")
    done = cli("boards", model, "--calibrate", x)
    done.refused("the network fits none of 2 boards; ")
    assert (
        "what comes closest: large_core with its link does not fit icebreaker" in done.err
        and "make the network smaller" in done.err
    )
    assert "choose a larger device with --family, --lanes and --macs, or make the network smaller" in done.err


def test_refused(cli, model: Path, x: Path, tmp_path: Path):
    two, its_x = lstm(tmp_path, 3, 4, ("", "_reverse"))
    cli("boards", two, "--calibrate", its_x).refused("--fit and --max-steps")
    cli("boards", model).refused("--calibrate")
    cli("boards", "--calibrate", x).refused("give MODEL")
    cli("boards", "--weight-bits", 8).refused("give MODEL")
    cli("boards", "--calibrate-lengths", x).refused("give MODEL")
    cli("boards", "--batch-first").refused("give MODEL")
    cli("boards", "--pad", "front").refused("give MODEL")
